/* SPDX-License-Identifier: MIT */
#include "test.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../format/hex.h"
#include "../input/archive.h"
#include "../input/base.h"
#include "../input/common.h"
#include "../input/links.h"
#include "../input/second_look.h"
#include "../input/source.h"
#include "../job/restorer.h"
#include "../sys/memory.h"
#include "../sys/progress.h"
#include "../sys/report.h"

struct tally {
    struct second_look again;
    uint64_t n_files, size;
    struct seen_files seen; /* of a tree: for the links, which come last */
    int is_tree, has_bad_links;
    char *made_with; /* what the base was called; NULL: it does not say */
};

static enum lmc_status test_read_back(void *user, size_t number, uint64_t offset, void *dst,
                                      size_t size)
{
    return read_second_look(&((struct tally *)user)->again, number, offset, dst, size);
}

static enum lmc_status count_file(void *user, const lmc_file *file, size_t number)
{
    struct tally *tally = (struct tally *)user;
    (void)number;
    tally->is_tree |= *file->path != 0 || file->kind == LMC_FILE_DIRECTORY;
    tally->n_files += file->kind == LMC_FILE_REGULAR;
    tally->size += file->size;
    if (tally->is_tree) add_seen_file(&tally->seen, file);
    return LMC_OK;
}

static enum lmc_status check_metadata(void *user, const char *key, const void *value, size_t size)
{
    struct tally *tally = (struct tally *)user;
    struct links links;
    if (strcmp(key, BASE_KEY) == 0) tally->made_with = copy_string((const char *)value, size);
    if (!tally->is_tree || strcmp(key, LINKS_KEY) != 0) return LMC_OK;
    tally->has_bad_links =
        decode_links(&links, value, size) != 0 || match_links(&links, &tally->seen) != 0;
    free_links(&links);
    return tally->has_bad_links ? LMC_ERR_CORRUPT : LMC_OK;
}

/* Of what was checked without its base. */
static void say_payload(const struct tally *tally, const struct source *s)
{
    char wanted[2 * SHORT_FINGERPRINT + 1], named[MADE_WITH_TEXT];
    uint8_t base[LMC_FINGERPRINT_SIZE] = {0};
    int is_delta;
    (void)parse_header(s->header, sizeof s->header, base, &is_delta);
    format_hex(wanted, base, SHORT_FINGERPRINT);
    say(s->name, "payload intact; content needs the base %s%s", wanted,
        format_made_with(named, tally->made_with));
}

int test_file(const char *path, const struct common *o)
{
    struct source s;
    struct tally tally;
    lmc_restore_options options;
    double start = now();
    const lmc_base *base = NULL;
    uint8_t wanted[LMC_FINGERPRINT_SIZE];
    int has_hashes = 0, is_delta = 0;
    int code = open_snapshot_source(&s, path, o), found = code;
    if (code == CODE_OK) code = found = choose_base_of_source(&base, &s, o);
    if (code == CODE_OK && base) say_unused_bases(0, o); /* among many files some are whole */
    memset(&tally, 0, sizeof tally);
    if (code == CODE_OK || code == CODE_BASE) {
        init_second_look(&tally.again, &s, base, o);
        tally.again.lacks_base =
            !base && parse_header(s.header, sizeof s.header, wanted, &is_delta) == 0 && is_delta;
        code = keep_source(&tally.again);
    }
    if (code == CODE_OK) {
        enum lmc_status status;
        memset(&options, 0, sizeof options);
        options.read_back = test_read_back;
        options.end_file = count_file;
        options.check_hashes = o->hashes;
        options.has_hashes = &has_hashes;
        options.metadata = check_metadata;
        progress_start(s.name, s.size);
        status = restore_source(&tally.again, &options, NULL);
        progress_clear();
        if (tally.has_bad_links) code = fail_bad_links(s.name);
        else if (status != LMC_OK) code = fail_restore(&tally.again, status);
        close_second_look(&tally.again);
        free_seen_files(&tally.seen);
    }
    if (code == CODE_OK && tally.again.lacks_base) {
        if (o->verbosity > 0 && found == CODE_OK) say_payload(&tally, &s);
        else if (found != CODE_OK) say(s.name, "its payload is intact");
        code = found;
    } else if (code == CODE_OK && o->hashes && !has_hashes)
        code =
            fail(CODE_ERROR, s.name, "it is intact, but has no hashes: 'lmc --hash' writes them");
    else if (code == CODE_OK && wants_summary(o))
        say(s.name, "ok, %llu file%s, %llu bytes%s, %.0f MB/s", (unsigned long long)tally.n_files,
            tally.n_files == 1 ? "" : "s", (unsigned long long)tally.size,
            has_hashes ? ", SHA-256 of all of them" : "",
            (double)tally.size / 1e6 / (now() - start + 1e-9));
    free(tally.made_with);
    close_source(&s);
    return code;
}
