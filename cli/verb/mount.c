/* mount.c - lmc mount: snapshots as read-only files, for every program
 * SPDX-License-Identifier: MIT
 *
 * LMC_FUSE: libfuse3 is there. Its threads call the functions named answer_...; each answers one
 * request of the system.
 */
#include "mount.h"

#include "../sys/attributes.h"
#include "../sys/tree.h"
#include "verbs.h"

#ifndef LMC_FUSE

int mount_snapshot(const struct options *o)
{
    (void)o;
    return fail(CODE_ERROR, NULL,
                "this lmc was built without FUSE, which mount needs: install libfuse3-dev and "
                "pkg-config (Debian, Ubuntu) or fuse3-devel (Fedora), and build it again");
}

#else

#define FUSE_USE_VERSION 31
#include <fuse_lowlevel.h>

#include "../sys/background.h"
#include "../sys/spot.h"

/* Seconds for which the system need not ask again for what never changes. */
#define FOREVER 1e6

/* And for names that may lead to other nodes later. Opening is right all the same: the answer
 * ESTALE makes the system look the whole path up again. */
#define A_SECOND 1.0

/* An open file. The system may close it as soon as it has its last answer, while this process still
 * reads ahead: so it has a count of users, with the lock of the windows. */
struct handle {
    unsigned n_users;
    struct node *node;
    struct volume *volume; /* of a snapshot */
    int fd;                /* of a file on the disk */
    uint64_t last;         /* window that was read */
    struct mount *mount;
};

/* An open directory: its entries as they were. */
struct entries {
    struct node *directory;
    struct listed {
        char *name;
        mode_t mode;
        struct node *node;
    } *list;
    size_t n, cap;
};

static struct mount *mount_of(fuse_req_t request)
{
    return (struct mount *)fuse_req_userdata(request);
}

static struct node *node_of(struct mount *m, fuse_ino_t number)
{
    return number == FUSE_ROOT_ID ? m->root->nodes : (struct node *)(uintptr_t)number;
}

static fuse_ino_t number_of(const struct mount *m, const struct node *node)
{
    return node == m->root->nodes ? FUSE_ROOT_ID : (fuse_ino_t)(uintptr_t)node;
}

/* Whether this process itself asks, for example as a link on the disk leads to the mount point: it
 * would wait for itself. */
static int is_own_request(fuse_req_t request)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%ld", (long)fuse_req_ctx(request)->pid);
    return access(path, F_OK) == 0;
}

static struct stat stat_of(const struct node *node)
{
    struct stat st;
    memset(&st, 0, sizeof st);
    st.st_ino = (ino_t)node->number;
    st.st_mode = node->mode;
    st.st_nlink = (nlink_t)node->n_names;
    st.st_uid = geteuid();
    st.st_gid = getegid();
    st.st_size = (off_t)node->size;
    st.st_blocks = (blkcnt_t)((node->size + 511) / 512);
    st.st_blksize = 1 << 20;
    st.st_atim = st.st_mtim = st.st_ctim = node->time;
    return st;
}

static void answer_init(void *user, struct fuse_conn_info *connection)
{
    (void)user;
    connection->max_readahead = 1 << 20;
    connection->time_gran = 1;
}

/* -- names -- */

/* What the system is told of a node, which it counts. */
static struct fuse_entry_param entry_of(struct mount *m, struct node *node, int is_constant)
{
    struct fuse_entry_param e;
    memset(&e, 0, sizeof e);
    use_item(node->item);
    e.ino = number_of(m, node);
    e.attr = stat_of(node);
    e.attr_timeout = is_constant_node(node) ? FOREVER : 0;
    e.entry_timeout = is_constant ? FOREVER : node->item->kind == ITEM_LINK ? 0 : A_SECOND;
    return e;
}

