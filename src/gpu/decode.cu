/* SPDX-License-Identifier: MIT
 * Decodes blocks of LMC on a GPU. Experimental: it has run on a CPU only, with the shim of
 * tests/gpu. Sections and rules are those of spec/lmc-format.md. It is CUDA C++ without includes,
 * as NVRTC needs. kernels.h says what a host must know.
 *
 *     lmc_decode_planes   blocks of up to 65,536 elements of 1, 2 or 4 bytes without a prediction;
 *                         the masks of their trees are in shared memory
 *     lmc_decode_any      all others of Layout 1: any size, classes, sparse blocks; masks
 *                         and lists are in scratch memory. The template parameter WIDE is true
 *
 * A group of threads (a thread block of CUDA) decodes a block:
 *
 *   1  The first warp reads the payload. It walks each tree in pre-order, because the place of a
 *      node depends on the ones of all masks before it. Masks become aligned words, with a rank
 *      for each 64 bits: how many ones are before them. All warps help with large masks.
 *   2  A list is cut into chunks of neighbouring elements. Ranks are monotone, so a chunk is a
 *      range of each node. For each border between chunks a thread follows the border down.
 *   3  One warp makes all bytes of a chunk, from the deepest nodes up: a lane merges 8 bytes of a
 *      node at a time. Rare subtrees are not merged: each element is followed to its leaf.
 *   4  Planes become elements. Their CRC is computed at the same time: each lane has a state,
 *      which steps from one row of the warp to the next.
 *
 * Safety. Nothing of a payload becomes an address or a count before it was checked, as in
 * src/codec/get_list.h: the number of ones of a mask is at most its n, because bits behind n are
 * zero, and a tree of code lengths fills its space exactly. Every loop over the payload consumes a
 * part of it, or ends at a bound that was checked. After an error the first warp sets a status, and
 * all threads still reach the same barriers. */
#ifdef LMC_ON_CPU
#include "cuda_on_cpu.h"
#define SHARED_MEMORY() (cpu::shared_memory)
#define SHARED_SIZE() ((u32)cpu::shared_size)
#define BARRIER() __syncthreads()
#define WHY(text) (cpu::why = text)
#define ROLLED
#define UNROLLED
#else
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
extern __shared__ uint4 lmc_shared_memory[];
#define SHARED_MEMORY() ((u8 *)lmc_shared_memory)
#define SHARED_SIZE() dynamic_shared_size()
#define BARRIER() asm volatile("bar.sync 0;" ::: "memory")
#define LMC_COUNT(i, n) ((void)0)
#define WHY(text) ((void)0)
#define ROLLED _Pragma("unroll 1") /* unrolled code costs more than it gains */
#define UNROLLED _Pragma("unroll")
static __device__ __forceinline__ u32 dynamic_shared_size()
{
    u32 size;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(size));
    return size;
}
#endif
#define DEV static __device__ __forceinline__
#define COLD static __device__ __noinline__

const u32 FULL = 0xFFFFFFFF; /* all lanes, all bits */
enum : u32 {
    WARPS = 8,
    THREADS = 32 * WARPS,
    GROUPS = 3,        /* at a time on a multiprocessor: bounds the registers */
    POLY = 0x82F63B78, /* CRC-32C, reflected: bit 31 of a number is x^0 */
    HEADER = 24,
    MAX_SIZE = 1u << 22, /* of a block (section 9) */
    MAX_NARROW = 65536,  /* elements of a block of lmc_decode_planes: ranks have 16 bits */
    MAX_CLASSES = 16,
    MAX_ACTIVE = 96, /* nodes whose bytes are made; others are walked */
    POOL = 2560,     /* bytes of a warp's buffer for the nodes of a chunk */
    LOG2_CHUNK = 10,
    RARE = 48,         /* a node of fewer bytes in 2^LOG2_CHUNK is walked */
    NESTED_NODES = 80, /* no frozen tree has more: that of level 5 has 79 */
    NONE = 0xFFFF,
    INACTIVE = 255
};
/* The same numbers as in enum lmc_status; NOT_HERE is no status of the format. */
enum : u32 {
    OK = 0,
    UNSUPPORTED = 22,
    TRUNCATED = 23,
    CORRUPT = 24,
    CHECKSUM = 25,
    BASE_MISSING = 30,
    BASE_WRONG = 31,
    NOT_HERE = 255
};
/* Of Block.flags. */
enum : u32 {
    RUN_PREDICTED = 1,
    MAY_GROUP = 2,
    MAY_QUANTIZE = 4,
    MAY_PART = 8,
    MAY_MATRIX = 16,
    MAY_CODES = 32
};

/* As in kernels.h. */
struct Block {
    u64 in, out, base;
    u32 in_size, out_size, number, flags;
};
struct Tables {
    u32 advance[7][4][256]; /* [k]: times x^(8 * 32 * 2^k), for each byte of a number */
    u32 word[4][256];       /* times x^32 */
    u32 power[3][256];      /* [k][i]: x^(8 * 256^k * i) */
    u16 frozen_start[10][258];
    u8 frozen_symbol[256];
};

/* A node of a tree (section 6.2). Kinds are ordered: from MASK on there are children. */
enum : u32 { CONSTANT, ESCAPED, FLAT, MASK, WALKED };
struct Node {
    u32 n;                        /* bytes of the list that pass through it */
    u32 bits;                     /* its mask, in the arena */
    u32 src;                      /* its bytes, or lists of bits, in the payload */
    u16 left, right;              /* children, NONE if they have no bytes */
    u16 parent, first;            /* first: of its leaves */
    u8 kind, depth, flat, active; /* active: its number among active nodes, or INACTIVE */
};
/* A node that is still to be read. */
struct Pending {
    u32 start, n;
    u16 depth, first, end, parent; /* leaves first .. end - 1 */
    u32 is_right;
};
/* A list (section 6): ESCAPED is raw, with src in the payload; CONSTANT has its byte at src. MASK
 * is a tree, whose active nodes are first .. end - 1. */
struct List {
    u32 kind, src, first, end;
    u32 level_nodes; /* the most active nodes of one depth */
    u32 stage;       /* where in the pool of a warp its bytes of a chunk are made */
    u32 value;       /* of a constant */
};
/* Where a list's bytes are: byte i at p[i * stride]. */
struct Side {
    const u8 *p;
    u64 stride;
};

enum Job : u32 { COPY_MASK, EXPAND_MASK, CHECK_PAYLOAD, COUNT_CLASSES, MAKE_ROW, END };

template <bool WIDE> struct Kind; /* what differs between the two kernels */
template <> struct Kind<false> {
    typedef u16 Rank;
    enum : u32 { MAX_NODES = 192, MAX_LISTS = 4 };
    struct More {
    };
};
template <> struct Kind<true> {
    typedef u32 Rank;
    enum : u32 { MAX_NODES = 511, MAX_LISTS = 1 };
    struct More {
        u8 *scratch;
        Side side[MAX_CLASSES][8];
        u32 mask[MAX_CLASSES], mask_n[MAX_CLASSES]; /* of a sparse block's class, in the arena */
        u32 count[WARPS][MAX_CLASSES]; /* elements of each class in each warp's part */
        u8 class_of[256];              /* of a key */
        const u8 *base;
        u8 *row;
        u32 n_classes, class_bits, sparse, natural, is_payload_right;
    };
};

template <bool WIDE> struct alignas(16) Shared : Kind<WIDE>::More {
    uint2 pool[WARPS][POOL / 8];
    u32 advance[4][256], selector[16];
    Node node[Kind<WIDE>::MAX_NODES];
    Pending stack[3][18];
    List list[Kind<WIDE>::MAX_LISTS];
    u16 start[258]; /* of the leaves of the tree that is read */
    u16 active[MAX_ACTIVE], offset[WARPS][MAX_ACTIVE];
    u8 level[MAX_ACTIVE]; /* the first active node of the same depth */
    u8 symbol[Kind<WIDE>::MAX_LISTS][256], frozen[256];
    u32 part[WARPS], crc, bad;
    u32 job, job_src, job_n, job_bits, job_nodes, job_flip;
    u32 status, n, log2_chunk, pos, work_buffer, order, stored, width;
};
template <bool WIDE> DEV Shared<WIDE> &shared() { return *(Shared<WIDE> *)SHARED_MEMORY(); }

/* The arena: masks, ranks, and what is made from them. Places in it are counted in words. */
template <bool WIDE> DEV u32 *arena()
{
    if (WIDE) return (u32 *)((Shared<true> *)SHARED_MEMORY())->scratch;
    return (u32 *)(SHARED_MEMORY() + sizeof(Shared<false>));
}

/* The first warp's position in the payload, the same in all lanes. Undefined after an error. */
struct Reader {
    const u8 *in;
    u32 size, at;
    u32 used, room; /* words of the arena */
    u32 error;
    const Tables *tables;
};

DEV u32 lane_id() { return threadIdx.x & 31; }
DEV u32 warp_id() { return threadIdx.x >> 5; }
DEV u32 log2_width(u32 width) { return width == 8 ? 3 : width == 4 ? 2 : width == 2 ? 1 : 0; }
DEV u32 min_u32(u32 a, u32 b) { return a < b ? a : b; }
DEV u64 min_u64(u64 a, u64 b) { return a < b ? a : b; }
DEV u32 below(u32 lane) { return (1u << lane) - 1; } /* the lanes before */
DEV u32 get32(const u8 *p) { return p[0] | p[1] << 8 | p[2] << 16 | (u32)p[3] << 24; }

/* load32, load64: 4 or 8 bytes at any address. Up to 7 or 11 are read: 16 behind a block may be. */
DEV u32 load32(const u8 *p)
{
    const u32 *const q = (const u32 *)((u64)p & ~(u64)3);
    return __funnelshift_r(q[0], q[1], 8 * (u32)((u64)p & 3));
}
DEV uint2 load64(const u8 *p)
{
    const u32 *const q = (const u32 *)((u64)p & ~(u64)3);
    const u32 a = q[0], b = q[1], c = q[2], shift = 8 * (u32)((u64)p & 3);
    return make_uint2(__funnelshift_r(a, b, shift), __funnelshift_r(b, c, shift));
}

/* The sum of v of this lane and all lanes before it. */
DEV u32 scan(u32 v)
{
    UNROLLED for (u32 d = 1; d < 32; d <<= 1)
    {
        const u32 other = __shfl_up_sync(FULL, v, d);
        if (lane_id() >= d) v += other;
    }
    return v;
}

/* ---- Masks in the arena: ceil(n / 64) pairs of words; a word more, which loads of two words may
 * reach; a rank for each pair, and one for the end. Bits from n on are zero. */

