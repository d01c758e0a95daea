/* Header, index and trailer for a reader: everything is listed, nothing is decoded. Input: the
 * header (64 bytes), the INDX section and the trailer of a file, without the bytes between, which
 * are read as zeros; then 8 bytes of parameters. */
#define FUZZ_SHAPE FUZZ_INDEX
#define FUZZ_PARAMETERS 8
#include "mutate.h"

#define HEADER 64u
#define TRAILER 40u
#define LAST_READ 65536u /* smaller files are read by one call */
#define MOST_INPUT ((size_t)1 << 16)

/* a file of `size` bytes, of which only the first 64 and the last ones are there */
typedef struct split_file {
    const uint8_t *data;
    size_t present;
    uint64_t size;
    unsigned reads, fail_at;
} split_file;

static fuzz_guard input_guard;

static enum lmc_status read_at(void *user, uint64_t offset, void *dst, size_t size)
{
    split_file *const f = (split_file *)user;
    const uint64_t missing = f->size - f->present;
    FUZZ_CHECK(offset <= f->size && size <= f->size - offset); /* readers never ask for more */
    if (f->reads++ == f->fail_at) return LMC_ERR_READ;
    memset(dst, 0, size);
    if (offset < HEADER) { /* bytes before the missing ones */
        const size_t n = (size_t)(HEADER - offset < size ? HEADER - offset : size);
        memcpy(dst, f->data + offset, n);
    }
    if (offset + size > HEADER + missing) { /* and behind them */
        const uint64_t from = offset > HEADER + missing ? offset : HEADER + missing;
        memcpy((uint8_t *)dst + (size_t)(from - offset), f->data + (size_t)(from - missing),
               (size_t)(offset + size - from));
    }
    return LMC_OK;
}

static volatile size_t sink; /* makes sure that all bytes are read */

static size_t length(const char *s) { return s ? strlen(s) : 0; }

