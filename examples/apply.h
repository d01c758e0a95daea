/* apply.h - deltas that turn their base into what comes next, in place
 * SPDX-License-Identifier: MIT
 *
 * Nothing of a target is changed before its identity is known to be that of the base; or, if that is to be trusted, before as much of it
 * as fills a slot has agreed with the checksums of the delta, as each block does before it is written. See journal.h for what a crash
 * leaves. A target whose layout changes is restored beside itself and exchanged.
 */
#ifndef LMC_APPLY_H
#define LMC_APPLY_H

#include "journal.h"

#include <sys/file.h>

/* What an argument is; it is opened again when it is applied. */
struct delta {
    const char *path, *name;
    uint8_t wanted[LMC_IDENTITY_SIZE], identity[LMC_IDENTITY_SIZE];
    char *made_with; /* NULL: it does not say */
};

struct apply {
    const struct options *o;
    const char *name;      /* of the target */
    char *path;            /* links resolved, for the target itself may be replaced */
    struct stat st;
    int is_tree, lock;
    struct delta *deltas;
    size_t n_deltas;
    /* the target as a base of files */
    struct options base_options;
    struct bases bases;
    /* what was applied last, whose files are those of the target */
    struct archive last;
    int has_last;
    struct place last_place;
    lmc_base last_view;
    /* the side file at the beginning */
    enum journal_state found;
    unsigned char header[JOURNAL_HEADER_SIZE];
    char *found_name;
};

/* -- the files of the target -- */

static const lmc_file *get_delta_file(void *user, size_t number)
{
    return lmc_get_file(((struct archive *)user)->reader, number);
}

static enum lmc_status read_last(void *user, size_t number, uint64_t offset, void *dst, size_t size)
{
    struct apply *a = (struct apply *)user;
    a->bases.code = read_place(&a->last_place, number, offset, dst, size);
    return a->bases.code == CODE_OK ? LMC_OK : LMC_ERR_READ;
}

static const lmc_file *get_last_file(void *user, size_t number)
{
    return lmc_get_file(((struct apply *)user)->last.reader, number);
}

static int compare_files(const void *a, const void *b)
{
    return strcmp((*(const lmc_file *const *)a)->path, (*(const lmc_file *const *)b)->path);
}

/* The files in the order of their paths; to be freed. */
static const lmc_file **sort_files(const lmc_reader *reader)
{
    size_t n = lmc_count_files(reader);
    const lmc_file **files = (const lmc_file **)resize(NULL, n, sizeof *files);
    for (size_t i = 0; i < n; i++)
        files[i] = lmc_get_file(reader, i);
    qsort(files, n, sizeof *files, compare_files);
    return files;
}

/* Whether the target, a base of files, holds every byte of the delta's files and nothing else. */
static int holds_result(const struct base *b, const lmc_reader *reader)
{
    const lmc_file **files = sort_files(reader); /* as a listing is */
    int same = b->n_files == lmc_count_files(reader);
    for (size_t i = 0; i < b->n_files && same; i++) {
        const lmc_file *f = &b->files[i].file;
        same = strcmp(f->path, files[i]->path) == 0 && f->kind == files[i]->kind && f->size == files[i]->size && f->crc == files[i]->crc;
    }
    free(files);
    return same;
}

/* A file that is about to be changed. Its other names would change, too, and what a link in the target leads to. */
static int check_file(const struct apply *a, const char *full, int is_resumed)
{
    struct stat st;
    int fd, error;
    if (lstat(full, &st) != 0)
        return fail_errno(full, errno, "cannot look at it");
    if (!a->o->force && (S_ISLNK(st.st_mode) || st.st_nlink > 1))
        return fail(CODE_ERROR, full, "%s would be changed, too; use -f to do that, or copy it",
                    S_ISLNK(st.st_mode) ? "is a link, and what it leads to" : "has other names (hard links), which");
    fd = open(full, O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno == EACCES && (a->o->force || is_resumed) && stat(full, &st) == 0) { /* it gets the delta's mode at the end */
        (void)!chmod(full, (st.st_mode & 07777) | 0600);
        fd = open(full, O_RDWR | O_CLOEXEC);
    }
    if (fd < 0 && errno == EACCES && !a->o->force && (st.st_mode & 0200) == 0)
        return fail(CODE_ERROR, full, "is read-only; use -f to change it all the same");
    if (fd < 0)
        return fail_errno(full, errno, "cannot be written to");
    error = sync_data(fd);
    close(fd);
    return error ? fail_errno(full, error, "cannot bring it to the disk") : CODE_OK;
}