DEV u32 words_of(u32 n) { return (n + 31) >> 5; }
DEV u32 pairs_of(u32 n) { return (n + 63) >> 6; }
DEV u32 ranks_at(u32 bits, u32 n) { return bits + 2 * pairs_of(n) + 1; }
template <bool WIDE> DEV u32 mask_size(u32 n) /* in words */
{
    const u32 ranks = pairs_of(n) + 1;
    return 2 * pairs_of(n) + 1 + (WIDE ? ranks : (ranks + 1) >> 1);
}
template <bool WIDE> DEV typename Kind<WIDE>::Rank *ranks_of(u32 at)
{
    return (typename Kind<WIDE>::Rank *)(arena<WIDE>() + at);
}

/* How many ones are before bit `at` <= n; w: the word of that bit. */
template <bool WIDE> DEV u32 ones_before(u32 bits, u32 ranks, u32 at, u32 w)
{
    const u32 even = at & 32 ? arena<WIDE>()[bits + (at >> 6 << 1)] : 0;
    return ranks_of<WIDE>(ranks)[at >> 6] + __popc(even) + __popc(w & below(at & 31));
}

/* Makes a mask of n bits and its ranks; n_warps warps call this. src: the place of its bytes in the
 * payload; FULL: its words are in the arena already. part[w] becomes the ones that warp w has
 * counted. With more than one warp there is a barrier inside. */
template <bool WIDE> COLD void copy_mask(const u8 *in, u32 src, u32 n, u32 bits, u32 n_warps)
{
    Shared<WIDE> &s = shared<WIDE>();
    const u32 words = words_of(n), lane = lane_id(), warp = warp_id(),
              share = (words + 32 * n_warps - 1) / (32 * n_warps) * 32, from = warp * share,
              end = min_u32(from + share, words);
    u32 *const word = arena<WIDE>() + bits;
    typename Kind<WIDE>::Rank *const rank = ranks_of<WIDE>(ranks_at(bits, n));
    u32 total = 0;
    ROLLED for (u32 i = from; i < end; i += 32)
    {
        const u32 k = i + lane;
        u32 v = 0;
        if (k < end) {
            v = src == FULL ? word[k] : load32(in + src + 4 * k);
            if (n - 32 * k < 32) v &= below(n & 31);
            word[k] = v;
        }
        LMC_COUNT(0, lane == 0);
        const u32 ones = __popc(v), up = scan(ones);
        if (k < end && !(k & 1)) rank[k >> 1] = (typename Kind<WIDE>::Rank)(total + up - ones);
        total += __shfl_sync(FULL, up, 31);
    }
    if (warp == 0 && lane < 2 && words + lane <= 2 * pairs_of(n)) word[words + lane] = 0;
    if (lane == 0) s.part[warp] = total;
    if (n_warps > 1) {
        u32 before = 0;
        BARRIER();
        ROLLED for (u32 w = 0; w < warp; w++) before += s.part[w];
        ROLLED for (u32 k = (from >> 1) + lane; 2 * k < end; k += 32) rank[k] =
            (typename Kind<WIDE>::Rank)(rank[k] + before);
        total += before;
    }
    if (warp == n_warps - 1 && lane == 0) rank[pairs_of(n)] = (typename Kind<WIDE>::Rank)total;
}

/* Byte `at` of node k: follows it to its leaf. nodes and symbol may be in any memory. */
template <bool WIDE> COLD u32 walk(const u8 *in, const Node *nodes, const u8 *symbol, u32 k, u32 at)
{
    while (nodes[k].kind >= MASK) {
        const u32 bits = nodes[k].bits, w = arena<WIDE>()[bits + (at >> 5)],
                  ones = ones_before<WIDE>(bits, ranks_at(bits, nodes[k].n), at, w);
        const bool is_right = w >> (at & 31) & 1;
        at = is_right ? ones : at - ones;
        k = is_right ? nodes[k].right : nodes[k].left;
        LMC_COUNT(1, 1);
    }
    if (nodes[k].kind == CONSTANT) return symbol[nodes[k].first];
    if (nodes[k].kind == ESCAPED) return in[nodes[k].src + at];
    const u8 *row = in + nodes[k].src + (at >> 3);
    const u32 flat = nodes[k].flat, size = (nodes[k].n + 7) >> 3;
    u32 index = 0;
    ROLLED for (u32 d = 0; d < flat; d++, row += size) index = index << 1 | (*row >> (at & 7) & 1);
    return symbol[nodes[k].first + index];
}

/* Writes the bytes of a nested mask of n bits (section 6.3), from the nodes of its frozen tree, to
 * the arena; n_warps warps call this. bad is set if a byte breaks R6-9. */
DEV Node *nested_nodes(u8 *pool, u32 nesting) { return (Node *)pool + nesting * NESTED_NODES; }
template <bool WIDE>
COLD void expand_mask(const u8 *in, u32 nesting, u32 n, u32 bits, u32 flip, u32 n_warps)
{
    Shared<WIDE> &s = shared<WIDE>();
    const Node *const nodes = nested_nodes((u8 *)s.pool, nesting); /* no chunks are made yet */
    const u32 bytes = (n + 7) >> 3;
    u8 *const out = (u8 *)(arena<WIDE>() + bits);
    ROLLED for (u32 i = 32 * warp_id() + lane_id(); i < 4 * words_of(n); i += 32 * n_warps)
    {
        const u32 v = i < bytes ? walk<WIDE>(in, nodes, s.frozen, 0, i) ^ flip : 0;
        if (i == bytes - 1 && n & 7 && v >> (n & 7)) atomicOr(&s.bad, 1u);
        out[i] = (u8)v;
    }
}

/* ---- CRC-32C. A lane's state is a number v. The lane's next word is one row of the warp, `row`
 * bytes, further. So v becomes v * x^(8 * row) + word. In the end each state is moved by the bytes
 * behind the lane's last word, and the sum over all lanes is the CRC. */

template <bool WIDE> DEV u32 advance(u32 v)
{
    const u32(*const table)[256] = shared<WIDE>().advance;
    return table[0][v & 255] ^ table[1][v >> 8 & 255] ^ table[2][v >> 16 & 255] ^ table[3][v >> 24];
}
DEV u32 times_word(const Tables *t, u32 v) /* times x^32 */
{
    return t->word[0][v & 255] ^ t->word[1][v >> 8 & 255] ^ t->word[2][v >> 16 & 255] ^
           t->word[3][v >> 24];
}
COLD u32 multiply(u32 a, u32 b)
{
    u32 product = 0;
    ROLLED for (u32 i = 0; i < 32; i++)
    {
        product ^= b & (0u - (a >> 31));
        a <<= 1;
        b = b >> 1 ^ (POLY & (0u - (b & 1)));
    }
    return product;
}
COLD u32 move_crc(const Tables *t, u32 v, u32 bytes) /* less than 2^24 */
{
    if (bytes & 255) v = multiply(v, t->power[0][bytes & 255]);
    if (bytes >> 8 & 255) v = multiply(v, t->power[1][bytes >> 8 & 255]);
    if (bytes >> 16) v = multiply(v, t->power[2][bytes >> 16]);
    return v;
}
DEV u32 crc_byte(u32 crc, u32 byte)
{
    crc ^= byte;
    ROLLED for (u32 i = 0; i < 8; i++) crc = crc >> 1 ^ (POLY & (0u - (crc & 1)));
    return crc;
}
template <bool WIDE> DEV void add_crc(u32 v) /* adds the sum over all lanes to s.crc */
{
    for (u32 d = 16; d; d >>= 1) v ^= __shfl_xor_sync(FULL, v, d);
    if (lane_id() == 0) atomicXor(&shared<WIDE>().crc, v);
}
template <bool WIDE> DEV void load_advance(const Tables *t, u32 k)
{
    for (u32 i = threadIdx.x; i < 1024; i += THREADS)
        shared<WIDE>().advance[i >> 8][i & 255] = t->advance[k][i >> 8][i & 255];
}

/* ---- Chunks of a list. */

/* For each active node of the list, and each border of chunks, how many of the node's bytes are
 * before the border: pos[node * borders + border]. 16 bits wrap around only at the last border of
 * 65,536 elements: there only the difference from the border before is used. */
template <bool WIDE> COLD void set_borders(const List &list, u32 n, u32 log2_chunk)
{
    Shared<WIDE> &s = shared<WIDE>();
    typedef typename Kind<WIDE>::Rank Rank;
    const u32 chunks = (n + (1u << log2_chunk) - 1) >> log2_chunk, borders = chunks + 1;
    Rank *const pos = ranks_of<WIDE>(s.pos);
    ROLLED for (u32 c = threadIdx.x; c < borders; c += THREADS)
    {
        pos[list.first * borders + c] = (Rank)(c < chunks ? c << log2_chunk : n);
        ROLLED for (u32 a = list.first; a < list.end; a++)
        {
            const Node v = s.node[s.active[a]];
            if (v.kind != MASK) continue;
            const bool is_last = c == chunks, has_right = v.right != NONE,
                       has_left = v.left != NONE;
            const u32 at = is_last ? v.n : pos[a * borders + c],
                      ones = !is_last    ? ones_before<WIDE>(v.bits, ranks_at(v.bits, v.n), at,
                                                             arena<WIDE>()[v.bits + (at >> 5)])
                             : has_right ? s.node[v.right].n
                                         : 0;
            if (has_right && s.node[v.right].active != INACTIVE)
                pos[s.node[v.right].active * borders + c] = (Rank)ones;
            if (has_left && s.node[v.left].active != INACTIVE)
                pos[s.node[v.left].active * borders + c] = (Rank)(at - ones);
            LMC_COUNT(7, 1);
        }
    }
}

/* 8 bytes of shared memory from byte `at` on. */
DEV uint2 window(const u32 *words, u32 at)
{
    const u32 *const q = words + (at >> 2);
    const u32 a = q[0], b = q[1], c = q[2], shift = 8 * (at & 3);
    return make_uint2(__funnelshift_r(a, b, shift), __funnelshift_r(b, c, shift));
}
DEV u32 spread(u32 x) /* 8 bits to 8 nibbles */
{
    x = (x | x << 12) & 0x000F000F;
    x = (x | x << 6) & 0x03030303;
    return (x | x << 3) & 0x11111111;
}

/* 8 bytes of a flat node from its byte `at` on: its lists of bits, side by side, are indices of
 * leaves. Up to 8 leaves are looked up by byte permutations. */
