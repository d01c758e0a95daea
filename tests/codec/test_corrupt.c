/* Damaged input: never LMC_OK with other data than the original, never a read or write out of
 * bounds. test_corrupt --long multiplies the random part. */
#include "t_wire.h"

static t_guard g_enc, g_dst, g_ws, g_file;
static uint64_t state = 2026;

/* The source of a guarded copy, so that a read beyond the file faults. */
static void place(t_memory *in, const uint8_t *data, size_t size)
{
    in->data = t_tail(&g_file, size);
    in->size = size;
    memcpy(in->data, data, size);
}

/* Restore and read a damaged file. must_fail: restore checks everything, so that any damage must be
 * found. */
static void try_file(const t_model *model, t_memory *in, int must_fail)
{
    lmc_restore_options restore_options;
    lmc_reader_options read_options;
    enum lmc_status status;
    t_heap heap;
    int wrong;
    memset(&heap, 0, sizeof heap);
    memset(&restore_options, 0, sizeof restore_options);
    memset(&read_options, 0, sizeof read_options);
    heap.fail_at = -1;
    restore_options.allocator = read_options.allocator = t_allocator(&heap);
    status = t_restore_model(model, in, &restore_options, NULL, &wrong);
    CHECK(!wrong);
    if (must_fail) CHECK(status >= LMC_ERR_LIMIT && status <= LMC_ERR_CHECKSUM);
    status = t_read_model(model, in, &read_options, &wrong);
    CHECK(!wrong || status != LMC_OK);
    CHECK(status == LMC_OK || status == LMC_ERR_READ || status == LMC_ERR_NOT_FOUND ||
          (status >= LMC_ERR_LIMIT && status <= LMC_ERR_CHECKSUM));
    CHECK(heap.live == 0 && heap.wrong_size == 0 && heap.peak < ((size_t)64 << 20));
}

static void test_files(const t_model *model, unsigned log2_block, const char *name)
{
    lmc_writer_options options;
    t_memory out, in;
    size_t i, k, step = t_quick ? 37 : 1;
    memset(&out, 0, sizeof out);
    memset(&in, 0, sizeof in);
    memset(&options, 0, sizeof options);
    options.log2_block = log2_block;
    t_note("%s", name);
    CHECK_STATUS(t_write_model(model, &out, &options, 0, NULL), LMC_OK);
    for (i = 0; i < out.size; i += step) {
        t_note("%s: cut to %lu of %lu bytes", name, (unsigned long)i, (unsigned long)out.size);
        place(&in, out.data, i);
        try_file(model, &in, 1);
        for (k = 0; k < 8; k++) {
            t_note("%s: bit %lu of byte %lu of %lu", name, (unsigned long)k, (unsigned long)i,
                   (unsigned long)out.size);
            place(&in, out.data, out.size);
            in.data[i] ^= (uint8_t)(1u << k);
            try_file(model, &in, 1);
        }
    }
    for (k = 1; k < 100; k += 7) {
        t_note("%s: %lu bytes after the end", name, (unsigned long)k);
        in.size = out.size + k;
        in.data = t_tail(&g_file, in.size);
        memcpy(in.data, out.data, out.size);
        t_fill(in.data + out.size, k, k & 8 ? T_ZERO : T_RANDOM, LMC_U8, k);
        try_file(model, &in, 1);
    }
    /* pieces of the file copied over others, runs of zeros, several bytes at once */
    for (i = 0; i < (t_quick ? 50u : 3000u); i++) {
        size_t from = t_below(&state, out.size), to = t_below(&state, out.size),
               n = 1 + t_below(&state, 60);
        t_note("%s: mixed up, round %lu", name, (unsigned long)i);
        place(&in, out.data, out.size);
        if (n > out.size - from) n = out.size - from;
        if (n > out.size - to) n = out.size - to;
        switch (i % 3) {
        case 0: memmove(in.data + to, in.data + from, n); break;
        case 1: memset(in.data + to, i % 2 ? 0xFF : 0, n); break;
        default:
            in.data[from] ^= (uint8_t)t_random(&state), in.data[to] ^= (uint8_t)t_random(&state);
            break;
        }
        try_file(model, &in, memcmp(in.data, out.data, out.size) != 0);
    }
    free(out.data);
}

