/* base.c - the content of one base: files, views of files, or a snapshot
 * SPDX-License-Identifier: MIT
 *
 * It opens, identifies and reads the one base that it is given. Which base that is, find_base.c
 * decides; what is below a delta, chain.c.
 */
#include "base.h"

#include "../../formats/sorted.h"
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

int have_same_tensors(const lmc_file *a, const lmc_file *b)
{
    if (a->kind != b->kind || a->size != b->size || a->n_tensors != b->n_tensors) return 0;
    for (size_t i = 0; i < a->n_tensors; i++)
        if (a->tensors[i].offset != b->tensors[i].offset ||
            strcmp(a->tensors[i].name, b->tensors[i].name) != 0 ||
            !is_same_kind(&a->tensors[i], &b->tensors[i]))
            return 0;
    return 1;
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
        (struct base_file *)append(&b->files, &b->n_files, &b->cap, sizeof *b->files);
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

/* lmc salvage: reads the intact blocks of b, which cannot be read otherwise. Lost bytes:
 * LMC_ERR_BASE_WRONG, as for a wrong base. */
static enum lmc_status read_intact(struct base *b, size_t number, uint64_t offset, void *dst,
                                   size_t size)
{
    const lmc_base found = lmc_reader_base(lmc_salvage_reader(b->salvage));
    const enum lmc_status status = found.read(found.user, number, offset, dst, size);
    return status == LMC_OK || status == LMC_ERR_MEMORY || status == LMC_ERR_LIMIT
               ? status
               : LMC_ERR_BASE_WRONG;
}

static void open_salvage_of(struct base *b)
{
    const lmc_source source = source_of_archive(&b->archive);
    const lmc_reader_options options =
        options_of_reader(&b->archive, b->below ? &b->below->source : NULL);
    if (lmc_salvage_open(&b->salvage, &source, &options) != LMC_OK) b->state = BASE_DAMAGED;
}

static enum lmc_status read_archive_file(void *user, size_t number, uint64_t offset, void *dst,
                                         size_t size)
{
    struct base *b = (struct base *)user;
    const lmc_base files = lmc_reader_base(b->archive.reader);
    const int is_partial = b->all->is_partial;
    if (b->replica.starts)
        return read_replica(&b->replica, number, offset, dst, size, &b->all->code);
    if (b->salvage) return read_intact(b, number, offset, dst, size);
    if (b->state != BASE_DAMAGED) {
        const enum lmc_status status = files.read(files.user, number, offset, dst, size);
        if (status == LMC_OK) return LMC_OK;
        if (is_partial && status == LMC_ERR_LIMIT) return status; /* it is not damaged */
        const int is_below = status == LMC_ERR_READ || status == LMC_ERR_BASE_WRONG;
        const int is_damaged = status != LMC_ERR_LIMIT && status != LMC_ERR_MEMORY &&
                               (!is_below || b->archive.error); /* b itself, not its own base */
        if (is_partial) open_salvage_of(b);
        else b->all->code = fail_damage(&b->archive, status, number, offset);
        if (is_damaged && b->salvage)
            say(b->name,
                "is damaged: %s; tensors that depend only on its intact blocks are recovered",
                lmc_status_text(status));
        if (is_damaged) name_copy(b);
        if (is_damaged && !is_partial) b->state = BASE_DAMAGED;
        if (b->salvage) return read_intact(b, number, offset, dst, size);
    } else if (b->all->code == CODE_OK)
        b->all->code = fail(CODE_CORRUPT, b->name, "is damaged, as was said before");
    return is_partial ? LMC_ERR_BASE_WRONG : LMC_ERR_READ;
}

static int open_again(struct archive *a)
{
    struct stat st;
    if (a->fd >= 0) return CODE_OK;
    a->fd = open_file(AT_FDCWD, a->name, O_RDONLY);
    if (a->fd < 0 || fstat(a->fd, &st) != 0) return fail_errno(a->name, errno, "cannot open it");
    return same_state(&st, &a->st) ? CODE_OK : fail_changed(a->name);
}

int make_ready(struct base *b, struct base *below)
{
    int code = CODE_OK;
    b->below = below;
    if (is_snapshot(b)) {
        code = open_again(&b->archive);
        if (below) b->archive.lender = is_snapshot(below) ? below->archive.reader : NULL;
        if (code == CODE_OK && (below || !b->archive.reader))
            code = read_archive_index(&b->archive, below ? &below->source : NULL);
        if (code != CODE_OK) return code;
        b->source.n_files = snapshot_info(b->archive.reader).n_files;
        b->source.get_file = get_archive_file;
        b->source.read = read_archive_file;
        b->source.user = b;
    }
    b->state = BASE_READY;
    return CODE_OK;
}

void put_away(struct base *b)
{
    free_replica(&b->replica);
    lmc_salvage_free(b->salvage);
    b->salvage = NULL;
    close_archive(&b->archive);
    b->archive.reader = b->archive.lender = NULL;
    b->archive.fd = -1;
    if (b->state == BASE_READY) b->state = BASE_IDENTIFIED;
}

/* -- opening and identifying -- */

int open_base(struct base *b, const struct options *o)
{
    struct stat st;
    int fd, is_archive = 0;
    if (b->state == BASE_DAMAGED)
        return fail(CODE_CORRUPT, b->name, "is damaged, as was said before");
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
        is_archive = begins_as_snapshot(fd, &error) || has_suffix(b->name);
        close(fd);
        if (error) return fail(CODE_ERROR, b->name, "the base cannot be read: %s", strerror(error));
    }
    const int code = is_archive ? open_archive_file(&b->archive, b->name, o)
                                : check_finished(b->name, CODE_BASE);
    if (code == CODE_OK) b->state = BASE_OPEN;
    return code;
}

