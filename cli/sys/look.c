/* SPDX-License-Identifier: MIT */
#include "look.h"

#include <math.h>

#if defined(__linux__)
#include <sys/vfs.h>
#endif

#include "../../formats/sorted.h"
#include "spot.h"
#include "tree.h"

#if defined(__linux__)
/* Linux refuses a lease for reading if the file is open for writing. NFS and SMB also refuse other
 * leases: there the answer is 0. */
static int is_open_for_writing(const char *path)
{
    struct statfs s;
    const int fd = open_file(AT_FDCWD, path, O_RDONLY);
    if (fd < 0) return 0;
    const int is_refused = fcntl(fd, F_SETLEASE, F_RDLCK) != 0 && errno == EAGAIN;
    if (!is_refused) (void)fcntl(fd, F_SETLEASE, F_UNLCK);
    const uint32_t type = is_refused && fstatfs(fd, &s) == 0 ? (uint32_t)s.f_type : 0;
    close(fd);
    return is_refused && type != 0x6969 && type != 0xFF534D42 && type != 0xFE534D42;
}
#else
static int is_open_for_writing(const char *path)
{
    (void)path;
    return 0;
}
#endif

/* Modulo 2^64: times may be centuries away. */
static uint64_t in_ns(const struct timespec *t)
{
    return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
}

static double in_seconds(const struct timespec *t)
{
    return (double)t->tv_sec + (double)t->tv_nsec / 1e9;
}

static uint64_t hash_state(const char *path, size_t size, const struct stat *st, int has_ctime)
{
    const uint64_t values[] = {(uint64_t)st->st_mode, (uint64_t)st->st_dev,
                               (uint64_t)st->st_ino,  (uint64_t)st->st_size,
                               in_ns(&st->st_mtim),   has_ctime ? in_ns(&st->st_ctim) : 0};
    return hash_bytes(hash_bytes(hash_bytes(FNV_START, path, size), "", 1), values, sizeof values);
}

static void add_state(struct states *s, const char *path, const struct stat *st)
{
    const int is_shared = !S_ISDIR(st->st_mode) && st->st_nlink > 1;
    *(uint64_t *)append(&s->list, &s->n, &s->cap, sizeof *s->list) =
        hash_state(path, strlen(path), st, !is_shared);
}

static int compare_states(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static int has_state(const struct states *s, uint64_t state)
{
    size_t low;
    FIND_FIRST(low, s->n, s->list[low] < state);
    return low < s->n && s->list[low] == state;
}

int is_in_state(const struct states *s, const char *path, size_t size, const struct stat *st)
{
    return has_state(s, hash_state(path, size, st, 1)) ||
           has_state(s, hash_state(path, size, st, 0));
}

void free_states(struct states *s)
{
    free(s->list);
    memset(s, 0, sizeof *s);
}

static void add_to_look(struct look *k, const char *path, const struct stat *st)
{
    const double m = in_seconds(&st->st_mtim), c = in_seconds(&st->st_ctim);
    struct stat apart = *st;
    apart.st_dev = 0;
    apart.st_ino = 0;
    /* sums: the order does not matter */
    k->digest += hash_state(path, strlen(path), st, 1);
    k->state += hash_state(path, strlen(path), &apart, 1);
    k->newest = m > k->newest ? m : k->newest;
    k->newest = c > k->newest ? c : k->newest;
}

/* states NULL: they are not wanted */
static void look_into(struct look *k, struct states *states, const char *root, const char *path)
{
    char *full = join_path(root, path);
    struct stat st, target;
    const int is_there = lstat(full, &st) == 0;
    if (is_there) {
        const int is_led = S_ISLNK(st.st_mode) && stat(full, &target) == 0;
        if (states) add_state(states, path, &st);
        add_to_look(k, path, &st);
        if (is_led) add_to_look(k, path, &target);
        if (S_ISREG(is_led ? target.st_mode : st.st_mode)) {
            k->n_files++;
            if (!k->is_quick && !k->is_written) k->is_written = is_open_for_writing(full);
        }
    }
    if (!is_there) k->is_whole = 0;
    else if (S_ISDIR(st.st_mode)) {
        struct listing names;
        if (list_names(&names, full) != 0) k->is_whole = 0;
        for (size_t i = 0; i < names.n; i++) {
            char *inner = join_path(path, names.entries[i].path);
            look_into(k, states, root, inner);
            free(inner);
        }
        free_listing(&names);
    }
    free(full);
}

static struct look look(const char *path, struct states *states, int is_quick)
{
    struct look k = {0};
    k.is_quick = is_quick;
    k.is_whole = 1;
    k.newest = -HUGE_VAL;
    look_into(&k, states, path, "");
    if (states && states->n) qsort(states->list, states->n, sizeof *states->list, compare_states);
    return k;
}

struct look look_at_states(const char *path, struct states *states)
{
    return look(path, states, 0);
}

struct look look_at(const char *path) { return look(path, NULL, 0); }

struct look look_quickly(const char *path) { return look(path, NULL, 1); }
