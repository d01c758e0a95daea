/* dump.c - lmc dump: every field of a snapshot, where it stands and what it says
 * SPDX-License-Identifier: MIT
 *
 * Reads from front to back and holds no more than a field. It knows the format by its
 * specification, and uses nothing of lmc.h but the CRC and names of dtypes: what it says of a file,
 * it has read there. Content is not decoded, so it needs no base; lmc -t checks content.
 */
#include "verbs.h"

#include <stdarg.h>

#include "../format/print.h"
#include "../input/archive.h"
#include "../input/source.h"

#define BLOCK_SYNC 0xB2
#define LARGEST_BLOCK ((uint64_t)1 << 22)
#define BYTES_IN_A_LINE 16u
#define MOST_BYTES 1024u /* more are only counted */
#define NO_LIMIT UINT64_MAX
#define LAST_DTYPE 27u /* of the table, whatever the library adds to its own */

enum outcome { DUMP_GOOD, DUMP_NEWER, DUMP_DAMAGED };

struct dump {
    FILE *in;
    uint64_t at;   /* bytes taken so far */
    uint64_t left; /* of the body that is being read */
    uint32_t crc;  /* of what was taken since it was set to 0 */
    int is_quiet;  /* fields are read, but not printed */
    int stops;     /* what comes cannot be told; all functions do nothing any more */
    unsigned char *buffer;
    size_t room;
    enum outcome outcome;
    uint64_t fault_at; /* the first one */
    char fault[200];
    /* What the index has of each file of a FILE body: its tensors, and whether its size. */
    struct dumped_file {
        uint64_t n_tensors;
        int is_unknown;
    } *files;
    size_t n_files, files_room;
    uint64_t n_blocks; /* of the last RUN body */
};

static void print_heading(const char *text) { printf("      -- %s --\n", text); }

/* "0067  05          N_Files 5". value: behind the name; NULL: the bytes as text, if they are */
static void print_field(uint64_t offset, const char *name, const unsigned char *bytes, size_t size,
                        const char *value)
{
    size_t n_text = 0;
    while (n_text < size && bytes[n_text] >= 32 && bytes[n_text] != 127) n_text++;
    for (size_t at = 0; at < size; at += BYTES_IN_A_LINE) {
        const size_t n = size - at < BYTES_IN_A_LINE ? size - at : BYTES_IN_A_LINE;
        char text[3 * BYTES_IN_A_LINE + 1];
        for (size_t i = 0; i < n; i++) snprintf(text + 3 * i, 4, "%02X ", bytes[at + i]);
        text[3 * n - 1] = 0;
        printf("%04llX  ", (unsigned long long)(offset + at));
        if (at == 0) printf("%-47s  %s", text, name);
        else fputs(text, stdout);
        if (at == 0 && value && *value) printf(" %s", value);
        if (at == 0 && !value && n_text == size) {
            fputs(" \"", stdout);
            print_text(bytes, size);
            putchar('"');
        }
        putchar('\n');
    }
}

/* "(64 bytes)" in place of them. */
static void print_counted(uint64_t offset, const char *name, uint64_t size)
{
    char count[48];
    snprintf(count, sizeof count, "(%llu bytes)", (unsigned long long)size);
    printf("%04llX  %-47s  %s\n", (unsigned long long)offset, count, name);
}

/* A line with !!; the first one decides the outcome. */
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
static void
fault(struct dump *d, enum outcome outcome, uint64_t at, const char *format, ...)
{
    char text[sizeof d->fault];
    va_list list;
    if (d->is_quiet && !d->stops) return; /* a copy: it was said where the original stands */
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    printf("%04llX  !! %s\n", (unsigned long long)at, text);
    if (d->outcome != DUMP_GOOD) return; /* the first may be why others follow */
    d->outcome = outcome;
    d->fault_at = at;
    memcpy(d->fault, text, sizeof text);
}

