/* private_trees.h - every tree up to a size, compared with the pseudo code of the spec (6.1 - 6.4):
 * which headers are trees, and what a list that is coded with a tree decodes to. Included by
 * t_lmc.c, which sees the private names of lmc.h. */
#include "t.h"

#define MAX_LIST 320u

/* -- the spec's pseudo code -- */

/* Memory for the lists of nodes while their parents wait. */
static uint8_t model_room[1 << 21];
static size_t model_used;

static uint8_t *model_list(size_t n)
{
    uint8_t *const list = model_room + model_used;
    if (n > sizeof model_room - model_used) abort();
    model_used += n;
    return list;
}

typedef struct model_tree {
    unsigned n, escape; /* escape: the index of its leaf; n if there is none */
    uint8_t length[256], symbol[256];
} model_tree;

typedef struct model_input {
    const uint8_t *in, *end;
} model_input;

static model_tree model_frozen(unsigned level)
{
    model_tree tree;
    unsigned ones, value, length = 1, left = lmc__frozen_counts[level][0], k, bits;
    tree.n = 0;
    tree.escape = 256;
    for (ones = 0; ones <= 8; ones++)
        for (value = 0; value < 256; value++) {
            for (bits = 0, k = value; k; k >>= 1) bits += k & 1;
            if (bits != ones) continue;
            while (left == 0) left = lmc__frozen_counts[level][length++];
            left--;
            tree.length[tree.n] = (uint8_t)length;
            tree.symbol[tree.n++] = (uint8_t)value;
        }
    return tree;
}

/* Bits(n), each in a byte; 0 if the input ends or is wrong. */
static int model_bits(model_input *input, size_t n, uint8_t *bits)
{
    const size_t size = (n + 7) / 8;
    size_t i;
    if ((size_t)(input->end - input->in) < size) return 0;
    for (i = 0; i < 8 * size; i++) {
        const uint8_t bit = input->in[i / 8] >> i % 8 & 1;
        if (i < n) bits[i] = bit;
        else if (bit) return 0;
    }
    input->in += size;
    return 1;
}

static int model_node(model_input *input, const model_tree *tree, unsigned depth, unsigned x,
                      size_t n, unsigned nesting, uint8_t *list);

/* One bit after another. */
static int model_gaps(model_input *input, size_t n, unsigned s, unsigned polarity, uint8_t *bits)
{
    size_t k, j, low_size, at = 0, position = 0, size;
    const uint8_t *low, *quotients;
    unsigned bit;
    if (input->end - input->in < 3) return 0;
    k = input->in[0] + 256u * input->in[1] + 65536u * input->in[2];
    if (k == 0 || k > n) return 0;
    low = input->in + 3;
    low_size = (k * s + 7) / 8;
    if ((size_t)(input->end - low) < low_size) return 0;
    for (j = k * s; j < 8 * low_size; j++)
        if (low[j / 8] >> j % 8 & 1) return 0;
    quotients = low + low_size;
    size = (size_t)(input->end - quotients);
    memset(bits, (int)polarity, n);
    for (j = 0; j < k; j++, position++, at++) {
        for (;; at++) {
            if (at / 8 >= size) return 0;
            if (quotients[at / 8] >> at % 8 & 1) break;
            position += (size_t)1 << s;
            if (position >= n) return 0;
        }
        for (bit = 0; bit < s; bit++) {
            const size_t i = j * s + bit;
            position += (size_t)(low[i / 8] >> i % 8 & 1) << bit;
        }
        if (position >= n) return 0;
        bits[position] = (uint8_t)!polarity;
    }
    for (; at % 8; at++)
        if (quotients[at / 8] >> at % 8 & 1) return 0;
    input->in = quotients + at / 8;
    return 1;
}

