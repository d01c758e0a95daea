/* SPDX-License-Identifier: MIT */
#include "series_manifest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include <jansson.h>

#include "../format/hex.h"
#include "../format/json.h"
#include "../input/archive.h"
#include "../input/common.h"
#include "../sys/attributes.h"
#include "../sys/io.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/output.h"
#include "../sys/report.h"
#include "../sys/search.h"
#include "../sys/tree.h"

#define MANIFEST_VERSION 1
#define MANIFEST_MAX_SIZE ((uint64_t)256 << 20)
#define MAX_NAME 200 /* bytes: a file name has 255 */

const char *const state_names[] = {"kept", "adding", "forgotten", "gone"};

/* -- names -- */

const char *find_fault_of_name(const char *name)
{
    json_t *string = json_string(name);
    size_t size = strlen(name);
    json_decref(string);
    if (size == 0 || size > MAX_NAME) return "is empty or longer than 200 bytes";
    if (name[0] == '.' || name[0] == '-') return "begins with '.' or '-'";
    for (size_t i = 0; i < size; i++)
        if (name[i] == '/' || name[i] == '\\' || (unsigned char)name[i] < 32 || name[i] == 127)
            return "holds a slash, a backslash or a control character";
    return string ? NULL : "is not UTF-8";
}

/* step1000, iter_1000, Step=1000 */
static int follows_step(const char *name, const char *at)
{
    static const char *const words[] = {"step", "iter"};
    size_t n = (size_t)(at - name);
    n -= n > 4 && strchr("-_=", at[-1]);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (n >= 4 && strncasecmp(name + n - 4, words[i], 4) == 0) return 1;
    return 0;
}

int find_number(const char *name, uint64_t *number)
{
    const char *found = NULL;
    int best = 0;
    for (const char *p = name; *p; p++) {
        int letter = p > name && ((p[-1] | 32) >= 'a' && (p[-1] | 32) <= 'z');
        int rank = follows_step(name, p) ? 2 : !letter;
        if (is_digit(*p) && (p == name || !is_digit(p[-1])) && rank >= best) {
            found = p;
            best = rank;
        }
    }
    if (!found || strspn(found, DIGITS) > 18 + strspn(found, "0")) return 0;
    *number = strtoull(found, NULL, 10);
    return 1;
}

char *path_in_series(const char *directory, const char *name, const char *suffix)
{
    char *path = join_path(directory, name);
    size_t size = strlen(path);
    path = (char *)resize(path, size + strlen(suffix) + 1, 1);
    strcpy(path + size, suffix);
    return path;
}

/* -- the list -- */

/* Of entries that have changed their places. */
static void forget_index(struct series *s)
{
    free(s->by_fingerprint);
    free(s->by_name);
    free(s->by_number);
    s->by_fingerprint = s->by_name = s->by_number = NULL;
}

struct snapshot *add_entry_to_series(struct series *s, const char *name, const char *source)
{
    struct snapshot *e;
    forget_index(s);
    s->list = (struct snapshot *)grow(s->list, s->n, &s->room, sizeof *s->list);
    e = &s->list[s->n++];
    memset(e, 0, sizeof *e);
    e->name = copy_string(name, strlen(name));
    e->path = path_in_series(s->directory, name, SUFFIX);
    e->source = source ? copy_string(source, strlen(source)) : NULL;
    return e;
}

void free_entry(struct snapshot *e)
{
    free(e->name);
    free(e->path);
    free(e->source);
}

void drop_entries(struct series *s, enum snapshot_state state)
{
    size_t n = 0;
    forget_index(s);
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i].state == state) free_entry(&s->list[i]);
        else s->list[n++] = s->list[i];
    s->n = n;
}

void free_list(struct series *s)
{
    for (size_t i = 0; i < s->n; i++) free_entry(&s->list[i]);
    free(s->list);
    forget_index(s);
    s->list = NULL;
    s->n = s->room = 0;
}

struct snapshot *find_name(const struct series *s, const char *name)
{
    size_t i;
    if (s->by_name) FIND_FIRST(i, s->n, strcmp(s->list[s->by_name[i]].name, name) < 0);
    else
        for (i = 0; i < s->n && strcmp(s->list[i].name, name) != 0;) i++;
    if (i < s->n && s->by_name) i = s->by_name[i];
    return i < s->n && strcmp(s->list[i].name, name) == 0 ? &s->list[i] : NULL;
}

