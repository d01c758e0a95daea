/* SPDX-License-Identifier: MIT
 *
 * Reads from front to back and holds no more than a field, or a block, at once. It knows the format
 * by its specification, and uses nothing of lmc.h but the CRC: what it says of a file, it has read
 * there. Content is not decoded, so it needs no base; lmc -t checks content.
 */
#include "dump.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "../../lmc.h"
#include "../input/source.h"
#include "../input/walk.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/report.h"
#include "dump_field.h"
#include "dump_payload.h"
#include "dump_take.h"

#define SMALL_PAYLOAD 1024u /* of which the structure is printed without being asked for */
#define LARGEST_BLOCK ((size_t)8 << 20)
#define CHUNK ((size_t)64 << 10)
#define TRAILER_SIZE 40u

#define FILE_IS_UNKNOWN 1u

/* -- FILE -- */

static int take_shape(struct dump *d)
{
    uint64_t rank, extent;
    if (!take_number(d, "Rank", 1, &rank)) return 0;
    if (rank > LMC_MAX_RANK) fault(d, DUMP_DAMAGED, d->at - 1, "Rank is more than 32");
    for (uint64_t i = 0; i < rank && rank <= LMC_MAX_RANK; i++) {
        char name[16];
        snprintf(name, sizeof name, "Shape%u", (unsigned)i);
        if (!take_varint(d, name, &extent)) return 0;
    }
    return rank <= LMC_MAX_RANK;
}

/* The numbers of files end here, whatever the library adds to its own (R5.1-23). */
#define LAST_DTYPE 22u

static int take_dtype(struct dump *d, uint64_t *number)
{
    const uint64_t start = d->at;
    const unsigned char *bytes = get_bytes(d, "Dtype", 1);
    char name[40];
    uint64_t size;
    if (!bytes) return 0;
    *number = *bytes;
    if (!d->is_quiet) {
        if (*number >= 1 && *number <= LAST_DTYPE)
            snprintf(name, sizeof name, "Dtype %u (%s)", (unsigned)*number,
                     lmc_dtype_name((enum lmc_dtype) * number));
        else snprintf(name, sizeof name, "Dtype %u", (unsigned)*number);
        print_field(start, name, bytes, 1, FIELD_BYTES);
    }
    if (*number > LAST_DTYPE) {
        fault(d, DUMP_NEWER, start, "Dtype %u is unknown: of a newer version", (unsigned)*number);
        return 0;
    }
    return *number != 0 ||
           (take_number(d, "Dtype_Size", 1, &size) && take_text(d, "Dtype_String", size));
}

static int check_form(struct dump *d, uint64_t form, unsigned known)
{
    if (form & ~(uint64_t)known)
        fault(d, DUMP_NEWER, d->at - 1, "Form has a bit that is unknown: of a newer version");
    return !(form & ~(uint64_t)known);
}

static int take_tensor(struct dump *d)
{
    uint64_t form, value, dtype = 1, size;
    if (!take_number(d, "Form", 1, &form) || !check_form(d, form, 7) ||
        !take_varint(d, "Back", &value))
        return 0;
    if (value && (!take_number(d, "Prefix", 1, &size) || !take_number(d, "Suffix", 1, &size)))
        return 0;
    if (!take_varint(d, "Middle_Size", &size) || !take_text(d, "Middle", size)) return 0;
    if ((form & 2) && !take_varint(d, "Gap", &value)) return 0;
    if (!(form & 1) && (!take_dtype(d, &dtype) || !take_shape(d))) return 0;
    if (dtype == 0 && !take_varint(d, "Size", &value)) return 0;
    return !(form & 4) ||
           (take_number(d, "Generation", 1, &value) && take_number(d, "Measure", 1, &value) &&
            take_number(d, "Error", 4, &value));
}

