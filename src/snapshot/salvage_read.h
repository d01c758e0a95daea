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
#include "snapshot/identity.h"
#include "snapshot/pipeline.h"
#include "snapshot/sections.h"
#include "snapshot/origin.h"
#include "snapshot/reader.h"
#include "snapshot/salvage.h"

/* -- what was found, decoded -- */

/* The block to dst, of block->length bytes. number SIZE_MAX: of a run without a place. */
static enum lmc_status lmc__decode_copy(lmc_reader *r, size_t number, const lmc__found_block *block,
                                        uint8_t *dst)
{
    static const lmc__streaming off = {0, NULL, 0};
    const lmc__reader_run *const run = number == SIZE_MAX ? NULL : lmc__run_at(r, number);
    lmc__coder *const c = r->coder;
    enum lmc_status status;
    lmc_position position;
    lmc_block_info info;
    const int is_own = run && run->run.prediction == LMC__PREDICT_OWN;
    if (block->has_prediction) { /* before the coder is in use, which may have to read it */
        if (!run) return LMC_ERR_NOT_FOUND;
        LMC__TRY(run->prediction);
        LMC__CHECK(run->run.prediction != LMC__PREDICT_ZERO, LMC_ERR_CORRUPT);
        LMC__TRY(lmc__read_prediction(&r->origin, &run->run,
                                      (uint64_t)block->block * run->run.block_size, dst,
                                      block->length));
    }
    LMC__TRY(lmc__set_coder(c, block->length, lmc__min(block->length, LMC_MAX_BLOCK_ELEMENTS), 0));
    c->in[0].size = 0;
    LMC__TRY(lmc__reserve(&c->in[0], block->size));
    LMC__TRY(lmc__read_at(r, block->at, c->in[0].data, block->size));
    position.run = block->run;
    position.block = block->block;
    LMC__TRY(lmc__read_block_info(c->wave.k, c->in[0].data, block->size, position, &info));
    LMC__CHECK(info.size == block->length && info.encoded_size == block->size &&
                   info.has_prediction == block->has_prediction,
               LMC_ERR_CORRUPT); /* it changed */
    status = lmc__decode_block(c->wave.k, dst, off, c->in[0].data, &info,
                               info.has_prediction ? dst : NULL, c->wave.workspaces,
                               c->wave.workspace_size);
    return status == LMC_ERR_BASE_WRONG && is_own ? LMC_ERR_CORRUPT : status;
}

/* The copies of a block, of which the first is number i of those found, one after another. */
static enum lmc_status lmc__decode_found(lmc_reader *r, size_t number, size_t i, uint8_t *dst)
{
    lmc__salvage *const s = &r->salvage;
    const size_t n = number == SIZE_MAX ? s->blocks.size / sizeof(lmc__found_block) : s->n_blocks;
    const lmc__found_block first = *lmc__found_at(r, i);
    enum lmc_status status = LMC_ERR_NOT_FOUND;
    size_t j;
    if (first.is_doubtful) return LMC_ERR_CORRUPT;
    for (j = i; j < n; j++) {
        const lmc__found_block *const f = lmc__found_at(r, j);
        if (f->run != first.run || f->block != first.block) break;
        if (f->trust == 0 && !s->in_container &&
            (f->outer_run != first.run || f->outer_block != first.block)) {
            if (s->container_run != f->outer_run || s->container_block != f->outer_block) {
                const size_t outer = lmc__find_found(r, f->outer_run, f->outer_block);
                const lmc__found_block *const found =
                    outer < s->n_blocks ? lmc__found_at(r, outer) : NULL;
                s->container_status = LMC_ERR_NOT_FOUND;
                if (found && found->run == f->outer_run && found->block == f->outer_block) {
                    s->container.size = 0;
                    LMC__TRY(lmc__reserve(&s->container, found->length));
                    s->in_container = 1;
                    s->container_status =
                        lmc__decode_found(r, f->outer_run, outer, s->container.data);
                    s->in_container = 0;
                    if (s->container_status == LMC_ERR_MEMORY) return LMC_ERR_MEMORY;
                }
                s->container_run = f->outer_run;
                s->container_block = f->outer_block;
            }
            if (s->container_status == LMC_OK) continue;
        }
        status = lmc__decode_copy(r, number, f, dst);
        if (status == LMC_OK || status == LMC_ERR_MEMORY) return status;
    }
    return status;
}

