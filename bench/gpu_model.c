/* SPDX-License-Identifier: MIT
 *
 * A model, in plain C, of a decoder that works as a GPU has to: what can be done at once, what must
 * wait for what, how much shared memory a block takes, and what a directory of node starts ("gdir",
 * annex D of the page) would cost and save. It is no decoder for use: it decodes direct bf16 blocks
 * (stored, or planes without classes) and checks the result against lmc.h.
 *
 *     bench/gpu_model FILE [LOG2_BLOCK...]
 *
 * FILE: safetensors of bf16; its data is taken as one array. One group of threads decodes one
 * block. The steps:
 *
 *   1 tree     The table of nodes comes from the Tree_Header: which are masks, flat, constant,
 *              escaped. It does not depend on the data.
 *
 *   2 starts   Node k starts where k - 1 ends. Its size follows from how many elements pass through
 *              it, and that from the ones of the masks above. Without a directory this is a chain:
 *              all threads count the ones of a mask, only then is the next one found. With a
 *              directory (ones and size of each mask) it is two scans: populations from the root
 *              down, then sizes in file order.
 *
 *   3 expand   Masks that are coded (frozen trees, gaps) become plain bits: a warp for each mask,
 *              all at once.
 *
 *   4 rank     Ones before each word of each mask: one scan.
 *
 *   5 walk     Each element alone: from the root, its bit says left or right, the rank says its
 *              number there. No barrier, only shared memory.
 *
 * PARALLEL marks loops whose rounds do not depend on each other; a barrier is counted behind each,
 * and log2 of the length more for a scan.
 */
#define LMC_IMPLEMENTATION
#include "lmc.h"

#include <stdio.h>
#include <stdlib.h>

#define PARALLEL

typedef struct node {
    enum { CONSTANT, ESCAPED, FLAT, MASK } kind;
    int depth, left, right; /* children of a mask: numbers of nodes */
    int first, flat_bits;   /* leaf; of FLAT: log2 of the leaves */
    size_t n, start,
        size; /* of the payload: its mask, bits or bytes, without those of its children */
    const uint8_t *bits; /* of a mask, expanded */
    uint32_t *rank;      /* ones before each 32 bits */
} node;

typedef struct tree {
    int n_leaves, has_escape;
    uint8_t symbol[257], length[257];
    int start[257];
    node nodes[1024];
    int n_nodes;
} tree;

/* What is counted, over all blocks. */
static struct counts {
    double blocks, stored, elements, bytes, masks, nested, gaps, chain, chain_with_directory, reads,
        shared, walk_max;
} total;

static uint8_t *arena;
static size_t arena_used;
static uint8_t *take(size_t size)
{
    uint8_t *p = arena + arena_used;
    arena_used += (size + 15) & ~(size_t)15;
    return p;
}

static unsigned log2_up(size_t n)
{
    unsigned k = 0;
    while (((size_t)1 << k) < n) k++;
    return k;
}

/* -- 1: the tree -- */

static int add_nodes(tree *t, int depth, int x, int a)
{
    const int me = t->n_nodes++;
    node *const v = &t->nodes[me];
    int b = a, i, same = 1, escape = 0;
    while (b < t->n_leaves && t->start[b] < x + (1 << (15 - depth))) b++;
    for (i = a; i < b; i++) {
        same &= t->length[i] == t->length[a];
        escape |= t->has_escape && i == t->n_leaves - 1;
    }
    memset(v, 0, sizeof *v);
    v->depth = depth;
    v->first = a;
    if (b - a == 1) v->kind = escape ? ESCAPED : CONSTANT;
    else if (!escape && same && t->length[a] - depth >= 2 && t->length[a] - depth <= 6) {
        v->kind = FLAT;
        v->flat_bits = t->length[a] - depth;
    } else {
        int left, right, middle = a;
        v->kind = MASK;
        while (t->start[middle] < x + (1 << (14 - depth))) middle++;
        left = add_nodes(t, depth + 1, x, a);
        right = add_nodes(t, depth + 1, x + (1 << (14 - depth)), middle);
        t->nodes[me].left = left;
        t->nodes[me].right = right;
    }
    return me;
}

