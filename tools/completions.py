#!/usr/bin/env python3
"""Writes what the completions of cli/completions/ know of options, verbs and topics.

  tools/completions.py           writes the three files
  tools/completions.py --check   fails if they are not what this script makes

Options are those of cli/option_table.c, with the verbs that take them; what they are for, and the
topics, is in cli/help.txt. In each file the lines between "made by tools/completions.py" and
"end of what is made" are replaced; the rest is written by hand.
"""

import os
import re
import sys
from typing import NamedTuple

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CLI = os.path.join(TOP, "cli")
BY_OPTION = ("COMPRESS", "RESTORE", "TEST", "LIST")  # verbs that options select

class Option(NamedTuple):
    letter: str  # "" if it has none
    name: str
    kind: str
    verbs: frozenset  # names of enum verb
    field: str  # what it sets; "" if a function takes it
    wants: str
    help: str  # never empty

    @property
    def value(self):
        """What its value is: "" (it has none), "file", "directory", "dtype", "member", "text"."""
        if self.kind in ("MODE", "FLAG", "ACT"):
            return ""
        if "dtype" in self.wants:
            return "dtype"
        if "path of a file in" in self.wants:
            return "member"
        if self.wants.startswith("a directory"):
            return "directory"
        return "file" if re.search("file|output", self.wants) and self.kind != "COUNT" else "text"

    @property
    def words(self):
        return ["-" + self.letter] * bool(self.letter) + ["--" + self.name]


def read(name):
    with open(os.path.join(CLI, name), encoding="utf-8") as file:
        return file.read()


def aliases():
    """-> {word: name in enum verb}; None: the word is no verb"""
    found = re.findall(r'\{"(\w+)", VERB_(\w+)\}', read("args.c"))
    return {**dict(found), "version": None, "help": None}


def dtypes():
    names = re.findall(r'\{"(\w+)", \d', read("../src/codec/dtypes.h"))
    return " ".join(names[1:])  # without AUTO


def read_masks(header):
    """-> the verbs of each macro of args.h, by its name"""
    verbs = re.findall(r"VERB_(\w+),", header[header.index("enum verb {") :])
    masks = {"V": {verb: frozenset([verb]) for verb in verbs}, "ALL": frozenset(verbs)}
    masks["PLAIN"] = frozenset(verbs[: verbs.index("SERIES_ADD")])
    for name, text in re.findall(
        r"^#define ([A-Z]+)\s+(?:\\\n\s*)?(\(.*\)|[A-Z].*)$", header, re.M
    ):
        if name not in masks and ("V(" in text or name == "SERIES"):
            masks[name] = evaluate(text, masks)
    return masks


def evaluate(text, masks):
    """The verbs of an expression of masks in C."""
    text = re.sub(r"V\((\w+)\)", r"V['\1']", text).replace("1u", "0").replace("& ~", "- ")
    return eval(text, {"__builtins__": {}}, masks)  # the operators of sets are those of masks


def read_help(text):
    """-> {option: what it is for}, from the list at the top"""
    found, names = {}, []
    top = text[text.index("\n  -z,") : text.index("\nThe FILE '-'")]
    for line in top.splitlines():
        option, says = line[:25].rstrip(), line[25:]
        if line[:25].strip().startswith("-"):
            option = line if len(line) > 25 and line[24] != " " else option
            says = "" if option == line else says
            names = re.findall(r"--([a-z0-9-]+)", option)
            for name in names:
                found[name] = ""
        for name in names:
            found[name] = (found[name] + " " + says.strip()).strip()
        for name in re.findall(r"\(also: --([a-z-]+)\)", line):
            found[name] = "the same"
    return {
        name: re.split(r"[;(]|, when|: see", says)[0].strip(" ,").replace("'", "")
        for name, says in found.items()
    }


def read_options():
    masks, helps = read_masks(read("args.h")), read_help(read("help.txt"))
    table = read("option_table.c")
    table = table[
        table.index("const struct option options[]") : table.index("const size_t n_options")
    ]
    row = r"\{(0|'.'), \"([^\"]*)\", ([A-Z]+),\s*([^,]+),\s*(0|AT\([\w.]+\)),"
    row += r"[^,]+,\s*(\w+),\s*(NULL|\"(?:[^\"\\]|\\.)*\")\}"
    rows = re.findall(row, table)
    assert len(rows) == len(re.findall(r"^    \{", table, re.M)), "a row is not understood"
    options = []
    for letter, name, kind, verbs, field, _, wants in rows:
        verbs = evaluate(" ".join(verbs.split()), masks)
        wants = "" if wants == "NULL" else wants.strip('"')
        says = helps.get(name) or wants or name.replace("-", " ")
        options.append(Option(letter.strip("'0"), name, kind, verbs, field.strip("0"), wants, says))
    # of rows with one name or letter, what most verbs take
    first = sorted(options, key=lambda o: -len(o.verbs))
    names, letters = ({getattr(o, key): o for o in reversed(first)} for key in ("name", "letter"))
    return [
        o if o is letters[o.letter] else o._replace(letter="")
        for o in options
        if o is names[o.name]
    ]


