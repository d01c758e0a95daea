/* series_prune.c - lmc series DIR prune, keep and gc
 * SPDX-License-Identifier: MIT */
#include "verbs.h"

#include "../input/base.h"
#include "../sys/attributes.h"
#include "../sys/io.h"
#include "series_manifest.h"

/* -- prune, keep -- */

/* Marks the snapshots that the rules forget. */
static int apply_rules(struct series *s, unsigned char *marks)
{
    const struct keep_rules rules = {s->o->keep_last, s->o->keep_every, 0};
    size_t n_forgotten = 0;
    for (size_t i = 0; i < s->o->n_keep; i++) {
        struct snapshot *e;
        const int code = choose_entry(s, s->o->keep[i], STATE_KEPT, &e);
        if (code != CODE_OK) return code;
        e->stays = 1;
    }
    const size_t n_kept = choose_kept(sort_series(s, BY_STEP), s->n, &rules);
    for (size_t i = 0; i < s->n; i++)
        n_forgotten += marks[i] = s->list[i].state == STATE_KEPT && !s->list[i].stays;
    return n_kept || !n_forgotten
               ? CODE_OK
               : fail(CODE_ERROR, s->directory,
                      "these rules keep no snapshot at all; nothing was changed. To forget all "
                      "snapshots, give their names");
}

static int mark_names(const struct series *s, enum snapshot_state from, unsigned char *marks)
{
    int code = CODE_OK;
    for (size_t i = 0; i < s->o->n_names && code == CODE_OK; i++) {
        struct snapshot *e;
        code = choose_entry(s, s->o->names[i], from, &e);
        if (code == CODE_OK) marks[e - s->list] = e->state == from;
        if (code == CODE_OK && e->state != from && s->o->verbosity > 0)
            say(s->directory, "%.300s is %s already", e->name, state_names[e->state]);
    }
    return code;
}

/* Fails without -f if the next gc would leave nothing, which may be a mistake of the user. */
static int check_rest(const struct series *s, const unsigned char *marks)
{
    size_t n_marked = 0, n_kept = 0;
    for (size_t i = 0; i < s->n; i++) {
        n_marked += marks[i] != 0;
        n_kept += s->list[i].state == STATE_KEPT && !marks[i];
    }
    return n_kept || !n_marked || s->o->force
               ? CODE_OK
               : fail(CODE_ERROR, s->directory,
                      "these are all of its snapshots, and the next gc would remove them; use -f "
                      "to forget them all the same");
}

static int change_states(struct series *s, const unsigned char *marks, enum snapshot_state to)
{
    size_t n = 0;
    uint64_t size = 0;
    for (size_t i = 0; i < s->n; i++)
        if (marks[i]) {
            tell(s->o, to == STATE_KEPT ? "keep" : "forget", s->list[i].name, "", "");
            s->list[i].state = to;
            size += s->list[i].packed_size;
            n++;
        }
    if (n && to == STATE_FORGOTTEN && s->o->verbosity > 0)
        say(s->directory,
            "%llu snapshot%s, %llu bytes,%s forgotten%s; 'lmc series DIR gc' frees "
            "what nothing else needs",
            (unsigned long long)n, n == 1 ? "" : "s", (unsigned long long)size,
            s->o->dry_run ? " would be" : "", s->o->dry_run ? "" : " now");
    return n && !s->o->dry_run ? save_manifest(s) : CODE_OK;
}

static int mark_and_change(enum snapshot_state to, const struct options *o)
{
    const int forgets = to == STATE_FORGOTTEN;
    struct series s;
    int code = open_series(&s, o->dry_run ? TO_READ : TO_CHANGE, o);
    unsigned char *marks = (unsigned char *)zeroed(s.n, 1);
    unsigned char *known = (unsigned char *)zeroed(s.n + 1, 1);
    if (code == CODE_OK && o->n_names == 0) code = apply_rules(&s, marks);
    else if (code == CODE_OK) code = mark_names(&s, forgets ? STATE_KEPT : STATE_FORGOTTEN, marks);
    if (code == CODE_OK && forgets && o->n_names) code = check_rest(&s, marks);
    for (size_t i = 0; i < s.n && code == CODE_OK && !forgets; i++)
        if (marks[i]) code = check_chain_of(&s, &s.list[i], 0, known);
    if (code == CODE_OK) code = change_states(&s, marks, to);
    free(known);
    free(marks);
    close_series(&s);
    return code;
}

int series_prune(const struct options *o)
{
    if ((o->keep_last || o->keep_every || o->n_keep) == (o->n_names > 0))
        return fail(CODE_USAGE, NULL,
                    "'lmc series DIR prune' needs names to forget, or rules: "
                    "--keep-last K, --keep-every M, --keep NAME; see 'lmc help series'");
    return mark_and_change(STATE_FORGOTTEN, o);
}

