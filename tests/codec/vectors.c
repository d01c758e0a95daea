/* Prints what lmc.h reads from LMC files, one line of JSON for each file, for vectors.py,
 * which compares it with the manifest. Strings from the file are in hexadecimal.
 *
 *   vectors [--base FILE]... FILE...
 *
 * A base is an LMC file, whose own base is one of the others, or a plain file, which is one tensor
 * without a name. */
#include "t_io.h"

#include <inttypes.h>

#define MAX_FILES 4096
#define MAX_BASES 64

typedef struct t_seen {
    t_sha sha;
    size_t n;
    uint64_t size;
    uint8_t digests[MAX_FILES][32];
    lmc_memory written[MAX_FILES];
} t_seen;

static enum lmc_status seen_begin(void *user, const lmc_file *file, size_t number)
{
    t_seen *seen = (t_seen *)user;
    (void)file;
    t_sha_begin(&seen->sha);
    seen->size = 0;
    return number == seen->n && number < MAX_FILES ? LMC_OK : LMC_ERR_WRITE;
}

static enum lmc_status seen_write(void *user, const void *data, size_t size)
{
    t_seen *seen = (t_seen *)user;
    lmc_sink sink = lmc_memory_sink(&seen->written[seen->n]);
    t_sha_add(&seen->sha, data, size);
    seen->size += size;
    return sink.write(sink.user, data, size);
}

static enum lmc_status seen_end(void *user, const lmc_file *file, size_t number)
{
    t_seen *seen = (t_seen *)user;
    t_sha_end(&seen->sha, seen->digests[number]);
    seen->n++;
    return file->size == seen->size ? LMC_OK : LMC_ERR_WRITE;
}

static void hex(const char *key, const void *data, size_t size)
{
    const uint8_t *p = (const uint8_t *)data;
    size_t i;
    printf("\"%s\": \"", key);
    for (i = 0; i < size; i++) printf("%02x", p[i]);
    printf("\"");
}

/* Shows everything in the index, and compares it with what the restore saw. */
static enum lmc_status show(lmc_reader *reader, const t_seen *seen)
{
    enum lmc_status status = LMC_OK;
    uint8_t id[LMC_FINGERPRINT_SIZE], digest[32];
    size_t i, k;
    t_fingerprint(reader, id);
    printf(", ");
    hex("index_fingerprint", id, sizeof id);
    printf(", \"files\": [");
    for (i = 0; i < t_info(reader).n_files && status == LMC_OK; i++) {
        const lmc_file *file = lmc_reader_get_file(reader, i);
        uint8_t *data = (uint8_t *)malloc((size_t)file->size + 1);
        t_sha sha;
        if (data == NULL) abort();
        t_sha_begin(&sha);
        status = lmc_reader_read_file(reader, i, 0, data, (size_t)file->size);
        if (status == LMC_OK) t_sha_add(&sha, data, (size_t)file->size);
        t_sha_end(&sha, digest);
        printf("%s{\"kind\": %d, \"size\": %" PRIu64 ", \"mode\": %ld, \"mtime\": ", i ? ", " : "",
               (int)file->kind, file->size, file->has_mode ? (long)file->mode : -1L);
        if (file->has_mtime) printf("[%" PRId64 ", %" PRIu32 "], ", file->mtime_s, file->mtime_ns);
        else printf("null, ");
        hex("path", file->path, strlen(file->path));
        printf(", ");
        hex("sha256", digest, 32);
        printf(", \"same\": %s, ",
               i < seen->n && memcmp(seen->digests[i], digest, 32) == 0 ? "true" : "false");
        hex("fingerprint", file->fingerprint, LMC_FINGERPRINT_SIZE);
        printf(", \"tensors\": [");
        for (k = 0; k < file->n_tensors && status == LMC_OK; k++) {
            const lmc_tensor *tensor = &file->tensors[k];
            uint8_t *part = (uint8_t *)malloc((size_t)tensor->size + 1);
            unsigned d;
            if (part == NULL) abort();
            status = lmc_reader_read_tensor(reader, i, tensor, 0, part, (size_t)tensor->size);
            printf("%s{", k ? ", " : "");
            hex("name", tensor->name, strlen(tensor->name));
            printf(", ");
            hex("dtype", tensor->dtype, strlen(tensor->dtype));
            printf(", \"offset\": %" PRIu64 ", \"size\": %" PRIu64 ", \"same\": %s, ",
                   tensor->offset, tensor->size,
                   status == LMC_OK &&
                           memcmp(part, data + tensor->offset, (size_t)tensor->size) == 0
                       ? "true"
                       : "false");
            hex("fingerprint", tensor->fingerprint, LMC_FINGERPRINT_SIZE);
            printf(", \"shape\": [");
            for (d = 0; d < tensor->rank; d++)
                printf("%s%" PRIu64, d ? ", " : "", tensor->shape[d]);
            printf("], \"loss\": [%u, %d, %.0f]}", tensor->loss.generation,
                   (int)tensor->loss.measure, tensor->loss.error * 4294967296.0);
            free(part);
        }
        printf("]}");
        free(data);
    }
    printf("], \"metadata\": {");
    for (i = 0; i < t_info(reader).n_metadata; i++) {
        const char *key;
        const void *value;
        char key_hex[2 * 65535 + 1];
        size_t size;
        if (lmc_reader_get_metadata(reader, i, &key, &value, &size) != LMC_OK) abort();
        for (k = 0; key[k] != '\0'; k++) sprintf(key_hex + 2 * k, "%02x", (uint8_t)key[k]);
        key_hex[2 * k] = '\0';
        printf("%s", i ? ", " : "");
        hex(key_hex, value, size);
    }
    printf("}");
    return status;
}

