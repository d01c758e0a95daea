/* SPDX-License-Identifier: MIT
 * Decodes blocks of LMC 1.0 on a GPU: one group of 256 threads a block. A prototype: widths 2 and 4, stored or planes, no prediction
 * (so no classes), Joint 0, at most 65,536 elements; all lists, trees and masks. What it does not know gets the status NOT_HERE, and a
 * CPU decodes it. CUDA C++ without headers, so NVRTC takes it; with LMC_ON_CPU the same text runs as fibers (cuda_on_cpu.h).
 *
 *   1 parse   The first warp walks the tree of each list in pre-order; masks are copied to shared memory as aligned
 *             words, with the number of ones before each word. All warps help with the large ones: that is the only serial chain.
 *   2 bounds  A chunk of 2,048 neighbouring elements is a range at every node. One thread per border of chunks follows it down.
 *   3 decode  A warp takes a chunk, and all of the rest needs no barrier of the group: nodes from the last to the root, 8 outputs a
 *             lane: two windows of the children and two byte permutations. Rare subtrees are walked element by element instead.
 *   4 join    Planes to elements, 16 bytes a lane; CRC-32C on the way.
 */
#ifdef LMC_ON_CPU
#include "cuda_on_cpu.h"
#define LMC_SHARED(T, s) T &s = *(T *)cpu::shared_memory
#define BARRIER() __syncthreads()
#define WHY(x) (cpu::why = x)
#else
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
#define LMC_SHARED(T, s) extern __shared__ uint4 lmc_shared_memory[]; T &s = *(T *)lmc_shared_memory
#define BARRIER() asm volatile("bar.sync 0;" ::: "memory")
#define LMC_COUNT(i, n) ((void)0)
#define WHY(x) ((void)0)
#endif
#define DEV __device__ __forceinline__
#define COLD static __device__ __noinline__
#ifdef LMC_ON_CPU
#define ROLLED
#define UNROLLED
#else
#define ROLLED _Pragma("unroll 1")
#define UNROLLED _Pragma("unroll")
#endif
#define FULL 0xFFFFFFFFu
#ifndef CHUNK
#define CHUNK 1024
#endif
#ifndef ARENA /* words of shared memory for masks; the rare blocks that need more, or more trees, are done by a second variant: ARENA 36000 on an H100, GROUPS 1 */
#define ARENA 9344
#define SLOTS(W) ((W) / 2)
#define TEMP_CHUNKS 2
#else
#define TEMP_CHUNKS 5
#define SLOTS(W) (W)
#endif
#ifndef RARE
#define RARE 48 /* elements of a chunk below which a subtree is walked */
#endif
#ifndef GROUPS
#define GROUPS 3 /* at a time on a multiprocessor: bounds the registers */
#endif
#ifndef WARPS
#define WARPS 8
#endif
enum { THREADS = 32 * WARPS, MAX_N = 65536, MAX_NODES = 192, MAX_ACTIVE = 64, TEMP = TEMP_CHUNKS * CHUNK,  NONE = 0xFFFF, INACTIVE = 255,
       NESTED_NODES = (TEMP + 16) * WARPS / 3 / 28 };
enum { CONSTANT, ESCAPED, FLAT, MASK };
enum { OK = 0, UNSUPPORTED = 22, CORRUPT = 24, CHECKSUM = 25, NOT_HERE = 255 };
enum { POLY = 0x82F63B78u };

struct Block { u64 in, out, base; u32 in_size, out_size, number, flags; }; /* where it is, where it goes, its position */
struct Tables {            /* made once by the host */
    u32 advance[4][4][256]; /* [log2 W]: times x^(8 * 256 * W) */
    u32 word[4][256];      /* times x^32 */
    u32 power[3][256]; /* [k]: x^(64 * 256^k * i) */
    u16 frozen_start[10][258];
    u8 frozen_symbol[256];
};
struct Node { u32 n, bits, src; u16 left, right, first, end; u8 kind, flat, walk, active; };
struct Pending { u16 depth, a, b, parent; u32 x, n; u32 right; };
struct Shared {
    u32 arena[ARENA];
    Node node[MAX_NODES];
    Pending stack[4][18];
    u16 start[258];
    u8 symbol[4][256];
    u32 selector[16], advance[4][256], seg[WARPS], crc;
    u32 job_src, job_n, job_dst, job;
    u32 status, n_nodes, n_active, n, kind[4], where[4], used, residual, stored;
    u32 pos, active_end[4];
    u16 off[WARPS][MAX_ACTIVE], active[MAX_ACTIVE]; /* nodes whose bytes are made: neither constant nor below a walked one */
    uint2 temp[WARPS][TEMP / 8 + 2];
    uint2 stage[SLOTS(4)][WARPS][CHUNK / 8 + 2]; /* roots of trees; with W = 2 only the first SLOTS(2) are there */
};
struct Reader { const u8 *p; u32 size, at, used, error; };

