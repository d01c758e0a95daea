/* SPDX-License-Identifier: MIT */
#include "args.h"

/* The lines of help.txt, up to NULL; help.sed makes this array when lmc is built. A topic begins
 * with "# NAME"; the overview is before the first topic. */
extern const char *const help_lines[];

#define MARK "# "
#define MARK_SIZE (sizeof MARK - 1)

static int begins_topic(const char *line) { return strncmp(line, MARK, MARK_SIZE) == 0; }

/* "no help on 'x'; topics: options, compress, ..." */
static int fail_topic(const char *name)
{
    char *topics = copy_text("");
    for (const char *const *line = help_lines; *line; line++)
        if (begins_topic(*line))
            append_text(&topics, "%s%s", *topics ? ", " : "", *line + MARK_SIZE);
    const int code = fail(CODE_USAGE, NULL, "no help on '%s'; topics: %s", name, topics);
    free(topics);
    return code;
}

int print_help(const char *name)
{
    const char *const *line = help_lines;
    while (*name && *line && !(begins_topic(*line) && strcmp(*line + MARK_SIZE, name) == 0)) line++;
    if (!*line) return fail_topic(name);
    if (*name) line += 2; /* skips the name, and the empty line below it */
    for (; *line && !begins_topic(*line); line++)
        if (**line || (line[1] && !begins_topic(line[1]))) puts(*line);
    return CODE_OK;
}
