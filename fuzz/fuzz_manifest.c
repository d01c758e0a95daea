/* The command's other input files. Input: the text or file, then parameters; the last one is its
 * kind:
 *   0  side file of apply: header, slot 0, slot 1 (put where they belong)
 *   1  series.json
 *   2  policy, or a tensor's name and a policy
 *   3  three names
 *   4  text and a number for JSON
 *   5  decisions by which a policy is made (make.h)
 *   6  decisions for a series.json
 * CRCs are made right if the parameters say so. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create */
#endif
#define _FILE_OFFSET_BITS 64
#include "fuzz.h"

/* Messages are formatted, but not shown. */
static FILE *silence;
#undef stderr
#define stderr silence

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-function"
#endif
/* with private names, and with stderr as above */
#include "../formats/pattern.c"
#include "../formats/policy.c"
#include "../formats/roles.c"
#include "../formats/refused.c"
#include "../formats/links.c"
#include "../store/chains.c"
#include "../store/list.c"
#include "../store/steps.c"
#include "../cli/sys/attributes.c"
#include "../cli/sys/io.c"
#include "../cli/sys/memory.c"
#include "../cli/sys/names.c"
#include "../cli/sys/output.c"
#include "../cli/sys/progress.c"
#include "../cli/sys/made.c"
#include "../formats/printable.c"
#include "../cli/sys/removal.c"
#include "../cli/sys/replace.c"
#include "../cli/sys/report.c"
#include "../cli/sys/spot.c"
#include "../cli/sys/temporary.c"
#include "../cli/sys/tree.c"
#include "../cli/sys/look.c"
#include "../formats/container.c"
#include "../formats/container_check.c"
#include "../formats/dcp.c"
#include "../formats/gguf.c"
#include "../cli/format/json.c"
#include "../formats/npy.c"
#include "../formats/pickle.c"
#include "../cli/format/print.c"
#include "../formats/safetensors.c"
#include "../cli/format/tensors.c"
#include "../formats/torch_save.c"
#include "../formats/torch_views.c"
#include "../formats/zip.c"
#include "../cli/input/archive.c"
#include "../cli/input/base.c"
#include "../cli/input/options.c"
#include "../cli/input/damage.c"
#include "../cli/input/find_base.c"
#include "../cli/input/links.c"
#include "../cli/input/source_tree.c"
#include "../cli/input/catalog.c"
#include "../cli/input/reread.c"
#include "../cli/input/shards.c"
#include "../cli/input/replica.c"
#include "../cli/input/chain.c"
#include "../cli/input/base_messages.c"
#include "../cli/input/source.c"
#include "../cli/input/walk.c"
#include "../cli/choose/policy.c"
#include "../cli/verb/apply_journal.c"
#include "../cli/verb/series_chain.c"
#include "../cli/verb/series_manifest.c"

#include "make.h"

#define MOST_INPUT ((size_t)1 << 18)
#define MOST_MADE ((size_t)1 << 16)

/* A copy with a zero behind it, whose end the sanitizers know. */
static char *copy_input(const uint8_t *data, size_t size)
{
    return copy_string((const char *)data, size);
}

/* The next part of the input, which has a line feed behind it. */
static char *take_line(fuzz_input *in)
{
    const uint8_t *end = in->size ? (const uint8_t *)memchr(in->data, '\n', in->size) : NULL;
    const size_t size = end ? (size_t)(end - in->data) : in->size;
    char *line = copy_input(in->data, size);
    in->data += size + (end != NULL);
    in->size -= size + (end != NULL);
    return line;
}

/* -- the side file: nothing of it may reach beyond the files of the snapshot -- */

#define MAX_SLOT ((size_t)128 << 10)

static lmc_file files[4];

static const lmc_file *get_file(void *user, size_t number)
{
    FUZZ_CHECK(number < *(const size_t *)user);
    return &files[number];
}

static void put_at(int fd, uint64_t offset, const void *data, size_t size)
{
    if (write_at(fd, offset, data, size) != 0) abort();
}

