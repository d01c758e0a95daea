/* SPDX-License-Identifier: MIT
 *
 * How many elements pass through a node follows from the masks above it, so masks are decoded, and
 * the lists of bytes that nested masks are; the elements themselves are not.
 */
#include "dump_payload.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dump_field.h"
#include "../sys/memory.h"

#define ESCAPE 256
#define MOST_LEAVES 257

struct payload {
    const unsigned char *data;
    size_t size, at;
    uint64_t offset; /* of data[0] in the file */
    const char *wrong;
};

struct tree {
    struct {
        int symbol;
        unsigned length, start;
    } leaves[MOST_LEAVES];
    size_t n;
};

/* All functions return whether all was well; if not, p->wrong says what was not. */

static int fails(struct payload *p, const char *wrong)
{
    if (!p->wrong) p->wrong = wrong;
    return 0;
}

#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
/* Prints the next size bytes. NULL: they are not there. */
static const unsigned char *
take(struct payload *p, size_t size, enum field_kind kind, const char *format, ...)
{
    const unsigned char *bytes = p->data + p->at;
    const int is_cut = size > p->size - p->at;
    char name[160];
    va_list list;
    va_start(list, format);
    vsnprintf(name, sizeof name, format, list);
    va_end(list);
    if (is_cut) size = p->size - p->at;
    if (size) print_field(p->offset + p->at, name, bytes, size, is_cut ? FIELD_BYTES : kind);
    p->at += size;
    if (is_cut) fails(p, "the payload ends within this field");
    return is_cut ? NULL : bytes;
}

static int get_bit(const unsigned char *bits, size_t i) { return bits[i >> 3] >> (i & 7) & 1; }

static void set_bit(unsigned char *bits, size_t i, int value)
{
    bits[i >> 3] = (unsigned char)((bits[i >> 3] & ~(1u << (i & 7))) | (unsigned)value << (i & 7));
}

static size_t bytes_of_bits(size_t n) { return (n + 7) / 8; }

static int has_clean_end(const unsigned char *bits, size_t n)
{
    return n % 8 == 0 || bits[n / 8] >> n % 8 == 0;
}

static size_t count_ones(const unsigned char *bits, size_t n)
{
    size_t ones = 0;
    for (size_t i = 0; i < bytes_of_bits(n); i++)
        for (unsigned byte = bits[i]; byte; byte &= byte - 1) ones++;
    return ones;
}

/* A list of n bits, to bits. */
static int take_bits(struct payload *p, size_t n, unsigned char *bits, const char *name,
                     const char *what)
{
    const unsigned char *bytes = take(p, bytes_of_bits(n), FIELD_BYTES, "%s%s", name, what);
    if (!bytes) return 0;
    memcpy(bits, bytes, bytes_of_bits(n));
    return has_clean_end(bits, n) || fails(p, "unused bits of the list above are not zero");
}

/* -- trees -- */

static int finish_tree(struct payload *p, struct tree *tree)
{
    uint32_t start = 0;
    if (tree->n < 2 || tree->n > 256) return fails(p, "the tree has not 2 to 256 leaves");
    for (size_t i = 0; i < tree->n; i++) {
        tree->leaves[i].start = start;
        start += 1u << (15 - tree->leaves[i].length);
    }
    return start == 1u << 15 || fails(p, "the code is not complete");
}

static void add_leaf(struct tree *tree, int symbol, unsigned length)
{
    tree->leaves[tree->n].symbol = symbol;
    tree->leaves[tree->n++].length = length;
}

