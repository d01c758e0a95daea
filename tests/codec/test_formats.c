/* formats/: all short patterns compared with a slow definition; their time; characters; numbers in
 * rules; refused calls. patterns.txt has examples, which the tests of the command and of
 * Python run. */
#include "t.h"
#include "../../formats/pattern.h"

/* As in a locale where numbers have a ','. */
#include <locale.h>
static struct lconv *localeconv_of_commas(void)
{
    static struct lconv commas;
    static char comma[] = ",";
    commas.decimal_point = comma;
    return &commas;
}

static double strtod_of_commas(const char *text, char **end)
{
    static char plain[128];
    const size_t size = strlen(text) < sizeof plain ? strlen(text) : sizeof plain - 1;
    double found;
    char *plain_end;
    size_t i;
    for (i = 0; i < size; i++) plain[i] = text[i] == ',' ? '.' : text[i] == '.' ? 'x' : text[i];
    plain[size] = 0;
    found = strtod(plain, &plain_end);
    *end = (char *)text + (plain_end - plain);
    return found;
}

/* This program compiles these files into itself. */
#define localeconv localeconv_of_commas
#define strtod strtod_of_commas
#include "../../formats/pattern.c"
#include "../../formats/policy.c"
#include "../../formats/printable.c"
#include "../../formats/refused.c"

/* -- the definition: a pattern of ASCII is a list of sets of characters and stars -- */

#define MOST 8

typedef struct token {
    int is_star;
    unsigned char has[128];
} token;

/* The characters of a set at s. Returns the bytes used, with the ']'; 0: it is an error.
 */
static size_t define_set(token *t, const char *s)
{
    size_t i = 0, first, end;
    int is_inverse = 0;
    if (s[i] == '^') return 0;
    if (s[i] == '!') is_inverse = 1, i++;
    first = i;
    for (end = first; s[end] != 0 && (s[end] != ']' || end == first);) end++;
    if (s[end] == 0) return 0;
    while (i < end) {
        int c = s[i], last = c;
        if (c == '\\' || (c == '[' && strchr(":.=", s[i + 1]) != NULL)) return 0;
        if (c == '-' && i != first && i != end - 1) return 0;
        if (c != '-' && i + 2 < end && s[i + 1] == '-') {
            last = s[i + 2];
            if (last < c || last == '\\' || last == '-' || last == '[') return 0;
            i += 2;
        }
        for (; c <= last; c++) t->has[c] = 1;
        i++;
    }
    for (i = 0; is_inverse && i < 128; i++) t->has[i] = !t->has[i];
    return end + 1;
}

/* The number of tokens; -1: it is an error. */
static int define(token *list, const char *s)
{
    int n = 0;
    for (; *s != 0; n++) {
        token *t = &list[n];
        memset(t, 0, sizeof *t);
        if (*s == '\\' || *s == '{') return -1;
        if (*s == '*') t->is_star = 1;
        else if (*s == '?') memset(t->has, 1, sizeof t->has);
        else if (*s == '[') {
            const size_t used = define_set(t, s + 1);
            if (used == 0) return -1;
            s += used;
        } else t->has[(unsigned char)*s] = 1;
        s++;
    }
    return n;
}

static int is_match(const token *t, int n, const char *name)
{
    if (n == 0) return *name == 0;
    if (t->is_star) return is_match(t + 1, n - 1, name) || (*name && is_match(t, n, name + 1));
    return *name && t->has[(unsigned char)*name] && is_match(t + 1, n - 1, name + 1);
}

/* -- all short ones -- */

/* The text of that number, in letters of the alphabet: "", "a", "b", "aa", ... */
static void spell(char *text, const char *alphabet, unsigned long number)
{
    const unsigned long n = (unsigned long)strlen(alphabet);
    size_t i = 0;
    for (; number != 0; number = (number - 1) / n) text[i++] = alphabet[(number - 1) % n];
    text[i] = 0;
}

