/* pickle.c - what a pickle of tensors would build, without building it (torch.h)
 * SPDX-License-Identifier: MIT */
#include "torch.h"

#include "container_check.h"

/* MIN_SIZE is allowed for files of any size; no checkpoint needs MAX_SIZE. Fuzzers set less. */
#ifndef MIN_SIZE
#define MIN_SIZE ((size_t)8 << 20)
#define MAX_SIZE ((size_t)64 << 20)
#define MIN_NODES ((uint32_t)1 << 20)
#define MAX_NODES ((uint32_t)1 << 22)
#endif

#define EMPTY_STACK "its stack is empty"

static const char too_large[] = "it is too large, or says too much for the size of its file";

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

size_t pickle_max_size(uint64_t weight) { return (size_t)least(MIN_SIZE + weight, MAX_SIZE); }

static enum container_result pickle_bad(struct pickle *p, const char *what)
{
    return container_bad(p, "%s, at byte %llu", what, (unsigned long long)p->at);
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
    TRY(take_bytes(p, size, &bytes));
    *x = container_number(bytes, size);
    return CONTAINER_OK;
}

/* -- nodes -- */

static enum container_result push(struct pickle *p, uint32_t node)
{
    return container_append(&p->stack, &p->n_stack, &p->stack_room, &node, 1, sizeof node);
}

/* The lowest place of the stack that may be taken: nothing below the last mark may be taken. */
static size_t bottom(const struct pickle *p) { return p->n_marks ? p->marks[p->n_marks - 1] : 0; }

static enum container_result pop(struct pickle *p, uint32_t *node)
{
    if (p->n_stack == bottom(p)) return pickle_bad(p, EMPTY_STACK);
    *node = p->stack[--p->n_stack];
    return CONTAINER_OK;
}

static enum container_result pop_mark(struct pickle *p, size_t *from)
{
    if (p->n_marks == 0) return pickle_bad(p, "a mark is missing");
    *from = p->marks[--p->n_marks];
    return CONTAINER_OK;
}

/* *from: where the top n things of the stack begin; n 0: all things above the last mark. */
static enum container_result find_taken(struct pickle *p, size_t n, size_t *from)
{
    if (n == 0) return pop_mark(p, from);
    if (p->n_stack - bottom(p) < n) return pickle_bad(p, EMPTY_STACK);
    *from = p->n_stack - n;
    return CONTAINER_OK;
}

static enum container_result make_node(struct pickle *p, enum pickle_type type, uint32_t *node)
{
    if (p->n_nodes >= p->max_nodes) return pickle_bad(p, too_large);
    TRY(container_grow(&p->nodes, (uint64_t)p->n_nodes + 1, &p->nodes_room, sizeof *p->nodes));
    memset(&p->nodes[p->n_nodes], 0, sizeof *p->nodes);
    p->nodes[p->n_nodes].type = (uint8_t)type;
    *node = p->n_nodes++;
    return CONTAINER_OK;
}

static enum container_result push_new(struct pickle *p, enum pickle_type type)
{
    uint32_t node;
    TRY(make_node(p, type, &node));
    return push(p, node);
}

static enum container_result push_number(struct pickle *p, enum pickle_type type, int64_t value)
{
    TRY(push_new(p, type));
    p->nodes[p->n_nodes - 1].u.value = value;
    return CONTAINER_OK;
}

/* Adds a text to p->texts, which has room: the pickle has as many bytes for the text, and one for
 * its opcode, which leaves room for the zero byte. */
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
    TRY(take_number(p, bytes, &size));
    TRY(take_bytes(p, size, &text));
    TRY(push_new(p, type));
    if (type == PICKLE_TEXT) add_text(p, p->n_nodes - 1, text, (size_t)size);
    return CONTAINER_OK;
}

