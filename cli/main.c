/* main.c - the command lmc: compresses files and checkpoints, with zstd's habits
 * SPDX-License-Identifier: MIT
 *
 * The rooms, from the bottom up; a file includes only its own room and those below it:
 *
 *   sys/     the system: messages, memory, threads, descriptors, outputs
 *   format/  bytes and texts in memory: containers of tensors, JSON, hexadecimal digits
 *   input/   what is read: files and pipes, snapshots, bases
 *   choose/  what becomes of each tensor: rules, twins, quantizers
 *   job/     what several verbs do: write a snapshot, restore one, measure a difference
 *   verb/    a file for each verb, or several with its name in front; only series uses others
 *
 * This file goes through the arguments that args.c has read.
 */
#include "args.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "choose/policy.h"
#include "format/json.h"
#include "help.h"
#include "input/base.h"
#include "sys/attributes.h"
#include "sys/memory.h"
#include "sys/names.h"
#include "sys/pool.h"
#include "sys/progress.h"
#include "sys/report.h"
#include "sys/temporary.h"
#include "sys/tree.h"
#include "verb/apply.h"
#include "verb/cat.h"
#include "verb/compress.h"
#include "verb/diff.h"
#include "verb/list.h"
#include "verb/recode.h"
#include "verb/restore.h"
#include "verb/salvage.h"
#include "verb/series.h"
#include "verb/stats.h"
#include "verb/test.h"
#include "verb/verify.h"

/* -- files -- */

/* is_named: on the command line, not found in a directory */
static int process_file(const char *path, int is_named, const struct options *o)
{
    switch (o->verb) {
    case VERB_RESTORE: return restore_file(path, o);
    case VERB_TEST: return test_file(path, o);
    case VERB_LIST: return list_file(path, o);
    default: return compress_file(path, is_named, o);
    }
}

/* Each file below path on its own; when compressing, those that are not compressed yet, else the
 * others. */
static int process_tree(const char *path, const struct options *o)
{
    struct listing l;
    int code = list_tree(&l, path);
    for (size_t i = 0; i < l.n; i++)
        if (!l.entries[i].is_directory && !is_temporary_name(l.entries[i].path) &&
            has_suffix(l.entries[i].path) == (o->verb != VERB_COMPRESS)) {
            char *full = join_path(path, l.entries[i].path);
            code = worse(code, process_file(full, 0, o));
            free(full);
        }
    free_listing(&l);
    return code;
}

static int process_path(const char *path, const struct options *o)
{
    struct stat st;
    if (!is_dash(path) && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        if (o->recursive) return process_tree(path, o);
        if (o->verb == VERB_COMPRESS) return compress_directory(path, o);
    }
    return process_file(path, 1, o);
}

/* -o, if that is a file; NULL: standard output. */
static const char *name_output(const struct options *o)
{
    return o->output && !is_dash(o->output) ? o->output : NULL;
}

static int process_all(const struct options *o, const struct arguments *a)
{
    int code = CODE_OK;
    if (o->verb == VERB_SERIES) return run_series(a->argv, a->n_files, o);
    if (o->verb == VERB_CAT) {
        if (a->n_files < 1 || a->n_files > 2)
            return fail_usage("usage: lmc cat FILE.lmc [TENSOR[SLICE]]%s", "");
        return cat_tensor(a->argv[0], a->n_files == 2 ? a->argv[1] : NULL, o);
    }
    if (o->verb == VERB_DIFF) {
        if (a->n_files != 2) return fail_usage("usage: lmc diff FROM TO%s", "");
        return diff_snapshots(a->argv[0], a->argv[1], o);
    }
    if (o->verb == VERB_STATS) {
        if (a->n_files == 0) return fail_usage("usage: lmc stats [--svg PREFIX] SNAPSHOT...%s", "");
        return show_stats(a->argv, (size_t)a->n_files, o);
    }
    if (o->verb == VERB_FOLD) {
        if (a->n_files == 0 || o->bases->n == 0)
            return fail_usage("usage: lmc fold --base BASE [--base LINK]... DELTA... -o OUT%s", "");
        return fold_deltas(a->argv, (size_t)a->n_files, name_output(o), o);
    }
    if (o->verb == VERB_REBASE) {
        if (a->n_files != 1 || !o->onto)
            return fail_usage(
                "usage: lmc rebase [--base LINK]... --onto NEW|none FILE.lmc -o OUT%s", "");
        return rebase_snapshot(a->argv[0], name_output(o), o);
    }
    if (o->verb == VERB_VERIFY) {
        if (a->n_files == 0)
            return fail_usage("usage: lmc verify [--base BASE]... FILE.lmc...%s", "");
        return verify_files(a->argv, (size_t)a->n_files, o);
    }
    if (o->verb == VERB_SALVAGE) {
        if (a->n_files != 1)
            return fail_usage("usage: lmc salvage [-o DIRECTORY] [--base BASE] FILE.lmc%s", "");
        return salvage_file(a->argv[0], o);
    }
    if (o->verb == VERB_APPLY) {
        if (a->n_files < 2)
            return fail_usage("usage: lmc apply [--trust-base] DELTA... TARGET%s", "");
        return apply_deltas(a->argv, (size_t)a->n_files, o);
    }
    if (a->n_files == 0) return process_path("-", o);
    for (int i = 0; i < a->n_files; i++) code = worse(code, process_path(a->argv[i], o));
    return code;
}

/* -- the process -- */

/* The lowest descriptors must not become files of ours: messages would go into them. */
static void occupy_standard_descriptors(void)
{
    int fd;
    do fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);
}

static unsigned count_threads(const struct options *o)
{
    long n = o->n_threads ? o->n_threads : sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : (unsigned)n;
}

/* Results that went to standard output through stdio or directly: an error may show up only now. */
static int close_standard_output(int code)
{
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == CODE_OK)
        return fail_errno("(standard output)", errno, "cannot write");
    return code;
}

/* Each link of a chain is an open file, and what a shell allows is few. */
static void allow_many_files(void)
{
    const rlim_t wanted = 65536;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max &&
        limit.rlim_cur < wanted) {
        limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int run(struct options *o, struct arguments *a)
{
    struct pool pool; /* not of the options, which are copied */
    int code;
    read_umask();
    allow_many_files();
    watch_signals();
    progress_enable(o->progress < 0 ? o->verbosity > 0 && isatty(STDERR_FILENO) : o->progress);
    o->parallel.n_workers = pool_open(&pool, count_threads(o));
    o->parallel.run = pool_run;
    o->parallel.user = &pool;
    code = process_all(o, a);
    progress_clear();
    pool_close(&pool);
    return code;
}

int main(int argc, char **argv)
{
    struct options o;
    struct arguments a;
    struct bases bases = {NULL, 0, CODE_OK};
    struct policy policy;
    int code;
    occupy_standard_descriptors();
    init_json();
    on_out_of_memory(remove_temporary);
    memset(&a, 0, sizeof a);
    a.argc = argc;
    a.argv = argv;
    set_defaults(&o, &a);
    o.bases = &bases;
    memset(&policy, 0, sizeof policy);
    o.policy = &policy;
    if (argc > 1 && strcmp(argv[1], "help") == 0)
        return close_standard_output(print_help(argc > 2 ? argv[2] : ""));
    code = parse_arguments(&o, &a);
    if (code == CODE_OK && !a.done) code = check_options(&o, &a);
    if (code == CODE_OK && !a.done) code = run(&o, &a);
    free_bases(&bases);
    free_policy(&policy);
    free((void *)o.series.keep);
    return close_standard_output(code);
}