DEV u32 lane_id() { return threadIdx.x & 31; }
DEV u32 load32(const u8 *p) /* any address; up to 7 bytes behind p + 4 are read */
{
    const u32 *const q = (const u32 *)((u64)p & ~(u64)3);
    return __funnelshift_r(q[0], q[1], 8 * (u32)((u64)p & 3));
}
DEV u32 scan(u32 v) /* inclusive */
{
UNROLLED
    for (int d = 1; d < 32; d <<= 1) { const u32 o = __shfl_up_sync(FULL, v, d); if (lane_id() >= (u32)d) v += o; }
    return v;
}
DEV u32 words_of(u32 n) { return (n + 31) >> 5; }
/* Of a mask: its words, one more, and for each two words the ones before them. */
DEV u32 mask_words(u32 n) { return ((n + 63) >> 6 << 1) + 1; }
DEV u16 *ranks(const Shared &s, u32 bits, u32 n) { return (u16 *)(s.arena + bits + mask_words(n)); }
DEV u32 ones_before(const u32 *words, const u16 *rank, u32 at, u32 w) /* w: words[at >> 5] */
{
    const u32 even = at & 32 ? words[at >> 6 << 1] : 0;
    return rank[at >> 6] + __popc(even) + __popc(w & ((1u << (at & 31)) - 1));
}

/* Copies n bits to the arena and counts ones; src NONE: they are there. By n_warps warps, of which this is one. */
COLD void copy_mask(Shared &s, const u8 *p, u32 src, u32 n, u32 dst, u32 warp, u32 n_warps)
{
    const u32 words = words_of(n), lane = lane_id(), seg = (words + 32 * n_warps - 1) / (32 * n_warps) * 32;
    const u32 lo = warp * seg, hi = lo + seg < words ? lo + seg : words;
    u16 *const rank = ranks(s, dst, n);
    u32 total = 0;
    ROLLED for (u32 i = lo; i < hi; i += 32) {
        const u32 k = i + lane;
        u32 v = 0;
        if (k < hi) {
            v = src == FULL ? s.arena[dst + k] : load32(p + src + 4 * k);
            if (n - 32 * k < 32) v &= (1u << (n & 31)) - 1;
            s.arena[dst + k] = v;
        }
        LMC_COUNT(0, lane == 0);
        const u32 c = __popc(v), up = scan(c);
        if (k < hi && !(k & 1)) rank[k >> 1] = (u16)(total + up - c);
        total += __shfl_sync(FULL, up, 31);
    }
    if (warp == 0 && lane == 0) { s.arena[dst + words] = 0; if (words & 1) s.arena[dst + words + 1] = 0; }
    if (lane == 0) s.seg[warp] = total;
    if (n_warps > 1) {
        u32 base = 0;
        BARRIER();
        ROLLED for (u32 w = 0; w < warp; w++) base += s.seg[w];
        ROLLED for (u32 k = (lo >> 1) + lane; 2 * k < hi; k += 32) rank[k] = (u16)(rank[k] + base);
    }
}
COLD void work(Shared &s, const u8 *p) /* all warps, the same job */
{
    copy_mask(s, p, s.job_src, s.job_n, s.job_dst, threadIdx.x >> 5, WARPS);
    BARRIER();
}
/* By the first warp. */
COLD void copy_bits(Shared &s, const u8 *p, u32 src, u32 n, u32 dst)
{
    if (n < 4096) {
        copy_mask(s, p, src, n, dst, 0, 1);
        if (lane_id() == 0) for (u32 w = 1; w < WARPS; w++) s.seg[w] = 0;
        __syncwarp();
        return;
    }
    if (lane_id() == 0) { s.job_src = src; s.job_n = n; s.job_dst = dst; s.job = 1; }
    BARRIER();
    work(s, p);
}
COLD u32 sum_seg(Shared &s)
{
    u32 ones = 0;
    ROLLED for (u32 w = 0; w < WARPS; w++) ones += s.seg[w];
    return ones;
}
DEV u32 alloc(Reader &r, u32 words)
{
    const u32 at = r.used;
    if (words > ARENA - r.used) { WHY("arena"); r.error = NOT_HERE; return 0; }
    r.used += words;
    return at;
}
DEV bool has(Reader &r, u32 bytes) { if (bytes > r.size - r.at) r.error = CORRUPT; return !r.error; }
DEV void unused_bits(Reader &r, u32 at, u32 n) { if (n & 7 && r.p[at + (n >> 3)] >> (n & 7)) r.error = CORRUPT; }

