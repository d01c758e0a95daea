/* SPDX-License-Identifier: MIT */
#include "links.h"

static void free_link(struct link *link)
{
    free((char *)link->path);
    free((char *)link->target);
}

void add_link_record(struct links *l, enum link_type type, const char *path, const char *target)
{
    struct link *link = (struct link *)append(&l->list, &l->n, &l->cap, sizeof *l->list);
    link->type = type;
    link->path = copy_text(path);
    link->target = copy_text(target);
}

void *encode_links(const struct links *l, size_t *size)
{
    char *bytes, *at;
    *size = 0;
    for (size_t i = 0; i < l->n; i++)
        *size += strlen(l->list[i].path) + strlen(l->list[i].target) + 3;
    bytes = at = (char *)resize(NULL, *size + 1, 1);
    for (size_t i = 0; i < l->n; i++) {
        const char *const texts[] = {l->list[i].path, l->list[i].target};
        *at++ = (char)l->list[i].type;
        for (size_t k = 0; k < 2; k++) {
            const size_t length = strlen(texts[k]) + 1;
            memcpy(at, texts[k], length);
            at += length;
        }
    }
    return bytes;
}

int decode_links(struct links *l, const void *value, size_t size)
{
    struct link_value v = {(const char *)value, (const char *)value + size, NULL};
    struct link link;
    int got;
    memset(l, 0, sizeof *l);
    while ((got = next_link(&v, &link)) > 0) add_link_record(l, link.type, link.path, link.target);
    if (got < 0) free_links(l);
    return got;
}

size_t drop_false_links(struct links *l, const struct seen_file *files, size_t n, char **first)
{
    size_t n_kept = 0, n_all = l->n;
    *first = NULL;
    for (size_t i = 0; i < n_all; i++) {
        struct link *const link = &l->list[i];
        if (link->type == LINK_SYMBOLIC || can_be_one(link, files, n)) {
            l->list[n_kept++] = *link;
            continue;
        }
        if (!*first) *first = copy_text(link->path);
        free_link(link);
    }
    l->n = n_kept;
    return n_all - n_kept;
}

void add_seen_file(struct seen_files *seen, const lmc_file *file)
{
    struct seen_file *f =
        (struct seen_file *)append(&seen->list, &seen->n, &seen->cap, sizeof *seen->list);
    f->path = copy_text(file->path);
    f->is_directory = file->kind == LMC_FILE_DIRECTORY;
    f->size = file->size;
    f->crc = file->crc;
}

void free_seen_files(struct seen_files *seen)
{
    for (size_t i = 0; i < seen->n; i++) free((char *)seen->list[i].path);
    free(seen->list);
    memset(seen, 0, sizeof *seen);
}

int read_links(struct links *l, const lmc_reader *reader)
{
    struct link *list;
    size_t n;
    const enum container_result result = find_links(reader, &list, &n);
    memset(l, 0, sizeof *l);
    if (result == CONTAINER_MEMORY) check_memory(NULL);
    for (size_t i = 0; i < n; i++) add_link_record(l, list[i].type, list[i].path, list[i].target);
    free(list);
    return result == CONTAINER_OK ? 0 : -1;
}

int fail_bad_links(const char *name)
{
    return fail(CODE_CORRUPT, name,
                "has a list of links ('%s') that breaks the rules of the format, so it is damaged "
                "or forged; 'lmc salvage' restores the files without it",
                LINKS_KEY);
}

const struct link *find_link_record(const struct links *l, const char *path)
{
    return l->n ? (const struct link *)bsearch(&path, l->list, l->n, sizeof *l->list, compare_texts)
                : NULL;
}

/* -- where links lead -- */

int make_plain(char *path)
{
    char *to = path;
    for (const char *part = path; part;) {
        const size_t size = strcspn(part, "/");
        const char *next = part[size] ? part + size + 1 : NULL;
        if (size == 2 && part[0] == '.' && part[1] == '.') {
            if (to == path) return 0;
            for (to--; to > path && to[-1] != '/';) to--;
        } else if (size && !(size == 1 && part[0] == '.')) {
            memmove(to, part, size);
            to += size;
            *to++ = '/';
        }
        part = next;
    }
    if (to > path) to--;
    *to = 0;
    return 1;
}

/* The link at the path or at a directory above it; NULL: none. *size: length of the link's path. */
static const struct link *find_link_on(const struct links *links, char *path, size_t *size)
{
    for (*size = strcspn(path, "/");; *size += 1 + strcspn(path + *size + 1, "/")) {
        const char end = path[*size];
        path[*size] = 0;
        const struct link *l = find_link_record(links, path);
        path[*size] = end;
        if (l && l->type == LINK_SYMBOLIC) return l;
        if (!end) return NULL;
    }
}

/* The path after following one link; NULL: the link leads out of the snapshot. To be freed. */
static char *take_link(const struct link *l, const char *rest)
{
    char *target;
    if (*l->target == '/') return NULL;
    char *directory = strchr(l->path, '/') ? directory_of(l->path) : copy_text("");
    target = *directory ? join_path(directory, l->target) : copy_text(l->target);
    char *to = *rest ? join_path(target, rest + 1) : copy_text(target);
    free(directory);
    free(target);
    if (make_plain(to)) return to;
    free(to);
    return NULL;
}

char *resolve_links(const struct links *links, const char *path, const struct link **first,
                    unsigned char *is_taken)
{
    char *at = copy_text(path);
    *first = NULL;
    for (int n = 0; at && n < 40; n++) {
        size_t size;
        const struct link *l = make_plain(at) && *at ? find_link_on(links, at, &size) : NULL;
        if (!l) break;
        if (is_taken) is_taken[l - links->list] = 1;
        if (!*first) *first = l;
        char *to = take_link(l, at + size);
        free(at);
        at = to;
    }
    return at;
}

void free_links(struct links *l)
{
    for (size_t i = 0; i < l->n; i++) free_link(&l->list[i]);
    free(l->list);
    memset(l, 0, sizeof *l);
}