static int take_file(struct dump *d)
{
    uint64_t form, value, n_tensors = 0;
    if (!take_number(d, "Form", 1, &form) || !check_form(d, form, 15) ||
        !take_number(d, "Path_Prefix", 1, &value) || !take_varint(d, "Path_Rest_Size", &value) ||
        !take_text(d, "Path_Rest", value))
        return 0;
    if (!(form & 9) && !take_varint(d, "File_Size", &value)) return 0;
    if ((form & 2) && !take_varint(d, "Mode", &value)) return 0;
    if ((form & 4) && (!take(d, "Mtime_Seconds", 8, FIELD_SIGNED) ||
                       !take_number(d, "Mtime_Nanoseconds", 4, &value)))
        return 0;
    if (!(form & 9) && !take_varint(d, "N_Tensors", &n_tensors)) return 0;
    if (n_tensors > d->left) {
        fault(d, DUMP_DAMAGED, d->at, "N_Tensors is more than the body can hold");
        return 0;
    }
    if (d->is_quiet) {
        if (d->n_files == d->files_room) {
            d->files_room = d->files_room * 2 + 16;
            d->files = (uint32_t *)resize(d->files, d->files_room, sizeof *d->files);
        }
        d->files[d->n_files++] = (uint32_t)n_tensors << 1 | (form & 8 ? FILE_IS_UNKNOWN : 0);
    }
    for (; n_tensors; n_tensors--)
        if (!take_tensor(d)) return 0;
    return 1;
}

static int take_file_body(struct dump *d)
{
    uint64_t n;
    d->n_files = 0;
    if (!take_varint(d, "N_Files", &n)) return 0;
    for (; n; n--)
        if (!take_file(d)) return 0;
    return 1;
}

/* -- RUN -- */

static int take_run_body(struct dump *d)
{
    uint64_t size, log2, prediction, conversion, n, value;
    d->n_blocks = NO_LIMIT; /* not known */
    if (!take_varint(d, "Run_Size", &size) || !take_number(d, "Log2_Block_Size", 1, &log2) ||
        !take_number(d, "Prediction", 1, &prediction) ||
        !take_number(d, "Conversion", 1, &conversion))
        return 0;
    if (log2 >= 14 && log2 <= 23 && size > 0) d->n_blocks = ((size - 1) >> log2) + 1;
    else fault(d, DUMP_DAMAGED, d->at - 3, "Run_Size or Log2_Block_Size is out of range");
    if (prediction > 3 || conversion > 2 || (conversion && prediction != 2)) {
        fault(d, DUMP_NEWER, d->at - 2,
              "Prediction %u with Conversion %u is unknown: of a newer "
              "version",
              (unsigned)prediction, (unsigned)conversion);
        return 0;
    }
    if (prediction == 0) return 1;
    if (!take_varint(d, "N_Segments", &n)) return 0;
    for (; n; n--) {
        if (!take_varint(d, "Size", &value) || !take_varint(d, "Reference", &value)) return 0;
        if (value && ((value - 1) & 1) && !take_varint(d, "Offset", &value)) return 0;
    }
    return 1;
}

static void check_crc(struct dump *d, uint64_t at, const char *name, uint64_t stored, uint32_t crc)
{
    if (stored == crc) return;
    if (d->outcome == DUMP_NEWER) d->outcome = DUMP_GOOD; /* no newer version: the CRC proves it */
    fault(d, DUMP_DAMAGED, at, "%s should be %02X %02X %02X %02X", name, crc & 255u,
          crc >> 8 & 255u, crc >> 16 & 255u, crc >> 24);
}

static void take_payload(struct dump *d, const struct payload_block *b, uint64_t size)
{
    const uint64_t start = d->at;
    const unsigned char *bytes;
    const char *wrong;
    uint64_t where;
    if (size > LARGEST_BLOCK || (size > SMALL_PAYLOAD && !d->is_verbose)) {
        skip_bytes(d, "the payload", size);
        return;
    }
    bytes = get_bytes(d, "the payload", (size_t)size);
    if (!bytes) return;
    wrong = print_payload(b, bytes, (size_t)size, start, &where);
    if (wrong) fault(d, DUMP_DAMAGED, where, "%s", wrong);
}

