/* SPDX-License-Identifier: MIT
 * Stops the program at two accesses to one byte of which at least one writes (and not both are
 * atomic), by two threads of a kernel, without an order between them: a missing barrier, whatever
 * order the fibers ran in.
 *
 * It sees accesses because the kernel is compiled with -fsanitize=thread, by which compilers call
 * __tsan_write4 and its like at each one; these are here, in place of ThreadSanitizer's.
 *
 * The order is what CUDA promises: __syncthreads orders all threads of a group, __syncwarp those of
 * a warp; shuffles and votes do not, nor do atomics. Groups of one launch have no order at all;
 * launches come one after another.
 *
 * As all threads of a group (a warp) are at each of its barriers, two numbers tell the order, and
 * no vectors of clocks are needed: an access comes before another thread's if there was a barrier
 * of both since (cpu::times). For each byte the last write is kept, and the reads that may still be
 * in conflict with a later write. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unordered_map>
#include "cuda_on_cpu.h"

namespace
{
enum kind { READ, WRITE, ATOMIC };
enum flags { SEVERAL_WARPS = 1, OTHER_GROUP = 2, IS_ATOMIC = 4 };

/* Accesses by the lanes of one warp since its last barrier, or (flags) by others, too. */
struct accesses {
    u32 time;  /* of the last of them; 0: there was none */
    u32 lanes; /* of the warp */
    int code;  /* of the last: its distance from an address of this program */
    u8 warp, flags;
};

struct cell {
    accesses writes, reads;
};

enum { PAGE = 4096, KNOWN = 1 << 10, PAGES_AT_MOST = 8192 /* 1 GiB of cells */ };
struct page {
    cell cells[PAGE];
};
std::unordered_map<uintptr_t, page *> pages;
struct {
    uintptr_t number;
    page *cells;
} known[KNOWN]; /* of pages */
u32 launch_seen;

cell *cells_of(uintptr_t address)
{
    const uintptr_t number = address / PAGE;
    auto &k = known[number % KNOWN];
    if (k.number != number || !k.cells) {
        page *&p = pages[number];
        if (!p) p = (page *)calloc(1, sizeof *p);
        if (!p) cpu::stop("no memory for the check of races");
        k.number = number;
        k.cells = p;
    }
    return &k.cells->cells[address % PAGE];
}

void start_of_launch() /* what was before has an order: it can go if it is much */
{
    launch_seen = cpu::time.launch;
    if (pages.size() <= PAGES_AT_MOST) return;
    for (auto &p : pages) free(p.second);
    pages.clear();
    memset(known, 0, sizeof known);
}

/* Whether one of them has no order with what the lane `self` of the warp does now. start: what was
 * before is of no interest. */
bool is_in_conflict(const accesses &a, u32 start, u32 warp, u32 self)
{
    const cpu::times &t = cpu::time;
    if (a.time < start) return false;
    if (a.time < t.run || a.flags & OTHER_GROUP) return true;
    if (a.time < t.barrier) return false;
    if (a.flags & SEVERAL_WARPS || a.warp != warp) return true;
    return a.time >= t.warp[warp] && a.lanes != self;
}

/* Adds an access. Those before it that are not in conflict with it are forgotten, as what is in
 * conflict with them later is so with it, too. */
void add(accesses &a, u32 start, u32 warp, u32 self, int code, u8 flags)
{
    const cpu::times &t = cpu::time;
    if (a.time >= start && (a.time < t.run || a.flags & OTHER_GROUP)) flags |= OTHER_GROUP;
    if (a.time >= t.barrier && (a.flags & SEVERAL_WARPS || a.warp != warp)) flags |= SEVERAL_WARPS;
    else if (a.time >= t.barrier && a.time >= t.warp[warp]) self |= a.lanes;
    a.time = t.now;
    a.lanes = self;
    a.code = code;
    a.warp = (u8)warp;
    a.flags = flags;
}

bool is_shared(const void *p)
{
    return (const u8 *)p >= cpu::shared_memory &&
           (const u8 *)p < cpu::shared_memory + cpu::MAX_SHARED;
}

const char *anchor() { return (const char *)&anchor; }

void print_code(const void *code) /* a line of the source, if addr2line is here */
{
    Dl_info info;
    char command[600];
    fflush(stderr);
    if (!dladdr(code, &info) || !info.dli_fbase) return;
    snprintf(command, sizeof command, "addr2line -Cfpise '%s' 0x%zx >&2 2>/dev/null",
             info.dli_fname, (size_t)((const char *)code - (const char *)info.dli_fbase) - 1);
    if (system(command)) fprintf(stderr, "%p\n", code);
}

