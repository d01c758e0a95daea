/* SPDX-License-Identifier: MIT
 * The kernels of src/gpu/decode.cu under the shim, against lmc.h: the same bytes, or the same
 * refusal; and what a kernel leaves to the CPU is of a kind that it may leave.
 *
 *     test_kernel BLOCKS                       BLOCKS: written by tests/codec/blocks.py --write
 *     test_kernel BLOCKS --barriers [LINE...]  leaves out one barrier at a time, of those lines or
 *                                              all: each must be missed, but for those with the
 *                                              comment "spare: WHY" on their line
 *     test_kernel BLOCKS --orders N            each case in N orders of threads
 *     test_kernel BLOCKS --every N             of all cases, one in N, drawn by chance
 *     test_kernel BLOCKS --counts TABLE        work for 32 elements, which may not be more than the
 *                                              table says; LMC_RECORD=1 writes it
 *
 * Compiled in three ways: for races (race_check.cpp), for accesses outside of memory (sanitizers),
 * and for a GPU, or what stands in for one (kernel_on_gpu.cpp; bench/gpu.py runs it). */
#include <algorithm>
#include <ctime>
#include <string>
#include <vector>
#include <sys/resource.h>
#include <sys/wait.h>
#include "../codec/t.h"
#include "cuda_on_cpu.h"
#include "kernel.h"

