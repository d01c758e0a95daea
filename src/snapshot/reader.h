#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "codec/get_block.h"
#include "tensor/wave.h"
#include "tensor/tensor.h"
#include "snapshot/buffer.h"
#include "snapshot/identity.h"
#include "snapshot/pipeline.h"
#include "snapshot/names.h"
#include "snapshot/sections.h"
#include "snapshot/origin.h"

/* A run as the index has it. */
typedef struct lmc__reader_run {
    lmc__run run;               /* its segments are in reader->index */
    uint64_t first_block;       /* in reader->block_at */
    const uint8_t *blocks;      /* in reader->index: LMC__BLOCK_ENTRY_SIZE bytes each */
    enum lmc_status prediction; /* salvage: whether its prediction can be found. LMC_ERR_NOT_FOUND:
                                   its section is lost */
} lmc__reader_run;

typedef struct lmc__reader_file {
    lmc_file file;
    lmc__buffer memory;
    size_t first_run, n_runs;
    int is_described;    /* salvage: by its section */
    size_t confirmed_at; /* in salvage.confirmed */
} lmc__reader_file;

/* What the readers of damaged files have beside the tables of others; section 9.10. */
typedef struct lmc__salvage {
    lmc_damage damage;
    uint64_t end;     /* where the index begins, or of the file */
    lmc__buffer view; /* bytes of the file from view_at on */
    uint64_t view_at;
    lmc__buffer sections; /* lmc__found_section; their bodies are in reader->index */
    lmc__buffer blocks;   /* lmc__found_block, sorted; then those without a place */
    size_t n_blocks;      /* with a place */
    lmc__buffer orphans;  /* lmc__orphan */
    uint64_t claimed;     /* bytes that were read twice */
    lmc__buffer
        container; /* a block decoded to see whether it is intact; the one of these numbers */
    uint32_t container_run, container_block;
    enum lmc_status container_status;
    int in_container; /* it is being decoded */
    /* lmc_next_range */
    size_t file, run, unplaced;
    uint64_t offset, delivered;
    lmc__buffer range;
    lmc__digester digester;
    int is_whole;          /* the file so far */
    lmc__buffer confirmed; /* int8_t: what lmc_confirm says of a file, then of its tensors */
} lmc__salvage;

struct lmc_reader {
    lmc_source source;
    lmc_reader_options options;
    lmc__coder own_coder, *coder; /* the lender's, or the own one */
    lmc__buffer index;            /* the body, for metadata */
    lmc__buffer files, runs;      /* arrays of the two above */
    lmc__buffer
        block_at;     /* uint64_t: where each block starts; after a run's blocks: where they end */
    lmc__buffer keys; /* metadata keys, NUL-terminated; and pointers to the entries */
    lmc__buffer metadata;
    lmc__buffer paths; /* see lmc__add_path */
    size_t n_files, n_metadata;
    uint64_t total; /* bytes of all files */
    uint8_t identity[LMC_IDENTITY_SIZE], base_identity[LMC_IDENTITY_SIZE];
    uint32_t chain_depth;
    int is_sequential;
    lmc__origin origin;
    lmc__buffer window; /* of lmc__read_as_base: bytes of a file from window_start on */
    size_t window_file;
    uint64_t window_start;
    lmc__buffer base[2]; /* predictions of blocks that are not wanted whole: by another snapshot, by
                            this one (which may need the first) */
    lmc__salvage salvage;
};

typedef struct lmc__entry {
    size_t key_at; /* in keys */
    const uint8_t *value;
    size_t size;
} lmc__entry;

static lmc__reader_file *lmc__file_at(const lmc_reader *r, size_t i)
{
    return (lmc__reader_file *)(void *)r->files.data + i;
}
static lmc__reader_run *lmc__run_at(const lmc_reader *r, size_t i)
{
    return r->runs.data ? (lmc__reader_run *)(void *)r->runs.data + i : NULL;
}
static uint64_t *lmc__block_at(const lmc_reader *r) { return (uint64_t *)(void *)r->block_at.data; }