/* Whether the tensors of a file are those of the snapshot's, by its header. */
static int has_tensors(const char *full, const lmc_file *file, const struct options *o)
{
    struct source s;
    int same = open_source(&s, full) == CODE_OK && identify_source(&s, o) == CODE_OK && s.container.n_tensors == file->n_tensors;
    for (size_t i = 0; same && i < file->n_tensors; i++) {
        const lmc_tensor *t = &s.container.tensors[i], *u = &file->tensors[i];
        same = t->offset == u->offset && t->size == u->size && strcmp(t->name, u->name) == 0 && strcmp(t->dtype, u->dtype) == 0;
    }
    close_source(&s);
    return same;
}

/* Whether the target has the layout of the delta's files; *is_wrong: it has not. is_trusted: nobody has looked at it. */
static int check_layout(const struct apply *a, const struct archive *delta, const lmc_file **files, int is_trusted, int *is_wrong)
{
    struct listing l;
    size_t n = 0, n_files = lmc_count_files(delta->reader);
    int code = CODE_OK;
    memset(&l, 0, sizeof l);
    if (a->is_tree)
        code = list_sources(&l, a->path);
    else
        add_entry(&l, "", 0)->size = (uint64_t)a->st.st_size;
    *is_wrong = 0;
    for (size_t i = 0; i < l.n && code == CODE_OK && !*is_wrong; i++) {
        const struct entry *e = &l.entries[i];
        if (!is_stored(e, &l))
            continue;
        *is_wrong = n == n_files || strcmp(files[n]->path, e->path) != 0 || (files[n]->kind == LMC_FILE_DIRECTORY) != e->is_directory ||
                    files[n]->size != e->size;
        if (!*is_wrong && is_trusted && !e->is_directory) {
            char *full = join_path(a->path, e->path);
            *is_wrong = !has_tensors(full, files[n], a->o);
            free(full);
        }
        n++;
    }
    *is_wrong |= n != n_files;
    free_listing(&l);
    return code;
}

/* That the target has the layout of the delta's files, and that each can be written. All of it is on the disk then. */
static int check_files(const struct apply *a, const struct archive *delta, int is_trusted, int is_resumed, int *is_wrong)
{
    const lmc_file **files = sort_files(delta->reader);
    int code = check_layout(a, delta, files, is_trusted, is_wrong);
    for (size_t i = 0; i < lmc_count_files(delta->reader) && code == CODE_OK && !*is_wrong; i++)
        if (files[i]->kind == LMC_FILE_REGULAR) {
            char *full = join_path(a->path, files[i]->path);
            code = check_file(a, full, is_resumed);
            free(full);
        }
    free(files);
    return code;
}

/* What the delta says of mode and time; the owner stays. */
static int set_delta_attributes(const char *full, const lmc_file *file)
{
    struct attributes attributes = attributes_of_file(file);
    struct stat st;
    int fd, error;
    if (!file->has_mode && !file->has_mtime)
        return CODE_OK;
    fd = open(full, O_RDONLY | O_CLOEXEC);
    error = fd < 0 || fstat(fd, &st) != 0 ? errno : 0;
    if (!file->has_mode && !error) {
        attributes.has_mode = 1;
        attributes.mode = st.st_mode & 0777;
    }
    if (!error)
        error = set_attributes(fd, &attributes);
    if (!error && fsync(fd) != 0 && errno != EINVAL)
        error = errno;
    if (fd >= 0)
        close(fd);
    return error ? fail_errno(full, error, "cannot set its mode and time") : CODE_OK;
}

/* From the leaves to the root: a mode may lock everything below. */
static int set_all_attributes(const char *root, const lmc_reader *reader)
{
    const lmc_file **files = sort_files(reader);
    int code = CODE_OK;
    for (size_t i = lmc_count_files(reader); i-- > 0 && code == CODE_OK;) {
        char *full = join_path(root, files[i]->path);
        code = set_delta_attributes(full, files[i]);
        free(full);
    }
    free(files);
    return code;
}

/* -- in place -- */

