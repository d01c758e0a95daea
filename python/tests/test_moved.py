"""Adapters for other projects are in the distribution lmc-integrations. If it is missing, the old names say so."""

import importlib
import subprocess
import sys

import lmc_codec
import pytest

NAMES = ("dcp", "hdf5", "numcodecs", "stats", "transformers", "vllm", "weight_sync", "zarr")


@pytest.fixture
def alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "lmc_integrations", None)
    for name in NAMES:
        monkeypatch.delitem(sys.modules, f"lmc_codec.{name}", raising=False)
        monkeypatch.delitem(vars(lmc_codec), name, raising=False)


@pytest.mark.parametrize("name", NAMES)
def test_old_names(alone, name):
    wanted = f"^lmc_codec.{name} is lmc_integrations.{name} now: install the distribution lmc-integrations"
    with pytest.raises(ImportError, match=wanted):
        importlib.import_module(f"lmc_codec.{name}")
    with pytest.raises(ImportError, match=wanted):
        getattr(lmc_codec, name)


def test_the_program():
    code = "import sys, runpy; sys.modules['lmc_integrations'] = None; runpy.run_module('lmc_codec.weight_sync', run_name='__main__')"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert said.returncode == 1 and "lmc_codec.weight_sync is lmc_integrations.weight_sync now" in said.stderr


@pytest.mark.parametrize("group", ["zarr.codecs", "numcodecs.codecs"])
def test_codecs(alone, group):
    """zarr and numcodecs find them by their name in a file."""
    points = importlib.metadata.entry_points(group=group, name="lmc")
    for point in (x for x in points if x.value.startswith("lmc_codec")):
        with pytest.raises(ImportError, match="install the distribution lmc-integrations"):
            point.load()
