/* mount_windows.c - decoded bytes that are kept (mount.h)
 * SPDX-License-Identifier: MIT */
#include "mount.h"

#include <sys/mman.h>

/* In large pages if the system has them: it then hands them to readers in less time. */
static unsigned char *make_window(void)
{
    void *data = NULL;
    if (posix_memalign(&data, (size_t)2 << 20, WINDOW_SIZE) != 0) check_memory(NULL);
#ifdef MADV_HUGEPAGE
    (void)madvise(data, WINDOW_SIZE, MADV_HUGEPAGE);
#endif
    return (unsigned char *)data;
}

/* Called with the lock held. */
static struct window *find_window(struct windows *w, uint64_t number, uint64_t index)
{
    for (size_t i = 0; i < N_WINDOWS; i++)
        if (w->list[i].is_there && w->list[i].number == number && w->list[i].index == index)
            return &w->list[i];
    return NULL;
}

/* The window that was not used for the longest time; NULL: all are in use. */
static struct window *choose_window(struct windows *w)
{
    struct window *best = NULL;
    for (size_t i = 0; i < N_WINDOWS; i++) {
        struct window *const c = &w->list[i];
        if (c->n_users == 0 && (!best || c->used < best->used)) best = c;
    }
    return best;
}

static void fill_window(struct windows *w, struct window *c,
                        int (*fill)(void *user, uint64_t index, unsigned char *data), void *user)
{
    const uint64_t index = c->index;
    pthread_mutex_unlock(&w->lock);
    if (!c->data) c->data = make_window();
    const int error = fill(user, index, c->data);
    pthread_mutex_lock(&w->lock);
    c->is_filled = 1;
    c->is_broken = error != 0;
    pthread_cond_broadcast(&w->changed);
}

struct window *take_window(struct windows *w, uint64_t number, uint64_t index, int only_new,
                           int (*fill)(void *user, uint64_t index, unsigned char *data), void *user)
{
    struct window *c;
    pthread_mutex_lock(&w->lock);
    while ((c = find_window(w, number, index)) == NULL && (c = choose_window(w)) == NULL &&
           !only_new)
        pthread_cond_wait(&w->changed, &w->lock);
    if (!c || (only_new && c->is_there && c->number == number && c->index == index)) {
        pthread_mutex_unlock(&w->lock);
        return NULL;
    }
    c->n_users++;
    c->used = ++w->tick;
    if (!c->is_there || c->number != number || c->index != index) {
        c->number = number;
        c->index = index;
        c->is_there = 1;
        c->is_filled = c->is_broken = c->is_told = 0;
        fill_window(w, c, fill, user);
    }
    while (!c->is_filled) pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
    return c;
}

void give_back_window(struct windows *w, struct window *window, int is_done)
{
    pthread_mutex_lock(&w->lock);
    if (is_done) window->used = 0;
    if (--window->n_users == 0) pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

int tell_broken(struct windows *w, struct window *window)
{
    pthread_mutex_lock(&w->lock);
    const int is_first = !window->is_told;
    window->is_told = 1;
    pthread_mutex_unlock(&w->lock);
    return is_first;
}