static void put_slot(int fd, uint64_t at, const uint8_t *data, size_t size, int repair)
{
    uint8_t head[SLOT_HEADER_SIZE];
    if (size < sizeof head) return;
    memcpy(head, data, sizeof head);
    data += sizeof head;
    size -= sizeof head;
    if (repair) {
        store_number(head + 16, size, 8);
        store_number(head + 24, lmc_crc32c(0, data, size), 4);
        store_number(head + 28, lmc_crc32c(0, head, 28), 4);
    }
    put_at(fd, at, head, sizeof head);
    put_at(fd, at + sizeof head, data, size);
}

static void use_patches(const struct journal *j, size_t n_files, uint64_t seed)
{
    static uint8_t *whole, *part;
    struct patch p;
    size_t end = 0;
    if (!whole) {
        whole = (uint8_t *)resize(NULL, PATCH_SIZE, 1);
        part = (uint8_t *)resize(NULL, PATCH_SIZE, 1);
    }
    for (size_t at = 0, n = 0; next_patch(&j->pending, &at, &p); n++) {
        const size_t start = (size_t)(seed >> 8 * (n % 4) & 0xFF) % p.size, size = p.size - start;
        uint8_t *exact = (uint8_t *)resize(NULL, size, 1);
        FUZZ_CHECK(at > end && at <= j->pending.size && p.file_number < n_files &&
                   p.size <= PATCH_SIZE);
        FUZZ_CHECK(p.offset <= files[p.file_number].size &&
                   p.size <= files[p.file_number].size - p.offset);
        end = at;
        memset(whole, 0x5A, p.size);
        use_patch(&p, p.offset, whole, p.size);
        /* any part of the file gets the same as with the whole patch */
        memset(part, 0x5A, p.size);
        memcpy(exact, part, size);
        use_patch(&p, p.offset + start, exact, size);
        FUZZ_CHECK(memcmp(exact, whole + start, size) == 0);
        use_patch(&p, p.offset, part, start);
        FUZZ_CHECK(memcmp(part, whole, start) == 0);
        free(exact);
    }
    FUZZ_CHECK(end == j->pending.size);
}

static void run_journal(fuzz_input *in)
{
    static int fd = -1;
    uint64_t p = fuzz_draw(in, 8), seed = p, capacity;
    const int repair = (int)fuzz_bits(&p, 3);
    size_t n_files = 1 + fuzz_bits(&p, 2), n;
    unsigned char header[JOURNAL_HEADER_SIZE] = {0};
    struct journal j;
    struct place place;
    if (fd < 0) fd = memfd_create("side", 0);
    if (fd < 0 || ftruncate(fd, 0) != 0) abort();
    for (size_t i = 0; i < n_files; i++) {
        files[i].path = "file";
        files[i].kind = fuzz_bits(&p, 3) == 7 ? LMC_FILE_DIRECTORY : LMC_FILE_REGULAR;
        files[i].size = (uint64_t)fuzz_bits(&p, 4) << fuzz_bits(&p, 5);
    }
    n = in->size < sizeof header ? in->size : sizeof header;
    if (n) memcpy(header, in->data, n);
    if (repair & 1) {
        memcpy(header, journal_magic, sizeof journal_magic);
        store_number(header + 8, 1, 4);
        store_number(header + 508, lmc_crc32c(0, header, 508), 4);
    }
    put_at(fd, 0, header, n == sizeof header || (repair & 1) ? sizeof header : n);
    in->data += n;
    in->size -= n;
    capacity = container_number(header + 32, 8);
    n = in->size / 2 < MAX_SLOT ? in->size / 2 : MAX_SLOT;
    put_slot(fd, JOURNAL_SLOTS_AT, in->data, n, repair & 2);
    if (capacity <= MAX_SLOT)
        put_slot(fd, JOURNAL_SLOTS_AT + capacity, in->data + n, n, repair & 4);

    memset(&j, 0, sizeof j);
    j.path = copy_string("side", 4);
    j.fd = fd;
    open_place(&place, "root", -1, get_file, &n_files, 0);
    j.target = &place;
    if (read_journal_header(&j) == CODE_OK && j.state == JOURNAL_OTHER) {
        FUZZ_CHECK(j.found_name && strlen(j.found_name) <= JOURNAL_NAME_ROOM);
        if (recover_journal(&j, n_files) == CODE_OK) {
            FUZZ_CHECK(j.n_handed <= container_number(j.header + 16, 8) &&
                       j.n_recorded == j.n_handed);
            FUZZ_CHECK(j.is_recorded == (j.number != 0) && j.pending.size <= MAX_SLOT);
            use_patches(&j, n_files, seed);
        }
    }
    free(j.found_name);
    free(j.pending.data);
    free(j.path);
}

