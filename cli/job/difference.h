/* difference.h - what has changed between two snapshots, and what a delta would take
 * SPDX-License-Identifier: MIT
 *
 * What predicts an item is found as for compressing: the tensor of its name in the base, or of the
 * end of its name; parts of the base, if it is cut in another way; or a twin of the same snapshot.
 */
#pragma once

#include "../sys/platform.h"

#include "../../formats/policy.h"

struct base;
struct members;
struct options;
struct json_writer;
struct scan;

enum diff_kind {
    DIFF_SAME,
    DIFF_CHANGED,
    DIFF_RESHAPED,
    DIFF_RETYPED,
    DIFF_ADDED,
    DIFF_REMOVED,
    DIFF_KINDS
};

extern const char *const diff_names[DIFF_KINDS];

/* A tensor, or a file without tensors, which is treated as a tensor of bytes. */
struct diff_item {
    const char *name, *path;
    const lmc_tensor *tensor; /* NULL: a file */
    const char *dtype;        /* of a file: "" */
    uint64_t size, offset;
    size_t file_number, number; /* number: as lmc_base_match counts */
    const uint8_t *fingerprint;
    int is_matched;
};

/* Sorted by name and path. */
struct diff_items {
    struct diff_item *list;
    size_t n, cap;
    size_t n_numbers; /* of all tensors and files without tensors */
};

struct diff_row {
    enum diff_kind kind;
    const struct diff_item *item; /* in B; in A if it was removed */
    const struct diff_item *old;  /* in A, of the same size, to predict it; or NULL */
    const lmc_base_part *parts;   /* else these parts of items of A */
    size_t n_parts;
    const struct diff_item *twin; /* in B; it predicts the item, also if there is an old one */
    enum lmc_conversion conversion;
    uint64_t n, n_changed;  /* elements; without old, all have changed */
    uint64_t delta, direct; /* bytes that coding takes */
};

struct diff {
    const struct options *o;
    struct base *a, *b;
    struct diff_items old_items, new_items;
    struct diff_row *rows;
    size_t n_rows;
    struct members *members; /* of B: they own parts and twins */
    unsigned char *old_piece, *new_piece, *coded, *workspace;
    size_t coded_size, workspace_size;
};

/* Directories are left out: they have no content. */
void collect_diff_items(struct diff_items *items, const struct base *b);

/* Makes rows for the items of B, in the order of their names, then for removed items of A. Measures
 * nothing, but reads samples. An exit code. */
int match_items(struct diff *d);

void free_diff(struct diff *d);

/* Measures the rows of new items, in their order in the snapshot: else a block that has many small
 * tensors would be decoded for each of them. scan: NULL, or for counting the elements of each item.
 * measured: NULL, or a function that is called after each row. */
int measure_all(struct diff *d, struct scan *scan,
                void (*measured)(void *user, size_t row, const struct scan *scan), void *user);

/* What the names of an item tell of it (policy.h). */
enum role find_item_role(const struct diff_item *item);

/* The numbers of the rows that a table shows: all, or with --top as many as that, those that take
 * most space as a delta (without an older snapshot: by themselves), in this order. To be freed. */
size_t *choose_rows(const struct diff *d, size_t *n);

/* If --top leaves out rows, a line that tells how many. */
void print_left_out(const struct diff *d, size_t n);

/* Prints the first columns of a row: dtype, shape and, if the item was removed, size. */
void print_row_start(const struct diff_row *row, int is_narrow);

/* Prints the name, the path behind it, what predicts it, if that has another name, and the end of
 * the line. */
void print_row_name(const struct diff_row *row);

/* Writes the rows of tensors, or of other files: name, path, dtype, shape, size; with has_status,
 * the kind of change; and, unless the item was removed, what complete() adds. number: of the row */
void put_json_rows(struct json_writer *w, const struct diff *d, int of_tensors, int has_status,
                   void (*complete)(struct json_writer *w, void *user, size_t number), void *user);

/* Writes name and fingerprint of a snapshot. */
void put_json_side(struct json_writer *w, const struct base *b);

/* Adds the names to the bases: each snapshot may be a delta against another one. */
int add_snapshots(const char *verb, const struct options *o);
