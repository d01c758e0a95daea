#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/options.h"
#include "snapshot/buffer.h"
#include "snapshot/sha256.h"
#include "gpu/cuda_api.h"
#include "gpu/kernels.h"
#include "gpu/cuda_driver.h"
#include "gpu/cuda_text.h"

#include <stdarg.h>
#include <stdio.h>
#ifdef _WIN32
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#else
#include <dlfcn.h>
#include <unistd.h>
#endif

/* Opens libcuda, NVRTC, a device, and the kernels:
 *     lmc_cuda_open -> libraries -> device, its primary context
 *                   -> the text of the kernels -> cache, or NVRTC -> cubin -> module
 *
 * Each member of struct lmc_cuda is zero until it is made; lmc_cuda_free frees members that are
 * not zero. So it can close an object whose open has failed. */

/* One of the two halves of memory that waves of blocks use in turn (cuda_wave.h). */
typedef struct lmc__cuda_half {
    lmc__buffer jobs, pieces, ranges; /* lmc__cuda_job, ..._piece, ..._range */
    /* pinned: packed bytes as they are read; the table of the kernels, and their statuses */
    uint8_t *packed;
    lmc__gpu_block *table;
    uint32_t *status;
    /* the same on the device, statuses behind the table; decoded blocks and gathered predictions,
     * allocated when needed */
    lmc__cu_address gpu_packed, gpu_table, gpu_out, gpu_base;
    lmc__cu_event copied, decoded;
    size_t packed_cap;            /* of packed, without LMC__GPU_PAD */
    size_t packed_size, out_size; /* of the wave */
} lmc__cuda_half;
#define LMC__CUDA_HALF_BUFFERS LMC__ROW(lmc__cuda_half, jobs, packed)

struct lmc_cuda {
    lmc_cuda_options options;
    lmc__cuda_functions f;
    void *driver, *nvrtc;
    lmc__cu_device device;
    lmc__cu_context context;
    lmc__cu_module module;
    lmc__cu_function kernels[LMC__GPU_KERNELS]; /* NULL: the device has too little shared memory */
    uint32_t shared[LMC__GPU_KERNELS];          /* bytes of it for a group */
    lmc__cu_function sums, headers;             /* of sums.cu */
    unsigned n_multiprocessors;
    lmc__cu_stream own;     /* for copies to the device, and of pieces within it */
    lmc__cu_event started;  /* in the caller's stream, behind its earlier work */
    lmc__cu_address tables; /* lmc__gpu_tables */
    lmc__cu_address scratch;
    uint64_t scratch_size;
    /* The most decoded and packed bytes of a wave, for which device memory is allocated. 0: none
     * is. */
    size_t half_size, packed_cap;
    lmc__cuda_half halves[2];
    /* spans: lmc__cuda_span of the current call; host: bytes that the reader decodes */
    lmc__buffer spans, host;
    size_t next_span; /* the next to be planned: in that span, from that byte of its stream on */
    uint64_t next_at;
    lmc__cu_stream stream; /* the caller's, in the current call */
    lmc__cu_address given; /* 0, or the address of a part of the LMC file */
    uint64_t given_at, given_size;
    uint8_t is_passed[LMC__GPU_KERNELS]; /* 1: not tried again in this call (cuda_wave.h) */
    lmc_cuda_counts counts;
    char message[768];
};
#define LMC__CUDA_BUFFERS LMC__ROW(lmc_cuda, spans, next_span)

#ifdef __GNUC__
__attribute__((format(printf, 3, 4)))
#endif
LMC__COLD static enum lmc_status
lmc__cuda_fail(lmc_cuda *c, enum lmc_status status, const char *format, ...)
{
    va_list arguments;
    char *p;
    va_start(arguments, format);
    (void)vsnprintf(c->message, sizeof c->message, format, arguments);
    va_end(arguments);
    /* one line, though names of a file may have line ends, and NVRTC's log has many lines */
    for (p = c->message; *p; p++)
        if ((uint8_t)*p < 0x20 || *p == 0x7F) *p = ' ';
    return status;
}

