/* replay.c - compresses a training step relative to the optimizer's step, computed again
 * SPDX-License-Identifier: MIT
 *
 *   cc -O2 -ffp-contract=off replay.c -o replay -lm
 *   ./replay DIR_OLD DIR_NEW STEP     two adjacent steps, STEP the later one; each directory has
 *                                     master, exp_avg and exp_avg_sq.f32.safetensors
 *   ./replay                          trains a small network itself
 *
 * The receiver has step t and gets the first moments m' of step t+1. From them it computes nearly
 * all other values of step t+1 as AdamW did:
 *
 *   m, m'  ->  the gradient g  ->  the second moments v'  ->  the update  ->  the weights w'
 *
 * The optimizer may round in another order, so last bits may differ. Only these are stored.
 *
 * Both sides must compute the same prediction to the last bit. So it uses only additions,
 * multiplications, divisions and square roots, which IEEE 754 defines to the last bit. The learning
 * rate takes a cosine, which IEEE 754 does not define: the writer computes it and sends it,
 * too. */
#define LMC_IMPLEMENTATION
#include "../lmc.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__FAST_MATH__) || FLT_EVAL_METHOD != 0
#error "replay.c needs floats that are rounded after each operation: no -ffast-math, no x87"
#endif
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF /* gcc does not know it, and takes -ffp-contract=off (or -std=c99)    \
                                instead: see is_contracted() */
#endif

enum { MASTER, EXP_AVG, EXP_AVG_SQ, N_ARRAYS, MAX_TENSORS = 1024 };
static const char *const array_names[N_ARRAYS] = {"master", "exp_avg", "exp_avg_sq"};

struct step {
    unsigned char *array[N_ARRAYS];
}; /* float32, little-endian, whatever the machine */

struct layout { /* of the arrays; both sides have it */
    size_t n;   /* elements */
    unsigned n_tensors;
    struct {
        size_t begin, end;
        int decays;
    } tensor[MAX_TENSORS]; /* decays: has two dimensions, so weight decay applies */
};

/* All parameters of the optimizer's step. The writer sends them, too. */
struct recipe {
    double learning_rate, beta1, beta2, eps, weight_decay;
    unsigned step;
};

/* -- floats -- */

