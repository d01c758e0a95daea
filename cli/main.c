/* main.c - the command lmc: compresses files and checkpoints, with zstd's habits
 * SPDX-License-Identifier: MIT
 *
 * The state of the process, outside of the stack and the heap, is in sys/: the line on the terminal
 * (report.c), the progress (progress.c), temporary names (temporary.c), the umask (attributes.c),
 * what runs when memory is out (memory.c).
 */
#define LMC_PTHREADS /* lmc_pool; as in lmc_impl.c */
#include "args.h"

#include <poll.h>
#include <sys/resource.h>

#include "format/json.h"
#include "input/base.h"
#include "input/operands.h"
#include "sys/attributes.h"
#include "sys/progress.h"
#include "sys/temporary.h"

/* -- files -- */

/* is_named: on the command line, not found in a directory */
static int process_file(const char *path, int is_named, const struct arguments *a)
{
    const struct compress_options to_compress = {a->common, a->coding, a->remove_source};
    switch (a->verb) {
    case VERB_RESTORE: return restore_file(path, a->remove_source, &a->common);
    case VERB_TEST: return test_file(path, &a->common);
    case VERB_LIST: return list_file(path, a->json, &a->common);
    default: return compress_file(path, is_named, &to_compress);
    }
}

/* Each file below path on its own. */
static int process_tree(const char *path, const struct arguments *a)
{
    struct listing l;
    int code = list_tree(&l, path, LINKS_KEEP, 0);
    for (size_t i = 0; i < l.n; i++)
        if (is_operand(&l.entries[i], a->verb != VERB_COMPRESS)) {
            char *full = join_path(path, l.entries[i].path);
            code = worse(code, process_file(full, 0, a));
            free(full);
        }
    free_listing(&l);
    return code;
}

static int process_path(const char *path, const struct arguments *a)
{
    const struct compress_options to_compress = {a->common, a->coding, a->remove_source};
    struct stat st;
    const int is_tree = !is_dash(path) && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    if (is_tree && a->recursive) return process_tree(path, a);
    if (is_tree && a->verb == VERB_COMPRESS) return compress_directory(path, &to_compress);
    return process_file(path, 1, a);
}

/* By the names, then by their places. */
static int compare_operands(const void *a, const void *b)
{
    char **const x = *(char **const *)a, **const y = *(char **const *)b;
    const int order = strcmp(*x, *y);
    return order ? order : x < y ? -1 : x > y;
}

/* What is named twice is removed once. Returns how many names are left, in their order. */
static int drop_repeated(char **names, int n)
{
    char ***sorted = (char ***)resize(NULL, (size_t)n + 1, sizeof *sorted);
    const char *last = NULL;
    int kept = 0;
    for (int i = 0; i < n; i++) sorted[i] = &names[i];
    qsort((void *)sorted, (size_t)n, sizeof *sorted, compare_operands);
    for (int i = 0; i < n; i++)
        if (last && strcmp(last, *sorted[i]) == 0) *sorted[i] = NULL;
        else last = *sorted[i];
    for (int i = 0; i < n; i++)
        if (names[i]) names[kept++] = names[i];
    free((void *)sorted);
    return kept;
}

/* With --rm a missing input stops all: it may be a verb that does not come first. */
static int check_inputs(const struct arguments *a)
{
    struct stat st;
    for (int i = 0; i < a->n_names && a->remove_source; i++) {
        if (stat(a->names[i], &st) == 0) continue;
        return fail(CODE_ERROR, a->names[i],
                    "cannot open it: %s; with --rm nothing is done unless all inputs are there%s",
                    strerror(errno),
                    is_verb(a->names[i]) ? "; a verb comes first, before all options" : "");
    }
    return CODE_OK;
}

/* Before anything is written: that no input destroys another one. */
static int check_operands(const struct arguments *a, size_t n)
{
    const struct operands all = {a->names, n, a->verb != VERB_COMPRESS, a->recursive};
    const int is_reading = a->verb == VERB_TEST || a->verb == VERB_LIST;
    int code = n > 1 ? check_output_name(&a->common) : CODE_OK; /* which they go into */
    if (code == CODE_OK && !is_reading) code = check_overwritten(&all, &a->common);
    if (code == CODE_OK && a->remove_source) code = check_removed(&all, &a->common);
    return code;
}

static int process_files(const struct arguments *a)
{
    int code = check_inputs(a), n = a->n_names;
    if (code != CODE_OK) return code;
    if (a->remove_source) n = drop_repeated(a->names, n);
    if (n == 0) return process_path("-", a);
    if (a->n_parts) return restore_parts(a->names[0], a->names + 1, (size_t)a->n_parts, &a->common);
    code = check_operands(a, (size_t)n);
    if (code != CODE_OK) return code;
    for (int i = 0; i < n; i++) code = worse(code, process_path(a->names[i], a));
    return code;
}

