/* hdf5_filter.c - LMC as a filter of HDF5: a plug-in for any program with HDF5 1.10 or later
 * SPDX-License-Identifier: MIT
 *
 *     cmake -B build/cmake -DLMC_BUILD_HDF5_FILTER=ON && cmake --build build/cmake
 *     HDF5_PLUGIN_PATH=build/cmake h5repack -f UD=47802,0,0 in.h5 out.h5
 *
 * or: cc -O2 -fPIC -shared hdf5_filter.c -o liblmc_hdf5.so. docs/arrays.md says how to use it.
 *
 * It needs neither headers nor a library of HDF5, and must not be linked with HDF5. A process may
 * have several copies of HDF5 (h5py, netCDF4 and PyTables each have their own), which load the same
 * plug-in, and an identifier of one copy is not valid in another. So each call uses the functions
 * of the copy that called it, which it finds by its return address. All declarations of HDF5 in
 * this file are the same since 1.10. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr, RTLD_DEFAULT */
#endif
#ifndef LMC_FILTER_LINKED /* if defined: link with another file that implements lmc.h */
#define LMC_IMPLEMENTATION
#define LMC_STATIC
#define LMC_NO_SNAPSHOT
#define LMC_NO_QUANTIZE
#endif
#include "../lmc.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef _WIN32
#include <windows.h>
#define EXPORT __declspec(dllexport)
#else
#include <dlfcn.h>
#define EXPORT __attribute__((visibility("default")))
#endif

/* A number for private use, until one is registered with The HDF Group. */
#define FILTER_ID 47802

/* -- declarations of H5public.h, H5Ipublic.h, H5Tpublic.h and H5Zpublic.h -- */

#ifdef FILTER_CHECK /* the tests also compile it with the real headers: all types must agree */
#include <H5PLextern.h>
#include <hdf5.h>
#else
typedef int64_t hid_t;
typedef int herr_t;
typedef int htri_t;
typedef uint64_t hsize_t;
typedef int H5Z_filter_t;
typedef int H5PL_type_t;
enum { H5PL_TYPE_FILTER = 0, H5Z_CLASS_T_VERS = 1, H5Z_FLAG_REVERSE = 0x100 };
enum { H5T_INTEGER, H5T_FLOAT, H5T_BITFIELD = 4, H5T_COMPOUND = 6, H5T_ENUM = 8, H5T_ARRAY = 10 };
enum { H5T_ORDER_LE = 0, H5T_ORDER_NONE = 4, H5T_SGN_NONE = 0 };
typedef struct H5Z_class2_t {
    int version;
    H5Z_filter_t id;
    unsigned encoder_present, decoder_present;
    const char *name;
    htri_t (*can_apply)(hid_t dcpl, hid_t type, hid_t space);
    herr_t (*set_local)(hid_t dcpl, hid_t type, hid_t space);
    size_t (*filter)(unsigned flags, size_t n_values, const unsigned values[], size_t n_bytes,
                     size_t *buffer_size, void **buffer);
} H5Z_class2_t;
EXPORT H5PL_type_t H5PLget_plugin_type(void);
EXPORT const void *H5PLget_plugin_info(void);
#endif
#define CLASS_COMPLEX 11 /* H5T_COMPLEX, since 2.0 */
#define MAX_RANK 32      /* H5S_MAX_RANK */

/* The functions of HDF5 that this file calls, with their names. Enumerations are ints. */
typedef struct hdf5 {
    int (*H5Tget_class)(hid_t);
    size_t (*H5Tget_size)(hid_t);
    int (*H5Tget_order)(hid_t);
    int (*H5Tget_sign)(hid_t);
    herr_t (*H5Tget_fields)(hid_t, size_t *, size_t *, size_t *, size_t *, size_t *);
    hid_t (*H5Tget_super)(hid_t);
    int (*H5Tget_nmembers)(hid_t);
    hid_t (*H5Tget_member_type)(hid_t, unsigned);
    herr_t (*H5Tclose)(hid_t);
    int (*H5Pget_chunk)(hid_t, int, hsize_t *);
    herr_t (*H5Pget_filter_by_id2)(hid_t, H5Z_filter_t, unsigned *, size_t *, unsigned *, size_t,
                                   char *, unsigned *);
    herr_t (*H5Pmodify_filter)(hid_t, H5Z_filter_t, unsigned, size_t, const unsigned *);
} hdf5;