DEV uint2 flat_bytes(const u8 *in, const Node &v, const u8 *symbol, u32 at)
{
    const u8 *row = in + v.src + (at >> 3);
    const u32 size = (v.n + 7) >> 3, shift = at & 7;
    u32 low = 0, high = 0;
    if (v.flat <= 3) {
        const uint2 leaves = window((const u32 *)symbol, v.first);
        ROLLED for (u32 d = 0; d < v.flat; d++, row += size) low =
            low << 1 | spread(load32(row) >> shift & 255);
        return make_uint2(__byte_perm(leaves.x, leaves.y, low & 0xFFFF),
                          __byte_perm(leaves.x, leaves.y, low >> 16));
    }
    u32 even = 0, odd = 0; /* indices of up to 6 bits, each in a byte */
    ROLLED for (u32 d = 0; d < v.flat; d++, row += size)
    {
        const u32 bits = spread(load32(row) >> shift & 255);
        even = even << 1 | (bits & 0x01010101);
        odd = odd << 1 | (bits >> 4 & 0x01010101);
    }
    symbol += v.first;
    low = high = 0;
    UNROLLED for (u32 i = 0; i < 2; i++)
    {
        low |= (symbol[even >> 8 * i & 255] | symbol[odd >> 8 * i & 255] << 8) << 16 * i;
        high |= (symbol[even >> (8 * i + 16) & 255] | symbol[odd >> (8 * i + 16) & 255] << 8)
                << 16 * i;
    }
    return make_uint2(low, high);
}

/* A node of a chunk, as a lane prepares it for its warp. A side is the place of the child's bytes
 * in the pool or, if all are equal, their value in each byte. */
struct Step {
    u32 what;       /* number of the node | kind << 16 | left is a value << 20 | right is << 21 */
    u32 range;      /* bytes | where they go in the pool << 16 */
    u32 from, ones; /* bytes of the node, and ones of its mask, before the chunk */
    u32 bits, ranks, left, right;
};
DEV Step step_of(const Step &mine, u32 lane)
{
    Step v;
    v.what = __shfl_sync(FULL, mine.what, lane);
    v.range = __shfl_sync(FULL, mine.range, lane);
    v.from = __shfl_sync(FULL, mine.from, lane);
    v.ones = __shfl_sync(FULL, mine.ones, lane);
    v.bits = __shfl_sync(FULL, mine.bits, lane);
    v.ranks = __shfl_sync(FULL, mine.ranks, lane);
    v.left = __shfl_sync(FULL, mine.left, lane);
    v.right = __shfl_sync(FULL, mine.right, lane);
    return v;
}

template <bool WIDE> DEV u32 padded_count(u32 a, u32 chunk, u32 borders)
{
    typedef typename Kind<WIDE>::Rank Rank;
    const Rank *const pos = ranks_of<WIDE>(shared<WIDE>().pos) + a * borders + chunk;
    return ((u32)(Rank)(pos[1] - pos[0]) + 7) & ~7u;
}

/* The side of a child, and whether it is a value. */
template <bool WIDE> DEV u32 side_of(const u8 *symbol, u32 child, bool *is_value)
{
    const Shared<WIDE> &s = shared<WIDE>();
    *is_value = child == NONE || s.node[child].kind == CONSTANT;
    if (child == NONE) return 0;
    return *is_value ? symbol[s.node[child].first] * 0x01010101u
                     : s.offset[warp_id()][s.node[child].active];
}

template <bool WIDE> DEV Step make_step(const u8 *symbol, u32 a, u32 chunk, u32 borders)
{
    Shared<WIDE> &s = shared<WIDE>();
    typedef typename Kind<WIDE>::Rank Rank;
    const Rank *const pos = ranks_of<WIDE>(s.pos);
    const u32 k = s.active[a];
    const Node v = s.node[k];
    Step step;
    bool left_is_value = false, right_is_value = false;
    step.from = pos[a * borders + chunk];
    step.range = (u32)(Rank)(pos[a * borders + chunk + 1] - step.from) | (u32)s.offset[warp_id()][a]
                                                                             << 16;
    step.ones = step.left = step.right = 0;
    step.bits = v.bits;
    step.ranks = ranks_at(v.bits, v.n);
    if (v.kind == MASK) {
        step.left = side_of<WIDE>(symbol, v.left, &left_is_value);
        step.right = side_of<WIDE>(symbol, v.right, &right_is_value);
        if (v.right != NONE && !right_is_value)
            step.ones = pos[s.node[v.right].active * borders + chunk];
        else if (v.right != NONE)
            step.ones = ones_before<WIDE>(v.bits, step.ranks, step.from,
                                          arena<WIDE>()[v.bits + (step.from >> 5)]);
    }
    step.what = k | v.kind << 16 | (u32)left_is_value << 20 | (u32)right_is_value << 21;
    return step;
}

/* Merges the sides by the mask (section 6.2, case 5); a lane makes 8 bytes at a time. The bytes
 * that a byte of the mask takes from a side are neighbours there. */
template <bool WIDE> DEV void merge(u32 *pool, const Step &v)
{
    const Shared<WIDE> &s = shared<WIDE>();
    const u32 *const word = arena<WIDE>() + v.bits;
    const bool left_is_value = v.what >> 20 & 1, right_is_value = v.what >> 21 & 1;
    const u32 count = v.range & 0xFFFF;
    uint2 *const out = (uint2 *)(pool + (v.range >> 18));
    ROLLED for (u32 g = lane_id(); 8 * g < count; g += 32)
    {
        const u32 at = v.from + 8 * g, w = word[at >> 5],
                  mask = __funnelshift_r(w, word[(at >> 5) + 1], at & 31);
        const u32 right_at =
                      (ones_before<WIDE>(v.bits, v.ranks, at, w) - v.ones) & (WIDE ? FULL : 0xFFFF),
                  left_at = 8 * g - right_at;
        uint2 left = make_uint2(v.left, v.left), right = make_uint2(v.right, v.right);
        LMC_COUNT(3, 1);
        LMC_COUNT(4, !left_is_value);
        LMC_COUNT(4, !right_is_value);
        LMC_COUNT(12, lane_id() == 0);
        if (!left_is_value) left = window(pool, v.left + left_at);
        if (!right_is_value) right = window(pool, v.right + right_at);
        const u32 shift = 8 * __popc(mask & 15);
        out[g] = make_uint2(__byte_perm(left.x, right.x, s.selector[mask & 15]),
                            __byte_perm(__funnelshift_rc(left.x, left.y, 32 - shift),
                                        __funnelshift_rc(right.x, right.y, shift),
                                        s.selector[mask >> 4 & 15]));
    }
}

/* A warp makes the bytes of one chunk of a tree, at byte `even` of its pool. Nodes of even depth
 * are made there, nodes of odd depth at `odd`: so each depth reads one buffer and writes to the
 * other. Nodes of one depth are side by side. Buffers have room for a chunk and the padding. */
template <bool WIDE>
COLD void make_chunk(const u8 *in, const u8 *symbol, const List &list, u32 chunk, u32 borders,
                     u32 even, u32 odd)
{
    Shared<WIDE> &s = shared<WIDE>();
    const u32 lane = lane_id(), warp = warp_id();
    u32 *const pool = (u32 *)s.pool[warp];
    u32 before = 0, level_start = 0;
    ROLLED for (u32 i = list.first; i < list.end; i += 32)
    {
        const u32 a = i + lane, size = a < list.end ? padded_count<WIDE>(a, chunk, borders) : 0,
                  here = before + scan(size) - size, level = a < list.end ? s.level[a] : i + 31;
        const u32 other = __shfl_sync(FULL, here, level - i),
                  start = level >= i ? other : level_start;
        if (a < list.end)
            s.offset[warp][a] = (u16)((s.node[s.active[a]].depth & 1 ? odd : even) + here - start);
        level_start = __shfl_sync(FULL, start, 31);
        before = __shfl_sync(FULL, here + size, 31);
    }
    LMC_COUNT(9, lane == 0);
    __syncwarp();
    ROLLED for (u32 end = list.end; end > list.first;)
    {
        const u32 size = min_u32(end - list.first, 32);
        Step mine = {};
        end -= size;
        if (lane < size) mine = make_step<WIDE>(symbol, end + lane, chunk, borders);
        ROLLED for (u32 i = size; i-- > 0;)
        {
            const Step v = step_of(mine, i);
            const u32 k = v.what & 0xFFFF, kind = v.what >> 16 & 15, count = v.range & 0xFFFF;
            uint2 *const out = (uint2 *)(pool + (v.range >> 18));
            LMC_COUNT(5, lane == 0);
            LMC_COUNT(6, lane == 0 ? (count + 255) / 256 : 0);
            if (kind == MASK) merge<WIDE>(pool, v);
            else if (kind == WALKED) {
                ROLLED for (u32 j = lane; j < count; j += 32)
                {
                    LMC_COUNT(13, lane == 0);
                    ((u8 *)out)[j] = (u8)walk<WIDE>(in, s.node, symbol, k, v.from + j);
                }
            } else {
                const Node node = s.node[k];
                ROLLED for (u32 g = lane; 8 * g < count; g += 32)
                {
                    LMC_COUNT(2, 1);
                    LMC_COUNT(14, lane == 0);
                    out[g] = kind == FLAT ? flat_bytes(in, node, symbol, v.from + 8 * g)
                                          : load64(in + node.src + v.from + 8 * g);
                }
            }
            __syncwarp();
        }
    }
}

/* WIDE: makes the bytes of a list that is a tree, at s.row. */
DEV void make_row(const u8 *in)
{
    Shared<true> &s = shared<true>();
    const List list = s.list[0];
    const u32 n = s.job_n, log2_chunk = s.log2_chunk,
              chunks = (n + (1u << log2_chunk) - 1) >> log2_chunk;
    u8 *const row = s.row;
    set_borders<true>(list, n, log2_chunk);
    BARRIER();
    ROLLED for (u32 chunk = warp_id(); chunk < chunks; chunk += WARPS)
    {
        const u32 from = chunk << log2_chunk, count = min_u32(n - from, 1u << log2_chunk);
        make_chunk<true>(in, s.symbol[0], list, chunk, chunks + 1, 0, POOL / 2);
        ROLLED for (u32 g = lane_id(); 8 * g < count; g += 32)((uint2 *)(row + from))[g] =
            s.pool[warp_id()][g];
    } /* make_chunk has a barrier before it writes to the pool again */
}

/* ---- What the first warp reads. The other warps wait for jobs. */

template <bool WIDE> COLD void work(const Reader &r);

/* A job for all warps. The first lane has written to s what the job needs. */
template <bool WIDE> DEV void together(const Reader &r, u32 job)
{
    if (lane_id() == 0) shared<WIDE>().job = job;
    BARRIER();
    work<WIDE>(r);
}

