/* SPDX-License-Identifier: MIT */
#include "writer.h"

#include "../choose/members.h"
#include "../choose/quantize.h"
#include "../format/print.h"
#include "../input/archive.h"
#include "../input/base.h"
#include "../input/options.h"
#include "../input/links.h"
#include "../sys/output.h"

int fail_writer(enum lmc_status status, const struct output *out, const char *name)
{
    return status == LMC_ERR_WRITE ? fail_output(out, out->outlet.error)
                                   : fail_status(name, status);
}

/* Whether any tensor will be quantised, also by an old quantizer. The header has a bit for this. */
static int may_quantize(const struct members *m)
{
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; m->list[i].choices && k < m->list[i].n_tensors; k++)
            if (m->list[i].choices[k].is_wanted || m->list[i].choices[k].quantizer) return 1;
    return 0;
}

int has_hashes(const struct archive *a)
{
    uint8_t hash[32];
    const lmc_file *const f = a ? lmc_reader_get_file(a->reader, 0) : NULL;
    return f && lmc_reader_read_content_hash(a->reader, 0, f->n_tensors ? f->tensors : NULL,
                                             hash) != LMC_ERR_NOT_FOUND;
}

static lmc_writer_info writer_info(const lmc_writer *writer)
{
    lmc_writer_info info = {0};
    (void)!lmc_writer_get_info(writer, &info); /* fails only without a writer */
    return info;
}

/* The sink's write(). user: the output; the error is in its outlet. */
static enum lmc_status write_snapshot(void *user, const void *data, size_t size)
{
    return write_output(user, data, size) ? LMC_ERR_WRITE : LMC_OK;
}

static const lmc_file *get_described(void *user, size_t number)
{
    return &((const lmc_file *)user)[number];
}

/* Whether the base has the like of any tensor or file of the members, or parts of it. */
static int has_matches(const struct members *m, const lmc_base *base)
{
    lmc_file *files = (lmc_file *)zeroed(m->n + 1, sizeof *files);
    const lmc_base all = {m->n, get_described, NULL, files, {0, 0}};
    size_t n = 0, at = 0;
    int found = 0;
    for (size_t i = 0; i < m->n; i++) {
        files[i].path = m->list[i].path;
        files[i].size = m->list[i].size;
        files[i].tensors = m->list[i].tensors;
        files[i].n_tensors = m->list[i].n_tensors;
        n += count_hints(&m->list[i]);
    }
    lmc_match *matches = (lmc_match *)zeroed(n + 1, sizeof *matches);
    if (lmc_base_match(base, &all, matches, NULL) != LMC_OK) check_memory(NULL);
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < count_hints(&m->list[i]); k++, at++)
            found |= matches[at].file_number != SIZE_MAX &&
                     (files[i].n_tensors ? files[i].tensors[k].size : files[i].size) != 0;
    free(matches);
    free(files);
    return found;
}

int open_snapshot(lmc_writer **writer, struct output *out, struct members *m,
                  const struct base *base)
{
    lmc_writer_options options = LMC_WRITER_OPTIONS();
    const lmc_sink sink = {write_snapshot, out, {0, 0}};
    enum lmc_status status;
    int code = CODE_OK;
    options.parallel = &m->o->parallel;
    options.level = m->o->policy->level != LMC_LEVEL_DEFAULT ? m->o->policy->level : m->o->level;
    options.log2_block = m->o->policy->log2_block;
    if (base) {
        size_t n = find_parts(m, &base->source); /* sets the hints that find_shifts adds to */
        n += find_shifts(m, &base->source, &code);
        if (n && m->o->verbosity >= 2)
            say(output_name(out), "%llu tensors or files are coded against other parts of the base",
                (unsigned long long)n);
        if (code != CODE_OK) return code;
        if (n == 0 && !has_matches(m, &base->source)) base = NULL;
    }
    options.base = m->base = base ? &base->source : NULL;
    options.read_back = m->twins || m->has_pairs || (m->has_alike && !base) ? read_member : NULL;
    options.user = m;
    options.without = (m->o->no_zeros ? LMC_FEATURE_ZEROS : 0) |
                      (m->o->no_matrix ? LMC_FEATURE_MATRIX : 0) |
                      (m->o->no_codes ? LMC_FEATURE_CODES : 0);
    options.may_quantize = may_quantize(m);
    options.group_files = choose_grouping(m, options.base);
    options.content_hashes = m->o->hashes || has_hashes(m->archive); /* of equal content */
    status = lmc_writer_open(writer, &sink, &options);
    char *name = base ? name_base(base) : NULL;
    if (status == LMC_OK && name)
        status = lmc_writer_add_metadata(*writer, BASE_KEY, name, strlen(name));
    free(name);
    return status == LMC_OK ? CODE_OK : fail_writer(status, out, output_name(out));
}

