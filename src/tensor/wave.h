#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "codec/put_quantised.h"
#include "codec/put_block.h"
#include "codec/get_block.h"

/* One block of a wave. */
typedef struct lmc__job {
    const uint8_t *src;
    const uint8_t *base; /* its prediction; or NULL */
    int own;             /* that is this snapshot's own: if it is wrong, the file is */
    int is_done;         /* decoding: dst has the block already, they say */
    uint8_t *dst;
    size_t src_size, dst_size; /* encoding: dst_size is dst's capacity, then what was written */
    enum lmc_dtype dtype;      /* encoding */
    enum lmc_level level;
    const lmc_quantizer *quantizer; /* encoding; or NULL */
    uint64_t first_element;         /* of the quantizer's tensor */
    size_t
        head; /* the writer: bytes before dst that hold the header of the run which begins here */
    lmc_block_info info; /* decoding */
    lmc_position position;
    lmc__streaming streaming; /* decoding */
    size_t skip, keep; /* decoding: only info.size bytes [skip, skip + keep) go to dst, if keep is
                          not all of it */
    size_t first_piece, n_pieces; /* section 9 */
    enum lmc_status status;
} lmc__job;

typedef struct lmc__piece { /* of a block: as much as belongs to one leaf of one tensor, or to none
                               (section 9) */
    uint32_t size, crc;
    int in_tensor;
} lmc__piece;

typedef struct lmc__wave {
    const lmc__kernels *k;
    lmc__job *jobs;
    lmc__piece *pieces;  /* NULL: none wanted */
    uint8_t *workspaces; /* one for each worker */
    size_t workspace_size;
    size_t temp_size; /* at the end of each workspace: room for a block that is not kept whole */
} lmc__wave;

/* Blocks in flight for each worker, and the most memory that they may take for each, so that 8 MiB
 * blocks do not come in fours. */
#define LMC__JOBS_PER_WORKER 4u
#define LMC__WAVE_BYTES_PER_WORKER ((size_t)8 << 20)

static unsigned lmc__count_workers(const lmc_parallel *parallel)
{
    return parallel ? parallel->n_workers : 1;
}
static int lmc__is_parallel(const lmc_parallel *parallel)
{
    return !parallel || (parallel->run && parallel->n_workers >= 1 && parallel->n_workers <= 1024);
}
static size_t lmc__count_jobs(const lmc_parallel *parallel, size_t block_size)
{
    size_t n = LMC__WAVE_BYTES_PER_WORKER / block_size;
    return (n < 1                      ? 1
            : n > LMC__JOBS_PER_WORKER ? LMC__JOBS_PER_WORKER
                                       : n) *
           lmc__count_workers(parallel);
}

static void lmc__run_wave(const lmc_parallel *parallel, lmc_task task, lmc__wave *wave, size_t n)
{
    size_t i;
    if (parallel && n > 1) parallel->run(parallel->user, task, wave, n);
    else
        for (i = 0; i < n; i++) task(wave, i, 0);
}

/* The CRCs of a job's pieces, which make up the bytes at p, whose CRC is crc. */
static void lmc__set_piece_crcs(const lmc__wave *wave, const lmc__job *job, const uint8_t *p,
                                uint32_t crc)
{
    size_t i;
    if (!wave->pieces) return;
    if (job->n_pieces == 1) {
        wave->pieces[job->first_piece].crc = crc;
        return;
    }
    for (i = job->first_piece; i < job->first_piece + job->n_pieces; i++) {
        lmc__piece *piece = &wave->pieces[i];
        piece->crc = wave->k->crc32c(0, p, piece->size);
        p += piece->size;
    }
}

static void lmc__encode_task(void *arg, size_t index, unsigned worker)
{
    const lmc__wave *wave = (const lmc__wave *)arg;
    lmc__job *job = &wave->jobs[index];
    uint8_t *ws = wave->workspaces + worker * wave->workspace_size;
    const uint8_t *content = job->src;
    if (job->quantizer)
        job->status =
            lmc__encode_quantised(wave->k, job->dst, job->dst_size, &job->dst_size, job->src,
                                  job->src_size, job->base, job->quantizer, job->first_element,
                                  job->level, job->position, ws, wave->workspace_size, &content);
    else
        job->status = lmc__encode_block(wave->k, job->dst, job->dst_size, &job->dst_size, job->src,
                                        job->src_size, job->base, job->dtype, job->level,
                                        job->position, ws, wave->workspace_size);
    if (job->status == LMC_OK) lmc__set_piece_crcs(wave, job, content, lmc__load32(job->dst + 12));
}

static void lmc__decode_task(void *arg, size_t index, unsigned worker)
{
    const lmc__wave *wave = (const lmc__wave *)arg;
    lmc__job *job = &wave->jobs[index];
    uint8_t *ws = wave->workspaces + worker * wave->workspace_size;
    const int whole = job->keep == job->info.size;
    uint8_t *dst = whole ? job->dst : ws + wave->workspace_size - wave->temp_size;
    if (job->is_done)
        job->status =
            wave->k->crc32c(0, dst, job->info.size) == job->info.crc ? LMC_OK : LMC_ERR_BASE_WRONG;
    else
        job->status = lmc__decode_block(wave->k, dst, job->streaming, job->src, &job->info,
                                        job->base, ws, wave->workspace_size - wave->temp_size);
    if (job->status == LMC_ERR_BASE_WRONG && job->own) job->status = LMC_ERR_CORRUPT;
    if (job->status != LMC_OK) return;
    if (!whole) memcpy(job->dst, dst + job->skip, job->keep);
    lmc__set_piece_crcs(wave, job, dst, job->info.crc);
}

/* The first error of n jobs, in order. */
static enum lmc_status lmc__wave_status(const lmc__wave *wave, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) LMC__TRY(wave->jobs[i].status);
    return LMC_OK;
}