static void take_block(struct dump *d, uint64_t run, uint64_t number)
{
    struct payload_block b;
    unsigned char position[8];
    uint64_t value, size;
    uint32_t crc;
    for (unsigned i = 0; i < 4; i++) {
        position[i] = (unsigned char)(run >> 8 * i);
        position[4 + i] = (unsigned char)(number >> 8 * i);
    }
    print_heading("Block_Header");
    d->crc = lmc_crc32c(0, position, sizeof position);
    memset(&b, 0, sizeof b);
    (void)take_number(d, "Sync", 1, &value);
    if (take_number(d, "Coding", 1, &value)) b.coding = (unsigned)value;
    if (take_number(d, "Prediction", 1, &value)) b.prediction = (unsigned)value;
    if (take_number(d, "Grouping", 1, &value)) b.grouping = (unsigned)value;
    if (take_number(d, "N_Elements", 4, &value)) b.n_elements = (uint32_t)value;
    if (!take_number(d, "Payload_Size", 4, &size) || !take(d, "Content_CRC", 4, FIELD_BYTES) ||
        !take(d, "Base_CRC", 4, FIELD_BYTES))
        return;
    crc = d->crc;
    {
        const unsigned char *bytes = take(d, "Header_CRC", 4, FIELD_BYTES);
        if (!bytes) return;
        check_crc(d, d->at - 4, "Header_CRC", field_number(bytes, 4), crc);
    }
    if (b.coding >> 5 > 2 || (b.coding >> 3 & 3) == 3 || b.prediction > 1)
        fault(d, DUMP_NEWER, d->at - 23,
              "Coding or Prediction of the block is unknown: of a newer version");
    if (b.n_elements < 1 || b.n_elements > 1u << 22 || size > LARGEST_BLOCK) {
        fault(d, DUMP_DAMAGED, d->at - 16, "N_Elements or Payload_Size is out of range");
        skip_bytes(d, "the payload", size);
    } else take_payload(d, &b, size);
}

/* Sync is no letter, so blocks are told from sections even if the run's body is damaged. */
static void take_blocks(struct dump *d, uint64_t run)
{
    uint64_t n = 0;
    for (; n < d->n_blocks && peek_byte(d) == 0xB1; n++) take_block(d, run, n);
    if (!d->stops && d->n_blocks != NO_LIMIT && n < d->n_blocks)
        fault(d, DUMP_DAMAGED, d->at,
              "a block is missing: the run has %llu, and this is number %llu",
              (unsigned long long)d->n_blocks, (unsigned long long)n);
}

/* -- INDX -- */

/* The copy of a section in the index: its kind, the bytes of its body and what is in it. */
static int take_copy(struct dump *d, char kind[4])
{
    const uint64_t start = d->at;
    const unsigned char *bytes = get_bytes(d, "Copy", 24);
    uint64_t size, outside;
    if (!bytes) return 0;
    memcpy(kind, bytes, 4);
    size = field_number(bytes + 8, 8);
    if (kind[0] >= 'a' && kind[0] <= 'z') size = 0;
    if (size > d->left) {
        print_counted(start, "Copy", 24);
        fault(d, DUMP_DAMAGED, start + 8, "Body_Size of the copy is more than the index");
        return 0;
    }
    print_counted(start, "Copy", 24 + size);
    outside = d->left - size;
    d->left = size;
    d->is_quiet = 1;
    d->n_files = 0;
    d->n_blocks = 0;
    if (memcmp(kind, "FILE", 4) == 0) (void)take_file_body(d);
    else if (memcmp(kind, "RUN ", 4) == 0) (void)take_run_body(d);
    skip_bytes(d, "", d->left);
    d->is_quiet = 0;
    d->left = outside;
    return !d->stops;
}

static int take_entry(struct dump *d)
{
    uint64_t value;
    char kind[4], name[40];
    if (!take_number(d, "Offset", 8, &value) || !take_copy(d, kind)) return 0;
    if (memcmp(kind, "FILE", 4) == 0)
        for (size_t i = 0; i < d->n_files; i++) {
            const uint32_t n_tensors = d->files[i] >> 1;
            if ((d->files[i] & FILE_IS_UNKNOWN) && !take_number(d, "File_Size", 8, &value))
                return 0;
            if (!take(d, "File_CRC", 4, FIELD_BYTES)) return 0;
            for (uint32_t j = 0; j < (n_tensors ? n_tensors : 1); j++) {
                snprintf(name, sizeof name, "Fingerprint%u", (unsigned)j);
                if (!take(d, name, 32, FIELD_BYTES)) return 0;
            }
        }
    if (memcmp(kind, "RUN ", 4) == 0 && d->n_blocks != NO_LIMIT)
        for (uint64_t i = 0; i < d->n_blocks; i++) {
            snprintf(name, sizeof name, "Size%llu", (unsigned long long)i);
            if (!take_number(d, name, 4, &value)) return 0;
            snprintf(name, sizeof name, "Header_CRC%llu", (unsigned long long)i);
            if (!take(d, name, 4, FIELD_BYTES)) return 0;
        }
    return 1;
}

