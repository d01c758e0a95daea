/* SPDX-License-Identifier: MIT */
#include "base.h"

#include "../format/print.h"
#include "options.h"
#include "source_tree.h"
#include "../sys/attributes.h"
#include "../sys/spot.h"

/* -- a base of files -- */

static void forget_base_files(struct base *b)
{
    close_opened(&b->opened);
    for (size_t i = 0; i < b->n_files; i++) {
        struct base_file *f = &b->files[i];
        if (f->container) container_free(f->container);
        free(f->container);
        free(f->path);
        free(f->full);
        free(f->tensors);
    }
    b->n_files = 0;
}

/* The first view after the base itself, then the next view. NULL: there are no more. */
static struct base *next_view(const struct base *b, const struct base *view)
{
    return view == b ? b->views : view->next;
}

/* Takes the fingerprints from another view of the base that finds the same tensors in the file. */
static int take_known_fingerprints(const struct base *b, struct base_file *f)
{
    for (const struct base *view = b; view; view = next_view(b, view)) {
        const struct base_file *known = view->files;
        size_t i;
        if (view->state < BASE_IDENTIFIED) continue;
        FIND_FIRST(i, view->n_files, strcmp(view->files[i].path, f->path) < 0);
        known += i;
        if (i == view->n_files || strcmp(known->path, f->path) != 0 ||
            !same_state(&known->st, &f->st) || !have_same_tensors(&known->file, &f->file))
            continue;
        free(f->tensors);
        f->tensors = copy_tensors(known->tensors, known->file.n_tensors);
        f->file = known->file;
        f->file.path = f->path;
        f->file.tensors = f->tensors;
        return 1;
    }
    return 0;
}

/* b: the argument. The file belongs to it or to one of its views. */
static int identify_base_file(const struct base *b, struct base_file *f, struct source *s,
                              const struct options *o)
{
    const lmc_stream stream = {read_stream, s, {0, 0}};
    struct stat st;
    f->file.tensors = f->tensors = copy_tensors(f->file.tensors, f->file.n_tensors);
    container_free(&s->container);
    if (take_known_fingerprints(b, f)) return CODE_OK;
    progress_start(s->name, s->size);
    enum lmc_status status = lmc_file_identify(&f->file, f->tensors, &stream, &o->parallel, NULL);
    progress_clear();
    if (s->error) return fail_errno(s->name, s->error, "cannot read it");
    if (status == LMC_ERR_TRUNCATED ||
        (status == LMC_OK && (fstat(s->fd, &st) != 0 || !same_state(&st, &s->st))))
        return fail_changed(s->name);
    return status == LMC_OK ? CODE_OK : fail_status(s->name, status);
}

/* Adds a file to the base, which owns full from now on. */
static struct base_file *add_base_file(struct base *b, const char *path, char *full,
                                       const struct stat *st)
{
    struct base_file *f =
        (struct base_file *)append(&b->files, &b->n_files, &b->room, sizeof *b->files);
    f->file.path = f->path = copy_text(path);
    f->full = full;
    f->st = *st;
    f->file.kind = S_ISDIR(st->st_mode) ? LMC_FILE_DIRECTORY : LMC_FILE_REGULAR;
    return f;
}

/* How files are added to a base, or to something that is read like a base. */
struct taking {
    const struct base *owner;      /* the argument; the base may be a view of it; NULL: identify
                               * nothing */
    const struct listing *entries; /* of the argument; a single file has the empty path */
    const lmc_file *const *found;  /* the file of each entry, or NULL; found NULL: parse */
    int is_strict;                 /* a single file must be what its name says */
    int is_only_safetensors;       /* other containers count as plain bytes */
};

/* Whether the snapshot's file may have that size. A pipe does not tell an unknown size. */
static int has_size(const lmc_file *file, uint64_t size)
{
    return file->size == LMC_UNKNOWN_SIZE || file->size == size;
}