/* Adds the links, when all files were read. Files of one inode number whose contents differ are no
 * hard links. */
static enum lmc_status add_links(lmc_writer *writer, struct members *m, const struct output *out)
{
    struct seen_file *files = (struct seen_file *)zeroed(m->n, sizeof *files);
    char *first;
    for (size_t i = 0; i < m->n; i++) {
        files[i].path = m->list[i].path;
        files[i].is_directory = S_ISDIR(m->list[i].st.st_mode);
        files[i].size = size_of_member(m, &m->list[i]);
        files[i].crc = m->list[i].crc;
    }
    if (m->n) qsort(files, m->n, sizeof *files, compare_texts);
    const size_t n = drop_false_links(&m->links, files, m->n, &first);
    if (n && m->o->verbosity > 0)
        say(output_name(out),
            "stores %llu file%s as such, and not as hard links: the file system gives them the "
            "inode numbers of others, but their contents differ; the first is '%.300s'",
            (unsigned long long)n, n == 1 ? "" : "s", first);
    free(first);
    free(files);
    if (m->links.n == 0) return LMC_OK;
    size_t size;
    void *const links = encode_links(&m->links, &size);
    const enum lmc_status status = lmc_writer_add_metadata(writer, LINKS_KEY, links, size);
    free(links);
    return status;
}

/* Checks that the written snapshot has the fingerprint of the one that was read: the checks of
 * single blocks do not show this. */
static int check_fingerprint(const struct archive *a, const lmc_writer *writer)
{
    const lmc_snapshot_info read = snapshot_info(a->reader);
    const lmc_writer_info written = writer_info(writer);
    if (written.is_finished && same_fingerprint(read.fingerprint, written.fingerprint))
        return CODE_OK;
    return fail_status(a->name, LMC_ERR_CORRUPT);
}

int finish_snapshot(int code, lmc_writer *writer, struct output *out, struct members *m,
                    lmc_writer_info *info)
{
    memset(info, 0, sizeof *info);
    if (code == CODE_OK) code = check_bases(m->o);
    if (code == CODE_OK) code = protect_bases(NULL, out->path, 0, m->o);
    if (code == CODE_OK) code = check_members(m);
    if (code == CODE_OK) {
        enum lmc_status status = record_choices(writer, m);
        if (status == LMC_OK && !m->archive) status = add_links(writer, m, out);
        if (status == LMC_OK) status = lmc_writer_finish(writer);
        if (status != LMC_OK) code = fail_writer(status, out, output_name(out));
        else if (m->archive) code = check_fingerprint(m->archive, writer);
    }
    if (code == CODE_OK) *info = writer_info(writer);
    lmc_writer_free(writer);
    if (code != CODE_OK) discard_output(out);
    return code;
}

/* -- from another snapshot -- */

/* Bytes that are decoded by one call. No block of a large tensor is decoded twice: the tensor has
 * its own runs, and a window is a whole number of its blocks. */
#define RECODE_WINDOW ((size_t)16 << 20)

/* The largest section that is copied: the writer holds it in memory. */
#define MOST_OF_A_SECTION ((uint64_t)64 << 20)

