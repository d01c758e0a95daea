/* SPDX-License-Identifier: MIT */
#include "pickle.h"

#include "container_check.h"

/* Opcodes, by the names that Python's pickletools has for them. */
enum opcode {
    OP_MARK = '(',
    OP_STOP = '.',
    OP_POP = '0',
    OP_POP_MARK = '1',
    OP_BINFLOAT = 'G',
    OP_BININT = 'J',
    OP_BININT1 = 'K',
    OP_BININT2 = 'M',
    OP_NONE = 'N',
    OP_BINPERSID = 'Q',
    OP_REDUCE = 'R',
    OP_BINSTRING = 'T',
    OP_SHORT_BINSTRING = 'U',
    OP_BINUNICODE = 'X',
    OP_APPEND = 'a',
    OP_BUILD = 'b',
    OP_GLOBAL = 'c',
    OP_APPENDS = 'e',
    OP_BINGET = 'h',
    OP_LONG_BINGET = 'j',
    OP_BINPUT = 'q',
    OP_LONG_BINPUT = 'r',
    OP_SETITEM = 's',
    OP_TUPLE = 't',
    OP_SETITEMS = 'u',
    OP_EMPTY_DICT = '}',
    OP_EMPTY_LIST = ']',
    OP_EMPTY_TUPLE = ')',
    OP_BINBYTES = 'B',
    OP_SHORT_BINBYTES = 'C',
    OP_PROTO = 0x80,
    OP_NEWOBJ = 0x81,
    OP_TUPLE1 = 0x85,
    OP_TUPLE2 = 0x86,
    OP_TUPLE3 = 0x87,
    OP_NEWTRUE = 0x88,
    OP_NEWFALSE = 0x89,
    OP_LONG1 = 0x8A,
    OP_LONG4 = 0x8B,
    OP_SHORT_BINUNICODE = 0x8C,
    OP_BINUNICODE8 = 0x8D,
    OP_BINBYTES8 = 0x8E,
    OP_EMPTY_SET = 0x8F,
    OP_ADDITEMS = 0x90,
    OP_FROZENSET = 0x91,
    OP_NEWOBJ_EX = 0x92,
    OP_STACK_GLOBAL = 0x93,
    OP_MEMOIZE = 0x94,
    OP_FRAME = 0x95,
    OP_BYTEARRAY8 = 0x96
};

/* What is read from any file, and what is more than a checkpoint has. Fuzzers have less. */
#ifndef MIN_SIZE
#define MIN_SIZE ((size_t)8 << 20)
#define MAX_SIZE ((size_t)64 << 20)
#define MIN_NODES ((uint32_t)1 << 20)
#define MAX_NODES ((uint32_t)1 << 22)
#endif

static const char too_large[] = "it is too large, or says too much for the size of its file";

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

size_t pickle_max_size(uint64_t weight) { return (size_t)least(MIN_SIZE + weight, MAX_SIZE); }

/* All functions below return CONTAINER_OK, or what is wrong. */
#define PICKLE_TRY(call)                                                                           \
    do {                                                                                           \
        const enum container_result tried = (call);                                                \
        if (tried != CONTAINER_OK) return tried;                                                   \
    } while (0)

static enum container_result pickle_bad(struct pickle *p, const char *what)
{
    snprintf(p->error, sizeof p->error, "%s, at byte %llu", what, (unsigned long long)p->at);
    return CONTAINER_BAD;
}

static enum container_result take_bytes(struct pickle *p, uint64_t size, const unsigned char **data)
{
    if (size > p->size - p->at) return pickle_bad(p, "it ends early");
    *data = p->data + p->at;
    p->at += (size_t)size;
    return CONTAINER_OK;
}

static enum container_result take_number(struct pickle *p, unsigned size, uint64_t *x)
{
    const unsigned char *bytes;
    PICKLE_TRY(take_bytes(p, size, &bytes));
    *x = container_number(bytes, size);
    return CONTAINER_OK;
}

