/* apply_target.c - the files that lmc apply changes: locking, opening and checking them (apply.h)
 * SPDX-License-Identifier: MIT */
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

int directory_of_target(const struct apply *a) { return a->is_tree ? a->lock : a->at.dir; }

/* Gives the owner of a file the right to change it; its mode is set at the end. */
static void make_writable(int dir, const char *path, int is_strict)
{
    const int parent = is_strict ? open_parent(dir, path, 0) : openat(dir, ".", PARENT_FLAGS);
    const char *const name = is_strict ? base_name(path) : path;
    struct stat st;
    if (parent < 0) return;
    if (fstatat(parent, name, &st, is_strict ? AT_SYMLINK_NOFOLLOW : 0) == 0)
        (void)set_mode_of_seen(parent, name, &st, (st.st_mode & 07777) | 0600);
    close(parent);
}

/* Checks a file before it is changed: without -f it must be no link and have no other names. */
static int check_file(const struct apply *a, const char *path, const char *full, enum target look)
{
    const int dir = directory_of_target(a), is_strict = !a->o->force;
    struct stat st;
    if (fstatat(dir, *path ? path : a->at.name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return fail_errno(full, errno, "cannot access it");
    if (!a->o->force && (S_ISLNK(st.st_mode) || st.st_nlink > 1))
        return fail(CODE_ERROR, full,
                    "%s would be changed, too; use -f if that is meant, or give a copy",
                    S_ISLNK(st.st_mode) ? "is a link: the file that it points to"
                                        : "has other names (hard links): they");
    int fd = open_in_target(dir, a->path, path, is_strict, O_RDWR);
    if (fd < 0 && errno == EACCES && (a->o->force || look == TARGET_HALF)) {
        make_writable(dir, *path ? path : a->at.name, is_strict);
        fd = open_in_target(dir, a->path, path, is_strict, O_RDWR);
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
    int same = open_listed(&s, full) == CODE_OK && identify_source(&s, o) == CODE_OK;
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
            code = check_file(a, files[i]->path, full, look);
            free(full);
        }
    free((void *)files);
    return code;
}

/* Sets the mode and time that the delta has; the owner stays. */
static int set_delta_attributes(const struct apply *a, const char *full, const lmc_file *file)
{
    struct attributes attributes = attributes_of_file(file);
    struct stat st;
    if (!file->has_mode && !file->has_mtime) return CODE_OK;
    int fd = a->is_tree && !*file->path ? dup(a->lock)
                                        : open_in_target(directory_of_target(a), a->path,
                                                         file->path, !a->o->force, O_RDONLY);
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

int set_all_attributes(const struct apply *a, const struct archive *delta)
{
    const lmc_base all = files_of_archive(delta);
    const lmc_file **files = sort_files(&all);
    int code = CODE_OK;
    for (size_t i = all.n_files; i && i-- && code == CODE_OK;) {
        char *full = join_path(a->path, files[i]->path);
        code = set_delta_attributes(a, full, files[i]);
        free(full);
    }
    free((void *)files);
    return code;
}

int lock_target(struct apply *a)
{
    struct stat st;
    if (a->lock >= 0) close(a->lock);
    a->lock = open_file(a->at.dir, a->at.name, O_RDONLY | O_NOFOLLOW);
    if (a->lock < 0 || fstat(a->lock, &a->st) != 0)
        return fail_errno(a->name, errno, "cannot open it");
    if (flock(a->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return fail(CODE_ERROR, a->name,
                    "is in use by another lmc apply, or locked by another program; try again when "
                    "that has ended");
    if (look_at_spot(&a->at, &st) != 0 || !same_file(&st, &a->st) ||
        (a->is_tree ? !S_ISDIR(st.st_mode) : !S_ISREG(st.st_mode)))
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
    error = open_spot(&a->at, a->path);
    if (error) return fail_errno(a->name, error, "cannot open the directory that it is in");
    hold_directory_of(a->path, a->at.dir, 0);
    if (lock_target(a) != CODE_OK) return CODE_ERROR;
    if (!a->is_tree && begins_as_snapshot(a->lock, &error))
        return fail(CODE_ERROR, a->name,
                    "is an LMC file itself; apply deltas to what was restored from it, or see 'lmc "
                    "help deltas'");
    return CODE_OK;
}
