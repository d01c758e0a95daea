#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "codec/job.h"
#include "codec/put_block.h"
#include "codec/put_quantized.h"
#include "codec/get_block.h"

/* Codes blocks in parallel. A *job* is the work on one block. A *wave* is the jobs that the
 * caller's parallel_for runs at once, each on the workspace of the worker that takes it. Jobs share
 * no memory that is written, so any order gives the same bytes.
 *
 *     plan       one thread fills jobs[0 .. n): src, dst, options
 *     run        parallel->run: task(arg, i, worker) for each i, on any thread, in any order
 *     gather     one thread reads jobs[i].status and dst_size, in order
 *
 * Only parallel->run synchronises: tasks see what was planned before the call, and their results
 * are seen after it. The library takes no locks. */

typedef struct lmc__wave {
    const lmc__kernels *k;
    lmc__job *jobs;      /* NULL if jobs are part of larger structs */
    uint8_t *workspaces; /* one for each worker, workspace_size bytes each */
    size_t workspace_size;
    size_t temp_size; /* at each workspace's end: room for a block of which a part is kept */
} lmc__wave;

/* For each worker in a wave: jobs (several, so that fewer workers wait at the wave's end), and the
 * limit of their decoded bytes. */
#define LMC__JOBS_PER_WORKER 4u
#define LMC__WAVE_BYTES_PER_WORKER ((size_t)8 << 20)

/* Without a parallel_for the calling thread is worker 0. */
static unsigned lmc__count_workers(const lmc_parallel *parallel)
{
    return parallel ? parallel->n_workers : 1;
}

static enum lmc_status lmc__check_parallel(const lmc_parallel *parallel)
{
    if (!parallel) return LMC_OK;
    LMC__CHECK_CALLBACKS(parallel, run);
    return parallel->n_workers - 1 < 1024 ? LMC_OK : LMC_ERR_ARGUMENT;
}
/* Jobs of one wave of blocks of block_size decoded bytes: at least one for each worker. */
static size_t lmc__count_jobs(const lmc_parallel *parallel, size_t block_size)
{
    const size_t n = LMC__WAVE_BYTES_PER_WORKER / block_size;
    return (n ? lmc__min(n, LMC__JOBS_PER_WORKER) : 1) * lmc__count_workers(parallel);
}

/* Runs task(arg, i, worker) for i below n; returns when all have returned. */
static void lmc__run_tasks(const lmc_parallel *parallel, lmc_task task, void *arg, size_t n)
{
    size_t i;
    if (parallel && n > 1) parallel->run(parallel->user, task, arg, n, parallel->n_workers);
    else
        for (i = 0; i < n; i++) task(arg, i, 0);
}

#ifndef LMC_NO_ENCODER
/* Encodes a job's block. Returns the content that the block's CRC covers: job->src, or its
 * quantised elements, which are in the worker's workspace until the worker's next job. */
static const uint8_t *lmc__encode_job(const lmc__wave *wave, lmc__job *job, unsigned worker)
{
    uint8_t *const ws = wave->workspaces + worker * wave->workspace_size;
    const uint8_t *content = job->src;
    job->status = job->quant
                      ? lmc__encode_quantized(wave->k, job, ws, wave->workspace_size, &content)
                      : lmc__encode_block(wave->k, job, ws, wave->workspace_size);
    return content;
}
#endif

/* Decodes a job's block, whose header was read to job->info. Returns a pointer to its whole
 * content, which is valid until the worker's next job if job->status is LMC_OK. */
static const uint8_t *lmc__decode_job(const lmc__wave *wave, lmc__job *job, unsigned worker)
{
    uint8_t *ws = wave->workspaces + worker * wave->workspace_size;
    const int is_whole = job->keep == job->info.size;
    uint8_t *content = is_whole ? job->dst : ws + wave->workspace_size - wave->temp_size;
    job->status =
        lmc__decode_block(wave->k, content, job->streaming, job->src, &job->info, job->base,
                          job->is_own, ws, wave->workspace_size - wave->temp_size);
    if (job->status == LMC_OK && !is_whole) memcpy(job->dst, content + job->skip, job->keep);
    return content;
}

#ifndef LMC_NO_ENCODER
static void lmc__encode_task(void *arg, size_t index, unsigned worker)
{
    const lmc__wave *wave = (const lmc__wave *)arg;
    (void)lmc__encode_job(wave, &wave->jobs[index], worker);
}
#endif

static void lmc__decode_task(void *arg, size_t index, unsigned worker)
{
    const lmc__wave *wave = (const lmc__wave *)arg;
    (void)lmc__decode_job(wave, &wave->jobs[index], worker);
}

/* The first error in the order of the jobs: that which a single worker would have found first. */
static enum lmc_status lmc__wave_status(const lmc__wave *wave, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) LMC__TRY(wave->jobs[i].status);
    return LMC_OK;
}
