/* SPDX-License-Identifier: MIT */
#include "container.h"

#include "container_check.h"
#include "torch.h"

const char *container_name(enum container_kind kind)
{
    switch (kind) {
    case CONTAINER_SAFETENSORS: return "safetensors";
    case CONTAINER_GGUF: return "GGUF";
    case CONTAINER_NPY: return "NumPy";
    case CONTAINER_TORCH: return "PyTorch";
    case CONTAINER_NONE: break;
    }
    return "plain";
}

static int ends_with(const char *name, const char *suffix)
{
    const size_t size = strlen(name), length = strlen(suffix);
    return size >= length && strcmp(name + size - length, suffix) == 0;
}

/* Suffixes of PyTorch do not tell the kind: other programs use these suffixes, too. */
static const struct {
    const char *suffix;
    enum container_kind kind;
} kinds[] = {{".safetensors", CONTAINER_SAFETENSORS},
             {".gguf", CONTAINER_GGUF},
             {".npy", CONTAINER_NPY},
             {".pt", CONTAINER_NONE},
             {".pth", CONTAINER_NONE},
             {".bin", CONTAINER_NONE},
             {".ckpt", CONTAINER_NONE},
             {"", CONTAINER_NONE}};

static size_t find_kind(const char *name)
{
    size_t i = 0;
    while (!ends_with(name, kinds[i].suffix)) i++;
    return i;
}

enum container_kind container_kind_of_name(const char *name) { return kinds[find_kind(name)].kind; }

const char *container_suffix(const char *name) { return kinds[find_kind(name)].suffix; }

static enum container_kind container_kind_of_content(const unsigned char *data, size_t size)
{
    if (size >= 4 && memcmp(data, "GGUF", 4) == 0) return CONTAINER_GGUF;
    if (size >= 6 && memcmp(data, "\x93NUMPY", 6) == 0) return CONTAINER_NPY;
    if (size >= 9 && data[8] == '{' && data[4] == 0 && data[5] == 0 && data[6] == 0 && data[7] == 0)
        return CONTAINER_SAFETENSORS;
    return CONTAINER_NONE;
}

/* After an error, keeps only what the caller needs to know. */
static enum container_result end_parsing(struct container *c, enum container_result result)
{
    if (result == CONTAINER_OK) return result;
    struct container keep = *c;
    container_free(c);
    c->kind = keep.kind;
    c->need = keep.need;
    memcpy(c->error, keep.error, sizeof c->error);
    return result;
}

static enum container_result parse_as(struct container *c, enum container_kind kind,
                                      const unsigned char *data, size_t size, uint64_t file_size)
{
    enum container_result result = CONTAINER_OTHER;
    memset(c, 0, sizeof *c);
    switch (kind) {
    case CONTAINER_SAFETENSORS:
        result = container_parse_safetensors(c, data, size, file_size);
        break;
    case CONTAINER_GGUF: result = container_parse_gguf(c, data, size, file_size); break;
    case CONTAINER_NPY: result = container_parse_npy(c, data, size, file_size); break;
    case CONTAINER_TORCH: /* see container_parse_view */
    case CONTAINER_NONE: break;
    }
    return end_parsing(c, result);
}

enum container_result container_parse(struct container *c, const void *data, size_t size,
                                      uint64_t file_size, enum container_kind expected)
{
    const unsigned char *bytes = (const unsigned char *)data;
    const enum container_kind kind = container_kind_of_content(bytes, size);
    enum container_result result = parse_as(c, kind, bytes, size, file_size);
    if (result == CONTAINER_OK || result == CONTAINER_MORE || result == CONTAINER_MEMORY ||
        expected == CONTAINER_NONE || expected == kind)
        return result;
    return parse_as(c, expected, bytes, size, file_size);
}

uint64_t container_weigh_views(const struct container *c)
{
    uint64_t weight = 0;
    for (size_t i = 0; i < c->n_views; i++)
        weight +=
            sizeof *c->views + strlen(c->views[i].name) + 2 * sizeof(uint64_t) * c->views[i].rank;
    return weight;
}

int container_has_said_all(uint64_t n_read, uint64_t n_found, uint64_t size)
{
    const uint64_t unit = (uint64_t)1 << 20;
    return n_read > 256 * unit + 64 * size || n_found > 32 * unit + 8 * size;
}

int container_is_legacy_torch(const void *data, size_t size)
{
    static const unsigned char magic[] = {0x80, 2,    0x8A, 10,   0x6C, 0xFC, 0x9C,
                                          0x46, 0xF9, 0x20, 0x6A, 0xA8, 0x50, 0x19};
    return size >= sizeof magic && memcmp(data, magic, sizeof magic) == 0;
}

int container_is_lfs_pointer(const void *data, size_t size)
{
    static const char text[] = "version https://git-lfs.github.com/spec/";
    return size >= sizeof text - 1 && memcmp(data, text, sizeof text - 1) == 0;
}

int container_wants_view(const void *data, size_t size, const char *name)
{
    return (size >= 4 && memcmp(data, "PK\3\4", 4) == 0) || container_is_distcp(name);
}

enum container_result container_parse_view(struct container *c, const struct view *v,
                                           const char *name, const struct dcp *d)
{
    memset(c, 0, sizeof *c);
    enum container_result result = container_is_distcp(name) ? container_parse_distcp(c, v, d, name)
                                                             : container_parse_torch_save(c, v);
    return end_parsing(c, result);
}

enum container_result container_find_views(struct container *c, const struct view *v,
                                           const lmc_file *f, const struct dcp *d)
{
    memset(c, 0, sizeof *c);
    return end_parsing(c, container_find_torch_views(c, v, f, d));
}
