/* SPDX-License-Identifier: MIT */
#include "links.h"

void add_link_record(struct links *l, enum link_type type, const char *path, const char *target)
{
    struct link *link = (struct link *)append(&l->list, &l->n, &l->room, sizeof *l->list);
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

#define MAX_TEXT_SIZE 65535u /* of Path and Target (L-2) */

/* Whether the path is relative and plain, as paths of files are (R4-23). */
static int is_plain_path(const char *path)
{
    char *plain = copy_text(path);
    const int result = make_plain(plain) && *plain && strcmp(plain, path) == 0;
    free(plain);
    return result;
}

/* Takes the text at *at, up to its zero byte; NULL: there is none, or the text is not allowed. */
static const char *take_text(const char **at, const char *end)
{
    const char *text = *at, *zero;
    zero = (const char *)memchr(text, 0, (size_t)(end - text));
    if (!zero || zero == text || (size_t)(zero - text) > MAX_TEXT_SIZE) return NULL;
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
            (type == LINK_HARD && (!is_plain_path(target) || strcmp(path, target) == 0)) ||
            (last && strcmp(last, path) >= 0)) { /* L-1 to L-5 */
            free_links(l);
            return -1;
        }
        add_link_record(l, (enum link_type)type, path, target);
        last = path;
    }
    return 0;
}

void add_seen_file(struct seen_files *seen, const lmc_file *file)
{
    struct seen_file *f =
        (struct seen_file *)append(&seen->list, &seen->n, &seen->room, sizeof *seen->list);
    f->path = copy_text(file->path);
    f->is_directory = file->kind == LMC_FILE_DIRECTORY;
    f->size = file->size;
    f->crc = file->crc;
}

void free_seen_files(struct seen_files *seen)
{
    for (size_t i = 0; i < seen->n; i++) free(seen->list[i].path);
    free(seen->list);
    memset(seen, 0, sizeof *seen);
}

static const struct seen_file *find_seen(const struct seen_files *seen, const char *path)
{
    return seen->n ? (const struct seen_file *)bsearch(&path, seen->list, seen->n,
                                                       sizeof *seen->list, compare_texts)
                   : NULL;
}

/* Checks the directories on the way to path. -1: such a directory is a link, or, if path is a
 * symbolic link, a file. */
static int check_way(const struct links *l, const struct seen_files *seen, const char *path,
                     int is_link)
{
    char *way = copy_text(path);
    int error = 0;
    for (char *slash = strchr(way, '/'); slash && !error; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        const struct link *above = find_link_record(l, way);
        if (above && above->type == LINK_SYMBOLIC) error = -1;
        if (is_link) {
            const struct seen_file *f = find_seen(seen, way);
            if (f && !f->is_directory) error = -1;
        }
        *slash = '/';
    }
    free(way);
    return error;
}

/* Checks the rules L-5 to L-7. Files of a hard link are compared by size and CRC only. */
int match_links(const struct links *l, struct seen_files *seen)
{
    int error = 0;
    if (l->n == 0) return 0;
    if (seen->n) qsort(seen->list, seen->n, sizeof *seen->list, compare_texts);
    for (size_t i = 0; i < seen->n && !error; i++)
        error = check_way(l, seen, seen->list[i].path, 0);
    for (size_t i = 0; i < l->n && !error; i++) {
        const struct link *link = &l->list[i];
        const struct seen_file *a = find_seen(seen, link->path), *b;
        if (link->type == LINK_SYMBOLIC) {
            error = a ? -1 : check_way(l, seen, link->path, 1);
            continue;
        }
        b = find_seen(seen, link->target);
        if (!a || !b || a->is_directory || b->is_directory || a->size != b->size ||
            a->crc != b->crc)
            error = -1;
    }
    return error;
}

int read_links(struct links *l, const lmc_reader *reader)
{
    struct seen_files seen = {0};
    const lmc_file *file;
    const void *value;
    size_t size;
    memset(l, 0, sizeof *l);
    if (lmc_reader_find_metadata(reader, LINKS_KEY, &value, &size) != LMC_OK) return 0;
    int error = decode_links(l, value, size);
    for (size_t i = 0; l->n && (file = lmc_reader_get_file(reader, i)) != NULL; i++)
        add_seen_file(&seen, file);
    if (!error) error = match_links(l, &seen);
    if (error) free_links(l);
    free_seen_files(&seen);
    return error;
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
    for (size_t i = 0; i < l->n; i++) {
        free(l->list[i].path);
        free(l->list[i].target);
    }
    free(l->list);
    memset(l, 0, sizeof *l);
}
