#!/usr/bin/env python3
"""Do the programs of docs/api.md and docs/start/embed.md compile without a warning, as C99 and C++11, and run?

Usage: test_recipes_c.py [COMPILER...]     default: gcc, and clang where it is. The last line is "N passed, N failed".
SPDX-License-Identifier: MIT
"""
import os, re, shutil, subprocess, sys, tempfile, unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CLANG = next((c for c in ("clang", *("clang-%d" % n for n in range(30, 13, -1))) if shutil.which(c)), None)
COMPILERS = sys.argv[1:] or [c for c in ("gcc", CLANG) if c]
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror", "-I", ROOT, "-I", os.path.join(ROOT, "include")]
PLUS = {"gcc": "g++"}


def programs():
    """{name: text}: blocks of C or C++ whose first line has their name."""
    blocks = []
    for page in ("api.md", "start/embed.md"):
        with open(os.path.join(ROOT, "docs", page), encoding="utf-8") as f:
            blocks += re.findall(r"^```c(?:pp)?\n(.*?)^```$", f.read(), re.M | re.S)
    texts = {re.match(r"/[*/] (\w+\.c(?:pp)?)\b", b)[1]: b for b in blocks}
    assert len(texts) == len(blocks), "two programs have one name"
    return texts


class Recipes(unittest.TestCase):
    def test_all(self):
        texts = programs()
        self.assertGreaterEqual(len(texts), 10)
        for compiler in COMPILERS:
            with tempfile.TemporaryDirectory() as directory:
                library = os.path.join(directory, "lmc.o")
                with open(os.path.join(directory, "lmc.c"), "w", encoding="utf-8") as f:
                    f.write('#define LMC_IMPLEMENTATION\n#include "lmc.h"\n#include "lmc_salvage.h"\n#include "lmc_extra.h"\n')
                subprocess.run([compiler, "-std=c99", "-O1", "-DLMC_PTHREADS", "-DLMC_POSIX", "-D_DEFAULT_SOURCE", *WARNINGS, "-c", "lmc.c", "-o", library], cwd=directory, check=True)
                for name, text in texts.items():
                    with open(os.path.join(directory, name), "w", encoding="utf-8") as f:
                        f.write(text)
                    program = "./" + name.split(".")[0]
                    whole = "#define LMC_IMPLEMENTATION" in text  # needs nothing but lmc.h
                    macros = [] if whole else ["-DLMC_PTHREADS", "-DLMC_POSIX"]
                    plus = PLUS.get(compiler, compiler.replace("clang", "clang++"))
                    builds = [[compiler, "-std=c99"], [plus, "-std=c++11", "-x", "c++"]][name.endswith(".cpp"):]
                    for build in builds:
                        with self.subTest(name=name, build=build):
                            subprocess.run([*build, "-O1", *macros, *WARNINGS, name, *(["-x", "none"] if "c++" in build else []), *([] if whole else [library]), "-o", program, "-pthread", "-lm"], cwd=directory, check=True)
                            run = subprocess.run([program], cwd=directory, capture_output=True, text=True)
                            self.assertEqual((run.returncode, run.stderr), (0, ""), name)


if __name__ == "__main__":
    result = unittest.TextTestRunner(stream=sys.stdout).run(unittest.defaultTestLoader.loadTestsFromTestCase(Recipes))
    failed = len(result.failures) + len(result.errors)
    print("%d passed, %d failed" % (max(0, len(programs()) - failed), failed))
    sys.exit(failed > 0)
