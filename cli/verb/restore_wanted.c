/* SPDX-License-Identifier: MIT */
#include "restore_wanted.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/search.h"
#include "../../formats/pattern.h"

/* -- patterns -- */

/* A path, a pattern ('*' matches '/', too), or a directory above it. */
static int matches(const char *pattern, const char *path)
{
    size_t size;
    while (strncmp(pattern, "./", 2) == 0) pattern += 2;
    size = strlen(pattern);
    while (size > 1 && pattern[size - 1] == '/') size--;
    if (strncmp(pattern, path, size) == 0 && (path[size] == 0 || path[size] == '/')) return 1;
    return match_pattern(pattern, strlen(pattern), NULL, path);
}

int matches_any(struct wanted *w, const char *path)
{
    int result = 0;
    for (size_t i = 0; i < w->n; i++)
        if (matches(w->patterns[i], path)) result = w->is_used[i] = 1;
    return result;
}

/* -- what is there -- */

/* By components: what is below a directory comes right behind it. */
static int compare_paths(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    for (; *x && *x == *y; x++) y++;
    if (*x == '/' || *y == '/') return *x == '/' ? *y ? -1 : 1 : *x ? 1 : -1;
    return (unsigned char)*x<(unsigned char)*y ? -1 : (unsigned char)*x>(unsigned char) * y;
}

const char *next_file(const struct wanted *w, const char *path, size_t *at)
{
    const size_t size = strlen(path);
    const char *file;
    if (*at == 0) {
        FIND_FIRST(*at, w->n_files, compare_paths(&w->files[*at], &path) < 0);
        ++*at;
    }
    file = *at <= w->n_files ? w->files[*at - 1] : NULL;
    if (!file || strncmp(file, path, size) != 0 || (size && file[size] && file[size] != '/'))
        return NULL;
    ++*at;
    return file;
}

/* A file or directory, or what is only the parent of some. */
static int is_there(const struct wanted *w, const char *path)
{
    size_t at = 0;
    return *path == 0 || next_file(w, path, &at);
}

static int is_file(const struct wanted *w, const char *path)
{
    size_t at = 0;
    const char *first = next_file(w, path, &at);
    return first && strcmp(first, path) == 0 && !next_file(w, path, &at);
}

/* -- links -- */

static void add_led(struct wanted *w, const char *real, const char *shown)
{
    w->list = (struct led *)grow(w->list, w->n_led, &w->room, sizeof *w->list);
    w->list[w->n_led].real = copy_string(real, strlen(real));
    w->list[w->n_led++].shown = copy_string(shown, strlen(shown));
}

/* What was found by its name and by a link counts twice, until the list is sorted; whoever restores
 * it counts exactly. */
#define FOUND_TWICE 65536u

/* Follows the links on the path, all of which are wanted, to what is there: 1; 0: there is no link
 * on it, or it leads to nothing that the snapshot holds. shown: what a file there is restored as;
 * NULL: as is wanted of all, be it a file or a directory. */
static int follow(struct wanted *w, const char *path, const char *shown)
{
    const struct link *first;
    char *at;
    int result = 0;
    if ((uint64_t)w->n_followed + w->n_lost >= w->most) w->is_too_many = 1;
    if (w->is_too_many) return 0;
    at = resolve_links(w->links, path, &first, w->is_taken);
    if (first && at && (shown ? is_file(w, at) : is_there(w, at))) {
        char *plain = copy_string(path, strlen(path)); /* the user's may be "./latest/" */
        (void)make_plain(plain);
        add_led(w, at, shown ? shown : w->is_dereferenced ? plain : at);
        free(plain);
        if (w->n_followed++ == 0) w->followed = first;
        result = 1;
    } else if (first && w->n_lost++ == 0) w->lost = first;
    free(at);
    return result;
}

static int compare_led(const void *a, const void *b)
{
    const struct led *x = (const struct led *)a, *y = (const struct led *)b;
    const int order = strcmp(x->real, y->real);
    return order ? order : strcmp(x->shown, y->shown);
}

/* Without those that are there twice. */
static void sort_led(struct wanted *w)
{
    size_t n = 0;
    if (w->n_led) qsort(w->list, w->n_led, sizeof *w->list, compare_led);
    for (size_t i = 0; i < w->n_led; i++)
        if (n && compare_led(&w->list[n - 1], &w->list[i]) == 0) {
            free(w->list[i].real);
            free(w->list[i].shown);
        } else w->list[n++] = w->list[i];
    w->n_led = n;
}

/* Links below what a link leads to are wanted with it. In the place of links only files are: what
 * a directory holds may lead back to it. */
static void follow_below(struct wanted *w, const char *directory, const char *shown)
{
    const size_t size = strlen(directory);
    size_t i;
    FIND_FIRST(i, w->links->n, strcmp(w->links->list[i].path, directory) < 0);
    for (; i < w->links->n && !w->is_too_many &&
           strncmp(w->links->list[i].path, directory, size) == 0;
         i++) {
        const struct link *l = &w->links->list[i];
        char *path;
        if (l->type != LINK_SYMBOLIC || (size && l->path[size] != '/')) continue;
        if (!w->is_dereferenced && !w->is_taken[i]) (void)follow(w, l->path, NULL);
        if (!w->is_dereferenced) continue;
        path = join_path(shown, l->path + size + (size != 0));
        (void)follow(w, l->path, path);
        free(path);
    }
}

void find_wanted(struct wanted *w, char *const *patterns, size_t n, const struct links *links,
                 const lmc_reader *reader, int is_dereferenced, uint64_t most)
{
    lmc_snapshot_info info;
    memset(w, 0, sizeof *w);
    w->patterns = patterns;
    w->n = n;
    w->links = links;
    w->is_dereferenced = is_dereferenced;
    w->most = most < UINT64_MAX / 2 ? most + FOUND_TWICE : UINT64_MAX;
    w->is_used = (unsigned char *)resize(NULL, n + 1, 1);
    memset(w->is_used, 0, n + 1);
    w->is_taken = (unsigned char *)resize(NULL, links->n + 1, 1);
    memset(w->is_taken, 0, links->n + 1);
    if (links->n == 0 || lmc_reader_get_info(reader, &info) != LMC_OK) return;
    w->n_files = info.n_files;
    w->files = (const char **)resize(NULL, w->n_files + 1, sizeof *w->files);
    for (size_t i = 0; i < w->n_files; i++) w->files[i] = lmc_reader_get_file(reader, i)->path;
    qsort((void *)w->files, w->n_files, sizeof *w->files, compare_paths);
    for (size_t i = 0; i < n; i++) /* "latest/config.json", where latest is a link */
        if (follow(w, patterns[i], NULL)) w->is_used[i] = 1;
    w->named_lost = w->lost;
    for (size_t i = 0; i < links->n; i++)
        if (links->list[i].type == LINK_SYMBOLIC && matches_any(w, links->list[i].path)) {
            if (!w->is_taken[i]) (void)follow(w, links->list[i].path, NULL);
            w->is_taken[i] = 1;
        }
    n = w->n_led; /* in the place of links, no further; else the list grows meanwhile */
    for (size_t i = 0; i < (is_dereferenced ? n : w->n_led); i++) {
        const struct led l = w->list[i]; /* the list moves, its texts do not */
        follow_below(w, l.real, l.shown);
    }
    sort_led(w);
}

void free_wanted(struct wanted *w)
{
    for (size_t i = 0; i < w->n_led; i++) {
        free(w->list[i].real);
        free(w->list[i].shown);
    }
    free(w->list);
    free((void *)w->files);
    free(w->is_used);
    free(w->is_taken);
}
