/* torch.h - files of PyTorch: archives, pickles, and the tensors that they describe
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "container.h"

/* -- the directory of a ZIP archive --
 *
 * This finds the stored members of an archive: PKWARE's APPNOTE 6.3, with ZIP64, without
 * encryption, comments of the archive, or several disks. The central directory is used, and the
 * local header must agree. Data descriptors, which follow a member's data, are not read: the
 * directory has the sizes.
 */

struct zip_member {
    const char *name; /* ends with a zero byte, and contains no other */
    uint64_t local;   /* offset of its local header in the view */
    uint64_t offset;  /* offset of its data; 0: unknown, see zip_locate() */
    uint64_t size;    /* of its data */
    int is_stored;    /* not compressed, not encrypted */
};

struct zip {
    struct zip_member *members; /* sorted by name; names differ */
    size_t n;
    uint64_t start;     /* offset of the archive in the view */
    uint64_t directory; /* offset of its central directory */
    char *names;        /* storage */
    char error[128];
};

/* Reads the archive that ends at `end`, which is in the view, and begins at or behind `from`. OK:
 * to be freed; OTHER (none ends there) or BAD: see error; MEMORY. */
enum container_result zip_read(struct zip *z, const struct view *v, uint64_t from, uint64_t end);

/* Finds the offset of the member's data, unless it is known. Reads the local header for that, as
 * only this header tells its own length. OK, BAD (see error) or MEMORY. */
enum container_result zip_locate(struct zip *z, const struct view *v, struct zip_member *m);

/* The member of that name; NULL: there is none. */
struct zip_member *zip_find(const struct zip *z, const char *name);

void zip_free(struct zip *z);

/* -- the content of a Python pickle, without running any of it --
 *
 * A pickle is a program for a stack machine. This machine has the opcodes that torch.load(...,
 * weights_only=True) allows, and those that protocols 3 to 5 use for the same things. Nothing is
 * imported or called: a global is its name, a call is a node with a function and its arguments. The
 * result is a graph, in which an object that is used twice is one node.
 *
 * Time and memory are proportional to the pickle: each opcode makes at most one node, and one link
 * for each thing that it takes from the stack. There is no recursion.
 */

/* The largest pickle that is read from a file of that weight (container.h). In real files the
 * pickle is a small part: some 250 bytes and 20 nodes for each tensor.
 */
size_t pickle_max_size(uint64_t weight);

/* The number of members that pickle_member() looks at. */
#define PICKLE_MAX_MEMBERS 64u

enum pickle_type {
    PICKLE_OTHER,      /* None, floats, bytes, big numbers: not needed */
    PICKLE_BOOL,       /* value: 0 or 1 */
    PICKLE_INT,        /* value */
    PICKLE_TEXT,       /* text */
    PICKLE_TUPLE,      /* links */
    PICKLE_LIST,       /* links; sets, too */
    PICKLE_DICT,       /* links with keys */
    PICKLE_GLOBAL,     /* text: "MODULE.NAME" */
    PICKLE_CALL,       /* function, arguments, state; links: items that were set afterwards */
    PICKLE_PERSISTENT, /* arguments: the identifier of an object that is stored elsewhere */
};

/* As the number of a node or link, 0 means none. */
struct pickle_node {
    uint8_t type;
    uint8_t mark;         /* for a walk through the graph */
    uint32_t first, last; /* links */
    uint32_t function, arguments, state;
    union {
        int64_t value;
        struct {
            uint32_t at, size; /* in texts */
        } text;
    } u;
};

struct pickle_link {
    uint32_t next, key, value; /* key 0: of a list */
};

struct pickle {
    struct pickle_node *nodes;
    struct pickle_link *links;
    char *texts; /* each followed by a zero byte; may contain others */
    uint32_t root;
    char error[96];
    /* used only while reading */
    const unsigned char *data;
    size_t size, at;
    uint64_t max_nodes; /* also the limit of links */
    uint32_t n_nodes, n_links, n_texts;
    size_t nodes_room, links_room;
    uint32_t *stack, *marks, *memo;
    size_t n_stack, stack_room, n_marks, marks_room, n_memo, memo_room;
};

