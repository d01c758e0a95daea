#pragma once
#include "extra_api.h"
#include "base/platform.h"
#include "base/bytes.h"
#include "quantise/quantizer.h"
#include "snapshot/buffer.h"
#include "snapshot/reader.h"
#include "snapshot/requantise.h"
#include "snapshot/writer.h"
#ifndef LMC_NO_ENCODER

/* Copies a file from a reader to a writer, in pieces, to change a snapshot's base, level or set of
 * files. The writer owns the recovered quantisers (w->quantizers), since it uses them. */
#define LMC__COPY_SIZE ((size_t)4 << 20)

#ifndef LMC_NO_QUANTIZE
/* Recovers the quantiser of the tensor. A quantiser that needs the second moment is recovered as
 * lossless, because the new snapshot may lack that moment. */
static enum lmc_status lmc__copy_quantizer(lmc_writer *w, lmc_reader *r, size_t file_number,
                                           lmc_tensor *tensor)
{
    lmc_quantizer *q = NULL;
    LMC__TRY(lmc__reserve(&w->quantizers, sizeof q));
    LMC__TRY(lmc_reader_recover_quantizer(r, file_number, tensor, &q, NULL));
    LMC__TRY(lmc__append(&w->quantizers, &q, sizeof q)); /* there is room */
    if (!q->info.is_lossless) tensor->quantizer = q;
    return LMC_OK;
}
#endif

static enum lmc_status lmc__copy_bytes(lmc_writer *w, lmc_reader *r, size_t file_number,
                                       const lmc_file *file, lmc__buffer *piece)
{
    uint32_t crc = 0;
    uint64_t at;
    size_t n;
    LMC__TRY(lmc__reserve(piece, lmc__min64(file->size, LMC__COPY_SIZE)));
    for (at = 0; at < file->size; at += n) {
        n = (size_t)lmc__min64(file->size - at, LMC__COPY_SIZE);
        LMC__TRY(lmc_reader_read_file(r, file_number, at, piece->data, n));
        crc = r->coder->wave.k->crc32c(crc, piece->data, n);
        LMC__TRY(lmc_writer_write(w, piece->data, n));
    }
    LMC__VALID(crc == file->crc);
    return LMC_OK;
}

static enum lmc_status lmc__copy_whole_file(lmc_writer *w, lmc_reader *r, size_t file_number)
{
    lmc_file file = *lmc_reader_get_file(r, file_number);
    lmc__buffer tensors, piece;
    enum lmc_status status;
    lmc__init_buffer(&tensors, w->options.alloc_user);
    lmc__init_buffer(&piece, w->options.alloc_user);
    status = lmc__append(&tensors, file.tensors, file.n_tensors * sizeof *file.tensors);
    file.tensors = (const lmc_tensor *)(const void *)tensors.data;
#ifndef LMC_NO_QUANTIZE
    {
        size_t i;
        for (i = 0; i < file.n_tensors && w->options.may_quantize && status == LMC_OK; i++)
            if (file.tensors[i].loss.generation)
                status =
                    lmc__copy_quantizer(w, r, file_number, (lmc_tensor *)(void *)tensors.data + i);
    }
#endif
    if (status == LMC_OK) status = lmc_writer_begin_file(w, &file, LMC_AUTO);
    if (status == LMC_OK) status = lmc__copy_bytes(w, r, file_number, &file, &piece);
    if (status == LMC_OK) status = lmc_writer_end_file(w);
    lmc__free_buffer(&tensors);
    lmc__free_buffer(&piece);
    return status;
}

/* After an error the writer cannot be used, as after errors of its other functions. */
LMC__COLD LMC_API enum lmc_status lmc_writer_copy_file(lmc_writer *w, lmc_reader *r,
                                                       size_t file_number)
{
    enum lmc_status status;
    if (!w || !r || r->is_salvage || !lmc_reader_get_file(r, file_number)) return LMC_ERR_ARGUMENT;
    if (w->status != LMC_OK) return w->status;
    status = lmc__copy_whole_file(w, r, file_number);
    if (w->status == LMC_OK) w->status = status;
    return status;
}
#endif /* LMC_NO_ENCODER */
