/* option_table.c - the tables of verbs and options, and how values are taken (args.h)
 * SPDX-License-Identifier: MIT */
#include "args.h"

#include <ctype.h>

#include "input/base.h"
#include "verb/series_manifest.h"
#include "../formats/pattern.h"

const struct verb_row verbs[N_VERBS] = {
    {NULL, NULL, "compressing", 0, SIZE_MAX, "", NULL},
    {NULL, NULL, "-d", 0, SIZE_MAX, "restore", NULL},
    {NULL, NULL, "-t", 0, SIZE_MAX, "test", NULL},
    {NULL, NULL, "-l", 0, SIZE_MAX, "list", NULL},
    {"cat", NULL, "'lmc cat'", 1, SIZE_MAX, "cat", cat_tensors},
    {"diff", NULL, "'lmc diff'", 2, 2, "diff", diff_snapshots},
    {"stats", NULL, "'lmc stats'", 1, SIZE_MAX, "stats", show_stats},
    {"fold", NULL, "'lmc fold'", 1, SIZE_MAX, "chains", fold_deltas},
    {"rebase", NULL, "'lmc rebase'", 1, 1, "chains", rebase_snapshot},
    {"verify", NULL, "'lmc verify'", 1, SIZE_MAX, "chains", verify_files},
    {"apply", NULL, "'lmc apply'", 2, SIZE_MAX, "apply", apply_deltas},
    {"salvage", NULL, "'lmc salvage'", 1, 1, "salvage", salvage_file},
    {"mount", NULL, "'lmc mount'", 2, 2, "mount", mount_snapshot},
    {"series", "add", "'lmc series'", 1, 1, "series", series_add},
    {"series", "list", "", 0, 0, "series", series_list},
    {"series", "restore", "", 1, 1, "series", series_restore},
    {"series", "cat", "", 1, 2, "series", series_cat},
    {"series", "prune", "", 0, SIZE_MAX, "series", series_prune},
    {"series", "keep", "", 1, SIZE_MAX, "series", series_keep},
    {"series", "gc", "", 0, 0, "series", series_gc},
    {"series", "verify", "", 0, SIZE_MAX, "series", series_verify},
    {"series", "watch", "", 1, 1, "series", series_watch},
    {"series", "rebuild", "", 0, 0, "series", series_rebuild},
};

int refer_to_help(const struct arguments *a)
{
    const char *topic = verbs[a->verb].topic;
    fprintf(stderr, "See 'lmc help%s%s'.\n", *topic ? " " : "", topic);
    return CODE_USAGE;
}

/* -- the values of options -- */

static int take_output(struct arguments *a, const char *text)
{
    /* opening /dev/stdout would overwrite a file there from its beginning */
    a->o.output = strcmp(text, "/dev/stdout") == 0 ? "-" : text;
    return CODE_OK;
}

static int take_threads(struct arguments *a, const char *text)
{
    char *end;
    errno = 0;
    a->n_threads = strtol(text, &end, 10);
    if (end == text || *end || errno || a->n_threads < 0 || a->n_threads > MAX_THREADS)
        return fail_usage(a, "-T needs a number of threads from 0 to 1024, not '%s'", text);
    return CODE_OK;
}

/* Names of NumPy and PyTorch, besides those of safetensors. */
static const char dtype_names[] =
    " bool_=BOOL uint8=U8 byte=U8 int8=I8 int16=I16 short=I16 uint16=U16 int32=I32 int=I32 "
    "uint32=U32 int64=I64 long=I64 uint64=U64 float16=F16 half=F16 fp16=F16 bfloat16=BF16 "
    "float32=F32 float=F32 fp32=F32 single=F32 float64=F64 double=F64 fp64=F64 complex64=C64 "
    "cfloat=C64 float8_e4m3fn=F8_E4M3 float8_e5m2=F8_E5M2 float8_e4m3fnuz=F8_E4M3FNUZ "
    "float8_e5m2fnuz=F8_E5M2FNUZ float8_e8m0fnu=F8_E8M0 ";

