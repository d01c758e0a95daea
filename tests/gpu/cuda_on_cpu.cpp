/* SPDX-License-Identifier: MIT
 * Fibers that act as the threads of a group: see cuda_on_cpu.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN
#endif
#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#include "cuda_on_cpu.h"

uint3 threadIdx, blockIdx, blockDim, gridDim;
alignas(128) uint4 lmc_shared_memory[cpu::MAX_SHARED / sizeof(uint4)];

namespace cpu
{
u32 seed = 1;
int left_out = -1, running = -1;
const char *why = "";
u64 count[32], n_barriers, n_warp_operations, n_accesses[2][2];
u8 *const shared_memory = (u8 *)lmc_shared_memory;
size_t shared_size;
place barriers[MAX_PLACES];
times time = {1, 1, 1, 1, {0}};
void (*on_atomic)(const void *, size_t, const void *);

namespace
{
enum { STACK = 256 << 10, GUARD = 4096 };
enum state { READY, AT_WARP, AT_GROUP, DONE };

struct context { /* of a fiber that does not run */
#if defined(__x86_64__)
    void *stack;
#else
    ucontext_t registers;
#endif
    void *fake_stack; /* of AddressSanitizer */
};

struct fiber {
    context at;
    bool exists;
    enum state state;
    operation op;
    u32 mask, argument;
    u64 value, result;
    place where;
};

fiber fibers[MAX_THREADS];
context home;
char *stacks; /* MAX_THREADS of them, below each a page that nobody may touch */
u32 n_threads, n_done, n_at_group, warps_ready, random_state;
u32 ready[MAX_THREADS / 32], at_warp[MAX_THREADS / 32]; /* lanes that can run, or are AT_WARP */
bool stays;                                             /* a warp goes on as long as it can */
void (*body)(void *);
void *body_argument;

u32 chance(u32 n) /* below n */
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return (u32)((u64)random_state * n >> 32);
}

/* The number of a bit of the set, which has one: the first from a place on that is drawn. */
u32 draw_bit(u32 set)
{
    const u32 from = chance(32);
    return (from + (u32)__builtin_ctz(set >> from | set << (32 - from) % 32)) % 32;
}

/* -- from one stack to another -- */
#if defined(__x86_64__)
extern "C" void lmc_switch_stack(void **from, void *to);
/* What a called function keeps goes to the stack, its pointer to *from; the other way round from
 * `to`. */
asm(R"(.text
.type lmc_switch_stack, @function
lmc_switch_stack:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
.size lmc_switch_stack, . - lmc_switch_stack
)");
void change(context &from, context &to) { lmc_switch_stack(&from.stack, to.stack); }
void make_stack(context &c, char *bottom, void (*start)())
{
    void **top = (void **)(bottom + STACK) - 2; /* 16-byte aligned as before a call */
    *top = (void *)start;
    c.stack = top - 6;
}
#else
void change(context &from, context &to) { swapcontext(&from.registers, &to.registers); }
void make_stack(context &c, char *bottom, void (*start)())
{
    getcontext(&c.registers);
    c.registers.uc_stack.ss_sp = bottom;
    c.registers.uc_stack.ss_size = STACK;
    makecontext(&c.registers, start, 0);
}
#endif

char *stack_of(int thread) { return stacks + (size_t)thread * (STACK + GUARD) + GUARD; }

#ifdef WITH_ASAN
const void *home_bottom;
size_t home_size;
#endif

void arrive(context &self) /* first on a stack, and after each change back to it */
{
    (void)self;
#ifdef WITH_ASAN
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(self.fake_stack, &bottom, &size);
    if (!home_bottom) home_bottom = bottom, home_size = size; /* the first change is from there */
#endif
}

void leave(context &self, int to) /* to: a thread; -1: home */
{
    running = to;
    if (to >= 0) threadIdx.x = (u32)to;
#ifdef WITH_ASAN
    if (to >= 0) __sanitizer_start_switch_fiber(&self.fake_stack, stack_of(to), STACK);
    else __sanitizer_start_switch_fiber(&self.fake_stack, home_bottom, home_size);
#endif
    change(self, to >= 0 ? fibers[to].at : home);
    arrive(self);
}

/* -- who runs -- */
void set_ready(int thread)
{
    fibers[thread].state = READY;
    ready[thread / 32] |= 1u << thread % 32;
    warps_ready |= 1u << thread / 32;
}