#ifdef FILTER_CHECK
/* Never called: it does not compile if a declaration above is not that of HDF5. */
hdf5 check_types(void);
hdf5 check_types(void)
{
    const hdf5 h = {(int (*)(hid_t))H5Tget_class,
                    H5Tget_size,
                    (int (*)(hid_t))H5Tget_order,
                    (int (*)(hid_t))H5Tget_sign,
                    H5Tget_fields,
                    H5Tget_super,
                    H5Tget_nmembers,
                    H5Tget_member_type,
                    H5Tclose,
                    H5Pget_chunk,
                    H5Pget_filter_by_id2,
                    H5Pmodify_filter};
    char is_right[sizeof(hid_t) == 8 && sizeof(hsize_t) == 8 && H5PL_TYPE_FILTER == 0 &&
                          H5Z_CLASS_T_VERS == 1 && H5Z_FLAG_REVERSE == 0x100 && H5T_INTEGER == 0 &&
                          H5T_FLOAT == 1 && H5T_BITFIELD == 4 && H5T_COMPOUND == 6 &&
                          H5T_ENUM == 8 && H5T_ARRAY == 10 && H5T_ORDER_LE == 0 &&
                          H5T_ORDER_NONE == 4 && H5T_SGN_NONE == 0
                      ? 1
                      : -1];
    (void)is_right;
    return h;
}
#endif

/* -- the copy of HDF5 that called -- */

typedef struct library {
    void *handle;
    bool is_open;
} library;

/* The program or library that contains `address`. */
static library find_library(const void *address)
{
    library lib = {NULL, false};
#ifdef _WIN32
    HMODULE module = NULL;
    if (GetModuleHandleExA(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS |
                               GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
                           (LPCSTR)address, &module))
        lib.handle = (void *)module;
#else
    Dl_info info;
    if (dladdr(address, &info) && info.dli_fname)
        lib.handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    lib.is_open = lib.handle != NULL;
    if (!lib.is_open) lib.handle = RTLD_DEFAULT; /* HDF5 is linked into the program itself */
#endif
    return lib;
}

static void close_library(library lib)
{
#ifndef _WIN32
    if (lib.is_open) dlclose(lib.handle);
#else
    (void)lib;
#endif
}

/* Stores the address of a function or variable in the pointer at `to`; false: there is none. */
static bool get_symbol(library lib, const char *name, void *to)
{
#ifdef _WIN32
    const FARPROC symbol = lib.handle ? GetProcAddress((HMODULE)lib.handle, name) : NULL;
#else
    void *const symbol = dlsym(lib.handle, name);
#endif
    memcpy(to, &symbol, sizeof symbol);
    return symbol != NULL;
}

static bool get_functions(library lib, hdf5 *h)
{
#define GET(name) get_symbol(lib, #name, &h->name)
    return GET(H5Tget_class) && GET(H5Tget_size) && GET(H5Tget_order) && GET(H5Tget_sign) &&
           GET(H5Tget_fields) && GET(H5Tget_super) && GET(H5Tget_nmembers) &&
           GET(H5Tget_member_type) && GET(H5Tclose) && GET(H5Pget_chunk) &&
           GET(H5Pget_filter_by_id2) && GET(H5Pmodify_filter);
#undef GET
}