static int model_mask(model_input *input, size_t n, unsigned nesting, int is_of_class,
                      uint8_t *bits)
{
    model_tree frozen;
    model_input coded;
    const size_t used = model_used;
    uint8_t *bytes;
    unsigned mode;
    size_t i;
    int done;
    if (n < 256 || nesting == 2) return model_bits(input, n, bits);
    if (input->in == input->end || (mode = *input->in++) > (is_of_class ? 64 : 20)) return 0;
    if (mode == 0) return model_bits(input, n, bits);
    if (mode > 20) return model_gaps(input, n, (mode - 21) >> 1, (mode - 21) & 1, bits);
    frozen = model_frozen((mode - 1) >> 1);
    bytes = model_list((n + 7) / 8);
    if (!model_node(input, &frozen, 0, 0, (n + 7) / 8, nesting + 1, bytes)) return 0;
    for (i = 0; i < (n + 7) / 8; i++) bytes[i] = (uint8_t)(bytes[i] ^ (mode % 2 ? 0 : 0xFF));
    coded.in = bytes;
    coded.end = bytes + (n + 7) / 8;
    done = model_bits(&coded, n, bits);
    model_used = used;
    return done;
}

static int model_node(model_input *input, const model_tree *tree, unsigned depth, unsigned x,
                      size_t n, unsigned nesting, uint8_t *list)
{
    const size_t used = model_used;
    uint8_t *const bits = model_list(n), *left, *right;
    size_t i, ones = 0, at[2] = {0, 0};
    unsigned a = 0, b, start = 0, leaf, d;
    if (n == 0) return 1;
    while (start < x) start += 1u << (15 - tree->length[a++]);
    for (b = a; b < tree->n && start < x + (1u << (15 - depth)); b++)
        start += 1u << (15 - tree->length[b]);
    if (b - a == 1) {
        model_used = used;
        if (a != tree->escape) {
            memset(list, tree->symbol[a], n);
            return 1;
        }
        if ((size_t)(input->end - input->in) < n) return 0;
        memcpy(list, input->in, n);
        input->in += n;
        return 1;
    }
    d = tree->length[a] - depth;
    for (leaf = a; leaf < b; leaf++)
        if (leaf == tree->escape || tree->length[leaf] != tree->length[a]) d = 0;
    if (d >= 2 && d <= 6) {
        memset(list, 0, n);
        while (d-- != 0) {
            if (!model_bits(input, n, bits)) return 0;
            for (i = 0; i < n; i++) list[i] = (uint8_t)(list[i] | bits[i] << d);
        }
        for (i = 0; i < n; i++) list[i] = tree->symbol[a + list[i]];
        model_used = used;
        return 1;
    }
    if (!model_mask(input, n, nesting, 0, bits)) return 0;
    for (i = 0; i < n; i++) ones += bits[i];
    left = model_list(n - ones);
    right = model_list(ones);
    if (!model_node(input, tree, depth + 1, x, n - ones, nesting, left) ||
        !model_node(input, tree, depth + 1, x + (1u << (14 - depth)), ones, nesting, right))
        return 0;
    for (i = 0; i < n; i++) list[i] = bits[i] ? right[at[1]++] : left[at[0]++];
    model_used = used;
    return 1;
}

/* The leaves of these lengths, in the spec's order, if they are a tree. */
static int model_leaves(model_tree *tree, const lmc__plan *plan)
{
    unsigned length, s, sum = 0, n = 0;
    for (length = 1; length <= 15; length++)
        for (s = plan->first; s <= plan->last; s++)
            if (plan->lengths[s] == length) {
                sum += 1u << (15 - length);
                if (n == 256) return 0;
                tree->length[n] = (uint8_t)length;
                tree->symbol[n++] = (uint8_t)s;
                if (plan->escape_length && length > plan->escape_length) return 0;
            }
    tree->escape = 256;
    if (plan->escape_length) {
        if (n == 256) return 0;
        sum += 1u << (15 - plan->escape_length);
        tree->length[n] = (uint8_t)plan->escape_length;
        tree->escape = n++;
    }
    tree->n = n;
    return n >= 2 && sum == 1u << 15 && plan->lengths[plan->first] && plan->lengths[plan->last];
}

/* -- the library against it -- */

typedef struct tree_test {
    const lmc__kernels *k;
    uint8_t *ws;
    size_t ws_size;
    long n_trees, n_others, n_wrong;
} tree_test;

