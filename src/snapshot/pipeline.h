#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "base/wire_file.h"
#include "kernels/dispatch.h"
#include "kernels/strip.h"
#include "codec/workspace.h"
#include "codec/block_header.h"
#include "codec/put_block.h"
#include "tensor/wave.h"
#include "snapshot/buffer.h"
#include "snapshot/fingerprint.h"

/* How the writer, the restorer (restore.h) and the reader code blocks in waves (tensor/wave.h). An
 * lmc__coder has the buffers, and runs the waves.
 *
 * Writer and restorer use two buffers of each kind in turns. While wave w is coded, the output of
 * wave w - 1 is written, and the input of wave w + 1 is read:
 *     step          1          2          3          4
 *     read      in[0]: w0  in[1]: w1  in[0]: w2  in[1]: w3
 *     code                 out[0]: w0 out[1]: w1 out[0]: w2
 *     write                           out[0]: w0 out[1]: w1
 *
 * Writing and reading are two more tasks in the same call of the caller's lmc_parallel
 * (lmc__step_task), so all threads are the caller's. For each worker, a wave has LMC__WAVE_SIZE
 * decoded bytes, or one larger block. */

typedef struct lmc__snapshot_job {
    lmc__job job;
    size_t first_piece, n_pieces; /* the pieces of the block's content, in coder.pieces */
    /* writer: size of a RUN section (header and body) that is in front of job.dst; 0: none */
    size_t head_size;
    /* encoding: room for a copy of the bytes that were encoded, if hashes need it; or NULL */
    uint8_t *content;
    int may_change;       /* encoding: job.src is the caller's memory, and may change at any time */
    int has_base;         /* writer: 1: job.base, if it is used, is of the base */
    size_t run;           /* reader: number of the block's run */
    int is_unread;        /* restoring: the prediction is missing, so only the payload is checked */
    uint64_t file_offset; /* restoring with write_at: where the block begins in the file */
} lmc__snapshot_job;

/* Bytes to write; they must stay in place until they are written. */
typedef struct lmc__part {
    const uint8_t *data;
    size_t size;
} lmc__part;

/* Buffers, workspaces and callbacks of one writer, restorer or reader. Buffers never shrink, so a
 * wave allocates only if it is larger than all earlier waves. */
typedef struct lmc__coder {
    /* lmc__snapshot_job, lmc__piece: of the wave that is being planned */
    lmc__buffer jobs, pieces;
    lmc__buffer workspaces, in[2], out[2];
    lmc__buffer base;  /* encoding: predictions of the wave's blocks */
    lmc__buffer parts; /* lmc__part; their bytes are in the previous wave's `out` */
    lmc__wave wave;    /* its member jobs is NULL: jobs are in the buffer `jobs` */
    const lmc_parallel *parallel;
    size_t n_jobs;       /* of the wave that is being planned */
    unsigned out_number; /* the current wave writes to out[out_number] */
    lmc_task task;       /* called for each job, with the coder as arg */
    lmc_sink sink;       /* gets the parts; write is NULL if there is no output */
    /* restoring in place: an earlier attempt has written the wave's blocks. Their bytes were read
     * back to dst, and only their CRCs are checked */
    int is_written;
    /* restoring: each task writes its own block with this, instead of the sink; or NULL */
    enum lmc_status (*write_at)(void *user, size_t file_number, uint64_t offset, const void *data,
                                size_t size);
    size_t file_number; /* for write_at */
    enum lmc_status write_status;
    lmc_stream stream;
    /* read_size bytes of the stream are to be read to read_to; read_got: bytes read so far.
     * read_portion: the maximum that is read while one wave is coded; when encoding, read_per_coded
     * times the bytes that the wave codes */
    uint8_t *read_to;
    size_t read_size, read_got, read_portion, read_per_coded;
    /* bytes that are left of the previous read; they are copied in front of read_to, where there is
     * room */
    const uint8_t *rest;
    size_t rest_size;
    enum lmc_status read_status;
    int ended;
    /* or NULL; done: bytes of files so far */
    enum lmc_status (*progress)(void *user, uint64_t done);
    void *progress_user;
    uint64_t done;
} lmc__coder;
#define LMC__CODER_BUFFERS LMC__ROW(lmc__coder, jobs, wave)