void set_waiting(int thread, enum state state)
{
    fibers[thread].state = state;
    ready[thread / 32] &= ~(1u << thread % 32);
    if (!ready[thread / 32]) warps_ready &= ~(1u << thread / 32);
}

[[noreturn]] void deadlock()
{
    fprintf(stderr, "all threads wait:\n");
    for (u32 i = 0; i < n_threads; i++) {
        const fiber &f = fibers[i];
        if (i && f.state == fibers[i - 1].state && f.where.id == fibers[i - 1].where.id &&
            f.mask == fibers[i - 1].mask)
            continue; /* as the one before */
        if (f.state == DONE) fprintf(stderr, "  from thread %u on: ended\n", i);
        else
            fprintf(stderr, "  from thread %u on: %s%s, mask %x\n", i, f.where.name,
                    f.state == AT_GROUP ? " (barrier of the group)" : "", f.mask);
    }
    abort();
}

/* The running thread waits or has ended: somebody else goes on. */
void go_on()
{
    const int self = running;
    if (n_done == n_threads) {
        leave(fibers[self].at, -1);
        return;
    }
    if (!warps_ready) deadlock();
    const u32 warp = stays && ready[self / 32] ? (u32)self / 32 : draw_bit(warps_ready);
    const int next = (int)(32 * warp + draw_bit(ready[warp]));
    if (next != self) leave(fibers[self].at, next);
}

void run_thread()
{
    arrive(fibers[running].at);
    for (;;) { /* once for each group */
        body(body_argument);
        const int self = running;
        set_waiting(self, DONE);
        n_done++;
        if (n_at_group && n_at_group == n_threads - n_done)
            stop("thread %d ended while all others wait for it", self);
        go_on();
    }
}

void reached(const place &where)
{
    if (where.id < 0 || where.id >= MAX_PLACES) stop("more than %d places", MAX_PLACES);
    barriers[where.id] = where;
}

/* The lane whose value this lane of a shuffle takes. */
int source_of(int lane, const fiber &f)
{
    const int i = (int)f.argument, up = lane - i, down = lane + i;
    const int from = f.op == SHUFFLE ? i & 31
                     : f.op == UP    ? (up < 0 ? lane : up)
                     : f.op == DOWN  ? (down > 31 ? lane : down)
                                     : (lane ^ i) & 31;
    if (!(f.mask >> from & 1))
        stop("%s: lane %d is not in the mask %x", f.where.name, from, f.mask);
    return from;
}

/* All lanes of the mask are at one primitive: the result of each. */
void finish(fiber *lanes, u32 mask, operation op)
{
    u64 ballot = 0;
    if (op == SYNC) return;
    if (op == BALLOT || op == ALL || op == ANY) {
        for (u32 left = mask; left; left &= left - 1)
            ballot |= lanes[__builtin_ctz(left)].value << __builtin_ctz(left);
        if (op == ALL) ballot = ballot == mask;
        if (op == ANY) ballot = ballot != 0;
    }
    for (u32 left = mask; left; left &= left - 1) {
        const int i = __builtin_ctz(left);
        fiber &f = lanes[i];
        if (op == MATCH) {
            f.result = 0;
            for (u32 all = mask; all; all &= all - 1)
                f.result |= (u64)(lanes[__builtin_ctz(all)].value == f.value) << __builtin_ctz(all);
        } else if (op == BALLOT || op == ALL || op == ANY) f.result = ballot;
        else f.result = lanes[source_of(i, f)].value;
    }
}
} // namespace

bool is_own(const void *p)
{
    const char *const at = (const char *)p;
    return (at >= stacks && at < stacks + (size_t)MAX_THREADS * (STACK + GUARD)) ||
           at == (const char *)&why ||
           (at >= (const char *)count && at < (const char *)(count + sizeof count / sizeof *count));
}

void stop(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, " (thread %d, group %u, seed %u)\n", running, blockIdx.x, seed);
    abort();
}

void atomic(const void *p, size_t size)
{
    if (on_atomic) on_atomic(p, size, __builtin_return_address(0));
}

