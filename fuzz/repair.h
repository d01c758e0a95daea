/* repair.h - repairs redundant fields of a mutated file, as far as the rest can be parsed, so that
 * a mutator gets past checksums. It is a part of lmc.c, because it uses private names. Kinds, sizes
 * and bodies of sections, and headers and payloads of blocks, do not change. It reads a file as
 * restore.h does, and builds the index by the same functions. */

#define RESTORED_CAP ((size_t)1 << 20)
#define MOST_STREAMS 64

typedef struct repairer {
    const lmc__kernels *k;
    lmc__listing listing;
    lmc__index_builder index;
    lmc__buffer segments, items, hashes;
    uint8_t *hash_head; /* the section of hashes, or NULL */
    lmc__origin origin;
    lmc__digester digester; /* of the current file, number `file` */
    size_t file;
    int are_ended; /* all files so far */
    uint32_t n_sections;
    uint64_t used; /* features */
    uint64_t position;
    uint8_t *restored; /* all streams, one after another */
    size_t n_restored, starts[MOST_STREAMS];
} repairer;

static void seal_section(uint8_t *head, uint64_t size, const lmc__kernels *k)
{
    lmc__store64(head + 4, size);
    lmc__store32(head + 12, k->crc32c(0, head, 12));
    lmc__store32(head + 16, k->crc32c(0, head + LMC__SECTION_HEADER_SIZE, (size_t)size));
}

/* With an even minor version, which has no meaning, also sets the features that the file uses. So
 * files with and without all their features are tried. */
static void seal_header(uint8_t *header, uint64_t used, const lmc__kernels *k)
{
    uint64_t features = lmc__load32(header + LMC__FEATURES_AT);
    memcpy(header, LMC_MAGIC, 8);
    header[8] = LMC_FORMAT_MAJOR;
    features &= ~LMC_FEATURE_BASE;
    if (lmc__has_base(header)) features |= LMC_FEATURE_BASE;
    if ((header[9] & 1) == 0) features |= used & ~LMC_FEATURE_BASE;
    lmc__store32(header + LMC__FEATURES_AT, (uint32_t)features);
    lmc__store32(header + LMC__HEADER_CRC_AT, k->crc32c(0, header, LMC__HEADER_CRC_AT));
}

static enum lmc_status read_restored(void *user, size_t file_number, uint64_t offset, void *dst,
                                     size_t size)
{
    const repairer *r = (const repairer *)user;
    const lmc__listed_file *const f = lmc__listed_at(&r->listing, file_number);
    const size_t start = r->starts[f->stream];
    if (f->start + offset > r->n_restored - start ||
        size > r->n_restored - start - (f->start + offset))
        return LMC_ERR_READ;
    memcpy(dst, r->restored + start + (size_t)(f->start + offset), size);
    return LMC_OK;
}

static enum lmc_status begin_file(repairer *r)
{
    const lmc_file *const file = &lmc__listed_at(&r->listing, r->file)->file;
    lmc__begin_digester(&r->digester, file);
    return lmc__begin_hashes(&r->digester, &r->hashes);
}

static void end_file(repairer *r)
{
    lmc_file *const file = &lmc__listed_at(&r->listing, r->file)->file;
    lmc__stream *const stream =
        lmc__stream_at(&r->listing, lmc__listed_at(&r->listing, r->file)->stream);
    lmc__index_file_end(&r->index, &r->digester, file);
    if (stream->is_unknown) stream->size = file->size;
}

/* Ends the current file, and empty ones behind it. Missing bytes of a file or stream stay
 * missing. */
static enum lmc_status end_stream(repairer *r)
{
    if (r->listing.n_streams == 0) return LMC_OK;
    while (!r->are_ended) {
        const uint64_t size = lmc__listed_at(&r->listing, r->file)->file.size;
        if (size != LMC_UNKNOWN_SIZE && r->digester.absorbed != size) return LMC_OK;
        end_file(r);
        r->are_ended = r->file + 1 == r->listing.n_files;
        if (r->are_ended) break;
        r->file++;
        LMC__TRY(begin_file(r));
    }
    return LMC_OK;
}