/* Reads a global: two lines, module and name. */
static enum container_result push_global(struct pickle *p)
{
    const unsigned char *const start = p->data + p->at, *dot, *end;
    dot = (const unsigned char *)memchr(start, '\n', p->size - p->at);
    end = dot ? (const unsigned char *)memchr(dot + 1, '\n',
                                              p->size - p->at - (size_t)(dot + 1 - start))
              : NULL;
    if (!end) return pickle_bad(p, "it ends early");
    p->at += (size_t)(end + 1 - start);
    TRY(push_new(p, PICKLE_GLOBAL));
    uint32_t node = p->n_nodes - 1;
    add_text(p, node, start, (size_t)(end - start));
    p->texts[p->nodes[node].u.text.at + (size_t)(dot - start)] = '.';
    return CONTAINER_OK;
}

/* The same from two texts on the stack. A pickle can use the same texts many times. So the room for
 * all globals is limited, and leaves enough for texts that are still to be read. */
static enum container_result push_stack_global(struct pickle *p)
{
    uint32_t module, name;
    size_t size;
    TRY(pop(p, &name));
    TRY(pop(p, &module));
    TRY(push_new(p, PICKLE_GLOBAL));
    const struct pickle_node *m = &p->nodes[module];
    const struct pickle_node *n = &p->nodes[name];
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
    uint64_t size;
    TRY(take_number(p, bytes, &size));
    TRY(take_bytes(p, size, &digits));
    if (size > 8) return push_new(p, PICKLE_OTHER);
    uint64_t x = container_number(digits, (unsigned)size);
    if (size > 0 && size < 8 && digits[size - 1] & 0x80) x |= ~(((uint64_t)1 << 8 * size) - 1);
    return push_number(p, PICKLE_INT, (int64_t)x);
}

/* -- containers -- */

static enum container_result add_link(struct pickle *p, uint32_t node, uint32_t key, uint32_t value)
{
    struct pickle_node *const n = &p->nodes[node];
    if (p->n_links >= p->max_nodes) return pickle_bad(p, too_large);
    TRY(container_grow(&p->links, (uint64_t)p->n_links + 1, &p->links_room, sizeof *p->links));
    struct pickle_link *link = &p->links[p->n_links];
    link->next = 0;
    link->key = key;
    link->value = value;
    if (n->last) p->links[n->last].next = p->n_links;
    else n->first = p->n_links;
    n->last = p->n_links++;
    return CONTAINER_OK;
}

/* Moves all things from `from` on into the container: pairs of key and value, or items. */
static enum container_result add_items(struct pickle *p, uint32_t node, size_t from, int has_keys)
{
    const unsigned type = p->nodes[node].type;
    const unsigned step = has_keys ? 2 : 1;
    if (type != PICKLE_CALL && type != (unsigned)(has_keys ? PICKLE_DICT : PICKLE_LIST))
        return pickle_bad(p, "items are added to something that is not a container");
    if ((p->n_stack - from) % step) return pickle_bad(p, "a key has no value");
    for (size_t i = from; i < p->n_stack; i += step)
        TRY(add_link(p, node, has_keys ? p->stack[i] : 0, p->stack[i + (has_keys ? 1 : 0)]));
    p->n_stack = from;
    return CONTAINER_OK;
}

/* Adds the top n things of the stack to the container below them. */
static enum container_result add_to_container(struct pickle *p, size_t n, int has_keys)
{
    size_t from;
    TRY(find_taken(p, n, &from));
    if (from == bottom(p)) return pickle_bad(p, EMPTY_STACK);
    return add_items(p, p->stack[from - 1], from, has_keys);
}

static enum container_result make_tuple(struct pickle *p, enum pickle_type type, size_t n)
{
    size_t from;
    uint32_t node;
    TRY(find_taken(p, n, &from));
    TRY(make_node(p, type, &node));
    for (size_t i = from; i < p->n_stack; i++) TRY(add_link(p, node, 0, p->stack[i]));
    p->n_stack = from;
    return push(p, node);
}

/* n: how many things the opcode takes: function, arguments and, if n is 3, named arguments. */
static enum container_result make_call(struct pickle *p, unsigned n)
{
    uint32_t node, function, arguments, names;
    if (n == 3) TRY(pop(p, &names));
    TRY(pop(p, &arguments));
    TRY(pop(p, &function));
    TRY(make_node(p, PICKLE_CALL, &node));
    p->nodes[node].function = function;
    p->nodes[node].arguments = arguments;
    return push(p, node);
}

