/* main.c - the command lmc: compresses files and checkpoints, with options like zstd's
 * SPDX-License-Identifier: MIT
 *
 * Static variables are only in sys/: the line on the terminal and where messages go (report.c), the
 * progress (progress.c), the temporary output (temporary.c), a number for its name (names.c), the
 * directory that is held (spot.c), the umask (attributes.c), the hook for lack of memory
 * (memory.c), the pipe to the process that a user waits for (background.c).
 */
#define LMC_PTHREADS /* lmc_pool; as in lmc_impl.c */
#include "args.h"

#include <poll.h>
#include <sys/resource.h>

#include "format/json.h"
#include "input/options.h"
#include "input/source_tree.h"
#include "sys/attributes.h"
#include "sys/background.h"
#include "sys/io.h"
#include "sys/spot.h"
#include "sys/temporary.h"

/* -- files -- */

/* is_named: on the command line, not found in a directory */
static int process_file(const char *path, int is_named, const struct arguments *a)
{
    switch (a->verb) {
    case VERB_RESTORE: return restore_file(path, &a->o);
    case VERB_TEST: return test_file(path, &a->o);
    case VERB_LIST: return list_file(path, &a->o);
    default: return compress_file(path, is_named, &a->o);
    }
}

/* Processes each file below path by itself. */
static int process_tree(const char *path, const struct arguments *a)
{
    struct listing l;
    char *inside = join_path(path, "x");
    const int dir = open(path, PARENT_FLAGS);
    int code = dir < 0 ? fail_errno(path, errno, "cannot open it") : CODE_OK;
    if (code == CODE_OK) hold_directory_of(inside, dir, 1);
    code = worse(code, list_included(&l, path, LINKS_KEEP, 0, &a->o));
    for (size_t i = 0; i < l.n; i++)
        if (is_operand(&l.entries[i], a->verb != VERB_COMPRESS)) {
            char *full = join_path(path, l.entries[i].path);
            code = worse(code, process_file(full, 0, a));
            free(full);
        }
    release_directory(dir);
    if (dir >= 0) close(dir);
    free(inside);
    free_listing(&l);
    return code;
}

static int process_path(const char *path, const struct arguments *a)
{
    struct stat st;
    forget_refused_sync(); /* of an earlier file, perhaps on another file system */
    const int is_tree = !is_dash(path) && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    if (is_tree && a->o.recursive) return process_tree(path, a);
    if (is_tree && a->verb == VERB_COMPRESS) return compress_directory(path, &a->o);
    return process_file(path, 1, a);
}

/* Sorts by name, then by place. */
static int compare_operands(const void *a, const void *b)
{
    char **const x = *(char **const *)a, **const y = *(char **const *)b;
    const int order = strcmp(*x, *y);
    return order ? order : x < y ? -1 : x > y;
}

/* Removes repeated names, and keeps the order. Returns how many names are left. */
static size_t drop_repeated(char **names, size_t n)
{
    char ***sorted = (char ***)resize(NULL, n + 1, sizeof *sorted);
    const char *last = NULL;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) sorted[i] = &names[i];
    qsort((void *)sorted, n, sizeof *sorted, compare_operands);
    for (size_t i = 0; i < n; i++)
        if (last && strcmp(last, *sorted[i]) == 0) *sorted[i] = NULL;
        else last = *sorted[i];
    for (size_t i = 0; i < n; i++)
        if (names[i]) names[kept++] = names[i];
    free((void *)sorted);
    return kept;
}

/* With --rm, refuses all inputs if one is missing: it may be a verb that is not the first word. */
static int check_inputs(const struct options *o)
{
    struct stat st;
    for (size_t i = 0; i < o->n_names && o->remove_source; i++) {
        if (stat(o->names[i], &st) == 0) continue;
        const int error = errno;
        if (o->verbosity > 0) say_left_behind(o->names[i]); /* perhaps by this command */
        return fail(CODE_ERROR, o->names[i],
                    "cannot open it: %s; with --rm nothing is done unless all inputs are there%s%s",
                    strerror(error), hint_for_url(o->names[i], error),
                    is_verb(o->names[i]) ? "; a verb comes first, before all options" : "");
    }
    return CODE_OK;
}

/* Checks, before anything is written, that no input will destroy another one. */
static int check_operands(const struct options *o, enum verb verb)
{
    const int is_restoring = verb != VERB_COMPRESS;
    int code = o->n_names > 1 ? check_output_name(o) : CODE_OK; /* the directory for all outputs */
    if (code == CODE_OK && verb != VERB_TEST && verb != VERB_LIST)
        code = check_overwritten(is_restoring, o);
    if (code == CODE_OK && o->remove_source) code = check_removed(is_restoring, o);
    return code;
}

static int process_files(struct arguments *a)
{
    struct options *const o = &a->o;
    int code = check_inputs(o);
    if (code != CODE_OK) return code;
    if (o->remove_source) o->n_names = drop_repeated(o->names, o->n_names);
    if (o->n_names == 0) return process_path("-", a);
    if (o->n_parts) return restore_parts(o);
    code = check_operands(o, a->verb);
    if (code != CODE_OK) return code;
    for (size_t i = 0; i < o->n_names; i++) code = worse(code, process_path(o->names[i], a));
    return code;
}

/* -- the process -- */

/* Opens closed standard descriptors: else messages could go into a file with such a number. */
static void occupy_standard_descriptors(void)
{
    int fd;
    do fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);
}

/* Flushes and closes standard output: a write error may be reported only now. If a reader closes
 * the pipe early ("lmc -l x.lmc | head"), this is no error. */
static int close_standard_output(int code)
{
    struct pollfd closed = {STDOUT_FILENO, 0, 0};
    if ((fflush(stdout) == 0 && !ferror(stdout)) || code != CODE_OK) return code;
    if (poll(&closed, 1, 0) == 1 && (closed.revents & POLLERR)) /* errno may be of another call */
        return code;
    return fail_errno(STANDARD_OUTPUT, errno, "cannot write");
}

/* Raises the limit of open files: each link of a chain is an open file, and shells allow few. */
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
    const int is_mount = a->verb == VERB_MOUNT;
    lmc_pool *pool;
    int code;
    if (is_mount && !a->o.foreground && !go_to_background(&code)) return code;
    read_umask();
    allow_many_files();
    if (!is_mount) watch_signals(); /* libfuse unmounts at a signal */
    if (is_mount) a->progress = 0;
    progress_enable(a->progress < 0 ? a->o.verbosity > 0 && isatty(STDERR_FILENO) : a->progress);
    if (lmc_pool_open(&pool, (unsigned)a->n_threads, NULL) != LMC_OK) check_memory(NULL);
    a->o.parallel = *lmc_pool_parallel(pool);
    code = verbs[a->verb].run ? verbs[a->verb].run(&a->o) : process_files(a);
    progress_clear();
    lmc_pool_free(pool);
    a->o.parallel.user = NULL;
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
    occupy_standard_descriptors();
    init_json();
    on_out_of_memory(end_without_memory);
    int code = read_arguments(&a, argc, argv);
    if (code == CODE_OK && !a.is_done) code = run(&a);
    free_arguments(&a);
    return close_standard_output(code);
}
