/* make_torch.h - pickles of tensors, archives around them, .metadata: see make.h */
#ifndef FUZZ_MAKE_TORCH_H
#define FUZZ_MAKE_TORCH_H

#include "make.h"

enum { MAKE_STORAGES = 4, MAKE_MOST_STORAGES = 64 };

/* The storages that a pickle refers to. */
struct make_storages {
    size_t sizes[MAKE_MOST_STORAGES];
    unsigned n, n_memo;
};

/* -- opcodes -- */

static void make_op(struct maker *m, unsigned op) { make_byte(m, op); }

static void make_global(struct maker *m, const char *name)
{
    const char *dot = strrchr(name, '.');
    make_op(m, 'c');
    make_put(m, name, (size_t)(dot - name));
    make_byte(m, '\n');
    make_chars(m, dot + 1);
    make_byte(m, '\n');
}

/* The opcode and the size of a text that follows. */
static void make_text_head(struct maker *m, size_t size)
{
    static const unsigned char ops[] = {'X', 0x8C, 0x8D, 'U', 'T'}, sizes[] = {4, 1, 8, 1, 4};
    unsigned kind = make_one_of(m, sizeof ops);
    if (size > 255 && sizes[kind] == 1) kind = 0;
    make_op(m, ops[kind]);
    make_le(m, size, sizes[kind]);
}

static void make_string(struct maker *m, const char *text)
{
    make_op(m, 'X');
    make_le(m, strlen(text), 4);
    make_chars(m, text);
}

static void make_int(struct maker *m, uint64_t x)
{
    const unsigned how = make_choice(m);
    if (x < 256 && how < 128) make_op(m, 'K'), make_le(m, x, 1);
    else if (x < 65536 && how < 160) make_op(m, 'M'), make_le(m, x, 2);
    else if (x < 0x80000000u && how < 192) make_op(m, 'J'), make_le(m, x, 4);
    else if (how < 250)
        make_op(m, 0x8A), make_byte(m, x >> 63 ? 9 : 8), make_le(m, x, 8), make_put(m, "", x >> 63);
    else make_op(m, 0x8B), make_le(m, how - 246, 4), make_le(m, x, 8);
}

/* A number, which is rarely another one. */
static void make_int_or_other(struct maker *m, uint64_t x)
{
    if (make_rarely(m, 16)) x = make_number(m);
    make_int(m, x);
}

static void make_counts(struct maker *m, const uint64_t *counts, size_t n)
{
    const int is_size = make_rarely(m, 16);
    if (is_size) make_global(m, "torch.Size"), make_op(m, '(');
    make_op(m, '(');
    for (size_t i = 0; i < n; i++) make_int(m, counts[i]);
    make_op(m, 't');
    if (is_size) make_op(m, 't'), make_op(m, 'R');
}

static void make_memo(struct maker *m, struct make_storages *s)
{
    make_op(m, 0x94);
    s->n_memo++;
}

static void make_get(struct maker *m, unsigned number)
{
    make_op(m, 'j');
    make_le(m, number, 4);
}

/* -- tensors -- */

static void make_torch_global(struct maker *m, const char *name)
{
    char text[40];
    snprintf(text, sizeof text, "torch.%s", name);
    make_global(m, text);
}

static void make_storage(struct maker *m, unsigned number, const struct torch_dtype *dtype,
                         const struct make_storages *s)
{
    const size_t width = dtype ? dtype->bits / 8 : 1;
    const unsigned other = make_choice(m);
    make_op(m, '(');
    make_string(m, other == 255 ? "module" : "storage");
    if (!dtype || !dtype->storage)
        make_global(m, other & 1 ? "torch.storage.UntypedStorage" : "torch.QInt8Storage");
    else make_torch_global(m, dtype->storage);
    if (other > 240) {
        const size_t size = make_count(m, 1);
        make_text_head(m, size);
        make_name(m, size);
    } else {
        char digits[4];
        snprintf(digits, sizeof digits, "%u", number % 1000);
        make_string(m, digits);
    }
    make_string(m, "cpu");
    make_int_or_other(m, s->sizes[number] / width);
    make_op(m, 't');
    make_op(m, 'Q');
}