/* One entry of the index at *p; *offset: where its section must start, then where the next must. */
static enum lmc_status lmc__read_entry(lmc_reader *r, const uint8_t **p, const uint8_t *end,
                                       uint64_t *offset, uint64_t *position)
{
    const lmc__kernels *k = r->coder->wave.k;
    lmc__reader_file *f = r->n_files ? lmc__file_at(r, r->n_files - 1) : NULL;
    const uint8_t *body;
    lmc__section section;
    size_t size, i;
    LMC__CHECK(end - *p >= 8 + (int)LMC__SECTION_HEADER_SIZE, LMC_ERR_CORRUPT);
    LMC__CHECK(lmc__load64(*p) == *offset, LMC_ERR_CORRUPT);
    LMC__TRY(lmc__get_section(&section, *p + 8, k));
    body = *p + 8 + LMC__SECTION_HEADER_SIZE;
    LMC__CHECK(section.size <= (uint64_t)(end - body), LMC_ERR_CORRUPT);
    size = (size_t)section.size;
    LMC__CHECK(k->crc32c(0, body, size) == section.body_crc, LMC_ERR_CHECKSUM);
    *p = body + size;
    *offset += LMC__SECTION_HEADER_SIZE + section.size;
    if (lmc__is_kind(&section, "FILE")) {
        lmc__reader_file *next;
        LMC__CHECK(f == NULL || *position == f->file.size, LMC_ERR_CORRUPT);
        LMC__CHECK(section.number == r->n_files, LMC_ERR_CORRUPT);
        LMC__TRY(lmc__append(&r->files, NULL, sizeof *next));
        next = lmc__file_at(r, r->n_files);
        next->memory.alloc_user = r->options.alloc_user;
        next->is_described = 1;
        r->n_files++;
        LMC__TRY(lmc__parse_file(&next->file, &next->memory, body, size));
        LMC__TRY(lmc__add_path(&r->paths, r->n_files - 1, next->file.path));
        LMC__CHECK(f == NULL || (next->file.path[0] != 0 && lmc__file_at(r, 0)->file.path[0] != 0),
                   LMC_ERR_CORRUPT);
        LMC__CHECK((uint64_t)(end - *p) >=
                       16 + (uint64_t)LMC_IDENTITY_SIZE * lmc__count_identities(&next->file),
                   LMC_ERR_CORRUPT);
        LMC__CHECK(lmc__load64(*p) <= LMC__MAX_FILE_SIZE &&
                       (next->file.size == LMC_UNKNOWN_SIZE || next->file.size == lmc__load64(*p)),
                   LMC_ERR_CORRUPT);
        LMC__CHECK(lmc__load32(*p + 12) == 0, LMC_ERR_CORRUPT);
        next->file.size = lmc__load64(*p);
        next->file.crc = lmc__load32(*p + 8);
        *p += 16;
        for (i = 0; i < lmc__count_identities(&next->file); i++, *p += LMC_IDENTITY_SIZE)
            memcpy(next->file.n_tensors ? ((lmc_tensor *)(void *)next->memory.data)[i].identity
                                        : next->file.identity,
                   *p, LMC_IDENTITY_SIZE);
        next->first_run = r->runs.size / sizeof(lmc__reader_run);
        *position = 0;
    } else {
        lmc__reader_run run;
        LMC__CHECK(lmc__is_kind(&section, "RUN ") && f, LMC_ERR_CORRUPT);
        LMC__CHECK(section.number == r->runs.size / sizeof run, LMC_ERR_CORRUPT);
        LMC__TRY(
            lmc__parse_run(&run.run, body, size, (uint32_t)(r->n_files - 1), &f->file, position));
        LMC__CHECK(run.run.n_blocks <= (uint64_t)(end - *p) / LMC__BLOCK_ENTRY_SIZE,
                   LMC_ERR_CORRUPT);
        run.prediction = LMC_OK;
        if (!r->options.salvage) {
            LMC__CHECK(run.run.prediction != LMC__PREDICT_BASE || r->chain_depth != 0,
                       LMC_ERR_CORRUPT);
            LMC__CHECK(run.run.prediction != LMC__PREDICT_OWN || !r->is_sequential,
                       LMC_ERR_CORRUPT);
            if (!lmc__add_total(&r->total, run.run.size, &r->options.limits)) return LMC_ERR_LIMIT;
            if (run.run.prediction != LMC__PREDICT_BASE || r->origin.base)
                LMC__TRY(lmc__check_origin(&r->origin, &run.run));
            LMC__TRY(lmc__add_run(&r->origin, &run.run));
        }
        run.first_block = r->block_at.size / 8;
        run.blocks = *p;
        LMC__TRY(lmc__append(&r->runs, &run, sizeof run));
        LMC__TRY(lmc__reserve(&r->block_at, 8 * (run.run.n_blocks + 1)));
        for (i = 0; i < run.run.n_blocks; i++, *p += LMC__BLOCK_ENTRY_SIZE) {
            const uint32_t block_size = lmc__load32(*p);
            LMC__CHECK(block_size > LMC_BLOCK_HEADER_SIZE &&
                           block_size <= LMC_BLOCK_HEADER_SIZE + lmc__block_size_at(&run.run, i),
                       LMC_ERR_CORRUPT);
            lmc__block_at(r)[run.first_block + i] = *offset;
            *offset += block_size;
        }
        lmc__block_at(r)[run.first_block + i] = *offset;
        r->block_at.size += 8 * ((size_t)run.run.n_blocks + 1);
        f->n_runs++;
    }
    LMC__CHECK(*offset <= (r->options.salvage ? LMC__MAX_FILE_SIZE : r->source.size),
               LMC_ERR_CORRUPT); /* also keeps sums from overflowing */
    return LMC_OK;
}