static void lmc__open_coder(lmc__coder *c, const lmc_parallel *parallel,
                            const lmc_allocator *allocator)
{
    memset(c, 0, sizeof *c);
    c->wave.k = lmc__get_kernels();
    c->parallel = parallel;
    lmc__init_buffers(c, LMC__CODER_BUFFERS, allocator);
}

static void lmc__free_coder(lmc__coder *c) { lmc__free_buffers(c, LMC__CODER_BUFFERS); }

/* Prepares for blocks of up to block_size bytes, with elements of at least `width` bytes. Jobs may
 * be planned already: their workspaces stay large enough. in_parts: 1 to decode blocks of which
 * only a part is kept. */
static enum lmc_status lmc__set_coder(lmc__coder *c, size_t block_size, unsigned width,
                                      int in_parts)
{
    const size_t temp_size = in_parts ? (block_size + 15) & ~(size_t)15 : 0;
    const size_t size =
        ((lmc_block_workspace_size(block_size / width, width) + 15) & ~(size_t)15) + temp_size;
    LMC__TRY(lmc__reserve(&c->jobs,
                          lmc__count_jobs(c->parallel, block_size) * sizeof(lmc__snapshot_job)));
    if (size > c->wave.workspace_size) c->wave.workspace_size = size;
    LMC__TRY(lmc__reserve(&c->workspaces,
                          (uint64_t)c->wave.workspace_size * lmc__count_workers(c->parallel)));
    c->wave.workspaces = c->workspaces.data;
    c->wave.temp_size = temp_size;
    return LMC_OK;
}

/* Decoded bytes of a wave for each worker: four blocks of weights. Larger waves start the workers
 * and wait for them less often. Smaller waves keep the buffers in the caches (bench/tried.md). */
#define LMC__WAVE_SIZE ((size_t)512 << 10)

static uint64_t lmc__get_wave_size(const lmc__coder *c, size_t block_size)
{
    return (uint64_t)lmc__count_workers(c->parallel) *
           (block_size > LMC__WAVE_SIZE ? block_size : LMC__WAVE_SIZE);
}

/* Valid until the next job is added. */
static lmc__snapshot_job *lmc__job_at(const lmc__coder *c, size_t i)
{
    return (lmc__snapshot_job *)(void *)c->jobs.data + i;
}

/* Adds a job to the wave, all zero. *job is valid until the next job is added. */
static enum lmc_status lmc__add_job(lmc__coder *c, lmc__snapshot_job **job)
{
    c->jobs.size = c->n_jobs * sizeof **job;
    LMC__TRY(lmc__append(&c->jobs, NULL, sizeof **job));
    *job = lmc__job_at(c, c->n_jobs++);
    return LMC_OK;
}

static lmc__piece *lmc__piece_at(const lmc__coder *c, const lmc__snapshot_job *job, size_t i)
{
    return (lmc__piece *)(void *)c->pieces.data + job->first_piece + i;
}

/* If all bytes of a job are one piece: where the decoder stores their sum, which it computes while
 * it decodes. NULL: the sums of the pieces are computed afterwards. */
static uint64_t *lmc__whole_sum(const lmc__coder *c, const lmc__snapshot_job *job)
{
    lmc__piece *const piece = job->n_pieces == 1 ? lmc__piece_at(c, job, 0) : NULL;
    return piece && piece->in_tensor && piece->phase == 0 && piece->size == job->job.info.size
               ? &piece->sum
               : NULL;
}

