/* background.h - a command that goes on in the background, and where its messages go then
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "platform.h"

/* Splits the process, before it has any other thread. Returns 1 in the new process, whose messages
 * still go to standard error. In the old one, waits until that calls stay_in_background() or ends,
 * and returns 0; *code: CODE_OK, or its exit code. */
int go_to_background(int *code);

/* Tells the old process that all is well, and leaves its terminal. log: the file that messages are
 * added to; NULL: they go to syslog. After an error, which is reported, nothing has changed. */
int stay_in_background(const char *log);

/* Whether there is a syslog. */
int has_syslog(void);
