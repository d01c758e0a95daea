/* SPDX-License-Identifier: MIT */
#include "source.h"

#include "../../formats/torch.h"
#include "options.h"
#include "../sys/attributes.h"
#include "../sys/io.h"
#include "../sys/spot.h"

/* Whether path is /dev/stdin, or the path that a shell puts for <(...): these are open already. */
static int is_descriptor(const char *path)
{
    return strcmp(path, "/dev/stdin") == 0 || strncmp(path, "/dev/fd/", 8) == 0 ||
           strncmp(path, "/proc/", 6) == 0;
}

int check_regular(const char *path, int is_wanted)
{
    struct stat st;
    if (is_wanted || is_dash(path) || is_descriptor(path) || stat(path, &st) != 0 ||
        S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))
        return CODE_OK;
    return fail(CODE_ERROR, path,
                "is not a regular file, and is skipped; to read it all the same use -c, -o or '<'");
}

static int open_with(struct source *s, const char *path, int is_pipe)
{
    memset(s, 0, sizeof *s);
    s->name = is_dash(path) ? "(standard input)" : path;
    s->size = LMC_UNKNOWN_SIZE;
    s->fd = is_dash(path) ? STDIN_FILENO : open_held(path, is_pipe);
    if (s->fd < 0) return fail_errno(s->name, errno, "cannot open it");
    if (fstat(s->fd, &s->st) != 0) return fail_errno(s->name, errno, "cannot access it");
    if (S_ISREG(s->st.st_mode)) {
        off_t at = lseek(s->fd, 0, SEEK_CUR);
        if (at < 0) return fail_errno(s->name, errno, "cannot access it");
        s->start = at <= s->st.st_size ? (uint64_t)at : (uint64_t)s->st.st_size;
        s->size = (uint64_t)s->st.st_size - s->start;
    }
    return CODE_OK;
}

int open_source(struct source *s, const char *path) { return open_with(s, path, 1); }

int open_listed(struct source *s, const char *path) { return open_with(s, path, 0); }

int open_checked(struct source *s, const char *path, int is_wanted)
{
    if (is_wanted || is_dash(path) || is_descriptor(path)) return open_source(s, path);
    const int code = open_listed(s, path);
    if (code != CODE_OK || S_ISREG(s->st.st_mode) || S_ISDIR(s->st.st_mode)) return code;
    return fail_changed(path);
}

void close_source(struct source *s)
{
    if (s->fd > STDIN_FILENO) close(s->fd);
    free(s->head);
    container_free(&s->container);
}

int read_head(struct source *s, size_t size)
{
    size_t got;
    if (size <= s->head_size || s->head_ended) return CODE_OK;
    s->head = (unsigned char *)resize(s->head, size, 1);
    int error = read_full(s->fd, s->head + s->head_size, size - s->head_size, &got);
    if (error) return fail_errno(s->name, error, "cannot read it");
    s->head_size += got;
    s->head_ended = s->head_size < size;
    if (s->head_ended && S_ISREG(s->st.st_mode) && s->head_size < s->size)
        return fail_changed(s->name);
    if (s->head_ended && s->size == LMC_UNKNOWN_SIZE) s->size = s->head_size;
    return CODE_OK;
}

/* Makes a raw array one tensor without name, if its size is known and a multiple of an element. */
static void make_raw_tensor(struct source *s, enum lmc_dtype dtype)
{
    struct container *c = &s->container;
    unsigned bits = lmc_dtype_bits(dtype);
    if (s->size == LMC_UNKNOWN_SIZE || s->size % bits * 8 % bits != 0) return;
    c->tensors = (lmc_tensor *)zeroed(1, sizeof *c->tensors);
    c->shapes = (uint64_t *)resize(NULL, 1, sizeof *c->shapes);
    c->shapes[0] = s->size / bits * 8 + s->size % bits * 8 / bits;
    c->tensors->name = "";
    c->tensors->dtype = lmc_dtype_name(dtype);
    c->tensors->rank = 1;
    c->tensors->shape = c->shapes;
    c->tensors->size = s->size;
    c->n_tensors = 1;
}

static int fail_unfinished(const struct source *s, const char *kind, const char *why)
{
    return fail(CODE_ERROR, s->name,
                "is not a valid %s file: %s; it may not be finished, so it is left, and tried "
                "again; --opaque takes it as plain bytes",
                kind, why);
}

