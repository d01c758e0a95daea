/* repair.h - makes redundant fields of a mutated file right again, as far as the rest makes sense:
 * what a mutator needs to get past checksums. Part of lmc.c, for it uses what is private there.
 * Sections' kinds, sizes and bodies, headers and payloads of blocks stay as they are. */

#define RESTORED_CAP ((size_t)1 << 20)
#define MOST_FILES 64

typedef struct repairer {
    const lmc__kernels *k;
    lmc__origin origin;
    lmc__listing listing;
    lmc__index_builder index;
    lmc__buffer items, segments;
    lmc__digester digester;
    unsigned features;
    uint32_t n_runs, n_ancillary;
    size_t file;       /* the one whose bytes come next */
    uint64_t position; /* bytes of the stream that are in runs so far */
    int in_stream;
    uint8_t *restored; /* all files, one after another */
    size_t n_restored, starts[MOST_FILES + 1];
} repairer;

static void seal_section(uint8_t *head, uint32_t number, uint64_t size, const lmc__kernels *k)
{
    lmc__store32(head + 4, number);
    lmc__store64(head + 8, size);
    lmc__store32(head + 16, k->crc32c(0, head, 16));
    lmc__store32(head + 20, k->crc32c(0, head + 24, (size_t)size));
}

/* Magic and version, too: so files of an earlier version of the format can be what a corpus begins
 * with. */
static void seal_header(uint8_t *header, const lmc__kernels *k)
{
    memcpy(header, lmc__magic, 8);
    header[8] = LMC_FORMAT_MAJOR;
    header[9] = LMC_FORMAT_MINOR;
    lmc__store32(header + 76, k->crc32c(0, header, 76));
}

static void seal_trailer(uint8_t *trailer, uint64_t index_at, uint64_t index_size,
                         const lmc__kernels *k)
{
    lmc__store64(trailer, index_at);
    lmc__store64(trailer + 8, index_size);
    lmc__store64(trailer + 16, index_at + index_size + 40);
    lmc__store32(trailer + 28, k->crc32c(0, trailer, 28));
}

static enum lmc_status read_restored(void *user, size_t file_number, uint64_t offset, void *dst,
                                     size_t size)
{
    const repairer *r = (const repairer *)user;
    if (file_number > r->file || offset > r->n_restored - r->starts[file_number] ||
        size > r->n_restored - r->starts[file_number] - offset)
        return LMC_ERR_READ;
    memcpy(dst, r->restored + r->starts[file_number] + offset, size);
    return LMC_OK;
}

/* Of the last stream; `done` bytes of what was restored are those of files before. */
static void begin_file(repairer *r, size_t done)
{
    const lmc_file *const file = &lmc__listed_at(&r->listing, r->file)->file;
    r->starts[r->file] = done;
    lmc__index_file(&r->index, file);
    lmc__begin_digester(&r->digester, file);
}

static void end_file(repairer *r)
{
    lmc__index_file_end(&r->index, &r->digester, &lmc__listed_at(&r->listing, r->file)->file,
                        r->digester.absorbed);
}

/* The next bytes of the stream, which are the last that were restored. */
static void absorb(repairer *r, size_t size)
{
    while (size != 0) {
        const lmc_file *const file = &lmc__listed_at(&r->listing, r->file)->file;
        const uint64_t left = file->size - r->digester.absorbed;
        if (left == 0) {
            end_file(r);
            r->file++;
            begin_file(r, r->n_restored - size);
        } else {
            const uint8_t *const content = r->restored + r->n_restored - size;
            lmc__piece piece = lmc__plan_piece(&r->digester, (size_t)lmc__min64(size, left));
            piece.crc64 = r->k->crc64(0, content, piece.size);
            piece.part_size = piece.size;
            piece.part_crc = r->k->crc32c(0, content, piece.size);
            r->digester.identities = lmc__index_identities(&r->index);
            lmc__absorb_piece(&r->digester, &piece);
            size -= piece.size;
        }
    }
}

/* 0: the stream is not complete. */
static int end_stream(repairer *r)
{
    lmc__stream *stream;
    if (!r->in_stream) return 1;
    stream = lmc__stream_at(&r->listing, r->listing.n_streams - 1);
    if (stream->is_unknown) stream->size = r->position;
    if (r->position != stream->size) return 0;
    end_file(r);
    while (++r->file < r->listing.n_files) {
        begin_file(r, r->n_restored);
        end_file(r);
    }
    r->in_stream = 0;
    return 1;
}

