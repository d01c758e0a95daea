/* verify.c - lmc verify: whole chains of deltas, each link decoded once
 * SPDX-License-Identifier: MIT
 *
 * The files make a forest: below each snapshot stand the deltas that are made against it. It is
 * walked from the roots. What has others below it is restored to a scratch file, from which these
 * get their base; this is closed, and thereby gone, when the last of them was restored. That one is
 * the child with the most below it: of a chain there are two scratch files at a time, and one more
 * where it branches.
 */
#include "verbs.h"

#include "../format/print.h"
#include "../input/base.h"
#include "../input/second_look.h"
#include "../sys/io.h"
#include "../sys/temporary.h"

struct node {
    const char *name;
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE], wanted[LMC_FINGERPRINT_SIZE];
    int is_delta, is_readable; /* its index */
    char *made_with;           /* what its base was called; NULL: it does not say */
    int is_placed;
    struct node *parent;    /* NULL: a root */
    const lmc_base *base;   /* of a root that is a delta: from outside of the files */
    struct node **children; /* in verification.by_wanted, the one with the most below it last */
    size_t n_children;
    size_t weight; /* nodes of the tree below, itself included */
};

struct verification {
    const struct options *o;
    struct node *nodes;
    size_t n;
    struct node **by_wanted; /* the deltas */
    size_t n_deltas;
    struct node **order; /* what is placed, parents first */
    size_t n_placed;
    int code;
};

/* A verified snapshot: its files one after another. */
struct stage {
    struct second_look again; /* without scratch file */
    int fd;                   /* of the scratch file; -1: there is none */
    struct archive archive;
    struct outlet outlet;
    uint64_t *starts; /* of the files */
    size_t room;
    const struct options *o;
    int code; /* what writing has reported */
};

/* -- the scratch file -- */

static enum lmc_status stage_begin(void *user, const lmc_file *file, size_t number)
{
    struct stage *stage = (struct stage *)user;
    (void)file;
    stage->starts = (uint64_t *)grow(stage->starts, number, &stage->room, sizeof *stage->starts);
    stage->starts[number] = stage->outlet.size;
    return LMC_OK;
}

static enum lmc_status stage_write(void *user, const void *data, size_t size)
{
    struct stage *stage = (struct stage *)user;
    int error = outlet_write(&stage->outlet, data, size);
    if (error) stage->code = fail_replica(error);
    return error ? LMC_ERR_WRITE : LMC_OK;
}

/* For what is written against it, and for its own twins. */
static enum lmc_status stage_read(void *user, size_t number, uint64_t offset, void *dst,
                                  size_t size)
{
    struct stage *stage = (struct stage *)user;
    if (stage->fd < 0) return read_second_look(&stage->again, number, offset, dst, size);
    int error = read_at(stage->fd, stage->starts[number] + offset, dst, size);
    if (error) stage->o->bases->code = fail_replica(error < 0 ? EIO : error);
    return error ? LMC_ERR_READ : LMC_OK;
}

static const lmc_file *stage_get_file(void *user, size_t number)
{
    return lmc_reader_get_file(((struct stage *)user)->archive.reader, number);
}

static void open_stage(struct stage *stage, const struct options *o)
{
    memset(stage, 0, sizeof *stage);
    stage->fd = stage->archive.fd = -1;
    stage->o = o;
}

static void close_stage(struct stage *stage)
{
    if (stage->fd >= 0) close(stage->fd);
    close_archive(&stage->archive);
    free(stage->starts);
    open_stage(stage, stage->o);
}

/* -- the forest -- */

/* The nodes stand in one array: of equal ones, the first comes first. */
static int compare_wanted(const void *a, const void *b)
{
    const struct node *x = *(struct node *const *)a, *y = *(struct node *const *)b;
    int order = memcmp(x->wanted, y->wanted, LMC_FINGERPRINT_SIZE);
    return order ? order : x < y ? -1 : x > y;
}