/* Compares a CRC, which stands at that offset. */
static void check_crc(struct dump *d, uint64_t at, const char *name, uint64_t stored, uint32_t crc)
{
    if (stored == crc) return;
    if (d->outcome == DUMP_NEWER) d->outcome = DUMP_GOOD; /* no newer version: the CRC proves it */
    fault(d, DUMP_DAMAGED, at, "%s should be %02X %02X %02X %02X", name, crc & 255u,
          crc >> 8 & 255u, crc >> 16 & 255u, crc >> 24);
}

/* -- taking bytes -- */

static size_t read_bytes(struct dump *d, unsigned char *to, size_t size)
{
    const size_t got = fread(to, 1, size, d->in);
    d->crc = lmc_crc32c(d->crc, to, got);
    d->at += got;
    if (d->left != NO_LIMIT) d->left -= got;
    return got;
}

/* The next byte, which stays; or EOF. */
static int peek_byte(struct dump *d)
{
    const int byte = d->stops ? EOF : getc(d->in);
    if (byte != EOF) ungetc(byte, d->in);
    return byte;
}

/* Takes bytes that are only counted. */
static void skip_bytes(struct dump *d, const char *name, uint64_t size)
{
    unsigned char chunk[4096];
    const uint64_t start = d->at;
    while (d->at - start < size && !d->stops) {
        const uint64_t rest = size - (d->at - start);
        const size_t n = rest < sizeof chunk ? (size_t)rest : sizeof chunk;
        d->stops = read_bytes(d, chunk, n) < n;
        if (d->stops) fault(d, DUMP_DAMAGED, d->at, "the file ends here, within %s", name);
    }
    if (!d->is_quiet && d->at > start) print_counted(start, name, d->at - start);
}

/* In the buffer, not printed; NULL: they are not there. */
static const unsigned char *get_bytes(struct dump *d, const char *name, size_t size)
{
    const uint64_t start = d->at;
    const int is_short = d->left < size;
    if (d->stops) return NULL;
    if (d->room < size) d->buffer = (unsigned char *)resize(d->buffer, d->room = size, 1);
    size_t got = read_bytes(d, d->buffer, is_short ? (size_t)d->left : size);
    if (got == size) return d->buffer;
    if (!d->is_quiet) print_field(start, name, d->buffer, got, NULL);
    if (is_short && d->left == 0) fault(d, DUMP_DAMAGED, start, "the body ends within %s", name);
    else {
        d->stops = 1;
        fault(d, DUMP_DAMAGED, d->at, "the file ends here");
    }
    return NULL;
}

/* The next bytes, into the buffer, unless they are many. 0, and said: they are not there. */
static int take_bytes(struct dump *d, const char *name, uint64_t size)
{
    const uint64_t start = d->at;
    if (size > MOST_BYTES && size <= d->left) {
        skip_bytes(d, name, size);
        return !d->stops;
    }
    if (!get_bytes(d, name, size > MOST_BYTES ? MOST_BYTES + 1 : (size_t)size)) return 0;
    if (!d->is_quiet) print_field(start, name, d->buffer, (size_t)size, NULL);
    return 1;
}

/* A varint into the buffer; its size, or 0. */
static size_t get_varint(struct dump *d, const char *name, uint64_t *value)
{
    unsigned char bytes[10];
    const uint64_t start = d->at;
    size_t n = 0;
    do {
        const unsigned char *byte = get_bytes(d, name, 1);
        if (!byte) return 0;
        bytes[n] = *byte;
        *value |= (uint64_t)(*byte & 127) << 7 * n;
    } while (bytes[n++] & 128 && n < sizeof bytes);
    memcpy(d->buffer, bytes, n);
    if ((n == sizeof bytes && bytes[9] > 1) || (n > 1 && bytes[n - 1] == 0))
        fault(d, DUMP_DAMAGED, start, "%s is no varint in the shortest form below 2^64", name);
    return n;
}

