/* SPDX-License-Identifier: MIT */
#include "source_tree.h"

#include "options.h"
#include "links.h"
#include "../sys/attributes.h"
#include "../sys/look.h"
#include "../sys/removal.h"
#include "../sys/temporary.h"
#include "../../formats/pattern.h"

/* -- side files -- */

#define SIDE_SUFFIX ".lmc-apply"

char *name_journal(const char *path) { return name_side_file(path, SIDE_SUFFIX); }

static int has_side_suffix(const char *path, const char *suffix)
{
    const char *last = base_name(path);
    return *last == '.' && is_suffix_of(suffix, last);
}

int is_side_name(const char *path) { return has_side_suffix(path, SIDE_SUFFIX); }

/* Fails if that side file is there. Frees its path. */
static int check_side(char *side, enum exit_code code, const char *path, const char *what)
{
    struct stat st;
    const int is_there = lstat(side, &st) == 0;
    if (is_there) (void)fail(code, path, "%s %.300s", what, side);
    free(side);
    return is_there ? (int)code : CODE_OK;
}

int check_finished(const char *path, enum exit_code code)
{
    char *full = realpath(path, NULL);
    int result = CODE_OK;
    while (full && *full && result == CODE_OK) {
        result = check_side(name_journal(full), code, path,
                            "is left half applied, or lmc apply is running: finish that first; if "
                            "the file was replaced since then, remove");
        if (result == CODE_OK)
            result = check_side(name_removal_mark(full), code, path,
                                "is what an lmc --rm that was stopped has left, or one is running; "
                                "its snapshot has all of it: remove what is left, and then");
        *strrchr(full, '/') = 0;
    }
    free(full);
    return result;
}

/* -- what is in a directory -- */

void say_unreadable(const struct listing *l, size_t from, size_t n, const char *root)
{
    size_t n_found = n;
    for (size_t i = from; i < l->n; i++) {
        if (l->entries[i].is_directory || l->entries[i].link) continue;
        char *full = join_path(root, l->entries[i].path);
        int fd = open_file(AT_FDCWD, full, O_RDONLY);
        if (fd >= 0) close(fd);
        else if (n_found++ < MOST_NAMED) (void)fail_errno(full, errno, "cannot open it");
        free(full);
    }
    if (n_found > MOST_NAMED)
        say(root, "holds %llu more files that cannot be opened",
            (unsigned long long)(n_found - MOST_NAMED));
}

static void say_followed_links(const struct listing *l, const char *root)
{
    size_t first = 0;
    if (l->n_followed == 0) return;
    while (!l->entries[first].is_followed) first++;
    say(root,
        "holds %llu link%s to files outside of it, which %s stored as %s; --no-dereference stores "
        "links; the first is '%.300s'",
        (unsigned long long)l->n_followed, l->n_followed == 1 ? "" : "s",
        l->n_followed == 1 ? "is" : "are", l->n_followed == 1 ? "a file" : "files",
        l->entries[first].path);
}

/* Reports what a snapshot of the listing cannot hold. code: of listing it */
static int check_listing(const struct listing *l, int code, const char *root, int is_removed,
                         const struct options *o)
{
    if (code != CODE_OK && !l->is_cut) say_unreadable(l, 0, 0, root);
    for (size_t i = 0; i < l->n_others && code == CODE_OK && o->verbosity > 0; i++)
        say(root, "'%.300s' is neither a file nor a directory nor a link, and is left out",
            l->others[i]);
    if (l->n_outside && code == CODE_OK && o->verbosity > 0)
        say(root,
            "holds %llu link%s to directories outside of it, which are stored as links; "
            "--dereference stores what is there",
            (unsigned long long)l->n_outside, l->n_outside == 1 ? "" : "s");
    if (l->n_special && code == CODE_OK && o->verbosity > 0)
        say(root, "holds %llu link%s to devices, pipes or sockets, which are stored as links",
            (unsigned long long)l->n_special, l->n_special == 1 ? "" : "s");
    if (code == CODE_OK && o->verbosity > (is_removed ? 0 : 1)) say_followed_links(l, root);
    for (size_t i = 0; i < l->n && code == CODE_OK; i++) {
        const char *path = l->entries[i].path;
        if (is_temporary_name(path))
            code = fail(CODE_ERROR, root,
                        "holds '%.300s', which lmc is writing, or left when it was killed; wait "
                        "until lmc ends, or remove it",
                        path);
        else if (is_side_name(path))
            code = fail(
                CODE_ERROR, root,
                "holds '%.300s', of an lmc apply that is running or was killed; finish that first",
                path);
        else if (has_side_suffix(path, REMOVAL_SUFFIX))
            code = fail(CODE_ERROR, root,
                        "holds '%.300s', of an lmc --rm that is running or was stopped: first "
                        "remove what that has left, and this file",
                        path);
    }
    return code;
}

