/* SPDX-License-Identifier: MIT */
#include "pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

/* Takes tasks until none is left; called and left with the lock held. */
static void pool_work(struct pool *pool, unsigned worker)
{
    while (pool->next < pool->n_tasks) {
        size_t index = pool->next++;
        pthread_mutex_unlock(&pool->lock);
        pool->task(pool->arg, index, worker);
        pthread_mutex_lock(&pool->lock);
        if (--pool->n_running == 0) pthread_cond_signal(&pool->finished);
    }
}

static void *pool_thread(void *user)
{
    struct pool *pool = (struct pool *)user;
    unsigned worker;
    pthread_mutex_lock(&pool->lock);
    worker = ++pool->n_ready;
    while (!pool->quit) {
        pool_work(pool, worker);
        pthread_cond_wait(&pool->start, &pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

void pool_run(void *user, lmc_task task, void *arg, size_t n_tasks, unsigned n_workers)
{
    (void)n_workers;
    struct pool *pool = (struct pool *)user;
    pthread_mutex_lock(&pool->lock);
    pool->task = task;
    pool->arg = arg;
    pool->next = 0;
    pool->n_tasks = pool->n_running = n_tasks;
    if (n_tasks > 1) pthread_cond_broadcast(&pool->start);
    pool_work(pool, 0);
    while (pool->n_running) pthread_cond_wait(&pool->finished, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

unsigned pool_open(struct pool *pool, unsigned n_workers)
{
    memset(pool, 0, sizeof *pool);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->start, NULL);
    pthread_cond_init(&pool->finished, NULL);
    pool->threads = (pthread_t *)resize(NULL, n_workers, sizeof *pool->threads);
    while (pool->n_threads + 1 < n_workers &&
           pthread_create(&pool->threads[pool->n_threads], NULL, pool_thread, pool) == 0)
        pool->n_threads++;
    return pool->n_threads + 1;
}

void pool_close(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->quit = 1;
    pthread_cond_broadcast(&pool->start);
    pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < pool->n_threads; i++) pthread_join(pool->threads[i], NULL);
    free(pool->threads);
    pthread_mutex_destroy(&pool->lock);
    pthread_cond_destroy(&pool->start);
    pthread_cond_destroy(&pool->finished);
}