/* Puts a message on the stack of errors that HDF5 shows. */
static void report(library lib, const char *text)
{
    herr_t (*push)(hid_t, const char *, const char *, unsigned, hid_t, hid_t, hid_t, const char *,
                   ...);
    const hid_t *class_id, *major, *minor;
    if (get_symbol(lib, "H5Epush2", &push) && get_symbol(lib, "H5E_ERR_CLS_g", &class_id) &&
        get_symbol(lib, "H5E_PLINE_g", &major) && get_symbol(lib, "H5E_CANTFILTER_g", &minor))
        (void)push(0, "hdf5_filter.c", "LMC", 0, *class_id, *major, *minor, "LMC: %s", text);
}

/* Memory that the filter passes to HDF5, or HDF5 to the filter: with HDF5's own allocator if there
 * is one. On Windows it may differ from ours. */
static void *allocate(library lib, size_t size)
{
    void *(*own)(size_t, bool);
    return get_symbol(lib, "H5allocate_memory", &own) ? own(size, false) : malloc(size);
}

static void release(library lib, void *memory)
{
    herr_t (*own)(void *);
    if (get_symbol(lib, "H5free_memory", &own)) (void)own(memory);
    else free(memory);
}

/* -- dtypes -- */

static enum lmc_dtype find_dtype(const hdf5 *h, hid_t type, int depth);

static enum lmc_dtype find_float(const hdf5 *h, hid_t type, size_t size)
{
    size_t sign, exponent, exponent_bits = 0, mantissa, mantissa_bits = 0;
    if (h->H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) < 0)
        return LMC_AUTO;
    switch (size) {
    case 1: return exponent_bits == 4 ? LMC_F8_E4M3 : exponent_bits == 5 ? LMC_F8_E5M2 : LMC_U8;
    case 2: return exponent_bits == 8 ? LMC_BF16 : LMC_F16;
    case 4: return LMC_F32;
    case 8: return LMC_F64;
    default: return LMC_AUTO;
    }
}

static enum lmc_dtype find_integer(size_t size, bool is_signed)
{
    switch (size) {
    case 1: return is_signed ? LMC_I8 : LMC_U8;
    case 2: return is_signed ? LMC_I16 : LMC_U16;
    case 4: return is_signed ? LMC_I32 : LMC_U32;
    case 8: return is_signed ? LMC_I64 : LMC_U64;
    default: return LMC_AUTO;
    }
}

/* As find_dtype; then closes the type. */
static enum lmc_dtype find_dtype_of(const hdf5 *h, hid_t type, int depth)
{
    enum lmc_dtype dtype;
    if (type < 0) return LMC_AUTO;
    dtype = find_dtype(h, type, depth);
    (void)h->H5Tclose(type);
    return dtype;
}

/* The dtype of the members of a record, if all have the same, without padding: complex numbers. */
static enum lmc_dtype find_member_dtype(const hdf5 *h, hid_t type, int depth)
{
    const int n = h->H5Tget_nmembers(type);
    const enum lmc_dtype dtype =
        n > 0 ? find_dtype_of(h, h->H5Tget_member_type(type, 0), depth) : LMC_AUTO;
    size_t size = 0;
    int i;
    for (i = 0; i < n && dtype != LMC_AUTO; i++) {
        const hid_t member = h->H5Tget_member_type(type, (unsigned)i);
        if (member < 0) return LMC_AUTO;
        size += h->H5Tget_size(member);
        if (find_dtype_of(h, member, depth) != dtype) return LMC_AUTO;
    }
    return size == h->H5Tget_size(type) ? dtype : LMC_AUTO;
}

/* The dtype of the elements of an HDF5 type. LMC_AUTO for text, references and big-endian numbers,
 * which are coded as bytes. */
