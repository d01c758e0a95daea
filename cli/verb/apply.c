/* apply.c - lmc apply: turns a target, in place, into the snapshots of some deltas
 * SPDX-License-Identifier: MIT
 *
 * Before the target changes, each delta is checked as far as possible without its base, and the
 * target must have the fingerprint of the base. With --trust-base, the checksum of each block of
 * the delta is checked instead, before the block is written. The first write waits until the
 * checked blocks fill a slot. See apply.h for slots and crashes. If the layout changes, the new
 * snapshot is restored beside the target, and the two are exchanged.
 */
#include "apply.h"

#include "../format/json.h"
#include "../format/print.h"
#include "../input/base.h"
#include "../input/reread.h"
#include "../input/source_tree.h"
#include "../job/restored_tree.h"
#include "../job/restorer.h"
#include "verbs.h"

static enum lmc_status read_last(void *user, size_t number, uint64_t offset, void *dst, size_t size)
{
    struct apply *a = (struct apply *)user;
    a->bases.code = read_place(&a->last_place, number, offset, dst, size);
    return a->bases.code == CODE_OK ? LMC_OK : LMC_ERR_READ;
}

static const lmc_file *get_last_file(void *user, size_t number)
{
    return lmc_reader_get_file(((struct apply *)user)->last.reader, number);
}

/* Copies standard input to a scratch file, which is read in its place from then on. */
static int spool_input(const struct apply *a)
{
    struct source s;
    int code = open_source(&s, "-");
    if (code == CODE_OK && isatty(STDIN_FILENO))
        return fail(CODE_ERROR, NULL,
                    "standard input is a terminal; name a delta, or see 'lmc help apply'");
    if (code == CODE_OK && !S_ISREG(s.st.st_mode)) {
        code = spool_source(&s, a->path);
        if (code == CODE_OK && dup2(s.fd, STDIN_FILENO) < 0)
            code = fail_errno(s.name, errno, "cannot keep it in a file");
    }
    close_source(&s);
    return code;
}

/* Checks a delta; reads its fingerprint, that of its base, and the base's name. */
static int look_at_delta(struct apply *a, struct delta *d)
{
    struct archive archive;
    int code;
    if (is_dash(d->path) && (code = spool_input(a)) != CODE_OK) return code;
    code = open_archive_file(&archive, d->path, a->o);
    d->name = archive.name;
    if (code == CODE_OK && (same_file(&archive.st, &a->st) ||
                            (a->is_tree && !is_dash(d->path) && lies_within(d->path, a->path))))
        code = fail(CODE_ERROR, d->name,
                    "is or belongs to the target, which it would change; move it elsewhere");
    if (code == CODE_OK) code = read_archive_index(&archive, NULL);
    if (code == CODE_OK && !archive.is_delta)
        code = fail(CODE_ERROR, d->name,
                    "is not a delta but a whole snapshot; to replace the target by it, use "
                    "lmc -d -f -o '%.300s' '%.300s'",
                    a->name, d->name);
    if (code == CODE_OK && is_tree_of_files(archive.reader) != a->is_tree)
        code = fail(CODE_ERROR, d->name,
                    "restores %s; restore it under another name: lmc -d --base '%.300s' -o NAME",
                    a->is_tree ? "a file, but the target is a directory"
                               : "a directory, but the target is a file",
                    a->name);
    if (code == CODE_OK) code = check_payload(d->path, a->o);
    if (code == CODE_OK) {
        memcpy(d->wanted, archive.wanted, LMC_FINGERPRINT_SIZE);
        snapshot_fingerprint(archive.reader, d->fingerprint);
        d->made_with = copy_metadata(&archive, BASE_KEY);
    }
    close_archive(&archive);
    return code;
}