static int take_file(struct base *b, const struct taking *t, size_t i, const struct options *o)
{
    const char *path = t->entries->entries[i].path;
    char *full = join_path(b->name, path);
    struct source s;
    int code = open_listed(&s, full), is_directory;
    struct base_file *f = add_base_file(b, path, full, &s.st);
    is_directory = f->file.kind == LMC_FILE_DIRECTORY;
    f->file.size = is_directory ? 0 : s.size;
    s.is_named = t->is_strict && *path == 0;
    if (code == CODE_OK && !is_directory && !S_ISREG(s.st.st_mode)) code = fail_changed(full);
    if (code == CODE_OK && t->found) {
        f->file.n_tensors = t->found[i]->n_tensors;
        f->file.tensors = t->found[i]->tensors;
        if (!has_size(t->found[i], is_directory ? 0 : s.size)) code = fail_changed(full);
    } else if (code == CODE_OK && !is_directory) {
        code = identify_source(&s, o);
        if (t->is_only_safetensors && s.container.kind != CONTAINER_SAFETENSORS)
            container_free(&s.container);
        f->file.n_tensors = s.container.n_tensors;
        f->file.tensors = s.container.tensors;
    }
    if (code == CODE_OK && t->owner) code = identify_base_file(t->owner, f, &s, o);
    else if (code == CODE_OK && s.container.kind != CONTAINER_NONE) {
        f->container = (struct container *)resize(NULL, 1, sizeof *f->container);
        *f->container = s.container;
        memset(&s.container, 0, sizeof s.container);
    } else f->file.n_tensors = 0;
    close_source(&s);
    return code;
}

int list_base(struct listing *l, const char *name, const struct options *o)
{
    struct stat st;
    memset(l, 0, sizeof *l);
    if (stat(name, &st) != 0)
        return fail(CODE_BASE, name, "the base cannot be accessed: %s", strerror(errno));
    if (S_ISDIR(st.st_mode)) return list_unchecked(l, name, o); /* open_base() checks */
    add_entry(l, "", 0)->size = (uint64_t)st.st_size;
    return CODE_OK;
}

static const lmc_file *get_base_file(void *user, size_t number)
{
    return &((struct base *)user)->files[number].file;
}

static enum lmc_status read_base_file(void *user, size_t number, uint64_t offset, void *dst,
                                      size_t size)
{
    struct base *b = (struct base *)user;
    const struct base_file *f = &b->files[number];
    if (offset > f->file.size || size > f->file.size - offset) return LMC_ERR_ARGUMENT;
    b->all->code = read_opened(&b->opened, f->full, &f->st, offset, dst, size);
    return b->all->code == CODE_OK ? LMC_OK : LMC_ERR_READ;
}

static int take_files(struct base *b, const struct taking *t, const struct options *o)
{
    int code = CODE_OK;
    forget_base_files(b); /* from the input before */
    for (size_t i = 0; i < t->entries->n && code == CODE_OK; i++)
        if (t->found ? t->found[i] != NULL : is_stored(&t->entries->entries[i], t->entries))
            code = take_file(b, t, i, o);
    b->source.n_files = b->n_files;
    b->source.get_file = get_base_file;
    b->source.read = read_base_file;
    b->source.user = b;
    if (code != CODE_OK || !t->owner) return code;
    if (lmc_base_identify(&b->source, b->fingerprint, NULL) != LMC_OK) check_memory(NULL);
    b->state = BASE_IDENTIFIED;
    return CODE_OK;
}

static int take_base_files(struct base *b, int is_identified, int is_strict,
                           const struct options *o)
{
    struct listing l;
    const struct taking t = {is_identified ? b : NULL, &l, NULL, is_strict, 0};
    int code = list_base(&l, b->name, o);
    if (code == CODE_OK) code = take_files(b, &t, o);
    free_listing(&l);
    return code;
}

/* Checks that the files of all views have not changed since they were identified. */
static int check_base(const struct base *b)
{
    struct stat st;
    for (const struct base *view = b; view; view = next_view(b, view))
        for (size_t i = 0; i < view->n_files; i++) {
            const struct base_file *const f = &view->files[i];
            if (f->file.kind == LMC_FILE_REGULAR &&
                (stat(f->full, &st) != 0 || !same_state(&st, &f->st)))
                return fail_changed(f->full);
        }
    return CODE_OK;
}

/* -- a base that is a snapshot -- */

static const lmc_file *get_archive_file(void *user, size_t number)
{
    return lmc_reader_get_file(((struct base *)user)->archive.reader, number);
}

