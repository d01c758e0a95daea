/* mount_tree.c - items and nodes: which names there are, and what they stand for (mount.h)
 * SPDX-License-Identifier: MIT */
#include "mount.h"

#include "../input/links.h"
#include "../job/restorer.h"
#include "../sys/attributes.h"
#include "../sys/tree.h"

#define LATEST "latest"

/* -- items -- */

static struct item **bucket_of(struct mount *m, const struct item *parent, const char *name)
{
    const uint64_t hash =
        hash_bytes(hash_bytes(FNV_START, &parent, sizeof parent), name, strlen(name));
    return &m->items[hash % N_BUCKETS];
}

static struct item *find_item(struct mount *m, const struct item *parent, const char *name)
{
    struct item *item = *bucket_of(m, parent, name);
    while (item && (item->parent != parent || strcmp(item->name, name) != 0)) item = item->next;
    return item;
}

/* Its name no longer leads to the item. */
static void hide_item(struct mount *m, struct item *item)
{
    struct item **at = bucket_of(m, item->parent, item->name);
    while (*at && *at != item) at = &(*at)->next;
    if (*at) *at = item->next;
    item->next = NULL;
}

static void free_members(struct item *item)
{
    for (size_t i = 0; i < item->n_members; i++) {
        free(item->members[i].name);
        free(item->members[i].source);
    }
    free(item->members);
    free(item->latest);
    item->members = NULL;
    item->latest = NULL;
    item->n_members = 0;
}

static void free_item(struct mount *m, struct item *item)
{
    hide_item(m, item);
    drop_volume(m, item);
    for (size_t i = 0; i < item->n_nodes; i++) {
        free(item->nodes[i].path);
        free(item->nodes[i].target);
    }
    free(item->nodes);
    free_members(item);
    free(item->path);
    free(item->name);
    free(item);
}

void use_item(struct item *item) { item->n_uses++; }

void release_item(struct mount *m, struct item *item, uint64_t n)
{
    while (item && item != m->root) {
        struct item *const parent = item->parent;
        item->n_uses -= n < item->n_uses ? n : item->n_uses;
        if (item->n_uses) return;
        free_item(m, item);
        item = parent; /* which has lost an item below it */
        n = 1;
    }
}

/* An item that nothing uses yet, and that no name leads to. */
static struct item *make_item(struct item *parent, const char *name, const char *path,
                              enum item_kind kind)
{
    struct item *const item = (struct item *)zeroed(1, sizeof *item);
    item->parent = parent;
    item->name = copy_text(name);
    item->path = copy_text(path);
    item->kind = kind;
    if (parent) use_item(parent);
    return item;
}

static void show_item(struct mount *m, struct item *item)
{
    struct item *const old = find_item(m, item->parent, item->name);
    if (old) hide_item(m, old);
    if (old && old->n_uses == 0) {
        free_item(m, old);
        item->parent->n_uses--;
    }
    struct item **const bucket = bucket_of(m, item->parent, item->name);
    item->next = *bucket;
    *bucket = item;
}

/* -- nodes -- */

static struct node *add_node(struct mount *m, struct item *item, const char *path, mode_t mode)
{
    struct node *const n =
        (struct node *)append(&item->nodes, &item->n_nodes, &item->cap, sizeof *n);
    n->item = item;
    n->path = copy_text(path);
    n->file = SIZE_MAX;
    n->mode = mode;
    n->n_names = S_ISDIR(mode) ? 2 : 1;
    n->number = ++m->n_numbers;
    return n;
}

static void set_times_and_mode(struct node *n, const struct stat *st)
{
    n->mode = st->st_mode;
    n->time = st->st_mtim;
    n->size = S_ISDIR(st->st_mode) ? 0 : (uint64_t)st->st_size;
}

/* An entry of a snapshot: of its files, or of its links. */
struct found {
    const char *path; /* first, for compare_found() */
    const lmc_file *file;
    size_t number;
    const struct link *link;
};

static int compare_found(const void *a, const void *b)
{
    return compare_paths(((const struct found *)a)->path, ((const struct found *)b)->path);
}

static int is_below(const char *path, const char *directory)
{
    const size_t size = strlen(directory);
    return size == 0 || (strncmp(path, directory, size) == 0 && path[size] == '/');
}

/* The directories that the next nodes are in, from the root down. */
struct branch {
    size_t *list; /* numbers of nodes */
    size_t n, cap;
};