/* One block at p, of which `left` bytes are there, that should decode to size bytes. Returns what
 * it takes, or 0. */
static size_t repair_block(repairer *r, const lmc__run *run, uint64_t number, uint8_t *p,
                           size_t left, size_t size)
{
    static uint8_t base[8 << 20], workspace[32 << 20];
    const lmc__streaming off = {0, NULL, 0};
    lmc_position position;
    lmc_block_info info;
    enum lmc_status status;
    uint8_t *const out = r->restored + r->n_restored;
    position.run = r->n_runs - 1;
    position.block = (uint32_t)number;
    if (left < LMC_BLOCK_HEADER_SIZE || size > RESTORED_CAP - r->n_restored) return 0;
    fuzz_seal_block(p, position);
    if (lmc__read_block_info(r->k, p, left, position, &info) != LMC_OK ||
        info.encoded_size > left || info.size != size)
        return 0;
    if (info.has_prediction) {
        if (lmc__read_prediction(&r->origin, run, number * run->block_size, base, size) != LMC_OK)
            return 0;
        lmc__store32(p + 16, r->k->crc32c(0, base, size));
        fuzz_seal_block(p, position);
        info.base_crc = lmc__load32(p + 16);
    }
    status = lmc__decode_block(r->k, out, off, p, &info, info.has_prediction ? base : NULL,
                               workspace, sizeof workspace);
    if (status != LMC_OK && status != LMC_ERR_CHECKSUM) return 0;
    lmc__store32(p + 12, r->k->crc32c(0, out, size));
    fuzz_seal_block(p, position);
    r->n_restored += size;
    absorb(r, size);
    return info.encoded_size;
}

/* A FILE section; 0: it cannot be one. */
static int repair_files(repairer *r, uint64_t at, const uint8_t *head, size_t body_size)
{
    lmc__listing *const l = &r->listing;
    const uint8_t *const body = head + LMC__SECTION_HEADER_SIZE;
    if (!end_stream(r) || lmc__list_files(l, body, body_size, r->features) != LMC_OK ||
        l->n_files > MOST_FILES ||
        lmc__index_section(&r->index, at, head, body, body_size) != LMC_OK ||
        lmc__index_files(&r->index, l, lmc__stream_at(l, l->n_streams - 1)) != LMC_OK)
        return 0;
    r->file = lmc__stream_at(l, l->n_streams - 1)->first_file;
    r->position = 0;
    r->in_stream = 1;
    begin_file(r, r->n_restored);
    return 1;
}

/* A RUN section and its blocks, in a file of `size` bytes. Returns where they end, or 0. */
static size_t repair_run(repairer *r, uint8_t *file, size_t at, size_t size, size_t body_size)
{
    uint8_t *const head = file + at, *const body = head + LMC__SECTION_HEADER_SIZE;
    uint64_t block;
    lmc__run run;
    r->segments.size = 0;
    if (!r->in_stream ||
        lmc__parse_run(&run, &r->segments, body, body_size, &r->listing, r->listing.n_streams - 1,
                       &r->position) != LMC_OK ||
        lmc__check_run_features(&run, r->features) != LMC_OK ||
        lmc__check_predictions(&r->origin, &run, LMC_ERR_CORRUPT) != LMC_OK ||
        lmc__add_run(&r->origin, &run) != LMC_OK ||
        lmc__index_section(&r->index, at, head, body, body_size) != LMC_OK)
        return 0;
    at += LMC__SECTION_HEADER_SIZE + body_size;
    r->n_runs++;
    for (block = 0; block < run.n_blocks; block++) {
        const size_t taken =
            repair_block(r, &run, block, file + at, size - at, lmc__block_size_at(&run, block));
        if (taken == 0 || lmc__index_block(&r->index, taken, file + at) != LMC_OK) return 0;
        at += taken;
    }
    return at;
}