int series_keep(const struct options *o) { return mark_and_change(STATE_KEPT, o); }

/* -- gc -- */

/* If a kill leaves this file behind, a later command removes it. */
#define RECODED_NAME ".lmc-recode"

/* Checks that both snapshots restore the same bytes. Fingerprints do not suffice: they do not cover
 * the headers of files. */
static int compare_archives(const struct archive *a, const struct archive *b)
{
    size_t n = snapshot_info(a->reader).n_files;
    int same = n == snapshot_info(b->reader).n_files;
    uint8_t first[LMC_FINGERPRINT_SIZE] = {0}, second[LMC_FINGERPRINT_SIZE] = {0};
    snapshot_fingerprint(a->reader, first);
    snapshot_fingerprint(b->reader, second);
    same = same && same_fingerprint(first, second);
    for (size_t i = 0; i < n && same; i++) {
        const lmc_file *f = lmc_reader_get_file(a->reader, i), *g = NULL;
        size_t k;
        if (lmc_reader_find_file(b->reader, f->path, &k) == LMC_OK)
            g = lmc_reader_get_file(b->reader, k);
        same = g && f->kind == g->kind && f->size == g->size && f->crc == g->crc &&
               f->has_mode == g->has_mode && f->mode == g->mode && f->has_mtime == g->has_mtime &&
               f->mtime_s == g->mtime_s && f->mtime_ns == g->mtime_ns;
    }
    return same ? CODE_OK
                : fail(CODE_ERROR, a->name,
                       "is not the same after it was coded again; nothing was removed. "
                       "Please report this");
}

/* Checks the new file as a whole, and compares its index with that of the old file. */
static int check_recoded(const char *old, const char *recoded, const struct options *o)
{
    struct archive a, b;
    int code = test_file(recoded, o);
    code = worse(code, open_archive_index(&a, old, o));
    code = worse(code, open_archive_index(&b, recoded, o));
    if (code == CODE_OK) code = compare_archives(&a, &b);
    close_archive(&a);
    close_archive(&b);
    return code;
}

/* Chooses a new base for a kept delta whose base will be removed: the last kept snapshot before it
 * that does not make its chain longer. NULL: there is none. */
static const struct snapshot *choose_new_base(const struct series *s, const struct snapshot *e)
{
    for (const struct snapshot *k = e; k-- > s->list;)
        if (k->state == STATE_KEPT && k->file == FILE_THERE && k->depth < e->depth) return k;
    return NULL;
}

/* Replaces the old file while readers are locked out. Both restore the same content. The new file
 * gets the present time: its size may be the same, and rsync compares only size and time. */
static int replace_file(const struct series *s, struct snapshot *e)
{
    int error = lock_out_readers(s);
    if (!error) error = set_present_time(s->dir, RECODED_NAME);
    if (!error && renameat(s->dir, RECODED_NAME, s->dir, base_name(e->path)) != 0) error = errno;
    if (!error) error = sync_directory_at(s->dir);
    if (!error) error = let_in_readers(s);
    look_at_file(e);
    if (error) return fail_errno(e->path, error, "cannot put the new file there");
    return e->file == FILE_THERE /* else it would count as missing for its deltas */
               ? CODE_OK
               : fail(CODE_ERROR, e->path,
                      "was coded again, but cannot be read now; nothing was "
                      "removed");
}

/* Codes a snapshot again, against another kept one, or as an anchor. */
static int recode_entry(const struct series *s, struct snapshot *e)
{
    const struct snapshot *onto = choose_new_base(s, e);
    struct chain c;
    tell(s->o, onto ? "re-code" : "make an anchor of", e->name, onto ? " against " : "",
         onto ? onto->name : "");
    if (s->o->dry_run) { /* later steps read these fields */
        e->is_delta = onto != NULL;
        if (onto) memcpy(e->wanted, onto->fingerprint, sizeof e->wanted);
        return CODE_OK;
    }
    char *recoded = join_path(s->directory, RECODED_NAME);
    begin_chain(&c, s, e);
    add_to_chain(&c, s, onto);
    c.o.output = recoded;
    int code = recode_snapshot(e->path, onto ? onto->path : NULL, &c.o);
    free_bases(&c.bases);
    if (code == CODE_OK) {
        begin_chain(&c, s, NULL);
        add_to_chain(&c, s, onto);
        code = check_recoded(e->path, recoded, &c.o);
        free_bases(&c.bases);
        if (code == CODE_OK) code = replace_file(s, e);
        if (code != CODE_OK) unlinkat(s->dir, RECODED_NAME, 0);
    }
    free(recoded);
    return code;
}