static unsigned long count_texts(const char *alphabet, unsigned most)
{
    unsigned long n = 1, power = 1;
    while (most-- != 0) n += power *= (unsigned long)strlen(alphabet);
    return n;
}

static void test_all_short_ones(const char *alphabet, unsigned most, const char *letters)
{
    const unsigned long n_patterns = count_texts(alphabet, most), n_names = count_texts(letters, 3);
    unsigned long i, k, n_wrong = 0, n_faults = 0, n_matches = 0;
    for (i = 0; i < n_patterns; i++) {
        token list[MOST + 1];
        char pattern[MOST + 1], name[MOST + 1];
        int n;
        spell(pattern, alphabet, i);
        n = define(list, pattern);
        n_faults += n < 0;
        if ((find_pattern_fault(pattern, strlen(pattern)) != NULL) != (n < 0)) {
            t_note("%s", pattern);
            CHECK(!"as it is defined");
            n_wrong++;
        }
        for (k = 0; k < n_names; k++) {
            int want;
            char *slash;
            spell(name, letters, k);
            want = n >= 0 && is_match(list, n, name);
            n_matches += (unsigned long)want;
            if (match_pattern(pattern, strlen(pattern), NULL, name) != want) {
                t_note("%s: %s", pattern, name);
                CHECK(!"as it is defined");
                n_wrong++;
            }
            slash = strchr(name, '/');
            if (slash == NULL) continue;
            *slash = 0;
            if (slash == name) continue; /* no directory */
            if (match_pattern(pattern, strlen(pattern), name, slash + 1) != want) {
                t_note("%s: %s in %s", pattern, slash + 1, name);
                CHECK(!"as it is defined");
                n_wrong++;
            }
        }
    }
    CHECK(n_wrong == 0 && n_faults != 0 && n_matches != 0 && n_faults < n_patterns);
}

/* -- time, and characters -- */

static int matches(const char *pattern, const char *name)
{
    return match_pattern(pattern, strlen(pattern), NULL, name);
}

static void test_time(void)
{
    static char pattern[201], name[65536];
    size_t i;
    for (i = 0; i < 200; i++) pattern[i] = i % 2 ? 'a' : '*';
    memset(name, 'a', sizeof name - 1);
    CHECK(matches(pattern, name));
    pattern[199] = 'b'; /* a search for each star would practically not end */
    CHECK(!matches(pattern, name));
}

static void test_characters(void)
{
    CHECK(matches("?", "\xC3\xA9") && !matches("??", "\xC3\xA9"));
    CHECK(matches("[\xC3\xA0-\xC3\xBF]x", "\xC3\xA9x") && !matches("[!\xC3\xA9]", "\xC3\xA9"));
    CHECK(matches("?\xF0\x9F\x99\x82", "\xF0\x9F\x99\x82\xF0\x9F\x99\x82"));
    CHECK(matches("[a-\xF0\x9F\x99\x82]", "\xE2\x82\xAC"));
    /* bytes that are no UTF-8: one character each, equal to themselves, and to none of UTF-8 */
    CHECK(!matches("\xC3\x83", "\xC3") && !matches("\xC3", "\xC3\x83"));
    CHECK(matches("?\xFF", "\xFE\xFF") && !matches("\xC3", "\xC3\xA9"));
    CHECK(matches("[\x80-\xBF]", "\x9F") && !matches("[\x80-\xBF]", "\xC3\x9F"));
    CHECK(matches("??", "\xC0\xAF") && matches("???", "\xED\xA0\x80"));
    CHECK(matches("a*\xC3*", "ab\xC3") && matches("*\xC3\xA9", "\xC3\xA9"));
    CHECK(find_pattern_fault("[\xC3\xA9-\xC3\xA8]", 7) != NULL);
    CHECK(find_pattern_fault("ab[", 2) == NULL && match_pattern("ab[", 2, "", "ab"));
}

