/* tensors.c - lists of lmc_tensor that outlive their reader (print.h)
 * SPDX-License-Identifier: MIT */
#include "print.h"

lmc_tensor *copy_tensors(const lmc_tensor *from, size_t n)
{
    size_t n_numbers = 0, n_characters = 0;
    lmc_tensor *copy;
    uint64_t *numbers;
    if (n == 0) return NULL;
    for (size_t i = 0; i < n; i++) {
        n_numbers += from[i].rank;
        n_characters += strlen(from[i].name) + strlen(from[i].dtype) + 2;
    }
    copy = (lmc_tensor *)resize(NULL, n * sizeof *copy + n_numbers * sizeof *numbers + n_characters,
                                1);
    numbers = (uint64_t *)(void *)(copy + n);
    char *characters = (char *)(numbers + n_numbers);
    for (size_t i = 0; i < n; i++) {
        copy[i] = from[i];
        if (from[i].rank) memcpy(numbers, from[i].shape, from[i].rank * sizeof *numbers);
        copy[i].shape = numbers;
        numbers += from[i].rank;
        copy[i].name = strcpy(characters, from[i].name);
        characters += strlen(characters) + 1;
        copy[i].dtype = strcpy(characters, from[i].dtype);
        characters += strlen(characters) + 1;
    }
    return copy;
}

int is_same_kind(const lmc_tensor *a, const lmc_tensor *b)
{
    return strcmp(a->dtype, b->dtype) == 0 && a->size == b->size && a->rank == b->rank &&
           (a->rank == 0 || memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0);
}

static const char *const measure_names[] = {"none", "update", "relative", "nmse"};

void sort_by_path(const lmc_file **list, size_t n)
{
    if (n) qsort((void *)list, n, sizeof *list, compare_named);
}

const lmc_file **sort_files(const lmc_base *files)
{
    const lmc_file **list = (const lmc_file **)resize(NULL, files->n_files, sizeof *list);
    for (size_t i = 0; i < files->n_files; i++) list[i] = files->get_file(files->user, i);
    sort_by_path(list, files->n_files);
    return list;
}

const char *name_measure(const lmc_loss *loss)
{
    return (unsigned)loss->measure < sizeof measure_names / sizeof *measure_names
               ? measure_names[loss->measure]
               : "unknown";
}

size_t count_lossy(const lmc_file *f)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n_tensors; i++) n += f->tensors[i].loss.generation != 0;
    return n;
}
