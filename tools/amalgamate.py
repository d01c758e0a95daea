#!/usr/bin/env python3
"""Joins src/ to lmc.h, the one file that users include, and to the headers of include/.

  tools/amalgamate.py           writes them
  tools/amalgamate.py --check   fails if one that is committed is not what src/ makes
  tools/amalgamate.py --parts   writes only those that are not: the parts of lmc.h
  tools/amalgamate.py --cut FILE NAME...
                                writes lmc.h to FILE, without the parts that are left out if the
                                macros NAME are defined

src/lmc.h.in is the frame. Each #include "FILE" of a file below src/ is replaced by that file, once,
at its first occurrence, so that every file comes after the files that it includes. If the frame
includes a file within a separate #if (LMC_NO_SNAPSHOT), all files that this file includes must come
before the #if: otherwise they would be within it. Files keep their text, except their #include
"..." lines and #pragma once. @CONTENTS@ becomes the list of the files, layer by layer, and
@VERSION@ that of src/api.h.

Adjacent parts with the same #if are joined under one #if.

src/lmc_salvage.h.in, lmc_extra.h.in and lmc_cuda.h.in are frames of headers that are included after
lmc.h. In these, "@TEXT FILE@" becomes the lines of that file, each as a literal. lmc_decode.h and
lmc_read.h, which are parts of lmc.h, have frames with only a head, and @CUT NAME...@, which becomes
the rest of lmc.h, without what is left out if these macros are defined. They are in releases, not
in git, as a diff of lmc.h says all that a diff of them would.
"""
import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SRC = os.path.join(TOP, "src")
PARTS = ["lmc_decode.h", "lmc_read.h"]
INCLUDE = re.compile(r'#include "(.+)"$')
TEXT = re.compile(r' *"@TEXT (.+)@",$', re.M)


def read(name):
    with open(os.path.join(SRC, name), encoding="ascii") as f:
        return f.read()


def expand(name, done):
    """The lines of a file, after those of the files that it includes."""
    out, own, depth = [], [], 0
    for line in read(name).split("\n"):
        include = INCLUDE.match(line)
        depth += line.startswith("#if") - line.startswith("#endif")
        if not include or include[1] == "lmc.h":
            own.append(line)
        elif name.endswith(".in"):  # the frame's own lines keep their places
            n_done = len(done)
            own += expand(include[1], done)
            pulled = [f for f in done[n_done:] if f != include[1]]
            if pulled and depth > 1:  # 1: within #ifdef LMC_IMPLEMENTATION
                sys.exit("src/lmc.h.in: %s stands in an #if, and so would %s, which it includes"
                         % (include[1], pulled[0]))
        elif include[1] not in done:
            out += expand(include[1], done)
    if name.endswith(".in"):
        return own
    if name in done:
        return []
    done.append(name)
    text = "\n".join(line for line in own if line != "#pragma once").strip("\n")
    return out + ["/* == %s %s */" % (name, "=" * (90 - len(name))), ""] + text.split("\n") + [""]


BANNER = re.compile(r"/\* == (\S+) =+ \*/\n")


def contents(text):
    """' *   layer     file file ...' for each folder, in the order of the files."""
    layers = {}
    for name in BANNER.findall(text):
        layer, _, file = name.rpartition("/")
        layers.setdefault(layer or "interface", []).append(file.removesuffix(".h"))
    lines = []
    for layer, files in layers.items():
        line = " *   %-10s" % layer
        for file in files:
            if len(line) + 1 + len(file) > 98:
                lines.append(line)
                line = " *   %-10s" % ""
            line += " " + file
        lines.append(line)
    return "\n".join(lines)


CONDITION = re.compile(r"#(ifdef|ifndef|if|elif|else|endif)\b(.*)")


def evaluate(match, defined):
    """True or False if `defined` decides the condition of an #if, #ifdef, #ifndef or #elif;
    else None."""
    if match[1] in ("ifdef", "ifndef"):
        return (match[1] == "ifdef") if match[2].split()[0] in defined else None
    terms = re.findall(r"(!?)defined\((\w+)\)", match[2])
    rest = re.sub(r"!?defined\(\w+\)|&&|\|\|", "", match[2]).strip()
    values = [not no if name in defined else None for no, name in terms] + [None] * bool(rest)
    if "||" not in match[2]:
        return False if False in values else None if None in values else True
    if "&&" not in match[2]:
        return True if True in values else None if None in values else False
    return None