/* Checks that the base of each delta is the snapshot that the delta before it restores. */
static int check_order(const struct apply *a)
{
    char wanted[2 * SHORT_FINGERPRINT + 1], made[2 * SHORT_FINGERPRINT + 1];
    for (size_t i = 1; i < a->n_deltas; i++)
        if (!same_fingerprint(a->deltas[i].wanted, a->deltas[i - 1].fingerprint))
            return fail(CODE_BASE, a->deltas[i].name,
                        "needs the base %s, but %s, named before it, restores %s; name deltas in "
                        "the order in which they are applied; nothing was changed",
                        format_hex(wanted, a->deltas[i].wanted, SHORT_FINGERPRINT),
                        a->deltas[i - 1].name,
                        format_hex(made, a->deltas[i - 1].fingerprint, SHORT_FINGERPRINT));
    return CODE_OK;
}

static int open_delta(struct apply *a, const struct delta *d, struct archive *archive,
                      const lmc_base *base)
{
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE];
    int code = open_archive_file(archive, d->path, &a->base_options);
    if (code == CODE_OK) code = read_archive_index(archive, base);
    if (code != CODE_OK) return code;
    snapshot_fingerprint(archive->reader, fingerprint);
    return same_fingerprint(fingerprint, d->fingerprint) ? CODE_OK : fail_changed(d->name);
}

static int fail_target(const struct apply *a, const struct delta *d)
{
    char *const wanted = describe_base(d->wanted, d->made_with);
    char there[2 * SHORT_FINGERPRINT + 1], *more = copy_text("");
    const char *journal = a->journal.path;
    if (a->journal.state == JOURNAL_DAMAGED)
        append_text(&more,
                    "; it was left half applied, and its side file %.300s is damaged: replace the "
                    "target by a good copy",
                    journal);
    else if (a->journal.state == JOURNAL_OTHER)
        append_text(&more, "; it was left half applied: first finish %.200s (see %.300s)",
                    a->journal.found_name, journal);
    else if (a->journal.state == JOURNAL_OURS)
        append_text(
            &more,
            "; it was left half applied and changed since, see %.300s: replace the target by "
            "a good copy",
            journal);
    else if (same_fingerprint(a->bases.list->fingerprint, d->fingerprint))
        append_text(&more, "; it holds the tensors that %.200s restores, in other files", d->name);
    const int code = fail(a->journal.state == JOURNAL_DAMAGED ? CODE_CORRUPT : CODE_BASE, a->name,
                          "is %s, but %s needs the base %s; nothing was changed%s",
                          format_hex(there, a->bases.list->fingerprint, SHORT_FINGERPRINT), d->name,
                          wanted, more);
    free(wanted);
    free(more);
    return code;
}

/* Updates the links: applying block by block does not change them. */
static int update_target_links(struct apply *a, const struct archive *archive)
{
    struct links links;
    if (!a->is_tree) return CODE_OK;
    if (read_links(&links, archive->reader) != 0) return fail_bad_links(archive->name);
    int code = update_links(a->lock, a->path, &links, archive->reader, archive->name, &a->n_links);
    free_links(&links);
    return code;
}

/* Refuses to change links that neither this delta nor the last one lists: they are the user's. */
static int check_target_links(const struct apply *a, const struct archive *archive)
{
    struct links links, before = {0};
    int code = CODE_OK;
    if (!a->is_tree) return CODE_OK;
    if (read_links(&links, archive->reader) != 0) return fail_bad_links(archive->name);
    if (!a->o->force && a->has_last && read_links(&before, a->last.reader) != 0)
        code = fail_bad_links(a->last.name);
    if (code == CODE_OK && !a->o->force)
        code = check_old_links(a->path, &links, &before, archive->reader, archive->name);
    free_links(&before);
    free_links(&links);
    return code;
}

/* Sets a->base, if the target holds what the delta restores. Then, if is_last, updates links. */
static int look_for_result(struct apply *a, const struct delta *d, int is_last, int is_viewed)
{
    struct archive archive;
    struct base *b = a->bases.list;
    if (!is_viewed && !same_fingerprint(b->fingerprint, d->fingerprint)) return CODE_OK;
    int code = open_delta(a, d, &archive, NULL);
    if (code == CODE_OK && is_viewed)
        b = find_view_like(b, archive.reader, d->fingerprint, &a->base_options, &code);
    if (code == CODE_OK && b && holds_result(b, &archive)) {
        if (is_last) code = check_target_links(a, &archive);
        if (is_last && code == CODE_OK) code = update_target_links(a, &archive);
        a->base = b;
    }
    close_archive(&archive);
    return code;
}

