/* SPDX-License-Identifier: MIT */
#include "base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../format/container.h"
#include "../format/hex.h"
#include "../format/tensors.h"
#include "archive.h"
#include "opened.h"
#include "common.h"
#include "side_file.h"
#include "source.h"
#include "../sys/attributes.h"
#include "../sys/io.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/progress.h"
#include "../sys/report.h"
#include "../sys/tree.h"

/* -- a base of files -- */

static struct base_file *add_base_file(struct base *b, const char *path, const char *full)
{
    struct base_file *f;
    if (b->n_files == b->room) {
        b->room = b->room * 2 + 16;
        b->files = (struct base_file *)resize(b->files, b->room, sizeof *b->files);
    }
    f = &b->files[b->n_files++];
    memset(f, 0, sizeof *f);
    f->path = copy_string(path, strlen(path));
    f->full = copy_string(full, strlen(full));
    f->file.path = f->path;
    return f;
}

static void forget_base_files(struct base *b)
{
    close_opened(&b->opened);
    for (size_t i = 0; i < b->n_files; i++) {
        free(b->files[i].path);
        free(b->files[i].full);
        free(b->files[i].tensors);
    }
    b->n_files = 0;
}

static int identify_base_file(struct base_file *f, struct source *s, const struct common *o)
{
    lmc_stream stream;
    struct stat st;
    enum lmc_status status;
    f->st = s->st;
    f->file.kind = S_ISDIR(s->st.st_mode) ? LMC_FILE_DIRECTORY : LMC_FILE_REGULAR;
    f->file.size = S_ISDIR(s->st.st_mode) ? 0 : s->size;
    f->file.n_tensors = s->container.n_tensors;
    f->file.tensors = f->tensors = copy_tensors(s->container.tensors, s->container.n_tensors);
    container_free(&s->container);
    stream.read = read_stream;
    stream.user = s;
    progress_start(s->name, s->size);
    status = lmc_identify_file(&f->file, f->tensors, &stream, &o->parallel, NULL);
    progress_clear();
    if (s->error) return fail_errno(s->name, s->error, "cannot read it");
    if (status == LMC_ERR_TRUNCATED ||
        (status == LMC_OK && (fstat(s->fd, &st) != 0 || !same_state(&st, &s->st))))
        return fail_changed(s->name);
    return status == LMC_OK ? CODE_OK : fail_status(s->name, status);
}

/* path: in the snapshot; is_named: see struct source */
static int take_base_file(struct base *b, const char *path, const char *full, int is_named,
                          const struct common *o)
{
    struct source s;
    int code = open_source(&s, full);
    s.is_named = is_named;
    if (code == CODE_OK && !S_ISDIR(s.st.st_mode)) code = identify_source(&s, o);
    if (code == CODE_OK) code = identify_base_file(add_base_file(b, path, full), &s, o);
    close_source(&s);
    return code;
}

static int take_base_tree(struct base *b, const struct common *o)
{
    struct listing l;
    int code = list_sources(&l, b->name);
    for (size_t i = 0; i < l.n && code == CODE_OK; i++)
        if (is_stored(&l.entries[i], &l)) {
            char *full = join_path(b->name, l.entries[i].path);
            code = take_base_file(b, l.entries[i].path, full, 0, o);
            free(full);
        }
    free_listing(&l);
    return code;
}

static const lmc_file *get_base_file(void *user, size_t number)
{
    return &((struct base *)user)->files[number].file;
}

static enum lmc_status read_base_file(void *user, size_t number, uint64_t offset, void *dst,
                                      size_t size)
{
    struct base *b = (struct base *)user;
    b->all->code =
        read_opened(&b->opened, b->files[number].full, &b->files[number].st, offset, dst, size);
    return b->all->code == CODE_OK ? LMC_OK : LMC_ERR_READ;
}

/* That what was read is what was identified. */
static int check_base(const struct base *b)
{
    struct stat st;
    for (size_t i = 0; i < b->n_files; i++)
        if (b->files[i].file.kind == LMC_FILE_REGULAR &&
            (stat(b->files[i].full, &st) != 0 || !same_state(&st, &b->files[i].st)))
            return fail_changed(b->files[i].full);
    return CODE_OK;
}

/* -- a base that is a snapshot -- */

static const lmc_file *get_archive_file(void *user, size_t number)
{
    return lmc_get_file(((struct base *)user)->archive.reader, number);
}

static enum lmc_status read_archive_file(void *user, size_t number, uint64_t offset, void *dst,
                                         size_t size)
{
    struct base *b = (struct base *)user;
    enum lmc_status status = b->by_reader.read(b->by_reader.user, number, offset, dst, size);
    if (status == LMC_OK) return LMC_OK;
    b->all->code = fail_archive(&b->archive, status);
    return LMC_ERR_READ;
}

/* -- finding the right one -- */

