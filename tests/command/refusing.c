/* refusing.c - a file system by FUSE that shows a directory, and refuses calls as others do
 * SPDX-License-Identifier: MIT
 *
 *   refusing DIRECTORY RULES MOUNTPOINT [OPTION OF FUSE...]
 *
 * RULES is a file, read at each call, so that a test can change it: words such as "chmod=95", each
 * a call and the errno that it fails with. libfuse keeps a file that is removed while it is open as
 * .fuse_hidden..., and gives it the next such name if that is removed. With the word "nfs=1", this
 * fails with EBUSY instead, as for the names .nfs... of NFS's client.
 */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *root, *rules;

/* 0, or the negative errno of a rule. */
static int refuse(const char *call)
{
    char text[1024], *word, *rest = text;
    const int fd = open(rules, O_RDONLY);
    const ssize_t size = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    const size_t length = strlen(call);
    if (fd >= 0) close(fd);
    text[size > 0 ? size : 0] = 0;
    while ((word = strtok_r(rest, " \n", &rest)) != NULL)
        if (strncmp(word, call, length) == 0 && word[length] == '=')
            return -atoi(word + length + 1);
    return 0;
}

struct path {
    char text[PATH_MAX];
};

static const char *below(struct path *full, const char *path)
{
    snprintf(full->text, sizeof full->text, "%s%s", root, path);
    return full->text;
}

#define DONE(result) ((result) == 0 ? 0 : -errno)
#define BY_PATH(call, expression)                                                                  \
    struct path full;                                                                              \
    const int refused = refuse(call);                                                              \
    const char *const real = below(&full, path);                                                   \
    (void)real;                                                                                    \
    return refused ? refused : DONE(expression)

static int get_attributes(const char *path, struct stat *st, struct fuse_file_info *f)
{
    if (f) return DONE(fstat((int)f->fh, st));
    BY_PATH("stat", lstat(real, st));
}

static int change_mode(const char *path, mode_t mode, struct fuse_file_info *f)
{
    (void)f;
    BY_PATH("chmod", chmod(real, mode));
}

static int change_owner(const char *path, uid_t owner, gid_t group, struct fuse_file_info *f)
{
    (void)f;
    BY_PATH("chown", lchown(real, owner, group));
}

static int change_times(const char *path, const struct timespec t[2], struct fuse_file_info *f)
{
    (void)f;
    BY_PATH("utimens", utimensat(AT_FDCWD, real, t, AT_SYMLINK_NOFOLLOW));
}

static int change_size(const char *path, off_t size, struct fuse_file_info *f)
{
    if (f) return DONE(ftruncate((int)f->fh, size));
    BY_PATH("truncate", truncate(real, size));
}

static int make_directory(const char *path, mode_t mode) { BY_PATH("mkdir", mkdir(real, mode)); }
static int remove_directory(const char *path) { BY_PATH("rmdir", rmdir(real)); }
static int make_symlink(const char *target, const char *path)
{
    BY_PATH("symlink", symlink(target, real));
}

static int read_symlink(const char *path, char *target, size_t size)
{
    struct path full;
    const ssize_t n = readlink(below(&full, path), target, size - 1);
    if (n < 0) return -errno;
    target[n] = 0;
    return 0;
}

static int make_link(const char *from, const char *path)
{
    struct path old;
    BY_PATH("link", link(below(&old, from), real));
}

static int rename_file(const char *from, const char *path, unsigned flags)
{
    struct path old;
    const int error = flags ? refuse("rename2") : 0,
              is_hidden = strstr(from, "/.fuse_hidden") != NULL;
    if (error) return error;
    if (is_hidden && refuse("nfs")) return -EBUSY;
    BY_PATH("rename", renameat2(AT_FDCWD, below(&old, from), AT_FDCWD, real, flags));
}

static int remove_file(const char *path) { BY_PATH("unlink", unlink(real)); }

