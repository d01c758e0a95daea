/* t_lmc.c - the implementation of lmc.h for all test programs of a build, with an allocator that counts; the tests of what is private to it. */
#include "t.h"

#define LMC_REALLOC(user, ptr, old_size, new_size) t_realloc(user, ptr, old_size, new_size)
#define LMC_IMPLEMENTATION
#include "../lmc.h"

#include "private_kernels.h"
#include "private_trees.h"
#include "private_quantise.h"

long t_passed, t_failed;
char t_about[240];
int t_quick, t_long;

void *t_realloc(void *user, void *ptr, size_t old_size, size_t new_size)
{
    t_heap *heap = (t_heap *)user;
    uint8_t *block = ptr ? (uint8_t *)ptr - 16 : NULL; /* 16 bytes before each block hold its size */
    if (heap == NULL) {
        if (new_size != 0) return realloc(ptr, new_size);
        free(ptr);
        return NULL;
    }
    if (block != NULL) {
        size_t size;
        memcpy(&size, block, sizeof size);
        heap->wrong_size += size != old_size;
        old_size = size;
    } else {
        heap->wrong_size += old_size != 0;
        old_size = 0;
    }
    if (new_size == 0) {
        heap->live -= ptr != NULL;
        heap->bytes -= old_size;
        free(block);
        return NULL;
    }
    if (heap->calls++ == heap->fail_at || new_size > SIZE_MAX - 16) return NULL;
    block = (uint8_t *)realloc(block, new_size + 16);
    if (block == NULL) return NULL;
    memcpy(block, &new_size, sizeof new_size);
    heap->live += ptr == NULL;
    heap->bytes += new_size - old_size;
    if (heap->bytes > heap->peak) heap->peak = heap->bytes;
    return block + 16;
}

uint16_t t_to_bf16(uint32_t v) { return (uint16_t)lmc__to_bf16(v); }
uint16_t t_to_f16(uint32_t v) { return (uint16_t)lmc__to_f16(v); }
size_t t_sample_place(uint32_t i, size_t n) { return lmc__sample_place(i, n); }
typedef char t_sample_is_the_same[T_SAMPLE_RUN == LMC__SAMPLE_RUN && T_SAMPLE_RUNS == LMC__SAMPLE_RUNS ? 1 : -1];

uint32_t t_log_point(const lmc_quantizer *quantizer, size_t group, uint32_t point)
{
    if (!quantizer->grid.step || quantizer->table_size) return 0;
    return ((uint32_t)quantizer->scales[group] << 16) + ((uint32_t)quantizer->grid.min + point) * quantizer->grid.step;
}

#if defined(_WIN32)
#include <fcntl.h>
#include <io.h>
/* Standard output as everywhere else: lines end with one byte. */
__attribute__((constructor)) static void t_write_bytes(void) { _setmode(1, _O_BINARY); }
#endif
