/* pool.h - a pool of threads behind lmc_parallel
 * SPDX-License-Identifier: MIT
 *
 * The caller of pool_run() works, too, as worker 0. One run at a time.
 */
#ifndef LMC_CLI_POOL_H
#define LMC_CLI_POOL_H

#include "platform.h"

#include <pthread.h>
#include <stddef.h>

#include "../../lmc.h"
#include "report.h"

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t start, finished;
    pthread_t *threads;
    unsigned n_threads; /* beside the caller */
    unsigned n_ready;   /* threads that have taken their number */
    lmc_task task;
    void *arg;
    size_t n_tasks, next,
        n_running; /* tasks of this run; the next to be taken; taken or not, but not finished */
    int quit;
};

/* As lmc_parallel asks; user: a pool. */
void pool_run(void *user, lmc_task task, void *arg, size_t n_tasks, unsigned n_workers);

/* As many of the threads as the system grants. Returns the number of workers. */
unsigned pool_open(struct pool *pool, unsigned n_workers);

void pool_close(struct pool *pool);

#endif