DEV bool has(Reader &r, u32 bytes)
{
    if (bytes > r.size - r.at) r.error = CORRUPT;
    return !r.error;
}
/* Checks R2-2 for n bits at `at`, within the payload. */
DEV void check_unused_bits(Reader &r, u32 at, u32 n)
{
    if (n & 7 && r.in[at + (n >> 3)] >> (n & 7)) r.error = CORRUPT;
}
/* Allocates an even number of words, so that all places are aligned to 8 bytes. */
DEV u32 alloc(Reader &r, u32 words)
{
    const u32 at = r.used;
    words = (words + 1) & ~1u;
    if (words > r.room - r.used) {
        WHY("arena");
        r.error = NOT_HERE;
        return 0;
    }
    r.used += words;
    return at;
}

template <bool WIDE> DEV void copy_bits(Reader &r, u32 src, u32 n, u32 bits)
{
    Shared<WIDE> &s = shared<WIDE>();
    if (n < 4096) {
        copy_mask<WIDE>(r.in, src, n, bits, 1);
        if (lane_id() > 0 && lane_id() < WARPS) s.part[lane_id()] = 0;
        __syncwarp();
        return;
    }
    if (lane_id() == 0) {
        s.job_src = src;
        s.job_n = n;
        s.job_bits = bits;
    }
    together<WIDE>(r, COPY_MASK);
}

/* Reads a mask that is coded as gaps (section 6.3) to the words at bits. A lane takes a word of the
 * Quotients: it adds up the gaps that end in the word, a scan says where the first gap starts, and
 * a second pass over the word sets the bits. */
COLD void read_gaps(Reader &r, u32 n, u32 bits, u32 shift, u32 polarity)
{
    u32 *const word = arena<true>() + bits;
    const u32 lane = lane_id();
    if (!has(r, 3)) return;
    const u32 K = r.in[r.at] | r.in[r.at + 1] << 8 | r.in[r.at + 2] << 16;
    const u8 *const low = r.in + r.at + 3;
    r.at += 3;
    if (K < 1 || K > n) r.error = CORRUPT;
    if (r.error || !has(r, (K * shift + 7) >> 3)) return;
    check_unused_bits(r, r.at, K * shift);
    r.at += (K * shift + 7) >> 3;
    if (r.error) return;
    ROLLED for (u32 i = lane; i < words_of(n); i += 32) word[i] = polarity ? FULL : 0;
    __syncwarp();
    const u32 from = r.at, left = r.size - r.at;
    /* Ones so far; the next position; the bit behind the last one; bytes up to the K-th one. */
    u32 done = 0, position = 0, behind = 0, size = 0;
    ROLLED for (u32 base = 0; done < K; base += 32)
    {
        if (4 * base >= left) {
            r.error = CORRUPT;
            return;
        }
        const u32 here = 4 * (base + lane), first_bit = 8 * here;
        u32 w = 0;
        if (here < left) {
            w = load32(r.in + from + here);
            if (left - here < 4) w &= below(8 * (left - here));
        }
        const u32 ones = __popc(w), up = scan(ones), number = done + up - ones;
        /* The bit behind the last one of all earlier lanes. */
        const u32 some = __ballot_sync(FULL, w != 0), earlier = some & below(lane),
                  last = first_bit + 32 - __clz(w),
                  other = __shfl_sync(FULL, last, earlier ? 31 - __clz(earlier) : 0),
                  start = earlier ? other : behind;
        u32 total = 0, prev = start, x = w;
        ROLLED for (u32 j = number; x && j < K; j++, x &= x - 1)
        {
            const u32 bit = first_bit + __ffs(x) - 1, at = j * shift, quotient = bit - prev,
                      rest = load32(low + (at >> 3)) >> (at & 7) & below(shift);
            total += quotient > n >> shift ? n + 1 : (quotient << shift) + rest + 1;
            if (total > n) total = n + 1; /* refused below */
            prev = bit + 1;
        }
        const u32 sum = scan(total);
        u32 at = position + sum - total, bad = sum - total > n - position || at + total > n,
            stop = 0;
        prev = start;
        x = w;
        ROLLED for (u32 j = number; x && j < K && !bad; j++, x &= x - 1)
        {
            const u32 bit = first_bit + __ffs(x) - 1, low_at = j * shift;
            at += ((bit - prev) << shift) +
                  (load32(low + (low_at >> 3)) >> (low_at & 7) & below(shift));
            if (polarity) atomicXor(&word[at >> 5], 1u << (at & 31));
            else atomicOr(&word[at >> 5], 1u << (at & 31));
            at++;
            prev = bit + 1;
            if (j == K - 1) {
                /* no more ones may be in the last one's byte */
                stop = (bit >> 3) + 1;
                x &= x - 1;
                if (x && (first_bit + __ffs(x) - 1) >> 3 < stop) bad = 1;
                break;
            }
        }
        if (__ballot_sync(FULL, bad)) {
            r.error = CORRUPT;
            return;
        }
        const u32 who = __ballot_sync(FULL, stop != 0);
        size = __shfl_sync(FULL, stop, who ? __ffs(who) - 1 : 0);
        position += __shfl_sync(FULL, sum, 31);
        if (some) behind = __shfl_sync(FULL, last, 31 - __clz(some));
        done += __shfl_sync(FULL, up, 31);
    }
    r.at += size;
    __syncwarp();
}

/* Masks and trees at nesting NEST, 0 .. 2 (section 6.3). */
template <bool WIDE, u32 NEST> struct Nested {
    /* Reads a mask of n bits. Returns its place in the arena; part has its ones. */
    static __device__ __noinline__ u32 mask(Reader &r, u32 n, bool is_of_class)
    {
        const u32 bytes = (n + 7) >> 3, bits = alloc(r, mask_size<WIDE>(n));
        u32 mode = 0;
        if (r.error) return 0;
        if (n >= 256 && NEST < 2) {
            if (!has(r, 1)) return 0;
            mode = r.in[r.at++];
        }
        if (mode == 0) {
            if (!has(r, bytes)) return 0;
            check_unused_bits(r, r.at, n);
            if (r.error) return 0;
            copy_bits<WIDE>(r, r.at, n, bits);
            r.at += bytes;
            return bits;
        }
        if (mode <= 20) nested_mask(r, n, bits, (mode - 1) >> 1, (mode - 1) & 1 ? 255 : 0);
        else if (!WIDE || !is_of_class || mode > 64) r.error = CORRUPT;
        else read_gaps(r, n, bits, (mode - 21) >> 1, (mode - 21) & 1);
        if (r.error) return 0;
        copy_bits<WIDE>(r, FULL, n, bits);
        return bits;
    }

    static __device__ __noinline__ void nested_mask(Reader &r, u32 n, u32 bits, u32 level, u32 flip)
    {
        Shared<WIDE> &s = shared<WIDE>();
        const u32 used = r.used;
        Nested<WIDE, NEST + 1>::tree(r, r.tables->frozen_start[level], 256, false, (n + 7) >> 3,
                                     nested_nodes((u8 *)s.pool, NEST), NESTED_NODES);
        if (r.error) return;
        if (lane_id() == 0) s.bad = 0;
        __syncwarp();
        if (n < 4096) expand_mask<WIDE>(r.in, NEST, n, bits, flip, 1);
        else {
            if (lane_id() == 0) {
                s.job_nodes = NEST;
                s.job_n = n;
                s.job_bits = bits;
                s.job_flip = flip;
            }
            together<WIDE>(r, EXPAND_MASK);
        }
        __syncwarp();
        if (s.bad) r.error = CORRUPT; /* written again only behind copy_bits's barrier */
        r.used = used;                /* its masks are not needed any more */
    }

    /* Reads the tree of n_leaves leaves over n bytes to nodes (section 6.2), in pre-order.
     * start[n_leaves] is 2^15. The stack has at most one entry for each depth, and the entry that
     * is taken next. Returns how many nodes have bytes. */
    static __device__ __noinline__ u32 tree(Reader &r, const u16 *start, u32 n_leaves, bool escape,
                                            u32 n, Node *nodes, u32 max_nodes)
    {
        Shared<WIDE> &s = shared<WIDE>();
        Pending *const stack = s.stack[NEST];
        const u32 lane = lane_id();
        u32 top = 1, count = 0;
        if (lane == 0) {
            const Pending root = {0, n, 0, 0, (u16)n_leaves, NONE, 0};
            stack[0] = root;
        }
        __syncwarp();
        while (top) {
            const Pending v = stack[--top];
            const u32 half = v.start + (1u << 14 >> v.depth),
                      first_size = start[v.first + 1] - start[v.first],
                      last_size = start[v.end] - start[v.end - 1],
                      /* a leaf of length L has 2^(15 - L) of the code space */
                flat = (u32)__clz(first_size) - 16 - v.depth;
            const bool has_escape = escape && v.end == n_leaves;
            u32 kind = MASK, bits = 0, src = 0, ones = 0, middle = 0;
            if (count == max_nodes) {
                WHY("nodes");
                r.error = NOT_HERE;
                return 0;
            }
            if (v.end - v.first == 1) {
                kind = has_escape ? ESCAPED : CONSTANT;
                src = r.at;
                if (has_escape && has(r, v.n)) r.at += v.n;
            } else if (!has_escape && first_size == last_size && flat >= 2 && flat <= 6) {
                const u32 size = (v.n + 7) >> 3;
                kind = FLAT;
                src = r.at; /* read where they are: each bit is needed once */
                if (has(r, flat * size)) {
                    ROLLED for (u32 d = 0; d < flat; d++) check_unused_bits(r, src + d * size, v.n);
                    r.at += flat * size;
                }
            } else {
                bits = Nested<WIDE, NEST>::mask(r, v.n, false);
                if (!r.error) ROLLED for (u32 w = 0; w < WARPS; w++) ones += s.part[w];
                u32 low = v.first + 1, high = v.end; /* the first leaf of the right child */
                while (low < high) {
                    const u32 m = (low + high) >> 1;
                    if (start[m] < half) low = m + 1;
                    else high = m;
                }
                middle = low;
            }
            if (r.error) return 0;
            /* A mask ends with a barrier, after the reads of the stack; other kinds push nothing
             * onto it. */
            const bool has_left = kind == MASK && ones < v.n, has_right = kind == MASK && ones != 0;
            if (lane == 0) {
                const Node node = {v.n,     bits,     src,         NONE,     NONE,        v.parent,
                                   v.first, (u8)kind, (u8)v.depth, (u8)flat, (u8)INACTIVE};
                nodes[count] = node;
                if (v.parent != NONE) {
                    if (v.is_right) nodes[v.parent].right = (u16)count;
                    else nodes[v.parent].left = (u16)count;
                }
                if (has_right) {
                    const Pending right = {half,       ones, (u16)(v.depth + 1), (u16)middle, v.end,
                                           (u16)count, 1};
                    stack[top] = right;
                }
                if (has_left) {
                    const Pending left = {v.start, v.n - ones,  (u16)(v.depth + 1),
                                          v.first, (u16)middle, (u16)count,
                                          0};
                    stack[top + has_right] = left;
                }
            }
            top += has_left + has_right;
            count++;
            __syncwarp();
        }
        return count;
    }
};
template <bool WIDE> struct Nested<WIDE, 3> { /* masks of nesting 2 are plain */
    static __device__ u32 tree(Reader &, const u16 *, u32, bool, u32, Node *, u32) { return 0; }
};