/* Adds the next bytes of the stream, which has so many. */
static enum lmc_status absorb(repairer *r, const uint8_t *p, size_t size)
{
    while (size != 0) {
        const uint64_t left =
            lmc__listed_at(&r->listing, r->file)->file.size - r->digester.absorbed;
        lmc__piece piece;
        if (left == 0) {
            end_file(r);
            r->file++;
            LMC__TRY(begin_file(r));
            continue;
        }
        piece = lmc__plan_piece(&r->digester, (size_t)lmc__min64(size, left));
        piece.part_size = piece.size;
        piece.part_crc = piece.crc = r->k->crc32c(0, p, piece.size);
        piece.sum = lmc__sum_words(r->k, p, piece.size, piece.phase);
        lmc__index_fingerprints(&r->index, &r->digester);
        lmc__absorb_piece(&r->digester, &piece, p);
        p += piece.size;
        size -= piece.size;
    }
    return LMC_OK;
}

/* Repairs a block at p, where `left` bytes are, which should decode to size bytes. Returns its
 * encoded size, or 0. */
static size_t repair_block(repairer *r, const lmc__run *run, uint64_t number, uint8_t *p,
                           size_t left, size_t size)
{
    static uint8_t base[LMC_MAX_BLOCK_SIZE], workspace[40 << 20];
    lmc_block_info info;
    enum lmc_status status;
    uint8_t *const out = r->restored + r->n_restored;
    if (left < LMC_BLOCK_HEADER_SIZE || size > RESTORED_CAP - r->n_restored) return 0;
    fuzz_seal_block(p, left, (uint32_t)number);
    if (lmc__read_block_info(r->k, p, left, (uint32_t)number, &info) != LMC_OK ||
        info.encoded_size > left || info.size != size)
        return 0;
    if (info.has_prediction &&
        (run->prediction == LMC__PREDICT_ZERO ||
         lmc__read_prediction(&r->origin, run, number * run->block_size, base, size) != LMC_OK))
        return 0;
    status = fuzz_decode_block(out, p, &info, info.has_prediction ? base : NULL, NULL, 0, workspace,
                               sizeof workspace);
    if (status != LMC_OK && status != LMC_ERR_CHECKSUM) return 0;
    if (lmc__is_quantized(p)) r->used |= LMC_FEATURE_QUANTIZED;
    if (p[2] >> LMC__LAYOUT_SHIFT == LMC__LAYOUT_ZEROS) r->used |= LMC_FEATURE_ZEROS;
    if (p[2] >> LMC__LAYOUT_SHIFT == LMC__LAYOUT_MATRIX) r->used |= LMC_FEATURE_MATRIX;
    if (p[2] >> LMC__LAYOUT_SHIFT == LMC__LAYOUT_CODES) r->used |= LMC_FEATURE_CODES;
    lmc__store32(p + 12, r->k->crc32c(0, out, size));
    fuzz_seal_block(p, left, (uint32_t)number);
    r->n_restored += size;
    return absorb(r, out, size) == LMC_OK ? info.encoded_size : 0;
}

static enum lmc_status repair_files(repairer *r, const uint8_t *body, size_t size)
{
    const lmc__stream *stream;
    LMC__TRY(end_stream(r));
    LMC__CHECK(r->listing.n_streams < MOST_STREAMS, LMC_ERR_LIMIT);
    LMC__TRY(lmc__list_files(&r->listing, body, size));
    stream = lmc__stream_at(&r->listing, r->listing.n_streams - 1);
    LMC__TRY(lmc__index_section(&r->index, "FILE", body, size));
    LMC__TRY(lmc__index_files(&r->index, &r->listing, stream));
    r->starts[r->listing.n_streams - 1] = r->n_restored;
    r->position = 0;
    r->file = stream->first_file;
    r->are_ended = 0;
    return begin_file(r);
}

/* Repairs a RUN section, whose blocks begin at `*at`; this moves to their end. */
static enum lmc_status repair_run(repairer *r, uint8_t *file, size_t size, const uint8_t *body,
                                  size_t body_size, size_t *at)
{
    lmc__run run;
    uint64_t block;
    LMC__CHECK(r->listing.n_streams, LMC_ERR_CORRUPT);
    r->segments.size = 0;
    LMC__TRY(lmc__parse_run(&run, &r->segments, body, body_size, &r->listing,
                            r->listing.n_streams - 1, &r->position));
    LMC__TRY(lmc__check_predictions(&r->origin, &run, LMC_ERR_CORRUPT));
    LMC__TRY(lmc__add_run(&r->origin, &run));
    if (run.prediction == LMC__PREDICT_OWN) r->used |= LMC_FEATURE_OWN;
    LMC__TRY(lmc__index_section(&r->index, "RUN ", body, body_size));
    for (block = 0; block < run.n_blocks; block++) {
        const size_t taken =
            repair_block(r, &run, block, file + *at, size - *at, lmc__block_size_at(&run, block));
        LMC__CHECK(taken, LMC_ERR_CORRUPT);
        LMC__TRY(lmc__index_block(&r->index, taken, file + *at));
        *at += taken;
    }
    return LMC_OK;
}