/* Leaves the directories that path is not below. */
static void leave_directories(struct item *item, struct branch *b, const char *path)
{
    while (b->n && (!path || !is_below(path, item->nodes[b->list[b->n - 1]].path)))
        item->nodes[b->list[--b->n]].end = item->n_nodes;
}

static void enter_directory(struct item *item, struct branch *b)
{
    *(size_t *)append(&b->list, &b->n, &b->cap, sizeof *b->list) = item->n_nodes - 1;
}

/* Adds the directories on the way to path that no entry is for. */
static void add_parents(struct mount *m, struct item *item, struct branch *b, const char *path,
                        const struct archive *a)
{
    for (;;) {
        const char *const above = item->nodes[b->list[b->n - 1]].path;
        const size_t from = *above ? strlen(above) + 1 : 0;
        const char *const slash = strchr(path + from, '/');
        if (!slash) return;
        char *parent = copy_string(path, (size_t)(slash - path));
        struct node *const n = add_node(m, item, parent, S_IFDIR | mask_mode(0777));
        n->time = a->st.st_mtim;
        enter_directory(item, b);
        free(parent);
    }
}

static void set_stored(struct node *n, const struct found *f, const struct archive *a)
{
    const int is_directory = f->file && f->file->kind == LMC_FILE_DIRECTORY;
    if (!f->file) {
        n->target = copy_text(f->link->target);
        n->size = strlen(n->target);
        n->time = a->st.st_mtim;
        return;
    }
    struct attributes stored =
        is_directory ? attributes_of_directory(f->file) : attributes_of_file(f->file);
    complete_attributes(&stored, &a->st);
    n->mode = (is_directory ? S_IFDIR : S_IFREG) | (stored.mode & 07777);
    n->time = stored.mtime;
    n->size = is_directory ? 0 : f->file->size;
    if (!is_directory) n->file = f->number;
}

static mode_t kind_of_found(const struct found *f)
{
    return !f->file ? S_IFLNK | 0777 : f->file->kind == LMC_FILE_DIRECTORY ? S_IFDIR : S_IFREG;
}

/* Adds nodes for the sorted entries, and for directories that are only in the paths of others. */
static void add_nodes(struct mount *m, struct item *item, const struct found *list, size_t n,
                      const struct archive *a)
{
    struct branch b = {0};
    if (n == 0 || *list[0].path || kind_of_found(list) == S_IFDIR) {
        add_node(m, item, "", S_IFDIR | mask_mode(0777))->time = a->st.st_mtim;
        enter_directory(item, &b);
    }
    for (size_t i = 0; i < n; i++) {
        struct node *node = item->nodes;
        if (*list[i].path || item->n_nodes == 0) {
            leave_directories(item, &b, list[i].path);
            if (b.n) add_parents(m, item, &b, list[i].path, a);
            node = add_node(m, item, list[i].path, kind_of_found(&list[i]));
            if (S_ISDIR(node->mode)) enter_directory(item, &b);
        }
        set_stored(node, &list[i], a);
    }
    leave_directories(item, &b, NULL);
    free(b.list);
}

static struct node *find_path(const struct item *item, const char *path)
{
    size_t i;
    FIND_FIRST(i, item->n_nodes, compare_paths(item->nodes[i].path, path) < 0);
    return i < item->n_nodes && strcmp(item->nodes[i].path, path) == 0 ? &item->nodes[i] : NULL;
}

/* Files with several names have one number. */
static void join_names(struct item *item, const struct links *links)
{
    for (int is_last = 0; is_last < 2; is_last++) /* first count, then copy the counts */
        for (size_t i = 0; i < links->n; i++) {
            const struct link *const l = &links->list[i];
            struct node *const n = l->type == LINK_HARD ? find_path(item, l->path) : NULL;
            struct node *const first = n ? find_path(item, l->target) : NULL;
            if (!first || n == first) continue;
            n->number = first->number;
            if (is_last) n->n_names = first->n_names;
            else first->n_names++;
        }
}

/* Adds all that is in the snapshot. wrapped: NULL, or the name in a directory for a snapshot that
 * is a file. */