static enum lmc_status read_archive_file(void *user, size_t number, uint64_t offset, void *dst,
                                         size_t size)
{
    struct base *b = (struct base *)user;
    if (b->replica.is_made)
        return read_replica(&b->replica, number, offset, dst, size, &b->all->code);
    if (b->is_damaged) return read_instead(b, number, offset, dst, size);
    enum lmc_status status = b->by_reader.read(b->by_reader.user, number, offset, dst, size);
    if (status == LMC_OK) return LMC_OK;
    const int is_below = status == LMC_ERR_READ || status == LMC_ERR_BASE_WRONG;
    if (status != LMC_ERR_LIMIT && status != LMC_ERR_MEMORY && (!is_below || b->archive.error)) {
        /* b itself is damaged, not its own base */
        b->is_damaged = 1;
        b->instead = b->is_subject ? NULL : find_instead(b);
    }
    if (b->instead) {
        say(b->name, "is damaged: %s; its copy %.300s is read instead", lmc_status_text(status),
            b->instead->name);
        b->instead->is_used = 1;
        return read_instead(b, number, offset, dst, size);
    }
    if (b->all->is_partial && status == LMC_ERR_LIMIT) return status; /* it is not damaged */
    if (b->all->is_partial) return read_intact(b, status, number, offset, dst, size);
    b->all->code = fail_damage(&b->archive, status, number, offset);
    return LMC_ERR_READ;
}

/* -- finding the right base -- */

int open_base(struct base *b, const struct options *o)
{
    struct stat st;
    int fd;
    if (b->state >= BASE_OPEN) return CODE_OK;
    if (stat(b->name, &st) != 0)
        return fail(CODE_BASE, b->name, "the base cannot be opened: %s%s", strerror(errno),
                    hint_for_url(b->name, errno));
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return fail(CODE_BASE, b->name,
                    "is neither a file nor a directory, and a base must be one of them");
    if (S_ISREG(st.st_mode)) {
        int error;
        fd = open_file(AT_FDCWD, b->name, O_RDONLY);
        if (fd < 0)
            return fail(CODE_BASE, b->name, "the base cannot be opened: %s", error_text(errno));
        b->is_archive = begins_as_snapshot(fd, &error) || has_suffix(b->name);
        close(fd);
        if (error) return fail(CODE_ERROR, b->name, "the base cannot be read: %s", strerror(error));
    }
    if (b->is_archive || !b->is_target) {
        int code = b->is_archive ? open_archive_file(&b->archive, b->name, o)
                                 : check_finished(b->name, CODE_BASE);
        if (code != CODE_OK) return code;
    }
    b->state = BASE_OPEN;
    return CODE_OK;
}

int identify_base_as(struct base *b, int is_strict, const struct options *o)
{
    int code = open_base(b, o);
    if (code != CODE_OK || b->state >= BASE_IDENTIFIED) return code;
    if (!b->is_archive) return take_base_files(b, 1, is_strict, o);
    code = read_archive_index(&b->archive, NULL);
    if (code != CODE_OK) return code;
    snapshot_fingerprint(b->archive.reader, b->fingerprint);
    b->state = BASE_IDENTIFIED;
    return CODE_OK;
}

int identify_base(struct base *b, const struct options *o) { return identify_base_as(b, 1, o); }

/* -- views: the same files, read in another way -- */

/* Of the sorted files, the number of the first whose path is not less. */
static size_t search_path(const lmc_file *const *files, size_t n, const char *path)
{
    size_t i;
    FIND_FIRST(i, n, strcmp(files[i]->path, path) < 0);
    return i;
}

/* Whether path is a directory that the snapshot has only as the parent of other paths. */
static int is_only_parent(const lmc_file *const *files, size_t n, const char *path)
{
    char *below = join_path(path, "x");
    size_t size = strlen(below) - 1, i;
    below[size] = 0;
    i = search_path(files, n, below);
    int result = i < n && strncmp(files[i]->path, below, size) == 0;
    free(below);
    return result;
}

int match_entries(const struct listing *l, const lmc_file *const *files, size_t n,
                  const lmc_file **found)
{
    size_t n_found = 0;
    for (size_t i = 0; i < l->n; i++) {
        const struct entry *e = &l->entries[i];
        const size_t at = search_path(files, n, e->path);
        found[i] = NULL;
        const int is_there = at < n && strcmp(files[at]->path, e->path) == 0;
        if (!is_stored(e, l) && !(e->is_file && is_there)) continue; /* links are followed */
        if (is_there) {
            const int is_directory = files[at]->kind == LMC_FILE_DIRECTORY;
            if (is_directory != e->is_directory || (!is_directory && !has_size(files[at], e->size)))
                return 0;
            found[i] = files[at];
            n_found++;
        } else if (!e->is_directory || !is_only_parent(files, n, e->path)) return 0;
    }
    return n_found == n;
}