/* Leaves by length, then by value; the escape last. lengths: of 256 symbols; escape: 0 if there is
 * none. */
static void make_tree(tree *t, const uint8_t *lengths, int escape)
{
    int length, s, at = 0;
    t->n_leaves = 0;
    t->has_escape = escape != 0;
    for (length = 1; length <= 15; length++)
        for (s = 0; s < 256; s++)
            if (lengths[s] == length) {
                t->symbol[t->n_leaves] = (uint8_t)s;
                t->length[t->n_leaves++] = (uint8_t)length;
            }
    if (escape) t->length[t->n_leaves++] = (uint8_t)escape;
    for (s = 0; s < t->n_leaves; s++) {
        t->start[s] = at;
        at += 1 << (15 - t->length[s]);
    }
    t->n_nodes = 0;
    (void)add_nodes(t, 0, 0, 0);
}

static tree frozen[10];

static void make_frozen(void)
{
    static const uint16_t rows[10][15] = {{0, 0, 0, 0, 0, 0, 32, 160, 64, 0, 0, 0, 0, 0, 0},
                                          {0, 0, 0, 0, 0, 16, 32, 64, 112, 32, 0, 0, 0, 0, 0},
                                          {0, 0, 1, 0, 8, 11, 17, 56, 2, 68, 56, 0, 28, 7, 2},
                                          {0, 1, 0, 4, 4, 0, 28, 2, 54, 1, 69, 2, 54, 3, 34},
                                          {0, 1, 0, 7, 1, 0, 27, 1, 0, 56, 0, 2, 68, 3, 90},
                                          {1, 0, 0, 3, 5, 0, 3, 25, 0, 1, 55, 0, 3, 68, 92},
                                          {1, 0, 0, 4, 4, 0, 0, 27, 1, 0, 0, 47, 9, 1, 162},
                                          {1, 0, 0, 6, 2, 0, 0, 0, 27, 1, 0, 0, 6, 51, 162},
                                          {1, 0, 0, 6, 2, 0, 0, 0, 28, 0, 0, 0, 0, 37, 182},
                                          {1, 0, 0, 7, 1, 0, 0, 0, 0, 22, 6, 0, 0, 5, 214}};
    int level, ones, s, length, i;
    for (level = 0; level < 10; level++) {
        tree *const t = &frozen[level];
        int left, at = 0;
        length = 0;
        left = 0;
        t->n_leaves = 0;
        t->has_escape = 0;
        for (ones = 0; ones <= 8; ones++)
            for (s = 0; s < 256; s++) {
                if (__builtin_popcount((unsigned)s) != ones) continue;
                while (left == 0) left = rows[level][length++];
                left--;
                t->symbol[t->n_leaves] = (uint8_t)s;
                t->length[t->n_leaves++] = (uint8_t)length;
            }
        for (i = 0; i < t->n_leaves; i++) {
            t->start[i] = at;
            at += 1 << (15 - t->length[i]);
        }
        t->n_nodes = 0;
        (void)add_nodes(t, 0, 0, 0);
    }
}

/* -- 2 and 3: starts, and masks as plain bits -- */

static size_t decode_list(tree *t, const uint8_t *in, size_t n, int nesting, uint8_t *out,
                          double *chain);

static size_t count_ones(const uint8_t *bits, size_t n)
{
    size_t i, ones = 0;
    PARALLEL for (i = 0; i < (n + 7) / 8; i++) ones += (size_t)__builtin_popcount(bits[i]);
    return ones;
}

/* A mask at in: its plain bits, and the bytes that it takes. chain: barriers until its size is
 * known. */
