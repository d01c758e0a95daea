/* torch.h - files of PyTorch: archives, pickles, and the tensors that they tell of
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "container.h"

/* -- the directory of a ZIP archive --
 *
 * What is wanted of an archive are the places of its stored members: PKWARE's APPNOTE 6.3, with
 * ZIP64, without encryption, comments of the archive, or several disks. The central directory is
 * believed where the local header agrees. Data descriptors lie behind a member's data, where
 * nobody looks: the directory has the sizes.
 */

struct zip_member {
    const char *name; /* a zero byte follows, and none is in it */
    uint64_t local;   /* of its local header, in the view */
    uint64_t offset;  /* of its data there; 0: see zip_locate() */
    uint64_t size;    /* of its data */
    int is_stored;    /* not compressed, not encrypted */
};

struct zip {
    struct zip_member *members; /* sorted by name; names differ */
    size_t n;
    uint64_t start;     /* of the archive in the view */
    uint64_t directory; /* and of its central directory */
    char *names;        /* storage */
    char error[128];
};

/* The archive that ends at end, which is in the view. OK: to be freed; OTHER: none ends there; BAD;
 * of both, see error; MEMORY. It begins at or behind `from`. */
enum container_result zip_read(struct zip *z, const struct view *v, uint64_t from, uint64_t end);

/* Finds the member's data by its local header, which alone knows how long it is itself, unless that
 * is known. OK, BAD (see error) or MEMORY. */
enum container_result zip_locate(struct zip *z, const struct view *v, struct zip_member *m);

/* The member of that name; NULL: there is none. */
struct zip_member *zip_find(const struct zip *z, const char *name);

void zip_free(struct zip *z);

/* -- what a Python pickle says, without running any of it --
 *
 * A pickle is a program for a stack machine. This one knows the opcodes that torch.load(...,
 * weights_only=True) allows, and those by which protocols 3 to 5 write the same. Nothing is looked
 * up, called or made: a global is its name, a call a node with a function and its arguments. The
 * result is a graph, in which shared nodes are one.
 *
 * Time and memory are in proportion to the pickle: each opcode makes at most one node, and one link
 * for each thing that it takes from the stack. There is no recursion.
 */

/* The largest pickle that is read from a file of that weight (container.h). The pickle of an honest
 * file is a small part of it: some 250 bytes and 20 nodes for each tensor, of which the tensor has
 * more.
 */
size_t pickle_max_size(uint64_t weight);

/* Members that pickle_member() looks at. */
#define PICKLE_MAX_MEMBERS 64u

enum pickle_type {
    PICKLE_OTHER,      /* None, floats, bytes, big numbers: of no interest */
    PICKLE_BOOL,       /* value: 0 or 1 */
    PICKLE_INT,        /* value */
    PICKLE_TEXT,       /* text */
    PICKLE_TUPLE,      /* links */
    PICKLE_LIST,       /* links; sets, too */
    PICKLE_DICT,       /* links with keys */
    PICKLE_GLOBAL,     /* text: the module, then its name behind a dot */
    PICKLE_CALL,       /* function, arguments; links of both kinds: items set afterwards; state */
    PICKLE_PERSISTENT, /* arguments: what identifies an object that is stored elsewhere */
};

/* 0: no node, no link. */
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
    uint32_t next, key, value; /* key 0: an item of a list */
};

struct pickle {
    struct pickle_node *nodes;
    struct pickle_link *links;
    char *texts; /* each followed by a zero byte; may hold others */
    uint32_t root;
    char error[96];
    /* while it is read */
    const unsigned char *data;
    size_t size, at;
    uint64_t max_nodes; /* and links */
    uint32_t n_nodes, n_links, n_texts;
    size_t nodes_room, links_room;
    uint32_t *stack, *marks, *memo;
    size_t n_stack, stack_room, n_marks, marks_room, n_memo, memo_room;
};

/* weight: of the file that it stands in. OK: to be freed; BAD: see error; MEMORY. */
enum container_result pickle_read(struct pickle *p, const void *data, size_t size, uint64_t weight);

void pickle_free(struct pickle *p);

const struct pickle_node *pickle_get(const struct pickle *p, uint32_t node);

/* Of a text or a global; NULL: the node is not of that type, or has a zero byte. */
const char *pickle_text(const struct pickle *p, uint32_t node, enum pickle_type type);

/* Whether the node is that text, or the global of that name ("torch._utils._rebuild_tensor_v2"). */
int pickle_is_text(const struct pickle *p, uint32_t node, enum pickle_type type, const char *text);

/* The i-th item of a tuple or list; 0: there is none. */
uint32_t pickle_item(const struct pickle *p, uint32_t node, unsigned i);

/* What a dictionary, or the state of an object, has under that text; 0: nothing. Only the first
 * PICKLE_MAX_MEMBERS are looked at, so that it may be asked again and again. */
uint32_t pickle_member(const struct pickle *p, uint32_t node, const char *key);