/* For errors without a message, for example of host memory and arguments: the status's text. */
static enum lmc_status lmc__cuda_note(lmc_cuda *c, enum lmc_status status)
{
    return status == LMC_OK || c->message[0]
               ? status
               : lmc__cuda_fail(c, status, "%s", lmc_status_text(status));
}

/* error: what `function`, a function of the driver, has returned. */
static enum lmc_status lmc__cuda_check(lmc_cuda *c, int error, const char *function)
{
    const char *name = NULL, *text = NULL;
    if (error == 0) return LMC_OK;
    if (c->f.cuGetErrorName(error, &name) != 0 || !name) name = "an unknown error";
    if (c->f.cuGetErrorString(error, &text) != 0 || !text) text = "no description";
    if (error == LMC__CU_OUT_OF_MEMORY)
        return lmc__cuda_fail(c, LMC_ERR_MEMORY,
                              "CUDA: %s failed: %s (%s): free memory of the GPU, or take a smaller "
                              "staging_size",
                              function, name, text);
    return lmc__cuda_fail(c, LMC_ERR_DEVICE,
                          "CUDA: %s failed on device %u: %s (%s): decode on the CPU; if it happens "
                          "again, check the driver (nvidia-smi)",
                          function, (unsigned)c->options.device, name, text);
}

/* Calls a function of the driver, and returns from the calling function if it fails. */
#define LMC__CUDA(c, name, arguments) LMC__TRY(lmc__cuda_check(c, (c)->f.name arguments, #name))

/* Called around all use of the device, so that the caller's context stays the same. */
static enum lmc_status lmc__cuda_enter(lmc_cuda *c)
{
    LMC__CUDA(c, cuCtxPushCurrent_v2, (c->context));
    return LMC_OK;
}
static void lmc__cuda_leave(lmc_cuda *c)
{
    lmc__cu_context context;
    (void)c->f.cuCtxPopCurrent_v2(&context);
}

/* -- libraries --
 * These are never closed: the driver has threads, and work to do when the process ends. */

#ifdef _WIN32
static void *lmc__open_library(const char *path) { return (void *)LoadLibraryA(path); }
static unsigned long lmc__process_number(void) { return GetCurrentProcessId(); }
#else
static void *lmc__open_library(const char *path) { return dlopen(path, RTLD_NOW | RTLD_LOCAL); }
static unsigned long lmc__process_number(void) { return (unsigned long)getpid(); }
#endif

/* Sets a pointer to a function, or to NULL: ISO C has no cast from a pointer to an object. */
static void lmc__find_symbol(void *library, const char *name, void *pointer)
{
#ifdef _WIN32
    const FARPROC found = GetProcAddress((HMODULE)library, name);
#else
    void *const found = dlsym(library, name);
#endif
    memcpy(pointer, &found, sizeof found);
}

/* Opens `path` if it is not NULL, else the first of `names` that the system finds. what: text for
 * the message that tells how to get the library. */
LMC__COLD static enum lmc_status lmc__find_library(lmc_cuda *c, void **library, const char *path,
                                                   const char *const *names, const char *what)
{
    size_t i;
    if (path) *library = lmc__open_library(path);
    for (i = 0; !path && names[i] && !*library; i++) *library = lmc__open_library(names[i]);
    if (*library) return LMC_OK;
    return lmc__cuda_fail(c, LMC_ERR_DEVICE, "CUDA: %s cannot be opened: %s",
                          path ? path : names[0], what);
}