/* The patterns of --exclude, and which of them have left something out. */
struct exclusion {
    const struct options *o;
    unsigned char *has_matched;
};

static int is_excluded(void *user, const char *path)
{
    struct exclusion *const e = (struct exclusion *)user;
    const char *const name = base_name(path);
    for (size_t i = 0; i < e->o->n_excluded; i++) {
        const char *const pattern = e->o->excluded[i];
        size_t size = strlen(pattern);
        while (size > 1 && pattern[size - 1] == '/') size--;
        if (!match_pattern(pattern, size, NULL, path) && !match_pattern(pattern, size, NULL, name))
            continue;
        e->has_matched[i] = 1;
        return 1;
    }
    return 0;
}

int list_included(struct listing *l, const char *root, enum link_mode mode, uint64_t most,
                  const struct options *o)
{
    struct exclusion e = {o, (unsigned char *)zeroed(o->n_excluded + 1, 1)};
    const struct filter but = {is_excluded, &e};
    const int code = list_filtered_tree(l, root, mode, most, o->n_excluded ? &but : NULL);
    for (size_t i = 0; i < o->n_excluded && code == CODE_OK && o->verbosity > 0; i++)
        if (!e.has_matched[i])
            say(root, "--exclude '%.300s' matches nothing in it", o->excluded[i]);
    free(e.has_matched);
    return code;
}

int list_sources(struct listing *l, const char *root, int is_removed, const struct options *o)
{
    memset(l, 0, sizeof *l);
    int code = list_included(l, root, o->links, most_files(o), o);
    code = check_listing(l, code, root, is_removed, o);
    /* afterwards: else what has begun meanwhile would have been seen in part */
    return code == CODE_OK ? check_finished(root, CODE_ERROR) : code;
}

int list_unchecked(struct listing *l, const char *root, const struct options *o)
{
    const int code = list_tree(l, root, o->links, most_files(o));
    return check_listing(l, code, root, 0, o);
}

static int has_files(const struct listing *l)
{
    for (size_t i = 0; i < l->n; i++)
        if (*l->entries[i].path && !l->entries[i].link) return 1;
    return 0;
}

int is_stored(const struct entry *e, const struct listing *l)
{
    return *e->path ? !e->link : !has_files(l);
}

/* -- links -- */

/* A file that has several names, some of them perhaps in other directories. */
struct shared {
    dev_t device;
    ino_t inode;
    size_t number; /* in the listing */
};