[[noreturn]] void report(const accesses &before, const char *what, const void *address, kind kind,
                         const void *code)
{
    fprintf(stderr, "race: ");
    if (is_shared(address))
        fprintf(stderr, "byte %td of shared memory", (const u8 *)address - cpu::shared_memory);
    else fprintf(stderr, "global memory at %p", address);
    fprintf(stderr, "; thread %d %s here: ", cpu::running,
            kind == READ    ? "reads"
            : kind == WRITE ? "writes"
                            : "has an atomic access");
    print_code(code);
    fprintf(stderr, "  and no barrier since warp %u, lanes %x%s%s, %s here: ", before.warp,
            before.lanes, before.flags & SEVERAL_WARPS ? " (others, too)" : "",
            before.flags & OTHER_GROUP ? " (another group, too)" : "", what);
    print_code(anchor() + before.code);
    cpu::stop("stopped");
}

void see(const void *address, size_t size, kind kind, const void *code)
{
    if (cpu::running < 0 || cpu::is_own(address)) return;
    if (launch_seen != cpu::time.launch) start_of_launch();
    const u32 warp = (u32)cpu::running / 32, self = 1u << cpu::running % 32;
    const int place = (int)((const char *)code - anchor());
    const bool shared = is_shared(address);
    const u32 start = shared ? cpu::time.run : cpu::time.launch; /* each group has its own */
    if (kind != ATOMIC) cpu::n_accesses[shared ? cpu::SHARED : cpu::GLOBAL][kind == WRITE]++;
    for (size_t i = 0; i < size; i++) {
        const u8 *const p = (const u8 *)address + i;
        cell &c = *cells_of((uintptr_t)p);
        if (!(kind == ATOMIC && c.writes.flags & IS_ATOMIC) &&
            is_in_conflict(c.writes, start, warp, self))
            report(c.writes, c.writes.flags & IS_ATOMIC ? "had an atomic access" : "wrote", p, kind,
                   code);
        if (kind == READ) {
            add(c.reads, start, warp, self, place, 0);
            continue;
        }
        if (is_in_conflict(c.reads, start, warp, self)) report(c.reads, "read", p, kind, code);
        if (kind == WRITE) c.writes.time = 0;
        add(c.writes, start, warp, self, place, kind == ATOMIC ? IS_ATOMIC : 0);
    }
}

void see_atomic(const void *address, size_t size, const void *code)
{
    see(address, size, ATOMIC, code);
}

__attribute__((constructor)) void install() { cpu::on_atomic = see_atomic; }
} // namespace

/* -- what the compiler calls -- */
#define HERE __builtin_return_address(0)
#define LMC_SEEN(name, size)                                                                       \
    extern "C" void __tsan_read##name(const void *p) { see(p, size, READ, HERE); }                 \
    extern "C" void __tsan_write##name(const void *p) { see(p, size, WRITE, HERE); }
LMC_SEEN(1, 1)
LMC_SEEN(2, 2)
LMC_SEEN(4, 4)
LMC_SEEN(8, 8)
LMC_SEEN(16, 16)
#undef LMC_SEEN
#define LMC_SEEN(name, size)                                                                       \
    extern "C" void __tsan_unaligned_read##name(const void *p) { see(p, size, READ, HERE); }       \
    extern "C" void __tsan_unaligned_write##name(const void *p) { see(p, size, WRITE, HERE); }
LMC_SEEN(2, 2)
LMC_SEEN(4, 4)
LMC_SEEN(8, 8)
LMC_SEEN(16, 16)
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void *) {}
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_vptr_update(void **, void *) {}
extern "C" void __tsan_vptr_read(void **) {}
extern "C" void __tsan_read_range(const void *p, size_t size) { see(p, size, READ, HERE); }
extern "C" void __tsan_write_range(const void *p, size_t size) { see(p, size, WRITE, HERE); }
extern "C" void *__tsan_memcpy(void *to, const void *from, size_t size)
{
    see(from, size, READ, HERE);
    see(to, size, WRITE, HERE);
    return memcpy(to, from, size);
}
extern "C" void *__tsan_memmove(void *to, const void *from, size_t size)
{
    see(from, size, READ, HERE);
    see(to, size, WRITE, HERE);
    return memmove(to, from, size);
}
extern "C" void *__tsan_memset(void *to, int value, size_t size)
{
    see(to, size, WRITE, HERE);
    return memset(to, value, size);
}