/* A tensor of a storage, with a shape and strides that fit, or do not. */
static void make_tensor(struct maker *m, const struct make_storages *s)
{
    static const char *const makers[] = {
        "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v2",
        "torch._utils._rebuild_tensor_v3", "torch._utils._rebuild_tensor"};
    uint64_t shape[2 * LMC_MAX_RANK + 2] = {0}, strides[2 * LMC_MAX_RANK + 2] = {0}, n;
    const unsigned how = make_choice(m), number = make_one_of(m, MAKE_STORAGES);
    const struct torch_dtype *const dtype =
        &torch_dtypes[make_one_of(m, sizeof torch_dtypes / sizeof *torch_dtypes)];
    const int is_named = !dtype->storage || (how & 0x20); /* the tensor has the dtype */
    const int is_other = how >= 248;
    size_t rank = how & 3;
    n = s->sizes[number] / (dtype->bits / 8);
    if ((how & 0x1C) == 0x1C) rank = make_number(m) % (sizeof shape / sizeof *shape);
    for (size_t i = 0; i < rank; i++) {
        const uint64_t extent = rank - i == 1 ? n : 1 + make_choice(m) % 4;
        shape[i] = rank - i > 1 && n % extent ? 1 : extent;
        n = shape[i] ? n / shape[i] : n;
        if (make_rarely(m, 32)) shape[i] = make_number(m);
    }
    n = 1;
    for (size_t k = 0; k < rank; k++) {
        const size_t i = how & 0x40 ? k : rank - 1 - k; /* transposed, or as they are named */
        strides[i] = n;
        n *= shape[i];
        if (make_rarely(m, 32)) strides[i] = make_number(m);
    }
    make_global(m, makers[make_one_of(m, sizeof makers / sizeof *makers)]);
    make_op(m, '(');
    make_storage(m, number, is_other || is_named ? NULL : dtype, s);
    make_int_or_other(m, 0);
    make_counts(m, shape, rank);
    make_counts(m, strides, make_rarely(m, 64) ? rank + 1 : rank);
    make_op(m, 0x89);
    make_global(m, "collections.OrderedDict");
    make_op(m, ')');
    make_op(m, 'R');
    if (is_named) make_torch_global(m, dtype->torch);
    if (how & 0x80) { /* metadata: the flag, behind so many other members */
        const size_t before = make_count(m, 8);
        make_op(m, '}');
        make_op(m, '(');
        for (size_t i = 0; i < before; i++) make_int(m, i), make_op(m, 0x88);
        make_string(m, how & 1 ? "conj" : "neg");
        make_op(m, 0x88);
        make_op(m, 'u');
    }
    make_op(m, 't');
    make_op(m, 'R');
}

/* -- objects -- */

static void make_key(struct maker *m)
{
    const unsigned kind = make_choice(m);
    size_t size = kind % 4;
    if (kind >= 192) size = make_count(m, 1);
    if (kind < 128 || kind >= 192) make_text_head(m, size), make_name(m, size);
    else if (kind < 160) make_int(m, make_number(m));
    else if (kind < 170) make_op(m, kind & 1 ? 0x88 : 0x89);
    else if (kind < 180) make_op(m, 'N');
    else if (kind < 186) make_global(m, "torch.float32");
    else make_op(m, ')');
}

static void make_object(struct maker *m, struct make_storages *s, unsigned depth);

static void make_items(struct maker *m, struct make_storages *s, unsigned depth, int has_keys)
{
    make_op(m, '(');
    for (unsigned n = make_one_of(m, 6); n--;) {
        if (has_keys) make_key(m);
        make_object(m, s, depth);
    }
}

