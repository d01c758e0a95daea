"""ModelCheckpoint in PyTorch Lightning."""

import logging
import os
import subprocess
import sys
import warnings

import lmc_codec
import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # warnings of the modules that Lightning imports
    pl = pytest.importorskip("lightning.pytorch")
    from lightning.pytorch import callbacks
    from lightning.pytorch.plugins.io import AsyncCheckpointIO
    from lightning.pytorch.strategies import SingleDeviceStrategy
from lmc_integrations.lightning import ModelCheckpoint, SeriesIO
from lmc_integrations.series import Series

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(128, 128), torch.nn.Dropout(0.1), torch.nn.Linear(128, 1))
        self.seen = []

    def training_step(self, batch, i):
        torch.manual_seed(self.global_step)  # Lightning restores neither random numbers nor the place in the data
        loss = self.layers(torch.randn(4, 128)).square().mean()
        self.seen.append((self.global_step, loss.item()))
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def make(directory, *, ours=True, steps=12, strategy="auto", devices=1, **options):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    options = {"every_n_train_steps": 2, "save_top_k": -1, **options}
    callback = (ModelCheckpoint if ours else callbacks.ModelCheckpoint)(directory, **options)
    trainer = pl.Trainer(
        accelerator="cpu", max_steps=steps, callbacks=[callback], logger=False, enable_progress_bar=False, enable_model_summary=False,
        strategy=strategy, devices=devices,
    )  # fmt: skip
    return trainer, Model(), torch.utils.data.DataLoader(torch.zeros(24), batch_size=4), callback


def fit(directory, ckpt_path=None, **options):
    trainer, model, data, callback = make(directory, **options)
    trainer.fit(model, data, ckpt_path=ckpt_path)
    return model, callback


def same(a, b):
    ours, theirs = a.state_dict(), b.state_dict()
    return all(torch.equal(ours[x], theirs[x]) for x in theirs) and a.seen == b.seen[len(b.seen) - len(a.seen) :]


def test_a_training_goes_on_from_each_step(tmp_path):
    straight, theirs = fit(tmp_path / "theirs", ours=False)
    model, ours = fit(tmp_path / "ours")
    assert same(model, straight)
    names = Series(tmp_path / "ours").names()
    assert [f"{x}.ckpt" for x in names] == sorted(os.listdir(tmp_path / "theirs"), key=lambda x: os.stat(tmp_path / "theirs" / x).st_mtime_ns)
    for name in names:
        again, _ = fit(tmp_path / "ours", str(tmp_path / "ours" / f"{name}.lmc"))
        assert same(again, straight)
    command = [sys.executable, "-m", "lmc_codec", "-d", "-o", tmp_path / "x.ckpt", tmp_path / "ours" / f"{names[-1]}.lmc"]
    subprocess.run(command, check=True)
    loaded = Model.load_from_checkpoint(tmp_path / "x.ckpt")
    assert all(torch.equal(x, loaded.state_dict()[name]) for name, x in straight.state_dict().items())


@pytest.mark.parametrize(
    "options",
    [
        {"save_top_k": 1, "save_last": True},
        {"save_top_k": 2, "save_last": "link"},
        {"save_top_k": 5, "mode": "max", "save_last": True},
        {"save_top_k": 1, "filename": "best", "every": 16},  # the same file again and again
        {"save_top_k": 0, "save_last": True, "every": 3},
        {"save_top_k": 3, "every": 4},
    ],
)
def test_rotation_is_lightnings(tmp_path, options):
    """The same names exist, and each has the content of Lightning's own file."""
    options = {"monitor": "loss", "steps": 20, **options}
    plain = {"ours": False, **{x: y for x, y in options.items() if x != "every"}}
    _, theirs = fit(tmp_path / "theirs", **plain)
    _, ours = fit(tmp_path / "ours", **options)
    names = {x.stem for x in (tmp_path / "theirs").iterdir() if not x.is_symlink()}
    series = Series(tmp_path / "ours")
    assert set(series.names()) == names and len(list((tmp_path / "ours").glob("*.lmc"))) < len(names) + 3
    assert os.path.basename(ours.best_model_path)[:-4] == os.path.basename(theirs.best_model_path)[:-5]
    for name in names:
        a, b = series.load(name), torch.load(tmp_path / "theirs" / f"{name}.ckpt")
        assert a["global_step"] == b["global_step"]
        assert all(torch.equal(a["state_dict"][k], v) for k, v in b["state_dict"].items())
    if "save_last" in options:
        plain, options = ({**x, "steps": 22} for x in (plain, options))
        assert fit(tmp_path / "ours", "last", **options)[0].seen == fit(tmp_path / "theirs", "last", **plain)[0].seen


