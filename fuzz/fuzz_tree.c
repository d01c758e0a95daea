/* Hostile lists, trees and nested masks (spec 6), compared with a second, simple decoder; and lists
 * and masks that are encoded and decoded again. Input: the code, or the list; then 8 bytes of
 * parameters. */
#include "fuzz.h"

#define MOST_INPUT ((size_t)1 << 16)
#define MOST_N ((size_t)1 << 16)

/* -- the second decoder: the pseudo code of the spec -- */

#define ESCAPE 256u

typedef struct model {
    const uint8_t *in, *end;
    uint8_t *top, *stop; /* the rest of the memory */
    int refused;
} model;

typedef struct model_tree {
    unsigned n, symbol[257], length[257], start[258];
} model_tree;

static uint8_t model_memory[(size_t)1 << 22];

static const uint8_t *model_node(model *m, const model_tree *tree, unsigned d, unsigned x,
                                 unsigned a, unsigned b, size_t n, unsigned t);

static uint8_t *model_get(model *m, size_t size)
{
    uint8_t *const p = m->top;
    FUZZ_CHECK(size <= (size_t)(m->stop - p));
    m->top += size;
    return p;
}

static const uint8_t *model_take(model *m, size_t size)
{
    const uint8_t *const p = m->in;
    if (m->refused || size > (size_t)(m->end - p)) {
        m->refused = 1;
        return NULL;
    }
    m->in += size;
    return p;
}

static int is_set(const uint8_t *bits, size_t i) { return bits[i / 8] >> (i % 8) & 1; }

static int is_padded(const uint8_t *bits, size_t n)
{
    for (; n % 8 != 0; n++)
        if (is_set(bits, n)) return 0;
    return 1;
}

static const uint8_t *model_bits(model *m, size_t n)
{
    const uint8_t *const bits = model_take(m, (n + 7) / 8);
    if (bits && !is_padded(bits, n)) m->refused = 1;
    return bits;
}

/* Sets the starts of the leaves, whose symbols and lengths are set. */
static void model_start(model_tree *tree)
{
    unsigned i, start = 0;
    for (i = 0; i < tree->n; i++) {
        tree->start[i] = start;
        start += 1u << (15 - tree->length[i]);
    }
    tree->start[i] = start;
}

static void model_frozen(model_tree *tree, unsigned level)
{
    unsigned length, ones, value, i = 0;
    tree->n = 256;
    for (length = 1; length <= 15; length++) {
        unsigned count = fuzz_frozen_counts(level, length);
        while (count-- != 0) tree->length[i++] = length;
    }
    for (i = 0, ones = 0; ones <= 8; ones++)
        for (value = 0; value < 256; value++) {
            unsigned bit, sum = 0;
            for (bit = 0; bit < 8; bit++) sum += value >> bit & 1;
            if (sum == ones) tree->symbol[i++] = value;
        }
    model_start(tree);
}

static int model_next(model *m, size_t *at)
{
    if (*at / 8 >= (size_t)(m->end - m->in)) {
        m->refused = 1;
        return 1;
    }
    return is_set(m->in, (*at)++);
}

/* A mask from the gaps between its rarer bits. */
static const uint8_t *model_gaps(model *m, size_t n, unsigned s, int polarity)
{
    const uint8_t *const field = model_take(m, 3), *low;
    uint8_t *bits;
    size_t k, i, j, at = 0, position = 0;
    if (!field) return NULL;
    k = field[0] | (size_t)field[1] << 8 | (size_t)field[2] << 16;
    if (k < 1 || k > n) m->refused = 1;
    low = model_bits(m, k * s);
    if (m->refused) return NULL;
    bits = model_get(m, (n + 7) / 8);
    for (i = 0; i < n; i++)
        bits[i / 8] = (uint8_t)((i % 8 ? bits[i / 8] : 0) | (unsigned)polarity << (i % 8));
    for (i = 0; i < k; i++, position++) {
        size_t quotient = 0;
        while (!model_next(m, &at)) quotient++;
        position += quotient << s;
        for (j = 0; j < s; j++) position += (size_t)is_set(low, i * s + j) << j;
        if (position >= n) m->refused = 1;
        if (m->refused) return NULL;
        bits[position / 8] ^= (uint8_t)(1u << position % 8);
    }
    (void)model_bits(m, at);
    return bits;
}

