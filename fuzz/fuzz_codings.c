/* The codings for certain kinds of data: zeros apart, rows and columns, codes with scales (bits 3
 * to 5 of Incompatible), and codebooks of k-means. Elements are made such that the encoder takes
 * the coding for most inputs; a few may then change, so that it just fails. Two tiers write the
 * same bytes and restore the elements; of a damaged block they return the same status and bytes.
 * Input: bytes that choose zeros, rows, columns and codes; then 16 bytes of parameters.
 * FUZZ_CODINGS=1 prints how many inputs had which layout. */
#include "fuzz.h"

enum { MOST_N = 18 << 10, MOST_SIZE = 8 * MOST_N };
enum { ZEROS, MATRIX, CODES, CODEBOOK };

static fuzz_guard input_guard, exact_guard, block_guard, code_guard[2], output_guard[2],
    workspace_guard;
static unsigned long n_inputs, with_layout[8];

static void print_layouts(void)
{
    fprintf(stderr, "%lu inputs; quantised %lu, zeros %lu, matrix %lu, codes %lu\n", n_inputs,
            with_layout[2], with_layout[3], with_layout[4], with_layout[5]);
}

static uint32_t draw_random(uint64_t *x)
{
    *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
    return (uint32_t)(*x >> 24);
}

static float to_float(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, 4);
    return v;
}

/* Stores n floats as elements of 2 or 4 bytes. */
static void store_floats(uint8_t *dst, const float *src, size_t n, enum lmc_dtype dtype)
{
    if (dtype == LMC_F32) memcpy(dst, src, 4 * n);
    else
        FUZZ_CHECK(lmc_conversion_apply(dst, src, n,
                                        dtype == LMC_BF16 ? LMC_CONVERT_F32_TO_BF16
                                                          : LMC_CONVERT_F32_TO_F16) == LMC_OK);
}

/* Numbers of a few exponents, or all; `share` in 256 of them are zeros, some of these -0. */
static void make_zeros(float *dst, size_t n, const fuzz_input *in, uint64_t *x, unsigned share)
{
    size_t i;
    for (i = 0; i < n; i++) {
        const uint32_t r = draw_random(x), byte = in->data[i % in->size];
        dst[i] = (r >> 8 & 255) < share ? to_float(share & 1 ? r & 0x80000000u : 0)
                                        : to_float((r & 0x807FFFFFu) + 0x3A000000u + (byte << 19));
    }
}

/* Codes times scales: form 0: INT8, 1: INT4, 2: E4M3, 3: E5M2. A scale has `bits` bits of mantissa
 * and is that of `group` elements. */
static void make_codes(float *dst, size_t n, const fuzz_input *in, uint64_t *x, unsigned form,
                       size_t group, unsigned bits)
{
    float scale = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        const uint32_t r = draw_random(x), mantissa = form == 2 ? 3 : 2;
        const unsigned code = (in->data[i % in->size] & ~(r >> 8 & 127)) ^ (r & 15);
        float number;
        if (i % group == 0) {
            const uint32_t low = 0x7FFFFFu >> bits, lowest = form < 2    ? 0x3A000000u
                                                             : form == 2 ? 0x37000000u
                                                                         : 0x36000000u;
            scale = to_float((lowest + (draw_random(x) & 0x0FFFFFFu)) & ~low);
        }
        if (form == 0) number = (float)((int)(code & 255) - (code > 127 ? 256 : 0));
        else if (form == 1) number = (float)((int)(code & 15) - 8);
        else {
            const unsigned exponent = (code & 127) >> mantissa, m = code & ((1u << mantissa) - 1);
            number = (float)((exponent ? m | 1u << mantissa : m)
                             << (exponent ? exponent - 1 : exponent));
            if (code > 127) number = -number;
        }
        dst[i] = number * scale;
    }
}

/* Top bits of elements that are near the sum of a byte for the row and one for the column, as those
 * of second moments are. */
