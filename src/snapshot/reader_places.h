#pragma once
#include "extra_api.h"
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "snapshot/buffer.h"
#include "snapshot/names.h"
#include "snapshot/ends.h"
#include "snapshot/files.h"
#include "snapshot/runs.h"
#include "snapshot/hashes.h"
#include "snapshot/index.h"
#include "snapshot/reader.h"

/* Tells how many encoded bytes a part of a file has, and where they are. */

/* If `stored` bytes encode `size` bytes: how many of them count for the first x bytes. This share
 * never falls as x grows, so differences of shares add up. */
static uint64_t lmc__share(uint64_t stored, uint64_t size, uint64_t x)
{
    uint64_t rest = stored % size, whole = stored / size * x;
    unsigned shift = 0;
    while (size >> shift > UINT32_MAX) shift++;
    return whole + ((rest >> shift) * (x >> shift) / (size >> shift) << shift);
}

/* Adds up the shares of runs, without reading rows. So the sizes of a file's parts add up. */
LMC__COLD LMC_API enum lmc_status lmc_reader_encoded_size(const lmc_reader *r, size_t file_number,
                                                          uint64_t offset, uint64_t size,
                                                          uint64_t *encoded_size)
{
    const lmc__stream *stream;
    if (!r || !encoded_size) return LMC_ERR_ARGUMENT;
    if (r->is_salvage) return LMC_ERR_LOST;
    stream = lmc__stream_range(r, file_number, &offset, size);
    if (!stream) return LMC_ERR_ARGUMENT;
    *encoded_size = 0;
    while (size != 0) {
        const lmc__reader_run *const run = lmc__run_at(r, lmc__find_run(r, stream, offset));
        const uint64_t at = offset - run->run.start, n = lmc__min64(size, run->run.size - at);
        *encoded_size += lmc__share(run->end - run->at, run->run.size, at + n) -
                         lmc__share(run->end - run->at, run->run.size, at);
        offset += n;
        size -= n;
    }
    return LMC_OK;
}

/* The range from the first to the last block that has some of the bytes. */
LMC__COLD LMC_API enum lmc_status lmc_reader_encoded_range(lmc_reader *r, size_t file_number,
                                                           uint64_t offset, uint64_t size,
                                                           uint64_t *encoded_offset,
                                                           uint64_t *encoded_size)
{
    const lmc__stream *stream;
    uint64_t from = 0, to = 0, last;
    if (!r || !encoded_offset || !encoded_size) return LMC_ERR_ARGUMENT;
    if (r->is_salvage) return LMC_ERR_LOST;
    stream = lmc__stream_range(r, file_number, &offset, size);
    if (!stream) return LMC_ERR_ARGUMENT;
    if (size != 0) { /* a file of 0 bytes may have no run */
        last = offset + size - 1;
        LMC__TRY(lmc__locate_block(r, lmc__find_run(r, stream, offset), offset, 0, &from));
        LMC__TRY(lmc__locate_block(r, lmc__find_run(r, stream, last), last, 1, &to));
    }
    *encoded_offset = from;
    *encoded_size = to - from;
    return LMC_OK;
}
