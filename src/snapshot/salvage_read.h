#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "kernels/crc32c.h"
#include "codec/get_block.h"
#include "tensor/wave.h"
#include "snapshot/buffer.h"
#include "snapshot/sha256.h"
#include "snapshot/fingerprint.h"
#include "snapshot/pipeline.h"
#include "snapshot/sections.h"
#include "snapshot/files.h"
#include "snapshot/runs.h"
#include "snapshot/origin.h"
#include "snapshot/index.h"
#include "snapshot/work.h"
#include "snapshot/reader.h"
#include "snapshot/salvage.h"

/* Decodes the blocks that were found: to read bytes of a file (lmc__read_salvaged), or range by
 * range, with the lost ranges between them (lmc_salvage_next).
 *
 *     lmc_salvage_next ---> the next block of the runs in order, or the gap before it
 *     lmc_reader_read_file ----> lmc__read_salvaged: the blocks of a range, by binary search
 *          both ---> lmc__decode_found: the first copy that is intact ---> lmc__decode_copy
 *
 * The walk has checked the CRCs of headers. Payload_CRC and Content_CRC are checked here. */

/* -- blocks -- */

/* Decodes one copy of a block of run `number` to dst, found->length bytes.
 *
 * The header is read and checked again, because the file may have changed since the walk. The
 * prediction is read to dst first, since this may need the coder, and the block is decoded over it.
 * If the prediction cannot be read, returns that error; but if the payload is damaged, too, returns
 * the payload's error. */
static enum lmc_status lmc__decode_copy(lmc_reader *r, size_t number, uint32_t block,
                                        const lmc__found_block *found, uint8_t *dst)
{
    const lmc__reader_run *const run = lmc__run_at(r, number);
    lmc__coder *const c = r->coder;
    enum lmc_status status, prediction = run->prediction;
    lmc_block_info info;
    if (found->has_prediction && prediction == LMC_OK) {
        LMC__VALID(run->run.prediction != LMC__PREDICT_ZERO);
        prediction = lmc__read_prediction(
            &r->origin, &run->run, (uint64_t)block * run->run.block_size, dst, found->length);
    }
    LMC__TRY(lmc__set_coder(c, found->length, 1, 0));
    c->in[0].size = 0;
    LMC__TRY(lmc__reserve(&c->in[0], found->size));
    LMC__TRY(lmc__read_at(r, found->at, c->in[0].data, found->size));
    LMC__TRY(lmc__read_block_info(c->wave.k, c->in[0].data, found->size, block, &info));
    LMC__VALID(info.size == found->length && info.encoded_size == found->size &&
               info.has_prediction == found->has_prediction); /* else the file has changed */
    LMC__TRY(lmc__spend(r->meter, (uint64_t)info.size + info.encoded_size));
    LMC__TRY(lmc__check_block_features(c->in[0].data, r->info.features));
    status = lmc__decode_block(c->wave.k, dst, lmc__no_streaming, c->in[0].data, &info,
                               prediction == LMC_OK ? dst : NULL, lmc__is_own_prediction(&run->run),
                               c->wave.workspaces, c->wave.workspace_size);
    return status == LMC_ERR_BASE_MISSING ? prediction : status;
}

/* Decodes the first intact copy of a block. Number i in s->blocks is its first copy. */
LMC__COLD static enum lmc_status lmc__decode_found(lmc_salvage *s, size_t number, uint32_t block,
                                                   size_t i, uint8_t *dst)
{
    const uint64_t key = lmc__found_at(s, i)->key;
    enum lmc_status status = LMC_ERR_LOST;
    if (lmc__found_at(s, i)->is_doubtful) return LMC_ERR_CORRUPT;
    for (; i < lmc__count_found(s) && lmc__found_at(s, i)->key == key; i++) {
        status = lmc__decode_copy(&s->reader, number, block, lmc__found_at(s, i), dst);
        if (status == LMC_OK || status == LMC_ERR_MEMORY || status == LMC_ERR_LIMIT) return status;
    }
    return status;
}

/* The reader's read_run. It decodes block by block, and ends at the first lost block.
 *
 * If only a part of a block is wanted, the block is decoded to a buffer. There are two such
 * buffers: to read a prediction from this snapshot, this function calls itself. */
