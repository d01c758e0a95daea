/* threads.h - a pool behind lmc_parallel, and bytes in and out
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_THREADS_H
#define LMC_THREADS_H

#include <poll.h>
#include <pthread.h>

#include "report.h"

/* -- pool: the caller of pool_run is worker 0 -- */

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t start, finished;
    pthread_t *threads;
    unsigned n_threads; /* beside the caller */
    unsigned n_ready;   /* threads that have taken their number */
    lmc_task task;
    void *arg;
    size_t n_tasks, next, n_running; /* tasks of this run; the next to be taken; taken or not, but not finished */
    int quit;
};

/* Takes tasks until none is left; called and left with the lock held. */
static void pool_work(struct pool *pool, unsigned worker)
{
    while (pool->next < pool->n_tasks) {
        size_t index = pool->next++;
        pthread_mutex_unlock(&pool->lock);
        pool->task(pool->arg, index, worker);
        pthread_mutex_lock(&pool->lock);
        if (--pool->n_running == 0)
            pthread_cond_signal(&pool->finished);
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

static void pool_run(void *user, lmc_task task, void *arg, size_t n_tasks)
{
    struct pool *pool = (struct pool *)user;
    pthread_mutex_lock(&pool->lock);
    pool->task = task;
    pool->arg = arg;
    pool->next = 0;
    pool->n_tasks = pool->n_running = n_tasks;
    if (n_tasks > 1)
        pthread_cond_broadcast(&pool->start);
    pool_work(pool, 0);
    while (pool->n_running)
        pthread_cond_wait(&pool->finished, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

/* As many of the threads as the system grants. Returns the number of workers. */
static unsigned pool_open(struct pool *pool, unsigned n_workers)
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

static void pool_close(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->quit = 1;
    pthread_cond_broadcast(&pool->start);
    pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < pool->n_threads; i++)
        pthread_join(pool->threads[i], NULL);
    free(pool->threads);
    pthread_mutex_destroy(&pool->lock);
    pthread_cond_destroy(&pool->start);
    pthread_cond_destroy(&pool->finished);
}

/* -- bytes in and out; all return 0 or errno -- */

/* After a failed read or write: whether to try again. A shell may hand over descriptors that do not block. */
static int io_retry(int fd, short event)
{
    struct pollfd wait;
    if (errno == EINTR)
        return 1;
    if (errno != EAGAIN && errno != EWOULDBLOCK)
        return 0;
    wait.fd = fd;
    wait.events = event;
    wait.revents = 0;
    return poll(&wait, 1, -1) >= 0 || errno == EINTR;
}

/* At least one byte, but at the end. */
static int read_some(int fd, void *data, size_t size, size_t *got)
{
    ssize_t n;
    *got = 0;
    do
        n = read(fd, data, size);
    while (n < 0 && io_retry(fd, POLLIN));
    if (n < 0)
        return errno;
    *got = (size_t)n;
    return 0;
}

/* All of size, but at the end. */
static int read_full(int fd, void *data, size_t size, size_t *got)
{
    size_t part = 1;
    int error = 0;
    for (*got = 0; *got < size && part && !error; *got += part)
        error = read_some(fd, (char *)data + *got, size - *got, &part);
    return error;
}

static int write_full(int fd, const void *data, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = write(fd, (const char *)data + done, size - done);
        if (n < 0 && !io_retry(fd, POLLOUT))
            return errno;
        if (n > 0)
            done += (size_t)n;
    }
    return 0;
}

/* Where bytes go one after another. */
struct outlet {
    int fd;
    int sparse;    /* what is all zero becomes a hole; for a new file only */
    uint64_t size; /* so far */
    int error;     /* the first one */
};

/* What is all zero within a range that begins and ends at multiples of this becomes a hole: there is no point in holes of
 * less than a page, and each of them costs a call. */
#define HOLE_SIZE ((size_t)64 << 10)
#define MIN_HOLE_SIZE ((size_t)4 << 10)

static int is_zero(const unsigned char *data, size_t size)
{
    return !data[0] && !data[size - 1] && memcmp(data, data + 1, size - 1) == 0;
}

/* Writes up to the next hole; *done: how far, the hole included. */
static int write_to_hole(const struct outlet *out, const unsigned char *data, size_t size, size_t *done)
{
    size_t at = 0, hole = 0;
    int error;
    while (at + hole < size) {
        size_t part = HOLE_SIZE - (size_t)((out->size + at + hole) % HOLE_SIZE);
        if (part > size - at - hole)
            part = size - at - hole;
        if (part >= MIN_HOLE_SIZE && is_zero(data + at + hole, part))
            hole += part;
        else if (hole)
            break;
        else
            at += part;
    }
    error = write_full(out->fd, data, at);
    if (!error && hole && lseek(out->fd, (off_t)hole, SEEK_CUR) < 0)
        error = errno;
    *done = at + hole;
    return error;
}

static int outlet_write(struct outlet *out, const void *data, size_t size)
{
    while (size && !out->error) {
        size_t done = size;
        if (out->sparse)
            out->error = write_to_hole(out, (const unsigned char *)data, size, &done);
        else
            out->error = write_full(out->fd, data, size);
        data = (const char *)data + done;
        size -= done;
        out->size += done;
    }
    return out->error;
}

/* A hole at the end counts only when the file gets its size. */
static int outlet_finish(struct outlet *out)
{
    if (!out->error && out->sparse && ftruncate(out->fd, (off_t)out->size) != 0)
        out->error = errno;
    return out->error;
}

#endif