static enum lmc_dtype find_dtype(const hdf5 *h, hid_t type, int depth)
{
    const size_t size = h->H5Tget_size(type);
    const int class_number = h->H5Tget_class(type), order = h->H5Tget_order(type);
    if (depth > 8) return LMC_AUTO; /* the nesting of types has no limit */
    switch (class_number) {
    case H5T_ENUM:
    case H5T_ARRAY:
    case CLASS_COMPLEX: return find_dtype_of(h, h->H5Tget_super(type), depth + 1);
    case H5T_COMPOUND: return find_member_dtype(h, type, depth + 1);
    default: break;
    }
    if (order != H5T_ORDER_LE && order != H5T_ORDER_NONE && size > 1) return LMC_AUTO;
    switch (class_number) {
    case H5T_INTEGER: return find_integer(size, h->H5Tget_sign(type) != H5T_SGN_NONE);
    case H5T_BITFIELD: return find_integer(size, false);
    case H5T_FLOAT: return find_float(h, type, size);
    default: return LMC_AUTO;
    }
}

/* -- the filter --
 * Its values are stored with a dataset. The user may give the first two; set_local adds the others
 * when the dataset is made:
 *   0   level: a number of enum lmc_level as unsigned
 *   1   dtype: a number of enum lmc_dtype; 0: that of the dataset's type
 *   2   bytes of a chunk, the lower 32 bits
 *   3   the upper 32 bits */
enum { LEVEL, DTYPE, CHUNK_LOW, CHUNK_HIGH, N_VALUES };

static const char *check_values(const unsigned values[N_VALUES])
{
    const int level = (int)values[LEVEL];
    if (level < LMC_LEVEL_FAST || level > LMC_LEVEL_ARCHIVE)
        return "the filter's first value is a level, -1 to 2";
    if (!lmc_dtype_name((enum lmc_dtype)values[DTYPE]))
        return "the filter's second value is a dtype's number, at most 27";
    return NULL;
}

static const char *set_values(const hdf5 *h, hid_t dcpl, hid_t type)
{
    unsigned values[N_VALUES] = {0, 0, 0, 0}, flags = 0;
    size_t n = N_VALUES;
    uint64_t size = h->H5Tget_size(type);
    hsize_t chunk[MAX_RANK];
    const char *text;
    int rank, i;
    if (h->H5Pget_filter_by_id2(dcpl, FILTER_ID, &flags, &n, values, 0, NULL, NULL) < 0)
        return "the filter's values cannot be read";
    text = check_values(values);
    if (text) return text;
    rank = h->H5Pget_chunk(dcpl, MAX_RANK, chunk);
    if (rank < 0 || rank > MAX_RANK) return "the dataset is not in chunks";
    for (i = 0; i < rank; i++) size *= chunk[i];
    if (values[DTYPE] == LMC_AUTO) values[DTYPE] = (unsigned)find_dtype(h, type, 0);
    if (h->H5Tget_size(type) % lmc_dtype_width((enum lmc_dtype)values[DTYPE]) != 0)
        return "the dtype that was given is wider than an element of the dataset";
    values[CHUNK_LOW] = (unsigned)size;
    values[CHUNK_HIGH] = (unsigned)(size >> 32);
    return h->H5Pmodify_filter(dcpl, FILTER_ID, flags, N_VALUES, values) < 0
               ? "the filter's values cannot be stored"
               : NULL;
}

static herr_t set_local(hid_t dcpl, hid_t type, hid_t space)
{
    const library lib = find_library(__builtin_return_address(0));
    const char *text = "this HDF5 lacks functions that the plug-in needs";
    hdf5 h;
    (void)space;
    if (get_functions(lib, &h)) text = set_values(&h, dcpl, type);
    if (text) report(lib, text);
    close_library(lib);
    return text ? -1 : 1;
}

/* *size: how many bytes the blocks at src decode to. *options: options whose workspace suffices to
 * decode them. Their elements are bytes, which need more workspace than wider elements. */