template <class T> static __device__ __noinline__ u8 walk(const Shared &s, const u8 *p, const Node *nodes, const T *symbol, u32 k, u32 at)
{
    while (nodes[k].kind == MASK) {
        const u32 bits = nodes[k].bits, w = s.arena[bits + (at >> 5)];
        const u32 ones = ones_before(s.arena + bits, ranks(s, bits, nodes[k].n), at, w);
        if (w >> (at & 31) & 1) { at = ones; k = nodes[k].right; }
        else { at -= ones; k = nodes[k].left; }
        LMC_COUNT(1, 1);
    }
    if (nodes[k].kind == CONSTANT) return symbol[nodes[k].first];
    if (nodes[k].kind == ESCAPED) return p[nodes[k].src + at];
    u32 index = 0;
    const u8 *q = p + nodes[k].src + (at >> 3);
    ROLLED for (u32 d = 0; d < nodes[k].flat; d++, q += (nodes[k].n + 7) >> 3) index = index << 1 | (*q >> (at & 7) & 1);
    return symbol[nodes[k].first + index];
}

template <int NEST> struct Parse {
    /* The tree of leaves [0, n_leaves) over n elements; start[n_leaves] is 2^15. Returns the number of nodes. */
    static __device__ __noinline__ u32 tree(Shared &s, Reader &r, const Tables *t, const u16 *start, u32 n_leaves, bool escape, u32 n, Node *nodes, u32 base, u32 limit)
    {
        Pending *const stack = s.stack[NEST];
        const u32 lane = lane_id();
        u32 top = 1, count = base;
        if (lane == 0) { stack[0].depth = 0; stack[0].a = 0; stack[0].b = (u16)n_leaves; stack[0].parent = NONE; stack[0].x = 0; stack[0].n = n; stack[0].right = 0; }
        __syncwarp();
        while (top && !r.error) {
            const Pending v = stack[--top];
            const u32 me = count++;
            if (me >= limit) { WHY(NEST ? "nodes of a nested mask" : "nodes"); r.error = NOT_HERE; break; }
            const u32 one = v.b - v.a == 1, length_a = __clz(start[v.a + 1] - start[v.a]) - 16, length_b = __clz(start[v.b] - start[v.b - 1]) - 16;
            const bool has_escape = escape && v.b == n_leaves;
            u32 kind = MASK, bits = 0, src = 0, flat = 0, ones = 0, middle = 0;
            if (one) {
                kind = has_escape ? ESCAPED : CONSTANT;
                if (has_escape) { src = r.at; if (has(r, v.n)) r.at += v.n; }
            } else if (!has_escape && length_a == length_b && length_a - v.depth >= 2 && length_a - v.depth <= 6) {
                kind = FLAT;
                flat = length_a - v.depth;
                const u32 bytes = (v.n + 7) >> 3;
                src = r.at; /* read where they are: each bit is needed once */
                if (!has(r, flat * bytes)) break;
                ROLLED for (u32 d = 0; d < flat; d++) unused_bits(r, r.at + d * bytes, v.n);
                r.at += flat * bytes;
            } else {
                bits = mask(s, r, t, v.n);
                if (r.error) break;
                ones = sum_seg(s);
                u32 lo = v.a + 1, hi = v.b; /* first leaf of the right child */
                while (lo < hi) { const u32 m = (lo + hi) >> 1; if (start[m] < v.x + (1u << (14 - v.depth))) lo = m + 1; else hi = m; }
                middle = lo;
            }
            __syncwarp();
            if (lane == 0) {
                Node &w = nodes[me];
                w.n = v.n; w.bits = bits; w.src = src; w.left = w.right = NONE; w.first = v.a; w.kind = (u8)kind; w.flat = (u8)flat; w.walk = 0;
                if (v.parent != NONE) { if (v.right) nodes[v.parent].right = (u16)me; else nodes[v.parent].left = (u16)me; }
                if (kind == MASK) {
                    u32 at = top;
                    if (ones) { Pending &q = stack[at++]; q.depth = v.depth + 1; q.a = (u16)middle; q.b = v.b; q.parent = (u16)me; q.x = v.x + (1u << (14 - v.depth)); q.n = ones; q.right = 1; }
                    if (ones < v.n) { Pending &q = stack[at++]; q.depth = v.depth + 1; q.a = v.a; q.b = (u16)middle; q.parent = (u16)me; q.x = v.x; q.n = v.n - ones; q.right = 0; }
                }
            }
            if (kind == MASK) top += (ones != 0) + (ones < v.n);
            __syncwarp();
        }
        return count;
    }
    /* A mask of n bits at r.at: to the arena, with ranks; its ones are the sum of s.seg. */
    static __device__ __noinline__ u32 mask(Shared &s, Reader &r, const Tables *t, u32 n)
    {
        const u32 words = words_of(n), bytes = (n + 7) >> 3, bits = alloc(r, mask_words(n) + ((mask_words(n) + 3) >> 2)), lane = lane_id();
        u32 mode = 0;
        if (r.error) return 0;
        if (n >= 256 && NEST < 2) { if (!has(r, 1)) return 0; mode = r.p[r.at++]; }
        if (mode == 0) {
            if (!has(r, bytes)) return 0;
            unused_bits(r, r.at, n);
            copy_bits(s, r.p, r.at, n, bits);
            r.at += bytes;
            return bits;
        }
        if (mode <= 20) { nested(s, r, t, n, bits, mode); }
        else r.error = CORRUPT;
        if (r.error) return 0;
        __syncwarp();
        copy_bits(s, r.p, FULL, n, bits);
        return bits;
    }
    static __device__ __noinline__ void nested(Shared &s, Reader &r, const Tables *t, u32 n, u32 bits, u32 mode)
    {
        const u32 bytes = (n + 7) >> 3, used = r.used, level = (mode - 1) >> 1, flip = (mode - 1) & 1 ? 255 : 0;
        const u32 limit = NESTED_NODES;
        Node *const nodes = (Node *)s.temp + NEST * NESTED_NODES; /* not in use before the chunks are */
        Parse<NEST + 1>::tree(s, r, t, t->frozen_start[level], 256, false, bytes, nodes, 0, limit);
        if (r.error) return;
        u32 bad = 0;
        ROLLED for (u32 i = lane_id(); i < 4 * words_of(n); i += 32) {
            const u32 v = i < bytes ? walk(s, r.p, nodes, t->frozen_symbol, 0, i) ^ flip : 0;
            if (i == bytes - 1 && n & 7 && v >> (n & 7)) bad = 1;
            ((u8 *)(s.arena + bits))[i] = (u8)v;
        }
        if (__ballot_sync(FULL, bad)) r.error = CORRUPT;
        r.used = used;
    }
};
template <> struct Parse<3> { /* nesting 2 has plain masks only */
    static DEV u32 tree(Shared &, Reader &r, const Tables *, const u16 *, u32, bool, u32, Node *, u32, u32) { r.error = CORRUPT; return 0; }
};

