#pragma once
/* What contracts and assertions of wp_nodes.c speak of. A decoder is *sound* if all that it points
 * to is there, and nothing overlaps. */
/*@ predicate whole(uint8_t *p, uint8_t *end) =
      \base_addr(p) == \base_addr(end) && p <= end && end - p <= 0x7fffffff &&
      \valid_read(p + (0 .. end - p - 1));
    predicate room(uint8_t *p, uint8_t *end) =
      \base_addr(p) == \base_addr(end) && p <= end && end - p <= 0x7fffffff &&
      \valid(p + (0 .. end - p - 1)); */
/*@ predicate kernels(lmc__kernels *k) =
      \valid_read(k) && k->merge == &lmc__merge_scalar && k->unflatten == &lmc__unflatten_scalar &&
      k->count_ones == &lmc__count_ones_scalar;
    predicate sound(lmc__decoder *d) =
      \valid(d) && kernels(d->k) && \valid(d->scratch) && whole(d->in, d->end) &&
      room(d->stack.top, d->stack.end) &&
      \separated(d, d->k, d->scratch, d->in + (0 .. d->end - d->in - 1),
                 d->stack.top + (0 .. d->stack.end - d->stack.top - 1)); */
/* A list of n bytes that the decoder may write. */
/*@ predicate is_list(lmc__decoder *d, uint8_t *list, integer n) =
      \valid(list + (0 .. n + 63)) &&
      \separated(list + (0 .. n + 63), d, d->k, d->scratch, d->in + (0 .. d->end - d->in - 1),
                 d->stack.top + (0 .. d->stack.end - d->stack.top - 1)); */
/* Bytes [p, p + size) were before `to`, in what began at `from`. */
/*@ predicate lies(uint8_t *p, integer size, uint8_t *from, uint8_t *to) =
      \base_addr(p) == \base_addr(from) && \base_addr(p) == \base_addr(to) &&
      from <= p && p + size <= to;
    predicate lies_in(uint8_t *p, integer size, uint8_t *in, uint8_t *now, uint8_t *top,
                      uint8_t *used) =
      lies(p, size, in, now) || lies(p, size, top, used); */
/* ones(p, size): the one bits of these bytes. The axioms say what any function of the bytes obeys,
 * that a byte has eight bits, and that bits which are zero are not ones. */
/*@ predicate is_clear{L}(uint8_t *bits, integer size, integer n) =
      (n & 7) == 0 || (bits[size - 1] >> (n & 7)) == 0; */
/*@ axiomatic Ones {
      logic integer ones{L}(uint8_t *p, integer size) reads p[0 .. size - 1];
      axiom same{K, L}: \forall uint8_t *p, integer size;
        (\forall integer i; 0 <= i < size ==> \at(p[i], K) == \at(p[i], L)) ==>
        ones{K}(p, size) == ones{L}(p, size);
      axiom at_most{L}: \forall uint8_t *p, integer size, n;
        1 <= n && size == (n + 7) / 8 && is_clear(p, size, n) ==> 0 <= ones(p, size) <= n;
    } */
/* The leaves of a tree fill the code space: what else this asks for, wp_nodes.c need not know. */
/*@ axiomatic Trees {
      predicate fills{L}(lmc__tree *t) reads t->first[0 .. 16], t->start[0 .. 16];
      axiom still{K, L}: \forall lmc__tree *t;
        (\forall integer i; 0 <= i <= 16 ==> \at(t->first[i], K) == \at(t->first[i], L) &&
                                             \at(t->start[i], K) == \at(t->start[i], L)) ==>
        fills{K}(t) ==> fills{L}(t);
    } */
/*@ predicate is_tree(lmc__tree *t) = 2 <= t->n_leaves <= 256 && fills(t);
    predicate is_node(lmc__tree *t, lmc__node node) =
      node.depth <= 15 && node.first_leaf < node.end_leaf <= t->n_leaves &&
      (node.depth == 15 ==> node.first_leaf + 1 == node.end_leaf); */