static const uint8_t *model_mask(model *m, size_t n, unsigned t, int is_of_class)
{
    static model_tree frozen[10];
    const uint8_t *mode, *list;
    uint8_t *bits;
    size_t i, size = (n + 7) / 8;
    if (n < 256 || t == 2) return model_bits(m, n);
    mode = model_take(m, 1);
    if (!mode || *mode > (is_of_class ? 64 : 20)) {
        m->refused = 1;
        return NULL;
    }
    if (*mode > 20) return model_gaps(m, n, (*mode - 21u) / 2, (*mode - 21) % 2);
    if (*mode == 0) return model_bits(m, n);
    if (frozen[(*mode - 1) / 2].n == 0) model_frozen(&frozen[(*mode - 1) / 2], (*mode - 1u) / 2);
    list = model_node(m, &frozen[(*mode - 1) / 2], 0, 0, 0, 256, size, t + 1);
    if (m->refused) return NULL;
    bits = model_get(m, size);
    for (i = 0; i < size; i++) bits[i] = *mode % 2 == 0 ? (uint8_t)~list[i] : list[i];
    if (!is_padded(bits, n)) m->refused = 1;
    return bits;
}

static const uint8_t *model_node(model *m, const model_tree *tree, unsigned d, unsigned x,
                                 unsigned a, unsigned b, size_t n, unsigned t)
{
    const unsigned half = x + (1u << 15 >> (d + 1)), depth = tree->length[a] - d;
    const uint8_t *bits, *left, *right;
    unsigned middle, j;
    uint8_t *list;
    size_t i, n_ones = 0;
    if (n == 0 || m->refused) return m->top;
    if (b - a == 1 && tree->symbol[a] == ESCAPE) return model_take(m, n);
    list = model_get(m, n);
    if (b - a == 1) {
        memset(list, (int)tree->symbol[a], n);
        return list;
    }
    if (tree->symbol[b - 1] != ESCAPE && tree->length[b - 1] == tree->length[a] && depth >= 2 &&
        depth <= 6) {
        const uint8_t *plane[6];
        for (j = 0; j < depth; j++) plane[j] = model_bits(m, n);
        for (i = 0; i < n && !m->refused; i++) {
            unsigned index = a;
            for (j = 0; j < depth; j++) index += (unsigned)is_set(plane[j], i) << (depth - 1 - j);
            list[i] = (uint8_t)tree->symbol[index];
        }
        return list;
    }
    for (middle = a; tree->start[middle] < half; middle++) {}
    bits = model_mask(m, n, t, 0);
    if (m->refused) return NULL;
    for (i = 0; i < n; i++) n_ones += (size_t)is_set(bits, i);
    left = model_node(m, tree, d + 1, x, a, middle, n - n_ones, t);
    right = model_node(m, tree, d + 1, half, middle, b, n_ones, t);
    if (m->refused) return NULL;
    for (i = 0; i < n; i++) list[i] = is_set(bits, i) ? *right++ : *left++;
    return list;
}

static const uint8_t *model_list(model *m, size_t n)
{
    static model_tree tree;
    const uint8_t *const mode = model_take(m, 1), *head, *fields;
    unsigned length, i, n_fields, sum = 0;
    uint8_t *list;
    if (!mode || *mode > 3) {
        m->refused = 1;
        return NULL;
    }
    if (*mode == 0) return model_take(m, n);
    if (*mode == 1) {
        head = model_take(m, 1);
        list = model_get(m, n);
        if (head) memset(list, *head, n);
        return list;
    }
    head = model_take(m, 2);
    if (!head) return NULL;
    n_fields = head[1] + 1u + (*mode == 3);
    fields = model_take(m, (n_fields + 1) / 2);
    if (!fields) return NULL;
#define FIELD(i) (fields[(i) / 2] >> 4 * ((i) % 2) & 15u)
    if (head[0] + head[1] + 1 > 256 || (n_fields % 2 && FIELD(n_fields) != 0) || FIELD(0) == 0 ||
        FIELD(head[1]) == 0)
        m->refused = 1;
    if (*mode == 3 && FIELD(n_fields - 1) == 0) m->refused = 1;
    tree.n = 0;
    for (length = 1; length <= 15; length++)
        for (i = 0; i < n_fields; i++) {
            if (FIELD(i) != length) continue;
            if (*mode == 3 && length > FIELD(n_fields - 1)) m->refused = 1;
            tree.symbol[tree.n] = i <= head[1] ? head[0] + i : ESCAPE;
            tree.length[tree.n++] = length;
            sum += 1u << (15 - length);
        }
#undef FIELD
    if (tree.n < 2 || tree.n > 256 || sum != 1u << 15 || m->refused) {
        m->refused = 1;
        return NULL;
    }
    model_start(&tree);
    return model_node(m, &tree, 0, 0, 0, tree.n, n, 0);
}

