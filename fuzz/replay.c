/* main() for a harness without a fuzzer: runs it on the given files, on all files in given
 * directories and, with -, on standard input. So every corpus is a regression test, with any
 * compiler. Prints how many inputs it ran. */
#include "fuzz.h"

#include <dirent.h>
#include <sys/stat.h>

static unsigned long n_inputs;

static void run_stream(FILE *file)
{
    uint8_t *data = NULL;
    size_t size = 0, cap = 0, got;
    do {
        if (size == cap) {
            uint8_t *const grown = (uint8_t *)realloc(data, cap = 2 * cap + 4096);
            if (!grown) abort();
            data = grown;
        }
        got = fread(data + size, 1, cap - size, file);
        size += got;
    } while (got != 0);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    n_inputs++;
}

static int run_path(const char *path, int named)
{
    struct stat about;
    FILE *file;
    if (stat(path, &about) != 0) {
        perror(path);
        return 0;
    }
    if (S_ISDIR(about.st_mode)) {
        DIR *const directory = opendir(path);
        const struct dirent *entry;
        int ok = directory != NULL;
        while (directory && (entry = readdir(directory)) != NULL) {
            char *inner;
            if (entry->d_name[0] == '.') continue;
            inner = (char *)malloc(strlen(path) + strlen(entry->d_name) + 2);
            if (!inner) abort();
            sprintf(inner, "%s/%s", path, entry->d_name);
            ok &= run_path(inner, 0);
            free(inner);
        }
        if (directory) closedir(directory);
        return ok;
    }
    file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 0;
    }
    if (named && getenv("FUZZ_VERBOSE")) fprintf(stderr, "%s\n", path);
    run_stream(file);
    fclose(file);
    return 1;
}

int main(int argc, char **argv)
{
    int i, ok = 1;
    for (i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-") == 0) run_stream(stdin);
        else ok &= run_path(argv[i], 1);
    }
    printf("%lu inputs\n", n_inputs);
    return !ok || n_inputs == 0;
}
