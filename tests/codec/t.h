/* t.h - what all test programs share: checks and counters, and buffers that end at a page that
 * cannot be accessed. The implementation of lmc.h is in t_lmc.c, which is compiled once and linked
 * to all of them. Its allocator counts calls, fails on request and checks sizes. */
#ifndef T_H
#define T_H

#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#endif
#if !defined(_WIN32) && !defined(__wasi__)
#define LMC_PTHREADS /* lmc_pool, file descriptors: tests/codec/test_api.c */
#ifndef __i386__     /* Debian's 32-bit headers alone lack what <errno.h> wants */
#define LMC_POSIX
#endif
#endif
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN /* not the headers that define common words */
#include <windows.h>
#undef near
#undef far
#elif !defined(__wasi__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#include "t_data.h"

/* -- allocation: the allocator of the library's options is that of a t_heap, or NULL -- */

typedef struct t_heap {
    long calls;      /* that allocate or grow */
    long fail_at;    /* the number of the call that fails; -1: none. All others work */
    long live;       /* blocks not yet freed */
    long wrong_size; /* calls whose old_size was not the size of the block */
    size_t bytes, peak;
    lmc_allocator allocator; /* set by t_allocator */
} t_heap;

#if defined(__SANITIZE_ADDRESS__)
#define T_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define T_ADDRESS_SANITIZER
#endif
#endif

/* What the library calls for memory (t_lmc.c). */
void *t_realloc(void *user, void *ptr, size_t old_size, size_t new_size);

static inline const lmc_allocator *t_allocator(t_heap *heap)
{
    if (heap == NULL) return NULL;
    heap->allocator.reallocate = t_realloc;
    heap->allocator.user = heap;
    return &heap->allocator;
}

#include "../../include/lmc_extra.h"

#ifdef LMC_PTHREADS
/* lmc_default_workers with another directory for /proc and /sys. */
unsigned t_default_workers(const char *root);
#endif

/* -- checks -- */

extern long t_passed, t_failed;
extern char t_about[240]; /* what is being tried: printed with a failure */
/* How much is tried: more with --long; less with LMC_TEST_QUICK, for emulators and sanitizers; a
 * tenth of that with LMC_TEST_BRIEF, for `make check`, which sets t_quick, too; and half of that,
 * only for blocks and tensors, with LMC_TEST_BRIEF=kernels, for an emulated tier. */
extern int t_long, t_quick, t_brief, t_kernels_only;

static inline void t_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(t_about, sizeof t_about, format, args);
    va_end(args);
}

static inline int t_check(int ok, const char *what, const char *got, const char *file, int line)
{
    if (ok) {
        t_passed++;
    } else if (t_failed++ < 30) {
        printf("%s:%d: FAILED %s%s%s [%s]\n", file, line, what, *got ? " gave " : "", got, t_about);
        fflush(stdout);
    }
    return ok;
}

#define CHECK(condition) t_check((condition) ? 1 : 0, #condition, "", __FILE__, __LINE__)
#define CHECK_STATUS(call, want) t_check_status(call, want, #call " == " #want, __FILE__, __LINE__)

static inline int t_check_status(enum lmc_status got, enum lmc_status want, const char *what,
                                 const char *file, int line)
{
    return t_check(got == want, what, lmc_status_name(got), file, line);
}

static inline int t_is_set(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && *value != '\0' && *value != '0';
}

/* First line of every main. The argument --tiers prints the tiers of this build on this machine,
 * the best one last, and ends the program. */
static inline void t_begin(int argc, char **argv)
{
    const enum lmc_tier best = lmc_tier_current();
    const char *tier = getenv("LMC_TEST_TIER");
    int i;
    if (argc > 1 && strcmp(argv[1], "--tiers") == 0) {
        for (i = 0; lmc_tier_name((enum lmc_tier)i); i++)
            if (i != (int)best && lmc_tier_is_available((enum lmc_tier)i))
                printf("%s\n", lmc_tier_name((enum lmc_tier)i));
        printf("%s\n", lmc_tier_name(best));
        exit(0);
    }
    t_long = argc > 1 && strcmp(argv[1], "--long") == 0;
    t_brief = t_is_set("LMC_TEST_BRIEF");
    t_kernels_only = t_brief && strcmp(getenv("LMC_TEST_BRIEF"), "kernels") == 0;
    t_quick = t_brief || t_is_set("LMC_TEST_QUICK");
    if (tier == NULL) return;
    for (i = 0; lmc_tier_name((enum lmc_tier)i); i++)
        if (strcmp(tier, lmc_tier_name((enum lmc_tier)i)) == 0) break;
    if (!lmc_tier_name((enum lmc_tier)i)) {
        printf("LMC_TEST_TIER=%s: there is no such tier\n0 passed, 1 failed\n", tier);
        exit(2);
    }
    lmc_tier_limit((enum lmc_tier)i);
    CHECK(lmc_tier_current() == (enum lmc_tier)i);
}