/* Sets a->base, if the target is the base of the delta. */
static int look_for_base(struct apply *a, const struct delta *d, int is_viewed)
{
    struct archive archive;
    struct base *const b = a->bases.list;
    if (!is_viewed) {
        a->base = same_fingerprint(b->fingerprint, d->wanted) ? b : NULL;
        return CODE_OK;
    }
    int code = open_delta(a, d, &archive, NULL);
    if (code == CODE_OK) a->base = find_view(b, &archive, &a->base_options, &code);
    if (code == CODE_OK && !a->base)
        a->base = find_other_view(b, &archive, &a->base_options, &code);
    close_archive(&archive);
    return code;
}

/* *next: the first delta that was not applied to the identified target yet; n_deltas: all were. The
 * second round reads the target in other ways (base.h). */
static int find_next(struct apply *a, size_t *next)
{
    int code = CODE_OK;
    a->base = NULL;
    for (int is_viewed = 0; is_viewed < 2; is_viewed++)
        for (*next = a->n_deltas + 1; *next && (*next)--;) {
            const size_t i = *next;
            if (i > 0) code = look_for_result(a, &a->deltas[i - 1], i == a->n_deltas, is_viewed);
            if (code == CODE_OK && !a->base && i < a->n_deltas)
                code = look_for_base(a, &a->deltas[i], is_viewed);
            if (code != CODE_OK || a->base) return code;
        }
    return fail_target(a, &a->deltas[0]);
}

/* Removes a side file that is left though the target is whole: apply was killed near its end. */
static int forget_journal(struct apply *a)
{
    if (a->journal.state == JOURNAL_NONE) return CODE_OK;
    if (a->o->verbosity > 0)
        say(a->name, "is complete; %s, which an earlier apply left, is no longer needed: removed",
            a->journal.path);
    return remove_journal(&a->journal);
}

/* Keeps the applied delta as the base of the next one: its files are now those of the target. */
static void keep_last(struct apply *a, const struct archive *delta)
{
    if (a->has_last) {
        close_place(&a->last_place);
        close_archive(&a->last);
    }
    a->last = *delta;
    a->has_last = 1;
    open_place(&a->last_place, a->path, directory_of_target(a), get_last_file, a, 0);
    const lmc_base view = {
        snapshot_info(a->last.reader).n_files, get_last_file, read_last, a, {0, 0}};
    a->last_view = view;
    forget_bases(&a->bases);
}

struct rewrite {
    struct archive *delta;
    uint64_t at;          /* in the delta, which is read from front to back */
    struct place reading; /* the target */
    struct journal *journal;
    uint64_t n_before; /* bytes of the files before the present one */
    size_t file_number;
    int code;
};

static enum lmc_status stop_rewrite(struct rewrite *w, int code)
{
    w->code = code;
    return code == CODE_OK ? LMC_OK : LMC_ERR_WRITE;
}

static enum lmc_status stream_delta(void *user, void *dst, size_t size, size_t *got)
{
    struct rewrite *w = (struct rewrite *)user;
    uint64_t left = archive_size(w->delta) - w->at;
    *got = left < size ? (size_t)left : size;
    if (*got && read_archive(w->delta, w->at, dst, *got) != LMC_OK)
        return stop_rewrite(w, fail_archive(w->delta, LMC_ERR_READ));
    w->at += *got;
    progress_add(*got);
    return LMC_OK;
}

static enum lmc_status rewrite_begin(void *user, const lmc_file *file, size_t number)
{
    struct rewrite *w = (struct rewrite *)user;
    (void)file;
    if (number > 0) w->n_before += lmc_reader_get_file(w->delta->reader, number - 1)->size;
    w->file_number = number;
    return number < snapshot_info(w->delta->reader).n_files ? LMC_OK : LMC_ERR_WRITE;
}