static int take_index_body(struct dump *d)
{
    uint64_t n_sections, n_metadata;
    if (!get_bytes(d, "Header", LMC_FILE_HEADER_SIZE)) return 0;
    print_counted(d->at - LMC_FILE_HEADER_SIZE, "Header", LMC_FILE_HEADER_SIZE);
    if (!take_number(d, "N_Sections", 4, &n_sections) ||
        !take_number(d, "N_Metadata", 4, &n_metadata) ||
        !take(d, "Snapshot_Fingerprint", 32, FIELD_BYTES))
        return 0;
    for (; n_sections; n_sections--)
        if (!take_entry(d)) return 0;
    for (; n_metadata; n_metadata--) {
        uint64_t key, value;
        if (!take_number(d, "Key_Size", 4, &key) || !take_number(d, "Value_Size", 4, &value) ||
            !take_text(d, "Key", key) || !take_text(d, "Value", value))
            return 0;
    }
    return 1;
}

/* -- sections -- */

/* What follows the fields of a body. */
static void take_rest(struct dump *d, const char *name)
{
    if (d->stops || d->left == 0) return;
    if (d->left > FIELD_MAX_BYTES) skip_bytes(d, name, d->left);
    else (void)take(d, name, (size_t)d->left, FIELD_BYTES);
}

static void check_extensions(struct dump *d, const unsigned char *bytes, size_t size, uint64_t at)
{
    uint64_t last = 0;
    for (size_t i = 0; i < size;) {
        uint64_t value[2] = {0, 0};
        for (unsigned field = 0; field < 2; field++) {
            unsigned shift = 0;
            do {
                if (i == size || shift > 63) {
                    fault(d, DUMP_DAMAGED, at, "the extension records are not complete");
                    return;
                }
                value[field] |= (uint64_t)(bytes[i] & 127) << shift;
                shift += 7;
            } while (bytes[i++] & 128);
        }
        if ((last && value[0] <= last) || value[1] > size - i) {
            fault(d, DUMP_DAMAGED, at, "the extension records do not ascend, or are not complete");
            return;
        }
        if (value[0] & 1)
            fault(d, DUMP_NEWER, at, "extension Tag %llu is unknown: of a newer version",
                  (unsigned long long)value[0]);
        last = value[0];
        i += (size_t)value[1];
    }
}

/* The extension records of a body whose fields were good; otherwise what is left of it. */
static void take_extra(struct dump *d, int is_good)
{
    const uint64_t start = d->at, size = d->left;
    if (!is_good || size > FIELD_MAX_BYTES)
        take_rest(d, is_good ? "Extra" : "the rest of the body");
    else if (size) {
        const unsigned char *bytes = take(d, "Extra", (size_t)size, FIELD_BYTES);
        if (bytes) check_extensions(d, bytes, (size_t)size, start);
    }
}

static void take_ancillary_body(struct dump *d)
{
    int is_text = 1;
    const uint64_t start = d->at;
    const size_t size = (size_t)d->left;
    const unsigned char *bytes;
    if (d->left > FIELD_MAX_BYTES) {
        skip_bytes(d, "Body", d->left);
        return;
    }
    bytes = get_bytes(d, "Body", size);
    for (size_t i = 0; i < size && bytes; i++) is_text &= bytes[i] >= 32 && bytes[i] < 127;
    if (bytes && size) print_field(start, "Body", bytes, size, is_text ? FIELD_TEXT : FIELD_BYTES);
}

static int is_kind(const char kind[4])
{
    for (int i = 0; i < 4; i++) {
        const int c = kind[i], letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (!letter && (i == 0 || !((c >= '0' && c <= '9') || c == ' '))) return 0;
    }
    return 1;
}

static void take_body(struct dump *d, const char kind[4])
{
    if (memcmp(kind, "FILE", 4) == 0) {
        print_heading("FILE body");
        take_extra(d, take_file_body(d));
    } else if (memcmp(kind, "RUN ", 4) == 0) {
        print_heading("RUN body");
        take_extra(d, take_run_body(d));
    } else if (memcmp(kind, "INDX", 4) == 0) {
        print_heading("INDX body");
        take_extra(d, take_index_body(d));
    } else take_ancillary_body(d);
}

