/* t_lmc.c - the implementation of lmc.h for all test programs of a build, with an allocator that
 * counts; tests of its private names. */
#include "t.h"

#ifdef FUZZ_WITH_TESTS /* one object also for the harnesses, which have their own heap */
static void *(*t_library_realloc)(void *, void *, size_t, size_t) = t_realloc;
#else
#define t_library_realloc t_realloc
#endif
/* vpexpandb of Bochs 2.7, which tests/avx512 runs on, is wrong if its operand is in memory: it
 * zeroes the elements that a merging mask leaves out. So there the operand is a register. */
#ifdef T_BOCHS
#include <immintrin.h>
#define _mm512_mask_expand_epi8(src, mask, a)                                                      \
    __extension__({                                                                                \
        __m512i t_operand = (a);                                                                   \
        __asm__("" : "+v"(t_operand));                                                             \
        (_mm512_mask_expand_epi8)(src, mask, t_operand);                                           \
    })
#endif

#define LMC_REALLOC(ptr, old_size, new_size) t_library_realloc(NULL, ptr, old_size, new_size)
#define LMC_IMPLEMENTATION
#include "../../lmc.h"
#include "../../include/lmc_salvage.h"
#include "../../include/lmc_extra.h"
#ifdef T_CUDA
#include "../../include/lmc_cuda.h"
#endif

#include "private_block.h"
#include "private_changing.h"
#include "private_kernels.h"
#include "private_trees.h"
#include "private_quantize.h"
#include "private_small.h"

#ifdef LMC_PTHREADS
unsigned t_default_workers(const char *root) { return lmc__default_workers(root); }
#endif

long t_passed, t_failed;
char t_about[240];
int t_long, t_quick, t_brief, t_kernels_only;

/* 16 bytes before each block hold its size, and 16 behind it (not where the address sanitizer
 * looks) must stay as they are. */
#ifdef T_ADDRESS_SANITIZER
#define T_BEHIND 0
#else
#define T_BEHIND 16
#endif

static void check_behind(const uint8_t *block, size_t size)
{
    size_t i;
    for (i = 0; i < T_BEHIND; i++) {
        if (block[16 + size + i] == 0xC5) continue;
        printf("FAILED: something was written behind a block of %lu bytes [%s]\n",
               (unsigned long)size, t_about);
        fflush(stdout);
        abort();
    }
}

void *t_realloc(void *user, void *ptr, size_t old_size, size_t new_size)
{
    t_heap *heap = (t_heap *)user;
    uint8_t *block = ptr ? (uint8_t *)ptr - 16 : NULL;
    size_t size = 0;
    if (block != NULL) {
        memcpy(&size, block, sizeof size);
        check_behind(block, size);
    }
    if (heap != NULL) heap->wrong_size += size != old_size;
    if (new_size == 0) {
        if (heap != NULL) {
            heap->live -= ptr != NULL;
            heap->bytes -= size;
        }
        free(block);
        return NULL;
    }
    if (heap != NULL && heap->calls++ == heap->fail_at) return NULL;
    if (new_size > SIZE_MAX - 16 - T_BEHIND) return NULL;
    block = (uint8_t *)realloc(block, 16 + new_size + T_BEHIND);
    if (block == NULL) return NULL;
    memcpy(block, &new_size, sizeof new_size);
    memset(block + 16 + new_size, 0xC5, T_BEHIND);
    if (heap == NULL) return block + 16;
    heap->live += ptr == NULL;
    heap->bytes += new_size - size;
    if (heap->bytes > heap->peak) heap->peak = heap->bytes;
    return block + 16;
}

uint16_t t_to_bf16(uint32_t v) { return (uint16_t)lmc__to_bf16(v); }
uint16_t t_to_f16(uint32_t v) { return (uint16_t)lmc__to_f16(v); }
size_t t_sample_place(uint32_t i, size_t n) { return lmc__sample_place(i, n); }
typedef char
    t_sample_is_the_same[T_SAMPLE_RUN == LMC__SAMPLE_RUN && T_SAMPLE_RUNS == LMC__SAMPLE_RUNS ? 1
                                                                                              : -1];

uint32_t t_log_point(const lmc_quantizer *quantizer, size_t group, uint32_t point)
{
    if (!quantizer->params.grid.step || quantizer->params.table_size) return 0;
    return ((uint32_t)quantizer->params.scales[group] << 16) +
           ((uint32_t)quantizer->params.grid.min + point) * quantizer->params.grid.step;
}

#if defined(_WIN32)
#include <fcntl.h>
#include <io.h>
/* Standard output as everywhere else: lines end with one byte. */
__attribute__((constructor)) static void t_write_bytes(void) { _setmode(1, _O_BINARY); }
#endif

#ifdef FUZZ_WITH_TESTS
#include "../../fuzz/lmc.c"
#endif