/* As lmc__read_run. */
static enum lmc_status lmc__read_salvaged(lmc_reader *r, size_t number, uint64_t offset,
                                          uint8_t *dst, size_t size)
{
    const lmc__run *const run = &lmc__run_at(r, number)->run;
    lmc__buffer *const part = &r->base[run->prediction == LMC__PREDICT_OWN];
    while (size != 0) {
        const uint64_t block = offset / run->block_size;
        const size_t skip = (size_t)(offset - block * run->block_size),
                     length = lmc__block_size_at(run, block), n = lmc__min(length - skip, size);
        const size_t i = lmc__find_found(r, number, block);
        uint8_t *to = dst;
        LMC__CHECK(i < r->salvage.n_blocks && lmc__found_at(r, i)->run == number &&
                       lmc__found_at(r, i)->block == block,
                   LMC_ERR_NOT_FOUND);
        LMC__CHECK(lmc__found_at(r, i)->length == length,
                   LMC_ERR_NOT_FOUND); /* of an unknown run */
        if (n < length) {
            part->size = 0;
            LMC__TRY(lmc__reserve(part, length));
            to = part->data;
        }
        LMC__TRY(lmc__decode_found(r, number, i, to));
        if (n < length) memcpy(dst, to + skip, n);
        dst += n;
        offset += n;
        size -= n;
    }
    return LMC_OK;
}

/* -- ranges -- */

static int8_t *lmc__confirmed_at(const lmc_reader *r, size_t file_number)
{
    return (int8_t *)(void *)r->salvage.confirmed.data + lmc__file_at(r, file_number)->confirmed_at;
}

/* Tensors that end at or before `end` are complete, or never will be. */
static void lmc__confirm_tensors(lmc_reader *r, const lmc_file *file, int8_t *confirmed,
                                 uint64_t end)
{
    lmc__digester *const d = &r->salvage.digester;
    while (d->tensor < file->n_tensors &&
           file->tensors[d->tensor].offset + file->tensors[d->tensor].size <= end) {
        const lmc_tensor *const t = &file->tensors[d->tensor];
        const int is_whole = d->tensor_done == t->size;
        const size_t tensor = d->tensor;
        uint8_t identity[LMC_IDENTITY_SIZE];
        lmc__finish_identity_to(d, identity); /* goes on to the next */
        if (is_whole)
            confirmed[1 + tensor] =
                (int8_t)(memcmp(identity, t->identity, LMC_IDENTITY_SIZE) == 0 ? 1 : -1);
    }
}

/* The next bytes of the file at hand; data NULL: they are lost. */
static void lmc__digest_range(lmc_reader *r, size_t number, uint64_t offset, const uint8_t *data,
                              uint64_t size)
{
    const lmc__kernels *const k = r->coder->wave.k;
    lmc__salvage *const s = &r->salvage;
    lmc__digester *const d = &s->digester;
    const lmc_file *const file = &lmc__file_at(r, number)->file;
    int8_t *const confirmed = lmc__confirmed_at(r, number);
    const uint64_t end = offset + size;
    if (!s->damage.has_index) return;
    if (offset == 0) {
        lmc__begin_digester(d, file);
        s->is_whole = 1;
    }
    s->is_whole &= data != NULL;
    if (data) d->file_crc = k->crc32c(d->file_crc, data, (size_t)size);
    for (; offset < end && d->tensor < file->n_tensors;) {
        const lmc_tensor *const t = &file->tensors[d->tensor];
        uint64_t part;
        lmc__confirm_tensors(r, file, confirmed, offset);
        if (d->tensor == file->n_tensors || file->tensors[d->tensor].offset >= end) break;
        if (t != &file->tensors[d->tensor]) continue;
        part = lmc__min64(end, t->offset + t->size);
        if (offset < t->offset) {
            if (data) data += t->offset - offset;
            offset = t->offset;
        }
        part -= offset;
        if (data && offset - t->offset == d->tensor_done) {
            lmc__piece piece;
            part = lmc__min64(part, LMC__LEAF_SIZE - d->leaf_size);
            piece.size = (uint32_t)part;
            piece.in_tensor = 1;
            piece.crc = k->crc32c(0, data, (size_t)part);
            d->leaf_crc = lmc__crc_combine(d->leaf_crc, piece.crc, piece.size);
            d->leaf_size += piece.size;
            d->tensor_done += part;
            if (d->leaf_size == LMC__LEAF_SIZE) {
                uint8_t field[4];
                lmc__store32(field, d->leaf_crc);
                lmc__sha256_update(&d->sha, field, 4);
                d->leaf_size = d->leaf_crc = 0;
            }
        }
        offset += part;
        if (data) data += part;
    }
    lmc__confirm_tensors(r, file, confirmed, end);
    if (end == file->size && s->is_whole)
        confirmed[0] = (int8_t)(d->file_crc == file->crc ? 1 : -1);
}

static enum lmc_status lmc__lose(lmc_reader *r, lmc_range *range, uint64_t end)
{
    lmc__salvage *const s = &r->salvage;
    range->size = end - s->offset;
    range->status = LMC_ERR_NOT_FOUND;
    lmc__digest_range(r, s->file, s->offset, NULL, range->size);
    s->offset = end;
    return LMC_OK;
}