static enum lmc_status lmc__read_at(lmc_reader *r, uint64_t offset, void *dst, size_t size)
{
    return size == 0 || r->source.read_at(r->source.user, offset, dst, size) == 0 ? LMC_OK
                                                                                  : LMC_ERR_READ;
}

static enum lmc_status lmc__read_metadata(lmc_reader *r, const uint8_t *p, const uint8_t *end,
                                          uint32_t n)
{
    LMC__TRY(lmc__check_metadata(p, end, n));
    for (; n > 0; n--, r->n_metadata++) {
        const uint32_t key_size = lmc__load32(p);
        lmc__entry entry;
        entry.key_at = r->keys.size;
        entry.size = lmc__load32(p + 4);
        entry.value = p + 8 + key_size;
        LMC__TRY(lmc__append(&r->keys, p + 8, key_size));
        LMC__TRY(lmc__append(&r->keys, NULL, 1));
        LMC__TRY(lmc__append(&r->metadata, &entry, sizeof entry));
        p = entry.value + entry.size;
    }
    return LMC_OK;
}

/* The INDX section, which is at that place and within the file. *offset: where it says that it
 * begins. */
static enum lmc_status lmc__read_index(lmc_reader *r, uint64_t index_at, uint64_t index_size,
                                       uint64_t *offset)
{
    const uint64_t limit = r->options.limits.max_index_size ? r->options.limits.max_index_size
                                                            : LMC__DEFAULT_INDEX_LIMIT;
    const lmc__kernels *k = r->coder->wave.k;
    lmc__buffer *items = &r->coder->in[0]; /* not needed for anything else yet */
    uint64_t position = 0, n_entries, i;
    const uint8_t *p, *end, *entries;
    lmc__section section;
    *offset = LMC__HEADER_SIZE;
    LMC__CHECK(index_size >= LMC__SECTION_HEADER_SIZE + LMC__INDEX_BODY_SIZE, LMC_ERR_CORRUPT);
    if (index_size > limit) return LMC_ERR_LIMIT;
    LMC__TRY(lmc__reserve(&r->index, index_size));
    LMC__TRY(lmc__read_at(r, index_at, r->index.data, (size_t)index_size));
    if (!r->options.salvage) { /* else what the header says is known */
        LMC__TRY(lmc__get_section(&section, r->index.data, k));
        LMC__CHECK(lmc__is_kind(&section, "INDX") && section.number == 0 &&
                       section.size == index_size - LMC__SECTION_HEADER_SIZE,
                   LMC_ERR_CORRUPT);
    }
    p = r->index.data + LMC__SECTION_HEADER_SIZE;
    end = r->index.data + index_size;
    LMC__CHECK(k->crc32c(0, p, (size_t)(end - p)) == lmc__load32(r->index.data + 20),
               LMC_ERR_CHECKSUM);
    LMC__CHECK(lmc__load32(p + 44) == 0, LMC_ERR_UNSUPPORTED);
    n_entries = (uint64_t)lmc__load32(p) + lmc__load32(p + 4);
    entries = p + LMC__INDEX_BODY_SIZE;
    p = entries;
    for (i = 0; i < n_entries; i++) LMC__TRY(lmc__read_entry(r, &p, end, offset, &position));
    LMC__CHECK(r->n_files > 0 && position == lmc__file_at(r, r->n_files - 1)->file.size,
               LMC_ERR_CORRUPT);
    LMC__CHECK(r->n_files == lmc__load32(entries - LMC__INDEX_BODY_SIZE), LMC_ERR_CORRUPT);
    LMC__TRY(lmc__read_metadata(r, p, end, lmc__load32(entries - LMC__INDEX_BODY_SIZE + 40)));
    LMC__TRY(lmc__collect_items(items, entries, n_entries));
    lmc__snapshot_identity(items, r->identity);
    LMC__CHECK(memcmp(entries - LMC__INDEX_BODY_SIZE + 8, r->identity, LMC_IDENTITY_SIZE) == 0,
               LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* What the reader keeps of an intact header. */
static void lmc__keep_header(lmc_reader *r, const uint8_t *header)
{
    memcpy(r->base_identity, header + 32, LMC_IDENTITY_SIZE);
    r->chain_depth = lmc__load32(header + 64);
    r->is_sequential = (int)(lmc__load32(header + 12) & LMC__FLAG_SEQUENTIAL);
}

static enum lmc_status lmc__open_reader(lmc_reader *r)
{
    const uint64_t total = r->source.size;
    const lmc__kernels *k = r->coder->wave.k;
    uint8_t header[LMC__HEADER_SIZE], trailer[LMC__TRAILER_SIZE];
    uint64_t index_at, index_size, offset;
    const size_t header_size = (size_t)lmc__min64(total, LMC__HEADER_SIZE);

    LMC__TRY(lmc__read_at(r, 0, header, header_size));
    if (header_size < LMC__HEADER_SIZE) return lmc__short_header(header, header_size);
    LMC__TRY(lmc__check_header(header, k));
    lmc__keep_header(r, header);
    if (r->origin.base) LMC__TRY(lmc__check_base(&r->origin, header));
    LMC__CHECK(total >= LMC__HEADER_SIZE + LMC__TRAILER_SIZE, LMC_ERR_TRUNCATED);
    LMC__TRY(lmc__read_at(r, total - LMC__TRAILER_SIZE, trailer, LMC__TRAILER_SIZE));
    LMC__CHECK(memcmp(trailer + 32, lmc__end_magic, 8) == 0, LMC_ERR_TRUNCATED);
    index_at = lmc__load64(trailer);
    index_size = lmc__load64(trailer + 8);
    LMC__TRY(lmc__check_trailer(trailer, index_at, index_size, total, k));
    LMC__CHECK(index_at >= LMC__HEADER_SIZE && index_at <= total - LMC__TRAILER_SIZE &&
                   index_size == total - LMC__TRAILER_SIZE - index_at,
               LMC_ERR_CORRUPT);
    LMC__TRY(lmc__read_index(r, index_at, index_size, &offset));
    LMC__CHECK(offset == index_at, LMC_ERR_CORRUPT);
    return LMC_OK;
}

static enum lmc_status lmc__open_salvage(lmc_reader *r);
static void lmc__free_salvage(lmc_reader *r);
static enum lmc_status lmc__read_salvaged(lmc_reader *r, size_t number, uint64_t offset,
                                          uint8_t *dst, size_t size);
/* Readers of damaged files have no run everywhere. */
static int lmc__is_in_run(const lmc_reader *r, const lmc__reader_file *f, size_t number,
                          uint64_t offset)
{
    return number < f->first_run + f->n_runs && lmc__run_at(r, number)->run.start <= offset &&
           offset - lmc__run_at(r, number)->run.start < lmc__run_at(r, number)->run.size;
}

static enum lmc_status lmc__read_as_base(void *user, size_t file_number, uint64_t offset, void *dst,
                                         size_t size);

/* What a reader's origin reads back: its own file. Not by the window, in which might be what is
 * just being read. */
static enum lmc_status lmc__read_reader_back(void *user, size_t file_number, uint64_t offset,
                                             void *dst, size_t size)
{
    return lmc_read_file((lmc_reader *)user, file_number, offset, dst, size);
}

static const lmc_file *lmc__get_reader_file(void *user, size_t file_number)
{
    return lmc_get_file((const lmc_reader *)user, file_number);
}

LMC_API lmc_base lmc_make_reader_base(lmc_reader *reader)
{
    lmc_base base;
    base.n_files = lmc_count_files(reader);
    base.get_file = lmc__get_reader_file;
    base.read = lmc__read_as_base;
    base.user = reader;
    base.chain_depth = reader ? reader->chain_depth : 0;
    return base;
}

LMC_API size_t lmc_count_files(const lmc_reader *r) { return r ? r->n_files : 0; }

LMC_API const lmc_file *lmc_get_file(const lmc_reader *r, size_t i)
{
    return r && i < r->n_files ? &lmc__file_at(r, i)->file : NULL;
}

LMC_API enum lmc_status lmc_find_tensor(const lmc_reader *r, const char *path, const char *name,
                                        size_t *file_number, const lmc_tensor **tensor)
{
    const lmc_tensor *found = NULL;
    size_t i, j, where = 0;
    if (!r || !name || !file_number || !tensor) return LMC_ERR_ARGUMENT;
    for (i = 0; i < r->n_files; i++) {
        const lmc_file *f = &lmc__file_at(r, i)->file;
        if (path && strcmp(path, f->path) != 0) continue;
        for (j = 0; j < f->n_tensors; j++) {
            if (strcmp(name, f->tensors[j].name) != 0) continue;
            if (found) return LMC_ERR_ARGUMENT;
            found = &f->tensors[j];
            where = i;
        }
    }
    if (!found) return LMC_ERR_NOT_FOUND;
    *file_number = where;
    *tensor = found;
    return LMC_OK;
}

/* The run of a file that holds byte offset, which is below the file's size. */
static size_t lmc__find_run(const lmc_reader *r, const lmc__reader_file *f, uint64_t offset)
{
    size_t low = f->first_run, high = f->first_run + f->n_runs; /* the answer is in [low, high) */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (lmc__run_at(r, middle)->run.start <= offset) low = middle;
        else high = middle;
    }
    return low;
}

/* The predictions of blocks [first, first + n) of a run, of which bytes [offset, end) of the run go
 * to dst: of a block that is wanted whole, to its place there, where it is decoded then; of the
 * others, the first and the last at most, to buffer, that of the first in *head bytes. */
static enum lmc_status lmc__read_predictions(lmc_reader *r, const lmc__run *run, uint64_t first,
                                             size_t n, uint64_t offset, uint64_t end, uint8_t *dst,
                                             lmc__buffer *buffer, size_t *head)
{
    const uint64_t start = first * run->block_size,
                   stop = lmc__min64(start + n * (uint64_t)run->block_size, run->size);
    const int has_head = start<offset, has_tail = stop> end && !(has_head && n == 1);
    const size_t tail = has_tail ? lmc__block_size_at(run, first + n - 1) : 0;
    *head = has_head ? lmc__block_size_at(run, first) : 0;
    LMC__TRY(lmc__reserve(buffer, (uint64_t)*head + tail));
    if (*head) LMC__TRY(lmc__read_prediction(&r->origin, run, start, buffer->data, *head));
    if (stop - start > *head + (uint64_t)tail)
        LMC__TRY(lmc__read_prediction(&r->origin, run, start + *head,
                                      dst + (size_t)(start + *head - offset),
                                      (size_t)(stop - start - *head - tail)));
    return tail ? lmc__read_prediction(&r->origin, run, stop - tail, buffer->data + *head, tail)
                : LMC_OK;
}

/* The header of a block that is in memory as far as the index says: it must be the very one that
 * the index knows. Its own checks do not tell it from a block of another file that has the same
 * number there, and perhaps the same size. */
static enum lmc_status lmc__read_known_block(const lmc_reader *r, size_t number, uint64_t block,
                                             const uint8_t *src, lmc_block_info *info)
{
    const lmc__reader_run *run = lmc__run_at(r, number);
    const uint8_t *entry = run->blocks + LMC__BLOCK_ENTRY_SIZE * (size_t)block;
    lmc_position position;
    position.run = (uint32_t)number;
    position.block = (uint32_t)block;
    LMC__TRY(lmc__read_block_info(r->coder->wave.k, src, lmc__load32(entry), position, info));
    LMC__CHECK(info->encoded_size == lmc__load32(entry) &&
                   lmc__load32(src + LMC__BLOCK_CRC_AT) == lmc__load32(entry + 4),
               LMC_ERR_CORRUPT);
    LMC__CHECK(info->size == lmc__block_size_at(&run->run, block), LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* Bytes [offset, offset + size) of run number n, within the run. */
static enum lmc_status lmc__read_indexed_run(lmc_reader *r, size_t number, uint64_t offset,
                                             uint8_t *dst, size_t size)
{
    const lmc__run *run = &lmc__run_at(r, number)->run;
    const uint64_t *block_at = lmc__block_at(r) + lmc__run_at(r, number)->first_block,
                   end = offset + size;
    uint64_t block = offset / run->block_size;
    lmc__coder *c = r->coder;
    const size_t largest = (size_t)lmc__min64(run->block_size, run->size);
    lmc__buffer *const base = &r->base[run->prediction == LMC__PREDICT_OWN];
    while (block * run->block_size < end) {
        const uint64_t first = block, blocks_end = (end + run->block_size - 1) / run->block_size;
        const size_t n =
            (size_t)lmc__min64(lmc__count_jobs(c->parallel, largest), blocks_end - first);
        const size_t in_size = (size_t)(block_at[first + n] - block_at[first]);
        size_t head = 0, i;
        if (run->prediction != LMC__PREDICT_ZERO) /* by this reader, perhaps, or one that shares the
                                                     coder: before that is in use */
            LMC__TRY(lmc__read_predictions(r, run, first, n, offset, end, dst, base, &head));
        LMC__TRY(lmc__set_coder(c, largest, lmc__min(largest, LMC_MAX_BLOCK_ELEMENTS), 1));
        c->wave.pieces = NULL;
        c->in[0].size = 0;
        LMC__TRY(lmc__reserve(&c->in[0], in_size));
        LMC__TRY(lmc__read_at(r, block_at[first], c->in[0].data, in_size));
        for (i = 0; i < n; i++, block++) {
            lmc__job *job = &c->wave.jobs[i];
            const uint64_t at = block * run->block_size;
            job->src = c->in[0].data + (size_t)(block_at[block] - block_at[first]);
            job->position.run = (uint32_t)number;
            job->position.block = (uint32_t)block;
            LMC__TRY(lmc__read_known_block(r, number, block, job->src, &job->info));
            job->skip = at < offset ? (size_t)(offset - at) : 0;
            job->keep = (size_t)lmc__min64(job->info.size - job->skip, end - (at + job->skip));
            job->dst = dst + (size_t)(at + job->skip - offset);
            LMC__CHECK(!job->info.has_prediction || run->prediction != LMC__PREDICT_ZERO,
                       LMC_ERR_CORRUPT);
            job->base = !job->info.has_prediction     ? NULL
                        : job->keep == job->info.size ? job->dst
                        : at < offset                 ? base->data
                                                      : base->data + head;
            job->own = run->prediction == LMC__PREDICT_OWN;
            job->is_done = 0;
            job->streaming.is_on = end - offset >= LMC__STREAM_FROM && job->keep == job->info.size;
            job->streaming.next = NULL;
            job->streaming.next_size = 0;
        }
        lmc__run_wave(c->parallel, lmc__decode_task, &c->wave, n);
        LMC__TRY(lmc__wave_status(&c->wave, n));
    }
    return LMC_OK;
}

static enum lmc_status lmc__read_run(lmc_reader *r, size_t number, uint64_t offset, uint8_t *dst,
                                     size_t size)
{
    return r->options.salvage ? lmc__read_salvaged(r, number, offset, dst, size)
                              : lmc__read_indexed_run(r, number, offset, dst, size);
}

/* Of a block that is not wanted whole, these many bytes of the run are decoded and kept, or the
 * block if that is larger: what a delta wants of its base comes in pieces as small as tensors,
 * mostly neighbours. */
#define LMC__WINDOW_SIZE ((size_t)2 << 20)

/* lmc_base's read. Whole blocks go straight to dst: the links of a chain are mostly cut alike, and
 * then a block goes through all of them at one place. A window begins with the first block that is
 * not there yet: what is asked for from front to back is decoded once, and so asked for once of the
 * next link. */
static enum lmc_status lmc__read_as_base(void *user, size_t file_number, uint64_t offset, void *dst,
                                         size_t size)
{
    lmc_reader *r = (lmc_reader *)user;
    const lmc_file *f = lmc_get_file(r, file_number);
    uint8_t *out = (uint8_t *)dst;
    if (!f || offset > f->size || size > f->size - offset) return LMC_ERR_ARGUMENT;
    while (size != 0) {
        const size_t number = lmc__find_run(r, lmc__file_at(r, file_number), offset);
        const lmc__run *run;
        uint64_t at;
        size_t part;
        LMC__CHECK(!r->options.salvage ||
                       lmc__is_in_run(r, lmc__file_at(r, file_number), number, offset),
                   LMC_ERR_NOT_FOUND);
        run = &lmc__run_at(r, number)->run;
        at = offset - run->start;
        part = (size_t)lmc__min64(size, run->size - at);
        if (file_number == r->window_file && offset >= r->window_start &&
            offset - r->window_start < r->window.size) {
            part = lmc__min(part, (size_t)(r->window_start + r->window.size - offset));
            memcpy(out, r->window.data + (size_t)(offset - r->window_start), part);
        } else if (at % run->block_size == 0 &&
                   (part >= run->block_size || part == run->size - at)) {
            if (part < run->size - at) part -= part % run->block_size;
            LMC__TRY(lmc__read_run(r, number, at, out, part));
        } else { /* to be found in it now */
            const size_t span = run->block_size > LMC__WINDOW_SIZE
                                    ? run->block_size
                                    : LMC__WINDOW_SIZE; /* powers of two */
            const uint64_t start = at - at % run->block_size;
            const size_t n = (size_t)lmc__min64(span - start % span, run->size - start);
            r->window.size = 0; /* nothing, if reading fails */
            LMC__TRY(lmc__reserve(&r->window, n));
            LMC__TRY(lmc__read_run(r, number, start, r->window.data, n));
            r->window.size = n;
            r->window_file = file_number;
            r->window_start = run->start + start;
            continue;
        }
        out += part;
        offset += part;
        size -= part;
    }
    return LMC_OK;
}

LMC_API enum lmc_status lmc_read_file(lmc_reader *r, size_t file_number, uint64_t offset, void *dst,
                                      size_t size)
{
    const lmc__reader_file *f;
    uint8_t *out = (uint8_t *)dst;
    size_t number;
    if (!r || file_number >= r->n_files || (!dst && size)) return LMC_ERR_ARGUMENT;
    f = lmc__file_at(r, file_number);
    if (offset > f->file.size || size > f->file.size - offset) return LMC_ERR_ARGUMENT;
    if (size == 0) return LMC_OK;
    for (number = lmc__find_run(r, f, offset); size != 0; number++) {
        const lmc__run *run;
        size_t n;
        LMC__CHECK(!r->options.salvage || lmc__is_in_run(r, f, number, offset), LMC_ERR_NOT_FOUND);
        run = &lmc__run_at(r, number)->run;
        n = (size_t)lmc__min64(size, run->start + run->size - offset);
        LMC__TRY(lmc__read_run(r, number, offset - run->start, out, n));
        out += n;
        offset += n;
        size -= n;
    }
    return LMC_OK;
}

LMC_API enum lmc_status lmc_read_tensor(lmc_reader *r, size_t file_number, const lmc_tensor *tensor,
                                        uint64_t offset, void *dst, size_t size)
{
    if (!tensor || offset > tensor->size || size > tensor->size - offset) return LMC_ERR_ARGUMENT;
    return lmc_read_file(r, file_number, tensor->offset + offset, dst, size);
}

LMC_API void lmc_get_identity(const lmc_reader *r, uint8_t identity[LMC_IDENTITY_SIZE])
{
    if (r && identity) memcpy(identity, r->identity, LMC_IDENTITY_SIZE);
}

LMC_API uint32_t lmc_get_base_identity(const lmc_reader *r, uint8_t identity[LMC_IDENTITY_SIZE])
{
    if (r && identity) memcpy(identity, r->base_identity, LMC_IDENTITY_SIZE);
    return r ? r->chain_depth : 0;
}

LMC_API size_t lmc_count_metadata(const lmc_reader *r) { return r ? r->n_metadata : 0; }

LMC_API enum lmc_status lmc_get_metadata(const lmc_reader *r, size_t i, const char **key,
                                         const void **value, size_t *size)
{
    const lmc__entry *entry;
    if (!r || !key || !value || !size) return LMC_ERR_ARGUMENT;
    if (i >= r->n_metadata) return LMC_ERR_NOT_FOUND;
    entry = (const lmc__entry *)(const void *)r->metadata.data + i;
    *key = (const char *)r->keys.data + entry->key_at;
    *value = entry->value;
    *size = entry->size;
    return LMC_OK;
}

LMC_API uint64_t lmc_count_encoded(const lmc_reader *r, size_t file_number, uint64_t offset,
                                   uint64_t size)
{
    const lmc__reader_file *f;
    uint64_t encoded = 0;
    size_t number;
    if (!r || file_number >= r->n_files || r->options.salvage) return 0;
    f = lmc__file_at(r, file_number);
    if (offset >= f->file.size) return 0;
    size = lmc__min64(size, f->file.size - offset);
    for (number = lmc__find_run(r, f, offset); size != 0; number++) {
        const lmc__run *run = &lmc__run_at(r, number)->run;
        const uint64_t *block_at = lmc__block_at(r) + lmc__run_at(r, number)->first_block;
        const uint64_t n = lmc__min64(size, run->start + run->size - offset),
                       at = offset - run->start;
        const uint64_t first = at / run->block_size, last = (at + n - 1) / run->block_size;
        const uint64_t last_size = lmc__min64(run->block_size, run->size - last * run->block_size);
        const uint64_t before = at - first * run->block_size,
                       behind = last * run->block_size + last_size - (at + n);
        /* all of the blocks, less what lies before and behind in the first and the last of them, in
         * proportion */
        encoded += block_at[last + 1] - block_at[first];
        encoded -= (block_at[first + 1] - block_at[first]) * before /
                   lmc__min64(run->block_size, run->size - first * run->block_size);
        encoded -= (block_at[last + 1] - block_at[last]) * behind / last_size;
        offset += n;
        size -= n;
    }
    return encoded;
}