/* Returns whether another section may follow. */
static int take_section(struct dump *d)
{
    const uint64_t start = d->at;
    const unsigned char *bytes;
    uint64_t number, size, head_crc, body_crc;
    uint32_t crc;
    char kind[4];
    print_heading("Section_Header");
    d->crc = 0;
    bytes = take(d, "Kind", 4, FIELD_TEXT);
    if (!bytes) return 0;
    memcpy(kind, bytes, 4);
    if (!take_number(d, "Number", 4, &number) || !take_number(d, "Body_Size", 8, &size)) return 0;
    crc = d->crc;
    bytes = take(d, "Head_CRC", 4, FIELD_BYTES);
    head_crc = bytes ? field_number(bytes, 4) : 0;
    bytes = take(d, "Body_CRC", 4, FIELD_BYTES);
    if (!bytes) return 0;
    body_crc = field_number(bytes, 4);
    check_crc(d, d->at - 8, "Head_CRC", head_crc, crc);
    if (!is_kind(kind) || size > (uint64_t)1 << 40) {
        fault(d, DUMP_DAMAGED, start, "this is no section; what follows is not read");
        return 0;
    }
    if (kind[0] >= 'A' && kind[0] <= 'Z' && memcmp(kind, "FILE", 4) != 0 &&
        memcmp(kind, "RUN ", 4) != 0 && memcmp(kind, "INDX", 4) != 0) {
        fault(d, DUMP_NEWER, start,
              "the section %.4s is unknown: of a newer version; what follows is not read", kind);
        return 0;
    }
    d->crc = 0;
    d->left = size;
    take_body(d, kind);
    if (!d->stops) take_rest(d, "the rest of the body");
    d->left = NO_LIMIT;
    if (!d->stops) check_crc(d, start + 20, "Body_CRC", body_crc, d->crc);
    if (memcmp(kind, "RUN ", 4) == 0) take_blocks(d, number);
    d->reached_index = !d->stops && memcmp(kind, "INDX", 4) == 0;
    return !d->stops && !d->reached_index;
}

/* -- header and trailer -- */

static void check_header(struct dump *d, uint64_t header_size, uint64_t flags, uint64_t reserved)
{
    if (header_size != LMC_FILE_HEADER_SIZE) fault(d, DUMP_DAMAGED, 10, "Header_Size is not 80");
    for (unsigned bit = 4; bit < 64; bit++)
        if (d->incompatible >> bit & 1)
            fault(d, DUMP_NEWER, 16, "Incompatible bit %u is unknown: %s", bit,
                  bit < 48 ? "of a newer version" : "an experiment");
    if (flags || reserved)
        fault(d, DUMP_NEWER, flags ? 12 : 68, "%s is not zero: of a newer version",
              flags ? "Flags" : "Reserved");
}

/* Whether the header would be right if its Format_Major were that of this version. */
static int is_header_of_this(struct dump *d, uint8_t minor)
{
    uint8_t header[LMC_FILE_HEADER_SIZE];
    lmc_snapshot_info info;
    memcpy(header, start_magic, 8);
    header[8] = LMC_FORMAT_MAJOR;
    header[9] = minor;
    return read_bytes(d, header + 10, sizeof header - 10) == sizeof header - 10 &&
           lmc_header_parse(header, sizeof header, &info) == LMC_OK;
}

/* Returns whether sections may follow. */
static int take_header(struct dump *d)
{
    const unsigned char *bytes;
    uint64_t major, minor, header_size, flags, compatible, depth, reserved;
    uint32_t crc;
    print_heading("File_Header");
    bytes = take(d, "Magic", 8, FIELD_BYTES);
    if (!bytes) return 0;
    if (memcmp(bytes + 1, start_magic + 1, 7) != 0 ||
        (bytes[0] != start_magic[0] && bytes[0] != 0x8C)) {
        fault(d, DUMP_DAMAGED, 0, "this is no LMC file");
        return 0;
    }
    if (bytes[0] == 0x8C) {
        fault(d, DUMP_NEWER, 0, "a file of a draft of the format: lmc 0.5 and before read it");
        return 0;
    }
    if (!take_number(d, "Format_Major", 1, &major) || !take_number(d, "Format_Minor", 1, &minor))
        return 0;
    if (major != LMC_FORMAT_MAJOR) {
        if (is_header_of_this(d, (uint8_t)minor))
            fault(d, DUMP_DAMAGED, 8, "Format_Major is not 1, but was, as Header_CRC tells");
        else fault(d, DUMP_NEWER, 8, "Format_Major is not 1: of another version");
        return 0;
    }
    if (!take_number(d, "Header_Size", 2, &header_size) || !take_number(d, "Flags", 4, &flags) ||
        !take_number(d, "Incompatible", 8, &d->incompatible) ||
        !take_number(d, "Compatible", 8, &compatible) ||
        !take(d, "Base_Fingerprint", 32, FIELD_BYTES) ||
        !take_number(d, "Chain_Depth", 4, &depth) || !take_number(d, "Reserved", 8, &reserved))
        return 0;
    crc = d->crc;
    bytes = take(d, "Header_CRC", 4, FIELD_BYTES);
    if (!bytes) return 0;
    check_crc(d, 76, "Header_CRC", field_number(bytes, 4), crc);
    check_header(d, header_size, flags, reserved);
    return 1;
}