static t_memory load(const char *path)
{
    t_memory in;
    t_guard guard;
    FILE *file = fopen(path, "rb");
    long size;
    if (file == NULL || fseek(file, 0, SEEK_END) != 0 || (size = ftell(file)) < 0) {
        perror(path);
        exit(1);
    }
    rewind(file);
    memset(&in, 0, sizeof in);
    guard = t_new_guard((size_t)size);
    in.size = (size_t)size;
    in.data = t_tail(&guard, in.size);
    if (fread(in.data, 1, in.size, file) != in.size) exit(1);
    fclose(file);
    return in;
}

typedef struct known_base {
    t_memory memory;
    int is_lmc, in_use;
    lmc_reader *reader;
    lmc_file file;
    lmc_base base;
} known_base;

static known_base g_bases[MAX_BASES];
static size_t g_n_bases;

static const lmc_file *get_plain_file(void *user, size_t number)
{
    (void)number;
    return &((known_base *)user)->file;
}

static enum lmc_status read_plain_file(void *user, size_t number, uint64_t offset, void *dst,
                                       size_t size)
{
    const known_base *b = (const known_base *)user;
    (void)number;
    if (offset > b->memory.size || size > b->memory.size - offset) return LMC_ERR_READ;
    memcpy(dst, b->memory.data + offset, size);
    return LMC_OK;
}

static int open_base(known_base *b);

/* The base with that fingerprint; else the first given base, which is then refused; NULL if there
 * is none. A base that is in use is not taken again, so loops end. */
static const lmc_base *find_base(const uint8_t wanted[LMC_FINGERPRINT_SIZE])
{
    const lmc_base *first = NULL;
    uint8_t id[LMC_FINGERPRINT_SIZE];
    size_t i;
    for (i = 0; i < g_n_bases; i++) {
        known_base *b = &g_bases[i];
        if (b->in_use || !open_base(b)) continue;
        if (lmc_base_identify(&b->base, id, NULL) != LMC_OK) abort();
        if (memcmp(id, wanted, sizeof id) == 0) return &b->base;
        if (!first) first = &b->base;
    }
    return first;
}

