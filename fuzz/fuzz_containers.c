/* The command's readers of safetensors, GGUF and NumPy files. Input: the file, or decisions by
 * which one is made (make_gguf.h), then 4 bytes of parameters. A writer of snapshots must accept
 * the results. The beginning of a file, and a file of unknown size, must give the same as the whole
 * file, or ask for more bytes. */
#include "fuzz.h"

#include "containers.h"
#include "make_gguf.h"

#define MOST_INPUT ((size_t)1 << 20)
#define MOST_MADE ((size_t)1 << 18)

static fuzz_guard input_guard;

static void check_same(const struct container *a, const struct container *b)
{
    FUZZ_CHECK(a->kind == b->kind && a->n_tensors == b->n_tensors && a->end == b->end);
    for (size_t i = 0; i < a->n_tensors; i++) {
        const lmc_tensor *s = &a->tensors[i], *t = &b->tensors[i];
        FUZZ_CHECK(strcmp(s->name, t->name) == 0 && strcmp(s->dtype, t->dtype) == 0 &&
                   s->offset == t->offset && s->size == t->size);
        FUZZ_CHECK(s->rank == t->rank &&
                   (s->rank == 0 || memcmp(s->shape, t->shape, s->rank * sizeof *s->shape) == 0));
    }
}

/* Gives the parser more and more bytes of the file, as identify_source() does, but never more than
 * a header may have. */
static enum container_result parse_in_pieces(struct container *c, const uint8_t *data, size_t first,
                                             size_t size, uint64_t file_size,
                                             enum container_kind kind)
{
    enum container_result result = CONTAINER_MORE;
    size_t have = first < size ? first : size;
    while (result == CONTAINER_MORE) {
        result = container_parse(c, fuzz_copy(&input_guard, data, have, 0), have, file_size, kind);
        if (result == CONTAINER_MORE) {
            FUZZ_CHECK(c->need > have && c->need <= CONTAINER_MAX_HEADER && c->need <= file_size);
            if (have == size) return result; /* the file ended early, or it should be longer */
            have = c->need < size ? c->need : size;
        }
    }
    return result;
}

/* Replaces the decisions by the file that they make. */
static void make_file(fuzz_input *in, unsigned format)
{
    static uint8_t room[MOST_MADE];
    struct maker m;
    memset(&m, 0, sizeof m);
    m.in = *in;
    m.data = room;
    m.cap = sizeof room;
    if (format == 1) make_safetensors(&m);
    if (format == 2) make_gguf(&m);
    if (format == 3) make_npy(&m);
    in->data = m.data;
    in->size = m.size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum container_kind kinds[] = {CONTAINER_NONE, CONTAINER_SAFETENSORS,
                                                CONTAINER_GGUF, CONTAINER_NPY};
    fuzz_input in = {data, size};
    uint64_t p = fuzz_draw(&in, 4);
    const enum container_kind kind = kinds[fuzz_bits(&p, 2)];
    const unsigned first = 9 + fuzz_bits(&p, 10), way = fuzz_bits(&p, 2);
    const uint64_t longer = (uint64_t)1 << fuzz_bits(&p, 6);
    const unsigned made = fuzz_bits(&p, 2);
    uint64_t file_size;
    struct container whole, other;
    enum container_result result, again;

    if (in.size > MOST_INPUT) return 0;
    if (made) make_file(&in, made);
    file_size = in.size;
    fuzz_reserve(&input_guard, MOST_INPUT);
    if (way == 1) file_size = LMC_UNKNOWN_SIZE;
    /* the rest of the file is missing */
    if (way == 2 && longer <= CONTAINER_MAX_SIZE - in.size) file_size = in.size + longer;
    if (in.size > CONTAINER_MAX_HEADER) in.size = CONTAINER_MAX_HEADER;
    FUZZ_BEGIN();
    result = container_parse(&whole, fuzz_copy(&input_guard, in.data, in.size, way == 3), in.size,
                             file_size, kind);
    FUZZ_CHECK(result != CONTAINER_MEMORY && (result != CONTAINER_MORE || way == 1 || way == 2));
    if (result == CONTAINER_BAD) FUZZ_CHECK(whole.error[0]);
    FUZZ_CHECK(!container_is_legacy_torch(in.data, in.size) ||
               !container_wants_view(in.data, in.size, "x.pt"));
    if (result == CONTAINER_OK) check_container(&whole, file_size);

    again = parse_in_pieces(&other, in.data, first, in.size, file_size, kind);
    FUZZ_CHECK(again == result);
    if (result == CONTAINER_OK) {
        check_same(&whole, &other);
        container_free(&other);
    }
    /* from a pipe: the header's promises are those of a file of that size */
    if (result == CONTAINER_OK && file_size == LMC_UNKNOWN_SIZE && whole.end != LMC_UNKNOWN_SIZE) {
        FUZZ_CHECK(container_parse(&other, in.data, in.size, whole.end, kind) == CONTAINER_OK);
        check_same(&whole, &other);
        container_free(&other);
    }
    if (result == CONTAINER_OK) container_free(&whole);
    FUZZ_END();
    return 0;
}
