"""docs/python.md, word for word: its Python blocks, in their order, in one program."""

import re
import subprocess
import sys
from pathlib import Path


def test_the_page(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 7
    (tmp_path / "page.py").write_text("\n".join(blocks))
    said = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    assert "wrong base" in said.stdout and "measure='update'" in said.stdout
    sizes = {path.stem: path.stat().st_size for path in tmp_path.glob("*.lmc")}
    assert sizes["step-1"] < 0.68 * 2 * (4000 * 256 + 256 * 257) and sizes["step-2"] < 0.2 * sizes["step-1"]