static enum lmc_status rewrite_bytes(void *user, const void *data, size_t size)
{
    struct rewrite *w = (struct rewrite *)user;
    const uint64_t offset = w->journal->n_handed - w->n_before;
    return stop_rewrite(
        w, hand_to_journal(w->journal, w->file_number, offset, (const unsigned char *)data, size));
}

/* Called while blocks are planned, never at the same time as rewrite_bytes. */
static enum lmc_status rewrite_read_back(void *user, size_t number, uint64_t offset, void *dst,
                                         size_t size)
{
    struct rewrite *w = (struct rewrite *)user;
    int code =
        read_through_journal(w->journal, &w->reading, number, offset, (unsigned char *)dst, size);
    return stop_rewrite(w, code);
}

/* w: delta and journal are set. *status: the library's; LMC_ERR_BASE_WRONG is not reported. */
static int rewrite_target(struct rewrite *w, const struct place *target, enum lmc_status *status)
{
    lmc_restore_options options = LMC_RESTORE_OPTIONS();
    const lmc_stream stream = {stream_delta, w, {0, 0}};
    int code;
    open_place(&w->reading, target->root, target->dir, get_delta_file, w->delta, 0);
    options.parallel = &w->delta->o->parallel;
    options.user = w;
    options.begin_file = rewrite_begin;
    options.write = rewrite_bytes;
    options.read_back = rewrite_read_back;
    options.in_place = 1;
    options.done_size = w->journal->n_handed;
    progress_start(w->delta->name, archive_size(w->delta));
    *status = lmc_snapshot_restore(&stream, NULL, &options);
    progress_clear();
    code = worse(w->code, close_place(&w->reading));
    if (*status == LMC_ERR_ARGUMENT &&
        options.done_size) /* done_size is impossible: the side file is of another delta */
        *status = LMC_ERR_BASE_WRONG;
    if (code == CODE_OK && *status == LMC_ERR_BASE_WRONG) code = CODE_BASE;
    else if (code == CODE_OK && *status != LMC_OK)
        code = worse(CODE_ERROR, *status == LMC_ERR_LIMIT /* of memory: restoring has no other */
                                     ? fail_archive(w->delta, *status)
                                     : fail_damage(w->delta, *status, w->file_number,
                                                   w->journal->n_handed - w->n_before));
    return code;
}

static int fail_half(const struct apply *a, const struct journal *j, const char *delta)
{
    return fail(CODE_BASE, a->name,
                "is not the base that %s needs, which was found only after %llu bytes, which are "
                "changed already. Replace it by a good copy from before or after this delta, and "
                "apply again; %s has stored how far it got",
                delta, (unsigned long long)j->n_recorded, j->path);
}

/* Applies an open delta that keeps the target's layout. If the delta is half applied already, the
 * journal belongs to it. *is_wrong: the target is not the base; nothing was changed or reported. */
static int apply_in_place(struct apply *a, struct archive *delta, enum target look, int *is_wrong)
{
    struct journal *const j = &a->journal;
    struct place writing;
    struct rewrite w = {0};
    enum lmc_status status;
    uint64_t total = total_of_files(delta->reader);
    const int is_resumed = look == TARGET_HALF;
    open_place(&writing, a->path, directory_of_target(a), get_delta_file, delta, 1);
    writing.is_strict = !a->o->force;
    j->target = &writing;
    j->target_name = a->name;
    int code = check_files(a, delta, look, is_wrong);
    if (code == CODE_OK && *is_wrong) return worse(CODE_BASE, close_place(&writing));
    if (code == CODE_OK) code = check_bases(&a->base_options);
    if (code == CODE_OK)
        code = is_resumed ? recover_journal(j, snapshot_info(delta->reader).n_files)
                          : begin_journal(j, delta, total);
    if (code != CODE_OK) return worse(code, close_place(&writing));
    if (is_resumed && a->o->verbosity > 0)
        say(a->name, "was left half applied; going on with %s behind %llu of %llu bytes",
            delta->name, (unsigned long long)j->n_handed, (unsigned long long)total);
    w.delta = delta;
    w.journal = j;
    code = rewrite_target(&w, &writing, &status);
    if (code == CODE_BASE && status == LMC_ERR_BASE_WRONG) {
        *is_wrong = !j->is_touched;
        if (j->is_touched) code = fail_half(a, j, delta->name);
    }
    if (code == CODE_OK) code = flush_journal(j);
    code = worse(code, close_place(&writing));
    if (code == CODE_OK) code = set_all_attributes(a, delta);
    if (code == CODE_OK || (!j->is_touched && !is_resumed)) /* done, or never begun */
        code = worse(code, remove_journal(j));
    else if (status != LMC_ERR_BASE_WRONG)
        say(a->name, "is left half applied; once the cause is gone, give the same command again, "
                     "and it goes on");
    set_last_words(NULL, NULL);
    return code;
}