static void test_numbers(void)
{
    struct policy p;
    memset(&p, 0, sizeof p);
    CHECK(parse_rule(&p, "*=rel:0.015") == NULL && parse_rule(&p, "*=nmse:1.5e-2") == NULL);
    CHECK(p.n_rules == 2 && p.rules[0].bound == 0.015 && p.rules[1].bound == 0.015);
    CHECK(parse_rule(&p, "a,b,min=3K,max=18446744073709551615=auto:.5") == NULL);
    CHECK(p.n_rules == 3 && p.rules[2].glob_size == 3 && p.rules[2].min_size == 3072 &&
          p.rules[2].max_size == UINT64_MAX && p.rules[2].bound == 0.5);
    CHECK(parse_rule(&p, "a, b, min=3K,\tmax=3K, role=m=bits:8") == NULL);
    CHECK(p.n_rules != 0 && p.rules[p.n_rules - 1].glob_size == 4 &&
          p.rules[p.n_rules - 1].min_size == 3072 && p.rules[p.n_rules - 1].max_size == 3072 &&
          p.rules[p.n_rules - 1].roles == ROLE_BIT(ROLE_M));
    CHECK(parse_rule(&p, "*,min=3073,max=3K=bits:8") != NULL);
    CHECK(parse_rule(&p, "*,max=0,min=1=bits:8") != NULL);
    CHECK(parse_rule(&p, "*, size=3=bits:8") != NULL);
    CHECK(parse_rule(&p, "*=rel:0,015") != NULL);
    CHECK(parse_rule(&p, "*,min=18446744073709551616=bits:8") != NULL);
    CHECK(parse_rule(&p, "*,min=18014398509481984K=bits:8") != NULL);
    CHECK(parse_rule(&p, "*,min==bits:8") != NULL && parse_rule(&p, "*,min=K=bits:8") != NULL);
    CHECK(parse_policy_line(&p, " \t# nothing") == NULL && parse_policy_line(&p, "") == NULL);
    CHECK(parse_policy_line(&p, "default  block=64K # of elements") == NULL && p.log2_block == 16);
    free_policy(&p);
}

/* What no file system may answer without failing: the data are not on the disk, or the name is not
 * there. And what is one only for some calls. */
static void test_refusals(void)
{
    static const int failures[] = {0, ENOSPC, ENOMEM, EFBIG, EINTR, EMFILE, EEXIST, ENAMETOOLONG};
    int call;
    size_t i;
    for (call = 0; call < CALL_COUNT; call++) {
        CHECK(is_refused((enum file_call)call, ENOSYS) && is_refused((enum file_call)call, EINVAL));
        for (i = 0; i < sizeof failures / sizeof *failures; i++)
            CHECK(!is_refused((enum file_call)call, failures[i]));
        CHECK(is_refused((enum file_call)call, EIO) == (call == CALL_LOCK));
        CHECK(is_refused((enum file_call)call, EROFS) == (call == CALL_SYNC_DIRECTORY));
    }
    CHECK(!is_refused(CALL_LOCK, EACCES) && !is_refused(CALL_LOCK, EAGAIN)); /* somebody has it */
    CHECK(!is_refused(CALL_SYNC, EBADF) && is_refused(CALL_SYNC_DIRECTORY, EBADF));
    CHECK(find_file_call("sync") == CALL_SYNC && find_file_call("rename") == CALL_RENAME);
    CHECK(find_file_call("sync_directory") == CALL_SYNC_DIRECTORY);
    CHECK(find_file_call("") == CALL_COUNT && find_file_call("syn") == CALL_COUNT);
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    test_all_short_ones("ab*?[]!-", t_brief ? 4 : t_quick ? 5 : 6, "ab/");
    test_all_short_ones("a[]!-^:\\{", t_brief ? 4 : t_quick ? 5 : 6, "]-^");
    test_time();
    test_characters();
    test_numbers();
    test_refusals();
    return t_end();
}
