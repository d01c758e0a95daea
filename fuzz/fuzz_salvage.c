/* A hostile or damaged file is salvaged: if restoring succeeds, salvage gives the same bytes, and
 * all of them; it always ends. Input: the file, then 12 bytes of parameters. */
#define FUZZ_SHAPE FUZZ_SNAPSHOT
#define FUZZ_PARAMETERS 12
#include "mutate.h"
#include "io.h"

#define MOST_INPUT ((size_t)1 << 17)
#define MOST_RANGES 200000u

static fuzz_guard input_guard;

static void salvage(const uint8_t *data, size_t size, const io_target *restored,
                    const io_parameters *io)
{
    io_file file = io_open(data, size, 0, io->fail_read);
    lmc_source source = io_source(&file);
    lmc_reader_options options;
    lmc_salvage *salvaged = NULL;
    lmc_reader *reader;
    lmc_salvage_range range;
    lmc_damage damage;
    enum lmc_status status;
    size_t i, j, number = 0, n_ranges = 0, all = 0;
    uint64_t end = 0;
    options = LMC_READER_OPTIONS();
    options.max_total_size = io->any_size ? IO_MOST_SIZE : IO_USUAL_SIZE;
    fuzz_memory.calls = 0;
    fuzz_memory.fail_at = io->fail_alloc ? (long)io->fail_alloc - 1 : -1;
    status = lmc_salvage_open(&salvaged, &source, &options);
    reader = lmc_salvage_reader(salvaged);
    if (restored && !io->fail_alloc && !io->fail_read) FUZZ_CHECK(status == LMC_OK);
    if (status != LMC_OK) return;
    while ((status = lmc_salvage_next(salvaged, &range)) != LMC_OK || !range.is_end) {
        FUZZ_CHECK(++n_ranges < MOST_RANGES);
        if (status == LMC_ERR_MEMORY && io->fail_alloc) continue; /* the call that fails once */
        if (status != LMC_OK) break;
        FUZZ_CHECK((range.status == LMC_OK) == (range.data != NULL));
        if (range.file_number != SIZE_MAX) {
            FUZZ_CHECK(range.file_number >= number &&
                       range.file_number < fuzz_info(reader).n_files);
            if (range.file_number != number) end = 0;
            number = range.file_number;
            FUZZ_CHECK(range.offset >= end && range.size <= UINT64_MAX - range.offset);
            end = range.offset + range.size;
        }
        /* all its bytes can be read */
        if (range.data) all += lmc_crc32c(0, range.data, (size_t)range.size) & 1;
        if (!restored || io->fail_alloc || io->fail_read) continue;
        FUZZ_CHECK(range.status == LMC_OK && range.file_number < restored->n_files &&
                   end <= restored->starts[number + 1] - restored->starts[number] &&
                   memcmp(range.data, restored->data + restored->starts[number] + range.offset,
                          (size_t)range.size) == 0);
    }
    fuzz_memory.fail_at = -1;
    FUZZ_CHECK(lmc_salvage_get_damage(salvaged, &damage) == LMC_OK);
    for (i = 0; i < fuzz_info(reader).n_files && i < IO_MOST_FILES; i++) {
        const lmc_file *const f = lmc_reader_get_file(reader, i);
        const int known = lmc_salvage_is_described(salvaged, i);
        const enum lmc_status confirmed = lmc_salvage_confirm(salvaged, i, SIZE_MAX);
        if (restored && !io->fail_alloc && !io->fail_read) FUZZ_CHECK(known && confirmed == LMC_OK);
        for (j = 0; j < f->n_tensors && j < 32; j++) {
            const enum lmc_status tensor_confirmed = lmc_salvage_confirm(salvaged, i, j);
            if (restored && !io->fail_alloc && !io->fail_read)
                FUZZ_CHECK(tensor_confirmed == LMC_OK);
        }
    }
    if (restored && !io->fail_alloc && !io->fail_read)
        FUZZ_CHECK(damage.has_header && damage.has_index && damage.has_trailer &&
                   damage.n_breaks == 0 && damage.n_sections == 0);
    file.fail_at = 0;
    (void)io_check_reader(reader, restored, io);
    lmc_salvage_free(salvaged);
    if (all == SIZE_MAX) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    unsigned tier;
    io_parameters io, plain;
    io_target restored;
    const uint8_t *file;
    enum lmc_status status;
    (void)fuzz_draw(&in, 4); /* for later */
    io = io_draw(&in, &tier);
    if (in.size > MOST_INPUT) return 0;
    fuzz_reserve(&input_guard, MOST_INPUT);
    FUZZ_BEGIN();
    fuzz_set_tier(tier);
    file = fuzz_copy(&input_guard, in.data, in.size, io.at_start);
    plain = io;
    plain.fail_alloc = plain.fail_read = plain.fail_write = 0;
    status = io_check_file(file, in.size, NULL, &plain, &restored, NULL);
    salvage(file, in.size, status == LMC_OK ? &restored : NULL, &io);
    FUZZ_END();
    return 0;
}