LMC__COLD static enum lmc_status lmc__open_libraries(lmc_cuda *c)
{
#ifdef _WIN32
    static const char *const drivers[] = {"nvcuda.dll", NULL};
    static const char *const compilers[] = {"nvrtc64_130_0.dll", "nvrtc64_120_0.dll",
                                            "nvrtc64_112_0.dll", NULL};
#else
    static const char *const drivers[] = {"libcuda.so.1", NULL};
    static const char *const compilers[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2",
                                            NULL};
#endif
    const char *missing = NULL;
    LMC__TRY(lmc__find_library(c, &c->driver, c->options.driver_path, drivers,
                               "is there a GPU of NVIDIA, and its driver?"));
    LMC__TRY(lmc__find_library(c, &c->nvrtc, c->options.nvrtc_path, compilers,
                               "install NVRTC (it comes with the CUDA Toolkit and with PyTorch; "
                               "pip: nvidia-cuda-nvrtc-cu12), or set nvrtc_path"));
#define LMC__FIND(name, arguments)                                                                 \
    lmc__find_symbol(library, #name, &c->f.name);                                                  \
    if (!c->f.name) missing = #name;
    {
        void *const library = c->driver;
        LMC__CUDA_FUNCTIONS(LMC__FIND)
    }
    {
        void *const library = c->nvrtc;
        LMC__NVRTC_FUNCTIONS(LMC__FIND)
    }
#undef LMC__FIND
    if (!missing) return LMC_OK;
    return lmc__cuda_fail(c, LMC_ERR_DEVICE,
                          "CUDA: %s has no function %s: it is older than CUDA 11.2; update it",
                          strncmp(missing, "nvrtc", 5) == 0 ? "NVRTC" : "the driver", missing);
}

/* -- kernels -- */

typedef struct lmc__cuda_code {
    lmc__buffer text, cubin;
    char arch[48];    /* the option */
    int major, minor; /* of NVRTC */
    uint8_t key[32];  /* SHA-256 of all that the cubin depends on */
} lmc__cuda_code;
#define LMC__CUDA_CODE_BUFFERS LMC__ROW(lmc__cuda_code, text, arch)

static const char *const lmc__cuda_options_of_nvrtc[] = {"--std=c++17", "-default-device"};

static enum lmc_status lmc__join_text(lmc__cuda_code *code)
{
    size_t i;
    for (i = 0; lmc__cuda_text[i]; i++)
        LMC__TRY(lmc__append(&code->text, lmc__cuda_text[i], strlen(lmc__cuda_text[i])));
    return lmc__append(&code->text, NULL, 1);
}

static void lmc__make_key(lmc__cuda_code *code)
{
    lmc__sha256 sha;
    size_t i;
    lmc__sha256_init(&sha);
    lmc__sha256_number(&sha, (uint64_t)code->major, 4);
    lmc__sha256_number(&sha, (uint64_t)code->minor, 4);
    lmc__sha256_update(&sha, code->arch, strlen(code->arch) + 1);
    for (i = 0; i < sizeof lmc__cuda_options_of_nvrtc / sizeof *lmc__cuda_options_of_nvrtc; i++)
        lmc__sha256_update(&sha, lmc__cuda_options_of_nvrtc[i],
                           strlen(lmc__cuda_options_of_nvrtc[i]) + 1);
    lmc__sha256_update(&sha, code->text.data, code->text.size);
    lmc__sha256_finish(&sha, code->key);
}

/* A file of the cache begins with a mark and the SHA-256 of the key and the cubin; the cubin
 * follows. So no damaged file is used, and no file of another key. */
#define LMC__CUBIN_MARK "LMC cubin 1\n\0\0\0\0"
#define LMC__CUBIN_HEAD (16 + 32)

static void lmc__hash_cubin(const lmc__cuda_code *code, const uint8_t *cubin, size_t size,
                            uint8_t hash[32])
{
    lmc__sha256 sha;
    lmc__sha256_init(&sha);
    lmc__sha256_update(&sha, code->key, sizeof code->key);
    lmc__sha256_update(&sha, cubin, size);
    lmc__sha256_finish(&sha, hash);
}

/* DIR/lmc-KEY.cubin, followed by `end`. */
static enum lmc_status lmc__cache_path(const lmc_cuda *c, const lmc__cuda_code *code,
                                       const char *end, lmc__buffer *path)
{
    char name[64];
    size_t i;
    memcpy(name, "/lmc-", 5);
    for (i = 0; i < 16; i++) (void)snprintf(name + 5 + 2 * i, 3, "%02x", code->key[i]);
    memcpy(name + 37, ".cubin", 7);
    LMC__TRY(lmc__append(path, c->options.cache_dir, strlen(c->options.cache_dir)));
    LMC__TRY(lmc__append(path, name, strlen(name)));
    return lmc__append(path, end, strlen(end) + 1);
}

/* A cubin has a few hundred KB. */
#define LMC__MAX_CUBIN ((size_t)64 << 20)

/* Reads the cubin from the cache, if it is there and right. code->cubin begins with the head. */
LMC__COLD static enum lmc_status lmc__read_cache(lmc__cuda_code *code, const char *path)
{
    uint8_t hash[32];
    FILE *const file = fopen(path, "rb");
    size_t n = 1;
    enum lmc_status status = LMC_OK;
    if (!file) return LMC_ERR_NOT_FOUND;
    while (n && status == LMC_OK && code->cubin.size < LMC__MAX_CUBIN) {
        status = lmc__reserve(&code->cubin, (uint64_t)64 << 10);
        if (status != LMC_OK) break;
        n = fread(code->cubin.data + code->cubin.size, 1, (size_t)64 << 10, file);
        code->cubin.size += n;
    }
    (void)fclose(file);
    LMC__TRY(status);
    if (code->cubin.size <= LMC__CUBIN_HEAD || memcmp(code->cubin.data, LMC__CUBIN_MARK, 16) != 0)
        return LMC_ERR_NOT_FOUND;
    lmc__hash_cubin(code, code->cubin.data + LMC__CUBIN_HEAD, code->cubin.size - LMC__CUBIN_HEAD,
                    hash);
    return memcmp(hash, code->cubin.data + 16, 32) == 0 ? LMC_OK : LMC_ERR_NOT_FOUND;
}

/* The file appears whole or not at all. If it cannot be written, that is no error. */
LMC__COLD static void lmc__write_cache(const lmc_cuda *c, const lmc__cuda_code *code,
                                       const char *path)
{
    char end[64];
    lmc__buffer part;
    FILE *file;
    int is_whole;
    lmc__init_buffer(&part, c->options.allocator);
    (void)snprintf(end, sizeof end, ".%lu.%lx", lmc__process_number(),
                   (unsigned long)((uintptr_t)c >> 4 & 0xFFFFFF));
    if (lmc__cache_path(c, code, end, &part) == LMC_OK) {
        file = fopen((const char *)part.data, "wb");
        if (file) {
            is_whole = fwrite(code->cubin.data, 1, code->cubin.size, file) == code->cubin.size;
            is_whole &= fclose(file) == 0;
#ifdef _WIN32
            if (is_whole) (void)remove(path); /* rename() does not replace files there */
#endif
            if (!is_whole || rename((const char *)part.data, path) != 0)
                (void)remove((const char *)part.data);
        }
    }
    lmc__free_buffer(&part);
}

/* Compiles the text; code->cubin gets the head of a file, too. */
LMC__COLD static enum lmc_status lmc__compile_cubin(lmc_cuda *c, lmc__cuda_code *code)
{
    enum { N_FIXED = (int)(sizeof lmc__cuda_options_of_nvrtc / sizeof(char *)) };
    const char *options[N_FIXED + 1];
    lmc__nvrtc_program program = NULL;
    enum lmc_status status = LMC_OK;
    size_t size = 0;
    int error;
    memcpy(options, lmc__cuda_options_of_nvrtc, sizeof lmc__cuda_options_of_nvrtc);
    options[N_FIXED] = code->arch;
    if (c->f.nvrtcCreateProgram(&program, (const char *)code->text.data, "lmc_decode.cu", 0, NULL,
                                NULL) != 0)
        return lmc__cuda_fail(c, LMC_ERR_DEVICE, "NVRTC %d.%d: nvrtcCreateProgram failed",
                              code->major, code->minor);
    error = c->f.nvrtcCompileProgram(program, N_FIXED + 1, options);
    code->cubin.size = 0;
    if (error == 0 && c->f.nvrtcGetCUBINSize(program, &size) == 0 && size != 0 &&
        size < LMC__MAX_CUBIN) {
        status = lmc__append(&code->cubin, NULL, LMC__CUBIN_HEAD + size);
        if (status == LMC_OK)
            error = c->f.nvrtcGetCUBIN(program, (char *)code->cubin.data + LMC__CUBIN_HEAD);
    } else {
        char log[400] = "";
        lmc__buffer text;
        lmc__init_buffer(&text, c->options.allocator);
        if (c->f.nvrtcGetProgramLogSize(program, &size) == 0 && size != 0 &&
            lmc__append(&text, NULL, size + 1) == LMC_OK &&
            c->f.nvrtcGetProgramLog(program, (char *)text.data) == 0)
            (void)snprintf(log, sizeof log, "%s", (const char *)text.data);
        lmc__free_buffer(&text);
        status = lmc__cuda_fail(c, LMC_ERR_DEVICE,
                                "NVRTC %d.%d cannot compile the kernels (%s): an NVRTC that knows "
                                "this GPU is needed: %s",
                                code->major, code->minor, code->arch, log);
    }
    (void)c->f.nvrtcDestroyProgram(&program);
    LMC__TRY(status);
    if (error != 0)
        return lmc__cuda_fail(c, LMC_ERR_DEVICE, "NVRTC %d.%d: nvrtcGetCUBIN failed: %d",
                              code->major, code->minor, error);
    memcpy(code->cubin.data, LMC__CUBIN_MARK, 16);
    lmc__hash_cubin(code, code->cubin.data + LMC__CUBIN_HEAD, size, code->cubin.data + 16);
    c->counts.compiled = 1;
    return LMC_OK;
}

/* If the driver refuses a cubin of the cache, it is compiled again, too. */
LMC__COLD static enum lmc_status lmc__load_kernels(lmc_cuda *c, lmc__cuda_code *code,
                                                   lmc__buffer *path)
{
    LMC__TRY(lmc__join_text(code));
    if (c->f.nvrtcVersion(&code->major, &code->minor) != 0)
        return lmc__cuda_fail(c, LMC_ERR_DEVICE, "NVRTC: nvrtcVersion failed");
    lmc__make_key(code);
    if (c->options.cache_dir) {
        enum lmc_status status;
        LMC__TRY(lmc__cache_path(c, code, "", path));
        status = lmc__read_cache(code, (const char *)path->data);
        if (status == LMC_OK &&
            c->f.cuModuleLoadData(&c->module, code->cubin.data + LMC__CUBIN_HEAD) == 0)
            return LMC_OK;
        if (status == LMC_ERR_MEMORY) return status;
    }
    c->module = NULL;
    LMC__TRY(lmc__compile_cubin(c, code));
    LMC__CUDA(c, cuModuleLoadData, (&c->module, code->cubin.data + LMC__CUBIN_HEAD));
    if (c->options.cache_dir) lmc__write_cache(c, code, (const char *)path->data);
    return LMC_OK;
}

/* Finds the kernels that this device can run. Several kernels may use one function, which is then
 * allowed the largest shared memory that one of these kernels needs. */
LMC__COLD static enum lmc_status lmc__find_gpu_kernels(lmc_cuda *c)
{
    int most = 0, i, k;
    LMC__CUDA(c, cuDeviceGetAttribute, (&most, LMC__CU_MAX_SHARED, c->device));
    LMC__CUDA(c, cuModuleGetFunction, (&c->sums, c->module, "lmc_sums"));
    LMC__CUDA(c, cuModuleGetFunction, (&c->headers, c->module, "lmc_headers"));
    for (i = 0; i < LMC__GPU_KERNELS; i++) {
        const lmc__gpu_kernel *const kernel = &lmc__gpu_kernels[i];
        uint32_t allowed;
        c->shared[i] = (uint32_t)lmc__min64(kernel->shared_size, (uint64_t)most);
        if (c->shared[i] < kernel->shared_least) continue;
        LMC__CUDA(c, cuModuleGetFunction, (&c->kernels[i], c->module, kernel->name));
        allowed = c->shared[i];
        for (k = 0; k < i; k++)
            if (strcmp(lmc__gpu_kernels[k].name, kernel->name) == 0 && allowed < c->shared[k])
                allowed = c->shared[k];
        LMC__CUDA(c, cuFuncSetAttribute, (c->kernels[i], LMC__CU_SET_SHARED, (int)allowed));
    }
    return LMC_OK;
}

LMC__COLD static enum lmc_status lmc__copy_tables(lmc_cuda *c)
{
    lmc__buffer buffer;
    enum lmc_status status;
    lmc__init_buffer(&buffer, c->options.allocator);
    status = lmc__append(&buffer, NULL, sizeof(lmc__gpu_tables));
    if (status == LMC_OK) {
        lmc__gpu_make_tables((lmc__gpu_tables *)(void *)buffer.data);
        status = lmc__cuda_check(c, c->f.cuMemAlloc_v2(&c->tables, buffer.size), "cuMemAlloc");
    }
    if (status == LMC_OK)
        status = lmc__cuda_check(
            c, c->f.cuMemcpyHtoDAsync_v2(c->tables, buffer.data, buffer.size, c->own),
            "cuMemcpyHtoDAsync");
    if (status == LMC_OK)
        status = lmc__cuda_check(c, c->f.cuStreamSynchronize(c->own), "cuStreamSynchronize");
    lmc__free_buffer(&buffer);
    return status;
}

/* Within the context. */
LMC__COLD static enum lmc_status lmc__open_context(lmc_cuda *c)
{
    lmc__cuda_code code;
    lmc__buffer path;
    enum lmc_status status;
    int major = 0, minor = 0, n = 0;
    unsigned i;
    LMC__CUDA(c, cuDeviceGetAttribute, (&n, LMC__CU_MULTIPROCESSORS, c->device));
    LMC__CUDA(c, cuDeviceGetAttribute, (&major, LMC__CU_MAJOR, c->device));
    LMC__CUDA(c, cuDeviceGetAttribute, (&minor, LMC__CU_MINOR, c->device));
    if (10 * major + minor < 75)
        return lmc__cuda_fail(c, LMC_ERR_DEVICE,
                              "CUDA: device %u has compute capability %d.%d; 7.5 (Turing) or later "
                              "is needed: decode on the CPU",
                              (unsigned)c->options.device, major, minor);
    c->n_multiprocessors = n > 0 ? (unsigned)n : 1;
    LMC__CUDA(c, cuStreamCreate, (&c->own, LMC__CU_NON_BLOCKING));
    LMC__CUDA(c, cuEventCreate, (&c->started, LMC__CU_NO_TIMING));
    for (i = 0; i < 2; i++) {
        LMC__CUDA(c, cuEventCreate, (&c->halves[i].copied, LMC__CU_NO_TIMING));
        LMC__CUDA(c, cuEventCreate, (&c->halves[i].decoded, LMC__CU_NO_TIMING));
    }
    memset(&code, 0, sizeof code);
    lmc__init_buffers(&code, LMC__CUDA_CODE_BUFFERS, c->options.allocator);
    lmc__init_buffer(&path, c->options.allocator);
    (void)snprintf(code.arch, sizeof code.arch, "--gpu-architecture=sm_%d%d", major, minor);
    status = lmc__load_kernels(c, &code, &path);
    lmc__free_buffers(&code, LMC__CUDA_CODE_BUFFERS);
    lmc__free_buffer(&path);
    LMC__TRY(status);
    LMC__TRY(lmc__find_gpu_kernels(c));
    return lmc__copy_tables(c);
}

LMC__COLD static enum lmc_status lmc__open_device(lmc_cuda *c)
{
    enum lmc_status status;
    LMC__TRY(lmc__open_libraries(c));
    LMC__CUDA(c, cuInit, (0));
    LMC__CUDA(c, cuDeviceGet, (&c->device, (int)c->options.device));
    LMC__CUDA(c, cuDevicePrimaryCtxRetain, (&c->context, c->device));
    LMC__TRY(lmc__cuda_enter(c));
    status = lmc__open_context(c);
    lmc__cuda_leave(c);
    return status;
}

#define LMC__MIN_STAGING ((uint64_t)2 * LMC_MAX_BLOCK_SIZE)
#define LMC__MAX_STAGING ((uint64_t)4 << 30)

LMC__COLD LMC_API enum lmc_status lmc_cuda_open(lmc_cuda **cuda, const lmc_cuda_options *options)
{
    lmc_cuda_options o;
    lmc_cuda *c;
    unsigned i;
    if (!cuda) return LMC_ERR_ARGUMENT;
    *cuda = NULL;
    LMC__TRY(LMC__TAKE_OPTIONS(&o, allocator, options));
    if ((o.staging_size != 0 && o.staging_size < LMC__MIN_STAGING) ||
        o.staging_size > LMC__MAX_STAGING || o.device > INT_MAX)
        return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__check_allocator(o.allocator));
    c = (lmc_cuda *)lmc__realloc(o.allocator, NULL, 0, sizeof *c);
    if (!c) return LMC_ERR_MEMORY;
    memset(c, 0, sizeof *c);
    c->options = o;
    lmc__init_buffers(c, LMC__CUDA_BUFFERS, o.allocator);
    for (i = 0; i < 2; i++) lmc__init_buffers(&c->halves[i], LMC__CUDA_HALF_BUFFERS, o.allocator);
    *cuda = c;
    return lmc__cuda_note(c, lmc__open_device(c));
}

