#pragma once
#include "extra_api.h"
#include "base/platform.h"
#include "base/bytes.h"
#include "quantize/quantizer.h"
#include "snapshot/buffer.h"
#include "snapshot/reader.h"
#include "snapshot/requantize.h"
#include "snapshot/writer.h"
#ifndef LMC_NO_ENCODER

/* A place for the hints of that tensor, valid until the next. Fast if numbers ascend. */
static enum lmc_status lmc__place_hints(lmc__buffer *hints, size_t number, lmc_tensor_hints **place)
{
    int is_there;
    lmc__hint *hint;
    LMC__TRY(lmc__reserve(hints, sizeof *hint));
    hint = lmc__find_hint(hints, number, &is_there);
    if (!is_there) {
        memmove(hint + 1, hint, (size_t)(hints->data + hints->size - (uint8_t *)hint));
        memset(hint, 0, sizeof *hint);
        hint->tensor_number = number;
        hints->size += sizeof *hint;
    }
    *place = &hint->hints;
    return LMC_OK;
}

static enum lmc_status lmc__add_hints(lmc_writer *w, size_t i, const lmc_tensor_hints *given)
{
    lmc_tensor_hints hints, *place;
    if (w->in_file || w->is_finished) return LMC_ERR_ARGUMENT;
    LMC__TRY(LMC__TAKE_OPTIONS(&hints, quantizer, given));
    LMC__TRY(lmc__place_hints(&w->hints, i, &place));
    *place = hints;
    return LMC_OK;
}

LMC__COLD LMC_API enum lmc_status lmc_writer_add_hints(lmc_writer *w, size_t tensor_number,
                                                       const lmc_tensor_hints *hints)
{
    LMC__STICKY(lmc__add_hints(w, tensor_number, hints));
}

/* Copies a file from a reader to a writer, in pieces, to change a snapshot's base, level or set of
 * files. The writer owns the recovered quantisers (w->quantizers), since it uses them. */
#define LMC__COPY_SIZE ((size_t)4 << 20)

#ifndef LMC_NO_QUANTIZE
/* Recovers the quantiser of the tensor, unless the caller gave one. A quantiser that needs the
 * second moment is recovered as lossless, because the new snapshot may lack that moment. */
static enum lmc_status lmc__copy_quantizer(lmc_writer *w, lmc_reader *r, size_t file_number,
                                           size_t i)
{
    const lmc_tensor *const tensor = &lmc_reader_get_file(r, file_number)->tensors[i];
    lmc_tensor_hints *hints;
    lmc_quantizer *q = NULL;
    LMC__TRY(lmc__place_hints(&w->hints, i, &hints));
    if (hints->quantizer) return LMC_OK;
    LMC__TRY(lmc__reserve(&w->quantizers, sizeof q));
    LMC__TRY(lmc_quantizer_recover(&q, r, file_number, tensor, NULL, w->options.allocator));
    LMC__TRY(lmc__append(&w->quantizers, &q, sizeof q)); /* cannot fail: there is room */
    if (!q->info.is_lossless) hints->quantizer = q;
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
    const lmc_file *const file = lmc_reader_get_file(r, file_number);
    lmc__buffer piece;
    enum lmc_status status;
#ifndef LMC_NO_QUANTIZE
    size_t i;
    for (i = 0; i < file->n_tensors && w->options.may_quantize; i++)
        if (file->tensors[i].loss.generation) LMC__TRY(lmc__copy_quantizer(w, r, file_number, i));
#endif
    lmc__init_buffer(&piece, w->options.allocator);
    status = lmc_writer_begin_file(w, file, LMC_AUTO);
    if (status == LMC_OK) status = lmc__copy_bytes(w, r, file_number, file, &piece);
    if (status == LMC_OK) status = lmc_writer_end_file(w);
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

/* Appends those records that remain true if the same content is coded again: bits 0 and 1 of their
 * tags are clear (spec 4.5). They are copied as they are, since the reader has checked them. */
static enum lmc_status lmc__keep_records(lmc__buffer *out, lmc__cursor c, uint64_t *n)
{
    uint64_t tag, size, n_kept = 0;
    out->size = 0;
    while (lmc__left(&c) != 0) {
        const uint8_t *const record = c.p;
        LMC__TRY(lmc__get_varint(&c, &tag));
        LMC__TRY(lmc__get_varint(&c, &size));
        (void)lmc__take_bytes(&c, (size_t)size);
        if (tag & 3) continue;
        LMC__TRY(lmc__append(out, record, (size_t)(c.p - record)));
        n_kept++;
    }
    *n = n_kept;
    return LMC_OK;
}

/* Records of several files count them and their tensors from the start of their section, which the
 * writer does not keep together. */
LMC__COLD LMC_API enum lmc_status lmc_writer_copy_records(lmc_writer *w, const lmc_reader *r,
                                                          size_t file_number, uint64_t *n_copied)
{
    const lmc__tables *const t = r ? &r->tables : NULL;
    const lmc__stream *stream;
    if (!w || !r || !n_copied || r->is_salvage || w->in_file || w->is_finished)
        return LMC_ERR_ARGUMENT;
    if (w->status != LMC_OK) return w->status;
    if (file_number == t->listing.n_files)
        return w->status = lmc__keep_records(&w->index_records, t->records, n_copied);
    if (file_number > t->listing.n_files) return LMC_ERR_ARGUMENT;
    stream = lmc__stream_at(&t->listing, lmc__file_at(r, file_number)->stream);
    if (stream->n_files == 1)
        return w->status = lmc__keep_records(&w->file_records, stream->records, n_copied);
    *n_copied = 0;
    return LMC_OK;
}
#endif /* LMC_NO_ENCODER */