/* -- nodes -- */

static enum container_result push(struct pickle *p, uint32_t node)
{
    PICKLE_TRY(
        container_grow(&p->stack, (uint64_t)p->n_stack + 1, &p->stack_room, sizeof *p->stack));
    p->stack[p->n_stack++] = node;
    return CONTAINER_OK;
}

/* Nothing below the last mark may be taken. */
static size_t bottom(const struct pickle *p) { return p->n_marks ? p->marks[p->n_marks - 1] : 0; }

static enum container_result pop(struct pickle *p, uint32_t *node)
{
    if (p->n_stack == bottom(p)) return pickle_bad(p, "its stack is empty");
    *node = p->stack[--p->n_stack];
    return CONTAINER_OK;
}

static enum container_result pop_mark(struct pickle *p, size_t *from)
{
    if (p->n_marks == 0) return pickle_bad(p, "a mark is missing");
    *from = p->marks[--p->n_marks];
    return CONTAINER_OK;
}

static enum container_result make_node(struct pickle *p, enum pickle_type type, uint32_t *node)
{
    if (p->n_nodes >= p->max_nodes) return pickle_bad(p, too_large);
    PICKLE_TRY(
        container_grow(&p->nodes, (uint64_t)p->n_nodes + 1, &p->nodes_room, sizeof *p->nodes));
    memset(&p->nodes[p->n_nodes], 0, sizeof *p->nodes);
    p->nodes[p->n_nodes].type = (uint8_t)type;
    *node = p->n_nodes++;
    return CONTAINER_OK;
}

static enum container_result push_new(struct pickle *p, enum pickle_type type)
{
    uint32_t node;
    PICKLE_TRY(make_node(p, type, &node));
    return push(p, node);
}

static enum container_result push_number(struct pickle *p, enum pickle_type type, int64_t value)
{
    PICKLE_TRY(push_new(p, type));
    p->nodes[p->n_nodes - 1].u.value = value;
    return CONTAINER_OK;
}

/* Adds a text to p->texts, which has room: no text is longer than what it is read from, and each
 * has a byte for its opcode. */
static void add_text(struct pickle *p, uint32_t node, const void *text, size_t size)
{
    struct pickle_node *const n = &p->nodes[node];
    n->u.text.at = p->n_texts;
    n->u.text.size = (uint32_t)size;
    if (size) memcpy(p->texts + p->n_texts, text, size);
    p->n_texts += (uint32_t)size;
    p->texts[p->n_texts++] = 0;
}

static enum container_result push_text(struct pickle *p, enum pickle_type type, unsigned bytes)
{
    const unsigned char *text;
    uint64_t size;
    PICKLE_TRY(take_number(p, bytes, &size));
    PICKLE_TRY(take_bytes(p, size, &text));
    PICKLE_TRY(push_new(p, type));
    if (type == PICKLE_TEXT) add_text(p, p->n_nodes - 1, text, (size_t)size);
    return CONTAINER_OK;
}

/* Two lines: module and name. */
static enum container_result push_global(struct pickle *p)
{
    const unsigned char *const start = p->data + p->at, *dot, *end;
    uint32_t node;
    dot = (const unsigned char *)memchr(start, '\n', p->size - p->at);
    end = dot ? (const unsigned char *)memchr(dot + 1, '\n',
                                              p->size - p->at - (size_t)(dot + 1 - start))
              : NULL;
    if (!end) return pickle_bad(p, "it ends early");
    p->at += (size_t)(end + 1 - start);
    PICKLE_TRY(push_new(p, PICKLE_GLOBAL));
    node = p->n_nodes - 1;
    add_text(p, node, start, (size_t)(end - start));
    p->texts[p->nodes[node].u.text.at + (size_t)(dot - start)] = '.';
    return CONTAINER_OK;
}