/* A list of n bytes: s.kind, s.where (offset, value, or number of its root). First warp. */
COLD void list(Shared &s, Reader &r, const Tables *t, u32 plane, u32 n)
{
    const u32 lane = lane_id();
    if (!has(r, 1)) return;
    const u32 mode = r.p[r.at++];
    if (mode > 3) { r.error = CORRUPT; return; }
    if (mode == 0) { if (lane == 0) { s.kind[plane] = ESCAPED; s.where[plane] = r.at; } if (has(r, n)) r.at += n; return; }
    if (mode == 1) { if (has(r, 1)) { if (lane == 0) { s.kind[plane] = CONSTANT; s.where[plane] = r.p[r.at]; } r.at++; } return; }
    if (!has(r, 2)) return;
    const u32 first = r.p[r.at], count = r.p[r.at + 1] + 1u, escape = mode == 3, bytes = (count + escape + 1) >> 1;
    r.at += 2;
    if (first + count > 256) r.error = CORRUPT;
    if (r.error || !has(r, bytes)) return;
    const u8 *const q = r.p + r.at;
    r.at += bytes;
    if ((count + escape) & 1 && q[bytes - 1] >> 4) r.error = CORRUPT;
    if (!(q[0] & 15) || !(q[(count - 1) >> 1] >> (4 * ((count - 1) & 1)) & 15)) r.error = CORRUPT;
    u32 leaves = 0, at = 0, longest = 0;
    ROLLED for (u32 length = 1; length <= 15; length++)
        ROLLED for (u32 i = 0; i < count; i += 32) {
            const u32 k = i + lane, mine = k < count && (u32)(q[k >> 1] >> (4 * (k & 1)) & 15) == length;
            const u32 who = __ballot_sync(FULL, mine), before = __popc(who & ((1u << lane) - 1));
            if (mine) { s.symbol[plane][leaves + before] = (u8)(first + k); s.start[leaves + before] = (u16)(at + (before << (15 - length))); }
            if (who) longest = length;
            leaves += __popc(who);
            at += __popc(who) << (15 - length);
            if (at > 32768) { r.error = CORRUPT; return; }
        }
    if (escape) {
        const u32 length = q[count >> 1] >> (4 * (count & 1)) & 15;
        if (length < longest || length == 0) { r.error = CORRUPT; return; }
        if (lane == 0) s.start[leaves] = (u16)at;
        leaves++;
        at += 1u << (15 - length);
    }
    if (leaves < 2 || at != 32768) { r.error = CORRUPT; return; }
    if (lane == 0) { s.start[leaves] = 32768; s.kind[plane] = MASK; s.where[plane] = s.n_nodes; }
    __syncwarp();
    const u32 base = s.n_nodes, end = Parse<0>::tree(s, r, t, s.start, leaves, escape, n, s.node, base, MAX_NODES);
    if (r.error) return;
    __syncwarp();
    if (lane == 0) { /* where subtrees end; which of them are rare, so that walking is cheaper */
        s.n_nodes = end;
        ROLLED for (u32 k = end; k-- > base;) {
            Node &v = s.node[k];
            v.end = (u16)(k + 1);
            if (v.kind == MASK) { const u32 child = v.right != NONE ? v.right : v.left; v.end = s.node[child].end; }
            v.walk = v.kind == MASK && (u64)v.n * CHUNK <= (u64)RARE * n;
        }
        u32 a = s.n_active;
        ROLLED for (u32 k = base; k < end;) {
            Node &v = s.node[k];
            v.active = INACTIVE;
            if (v.kind != CONSTANT) { if (a < MAX_ACTIVE) { s.active[a] = (u16)k; v.active = (u8)a; } a++; }
            if (v.walk) { ROLLED for (k++; k < v.end; k++) s.node[k].active = INACTIVE; } else k++;
        }
        s.n_active = s.active_end[plane] = a;
    }
    __syncwarp();
    if (s.n_active > MAX_ACTIVE) { WHY("active nodes"); r.error = NOT_HERE; }
}