/* Spec 8.1. */
static int take_tree(struct payload *p, int has_escape, struct tree *tree)
{
    const unsigned char *bytes;
    unsigned fields[MOST_LEAVES], first, count, n;
    char text[3 * MOST_LEAVES + 16] = "Lengths";
    size_t size = strlen(text);
    tree->n = 0;
    bytes = take(p, 1, FIELD_NUMBER, "First");
    if (!bytes) return 0;
    first = *bytes;
    bytes = take(p, 1, FIELD_NUMBER, "Count_Minus_1");
    if (!bytes) return 0;
    count = *bytes + 1u;
    if (first + count > 256) return fails(p, "First + Count is more than 256");
    n = count + (unsigned)has_escape;
    bytes = p->data + p->at;
    if ((n + 1) / 2 > p->size - p->at) return take(p, (n + 1) / 2, FIELD_BYTES, "%s", text) != NULL;
    for (unsigned i = 0; i < n; i++) {
        fields[i] = bytes[i / 2] >> 4 * (i % 2) & 15u;
        size += (size_t)snprintf(text + size, sizeof text - size, " %u", fields[i]);
    }
    print_field(p->offset + p->at, text, bytes, (n + 1) / 2, FIELD_BYTES);
    p->at += (n + 1) / 2;
    if (n % 2 && bytes[n / 2] >> 4) return fails(p, "the unused half of Lengths is not zero");
    if (fields[0] == 0 || fields[count - 1] == 0)
        return fails(p, "the first or the last symbol has no code");
    for (unsigned length = 1; length <= 15; length++)
        for (unsigned i = 0; i < count; i++)
            if (fields[i] == length) add_leaf(tree, (int)(first + i), length);
    if (has_escape) {
        if (fields[count] < tree->leaves[tree->n - 1].length)
            return fails(p, "the escape's code is shorter than another");
        add_leaf(tree, ESCAPE, fields[count]);
    }
    return finish_tree(p, tree);
}