/* Reads a Tree_Header (section 6.1) to s.symbol[number] and s.start, which other lanes may read
 * after the next barrier. Returns the number of leaves, 0 after an error. */
template <bool WIDE> COLD u32 read_tree_header(Reader &r, u32 number, bool escape)
{
    Shared<WIDE> &s = shared<WIDE>();
    const u32 lane = lane_id();
    if (!has(r, 2)) return 0;
    const u32 first = r.in[r.at], count = r.in[r.at + 1] + 1u, fields = count + escape,
              bytes = (fields + 1) >> 1;
    const u8 *const length = r.in + r.at + 2;
    r.at += 2;
    if (first + count > 256) r.error = CORRUPT;
    if (r.error || !has(r, bytes)) return 0;
    r.at += bytes;
    if (fields & 1 && length[bytes - 1] >> 4) r.error = CORRUPT;
    if (!(length[0] & 15) || !(length[(count - 1) >> 1] >> 4 * ((count - 1) & 1) & 15))
        r.error = CORRUPT;
    u32 leaves = 0, start = 0, longest = 0;
    ROLLED for (u32 bits = 1; bits <= 15; bits++) ROLLED for (u32 i = 0; i < count; i += 32)
    {
        const u32 k = i + lane,
                  is_here = k < count && (u32)(length[k >> 1] >> 4 * (k & 1) & 15) == bits,
                  who = __ballot_sync(FULL, is_here), before = __popc(who & below(lane));
        if (is_here && start + (before << (15 - bits)) < 32768) {
            s.symbol[number][leaves + before] = (u8)(first + k);
            s.start[leaves + before] = (u16)(start + (before << (15 - bits)));
        }
        if (who) longest = bits;
        leaves += __popc(who);
        start += __popc(who) << (15 - bits);
    }
    if (escape) {
        const u32 bits = length[count >> 1] >> 4 * (count & 1) & 15;
        if (bits < longest || bits == 0) r.error = CORRUPT;
        if (lane == 0 && leaves < 257) s.start[leaves] = (u16)start;
        leaves++;
        start += 1u << (15 - bits);
    }
    if (leaves < 2 || leaves > 256 || start != 32768) r.error = CORRUPT;
    if (r.error) return 0;
    if (lane == 0) s.start[leaves] = 32768;
    return leaves;
}

/* Chooses the nodes of [first_node, end_node) that are made, in order of depth: all except
 * constants and nodes below a rare one. If these are too many, more nodes count as rare. */
template <bool WIDE> COLD void choose_active(Reader &r, List &list, u32 first_node, u32 end_node)
{
    Shared<WIDE> &s = shared<WIDE>();
    const u32 lane = lane_id(), n = s.node[first_node].n;
    if (list.first == MAX_ACTIVE) {
        WHY("active nodes");
        r.error = NOT_HERE;
        return;
    }
    for (u32 rare = (u32)((u64)n * RARE >> LOG2_CHUNK);; rare = 2 * rare + 1) {
        u32 end = list.first, most = 0;
        ROLLED for (u32 depth = 0; depth <= 15; depth++)
        {
            const u32 level = end;
            ROLLED for (u32 i = first_node; i < end_node; i += 32)
            {
                const u32 k = i + lane;
                bool is_active = false;
                if (k < end_node && s.node[k].depth == depth && s.node[k].kind != CONSTANT)
                    is_active = depth == 0 || s.node[s.node[k].parent].n > rare;
                const u32 who = __ballot_sync(FULL, is_active), a = end + __popc(who & below(lane));
                if (is_active && a < MAX_ACTIVE) {
                    s.active[a] = (u16)k;
                    s.level[a] = (u8)level;
                    s.node[k].active = (u8)a;
                    if (s.node[k].kind == MASK && s.node[k].n <= rare) s.node[k].kind = WALKED;
                }
                end += __popc(who);
            }
            if (end - level > most) most = end - level;
        }
        if (lane == 0) {
            list.end = end;
            list.level_nodes = most;
        }
        __syncwarp();
        if (end <= MAX_ACTIVE) return;
        LMC_COUNT(10, lane == 0);
    }
}

/* Reads list `number`, of n > 0 bytes (section 6). Its nodes are node[first_node ..]; returns the
 * end of these. */
template <bool WIDE>
COLD u32 read_list(Reader &r, u32 number, u32 n, u32 first_node, u32 first_active)
{
    Shared<WIDE> &s = shared<WIDE>();
    List &list = s.list[number];
    u32 end = first_node;
    if (!has(r, 1)) return 0;
    const u32 mode = r.in[r.at++];
    if (mode > 3) r.error = CORRUPT;
    if (r.error) return 0;
    if (lane_id() == 0) {
        list.kind = mode == 0 ? ESCAPED : mode == 1 ? CONSTANT : MASK;
        list.src = r.at;
        list.first = list.end = first_active;
        list.level_nodes = 0;
        list.value = mode == 1 && r.at < r.size ? r.in[r.at] : 0;
    }
    __syncwarp();
    if (mode < 2) {
        const u32 size = mode == 0 ? n : 1;
        if (has(r, size)) r.at += size;
        return end;
    }
    const u32 leaves = read_tree_header<WIDE>(r, number, mode == 3);
    if (r.error) return 0;
    const u32 nodes = Nested<WIDE, 0>::tree(r, s.start, leaves, mode == 3, n, s.node + first_node,
                                            Kind<WIDE>::MAX_NODES - first_node);
    if (r.error) return 0;
    end += nodes;
    /* tree() numbers children and parents from the root. choose_active takes each node in the same
     * lane as this loop, so no barrier is needed. */
    if (first_node) {
        ROLLED for (u32 k = first_node + lane_id(); k < end; k += 32)
        {
            Node &v = s.node[k];
            if (v.parent != NONE) v.parent = (u16)(v.parent + first_node);
            if (v.left != NONE) v.left = (u16)(v.left + first_node);
            if (v.right != NONE) v.right = (u16)(v.right + first_node);
        }
    }
    choose_active<WIDE>(r, list, first_node, end);
    return end;
}

/* ---- Elements without a prediction, from planes whose bytes are in the pool or in the payload. 8
 * elements are a piece: a lane joins it, stores it, and computes its CRC. */

template <int W> DEV void join_piece(u32 *v, const uint2 *plane)
{
    const uint2 a = plane[0], b = plane[1 % W], c = plane[2 % W], d = plane[3 % W];
    if constexpr (W == 1) {
        v[0] = a.x;
        v[1] = a.y;
    } else if constexpr (W == 2) {
        v[0] = __byte_perm(a.x, b.x, 0x5140);
        v[1] = __byte_perm(a.x, b.x, 0x7362);
        v[2] = __byte_perm(a.y, b.y, 0x5140);
        v[3] = __byte_perm(a.y, b.y, 0x7362);
    } else {
        UNROLLED for (u32 h = 0; h < 2; h++)
        {
            const u32 A = h ? a.y : a.x, B = h ? b.y : b.x, C = h ? c.y : c.x, D = h ? d.y : d.x,
                      ab = __byte_perm(A, B, 0x5140), cd = __byte_perm(C, D, 0x5140);
            const u32 more_ab = __byte_perm(A, B, 0x7362), more_cd = __byte_perm(C, D, 0x7362);
            v[4 * h] = __byte_perm(ab, cd, 0x5410);
            v[4 * h + 1] = __byte_perm(ab, cd, 0x7632);
            v[4 * h + 2] = __byte_perm(more_ab, more_cd, 0x5410);
            v[4 * h + 3] = __byte_perm(more_ab, more_cd, 0x7632);
        }
    }
}

/* Residuals to elements where the prediction is 0 (section 5.1). Then order 2 is a rotation. */
template <int W> DEV void restore_piece(u32 *v, u32 order)
{
    const u32 low = W == 1 ? 0x01010101 : W == 2 ? 0x00010001 : 1;
    if (order == 0) return;
    UNROLLED for (u32 i = 0; i < 2 * W; i++)
    {
        const u32 odd = v[i] & low, half = (v[i] ^ odd) >> 1;
        v[i] = order == 1 ? half ^ odd * (W == 1   ? 0xFF
                                          : W == 2 ? 0xFFFF
                                                   : FULL)
                          : half | odd << (8 * W - 1) % 32;
    }
}

/* Stores count elements, at most 8. out is aligned to the element's width. */
template <int W> DEV void store_piece(u8 *out, const u32 *v, u32 count)
{
    const u32 low = (u32)(u64)out;
    if (count == 8 && low % (W == 1 ? 8 : 16) == 0) {
        if constexpr (W == 1) *(uint2 *)out = make_uint2(v[0], v[1]);
        else
            UNROLLED for (u32 i = 0; i < 2 * W; i += 4) * (uint4 *)(out + 4 * i) =
                make_uint4(v[i], v[i + 1], v[i + 2], v[i + 3]);
        return;
    }
    UNROLLED for (u32 i = 0; i < 8; i++)
    {
        if (i >= count) break;
        if (W == 1) out[i] = (u8)(v[i / 4] >> 8 * (i % 4));
        else if (W == 2) ((u16 *)out)[i] = (u16)(v[i / 2] >> 16 * (i % 2));
        else ((u32 *)out)[i] = v[i % (2 * W)];
    }
}

/* Loads count elements of the payload, from any address. */
template <int W> DEV void load_stored(u32 *v, const u8 *in, u32 count)
{
    UNROLLED for (u32 j = 0; j < 2 * W; j += 2)
    {
        if (4 * j >= count * W) break; /* the payload has no more */
        const uint2 two = load64(in + 4 * j);
        v[j] = two.x;
        v[j + 1] = two.y;
    }
}

/* The CRC of pieces: a lane's pieces are 32 apart, and each word of a piece has its own state.
 * sum_pieces adds up a lane's states. behind: the end of the lane's last piece, or 0; size: of all
 * pieces. */