def topics():
    return " ".join(re.findall(r"^# (\w+)$", read("help.txt"), re.M))


def verbs_of_table():
    """-> (verbs with a word, as {word: name in enum verb}; the commands of lmc series)"""
    header, table = read("args.h"), read("option_table.c")
    enum = re.findall(r"VERB_(\w+),", header[header.index("enum verb {") :])
    rows = re.findall(
        r"^    \{(NULL|\"\w+\"), (NULL|\"\w+\"), ", table[table.index("verbs[N_VERBS]") :], re.M
    )
    words = {
        word.strip('"'): verb
        for (word, command), verb in zip(rows, enum)
        if word != "NULL" and command == "NULL"
    }
    return words, [command.strip('"') for word, command in rows if word == '"series"']


def has(option, verb):
    return (
        any(v.startswith("SERIES") for v in option.verbs)
        if verb == "series"
        else verb in option.verbs
    )


def for_bash(options):
    words, commands = verbs_of_table()
    yield "    local verbs='%s'" % " ".join([*words, "series", *aliases()])
    yield "    local commands='%s'" % " ".join(commands)
    yield "    local topics='%s'" % topics()
    yield "    local dtypes='%s'" % dtypes()
    for value in ("file", "directory", "text"):  # with a space on both sides of each
        yield "    local takes_%s=' %s '" % (
            value,
            " ".join(dict.fromkeys(w for o in options if o.value == value for w in o.words)),
        )
    yield "    local -A takes=("
    for word, verb in {
        "": "",
        **words,
        "series": "series",
        **{w: v for w, v in aliases().items() if v},
    }.items():
        if word:
            names = [o.name for o in options if o.kind != "MODE" and has(o, verb)]
        else:
            names = [o.name for o in options if not o.verbs.isdisjoint(BY_OPTION)]
        yield "        [%s]='%s'" % (word or "none", " ".join("--" + name for name in names))
    yield "    )"


def for_zsh(options):
    values = {
        "": "",
        "file": ":file:_files",
        "directory": ":directory:_files -/",
        "dtype": ":dtype:(%s)" % dtypes(),
        "member": ":path:",
        "text": ":value:",
    }
    words, commands = verbs_of_table()
    yield "commands=(%s)" % " ".join(commands)
    yield "common=("
    for o in options:
        same = [
            w
            for x in options
            for w in x.words
            if x.name == o.name or (o.kind == x.kind == "FLAG" and o.field and o.field == x.field)
        ]
        says = o.help.replace("'", "").replace("[", "").replace("]", "").replace(":", " -")
        if o.value or o.name == "verbose":
            group = "*"
        else:
            group = "(%s)" % " ".join(dict.fromkeys(same))
        ends = "=" if o.value else ""
        letter = (
            "{-%s%s,--%s%s}" % (o.letter, "+" if o.value else "", o.name, ends)
            if o.letter
            else "--%s%s" % (o.name, ends)
        )
        yield "  '%s'%s'[%s]%s'" % (group, letter, says, values[o.value])
    yield ")"


def for_fish(options):
    words, commands = verbs_of_table()
    values = {
        "": "",
        "file": " -r",
        "directory": " -x -a '(__fish_complete_directories)'",
        "dtype": " -x -a '%s'" % dtypes(),
        "member": " -x",
        "text": " -x",
    }
    yield "set -l verbs %s" % " ".join([*words, "series", *aliases()])
    yield "set -l commands %s" % " ".join(commands)
    yield "set -l topics %s" % topics()
    yield "for c in lmc unlmc lmccat"
    for o in options:
        where = ""
        if o.verbs.isdisjoint(BY_OPTION):
            where = ' -n "__fish_seen_subcommand_from %s"' % " ".join(
                w for w, v in {**words, "series": "series"}.items() if has(o, v)
            )
        short = " -s " + o.letter if o.letter else ""
        yield "    complete -c $c%s%s -l %s%s -d '%s'" % (
            where,
            short,
            o.name,
            values[o.value],
            o.help.replace("'", ""),
        )
    yield "end"


def make(name, lines):
    """The file with its lines made anew."""
    text = read(os.path.join("completions", name))
    found = re.fullmatch(
        r"(?s)(.*?# made by tools/completions\.py).*?(\n *# end of what is made\n.*)", text
    )
    if not found:
        sys.exit("cli/completions/%s: nothing in it says what is made" % name)
    return text, "\n".join([found[1], *lines]) + found[2]


def main():
    options, wrong = read_options(), []
    for name, lines in (("lmc.bash", for_bash), ("_lmc", for_zsh), ("lmc.fish", for_fish)):
        old, new = make(name, lines(options))
        if old == new:
            continue
        wrong.append(name)
        if "--check" not in sys.argv:
            with open(os.path.join(CLI, "completions", name), "w", encoding="utf-8") as file:
                file.write(new)
    if "--check" in sys.argv and wrong:
        sys.exit("cli/completions/: %s: run tools/completions.py, and commit" % ", ".join(wrong))
    print("%d options in three completions" % len(options))


if __name__ == "__main__":
    main()