struct rewrite {
    struct archive *delta;
    uint64_t at;              /* in the delta, which is read from front to back */
    struct place reading;     /* the target */
    struct journal *journal;
    uint64_t n_before;        /* bytes of the files before the one in work */
    size_t file_number;
    uint64_t n_handed;
    int code;
};

static int stop_rewrite(struct rewrite *w, int code)
{
    w->code = code;
    return code != CODE_OK;
}

static int stream_delta(void *user, void *dst, size_t size, size_t *got)
{
    struct rewrite *w = (struct rewrite *)user;
    uint64_t left = archive_size(w->delta) - w->at;
    *got = left < size ? (size_t)left : size;
    if (*got && read_archive(w->delta, w->at, dst, *got) != 0)
        return stop_rewrite(w, fail_archive(w->delta, LMC_ERR_READ));
    w->at += *got;
    progress_add(*got);
    return 0;
}

static int rewrite_begin(void *user, const lmc_file *file, size_t number)
{
    struct rewrite *w = (struct rewrite *)user;
    (void)file;
    if (number > 0)
        w->n_before += lmc_get_file(w->delta->reader, number - 1)->size;
    w->file_number = number;
    if (w->n_handed < w->n_before)
        w->n_handed = w->n_before;
    return number >= lmc_count_files(w->delta->reader);
}

static int rewrite_bytes(void *user, const void *data, size_t size)
{
    struct rewrite *w = (struct rewrite *)user;
    uint64_t offset = w->n_handed - w->n_before;
    w->n_handed += size;
    return stop_rewrite(w, hand_to_journal(w->journal, w->file_number, offset, (const unsigned char *)data, size));
}

/* Called by whoever plans blocks, never at the same time as rewrite_bytes. */
static enum lmc_status rewrite_read_back(void *user, size_t number, uint64_t offset, void *dst, size_t size)
{
    struct rewrite *w = (struct rewrite *)user;
    int code = read_through_journal(w->journal, &w->reading, number, offset, (unsigned char *)dst, size);
    return stop_rewrite(w, code) ? LMC_ERR_READ : LMC_OK;
}

/* w: delta, journal and n_handed are set. *status: what the library says, LMC_ERR_BASE_WRONG without a message. */
static int rewrite_target(struct rewrite *w, const char *root, enum lmc_status *status)
{
    lmc_restore_options options;
    lmc_stream stream;
    int code;
    open_place(&w->reading, root, get_delta_file, w->delta, 0);
    memset(&options, 0, sizeof options);
    options.parallel = &w->delta->o->parallel;
    options.user = w;
    options.begin_file = rewrite_begin;
    options.write = rewrite_bytes;
    options.read_back = rewrite_read_back;
    options.in_place = 1;
    options.n_done = w->n_handed;
    stream.read = stream_delta;
    stream.user = w;
    progress_start(w->delta->name, archive_size(w->delta));
    *status = lmc_restore_snapshot(&stream, &options, NULL);
    progress_clear();
    code = worse(w->code, close_place(&w->reading));
    if (*status == LMC_ERR_ARGUMENT && options.n_done) /* no such number: the side file is of something else */
        *status = LMC_ERR_BASE_WRONG;
    if (code == CODE_OK && *status != LMC_OK)
        code = *status == LMC_ERR_BASE_WRONG ? CODE_BASE : worse(CODE_ERROR, fail_archive(w->delta, *status));
    return code;
}

static int fail_half(const struct apply *a, const struct journal *j, const char *delta)
{
    return fail(CODE_BASE, a->name, "is not the base that %s needs, which showed only after %llu bytes; up to there it is changed "
                                    "already. Replace it by a good copy, of before or after this delta, and apply again; %s remembers "
                                    "how far it got", delta, (unsigned long long)j->n_recorded, j->path);
}

/* Applies an open delta of the target's layout. j: of the target; with what was recovered, if is_resumed. *is_wrong: the target is
 * something else, and nothing was changed or said. */