template <bool WIDE, int W> DEV void add_piece(u32 *state, const u32 *v, bool is_first)
{
    UNROLLED for (u32 j = 0; j < 2 * W; j++) state[j] =
        advance<WIDE>(state[j]) ^ v[j] ^ (j == 0 && is_first ? FULL : 0);
}
template <int W> DEV u32 sum_pieces(const Tables *t, const u32 *state, u32 behind, u32 size)
{
    u32 sum = 0;
    if (!behind) return 0;
    UNROLLED for (u32 j = 0; j < 2 * W; j++) sum = times_word(t, sum ^ state[j]);
    return move_crc(t, sum, size - behind);
}
/* Checks the CRC of all bytes; s.crc already covers whole pieces. */
template <bool WIDE> DEV bool is_content_right(const u8 *out, u32 whole, u32 size, u32 content_crc)
{
    u32 crc = whole ? shared<WIDE>().crc : FULL;
    ROLLED for (u32 i = whole; i < size; i++) crc = crc_byte(crc, out[i]);
    return ~crc == content_crc;
}

/* Gives the lists of lmc_decode_planes their memory in the arena and the pools: takes the largest
 * chunks whose buffers fit, one for each tree and one for work. */
DEV void choose_chunks(Reader &r, u32 n, u32 trees, u32 n_active, u32 level_nodes)
{
    Shared<false> &s = shared<false>();
    const u32 extra = 8 * level_nodes + 16; /* nodes are padded to 8, loads reach a bit further */
    u32 log2_chunk = LOG2_CHUNK;
    while (log2_chunk > 8 && (trees + 1) * ((1u << log2_chunk) + extra) > POOL) log2_chunk--;
    if ((trees + 1) * ((1u << log2_chunk) + extra) > POOL) {
        WHY("trees");
        r.error = NOT_HERE;
        return;
    }
    const u32 borders = ((n + (1u << log2_chunk) - 1) >> log2_chunk) + 1,
              pos = alloc(r, (n_active * borders + 1) >> 1);
    if (lane_id() == 0) {
        s.log2_chunk = log2_chunk;
        s.work_buffer = trees * ((1u << log2_chunk) + extra);
        s.pos = pos;
        u32 stage = 0;
        ROLLED for (u32 j = 0; j < 4; j++) if (s.list[j].kind == MASK)
        {
            s.list[j].stage = stage;
            stage += (1u << log2_chunk) + extra;
        }
    }
}

/* The bytes of a plane for piece g of a chunk, elements i .. i + 7. */
DEV uint2 plane_piece(const u8 *in, u32 j, u32 i, u32 g)
{
    const Shared<false> &s = shared<false>();
    const List &list = s.list[j];
    if (list.kind == MASK) return s.pool[warp_id()][(list.stage >> 3) + g];
    if (list.kind == CONSTANT)
        return make_uint2(list.value * 0x01010101u, list.value * 0x01010101u);
    return load64(in + list.src + i);
}

/* Makes all elements of the block whose lists the first warp has read; then sets s.status. */
template <int W> COLD void make_elements(const u8 *in, u8 *out, u32 content_crc, const Tables *t)
{
    enum : u32 { PIECE = 8 * W, WORDS = 2 * W };
    Shared<false> &s = shared<false>();
    const u32 lane = lane_id(), warp = warp_id(), n = s.n, log2_chunk = s.log2_chunk,
              chunks = (n + (1u << log2_chunk) - 1) >> log2_chunk,
              share = (chunks + WARPS - 1) / WARPS, first = warp * share,
              end = min_u32(first + share, chunks);
    if (!s.stored) {
        ROLLED for (u32 j = 0; j < W; j++) if (s.list[j].kind == MASK)
            set_borders<false>(s.list[j], n, log2_chunk);
        BARRIER();
    }
    u32 state[WORDS] = {}, behind = 0; /* behind: byte behind the lane's last whole piece */
    ROLLED for (u32 chunk = first; chunk < end; chunk++)
    {
        if (!s.stored) {
            ROLLED for (u32 j = 0; j < W; j++) if (s.list[j].kind == MASK) make_chunk<false>(
                in, s.symbol[j], s.list[j], chunk, chunks + 1, s.list[j].stage, s.work_buffer);
        }
        const u32 from = chunk << log2_chunk, count = min_u32(n - from, 1u << log2_chunk);
        ROLLED for (u32 g = lane; 8 * g < count; g += 32)
        {
            const u32 i = from + 8 * g, here = min_u32(n - i, 8);
            u32 v[WORDS];
            LMC_COUNT(8, 1);
            LMC_COUNT(15, lane == 0);
            if (s.stored) load_stored<W>(v, in + i * W, here);
            else {
                uint2 plane[W];
                UNROLLED for (u32 j = 0; j < W; j++) plane[j] = plane_piece(in, j, i, g);
                join_piece<W>(v, plane);
                restore_piece<W>(v, s.order);
            }
            store_piece<W>(out + (u64)i * W, v, here);
            if (here < 8) continue;
            add_piece<false, W>(state, v, i == 0);
            behind = (i + 8) * W;
        }
    } /* make_chunk has a barrier before it writes to the pool again */
    const u32 whole = n / 8 * PIECE;
    add_crc<false>(sum_pieces<W>(t, state, behind, whole));
    BARRIER();
    if (threadIdx.x == 0 && !is_content_right<false>(out, whole, n * W, content_crc))
        s.status = CHECKSUM;
}

/* ---- Elements of lmc_decode_any of several classes, or of 8 bytes: one in each lane. Each warp
 * goes through its part row by row, so that running counts give the number of an element in its
 * class. */

template <int W> struct Element {
    typedef u32 T;
};
template <> struct Element<8> {
    typedef u64 T;
};
template <int W> DEV typename Element<W>::T load_element(const u8 *p, u32 i)
{
    if (W == 1) return p[i];
    if (W == 2) return ((const u16 *)p)[i];
    if (W == 4) return ((const u32 *)p)[i];
    return (typename Element<W>::T)((const u64 *)p)[i];
}
template <int W> DEV void store_element(u8 *p, u32 i, typename Element<W>::T v)
{
    if (W == 1) p[i] = (u8)v;
    else if (W == 2) ((u16 *)p)[i] = (u16)v;
    else if (W == 4) ((u32 *)p)[i] = (u32)v;
    else ((u64 *)p)[i] = v;
}

struct Part {
    u32 from, end;
};
DEV Part part_of(u32 n, u32 row) /* row: elements of a warp's row */
{
    const u32 share = (n + WARPS * row - 1) / (WARPS * row) * row;
    Part part;
    part.from = min_u32(warp_id() * share, n);
    part.end = min_u32(part.from + share, n);
    return part;
}

/* The class of prediction b (section 5.2). */
template <int W> DEV u32 class_of(typename Element<W>::T b)
{
    const u32 key = W == 1 ? (u32)(b << 1 | b >> 7) : (u32)(b >> (W == 1 ? 0 : 8 * W - 9));
    return shared<true>().class_of[key & 255];
}

/* Of a row: the lanes of the same class as this lane; and, in lane c, the lanes of class c. */
struct Peers {
    u32 mine, of_class;
};
DEV Peers peers_of(u32 valid, u32 c, u32 class_bits)
{
    Peers peers = {valid, valid};
    ROLLED for (u32 k = 0; k < class_bits; k++)
    {
        const u32 bit = __ballot_sync(FULL, c >> k & 1);
        peers.mine &= c >> k & 1 ? bit : ~bit;
        peers.of_class &= lane_id() >> k & 1 ? bit : ~bit;
    }
    return peers;
}

template <int W> DEV void count_classes()
{
    Shared<true> &s = shared<true>();
    const u32 lane = lane_id();
    const Part part = part_of(s.n, 32);
    u32 count = 0;
    ROLLED for (u32 row = part.from; row < part.end; row += 32)
    {
        const bool is_here = row + lane < part.end;
        const u32 c = is_here ? class_of<W>(load_element<W>(s.base, row + lane)) : 0;
        count += __popc(peers_of(__ballot_sync(FULL, is_here), c, s.class_bits).of_class);
    }
    if (lane < s.n_classes) s.count[warp_id()][lane] = count;
}

/* From residual r and prediction b (section 5.1). */
template <int W>
DEV typename Element<W>::T restore(typename Element<W>::T r, typename Element<W>::T b, u32 order)
{
    typedef typename Element<W>::T T;
    const T sign = (T)1 << (8 * W - 1), below_sign = sign - 1, all = sign | below_sign;
    if (order == 0) return r;
    const T difference = (r >> 1) ^ (0 - (r & 1));
    if (order == 1) return (b + difference) & all;
    const T total = ((b & below_sign) + difference) & all;
    return (b & sign) ^ (total & sign ? total ^ below_sign : total);
}

/* The residual of element i of class c; number: its number among coded elements. */
template <int W> DEV typename Element<W>::T residual_of(u32 c, u32 number, u32 i, u32 natural)
{
    typedef typename Element<W>::T T;
    T residual = 0;
    UNROLLED for (u32 p = 0; p < W; p++)
    {
        const bool is_natural = p < natural;
        const Side side = shared<true>().side[is_natural ? 0 : c][p];
        residual |= (T)side.p[(is_natural ? i : number) * side.stride] << 8 * p;
    }
    return residual;
}

template <int W> COLD void make_delta_elements(u8 *out, const Tables *t)
{
    typedef typename Element<W>::T T;
    Shared<true> &s = shared<true>();
    const u32 lane = lane_id(), n = s.n, n_classes = s.n_classes, class_bits = s.class_bits,
              order = s.order, natural = s.natural;
    const bool sparse = s.sparse;
    const u8 *const base = s.base;
    const Part part = part_of(n, 32);
    /* In lane c: elements of class c up to here, and how many are coded. */
    u32 seen = part.from, coded_seen = 0, state = 0, high_state = 0, behind = 0;
    if (n_classes > 1) {
        seen = 0;
        if (lane < n_classes) ROLLED for (u32 w = 0; w < warp_id(); w++) seen += s.count[w][lane];
    }
    if (sparse && lane < n_classes && s.mask_n[lane])
        coded_seen = ones_before<true>(s.mask[lane], ranks_at(s.mask[lane], s.mask_n[lane]), seen,
                                       arena<true>()[s.mask[lane] + (seen >> 5)]);
    ROLLED for (u32 row = part.from; row < part.end; row += 32)
    {
        const u32 i = row + lane;
        const bool is_here = i < part.end;
        const T b = is_here && base ? load_element<W>(base, i) : 0;
        const u32 c = n_classes > 1 && is_here ? class_of<W>(b) : 0;
        const Peers peers = peers_of(__ballot_sync(FULL, is_here), c, class_bits);
        u32 number = __shfl_sync(FULL, seen, c) + __popc(peers.mine & below(lane));
        bool is_coded = is_here;
        seen += __popc(peers.of_class);
        if (sparse) {
            if (is_here) is_coded = arena<true>()[s.mask[c] + (number >> 5)] >> (number & 31) & 1;
            const u32 coded = __ballot_sync(FULL, is_coded);
            number = __shfl_sync(FULL, coded_seen, c) + __popc(peers.mine & coded & below(lane));
            coded_seen += __popc(peers.of_class & coded);
        }
        T v = b;
        if (is_coded) v = restore<W>(residual_of<W>(c, number, i, natural), b, order);
        LMC_COUNT(16, lane == 0);
        if (is_here) {
            store_element<W>(out, i, v);
            if (i * W < 4) v ^= W < 4 ? (1u << 8 * W % 32) - 1 : FULL;
            state = advance<true>(state) ^ (u32)v << (W < 4 ? 32 - 8 * W : 0);
            if (W == 8) high_state = advance<true>(high_state) ^ (u32)((u64)v >> 32);
            behind = (i + 1) * W;
        }
    }
    u32 sum = 0;
    if (behind) {
        sum = times_word(t, state);
        if (W == 8) sum = times_word(t, sum ^ high_state);
        sum = move_crc(t, sum, n * W - behind);
    }
    add_crc<true>(sum);
}

