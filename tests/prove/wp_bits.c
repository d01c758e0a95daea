/* prove: wp lmc__load_bits, lmc__take, lmc__push_list, lmc__is_tail_clear
 * shows: lmc__load_bits, lmc__take, lmc__push_list, lmc__is_tail_clear
 * for:   every size and position */
#include "harness.h"
#include "codec/get_list.h"
#include "contracts.h"
/*@ requires at / 8 <= size <= 0x7fffffffffff;
    requires size > 0 ==> \valid_read(p + (0 .. size - 1));
    assigns \nothing; */
static uint64_t lmc__load_bits(const uint8_t *p, size_t size, size_t at);

/*@ predicate sound(lmc__decoder *d) =
      \base_addr(d->in) == \base_addr(d->end) && d->in <= d->end &&
      \valid_read(d->in + (0 .. d->end - d->in - 1)); */
/*@ requires \valid(d) && sound(d);
    requires \separated(d, d->in + (0 .. d->end - d->in - 1));
    assigns d->in;
    ensures sound(d) && d->end == \old(d->end);
    ensures \result != \null ==> \result == \old(d->in) && d->in == \old(d->in) + size &&
                                 \valid_read(\result + (0 .. size - 1));
    ensures \result == \null ==> d->in == \old(d->in); */
static const uint8_t *lmc__take(lmc__decoder *d, size_t size);

/*@ requires \valid(stack) && n <= 0x7fffffff;
    requires \base_addr(stack->top) == \base_addr(stack->end) && stack->top <= stack->end;
    requires \valid(stack->top + (0 .. stack->end - stack->top - 1));
    requires \separated(stack, stack->top + (0 .. stack->end - stack->top - 1));
    assigns stack->top;
    ensures stack->end == \old(stack->end) && stack->top <= stack->end;
    ensures \result != \null ==> \result == \old(stack->top) &&
            stack->top == \result + (n + 64) && \valid(\result + (0 .. n + 63));
    ensures \result == \null ==> stack->top == \old(stack->top); */
static uint8_t *lmc__push_list(lmc__stack *stack, size_t n);

/*@ requires 1 <= n && size == (n + 7) / 8 && \valid_read(bits + (0 .. size - 1));
    assigns \nothing; */
static int lmc__is_tail_clear(const uint8_t *bits, size_t size, size_t n);
