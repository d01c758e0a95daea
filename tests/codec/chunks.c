/* chunks.c - prints which share of the second file content-defined chunking finds in the first one
 * SPDX-License-Identifier: MIT */
#include "t_chunks.h"

#include <stdio.h>

static uint8_t *load(const char *path, size_t *size)
{
    FILE *const file = fopen(path, "rb");
    uint8_t *data;
    long end;
    if (!file || fseek(file, 0, SEEK_END) != 0 || (end = ftell(file)) < 0) exit(2);
    rewind(file);
    *size = (size_t)end;
    data = (uint8_t *)malloc(*size + 1);
    if (!data || fread(data, 1, *size, file) != *size) exit(2);
    fclose(file);
    return data;
}

int main(int argc, char **argv)
{
    size_t sizes[2];
    uint8_t *a, *b;
    if (argc != 3) return 2;
    a = load(argv[1], &sizes[0]);
    b = load(argv[2], &sizes[1]);
    printf("%.3f\n", t_shared(a, sizes[0], b, sizes[1]));
    free(a);
    free(b);
    return 0;
}
