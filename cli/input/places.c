/* SPDX-License-Identifier: MIT */
#include "places.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive.h"
#include "depths.h"
#include "walk.h"
#include "../sys/io.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/search.h"
#include "../sys/tree.h"

#define TRAILER_SIZE 40u            /* spec 3.2 */
#define SECTION_HEADER_SIZE 20u     /* spec 4 */
#define SNAPSHOT_FINGERPRINT_AT 64u /* spec 8.2: in the body of the INDX section */

static uint64_t get_u64(const uint8_t *bytes)
{
    uint64_t value = 0;
    for (unsigned i = 8; i-- > 0;) value = value << 8 | bytes[i];
    return value;
}

/* Nothing here is believed: it says where to look. */
static int probe_descriptor(struct place_entry *e, int fd, uint64_t size)
{
    uint8_t header[LMC_FILE_HEADER_SIZE], trailer[TRAILER_SIZE];
    uint64_t index;
    if (size < sizeof header + sizeof trailer || read_at(fd, 0, header, sizeof header) != 0 ||
        parse_header(header, sizeof header, e->wanted, &e->is_delta) != 0 ||
        read_at(fd, size - sizeof trailer, trailer, sizeof trailer) != 0 ||
        memcmp(trailer + sizeof trailer - sizeof end_magic, end_magic, sizeof end_magic) != 0)
        return -1;
    index = get_u64(trailer);
    if (index > size - SECTION_HEADER_SIZE - SNAPSHOT_FINGERPRINT_AT - LMC_FINGERPRINT_SIZE)
        return -1;
    return read_at(fd, index + SECTION_HEADER_SIZE + SNAPSHOT_FINGERPRINT_AT, e->fingerprint,
                   LMC_FINGERPRINT_SIZE) == 0
               ? 0
               : -1;
}

int probe_snapshot(struct place_entry *e, const char *path)
{
    struct stat st;
    int fd, result;
    memset(e, 0, sizeof *e);
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return -1; /* before a FIFO is opened */
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    result = probe_descriptor(e, fd, (uint64_t)st.st_size);
    close(fd);
    return result;
}

int add_place(struct places *p, const char *path, size_t number)
{
    struct place_entry e;
    if (probe_snapshot(&e, path) != 0) return -1;
    p->list = (struct place_entry *)grow(p->list, p->n, &p->room, sizeof *p->list);
    e.path = copy_string(path, strlen(path));
    e.number = number;
    p->list[p->n++] = e;
    p->is_sorted = 0;
    return 0;
}

static int compare_entry_names(const void *a, const void *b)
{
    return compare_names(((const struct entry *)a)->path, ((const struct entry *)b)->path);
}

static void list_snapshots(struct listing *l, const char *directory)
{
    DIR *stream = opendir(directory);
    struct dirent *entry;
    int error = 0;
    memset(l, 0, sizeof *l);
    if (!stream) return;
    while ((entry = next_entry(stream, &error)) != NULL)
        if (has_suffix(entry->d_name)) add_entry(l, entry->d_name, 0);
    closedir(stream);
    if (l->n) qsort(l->entries, l->n, sizeof *l->entries, compare_entry_names);
}

void add_places(struct places *p, const char *directory)
{
    struct listing l;
    for (size_t i = 0; i < p->n_directories; i++)
        if (strcmp(p->directories[i], directory) == 0) return;
    p->directories =
        (char **)resize((void *)p->directories, p->n_directories + 1, sizeof *p->directories);
    p->directories[p->n_directories++] = copy_string(directory, strlen(directory));
    list_snapshots(&l, directory);
    for (size_t i = 0; i < l.n; i++) {
        char *path = strcmp(directory, ".") == 0
                         ? copy_string(l.entries[i].path, strlen(l.entries[i].path))
                         : join_path(directory, l.entries[i].path);
        (void)add_place(p, path, p->n);
        free(path);
    }
    free_listing(&l);
}

const struct place_entry *find_place_numbered(const struct places *p, size_t number)
{
    for (size_t i = 0; p && i < p->n; i++)
        if (p->list[i].number == number) return &p->list[i];
    return NULL;
}

/* Counts what is in the directory: snapshots, and what is not and counts. */
static void count_entries(const char *directory, size_t *n_snapshots, size_t *n_others)
{
    DIR *stream = opendir(directory);
    struct dirent *entry;
    int error = 0;
    *n_snapshots = *n_others = 0;
    if (!stream) return;
    while ((entry = next_entry(stream, &error)) != NULL)
        if (has_suffix(entry->d_name)) ++*n_snapshots;
        else *n_others += entry->d_name[0] != '.' && strcmp(entry->d_name, "series.json") != 0;
    closedir(stream);
}

int contains_snapshots(const char *directory)
{
    size_t n, others;
    count_entries(directory, &n, &others);
    return n != 0;
}

int contains_only_snapshots(const char *directory)
{
    size_t n, others;
    count_entries(directory, &n, &others);
    return n != 0 && others == 0;
}

static int compare_known_places(const void *a, const void *b)
{
    const struct place_entry *x = (const struct place_entry *)a, *y = (const struct place_entry *)b;
    int order = memcmp(x->fingerprint, y->fingerprint, LMC_FINGERPRINT_SIZE);
    if (order) return order;
    if (x->depth != y->depth) return x->depth < y->depth ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static void sort_places(struct places *p)
{
    struct link_of_chain *links = (struct link_of_chain *)resize(NULL, p->n + 1, sizeof *links);
    for (size_t i = 0; i < p->n; i++) {
        links[i].fingerprint = p->list[i].fingerprint;
        links[i].wanted = p->list[i].is_delta ? p->list[i].wanted : NULL;
    }
    measure_depths(links, p->n);
    for (size_t i = 0; i < p->n; i++) p->list[i].depth = links[i].depth;
    free(links);
    if (p->n) qsort(p->list, p->n, sizeof *p->list, compare_known_places);
    p->is_sorted = 1;
}

struct place_entry *find_places(struct places *p, const uint8_t *fingerprint, size_t *n)
{
    size_t low;
    if (!p->is_sorted) sort_places(p);
    FIND_FIRST(low, p->n, memcmp(p->list[low].fingerprint, fingerprint, LMC_FINGERPRINT_SIZE) < 0);
    for (*n = 0; low + *n < p->n &&
                 memcmp(p->list[low + *n].fingerprint, fingerprint, LMC_FINGERPRINT_SIZE) == 0;)
        ++*n;
    return *n ? &p->list[low] : NULL;
}

void free_places(struct places *p)
{
    for (size_t i = 0; i < p->n; i++) free(p->list[i].path);
    for (size_t i = 0; i < p->n_directories; i++) free(p->directories[i]);
    free(p->list);
    free((void *)p->directories);
    memset(p, 0, sizeof *p);
}
