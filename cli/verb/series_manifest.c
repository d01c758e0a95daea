/* SPDX-License-Identifier: MIT */
#include "series_manifest.h"

#include "../../formats/refused.h"
#include "../input/archive.h"
#include "../sys/attributes.h"
#include "../sys/output.h"

#define MANIFEST_MAX_SIZE ((uint64_t)256 << 20)

char *path_in_series(const char *directory, const char *name, const char *suffix)
{
    char *path = join_path(directory, name), *whole = format_text("%s%s", path, suffix);
    free(path);
    return whole;
}

/* -- the list -- */

void init_series(struct series *s, const struct options *o)
{
    memset(s, 0, sizeof *s);
    s->o = o;
    s->directory = o->directory;
    s->dir = s->lock_fd = -1;
    s->every = DEFAULT_EVERY;
    s->manifest_path = path_in_series(s->directory, MANIFEST_NAME, "");
    s->index = (struct series_index *)zeroed(1, sizeof *s->index);
}

struct snapshot *add_entry_to_series(struct series *s, const char *name, const char *source)
{
    struct snapshot *e;
    forget_order(s);
    e = (struct snapshot *)append(&s->list, &s->n, &s->cap, sizeof *e);
    e->name = copy_text(name);
    e->path = path_in_series(s->directory, name, SUFFIX);
    e->source = source ? copy_text(source) : NULL;
    return e;
}

static void free_entry(struct snapshot *e)
{
    free(e->name);
    free(e->path);
    free(e->source);
}

void drop_entries(struct series *s, enum snapshot_state state, const char *name)
{
    size_t n = 0;
    forget_order(s);
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i].state == state && (!name || strcmp(s->list[i].name, name) == 0))
            free_entry(&s->list[i]);
        else s->list[n++] = s->list[i];
    s->n = n;
}

static void free_list(struct series *s)
{
    for (size_t i = 0; i < s->n; i++) free_entry(&s->list[i]);
    s->n = 0;
    forget_order(s);
}

void close_series(struct series *s)
{
    free_list(s);
    free(s->list);
    free(s->index);
    free(s->manifest_path);
    if (s->lock_fd >= 0) close(s->lock_fd); /* this unlocks */
    release_directory(s->dir);
    if (s->dir >= 0) close(s->dir);
}

/* -- finding -- */

struct snapshot *find_name(const struct series *s, const char *name)
{
    struct snapshot **list = sort_series(s, BY_NAME);
    size_t i;
    FIND_FIRST(i, s->n, strcmp(list[i]->name, name) < 0);
    return i < s->n && strcmp(list[i]->name, name) == 0 ? list[i] : NULL;
}

struct snapshot *find_newest_of(const struct series *s, const char *name, const char *source,
                                unsigned *next)
{
    struct snapshot *newest = find_name(s, name), *e = newest;
    for (*next = 1; e && e->state != STATE_ADDING;) {
        if (e->source && strcmp(e->source, source) == 0) newest = e;
        char *text = format_text("%s@%u", name, ++*next);
        e = find_name(s, text);
        free(text);
    }
    return newest && newest->state != STATE_ADDING ? newest : NULL;
}

struct snapshot *find_last_added(const struct series *s, enum snapshot_state state)
{
    size_t i = s->n;
    while (i > 0 && s->list[i - 1].state != state) i--;
    return i ? &s->list[i - 1] : NULL;
}

struct snapshot *find_latest(const struct series *s, enum snapshot_state state)
{
    struct snapshot **list = sort_series(s, BY_STEP);
    size_t i = s->n;
    while (i > 0 && list[i - 1]->state != state) i--;
    return i ? list[i - 1] : NULL;
}