static int apply_in_place(struct apply *a, struct archive *delta, struct journal *j, int is_trusted, int is_resumed, int *is_wrong)
{
    struct place writing;
    struct rewrite w;
    enum lmc_status status;
    uint64_t total = total_of_files(delta->reader);
    int code;
    open_place(&writing, a->path, get_delta_file, delta, 1);
    j->target = &writing;
    code = check_files(a, delta, is_trusted, is_resumed, is_wrong);
    if (code == CODE_OK && *is_wrong)
        return worse(CODE_BASE, close_place(&writing));
    if (code == CODE_OK)
        code = check_bases(&a->base_options);
    if (code == CODE_OK)
        code = is_resumed ? recover_journal(j, a->header, lmc_count_files(delta->reader)) : describe_delta(j, delta, total);
    if (code != CODE_OK)
        return worse(code, close_place(&writing));
    if (is_resumed && a->o->verbosity > 0)
        say(a->name, "was left half applied; going on with %s behind %llu of %llu bytes", delta->name, (unsigned long long)j->n_handed,
            (unsigned long long)total);
    memset(&w, 0, sizeof w);
    w.delta = delta;
    w.journal = j;
    w.n_handed = j->n_handed;
    code = rewrite_target(&w, a->path, &status);
    if (code == CODE_BASE && status == LMC_ERR_BASE_WRONG) {
        *is_wrong = !j->is_touched;
        if (j->is_touched)
            code = fail_half(a, j, delta->name);
    }
    if (code == CODE_OK)
        code = flush_journal(j);
    code = worse(code, close_place(&writing));
    if (code == CODE_OK)
        code = set_all_attributes(a->path, delta->reader);
    if (code == CODE_OK || (!j->is_touched && !is_resumed)) /* then it is as if this had not begun */
        code = worse(code, remove_journal(j));
    else if (status != LMC_ERR_BASE_WRONG)
        say(a->name, "is left half applied; once the cause is gone, give the same command again, and it goes on");
    return code;
}

/* -- beside the target, where the layout changes -- */

/* The restored tree takes the place of the target, which goes: all that was listed belonged to the base. */
static int commit_layout(struct restore *r, const struct apply *a, const struct listing *l)
{
    struct attributes attributes = attributes_of_stat(&a->st);
    char *aside = temporary_name_beside(r->target);
    int error = finish_directories(r), fd, code, is_aside = 0;
    if (!error && !r->is_empty) { /* the root is the user's */
        fd = open(r->root, O_RDONLY | O_CLOEXEC);
        error = fd < 0 ? errno : set_attributes(fd, &attributes);
        if (fd >= 0)
            close(fd);
    }
    pthread_mutex_lock(&temporary.lock);
    if (!error)
        error = exchange_names(r->root, r->target, aside, &is_aside);
    if (!error && is_aside)
        register_temporary(aside);
    else
        free(aside);
    pthread_mutex_unlock(&temporary.lock);
    if (error) {
        code = fail_errno(r->target, error, "cannot put what was restored there");
        remove_temporary();
        return code;
    }
    r->replaced = *l;
    code = remove_replaced(r, sync_directory_of(r->target));
    memset(&r->replaced, 0, sizeof r->replaced);
    return code;
}

static void free_restore(struct restore *r)
{
    if (r->outlet.fd >= 0)
        close(r->outlet.fd);
    if (r->fd_again >= 0)
        close(r->fd_again);
    close_second_look(&r->again);
    free(r->path);
    for (size_t i = 0; i < r->n_paths; i++)
        free(r->paths[i]);
    free(r->paths);
    for (size_t i = 0; i < r->n_directories; i++)
        free(r->directories[i].path);
    free(r->directories);
}

/* Restores the delta with the target as base and puts the result in its place. */
static int apply_beside(struct apply *a, const struct delta *d, const lmc_base *base)
{
    struct restore r;
    struct source s;
    struct listing l;
    struct options o = *a->o;
    int code;
    o.force = 1;
    o.remove_source = 0;
    o.bases = &a->bases;
    memset(&l, 0, sizeof l);
    memset(&r, 0, sizeof r);
    r.o = &o;
    r.input = d->path;
    r.target = a->path;
    r.outlet.fd = r.fd_again = -1;
    code = a->is_tree ? list_sources(&l, a->path) : CODE_OK;
    if (code == CODE_OK) {
        code = open_snapshot_source(&s, d->path, &o);
        progress_start(s.name, s.size);
        if (code == CODE_OK)
            code = run_restore(&r, &s, base);
        progress_clear();
        if (code == CODE_OK)
            code = check_bases(&o);
        if (code != CODE_OK && r.started && r.is_tree)
            remove_temporary();
        else if (code != CODE_OK && r.started)
            discard_output(&r.out);
        else if (code == CODE_OK && r.is_tree)
            code = commit_layout(&r, a, &l);
        else if (code == CODE_OK) {
            complete_attributes(&r.attributes, &a->st);
            code = commit_output(&r.out, &r.attributes);
        }
        free_restore(&r);
        close_source(&s);
    }
    free_listing(&l);
    return code;
}

