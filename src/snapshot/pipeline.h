#pragma once
#include "base/platform.h"
#include "kernels/dispatch.h"
#include "tensor/wave.h"
#include "snapshot/buffer.h"
#include "snapshot/identity.h"

/* Bytes to be written. */
typedef struct lmc__part {
    const uint8_t *data;
    size_t size;
} lmc__part;

/* Buffers and workspaces of waves; grow to what the blocks at hand need. Writer and restorer code a
 * wave while what the wave before it has made is written and what the next one needs is read, so
 * they have two buffers of each kind. Reading and writing are tasks beside those that code: no
 * threads but those of the caller's lmc_parallel. */
typedef struct lmc__coder {
    lmc__wave wave;
    const lmc_parallel *parallel;
    lmc__buffer jobs, pieces, workspaces, in[2], out[2];
    lmc__buffer base;    /* encoding: predictions of the wave's blocks */
    size_t max_jobs;     /* the reader: of one wave */
    size_t n_jobs;       /* of the wave that is being planned */
    unsigned out_number; /* the wave at hand makes out[out_number] */
    lmc_task task;       /* what the jobs are */
    lmc_sink sink;       /* takes the parts; write NULL: nobody wants them */
    lmc__buffer parts;   /* of the other out */
    int write_failed;
    lmc_stream stream;
    uint8_t
        *read_to; /* what is wanted of the stream: read_size bytes, of which read_got are there */
    size_t read_size, read_got;
    size_t read_portion; /* the most that is read beside one wave */
    int read_failed, ended;
} lmc__coder;

static void lmc__open_coder(lmc__coder *c, const lmc_parallel *parallel, void *alloc_user)
{
    memset(c, 0, sizeof *c);
    c->wave.k = lmc__get_kernels();
    c->parallel = parallel;
    c->jobs.alloc_user = c->pieces.alloc_user = c->workspaces.alloc_user = c->parts.alloc_user =
        alloc_user;
    c->base.alloc_user = c->in[0].alloc_user = c->in[1].alloc_user = c->out[0].alloc_user =
        c->out[1].alloc_user = alloc_user;
}

static void lmc__free_coder(lmc__coder *c)
{
    unsigned i;
    lmc__free_buffer(&c->jobs);
    lmc__free_buffer(&c->pieces);
    lmc__free_buffer(&c->workspaces);
    lmc__free_buffer(&c->parts);
    lmc__free_buffer(&c->base);
    for (i = 0; i < 2; i++) {
        lmc__free_buffer(&c->in[i]);
        lmc__free_buffer(&c->out[i]);
    }
}

/* Prepare for blocks of up to block_size bytes, n_elements elements each, beside those that are
 * planned; in_parts: to decode blocks of which only a part is kept. */
static enum lmc_status lmc__set_coder(lmc__coder *c, size_t block_size, size_t n_elements,
                                      int in_parts)
{
    const size_t temp_size = in_parts ? (block_size + 15) & ~(size_t)15 : 0;
    const size_t size = ((lmc_workspace_size(n_elements) + 15) & ~(size_t)15) + temp_size;
    c->max_jobs = lmc__count_jobs(c->parallel, block_size);
    LMC__TRY(lmc__reserve(&c->jobs, c->max_jobs * sizeof(lmc__job)));
    if (size > c->wave.workspace_size) c->wave.workspace_size = size;
    LMC__TRY(lmc__reserve(&c->workspaces,
                          (uint64_t)c->wave.workspace_size * lmc__count_workers(c->parallel)));
    c->wave.jobs = (lmc__job *)(void *)c->jobs.data;
    c->wave.workspaces = c->workspaces.data;
    c->wave.temp_size = temp_size;
    return LMC_OK;
}

/* Decoded bytes of a wave for each worker: more makes waking and waiting for the workers rarer,
 * less keeps the four buffers in the caches. Not tuned: sizes from 1/2 to 4 MiB were compared on a
 * loaded machine only, which showed no clear best. */
#define LMC__WAVE_SIZE ((size_t)1 << 20)

/* Decoded bytes of a wave of blocks of up to block_size bytes. */
static uint64_t lmc__get_wave_size(const lmc__coder *c, size_t block_size)
{
    return (uint64_t)lmc__count_workers(c->parallel) *
           (block_size > LMC__WAVE_SIZE ? block_size : LMC__WAVE_SIZE);
}

