/* SPDX-License-Identifier: MIT */
#include "apply_in_place.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "../input/archive.h"
#include "../input/base.h"
#include "../input/common.h"
#include "../input/damage.h"
#include "../sys/progress.h"
#include "../sys/report.h"
#include "../sys/temporary.h"
#include "apply_journal.h"
#include "apply_place.h"
#include "apply_target.h"

struct rewrite {
    struct archive *delta;
    uint64_t at;          /* in the delta, which is read from front to back */
    struct place reading; /* the target */
    struct journal *journal;
    uint64_t n_before; /* bytes of the files before the one in work */
    size_t file_number;
    uint64_t n_handed;
    int code;
};

static enum lmc_status stop_rewrite(struct rewrite *w, int code)
{
    w->code = code;
    return code == CODE_OK ? LMC_OK : LMC_ERR_WRITE;
}

static enum lmc_status stream_delta(void *user, void *dst, size_t size, size_t *got)
{
    struct rewrite *w = (struct rewrite *)user;
    uint64_t left = archive_size(w->delta) - w->at;
    *got = left < size ? (size_t)left : size;
    if (*got && read_archive(w->delta, w->at, dst, *got) != LMC_OK)
        return stop_rewrite(w, fail_archive(w->delta, LMC_ERR_READ));
    w->at += *got;
    progress_add(*got);
    return LMC_OK;
}

static enum lmc_status rewrite_begin(void *user, const lmc_file *file, size_t number)
{
    struct rewrite *w = (struct rewrite *)user;
    (void)file;
    if (number > 0) w->n_before += lmc_reader_get_file(w->delta->reader, number - 1)->size;
    w->file_number = number;
    if (w->n_handed < w->n_before) w->n_handed = w->n_before;
    return number < snapshot_info(w->delta->reader).n_files ? LMC_OK : LMC_ERR_WRITE;
}

static enum lmc_status rewrite_bytes(void *user, const void *data, size_t size)
{
    struct rewrite *w = (struct rewrite *)user;
    uint64_t offset = w->n_handed - w->n_before;
    w->n_handed += size;
    return stop_rewrite(
        w, hand_to_journal(w->journal, w->file_number, offset, (const unsigned char *)data, size));
}

/* Called by whoever plans blocks, never at the same time as rewrite_bytes. */
static enum lmc_status rewrite_read_back(void *user, size_t number, uint64_t offset, void *dst,
                                         size_t size)
{
    struct rewrite *w = (struct rewrite *)user;
    int code =
        read_through_journal(w->journal, &w->reading, number, offset, (unsigned char *)dst, size);
    return stop_rewrite(w, code);
}

/* Blocks that are decoded together are handed on or not as they come, and the base of those that
 * are written is gone: so the place is where the first of them begins. */
static int fail_rewrite(const struct rewrite *w, enum lmc_status status)
{
    if (status != LMC_ERR_CHECKSUM && status != LMC_ERR_CORRUPT)
        return fail_archive(w->delta, status);
    return fail_damage_behind(w->delta, status, w->file_number, w->n_handed - w->n_before);
}

/* w: delta, journal and n_handed are set. *status: what the library says, LMC_ERR_BASE_WRONG
 * without a message. */
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
    options.done_size = w->n_handed;
    stream.read = stream_delta;
    stream.user = w;
    progress_start(w->delta->name, archive_size(w->delta));
    *status = lmc_snapshot_restore(&stream, NULL, &options);
    progress_clear();
    code = worse(w->code, close_place(&w->reading));
    if (*status == LMC_ERR_ARGUMENT &&
        options.done_size) /* no such number: the side file is of something else */
        *status = LMC_ERR_BASE_WRONG;
    if (code == CODE_OK && *status != LMC_OK)
        code =
            *status == LMC_ERR_BASE_WRONG ? CODE_BASE : worse(CODE_ERROR, fail_rewrite(w, *status));
    return code;
}

static int fail_half(const struct apply *a, const struct journal *j, const char *delta)
{
    return fail(CODE_BASE, a->name,
                "is not the base that %s needs, which showed only after %llu bytes; up to there it "
                "is changed already. Replace it by a good copy, of before or after this delta, and "
                "apply again; %s remembers how far it got",
                delta, (unsigned long long)j->n_recorded, j->path);
}

int apply_in_place(struct apply *a, struct archive *delta, struct journal *j, int is_trusted,
                   int is_resumed, int *is_wrong)
{
    struct place writing;
    struct rewrite w;
    enum lmc_status status;
    uint64_t total = total_of_files(delta->reader);
    int code;
    open_place(&writing, a->path, get_delta_file, delta, 1);
    writing.is_strict = !a->o->force;
    j->target = &writing;
    j->target_name = a->name;
    code = check_files(a, delta, is_trusted, is_resumed, is_wrong);
    if (code == CODE_OK && *is_wrong) return worse(CODE_BASE, close_place(&writing));
    if (code == CODE_OK) code = check_bases(&a->base_options);
    if (code == CODE_OK)
        code = is_resumed ? recover_journal(j, a->header, snapshot_info(delta->reader).n_files)
                          : describe_delta(j, delta, total);
    if (code != CODE_OK) return worse(code, close_place(&writing));
    if (is_resumed && a->o->verbosity > 0)
        say(a->name, "was left half applied; going on with %s behind %llu of %llu bytes",
            delta->name, (unsigned long long)j->n_handed, (unsigned long long)total);
    memset(&w, 0, sizeof w);
    w.delta = delta;
    w.journal = j;
    w.n_handed = j->n_handed;
    code = rewrite_target(&w, a->path, &status);
    if (code == CODE_BASE && status == LMC_ERR_BASE_WRONG) {
        *is_wrong = !j->is_touched;
        if (j->is_touched) code = fail_half(a, j, delta->name);
    }
    if (code == CODE_OK) code = flush_journal(j);
    code = worse(code, close_place(&writing));
    if (code == CODE_OK) code = set_all_attributes(a->path, delta->reader, !a->o->force);
    if (code == CODE_OK ||
        (!j->is_touched && !is_resumed)) /* then it is as if this had not begun */
        code = worse(code, remove_journal(j));
    else if (status != LMC_ERR_BASE_WRONG)
        say(a->name, "is left half applied; once the cause is gone, give the same command again, "
                     "and it goes on");
    set_last_words(NULL, NULL);
    return code;
}