int choose_entry(const struct series *s, const char *text, enum snapshot_state state,
                 struct snapshot **found)
{
    struct snapshot *passed = NULL;
    const int is_number = *text && text[strspn(text, DIGITS)] == 0;
    *found = find_name(s, text);
    if (*found && (*found)->state != STATE_ADDING && (*found)->state != STATE_GONE) return CODE_OK;
    *found = strcmp(text, "latest") == 0 ? find_latest(s, state) : NULL;
    struct snapshot **const list = is_number ? sort_series(s, BY_NUMBER) : NULL;
    size_t i = s->n; /* unless it is a number, none */
    if (is_number) FIND_FIRST(i, s->n, compare_number(list[i]->name, text) < 0);
    for (; i < s->n && compare_number(list[i]->name, text) == 0; i++) {
        struct snapshot *const e = list[i];
        if (e->state == STATE_FORGOTTEN) passed = e;
        if (e->state != state) continue;
        if (*found)
            return fail(CODE_ERROR, s->directory,
                        "has several snapshots with that number, %.250s and %.250s; give the name",
                        (*found)->name, e->name);
        *found = e;
    }
    if (!*found && passed && state == STATE_KEPT)
        return fail(CODE_ERROR, s->directory,
                    "has forgotten the snapshot with that number, %.250s, but not removed it yet: "
                    "its full name finds it, and 'lmc series DIR keep' takes it back",
                    passed->name);
    return *found ? CODE_OK
                  : fail(CODE_ERROR, s->directory,
                         "has no snapshot '%.300s'; 'lmc series DIR list' lists them", text);
}

void look_at_file(struct snapshot *e)
{
    lmc_snapshot_info info;
    struct stat st;
    const int error = stat_held(e->path, &st) == 0 ? 0 : errno;
    e->file = error == ENOENT ? FILE_MISSING : FILE_DAMAGED;
    if (error || probe_snapshot(e->path, &info) != LMC_OK) return;
    memcpy(e->found, info.fingerprint, LMC_FINGERPRINT_SIZE);
    memcpy(e->wanted, info.base_fingerprint, LMC_FINGERPRINT_SIZE);
    e->is_delta = info.has_base;
    if (e->has_next && same_fingerprint(e->found, e->next))
        memcpy(e->fingerprint, e->next, LMC_FINGERPRINT_SIZE);
    e->file = same_fingerprint(e->found, e->fingerprint) ? FILE_THERE : FILE_OTHER;
    e->packed_size = info.size;
}

/* -- series.json -- */

static int fail_manifest(const struct series *s, const char *what)
{
    if (s->is_replaced) return CODE_CORRUPT;
    return fail(CODE_CORRUPT, s->manifest_path,
                "is damaged: %s; nothing was changed; 'lmc series DIR rebuild' makes it anew from "
                "the snapshots",
                what);
}

static void take_entry(struct series *s, const struct snapshot *read)
{
    struct snapshot *const e = add_entry_to_series(s, read->name, read->source), own = *e;
    *e = *read;
    e->name = own.name;
    e->path = own.path;
    e->source = own.source;
}

/* Changes the text, behind which there must be a zero. */
static int parse_manifest(struct series *s, char *text, size_t size)
{
    struct list_of_series l;
    const enum list_result result = parse_series(&l, text, size, 1);
    for (size_t i = 0; i < l.n && result == LIST_OK; i++) take_entry(s, &l.list[i]);
    free(l.list);
    if (result == LIST_MEMORY) check_memory(NULL);
    if (result == LIST_NEWER)
        return fail(CODE_ERROR, s->manifest_path,
                    "has version %lld, which this lmc does not know; get a newer one",
                    (long long)l.version);
    if (result != LIST_OK) return fail_manifest(s, l.fault);
    s->every = (uint64_t)l.every;
    return CODE_OK;
}

/* Reports that there is no series.json, and what to do. */
static int fail_no_manifest(const struct series *s)
{
    if (contains_snapshots(s->directory, 0))
        return fail(CODE_ERROR, s->directory,
                    "holds " SUFFIX " files, but no " MANIFEST_NAME
                    "; 'lmc series DIR rebuild' makes it of them");
    return fail(CODE_ERROR, s->directory,
                "is not a series; 'lmc series DIR add SNAPSHOT' begins one");
}

/* Reads series.json. *st: of the file. */
static int read_manifest(struct series *s, struct stat *st)
{
    int fd = open_held(s->manifest_path, 0), error, code = CODE_OK;
    size_t got;
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? fail_no_manifest(s)
                   : fail_errno(s->manifest_path, errno, "cannot open it");
    if (fstat(fd, st) != 0 || !S_ISREG(st->st_mode) || (uint64_t)st->st_size > MANIFEST_MAX_SIZE) {
        close(fd);
        return fail_manifest(s, "it is not a file, or larger than any series");
    }
    char *text = (char *)resize(NULL, (size_t)st->st_size + 1, 1);
    error = read_full(fd, text, (size_t)st->st_size, &got);
    text[got] = 0;
    if (error) code = fail_errno(s->manifest_path, error, "cannot read it");
    close(fd);
    if (code == CODE_OK) code = parse_manifest(s, text, got);
    free(text);
    if (code != CODE_OK) free_list(s);
    return code;
}