LMC__COLD static enum lmc_status lmc__read_salvaged(lmc_reader *r, size_t number, uint64_t offset,
                                                    uint8_t *dst, size_t size)
{
    lmc_salvage *const s = lmc__get_salvage(r);
    const lmc__run *const run = &lmc__run_at(r, number)->run;
    lmc__buffer *const part = &r->base[run->prediction == LMC__PREDICT_OWN];
    while (size != 0) {
        const uint64_t block = offset / run->block_size;
        const size_t skip = (size_t)(offset - block * run->block_size),
                     length = lmc__block_size_at(run, block), n = lmc__min(length - skip, size);
        const size_t i = lmc__find_copies(s, number, block);
        uint8_t *to = dst;
        LMC__CHECK(i < lmc__count_found(s), LMC_ERR_LOST);
        if (n < length) {
            part->size = 0;
            LMC__TRY(lmc__reserve(part, length));
            to = part->data;
        }
        LMC__TRY(lmc__decode_found(s, number, (uint32_t)block, i, to));
        if (n < length) memcpy(dst, to + skip, n);
        dst += n;
        offset += n;
        size -= n;
    }
    return LMC_OK;
}

/* -- ranges -- */

/* Whether a file (by its CRC), and then each of its tensors (by their fingerprints), is what was
 * written: 1, -1 if not, 0 until that is known. */
static int8_t *lmc__verdicts_of(const lmc_salvage *s, size_t file_number)
{
    return (int8_t *)(void *)s->verdicts.data +
           ((const size_t *)(const void *)s->verdicts_at.data)[file_number];
}

/* The result of a tensor with lost bytes, until its file has ended. */
#define LMC__HAS_LOSS 2

/* Skips the next bytes of the file, which are lost, and marks their tensors. The digests of these
 * tensors are finished, though they are wrong: so the digester reaches the next tensor. */
static void lmc__skip_lost(lmc__digester *d, int8_t *verdicts, uint64_t size)
{
    const lmc_file *const file = d->file;
    d->absorbed += size;
    d->planned = d->absorbed;
    for (;;) {
        const lmc_tensor *t;
        lmc__finish_fingerprints(d);
        if (d->tensor == file->n_tensors) return;
        t = &file->tensors[d->tensor];
        if (t->offset >= d->absorbed) return;
        verdicts[1 + d->tensor] = LMC__HAS_LOSS;
        d->tensor_done = lmc__min64(t->size, d->absorbed - t->offset);
        d->leaf_size = (uint32_t)(d->tensor_done % LMC__LEAF_SIZE);
        if (d->tensor_done < t->size) return;
    }
}

/* Ends the file: compares the file and its tensors with the index, if they are whole. */
static void lmc__confirm_file(lmc_salvage *s, const lmc_file *file, int8_t *verdicts)
{
    size_t i;
    lmc__finish_fingerprints(&s->digester);
    if (s->is_whole) verdicts[0] = (int8_t)(s->digester.file_crc == file->crc ? 1 : -1);
    for (i = 0; i < file->n_tensors; i++)
        verdicts[1 + i] = (int8_t)(verdicts[1 + i] == LMC__HAS_LOSS ? 0
                                   : memcmp(file->tensors[i].fingerprint,
                                            s->fingerprints.data + LMC_FINGERPRINT_SIZE * i,
                                            LMC_FINGERPRINT_SIZE) == 0
                                       ? 1
                                       : -1);
}

/* Takes the next `size` bytes of the current file; data NULL: they are lost. */
static void lmc__digest_next(lmc_salvage *s, const uint8_t *data, uint64_t size)
{
    const lmc_file *const file = &lmc__file_at(&s->reader, s->file)->file;
    int8_t *const verdicts = lmc__verdicts_of(s, s->file);
    if (s->damage.has_index) { /* else fingerprints are not known */
        if (s->offset == 0) {
            lmc__begin_digester(&s->digester, file);
            s->digester.fingerprints = s->fingerprints.data;
            s->is_whole = 1;
        }
        if (data) lmc__absorb_bytes(&s->digester, s->reader.coder->wave.k, data, (size_t)size);
        else lmc__skip_lost(&s->digester, verdicts, size);
        s->is_whole &= data != NULL;
        if (s->offset + size == file->size) lmc__confirm_file(s, file, verdicts);
    }
    s->offset += size;
}

