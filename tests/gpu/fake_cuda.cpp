/* fake_cuda.cpp - stand-ins for the driver (libcuda.so.1) and for NVRTC (libnvrtc.so.12)
 * SPDX-License-Identifier: MIT
 *
 * They let programs that use a GPU be tested whole where there is none: NVRTC "compiles" the text
 * of src/gpu/decode.cu and sums.cu, and no other; the driver runs it on the CPU (cuda_on_cpu.h).
 * `make build/gpu/libcuda.so.1` makes both; a program finds them as it finds the real ones.
 *
 * The driver is stricter than real ones, so that mistakes show:
 *
 *   - Work in a stream waits until something waits for it: synchronising, a later event, a query
 *     (which runs one piece). What forgets to wait reads garbage. FAKE_CUDA_ORDER=n, n > 0: pieces
 *     of other streams run now and then, by chance (n is the seed); else as late as possible. No
 *     stream waits for stream 0, nor stream 0 for another one.
 *   - The CPU cannot read or write device memory but by the driver: doing so is SIGSEGV. New
 *     memory is garbage. Guard pages stand before and behind each allocation.
 *   - Addresses are checked when work is given and again when it runs: of copies, of a kernel's
 *     arguments and of all that its blocks name. Those of the host are refused, and what has been
 *     freed by then; what is written beside an allocation shows when it is freed.
 *   - A launch fails as on a device of FAKE_CUDA_ARCH (90; 75, 80, 86, 89, 100, 120) with more
 *     shared memory than it has or was allowed, and a cubin of another architecture does not load.
 *   - A kernel that fails breaks the context, as there: every later call of it fails.
 *
 * Read at each call, so that setenv is enough:
 *
 *   FAKE_CUDA_FAIL=CALL[:N[+]][=CODE],...  the Nth call (1) of this name returns CODE (2, out of
 *       memory); with + also all after it. The name "kernel": the Nth that runs, CODE 719.
 *   FAKE_CUDA_STATUS=S   kernels do nothing but to say this status of each block
 *   FAKE_CUDA_MEMORY=B   bytes of a device (4 GiB)      FAKE_CUDA_DEVICES=N   (1; read at cuInit)
 *
 * For the tests: fake_cuda_count("cuLaunchKernel") calls since fake_cuda_reset(); "kernel",
 * "block" run, "pageable" copies whose host memory is not pinned; fake_cuda_live() objects that
 * are not freed; fake_cuda_adopt(address, size) makes host memory device memory that the CPU may
 * use, until fake_cuda_adopt(address, 0); fake_cuda_says() why the last check failed, which stands
 * on stderr, too. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

typedef unsigned long long address; /* CUdeviceptr */
enum {
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_OUT_OF_RESOURCES = 701,
    LAUNCH_FAILED = 719
};

/* -- what both have: counts, failures on request, messages -- */

static std::recursive_mutex lock;
static std::map<std::string, long> counts;
static std::string said;

static const char *text_of(const char *name)
{
    const char *const value = getenv(name);
    return value ? value : "";
}

