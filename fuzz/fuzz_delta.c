/* A hostile base and a hostile delta against it: restored, read, and applied in place, with failing
 * calls, and then again. Input: the base's file, the delta's, 12 bytes of parameters and the size
 * of the base's file (4 bytes). */
#define FUZZ_SHAPE FUZZ_DELTA
#define FUZZ_PARAMETERS 16
#include "mutate.h"
#include "io.h"

#define MOST_INPUT ((size_t)1 << 17)

static fuzz_guard base_guard, delta_guard, place_guard;

/* Restores over the files of the base, which the reader has: at once, or with a write that fails,
 * and then the rest. BASE_WRONG: a hostile base may have items with other bytes than their
 * fingerprints say. */
static void check_in_place(const uint8_t *delta, size_t delta_size, lmc_reader *base,
                           const io_parameters *io, unsigned fail_at, const io_target *restored)
{
    io_target target;
    io_file file = io_open(delta, delta_size, io->piece, 0);
    lmc_restore_options options;
    lmc_stream stream = LMC_DEFAULTS;
    enum lmc_status status;
    size_t i, size = 0;
    memset(&target, 0, sizeof target);
    options = LMC_RESTORE_OPTIONS();
    fuzz_reserve(&place_guard, IO_MOST_SIZE);
    target.data = place_guard.data;
    target.in_place = 1;
    for (i = 0; i < fuzz_info(base).n_files; i++) {
        const lmc_file *const f = lmc_reader_get_file(base, i);
        if (i >= IO_MOST_FILES || f->size > IO_USUAL_SIZE - size) return;
        if (lmc_reader_read_file(base, i, 0, target.data + size, (size_t)f->size) != LMC_OK) return;
        target.starts[target.n_files++] = size;
        size += (size_t)f->size;
        target.starts[target.n_files] = size;
    }
    target.cap = size;
    target.fail_at = fail_at;
    options.user = &target;
    options.begin_file = io_begin_file;
    options.write = io_write;
    options.end_file = io_end_file;
    options.read_back = io_read_back;
    options.in_place = 1;
    options.max_total_size = IO_USUAL_SIZE;
    stream.read = io_read;
    stream.user = &file;
    status = lmc_snapshot_restore(&stream, NULL, &options);
    if (target.failed) { /* as after a crash: go on from there */
        FUZZ_CHECK(status == LMC_ERR_WRITE);
        file = io_open(delta, delta_size, io->piece, 0);
        target.skip = (size_t)(options.done_size = target.n_written);
        target.in_file = 0;
        status = lmc_snapshot_restore(&stream, NULL, &options);
    }
    if (restored)
        FUZZ_CHECK(status == LMC_OK
                       ? restored->size == size && memcmp(restored->data, target.data, size) == 0
                       : status == LMC_ERR_BASE_WRONG);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    size_t base_size = (size_t)fuzz_draw(&in, 4);
    const unsigned how = (unsigned)fuzz_draw(&in, 4);
    unsigned tier;
    io_parameters io = io_draw(&in, &tier);
    const uint8_t *base_data, *delta_data;
    lmc_reader *base_reader = NULL, *reader = NULL;
    enum lmc_status status;
    io_target restored;
    io_file base_file, delta_file;
    lmc_reader_options options;
    lmc_source source;
    lmc_base base;

    if (base_size > in.size) base_size = in.size;
    if (in.size > MOST_INPUT) return 0;
    fuzz_reserve(&base_guard, MOST_INPUT);
    fuzz_reserve(&delta_guard, MOST_INPUT);
    FUZZ_BEGIN();
    fuzz_set_tier(tier);
    base_data = fuzz_copy(&base_guard, in.data, base_size, io.at_start);
    delta_data = fuzz_copy(&delta_guard, in.data + base_size, in.size - base_size, io.at_start);
    base_file = io_open(base_data, base_size, 0, 0);
    source = io_source(&base_file);
    options = LMC_READER_OPTIONS();
    options.max_total_size = io.any_size ? IO_MOST_SIZE : IO_USUAL_SIZE;
    if (lmc_reader_open(&base_reader, &source, &options) == LMC_OK) {
        base = lmc_reader_base(base_reader);
        if (how & 1) base_file.fail_at = base_file.calls + 1 + (how >> 1 & 3);
    }
    if (how & 1) io.fail_read = io.fail_read ? io.fail_read : 15; /* then a read is known to fail */
    status = io_check_file(delta_data, in.size - base_size, base_reader ? &base : NULL, &io,
                           &restored, how & 8 ? base_reader : NULL);
    base_file.fail_at = 0;
    if (base_reader && how & 16) { /* the delta must fit into the place of the base */
        delta_file = io_open(delta_data, in.size - base_size, 0, 0);
        source = io_source(&delta_file);
        options.base = &base;
        if (lmc_reader_open(&reader, &source, &options) == LMC_OK &&
            fuzz_can_restore_in_place(reader))
            check_in_place(delta_data, in.size - base_size, base_reader, &io, how >> 5 & 7,
                           status == LMC_OK ? &restored : NULL);
        lmc_reader_free(reader);
    }
    lmc_reader_free(base_reader);
    FUZZ_END();
    return 0;
}