/* Makes a range of `size` lost bytes. */
static enum lmc_status lmc__report_lost(lmc_salvage *s, lmc_salvage_range *range, uint64_t size)
{
    range->size = size;
    range->status = LMC_ERR_LOST;
    lmc__digest_next(s, NULL, size);
    return LMC_OK;
}

/* Makes a range of at most `most` bytes of a block of run `number`, from byte `skip` on. The block
 * is number i in s->blocks. range->status says whether the block is damaged; the returned status is
 * about the call. A block with bytes of several files is decoded only once.
 *
 * The limit also counts damaged blocks, to bound the work for a hostile file. */
static enum lmc_status lmc__deliver(lmc_salvage *s, size_t number, size_t i, size_t skip,
                                    uint64_t most, lmc_salvage_range *range)
{
    const uint64_t max = s->reader.options.max_total_size, limit = max ? max : UINT64_MAX;
    const lmc__found_block *const f = lmc__found_at(s, i);
    const size_t size = (size_t)lmc__min64(f->length - skip, most);
    int is_outermost;
    if (size > limit - lmc__min64(limit, s->delivered)) return LMC_ERR_LIMIT;
    if (skip == 0 || s->ranged != i + 1) {
        s->ranged = 0;
        s->range.size = 0;
        LMC__TRY(lmc__reserve(&s->range, f->length));
        is_outermost = lmc__begin_request(&s->reader, f->length, 0);
        s->ranged_status = lmc__decode_found(s, number, range->block_number, i, s->range.data);
        lmc__end_work(s->reader.meter, is_outermost);
        if (s->ranged_status == LMC_ERR_MEMORY) return LMC_ERR_MEMORY;
        s->ranged = i + 1;
    }
    range->size = size;
    range->status = s->ranged_status;
    if (range->status == LMC_OK) range->data = s->range.data + skip;
    s->delivered += size;
    return LMC_OK;
}

/* The next range of run s->run, which has byte `position` of the stream. The file ends at byte
 * `end` of the stream. The range is the file's part of a block that was found, or the lost bytes
 * before the next block.
 *
 *     blocks of the run   |##0##|     |     |##3##|#4#|          1 and 2 were not found
 *     files               |--- a -------------|- b ---|
 *     ranges              | 0   | lost      |3| 3 | 4 | */
static enum lmc_status lmc__next_of_run(lmc_salvage *s, uint64_t position, uint64_t end,
                                        lmc_salvage_range *range)
{
    const lmc__run *const run = &lmc__run_at(&s->reader, s->run)->run;
    const uint64_t at = position - run->start, block = at / run->block_size,
                   next = lmc__next_found(s, s->run, block);
    range->run_number = (uint32_t)s->run;
    range->block_number = (uint32_t)block;
    if (next > block)
        return lmc__report_lost(
            s, range,
            lmc__min64(end, run->start + lmc__min64(next * run->block_size, run->size)) - position);
    LMC__TRY(lmc__deliver(s, s->run, lmc__find_copies(s, s->run, block),
                          (size_t)(at - block * run->block_size), end - position, range));
    lmc__digest_next(s, (const uint8_t *)range->data, range->size);
    return LMC_OK;
}

/* The next range of the current file; LMC_ERR_NOT_FOUND: the file has ended. Bytes that no run has
 * are lost. A file of unknown size ends with its last run. */
static enum lmc_status lmc__next_of_file(lmc_salvage *s, lmc_salvage_range *range)
{
    const lmc__listed_file *const f = lmc__file_at(&s->reader, s->file);
    const lmc__stream *const stream = lmc__stream_of(&s->reader, f);
    const uint64_t position = f->start + s->offset,
                   end = f->file.size == LMC_UNKNOWN_SIZE ? UINT64_MAX : f->start + f->file.size;
    range->file_number = s->file;
    range->offset = s->offset;
    for (; s->run < stream->first_run + stream->n_runs && position < end; s->run++) {
        const lmc__run *const run = &lmc__run_at(&s->reader, s->run)->run;
        if (position < run->start)
            return lmc__report_lost(s, range, lmc__min64(end, run->start) - position);
        if (position - run->start < run->size) return lmc__next_of_run(s, position, end, range);
    }
    if (f->file.size != LMC_UNKNOWN_SIZE && position < end)
        return lmc__report_lost(s, range, end - position);
    if (f->file.size == 0) lmc__digest_next(s, (const uint8_t *)"", 0); /* it gets no range */
    return LMC_ERR_NOT_FOUND;
}

