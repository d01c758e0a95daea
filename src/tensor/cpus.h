#pragma once
#include "extra_api.h"
#include "base/platform.h"

/* LMC_PTHREADS: how many threads a pool has if nobody says it. The machine may have more CPUs than
 * this process: batch systems and containers restrict it by affinity, and containers by a quota of
 * CPU time, in microseconds for each period. Each control group (cgroup) on the way to that of the
 * process may have a quota, and the least counts:
 *     /proc/self/cgroup              quota and period
 *     0::/a/b            version 2   /sys/fs/cgroup/a/b/cpu.max, /sys/fs/cgroup/a/cpu.max, ...
 *     4:cpu,cpuacct:/a/b version 1   /sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us and cpu.cfs_period_us,
 *                                    /sys/fs/cgroup/cpu/a/..., ...
 *
 * A container may not see the upper groups, and without a namespace of its own its group has the
 * host's name, but stands at /sys/fs/cgroup itself. So what is missing is passed over. */
#ifdef LMC_PTHREADS
#include <stdio.h>
#include <stdlib.h>
#if !defined(_WIN32)
#include <unistd.h>
#endif

enum { LMC__MAX_DEFAULT_WORKERS = 16 };

#ifdef __linux__
enum { LMC__CPU_LINE_CAP = 4096 };

static FILE *lmc__open_system_file(const char *dir, const char *name)
{
    char path[LMC__CPU_LINE_CAP + 64];
    const int size = snprintf(path, sizeof path, "%s/%s", dir, name);
    return size > 0 && (size_t)size < sizeof path ? fopen(path, "re") : NULL;
}

/* Passes over lines that do not fit. Returns 0 at the end. */
static int lmc__next_line(FILE *f, char line[LMC__CPU_LINE_CAP])
{
    while (fgets(line, LMC__CPU_LINE_CAP, f)) {
        int c;
        if (strchr(line, '\n') || feof(f)) return 1;
        do c = getc(f);
        while (c != '\n' && c != EOF);
    }
    return 0;
}

/* CPUs to which the calling thread is bound, a hexadecimal mask; 0: unknown. */
static long lmc__count_affine_cpus(const char *root)
{
    static const char key[] = "Cpus_allowed:";
    char line[LMC__CPU_LINE_CAP];
    long n = 0;
    FILE *const f = lmc__open_system_file(root, "proc/thread-self/status");
    while (f && lmc__next_line(f, line)) {
        const char *p = line + sizeof key - 1;
        if (strncmp(line, key, sizeof key - 1) != 0) continue;
        for (; *p; p++) {
            const char digit[2] = {*p, 0};
            unsigned long bits = strtoul(digit, NULL, 16);
            for (; bits; bits >>= 1) n += (long)(bits & 1);
        }
        break;
    }
    if (f) (void)fclose(f);
    return n;
}

/* Reads up to n numbers of the first line. Those that are missing, or "max", are 0. */
static void lmc__read_numbers(const char *dir, const char *name, long *numbers, int n)
{
    char line[LMC__CPU_LINE_CAP], *p = line;
    FILE *const f = lmc__open_system_file(dir, name);
    int i;
    if (!f || !lmc__next_line(f, line)) line[0] = 0;
    for (i = 0; i < n; i++) numbers[i] = strtol(p, &p, 10);
    if (f) (void)fclose(f);
}

/* The least of n and what the quotas of a group, and of those above it, are worth. dir: the group's
 * directory, which is shortened to its first `size` bytes, where the groups begin. */
static long lmc__limit_cpus(long n, char *dir, size_t size, int version)
{
    for (;;) {
        long numbers[2], cpus;
        if (version == 2) lmc__read_numbers(dir, "cpu.max", numbers, 2);
        else {
            lmc__read_numbers(dir, "cpu.cfs_quota_us", numbers, 1);
            lmc__read_numbers(dir, "cpu.cfs_period_us", numbers + 1, 1);
        }
        if (numbers[0] > 0 && numbers[1] > 0) { /* -1 or "max": no limit */
            cpus = numbers[0] / numbers[1] + (numbers[0] % numbers[1] != 0);
            if (cpus < n) n = cpus;
        }
        if (strlen(dir) <= size) return n;
        *strrchr(dir, '/') = 0;
    }
}

static int lmc__has_cpu_controller(const char *list)
{
    while (*list != ':') {
        const size_t size = strcspn(list, ",:");
        if (size == 3 && memcmp(list, "cpu", 3) == 0) return 1;
        list += size + (list[size] == ',');
    }
    return 0;
}

static long lmc__limit_by_groups(long n, const char *root)
{
    char line[LMC__CPU_LINE_CAP], dir[LMC__CPU_LINE_CAP + 64];
    FILE *const f = lmc__open_system_file(root, "proc/self/cgroup");
    while (f && lmc__next_line(f, line)) {
        const char *const list = strchr(line, ':') ? strchr(line, ':') + 1 : "";
        const char *const group = strchr(list, ':') ? strchr(list, ':') + 1 : "";
        const int version = *list == ':' ? 2 : 1;
        int size, group_size;
        /* "/..": a group that this namespace cannot see */
        if (*group != '/' || strncmp(group, "/..", 3) == 0) continue;
        if (version == 1 && !lmc__has_cpu_controller(list)) continue;
        size = snprintf(dir, sizeof dir, "%s/sys/fs/cgroup%s", root, version == 1 ? "/cpu" : "");
        group_size = (int)strcspn(group, "\n");
        if (size < 0 || (size_t)size + (size_t)group_size >= sizeof dir) continue;
        memcpy(dir + size, group, (size_t)group_size);
        dir[size + group_size] = 0;
        n = lmc__limit_cpus(n, dir, (size_t)size, version);
    }
    if (f) (void)fclose(f);
    return n;
}
#endif /* __linux__ */

/* root: where /proc and /sys are; "" but in tests. */
static unsigned lmc__default_workers(const char *root)
{
    long n = 0;
#ifdef __linux__
    n = lmc__count_affine_cpus(root);
#endif
#ifdef _SC_NPROCESSORS_ONLN
    if (n <= 0) n = sysconf(_SC_NPROCESSORS_ONLN);
#elif defined(_WIN32)
    if (getenv("NUMBER_OF_PROCESSORS")) n = strtol(getenv("NUMBER_OF_PROCESSORS"), NULL, 10);
#endif
    if (n > LMC__MAX_DEFAULT_WORKERS) n = LMC__MAX_DEFAULT_WORKERS;
#ifdef __linux__
    n = lmc__limit_by_groups(n, root);
#else
    (void)root;
#endif
    return n < 1 ? 1 : (unsigned)n;
}

LMC_API unsigned lmc_default_workers(void) { return lmc__default_workers(""); }
#endif