static int hold(struct fuse_file_info *f, int fd)
{
    if (fd < 0) return -errno;
    f->fh = (uint64_t)fd;
    return 0;
}

static int open_file(const char *path, struct fuse_file_info *f)
{
    struct path full;
    const int refused = refuse("open");
    return refused ? refused : hold(f, open(below(&full, path), f->flags & ~O_APPEND));
}

static int create_file(const char *path, mode_t mode, struct fuse_file_info *f)
{
    struct path full;
    const int refused = refuse("create");
    return refused ? refused : hold(f, open(below(&full, path), f->flags | O_CREAT, mode));
}

static int release_file(const char *path, struct fuse_file_info *f)
{
    (void)path;
    close((int)f->fh);
    return 0;
}

static int read_file(const char *path, char *data, size_t size, off_t at, struct fuse_file_info *f)
{
    const int refused = refuse("read");
    const ssize_t n = refused ? refused : pread((int)f->fh, data, size, at);
    (void)path;
    return n < 0 && !refused ? -errno : (int)n;
}

static int write_file(const char *path, const char *data, size_t size, off_t at,
                      struct fuse_file_info *f)
{
    const int refused = refuse("write");
    const ssize_t n = refused ? refused : pwrite((int)f->fh, data, size, at);
    (void)path;
    return n < 0 && !refused ? -errno : (int)n;
}

static int sync_file(const char *path, int only_data, struct fuse_file_info *f)
{
    (void)path;
    (void)only_data;
    (void)f;
    return refuse("fsync");
}

static int sync_directory(const char *path, int only_data, struct fuse_file_info *f)
{
    (void)path;
    (void)only_data;
    (void)f;
    return refuse("fsyncdir");
}

static int flock_file(const char *path, struct fuse_file_info *f, int operation)
{
    const int refused = refuse("flock");
    (void)path;
    return refused ? refused : DONE(flock((int)f->fh, operation));
}

static int lock_file(const char *path, struct fuse_file_info *f, int command, struct flock *lock)
{
    const int refused = refuse("lock");
    (void)path;
    (void)lock;
    (void)command;
    (void)f;
    return refused; /* one process at a time */
}

static int list_directory(const char *path, void *to, fuse_fill_dir_t fill, off_t at,
                          struct fuse_file_info *f, enum fuse_readdir_flags flags)
{
    struct path full;
    DIR *d = opendir(below(&full, path));
    struct dirent *entry;
    (void)at;
    (void)f;
    (void)flags;
    if (!d) return -errno;
    while ((entry = readdir(d)) != NULL)
        if (fill(to, entry->d_name, NULL, 0, (enum fuse_fill_dir_flags)0)) break;
    closedir(d);
    return 0;
}

static void *begin(struct fuse_conn_info *connection, struct fuse_config *c)
{
    (void)connection;
    c->use_ino = 1;
    c->entry_timeout = c->attr_timeout = c->negative_timeout = 0;
    return NULL;
}

static const struct fuse_operations operations = {
    .getattr = get_attributes,
    .readlink = read_symlink,
    .mkdir = make_directory,
    .unlink = remove_file,
    .rmdir = remove_directory,
    .symlink = make_symlink,
    .rename = rename_file,
    .link = make_link,
    .chmod = change_mode,
    .chown = change_owner,
    .truncate = change_size,
    .open = open_file,
    .read = read_file,
    .write = write_file,
    .release = release_file,
    .fsync = sync_file,
    .fsyncdir = sync_directory,
    .readdir = list_directory,
    .init = begin,
    .create = create_file,
    .utimens = change_times,
    .lock = lock_file,
    .flock = flock_file,
};

int main(int argc, char **argv)
{
    if (argc < 4) return 2;
    root = realpath(argv[1], NULL);
    rules = realpath(argv[2], NULL);
    if (!root || !rules) return 2;
    argv[2] = argv[0];
    umask(0);
    return fuse_main(argc - 2, argv + 2, &operations, NULL);
}
