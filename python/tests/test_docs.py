"""Runs the Python blocks of README.md and of docs/python.md with docs/python-details.md, in order, as one program each; and an example."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import lmc_codec
import pytest


README = Path(__file__).parents[2] / "README.md"


def blocks_of(page):
    return re.findall(r"^```python\n(.*?)^```$", (Path(__file__).parents[2] / page).read_text(), re.DOTALL | re.MULTILINE)


def test_the_readme(tmp_path):
    (block,) = blocks_of("README.md")
    (installed,) = re.findall(r"^pip install ([^#\n]*)", README.read_text(), re.MULTILINE)
    needed = set(re.findall(r"^(?:import|from) (\w+)", block, re.MULTILINE))
    assert needed - {"lmc_codec"} <= set(installed.split())
    (tmp_path / "page.py").write_text(block + "assert torch.equal(rows, model.weight[100:200])\n")
    said = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    full, delta = ((tmp_path / name).stat().st_size for name in ("step-1.lmc", "step-2.lmc"))
    assert full < 0.85 * 2 * 1024 * 1024 and delta < 0.1 * full


def test_the_page(tmp_path):
    blocks = blocks_of("docs/python.md") + blocks_of("docs/python-details.md")
    assert len(blocks) >= 7
    (tmp_path / "page.py").write_text("\n".join(blocks))
    said = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    assert "wrong base" in said.stdout and "measure='update'" in said.stdout
    sizes = {path.stem: path.stat().st_size for path in tmp_path.glob("*.lmc")}
    assert sizes["step-1"] < 0.68 * 2 * (4000 * 256 + 256 * 257) and sizes["step-2"] < 0.2 * sizes["step-1"]


def test_the_page_for_those_who_load(tmp_path):
    (block,) = blocks_of("docs/start/load.md")
    (tmp_path / "page.py").write_text(block)
    said = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr


def test_docstrings():
    """Everything public has a docstring."""
    for public in (getattr(lmc_codec, name) for name in lmc_codec.__all__):
        own = vars(public).items() if inspect.isclass(public) else ()
        methods = {name: x for name, x in own if not name.startswith("_") and (callable(x) or isinstance(x, (property, classmethod)))}
        assert [name for name, x in {"": public, **methods}.items() if not x.__doc__] == [], public


@pytest.mark.long
def test_the_example_of_a_series(tmp_path):
    """A short training: too few steps to show density, but all code runs."""
    example = Path(__file__).parents[2] / "examples" / "series.py"
    environment = {**os.environ, "STEPS": "40", "MPLBACKEND": "agg"}
    said = subprocess.run([sys.executable, str(example), str(tmp_path)], env=environment, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    rows = [line.split() for line in said.stdout.splitlines() if line.count("%") == 3]
    assert len(rows) == 9 and all(float(row[3].strip("%")) < float(row[2].strip("%")) for row in rows)
    assert "refused, as it should be:" in said.stdout
