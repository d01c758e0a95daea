"""Models from LMC files in transformers; decoding ahead of the consumer."""

import json
import os
import re
import signal
import threading
import time
from pathlib import Path

import fsspec
import lmc_codec
import lmc_integrations
import pytest
import safetensors.torch
import torch
from lmc_integrations._checkpoint import Checkpoint, run_ahead

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def model():
    """A model with tied weights, as small models have, and tensors of all kinds."""
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=300, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=True, dtype="bfloat16", bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    model.generation_config.max_new_tokens = 77
    return model


def save(model, directory, **options):
    """Saves as save_pretrained() does, then makes an LMC file of each *.safetensors."""
    base = options.pop("base", None)
    model.save_pretrained(directory, **options)
    for file in directory.glob("*.safetensors"):
        old = None if base is None else str(base / file.name)
        with lmc_codec.Writer(f"{file}.lmc", base=old) as w:
            w.add_file(file, "" if base is not None else file.name)
        file.unlink()


def assert_same(a, b):
    ours, theirs = a.state_dict(), b.state_dict()
    assert ours.keys() == theirs.keys()
    for name in theirs:
        assert ours[name].dtype == theirs[name].dtype and torch.equal(ours[name], theirs[name]), name


@pytest.mark.parametrize("shard", ["5GB", "60KB"])
def test_from_pretrained(model, tmp_path, shard):
    model.save_pretrained(tmp_path / "theirs", max_shard_size=shard)
    save(model, tmp_path / "ours", max_shard_size=shard)
    assert len(list((tmp_path / "ours").glob("*.lmc"))) == (1 if shard == "5GB" else 3)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "theirs")
    for model_class in (transformers.AutoModelForCausalLM, transformers.LlamaForCausalLM):
        ours, info = lmc_integrations.transformers.from_pretrained(model_class, tmp_path / "ours", output_loading_info=True)
        assert type(ours) is type(theirs) and not info["missing_keys"] and not info["unexpected_keys"]
        assert_same(ours, theirs)
        assert ours.lm_head.weight is ours.model.embed_tokens.weight and not ours.training
        assert ours.generation_config.max_new_tokens == 77 and ours.name_or_path == str(tmp_path / "ours")
    wide = lmc_integrations.transformers.from_pretrained(transformers.AutoModel, tmp_path / "ours", dtype=torch.float32)
    assert wide.embed_tokens.weight.dtype == torch.float32
    assert torch.equal(wide.embed_tokens.weight, theirs.model.embed_tokens.weight.float())


def test_snapshot_of_a_directory(model, tmp_path):
    model.save_pretrained(tmp_path / "theirs", max_shard_size="60KB")
    with lmc_codec.Writer(tmp_path / "model.lmc") as w:
        for file in sorted((tmp_path / "theirs").iterdir()):
            w.add_file(file, file.name)
    ours = lmc_integrations.transformers.from_pretrained(transformers.AutoModelForCausalLM, tmp_path / "model.lmc")
    assert_same(ours, model)
    assert ours.generation_config.max_new_tokens == 77


@pytest.mark.parametrize("shard", ["5GB", "60KB"])
def test_from_a_store(model, tmp_path, shard):
    """A directory by URL, with its configuration; and a snapshot of one."""
    load, auto, url = lmc_integrations.transformers.from_pretrained, transformers.AutoModelForCausalLM, "memory://test_loading"
    save(model, tmp_path / "part", max_shard_size=shard)
    model.save_pretrained(tmp_path / "theirs")
    with lmc_codec.Writer(tmp_path / "whole.lmc") as w:
        for file in sorted((tmp_path / "theirs").iterdir()):
            w.add_file(file, file.name)
    store = fsspec.filesystem("memory")
    try:
        store.put(str(tmp_path / "part"), "/test_loading/part", recursive=True), store.put(str(tmp_path / "whole.lmc"), "/test_loading/whole.lmc")
        for path, more in ((f"{url}/part", {}), (url, {"subfolder": "part"}), (f"{url}/part", {"storage_options": {}}), (f"{url}/whole.lmc", {})):
            ours = load(auto, path, **more)
            assert_same(ours, model)
            assert ours.generation_config.max_new_tokens == 77 and ours.name_or_path == "/".join((path, *map(str, more.values() if "subfolder" in more else ())))
        with pytest.raises(FileNotFoundError):
            load(auto, f"{url}/nowhere")
        store.put(str(tmp_path / "theirs/model.safetensors"), "/test_loading/part/model.safetensors")
        if shard == "5GB":
            assert_same(load(auto, f"{url}/part"), model)  # the same tensors
            store.pipe_file("/test_loading/part/model.lmc", b"x")
            with pytest.raises(lmc_codec.LMCError):
                load(auto, f"{url}/part")
        else:
            with pytest.raises(lmc_codec.LMCError, match="model.safetensors are of two checkpoints"):
                load(auto, f"{url}/part")
    finally:
        store.rm("/test_loading", recursive=True)


