#pragma once
#include "extra_api.h"
#include "base/platform.h"
#include "base/options.h"
#include "tensor/cpus.h"

/* LMC_PTHREADS: a pool of threads, for programs that have none.
 *
 *     run(n)     each worker takes the index `next`, under the lock, until it is n; the caller is
 *                worker 0, the pool's threads are workers 1 .. n_workers - 1
 *     end        the caller waits until n_left is 0: all tasks have returned
 *
 * run_lock allows one run at a time. A wave has few tasks, and each takes much longer than locking,
 * so one lock is enough. */
#ifdef LMC_PTHREADS
#include <pthread.h>

typedef struct lmc__pool_thread {
    lmc_pool *pool;
    pthread_t thread;
    unsigned worker;
} lmc__pool_thread;

struct lmc_pool {
    lmc_parallel parallel;
    pthread_mutex_t run_lock, lock;
    pthread_cond_t work, done;
    lmc_task task; /* of the wave that runs */
    void *arg;
    size_t next, n_tasks, n_left;
    int is_closing;
    unsigned n_started; /* threads: workers 1 .. n_started */
    const lmc_allocator *allocator;
    lmc__pool_thread threads[1]; /* n_workers - 1 of them */
};

static size_t lmc__pool_size(unsigned n_workers)
{
    return sizeof(lmc_pool) + n_workers * sizeof(lmc__pool_thread);
}

/* Runs tasks until none is left. The caller holds the lock, which is released while a task runs. */
static void lmc__work_off(lmc_pool *pool, unsigned worker)
{
    while (pool->next < pool->n_tasks) {
        const size_t index = pool->next++;
        (void)pthread_mutex_unlock(&pool->lock);
        pool->task(pool->arg, index, worker);
        (void)pthread_mutex_lock(&pool->lock);
        if (--pool->n_left == 0) (void)pthread_cond_broadcast(&pool->done);
    }
}

static void *lmc__pool_main(void *arg)
{
    lmc__pool_thread *const me = (lmc__pool_thread *)arg;
    lmc_pool *const pool = me->pool;
    (void)pthread_mutex_lock(&pool->lock);
    while (!pool->is_closing) {
        lmc__work_off(pool, me->worker);
        if (!pool->is_closing) (void)pthread_cond_wait(&pool->work, &pool->lock);
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static void lmc__run_pool(void *user, lmc_task task, void *arg, size_t n_tasks, unsigned n_workers)
{
    lmc_pool *const pool = (lmc_pool *)user;
    (void)n_workers;
    if (n_tasks == 0) return;
    (void)pthread_mutex_lock(&pool->run_lock);
    (void)pthread_mutex_lock(&pool->lock);
    pool->task = task;
    pool->arg = arg;
    pool->next = 0;
    pool->n_tasks = pool->n_left = n_tasks;
    (void)pthread_cond_broadcast(&pool->work);
    lmc__work_off(pool, 0);
    while (pool->n_left != 0) (void)pthread_cond_wait(&pool->done, &pool->lock);
    pool->n_tasks = 0;
    (void)pthread_mutex_unlock(&pool->lock);
    (void)pthread_mutex_unlock(&pool->run_lock);
}

/* If the system cannot start all threads, fewer do the same work. */
LMC_API enum lmc_status lmc_pool_open(lmc_pool **pool, unsigned n_workers,
                                      const lmc_allocator *allocator)
{
    lmc_pool *p;
    unsigned i;
    LMC__NEW_OBJECT(pool);
    if (n_workers > 1024) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__check_allocator(allocator));
    if (n_workers == 0) n_workers = lmc_default_workers();
    p = (lmc_pool *)lmc__realloc(allocator, NULL, 0, lmc__pool_size(n_workers));
    if (!p) return LMC_ERR_MEMORY;
    memset(p, 0, lmc__pool_size(n_workers));
    p->allocator = allocator;
    p->parallel.run = lmc__run_pool;
    p->parallel.user = p;
    p->parallel.n_workers = n_workers;
    (void)pthread_mutex_init(&p->run_lock, NULL);
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->work, NULL);
    (void)pthread_cond_init(&p->done, NULL);
    for (i = 0; i + 1 < n_workers; i++) {
        p->threads[i].pool = p;
        p->threads[i].worker = i + 1;
        if (pthread_create(&p->threads[i].thread, NULL, lmc__pool_main, &p->threads[i]) != 0) break;
        p->n_started++;
    }
    *pool = p;
    return LMC_OK;
}

LMC_API const lmc_parallel *lmc_pool_parallel(const lmc_pool *pool)
{
    return pool ? &pool->parallel : NULL;
}

LMC_API void lmc_pool_free(lmc_pool *pool)
{
    unsigned i;
    if (!pool) return;
    (void)pthread_mutex_lock(&pool->lock);
    pool->is_closing = 1;
    (void)pthread_cond_broadcast(&pool->work);
    (void)pthread_mutex_unlock(&pool->lock);
    for (i = 0; i < pool->n_started; i++) (void)pthread_join(pool->threads[i].thread, NULL);
    (void)pthread_cond_destroy(&pool->done);
    (void)pthread_cond_destroy(&pool->work);
    (void)pthread_mutex_destroy(&pool->lock);
    (void)pthread_mutex_destroy(&pool->run_lock);
    (void)lmc__realloc(pool->allocator, pool, lmc__pool_size(pool->parallel.n_workers), 0);
}
#endif
