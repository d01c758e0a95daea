/* prove: wp lmc__left, lmc__take_bytes, lmc__take8, lmc__get8, lmc__get_varint, lmc__get_limited,
 *           lmc__get_string, lmc__skip_records, lmc__unzigzag
 * shows: lmc__left, lmc__take_bytes, lmc__take8, lmc__get8, lmc__get_varint, lmc__get_limited,
 *        lmc__get_string, lmc__skip_records, lmc__unzigzag
 * for:   any body of a section, of any size, read from any place on; termination included */
#define SNAPSHOT
#include "harness.h"
/*@ predicate whole(uint8_t *p, uint8_t *end) =
      \base_addr(p) == \base_addr(end) && p <= end && end - p <= PTRDIFF_MAX &&
      \valid_read(p + (0 .. end - p - 1)); */
#include "base/wire_file.h"
#include "snapshot/sections.h"
#include "contracts.h"
/*@ predicate sound(lmc__cursor *c) =
      \valid(c) && whole(c->p, c->end) && \separated(c, c->p + (0 .. c->end - c->p - 1)); */
/*@ requires sound(c);
    assigns \nothing;
    ensures \result == c->end - c->p; */
static size_t lmc__left(const lmc__cursor *c);

/*@ requires sound(c) && size <= c->end - c->p;
    assigns c->p;
    ensures sound(c) && \result == \old(c->p) && c->p == \old(c->p) + size;
    ensures \valid_read(\result + (0 .. size - 1)); */
static const uint8_t *lmc__take_bytes(lmc__cursor *c, size_t size);

/*@ requires sound(c) && 1 <= c->end - c->p;
    assigns c->p;
    ensures sound(c) && c->p == \old(c->p) + 1; */
static uint8_t lmc__take8(lmc__cursor *c);

/*@ requires sound(c) && \valid(v) && \separated(c, v, c->p + (0 .. c->end - c->p - 1));
    assigns c->p, *v;
    ensures sound(c) && \old(c->p) <= c->p; */
static enum lmc_status lmc__get8(lmc__cursor *c, unsigned *v);

/*@ requires sound(c) && \valid(v) && \separated(c, v, c->p + (0 .. c->end - c->p - 1));
    assigns c->p, *v;
    ensures sound(c) && \old(c->p) <= c->p;
    ensures \result == LMC_OK ==> \old(c->p) < c->p; */
static enum lmc_status lmc__get_varint(lmc__cursor *c, uint64_t *v);

/*@ requires sound(c) && \valid(v) && \separated(c, v, c->p + (0 .. c->end - c->p - 1));
    assigns c->p, *v;
    ensures sound(c) && \old(c->p) <= c->p;
    ensures \result == LMC_OK ==> *v <= max; */
static enum lmc_status lmc__get_limited(lmc__cursor *c, uint64_t *v, uint64_t max);

/*@ requires sound(c) && \valid(p) && \valid(size);
    requires \separated(c, p, size, c->p + (0 .. c->end - c->p - 1));
    assigns c->p, *p, *size;
    ensures sound(c) && \old(c->p) <= c->p;
    ensures \result == LMC_OK ==> *size <= max && \valid_read(*p + (0 .. *size - 1)); */
static enum lmc_status lmc__get_string(lmc__cursor *c, const uint8_t **p, uint32_t *size,
                                       uint32_t max);

/*@ requires sound(c) && \valid(n) && \separated(c, n, c->p + (0 .. c->end - c->p - 1));
    assigns c->p, *n;
    ensures sound(c) && \old(c->p) <= c->p; */
static enum lmc_status lmc__skip_records(lmc__cursor *c, uint64_t *n);

/*@ assigns \nothing; */
static int64_t lmc__unzigzag(uint64_t v);
