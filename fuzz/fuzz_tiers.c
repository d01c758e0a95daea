/* Every tier of this machine gives the same status and the same bytes as the scalar one, in
 * encoding and decoding. Input: data to encode, or a block; its prediction if the parameters say
 * so; then 12 bytes of parameters. */
#include "fuzz.h"

#define MOST_SIZE ((size_t)1 << 16)

static fuzz_guard input_guard, code_guard[FUZZ_MAX_TIERS], output_guard[FUZZ_MAX_TIERS],
    workspace_guard, quantized_guard[FUZZ_MAX_TIERS];

static enum lmc_status read_elements(void *user, uint64_t offset, void *dst, size_t size)
{
    const fuzz_input *const all = (const fuzz_input *)user;
    FUZZ_CHECK(offset <= all->size && size <= all->size - offset);
    memcpy(dst, all->data + offset, size);
    return LMC_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    uint64_t p = fuzz_draw(&in, 8);
    const uint32_t seed = (uint32_t)fuzz_draw(&in, 4);
    const int at_start = (int)fuzz_bits(&p, 1), decodes = (int)fuzz_bits(&p, 1),
              has_base = (int)fuzz_bits(&p, 1), carries_base = (int)fuzz_bits(&p, 1);
    const int in_place = (int)fuzz_bits(&p, 1), fits = fuzz_bits(&p, 4) == 15,
              spread = (int)fuzz_bits(&p, 1);
    const enum lmc_level level = fuzz_bits(&p, 1) ? LMC_LEVEL_ARCHIVE : LMC_LEVEL_DEFAULT;
    const enum lmc_dtype dtype = (enum lmc_dtype)(fuzz_bits(&p, 5) % LMC__DTYPE_COUNT);
    const unsigned n_tiers = fuzz_count_tiers(), repeats = fuzz_bits(&p, 4),
                   q_bits = fuzz_bits(&p, 3), measure = fuzz_bits(&p, 2), role = fuzz_bits(&p, 2);
    const unsigned bound = fuzz_bits(&p, 4), group = fuzz_bits(&p, 8);
    enum lmc_status status[FUZZ_MAX_TIERS] = {LMC_OK};
    size_t made[FUZZ_MAX_TIERS] = {0}, cap, base_size, block_size;
    lmc_quantizer *first_quantizer = NULL;
    uint8_t *input, *base = NULL;
    unsigned i;

    if (in.size == 0 || in.size > MOST_SIZE / 16) return 0;
    fuzz_reserve(&input_guard, 3 * MOST_SIZE);
    fuzz_reserve(&workspace_guard, lmc_block_workspace_size(MOST_SIZE, 1));
    for (i = 0; i < n_tiers; i++) {
        fuzz_reserve(&code_guard[i], lmc_block_bound(MOST_SIZE));
        fuzz_reserve(&output_guard[i], MOST_SIZE);
        fuzz_reserve(&quantized_guard[i], MOST_SIZE);
    }
    FUZZ_BEGIN();