/* One field, of which `kind` begins with the character of take_fields(). */
static int take_field(struct dump *d, const char *name, const char *kind, uint64_t *value)
{
    const uint64_t start = d->at;
    const int is_number = *kind != 'x';
    size_t size = *kind == 's'   ? 8
                  : *kind == 'c' ? 4
                  : *kind == 'd' ? 1
                                 : strtoul(kind + !is_number, NULL, 10);
    char text[32];
    *value = 0;
    if (*kind == 'v') size = get_varint(d, name, value);
    else if (!get_bytes(d, name, size)) return 0;
    if (size == 0) return 0;
    for (size_t i = size; *kind != 'v' && i-- > 0;)
        *value = is_number ? *value << 8 | d->buffer[i] : (*value || d->buffer[i]);
    if (*kind == 's') snprintf(text, sizeof text, "%lld", (long long)(int64_t)*value);
    else if (*kind == 'd' && *value && *value <= LAST_DTYPE)
        snprintf(text, sizeof text, "%u (%s)", (unsigned)*value,
                 lmc_dtype_name((enum lmc_dtype) * value));
    else snprintf(text, sizeof text, "%llu", (unsigned long long)*value);
    if (!d->is_quiet)
        print_field(start, name, d->buffer, size, is_number && *kind != 'c' ? text : "");
    return 1;
}

/* Takes fields as "Name:kind Name:kind", where kind is 1, 2, 4 or 8: a number of so many bytes; v:
 * a varint; s: a signed number of 8 bytes; d: a Dtype, c: a CRC; x and a number: so many bytes, of
 * which values gets only whether they are not zero. values: one for each field. Returns whether all
 * are there. */
static int take_fields(struct dump *d, const char *fields, uint64_t *values)
{
    while (*fields) {
        char name[40];
        const size_t size = strcspn(fields, ":");
        snprintf(name, sizeof name, "%.*s", (int)size, fields);
        if (!take_field(d, name, fields + size + 1, values++)) return 0;
        fields += strcspn(fields, " ");
        fields += *fields == ' ';
    }
    return 1;
}

/* -- FILE -- */

static int check_form(struct dump *d, uint64_t form, unsigned known)
{
    if (form & ~(uint64_t)known)
        fault(d, DUMP_NEWER, d->at - 1, "Form has a bit that is unknown: of a newer version");
    return !(form & ~(uint64_t)known);
}

static int take_layout(struct dump *d)
{
    uint64_t dtype, rank, extent, size;
    if (!take_fields(d, "Dtype:d", &dtype)) return 0;
    if (dtype > LAST_DTYPE) {
        fault(d, DUMP_NEWER, d->at - 1, "Dtype is unknown: of a newer version");
        return 0;
    }
    if (dtype == 0 &&
        (!take_fields(d, "Dtype_Size:1", &size) || !take_bytes(d, "Dtype_String", size)))
        return 0;
    if (!take_fields(d, "Rank:1", &rank)) return 0;
    if (rank > LMC_MAX_RANK) {
        fault(d, DUMP_DAMAGED, d->at - 1, "Rank is more than 32");
        return 0;
    }
    while (rank-- > 0)
        if (!take_fields(d, "Shape:v", &extent)) return 0;
    return dtype || take_fields(d, "Size:v", &size);
}

static int take_tensor(struct dump *d)
{
    uint64_t v[3], form;
    if (!take_fields(d, "Form:1", &form) || !check_form(d, form, 7) ||
        !take_fields(d, "Back:v", v) || (v[0] && !take_fields(d, "Prefix:1 Suffix:1", v)))
        return 0;
    return take_fields(d, "Middle_Size:v", v) && take_bytes(d, "Middle", v[0]) &&
           (!(form & 2) || take_fields(d, "Gap:v", v)) && ((form & 1) || take_layout(d)) &&
           (!(form & 4) || take_fields(d, "Generation:1 Measure:1 Error:4", v));
}