static void make_matrix(uint8_t *dst, size_t n, size_t width, const fuzz_input *in, uint64_t *x,
                        size_t row_size)
{
    size_t i;
    for (i = 0; i < n; i++) {
        uint8_t *const top = dst + (i + 1) * width - 2;
        const unsigned sum = 0x3000u + (in->data[i / row_size % in->size] / 4u << 4) +
                             (in->data[i % row_size * 7 % in->size] / 4u << 4) +
                             (draw_random(x) & 15u);
        size_t j;
        for (j = 0; j + 2 < width; j++) dst[i * width + j] = (uint8_t)draw_random(x);
        top[0] = (uint8_t)sum;
        top[1] = (uint8_t)(sum >> 8);
    }
}

static enum lmc_status read_elements(void *user, uint64_t offset, void *dst, size_t size)
{
    memcpy(dst, (const uint8_t *)user + offset, size);
    return LMC_OK;
}

/* Changes some bytes of the first block of a coded tensor, and decodes it on both tiers. */
static void try_damaged(const uint8_t *code, size_t size, const unsigned tiers[2], uint64_t *x,
                        int at_start)
{
    enum lmc_status status[2];
    lmc_block_info info;
    uint8_t *block;
    size_t decoded[2], payload_size;
    unsigned i, n = 1 + draw_random(x) % 4;
    FUZZ_CHECK(lmc_block_parse(code, size, 0, &info) == LMC_OK);
    size = info.encoded_size;
    payload_size = size - LMC_BLOCK_HEADER_SIZE;
    block = fuzz_copy(&block_guard, code, size, at_start);
    for (; n && payload_size; n--) { /* often near the beginning */
        const uint32_t r = draw_random(x);
        const size_t most = r >> 30 ? payload_size : 48;
        block[LMC_BLOCK_HEADER_SIZE + draw_random(x) % most % payload_size] ^=
            (uint8_t)(r & 1 ? 1u << (r >> 8 & 7) : 1 | r >> 8);
    }
    fuzz_seal_block(block, size, 0);
    for (i = 0; i < 2; i++) {
        const size_t ws_size = lmc_block_workspace_size(info.n, info.width);
        uint8_t *const output = fuzz_place(&output_guard[i], info.size, at_start);
        fuzz_set_tier(tiers[i]);
        status[i] = t_block_decode(output, info.size, &decoded[i], block, size, NULL, 0, 0,
                                   fuzz_place(&workspace_guard, ws_size, at_start), ws_size);
        FUZZ_CHECK(status[i] == status[0]);
        if (status[0] == LMC_OK || status[0] == LMC_ERR_CHECKSUM)
            FUZZ_CHECK(
                memcmp(output, fuzz_place(&output_guard[0], info.size, at_start), info.size) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum lmc_dtype dtypes[4] = {LMC_F32, LMC_BF16, LMC_F16, LMC_F64};
    static const unsigned rows[8] = {128, 256, 384, 640, 1024, 2048, 96, 33},
                          groups[8] = {0, 16, 32, 64, 128, 0, 128, 24};
    static float floats[MOST_N];
    fuzz_input in = {data, size};
    uint64_t p = fuzz_draw(&in, 8), x = fuzz_draw(&in, 8) * 2 + 1;
    const unsigned drawn = fuzz_bits(&p, 2), form = fuzz_bits(&p, 2), bits = fuzz_bits(&p, 5),
                   row = fuzz_bits(&p, 3), group = fuzz_bits(&p, 3), share = fuzz_bits(&p, 8),
                   n_changed = fuzz_bits(&p, 3), tiers[2] = {0, 1 + fuzz_bits(&p, 2)};
    const int at_start = (int)fuzz_bits(&p, 1);
    const unsigned kind =
        drawn == CODEBOOK && fuzz_bits(&p, 2) ? ZEROS : drawn; /* k-means is slow */
    const enum lmc_level levels[4] = {LMC_LEVEL_DEFAULT, LMC_LEVEL_DEFAULT, LMC_LEVEL_MAX,
                                      LMC_LEVEL_ARCHIVE};
    lmc_tensor_options options =
        LMC_TENSOR_OPTIONS(dtypes[fuzz_bits(&p, 2) % (kind == MATRIX ? 4u : 3u)]);
    const size_t width = lmc_dtype_width(options.dtype);
    const size_t row_size = kind == MATRIX ? 32 + fuzz_bits(&p, 8) : rows[row];
    const size_t least[4] = {512, 9 * row_size, 8192, 16384}; /* for which the coding is tried */
    const size_t more = fuzz_bits(&p, kind == CODEBOOK ? 10 : 12);
    size_t n;
    uint8_t *input, *ws, *exact;
    size_t cap, ws_size, made[2], i;
    lmc_block_info info;

    if (in.size == 0) return 0;
    if (n_inputs++ == 0 && getenv("FUZZ_CODINGS")) atexit(print_layouts);
    options.level = levels[fuzz_bits(&p, 2)];
    options.row_size = row_size;
    n = least[kind] + (fuzz_bits(&p, 2) ? more >> 5 : more); /* often few, for speed */
    fuzz_reserve(&input_guard, MOST_SIZE);
    fuzz_reserve(&exact_guard, MOST_SIZE);
    fuzz_reserve(&block_guard, 2 * MOST_SIZE);
    fuzz_reserve(&workspace_guard, 64 << 20); /* for blocks of the default size */
    for (i = 0; i < 2; i++) {
        fuzz_reserve(&code_guard[i], 2 * MOST_SIZE);
        fuzz_reserve(&output_guard[i], MOST_SIZE);
    }
    FUZZ_BEGIN();
    size = n * width;
    input = fuzz_place(&input_guard, size, at_start);
    if (kind == MATRIX) make_matrix(input, n, width, &in, &x, row_size);
    else {
        if (kind == ZEROS || (kind == CODEBOOK && form)) make_zeros(floats, n, &in, &x, share);
        else make_codes(floats, n, &in, &x, form, groups[group] ? groups[group] : row_size, bits);
        store_floats(input, floats, n, options.dtype);
    }
    for (i = 0; n_changed > 5 && i < n_changed - 5; i++)
        input[draw_random(&x) % size] ^= (uint8_t)draw_random(&x);

    exact = fuzz_copy(&exact_guard, input, size, at_start);
    for (i = 0; i < 2; i++) {
        lmc_quantizer *quantizer = NULL;
        fuzz_set_tier(tiers[i]);
        if (kind == CODEBOOK && options.dtype != LMC_F16) {
            lmc_quantizer_options how = LMC_QUANTIZER_OPTIONS();
            lmc_source elements = LMC_DEFAULTS;
            elements.read_at = read_elements;
            elements.user = input;
            elements.size = size;
            how.dtype = options.dtype;
            how.n_codes = 2 + share % 255;
            how.group = groups[group];
            FUZZ_CHECK(lmc_quantizer_fit(&quantizer, &elements, &how) == LMC_OK);
            if (i == 0) FUZZ_CHECK(lmc_quantizer_apply(quantizer, 0, exact, size, NULL) == LMC_OK);
        }
        options.quantizer = quantizer;
        ws_size = lmc_tensor_workspace_size(&options);
        cap = lmc_tensor_bound(size, &options);
        ws = fuzz_place(&workspace_guard, ws_size, at_start);
        FUZZ_CHECK(cap <= code_guard[i].cap);
        FUZZ_CHECK(lmc_tensor_encode(fuzz_place(&code_guard[i], cap, at_start), cap, &made[i],
                                     input, size, &options, ws, ws_size) == LMC_OK);
        FUZZ_CHECK(made[i] == made[0] &&
                   memcmp(fuzz_place(&code_guard[i], cap, at_start),
                          fuzz_place(&code_guard[0], cap, at_start), made[0]) == 0);
        FUZZ_CHECK(lmc_tensor_decode(fuzz_place(&output_guard[i], size, at_start), size,
                                     fuzz_place(&code_guard[i], cap, at_start), made[i], &options,
                                     ws, ws_size) == LMC_OK);
        FUZZ_CHECK(memcmp(fuzz_place(&output_guard[i], size, at_start), exact, size) == 0);
        lmc_quantizer_free(quantizer);
    }
    FUZZ_CHECK(lmc_block_parse(fuzz_place(&code_guard[0], cap, at_start), made[0], 0, &info) ==
               LMC_OK);
    with_layout[fuzz_place(&code_guard[0], cap, at_start)[2] >> 5]++;
    try_damaged(fuzz_place(&code_guard[0], cap, at_start), made[0], tiers, &x, at_start);
    FUZZ_END();
    return 0;
}
