/* policy.c - the rules of --quant and --policy: reading them, and their quantisers (quantize.h)
 * SPDX-License-Identifier: MIT */
#include "quantize.h"

#include "../sys/io.h"

#define MAX_POLICY_SIZE ((size_t)1 << 20)

/* where: "--quant", or file and line. fault: what is wrong, or NULL */
static int report_fault(const char *where, const char *text, const char *fault)
{
    if (!fault) return CODE_OK;
    return fail(CODE_USAGE, where, "'%.200s': %s; see 'lmc help quant'", text, fault);
}

int add_rule(struct policy *p, const char *text)
{
    return report_fault("--quant", text, parse_rule(p, text));
}

/* Cuts the text, which ends with a zero, into lines, and adds them. path: for messages */
static int parse_policy(struct policy *p, char *text, const char *path)
{
    char *where = (char *)resize(NULL, strlen(path) + 32, 1);
    size_t number = 0;
    int code = CODE_OK;
    for (char *line = text, *next; line && code == CODE_OK; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        sprintf(where, "%s:%lu", path, (unsigned long)++number);
        code = report_fault(where, line, parse_policy_line(p, line));
    }
    free(where);
    return code;
}

int read_policy(struct policy *p, const char *path)
{
    size_t size;
    int fd = open(path, O_RDONLY | O_CLOEXEC), error, code = CODE_OK;
    if (fd < 0) return fail_errno(path, errno, "cannot open it");
    char *text = (char *)resize(NULL, MAX_POLICY_SIZE + 1, 1);
    error = read_full(fd, text, MAX_POLICY_SIZE, &size);
    close(fd);
    if (error) code = fail_errno(path, error, "cannot read it");
    else if (size == MAX_POLICY_SIZE || memchr(text, 0, size))
        code = fail(CODE_USAGE, path,
                    "is not a policy, which is a text with rules; see 'lmc help quant'");
    text[size] = 0;
    if (code == CODE_OK) code = parse_policy(p, text, path);
    free(text);
    return code;
}