/* -- series.json -- */

static int read_series(struct series *s, const char *text, size_t size)
{
    static struct options options;
    options.directory = "directory";
    init_series(s, &options);
    char *copy = copy_string(text, size);
    const int code = parse_manifest(s, copy, size);
    free(copy);
    return code;
}

static void use_series(const fuzz_input *in, int repair)
{
    char *text = copy_input(in->data, in->size), *again, *third;
    size_t size, third_size;
    struct series s;
    if (repair && in->size >= CHECK_SIZE) {
        char check[CHECK_SIZE + 1];
        format_check(check, text, in->size - CHECK_SIZE);
        memcpy(text + in->size - CHECK_SIZE, check, CHECK_SIZE);
    }
    if (read_series(&s, text, in->size) == CODE_OK) {
        FUZZ_CHECK(s.every >= 1);
        for (size_t i = 0; i < s.n; i++) {
            FUZZ_CHECK(!find_fault_of_name(s.list[i].name) &&
                       find_name(&s, s.list[i].name) == &s.list[i]);
            FUZZ_CHECK(!strchr(s.list[i].path + strlen("directory/"), '/') &&
                       s.list[i].state <= STATE_GONE);
        }
        /* writing gives what was read */
        again = format_series(s.every, s.list, s.n, &size);
        close_series(&s);
        FUZZ_CHECK(read_series(&s, again, size) == CODE_OK);
        third = format_series(s.every, s.list, s.n, &third_size);
        FUZZ_CHECK(third_size == size && memcmp(third, again, size) == 0);
        free(again);
        free(third);
    }
    close_series(&s);
    free(text);
}

static void run_series(fuzz_input *in)
{
    const int repair = (int)fuzz_draw(in, 1) & 1;
    use_series(in, repair);
}

static void begin_making(struct maker *m, const fuzz_input *in)
{
    static uint8_t room[MOST_MADE];
    memset(m, 0, sizeof *m);
    m->in = *in;
    m->data = room;
    m->cap = sizeof room;
}

static void make_series_entry(struct maker *m, void *user)
{
    const unsigned how = make_choice(m);
    (void)user;
    if (m->size && m->data[m->size - 1] == '}') make_byte(m, ',');
    make_chars(m, "{\"name\":\"");
    make_name(m, how & 1 ? make_count(m, 1) : 2);
    make_chars(m, "\",\"state\":\"");
    make_chars(m, state_names[how % (STATE_GONE + 1)]);
    make_chars(m, "\",\"time\":");
    make_decimal(m, make_number(m));
    if (how & 64) {
        make_chars(m, ",\"source\":\"");
        make_name(m, make_count(m, 1));
        make_byte(m, '"');
    }
    if (how % (STATE_GONE + 1) != STATE_ADDING || how == 255) {
        make_chars(m, ",\"size\":");
        make_decimal(m, make_number(m));
        make_chars(m, ",\"fingerprint\":\"");
        make_fill(m, '0' + how % 11, how >= 250 ? make_count(m, 1) : 2 * LMC_FINGERPRINT_SIZE);
        make_byte(m, '"');
    }
    make_byte(m, '}');
}

static void run_made_series(fuzz_input *in)
{
    static const char *const words[] = {
        "\"name\":", "\"state\":",       "\"kept\"",  "\"time\":",   "{",    "}",   "[", "]",
        ",",         "\"fingerprint\":", "\"size\":", "\"source\":", "null", "1e5", "-1"};
    const struct make_grammar g = {words, sizeof words / sizeof *words, make_series_entry, NULL};
    const unsigned how = (unsigned)fuzz_draw(in, 1);
    fuzz_input made;
    struct maker m;
    begin_making(&m, in);
    make_chars(&m, "{\"lmc_series\": ");
    make_decimal(&m, how < 240 ? 1 : make_number(&m));
    make_chars(&m, ", \"every\": ");
    make_decimal(&m, how & 1 ? make_number(&m) : 16);
    make_chars(&m, ", \"snapshots\": [");
    make_words(&m, &g);
    if (how & 2) make_closed(&m, 1);
    else make_byte(&m, ']');
    make_chars(&m, ",\n\"crc32c\": \"00000000\"}\n");
    made.data = m.data;
    made.size = m.size;
    use_series(&made, 1);
}