/* The next block without a place: its run and number are known, but not its file and offset. With
 * an index, or the rows of BLKS, a block without a place is not of this file. */
static enum lmc_status lmc__next_unplaced(lmc_salvage *s, lmc_salvage_range *range)
{
    const lmc_reader *const r = &s->reader;
    const size_t n = s->damage.has_index || s->has_rows ? 0 : lmc__count_found(s);
    uint64_t key = UINT64_MAX;
    for (; s->unplaced < n; s->unplaced++) {
        const size_t i = s->unplaced;
        key = lmc__found_at(s, i)->key;
        if (lmc__run_at(r, (size_t)(key >> 32))->run.size == 0 &&
            (i == 0 || lmc__found_at(s, i - 1)->key != key))
            break; /* not a copy */
    }
    if (s->unplaced >= n) return LMC_ERR_NOT_FOUND;
    range->file_number = SIZE_MAX;
    range->offset = 0;
    range->run_number = (uint32_t)(key >> 32);
    range->block_number = (uint32_t)key;
    LMC__TRY(lmc__deliver(s, range->run_number, s->unplaced, 0, UINT64_MAX, range));
    s->unplaced++;
    return LMC_OK;
}

/* Goes once through the files, then through the blocks without a place. range->status says whether
 * the range is intact. The status that is returned is about the call: if it is not LMC_OK (memory,
 * a limit), there is no range. */
LMC__COLD LMC_API enum lmc_status lmc_salvage_next(lmc_salvage *s, lmc_salvage_range *range)
{
    enum lmc_status status;
    lmc_reader *r;
    if (!s || !range) return LMC_ERR_ARGUMENT;
    r = &s->reader;
    memset(range, 0, sizeof *range);
    range->run_number = range->block_number = UINT32_MAX;
    while (s->file < r->tables.listing.n_files) {
        status = lmc__next_of_file(s, range);
        if (status != LMC_ERR_NOT_FOUND) return status;
        s->offset = 0;
        s->file++;
        if (s->file < r->tables.listing.n_files && lmc__file_at(r, s->file)->start == 0)
            s->run = lmc__stream_of(r, lmc__file_at(r, s->file))->first_run;
    }
    status = lmc__next_unplaced(s, range);
    if (status != LMC_ERR_NOT_FOUND) return status;
    range->is_end = 1;
    range->file_number = SIZE_MAX;
    range->offset = 0;
    return LMC_OK;
}

LMC_API enum lmc_status lmc_salvage_get_damage(const lmc_salvage *s, lmc_damage *damage)
{
    if (!s || !damage) return LMC_ERR_ARGUMENT;
    *damage = s->damage;
    return LMC_OK;
}

LMC_API lmc_reader *lmc_salvage_reader(lmc_salvage *s) { return s ? &s->reader : NULL; }

/* Whether the file's FILE section or the index was found. */
LMC_API int lmc_salvage_is_described(const lmc_salvage *s, size_t file_number)
{
    return s && file_number < s->reader.tables.listing.n_files &&
           lmc__file_at(&s->reader, file_number)->is_described;
}

LMC_STATUS lmc_salvage_confirm(const lmc_salvage *s, size_t file_number, size_t tensor_number)
{
    const lmc_file *const file = s ? lmc_reader_get_file(&s->reader, file_number) : NULL;
    int verdict;
    if (!file || (tensor_number != SIZE_MAX && tensor_number >= file->n_tensors))
        return LMC_ERR_ARGUMENT;
    verdict = lmc__verdicts_of(s, file_number)[tensor_number + 1]; /* SIZE_MAX + 1 = 0: the file */
    return verdict == 1 ? LMC_OK : verdict == -1 ? LMC_ERR_CHECKSUM : LMC_ERR_LOST;
}