static void test_snapshots(void)
{
    static t_model model;
    static const uint64_t shape[2] = {30, 20}, bytes[1] = {77};
    static uint8_t data[3000];
    lmc_tensor tensors[3];
    t_file *f;
    t_fill(data, sizeof data, T_TEXT, LMC_U8, 1);
    t_fill(data + 100, 1200, T_GAUSS, LMC_BF16, 1);
    t_fill(data + 1300, 1200, T_SPARSE, LMC_F16, 1);
    tensors[0] = t_tensor("a.weight", "BF16", 2, shape, 100, 1200);
    tensors[1] = t_tensor("b.weight", "F16", 2, shape, 1300, 1200);
    tensors[2] = t_tensor("c", "other", 1, bytes, 2600, 77);

    f = t_add_file(&model, "dir/model", data, 2800);
    f->file.tensors = tensors;
    f->file.n_tensors = 3;
    f->file.has_mode = f->file.has_mtime = 1;
    f->file.mode = 0644;
    f->file.mtime_s = 1700000000;
    t_add_file(&model, "dir/empty", NULL, 0)->file.kind = LMC_FILE_DIRECTORY;
    f = t_add_file(&model, "unknown", data, 333);
    f->file.size = LMC_UNKNOWN_SIZE;
    model.n_metadata = 1;
    model.keys[0] = "key";
    model.values[0] = "value";
    model.value_sizes[0] = 5;
    test_files(&model, 0, "three files");

    memset(&model, 0, sizeof model);
    t_add_file(&model, "", data, 1)->file.size = LMC_UNKNOWN_SIZE;
    test_files(&model, 14, "one byte");
    memset(&model, 0, sizeof model);
    t_add_file(&model, "empty", NULL, 0);
    test_files(&model, 20, "nothing");
}

/* Bytes that are no LMC file at all, without and with the right magic. */
static void test_noise(void)
{
    static t_model model;
    /* the first fields */
    static const uint8_t start[12] = {0x95, 0x4C, 0x4D, 0x43, 0x0D, 0x0A, 0x1A, 0x0A, 1, 0, 1, 0};
    lmc_restore_options options;
    t_memory in;
    size_t i;
    int wrong;
    memset(&in, 0, sizeof in);
    t_add_file(&model, "nothing", NULL, 0);
    for (i = 0; i < (t_quick ? 200u : 3000u); i++) {
        size_t size = t_below(&state, i % 7 == 0 ? 3000 : 300);
        t_note("noise, round %lu", (unsigned long)i);
        in.data = t_tail(&g_file, in.size = size);
        t_fill(in.data, size, i % 5 == 0 ? T_ZERO : T_RANDOM, LMC_U8, i);
        if (i % 2) memcpy(in.data, start, size < sizeof start ? size : sizeof start);
        if (i % 4 == 3 && size >= W_HEADER) { /* a whole header, then noise */
            memset(in.data + 12, 0, W_HEADER - 12);
            t_store32(in.data + W_HEADER - 4, t_crc32c(0, in.data, W_HEADER - 4));
        }
        try_file(&model, &in, 1);
        if (i % 2 == 0 && size >= 8) {
            memset(&options, 0, sizeof options);
            CHECK_STATUS(t_restore_model(&model, &in, &options, NULL, &wrong), LMC_ERR_NOT_LMC);
        }
    }
}

/* -- bare blocks -- */

/* Sets the CRCs of payload and header; the payload may end too early. */
static void repair_block(uint8_t *block, size_t size)
{
    const size_t payload = w_block_size(block) < size ? w_block_size(block) : size;
    if (block[2] & 4) t_store32(block + 16, t_crc32c(0, block + W_BLOCK, payload - W_BLOCK));
    w_seal_block(block, 0);
}

/* Decode enc (at the guard) into exactly the size that its header announces; compare if that
 * succeeds. base: of size bytes; or NULL. */
static enum lmc_status try_block(const uint8_t *enc, size_t enc_size, const uint8_t *data,
                                 const uint8_t *base, size_t size)
{
    lmc_block_info info;
    size_t cap = size, got = 0;
    uint8_t *dst;
    enum lmc_status status, info_status;
    memset(&info, 0, sizeof info);
    info_status = lmc_block_parse(enc, enc_size, 0, &info);
    if (info_status == LMC_OK && info.size <= g_dst.cap) cap = info.size;
    dst = t_tail(&g_dst, cap);
    status = t_block_decode(dst, cap, &got, enc, enc_size, base, base ? size : 0, 0, g_ws.data,
                            g_ws.cap);
    CHECK(status == LMC_OK || (status >= LMC_ERR_UNSUPPORTED && status <= LMC_ERR_BASE_WRONG) ||
          status == LMC_ERR_DST_TOO_SMALL);
    if (info_status != LMC_OK) CHECK(status == info_status);
    if (status == LMC_OK) CHECK(got == cap && t_crc32c(0, dst, got) == info.crc);
    if (status == LMC_OK && info.crc == t_crc32c(0, data, size))
        CHECK(got == size && memcmp(dst, data, size) == 0);
    return status;
}

