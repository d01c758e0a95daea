/* SPDX-License-Identifier: MIT */
#include "restorer.h"

#include "../format/print.h"
#include "../input/archive.h"
#include "../input/base.h"
#include "../input/options.h"
#include "../input/source.h"
#include "restored_tree.h"
#include "../sys/attributes.h"
#include "../sys/io.h"
#include "../sys/temporary.h"

static enum lmc_status stop_restore(struct restore *r, int code)
{
    r->code = code;
    return code == CODE_OK ? LMC_OK : LMC_ERR_WRITE;
}

static struct outlet *outlet_of(struct restore *r)
{
    return r->is_tree ? &r->tree.outlet : &r->out.outlet;
}

static int fail_write(const struct restore *r, int error)
{
    return r->is_tree
               ? fail_errno(r->tree.path + strlen(r->tree.root) + 1, error, "cannot write it")
               : fail_output(&r->out, error);
}

/* -- callbacks of lmc_snapshot_restore -- */

/* Opens a file of the tree again, even if its mode forbids that. Returns -1 and errno on errors. */
static int open_again(const struct restore *r, size_t number)
{
    const char *const path = r->again.seen.list[number].path, *const name = base_name(path);
    const int parent = open_parent(r->tree.root_fd, path, 0), flags = O_RDONLY | O_NOFOLLOW;
    struct stat st;
    if (parent < 0) return -1;
    int fd = open_file(parent, name, flags), error = errno;
    if (fd < 0 && error == EACCES && fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(st.st_mode) && set_mode_of_seen(parent, name, &st, 0600) == 0) {
        fd = open_file(parent, name, flags);
        error = errno;
        const int failed = set_mode_of_seen(parent, name, &st, st.st_mode & 07777);
        if (failed && fd >= 0) {
            error = failed;
            close(fd);
            fd = -1;
        }
    }
    close(parent);
    errno = error;
    return fd;
}

/* Reads what was written already. The zeros at the end of a file are written when it is complete.
 * Until then it may end early; the missing bytes are read as zeros. */
static enum lmc_status restore_read_back(void *user, size_t number, uint64_t offset, void *dst,
                                         size_t size)
{
    struct restore *r = (struct restore *)user;
    struct outlet *const out = outlet_of(r);
    int fd = r->out.fd, error = 0;
    if (!r->is_tree && (!r->out.is_file || r->is_checked))
        return read_again(&r->again, number, offset, dst, size);
    if (number + 1 == r->again.seen.n && outlet_flush(out, offset + size))
        return stop_restore(r, fail_write(r, out->error));
    if (r->is_tree) {
        if (r->fd_again < 0 || r->again_number != number) {
            if (r->fd_again >= 0) close(r->fd_again);
            r->fd_again = open_again(r, number);
            r->again_number = number;
        }
        fd = r->fd_again;
        error = fd < 0 ? errno : 0;
    }
    memset(dst, 0, size);
    if (!error) error = read_at(fd, offset, dst, size);
    if (error <= 0) return LMC_OK;
    r->code = fail_errno(r->is_tree ? r->again.seen.list[number].path : r->tree.target, error,
                         "cannot read it again");
    return LMC_ERR_READ;
}

/* If the snapshot is a regular file, reads which of its files have several names: a tar stream has
 * such a file once, under its first name. Faults of the list are reported at the end. */
static void read_links_ahead(struct restore *r, struct source *s, const lmc_base *base)
{
    struct archive a;
    struct links *const l = &r->ahead;
    if (r->tree.target || !S_ISREG(s->st.st_mode)) return;
    if (open_archive_of_source(&a, s, r->o) == CODE_OK && try_archive_index(&a, base) == LMC_OK &&
        read_links(l, a.reader) == 0 && l->n) {
        r->one_files = (struct one_file *)zeroed(l->n, sizeof *r->one_files);
        for (size_t i = 0; i < l->n; i++)
            if (l->list[i].type == LINK_HARD)
                r->one_files[r->n_one_files++].target = l->list[i].target;
        qsort(r->one_files, r->n_one_files, sizeof *r->one_files, compare_texts);
    }
    close_archive(&a);
}

