/* SPDX-License-Identifier: MIT */
#include "args.h"

#include "input/base.h"

/* Until the command of lmc series is known, the verb is VERB_SERIES_ADD, its first one. */
static int is_series(const struct arguments *a) { return a->verb >= VERB_SERIES_ADD; }

/* Words for verbs that are otherwise selected by options, such as -d. */
static const struct {
    const char *word;
    enum verb verb;
} aliases[] = {
    {"compress", VERB_COMPRESS}, {"decompress", VERB_RESTORE}, {"restore", VERB_RESTORE},
    {"extract", VERB_RESTORE},   {"test", VERB_TEST},          {"list", VERB_LIST},
    {"ls", VERB_LIST},           {"info", VERB_LIST},          {"pack", VERB_COMPRESS},
    {"unpack", VERB_RESTORE},
};

/* The verb of a word or alias; for "series", VERB_SERIES_ADD. N_VERBS: there is none. */
static enum verb verb_of_word(const char *word)
{
    for (int verb = VERB_CAT; verb <= VERB_SERIES_ADD; verb++)
        if (strcmp(word, verbs[verb].word) == 0) return (enum verb)verb;
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (strcmp(word, aliases[i].word) == 0) return aliases[i].verb;
    return N_VERBS;
}

int is_verb(const char *name)
{
    const enum verb verb = verb_of_word(name);
    return verb >= VERB_CAT && verb < N_VERBS;
}

static const char *name_option(const struct option *o, char text[32])
{
    if (o->letter) snprintf(text, 32, "-%c", o->letter);
    else snprintf(text, 32, "--%s", o->name);
    return text;
}

/* "--json is for -l, 'lmc diff' and 'lmc stats'", or for many verbs "-r is not for 'lmc diff'". */
static int fail_option(const struct arguments *a, const struct option *o)
{
    char *list, name[32];
    size_t left = (o->verbs & SERIES) != 0;
    const unsigned takers = (o->verbs & PLAIN) | (left ? V(SERIES_ADD) : 0);
    name_option(o, name);
    if (is_series(a)) {
        say_usage(a->verb);
        return fail_usage(a, "'lmc series DIR %s' does not take %s", verbs[a->verb].command, name);
    }
    for (unsigned verb = 0; verb < VERB_SERIES_ADD; verb++) left += takers >> verb & 1;
    if (left > 4 + ((o->verbs & SERIES) != 0))
        return fail_usage(a, "%s is not for %s", name, verbs[a->verb].said);
    list = copy_text("");
    for (unsigned verb = 0; verb <= VERB_SERIES_ADD; verb++)
        if (takers >> verb & 1) {
            left--;
            append_text(&list, "%s%s", verbs[verb].said, left > 1 ? ", " : left ? " and " : "");
        }
    const int code = fail_usage(a, "%s is for %s", name, list);
    free(list);
    return code;
}

/* -- reading -- */

struct reading {
    struct arguments *a;
    char **argv;
    int argc, at;
    int verb_at;      /* index of the word of the verb; 0: there is none */
    const char *word; /* the first name, if that is not a verb; or NULL */
    int is_wrong;     /* the word cannot be a file: it is first, or more follows */
    const char *mode; /* what selects the verb, as it was written; NULL: nothing */
    uint64_t given;   /* a bit for each of the options */
};

static int has_value(const struct option *o)
{
    return o->kind == TEXT || o->kind == ANY || o->kind == COUNT;
}

/* Takes -z, -d, -t or -l: only one of them, and only without a verb. */
static int take_mode(struct reading *r, const struct option *o)
{
    static const char *const modes[] = {"-z", "-d", "-t", "-l"}; /* in the order of enum verb */
    char name[32];
    if (verbs[r->a->verb].word)
        return fail_usage(
            r->a, "'lmc %s' excludes -z, -d, -t and -l; for a file of that name put ./ before it",
            verbs[r->a->verb].word);
    if (r->mode && r->a->verb != (enum verb)o->value)
        return fail_usage(r->a, "%s and %s exclude each other: do one after the other", r->mode,
                          name_option(o, name));
    r->a->verb = (enum verb)o->value;
    r->mode = modes[o->value];
    return CODE_OK;
}