/* weight: of the file that the pickle is in. OK: to be freed; BAD: see error; MEMORY. */
enum container_result pickle_read(struct pickle *p, const void *data, size_t size, uint64_t weight);

void pickle_free(struct pickle *p);

const struct pickle_node *pickle_get(const struct pickle *p, uint32_t node);

/* The text of a text or global; NULL: the node is not of that type, or has a zero byte. */
const char *pickle_text(const struct pickle *p, uint32_t node, enum pickle_type type);

/* Whether the node is that text, or the global of that name ("torch._utils._rebuild_tensor_v2"). */
int pickle_is_text(const struct pickle *p, uint32_t node, enum pickle_type type, const char *text);

/* The i-th item of a tuple or list; 0: there is none. */
uint32_t pickle_item(const struct pickle *p, uint32_t node, unsigned i);

/* The value of that key in a dictionary, or in the state of an object; 0: none. Only the first
 * PICKLE_MAX_MEMBERS are looked at, so that repeated calls stay fast. */
uint32_t pickle_member(const struct pickle *p, uint32_t node, const char *key);

/* *count: the value of a node that is a number >= 0. Returns 0 if the node is no such number. */
int pickle_count(const struct pickle *p, uint32_t node, uint64_t *count);

/* The numbers >= 0 of a tuple or torch.Size. Returns how many; -1: no such list, or over `most`.
 */
int pickle_counts(const struct pickle *p, uint32_t node, uint64_t *counts, int most);

/* -- the .metadata of torch.distributed.checkpoint --
 *
 * It is a pickle of the class Metadata. It tells where each item is, and which part of which tensor
 * the item is.
 */

/* An item: a tensor, a part of one, or another object. */
struct dcp_item {
    const char *name, *file; /* file: relative to the directory */
    uint64_t offset, size;
    uint32_t extents, position; /* nodes of the pickle, see dcp_get_part(); 0: unknown */
};

struct dcp {
    struct pickle pickle;
    struct dcp_item *items; /* sorted by file and offset */
    size_t n;
    char error[128];
};

/* OK: to be freed; BAD: see error; MEMORY. */
enum container_result dcp_read(struct dcp *d, const void *data, size_t size, uint64_t weight);

void dcp_free(struct dcp *d);

/* Parses the .metadata that is file number `number` of a snapshot, and keeps the result, also that
 * it cannot be used (then *d is NULL). data NULL: it cannot be read. OK or MEMORY. */
enum container_result dcp_remember(struct dcp_memo *m, const struct dcp **d, size_t number,
                                   const void *data, size_t size, uint64_t weight);

/* Whether that result is kept; then sets *d. */
int dcp_recall(const struct dcp_memo *m, const struct dcp **d, size_t number);

void dcp_forget(struct dcp_memo *m);

/* The memory that it takes, approximately. */
uint64_t dcp_weigh(const struct dcp *d);

/* The number of the first item of a file; its other items follow. d->n: the file has none. */
size_t dcp_find(const struct dcp *d, const char *file);

/* The extents of the whole tensor, and the position of this part in it. Returns the rank; 0:
 * nothing is known of the shape. */
unsigned dcp_get_part(const struct dcp *d, const struct dcp_item *item,
                      uint64_t extents[LMC_MAX_RANK], uint64_t position[LMC_MAX_RANK]);

/* -- the tensors in an object that torch.save() has written --
 *
 * A view is a tensor of PyTorch: a dtype, a shape and strides over a part of a storage.
 */

