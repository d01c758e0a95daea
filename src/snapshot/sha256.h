#pragma once
#include "base/platform.h"
#include "base/bytes.h"

/* SHA-256 (FIPS 180-4). For fingerprints its speed does not matter: it hashes only names, dtypes,
 * and 12 bytes for each leaf of 256 KiB.
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

/* Takes one block of 64 bytes into the state (FIPS 180-4, 6.2.2). The constants come from the cube
 * roots of the first 64 primes (4.2.2). v has the standard's variables a to h. Each of 64 rounds
 * moves v down by one element, which renames the variables, and makes two new values: a from all, e
 * from d. w has the 16 big-endian words of the block, and 48 words mixed from them. */
static void lmc__sha256_block(uint32_t state[8], const uint8_t block[64])
{
    static const uint32_t constants[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2};
    uint32_t w[64], all[64 + 8], *v = all + 64;
    int t;
#define LMC__ROTR(x, n) ((x) >> (n) | (x) << (32 - (n)))
    for (t = 0; t < 16; t++)
        w[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 |
               (uint32_t)block[4 * t + 2] << 8 | block[4 * t + 3];
    for (; t < 64; t++)
        w[t] = w[t - 16] + (LMC__ROTR(w[t - 15], 7) ^ LMC__ROTR(w[t - 15], 18) ^ w[t - 15] >> 3) +
               w[t - 7] + (LMC__ROTR(w[t - 2], 17) ^ LMC__ROTR(w[t - 2], 19) ^ w[t - 2] >> 10);
    memcpy(v, state, 8 * sizeof *v);
    for (t = 0; t < 64; t++, v--) {
        const uint32_t a = v[0], e = v[4];
        const uint32_t t1 = v[7] + (LMC__ROTR(e, 6) ^ LMC__ROTR(e, 11) ^ LMC__ROTR(e, 25)) +
                            ((e & v[5]) ^ (~e & v[6])) + constants[t] + w[t];
        const uint32_t t2 = (LMC__ROTR(a, 2) ^ LMC__ROTR(a, 13) ^ LMC__ROTR(a, 22)) +
                            ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        v[3] += t1;
        v[-1] = t1 + t2;
    }
    for (t = 0; t < 8; t++) state[t] += v[t];
#undef LMC__ROTR
}

/* Takes the next size bytes. Each is copied to sha->block, so whole blocks are no special case. */
static void lmc__sha256_update(lmc__sha256 *sha, const void *data, size_t size)
{
    const uint8_t *p = (const uint8_t *)data;
    while (size != 0) {
        size_t used = (size_t)(sha->size & 63), n = lmc__min(64 - used, size);
        memcpy(sha->block + used, p, n);
        sha->size += n;
        p += n;
        size -= n;
        if (used + n == 64) lmc__sha256_block(sha->state, sha->block);
    }
}

/* Takes a number as `size` bytes, little-endian. */
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