/* The name by which the same file was written before; NULL: it was not written yet. */
static const char *find_written_name(struct restore *r, const char *path)
{
    const struct link *l = find_link_record(&r->ahead, path);
    const char *const target = l && l->type == LINK_HARD ? l->target : path;
    struct one_file *f = r->n_one_files
                             ? (struct one_file *)bsearch(&target, r->one_files, r->n_one_files,
                                                          sizeof *f, compare_texts)
                             : NULL;
    if (!f || f->written) return f ? f->written : NULL;
    for (; f > r->one_files && strcmp(f[-1].target, target) == 0;) f--;
    for (; f < r->one_files + r->n_one_files && strcmp(f->target, target) == 0; f++)
        f->written = l ? l->path : f->target;
    return NULL;
}

static int begin_tar_file(struct restore *r, const lmc_file *file)
{
    const char *written;
    int error;
    if (file->kind == LMC_FILE_REGULAR && file->size == LMC_UNKNOWN_SIZE)
        return fail(CODE_ERROR, file->path,
                    "has its size at its end, but a tar stream needs it first; restore to a "
                    "directory with -o");
    if (file->kind == LMC_FILE_DIRECTORY) {
        r->directories =
            (lmc_file *)grow(r->directories, r->n_directories, &r->directories_cap, sizeof *file);
        r->directories[r->n_directories] = *file;
        r->directories[r->n_directories++].path = copy_text(file->path);
        return CODE_OK;
    }
    written = find_written_name(r, file->path);
    r->is_skipped = written != NULL;
    error = written ? tar_link(&r->out, LINK_HARD, file->path, written) : tar_begin(&r->out, file);
    return error ? fail_output(&r->out, error) : CODE_OK;
}

/* Writes the links, then the directories from the leaves up, then the end. Directories are last:
 * unpacking a file in a directory changes the directory's time. */
static int finish_tar(struct restore *r)
{
    int error = 0;
    for (size_t i = 0; i < r->again.links.n && !error; i++) /* hard links were written already */
        if (r->again.links.list[i].type == LINK_SYMBOLIC)
            error = tar_link(&r->out, LINK_SYMBOLIC, r->again.links.list[i].path,
                             r->again.links.list[i].target);
    if (r->n_directories)
        qsort(r->directories, r->n_directories, sizeof *r->directories, compare_texts);
    for (size_t i = r->n_directories; i && i-- && !error;)
        error = tar_begin(&r->out, &r->directories[i]);
    if (!error) error = tar_finish(&r->out);
    return error ? fail_output(&r->out, error) : CODE_OK;
}

static enum lmc_status restore_begin(void *user, const lmc_file *file, size_t number)
{
    struct restore *r = (struct restore *)user;
    int code = CODE_OK;
    if (r->is_checked) return LMC_OK;
    if (number == 0) {
        /* a single file has no path in the snapshot */
        r->tree.is_empty = *file->path == 0 && file->kind == LMC_FILE_DIRECTORY;
        r->is_tree = *file->path != 0 || r->tree.is_empty;
        r->is_tar = r->is_tree && !r->tree.target;
        r->is_tree = r->is_tree && r->tree.target;
        if (r->is_tree) code = begin_tree(&r->tree, r->input, r->o->force);
        else code = check_output_name(r->o);
        if (code == CODE_OK && !r->is_tree)
            code = open_output(&r->out, r->tree.target, r->input_stat, r->o->force);
        r->started = code == CODE_OK;
    }
    if (code == CODE_OK && r->is_tar) code = begin_tar_file(r, file);
    if (code == CODE_OK && r->is_tree) code = begin_tree_file(&r->tree, file);
    return stop_restore(r, code);
}

static enum lmc_status restore_bytes(void *user, const void *data, size_t size)
{
    struct restore *r = (struct restore *)user;
    int error;
    r->total += size;
    if (r->is_skipped) return LMC_OK;
    error = outlet_write(outlet_of(r), data, size);
    return error ? stop_restore(r, fail_write(r, error)) : LMC_OK;
}