static void answer_lookup(fuse_req_t request, fuse_ino_t parent, const char *name)
{
    struct mount *const m = mount_of(request);
    struct fuse_entry_param e;
    struct node *node = NULL;
    int is_constant, error;
    if (is_own_request(request)) {
        fuse_reply_err(request, ELOOP);
        return;
    }
    pthread_mutex_lock(&m->decoder);
    error = find_node(m, node_of(m, parent), name, &node, &is_constant);
    if (!error) e = entry_of(m, node, is_constant);
    pthread_mutex_unlock(&m->decoder);
    if (error) fuse_reply_err(request, error);
    else if (fuse_reply_entry(request, &e) != 0) { /* nobody waits for it any more */
        pthread_mutex_lock(&m->decoder);
        release_item(m, node->item, 1);
        pthread_mutex_unlock(&m->decoder);
    }
}

static void answer_forget(fuse_req_t request, fuse_ino_t number, uint64_t n)
{
    struct mount *const m = mount_of(request);
    pthread_mutex_lock(&m->decoder);
    release_item(m, node_of(m, number)->item, n);
    pthread_mutex_unlock(&m->decoder);
    fuse_reply_none(request);
}

static void answer_forget_multi(fuse_req_t request, size_t n, struct fuse_forget_data *list)
{
    struct mount *const m = mount_of(request);
    pthread_mutex_lock(&m->decoder);
    for (size_t i = 0; i < n; i++) release_item(m, node_of(m, list[i].ino)->item, list[i].nlookup);
    pthread_mutex_unlock(&m->decoder);
    fuse_reply_none(request);
}

static void answer_getattr(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *file)
{
    struct mount *const m = mount_of(request);
    struct node *const node = node_of(m, number);
    struct stat st;
    int error;
    (void)file;
    if (!is_constant_node(node) && is_own_request(request)) {
        fuse_reply_err(request, ELOOP);
        return;
    }
    pthread_mutex_lock(&m->decoder);
    error = look_at_node(m, node);
    st = stat_of(node);
    pthread_mutex_unlock(&m->decoder);
    if (error) fuse_reply_err(request, error);
    else fuse_reply_attr(request, &st, is_constant_node(node) ? FOREVER : 0);
}

static void answer_readlink(fuse_req_t request, fuse_ino_t number)
{
    const struct node *const node = node_of(mount_of(request), number);
    char text[PATH_MAX + 1];
    ssize_t size;
    if (node->target) {
        fuse_reply_readlink(request, node->target);
        return;
    }
    size = readlink(name_node(node), text, sizeof text - 1);
    if (size < 0) {
        fuse_reply_err(request, errno);
        return;
    }
    text[size] = 0;
    fuse_reply_readlink(request, text);
}

/* -- directories -- */

static void add_listed(void *user, const char *name, mode_t mode, struct node *node)
{
    struct entries *const l = (struct entries *)user;
    struct listed *const e = (struct listed *)append(&l->list, &l->n, &l->cap, sizeof *l->list);
    e->name = copy_text(name);
    e->mode = mode;
    e->node = node;
}

static void free_entries(struct entries *l)
{
    for (size_t i = 0; i < l->n; i++) free(l->list[i].name);
    free(l->list);
    free(l);
}

static void answer_opendir(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *file)
{
    struct mount *const m = mount_of(request);
    struct node *const node = node_of(m, number);
    struct entries *const l = (struct entries *)zeroed(1, sizeof *l);
    int error = 0;
    add_listed(l, ".", S_IFDIR, NULL);
    add_listed(l, "..", S_IFDIR, NULL);
    pthread_mutex_lock(&m->decoder);
    error = is_current(m, node->item) ? list_node(m, node, &l->directory, add_listed, l) : ESTALE;
    if (!error) use_item(l->directory->item); /* its nodes are in the list */
    pthread_mutex_unlock(&m->decoder);
    file->fh = (uintptr_t)l;
    if (error) fuse_reply_err(request, error);
    if (!error && fuse_reply_open(request, file) == 0) return;
    pthread_mutex_lock(&m->decoder);
    if (!error) release_item(m, l->directory->item, 1);
    pthread_mutex_unlock(&m->decoder);
    free_entries(l);
}

/* Adds an entry, if there is room. Returns the bytes that it takes. The system takes a node for
 * known, and counts it, if the entry has its number. */
