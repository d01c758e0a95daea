/* policy.c - Policy: rules that say what may be quantised, with the command's parser (formats/)
 * SPDX-License-Identifier: MIT
 */
#include "common.h"

#include "formats/policy.h"

typedef struct policy_object {
    PyObject_HEAD struct policy policy;
} policy_object;

/* Adds each rule of a sequence; -1 and an exception. */
static int add_rules(struct policy *p, PyObject *rules)
{
    PyObject *const list = PySequence_Tuple(rules);
    int result = list ? 0 : -1;
    for (Py_ssize_t i = 0; result == 0 && i < PyTuple_Size(list); i++) {
        PyObject *const rule = PyTuple_GetItem(list, i), *const bytes = encode_text(rule);
        const char *const text = bytes ? PyBytes_AsString(bytes) : NULL;
        const char *const fault = text ? parse_rule(p, text) : NULL;
        if (fault) PyErr_Format(PyExc_ValueError, "quantize rule %R: %s", rule, fault);
        if (!text || fault) result = -1;
        Py_XDECREF(bytes);
    }
    Py_XDECREF(list);
    return result;
}

/* (rules) */
static PyObject *policy_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"rules", NULL};
    PyObject *rules;
    policy_object *self;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:Policy", names, &rules)) return NULL;
    self = (policy_object *)PyType_GenericAlloc(type, 0);
    if (self && add_rules(&self->policy, rules) < 0) Py_CLEAR(self);
    return (PyObject *)self;
}