static void free_view(struct base *view)
{
    forget_base_files(view);
    free(view->files);
    free(view);
}

/* Adds a view of b. */
static int add_taken(struct base *b, const struct taking *t, const struct options *o)
{
    struct base *view = (struct base *)zeroed(1, sizeof *view);
    view->name = b->name;
    view->all = b->all;
    const int code = take_files(view, t, o);
    if (code == CODE_OK) {
        view->next = b->views;
        b->views = view;
    } else free_view(view);
    return code;
}

/* By the tables of a snapshot, if its files are those of b. */
static int add_view_by_tables(struct base *b, const lmc_reader *tables, const struct options *o)
{
    struct listing l;
    struct taking t = {b, &l, NULL, 0, 0};
    const size_t n = snapshot_info(tables).n_files;
    const lmc_file **files, **found;
    int code = list_base(&l, b->name, o);
    files = (const lmc_file **)resize(NULL, n + l.n + 1, sizeof *files);
    t.found = found = files + n;
    for (size_t i = 0; i < n; i++) files[i] = lmc_reader_get_file(tables, i);
    sort_by_path(files, n);
    if (code == CODE_OK && match_entries(&l, files, n, found)) code = add_taken(b, &t, o);
    free((void *)files);
    free_listing(&l);
    return code;
}

/* The view, or b itself, that has the fingerprint; NULL: none. */
static struct base *search_views(struct base *b, const uint8_t *wanted)
{
    for (struct base *view = b; view; view = next_view(b, view))
        if (view->state >= BASE_IDENTIFIED && same_fingerprint(view->fingerprint, wanted)) {
            b->is_used = 1;
            return view;
        }
    return NULL;
}

struct base *find_view_like(struct base *b, const lmc_reader *tables, const uint8_t *wanted,
                            const struct options *o, int *code)
{
    struct base *view = search_views(b, wanted);
    if (view || !tables) return view;
    *code = add_view_by_tables(b, tables, o);
    return *code == CODE_OK ? search_views(b, wanted) : NULL;
}

/* The tables of the delta; of a pipe, those before its first run. NULL: there are none. */
static const lmc_reader *tables_of(struct archive *delta)
{
    if (!delta->reader && delta->fd >= 0) (void)try_archive_index(delta, NULL);
    return delta->reader ? delta->reader : lmc_salvage_reader(delta->beginning);
}

struct base *find_view(struct base *b, struct archive *delta, const struct options *o, int *code)
{
    return find_view_like(b, tables_of(delta), delta->wanted, o, code);
}

/* How to read the files of a base if the delta is not coded against what the options tell. */
enum way {
    BY_CONTAINERS,  /* without options */
    BY_SAFETENSORS, /* as a program does that knows no other container (F-2) */
    AS_BYTES,       /* with --opaque (F-19) */
    AS_ARRAYS,      /* with --dtype, if the delta's own files are such arrays */
    N_WAYS
};

/* The dtype of the first file that is one tensor without a name; LMC_AUTO: there is none. */
static enum lmc_dtype find_array(const lmc_reader *tables)
{
    const size_t n = tables ? snapshot_info(tables).n_files : 0;
    for (size_t i = 0; i < n; i++) {
        const lmc_file *f = lmc_reader_get_file(tables, i);
        if (f->n_tensors && !*f->tensors->name && f->tensors->size == f->size)
            return lmc_dtype_find(f->tensors->dtype);
    }
    return LMC_AUTO;
}

/* Whether containers have been found in the files of b, or were not looked for. */
static int may_have_tensors(const struct base *b, const struct options *o)
{
    int result = o->opaque || o->dtype != LMC_AUTO;
    for (size_t i = 0; i < b->n_files && !result; i++) result = b->files[i].file.n_tensors != 0;
    return result;
}

static int add_view_in_way(struct base *b, enum way way, enum lmc_dtype dtype,
                           const struct options *o)
{
    struct listing l;
    struct options as = *o;
    const struct taking t = {b, &l, NULL, 0, way == BY_SAFETENSORS};
    as.opaque = way == AS_BYTES;
    as.dtype = way == AS_ARRAYS ? dtype : LMC_AUTO;
    as.verbosity = 0; /* what is to be said of the files was said when they were identified */
    int code = list_base(&l, b->name, &as);
    if (code == CODE_OK) code = add_taken(b, &t, &as);
    free_listing(&l);
    return code;
}

