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

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The number of the first of the sorted files that is not before the path. */
static size_t search_file(const struct wanted *w, const char *path)
{
    size_t low;
    FIND_FIRST(low, w->n_files, strcmp(w->files[low], path) < 0);
    return low;
}

static int is_listed(const struct wanted *w, const char *path)
{
    const size_t i = search_file(w, path);
    return i < w->n_files && strcmp(w->files[i], path) == 0;
}

static int has_files_below(const struct wanted *w, const char *path)
{
    char *below = join_path(path, "x");
    const size_t size = strlen(below) - 1;
    size_t i;
    int result;
    below[size] = 0;
    i = search_file(w, below);
    result = i < w->n_files && strncmp(w->files[i], below, size) == 0;
    free(below);
    return result;
}

/* A file or directory, or what is only the parent of some. */
static int is_there(const struct wanted *w, const char *path)
{
    return *path == 0 || is_listed(w, path) || has_files_below(w, path);
}

static int is_file(const struct wanted *w, const char *path)
{
    return is_listed(w, path) && !has_files_below(w, path);
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

/* The number of the first link that may lie below the directory. */
static size_t search_link(const struct wanted *w, const char *directory)
{
    size_t low;
    FIND_FIRST(low, w->links->n, strcmp(w->links->list[low].path, directory) < 0);
    return low;
}

/* Links below what a link leads to are wanted with it. In the place of links only files are: what
 * a directory holds may lead back to it. */
static void follow_below(struct wanted *w, const char *directory, const char *shown)
{
    const size_t size = strlen(directory);
    for (size_t i = search_link(w, directory);
         i < w->links->n && !w->is_too_many &&
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

/* The same for all that was found, and what is found by that. */
static void follow_all_below(struct wanted *w)
{
    const size_t n = w->n_led;
    for (size_t i = 0; i < (w->is_dereferenced ? n : w->n_led); i++) {
        const struct led l = w->list[i]; /* the list moves, its texts do not */
        follow_below(w, l.real, l.shown);
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
    qsort((void *)w->files, w->n_files, sizeof *w->files, compare_texts);
    for (size_t i = 0; i < n; i++) /* "latest/config.json", where latest is a link */
        if (follow(w, patterns[i], NULL)) w->is_used[i] = 1;
    w->named_lost = w->lost;
    for (size_t i = 0; i < links->n; i++)
        if (links->list[i].type == LINK_SYMBOLIC && matches_any(w, links->list[i].path)) {
            if (!w->is_taken[i]) (void)follow(w, links->list[i].path, NULL);
            w->is_taken[i] = 1;
        }
    follow_all_below(w);
    sort_led(w);
}

const char *next_file(const struct wanted *w, const struct led *l, size_t *at)
{
    const size_t size = strlen(l->real);
    if (*at == 0) { /* what lies below "a" comes behind "a-b" */
        char *below = size ? join_path(l->real, "x") : copy_string("x", 1);
        const size_t i = search_file(w, l->real);
        below[strlen(below) - 1] = 0;
        *at = 1 + search_file(w, below);
        free(below);
        if (size && i < w->n_files && strcmp(w->files[i], l->real) == 0) return w->files[i];
    }
    if (*at > w->n_files || strncmp(w->files[*at - 1], l->real, size) != 0 ||
        (size && w->files[*at - 1][size] != '/'))
        return NULL;
    return w->files[(*at)++ - 1];
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