static void take_trailer(struct dump *d)
{
    const uint64_t start = d->at;
    const unsigned char *bytes;
    uint64_t offset, size, total, major, value;
    uint32_t crc;
    print_heading("Trailer");
    d->crc = 0;
    if (!take_number(d, "Index_Offset", 8, &offset) || !take_number(d, "Index_Size", 8, &size) ||
        !take_number(d, "Total_Size", 8, &total) || !take_number(d, "Format_Major", 1, &major) ||
        !take_number(d, "Format_Minor", 1, &value) || !take_number(d, "Reserved", 2, &value))
        return;
    crc = d->crc;
    bytes = take(d, "Trailer_CRC", 4, FIELD_BYTES);
    if (!bytes) return;
    check_crc(d, start + 28, "Trailer_CRC", field_number(bytes, 4), crc);
    if (major != LMC_FORMAT_MAJOR || value)
        fault(d, DUMP_NEWER, start + 24, "%s of the trailer is of another version",
              value ? "Reserved" : "Format_Major");
    bytes = take(d, "End_Magic", 8, FIELD_BYTES);
    if (!bytes) return;
    if (memcmp(bytes, end_magic, sizeof end_magic) != 0)
        fault(d, DUMP_DAMAGED, start + 32, "End_Magic is wrong");
    if (offset + size != start || total != start + TRAILER_SIZE)
        fault(d, DUMP_DAMAGED, start, "the trailer does not say where the index and the file end");
    if (peek_byte(d) != EOF)
        fault(d, DUMP_DAMAGED, d->at, "bytes follow the end of the snapshot; they are not read");
}

static void dump_all(struct dump *d)
{
    if (!take_header(d)) return;
    while (take_section(d)) {
        const int next = peek_byte(d);
        if (next == EOF) {
            fault(d, DUMP_DAMAGED, d->at, "the file ends here, without an index");
            return;
        }
        if (next == 0xB1) {
            fault(d, DUMP_DAMAGED, d->at,
                  "a block that belongs to no run; what follows is not read");
            return;
        }
    }
    if (d->reached_index) take_trailer(d);
}

int dump_file(const char *path, const struct common *o)
{
    struct dump d;
    struct stat st;
    int code = CODE_OK;
    memset(&d, 0, sizeof d);
    d.name = is_dash(path) ? "(standard input)" : path;
    d.left = NO_LIMIT;
    d.is_verbose = o->verbosity >= 2;
    if (check_regular(path, 0) != CODE_OK) return CODE_ERROR;
    d.in = is_dash(path) ? stdin : fopen(path, "rb");
    if (!d.in || fstat(fileno(d.in), &st) != 0) code = fail_errno(d.name, errno, "cannot open it");
    else if (S_ISDIR(st.st_mode)) code = fail(CODE_ERROR, d.name, "is a directory; name a file");
    else {
        (void)setvbuf(d.in, NULL, _IOFBF, CHUNK);
        dump_all(&d);
        if (ferror(d.in)) code = fail_errno(d.name, errno, "cannot read it");
        else if (d.outcome != DUMP_GOOD)
            code = fail(d.outcome == DUMP_DAMAGED ? CODE_CORRUPT : CODE_ERROR, d.name,
                        "at byte %llu: %s", (unsigned long long)d.fault_at, d.fault);
    }
    if (d.in && d.in != stdin) fclose(d.in);
    free(d.buffer);
    free(d.files);
    return code;
}