static enum lmc_status get_list(const tree_test *t, const uint8_t *in, size_t size, size_t n,
                                uint8_t *list)
{
    lmc__decoder d;
    lmc__side side;
    uint8_t *spare;
    memset(&d, 0, sizeof d);
    d.k = t->k;
    d.scratch = lmc__open_workspace(&d.stack, t->ws, t->ws_size);
    d.in = in;
    d.end = in + size;
    spare = lmc__push_list(&d.stack, n);
    LMC__TRY(lmc__get_list(&d, &side, spare, n));
    memcpy(list, side.list, n);
    return d.in == d.end ? LMC_OK : LMC_ERR_ARGUMENT; /* all bytes are read */
}

/* A header: refused if it is no tree; else n elements are written and read. Returns whether all is
 * right. */
static int try_tree(tree_test *t, const lmc__plan *plan, size_t n, uint64_t *seed)
{
    uint8_t list[MAX_LIST], got[MAX_LIST], out[6 * MAX_LIST], *row, *spare;
    const unsigned count = plan->last - plan->first + 1,
                   n_fields = count + (plan->escape_length ? 1 : 0);
    const size_t header = 3 + (n_fields + 1) / 2;
    model_tree tree;
    model_input input;
    lmc__encoder e;
    size_t i, size;
    memset(&e, 0, sizeof e);
    e.k = t->k;
    e.worth = 64 * LMC__CYCLE;
    e.scratch = lmc__open_workspace(&e.stack, t->ws, t->ws_size);
    e.out = out;
    e.end = out + sizeof out;
    if (!model_leaves(&tree, plan)) {
        memset(out, 0, sizeof out);
        t->n_others++;
        return lmc__put_tree_header(&e, plan) &&
               get_list(t, out, sizeof out, n, got) == LMC_ERR_CORRUPT;
    }
    t->n_trees++;
    for (i = 0; i < n; i++) {
        const unsigned leaf = (unsigned)t_below(seed, t_below(seed, 3) ? tree.n : 1 + tree.n / 4);
        list[i] = leaf == tree.escape ? (uint8_t)t_random(seed) : tree.symbol[leaf];
    }
    row = lmc__push_list(&e.stack, n);
    spare = lmc__push_list(&e.stack, n);
    memcpy(row, list, n);
    if (!lmc__put_tree(&e, plan, row, spare, n)) return 0;
    size = (size_t)(e.out - out);
    input.in = out + header;
    input.end = e.out;
    model_used = 0;
    if (!model_node(&input, &tree, 0, 0, n, 0, got) || input.in != input.end ||
        memcmp(got, list, n) != 0)
        return 0;
    if (get_list(t, out, size, n, got) != LMC_OK || memcmp(got, list, n) != 0) return 0;
    return get_list(t, out, size - 1, n, got) == LMC_ERR_CORRUPT;
}

static void check_tree(tree_test *t, const lmc__plan *plan, size_t n, uint64_t *seed)
{
    unsigned s;
    size_t used;
    if (try_tree(t, plan, n, seed) || t->n_wrong++) return;
    sprintf(t_about, "%s, n %lu, symbols from %u:", lmc_tier_name(t->k->tier), (unsigned long)n,
            plan->first);
    for (s = plan->first; s <= plan->last; s++)
        if ((used = strlen(t_about)) < sizeof t_about - 20)
            sprintf(t_about + used, " %u", plan->lengths[s]);
    sprintf(t_about + strlen(t_about), ", escape %u", plan->escape_length);
    CHECK(!"the tree's header or list");
}

/* Every row of up to max lengths, each 0 .. max. */
static void test_headers(tree_test *t, unsigned max, uint64_t *seed)
{
    unsigned count;
    for (count = 1; count <= max; count++) {
        unsigned fields[8] = {0}, i, has_escape;
        do {
            for (has_escape = 0; has_escape < 2; has_escape++) {
                const unsigned n_symbols = count - has_escape;
                lmc__plan plan;
                if (n_symbols == 0 || (has_escape && fields[count - 1] == 0)) continue;
                memset(&plan, 0, sizeof plan);
                plan.first = (unsigned)t_below(seed, 257 - n_symbols);
                plan.last = plan.first + n_symbols - 1;
                for (i = 0; i < n_symbols; i++) plan.lengths[plan.first + i] = (uint8_t)fields[i];
                if (has_escape) plan.escape_length = fields[count - 1];
                check_tree(t, &plan, 1 + t_below(seed, 70), seed);
            }
            for (i = 0; i < count && ++fields[i] > max; i++) fields[i] = 0;
        } while (i < count);
    }
}