static void lmc__free_on_gpu(lmc_cuda *c, lmc__cu_address *address)
{
    if (*address) (void)c->f.cuMemFree_v2(*address);
    *address = 0;
}

/* Within the context, while no work is pending. */
static void lmc__free_staging(lmc_cuda *c)
{
    unsigned i;
    for (i = 0; i < 2; i++) {
        lmc__free_on_gpu(c, &c->halves[i].gpu_packed);
        lmc__free_on_gpu(c, &c->halves[i].gpu_table);
        lmc__free_on_gpu(c, &c->halves[i].gpu_out);
        lmc__free_on_gpu(c, &c->halves[i].gpu_base);
    }
    lmc__free_on_gpu(c, &c->scratch);
    c->scratch_size = 0;
    c->half_size = 0;
}

LMC__COLD LMC_API void lmc_cuda_trim(lmc_cuda *c)
{
    if (!c || !c->tables) return;
    if (c->f.cuCtxPushCurrent_v2(c->context) != 0) return;
    lmc__free_staging(c);
    lmc__cuda_leave(c);
}

LMC__COLD static void lmc__free_half(lmc_cuda *c, lmc__cuda_half *h)
{
    if (h->packed) (void)c->f.cuMemFreeHost(h->packed);
    if (h->table) (void)c->f.cuMemFreeHost(h->table);
    if (h->copied) (void)c->f.cuEventDestroy_v2(h->copied);
    if (h->decoded) (void)c->f.cuEventDestroy_v2(h->decoded);
}

