/* SPDX-License-Identifier: MIT */
#include "output.h"

#include "attributes.h"
#include "io.h"
#include "tree.h"
#include "temporary.h"

const char *output_name(const struct output *out)
{
    return out->path ? out->path : STANDARD_OUTPUT;
}

int check_output(const char *path, const struct stat *input, int force)
{
    struct stat st;
    if (lstat(path, &st) != 0 && errno == ENAMETOOLONG)
        return fail_errno(path, errno, "cannot be written; name another output with -o");
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? CODE_OK : fail_errno(path, errno, "cannot access it");
    if (S_ISLNK(st.st_mode) && stat(path, &st) != 0)
        return force ? CODE_OK
                     : fail(CODE_ERROR, path,
                            "exists already, as a link to nowhere; use -f to overwrite it");
    if (input && same_file(&st, input))
        return fail(CODE_ERROR, path,
                    "output and input are the same file; name another output with -o");
    if (S_ISDIR(st.st_mode)) return fail(CODE_ERROR, path, "is a directory; name a file with -o");
    if (S_ISREG(st.st_mode) && !force)
        return fail(CODE_ERROR, path, "exists already; use -f to overwrite it");
    return CODE_OK;
}

char *follow_links(const char *path)
{
    char *at = copy_text(path);
    for (int n = 0; n < 40; n++) {
        char target[4096], *directory, *next;
        ssize_t size = readlink(at, target, sizeof target);
        if (size < 0) return at; /* it is not a link */
        if (size == (ssize_t)sizeof target) break;
        target[size] = 0;
        directory = directory_of(at);
        next = *target == '/' ? copy_string(target, (size_t)size) : join_path(directory, target);
        free(directory);
        free(at);
        at = next;
    }
    free(at);
    return NULL;
}

static void begin_outlet(struct output *out, int fd, int is_file)
{
    memset(&out->outlet, 0, sizeof out->outlet);
    out->outlet.fd = fd;
    out->outlet.is_file = out->outlet.is_kept = is_file;
}

int open_output(struct output *out, const char *path, const struct stat *input, int force)
{
    struct stat st;
    int code = CODE_OK;
    memset(out, 0, sizeof *out);
    out->fd = STDOUT_FILENO;
    out->at.dir = -1;
    out->force = force;
    if (!path) {
        if (isatty(STDOUT_FILENO) && !force)
            return fail(CODE_ERROR, NULL,
                        "binary data is not written to a terminal; redirect it, use -o, or force "
                        "it with -f");
        if (input && fstat(STDOUT_FILENO, &st) == 0 && S_ISREG(st.st_mode) && same_file(&st, input))
            return fail(CODE_ERROR, NULL, "standard output and input are the same file");
    } else {
        code = check_output(path, input, force);
        if (code != CODE_OK) return code;
        out->path = follow_links(path);
        if (!out->path) return fail(CODE_ERROR, path, "is a link that leads in a circle");
        if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
            out->fd = open(path, O_WRONLY | O_CLOEXEC);
            if (out->fd < 0) code = fail_errno(path, errno, "cannot write to it");
        } else {
            const int error = open_spot(&out->at, out->path);
            out->is_file = 1;
            if (error) code = fail_beside(out->path, error, TEMPORARY_FILE);
            else if ((force && look_at_spot(&out->at, &st) == 0) ||
                     open_unnamed(out->at.dir, &out->fd) != 0)
                code = create_temporary(&out->at, out->path, TEMPORARY_FILE, &out->fd,
                                        &out->temporary);
        }
    }
    if (code == CODE_OK) {
        begin_outlet(out, out->fd, out->is_file);
        out->open = 1;
    } else {
        close_spot(&out->at);
        free(out->path);
    }
    return code;
}

static int refused; /* errno of the last error, until take_output_error() */

int take_output_error(void)
{
    const int error = refused;
    refused = 0;
    return error;
}

int fail_output(const struct output *out, int error)
{
    refused = error;
    return fail_errno(output_name(out), error, "cannot write");
}

int write_output(void *user, const void *data, size_t size)
{
    return outlet_write(&((struct output *)user)->outlet, data, size);
}