static int take_file(struct dump *d)
{
    uint64_t v[2], form, n_tensors = 0;
    if (!take_fields(d, "Form:1", &form) || !check_form(d, form, 15) ||
        !take_fields(d, "Path_Prefix:1 Path_Rest_Size:v", v) || !take_bytes(d, "Path_Rest", v[1]))
        return 0;
    if ((!(form & 9) && !take_fields(d, "File_Size:v", v)) ||
        ((form & 2) && !take_fields(d, "Mode:v", v)) ||
        ((form & 4) && !take_fields(d, "Mtime_Seconds:s Mtime_Nanoseconds:4", v)) ||
        (!(form & 9) && !take_fields(d, "N_Tensors:v", &n_tensors)))
        return 0;
    if (d->is_quiet) {
        struct dumped_file *const f =
            (struct dumped_file *)append(&d->files, &d->n_files, &d->files_room, sizeof *f);
        f->n_tensors = n_tensors;
        f->is_unknown = (form & 8) != 0;
    }
    for (; n_tensors; n_tensors--)
        if (!take_tensor(d)) return 0;
    return 1;
}

static int take_file_body(struct dump *d)
{
    uint64_t n;
    d->n_files = 0;
    if (!take_fields(d, "N_Files:v", &n)) return 0;
    for (; n; n--)
        if (!take_file(d)) return 0;
    return 1;
}

/* -- RUN -- */

static int take_run_body(struct dump *d)
{
    uint64_t v[3], n;
    d->n_blocks = NO_LIMIT; /* not known */
    if (!take_fields(d, "Run_Size:v Block_Size:v Prediction:1", v)) return 0;
    if (v[1] >= 1u << 14 && v[1] <= LARGEST_BLOCK && (v[1] & (v[1] - 1)) == 0 && v[0] > 0)
        d->n_blocks = (v[0] - 1) / v[1] + 1;
    else fault(d, DUMP_DAMAGED, d->at, "Run_Size or Block_Size is out of range");
    if (v[2] > 5) {
        fault(d, DUMP_NEWER, d->at - 1, "Prediction is unknown: of a newer version");
        return 0;
    }
    if (v[2] == 0) return 1;
    if (!take_fields(d, "N_Segments:v", &n)) return 0;
    for (; n; n--)
        if (!take_fields(d, "Size:v Reference:v", v) ||
            (v[1] && ((v[1] - 1) & 1) && !take_fields(d, "Offset:v", v)))
            return 0;
    return 1;
}

static void take_block(struct dump *d, uint32_t number)
{
    unsigned char place[4];
    uint64_t v[9];
    uint32_t crc;
    for (unsigned i = 0; i < 4; i++) place[i] = (unsigned char)(number >> 8 * i);
    print_heading("block");
    d->crc = lmc_crc32c(0, place, sizeof place);
    if (!take_fields(d,
                     "Sync:x1 Width:1 Coding:1 Grouping:1 N_Elements:4 Payload_Size:4 "
                     "Content_CRC:c Payload_CRC:c",
                     v))
        return;
    crc = d->crc;
    if (!take_fields(d, "Header_CRC:c", &v[8])) return;
    check_crc(d, d->at - 4, "Header_CRC", v[8], crc);
    if ((v[1] & (v[1] - 1)) || v[1] > 8 || v[1] == 0 || v[2] >> 5 > 2 || (v[2] & 0x18) ||
        (v[2] & 3) == 3)
        fault(d, DUMP_NEWER, d->at - 23, "Width or Coding is unknown: of a newer version");
    if (v[4] < 1 || v[4] * v[1] > LARGEST_BLOCK || v[5] > LARGEST_BLOCK)
        fault(d, DUMP_DAMAGED, d->at - 20, "N_Elements or Payload_Size is out of range");
    d->crc = 0;
    skip_bytes(d, "Payload", v[5]);
    if (d->stops) return;
    if (v[2] & 4) check_crc(d, d->at - v[5] - 8, "Payload_CRC", v[7], d->crc);
    else if (v[2] >> 5 == 0) check_crc(d, d->at - v[5] - 12, "Content_CRC", v[6], d->crc);
}