/* The same from two texts on the stack, which may be used again and again: what all of these take
 * together is bounded, and leaves room for what is still to be read. */
static enum container_result push_stack_global(struct pickle *p)
{
    uint32_t module, name;
    const struct pickle_node *m, *n;
    size_t size;
    PICKLE_TRY(pop(p, &name));
    PICKLE_TRY(pop(p, &module));
    PICKLE_TRY(push_new(p, PICKLE_GLOBAL));
    m = &p->nodes[module];
    n = &p->nodes[name];
    if (m->type != PICKLE_TEXT || n->type != PICKLE_TEXT)
        return pickle_bad(p, "a global has no name");
    size = (size_t)m->u.text.size + n->u.text.size + 2;
    if (size > 2 * p->size + 2 - (p->size - p->at) - p->n_texts)
        return pickle_bad(p, "its globals have long names");
    add_text(p, p->n_nodes - 1, p->texts + m->u.text.at, m->u.text.size);
    p->texts[p->n_texts - 1] = '.';
    memcpy(p->texts + p->n_texts, p->texts + n->u.text.at, n->u.text.size);
    p->nodes[p->n_nodes - 1].u.text.size = (uint32_t)size - 1;
    p->n_texts += n->u.text.size;
    p->texts[p->n_texts++] = 0;
    return CONTAINER_OK;
}

static enum container_result push_long(struct pickle *p, unsigned bytes)
{
    const unsigned char *digits;
    uint64_t size, x;
    PICKLE_TRY(take_number(p, bytes, &size));
    PICKLE_TRY(take_bytes(p, size, &digits));
    if (size > 8) return push_new(p, PICKLE_OTHER);
    x = container_number(digits, (unsigned)size);
    if (size > 0 && size < 8 && digits[size - 1] & 0x80) x |= ~(((uint64_t)1 << 8 * size) - 1);
    return push_number(p, PICKLE_INT, (int64_t)x);
}

/* -- containers -- */

static enum container_result add_link(struct pickle *p, uint32_t node, uint32_t key, uint32_t value)
{
    struct pickle_node *const n = &p->nodes[node];
    struct pickle_link *link;
    if (p->n_links >= p->max_nodes) return pickle_bad(p, too_large);
    PICKLE_TRY(
        container_grow(&p->links, (uint64_t)p->n_links + 1, &p->links_room, sizeof *p->links));
    link = &p->links[p->n_links];
    link->next = 0;
    link->key = key;
    link->value = value;
    if (n->last) p->links[n->last].next = p->n_links;
    else n->first = p->n_links;
    n->last = p->n_links++;
    return CONTAINER_OK;
}

/* The stack from `from` on goes into the container: pairs of key and value, or items. */
static enum container_result add_items(struct pickle *p, uint32_t node, size_t from, int has_keys)
{
    const unsigned type = p->nodes[node].type;
    const unsigned step = has_keys ? 2 : 1;
    if (type != PICKLE_CALL && type != (unsigned)(has_keys ? PICKLE_DICT : PICKLE_LIST))
        return pickle_bad(p, "items are added to what holds none");
    if ((p->n_stack - from) % step) return pickle_bad(p, "a key has no value");
    for (size_t i = from; i < p->n_stack; i += step)
        PICKLE_TRY(add_link(p, node, has_keys ? p->stack[i] : 0, p->stack[i + (has_keys ? 1 : 0)]));
    p->n_stack = from;
    return CONTAINER_OK;
}

/* To the container that lies below what is added; n: how much, 0 for all above the mark. */
static enum container_result add_to_container(struct pickle *p, size_t n, int has_keys)
{
    size_t from;
    if (n == 0) PICKLE_TRY(pop_mark(p, &from));
    else if (p->n_stack - bottom(p) < n) return pickle_bad(p, "its stack is empty");
    else from = p->n_stack - n;
    if (from == bottom(p)) return pickle_bad(p, "its stack is empty");
    return add_items(p, p->stack[from - 1], from, has_keys);
}