static size_t add_direntry(fuse_req_t request, char *data, size_t room, const struct listed *e,
                           off_t next, const struct fuse_entry_param *known)
{
    struct stat st;
    if (known) return fuse_add_direntry_plus(request, data, room, e->name, known, next);
    memset(&st, 0, sizeof st);
    st.st_mode = e->mode;
    st.st_ino = e->node ? (ino_t)e->node->number : (ino_t)~UINT32_C(0);
    return fuse_add_direntry(request, data, room, e->name, &st, next);
}

/* is_plus: with the attributes of the nodes. */
static void answer_entries(fuse_req_t request, size_t room, off_t offset, const struct entries *l,
                           int is_plus)
{
    struct mount *const m = mount_of(request);
    const int is_constant = is_constant_node(l->directory);
    char *const data = (char *)resize(NULL, room, 1);
    size_t used = 0, i = (size_t)offset, size = 0, n_counted = 0;
    pthread_mutex_lock(&m->decoder);
    for (; i < l->n; i++, used += size) {
        const struct listed *const e = &l->list[i];
        struct fuse_entry_param known;
        memset(&known, 0, sizeof known);
        known.attr.st_mode = e->mode;
        known.attr.st_ino = (ino_t)~UINT32_C(0);
        if (is_plus && e->node) known = entry_of(m, e->node, is_constant);
        size = add_direntry(request, data + used, room - used, e, (off_t)(i + 1),
                            is_plus ? &known : NULL);
        if (is_plus && e->node) n_counted++;
        if (size <= room - used) continue;
        if (is_plus && e->node) release_item(m, e->node->item, 1);
        if (is_plus && e->node) n_counted--;
        break;
    }
    pthread_mutex_unlock(&m->decoder);
    if (fuse_reply_buf(request, data, used) != 0 && n_counted) {
        pthread_mutex_lock(&m->decoder);
        release_item(m, l->directory->item, n_counted);
        pthread_mutex_unlock(&m->decoder);
    }
    free(data);
}

static void answer_readdir(fuse_req_t request, fuse_ino_t number, size_t room, off_t offset,
                           struct fuse_file_info *file)
{
    (void)number;
    answer_entries(request, room, offset, (const struct entries *)(uintptr_t)file->fh, 0);
}

static void answer_readdirplus(fuse_req_t request, fuse_ino_t number, size_t room, off_t offset,
                               struct fuse_file_info *file)
{
    (void)number;
    answer_entries(request, room, offset, (const struct entries *)(uintptr_t)file->fh, 1);
}

static void answer_releasedir(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *file)
{
    struct mount *const m = mount_of(request);
    struct entries *const l = (struct entries *)(uintptr_t)file->fh;
    (void)number;
    pthread_mutex_lock(&m->decoder);
    release_item(m, l->directory->item, 1);
    pthread_mutex_unlock(&m->decoder);
    free_entries(l);
    fuse_reply_err(request, 0);
}

/* -- files -- */

/* *is_same: the file is as it was when it was opened before, so the system may keep its bytes. */
static int open_plain(struct handle *h, int *is_same)
{
    struct item *const item = h->node->item;
    struct stat st;
    h->fd = open_file(AT_FDCWD, name_node(h->node), O_RDONLY | O_NOFOLLOW);
    if (h->fd < 0) return errno == ENOENT ? ESTALE : errno == ERROR_LEASED ? EBUSY : errno;
    if (fstat(h->fd, &st) != 0 || !same_file(&st, &item->st)) return ESTALE;
    *is_same = item->list_st.st_nlink && same_state(&st, &item->list_st);
    item->list_st = st;
    return 0;
}

static void use_handle(struct handle *h)
{
    pthread_mutex_lock(&h->mount->windows->lock);
    h->n_users++;
    pthread_mutex_unlock(&h->mount->windows->lock);
}

static void give_back_handle(struct handle *h)
{
    struct mount *const m = h->mount;
    pthread_mutex_lock(&m->windows->lock);
    const unsigned n = --h->n_users;
    pthread_mutex_unlock(&m->windows->lock);
    if (n) return;
    pthread_mutex_lock(&m->decoder);
    if (h->volume) close_volume_file(m, h->volume);
    release_item(m, h->node->item, 1);
    pthread_mutex_unlock(&m->decoder);
    if (h->fd >= 0) close(h->fd);
    free(h);
}

