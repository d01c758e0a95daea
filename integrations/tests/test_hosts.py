"""An adapter loads with each release of its host that has what it uses."""

import abc
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import lmc_integrations
import pytest
from packaging.requirements import Requirement
from lmc_integrations import TESTED, _hosts

TOP = Path(__file__).parents[1]


ADAPTERS = [("transformers", "transformers"), ("transformers", "trainer"), ("lightning", "lightning"), ("torch", "dcp"), ("zarr", "zarr")]


@pytest.fixture
def import_anew(monkeypatch):
    """import_anew(NAME): what it imports is forgotten in the end."""

    def import_anew(name):
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name)

    def prepare(adapter):
        name = f"lmc_integrations.{adapter}"
        monkeypatch.setattr(lmc_integrations, adapter, importlib.import_module(name))
        monkeypatch.setattr(_hosts, "_said", set())
        return lambda: import_anew(name)

    return prepare


@pytest.mark.parametrize("host, adapter", ADAPTERS)
def test_adapters(monkeypatch, pretend, caplog, import_anew, host, adapter):
    anew = import_anew(adapter)
    ours = sys.modules[f"lmc_integrations.{adapter}"]
    pretend(host, f"{TESTED[host][-1]}.7")
    anew()
    assert not caplog.records
    pretend(host, "99.0.1")  # all signatures are compared with those of the release that is installed
    assert anew().__all__ == anew().__all__ == ours.__all__
    (line,) = caplog.records  # one, however often
    assert re.fullmatch(rf"lmc_integrations.{adapter} was tested with {host} [\d., ]+; {host} 99.0.1 is installed, which was not tested", line.getMessage())
    assert (line.name, line.levelname) == ("lmc_integrations", "WARNING")
    with monkeypatch.context() as m:
        m.setitem(_hosts.FAILED, host, {"99.0": "it returns wrong shapes"})
        with pytest.raises(ImportError, match="99.0.1 is installed, with which it does not work: it returns wrong shapes$"):
            anew()
    pretend(host, None)
    with pytest.raises(ImportError, match=f"^lmc_integrations.{adapter} needs {host} [\\d., ]+, which is not installed$"):
        anew()
    assert len(caplog.records) == 1