static float get_float(const unsigned char *array, size_t i)
{
    const unsigned char *p = array + 4 * i;
    const uint32_t bits = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static void put_float(unsigned char *array, size_t i, float x)
{
    uint32_t bits, k;
    memcpy(&bits, &x, 4);
    for (k = 0; k < 4; k++) array[4 * i + k] = (unsigned char)(bits >> 8 * k);
}

/* 1 if this compiler fuses a product and a sum into one operation that rounds once. Here x * x is
 * 1 + 2^-11 + 2^-24. A float cannot hold the last bit, so the result has it only if fused. */
static int is_contracted(void)
{
    volatile float x = 1.0f + 1.0f / 4096, y = -(1.0f + 1.0f / 2048);
    return x * x + y != 0.0f;
}

/* base^n by multiplications in a fixed order: pow() differs between C libraries. */
static double power(double base, unsigned n)
{
    double result = 1;
    while (n-- > 0) result *= base;
    return result;
}

/* -- the prediction -- */

/* The second moments of the new step. m' = beta1 m + (1 - beta1) g is solved for the gradient g;
 * the rounding of m' is lost. The optimizer rounded beta1 m separately. So does this function: it
 * saves a tenth of a bit per element. */
static void predict_exp_avg_sq(unsigned char *predicted, const struct step *old,
                               const unsigned char *exp_avg, size_t n, const struct recipe *r)
{
    size_t i;
    for (i = 0; i < n; i++) {
        const float decayed_m = get_float(old->array[EXP_AVG], i) * (float)r->beta1;
        const float decayed_v = get_float(old->array[EXP_AVG_SQ], i) * (float)r->beta2;
        const double g = ((double)get_float(exp_avg, i) - decayed_m) / (1 - r->beta1);
        put_float(predicted, i, (float)(decayed_v + (1 - r->beta2) * g * g));
    }
}

/* The master weights of the new step, from its moments. */
static void predict_master(unsigned char *predicted, const struct step *old,
                           const unsigned char *exp_avg, const unsigned char *exp_avg_sq,
                           const struct layout *layout, const struct recipe *r)
{
    const float correction = (float)(1 - power(r->beta2, r->step)),
                rate = (float)(r->learning_rate / (1 - power(r->beta1, r->step)));
    const float keep = (float)(1 - r->learning_rate * r->weight_decay), eps = (float)r->eps;
    unsigned t;
    for (t = 0; t < layout->n_tensors; t++) {
        size_t i;
        for (i = layout->tensor[t].begin; i < layout->tensor[t].end; i++) {
            const float w =
                get_float(old->array[MASTER], i) * (layout->tensor[t].decays ? keep : 1.0f);
            const float root = sqrtf(get_float(exp_avg_sq, i) / correction) + eps;
            put_float(predicted, i, w - rate * get_float(exp_avg, i) / root);
        }
    }
}

/* -- coding -- */

static void fail(const char *what, const char *detail)
{
    fprintf(stderr, "replay: %s%s\n", what, detail);
    exit(1);
}

static unsigned char *allocate(size_t size)
{
    unsigned char *p = (unsigned char *)calloc(size + 1, 1);
    if (!p) fail("out of memory", "");
    return p;
}

static lmc_tensor_options make_options(const unsigned char *prediction, size_t size)
{
    lmc_tensor_options options = LMC_TENSOR_OPTIONS(LMC_F32);
    options.prediction = prediction;
    options.prediction_size = prediction ? size : 0;
    return options;
}

struct packed {
    unsigned char *data;
    size_t size;
};

/* prediction may be NULL. */
static struct packed pack(const unsigned char *array, const unsigned char *prediction, size_t size)
{
    const lmc_tensor_options options = make_options(prediction, size);
    const size_t cap = lmc_tensor_bound(size, &options),
                 ws_size = lmc_tensor_workspace_size(&options);
    unsigned char *ws = allocate(ws_size);
    struct packed packed;
    enum lmc_status status;
    packed.data = allocate(cap);
    status = lmc_tensor_encode(packed.data, cap, &packed.size, array, size, &options, ws, ws_size);
    if (status != LMC_OK) fail("cannot encode: ", lmc_status_text(status));
    free(ws);
    return packed;
}

/* Decodes to array, which may be the prediction. Fails if any bit of the prediction differs from
 * the writer's. */
static void unpack(unsigned char *array, size_t size, struct packed packed,
                   const unsigned char *prediction)
{
    const lmc_tensor_options options = make_options(prediction, size);
    const size_t ws_size = lmc_tensor_workspace_size(&options);
    unsigned char *ws = allocate(ws_size);
    const enum lmc_status status =
        lmc_tensor_decode(array, size, packed.data, packed.size, &options, ws, ws_size);
    if (status != LMC_OK) fail("cannot decode: ", lmc_status_text(status));
    free(ws);
}

static size_t packed_size(const unsigned char *array, const unsigned char *prediction, size_t size)
{
    const struct packed packed = pack(array, prediction, size);
    free(packed.data);
    return packed.size;
}

/* Encodes the new step in the order of the predictions: exp_avg relative to the old exp_avg, then
 * the other arrays relative to their predictions. */
static void send_step(struct packed packed[N_ARRAYS], const struct step *old,
                      const struct step *now, const struct layout *layout,
                      const struct recipe *recipe)
{
    const size_t size = 4 * layout->n;
    unsigned char *prediction = allocate(size);
    packed[EXP_AVG] = pack(now->array[EXP_AVG], old->array[EXP_AVG], size);
    predict_exp_avg_sq(prediction, old, now->array[EXP_AVG], layout->n, recipe);
    packed[EXP_AVG_SQ] = pack(now->array[EXP_AVG_SQ], prediction, size);
    predict_master(prediction, old, now->array[EXP_AVG], now->array[EXP_AVG_SQ], layout, recipe);
    packed[MASTER] = pack(now->array[MASTER], prediction, size);
    free(prediction);
}

/* Decodes the new step: makes the same predictions from the arrays that it has already decoded. */
static void receive_step(struct step *now, const struct packed packed[N_ARRAYS],
                         const struct step *old, const struct layout *layout,
                         const struct recipe *recipe)
{
    const size_t size = 4 * layout->n;
    unpack(now->array[EXP_AVG], size, packed[EXP_AVG], old->array[EXP_AVG]);
    predict_exp_avg_sq(now->array[EXP_AVG_SQ], old, now->array[EXP_AVG], layout->n, recipe);
    unpack(now->array[EXP_AVG_SQ], size, packed[EXP_AVG_SQ], now->array[EXP_AVG_SQ]);
    predict_master(now->array[MASTER], old, now->array[EXP_AVG], now->array[EXP_AVG_SQ], layout,
                   recipe);
    unpack(now->array[MASTER], size, packed[MASTER], now->array[MASTER]);
}

/* -- where the steps come from -- */

/* The recipe of this training run. Only the writer calls cos(), which may round differently on
 * another machine. */
static struct recipe make_recipe(unsigned step)
{
    const double pi = 3.14159265358979323846, high = 6e-4, low = 1e-6;
    struct recipe recipe = {0, 0.9, 0.95, 1e-8, 0.1, 0};
    recipe.step = step;
    recipe.learning_rate = step <= 100
                               ? high * step / 100
                               : low + (high - low) * (1 + cos(pi * (step - 100) / 1900)) / 2;
    return recipe;
}

static struct step allocate_step(size_t n)
{
    struct step step;
    int a;
    for (a = 0; a < N_ARRAYS; a++) step.array[a] = allocate(4 * n);
    return step;
}

static void free_step(struct step *step)
{
    int a;
    for (a = 0; a < N_ARRAYS; a++) free(step->array[a]);
}

/* Finds the tensors in a header as the safetensors library writes it: "shape" directly before
 * "data_offsets", no spaces. This is not a JSON parser. */
static void parse_header(struct layout *layout, const char *header)
{
    const char *at = header;
    layout->n = layout->n_tensors = 0;
    while ((at = strstr(at, "\"shape\":[")) != NULL) {
        unsigned long begin = 0, end = 0, n_commas = 0;
        for (at += 9; *at && *at != ']'; at++) n_commas += *at == ',';
        if (layout->n_tensors == MAX_TENSORS ||
            sscanf(at, "],\"data_offsets\":[%lu,%lu]", &begin, &end) != 2 || begin > end ||
            (begin | end) % 4)
            fail("cannot make out the header", "");
        layout->tensor[layout->n_tensors].begin = begin / 4;
        layout->tensor[layout->n_tensors].end = end / 4;
        layout->tensor[layout->n_tensors++].decays = n_commas == 1;
        if (end / 4 > layout->n) layout->n = end / 4;
    }
}

static void read_step(struct step *step, struct layout *layout, const char *directory)
{
    int a;
    memset(layout, 0, sizeof *layout);
    for (a = 0; a < N_ARRAYS; a++) {
        char path[4096], *header;
        unsigned char length[8];
        size_t header_size;
        FILE *file;
        if (snprintf(path, sizeof path, "%s/%s.f32.safetensors", directory, array_names[a]) >=
            (int)sizeof path)
            fail("path too long: ", directory);
        file = fopen(path, "rb");
        if (!file || fread(length, 1, 8, file) != 8 ||
            length[4] | length[5] | length[6] | length[7])
            fail("cannot read ", path);
        header_size =
            length[0] | (size_t)length[1] << 8 | (size_t)length[2] << 16 | (size_t)length[3] << 24;
        header = (char *)allocate(header_size);
        if (fread(header, 1, header_size, file) != header_size) fail("cannot read ", path);
        if (a == 0) { /* the three arrays have the same shapes */
            parse_header(layout, header);
            *step = allocate_step(layout->n);
        }
        if (fread(step->array[a], 4, layout->n, file) != layout->n || fgetc(file) != EOF)
            fail("of another size than expected: ", path);
        free(header);
        fclose(file);
    }
}

/* Uniform in -1 .. 1. */
static float make_noise(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)(*state >> 40) / 8388608.0f - 1.0f;
}

