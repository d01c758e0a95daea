/* apply.h - lmc apply: deltas that turn their base into what comes next, in place
 * SPDX-License-Identifier: MIT
 *
 * Nothing of a target is changed before all deltas are known to be whole, as far as that shows
 * without their base, and its fingerprint is known to be that of the base; or, if that
 * is to be trusted, before as much of it as fills a slot has agreed with the checksums of the
 * delta, as each block does before it is written. See apply_journal.h for what a crash leaves. A
 * target whose layout changes is restored beside itself and exchanged.
 */
#pragma once

#include "../sys/platform.h"

#include "../input/common.h"

/* names: of the deltas and, at the end, of the target, n in all, 2 or more. trust_base
 * (--trust-base): the target is not read first to know that it is the base. o: without bases, for
 * the base is the target. After an error the target is what it was, or half applied, and then the
 * same command goes on. */
int apply_deltas(char **names, size_t n, int trust_base, const struct common *o);
