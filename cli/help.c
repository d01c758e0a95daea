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

/* The line of a topic's name; "": the overview. At NULL: there is none. */
static const char *const *find_topic(const char *name)
{
    const char *const *line = help_lines;
    while (*name && *line && !(begins_topic(*line) && strcmp(*line + MARK_SIZE, name) == 0)) line++;
    return line;
}

/* A topic begins with "    lmc WORDS ..." for each form; lines below it that belong to it are
 * indented more. */
void say_usage(enum verb verb)
{
    const struct verb_row *const v = &verbs[verb];
    char *form = copy_text("    lmc ");
    append_text(&form, "%s%s%s", v->word, v->command ? " DIR " : "", v->command ? v->command : "");
    const size_t size = strlen(form);
    for (const char *const *line = find_topic(v->topic) + 2; **line; line++) {
        if (strncmp(*line, form, size) != 0 || ((*line)[size] && (*line)[size] != ' ')) continue;
        char *text = copy_text(*line + 4);
        for (; strncmp(line[1], "        ", 8) == 0; line++)
            append_text(&text, " %s", line[1] + strspn(line[1], " "));
        say(NULL, "usage: %s", text);
        free(text);
    }
    free(form);
}

int print_help(const char *name)
{
    const char *const *line = find_topic(name);
    if (!*line) return fail_topic(name);
    if (*name) line += 2; /* skips the name, and the empty line below it */
    for (; *line && !begins_topic(*line); line++)
        if (**line || (line[1] && !begins_topic(line[1]))) puts(*line);
    return CODE_OK;
}
