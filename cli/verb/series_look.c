/* SPDX-License-Identifier: MIT */
#include "series_look.h"

#include <dirent.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../format/hex.h"
#include "../sys/names.h"
#include "../sys/tree.h"

static void look_into(struct look *k, const char *root, const char *path)
{
    char *full = join_path(root, path);
    struct stat st;
    struct dirent *entry;
    DIR *directory;
    int is_there = lstat(full, &st) == 0, is_link = is_there && S_ISLNK(st.st_mode), error = 0;
    if (is_link) is_there = stat(full, &st) == 0;
    if (is_there) {
        int64_t m = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
                c = (int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec;
        uint64_t values[5];
        values[0] = (uint64_t)st.st_mode;
        values[1] = (uint64_t)st.st_ino;
        values[2] = (uint64_t)st.st_size;
        values[3] = (uint64_t)m;
        values[4] = (uint64_t)c;
        k->digest += hash_bytes(hash_bytes(UINT64_C(0xCBF29CE484222325), path, strlen(path) + 1),
                                values, sizeof values); /* whatever the order */
        k->newest = m > k->newest ? m : k->newest;
        k->newest = c > k->newest ? c : k->newest;
        k->n_files += S_ISREG(st.st_mode);
    }
    directory = is_there && S_ISDIR(st.st_mode) && !is_link ? opendir(full) : NULL;
    if (!is_there || (S_ISDIR(st.st_mode) && !is_link && !directory)) k->is_whole = 0;
    while (directory && (entry = next_entry(directory, &error)) != NULL) {
        char *inner = join_path(path, entry->d_name);
        look_into(k, root, inner);
        free(inner);
    }
    if (error) k->is_whole = 0;
    if (directory) closedir(directory);
    free(full);
}

struct look look_at(const char *path)
{
    struct look k;
    memset(&k, 0, sizeof k);
    k.is_whole = 1;
    k.newest = INT64_MIN;
    look_into(&k, path, "");
    return k;
}