def test_delta(model, tmp_path):
    save(model, tmp_path / "one")
    model.save_pretrained(tmp_path / "plain")
    other = transformers.LlamaForCausalLM(model.config).to(torch.bfloat16)
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        other.model.norm.weight += 1
    other.save_pretrained(tmp_path / "two")
    (tmp_path / "two" / "model.safetensors").unlink()
    lmc_codec.torch.save_file(
        {name: t for name, t in other.state_dict().items() if name != "lm_head.weight"},
        tmp_path / "two" / "model.safetensors.lmc", base=tmp_path / "one" / "model.safetensors.lmc",
    )  # fmt: skip
    load = lmc_integrations.transformers.from_pretrained
    for base in (tmp_path / "one", tmp_path / "one" / "model.safetensors.lmc"):
        assert_same(load(transformers.AutoModelForCausalLM, tmp_path / "two", base=base), other)
    with pytest.raises(lmc_codec.MissingBaseError):
        load(transformers.AutoModelForCausalLM, tmp_path / "two")
    with pytest.raises(FileNotFoundError, match="is a delta of"):
        load(transformers.AutoModelForCausalLM, tmp_path / "two", base=tmp_path)


def test_delta_of_a_snapshot(model, tmp_path):
    """Its config.json is a delta, too."""
    other = transformers.LlamaForCausalLM(model.config).to(torch.bfloat16)
    load, auto = lmc_integrations.transformers.from_pretrained, transformers.AutoModelForCausalLM
    for name, saved, base in (("one", model, None), ("two", other, tmp_path / "one.lmc")):
        saved.save_pretrained(tmp_path / name)
        with lmc_codec.Writer(tmp_path / f"{name}.lmc", base=base) as w:
            for file in sorted((tmp_path / name).iterdir()):
                w.add_file(file, file.name)
    with pytest.raises(lmc_codec.MissingBaseError, match="config.json"):
        load(auto, tmp_path / "two.lmc")
    assert_same(load(auto, tmp_path / "two.lmc", base=tmp_path / "one.lmc"), other)
    with lmc_codec.open(tmp_path / "one.lmc") as base:
        assert_same(load(auto, tmp_path / "two.lmc", base=base), other)


def test_options(model, tmp_path):
    """Options of the configuration change it, as in transformers; no option is silently ignored."""
    theirs = transformers.AutoModelForCausalLM
    model.save_pretrained(tmp_path / "theirs" / "part")
    save(model, tmp_path / "ours" / "part")
    load = lmc_integrations.transformers.from_pretrained
    generation = transformers.GenerationConfig(max_new_tokens=3)
    options = {"use_cache": False, "attn_implementation": "eager", "dtype": torch.float32, "output_attentions": True,
               "generation_config": generation, "subfolder": "part"}  # fmt: skip
    for model_class in (theirs, transformers.LlamaForCausalLM):
        want = model_class.from_pretrained(tmp_path / "theirs", **options)
        got = load(model_class, tmp_path / "ours", **options)
        assert_same(got, want)
        kept = [x.config.to_dict() for x in (got, want)]
        for config in kept:
            config.pop("_name_or_path", None)
        assert kept[0] == kept[1] and got.config.use_cache is False and got.config._attn_implementation == "eager"
        assert got.generation_config.max_new_tokens == want.generation_config.max_new_tokens == 3
    many = load(transformers.AutoModelForSequenceClassification, tmp_path / "ours" / "part", num_labels=5)
    assert many.score.weight.shape == (5, 64) and many.config.num_labels == 5
    narrow = load(theirs, tmp_path / "ours" / "part", intermediate_size=32, ignore_mismatched_sizes=True)
    assert narrow.model.layers[0].mlp.up_proj.weight.shape == (32, 64)
    for config in (tmp_path / "theirs" / "part", str(tmp_path / "theirs" / "part" / "config.json"), model.config):
        assert_same(load(theirs, tmp_path / "ours" / "part", config=config), model)
    for name, value in (("variant", "fp16"), ("gguf_file", "x.gguf"), ("no_such_option", 1)):
        with pytest.raises(TypeError, match=name):
            load(theirs, tmp_path / "ours" / "part", **{name: value})
    with pytest.raises(TypeError, match="subfolder: .* is not a directory"):
        load(theirs, tmp_path / "ours" / "part" / "model.safetensors.lmc", subfolder="part")
    load(theirs, tmp_path / "ours" / "part", variant=None, gguf_file=None, subfolder="")


