/* container.h - find the tensors in safetensors, GGUF, NumPy and PyTorch files
 * SPDX-License-Identifier: MIT
 *
 * Memory in, a list of lmc_tensor out: no I/O, so that it can be fuzzed. The caller hands over the
 * beginning of a file; if the header is not complete there, CONTAINER_MORE says how many bytes are
 * needed. Files of PyTorch have their directory at the end, and are read through a view. Nothing is
 * believed: every tensor that is handed out lies within the file, has a name of its own, overlaps
 * no other, and has the size that dtype and shape ask for.
 */
#pragma once

#include "../lmc.h"

/* safetensors allows 100,000,000 bytes of JSON; the other formats are held to the same. */
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
    CONTAINER_MORE,  /* looks like one, but at least need bytes from its beginning are wanted */
    CONTAINER_BAD,   /* looks like one, and is broken: see error */
    CONTAINER_MEMORY /* out of memory */
};

/* PyTorch has conjugated or negated a tensor by a flag: its elements are not what its bytes say. */
enum { VIEW_CONJUGATED = 1, VIEW_NEGATED = 2 };

/* A name for bytes of the file that no tensor of the list has, or not so: PyTorch has tensors that
 * share bytes, or whose elements lie in another order than their shape tells. */
struct container_view {
    const char *name, *dtype;
    unsigned rank;
    const uint64_t *shape, *strides; /* strides: in elements */
    unsigned bits;                   /* of an element */
    uint64_t offset;                 /* of its first element in the file */
    unsigned flags;
    int is_ambiguous; /* another tensor of the file has the name, too: keys may hold dots */
};

struct container {
    enum container_kind kind;
    lmc_tensor *tensors; /* sorted by offset */
    size_t n_tensors;
    uint64_t end;    /* where the data ends, padding included, as far as the header says */
    size_t need;     /* for CONTAINER_MORE */
    char error[256]; /* for CONTAINER_BAD */
    char note[256];  /* for CONTAINER_OK: what was not understood, and stays bytes; or "" */
    struct container_view *views;
    size_t n_views;
    /* storage behind the tensors and views */
    uint64_t *shapes;
    char *strings;
};

/* For messages. */
const char *container_name(enum container_kind kind);

/* Frees what the container holds, and empties it. */
void container_free(struct container *c);

/* The format that a file of this name should have. NONE, too, for what torch.save() writes, by
 * convention: see container_suffix(). */
enum container_kind container_kind_of_name(const char *name);

/* The end of the name by which programs know the format, such as ".npy" or ".pt"; or "". */
const char *container_suffix(const char *name);

/* data: the first size bytes of a file of file_size bytes, or LMC_UNKNOWN_SIZE. The content decides
 * what it is. expected: the format that its name promises, or CONTAINER_NONE; if the file is of
 * none, c->error says why it is not of that one. c is to be freed after CONTAINER_OK only. */
enum container_result container_parse(struct container *c, const void *data, size_t size,
                                      uint64_t file_size, enum container_kind expected);

/* What the views take, roughly. */
uint64_t container_weigh_views(const struct container *c);

/* Whether views of files in a snapshot of so many bytes have said as much as all of them may, by
 * what was read and by what they weigh: a snapshot has a few bytes for a file that is another
 * again. (A delta is small, and its base is not: for its files this does not hold.) */
int container_has_said_all(uint64_t n_read, uint64_t n_found, uint64_t size);

/* What NumPy calls a dtype. It has no type for BF16 and the 8-bit floats: it saves them as raw
 * bytes of that width, and so do we. */
const char *npy_descr(const char *dtype);

struct dcp;

/* A file that a parser reads where it wants: formats whose directory stands at the end cannot be
 * parsed from the beginning alone. */
struct view {
    uint64_t size;
    /* What the file takes where it was taken from, compressed perhaps: what a parser allocates is
     * in proportion to that, not to what a few bytes may claim or repeat. */
    uint64_t weight;
    /* size bytes from offset on, which lie within the view; not 0: they cannot be read */
    int (*read)(void *user, uint64_t offset, void *dst, size_t size);
    void *user;
};

/* Whether a file that begins so, or is called so, is to be read through a view. */
int container_wants_view(const void *data, size_t size, const char *name);

/* Whether a file that is called so is one of torch.distributed.checkpoint. */
int container_is_distcp(const char *name);

/* Whether that is what git checks out in place of a large file until git LFS fetches it. */
int container_is_lfs_pointer(const void *data, size_t size);
#define LFS_POINTER_SAYS "is a git LFS pointer, not the file; run 'git lfs pull'"

/* Whether a file that begins so is one of PyTorch of before 1.6, which is not read. */
int container_is_legacy_torch(const void *data, size_t size);

/* What container_parse() is for files that are read through a view; never MORE. name: of the file,
 * without its directory; d: what the .metadata beside it says, or NULL. What is OTHER or BAD is
 * plain bytes, whatever its name promises: those names are of other files, too. */
enum container_result container_parse_view(struct container *c, const struct view *v,
                                           const char *name, const struct dcp *d);

/* The tensors of such a file in a snapshot, as PyTorch has them: as views, without those that the
 * snapshot lists as they are. f: what it lists; BAD: also if the file does not tell of all of it.
 */
enum container_result container_find_views(struct container *c, const struct view *v,
                                           const lmc_file *f, const struct dcp *d);

/* -- elements of a view, in the order of its shape (gather.c) -- */

/* Zeros first, then: */
struct gathering {
    const unsigned char *span; /* all from the first to the last of the elements */
    size_t width;              /* of an element */
    unsigned rank;
    const uint64_t *counts, *strides; /* in elements; no count is 0 */
    uint64_t at[LMC_MAX_RANK];        /* the next one */
    int is_end;
};

/* The next elements, at most cap bytes (one or more). Returns how many bytes; 0: there are no more.
 */
size_t gather_elements(struct gathering *g, void *dst, size_t cap);

/* Conjugates and negates elements, as flags of a view say. 0: how is not known of the dtype. */
int resolve_flags(void *elements, size_t size, const char *dtype, unsigned flags);