/* An ancillary section; hashes become those of the restored files, if the body has as many. */
static enum lmc_status repair_ancillary(repairer *r, uint8_t *head, uint64_t size)
{
    uint8_t *const body = head + LMC__SECTION_HEADER_SIZE;
    const lmc__buffer *const hashes = &r->hashes;
    if (memcmp(head, "hash", 4) == 0 && lmc__is_hash_body(body, size)) {
        LMC__TRY(end_stream(r));
        if (hashes->size == LMC__HASH_SIZE * lmc__count_hashes(&r->listing) &&
            size == LMC__HASH_BODY_SIZE + hashes->size) {
            memcpy(body + LMC__HASH_BODY_SIZE, hashes->data, hashes->size);
            r->hash_head = head;
        }
    }
    seal_section(head, size, r->k);
    return lmc__index_section(&r->index, (const char *)head, NULL, size);
}

/* Repairs everything up to BLKS; returns where that may be, or 0. */
static size_t repair_sections(repairer *r, uint8_t *file, size_t size)
{
    size_t at = LMC__HEADER_SIZE;
    while (size - at >= LMC__SECTION_HEADER_SIZE && memcmp(file + at, "BLKS", 4) != 0) {
        uint8_t *const head = file + at, *const body = head + LMC__SECTION_HEADER_SIZE;
        const uint64_t body_size = lmc__load64(head + 4);
        enum lmc_status status;
        if (body_size > size - at - LMC__SECTION_HEADER_SIZE) return 0;
        at += LMC__SECTION_HEADER_SIZE + (size_t)body_size;
        if (lmc__is_lower((char)head[0])) status = repair_ancillary(r, head, body_size);
        else {
            seal_section(head, body_size, r->k);
            if (memcmp(head, "RUN ", 4) == 0)
                status = repair_run(r, file, size, body, (size_t)body_size, &at);
            else if (memcmp(head, "FILE", 4) == 0)
                status = repair_files(r, body, (size_t)body_size);
            else return 0;
        }
        if (status != LMC_OK) return 0;
        r->n_sections++;
    }
    if (!r->listing.n_streams || end_stream(r) != LMC_OK) return 0;
    return lmc__index_run_end(&r->index) == LMC_OK ? at : 0;
}

/* Repairs the hash of the snapshot, whose n metadata entries begin at [p, end); then seals the
 * section.
 */
static enum lmc_status repair_snapshot_hash(repairer *r, const uint8_t *p, const uint8_t *end,
                                            uint32_t n)
{
    uint8_t *const head = r->hash_head;
    lmc__buffer keys, entries;
    enum lmc_status status;
    lmc__cursor c;
    if (!head) return LMC_OK;
    lmc__init_buffer(&keys, NULL);
    lmc__init_buffer(&entries, NULL);
    c.p = p;
    c.end = end;
    status = lmc__parse_metadata(&c, n, &keys, &entries);
    lmc__free_buffer(&keys);
    lmc__free_buffer(&entries);
    LMC__TRY(status);
    LMC__TRY(lmc__hash_snapshot(head + LMC__SECTION_HEADER_SIZE + LMC__HASH_HEAD_SIZE, &r->listing,
                                r->hashes.data, p, n, &r->items));
    seal_section(head, lmc__load64(head + 4), r->k);
    return LMC_OK;
}

/* Writes a section at `*at`, which moves behind it. */
static void put_section(repairer *r, uint8_t *file, size_t *at, const char *kind,
                        const uint8_t *body, size_t size)
{
    uint8_t *const head = file + *at;
    memcpy(head, kind, 4);
    if (size) memcpy(head + LMC__SECTION_HEADER_SIZE, body, size);
    seal_section(head, size, r->k);
    *at += LMC__SECTION_HEADER_SIZE + size;
}

/* Writes BLKS, index and trailer at `at`, where BLKS was. Metadata is taken from the old index
 * behind it, if that is right. Returns the size of the file. */
