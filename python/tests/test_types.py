"""What type checkers tell a user: mypy --strict on a program that uses the package."""

import os
import re
import subprocess
import sys
from pathlib import Path

import lmc_codec
import pytest

PROGRAM = """
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
import lmc_codec
import lmc_codec.numpy
import lmc_codec.torch

a = np.zeros(3, np.float32)

# right
data: bytearray = lmc_codec.compress(a, level="max")
size: int = lmc_codec.compress(a, out=bytearray(9999), level=-1)
x: NDArray[Any] = lmc_codec.decompress(data, framework="numpy")
t: torch.Tensor = lmc_codec.decompress(data, framework="pt", device="cuda")
b: bytearray = lmc_codec.decompress(data, framework="bytes")
same: NDArray[np.float32] = lmc_codec.decompress(data, out=a)
arrays: dict[str, NDArray[Any]] = lmc_codec.numpy.load_file("x.lmc", backend="pread")
tensors: dict[str, torch.Tensor] = lmc_codec.torch.load_file("x.lmc")
with lmc_codec.open("x.lmc", framework="torch") as r:
    u: torch.Tensor = r.get("w", framework="torch")
    v: NDArray[Any] = r.get("w", framework="np")
    w: NDArray[np.float32] = r.get("w", out=a)


def show(done: int, total: int | None) -> None:
    print(done, total)


lmc_codec.numpy.save_file({"a": a}, "x.lmc", level="archive", progress=show)

# wrong
lmc_codec.Writer("x.lmc", level="bogus")  # arg-type
lmc_codec.compress(a, level="bogus")  # call-overload
lmc_codec.decompress(data, framework="nump")  # call-overload
lmc_codec.safe_open("x.lmc", "nump")  # arg-type
lmc_codec.open("x.lmc", framework="tf")  # arg-type
lmc_codec.numpy.load_file("x.lmc", backend="nope")  # arg-type
lmc_codec.torch.save_file({}, "x.lmc", level="most")  # arg-type
lmc_codec.Writer("x.lmc", progress=lambda done: None)  # arg-type misc
wrong: torch.Tensor = lmc_codec.decompress(data, framework="numpy")  # assignment
wrong_too: bytes = lmc_codec.numpy.load_file("x.lmc")["a"]  # assignment
with lmc_codec.open("x.lmc") as r:
    r.get_slice("w", framework="nump")  # arg-type
    no: int = r.get("w", framework="bytes")  # assignment
"""


def test_a_users_program(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM)
    package = Path(lmc_codec.__file__).parents[1]
    environment = dict(os.environ)
    if package.name != "site-packages":  # not installed
        environment["MYPYPATH"] = str(package)
    cache = environment.get("MYPY_CACHE_DIR", str(tmp_path / "cache"))  # half a minute goes into the types of torch
    command = [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.11", "--no-error-summary", "--cache-dir", cache, "program.py"]
    said = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    found: dict[int, set[str]] = {}
    for line in said.stdout.splitlines():
        row = re.fullmatch(r"program\.py:(\d+): (error|note): .*?(?:  \[([a-z-]+)\])?", line)
        assert row, said.stdout + said.stderr
        if row[2] == "error":
            found.setdefault(int(row[1]), set()).add(row[3])
    wanted = {i: set(line.partition("  # ")[2].split()) for i, line in enumerate(PROGRAM.splitlines(), 1) if "  # " in line}
    assert found.keys() == wanted.keys() and all(found[i] <= wanted[i] for i in wanted), said.stdout