/* A drawn number of levels with one key; the first key may differ. */
static void make_levels(struct maker *m, struct make_storages *s, unsigned depth)
{
    const unsigned how = make_choice(m), is_list = how & 1;
    const unsigned char open = is_list ? ']' : '}', close = is_list ? 'a' : 's';
    size_t n = make_count(m, 8), start, size;
    if (how & 2) make_op(m, '}'), make_key(m);
    start = m->size;
    make_op(m, open);
    if (!is_list) make_key(m);
    size = m->size - start;
    for (size_t i = 1; i < n; i++) make_put(m, m->data + start, size);
    make_object(m, s, depth);
    make_fill(m, close, n ? n : 1);
    if (how & 2) make_op(m, 's');
}

/* The same object under many keys, or many times in a list. */
static void make_repeated(struct maker *m, struct make_storages *s, unsigned depth)
{
    const unsigned how = make_choice(m), number = s->n_memo;
    const size_t n = make_count(m, 16);
    size_t start, size;
    make_op(m, '(');
    make_object(m, s, depth);
    if (s->n_memo == number) make_memo(m, s);
    make_op(m, '1');
    make_op(m, how & 1 ? ']' : '}');
    make_op(m, '(');
    start = m->size;
    if (!(how & 1)) make_key(m);
    make_get(m, number);
    size = m->size - start;
    for (size_t i = 1; i < n; i++) {
        if (how & 2) make_int(m, i), make_get(m, number);
        else make_put(m, m->data + start, size);
    }
    make_op(m, how & 1 ? 'e' : 'u');
}

static void make_wrapped(struct maker *m, struct make_storages *s, unsigned depth)
{
    const size_t n = make_count(m, 64);
    const size_t start = m->size;
    size_t size;
    make_global(m, make_choice(m) & 1 ? "torch._utils._rebuild_parameter"
                                      : "torch._utils._rebuild_parameter_with_state");
    make_op(m, '(');
    size = m->size - start;
    for (size_t i = 1; i < n; i++) make_put(m, m->data + start, size);
    make_object(m, s, depth);
    for (size_t i = 0; i < n || i == 0; i++) make_chars(m, "\x88NtR");
}

/* A global whose module and name are texts, which together may be too long. */
static void make_stack_global(struct maker *m, struct make_storages *s)
{
    const size_t module = make_count(m, 1), name = make_count(m, 1);
    const unsigned number = s->n_memo;
    size_t n = make_rarely(m, 8) ? make_count(m, 12) : 0;
    make_text_head(m, module);
    make_name(m, module);
    make_memo(m, s);
    make_text_head(m, name);
    make_name(m, name);
    make_memo(m, s);
    make_op(m, 0x93);
    while (n--) { /* many times, of the same texts */
        make_op(m, '0');
        make_get(m, number), make_get(m, number + 1);
        make_op(m, 0x93);
    }
}

/* All storages, each a tensor. */
static void make_every(struct maker *m, const struct make_storages *s)
{
    const struct torch_dtype *const dtype = &torch_dtypes[make_one_of(m, 10)];
    make_chars(m, "}(");
    for (unsigned i = 0; i < s->n; i++) {
        const uint64_t n = s->sizes[i] / (dtype->bits / 8), one = 1;
        make_int(m, i);
        make_global(m, "torch._utils._rebuild_tensor_v2");
        make_op(m, '(');
        make_storage(m, i, dtype, s);
        make_int(m, 0);
        make_counts(m, &n, 1);
        make_counts(m, &one, 1);
        make_chars(m, "\x89NtR");
    }
    make_op(m, 'u');
}

static void make_scalar(struct maker *m)
{
    switch (make_one_of(m, 8)) {
    case 0: make_op(m, 'N'); break;
    case 1: make_int(m, make_number(m)); break;
    case 2: make_op(m, 0x88); break;
    case 3: make_op(m, 'G'), make_le(m, 0, 8); break;
    case 4: make_op(m, ')'); break;
    case 5: make_key(m); break;
    case 6: { /* bytes; numbers of many digits */
        static const unsigned char ops[] = {'C', 'B', 0x8E, 0x96, 0x8A, 0x8B},
                                   sizes[] = {1, 4, 8, 8, 1, 4};
        const unsigned kind = make_one_of(m, sizeof ops);
        size_t size = make_count(m, 1);
        if (sizes[kind] == 1) size &= 255;
        make_op(m, ops[kind]);
        make_le(m, size, sizes[kind]);
        make_fill(m, make_choice(m), size);
        break;
    }
    default: make_op(m, 0x8F); break;
    }
}