/* Everything up to the index; returns where that may be, or 0. */
static size_t repair_sections(repairer *r, uint8_t *file, size_t size)
{
    size_t at = LMC__HEADER_SIZE;
    while (size - at >= LMC__SECTION_HEADER_SIZE && memcmp(file + at, "INDX", 4) != 0) {
        uint8_t *const head = file + at;
        const uint64_t body_size = lmc__load64(head + 8);
        const int is_run = memcmp(head, "RUN ", 4) == 0, is_file = memcmp(head, "FILE", 4) == 0;
        if (body_size > size - at - LMC__SECTION_HEADER_SIZE) return 0;
        seal_section(head,
                     is_run    ? r->n_runs
                     : is_file ? (uint32_t)r->listing.n_streams
                               : r->n_ancillary,
                     body_size, r->k);
        if (is_run) {
            at = repair_run(r, file, at, size, (size_t)body_size);
            if (at == 0) return 0;
            continue;
        }
        if (is_file ? !repair_files(r, at, head, (size_t)body_size)
                    : !lmc__is_lower((char)head[0]) || !r->listing.n_streams ||
                          lmc__index_section(&r->index, at, head, NULL, 0) != LMC_OK)
            return 0;
        r->n_ancillary += !is_file;
        at += LMC__SECTION_HEADER_SIZE + (size_t)body_size;
    }
    return end_stream(r) && r->listing.n_files ? at : 0;
}

/* Index and trailer at `at`, where an index was that may be right as to metadata. Returns the size
 * of the file. */
static size_t repair_end(repairer *r, uint8_t *file, size_t at, size_t size, size_t cap)
{
    uint8_t *const head = file + at, *const body = head + LMC__SECTION_HEADER_SIZE;
    const size_t entries = LMC__INDEX_BODY_SIZE + r->index.entries.size, old_left = size - at;
    size_t n_metadata = 0, metadata_size = 0, body_size;
    uint64_t old_size;
    if (old_left >= LMC__SECTION_HEADER_SIZE + LMC__INDEX_BODY_SIZE) {
        old_size = lmc__load64(head + 8);
        n_metadata = lmc__load32(body + 84);
        if (old_size >= entries && old_size <= old_left - LMC__SECTION_HEADER_SIZE)
            metadata_size = (size_t)old_size - entries;
    }
    body_size = entries + metadata_size;
    if (cap < at || cap - at < LMC__SECTION_HEADER_SIZE + body_size + LMC__TRAILER_SIZE)
        return size;
    if (metadata_size == 0) n_metadata = 0;
    memcpy(head, "INDX", 4);
    memcpy(body, file, LMC__HEADER_SIZE);
    lmc__store32(body + 80, (uint32_t)r->listing.n_streams + r->n_runs + r->n_ancillary);
    lmc__store32(body + 84, (uint32_t)n_metadata);
    if (r->index.entries.size)
        memcpy(body + LMC__INDEX_BODY_SIZE, r->index.entries.data, r->index.entries.size);
    if (lmc__collect_items(&r->items, &r->listing) != LMC_OK) return size;
    lmc__snapshot_identity(&r->items, body + 88);
    seal_section(head, 0, body_size, r->k);
    memset(body + body_size, 0, LMC__TRAILER_SIZE);
    memcpy(body + body_size + 32, lmc__end_magic, 8);
    body[body_size + 24] = LMC_FORMAT_MAJOR;
    seal_trailer(body + body_size, at, LMC__SECTION_HEADER_SIZE + body_size, r->k);
    return at + LMC__SECTION_HEADER_SIZE + body_size + LMC__TRAILER_SIZE;
}

/* A whole file, with the base that it may have; in memory of cap bytes. Returns its size, which may
 * be another. */
size_t fuzz_repair_snapshot(uint8_t *file, size_t size, size_t cap, const lmc_base *base)
{
    static uint8_t restored[RESTORED_CAP];
    repairer r;
    size_t at;
    if (size < LMC__HEADER_SIZE) return size;
    memset(&r, 0, sizeof r);
    r.k = lmc__get_kernels();
    r.restored = restored;
    r.index.limit = UINT64_MAX;
    lmc__init_listing(&r.listing, NULL);
    if (lmc__open_origin(&r.origin, &r.listing, base, NULL) == LMC_OK) {
        r.origin.read_back = read_restored;
        r.origin.user = &r;
        if (base && lmc__has_base(file))
            memcpy(file + LMC__BASE_IDENTITY_AT, r.origin.identity, LMC_IDENTITY_SIZE);
        seal_header(file, r.k);
        r.features = lmc__get_features(file);
        at = repair_sections(&r, file, size);
        if (at) size = repair_end(&r, file, at, size, cap);
    }
    lmc__free_buffer(&r.index.entries);
    lmc__free_buffer(&r.items);
    lmc__free_buffer(&r.segments);
    lmc__free_listing(&r.listing);
    lmc__free_origin(&r.origin);
    return size;
}

