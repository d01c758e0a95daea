#pragma once
#include "base/platform.h"

/* The functions of libcuda and NVRTC that are used, declared as in their headers, so no header of
 * CUDA is needed. CUDA has all of them since 11.2. */

#ifdef _WIN32
#define LMC__CUDA_CALL __stdcall
#else
#define LMC__CUDA_CALL
#endif

typedef int lmc__cu_device;
typedef unsigned long long lmc__cu_address; /* CUdeviceptr */
typedef struct lmc__cu_context_ *lmc__cu_context;
typedef struct lmc__cu_module_ *lmc__cu_module;
typedef struct lmc__cu_function_ *lmc__cu_function;
typedef struct lmc__cu_stream_ *lmc__cu_stream;
typedef struct lmc__cu_event_ *lmc__cu_event;
typedef struct lmc__nvrtc_program_ *lmc__nvrtc_program;

/* X(name, arguments): functions of the driver, by the names that libcuda exports; all return a
 * CUresult, 0 on success. */
#define LMC__CUDA_FUNCTIONS(X)                                                                     \
    X(cuInit, (unsigned flags))                                                                    \
    X(cuGetErrorName, (int error, const char **name))                                              \
    X(cuGetErrorString, (int error, const char **text))                                            \
    X(cuDeviceGet, (lmc__cu_device * device, int ordinal))                                         \
    X(cuDeviceGetAttribute, (int *value, int attribute, lmc__cu_device device))                    \
    X(cuDevicePrimaryCtxRetain, (lmc__cu_context * context, lmc__cu_device device))                \
    X(cuDevicePrimaryCtxRelease_v2, (lmc__cu_device device))                                       \
    X(cuCtxPushCurrent_v2, (lmc__cu_context context))                                              \
    X(cuCtxPopCurrent_v2, (lmc__cu_context * context))                                             \
    X(cuModuleLoadData, (lmc__cu_module * module, const void *image))                              \
    X(cuModuleUnload, (lmc__cu_module module))                                                     \
    X(cuModuleGetFunction, (lmc__cu_function * function, lmc__cu_module module, const char *name)) \
    X(cuFuncSetAttribute, (lmc__cu_function function, int attribute, int value))                   \
    X(cuLaunchKernel,                                                                              \
      (lmc__cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,               \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_size,                 \
       lmc__cu_stream stream, void **arguments, void **extra))                                     \
    X(cuMemAlloc_v2, (lmc__cu_address * address, size_t size))                                     \
    X(cuMemFree_v2, (lmc__cu_address address))                                                     \
    X(cuMemGetInfo_v2, (size_t *available, size_t *total))                                         \
    X(cuMemHostAlloc, (void **data, size_t size, unsigned flags))                                  \
    X(cuMemFreeHost, (void *data))                                                                 \
    X(cuMemcpyHtoDAsync_v2,                                                                        \
      (lmc__cu_address dst, const void *src, size_t size, lmc__cu_stream stream))                  \
    X(cuMemcpyDtoHAsync_v2, (void *dst, lmc__cu_address src, size_t size, lmc__cu_stream stream))  \
    X(cuMemcpyDtoDAsync_v2,                                                                        \
      (lmc__cu_address dst, lmc__cu_address src, size_t size, lmc__cu_stream stream))              \
    X(cuMemsetD8Async,                                                                             \
      (lmc__cu_address dst, unsigned char value, size_t size, lmc__cu_stream stream))              \
    X(cuStreamCreate, (lmc__cu_stream * stream, unsigned flags))                                   \
    X(cuStreamDestroy_v2, (lmc__cu_stream stream))                                                 \
    X(cuStreamSynchronize, (lmc__cu_stream stream))                                                \
    X(cuStreamWaitEvent, (lmc__cu_stream stream, lmc__cu_event event, unsigned flags))             \
    X(cuEventCreate, (lmc__cu_event * event, unsigned flags))                                      \
    X(cuEventDestroy_v2, (lmc__cu_event event))                                                    \
    X(cuEventRecord, (lmc__cu_event event, lmc__cu_stream stream))                                 \
    X(cuEventSynchronize, (lmc__cu_event event))

/* The same for NVRTC; all return an nvrtcResult, 0 on success. */
#define LMC__NVRTC_FUNCTIONS(X)                                                                    \
    X(nvrtcVersion, (int *major, int *minor))                                                      \
    X(nvrtcCreateProgram, (lmc__nvrtc_program * program, const char *source, const char *name,     \
                           int n_headers, const char *const *headers, const char *const *names))   \
    X(nvrtcDestroyProgram, (lmc__nvrtc_program * program))                                         \
    X(nvrtcCompileProgram,                                                                         \
      (lmc__nvrtc_program program, int n_options, const char *const *options))                     \
    X(nvrtcGetProgramLogSize, (lmc__nvrtc_program program, size_t *size))                          \
    X(nvrtcGetProgramLog, (lmc__nvrtc_program program, char *log))                                 \
    X(nvrtcGetCUBINSize, (lmc__nvrtc_program program, size_t *size))                               \
    X(nvrtcGetCUBIN, (lmc__nvrtc_program program, char *cubin))

/* Numbers of CUresult, CUdevice_attribute and CUfunction_attribute; flags of events (no timing) and
 * of streams (not waiting for the default stream). */
enum {
    LMC__CU_OUT_OF_MEMORY = 2,
    LMC__CU_MULTIPROCESSORS = 16,
    LMC__CU_MAJOR = 75,
    LMC__CU_MINOR = 76,
    LMC__CU_MAX_SHARED = 97,
    LMC__CU_SET_SHARED = 8,
    LMC__CU_NO_TIMING = 2,
    LMC__CU_NON_BLOCKING = 1
};

typedef struct lmc__cuda_functions {
#define LMC__MEMBER(name, arguments) int(LMC__CUDA_CALL * name) arguments;
    LMC__CUDA_FUNCTIONS(LMC__MEMBER)
    LMC__NVRTC_FUNCTIONS(LMC__MEMBER)
#undef LMC__MEMBER
} lmc__cuda_functions;