    if (decodes) {
        lmc_block_info info;
        input = fuzz_copy(&input_guard, in.data, in.size, at_start);
        if (in.size < LMC_BLOCK_HEADER_SIZE) return 0;
        fuzz_seal_block(input, in.size, 0);
        if (lmc_block_parse(input, in.size, 0, &info) != LMC_OK || info.size > MOST_SIZE / 2)
            return 0;
        block_size = in.size;
        base_size = info.size;
        if (carries_base && in.size >= LMC_BLOCK_HEADER_SIZE + info.size) block_size -= base_size;
        input = fuzz_copy(&input_guard, input, block_size, at_start);
        if (info.has_prediction)
            for (i = 0; i < n_tiers; i++) {
                /* decoded over the prediction */
                uint8_t *const place = fuzz_place(&output_guard[i], info.size, at_start);
                if (block_size < in.size) memcpy(place, in.data + block_size, base_size);
                else fuzz_fill(place, base_size, seed);
            }
        for (i = 0; i < n_tiers; i++) {
            const size_t ws_size = lmc_block_workspace_size(info.n, info.width);
            uint8_t *const output = fuzz_place(&output_guard[i], info.size, at_start);
            fuzz_set_tier(i);
            if (info.has_prediction && !in_place)
                fuzz_copy(&quantized_guard[i], output, base_size, !at_start);
            status[i] = t_block_decode(
                output, info.size, &made[i], input, block_size,
                info.has_prediction
                    ? in_place ? output : fuzz_place(&quantized_guard[i], base_size, !at_start)
                    : NULL,
                info.has_prediction ? base_size : 0, 0,
                fuzz_place(&workspace_guard, ws_size, at_start), ws_size);
            FUZZ_CHECK(status[i] == status[0]);
            /* also what is decoded with another prediction; in place the prediction is restored */
            if (status[0] == LMC_OK || status[0] == LMC_ERR_CHECKSUM ||
                status[0] == LMC_ERR_BASE_WRONG)
                FUZZ_CHECK(memcmp(output, fuzz_place(&output_guard[0], info.size, at_start),
                                  info.size) == 0);
        }
        FUZZ_END();
        return 0;
    }