static int refuse(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int refuse(int code, const char *format, ...)
{
    char text[500];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    said = text;
    fprintf(stderr, "fake_cuda: %s\n", text);
    return code;
}

/* The code that FAKE_CUDA_FAIL wants for this call, or 0. */
static int wanted_failure(const char *call, int code)
{
    static std::map<std::string, long> seen; /* since the variable has this text */
    static std::string request;
    std::string rest = text_of("FAKE_CUDA_FAIL");
    if (rest != request) {
        request = rest;
        seen.clear();
    }
    const long n = ++seen[call];
    while (!rest.empty()) {
        std::string item = rest.substr(0, rest.find(','));
        rest = rest.size() > item.size() ? rest.substr(item.size() + 1) : "";
        const size_t equals = item.find('=');
        if (equals != std::string::npos) code = atoi(item.c_str() + equals + 1);
        item = item.substr(0, equals);
        const size_t colon = item.find(':');
        const long first = colon == std::string::npos ? 1 : atol(item.c_str() + colon + 1);
        const bool is_all = !item.empty() && item.back() == '+';
        if (item.substr(0, colon) == call && (n == first || (is_all && n > first))) return code;
    }
    return 0;
}

API long fake_cuda_count(const char *what)
{
    std::lock_guard<std::recursive_mutex> hold(lock);
    return counts[what];
}
API void fake_cuda_reset(void)
{
    std::lock_guard<std::recursive_mutex> hold(lock);
    counts.clear();
    said.clear();
}
API const char *fake_cuda_says(void) { return said.c_str(); }

/* A "cubin": who it is for, and a sum of the options that it was compiled with. */
struct image {
    char magic[16];
    int arch;
    uint32_t size; /* sizeof(image): real ones are not of one size, but know theirs */
    char options[232];
};
static const char MAGIC[16] = "\177ELF fake cubin";

#ifdef FAKE_NVRTC
/* -- NVRTC -- */

__asm__(".section .rodata\nkernel_text:\n"
        ".incbin \"src/gpu/decode.cu\"\n.incbin \"src/gpu/sums.cu\"\n.byte 0\n.previous\n");
extern "C" const char kernel_text[];

struct program {
    std::string text, log, cubin;
};
enum { NVRTC_COMPILATION = 6, NVRTC_INVALID_INPUT = 3, NVRTC_INVALID_PROGRAM = 4 };
static std::set<program *> programs;

#define ENTER                                                                                      \
    std::lock_guard<std::recursive_mutex> hold(lock);                                              \
    counts[__func__]++;                                                                            \
    if (int failure = wanted_failure(__func__, NVRTC_COMPILATION)) return failure
#define PROGRAM(p)                                                                                 \
    if (!programs.count(p)) return refuse(NVRTC_INVALID_PROGRAM, "%s: no program", __func__)

API long fake_cuda_live(void) { return (long)programs.size(); }

API int nvrtcVersion(int *major, int *minor)
{
    ENTER;
    *major = 12;
    *minor = 8;
    return 0;
}
API const char *nvrtcGetErrorString(int code)
{
    return code == 0                       ? "NVRTC_SUCCESS"
           : code == 1                     ? "NVRTC_ERROR_OUT_OF_MEMORY"
           : code == NVRTC_INVALID_INPUT   ? "NVRTC_ERROR_INVALID_INPUT"
           : code == NVRTC_INVALID_PROGRAM ? "NVRTC_ERROR_INVALID_PROGRAM"
           : code == NVRTC_COMPILATION     ? "NVRTC_ERROR_COMPILATION"
                                           : "NVRTC_ERROR unknown";
}
API int nvrtcCreateProgram(program **p, const char *text, const char *name, int n_headers,
                           const char *const *headers, const char *const *names)
{
    ENTER;
    (void)name, (void)headers, (void)names;
    if (n_headers) return refuse(NVRTC_INVALID_INPUT, "decode.cu has no headers");
    *p = new program{text, "", ""};
    programs.insert(*p);
    return 0;
}
API int nvrtcDestroyProgram(program **p)
{
    ENTER;
    PROGRAM(*p);
    programs.erase(*p);
    delete *p;
    *p = NULL;
    return 0;
}
API int nvrtcCompileProgram(program *p, int n, const char *const *options)
{
    std::lock_guard<std::recursive_mutex> hold(lock);
    counts[__func__]++;
    PROGRAM(p);
    image made = {};
    memcpy(made.magic, MAGIC, sizeof made.magic);
    made.size = sizeof made;
    std::string all;
    for (int i = 0; i < n; i++) {
        const std::string option = options[i];
        const size_t at = option.find("sm_");
        if (option.find("-arch") != std::string::npos && at == std::string::npos)
            return refuse(NVRTC_INVALID_INPUT, "%s: not sm_NN, so no cubin", options[i]);
        if (at != std::string::npos) made.arch = atoi(option.c_str() + at + 3);
        else all += option + " ";
    }
    if (int failure = wanted_failure(__func__, NVRTC_COMPILATION)) {
        p->log = "decode.cu(1): error: FAKE_CUDA_FAIL\n\n1 error detected\n";
        return failure;
    }
    if (p->text != kernel_text) {
        p->log = "this is not the text of src/gpu/*.cu that the stand-in was made of";
        return refuse(NVRTC_COMPILATION, "%s", p->log.c_str());
    }
    if (made.arch == 0) return refuse(NVRTC_INVALID_INPUT, "no architecture");
    snprintf(made.options, sizeof made.options, "%s", all.c_str());
    p->cubin.assign((const char *)&made, sizeof made);
    return 0;
}
API int nvrtcGetProgramLogSize(program *p, size_t *size)
{
    ENTER;
    PROGRAM(p);
    *size = p->log.size() + 1;
    return 0;
}
API int nvrtcGetProgramLog(program *p, char *log)
{
    ENTER;
    PROGRAM(p);
    memcpy(log, p->log.c_str(), p->log.size() + 1);
    return 0;
}
API int nvrtcGetCUBINSize(program *p, size_t *size)
{
    ENTER;
    PROGRAM(p);
    *size = p->cubin.size();
    return 0;
}
API int nvrtcGetCUBIN(program *p, char *cubin)
{
    ENTER;
    PROGRAM(p);
    memcpy(cubin, p->cubin.data(), p->cubin.size());
    return 0;
}

#else
/* -- the kernels -- */

#include "cuda_on_cpu.h"
#include "../../src/gpu/decode.cu"
#include "../../src/gpu/sums.cu"

namespace driver
{ /* apart from the names of decode.cu */

typedef void decode_function(const Block *, u32, u32 *, const Tables *, u8 *, u64);
enum {
    PAD = 16,       /* readable bytes behind a block */
    GARBAGE = 0xA5, /* what new memory has */
    ALIGNED = 256,  /* as cuMemAlloc promises */
    PAGE = 4096,
    SHARED = 16 << 20 /* bytes of a file of garbage */
};

/* -- objects. Handles are their addresses; a set of each kind knows which are alive. -- */

struct stream;
struct event {
    unsigned long long recorded, done; /* the last record of it; the last that has run */
    std::shared_ptr<stream> where;     /* of the last record */
    double time;
};
struct work {
    std::function<int()> run;
    std::shared_ptr<event> waits; /* until its record of this number has run */
    unsigned long long number;
    std::shared_ptr<stream> there;
};
struct stream {
    int device;
    std::deque<work> queue;
};
struct context {
    int device, users, broken; /* broken: the code of what broke it */
    std::shared_ptr<stream> null_stream;
};
struct module {
    image made;
};
struct function {
    module *owner;
    std::string name;
    void *code; /* lmc_sums, lmc_headers, or a decode_function */
    unsigned shared_limit;
};
struct memory {
    unsigned long long size, mapped; /* mapped: of its pages; 0: adopted */
    char *pages;                     /* of the guard before it */
    int device;
};

static unsigned long long number_of(const char *name, unsigned long long other)
{
    return *text_of(name) ? strtoull(text_of(name), NULL, 0) : other;
}

static bool is_initialized;
static std::vector<context> contexts; /* the primary one of each device */
static thread_local std::vector<context *> current;
static std::map<address, memory> device_memory;
static std::map<const char *, size_t> pinned;
static std::map<stream *, std::shared_ptr<stream>> streams;
static std::map<event *, std::shared_ptr<event>> events;
static std::set<module *> modules;
static std::map<function *, std::unique_ptr<function>> functions;

API long fake_cuda_live(void)
{
    std::lock_guard<std::recursive_mutex> hold(lock);
    long n = (long)(pinned.size() + streams.size() + events.size() + modules.size());
    for (auto &m : device_memory) n += m.second.mapped != 0;
    for (auto &c : contexts) n += c.users;
    return n;
}

static context *here(void) { return current.empty() ? NULL : current.back(); }

/* Of calls that need nothing, that need cuInit, that need a context which is not broken. */
#define ENTER_FREELY                                                                               \
    std::lock_guard<std::recursive_mutex> hold(lock);                                              \
    counts[__func__]++;                                                                            \
    if (int failure = wanted_failure(__func__, OUT_OF_MEMORY)) return failure
#define ENTER_INITIALIZED                                                                          \
    ENTER_FREELY;                                                                                  \
    if (!is_initialized) return refuse(NOT_INITIALIZED, "%s before cuInit", __func__)
#define ENTER                                                                                      \
    ENTER_INITIALIZED;                                                                             \
    if (!here()) return refuse(INVALID_CONTEXT, "%s: no context in this thread", __func__);        \
    if (here()->broken) return here()->broken;                                                     \
    run_by_chance()
/* Of those that free: a broken context does not hinder them. */
#define ENTER_TO_FREE                                                                              \
    ENTER_INITIALIZED;                                                                             \
    if (!here()) return refuse(INVALID_CONTEXT, "%s: no context in this thread", __func__)

/* -- memory -- */

static const memory *find_memory(address at, unsigned long long size)
{
    auto found = device_memory.upper_bound(at);
    if (found == device_memory.begin()) return NULL;
    --found;
    const unsigned long long offset = at - found->first;
    const memory &m = found->second;
    return offset <= m.size && size <= m.size - offset ? &m : NULL;
}
/* 0 if these bytes are of one allocation of this context's device. */
static int check_device(const char *who, const char *what, address at, unsigned long long size)
{
    const memory *const m = find_memory(at, size);
    if (!m || (size && !at))
        return refuse(INVALID_VALUE, "%s: %s, %#llx of %llu bytes, is no device memory", who, what,
                      at, size);
    if (here() && m->device != here()->device)
        return refuse(INVALID_VALUE, "%s: %s is of another device", who, what);
    return 0;
}
static bool is_pinned(const void *p, size_t size)
{
    auto found = pinned.upper_bound((const char *)p);
    if (found == pinned.begin()) return false;
    --found;
    const size_t offset = (size_t)((const char *)p - found->first);
    return offset <= found->second && size <= found->second - offset;
}
static int check_host(const char *who, const void *p, size_t size)
{
    auto found = device_memory.upper_bound((address)(uintptr_t)p + (size ? size - 1 : 0));
    if (!p || (found != device_memory.begin() && (--found)->second.mapped &&
               found->first + found->second.size > (address)(uintptr_t)p))
        return refuse(INVALID_VALUE, "%s: %p is no memory of the host", who, p);
    return 0;
}

/* Opens device memory to the CPU while work runs. */
static void protect(int how)
{
    for (auto &m : device_memory)
        if (m.second.mapped) mprotect(m.second.pages + PAGE, m.second.mapped, how);
}
struct opened {
    opened() { protect(PROT_READ | PROT_WRITE); }
    ~opened() { protect(PROT_NONE); }
};

/* -- streams -- */

static stream *resolve(stream *s)
{
    if (s == NULL || s == (stream *)1 || s == (stream *)2) return here()->null_stream.get();
    return streams.count(s) && s->device == here()->device ? s : NULL;
}
#define STREAM(s)                                                                                  \
    stream *const in = resolve(s);                                                                 \
    if (!in) return refuse(INVALID_HANDLE, "%s: no stream of this context", __func__)

static void run_first(stream *s);
static void run_until(stream *s, event *e, unsigned long long number)
{
    while (e->done < number && !s->queue.empty()) run_first(s);
}
static void run_first(stream *s)
{
    work w = s->queue.front();
    s->queue.pop_front();
    if (w.waits) run_until(w.there.get(), w.waits.get(), w.number);
    if (!w.run) return;
    context &c = contexts[(size_t)s->device];
    if (c.broken) return;
    const int failure = w.run();
    if (failure) c.broken = failure;
}
static int run_all(stream *s)
{
    while (!s->queue.empty()) run_first(s);
    return contexts[(size_t)s->device].broken;
}
static int run_everything(void)
{
    for (auto &s : streams) run_all(s.first);
    for (auto &c : contexts)
        if (c.null_stream) run_all(c.null_stream.get());
    return here() ? here()->broken : 0;
}
static void run_by_chance(void)
{
    static unsigned long long seed, state;
    const unsigned long long wanted = number_of("FAKE_CUDA_ORDER", 0);
    if (wanted != seed) state = seed = wanted;
    if (!seed) return;
    for (auto &s : streams) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        for (unsigned n = (unsigned)(state >> 40) % 4; n && !s.second->queue.empty(); n--)
            run_first(s.first);
    }
}
static int give(stream *s, std::function<int()> run)
{
    s->queue.push_back(work{run, nullptr, 0, nullptr});
    return 0;
}

/* -- start, devices, contexts -- */

API int cuInit(unsigned flags)
{
    ENTER_FREELY;
    if (flags) return INVALID_VALUE;
    if (is_initialized) return 0;
    const size_t n = (size_t)number_of("FAKE_CUDA_DEVICES", 1);
    if (n == 0) return NO_DEVICE;
    for (size_t i = 0; i < n; i++) contexts.push_back(context{(int)i, 0, 0, nullptr});
    is_initialized = true;
    return 0;
}
API int cuDriverGetVersion(int *version)
{
    ENTER_FREELY;
    *version = 12080;
    return 0;
}
API int cuGetErrorName(int code, const char **name)
{
    static const std::map<int, const char *> names = {{0, "CUDA_SUCCESS"},
                                                      {1, "CUDA_ERROR_INVALID_VALUE"},
                                                      {2, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                      {3, "CUDA_ERROR_NOT_INITIALIZED"},
                                                      {100, "CUDA_ERROR_NO_DEVICE"},
                                                      {101, "CUDA_ERROR_INVALID_DEVICE"},
                                                      {200, "CUDA_ERROR_INVALID_IMAGE"},
                                                      {201, "CUDA_ERROR_INVALID_CONTEXT"},
                                                      {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
                                                      {400, "CUDA_ERROR_INVALID_HANDLE"},
                                                      {500, "CUDA_ERROR_NOT_FOUND"},
                                                      {600, "CUDA_ERROR_NOT_READY"},
                                                      {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                                                      {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
                                                      {719, "CUDA_ERROR_LAUNCH_FAILED"},
                                                      {999, "CUDA_ERROR_UNKNOWN"}};
    auto found = names.find(code);
    *name = found == names.end() ? NULL : found->second;
    return *name ? 0 : INVALID_VALUE;
}
API int cuGetErrorString(int code, const char **text)
{
    const int failure = cuGetErrorName(code, text);
    if (!failure && code == OUT_OF_MEMORY) *text = "out of memory";
    return failure;
}
API int cuDeviceGetCount(int *n)
{
    ENTER_INITIALIZED;
    *n = (int)contexts.size();
    return 0;
}
#define DEVICE(d)                                                                                  \
    if ((d) < 0 || (size_t)(d) >= contexts.size()) return INVALID_DEVICE
API int cuDeviceGet(int *device, int ordinal)
{
    ENTER_INITIALIZED;
    DEVICE(ordinal);
    *device = ordinal;
    return 0;
}
API int cuDeviceGetName(char *name, int size, int device)
{
    ENTER_INITIALIZED;
    DEVICE(device);
    snprintf(name, (size_t)size, "a stand-in for a GPU");
    return 0;
}
API int cuDeviceTotalMem_v2(size_t *size, int device)
{
    ENTER_INITIALIZED;
    DEVICE(device);
    *size = (size_t)number_of("FAKE_CUDA_MEMORY", 1ull << 32);
    return 0;
}
static int arch(void) { return (int)number_of("FAKE_CUDA_ARCH", 90); }
static int shared_optin(void)
{
    const int a = arch();
    return a == 75 ? 65536 : a == 80 ? 166912 : a == 90 || a == 100 ? 232448 : 101376;
}
API int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    ENTER_INITIALIZED;
    DEVICE(device);
    switch (attribute) {
    case 1: *value = 1024; return 0;         /* threads of a group */
    case 8: *value = 49152; return 0;        /* shared memory of a group by default */
    case 10: *value = 32; return 0;          /* lanes of a warp */
    case 12: *value = 65536; return 0;       /* registers of a group */
    case 16: *value = 3; return 0;           /* multiprocessors */
    case 39: *value = 2048; return 0;        /* threads of a multiprocessor */
    case 41: *value = 1; return 0;           /* one address space */
    case 75: *value = arch() / 10; return 0; /* compute capability */
    case 76: *value = arch() % 10; return 0;
    case 81: *value = shared_optin() + 1024; return 0; /* shared memory of a multiprocessor */
    case 97: *value = shared_optin(); return 0;        /* of a group that asks for it */
    case 115: *value = 1; return 0;                    /* memory pools */
    }
    return refuse(INVALID_VALUE, "attribute %d of a device is not known here", attribute);
}
API int cuDevicePrimaryCtxRetain(context **c, int device)
{
    ENTER_INITIALIZED;
    DEVICE(device);
    *c = &contexts[(size_t)device];
    if ((*c)->users++ == 0) {
        (*c)->null_stream = std::make_shared<stream>();
        (*c)->null_stream->device = device;
        (*c)->broken = 0;
    }
    return 0;
}
API int cuDevicePrimaryCtxRelease_v2(int device)
{
    ENTER_INITIALIZED;
    DEVICE(device);
    context &c = contexts[(size_t)device];
    if (c.users == 0) return refuse(INVALID_CONTEXT, "a context is released once too often");
    if (--c.users == 0) {
        run_all(c.null_stream.get());
        c.broken = 0;
    }
    return 0;
}
API int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is_active)
{
    ENTER_INITIALIZED;
    DEVICE(device);
    *flags = 0;
    *is_active = contexts[(size_t)device].users != 0;
    return 0;
}
#define CONTEXT(c)                                                                                 \
    if ((c) && ((c) < contexts.data() || (c) >= contexts.data() + contexts.size() || !(c)->users)) \
    return refuse(INVALID_CONTEXT, "%s: no context", __func__)
API int cuCtxGetCurrent(context **c)
{
    ENTER_INITIALIZED;
    *c = here();
    return 0;
}
API int cuCtxSetCurrent(context *c)
{
    ENTER_INITIALIZED;
    CONTEXT(c);
    if (!current.empty()) current.pop_back();
    if (c) current.push_back(c);
    return 0;
}
API int cuCtxPushCurrent_v2(context *c)
{
    ENTER_INITIALIZED;
    CONTEXT(c);
    if (!c) return INVALID_CONTEXT;
    current.push_back(c);
    return 0;
}
API int cuCtxPopCurrent_v2(context **c)
{
    ENTER_INITIALIZED;
    if (!here()) return INVALID_CONTEXT;
    if (c) *c = here();
    current.pop_back();
    return 0;
}
API int cuCtxGetDevice(int *device)
{
    ENTER_INITIALIZED;
    if (!here()) return INVALID_CONTEXT;
    *device = here()->device;
    return 0;
}
API int cuCtxSynchronize(void)
{
    ENTER;
    return run_everything();
}

/* -- memory -- */

static unsigned long long in_use(void)
{
    unsigned long long n = 0;
    for (auto &m : device_memory)
        if (m.second.mapped && m.second.device == here()->device) n += m.second.size;
    return n;
}
API int cuMemGetInfo_v2(size_t *free, size_t *total)
{
    ENTER;
    *total = (size_t)number_of("FAKE_CUDA_MEMORY", 1ull << 32);
    *free = (size_t)in_use() > *total ? 0 : *total - (size_t)in_use();
    return 0;
}
/* Pages of garbage, which take memory when they are written, with a guard page on both sides. */
static char *map_garbage(size_t size, int how)
{
    static int file = -1;
    if (file < 0) {
        file = memfd_create("garbage", MFD_CLOEXEC);
        const std::string text(SHARED, (char)GARBAGE);
        if (file < 0 || write(file, text.data(), SHARED) != SHARED) return NULL;
    }
    char *const pages = (char *)mmap(NULL, size + 2 * PAGE, PROT_NONE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return NULL;
    for (size_t at = 0; at < size; at += SHARED)
        if (mmap(pages + PAGE + at, size - at < SHARED ? size - at : SHARED, how,
                 MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, 0) == MAP_FAILED)
            return NULL;
    return pages;
}
API int cuMemAlloc_v2(address *out, size_t size)
{
    ENTER;
    if (size == 0) return INVALID_VALUE;
    if (in_use() + size > number_of("FAKE_CUDA_MEMORY", 1ull << 32)) return OUT_OF_MEMORY;
    const size_t rounded = (size + ALIGNED - 1) & ~(size_t)(ALIGNED - 1);
    const size_t mapped = (rounded + PAGE - 1) & ~(size_t)(PAGE - 1);
    char *const pages = map_garbage(mapped, PROT_NONE);
    if (!pages) return OUT_OF_MEMORY;
    *out = (address)(uintptr_t)(pages + PAGE + mapped - rounded);
    device_memory[*out] = memory{size, mapped, pages, here()->device};
    return 0;
}
static bool is_garbage(const char *begin, const char *end)
{
    while (begin < end && (uint8_t)*begin == GARBAGE) begin++;
    return begin == end;
}
API int cuMemFree_v2(address at)
{
    ENTER_TO_FREE;
    if (at == 0) return 0;
    auto found = device_memory.find(at);
    if (found == device_memory.end() || !found->second.mapped)
        return refuse(INVALID_VALUE, "cuMemFree: %#llx was not allocated, or is freed", at);
    const memory m = found->second;
    const char *const data = (const char *)(uintptr_t)at, *const pages = m.pages + PAGE;
    bool is_intact;
    {
        const opened o;
        is_intact = is_garbage(pages, data) && is_garbage(data + m.size, pages + m.mapped);
    }
    device_memory.erase(found);
    munmap(m.pages, m.mapped + 2 * PAGE);
    return is_intact ? 0
                     : refuse(ILLEGAL_ADDRESS, "something was written beside %llu bytes", m.size);
}
API int cuMemAllocAsync(address *out, size_t size, stream *s)
{
    ENTER;
    STREAM(s);
    (void)in;
    return cuMemAlloc_v2(out, size);
}
API int cuMemFreeAsync(address at, stream *s)
{
    ENTER_TO_FREE;
    STREAM(s);
    return give(in, [=] { return cuMemFree_v2(at); });
}
API int cuMemHostAlloc(void **out, size_t size, unsigned flags)
{
    ENTER;
    (void)flags;
    if (size == 0) return INVALID_VALUE;
    const size_t mapped = (size + PAGE - 1) & ~(size_t)(PAGE - 1);
    char *const pages = map_garbage(mapped, PROT_READ | PROT_WRITE);
    if (!pages) return OUT_OF_MEMORY;
    *out = pages + PAGE + mapped - (size + 15) / 16 * 16;
    pinned[(const char *)*out] = size;
    return 0;
}
API int cuMemAllocHost_v2(void **out, size_t size) { return cuMemHostAlloc(out, size, 0); }
API int cuMemFreeHost(void *p)
{
    ENTER_TO_FREE;
    auto found = pinned.find((const char *)p);
    if (found == pinned.end())
        return refuse(INVALID_VALUE, "cuMemFreeHost: %p was not allocated, or is freed", p);
    const size_t mapped = (found->second + PAGE - 1) & ~(size_t)(PAGE - 1);
    pinned.erase(found);
    munmap((char *)((uintptr_t)p & ~(uintptr_t)(PAGE - 1)) - PAGE, mapped + 2 * PAGE);
    return 0;
}
API int cuMemHostRegister_v2(void *p, size_t size, unsigned flags)
{
    ENTER;
    (void)flags;
    pinned[(const char *)p] = size;
    return 0;
}
API int cuMemHostUnregister(void *p)
{
    ENTER_TO_FREE;
    return pinned.erase((const char *)p) ? 0 : INVALID_VALUE;
}
API void fake_cuda_adopt(void *p, size_t size)
{
    std::lock_guard<std::recursive_mutex> hold(lock);
    if (size) device_memory[(address)(uintptr_t)p] = memory{size, 0, NULL, 0};
    else device_memory.erase((address)(uintptr_t)p);
}
API int cuPointerGetAttribute(void *data, int attribute, address at)
{
    ENTER_INITIALIZED;
    const memory *const m = find_memory(at, 1);
    if (!m && !is_pinned((const void *)(uintptr_t)at, 1)) return INVALID_VALUE;
    switch (attribute) {
    case 2: *(unsigned *)data = m ? 2 : 1; return 0;    /* of the device, of the host */
    case 9: *(int *)data = m ? m->device : 0; return 0; /* which device */
    }
    return refuse(INVALID_VALUE, "attribute %d of a pointer is not known here", attribute);
}

/* -- copies -- */

static int run_copy(void *dst, const void *src, size_t size)
{
    const opened o;
    memmove(dst, src, size);
    return 0;
}
/* Host memory that was pinned when the copy was given must be so when it runs. */
static int copy_in(stream *s, address dst, const void *src, size_t size)
{
    if (!is_pinned(src, size)) { /* is taken at once, as it may change when the call returns */
        counts["pageable"]++;
        auto copy = std::make_shared<std::string>((const char *)src, size);
        return give(s, [=] {
            if (check_device("a copy that runs", "dst", dst, size)) return (int)ILLEGAL_ADDRESS;
            return run_copy((void *)(uintptr_t)dst, copy->data(), size);
        });
    }
    return give(s, [=] {
        if (!is_pinned(src, size) || check_device("a copy that runs", "dst", dst, size))
            return refuse(ILLEGAL_ADDRESS, "a copy runs whose memory is freed");
        return run_copy((void *)(uintptr_t)dst, src, size);
    });
}
static int copy_out(stream *s, void *dst, address src, size_t size)
{
    const bool was_pinned = is_pinned(dst, size);
    give(s, [=] {
        if (was_pinned != is_pinned(dst, size) ||
            check_device("a copy that runs", "src", src, size))
            return refuse(ILLEGAL_ADDRESS, "a copy runs whose memory is freed");
        return run_copy(dst, (const void *)(uintptr_t)src, size);
    });
    if (was_pinned) return 0;
    counts["pageable"]++;
    return run_all(s);
}
API int cuMemcpyHtoDAsync_v2(address dst, const void *src, size_t size, stream *s)
{
    ENTER;
    STREAM(s);
    if (check_device(__func__, "dst", dst, size) || (size && check_host(__func__, src, size)))
        return INVALID_VALUE;
    return copy_in(in, dst, src, size);
}
API int cuMemcpyDtoHAsync_v2(void *dst, address src, size_t size, stream *s)
{
    ENTER;
    STREAM(s);
    if (check_device(__func__, "src", src, size) || (size && check_host(__func__, dst, size)))
        return INVALID_VALUE;
    return copy_out(in, dst, src, size);
}
API int cuMemcpyDtoDAsync_v2(address dst, address src, size_t size, stream *s)
{
    ENTER;
    STREAM(s);
    if (check_device(__func__, "dst", dst, size) || check_device(__func__, "src", src, size))
        return INVALID_VALUE;
    if (size && dst < src + size && src < dst + size)
        return refuse(INVALID_VALUE, "%s: the ranges overlap", __func__);
    return give(in, [=] {
        if (check_device("a copy that runs", "dst", dst, size) ||
            check_device("a copy that runs", "src", src, size))
            return (int)ILLEGAL_ADDRESS;
        return run_copy((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, size);
    });
}
/* These are done when they return, but for a copy within the device. */
API int cuMemcpyHtoD_v2(address dst, const void *src, size_t size)
{
    const int failure = cuMemcpyHtoDAsync_v2(dst, src, size, NULL);
    return failure ? failure : run_all(here()->null_stream.get());
}
API int cuMemcpyDtoH_v2(void *dst, address src, size_t size)
{
    const int failure = cuMemcpyDtoHAsync_v2(dst, src, size, NULL);
    return failure ? failure : run_all(here()->null_stream.get());
}
API int cuMemcpyDtoD_v2(address dst, address src, size_t size)
{
    return cuMemcpyDtoDAsync_v2(dst, src, size, NULL);
}
API int cuMemsetD8Async(address dst, unsigned char value, size_t size, stream *s)
{
    ENTER;
    STREAM(s);
    if (check_device(__func__, "dst", dst, size)) return INVALID_VALUE;
    return give(in, [=] {
        if (check_device("a fill that runs", "dst", dst, size)) return (int)ILLEGAL_ADDRESS;
        const opened o;
        memset((void *)(uintptr_t)dst, value, size);
        return 0;
    });
}
API int cuMemsetD32Async(address dst, unsigned value, size_t n, stream *s)
{
    ENTER;
    STREAM(s);
    if (dst % 4 || check_device(__func__, "dst", dst, 4 * n)) return INVALID_VALUE;
    return give(in, [=] {
        if (check_device("a fill that runs", "dst", dst, 4 * n)) return (int)ILLEGAL_ADDRESS;
        const opened o;
        for (size_t i = 0; i < n; i++) ((unsigned *)(uintptr_t)dst)[i] = value;
        return 0;
    });
}

/* -- streams and events -- */

API int cuStreamCreate(stream **s, unsigned flags)
{
    ENTER;
    (void)flags;
    auto made = std::make_shared<stream>();
    made->device = here()->device;
    *s = made.get();
    streams[*s] = made;
    return 0;
}
API int cuStreamCreateWithPriority(stream **s, unsigned flags, int priority)
{
    (void)priority;
    return cuStreamCreate(s, flags);
}
API int cuStreamDestroy_v2(stream *s)
{
    ENTER_TO_FREE;
    if (!streams.count(s)) return refuse(INVALID_HANDLE, "%s: no stream", __func__);
    run_all(s);
    streams.erase(s);
    return 0;
}
API int cuStreamSynchronize(stream *s)
{
    ENTER;
    STREAM(s);
    return run_all(in);
}
API int cuStreamQuery(stream *s)
{
    ENTER;
    STREAM(s);
    if (!in->queue.empty()) run_first(in);
    return here()->broken ? here()->broken : in->queue.empty() ? 0 : NOT_READY;
}
API int cuEventCreate(event **e, unsigned flags)
{
    ENTER;
    (void)flags;
    auto made = std::make_shared<event>();
    *e = made.get();
    events[*e] = made;
    return 0;
}
#define EVENT(e)                                                                                   \
    if (!events.count(e)) return refuse(INVALID_HANDLE, "%s: no event", __func__)
API int cuEventDestroy_v2(event *e)
{
    ENTER_TO_FREE;
    EVENT(e);
    events.erase(e);
    return 0;
}
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}
API int cuEventRecord(event *e, stream *s)
{
    ENTER;
    STREAM(s);
    EVENT(e);
    auto kept = events[e];
    const unsigned long long number = ++e->recorded;
    e->where = s && streams.count(s) ? streams[s] : here()->null_stream;
    return give(in, [=] {
        kept->done = number;
        kept->time = now();
        return 0;
    });
}
API int cuStreamWaitEvent(stream *s, event *e, unsigned flags)
{
    ENTER;
    STREAM(s);
    EVENT(e);
    (void)flags;
    if (e->done < e->recorded) in->queue.push_back(work{nullptr, events[e], e->recorded, e->where});
    return 0;
}
API int cuEventSynchronize(event *e)
{
    ENTER;
    EVENT(e);
    if (e->done < e->recorded) run_until(e->where.get(), e, e->recorded);
    return here()->broken;
}
API int cuEventQuery(event *e)
{
    ENTER;
    EVENT(e);
    if (e->done < e->recorded && !e->where->queue.empty()) run_first(e->where.get());
    return here()->broken ? here()->broken : e->done < e->recorded ? NOT_READY : 0;
}
API int cuEventElapsedTime(float *ms, event *a, event *b)
{
    ENTER;
    EVENT(a);
    EVENT(b);
    if (!a->recorded || !b->recorded) return INVALID_HANDLE;
    if (a->done < a->recorded || b->done < b->recorded) return NOT_READY;
    *ms = (float)(b->time - a->time);
    return 0;
}

/* -- kernels -- */

API int cuModuleLoadData(module **m, const void *data)
{
    ENTER;
    image made;
    memcpy(&made, data, sizeof made); /* the caller has the length; real drivers read as much */
    if (memcmp(made.magic, MAGIC, sizeof MAGIC) || made.size != sizeof made)
        return refuse(INVALID_IMAGE, "cuModuleLoadData: no cubin of the stand-in");
    if (made.arch != arch())
        return refuse(NO_BINARY_FOR_GPU, "cuModuleLoadData: a cubin for sm_%d", made.arch);
    *m = new module{made};
    modules.insert(*m);
    return 0;
}
API int cuModuleLoadDataEx(module **m, const void *data, unsigned n, int *options, void **values)
{
    (void)n, (void)options, (void)values;
    return cuModuleLoadData(m, data);
}
API int cuModuleUnload(module *m)
{
    ENTER_TO_FREE;
    if (!modules.erase(m)) return refuse(INVALID_HANDLE, "%s: no module", __func__);
    for (auto f = functions.begin(); f != functions.end();)
        f = f->second->owner == m ? functions.erase(f) : std::next(f);
    delete m;
    return 0;
}
API int cuModuleGetFunction(function **f, module *m, const char *name)
{
    ENTER;
    if (!modules.count(m)) return refuse(INVALID_HANDLE, "%s: no module", __func__);
    static void *const itself = dlopen(
        [] {
            Dl_info info;
            dladdr((const void *)&cuInit, &info);
            return info.dli_fname;
        }(),
        RTLD_NOW);
    void *const found = strncmp(name, "lmc_", 4) ? NULL : dlsym(itself, name);
    if (!found) return refuse(NOT_FOUND, "decode.cu has no kernel %s", name);
    *f = new function{m, name, found, 49152};
    functions[*f].reset(*f);
    return 0;
}
#define FUNCTION(f)                                                                                \
    if (!functions.count(f)) return refuse(INVALID_HANDLE, "%s: no function", __func__)
API int cuFuncSetAttribute(function *f, int attribute, int value)
{
    ENTER;
    FUNCTION(f);
    if (attribute == 9) return 0; /* which part of the cache is shared memory */
    if (attribute != 8 || value < 0 || value > shared_optin())
        return refuse(INVALID_VALUE, "%s: attribute %d, %d", f->name.c_str(), attribute, value);
    f->shared_limit = (unsigned)value;
    return 0;
}
API int cuFuncGetAttribute(int *value, int attribute, function *f)
{
    ENTER;
    FUNCTION(f);
    switch (attribute) {
    case 0: *value = 1024; return 0; /* threads of a group */
    case 1:                          /* shared and local memory, by the compiler */
    case 3: *value = 0; return 0;
    case 4: *value = 80; return 0; /* registers */
    case 8: *value = (int)f->shared_limit; return 0;
    }
    return refuse(INVALID_VALUE, "attribute %d of a function is not known here", attribute);
}
API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, function *f, int threads, size_t shared)
{
    ENTER;
    FUNCTION(f);
    const int by_shared = shared ? (shared_optin() + 1024) / (int)(shared + 1024) : 32;
    const int by_threads = 2048 / threads;
    *n = by_shared < by_threads ? by_shared : by_threads;
    return 0;
}

#define ADDRESS(p) (address)(uintptr_t)(p)

/* All that a kernel reads and writes. */
static int check_sums(const SumPiece *pieces, u32 n, Sums *sums, const Tables *tables)
{
    if (check_device("lmc_sums", "pieces", ADDRESS(pieces), n * sizeof *pieces) ||
        check_device("lmc_sums", "sums", ADDRESS(sums), n * sizeof *sums) ||
        check_device("lmc_sums", "tables", ADDRESS(tables), sizeof *tables))
        return ILLEGAL_ADDRESS;
    for (u32 i = 0; i < n; i++)
        if (check_device("lmc_sums", "a piece", pieces[i].at, pieces[i].size))
            return ILLEGAL_ADDRESS;
    return 0;
}
static int check_headers(const u64 *blocks, u32 n, u8 *headers)
{
    const u32 size = 24;
    if (check_device("lmc_headers", "blocks", ADDRESS(blocks), n * sizeof *blocks) ||
        check_device("lmc_headers", "headers", ADDRESS(headers), (u64)size * n))
        return ILLEGAL_ADDRESS;
    for (u32 i = 0; i < n; i++)
        if (check_device("lmc_headers", "a block", blocks[i], size)) return ILLEGAL_ADDRESS;
    return 0;
}
static int check_decode(const Block *blocks, u32 n, u32 *status, const Tables *tables, u8 *scratch,
                        u64 scratch_size, unsigned groups)
{
    if (check_device("a kernel", "blocks", ADDRESS(blocks), n * sizeof *blocks) ||
        check_device("a kernel", "status", ADDRESS(status), n * sizeof *status) ||
        check_device("a kernel", "tables", ADDRESS(tables), sizeof *tables) ||
        (scratch_size &&
         check_device("a kernel", "scratch", ADDRESS(scratch), scratch_size * groups)))
        return ILLEGAL_ADDRESS;
    if (scratch_size % 256 || ADDRESS(scratch) % 256)
        return refuse(ILLEGAL_ADDRESS, "a kernel: scratch is not aligned to 256");
    for (u32 i = 0; i < n; i++) {
        const Block b = blocks[i];
        if (check_device("a block", "in", b.in, (u64)b.in_size + PAD) ||
            check_device("a block", "out", b.out, b.out_size) ||
            (b.base && check_device("a block", "base", b.base, b.out_size)))
            return ILLEGAL_ADDRESS;
        const u8 width = *(const u8 *)(uintptr_t)(b.in + 1);
        if (width && width <= 8 && !(width & (width - 1)) && (b.out | b.base) % width)
            return refuse(ILLEGAL_ADDRESS, "a block of width %d is at %#llx", width,
                          (unsigned long long)b.out);
    }
    return 0;
}
/* A kernel's turn in its stream. */
template <class Check, class Run>
static int run_kernel(Check check, unsigned groups, unsigned threads, unsigned shared, Run run)
{
    counts["kernel"]++;
    if (int failure = wanted_failure("kernel", LAUNCH_FAILED)) return failure;
    const opened o;
    if (int failure = check()) return failure;
    cpu::launch(groups, threads, shared, run);
    return 0;
}
API int cuLaunchKernel(function *f, unsigned groups, unsigned y, unsigned z, unsigned threads,
                       unsigned threads_y, unsigned threads_z, unsigned shared, stream *s,
                       void **parameters, void **extra)
{
    ENTER;
    STREAM(s);
    FUNCTION(f);
    if (!groups || y != 1 || z != 1 || !threads || threads > 1024 || threads % 32 ||
        threads_y != 1 || threads_z != 1 || !parameters || extra)
        return refuse(INVALID_VALUE, "%s: groups of %u threads, %u of them", f->name.c_str(),
                      threads, groups);
    if (shared > f->shared_limit)
        return refuse(INVALID_VALUE, "%s: %u bytes of shared memory, and %u are allowed",
                      f->name.c_str(), shared, f->shared_limit);
#define ARGUMENT(i, type) (*(type const *)parameters[i])
    if (f->code == (void *)lmc_sums) {
        const auto pieces = ARGUMENT(0, SumPiece *);
        const auto n = ARGUMENT(1, u32);
        const auto sums = ARGUMENT(2, Sums *);
        const auto tables = ARGUMENT(3, Tables *);
        return give(in, [=] {
            return run_kernel([=] { return check_sums(pieces, n, sums, tables); }, groups, threads,
                              shared, [=] { lmc_sums(pieces, n, sums, tables); });
        });
    }
    if (f->code == (void *)lmc_headers) {
        const auto headers_of = ARGUMENT(0, u64 *);
        const auto n = ARGUMENT(1, u32);
        const auto headers = ARGUMENT(2, u8 *);
        return give(in, [=] {
            return run_kernel([=] { return check_headers(headers_of, n, headers); }, groups,
                              threads, shared, [=] { lmc_headers(headers_of, n, headers); });
        });
    }
    const auto run = (decode_function *)f->code;
    const auto blocks = ARGUMENT(0, Block *);
    const auto n = ARGUMENT(1, u32);
    const auto status = ARGUMENT(2, u32 *);
    const auto tables = ARGUMENT(3, Tables *);
    const auto scratch = ARGUMENT(4, u8 *);
    const auto scratch_size = ARGUMENT(5, u64);
    return give(in, [=] {
        return run_kernel(
            [=] {
                counts["block"] += n;
                return check_decode(blocks, n, status, tables, scratch, scratch_size, groups);
            },
            groups, threads, shared,
            [=] {
                if (!*text_of("FAKE_CUDA_STATUS"))
                    run(blocks, n, status, tables, scratch, scratch_size);
                else if (threadIdx.x == 0 && blockIdx.x == 0)
                    for (u32 i = 0; i < n; i++) status[i] = (u32)number_of("FAKE_CUDA_STATUS", 0);
            });
    });
}

/* The newest function of a name, as the driver gives it. */
API int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *how)
{
    ENTER_FREELY;
    (void)version, (void)flags;
    const std::string newest = std::string(name) + "_v2";
    *found = dlsym(RTLD_DEFAULT, newest.c_str());
    if (!*found) *found = dlsym(RTLD_DEFAULT, name);
    if (how) *how = *found ? 0 : 1;
    return *found ? 0 : NOT_FOUND;
}
} // namespace driver
#endif