void look_at_file(struct snapshot *e)
{
    uint8_t header[LMC_FILE_HEADER_SIZE];
    struct stat st;
    int fd = open(e->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    e->file = fd < 0 && errno == ENOENT ? FILE_MISSING : FILE_DAMAGED;
    if (fd < 0) return;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && read_at(fd, 0, header, sizeof header) == 0 &&
        parse_header(header, sizeof header, e->wanted, &e->is_delta) == 0) {
        e->file = FILE_THERE;
        e->packed_size = (uint64_t)st.st_size;
    }
    close(fd);
}

/* -- series.json: a line for each snapshot, and in the last one the CRC-32C of all before it -- */

static int fail_manifest(const struct series *s, const char *what)
{
    if (s->is_replaced) return CODE_CORRUPT;
    return fail(CODE_CORRUPT, s->manifest_path,
                "is damaged: %s; nothing was changed; 'lmc series DIR rebuild' makes it anew from "
                "the snapshots",
                what);
}

#define CHECK_SIZE (sizeof "\"crc32c\": \"00000000\"}\n" - 1)

static void format_check(char text[CHECK_SIZE + 1], const void *data, size_t size)
{
    snprintf(text, CHECK_SIZE + 1, "\"crc32c\": \"%08lx\"}\n",
             (unsigned long)lmc_crc32c(0, data, size));
}

static int parse_entry(struct series *s, json_t *item)
{
    const char *name, *state, *source = NULL, *fingerprint = NULL;
    json_int_t time, size = 0;
    struct snapshot *e;
    if (json_unpack(item, "{s:s, s:s, s:I, s?s, s?s, s?I !}", "name", &name, "state", &state,
                    "time", &time, "source", &source, "fingerprint", &fingerprint, "size",
                    &size) != 0)
        return fail_manifest(s, "an entry lacks something or has something unknown");
    if (find_fault_of_name(name) || (source && find_fault_of_name(source)))
        return fail_manifest(s, "it holds a name that no snapshot can have");
    e = add_entry_to_series(s, name, source);
    for (e->state = STATE_KEPT; strcmp(state, state_names[e->state]) != 0;
         e->state = (enum snapshot_state)(e->state + 1))
        if (e->state == STATE_GONE) return fail_manifest(s, "it holds an unknown state");
    if (size < 0 || (e->state == STATE_ADDING) != !fingerprint ||
        (fingerprint && !parse_fingerprint(e->fingerprint, fingerprint)))
        return fail_manifest(s, "it holds a size or a fingerprint that is none");
    e->size = (uint64_t)size;
    e->time = time;
    return CODE_OK;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_names(struct series *s)
{
    const char **names = (const char **)resize(NULL, s->n + 1, sizeof *names);
    size_t i;
    for (i = 0; i < s->n; i++) names[i] = s->list[i].name;
    qsort((void *)names, s->n, sizeof *names, compare_texts);
    for (i = 1; i < s->n && strcmp(names[i - 1], names[i]) != 0; i++);
    free((void *)names);
    return i < s->n ? fail_manifest(s, "it holds a name twice") : CODE_OK;
}

static int parse_manifest(struct series *s, const char *text, size_t size)
{
    char check[CHECK_SIZE + 1];
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL), *list = NULL, *item;
    const char *crc;
    json_int_t version = 0, every;
    size_t i;
    int code = CODE_OK;
    format_check(check, text, size < CHECK_SIZE ? 0 : size - CHECK_SIZE);
    if (json_unpack(root, "{s:I}", "lmc_series", &version) == 0 && version > MANIFEST_VERSION)
        code = fail(CODE_ERROR, s->manifest_path,
                    "has version %lld, which this lmc does not know; get a newer one",
                    (long long)version);
    else if (version != MANIFEST_VERSION ||
             json_unpack(root, "{s:I, s:I, s:o, s:s !}", "lmc_series", &version, "every", &every,
                         "snapshots", &list, "crc32c", &crc) != 0 ||
             !json_is_array(list))
        code = fail_manifest(s, "it is not what lmc has written");
    else if (size < CHECK_SIZE || memcmp(check, text + size - CHECK_SIZE, CHECK_SIZE) != 0)
        code = fail_manifest(s, "its checksum does not match");
    else if (every < 1) code = fail_manifest(s, "the distance of anchors is none");
    else s->every = (uint64_t)every;
    if (code == CODE_OK)
        json_array_foreach(list, i, item) if (code == CODE_OK) code = parse_entry(s, item);
    if (code == CODE_OK) code = check_names(s);
    json_decref(root);
    return code;
}