/* Handles the result of the parser: an error, a warning, or a container. */
static int accept_container(struct source *s, enum container_result result,
                            enum container_kind expected, const struct options *o)
{
    struct container *c = &s->container;
    if (result == CONTAINER_MEMORY) check_memory(NULL);
    if (result == CONTAINER_BAD && expected != CONTAINER_NONE) {
        const char *const kind = container_name(expected);
        if (o->only_whole) return fail_unfinished(s, kind, c->error);
        if (s->is_named)
            return fail(CODE_ERROR, s->name,
                        "is not a valid %s file: %s; repair it, or use --opaque to store it as "
                        "plain bytes",
                        kind, c->error);
        if (o->verbosity > 0)
            say(s->name, "is not a valid %s file: %s; stored as plain bytes", kind, c->error);
    }
    if (result == CONTAINER_OK && s->size == LMC_UNKNOWN_SIZE) {
        s->size = c->end;
        s->promised = c->end != LMC_UNKNOWN_SIZE;
    }
    if (result == CONTAINER_OTHER && o->verbosity >= 2 &&
        container_is_legacy_torch(s->head, s->head_size))
        say(s->name, "is of a PyTorch before 1.6, which lmc cannot read: stored as plain bytes");
    if (result != CONTAINER_OK || s->size == LMC_UNKNOWN_SIZE) container_free(c);
    return CODE_OK;
}

/* -- the .metadata beside a .distcp file -- */

/* The .metadata of the directory of the last file, and of those that it is in. As files come in the
 * order of their paths, each is read once. */
struct kept {
    struct kept *above; /* of a directory that this one is in */
    char *directory, *path;
    struct stat st;
    int is_read; /* and was understood */
    struct dcp dcp;
};

/* Never freed at the end. */
static struct kept *kept;
static uint64_t kept_weight;

/* If what is kept takes more, it is read again. */
#define MAX_KEPT ((uint64_t)64 << 20)

static void forget_last(void)
{
    struct kept *const k = kept;
    kept = k->above;
    if (k->is_read) kept_weight -= dcp_weigh(&k->dcp);
    if (k->is_read) dcp_free(&k->dcp);
    free(k->directory);
    free(k->path);
    free(k);
}

/* Reads .metadata from fd, a regular file whose state is k->st. */
static void read_kept(struct kept *k, int fd, const struct options *o)
{
    const char *why = "it is too large";
    if ((uint64_t)k->st.st_size <= pickle_max_size((uint64_t)k->st.st_size)) {
        const size_t size = (size_t)k->st.st_size;
        void *data = resize(NULL, size, 1);
        enum container_result result = CONTAINER_BAD;
        why = "it cannot be read";
        if (read_at(fd, 0, data, size) == 0) {
            result = dcp_read(&k->dcp, data, size, size);
            why = k->dcp.error;
        }
        free(data);
        if (result == CONTAINER_MEMORY) check_memory(NULL);
        k->is_read = result == CONTAINER_OK;
    }
    if (k->is_read) kept_weight += dcp_weigh(&k->dcp);
    else if (o->verbosity >= 2)
        say(k->path, "is not understood (%s), so items of .distcp files have no names", why);
}

/* Reads the .metadata beside that file; NULL: it is no .distcp file, there is none, or it is not
 * understood, which -v reports. It is valid until the next call. Not thread-safe. */
static const struct dcp *find_metadata_beside(const char *path, const struct options *o)
{
    if (!container_is_distcp(path)) return NULL;
    char *directory = directory_of(path), *beside = join_path(directory, ".metadata");
    struct stat st;
    const int fd = open_file(AT_FDCWD, beside, O_RDONLY);
    const int is_there = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    while (kept && !is_at_or_below(directory, kept->directory)) forget_last();
    if (kept && strcmp(kept->directory, directory) == 0 &&
        (!is_there || !same_state(&kept->st, &st)))
        forget_last();
    if (is_there && (!kept || strcmp(kept->directory, directory) != 0)) {
        while (kept && kept_weight > MAX_KEPT) forget_last();
        struct kept *const k = (struct kept *)zeroed(1, sizeof *k);
        k->above = kept;
        k->directory = copy_text(directory);
        k->path = copy_text(beside);
        k->st = st;
        kept = k;
        read_kept(k, fd, o);
    }
    const int is_known = is_there && kept->is_read;
    free(directory);
    free(beside);
    if (fd >= 0) close(fd);
    return is_known ? &kept->dcp : NULL;
}

/* -- what a source holds -- */

static int read_view_of_source(void *user, uint64_t offset, void *dst, size_t size)
{
    const struct source *s = (const struct source *)user;
    return read_at(s->fd, s->start + offset, dst, size);
}

/* Whether a ZIP archive has no end record, not even one before a comment. */
static int is_cut_zip(const struct source *s)
{
    enum { FARTHEST = 65557 };
    const size_t size = s->size < FARTHEST ? (size_t)s->size : FARTHEST;
    unsigned char *const end = (unsigned char *)resize(NULL, size, 1);
    int is_found = read_at(s->fd, s->start + s->size - size, end, size) != 0;
    for (size_t i = 0; i + 4 <= size && !is_found; i++)
        is_found = memcmp(end + i, "PK\5\6", 4) == 0;
    free(end);
    return !is_found;
}