/* a * b modulo the polynomial, reflected: x^0 is bit 31 */
COLD u32 multiply(u32 a, u32 b)
{
    u32 r = 0;
ROLLED
    for (int i = 0; i < 32; i++) { r ^= b & (0u - (a >> 31)); a <<= 1; b = b >> 1 ^ (POLY & (0u - (b & 1))); }
    return r;
}
COLD u32 crc_byte(u32 crc, u32 byte)
{
    crc ^= byte;
    ROLLED for (int i = 0; i < 8; i++) crc = crc >> 1 ^ (POLY & (0u - (crc & 1)));
    return crc;
}
DEV u32 advance(const Shared &s, u32 v) { return s.advance[0][v & 255] ^ s.advance[1][v >> 8 & 255] ^ s.advance[2][v >> 16 & 255] ^ s.advance[3][v >> 24]; }
DEV uint2 window(const u32 *words, u32 at) /* 8 bytes at byte `at` of shared memory */
{
    const u32 *const q = words + (at >> 2);
    const u32 a = q[0], b = q[1], c = q[2], sh = 8 * (at & 3);
    return make_uint2(__funnelshift_r(a, b, sh), __funnelshift_r(b, c, sh));
}
DEV u32 spread(u32 x) /* 8 bits to 8 nibbles */
{
    x = (x | x << 12) & 0x000F000F;
    x = (x | x << 6) & 0x03030303;
    return (x | x << 3) & 0x11111111;
}