/* rest: the value, if it is in the same argument; NULL: the next argument is the value */
static int take_option(struct reading *r, const struct option *o, const char *rest)
{
    struct arguments *a = r->a;
    char *at = (char *)a + o->at, name[32];
    const char *value = NULL;
    r->given |= (uint64_t)1 << (o - options);
    if (has_value(o)) {
        value = rest;
        if (!rest && r->at + 1 < r->argc && r->at + 1 != r->verb_at) value = r->argv[++r->at];
        if (!value || (!*value && o->kind != ANY))
            return fail_usage(a, "%s needs %s", name_option(o, name),
                              o->wants ? o->wants : "a value: a number");
    }
    switch (o->kind) {
    case MODE: return take_mode(r, o);
    case FLAG: memcpy(at, &o->value, sizeof o->value); return CODE_OK;
    case ACT: return o->take(a, NULL);
    case COUNT:
        if (parse_count((uint64_t *)(void *)at, value, (uint64_t)o->value)) return CODE_OK;
        return fail_usage(a, "'%s' is not a number %s", value,
                          o->value ? "from 1 up" : "of seconds");
    case TEXT:
    case ANY: break;
    }
    if (o->take) return o->take(a, value);
    memcpy(at, &value, sizeof value);
    return CODE_OK;
}

/* Whether the command has that option: some are only for lmc series. */
static int is_visible(const struct option *o, const struct arguments *a)
{
    return is_series(a) || (o->verbs & PLAIN);
}

/* The option of that letter, if possible one that the verb takes; NULL: none. */
static const struct option *find_letter(const struct arguments *a, char letter)
{
    const struct option *found = NULL;
    for (const struct option *o = options; o < options + n_options; o++) {
        if (o->letter != letter || !is_visible(o, a)) continue;
        if (o->verbs >> a->verb & 1) return o;
        found = o;
    }
    return found;
}

/* The option of that word, which may have a value behind '='. NULL: none. */
static const struct option *find_long(const struct arguments *a, const char *word)
{
    for (const struct option *o = options; o < options + n_options; o++) {
        const size_t size = strlen(o->name);
        if (strncmp(word, o->name, size) == 0 && is_visible(o, a) &&
            (word[size] == 0 || (has_value(o) && word[size] == '=')))
            return o;
    }
    return NULL;
}

/* Options and words of other tools, and what lmc has instead of them. */
static const struct {
    const char *names, *says; /* each name with a space on both sides */
} habits[] = {
    {" -j --jobs --nproc ", "-T sets the number of threads"},
    {" --level --best --ultra ", "levels are --fast, --max and --archive"},
    {" -C --directory ", "-o names the output"},
    {" x -x --extract --restore ", "-d restores"},
    {" --include ", "--exclude leaves out, and lmc -d DIR.lmc PATH... restores parts"},
    {" -n --dry-run ", "nothing is removed without --rm, and nothing is replaced without -f; in a "
                       "series, prune and gc have --dry-run"},
    {" --svg ",
     "'python -m lmc_integrations.stats PREFIX SNAPSHOT...' draws the pictures, with matplotlib"},
    {" dump ", "'python3 spec/dump.py FILE.lmc' in the sources of lmc prints every field, see 'lmc "
               "help dump'"},
};

/* What lmc has instead of that option or word of other tools; NULL: nothing is known. */
static const char *find_habit(const char *name)
{
    char wanted[80];
    snprintf(wanted, sizeof wanted, " %.70s ", name);
    for (size_t i = 0; i < sizeof habits / sizeof *habits; i++)
        if (strstr(habits[i].names, wanted)) return habits[i].says;
    return NULL;
}

/* The option that was probably meant: a similar one, or the only one that begins with the word. */
static const char *find_meant(const struct arguments *a, const char *word)
{
    const char *longer = NULL;
    size_t n_longer = 0;
    for (const struct option *o = options; o < options + n_options; o++) {
        if (!*o->name || !is_visible(o, a)) continue;
        if (is_near(word, o->name)) return o->name;
        if (strncmp(word, o->name, strlen(word)) != 0) continue;
        longer = o->name;
        n_longer++;
    }
    return n_longer == 1 ? longer : NULL;
}

/* name: with its dashes, and without a value */
static int fail_unknown(const struct arguments *a, const char *name)
{
    const char *meant = name[1] == '-' ? find_meant(a, name + 2) : NULL, *says = find_habit(name);
    if (says) return fail_usage(a, "there is no option '%s'; %s", name, says);
    return fail_usage(a, "there is no option '%.100s'%s%s%s", name,
                      meant ? "; did you mean '--" : "", meant ? meant : "", meant ? "'?" : "");
}