/* n: as above */
static enum container_result make_tuple(struct pickle *p, enum pickle_type type, size_t n)
{
    size_t from;
    uint32_t node;
    if (n == 0) PICKLE_TRY(pop_mark(p, &from));
    else if (p->n_stack - bottom(p) < n) return pickle_bad(p, "its stack is empty");
    else from = p->n_stack - n;
    PICKLE_TRY(make_node(p, type, &node));
    for (size_t i = from; i < p->n_stack; i++) PICKLE_TRY(add_link(p, node, 0, p->stack[i]));
    p->n_stack = from;
    return push(p, node);
}

/* n: of what the opcode takes: function, arguments, perhaps arguments with names. */
static enum container_result make_call(struct pickle *p, unsigned n)
{
    uint32_t node, function, arguments, names;
    if (n == 3) PICKLE_TRY(pop(p, &names));
    PICKLE_TRY(pop(p, &arguments));
    PICKLE_TRY(pop(p, &function));
    PICKLE_TRY(make_node(p, PICKLE_CALL, &node));
    p->nodes[node].function = function;
    p->nodes[node].arguments = arguments;
    return push(p, node);
}

static enum container_result set_state(struct pickle *p)
{
    uint32_t state, node;
    PICKLE_TRY(pop(p, &state));
    PICKLE_TRY(pop(p, &node));
    if (p->nodes[node].type != PICKLE_CALL || p->nodes[node].state)
        return pickle_bad(p, "a state is given to what has none");
    p->nodes[node].state = state;
    return push(p, node);
}

static enum container_result push_persistent(struct pickle *p)
{
    uint32_t id, node;
    PICKLE_TRY(pop(p, &id));
    PICKLE_TRY(make_node(p, PICKLE_PERSISTENT, &node));
    p->nodes[node].arguments = id;
    return push(p, node);
}

/* -- memo -- */

/* Python's picklers number what they keep 0, 1, 2 ... */
static enum container_result put_memo(struct pickle *p, unsigned bytes)
{
    uint64_t number = p->n_memo;
    if (bytes) PICKLE_TRY(take_number(p, bytes, &number));
    if (number > p->n_memo) return pickle_bad(p, "its memo has a gap");
    if (p->n_stack == bottom(p)) return pickle_bad(p, "its stack is empty");
    if (number == p->n_memo) {
        PICKLE_TRY(
            container_grow(&p->memo, (uint64_t)p->n_memo + 1, &p->memo_room, sizeof *p->memo));
        p->n_memo++;
    }
    p->memo[number] = p->stack[p->n_stack - 1];
    return CONTAINER_OK;
}

static enum container_result get_memo(struct pickle *p, unsigned bytes)
{
    uint64_t number;
    PICKLE_TRY(take_number(p, bytes, &number));
    if (number >= p->n_memo) return pickle_bad(p, "it refers to what was not kept");
    return push(p, p->memo[number]);
}

/* -- opcodes -- */

static enum container_result push_mark(struct pickle *p)
{
    PICKLE_TRY(
        container_grow(&p->marks, (uint64_t)p->n_marks + 1, &p->marks_room, sizeof *p->marks));
    p->marks[p->n_marks++] = (uint32_t)p->n_stack;
    return CONTAINER_OK;
}

static enum container_result push_int(struct pickle *p, unsigned bytes)
{
    uint64_t x;
    PICKLE_TRY(take_number(p, bytes, &x));
    return push_number(p, PICKLE_INT, bytes == 4 ? (int64_t)(int32_t)(uint32_t)x : (int64_t)x);
}

/* What says nothing of tensors. */
static enum container_result skip(struct pickle *p, unsigned bytes)
{
    uint64_t ignored;
    return take_number(p, bytes, &ignored);
}