/* -- what to do -- */

/* One apply at a time. The lock is on the target itself, which another one may have replaced meanwhile. */
static int lock_target(struct apply *a)
{
    struct stat st;
    if (a->lock >= 0)
        close(a->lock);
    a->lock = open(a->path, O_RDONLY | O_CLOEXEC);
    if (a->lock < 0 || fstat(a->lock, &a->st) != 0)
        return fail_errno(a->name, errno, "cannot open it");
    if (flock(a->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return fail(CODE_ERROR, a->name, "is in use by another lmc apply, or locked by another program; try again when that has ended");
    if (stat(a->path, &st) != 0 || !same_file(&st, &a->st))
        return fail(CODE_ERROR, a->name, "was replaced at this moment; try again");
    return CODE_OK;
}

static int open_target(struct apply *a)
{
    unsigned char bytes[8];
    a->path = realpath(a->name, NULL);
    if (!a->path)
        return fail_errno(a->name, errno, "cannot find the target");
    if (stat(a->path, &a->st) != 0)
        return fail_errno(a->name, errno, "cannot look at it");
    a->is_tree = S_ISDIR(a->st.st_mode);
    if (!a->is_tree && !S_ISREG(a->st.st_mode))
        return fail(CODE_ERROR, a->name, "is neither a file nor a directory, and a delta can be applied only to one of them");
    if (strcmp(a->path, "/") == 0)
        return fail(CODE_ERROR, a->name, "cannot be a target: its side file would be beside it");
    a->lock = -1;
    if (lock_target(a) != CODE_OK)
        return CODE_ERROR;
    if (!a->is_tree && read_at(a->lock, 0, bytes, sizeof bytes) == 0 && memcmp(bytes, "\x8CLMC\r\n\x1A\n", 8) == 0)
        return fail(CODE_ERROR, a->name, "is an LMC file itself; apply deltas to what was restored from it, or see 'lmc help deltas'");
    return CODE_OK;
}

/* Copies standard input to an unnamed file beside the target, which then stands for it. */
static int spool_input(const struct apply *a)
{
    unsigned char *buffer;
    struct stat st;
    const char *name;
    size_t got = BUFFER_SIZE;
    int fd, error = 0, code;
    if (fstat(STDIN_FILENO, &st) == 0 && S_ISREG(st.st_mode))
        return CODE_OK;
    if (isatty(STDIN_FILENO))
        return fail(CODE_ERROR, NULL, "standard input is a terminal; name a delta, or see 'lmc help apply'");
    code = create_temporary(a->path, &fd, &name);
    if (code != CODE_OK)
        return code;
    remove_temporary();
    buffer = (unsigned char *)resize(NULL, BUFFER_SIZE, 1);
    while (got == BUFFER_SIZE && code == CODE_OK) {
        error = read_full(STDIN_FILENO, buffer, BUFFER_SIZE, &got);
        if (error)
            code = fail_errno("(standard input)", error, "cannot read it");
        else if ((error = write_full(fd, buffer, got)) != 0)
            code = fail_errno(a->name, error, "cannot keep standard input in a file beside it");
    }
    free(buffer);
    if (code == CODE_OK && (lseek(fd, 0, SEEK_SET) != 0 || dup2(fd, STDIN_FILENO) < 0))
        code = fail_errno("(standard input)", errno, "cannot keep it in a file");
    close(fd);
    return code;
}

static int is_tree_of_files(const lmc_reader *reader)
{
    const lmc_file *file = lmc_get_file(reader, 0);
    return *file->path != 0 || file->kind == LMC_FILE_DIRECTORY;
}

/* Looks what the argument is. */
static int look_at_delta(struct apply *a, struct delta *d)
{
    struct archive archive;
    int code;
    if (is_dash(d->path) && (code = spool_input(a)) != CODE_OK)
        return code;
    code = open_archive_file(&archive, d->path, a->o);
    d->name = archive.name;
    if (code == CODE_OK && (same_file(&archive.st, &a->st) || (a->is_tree && !is_dash(d->path) && lies_within(d->path, a->path))))
        code = fail(CODE_ERROR, d->name, "is or belongs to the target, which it would change; move it elsewhere");
    if (code == CODE_OK)
        code = read_archive_index(&archive, NULL);
    if (code == CODE_OK && archive.chain_depth == 0)
        code = fail(CODE_ERROR, d->name, "is no delta but a whole snapshot; to replace the target by it, use lmc -d -f -o '%.300s'", a->name);
    if (code == CODE_OK && is_tree_of_files(archive.reader) != a->is_tree)
        code = fail(CODE_ERROR, d->name, "restores %s; to make that of the target, use lmc -d --base '%.300s' -o with another name",
                    a->is_tree ? "a file, and the target is a directory" : "a directory, and the target is a file", a->name);
    if (code == CODE_OK) {
        memcpy(d->wanted, archive.wanted, LMC_IDENTITY_SIZE);
        lmc_get_identity(archive.reader, d->identity);
        d->made_with = copy_metadata(&archive, BASE_KEY);
    }
    close_archive(&archive);
    return code;
}

/* That each delta goes on where the one before it ends. */
static int check_order(const struct apply *a)
{
    char wanted[2 * SHORT_IDENTITY + 1], made[2 * SHORT_IDENTITY + 1];
    for (size_t i = 1; i < a->n_deltas; i++)
        if (memcmp(a->deltas[i].wanted, a->deltas[i - 1].identity, LMC_IDENTITY_SIZE) != 0) {
            format_hex(wanted, a->deltas[i].wanted, SHORT_IDENTITY);
            format_hex(made, a->deltas[i - 1].identity, SHORT_IDENTITY);
            return fail(CODE_BASE, a->deltas[i].name, "needs the base %s, but %s, named before it, restores %s; name deltas in the order "
                                                      "in which they are applied; nothing was changed", wanted, a->deltas[i - 1].name, made);
        }
    return CODE_OK;
}

static int open_delta(struct apply *a, const struct delta *d, struct archive *archive, const lmc_base *base)
{
    uint8_t identity[LMC_IDENTITY_SIZE];
    int code = open_archive_file(archive, d->path, &a->base_options);
    if (code == CODE_OK)
        code = read_archive_index(archive, base);
    if (code != CODE_OK)
        return code;
    lmc_get_identity(archive->reader, identity);
    return memcmp(identity, d->identity, sizeof identity) == 0 ? CODE_OK : fail_changed(d->name);
}

static int identify_target(struct apply *a)
{
    free_bases(&a->bases);
    memset(&a->bases, 0, sizeof a->bases);
    add_base(&a->bases, a->path);
    a->bases.list->is_target = 1;
    return identify_base(a->bases.list, &a->base_options);
}

static int fail_target(const struct apply *a, const struct delta *d)
{
    char wanted[2 * SHORT_IDENTITY + 1], there[2 * SHORT_IDENTITY + 1], more[700] = "";
    char *journal = name_journal(a->path);
    enum exit_code code = a->found == JOURNAL_DAMAGED ? CODE_CORRUPT : CODE_BASE;
    format_hex(wanted, d->wanted, SHORT_IDENTITY);
    format_hex(there, a->bases.list->identity, SHORT_IDENTITY);
    if (a->found == JOURNAL_DAMAGED)
        snprintf(more, sizeof more, "; it was left half applied, and its side file %.300s is damaged: replace the target by a good copy", journal);
    else if (a->found == JOURNAL_OTHER)
        snprintf(more, sizeof more, "; it was left half applied: first finish %.200s (see %.300s)", a->found_name, journal);
    else if (a->found == JOURNAL_OURS)
        snprintf(more, sizeof more, "; it was left half applied and changed since, see %.300s: replace the target by a good copy", journal);
    else if (memcmp(a->bases.list->identity, d->identity, LMC_IDENTITY_SIZE) == 0)
        snprintf(more, sizeof more, "; it holds the tensors that %.200s restores, in other files", d->name);
    free(journal);
    return fail(code, a->name, "is %s, but %s needs the base %s%s%.200s%s; nothing was changed%s", there, d->name, wanted,
                d->made_with ? ", then called '" : "", d->made_with ? d->made_with : "", d->made_with ? "'" : "", more);
}

/* *next: the first delta that is still to be applied to the target, whose identity is known; n_deltas: none. */
static int find_next(struct apply *a, size_t *next)
{
    const struct base *b = a->bases.list;
    for (size_t i = a->n_deltas + 1; i-- > 0;) {
        int is_done = 0;
        if (i > 0 && memcmp(b->identity, a->deltas[i - 1].identity, LMC_IDENTITY_SIZE) == 0) {
            struct archive archive;
            int code = open_delta(a, &a->deltas[i - 1], &archive, NULL);
            is_done = code == CODE_OK && holds_result(b, archive.reader);
            close_archive(&archive);
            if (code != CODE_OK)
                return code;
        }
        if (is_done || (i < a->n_deltas && memcmp(b->identity, a->deltas[i].wanted, LMC_IDENTITY_SIZE) == 0)) {
            *next = i;
            return CODE_OK;
        }
    }
    return fail_target(a, &a->deltas[0]);
}

/* The target is whole, so a side file is one of the past: the target was replaced, or killed between its last steps. */
static int forget_journal(struct apply *a)
{
    struct journal j;
    enum journal_state state;
    char *name;
    int code;
    if (a->found == JOURNAL_NONE)
        return CODE_OK;
    init_journal(&j, name_journal(a->path));
    code = find_journal(&j, &state, a->header, &name);
    if (code == CODE_OK) {
        if (a->o->verbosity > 0)
            say(a->name, "is whole: the side file of an earlier apply, %s, is of no use any more and removed", j.path);
        code = remove_journal(&j);
    }
    a->found = JOURNAL_NONE;
    free(name);
    free_journal(&j);
    return code;
}

/* Keeps the delta that was applied: its files are now the target's, for the next one. */
static void keep_last(struct apply *a, const struct archive *delta)
{
    if (a->has_last) {
        close_place(&a->last_place);
        close_archive(&a->last);
    }
    a->last = *delta;
    a->has_last = 1;
    open_place(&a->last_place, a->path, get_last_file, a, 0);
    memset(&a->last_view, 0, sizeof a->last_view);
    a->last_view.n_files = lmc_count_files(a->last.reader);
    a->last_view.get_file = get_last_file;
    a->last_view.read = read_last;
    a->last_view.user = a;
    free_bases(&a->bases);
    memset(&a->bases, 0, sizeof a->bases);
}

/* base: the target, if that is known to be what the delta needs; NULL: it is trusted to be. *is_wrong: it is not, and nothing was said. */
static int apply_delta(struct apply *a, const struct delta *d, const lmc_base *base, int *is_wrong)
{
    struct archive archive;
    double start = now();
    int code = open_delta(a, d, &archive, base), can;
    uint64_t size = archive.reader ? total_of_files(archive.reader) : 0;
    *is_wrong = 0;
    can = code == CODE_OK && lmc_can_restore_in_place(archive.reader);
    if (code == CODE_OK && can) {
        struct journal j;
        init_journal(&j, name_journal(a->path));
        code = apply_in_place(a, &archive, &j, !base, 0, is_wrong);
        free_journal(&j);
    } else if (code == CODE_OK && base) {
        code = apply_beside(a, d, base);
        if (code == CODE_OK)
            code = lock_target(a);
    } else if (code == CODE_OK) {
        *is_wrong = 1;
        code = CODE_BASE;
    }
    if (code != CODE_OK) {
        close_archive(&archive);
        return code;
    }
    lmc_free_reader(archive.reader); /* which may refer to the base */
    archive.reader = NULL;
    code = read_archive_index(&archive, NULL);
    if (a->o->verbosity >= 2)
        say(a->name, "%s applied%s, %llu bytes, %.0f MB/s", d->name, can ? "" : " beside it, for its layout changes", (unsigned long long)size,
            (double)size / 1e6 / (now() - start + 1e-9));
    keep_last(a, &archive);
    return code;
}

/* Goes on where an earlier apply of this delta was interrupted. *is_wrong: the target has been replaced since. */
static int resume_delta(struct apply *a, const struct delta *d, int *is_wrong)
{
    struct archive archive;
    struct journal j;
    enum journal_state state;
    char *name = NULL;
    int code = open_delta(a, d, &archive, NULL);
    *is_wrong = 0;
    init_journal(&j, name_journal(a->path));
    if (code == CODE_OK)
        code = find_journal(&j, &state, a->header, &name);
    if (code == CODE_OK)
        code = apply_in_place(a, &archive, &j, 0, 1, is_wrong);
    if (code == CODE_OK)
        keep_last(a, &archive);
    else
        close_archive(&archive);
    free(name);
    free_journal(&j);
    return code;
}

/* *number: of the delta that the side file is of, if it is one of these. */
static int find_interrupted(struct apply *a, size_t *number)
{
    struct journal j;
    int code;
    init_journal(&j, name_journal(a->path));
    code = find_journal(&j, &a->found, a->header, &a->found_name);
    for (size_t i = 0; i < a->n_deltas && code == CODE_OK && a->found == JOURNAL_OTHER; i++) {
        struct archive archive;
        code = open_delta(a, &a->deltas[i], &archive, NULL);
        if (code == CODE_OK)
            code = describe_delta(&j, &archive, total_of_files(archive.reader));
        /* all but start, capacity and the name */
        if (code == CODE_OK && memcmp(j.header + 16, a->header + 16, 8) == 0 && memcmp(j.header + 40, a->header + 40, JOURNAL_NAME_AT - 40) == 0) {
            a->found = JOURNAL_OURS;
            *number = i;
        }
        close_archive(&archive);
    }
    free_journal(&j);
    return code;
}

static void say_done(const struct apply *a, size_t n)
{
    for (size_t i = 0; i < n && a->o->verbosity > 0; i++)
        if (i + 1 == n)
            say(a->name, "holds what %s restores already", a->deltas[i].name);
        else
            say(a->name, "is past %s already", a->deltas[i].name);
}

static int apply_all(struct apply *a)
{
    size_t next = 0;
    int code = find_interrupted(a, &next), is_wrong = 1;
    if (code == CODE_OK && a->found == JOURNAL_OURS)
        code = resume_delta(a, &a->deltas[next], &is_wrong);
    else if (code == CODE_OK && a->found == JOURNAL_NONE && a->o->trust_base)
        code = apply_delta(a, &a->deltas[next], NULL, &is_wrong);
    else if (code != CODE_OK)
        return code;
    if (a->has_last) {
        next++;
    } else if (is_wrong) { /* or nothing was tried */
        code = identify_target(a);
        if (code == CODE_OK)
            code = find_next(a, &next);
        if (code == CODE_OK)
            code = forget_journal(a);
        if (code == CODE_OK)
            say_done(a, next);
        if (code == CODE_OK && next < a->n_deltas)
            code = prepare_base(a->bases.list, &a->base_options);
    }
    for (; next < a->n_deltas && code == CODE_OK; next++) {
        const struct delta *d = &a->deltas[next];
        code = apply_delta(a, d, a->has_last ? &a->last_view : &a->bases.list->source, &is_wrong);
        if (is_wrong)
            code = fail(CODE_BASE, a->name, "was changed while %s was being applied; nothing of this delta was written", d->name);
    }
    return code;
}

/* names: of the deltas and, at the end, of the target */
static int apply_deltas(char **names, size_t n, const struct options *o)
{
    struct apply a;
    int code;
    memset(&a, 0, sizeof a);
    a.o = o;
    a.name = names[n - 1];
    a.lock = -1;
    a.base_options = *o;
    a.base_options.bases = &a.bases;
    a.n_deltas = n - 1;
    a.deltas = (struct delta *)resize(NULL, n, sizeof *a.deltas);
    memset(a.deltas, 0, n * sizeof *a.deltas);
    code = open_target(&a);
    for (size_t i = 0; i < a.n_deltas && code == CODE_OK; i++) {
        a.deltas[i].path = names[i];
        code = look_at_delta(&a, &a.deltas[i]);
    }
    if (code == CODE_OK)
        code = check_order(&a);
    if (code == CODE_OK)
        code = apply_all(&a);
    if (a.has_last) {
        close_place(&a.last_place);
        close_archive(&a.last);
    }
    if (a.lock >= 0)
        close(a.lock);
    for (size_t i = 0; i < a.n_deltas; i++)
        free(a.deltas[i].made_with);
    free_bases(&a.bases);
    free(a.deltas);
    free(a.found_name);
    free(a.path);
    return code;
}

#endif