/* From the oldest on, codes again the kept deltas whose base is not kept. All deltas always find
 * their bases, as files are removed only after all this coding. No chain grows. */
static int recode_stranded(struct series *s, size_t *n_recoded)
{
    int code = CODE_OK;
    *n_recoded = 0;
    for (size_t i = 0; i < s->n && code == CODE_OK; i++)
        if (s->list[i].state == STATE_KEPT && s->list[i].is_delta &&
            !find_base_of(s, &s->list[i], 1)) {
            code = recode_entry(s, &s->list[i]);
            measure_series(s); /* also changes the depth of its deltas */
            ++*n_recoded;
        }
    return code;
}

/* Bytes of all files that are there. */
static uint64_t count_bytes(const struct series *s)
{
    uint64_t size = 0;
    for (size_t i = 0; i < s->n; i++)
        size += s->list[i].file == FILE_THERE ? s->list[i].packed_size : 0;
    return size;
}

static int remove_entry(const struct series *s, struct snapshot *e)
{
    int code = CODE_OK;
    tell(s->o, "remove", e->name, SUFFIX, "");
    if (!s->o->dry_run) {
        code = check_entry(s, e);
        if (code != CODE_OK)
            say(e->path, "should be removed, but is not the file that was added, so it stays; "
                         "remove it yourself, then 'lmc series DIR gc'");
        else if (unlinkat(s->dir, base_name(e->path), 0) != 0)
            code = fail_errno(e->path, errno, "cannot remove it");
    }
    if (code == CODE_OK) e->file = FILE_MISSING;
    return code;
}

/* before: bytes of all files before gc. The sum may grow, as a snapshot that is coded again,
 * against another base or none, may take more bytes. */
static void say_freed(const struct series *s, size_t n, uint64_t before, size_t n_recoded)
{
    const uint64_t after = count_bytes(s);
    const char *const would = s->o->dry_run ? "would be " : "";
    char recoded[64] = "";
    if (n == 0 || s->o->verbosity == 0) return;
    if (n_recoded)
        snprintf(recoded, sizeof recoded, ", %llu %scoded again", (unsigned long long)n_recoded,
                 would);
    if (after <= before)
        say(s->directory, "%llu snapshot%s %sremoved%s, %s%llu bytes %sfreed",
            (unsigned long long)n, n == 1 ? "" : "s", would, recoded,
            s->o->dry_run && n_recoded ? "at most " : "", (unsigned long long)(before - after),
            would);
    else
        say(s->directory, "%llu snapshot%s removed%s, which takes %llu bytes more",
            (unsigned long long)n, n == 1 ? "" : "s", recoded,
            (unsigned long long)(after - before));
}

/* Removes the files of forgotten snapshots, a delta before its base. Keeps a file that differs from
 * the one that was added. */
static int remove_forgotten(struct series *s, uint64_t before, size_t n_recoded)
{
    struct snapshot **list = sort_series(s, BY_DEPTH);
    int code = CODE_OK, error = 0;
    size_t n = 0;
    for (size_t i = 0; i < s->n && code == CODE_OK; i++)
        if (list[i]->state == STATE_FORGOTTEN && list[i]->file != FILE_MISSING) {
            code = remove_entry(s, list[i]);
            n += code == CODE_OK;
        }
    if (code != CODE_OK) return code;
    say_freed(s, n, before, n_recoded);
    if (!s->o->dry_run) error = sync_directory_at(s->dir);
    return error ? fail_errno(s->directory, error, "cannot sync it") : CODE_OK;
}

static int collect_garbage(struct series *s)
{
    size_t n_recoded;
    uint64_t before = count_bytes(s);
    int code = check_kept(s, 0, NULL);
    if (code != CODE_OK) say(s->directory, "is damaged, so nothing was removed");
    if (code != CODE_OK || !find_last_added(s, STATE_FORGOTTEN)) return code;
    code = recode_stranded(s, &n_recoded);
    if (s->o->dry_run) return code == CODE_OK ? remove_forgotten(s, before, n_recoded) : code;
    if (code == CODE_OK) code = check_kept(s, 1, NULL);
    if (code != CODE_OK) return code;
    int error = lock_out_readers(s);
    if (error) return fail_errno(s->directory, error, "cannot lock out readers");
    code = remove_forgotten(s, before, n_recoded);
    if (code != CODE_OK) return code;
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i].state == STATE_FORGOTTEN) s->list[i].state = STATE_GONE;
    return save_manifest(s);
}

int series_gc(const struct options *o)
{
    struct series s;
    int code = open_series(&s, o->dry_run ? TO_READ : TO_CHANGE, o);
    if (code == CODE_OK) code = collect_garbage(&s);
    close_series(&s);
    return code;
}