static void make_object(struct maker *m, struct make_storages *s, unsigned depth)
{
    const unsigned kind = make_choice(m);
    if (depth == 0) {
        if (kind & 1) make_tensor(m, s);
        else make_scalar(m);
        return;
    }
    switch (kind % 20) {
    case 0: make_scalar(m); break;
    case 1:
    case 2: make_tensor(m, s); break;
    case 3:
    case 4:
        make_op(m, '}');
        make_items(m, s, depth - 1, 1);
        make_op(m, 'u');
        break;
    case 5:
        make_op(m, ']');
        make_items(m, s, depth - 1, 0);
        make_op(m, 'e');
        break;
    case 6:
        make_items(m, s, depth - 1, 0);
        make_op(m, make_rarely(m, 8) ? 0x91 : 't');
        break;
    case 7:
        make_global(m, "collections.OrderedDict");
        make_chars(m, ")R");
        make_items(m, s, depth - 1, 1);
        make_op(m, 'u');
        break;
    case 8: /* an object with a state, made from arguments */
        make_global(m, "module.Class");
        make_items(m, s, depth - 1, 0);
        make_chars(m, "t\x81");
        make_object(m, s, depth - 1);
        make_op(m, 'b');
        break;
    case 9:
    case 10: make_levels(m, s, depth - 1); break;
    case 11:
    case 12: make_repeated(m, s, depth - 1); break;
    case 13: make_wrapped(m, s, depth - 1); break;
    case 14:
        if (s->n_memo) make_get(m, make_choice(m) % s->n_memo);
        else make_scalar(m);
        break;
    case 15:
        make_storage(m, make_one_of(m, MAKE_STORAGES), &torch_dtypes[make_one_of(m, 10)], s);
        break;
    case 16: /* a subclass: its maker, its type, the arguments, its state */
        make_global(m, "torch._tensor._rebuild_from_type_v2");
        make_op(m, '(');
        make_global(m, "torch._utils._rebuild_tensor_v2");
        make_global(m, "module.Class");
        make_op(m, '(');
        make_storage(m, 0, &torch_dtypes[0], s);
        make_chars(m, "K\0");
        make_byte(m, 0);
        make_chars(m, "(K\4t(K\1t\x89)t}tR");
        break;
    case 17: make_stack_global(m, s); break;
    case 18: { /* an object whose arguments have names */
        make_global(m, "module.Class");
        make_chars(m, ")}");
        make_op(m, 0x92);
        break;
    }
    default: /* any opcode, with a possible operand */
        make_op(m, make_choice(m));
        for (unsigned n = make_one_of(m, 6); n--;) make_byte(m, make_choice(m));
        break;
    }
    if (kind >= 200) make_memo(m, s);
}

static void make_pickle(struct maker *m, struct make_storages *s)
{
    const size_t start = m->size;
    make_chars(m, "\x80\2");
    s->n_memo = 0;
    if (s->n > MAKE_STORAGES) make_every(m, s);
    else make_object(m, s, 1 + make_one_of(m, 5));
    make_op(m, '.');
    make_damage(m, start);
}

/* -- archives -- */

struct make_archive {
    struct maker *m;
    struct maker directory;
    size_t start, n;
    const char *prefix;
};

