/* SPDX-License-Identifier: MIT */
#include "reread.h"

#include "options.h"
#include "archive.h"
#include "source.h"
#include "../sys/io.h"
#include "../sys/temporary.h"

void init_reread(struct reread *l, struct source *s, const lmc_base *base, const struct options *o)
{
    memset(l, 0, sizeof *l);
    l->source = s;
    l->base = base;
    l->o = o;
}

static enum lmc_status read_back(void *user, size_t number, uint64_t offset, void *dst, size_t size)
{
    return read_again((struct reread *)user, number, offset, dst, size);
}

/* -- what makes a snapshot of a directory restorable -- */

static enum lmc_status look_begin(void *user, const lmc_file *file, size_t number)
{
    struct reread *l = (struct reread *)user;
    uint64_t depth = file->kind == LMC_FILE_DIRECTORY;
    add_seen_file(&l->seen, file);
    l->is_tree = *file->path || file->kind == LMC_FILE_DIRECTORY;
    for (const char *c = file->path; *c; c++) depth += *c == '/';
    l->n_names += depth + 1;
    if (*file->path && depth > l->deepest) l->deepest = depth;
    return l->theirs.begin_file ? l->theirs.begin_file(user, file, number) : LMC_OK;
}

static enum lmc_status look_end(void *user, const lmc_file *file, size_t number)
{
    struct reread *l = (struct reread *)user;
    struct seen_file *seen = &l->seen.list[number];
    seen->size = file->size;
    seen->crc = file->crc;
    seen->is_unread = l->lacks_base && file->crc == 0; /* the index will tell it, later */
    return l->theirs.end_file ? l->theirs.end_file(user, file, number) : LMC_OK;
}

static enum lmc_status look_at_metadata(void *user, const char *key, const void *value, size_t size)
{
    struct reread *l = (struct reread *)user;
    if (l->is_tree && strcmp(key, LINKS_KEY) == 0 &&
        (decode_links(&l->links, value, size) != 0 ||
         match_links(l->links.list, l->links.n, l->seen.list, l->seen.n) != 0)) {
        l->code = fail_bad_links(l->source->name);
        return LMC_ERR_WRITE;
    }
    return l->theirs.metadata ? l->theirs.metadata(user, key, value, size) : LMC_OK;
}

int check_links_of_tree(const struct links *l, const char *name, const struct options *o)
{
    const uint64_t most = most_files(o), deepest = most_levels(o);
    if (l->n > most)
        return fail(CODE_ERROR, name, "holds %llu links; --max-files allows more than %llu",
                    (unsigned long long)l->n, (unsigned long long)most);
    for (size_t i = 0; i < l->n; i++) {
        uint64_t depth = 1;
        for (const char *p = l->list[i].path; *p; p++) depth += *p == '/';
        if (depth > deepest)
            return fail(CODE_ERROR, name,
                        "holds a link %llu directories deep; --max-depth allows more than %llu",
                        (unsigned long long)depth, (unsigned long long)deepest);
    }
    return CODE_OK;
}

/* Restoring has reported this already, before the files were made. */
static int check_limits(struct reread *l)
{
    const char *const name = l->source->name;
    const uint64_t most = most_files(l->o), deepest = most_levels(l->o);
    if (!l->is_tree) return CODE_OK;
    if (l->deepest > deepest)
        return fail(CODE_ERROR, name,
                    "holds directories more than %llu levels deep, which a small hostile snapshot "
                    "can ask for; if you trust it, allow more with --max-depth",
                    (unsigned long long)deepest);
    if (l->n_names > most && count_entries(l->seen.list, l->seen.n) > most)
        return fail(CODE_ERROR, name,
                    "holds more than %llu files and directories, which a small hostile snapshot "
                    "can ask for; if you trust it, allow more with --max-files",
                    (unsigned long long)most);
    return check_links_of_tree(&l->links, name, l->o);
}

enum lmc_status restore_source(struct reread *l, lmc_restore_options *options, uint8_t *fingerprint)
{
    const lmc_stream stream = {read_stream, l->source, {0, 0}};
    l->theirs = *options;
    options->user = l;
    options->begin_file = look_begin;
    options->end_file = look_end;
    options->metadata = look_at_metadata;
    if (!options->read_back) options->read_back = read_back;
    options->parallel = &l->o->parallel;
    options->base = l->base;
    options->check_hashes = l->o->hashes;
    if (l->lacks_base) {
        options->write = NULL;
        options->read_back = NULL;
        options->check_hashes = 0;
    }
    lmc_snapshot_info info = {0};
    enum lmc_status status = lmc_snapshot_restore(&stream, &info, options);
    l->has_hashes = info.hashes_checked;
    if (status == LMC_OK && fingerprint)
        memcpy(fingerprint, info.fingerprint, sizeof info.fingerprint);
    if (l->lacks_base && (status == LMC_ERR_BASE_MISSING || status == LMC_ERR_READ_BACK))
        status = LMC_OK;
    if (status == LMC_OK) l->code = check_limits(l);
    return l->code == CODE_OK ? status : LMC_ERR_WRITE;
}

int check_has_hashes(const struct reread *l)
{
    if (!l->o->hashes || l->has_hashes) return CODE_OK;
    return fail(CODE_ERROR, l->source->name,
                "it is intact, but has no hashes: 'lmc --hash' writes them");
}

/* -- reading again -- */

/* Whether the snapshot may predict itself (spec 3.1). 0 without a header: s may never end. */
static int may_repeat(const struct source *s)
{
    lmc_snapshot_info info;
    return lmc_header_parse(s->header, sizeof s->header, &info) == LMC_OK &&
           (info.features & LMC_FEATURE_OWN);
}

