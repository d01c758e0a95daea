/* Readers of damaged files: with any damage, every block whose bytes are intact is salvaged, right,
 * at its place; and nothing else is. Files with predictions of a base, own predictions and
 * quantised blocks are tried with every bit flipped, and cut to every length. */
#include "t_parts.h"
#include "t_wire.h"
#include "../../include/lmc_salvage.h"

#if !defined(_WIN32) && !defined(__wasi__)
#include <dirent.h>
#endif

static uint64_t state = 2027;
static t_guard g_file;

/* -- where the blocks of an intact file are -- */

typedef struct place {
    size_t at, size; /* in the LMC file */
    uint32_t run, block;
    unsigned prediction; /* of the run; 3 if by its own snapshot, converted or not */
    size_t file, offset, length;
} place;

#define MAX_PLACES 4096
typedef struct layout {
    place places[MAX_PLACES];
    size_t n, rows_at, index_at; /* the sections of both */
    /* FILE and RUN sections, with their headers */
    size_t sections[W_SECTIONS], section_sizes[W_SECTIONS], n_sections;
} layout;

/* Each FILE section describes one file of the model. */
static void lay_out(layout *l, const t_memory *m)
{
    size_t at = W_HEADER, file = 0, offset = 0;
    uint32_t run = 0;
    memset(l, 0, sizeof *l);
    l->index_at = (size_t)w_get(m->data + m->size - W_TRAILER, 8);
    while (m->data[at] != 'B') {
        const uint8_t *body = m->data + at + W_SECTION;
        const size_t size = W_SECTION + (size_t)w_get(m->data + at + 4, 8);
        const int is_run = m->data[at] == 'R';
        if (l->n_sections == W_SECTIONS) abort();
        l->sections[l->n_sections] = at;
        l->section_sizes[l->n_sections++] = size;
        at += size;
        if (m->data[at - size] == 'F') {
            file++;
            offset = 0;
        } else if (is_run) {
            const size_t run_size = (size_t)w_get_varint(&body),
                         block_size = (size_t)w_get_varint(&body);
            const unsigned prediction = *body > 3 ? 3 : *body;
            uint32_t block = 0;
            size_t done;
            for (done = 0; done < run_size; done += block_size, block++) {
                place *const q = &l->places[l->n++];
                if (l->n == MAX_PLACES) abort();
                q->at = at;
                q->size = w_block_size(m->data + at);
                q->run = run;
                q->block = block;
                q->prediction = prediction;
                q->file = file - 1;
                q->offset = offset + done;
                q->length = run_size - done < block_size ? run_size - done : block_size;
                at += q->size;
            }
            offset += run_size;
            run++;
        }
    }
    l->rows_at = at;
}

/* -- one salvage, compared with the model -- */

typedef struct outcome {
    enum lmc_status status;  /* of opening */
    uint8_t got[MAX_PLACES]; /* 1: the block was salvaged; 2: but not its place */
    size_t n_got, n_unplaced, n_lost, n_confirmed, n_contradicted, n_described;
    uint64_t lost; /* bytes */
    lmc_damage damage;
    size_t peak;
} outcome;

typedef struct setting {
    const t_model *model;
    const lmc_base *base;
    layout *l;
    t_heap *heap; /* or NULL */
} setting;

static outcome o; /* large */

/* 1: sections were moved, and there may be no index. Then neighbours tell the place of a run, and
 * they may be wrong; and without BLKS a block may be at the place of another one. Its content is
 * right all the same. */
static int g_is_mixed;

/* The number of a file in the model; behind a lost file the salvage has another number. */
static size_t find_file(const setting *s, lmc_salvage *salvaged, size_t number)
{
    const lmc_file *const f = lmc_reader_get_file(lmc_salvage_reader(salvaged), number);
    size_t i;
    if (!f || !lmc_salvage_is_described(salvaged, number)) return SIZE_MAX;
    if (o.damage.has_index) return number;
    for (i = 0; i < s->model->n_files && strcmp(s->model->files[i].file.path, f->path) != 0; i++) {}
    return i;
}

/* The block of a range. Without an index the number of its run is a guess: then a block with these
 * bytes, if possible at that place. */
static const place *find_place(const setting *s, const lmc_salvage_range *range, size_t file)
{
    const place *found = NULL;
    size_t i;
    for (i = 0; i < s->l->n; i++) {
        const place *const p = &s->l->places[i];
        if (p->block != range->block_number || p->length != range->size ||
            (o.damage.has_index && !g_is_mixed && p->run != range->run_number) ||
            memcmp(range->data, s->model->files[p->file].data + p->offset, p->length) != 0)
            continue;
        if (p->file == file && p->offset == range->offset) return p;
        if (!found || o.got[found - s->l->places]) found = p;
    }
    return found;
}

