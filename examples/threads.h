/* threads.h - a pool behind lmc_parallel, and reading and writing beside the coding
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

/* -- buffers between a thread that does I/O and the one that codes --
 * The I/O thread starts with the first buffer that is passed on: small files need none. A reading thread that waits for
 * a slow pipe can be stopped; a writing one ends when its last write() returns. */

#define N_BUFFERS 3u
#define BUFFER_SIZE ((size_t)4 << 20)

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    int started;
    int fd;
    int sparse;                 /* writing: what is all zero becomes a hole; for a new file only */
    int wake[2];                /* a pipe: closed at one end to stop the reading thread; -1: none */
    unsigned char *data[N_BUFFERS];
    size_t size[N_BUFFERS];
    size_t n_filled, n_emptied; /* counted on and on; buffer number n is data[n % N_BUFFERS] */
    size_t at;                  /* coding side: place in the buffer in hand */
    int ended;                  /* by whoever fills: nothing follows */
    int stopped;                /* by the coding side: give up */
    int error;                  /* errno of the I/O thread */
};

static void queue_open(struct queue *q, int fd)
{
    memset(q, 0, sizeof *q);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->changed, NULL);
    q->fd = fd;
    q->wake[0] = q->wake[1] = -1;
}

static void queue_start(struct queue *q, void *(*run)(void *), int reads)
{
    int error = 0;
    for (unsigned i = 0; i < N_BUFFERS; i++)
        q->data[i] = (unsigned char *)resize(q->data[i], BUFFER_SIZE, 1);
    if (reads && pipe(q->wake) != 0)
        error = errno;
    if (!error)
        error = pthread_create(&q->thread, NULL, run, q);
    if (error) {
        say(NULL, "cannot start a thread: %s", strerror(error));
        remove_temporary();
        exit(CODE_ERROR);
    }
    q->started = 1;
}

static void queue_signal(struct queue *q, size_t *counter)
{
    pthread_mutex_lock(&q->lock);
    ++*counter;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
}

static void queue_end(struct queue *q, int error)
{
    pthread_mutex_lock(&q->lock);
    q->ended = 1;
    if (error)
        q->error = error;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
}

/* Waits for a free buffer; 0 if there is no point in going on. */
static int queue_wait_empty(struct queue *q)
{
    int go;
    pthread_mutex_lock(&q->lock);
    while (!q->stopped && !q->error && q->n_filled - q->n_emptied == N_BUFFERS)
        pthread_cond_wait(&q->changed, &q->lock);
    go = !q->stopped && !q->error;
    pthread_mutex_unlock(&q->lock);
    return go;
}

/* Waits for a filled buffer; 0 if there comes none. */
static int queue_wait_filled(struct queue *q)
{
    int go;
    pthread_mutex_lock(&q->lock);
    while (!q->stopped && !q->ended && q->n_filled == q->n_emptied)
        pthread_cond_wait(&q->changed, &q->lock);
    go = !q->stopped && q->n_filled != q->n_emptied;
    pthread_mutex_unlock(&q->lock);
    return go;
}

