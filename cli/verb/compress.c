/* compress.c - lmc FILE..., lmc DIR: files and directories to snapshots
 * SPDX-License-Identifier: MIT
 */
#include "verbs.h"

#include "../choose/members.h"
#include "../choose/quantize.h"
#include "../format/print.h"
#include "../input/base.h"
#include "../input/reread.h"
#include "../input/source_tree.h"
#include "../input/options.h"
#include "../job/writer.h"
#include "../sys/attributes.h"
#include "../sys/look.h"
#include "../sys/output.h"

/* Checks that no base is removed or replaced, and that the source is not a file that the base
 * needs. Call it when the base is ready, and before a source is removed. */
static int protect_chain(const char *path, const char *snapshot, const struct options *o)
{
    int code = is_dash(path) ? CODE_OK : check_source(path, o);
    return code == CODE_OK ? protect_bases(o->remove_source ? path : NULL, snapshot, 0, o) : code;
}

/* Hands all bytes of the source to the writer. */
static int feed_source(struct source *s, lmc_writer *writer, const struct members *m,
                       const struct output *out)
{
    const lmc_stream stream = {read_stream, s, {0, 0}};
    char byte;
    size_t more = 0;
    enum lmc_status status = lmc_writer_write_stream(writer, &stream);
    if (status == LMC_OK && s->taken == s->size) /* then the end was not read yet */
        (void)read_stream(s, &byte, 1, &more);   /* an error is in s->error */
    if (status != LMC_OK && status != LMC_ERR_READ) return fail_writer(status, out, s->name);
    if (s->error) return fail_errno(s->name, s->error, "cannot read it");
    if (status == LMC_ERR_READ) /* reading a base or a twin failed, which was reported */
        return worse(m->o->bases->code, m->code);
    if (more)
        return s->promised
                   ? fail(
                         CODE_ERROR, s->name,
                         "goes on after the last tensor in its header; save it to a file first, or "
                         "use --opaque")
                   : fail(CODE_ERROR, s->name,
                          "grew while it was being read; try again when nobody writes to it");
    if (s->size != LMC_UNKNOWN_SIZE && s->taken != s->size)
        return s->promised
                   ? fail(CODE_ERROR, s->name,
                          "ends %llu bytes before the last tensor that its header tells of",
                          (unsigned long long)(s->size - s->taken))
                   : fail(CODE_ERROR, s->name,
                          "shrank while it was being read; try again when nobody writes to it");
    if (S_ISREG(s->st.st_mode)) {
        struct stat st;
        if (fstat(s->fd, &st) != 0 || !same_state(&st, &s->st)) return fail_changed(s->name);
    }
    return CODE_OK;
}

/* Describes a file of the snapshot before it is read. */
static lmc_file describe_file(const char *path, const struct stat *st)
{
    lmc_file file = {0};
    file.path = path;
    file.kind = S_ISDIR(st->st_mode) ? LMC_FILE_DIRECTORY : LMC_FILE_REGULAR;
    if (!S_ISDIR(st->st_mode) && !S_ISREG(st->st_mode)) return file;
    file.has_mode = file.has_mtime = 1;
    file.mode = st->st_mode & 07777;
    file.mtime_s = st->st_mtim.tv_sec;
    file.mtime_ns = (uint32_t)st->st_mtim.tv_nsec;
    return file;
}

/* Adds an open source to the snapshot, as the member of that number. */
static int add_source(struct source *s, struct members *m, size_t number, lmc_writer *writer,
                      const struct output *out)
{
    struct member *member = &m->list[number];
    lmc_file file = describe_file(member->path, &s->st);
    int code = fit_quantizers(m, number);
    if (code != CODE_OK) return code;
    if (m->links.n) s->crc = &member->crc;
    file.size = s->size;
    file.tensors = member->tensors;
    file.n_tensors = member->n_tensors;
    enum lmc_status status = begin_member(writer, member, &file, m->o->dtype);
    if (status != LMC_OK) return fail_writer(status, out, s->name);
    code = feed_source(s, writer, m, out);
    if (code != CODE_OK) return code;
    status = lmc_writer_end_file(writer);
    return status == LMC_OK ? CODE_OK : fail_writer(status, out, s->name);
}

static int add_directory(const struct member *member, lmc_writer *writer, const struct output *out)
{
    const lmc_file file = describe_file(member->path, &member->st);
    enum lmc_status status = lmc_writer_begin_file(writer, &file, LMC_AUTO);
    if (status == LMC_OK) status = lmc_writer_end_file(writer);
    return status == LMC_OK ? CODE_OK : fail_writer(status, out, member->full);
}

/* Opens a member of a tree once more and adds it. */
static int add_member_of_tree(struct members *m, size_t number, lmc_writer *writer,
                              const struct output *out)
{
    const struct member *member = &m->list[number];
    struct source s;
    if (S_ISDIR(member->st.st_mode)) return add_directory(member, writer, out);
    int code = open_listed(&s, member->full);
    if (code == CODE_OK && !same_state(&s.st, &member->st)) code = fail_changed(member->full);
    if (code == CODE_OK) code = add_source(&s, m, number, writer, out);
    close_source(&s);
    return code;
}

