/* mount.h - lmc mount: what is below a mount point, and windows of decoded bytes
 * SPDX-License-Identifier: MIT
 *
 *   mount.c          the verb: checks, and the requests of the system (libfuse3)
 *   mount_tree.c     items and nodes: which names there are, and what they stand for
 *   mount_volume.c   open snapshots with their chains
 *   mount_windows.c  decoded bytes
 *
 * A node is what the system knows by a number: a file, directory or link. What a node of a snapshot
 * is never changes, so that the system may keep its bytes and attributes. If the file on the disk
 * is replaced, its name leads to other nodes; files that are open stay what they were.
 *
 * All of it but the windows is used by one thread at a time, which holds `decoder` of struct mount:
 * that is how bases, series and messages are made. Reading a snapshot uses all threads of the pool.
 */
#pragma once

#include "../sys/platform.h"

#include <pthread.h>

#include "../input/base.h"
#include "../input/options.h"
#include "series_manifest.h"

struct item;
struct volume;
struct windows;

struct node {
    struct item *item;
    char *path;   /* in the item; "": its root */
    size_t file;  /* number in the snapshot; SIZE_MAX: none */
    size_t end;   /* in the item's nodes, which are sorted by paths: the first that is not below */
    char *target; /* of a symbolic link */
    mode_t mode;  /* with S_IFMT */
    struct timespec time;
    uint64_t size, number;
    unsigned n_names;
};

/* ITEM_ONE: the root, if a file is mounted: its content is that of the snapshot. */
enum item_kind { ITEM_ONE, ITEM_DIRECTORY, ITEM_SERIES, ITEM_FILE, ITEM_LINK, ITEM_SNAPSHOT };

/* A snapshot of a series, as its list has it. */
struct member {
    char *name, *source; /* name first, for compare_texts(); source: NULL if it is unknown */
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE];
};

/* What a name in a directory on the disk stands for: with all that is in it, if it is a snapshot;
 * else with one node. */
struct item {
    struct item *next;   /* of those that find_item() finds in one place */
    struct item *parent; /* NULL: of the root */
    char *name;          /* as it is shown in the parent */
    char *path;          /* on the disk */
    enum item_kind kind;
    int is_member;                             /* a snapshot of a series: its parent */
    struct stat st;                            /* of what is at path */
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE]; /* of a snapshot */
    uint64_t n_uses;                           /* by the system, open files, and items below */
    struct node *nodes;
    size_t n_nodes, cap;
    struct volume *volume;  /* NULL: not open */
    struct member *members; /* of a series, sorted by name, as of `list_st` */
    size_t n_members;
    char *latest;
    /* Of a file: when it was last opened; of ITEM_ONE: when that failed. st_nlink 0: never */
    struct stat list_st;
};

/* Snapshots that stay open while no file of them is open, as they may be wanted again. */
#define MOST_IDLE 8

#define N_BUCKETS 4096

struct mount {
    const struct options *o;
    pthread_mutex_t decoder;
    struct item *items[N_BUCKETS]; /* by a hash of parent and name */
    struct item *root;
    struct volume *volumes; /* the open ones, the last one that was used first */
    uint64_t n_numbers;
    struct windows *windows;
    int code; /* exit code of the last error that was reported */
};

/* -- items and nodes. Functions return 0 or errno; EIO: it was reported -- */

/* Makes the root for a snapshot, or a directory, and opens it: so its faults are reported now.
 * path: absolute. Returns an exit code. */
int make_root(struct mount *m, const char *path);

/* Finds a name in a directory. *is_constant: it will always be this node. The caller calls
 * use_item(). */
int find_node(struct mount *m, struct node *directory, const char *name, struct node **found,
              int *is_constant);

void use_item(struct item *item);
void release_item(struct mount *m, struct item *item, uint64_t n);

/* Takes what the disk says now about a node, unless it is of a snapshot. */
int look_at_node(struct mount *m, struct node *node);

/* Whether the node never changes. */
int is_constant_node(const struct node *node);

/* Calls `add` for each name in the directory. node: NULL if it is not known yet; mode: S_IFMT only;
 * 0: not known. *listed: the directory; or if a file is mounted, the root of its snapshot. */
int list_node(struct mount *m, struct node *directory, struct node **listed,
              void (*add)(void *user, const char *name, mode_t mode, struct node *node),
              void *user);

/* Whether the name of the item still leads to it. */
int is_current(struct mount *m, struct item *item);

/* The path of the file on the disk that the node is of. */
const char *name_node(const struct node *node);

/* -- open snapshots -- */

struct volume {
    struct volume *next;
    struct item *item;
    size_t n_open; /* files */
    struct series series;
    struct chain chain;
    struct archive archive;
};

/* Keeps the exit code. Returns 0 for CODE_OK, else EIO. */
int note_code(struct mount *m, int code);

/* Opens a snapshot without its base, to read what is in it. a: to be closed even after an error. */
int open_index(struct mount *m, struct archive *a, const char *path);

/* Opens the snapshot of an item with its chain, if it is not open, and counts the file. 0, EIO, or
 * ESTALE: another snapshot has its place. */
int open_volume(struct mount *m, struct item *item);
void close_volume_file(struct mount *m, struct volume *v);

/* Closes the volume of an item. */
void drop_volume(struct mount *m, struct item *item);

/* Reads bytes of a file. is_told: an error is reported, with the name of the first tensor that it
 * is in. */
int read_volume(struct volume *v, const struct node *node, uint64_t offset, void *dst, size_t size,
                int is_told);

/* -- windows of decoded bytes, of all files --
 *
 * A window is filled by one thread, for which others wait. Windows that are in use stay.
 */

#define WINDOW_SIZE ((size_t)4 << 20)
#define N_WINDOWS 32

struct window {
    uint64_t number, index; /* of the node; of the window in its file */
    uint64_t used;
    unsigned n_users;
    int is_there, is_filled, is_broken, is_told;
    unsigned char *data; /* WINDOW_SIZE; NULL: not needed yet */
};

struct windows {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t tick;
    struct window list[N_WINDOWS];
};

/* Returns the window, to be given back. If it is not there, calls `fill`, which returns 0, or errno
 * if the window is broken: then its bytes are to be read one request at a time. only_new: NULL if
 * it is there already, or no window is free. */
struct window *take_window(struct windows *w, uint64_t number, uint64_t index, int only_new,
                           int (*fill)(void *user, uint64_t index, unsigned char *data),
                           void *user);
/* is_done: all of it was read, and the system keeps that. So it is the next one that is replaced:
 * what is read from front to back takes few windows, which stay in the processor's caches. */
void give_back_window(struct windows *w, struct window *window, int is_done);

/* Whether this is the first time that this is asked of a broken window. */
int tell_broken(struct windows *w, struct window *window);