/* Sets the sums of a job's pieces, which are the size bytes at content. crc: their CRC-32C. If the
 * block has parts of several files, each part gets its own CRC. */
static void lmc__set_piece_sums(const lmc__coder *c, const lmc__snapshot_job *job,
                                const uint8_t *content, size_t size, uint32_t crc)
{
    const lmc__kernels *const k = c->wave.k;
    size_t i;
    for (i = 0; i < job->n_pieces; i++) { /* a reader has pieces only when it reads whole tensors */
        lmc__piece *const piece = lmc__piece_at(c, job, i);
        if (piece->in_tensor) {
            piece->crc = piece->size == size ? crc : k->crc32c(0, content, piece->size);
            if (job->job.streaming.sum != &piece->sum)
                piece->sum = lmc__sum_words(k, content, piece->size, piece->phase);
        }
        if (piece->part_size)
            piece->part_crc = piece->part_size == size ? crc
                              : piece->in_tensor && piece->part_size == piece->size
                                  ? piece->crc
                                  : k->crc32c(0, content, piece->part_size);
        content += piece->size;
    }
}

#ifndef LMC_NO_ENCODER
/* Sets the sums of a job's pieces, and returns the CRC-32C of all bytes of the job. job.src may
 * change meanwhile, so each strip is copied once, and all sums are taken from the copy. */
static uint32_t lmc__sum_pieces(const lmc__coder *c, const lmc__snapshot_job *job)
{
    const lmc__kernels *const k = c->wave.k;
    const size_t size = job->job.src_size;
    uint8_t copy[LMC__STRIP_SIZE];
    uint32_t crc = 0;
    size_t at, end, from, n, i = 0, left = 0; /* left: remaining bytes of piece i */
    if (job->n_pieces) left = lmc__piece_at(c, job, 0)->size;
    for (at = 0; at < size; at = end) {
        end = lmc__min(at + LMC__STRIP_SIZE, size);
        memcpy(copy, job->job.src + at, end - at);
        crc = k->crc32c(crc, copy, end - at);
        for (from = at; from < end && i < job->n_pieces; from += n) {
            lmc__piece *const piece = lmc__piece_at(c, job, i);
            n = lmc__min(end - from, left);
            if (piece->in_tensor) {
                const unsigned phase = (unsigned)(piece->phase + piece->size - left) % 8;
                piece->crc = k->crc32c(piece->crc, copy + (from - at), n);
                piece->sum += lmc__sum_words(k, copy + (from - at), n, phase);
            }
            left -= n;
            if (left == 0 && ++i < job->n_pieces) left = lmc__piece_at(c, job, i)->size;
        }
    }
    if (job->n_pieces) lmc__piece_at(c, job, 0)->part_crc = crc; /* a writer's block is one part */
    return crc;
}

/* Encodes a job's block. Fingerprints and hashes match the encoded bytes, even if the caller's
 * memory changes meanwhile:
 *
 * - with hashes, the bytes are copied once, and everything is computed from the copy;
 * - the sum of a block of planes is computed while the block is encoded;
 * - any other sum is computed later, with the CRC of the same bytes. If this CRC differs from the
 *   block's, the block is stored, and sums and CRC are those of the stored bytes. */
