/* private_small.h - all small inputs of the decoder, on every tier of this machine: the portable
 * kernels say what is right, and the others must do the same: status, bytes consumed, output, CRC.
 * Under sanitizers buffers have exact sizes. Each tier has a workspace of its own, which is filled
 * differently before each case: a tier whose result depends on slack that it may read differs.
 *
 * *Complete* means: every payload of that size was decoded, or is refused like one that was. A
 * payload is counted like a number, its last byte fastest. If a decoder refuses it after it has
 * consumed j bytes, all payloads with the same first j bytes are refused alike: the next one is
 * that whose byte j - 1 is one more. Included by t_lmc.c. */
#include "t.h"

#define SMALL_PAYLOAD 24u

typedef struct small {
    const lmc__kernels *tiers[LMC__N_TIERS];
    int n_tiers;
    t_guard in; /* the payload, at its end */
    uint8_t *payload;
    size_t size, ws_size;
    uint8_t *ws[LMC__N_TIERS], *dst[LMC__N_TIERS], *prediction;
    size_t n, width;       /* of elements; for lists width is 1 */
    const uint8_t *header; /* of a block; NULL: the payload is a list */
    lmc_block_info info;   /* of a block */
    size_t flat_at;        /* where a list's flat node is; 0: it has none */
    uint64_t n_payloads, n_decoded;
} small;

static enum lmc_status small_decode(small *s, int t, size_t *used, uint32_t *crc)
{
    lmc__decoder d;
    enum lmc_status status;
    memset(&d, 0, sizeof d);
    d.k = s->tiers[t];
    d.scratch = lmc__open_workspace(&d.stack, s->ws[t], s->ws_size);
    d.in = s->payload;
    d.end = s->payload + s->size;
    d.streaming = lmc__no_streaming;
    *crc = 0;
    if (s->header) {
        status = lmc__get_payload(&d, s->dst[t], s->header, &s->info,
                                  s->info.has_prediction ? s->prediction : NULL, crc);
    } else {
        lmc__side side;
        uint8_t *const spare = lmc__push_list(&d.stack, s->n);
        status = lmc__get_list(&d, &side, spare, s->n);
        if (status == LMC_OK && side.list) memcpy(s->dst[t], side.list, s->n);
        if (status == LMC_OK && !side.list) memset(s->dst[t], side.value, s->n);
        if (status == LMC_OK && d.in < d.end) status = LMC_ERR_CORRUPT;
    }
    *used = (size_t)(d.in - s->payload);
    return status;
}

/* Decodes s->payload by all tiers. Returns how many bytes decide what happens. */
static size_t small_compare(small *s)
{
    enum lmc_status status = LMC_OK, other;
    const size_t first = s->flat_at + (s->n + 7) / 8; /* the end of a flat node's first plane */
    size_t used = 0, other_used;
    uint32_t crc = 0, other_crc;
    int t;
    for (t = 0; t < s->n_tiers; t++) {
        other = small_decode(s, t, &other_used, &other_crc);
        if (t == 0) {
            status = other;
            used = other_used;
            crc = other_crc;
        } else if (status != other || used != other_used || crc != other_crc ||
                   (status == LMC_OK && memcmp(s->dst[0], s->dst[t], s->n * s->width) != 0)) {
            CHECK_STATUS(other, status);
            CHECK(!"a tier decodes something else");
        }
    }
    CHECK(status != LMC_ERR_WORKSPACE || !"the workspace is too small");
    t_passed--;
    s->n_payloads++;
    s->n_decoded += status == LMC_OK;
    if (status == LMC_OK) return s->size;
    /* All planes of a flat node are taken at once, but the tail of the first may decide. */
    if (s->flat_at && used > first && (s->n & 7) && s->payload[first - 1] >> (s->n & 7))
        used = first;
    return used;
}

/* All payloads that begin with the first `fixed` bytes at s->in's end. */
static void small_enumerate(small *s, size_t fixed)
{
    size_t i, used;
    int t;
    for (t = 0; t < s->n_tiers; t++) memset(s->ws[t], 0xA5 * t & 255, s->ws_size);
    memset(s->payload + fixed, 0, s->size - fixed);
    do {
        used = small_compare(s);
        for (i = used; i > fixed && ++s->payload[i - 1] == 0; i--) {}
        if (used < s->size) memset(s->payload + used, 0, s->size - used);
    } while (i > fixed);
    CHECK(1); /* complete */
}

static void small_open(small *s)
{
    const size_t most = 9 * 8;
    int t;
    memset(s, 0, sizeof *s);
    s->in = t_new_guard(SMALL_PAYLOAD);
    s->ws_size = lmc_block_workspace_size(9, 8);
    s->prediction = (uint8_t *)malloc(most);
    if (!s->prediction) abort();
    for (t = 0; t < LMC__N_TIERS; t++) {
        const lmc__kernels *const k = lmc__find_kernels((enum lmc_tier)t);
        if (!k) continue;
        s->tiers[s->n_tiers] = k;
        s->dst[s->n_tiers] = (uint8_t *)malloc(most);
        s->ws[s->n_tiers] = (uint8_t *)malloc(s->ws_size);
        if (!s->dst[s->n_tiers] || !s->ws[s->n_tiers]) abort();
        s->n_tiers++;
    }
}

static void small_close(small *s)
{
    int t;
    for (t = 0; t < s->n_tiers; t++) {
        free(s->dst[t]);
        free(s->ws[t]);
    }
    free(s->prediction);
}