/* how: 0 as PyTorch writes it. */
static void make_member(struct make_archive *a, const char *name, size_t name_size,
                        const uint8_t *data, size_t size, unsigned how)
{
    struct maker *const m = a->m, *const d = &a->directory;
    const size_t local = m->size - a->start, before = strlen(a->prefix);
    const int is_long = (how & 3) == 3, is_packed = (how & 0x1C) == 0x1C;
    size_t padding = 0, comment = 0, extra = is_long ? 28 : 0;
    if ((how & 0xE0) == 0xE0)
        padding = make_count(m, 1) & 65535, comment = make_count(m, 1) & 65535;
    if (before + name_size > 65535) name_size = 65535 - before;
    make_chars(m, "PK\3\4");
    make_fill(m, 0, 22);
    make_le(m, before + name_size, 2);
    make_le(m, padding, 2);
    make_chars(m, a->prefix);
    make_put(m, name, name_size);
    make_fill(m, 'Z', padding);
    if (data) make_put(m, data, size);
    else make_fill(m, 7, size);
    make_chars(d, "PK\1\2");
    make_fill(d, 0, 6);
    make_le(d, is_packed, 2);
    make_fill(d, 0, 8);
    make_le(d, is_long ? 0xFFFFFFFFu : size, 4);
    make_le(d, is_long ? 0xFFFFFFFFu : size + (size_t)is_packed, 4);
    make_le(d, before + name_size, 2);
    make_le(d, extra + (comment ? 8 : 0), 2);
    make_le(d, comment, 2);
    make_fill(d, 0, 8);
    make_le(d, is_long ? 0xFFFFFFFFu : local, 4);
    make_chars(d, a->prefix);
    make_put(d, name, name_size);
    if (comment) make_le(d, 99, 2), make_le(d, 4, 2), make_le(d, 0, 4); /* another extra field */
    if (is_long) {
        make_le(d, 1, 2), make_le(d, 24, 2);
        make_le(d, size, 8), make_le(d, size, 8), make_le(d, local, 8);
    }
    make_fill(d, 'c', comment);
    a->n++;
}

static void make_end(struct make_archive *a)
{
    struct maker *const m = a->m;
    const size_t at = m->size - a->start, size = a->directory.size;
    const unsigned how = make_choice(m);
    uint64_t n = a->n;
    make_put(m, a->directory.data, size);
    make_damage(m, m->size - size);
    if (how >= 248) n = make_number(m);
    if (how & 1) {
        make_chars(m, "PK\6\6");
        make_le(m, 44, 8);
        make_fill(m, 0, 12);
        make_le(m, n, 8), make_le(m, n, 8);
        make_le(m, size, 8), make_le(m, at, 8);
        make_chars(m, "PK\6\7");
        make_le(m, 0, 4);
        make_le(m, at + size, 8);
        make_le(m, 1, 4);
    }
    make_chars(m, "PK\5\6");
    make_fill(m, 0, 4);
    make_le(m, n, 2), make_le(m, n, 2);
    make_le(m, size, 4), make_le(m, at, 4);
    make_le(m, 0, 2);
}

/* Adds an archive of torch.save() around an object to m; scratch: memory for the pickle and the
 * directory, three times as large. */