static size_t expand_mask(const uint8_t *in, size_t n, int nesting, const uint8_t **bits,
                          double *chain)
{
    const size_t m = (n + 7) / 8;
    unsigned mode;
    uint8_t *out;
    size_t i, size;
    *chain += 1 + log2_up(m); /* its ones: a sum over all threads */
    if (n < 256 || nesting == 3) {
        *bits = in;
        return m;
    }
    mode = *in++;
    if (mode == 0) {
        *bits = in;
        return 1 + m;
    }
    *bits = out = take(m);
    if (mode <= 20) {
        static tree copies[3]; /* each nesting decodes one mask at a time here; on a GPU they are
                                  per warp */
        tree *const t = &copies[nesting];
        *t = frozen[(mode - 1) >> 1];
        total.nested++;
        size = decode_list(t, in, m, nesting + 1, out, chain);
        if ((mode - 1) & 1) PARALLEL for (i = 0; i < m; i++) out[i] = (uint8_t)~out[i];
        if ((mode - 1) & 1 && n & 7) out[m - 1] &= (uint8_t)((1 << (n & 7)) - 1);
        return 1 + size;
    }
    /* Gaps. Select: which bits of Quotients are ones (a scan of their counts); gaps: difference to
     * the one before, with the low part; then a scan makes positions. All K of them at once: three
     * steps, whatever K is. */
    {
        const unsigned s = (mode - 21) >> 1;
        const size_t k = in[0] | (size_t)in[1] << 8 | (size_t)in[2] << 16;
        const uint8_t *const low = in + 3, *const quotients = low + (k * s + 7) / 8;
        size_t bit = 0, before = 0, position = 0;
        total.gaps++;
        *chain += 2.0 * log2_up(k) + 3;
        memset(out, (mode - 21) & 1 ? 255 : 0, m);
        for (i = 0; i < k; i++, bit++) {
            size_t gap = 0, j;
            while (!(quotients[bit >> 3] >> (bit & 7) & 1)) bit++;
            gap = bit - before;
            before = bit + 1;
            gap <<= s;
            for (j = 0; j < s; j++)
                gap |= (size_t)(low[(i * s + j) >> 3] >> ((i * s + j) & 7) & 1) << j;
            position += gap;
            out[position >> 3] ^= (uint8_t)(1 << (position & 7));
            position++;
        }
        if ((mode - 21) & 1 && n & 7) out[m - 1] &= (uint8_t)((1 << (n & 7)) - 1);
        return 1 + 3 + (k * s + 7) / 8 + (bit + 7) / 8;
    }
}

/* Starts of all nodes, in the order of the file, which is that of the table. */
static size_t find_starts(tree *t, const uint8_t *in, size_t n, int nesting, double *chain)
{
    size_t at = 0;
    int i;
    t->nodes[0].n = n;
    for (i = 0; i < t->n_nodes; i++) {
        node *const v = &t->nodes[i];
        v->start = at;
        v->size = 0;
        if (v->n == 0) {
            v->bits = NULL;
            if (v->kind == MASK) t->nodes[v->left].n = t->nodes[v->right].n = 0;
            continue;
        }
        if (v->kind == ESCAPED) v->size = v->n;
        if (v->kind == FLAT) v->size = (size_t)v->flat_bits * ((v->n + 7) / 8);
        if (v->kind == MASK) {
            const size_t used = expand_mask(in + at, v->n, nesting, &v->bits, chain);
            const size_t ones = count_ones(v->bits, v->n);
            v->size = used;
            t->nodes[v->left].n = v->n - ones;
            t->nodes[v->right].n = ones;
            if (nesting == 0) total.masks++;
        }
        at += v->size;
    }
    return at;
}

/* -- 4 and 5: ranks, then each element alone -- */

