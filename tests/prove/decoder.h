/* The contracts of the decoder of lists, for proofs that hold for each n (WP). wp_bits.c and
 * wp_nodes.c prove them of the functions' bodies, but for those that are marked as given. */
#include "kernels/merge.h"
#include "kernels/count.h"
#include "kernels/flatten.h"
#include "codec/get_list.h"
#include "sound.h"
#include "contracts.h"

/* Given: the kernels. wp_merge.c proves merge, with fewer bytes behind the lists; planes.c and
 * sums.c show for some sizes that unflatten and count_ones are defined; tests show that count_ones
 * counts ones. */
/*@ requires \valid_read(mask + (0 .. size - 1)) && size <= 524288;
    terminates \true;
    assigns \nothing;
    ensures \result == ones(mask, size); */
static size_t lmc__count_ones_scalar(const uint8_t *mask, size_t size);
/*@ requires 1 <= n <= 4194304 && 2 <= depth <= 6;
    requires \valid_read(bits + (0 .. depth * ((n + 7) / 8) - 1));
    requires \valid_read(symbols + (0 .. (1 << depth) - 1));
    requires \valid(dst + (0 .. 8 * ((n + 7) / 8) - 1));
    terminates \true;
    assigns dst[0 .. 8 * ((n + 7) / 8) - 1]; */
static void lmc__unflatten_scalar(uint8_t *dst, const uint8_t *bits, size_t n,
                                  const uint8_t *symbols, unsigned depth);
/*@ requires 1 <= n <= 4194304;
    requires \valid_read(mask + (0 .. (n + 7) / 8 - 1));
    requires \valid(dst + (0 .. 8 * ((n + 7) / 8) - 1));
    requires left.list != \null ==>
      \valid_read(left.list + (0 .. 8 * ((n + 7) / 8) - ones(mask, (n + 7) / 8) + 7));
    requires right.list != \null ==> \valid_read(right.list + (0 .. ones(mask, (n + 7) / 8) + 7));
    requires \separated(dst + (0 .. 8 * ((n + 7) / 8) - 1), mask + (0 .. (n + 7) / 8 - 1));
    terminates \true;
    assigns dst[0 .. 8 * ((n + 7) / 8) - 1]; */
static void lmc__merge_scalar(uint8_t *dst, const uint8_t *mask, size_t n, lmc__side left,
                              lmc__side right);

/* Trees. Given: that a node with two leaves or more has two children with leaves, and is less than
 * 15 deep, since the codes fill the code space. frozen.c shows the trees of all levels. */
/*@ requires \valid_read(tree) && is_tree(tree) && is_node(tree, node);
    requires node.end_leaf - node.first_leaf >= 2;
    terminates \true;
    assigns \nothing;
    ensures is_node(tree, \result.left) && is_node(tree, \result.right);
    ensures \result.left.nesting == \result.right.nesting == node.nesting;
    ensures \result.left.depth == \result.right.depth == node.depth + 1; */
static lmc__children lmc__get_children(const lmc__tree *tree, lmc__node node);
/*@ requires \valid_read(tree) && is_tree(tree);
    terminates \true;
    assigns \nothing;
    ensures \result.nesting == nesting && is_node(tree, \result);
    ensures \result.depth == 0 && \result.end_leaf >= 2 && \result.first_leaf == 0; */
static lmc__node lmc__root_of(const lmc__tree *tree, unsigned nesting);
/*@ requires \valid_read(tree) && is_tree(tree) && is_node(tree, node);
    terminates \true;
    assigns \nothing;
    ensures \result == 0 ||
      2 <= \result <= 6 && node.first_leaf + (1 << \result) <= tree->n_leaves; */
static unsigned lmc__get_flat_depth(const lmc__tree *tree, lmc__node node);
/*@ requires \valid_read(tree) && node.first_leaf < node.end_leaf;
    terminates \true;
    assigns \nothing;
    ensures \result != 0 ==> node.end_leaf - node.first_leaf == 1;
    ensures \result == 0 ==> node.end_leaf - node.first_leaf == 1 ==>
            node.first_leaf == tree->escape; */
static int lmc__is_one_symbol(const lmc__tree *tree, lmc__node node);
/*@ requires \valid(tree) && level < 10;
    terminates \true;
    assigns *tree;
    ensures is_tree(tree); */
static void lmc__tree_set_frozen(lmc__tree *tree, unsigned level, unsigned flip);
/*@ terminates \true; assigns \nothing;
    ensures \result != 0 ==> nesting < 2; */
static int lmc__has_mode(unsigned nesting, size_t n);

/* The payload and the stack. */
/*@ requires sound(d);
    terminates \true;
    assigns d->in;
    ensures sound(d) && \base_addr(d->in) == \base_addr(\old(d->in));
    ensures \result != \null ==> \result == \old(d->in) && d->in == \old(d->in) + size &&
                                 \valid_read(\result + (0 .. size - 1));
    ensures \result == \null ==> d->in == \old(d->in); */
static const uint8_t *lmc__take(lmc__decoder *d, size_t size);
/*@ requires \valid(stack) && n <= 0x7fffffff && room(stack->top, stack->end);
    requires \separated(stack, stack->top + (0 .. stack->end - stack->top - 1));
    terminates \true;
    assigns stack->top;
    ensures room(stack->top, stack->end);
    ensures \result != \null ==> \result == \old(stack->top) &&
            stack->top == \result + (n + 64) && \valid(\result + (0 .. n + 63));
    ensures \result == \null ==> stack->top == \old(stack->top); */
