#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_file.h"
#include "codec/dtypes.h"
#include "quantize/quantizer.h"
#include "snapshot/buffer.h"
#include "snapshot/files.h"

/* Writes FILE bodies (spec 4.1). The writer parses them again (files.h) to check them. */

/* The Loss that is written for tensor number i, t; generation 0: nothing was lost. hints: as in
 * lmc__listed_file, or NULL. */
static lmc_loss lmc__get_loss(const lmc_tensor *t, size_t i, const lmc__buffer *hints)
{
#ifndef LMC_NO_ENCODER
    const lmc_quantizer *const quantizer = lmc__hints_at(hints, i).quantizer;
    const lmc__quant_params *const quant = lmc__get_quant_params(quantizer);
    if (quant && !quant->is_exact) return lmc__get_quantizer_loss(quantizer);
#endif
    (void)i, (void)hints;
    return t->loss;
}

/* How an entry refers to an earlier entry. size: bytes of the entry that depend on this choice. */
typedef struct lmc__reference {
    unsigned back, prefix, suffix;
    int is_like;
    uint64_t size;
} lmc__reference;

static int lmc__is_like(const lmc_tensor *a, const lmc_tensor *b)
{
    return a->rank == b->rank && a->size == b->size && strcmp(a->dtype, b->dtype) == 0 &&
           (a->rank == 0 || memcmp(a->shape, b->shape, 8 * a->rank) == 0);
}

/* Counts equal bytes of a and b, in steps of 1 or -1: at most 255, and at most n. */
static unsigned lmc__count_shared(const char *a, const char *b, size_t n, int step)
{
    unsigned i = 0;
    while (i < 255 && i < n && a[step * (int)i] == b[step * (int)i]) i++;
    return i;
}

static uint64_t lmc__count_type_bytes(const lmc_tensor *t, enum lmc_dtype dtype)
{
    uint64_t n = 2;
    unsigned i;
    for (i = 0; i < t->rank; i++) n += lmc__varint_size(t->shape[i]);
    return dtype == LMC_AUTO ? n + 1 + strlen(t->dtype) + lmc__varint_size(t->size) : n;
}

/* The number of previous entries that are tried as a reference: layers have similar names. */
#define LMC__MAX_BACK 8u

/* The reference that makes the entry of t smallest. n: number of entries before t. */
static lmc__reference lmc__choose_reference(const lmc_tensor *t, size_t n, enum lmc_dtype dtype)
{
    const uint64_t type_size = lmc__count_type_bytes(t, dtype);
    const size_t name_size = strlen(t->name);
    lmc__reference best = {0, 0, 0, 0, lmc__varint_size(name_size) + name_size + type_size};
    unsigned back;
    for (back = 1; back <= LMC__MAX_BACK && back <= n; back++) {
        const lmc_tensor *const other = t - back;
        const size_t other_size = strlen(other->name), most = lmc__min(name_size, other_size);
        lmc__reference found;
        size_t middle;
        found.back = back;
        found.prefix = lmc__count_shared(t->name, other->name, most, 1);
        found.suffix = most == found.prefix ? 0
                                            : lmc__count_shared(t->name + name_size - 1,
                                                                other->name + other_size - 1,
                                                                most - found.prefix, -1);
        found.is_like = lmc__is_like(t, other);
        middle = name_size - found.prefix - found.suffix;
        found.size = 2 + lmc__varint_size(middle) + middle + (found.is_like ? 0 : type_size);
        if (found.size < best.size) best = found;
    }
    return best;
}

/* Appends an entry, as lmc__parse_tensor reads it, after n other entries. position: where the
 * previous tensor ends. The error of a loss is rounded down to a multiple of 2^-32 below 1. */