/* "-dcf", "-T4", "-oOUT", "-o OUT". */
static int read_letters(struct reading *r, const char *letters)
{
    int code = CODE_OK;
    for (; *letters && code == CODE_OK && !r->a->is_done; letters++) {
        const struct option *o = find_letter(r->a, *letters);
        const char name[] = {'-', *letters, 0};
        if (*letters >= '0' && *letters <= '9')
            return fail_usage(r->a,
                              "there are no levels such as '-%s', but --fast, --max and --archive",
                              letters);
        if (!o) return fail_unknown(r->a, name);
        if (has_value(o)) return take_option(r, o, letters[1] ? letters + 1 : NULL);
        code = take_option(r, o, NULL);
    }
    return code;
}

/* word: what follows "--": "force", "output=OUT", or "output" before OUT. */
static int read_word(struct reading *r, const char *word)
{
    const struct option *o = find_long(r->a, word);
    const size_t size = o ? strlen(o->name) : 0;
    if (o) return take_option(r, o, word[size] ? word + size + 1 : NULL);
    char *name = copy_string(word - 2, strcspn(word, "=") + 2);
    int code = fail_unknown(r->a, name);
    free(name);
    return code;
}

static int read_all(struct reading *r)
{
    int only_names = 0, code = CODE_OK; /* only_names: after "--" */
    for (; r->at < r->argc && code == CODE_OK && !r->a->is_done; r->at++) {
        char *text = r->argv[r->at];
        if (r->at == r->verb_at) continue;
        if (only_names || text[0] != '-' || text[1] == 0) r->a->o.names[r->a->o.n_names++] = text;
        else if (strcmp(text, "--") == 0) only_names = 1;
        else if (text[1] == '-') code = read_word(r, text + 2);
        else code = read_letters(r, text + 1);
    }
    return code;
}

/* The series command of that word; N_VERBS: there is none. */
static enum verb command_of_word(const char *word)
{
    int verb = VERB_SERIES_ADD;
    while (verb < N_VERBS && strcmp(word, verbs[verb].command) != 0) verb++;
    return (enum verb)verb;
}

/* The series command that was probably meant; NULL: nothing is known. */
static const char *find_meant_command(const char *word)
{
    static const struct {
        const char *words, *command;
    } habits_of_series[] = {
        {" ls log show status info history du size ", "list"},
        {" extract get checkout ", "restore"},
        {" rm remove delete forget expire ", "prune"},
        {" clean ", "gc"},
        {" test check fsck ", "verify"},
        {" commit put append init compress ", "add"},
    };
    char wanted[80];
    snprintf(wanted, sizeof wanted, " %.70s ", word);
    for (size_t i = 0; i < sizeof habits_of_series / sizeof *habits_of_series; i++)
        if (strstr(habits_of_series[i].words, wanted)) return habits_of_series[i].command;
    for (int verb = VERB_SERIES_ADD; verb < N_VERBS; verb++)
        if (is_near(word, verbs[verb].command)) return verbs[verb].command;
    return NULL;
}

/* Removes the directory and the command from the names of lmc series. A directory alone is listed.
 */
static int find_command(struct arguments *a)
{
    const int is_alone = a->o.n_names == 1;
    const char *const word = a->o.n_names ? a->o.names[!is_alone] : "", *meant;
    if (a->o.n_names == 0) {
        say(NULL, "usage: lmc series DIR VERB ...");
        return fail_usage(a, "wrong number of arguments");
    }
    a->verb = is_alone ? VERB_SERIES_LIST : command_of_word(word);
    if (is_alone && access(word, F_OK) != 0 && command_of_word(word) < N_VERBS)
        return fail_usage(a, "the directory comes before the command: 'lmc series DIR %s'", word);
    if (a->verb == N_VERBS) {
        a->verb = VERB_SERIES_ADD;
        meant = find_meant_command(word);
        return fail_usage(a,
                          "'%s' is an unknown series command%s%s%s; after the directory comes add, "
                          "list, restore, cat, prune, keep, gc, verify, watch or rebuild",
                          word, meant ? ", did you mean '" : "", meant ? meant : "",
                          meant ? "'?" : "");
    }
    a->o.directory = a->o.names[0];
    a->o.names += 2 - is_alone;
    a->o.n_names -= 2 - (size_t)is_alone;
    return CODE_OK;
}

