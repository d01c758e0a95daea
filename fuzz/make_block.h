/* make_block.h - makes blocks from an input, each byte of which is a decision
 *
 * A second encoder, written from sections 5 and 6 of the specification and not from lmc.h. It does
 * not choose what is small, as lmc.h's does, but what the decisions say: any tree, any mode of each
 * mask, any classes. So it reaches codings that no encoder makes. As it knows the elements, the
 * decoder's output is compared with them.
 *
 *     decisions -> trees, codes -> residuals -> elements        what must come out
 *                       `-> payload, header                     what is decoded
 *
 * Where bytes need no choice each, they are pseudo-random, by a seed from the decisions.
 */
#ifndef FUZZ_MAKE_BLOCK_H
#define FUZZ_MAKE_BLOCK_H

#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAKE_MOST_N = 1 << 13,
    MAKE_MOST_SIZE = 8 * MAKE_MOST_N,
    MAKE_MOST_CLASSES = 16,
    MAKE_HEADER = 24
};

struct maker {
    const uint8_t *in; /* decisions that are left */
    size_t n_in;
    uint64_t state; /* of pseudo-random numbers */
    uint8_t *out;   /* the payload */
    size_t size, cap;
    int is_full; /* the payload would have had more than cap bytes */
};

static unsigned make_choice(struct maker *m)
{
    if (m->n_in == 0) return 0;
    m->n_in--;
    return *m->in++;
}

static uint32_t make_random(struct maker *m)
{
    m->state ^= m->state << 13;
    m->state ^= m->state >> 7;
    m->state ^= m->state << 17;
    return (uint32_t)(m->state >> 24);
}

static void make_put(struct maker *m, const void *data, size_t size)
{
    if (size > m->cap - m->size) {
        m->is_full = 1;
        return;
    }
    if (size) memcpy(m->out + m->size, data, size);
    m->size += size;
}

static void make_byte(struct maker *m, unsigned byte)
{
    const uint8_t b = (uint8_t)byte;
    make_put(m, &b, 1);
}

/* Bits as bytes that are 0 or 1, packed: unused bits of the last byte are zero. */
static void make_bits(struct maker *m, const uint8_t *bits, size_t n)
{
    for (size_t i = 0; i < n; i += 8) {
        unsigned byte = 0;
        for (size_t k = i; k < n && k < i + 8; k++) byte |= (unsigned)bits[k] << (k - i);
        make_byte(m, byte);
    }
}

/* -- trees -- */

enum { MAKE_ESCAPE = 256 };

struct make_leaf {
    unsigned symbol, length, start;
};

struct make_tree {
    struct make_leaf leaf[256]; /* in the order of the leaves: by length, then by value */
    unsigned n;
    uint8_t leaf_of[257]; /* of a symbol */
    int has_code[257];
};

static void make_order(struct make_tree *t)
{
    unsigned start = 0;
    for (unsigned i = 0; i < t->n; i++) {
        t->leaf[i].start = start;
        start += 1u << (15 - t->leaf[i].length);
        t->leaf_of[t->leaf[i].symbol] = (uint8_t)i;
        t->has_code[t->leaf[i].symbol] = 1;
    }
}

static int make_compare_leaves(const void *a, const void *b)
{
    const struct make_leaf *x = (const struct make_leaf *)a, *y = (const struct make_leaf *)b;
    if (x->symbol == MAKE_ESCAPE || y->symbol == MAKE_ESCAPE)
        return (x->symbol == MAKE_ESCAPE) - (y->symbol == MAKE_ESCAPE);
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return x->symbol < y->symbol ? -1 : x->symbol > y->symbol;
}

/* Draws a tree, and writes its header. The lengths come from a tree of one leaf, whose leaves are
 * split until there are enough: so the sum of R6-6 is always 1. */