static void answer_open(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *file)
{
    struct mount *const m = mount_of(request);
    struct handle *const h = (struct handle *)zeroed(1, sizeof *h);
    int error = 0, is_same = is_constant_node(node_of(m, number));
    h->node = node_of(m, number);
    h->fd = -1;
    h->n_users = 1;
    h->mount = m;
    pthread_mutex_lock(&m->decoder);
    use_item(h->node->item);
    if (!is_current(m, h->node->item)) error = ESTALE;
    else if (!is_constant_node(h->node)) error = open_plain(h, &is_same);
    else if (h->node->size) error = open_volume(m, h->node->item);
    if (!error && is_constant_node(h->node) && h->node->size) h->volume = h->node->item->volume;
    file->fh = (uintptr_t)h;
    file->keep_cache = is_same ? 1 : 0;
    pthread_mutex_unlock(&m->decoder);
    if (error) fuse_reply_err(request, error);
    if (error || fuse_reply_open(request, file) != 0) give_back_handle(h);
}

static void answer_release(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *file)
{
    (void)number;
    give_back_handle((struct handle *)(uintptr_t)file->fh);
    fuse_reply_err(request, 0);
}

static int fill(void *user, uint64_t index, unsigned char *data)
{
    const struct handle *const h = (const struct handle *)user;
    const uint64_t at = index * WINDOW_SIZE, left = h->node->size - at;
    pthread_mutex_lock(&h->mount->decoder);
    const int error = read_volume(h->volume, h->node, at, data,
                                  left < WINDOW_SIZE ? (size_t)left : WINDOW_SIZE, 0);
    pthread_mutex_unlock(&h->mount->decoder);
    return error;
}

static struct window *take(struct handle *h, uint64_t index, int only_new)
{
    return take_window(h->mount->windows, h->node->number, index, only_new, fill, h);
}

/* Bytes of a window that could not be read as a whole: only damaged blocks are lost. */
static int read_broken(struct handle *h, struct window *w, uint64_t offset, void *dst, size_t size)
{
    pthread_mutex_lock(&h->mount->decoder);
    int error = read_volume(h->volume, h->node, offset, dst, size, 0);
    if (error && tell_broken(h->mount->windows, w))
        error = read_volume(h->volume, h->node, offset, dst, size, 1);
    pthread_mutex_unlock(&h->mount->decoder);
    return error;
}

/* Answers from one window, if the bytes are in one. 0: they are not. */
static int answer_from_window(fuse_req_t request, struct handle *h, uint64_t offset, size_t size)
{
    const uint64_t index = offset / WINDOW_SIZE;
    if ((offset + size - 1) / WINDOW_SIZE != index) return 0;
    struct window *const w = take(h, index, 0);
    const int is_whole = !w->is_broken;
    if (is_whole) fuse_reply_buf(request, (char *)w->data + offset % WINDOW_SIZE, size);
    give_back_window(h->mount->windows, w, (offset + size) % WINDOW_SIZE == 0);
    return is_whole;
}

static void answer_from_windows(fuse_req_t request, struct handle *h, uint64_t offset, size_t size)
{
    char *const data = (char *)resize(NULL, size, 1);
    size_t done = 0;
    int error = 0;
    while (done < size && !error) {
        const uint64_t at = offset + done, start = at % WINDOW_SIZE;
        const size_t n =
            size - done < WINDOW_SIZE - start ? size - done : (size_t)(WINDOW_SIZE - start);
        struct window *const w = take(h, at / WINDOW_SIZE, 0);
        if (w->is_broken) error = read_broken(h, w, at, data + done, n);
        else memcpy(data + done, w->data + start, n);
        give_back_window(h->mount->windows, w, start + n == WINDOW_SIZE);
        done += n;
    }
    if (error) fuse_reply_err(request, error);
    else fuse_reply_buf(request, data, size);
    free(data);
}