static void make_archive(struct maker *m, uint8_t *scratch)
{
    static char name[65536], prefix[1024];
    struct make_storages s;
    struct make_archive a;
    struct maker pickle;
    const unsigned how = make_choice(m);
    size_t name_size = 0;
    memset(&a, 0, sizeof a);
    a.m = m;
    a.start = m->size;
    a.directory.data = scratch;
    a.directory.cap = m->cap;
    a.prefix = "archive/";
    if (how >= 224) {
        size_t size = make_count(m, 1);
        size = size < sizeof prefix - 2 ? size : sizeof prefix - 2;
        memset(prefix, 'p', size);
        memcpy(prefix + size, "/", 2);
        a.prefix = prefix;
    }
    s.n = make_rarely(m, 8) ? make_one_of(m, MAKE_MOST_STORAGES) : MAKE_STORAGES;
    if (s.n < MAKE_STORAGES) s.n = MAKE_STORAGES;
    for (unsigned i = 0; i < s.n; i++) {
        s.sizes[i] = i < MAKE_STORAGES ? make_count(m, 16) : 16;
        if (s.sizes[i] < 16) s.sizes[i] *= 16;
    }
    pickle = *m;
    pickle.data = scratch + m->cap;
    pickle.size = 0;
    make_pickle(&pickle, &s);
    m->in = pickle.in;
    make_member(&a, "data.pkl", 8, pickle.data, pickle.size, make_choice(m) == 255 ? 31 : 0);
    if (how & 16) {
        size_t size = how & 32 ? make_count(m, 1) : 6;
        size = size < sizeof name ? size : sizeof name;
        memcpy(name, "littlebig", 9);
        if (size > 9) memset(name + 9, 'x', size - 9);
        make_member(&a, "byteorder", 9, (uint8_t *)name, size, 0);
    }
    for (unsigned i = 0; i < s.n; i++) {
        char number[16];
        snprintf(number, sizeof number, "data/%u", i);
        make_member(&a, number, strlen(number), NULL, s.sizes[i], make_choice(m));
    }
    for (unsigned n = make_one_of(m, 3); n--;) { /* others, of long names */
        struct maker text = *m;
        name_size = make_count(&text, 1);
        text.data = (uint8_t *)name;
        text.size = 0;
        text.cap = sizeof name;
        make_chars(&text, how & 8 ? "data/" : "");
        make_name(&text, name_size < sizeof name ? name_size : sizeof name);
        m->in = text.in;
        make_member(&a, name, text.size, NULL, make_count(m, 2), make_choice(m));
    }
    make_end(&a);
}

/* -- .metadata -- */

struct make_item {
    size_t at, size;
};

static void make_metadata(struct maker *m, const struct make_item *items, size_t n)
{
    static const char module[] = "torch.distributed.checkpoint.metadata.";
    static const char *const classes[] = {"Metadata", "TensorStorageMetadata", "MetadataIndex",
                                          "_StorageInfo"};
    const size_t from = m->size;
    const unsigned cut = make_one_of(m, 8);
    char names[4][64];
    uint64_t shape[2 * LMC_MAX_RANK + 2], position[2 * LMC_MAX_RANK + 2];
    size_t rank = make_number(m) % (sizeof shape / sizeof *shape);
    for (size_t i = 0; i < 4; i++) snprintf(names[i], sizeof names[i], "%s%s", module, classes[i]);
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        shape[i] = make_number(m), position[i] = make_rarely(m, 4) ? make_number(m) : 0;
    make_chars(m, "\x80\2");
    make_global(m, names[0]);
    make_chars(m, ")\x81}(");
    make_string(m, "state_dict_metadata");
    make_chars(m, "}(");
    make_string(m, "w");
    make_global(m, names[1]);
    make_chars(m, ")\x81}(");
    make_string(m, "size");
    make_counts(m, shape, rank);
    make_chars(m, "ubu");
    make_string(m, "storage_data");
    make_chars(m, "}(");
    for (size_t i = 0; i < n; i++) {
        const size_t size = make_rarely(m, 8) ? make_count(m, 1) : 1;
        make_global(m, names[2]);
        make_chars(m, ")\x81}(");
        make_string(m, "fqn");
        make_text_head(m, size);
        if (size == 1) make_byte(m, 'w');
        else make_name(m, size);
        make_string(m, "offset");
        make_counts(m, position, make_rarely(m, 16) ? rank / 2 : rank);
        make_chars(m, "ub");
        make_global(m, names[3]);
        make_chars(m, ")\x81}(");
        if (cut == 7) /* other members first */
            for (size_t k = make_count(m, 16); k--;) make_int(m, k), make_op(m, 'N');
        make_string(m, "relative_path");
        make_string(m, make_rarely(m, 32) ? "other" : "__0_0.distcp");
        make_string(m, "offset");
        make_int_or_other(m, items[i].at);
        make_string(m, "length");
        make_int_or_other(m, items[i].size);
        make_chars(m, "ub");
    }
    make_chars(m, "uub.");
    make_damage(m, from);
}

#endif