/* Every number of leaves of each length, up to max leaves: `open` nodes at this length must still
 * become leaves or parents. The symbols are random. */
static void test_shapes(tree_test *t, uint8_t *lengths, unsigned n, unsigned open, unsigned length,
                        unsigned max, uint64_t *seed)
{
    unsigned leaves, i, has_escape;
    if (open == 0) {
        for (has_escape = 0; has_escape < 2; has_escape++) {
            lmc__plan plan;
            memset(&plan, 0, sizeof plan);
            for (i = 0; i < n - has_escape; i++) {
                unsigned s;
                do s = (unsigned)t_below(seed, 256);
                while (plan.lengths[s]);
                plan.lengths[s] = lengths[i];
            }
            while (!plan.lengths[plan.first]) plan.first++;
            plan.last = 255;
            while (!plan.lengths[plan.last]) plan.last--;
            if (has_escape) plan.escape_length = lengths[n - 1];
            /* from 256 on masks may be nested */
            check_tree(t, &plan, 200 + t_below(seed, MAX_LIST - 200), seed);
        }
        return;
    }
    if (length > 15) return;
    for (leaves = 0; leaves <= open && n + leaves <= max; leaves++) {
        if (n + leaves + (open > leaves ? 2 * (open - leaves) : 0) > max) continue;
        memset(lengths + n, (int)length, leaves);
        test_shapes(t, lengths, n + leaves, 2 * (open - leaves), length + 1, max, seed);
    }
}

/* -- gaps -- */

static enum lmc_status get_mask(const tree_test *t, const uint8_t *in, size_t size, size_t n,
                                int is_of_class, const uint8_t **mask, size_t *used)
{
    lmc__decoder d;
    enum lmc_status status;
    memset(&d, 0, sizeof d);
    d.k = t->k;
    d.scratch = lmc__open_workspace(&d.stack, t->ws, t->ws_size);
    d.in = in;
    d.end = in + size;
    status = lmc__get_mask(&d, 0, is_of_class, n, mask);
    *used = (size_t)(d.in - in);
    return status;
}

/* size bytes as the mask of a class, by the library and by the model: both give the same mask, or
 * both refuse it. Returns whether it is a mask. */
static int compare_mask(tree_test *t, t_guard *guard, const uint8_t *code, size_t size, size_t n)
{
    uint8_t *const in = t_tail(guard, size), bits[MAX_LIST];
    const uint8_t *mask = NULL;
    size_t used, i;
    model_input input;
    enum lmc_status status;
    int fits;
    memcpy(in, code, size);
    input.in = in;
    input.end = in + size;
    model_used = 0;
    fits = model_mask(&input, n, 0, 1, bits);
    status = get_mask(t, in, size, n, 1, &mask, &used);
    if (!CHECK(status == (fits ? LMC_OK : LMC_ERR_CORRUPT))) return fits;
    if (!fits) return 0;
    CHECK(used == (size_t)(input.in - in));
    for (i = 0; i < 8 * ((n + 7) / 8); i++)
        if ((mask[i / 8] >> i % 8 & 1) != (i < n ? bits[i] : 0)) break;
    CHECK(i == 8 * ((n + 7) / 8));
    return 1;
}