/* -- checks -- */

static int check_number(const struct arguments *a)
{
    const struct verb_row *v = &verbs[a->verb];
    const int is_wrong = a->o.n_names < v->least || a->o.n_names > v->most;
    if (!is_wrong && !(a->verb == VERB_FOLD && a->bases.n == 0) &&
        !(a->verb == VERB_REBASE && !a->o.onto))
        return CODE_OK;
    say_usage(a->verb);
    return is_series(a) ? fail_usage(a, "wrong number of arguments") : refer_to_help(a);
}

/* Finds whether the later names of lmc -d are snapshots, or paths in the first one. */
static int find_parts(struct arguments *a)
{
    size_t n_snapshots = 0;
    for (size_t i = 0; a->verb == VERB_RESTORE && i < a->o.n_names; i++) {
        const size_t is_snapshot = i == 0 || is_named_snapshot(a->o.names[i]);
        n_snapshots += is_snapshot;
        a->o.n_parts += !is_snapshot;
    }
    if (a->o.n_parts && n_snapshots > 1)
        return fail_usage(a, "name one snapshot, and after it the paths to restore");
    if (a->verb == VERB_RESTORE && !a->o.n_parts && !a->bases.n && a->o.links == LINKS_FOLLOW)
        return fail_usage(a, "--dereference is for compressing, and for 'lmc -d DIR.lmc PATH...'");
    if (a->o.n_parts && (a->o.remove_source || a->o.recursive))
        return fail_usage(a, "--rm and -r are for whole snapshots, not for parts of one");
    if (a->o.remove_source && a->o.links == LINKS_FOLLOW)
        return fail_usage(a, "--rm does not remove what links lead to, which --dereference takes; "
                             "leave out one of them");
    return CODE_OK;
}

/* Checks options for the output. */
static int check_output_options(const struct arguments *a)
{
    const char *output = a->o.output;
    int to_stdout = a->o.to_stdout;
    if (a->verb == VERB_SALVAGE && output && is_dash(output))
        return fail_usage(a, "'lmc salvage' needs a directory for its output");
    if ((a->verb == VERB_FOLD || a->verb == VERB_REBASE) && !output && !to_stdout)
        return fail_usage(a, "'lmc %s' needs -o with the name of the output, or -c",
                          verbs[a->verb].word);
    if (output && a->o.n_names - a->o.n_parts > 1 && a->verb <= VERB_LIST &&
        !names_directory(&a->o))
        return fail_usage(a, "-o names one output, but there are several inputs; if it is a "
                             "directory for all outputs, end it with a slash");
    if (output && a->o.recursive) return fail_usage(a, "-o and -r exclude each other");
    if (output && to_stdout && !is_dash(output))
        return fail_usage(a, "-o and -c exclude each other");
    if (a->verb == VERB_COMPRESS && to_stdout && (a->o.n_names > 1 || a->o.recursive))
        return fail_usage(
            a,
            "-c compresses only one input: several snapshots one after another cannot be restored");
    return CODE_OK;
}

