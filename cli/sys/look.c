/* SPDX-License-Identifier: MIT */
#include "look.h"

#if defined(__linux__)
#include <sys/vfs.h>
#endif

#include "../../formats/sorted.h"
#include "tree.h"

#if defined(__linux__)
/* Linux refuses a lease for reading if the file is open for writing. NFS and SMB also refuse other
 * leases: there the answer is 0. */
static int is_open_for_writing(const char *path)
{
    struct statfs s;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return 0;
    const int is_refused = fcntl(fd, F_SETLEASE, F_RDLCK) != 0 && errno == EAGAIN;
    if (!is_refused) (void)fcntl(fd, F_SETLEASE, F_UNLCK);
    const uint32_t type = is_refused && fstatfs(fd, &s) == 0 ? (uint32_t)s.f_type : 0;
    close(fd);
    return is_refused && type != 0x6969 && type != 0xFF534D42 && type != 0xFE534D42;
}
#else
static int is_open_for_writing(const char *path)
{
    (void)path;
    return 0;
}
#endif

static void look_into(struct look *k, const char *root, const char *path)
{
    char *full = join_path(root, path);
    struct stat st, target;
    int is_there = lstat(full, &st) == 0, is_link = is_there && S_ISLNK(st.st_mode);
    if (is_link && stat(full, &target) == 0) st = target; /* else the link leads nowhere */
    if (is_there) {
        int64_t m = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
                c = (int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec;
        const uint64_t values[] = {(uint64_t)st.st_mode, (uint64_t)st.st_ino, (uint64_t)st.st_size,
                                   (uint64_t)m, (uint64_t)c};
        k->digest += hash_bytes(hash_bytes(FNV_START, path, strlen(path) + 1), values,
                                sizeof values); /* a sum: the order of files does not matter */
        k->newest = m > k->newest ? m : k->newest;
        k->newest = c > k->newest ? c : k->newest;
        k->n_files += S_ISREG(st.st_mode);
        k->is_written = k->is_written || (S_ISREG(st.st_mode) && is_open_for_writing(full));
    }
    if (!is_there) k->is_whole = 0;
    else if (S_ISDIR(st.st_mode) && !is_link) {
        struct listing names;
        if (list_names(&names, full) != 0) k->is_whole = 0;
        for (size_t i = 0; i < names.n; i++) {
            char *inner = join_path(path, names.entries[i].path);
            look_into(k, root, inner);
            free(inner);
        }
        free_listing(&names);
    }
    free(full);
}

struct look look_at(const char *path)
{
    struct look k = {0};
    k.is_whole = 1;
    k.newest = INT64_MIN;
    look_into(&k, path, "");
    return k;
}

int check_unchanged(const char *path, const struct look *before, const char *snapshot)
{
    const struct look k = look_at(path);
    if (!k.is_whole || k.digest != before->digest)
        return fail(CODE_ERROR, path,
                    "was changed meanwhile, and is not removed; its snapshot, as it was before, is "
                    "kept as %s",
                    snapshot);
    if (k.is_written)
        return fail(CODE_ERROR, path,
                    "is open for writing by another program, and is not removed; its snapshot is "
                    "kept as %s",
                    snapshot);
    return CODE_OK;
}
