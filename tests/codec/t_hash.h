/* t_hash.h - SHA-256 and CRC-32C written again, in a simple way, to check those of lmc.h. */
#ifndef T_HASH_H
#define T_HASH_H

#include <stdint.h>
#include <string.h>

static inline uint32_t t_crc32c(uint32_t crc, const void *data, size_t size)
{
    const uint8_t *p = (const uint8_t *)data;
    static uint32_t table[256];
    uint32_t i, k;
    if (table[1] == 0)
        for (i = 0; i < 256; i++) {
            uint32_t c = i;
            for (k = 0; k < 8; k++) c = c >> 1 ^ (c & 1 ? 0x82F63B78u : 0);
            table[i] = c;
        }
    for (crc = ~crc; size > 0; size--) crc = crc >> 8 ^ table[(crc ^ *p++) & 255];
    return ~crc;
}

typedef struct t_sha {
    uint32_t state[8];
    uint8_t block[64];
    uint64_t size;
} t_sha;

static inline void t_sha_begin(t_sha *sha)
{
    static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(sha->state, initial, sizeof initial);
    sha->size = 0;
}

static inline void t_sha_block(t_sha *sha)
{
    static const uint32_t k[64] = {
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
    uint32_t w[64], s[8], i;
#define T_ROR(x, r) ((x) >> (r) | (x) << (32 - (r)))
    for (i = 0; i < 16; i++)
        w[i] = (uint32_t)sha->block[4 * i] << 24 | (uint32_t)sha->block[4 * i + 1] << 16 |
               (uint32_t)sha->block[4 * i + 2] << 8 | sha->block[4 * i + 3];
    for (; i < 64; i++)
        w[i] = w[i - 16] + (T_ROR(w[i - 15], 7) ^ T_ROR(w[i - 15], 18) ^ w[i - 15] >> 3) +
               w[i - 7] + (T_ROR(w[i - 2], 17) ^ T_ROR(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(s, sha->state, sizeof s);
    for (i = 0; i < 64; i++) {
        uint32_t a = s[7] + (T_ROR(s[4], 6) ^ T_ROR(s[4], 11) ^ T_ROR(s[4], 25)) +
                     ((s[4] & s[5]) ^ (~s[4] & s[6])) + k[i] + w[i];
        uint32_t b = (T_ROR(s[0], 2) ^ T_ROR(s[0], 13) ^ T_ROR(s[0], 22)) +
                     ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += a;
        s[0] = a + b;
    }
#undef T_ROR
    for (i = 0; i < 8; i++) sha->state[i] += s[i];
}

static inline void t_sha_add(t_sha *sha, const void *data, size_t size)
{
    const uint8_t *p = (const uint8_t *)data;
    for (; size > 0; size--) {
        sha->block[sha->size++ & 63] = *p++;
        if ((sha->size & 63) == 0) t_sha_block(sha);
    }
}

static inline void t_sha_end(t_sha *sha, uint8_t digest[32])
{
    uint64_t bits = 8 * sha->size;
    uint8_t byte = 0x80;
    int i;
    do {
        t_sha_add(sha, &byte, 1);
        byte = 0;
    } while ((sha->size & 63) != 56);
    for (i = 56; i >= 0; i -= 8) {
        byte = (uint8_t)(bits >> i);
        t_sha_add(sha, &byte, 1);
    }
    for (i = 0; i < 32; i++) digest[i] = (uint8_t)(sha->state[i / 4] >> (24 - 8 * (i & 3)));
}

/* size bytes, little-endian */
static inline void t_sha_number(t_sha *sha, uint64_t number, unsigned size)
{
    uint8_t bytes[8];
    unsigned i;
    for (i = 0; i < size; i++) bytes[i] = (uint8_t)(number >> 8 * i);
    t_sha_add(sha, bytes, size);
}

#endif