static void lmc__encode_snapshot_task(void *arg, size_t index, unsigned worker)
{
    const lmc__coder *const c = (const lmc__coder *)arg;
    lmc__snapshot_job *const job = lmc__job_at(c, index);
    lmc__job *const block = &job->job;
    lmc__piece *const whole = job->n_pieces == 1 ? lmc__piece_at(c, job, 0) : NULL;
    const uint8_t *content;
    uint32_t crc;
    if (job->content && job->may_change) {
        memcpy(job->content, block->src, block->src_size);
        block->src = job->content;
        job->may_change = 0;
    }
    if (whole && whole->in_tensor && whole->phase == 0) block->sum = &whole->sum;
    content = lmc__encode_job(&c->wave, block, worker);
    if (block->status != LMC_OK) return;
    crc = lmc__load32(block->dst + LMC__CONTENT_CRC_AT);
    if (block->has_sum) {
        whole->crc = whole->part_crc = crc;
        return;
    }
    if (block->sum) *block->sum = 0; /* the block was not coded as planes */
    if (job->may_change && content == block->src) {
        if (lmc__sum_pieces(c, job) == crc) return;
        lmc__store_block(c->wave.k, block, lmc_dtype_width(block->dtype)); /* dst has room for it */
        content = block->dst + LMC_BLOCK_HEADER_SIZE;
        crc = lmc__load32(block->dst + LMC__CONTENT_CRC_AT);
    }
    if (job->content && job->content != content) memcpy(job->content, content, block->src_size);
    lmc__set_piece_sums(c, job, content, block->src_size, crc);
}
#endif

/* Decodes a job's block, or only checks its CRC if c->is_written. */
static void lmc__decode_snapshot_task(void *arg, size_t index, unsigned worker)
{
    const lmc__coder *c = (const lmc__coder *)arg;
    lmc__snapshot_job *const job = lmc__job_at(c, index);
    const lmc_block_info *const info = &job->job.info;
    const uint8_t *content = job->job.dst;
    if (job->is_unread) {
        job->job.status = lmc__check_payload(c->wave.k, job->job.src, info);
        return;
    }
    if (!c->is_written) content = lmc__decode_job(&c->wave, &job->job, worker);
    else if (c->wave.k->crc32c(0, content, info->size) != info->crc)
        job->job.status = LMC_ERR_BASE_WRONG;
    if (job->job.status != LMC_OK) return;
    lmc__set_piece_sums(c, job, content + job->job.skip, info->size, info->crc);
    if (c->write_at)
        job->job.status =
            c->write_at(c->sink.user, c->file_number, job->file_offset, content, info->size);
}

static enum lmc_status lmc__jobs_status(const lmc__coder *c, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) LMC__TRY(lmc__job_at(c, i)->job.status);
    return LMC_OK;
}

/* Adds bytes to write while the next wave is coded, unless size is 0 or there is no sink. */
static enum lmc_status lmc__add_part(lmc__coder *c, const uint8_t *data, size_t size)
{
    const lmc__part part = {data, size};
    return c->sink.write && size ? lmc__append(&c->parts, &part, sizeof part) : LMC_OK;
}

/* A task: writes all parts. As one task writes them, the sink gets them in order. */
static void lmc__write_parts(lmc__coder *c)
{
    const lmc__part *part = (const lmc__part *)(const void *)c->parts.data;
    size_t i;
    for (i = 0; i < c->parts.size / sizeof *part && c->write_status == LMC_OK; i++)
        c->write_status = c->sink.write(c->sink.user, part[i].data, part[i].size);
}

/* A task: reads up to read_portion more bytes. If a read returns 0 bytes, the stream has ended. */
static void lmc__read_portion(lmc__coder *c)
{
    const size_t end = lmc__min(c->read_size, c->read_got + c->read_portion);
    if (c->rest_size) memcpy(c->read_to - c->rest_size, c->rest, c->rest_size);
    c->rest_size = 0;
    while (c->read_got < end && !c->ended && c->read_status == LMC_OK) {
        size_t n = 0;
        c->read_status =
            c->stream.read(c->stream.user, c->read_to + c->read_got, end - c->read_got, &n);
        if (c->read_status == LMC_OK && n > end - c->read_got) c->read_status = LMC_ERR_READ;
        if (c->read_status != LMC_OK) break;
        c->ended = n == 0;
        c->read_got += n;
    }
}

/* The task of the caller's parallel_for. Writing and reading come first, as they take longest. */
static void lmc__step_task(void *arg, size_t index, unsigned worker)
{
    lmc__coder *c = (lmc__coder *)arg;
    if (index == 0) lmc__write_parts(c);
    else if (index == 1) lmc__read_portion(c);
    else c->task(c, index - 2, worker);
}