def test_saving_in_a_thread(tmp_path):
    """The snapshots are those of wait=True, also after rotation; the end of the training waits, and raises errors."""
    options = {"monitor": "loss", "save_top_k": 4, "save_last": True, "steps": 16}
    fit(tmp_path / "a", **options)
    fit(tmp_path / "b", wait=False, **options)
    a, b = Series(tmp_path / "a"), Series(tmp_path / "b")
    assert set(a.names()) == set(b.names()) and len(a.names()) == 5
    for name in a.names():
        x, y = a.load(name), b.load(name)
        assert all(torch.equal(x["state_dict"][k], y["state_dict"][k]) for k in x["state_dict"])
    trainer, model, data, callback = make(tmp_path / "c", wait=False, steps=2)
    callback._io._options["level"] = "none"
    with pytest.raises(ValueError, match="none"):
        trainer.fit(model, data)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_two_ranks(tmp_path):
    options = {"strategy": "ddp_fork", "devices": 2}
    straight, _ = fit(tmp_path, **options)
    names = Series(tmp_path).names()
    assert len(names) == 6
    again, _ = fit(tmp_path, str(tmp_path / f"{names[1]}.lmc"), **options)
    assert all(torch.equal(x, again.state_dict()[name]) for name, x in straight.state_dict().items())
    assert len(Series(tmp_path).names()) > 6


class Sharding(SingleDeviceStrategy):
    def save_checkpoint(self, *args, **options):
        raise AssertionError


def test_what_is_refused(tmp_path):
    for strategy in (Sharding("cpu"), pl.strategies.FSDPStrategy()):
        trainer, model, _, _ = make(tmp_path)
        trainer._accelerator_connector.strategy = strategy
        with pytest.raises(ValueError, match="writes shards, .* lmc_integrations.dcp"):
            trainer.checkpoint_callback.setup(trainer, model, "fit")
    trainer, model, _, callback = make("memory://bucket/run")
    with pytest.raises(ValueError, match="memory://bucket/run: a series is a directory"):
        callback.setup(trainer, model, "fit")
    trainer, model, _, callback = make(tmp_path)
    trainer.strategy.checkpoint_io = AsyncCheckpointIO()
    with pytest.raises(ValueError, match="AsyncCheckpointIO writes checkpoints otherwise"):
        callback.setup(trainer, model, "fit")


def test_as_a_plugin(tmp_path):
    """Lightning itself handles files that do not end in .lmc."""
    trainer = pl.Trainer(
        accelerator="cpu", max_steps=2, plugins=[SeriesIO(every=1, quantize="*.exp_avg*=bits:8")], logger=False,
        callbacks=[ModelCheckpoint(tmp_path / "a", every_n_train_steps=2)], enable_progress_bar=False,
    )  # fmt: skip
    trainer.fit(Model(), make(tmp_path)[2])
    trainer.save_checkpoint(tmp_path / "b.ckpt")
    trainer.save_checkpoint(tmp_path / "b.lmc")
    a, b = torch.load(tmp_path / "b.ckpt"), Series(tmp_path).load()
    assert all(torch.equal(a["state_dict"][x], b["state_dict"][x]) for x in a["state_dict"])
    moments = [x["optimizer_states"][0]["state"][0]["exp_avg"] for x in (a, b)]
    assert not torch.equal(*moments) and torch.allclose(*moments, atol=float(moments[0].abs().max()) / 20)
    fit(tmp_path / "a", str(tmp_path / "b.ckpt"), steps=4)
    trainer.strategy.remove_checkpoint(tmp_path / "b.ckpt")
    trainer.strategy.remove_checkpoint(tmp_path / "b.lmc")
    assert Series(tmp_path).names() == [] and not list(tmp_path.glob("b.*"))
    assert len(Series(tmp_path / "a").names()) == 2


def test_two_callbacks(tmp_path):
    """Several ModelCheckpoints keep their own options."""
    a = ModelCheckpoint(tmp_path / "a", every_n_train_steps=1, save_top_k=-1, every=2)
    b = ModelCheckpoint(tmp_path / "b", every_n_train_steps=2, save_top_k=-1, every=1, quantize="*.exp_avg*=bits:8")
    trainer = pl.Trainer(accelerator="cpu", max_steps=4, callbacks=[a, b], logger=False, enable_progress_bar=False)
    trainer.fit(Model(), make(tmp_path)[2])
    for directory, every, n in (("a", 2, 4), ("b", 1, 2)):
        names = Series(tmp_path / directory).names()
        readers = [lmc_codec.open(tmp_path / directory / f"{name}.lmc", base="auto") for name in names]
        assert [x.base_fingerprint is None for x in readers] == [i % every == 0 for i in range(n)]
        assert all(("Quantised" in x.features) == (directory == "b") for x in readers)
