/* pickle.h - what a Python pickle says, without running any of it
 * SPDX-License-Identifier: MIT
 *
 * A pickle is a program for a stack machine. This one knows the opcodes that torch.load(...,
 * weights_only=True) allows, and those by which protocols 3 to 5 write the same. Nothing is looked
 * up, called or made: a global is its name, a call a node with a function and its arguments. The
 * result is a graph, in which shared nodes are one.
 *
 * Time and memory are in proportion to the pickle: each opcode makes at most one node, and one link
 * for each thing that it takes from the stack. There is no recursion.
 */
#pragma once

#include "container.h"

/* The largest pickle that is read from a file of that weight (container.h). The pickle of an honest
 * file is a small part of it: some 250 bytes and 20 nodes for each tensor, of which the tensor has
 * more.
 */
size_t pickle_max_size(uint64_t weight);

/* Members that pickle_member() looks at. */
#define PICKLE_MAX_MEMBERS 64u

enum pickle_type {
    PICKLE_OTHER,      /* None, floats, bytes, big numbers: of no interest */
    PICKLE_BOOL,       /* value: 0 or 1 */
    PICKLE_INT,        /* value */
    PICKLE_TEXT,       /* text */
    PICKLE_TUPLE,      /* links */
    PICKLE_LIST,       /* links; sets, too */
    PICKLE_DICT,       /* links with keys */
    PICKLE_GLOBAL,     /* text: the module, then its name behind a dot */
    PICKLE_CALL,       /* function, arguments; links of both kinds: items set afterwards; state */
    PICKLE_PERSISTENT, /* arguments: what identifies an object that is stored elsewhere */
};

/* 0: no node, no link. */
struct pickle_node {
    uint8_t type;
    uint8_t mark;         /* for a walk through the graph */
    uint32_t first, last; /* links */
    uint32_t function, arguments, state;
    union {
        int64_t value;
        struct {
            uint32_t at, size; /* in texts */
        } text;
    } u;
};

struct pickle_link {
    uint32_t next, key, value; /* key 0: an item of a list */
};

struct pickle {
    struct pickle_node *nodes;
    struct pickle_link *links;
    char *texts; /* each followed by a zero byte; may hold others */
    uint32_t root;
    char error[96];
    /* while it is read */
    const unsigned char *data;
    size_t size, at;
    uint64_t max_nodes; /* and links */
    uint32_t n_nodes, n_links, n_texts;
    size_t nodes_room, links_room;
    uint32_t *stack, *marks, *memo;
    size_t n_stack, stack_room, n_marks, marks_room, n_memo, memo_room;
};

/* weight: of the file that it stands in. OK: to be freed; BAD: see error; MEMORY. */
enum container_result pickle_read(struct pickle *p, const void *data, size_t size, uint64_t weight);

void pickle_free(struct pickle *p);

const struct pickle_node *pickle_get(const struct pickle *p, uint32_t node);

/* Of a text or a global; NULL: the node is not of that type, or has a zero byte. */
const char *pickle_text(const struct pickle *p, uint32_t node, enum pickle_type type);

/* Whether the node is that text, or the global of that name ("torch._utils._rebuild_tensor_v2"). */
int pickle_is_text(const struct pickle *p, uint32_t node, enum pickle_type type, const char *text);

/* The i-th item of a tuple or list; 0: there is none. */
uint32_t pickle_item(const struct pickle *p, uint32_t node, unsigned i);

/* What a dictionary, or the state of an object, has under that text; 0: nothing. Only the first
 * PICKLE_MAX_MEMBERS are looked at, so that it may be asked again and again. */
uint32_t pickle_member(const struct pickle *p, uint32_t node, const char *key);

/* A number that is not below zero; 0: the node is none. */
int pickle_count(const struct pickle *p, uint32_t node, uint64_t *count);

/* Such numbers of a tuple, or of a torch.Size; how many, or -1: it is none, or has more than most.
 */
int pickle_counts(const struct pickle *p, uint32_t node, uint64_t *counts, int most);
