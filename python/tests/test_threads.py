"""Runs threads.py in this interpreter, and in one without the GIL: LMC_FREE_THREADED names it, PYTHONPATH has the
package."""

import os
import subprocess
import sys

import pytest
import threads
from lmc_codec._arguments import count_threads


def test_threads(capsys):
    threads.main()
    assert "fine" in capsys.readouterr().out


def test_without_the_gil():
    interpreter = os.environ.get("LMC_FREE_THREADED")
    if not interpreter:
        pytest.skip("LMC_FREE_THREADED names no interpreter")
    done = subprocess.run([interpreter, threads.__file__], capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == "fine without the GIL", done.stderr


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="of Linux")
def test_default_is_what_the_process_may_use():
    program = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); from lmc_codec._arguments import count_threads as c; print(c(None), c(5))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "1 5\n"
    assert 1 <= count_threads(None) <= min(16, len(os.sched_getaffinity(0)))