static int read_nodes(struct mount *m, struct item *item, const struct archive *a,
                      const char *wrapped)
{
    const size_t n_files = (size_t)snapshot_info(a->reader).n_files;
    const int is_tree = is_tree_of_files(a->reader);
    struct links links = {0};
    size_t n = 0;
    if (read_links(&links, a->reader) != 0) {
        (void)fail_bad_links(a->name);
        return EIO;
    }
    struct found *const list = (struct found *)zeroed(n_files + links.n + 1, sizeof *list);
    for (size_t i = 0; i < n_files; i++, n++) {
        list[n].file = lmc_reader_get_file(a->reader, i);
        list[n].number = i;
        list[n].path = wrapped && !is_tree ? wrapped : list[n].file->path;
    }
    for (size_t i = 0; i < links.n; i++)
        if (links.list[i].type == LINK_SYMBOLIC) {
            list[n].link = &links.list[i];
            list[n++].path = links.list[i].path;
        }
    qsort(list, n, sizeof *list, compare_found);
    add_nodes(m, item, list, n, a);
    join_names(item, &links);
    free(list);
    free_links(&links);
    return 0;
}

/* -- snapshots -- */

static char *shown_name(const char *path)
{
    const char *const name = base_name(path);
    return copy_string(name, strlen(name) - (has_suffix(path) ? strlen(SUFFIX) : 0));
}

/* Makes the item of a snapshot, or finds it if the file is as it was. member: NULL, or the entry of
 * the series. */
static int get_snapshot(struct mount *m, struct item *parent, const char *name, const char *path,
                        const struct member *member, struct item **found)
{
    struct archive a;
    struct stat st;
    struct item *item = find_item(m, parent, name);
    const int is_wrapped = member || parent->kind == ITEM_ONE;
    int error = 0;
    *found = item;
    if (item && item->kind == ITEM_SNAPSHOT) {
        if (member && same_fingerprint(item->fingerprint, member->fingerprint)) return 0;
        if (!member && stat(path, &st) == 0 && same_state(&st, &item->st)) return 0;
    }
    item = make_item(parent, name, path, ITEM_SNAPSHOT);
    item->is_member = member != NULL;
    error = open_index(m, &a, path);
    if (!error) {
        char *wrapped = !is_wrapped                ? NULL
                        : member && member->source ? copy_text(member->source)
                                                   : shown_name(path);
        snapshot_fingerprint(a.reader, item->fingerprint);
        item->st = a.st;
        if (member && !same_fingerprint(item->fingerprint, member->fingerprint)) {
            say(path, "is not the snapshot that was added under this name");
            error = EIO;
        }
        if (!error) error = read_nodes(m, item, &a, wrapped);
        free(wrapped);
    }
    close_archive(&a);
    if (!error) show_item(m, item);
    else free_item(m, item);
    if (error) parent->n_uses--;
    *found = error ? NULL : item;
    return error;
}

/* -- a series -- */

static int read_members(struct mount *m, struct item *item)
{
    struct series s;
    struct options own = *m->o;
    struct snapshot **list;
    own.directory = item->path;
    own.verbosity = 0;
    const int code = open_series(&s, TO_READ, &own);
    if (code == CODE_OK) {
        const struct snapshot *const latest = find_latest(&s, STATE_KEPT);
        free_members(item);
        item->members = (struct member *)zeroed(s.n + 1, sizeof *item->members);
        list = sort_series(&s, BY_NAME);
        for (size_t i = 0; i < s.n; i++)
            if (list[i]->state == STATE_KEPT) {
                struct member *const to = &item->members[item->n_members++];
                to->name = copy_text(list[i]->name);
                to->source = list[i]->source ? copy_text(list[i]->source) : NULL;
                memcpy(to->fingerprint, list[i]->fingerprint, sizeof to->fingerprint);
            }
        item->latest = latest ? copy_text(latest->name) : NULL;
    }
    close_series(&s);
    return note_code(m, code);
}

/* Reads the list if it has changed. */
static int refresh_members(struct mount *m, struct item *item)
{
    char *path = join_path(item->path, MANIFEST_NAME);
    struct stat st;
    const int error = stat(path, &st) == 0 ? 0 : errno;
    free(path);
    if (error) return error;
    if (item->list_st.st_nlink && same_state(&st, &item->list_st)) return 0;
    const int failed = read_members(m, item);
    if (!failed) item->list_st = st; /* from before: what changes meanwhile is read again */
    return failed;
}

static const struct member *find_that_member(const struct item *item, const char *name)
{
    size_t i;
    FIND_FIRST(i, item->n_members, strcmp(item->members[i].name, name) < 0);
    return i < item->n_members && strcmp(item->members[i].name, name) == 0 ? &item->members[i]
                                                                           : NULL;
}

