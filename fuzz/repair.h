/* repair.h - makes redundant fields of a mutated file right again, as far as the rest makes sense:
 * what a mutator needs to get past checksums. Part of lmc.c, for it uses what is private there.
 * Sections' kinds, sizes and bodies, headers and payloads of blocks stay as they are. */

#define RESTORED_CAP ((size_t)1 << 20)
#define MOST_FILES 64

typedef struct repairer {
    const lmc__kernels *k;
    lmc__origin origin;
    lmc__buffer index, items, memory; /* entries; names and identities; of the file at hand */
    lmc__digester digester;
    lmc_file file;
    uint32_t n_files, n_runs;
    size_t identities_at;
    uint64_t position;
    int in_file;
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
    if (file_number >= r->n_files || offset > r->n_restored - r->starts[file_number] ||
        size > r->n_restored - r->starts[file_number] - offset)
        return LMC_ERR_READ;
    memcpy(dst, r->restored + r->starts[file_number] + offset, size);
    return LMC_OK;
}

static void end_file(repairer *r)
{
    uint8_t *info;
    if (!r->in_file) return;
    info = r->index.data + r->identities_at;
    r->digester.identities = info + 16;
    lmc__finish_digester(&r->digester);
    lmc__store64(info, r->position);
    lmc__store32(info + 8, r->digester.file_crc);
    r->in_file = 0;
}

static enum lmc_status add_section(repairer *r, uint64_t at, const uint8_t *head)
{
    uint8_t field[8];
    lmc__store64(field, at);
    LMC__TRY(lmc__append(&r->index, field, 8));
    return lmc__append(&r->index, head, 24 + (size_t)lmc__load64(head + 8));
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
    size_t done = 0;
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
    while (done < size) {
        lmc__piece piece = lmc__plan_piece(&r->digester, size - done);
        piece.crc64 = r->k->crc64(0, out + done, piece.size);
        piece.part_size = piece.size;
        piece.part_crc = r->k->crc32c(0, out + done, piece.size);
        done += piece.size;
        r->digester.identities = r->index.data + r->identities_at + 16;
        lmc__absorb_piece(&r->digester, &piece);
    }
    r->n_restored += size;
    return info.encoded_size;
}

/* Everything up to the index; returns where that may be, or 0. */
static size_t repair_sections(repairer *r, uint8_t *file, size_t size)
{
    size_t at = LMC__HEADER_SIZE;
    while (size - at >= LMC__SECTION_HEADER_SIZE && memcmp(file + at, "INDX", 4) != 0) {
        uint8_t *const head = file + at, *const body = head + LMC__SECTION_HEADER_SIZE;
        const uint64_t body_size = lmc__load64(head + 8);
        if (body_size > size - at - LMC__SECTION_HEADER_SIZE) return 0;
        seal_section(head, memcmp(head, "RUN ", 4) == 0 ? r->n_runs : r->n_files, body_size, r->k);
        at += LMC__SECTION_HEADER_SIZE + (size_t)body_size;
        if (memcmp(head, "FILE", 4) == 0) {
            end_file(r);
            if (r->n_files >= MOST_FILES ||
                lmc__parse_file(&r->file, &r->memory, body, (size_t)body_size) != LMC_OK)
                return 0;
            if (add_section(r, (size_t)(head - file), head) != LMC_OK) return 0;
            r->identities_at = r->index.size;
            if (lmc__append(&r->index, NULL,
                            16 + LMC_IDENTITY_SIZE * lmc__count_identities(&r->file)) != LMC_OK)
                return 0;
            memset(r->index.data + r->identities_at, 0, r->index.size - r->identities_at);
            r->starts[r->n_files++] = r->n_restored;
            r->in_file = 1;
            r->position = 0;
            lmc__begin_digester(&r->digester, &r->file);
        } else if (memcmp(head, "RUN ", 4) == 0) {
            uint64_t block;
            lmc__run run;
            if (!r->in_file || lmc__parse_run(&run, body, (size_t)body_size, r->n_files - 1,
                                              &r->file, &r->position) != LMC_OK)
                return 0;
            if (lmc__check_predictions(&r->origin, &run, LMC_ERR_CORRUPT) != LMC_OK ||
                lmc__add_run(&r->origin, &run) != LMC_OK)
                return 0;
            if (add_section(r, (size_t)(head - file), head) != LMC_OK) return 0;
            r->n_runs++;
            for (block = 0; block < run.n_blocks; block++) {
                uint8_t entry[LMC__BLOCK_ENTRY_SIZE];
                const size_t taken = repair_block(r, &run, block, file + at, size - at,
                                                  lmc__block_size_at(&run, block));
                if (taken == 0) return 0;
                lmc__store32(entry, (uint32_t)taken);
                lmc__store32(entry + 4, lmc__load32(file + at + LMC__BLOCK_CRC_AT));
                if (lmc__append(&r->index, entry, sizeof entry) != LMC_OK) return 0;
                at += taken;
            }
        } else {
            return 0;
        }
    }
    end_file(r);
    return r->n_files ? at : 0;
}

/* Index and trailer at `at`, where an index was that may be right as to metadata. Returns the size
 * of the file. */