/* The bytes of one chunk of one tree, by a warp. */
DEV void chunk_of_tree(Shared &s, const u8 *p, u32 plane, u32 root, u32 chunk, u32 borders, uint2 *stage)
{
    const u32 lane = lane_id(), warp = threadIdx.x >> 5;
    const u16 *const pos = (const u16 *)(s.arena + s.pos);
    const u8 *const symbol = s.symbol[plane];
    u32 *const temp = (u32 *)s.temp[warp];
    u32 used = 0;
    const u32 first = s.node[root].active, last = s.active_end[plane];
    ROLLED for (u32 a0 = first + 1; a0 < last; a0 += 32) { /* room for the nodes */
        const u32 a = a0 + lane, size = a < last ? ((u16)(pos[a * borders + chunk + 1] - pos[a * borders + chunk]) + 15) & ~7u : 0, up = scan(size);
        if (a < last) s.off[warp][a] = (u16)(used + up - size);
        used += __shfl_sync(FULL, up, 31);
    }
    LMC_COUNT(9, lane == 0); LMC_COUNT(10, lane == 0 ? used : 0); LMC_COUNT(11, lane == 0 && used > TEMP);
    __syncwarp();
    const bool full = used > TEMP; /* strange trees: walk all */
    ROLLED for (u32 a = full ? first + 1 : last; a-- > first;) {
        const u32 k = s.active[a];
        const Node v = s.node[k];
        const u32 from = pos[a * borders + chunk], count = (u16)(pos[a * borders + chunk + 1] - from);
        uint2 *const out = k == root ? stage : (uint2 *)(temp + (s.off[warp][a] >> 2));
        if (v.walk || full) {
            ROLLED for (u32 i = lane; i < count; i += 32) { LMC_COUNT(13, lane == 0); ((u8 *)out)[i] = walk(s, p, s.node, symbol, k, from + i); }
        } else if (v.kind == ESCAPED) {
            ROLLED for (u32 i = lane; i < count; i += 32) ((u8 *)out)[i] = p[v.src + from + i];
        } else if (v.kind == FLAT) {
            const u32 step = (v.n + 7) >> 3;
            const uint2 all = window((const u32 *)symbol, v.first);
            ROLLED for (u32 g = lane; 8 * g < count; g += 32) {
                const u32 b = from + 8 * g, sh = b & 7;
                const u8 *w = p + v.src + (b >> 3);
                u32 lo = 0, hi = 0;
                LMC_COUNT(2, 1); LMC_COUNT(14, lane == 0);
                if (v.flat <= 3) {
                    ROLLED for (u32 d = 0; d < v.flat; d++, w += step) lo = lo << 1 | spread(load32(w) >> sh & 255);
                    hi = __byte_perm(all.x, all.y, lo >> 16);
                    lo = __byte_perm(all.x, all.y, lo & 0xFFFF);
                } else {
                    u32 even = 0, odd = 0; /* 6-bit numbers, as nibbles and their upper bits */
                    ROLLED for (u32 d = 0; d < v.flat; d++, w += step) {
                        const u32 y = spread(load32(w) >> sh & 255);
                        even = even << 1 | (y & 0x01010101); odd = odd << 1 | (y >> 4 & 0x01010101);
                    }
                    for (u32 i = 0; i < 4; i++) {
                        const u32 pair = symbol[v.first + (even >> (8 * i) & 255)] | symbol[v.first + (odd >> (8 * i) & 255)] << 8;
                        if (i < 2) lo |= pair << (16 * i); else hi |= pair << (16 * i - 32);
                    }
                }
                out[g] = make_uint2(lo, hi);
            }
        } else {
            const bool l_const = v.left == NONE || s.node[v.left].kind == CONSTANT, r_const = v.right == NONE || s.node[v.right].kind == CONSTANT;
            const u32 l_at = l_const ? 0 : s.off[warp][s.node[v.left].active], r_at = r_const ? 0 : s.off[warp][s.node[v.right].active];
            const u32 l_value = v.left == NONE ? 0 : symbol[s.node[v.left].first] * 0x01010101u, r_value = v.right == NONE ? 0 : symbol[s.node[v.right].first] * 0x01010101u;
            const u32 known = v.right == NONE ? 0 : r_const ? (l_const ? ones_before(s.arena + v.bits, ranks(s, v.bits, v.n), from, s.arena[v.bits + (from >> 5)]) : from - pos[s.node[v.left].active * borders + chunk]) : pos[s.node[v.right].active * borders + chunk];
            const u32 from1 = known;
            const u32 *const words = s.arena + v.bits;
            const u16 *const rank = ranks(s, v.bits, v.n);
            ROLLED for (u32 g = lane; 8 * g < count; g += 32) {
                const u32 b = from + 8 * g, w = words[b >> 5], sh = b & 31;
                const u32 m = __funnelshift_r(w, words[(b >> 5) + 1], sh);
                const u32 r1 = (ones_before(words, rank, b, w) - from1) & 0xFFFF, r0 = 8 * g - r1;
                uint2 L = make_uint2(l_value, l_value), R = make_uint2(r_value, r_value);
                LMC_COUNT(3, 1); LMC_COUNT(4, !l_const); LMC_COUNT(4, !r_const); LMC_COUNT(12, lane == 0);
                if (!l_const) L = window(temp, l_at + r0);
                if (!r_const) R = window(temp, r_at + r1);
                const u32 ones = 8 * __popc(m & 15);
                const u32 lo = __byte_perm(L.x, R.x, s.selector[m & 15]);
                const u32 hi = __byte_perm(__funnelshift_rc(L.x, L.y, 32 - ones), __funnelshift_rc(R.x, R.y, ones), s.selector[m >> 4 & 15]);
                out[g] = make_uint2(lo, hi);
            }
        }
        LMC_COUNT(5, lane == 0); LMC_COUNT(6, lane == 0 ? (count + 255) / 256 : 0);
        __syncwarp();
    }
}

/* Eight bytes of plane `plane` for elements i .. i + 7; those of trees are in the warp's stage. */
DEV uint2 plane8(const Shared &s, const u8 *p, u32 plane, u32 slot, u32 i, u32 g)
{
    if (s.kind[plane] == MASK) return s.stage[slot][threadIdx.x >> 5][g];
    if (s.kind[plane] == CONSTANT) return make_uint2(s.where[plane] * 0x01010101u, s.where[plane] * 0x01010101u);
    const u8 *const q = p + s.where[plane] + i;
    const u32 *const w = (const u32 *)((u64)q & ~(u64)3);
    const u32 a = w[0], b = w[1], c = w[2], sh = 8 * (u32)((u64)q & 3);
    return make_uint2(__funnelshift_r(a, b, sh), __funnelshift_r(b, c, sh));
}