static void make_tree(struct maker *m, struct make_tree *t, int has_escape)
{
    const unsigned kind = make_choice(m);
    unsigned wanted = kind < 160 ? 2 + kind % 15 : 2 + (kind << 8 | make_choice(m)) % 255;
    unsigned n_symbols, first, count, at, longest = 0;
    const int skew =
        (int)(make_choice(m) % 3); /* 0: any leaf is split, 1: the longest, 2: the shortest */
    uint8_t length[256], fields[257];
    memset(t, 0, sizeof *t);
    length[0] = 0;
    for (t->n = 1; t->n < wanted;) {
        unsigned i = make_random(m) % t->n, tries = 0;
        for (unsigned k = 0; skew && k < t->n; k++)
            if (skew == 1 ? length[k] > length[i] && length[k] < 15 : length[k] < length[i]) i = k;
        while (length[i] == 15 && tries++ < t->n) i = (i + 1) % t->n;
        length[t->n++] = ++length[i];
    }
    for (unsigned i = 0; i < t->n; i++)
        if (length[i] > length[longest]) longest = i;
    if (has_escape) { /* no other is longer */
        const uint8_t last = length[t->n - 1];
        length[t->n - 1] = length[longest];
        length[longest] = last;
    }
    n_symbols = t->n - (unsigned)has_escape;
    count =
        n_symbols == 1 ? 1 : n_symbols + make_choice(m) % 40; /* with symbols that have no code */
    if (count > 256) count = 256;
    first = make_random(m) % (257 - count);
    memset(fields, 0, sizeof fields);
    at = 0; /* the first and the last one have a code, the others are spread between them */
    for (unsigned i = 0; i < n_symbols; i++) {
        const unsigned room = count - at - (n_symbols - i),
                       gap = i && room ? make_random(m) % (room + 1) : 0;
        at = i + 1 == n_symbols ? count - 1 : at + gap;
        t->leaf[i].symbol = first + at;
        t->leaf[i].length = fields[at] = length[i];
        at++;
    }
    if (has_escape) {
        t->leaf[n_symbols].symbol = MAKE_ESCAPE;
        t->leaf[n_symbols].length = fields[count] = length[t->n - 1];
    }
    make_byte(m, first);
    make_byte(m, count - 1);
    for (unsigned i = 0; i < count + (unsigned)has_escape; i += 2)
        make_byte(m, fields[i] | (i + 1 < count + (unsigned)has_escape ? fields[i + 1] << 4 : 0u));
    qsort(t->leaf, t->n, sizeof *t->leaf, make_compare_leaves);
    make_order(t);
}

/* 6.4: the number of leaves of each length, from 1, for each level */
static const uint8_t make_frozen_counts[10][15] = {
    {0, 0, 0, 0, 0, 0, 32, 160, 64, 0, 0, 0, 0, 0, 0},
    {0, 0, 0, 0, 0, 16, 32, 64, 112, 32, 0, 0, 0, 0, 0},
    {0, 0, 1, 0, 8, 11, 17, 56, 2, 68, 56, 0, 28, 7, 2},
    {0, 1, 0, 4, 4, 0, 28, 2, 54, 1, 69, 2, 54, 3, 34},
    {0, 1, 0, 7, 1, 0, 27, 1, 0, 56, 0, 2, 68, 3, 90},
    {1, 0, 0, 3, 5, 0, 3, 25, 0, 1, 55, 0, 3, 68, 92},
    {1, 0, 0, 4, 4, 0, 0, 27, 1, 0, 0, 47, 9, 1, 162},
    {1, 0, 0, 6, 2, 0, 0, 0, 27, 1, 0, 0, 6, 51, 162},
    {1, 0, 0, 6, 2, 0, 0, 0, 28, 0, 0, 0, 0, 37, 182},
    {1, 0, 0, 7, 1, 0, 0, 0, 0, 22, 6, 0, 0, 5, 214}};

static const struct make_tree *make_frozen(unsigned level)
{
    static struct make_tree trees[10];
    struct make_tree *const t = &trees[level];
    unsigned length = 0, left = 0;
    if (t->n) return t;
    for (unsigned ones = 0; ones <= 8; ones++)
        for (unsigned symbol = 0; symbol < 256; symbol++) {
            unsigned k = 0;
            for (unsigned bit = 0; bit < 8; bit++) k += symbol >> bit & 1;
            if (k != ones) continue;
            while (left == 0) left = make_frozen_counts[level][length++];
            left--;
            t->leaf[t->n].symbol = symbol;
            t->leaf[t->n++].length = length;
        }
    make_order(t);
    return t;
}

