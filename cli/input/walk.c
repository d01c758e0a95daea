/* SPDX-License-Identifier: MIT */

#include "archive.h"
#include "../../formats/container_check.h"
#include "../sys/io.h"

const uint8_t start_magic[8] = {0x95, 'L', 'M', 'C', 0x0D, 0x0A, 0x1A, 0x0A};
static const uint8_t end_magic[8] = {0x94, 'L', 'M', 'C', 0x0D, 0x0A, 0x1A, 0x0A};

#define SECTION_HEADER_SIZE 20u
#define BLOCK_HEADER_SIZE 24u
#define TRAILER_SIZE 40u
#define FINGERPRINT_AT 64u /* of the snapshot, in the body of the INDX section (spec 8.2) */
#define BLOCK_SYNC 0xB2    /* no Kind of a section begins with it */
#define BLOCK_PREDICTED 4  /* in Coding */
#define PREDICTION_BASE 1

int begins_as_snapshot(int fd, int *error)
{
    uint8_t bytes[sizeof start_magic];
    const int result = read_at(fd, 0, bytes, sizeof bytes); /* -1: the file is shorter */
    *error = result > 0 ? result : 0;
    return result == 0 && memcmp(bytes, start_magic, sizeof bytes) == 0;
}

/* The field Prediction of a RUN, behind two varints (spec 4.2). Negative: it cannot be read. */
static int read_prediction(int fd, uint64_t at)
{
    uint8_t body[24];
    unsigned i = 0;
    if (read_at(fd, at, body, sizeof body) != 0) return -1;
    for (unsigned n = 0; n < 2 && i < sizeof body; i++) n += !(body[i] & 0x80);
    return i < sizeof body ? body[i] : -1;
}

/* Bytes that the block restores (spec 5). */
static uint64_t size_of_block(const uint8_t *header)
{
    return container_number(header + 4, 4) * header[1];
}

/* Finds the index; adds up blocks on the way. 0: there is no index, or not all can be read. */
static uint64_t walk_to_index(int fd, struct base_use *use)
{
    uint8_t header[BLOCK_HEADER_SIZE]; /* block headers are longer than heads of sections */
    uint64_t at = LMC_FILE_HEADER_SIZE;
    int prediction = 0;
    memset(use, 0, sizeof *use);
    while (at <= INT64_MAX && read_at(fd, at, header, sizeof header) == 0) {
        if (header[0] == BLOCK_SYNC) {
            const uint64_t size = size_of_block(header);
            use->size += size;
            if ((header[2] & BLOCK_PREDICTED) && prediction == PREDICTION_BASE)
                use->predicted_size += size;
            at += BLOCK_HEADER_SIZE + container_number(header + 8, 4);
            continue;
        }
        if (memcmp(header, "INDX", 4) == 0) return at;
        at += SECTION_HEADER_SIZE;
        if (memcmp(header, "RUN ", 4) == 0) prediction = read_prediction(fd, at);
        if (prediction < 0) break; /* it cannot be read */
        if (container_number(header + 4, 8) > INT64_MAX - at) break;
        at += container_number(header + 4, 8);
    }
    return 0;
}

/* Opens a regular file only: opening a FIFO would wait. */
static int open_regular(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
}

/* Whether the trailer of a snapshot is before `end`. */
static int is_trailer_before(int fd, uint64_t end)
{
    uint8_t trailer[TRAILER_SIZE];
    return read_at(fd, end - TRAILER_SIZE, trailer, sizeof trailer) == 0 &&
           memcmp(trailer + TRAILER_SIZE - sizeof end_magic, end_magic, sizeof end_magic) == 0 &&
           container_number(trailer + 16, 8) == end;
}

int ends_as_snapshot(const char *path)
{
    struct stat st;
    const int fd = open_regular(path);
    const int result = fd >= 0 && fstat(fd, &st) == 0 && st.st_size >= (off_t)TRAILER_SIZE &&
                       is_trailer_before(fd, (uint64_t)st.st_size);
    if (fd >= 0) close(fd);
    return result;
}

int probe_snapshot(const char *path, uint8_t *fingerprint, uint8_t *wanted, int *is_delta)
{
    uint8_t header[LMC_FILE_HEADER_SIZE], index[8];
    struct stat st;
    const int fd = open_regular(path);
    int is_one = fd >= 0 && fstat(fd, &st) == 0 && st.st_size >= (off_t)TRAILER_SIZE &&
                 is_trailer_before(fd, (uint64_t)st.st_size) &&
                 read_at(fd, 0, header, sizeof header) == 0 &&
                 parse_header(header, sizeof header, wanted, is_delta) == 0 &&
                 read_at(fd, (uint64_t)st.st_size - TRAILER_SIZE, index, sizeof index) == 0;
    is_one = is_one &&
             container_number(index, 8) <= INT64_MAX - SECTION_HEADER_SIZE - FINGERPRINT_AT &&
             read_at(fd, container_number(index, 8) + SECTION_HEADER_SIZE + FINGERPRINT_AT,
                     fingerprint, LMC_FINGERPRINT_SIZE) == 0;
    if (fd >= 0) close(fd);
    return is_one ? 0 : -1;
}

int measure_base_use(struct base_use *use, int fd) { return walk_to_index(fd, use) ? 0 : -1; }

uint64_t find_snapshot_end(const char *path)
{
    struct base_use use;
    uint8_t header[SECTION_HEADER_SIZE];
    const int fd = open_regular(path);
    const uint64_t index = fd >= 0 ? walk_to_index(fd, &use) : 0;
    uint64_t end = 0;
    if (index && read_at(fd, index, header, sizeof header) == 0 &&
        container_number(header + 4, 8) <= INT64_MAX - index - SECTION_HEADER_SIZE - TRAILER_SIZE) {
        const uint64_t at =
            index + SECTION_HEADER_SIZE + container_number(header + 4, 8) + TRAILER_SIZE;
        if (is_trailer_before(fd, at)) end = at;
    }
    if (fd >= 0) close(fd);
    return end;
}