static void salvage(const setting *s, t_memory *in)
{
    lmc_reader_options options;
    lmc_salvage *salvaged = NULL;
    lmc_reader *reader;
    lmc_source source = LMC_DEFAULTS;
    lmc_salvage_range range;
    enum lmc_status status;
    t_heap own;
    t_heap *const heap = s->heap ? s->heap : &own;
    size_t file = 0, i, j;
    uint64_t at = 0;
    memset(&o, 0, sizeof o);
    memset(&own, 0, sizeof own);
    own.fail_at = -1;
    memset(&options, 0, sizeof options);
    options.base = s->base;
    options.allocator = t_allocator(heap);
    source.read_at = t_read_at;
    source.user = in;
    source.size = in->size;
    o.status = lmc_salvage_open(&salvaged, &source, &options);
    reader = lmc_salvage_reader(salvaged);
    if (o.status == LMC_OK) CHECK_STATUS(lmc_salvage_get_damage(salvaged, &o.damage), LMC_OK);
    while (o.status == LMC_OK) {
        const place *p;
        status = lmc_salvage_next(salvaged, &range);
        if (status == LMC_ERR_MEMORY && s->heap) continue;
        if (!CHECK_STATUS(status, LMC_OK)) break;
        if (range.is_end) {
            CHECK(range.size == 0 && range.data == NULL && range.status == LMC_OK);
            CHECK_STATUS(lmc_salvage_next(salvaged, &range), LMC_OK);
            CHECK(range.is_end);
            break;
        }
        CHECK((range.data != NULL) == (range.status == LMC_OK));
        if (range.file_number == SIZE_MAX) {
            o.n_unplaced++;
            if (range.status != LMC_OK) continue;
            p = find_place(s, &range, SIZE_MAX);
            if (CHECK(p)) o.got[p - s->l->places] = 2;
            continue;
        }
        /* in ascending order, without gaps except at the end of files */
        CHECK(range.file_number >= file && range.size != 0);
        if (range.file_number != file) at = 0;
        file = range.file_number;
        CHECK(range.offset == at);
        at += range.size;
        if (range.status != LMC_OK) {
            o.n_lost++;
            o.lost += range.size;
            continue;
        }
        j = find_file(s, salvaged, file);
        p = find_place(s, &range, j);
        if (!CHECK(p &&
                   (g_is_mixed || j == SIZE_MAX || (p->offset == range.offset && p->file == j))))
            continue;
        o.n_got++;
        o.got[p - s->l->places] = 1;
    }
    if (o.status == LMC_OK) {
        for (i = 0; i < t_info(reader).n_files; i++) {
            const lmc_file *const f = lmc_reader_get_file(reader, i);
            enum lmc_status confirmed = lmc_salvage_confirm(salvaged, i, SIZE_MAX);
            o.n_confirmed += confirmed == LMC_OK;
            o.n_contradicted += confirmed == LMC_ERR_CHECKSUM;
            if (lmc_salvage_is_described(salvaged, i)) {
                o.n_described++;
                const size_t number = find_file(s, salvaged, i);
                if (!CHECK(number < s->model->n_files &&
                           strcmp(f->path, s->model->files[number].file.path) == 0))
                    continue;
                for (j = 0; j < f->n_tensors; j++) {
                    confirmed = lmc_salvage_confirm(salvaged, i, j);
                    o.n_confirmed += confirmed == LMC_OK;
                    o.n_contradicted += confirmed == LMC_ERR_CHECKSUM;
                    CHECK(strcmp(f->tensors[j].name,
                                 s->model->files[number].file.tensors[j].name) == 0);
                }
            } else CHECK(f->path[0] == 0 && f->size == LMC_UNKNOWN_SIZE && f->n_tensors == 0);
        }
        CHECK(o.n_contradicted == 0 || g_is_mixed);
        /* the reader's other functions */
        for (i = 0; i < t_info(reader).n_files && !s->heap && !g_is_mixed; i++) {
            uint8_t byte[40];
            const size_t number = find_file(s, salvaged, i);
            const t_file *const f = &s->model->files[number == SIZE_MAX ? 0 : number];
            if (number == SIZE_MAX || f->size == 0) continue;
            j = t_below(&state, f->size);
            status = lmc_reader_read_file(reader, i, j, byte,
                                          f->size - j < sizeof byte ? f->size - j : sizeof byte);
            if (status == LMC_OK)
                CHECK(memcmp(byte, f->data + j,
                             f->size - j < sizeof byte ? f->size - j : sizeof byte) == 0);
            CHECK(t_encoded_size(reader, i, 0, 1) == 0);
        }
    }
    o.peak = heap->peak;
    lmc_salvage_free(salvaged);
    CHECK(heap->live == 0 && heap->wrong_size == 0);
}

/* Checks that every block without bytes in [from, to) of the intact file was salvaged. */
static void check_got(const setting *s, size_t from, size_t to, int without_base)
{
    size_t i, n = 0;
    int own = 1;
    CHECK_STATUS(o.status, LMC_OK);
    for (i = 0; i < s->l->n; i++) { /* what predicts others */
        const place *p = &s->l->places[i];
        if (p->prediction != 3 && p->at < to && p->at + p->size > from) own = 0;
    }
    for (i = 0; i < s->l->n; i++) {
        const place *p = &s->l->places[i];
        if (p->at < to && p->at + p->size > from) continue;
        if ((p->prediction == 3 && (!own || without_base)) ||
            (p->prediction == 1 && without_base) || (p->prediction != 0 && without_base == 2))
            continue;
        n++;
        if (!CHECK(o.got[i] == 1)) {
            printf("  run %lu block %lu at %lu\n", (unsigned long)p->run, (unsigned long)p->block,
                   (unsigned long)p->at);
            return;
        }
    }
    CHECK(n > 0 || s->l->n == 0 || to - from > 500);
}

/* The source of a copy of these bytes. */
static void place_copy(t_memory *in, const uint8_t *data, size_t size)
{
    memset(in, 0, sizeof *in);
    in->data = t_tail(&g_file, size);
    in->size = size;
    memcpy(in->data, data, size);
}

static void test_intact(const setting *s, const t_memory *out)
{
    t_memory in;
    size_t i, n_tensors = 0;
    for (i = 0; i < s->model->n_files; i++) n_tensors += 1 + s->model->files[i].file.n_tensors;
    place_copy(&in, out->data, out->size);
    salvage(s, &in);
    check_got(s, 0, 0, 0);
    CHECK(o.n_lost == 0 && o.n_unplaced == 0 && o.n_confirmed == n_tensors &&
          o.n_described == s->model->n_files);
    CHECK(o.damage.has_header && o.damage.has_index && o.damage.has_trailer &&
          o.damage.is_complete && !o.damage.n_breaks && !o.damage.n_sections);
}

static int in_payload(const layout *l, size_t at)
{
    size_t i;
    for (i = 0; i < l->n; i++)
        if (l->places[i].at + W_BLOCK <= at && at < l->places[i].at + l->places[i].size) return 1;
    return 0;
}

static void test_flips(const setting *s, const t_memory *out, const char *name)
{
    t_memory in;
    size_t i, k;
    for (i = 0; i < out->size; i += t_quick ? 23 : 1) {
        for (k = 0; k < 8; k++) {
            t_note("%s: bit %lu of byte %lu of %lu", name, (unsigned long)k, (unsigned long)i,
                   (unsigned long)out->size);
            place_copy(&in, out->data, out->size);
            in.data[i] ^= (uint8_t)(1u << k);
            salvage(s, &in);
            check_got(s, i, i + 1, 0);
            /* damage is reported, except bits of payloads that change nothing (a tree can be
             * written in several ways) */
            CHECK(!o.damage.has_header || !o.damage.has_index || !o.damage.has_trailer ||
                  o.damage.n_breaks || o.damage.n_sections || o.n_lost || in_payload(s->l, i));
            CHECK(o.damage.is_complete);
        }
    }
}