static void queue_close(struct queue *q, int stop)
{
    if (q->started) {
        if (stop) {
            pthread_mutex_lock(&q->lock);
            q->stopped = 1;
            pthread_cond_broadcast(&q->changed);
            pthread_mutex_unlock(&q->lock);
        }
        if (stop && q->wake[1] >= 0) {
            close(q->wake[1]);
            q->wake[1] = -1;
        }
        pthread_join(q->thread, NULL);
    }
    q->started = 0;
    for (unsigned i = 0; i < 2; i++)
        if (q->wake[i] >= 0)
            close(q->wake[i]);
    for (unsigned i = 0; i < N_BUFFERS; i++)
        free(q->data[i]);
    memset(q->data, 0, sizeof q->data);
    pthread_mutex_destroy(&q->lock);
    pthread_cond_destroy(&q->changed);
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

/* -- reading ahead -- */

/* Waits until read() would not wait; 0 if the queue was stopped. */
static int wait_for_input(struct queue *q)
{
    struct pollfd fds[2];
    fds[0].fd = q->fd;
    fds[1].fd = q->wake[0];
    fds[0].events = fds[1].events = POLLIN;
    fds[0].revents = fds[1].revents = 0;
    while (poll(fds, 2, -1) < 0 && errno == EINTR)
        ;
    return fds[1].revents == 0;
}

static void *read_thread(void *user)
{
    struct queue *q = (struct queue *)user;
    int error = 0, ended = 0;
    while (!error && !ended && queue_wait_empty(q)) {
        size_t i = q->n_filled % N_BUFFERS, size = 0, got = 1;
        while (!error && got && size < BUFFER_SIZE && wait_for_input(q)) {
            error = read_some(q->fd, q->data[i] + size, BUFFER_SIZE - size, &got);
            size += got;
        }
        ended = size < BUFFER_SIZE;
        q->size[i] = size;
        if (size)
            queue_signal(q, &q->n_filled);
    }
    queue_end(q, error);
    return NULL;
}

/* The bytes that come next, at least one; returns 0 at the end or after an error. They stay until queue_skip. */
static size_t queue_peek(struct queue *q, const unsigned char **data)
{
    size_t i;
    if (!q->started)
        queue_start(q, read_thread, 1);
    if (!queue_wait_filled(q))
        return 0;
    i = q->n_emptied % N_BUFFERS;
    *data = q->data[i] + q->at;
    return q->size[i] - q->at;
}

static void queue_skip(struct queue *q, size_t size)
{
    q->at += size;
    if (q->at == q->size[q->n_emptied % N_BUFFERS]) {
        q->at = 0;
        queue_signal(q, &q->n_emptied);
    }
}

/* -- writing behind -- */

#define HOLE_SIZE ((size_t)64 << 10)

/* Writes a buffer, or skips what is to be a hole: buffers begin at multiples of HOLE_SIZE. 0 or errno. */
static int write_buffer(const struct queue *q, const unsigned char *data, size_t size)
{
    int error = 0;
    while (q->sparse && size && !error) {
        size_t part = 0, hole = 0;
        while (size - part >= HOLE_SIZE && (data[part] || memcmp(data + part, data + part + 1, HOLE_SIZE - 1) != 0))
            part += HOLE_SIZE;
        if (size - part < HOLE_SIZE)
            break;
        while (size - part - hole >= HOLE_SIZE && !data[part + hole] &&
               memcmp(data + part + hole, data + part + hole + 1, HOLE_SIZE - 1) == 0)
            hole += HOLE_SIZE;
        error = write_full(q->fd, data, part);
        if (!error && lseek(q->fd, (off_t)hole, SEEK_CUR) < 0)
            error = errno;
        data += part + hole;
        size -= part + hole;
    }
    return error ? error : write_full(q->fd, data, size);
}

/* A hole at the end counts only when the file gets its size. */
static int write_size(const struct queue *q)
{
    off_t size = q->sparse ? lseek(q->fd, 0, SEEK_CUR) : 0;
    return !q->sparse || (size >= 0 && ftruncate(q->fd, size) == 0) ? 0 : errno;
}

static void *write_thread(void *user)
{
    struct queue *q = (struct queue *)user;
    int error = 0;
    while (!error && queue_wait_filled(q)) {
        size_t i = q->n_emptied % N_BUFFERS;
        error = write_buffer(q, q->data[i], q->size[i]);
        if (!error)
            queue_signal(q, &q->n_emptied);
    }
    if (error)
        queue_end(q, error);
    return NULL;
}

/* 0 or errno. */
static int queue_append(struct queue *q, const void *data, size_t size)
{
    while (size) {
        size_t i = q->n_filled % N_BUFFERS, part = BUFFER_SIZE - q->at;
        if (q->at == 0 && !queue_wait_empty(q))
            return q->error;
        if (!q->data[i])
            q->data[i] = (unsigned char *)resize(NULL, BUFFER_SIZE, 1);
        if (part > size)
            part = size;
        memcpy(q->data[i] + q->at, data, part);
        q->at += part;
        if (q->at == BUFFER_SIZE) {
            if (!q->started)
                queue_start(q, write_thread, 0);
            q->size[i] = q->at;
            q->at = 0;
            queue_signal(q, &q->n_filled);
        }
        data = (const char *)data + part;
        size -= part;
    }
    return 0;
}

/* Waits until everything is written; 0 or errno. To be followed by queue_close. */
static int queue_flush(struct queue *q)
{
    int error;
    if (!q->started) {
        error = q->at ? write_buffer(q, q->data[0], q->at) : 0;
        q->at = 0;
        return error ? error : write_size(q);
    }
    if (q->at) {
        q->size[q->n_filled % N_BUFFERS] = q->at;
        q->at = 0;
        queue_signal(q, &q->n_filled);
    }
    queue_end(q, 0);
    pthread_join(q->thread, NULL);
    q->started = 0;
    return q->error ? q->error : write_size(q);
}

#endif
