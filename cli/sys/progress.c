/* progress.c - the progress line (platform.h)
 * SPDX-License-Identifier: MIT */
#include "platform.h"

#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>

#include "../../formats/printable.h"

/* The one progress line of the process. Only the thread that reads the input changes it. */
static struct progress {
    int wanted;
    const char *name;
    uint64_t total; /* or LMC_UNKNOWN_SIZE */
    uint64_t done;
    double start, drawn;
} progress;

double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void progress_enable(int wanted) { progress.wanted = wanted; }

void progress_start(const char *name, uint64_t total)
{
    progress.name = name;
    progress.total = total;
    progress.done = 0;
    progress.start = progress.drawn = now();
}

size_t count_columns(int fd)
{
    struct winsize size = {0};
    return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* Cuts the name so that the line never wraps, as only one line can be overwritten. */
static void progress_draw(double time)
{
    char rest[128] = "";
    double rate = (double)progress.done / (time - progress.start + 1e-9);
    size_t columns = count_columns(STDERR_FILENO), size;
    columns = (columns ? columns : 80) - 1; /* terminals wrap behind the last column */
    size = (size_t)snprintf(rest, sizeof rest, ": %.1f MB, %.0f MB/s", (double)progress.done / 1e6,
                            rate / 1e6);
    if (progress.total != UINT64_MAX && progress.total != 0) {
        double left = (double)(progress.total - progress.done) / (rate + 1e-9);
        if (progress.done > progress.total) left = 0;
        size += (size_t)snprintf(rest + size, sizeof rest - size, ", %.1f %%, %d:%02d left",
                                 100.0 * (double)progress.done / (double)progress.total,
                                 (int)(left / 60) % 10000, (int)left % 60);
    }
    if (size > columns) rest[size = columns] = 0;
    char *line = (char *)malloc(columns + 1);
    if (!line) return;
    memcpy(line + format_printable(line, columns - size + 1, progress.name), rest, size + 1);
    draw_line(line);
    free(line);
    progress.drawn = time;
}

void progress_add(uint64_t size)
{
    progress.done += size;
    if (progress.wanted) {
        double time = now();
        if (time - progress.drawn > 0.2) progress_draw(time);
    }
}

void progress_take_back(uint64_t size) { progress.done -= size; }

uint64_t progress_done(void) { return progress.done; }