/* Errors of CUDA are ignored here: the caller could do nothing about them. */
LMC__COLD LMC_API void lmc_cuda_free(lmc_cuda *c)
{
    unsigned i;
    if (!c) return;
    if (c->context && lmc__cuda_enter(c) == LMC_OK) {
        if (c->own) (void)c->f.cuStreamSynchronize(c->own);
        lmc__free_staging(c);
        for (i = 0; i < 2; i++) lmc__free_half(c, &c->halves[i]);
        lmc__free_on_gpu(c, &c->tables);
        if (c->started) (void)c->f.cuEventDestroy_v2(c->started);
        if (c->own) (void)c->f.cuStreamDestroy_v2(c->own);
        if (c->module) (void)c->f.cuModuleUnload(c->module);
        lmc__cuda_leave(c);
    }
    if (c->context) (void)c->f.cuDevicePrimaryCtxRelease_v2(c->device);
    for (i = 0; i < 2; i++) lmc__free_buffers(&c->halves[i], LMC__CUDA_HALF_BUFFERS);
    lmc__free_buffers(c, LMC__CUDA_BUFFERS);
    (void)lmc__realloc(c->options.allocator, c, sizeof *c, 0);
}

LMC_API const char *lmc_cuda_message(const lmc_cuda *c) { return c ? c->message : ""; }

LMC_API void lmc_cuda_get_counts(const lmc_cuda *c, lmc_cuda_counts *counts)
{
    if (c && counts) *counts = c->counts;
}
