/* SPDX-License-Identifier: MIT */
#include "side_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/report.h"

#define SIDE_SUFFIX ".lmc-apply"

char *name_journal(const char *path)
{
    char *directory = directory_of(path), *name, *full;
    const char *last = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    size_t size = strlen(last) + sizeof "." SIDE_SUFFIX;
    name = (char *)resize(NULL, size, 1);
    snprintf(name, size, ".%s" SIDE_SUFFIX, last);
    full = join_path(directory, name);
    free(name);
    free(directory);
    return full;
}

int is_side_name(const char *path)
{
    const char *last = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    size_t size = strlen(last), suffix = sizeof SIDE_SUFFIX - 1;
    return *last == '.' && size > suffix && strcmp(last + size - suffix, SIDE_SUFFIX) == 0;
}

int check_finished(const char *path, enum exit_code code)
{
    char *full = realpath(path, NULL), *side;
    struct stat st;
    int result = CODE_OK;
    while (full && *full && result == CODE_OK) {
        side = name_journal(full);
        if (lstat(side, &st) == 0)
            result = fail(code, path,
                          "is left half applied, or lmc apply is at work: finish that first; or, "
                          "if it was replaced by a whole one since, remove %.300s",
                          side);
        free(side);
        *strrchr(full, '/') = 0;
    }
    free(full);
    return result;
}
