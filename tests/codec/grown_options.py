#!/usr/bin/env python3
"""Makes the headers of a "1.1", in which every struct of options has grown by a pointer.

    grown_options.py DIRECTORY

DIRECTORY/lmc.h and DIRECTORY/include/ are those of this tree, but each struct lmc_..._options ends with a member `added`, and each
function that takes options returns LMC_ERR_LIMIT (or 0 if it returns a size) when that member is not NULL. In structs with reserved
words, one of these is a member `more`; readers set that of tensors to 7, and everything takes it. grown_options.c is
compiled with both."""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def replace(pattern, by, text):
    """With the number of places, so that nothing is left out in silence."""
    return re.subn(pattern, by, text, flags=re.S)


def main():
    out = sys.argv[1]
    os.makedirs(os.path.join(out, 'include'), exist_ok=True)
    structs, calls, words = set(), 0, 0
    options = r'\} (lmc_\w+_options|lmc_tensor_hints);'
    for name in ('lmc.h', 'include/lmc_extra.h', 'include/lmc_salvage.h'):
        with open(os.path.join(ROOT, name), encoding='utf-8') as f:
            text = f.read()
        structs |= set(re.findall(options, text))
        text, _ = replace(options, r'    const char *added;\n} \1;', text)
        text, n = replace(r'LMC__TRY\((LMC__TAKE_OPTIONS\(&([\w.]+), \w+, \w+\))\);', r'LMC__TRY(\1);\n    if (\2.added) return LMC_ERR_LIMIT;', text)
        calls += n
        text, n = replace(r'return given && (LMC__TAKE_OPTIONS\(o, \w+, given\) == LMC_OK)', r'return given && \1 && !o->added', text)
        calls += n
        # structs with reserved words: one of these becomes a member, which readers set and the library understands
        text, n = replace(r'uint64_t reserved\[(\d)\];', lambda m: f'uint64_t more; uint64_t reserved[{int(m[1]) - 1}];', text)
        words += n
        if name == 'lmc.h':
            text, n = replace(r'x->tensors\[x->n_tensors\] = t;', 't.more = 7;\n        x->tensors[x->n_tensors] = t;', text)
            assert n == 1
            text, n = replace(r'#define LMC_VERSION "1\.0\.\d+"', '#define LMC_VERSION "1.1.0"', text)
            assert n == 1
        # the macro itself names no struct; each of its uses has been changed
        assert len(re.findall(r'LMC__TAKE_OPTIONS\(', text)) == text.count('.added)') + text.count('!o->added') + (name == 'lmc.h'), name
        with open(os.path.join(out, name), 'w', encoding='utf-8') as f:
            f.write(text)
    with open(os.path.join(ROOT, 'tests', 'codec', 'grown_options.c'), encoding='utf-8') as f:
        tested = set(re.findall(r'\b(lmc_\w+_options|lmc_tensor_hints)\b', f.read()))
    if structs != tested:
        sys.exit(f'grown_options.c tests other structs than there are: {sorted(structs ^ tested)}')
    print(f'{len(structs)} structs, {calls} places where options are taken, {words} structs with reserved words')


main()
