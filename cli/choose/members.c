/* SPDX-License-Identifier: MIT */
#include "members.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "policy.h"
#include "../../formats/container.h"
#include "../format/tensors.h"
#include "../input/archive.h"
#include "../input/damage.h"
#include "../input/source.h"
#include "../sys/attributes.h"
#include "../sys/memory.h"
#include "../sys/report.h"

static void free_choices(struct member *member)
{
    for (size_t k = 0; k < member->n_tensors && member->choices; k++) {
        lmc_quantizer_free(member->choices[k].quantizer);
        free(member->choices[k].reason);
    }
    free(member->choices);
}

void free_members(struct members *m)
{
    for (size_t i = 0; i < m->n; i++) {
        free_choices(&m->list[i]);
        free(m->list[i].full);
        free(m->list[i].tensors);
        free(m->list[i].parts);
    }
    free(m->list);
    free(m->twins);
    free_links(&m->links);
    free(m->parts);
    for (size_t i = 0; i < m->n_shifted; i++) free(m->shifted[i]);
    free((void *)m->shifted);
    free((void *)m->lossy);
    close_opened(&m->opened);
}

/* What is wanted of a snapshot are samples and the masters of small tensors, mostly one behind the
 * other. So it is read as a base is: that keeps the block which was decoded last, through all links
 * of a chain. */
static int read_archived(struct archive *a, size_t number, uint64_t offset, void *dst, size_t size)
{
    lmc_base base = lmc_reader_base(a->reader);
    enum lmc_status status = base.read(base.user, number, offset, dst, size);
    return status == LMC_OK ? CODE_OK : fail_damage(a, status, number, offset);
}

enum lmc_status read_member(void *user, size_t number, uint64_t offset, void *dst, size_t size)
{
    struct members *m = (struct members *)user;
    const struct member *member = &m->list[number];
    if (m->archive) m->code = read_archived(m->archive, member->number, offset, dst, size);
    else m->code = read_opened(&m->opened, member->full, &member->st, offset, dst, size);
    return m->code == CODE_OK ? LMC_OK : LMC_ERR_READ;
}

const char *name_of_member(const struct member *member)
{
    const char *slash = strrchr(member->full, '/');
    return *member->path ? member->path : slash ? slash + 1 : member->full;
}

uint64_t size_of_member(const struct members *m, const struct member *member)
{
    if (m->archive) return lmc_reader_get_file(m->archive->reader, member->number)->size;
    return S_ISREG(member->st.st_mode) ? (uint64_t)member->st.st_size : 0;
}

void make_choices(struct members *m)
{
    for (size_t i = 0; i < m->n; i++) {
        struct member *member = &m->list[i];
        member->choices = (struct choice *)resize(NULL, member->n_tensors, sizeof *member->choices);
        memset(member->choices, 0, member->n_tensors * sizeof *member->choices);
        for (size_t k = 0; k < member->n_tensors; k++) {
            member->choices[k].tensor = &member->tensors[k];
            member->choices[k].member = i;
        }
    }
}

void add_member(struct members *m, const char *path, const char *full, struct source *s)
{
    struct member *member = &m->list[m->n++];
    memset(member, 0, sizeof *member);
    member->path = path;
    member->full = copy_string(full, strlen(full));
    member->st = s->st;
    member->n_tensors = s->container.n_tensors;
    member->tensors = copy_tensors(s->container.tensors, s->container.n_tensors);
    container_free(&s->container);
}

int check_members(const struct members *m)
{
    struct stat st;
    for (size_t i = 0; (m->twins || m->has_pairs || m->has_gaps) && i < m->n; i++)
        if (S_ISREG(m->list[i].st.st_mode) &&
            (stat(m->list[i].full, &st) != 0 || !same_state(&st, &m->list[i].st)))
            return fail_changed(m->list[i].full);
    return CODE_OK;
}