CHANGES = {
    "is gone": ("torch.distributed.checkpoint.filesystem", "_StorageReaderTransforms", None, "dcp", "cannot import name '_StorageReaderTransforms'"),
    "a method is gone": ("torch.distributed.checkpoint.filesystem.FileSystemReader", "_slice_file", None, "dcp", "no attribute '_slice_file'"),
    "wants more": ("transformers.TrainingArguments", "main_process_first", lambda self, group, local=True: None, "trainer",
        r"is not called with \(self, local=\)"),
    "the argument is gone": ("lightning.pytorch.callbacks.ModelCheckpoint", "__init__", lambda self, dirpath, filename, monitor, keep: None, "lightning",
        "is not called with .*save_top_k="),
    "other order": ("transformers.AutoConfig", "from_pretrained", staticmethod(lambda revision, pretrained_model_name_or_path, **rest: None),
        "transformers", "is not called with"),
    "passes more": ("transformers.TrainerCallback", "on_save", lambda self, args, state, control, model: None, "trainer",
        r"has other parameters, \(self, args, state, control, model\), in on_save"),
    "passes it by name": ("lightning.pytorch.strategies.Strategy", "load_checkpoint", lambda self, *, checkpoint_path: None, "lightning", "is not called with"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_release_may_change(monkeypatch, pretend, caplog, import_anew, change):
    """The error says what has changed; with a release that was tested, signatures are not looked at."""
    where, name, value, adapter, text = CHANGES[change]
    anew = import_anew(adapter)
    host = dict(map(reversed, ADAPTERS))[adapter]
    target = pkgutil.resolve_name(where)
    monkeypatch.delattr(target, name) if value is None else monkeypatch.setattr(target, name, value)
    pretend(host, f"{TESTED[host][-1]}.7")
    anew() if value is not None else pytest.raises(ImportError, anew)
    pretend(host, "99.0.1")
    with pytest.raises(ImportError, match=f"lmc_integrations.{adapter} was tested with {host} .*; {host} 99.0.1 is installed, where .*{text}"):
        anew()


def test_a_release_with_another_abstract_method(monkeypatch, pretend, import_anew):
    anew = import_anew("dcp")
    extension = importlib.import_module("torch.distributed.checkpoint._extension")

    class Wanting(extension.StreamTransformExtension):
        evolve = abc.abstractmethod(lambda self: None)

    monkeypatch.setattr(extension, "StreamTransformExtension", Wanting)
    pretend("torch", "99.0.1")
    with pytest.raises(ImportError, match="where .*Extension lacks what its base class wants: evolve$"):
        anew()


def f(a, b=1, *, c=None):
    pass


def g(*args, **kwargs):
    pass


@pytest.mark.parametrize(
    "function, arguments, fits",
    [
        (f, "a", True), (f, "a b", True), (f, "a c=", True), (f, "_ _ c=", True), (f, "a b= c=", True), (f, "a= b= c=", True),
        (f, "", False), (f, "b", False), (f, "b a", False), (f, "a b x", False), (f, "a x=", False), (f, "c=", False), (f, "a a=", False),
        (g, "", True), (g, "x y z=", True), (f.__get__(1), "b", True), (f.__get__(1), "a b", False), (max, "a b", True), (5, "a", True),
    ],
)  # fmt: skip
def test_calls(function, arguments, fits):
    assert _hosts._refuses(function, *arguments.split()) is not fits


def takes_all(ours, theirs):
    made = {}
    exec(f"def ours({ours}): pass\ndef theirs({theirs}): pass", made)
    return _hosts._takes_all(made["ours"], made["theirs"])


@pytest.mark.parametrize(
    "ours, theirs, fits",
    [
        ("a, b", "a, b", True), ("a, b=1", "a, b", True), ("a, b=1", "a", True), ("a, *rest, **more", "a, b, c=1, *, d", True),
        ("a, *, d", "a, *, d=1", True), ("a, **more", "a, *, d", True), ("a, b", "a, *args, **kwargs", True), ("a, x", "a, b, /", False),
        ("a, b, /", "a, b, /", True), ("", "", True),
        ("a", "a, b", False), ("a, b", "a", False), ("b, a", "a, b", False), ("a, *rest", "a, b", False), ("a, **more", "a, b", False),
        ("a", "a, *, d", False), ("a, *, d", "a", False), ("a, x", "a, b", False), ("a, *, b", "a, b", False),
    ],
)  # fmt: skip
def test_methods_that_the_host_calls(ours, theirs, fits):
    assert takes_all(ours, theirs) is fits


def test_modelexpress(pretend):
    pretend("modelexpress", None)
    with pytest.raises(ImportError, match="modelexpress 0.7, which is not installed"):
        lmc_integrations.weight_sync.register_modelexpress()
    for version in ("0.6.9", "0.70.0"):
        pretend("modelexpress", version)
        with pytest.raises(ImportError, match=f"modelexpress {version} is installed, where something .*modelexpress_rl"):
            lmc_integrations.weight_sync.register_modelexpress()


@pytest.mark.parametrize("version", ["0.33.0", "0.33.12", "0.33.1rc1", "0.33.0+cpu", "0.33+cu130"])
def test_releases(pretend, caplog, version):
    pretend("vllm", version)
    with _hosts.Host("vllm", "vllm"):
        pass
    assert not caplog.records


@pytest.mark.parametrize("version", ["0.3.3", "0.330.0", "10.33.0", "0.34.0", "1!0.33.0", "0.1.dev1+g0.33", ""])
def test_other_releases(monkeypatch, pretend, caplog, version):
    pretend("vllm", version)
    monkeypatch.setattr(_hosts, "_said", set())
    for _ in range(2):
        with _hosts.Host("vllm", "vllm"):
            pass
    assert [x.getMessage() for x in caplog.records] == [f"lmc_integrations.vllm was tested with vllm 0.33; vllm {version} is installed, which was not tested"]
    with pytest.raises(KeyError), _hosts.Host("vllm", "vllm"):  # not of the host
        {}["x"]


def test_what_was_tested_is_said_alike():
    """In the README, and in what pip installs for an extra."""
    page = (TOP / "README.md").read_text()
    extras = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = {x.name: x.specifier for extra in extras.values() for x in map(Requirement, extra) if x.specifier}
    for host, releases in TESTED.items():
        assert re.search(rf"^\|.*\| {host} {', '.join(releases)} \|$", page, re.MULTILINE | re.IGNORECASE), host
        if host in wanted:
            assert str(wanted[host]) == f">={releases[0]}"
    assert TESTED.keys() - wanted.keys() == {"miles", "modelexpress", "nemo-rl"}  # pip does not install them by these names, or not for CPUs


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