static int find_member(struct mount *m, struct item *item, const char *name, struct item **found)
{
    int error = refresh_members(m, item);
    if (error) return error;
    const struct member *const member = find_that_member(item, name);
    if (member) {
        char *path = path_in_series(item->path, name, SUFFIX);
        error = get_snapshot(m, item, name, path, member, found);
        free(path);
        return error;
    }
    if (strcmp(name, LATEST) != 0 || !item->latest) return ENOENT;
    *found = find_item(m, item, name);
    if (*found && strcmp((*found)->nodes->target, item->latest) == 0) return 0;
    *found = make_item(item, name, item->path, ITEM_LINK);
    struct node *const n = add_node(m, *found, "", S_IFLNK | 0777);
    n->target = copy_text(item->latest);
    n->size = strlen(n->target);
    n->time = item->list_st.st_mtim;
    show_item(m, *found);
    return 0;
}

/* -- a directory on the disk -- */

static int is_series_at(const char *path)
{
    char *list = join_path(path, MANIFEST_NAME);
    struct stat st;
    const int result = lstat(list, &st) == 0 && S_ISREG(st.st_mode);
    free(list);
    return result;
}

/* Whether the file of that name and path is shown as what it restores, under *shown, to be freed.
 * If that name is taken, it is shown as it is. */
static int is_snapshot_file(const char *directory, const char *name, char **shown)
{
    struct stat st;
    *shown = NULL;
    if (!has_suffix(name)) return 0;
    char *path = join_path(directory, name);
    int result = stat(path, &st) == 0 && S_ISREG(st.st_mode);
    path[strlen(path) - strlen(SUFFIX)] = 0;
    result = result && lstat(path, &st) != 0 && errno == ENOENT;
    if (result) *shown = copy_text(base_name(path));
    free(path);
    return result;
}

static int get_plain(struct mount *m, struct item *parent, const char *name, const char *path,
                     const struct stat *st, struct item **found)
{
    const enum item_kind kind = S_ISLNK(st->st_mode)   ? ITEM_LINK
                                : S_ISREG(st->st_mode) ? ITEM_FILE
                                : is_series_at(path)   ? ITEM_SERIES
                                                       : ITEM_DIRECTORY;
    if (!S_ISLNK(st->st_mode) && !S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode)) return ENOENT;
    struct item *item = find_item(m, parent, name);
    if (!item || item->kind != kind || !same_file(&item->st, st)) {
        item = make_item(parent, name, path, kind);
        add_node(m, item, "", st->st_mode)->end = 1;
        show_item(m, item);
    }
    item->st = *st;
    set_times_and_mode(item->nodes, st);
    *found = item;
    return 0;
}

static int find_in_directory(struct mount *m, struct item *item, const char *name,
                             struct item **found)
{
    struct stat st;
    char *path = join_path(item->path, name), *shown;
    int error;
    if (lstat(path, &st) == 0) {
        const int is_hidden = is_snapshot_file(item->path, name, &shown);
        free(shown);
        error = is_hidden ? ENOENT : get_plain(m, item, name, path, &st, found);
    } else if (errno == ENOENT) {
        append_text(&path, "%s", SUFFIX);
        error = stat(path, &st) != 0   ? errno
                : !S_ISREG(st.st_mode) ? ENOENT
                                       : get_snapshot(m, item, name, path, NULL, found);
    } else error = errno;
    free(path);
    return error;
}

/* -- all kinds -- */

/* If a file is mounted: its snapshot's root. A file that cannot be opened is reported once. */
static int get_only(struct mount *m, struct item *item, struct node **found)
{
    struct item *snapshot;
    struct stat st;
    if (stat(item->path, &st) != 0) return errno;
    if (item->list_st.st_nlink && same_state(&st, &item->list_st)) return EIO;
    const int error = get_snapshot(m, item, "", item->path, NULL, &snapshot);
    if (!error) *found = snapshot->nodes;
    else item->list_st = st;
    return error;
}

int make_root(struct mount *m, const char *path)
{
    struct node *only;
    struct stat st;
    int error = 0;
    if (stat(path, &st) != 0) return fail_errno(path, errno, "cannot access it");
    m->root = make_item(NULL, "", path,
                        !S_ISDIR(st.st_mode) ? ITEM_ONE
                        : is_series_at(path) ? ITEM_SERIES
                                             : ITEM_DIRECTORY);
    m->root->st = st;
    set_times_and_mode(add_node(m, m->root, "", S_IFDIR | 0755), &st);
    m->root->nodes->size = 0;
    m->root->nodes->mode = S_IFDIR | (S_ISDIR(st.st_mode) ? st.st_mode & 07777 : 0755);
    m->root->nodes->end = 1;
    if (m->root->kind == ITEM_ONE) error = get_only(m, m->root, &only);
    if (!error && m->root->kind == ITEM_ONE) error = open_volume(m, only->item);
    if (!error && m->root->kind == ITEM_ONE) close_volume_file(m, only->item->volume);
    if (m->root->kind == ITEM_SERIES) error = refresh_members(m, m->root);
    return error ? worse(m->code, CODE_ERROR) : CODE_OK;
}