struct base *find_other_view(struct base *b, struct archive *delta, const struct options *o,
                             int *code)
{
    const enum lmc_dtype dtype = find_array(tables_of(delta));
    const int may_differ = may_have_tensors(b, o);
    struct base *view = NULL;
    for (unsigned way = 0; way < N_WAYS && !view && *code == CODE_OK; way++) {
        if (way == AS_ARRAYS ? dtype == LMC_AUTO : !may_differ || b->ways & 1u << way) continue;
        *code = add_view_in_way(b, (enum way)way, dtype, o);
        b->ways |= 1u << way;
        if (*code == CODE_OK) view = search_views(b, delta->wanted);
    }
    return view;
}

/* -- making a base ready -- */

/* The base of an open delta. */
static int find_next(struct archive *a, struct base **base, const struct options *o)
{
    char *made_with = NULL;
    int code;
    o->bases->code = CODE_OK;
    *base = find_base(a, o, &code);
    if (code != CODE_OK || *base) return code;
    if (a->fd >= 0 && !a->reader) code = read_archive_index(a, NULL);
    if (a->reader) made_with = copy_metadata(a, BASE_KEY);
    if (code == CODE_OK) code = fail_base(a->name, a->wanted, made_with, o);
    free(made_with);
    return code;
}

/* Closes what a link has open, while the link is not needed. */
static void put_away(struct base *b)
{
    free_replica(&b->replica);
    forget_intact(b);
    close_archive(&b->archive);
    b->archive.reader = b->archive.lender = NULL;
    b->archive.fd = -1;
    b->state = BASE_IDENTIFIED;
}

static int open_again(struct archive *a)
{
    struct stat st;
    if (a->fd >= 0) return CODE_OK;
    a->fd = open_file(AT_FDCWD, a->name, O_RDONLY);
    if (a->fd < 0 || fstat(a->fd, &st) != 0) return fail_errno(a->name, errno, "cannot open it");
    return same_state(&st, &a->st) ? CODE_OK : fail_changed(a->name);
}

/* Restores b to a scratch file, so that reading b does not read the links below it any more. Closes
 * only links of this walk: other links may be in use by other deltas. */
static int replace_links(struct base *b)
{
    int code = make_replica(&b->replica, &b->archive);
    if (code != CODE_OK) return code;
    b->archive.lender = NULL;
    code = read_archive_index(&b->archive, NULL);
    for (struct base *link = b->below; link && link->is_visited && link->is_archive;
         link = link->below) {
        const int is_last = link->replica.is_made;
        put_away(link);
        if (is_last) break;
    }
    b->n_links = 0;
    return code;
}

/* Prepares an identified link. below: its base, which is ready; NULL: it needs none. */
static int prepare_link(struct base *b, struct base *below)
{
    int code = CODE_OK;
    b->below = below;
    b->n_links = below ? below->n_links + 1 : 0;
    if (b->is_archive) {
        code = open_again(&b->archive);
        if (below) b->archive.lender = below->is_archive ? below->archive.reader : NULL;
        if (code == CODE_OK && (below || !b->archive.reader))
            code = read_archive_index(&b->archive, below ? &below->source : NULL);
        if (code == CODE_OK && b->n_links > MAX_LINKS) code = replace_links(b);
        if (code != CODE_OK) return code;
        b->by_reader = lmc_reader_base(b->archive.reader);
        b->source.n_files = snapshot_info(b->archive.reader).n_files;
        b->source.get_file = get_archive_file;
        b->source.read = read_archive_file;
        b->source.user = b;
    }
    b->state = BASE_READY;
    return CODE_OK;
}

/* The links on the way down. */
struct walked {
    struct base **list;
    size_t n, room;
};

static void add_walked(struct walked *l, struct base *b)
{
    *(struct base **)append(&l->list, &l->n, &l->room, sizeof *l->list) = b;
    b->is_visited = 1;
    if (l->n > MAX_LINKS && b->is_archive) put_away(b);
}

