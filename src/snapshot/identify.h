#pragma once
#include "extra_api.h"
#include "base/platform.h"
#include "tensor/wave.h"
#include "snapshot/buffer.h"
#include "snapshot/fingerprint.h"
#include "snapshot/pipeline.h"
#include "snapshot/files.h"
#include "snapshot/put_files.h"
#include "snapshot/index_entries.h"
#include "snapshot/origin.h"

/* Computes fingerprints of files that are in no snapshot, so that any directory can be a base (spec
 * 7.3). It uses the digester and the waves of the writer, but codes no blocks. Memory: 2 MiB for
 * each worker, and a fingerprint for each tensor. */

/* A task that computes sums but codes nothing. The file's CRC is joined from the jobs' CRCs. */
static void lmc__identify_task(void *arg, size_t index, unsigned worker)
{
    const lmc__coder *c = (const lmc__coder *)arg;
    lmc__snapshot_job *const job = lmc__job_at(c, index);
    const uint8_t *const content = job->job.src;
    (void)worker;
    lmc__set_piece_sums(c, job, content, job->job.src_size,
                        c->wave.k->crc32c(0, content, job->job.src_size));
    job->job.status = LMC_OK;
}

/* Bytes of one task: a multiple of the size of a leaf. */
#define LMC__IDENTIFY_SIZE LMC__WAVE_SIZE

/* Reads the file in spans, and absorbs each span before it reads the next. Takes exactly file->size
 * bytes from the stream. If the stream has fewer: LMC_ERR_TRUNCATED. */
static enum lmc_status lmc__identify_file(lmc__coder *c, lmc__digester *d, const lmc_file *file,
                                          const lmc_stream *stream)
{
    const uint64_t span =
        lmc__min64(4 * (uint64_t)lmc__count_workers(c->parallel) * LMC__IDENTIFY_SIZE, file->size);
    c->stream = *stream;
    c->task = lmc__identify_task;
    LMC__TRY(lmc__reserve(&c->in[0], span));
    while (d->absorbed < file->size) {
        size_t at;
        lmc__want(c, c->in[0].data, (size_t)lmc__min64(span, file->size - d->absorbed));
        lmc__read_portion(c);
        LMC__TRY(c->read_status);
        if (c->read_got < c->read_size) return LMC_ERR_TRUNCATED;
        for (at = 0; at < c->read_got; at += LMC__IDENTIFY_SIZE) {
            lmc__snapshot_job *job;
            LMC__TRY(lmc__add_job(c, &job));
            job->job.src = c->in[0].data + at;
            job->job.src_size = lmc__min(LMC__IDENTIFY_SIZE, c->read_got - at);
            LMC__TRY(lmc__plan_pieces(c, d, job, job->job.src_size));
        }
        lmc__want(c, NULL, 0);
        LMC__TRY(lmc__run_step(c));
        lmc__absorb_pieces(c, d);
    }
    lmc__finish_digester(d);
    return LMC_OK;
}

/* To check the description, it is written as a FILE body and parsed. file and tensors change only
 * at the end. tensors is file->tensors without const. */
LMC__COLD LMC_API enum lmc_status lmc_file_identify(lmc_file *file, lmc_tensor *tensors,
                                                    const lmc_stream *stream,
                                                    const lmc_parallel *parallel,
                                                    const lmc_allocator *allocator)
{
    lmc__buffer body;
    lmc__listing checked;
    lmc__digester digester;
    lmc__coder coder;
    enum lmc_status status;
    if (!file || tensors != file->tensors || file->size == LMC_UNKNOWN_SIZE)
        return LMC_ERR_ARGUMENT;
    LMC__CHECK_CALLBACKS(stream, read);
    LMC__TRY(lmc__check_parallel(parallel));
    LMC__TRY(lmc__check_allocator(allocator));
    lmc__init_buffer(&body, allocator);
    lmc__init_listing(&checked, allocator);
    lmc__open_coder(&coder, parallel, allocator);
    status =
        lmc__append_file(&body, file, NULL); /* `body`: the FILE body, later the fingerprints */
    if (status == LMC_OK) status = lmc__list_files(&checked, body.data, body.size);
    if (status == LMC_ERR_CORRUPT || status == LMC_ERR_UNSUPPORTED) status = LMC_ERR_ARGUMENT;
    body.size = 0;
    if (status == LMC_OK)
        status = lmc__append(&body, NULL, LMC_FINGERPRINT_SIZE * lmc__count_fingerprints(file));
    if (status == LMC_OK) {
        lmc__begin_digester(&digester, file);
        digester.fingerprints = body.data;
        status = lmc__identify_file(&coder, &digester, file, stream);
    }
    if (status == LMC_OK) {
        file->crc = digester.file_crc;
        lmc__keep_fingerprints(file, body.data);
    }
    lmc__free_coder(&coder);
    lmc__free_buffer(&body);
    lmc__free_listing(&checked);
    return status;
}

/* Opening an origin computes the base's fingerprint. No byte of content is read. */
LMC__COLD LMC_API enum lmc_status lmc_base_identify(const lmc_base *base,
                                                    uint8_t fingerprint[LMC_FINGERPRINT_SIZE],
                                                    const lmc_allocator *allocator)
{
    lmc__origin origin;
    enum lmc_status status;
    if (!base || !fingerprint) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__check_allocator(allocator));
    status = lmc__open_origin(&origin, NULL, base, allocator);
    if (status == LMC_OK) memcpy(fingerprint, origin.fingerprint, LMC_FINGERPRINT_SIZE);
    lmc__free_origin(&origin);
    return status;
}
