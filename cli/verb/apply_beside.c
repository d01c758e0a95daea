/* SPDX-License-Identifier: MIT */
#include "apply_beside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../input/base.h"
#include "../input/options.h"
#include "../input/source.h"
#include "../job/restored_tree.h"
#include "../job/restorer.h"
#include "../sys/attributes.h"
#include "../sys/io.h"
#include "../sys/output.h"
#include "../sys/progress.h"
#include "../sys/replace.h"
#include "../sys/report.h"
#include "../sys/temporary.h"
#include "../sys/tree.h"
#include "apply_target.h"

/* The restored tree takes the place of the target, which goes: all that was listed belonged to the
 * base. */
static int commit_layout(struct restore *r, const struct apply *a, const struct listing *l)
{
    struct attributes attributes = attributes_of_stat(&a->st);
    char *aside = temporary_name_beside(r->target);
    int error = finish_directories(r), fd, code, is_aside = 0;
    if (!error && !r->is_empty) { /* the root is the user's */
        fd = open(r->root, O_RDONLY | O_CLOEXEC);
        error = fd < 0 ? errno : set_attributes(fd, &attributes);
        if (fd >= 0) close(fd);
    }
    lock_temporary();
    if (!error) error = exchange_names(r->root, r->target, aside, &is_aside);
    if (!error && is_aside) register_temporary(aside);
    else free(aside);
    unlock_temporary();
    if (error) {
        code = fail_errno(r->target, error, "cannot put what was restored there");
        remove_temporary();
        return code;
    }
    r->replaced = *l;
    code = remove_replaced(r, sync_directory_of(r->target));
    memset(&r->replaced, 0, sizeof r->replaced);
    return code;
}

int apply_beside(struct apply *a, const struct delta *d, const lmc_base *base)
{
    struct restore r;
    struct source s;
    struct listing l;
    struct options o = *a->o;
    int code;
    o.force = 1;
    o.remove_source = 0;
    o.bases = &a->bases;
    memset(&l, 0, sizeof l);
    memset(&r, 0, sizeof r);
    r.o = &o;
    r.input = d->path;
    r.target = a->path;
    r.outlet.fd = r.fd_again = -1;
    code = a->is_tree ? list_sources(&l, a->path) : CODE_OK;
    if (code == CODE_OK) {
        code = open_snapshot_source(&s, d->path, &o);
        progress_start(s.name, s.size);
        if (code == CODE_OK) code = run_restore(&r, &s, base);
        progress_clear();
        if (code == CODE_OK) code = check_bases(&o);
        if (code != CODE_OK && r.started && r.is_tree) remove_temporary();
        else if (code != CODE_OK && r.started) discard_output(&r.out);
        else if (code == CODE_OK && r.is_tree) code = commit_layout(&r, a, &l);
        else if (code == CODE_OK) {
            complete_attributes(&r.attributes, &a->st);
            code = commit_output(&r.out, &r.attributes);
        }
        free_restore(&r);
        close_source(&s);
    }
    free_listing(&l);
    return code;
}