/* What is known after a snapshot was written. */
struct written {
    lmc_writer_info info;
    int is_useless; /* nothing was coded against the base */
    uint64_t from, to;
    double start;
};

/* l: the listing of a directory; NULL: path is a file. look: taken before the source was read */
static int remove_source(const struct listing *l, const char *path, const struct look *look,
                         const char *snapshot, const struct written *w, const struct options *o)
{
    if (w->is_useless) /* the base may be the wrong one */
        return fail(CODE_ERROR, path,
                    "is not removed: nothing of it was found in the base %.300s; leave out --base",
                    o->bases->list[0].name);
    int code = verify_snapshot(snapshot, path, l, 0, NULL, o);
    if (code == CODE_OK) code = protect_chain(path, NULL, o);
    if (code == CODE_OK) code = check_on_disk(path);
    return code == CODE_OK ? remove_unchanged(l, path, look, snapshot, o) : code;
}

/* Reports sizes, and how much was coded against the base. */
static void say_written(const struct written *w, const char *name, const struct options *o)
{
    const struct bases *bases = o->bases;
    say_unused_bases(1, o);
    if (bases->n && w->info.from_base_size && o->verbosity >= 2)
        say(name, "%.2f %% of the bytes are coded against %.300s",
            percent(w->info.from_base_size, w->info.coded_size), bases->list[0].name);
    say_sizes(o, name, w->from, w->to, w->from, w->start);
}

/* The path of the snapshot of `path`; NULL: standard output. To be freed. */
static char *name_snapshot(const char *path, const struct options *o)
{
    const char *output = o->output;
    if (output && (is_dash(path) || !goes_into_directory(o)))
        return is_dash(output) ? NULL : copy_text(output);
    return o->to_stdout || is_dash(path) ? NULL : name_output(path, 0, o);
}

/* Chooses what is quantised, and finds twins. can_refer: the output is a file */
static int look_at_members(struct members *m, int can_refer, int can_read_twice)
{
    can_refer = can_refer && !m->o->no_twins;
    if (choose_all(m, can_refer) && !can_read_twice)
        return fail(CODE_ERROR, NULL,
                    "quantising reads its input twice, but standard input and pipes can be read "
                    "only once; save it to a file first, or leave out --quant and --policy");
    return can_refer && can_read_twice ? find_twins(m) : CODE_OK;
}

static int can_read_twice(const char *path, const struct stat *st)
{
    return S_ISDIR(st->st_mode) || (S_ISREG(st->st_mode) && !is_dash(path));
}

/* Writes all members. s: the open source of a single file; NULL: path is a directory */
static int write_members(struct members *m, struct source *s, const char *path,
                         const struct stat *st, const char *snapshot, struct written *w)
{
    const struct options *const o = m->o;
    const int is_repeatable = can_read_twice(path, st), is_file = S_ISREG(st->st_mode);
    const char *name = s ? s->name : path;
    struct output out;
    struct attributes attributes = {0};
    lmc_writer *writer = NULL;
    const struct base *base;
    uint64_t total = 0;
    int code = choose_base(&base, o);
    w->start = now();
    if (code == CODE_OK) code = protect_chain(path, snapshot, o);
    if (code != CODE_OK) return code;
    order_members(m, base ? &base->source : NULL);
    if (is_file || !s) attributes = attributes_of_stat(st);
    if (!s) attributes.mode &= 0666; /* a directory's x bits have no meaning for a file */
    code = open_output(&out, snapshot, is_file ? st : NULL, o->force);
    if (code != CODE_OK) return code;
    code = look_at_members(m, out.is_file, is_repeatable);
    for (size_t i = 0; i < m->n && !s; i++) total += size_of_member(m, &m->list[i]);
    progress_start(name, s ? s->size : total);
    if (code == CODE_OK) code = open_snapshot(&writer, &out, m, base);
    for (size_t i = 0; i < m->n && code == CODE_OK; i++)
        code = s ? add_source(s, m, i, writer, &out) : add_member_of_tree(m, i, writer, &out);
    code = finish_snapshot(code, writer, &out, m, &w->info);
    w->from = progress_done();
    if (code == CODE_OK)
        code = commit_snapshot(&out, m, base, &w->info, &attributes, name, &w->is_useless);
    w->to = out.outlet.size;
    progress_clear();
    if (code != CODE_OK) return code;
    say_written(w, name, o);
    say_of_quantized(m, name);
    return CODE_OK;
}

/* -- files -- */

static int compress_source(struct source *s, const char *path, const char *snapshot,
                           struct written *w, const struct options *o)
{
    struct members m = {0};
    m.o = o;
    m.list = (struct member *)resize(NULL, 1, sizeof *m.list);
    add_member(&m, "", path, s);
    int code = write_members(&m, s, path, &s->st, snapshot, w);
    free_members(&m);
    return code;
}