struct torch_view {
    size_t member;   /* its storage, a member of the archive */
    uint64_t offset; /* in the storage, bytes */
    uint64_t size;   /* from its first to its last element, bytes */
    int is_dense;    /* it has each of these bytes once */
    const char *dtype;
    unsigned bits;  /* of an element; 0: unknown dtype */
    size_t name;    /* in names */
    size_t shape;   /* in shapes; of dense views, in the order of memory */
    size_t logical; /* in shapes: PyTorch's shape, then the strides */
    int is_kept;    /* set by torch_save.c: the view is in the list of tensors */
    int is_plain;   /* in memory in its logical order, and without flags */
    unsigned flags;
    unsigned rank;
    size_t order;       /* place among all views of the object */
    int is_repeated;    /* used while finding views: the tensor has this name already */
    uint32_t arguments; /* node of the pickle: what it is made from */
};

struct torch_views {
    struct torch_view *list;
    size_t n, room;
    char *names; /* paths of keys; "" if the object itself is a tensor */
    size_t names_size, names_room;
    uint64_t *shapes;
    size_t shapes_size, shapes_room;
    char error[128];
};

/* The dtype by PyTorch's name for it, or for a class of storages: "torch.float16",
 * "torch.HalfStorage". NULL: unknown. */
const char *torch_dtype_name(const char *global);

/* Finds the views of the pickle, whose storages are in members PREFIXdata/K. No tensor gets a name
 * twice. budget: bytes that views may take. OK, BAD or MEMORY; to be freed even after an error. */
enum container_result torch_find_views(struct torch_views *views, struct pickle *p,
                                       const struct zip *z, const char *prefix, uint64_t budget);

void torch_free_views(struct torch_views *views);

/* -- tensors in files that torch.save() and torch.distributed.checkpoint write --
 *
 * A file of torch.save() is a ZIP archive. `NAME/data.pkl` is a pickle of the object, in which each
 * tensor is a call with a storage, an offset, a shape and strides. `NAME/data/K`, not compressed,
 * has the bytes of storage K. A .distcp file is a sequence of such archives, of one object each;
 * `.metadata` beside it describes them. Files from before PyTorch 1.6 are not supported.
 *
 * A tensor is named by the keys that lead to it: "optimizer.state.0.exp_avg". A storage is listed
 * as follows:
 *
 *     one tensor fills it, in any order of dimensions    that tensor; shape: in the order of memory
 *     tensors in it do not overlap                       each of them
 *     tensors share bytes, and one contains the others   this tensor; the note tells of the others
 *     else: parts of a storage, strides, overlaps        "NAME@storage", all of it in one dimension
 *     big-endian, quantised or of unknown type, or       "NAME" or "data/K", of dtype BYTES
 *     the pickle is not understood
 *
 * Tensors of PyTorch that differ from this list are views of the container. Bytes that describe
 * tensors are listed, too, with the dtype BYTES: data.pkl and the directory of an archive are
 * "@data.pkl" and "@directory"; bytes between tensors are "@K", if K - 1 items are before them.
 */

/* Whether an item of the list is not a tensor, but such a description. Below the size, only bytes
 * between tensors are listed. */
int torch_is_description(const lmc_tensor *t);
#define TORCH_DESCRIPTION_SIZE 2048u

/* The content of .metadata. */
struct dcp;

enum container_result container_parse_torch_save(struct container *c, const struct view *v);

/* d: from the .metadata beside it, or NULL. name: of the file, without its directory. */
enum container_result container_parse_distcp(struct container *c, const struct view *v,
                                             const struct dcp *d, const char *name);

/* Views of a file of either kind, see container_find_views(). */
enum container_result container_find_torch_views(struct container *c, const struct view *v,
                                                 const lmc_file *f, const struct dcp *d);

/* Parses a name "NAME[256:512]" of a part of a tensor, along its first dimension. Returns the size
 * of "NAME"; 0: it is no such name, or also cuts other dimensions. */
size_t torch_parse_part(const char *name, uint64_t *begin, uint64_t *end);
