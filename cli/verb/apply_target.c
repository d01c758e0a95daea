/* SPDX-License-Identifier: MIT */
#include "apply.h"

#include <sys/file.h>

#include "../format/print.h"
#include "../input/base.h"
#include "../sys/attributes.h"
#include "../sys/io.h"

int holds_result(const struct base *b, const struct archive *delta)
{
    const lmc_base all = files_of_archive(delta);
    const lmc_file **files = sort_files(&all); /* as those of a base are */
    int same = b->n_files == all.n_files;
    for (size_t i = 0; i < b->n_files && same; i++) {
        const lmc_file *f = &b->files[i].file;
        same = strcmp(f->path, files[i]->path) == 0 && f->kind == files[i]->kind &&
               f->size == files[i]->size && f->crc == files[i]->crc;
    }
    free((void *)files);
    return same;
}

/* Checks a file before it is changed: without -f it must be no link and have no other names. */
static int check_file(const struct apply *a, const char *full, enum target look)
{
    struct stat st;
    if (lstat(full, &st) != 0) return fail_errno(full, errno, "cannot access it");
    if (!a->o->force && (S_ISLNK(st.st_mode) || st.st_nlink > 1))
        return fail(CODE_ERROR, full,
                    "%s would be changed, too; use -f if that is meant, or give a copy",
                    S_ISLNK(st.st_mode) ? "is a link: the file that it points to"
                                        : "has other names (hard links): they");
    int fd = open(full, O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno == EACCES && (a->o->force || look == TARGET_HALF) &&
        stat(full, &st) == 0) { /* its mode is set at the end */
        (void)set_mode_of_seen(AT_FDCWD, full, &st, (st.st_mode & 07777) | 0600);
        fd = open(full, O_RDWR | O_CLOEXEC);
    }
    if (fd < 0 && errno == EACCES && !a->o->force && (st.st_mode & 0200) == 0)
        return fail(CODE_ERROR, full, "is read-only; use -f to change it all the same");
    if (fd < 0) return fail_errno(full, errno, "cannot be written to");
    int error = sync_data(fd);
    close(fd);
    return error ? fail_errno(full, error, "cannot sync it") : CODE_OK;
}

/* Whether the header of a file names the same tensors as the snapshot's file. */
static int has_tensors(const char *full, const lmc_file *file, const struct options *o)
{
    struct source s;
    lmc_file found = *file;
    int same = open_source(&s, full) == CODE_OK && identify_source(&s, o) == CODE_OK;
    found.tensors = s.container.tensors;
    found.n_tensors = s.container.n_tensors;
    same = same && have_same_tensors(&found, file);
    close_source(&s);
    return same;
}

/* *is_wrong: the target does not have the layout of the delta's files. */
static int check_layout(const struct apply *a, const lmc_file **files, size_t n_files,
                        enum target look, int *is_wrong)
{
    struct listing l;
    int code = list_base(&l, a->path, a->o);
    const lmc_file **found = (const lmc_file **)resize(NULL, l.n + 1, sizeof *found);
    *is_wrong = code == CODE_OK && !match_entries(&l, files, n_files, found);
    for (size_t i = 0; i < l.n && code == CODE_OK && !*is_wrong && look == TARGET_TRUSTED; i++)
        if (found[i] && found[i]->kind == LMC_FILE_REGULAR) {
            char *full = join_path(a->path, l.entries[i].path);
            *is_wrong = !has_tensors(full, found[i], a->o);
            free(full);
        }
    free((void *)found);
    free_listing(&l);
    return code;
}

int check_files(const struct apply *a, const struct archive *delta, enum target look, int *is_wrong)
{
    const lmc_base all = files_of_archive(delta);
    const lmc_file **files = sort_files(&all);
    int code = check_layout(a, files, all.n_files, look, is_wrong);
    for (size_t i = 0; i < all.n_files && code == CODE_OK && !*is_wrong; i++)
        if (files[i]->kind == LMC_FILE_REGULAR) {
            char *full = join_path(a->path, files[i]->path);
            code = check_file(a, full, look);
            free(full);
        }
    free((void *)files);
    return code;
}

/* Sets the mode and time that the delta has; the owner stays. */
static int set_delta_attributes(const char *root, const char *full, const lmc_file *file,
                                int is_strict)
{
    struct attributes attributes = attributes_of_file(file);
    struct stat st;
    if (!file->has_mode && !file->has_mtime) return CODE_OK;
    int fd = is_strict ? open_below(root, file->path, O_RDONLY) : open(full, O_RDONLY | O_CLOEXEC);
    int error = fd < 0 || fstat(fd, &st) != 0 ? errno : 0;
    if (!file->has_mode && !error) {
        attributes.has_mode = 1;
        attributes.mode = kept_mode(st.st_mode, S_ISDIR(st.st_mode));
    }
    if (!error) error = set_attributes(fd, &attributes);
    if (!error) error = S_ISDIR(st.st_mode) ? sync_directory(fd) : sync_file(fd);
    if (fd >= 0) close(fd);
    return error ? fail_errno(full, error, "cannot set its mode and time") : CODE_OK;
}

int set_all_attributes(const char *root, const struct archive *delta, int is_strict)
{
    const lmc_base all = files_of_archive(delta);
    const lmc_file **files = sort_files(&all);
    int code = CODE_OK;
    for (size_t i = all.n_files; i && i-- && code == CODE_OK;) {
        char *full = join_path(root, files[i]->path);
        code = set_delta_attributes(root, full, files[i], is_strict);
        free(full);
    }
    free((void *)files);
    return code;
}

int lock_target(struct apply *a)
{
    struct stat st;
    if (a->lock >= 0) close(a->lock);
    a->lock = open(a->path, O_RDONLY | O_CLOEXEC);
    if (a->lock < 0 || fstat(a->lock, &a->st) != 0)
        return fail_errno(a->name, errno, "cannot open it");
    if (flock(a->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return fail(CODE_ERROR, a->name,
                    "is in use by another lmc apply, or locked by another program; try again when "
                    "that has ended");
    if (stat(a->path, &st) != 0 || !same_file(&st, &a->st))
        return fail(CODE_ERROR, a->name, "was replaced at this moment; try again");
    return CODE_OK;
}

int open_target(struct apply *a)
{
    int error;
    a->path = realpath(a->name, NULL);
    if (!a->path) return fail_errno(a->name, errno, "cannot find the target");
    if (stat(a->path, &a->st) != 0) return fail_errno(a->name, errno, "cannot access it");
    a->is_tree = S_ISDIR(a->st.st_mode);
    if (!a->is_tree && !S_ISREG(a->st.st_mode))
        return fail(
            CODE_ERROR, a->name,
            "is neither a file nor a directory, and a delta can be applied only to one of them");
    if (strcmp(a->path, "/") == 0)
        return fail(CODE_ERROR, a->name, "cannot be a target: its side file would be beside it");
    if (lock_target(a) != CODE_OK) return CODE_ERROR;
    if (!a->is_tree && begins_as_snapshot(a->lock, &error))
        return fail(CODE_ERROR, a->name,
                    "is an LMC file itself; apply deltas to what was restored from it, or see 'lmc "
                    "help deltas'");
    return CODE_OK;
}