/* Trains towards random weights, with noisy gradients of many magnitudes, and returns the last two
 * steps. Its order of operations intentionally differs from that of the predictions above, as that
 * of an optimizer may. */
static void train(struct step *old, struct step *now, struct layout *layout, unsigned n_steps)
{
    const size_t n = 128 * 1024, n_matrix = n - 1024;
    uint64_t state = 1;
    float *target = (float *)allocate(n * sizeof *target);
    unsigned s;
    size_t i;
    memset(layout, 0, sizeof *layout);
    layout->n = layout->tensor[1].end = n;
    layout->n_tensors = 2; /* a matrix and a vector */
    layout->tensor[0].end = layout->tensor[1].begin = n_matrix;
    layout->tensor[0].decays = 1;
    *old = allocate_step(n);
    *now = allocate_step(n);
    for (i = 0; i < n; i++) {
        target[i] = make_noise(&state);
        put_float(now->array[MASTER], i, 0.1f * make_noise(&state));
    }
    for (s = 1; s <= n_steps; s++) {
        const struct recipe r = make_recipe(s);
        const float correction1 = 1 - (float)power(r.beta1, s),
                    correction2 = sqrtf(1 - (float)power(r.beta2, s));
        const float lr = (float)r.learning_rate;
        int a;
        for (a = 0; a < N_ARRAYS; a++) memcpy(old->array[a], now->array[a], 4 * n);
        for (i = 0; i < n; i++) {
            float w = get_float(now->array[MASTER], i), m = get_float(now->array[EXP_AVG], i),
                  v = get_float(now->array[EXP_AVG_SQ], i), g;
            g = (w - target[i] + make_noise(&state)) * 0.001f * target[i];
            m = 0.9f * m + 0.1f * g;
            v = 0.95f * v + 0.05f * g * g;
            if (i < n_matrix) w -= lr * (float)r.weight_decay * w;
            w -= lr * (m / correction1) / (sqrtf(v) / correction2 + (float)r.eps);
            put_float(now->array[MASTER], i, w);
            put_float(now->array[EXP_AVG], i, m);
            put_float(now->array[EXP_AVG_SQ], i, v);
        }
    }
    free(target);
}

