/* SPDX-License-Identifier: MIT */
#include "args.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "choose/policy.h"
#include "help.h"
#include "input/base.h"
#include "sys/names.h"
#include "sys/report.h"
#include "verb/series.h"
#include "verb/series_options.h"

int fail_usage(const char *format, const char *what)
{
    say(NULL, format, what);
    fputs("See 'lmc help'.\n", stderr);
    return CODE_USAGE;
}

/* The value of an option: what follows in the same argument, or the next argument. */
static const char *take_value(struct arguments *a, const char *rest)
{
    if (*rest) return rest;
    return a->at + 1 < a->argc ? a->argv[++a->at] : NULL;
}

static int set_threads(struct options *o, const char *text)
{
    char *end;
    errno = 0;
    o->n_threads = text ? strtol(text, &end, 10) : -1;
    if (!text || end == text || *end || errno || o->n_threads < 0 || o->n_threads > MAX_THREADS)
        return fail_usage("-T wants a number of threads from 0 to 1024%s", "");
    return CODE_OK;
}

static int set_output(struct options *o, const char *text)
{
    if (!text || !*text) return fail_usage("-o wants the name of the output%s", "");
    /* opened by that name, a file there would be written from its beginning, whatever it holds
     * already */
    o->output = strcmp(text, "/dev/stdout") == 0 ? "-" : text;
    return CODE_OK;
}

static int set_dtype(struct options *o, const char *name)
{
    if (!name || lmc_find_dtype(name) == LMC_AUTO)
        return fail_usage("--dtype wants one of BOOL, U8, I8, F8_E4M3, F8_E5M2, F16, BF16, F32, "
                          "F64, C64, I16, U16, I32, U32, "
                          "I64, U64 or another dtype of safetensors%s",
                          "");
    o->dtype = lmc_find_dtype(name);
    return CODE_OK;
}

static int set_base(struct options *o, const char *text)
{
    if (!text || !*text || is_dash(text))
        return fail_usage("--base wants the name of a file or directory%s", "");
    add_base(o->bases, text);
    return CODE_OK;
}

/* Options of one letter; 0 if there is no such option. */
static int set_letter(struct options *o, char letter)
{
    switch (letter) {
    case 'z': o->verb = VERB_COMPRESS; return 1;
    case 'd': o->verb = VERB_RESTORE; return 1;
    case 't': o->verb = VERB_TEST; return 1;
    case 'l': o->verb = VERB_LIST; return 1;
    case 'c': o->to_stdout = 1; return 1;
    case 'f': o->force = 1; return 1;
    case 'k': o->remove_source = 0; return 1;
    case 'r': o->recursive = 1; return 1;
    case 'q': o->verbosity = 0; return 1;
    case 'v': o->verbosity = o->verbosity < 2 ? 2 : o->verbosity + 1; return 1;
    default: return 0;
    }
}

static int print_version(struct arguments *a)
{
    a->done = 1;
    printf("lmc %s, format %d.%d, %s\n", lmc_version(), LMC_FORMAT_MAJOR, LMC_FORMAT_MINOR,
           lmc_tier_name(lmc_get_tier()));
    return CODE_OK;
}

static int print_first_help(struct arguments *a)
{
    a->done = 1;
    return print_help("");
}

/* "-dcf", "-T4", "-oOUT", "-o OUT". */
static int parse_letters(struct options *o, struct arguments *a, const char *letters)
{
    for (; *letters; letters++) {
        if (*letters == 'T') return set_threads(o, take_value(a, letters + 1));
        if (*letters == 'o') return set_output(o, take_value(a, letters + 1));
        if (*letters == 'V') return print_version(a);
        if (*letters == 'h') return print_first_help(a);
        if (*letters >= '0' && *letters <= '9')
            return fail_usage(
                "there are no levels such as '-%s': the default, which is fast, and --max",
                letters);
        if (!set_letter(o, *letters)) {
            char name[2] = {*letters, 0};
            return fail_usage("there is no option '-%s'", name);
        }
    }
    return CODE_OK;
}

/* What follows '=' in a long option, or the next argument. */
static const char *take_long_value(struct arguments *a, const char *word, const char *name)
{
    size_t size = strlen(name);
    return word[size] == '=' ? word + size + 1 : take_value(a, "");
}

static const char *take_series_value(struct arguments *a, const char *word)
{
    const char *value = strchr(word, '=');
    return value ? value + 1 : take_value(a, "");
}

static int is_long(const char *word, const char *name)
{
    size_t size = strlen(name);
    return strncmp(word, name, size) == 0 && (word[size] == 0 || word[size] == '=');
}