/* Bytes to read next: a window, or fewer, up to the start of the last tensor that begins in it. */
static size_t choose_window(const lmc_file *f, uint64_t at)
{
    uint64_t end;
    if (f->size - at <= RECODE_WINDOW) return (size_t)(f->size - at);
    end = at + RECODE_WINDOW;
    for (size_t i = f->n_tensors; i && i--;)
        if (f->tensors[i].offset <= at + RECODE_WINDOW) {
            if (f->tensors[i].offset > at) end = f->tensors[i].offset;
            break;
        }
    return (size_t)(end - at);
}

static int recode_member(struct members *m, size_t number, unsigned char *window,
                         lmc_writer *writer, const struct output *out, uint64_t *n_records)
{
    struct archive *a = m->archive;
    const struct member *member = &m->list[number];
    lmc_file file = *lmc_reader_get_file(a->reader, member->number);
    enum lmc_status status;
    uint32_t crc = 0;
    file.tensors = member->tensors;
    status = lmc_writer_copy_records(writer, a->reader, member->number, n_records);
    if (status == LMC_OK) status = begin_member(writer, member, &file, LMC_AUTO);
    for (uint64_t at = 0; at < file.size && status == LMC_OK;) {
        size_t size = choose_window(&file, at);
        status = read_counted(a, member->number, at, window, size);
        if (status != LMC_OK) return fail_damage(a, status, member->number, at);
        crc = lmc_crc32c(crc, window, size);
        status = lmc_writer_write(writer, window, size);
        at += size;
        progress_add(size);
    }
    if (status == LMC_OK && crc != file.crc) return fail_status(a->name, LMC_ERR_CORRUPT);
    if (status == LMC_OK) status = lmc_writer_end_file(writer);
    if (status == LMC_ERR_READ) /* reading a base or a twin failed, which was reported */
        return worse(m->o->bases->code, m->code);
    return status == LMC_OK ? CODE_OK : fail_writer(status, out, a->name);
}

/* The choice for the tensor of a member that begins at offset; NULL: no tensor begins there. */
static struct choice *find_choice_at(const struct members *m, size_t number, uint64_t offset)
{
    const struct member *member = number < m->n ? &m->list[number] : NULL;
    size_t low;
    FIND_FIRST(low, member ? member->n_tensors : 0,
               member->tensors[low].offset + member->tensors[low].size <= offset);
    return member && low < member->n_tensors && member->tensors[low].offset == offset
               ? &member->choices[low]
               : NULL;
}

/* Takes the old quantizer for a tensor that is coded again: so the tensor stays as small, and loses
 * nothing more. */
static int read_quantizer(struct members *m, struct choice *c)
{
    struct archive *a = m->archive;
    lmc_twin second = {0};
    enum lmc_status status;
    second.file_number = SIZE_MAX;
    status = lmc_quantizer_recover(&c->quantizer, a->reader, m->list[c->member].number, c->tensor,
                                   &second, NULL);
    if (status != LMC_OK) return fail_archive(a, status);
    if (second.file_number == SIZE_MAX) return CODE_OK;
    c->partner = find_choice_at(m, second.file_number, second.offset);
    if (!c->partner) { /* no tensor begins there, so c is not quantised again */
        lmc_quantizer_free(c->quantizer);
        c->quantizer = NULL;
        return CODE_OK;
    }
    c->has_second = c->is_wanted = m->has_pairs = 1;
    c->meaning.role = ROLE_M;
    return CODE_OK;
}

/* Called before the members are ordered. */
static int read_quantizers(struct members *m)
{
    int code = CODE_OK, any = 0;
    for (size_t i = 0; i < m->n; i++)
        any |= count_lossy(lmc_reader_get_file(m->archive->reader, i)) != 0;
    if (any) make_choices(m);
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->list[i].n_tensors && code == CODE_OK; k++)
            if (m->list[i].tensors[k].loss.generation)
                code = read_quantizer(m, &m->list[i].choices[k]);
    return code;
}

/* Called when the order of all tensors is known. */
static void attach_quantizers(struct members *m)
{
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->list[i].n_tensors && m->list[i].choices; k++) {
            struct choice *c = &m->list[i].choices[k];
            if (is_quantized(c) && (!c->has_second || (c->partner->member < i &&
                                                       !hints_of_choice(m, c->partner)->twin)))
                attach_quantizer(m, c);
        }
}