/* Sync is no letter, so blocks are told from sections even if the run's body is damaged. */
static void take_blocks(struct dump *d)
{
    uint64_t n = 0;
    for (; n < d->n_blocks && peek_byte(d) == BLOCK_SYNC; n++) take_block(d, (uint32_t)n);
    if (!d->stops && d->n_blocks != NO_LIMIT && n < d->n_blocks)
        fault(d, DUMP_DAMAGED, d->at,
              "a block is missing: the run has %llu, and this is number %llu",
              (unsigned long long)d->n_blocks, (unsigned long long)n);
}

/* -- BLKS and INDX -- */

static int take_table_body(struct dump *d)
{
    uint64_t v[2];
    while (d->left >= 8 && !d->stops)
        if (!take_fields(d, "Size:4 Header_CRC:c", v)) return 0;
    return 1;
}

/* The copy of a body in the index: its bytes are counted, and what is in it is remembered. */
static int take_copy(struct dump *d, const char kind[4])
{
    const uint64_t start = d->at;
    uint64_t size, outside;
    if (kind[0] >= 'a' && kind[0] <= 'z') return 1;
    if (!take_fields(d, "Body_Size:v", &size)) return 0;
    if (size > d->left) {
        fault(d, DUMP_DAMAGED, start, "Body_Size is more than the index has");
        return 0;
    }
    outside = d->left - size;
    d->left = size;
    d->is_quiet = 1;
    if (memcmp(kind, "FILE", 4) == 0) (void)take_file_body(d);
    skip_bytes(d, "Body", d->left);
    d->is_quiet = 0;
    d->left = outside;
    if (!d->stops && size) print_counted(d->at - size, "Body", size);
    return !d->stops;
}

static int take_entry(struct dump *d)
{
    uint64_t v;
    char kind[4];
    d->n_files = 0;
    if (!take_bytes(d, "Kind", 4)) return 0;
    memcpy(kind, d->buffer, 4);
    if (!take_fields(d, "Stored_Size:v", &v) || !take_copy(d, kind)) return 0;
    for (size_t i = 0; i < d->n_files; i++) {
        uint64_t n = d->files[i].n_tensors ? d->files[i].n_tensors : 1;
        if ((d->files[i].is_unknown && !take_fields(d, "File_Size:8", &v)) ||
            !take_fields(d, "File_CRC:c", &v))
            return 0;
        while (n-- > 0)
            if (!take_fields(d, "Fingerprint:x16", &v)) return 0;
    }
    return 1;
}

static int take_index_body(struct dump *d)
{
    uint64_t v[4];
    if (!take_fields(d, "Header:x64 Snapshot_Fingerprint:x16 N_Sections:4 N_Metadata:4", v))
        return 0;
    while (v[2]-- > 0)
        if (!take_entry(d)) return 0;
    while (v[3]-- > 0)
        if (!take_fields(d, "Key_Size:4 Value_Size:4", v) || !take_bytes(d, "Key", v[0]) ||
            !take_bytes(d, "Value", v[1]))
            return 0;
    return 1;
}

/* -- sections -- */

static int take_records(struct dump *d)
{
    uint64_t v[2], last = 0;
    int is_first = 1;
    for (; d->left && !d->stops; last = v[0], is_first = 0) {
        const uint64_t start = d->at;
        if (!take_fields(d, "Tag:v Size:v", v) || !take_bytes(d, "Record", v[1])) return 0;
        if (!is_first && v[0] <= last) fault(d, DUMP_DAMAGED, start, "Tags do not ascend");
        if (v[0] & 1)
            fault(d, DUMP_NEWER, start, "Tag %llu is unknown: of a newer version",
                  (unsigned long long)v[0]);
    }
    return 1;
}

static int is_kind(const char kind[4])
{
    for (int i = 0; i < 4; i++) {
        const int c = kind[i], is_letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (!is_letter && (i == 0 || !((c >= '0' && c <= '9') || c == ' '))) return 0;
    }
    return 1;
}