/* -- policies -- */

static void use_policy(char *name, const fuzz_input *in)
{
    char *text = copy_input(in->data, in->size);
    struct policy p;
    memset(&p, 0, sizeof p);
    if (!memchr(text, 0, in->size) && parse_policy(&p, text, "policy") == CODE_OK) {
        static const char *const dtypes[] = {"F32", "BF16", "U8", "other"};
        static const uint64_t shape[1] = {1000};
        lmc_tensor t;
        memset(&t, 0, sizeof t);
        t.name = name;
        t.rank = 1;
        t.shape = shape;
        t.size = 1000;
        FUZZ_CHECK(p.log2_block == 0 || (p.log2_block >= 14 && p.log2_block <= 20));
        for (size_t i = 0; i < p.n_rules; i++) {
            const struct rule *r = &p.rules[i];
            FUZZ_CHECK(r->glob_size && !find_pattern_fault(r->text, r->glob_size));
            FUZZ_CHECK(r->roles && !(r->roles & ~ALL_ROLES));
            FUZZ_CHECK(r->kind != CHOOSE_BITS || (r->bits >= 4 && r->bits <= 8));
            FUZZ_CHECK(r->kind != CHOOSE_KMEANS || (r->bits >= 1 && r->bits <= 8));
            FUZZ_CHECK((r->kind != CHOOSE_BOUND && r->kind != CHOOSE_AUTO) ||
                       (r->bound > 0 && r->bound < 1));
        }
        for (size_t i = 0; i < p.n_namings; i++) FUZZ_CHECK(p.namings[i].role < N_ROLES);
        for (size_t i = 0; i < 4; i++) {
            struct meaning found;
            t.dtype = dtypes[i];
            found = find_meaning(&p, "optimizer/state.bin", &t);
            FUZZ_CHECK(found.role < N_ROLES);
            (void)find_rule(&p, "optimizer/state.bin", &t, found.role);
        }
    }
    free_policy(&p);
    free(text);
    free(name);
}

static void run_policy(fuzz_input *in)
{
    const int has_name = (int)fuzz_draw(in, 1) & 1;
    use_policy(has_name ? take_line(in) : copy_string("model.exp_avg", 13), in);
}

static void make_rule(struct maker *m, void *user)
{
    static const char *const fields[] = {",role=v", ",role=any", ",dtype=BF16", ",min=",
                                         ",max=",   ",x",        ",base=1"},
                             *const choices[] = {"bits:",  "lossless", "update:0.", "rel:0.",
                                                 "nmse:.", "auto:1e-", "",          "kmeans:"};
    const unsigned how = make_choice(m);
    (void)user;
    make_name(m, how & 1 ? make_count(m, 1) : 1);
    make_byte(m, '*');
    for (unsigned n = how / 64; n--;) {
        make_chars(m, fields[make_one_of(m, sizeof fields / sizeof *fields)]);
        if (m->data[m->size - 1] == '=') {
            make_decimal(m, make_number(m));
            make_byte(m, (unsigned char)"KMG,"[n]);
        }
    }
    make_byte(m, '=');
    make_chars(m, choices[how % 8]);
    if (how % 8 != 1) make_decimal(m, make_number(m));
    make_byte(m, '\n');
}

static void run_made_policy(fuzz_input *in)
{
    static const char *const words[] = {
        "*",        "=",     "bits:8", "default ", "level=max", "block=16K", "role=v ",
        "match=",   "m=a ",  "v=b",    " # ",      "\n",        ",role=any", ",min=",
        "lossless", "[a-z]", "[!x]",   "?",        "\t",        "\r\n"};
    const struct make_grammar g = {words, sizeof words / sizeof *words, make_rule, NULL};
    fuzz_input made;
    struct maker m;
    begin_making(&m, in);
    make_words(&m, &g);
    made.data = m.data;
    made.size = m.size;
    use_policy(copy_string("model.exp_avg", 13), &made);
}