static void test_blocks(long rounds)
{
    static const struct {
        enum lmc_dtype dtype;
        enum t_kind kind;
        size_t n;
        enum lmc_level level;
        int distance;
    } cases[] = {{LMC_BF16, T_GAUSS, 700, LMC_LEVEL_DEFAULT, 0},
                 {LMC_BF16, T_SPARSE, 5000, LMC_LEVEL_DEFAULT, 0},
                 {LMC_F32, T_GAUSS, 300, LMC_LEVEL_DEFAULT, 0},
                 {LMC_U8, T_TEXT, 900, LMC_LEVEL_DEFAULT, 0},
                 {LMC_F8_E4M3, T_GAUSS, 600, LMC_LEVEL_DEFAULT, 0},
                 {LMC_F16, T_SKEWED, 3000, LMC_LEVEL_DEFAULT, 0},
                 {LMC_AUTO, T_PICKLE, 2000, LMC_LEVEL_DEFAULT, 0},
                 {LMC_F64, T_SPECIAL, 300, LMC_LEVEL_DEFAULT, 0},
                 {LMC_U8, T_SPARSE, 4000, LMC_LEVEL_DEFAULT, 0},
                 {LMC_I16, T_RANDOM, 60, LMC_LEVEL_DEFAULT, 0},
                 {LMC_U8, T_ZERO, 100, LMC_LEVEL_DEFAULT, 0},
                 {LMC_BF16, T_GAUSS, 1002, LMC_LEVEL_ARCHIVE, 0},
                 {LMC_F32, T_GAUSS, 801, LMC_LEVEL_ARCHIVE, 0},
                 /* against a prediction: every so many elements differ from it */
                 {LMC_BF16, T_GAUSS, 3000, LMC_LEVEL_DEFAULT, 3},
                 {LMC_BF16, T_GAUSS, 9000, LMC_LEVEL_MAX, 60},
                 {LMC_F32, T_GAUSS, 2000, LMC_LEVEL_DEFAULT, 1},
                 {LMC_F64, T_GAUSS, 2600, LMC_LEVEL_DEFAULT, 9},
                 {LMC_U8, T_TEXT, 4000, LMC_LEVEL_DEFAULT, 20}};
    static uint8_t data[1 << 16], prediction[1 << 16], enc[(1 << 16) + LMC_BLOCK_HEADER_SIZE];
    size_t c, i, k;
    long reached = 0, refused = 0, checksum = 0, round;
    for (c = 0; c < sizeof cases / sizeof *cases; c++) {
        size_t size = cases[c].n * lmc_dtype_width(cases[c].dtype), enc_size = 0;
        const uint8_t *const base = cases[c].distance ? prediction : NULL;
        uint8_t *bad;
        int harmless = 0; /* flipped bits of the payload */
        t_fill(data, size, cases[c].kind, cases[c].dtype, c);
        memcpy(prediction, data, size);
        for (i = 0; base && i < cases[c].n; i += (size_t)cases[c].distance)
            data[i * lmc_dtype_width(cases[c].dtype)] ^= (uint8_t)(i % 7);
        t_note("block %lu", (unsigned long)c);
        if (!CHECK_STATUS(t_block_encode(enc, sizeof enc, &enc_size, data, size, base,
                                         cases[c].dtype, cases[c].level, 0, g_ws.data, g_ws.cap),
                          LMC_OK))
            continue;
        if (base) {
            lmc_block_info info;
            CHECK_STATUS(lmc_block_parse(enc, enc_size, 0, &info), LMC_OK);
            CHECK(info.has_prediction &&
                  info.payload_crc == t_crc32c(0, enc + W_BLOCK, enc_size - W_BLOCK));
            CHECK_STATUS(try_block(enc, enc_size, data, NULL, size), LMC_ERR_BASE_MISSING);
            for (k = 0; k < 8 * size; k += t_quick ? 3001 : 331) { /* a base changed by one bit */
                prediction[k / 8] ^= (uint8_t)(1u << k % 8);
                CHECK_STATUS(try_block(enc, enc_size, data, base, size), LMC_ERR_BASE_WRONG);
                prediction[k / 8] ^= (uint8_t)(1u << k % 8);
            }
        }
        for (i = 0; i < enc_size; i += t_quick ? 11 : 1) {
            t_note("block %lu: cut to %lu of %lu", (unsigned long)c, (unsigned long)i,
                   (unsigned long)enc_size);
            bad = t_tail(&g_enc, i);
            memcpy(bad, enc, i);
            CHECK_STATUS(try_block(bad, i, data, base, size), LMC_ERR_TRUNCATED);
            for (k = 0; k < 8; k++) {
                t_note("block %lu: bit %lu of byte %lu of %lu", (unsigned long)c, (unsigned long)k,
                       (unsigned long)i, (unsigned long)enc_size);
                bad = t_tail(&g_enc, enc_size);
                memcpy(bad, enc, enc_size);
                bad[i] ^= (uint8_t)(1u << k);
                /* two frozen trees may be equal for all symbols that occur: then the data is the
                 * same, which try_block checks */
                if (try_block(bad, enc_size, data, base, size) == LMC_OK)
                    harmless += i < LMC_BLOCK_HEADER_SIZE ? 9 : 1;
                /* the same with a right Header_CRC; another order may still give the same data
                 * (zeros) */
                if (i < 20) {
                    w_seal_block(bad, 0);
                    CHECK(try_block(bad, enc_size, data, base, size) != LMC_OK || i == 2);
                }
            }
        }
        t_note("block %lu: %d harmless bits", (unsigned long)c, harmless);
        CHECK(harmless <= 1);
        for (round = 0; round < rounds; round++) {
            lmc_block_info info;
            size_t edits = 1 + t_below(&state, 4), new_size = enc_size;
            t_note("block %lu: mutation %ld", (unsigned long)c, round);
            bad = t_tail(&g_enc, enc_size);
            memcpy(bad, enc, enc_size);
            for (i = 0; i < edits; i++) {
                /* mostly near the start of the payload, where modes and code lengths are */
                size_t at =
                    LMC_BLOCK_HEADER_SIZE + t_below(&state, round % 2 && enc_size > 64
                                                                ? 40
                                                                : enc_size - LMC_BLOCK_HEADER_SIZE);
                switch (t_below(&state, 4)) {
                case 0: bad[at] ^= (uint8_t)(1u << t_below(&state, 8)); break;
                case 1: bad[at] = (uint8_t)t_random(&state); break;
                case 2: bad[at] = (uint8_t)t_below(&state, 19); break; /* a mode */
                default: bad[at] = 0xFF; break;
                }
            }
            if (round % 3 == 1) bad[t_below(&state, 20)] ^= (uint8_t)(1u << t_below(&state, 8));
            if (round % 3 == 2) { /* another payload size, which the input has */
                uint32_t payload;
                new_size =
                    LMC_BLOCK_HEADER_SIZE + t_below(&state, enc_size - LMC_BLOCK_HEADER_SIZE + 1);
                memmove(bad + (enc_size - new_size), bad, new_size);
                bad += enc_size - new_size;
                payload = (uint32_t)(new_size - LMC_BLOCK_HEADER_SIZE);
                t_store32(bad + 8, payload);
            }
            repair_block(bad, new_size);
            if (lmc_block_parse(bad, new_size, 0, &info) == LMC_OK &&
                info.encoded_size == new_size) {
                enum lmc_status status = try_block(bad, new_size, data, base, size);
                reached++; /* the header passed: the payload was decoded */
                refused += status == LMC_ERR_CORRUPT;
                checksum += status == LMC_ERR_CHECKSUM;
            } else {
                CHECK(try_block(bad, new_size, data, base, size) != LMC_OK);
            }
        }
    }
    t_note("mutations");
    printf("%ld mutated payloads decoded: %ld refused as corrupt, %ld by their checksum\n", reached,
           refused, checksum);
    CHECK(reached > rounds * (long)(sizeof cases / sizeof *cases) / 3);
    CHECK(refused > rounds / 20 && checksum > rounds / 20);
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    g_enc = t_new_guard((1 << 16) + 64);
    g_dst = t_new_guard(LMC_MAX_BLOCK_SIZE);
    g_file = t_new_guard(1 << 16);
    g_ws = t_new_guard(lmc_block_workspace_size(LMC_MAX_BLOCK_SIZE, 1));
    test_blocks(t_quick ? 300 : t_long ? 1000000 : 10000);
    test_snapshots();
    test_noise();
    return t_end();
}
