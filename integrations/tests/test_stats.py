"""Pictures of lmc stats. Their content is compared with the JSON."""

import io
import json
import math
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import lmc_codec as lmc
import ml_dtypes
import numpy as np
import pytest
from lmc_integrations import stats

HOSTILE = "<script>alert('\"x\"')</script> & ]]> $x_1$ \x1b[31m \u202e"


def item(name, changed=None, path="", **more):
    status = {} if changed is None else {"status": "changed", "compared_elements": 1000, "changed_elements": changed}
    return {"name": name, "path": path, "dtype": "BF16"} | status | more


def snapshot(name, *tensors, files=(), size=2000):
    dtypes = [{"dtype": "BF16", "elements": size // 2, "plane_entropies": [8, 2]}]
    return {"snapshot": name, "size": size, "direct_size": size * 5 // 8, "delta_size": size // 4,
            "dtypes": dtypes, "tensors": list(tensors), "files": list(files)}  # fmt: skip


def parse(path):
    """Parses an SVG as XML, checks that it has no scripts, and returns its texts."""
    root = ElementTree.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert not [e for e in root.iter() if e.tag.endswith("script")]
    return ["".join(e.itertext()) for e in root.iter() if e.tag.endswith("}text")]


@pytest.mark.parametrize(
    "names, want",
    [
        (["run/step-1/a.lmc", "run/step-20/a.lmc"], ["step-1", "step-20"]),
        (["run/step-1.lmc", "run/step-20.lmc"], ["step-1", "step-20"]),
        (["a.lmc"], ["a.lmc"]),
        (["x/a.lmc"], ["a.lmc"]),
        (["a", "a"], ["a", "a"]),
        (["10", "1"], ["10", "1"]),
    ],
)
def test_labels(names, want):
    assert stats.labels(names) == want


def test_compressibility():
    found = stats.compressibility([snapshot("a"), snapshot("b", size=0), snapshot("c")])
    assert found.planes == {("BF16", 0, 2): [50, 0, 50], ("BF16", 1, 2): [12.5, 0, 12.5]}
    assert found.alone[::2] == [62.5, 62.5] and math.isnan(found.alone[1])
    assert math.isnan(found.delta[0]) and found.delta[2] == 25


def test_lines():
    """Each tensor has one line, even if it moves or was missing for a time. Tensors that are never compared have none."""
    lines = stats.density(
        [
            snapshot("0", item("w.9"), item("w.10"), item("m", path="x"), item("m", path="y"), files=[item("f")]),
            snapshot("1", item("w.9", 0), item("w.10", 500), item("m", 1, path="x"), item("m", 2, path="z"), files=[item("f", 1)]),
            snapshot("2", item("w.9", 1000), item("w.10", status="removed"), item("m", 3, path="x"), item("m", 4, path="z")),
            snapshot("3", item("w.10", status="added"), item("m", status="retyped", path="x")),
            snapshot("4", item("w.10", 100), item("m", 5, path="x"), item("new", status="added")),
        ]
    )
    assert [(x.name, x.path, x.changed) for x in lines] == [
        ("f", "", {1: 0.1}),
        ("m", "x", {1: 0.1, 2: 0.3, 4: 0.5}),
        ("m", "y", {1: 0.2, 2: 0.4}),
        ("w.9", "", {1: 0, 2: 100}),
        ("w.10", "", {1: 50, 4: 10}),
    ]


@pytest.mark.parametrize("text", [b"", b"{}", b"\xff", b"[1]", b'{"snapshots":[{}]}', b'{"snapshots":[]}', b'{"snapshots":7}', b"[" * 100000])
def test_what_is_no_output_of_stats(text, tmp_path):
    with pytest.raises(SystemExit, match="is not what lmc stats|no snapshots"):
        stats.draw(text, str(tmp_path / "x"))
    assert not list(tmp_path.iterdir())


def test_without_matplotlib(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit, match="pip install matplotlib"):
        stats.draw(json.dumps({"snapshots": [snapshot("a")]}), str(tmp_path / "x"))


@pytest.fixture
def snapshots(weights, tmp_path):
    pytest.importorskip("matplotlib")
    for k in range(3):
        if k:
            weights[:k] = weights[:k] * ml_dtypes.bfloat16(2)
        lmc.numpy.save_file({HOSTILE: weights, "layers.9": np.float32(weights)}, tmp_path / f"step-{k}.lmc")
    return [str(tmp_path / f"step-{k}.lmc") for k in range(3)]


def test_snapshots(snapshots, tmp_path):
    """From snapshots with an option of lmc stats, and from its output, the pictures are the same."""
    assert stats.main([str(tmp_path / "a"), "--fast", *snapshots]) == 0
    texts = parse(tmp_path / "a-compressibility.svg")
    for text in ("step-0", "step-1", "step-2", "BF16 plane 1", "F32 plane 0", "coded alone", "coded as a delta"):
        assert text in texts
    texts = parse(tmp_path / "a-density.svg")
    assert "step-0" not in texts and "step-2" in texts and "layers.9" in texts
    assert [t for t in texts if "script" in t] == [HOSTILE.replace("\x1b", "\\x1B").replace("\u202e", "\\u{202E}")]
    python = [sys.executable, "-m", "lmc_codec"]
    said = subprocess.run([*python, "stats", "--json", "--fast", *snapshots], stdout=subprocess.PIPE, check=True).stdout
    subprocess.run([sys.executable, "-m", "lmc_integrations.stats", tmp_path / "b"], input=said, check=True)
    for which in ("compressibility", "density"):
        assert (tmp_path / f"a-{which}.svg").read_bytes() == (tmp_path / f"b-{which}.svg").read_bytes()


def test_outputs(snapshots, tmp_path, monkeypatch, capfd):
    """One snapshot gives one picture. Without -f existing files stay. An error of lmc stats becomes the exit code."""
    prefix = str(tmp_path / "one")
    assert stats.main([prefix, snapshots[0]]) == 0
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".svg"] == ["one-compressibility.svg"]
    with pytest.raises(SystemExit, match="exists already; use -f"):
        stats.main([prefix, snapshots[0]])
    (tmp_path / "one-compressibility.svg").write_bytes(b"")
    assert stats.main(["-f", prefix, snapshots[0]]) == 0
    parse(tmp_path / "one-compressibility.svg")
    with pytest.raises(SystemExit, match="No such file"):
        stats.main([str(tmp_path / "no" / "x"), snapshots[0]])
    assert stats.main([prefix, str(tmp_path / "gone")]) == 1
    assert "gone: cannot open it" in capfd.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x")))
    with pytest.raises(SystemExit, match="is not what lmc stats"):
        stats.main([prefix])


def test_many(tmp_path):
    """A long series has fewer labels than snapshots; the longest names are cut; an empty input is drawn, too."""
    pytest.importorskip("matplotlib")
    many = [snapshot(f"step-{k}", item("ü" * 5000, k % 5), item("空", k)) for k in range(400)]
    stats.draw(json.dumps({"snapshots": many}), str(tmp_path / "many"))
    texts = parse(tmp_path / "many-density.svg")
    assert len(texts) < 100 and max(map(len, texts)) < 100 and "空" in texts
    parse(tmp_path / "many-compressibility.svg")
    stats.draw(json.dumps({"snapshots": [snapshot("a", size=0), snapshot("b", size=0)]}), str(tmp_path / "none"))
    parse(tmp_path / "none-density.svg")
