/* SPDX-License-Identifier: MIT */
#include "utf8.h"

uint32_t read_character(const char *text, size_t size, size_t *used)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *const p = (const unsigned char *)text;
    const size_t n = p[0] < 0x80 ? 1 : p[0] < 0xC2 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    uint32_t c = n == 1 ? p[0] : n == 2 ? p[0] & 31u : n == 3 ? p[0] & 15u : p[0] & 7u;
    *used = 0;
    if (n == 0 || n > size || p[0] > 0xF4) return 0;
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xC0) != 0x80) return 0;
        c = c << 6 | (p[i] & 63u);
    }
    if (c < least[n] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return 0;
    *used = n;
    return c;
}