/* -- the other verbs -- */

static int run_series(const struct arguments *a)
{
    struct series_options o = a->series;
    o.common = a->common;
    o.coding = a->coding;
    o.remove_source = a->remove_source;
    o.json = a->json;
    o.npy = a->npy;
    o.file = a->file;
    switch (a->verb) {
    case VERB_SERIES_ADD: return series_add(a->directory, a->names[0], &o);
    case VERB_SERIES_LIST: return series_list(a->directory, &o);
    case VERB_SERIES_RESTORE: return series_restore(a->directory, a->names[0], &o);
    case VERB_SERIES_CAT:
        return series_cat(a->directory, a->names[0], a->n_names == 2 ? a->names[1] : NULL, &o);
    case VERB_SERIES_PRUNE: return series_prune(a->directory, a->names, a->n_names, &o);
    case VERB_SERIES_KEEP: return series_keep(a->directory, a->names, a->n_names, &o);
    case VERB_SERIES_GC: return series_gc(a->directory, &o);
    case VERB_SERIES_VERIFY: return series_verify(a->directory, a->names, a->n_names, &o);
    case VERB_SERIES_WATCH: return series_watch(a->directory, a->names[0], &o);
    default: return series_rebuild(a->directory, &o);
    }
}

static int run_verb(const struct arguments *a)
{
    const struct cat_options to_cat = {a->common, a->npy, a->f32, a->safetensors, a->file};
    const struct compress_options to_recode = {a->common, a->coding, 0};
    const char *output = file_of_output(&a->common);
    char **names = a->names;
    size_t n = (size_t)a->n_names;
    switch (a->verb) {
    case VERB_COMPRESS:
    case VERB_RESTORE:
    case VERB_TEST:
    case VERB_LIST: return process_files(a);
    case VERB_CAT: return cat_tensors(names[0], names + 1, n - 1, &to_cat);
    case VERB_DIFF: return diff_snapshots(names, a->coding.level, a->json, &a->common);
    case VERB_STATS: return show_stats(names, n, a->coding.level, a->json, &a->common);
    case VERB_FOLD: return fold_deltas(names, n, output, &to_recode);
    case VERB_REBASE: return rebase_snapshot(names[0], a->onto, output, &to_recode);
    case VERB_VERIFY: return verify_files(names, n, &a->common);
    case VERB_APPLY: return apply_deltas(names, n, a->trust_base, &a->common);
    case VERB_SALVAGE: return salvage_file(names[0], a->json, &a->common);
    case VERB_DUMP: return dump_file(names[0]);
    default: return run_series(a);
    }
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

static unsigned count_threads(long wanted)
{
    long n = wanted ? wanted : sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : (unsigned)n;
}

/* Results that went to standard output through stdio or directly: an error may show up only now.
 * Who has read enough of a listing ("lmc dump x.lmc | head") has made no error. */
static int close_standard_output(int code)
{
    struct pollfd closed = {STDOUT_FILENO, 0, 0};
    if ((fflush(stdout) == 0 && !ferror(stdout)) || code != CODE_OK) return code;
    if (poll(&closed, 1, 0) == 1 && (closed.revents & POLLERR)) /* errno may be of another call */
        return code;
    return fail_errno(STANDARD_OUTPUT, errno, "cannot write");
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

static int run(struct arguments *a)
{
    lmc_pool *pool;
    int code;
    read_umask();
    allow_many_files();
    watch_signals();
    progress_enable(a->progress < 0 ? a->common.verbosity > 0 && isatty(STDERR_FILENO)
                                    : a->progress);
    if (lmc_pool_open(&pool, count_threads(a->n_threads), NULL) != LMC_OK) check_memory(NULL);
    a->common.parallel = *lmc_pool_parallel(pool);
    code = run_verb(a);
    progress_clear();
    lmc_pool_free(pool);
    a->common.parallel.user = NULL;
    return code;
}

static void end_without_memory(void)
{
    remove_temporary();
    say_last_words();
}

int main(int argc, char **argv)
{
    struct arguments a;
    int code;
    occupy_standard_descriptors();
    init_json();
    on_out_of_memory(end_without_memory);
    code = read_arguments(&a, argc, argv);
    if (code == CODE_OK && !a.is_done) code = run(&a);
    free_arguments(&a);
    return close_standard_output(code);
}