static enum lmc_status restore_end(void *user, const lmc_file *file, size_t number)
{
    struct restore *r = (struct restore *)user;
    (void)number;
    r->n_quantized += count_lossy(file);
    if (r->is_checked) {
        r->n_files += file->kind == LMC_FILE_REGULAR;
        r->total += file->size;
        return LMC_OK;
    }
    if (r->is_tree) return stop_restore(r, end_tree_file(&r->tree, file));
    if (r->is_tar) {
        int error = r->is_skipped ? 0 : tar_end(&r->out, file);
        r->is_skipped = 0;
        return error ? stop_restore(r, fail_output(&r->out, error)) : LMC_OK;
    }
    r->attributes = attributes_of_file(file);
    return LMC_OK;
}

static enum lmc_status restore_metadata(void *user, const char *key, const void *value, size_t size)
{
    struct restore *r = (struct restore *)user;
    if (r->is_checked && strcmp(key, BASE_KEY) == 0)
        r->made_with = copy_string((const char *)value, size);
    return LMC_OK;
}

void init_restore(struct restore *r, const char *input, const char *target, const struct options *o)
{
    memset(r, 0, sizeof *r);
    r->o = o;
    r->input = input;
    r->fd_again = -1;
    init_tree(&r->tree, target, o);
}

/* Whether the output cannot be read again: standard output, or a device or pipe named by -o. */
static int is_passed_on(const char *target)
{
    struct stat st;
    return !target || (stat(target, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode));
}

static int is_delta_source(const struct source *s)
{
    uint8_t wanted[LMC_FINGERPRINT_SIZE];
    int is_delta;
    return parse_header(s->header, sizeof s->header, wanted, &is_delta) == 0 && is_delta;
}

int run_restore(struct restore *r, struct source *s, const lmc_base *base)
{
    lmc_restore_options options = LMC_RESTORE_OPTIONS();
    enum lmc_status status = LMC_OK;
    options.begin_file = restore_begin;
    options.write = restore_bytes;
    options.end_file = restore_end;
    options.read_back = restore_read_back;
    options.metadata = restore_metadata;
    if (r->is_checked) options.write = NULL;
    init_reread(&r->again, s, base, r->o);
    r->again.lacks_base = r->is_checked && !base && is_delta_source(s);
    progress_start(s->name, s->size);
    if (is_passed_on(r->tree.target)) r->code = keep_source(&r->again);
    if (r->code == CODE_OK && !r->is_checked) read_links_ahead(r, s, base);
    if (r->code == CODE_OK) status = restore_source(&r->again, &options, NULL);
    progress_clear();
    if (r->code != CODE_OK) return r->code;
    return status == LMC_OK ? CODE_OK : fail_restore(&r->again, status);
}

int finish_restore(struct restore *r, int code)
{
    if (!r->started) return code;
    if (code == CODE_OK && r->is_tree)
        code = make_links(r->tree.root_fd, &r->again.links, r->input);
    if (code == CODE_OK && r->is_tree) return commit_tree(&r->tree, r->o->force, r->input_stat);
    if (code == CODE_OK && r->is_tar) code = finish_tar(r);
    if (code == CODE_OK) {
        complete_attributes(&r->attributes, r->input_stat);
        return commit_output(&r->out, &r->attributes);
    }
    discard_restore(r);
    return code;
}

void discard_restore(struct restore *r)
{
    if (r->started && r->is_tree) remove_temporary();
    else if (r->started) discard_output(&r->out);
}

int open_snapshot_source(struct source *s, const char *path, const struct options *o)
{
    int code = CODE_OK;
    memset(s, 0, sizeof *s);
    s->fd = -1;
    if (is_dash(path) && isatty(STDIN_FILENO) && !o->force)
        return fail(CODE_ERROR, NULL,
                    "standard input is a terminal; name a file, or see 'lmc help'");
    code = check_regular(path, o->to_stdout || o->output);
    if (code == CODE_OK) code = open_checked(s, path, o->to_stdout || o->output);
    if (code == CODE_OK && S_ISDIR(s->st.st_mode))
        code = fail(CODE_ERROR, path,
                    "is a directory; name a file, or use -r for all " SUFFIX " files below it");
    return code;
}

void free_restore(struct restore *r)
{
    if (r->fd_again >= 0) close(r->fd_again);
    close_reread(&r->again);
    free_links(&r->ahead);
    free(r->one_files);
    free(r->made_with);
    for (size_t i = 0; i < r->n_directories; i++) free((char *)r->directories[i].path);
    free(r->directories);
    free_tree(&r->tree);
}