/* ---- Elements of lmc_decode_any of one class, in pieces: ranks of the mask say which of the coded
 * elements is the first of a piece, so no lane waits for another. */

/* Puts element i into a piece, where it was 0. v stays in registers: no index of it is computed. */
template <int W> DEV void put_element(u32 *v, u32 i, u32 element)
{
    UNROLLED for (u32 j = 0; j < 2 * W; j++) if (j == i * W / 4) v[j] |= element << 8 * (i * W % 4);
}

/* Section 5.1 for the elements of a word, side by side: residuals r, predictions b, Order 1 or 2.
 * Where a residual is 0, the prediction stays. */
template <int W> DEV u32 restore_word(u32 r, u32 b, u32 order)
{
    const u32 low = W == 1 ? 0x01010101 : W == 2 ? 0x00010001 : 1, sign = low << (8 * W - 1),
              all = W == 1 ? 0xFF : W == 2 ? 0xFFFF : FULL, odd = r & low,
              difference = ((r ^ odd) >> 1) ^ odd * all,
              kept = order == 2 ? b & sign : 0, from = b ^ kept,
              total = ((from & ~sign) + (difference & ~sign)) ^ ((from ^ difference) & sign),
              negative = order == 2 ? total & sign : 0;
    return total ^ kept ^ (negative - (negative >> (8 * W - 1)));
}

/* Loads count elements, as store_piece stores them; the rest is 0. */
template <int W> DEV void load_piece(u32 *v, const u8 *p, u32 count)
{
    if (count == 8 && (u32)(u64)p % (W == 1 ? 8 : 16) == 0) {
        if constexpr (W == 1) {
            const uint2 two = *(const uint2 *)p;
            v[0] = two.x;
            v[1] = two.y;
        } else
            UNROLLED for (u32 i = 0; i < 2 * W; i += 4)
            {
                const uint4 four = *(const uint4 *)(p + 4 * i);
                v[i] = four.x;
                v[i + 1] = four.y;
                v[i + 2] = four.z;
                v[i + 3] = four.w;
            }
        return;
    }
    UNROLLED for (u32 j = 0; j < 2 * W; j++) v[j] = 0;
    ROLLED for (u32 i = 0; i < count; i++) put_element<W>(v, i, load_element<W>(p, i));
}

/* The residuals of 8 coded neighbours, from `number` on. */
template <int W> DEV void join_sides(u32 *v, u32 number)
{
    const Shared<true> &s = shared<true>();
    uint2 plane[W];
    if (s.stored) {
        load_stored<W>(v, s.side[0][0].p + (u64)number * W, 8);
        return;
    }
    UNROLLED for (u32 p = 0; p < W; p++)
    {
        const Side side = s.side[0][p];
        const u32 value = side.stride ? 0 : *side.p * 0x01010101u;
        /* behind a row of the arena are its chunks' borders, behind a payload its pad */
        plane[p] = side.stride ? load64(side.p + number) : make_uint2(value, value);
    }
    join_piece<W>(v, plane);
}

template <int W> COLD void make_delta_pieces(u8 *out, const Tables *t)
{
    const Shared<true> &s = shared<true>();
    const u8 *const base = s.base;
    const u32 n = s.n, order = s.order, ranks = ranks_at(s.mask[0], n);
    const Part part = part_of(n, 256);
    u32 state[2 * W] = {}, behind = 0;
    ROLLED for (u32 i = part.from + 8 * lane_id(); i < part.end; i += 256)
    {
        const u32 here = min_u32(n - i, 8);
        u32 v[2 * W], coded = (1u << here) - 1, number = i;
        LMC_COUNT(15, lane_id() == 0);
        if (s.sparse) {
            const u32 w = arena<true>()[s.mask[0] + (i >> 5)];
            coded = w >> (i & 31) & 255;
            if (coded) number = ones_before<true>(s.mask[0], ranks, i, w);
        }
        load_piece<W>(v, (base ? base : out) + (u64)i * W, base ? here : 0);
        if (coded) {
            u32 r[2 * W] = {};
            if (coded == 255) join_sides<W>(r, number);
            else
                ROLLED for (; coded; coded &= coded - 1, number++)
                {
                    put_element<W>(r, __ffs(coded) - 1, residual_of<W>(0, number, i, 0));
                    LMC_COUNT(17, 1);
                }
            UNROLLED for (u32 j = 0; j < 2 * W; j++) v[j] =
                order ? restore_word<W>(r[j], v[j], order) : r[j];
        }
        store_piece<W>(out + (u64)i * W, v, here);
        if (here < 8) continue;
        add_piece<true, W>(state, v, i == 0);
        behind = (i + 8) * W;
    }
    add_crc<true>(sum_pieces<W>(t, state, behind, n / 8 * 8 * W));
}

/* Adds the CRC of the payload's whole words to s.crc; the first word is xored with FULL. */
DEV void add_payload_crc(const Reader &r)
{
    const u32 words = r.size >> 2, share = (words + THREADS - 1) / THREADS * 32,
              from = warp_id() * share, end = min_u32(from + share, words);
    u32 state = 0, behind = 0;
    load_advance<true>(r.tables, 2);
    BARRIER();
    ROLLED for (u32 k = from + lane_id(); k < end; k += 32)
    {
        state = advance<true>(state) ^ load32(r.in + 4 * k) ^ (k ? 0 : FULL);
        behind = k + 1;
    }
    if (behind) state = move_crc(r.tables, times_word(r.tables, state), 4 * (words - behind));
    add_crc<true>(state);
}

/* f<W> for width 1, 2 or 4; FOR_WIDTH: 8, too. */
#define FOR_NARROW_WIDTH(width, f, arguments)                                                      \
    do {                                                                                           \
        if ((width) == 2) f<2> arguments;                                                          \
        else if ((width) == 4) f<4> arguments;                                                     \
        else f<1> arguments;                                                                       \
    } while (0)
#define FOR_WIDTH(width, f, arguments)                                                             \
    do {                                                                                           \
        if ((width) == 8) f<8> arguments;                                                          \
        else FOR_NARROW_WIDTH(width, f, arguments);                                                \
    } while (0)

/* Each warp does its part of a job; then there is a barrier. */
DEV void work_wide(const Reader &r, u32 job)
{
    if (job == CHECK_PAYLOAD) add_payload_crc(r);
    else if (job == COUNT_CLASSES) FOR_WIDTH(shared<true>().width, count_classes, ());
    else if (job == MAKE_ROW) make_row(r.in);
}
template <bool WIDE> COLD void work(const Reader &r)
{
    const Shared<WIDE> &s = shared<WIDE>();
    const u32 job = s.job;
    if (job == COPY_MASK) copy_mask<WIDE>(r.in, s.job_src, s.job_n, s.job_bits, WARPS);
    else if (job == EXPAND_MASK)
        expand_mask<WIDE>(r.in, s.job_nodes, s.job_n, s.job_bits, s.job_flip, WARPS);
    else if (WIDE) work_wide(r, job);
    BARRIER();
}

/* ---- A block. */

/* Checks the header in the order of section 5. Returns a status; NOT_HERE comes last. */
template <bool WIDE> COLD u32 check_header(const Block &job, const Tables *t)
{
    const u8 *const h = (const u8 *)job.in;
    const u32 width = h[1], order = h[2] & 3, layout = h[2] >> 5, predicted = h[2] >> 2 & 1,
              n_classes = (h[3] & 15) + 1, sparse = h[3] >> 4 & 1, natural = h[3] >> 5;
    const u64 size = (u64)get32(h + 4) * width, payload = get32(h + 8);
    u32 crc = times_word(t, FULL ^ job.number);
    if (h[0] != 0xB2) return CORRUPT;
    ROLLED for (u32 i = 0; i < 20; i += 4) crc = times_word(t, crc ^ get32(h + i));
    if (~crc != get32(h + 20)) return CHECKSUM;
    if ((width != 1 && width != 2 && width != 4 && width != 8) || order == 3 || h[2] & 0x18 ||
        layout > 5)
        return UNSUPPORTED;
    if (size == 0 || size > MAX_SIZE || size != job.out_size) return CORRUPT;
    if (predicted ? !(job.flags & RUN_PREDICTED) : h[3] || get32(h + 16))
        return CORRUPT;
    if (layout == 0 ? payload != size || order || predicted || h[3] : payload >= size)
        return CORRUPT;
    if (layout == 1 && predicted && !order) return CORRUPT;
    if (layout == 4 && !order) return CORRUPT;
    if (layout >= 3 && predicted) return CORRUPT;
    if ((layout == 2 || layout == 5) && (width == 1 || width == 8 || order || h[3]))
        return CORRUPT;
    if (natural && (natural >= width || n_classes == 1 || sparse)) return CORRUPT;
    if (h[3] && !(job.flags & MAY_GROUP)) return CORRUPT;
    if (layout == 2 && !(job.flags & MAY_QUANTIZE)) return CORRUPT;
    if (layout == 3 && !(job.flags & MAY_PART)) return CORRUPT;
    if (layout == 4 && !(job.flags & MAY_MATRIX)) return CORRUPT;
    if (layout == 5 && !(job.flags & MAY_CODES)) return CORRUPT;
    if (payload != job.in_size - HEADER)
        return payload > job.in_size - HEADER ? TRUNCATED : CORRUPT;
    if (layout >= 2 || ((job.out | (predicted ? job.base : 0)) & (width - 1))) return NOT_HERE;
    if (!WIDE && (predicted || width == 8 || size > MAX_NARROW * width)) return NOT_HERE;
    return OK;
}