int main(int argc, char **argv)
{
    static struct layout layout, old_layout;
    const unsigned n_toy_steps = 200;
    struct step old, now, received;
    struct packed packed[N_ARRAYS];
    struct recipe recipe;
    size_t size, total = 0;
    int a;
    if (argc != 1 && argc != 4) {
        fprintf(stderr, "usage: %s [DIR_OLD DIR_NEW STEP]\n", argv[0]);
        return 2;
    }
    if (is_contracted())
        fail("compiled so that products and sums are contracted: use -ffp-contract=off", "");
    if (argc == 4) {
        read_step(&old, &old_layout, argv[1]);
        read_step(&now, &layout, argv[2]);
        if (memcmp(&layout, &old_layout, sizeof layout) != 0) fail("steps of other tensors", "");
    } else {
        train(&old, &now, &layout, n_toy_steps);
    }
    recipe = make_recipe(argc == 4 ? (unsigned)strtoul(argv[3], NULL, 10) : n_toy_steps);
    size = 4 * layout.n;

    received = allocate_step(layout.n);
    send_step(packed, &old, &now, &layout, &recipe);
    receive_step(&received, packed, &old, &layout, &recipe);

    printf("%lu elements, bits per element:\n              direct    delta   replay\n",
           (unsigned long)layout.n);
    for (a = 0; a < N_ARRAYS; a++) {
        const double bits = 8.0 / (double)layout.n;
        if (memcmp(now.array[a], received.array[a], size) != 0)
            fail("did not come back: ", array_names[a]);
        printf("%-11s %8.3f %8.3f %8.3f%s\n", array_names[a],
               bits * (double)packed_size(now.array[a], NULL, size),
               bits * (double)packed_size(now.array[a], old.array[a], size),
               bits * (double)packed[a].size, a == EXP_AVG ? " (the delta)" : "");
        total += packed[a].size;
        free(packed[a].data);
    }
    printf("all three: %.2f times smaller; with a bf16 copy of the master, which a snapshot stores "
           "as its rounding, %.2f times\nrestored\n",
           12.0 * (double)layout.n / (double)total, 14.0 * (double)layout.n / (double)total);
    free_step(&old);
    free_step(&now);
    free_step(&received);
    return 0;
}
