/* inside.c - the tensors of PyTorch's files in a snapshot (archive.h)
 * SPDX-License-Identifier: MIT */

#include "../../formats/torch.h"
#include "archive.h"
#include "options.h"

struct place_in_archive {
    lmc_base content; /* keeps the last decoded block */
    size_t file;
    struct archive *archive;
    int has_failed; /* a read has failed: the base may be missing */
};

static int read_inside(void *user, uint64_t offset, void *dst, size_t size)
{
    struct place_in_archive *const p = (struct place_in_archive *)user;
    p->archive->n_read_inside += size;
    p->has_failed |= p->content.read(p->content.user, p->file, offset, dst, size) != LMC_OK;
    return p->has_failed;
}

/* The number of the file .metadata in the directory of that path; SIZE_MAX: there is none. */
static size_t find_metadata(const struct archive *a, const char *path)
{
    const lmc_base files = files_of_archive(a);
    const int size = (int)(base_name(path) - path);
    char *wanted = format_text("%.*s.metadata", size, path);
    size_t i = SIZE_MAX;
    if (!a->plain) {
        if (lmc_reader_find_file(a->reader, wanted, &i) != LMC_OK) i = SIZE_MAX;
    } else { /* listed by path */
        FIND_FIRST(i, files.n_files, strcmp(files.get_file(files.user, i)->path, wanted) < 0);
        if (i == files.n_files || strcmp(files.get_file(files.user, i)->path, wanted) != 0)
            i = SIZE_MAX;
    }
    free(wanted);
    return i;
}

/* See struct view. A delta may be far smaller than its files; an uncompressed file has its size. */
static uint64_t weigh_file(const struct archive *a, const lmc_file *f)
{
    return a->is_delta || a->plain ? f->size : archive_size(a);
}

/* The names of items from .metadata; NULL: it is not there, or cannot be used. */
static const struct dcp *read_metadata(struct archive *a, const char *path)
{
    const size_t i = find_metadata(a, path);
    const lmc_base files = files_of_archive(a);
    const lmc_file *f = i == SIZE_MAX ? NULL : files.get_file(files.user, i);
    const struct dcp *d;
    if (!f || f->size > pickle_max_size(weigh_file(a, f))) return NULL;
    if (dcp_recall(&a->metadata, &d, i)) return d;
    void *data = resize(NULL, (size_t)f->size, 1);
    const int is_read = read_counted(a, i, 0, data, (size_t)f->size) == LMC_OK;
    if (dcp_remember(&a->metadata, &d, i, is_read ? data : NULL, (size_t)f->size,
                     weigh_file(a, f)) != CONTAINER_OK)
        check_memory(NULL);
    free(data);
    if (d) a->n_found_inside += dcp_weigh(d);
    return d;
}

/* Whether the views found so far have reached the limit for all files of a compressed archive. */
static int has_said_all(struct archive *a)
{
    if (a->is_delta || a->plain ||
        !container_has_said_all(a->n_read_inside, a->n_found_inside, archive_size(a)))
        return 0;
    if (!a->is_inside_cut)
        say(a->name, "its files of PyTorch list more than its size allows: the others are listed "
                     "without their own names");
    a->is_inside_cut = 1;
    return 1;
}

int look_inside(struct container *c, struct archive *a, size_t file)
{
    struct place_in_archive place = {files_of_archive(a), file, a, 0};
    const lmc_file *f = place.content.get_file(place.content.user, file);
    const struct view v = {f->size, weigh_file(a, f), read_inside, &place};
    const struct dcp *d = NULL;
    unsigned char head[4];
    if (f->kind != LMC_FILE_REGULAR || f->size < sizeof head ||
        container_kind_of_name(f->path) != CONTAINER_NONE ||
        read_inside(&place, 0, head, sizeof head) != 0 ||
        !container_wants_view(head, sizeof head, f->path) || has_said_all(a))
        return 0;
    if (container_is_distcp(f->path)) d = read_metadata(a, f->path);
    enum container_result result = container_find_views(c, &v, f, d);
    if (result == CONTAINER_MEMORY) check_memory(NULL);
    if (a->o->verbosity >= 2 && !place.has_failed && (result != CONTAINER_OK || c->n_views == 0)) {
        const char *const why = result == CONTAINER_OK ? c->note : c->error;
        if (*why)
            say(a->name, "%.300s is listed without its own names: %s",
                *f->path ? f->path : "the file", why);
    }
    if (result == CONTAINER_OK) a->n_found_inside += container_weigh_views(c);
    return result == CONTAINER_OK;
}
