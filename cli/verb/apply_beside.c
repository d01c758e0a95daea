/* SPDX-License-Identifier: MIT */
#include "apply_beside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../input/base.h"
#include "../input/common.h"
#include "../input/source.h"
#include "../input/source_tree.h"
#include "../job/restored_links.h"
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

int apply_beside(struct apply *a, const struct delta *d, const lmc_base *base)
{
    struct restore r;
    struct source s;
    struct common o = *a->o;
    int code;
    o.force = 1;
    o.bases = &a->bases;
    init_restore(&r, d->path, a->path, &o);
    code = a->is_tree ? list_sources(&r.tree.replaced, a->path, 0, &o) : CODE_OK;
    if (code == CODE_OK) {
        code = open_snapshot_source(&s, d->path, &o);
        progress_start(s.name, s.size);
        if (code == CODE_OK) code = run_restore(&r, &s, base);
        progress_clear();
        if (code == CODE_OK) code = check_bases(&o);
        if (code == CODE_OK && r.is_tree) code = make_links(r.tree.root, &r.links, d->name);
        if (code != CODE_OK) {
            discard_restore(&r);
        } else if (r.is_tree) { /* all that was listed belonged to the base, and may go */
            code = exchange_tree(&r.tree, &a->st);
        } else {
            complete_attributes(&r.attributes, &a->st);
            code = commit_output(&r.out, &r.attributes);
        }
        close_source(&s);
    }
    free_restore(&r);
    return code;
}
