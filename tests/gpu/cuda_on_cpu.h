/* SPDX-License-Identifier: MIT
 * Runs the text of a CUDA kernel, as it is, on a CPU. A thread of the GPU is a fiber; groups run
 * one after another, in one thread of the CPU. Fibers change only where threads may wait for each
 * other, and who goes on then is drawn by chance (cpu::seed). Shared memory is garbage at the start
 * of a group.
 *
 *     #include <system headers>        before the shim: its macros have names that those use
 *     #include "cuda_on_cpu.h"
 *     #include "decode.cu"
 *     cpu::launch(groups, threads, shared, [&] { kernel(argument, ...); });
 *     cpu::launch(groups, threads, shared, kernel, parameters);   as cuLaunchKernel has them
 *
 * and cuda_on_cpu.cpp is linked. With AddressSanitizer it finds accesses outside of memory, shared
 * memory included. Compiled with -fsanitize=thread (only compiled, not linked so) and linked with
 * race_check.cpp, the program stops at two accesses to one byte that have no order: see there.
 *
 * What the GPU leaves undefined stops the program, with the places: lanes that wait for a warp
 * primitive which others of its mask never reach, or a barrier of the group that not all lanes of a
 * warp reach at one place. A thread must not wait for another by reading memory in a loop.
 *
 * Only one thread of the CPU may be here at a time. A kernel needs no change but for what NVRTC
 * alone knows (inline PTX, pragmas); LMC_ON_CPU is defined. */
#pragma once
#ifndef LMC_ON_CPU
#define LMC_ON_CPU
#endif
#include <stddef.h>
#include <stdint.h>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __shared__ /* extern __shared__ uint4 lmc_shared_memory[]: all that is supported */
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
struct uint3 {
    u32 x, y, z;
};
struct alignas(8) uint2 {
    u32 x, y;
};
struct alignas(16) uint4 {
    u32 x, y, z, w;
};
static inline uint2 make_uint2(u32 x, u32 y) { return {x, y}; }
static inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }

extern uint3 threadIdx, blockIdx, blockDim,
    gridDim; /* of the thread that runs; all of one dimension */
enum { warpSize = 32 };

