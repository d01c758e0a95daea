/* container.h - find the tensors in safetensors, GGUF, NumPy and PyTorch files
 * SPDX-License-Identifier: MIT
 *
 * The input is memory, the output is a list of lmc_tensor. There is no I/O, so fuzzing is simple.
 * The caller passes the beginning of a file. If the header is longer, CONTAINER_MORE tells how many
 * bytes are needed. Files of PyTorch have their directory at the end, and are read through a view.
 * All input is checked: every tensor of the list is within the file, overlaps no other tensor, and
 * has a unique name and the size that follows from dtype and shape.
 */
#pragma once

#include "../lmc.h"

/* safetensors allows 100,000,000 bytes of JSON; the other formats get the same limit. */
#define CONTAINER_MAX_HEADER 100000008u

enum container_kind {
    CONTAINER_NONE,
    CONTAINER_SAFETENSORS,
    CONTAINER_GGUF,
    CONTAINER_NPY,
    CONTAINER_TORCH
};

enum container_result {
    CONTAINER_OK,    /* the tensors are known */
    CONTAINER_OTHER, /* does not look like one of the formats */
    CONTAINER_MORE,  /* looks like one of them, but its first `need` bytes are needed */
    CONTAINER_BAD,   /* looks like one of them, but is damaged: see error */
    CONTAINER_MEMORY /* out of memory */
};

/* PyTorch has only flagged the tensor as conjugated or negated; its bytes have the old values. */
enum { VIEW_CONJUGATED = 1, VIEW_NEGATED = 2 };

/* A tensor of PyTorch that the list does not have as it is: it shares bytes with other tensors, or
 * its elements are not in the order of its shape. */
struct container_view {
    const char *name, *dtype;
    unsigned rank;
    const uint64_t *shape, *strides; /* strides: in elements */
    unsigned bits;                   /* of an element */
    uint64_t offset;                 /* of its first element in the file */
    unsigned flags;
    int is_ambiguous; /* another tensor of the file has the same name: keys may have dots */
};

struct container {
    enum container_kind kind;
    lmc_tensor *tensors; /* sorted by offset */
    size_t n_tensors;
    uint64_t end;    /* where the data and its padding end, as the header says */
    size_t need;     /* for CONTAINER_MORE */
    char error[256]; /* for CONTAINER_BAD */
    char note[256];  /* for CONTAINER_OK: what was not understood, and is left as bytes; or "" */
    struct container_view *views;
    size_t n_views;
    /* storage of the tensors and views */
    uint64_t *shapes;
    char *strings;
};

/* The name of the format, for messages. */
const char *container_name(enum container_kind kind);

/* Frees what the container holds, and empties it. */
void container_free(struct container *c);

/* The format that a file of this name should have. Names of torch.save() are only a convention, so
 * NONE for them: see container_suffix(). */
enum container_kind container_kind_of_name(const char *name);

/* The suffix by which programs recognise the format, such as ".npy" or ".pt"; or "". */
const char *container_suffix(const char *name);

/* data: the first size bytes of a file of file_size bytes (or LMC_UNKNOWN_SIZE). The content
 * decides what it is. expected: the format of its name, or CONTAINER_NONE; if the format is not
 * known, c->error tells why it is not the expected one. Free c only after CONTAINER_OK. */
enum container_result container_parse(struct container *c, const void *data, size_t size,
                                      uint64_t file_size, enum container_kind expected);

/* The memory that the views take, approximately. */
uint64_t container_weigh_views(const struct container *c);

/* Whether the views of all files in a snapshot of `size` bytes have reached a limit: of bytes that
 * were read (n_read), or of the views' memory (n_found). A few bytes of a snapshot can repeat a
 * file many times. (Not for deltas, which may be far smaller than their files.) */
int container_has_said_all(uint64_t n_read, uint64_t n_found, uint64_t size);

/* NumPy's descr of a dtype. NumPy has no type for BF16 and the 8-bit floats: it saves them as raw
 * bytes of that width, and so does lmc. */
const char *npy_descr(const char *dtype);

struct dcp;

/* The .metadata files of a snapshot that were read (torch.h), as all files of a checkpoint need
 * theirs. All zero at first. */
struct dcp_memo {
    struct dcp_kept *list; /* by file number */
    size_t n, room;
    uint64_t weight; /* bytes that the kept ones take */
};

/* A file with random access, for parsers of formats whose directory is at the end. */
struct view {
    uint64_t size;
    /* The bytes that the file takes where it is stored, perhaps compressed. This weight limits what
     * a parser allocates, as a few stored bytes can claim or repeat a lot. */
    uint64_t weight;
    /* Reads size bytes from offset on, which are within the view. Does not return 0 on errors. */
    int (*read)(void *user, uint64_t offset, void *dst, size_t size);
    void *user;
};

/* Whether a file with that beginning or name is to be read through a view. */
int container_wants_view(const void *data, size_t size, const char *name);

/* Whether the name is that of a file of torch.distributed.checkpoint. */
int container_is_distcp(const char *name);

/* Whether data is the pointer that replaces a large file in git until git LFS fetches it. */
int container_is_lfs_pointer(const void *data, size_t size);
#define LFS_POINTER_SAYS "is a git LFS pointer, not the file; run 'git lfs pull'"

/* Whether a file with that beginning is of a PyTorch before 1.6, which is not supported. */
int container_is_legacy_torch(const void *data, size_t size);

/* Like container_parse(), for files that are read through a view; never MORE. name: of the file,
 * without its directory; d: parsed from the .metadata beside it, or NULL. After OTHER or BAD, the
 * file is plain bytes, whatever its name: other files have such names, too. */
enum container_result container_parse_view(struct container *c, const struct view *v,
                                           const char *name, const struct dcp *d);

/* The same for a file in a snapshot: finds, as views, the tensors of PyTorch that the snapshot does
 * not list as they are. f: the list. BAD: also if the file does not describe all listed tensors.
 */
enum container_result container_find_views(struct container *c, const struct view *v,
                                           const lmc_file *f, const struct dcp *d);

/* -- elements of a view, in the order of its shape (gather.c) -- */

/* Must be all zero at first; then the caller sets the members before `at`. */
struct gathering {
    const unsigned char *span; /* all bytes from the first to the last element */
    size_t width;              /* of an element */
    unsigned rank;
    const uint64_t *counts, *strides; /* in elements; no count is 0 */
    uint64_t at[LMC_MAX_RANK];        /* of the next element */
    int is_end;
};

/* Copies the next elements, at most cap bytes (at least one element). Returns their size; 0: end.
 */
size_t gather_elements(struct gathering *g, void *dst, size_t cap);

/* Conjugates and negates elements by the flags of a view. 0: it cannot do so for that dtype. */
int resolve_flags(void *elements, size_t size, const char *dtype, unsigned flags);
