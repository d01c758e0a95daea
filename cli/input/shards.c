/* shards.c - several snapshots that are one base together (spec 7.3)
 * SPDX-License-Identifier: MIT
 *
 * The shards of a checkpoint may be a snapshot each. The fingerprint of a base depends on its items
 * alone, not on the files that have them. So shards together are the base of a delta that was made
 * against the whole checkpoint, in whatever form that was.
 */
#include "base.h"

static struct base *find_shard(const struct base *b, size_t *number)
{
    size_t i = 0;
    for (; *number >= b->shards[i]->source.n_files; i++) *number -= b->shards[i]->source.n_files;
    return b->shards[i];
}

static const lmc_file *get_shard_file(void *user, size_t number)
{
    struct base *shard = find_shard((const struct base *)user, &number);
    return shard->source.get_file(shard->source.user, number);
}

static enum lmc_status read_shard_file(void *user, size_t number, uint64_t offset, void *dst,
                                       size_t size)
{
    struct base *shard = find_shard((const struct base *)user, &number);
    return shard->source.read(shard->source.user, number, offset, dst, size);
}

int join_shards(struct base *b, struct base **shards, size_t n, const struct options *o)
{
    int code = CODE_OK;
    free((void *)b->shards);
    b->shards = shards;
    b->source.n_files = 0;
    for (size_t i = 0; i < n && code == CODE_OK; i++) {
        code = identify_base(shards[i], o);
        if (code == CODE_OK && shards[i]->state < BASE_READY) code = make_ready(shards[i], NULL);
        b->source.n_files += shards[i]->source.n_files;
    }
    b->source.get_file = get_shard_file;
    b->source.read = read_shard_file;
    b->source.user = b;
    if (code != CODE_OK) return code;
    if (lmc_base_identify(&b->source, b->fingerprint, NULL) != LMC_OK) check_memory(NULL);
    b->state = BASE_IDENTIFIED;
    return CODE_OK;
}