/* Whether a key is copied. Keys of the format (spec 8.3) describe the old file, and keys of a newer
 * lmc have an unknown meaning. Three are kept: the rules of losses, the links and the origin. */
static int is_kept(const char *key)
{
    return strncmp(key, "lmc.", 4) != 0 || strcmp(key, POLICY_KEY) == 0 ||
           strcmp(key, LINKS_KEY) == 0 || strcmp(key, "lmc.source") == 0;
}

static int copy_all_metadata(const struct archive *a, lmc_writer *writer, const struct output *out)
{
    const char *key;
    const void *value;
    size_t size;
    enum lmc_status status = LMC_OK;
    for (size_t i = 0;
         status == LMC_OK && lmc_reader_get_metadata(a->reader, i, &key, &value, &size) == LMC_OK;
         i++)
        if (is_kept(key)) status = lmc_writer_add_metadata(writer, key, value, size);
        else if (strcmp(key, BASE_KEY) != 0)
            say(a->name, "its metadata '%s' describes the old file, and is left out", key);
    return status == LMC_OK ? CODE_OK : fail_writer(status, out, output_name(out));
}

/* Copies sections that lmc does not know, if they are about the content. Other sections are left
 * out and reported (R4-56). The writer computes the hashes again. */
static int copy_sections(const struct archive *a, lmc_writer *writer, const struct output *out)
{
    char kind[5];
    uint64_t size;
    enum lmc_status status = LMC_OK;
    for (size_t i = 0; lmc_reader_get_section(a->reader, i, kind, &size) == LMC_OK; i++) {
        void *body;
        if (strcmp(kind, "hash") == 0) continue;
        if ((kind[3] >= 'A' && kind[3] <= 'Z') || size > MOST_OF_A_SECTION) {
            say(a->name, "its section '%s' is %s, and is left out", kind,
                size > MOST_OF_A_SECTION ? "too large" : "of the old file");
            continue;
        }
        body = resize(NULL, (size_t)size + 1, 1);
        status = lmc_reader_read_section(a->reader, i, body, (size_t)size);
        if (status != LMC_OK) {
            free(body);
            return fail_archive(a, status);
        }
        status = lmc_writer_add_section(writer, kind, body, (size_t)size);
        free(body);
        if (status != LMC_OK) return fail_writer(status, out, output_name(out));
    }
    return CODE_OK;
}

/* Copies the records of the index, after those of the files, of which n_copied were copied. Says
 * how many cannot be kept (R4-56). */
static int copy_index_records(const struct archive *a, uint64_t n_copied, lmc_writer *writer,
                              const struct output *out)
{
    const lmc_snapshot_info info = snapshot_info(a->reader);
    uint64_t n;
    enum lmc_status status = lmc_writer_copy_records(writer, a->reader, info.n_files, &n);
    if (status != LMC_OK) return fail_writer(status, out, output_name(out));
    n_copied += n;
    if (n_copied < info.n_records)
        say(a->name,
            "%llu of its %llu extension records are of the old file, or of a place that "
            "changes, and are left out",
            (unsigned long long)(info.n_records - n_copied), (unsigned long long)info.n_records);
    return CODE_OK;
}

/* -- a base that did not help -- */

static void say_useless(const struct members *m, const struct base *base, const char *source,
                        const char *output, int needs_it)
{
    const int is_unsized = m->n == 1 && m->list->size == LMC_UNKNOWN_SIZE && !m->list->n_tensors;
    const char *const why =
        is_unsized ? "it comes from a pipe, where only the headers of safetensors and NumPy files "
                     "tell the tensors; save it to a file"
                   : "no tensor or file has the same name and size, or none is similar";
    if (m->o->verbosity > 0 && !m->o->bases->is_quiet)
        say(source, "nothing of it was found in the base %.300s (%s): %.300s %s", base->name, why,
            output,
            needs_it
                ? "needs it nevertheless, as standard output and pipes cannot be written again; "
                  "leave out --base"
                : "is written without it, and does not need it");
}