static int open_base(known_base *b)
{
    lmc_reader_options options;
    lmc_source source = LMC_DEFAULTS;
    lmc_stream stream = LMC_DEFAULTS;
    lmc_snapshot_info header;
    if (b->base.get_file) return 1;
    if (!b->is_lmc) {
        t_memory from = b->memory;
        stream.read = t_read;
        stream.user = &from;
        b->file.path = "";
        b->file.size = b->memory.size;
        if (lmc_file_identify(&b->file, NULL, &stream, NULL, NULL) != LMC_OK) abort();
        b->base.n_files = 1;
        b->base.get_file = get_plain_file;
        b->base.read = read_plain_file;
        b->base.user = b;
        return 1;
    }
    memset(&options, 0, sizeof options);
    source.read_at = t_read_at;
    source.user = &b->memory;
    source.size = b->memory.size;
    b->in_use = 1;
    if (lmc_header_parse(b->memory.data, b->memory.size, &header) == LMC_OK && header.has_base)
        options.base = find_base(header.base_fingerprint);
    b->in_use = 0;
    if (lmc_reader_open(&b->reader, &source, &options) != LMC_OK) return 0;
    b->base = lmc_reader_base(b->reader);
    return 1;
}

/* From memory: the bytes of files that are known to be right. */
static enum lmc_status read_back(void *user, size_t number, uint64_t offset, void *dst, size_t size)
{
    const t_seen *seen = (const t_seen *)user;
    if (number >= MAX_FILES || offset > seen->written[number].size ||
        size > seen->written[number].size - offset)
        return LMC_ERR_READ;
    memcpy(dst, seen->written[number].data + offset, size);
    return LMC_OK;
}

static void one(const char *path)
{
    static t_seen seen, again;
    t_memory in = load(path);
    lmc_stream stream = LMC_DEFAULTS;
    lmc_source source = LMC_DEFAULTS;
    lmc_reader *reader = NULL;
    size_t i;
    lmc_restore_options options;
    lmc_reader_options reader_options;
    enum lmc_status status;
    lmc_snapshot_info header, info = LMC_DEFAULTS;
    memset(&options, 0, sizeof options);
    memset(&reader_options, 0, sizeof reader_options);
    reader_options.skip_fingerprints = 1; /* Content_CRC of each block, as the page requires */
    memset(&seen, 0, sizeof seen);
    memset(&again, 0, sizeof again);
    if (lmc_header_parse(in.data, in.size, &header) == LMC_OK && header.has_base)
        options.base = reader_options.base = find_base(header.base_fingerprint);
    options.read_back = read_back;
    options.user = &seen;
    options.begin_file = seen_begin;
    options.write = seen_write;
    options.end_file = seen_end;
    options.max_total_size = reader_options.max_total_size = (uint64_t)1 << 28;
    stream.read = t_read;
    stream.user = source.user = &in;
    status = lmc_snapshot_restore(&stream, &info, &options);
    printf("{\"file\": \"%s\", \"restore\": \"%s\", ", path, lmc_status_name(status));
    hex("fingerprint", info.fingerprint, sizeof info.fingerprint);
    in.at = 0; /* again, with optional checks */
    options.check_hashes = 1;
    options.user = &again;
    status = lmc_snapshot_restore(&stream, NULL, &options);
    printf(", \"checked\": \"%s\"", lmc_status_name(status));
    source.read_at = t_read_at;
    source.size = in.size;
    status = lmc_reader_open(&reader, &source, &reader_options);
    if (status == LMC_OK) {
        const lmc_file *const file = lmc_reader_get_file(reader, 0);
        uint8_t hash[32] = {0};
        const enum lmc_status found =
            lmc_reader_read_content_hash(reader, 0, file->n_tensors ? file->tensors : NULL, hash);
        printf(", \"hashed\": \"%s\", ", lmc_status_name(found));
        hex("hash", hash, 32);
        status = show(reader, &seen);
    }
    printf(", \"read\": \"%s\"}\n", lmc_status_name(status));
    fflush(stdout); /* these lines are kept if the next file crashes the program */
    lmc_reader_free(reader);
    for (i = 0; i < MAX_FILES; i++) {
        lmc_memory_free(&seen.written[i]);
        lmc_memory_free(&again.written[i]);
    }
}

int main(int argc, char **argv)
{
    int i;
    t_begin(argc, argv);
    for (i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--base") == 0 && i + 1 < argc && g_n_bases < MAX_BASES) {
            known_base *b = &g_bases[g_n_bases++];
            b->memory = load(argv[++i]);
            b->is_lmc = b->memory.size >= LMC_HEADER_SIZE && b->memory.data[0] == 0x95 &&
                        memcmp(b->memory.data + 1, "LMC", 3) == 0;
        } else {
            one(argv[i]);
        }
    }
    return 0;
}