/* Spec 8.4. */
static int make_frozen_tree(struct payload *p, unsigned level, struct tree *tree)
{
    static const unsigned char counts[10][15] = {
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
    int order[256];
    size_t n = 0;
    for (size_t ones = 0; ones <= 8; ones++)
        for (int symbol = 0; symbol < 256; symbol++) {
            const unsigned char byte = (unsigned char)symbol;
            if (count_ones(&byte, 8) == ones) order[n++] = symbol;
        }
    tree->n = 0;
    for (unsigned length = 1; length <= 15; length++)
        for (unsigned i = 0; i < counts[level][length - 1]; i++)
            add_leaf(tree, order[tree->n], length);
    return finish_tree(p, tree);
}

static int take_mask(struct payload *p, size_t n, int nesting, unsigned char *bits,
                     const char *name);

/* The node of spec 8.2. out: its n elements; NULL: they are not wanted */
static int take_node(struct payload *p, const struct tree *tree, unsigned depth, unsigned start,
                     size_t n, int nesting, unsigned char *out);

static int take_flat(struct payload *p, const struct tree *tree, size_t first, unsigned n_bits,
                     size_t n, unsigned char *out, const char *name)
{
    unsigned char *bits = (unsigned char *)resize(NULL, bytes_of_bits(n), 1);
    int good = 1;
    if (out) memset(out, 0, n);
    for (unsigned j = 0; j < n_bits && good; j++) {
        char what[32];
        snprintf(what, sizeof what, "flat, bits %u", n_bits - 1 - j);
        good = take_bits(p, n, bits, name, what);
        for (size_t i = 0; i < n && good && out; i++)
            out[i] = (unsigned char)(out[i] << 1 | get_bit(bits, i));
    }
    for (size_t i = 0; i < n && good && out; i++)
        out[i] = (unsigned char)tree->leaves[first + out[i]].symbol;
    free(bits);
    return good;
}

static int take_inner(struct payload *p, const struct tree *tree, unsigned depth, unsigned start,
                      size_t n, int nesting, unsigned char *out, const char *name)
{
    unsigned char *bits = (unsigned char *)resize(NULL, bytes_of_bits(n), 1);
    unsigned char *parts = out ? (unsigned char *)resize(NULL, n, 1) : NULL;
    int good = take_mask(p, n, nesting, bits, name);
    const size_t right = good ? count_ones(bits, n) : 0, left = n - right;
    good = good && take_node(p, tree, depth + 1, start, left, nesting, parts) &&
           take_node(p, tree, depth + 1, start + (1u << (14 - depth)), right, nesting,
                     parts ? parts + left : NULL);
    if (good && out) {
        size_t next[2] = {0, left};
        for (size_t i = 0; i < n; i++) out[i] = parts[next[get_bit(bits, i)]++];
    }
    free(parts);
    free(bits);
    return good;
}

static int take_node(struct payload *p, const struct tree *tree, unsigned depth, unsigned start,
                     size_t n, int nesting, unsigned char *out)
{
    const unsigned end = start + (1u << (15 - depth));
    size_t first = 0, last;
    char name[64], digits[17] = "-";
    unsigned extra;
    if (n == 0) return 1;
    while (tree->leaves[first].start < start) first++;
    for (last = first; last + 1 < tree->n && tree->leaves[last + 1].start < end;) last++;
    for (unsigned i = 0; i < depth; i++) {
        digits[i] = (char)('0' + (start >> (14 - i) & 1));
        digits[i + 1] = 0;
    }
    snprintf(name, sizeof name, "Node(%u, %s, %llu): ", depth, digits, (unsigned long long)n);
    if (first == last && tree->leaves[last].symbol != ESCAPE) {
        if (out) memset(out, tree->leaves[last].symbol, n);
        return 1;
    }
    if (first == last) /* only in the tree of a list, whose elements are not wanted */
        return take(p, n, FIELD_BYTES, "%sthe escape's elements", name) != NULL;
    extra = tree->leaves[first].length - depth;
    if (tree->leaves[last].symbol != ESCAPE &&
        tree->leaves[first].length == tree->leaves[last].length && extra >= 2 && extra <= 6)
        return take_flat(p, tree, first, extra, n, out, name);
    return take_inner(p, tree, depth, start, n, nesting, out, name);
}

/* -- masks -- */

static int take_gaps(struct payload *p, size_t n, unsigned shift, int polarity, unsigned char *bits)
{
    const unsigned char *bytes = p->data + p->at, *low;
    uint64_t k, found = 0, place = 0, quotient = 0;
    size_t size = 0;
    if (p->size - p->at < 3) return take(p, 3, FIELD_BYTES, "K") != NULL;
    k = field_number(bytes, 3);
    (void)take(p, 3, FIELD_BYTES, "K %llu", (unsigned long long)k);
    if (k < 1 || k > n) return fails(p, "K is not 1 to n");
    low = take(p, bytes_of_bits((size_t)k * shift), FIELD_BYTES, "Low");
    if (!low) return 0;
    if (!has_clean_end(low, (size_t)k * shift))
        return fails(p, "unused bits of the list above are not zero");
    memset(bits, polarity ? 255 : 0, bytes_of_bits(n));
    if (polarity && n % 8) bits[n / 8] = (unsigned char)((1u << n % 8) - 1);
    bytes = p->data + p->at;
    for (uint64_t i = 0; found < k; i++) {
        if (i / 8 >= p->size - p->at)
            return take(p, (size_t)(i / 8) + 1, FIELD_BYTES, "Quotients") != NULL;
        size = (size_t)(i / 8) + 1;
        if (!get_bit(bytes, (size_t)i)) {
            quotient++;
            continue;
        }
        place += quotient << shift;
        for (unsigned b = 0; b < shift; b++)
            place += (uint64_t)get_bit(low, (size_t)found * shift + b) << b;
        if (place >= n) {
            (void)take(p, size, FIELD_BYTES, "Quotients");
            return fails(p, "a position of the mask is not below n");
        }
        set_bit(bits, (size_t)place++, !polarity);
        quotient = 0;
        found++;
        if (found == k && bytes[size - 1] >> (i % 8) != 1) {
            (void)take(p, size, FIELD_BYTES, "Quotients");
            return fails(p, "unused bits of the list above are not zero");
        }
    }
    return take(p, size, FIELD_BYTES, "Quotients") != NULL;
}

/* Spec 8.3. bits: n of them, room for all bytes */
static int take_mask(struct payload *p, size_t n, int nesting, unsigned char *bits,
                     const char *name)
{
    struct tree frozen;
    unsigned mode;
    if (n < 256 || nesting == 3) return take_bits(p, n, bits, name, "mask");
    if (p->at == p->size) return fails(p, "the payload ends where a mask should be");
    mode = p->data[p->at];
    if (mode == 0) {
        (void)take(p, 1, FIELD_BYTES, "%smask, Mode", name);
        return take_bits(p, n, bits, "", "bits");
    }
    if (mode > 64 || (mode > 20 && nesting > 0)) {
        (void)take(p, 1, FIELD_BYTES, "%smask, Mode", name);
        return fails(p, "the Mode of the mask is unknown");
    }
    if (mode > 20) {
        const unsigned shift = (mode - 21) >> 1, polarity = (mode - 21) & 1;
        (void)take(p, 1, FIELD_BYTES, "%smask, Mode: gaps, s %u, polarity %u", name, shift,
                   polarity);
        return take_gaps(p, n, shift, (int)polarity, bits);
    }
    (void)take(p, 1, FIELD_BYTES, "%smask, Mode: nested, level %u, polarity %u", name,
               (mode - 1) >> 1, (mode - 1) & 1);
    if (!make_frozen_tree(p, (mode - 1) >> 1, &frozen) ||
        !take_node(p, &frozen, 0, 0, bytes_of_bits(n), nesting + 1, bits))
        return 0;
    if ((mode - 1) & 1)
        for (size_t i = 0; i < bytes_of_bits(n); i++) bits[i] ^= 255;
    return has_clean_end(bits, n) || fails(p, "unused bits of the nested mask are not zero");
}

/* -- blocks -- */

/* A list of n bytes (spec 8). */
static int take_list(struct payload *p, size_t n, const char *name)
{
    static const char *const modes[4] = {"raw", "constant", "tree", "tree with escape"};
    struct tree tree;
    unsigned mode;
    if (p->at == p->size) return fails(p, "the payload ends where a list should be");
    mode = p->data[p->at];
    (void)take(p, 1, FIELD_BYTES, "%s: Mode %s", name, mode < 4 ? modes[mode] : "?");
    switch (mode) {
    case 0: return take(p, n, FIELD_BYTES, "bytes") != NULL;
    case 1: return take(p, 1, FIELD_BYTES, "value") != NULL;
    case 2:
    case 3: return take_tree(p, mode == 3, &tree) && take_node(p, &tree, 0, 0, n, 0, NULL);
    default: return fails(p, "the Mode of the list is unknown");
    }
}

static int take_planes(struct payload *p, unsigned from, unsigned to, size_t n, const char *prefix)
{
    int good = 1;
    for (unsigned plane = from; plane < to && good; plane++) {
        char name[48];
        snprintf(name, sizeof name, "%splane %u", prefix, plane);
        good = take_list(p, n, name);
    }
    return good;
}

/* Spec 7.4. */
static int take_joint(struct payload *p, unsigned width, unsigned joint, size_t n)
{
    const size_t rows = 8 / joint, m = (rows - 1) * ((n + rows - 1) / rows);
    const unsigned char *bytes = p->data + p->at;
    if (p->size < 2) return fails(p, "the payload ends where Offset should be");
    (void)take(p, 2, FIELD_BYTES, "Offset %u", (unsigned)field_number(bytes, 2));
    return take_planes(p, 0, width - 2, n, "") && take(p, m, FIELD_NUMBER, "Rest") != NULL &&
           take_planes(p, width - 1, width, n, "");
}

/* Spec 7.3. How many elements each of several classes has, the prediction tells, and that is not
 * known here. */
static int take_classes(struct payload *p, unsigned grouping, unsigned width, size_t n)
{
    const unsigned n_classes = ((grouping & 7) | (grouping >> 7 << 3)) + 1;
    const unsigned sparse = grouping >> 3 & 1, natural = grouping >> 4 & 7;
    unsigned char *bits;
    int good;
    if (n_classes > 1 && !take(p, n_classes - 1, FIELD_BYTES, "Thresholds")) return 0;
    if (!sparse)
        for (unsigned plane = 0; plane < natural; plane++)
            if (!take(p, n, FIELD_BYTES, "natural plane %u", plane)) return 0;
    if (n_classes > 1)
        return take(p, p->size - p->at, FIELD_BYTES,
                    "%splanes of %u classes; the prediction tells their sizes",
                    sparse ? "masks and " : "", n_classes) != NULL;
    bits = (unsigned char *)resize(NULL, bytes_of_bits(n), 1);
    good = take_mask(p, n, 0, bits, "class 0: ");
    if (good) n = count_ones(bits, n);
    free(bits);
    return good && (n == 0 || take_planes(p, 0, width, n, "class 0, "));
}

/* Spec 7.6. */
static int take_quantised(struct payload *p, unsigned width, unsigned prediction, size_t n)
{
    static const struct {
        const char *name;
        unsigned char size, is_signed;
    } fields[] = {{"Method", 1, 0},      {"Low_Bits", 1, 0},   {"Table_Size", 2, 0},
                  {"Min", 4, 1},         {"Step", 4, 0},       {"Bias", 4, 1},
                  {"Floor", 4, 0},       {"Group_Size", 4, 0}, {"First_Group", 4, 0},
                  {"N_Exceptions", 4, 0}};
    uint64_t values[sizeof fields / sizeof *fields];
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const unsigned char *bytes =
            take(p, fields[i].size, fields[i].is_signed ? FIELD_SIGNED : FIELD_NUMBER, "%s",
                 fields[i].name);
        if (!bytes) return 0;
        values[i] = field_number(bytes, fields[i].size);
    }
    if (values[9] > n) return fails(p, "N_Exceptions is more than the elements");
    if (!take(p, 2 * (size_t)values[2], FIELD_NUMBER, "Table") ||
        !take(p, 4 * (size_t)values[9], FIELD_NUMBER, "Positions") ||
        !take(p, width * (size_t)values[9], FIELD_NUMBER, "Values"))
        return 0;
    if (prediction == 0) {
        const uint64_t group = values[7], first = values[8];
        uint64_t n_groups = 1;
        if (group < 1 || first < 1 || first > group)
            return fails(p, "Group_Size or First_Group is out of range");
        if (n > first) n_groups += (n - first + group - 1) / group;
        if (!take_list(p, (size_t)n_groups, "scales low") ||
            !take_list(p, (size_t)n_groups, "scales high"))
            return 0;
    }
    return (values[1] == 0 || take_list(p, n, "low")) && take_list(p, n, "high");
}

