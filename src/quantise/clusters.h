#pragma once
#include "base/platform.h"

/* Exact k-means in one dimension: n bins with counts are cut into at most k cells of neighbours, so
 * that the sum of squared distances to the cells' means is least. (In one dimension the cells of a
 * best clustering are intervals.) All in integers, so every machine finds the same cells.
 *
 * Cost. With sums of counts, of count * i and of count * i^2 over all bins before, the cost of a
 * cell takes three subtractions and a division: sum of squares less sum^2 / count. It is rounded
 * up to a whole number, so what is found is the least within one for each cell.
 *
 * Cells at a price. Say that each cell costs a price more. Then the best cut of the first i bins is
 *
 *   best[i] = min over begin < i of  best[begin] + cost(begin, i) + price
 *
 * and k is gone. The cost is a Monge array, cost(a, c) + cost(b, d) <= cost(a, d) + cost(b, c) for
 * a <= b <= c <= d, so a later begin that is once better than an earlier one stays better for all
 * later ends. A queue then holds, for the ends still to come, which begin is best from where on; a
 * new begin takes over at the end of the queue, from a place that is found by halving. That is
 * O(n log n) in time, O(n) in memory (Galil, Park: A linear-time algorithm for concave
 * one-dimensional dynamic programming, 1990).
 *
 * The price. The least cost for k cells falls convexly as k grows, again by Monge, so each price
 * has a number of cells that is best, fewer the higher the price: the price is found by halving,
 * and the cells are the best of their number. Several numbers are best at once only at single
 * prices, where the queue takes one of them: then there are fewer than k cells, which are the best
 * of theirs. Some dozen prices are tried. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

#define LMC__MAX_BINS 4096u
/* Sum of counts: sums of count * i^2 stay below 2^43, and the square of count * i, which is 2^31 at
 * most, below 2^64. */
#define LMC__MAX_COUNT ((uint32_t)1 << 19)

/* Arrays of sums and of results have an entry for each number of bins from the first, 0 to n. */
typedef struct lmc__clusters {
    size_t n;
    uint32_t count[LMC__MAX_BINS + 1];
    uint64_t sum[LMC__MAX_BINS + 1], square[LMC__MAX_BINS + 1];
    uint64_t best[LMC__MAX_BINS + 1];      /* the least cost, prices included */
    uint16_t begin[LMC__MAX_BINS + 1];     /* of the last cell */
    uint16_t cells[LMC__MAX_BINS + 1];     /* their number */
    uint16_t candidate[LMC__MAX_BINS + 1]; /* the queue: begins, in ascending order, */
    uint16_t from[LMC__MAX_BINS + 1];      /* and the first end for which each is best */
} lmc__clusters;

/* Counts are halved until their sum is in range; bins that have any keep at least one. */
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

/* Sum of squared distances of bins [a, b) to their mean; rounded up. Distances are taken from bin
 * a: smaller numbers, whose square fits. */
LMC__INLINE uint64_t lmc__cell_cost(const lmc__clusters *c, size_t a, size_t b)
{
    const uint64_t count = c->count[b] - c->count[a], sum = c->sum[b] - c->sum[a] - count * a;
    if (count == 0) return 0;
    return c->square[b] - c->square[a] - 2 * a * (c->sum[b] - c->sum[a]) + count * a * a -
           sum * sum / count;
}

/* The least cost of the first `end` bins whose last cell is [begin, end), without its price. */
LMC__INLINE uint64_t lmc__cut_cost(const lmc__clusters *c, size_t begin, size_t end)
{
    return c->best[begin] + lmc__cell_cost(c, begin, end);
}

/* The best cells at a price; returns their number. The queue is [head, tail).
 *
 *     ends still to come    i   i+1  ...                                  n
 *     best begin          | candidate[head] | candidate[head + 1] | ... |     all below i
 *                                             ^ from[head + 1]
 *
 * Candidates ascend, and so do the ends from which they are best: that is what Monge says of
 * begins. Each begin enters and leaves the queue once, and is looked for by halving once:
 * n log n. */
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
        c->best[i] = lmc__cut_cost(c, j, i) + price;
        c->begin[i] = (uint16_t)j;
        c->cells[i] = (uint16_t)(c->cells[j] + 1);
        if (i == n) break;
        /* i becomes a candidate. Those at the end of the queue go, if i is as good where they
         * begin to be best: they never are. */
        while (tail - 1 > head && lmc__cut_cost(c, i, c->from[tail - 1]) <=
                                      lmc__cut_cost(c, c->candidate[tail - 1], c->from[tail - 1]))
            tail--;
        j = c->candidate[tail - 1];
        if (lmc__cut_cost(c, i, n) <= lmc__cut_cost(c, j, n)) {
            /* i takes over from j, after the first end for which j is best. */
            size_t low = (tail - 1 > head ? c->from[tail - 1] : i) + 1, high = n;
            while (low < high) {
                const size_t middle = low + (high - low) / 2;
                if (lmc__cut_cost(c, i, middle) <= lmc__cut_cost(c, j, middle)) high = middle;
                else low = middle + 1;
            }
            c->candidate[tail] = (uint16_t)i;
            c->from[tail++] = (uint16_t)low;
        }
    }
    return c->cells[n];
}

/* At most k cells; returns how many. ends: of each. The first price is about half of what would be
 * right for bins of equal counts: there the cost of j cells is all / j^2, and from j to j + 1 cells
 * it falls by 2 * all / j^3. */
static unsigned lmc__find_cells(lmc__clusters *c, unsigned k, uint16_t *ends)
{
    const uint64_t all = lmc__cell_cost(c, 0, c->n);
    uint64_t low = 0, high = all / ((uint64_t)k * k * k) + 1;
    unsigned n = lmc__cut_cells(c, high), i;
    size_t end;
    while (n > k) {
        low = high;
        high = 4 * high;
        n = lmc__cut_cells(c, high);
    }
    /* The price low has more than k cells, or is 0; high has at most k. Until they are exactly k,
     * or the price is known to a 4096th. */
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

#endif