static int parse_word(struct options *o, struct arguments *a, const char *word)
{
    int of_series = o->verb == VERB_SERIES ? find_series_option(word) : -1;
    static const struct {
        const char *name;
        char letter;
    } letters[] = {{"compress", 'z'},  {"decompress", 'd'}, {"uncompress", 'd'}, {"test", 't'},
                   {"list", 'l'},      {"stdout", 'c'},     {"force", 'f'},      {"keep", 'k'},
                   {"recursive", 'r'}, {"quiet", 'q'},      {"verbose", 'v'}};
    if (of_series >= 0)
        return set_series_option(&o->series, of_series,
                                 option_has_value(of_series) ? take_series_value(a, word) : NULL);
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        if (strcmp(word, letters[i].name) == 0)
            return set_letter(o, letters[i].letter) ? CODE_OK : CODE_USAGE;
    if (is_long(word, "threads")) return set_threads(o, take_long_value(a, word, "threads"));
    if (is_long(word, "output")) return set_output(o, take_long_value(a, word, "output"));
    if (is_long(word, "dtype")) return set_dtype(o, take_long_value(a, word, "dtype"));
    if (is_long(word, "base")) return set_base(o, take_long_value(a, word, "base"));
    if (is_long(word, "patch-from")) return set_base(o, take_long_value(a, word, "patch-from"));
    if (is_long(word, "quant")) {
        const char *rule = take_long_value(a, word, "quant");
        o->policy->is_given = 1;
        return rule ? add_rule(o->policy, rule, "--quant")
                    : fail_usage("--quant wants a rule, such as '*=bits:8'%s", "");
    }
    if (is_long(word, "policy")) {
        const char *path = take_long_value(a, word, "policy");
        o->policy->is_given = 1;
        return path && *path ? read_policy(o->policy, path)
                             : fail_usage("--policy wants the name of a file of rules%s", "");
    }
    if (is_long(word, "onto")) {
        o->onto = take_long_value(a, word, "onto");
        return o->onto && *o->onto && !is_dash(o->onto)
                   ? CODE_OK
                   : fail_usage("--onto wants the name of a file or directory, or 'none'%s", "");
    }
    if (is_long(word, "svg")) {
        o->svg = take_long_value(a, word, "svg");
        return o->svg && *o->svg
                   ? CODE_OK
                   : fail_usage("--svg wants what the names of the pictures begin with%s", "");
    }
    if (is_long(word, "file")) {
        o->file = take_long_value(a, word, "file");
        return o->file ? CODE_OK
                       : fail_usage("--file wants the path of a file in the snapshot%s", "");
    }
    if (strcmp(word, "version") == 0) return print_version(a);
    if (strcmp(word, "help") == 0) return print_first_help(a);
    if (strcmp(word, "rm") == 0) o->remove_source = 1;
    else if (strcmp(word, "json") == 0) o->json = 1;
    else if (strcmp(word, "npy") == 0) o->npy = 1;
    else if (strcmp(word, "opaque") == 0) o->opaque = 1;
    else if (strcmp(word, "no-twins") == 0) o->no_twins = 1;
    else if (strcmp(word, "trust-base") == 0) o->trust_base = 1;
    else if (strcmp(word, "max") == 0) o->level = LMC_LEVEL_MAX;
    else if (strcmp(word, "progress") == 0) o->progress = 1;
    else if (strcmp(word, "no-progress") == 0) o->progress = 0;
    else return fail_usage("there is no option '--%s'", word);
    return CODE_OK;
}

int parse_arguments(struct options *o, struct arguments *a)
{
    for (; a->at < a->argc && !a->done; a->at++) {
        char *text = a->argv[a->at];
        int code = CODE_OK;
        if (a->only_files || text[0] != '-' || text[1] == 0) a->argv[a->n_files++] = text;
        else if (strcmp(text, "--") == 0) a->only_files = 1;
        else if (text[1] == '-') code = parse_word(o, a, text + 2);
        else code = parse_letters(o, a, text + 1);
        if (code != CODE_OK) return code;
    }
    return CODE_OK;
}