namespace
{
typedef std::vector<uint8_t> bytes;

struct gpu_case {
    std::string about;
    bytes in, base; /* base: as long as out_size, or empty: there is none */
    uint32_t out_size, number, flags;
    lmc_status wanted;
    bytes content; /* if that is LMC_OK */
};

std::vector<gpu_case> cases;
long n_right, n_refused, n_left;
uint64_t state = 2026; /* of what is drawn here */

uint8_t *workspace(size_t size)
{
    static bytes ws;
    if (ws.size() < size) ws.resize(size);
    return ws.data();
}

/* What a reader says of the block, whose run and file say what is in the flags: the checks of spec
 * 5 which need those, in their order, and then those of a block. */
lmc_status decode(gpu_case *c)
{
    lmc_block_info info;
    size_t size, ws_size;
    memset(&info, 0, sizeof info);
    const lmc_status status = lmc_block_parse(c->in.data(), c->in.size(), c->number, &info);
    if (status != LMC_OK) return status;
    if (info.size != c->out_size || (info.has_prediction && !(c->flags & KERNEL_RUN_PREDICTED)) ||
        (c->in[2] >> 5 == 2 && !(c->flags & KERNEL_MAY_QUANTIZE)) ||
        (c->in[2] >> 5 == 3 && !(c->flags & KERNEL_MAY_PART)) ||
        (c->in[2] >> 5 == 4 && !(c->flags & KERNEL_MAY_MATRIX)) ||
        (c->in[2] >> 5 == 5 && !(c->flags & KERNEL_MAY_CODES)) ||
        (c->in[3] && !(c->flags & KERNEL_MAY_GROUP)))
        return LMC_ERR_CORRUPT;
    c->content.resize(c->out_size);
    ws_size = lmc_block_workspace_size(info.n, info.width);
    return t_block_decode(c->content.data(), c->content.size(), &size, c->in.data(), c->in.size(),
                          c->base.empty() ? NULL : c->base.data(), c->base.size(), c->number,
                          workspace(ws_size), ws_size);
}

void add(gpu_case c)
{
    if (c.in.size() < LMC_BLOCK_HEADER_SIZE) return; /* the index has no such block */
    c.wanted = decode(&c);
    cases.push_back(c);
}

/* -- one launch -- */

/* Memory that ends where it is said to, at a place that is `align` more or less than a multiple of
 * 16. */
bool is_aligned; /* to 16: for counts, which depend on it */
struct buffer {
    uint8_t *memory, *data;
    buffer(size_t size, size_t align, size_t pad = 0)
    {
        const size_t offset = is_aligned ? 0 : t_below(&state, 16 / align) * align;
        memory = (uint8_t *)malloc(offset + size + pad);
        if (!memory) abort();
        memset(memory, 0xC5, offset + size + pad);
        data = memory + offset;
    }
    ~buffer() { free(memory); }
    buffer(const buffer &) = delete;
};

struct placed {
    const gpu_case *c;
    buffer in, out, base;
    bool in_place;
    uint32_t status;
    placed(const gpu_case *c, bool in_place)
        : c(c), in(c->in.size(), 1, KERNEL_PAD), out(c->out_size, width(c)),
          base(c->base.size(), width(c)), in_place(in_place), status(KERNEL_NOT_HERE)
    {
        memcpy(in.data, c->in.data(), c->in.size());
        if (!c->base.empty()) memcpy(base.data, c->base.data(), c->base.size());
        if (in_place) memcpy(out.data, c->base.data(), c->base.size());
    }
    static size_t width(const gpu_case *c)
    {
        const size_t w = c->in[1];
        return w == 2 || w == 4 || w == 8 ? w : 1;
    }
    gpu_job job() const
    {
        const gpu_job job = {in.data,
                             out.data,
                             in_place          ? out.data
                             : c->base.empty() ? NULL
                                               : base.data,
                             (uint32_t)c->in.size(),
                             c->out_size,
                             c->number,
                             c->flags};
        return job;
    }
};

/* What a kernel may leave to the CPU: quantised elements. */
bool may_be_left(const gpu_case &c) { return c.in[2] >> 5 >= 2; }

/* A kernel need not tell a wrong prediction, or a block that is cut, from damage. */
bool is_same_refusal(lmc_status cpu, uint32_t gpu)
{
    if (gpu == (uint32_t)cpu || (cpu == LMC_ERR_TRUNCATED && gpu == LMC_ERR_CORRUPT)) return true;
    return cpu == LMC_ERR_BASE_WRONG && (gpu == LMC_ERR_CORRUPT || gpu == LMC_ERR_CHECKSUM);
}

void check(const placed &p)
{
    const gpu_case &c = *p.c;
    t_note("%s, %s, seed %u", c.about.c_str(), p.in_place ? "in place" : "to other memory",
           cpu::seed);
    if (p.status == KERNEL_NOT_HERE) {
        n_left++;
        if (!may_be_left(c) && c.wanted == LMC_OK)
            t_check(0, "left to the CPU", cpu::why, __FILE__, __LINE__);
    } else if (p.status == LMC_OK) {
        n_right++;
        CHECK_STATUS(c.wanted, LMC_OK);
        CHECK(c.wanted != LMC_OK || memcmp(p.out.data, c.content.data(), c.out_size) == 0);
    } else {
        n_refused++;
        if (!is_same_refusal(c.wanted, p.status))
            t_check(0, lmc_status_name(c.wanted), lmc_status_name((lmc_status)p.status), __FILE__,
                    __LINE__);
    }
}

/* Decodes them with one kernel; what that leaves, with the next. */
void decode_by(int kernel, const std::vector<placed *> &all)
{
    while (kernel != KERNEL_CPU) {
        std::vector<gpu_job> jobs;
        std::vector<placed *> todo;
        for (placed *p : all)
            if (p->status == KERNEL_NOT_HERE) todo.push_back(p), jobs.push_back(p->job());
        if (todo.empty()) return;
        std::vector<uint32_t> status(todo.size());
        gpu_run(kernel, jobs.data(), (uint32_t)jobs.size(), 1 + (uint32_t)t_below(&state, 3),
                status.data());
        for (size_t i = 0; i < todo.size(); i++) todo[i]->status = status[i];
        kernel = gpu_next_kernel(kernel);
    }
}

/* All cases, some of a launch. every: one in so many of them, drawn by chance. */
void run(bool in_place, size_t every)
{
    std::vector<std::vector<placed *>> of(1 + (size_t)gpu_count_kernels());
    for (const gpu_case &c : cases) {
        if ((in_place && c.base.empty()) || t_below(&state, every)) continue;
        placed *const p = new placed(&c, in_place);
        const size_t k = (size_t)(1 + gpu_kernel_of(c.in.data(), in_place));
        of[k].push_back(p);
        if (k && of[k].size() < 6) continue;
        if (k) decode_by((int)k - 1, of[k]);
        for (placed *done : of[k]) check(*done), delete done;
        of[k].clear();
        if (cpu::left_out >= 0 && t_failed) return; /* that is enough */
    }
    for (size_t k = 1; k < of.size(); k++) {
        decode_by((int)k - 1, of[k]);
        for (placed *done : of[k]) check(*done), delete done;
    }
}

/* -- cases -- */

void add_vectors(const char *path)
{
    FILE *const file = fopen(path, "rb");
    uint8_t head[20];
    size_t n = 0, differ = 0;
    if (!file) perror(path), exit(1);
    while (fread(head, 1, sizeof head, file) == sizeof head) {
        gpu_case c;
        c.about = "block " + std::to_string(n++) + " of the vectors";
        c.in.resize(t_load32(head));
        c.out_size = t_load32(head + 4);
        c.number = t_load32(head + 8);
        c.flags = t_load32(head + 12) & KERNEL_ALL_FLAGS;
        if (t_load32(head + 12) & (KERNEL_ALL_FLAGS + 1)) c.base.resize(c.out_size);
        if (fread(c.in.data(), 1, c.in.size(), file) != c.in.size() ||
            fread(c.base.data(), 1, c.base.size(), file) != c.base.size())
            abort();
        add(c);
        /* what is said here of lmc.h is what the reference decoder says */
        const lmc_status wanted = cases.back().wanted, reference = (lmc_status)t_load32(head + 16);
        differ += wanted != reference &&
                  !(wanted == LMC_ERR_BASE_WRONG &&
                    (reference == LMC_ERR_CORRUPT || reference == LMC_ERR_CHECKSUM));
    }
    CHECK(n > 500 && differ == 0);
    fclose(file);
}

void finish_header(gpu_case *c)
{
    uint8_t place[4];
    t_store32(place, c->number);
    t_store32(&c->in[20], lmc_crc32c(lmc_crc32c(0, place, 4), c->in.data(), 20));
}

/* A block that lmc.h makes. base: how the prediction is made, or T_BASES: there is none. */
void add_made(lmc_dtype dtype, size_t n, t_kind kind, t_base how, lmc_level level,
              bool is_damaged = false)
{
    const size_t width = lmc_dtype_width(dtype), size = n * width,
                 ws_size = lmc_block_workspace_size(n, (unsigned)width);
    gpu_case c;
    size_t got = 0;
    bytes content(size);
    const uint64_t seed = t_random(&state);
    c.about = std::string(lmc_dtype_name(dtype)) + " " + std::to_string(n) + " " +
              t_kind_names[kind] + " " + (how == T_BASES ? "" : t_base_names[how]) + " level " +
              std::to_string(level);
    c.out_size = (uint32_t)size;
    c.number = (uint32_t)t_below(&state, 3);
    c.flags = how == T_BASES ? 0 : (uint32_t)KERNEL_ALL_FLAGS;
    t_fill(content.data(), size, kind, dtype, seed);
    if (how != T_BASES) {
        c.base.resize(size);
        t_fill_base(c.base.data(), content.data(), size, how, kind, dtype, seed);
    }
    c.in.resize(lmc_block_bound(size));
    CHECK_STATUS(t_block_encode(c.in.data(), c.in.size(), &got, content.data(), size,
                                how == T_BASES ? NULL : c.base.data(), dtype, level, c.number,
                                workspace(ws_size), ws_size),
                 LMC_OK);
    c.in.resize(got);
    if (is_damaged) {
        const size_t at =
            LMC_BLOCK_HEADER_SIZE +
            (t_below(&state, 4) ? got - 1 - t_below(&state, (got - LMC_BLOCK_HEADER_SIZE + 1) / 2) -
                                      LMC_BLOCK_HEADER_SIZE
                                : t_below(&state, got - LMC_BLOCK_HEADER_SIZE));
        c.in[at] ^= (uint8_t)(1 << t_below(&state, 8));
        if (c.in[2] & 4)
            t_store32(&c.in[16], lmc_crc32c(0, c.in.data() + LMC_BLOCK_HEADER_SIZE,
                                            got - LMC_BLOCK_HEADER_SIZE));
        finish_header(&c);
        c.about += ", damaged at " + std::to_string(at);
    }
    add(c);
}

/* The mask of a sparse block's class as gaps, whose only position is `quotient` << `shift`: it may
 * be far behind the 256 elements (R6-10). No element would be coded, and the rest is right. */
void add_gap(unsigned shift, unsigned quotient)
{
    gpu_case c;
    bytes payload = {(uint8_t)(21 + 2 * shift), 1, 0, 0};
    uint8_t place[4] = {0};
    payload.resize(4 + (shift + 7) / 8 + quotient / 8 + 1);
    payload.back() = (uint8_t)(1 << quotient % 8);
    c.about = "a gap of " + std::to_string(quotient) + " << " + std::to_string(shift);
    c.out_size = 256;
    c.number = 0;
    c.flags = KERNEL_ALL_FLAGS;
    c.base.resize(256);
    c.in = {0xB2, 1, 0x25, 0x10};
    c.in.resize(LMC_BLOCK_HEADER_SIZE);
    t_store32(&c.in[4], 256);
    t_store32(&c.in[8], (uint32_t)payload.size());
    t_store32(&c.in[12], lmc_crc32c(0, c.base.data(), 256));
    t_store32(&c.in[16], lmc_crc32c(0, payload.data(), payload.size()));
    t_store32(&c.in[20], lmc_crc32c(lmc_crc32c(0, place, 4), c.in.data(), 20));
    c.in.insert(c.in.end(), payload.begin(), payload.end());
    add(c);
    CHECK_STATUS(cases.back().wanted, LMC_ERR_BASE_WRONG);
}

/* -- a list that no writer makes: its tree does not fit how often the bytes are there -- */

void put_bits(bytes *out, const std::vector<unsigned> &bits)
{
    const size_t at = out->size();
    out->resize(at + (bits.size() + 7) / 8);
    for (size_t i = 0; i < bits.size(); i++) (*out)[at + i / 8] |= (uint8_t)(bits[i] << i % 8);
}

/* A node of leaves first .. end - 1, whose bytes are these leaves (section 6.2). */
void put_node(bytes *out, const std::vector<unsigned> &length, const std::vector<unsigned> &list,
              size_t first, size_t end, unsigned depth)
{
    std::vector<unsigned> bits(list.size()), sides[2];
    const unsigned flat = length[first] - depth;
    if (list.empty() || end - first == 1) return;
    if (length[first] == length[end - 1] && flat >= 2 && flat <= 6) {
        for (unsigned d = flat; d-- > 0;) {
            for (size_t i = 0; i < list.size(); i++) bits[i] = (list[i] - first) >> d & 1;
            put_bits(out, bits);
        }
        return;
    }
    size_t middle = first;
    for (unsigned space = 0; space < 1u << (14 - depth); middle++)
        space += 1u << (15 - length[middle]);
    for (size_t i = 0; i < list.size(); i++) {
        bits[i] = list[i] >= middle;
        sides[bits[i]].push_back(list[i]);
    }
    if (list.size() >= 256) out->push_back(0);
    put_bits(out, bits);
    put_node(out, length, sides[0], first, middle, depth + 1);
    put_node(out, length, sides[1], middle, end, depth + 1);
}

/* Three of the four planes have 44 active nodes: more than a kernel has room for, so that it takes
 * fewer of them in the last list. Each right node of the tree has four: a left one that has two
 * flat ones, of 4 and of 8 leaves. */
void add_many_active()
{
    const size_t n = 2000, width = 4;
    std::vector<unsigned> length;
    bytes content(n * width, 7);
    gpu_case c;
    c.about = "too many active nodes";
    c.out_size = (uint32_t)content.size();
    c.number = c.flags = 0;
    for (unsigned depth = 0; depth <= 10; depth++)
        for (unsigned i = 0; i < 12; i++) length.push_back(depth + (i < 4 ? 4 : 5));
    length.insert(length.end(), 16, 15);
    c.in.assign(LMC_BLOCK_HEADER_SIZE, 0);
    for (size_t plane = 0; plane + 1 < width; plane++) {
        std::vector<unsigned> list(n);
        for (size_t i = 0; i < n; i++) {
            const size_t depth = i % 20 <= 10 ? i % 20 : 0;
            list[i] = (unsigned)(12 * depth + t_below(&state, 12));
            content[i * width + plane] = (uint8_t)list[i]; /* leaf k is byte k */
        }
        c.in.insert(c.in.end(), {2, 0, (uint8_t)(length.size() - 1)});
        for (size_t i = 0; i < length.size(); i += 2)
            c.in.push_back((uint8_t)(length[i] | length[i + 1] << 4));
        put_node(&c.in, length, list, 0, length.size(), 0);
    }
    c.in.insert(c.in.end(), {1, 7});
    c.in[0] = 0xB2;
    c.in[1] = width;
    c.in[2] = 1 << 5;
    t_store32(&c.in[4], n);
    t_store32(&c.in[8], (uint32_t)(c.in.size() - LMC_BLOCK_HEADER_SIZE));
    t_store32(&c.in[12], lmc_crc32c(0, content.data(), content.size()));
    finish_header(&c);
    add(c);
    CHECK_STATUS(cases.back().wanted, LMC_OK);
}

const lmc_dtype dtypes[] = {LMC_BF16, LMC_F16, LMC_F32, LMC_U8, LMC_F8_E4M3,
                            LMC_I16,  LMC_I32, LMC_F64, LMC_I64};

size_t draw_size()
{
    static const size_t sizes[] = {1,    2,    7,    31,   33,   255,  256, 257,
                                   1000, 1023, 1024, 1025, 2047, 4096, 4097};
    return sizes[t_below(&state, sizeof sizes / sizeof *sizes)];
}

/* large: how many of them in a hundred are large blocks. */
void add_all_made(size_t large)
{
    for (lmc_dtype dtype : dtypes) {
        const size_t width = lmc_dtype_width(dtype), most = 65536;
        for (int kind = 0; kind < T_KINDS; kind++) {
            const lmc_level level = kind % 2 ? LMC_LEVEL_DEFAULT : LMC_LEVEL_MAX;
            add_made(dtype, 3 * draw_size(), (t_kind)kind, T_BASES, level);
            add_made(dtype, draw_size(), (t_kind)kind, T_BASES, level);
            add_made(dtype, 2 * draw_size(), (t_kind)kind, T_BASES, level, true);
            if (t_below(&state, 100) < large)
                add_made(dtype, most / (width > 4 ? 2 : 1) - t_below(&state, 2) * draw_size(),
                         (t_kind)kind, T_BASES, level);
            if (t_below(&state, 100) < large)
                add_made(dtype, 8 * draw_size(), (t_kind)kind, T_BASES, level, true);
        }
        for (int how = 0; how < T_BASES; how++) {
            const t_kind kind = how % 3 ? T_GAUSS : T_SPARSE;
            const lmc_level level = how % 2 ? LMC_LEVEL_DEFAULT : LMC_LEVEL_MAX;
            add_made(dtype, draw_size(), kind, (t_base)how, level);
            add_made(dtype, 3 * draw_size(), kind, (t_base)how, level);
            add_made(dtype, 2 * draw_size(), kind, (t_base)how, level, true);
            if (t_below(&state, 100) < large)
                add_made(dtype, 30000 + draw_size(), kind, (t_base)how, level);
        }
    }
}

/* Blocks as large as writers make them: 2^22 bytes. */
void add_largest()
{
    add_made(LMC_BF16, 1 << 21, T_GAUSS, T_FEW, LMC_LEVEL_DEFAULT);
    add_made(LMC_BF16, (1 << 21) - 3, T_GAUSS, T_STEPS, LMC_LEVEL_DEFAULT);
#ifndef T_ADDRESS_SANITIZER
    add_made(LMC_F32, 1 << 20, T_GAUSS, T_DRIFT, LMC_LEVEL_DEFAULT);
    add_made(LMC_BF16, 1 << 21, T_GAUSS, T_ALL, LMC_LEVEL_MAX);
    add_made(LMC_U8, 1 << 22, T_GAUSS, T_FEW, LMC_LEVEL_DEFAULT);
    add_made(LMC_BF16, 1 << 21, T_GAUSS, T_BASES, LMC_LEVEL_DEFAULT);
#endif
}

/* -- how much a kernel does -- */

struct measure {
    const char *name;
    double value;
};

/* For 32 elements, as warps do it: what threads do is divided by 32. */
std::vector<measure> measures(double n)
{
    const double per_warp = 32 / n, per_thread = 1 / n;
    return {{"chunk rows merged", (double)cpu::count[12] * per_warp},
            {"nodes of chunks", (double)cpu::count[5] * per_warp},
            {"rows of flat nodes", (double)cpu::count[14] * per_warp},
            {"rows walked", (double)cpu::count[13] * per_warp},
            {"rows of pieces", (double)cpu::count[15] * per_warp},
            {"rows of elements", (double)cpu::count[16] * per_warp},
            {"warp operations", (double)cpu::n_warp_operations * per_thread},
            {"barriers", (double)cpu::n_barriers * per_thread},
            {"shared loads", (double)cpu::n_accesses[cpu::SHARED][0] * per_thread},
            {"shared stores", (double)cpu::n_accesses[cpu::SHARED][1] * per_thread},
            {"global loads", (double)cpu::n_accesses[cpu::GLOBAL][0] * per_thread},
            {"global stores", (double)cpu::n_accesses[cpu::GLOBAL][1] * per_thread}};
}

/* Each line of the table: block | measure | value. Loads and stores are those that a compiler
 * leaves: they may be a fiftieth more, in case it is another. */
void test_counts(const char *path)
{
    static const struct {
        lmc_dtype dtype;
        size_t n;
        t_base how;
    } blocks[] = {{LMC_BF16, 1 << 16, T_BASES}, {LMC_F32, 1 << 16, T_BASES},
                  {LMC_U8, 1 << 16, T_BASES},   {LMC_BF16, 1 << 18, T_FEW},
                  {LMC_F32, 1 << 18, T_FEW},    {LMC_BF16, 1 << 18, T_EQUAL},
                  {LMC_BF16, 1 << 17, T_STEPS}, {LMC_BF16, 1 << 17, T_BASES}};
    const bool records = getenv("LMC_RECORD") != NULL;
    is_aligned = true;
    std::string now = "# Work for 32 elements, as warps do it: tests/gpu/test_kernel --counts\n",
                was;
    char line[200];
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) was += line;
    if (file) fclose(file);
    for (const auto &b : blocks) {
        cases.clear();
        state = 7;
        cpu::seed = 1;
        add_made(b.dtype, b.n, T_GAUSS, b.how, LMC_LEVEL_DEFAULT);
        memset(cpu::count, 0, sizeof cpu::count);
        memset(cpu::n_accesses, 0, sizeof cpu::n_accesses);
        cpu::n_warp_operations = cpu::n_barriers = 0;
        run(false, 1);
        for (const measure &m : measures((double)b.n)) {
            snprintf(line, sizeof line, "%-24s | %-20s | ", cases[0].about.c_str(), m.name);
            const size_t at = was.find(line);
            const double most = at == std::string::npos ? -1 : atof(&was[at + strlen(line)]),
                         more = strstr(m.name, "loads") || strstr(m.name, "stores") ? 1.02 : 1;
            t_note("%s%.3f, and %s has %.3f", line, m.value, path, most);
            CHECK(records || m.value <= most * more + 0.001);
            now += line;
            snprintf(line, sizeof line, "%.3f\n", m.value);
            now += line;
        }
    }
    if (!records) return;
    file = fopen(path, "w");
    if (!file || fputs(now.c_str(), file) < 0 || fclose(file)) perror(path), exit(1);
}