/* -- names -- */

static int sign(int x) { return (x > 0) - (x < 0); }

static void run_names(fuzz_input *in)
{
    char *names[3], *path, *directory;
    size_t size;
    for (unsigned i = 0; i < 3; i++) names[i] = take_line(in);
    for (unsigned i = 0; i < 3; i++) {
        const char *a = names[i], *b = names[(i + 1) % 3], *c = names[(i + 2) % 3];
        const int ab = sign(compare_names(a, b)), bc = sign(compare_names(b, c)),
                  ac = sign(compare_names(a, c));
        FUZZ_CHECK(ab == -sign(compare_names(b, a)) && (ab == 0) == (strcmp(a, b) == 0));
        if (ab == bc) FUZZ_CHECK(ac == ab); /* an order */
        const char *const digits = find_number(a, &size);
        if (digits)
            FUZZ_CHECK(digits >= a && size <= strlen(digits) &&
                       strspn(digits, "0123456789") >= size);
        if (!find_fault_of_name(a))
            FUZZ_CHECK(*a && strlen(a) <= MAX_SNAPSHOT_NAME && !strpbrk(a, "/\\"));
        path = name_journal(a);
        FUZZ_CHECK(is_side_name(path) || !*a || a[strlen(a) - 1] == '/');
        free(path);
        directory = directory_of(a);
        path = join_path(directory, ".lmc-XXXXXX");
        draw_temporary_name(path + strlen(path) - 11);
        FUZZ_CHECK(is_temporary_name(path));
        free(path);
        free(directory);
        (void)container_kind_of_name(a);
        (void)has_suffix(a);
    }
    for (unsigned i = 0; i < 3; i++) free(names[i]);
}

/* -- JSON: texts are restored, also invalid UTF-8 -- */

static void run_json(fuzz_input *in)
{
    const uint64_t number = fuzz_draw(in, 8);
    char *text = copy_input(in->data, in->size), *dumped = NULL;
    size_t size;
    FILE *f = (FILE *)check_memory(open_memstream(&dumped, &size));
    struct json_writer w;
    json_t *read;
    const char *exact, *hex;
    init_json_writer(&w, f, 0);
    begin_json(&w, NULL, '{');
    put_json_text(&w, "text", text);
    put_json_number(&w, "number", number);
    end_json_line(&w);
    fclose(f);
    read = json_loads(dumped, JSON_REJECT_DUPLICATES, NULL);
    FUZZ_CHECK(read);
    exact = json_string_value(json_object_get(read, "text"));
    hex = json_string_value(json_object_get(read, "text_hex"));
    FUZZ_CHECK(exact && strlen(exact) == strlen(text));
    if (hex) {
        FUZZ_CHECK(strlen(hex) == 2 * strlen(text));
        for (size_t i = 0; text[i]; i++) {
            unsigned byte;
            FUZZ_CHECK(sscanf(hex + 2 * i, "%2x", &byte) == 1 && byte == (unsigned char)text[i]);
        }
    } else {
        FUZZ_CHECK(strcmp(exact, text) == 0);
    }
    if (number <= INT64_MAX)
        FUZZ_CHECK((uint64_t)json_integer_value(json_object_get(read, "number")) == number);
    else
        FUZZ_CHECK(strtoull(json_string_value(json_object_get(read, "number")), NULL, 10) ==
                   number);
    json_decref(read);
    free(dumped);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const runs[])(fuzz_input *) = {
        run_journal, run_series, run_policy, run_names, run_json, run_made_policy, run_made_series};
    fuzz_input in = {data, size};
    const unsigned what = (unsigned)fuzz_draw(&in, 1);
    if (in.size > MOST_INPUT || what >= sizeof runs / sizeof *runs) return 0;
    if (!silence && !(silence = fopen("/dev/null", "w"))) abort();
    FUZZ_BEGIN();
    runs[what](&in);
    FUZZ_END();
    return 0;
}
