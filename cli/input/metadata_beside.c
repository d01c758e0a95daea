/* SPDX-License-Identifier: MIT */
#include "metadata_beside.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../formats/dcp.h"
#include "common.h"
#include "../sys/attributes.h"
#include "../sys/io.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/report.h"

/* The one that was read last. It goes when the process ends. */
static struct {
    char *path; /* NULL: none */
    struct stat st;
    int is_read; /* and understood */
    struct dcp dcp;
} kept;

static void forget_kept(void)
{
    if (kept.is_read) dcp_free(&kept.dcp);
    free(kept.path);
    memset(&kept, 0, sizeof kept);
}

/* fd: of a regular file, which kept.st is of */
static void read_kept(int fd, const struct common *o)
{
    const char *why = "it is too large";
    if ((uint64_t)kept.st.st_size <= pickle_max_size((uint64_t)kept.st.st_size)) {
        const size_t size = (size_t)kept.st.st_size;
        void *data = resize(NULL, size, 1);
        enum container_result result = CONTAINER_BAD;
        why = "it cannot be read";
        if (read_at(fd, 0, data, size) == 0) {
            result = dcp_read(&kept.dcp, data, size, size);
            why = kept.dcp.error;
        }
        free(data);
        if (result == CONTAINER_MEMORY) check_memory(NULL);
        kept.is_read = result == CONTAINER_OK;
    }
    if (!kept.is_read && o->verbosity >= 2)
        say(kept.path, "is not understood (%s), so items of .distcp files have no names", why);
}

const struct dcp *find_metadata_beside(const char *path, const struct common *o)
{
    char *directory = directory_of(path), *beside = join_path(directory, ".metadata");
    const size_t size = strlen(path), length = sizeof ".distcp" - 1;
    const int is_item = size > length && strcmp(path + size - length, ".distcp") == 0;
    struct stat st;
    const int fd = !is_item ? -1 : open(beside, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    free(directory);
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        forget_kept();
        free(beside);
    } else if (kept.path && strcmp(kept.path, beside) == 0 && same_state(&kept.st, &st)) {
        free(beside);
    } else {
        forget_kept();
        kept.path = beside;
        kept.st = st;
        read_kept(fd, o);
    }
    if (fd >= 0) close(fd);
    return kept.is_read ? &kept.dcp : NULL;
}