static void make_mask(struct maker *m, const uint8_t *bits, size_t n, unsigned nesting,
                      int is_of_class);

/* Writes Node(depth, start, n) for the bytes v, of which v[i] has the leaf leaf[i]. */
static void make_node(struct maker *m, const struct make_tree *t, unsigned depth, unsigned start,
                      const uint8_t *v, const uint8_t *leaf, size_t n, unsigned nesting)
{
    unsigned first = 0, end;
    uint8_t *bits, *half;
    size_t n_left = 0, n_right = 0;
    if (n == 0 || m->is_full) return;
    while (t->leaf[first].start < start) first++;
    for (end = first; end < t->n && t->leaf[end].start < start + (1u << (15 - depth)); end++) {}
    if (end - first == 1) {
        if (t->leaf[first].symbol == MAKE_ESCAPE) make_put(m, v, n);
        return;
    }
    bits = (uint8_t *)malloc(n);
    if (!bits) abort();
    if (t->leaf[end - 1].symbol != MAKE_ESCAPE &&
        t->leaf[end - 1].length == t->leaf[first].length && t->leaf[first].length - depth >= 2 &&
        t->leaf[first].length - depth <= 6) {
        for (unsigned row = t->leaf[first].length - depth; row-- != 0;) {
            for (size_t i = 0; i < n; i++) bits[i] = (uint8_t)((leaf[i] - first) >> row & 1);
            make_bits(m, bits, n);
        }
        free(bits);
        return;
    }
    half = (uint8_t *)malloc(4 * n);
    if (!half) abort();
    for (size_t i = 0; i < n; i++) {
        bits[i] = t->leaf[leaf[i]].start >= start + (1u << (14 - depth));
        if (bits[i]) {
            half[2 * n + n_right] = v[i];
            half[3 * n + n_right++] = leaf[i];
        } else {
            half[n_left] = v[i];
            half[n + n_left++] = leaf[i];
        }
    }
    make_mask(m, bits, n, nesting, 0);
    free(bits);
    make_node(m, t, depth + 1, start, half, half + n, n_left, nesting);
    make_node(m, t, depth + 1, start + (1u << (14 - depth)), half + 2 * n, half + 3 * n, n_right,
              nesting);
    free(half);
}

/* -- masks -- */

static void make_gaps(struct maker *m, const uint8_t *bits, size_t n, unsigned shift,
                      unsigned polarity)
{
    uint32_t *const gap = (uint32_t *)malloc(n * sizeof *gap);
    uint8_t *const unary = (uint8_t *)malloc(2 * n + 8 + n * shift);
    size_t k = 0, at = 0, last = 0;
    if (!gap || !unary) abort();
    for (size_t i = 0; i < n; i++)
        if (bits[i] != polarity) {
            gap[k++] = (uint32_t)(i - last);
            last = i + 1;
        }
    for (unsigned i = 0; i < 3; i++) make_byte(m, (unsigned)(k >> 8 * i & 255));
    for (size_t j = 0; j < k; j++)
        for (unsigned i = 0; i < shift; i++) unary[at++] = (uint8_t)(gap[j] >> i & 1);
    make_bits(m, unary, at);
    at = 0;
    for (size_t j = 0; j < k; j++) {
        for (uint32_t q = gap[j] >> shift; q != 0; q--) unary[at++] = 0;
        unary[at++] = 1;
    }
    make_bits(m, unary, at);
    free(gap);
    free(unary);
}