LMC__COLD static enum lmc_status lmc__append_tensor(lmc__buffer *out, const lmc_tensor *t, size_t n,
                                                    enum lmc_dtype dtype, uint64_t position,
                                                    const lmc__buffer *hints)
{
    const lmc__reference r = lmc__choose_reference(t, n, dtype);
    const lmc_loss loss = lmc__get_loss(t, n, hints);
    const uint64_t gap = t->offset - position;
    const size_t middle = strlen(t->name) - r.prefix - r.suffix;
    unsigned i;
    if (loss.generation > 255) return LMC_ERR_ARGUMENT;
    if (loss.generation &&
        (!(loss.error >= 0) || loss.error > 1 || (unsigned)loss.measure - 1 > 254))
        return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__append8(out, (r.is_like ? (unsigned)LMC__TENSOR_IS_LIKE : 0u) |
                                   (gap ? (unsigned)LMC__TENSOR_HAS_GAP : 0u) |
                                   (loss.generation ? (unsigned)LMC__TENSOR_HAS_LOSS : 0u)));
    LMC__TRY(lmc__append_varint(out, r.back));
    if (r.back) {
        LMC__TRY(lmc__append8(out, r.prefix));
        LMC__TRY(lmc__append8(out, r.suffix));
    }
    LMC__TRY(lmc__append_varint(out, middle));
    LMC__TRY(lmc__append(out, t->name + r.prefix, middle));
    if (gap) LMC__TRY(lmc__append_varint(out, gap));
    if (!r.is_like) {
        LMC__TRY(lmc__append8(out, (unsigned)dtype));
        if (dtype == LMC_AUTO) {
            LMC__TRY(lmc__append8(out, (unsigned)strlen(t->dtype)));
            LMC__TRY(lmc__append(out, t->dtype, strlen(t->dtype)));
        }
        LMC__TRY(lmc__append8(out, t->rank));
        for (i = 0; i < t->rank; i++) LMC__TRY(lmc__append_varint(out, t->shape[i]));
        if (dtype == LMC_AUTO) LMC__TRY(lmc__append_varint(out, t->size));
    }
    if (!loss.generation) return LMC_OK;
    LMC__TRY(lmc__append8(out, loss.generation));
    LMC__TRY(lmc__append8(out, (unsigned)loss.measure));
    return lmc__append32(out, loss.error < 1 ? (uint32_t)(loss.error * 4294967296.0) : UINT32_MAX);
}

/* Appends all tensors. Refuses only what an entry cannot express; the parser checks the rest. */
LMC__COLD static enum lmc_status lmc__append_tensors(lmc__buffer *out, const lmc_file *file,
                                                     const lmc__buffer *hints)
{
    uint64_t position = 0;
    size_t i;
    for (i = 0; i < file->n_tensors; i++) {
        const lmc_tensor *const t = &file->tensors[i];
        enum lmc_dtype dtype;
        if (!t->name || !t->dtype || strlen(t->dtype) > LMC__MAX_DTYPE_SIZE ||
            (t->rank && !t->shape) || t->rank > LMC_MAX_RANK)
            return LMC_ERR_ARGUMENT;
        dtype = lmc_dtype_find(t->dtype);
        if (dtype != LMC_AUTO &&
            lmc__tensor_size(lmc_dtype_bits(dtype), t->rank, t->shape) != t->size)
            return LMC_ERR_ARGUMENT;
        LMC__TRY(lmc__append_tensor(out, t, i, dtype, position, hints));
        position = t->offset + t->size;
    }
    return LMC_OK;
}

/* Appends the entries of a file and of its tensors. prefix: bytes of the path that are shared with
 * the previous entry. Refuses only what cannot be written; lmc__list_files checks the rest. */
LMC__COLD static enum lmc_status lmc__append_file_entry(lmc__buffer *out, const lmc_file *file,
                                                        unsigned prefix, const lmc__buffer *hints)
{
    const int is_directory = file->kind == LMC_FILE_DIRECTORY,
              is_unknown = file->size == LMC_UNKNOWN_SIZE;
    uint8_t field[8];
    size_t n;
    if (!file->path || file->n_tensors > LMC__MAX_TENSORS || (file->n_tensors && !file->tensors))
        return LMC_ERR_ARGUMENT;
    n = strlen(file->path);
    if (n > LMC__MAX_STRING || (unsigned)file->kind > LMC_FILE_DIRECTORY) return LMC_ERR_ARGUMENT;
    if ((is_directory && file->size != 0) || ((is_directory || is_unknown) && file->n_tensors))
        return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__append8(out, (is_directory ? (unsigned)LMC__FILE_IS_DIRECTORY : 0u) |
                                   (file->has_mode ? (unsigned)LMC__FILE_HAS_MODE : 0u) |
                                   (file->has_mtime ? (unsigned)LMC__FILE_HAS_MTIME : 0u) |
                                   (is_unknown ? (unsigned)LMC__FILE_IS_UNKNOWN : 0u)));
    LMC__TRY(lmc__append8(out, prefix));
    LMC__TRY(lmc__append_varint(out, n - prefix));
    LMC__TRY(lmc__append(out, file->path + prefix, n - prefix));
    if (!is_directory && !is_unknown) LMC__TRY(lmc__append_varint(out, file->size));
    if (file->has_mode) LMC__TRY(lmc__append_varint(out, file->mode));
    if (file->has_mtime) {
        lmc__store64(field, (uint64_t)file->mtime_s);
        LMC__TRY(lmc__append(out, field, 8));
        LMC__TRY(lmc__append32(out, file->mtime_ns));
    }
    if (is_directory || is_unknown) return LMC_OK;
    LMC__TRY(lmc__append_varint(out, file->n_tensors));
    return lmc__append_tensors(out, file, hints);
}

LMC__INLINE enum lmc_status lmc__append_file(lmc__buffer *out, const lmc_file *file,
                                             const lmc__buffer *hints)
{
    LMC__TRY(lmc__append_varint(out, 1)); /* number of files */
    return lmc__append_file_entry(out, file, 0, hints);
}