int open_base(struct base *b, const struct common *o)
{
    static const unsigned char magic[8] = {0x83, 'L', 'M', 'C', 0x0D, 0x0A, 0x1A, 0x0A};
    unsigned char bytes[8];
    struct stat st;
    int fd;
    if (b->state >= BASE_OPEN) return CODE_OK;
    if (stat(b->name, &st) != 0)
        return fail(CODE_BASE, b->name, "the base cannot be opened: %s", strerror(errno));
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return fail(CODE_BASE, b->name,
                    "is neither a file nor a directory, and a base must be one of them");
    if (S_ISREG(st.st_mode)) {
        fd = open(b->name, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return fail(CODE_BASE, b->name, "the base cannot be opened: %s", strerror(errno));
        b->is_archive = has_suffix(b->name) || (read_at(fd, 0, bytes, sizeof bytes) == 0 &&
                                                memcmp(bytes, magic, sizeof magic) == 0);
        close(fd);
    }
    if (b->is_archive || !b->is_target) {
        int code = b->is_archive ? open_archive_file(&b->archive, b->name, o)
                                 : check_finished(b->name, CODE_BASE);
        if (code != CODE_OK) return code;
    }
    b->state = BASE_OPEN;
    return CODE_OK;
}

int identify_base(struct base *b, const struct common *o)
{
    int code = open_base(b, o);
    struct stat st;
    if (code != CODE_OK || b->state >= BASE_IDENTIFIED) return code;
    if (b->is_archive) {
        code = read_archive_index(&b->archive, NULL);
        if (code == CODE_OK) snapshot_identity(b->archive.reader, b->identity);
    } else {
        forget_base_files(b); /* of an attempt for the input before this one */
        if (stat(b->name, &st) != 0)
            return fail(CODE_BASE, b->name, "the base cannot be looked at: %s", strerror(errno));
        code = S_ISDIR(st.st_mode) ? take_base_tree(b, o) : take_base_file(b, "", b->name, 1, o);
        b->source.n_files = b->n_files;
        b->source.get_file = get_base_file;
        b->source.read = read_base_file;
        b->source.user = b;
        if (code == CODE_OK && lmc_identify_base(&b->source, b->identity, NULL) != LMC_OK)
            check_memory(NULL);
    }
    if (code == CODE_OK) b->state = BASE_IDENTIFIED;
    return code;
}

int fail_base(const char *name, const uint8_t *wanted, const char *made_with,
              const struct common *o)
{
    char text[2 * SHORT_IDENTITY + 1], given[2 * SHORT_IDENTITY + 1], list[512] = "";
    size_t size = 0;
    format_hex(text, wanted, SHORT_IDENTITY);
    for (size_t i = 0; i < o->bases->n && size < sizeof list; i++) {
        format_hex(given, o->bases->list[i].identity, SHORT_IDENTITY);
        size += (size_t)snprintf(list + size, sizeof list - size, "%s%s is %s",
                                 i ? ", " : "; given: ", o->bases->list[i].name, given);
    }
    return fail(CODE_BASE, name, "needs the base %s%s%.200s%s%s", text,
                made_with ? " (named '" : "", made_with ? made_with : "",
                made_with ? "' when this delta was made)" : "",
                size ? list : "; name it with --base");
}

struct base *find_base(const uint8_t *wanted, const struct common *o, int *code)
{
    enum { WHOLE_ARCHIVES, FILES, DELTAS, KINDS };
    struct base *visited = NULL;
    *code = CODE_OK;
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t i = 0; i < o->bases->n; i++) {
            struct base *b = &o->bases->list[i];
            *code = open_base(b, o);
            if (*code != CODE_OK) return NULL;
            if (kind != (!b->is_archive                ? FILES
                         : b->archive.chain_depth == 0 ? WHOLE_ARCHIVES
                                                       : DELTAS))
                continue;
            *code = identify_base(b, o);
            if (*code != CODE_OK) return NULL;
            if (memcmp(b->identity, wanted, LMC_IDENTITY_SIZE) != 0) continue;
            if (!b->is_visited) return b;
            visited = b;
        }
    return visited;
}

/* The base of an open delta, ready; *base: NULL if it is none. */
static int find_link(struct archive *a, struct base **base, const struct common *o)
{
    struct base *b;
    int code;
    *base = NULL;
    o->bases->code = CODE_OK;
    if (a->chain_depth == 0) return CODE_OK;
    b = find_base(a->wanted, o, &code);
    if (code == CODE_OK && !b) {
        char *made_with = NULL;
        if (a->fd >= 0 && !a->reader) code = read_archive_index(a, NULL);
        if (a->reader) made_with = copy_metadata(a, BASE_KEY);
        if (code == CODE_OK) code = fail_base(a->name, a->wanted, made_with, o);
        free(made_with);
    }
    if (code == CODE_OK) code = prepare_base(b, o);
    if (code == CODE_OK) {
        *base = b;
        a->lender = b->is_archive ? b->archive.reader : NULL;
    }
    return code;
}

