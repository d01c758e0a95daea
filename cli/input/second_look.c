/* SPDX-License-Identifier: MIT */
#include "second_look.h"

#include "options.h"
#include "archive.h"
#include "source.h"
#include "../sys/io.h"
#include "../sys/temporary.h"

void init_second_look(struct second_look *l, struct source *s, const lmc_base *base,
                      const struct options *o)
{
    memset(l, 0, sizeof *l);
    l->source = s;
    l->base = base;
    l->o = o;
}

static enum lmc_status read_back(void *user, size_t number, uint64_t offset, void *dst, size_t size)
{
    return read_second_look((struct second_look *)user, number, offset, dst, size);
}

enum lmc_status restore_source(struct second_look *l, lmc_restore_options *options,
                               uint8_t *fingerprint)
{
    const lmc_stream stream = {read_stream, l->source};
    options->user = l;
    if (!options->read_back) options->read_back = read_back;
    options->parallel = &l->o->parallel;
    options->base = l->base;
    if (l->lacks_base) {
        options->write = NULL;
        options->read_back = NULL;
        options->check_hashes = 0;
    }
    enum lmc_status status = lmc_snapshot_restore(&stream, fingerprint, options);
    return l->lacks_base && (status == LMC_ERR_BASE_MISSING || status == LMC_ERR_READ_BACK)
               ? LMC_OK
               : status;
}

/* Whether bit 1 of Incompatible, Own, is set (spec 3.1). 0 without a header: s may never end. */
static int may_repeat(const struct source *s)
{
    lmc_snapshot_info info;
    return lmc_header_parse(s->header, sizeof s->header, &info) == LMC_OK && (info.features & 2);
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
    progress_add(0 - s->taken); /* all of it will be read again */
    s->fd = fd;                 /* owned by the source from now on */
    s->head = NULL;
    s->head_size = s->head_taken = 0;
    s->head_ended = 0;
    s->start = s->taken = 0;
    s->size = (uint64_t)s->st.st_size;
    return code;
}

int keep_source(struct second_look *l)
{
    struct source *s = l->source;
    if (S_ISREG(s->st.st_mode) || !may_repeat(s)) return CODE_OK;
    const int code = spool_source(s, P_tmpdir "/lmc");
    if (code == CODE_OK && l->o->verbosity >= 2)
        say(s->name, "repeats earlier bytes, which cannot be read again from a pipe: they are kept "
                     "in a scratch file");
    return code;
}

static int open_second_look(struct second_look *l)
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

enum lmc_status read_second_look(struct second_look *l, size_t number, uint64_t offset, void *dst,
                                 size_t size)
{
    int *code = &l->o->bases->code;
    if (!l->is_open) *code = open_second_look(l);
    if (*code != CODE_OK) return LMC_ERR_READ;
    lmc_base by_reader = lmc_reader_base(l->archive.reader); /* keeps its windows between calls */
    enum lmc_status status = by_reader.read(by_reader.user, number, offset, dst, size);
    if (status != LMC_OK) *code = fail_archive(&l->archive, status);
    return *code == CODE_OK ? LMC_OK : LMC_ERR_READ;
}

void close_second_look(struct second_look *l)
{
    if (l->is_open) close_archive(&l->archive);
}

int fail_restore(const struct second_look *l, enum lmc_status status)
{
    const struct source *s = l->source;
    char where[DAMAGE_TEXT];
    if (s->error) return fail_errno(s->name, s->error, "cannot read it");
    if (status == LMC_ERR_READ) /* of a base or a second look; it was reported */
        return l->o->bases->code;
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

int check_payload(const char *path, const struct options *o)
{
    struct source s;
    struct second_look l;
    lmc_restore_options options = {0};
    int code = open_source(&s, path);
    init_second_look(&l, &s, NULL, o);
    l.lacks_base = 1;
    if (code == CODE_OK) {
        progress_start(s.name, s.size);
        enum lmc_status status = restore_source(&l, &options, NULL);
        progress_clear();
        if (status != LMC_OK) code = fail_restore(&l, status);
        if (s.fd == STDIN_FILENO && lseek(s.fd, (off_t)s.start, SEEK_SET) < 0 && code == CODE_OK)
            code = fail_errno(s.name, errno, "cannot read it again");
    }
    close_second_look(&l);
    close_source(&s);
    return code;
}