/* What the harness of indexes reads: header, INDX section and trailer, with nothing between
 * them. */
void fuzz_repair_index(uint8_t *file, size_t size)
{
    const lmc__kernels *const k = lmc__get_kernels();
    uint8_t *const head = file + LMC__HEADER_SIZE, *const body = head + LMC__SECTION_HEADER_SIZE,
                   *const trailer = file + size - LMC__TRAILER_SIZE;
    uint8_t *p = body + LMC__INDEX_BODY_SIZE;
    uint32_t n_runs = 0, n_ancillary = 0;
    uint64_t offset = LMC__HEADER_SIZE;
    lmc__buffer items;
    lmc__listing listing;
    int sound = 1;
    if (size <
        LMC__HEADER_SIZE + LMC__SECTION_HEADER_SIZE + LMC__INDEX_BODY_SIZE + LMC__TRAILER_SIZE)
        return;
    lmc__init_listing(&listing, NULL);
    memset(&items, 0, sizeof items);
    seal_header(file, k);
    memcpy(head, "INDX", 4);
    memcpy(body, file, LMC__HEADER_SIZE);
    while (sound && trailer - p >= 8 + (int)LMC__SECTION_HEADER_SIZE) {
        uint8_t *const section = p + 8, *const inner = section + LMC__SECTION_HEADER_SIZE;
        const uint64_t inner_size = lmc__load64(section + 8);
        const int is_file = *section == 'F', is_run = *section == 'R';
        uint64_t more = 0, i;
        if ((!is_file && !is_run && !lmc__is_lower((char)*section)) ||
            inner_size > LMC__MAX_BODY_SIZE)
            break;
        lmc__store64(p, offset);
        offset += LMC__SECTION_HEADER_SIZE + inner_size;
        if (!is_file && !is_run) { /* its body is elsewhere */
            lmc__store32(section + 4, n_ancillary++);
            lmc__store32(section + 16, k->crc32c(0, section, 16));
            p = inner;
            continue;
        }
        if (inner_size > (uint64_t)(trailer - inner)) break;
        memcpy(section, is_file ? "FILE" : "RUN ", 4);
        seal_section(section, is_file ? (uint32_t)listing.n_streams : n_runs, inner_size, k);
        p = inner + inner_size;
        if (is_file) {
            sound = lmc__list_files(&listing, inner, (size_t)inner_size, lmc__get_features(file)) ==
                    LMC_OK;
            for (i = sound ? lmc__stream_at(&listing, listing.n_streams - 1)->first_file : 0;
                 sound && i < listing.n_files; i++) {
                lmc_file *const f = &lmc__listed_at(&listing, (size_t)i)->file;
                const uint64_t at = more + lmc__facts_head_size(f);
                more = at + LMC_IDENTITY_SIZE * (uint64_t)lmc__count_identities(f);
                sound = more <= (uint64_t)(trailer - p);
                if (sound) lmc__keep_identities(f, p + at);
            }
        } else {
            lmc__run run;
            lmc__cursor c;
            c.p = inner;
            c.end = p;
            sound = lmc__get_run(&c, &run) == LMC_OK &&
                    run.n_blocks <= (uint64_t)(trailer - p) / LMC__BLOCK_ENTRY_SIZE;
            if (sound) more = LMC__BLOCK_ENTRY_SIZE * run.n_blocks;
            for (i = 0; i < more; i += LMC__BLOCK_ENTRY_SIZE) offset += lmc__load32(p + i);
            n_runs++;
        }
        if (sound) p += more;
    }
    if (sound) {
        lmc__store32(body + 80, (uint32_t)listing.n_streams + n_runs + n_ancillary);
        if (lmc__collect_items(&items, &listing) == LMC_OK)
            lmc__snapshot_identity(&items, body + 88);
    }
    seal_section(head, 0, (uint64_t)(trailer - body), k);
    memcpy(trailer + 32, lmc__end_magic, 8);
    trailer[24] = LMC_FORMAT_MAJOR;
    seal_trailer(trailer, offset, (uint64_t)(trailer - head), k);
    lmc__free_listing(&listing);
    lmc__free_buffer(&items);
}