static enum container_result set_state(struct pickle *p)
{
    uint32_t state, node;
    TRY(pop(p, &state));
    TRY(pop(p, &node));
    if (p->nodes[node].type != PICKLE_CALL || p->nodes[node].state)
        return pickle_bad(p, "a state is set for something that cannot have one");
    p->nodes[node].state = state;
    return push(p, node);
}

static enum container_result push_persistent(struct pickle *p)
{
    uint32_t id, node;
    TRY(pop(p, &id));
    TRY(make_node(p, PICKLE_PERSISTENT, &node));
    p->nodes[node].arguments = id;
    return push(p, node);
}

/* -- memo -- */

/* Keeps the top of the stack in the memo. Python's picklers number entries 0, 1, 2 ... */
static enum container_result put_memo(struct pickle *p, unsigned bytes)
{
    uint64_t number = p->n_memo;
    if (bytes) TRY(take_number(p, bytes, &number));
    if (number > p->n_memo) return pickle_bad(p, "its memo has a gap");
    if (p->n_stack == bottom(p)) return pickle_bad(p, EMPTY_STACK);
    const uint32_t top = p->stack[p->n_stack - 1];
    if (number == p->n_memo)
        return container_append(&p->memo, &p->n_memo, &p->memo_room, &top, 1, sizeof top);
    p->memo[number] = top;
    return CONTAINER_OK;
}

static enum container_result get_memo(struct pickle *p, unsigned bytes)
{
    uint64_t number;
    TRY(take_number(p, bytes, &number));
    if (number >= p->n_memo) return pickle_bad(p, "it refers to a memo entry that does not exist");
    return push(p, p->memo[number]);
}

/* -- opcodes -- */

static enum container_result push_mark(struct pickle *p)
{
    const uint32_t mark = (uint32_t)p->n_stack;
    return container_append(&p->marks, &p->n_marks, &p->marks_room, &mark, 1, sizeof mark);
}

static enum container_result push_int(struct pickle *p, unsigned bytes)
{
    uint64_t x;
    TRY(take_number(p, bytes, &x));
    return push_number(p, PICKLE_INT, bytes == 4 ? (int64_t)(int32_t)(uint32_t)x : (int64_t)x);
}

/* Skips what does not describe tensors. */
static enum container_result skip(struct pickle *p, unsigned bytes)
{
    uint64_t ignored;
    return take_number(p, bytes, &ignored);
}

/* Opcodes; comments have the names of Python's pickletools. */
static enum container_result run_scalar(struct pickle *p, unsigned op)
{
    switch (op) {
    case 'N': return push(p, 0); /* NONE */
    case 0x88:
    case 0x89: return push_number(p, PICKLE_BOOL, op == 0x88);   /* NEWTRUE, NEWFALSE */
    case 'K': return push_int(p, 1);                             /* BININT1 */
    case 'M': return push_int(p, 2);                             /* BININT2 */
    case 'J': return push_int(p, 4);                             /* BININT */
    case 0x8A: return push_long(p, 1);                           /* LONG1 */
    case 0x8B: return push_long(p, 4);                           /* LONG4 */
    case 'G': TRY(skip(p, 8)); return push_new(p, PICKLE_OTHER); /* BINFLOAT */
    case 0x8C:
    case 'U': return push_text(p, PICKLE_TEXT, 1); /* SHORT_BINUNICODE, SHORT_BINSTRING */
    case 'X':
    case 'T': return push_text(p, PICKLE_TEXT, 4);  /* BINUNICODE, BINSTRING */
    case 0x8D: return push_text(p, PICKLE_TEXT, 8); /* BINUNICODE8 */
    case 'C': return push_text(p, PICKLE_OTHER, 1); /* SHORT_BINBYTES */
    case 'B': return push_text(p, PICKLE_OTHER, 4); /* BINBYTES */
    case 0x8E:
    case 0x96: return push_text(p, PICKLE_OTHER, 8); /* BINBYTES8, BYTEARRAY8 */
    case 'c': return push_global(p);                 /* GLOBAL */
    case 0x93: return push_stack_global(p);          /* STACK_GLOBAL */
    default: return pickle_bad(p, "it has an opcode that is not allowed");
    }
}