static const struct body {
    char kind[5];
    const char *heading;
    int (*take)(struct dump *d);
    int has_records;
} bodies[] = {{"FILE", "body of FILE", take_file_body, 1},
              {"RUN ", "body of RUN", take_run_body, 1},
              {"BLKS", "body of BLKS", take_table_body, 0},
              {"INDX", "body of INDX", take_index_body, 1}};

static void take_body(struct dump *d, const struct body *body)
{
    print_heading(body ? body->heading : "body");
    if (!body) (void)take_bytes(d, "Body", d->left);
    else if (body->take(d) && body->has_records) (void)take_records(d);
    if (!d->stops && d->left) skip_bytes(d, "the rest of the body", d->left);
}

/* Returns whether other sections may follow; *has_index: no, it was the index. */
static int take_section(struct dump *d, int *has_index)
{
    const uint64_t start = d->at;
    const struct body *body = NULL;
    uint64_t v[3];
    uint32_t crc;
    char kind[4];
    print_heading("section");
    d->crc = 0;
    if (!take_bytes(d, "Kind", 4)) return 0;
    memcpy(kind, d->buffer, 4);
    if (!take_fields(d, "Body_Size:8", v)) return 0;
    crc = d->crc;
    if (!take_fields(d, "Head_CRC:c Body_CRC:c", v + 1)) return 0;
    check_crc(d, start + 12, "Head_CRC", v[1], crc);
    if (!is_kind(kind) || v[0] > (uint64_t)1 << 40) {
        fault(d, DUMP_DAMAGED, start, "this is no section; what follows is not read");
        return 0;
    }
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        if (memcmp(kind, bodies[i].kind, 4) == 0) body = &bodies[i];
    if (!body && kind[0] <= 'Z') {
        fault(d, DUMP_NEWER, start,
              "the section %.4s is unknown: of a newer version; what follows is not read", kind);
        return 0;
    }
    d->crc = 0;
    d->left = v[0];
    take_body(d, body);
    d->left = NO_LIMIT;
    if (d->stops) return 0;
    check_crc(d, start + 16, "Body_CRC", v[2], d->crc);
    if (body && body->take == take_run_body) take_blocks(d);
    *has_index = body && body->take == take_index_body;
    return !d->stops && !*has_index;
}

/* -- header and trailer -- */

/* Whether the header would be right if its Format_Major were that of this version. */
static int is_header_of_this(struct dump *d, uint64_t minor)
{
    uint8_t header[LMC_FILE_HEADER_SIZE];
    lmc_snapshot_info info;
    memcpy(header, start_magic, 8);
    header[8] = LMC_FORMAT_MAJOR;
    header[9] = (uint8_t)minor;
    d->is_quiet = 1;
    if (!take_bytes(d, "the header", sizeof header - 10)) return 0;
    d->is_quiet = 0;
    memcpy(header + 10, d->buffer, sizeof header - 10);
    return lmc_header_parse(header, sizeof header, &info) == LMC_OK;
}