namespace cpu
{
enum { MAX_THREADS = 1024, MAX_SHARED = 227 << 10 };

/* A place of the text where threads wait: each expansion of a macro below is one. */
struct place {
    const char *name; /* FILE:LINE */
    int id;           /* from 0 on, in the order of the text, in each source file */
};

/* -- for a kernel: what the macros below use -- */
enum operation { SYNC, SHUFFLE, UP, DOWN, XOR, BALLOT, ALL, ANY, MATCH };
u64 warp(operation, u32 mask, u64 value, u32 argument, const place &);
u32 group(operation, u32 value, const place &); /* BALLOT: the number of threads with value != 0 */
void atomic(const void *, size_t); /* an atomic access comes, of the function's caller */
[[noreturn]] void stop(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* -- for tests -- */
extern u32 seed;     /* the next launch's order of threads, and garbage; each launch changes it */
extern int left_out; /* id of a barrier (__syncthreads or __syncwarp) that is left out; -1: none */
extern const char *why;                   /* what the kernel said last by WHY */
extern u64 count[32];                     /* what the kernel counted by LMC_COUNT */
extern u64 n_barriers, n_warp_operations; /* of threads, so far */
/* Loads and stores of threads so far: [SHARED or GLOBAL][1: stores]. By race_check.cpp. */
enum { SHARED, GLOBAL };
extern u64 n_accesses[2][2];
extern u8 *const shared_memory; /* what a kernel has of it, in place of lmc_shared_memory */
extern size_t shared_size;      /* as the launch says */
/* The barriers that were reached, by their ids; name is NULL for one that was not. */
enum { MAX_PLACES = 1024 };
extern place barriers[MAX_PLACES];

/* -- for race_check.cpp -- */
/* `now` grows by one when threads go on from a barrier; the rest is what it was then. So an access
 * at `now` == t comes before that barrier if t is less than what stands here. */
struct times {
    u32 now, launch, run /* of the group, from its start */, barrier, warp[MAX_THREADS / 32];
};
extern times time;
extern int running; /* the thread that runs, or -1 */
extern void (*on_atomic)(const void *, size_t, const void *caller);
bool is_own(const void *); /* of a thread, or of what a kernel counts and says here */

void launch(u32 n_groups, u32 n_threads, size_t shared, void (*)(void *), void *);

template <class F> void launch(u32 n_groups, u32 n_threads, size_t shared, F f)
{
    launch(n_groups, n_threads, shared, [](void *p) { (*static_cast<F *>(p))(); }, &f);
}

template <class... A, size_t... I>
void call(void (*kernel)(A...), void *const *parameters, std::index_sequence<I...>)
{
    kernel(*static_cast<A *>(parameters[I])...);
}
/* parameters[i]: the address of argument i */
template <class... A>
void launch(u32 n_groups, u32 n_threads, size_t shared, void (*kernel)(A...),
            void *const *parameters)
{
    launch(n_groups, n_threads, shared,
           [&] { call(kernel, parameters, std::index_sequence_for<A...>()); });
}
} // namespace cpu

extern "C" uint4 lmc_shared_memory[cpu::MAX_SHARED / sizeof(uint4)];

#define LMC_COUNT(i, n) (cpu::count[i] += (n))
#define LMC_TEXT_OF(x) #x
#define LMC_TEXT(x) LMC_TEXT_OF(x)
#define LMC_PLACE (cpu::place{__FILE__ ":" LMC_TEXT(__LINE__), __COUNTER__})

/* -- barriers: they alone order accesses to memory -- */
#define __syncthreads() ((void)cpu::group(cpu::SYNC, 0, LMC_PLACE))
#define __syncthreads_count(v) ((int)cpu::group(cpu::BALLOT, (v) != 0, LMC_PLACE))
#define __syncthreads_or(v) ((int)cpu::group(cpu::ANY, (v) != 0, LMC_PLACE))
#define __syncthreads_and(v) ((int)cpu::group(cpu::ALL, (v) != 0, LMC_PLACE))
#define __syncwarp() ((void)cpu::warp(cpu::SYNC, 0xFFFFFFFFu, 0, 0, LMC_PLACE))

/* -- warp primitives: values without an order of memory (CUDA C++ Programming Guide, warp shuffle,
 * vote and match functions) -- */
#define __ballot_sync(mask, v) ((u32)cpu::warp(cpu::BALLOT, mask, (v) != 0, 0, LMC_PLACE))
#define __all_sync(mask, v) ((int)cpu::warp(cpu::ALL, mask, (v) != 0, 0, LMC_PLACE))
#define __any_sync(mask, v) ((int)cpu::warp(cpu::ANY, mask, (v) != 0, 0, LMC_PLACE))
#define __match_any_sync(mask, v) ((u32)cpu::warp(cpu::MATCH, mask, v, 0, LMC_PLACE))
#define LMC_SHUFFLE(op, mask, v, arg)                                                              \
    ((decltype(+(v)))cpu::warp(cpu::op, mask, (u64)(v), (u32)(arg), LMC_PLACE))
#define __shfl_sync(mask, v, lane) LMC_SHUFFLE(SHUFFLE, mask, v, lane)
#define __shfl_up_sync(mask, v, d) LMC_SHUFFLE(UP, mask, v, d)
#define __shfl_down_sync(mask, v, d) LMC_SHUFFLE(DOWN, mask, v, d)
#define __shfl_xor_sync(mask, v, d) LMC_SHUFFLE(XOR, mask, v, d)

/* -- atomics, without an order of memory: another thread's plain access to these bytes needs a
 * barrier between -- */
#if defined(__clang__)
#define LMC_UNSEEN __attribute__((noinline, no_sanitize("thread")))
#else
#define LMC_UNSEEN __attribute__((noinline, no_sanitize_thread))
#endif
#define LMC_ATOMIC(name, T, result)                                                                \
    LMC_UNSEEN static inline T name(T *p, T v)                                                     \
    {                                                                                              \
        cpu::atomic(p, sizeof *p);                                                                 \
        const T old = *p;                                                                          \
        *p = result;                                                                               \
        return old;                                                                                \
    }
#define LMC_ATOMICS(T)                                                                             \
    LMC_ATOMIC(atomicAdd, T, old + v)                                                              \
    LMC_ATOMIC(atomicOr, T, old | v)                                                               \
    LMC_ATOMIC(atomicXor, T, old ^ v)                                                              \
    LMC_ATOMIC(atomicAnd, T, old &v)                                                               \
    LMC_ATOMIC(atomicMin, T, old < v ? old : v)                                                    \
    LMC_ATOMIC(atomicMax, T, old > v ? old : v)                                                    \
    LMC_ATOMIC(atomicExch, T, v)
LMC_ATOMICS(u32)
LMC_ATOMICS(u64)
LMC_UNSEEN static inline u32 atomicCAS(u32 *p, u32 wanted, u32 v)
{
    cpu::atomic(p, sizeof *p);
    const u32 old = *p;
    if (old == wanted) *p = v;
    return old;
}
#define __threadfence() ((void)0)
#define __threadfence_block() ((void)0)

/* -- integers -- */
static inline int __popc(u32 x) { return __builtin_popcount(x); }
static inline int __popcll(u64 x) { return __builtin_popcountll(x); }
static inline int __ffs(u32 x) { return __builtin_ffs((int)x); }
static inline int __ffsll(u64 x) { return __builtin_ffsll((long long)x); }
static inline int __clz(u32 x) { return x ? __builtin_clz(x) : 32; }
static inline int __clzll(u64 x) { return x ? __builtin_clzll(x) : 64; }
static inline u32 __brev(u32 x)
{
    u32 r = 0;
    for (int i = 0; i < 32; i++) r |= (x >> i & 1) << (31 - i);
    return r;
}
static inline u32 __umulhi(u32 a, u32 b) { return (u32)((u64)a * b >> 32); }
static inline u32 __funnelshift_r(u32 lo, u32 hi, u32 s)
{
    return (u32)(((u64)hi << 32 | lo) >> (s & 31));
}
static inline u32 __funnelshift_rc(u32 lo, u32 hi, u32 s)
{
    return s >= 32 ? hi : (u32)(((u64)hi << 32 | lo) >> s);
}
static inline u32 __funnelshift_l(u32 lo, u32 hi, u32 s)
{
    return (u32)(((u64)hi << 32 | lo) << (s & 31) >> 32);
}
static inline u32 __funnelshift_lc(u32 lo, u32 hi, u32 s)
{
    return s >= 32 ? lo : (u32)(((u64)hi << 32 | lo) << s >> 32);
}
/* A selector is three bits in four; what the fourth does depends on how it is called, so it must
 * be 0. */
static inline u32 __byte_perm(u32 a, u32 b, u32 selectors)
{
    const u64 v = (u64)b << 32 | a;
    u32 r = 0;
    if (selectors & 0x8888) cpu::stop("__byte_perm with selectors %x", selectors);
    for (int i = 0; i < 4; i++) r |= (u32)(v >> (8 * (selectors >> (4 * i) & 7)) & 255) << (8 * i);
    return r;
}
template <class T> static inline T __ldg(const T *p) { return *p; }
template <class T> static inline T min(T a, T b) { return b < a ? b : a; }
template <class T> static inline T max(T a, T b) { return a < b ? b : a; }