static void list(lmc_reader *reader, unsigned seed)
{
    const size_t n_files = fuzz_info(reader).n_files;
    size_t i, j, sum = 0;
    uint64_t total = 0;
    FUZZ_CHECK(n_files > 0 && lmc_reader_get_file(reader, n_files) == NULL);
    for (i = 0; i < n_files; i++) {
        const lmc_file *const file = lmc_reader_get_file(reader, i);
        uint64_t end = 0;
        FUZZ_CHECK(file && file->size <= INT64_MAX && file->path[0] != '/');
        sum += length(file->path);
        total += file->size;
        for (j = 0; j < file->n_tensors; j++) {
            const lmc_tensor *const t = &file->tensors[j], *found;
            size_t number;
            enum lmc_status status;
            FUZZ_CHECK(t->offset >= end && t->size <= file->size - t->offset &&
                       t->rank <= LMC_MAX_RANK);
            end = t->offset + t->size;
            sum +=
                length(t->dtype) + length(t->name) + (t->rank ? (size_t)t->shape[t->rank - 1] : 0);
            if (j < 16) {
                FUZZ_CHECK(lmc_reader_find_tensor(reader, file->path, t->name, &number, &found) ==
                               LMC_OK &&
                           number == i && found == t);
                status = lmc_reader_find_tensor(reader, NULL, t->name, &number, &found);
                FUZZ_CHECK(status == LMC_OK ? number == i && found == t
                                            : status == LMC_ERR_AMBIGUOUS && n_files > 1);
                (void)fuzz_encoded_size(reader, i, t->offset, t->size);
            }
        }
        if (file->size) {
            const uint64_t all = fuzz_encoded_size(reader, i, 0, file->size), half = file->size / 2;
            FUZZ_CHECK(fuzz_encoded_size(reader, i, 0, half) <= all &&
                       fuzz_encoded_size(reader, i, half, file->size - half) <= all);
            FUZZ_CHECK(fuzz_encoded_size(reader, i, file->size, 1) == 0);
            (void)fuzz_encoded_size(reader, i, seed % file->size, seed);
        }
    }
    {
        const char *key;
        const void *value;
        const lmc_tensor *found;
        size_t size;
        for (i = 0; i < fuzz_info(reader).n_metadata; i++) {
            FUZZ_CHECK(lmc_reader_get_metadata(reader, i, &key, &value, &size) == LMC_OK &&
                       key[0] != 0);
            sum += lmc_crc32c((uint32_t)length(key), value, size);
        }
        FUZZ_CHECK(lmc_reader_get_metadata(reader, i, &key, &value, &size) == LMC_ERR_NOT_FOUND);
        FUZZ_CHECK(lmc_reader_find_tensor(reader, "no/such/file", "no such tensor", &size,
                                          &found) == LMC_ERR_NOT_FOUND);
    }
    sink = sum + (size_t)total;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    uint64_t p = fuzz_draw(&in, FUZZ_PARAMETERS);
    const unsigned fail_alloc = fuzz_bits(&p, 8), fail_read = fuzz_bits(&p, 4),
                   tier = fuzz_bits(&p, 4), seed = fuzz_bits(&p, 8), index_limit = fuzz_bits(&p, 8);
    const int at_start = (int)fuzz_bits(&p, 1), short_file = (int)fuzz_bits(&p, 5) == 31,
              total_limit = (int)fuzz_bits(&p, 6) == 63;
    lmc_reader *reader = NULL;
    lmc_reader_options options;
    lmc_source source = LMC_DEFAULTS;
    split_file file;
    uint8_t base_fingerprint[LMC_FINGERPRINT_SIZE], fingerprint[LMC_FINGERPRINT_SIZE];
    lmc_snapshot_info header, info, probed;
    lmc_snapshot_extent extent;
    enum lmc_status status, header_status = LMC_OK;

    if (in.size > MOST_INPUT) return 0;
    fuzz_reserve(&input_guard, MOST_INPUT);
    FUZZ_BEGIN();
    fuzz_set_tier(tier);
    fuzz_memory.fail_at = fail_alloc ? (long)fail_alloc - 1 : -1;
    /* some 200 times the index (see files.h), and the coder's memory */
    fuzz_memory.limit = ((size_t)8 << 20) + 512 * in.size;
    file.data = fuzz_copy(&input_guard, in.data, in.size, at_start);
    file.present = in.size;
    file.size = in.size;
    file.reads = 0;
    file.fail_at = fail_read - 1u;
    /* the size is that of the trailer, if it is possible */
    if (in.size >= HEADER + TRAILER && !short_file) {
        const uint64_t total = mutate_get64(file.data + in.size - TRAILER + 16);
        if (total >= in.size) file.size = total;
    }
    if (in.size >= HEADER) header_status = lmc_header_parse(file.data, in.size, &header);
    options = LMC_READER_OPTIONS();
    if (index_limit) options.max_index_size = 16 * (uint64_t)index_limit;
    if (total_limit) options.max_total_size = (uint64_t)seed << (seed & 7);
    source.read_at = read_at;
    source.user = &file;
    source.size = file.size;
    (void)!lmc_snapshot_measure(&source, &extent);
    FUZZ_CHECK(extent.end <= file.size && extent.runs_offset <= file.size);
    status = lmc_snapshot_probe(&source, &probed);
    FUZZ_CHECK(status != LMC_OK || probed.size == file.size);
    file.reads = 0;
    status = lmc_reader_open(&reader, &source, &options);
    if (fail_alloc && fuzz_memory.calls > (long)fail_alloc - 1)
        FUZZ_CHECK(status == LMC_ERR_MEMORY);
    if (fail_read && file.reads >= fail_read) FUZZ_CHECK(status == LMC_ERR_READ);
    /* a large file's reader uses the trailer's copy of the header; faults of the end come first */
    if (header_status != LMC_OK && file.size <= LAST_READ) FUZZ_CHECK(status != LMC_OK);
    if (status == LMC_OK) {
        lmc_base base;
        fuzz_memory.fail_at = -1;
        list(reader, seed);
        info = fuzz_info(reader);
        if (!fail_read)
            FUZZ_CHECK(probed.size == info.size && probed.index_size == info.index_size &&
                       memcmp(probed.fingerprint, info.fingerprint, LMC_FINGERPRINT_SIZE) == 0 &&
                       probed.features == info.features);
        if (file.size <= LAST_READ)
            FUZZ_CHECK(
                info.has_base == header.has_base && info.features == header.features &&
                info.format_minor == header.format_minor &&
                memcmp(info.base_fingerprint, header.base_fingerprint, LMC_FINGERPRINT_SIZE) == 0);
        (void)fuzz_can_restore_in_place(reader);
        base = lmc_reader_base(reader);
        fuzz_fingerprint(reader, fingerprint);
        FUZZ_CHECK(lmc_base_identify(&base, base_fingerprint, NULL) == LMC_OK &&
                   memcmp(fingerprint, base_fingerprint, LMC_FINGERPRINT_SIZE) == 0);
    } else FUZZ_CHECK(reader == NULL);
    lmc_reader_free(reader);
    FUZZ_END();
    return 0;
}
