/* verify.c - lmc verify: whole chains of deltas, each link decoded once
 * SPDX-License-Identifier: MIT
 *
 * The files form a forest: the children of a snapshot are the deltas that are made against it. The
 * forest is walked from the roots. A snapshot with children is restored to a scratch file, which is
 * the base of the children, and is removed after the last child. The last child is that with the
 * largest tree below it. A chain needs two scratch files at a time, for parent and child, and one
 * more where it branches.
 */
#include "verbs.h"

#include "../format/json.h"
#include "../format/print.h"
#include "../input/base.h"
#include "../input/reread.h"
#include "../sys/io.h"
#include "../sys/temporary.h"

struct node {
    const char *name;
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE], wanted[LMC_FINGERPRINT_SIZE];
    int is_delta;
    uint32_t depth;         /* see measure_depths() */
    char *made_with;        /* name of its base; NULL: not stored */
    int is_placed;          /* all snapshots of its chain were found */
    struct node *parent;    /* NULL: a root */
    const lmc_base *base;   /* of a root that is a delta: a base that is none of the files */
    struct node **children; /* in verification.children, the heaviest one last */
    size_t n_children;
    size_t weight; /* number of nodes in its tree, itself included */
};

struct verification {
    const struct options *o;
    struct node *nodes;
    size_t n;
    struct catalog catalog; /* all files whose index was read */
    struct node **order;    /* the same files, parents before children (except in loops) */
    size_t n_readable;
    struct node **children;
    int code;
};

/* A verified snapshot whose files are in a scratch file, one after another. */
struct stage {
    struct reread again; /* if there is no scratch file */
    struct replica copy;
    size_t cap; /* for copy.starts */
    struct archive archive;
    struct outlet outlet;
    const struct options *o;
    int code; /* exit code of an error in writing */
};

/* -- the scratch file -- */

static enum lmc_status stage_begin(void *user, const lmc_file *file, size_t number)
{
    struct stage *stage = (struct stage *)user;
    (void)file;
    stage->copy.starts =
        (uint64_t *)grow(stage->copy.starts, number, &stage->cap, sizeof *stage->copy.starts);
    stage->copy.starts[number] = stage->outlet.size;
    return LMC_OK;
}

static enum lmc_status stage_write(void *user, const void *data, size_t size)
{
    struct stage *stage = (struct stage *)user;
    int error = outlet_write(&stage->outlet, data, size);
    if (error) stage->code = fail_scratch(error);
    return error ? LMC_ERR_WRITE : LMC_OK;
}

/* Reads files of the snapshot, for deltas against it and for its own twins. */
static enum lmc_status stage_read(void *user, size_t number, uint64_t offset, void *dst,
                                  size_t size)
{
    struct stage *stage = (struct stage *)user;
    return stage->copy.starts
               ? read_replica(&stage->copy, number, offset, dst, size, &stage->o->bases->code)
               : read_again(&stage->again, number, offset, dst, size);
}

static const lmc_file *stage_get_file(void *user, size_t number)
{
    return lmc_reader_get_file(((struct stage *)user)->archive.reader, number);
}

static void open_stage(struct stage *stage, const struct options *o)
{
    memset(stage, 0, sizeof *stage);
    stage->archive.fd = -1;
    stage->o = o;
}

static void close_stage(struct stage *stage)
{
    free_replica(&stage->copy);
    close_archive(&stage->archive);
    open_stage(stage, stage->o);
}

/* -- the forest -- */