static enum container_result run_opcode(struct pickle *p, unsigned op)
{
    uint32_t node;
    size_t from;
    switch (op) {
    case 0x80: return skip(p, 1);   /* PROTO */
    case 0x95: return skip(p, 8);   /* FRAME */
    case '(': return push_mark(p);  /* MARK */
    case '0': return pop(p, &node); /* POP */
    case '1':                       /* POP_MARK */
        TRY(pop_mark(p, &from));
        p->n_stack = from;
        return CONTAINER_OK;
    case '}': return push_new(p, PICKLE_DICT); /* EMPTY_DICT */
    case ']':
    case 0x8F: return push_new(p, PICKLE_LIST);      /* EMPTY_LIST, EMPTY_SET */
    case ')': return push_new(p, PICKLE_TUPLE);      /* EMPTY_TUPLE */
    case 't': return make_tuple(p, PICKLE_TUPLE, 0); /* TUPLE */
    case 0x91: return make_tuple(p, PICKLE_LIST, 0); /* FROZENSET */
    case 0x85:
    case 0x86:
    case 0x87: return make_tuple(p, PICKLE_TUPLE, op - 0x84); /* TUPLE1, TUPLE2, TUPLE3 */
    case 'a': return add_to_container(p, 1, 0);               /* APPEND */
    case 'e':
    case 0x90: return add_to_container(p, 0, 0); /* APPENDS, ADDITEMS */
    case 's': return add_to_container(p, 2, 1);  /* SETITEM */
    case 'u': return add_to_container(p, 0, 1);  /* SETITEMS */
    case 'R':
    case 0x81: return make_call(p, 2);   /* REDUCE, NEWOBJ */
    case 0x92: return make_call(p, 3);   /* NEWOBJ_EX */
    case 'b': return set_state(p);       /* BUILD */
    case 'Q': return push_persistent(p); /* BINPERSID */
    case 0x94: return put_memo(p, 0);    /* MEMOIZE */
    case 'q': return put_memo(p, 1);     /* BINPUT */
    case 'r': return put_memo(p, 4);     /* LONG_BINPUT */
    case 'h': return get_memo(p, 1);     /* BINGET */
    case 'j': return get_memo(p, 4);     /* LONG_BINGET */
    default: return run_scalar(p, op);
    }
}

static enum container_result run_pickle(struct pickle *p)
{
    const unsigned char *op;
    uint32_t none;
    TRY(make_node(p, PICKLE_OTHER, &none)); /* number 0 */
    TRY(container_grow(&p->links, 1, &p->links_room, sizeof *p->links));
    p->n_links = 1;
    /* room for texts that are read, and as much for globals that are made of two texts */
    p->texts = (char *)malloc(2 * p->size + 2);
    if (!p->texts) return CONTAINER_MEMORY;
    for (;;) {
        TRY(take_bytes(p, 1, &op));
        if (*op == '.') break; /* STOP */
        TRY(run_opcode(p, *op));
    }
    if (p->n_stack != 1 || p->n_marks) return pickle_bad(p, "something is left on its stack");
    p->root = p->stack[0];
    return CONTAINER_OK;
}

enum container_result pickle_read(struct pickle *p, const void *data, size_t size, uint64_t weight)
{
    memset(p, 0, sizeof *p);
    p->max_nodes = least((uint64_t)MIN_NODES + weight / 4, MAX_NODES);
    p->data = (const unsigned char *)data;
    p->size = size;
    enum container_result result =
        size > pickle_max_size(weight) ? pickle_bad(p, too_large) : run_pickle(p);
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

const char *pickle_text(const struct pickle *p, uint32_t node, enum pickle_type type)
{
    const struct pickle_node *const n = &p->nodes[node];
    if (n->type != type) return NULL;
    return strlen(p->texts + n->u.text.at) == n->u.text.size ? p->texts + n->u.text.at : NULL;
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