static void test_cuts(const setting *s, const t_memory *out, const char *name)
{
    t_memory in;
    size_t i, n;
    for (i = 0; i < out->size; i += t_quick ? 23 : 1) {
        t_note("%s: cut to %lu of %lu bytes", name, (unsigned long)i, (unsigned long)out->size);
        place_copy(&in, out->data, i);
        salvage(s, &in);
        if (i >= W_HEADER) check_got(s, i, SIZE_MAX, 0);
        CHECK(!o.damage.has_trailer && !(o.damage.is_complete && i < s->l->rows_at + W_SECTION));
    }
    /* bytes are missing, or added, in the middle; with the index, or without */
    for (i = W_HEADER; i < s->l->index_at; i += t_quick ? 29 : t_long ? 1 : 3) {
        int without_index = i % 2;
        n = 1 + t_below(&state, i % 4 ? 20 : 200);
        if (n > s->l->index_at - i) n = s->l->index_at - i;
        t_note("%s: %lu bytes cut out at %lu%s", name, (unsigned long)n, (unsigned long)i,
               without_index ? ", no trailer" : "");
        place_copy(&in, out->data, out->size - n);
        memcpy(in.data + i, out->data + i + n, out->size - n - i);
        if (without_index) in.data[in.size - 1] ^= 1;
        salvage(s, &in);
        check_got(s, i, i + n, 0);
        t_note("%s: %lu bytes put in at %lu%s", name, (unsigned long)n, (unsigned long)i,
               without_index ? ", no trailer" : "");
        place_copy(&in, out->data, out->size);
        in.data = t_tail(&g_file, in.size += n);
        memcpy(in.data, out->data, i);
        t_fill(in.data + i, n, T_RANDOM, LMC_U8, i);
        memcpy(in.data + i + n, out->data + i, out->size - i);
        if (without_index) in.data[in.size - 1] ^= 1;
        salvage(s, &in);
        /* nothing is lost between two blocks */
        {
            size_t j, inside = 0;
            for (j = 0; j < s->l->n; j++)
                inside |= s->l->places[j].at < i && i < s->l->places[j].at + s->l->places[j].size;
            /* without the header of the first section a moved index is not accepted as ours, and
             * with that section the meaning of segments is lost */
            check_got(s, i, inside ? i + 1 : i, i > W_HEADER && i < W_HEADER + W_SECTION ? 2 : 0);
        }
    }
}

/* Blocks that were swapped, doubled, or overwritten by others of the same file. */
static void test_moved(const setting *s, const t_memory *out, const char *name)
{
    t_memory in;
    size_t i, j, k;
    for (k = 0; k < (t_quick ? 40u : 600u); k++) {
        const place *a = &s->l->places[i = t_below(&state, s->l->n)],
                    *b = &s->l->places[j = t_below(&state, s->l->n)];
        int is_swap = k % 2 && a->size == b->size;
        t_note("%s: blocks %lu and %lu, round %lu", name, (unsigned long)i, (unsigned long)j,
               (unsigned long)k);
        if (a->size > b->size && !is_swap) continue;
        place_copy(&in, out->data, out->size);
        memcpy(in.data + b->at, out->data + a->at, a->size);
        if (is_swap) memcpy(in.data + a->at, out->data + b->at, b->size);
        if (k % 3 == 0) in.data[in.size - 1] ^= 1;
        salvage(s, &in);
        if (i == j || is_swap) check_got(s, 0, 0, 0);
        else check_got(s, b->at, b->at + b->size, 0);
    }
}

/* Several kinds of damage at once: to a section and the index, then anything. What is salvaged is
 * right; nothing else is required. */
static void test_mixtures(const setting *s, const t_memory *out, const char *name)
{
    t_memory in;
    size_t i, k, size;
    for (i = 0; i < (t_quick ? 100u : 4000u); i++) {
        t_note("%s: mixture %lu", name, (unsigned long)i);
        size = i % 3 ? out->size : out->size - t_below(&state, out->size);
        place_copy(&in, out->data, size);
        for (k = 1 + t_below(&state, 5); k > 0 && size; k--) {
            size_t from = t_below(&state, out->size), to = t_below(&state, size),
                   n = 1 + t_below(&state, 60);
            if (n > out->size - from) n = out->size - from;
            if (n > size - to) n = size - to;
            if (i & 1) memmove(in.data + to, out->data + from, n);
            else in.data[to] ^= (uint8_t)(1 + t_below(&state, 255));
        }
        g_is_mixed = 1;
        salvage(s, &in);
        g_is_mixed = 0;
    }
}

/* A section of a run is lost, and so is the index: if the place of its blocks is certain, they are
 * salvaged all the same. */
static void test_lost_sections(const setting *s, const t_memory *out, const char *name)
{
    t_memory in;
    size_t i, j, n_placed = 0, n_unplaced = 0;
    for (i = 0; i < s->l->n_sections; i++) {
        const size_t at = s->l->sections[i], is_run = out->data[at] == 'R';
        for (j = 0; j < s->l->section_sizes[i]; j += 5) {
            size_t b;
            t_note("%s: section %lu damaged at %lu, and the index", name, (unsigned long)i,
                   (unsigned long)j);
            place_copy(&in, out->data, s->l->index_at);
            in.data[at + j] ^= 0x10;
            salvage(s, &in);
            CHECK_STATUS(o.status, LMC_OK);
            for (b = 0; b < s->l->n; b++) {
                const place *p = &s->l->places[b];
                const int is_its = is_run && p->at > at &&
                                   (i + 1 == s->l->n_sections || p->at < s->l->sections[i + 1]);
                if (is_its) {
                    n_placed += o.got[b] == 1;
                    n_unplaced += o.got[b] == 2;
                } else if (p->prediction == 0 || (is_run && p->prediction != 3))
                    CHECK(o.got[b] == 1); /* segments may need the sizes of tensors */
            }
            if (!is_run) CHECK(o.n_described == s->model->n_files - 1);
        }
    }
    CHECK(n_placed > 0);
    (void)n_unplaced;
}

static void test_memory(const setting *given, const t_memory *out, const char *name)
{
    setting s = *given;
    t_memory in;
    t_heap heap;
    long i, n = 1000000;
    int kind;
    for (kind = 0; kind < 3; kind++) {
        n = 1000000;
        for (i = 0; i < n; i += t_quick ? 7 : 1) {
            t_note("%s: allocation %ld fails, kind %d", name, i, kind);
            place_copy(&in, out->data, kind == 1 ? given->l->index_at : out->size);
            if (kind == 2) in.data[in.size - 1] ^= 1;
            memset(&heap, 0, sizeof heap);
            heap.fail_at = i;
            s.heap = &heap;
            salvage(&s, &in);
            if (heap.calls <= i) n = i;
            if (o.status != LMC_OK) CHECK_STATUS(o.status, LMC_ERR_MEMORY);
            else check_got(&s, 0, 0, 0); /* lmc_salvage_next continues */
        }
        CHECK(i > 3);
    }
}

/* Sectors that cannot be read. */
typedef struct bad_disk {
    t_memory *memory;
    size_t from, to;
} bad_disk;

static enum lmc_status read_bad_disk(void *user, uint64_t offset, void *dst, size_t size)
{
    const bad_disk *disk = (const bad_disk *)user;
    if (offset < disk->to && offset + size > disk->from) return LMC_ERR_READ;
    return t_read_at(disk->memory, offset, dst, size);
}

