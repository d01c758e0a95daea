/* SPDX-License-Identifier: MIT */
#include "links.h"

#include <stdlib.h>

#include "container_check.h"
#include "sorted.h"

#define MAX_TEXT_SIZE 65535u /* of Path and Target (L-2) */

/* -- one link -- */

/* Whether the path is relative and plain, as paths of files are (R4-23): no part of it is empty,
 * "." or "..". */
static int is_plain_path(const char *path)
{
    for (;; path++) {
        const size_t size = strcspn(path, "/");
        if (size == 0 || (size <= 2 && strspn(path, ".") >= size)) return 0;
        path += size;
        if (!*path) return 1;
    }
}

/* Takes the text at *at, up to its zero byte; NULL: there is none, or the text is not allowed. */
static const char *take_text(const char **at, const char *end)
{
    const char *text = *at;
    const char *zero = text < end ? (const char *)memchr(text, 0, (size_t)(end - text)) : NULL;
    if (!zero || zero == text || (size_t)(zero - text) > MAX_TEXT_SIZE) return NULL;
    *at = zero + 1;
    return text;
}

int next_link(struct link_value *value, struct link *link)
{
    if (value->at == value->end) return 0;
    const char type = *value->at++;
    const char *const path = take_text(&value->at, value->end);
    const char *const target = path ? take_text(&value->at, value->end) : NULL;
    if ((type != LINK_SYMBOLIC && type != LINK_HARD) || !target || !is_plain_path(path) ||
        (type == LINK_HARD && (!is_plain_path(target) || strcmp(path, target) == 0)) ||
        (value->last && strcmp(value->last, path) >= 0))
        return -1;
    link->type = (enum link_type)type;
    link->path = value->last = path;
    link->target = target;
    return 1;
}

/* -- links and files -- */

/* Compares a text with the first size bytes of a path. */
static int compare_start(const char *text, const char *path, size_t size)
{
    const int order = strncmp(text, path, size);
    return order ? order : text[size] != 0;
}

/* The link, or the file, whose path is the first size bytes of `path`; NULL: there is none. */
static const struct link *find_link(const struct link *links, size_t n, const char *path,
                                    size_t size)
{
    size_t low;
    FIND_FIRST(low, n, compare_start(links[low].path, path, size) < 0);
    return low < n && compare_start(links[low].path, path, size) == 0 ? &links[low] : NULL;
}

static const struct seen_file *find_file(const struct seen_file *files, size_t n, const char *path,
                                         size_t size)
{
    size_t low;
    FIND_FIRST(low, n, compare_start(files[low].path, path, size) < 0);
    return low < n && compare_start(files[low].path, path, size) == 0 ? &files[low] : NULL;
}

struct match {
    const struct link *links;
    const struct seen_file *files;
    size_t n_links, n_files;
};

/* Checks the directories on the way to path. -1: such a directory is a symbolic link; or a file,
 * if path is a link. */
static int check_way(const struct match *m, const char *path, int is_link)
{
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        const size_t size = (size_t)(slash - path);
        const struct link *const above = find_link(m->links, m->n_links, path, size);
        const struct seen_file *const f =
            is_link ? find_file(m->files, m->n_files, path, size) : NULL;
        if ((above && above->type == LINK_SYMBOLIC) || (f && !f->is_directory)) return -1;
    }
    return 0;
}

int can_be_one(const struct link *link, const struct seen_file *files, size_t n)
{
    const struct seen_file *const a = find_file(files, n, link->path, strlen(link->path));
    const struct seen_file *const b = find_file(files, n, link->target, strlen(link->target));
    return a && b && !a->is_directory && !b->is_directory && a->size == b->size &&
           (a->is_unread || b->is_unread || a->crc == b->crc);
}

static int match_link(const struct match *m, const struct link *link)
{
    if (link->type == LINK_HARD) return can_be_one(link, m->files, m->n_files) ? 0 : -1;
    if (find_file(m->files, m->n_files, link->path, strlen(link->path))) return -1;
    return check_way(m, link->path, 1);
}

int match_links(const struct link *links, size_t n, struct seen_file *files, size_t n_files)
{
    const struct match m = {links, files, n, n_files};
    int error = 0;
    if (n == 0) return 0;
    if (n_files) qsort(files, n_files, sizeof *files, compare_texts);
    for (size_t i = 0; i < n_files && !error; i++) error = check_way(&m, files[i].path, 0);
    for (size_t i = 0; i < n && !error; i++) error = match_link(&m, &links[i]);
    return error;
}

/* All paths with one beginning are side by side. So a directory is new if the path before has
 * another beginning. */
uint64_t count_entries(struct seen_file *files, size_t n)
{
    const char *last = "";
    uint64_t count = 0;
    if (n) qsort(files, n, sizeof *files, compare_texts);
    for (size_t i = 0; i < n; i++) {
        const char *const path = files[i].path;
        size_t same = 0;
        while (path[same] && path[same] == last[same]) same++;
        count += *path != 0; /* "" is the root */
        for (const char *slash = strchr(path + same, '/'); slash; slash = strchr(slash + 1, '/'))
            count += !find_file(files, n, path, (size_t)(slash - path));
        last = path;
    }
    return count;
}

/* -- the links of a snapshot with an index -- */

static enum container_result list_links(struct link_value *value, struct link **links, size_t *n)
{
    struct link link;
    size_t room = 0;
    int got;
    while ((got = next_link(value, &link)) > 0)
        TRY(container_append(links, n, &room, &link, 1, sizeof link));
    return got == 0 ? CONTAINER_OK : CONTAINER_BAD;
}

static enum container_result list_files(const lmc_reader *reader, struct seen_file **files,
                                        size_t *n)
{
    size_t room = 0;
    const lmc_file *file;
    for (size_t i = 0; (file = lmc_reader_get_file(reader, i)) != NULL; i++) {
        const struct seen_file seen = {file->path, file->kind == LMC_FILE_DIRECTORY, 0, file->size,
                                       file->crc};
        TRY(container_append(files, n, &room, &seen, 1, sizeof seen));
    }
    return CONTAINER_OK;
}

enum container_result find_links(const lmc_reader *reader, struct link **links, size_t *n)
{
    const lmc_file *const first = lmc_reader_get_file(reader, 0);
    struct seen_file *files = NULL;
    struct link_value v = {NULL, NULL, NULL};
    enum container_result result = CONTAINER_OK;
    const void *value;
    size_t size, n_files = 0;
    *links = NULL;
    *n = 0;
    if (lmc_reader_find_metadata(reader, LINKS_KEY, &value, &size) != LMC_OK || size == 0 ||
        !first || (!*first->path && first->kind == LMC_FILE_REGULAR)) /* L-8 */
        return CONTAINER_OK;
    v.at = (const char *)value;
    v.end = v.at + size;
    result = list_links(&v, links, n);
    if (result == CONTAINER_OK) result = list_files(reader, &files, &n_files);
    if (result == CONTAINER_OK && match_links(*links, *n, files, n_files) != 0)
        result = CONTAINER_BAD;
    free(files);
    if (result == CONTAINER_OK) return result;
    free(*links);
    *links = NULL;
    *n = 0;
    return result;
}