static size_t repair_end(repairer *r, uint8_t *file, size_t at, size_t size, size_t cap)
{
    uint8_t *const head = file + at, *const body = head + LMC__SECTION_HEADER_SIZE;
    const size_t entries = LMC__INDEX_BODY_SIZE + r->index.size, old_left = size - at;
    size_t n_metadata = 0, metadata_size = 0, body_size;
    uint64_t old_size;
    if (old_left >= LMC__SECTION_HEADER_SIZE + LMC__INDEX_BODY_SIZE) {
        old_size = lmc__load64(head + 8);
        n_metadata = lmc__load32(body + 40);
        if (old_size >= entries && old_size <= old_left - LMC__SECTION_HEADER_SIZE)
            metadata_size = (size_t)old_size - entries;
    }
    body_size = entries + metadata_size;
    if (cap < at || cap - at < LMC__SECTION_HEADER_SIZE + body_size + LMC__TRAILER_SIZE)
        return size;
    if (metadata_size == 0) n_metadata = 0;
    memcpy(head, "INDX", 4);
    lmc__store32(body, r->n_files);
    lmc__store32(body + 4, r->n_runs);
    lmc__store32(body + 40, (uint32_t)n_metadata);
    memset(body + 44, 0, 4);
    if (r->index.size) memcpy(body + LMC__INDEX_BODY_SIZE, r->index.data, r->index.size);
    if (lmc__collect_items(&r->items, r->index.data, (uint64_t)r->n_files + r->n_runs) != LMC_OK)
        return size;
    lmc__snapshot_identity(&r->items, body + 8);
    seal_section(head, 0, body_size, r->k);
    memset(body + body_size, 0, LMC__TRAILER_SIZE);
    memcpy(body + body_size + 32, lmc__end_magic, 8);
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
    if (lmc__open_origin(&r.origin, base, NULL) == LMC_OK) {
        r.origin.read_back = read_restored;
        r.origin.user = &r;
        if (base && lmc__has_base(file)) memcpy(file + 32, r.origin.identity, LMC_IDENTITY_SIZE);
        seal_header(file, r.k);
        at = repair_sections(&r, file, size);
        if (at) size = repair_end(&r, file, at, size, cap);
    }
    lmc__free_buffer(&r.index);
    lmc__free_buffer(&r.items);
    lmc__free_buffer(&r.memory);
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
    uint32_t n_files = 0, n_runs = 0;
    uint64_t offset = LMC__HEADER_SIZE;
    lmc__buffer memory, items;
    lmc_file file_of;
    int sound = 1;
    if (size <
        LMC__HEADER_SIZE + LMC__SECTION_HEADER_SIZE + LMC__INDEX_BODY_SIZE + LMC__TRAILER_SIZE)
        return;
    memset(&memory, 0, sizeof memory);
    memset(&items, 0, sizeof items);
    seal_header(file, k);
    memcpy(head, "INDX", 4);
    while (sound && trailer - p >= 8 + (int)LMC__SECTION_HEADER_SIZE) {
        const int is_file = p[8] == 'F';
        uint8_t *const inner = p + 8 + LMC__SECTION_HEADER_SIZE;
        const uint64_t inner_size = lmc__load64(p + 16);
        uint64_t more, i;
        if ((p[8] != 'F' && p[8] != 'R') || inner_size > (uint64_t)(trailer - inner) ||
            inner_size < LMC__RUN_BODY_SIZE)
            break;
        memcpy(p + 8, is_file ? "FILE" : "RUN ", 4);
        lmc__store64(p, offset);
        seal_section(p + 8, is_file ? n_files : n_runs, inner_size, k);
        offset += LMC__SECTION_HEADER_SIZE + inner_size;
        if (is_file) {
            sound = lmc__parse_file(&file_of, &memory, inner, (size_t)inner_size) == LMC_OK;
            more = 16 + LMC_IDENTITY_SIZE * (sound ? (uint64_t)lmc__count_identities(&file_of) : 1);
            n_files++;
        } else {
            const uint64_t run_size = lmc__load64(inner),
                           block_size = (uint64_t)1 << (inner[8] & 31);
            more = LMC__BLOCK_ENTRY_SIZE * (run_size / block_size + (run_size % block_size != 0));
            if (inner[8] < LMC__MIN_LOG2_BLOCK || inner[8] > LMC__MAX_LOG2_BLOCK) sound = 0;
            n_runs++;
        }
        p = inner + inner_size;
        if (more > (uint64_t)(trailer - p)) {
            sound = 0;
            break;
        }
        if (!is_file)
            for (i = 0; i < more; i += LMC__BLOCK_ENTRY_SIZE) offset += lmc__load32(p + i);
        p += more;
    }
    if (sound) {
        lmc__store32(body, n_files);
        lmc__store32(body + 4, n_runs);
        if (lmc__collect_items(&items, body + LMC__INDEX_BODY_SIZE, (uint64_t)n_files + n_runs) ==
            LMC_OK)
            lmc__snapshot_identity(&items, body + 8);
    }
    seal_section(head, 0, (uint64_t)(trailer - body), k);
    memcpy(trailer + 32, lmc__end_magic, 8);
    seal_trailer(trailer, offset, (uint64_t)(trailer - head), k);
    lmc__free_buffer(&memory);
    lmc__free_buffer(&items);
}