static void test_bad_disk(void)
{
    static t_model model;
    static layout l;
    static uint8_t data[300000];
    t_memory out;
    bad_disk disk;
    lmc_source source = LMC_DEFAULTS;
    lmc_reader_options options;
    lmc_salvage *reader = NULL;
    lmc_salvage_range range;
    size_t i, n_read = 0, n_lost = 0;
    memset(&out, 0, sizeof out);
    memset(&model, 0, sizeof model);
    t_fill(data, sizeof data, T_RANDOM, LMC_U8, 3);
    t_add_file(&model, "a", data, sizeof data);
    CHECK_STATUS(t_write_model(&model, &out, NULL, 0, NULL), LMC_OK);
    lay_out(&l, &out);
    t_note("bad sectors");
    disk.memory = &out;
    for (i = 0; i < out.size; i += 4096) {
        disk.from = i;
        disk.to = i + 4096;
        source.read_at = read_bad_disk;
        source.user = &disk;
        source.size = out.size;
        memset(&options, 0, sizeof options);
        CHECK_STATUS(lmc_salvage_open(&reader, &source, &options), LMC_OK);
        while (lmc_salvage_next(reader, &range) == LMC_OK && !range.is_end) {
            n_read += range.status == LMC_ERR_READ;
            n_lost += range.status == LMC_ERR_LOST;
            if (range.status == LMC_OK)
                CHECK(memcmp(range.data, data + range.offset, (size_t)range.size) == 0);
            else CHECK(range.size <= 131072);
        }
        lmc_salvage_free(reader);
    }
    CHECK(n_read > 30 && n_lost < 8);
    free(out.data);
}

static void test_all(const t_model *model, const lmc_writer_options *options, const lmc_base *base,
                     const char *name)
{
    static layout l;
    setting s;
    t_memory out;
    memset(&out, 0, sizeof out);
    memset(&s, 0, sizeof s);
    t_note("%s", name);
    CHECK_STATUS(t_write_model(model, &out, options, 0, NULL), LMC_OK);
    lay_out(&l, &out);
    s.model = model;
    s.base = base;
    s.l = &l;
    if (t_long)
        printf("%s: %lu bytes, %lu blocks, %lu sections\n", name, (unsigned long)out.size,
               (unsigned long)l.n, (unsigned long)l.n_sections);
    test_intact(&s, &out);
    test_flips(&s, &out, name);
    test_cuts(&s, &out, name);
    test_moved(&s, &out, name);
    test_mixtures(&s, &out, name);
    test_lost_sections(&s, &out, name);
    test_memory(&s, &out, name);
    if (base) { /* without it, blocks that need none */
        t_memory in;
        t_note("%s, without base", name);
        s.base = NULL;
        place_copy(&in, out.data, out.size);
        salvage(&s, &in);
        check_got(&s, 0, 0, 1);
        CHECK(o.n_lost > 0);
    }
    free(out.data);
}

/* Blocks whose bytes are all equal take a few dozen bytes: many of them make a small file. */
static void fill_blocks(uint8_t *data, size_t size, unsigned seed)
{
    size_t i;
    for (i = 0; i < size; i++) data[i] = (uint8_t)(seed + i / 16384 * 7);
}

#define N_A ((size_t)16384 * 9 + 500)
#define N_B ((size_t)16384 * 3 + 77)

static uint8_t a_data[N_A], b_data[N_B], a_new[N_A], b_new[N_B];

static void make_model(t_model *model, uint8_t *a, uint8_t *b, lmc_tensor *tensors,
                       lmc_tensor_hints *hints, unsigned seed, const lmc_twin *twin)
{
    static const uint64_t u8[1] = {16384 * 4}, bf16[2] = {20, 15}, floats[1] = {2048},
                          halves[1] = {2048}, none[1] = {0};
    t_file *f;
    memset(model, 0, sizeof *model);
    fill_blocks(a, N_A, seed);
    fill_blocks(b, N_B, seed + 100);
    t_fill(a + 16384 * 4 + 100, 600, T_GAUSS, LMC_BF16, seed);
    t_fill(a + 16384 * 5, 8192, T_SPARSE, LMC_F32, seed);
    CHECK_STATUS(lmc_conversion_apply(a + 16384 * 6, a + 16384 * 5, 2048, LMC_CONVERT_F32_TO_BF16),
                 LMC_OK);
    tensors[0] = t_tensor("bytes", "U8", 1, u8, 0, 16384 * 4);
    tensors[1] = t_tensor("w", "BF16", 2, bf16, 16384 * 4 + 100, 600);
    tensors[2] = t_tensor("master", "F32", 1, floats, 16384 * 5, 8192);
    tensors[3] = t_tensor("half", "BF16", 1, halves, 16384 * 6, 4096);
    tensors[4] = t_tensor("empty", "BF16", 1, none, N_A, 0);
    f = t_add_file(model, "dir/a", a, N_A);
    f->file.tensors = tensors;
    f->file.n_tensors = 5;
    f->hints = hints;
    hints[3].twin = twin;
    t_add_file(model, "dir/empty", NULL, 0);
    t_add_file(model, "dir/void", NULL, 0)->file.kind = LMC_FILE_DIRECTORY;
    f = t_add_file(model, "unknown", b, N_B);
    f->file.size = LMC_UNKNOWN_SIZE;
    model->n_metadata = 1;
    model->keys[0] = "key";
    model->values[0] = "value";
    model->value_sizes[0] = 5;
}