/* If the file is read from front to back, decodes the next window while this one is copied. */
static void read_ahead(struct handle *h, uint64_t index)
{
    struct window *w = NULL;
    pthread_mutex_lock(&h->mount->windows->lock);
    const int is_next = index == h->last + 1 && (index + 1) * WINDOW_SIZE < h->node->size;
    h->last = index;
    pthread_mutex_unlock(&h->mount->windows->lock);
    if (is_next) w = take(h, index + 1, 1);
    if (w) give_back_window(h->mount->windows, w, 0);
}

/* Copying takes less time than fuse_reply_data(), which splices page by page. */
static void answer_plain(fuse_req_t request, int fd, size_t size, uint64_t offset)
{
    char *const data = (char *)resize(NULL, size, 1);
    ssize_t got;
    do got = pread(fd, data, size, (off_t)offset);
    while (got < 0 && errno == EINTR);
    if (got < 0) fuse_reply_err(request, errno);
    else fuse_reply_buf(request, data, (size_t)got);
    free(data);
}

static void answer_read(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset,
                        struct fuse_file_info *file)
{
    struct handle *const h = (struct handle *)(uintptr_t)file->fh;
    const uint64_t at = (uint64_t)offset;
    (void)number;
    if (h->fd >= 0) {
        answer_plain(request, h->fd, size, at);
        return;
    }
    if (at >= h->node->size || size == 0) {
        fuse_reply_buf(request, NULL, 0);
        return;
    }
    if (size > h->node->size - at) size = (size_t)(h->node->size - at);
    use_handle(h);
    if (!answer_from_window(request, h, at, size)) answer_from_windows(request, h, at, size);
    read_ahead(h, (at + size - 1) / WINDOW_SIZE);
    give_back_handle(h);
}

static const struct fuse_lowlevel_ops answers = {
    .init = answer_init,
    .lookup = answer_lookup,
    .forget = answer_forget,
    .forget_multi = answer_forget_multi,
    .getattr = answer_getattr,
    .readlink = answer_readlink,
    .opendir = answer_opendir,
    .readdir = answer_readdir,
    .readdirplus = answer_readdirplus,
    .releasedir = answer_releasedir,
    .open = answer_open,
    .release = answer_release,
    .read = answer_read,
};

/* -- before mounting -- */

static int check_mount_point(const char *path, const char *source)
{
    struct listing names;
    struct stat st;
    if (stat(path, &st) != 0 && errno == ENOTCONN)
        return fail(CODE_ERROR, path,
                    "is a mount point whose program has ended: 'fusermount3 -u %.300s', and mount "
                    "again",
                    path);
    if (stat(path, &st) != 0 && errno == ENOENT)
        return fail(CODE_ERROR, path, "does not exist; a mount point is an empty directory: mkdir");
    if (stat(path, &st) != 0) return fail_errno(path, errno, "cannot access it");
    if (!S_ISDIR(st.st_mode))
        return fail(CODE_ERROR, path, "is not a directory; a mount point is an empty directory");
    const int error = list_names(&names, path);
    const int is_empty = names.n == 0;
    free_listing(&names);
    if (error) return fail_errno(path, error, "cannot read the directory");
    if (!is_empty)
        return fail(CODE_ERROR, path,
                    "is not empty, and what is in it would be hidden; name an empty directory");
    if (stat(source, &st) == 0 && S_ISDIR(st.st_mode) && lies_within(path, source))
        return fail(CODE_ERROR, path, "lies within what is mounted; name another directory");
    return CODE_OK;
}

static int check_device(void)
{
    const char *const device = "/dev/fuse";
    if (access(device, R_OK | W_OK) == 0) return CODE_OK;
    if (errno == ENOENT)
        return fail(CODE_ERROR, device,
                    "is not there: load the module (modprobe fuse); in a container, give it the "
                    "device (docker run --device /dev/fuse --cap-add SYS_ADMIN)");
    return fail_errno(device, errno, "cannot be opened by this user");
}

/* What libfuse says. */
static void say_of_fuse(enum fuse_log_level level, const char *format, va_list list)
{
    char *const text = format_list(format, list);
    text[strcspn(text, "\n")] = 0;
    if (level <= FUSE_LOG_WARNING) say(NULL, "%s", text);
    free(text);
}

