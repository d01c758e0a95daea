#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "codec/job.h"
#include "codec/put_block.h"
#include "codec/put_quantised.h"
#include "codec/get_block.h"

/* Blocks coded side by side. A *job* is one block; a *wave* is the jobs that the caller's
 * parallel_for runs at once, each on the workspace of the worker that takes it. Jobs of a wave
 * share nothing that is written, so any order gives the same bytes.
 *
 *     plan       one thread fills jobs[0 .. n): src, dst, how
 *     run        parallel->run: task(arg, i, worker) for each i, on any thread, in any order
 *     gather     one thread looks at jobs[i].status and dst_size, in order
 *
 * parallel->run is the only thing that synchronises: what was planned before is seen by all tasks,
 * and what they did is seen after it. The library takes no locks. */

typedef struct lmc__wave {
    const lmc__kernels *k;
    lmc__job *jobs;      /* NULL where jobs are part of larger structs */
    uint8_t *workspaces; /* one for each worker, workspace_size bytes each */
    size_t workspace_size;
    size_t temp_size; /* at the end of each workspace: room for a block that is not kept whole */
} lmc__wave;

/* Jobs of a wave for each worker, so that none waits for the slowest, and their most decoded
 * bytes. */
#define LMC__JOBS_PER_WORKER 4u
#define LMC__WAVE_BYTES_PER_WORKER ((size_t)8 << 20)

/* Without a parallel_for the caller is the only worker, number 0. */
static unsigned lmc__count_workers(const lmc_parallel *parallel)
{
    return parallel ? parallel->n_workers : 1;
}

static int lmc__is_parallel(const lmc_parallel *parallel)
{
    return !parallel || (parallel->run && parallel->n_workers >= 1 && parallel->n_workers <= 1024);
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
/* Encodes a job's block. Returns the content that its CRC is of: job->src, or what quantising made
 * of it, which stays in the worker's workspace until its next job. */
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

/* Decodes a job's block, whose header was read to job->info. Returns all of its content, wherever
 * that is; it is valid if job->status is LMC_OK, until the worker's next job. */
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

/* The first error of n jobs, in order: so it does not depend on who was faster, and is the one that
 * a single worker would have found first. */
static enum lmc_status lmc__wave_status(const lmc__wave *wave, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) LMC__TRY(wave->jobs[i].status);
    return LMC_OK;
}
