/* SPDX-License-Identifier: MIT */
#include "made.h"

#include "io.h"
#include "temporary.h"

#define DIRECTORY_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* -- the nodes -- */

static size_t hash_name(size_t parent, const char *name, size_t size)
{
    const uint64_t hash = hash_bytes(FNV_START ^ parent, name, size);
    return (size_t)(hash ^ hash >> 29);
}

static void link_node(struct made *m, size_t number)
{
    const struct made_directory *d = &m->list[number];
    size_t *slot = &m->table[hash_name(d->parent, d->name, strlen(d->name)) & (m->n_slots - 1)];
    m->list[number].next = *slot;
    *slot = number;
}

/* The number of a node; 0: there is none. */
static size_t find_node(const struct made *m, size_t parent, const char *name, size_t size)
{
    size_t i = m->table[hash_name(parent, name, size) & (m->n_slots - 1)];
    while (i && (m->list[i].parent != parent || strncmp(m->list[i].name, name, size) != 0 ||
                 m->list[i].name[size] != 0))
        i = m->list[i].next;
    return i;
}

static size_t add_node(struct made *m, size_t parent, const char *name, size_t size)
{
    m->list = (struct made_directory *)grow(m->list, m->n, &m->cap, sizeof *m->list);
    struct made_directory *d = &m->list[m->n];
    memset(d, 0, sizeof *d);
    d->parent = parent;
    if (name) {
        d->name = copy_string(name, size);
        d->depth = m->list[parent].depth + 1;
    }
    m->n++;
    if (m->n > m->n_slots) {
        m->n_slots = m->n_slots ? m->n_slots * 2 : 64;
        m->table = (size_t *)resize(m->table, m->n_slots, sizeof *m->table);
        memset(m->table, 0, m->n_slots * sizeof *m->table);
        for (size_t i = 1; i + 1 < m->n; i++) link_node(m, i);
    }
    if (name) link_node(m, m->n - 1);
    return m->n - 1;
}

/* -- moving from directory to directory -- */

/* Opens a directory, relative to m->fd. is_known: it was opened before, and must be the same. */
static int open_directory(struct made *m, const char *name, size_t number, int is_known, int *fd)
{
    struct made_directory *d = &m->list[number];
    struct stat st;
    int error = 0;
    *fd = openat(m->fd, name, DIRECTORY_FLAGS);
    if (*fd < 0) return errno;
    if (fstat(*fd, &st) != 0) error = errno;
    else if (is_known && (st.st_dev != d->device || st.st_ino != d->inode)) error = MADE_MOVED;
    if (error) {
        close(*fd);
        *fd = -1;
        return error;
    }
    d->device = st.st_dev;
    d->inode = st.st_ino;
    return 0;
}

static int go_to(struct made *m, const char *name, size_t number, int is_known)
{
    int fd;
    const int error = open_directory(m, name, number, is_known, &fd);
    if (error) return error;
    close(m->fd);
    m->fd = fd;
    m->at = number;
    return 0;
}

/* Whether the umask would lock us out of new directories: then they get their mode at the end. */
static int needs_mode(void) { return mask_mode(0700) != 0700; }

/* Goes down into the directory of a node, and makes it if it is missing. */
static int go_down(struct made *m, size_t number)
{
    struct made_directory *d = &m->list[number];
    if (!d->is_there) {
        if (m->n_entries >= m->max_entries) return MADE_TOO_MANY;
        if (mkdirat(m->fd, d->name, needs_mode() || d->has_attributes ? 0700 : 0777) == 0) {
            m->n_entries++;
            d->is_made = 1;
        } else if (errno != EEXIST) {
            return errno; /* else it exists, maybe by a name that differs in case */
        }
        d->is_there = 1;
    }
    return go_to(m, d->name, number, 0);
}