int check_options(const struct options *o, const struct arguments *a)
{
    int writes = o->verb == VERB_COMPRESS || o->verb == VERB_RESTORE,
        recodes = o->verb == VERB_FOLD || o->verb == VERB_REBASE,
        measures = o->verb == VERB_DIFF || o->verb == VERB_STATS;
    if (o->verb == VERB_APPLY && (o->output || o->to_stdout || o->recursive || o->bases->n))
        return fail_usage("-o, -c, -r and --base are not for 'lmc apply'%s", "");
    if (o->trust_base && o->verb != VERB_APPLY)
        return fail_usage("--trust-base is for 'lmc apply'%s", "");
    if (a->word && o->verb < VERB_CAT)
        return fail_usage(
            "'lmc %s' excludes -z, -d, -t and -l; for a file of that name put ./ before it",
            a->word);
    if (o->svg && o->verb != VERB_STATS) return fail_usage("--svg is for 'lmc stats'%s", "");
    if (o->policy->is_given && o->verb != VERB_COMPRESS && o->verb != VERB_SERIES)
        return fail_usage("--quant and --policy are for compressing%s", "");
    if (is_lossy(o->policy) && o->remove_source)
        return fail_usage("--rm would remove the only exact copy of what is quantised; leave it "
                          "out, and remove the source yourself%s",
                          "");
    if (o->verb == VERB_SERIES) return check_series_options(a->argv, a->n_files, o);
    if (measures && (o->output || o->to_stdout || o->recursive))
        return fail_usage("-o, -c and -r are not for 'lmc %s'", a->word);
    if ((recodes || o->verb == VERB_VERIFY) && o->recursive)
        return fail_usage("-r is not for 'lmc %s'", a->word);
    if (o->verb == VERB_SALVAGE &&
        (o->to_stdout || o->recursive || (o->output && is_dash(o->output))))
        return fail_usage("'lmc salvage' wants a directory for its output: not -c, -r or '-o -'%s",
                          "");
    if (o->verb == VERB_VERIFY && (o->output || o->to_stdout))
        return fail_usage("-o and -c are not for 'lmc verify'%s", "");
    for (int i = 0;
         i < a->n_files && (recodes || o->verb == VERB_VERIFY || o->verb == VERB_SALVAGE); i++)
        if (is_dash(a->argv[i]))
            return fail_usage("'lmc %s' wants files, not standard input", a->word);
    if (recodes && !o->output && !o->to_stdout)
        return fail_usage("'lmc %s' wants -o with the name of the output, or -c", a->word);
    if (o->onto && o->verb != VERB_REBASE) return fail_usage("--onto is for 'lmc rebase'%s", "");
    if (o->output && a->n_files > 1 && o->verb != VERB_CAT && o->verb != VERB_FOLD)
        return fail_usage("-o takes one output, and there are several inputs%s", "");
    if (o->output && o->recursive) return fail_usage("-o and -r exclude each other%s", "");
    if (o->output && o->to_stdout && !is_dash(o->output))
        return fail_usage("-o and -c exclude each other%s", "");
    if (o->opaque && o->dtype != LMC_AUTO)
        return fail_usage("--opaque and --dtype exclude each other%s", "");
    if ((o->opaque || o->dtype != LMC_AUTO) && !measures && o->verb != VERB_COMPRESS &&
        o->verb != VERB_APPLY && o->bases->n == 0)
        return fail_usage("--opaque and --dtype are for compressing, and for reading a base%s", "");
    if (o->level != LMC_LEVEL_DEFAULT && o->verb != VERB_COMPRESS && !measures && !recodes)
        return fail_usage("--max is for compressing%s", "");
    if (o->no_twins && o->verb != VERB_COMPRESS && !recodes)
        return fail_usage("--no-twins is for compressing%s", "");
    if ((o->npy || o->file) && o->verb != VERB_CAT)
        return fail_usage("--npy and --file are for 'lmc cat'%s", "");
    if (o->json && o->verb != VERB_LIST && !measures && o->verb != VERB_SALVAGE)
        return fail_usage("--json is for -l, 'lmc diff', 'lmc stats' and 'lmc salvage'%s", "");
    if (o->verb == VERB_COMPRESS && o->to_stdout && (a->n_files > 1 || o->recursive))
        return fail_usage("-c compresses one input: two snapshots in a row cannot be read back%s",
                          "");
    if ((o->output || o->to_stdout) && (o->verb == VERB_TEST || o->verb == VERB_LIST))
        return fail_usage("-o and -c are not for -t and -l%s", "");
    if (o->remove_source && !writes)
        return fail_usage("--rm is for compressing and restoring%s", "");
    if (o->remove_source && (o->to_stdout || (o->output && is_dash(o->output))))
        return fail_usage("--rm needs an output file that can be read back%s", "");
    for (int i = 0; i < a->n_files && o->remove_source; i++)
        if (is_dash(a->argv[i])) return fail_usage("--rm cannot remove standard input%s", "");
    return CODE_OK;
}

void set_defaults(struct options *o, struct arguments *a)
{
    static const struct {
        const char *name;
        enum verb verb;
    } words[] = {{"cat", VERB_CAT},       {"diff", VERB_DIFF},     {"apply", VERB_APPLY},
                 {"fold", VERB_FOLD},     {"rebase", VERB_REBASE}, {"verify", VERB_VERIFY},
                 {"series", VERB_SERIES}, {"stats", VERB_STATS},   {"salvage", VERB_SALVAGE}};
    const char *name = a->argc && strrchr(a->argv[0], '/') ? strrchr(a->argv[0], '/') + 1
                       : a->argc                           ? a->argv[0]
                                                           : "lmc";
    memset(o, 0, sizeof *o);
    o->progress = -1;
    o->verbosity = 1;
    a->at = 1;
    if (strcmp(name, "unlmc") == 0) o->verb = VERB_RESTORE;
    if (strcmp(name, "lmccat") == 0) {
        o->verb = VERB_RESTORE;
        o->to_stdout = 1;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (a->argc > 1 && strcmp(a->argv[1], words[i].name) == 0) {
            a->word = a->argv[1];
            o->verb = words[i].verb;
            a->at = 2;
        }
}