static uint8_t *lmc__push_list(lmc__stack *stack, size_t n);
/*@ requires 1 <= n && size == (n + 7) / 8 && \valid_read(bits + (0 .. size - 1));
    terminates \true;
    assigns \nothing;
    ensures \result != 0 ==> 0 <= ones(bits, size) <= n; */
static int lmc__is_tail_clear(const uint8_t *bits, size_t size, size_t n);

/* Given: gaps. wp_gaps.c proves what reads them. */
/*@ requires \valid(in) && whole(*in, end) && 21 <= mode < 65 && 1 <= n <= 4194304;
    requires \valid(list + (0 .. (n + 7) / 8 - 1));
    requires \separated(in, *in + (0 .. end - *in - 1), list + (0 .. (n + 7) / 8 - 1));
    terminates \true;
    assigns *in, list[0 .. (n + 7) / 8 - 1];
    ensures \result == LMC_OK ==> whole(*in, end) && \old(*in) <= *in; */
static enum lmc_status lmc__get_gaps(const uint8_t **in, const uint8_t *end, unsigned mode,
                                     size_t n, uint8_t *list);

/* Nodes, masks. Given: lmc__get_sides, of which WP has proved a part. The measure of termination:
 * a child is deeper than its node, and a nested mask's tree has one more nesting. */
/*@ logic integer left(integer nesting, integer depth) = 100 * (2 - nesting) + 3 * (15 - depth); */
/*@ requires sound(d) && nesting <= 2 && 1 <= n <= 4194304;
    requires \valid(mask) && \separated(mask, d, d->k, d->scratch,
      d->in + (0 .. d->end - d->in - 1), d->stack.top + (0 .. d->stack.end - d->stack.top - 1));
    terminates \true;
    decreases 100 * (2 - nesting);
    assigns d->in, d->stack.top, d->scratch->trees[nesting + 1 .. 2], *mask,
            d->stack.top[0 .. d->stack.end - d->stack.top - 1];
    ensures \result == LMC_OK ==> sound(d);
    ensures \result == LMC_OK ==> \old(d->in) <= d->in && \old(d->stack.top) <= d->stack.top;
    ensures \result == LMC_OK ==> \valid_read(*mask + (0 .. (n + 7) / 8 - 1));
    ensures \result == LMC_OK ==> 0 <= ones(*mask, (n + 7) / 8) <= n;
    ensures \result == LMC_OK ==>
            lies_in(*mask, (n + 7) / 8, \old(d->in), d->in, \old(d->stack.top), d->stack.top); */
static enum lmc_status lmc__get_mask(lmc__decoder *d, unsigned nesting, int is_of_class, size_t n,
                                     const uint8_t **mask);
/*@ requires sound(d) && node.nesting <= 2 && 1 <= n <= 4194304;
    requires is_tree(d->scratch->trees + node.nesting);
    requires is_node(d->scratch->trees + node.nesting, node);
    requires node.end_leaf - node.first_leaf >= 2;
    requires is_list(d, list, n) && is_list(d, spare, n);
    requires \separated(list + (0 .. n + 63), spare + (0 .. n + 63));
    requires \valid(sides) && \separated(sides, d, d->k, d->scratch, list + (0 .. n + 63),
      spare + (0 .. n + 63), d->in + (0 .. d->end - d->in - 1),
      d->stack.top + (0 .. d->stack.end - d->stack.top - 1));
    terminates \true;
    decreases left(node.nesting, node.depth) + 1;
    assigns d->in, d->stack.top, d->scratch->trees[node.nesting + 1 .. 2], *sides,
            list[0 .. n + 63], spare[0 .. n + 63],
            d->stack.top[0 .. d->stack.end - d->stack.top - 1];
    ensures \result == LMC_OK ==> sound(d);
    ensures \result == LMC_OK ==> \old(d->in) <= d->in && \old(d->stack.top) <= d->stack.top;
    ensures \result == LMC_OK ==> \valid_read(sides->mask + (0 .. (n + 7) / 8 - 1));
    ensures \result == LMC_OK ==> 0 <= ones(sides->mask, (n + 7) / 8) <= n;
    ensures \result == LMC_OK ==>
            lies_in(sides->mask, (n + 7) / 8, \old(d->in), d->in, \old(d->stack.top),
                    d->stack.top);
    ensures \result == LMC_OK ==> sides->left.list == \null || sides->left.list == spare;
    ensures \result == LMC_OK ==> sides->right.list == \null ||
            sides->right.list == spare + (n - ones(sides->mask, (n + 7) / 8)); */
static enum lmc_status lmc__get_sides(lmc__decoder *d, lmc__node node, uint8_t *list,
                                      uint8_t *spare, size_t n, lmc__merged *sides);
/*@ requires sound(d) && node.nesting <= 2 && n <= 4194304;
    requires is_tree(d->scratch->trees + node.nesting);
    requires is_node(d->scratch->trees + node.nesting, node);
    requires is_list(d, list, n) && is_list(d, spare, n);
    requires \separated(list + (0 .. n + 63), spare + (0 .. n + 63));
    terminates \true;
    decreases left(node.nesting, node.depth) + 2;
    assigns d->in, d->stack.top, d->scratch->trees[node.nesting + 1 .. 2],
            list[0 .. n + 63], spare[0 .. n + 63],
            d->stack.top[0 .. d->stack.end - d->stack.top - 1];
    ensures \result == LMC_OK ==> sound(d);
    ensures \result == LMC_OK ==> \old(d->in) <= d->in && d->stack.top == \old(d->stack.top); */
static enum lmc_status lmc__get_node(lmc__decoder *d, lmc__node node, uint8_t *list, uint8_t *spare,
                                     size_t n);