/* Room for one more job of the wave. */
static enum lmc_status lmc__add_job(lmc__coder *c, lmc__job **job)
{
    c->jobs.size = c->n_jobs * sizeof **job;
    LMC__TRY(lmc__append(&c->jobs, NULL, sizeof **job));
    c->wave.jobs = (lmc__job *)(void *)c->jobs.data;
    *job = &c->wave.jobs[c->n_jobs++];
    return LMC_OK;
}

static enum lmc_status lmc__add_part(lmc__coder *c, const uint8_t *data, size_t size)
{
    lmc__part part;
    part.data = data;
    part.size = size;
    return c->sink.write && size ? lmc__append(&c->parts, &part, sizeof part) : LMC_OK;
}

static void lmc__write_parts(lmc__coder *c)
{
    const lmc__part *part = (const lmc__part *)(const void *)c->parts.data;
    size_t i;
    for (i = 0; i < c->parts.size / sizeof *part && !c->write_failed; i++)
        c->write_failed = c->sink.write(c->sink.user, part[i].data, part[i].size) != 0;
}

/* Continue with what is wanted of the stream, up to a portion. */
static void lmc__read_portion(lmc__coder *c)
{
    const size_t end = lmc__min(c->read_size, c->read_got + c->read_portion);
    while (c->read_got < end && !c->ended && !c->read_failed) {
        size_t n = 0;
        c->read_failed =
            c->stream.read(c->stream.user, c->read_to + c->read_got, end - c->read_got, &n) != 0 ||
            n > end - c->read_got;
        if (c->read_failed) break;
        c->ended = n == 0;
        c->read_got += n;
    }
}

static void lmc__step_task(void *arg, size_t index, unsigned worker)
{
    lmc__coder *c = (lmc__coder *)arg;
    if (index == 0) lmc__write_parts(c); /* first what takes longest */
    else if (index == 1) lmc__read_portion(c);
    else c->task(&c->wave, index - 2, worker);
}

/* Code the wave that is planned, write the parts, read. */
static enum lmc_status lmc__run_step(lmc__coder *c)
{
    const size_t n = c->n_jobs;
    size_t i;
    c->wave.pieces = (lmc__piece *)(void *)c->pieces.data;
    if (c->parallel && n > 0) c->parallel->run(c->parallel->user, lmc__step_task, c, n + 2);
    else
        for (i = 0; i < n + 2; i++) lmc__step_task(c, i, 0);
    c->parts.size = 0;
    c->n_jobs = 0;
    c->base.size = 0;
    if (c->write_failed) return LMC_ERR_WRITE;
    LMC__TRY(lmc__wave_status(&c->wave, n));
    return c->read_failed ? LMC_ERR_READ : LMC_OK;
}

/* Write what is still to be written. */
static enum lmc_status lmc__drain(lmc__coder *c)
{
    lmc__write_parts(c);
    c->parts.size = 0;
    return c->write_failed ? LMC_ERR_WRITE : LMC_OK;
}

/* Ask for size bytes of the stream, to come with the next steps. */
static void lmc__want(lmc__coder *c, uint8_t *dst, size_t size, size_t portion)
{
    c->read_to = dst;
    c->read_size = size;
    c->read_got = 0;
    c->read_portion = portion;
}

/* Plan the pieces of a job that covers the next size bytes of the digester's file. */
static enum lmc_status lmc__plan_job(lmc__coder *c, lmc__digester *d, lmc__job *job, size_t size)
{
    job->first_piece = c->pieces.size / sizeof(lmc__piece);
    job->n_pieces = 0;
    while (size != 0) {
        lmc__piece piece = lmc__plan_piece(d, size);
        LMC__TRY(lmc__append(&c->pieces, &piece, sizeof piece));
        size -= piece.size;
        job->n_pieces++;
    }
    return LMC_OK;
}

static void lmc__absorb_pieces(lmc__coder *c, lmc__digester *d)
{
    size_t i;
    for (i = 0; i < c->pieces.size / sizeof(lmc__piece); i++)
        lmc__absorb_piece(d, &c->wave.pieces[i]);
    c->pieces.size = 0;
}