static void make_mask(struct maker *m, const uint8_t *bits, size_t n, unsigned nesting,
                      int is_of_class)
{
    unsigned mode, complement;
    if (n < 256 || nesting == 2) {
        make_bits(m, bits, n);
        return;
    }
    mode = make_choice(m) % (is_of_class ? 65 : 21);
    if (mode > 20 && !memchr(bits, 1 - ((mode - 21) & 1), n)) mode = 0; /* no bit to mark */
    make_byte(m, mode);
    if (mode == 0) make_bits(m, bits, n);
    else if (mode > 20) make_gaps(m, bits, n, (mode - 21) >> 1, (mode - 21) & 1);
    else {
        const struct make_tree *const t = make_frozen((mode - 1) >> 1);
        const size_t size = (n + 7) / 8;
        uint8_t *const packed = (uint8_t *)calloc(2, size);
        if (!packed) abort();
        complement = (mode - 1) & 1 ? 255 : 0;
        for (size_t i = 0; i < n; i++) packed[i / 8] |= (uint8_t)(bits[i] << i % 8);
        for (size_t i = 0; i < size; i++) {
            packed[i] = (uint8_t)(packed[i] ^ complement);
            packed[size + i] = t->leaf_of[packed[i]];
        }
        make_node(m, t, 0, 0, packed, packed + size, size, nesting + 1);
        free(packed);
    }
}

/* -- lists -- */

/* Draws n bytes, and writes them as a list. */
static void make_list(struct maker *m, uint8_t *dst, size_t n)
{
    const unsigned mode = make_choice(m) % 8;
    make_byte(m, mode < 6 ? 2 + mode % 2 : mode - 6);
    if (mode == 6) {
        for (size_t i = 0; i < n; i++) dst[i] = (uint8_t)make_random(m);
        make_put(m, dst, n);
    } else if (mode == 7) {
        const unsigned value = make_choice(m);
        memset(dst, (int)value, n);
        make_byte(m, value);
    } else {
        struct make_tree t;
        uint8_t *const leaf = (uint8_t *)malloc(n + 1);
        unsigned skew, favourite;
        if (!leaf) abort();
        make_tree(m, &t, mode % 2);
        skew = make_choice(m); /* how often it is the favourite, in 256ths */
        favourite = make_random(m) % t.n;
        for (size_t i = 0; i < n; i++) {
            unsigned k = favourite, code = make_random(m) & 32767;
            if ((make_random(m) & 255) >= skew)
                for (k = t.n; t.leaf[k - 1].start > code; k--) {}
            else k++;
            leaf[i] = (uint8_t)(k - 1);
            dst[i] = (uint8_t)(t.leaf[k - 1].symbol == MAKE_ESCAPE ? make_random(m)
                                                                   : t.leaf[k - 1].symbol);
        }
        make_node(m, &t, 0, 0, dst, leaf, n, 0);
        free(leaf);
    }
}

/* -- blocks -- */

struct made_block {
    unsigned width, order, is_predicted, grouping, layout; /* layout: 1, 3, 4 or 5 */
    size_t n;
    uint8_t *prediction; /* MAKE_MOST_SIZE bytes; drawn if is_predicted, made if layout is 4 */
    uint8_t *elements;   /* MAKE_MOST_SIZE bytes */
};

/* 5.1 */
static uint64_t make_element(uint64_t r, uint64_t b, unsigned bits, unsigned order)
{
    const uint64_t all = bits == 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1,
                   s = (uint64_t)1 << (bits - 1);
    const uint64_t difference = ((r >> 1) ^ (0 - (r & 1))) & all;
    uint64_t total;
    if (order == 0) return r;
    if (order == 1) return (b + difference) & all;
    total = ((b & (s - 1)) + difference) & all;
    return (b & s) ^ (total < s ? total : total ^ (s - 1));
}

static uint64_t make_get(const uint8_t *p, unsigned width)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < width; i++) v |= (uint64_t)p[i] << 8 * i;
    return v;
}

/* Predictions whose keys are spread over a few values or many. */
static void make_prediction(struct maker *m, struct made_block *b)
{
    const unsigned spread = make_choice(m), middle = make_choice(m);
    for (size_t i = 0; i < b->n * b->width; i++) b->prediction[i] = (uint8_t)make_random(m);
    for (size_t i = 0; spread < 200 && i < b->n; i++) {
        const unsigned key = (middle + make_random(m) % (1 + spread)) & 255,
                       sign = make_random(m) & 1;
        /* the key is the top byte of the element rotated left by one bit */
        if (b->width == 1) b->prediction[i] = (uint8_t)(key >> 1 | key << 7);
        else {
            uint8_t *const top = b->prediction + (i + 1) * b->width - 1;
            top[0] = (uint8_t)(sign << 7 | key >> 1);
            top[-1] = (uint8_t)((top[-1] & 127) | key << 7);
        }
    }
}