/* Refuses combinations that make no sense, or that would lose something. */
static int check_combinations(const struct arguments *a)
{
    const struct options *o = &a->o;
    const unsigned no_dash = V(FOLD) | V(REBASE) | V(VERIFY) | V(SALVAGE) | V(MOUNT);
    int has_dash = 0;
    for (size_t i = 0; i < a->o.n_names; i++) has_dash |= is_dash(a->o.names[i]);
    if (a->verb == VERB_CAT && a->o.n_names > 2 && !a->o.safetensors)
        return fail_usage(a, "several tensors need a file with names: use --safetensors");
    if (a->o.file && a->o.n_names == 1 && !a->o.safetensors && !a->o.npy && !a->o.f32)
        return fail_usage(a, "--file needs a tensor, too; 'lmc -dc FILE.lmc PATH' writes the bytes "
                             "of a file");
    if (o->json && o->top) return fail_usage(a, "--json prints all tensors; leave out --top");
    if (a->o.npy && a->o.safetensors)
        return fail_usage(a, "--npy and --safetensors exclude each other");
    if (has_dash && (no_dash >> a->verb & 1))
        return fail_usage(a, "'lmc %s' needs files, not standard input", verbs[a->verb].word);
    if (o->foreground && o->log)
        return fail_usage(a, "with -f messages go to standard error; leave out --log");
    if (o->opaque && o->dtype != LMC_AUTO)
        return fail_usage(a, "--opaque and --dtype exclude each other");
    if ((o->opaque || o->dtype != LMC_AUTO) && !(LOOKERS >> a->verb & 1) && a->bases.n == 0)
        return fail_usage(a, "--opaque and --dtype are for compressing, and for reading a base");
    if (!a->o.remove_source) return CODE_OK;
    if (o->n_excluded)
        return fail_usage(a,
                          "--rm removes what the snapshot holds, and --exclude leaves some of it "
                          "out; leave out one of the two");
    if (is_lossy(&a->policy))
        return fail_usage(a, "--rm would remove the only exact copy of what is quantised; leave it "
                             "out, and remove the source yourself");
    if (o->to_stdout || (o->output && is_dash(o->output)))
        return fail_usage(a, "--rm needs an output file that can be read back");
    if ((has_dash || a->o.n_names == 0) && !is_series(a))
        return fail_usage(a, "--rm cannot remove standard input");
    return CODE_OK;
}

/* Refuses empty names of files (as "$x" is if x is not set), and a verb instead of a file. */
static int check_names(const struct arguments *a)
{
    const size_t n_files = a->verb == VERB_CAT || a->verb == VERB_SERIES_CAT ? 1 : a->o.n_names;
    int is_empty = is_series(a) && !*a->o.directory;
    for (size_t i = 0; i < n_files && i < a->o.n_names; i++) is_empty |= !*a->o.names[i];
    if (is_empty) return fail_usage(a, "a name is empty: ''; is a variable of the shell not set?");
    for (size_t i = 1; i < a->o.n_names && a->verb <= VERB_LIST; i++)
        if (is_verb(a->o.names[i]) && access(a->o.names[i], F_OK) != 0)
            return fail_usage(a, "'%s' is a command: it comes before the files", a->o.names[i]);
    return CODE_OK;
}

static int check_arguments(struct arguments *a, uint64_t given)
{
    int code = CODE_OK;
    for (size_t i = 0; i < n_options && code == CODE_OK; i++)
        if ((given >> i & 1) && !(options[i].verbs >> a->verb & 1))
            code = fail_option(a, &options[i]);
    if (code == CODE_OK) code = check_names(a);
    if (code == CODE_OK) code = check_number(a);
    if (code == CODE_OK) code = find_parts(a);
    if (code == CODE_OK) code = check_output_options(a);
    return code == CODE_OK ? check_combinations(a) : code;
}

/* -- the verb -- */

/* The next argument behind `at` that is not an option's value. The verb is not known yet. */
static int next_argument(const struct reading *r, int at)
{
    const char *text = r->argv[at];
    const struct option *o;
    if (text[0] != '-' || text[1] == 0) return at + 1;
    if (text[1] == '-') {
        o = find_long(r->a, text + 2);
        return at + 1 + (o && has_value(o) && text[2 + strlen(o->name)] == 0);
    }
    for (text++; *text; text++) {
        o = find_letter(r->a, *text);
        if (o && has_value(o)) return at + (text[1] ? 1 : 2);
    }
    return at + 1;
}

/* The index of the first argument that is not an option; 0: there is none before "--". */
static int find_first_name(const struct reading *r)
{
    for (int at = 1; at < r->argc; at = next_argument(r, at)) {
        if (strcmp(r->argv[at], "--") == 0) return 0;
        if (r->argv[at][0] != '-' || r->argv[at][1] == 0) return at;
    }
    return 0;
}

/* Refuses a word that is neither a verb nor a file: what follows must not be compressed by mistake.
 * But if the word follows options and is alone, it is a missing file: "lmc -d model". */
