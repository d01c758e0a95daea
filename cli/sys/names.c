/* names.c - names of files: parts, suffixes, order, names for temporary files (platform.h)
 * SPDX-License-Identifier: MIT */
#include "platform.h"

#include <limits.h>
#include <time.h>

char *try_join_path(const char *directory, const char *name)
{
    size_t size = strlen(directory), length = strlen(name);
    char *path = (char *)malloc(size + length + 2);
    if (!path) return NULL;
    memcpy(path, directory, size);
    if (length) {
        if (size && path[size - 1] != '/') path[size++] = '/';
        memcpy(path + size, name, length);
        size += length;
    }
    path[size] = 0;
    return path;
}

char *join_path(const char *directory, const char *name)
{
    return (char *)check_memory(try_join_path(directory, name));
}

char *name_side_file(const char *path, const char *suffix)
{
    const char *base = base_name(path);
    char *directory = directory_of(path), *name = format_text(".%s%s", base, suffix), *full;
    if (strlen(name) > NAME_MAX) {
        free(name);
        name = format_text(".%016llx%s",
                           (unsigned long long)hash_bytes(FNV_START, base, strlen(base)), suffix);
    }
    full = join_path(directory, name);
    free(name);
    free(directory);
    return full;
}

int is_suffix_of(const char *suffix, const char *name)
{
    const size_t size = strlen(name), length = strlen(suffix);
    return size > length && strcmp(name + size - length, suffix) == 0;
}

int has_suffix(const char *path) { return is_suffix_of(SUFFIX, base_name(path)); }

int is_dash(const char *path) { return strcmp(path, "-") == 0; }

int is_dot(const char *name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

char *directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash) return copy_string(".", 1);
    return copy_string(path, slash == path ? 1 : (size_t)(slash - path));
}

static int compare_names(const char *a, const char *b)
{
    const char *x = a, *y = b;
    while (*x && *y) {
        if (is_digit(*x) && is_digit(*y)) {
            x += strspn(x, "0");
            y += strspn(y, "0");
            size_t n = strspn(x, DIGITS);
            size_t m = strspn(y, DIGITS);
            int order = n != m ? (n < m ? -1 : 1) : memcmp(x, y, n);
            if (order) return order;
            x += n;
            y += m;
        } else if (*x != *y) {
            return (unsigned char)*x < (unsigned char)*y ? -1 : 1;
        } else {
            x++;
            y++;
        }
    }
    return *x ? 1 : *y ? -1 : strcmp(a, b);
}

int compare_numbered(const void *a, const void *b)
{
    return compare_names(*(const char *const *)a, *(const char *const *)b);
}

int compare_paths(const char *a, const char *b)
{
    for (; *a && *a == *b; a++) b++;
    if (*a == *b) return 0;
    if (!*a || !*b) return *a ? 1 : -1;
    if (*a == '/' || *b == '/') return *a == '/' ? -1 : 1;
    return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
}

int is_at_or_below(const char *path, const char *directory)
{
    const size_t size = strlen(directory);
    return strncmp(path, directory, size) == 0 &&
           (path[size] == 0 || path[size] == '/' || strcmp(directory, "/") == 0);
}

char *copy_without_slashes(const char *path)
{
    size_t size = strlen(path);
    while (size > 1 && path[size - 1] == '/') size--;
    return copy_string(path, size);
}

const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

int parse_count(uint64_t *count, const char *text, uint64_t least)
{
    char *end;
    errno = 0;
    *count = is_digit(*text) ? strtoull(text, &end, 10) : 0;
    return is_digit(*text) && !*end && !errno && *count >= least && *count <= INT64_MAX;
}

int is_near(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    if (*a && *b && strcmp(a + 1, b + 1) == 0) return 1;
    if (*a && strcmp(a + 1, b) == 0) return 1;
    if (*b && strcmp(a, b + 1) == 0) return 1;
    return *a && *b && a[0] == b[1] && a[1] == b[0] && strcmp(a + 2, b + 2) == 0;
}

/* -- temporary names -- */

static const char characters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

void draw_temporary_name(char name[12])
{
    static uint64_t number;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    const uint64_t seed[] = {(uint64_t)t.tv_sec, (uint64_t)t.tv_nsec, (uint64_t)getpid(), number++};
    uint64_t hash = hash_bytes(FNV_START, seed, sizeof seed);
    memcpy(name, ".lmc-XXXXXX", 12);
    for (char *x = name + 5; *x; x++, hash /= sizeof characters - 1)
        *x = characters[hash % (sizeof characters - 1)];
}

int is_temporary_name(const char *path)
{
    for (;; path++) {
        if (strncmp(path, ".lmc-", 5) == 0 && strcspn(path, "/") == 11 &&
            strspn(path + 5, characters) == 6)
            return 1;
        path = strchr(path, '/');
        if (!path) return 0;
    }
}
