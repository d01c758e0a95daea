/* What lmc.h makes of LMC files, one line of JSON for each: for tests/vectors.py, which compares with the manifest.
 * Strings that come from the file are in hexadecimal.   vectors FILE... */
#include "t_io.h"

#include <inttypes.h>

#define MAX_FILES 4096

typedef struct t_seen {
    t_sha sha;
    size_t n;
    uint64_t size;
    uint8_t digests[MAX_FILES][32];
} t_seen;

static int seen_begin(void *user, const lmc_file *file, size_t number)
{
    t_seen *seen = (t_seen *)user;
    (void)file;
    t_sha_begin(&seen->sha);
    seen->size = 0;
    return number != seen->n || number >= MAX_FILES;
}

static int seen_write(void *user, const void *data, size_t size)
{
    t_seen *seen = (t_seen *)user;
    t_sha_add(&seen->sha, data, size);
    seen->size += size;
    return 0;
}

static int seen_end(void *user, const lmc_file *file, size_t number)
{
    t_seen *seen = (t_seen *)user;
    t_sha_end(&seen->sha, seen->digests[number]);
    seen->n++;
    return file->size != seen->size;
}

static void hex(const char *key, const void *data, size_t size)
{
    const uint8_t *p = (const uint8_t *)data;
    size_t i;
    printf("\"%s\": \"", key);
    for (i = 0; i < size; i++) printf("%02x", p[i]);
    printf("\"");
}

/* Everything by the index, and whether it is what the restore saw. */
static enum lmc_status show(lmc_reader *reader, const t_seen *seen)
{
    enum lmc_status status = LMC_OK;
    uint8_t id[32];
    size_t i, k;
    lmc_get_identity(reader, id);
    printf(", ");
    hex("index_identity", id, 32);
    printf(", \"files\": [");
    for (i = 0; i < lmc_count_files(reader) && status == LMC_OK; i++) {
        const lmc_file *file = lmc_get_file(reader, i);
        uint8_t *data = (uint8_t *)malloc((size_t)file->size + 1);
        t_sha sha;
        if (data == NULL) abort();
        t_sha_begin(&sha);
        status = lmc_read_file(reader, i, 0, data, (size_t)file->size);
        if (status == LMC_OK) t_sha_add(&sha, data, (size_t)file->size);
        t_sha_end(&sha, id);
        printf("%s{\"kind\": %d, \"size\": %" PRIu64 ", \"mode\": %ld, \"mtime\": ", i ? ", " : "", (int)file->kind, file->size,
               file->has_mode ? (long)file->mode : -1L);
        if (file->has_mtime) printf("[%" PRId64 ", %" PRIu32 "], ", file->mtime_s, file->mtime_ns);
        else printf("null, ");
        hex("path", file->path, strlen(file->path));
        printf(", ");
        hex("sha256", id, 32);
        printf(", \"same\": %s, ", i < seen->n && memcmp(seen->digests[i], id, 32) == 0 ? "true" : "false");
        hex("identity", file->identity, 32);
        printf(", \"tensors\": [");
        for (k = 0; k < file->n_tensors && status == LMC_OK; k++) {
            const lmc_tensor *tensor = &file->tensors[k];
            uint8_t *part = (uint8_t *)malloc((size_t)tensor->size + 1);
            unsigned d;
            if (part == NULL) abort();
            status = lmc_read_tensor(reader, i, tensor, 0, part, (size_t)tensor->size);
            printf("%s{", k ? ", " : "");
            hex("name", tensor->name, strlen(tensor->name));
            printf(", ");
            hex("dtype", tensor->dtype, strlen(tensor->dtype));
            printf(", \"offset\": %" PRIu64 ", \"size\": %" PRIu64 ", \"same\": %s, ", tensor->offset, tensor->size,
                   status == LMC_OK && memcmp(part, data + tensor->offset, (size_t)tensor->size) == 0 ? "true" : "false");
            hex("identity", tensor->identity, 32);
            printf(", \"shape\": [");
            for (d = 0; d < tensor->rank; d++) printf("%s%" PRIu64, d ? ", " : "", tensor->shape[d]);
            printf("]}");
            free(part);
        }
        printf("]}");
        free(data);
    }
    printf("], \"metadata\": {");
    for (i = 0; i < lmc_count_metadata(reader); i++) {
        const char *key;
        const void *value;
        char key_hex[2 * 65535 + 1];
        size_t size;
        if (lmc_get_metadata(reader, i, &key, &value, &size) != LMC_OK) abort();
        for (k = 0; key[k] != '\0'; k++) sprintf(key_hex + 2 * k, "%02x", (uint8_t)key[k]);
        key_hex[2 * k] = '\0';
        printf("%s", i ? ", " : "");
        hex(key_hex, value, size);
    }
    printf("}");
    return status;
}

static void one(const char *path)
{
    static t_seen seen;
    t_memory in;
    t_guard guard;
    lmc_stream stream;
    lmc_source source;
    lmc_reader *reader = NULL;
    lmc_restore_options options;
    lmc_reader_options reader_options;
    enum lmc_status status;
    uint8_t id[32] = {0};
    FILE *file = fopen(path, "rb");
    long size;
    if (file == NULL || fseek(file, 0, SEEK_END) != 0 || (size = ftell(file)) < 0) {
        perror(path);
        exit(1);
    }
    rewind(file);
    memset(&in, 0, sizeof in);
    memset(&options, 0, sizeof options);
    memset(&reader_options, 0, sizeof reader_options);
    memset(&seen, 0, sizeof seen);
    guard = t_new_guard((size_t)size);
    in.size = (size_t)size;
    in.data = t_tail(&guard, in.size);
    if (fread(in.data, 1, in.size, file) != in.size) exit(1);
    fclose(file);
    options.user = &seen;
    options.begin_file = seen_begin;
    options.write = seen_write;
    options.end_file = seen_end;
    options.limits.max_total_size = reader_options.limits.max_total_size = (uint64_t)1 << 28;
    stream.read = t_read;
    stream.user = source.user = &in;
    status = lmc_restore_snapshot(&stream, &options, id);
    printf("{\"file\": \"%s\", \"restore\": \"%s\", ", path, lmc_status_name(status));
    hex("identity", id, 32);
    source.read_at = t_read_at;
    source.size = in.size;
    status = lmc_open_reader(&reader, &source, &reader_options);
    if (status == LMC_OK) status = show(reader, &seen);
    printf(", \"read\": \"%s\"}\n", lmc_status_name(status));
    lmc_free_reader(reader);
    munmap(guard.data, guard.cap);
}

int main(int argc, char **argv)
{
    int i;
    t_begin(argc, argv);
    for (i = 1; i < argc; i++) one(argv[i]);
    return 0;
}
