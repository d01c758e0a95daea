"""Rules of quantisation mean the same as in the command: both are tested with one list of patterns."""

import io
import subprocess
from pathlib import Path

import numpy as np
import pytest

import lmc_codec as lmc
from lmc_codec._policy import Policy

ROWS = [
    line.rstrip("\n").split("\t")
    for line in (Path(__file__).parents[2] / "tests" / "command" / "patterns.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
QUIET = pytest.mark.filterwarnings("ignore:.*no tensor was quantised")
BIG = np.exp(np.random.default_rng(3).standard_normal((400, 300), np.float32))


@pytest.mark.parametrize("pattern, name, says", ROWS)
def test_patterns(pattern, name, says):
    """tests/command/test_quant.py does the same."""
    try:
        policy = Policy(f"{pattern},role=any=bits:8")
    except ValueError as error:
        assert says == "refused" and str(error).startswith("quantize rule ")
    else:
        found = policy.find("m.safetensors", (name, "F32", (400, 300), 480000))
        assert says == ("no" if found is None else "yes")


@QUIET
def test_what_is_lossless_stays_exact():
    for pattern in ("[!e]*", "layer.*", "*"):
        target = io.BytesIO()
        with lmc.Writer(target, quantize=["*=rel:0.01", f"{pattern}=lossless"]) as w:
            w.add_arrays({"layer.exp_avg": BIG})
            w.add_arrays({"exp_avg": BIG}, "other")
        with lmc.open(target.getvalue()) as r:
            assert r.info("layer.exp_avg").loss is None and np.array_equal(r["layer.exp_avg"], BIG)
            assert (r.info("exp_avg").loss is None) == (pattern != "layer.*")
    for pattern in ("[^e]*", "[[:lower:]]*", r"layer\.*"):
        with pytest.raises(ValueError, match="quantize rule .*is not known|are not known"):
            lmc.Writer(io.BytesIO(), quantize=["*=rel:0.01", f"{pattern}=lossless"])


@QUIET
@pytest.mark.parametrize("rule", ["*=update:0.01", "*=bits:6", "*,role=any=kmeans:3", "*=rel:0.01", "*=nmse:1e-4", "*=auto:0.1", "*,role=any=nmse:1e-4", "*,max=1K=bits:8"])
def test_the_command_does_the_same(tmp_path, rule):
    """The same tensors are quantised, and to the same bytes."""
    from safetensors.numpy import save_file

    arrays = {"l.exp_avg_sq": BIG, "l.exp_avg": BIG - 1, "w.weight": BIG, "grad.x": BIG, "few.exp_avg": BIG[:3], "flat.exp_avg": BIG.reshape(-1), "mu": BIG, "i": BIG.view(np.int32)}
    save_file(arrays, tmp_path / "m.safetensors")
    command = Path(lmc.__file__).parent / "bin" / "lmc"
    subprocess.run([command, "-q", "--quant", rule, "m.safetensors"], cwd=tmp_path, check=True, capture_output=True)
    with lmc.Writer(tmp_path / "p.lmc", quantize=rule) as w:
        w.add_arrays(arrays, "m.safetensors")
    with lmc.open(tmp_path / "p.lmc") as ours, lmc.open(tmp_path / "m.safetensors.lmc") as theirs:
        for name in arrays:
            assert repr(ours.info(name).loss) == repr(theirs.info(name).loss), name
            assert ours.info(name).fingerprint == theirs.info(name).fingerprint
        assert any(ours.info(name).loss for name in arrays) == ("max" not in rule)


def test_mu_alone_is_no_moment():
    """As in the command: other tensors may have such names, too."""
    def losses(*files):
        target = io.BytesIO()
        with lmc.Writer(target, quantize=["*=rel:0.01", "*keep*=lossless"]) as w:
            w.add_arrays({"exp_avg": BIG}, "any")
            for i, file in enumerate(files):
                w.add_arrays(file, str(i))
        with lmc.open(target.getvalue()) as r:
            return {name: r.info(name).loss is not None for name in r.keys() if name != "exp_avg"}

    assert losses({"vae.mu": BIG}) == {"vae.mu": False}
    assert losses({"x.mu": BIG, "x.nu": BIG, "y.nu": BIG}) == {"x.mu": True, "x.nu": True, "y.nu": False}
    assert losses({"x.nu": BIG}, {"x.mu": BIG}) == {"x.mu": True, "x.nu": False}  # it was written before mu came