static size_t repair_end(repairer *r, uint8_t *file, size_t at, size_t size, size_t cap)
{
    static uint8_t body[1 << 18];
    const lmc__buffer *const entries = &r->index.entries, *const rows = &r->index.rows;
    const size_t n_known = entries->size, left = size - at;
    const uint8_t *old = file + at;
    size_t more = 0, body_size, index_at; /* more: metadata and extension records */
    uint32_t n_metadata = 0;
    if (n_known > sizeof body) return size;
    if (left >= LMC__SECTION_HEADER_SIZE) {
        const uint64_t old_rows = lmc__load64(old + 4);
        if (old_rows <= left - LMC__SECTION_HEADER_SIZE &&
            left - LMC__SECTION_HEADER_SIZE - old_rows >=
                LMC__SECTION_HEADER_SIZE + LMC__INDEX_BODY_SIZE) {
            const uint64_t room = left - 2 * LMC__SECTION_HEADER_SIZE - old_rows;
            old += LMC__SECTION_HEADER_SIZE + (size_t)old_rows;
            if (lmc__load64(old + 4) > n_known && lmc__load64(old + 4) <= room &&
                lmc__load64(old + 4) <= sizeof body) {
                more = (size_t)lmc__load64(old + 4) - n_known;
                old += LMC__SECTION_HEADER_SIZE;
                n_metadata = lmc__load32(old + LMC__INDEX_METADATA_AT);
                memcpy(body + n_known, old + n_known, more);
            }
        }
    }
    body_size = n_known + more;
    if (cap < at ||
        cap - at < 2 * LMC__SECTION_HEADER_SIZE + rows->size + body_size + LMC__TRAILER_SIZE)
        return size;
    (void)repair_snapshot_hash(r, body + n_known, body + body_size, n_metadata);
    memcpy(body, entries->data, entries->size);
    if (lmc__identify_listing(&r->items, &r->listing, body + LMC__INDEX_FINGERPRINT_AT) != LMC_OK)
        return size;
    memcpy(body, file, LMC__HEADER_SIZE);
    lmc__store32(body + LMC__INDEX_SECTIONS_AT, r->n_sections);
    lmc__store32(body + LMC__INDEX_METADATA_AT, n_metadata);
    put_section(r, file, &at, "BLKS", rows->data, rows->size);
    index_at = at;
    put_section(r, file, &at, "INDX", body, body_size);
    lmc__put_trailer(file + at, index_at, at - index_at, r->k);
    return at + LMC__TRAILER_SIZE;
}

/* Repairs a whole file, which may have a base, in memory of cap bytes. Returns its size, which may
 * change. */
size_t fuzz_repair_snapshot(uint8_t *file, size_t size, size_t cap, const lmc_base *base)
{
    static uint8_t restored[RESTORED_CAP];
    repairer r;
    size_t at;
    if (size < LMC__HEADER_SIZE) return size;
    memset(&r, 0, sizeof r);
    r.k = lmc__get_kernels();
    r.restored = restored;
    lmc__init_listing(&r.listing, NULL);
    if (lmc__open_origin(&r.origin, &r.listing, base, NULL) == LMC_OK &&
        lmc__open_index(&r.index, 0, NULL) == LMC_OK) {
        r.origin.read_back = read_restored;
        r.origin.user = &r;
        if (base && lmc__has_base(file))
            memcpy(file + LMC__BASE_FINGERPRINT_AT, r.origin.fingerprint, LMC_FINGERPRINT_SIZE);
        at = repair_sections(&r, file, size);
        seal_header(file, r.used, r.k);
        if (at) size = repair_end(&r, file, at, size, cap);
    }
    lmc__free_buffer(&r.index.entries);
    lmc__free_buffer(&r.index.rows);
    lmc__free_buffer(&r.index.run_body);
    lmc__free_buffer(&r.segments);
    lmc__free_buffer(&r.items);
    lmc__free_buffer(&r.hashes);
    lmc__free_listing(&r.listing);
    lmc__free_origin(&r.origin);
    return size;
}

/* Of an index: repairs what follows the body of a FILE section, in an entry of `left` bytes; 0 if
 * it cannot be parsed. */