static unsigned make_key(uint64_t b, unsigned width)
{
    return (unsigned)((width == 1 ? b << 1 | b >> 7 : b >> (8 * width - 9)) & 255);
}

/* 5.2. planes: b->width rows of n bytes, of residuals. */
static void make_classes(struct maker *m, const struct made_block *b, uint8_t *planes)
{
    const unsigned n_classes = (b->grouping & 15) + 1, is_sparse = b->grouping >> 4 & 1,
                   natural = b->grouping >> 5;
    unsigned threshold[MAKE_MOST_CLASSES + 1], n_set = 0;
    size_t *const at =
        (size_t *)malloc((b->n + 1) * sizeof *at); /* of the coded elements of a class */
    uint8_t *const bits = (uint8_t *)calloc(b->n + 1, MAKE_MOST_CLASSES), *const list =
                                                                              (uint8_t *)malloc(
                                                                                  b->n + 1);
    uint8_t *const class_of = (uint8_t *)malloc(b->n + 1);
    size_t n_of[MAKE_MOST_CLASSES] = {0};
    if (!at || !bits || !list || !class_of) abort();
    while (n_set + 1 < n_classes) { /* ascending, from 1 */
        const unsigned low = n_set ? threshold[n_set - 1] + 1 : 1,
                       high = 256 - (n_classes - 1 - n_set);
        const unsigned kind = make_choice(m);
        threshold[n_set++] = low + (kind < 128 ? kind % 8 : kind) % (high - low + 1);
        make_byte(m, threshold[n_set - 1]);
    }
    for (size_t i = 0; i < b->n; i++) {
        const unsigned key = make_key(make_get(b->prediction + i * b->width, b->width), b->width);
        unsigned c = 0;
        while (c < n_set && threshold[c] <= key) c++;
        class_of[i] = (uint8_t)c;
        n_of[c]++;
    }
    if (is_sparse)
        for (unsigned c = 0; c < n_classes; c++) {
            uint8_t *const mask = bits + (size_t)c * b->n;
            const unsigned chance = make_choice(m); /* of a one, in 256ths */
            const int is_rare = (int)(make_choice(m) & 1);
            if (n_of[c] == 0) continue;
            for (size_t i = 0; i < n_of[c]; i++)
                mask[i] = (make_random(m) & 255) < chance && !(is_rare && make_random(m) & 63);
            make_mask(m, mask, n_of[c], 0, 1);
        }
    for (unsigned p = 0; p < natural; p++) {
        for (size_t i = 0; i < b->n; i++) planes[p * b->n + i] = (uint8_t)make_random(m);
        make_put(m, planes + p * b->n, b->n);
    }
    for (unsigned c = 0; c < n_classes; c++) {
        size_t n = 0, j = 0;
        for (size_t i = 0; i < b->n; i++)
            if (class_of[i] == c && (!is_sparse || bits[(size_t)c * b->n + j++])) at[n++] = i;
        for (unsigned p = natural; p < b->width && n; p++) {
            make_list(m, list, n);
            for (size_t i = 0; i < n; i++) planes[p * b->n + at[i]] = list[i];
        }
    }
    free(at);
    free(bits);
    free(list);
    free(class_of);
}

/* zeros.md. n is a multiple of 8, as make_list draws any bytes. */
static void make_apart(struct maker *m, const struct made_block *b, uint8_t *planes)
{
    uint8_t *const mask = (uint8_t *)malloc(b->n / 8 + 1), *const list = (uint8_t *)malloc(b->n);
    if (!mask || !list) abort();
    make_list(m, mask, b->n / 8);
    for (unsigned p = 0; p < b->width; p++)
        for (unsigned kind = 0; kind < 2; kind++) {
            size_t n = 0, j = 0;
            for (size_t i = 0; i < b->n; i++) n += (mask[i / 8] >> i % 8 & 1) == kind;
            if (n) make_list(m, list, n);
            for (size_t i = 0; i < b->n; i++)
                if ((mask[i / 8] >> i % 8 & 1) == kind) planes[p * b->n + i] = list[j++];
        }
    free(mask);
    free(list);
}