/* Walks down to a link that is ready (*ready), or that needs no base (*ready is NULL). */
static int walk_down(struct walked *l, struct base *b, struct base **ready, const struct options *o)
{
    for (;;) {
        struct base *next = NULL;
        int code = identify_base(b, o);
        *ready = b->state == BASE_READY ? b : NULL;
        if (code != CODE_OK || *ready) return code;
        if (b->is_visited)
            return fail(CODE_BASE, b->name, "is a delta that needs itself: the bases form a loop");
        if (b->is_archive && b->archive.is_delta) {
            b->is_visited = 1; /* find_base() prefers others */
            code = find_next(&b->archive, &next, o);
        }
        add_walked(l, b);
        if (code != CODE_OK || !next) return code;
        b = next;
    }
}

int prepare_base(struct base *b, const struct options *o)
{
    struct base *ready;
    struct walked l = {0};
    int code = walk_down(&l, b, &ready, o);
    for (size_t i = l.n; i && i-- && code == CODE_OK; ready = l.list[i])
        code = prepare_link(l.list[i], ready);
    for (size_t i = 0; i < l.n; i++) l.list[i]->is_visited = 0;
    free((void *)l.list);
    return code;
}

int find_base_of_archive(struct archive *a, const lmc_base **base, const struct options *o)
{
    struct base *b;
    int code;
    *base = NULL;
    o->bases->code = CODE_OK;
    if (!a->is_delta || o->bases->is_off) return CODE_OK;
    code = find_next(a, &b, o);
    if (code == CODE_OK) code = prepare_base(b, o);
    if (code != CODE_OK) return code;
    *base = &b->source;
    a->lender = b->is_archive ? b->archive.reader : NULL;
    return CODE_OK;
}

/* -- files that are read as if they were a snapshot -- */

/* Whether the file may be something other than a snapshot. */
static int may_be_plain(const struct archive *a)
{
    return a->st.st_size && !has_suffix(a->name) && memcmp(a->header, LMC_MAGIC, 4) != 0 &&
           !container_is_lfs_pointer(a->header, sizeof a->header);
}

int open_archive_or_plain(struct archive *a, struct base *p, const char *path,
                          const struct options *o)
{
    struct stat st;
    int code = CODE_OK, is_tree = !is_dash(path) && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    memset(p, 0, sizeof *p);
    p->name = path;
    p->all = o->bases;
    if (is_tree) {
        memset(a, 0, sizeof *a);
        a->name = path;
        a->o = o;
        a->fd = -1;
        a->st = st;
    } else {
        code = open_archive_file(a, path, o);
        if (code != CODE_OK || is_dash(path) || !may_be_plain(a)) return code;
    }
    code = take_base_files(p, 0, 1, o);
    if (code == CODE_OK && !is_tree && !p->files->container) return CODE_OK;
    a->plain = &p->source;
    if (code == CODE_OK && o->bases->n)
        code = fail(CODE_ERROR, a->name,
                    "is not compressed, so it has no base: leave out --base (to compare the two, "
                    "use lmc diff or lmc stats --base)");
    return code;
}

const struct container *container_of(const struct base_file *f)
{
    static const struct container none;
    return f->container ? f->container : &none;
}

int protect_plain(const struct base *p, const char *output)
{
    struct stat st;
    if (!output || stat(output, &st) != 0) return CODE_OK;
    for (size_t i = 0; i < p->n_files; i++)
        if (same_file(&p->files[i].st, &st))
            return fail(CODE_ERROR, output, "output and input are the same file");
    return CODE_OK;
}

/* -- all bases -- */

char *describe_base(const uint8_t *wanted, const char *made_with)
{
    char text[2 * SHORT_FINGERPRINT + 1];
    format_hex(text, wanted, SHORT_FINGERPRINT);
    return made_with ? format_text("%s (named '%.200s' when this delta was made)", text, made_with)
                     : copy_string(text, sizeof text - 1);
}

char *name_base(const struct base *b)
{
    char *path = copy_without_slashes(b->name);
    const char *const last = base_name(path);
    char *name = *last && *last != '/' && !is_dot(last) ? copy_text(last) : NULL;
    free(path);
    return name;
}

int choose_base(const struct base **base, const struct options *o)
{
    struct base *first = o->bases->n ? &o->bases->list[0] : NULL;
    int code = CODE_OK;
    if (first && contains_snapshots(first->name, 1))
        return fail(CODE_USAGE, first->name,
                    "is a directory of snapshots; name the one that this is to be coded against");
    if (first) {
        first->is_used = 1;
        code = prepare_base(first, o);
    }
    o->bases->code = CODE_OK;
    *base = o->bases->n && code == CODE_OK ? &o->bases->list[0] : NULL;
    return code;
}