static int check_word(const struct reading *r)
{
    const char *const word = r->word, *near = NULL, *series = "", *says = find_habit(word);
    const size_t n = strlen(word);
    if (access(word, F_OK) == 0) return CODE_OK;
    if (says) return fail_usage(r->a, "'%s' is neither a command nor a file; %s", word, says);
    if (n < 2 || n > 20 || strspn(word, "abcdefghijklmnopqrstuvwxyz-") != n) return CODE_OK;
    for (int verb = VERB_CAT; verb <= VERB_SERIES_ADD && !near; verb++)
        if (is_near(word, verbs[verb].word)) near = verbs[verb].word;
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases && !near; i++)
        if (is_near(word, aliases[i].word)) near = aliases[i].word;
    for (int verb = VERB_SERIES_ADD; verb < N_VERBS && !near; verb++)
        if (strcmp(word, verbs[verb].command) == 0) {
            near = word;
            series = "lmc series DIR ";
        }
    if (!near && !r->is_wrong) return CODE_OK;
    return fail_usage(r->a, "'%s' is neither a command nor a file%s%s%s%s", word,
                      near ? "; did you mean '" : "", series, near ? near : "", near ? "'?" : "");
}

/* Finds the verb: the first argument that is not an option. */
static int find_verb(struct reading *r)
{
    struct arguments *a = r->a;
    const int at = find_first_name(r);
    const char *word = at ? r->argv[at] : "";
    const enum verb verb = verb_of_word(word);
    if (!at) return CODE_OK;
    if (verb == N_VERBS) {
        r->word = word;
        r->is_wrong = at == 1 || next_argument(r, at) < r->argc;
        return CODE_OK;
    }
    if (verb <= VERB_LIST) {
        if (next_argument(r, at) >= r->argc && access(word, F_OK) == 0)
            return fail_usage(
                a, "'%s' is a command, and there is a file of that name; for the file write ./%s",
                word, word);
        r->mode = word;
        a->has_word = 1;
    }
    a->verb = verb;
    r->verb_at = at;
    return CODE_OK;
}

/* Sets what the name of the program (unlmc, lmccat) selects. */
static void set_defaults(struct reading *r)
{
    struct arguments *a = r->a;
    const char *path = r->argc ? r->argv[0] : "lmc", *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    memset(a, 0, sizeof *a);
    a->o.names = r->argv;
    a->o.bases = &a->bases;
    a->o.verbosity = 1;
    a->o.policy = &a->policy;
    a->progress = -1;
    a->o.settle = 10;
    a->o.interval = 2;
    a->o.to_stdout = strcmp(name, "lmccat") == 0;
    if (a->o.to_stdout || strcmp(name, "unlmc") == 0) a->verb = VERB_RESTORE;
    r->at = 1;
}

static int is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* word: a topic, a verb or an alias */
static int help_on(const char *word)
{
    const enum verb verb = verb_of_word(word);
    if (verb > VERB_COMPRESS && verb < N_VERBS) word = verbs[verb].topic;
    return print_help(
        is_help(word) || strcmp(word, "help") == 0 || strcmp(word, "version") == 0 ? "" : word);
}

/* Handles "lmc help TOPIC" and "lmc version", also after options. 1: it was one of these. */
static int answer(const struct reading *r, int *code)
{
    const int at = find_first_name(r);
    const char *word = at ? r->argv[at] : "";
    if (strcmp(word, "help") == 0) *code = help_on(at + 1 < r->argc ? r->argv[at + 1] : "");
    else if (strcmp(word, "version") != 0) return 0;
    else if (at + 2 == r->argc && is_help(r->argv[at + 1])) *code = print_help("");
    else if (at + 1 == r->argc) *code = print_version();
    else
        *code = fail(CODE_USAGE, NULL,
                     "'lmc version' takes no files; to compress one of that name, write ./version");
    return 1;
}

int read_arguments(struct arguments *a, int argc, char **argv)
{
    struct reading r = {0};
    int code;
    r.a = a;
    r.argc = argc;
    r.argv = argv;
    set_defaults(&r);
    if (answer(&r, &code)) {
        a->is_done = 1;
        return code;
    }
    code = find_verb(&r);
    if (code == CODE_OK) code = read_all(&r);
    if (code == CODE_OK && !a->is_done && r.word) code = check_word(&r);
    if (code == CODE_OK && !a->is_done && is_series(a)) code = find_command(a);
    if (code == CODE_OK && !a->is_done) code = check_arguments(a, r.given);
    return code;
}

void free_arguments(struct arguments *a)
{
    free_bases(&a->bases);
    free_policy(&a->policy);
    free((void *)a->o.keep);
    free((void *)a->o.excluded);
}