/* -- barriers, one left out at a time -- */

int line_of(const cpu::place &barrier) { return atoi(strrchr(barrier.name, ':') + 1); }

/* Whether the line of the source says that nobody need miss the barrier. */
bool is_spare(const cpu::place &barrier)
{
    const std::string name = barrier.name;
    FILE *const file = fopen(name.substr(0, name.rfind(':')).c_str(), "r");
    char line[1000] = "";
    if (!file) perror(barrier.name), abort();
    for (int left = line_of(barrier); left > 0 && fgets(line, sizeof line, file); left--) {}
    fclose(file);
    return strstr(line, "spare:") != NULL;
}

/* In a process of its own, which ends after so many seconds of the CPU: its exit status. */
int run_without(int barrier, unsigned seconds)
{
    const rlimit limit = {seconds, seconds};
    int status = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr) || !freopen("/dev/null", "w", stdout) ||
            setrlimit(RLIMIT_CPU, &limit))
            _exit(0);
        cpu::left_out = barrier;
        t_failed = 0;
        run(false, 1);
        run(true, 1);
        _exit(t_failed != 0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) abort();
    return status;
}

/* lines: of the barriers; none: all */
void test_barriers(const std::vector<int> &lines)
{
    run(false, 1);
    run(true, 1);
    /* several times what a run takes: what needs more would wait for ever */
    const unsigned seconds = 20 + 4 * (unsigned)(clock() / CLOCKS_PER_SEC);
    size_t n_tried = 0;
    CHECK(run_without(-1, seconds) == 0);
    for (const cpu::place &barrier : cpu::barriers) {
        if (!barrier.name || is_spare(barrier)) continue;
        if (!lines.empty() &&
            std::find(lines.begin(), lines.end(), line_of(barrier)) == lines.end())
            continue;
        n_tried++;
        t_note("%s: nobody misses it", barrier.name);
        CHECK(run_without(barrier.id, seconds) != 0);
    }
    CHECK(n_tried >= (lines.empty() ? 20 : lines.size()));
}
} // namespace