int load_manifest(struct series *s)
{
    for (;;) {
        struct stat before, now;
        int code = read_manifest(s, &before), is_other = 0;
        for (size_t i = 0; i < s->n; i++) {
            struct snapshot *const e = &s->list[i];
            look_at_file(e);
            if (e->has_next && same_fingerprint(e->found, e->next))
                code = worse(code, read_fingerprint(e->path, e->fingerprint, &e->size, s->o));
            e->has_next = 0;
            is_other |= e->file != FILE_THERE;
        }
        /* the Python package may replace a file, and the list, between our two looks */
        if (code != CODE_OK || !is_other || stat_held(s->manifest_path, &now) != 0 ||
            same_state(&before, &now)) {
            measure_series(s);
            return code;
        }
        free_list(s);
    }
}

int save_manifest(const struct series *s)
{
    struct output out;
    size_t size;
    int code = open_output(&out, s->manifest_path, NULL, 1);
    if (code != CODE_OK) return code;
    char *text = (char *)check_memory(format_series(s->every, s->list, s->n, &size));
    write_output(&out, text, size); /* commit_output reports an error */
    free(text);
    return commit_output(&out, NULL);
}

/* -- locks: a command that changes the series locks one byte of .lock. Readers share the lock of
 * another byte; gc locks it exclusively while it changes or removes listed files. OFD locks are
 * used where the system has them: POSIX locks end when the process closes any descriptor of the
 * file, and a source may contain a hard link to .lock -- */

enum lock { LOCK_CHANGES, LOCK_READERS };

/* command: F_SETLK or F_SETLKW. type: F_RDLCK, F_WRLCK or F_UNLCK. Returns 0 or errno. */
static int set_lock(const struct series *s, enum lock which, int command, short type)
{
    struct flock lock = {0};
    int result;
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = which;
    lock.l_len = 1;
    do {
        result = -1;
#ifdef F_OFD_SETLK
        result = fcntl(s->lock_fd, command == F_SETLKW ? F_OFD_SETLKW : F_OFD_SETLK, &lock);
        if (result == 0 || errno != EINVAL) continue; /* else the system lacks OFD locks */
#endif
        result = fcntl(s->lock_fd, command, &lock);
    } while (result != 0 && errno == EINTR);
    return result == 0 ? 0 : errno;
}

/* Waits for the lock. Returns 0 or errno. */
static int take_lock(const struct series *s, enum lock which, short type)
{
    int error = set_lock(s, which, F_SETLK, type);
    if (error != EAGAIN && error != EACCES) return error;
    if (s->o->verbosity > 0)
        say(s->directory, type == F_RDLCK         ? "gc is running here; waiting"
                          : which == LOCK_CHANGES ? "another lmc changes the series; waiting"
                                                  : "the series is being read; waiting");
    return set_lock(s, which, F_SETLKW, type);
}

/* A file system without locks is no error, but whoever changes the series is told. */
static int unless_refused(int error) { return is_refused(CALL_LOCK, error) ? 0 : error; }

int lock_out_readers(const struct series *s)
{
    return unless_refused(take_lock(s, LOCK_READERS, F_WRLCK));
}

int let_in_readers(const struct series *s)
{
    return unless_refused(set_lock(s, LOCK_READERS, F_SETLK, F_UNLCK));
}

/* Where .lock cannot be opened, a series can be read, but not changed. */
static int lock_series(struct series *s, int is_reader)
{
    char *path = join_path(s->directory, LOCK_NAME);
    int error, code = CODE_OK;
    s->lock_fd = open_file(s->dir, LOCK_NAME, O_RDWR | O_CREAT | O_NOFOLLOW);
    if (s->lock_fd < 0 && is_reader)
        s->lock_fd = open_file(s->dir, LOCK_NAME, O_RDONLY | O_NOFOLLOW);
    error = s->lock_fd < 0 ? errno
            : is_reader    ? take_lock(s, LOCK_READERS, F_RDLCK)
                           : take_lock(s, LOCK_CHANGES, F_WRLCK);
    if (!is_reader && s->lock_fd >= 0 && error && !unless_refused(error)) {
        if (s->o->verbosity > 0)
            say(path,
                "cannot be locked on this file system (%s): change the series by one command at a "
                "time",
                strerror(error));
    } else if (error && (!is_reader || error == ERROR_LEASED))
        code = fail_errno(path, error, "cannot lock it");
    free(path);
    return code;
}

