/* SPDX-License-Identifier: MIT */
#include "links.h"

#include <stdlib.h>
#include <string.h>

#include "../sys/memory.h"

void add_link_record(struct links *l, enum link_type type, const char *path, const char *target)
{
    struct link *link;
    if (l->n == l->room) {
        l->room = l->room * 2 + 16;
        l->list = (struct link *)resize(l->list, l->room, sizeof *l->list);
    }
    link = &l->list[l->n++];
    link->type = type;
    link->path = copy_string(path, strlen(path));
    link->target = copy_string(target, strlen(target));
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

/* As the paths of files are (spec 5.1): relative and plain. */
static int is_plain_path(const char *path)
{
    if (strchr(path, '\\') || strlen(path) > 65535) return 0;
    for (const char *part = path;;) {
        const size_t size = strcspn(part, "/");
        if (size == 0 || (size == 1 && part[0] == '.') ||
            (size == 2 && part[0] == '.' && part[1] == '.'))
            return 0;
        if (!part[size]) return 1;
        part += size + 1;
    }
}

/* The text at *at, which ends with a zero byte, and moves on; NULL: it does not. */
static const char *take_text(const char **at, const char *end)
{
    const char *text = *at, *zero;
    zero = (const char *)memchr(text, 0, (size_t)(end - text));
    if (!zero || zero == text) return NULL;
    *at = zero + 1;
    return text;
}

int decode_links(struct links *l, const void *value, size_t size)
{
    const char *at = (const char *)value, *const end = at + size, *last = NULL;
    memset(l, 0, sizeof *l);
    while (at < end) {
        const char type = *at++;
        const char *path = take_text(&at, end), *target = path ? take_text(&at, end) : NULL;
        if ((type != LINK_SYMBOLIC && type != LINK_HARD) || !target || !is_plain_path(path) ||
            (type == LINK_HARD && !is_plain_path(target)) || (last && strcmp(last, path) >= 0)) {
            free_links(l);
            return -1;
        }
        add_link_record(l, (enum link_type)type, path, target);
        last = path;
    }
    return 0;
}

int read_links(struct links *l, const lmc_reader *reader)
{
    const void *value;
    size_t size;
    memset(l, 0, sizeof *l);
    if (lmc_reader_find_metadata(reader, LINKS_KEY, &value, &size) != LMC_OK) return 0;
    return decode_links(l, value, size);
}

const struct link *find_link_record(const struct links *l, const char *path)
{
    size_t low = 0, high = l->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = strcmp(l->list[middle].path, path);
        if (order == 0) return &l->list[middle];
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

void free_links(struct links *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->list[i].path);
        free(l->list[i].target);
    }
    free(l->list);
    memset(l, 0, sizeof *l);
}