/* Each s and polarity, from one bit to all of them; then damaged. */
static void test_gaps(tree_test *t, uint64_t *seed)
{
    t_guard guard = t_new_guard(4 * MAX_LIST);
    long n_good = 0, n_bad = 0;
    unsigned round;
    for (round = 0; round < (t_quick ? 400u : 4000u); round++) {
        uint8_t mask[MAX_LIST / 8], code[4 * MAX_LIST], bad[4 * MAX_LIST];
        const size_t n = 256 + t_below(seed, MAX_LIST - 255),
                     density = 1 + t_below(seed, round % 5 == 0 ? 1000 : 60);
        const unsigned s = round % 22, polarity = round / 22 % 2;
        uint32_t ones[MAX_LIST];
        size_t i, k = 0, size;
        memset(mask, 0, sizeof mask);
        for (i = 0; i < n; i++)
            if (t_below(seed, 1000) < density || round % 97 == 0) {
                mask[i / 8] |= (uint8_t)(1u << i % 8);
                ones[k++] = (uint32_t)i;
            }
        if (k == 0) continue;
        if (polarity)
            for (i = 0; i < n; i++) mask[i / 8] ^= (uint8_t)(1u << i % 8);
        size = 1 + lmc__count_gaps(ones, k, s);
        if (size > sizeof code) continue;
        code[0] = (uint8_t)(21 + 2 * s + polarity);
        lmc__put_gaps(code + 1, size - 1, ones, k, s);
        t_note("gaps: n %lu, k %lu, s %u, polarity %u", (unsigned long)n, (unsigned long)k, s,
               polarity);
        CHECK(compare_mask(t, &guard, code, size, n));
        n_good++;
        for (i = 0; i < 30; i++) {
            memcpy(bad, code, size);
            bad[t_below(seed, i < 10 ? 4 : size)] = (uint8_t)(i % 3 ? t_random(seed) : 0);
            n_bad += !compare_mask(t, &guard, bad, size - (i % 4 == 0), n);
        }
    }
    t_note("gaps: %ld, %ld damaged", n_good, n_bad);
    CHECK(n_good > 100 && n_bad > 1000);
    { /* rule by rule, in 256 bits: mode, K, low parts, quotients */
        static const struct {
            const char *what;
            uint8_t code[12];
            size_t size;
            int fits;
        } cases[] = {{"one, s 0", {21, 1, 0, 0, 4}, 5, 1},
                     {"the last one, s 7", {35, 1, 0, 0, 0x7F, 2}, 6, 1},
                     {"position n", {37, 1, 0, 0, 0, 2}, 6, 0},
                     {"position n, by a low part", {39, 2, 0, 0, 0xFF, 1, 3}, 7, 0},
                     {"two, s 8 and 9", {37, 2, 0, 0, 7, 1, 3}, 7, 1},
                     {"K 0", {21, 0, 0, 0, 1}, 5, 0},
                     {"K n + 1", {21, 1, 1, 0, 1}, 5, 0},
                     {"K 2^16", {21, 0, 0, 1, 1}, 5, 0},
                     {"a padded low part", {23, 1, 0, 0, 2, 1}, 6, 0},
                     {"padded quotients", {21, 1, 0, 0, 12}, 5, 0},
                     {"no quotients", {21, 1, 0, 0}, 4, 0},
                     {"quotients that do not end", {21, 2, 0, 0, 4}, 5, 0},
                     {"no low parts", {63, 1, 0, 0}, 4, 0},
                     {"low parts that end", {63, 1, 0, 0, 3, 0}, 6, 0},
                     {"s 21", {63, 1, 0, 0, 3, 0, 0, 1}, 8, 1},
                     {"s 21, polarity 1", {64, 1, 0, 0, 3, 0, 0, 1}, 8, 1},
                     {"s 21, quotient 1", {63, 1, 0, 0, 3, 0, 0, 2}, 8, 0},
                     {"mode 65", {65, 1, 0, 0, 3, 0, 0, 1}, 8, 0},
                     {"K cut", {21, 1, 0}, 3, 0},
                     {"nothing", {21}, 1, 0}};
        static const uint8_t all[36] = {22, 0, 1, 0};
        uint8_t full[36];
        const uint8_t *mask;
        size_t i, used;
        for (i = 0; i < sizeof cases / sizeof *cases; i++) {
            t_note("gaps: %s", cases[i].what);
            CHECK(compare_mask(t, &guard, cases[i].code, cases[i].size, 256) == cases[i].fits);
        }
        t_note("gaps: K n");
        memset(full, 0xFF, sizeof full);
        memcpy(full, all, 4);
        CHECK(compare_mask(t, &guard, full, 36, 256));
        CHECK(!compare_mask(t, &guard, full, 35, 256));
        CHECK(get_mask(t, full, 36, 256, 1, &mask, &used) == LMC_OK && mask[0] == 0);
        t_note("gaps: in a tree");
        memcpy(full, cases[0].code, 5);
        CHECK(get_mask(t, full, 36, 256, 1, &mask, &used) == LMC_OK);
        CHECK(get_mask(t, full, 36, 256, 0, &mask, &used) == LMC_ERR_CORRUPT);
    }
}

