/* macros.c - lmc.h behind the macros that <windows.h> and what it includes define, and <complex.h>:
 * words that are names elsewhere. The headers that lmc.h includes come first, as they do there. */
#define _DEFAULT_SOURCE
#define LMC_PTHREADS
#define LMC_POSIX
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

/* rpcndr.h */
#define small char
#define hyper __int64
/* minwindef.h, combaseapi.h */
#define near
#define far
#define pascal __stdcall
#define cdecl
#define interface struct
#define min(a, b) (((a) < (b)) ? (a) : (b))
#define max(a, b) (((a) > (b)) ? (a) : (b))
#define IN
#define OUT
#define OPTIONAL
#define CONST const
#undef TRUE
#undef FALSE
#define TRUE 1
#define FALSE 0
#define VOID void
/* wingdi.h, winnt.h, winerror.h */
#define ERROR 0
#define DELETE (0x00010000L)
#define UNALIGNED
#define NO_ERROR 0L
#define STRICT 1
#define ABSOLUTE 1
#define RELATIVE 2
#define PLANES 14
#define OPAQUE 2
#define GetMessage GetMessageA
#define CreateFile CreateFileA
#define DeleteFile DeleteFileA
#define CopyFile CopyFileA
/* complex.h */
#define I (__extension__ 1.0iF)

#define LMC_IMPLEMENTATION
#include "../../../lmc.h"
#include "../../../include/lmc_extra.h"

int main(void) { return lmc_crc32c(0, "123456789", 9) != 0xE3069283u; }