/* The read_at of a source in memory: what was read of a pipe. */
static enum lmc_status read_from_head(void *user, uint64_t offset, void *dst, size_t size)
{
    const struct source *s = (const struct source *)user;
    memcpy(dst, s->head + offset, size);
    return LMC_OK;
}

/* Reads the sections of a pipe that come before its first run, for the tables of its files (F-5).
 * They are read as a snapshot that was cut there. */
static int read_beginning(struct archive *a, struct source *s)
{
    lmc_source source = {read_from_head, s, 0, {0, 0}};
    lmc_snapshot_extent extent;
    int code = CODE_OK;
    do {
        source.size = s->head_size;
        if (lmc_snapshot_measure(&source, &extent) != LMC_ERR_TRUNCATED || extent.runs_offset)
            break;
        /* in steps, as the size may be false */
        code = read_head(
            s, (size_t)(extent.wanted < 2 * source.size ? extent.wanted : 2 * source.size));
    } while (code == CODE_OK && extent.wanted <= CONTAINER_MAX_HEADER && !s->head_ended);
    source.size = extent.runs_offset ? extent.runs_offset : s->head_size;
    if (code == CODE_OK && lmc_salvage_open(&a->beginning, &source, NULL) == LMC_ERR_MEMORY)
        check_memory(NULL);
    return code;
}

int choose_base_of_source(const lmc_base **base, struct source *s, const struct options *o)
{
    struct archive a = {0};
    int code = read_head(s, LMC_HEADER_SIZE);
    *base = NULL;
    if (code != CODE_OK) return code;
    memcpy(s->header, s->head, s->head_size < sizeof s->header ? s->head_size : sizeof s->header);
    a.fd = -1;
    if (S_ISREG(s->st.st_mode)) /* then its index, too, can help to find the base */
        code = open_archive_of_source(&a, s, o);
    a.name = s->name;
    if (s->head_size < LMC_HEADER_SIZE ||
        parse_header(s->head, s->head_size, a.wanted, &a.is_delta) != 0)
        a.is_delta = 0; /* restoring reports the error */
    if (code == CODE_OK && a.is_delta && a.fd < 0 && o->bases->n) code = read_beginning(&a, s);
    if (code == CODE_OK) code = find_base_of_archive(&a, base, o);
    close_archive(&a);
    return code;
}

struct base *add_base(struct bases *bases, const char *name)
{
    bases->list = (struct base *)resize(bases->list, bases->n + 1, sizeof *bases->list);
    struct base *b = &bases->list[bases->n++];
    memset(b, 0, sizeof *b);
    b->name = name;
    b->all = bases;
    return b;
}

int check_bases(const struct options *o)
{
    int code = CODE_OK;
    for (size_t i = 0; i < o->bases->n && code == CODE_OK; i++)
        code = check_base(&o->bases->list[i]);
    for (const struct base *b = o->bases->found; b && code == CODE_OK; b = b->next_found)
        code = check_base(b);
    return code;
}

void close_base(struct base *b)
{
    while (b->views) {
        struct base *view = b->views;
        b->views = view->next;
        free_view(view);
    }
    forget_base_files(b);
    free(b->files);
    free((void *)b->shards);
    forget_intact(b);
    if (b->is_archive) close_archive(&b->archive);
    free_replica(&b->replica);
}

static void close_files_of_base(struct base *b)
{
    close_opened(&b->opened);
    for (struct base *view = b->views; view; view = view->next) close_files_of_base(view);
}

void close_files_of_bases(struct bases *bases)
{
    for (size_t i = 0; i < bases->n; i++) close_files_of_base(&bases->list[i]);
    for (struct base *b = bases->found; b; b = b->next_found) close_files_of_base(b);
}

void forget_bases(struct bases *bases)
{
    const struct bases kept = {.lender = bases->lender, .parallel = bases->parallel};
    for (size_t i = 0; i < bases->n; i++) close_base(&bases->list[i]);
    while (bases->found) {
        struct base *b = bases->found;
        bases->found = b->next_found;
        close_base(b);
        free(b->own_name);
        free(b);
    }
    free(bases->list);
    free_places(&bases->places);
    free((void *)bases->search);
    free(bases->others);
    *bases = kept;
}

void free_bases(struct bases *bases)
{
    forget_bases(bases);
    lmc_reader_free(bases->lender);
    memset(bases, 0, sizeof *bases);
}