static int take_all(struct payload *p, const struct payload_block *b)
{
    const unsigned width = 1u << (b->coding & 3), joint = b->coding >> 3 & 3;
    const size_t n = b->n_elements;
    switch (b->coding >> 5) {
    case 0: return take(p, p->size, FIELD_BYTES, "the bytes") != NULL;
    case 1:
        if (joint == 3 || (joint && (width < 2 || b->grouping)))
            return fails(p, "Joint does not go with the block's other fields");
        return joint         ? take_joint(p, width, joint, n)
               : b->grouping ? take_classes(p, b->grouping, width, n)
                             : take_planes(p, 0, width, n, "");
    case 2: return take_quantised(p, width, b->prediction, n);
    default: return fails(p, "the Layout is unknown");
    }
}

const char *print_payload(const struct payload_block *block, const unsigned char *payload,
                          size_t size, uint64_t offset, uint64_t *where)
{
    struct payload p;
    memset(&p, 0, sizeof p);
    p.data = payload;
    p.size = size;
    p.offset = offset;
    if (take_all(&p, block) && p.at < p.size) fails(&p, "bytes follow the end of the payload");
    *where = offset + p.at;
    if (p.at < p.size) (void)take(&p, p.size - p.at, FIELD_BYTES, "the rest of the payload");
    return p.wrong;
}
