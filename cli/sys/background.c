/* SPDX-License-Identifier: MIT */
#include "background.h"

#include <sys/wait.h>

static int verdict_fd = -1; /* the end of the pipe that the old process reads */

/* The exit code of a process that has ended without a verdict. */
static int wait_for_end(pid_t child)
{
    int status;
    pid_t ended;
    do ended = waitpid(child, &status, 0);
    while (ended < 0 && errno == EINTR);
    if (ended == child && WIFEXITED(status)) return WEXITSTATUS(status);
    return fail(CODE_ERROR, NULL, "the process in the background was killed");
}

int go_to_background(int *code)
{
    int ends[2];
    char verdict;
    ssize_t got;
    *code = CODE_ERROR;
    (void)fflush(stdout);
    if (pipe(ends) != 0) {
        fail_errno(NULL, errno, "cannot make a pipe");
        return 0;
    }
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        (void)fcntl(ends[1], F_SETFD, FD_CLOEXEC);
        verdict_fd = ends[1];
        return 1;
    }
    if (child < 0) fail_errno(NULL, errno, "cannot start a process in the background");
    close(ends[1]);
    do got = child < 0 ? 0 : read(ends[0], &verdict, 1);
    while (got < 0 && errno == EINTR);
    close(ends[0]);
    if (child > 0) *code = got == 1 ? CODE_OK : wait_for_end(child);
    return 0;
}

int has_syslog(void) { return access("/dev/log", F_OK) == 0; }

int stay_in_background(const char *log)
{
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    const int out = log ? open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : nothing;
    if (nothing < 0 || out < 0)
        return fail_errno(nothing < 0 ? "/dev/null" : log, errno, "cannot open it");
    (void)setsid();
    (void)dup2(nothing, STDIN_FILENO);
    (void)dup2(nothing, STDOUT_FILENO);
    (void)dup2(out, STDERR_FILENO);
    if (!log) report_to_syslog();
    if (out != nothing) close(out);
    close(nothing);
    (void)!write(verdict_fd, "", 1);
    close(verdict_fd);
    return CODE_OK;
}
