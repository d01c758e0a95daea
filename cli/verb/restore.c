/* restore.c - lmc -d: snapshots to files and directories; lmc -t: whether they can be restored
 * SPDX-License-Identifier: MIT
 */
#include "verbs.h"

#include "../format/json.h"
#include "../input/base.h"
#include "../input/options.h"
#include "../input/source_tree.h"
#include "../job/restorer.h"
#include "../sys/look.h"
#include "../sys/output.h"

static int verify_file(const char *root, const struct seen_file *file, unsigned char *buffer)
{
    char *path = join_path(root, file->path);
    int fd = open_file(AT_FDCWD, path, O_RDONLY), error = fd < 0 ? errno : 0;
    int code = CODE_OK;
    uint64_t size = 0;
    uint32_t crc = 0;
    size_t got = BUFFER_SIZE;
#ifdef POSIX_FADV_DONTNEED
    if (fd >= 0) posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
#endif
    while (!error && got == BUFFER_SIZE) {
        error = read_full(fd, buffer, BUFFER_SIZE, &got);
        crc = lmc_crc32c(crc, buffer, got);
        size += got;
    }
    if (fd >= 0) close(fd);
    if (error) code = fail_errno(path, error, "cannot be read again, so nothing was removed");
    else if (size != file->size || crc != file->crc)
        code = fail(CODE_ERROR, path, "does not read back as it was written; nothing was removed");
    free(path);
    return code;
}

/* look: taken before the snapshot was read */
static int remove_snapshot(const struct restore *r, const struct look *look)
{
    unsigned char *buffer = (unsigned char *)resize(NULL, BUFFER_SIZE, 1);
    int code = CODE_OK;
    for (size_t i = 0; i < r->again.seen.n && code == CODE_OK; i++)
        if (!r->again.seen.list[i].is_directory)
            code = verify_file(r->tree.target, &r->again.seen.list[i], buffer);
    free(buffer);
    return code == CODE_OK ? remove_unchanged(NULL, r->input, look, NULL, r->o) : code;
}

int restore_file(const char *path, const struct options *o)
{
    struct restore r;
    struct source s;
    const lmc_base *base;
    const char *source = o->remove_source ? path : NULL;
    char *target = NULL;
    double start = now();
    struct look look = {0};
    if (o->remove_source && check_no_link(path) != CODE_OK) return CODE_ERROR;
    if (o->remove_source) look = look_at(path);
    int code = open_snapshot_source(&s, path, o);
    if (code == CODE_OK) target = name_target(path, 0, o, &code);
    init_restore(&r, path, target, o);
    if (code == CODE_OK) code = choose_base_of_source(&base, &s, o);
    if (code == CODE_OK) code = protect_bases(source, target, o->force, o);
    if (code == CODE_OK) say_unused_bases(0, o);
    if (code == CODE_OK) {
        if (S_ISREG(s.st.st_mode)) r.input_stat = &s.st;
        code = finish_restore(&r, run_restore(&r, &s, base));
    }
    if (code == CODE_OK) say_sizes(o, s.name, progress_done(), r.total, r.total, start);
    if (code == CODE_OK && r.n_quantized && o->verbosity > 0)
        say(s.name,
            "holds %llu quantised tensor%s, which differ from the compressed ones; 'lmc -l' tells "
            "how much",
            (unsigned long long)r.n_quantized, r.n_quantized == 1 ? "" : "s");
    close_source(&s);
    if (code == CODE_OK && o->remove_source) code = check_on_disk(path);
    if (code == CODE_OK && o->remove_source) code = remove_snapshot(&r, &look);
    free_restore(&r);
    free(target);
    return code;
}

/* -- lmc -t -- */

/* Reports what was checked of a delta without its base. */
static void say_payload(const struct restore *r, const struct source *s)
{
    uint8_t base[LMC_FINGERPRINT_SIZE] = {0};
    int is_delta;
    (void)parse_header(s->header, sizeof s->header, base, &is_delta);
    char *wanted = describe_base(base, r->made_with);
    say(s->name, "payload intact; content needs the base %s", wanted);
    free(wanted);
}

int test_file(const char *path, const struct options *o)
{
    struct source s;
    struct restore r;
    double start = now();
    const lmc_base *base = NULL;
    int code = open_snapshot_source(&s, path, o), found = code;
    if (code == CODE_OK) code = found = choose_base_of_source(&base, &s, o);
    if (code == CODE_OK && base) say_unused_bases(0, o); /* some files may be whole */
    init_restore(&r, path, NULL, o);
    r.is_checked = 1;
    if (code == CODE_OK || code == CODE_BASE) code = run_restore(&r, &s, base);
    if (code == CODE_OK && r.again.lacks_base) {
        if (o->verbosity > 0 && found == CODE_OK) say_payload(&r, &s);
        else if (found != CODE_OK) say(s.name, "its payload is intact");
        code = found;
    } else if (code == CODE_OK) code = check_has_hashes(&r.again);
    if (code == CODE_OK && !r.again.lacks_base && wants_summary(o))
        say(s.name, "ok, %llu file%s, %llu bytes%s, %.0f MB/s", (unsigned long long)r.n_files,
            r.n_files == 1 ? "" : "s", (unsigned long long)r.total,
            r.again.has_hashes ? ", SHA-256 of all of them" : "",
            (double)r.total / 1e6 / (now() - start + 1e-9));
    if (o->json) print_verdict(path, code, code == CODE_OK && r.again.lacks_base);
    free_restore(&r);
    close_source(&s);
    return code;
}