static int compare_depths(const void *a, const void *b)
{
    const struct node *x = *(struct node *const *)a, *y = *(struct node *const *)b;
    if (x->depth != y->depth) return x->depth < y->depth ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Puts the children of each node side by side, the heaviest one last. */
static int compare_children(const void *a, const void *b)
{
    const struct node *x = *(struct node *const *)a, *y = *(struct node *const *)b;
    if (x->parent != y->parent) return x->parent < y->parent ? -1 : 1;
    if (x->weight != y->weight) return x->weight < y->weight ? -1 : 1;
    return x < y ? -1 : x > y;
}

static void read_node(struct verification *v, struct node *node)
{
    struct archive a;
    int code = open_archive_index(&a, node->name, v->o);
    node->depth = UINT32_MAX;
    if (code == CODE_OK) {
        snapshot_fingerprint(a.reader, node->fingerprint);
        memcpy(node->wanted, a.wanted, LMC_FINGERPRINT_SIZE);
        node->is_delta = a.is_delta;
        node->made_with = copy_metadata(&a, BASE_KEY);
        v->order[v->n_readable++] = node;
        enter_snapshot(&v->catalog, node->name, 1, (size_t)(node - v->nodes));
    }
    close_archive(&a);
    if (code != CODE_OK && v->o->json) print_verdict(node->name, code, 0);
    v->code = worse(v->code, code);
}

/* Several files can have the fingerprint that the delta wants. The one of least depth is its
 * parent, so that only deltas in a loop can be parents of each other. NULL: there is none. */
static struct node *find_parent(struct verification *v, const struct node *node)
{
    size_t n;
    const struct catalog_entry *e =
        node->is_delta ? find_entries(&v->catalog, node->wanted, &n) : NULL;
    return e && (e->depth < node->depth || node->depth == UINT32_MAX) ? &v->nodes[e->number] : NULL;
}

/* Finds the base of a delta outside of the files. node->base stays NULL if there is none. */
static int find_outside(const struct verification *v, struct node *node)
{
    struct archive a;
    struct base *b = NULL;
    int code = open_archive_file(&a, node->name, v->o);
    if (code == CODE_OK && !v->o->bases->is_off) b = find_base(&a, v->o, &code);
    close_archive(&a);
    if (b && code == CODE_OK) code = prepare_base(b, v->o);
    if (b && code == CODE_OK) node->base = &b->source;
    return code;
}

static void build_forest(struct verification *v)
{
    int code = CODE_OK;
    size_t n = 0;
    for (size_t i = 0; i < v->n; i++) read_node(v, &v->nodes[i]);
    (void)find_entries(&v->catalog, v->nodes->wanted, &n); /* only to measure the depths */
    for (size_t i = 0; i < v->catalog.n; i++)
        v->nodes[v->catalog.list[i].number].depth = v->catalog.list[i].depth;
    if (v->n_readable) qsort((void *)v->order, v->n_readable, sizeof *v->order, compare_depths);
    for (size_t i = 0; i < v->n_readable; i++) {
        struct node *const node = v->order[i];
        node->parent = find_parent(v, node);
        if (node->is_delta && !node->parent && code == CODE_OK) code = find_outside(v, node);
        node->is_placed =
            !node->is_delta || node->base || (node->parent && node->parent->is_placed);
    }
    v->code = worse(v->code, code);
    n = 0;
    for (size_t i = v->n_readable; i && i--;) {
        struct node *const node = v->order[i];
        node->weight++;
        if (!node->parent) continue;
        node->parent->weight += node->weight;
        v->children[n++] = node;
    }
    if (n) qsort((void *)v->children, n, sizeof *v->children, compare_children);
    for (size_t i = 0; i < n; i++)
        if (v->children[i]->parent->n_children++ == 0)
            v->children[i]->parent->children = &v->children[i];
}

/* -- what could not be verified -- */

#define NOT_VERIFIED "only its payload was verified: it needs %s"

/* A missing base may be a file that is too damaged to tell its fingerprint. So if a file is
 * damaged, the exit code is CODE_CORRUPT. */
static void report_unplaced(struct verification *v)
{
    enum exit_code code = v->code == CODE_CORRUPT ? CODE_CORRUPT : CODE_BASE;
    const struct node *last = NULL;
    int is_missing = 0;
    for (size_t i = 0; i < v->n_readable; i++) {
        const struct node *const node = v->order[i], *const base = node->parent;
        char *wanted;
        if (node->is_placed) continue;
        int result = check_payload(node->name, v->o);
        v->code = worse(v->code, result);
        if (result != CODE_OK) {
            if (v->o->json) print_verdict(node->name, result, 0);
            continue;
        }
        wanted = describe_base(node->wanted, node->made_with);
        if (v->o->bases->is_off) {
            if (v->o->verbosity > 0)
                say(node->name, "payload intact; content needs the base %s", wanted);
            if (v->o->json) print_verdict(node->name, CODE_OK, 1);
            free(wanted);
            continue;
        }
        if (base) fail(code, node->name, NOT_VERIFIED, base->name);
        else
            fail(code, node->name,
                 "its payload is intact, but it needs the base %s, which is none of the files%s",
                 wanted,
                 code == CODE_CORRUPT     ? ", unless it is a damaged one"
                 : v->o->bases->is_closed ? "; give it, too, or name it with --base PATH"
                                          : "; give it, too, or name it with --base PATH or "
                                            "--search DIR");
        free(wanted);
        if (v->o->json) print_verdict(node->name, CODE_BASE, 0);
        is_missing |= !base;
        last = node;
    }
    if (last && !is_missing)
        code = (enum exit_code)fail(CODE_BASE, last->name,
                                    "is a delta that needs itself: the bases form a loop");
    if (last) v->code = worse(v->code, (int)code);
}

/* -- the walk -- */

static void say_ok(const struct verification *v, const struct node *node)
{
    char fingerprint[2 * SHORT_FINGERPRINT + 1], wanted[2 * SHORT_FINGERPRINT + 1];
    if (v->o->verbosity >= 2)
        say(node->name, "ok, %s, %s%s",
            format_hex(fingerprint, node->fingerprint, SHORT_FINGERPRINT),
            node->is_delta ? "base " : "no base",
            node->is_delta ? format_hex(wanted, node->wanted, SHORT_FINGERPRINT) : "");
}

/* Checks the whole file. On return, the stage has what the children of the node need. */
static int restore_node(struct verification *v, const struct node *node, const lmc_base *base,
                        struct stage *stage)
{
    struct source s;
    lmc_restore_options options = LMC_RESTORE_OPTIONS();
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE];
    int code = open_listed(&s, node->name);
    v->o->bases->code = CODE_OK;
    open_stage(stage, v->o);
    init_reread(&stage->again, &s, base, v->o);
    if (code == CODE_OK && node->n_children) {
        code = open_scratch(v->nodes->name, &stage->copy.fd);
        if (code == CODE_OK) /* so that the scratch file is closed */
            stage->copy.starts = (uint64_t *)grow(NULL, 0, &stage->cap, sizeof(uint64_t));
        stage->outlet.fd = stage->copy.fd;
        options.begin_file = stage_begin;
        options.write = stage_write;
    }
    if (code == CODE_OK) {
        options.read_back = stage_read;
        progress_start(s.name, s.size);
        enum lmc_status status = restore_source(&stage->again, &options, fingerprint);
        progress_clear();
        code = stage->code;
        if (code == CODE_OK && status != LMC_OK) code = fail_restore(&stage->again, status);
        if (code == CODE_OK) code = check_has_hashes(&stage->again);
    }
    if (code == CODE_OK && !same_fingerprint(fingerprint, node->fingerprint))
        code = fail_changed(node->name);
    if (code == CODE_OK && node->n_children)
        code = open_archive_of_source(&stage->archive, &s, v->o);
    if (code == CODE_OK && node->n_children) code = read_archive_index(&stage->archive, NULL);
    close_reread(&stage->again);
    close_source(&s);
    return code;
}