def cut(text, defined):
    """The text without the parts that a preprocessor leaves out if the names of `defined` are
    macros. Conditions on other names stay. Files of which only comments remain are removed, and so
    are the lines that explain these macros."""
    out, lines = [], iter(text.split("\n"))
    # each enclosing #if: is this part kept, was an earlier part certainly kept, does #endif stay
    stack = []
    for line in lines:
        whole = [line]
        while whole[-1].endswith("\\"):
            whole.append(next(lines))
        match = CONDITION.match(" ".join(w.rstrip("\\") for w in whole))
        word = match[1] if match else ""
        if word == "endif":
            if not stack.pop()[2]:
                continue
        elif word in ("else", "elif") and not stack[-1][2]:
            # all parts so far were certainly left out or certainly kept
            value = not stack[-1][1] and (word == "else" or evaluate(match, defined))
            stack[-1] = [value is not False, value is True or stack[-1][1], value is None]
            if value is not None:
                continue
            whole[0] = whole[0].replace("#elif", "#if", 1)
        elif word.startswith("if"):
            value = evaluate(match, defined)
            stack.append([value is not False, value is True, value is None])
            if value is not None:
                continue
        if all(kept for kept, _, _ in stack):
            for name in defined:  # a || b is b if a is false
                whole[0] = re.sub(r"!defined\(%s\) \|\| " % name, "", whole[0])
                match = match and CONDITION.match(whole[0])
            if match and set(defined) & set(re.findall(r"\w+", match[2].split("/*")[0])):
                sys.exit("tools/amalgamate.py cannot cut " + whole[0])
            out += whole
    text = "\n".join(out)
    files = re.split(r"(?=/\* == \S+ =+ \*/\n)", text)
    text = "".join(f for f in files if re.sub(r"/\*.*?\*/", "", f, flags=re.S).strip())
    text = re.sub(r"(?<=\n) \*   (%s) .*\n" % "|".join(defined or ["^"]), "", text)
    return re.sub(r"\n{3,}", "\n\n", text)


def join_conditions(text):
    """The text without each #endif and following same #if that have only comments between them."""
    lines, ends, drop, is_comment = text.split("\n"), [], set(), False
    last = None  # if the last line of code is an #endif: its number, and the condition that it ends
    for number, line in enumerate(lines):
        if is_comment or line.startswith("/*") or not line:
            is_comment = (is_comment or line.startswith("/*")) and "*/" not in line
            continue
        condition = line.split(" /*")[0]
        if line.startswith("#if"):
            if last and last[1] == condition:
                drop |= {last[0], number}
            ends.append(condition)
        elif line.startswith("#el"):
            ends[-1] = None
        last = (number, ends.pop()) if line.startswith("#endif") else None
    return "\n".join(line for number, line in enumerate(lines) if number not in drop)


def quote(text):
    """The lines of a text, each as a literal of C."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("??", "?\\?")
    return "\n".join('    "%s\\n",' % line for line in escaped.rstrip("\n").split("\n"))


def finish(text):
    text = TEXT.sub(lambda match: quote(read(match[1])), text)
    version = re.search(r'#define LMC_VERSION "(.*)"', read("api.h"))[1]
    return text.replace("@VERSION@", version).replace("@CONTENTS@", contents(text))


def join(frame, done):
    """A header, before finish(). done: the files that it must not contain; the files that it
    contains are added."""
    return re.sub(r"\n{3,}", "\n\n", join_conditions("\n".join(expand(frame, done))))


def amalgamate():
    """{path: text} of all headers."""
    done = []
    whole = join("lmc.h.in", done)
    headers = {"lmc.h": finish(whole)}
    for name in ("lmc_salvage.h", "lmc_extra.h", "lmc_cuda.h"):
        headers["include/" + name] = finish(join(name + ".in", list(done)))
    body = whole.split("\n */\n", 1)[1]
    for name in PARTS:
        head, names, _ = re.split(r"@CUT (.*)@\n", read(name + ".in"))
        guard = name.upper().replace(".", "_")
        text = head + re.sub(r"\bLMC_H\b", guard, cut(body, names.split()))
        headers["include/" + name] = finish(text)
    return headers


def write(path, text, is_part=False):
    """If the file has this text already, only its time is set, so that make takes it as new; that
    of a part stays. A compiler that runs at the same time sees the old file or the new one."""
    if os.path.exists(path):
        with open(path, encoding="ascii") as f:
            if f.read() == text:
                if not is_part:
                    os.utime(path)
                return
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    new = "%s.%d" % (path, os.getpid())
    with open(new, "w", encoding="ascii") as f:
        f.write(text)
    os.replace(new, path)


def main():
    if sys.argv[1:2] == ["--cut"] and len(sys.argv) > 3:
        write(sys.argv[2], finish(cut(join("lmc.h.in", []), sys.argv[3:])))
        return
    if sys.argv[1:] not in ([], ["--check"], ["--parts"]):
        sys.exit(__doc__)
    is_check = sys.argv[1:] == ["--check"]
    for name, text in amalgamate().items():
        path, is_part = os.path.join(TOP, name), os.path.basename(name) in PARTS
        if not sys.argv[1:] or (is_part and not is_check):
            write(path, text, is_part)
        elif is_check and not is_part:
            with open(path, encoding="ascii") as f:
                if f.read() != text:
                    sys.exit("%s is not what src/ makes: run tools/amalgamate.py" % name)


if __name__ == "__main__":
    main()