/* Copies the whole file `from`, of that size, to an outlet. Returns 0 or errno. */
static int copy_to_outlet(int from, uint64_t size, struct outlet *to)
{
    unsigned char *buffer = (unsigned char *)resize(NULL, BUFFER_SIZE, 1);
    int error = 0;
    for (uint64_t at = 0; at < size && !error;) {
        const size_t part = size - at < BUFFER_SIZE ? (size_t)(size - at) : BUFFER_SIZE;
        error = read_at(from, at, buffer, part);
        if (error < 0) error = EIO;
        if (!error) error = outlet_write(to, buffer, part);
        at += part;
    }
    free(buffer);
    return error;
}

void discard_output(struct output *out)
{
    if (!out->open) return;
    outlet_drop(&out->outlet);
    if (out->path) close(out->fd);
    if (out->temporary) remove_temporary();
    close_spot(&out->at);
    free(out->path);
    out->open = 0;
}

/* Copies an output without a name to a temporary file beside its path. Needed if the output cannot
 * get its name, or has to replace a file that has appeared meanwhile. 0 or errno. */
static int copy_to_temporary(struct output *out, const struct attributes *attributes)
{
    struct stat st;
    int error, fd;
    if (fstat(out->fd, &st) != 0) return errno;
    if (create_temporary(&out->at, out->path, TEMPORARY_FILE, &fd, &out->temporary) != CODE_OK)
        return EIO;
    begin_outlet(out, fd, 1);
    error = copy_to_outlet(out->fd, (uint64_t)st.st_size, &out->outlet);
    if (!error) error = outlet_finish(&out->outlet);
    if (!error) error = set_attributes(fd, attributes);
    if (!error) error = sync_file(fd);
    close(out->fd);
    out->fd = fd;
    return error;
}

/* What is renamed must be what was written: another program may have moved that away. */
static int rename_temporary(const struct output *out)
{
    const char *const from = base_name(out->temporary);
    struct stat st, made;
    int error;
    lock_temporary();
    if (fstat(out->fd, &made) != 0) error = errno;
    else if (fstatat(out->at.dir, from, &st, AT_SYMLINK_NOFOLLOW) != 0) error = errno;
    else if (!same_file(&st, &made)) error = ENOENT;
    else if (out->force)
        error = renameat(out->at.dir, from, out->at.dir, out->at.name) == 0 ? 0 : errno;
    else error = move_below(out->at.dir, from, out->at.name, 1);
    if (!error) forget_temporary();
    unlock_temporary();
    return error;
}

/* Takes back the name of an output, unless it is another file's by now. */
static void unpublish_output(const struct output *out)
{
    struct stat st, made;
    if (fstat(out->fd, &made) == 0 && look_at_spot(&out->at, &st) == 0 && same_file(&st, &made))
        unlinkat(out->at.dir, out->at.name, 0);
}

int check_on_disk(const char *source)
{
    const int error = find_refused_sync();
    if (!error) return CODE_OK;
    return fail(
        CODE_ERROR, source,
        "is not removed: what was made of it is complete, but maybe not on the disk yet, as "
        "its file system refuses to sync it (%s); remove it yourself later",
        strerror(error));
}

/* Gives the written file its name, and syncs the directory. 0 or errno; after an error a new name
 * is removed again. */
static int publish_output(struct output *out, const struct attributes *attributes)
{
    int error = 0;
    if (!out->temporary) {
        lock_temporary();
        error = link_unnamed(out->fd, &out->at);
        unlock_temporary();
        if (error && (error != EEXIST || out->force)) error = copy_to_temporary(out, attributes);
    }
    if (!error && out->temporary) error = rename_temporary(out);
    if (error) return error;
    error = sync_spot(&out->at);
    if (error && !out->force) unpublish_output(out);
    return error;
}

int commit_output(struct output *out, const struct attributes *attributes)
{
    static const struct attributes none;
    int error = outlet_finish(&out->outlet), code;
    if (!error && out->is_file) {
        attributes = attributes ? attributes : &none;
        error = set_attributes(out->fd, attributes);
        if (!error) error = sync_file(out->fd);
        if (!error) error = publish_output(out, attributes);
    }
    if (!error) {
        out->open = 0;
        if (out->path && close(out->fd) != 0 && !out->is_file) /* a file was synced before */
            error = errno;
        code = error ? fail_output(out, error) : CODE_OK;
        close_spot(&out->at);
        free(out->path);
        return code;
    }
    code = error == EEXIST
               ? fail(CODE_ERROR, output_name(out), "exists already; use -f to overwrite it")
               : fail_output(out, error);
    discard_output(out);
    return code;
}