int compress_file(const char *path, int is_named, const struct options *o)
{
    struct source s;
    struct written w = {0};
    struct look look = {0};
    if (check_regular(path, o->to_stdout || o->output) != CODE_OK) return CODE_ERROR;
    if (has_suffix(path) && !o->force && access(path, F_OK) == 0)
        return fail(CODE_ERROR, path,
                    "is named " SUFFIX
                    " already; use -f to compress it again, or -d to restore it");
    if (is_dash(path) && isatty(STDIN_FILENO) && !o->force)
        return fail(CODE_ERROR, NULL,
                    "standard input is a terminal; name a file, or see 'lmc help'");
    if (is_side_name(path))
        return fail(
            CODE_ERROR, path,
            "is the side file of an lmc apply that is running or was killed; finish that first");
    if (!is_dash(path) && check_finished(path, CODE_ERROR) != CODE_OK) return CODE_ERROR;
    if (check_output_name(o) != CODE_OK) return CODE_ERROR;
    if (o->remove_source && check_no_link(path) != CODE_OK) return CODE_ERROR;
    char *snapshot = name_snapshot(path, o);
    if (o->remove_source) look = look_at(path);
    int code = open_checked(&s, path, is_named && (o->to_stdout || o->output));
    s.is_named = is_named;
    if (code == CODE_OK && snapshot) /* before a large header is read */
        code = check_output(snapshot, S_ISREG(s.st.st_mode) ? &s.st : NULL, o->force);
    if (code == CODE_OK) code = identify_source(&s, o);
    if (code == CODE_OK) code = compress_source(&s, path, snapshot, &w, o);
    close_source(&s);
    if (code == CODE_OK && o->remove_source)
        code = remove_source(NULL, path, &look, snapshot, &w, o);
    free(snapshot);
    return code;
}

/* -- directories -- */

/* Makes a member from an entry of a tree. existing: the file that the output replaces, or NULL */
static int look_at_entry(struct members *m, const struct entry *e, const char *root,
                         const struct options *o, const struct stat *existing, int *is_opened)
{
    char *full = join_path(root, e->path);
    struct source s;
    int code = open_listed(&s, full);
    *is_opened = code == CODE_OK;
    if (code == CODE_OK && S_ISDIR(s.st.st_mode) != e->is_directory) code = fail_changed(full);
    if (code == CODE_OK && !e->is_directory && !S_ISREG(s.st.st_mode))
        code = fail(CODE_ERROR, full,
                    "is not a file any more; try again when nobody writes to the directory");
    if (code == CODE_OK && existing && same_file(&s.st, existing))
        code = fail(CODE_ERROR, full,
                    "output and input are the same file; name another output with -o");
    if (code == CODE_OK && !e->is_directory) code = identify_source(&s, o);
    if (code == CODE_OK) add_member(m, e->path, full, &s);
    close_source(&s);
    free(full);
    return code;
}

static int write_listing(const struct listing *l, const char *root, const char *snapshot,
                         struct written *w, const struct options *o)
{
    struct members m = {0};
    struct stat existing, st;
    int code = CODE_OK, exists = snapshot && stat(snapshot, &existing) == 0, is_opened = 1;
    m.o = o;
    m.list = (struct member *)resize(NULL, l->n, sizeof *m.list);
    for (size_t i = 0; i < l->n && code == CODE_OK; i++) {
        if (is_stored(&l->entries[i], l))
            code =
                look_at_entry(&m, &l->entries[i], root, o, exists ? &existing : NULL, &is_opened);
        if (!is_opened) say_unreadable(l, i + 1, 1, root);
    }
    collect_links(&m.links, l, root);
    if (code == CODE_OK && stat(root, &st) != 0) code = fail_errno(root, errno, "cannot access it");
    if (code == CODE_OK) code = write_members(&m, NULL, root, &st, snapshot, w);
    free_members(&m);
    return code;
}

int compress_listing(const struct listing *l, const char *root, const char *snapshot,
                     const struct options *o)
{
    struct written w = {0};
    return write_listing(l, root, snapshot, &w, o);
}

int compress_directory(const char *path, const struct options *o)
{
    struct listing l = {0};
    char *root = copy_without_slashes(path), *snapshot = name_snapshot(root, o);
    const char *name = base_name(root);
    struct look look = {0};
    struct written w = {0};
    int code;
    if (o->remove_source) look = look_at(root);
    if (o->remove_source && check_no_link(root) != CODE_OK) code = CODE_ERROR;
    else if (snapshot && (!o->output || goes_into_directory(o)) && (*name == '/' || is_dot(name)))
        code = fail(CODE_ERROR, path,
                    "has no name from which the output's can be made; name the output with -o");
    else code = check_output_name(o);
    if (code == CODE_OK) code = list_sources(&l, root, o->remove_source, o);
    if (code == CODE_OK && o->remove_source && l.n_others)
        code = fail(CODE_ERROR, root,
                    "holds '%.300s', which a snapshot cannot hold; leave out --rm", l.others[0]);
    if (code == CODE_OK) code = write_listing(&l, root, snapshot, &w, o);
    if (code == CODE_OK && o->remove_source) code = remove_source(&l, root, &look, snapshot, &w, o);
    free_listing(&l);
    free(snapshot);
    free(root);
    return code;
}