/* A number that is not below zero; 0: the node is none. */
int pickle_count(const struct pickle *p, uint32_t node, uint64_t *count);

/* Such numbers of a tuple, or of a torch.Size; how many, or -1: it is none, or has more than most.
 */
int pickle_counts(const struct pickle *p, uint32_t node, uint64_t *counts, int most);

/* -- the .metadata of torch.distributed.checkpoint --
 *
 * A pickle of its class Metadata. Of interest are where each item lies, and which part of which
 * tensor it is.
 */

/* An item: a tensor, a part of one, or another object. */
struct dcp_item {
    const char *name, *file; /* file: that it lies in, relative to the directory */
    uint64_t offset, size;
    uint32_t extents, position; /* nodes of the pickle; 0: none. See dcp_get_part() */
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

/* The number of the first item of a file, behind which its others follow; d->n: it has none. */
size_t dcp_find(const struct dcp *d, const char *file);

/* The extents of the whole tensor, and the position of this part in it. Returns their rank; 0:
 * nothing is known of its shape. */
unsigned dcp_get_part(const struct dcp *d, const struct dcp_item *item,
                      uint64_t extents[LMC_MAX_RANK], uint64_t position[LMC_MAX_RANK]);

/* -- the tensors in an object that torch.save() has written --
 *
 * A view is what PyTorch calls a tensor: a dtype, a shape and strides over a part of a storage.
 */

struct torch_view {
    size_t member;   /* of the archive: its storage */
    uint64_t offset; /* in the storage, bytes */
    uint64_t size;   /* from its first to its last element, bytes */
    int is_dense;    /* then: each byte of them once */
    const char *dtype;
    unsigned bits;  /* of an element; 0: the dtype is not known */
    size_t name;    /* in names */
    size_t shape;   /* in shapes: of dense ones, in the order of memory */
    size_t logical; /* the same as PyTorch has it, then the strides */
    int is_kept;    /* for torch_save.c: a tensor of the list */
    int is_plain;   /* the order of memory is the logical one, and bytes are what they say */
    unsigned flags;
    unsigned rank;
    size_t order;       /* of all views, in the object */
    int is_repeated;    /* while they are found: it stands under this name already */
    uint32_t arguments; /* of the pickle: what it is made of */
};

struct torch_views {
    struct torch_view *list;
    size_t n, room;
    char *names; /* paths of keys; "" of an object that is a tensor */
    size_t names_size, names_room;
    uint64_t *shapes;
    size_t shapes_size, shapes_room;
    char error[128];
};

/* The dtype that PyTorch calls so: by a storage's class or by itself, "torch.HalfStorage",
 * "torch.float16". NULL: it is not known. */
const char *torch_dtype_name(const char *global);

/* The views of the pickle, whose storages are in members PREFIXdata/K; each stands under a name
 * once. budget: bytes that they may take. OK, BAD or MEMORY; to be freed in any case. */
enum container_result torch_find_views(struct torch_views *views, struct pickle *p,
                                       const struct zip *z, const char *prefix, uint64_t budget);

void torch_free_views(struct torch_views *views);

/* -- tensors of what torch.save() and torch.distributed.checkpoint write --
 *
 * A file of torch.save() is a ZIP archive: `NAME/data.pkl` is a pickle of the object, in which each
 * tensor is a call with a storage, an offset, a shape and strides, and `NAME/data/K`, stored, the
 * bytes of storage K. A .distcp file is a row of such archives, of one object each; `.metadata`
 * beside it says which. Files of before PyTorch 1.6 are something else, and are not read.
 *
 * A tensor is named by the keys that lead to it, "optimizer.state.0.exp_avg". What becomes of a
 * storage:
 *
 *     one tensor fills it, in any order of dimensions    that tensor; shape: in the order of memory
 *     tensors lie in it side by side                     each of them
 *     tensors share bytes, and one holds the others      the one; the note tells of the others
 *     else: parts of a storage, strides, overlaps        "NAME@storage", all of it in one dimension
 *     big-endian, quantised or of unknown type, or       "NAME" or "data/K", of dtype BYTES
 *     the pickle is not understood
 *
 * What PyTorch sees otherwise than this is a view of the container. A long data.pkl and a long
 * directory of the archive are "@data.pkl" and "@directory", of dtype BYTES.
 */

/* What .metadata says. */
struct dcp;

enum container_result container_parse_torch_save(struct container *c, const struct view *v);

/* d: what the file beside it says, or NULL; name: of the file, without its directory. */
enum container_result container_parse_distcp(struct container *c, const struct view *v,
                                             const struct dcp *d, const char *name);

/* Views of a file of either kind, see container_find_views(). */
enum container_result container_find_torch_views(struct container *c, const struct view *v,
                                                 const lmc_file *f, const struct dcp *d);

/* The part of a tensor's first dimension that a name tells of: "NAME[256:512]". Returns the size of
 * "NAME"; 0: it tells of none, or of other dimensions, too. */
size_t torch_parse_part(const char *name, uint64_t *begin, uint64_t *end);