/* matrix.md: all before the residuals, and the prediction. As make_list draws any bytes, Shift and
 * the lists of the narrow widths leave room for every sum: W - s bits. */
static void make_matrix(struct maker *m, struct made_block *b)
{
    static const uint8_t zero[2] = {1, 0}; /* a constant */
    const unsigned bits = 8 * b->width, needed = bits > 16 ? 17 : bits > 8 ? 9 : 8;
    const size_t row_size = 1 + (make_choice(m) << 8 | make_choice(m)) % b->n,
                 first = (make_choice(m) << 8 | make_choice(m)) % row_size,
                 n_rows = (first + b->n - 1) / row_size + 1;
    const unsigned shift = make_choice(m) % (bits - needed + 1);
    uint8_t *const numbers = (uint8_t *)calloc(3, MAKE_MOST_N), *const low = numbers,
                   *const high = low + MAKE_MOST_N, *const column = high + MAKE_MOST_N;
    if (!numbers) abort();
    for (unsigned k = 0; k < 4; k++) make_byte(m, (unsigned)(row_size >> 8 * k) & 255);
    for (unsigned k = 0; k < 4; k++) make_byte(m, (unsigned)(first >> 8 * k) & 255);
    make_byte(m, shift);
    make_list(m, low, n_rows);
    if (needed == 17) make_list(m, high, n_rows);
    else make_put(m, zero, 2);
    if (needed > 8) make_list(m, column, row_size);
    else make_put(m, zero, 2);
    for (size_t i = 0; i < b->n; i++) {
        const size_t row = (first + i) / row_size;
        const uint64_t sum =
            (uint64_t)(low[row] | (unsigned)high[row] << 8) + column[(first + i) % row_size];
        for (unsigned k = 0; k < b->width; k++)
            b->prediction[i * b->width + k] = (uint8_t)(sum << shift >> 8 * k);
    }
    free(numbers);
}

/* A float with `bits` bits of significand, and exponents from `least` on. */
static unsigned make_narrow(float v, int bits, int least, unsigned infinity)
{
    const unsigned sign = signbit(v) ? 0x8000 : 0;
    int exponent;
    unsigned magnitude;
    if (v == 0) return sign;
    (void)frexp((double)v, &exponent);
    if (--exponent < least) exponent = least;
    magnitude = ((unsigned)(exponent - least) << (bits - 1)) +
                (unsigned)nearbyint(ldexp(fabs((double)v), bits - 1 - exponent));
    return sign | (magnitude < infinity ? magnitude : infinity);
}

/* codes.md. As make_list draws any bytes, the highest one of all scales is a constant. */
static void make_codes(struct maker *m, struct made_block *b)
{
    const unsigned mantissa = 2 + make_choice(m) % 6, half = b->width == 2 ? make_choice(m) & 1 : 0,
                   top = 1 + make_choice(m) % 0x6D;
    const size_t group_size = 16 + (make_choice(m) << 8 | make_choice(m)) % 2048,
                 first = 1 + (make_choice(m) << 8 | make_choice(m)) % group_size,
                 n_groups = b->n <= first ? 1 : 1 + (b->n - first + group_size - 1) / group_size;
    const uint8_t constant[2] = {1, (uint8_t)top};
    uint8_t *const lists = (uint8_t *)calloc(4, MAKE_MOST_N);
    if (!lists) abort();
    make_byte(m, mantissa);
    make_byte(m, half);
    for (unsigned k = 0; k < 4; k++) make_byte(m, (unsigned)(group_size >> 8 * k) & 255);
    for (unsigned k = 0; k < 4; k++) make_byte(m, (unsigned)(first >> 8 * k) & 255);
    for (unsigned k = 0; k < 3; k++) make_list(m, lists + k * MAKE_MOST_N, n_groups);
    make_put(m, constant, 2);
    make_list(m, lists + 3 * MAKE_MOST_N, b->n);
    for (size_t i = 0; i < b->n; i++) {
        const size_t group = i < first ? 0 : 1 + (i - first) / group_size;
        const unsigned code = lists[3 * MAKE_MOST_N + i], exponent = (code & 127) >> mantissa,
                       rest = code & ((1u << mantissa) - 1);
        const uint32_t bits = (uint32_t)lists[group] | (uint32_t)lists[MAKE_MOST_N + group] << 8 |
                              (uint32_t)lists[2 * MAKE_MOST_N + group] << 16 | (uint32_t)top << 24;
        double number = rest, value;
        float scale, element;
        if (exponent) number = (double)((uint64_t)(rest + (1u << mantissa)) << (exponent - 1));
        if (mantissa == 7) number = code < 128 ? code : (double)code - 256;
        else if (code >= 128) number = -number;
        memcpy(&scale, &bits, 4);
        value = number * (double)scale; /* exact */
        element = (float)value;
        if (b->width == 4) memcpy(b->elements + 4 * i, &element, 4);
        else {
            const unsigned narrow = half ? make_narrow(element, 11, -14, 0x7C00)
                                         : make_narrow(element, 8, -126, 0x7F80);
            b->elements[2 * i] = (uint8_t)narrow;
            b->elements[2 * i + 1] = (uint8_t)(narrow >> 8);
        }
    }
    free(lists);
}