static uint64_t repair_facts(lmc__listing *l, const uint8_t *body, size_t size,
                             const uint8_t *facts, uint64_t left)
{
    uint64_t at = 0;
    size_t i = l->n_files;
    if (lmc__list_files(l, body, size) != LMC_OK) return 0;
    for (; i < l->n_files; i++) {
        lmc_file *const file = &lmc__listed_at(l, i)->file;
        const size_t head_size = lmc__facts_head_size(file),
                     n = head_size + LMC_FINGERPRINT_SIZE * lmc__count_fingerprints(file);
        if (n > left - at) return 0;
        lmc__keep_fingerprints(file, facts + at + head_size);
        at += n;
    }
    return at;
}

/* Reads a varint at *p, before end; *p moves behind it. 0 if it is invalid. */
static int get_varint(uint8_t **p, const uint8_t *end, uint64_t *v)
{
    lmc__cursor c;
    c.p = *p;
    c.end = end;
    if (lmc__get_varint(&c, v) != LMC_OK) return 0;
    *p += c.p - *p;
    return 1;
}

/* Overwrites a varint by a new value of as many bytes; else it stays. Returns its value. */
static uint64_t put_varint(uint8_t *p, uint64_t old, uint64_t v)
{
    const unsigned n = lmc__varint_size(old);
    unsigned i;
    if (lmc__varint_size(v) != n) return old;
    for (i = 0; i < n; i++) p[i] = (uint8_t)((v >> 7 * i & 127) | (i + 1 < n ? 128u : 0u));
    return v;
}

/* Repairs an input of fuzz_index.c: header, INDX section and trailer, with nothing between them. */
void fuzz_repair_index(uint8_t *file, size_t size)
{
    const lmc__kernels *const k = lmc__get_kernels();
    uint8_t *const head = file + LMC__HEADER_SIZE, *const body = head + LMC__SECTION_HEADER_SIZE,
                   *const trailer = file + size - LMC__TRAILER_SIZE;
    uint8_t *p = body + LMC__INDEX_BODY_SIZE;
    uint64_t offset = LMC__HEADER_SIZE, n_blocks = 0;
    uint32_t n_sections = 0;
    lmc__listing listing;
    lmc__buffer items;
    int sound = 1;
    if (size <
        LMC__HEADER_SIZE + LMC__SECTION_HEADER_SIZE + LMC__INDEX_BODY_SIZE + LMC__TRAILER_SIZE)
        return;
    lmc__init_listing(&listing, NULL);
    lmc__init_buffer(&items, NULL);
    seal_header(file, LMC__KNOWN_FEATURES, k);
    memcpy(head, "INDX", 4);
    while (sound && trailer - p >= 5) {
        uint8_t *const stored_at = p + 4;
        const int is_ancillary = lmc__is_lower((char)p[0]), is_file = p[0] == 'F';
        uint64_t stored, inner_size, more = 0;
        if (!is_ancillary && !is_file && p[0] != 'R') break;
        if (!is_ancillary) memcpy(p, is_file ? "FILE" : "RUN ", 4);
        p += 4;
        sound = get_varint(&p, trailer, &stored);
        if (sound && !is_ancillary) {
            sound = get_varint(&p, trailer, &inner_size) && inner_size <= (uint64_t)(trailer - p);
            if (!sound) break;
            if (is_file) {
                stored = put_varint(stored_at, stored, LMC__SECTION_HEADER_SIZE + inner_size);
                more = repair_facts(&listing, p, (size_t)inner_size, p + inner_size,
                                    (uint64_t)(trailer - p) - inner_size);
                sound = more != 0;
            } else {
                lmc__cursor c;
                lmc__run run;
                c.p = p;
                c.end = p + inner_size;
                sound = lmc__get_run(&c, &run) == LMC_OK;
                if (sound) n_blocks += run.n_blocks;
            }
            p += inner_size + more;
        }
        offset += stored;
        n_sections++;
    }
    offset += LMC__SECTION_HEADER_SIZE + LMC__BLOCK_ENTRY_SIZE * n_blocks;
    memcpy(body, file, LMC__HEADER_SIZE);
    if (sound) {
        lmc__store32(body + LMC__INDEX_SECTIONS_AT, n_sections);
        (void)lmc__identify_listing(&items, &listing, body + LMC__INDEX_FINGERPRINT_AT);
    }
    seal_section(head, (uint64_t)(trailer - body), k);
    lmc__put_trailer(trailer, offset, (uint64_t)(trailer - head), k);
    lmc__free_listing(&listing);
    lmc__free_buffer(&items);
}
