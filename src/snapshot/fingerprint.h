#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_file.h"
#include "kernels/crc32c.h"
#include "kernels/sum64.h"
#include "kernels/types.h"
#include "snapshot/buffer.h"
#include "snapshot/sha256.h"

/* Computes the fingerprints of a file's tensors and the CRC of the file (spec 7.1); on request, the
 * hashes of its content, too (hashes.h).
 *
 * A tensor is cut into *leaves* of 256 KiB (the chunks of spec 7.1). Its fingerprint is a SHA-256
 * of its dtype, its shape, and two sums of each leaf. They are the CRC-32C, which blocks need
 * anyway, and the sum of its words. A file is cut into *pieces*: each piece is in one block, and
 * in one leaf or in no tensor:
 *     tensors   |------- A ---------------|  gap  |--- B --|
 *     leaves    |-- 0 ---|-- 1 ---|- 2 ---|       |-- 0 ---|
 *     blocks    |------ 0 ------|------ 1 ------|-- 2 -----|
 *     pieces    |   a    |  b   |c| d     | e   |f|   g    |      (e and f are the gap)
 *
 * Pieces are planned in order (lmc__plan_piece). Workers compute their sums in any order, while the
 * block is in the cache. Then lmc__absorb_piece joins the sums in order, without the bytes
 * (lmc__crc32c_combine). The file's CRC is joined from part_crc: the CRC of the file's bytes in
 * each block. A file without tensors counts as one tensor of bytes. */
#define LMC__HASH_SIZE 32u

typedef struct lmc__piece {
    uint64_t sum; /* sum and crc are set only if in_tensor */
    uint32_t crc;
    uint32_t size;
    int in_tensor;
    unsigned phase; /* the piece begins at this byte of a word of the tensor */
    /* a *part* is one file's bytes in one block; its first piece has its size and CRC, others 0 */
    uint32_t part_size, part_crc;
} lmc__piece;

typedef struct lmc__digester {
    const lmc_file *file;
    /* the next piece begins at byte `planned` of the file, in or before planned_tensor */
    uint64_t planned;
    size_t planned_tensor;
    uint64_t absorbed;    /* bytes of the file */
    size_t tensor;        /* the tensor that is being absorbed, or the next */
    uint64_t tensor_done; /* absorbed bytes of that tensor */
    uint64_t leaf_sum;
    uint32_t leaf_crc, leaf_size, file_crc;
    lmc__sha256 sha;
    /* NULL: no hashes. Else it gets the SHA-256 of each tensor's bytes (computed in `content`) and,
     * when the file ends, of all other bytes (in `outside`); it has room for them */
    lmc__buffer *hashes;
    lmc__sha256 content, outside;
    uint8_t *fingerprints; /* the output: 16 bytes for each tensor, or for the file */
} lmc__digester;

/* Begins the next tensor. `type` makes its digest differ from that of a file or a directory. */
static void lmc__begin_fingerprint(lmc__digester *d)
{
    const uint8_t type = d->file->n_tensors ? 0 : d->file->kind != LMC_FILE_DIRECTORY ? 1 : 2;
    lmc__sha256_init(&d->sha);
    lmc__sha256_update(&d->sha, "LMC tensor 3", 13);
    lmc__sha256_update(&d->sha, &type, 1);
    d->tensor_done = d->leaf_sum = 0;
    d->leaf_crc = d->leaf_size = 0;
}

/* Begins a file. `file` must live as long as d is in use, and its tensors must be in order. */
static void lmc__begin_digester(lmc__digester *d, const lmc_file *file)
{
    memset(d, 0, sizeof *d);
    d->file = file;
    lmc__begin_fingerprint(d);
}

/* Turns on the hashes of content. Call this right after lmc__begin_digester. */
static enum lmc_status lmc__begin_hashes(lmc__digester *d, lmc__buffer *hashes)
{
    d->hashes = hashes;
    lmc__sha256_init(&d->content);
    lmc__sha256_init(&d->outside);
    return lmc__reserve(hashes, LMC__HASH_SIZE * ((uint64_t)d->file->n_tensors + 1));
}

/* Appends the hash of the bytes that sha has taken, and begins the next hash. */
static void lmc__finish_hash(lmc__digester *d, lmc__sha256 *sha)
{
    if (!d->hashes) return;
    lmc__sha256_finish(sha, d->hashes->data + d->hashes->size);
    d->hashes->size += LMC__HASH_SIZE;
    lmc__sha256_init(sha);
}

/* The sum of the words (sum64.h) in size bytes. The first byte is byte `phase` of a word. */
static uint64_t lmc__sum_words(const lmc__kernels *k, const uint8_t *p, size_t size, unsigned phase)
{
    const size_t n = phase ? lmc__min(8 - phase, size) : 0;
    uint8_t head[8] = {0};
    if (n) memcpy(head + phase, p, n);
    return lmc__load64(head) + k->sum64(p + n, size - n);
}