int identify_base_as(struct base *b, int is_strict, const struct options *o)
{
    int code = open_base(b, o);
    if (code != CODE_OK || b->state >= BASE_IDENTIFIED) return code;
    if (!is_snapshot(b)) return take_base_files(b, 1, is_strict, o);
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

char *name_base(const struct base *b)
{
    char *path = copy_without_slashes(b->name);
    const char *const last = base_name(path);
    char *name = *last && *last != '/' && !is_dot(last) ? copy_text(last) : NULL;
    free(path);
    return name;
}

struct base *add_base(struct bases *bases, const char *name)
{
    bases->list = (struct base *)resize(bases->list, bases->n + 1, sizeof *bases->list);
    struct base *b = &bases->list[bases->n++];
    memset(b, 0, sizeof *b);
    b->name = copy_text(name);
    b->all = bases;
    return b;
}

static struct base **find_list(const struct bases *all, const char *name)
{
    const uint64_t hash = hash_bytes(FNV_START, name, strlen(name));
    return &all->by_name[hash & (all->n_lists - 1)];
}

/* Makes twice as many lists when there is one for each found base. */
static void grow_lists(struct bases *all)
{
    if (all->n_found < all->n_lists) return;
    free((void *)all->by_name);
    all->n_lists = all->n_lists ? 2 * all->n_lists : 64;
    all->by_name = (struct base **)zeroed(all->n_lists, sizeof *all->by_name);
    for (struct base *b = all->found; b; b = b->next) {
        struct base **const list = find_list(all, b->name);
        b->next_of_hash = *list;
        *list = b;
    }
}

struct base *add_found(struct bases *all, const char *name)
{
    grow_lists(all);
    struct base **const list = find_list(all, name), *b = *list;
    while (b && strcmp(b->name, name) != 0) b = b->next_of_hash;
    if (b) return b;
    b = (struct base *)zeroed(1, sizeof *b);
    b->name = copy_text(name);
    b->all = all;
    b->next_of_hash = *list;
    *list = b;
    all->n_found++;
    b->next = all->found;
    return all->found = b;
}

int check_bases(const struct options *o)
{
    int code = CODE_OK;
    for (size_t i = 0; i < o->bases->n && code == CODE_OK; i++)
        code = check_base(&o->bases->list[i]);
    for (const struct base *b = o->bases->found; b && code == CODE_OK; b = b->next)
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
    if (is_snapshot(b)) put_away(b);
}

static void close_files_of_base(struct base *b)
{
    close_opened(&b->opened);
    for (struct base *view = b->views; view; view = view->next) close_files_of_base(view);
}

void close_files_of_bases(struct bases *bases)
{
    for (size_t i = 0; i < bases->n; i++) close_files_of_base(&bases->list[i]);
    for (struct base *b = bases->found; b; b = b->next) close_files_of_base(b);
}

static void free_base(struct base *b)
{
    close_base(b);
    free((void *)b->name);
}

void forget_bases(struct bases *bases)
{
    const struct bases kept = {.lender = bases->lender, .parallel = bases->parallel};
    for (size_t i = 0; i < bases->n; i++) free_base(&bases->list[i]);
    while (bases->found) {
        struct base *b = bases->found;
        bases->found = b->next;
        free_base(b);
        free(b);
    }
    free(bases->list);
    free((void *)bases->by_name);
    free_catalog(&bases->catalog);
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