/* Draws a block: its payload to m, its elements and prediction to b. */
static void make_block(struct maker *m, struct made_block *b)
{
    const unsigned shape = make_choice(m), size = make_choice(m), grouping = make_choice(m);
    uint8_t *const planes = (uint8_t *)calloc(MAKE_MOST_SIZE, 1);
    if (!planes) abort();
    m->state = 0x9E3779B97F4A7C15u ^ (uint64_t)make_choice(m) << 32 ^ (uint64_t)make_choice(m) << 8;
    b->width = 1u << (shape & 3);
    b->is_predicted = shape < 160 && shape >> 2 & 1;
    b->layout = b->is_predicted || shape < 64 ? 1 : shape < 224 && (shape & 3) % 3 ? 5 : 4;
    b->order = b->layout == 5                      ? 0
               : b->is_predicted || b->layout == 4 ? 1 + (shape >> 3 & 1)
                                                   : (shape >> 3) % 3;
    b->n = size < 64    ? 1 + size
           : size < 192 ? 1 + ((size << 8 | make_choice(m)) & 2047)
                        : 1 + ((size << 8 | make_choice(m)) & (MAKE_MOST_N - 1));
    b->grouping = 0;
    if (b->is_predicted && grouping >= 32) {
        const unsigned is_sparse = grouping >> 4 & 1, n_classes = (grouping & 15) + 1;
        const unsigned natural = is_sparse || n_classes == 1 ? 0 : make_choice(m) % b->width;
        b->grouping = (n_classes - 1) | is_sparse << 4 | natural << 5;
    }
    if (!b->is_predicted && b->layout == 1 && grouping >= 64) b->layout = 3;
    if (b->layout == 3) b->n = (b->n + 7) / 8 * 8;
    if (b->layout == 5) make_codes(m, b);
    if (b->layout == 5) {
        free(planes);
        return;
    }
    memset(b->prediction, 0, b->n * b->width);
    if (b->is_predicted) make_prediction(m, b);
    if (b->layout == 4) make_matrix(m, b);
    if (b->layout == 3) make_apart(m, b, planes);
    else if (b->grouping) make_classes(m, b, planes);
    else
        for (unsigned p = 0; p < b->width; p++) make_list(m, planes + p * b->n, b->n);
    for (size_t i = 0; i < b->n; i++) {
        uint64_t r = 0, e;
        for (unsigned p = 0; p < b->width; p++) r |= (uint64_t)planes[p * b->n + i] << 8 * p;
        e = make_element(r, make_get(b->prediction + i * b->width, b->width), 8 * b->width,
                         b->order);
        for (unsigned p = 0; p < b->width; p++)
            b->elements[i * b->width + p] = (uint8_t)(e >> 8 * p);
    }
    free(planes);
}

#endif