int main(int argc, char **argv)
{
    const bool is_barriers = argc > 2 && strcmp(argv[2], "--barriers") == 0;
    const size_t every =
        argc > 3 && strcmp(argv[2], "--every") == 0 ? (size_t)std::max(1, atoi(argv[3])) : 1;
    t_begin(argc, argv);
    if (argc < 2) return 2;
    if (argc > 3 && strcmp(argv[2], "--counts") == 0) {
        test_counts(argv[3]);
        return t_end();
    }
    add_vectors(argv[1]);
    for (unsigned shift = 0; shift <= 21; shift++)
        for (unsigned quotient : {257u, 300u, 1500u}) add_gap(shift, quotient);
    for (unsigned shift = 9; shift <= 21; shift++) add_gap(shift, 1);
    add_many_active();
    add_all_made(is_barriers ? 10 : t_brief ? 0 : cpu::on_atomic ? 25 : 100);
    if (argc > 3 && strcmp(argv[2], "--orders") == 0) {
        for (int i = atoi(argv[3]); i-- > 0;) run(false, 1), run(true, 1);
        return t_end();
    }
    if (is_barriers) {
        std::vector<int> lines;
        for (int i = 3; i < argc; i++) lines.push_back(atoi(argv[i]));
        test_barriers(lines);
        return t_end();
    }
    run(false, every);
    run(true, every);
    cases.clear();
    if (!t_brief && !cpu::on_atomic) { /* with the check of races it takes long */
        add_largest();
        run(false, 1);
        run(true, 1);
    }
    printf("%ld blocks right, %ld refused, %ld left to the CPU\n", n_right, n_refused, n_left);
    CHECK(n_right > 0 && n_refused > 0);
    CHECK(every > 1 || !gpu_is_simulated || cpu::count[10] > 0); /* add_many_active */
    return t_end();
}
