"""Memory and CPU seconds for small files that describe very much (tests/command/hostile.py). The limits are those of
docs/security.md: 32 times the size of the file, and 256 MiB above the memory of Python and its modules.

Time is limited, not measured: 30 seconds of CPU for calls that take two.
"""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import lmc_codec

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "command"))
pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="Linux says what a process takes")
hostile = pytest.importorskip("hostile")
LMC = os.environ.get("LMC", str(ROOT / "build" / "lmc"))
FACTOR, MAKE, FIXED, SECONDS = 32, 64, 256 << 20, 30

#: What is asked of a file; an error of the package is an answer.
ASK = """
import lmc_codec, lmc_codec.numpy, resource, sys
path, what = sys.argv[1:]
if what != "none":
    try:
        if what == "load_file": lmc_codec.numpy.load_file(path)
        else:
            with lmc_codec.open(path) as r:
                if what == "keys": r.keys()
                if what == "files": r.files
                if what == "metadata": r.metadata
                if what == "info": [r.info(x) for x in r.keys()[:100]]
                if what == "get": [r.get(x, framework="bytes") for x in r.keys()[:100]]
                if what == "find": r.info("not there")
                if what == "writer":  # once more, as a delta of itself
                    with lmc_codec.open(path) as base, lmc_codec.Writer(path + ".new", base=base) as w:
                        w.copy_from(r)
    except (lmc_codec.LMCError, LookupError, ValueError, TypeError) as error:
        print(str(error)[:200])
with open("/proc/self/status") as status:  # ru_maxrss would count memory of the parent, too
    print(next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM")))
"""


def snapshot(make, *numbers, **more):
    return lambda: {"x.lmc": make(*numbers, **more)}


def torch(make, *numbers):
    return lambda: {"x.pt": make(*numbers)}


def items():
    metadata, data = hostile.checkpoint(60000, 1000)
    return {"x/.metadata": metadata, "x/__0_0.distcp": data}


QUESTIONS = ("keys", "info", "files", "metadata", "get", "find", "load_file", "writer")
BOMBS = {
    "a tensor often under one key": torch(hostile.same_keys, 100000),
    "many names below a long key": torch(hostile.torch_names, 70000, b"k" * 900),
    "many names": torch(hostile.torch_names, 30000),
    "names deep down": torch(hostile.torch_deep, 1000, 190),
    "dicts": torch(hostile.torch_opcodes, b"}", 8000000),
    "kept": torch(hostile.torch_opcodes, b"N\x94", 4000000),
    "many dimensions": torch(hostile.torch_ranks, 5000),
    "tensors side by side": torch(hostile.torch_parts, 12000),
    "files that are one": lambda: dict.fromkeys(("x/%03d.pt" % i for i in range(30)), hostile.torch_names(8000, b"k" * 600)),
    "members of a ZIP archive": torch(hostile.torch_members, 20000),
    "items with long names": items,
    "names by Prefix and Suffix": snapshot(hostile.prefix_names, 20000),
    "empty files": snapshot(hostile.many_files, 20000),
    "runs of a byte": snapshot(hostile.many_runs, 5000),
    "metadata": lambda: {"x.lmc": hostile.with_metadata(*((b"%07d" % i, b"") for i in range(50000)))},
}
SLOW = ("files that are one", "tensors side by side", "dicts", "kept", "a tensor often under one key")


def measure(path, what):
    argv = [sys.executable, "-c", ASK, str(path), what]
    p = subprocess.run(argv, capture_output=True, text=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS)))
    assert p.returncode == 0, (what, p.returncode, p.stderr[-500:])
    return int(p.stdout.split()[-1])


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The memory of Python and the package alone."""
    return measure("none", "none")


@pytest.mark.parametrize("name", BOMBS)
def test_memory(name, plain, tmp_path):
    files = BOMBS[name]()
    for file, data in files.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_bytes(data)
    root = tmp_path / next(iter(files)).partition("/")[0]
    path = tmp_path / "x.lmc"
    if root != path:
        subprocess.run([LMC, "-q", "-f", "-o", str(path), str(root)], check=True)
    for what in ("keys", "load_file", "writer") if name in SLOW else QUESTIONS:
        factor = MAKE if what == "writer" else FACTOR
        taken = measure(path, what)
        assert taken <= factor * path.stat().st_size + FIXED + plain, what


def test_equal_names(tmp_path):
    """A tensor that is listed many times under one name is listed once."""
    again = (hostile.text(b"b") + b"h\0") * 1000
    (tmp_path / "x.pt").write_bytes(hostile.torch_file(b"}(" + hostile.text(b"a") + hostile.ONE + b"q\0" + again + b"u"))
    subprocess.run([LMC, "-q", "x.pt"], cwd=tmp_path, check=True)
    with lmc_codec.open(tmp_path / "x.pt.lmc") as r:
        assert sorted(x for x in r.keys() if not x.startswith("@")) == ["a", "b"]
        assert len(r.get("b", framework="bytes")) == 16