/* -- what a kill left behind -- */

int remove_temporaries(const struct series *s)
{
    struct listing names;
    const int error = list_names(&names, s->directory);
    int code = CODE_OK;
    for (size_t i = 0; i < names.n; i++) {
        const char *const name = names.entries[i].path;
        struct stat st;
        if (is_temporary_name(name) && fstatat(s->dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode) && unlinkat(s->dir, name, 0) != 0)
            code = fail_errno(name, errno, "cannot remove it");
    }
    free_listing(&names);
    return error ? fail_errno(s->directory, error, "cannot read the directory") : code;
}

/* Removes snapshots that were not confirmed. Nothing is lost: add removes a source only after it
 * has confirmed the snapshot. No add is running: we have the lock. */
static int undo_unfinished(struct series *s)
{
    int code = remove_temporaries(s), n = 0, error;
    for (size_t i = 0; i < s->n && code == CODE_OK; i++)
        if (s->list[i].state == STATE_ADDING) {
            n++;
            if (unlinkat(s->dir, base_name(s->list[i].path), 0) != 0 && errno != ENOENT)
                code = fail_errno(s->list[i].path, errno, "cannot remove it");
        }
    if (n == 0 || code != CODE_OK) return code;
    error = sync_directory_at(s->dir);
    if (error) return fail_errno(s->directory, error, "cannot sync it");
    drop_entries(s, STATE_ADDING, NULL);
    return save_manifest(s);
}

/* Puts a new directory on the disk, by syncing its parent. Needed before a source is removed. */
static int sync_parent(const struct series *s)
{
    const int parent = openat(s->dir, "..", PARENT_FLAGS);
    const int error = parent < 0 ? errno : sync_directory_at(parent);
    if (parent >= 0) close(parent);
    return error ? fail_errno(s->directory, error, "cannot sync it") : CODE_OK;
}

int sync_snapshot(const struct series *s, const struct snapshot *e)
{
    const char *const paths[] = {e->path, s->manifest_path};
    int error = 0;
    for (unsigned i = 0; i < 2 && !error; i++) {
        const int fd = open_file(s->dir, base_name(paths[i]), O_RDONLY);
        error = fd < 0 ? errno : sync_file(fd);
        if (fd >= 0) close(fd);
    }
    if (!error) error = sync_directory_at(s->dir);
    return error ? fail_errno(e->path, error, "cannot sync it") : sync_parent(s);
}

/* Whether there is a list, or something that may be one. errno: ENOENT, or that of the look. */
static int has_manifest(const struct series *s)
{
    struct stat st;
    return fstatat(s->dir, MANIFEST_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT;
}

int open_series(struct series *s, enum purpose purpose, const struct options *o)
{
    const char *const directory = o->directory;
    struct stat st;
    init_series(s, o);
    if (purpose == TO_CREATE && mkdir(directory, 0777) != 0 && errno != EEXIST)
        return fail_errno(directory, errno, "cannot create the directory");
    s->dir = open(directory, PARENT_FLAGS);
    if (s->dir < 0 && errno == ENOTDIR && stat(directory, &st) == 0)
        return fail(CODE_ERROR, directory, "is not a directory, but a series must be one");
    if (s->dir < 0) return fail_errno(directory, errno, "cannot access it");
    hold_directory_of(s->manifest_path, s->dir, 0);
    int is_there = has_manifest(s);
    const int is_new = !is_there && purpose == TO_CREATE;
    if (!is_there && (purpose < TO_CREATE || (is_new && contains_snapshots(directory, 0))))
        return fail_no_manifest(s);
    if (is_new && errno) /* the directory may hold snapshots that were not seen */
        return fail_errno(directory, errno, "cannot read the directory");
    int code = lock_series(s, purpose == TO_READ);
    if (code != CODE_OK) return code;
    is_there = has_manifest(s); /* another command may have created it meanwhile */
    if (purpose == TO_CREATE && !is_there) return sync_parent(s);
    if (purpose == TO_REBUILD) return CODE_OK;
    code = load_manifest(s);
    return code == CODE_OK && purpose != TO_READ ? undo_unfinished(s) : code;
}