static int compare_shared(const void *a, const void *b)
{
    const struct shared *x = (const struct shared *)a, *y = (const struct shared *)b;
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    if (x->inode != y->inode) return x->inode < y->inode ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* first[i]: the number of the first entry that is the same file as entry i, or i itself. */
static void find_shared(size_t *first, const struct listing *l, const char *root)
{
    struct shared *list = (struct shared *)resize(NULL, l->n, sizeof *list);
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        struct stat st;
        first[i] = i;
        if (l->entries[i].is_directory || l->entries[i].link) continue;
        char *full = join_path(root, l->entries[i].path);
        if (lstat(full, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink > 1) {
            list[n].device = st.st_dev;
            list[n].inode = st.st_ino;
            list[n++].number = i;
        }
        free(full);
    }
    if (n) qsort(list, n, sizeof *list, compare_shared);
    for (size_t i = 1; i < n; i++)
        if (list[i].device == list[i - 1].device && list[i].inode == list[i - 1].inode)
            first[list[i].number] = first[list[i - 1].number];
    free(list);
}

void collect_links(struct links *links, const struct listing *l, const char *root)
{
    size_t *first = (size_t *)resize(NULL, l->n, sizeof *first);
    find_shared(first, l, root);
    for (size_t i = 0; i < l->n; i++)
        if (l->entries[i].link)
            add_link_record(links, LINK_SYMBOLIC, l->entries[i].path, l->entries[i].link);
        else if (first[i] != i)
            add_link_record(links, LINK_HARD, l->entries[i].path, l->entries[first[i]].path);
    free(first);
}

/* -- what is lost -- */

enum { LOST_OWNER, LOST_ATTRIBUTES, LOST_ACL, LOST_MODE, N_LOST };
static const char *const lost_names[N_LOST] = {
    "owner or group", "extended attributes", "access control list", "setuid, setgid or sticky bit"};

/* What a snapshot does not keep: the number of files that have it, and the first such file. */
struct lost {
    uid_t owner; /* of the restored files */
    gid_t group;
    mode_t root; /* mode bits that a restored directory gets without the snapshot */
    size_t n[N_LOST];
    char *first; /* NULL: nothing is lost */
};

/* The user who restores becomes the owner. Below a setgid directory, its group is inherited. */
static void expect_owner_of_tree(struct lost *lost, const char *root)
{
    char *parent = join_path(root, "..");
    struct stat st;
    lost->owner = geteuid();
    lost->group = getegid();
    lost->root = 0777;
    if (stat(parent, &st) == 0 && (st.st_mode & S_ISGID)) {
        lost->group = st.st_gid;
        lost->root |= S_ISGID;
    }
    free(parent);
}

static void expect_owner_of_file(struct lost *lost, const char *snapshot)
{
    struct stat st;
    const int is_there = stat(snapshot, &st) == 0;
    lost->owner = is_there ? st.st_uid : geteuid();
    lost->group = is_there ? st.st_gid : getegid();
}

/* is_told: the snapshot has the mode of path. */
static void look_for_lost(struct lost *lost, const char *path, int is_told)
{
    struct stat st;
    int is_lost[N_LOST], any = 0;
    if (lstat(path, &st) != 0 || S_ISLNK(st.st_mode)) return; /* a link has none of these */
    unsigned attached = find_attached(path);
    is_lost[LOST_OWNER] = st.st_uid != lost->owner || st.st_gid != lost->group;
    is_lost[LOST_ATTRIBUTES] = (attached & HAS_ATTRIBUTES) != 0;
    is_lost[LOST_ACL] = (attached & HAS_ACL) != 0;
    mode_t kept = is_told ? kept_mode(st.st_mode, S_ISDIR(st.st_mode)) : st.st_mode & lost->root;
    is_lost[LOST_MODE] = (st.st_mode & 07777) != kept;
    for (unsigned k = 0; k < N_LOST; k++) {
        lost->n[k] += (size_t)is_lost[k];
        any |= is_lost[k];
    }
    if (any && !lost->first) lost->first = copy_text(path);
}

static void say_lost(const struct listing *l, const char *path, const char *snapshot,
                     const struct options *o)
{
    struct lost lost = {0};
    char *text;
    if (o->verbosity == 0) return;
    text = copy_text("");
    if (l) expect_owner_of_tree(&lost, path);
    else expect_owner_of_file(&lost, snapshot);
    if (!l) look_for_lost(&lost, path, 1);
    for (size_t i = 0; l && i < l->n; i++) {
        char *full = join_path(path, l->entries[i].path);
        look_for_lost(&lost, full, is_stored(&l->entries[i], l));
        free(full);
    }
    for (unsigned k = 0; k < N_LOST; k++)
        if (lost.n[k])
            append_text(&text, "%s%s (%llu file%s)", *text ? ", " : "", lost_names[k],
                        (unsigned long long)lost.n[k], lost.n[k] == 1 ? "" : "s");
    if (lost.first && l)
        say(path, "is removed, and so is what a snapshot does not keep: %s; the first is %.400s",
            text, lost.first);
    else if (lost.first) say(path, "is removed, and so is what a snapshot does not keep: %s", text);
    free(text);
    free(lost.first);
}

int check_no_link(const char *path)
{
    struct stat st, target;
    char *plain = copy_without_slashes(path);
    const int is_link = lstat(plain, &st) == 0 && S_ISLNK(st.st_mode);
    const int is_tree = stat(plain, &target) == 0 && S_ISDIR(target.st_mode);
    free(plain);
    return is_link ? fail(CODE_ERROR, path,
                          "is a link%s: --rm would remove the link, and leave what it leads to; "
                          "name that, or leave out --rm",
                          is_tree ? " to a directory" : "")
                   : CODE_OK;
}

int remove_unchanged(const struct listing *l, const char *path, const struct look *look,
                     const char *snapshot, const struct options *o)
{
    struct states states = {0};
    int code = check_unchanged(path, look, snapshot, &states);
    if (code == CODE_OK && l && l->n_others)
        code =
            fail(CODE_ERROR, path,
                 "holds '%.300s', which a snapshot cannot hold, and is not removed", l->others[0]);
    if (code == CODE_OK && snapshot) say_lost(l, path, snapshot, o);
    if (code == CODE_OK) code = remove_source(path, l, &states, snapshot);
    free_states(&states);
    return code;
}