/* If a delta changes the layout: restores it beside the target, then replaces the target. */
static int apply_beside(struct apply *a, const struct delta *d, const lmc_base *base)
{
    struct restore r;
    struct source s;
    struct options o = *a->o;
    o.force = 1;
    o.bases = &a->bases;
    init_restore(&r, d->path, a->path, &o);
    int code = a->is_tree ? list_sources(&r.tree.replaced, a->path, 0, &o) : CODE_OK;
    if (code == CODE_OK) {
        code = open_snapshot_source(&s, d->path, &o);
        if (code == CODE_OK) code = run_restore(&r, &s, base);
        if (code == CODE_OK) code = check_bases(&o);
        if (code == CODE_OK && r.is_tree)
            code = make_links(r.tree.root_fd, &r.again.links, d->name);
        if (code != CODE_OK) {
            discard_restore(&r);
        } else if (r.is_tree) { /* all listed files were the base's, and may be removed */
            close_files_of_bases(&a->bases);
            code = put_tree(&r.tree, NULL, &a->st);
        } else {
            complete_attributes(&r.attributes, &a->st);
            code = commit_output(&r.out, &r.attributes);
        }
        close_source(&s);
    }
    free_restore(&r);
    return code;
}

/* base: NULL, or the identified target. *is_wrong: the target is not the base; not reported. */
static int apply_delta(struct apply *a, const struct delta *d, const lmc_base *base,
                       enum target look, int *is_wrong)
{
    struct archive archive;
    double start = now();
    int code = open_delta(a, d, &archive, base), can = 0;
    uint64_t size = archive.reader ? total_of_files(archive.reader) : 0;
    *is_wrong = 0;
    if (code == CODE_OK) {
        enum lmc_status status = lmc_reader_can_restore_in_place(archive.reader, &can);
        if (status != LMC_OK) code = fail_archive(&archive, status);
    }
    if (code == CODE_OK) code = check_target_links(a, &archive);
    if (code == CODE_OK && can) {
        code = apply_in_place(a, &archive, look, is_wrong);
    } else if (code == CODE_OK && base) {
        code = apply_beside(a, d, base);
        if (code == CODE_OK) code = lock_target(a);
    } else if (code == CODE_OK) {
        *is_wrong = 1;
        code = CODE_BASE;
    }
    if (code != CODE_OK) {
        close_archive(&archive);
        return code;
    }
    lmc_reader_free(archive.reader); /* it may refer to the base */
    archive.reader = NULL;
    code = read_archive_index(&archive, NULL);
    if (code == CODE_OK) code = update_target_links(a, &archive);
    if (wants_summary(a->o) && look != TARGET_HALF)
        say(a->name, "%s applied%s, %llu bytes, %.0f MB/s", d->name,
            can ? "" : " beside it, for its layout changes", (unsigned long long)size,
            (double)size / 1e6 / (now() - start + 1e-9));
    keep_last(a, &archive);
    return code;
}