/* Returns whether sections may follow. */
static int take_header(struct dump *d)
{
    uint64_t v[8];
    uint32_t crc;
    print_heading("header");
    if (!take_fields(d, "Magic:x8", v)) return 0;
    if (memcmp(d->buffer + 1, start_magic + 1, 7) != 0 || !strchr("\x95\x8C\x83", d->buffer[0]) ||
        !d->buffer[0]) {
        fault(d, DUMP_DAMAGED, 0, "this is no LMC file");
        return 0;
    }
    if (d->buffer[0] != start_magic[0]) {
        fault(d, DUMP_NEWER, 0, "a file of a draft of the format: the lmc that wrote it reads it");
        return 0;
    }
    if (!take_fields(d, "Format_Major:1 Format_Minor:1", v)) return 0;
    if (v[0] != LMC_FORMAT_MAJOR) {
        if (is_header_of_this(d, v[1]))
            fault(d, DUMP_DAMAGED, 8, "Format_Major is not 1, but was, as Header_CRC tells");
        else fault(d, DUMP_NEWER, 8, "Format_Major is not 1: of another version");
        return 0;
    }
    if (!take_fields(d,
                     "Algorithm:1 Reserved:x5 Incompatible:8 Compatible:8 Base_Fingerprint:x16 "
                     "Reserved:x12",
                     v))
        return 0;
    crc = d->crc;
    if (!take_fields(d, "Header_CRC:c", &v[7])) return 0;
    check_crc(d, 60, "Header_CRC", v[7], crc);
    for (unsigned bit = 0; bit < 64; bit++)
        if (!name_feature(bit) && v[2] >> bit & 1)
            fault(d, DUMP_NEWER, 16, "Incompatible bit %u is unknown: %s", bit,
                  bit < 48 ? "of a newer version" : "an experiment");
    if (v[0] != 1 || v[1] || v[5])
        fault(d, DUMP_NEWER, 10, "Algorithm or Reserved is of a newer version");
    return 1;
}

static void take_trailer(struct dump *d)
{
    const uint64_t start = d->at;
    uint64_t v[8];
    uint32_t crc;
    print_heading("trailer");
    d->crc = 0;
    if (!take_fields(d,
                     "Index_Offset:8 Index_Size:8 Total_Size:8 Format_Major:1 Format_Minor:1 "
                     "Reserved:2",
                     v))
        return;
    crc = d->crc;
    if (!take_fields(d, "Trailer_CRC:c", &v[6])) return;
    check_crc(d, start + 28, "Trailer_CRC", v[6], crc);
    if (v[3] != LMC_FORMAT_MAJOR || v[5])
        fault(d, DUMP_NEWER, start + 24, "the trailer is of another version");
    if (!take_fields(d, "End_Magic:x8", &v[7])) return;
    if (memcmp(d->buffer, end_magic, sizeof end_magic) != 0)
        fault(d, DUMP_DAMAGED, start + 32, "End_Magic is wrong");
    if (v[0] + v[1] != start || v[2] != d->at)
        fault(d, DUMP_DAMAGED, start, "the trailer does not say where the index and the file end");
    if (peek_byte(d) != EOF)
        fault(d, DUMP_DAMAGED, d->at, "bytes follow the end of the snapshot; they are not read");
}

static void dump_all(struct dump *d)
{
    int has_index = 0;
    if (!take_header(d)) return;
    while (take_section(d, &has_index)) {
        const int next = peek_byte(d);
        if (next != EOF && next != BLOCK_SYNC) continue;
        fault(d, DUMP_DAMAGED, d->at,
              next == EOF ? "the file ends here, without an index"
                          : "a block that belongs to no run; what follows is not read");
        return;
    }
    if (has_index) take_trailer(d);
}

int dump_file(const struct options *o)
{
    const char *const path = o->names[0], *const name = is_dash(path) ? "(standard input)" : path;
    struct dump d = {0};
    struct stat st;
    int code = CODE_OK;
    d.left = NO_LIMIT;
    if (check_regular(path, 0) != CODE_OK) return CODE_ERROR;
    d.in = is_dash(path) ? stdin : fopen(path, "rb");
    if (!d.in || fstat(fileno(d.in), &st) != 0) code = fail_errno(name, errno, "cannot open it");
    else if (S_ISDIR(st.st_mode)) code = fail(CODE_ERROR, name, "is a directory; name a file");
    else {
        dump_all(&d);
        if (ferror(d.in)) code = fail_errno(name, errno, "cannot read it");
        else if (d.outcome != DUMP_GOOD)
            code = fail(d.outcome == DUMP_DAMAGED ? CODE_CORRUPT : CODE_ERROR, name,
                        "at byte %llu: %s", (unsigned long long)d.fault_at, d.fault);
    }
    if (d.in && d.in != stdin) fclose(d.in);
    free(d.buffer);
    free(d.files);
    return code;
}
