/* SPDX-License-Identifier: MIT */
#include "refused.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define SYNC (1u << CALL_SYNC)
#define SYNC_DIRECTORY (1u << CALL_SYNC_DIRECTORY)
#define MODE (1u << CALL_MODE)
#define OWNER (1u << CALL_OWNER)
#define TIME (1u << CALL_TIME)
#define LOCK (1u << CALL_LOCK)
#define LINK (1u << CALL_LINK)
#define SYMLINK (1u << CALL_SYMLINK)
#define RENAME (1u << CALL_RENAME)

#define ALL (SYNC | SYNC_DIRECTORY | MODE | OWNER | TIME | LOCK | LINK | SYMLINK | RENAME)

/* Not here, though they were seen: EROFS of a file, as a disk that has failed is mounted read-only;
 * EACCES of a lock, which somebody else may hold. Some errors are missing in some C libraries. */
static const struct {
    int error;
    unsigned calls;
} table[] = {
    /* The call is not implemented: FUSE, gVisor, emulators. */
    {ENOSYS, ALL},
/* Not by this file system: SMB, WebDAV, GVfs, 9p. */
#ifdef ENOTSUP
    {ENOTSUP, ALL},
#endif
#ifdef EOPNOTSUPP
    {EOPNOTSUPP, ALL},
#endif
    /* Not for this kind of file, or not with this argument: fsync() of what has no disk, an owner
     * whom a user namespace does not know, a time before 1970 or 1980. */
    {EINVAL, ALL},
    /* Not for this user, though the file is his: FAT, WSL's drives (mode, links), NFS for root
     * (owner), filters of system calls (sync). */
    {EPERM, ALL & ~LOCK},
    /* The same by SMB, and by NFS for root. A directory that may be searched, but not read, cannot
     * be opened to sync it. */
    {EACCES, SYNC_DIRECTORY | MODE | OWNER | TIME | LINK},
    /* SMB has no directories that can be synced; AIX syncs only what is open for writing; a mount
     * may be read-only by the time that the name is there. */
    {EBADF, SYNC_DIRECTORY},
    {EISDIR, SYNC_DIRECTORY},
    {ENOENT, SYNC_DIRECTORY},
    {EROFS, SYNC_DIRECTORY},
    /* No lock manager, or it cannot be reached: NFS, Lustre. flock() on NFS needs a file that is
     * open for writing. */
    {ENOLCK, LOCK},
    {EBADF, LOCK},
    {EIO, LOCK},
    /* Both names must be on one file system, and a file can have only so many. */
    {EXDEV, LINK},
    {EMLINK, LINK},
};

int is_refused(enum file_call call, int error)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].error == error && (table[i].calls & 1u << call)) return 1;
    return 0;
}

enum file_call find_file_call(const char *name)
{
    static const char *const names[CALL_COUNT] = {
        "sync", "sync_directory", "mode", "owner", "time", "lock", "link", "symlink", "rename"};
    int call = 0;
    while (call < CALL_COUNT && strcmp(name, names[call]) != 0) call++;
    return (enum file_call)call;
}
