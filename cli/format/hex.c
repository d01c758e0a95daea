/* SPDX-License-Identifier: MIT */
#include "hex.h"

void format_hex(char *text, const void *data, size_t size)
{
    text[0] = 0;
    for (size_t i = 0; i < size; i++)
        snprintf(text + 2 * i, 3, "%02x", ((const unsigned char *)data)[i]);
}

void format_fingerprint(char text[2 * LMC_FINGERPRINT_SIZE + 1], const uint8_t *fingerprint)
{
    format_hex(text, fingerprint, LMC_FINGERPRINT_SIZE);
}

uint64_t hash_bytes(uint64_t hash, const void *data, size_t size) /* FNV-1a */
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001B3u;
    return hash;
}

int parse_fingerprint(uint8_t *fingerprint, const char *text)
{
    char again[2 * LMC_FINGERPRINT_SIZE + 1];
    for (size_t i = 0; i < LMC_FINGERPRINT_SIZE && strlen(text) == 2 * LMC_FINGERPRINT_SIZE; i++) {
        unsigned byte = 0;
        if (sscanf(text + 2 * i, "%2x", &byte) != 1) return 0;
        fingerprint[i] = (uint8_t)byte;
    }
    format_fingerprint(again, fingerprint);
    return strcmp(again, text) == 0;
}
