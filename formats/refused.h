/* refused.h - what a file system cannot do, and what is an error
 * SPDX-License-Identifier: MIT
 *
 * File systems that are not a local disk (FUSE, SMB, NFS, FAT, overlays, sandboxes) lack some
 * calls, and say so by different errors. Such an answer is not a failure: the file is written, but
 * without that mode, owner or time. Every other error (EIO, ENOSPC, EDQUOT, ...) is a failure.
 */
#pragma once

enum file_call {
    CALL_SYNC,           /* fsync() of a file, and of a whole file system */
    CALL_SYNC_DIRECTORY, /* fsync() of a directory, or opening it for that */
    CALL_MODE,
    CALL_OWNER,
    CALL_TIME,
    CALL_LOCK,
    CALL_LINK,    /* a hard link */
    CALL_SYMLINK, /* a symbolic link */
    CALL_RENAME,  /* renaming with a flag, which is tried before simpler calls */
    CALL_COUNT
};

/* Whether the error of such a call says that the file system lacks it. */
int is_refused(enum file_call call, int error);

/* The call by its name: "sync", "sync_directory", "mode", ... CALL_COUNT: there is none. */
enum file_call find_file_call(const char *name);