static void small_set_size(small *s, size_t size)
{
    s->size = size;
    s->payload = t_tail(&s->in, size);
}

/* All payloads of at most `most` bytes, of blocks of n elements, with all headers of blocks; with
 * two classes or more, of at most 2 bytes: nearly all thresholds and natural planes are valid. */
static void small_blocks(small *s, size_t n, size_t most)
{
    uint8_t header[LMC_BLOCK_HEADER_SIZE] = {LMC__BLOCK_SYNC};
    unsigned width, coding, grouping;
    size_t size;
    s->n = n;
    for (width = 1; width <= 8; width *= 2)
        for (coding = 0; coding < 256; coding++)
            for (grouping = 0; grouping < 256; grouping++)
                for (size = 0; size <= most; size++) {
                    if ((grouping & 15) && size > 2) break;
                    header[1] = (uint8_t)width;
                    header[2] = (uint8_t)coding;
                    header[3] = (uint8_t)grouping;
                    lmc__store32(header + 4, (uint32_t)n);
                    lmc__store32(header + 8, (uint32_t)size);
                    if (lmc__parse_block_info(header, &s->info) != LMC_OK || s->info.is_stored)
                        continue;
                    t_note("blocks, n %u, width %u, Coding %u, Grouping %u, %u bytes", (unsigned)n,
                           width, coding, grouping, (unsigned)size);
                    s->width = width;
                    s->header = header;
                    s->flat_at = 0;
                    small_set_size(s, size);
                    small_enumerate(s, 0);
                }
}

/* All trees with the code lengths of `lengths`, in every order, of the last one also as that of the
 * escape; with each tree all payloads of lists of n bytes. */
static void small_trees_of(small *s, size_t n, const char *lengths, int with_escape)
{
    const unsigned n_leaves = (unsigned)strlen(lengths);
    unsigned order, has_escape, size;
    s->n = n;
    s->width = 1;
    s->header = NULL;
    for (order = 0; order < 256; order++) {
        uint8_t length_of[4];
        unsigned used = 0, i;
        for (i = 0; i < n_leaves; i++) {
            const unsigned j = order >> 2 * i & 3;
            if (j >= n_leaves || (used >> j & 1)) break;
            if (j && lengths[j] == lengths[j - 1] && !(used >> (j - 1) & 1)) break; /* the same */
            used |= 1u << j;
            length_of[i] = (uint8_t)(lengths[j] - '0');
        }
        if (i < n_leaves || order >> 2 * n_leaves) continue;
        for (has_escape = 0; has_escape < 1 + (unsigned)with_escape; has_escape++) {
            uint8_t header[8] = {0};
            size_t header_size = 3 + (n_leaves + 1) / 2;
            if (has_escape && length_of[n_leaves - 1] != lengths[n_leaves - 1] - '0') continue;
            header[0] = (uint8_t)(has_escape ? LMC__PLANE_TREE_ESCAPE : LMC__PLANE_TREE);
            header[1] = 100;
            header[2] = (uint8_t)(n_leaves - 1 - has_escape);
            for (i = 0; i < n_leaves; i++)
                header[3 + i / 2] = (uint8_t)(header[3 + i / 2] | length_of[i] << 4 * (i & 1));
            if (n_leaves - has_escape < 1) continue;
            s->flat_at = !has_escape && lengths[0] == '2' ? header_size : 0;
            for (size = 0; size <= 3 * ((n + 7) / 8) + (has_escape ? 1 : 0); size++) {
                t_note("trees %s, order %u, n %u, %u bytes", lengths, order, (unsigned)n, size);
                small_set_size(s, header_size + size);
                memcpy(s->payload, header, header_size);
                small_enumerate(s, header_size);
            }
        }
    }
}

/* Prints what is complete. Symbols that have no code are bytes of the payload, each of which has
 * 256 values: lists with an escape are shorter. */
void t_test_small(void)
{
    static const char *const trees[] = {"11", "122", "2222", "1233"};
    const size_t most = t_long    ? 4
                        : t_quick ? 1
                                  : 2,
                 longest = t_long    ? 9
                           : t_quick ? 3
                                     : 6,
                 with_escape = t_long    ? 4
                               : t_quick ? 2
                                         : 3;
    small s;
    size_t n, i;
    small_open(&s);
    for (i = 0; i < 9 * 8; i++) s.prediction[i] = (uint8_t)(37 * i + 11);
    for (n = 1; n <= 9; n++) small_blocks(&s, n, most);
    printf("all payloads of at most %u bytes of blocks of 1 to 9 elements (%u with classes): %.0f, "
           "%.0f are valid\n",
           (unsigned)most, (unsigned)lmc__min(most, 2u), (double)s.n_payloads, (double)s.n_decoded);
    s.n_payloads = s.n_decoded = 0;
    for (n = 1; n <= longest; n++)
        for (i = 0; i < sizeof trees / sizeof *trees; i++)
            if (n < 9 || i < 3) small_trees_of(&s, n, trees[i], n <= with_escape);
    printf("all lists of 1 to %u bytes (1 to %u with an escape, 8 with lengths 1233) and trees of "
           "2 to "
           "4 leaves: %.0f payloads, %.0f are valid\n",
           (unsigned)longest, (unsigned)with_escape, (double)s.n_payloads, (double)s.n_decoded);
    small_close(&s);
}