int holds_snapshots(const char *directory)
{
    DIR *d = opendir(directory);
    struct dirent *entry;
    int found = 0, error = d || errno == ENOENT ? 0 : errno;
    while (d && !found && (entry = next_entry(d, &error)) != NULL)
        found = entry->d_name[0] != '.' && has_suffix(entry->d_name);
    if (d) closedir(d);
    if (error) /* then nobody begins a new list there */
        fail_errno(directory, error, "cannot read the directory");
    return found || error;
}

int fail_no_manifest(const struct series *s)
{
    if (holds_snapshots(s->directory))
        return fail(CODE_ERROR, s->directory,
                    "holds " SUFFIX " files, but no " MANIFEST_NAME
                    "; 'lmc series DIR rebuild' makes it of them");
    return fail(CODE_ERROR, s->directory, "is no series; 'lmc series DIR add SNAPSHOT' begins one");
}

int load_manifest(struct series *s)
{
    int fd = open(s->manifest_path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), error, code = CODE_OK;
    struct stat st;
    size_t got;
    char *text;
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? fail_no_manifest(s)
                   : fail_errno(s->manifest_path, errno, "cannot open it");
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size > MANIFEST_MAX_SIZE) {
        close(fd);
        return fail_manifest(s, "it is no file, or larger than any series");
    }
    text = (char *)resize(NULL, (size_t)st.st_size + 1, 1);
    error = read_full(fd, text, (size_t)st.st_size, &got);
    text[got] = 0;
    if (error) code = fail_errno(s->manifest_path, error, "cannot read it");
    close(fd);
    if (code == CODE_OK) code = parse_manifest(s, text, got);
    free(text);
    if (code != CODE_OK) free_list(s);
    for (size_t i = 0; i < s->n; i++) look_at_file(&s->list[i]);
    measure_series(s);
    return code;
}

static char *format_entry(const struct snapshot *e)
{
    json_t *object = (json_t *)check_memory(json_object());
    char *text;
    set_json(object, "name", json_string(e->name));
    set_json(object, "state", json_string(state_names[e->state]));
    if (e->state != STATE_ADDING) {
        set_json_fingerprint(object, "fingerprint", e->fingerprint);
        set_json_number(object, "size", e->size);
    }
    set_json(object, "time", json_integer(e->time));
    if (e->source) set_json(object, "source", json_string(e->source));
    text = (char *)check_memory(json_dumps(object, 0));
    json_decref(object);
    return text;
}

static void append_text(char **text, size_t *size, const char *more)
{
    size_t length = strlen(more);
    *text = (char *)resize(*text, *size + length + 1, 1);
    memcpy(*text + *size, more, length + 1);
    *size += length;
}

/* The text of series.json, to be freed. */
static char *format_manifest(const struct series *s, size_t *size)
{
    char line[128], *text = NULL;
    *size = 0;
    snprintf(line, sizeof line, "{\"lmc_series\": %d, \"every\": %llu, \"snapshots\": [\n",
             MANIFEST_VERSION, (unsigned long long)s->every);
    append_text(&text, size, line);
    for (size_t i = 0; i < s->n; i++) {
        char *entry = format_entry(&s->list[i]);
        append_text(&text, size, entry);
        append_text(&text, size, i + 1 < s->n ? ",\n" : "\n");
        free(entry);
    }
    append_text(&text, size, "],\n");
    format_check(line, text, *size);
    append_text(&text, size, line);
    return text;
}

int save_manifest(const struct series *s)
{
    struct output out;
    struct attributes attributes;
    char *text;
    size_t size;
    int code = open_output(&out, s->manifest_path, NULL, 1);
    if (code != CODE_OK) return code;
    text = format_manifest(s, &size);
    memset(&attributes, 0, sizeof attributes);
    write_output(&out, text, size); /* what fails is found again by commit_output */
    free(text);
    return commit_output(&out, &attributes);
}
