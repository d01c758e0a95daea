#pragma once
#include "base/platform.h"

/* Exact one-dimensional k-means: n bins with counts into at most k cells of neighbours, so that the
 * sum of squared distances to the cells' means is least. For a price on each cell the best cells
 * are found by dynamic programming; as the cost is a Monge array, a candidate for a cell's begin
 * that once is better than an earlier one stays so, and a queue of them takes O(n log n) (Galil,
 * Park: A linear-time algorithm for concave one-dimensional dynamic programming, 1990). The least
 * error falls convexly with the number of cells, so a price leads to k of them (where two cells or
 * more appear at the same price, to fewer). All in integers. */
#define LMC__MAX_BINS 4096u
#define LMC__MAX_COUNT                                                                             \
    ((uint32_t)1 << 19) /* sum of counts; times MAX_BINS, squared, is less than 2^64 */

typedef struct lmc__clusters {
    size_t n;
    uint32_t count[LMC__MAX_BINS + 1]; /* of the bins before */
    uint64_t sum[LMC__MAX_BINS + 1], square[LMC__MAX_BINS + 1];
    uint64_t best[LMC__MAX_BINS + 1];  /* cost of the bins before, with prices */
    uint16_t begin[LMC__MAX_BINS + 1]; /* of the last cell */
    uint16_t cells[LMC__MAX_BINS + 1]; /* their number */
    uint16_t candidate[LMC__MAX_BINS + 1],
        from[LMC__MAX_BINS + 1]; /* the queue: which begin is best from which end on */
} lmc__clusters;

static void lmc__set_clusters(lmc__clusters *c, const uint32_t *counts, size_t n)
{
    uint64_t total = 0;
    unsigned shift = 0;
    size_t i;
    for (i = 0; i < n; i++) total += counts[i];
    while (total >> shift > LMC__MAX_COUNT - LMC__MAX_BINS) shift++;
    c->n = n;
    c->count[0] = 0;
    c->sum[0] = c->square[0] = 0;
    for (i = 0; i < n; i++) {
        const uint32_t count = counts[i] >> shift ? counts[i] >> shift : counts[i] != 0;
        c->count[i + 1] = c->count[i] + count;
        c->sum[i + 1] = c->sum[i] + (uint64_t)count * i;
        c->square[i + 1] = c->square[i] + (uint64_t)count * i * i;
    }
}

/* Sum of squared distances of bins [a, b) to their mean; rounded up. */
LMC__INLINE uint64_t lmc__cell_cost(const lmc__clusters *c, size_t a, size_t b)
{
    const uint64_t count = c->count[b] - c->count[a],
                   sum = c->sum[b] - c->sum[a] - count * a; /* from a */
    if (count == 0) return 0;
    return c->square[b] - c->square[a] - 2 * a * (c->sum[b] - c->sum[a]) + count * a * a -
           sum * sum / count;
}

/* The best cells at a price; returns their number. */
static unsigned lmc__cut_cells(lmc__clusters *c, uint64_t price)
{
    const size_t n = c->n;
    size_t head = 0, tail = 1, i;
    c->best[0] = 0;
    c->cells[0] = 0;
    c->candidate[0] = 0;
    c->from[0] = 1;
    for (i = 1; i <= n; i++) {
        size_t j;
        while (head + 1 < tail && c->from[head + 1] <= i) head++;
        j = c->candidate[head];
        c->best[i] = c->best[j] + lmc__cell_cost(c, j, i) + price;
        c->begin[i] = (uint16_t)j;
        c->cells[i] = (uint16_t)(c->cells[j] + 1);
        if (i == n) break;
#define LMC__VALUE(j, end) (c->best[j] + lmc__cell_cost(c, j, end))
        while (tail - 1 > head && LMC__VALUE(i, c->from[tail - 1]) <=
                                      LMC__VALUE(c->candidate[tail - 1], c->from[tail - 1]))
            tail--;
        j = c->candidate[tail - 1];
        if (LMC__VALUE(i, n) <= LMC__VALUE(j, n)) {
            size_t low = (tail - 1 > head ? c->from[tail - 1] : i) + 1,
                   high = n; /* not before what the last candidate is best from */
            while (low < high) {
                const size_t middle = low + (high - low) / 2;
                if (LMC__VALUE(i, middle) <= LMC__VALUE(j, middle)) high = middle;
                else low = middle + 1;
            }
            c->candidate[tail] = (uint16_t)i;
            c->from[tail++] = (uint16_t)low;
        }
#undef LMC__VALUE
    }
    return c->cells[n];
}

/* At most k cells; returns how many. ends: of each. */
static unsigned lmc__find_cells(lmc__clusters *c, unsigned k, uint16_t *ends)
{
    const uint64_t all = lmc__cell_cost(c, 0, c->n);
    uint64_t low = 0,
             high = all / ((uint64_t)k * k * k) + 1; /* prices: too low (or 0), high enough */
    unsigned n = lmc__cut_cells(c, high), i;
    size_t end;
    while (n > k) {
        low = high;
        high = 4 * high;
        n = lmc__cut_cells(c, high);
    }
    /* low has more than k cells, or is 0; until they are exactly k, or the price is known to a
     * 4096th */
    while (n != k && high - low > high / 4096 + 1) {
        const uint64_t middle = low + (high - low) / 2;
        const unsigned found = lmc__cut_cells(c, middle);
        if (found > k) low = middle;
        else {
            high = middle;
            n = found;
        }
    }
    n = lmc__cut_cells(c, high);
    for (i = n, end = c->n; i > 0; i--) {
        ends[i - 1] = (uint16_t)end;
        end = c->begin[end];
    }
    return n;
}