/* Last line of every main. */
static inline int t_end(void)
{
    printf("%ld passed, %ld failed\n", t_passed, t_failed);
    return t_failed != 0 || t_passed == 0;
}

/* -- little-endian numbers -- */

static inline uint32_t t_load16(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }
static inline uint32_t t_load32(const uint8_t *p) { return t_load16(p) | t_load16(p + 2) << 16; }

static inline void t_store16(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static inline void t_store32(uint8_t *p, uint32_t v)
{
    t_store16(p, v);
    t_store16(p + 2, v >> 16);
}

/* -- what is private to lmc.h -- */

/* The tests of the kernels of every tier, of trees, of quantisers' kernels, and of the workspace
 * (private_*.h). */
void t_test_kernels(void);
void t_test_small(void);
void t_test_trees(void);
void t_test_quantizing_kernels(void);
void t_test_tables(void);
void t_test_workspace(void);
/* From now on the library's kernels call on_kernel before and after each of their steps; NULL ends
 * that. Not for threads. */
void t_call_in_kernels(void (*on_kernel)(void *user), void *user);

uint16_t t_to_bf16(uint32_t v);
uint16_t t_to_f16(uint32_t v);
/* The bits of a point of a quantiser's logarithmic grid, in that group; 0 if it has a table or a
 * linear grid. */
uint32_t t_log_point(const lmc_quantizer *quantizer, size_t group, uint32_t point);
/* The first element of run i of the sample that an encoder takes from a block of n elements; it has
 * T_SAMPLE_RUNS runs of T_SAMPLE_RUN elements. */
size_t t_sample_place(uint32_t i, size_t n);
enum { T_SAMPLE_RUN = 64, T_SAMPLE_RUNS = 128 };

/* -- guarded buffers: the pages on both sides fault (not on WASI, which has no pages) -- */

typedef struct t_guard {
    uint8_t *data;
    size_t cap;
} t_guard;

static inline t_guard t_new_guard(size_t cap)
{
#ifdef __wasi__
    t_guard guard;
    guard.cap = cap + 4096;
    guard.data = (uint8_t *)malloc(guard.cap);
    if (guard.data == NULL) abort();
#elif defined(_WIN32)
    t_guard guard;
    guard.cap = (cap + 4095) / 4096 * 4096 + 4096;
    guard.data = (uint8_t *)VirtualAlloc(NULL, guard.cap + 2 * 4096, MEM_RESERVE, PAGE_NOACCESS);
    if (guard.data == NULL ||
        VirtualAlloc(guard.data + 4096, guard.cap, MEM_COMMIT, PAGE_READWRITE) == NULL) {
        printf("t_new_guard: error %lu\n", (unsigned long)GetLastError());
        exit(1);
    }
    guard.data += 4096;
#else
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    t_guard guard;
    guard.cap = (cap + page - 1) / page * page + page;
    guard.data =
        (uint8_t *)mmap(NULL, guard.cap + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (guard.data == MAP_FAILED ||
        mprotect(guard.data + page, guard.cap, PROT_READ | PROT_WRITE) != 0) {
        perror("t_new_guard");
        exit(1);
    }
    guard.data += page;
#endif
    return guard;
}

/* size bytes that end where the guard begins: the byte behind the last one faults, and all
 * alignments occur. */
static inline uint8_t *t_tail(const t_guard *guard, size_t size)
{
    if (size > guard->cap) {
        printf("t_tail: %lu bytes of %lu\n", (unsigned long)size, (unsigned long)guard->cap);
        abort();
    }
    return guard->data + guard->cap - size;
}

static inline void *t_copy(const void *data, size_t size)
{
    void *copy = malloc(size ? size : 1);
    if (copy == NULL) abort();
    if (size) memcpy(copy, data, size);
    return copy;
}

#endif
