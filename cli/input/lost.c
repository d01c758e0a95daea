/* SPDX-License-Identifier: MIT */
#include "lost.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"
#include "source.h"
#include "../sys/attributes.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/report.h"
#include "../sys/tree.h"

enum { LOST_OWNER, LOST_ATTRIBUTES, LOST_ACL, LOST_MODE, N_LOST };
static const char *const lost_names[N_LOST] = {
    "owner or group", "extended attributes", "access control list", "setuid, setgid or sticky bit"};

/* What is lost of how many files, and of which first. */
struct lost {
    uid_t owner; /* that what is restored has */
    gid_t group;
    mode_t root; /* bits that a directory has by itself, of which the snapshot does not tell */
    size_t n[N_LOST];
    char *first; /* NULL: nothing is lost */
};

/* Who restores it owns it; where that is setgid, the directory that it is in gives it its group and
 * the same bit. */
static void expect_owner_of_tree(struct lost *lost, const char *root)
{
    char *parent = join_path(root, "..");
    struct stat st;
    lost->owner = geteuid();
    lost->group = getegid();
    lost->root = 0777;
    if (stat(parent, &st) == 0 && (st.st_mode & S_ISGID)) {
        lost->group = st.st_gid;
        lost->root |= S_ISGID;
    }
    free(parent);
}

static void expect_owner_of_file(struct lost *lost, const char *snapshot)
{
    struct stat st;
    const int is_there = stat(snapshot, &st) == 0;
    lost->owner = is_there ? st.st_uid : geteuid();
    lost->group = is_there ? st.st_gid : getegid();
}

/* is_told: the snapshot has its mode. */
static void look_for_lost(struct lost *lost, const char *path, int is_told)
{
    struct stat st;
    unsigned attached;
    mode_t kept;
    int is_lost[N_LOST], any = 0;
    if (lstat(path, &st) != 0 || S_ISLNK(st.st_mode)) return; /* a link has nothing of its own */
    attached = find_attached(path);
    is_lost[LOST_OWNER] = st.st_uid != lost->owner || st.st_gid != lost->group;
    is_lost[LOST_ATTRIBUTES] = (attached & HAS_ATTRIBUTES) != 0;
    is_lost[LOST_ACL] = (attached & HAS_ACL) != 0;
    kept = is_told ? kept_mode(st.st_mode, S_ISDIR(st.st_mode)) : st.st_mode & lost->root;
    is_lost[LOST_MODE] = (st.st_mode & 07777) != kept;
    for (unsigned k = 0; k < N_LOST; k++) {
        lost->n[k] += (size_t)is_lost[k];
        any |= is_lost[k];
    }
    if (any && !lost->first) lost->first = copy_string(path, strlen(path));
}

void say_lost(const struct listing *l, const char *path, const char *snapshot,
              const struct common *o)
{
    struct lost lost;
    char text[300] = "";
    size_t size = 0;
    memset(&lost, 0, sizeof lost);
    if (o->verbosity == 0) return;
    if (l) expect_owner_of_tree(&lost, path);
    else expect_owner_of_file(&lost, snapshot);
    if (!l) look_for_lost(&lost, path, 1);
    for (size_t i = 0; l && i < l->n; i++) {
        char *full = join_path(path, l->entries[i].path);
        look_for_lost(&lost, full, is_stored(&l->entries[i], l));
        free(full);
    }
    for (unsigned k = 0; k < N_LOST && size < sizeof text; k++)
        if (lost.n[k])
            size +=
                (size_t)snprintf(text + size, sizeof text - size, "%s%s (%llu)", size ? ", " : "",
                                 lost_names[k], (unsigned long long)lost.n[k]);
    if (lost.first && l)
        say(path, "is removed with what a snapshot does not keep: %s; the first is %.400s", text,
            lost.first);
    else if (lost.first) say(path, "is removed with what a snapshot does not keep: %s", text);
    free(lost.first);
}

void say_followed_links(const struct listing *l, const char *root)
{
    size_t first = 0;
    if (l->n_followed == 0) return;
    while (!l->entries[first].is_followed) first++;
    say(root,
        "holds %llu link%s to files outside of it, which %s stored as %s; --no-dereference stores "
        "links; the first is '%.300s'",
        (unsigned long long)l->n_followed, l->n_followed == 1 ? "" : "s",
        l->n_followed == 1 ? "is" : "are", l->n_followed == 1 ? "a file" : "files",
        l->entries[first].path);
}