/* *number: the delta that the side file belongs to, if that is one of the arguments. */
static int find_interrupted(struct apply *a, size_t *number)
{
    struct journal *const j = &a->journal;
    unsigned char header[JOURNAL_HEADER_SIZE];
    int code = open_journal(j, name_journal(a->path), a->at.dir);
    for (size_t i = 0; i < a->n_deltas && code == CODE_OK && j->state == JOURNAL_OTHER; i++) {
        struct archive archive;
        code = open_delta(a, &a->deltas[i], &archive, NULL);
        if (code == CODE_OK)
            code = describe_delta(header, &archive, total_of_files(archive.reader));
        if (code == CODE_OK && is_same_delta(header, j->header)) {
            j->state = JOURNAL_OURS;
            *number = i;
        }
        close_archive(&archive);
    }
    return code;
}

static void say_done(const struct apply *a, size_t n)
{
    for (size_t i = 0; i < n && a->o->verbosity > 0; i++)
        if (i + 1 == n && a->n_links)
            say(a->name, "holds the files that %s restores already; %llu link%s changed",
                a->deltas[i].name, (unsigned long long)a->n_links,
                a->n_links == 1 ? " was" : "s were");
        else if (i + 1 == n) say(a->name, "holds what %s restores already", a->deltas[i].name);
        else say(a->name, "has been through %s already", a->deltas[i].name);
}

static int apply_all(struct apply *a)
{
    size_t next = 0;
    int code = find_interrupted(a, &next), is_wrong = 1;
    if (code == CODE_OK && a->journal.state == JOURNAL_OURS)
        code = apply_delta(a, &a->deltas[next], NULL, TARGET_HALF, &is_wrong);
    else if (code == CODE_OK && a->journal.state == JOURNAL_NONE && a->o->trust_base &&
             a->n_deltas == 1) /* of several, the target may have some already */
        code = apply_delta(a, &a->deltas[next], NULL, TARGET_TRUSTED, &is_wrong);
    else if (code != CODE_OK) return code;
    if (a->has_last) {
        next++;
    } else if (is_wrong) { /* also if nothing was applied */
        free_bases(&a->bases);
        add_base(&a->bases, a->path);
        a->bases.list->state = BASE_OPEN; /* it is not a snapshot, and may be half applied */
        code = identify_base(a->bases.list, &a->base_options);
        if (code == CODE_OK) code = find_next(a, &next);
        if (code == CODE_OK) code = forget_journal(a);
        if (code == CODE_OK) say_done(a, next);
        if (code == CODE_OK && next < a->n_deltas) code = prepare_base(a->base, &a->base_options);
    }
    for (; next < a->n_deltas && code == CODE_OK; next++) {
        const struct delta *d = &a->deltas[next];
        code = apply_delta(a, d, a->has_last ? &a->last_view : &a->base->source, TARGET_KNOWN,
                           &is_wrong);
        if (is_wrong)
            code = fail(CODE_BASE, a->name,
                        "was changed while %s was being applied; nothing of this delta was written",
                        d->name);
    }
    return code;
}

int apply_deltas(const struct options *o)
{
    const size_t n = o->n_names;
    struct apply a = {0};
    a.o = o;
    a.name = o->names[n - 1];
    a.lock = a.journal.fd = a.at.dir = -1;
    a.base_options = *o;
    a.base_options.bases = &a.bases;
    a.n_deltas = n - 1;
    a.deltas = (struct delta *)zeroed(n, sizeof *a.deltas);
    int code = open_target(&a);
    for (size_t i = 0; i < a.n_deltas && code == CODE_OK; i++) {
        a.deltas[i].path = o->names[i];
        code = look_at_delta(&a, &a.deltas[i]);
    }
    if (code == CODE_OK) code = check_order(&a);
    if (code == CODE_OK) code = apply_all(&a);
    if (o->json) print_verdict(a.name, code, 0);
    if (a.has_last) {
        close_place(&a.last_place);
        close_archive(&a.last);
    }
    if (a.lock >= 0) close(a.lock);
    for (size_t i = 0; i < a.n_deltas; i++) free(a.deltas[i].made_with);
    free_bases(&a.bases);
    free(a.deltas);
    free_journal(&a.journal);
    release_directory(a.at.dir);
    close_spot(&a.at);
    free(a.path);
    return code;
}