/* The dtype of "bf16", "torch.float32" or "np.int8", in any case. LMC_AUTO: there is none. */
static enum lmc_dtype find_dtype(const char *text)
{
    static const char *const modules[] = {"torch.", "numpy.", "np."};
    char name[36];
    for (size_t i = 0; i < 3; i++)
        if (strncmp(text, modules[i], strlen(modules[i])) == 0) text += strlen(modules[i]);
    if (strlen(text) > 32 || strpbrk(text, " =")) return LMC_AUTO;
    size_t size = (size_t)snprintf(name, sizeof name, " %s=", text);
    for (char *c = name; *c; c++) *c = (char)tolower((unsigned char)*c);
    const char *found = strstr(dtype_names, name);
    if (found) snprintf(name, sizeof name, " %.*s=", (int)strcspn(found + size, " "), found + size);
    name[strlen(name) - 1] = 0;
    for (char *c = name; *c; c++) *c = (char)toupper((unsigned char)*c);
    return lmc_dtype_find(name + 1);
}

static int take_dtype(struct arguments *a, const char *text)
{
    a->o.dtype = find_dtype(text);
    if (a->o.dtype == LMC_AUTO)
        return fail_usage(a,
                          "--dtype needs one of BOOL, U8, I8, F8_E4M3, F8_E5M2, F16, BF16, F32, "
                          "F64, C64, I16, U16, I32, U32, I64, U64 or another dtype of "
                          "safetensors, not '%s'",
                          text);
    return CODE_OK;
}

static int take_base(struct arguments *a, const char *text)
{
    if (is_dash(text)) return fail_usage(a, "--base needs the name of a file or directory");
    add_base(&a->bases, text);
    return CODE_OK;
}

static int take_search(struct arguments *a, const char *text)
{
    struct stat st;
    if (stat(text, &st) != 0 || !S_ISDIR(st.st_mode))
        return fail_usage(a, "--search needs a directory of snapshots, and '%s' is none", text);
    add_search(&a->bases, text);
    return CODE_OK;
}

static int take_onto(struct arguments *a, const char *text)
{
    if (is_dash(text))
        return fail_usage(a, "--onto needs the name of a file or directory, or 'none'");
    a->o.onto = text;
    return CODE_OK;
}

static int take_quant(struct arguments *a, const char *text) { return add_rule(&a->policy, text); }

static int take_policy(struct arguments *a, const char *text)
{
    return read_policy(&a->policy, text);
}

static int take_name(struct arguments *a, const char *text)
{
    const char *fault = find_fault_of_name(text);
    a->o.name = text;
    if (!fault) return CODE_OK;
    say(text, "%s", fault);
    return fail_usage(a, "--name needs another name");
}

static int take_match(struct arguments *a, const char *text)
{
    const char *fault = find_pattern_fault(text, strlen(text));
    a->o.match = text;
    if (!fault) return CODE_OK;
    return fail_usage(a, "--match needs a pattern: %s", fault);
}

/* Adds a value of an option that can be given several times. */
static int add_value(const char ***list, size_t *n, const char *text)
{
    *list = (const char **)resize((void *)*list, *n + 1, sizeof **list);
    (*list)[(*n)++] = text;
    return CODE_OK;
}

static int take_keep(struct arguments *a, const char *text)
{
    return add_value(&a->o.keep, &a->o.n_keep, text);
}

static int take_exclude(struct arguments *a, const char *text)
{
    const char *fault = find_pattern_fault(text, strlen(text));
    if (fault) return fail_usage(a, "--exclude needs a pattern: %s", fault);
    return add_value(&a->o.excluded, &a->o.n_excluded, text);
}

static int take_verbose(struct arguments *a, const char *text)
{
    (void)text;
    a->o.verbosity = a->o.verbosity < 2 ? 2 : a->o.verbosity + 1;
    return CODE_OK;
}

int print_version(void)
{
    printf("lmc %s, format %d.%d, %s\n", lmc_version(), LMC_FORMAT_MAJOR, LMC_FORMAT_MINOR,
           lmc_tier_name(lmc_tier_current()));
    return CODE_OK;
}