/* Number i of those found, to range. */
static enum lmc_status lmc__deliver(lmc_reader *r, size_t number, size_t i, lmc_range *range)
{
    lmc__salvage *const s = &r->salvage;
    const uint64_t most =
        r->options.limits.max_total_size ? r->options.limits.max_total_size : UINT64_MAX;
    const lmc__found_block *const f = lmc__found_at(r, i);
    enum lmc_status status;
    if (f->length > most - lmc__min64(most, s->delivered)) return LMC_ERR_LIMIT;
    s->range.size = 0;
    LMC__TRY(lmc__reserve(&s->range, f->length));
    range->size = f->length;
    range->position.run = f->run;
    range->position.block = f->block;
    status = lmc__decode_found(r, number, i, s->range.data);
    if (status == LMC_ERR_MEMORY) return status;
    range->status = status;
    if (status == LMC_OK) range->data = s->range.data;
    s->delivered += f->length;
    return LMC_OK;
}

LMC_API enum lmc_status lmc_next_range(lmc_reader *r, lmc_range *range)
{
    lmc__salvage *const s = r ? &r->salvage : NULL;
    if (!r || !range || !r->options.salvage) return LMC_ERR_ARGUMENT;
    memset(range, 0, sizeof *range);
    range->position.run = range->position.block = UINT32_MAX;
    for (; s->file < r->n_files;
         s->file++, s->offset = 0,
                    s->run = s->file < r->n_files ? lmc__file_at(r, s->file)->first_run : 0) {
        const lmc__reader_file *const f = lmc__file_at(r, s->file);
        range->file_number = s->file;
        range->offset = s->offset;
        for (; s->run < f->first_run + f->n_runs; s->run++) {
            const lmc__run *const run = &lmc__run_at(r, s->run)->run;
            uint64_t at;
            size_t i;
            if (s->offset < run->start) return lmc__lose(r, range, run->start);
            at = s->offset - run->start;
            if (at >= run->size) continue;
            if (at % run->block_size !=
                0) /* behind a run that reached into this one: only of a hostile file */
                return lmc__lose(
                    r, range,
                    run->start +
                        lmc__min64(at - at % run->block_size + run->block_size, run->size));
            i = lmc__find_found(r, s->run, at / run->block_size);
            range->position.run = (uint32_t)s->run;
            range->position.block = (uint32_t)(at / run->block_size);
            if (i == s->n_blocks || lmc__found_at(r, i)->run != s->run)
                return lmc__lose(r, range, run->start + run->size);
            if (lmc__found_at(r, i)->block != range->position.block)
                return lmc__lose(
                    r, range, run->start + lmc__found_at(r, i)->block * (uint64_t)run->block_size);
            LMC__TRY(lmc__deliver(r, s->run, i, range));
            lmc__digest_range(r, s->file, s->offset, (const uint8_t *)range->data, range->size);
            s->offset += range->size;
            return LMC_OK;
        }
        if (f->file.size != LMC_UNKNOWN_SIZE && s->offset < f->file.size)
            return lmc__lose(r, range, f->file.size);
        if (f->file.size == 0) lmc__digest_range(r, s->file, 0, (const uint8_t *)"", 0);
    }
    if (s->unplaced == 0) s->unplaced = s->n_blocks;
    if (s->unplaced == s->blocks.size / sizeof(lmc__found_block)) return LMC_ERR_NOT_FOUND;
    range->file_number = SIZE_MAX;
    range->offset = 0;
    LMC__TRY(lmc__deliver(r, SIZE_MAX, s->unplaced, range));
    for (s->unplaced++; s->unplaced < s->blocks.size / sizeof(lmc__found_block);
         s->unplaced++) { /* its copies */
        const lmc__found_block *const f = lmc__found_at(r, s->unplaced);
        if (f->run != range->position.run || f->block != range->position.block) break;
    }
    return LMC_OK;
}

LMC_API enum lmc_status lmc_get_damage(const lmc_reader *r, lmc_damage *damage)
{
    if (!r || !damage || !r->options.salvage) return LMC_ERR_ARGUMENT;
    *damage = r->salvage.damage;
    return LMC_OK;
}

LMC_API int lmc_is_described(const lmc_reader *r, size_t file_number)
{
    return r && file_number < r->n_files && lmc__file_at(r, file_number)->is_described;
}

LMC_API int lmc_confirm(const lmc_reader *r, size_t file_number, const lmc_tensor *tensor)
{
    const lmc_file *const file = lmc_get_file(r, file_number);
    if (!file || !r->options.salvage) return 0;
    return lmc__confirmed_at(r, file_number)[tensor ? 1 + (size_t)(tensor - file->tensors) : 0];
}