template <int W> DEV void decode(Shared &s, const u8 *block, u8 *out, const Tables *t)
{
    enum { PIECE = 8 * W, K = PIECE / 4, ROW = 32 * PIECE };
    const u32 tid = threadIdx.x, lane = lane_id(), warp = tid >> 5, n = s.n;
    const u32 chunks = (n + CHUNK - 1) / CHUNK, borders = chunks + 1;
    const u8 *const p = block + 24;
    u32 slot_of[4], slots = 0;
    for (u32 j = 0; j < W; j++) slot_of[j] = s.stored || s.kind[j] != MASK ? 0 : slots++;
    u16 *const pos = (u16 *)(s.arena + s.pos);
    for (u32 c = tid; c < borders; c += THREADS) {
        for (u32 j = 0; j < W; j++) if (!s.stored && s.kind[j] == MASK) pos[s.node[s.where[j]].active * borders + c] = (u16)(c * CHUNK < n ? c * CHUNK : n);
        ROLLED for (u32 a = 0; a < s.n_active; a++) {
            const Node &v = s.node[s.active[a]];
            if (v.kind != MASK || v.walk) continue;
            u32 at = pos[a * borders + c], ones;
            if (c && at == 0 && v.n == 65536) at = 65536; /* the last border; 16 bits suffice for differences */
            if (at < v.n) ones = ones_before(s.arena + v.bits, ranks(s, v.bits, v.n), at, s.arena[v.bits + (at >> 5)]);
            else ones = v.right == NONE ? 0 : s.node[v.right].n;
            if (v.right != NONE && s.node[v.right].active != INACTIVE) pos[s.node[v.right].active * borders + c] = (u16)ones;
            if (v.left != NONE && s.node[v.left].active != INACTIVE) pos[s.node[v.left].active * borders + c] = (u16)(at - ones);
            LMC_COUNT(7, 1);
        }
    }
    BARRIER();
    const u32 per = (chunks + WARPS - 1) / WARPS, first = warp * per, last = first + per < chunks ? first + per : chunks;
    u32 acc[K], seen = 0, place = 0;
    for (u32 j = 0; j < K; j++) acc[j] = 0;
    ROLLED for (u32 chunk = first; chunk < last; chunk++) {
        for (u32 j = 0; j < W; j++)
            if (!s.stored && s.kind[j] == MASK) chunk_of_tree(s, p, j, s.where[j], chunk, borders, s.stage[slot_of[j]][warp]);
        const u32 left = n - chunk * CHUNK, count = left < CHUNK ? left : CHUNK;
        ROLLED for (u32 g = lane; 8 * g < count; g += 32) {
            const u32 i = chunk * CHUNK + 8 * g;
            u32 v[K];
            LMC_COUNT(8, 1); LMC_COUNT(15, lane == 0);
            if (s.stored) {
                for (u32 j = 0; j < K; j++) v[j] = load32(p + i * W + 4 * j);
            } else if (W == 2) {
                const uint2 lo = plane8(s, p, 0, slot_of[0], i, g), hi = plane8(s, p, 1, slot_of[1], i, g);
                v[0] = __byte_perm(lo.x, hi.x, 0x5140); v[1] = __byte_perm(lo.x, hi.x, 0x7362);
                v[2] = __byte_perm(lo.y, hi.y, 0x5140); v[3] = __byte_perm(lo.y, hi.y, 0x7362);
                if (s.residual) for (u32 j = 0; j < K; j++) v[j] = (v[j] >> 1 & 0x7FFF7FFF) | (v[j] & 0x00010001) << 15;
            } else {
                const uint2 a = plane8(s, p, 0, slot_of[0], i, g), b = plane8(s, p, 1, slot_of[1], i, g), c = plane8(s, p, 2 % W, slot_of[2 % W], i, g), d = plane8(s, p, 3 % W, slot_of[3 % W], i, g);
                for (u32 h = 0; h < 2; h++) {
                    const u32 A = h ? a.y : a.x, B = h ? b.y : b.x, C = h ? c.y : c.x, D = h ? d.y : d.x;
                    const u32 ab0 = __byte_perm(A, B, 0x5140), ab1 = __byte_perm(A, B, 0x7362), cd0 = __byte_perm(C, D, 0x5140), cd1 = __byte_perm(C, D, 0x7362);
                    v[(4 * h + 0) % K] = __byte_perm(ab0, cd0, 0x5410); v[(4 * h + 1) % K] = __byte_perm(ab0, cd0, 0x7632);
                    v[(4 * h + 2) % K] = __byte_perm(ab1, cd1, 0x5410); v[(4 * h + 3) % K] = __byte_perm(ab1, cd1, 0x7632);
                }
                if (s.residual) for (u32 j = 0; j < K; j++) v[j] = __funnelshift_r(v[j], v[j], 1);
            }
            if (8 * g + 8 <= count && ((u64)out & 15) == 0) {
                for (u32 j = 0; j < K; j += 4) *(uint4 *)(out + (u64)i * W + 4 * j) = make_uint4(v[j], v[j + 1], v[j + 2], v[j + 3]);
            } else {
                ROLLED for (u32 j = 0; j < PIECE && (u32)(8 * g * W + j) < count * W; j++) out[(u64)i * W + j] = (u8)(v[j >> 2] >> (8 * (j & 3)));
            }
            if (8 * g + 8 <= count) {
                if (i == 0) v[0] ^= FULL;
                for (u32 j = 0; j < K; j++) acc[j] = advance(s, acc[j]) ^ v[j];
                seen = 1;
                place = i * W;
            }
        }
        __syncwarp();
    }
    const u32 whole = n / 8 * PIECE; /* bytes of full pieces */
    u32 sum = 0;
    if (seen) {
        const u32 rest = (whole - place - PIECE) >> 3; /* 8-byte steps behind the last piece */
        sum = acc[0];
        for (u32 j = 1; j <= K; j++) /* times x^32, and the next word */
            sum = t->word[0][sum & 255] ^ t->word[1][sum >> 8 & 255] ^ t->word[2][sum >> 16 & 255] ^ t->word[3][sum >> 24] ^ (j < K ? acc[j % K] : 0);
        if (rest & 255) sum = multiply(sum, t->power[0][rest & 255]);
        if (rest >> 8) sum = multiply(sum, t->power[1][rest >> 8]);
    }
    for (int d = 16; d; d >>= 1) sum ^= __shfl_xor_sync(FULL, sum, d);
    if (lane == 0) atomicXor(&s.crc, sum);
    BARRIER();
    if (tid == 0) {
        u32 crc = whole ? s.crc : FULL;
        ROLLED for (u32 i = whole; i < n * W; i++) crc = crc_byte(crc, out[i]);
        if (~crc != (block[12] | block[13] << 8 | block[14] << 16 | (u32)block[15] << 24)) s.status = CHECKSUM;
    }
}

