#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/dispatch.h"

/* SHA-256 (FIPS 180-4). For fingerprints its speed does not matter: it hashes only names, dtypes,
 * and 12 bytes for each leaf of 256 KiB. Hashes of content are of all bytes.
 *
 *     state   the digest of all whole blocks of 64 bytes so far
 *     block   the bytes after these blocks: size % 64 bytes
 *     size    number of bytes so far
 *
 * A copy of the struct can take more bytes, independently of the original. */
typedef struct lmc__sha256 {
    uint32_t state[8];
    uint64_t size;
    uint8_t block[64];
} lmc__sha256;

/* The initial state: the first 32 bits after the binary point of the square roots of the first 8
 * primes (FIPS 180-4, 5.3.3). */
static void lmc__sha256_init(lmc__sha256 *sha)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(sha->state, start, sizeof start);
    sha->size = 0;
}

/* Takes the next size bytes: whole blocks from where they are, others by way of sha->block. */
static void lmc__sha256_update(lmc__sha256 *sha, const void *data, size_t size)
{
    const lmc__kernels *const k = lmc__get_kernels();
    const uint8_t *p = (const uint8_t *)data;
    while (size != 0) {
        const size_t used = (size_t)(sha->size & 63);
        size_t n = lmc__min(64 - used, size);
        if (n == 64) {
            n = size & ~(size_t)63;
            k->sha256(sha->state, p, n / 64);
        } else {
            memcpy(sha->block + used, p, n);
            if (used + n == 64) k->sha256(sha->state, sha->block, 1);
        }
        sha->size += n;
        p += n;
        size -= n;
    }
}

static void lmc__sha256_number(lmc__sha256 *sha, uint64_t number, size_t size)
{
    uint8_t bytes[8];
    lmc__store64(bytes, number);
    lmc__sha256_update(sha, bytes, size);
}

/* Takes the length of the text, as a number of `size` bytes, and then the text. */
static void lmc__sha256_text(lmc__sha256 *sha, const char *text, size_t size)
{
    lmc__sha256_number(sha, strlen(text), size);
    lmc__sha256_update(sha, text, strlen(text));
}

/* Pads the message to whole blocks, as the standard says (5.1.1), and writes the digest:
 *     | message | 80 | zeros | bits of the message, 8 bytes |
 *                             ^ 56 bytes into the last block
 *
 * With `used` bytes in the block, the padding has 1 + (119 - used) % 64 bytes. So the length begins
 * at byte used + 120 - used, which is 56 modulo 64, even if it needs one more block. The number of
 * bits is taken first, because padding changes size. */
static void lmc__sha256_finish(lmc__sha256 *sha, uint8_t digest[32])
{
    static const uint8_t pad[64] = {0x80};
    const uint64_t bits = sha->size * 8;
    uint8_t end[8];
    int i;
    lmc__sha256_update(
        sha, pad,
        1 + (size_t)((119 - (sha->size & 63)) & 63)); /* up to 8 bytes before a block's end */
    for (i = 0; i < 8; i++) end[i] = (uint8_t)(bits >> (56 - 8 * i));
    lmc__sha256_update(sha, end, 8);
    for (i = 0; i < 32; i++) digest[i] = (uint8_t)(sha->state[i / 4] >> (24 - 8 * (i % 4)));
}

/* Ends a digest and keeps only its first bytes: a fingerprint (spec 7). */
static void lmc__finish_fingerprint(lmc__sha256 *sha, uint8_t fingerprint[LMC_FINGERPRINT_SIZE])
{
    uint8_t digest[32];
    lmc__sha256_finish(sha, digest);
    memcpy(fingerprint, digest, LMC_FINGERPRINT_SIZE);
}
