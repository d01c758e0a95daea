/* mount_volume.c - open snapshots with their chains (mount.h)
 * SPDX-License-Identifier: MIT */
#include "mount.h"

#include "../sys/attributes.h"

int note_code(struct mount *m, int code)
{
    if (code != CODE_OK) m->code = code;
    return code == CODE_OK ? 0 : EIO;
}

int open_index(struct mount *m, struct archive *a, const char *path)
{
    return note_code(m, open_archive_index(a, path, m->o));
}

/* The arguments of --base, with a state of their own. */
static void copy_bases(struct bases *to, const struct bases *from)
{
    for (size_t i = 0; i < from->n; i++) add_base(to, from->list[i].name);
    for (size_t i = 0; i < from->n_search; i++) add_search(to, from->search[i]);
    to->is_closed = from->is_closed;
    to->is_quiet = 1;
}

/* Finds the chain of a snapshot of a series. Until all its files are open, gc is kept out. */
static int begin_member(struct volume *v, struct mount *m)
{
    const struct item *const item = v->item;
    struct options o = *m->o;
    struct snapshot *e;
    o.directory = item->parent->path;
    int code = open_series(&v->series, TO_READ, &o);
    e = code == CODE_OK ? find_name(&v->series, item->name) : NULL;
    if (code == CODE_OK &&
        (!e || e->state != STATE_KEPT || !same_fingerprint(e->fingerprint, item->fingerprint)))
        return ESTALE;
    if (code == CODE_OK) code = open_chain(&v->chain, &v->series, e);
    return note_code(m, code);
}

/* The numbers of files may be others if a snapshot was coded again. */
static int find_files(struct item *item, lmc_reader *reader)
{
    const int is_tree = is_tree_of_files(reader);
    for (size_t i = 0; i < item->n_nodes; i++) {
        struct node *const n = &item->nodes[i];
        if (!S_ISREG(n->mode)) continue;
        if (!is_tree) n->file = 0;
        else if (lmc_reader_find_file(reader, n->path, &n->file) != LMC_OK) return ESTALE;
        if (lmc_reader_get_file(reader, n->file)->size != n->size) return ESTALE;
    }
    return 0;
}

static int open_chain_of(struct volume *v, struct mount *m)
{
    struct item *const item = v->item;
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE];
    const lmc_base *base;
    int error = 0;
    if (item->is_member) error = begin_member(v, m);
    else {
        v->chain.o = *m->o;
        v->chain.o.bases = &v->chain.bases;
        copy_bases(&v->chain.bases, m->o->bases);
    }
    if (error) return error;
    int code = open_archive_file(&v->archive, item->path, &v->chain.o);
    if (code == CODE_OK) code = find_base_of_archive(&v->archive, &base, &v->chain.o);
    if (code == CODE_OK) code = read_archive_index(&v->archive, base);
    if (code != CODE_OK) return note_code(m, code);
    snapshot_fingerprint(v->archive.reader, fingerprint);
    error = same_fingerprint(fingerprint, item->fingerprint) ? find_files(item, v->archive.reader)
                                                             : ESTALE;
    if (item->is_member && v->series.lock_fd >= 0) close(v->series.lock_fd);
    v->series.lock_fd = -1; /* all files are open: gc may come */
    return error;
}

static void free_volume(struct volume *v)
{
    close_archive(&v->archive);
    free_bases(&v->chain.bases);
    if (v->item->is_member) close_series(&v->series);
    free(v);
}

/* Takes a volume out of the list. */
static void unlink_volume(struct mount *m, const struct volume *v)
{
    struct volume **at = &m->volumes;
    while (*at != v) at = &(*at)->next;
    *at = v->next;
}

static void close_idle(struct mount *m)
{
    size_t n_idle = 0;
    for (struct volume **at = &m->volumes; *at;) {
        struct volume *const v = *at;
        n_idle += v->n_open == 0;
        if (v->n_open == 0 && n_idle > MOST_IDLE) {
            *at = v->next;
            v->item->volume = NULL;
            free_volume(v);
        } else at = &v->next;
    }
}

int open_volume(struct mount *m, struct item *item)
{
    struct volume *v = item->volume;
    if (!v) {
        v = (struct volume *)zeroed(1, sizeof *v);
        v->item = item;
        v->archive.fd = -1;
        const int error = open_chain_of(v, m);
        if (error) {
            if (error == ESTALE)
                say(item->path, "was replaced by another snapshot while it was in use");
            free_volume(v);
            return error;
        }
        item->volume = v;
    } else unlink_volume(m, v);
    v->next = m->volumes;
    m->volumes = v;
    v->n_open++;
    close_idle(m);
    return 0;
}

void close_volume_file(struct mount *m, struct volume *v)
{
    v->n_open--;
    close_idle(m);
}

void drop_volume(struct mount *m, struct item *item)
{
    struct volume *const v = item->volume;
    if (!v) return;
    unlink_volume(m, v);
    item->volume = NULL;
    free_volume(v);
}

/* Reports the first part of those bytes that cannot be read: a part is a tensor, or what is between
 * two. */
static void tell_damage(struct volume *v, const struct node *node, uint64_t offset, size_t size,
                        enum lmc_status status, unsigned char *dst)
{
    const lmc_file *const f = lmc_reader_get_file(v->archive.reader, node->file);
    uint64_t at = offset;
    size_t next = 0;
    while (at < offset + size) {
        uint64_t end = offset + size;
        while (next < f->n_tensors && f->tensors[next].offset + f->tensors[next].size <= at) next++;
        if (next < f->n_tensors) {
            const lmc_tensor *const t = &f->tensors[next];
            const uint64_t edge = t->offset > at ? t->offset : t->offset + t->size;
            if (edge < end) end = edge;
        }
        const enum lmc_status part =
            read_counted(&v->archive, node->file, at, dst, (size_t)(end - at));
        if (part != LMC_OK) {
            status = part;
            break;
        }
        at = end;
    }
    (void)fail_damage_near(&v->archive, status, node->file, at < offset + size ? at : offset);
}

int read_volume(struct volume *v, const struct node *node, uint64_t offset, void *dst, size_t size,
                int is_told)
{
    v->archive.error = 0;
    v->chain.bases.code = CODE_OK;
    const enum lmc_status status = read_counted(&v->archive, node->file, offset, dst, size);
    if (status != LMC_OK && is_told)
        tell_damage(v, node, offset, size, status, (unsigned char *)dst);
    return status == LMC_OK ? 0 : EIO;
}
