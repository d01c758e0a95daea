# SPDX-License-Identifier: MIT
# Makes an array of the lines of help.txt, for help.c: sed -f help.sed help.txt >help_text.c
s/["\\]/\\&/g
s/.*/    "&",/
1i\
extern const char *const help_lines[];\
const char *const help_lines[] = {
$a\
    0};