def test_refusals(model, tmp_path):
    directory = tmp_path / "ours"
    save(model, directory, max_shard_size="60KB")
    load = lmc_integrations.transformers.from_pretrained
    with pytest.raises(TypeError, match="state_dict"):
        load(transformers.AutoModelForCausalLM, directory, state_dict={})
    index = directory / "model.safetensors.index.json"
    said = json.loads(index.read_text())
    for change, error, text in (
        ({"more": "model-00001-of-00003.safetensors"}, lmc_codec.LMCError, "names tensor 'more'"),
        ({"more": "model-00009-of-00003.safetensors"}, FileNotFoundError, "model-00009-of-00003.safetensors.lmc"),
        ({"more": "../x.safetensors"}, ValueError, "not a file's name"),
        ({"more": 3}, ValueError, "weight_map"),
    ):
        index.write_text(json.dumps({**said, "weight_map": {**said["weight_map"], **change}}))
        with pytest.raises(error, match=text):
            Checkpoint(directory)
    index.unlink()
    lmc_codec.torch.save_file({"model.norm.weight": torch.ones(3)}, directory / "again.lmc")
    with pytest.raises(lmc_codec.LMCError, match="is in .*, too"):
        Checkpoint(directory)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no LMC files"):
        Checkpoint(tmp_path / "empty")


ARRANGEMENTS = {  # sizes of shards: first, and when training went on
    "one file, again one": ("5GB", "5GB"), "shards, again shards": ("60KB", "60KB"), "shards, then one file": ("60KB", "5GB"),
    "one file, then shards": ("5GB", "60KB"), "shards, then more shards": ("60KB", "30KB"),
}  # fmt: skip


def pack(directory, suffix=".safetensors.lmc", is_kept=False):
    for file in directory.glob("*.safetensors"):
        with lmc_codec.Writer(directory / (file.stem + suffix)) as w:
            w.add_file(file, file.name)
        if not is_kept:
            file.unlink()


@pytest.mark.parametrize("suffix", [".safetensors.lmc", ".lmc"])
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_two_checkpoints(model, tmp_path, arrangement, suffix):
    """A directory with LMC files of one checkpoint and safetensors files of another is refused, whichever is older."""
    first, then = ARRANGEMENTS[arrangement]
    other = transformers.LlamaForCausalLM(model.config).to(torch.bfloat16)
    load, auto = lmc_integrations.transformers.from_pretrained, transformers.AutoModelForCausalLM
    model.save_pretrained(tmp_path, max_shard_size=first)
    pack(tmp_path, suffix)
    assert_same(load(auto, tmp_path), model)
    other.save_pretrained(tmp_path, max_shard_size=then)
    shards = sorted(file.name for file in tmp_path.glob("*.safetensors"))
    for is_older in (False, True):
        for name in shards:
            os.utime(tmp_path / name, (1, 1) if is_older else None)
        with pytest.raises((lmc_codec.LMCError, FileNotFoundError)) as error:
            load(auto, tmp_path)
        if isinstance(error.value, lmc_codec.LMCError):
            assert re.search(r"\.safetensors.* and .*\.(lmc|json)|\.(lmc|json) and .*\.safetensors", str(error.value))
            assert ".safetensors (written later)" in str(error.value) or is_older
    if arrangement.endswith("more shards"):
        return  # the old LMC files are still there, and the index does not name them
    pack(tmp_path, suffix)  # if both are packed, the new files replace the old ones, or two checkpoints are left
    if arrangement.endswith(("again one", "again shards")):
        assert_same(load(auto, tmp_path), other)
    else:
        with pytest.raises(lmc_codec.LMCError, match="two checkpoints"):
            load(auto, tmp_path)


@pytest.mark.parametrize("size", ["5GB", "60KB"])
def test_equal_files(model, tmp_path, size):
    """`lmc` without --rm leaves the safetensors files. What counts is the content of the tensors, not the time."""
    load, auto = lmc_integrations.transformers.from_pretrained, transformers.AutoModelForCausalLM
    model.save_pretrained(tmp_path, max_shard_size=size)
    pack(tmp_path, is_kept=True)
    for file in tmp_path.glob("*.safetensors"):
        os.utime(file, (1, 1))
    assert_same(load(auto, tmp_path), model)
    file = sorted(tmp_path.glob("*.safetensors"))[-1]
    old, data = file.stat(), bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    os.utime(file, ns=(old.st_atime_ns, old.st_mtime_ns))
    with pytest.raises(lmc_codec.LMCError, match=f"{file.name}.* and .*{file.name}"):
        load(auto, tmp_path)
    assert_same(load(auto, f"{file}.lmc"), model) if size == "5GB" else None  # a file that is named is meant
    file.write_bytes(b"")
    with pytest.raises(lmc_codec.LMCError):
        load(auto, tmp_path)
    file.unlink()
    assert_same(load(auto, tmp_path), model)
    pack_again = file.with_suffix(".lmc")
    pack_again.write_bytes(Path(f"{file}.lmc").read_bytes())
    if size == "60KB":
        assert_same(load(auto, tmp_path), model)  # the same snapshot under both names
        lmc_codec.torch.save_file({"x": torch.ones(3)}, pack_again)
        with pytest.raises(lmc_codec.LMCError, match="two checkpoints"):
            load(auto, tmp_path)
    else:
        with pytest.raises(lmc_codec.LMCError, match="is in .*, too"):
            load(auto, tmp_path)