static size_t decode_list(tree *t, const uint8_t *in, size_t n, int nesting, uint8_t *out,
                          double *chain)
{
    const size_t size = find_starts(t, in, n, nesting, chain);
    size_t i, j;
    int k;
    for (k = 0; k < t->n_nodes; k++) {
        node *const v = &t->nodes[k];
        uint32_t ones = 0;
        if (v->kind != MASK || v->n == 0) continue;
        v->rank = (uint32_t *)(void *)take(((v->n + 31) / 32) * sizeof *v->rank);
        for (i = 0; i < (v->n + 31) / 32; i++) {
            v->rank[i] = ones;
            for (j = 4 * i; j < 4 * i + 4 && j < (v->n + 7) / 8; j++)
                ones += (uint32_t)__builtin_popcount(v->bits[j]);
        }
        if (nesting == 0)
            total.shared +=
                (double)((v->n + 7) / 8 +
                         (v->n + 31) / 32 * 2); /* ranks of 16 bits, a base for each mask */
    }
    PARALLEL for (i = 0; i < n; i++)
    {
        size_t at = i;
        const node *v = &t->nodes[0];
        unsigned reads = 0;
        while (v->kind == MASK) {
            const uint32_t word =
                lmc__load32(v->bits + 4 * (at >> 5)); /* the arena and the input have room behind */
            const uint32_t below = word & (uint32_t)(((uint64_t)1 << (at & 31)) - 1);
            const size_t ones = v->rank[at >> 5] + (size_t)__builtin_popcount(below);
            reads += 2;
            if (word >> (at & 31) & 1) {
                at = ones;
                v = &t->nodes[v->right];
            } else {
                at -= ones;
                v = &t->nodes[v->left];
            }
        }
        if (v->kind == CONSTANT) out[i] = t->symbol[v->first];
        if (v->kind == ESCAPED) out[i] = in[v->start + at];
        if (v->kind == FLAT) {
            unsigned index = 0;
            int d;
            for (d = 0; d < v->flat_bits; d++) {
                const uint8_t *const plane = in + v->start + (size_t)d * ((v->n + 7) / 8);
                index = index << 1 | (plane[at >> 3] >> (at & 7) & 1u);
            }
            reads += (unsigned)v->flat_bits;
            out[i] = t->symbol[v->first + (int)index];
            if (nesting == 0) total.shared += v->flat_bits / 8.0;
        }
        if (nesting == 0) {
            total.reads += reads;
            if (reads > total.walk_max) total.walk_max = reads;
        }
    }
    return size;
}

/* One plane of n bytes at in; returns the bytes that it takes. */
static size_t decode_plane(const uint8_t *in, size_t n, uint8_t *out, double *chain)
{
    const unsigned mode = in[0];
    if (mode == 0) {
        memcpy(out, in + 1, n);
        return 1 + n;
    }
    if (mode == 1) {
        memset(out, in[1], n);
        return 2;
    }
    {
        static tree t;
        uint8_t lengths[256] = {0};
        const int first = in[1], count = in[2] + 1, escape = mode == 3;
        int i;
        for (i = 0; i < count; i++) lengths[first + i] = in[3 + i / 2] >> (4 * (i & 1)) & 15;
        make_tree(&t, lengths, escape ? in[3 + count / 2] >> (4 * (count & 1)) & 15 : 0);
        *chain += 3; /* counts by length, their scan, the table of nodes */
        i = 3 + (count + escape + 1) / 2;
        return (size_t)i + decode_list(&t, in + i, n, 0, out, chain);
    }
}