/* -- the harness -- */

static fuzz_guard input_guard, code_guard, output_guard, workspace_guard;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    uint64_t p = fuzz_draw(&in, 8);
    size_t n = (size_t)fuzz_bits(&p, 16) + 1;
    const int at_start = (int)fuzz_bits(&p, 1), is_mask = (int)fuzz_bits(&p, 1),
              encodes = (int)fuzz_bits(&p, 1), n_class = (int)fuzz_bits(&p, 5);
    const unsigned kind = fuzz_bits(&p, 2), nesting = kind % 3, tier = fuzz_bits(&p, 4);
    const int is_of_class = kind == 3;
    const enum lmc_level level = fuzz_bits(&p, 1) ? LMC_LEVEL_ARCHIVE : LMC_LEVEL_DEFAULT;
    const uint8_t *input, *expected;
    uint8_t *output, *ws;
    size_t ws_size, list_size, used = 0, code_size;
    enum lmc_status status;
    model m;

    /* most are small, for speed */
    if (n_class != 31) n = (n - 1) % (n_class >= 24 ? 4096 : 512) + 1;
    if (in.size > MOST_INPUT) return 0;
    fuzz_reserve(&input_guard, MOST_INPUT);
    fuzz_reserve(&code_guard, 2 * MOST_INPUT);
    fuzz_reserve(&output_guard, MOST_N);
    fuzz_reserve(&workspace_guard, lmc_block_workspace_size(8 * MOST_INPUT, 1));
    FUZZ_BEGIN();
    fuzz_set_tier(tier);
    input = fuzz_copy(&input_guard, in.data, in.size, at_start);
    if (encodes) {
        uint8_t *code;
        if (in.size == 0) return 0;
        if (is_mask) {
            n = 8 * in.size - n % 8;
            list_size = (n + 7) / 8;
            if (n % 8 && (input[in.size - 1] >> n % 8) != 0) return 0; /* not a mask */
        } else list_size = n = in.size;
        ws_size = lmc_block_workspace_size(n, 1);
        ws = fuzz_place(&workspace_guard, ws_size, at_start);
        code = fuzz_place(&code_guard, list_size + 1, !at_start);
        code_size = is_mask ? fuzz_encode_mask(code, list_size + 1, nesting, is_of_class, input, n,
                                               ws, ws_size)
                            : fuzz_encode_list(code, list_size + 1, input, n, level, ws, ws_size);
        FUZZ_CHECK(code_size != 0);
        m.in = code;
        m.end = code + code_size;
    } else {
        ws_size = lmc_block_workspace_size(n, 1);
        ws = fuzz_place(&workspace_guard, ws_size, at_start);
        list_size = is_mask ? (n + 7) / 8 : n;
        m.in = input;
        m.end = input + in.size;
        code_size = in.size;
    }
    output = fuzz_place(&output_guard, list_size, at_start);
    status = is_mask ? fuzz_decode_mask(output, nesting, is_of_class, n, m.in, code_size, &used, ws,
                                        ws_size)
                     : fuzz_decode_list(output, n, m.in, code_size, &used, ws, ws_size);
    FUZZ_CHECK(status == LMC_OK || status == LMC_ERR_CORRUPT);
    if (encodes)
        FUZZ_CHECK(status == LMC_OK && used == code_size && memcmp(output, input, list_size) == 0);

    m.top = model_memory;
    m.stop = model_memory + sizeof model_memory;
    m.refused = 0;
    data = m.in;
    expected = is_mask ? model_mask(&m, n, nesting, is_of_class) : model_list(&m, n);
    FUZZ_CHECK(m.refused == (status != LMC_OK));
    if (status == LMC_OK)
        FUZZ_CHECK(used == (size_t)(m.in - data) && memcmp(output, expected, list_size) == 0);
    FUZZ_END();
    return 0;
}
