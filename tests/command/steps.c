/* steps.c - snapshots of a simulated training run, for tests of long chains
 * SPDX-License-Identifier: MIT
 *
 *   steps N        for each line of standard input, the name of a file, the next step is written to
 *                  it, and "ok" to standard output
 *
 * bf16 weights of a small transformer, whose head is tied to the embedding. They are rounded from
 * fp32 masters, which AdamW updates with random gradients, at a learning rate that falls from 3e-4
 * to 1e-6 within N steps. So 60 % to 1 % of the elements change in a step.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_LAYERS 8
#define WIDTH 1024u
#define N_WORDS 4096u
#define N_ELEMENTS ((size_t)N_WORDS * WIDTH + N_LAYERS * (WIDTH * WIDTH + WIDTH) + WIDTH)

static float master[N_ELEMENTS], m[N_ELEMENTS], v[N_ELEMENTS];
static uint16_t weights[N_ELEMENTS];
static uint64_t state = 88172645463325252u;

static float noise(void) /* about normal: the sum of four numbers of 16 bits */
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return ((float)((state & 65535) + (state >> 16 & 65535) + (state >> 32 & 65535) +
                    (state >> 48)) -
            131070.0f) /
           37837.0f;
}

static void move(int step, int n_steps)
{
    const double lr = 1e-6 + (3e-4 - 1e-6) * (1 + cos(3.14159265358979 * step / n_steps)) / 2;
    const float first = 1 - powf(0.9f, (float)(step + 20)),
                second = 1 - powf(0.95f, (float)(step + 20));
    for (size_t i = 0; i < N_ELEMENTS; i++) {
        const float g = noise() * 1e-3f;
        m[i] = 0.9f * m[i] + 0.1f * g;
        v[i] = 0.95f * v[i] + 0.05f * g * g;
        master[i] -= (float)lr * (m[i] / first / (sqrtf(v[i] / second) + 1e-8f) + 0.1f * master[i]);
    }
}

static int add_tensor(char *header, int size, const char *name, size_t rows, size_t columns,
                      size_t *at)
{
    size += sprintf(header + size,
                    "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%zu,%zu],\"data_offsets\":[%zu,%zu]}",
                    size > 1 ? "," : "", name, rows, columns, 2 * *at, 2 * (*at + rows * columns));
    *at += rows * columns;
    return size;
}

static int write_step(const char *path)
{
    static char header[8192];
    char name[64];
    int size = 1;
    size_t at = 0;
    uint64_t stored;
    FILE *file = fopen(path, "wb");
    header[0] = '{';
    size = add_tensor(header, size, "embed", N_WORDS, WIDTH, &at);
    for (int i = 0; i < N_LAYERS; i++) {
        sprintf(name, "layer.%d.weight", i);
        size = add_tensor(header, size, name, WIDTH, WIDTH, &at);
        sprintf(name, "layer.%d.norm", i);
        size = add_tensor(header, size, name, 1, WIDTH, &at);
    }
    size = add_tensor(header, size, "norm", 1, WIDTH, &at);
    size = add_tensor(header, size, "head", N_WORDS, WIDTH, &at);
    header[size++] = '}';
    while (size % 8) header[size++] = ' ';
    for (size_t i = 0; i < N_ELEMENTS; i++) {
        uint32_t bits;
        memcpy(&bits, &master[i], 4);
        weights[i] = (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
    }
    stored = (uint64_t)size; /* not swapped: this program is not for big-endian machines */
    if (!file || fwrite(&stored, 8, 1, file) != 1 || fwrite(header, (size_t)size, 1, file) != 1 ||
        fwrite(weights, 2, N_ELEMENTS, file) != N_ELEMENTS ||
        fwrite(weights, 2, (size_t)N_WORDS * WIDTH, file) != (size_t)N_WORDS * WIDTH)
        return 1;
    return fclose(file);
}

int main(int argc, char **argv)
{
    char path[4096];
    const int n_steps = argc > 1 ? atoi(argv[1]) : 100;
    for (size_t i = 0; i < N_ELEMENTS; i++) master[i] = 0.02f * noise();
    for (int step = -20; fgets(path, sizeof path, stdin); step++) {
        path[strcspn(path, "\n")] = 0;
        for (; step < 0; step++) move(0, n_steps);
        if (step) move(step, n_steps);
        if (write_step(path) != 0) {
            perror(path);
            return 1;
        }
        puts("ok");
        fflush(stdout);
    }
    return 0;
}