/* Codes the planned wave, writes the parts, and reads the next bytes. If there are several errors,
 * it returns the one of the earliest bytes: of writing, else of blocks, else of reading. */
static enum lmc_status lmc__run_step(lmc__coder *c)
{
    const size_t n = c->n_jobs;
    size_t i;
    if (c->parallel && n > 0)
        c->parallel->run(c->parallel->user, lmc__step_task, c, n + 2, c->parallel->n_workers);
    else
        for (i = 0; i < n + 2; i++) lmc__step_task(c, i, 0);
    c->parts.size = 0;
    c->n_jobs = 0;
    c->base.size = 0;
    LMC__TRY(c->write_status);
    LMC__TRY(lmc__jobs_status(c, n));
    return c->read_status;
}

static enum lmc_status lmc__drain(lmc__coder *c)
{
    lmc__write_parts(c);
    c->parts.size = 0;
    return c->write_status;
}

static enum lmc_status lmc__report_progress(lmc__coder *c, uint64_t size)
{
    c->done += size;
    return c->progress && size ? c->progress(c->progress_user, c->done) : LMC_OK;
}

/* Size of the first read of a stream. It is small, since nothing is coded meanwhile. Each later
 * read is at most four times as large as the read before, up to a limit. */
#define LMC__FIRST_READ_SIZE 65536u

/* Sets the next read: size bytes, in the next step unless the caller lowers read_portion. */
static void lmc__want(lmc__coder *c, uint8_t *dst, size_t size)
{
    c->read_to = dst;
    c->read_size = size;
    c->read_got = 0;
    c->read_portion = size;
}

/* Checks that the block uses only features that the file's header names. */
static enum lmc_status lmc__check_block_features(const uint8_t *header, uint64_t features)
{
    const unsigned layout = header[2] >> LMC__LAYOUT_SHIFT, grouping = header[3];
    LMC__VALID(layout != LMC__LAYOUT_QUANTIZED || (features & LMC_FEATURE_QUANTIZED)); /* R3-12 */
    LMC__VALID(layout != LMC__LAYOUT_ZEROS || (features & LMC_FEATURE_ZEROS));         /* R3-12 */
    LMC__VALID(layout != LMC__LAYOUT_MATRIX || (features & LMC_FEATURE_MATRIX));       /* R3-12 */
    LMC__VALID(layout != LMC__LAYOUT_CODES || (features & LMC_FEATURE_CODES));         /* R3-12 */
    LMC__VALID(!grouping || (features & (LMC_FEATURE_BASE | LMC_FEATURE_OWN)));        /* R3-13 */
    return LMC_OK;
}

/* Plans more pieces of a job: the pieces of the next size bytes of the digester's file. */
static enum lmc_status lmc__plan_pieces(lmc__coder *c, lmc__digester *d, lmc__snapshot_job *job,
                                        size_t size)
{
    size_t part_size = size;
    if (job->n_pieces == 0) job->first_piece = c->pieces.size / sizeof(lmc__piece);
    while (size != 0) {
        lmc__piece piece = lmc__plan_piece(d, size);
        piece.part_size = (uint32_t)part_size; /* at most a block */
        part_size = 0;
        LMC__TRY(lmc__append(&c->pieces, &piece, sizeof piece));
        size -= piece.size;
        job->n_pieces++;
    }
    return LMC_OK;
}

/* Absorbs the pieces of a wave; d must have no hashes. */
static void lmc__absorb_pieces(lmc__coder *c, lmc__digester *d)
{
    size_t i;
    for (i = 0; i < c->pieces.size / sizeof(lmc__piece); i++)
        lmc__absorb_piece(d, (const lmc__piece *)(const void *)c->pieces.data + i, NULL);
    c->pieces.size = 0;
}