static int decode_block(const uint8_t *block, const lmc_block_info *info, uint8_t *out)
{
    const uint8_t *in = block + LMC_BLOCK_HEADER_SIZE;
    const size_t n = info->n;
    double chain = 1, masks = total.masks;
    uint8_t *plane[2];
    size_t i;
    if (info->width != 2 || info->has_prediction || (block[1] >> 3) != (info->is_stored ? 0 : 4))
        return 0;
    arena_used = 0;
    total.blocks++;
    total.elements += (double)n;
    total.bytes += (double)info->encoded_size;
    if (info->is_stored) {
        total.stored++;
        memcpy(out, in, 2 * n);
        return 1;
    }
    plane[0] = take(n);
    plane[1] = take(n);
    in += decode_plane(in, n, plane[0], &chain);
    in += decode_plane(in, n, plane[1], &chain);
    PARALLEL for (i = 0; i < n; i++)
    {
        const unsigned r = plane[0][i] | (unsigned)plane[1][i] << 8;
        const unsigned x = (block[1] & 4) ? r >> 1 | r << 15 : r;
        lmc__store16(out + 2 * i, (uint16_t)x);
    }
    total.chain += chain;
    masks = total.masks - masks;
    /* with a directory: tree, populations from the root (15 levels at most), one scan of sizes;
     * expansion of all masks at once */
    total.chain_with_directory +=
        3 + 15 + log2_up((size_t)masks + 1) + (masks ? (chain - 4) / masks : 0);
    return 1;
}

int main(int argc, char **argv)
{
    FILE *const f = argc > 1 ? fopen(argv[1], "rb") : NULL;
    uint8_t *src, *packed, *out;
    uint64_t header;
    size_t size;
    int i;
    if (!f || fread(&header, 1, 8, f) != 8 || fseek(f, 0, SEEK_END) != 0)
        return fprintf(stderr, "usage: gpu_model FILE.safetensors [LOG2_BLOCK...]\n"), 2;
    size = ((size_t)ftell(f) - 8 - (size_t)header) & ~(size_t)1;
    src = (uint8_t *)malloc(size);
    packed = (uint8_t *)malloc(size + size / 8 + 4096);
    out = (uint8_t *)malloc((size_t)16 << 20);
    arena = (uint8_t *)malloc((size_t)256 << 20);
    if (!src || !packed || !out || !arena || fseek(f, (long)(8 + header), SEEK_SET) != 0 ||
        fread(src, 1, size, f) != size)
        return 1;
    make_frozen();
    printf("| elements per block | size | masks (nested, gaps) per block | barriers without "
           "directory | with | shared memory KB | reads per element (most) | "
           "directory, %% of the file |\n|---|---|---|---|---|---|---|---|\n");
    for (i = 2; i < argc || i == 2; i++) {
        lmc_tensor_options options;
        size_t at = 0, done = 0, packed_size, ws_size;
        uint32_t number = 0;
        void *ws;
        memset(&options, 0, sizeof options);
        memset(&total, 0, sizeof total);
        options.dtype = LMC_BF16;
        options.log2_block = argc > 2 ? (unsigned)atoi(argv[i]) : 16;
        ws_size = lmc_tensor_workspace_size(&options);
        ws = malloc(ws_size);
        if (!ws || lmc_tensor_encode(packed, size + size / 8 + 4096, &packed_size, src, size,
                                     &options, ws, ws_size) != LMC_OK)
            return 1;
        free(ws);
        memset(packed + packed_size, 0, 64);
        while (at < packed_size) {
            lmc_position position;
            lmc_block_info info;
            position.run = 0;
            position.block = number++;
            if (lmc_block_parse(packed + at, packed_size - at, position, &info) != LMC_OK) return 1;
            if (!decode_block(packed + at, &info, out))
                return fprintf(stderr, "block %u is of a kind that the model does not know\n",
                               number - 1),
                       1;
            if (memcmp(out, src + done, info.size) != 0)
                return fprintf(stderr, "block %u is decoded wrongly\n", number - 1), 1;
            at += info.encoded_size;
            done += info.size;
        }
        printf("| %u | %.2f %% | %.1f (%.1f, %.1f) | %.0f | %.0f | %.1f | %.2f (%.0f) | %.3f |\n",
               1u << options.log2_block, 100.0 * (double)packed_size / (double)size,
               total.masks / total.blocks, total.nested / total.blocks, total.gaps / total.blocks,
               total.chain / total.blocks, total.chain_with_directory / total.blocks,
               total.shared / total.blocks / 1024, total.reads / total.elements, total.walk_max,
               100 * 6 * total.masks / total.bytes);
    }
    return 0;
}