/* m->way has enough room. Must not allocate: see lock_temporary(). */
int go_to_made(struct made *m, size_t target)
{
    size_t n = 0, up = target;
    int error = 0;
    lock_temporary();
    while (m->list[up].depth > m->list[m->at].depth) up = m->list[up].parent;
    while (!error && m->at != up) {
        if (m->list[up].depth == m->list[m->at].depth) up = m->list[up].parent;
        error = go_to(m, "..", m->list[m->at].parent, 1);
    }
    for (size_t i = target; i != up; i = m->list[i].parent) m->way[n++] = i;
    while (!error && n > 0) error = go_down(m, m->way[--n]);
    unlock_temporary();
    return error;
}

/* -- public functions -- */

int open_made(struct made *m, int root, uint64_t max_entries, size_t max_depth)
{
    memset(m, 0, sizeof *m);
    m->max_entries = max_entries;
    m->max_depth = max_depth;
    m->fd = root;
    add_node(m, 0, NULL, 0);
    m->list[0].is_there = 1;
    return open_directory(m, ".", 0, 0, &m->fd);
}

int find_made(struct made *m, const char *path, size_t size, size_t *number)
{
    size_t at = 0, depth = 0;
    for (size_t i = 0; i < size; i++) depth += path[i] == '/' ? 1 : 0;
    if (size && depth + 1 > m->max_depth) return MADE_TOO_DEEP;
    if (depth + 1 > m->way_cap) {
        m->way_cap = depth + 64;
        m->way = (size_t *)resize(m->way, m->way_cap, sizeof *m->way);
    }
    while (size) {
        const char *slash = (const char *)memchr(path, '/', size);
        const size_t length = slash ? (size_t)(slash - path) : size;
        const size_t found = find_node(m, at, path, length);
        if (!found && m->n > m->max_entries) return MADE_TOO_MANY;
        at = found ? found : add_node(m, at, path, length);
        path += length + (slash ? 1 : 0);
        size -= length + (slash ? 1 : 0);
    }
    *number = at;
    return 0;
}

int enter_made(struct made *m, const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t number;
    int error = find_made(m, path, slash ? (size_t)(slash - path) : 0, &number);
    return error ? error : go_to_made(m, number);
}

int count_made_file(struct made *m)
{
    if (m->n_entries >= m->max_entries) return MADE_TOO_MANY;
    m->n_entries++;
    return 0;
}

/* Called when the parent is open already, as the directory's new mode may lock the way to it. */
static int finish_directory(const struct made *m, const struct made_directory *d, int is_synced)
{
    int error = 0;
    if (d->has_attributes) error = set_attributes(m->fd, &d->attributes);
    else if (d->is_made && needs_mode()) /* of a directory that the snapshot does not list */
        error = set_mode(m->fd, mask_mode(0777));
    return error || !is_synced ? error : sync_directory(m->fd);
}

int finish_made(struct made *m, int is_synced)
{
    int error = 0;
    for (size_t i = m->n; i && i-- && !error;) { /* parents have smaller numbers */
        int up = -1;
        const struct made_directory *d = &m->list[i];
        if (!d->is_there || !(d->has_attributes || is_synced || needs_mode())) continue;
        error = go_to_made(m, i);
        if (!error && i) error = open_directory(m, "..", d->parent, 1, &up);
        if (!error) error = finish_directory(m, d, is_synced);
        if (up >= 0) {
            close(m->fd);
            m->fd = up;
            m->at = d->parent;
        }
    }
    return error;
}

/* Syncing each small file takes long. So if there are more than this, all are synced together. */
#define SYNCED_FILES ((uint64_t)256)
#define SMALL_FILE ((uint64_t)1 << 20)

int is_synced_as_whole(const struct made *m)
{
    return can_sync_all() && m->n_entries > SYNCED_FILES;
}

int is_synced_at_end(const struct made *m, uint64_t size)
{
    return is_synced_as_whole(m) && size < SMALL_FILE &&
           m->list[m->at].device == m->list[0].device; /* no mount is between */
}

void close_made(struct made *m)
{
    if (m->fd >= 0) close(m->fd);
    for (size_t i = 0; i < m->n; i++) free(m->list[i].name);
    free(m->list);
    free(m->table);
    free(m->way);
    memset(m, 0, sizeof *m);
    m->fd = -1;
}