/* -- masks within masks: of two levels the inner one has bits only -- */

/* A list with few right elements, whose masks are all nested where they can be. The model reads the
 * same; a third nesting would not be read in this way. */
static void test_nesting(tree_test *t, uint64_t *seed)
{
    const size_t n = 40000 + t_below(seed, 8), ws_size = 4 * lmc_block_workspace_size(n, 1);
    uint8_t *const list = model_list(n), *const got = model_list(n), *const out = model_list(n),
                   *const ws = (uint8_t *)malloc(ws_size);
    const size_t used = model_used;
    tree_test large = *t;
    model_tree tree;
    model_input input;
    lmc__plan plan;
    lmc__encoder e;
    uint8_t *row, *spare;
    size_t i, size;
    if (!ws) abort();
    memset(&plan, 0, sizeof plan);
    plan.first = 7;
    plan.last = 9;
    plan.lengths[7] = 1;
    plan.lengths[8] = plan.lengths[9] = 2;
    for (i = 0; i < n; i++) list[i] = (uint8_t)(t_below(seed, 200) ? 7 : 8 + t_below(seed, 2));
    memset(&e, 0, sizeof e);
    e.k = t->k;
    e.worth = UINT32_MAX;
    e.scratch = lmc__open_workspace(&e.stack, ws, ws_size);
    e.out = out;
    e.end = out + n;
    row = lmc__push_list(&e.stack, n);
    spare = lmc__push_list(&e.stack, n);
    memcpy(row, list, n);
    t_note("%s, nesting, n %lu", lmc_tier_name(t->k->tier), (unsigned long)n);
    CHECK(lmc__put_tree(&e, &plan, row, spare, n));
    size = (size_t)(e.out - out);
    /* the list's mask is nested (its bits alone would be 5000 bytes); within it the root's is */
    CHECK(out[3 + 2] > 0 && out[3 + 2] <= 20 && size < n / 8 / 2);
    CHECK(out[3 + 3] > 0 && out[3 + 3] <= 20);
    CHECK(model_leaves(&tree, &plan));
    input.in = out + 3 + 2;
    input.end = e.out;
    CHECK(model_node(&input, &tree, 0, 0, n, 0, got) && input.in == input.end &&
          memcmp(got, list, n) == 0);
    model_used = used;
    large.ws = ws;
    large.ws_size = ws_size;
    memset(got, 0, n);
    CHECK_STATUS(get_list(&large, out, size, n, got), LMC_OK);
    CHECK(memcmp(got, list, n) == 0);
    /* gaps in it, where it is a mask of a tree */
    out[3 + 2] = 21;
    CHECK_STATUS(get_list(&large, out, size, n, got), LMC_ERR_CORRUPT);
    out[3 + 2] = 1;
    out[3 + 3] = 21;
    CHECK_STATUS(get_list(&large, out, size, n, got), LMC_ERR_CORRUPT);
    model_used = 0;
    free(ws);
}

void t_test_trees(void)
{
    int tier;
    for (tier = 0; tier < LMC__N_TIERS; tier++) {
        uint64_t seed = 8;
        uint8_t lengths[256];
        tree_test t;
        memset(&t, 0, sizeof t);
        t.k = lmc__find_kernels((enum lmc_tier)tier);
        if (t.k == NULL) continue;
        t.ws_size = lmc_block_workspace_size(MAX_LIST, 1);
        t.ws = (uint8_t *)malloc(t.ws_size);
        if (t.ws == NULL) abort();
        test_headers(&t, t_quick ? 5 : 6, &seed);
        t_note("headers: %ld trees, %ld others", t.n_trees, t.n_others);
        CHECK(t.n_trees == (t_quick ? 209 : 1434)); /* counted in fractions by a Python script */
        t.n_trees = 0;
        test_shapes(&t, lengths, 0, 2, 1, t_quick ? 12 : 16, &seed);
        t_note("shapes: %ld trees, %ld others", t.n_trees, t.n_others);
        CHECK(t.n_trees == (t_quick ? 726 : 7422));
        CHECK(t.n_wrong == 0);
        test_gaps(&t, &seed);
        test_nesting(&t, &seed);
        free(t.ws);
    }
}