/* Parses a file of PyTorch, whose directory is at its end. Any other file is plain bytes. */
static void look_through_view(struct source *s, const struct options *o)
{
    struct container *c = &s->container;
    const char *name = base_name(s->name);
    const struct view v = {s->size, s->size, read_view_of_source, s};
    enum container_result result = container_parse_view(
        c, &v, name, s->fd != STDIN_FILENO ? find_metadata_beside(s->name, o) : NULL);
    if (result == CONTAINER_MEMORY) check_memory(NULL);
    if ((result == CONTAINER_BAD || result == CONTAINER_OTHER) && c->error[0] && o->verbosity >= 2)
        say(s->name, "is not read as a file of PyTorch: %s; stored as plain bytes", c->error);
    if (result == CONTAINER_OK && c->note[0] && o->verbosity >= 2) say(s->name, "%s", c->note);
    if (result != CONTAINER_OK) container_free(c);
}

/* An error if the user has named the pointer: surely the file that it points to is meant. */
static int take_lfs_pointer(const struct source *s, const struct options *o)
{
    if (s->is_named)
        return fail(CODE_ERROR, s->name, LFS_POINTER_SAYS ", or use --opaque to take it as it is");
    if (o->verbosity > 0) say(s->name, LFS_POINTER_SAYS "; taken as it is");
    return CODE_OK;
}

int identify_source(struct source *s, const struct options *o)
{
    enum container_kind expected =
        o->opaque || o->dtype != LMC_AUTO ? CONTAINER_NONE : container_kind_of_name(s->name);
    enum container_result result = CONTAINER_MORE;
    size_t size = FIRST_LOOK;
    while (result == CONTAINER_MORE) {
        int code = read_head(s, size);
        if (code != CODE_OK) return code;
        if (o->opaque) return CODE_OK;
        if (o->dtype != LMC_AUTO) {
            make_raw_tensor(s, o->dtype);
            return CODE_OK;
        }
        if (container_is_lfs_pointer(s->head, s->head_size)) return take_lfs_pointer(s, o);
        if (S_ISREG(s->st.st_mode) && container_wants_view(s->head, s->head_size, s->name)) {
            if (o->only_whole && is_cut_zip(s)) return fail_unfinished(s, "ZIP", "it has no end");
            look_through_view(s, o);
            return CODE_OK;
        }
        result = container_parse(&s->container, s->head, s->head_size, s->size, expected);
        if (result == CONTAINER_MORE && s->head_ended) /* it shrank; feed_source() will report it */
            return CODE_OK;
        size = s->head_size * 2 > s->container.need ? s->head_size * 2 : s->container.need;
        if (size > CONTAINER_MAX_HEADER) size = CONTAINER_MAX_HEADER;
    }
    return accept_container(s, result, expected, o);
}

enum lmc_status read_stream(void *user, void *dst, size_t size, size_t *got)
{
    struct source *s = (struct source *)user;
    if (s->head_taken < s->head_size) {
        *got = s->head_size - s->head_taken < size ? s->head_size - s->head_taken : size;
        memcpy(dst, s->head + s->head_taken, *got);
        s->head_taken += *got;
        if (s->head_taken == s->head_size) {
            free(s->head);
            s->head = NULL;
        }
    } else if (!s->head_ended) {
        s->error = read_some(s->fd, dst, size, got);
    } else {
        *got = 0;
    }
    s->taken += *got;
    if (s->crc) *s->crc = lmc_crc32c(*s->crc, dst, *got);
    progress_add(*got);
    return s->error ? LMC_ERR_READ : LMC_OK;
}

/* -- one of many files -- */

int fail_changed(const char *path)
{
    return fail(CODE_ERROR, path,
                "was changed while it was being read; try again when nobody writes to it");
}

void close_opened(struct opened *f)
{
    if (f->path) close(f->fd);
    f->path = NULL;
}

int read_opened(struct opened *f, const char *path, const struct stat *st, uint64_t offset,
                void *dst, size_t size)
{
    struct stat now_st;
    if (f->path != path) {
        close_opened(f);
        f->fd = open_file(AT_FDCWD, path, O_RDONLY);
        if (f->fd < 0) return fail_errno(path, errno, "cannot open it");
        f->path = path;
        if (fstat(f->fd, &now_st) != 0 || !same_state(&now_st, st)) return fail_changed(path);
    }
    int error = read_at(f->fd, offset, dst, size);
    return error > 0 ? fail_errno(path, error, "cannot read it")
           : error   ? fail_changed(path)
                     : CODE_OK;
}
