/* SPDX-License-Identifier: MIT */
#include "common.h"

#include <stdint.h>

#include "../sys/names.h"
#include "../sys/progress.h"
#include "../sys/report.h"

const char *file_of_output(const struct common *o)
{
    return o->output && !is_dash(o->output) ? o->output : NULL;
}

void say_sizes(const struct common *o, const char *name, uint64_t from, uint64_t to, uint64_t plain,
               double start)
{
    double seconds = now() - start;
    uint64_t packed = from == plain ? to : from;
    if (o->verbosity < 2) return;
    say(name, "%llu -> %llu bytes (%.2f %%), %.0f MB/s", (unsigned long long)from,
        (unsigned long long)to, plain ? 100.0 * (double)packed / (double)plain : 100.0,
        (double)plain / 1e6 / (seconds + 1e-9));
}
