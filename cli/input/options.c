/* SPDX-License-Identifier: MIT */
#include "options.h"

const char *file_of_output(const struct options *o)
{
    return o->output && !is_dash(o->output) ? o->output : NULL;
}

int names_directory(const struct options *o)
{
    return o->output && *o->output && o->output[strlen(o->output) - 1] == '/';
}

static int is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int goes_into_directory(const struct options *o)
{
    return names_directory(o) && is_directory(o->output);
}

int check_output_name(const struct options *o)
{
    if (!o->output || is_dash(o->output) || is_directory(o->output) == names_directory(o))
        return CODE_OK;
    return names_directory(o)
               ? fail(CODE_ERROR, o->output, "there is no such directory; make it first")
               : fail(CODE_ERROR, o->output, "is a directory; did you mean -o %.300s/ ?",
                      o->output);
}

uint64_t most_files(const struct options *o)
{
    return o->max_files ? o->max_files : DEFAULT_MAX_FILES;
}

uint64_t most_levels(const struct options *o)
{
    return o->max_depth ? o->max_depth : DEFAULT_MAX_DEPTH;
}

int wants_narrow_tables(const struct options *o)
{
    const size_t columns = isatty(STDOUT_FILENO) ? count_columns(STDOUT_FILENO) : 0;
    return o->verbosity < 2 && columns && columns < 132;
}

int wants_summary(const struct options *o)
{
    return o->verbosity >= 2 || (o->verbosity == 1 && isatty(STDERR_FILENO));
}

void say_sizes(const struct options *o, const char *name, uint64_t from, uint64_t to,
               uint64_t plain, double start)
{
    double seconds = now() - start;
    uint64_t packed = from == plain ? to : from;
    if (!wants_summary(o)) return;
    if (plain == 0)
        say(name, "%llu -> %llu bytes", (unsigned long long)from, (unsigned long long)to);
    else
        say(name, "%llu -> %llu bytes (%.2f %%), %.0f MB/s", (unsigned long long)from,
            (unsigned long long)to, 100.0 * (double)packed / (double)plain,
            (double)plain / 1e6 / (seconds + 1e-9));
}