static void test_snapshots(void)
{
    static t_model model, old;
    static lmc_tensor tensors[5], old_tensors[5];
    static lmc_tensor_hints hints[5], old_hints[5];
    lmc_twin twin = LMC_DEFAULTS;
    lmc_writer_options options;
    t_memory base_file;
    lmc_reader *reader;
    lmc_base base;
    own o_own;
    memset(&options, 0, sizeof options);
    options.log2_block = 14;
    make_model(&old, a_data, b_data, old_tensors, old_hints, 1, NULL);
    test_all(&old, &options, NULL, "snapshot");

    twin.file_number = 0;
    twin.offset = 16384 * 5;
    twin.conversion = LMC_CONVERT_F32_TO_BF16;
    make_model(&model, a_new, b_new, tensors, hints, 2, &twin);
    memset(&o_own, 0, sizeof o_own);
    o_own.model = &model;
    options.read_back = read_own;
    options.user = &o_own;
    test_all(&model, &options, NULL, "twins");

    memset(&base_file, 0, sizeof base_file);
    CHECK_STATUS(t_write_model(&old, &base_file, NULL, 0, NULL), LMC_OK);
    reader = open_memory(&base_file, NULL, NULL);
    base = lmc_reader_base(reader);
    options.base = &base;
    make_model(&model, a_new, b_new, tensors, hints, 1, &twin);
    a_new[16384 * 4 + 110] ^= 1;
    a_new[16384 * 5 + 6] ^= 1;
    CHECK_STATUS(
        lmc_conversion_apply(a_new + 16384 * 6, a_new + 16384 * 5, 2048, LMC_CONVERT_F32_TO_BF16),
        LMC_OK);
    t_fill(b_new + 16384, 500, T_GAUSS, LMC_U8, 9);
    test_all(&model, &options, &base, "delta");

    { /* a damaged base: what its lost blocks predict is lost */
        static layout l, of_base;
        t_memory out, in;
        lmc_reader_options damaged;
        lmc_salvage *from = NULL;
        lmc_source source = LMC_DEFAULTS;
        lmc_base again;
        setting s;
        size_t i, n_lost = 0;
        memset(&out, 0, sizeof out);
        CHECK_STATUS(t_write_model(&model, &out, &options, 0, NULL), LMC_OK);
        lay_out(&l, &out);
        lay_out(&of_base, &base_file);
        for (i = 0; i < of_base.n; i++) {
            t_note("damaged base, block %lu", (unsigned long)i);
            place_copy(&in, base_file.data, base_file.size);
            in.data[of_base.places[i].at + 3] ^= 1;
            memset(&damaged, 0, sizeof damaged);
            source.read_at = t_read_at;
            source.user = &in;
            source.size = in.size;
            CHECK_STATUS(lmc_salvage_open(&from, &source, &damaged), LMC_OK);
            again = lmc_reader_base(lmc_salvage_reader(from));
            memset(&s, 0, sizeof s);
            s.model = &model;
            s.base = &again;
            s.l = &l;
            salvage(&s, &out);
            CHECK_STATUS(o.status, LMC_OK);
            n_lost += o.n_lost;
            CHECK(o.n_got + 3 >= l.n);
            lmc_salvage_free(from);
        }
        CHECK(n_lost > 0);
        free(out.data);
    }
    lmc_reader_free(reader);
    free(base_file.data);
}

/* Blocks of another file, of the same number and size: BLKS tells which is right; without it, two
 * blocks of one number are both refused. */
static void test_foreign(void)
{
    static t_model ours, theirs;
    static layout l, m;
    static uint8_t x[16384 * 12], y[16384 * 12];
    lmc_writer_options options;
    t_memory a, b, in;
    setting s;
    size_t i;
    memset(&options, 0, sizeof options);
    options.log2_block = 14;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    memset(&ours, 0, sizeof ours);
    memset(&theirs, 0, sizeof theirs);
    for (i = 0; i < sizeof x; i++) x[i] = (uint8_t)(i / 16384), y[i] = (uint8_t)(100 + i / 16384);
    t_add_file(&ours, "x", x, sizeof x)->default_dtype = LMC_U8;
    t_add_file(&theirs, "x", y, sizeof y)->default_dtype = LMC_U8;
    CHECK_STATUS(t_write_model(&ours, &a, &options, 0, NULL), LMC_OK);
    CHECK_STATUS(t_write_model(&theirs, &b, &options, 0, NULL), LMC_OK);
    lay_out(&l, &a);
    lay_out(&m, &b);
    memset(&s, 0, sizeof s);
    s.model = &ours;
    s.l = &l;
    CHECK(l.n == m.n && l.n == 12);
    for (i = 0; i < l.n; i++) {
        CHECK(l.places[i].size == m.places[i].size && l.places[i].at == m.places[i].at);
        t_note("a foreign block in place of %lu", (unsigned long)i);
        place_copy(&in, a.data, a.size);
        memcpy(in.data + l.places[i].at, b.data + l.places[i].at, l.places[i].size);
        salvage(&s, &in);
        CHECK(o.n_confirmed == 0 && o.n_got == l.n - 1 && !o.got[i]);
        t_note("a foreign block before %lu", (unsigned long)i);
        place_copy(&in, a.data, a.size);
        in.data = t_tail(&g_file, in.size += m.places[i].size);
        memcpy(in.data, a.data, l.places[i].at);
        memcpy(in.data + l.places[i].at, b.data + m.places[i].at, m.places[i].size);
        memcpy(in.data + l.places[i].at + m.places[i].size, a.data + l.places[i].at,
               a.size - l.places[i].at);
        in.data = (uint8_t *)t_copy(in.data, in.size);
        in.size = l.index_at + m.places[i].size; /* no index, but BLKS */
        salvage(&s, &in);
        CHECK(o.n_got == l.n && o.damage.is_complete);
        in.size = l.rows_at + m.places[i].size;
        salvage(&s, &in);
        CHECK(o.n_got == l.n - 1 && !o.got[i] && !o.damage.is_complete);
        in.data[l.places[0].at - 1] ^= 1; /* and no section of the run */
        salvage(&s, &in);
        CHECK(o.n_got == l.n - 1 && !o.got[i]);
        free(in.data);
    }
    free(a.data);
    free(b.data);
}

/* A file of several runs, without its table of blocks and index, and perhaps without sections of
 * runs: neighbours tell which run a block belongs to. */