static enum container_result run_scalar(struct pickle *p, unsigned op)
{
    switch (op) {
    case OP_NONE: return push(p, 0);
    case OP_NEWTRUE:
    case OP_NEWFALSE: return push_number(p, PICKLE_BOOL, op == OP_NEWTRUE);
    case OP_BININT1: return push_int(p, 1);
    case OP_BININT2: return push_int(p, 2);
    case OP_BININT: return push_int(p, 4);
    case OP_LONG1: return push_long(p, 1);
    case OP_LONG4: return push_long(p, 4);
    case OP_BINFLOAT: PICKLE_TRY(skip(p, 8)); return push_new(p, PICKLE_OTHER);
    case OP_SHORT_BINUNICODE: return push_text(p, PICKLE_TEXT, 1);
    case OP_SHORT_BINSTRING: return push_text(p, PICKLE_TEXT, 1);
    case OP_BINUNICODE: return push_text(p, PICKLE_TEXT, 4);
    case OP_BINSTRING: return push_text(p, PICKLE_TEXT, 4);
    case OP_BINUNICODE8: return push_text(p, PICKLE_TEXT, 8);
    case OP_SHORT_BINBYTES: return push_text(p, PICKLE_OTHER, 1);
    case OP_BINBYTES: return push_text(p, PICKLE_OTHER, 4);
    case OP_BINBYTES8:
    case OP_BYTEARRAY8: return push_text(p, PICKLE_OTHER, 8);
    case OP_GLOBAL: return push_global(p);
    case OP_STACK_GLOBAL: return push_stack_global(p);
    default: break;
    }
    return pickle_bad(p, "it has an opcode that is not allowed");
}

static enum container_result run_opcode(struct pickle *p, unsigned op)
{
    uint32_t node;
    size_t from;
    switch (op) {
    case OP_PROTO: return skip(p, 1);
    case OP_FRAME: return skip(p, 8);
    case OP_MARK: return push_mark(p);
    case OP_POP: return pop(p, &node);
    case OP_POP_MARK:
        PICKLE_TRY(pop_mark(p, &from));
        p->n_stack = from;
        return CONTAINER_OK;
    case OP_EMPTY_DICT: return push_new(p, PICKLE_DICT);
    case OP_EMPTY_LIST:
    case OP_EMPTY_SET: return push_new(p, PICKLE_LIST);
    case OP_EMPTY_TUPLE: return push_new(p, PICKLE_TUPLE);
    case OP_TUPLE: return make_tuple(p, PICKLE_TUPLE, 0);
    case OP_FROZENSET: return make_tuple(p, PICKLE_LIST, 0);
    case OP_TUPLE1: return make_tuple(p, PICKLE_TUPLE, 1);
    case OP_TUPLE2: return make_tuple(p, PICKLE_TUPLE, 2);
    case OP_TUPLE3: return make_tuple(p, PICKLE_TUPLE, 3);
    case OP_APPEND: return add_to_container(p, 1, 0);
    case OP_APPENDS:
    case OP_ADDITEMS: return add_to_container(p, 0, 0);
    case OP_SETITEM: return add_to_container(p, 2, 1);
    case OP_SETITEMS: return add_to_container(p, 0, 1);
    case OP_REDUCE:
    case OP_NEWOBJ: return make_call(p, 2);
    case OP_NEWOBJ_EX: return make_call(p, 3);
    case OP_BUILD: return set_state(p);
    case OP_BINPERSID: return push_persistent(p);
    case OP_MEMOIZE: return put_memo(p, 0);
    case OP_BINPUT: return put_memo(p, 1);
    case OP_LONG_BINPUT: return put_memo(p, 4);
    case OP_BINGET: return get_memo(p, 1);
    case OP_LONG_BINGET: return get_memo(p, 4);
    default: return run_scalar(p, op);
    }
}