static int compare_weights(const void *a, const void *b)
{
    const struct node *x = *(struct node *const *)a, *y = *(struct node *const *)b;
    if (x->weight != y->weight) return x->weight < y->weight ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Places a root, and everything that stands on it. */
static void place_tree(struct verification *v, struct node *root)
{
    size_t next = v->n_placed;
    v->order[v->n_placed++] = root;
    root->is_placed = 1;
    for (; next < v->n_placed; next++) {
        struct node *parent = v->order[next];
        size_t i;
        FIND_FIRST(i, v->n_deltas,
                   memcmp(v->by_wanted[i]->wanted, parent->fingerprint, LMC_FINGERPRINT_SIZE) < 0);
        parent->children = v->by_wanted + i;
        for (; i < v->n_deltas; i++) {
            struct node *child = v->by_wanted[i];
            if (memcmp(child->wanted, parent->fingerprint, LMC_FINGERPRINT_SIZE) != 0) break;
            if (child->is_placed) { /* it stands before those that are placed now */
                v->by_wanted[i] = parent->children[0];
                *parent->children++ = child;
                continue;
            }
            child->is_placed = 1;
            child->parent = parent;
            parent->n_children++;
            v->order[v->n_placed++] = child;
        }
    }
}

/* A delta that changes nothing restores the fingerprint that it wants itself. It is no base for
 * another such delta. */
static const struct node *find_wanted(const struct verification *v, const struct node *node)
{
    const int is_same = memcmp(node->fingerprint, node->wanted, LMC_FINGERPRINT_SIZE) == 0;
    for (size_t i = 0; i < v->n; i++)
        if (v->nodes[i].is_readable &&
            !(is_same && memcmp(v->nodes[i].wanted, node->wanted, LMC_FINGERPRINT_SIZE) == 0) &&
            memcmp(v->nodes[i].fingerprint, node->wanted, LMC_FINGERPRINT_SIZE) == 0)
            return &v->nodes[i];
    return NULL;
}

/* Whole snapshots are roots, and deltas whose base is none of the files but one that was given. */
static void place_all(struct verification *v)
{
    int code = CODE_OK;
    for (size_t i = 0; i < v->n; i++)
        if (v->nodes[i].is_readable && !v->nodes[i].is_delta) place_tree(v, &v->nodes[i]);
    for (size_t i = 0; i < v->n && code == CODE_OK; i++) {
        struct node *node = &v->nodes[i];
        struct archive a;
        struct base *b = NULL;
        if (!node->is_readable || node->is_placed) continue;
        const struct node *among = find_wanted(v, node);
        if (among && among != node) continue; /* which is not placed either, and says why */
        code = open_archive_file(&a, node->name, v->o);
        if (code == CODE_OK && !v->o->bases->is_off) b = find_base(&a, v->o, &code);
        close_archive(&a);
        if (b && code == CODE_OK) code = prepare_base(b, v->o);
        if (b && code == CODE_OK) {
            node->base = &b->source;
            place_tree(v, node);
        }
    }
    v->code = worse(v->code, code);
}

/* Counts what is below each node, and sorts the children of each by that. */
static void weigh_nodes(struct verification *v)
{
    for (size_t i = v->n_placed; i-- > 0;) { /* children before their parents */
        struct node *node = v->order[i];
        if (node->n_children)
            qsort((void *)node->children, node->n_children, sizeof *node->children,
                  compare_weights);
        node->weight++;
        if (node->parent) node->parent->weight += node->weight;
    }
}

static void read_node(struct verification *v, struct node *node)
{
    struct archive a;
    int code = open_archive_index(&a, node->name, v->o);
    if (code == CODE_OK) {
        snapshot_fingerprint(a.reader, node->fingerprint);
        memcpy(node->wanted, a.wanted, LMC_FINGERPRINT_SIZE);
        node->is_delta = a.is_delta;
        node->made_with = copy_metadata(&a, BASE_KEY);
        node->is_readable = 1;
    }
    close_archive(&a);
    v->code = worse(v->code, code);
}

static void build_forest(struct verification *v)
{
    for (size_t i = 0; i < v->n; i++) {
        read_node(v, &v->nodes[i]);
        if (v->nodes[i].is_readable && v->nodes[i].is_delta)
            v->by_wanted[v->n_deltas++] = &v->nodes[i];
    }
    if (v->n_deltas) qsort((void *)v->by_wanted, v->n_deltas, sizeof *v->by_wanted, compare_wanted);
    place_all(v);
    weigh_nodes(v);
}

/* -- what could not be verified -- */

#define NOT_VERIFIED "only its payload was verified: it needs %s"

/* A base that is missing may be one of the files: one that is too damaged to say which snapshot it
 * is. Then the damage is the reason. */
static void report_unplaced(struct verification *v)
{
    enum exit_code code = v->code == CODE_CORRUPT ? CODE_CORRUPT : CODE_BASE;
    const struct node *last = NULL;
    int is_missing = 0;
    for (size_t i = 0; i < v->n; i++) {
        const struct node *node = &v->nodes[i], *base;
        char *wanted;
        if (!node->is_readable || node->is_placed) continue;
        base = find_wanted(v, node);
        int result = check_payload(node->name, v->o);
        v->code = worse(v->code, result);
        if (result != CODE_OK) continue;
        wanted = describe_base(node->wanted, node->made_with);
        if (v->o->bases->is_off) {
            if (v->o->verbosity > 0)
                say(node->name, "payload intact; content needs the base %s", wanted);
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

/* Checks all of the file; what others need of it stands in the stage then. */
static int restore_node(struct verification *v, const struct node *node, const lmc_base *base,
                        struct stage *stage)
{
    struct source s;
    lmc_restore_options options = {0};
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE];
    int code = open_source(&s, node->name);
    v->o->bases->code = CODE_OK;
    open_stage(stage, v->o);
    init_second_look(&stage->again, &s, base, v->o);
    if (code == CODE_OK && node->n_children) {
        code = open_scratch(v->nodes->name, &stage->fd);
        stage->outlet.fd = stage->fd;
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
    }
    if (code == CODE_OK && memcmp(fingerprint, node->fingerprint, sizeof fingerprint) != 0)
        code = fail_changed(node->name);
    if (code == CODE_OK && node->n_children)
        code = open_archive_of_source(&stage->archive, &s, v->o);
    if (code == CODE_OK && node->n_children) code = read_archive_index(&stage->archive, NULL);
    close_second_look(&stage->again);
    close_source(&s);
    return code;
}

/* The node, with what it is made against (NULL: nothing), and all below it. blocker: what could not
 * be verified, so that this cannot be either; or NULL. The last child has the most below it: so the
 * calls are as deep as the logarithm of the number of nodes. */
static void verify_below(struct verification *v, const struct node *node, const lmc_base *base,
                         const char *blocker)
{
    struct stage stages[2]; /* of the node, and of the one above it */
    int now_at = 0;
    lmc_base own;
    open_stage(&stages[0], v->o);
    open_stage(&stages[1], v->o);
    for (;;) {
        struct stage *stage = &stages[now_at];
        int code = blocker ? check_payload(node->name, v->o) : restore_node(v, node, base, stage);
        close_stage(&stages[1 - now_at]);
        v->code = worse(v->code, code);
        if (code == CODE_OK && blocker) fail(CODE_ERROR, node->name, NOT_VERIFIED, blocker);
        else if (code == CODE_OK) say_ok(v, node);
        else if (!blocker) blocker = node->name;
        if (blocker || node->n_children == 0) close_stage(stage);
        if (node->n_children == 0) return;
        if (!blocker) {
            const lmc_base of_stage = {snapshot_info(stage->archive.reader).n_files, stage_get_file,
                                       stage_read, stage};
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
    v.by_wanted = (struct node **)resize(NULL, n, sizeof *v.by_wanted);
    v.order = (struct node **)resize(NULL, n, sizeof *v.order);
    for (size_t i = 0; i < n; i++) v.nodes[i].name = o->names[i];
    build_forest(&v);
    report_unplaced(&v);
    for (size_t i = 0; i < v.n_placed; i++)
        if (!v.order[i]->parent) verify_below(&v, v.order[i], v.order[i]->base, NULL);
    code = worse(v.code, check_bases(o));
    for (size_t i = 0; i < n; i++) free(v.nodes[i].made_with);
    free(v.nodes);
    free((void *)v.by_wanted);
    free((void *)v.order);
    return code;
}