static void test_neighbours(void)
{
    static t_model model;
    static layout l;
    static uint8_t x[16384 * 20];
    lmc_writer_options options;
    t_memory out, in;
    setting s;
    w_file w;
    size_t i, j, k;
    memset(&options, 0, sizeof options);
    options.log2_block = 14;
    memset(&out, 0, sizeof out);
    memset(&model, 0, sizeof model);
    memset(&s, 0, sizeof s);
    for (i = 0; i < sizeof x; i++) x[i] = (uint8_t)(i / 16384);
    t_add_file(&model, "x", x, sizeof x)->default_dtype = LMC_U8;
    CHECK_STATUS(t_write_model(&model, &out, &options, 0, NULL), LMC_OK);
    /* the writer makes one run; here it becomes five, of one to seven blocks */
    w_parse(&w, out.data);
    CHECK(w.n == 2 && w.sections[1].kind[0] == 'R');
    {
        static const size_t cuts[6] = {0, 1, 6, 11, 13, 20};
        const t_memory blocks = w.sections[1].blocks;
        size_t from = 0;
        w.n = 1;
        free(w.sections[1].body.data);
        for (i = 0; i < 5; i++) {
            w_section *const run = &w.sections[w.n++];
            memset(run, 0, sizeof *run);
            memcpy(run->kind, "RUN ", 4);
            w_varint(&run->body, (cuts[i + 1] - cuts[i]) * 16384);
            w_varint(&run->body, 16384);
            w_number(&run->body, 0, 1);
            for (j = cuts[i]; j < cuts[i + 1]; j++) {
                const size_t size = w_block_size(blocks.data + from);
                w_put(&run->blocks, blocks.data + from, size);
                w_seal_block(run->blocks.data + run->blocks.size - size, (uint32_t)(j - cuts[i]));
                from += size;
            }
        }
        free(blocks.data);
    }
    w_build(&w, &out);
    w_free(&w);
    lay_out(&l, &out);
    CHECK(l.n == 20 && l.n_sections == 6);
    s.model = &model;
    s.l = &l;
    for (i = 1; i < 6; i++) { /* a run's section is lost: its blocks belong between its
                                 neighbours */
        t_note("lost section %lu", (unsigned long)i);
        place_copy(&in, out.data, l.rows_at);
        in.data[l.sections[i]] ^= 1;
        salvage(&s, &in);
        for (j = 0; j < l.n; j++) CHECK(o.got[j] == 1);
        CHECK(o.n_lost == 0 && o.damage.n_breaks);
        for (k = i + 1; k < 6; k++) { /* two */
            t_note("lost sections %lu and %lu", (unsigned long)i, (unsigned long)k);
            place_copy(&in, out.data, l.index_at);
            in.data[l.sections[i]] ^= 1;
            in.data[l.sections[k]] ^= 1;
            salvage(&s, &in);
            for (j = 0; j < l.n; j++) CHECK(o.got[j] != 0);
        }
    }
    for (i = 0; i < l.n; i++) { /* BLKS has all runs, so each block that is left has its place */
        t_note("no index, block %lu lost", (unsigned long)i);
        place_copy(&in, out.data, l.index_at);
        in.data[l.places[i].at] ^= 1;
        salvage(&s, &in);
        check_got(&s, l.places[i].at, l.places[i].at + 1, 0);
        CHECK(o.n_lost == 1 && o.damage.is_complete);
        t_note("neither index nor BLKS, block %lu lost", (unsigned long)i);
        in.size = l.rows_at;
        salvage(&s, &in);
        check_got(&s, l.places[i].at, l.places[i].at + 1, 0);
        t_note("damaged BLKS, block %lu lost", (unsigned long)i);
        place_copy(&in, out.data, out.size);
        in.data[l.places[i].at] ^= 1;
        in.data[l.rows_at + W_SECTION + 8 * i] ^= 1;
        salvage(&s, &in);
        check_got(&s, l.places[i].at, l.places[i].at + 1, 0);
        CHECK(o.n_lost == 1 && o.damage.n_sections == (i + 1 < l.n)); /* unless in a gap */
        /* and with another run's block of that number: the file's content, but from another place
         */
        t_note("BLKS is right, block %lu overwritten", (unsigned long)i);
        for (j = 0; j < l.n; j++) {
            if (l.places[j].size != l.places[i].size || i == j) continue;
            place_copy(&in, out.data, out.size);
            memcpy(in.data + l.places[i].at, in.data + l.places[j].at, l.places[j].size);
            salvage(&s, &in);
            check_got(&s, l.places[i].at, l.places[i].at + 1, 0);
            CHECK(o.n_lost == 1);
        }
    }
    free(out.data);
}

/* A delta without its base, and with another one: intact payloads are told from damaged ones in
 * both cases. */
static void test_wrong_base(void)
{
    static t_model old, model, other;
    static layout l;
    static uint8_t x[16384 * 4], y[16384 * 4], z[16384 * 4];
    lmc_writer_options options;
    lmc_reader_options given;
    lmc_reader *reader[2];
    lmc_base base[2];
    lmc_salvage_range range;
    lmc_salvage *salvaged = NULL;
    lmc_source source = LMC_DEFAULTS;
    t_memory files[3], in;
    size_t i, k;
    memset(files, 0, sizeof files);
    memset(&old, 0, sizeof old);
    memset(&model, 0, sizeof model);
    memset(&other, 0, sizeof other);
    memset(&options, 0, sizeof options);
    t_fill(x, sizeof x, T_GAUSS, LMC_BF16, 1);
    memcpy(y, x, sizeof x);
    for (i = 0; i < sizeof y; i += 50) y[i] ^= 1;
    t_fill(z, sizeof z, T_GAUSS, LMC_BF16, 2);
    t_add_file(&old, "x", x, sizeof x)->default_dtype = LMC_BF16;
    t_add_file(&model, "x", y, sizeof y)->default_dtype = LMC_BF16;
    t_add_file(&other, "x", z, sizeof z)->default_dtype = LMC_BF16;
    options.log2_block = 14;
    CHECK_STATUS(t_write_model(&old, &files[0], &options, 0, NULL), LMC_OK);
    CHECK_STATUS(t_write_model(&other, &files[1], &options, 0, NULL), LMC_OK);
    for (k = 0; k < 2; k++) {
        reader[k] = open_memory(&files[k], NULL, NULL);
        base[k] = lmc_reader_base(reader[k]);
    }
    options.base = &base[0];
    CHECK_STATUS(t_write_model(&model, &files[2], &options, 0, NULL), LMC_OK);
    lay_out(&l, &files[2]);
    CHECK(l.n == 2 && l.places[0].prediction == 1);
    place_copy(&in, files[2].data, files[2].size);
    in.data[l.places[1].at + W_BLOCK + 5] ^= 1; /* a payload; and the base is unknown */
    in.data[40] ^= 1;
    in.data[l.index_at + W_SECTION] ^= 1;
    source.read_at = t_read_at;
    source.user = &in;
    source.size = in.size;
    for (k = 0; k < 3; k++) {
        t_note("delta of which a payload is damaged, base %lu", (unsigned long)k);
        memset(&given, 0, sizeof given);
        given.base = k == 2 ? NULL : &base[k];
        CHECK_STATUS(lmc_salvage_open(&salvaged, &source, &given), LMC_OK);
        for (i = 0; i < l.n; i++) {
            CHECK_STATUS(lmc_salvage_next(salvaged, &range), LMC_OK);
            CHECK(range.block_number == i && range.size == l.places[i].length);
            CHECK_STATUS(range.status, i == 1   ? LMC_ERR_CHECKSUM
                                       : k == 0 ? LMC_OK
                                       : k == 1 ? LMC_ERR_BASE_WRONG
                                                : LMC_ERR_BASE_MISSING);
            if (range.status == LMC_OK)
                CHECK(memcmp(range.data, y + l.places[i].offset, (size_t)range.size) == 0);
        }
        CHECK(lmc_salvage_next(salvaged, &range) == LMC_OK && range.is_end);
        lmc_salvage_free(salvaged);
    }
    for (k = 0; k < 2; k++) lmc_reader_free(reader[k]);
    for (k = 0; k < 3; k++) free(files[k].data);
}