static enum container_result run_pickle(struct pickle *p)
{
    const unsigned char *op;
    uint32_t none;
    PICKLE_TRY(make_node(p, PICKLE_OTHER, &none)); /* number 0 */
    PICKLE_TRY(container_grow(&p->links, 1, &p->links_room, sizeof *p->links));
    p->n_links = 1;
    /* texts as they are read, and as many bytes of globals that are put together */
    p->texts = (char *)malloc(2 * p->size + 2);
    if (!p->texts) return CONTAINER_MEMORY;
    for (;;) {
        PICKLE_TRY(take_bytes(p, 1, &op));
        if (*op == OP_STOP) break;
        PICKLE_TRY(run_opcode(p, *op));
    }
    if (p->n_stack != 1 || p->n_marks) return pickle_bad(p, "something is left on its stack");
    p->root = p->stack[0];
    return CONTAINER_OK;
}

enum container_result pickle_read(struct pickle *p, const void *data, size_t size, uint64_t weight)
{
    enum container_result result;
    memset(p, 0, sizeof *p);
    p->max_nodes = least((uint64_t)MIN_NODES + weight / 4, MAX_NODES);
    p->data = (const unsigned char *)data;
    p->size = size;
    result = size > pickle_max_size(weight) ? pickle_bad(p, too_large) : run_pickle(p);
    free(p->stack);
    free(p->marks);
    free(p->memo);
    p->stack = p->marks = p->memo = NULL;
    p->data = NULL;
    if (result != CONTAINER_OK) pickle_free(p);
    return result;
}

void pickle_free(struct pickle *p)
{
    free(p->nodes);
    free(p->links);
    free(p->texts);
    p->nodes = NULL;
    p->links = NULL;
    p->texts = NULL;
}

/* -- looking at the result -- */

const struct pickle_node *pickle_get(const struct pickle *p, uint32_t node)
{
    return &p->nodes[node];
}

int pickle_is_text(const struct pickle *p, uint32_t node, enum pickle_type type, const char *text)
{
    const struct pickle_node *const n = &p->nodes[node];
    const size_t size = strlen(text);
    return n->type == type && n->u.text.size == size &&
           memcmp(p->texts + n->u.text.at, text, size) == 0;
}

uint32_t pickle_item(const struct pickle *p, uint32_t node, unsigned i)
{
    const struct pickle_node *const n = &p->nodes[node];
    uint32_t link = n->type == PICKLE_TUPLE || n->type == PICKLE_LIST ? n->first : 0;
    for (; link && i; i--) link = p->links[link].next;
    return link ? p->links[link].value : 0;
}

uint32_t pickle_member(const struct pickle *p, uint32_t node, const char *key)
{
    uint32_t found = 0;
    unsigned n = 0;
    if (p->nodes[node].type == PICKLE_CALL) node = p->nodes[node].state;
    if (p->nodes[node].type != PICKLE_DICT) return 0;
    for (uint32_t link = p->nodes[node].first; link && n++ < PICKLE_MAX_MEMBERS;
         link = p->links[link].next)
        if (pickle_is_text(p, p->links[link].key, PICKLE_TEXT, key)) found = p->links[link].value;
    return found;
}

int pickle_count(const struct pickle *p, uint32_t node, uint64_t *count)
{
    const struct pickle_node *const n = &p->nodes[node];
    *count = (uint64_t)n->u.value;
    return n->type == PICKLE_INT && n->u.value >= 0;
}

int pickle_counts(const struct pickle *p, uint32_t node, uint64_t *counts, int most)
{
    int n = 0;
    if (p->nodes[node].type == PICKLE_CALL) node = pickle_item(p, p->nodes[node].arguments, 0);
    if (p->nodes[node].type != PICKLE_TUPLE) return -1;
    for (uint32_t link = p->nodes[node].first; link; link = p->links[link].next)
        if (n == most || !pickle_count(p, p->links[link].value, &counts[n++])) return -1;
    return n;
}
