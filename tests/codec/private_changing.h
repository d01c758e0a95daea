/* A table of kernels that call back before and after each of their inner steps: so data can change
 * between any two reads of an encoder, in the same way in each run. */

static const lmc__kernels *t_inner;
static lmc__kernels t_wrapped;
static void (*t_on_kernel)(void *user);
static void *t_on_kernel_user;

static void t_kernel_step(void)
{
    if (t_on_kernel) t_on_kernel(t_on_kernel_user);
}

/* T_WRAP(return type, name, (parameters), (arguments)) */
#define T_WRAP(type, name, parameters, arguments)                                                  \
    static type t_##name##_ parameters                                                             \
    {                                                                                              \
        type result;                                                                               \
        t_kernel_step();                                                                           \
        result = t_inner->name arguments;                                                          \
        t_kernel_step();                                                                           \
        return result;                                                                             \
    }
#define T_WRAP_VOID(name, parameters, arguments)                                                   \
    static void t_##name##_ parameters                                                             \
    {                                                                                              \
        t_kernel_step();                                                                           \
        t_inner->name arguments;                                                                   \
        t_kernel_step();                                                                           \
    }

T_WRAP(uint32_t, crc32c, (uint32_t crc, const uint8_t *p, size_t size), (crc, p, size))
T_WRAP(uint64_t, sum64, (const uint8_t *p, size_t size), (p, size))
T_WRAP_VOID(count_classes,
            (size_t counts[LMC__MAX_CLASSES], const uint8_t *base, size_t n, unsigned width,
             const lmc__grouping *grouping, uint8_t *tally),
            (counts, base, n, width, grouping, tally))
T_WRAP_VOID(split,
            (const lmc__planes *planes, const uint8_t *src, size_t n, unsigned width,
             enum lmc__order order),
            (planes, src, n, width, order))
T_WRAP(uint32_t, split_root,
       (const lmc__kernels *k, const lmc__planes *planes, lmc__parted *root, const uint8_t *src,
        size_t n, unsigned width, enum lmc__order order, uint64_t *sum),
       (k, planes, root, src, n, width, order, sum))
T_WRAP_VOID(map, (uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *table),
            (dst, src, n, table))
T_WRAP(size_t, partition,
       (uint8_t *mask, uint8_t *left, uint8_t *right, const uint8_t *src, size_t n, unsigned split),
       (mask, left, right, src, n, split))
T_WRAP(uint32_t, group,
       (const lmc__kernels *k, lmc__classes *classes, const uint8_t *src,
        const lmc__delta_block *block),
       (k, classes, src, block))
T_WRAP(size_t, list_changes,
       (const lmc__kernels *k, uint32_t *crc, const lmc__changed *changed, size_t most,
        const uint8_t *src, const uint8_t *base, size_t n, unsigned width),
       (k, crc, changed, most, src, base, n, width))
T_WRAP_VOID(rank_changes,
            (size_t counts[LMC__MAX_CLASSES], uint32_t *const *ones, const uint8_t *base, size_t n,
             unsigned width, const lmc__grouping *grouping, const lmc__changed *changed,
             size_t n_changed),
            (counts, ones, base, n, width, grouping, changed, n_changed))
T_WRAP_VOID(restore,
            (uint8_t *dst, const uint16_t *symbols, const uint8_t *second, size_t n, uint32_t scale,
             const lmc__grid *grid),
            (dst, symbols, second, n, scale, grid))
T_WRAP(size_t, quantize,
       (uint16_t *symbols, const uint8_t *src, const uint8_t *second, size_t n, uint32_t scale,
        const lmc__grid *grid),
       (symbols, src, second, n, scale, grid))

void t_call_in_kernels(void (*on_kernel)(void *user), void *user)
{
    if (!on_kernel) {
        t_on_kernel = NULL;
        LMC__ATOMIC_STORE(&lmc__active_kernels, t_inner);
        return;
    }
    t_inner = lmc__get_kernels();
    t_wrapped = *t_inner;
    t_wrapped.crc32c = t_crc32c_;
    t_wrapped.sum64 = t_sum64_;
    t_wrapped.count_classes = t_count_classes_;
    t_wrapped.split = t_split_;
    t_wrapped.split_root = t_split_root_;
    t_wrapped.map = t_map_;
    t_wrapped.partition = t_partition_;
    t_wrapped.group = t_group_;
    t_wrapped.list_changes = t_list_changes_;
    t_wrapped.rank_changes = t_rank_changes_;
    t_wrapped.restore = t_restore_;
    t_wrapped.quantize = t_quantize_;
    t_on_kernel = on_kernel;
    t_on_kernel_user = user;
    LMC__ATOMIC_STORE(&lmc__active_kernels, &t_wrapped);
}