template <int W> DEV void lmc_decode_block(Shared &s, const Block &job, u32 *status, const Tables *t)
{
    const u8 *const b = (const u8 *)job.in;
    u8 *const out = (u8 *)job.out;
    const u32 tid = threadIdx.x, lane = lane_id();
    const u32 width = b[1], layout = b[2] >> 5, n = b[4] | b[5] << 8 | b[6] << 16 | (u32)b[7] << 24;
    if (tid < 16) {
        u32 sel = 0, l = 0, r = 4;
        for (int i = 0; i < 4; i++) sel |= (tid >> i & 1 ? r++ : l++) << (4 * i);
        s.selector[tid] = sel;
    }
    for (u32 i = tid; i < 1024; i += THREADS) s.advance[i >> 8][i & 255] = t->advance[W == 4 ? 2 : 1][i >> 8][i & 255];
    if (tid == 0) { s.status = OK; s.crc = 0; s.n = n; s.n_nodes = 0; s.n_active = 0; s.job = 0; s.residual = b[2] & 3; s.stored = layout == 0; s.pos = 0; }
    BARRIER();
    if (tid < 32) { /* the first warp reads, the others help */
        Reader r = {b + 24, job.in_size - 24, 0, 0, 0};
        u32 crc = FULL;
        ROLLED for (u32 i = 0; i < 4; i++) crc = crc_byte(crc, job.number >> (8 * i) & 255);
        ROLLED for (u32 i = 0; i < 20; i++) crc = crc_byte(crc, b[i]);
        const u32 payload = b[8] | b[9] << 8 | b[10] << 16 | (u32)b[11] << 24;
        if (b[0] != 0xB2) r.error = CORRUPT;
        else if (~crc != (b[20] | b[21] << 8 | b[22] << 16 | (u32)b[23] << 24)) r.error = CHECKSUM;
        else if (width != W || layout != 0 && layout != 1 || b[2] & 0x1C || n > MAX_N) r.error = NOT_HERE;
        else if ((b[2] & 3) == 3 || b[2] & 0x18) r.error = UNSUPPORTED;
        else if ((u64)n * width != job.out_size || n == 0 || b[3] || b[16] | b[17] | b[18] | b[19]) r.error = CORRUPT;
        else if (payload != job.in_size - 24 || layout == 0 && b[2] & 3 || layout && payload >= n * width) r.error = CORRUPT;
        else if ((b[2] & 3) == 1) r.error = NOT_HERE;
        else if (layout == 0) { if (payload != n * width) r.error = CORRUPT; }
        else {
            u32 trees = 0;
            ROLLED for (u32 j = 0; j < width && !r.error; j++) { list(s, r, t, j, n); __syncwarp(); trees += !r.error && s.kind[j] == MASK; }
            if (!r.error && r.at != r.size) r.error = CORRUPT;
            if (!r.error && trees > SLOTS(W)) { WHY("trees"); r.error = NOT_HERE; }
            const u32 at = r.error ? 0 : alloc(r, (s.n_active * ((n + CHUNK - 1) / CHUNK + 1) + 1) >> 1);
            if (lane == 0) { s.pos = at; s.used = r.used; }
        }
        if (lane == 0) { s.job = 2; s.status = r.error; }
        BARRIER();
    } else {
        for (;;) { BARRIER(); if (s.job == 2) break; work(s, b + 24); }
    }
    BARRIER();
    if (s.status == OK) decode<W>(s, b, out, t);
    if (tid == 0) *status = s.status;
    BARRIER();
}
#define SHARED_SIZE(W) (sizeof(Shared) - (SLOTS(4) - SLOTS(W)) * WARPS * (CHUNK / 8 + 2) * 8)
#define KERNEL(W) \
extern "C" __global__ void __launch_bounds__(THREADS, GROUPS) lmc_decode_##W(const Block *blocks, u32 n, u32 *status, const Tables *t, u8 *scratch, u64 scratch_size) \
{ \
    LMC_SHARED(Shared, s); \
    for (u32 i = blockIdx.x; i < n; i += gridDim.x) { const Block job = blocks[i]; lmc_decode_block<W>(s, job, status + i, t); } \
}
KERNEL(2)
KERNEL(4)