/* A snapshot that has another one as a stored file, whose blocks look like its own, but are not. */
static void test_nested(void)
{
    static t_model inner, outer;
    static layout l;
    static uint8_t x[16384 * 6];
    lmc_writer_options options;
    t_memory a, b, in;
    setting s;
    size_t i, k;
    memset(&options, 0, sizeof options);
    options.log2_block = 14;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    memset(&inner, 0, sizeof inner);
    memset(&outer, 0, sizeof outer);
    t_fill(x, sizeof x, T_GAUSS, LMC_BF16, 8);
    memset(x + 16384, 5, 3 * 16384);
    t_add_file(&inner, "x", x, sizeof x)->default_dtype = LMC_U8;
    CHECK_STATUS(t_write_model(&inner, &a, &options, 0, NULL), LMC_OK);
    t_add_file(&outer, "x.lmc", a.data, a.size)->default_dtype = LMC_U8;
    CHECK_STATUS(t_write_model(&outer, &b, &options, 0, NULL), LMC_OK);
    lay_out(&l, &b);
    CHECK(l.n >= 2);
    memset(&s, 0, sizeof s);
    s.model = &outer;
    s.l = &l;
    for (k = 0; k < 3; k++) /* with index, without, in place of the trailer */
        for (i = 0; i < l.index_at; i += t_quick ? 301 : 17) {
            size_t j;
            int is_header = 0;
            t_note("nested, kind %lu, byte %lu", (unsigned long)k, (unsigned long)i);
            place_copy(&in, b.data, k == 1 ? l.index_at : b.size);
            if (k == 2) in.data[in.size - 1] ^= 1;
            in.data[i] ^= 4;
            for (j = 0; j < l.n; j++)
                is_header |= i >= l.places[j].at && i < l.places[j].at + W_BLOCK;
            if (k == 1 && is_header) continue; /* then nothing tells, as the documentation says */
            salvage(&s, &in);
            if (k != 1 || i >= l.places[0].at) check_got(&s, i, i + 1, 0);
        }
    free(a.data);
    free(b.data);
}

/* As many headers as possible, which fit or nearly fit: salvaging ends, and its memory is
 * bounded. */
static void test_hostile(void)
{
    static t_model model;
    static layout l;
    static uint8_t data[16384 * 40];
    lmc_writer_options options;
    t_memory out, in;
    lmc_reader_options reader_options;
    lmc_salvage *reader = NULL;
    lmc_source source = LMC_DEFAULTS;
    lmc_salvage_range range;
    t_heap heap;
    int kind;
    const size_t n = t_quick ? 100000 : 4000000;
    size_t i, n_ranges;
    memset(&out, 0, sizeof out);
    memset(&model, 0, sizeof model);
    memset(&options, 0, sizeof options);
    options.log2_block = 14;
    t_add_file(&model, "a", data, sizeof data)->default_dtype = LMC_U8;
    CHECK_STATUS(t_write_model(&model, &out, &options, 0, NULL), LMC_OK);
    lay_out(&l, &out);
    memset(&in, 0, sizeof in);
    in.data = (uint8_t *)malloc(l.places[0].at + n + 100);
    if (!in.data) abort();
    for (kind = 0; kind < 6; kind++) {
        uint8_t head[64];
        const uint8_t *unit = head;
        size_t unit_size = W_BLOCK;
        t_note("hostile, kind %d", kind);
        memcpy(in.data, out.data, l.places[0].at);
        in.size = l.places[0].at;
        memset(head, 0, sizeof head);
        memcpy(head, out.data + l.places[0].at, W_BLOCK);
        t_store32(head + 8, kind == 0 ? 1 : kind == 1 ? 16383 : 8000);
        if (kind == 4) t_store32(head + 4, 1000); /* of an unknown run */
        if (kind == 5) {                          /* sections with bodies up to the end */
            memcpy(head, "FILE", 4);
            t_store32(head + 4, (uint32_t)n / 2);
            t_store32(head + 8, 0);
            unit_size = W_SECTION;
        }
        for (i = 0; in.size + unit_size <= n; i++) {
            if (kind == 5) {
                t_store32(head + 12, lmc_crc32c(0, head, 12));
                t_store32(head + 16, (uint32_t)i);
            } else {
                t_store32(head + 12, (uint32_t)(kind == 3 ? 0 : i));
                w_seal_block(head, (uint32_t)(kind == 2   ? 7
                                              : kind == 3 ? i * 2654435761u
                                                          : i % 40));
            }
            memcpy(in.data + in.size, unit, unit_size);
            in.size += unit_size;
        }
        memset(&heap, 0, sizeof heap);
        heap.fail_at = -1;
        memset(&reader_options, 0, sizeof reader_options);
        reader_options.allocator = t_allocator(&heap);
        source.read_at = t_read_at;
        source.user = &in;
        source.size = in.size;
        CHECK_STATUS(lmc_salvage_open(&reader, &source, &reader_options), LMC_OK);
        for (n_ranges = 0; lmc_salvage_next(reader, &range) == LMC_OK && !range.is_end; n_ranges++)
            CHECK(range.status != LMC_OK);
        if (t_long)
            printf("kind %d: %lu ranges, %.1f bytes of memory for each of the file\n", kind,
                   (unsigned long)n_ranges, (double)heap.peak / (double)in.size);
        CHECK(heap.peak < 16 * in.size + ((size_t)16 << 20));
        lmc_salvage_free(reader);
    }
    free(in.data);
    free(out.data);
}

/* -- files that no writer makes: sections of several files, sections that may be skipped -- */

#if !defined(_WIN32) && !defined(__wasi__)
/* All bytes of the files, as an intact reader has them. */
static size_t read_reference(const t_memory *in, t_memory *files, size_t cap)
{
    lmc_reader *reader = NULL;
    lmc_source source = LMC_DEFAULTS;
    size_t i, n = 0;
    source.read_at = t_read_at;
    source.user = (void *)(uintptr_t)in;
    source.size = in->size;
    if (!CHECK_STATUS(lmc_reader_open(&reader, &source, NULL), LMC_OK)) return 0;
    for (; lmc_reader_get_file(reader, n) && n < cap; n++) {
        memset(&files[n], 0, sizeof files[n]);
        files[n].size = (size_t)lmc_reader_get_file(reader, n)->size;
        files[n].data = (uint8_t *)malloc(files[n].size + 1);
        if (!files[n].data) abort();
        CHECK_STATUS(lmc_reader_read_file(reader, n, 0, files[n].data, files[n].size), LMC_OK);
    }
    for (i = 0; i < n; i++)
        CHECK(lmc_reader_get_file(reader, i)->kind == LMC_FILE_REGULAR || files[i].size == 0);
    lmc_reader_free(reader);
    return n;
}

/* Salvages, and checks all ranges. Returns how many bytes of all files are missing. */
static uint64_t count_missing(t_memory *in, const t_memory *files, size_t n)
{
    lmc_salvage *salvaged = NULL;
    lmc_source source = LMC_DEFAULTS;
    lmc_salvage_range range;
    uint64_t missing = 0;
    size_t i;
    for (i = 0; i < n; i++) missing += files[i].size;
    source.read_at = t_read_at;
    source.user = in;
    source.size = in->size;
    if (lmc_salvage_open(&salvaged, &source, NULL) != LMC_OK) return UINT64_MAX;
    while (lmc_salvage_next(salvaged, &range) == LMC_OK && !range.is_end) {
        const t_memory *const f = range.file_number < n ? &files[range.file_number] : NULL;
        if (range.status != LMC_OK || range.file_number == SIZE_MAX) continue;
        if (!lmc_salvage_is_described(salvaged, range.file_number)) continue; /* a guess */
        if (!CHECK(f && range.offset <= f->size && range.size <= f->size - range.offset)) break;
        CHECK(memcmp(range.data, f->data + range.offset, (size_t)range.size) == 0);
        missing -= range.size;
    }
    lmc_salvage_free(salvaged);
    return missing;
}