static int copy_to_scratch(struct source *s, int fd)
{
    unsigned char *buffer = (unsigned char *)resize(NULL, BUFFER_SIZE, 1);
    struct outlet out = {0};
    size_t size = 1;
    int error = 0;
    out.fd = fd;
    while (!error && size) {
        s->error = read_stream(s, buffer, BUFFER_SIZE, &size) == LMC_OK ? 0 : s->error;
        if (s->error) break;
        error = outlet_write(&out, buffer, size);
    }
    if (!error) error = outlet_finish(&out);
    free(buffer);
    if (s->error) return fail_errno(s->name, s->error, "cannot read it");
    return error ? fail_scratch(error) : CODE_OK;
}

int spool_source(struct source *s, const char *beside)
{
    int fd, code = open_scratch(beside, &fd);
    if (code != CODE_OK) return code;
    code = copy_to_scratch(s, fd);
    if (code == CODE_OK && (fstat(fd, &s->st) != 0 || lseek(fd, 0, SEEK_SET) != 0))
        code = fail_scratch(errno);
    if (s->fd > STDIN_FILENO) close(s->fd);
    free(s->head);
    progress_take_back(s->taken); /* all of it will be read again */
    s->fd = fd;                   /* owned by the source from now on */
    s->head = NULL;
    s->head_size = s->head_taken = 0;
    s->head_ended = 0;
    s->start = s->taken = 0;
    s->size = (uint64_t)s->st.st_size;
    return code;
}

int keep_source(struct reread *l)
{
    struct source *s = l->source;
    if (S_ISREG(s->st.st_mode) || !may_repeat(s)) return CODE_OK;
    const int code = spool_source(s, P_tmpdir "/lmc");
    if (code == CODE_OK && l->o->verbosity >= 2)
        say(s->name, "repeats earlier bytes, which cannot be read again from a pipe: they are kept "
                     "in a scratch file");
    return code;
}

static int open_reread(struct reread *l)
{
    if (!S_ISREG(l->source->st.st_mode))
        return fail(
            CODE_ERROR, l->source->name,
            "has tensors that repeat others, which cannot be read again from a pipe; restore "
            "it to a file or directory with -o, or save it to a file first");
    l->is_open = 1;
    int code = open_archive_of_source(&l->archive, l->source, l->o);
    return code == CODE_OK ? read_archive_index(&l->archive, l->base) : code;
}

enum lmc_status read_again(struct reread *l, size_t number, uint64_t offset, void *dst, size_t size)
{
    int *code = &l->o->bases->code;
    if (!l->is_open) *code = open_reread(l);
    if (*code != CODE_OK) return LMC_ERR_READ;
    lmc_base by_reader = lmc_reader_base(l->archive.reader); /* keeps its windows between calls */
    enum lmc_status status = by_reader.read(by_reader.user, number, offset, dst, size);
    if (status == LMC_ERR_LIMIT) *code = fail_work(&l->archive);
    else if (status != LMC_OK) *code = fail_archive(&l->archive, status);
    return *code == CODE_OK ? LMC_OK : LMC_ERR_READ;
}

void close_reread(struct reread *l)
{
    if (l->is_open) close_archive(&l->archive);
    free_links(&l->links);
    free_seen_files(&l->seen);
}

int fail_restore(const struct reread *l, enum lmc_status status)
{
    const struct source *s = l->source;
    char where[DAMAGE_TEXT];
    if (l->code != CODE_OK) return l->code;
    if (s->error) return fail_errno(s->name, s->error, "cannot read it");
    if (status == LMC_ERR_READ) /* of a base or of the source again; it was reported */
        return l->o->bases->code;
    if (s->head_ended && s->head_size == 0) return fail(CODE_CORRUPT, s->name, "is empty");
    *where = 0;
    if (S_ISREG(s->st.st_mode) &&
        (status == LMC_ERR_CHECKSUM || status == LMC_ERR_CORRUPT || status == LMC_ERR_TRUNCATED)) {
        struct archive a;
        if (open_archive_of_source(&a, l->source, l->o) != CODE_OK ||
            look_for_damage(&a, l->base, where) == LMC_OK)
            *where = 0;
        close_archive(&a);
    }
    return fail_snapshot_at(s->name, s->header, status, where);
}

static int check_whole(const char *path, const lmc_base *base, int lacks_base,
                       const struct options *o)
{
    struct source s;
    struct reread l;
    lmc_restore_options options = LMC_RESTORE_OPTIONS();
    int code = open_checked(&s, path, 0);
    init_reread(&l, &s, base, o);
    l.lacks_base = lacks_base;
    if (code == CODE_OK) {
        progress_start(s.name, s.size);
        enum lmc_status status = restore_source(&l, &options, NULL);
        progress_clear();
        if (status != LMC_OK) code = fail_restore(&l, status);
        if (s.fd == STDIN_FILENO && lseek(s.fd, (off_t)s.start, SEEK_SET) < 0 && code == CODE_OK)
            code = fail_errno(s.name, errno, "cannot read it again");
    }
    close_reread(&l);
    close_source(&s);
    return code;
}

int check_payload(const char *path, const struct options *o)
{
    return check_whole(path, NULL, 1, o);
}

int check_hashes(const char *path, const lmc_base *base, const struct options *o)
{
    struct options hashing = *o;
    hashing.hashes = 1;
    return check_whole(path, base, 0, &hashing);
}