int find_base_of_archive(struct archive *a, const lmc_base **base, const struct common *o)
{
    struct base *b;
    int code = find_link(a, &b, o);
    *base = b ? &b->source : NULL;
    return code;
}

int prepare_base(struct base *b, const struct common *o)
{
    int code = identify_base(b, o);
    if (code != CODE_OK || b->state == BASE_READY) return code;
    if (b->is_archive) {
        struct base *own;
        if (b->is_visited)
            return fail(CODE_BASE, b->name, "is a delta that needs itself: the bases form a loop");
        b->is_visited = 1;
        code = find_link(&b->archive, &own, o);
        if (code == CODE_OK && own) code = read_archive_index(&b->archive, &own->source);
        b->below = own;
        b->is_visited = 0;
        b->by_reader = lmc_make_reader_base(b->archive.reader);
        b->source.n_files = snapshot_info(b->archive.reader).n_files;
        b->source.get_file = get_archive_file;
        b->source.read = read_archive_file;
        b->source.user = b;
        b->source.chain_depth = b->archive.chain_depth;
    }
    if (code == CODE_OK) b->state = BASE_READY;
    return code;
}

char *name_base(const struct base *b)
{
    size_t size = strlen(b->name), start;
    char *name;
    while (size > 1 && b->name[size - 1] == '/') size--;
    for (start = size; start > 0 && b->name[start - 1] != '/'; start--);
    name = copy_string(b->name + start, size - start);
    if (*name && !is_dot(name)) return name;
    free(name);
    return NULL;
}

int choose_base(const struct base **base, const struct common *o)
{
    int code = o->bases->n ? prepare_base(&o->bases->list[0], o) : CODE_OK;
    o->bases->code = CODE_OK;
    *base = o->bases->n && code == CODE_OK ? &o->bases->list[0] : NULL;
    return code;
}

int choose_base_of_source(const lmc_base **base, struct source *s, const struct common *o)
{
    struct archive a;
    int code = read_head(s, LMC_FILE_HEADER_SIZE);
    *base = NULL;
    if (code != CODE_OK) return code;
    memset(&a, 0, sizeof a);
    a.fd = -1;
    if (S_ISREG(s->st.st_mode)) /* then it can tell more */
        code = open_archive_of_source(&a, s, o);
    a.name = s->name;
    if (s->head_size < LMC_FILE_HEADER_SIZE ||
        parse_header(s->head, s->head_size, a.wanted, &a.chain_depth) != 0)
        a.chain_depth = 0; /* what is wrong is found again when it is restored */
    if (code == CODE_OK) code = find_base_of_archive(&a, base, o);
    close_archive(&a);
    return code;
}

void add_base(struct bases *bases, const char *name)
{
    struct base *b;
    bases->list = (struct base *)resize(bases->list, bases->n + 1, sizeof *bases->list);
    b = &bases->list[bases->n++];
    memset(b, 0, sizeof *b);
    b->name = name;
    b->all = bases;
}

int check_bases(const struct common *o)
{
    int code = CODE_OK;
    for (size_t i = 0; i < o->bases->n && code == CODE_OK; i++)
        code = check_base(&o->bases->list[i]);
    return code;
}

void free_bases(struct bases *bases)
{
    for (size_t i = 0; i < bases->n; i++) {
        struct base *b = &bases->list[i];
        forget_base_files(b);
        free(b->files);
        close_opened(&b->opened);
        if (b->is_archive) close_archive(&b->archive);
    }
    free(bases->list);
}

/* Whether path lies within a base; or, if is_whole, holds one; or, unless may_replace, is one. */
static int touches_base(const char *path, int is_whole, int may_replace, const struct common *o)
{
    struct stat st, other;
    for (size_t i = 0; i < o->bases->n; i++) {
        const char *name = o->bases->list[i].name;
        if (stat(path, &st) == 0 && stat(name, &other) == 0 &&
            (same_file(&st, &other)
                 ? !may_replace
                 : lies_within(path, name) || (is_whole && lies_within(name, path))))
            return 1;
    }
    return 0;
}

int protect_bases(const char *source, const char *output, int may_replace, const struct common *o)
{
    char *directory;
    int code = CODE_OK;
    if (source && touches_base(source, 1, 0, o))
        return fail(CODE_ERROR, source,
                    "is, holds or belongs to a base, without which deltas are worth nothing: not "
                    "with --rm");
    if (!output) return CODE_OK;
    directory = directory_of(output);
    if (touches_base(output, 1, may_replace, o) || touches_base(directory, 0, 0, o))
        code = fail(CODE_ERROR, output,
                    "is or belongs to a base, which would be changed; name another output with -o");
    free(directory);
    return code;
}