static void policy_dealloc(PyObject *self)
{
    PyTypeObject *const type = Py_TYPE(self);
    free_policy(&((policy_object *)self)->policy);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *policy_is_lossy(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(is_lossy(&((policy_object *)self)->policy));
}

/* The text without the word at `at`, then `behind`: a key that is equal for both moments. */
static PyObject *make_pair(const char *text, const char *at, size_t word_size, const char *behind)
{
    const size_t size = strlen(text) + strlen(behind) + 3;
    char *const pair = (char *)malloc(size);
    PyObject *result;
    if (!pair) return PyErr_NoMemory();
    (void)snprintf(pair, size, "%.*s*%s%s%s", (int)(at - text), text, at + word_size,
                   *behind ? "/" : "", behind);
    result = make_text(pair);
    free(pair);
    return result;
}

/* (path, name, dtype) -> (role, key of the pair of moments, whether it is a moment only if both
 * exist) */
static PyObject *policy_find_meaning(PyObject *self, PyObject *args)
{
    PyObject *path, *name, *path_bytes, *name_bytes, *pair, *result = NULL;
    lmc_tensor t;
    memset(&t, 0, sizeof t);
    if (!PyArg_ParseTuple(args, "OOs:find_meaning", &path, &name, &t.dtype)) return NULL;
    path_bytes = encode_text(path);
    name_bytes = path_bytes ? encode_text(name) : NULL;
    if (name_bytes) {
        const char *const path_text = PyBytes_AsString(path_bytes);
        struct meaning found;
        t.name = PyBytes_AsString(name_bytes);
        found = find_meaning(&((policy_object *)self)->policy, path_text, &t);
        if (found.names) {
            const size_t size = strlen(found.role == ROLE_V ? found.names->v : found.names->m);
            if (found.word >= t.name && found.word <= t.name + strlen(t.name))
                pair = make_pair(t.name, found.word, size, "");
            else pair = make_pair(path_text, found.word, size, t.name);
        } else pair = PyUnicode_FromString("");
        if (pair)
            result = Py_BuildValue("sNN", role_names[found.role], pair,
                                   PyBool_FromLong(found.names && found.names->is_common));
    }
    Py_XDECREF(path_bytes);
    Py_XDECREF(name_bytes);
    return result;
}

static int parse_role_name(enum role *role, const char *name)
{
    for (*role = ROLE_OTHER; *role < N_ROLES; *role = (enum role)(*role + 1))
        if (strcmp(name, role_names[*role]) == 0) return 0;
    PyErr_Format(PyExc_ValueError, "no role '%s'", name);
    return -1;
}

/* (role, path, name, dtype, shape, size) -> (number of the rule or -1, why it does nothing or
 * None) */
static PyObject *policy_find_rule(PyObject *self, PyObject *args)
{
    const struct policy *const p = &((policy_object *)self)->policy;
    uint64_t numbers[LMC_MAX_RANK];
    PyObject *path, *name, *shape, *path_bytes, *name_bytes, *result = NULL;
    unsigned long long size;
    const char *role_name;
    enum role role;
    lmc_tensor t;
    memset(&t, 0, sizeof t);
    if (!PyArg_ParseTuple(args, "sOOsOK:find_rule", &role_name, &path, &name, &t.dtype, &shape,
                          &size) ||
        parse_role_name(&role, role_name) < 0 || parse_shape(shape, numbers, &t.rank) < 0)
        return NULL;
    t.shape = numbers;
    t.size = size;
    path_bytes = encode_text(path);
    name_bytes = path_bytes ? encode_text(name) : NULL;
    if (name_bytes) {
        const char *const path_text = PyBytes_AsString(path_bytes), *why = NULL;
        const struct rule *rule;
        t.name = PyBytes_AsString(name_bytes);
        rule = find_rule(p, path_text, &t, role);
        if (rule) why = find_obstacle(rule, role, &t);
        for (unsigned other = 0; other < N_ROLES && !rule && !why; other++)
            if (find_rule(p, path_text, &t, (enum role)other))
                why = "no moment or gradient: a rule for it says role=weight or role=other";
        result = Py_BuildValue("nz", (Py_ssize_t)(rule ? rule - p->rules : -1), why);
    }
    Py_XDECREF(path_bytes);
    Py_XDECREF(name_bytes);
    return result;
}

/* (number of the rule, role, dtype, shape, has_second) -> (role, bits, n_codes, measure, bound,
 * group) for Quantizer, and whether it uses the second moment */
static PyObject *policy_quantizer_options(PyObject *self, PyObject *args)
{
    const struct policy *const p = &((policy_object *)self)->policy;
    uint64_t numbers[LMC_MAX_RANK];
    lmc_quantizer_options options;
    const char *role_name;
    Py_ssize_t number;
    PyObject *shape;
    enum role role;
    int has_second;
    lmc_tensor t;
    memset(&t, 0, sizeof t);
    if (!PyArg_ParseTuple(args, "nssOp:quantizer_options", &number, &role_name, &t.dtype, &shape,
                          &has_second) ||
        parse_role_name(&role, role_name) < 0 || parse_shape(shape, numbers, &t.rank) < 0)
        return NULL;
    t.shape = numbers;
    if (number < 0 || (size_t)number >= p->n_rules) {
        PyErr_SetString(PyExc_IndexError, "no rule of that number");
        return NULL;
    }
    has_second = has_second && wants_second(&p->rules[number], role);
    set_quantizer_options(&options, &p->rules[number], role, &t, has_second);
    return Py_BuildValue("(iIIidK)N", (int)options.role, options.bits, options.n_codes,
                         (int)options.measure, options.bound, (unsigned long long)options.group,
                         PyBool_FromLong(has_second));
}

static PyMethodDef policy_methods[] = {
    {"is_lossy", policy_is_lossy, METH_NOARGS, NULL},
    {"find_meaning", policy_find_meaning, METH_VARARGS, NULL},
    {"find_rule", policy_find_rule, METH_VARARGS, NULL},
    {"quantizer_options", policy_quantizer_options, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};
static PyType_Slot policy_slots[] = {{Py_tp_new, (void *)policy_new},
                                     {Py_tp_dealloc, (void *)policy_dealloc},
                                     {Py_tp_methods, policy_methods},
                                     {0, NULL}};
PyType_Spec policy_spec = {"lmc_codec._lmc.Policy", sizeof(policy_object), 0, Py_TPFLAGS_DEFAULT,
                           policy_slots};