/* Marks the sections that may be skipped, with their headers. */
static size_t mark_ancillary(const t_memory *in, size_t index_at, uint8_t *marks)
{
    size_t at, n = 0;
    memset(marks, 0, in->size);
    for (at = W_HEADER; at + W_SECTION <= index_at; at++) {
        const uint8_t *const p = in->data + at;
        const size_t size = (size_t)w_get(p + 4, 8);
        if (p[0] < 'a' || p[0] > 'z' || t_crc32c(0, p, 12) != t_load32(p + 12)) continue;
        memset(marks + at, 1, size < index_at - at - W_SECTION ? size + W_SECTION : index_at - at);
        at += W_SECTION - 1 + size;
        n++;
    }
    return n;
}

/* Flips a bit at each place. Damage to sections that may be skipped, to the index or to the trailer
 * loses no data; a missing index does not, either. */
static void salvage_vector(const char *path, size_t *n_ancillary)
{
    static t_memory files[300];
    static uint8_t data[1 << 20], marks[1 << 20];
    t_memory in, cut;
    FILE *const file = fopen(path, "rb");
    size_t n, i, index_at;
    if (!file) abort();
    memset(&in, 0, sizeof in);
    in.data = data;
    in.size = fread(data, 1, sizeof data, file);
    fclose(file);
    t_note("%s", path);
    n = read_reference(&in, files, 300);
    index_at = (size_t)w_get(in.data + in.size - W_TRAILER, 8);
    *n_ancillary += mark_ancillary(&in, index_at, marks);
    CHECK(count_missing(&in, files, n) == 0);
    cut = in;
    cut.size = index_at;
    if (!strstr(path, "_is_lmc")) CHECK(count_missing(&cut, files, n) == 0);
    for (i = 0; i < in.size; i += 1 + (in.size > 4000 ? in.size / 1000 : 0)) {
        uint64_t missing;
        data[i] ^= (uint8_t)(1u << i % 8);
        missing = count_missing(&in, files, n);
        if ((marks[i] || i >= index_at) && !strstr(path, "_is_lmc")) CHECK(missing == 0);
        data[i] ^= (uint8_t)(1u << i % 8);
    }
    for (i = 0; i < n; i++) free(files[i].data);
}

static void test_vectors(void)
{
    static const char *const kinds[] = {"group_",  "ancillary_", "hash",
                                        "future_", "pad",        "records_"};
    DIR *const directory = opendir("spec/vectors/valid");
    const struct dirent *entry;
    size_t n = 0, n_ancillary = 0, i;
    if (!CHECK(directory != NULL)) return;
    while ((entry = readdir(directory)) != NULL) {
        char path[600];
        const char *const name = entry->d_name;
        for (i = 0; i < 6 && strncmp(name, kinds[i], strlen(kinds[i])) != 0; i++) {}
        if (i == 6 || !strstr(name, ".lmc") || strstr(name, "delta") || strstr(name, "own"))
            continue;
        snprintf(path, sizeof path, "spec/vectors/valid/%s", name);
        salvage_vector(path, &n_ancillary);
        n++;
    }
    closedir(directory);
    CHECK(n > 50 && n_ancillary > 30);
}
#endif

static void test_arguments(void)
{
    static t_model model;
    t_memory out;
    lmc_salvage *salvaged = NULL;
    lmc_reader_options options;
    lmc_salvage_range range;
    lmc_damage damage;
    lmc_source source = LMC_DEFAULTS;
    t_note("arguments");
    memset(&out, 0, sizeof out);
    t_add_file(&model, "a", a_data, 100);
    CHECK_STATUS(t_write_model(&model, &out, NULL, 0, NULL), LMC_OK);
    source.read_at = t_read_at;
    source.user = &out;
    source.size = out.size;
    memset(&options, 0, sizeof options);
    CHECK_STATUS(lmc_salvage_next(NULL, &range), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_salvage_get_damage(NULL, &damage), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_salvage_open(NULL, &source, &options), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_salvage_open(&salvaged, NULL, &options), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_salvage_confirm(NULL, 0, SIZE_MAX), LMC_ERR_ARGUMENT);
    CHECK(lmc_salvage_is_described(NULL, 0) == 0 && lmc_salvage_reader(NULL) == NULL);
    lmc_salvage_free(NULL);
    options.max_total_size = 99;
    CHECK_STATUS(lmc_salvage_open(&salvaged, &source, &options), LMC_OK);
    CHECK_STATUS(lmc_salvage_next(salvaged, NULL), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_salvage_next(salvaged, &range), LMC_ERR_LIMIT);
    CHECK_STATUS(lmc_salvage_get_damage(salvaged, NULL), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_salvage_confirm(salvaged, 0, SIZE_MAX), LMC_ERR_LOST);
    CHECK_STATUS(lmc_salvage_confirm(salvaged, 0, 0), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_salvage_confirm(salvaged, 0, 99), LMC_ERR_ARGUMENT);
    CHECK_STATUS(lmc_salvage_confirm(salvaged, 1, SIZE_MAX), LMC_ERR_ARGUMENT);
    lmc_salvage_free(salvaged);
    salvaged = NULL;
    options.max_total_size = 0;
    memset(out.data, 7, out.size);
    for (source.size = 0; source.size <= out.size; source.size++) {
        out.size = out.size; /* nothing in it */
        CHECK_STATUS(lmc_salvage_open(&salvaged, &source, &options), LMC_ERR_NOT_LMC);
    }
    for (source.size = UINT64_MAX; source.size > INT64_MAX; source.size >>= 1) {
        const long reads = out.reads; /* no more reads */
        lmc_reader *reader = NULL;
        CHECK_STATUS(lmc_salvage_open(&salvaged, &source, &options), LMC_ERR_LIMIT);
        CHECK_STATUS(lmc_reader_open(&reader, &source, &options), LMC_ERR_LIMIT);
        CHECK(out.reads == reads);
    }
    free(out.data);
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    g_file = t_new_guard((size_t)1 << 20);
    test_arguments();
    test_snapshots();
    test_foreign();
    test_neighbours();
    test_wrong_base();
    test_nested();
    test_bad_disk();
    test_hostile();
#if !defined(_WIN32) && !defined(__wasi__)
    test_vectors();
#endif
    return t_end();
}