static size_t lmc__count_fingerprints(const lmc_file *file)
{
    return file->n_tensors ? file->n_tensors : 1;
}

/* The next piece, of at most max > 0 bytes. It ends at the latest where a leaf, a tensor, or the
 * gap between two tensors ends. Empty tensors have no pieces. */
static lmc__piece lmc__plan_piece(lmc__digester *d, size_t max)
{
    const lmc_tensor *const tensors = d->file->tensors, *t;
    uint64_t start = 0, end = UINT64_MAX;
    lmc__piece piece;
    memset(&piece, 0, sizeof piece);
    while (d->planned_tensor < d->file->n_tensors &&
           tensors[d->planned_tensor].offset + tensors[d->planned_tensor].size <= d->planned)
        d->planned_tensor++;
    t = d->planned_tensor < d->file->n_tensors ? &tensors[d->planned_tensor] : NULL;
    piece.in_tensor = t ? t->offset <= d->planned : d->file->n_tensors == 0;
    if (t) start = t->offset;
    if (t) end = piece.in_tensor ? start + t->size : start; /* or the end of a gap */
    if (piece.in_tensor) {
        piece.phase = (unsigned)(d->planned - start) % 8;
        end = lmc__min64(end, d->planned + LMC__LEAF_SIZE - (d->planned - start) % LMC__LEAF_SIZE);
    }
    piece.size = (uint32_t)lmc__min64(max, end - d->planned); /* max is at most a block */
    d->planned += piece.size;
    return piece;
}

static void lmc__finish_leaf(lmc__digester *d)
{
    lmc__sha256_number(&d->sha, d->leaf_crc, 4);
    lmc__sha256_number(&d->sha, d->leaf_sum, 8);
    d->leaf_sum = 0;
    d->leaf_crc = d->leaf_size = 0;
}

/* Ends the current tensor, of which tensor_done bytes were absorbed, and begins the next tensor. A
 * file without tensors counts as a U8 tensor, whose size may be known only now. */
static void lmc__end_fingerprint(lmc__digester *d)
{
    const lmc_tensor *t = d->file->n_tensors ? &d->file->tensors[d->tensor] : NULL;
    const unsigned rank = t ? t->rank : 1;
    unsigned i;
    if (d->leaf_size) lmc__finish_leaf(d);
    lmc__sha256_text(&d->sha, t ? t->dtype : "U8", 1);
    lmc__sha256_number(&d->sha, rank, 1);
    for (i = 0; i < rank; i++) lmc__sha256_number(&d->sha, t ? t->shape[i] : d->tensor_done, 8);
    lmc__sha256_number(&d->sha, d->tensor_done, 8);
    lmc__finish_fingerprint(&d->sha, d->fingerprints + d->tensor * LMC_FINGERPRINT_SIZE);
    if (t) lmc__finish_hash(d, &d->content);
    d->tensor++;
    lmc__begin_fingerprint(d);
}

static void lmc__finish_fingerprints(lmc__digester *d)
{
    while (d->tensor < d->file->n_tensors && d->tensor_done == d->file->tensors[d->tensor].size)
        lmc__end_fingerprint(d);
}

/* Absorbs the next piece in the planned order. Its sums must be set. data: its bytes, used only for
 * hashes. First finishes the tensors that end before this piece, including empty tensors. */
static void lmc__absorb_piece(lmc__digester *d, const lmc__piece *piece, const uint8_t *data)
{
    const int in_tensor = piece->in_tensor && d->file->n_tensors;
    d->file_crc = lmc__crc32c_combine(d->file_crc, piece->part_crc, piece->part_size);
    d->absorbed += piece->size;
    if (piece->in_tensor) lmc__finish_fingerprints(d);
    if (d->hashes) lmc__sha256_update(in_tensor ? &d->content : &d->outside, data, piece->size);
    if (!piece->in_tensor) return;
    d->leaf_crc = lmc__crc32c_combine(d->leaf_crc, piece->crc, piece->size);
    d->leaf_sum += piece->sum;
    d->leaf_size += piece->size;
    d->tensor_done += piece->size;
    if (d->leaf_size == LMC__LEAF_SIZE) lmc__finish_leaf(d);
}

/* Plans and absorbs the next bytes of the file. All planned pieces must have been absorbed. */
LMC__INLINE void lmc__absorb_bytes(lmc__digester *d, const lmc__kernels *k, const uint8_t *p,
                                   size_t size)
{
    while (size != 0) {
        lmc__piece piece = lmc__plan_piece(d, size);
        piece.crc = piece.part_crc = k->crc32c(0, p, piece.size);
        piece.sum = lmc__sum_words(k, p, piece.size, piece.phase);
        piece.part_size = piece.size;
        lmc__absorb_piece(d, &piece, p);
        p += piece.size;
        size -= piece.size;
    }
}

static void lmc__finish_digester(lmc__digester *d)
{
    if (d->file->n_tensors) lmc__finish_fingerprints(d);
    else lmc__end_fingerprint(d);
    lmc__finish_hash(d, &d->outside);
}