static struct fuse_session *make_session(struct mount *m, const char *source)
{
    struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
    char *name = format_text("fsname=%s", source), *list = NULL;
    struct fuse_session *session = NULL;
    fuse_set_log_func(say_of_fuse);
    if (fuse_opt_add_opt_escaped(&list, name) != 0 ||
        fuse_opt_add_opt(&list, "ro,subtype=lmc,default_permissions") != 0 ||
        (m->o->allow_other && fuse_opt_add_opt(&list, "allow_other") != 0) ||
        fuse_opt_add_arg(&args, "lmc") != 0 || fuse_opt_add_arg(&args, "-o") != 0 ||
        fuse_opt_add_arg(&args, list) != 0)
        check_memory(NULL);
    session = fuse_session_new(&args, &answers, sizeof answers, m);
    fuse_opt_free_args(&args);
    free(list);
    free(name);
    return session;
}

static int fail_mount(const char *mount_point, const struct options *o)
{
    return fail(CODE_ERROR, mount_point, "cannot be mounted%s",
                geteuid() == 0   ? ": this process, or its container, may not mount (CAP_SYS_ADMIN)"
                : o->allow_other ? ": install fuse3; --allow-other needs the line user_allow_other "
                                   "in /etc/fuse.conf"
                                 : ": install fuse3, which has fusermount3, and use a directory of "
                                   "your own");
}

static int has_ended(const void *session)
{
    return fuse_session_exited((struct fuse_session *)(uintptr_t)session);
}

static int run_session(struct fuse_session *session, const char *source, const char *mount_point,
                       const struct options *o)
{
    int code = fuse_set_signal_handlers(session) == 0
                   ? CODE_OK
                   : fail(CODE_ERROR, NULL, "cannot handle signals");
    if (code != CODE_OK) return code;
    wait_until(has_ended, session);
    if (fuse_session_mount(session, mount_point) != 0) code = fail_mount(mount_point, o);
    else {
        if (wants_summary(o))
            say(source, "is mounted; 'fusermount3 -u %.300s' ends that", mount_point);
        if (!o->foreground && !o->log && !has_syslog() && o->verbosity > 0)
            say(NULL, "there is no syslog here: errors of reading are told only with --log FILE");
        if (!o->foreground) code = stay_in_background(o->log);
        if (code == CODE_OK && fuse_session_loop_mt(session, 0) < 0)
            code = fail(CODE_ERROR, mount_point, "the mount has ended by an error");
        fuse_session_unmount(session);
    }
    fuse_remove_signal_handlers(session);
    return code;
}

/* What it holds at the end is freed by the end of the process. */
static int mount_at(const char *source, const char *mount_point, const struct options *o)
{
    struct mount *const m = (struct mount *)zeroed(1, sizeof *m);
    m->o = o;
    m->windows = (struct windows *)zeroed(1, sizeof *m->windows);
    pthread_mutex_init(&m->decoder, NULL);
    pthread_mutex_init(&m->windows->lock, NULL);
    pthread_cond_init(&m->windows->changed, NULL);
    int code = make_root(m, source);
    if (code != CODE_OK) return code;
    struct fuse_session *const session = make_session(m, source);
    if (!session) return fail(CODE_ERROR, NULL, "cannot start FUSE");
    code = run_session(session, source, mount_point, o);
    fuse_session_destroy(session);
    return code;
}

int mount_snapshot(const struct options *o)
{
    char *source = realpath(o->names[0], NULL), *mount_point = NULL;
    struct stat st;
    int code = source ? CODE_OK : fail_errno(o->names[0], errno, "cannot open it");
    if (code == CODE_OK &&
        (stat(source, &st) != 0 || !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))))
        code = fail(CODE_ERROR, source, "is neither a file nor a directory");
    if (code == CODE_OK) code = check_mount_point(o->names[1], source);
    if (code == CODE_OK) code = check_device();
    if (code == CODE_OK) mount_point = realpath(o->names[1], NULL);
    if (code == CODE_OK && !mount_point) code = fail_errno(o->names[1], errno, "cannot resolve it");
    if (code == CODE_OK) code = mount_at(source, mount_point, o);
    free(mount_point);
    free(source);
    return code;
}

#endif
