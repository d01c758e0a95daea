"""Runs threads.py in this interpreter, and in one without the GIL: LMC_FREE_THREADED names it, PYTHONPATH has the
package."""

import os
import subprocess

import pytest
import threads


def test_threads(capsys):
    threads.main()
    assert "fine" in capsys.readouterr().out


def test_without_the_gil():
    interpreter = os.environ.get("LMC_FREE_THREADED")
    if not interpreter:
        pytest.skip("LMC_FREE_THREADED names no interpreter")
    done = subprocess.run([interpreter, threads.__file__], capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == "fine without the GIL", done.stderr