u64 warp(operation op, u32 mask, u64 value, u32 argument, const place &where)
{
    const int self = running, w = self / 32;
    fiber *const lanes = fibers + 32 * w;
    fiber &f = fibers[self];
    n_warp_operations++;
    if (op == SYNC) {
        reached(where);
        if (where.id == left_out) return 0;
    }
    if (!(mask >> self % 32 & 1))
        stop("%s: the mask %x is without lane %d, which is here", where.name, mask, self % 32);
    f.op = op;
    f.mask = mask;
    f.value = value;
    f.argument = argument;
    f.where = where;
    set_waiting(self, AT_WARP);
    at_warp[w] |= 1u << self % 32;
    bool is_complete = (at_warp[w] & mask) == mask;
    for (u32 left = is_complete ? mask : 0; left; left &= left - 1) {
        const fiber &other = lanes[__builtin_ctz(left)];
        if (other.where.id != where.id || other.mask != mask) is_complete = false;
    }
    if (is_complete) {
        finish(lanes, mask, op);
        at_warp[w] &= ~mask;
        for (u32 left = mask; left; left &= left - 1) set_ready(32 * w + __builtin_ctz(left));
        if (op == SYNC) time.warp[w] = ++time.now;
    }
    go_on();
    return f.result;
}

u32 group(operation op, u32 value, const place &where)
{
    const int self = running;
    fiber &f = fibers[self];
    n_barriers++;
    reached(where);
    if (op == SYNC && where.id == left_out) return 0;
    f.op = op;
    f.value = value;
    f.mask = 0;
    f.where = where;
    set_waiting(self, AT_GROUP);
    if (++n_at_group == n_threads - n_done) {
        u32 sum = 0, n = 0;
        for (u32 i = 0; i < n_threads; i++) {
            const fiber &v = fibers[i], &first = fibers[i & ~31u];
            if (v.state == DONE) continue;
            if (v.op != op) stop("barriers of two kinds: %s and %s", v.where.name, where.name);
            if (first.state != DONE && v.where.id != first.where.id)
                stop("lanes of one warp at two barriers: %s and %s", v.where.name,
                     first.where.name);
            sum += (u32)v.value;
            n++;
        }
        for (u32 i = 0; i < n_threads; i++) {
            if (fibers[i].state == DONE) continue;
            fibers[i].result = op == BALLOT ? sum : op == ANY ? sum != 0 : sum == n;
            set_ready((int)i);
        }
        n_at_group = 0;
        time.barrier = ++time.now;
    }
    go_on();
    return (u32)f.result;
}

void launch(u32 groups, u32 threads, size_t shared, void (*function)(void *), void *argument)
{
    if (running >= 0) stop("a launch within a kernel");
    if (!groups || !threads || threads % 32 || threads > MAX_THREADS || shared > MAX_SHARED)
        stop("a launch of %u groups of %u threads with %zu bytes", groups, threads, shared);
    if (!stacks) {
        void *p = mmap(NULL, (size_t)MAX_THREADS * (STACK + GUARD), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) stop("no memory for stacks");
        stacks = (char *)p;
    }
    body = function;
    body_argument = argument;
    n_threads = threads;
    shared_size = shared;
    blockDim = {threads, 1, 1};
    gridDim = {groups, 1, 1};
    random_state = seed * 2654435761u | 1;
    seed = seed * 1664525u + 1013904223u;
    time.launch = ++time.now;
#ifdef WITH_ASAN
    __asan_unpoison_memory_region(shared_memory, MAX_SHARED);
    __asan_poison_memory_region(shared_memory + shared_size, MAX_SHARED - shared_size);
#endif
    for (u32 i = 0; i < threads; i++)
        if (!fibers[i].exists) {
            fibers[i].exists = true;
            mprotect(stack_of((int)i) - GUARD, GUARD, PROT_NONE);
            make_stack(fibers[i].at, stack_of((int)i), run_thread);
        }
    for (u32 g = 0; g < groups; g++) {
        blockIdx = {g, 0, 0};
        for (size_t i = 0; i < shared_size; i += 4) { /* MAX_SHARED is a multiple of 4 */
            const u32 garbage = chance(0xFFFFFFFFu);
            memcpy(shared_memory + i, &garbage, shared_size - i < 4 ? shared_size - i : 4);
        }
        stays = chance(2);
        n_done = n_at_group = 0;
        time.run = time.barrier = ++time.now;
        for (u32 i = 0; i < threads; i++) set_ready((int)i);
        leave(home, (int)chance(threads));
    }
}
} // namespace cpu
