/* SPDX-License-Identifier: MIT */
#include "apply_patches.h"

#include <stdint.h>
#include <string.h>

#include "../sys/memory.h"
#include "apply_place.h"

#define PATCH_HEADER_SIZE 24u

void store_number(unsigned char *p, uint64_t value, unsigned size)
{
    for (unsigned i = 0; i < size; i++) p[i] = (unsigned char)(value >> (8 * i));
}

uint64_t load_number(const unsigned char *p, unsigned size)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < size; i++) value |= (uint64_t)p[i] << (8 * i);
    return value;
}

static size_t count_masks(size_t size) { return (size + 511) / 512; }

int next_patch(const struct patches *list, size_t *at, struct patch *p)
{
    const unsigned char *head;
    if (*at == list->size) return 0;
    head = list->data + *at;
    p->file_number = (size_t)load_number(head, 4);
    p->n_words = (size_t)load_number(head + 4, 4);
    p->offset = load_number(head + 8, 8);
    p->size = (size_t)load_number(head + 16, 4);
    p->masks = head + PATCH_HEADER_SIZE;
    p->words = p->masks + 8 * count_masks(p->size);
    *at += PATCH_HEADER_SIZE + 8 * (count_masks(p->size) + p->n_words);
    return 1;
}

/* The mask of the 64 words that differ; these go to *words, which moves behind them, and of which
 * one more may be written. No branches: where changes are cannot be foreseen. */
static uint64_t compare_words(const unsigned char *from, const unsigned char *to,
                              unsigned char **words)
{
    unsigned char *word = *words;
    uint64_t mask = 0;
    for (unsigned k = 0; k < 64; k++) {
        uint64_t old, new_one;
        memcpy(&old, from + 8 * k, 8);
        memcpy(&new_one, to + 8 * k, 8);
        memcpy(word, &new_one, 8);
        word += old != new_one ? 8 : 0;
        mask |= (uint64_t)(old != new_one) << k;
    }
    *words = word;
    return mask;
}

void add_patch(struct patches *list, size_t file_number, uint64_t offset, const unsigned char *from,
               const unsigned char *to, size_t size)
{
    const size_t n_masks = count_masks(size), most = PATCH_HEADER_SIZE + n_masks * (8 + 512) + 8;
    unsigned char *head, *mask, *words, *end, last[2][512];
    if (list->room - list->size < most) {
        list->room += list->room / 2 + most;
        list->data = (unsigned char *)resize(list->data, list->room, 1);
    }
    head = list->data + list->size;
    mask = head + PATCH_HEADER_SIZE;
    words = end = mask + 8 * n_masks;
    for (; size >= 512; size -= 512, from += 512, to += 512, mask += 8)
        store_number(mask, compare_words(from, to, &end), 8);
    if (size) {
        memset(last, 0, sizeof last);
        memcpy(last[0], from, size);
        memcpy(last[1], to, size);
        store_number(mask, compare_words(last[0], last[1], &end), 8);
    }
    if (end == words) return;
    size += 512 * (size_t)(mask - head - PATCH_HEADER_SIZE) / 8;
    store_number(head, file_number, 4);
    store_number(head + 4, (uint64_t)(end - words) / 8, 4);
    store_number(head + 8, offset, 8);
    store_number(head + 16, size, 4);
    store_number(head + 20, 0, 4);
    list->size = (size_t)(end - list->data);
}

static unsigned find_lowest_bit(uint64_t mask)
{
#if defined(__GNUC__)
    return (unsigned)__builtin_ctzll(mask);
#else
    unsigned n = 0;
    for (; !(mask & 1); mask >>= 1) n++;
    return n;
#endif
}

void use_patch(const struct patch *p, uint64_t offset, unsigned char *data, size_t size)
{
    const int is_within = offset <= p->offset && p->offset + p->size <= offset + size;
    const unsigned char *word = p->words;
    for (size_t i = 0; i < count_masks(p->size); i++)
        for (uint64_t mask = load_number(p->masks + 8 * i, 8); mask; mask &= mask - 1, word += 8) {
            uint64_t at = p->offset + 512 * i + 8 * find_lowest_bit(mask),
                     end = p->offset + p->size;
            if (is_within && end - at >= 8) memcpy(data + (size_t)(at - offset), word, 8);
            else
                for (size_t k = 0; k < 8 && at + k < end; k++)
                    if (at + k >= offset && at + k - offset < size) data[at + k - offset] = word[k];
        }
}

static unsigned count_bits(uint64_t mask)
{
    unsigned n = 0;
    for (; mask; mask &= mask - 1) n++;
    return n;
}

int are_patches(const struct patches *list, const struct place *p, size_t n_files)
{
    for (size_t at = 0; at < list->size;) {
        const unsigned char *head = list->data + at;
        size_t left = list->size - at, size, n_words, n_masks, n = 0;
        const lmc_file *file;
        if (left < PATCH_HEADER_SIZE || load_number(head, 4) >= n_files ||
            load_number(head + 20, 4) != 0)
            return 0;
        file = p->get_file(p->user, (size_t)load_number(head, 4));
        n_words = (size_t)load_number(head + 4, 4);
        size = (size_t)load_number(head + 16, 4);
        n_masks = count_masks(size);
        if (file->kind != LMC_FILE_REGULAR || size == 0 || size > PATCH_SIZE ||
            load_number(head + 8, 8) > file->size || file->size - load_number(head + 8, 8) < size ||
            n_words > 64 * n_masks || left - PATCH_HEADER_SIZE < 8 * (n_masks + n_words))
            return 0;
        for (size_t i = 0; i < n_masks; i++) {
            uint64_t mask = load_number(head + PATCH_HEADER_SIZE + 8 * i, 8);
            size_t n_here = (size - 512 * i + 7) / 8;
            if (n_here < 64 && mask >> n_here) return 0;
            n += count_bits(mask);
        }
        if (n != n_words) return 0;
        at += PATCH_HEADER_SIZE + 8 * (n_masks + n_words);
    }
    return 1;
}
