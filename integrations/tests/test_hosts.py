"""An adapter loads only with a tested release of its host."""

import importlib
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import lmc_integrations
import pytest
from packaging.requirements import Requirement
from lmc_integrations import TESTED
from lmc_integrations._hosts import check_host

TOP = Path(__file__).parents[1]


@pytest.mark.parametrize("host, adapter", [("transformers", "transformers"), ("transformers", "trainer"), ("lightning", "lightning"), ("torch", "dcp"), ("zarr", "zarr")])
def test_adapters(monkeypatch, pretend, host, adapter):
    name = f"lmc_integrations.{adapter}"
    ours = importlib.import_module(name)
    monkeypatch.setattr(lmc_integrations, adapter, ours)  # what is imported below is forgotten in the end
    monkeypatch.delitem(sys.modules, name)
    for version, text in (
        (None, f"^{name} needs {host} [\\d., ]+, which is not installed$"),
        ("99.0.1", f"tested with {host} [\\d., ]+, and {host} 99.0.1 is installed: install .*LMC_TRY_UNTESTED=1"),
    ):
        with monkeypatch.context() as m:
            m.setattr("lmc_integrations._hosts.metadata.version", metadata.version)
            pretend(host, version)
            with pytest.raises(ImportError, match=text):
                importlib.import_module(name)
    pretend(host, "99.0.1")
    monkeypatch.setenv("LMC_TRY_UNTESTED", "1")
    with pytest.warns(UserWarning, match="tested with"):
        tried = importlib.import_module(name)
    assert tried is not ours and tried.__all__ == ours.__all__


def test_modelexpress(pretend):
    for version in (None, "0.6.9", "0.70.0"):
        pretend("modelexpress", version)
        with pytest.raises(ImportError, match="modelexpress 0.7,"):
            lmc_integrations.weight_sync.register_modelexpress()


@pytest.mark.parametrize("version", ["0.33.0", "0.33.12", "0.33.1rc1", "0.33.0+cpu", "0.33+cu130"])
def test_releases(pretend, version):
    pretend("vllm", version)
    check_host("vllm", "vllm")


@pytest.mark.parametrize("version", ["0.3.3", "0.330.0", "10.33.0", "0.34.0", "1!0.33.0", "0.1.dev1+g0.33", ""])
def test_other_releases(pretend, version):
    pretend("vllm", version)
    with pytest.raises(ImportError, match="tested with vllm 0.33, and"):
        check_host("vllm", "vllm")


def test_what_was_tested_is_said_alike():
    """In the README, and in what pip installs for an extra."""
    page = (TOP / "README.md").read_text()
    extras = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = {x.name: x.specifier for extra in extras.values() for x in map(Requirement, extra) if x.specifier}
    for host, releases in TESTED.items():
        assert re.search(rf"^\|.*\| {host} {', '.join(releases)} \|$", page, re.MULTILINE | re.IGNORECASE), host
        if host in wanted:
            near = {f"{release[0]}.{minor}" for release in releases for minor in range(40)}
            assert {release for release in near if f"{release}.1" in wanted[host]} == set(releases)
    assert TESTED.keys() - wanted.keys() == {"modelexpress"}


def test_only_public_names_of_the_core():
    """Only _core.py imports private names of lmc_codec, except types for checkers."""
    for path in (TOP / "lmc_integrations").glob("*.py"):
        if path.name != "_core.py":
            found = re.findall(r"^ *from lmc_codec(?:\._\w+ import \w+| import _\w+)", path.read_text(), re.MULTILINE)
            assert all("_types" in line for line in found), (path.name, found)


def test_the_program(tmp_path):
    command = [sys.executable, "-m", "lmc_integrations.weight_sync"]
    said = subprocess.run([*command, "--help"], capture_output=True, text=True)
    assert said.returncode == 0 and "publish" in said.stdout and not said.stderr
    said = subprocess.run([*command, "receive", tmp_path, tmp_path / "no"], capture_output=True, text=True)
    assert said.returncode in (1, 4) and said.stderr.startswith("weight_sync: ")
    said = subprocess.run([sys.executable, "-m", "lmc_integrations.hdf5"], capture_output=True, text=True)
    assert said.stdout.strip() == lmc_integrations.hdf5.plugin_path() and not said.stderr


def test_importing_the_package_loads_no_adapter():
    code = "import sys, lmc_integrations; print([x for x in sys.modules if x.split('.')[0] in ('torch', 'numpy', 'zarr', 'lmc_codec')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_entry_points():
    found = {(x.group, x.value) for x in metadata.distribution("lmc-integrations").entry_points if x.name == "lmc"}
    codecs = {("zarr.codecs", "lmc_integrations.zarr:LMCCodec"), ("numcodecs.codecs", "lmc_integrations.numcodecs:LMC")}
    assert found == {*codecs, ("vllm.general_plugins", "lmc_integrations.vllm:register")}
    groups = {point.group for point in metadata.distribution("lmc-codec").entry_points}
    assert groups.isdisjoint({"vllm.general_plugins", "zarr.codecs", "numcodecs.codecs"})  # hosts load nothing of the core package