    /* data to encode: the input, repeated, and with `spread` a little different each time */
    size = in.size * (repeats + 1);
    if (carries_base && in.size >= 2) size = in.size / 2 * (repeats + 1);
    input = fuzz_place(&input_guard, size, at_start);
    for (i = 0; i <= repeats; i++)
        memcpy(input + i * (size / (repeats + 1)), in.data, size / (repeats + 1));
    if (spread) {
        uint32_t x = seed | 1;
        size_t j;
        for (j = 0; j < size; j++) {
            x ^= x << 13, x ^= x >> 17, x ^= x << 5;
            if ((x & 7) == 0) input[j] ^= (uint8_t)(x >> 8 & x >> 16);
        }
    }
    if (dtype != LMC_AUTO) size -= size % lmc_dtype_width(dtype);
    if (size == 0) return 0;
    if (has_base) {
        base = fuzz_place(&quantized_guard[0], size, at_start);
        if (carries_base)
            for (i = 0; i < size; i++) base[i] = in.data[in.size / 2 + i % (in.size - in.size / 2)];
        else fuzz_fill(base, size, seed);
    }
    /* quantised: the same quantiser and the same bytes */
    if (fits && (dtype == LMC_F32 || dtype == LMC_BF16)) {
        fuzz_input elements_input = {input, size}, second_input = {base, size};
        lmc_source elements = {read_elements, &elements_input, size, {0, 0}};
        const lmc_source seconds = {read_elements, &second_input, size, {0, 0}};
        lmc_quantizer_options options;
        options = LMC_QUANTIZER_OPTIONS();
        options.dtype = dtype;
        options.role = (enum lmc_role)(role % 3);
        options.bits = q_bits < 4 ? 0 : q_bits;
        options.n_codes = q_bits == 1 ? 2 : q_bits == 2 ? 16 : q_bits == 3 ? 256 : 0;
        options.measure = (enum lmc_measure)measure;
        options.bound = 1.0 / (1u << bound) * 0.75;
        options.group = group;
        if (base && options.role == LMC_ROLE_FIRST_MOMENT) { options.second_elements = &seconds; }
        for (i = 0; i < n_tiers; i++) {
            const size_t n = size / lmc_dtype_width(dtype);
            lmc_quantizer *quantizer = NULL;
            lmc_quantizer_info info, first_info;
            lmc_tensor_options tensor;
            uint8_t *ws, *q;
            size_t ws_size;
            fuzz_set_tier(i);
            status[i] = lmc_quantizer_fit(&quantizer, &elements, &options);
            FUZZ_CHECK(status[i] == status[0]);
            if (status[i] != LMC_OK) continue;
            if (i == 0) first_quantizer = quantizer;
            FUZZ_CHECK(lmc_quantizer_get_info(quantizer, &info) == LMC_OK &&
                       lmc_quantizer_get_info(first_quantizer, &first_info) == LMC_OK);
            FUZZ_CHECK(info.is_lossless == first_info.is_lossless &&
                       strcmp(info.reason, first_info.reason) == 0 &&
                       info.is_grid == first_info.is_grid && info.n_codes == first_info.n_codes &&
                       info.n_exceptions == first_info.n_exceptions &&
                       info.loss.generation == first_info.loss.generation);
            tensor = LMC_TENSOR_OPTIONS(dtype);
            tensor.level = level;
            tensor.log2_block = 14;
            tensor.quantizer = quantizer;
            if (options.second_elements) {
                tensor.prediction = base;
                tensor.prediction_size = size;
            }
            ws_size = lmc_tensor_workspace_size(&tensor);
            ws = (uint8_t *)fuzz_realloc(NULL, 0, ws_size);
            cap = lmc_tensor_bound(size, &tensor);
            FUZZ_CHECK(ws && cap <= code_guard[i].cap);
            FUZZ_CHECK(lmc_tensor_encode(fuzz_place(&code_guard[i], cap, at_start), cap, &made[i],
                                         input, size, &tensor, ws, ws_size) == LMC_OK);
            FUZZ_CHECK(made[i] == made[0] &&
                       memcmp(fuzz_place(&code_guard[i], cap, at_start),
                              fuzz_place(&code_guard[0], cap, at_start), made[0]) == 0);
            FUZZ_CHECK(lmc_tensor_decode(fuzz_place(&output_guard[i], size, at_start), size,
                                         fuzz_place(&code_guard[i], cap, at_start), made[i],
                                         &tensor, ws, ws_size) == LMC_OK);
            FUZZ_CHECK(memcmp(fuzz_place(&output_guard[i], size, at_start),
                              fuzz_place(&output_guard[0], size, at_start), size) == 0);
            fuzz_realloc(ws, ws_size, 0);
            /* compares lmc_quantizer_apply, which must not change quantised elements */
            q = (uint8_t *)fuzz_realloc(NULL, 0, size);
            FUZZ_CHECK(q && n != 0);
            memcpy(q, input, size);
            FUZZ_CHECK(lmc_quantizer_apply(quantizer, 0, q, size,
                                           options.second_elements ? base : NULL) == LMC_OK);
            FUZZ_CHECK(memcmp(q, fuzz_place(&output_guard[0], size, at_start), size) == 0);
            FUZZ_CHECK(lmc_quantizer_apply(quantizer, 0, q, size,
                                           options.second_elements ? base : NULL) == LMC_OK);
            FUZZ_CHECK(memcmp(q, fuzz_place(&output_guard[0], size, at_start), size) == 0);
            fuzz_realloc(q, size, 0);
            if (i != 0) lmc_quantizer_free(quantizer);
        }
        lmc_quantizer_free(first_quantizer);
        FUZZ_END();
        return 0;
    }
    cap = lmc_block_bound(size);
    for (i = 0; i < n_tiers; i++) {
        const size_t ws_size =
            lmc_block_workspace_size(size / lmc_dtype_width(dtype), lmc_dtype_width(dtype));
        uint8_t *const ws = fuzz_place(&workspace_guard, ws_size, at_start), *const code =
                                                                                 fuzz_place(
                                                                                     &code_guard[i],
                                                                                     cap, at_start);
        uint8_t *const output = fuzz_place(&output_guard[i], size, at_start);
        size_t decoded;
        fuzz_set_tier(i);
        status[i] =
            t_block_encode(code, cap, &made[i], input, size, base, dtype, level, 0, ws, ws_size);
        FUZZ_CHECK(status[i] == LMC_OK && made[i] == made[0] &&
                   memcmp(code, fuzz_place(&code_guard[0], cap, at_start), made[0]) == 0);
        status[i] = t_block_decode(output, size, &decoded, code, made[i], code[2] & 4 ? base : NULL,
                                   code[2] & 4 ? size : 0, 0, ws, ws_size);
        FUZZ_CHECK(status[i] == LMC_OK && decoded == size && memcmp(output, input, size) == 0);
    }
    FUZZ_END();
    return 0;
}