/* Reads the lists of a block of lmc_decode_planes. */
DEV void read_planes(Reader &r, u32 width)
{
    Shared<false> &s = shared<false>();
    u32 nodes = 0, trees = 0, active = 0, level_nodes = 0;
    if (s.stored) {
        r.at = r.size;
        return;
    }
    if (lane_id() < 4) s.list[lane_id()].kind = CONSTANT; /* list 0's barrier is before list 1 */
    ROLLED for (u32 j = 0; j < width && !r.error; j++)
    {
        nodes = read_list<false>(r, j, s.n, nodes, active);
        if (r.error) return;
        const List &list = s.list[j];
        trees += list.kind == MASK;
        active = list.end;
        if (list.level_nodes > level_nodes) level_nodes = list.level_nodes;
    }
    if (r.at != r.size) r.error = CORRUPT;
    else choose_chunks(r, s.n, trees, active, level_nodes);
}

/* Reads a list of m > 0 bytes; s.side[c][p] gets the place of its bytes. The bytes of a tree are
 * made in a row of the arena. */
DEV void read_side(Reader &r, u32 c, u32 p, u32 m)
{
    Shared<true> &s = shared<true>();
    const bool is_tree = r.at < r.size && r.in[r.at] >= 2;
    const u32 row = is_tree ? alloc(r, (m + 7) / 8 * 2) : 0, used = r.used;
    if (r.error) return;
    read_list<true>(r, 0, m, 0, 0);
    if (r.error) return;
    const List &list = s.list[0];
    Side side = {r.in + list.src, list.kind == ESCAPED};
    if (is_tree) {
        const u32 extra = 8 * list.level_nodes + 16;
        u32 log2_chunk = LOG2_CHUNK;
        while ((1u << log2_chunk) + extra > POOL / 2) log2_chunk--;
        const u32 borders = ((m + (1u << log2_chunk) - 1) >> log2_chunk) + 1,
                  pos = alloc(r, (list.end - list.first) * borders);
        if (r.error) return;
        side.p = (const u8 *)(arena<true>() + row);
        side.stride = 1;
        if (lane_id() == 0) {
            s.log2_chunk = log2_chunk;
            s.pos = pos;
            s.row = (u8 *)(arena<true>() + row);
            s.job_n = m;
        }
        together<true>(r, MAKE_ROW);
        r.used = used;
    }
    if (lane_id() == 0) s.side[c][p] = side;
    __syncwarp();
}

/* Reads thresholds, and counts the elements of each class (section 5.2): of class c in lane c. */
DEV u32 read_classes(Reader &r)
{
    Shared<true> &s = shared<true>();
    const u32 lane = lane_id(), n_classes = s.n_classes;
    const u8 *const threshold = r.in + r.at;
    if (n_classes == 1) return lane == 0 ? s.n : 0;
    if (!has(r, n_classes - 1)) return 0;
    r.at += n_classes - 1;
    ROLLED for (u32 c = 0; c + 1 < n_classes; c++) if (threshold[c] <= (c ? threshold[c - 1] : 0))
        r.error = CORRUPT;
    if (r.error) return 0;
    ROLLED for (u32 key = lane; key < 256; key += 32)
    {
        u32 c = 0;
        while (c + 1 < n_classes && key >= threshold[c]) c++;
        s.class_of[key] = (u8)c;
    }
    together<true>(r, COUNT_CLASSES);
    u32 count = 0;
    if (lane < n_classes) ROLLED for (u32 w = 0; w < WARPS; w++) count += s.count[w][lane];
    return count;
}

/* Reads the payload of a block of lmc_decode_any: all its sides. */
DEV void read_payload(Reader &r, const Block &job, u32 width)
{
    Shared<true> &s = shared<true>();
    const u8 *const h = (const u8 *)job.in;
    const u32 lane = lane_id();
    if (s.stored) {
        if (lane < width) {
            const Side side = {r.in + lane, width};
            s.side[0][lane] = side;
        }
        r.at = r.size;
        return;
    }
    if (h[2] >> 2 & 1) {
        together<true>(r, CHECK_PAYLOAD);
        u32 crc = r.size < 4 ? FULL : s.crc;
        ROLLED for (u32 i = r.size & ~3u; i < r.size; i++) crc = crc_byte(crc, r.in[i]);
        if (~crc != get32(h + 16)) r.error = CHECKSUM;
        else if (!job.base) r.error = BASE_MISSING;
        __syncwarp();
        if (lane == 0) {
            s.crc = 0;
            s.is_payload_right = !r.error;
        }
        if (r.error) return;
    }
    u32 count = read_classes(r);
    if (r.error) return;
    if (s.sparse) {
        u32 coded = 0;
        ROLLED for (u32 c = 0; c < s.n_classes; c++)
        {
            const u32 n = __shfl_sync(FULL, count, c);
            u32 bits = 0, ones = 0;
            if (n) {
                bits = Nested<true, 0>::mask(r, n, true);
                if (r.error) return;
                ROLLED for (u32 w = 0; w < WARPS; w++) ones += s.part[w];
            }
            if (lane == c) coded = ones;
            __syncwarp();
            if (lane == 0) {
                s.mask[c] = bits;
                s.mask_n[c] = n;
            }
        }
        count = coded;
    }
    ROLLED for (u32 p = 0; p < s.natural; p++)
    {
        const Side side = {r.in + r.at, 1};
        if (!has(r, s.n)) return;
        r.at += s.n;
        if (lane == 0) s.side[0][p] = side;
    }
    ROLLED for (u32 c = 0; c < s.n_classes; c++)
    {
        const u32 m = __shfl_sync(FULL, count, c);
        ROLLED for (u32 p = s.natural; p < width && m; p++)
        {
            read_side(r, c, p, m);
            if (r.error) return;
        }
    }
    if (r.at != r.size) r.error = CORRUPT;
}

/* What the threads must know of the header before the first warp has checked it: nothing of it
 * becomes an address. */
template <bool WIDE> DEV void begin(const u8 *h, u32 width, const Tables *t)
{
    Shared<WIDE> &s = shared<WIDE>();
    if (!WIDE) load_advance<WIDE>(t, log2_width(width) + 3);
    if (threadIdx.x == 0) {
        s.status = OK;
        s.crc = 0;
        s.n = get32(h + 4);
        s.width = width;
        s.order = h[2] & 3;
        s.stored = h[2] >> 5 == 0;
        s.log2_chunk = LOG2_CHUNK;
    }
}
DEV void begin_delta(const Block &job, const u8 *h, u8 *scratch)
{
    Shared<true> &s = shared<true>();
    if (threadIdx.x == 0) {
        s.scratch = scratch;
        s.base = h[2] >> 2 & 1 ? (const u8 *)job.base : 0;
        s.n_classes = (h[3] & 15) + 1;
        s.class_bits = 32 - __clz(h[3] & 15);
        s.sparse = h[3] >> 4 & 1;
        s.natural = h[3] >> 5;
        s.is_payload_right = 0;
    }
}

DEV void finish_delta(const Block &job, const u8 *h, const Tables *t)
{
    Shared<true> &s = shared<true>();
    const u8 *const out = (const u8 *)job.out;
    const bool is_in_pieces = s.n_classes == 1 && s.width < 8;
    const u32 whole = is_in_pieces       ? s.n / 8 * 8 * s.width
                      : job.out_size < 4 ? 0
                                         : job.out_size;
    load_advance<true>(t, log2_width(s.width) + (is_in_pieces ? 3 : 0));
    BARRIER();
    if (is_in_pieces) FOR_NARROW_WIDTH(s.width, make_delta_pieces, ((u8 *)job.out, t));
    else FOR_WIDTH(s.width, make_delta_elements, ((u8 *)job.out, t));
    BARRIER();
    if (threadIdx.x == 0 && !is_content_right<true>(out, whole, job.out_size, get32(h + 12)))
        s.status = CHECKSUM;
}

/* All threads of the group call this; groups share nothing. */
template <bool WIDE>
DEV void decode_block(const Block &job, u32 *status, const Tables *t, u8 *scratch, u64 scratch_size)
{
    Shared<WIDE> &s = shared<WIDE>();
    const u8 *const h = (const u8 *)job.in;
    if (job.in_size < HEADER) {
        if (threadIdx.x == 0) *status = TRUNCATED;
        return;
    }
    const u32 width = h[1];
    begin<WIDE>(h, width, t);
    if constexpr (WIDE) begin_delta(job, h, scratch);
    BARRIER();
    Reader r = {h + HEADER, job.in_size - HEADER, 0, 0, 0, 0, t};
    r.room = WIDE ? (u32)(min_u64(scratch_size, 1u << 30) >> 2)
                  : (SHARED_SIZE() - (u32)sizeof(Shared<false>)) >> 2;
    if (warp_id() == 0) {
        r.error = check_header<WIDE>(job, t);
        if constexpr (WIDE) {
            if (!r.error) read_payload(r, job, width);
        } else if (!r.error) read_planes(r, width);
        if (lane_id() == 0) {
            s.job = END;
            s.status = r.error;
        }
        BARRIER();
    } else {
        for (;;) {
            BARRIER();
            if (s.job == END) break;
            work<WIDE>(r);
        }
    }
    if (s.status == OK) {
        if constexpr (WIDE) finish_delta(job, h, t);
        else
            FOR_NARROW_WIDTH(s.width, make_elements, (h + HEADER, (u8 *)job.out, get32(h + 12), t));
    }
    if (threadIdx.x == 0) {
        *status = s.status;
        if constexpr (WIDE) /* the payload is right, so the base is not (R5-13) */
            if (s.is_payload_right && (s.status == CORRUPT || s.status == CHECKSUM))
                *status = BASE_WRONG;
    }
    BARRIER();
}

template <bool WIDE>
DEV void decode_blocks(const Block *blocks, u32 n, u32 *status, const Tables *t, u8 *scratch,
                       u64 scratch_size)
{
    Shared<WIDE> &s = shared<WIDE>();
    const u32 lane = threadIdx.x;
    if (lane < 16) {
        u32 selector = 0, left = 0, right = 4;
        ROLLED for (u32 i = 0; i < 4; i++) selector |= (lane >> i & 1 ? right++ : left++) << 4 * i;
        s.selector[lane] = selector;
    }
    s.frozen[lane] = t->frozen_symbol[lane];
    ROLLED for (u32 i = blockIdx.x; i < n; i += gridDim.x)
    {
        const Block job = blocks[i];
        decode_block<WIDE>(job, status + i, t, scratch + blockIdx.x * scratch_size, scratch_size);
    }
}

#define KERNEL(name, wide)                                                                         \
    extern "C" __global__ void __launch_bounds__(THREADS, GROUPS) name(                            \
        const Block *blocks, u32 n, u32 *status, const Tables *t, u8 *scratch, u64 scratch_size)   \
    {                                                                                              \
        decode_blocks<wide>(blocks, n, status, t, scratch, scratch_size);                          \
    }
KERNEL(lmc_decode_planes, false)
KERNEL(lmc_decode_any, true)