def test_shards_without_an_index(model, tmp_path):
    """vLLM reads them where there are no LMC files."""
    model.save_pretrained(tmp_path)
    pack(tmp_path)
    safetensors.torch.save_file({"x": torch.ones(3)}, tmp_path / "model-00001-of-00001.safetensors")
    with pytest.raises(lmc_codec.LMCError, match="model.*lmc and .*model-00001-of-00001.safetensors .*two checkpoints"):
        Checkpoint(tmp_path)


@pytest.mark.parametrize("text", [b"", b"version https://git-lfs.github.com/spec/v1\n", (9 << 40).to_bytes(8, "little") + b'{"'])
def test_a_safetensors_file_that_is_none(model, tmp_path, text):
    model.save_pretrained(tmp_path)
    pack(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(text)
    with pytest.raises(lmc_codec.LMCError, match=r"model.safetensors, beside .*\.lmc, cannot be read \(.*\): remove the one"):
        Checkpoint(tmp_path)


def test_iterate(model, tmp_path):
    save(model, tmp_path, max_shard_size="60KB")
    with Checkpoint(tmp_path) as checkpoint:
        state = dict(model.state_dict())
        found = dict(checkpoint.iterate())
        assert found.keys() == state.keys() - {"lm_head.weight"}
        assert all(torch.equal(found[name], state[name]) for name in found)
        assert [name for name, _ in checkpoint.iterate(lambda name: "norm" in name)] == [n for n in found if "norm" in n]


def test_ahead():
    """No more is made than `ahead` allows; errors are raised in their place; stopping early stops the thread."""
    made = []

    def make(i):
        made.append(i)
        if i == 7:
            raise OSError("the seventh")
        return i, 10

    results = run_ahead(list(range(10)), make, 25)
    assert next(results) == 0
    for _ in range(200):
        if made == [0, 1, 2, 3]:
            break
        time.sleep(0.01)
    time.sleep(0.05)
    assert made == [0, 1, 2, 3]  # one is taken, and three wait: two of them have only 20 of the 25 bytes
    assert [next(results) for _ in range(6)] == [1, 2, 3, 4, 5, 6]
    with pytest.raises(OSError, match="the seventh"):
        next(results)
    assert 8 not in made
    n = threading.active_count()
    results = run_ahead(list(range(5)), make, 1)
    next(results)
    assert threading.active_count() == n + 1
    results.close()
    assert threading.active_count() == n


def test_an_exception_while_the_thread_begins(monkeypatch):
    """As by Ctrl-C: the thread ends, also while the traceback is kept."""
    start, begun = threading.Thread.start, []

    def start_interrupted(self):
        start(self)
        begun.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", start_interrupted)
    with pytest.raises(KeyboardInterrupt) as kept:
        next(run_ahead(list(range(10)), lambda x: (x, 1), 1))
    begun[0].join(30)
    assert not begun[0].is_alive() and kept.value is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is none")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")
def test_a_fork_while_reading_ahead():
    items = run_ahead([1, 2, 3], lambda x: (x, 1), 1)
    assert next(items) == 1
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)  # killed, if it would wait forever
        try:
            next(items)
        except RuntimeError as error:
            items.close()
            os._exit(7 if "was forked while tensors were read ahead" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert list(items) == [2, 3]


def test_the_page(model, tmp_path, monkeypatch):
    """Runs the README's blocks about loading and weight sync: those that begin with ```py."""
    page = (Path(__file__).parents[1] / "README.md").read_text()
    blocks = re.findall(r"^```py\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    save(model, tmp_path / "model-dir")
    for i, directory in enumerate(("models/base", "ckpt/step1", "ckpt/step2")):
        model.config.max_position_embeddings += i
        model.save_pretrained(tmp_path / directory)
    monkeypatch.chdir(tmp_path)
    space = {}
    for block in blocks:
        exec(block, space)
    assert_same(space["model"], model)
    local, newest = (Path(x, "model.safetensors").read_bytes() for x in ("local/ckpt", "ckpt/step2"))
    assert local == newest
