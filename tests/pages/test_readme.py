#!/usr/bin/env python3
"""Are README.md and docs/start/ right? The commands of their ```console blocks print what they say, and the README's ```c file compiles
and runs.

Usage: test_readme.py [COMPILER...]     default: gcc, and clang where it is; needs build/lmc. The last line is "N passed, N failed".
SPDX-License-Identifier: MIT
"""
import os, re, shutil, subprocess, sys, tempfile, unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMPILERS = sys.argv[1:] or [c for c in ("gcc", "clang", *("clang-%d" % n for n in range(30, 13, -1))) if shutil.which(c)][:2]


PAGES = {"README.md": 9, "docs/start/keep.md": 5}  # and how many commands they have at least


def blocks(language, page="README.md"):
    with open(os.path.join(ROOT, page), encoding="utf-8") as f:
        return re.findall(r"^```%s\n(.*?)^```$" % language, f.read(), re.M | re.S)


def commands(page):
    """(command, what it prints). A command begins with "$ ", and includes its here document."""
    result = []
    for line in "".join(blocks("console", page)).splitlines():
        if line.startswith("$ "):
            result.append([line[2:], ""])
        elif "<<'END'" in result[-1][0] and not result[-1][0].endswith("\nEND"):
            result[-1][0] += "\n" + line
        else:
            result[-1][1] += line + "\n"
    return result


class Readme(unittest.TestCase):
    def test_beginnings_are_short(self):
        pages = os.listdir(os.path.join(ROOT, "docs", "start"))
        self.assertEqual(len(pages), 4)
        for page in pages:
            with open(os.path.join(ROOT, "docs", "start", page), encoding="utf-8") as f:
                self.assertLessEqual(len(f.read().split()), 300, page)

    def test_commands(self):
        """Runs all in one shell, which prints a mark after each command."""
        for page, n in PAGES.items():
            with self.subTest(page):
                self.run_page(page, n)

    def run_page(self, page, n):
        listed = commands(page)
        self.assertGreaterEqual(len(listed), n)
        mark = "--- next ---"
        script = "".join("%s\necho '%s'\n" % (command, mark) for command, _ in listed)
        with tempfile.TemporaryDirectory() as directory:
            run = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", script], cwd=ROOT, env=dict(os.environ, TMPDIR=directory), capture_output=True, text=True)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        for (command, expected), printed in zip(listed, run.stdout.split(mark + "\n")):
            self.assertEqual(printed, expected, command)

    def test_c(self):
        (text,) = blocks("c")
        self.assertTrue(text.startswith("/* main.c: cc -O2 main.c */"))
        self.assertIn("lmc_decompress(", text)
        self.assertLessEqual(text.count("\n"), 20)
        for compiler in COMPILERS:
            with tempfile.TemporaryDirectory() as directory:
                with open(os.path.join(directory, "main.c"), "w", encoding="utf-8") as f:
                    f.write(text)
                flags = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", ROOT]
                subprocess.run([compiler, *flags, "main.c", "-o", "example"], cwd=directory, check=True)
                subprocess.run(["./example"], cwd=directory, check=True)


if __name__ == "__main__":
    result = unittest.TextTestRunner(stream=sys.stdout).run(unittest.defaultTestLoader.loadTestsFromTestCase(Readme))
    failed = len(result.failures) + len(result.errors)
    print("%d passed, %d failed" % (result.testsRun - failed, failed))
    sys.exit(failed > 0)