static struct node *find_child(struct node *directory, const char *name)
{
    char *path = *directory->path ? join_path(directory->path, name) : copy_text(name);
    struct node *const found = find_path(directory->item, path);
    free(path);
    return found;
}

int find_node(struct mount *m, struct node *directory, const char *name, struct node **found,
              int *is_constant)
{
    struct item *const item = directory->item;
    struct item *child = NULL;
    int error = 0;
    *is_constant = item->kind == ITEM_SNAPSHOT;
    if (item->kind == ITEM_ONE) error = get_only(m, item, &directory);
    if (error) return error;
    if (directory->item->kind == ITEM_SNAPSHOT) {
        *found = find_child(directory, name);
        return *found ? 0 : ENOENT;
    }
    error = item->kind == ITEM_SERIES      ? find_member(m, item, name, &child)
            : item->kind == ITEM_DIRECTORY ? find_in_directory(m, item, name, &child)
                                           : ENOTDIR;
    if (!error) *found = child->nodes;
    return error;
}

int is_current(struct mount *m, struct item *item)
{
    const struct member *member;
    struct stat st;
    if (item->kind != ITEM_SNAPSHOT) return 1;
    if (find_item(m, item->parent, item->name) != item) return 0;
    if (!item->is_member) return stat(item->path, &st) == 0 && same_state(&st, &item->st);
    if (refresh_members(m, item->parent) != 0) return 0;
    member = find_that_member(item->parent, item->name);
    return member && same_fingerprint(member->fingerprint, item->fingerprint);
}

int is_constant_node(const struct node *node) { return node->item->kind == ITEM_SNAPSHOT; }

const char *name_node(const struct node *node) { return node->item->path; }

int look_at_node(struct mount *m, struct node *node)
{
    struct item *const item = node->item;
    struct node *now;
    struct stat st;
    if (item->kind == ITEM_SNAPSHOT || (item->kind == ITEM_LINK && node->target)) return 0;
    if (item->kind == ITEM_ONE) {
        if (get_only(m, item, &now) != 0) return 0; /* else nobody could unmount it */
        node->mode = now->mode;
        node->time = now->time;
        return 0;
    }
    if (lstat(item->path, &st) != 0) return errno;
    if (item != m->root && !same_file(&st, &item->st)) return ESTALE;
    set_times_and_mode(node, &st);
    return 0;
}

static void list_directory(const struct item *item, const struct listing *names,
                           void (*add)(void *user, const char *name, mode_t mode,
                                       struct node *node),
                           void *user)
{
    for (size_t i = 0; i < names->n; i++) {
        char *shown;
        const char *const name = names->entries[i].path;
        (void)is_snapshot_file(item->path, name, &shown);
        add(user, shown ? shown : name, 0, NULL);
        free(shown);
    }
}

int list_node(struct mount *m, struct node *directory, struct node **listed,
              void (*add)(void *user, const char *name, mode_t mode, struct node *node), void *user)
{
    struct item *const item = directory->item;
    struct listing names;
    int error = 0;
    if (item->kind == ITEM_ONE) error = get_only(m, item, &directory);
    *listed = directory;
    if (error) return error;
    if (directory->item->kind == ITEM_SNAPSHOT) {
        struct node *const nodes = directory->item->nodes;
        for (size_t i = (size_t)(directory - nodes) + 1; i < directory->end;
             i = S_ISDIR(nodes[i].mode) ? nodes[i].end : i + 1)
            add(user, base_name(nodes[i].path), nodes[i].mode & S_IFMT, &nodes[i]);
    } else if (item->kind == ITEM_SERIES) {
        error = refresh_members(m, item);
        for (size_t i = 0; i < item->n_members && !error; i++)
            add(user, item->members[i].name, S_IFDIR, NULL);
        if (item->latest && !error && !find_that_member(item, LATEST))
            add(user, LATEST, S_IFLNK, NULL);
    } else {
        error = list_names(&names, item->path);
        if (!error) list_directory(item, &names, add, user);
        free_listing(&names);
    }
    return error;
}