static int take_version(struct arguments *a, const char *text)
{
    (void)text;
    a->is_done = 1;
    return print_version();
}

static int take_help(struct arguments *a, const char *text)
{
    (void)text;
    a->is_done = 1;
    return print_help(a->verb == VERB_COMPRESS && a->has_word ? "compress" : verbs[a->verb].topic);
}

/* -- the options -- */

#define AT(member) offsetof(struct arguments, member)

const struct option options[] = {
    {'z', "compress", MODE, ALL, 0, VERB_COMPRESS, NULL, NULL},
    {'d', "decompress", MODE, ALL, 0, VERB_RESTORE, NULL, NULL},
    {0, "uncompress", MODE, ALL, 0, VERB_RESTORE, NULL, NULL},
    {'t', "test", MODE, ALL, 0, VERB_TEST, NULL, NULL},
    {'l', "list", MODE, ALL, 0, VERB_LIST, NULL, NULL},

    {0, "keep", TEXT, V(SERIES_PRUNE), 0, 0, take_keep, "the name of a snapshot"},
    {0, "keep-last", COUNT, V(SERIES_PRUNE), AT(o.keep_last), 1, NULL, NULL},
    {0, "keep-every", COUNT, V(SERIES_PRUNE), AT(o.keep_every), 1, NULL, NULL},
    {0, "dry-run", FLAG, V(SERIES_PRUNE) | V(SERIES_GC), AT(o.dry_run), 1, NULL, NULL},
    {0, "name", TEXT, V(SERIES_ADD), 0, 0, take_name, "a value: a name"},
    {0, "every", COUNT, ADDERS | V(SERIES_REBUILD), AT(o.every), 1, NULL, NULL},
    {0, "anchor", FLAG, V(SERIES_ADD), AT(o.anchor), 1, NULL, NULL},
    {0, "verify", FLAG, V(SERIES_ADD), AT(o.verify), 1, NULL, NULL},
    {0, "settle", COUNT, V(SERIES_WATCH), AT(o.settle), 0, NULL, NULL},
    {0, "interval", COUNT, V(SERIES_WATCH), AT(o.interval), 1, NULL, NULL},
    {0, "once", FLAG, V(SERIES_WATCH), AT(o.once), 1, NULL, NULL},
    {0, "match", TEXT, V(SERIES_WATCH), 0, 0, take_match, "a pattern for names"},

    {'o', "output", TEXT, WRITERS | V(SALVAGE), 0, 0, take_output, "the name of the output"},
    {'c', "stdout", FLAG, WRITERS, AT(o.to_stdout), 1, NULL, NULL},
    {'f', "foreground", FLAG, V(MOUNT), AT(o.foreground), 1, NULL, NULL},
    {0, "allow-other", FLAG, V(MOUNT), AT(o.allow_other), 1, NULL, NULL},
    {0, "log", TEXT, V(MOUNT), AT(o.log), 0, NULL, "the name of a file for messages"},
    {'f', "force", FLAG, FORCED | V(SERIES_RESTORE) | V(SERIES_CAT) | V(SERIES_PRUNE), AT(o.force),
     1, NULL, NULL},
    {'r', "recursive", FLAG, V(COMPRESS) | V(RESTORE) | V(TEST) | V(LIST) | V(CAT), AT(o.recursive),
     1, NULL, NULL},
    {0, "rm", FLAG, V(COMPRESS) | V(RESTORE) | ADDERS, AT(o.remove_source), 1, NULL, NULL},
    {'k', "keep", FLAG, ALL, AT(o.remove_source), 0, NULL, NULL},

    {0, "max-files", COUNT, BOUNDED, AT(o.max_files), 1, NULL, "a number of files"},
    {0, "max-depth", COUNT, BOUNDED, AT(o.max_depth), 1, NULL, "a number of levels"},

    {0, "base", TEXT, BASED, 0, 0, take_base, "the name of a file or directory"},
    {0, "patch-from", TEXT, BASED, 0, 0, take_base, "the name of a file or directory"},
    {0, "search", TEXT, BASED, 0, 0, take_search, "a directory of snapshots"},
    {0, "no-search", FLAG, BASED, AT(bases.is_closed), 1, NULL, NULL},
    {0, "no-base", FLAG, V(TEST) | V(VERIFY), AT(bases.is_off), 1, NULL, NULL},
    {0, "dereference", FLAG, FORCED | ADDERS, AT(o.links), LINKS_FOLLOW, NULL, NULL},
    {0, "no-dereference", FLAG, FORCED | ADDERS, AT(o.links), LINKS_KEEP, NULL, NULL},
    {0, "exclude", TEXT, V(COMPRESS) | ADDERS, 0, 0, take_exclude, "a pattern"},
    {0, "trust-base", FLAG, V(APPLY), AT(o.trust_base), 1, NULL, NULL},
    {0, "onto", TEXT, V(REBASE), 0, 0, take_onto, "the name of a file or directory, or 'none'"},
    {0, "dtype", TEXT, LOOKERS | PLAIN, 0, 0, take_dtype, "a dtype of safetensors"},
    {0, "opaque", FLAG, LOOKERS | PLAIN, AT(o.opaque), 1, NULL, NULL},
    /* as in other tools with levels, the last one counts */
    {0, "fast", FLAG, LEVELS, AT(o.level), LMC_LEVEL_FAST, NULL, NULL},
    {0, "max", FLAG, LEVELS, AT(o.level), LMC_LEVEL_MAX, NULL, NULL},
    {0, "archive", FLAG, LEVELS, AT(o.level), LMC_LEVEL_ARCHIVE, NULL, NULL},
    {0, "no-twins", FLAG, CODERS, AT(o.no_twins), 1, NULL, NULL},
    {0, "no-zeros", FLAG, CODERS, AT(o.no_zeros), 1, NULL, NULL},
    {0, "no-matrix", FLAG, CODERS, AT(o.no_matrix), 1, NULL, NULL},
    {0, "no-codes", FLAG, CODERS, AT(o.no_codes), 1, NULL, NULL},
    {0, "hash", FLAG, CODERS | V(TEST) | V(VERIFY) | V(SERIES_VERIFY), AT(o.hashes), 1, NULL, NULL},
    {0, "quant", ANY, V(COMPRESS) | ADDERS, 0, 0, take_quant, "a rule, such as '*=bits:8'"},
    {0, "policy", TEXT, V(COMPRESS) | ADDERS, 0, 0, take_policy, "the name of a file of rules"},

    {0, "json", FLAG,
     V(TEST) | V(LIST) | V(DIFF) | V(STATS) | V(VERIFY) | V(APPLY) | V(SALVAGE) | V(SERIES_LIST) |
         V(SERIES_VERIFY),
     AT(o.json), 1, NULL, NULL},
    {0, "top", COUNT, V(DIFF) | V(STATS), AT(o.top), 1, NULL, NULL},
    {0, "npy", FLAG, V(CAT) | V(SERIES_CAT), AT(o.npy), 1, NULL, NULL},
    {0, "f32", FLAG, V(CAT), AT(o.f32), 1, NULL, NULL},
    {0, "safetensors", FLAG, V(CAT), AT(o.safetensors), 1, NULL, NULL},
    {0, "file", ANY, V(CAT) | V(SERIES_CAT), AT(o.file), 0, NULL,
     "the path of a file in the snapshot"},

    {'q', "quiet", FLAG, ALL, AT(o.verbosity), 0, NULL, NULL},
    {'v', "verbose", ACT, ALL, 0, 0, take_verbose, NULL},
    {'T', "threads", TEXT, ALL, 0, 0, take_threads, "a number of threads from 0 to 1024"},
    {0, "progress", FLAG, ALL, AT(progress), 1, NULL, NULL},
    {0, "no-progress", FLAG, ALL, AT(progress), 0, NULL, NULL},
    {'V', "version", ACT, ALL, 0, 0, take_version, NULL},
    {'h', "help", ACT, ALL, 0, 0, take_help, NULL},
};

const size_t n_options = sizeof options / sizeof *options;
typedef char options_fit_into_a_mask[sizeof options / sizeof *options <= 64 ? 1 : -1]; /* given */