/* Verifies the node, whose base is `base` (NULL: none), and all nodes below it. blocker: NULL, or a
 * file that the node needs and that could not be verified. The last child, the heaviest, needs no
 * call: so calls nest no deeper than the logarithm of the number of nodes. */
static void verify_below(struct verification *v, const struct node *node, const lmc_base *base,
                         const char *blocker)
{
    struct stage stages[2]; /* of the node and of its parent */
    int now_at = 0;
    lmc_base own;
    open_stage(&stages[0], v->o);
    open_stage(&stages[1], v->o);
    for (;;) {
        struct stage *stage = &stages[now_at];
        int code = blocker ? check_payload(node->name, v->o) : restore_node(v, node, base, stage);
        close_stage(&stages[1 - now_at]);
        v->code = worse(v->code, code);
        const int is_payload = code == CODE_OK && blocker;
        if (is_payload) fail(CODE_ERROR, node->name, NOT_VERIFIED, blocker);
        else if (code == CODE_OK) say_ok(v, node);
        if (v->o->json) print_verdict(node->name, is_payload ? CODE_ERROR : code, is_payload);
        if (code != CODE_OK && !blocker) blocker = node->name;
        if (blocker || node->n_children == 0) close_stage(stage);
        if (node->n_children == 0) return;
        if (!blocker) {
            const lmc_base of_stage = {snapshot_info(stage->archive.reader).n_files,
                                       stage_get_file,
                                       stage_read,
                                       stage,
                                       {0, 0}};
            own = of_stage;
            base = &own;
        }
        for (size_t i = 0; i + 1 < node->n_children; i++)
            verify_below(v, node->children[i], base, blocker);
        node = node->children[node->n_children - 1];
        now_at = 1 - now_at;
    }
}

int verify_files(const struct options *o)
{
    const size_t n = o->n_names;
    struct verification v = {0};
    int code;
    v.o = o;
    v.n = n;
    v.nodes = (struct node *)zeroed(n, sizeof *v.nodes);
    v.order = (struct node **)resize(NULL, n, sizeof *v.order);
    v.children = (struct node **)resize(NULL, n, sizeof *v.children);
    for (size_t i = 0; i < n; i++) v.nodes[i].name = o->names[i];
    build_forest(&v);
    report_unplaced(&v);
    for (size_t i = 0; i < v.n_readable; i++)
        if (v.order[i]->is_placed && !v.order[i]->parent)
            verify_below(&v, v.order[i], v.order[i]->base, NULL);
    code = worse(v.code, check_bases(o));
    for (size_t i = 0; i < n; i++) free(v.nodes[i].made_with);
    free(v.nodes);
    free_catalog(&v.catalog);
    free((void *)v.order);
    free((void *)v.children);
    return code;
}