static enum lmc_status measure(const unsigned char *src, size_t src_size, uint64_t *size,
                               lmc_tensor_options *options)
{
    uint32_t number = 0;
    size_t at;
    *options = LMC_TENSOR_OPTIONS(LMC_U8);
    options->log2_block = 14;
    *size = 0;
    for (at = 0; at < src_size; number++) {
        lmc_block_info info;
        const enum lmc_status status = lmc_block_parse(src + at, src_size - at, number, &info);
        if (status != LMC_OK) return status;
        if (info.encoded_size > src_size - at) return LMC_ERR_TRUNCATED;
        at += info.encoded_size;
        *size += info.size; /* at most 2^22 for each 25 bytes: does not overflow */
        while (((size_t)1 << options->log2_block) < info.size) options->log2_block++;
    }
    return LMC_OK;
}

static enum lmc_status encode(library lib, const unsigned *values, const void *src, size_t size,
                              void **dst, size_t *dst_cap, size_t *dst_size)
{
    enum lmc_dtype dtype = (enum lmc_dtype)values[DTYPE];
    lmc_tensor_options options;
    uint64_t bound;
    /* a filter before this one may have changed the size of the elements */
    if (size % lmc_dtype_width(dtype) != 0) dtype = LMC_AUTO;
    options = LMC_TENSOR_OPTIONS(dtype);
    options.level = (enum lmc_level)(int)values[LEVEL];
    bound = lmc_tensor_bound(size, &options);
    if (bound > SIZE_MAX) return LMC_ERR_SIZE;
    *dst_cap = (size_t)bound;
    *dst = allocate(lib, *dst_cap);
    return *dst ? lmc_tensor_encode(*dst, *dst_cap, dst_size, src, size, &options, NULL, 0)
                : LMC_ERR_MEMORY;
}

static enum lmc_status decode(library lib, const unsigned *values, const void *src, size_t size,
                              void **dst, size_t *dst_cap, size_t *dst_size)
{
    const uint64_t chunk = values[CHUNK_LOW] | (uint64_t)values[CHUNK_HIGH] << 32;
    lmc_tensor_options options;
    uint64_t total;
    enum lmc_status status = measure((const unsigned char *)src, size, &total, &options);
    if (status != LMC_OK) return status;
    /* a filter before this one may have added some bytes: a checksum, a header */
    if (total == 0 || (chunk != 0 && total > chunk + chunk / 8 + 4096)) return LMC_ERR_CORRUPT;
    if (total > SIZE_MAX) return LMC_ERR_SIZE;
    *dst_cap = *dst_size = (size_t)total;
    *dst = allocate(lib, *dst_cap);
    return *dst ? lmc_tensor_decode_range(*dst, *dst_cap, src, size, 0, total, &options, NULL, 0)
                : LMC_ERR_MEMORY;
}

/* Returns 0 if it failed; then *buffer is unchanged. */
static size_t filter(unsigned flags, size_t n_values, const unsigned values[], size_t n_bytes,
                     size_t *buffer_size, void **buffer)
{
    const library lib = find_library(__builtin_return_address(0));
    unsigned all[N_VALUES] = {0, 0, 0, 0};
    void *dst = NULL;
    size_t cap = 0, size = 0, i;
    enum lmc_status status;
    const char *text;
    for (i = 0; i < n_values && i < N_VALUES; i++) all[i] = values[i];
    text = check_values(all);
    if (!text) {
        status = (flags & H5Z_FLAG_REVERSE ? decode : encode)(lib, all, *buffer, n_bytes, &dst,
                                                              &cap, &size);
        if (status != LMC_OK) text = lmc_status_text(status);
    }
    if (text) {
        report(lib, text);
        if (dst) release(lib, dst);
        size = 0;
    } else {
        release(lib, *buffer);
        *buffer = dst;
        *buffer_size = cap;
    }
    close_library(lib);
    return size;
}

static const H5Z_class2_t class_of_filter = {H5Z_CLASS_T_VERS, FILTER_ID, 1, 1, "lmc", NULL,
                                             set_local,        filter};

EXPORT H5PL_type_t H5PLget_plugin_type(void) { return H5PL_TYPE_FILTER; }
EXPORT const void *H5PLget_plugin_info(void) { return &class_of_filter; }