/* Codes the finished output again, without its base, which it does not use. */
static int write_again(struct output *out, const struct members *m,
                       const struct attributes *attributes, const char *name)
{
    struct archive a = {0};
    struct options quiet = *m->o;
    char *const path = copy_text(out->path);
    const int error = outlet_finish(&out->outlet), force = out->force;
    quiet.verbosity = 0;
    a.o = &quiet;
    a.name = name;
    a.fd = error ? -1 : dup(out->fd);
    int code = error ? fail_output(out, error)
               : a.fd < 0 || fstat(a.fd, &a.st) != 0
                   ? fail_errno(name, errno, "cannot read its copy")
                   : read_archive_index(&a, m->base);
    discard_output(out);
    if (code == CODE_OK) begin_to_count(&a);
    if (code == CODE_OK) code = open_output(out, path, NULL, force);
    if (code == CODE_OK) code = recode_archive(&a, NULL, out, attributes, m, &quiet);
    close_archive(&a);
    free(path);
    return code;
}

int commit_snapshot(struct output *out, const struct members *m, const struct base *base,
                    const lmc_writer_info *info, const struct attributes *attributes,
                    const char *source, int *is_useless)
{
    const int is_written_again = m->base && info->from_base_size == 0 && out->is_file;
    const int needs_it = m->base && !is_written_again;
    char *const name = copy_text(output_name(out));
    const int code =
        is_written_again ? write_again(out, m, attributes, source) : commit_output(out, attributes);
    *is_useless = code == CODE_OK && base && info->from_base_size == 0;
    if (*is_useless) say_useless(m, base, source, name, needs_it);
    free(name);
    return code;
}

int recode_archive(struct archive *a, const struct base *base, struct output *out,
                   const struct attributes *attributes, const struct members *known,
                   const struct options *o)
{
    struct members m = {0};
    lmc_writer_info written;
    lmc_writer *writer = NULL;
    unsigned char *window;
    uint64_t total = 0, n_records = 0, n_copied = 0;
    double start = now();
    char *shown = copy_text(output_name(out));
    int code = CODE_OK, is_useless;
    m.o = o;
    m.archive = a;
    m.n = snapshot_info(a->reader).n_files;
    m.list = (struct member *)zeroed(m.n, sizeof *m.list);
    for (size_t i = 0; i < m.n; i++) {
        const lmc_file *f = lmc_reader_get_file(a->reader, i);
        m.list[i].path = f->path;
        m.list[i].number = i;
        m.list[i].size = f->size;
        set_tensors(&m.list[i], f->tensors, f->n_tensors);
        total += f->size;
    }
    progress_start(a->name, total);
    code = read_links(&m.links, a->reader) == 0 ? CODE_OK : fail_bad_links(a->name);
    if (code == CODE_OK) code = read_quantizers(&m);
    if (code == CODE_OK && known) take_twins(&m, known);
    else if (code == CODE_OK && out->is_file && !o->no_twins) code = find_twins(&m);
    attach_quantizers(&m);
    if (code == CODE_OK) code = open_snapshot(&writer, out, &m, base);
    if (code == CODE_OK) code = copy_all_metadata(a, writer, out);
    if (code == CODE_OK) code = copy_sections(a, writer, out);
    window = (unsigned char *)resize(NULL, RECODE_WINDOW, 1);
    for (size_t i = 0; i < m.n && code == CODE_OK; i++) {
        code = recode_member(&m, i, window, writer, out, &n_records);
        n_copied += n_records;
    }
    free(window);
    if (code == CODE_OK) code = copy_index_records(a, n_copied, writer, out);
    code = finish_snapshot(code, writer, out, &m, &written);
    if (code == CODE_OK)
        code = commit_snapshot(out, &m, base, &written, attributes, a->name, &is_useless);
    progress_clear();
    if (code == CODE_OK) say_sizes(o, shown, total, out->outlet.size, total, start);
    free(shown);
    free_members(&m);
    return code;
}
