"""SeriesCallback in the Trainer of Hugging Face."""

import copy
import hashlib
import os
import random
import shutil
import socket
import subprocess
import sys

import lmc_codec
import pytest
import torch
from lmc_integrations.series import Series

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")  # which the Trainer needs

from lmc_integrations.trainer import SeriesCallback

# tqdm shares a lock with forked processes: a killed one may hold it, and the next would wait forever
transformers.utils.logging.disable_progress_bar()
STEPS = 12


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, i):
        x = torch.randint(0, 64, (8,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": x, "labels": x}


class Told(transformers.TrainerCallback):
    """Runs before SeriesCallback, and records what the Trainer has saved."""

    def __init__(self, path):
        self.path = path

    def on_save(self, args, state, control, **unused):
        name = f"checkpoint-{state.global_step}"
        self.path.with_name(name + ".told").write_text(digest(os.path.join(args.output_dir, name)))


class Finished(transformers.TrainerCallback):
    """Records and reports the checkpoints that SeriesCallback has finished."""

    def __init__(self, path, report):
        self.path, self.report = path, report

    def on_step_begin(self, args, state, control, **unused):
        if state.global_step:
            with open(self.path, "a") as file:
                file.write(f"checkpoint-{state.global_step}\n")
        self.report()


def digest(directory):
    found = hashlib.sha256()
    for name in sorted(os.listdir(directory)):
        with open(os.path.join(directory, name), "rb") as file:
            found.update(name.encode() + hashlib.sha256(file.read()).digest())
    return found.hexdigest()


def make_trainer(directory, *, series=True, told=None, callbacks=(), options=None, width=32, **arguments):
    torch.set_num_threads(1)
    transformers.set_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=width, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, attention_dropout=0.1
    )  # fmt: skip
    arguments = {"save_strategy": "steps", "save_steps": 2, "max_steps": STEPS, **arguments}
    args = transformers.TrainingArguments(
        str(directory), per_device_train_batch_size=4, logging_steps=1, report_to=[], disable_tqdm=True, use_cpu=True, **arguments
    )
    callback = SeriesCallback(args, **(options or {})) if series else None
    callbacks = [*([] if told is None else [Told(told)]), *callbacks, *([callback] if series else [])]
    model = transformers.LlamaForCausalLM(config)
    data = {"train_dataset": Data(), "eval_dataset": Data()}
    return transformers.Trainer(model, args, callbacks=callbacks, **data), callback


def losses(trainer):
    return [(x["step"], x["loss"]) for x in trainer.state.log_history if "loss" in x]


def same(a, b):
    ours, theirs = a.model.state_dict(), b.model.state_dict()
    return all(torch.equal(ours[x], theirs[x]) for x in theirs) and losses(a) == losses(b)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The reference run: without interruption and without LMC."""
    trainer, _ = make_trainer(tmp_path_factory.mktemp("straight"), series=False)
    trainer.train()
    return trainer


@pytest.mark.filterwarnings("ignore:.*has a lower number")  # the higher steps are still there
def test_a_training_goes_on_from_each_step(straight, tmp_path):
    trainer, callback = make_trainer(tmp_path, told=tmp_path / "x")
    assert callback.restore() is None
    trainer.train(resume_from_checkpoint=callback.restore())
    assert same(trainer, straight)
    names = [f"checkpoint-{n}" for n in range(2, STEPS + 1, 2)]
    assert callback.series.names() == names
    assert not [x for x in os.listdir(tmp_path) if x in names]  # each is only in the series
    for name in names:
        trainer, callback = make_trainer(tmp_path)
        directory = callback.restore(name)
        assert digest(directory) == (tmp_path / f"{name}.told").read_text()
        if name in (names[0], names[3]):
            trainer.train(resume_from_checkpoint=directory)
            assert same(trainer, straight)
            assert callback.series.names()[-1] == names[-1] and set(callback.series.names()) == set(names)
    whole, delta = (callback.series.path(x).stat().st_size for x in (names[0], names[1]))
    assert delta < whole


EVALUATES = {"eval_strategy": "steps", "eval_steps": 2, "metric_for_best_model": "loss", "load_best_model_at_end": True}
WORSE = {"learning_rate": 3.0, "lr_scheduler_type": "constant"}  # the best model is an early one


@pytest.mark.parametrize(
    "arguments", [{"save_total_limit": 1}, {"save_total_limit": 4}, {"save_total_limit": 1, **EVALUATES, **WORSE}, {"save_total_limit": 2, **EVALUATES, **WORSE}]
)
def test_rotation_is_the_trainers(tmp_path, arguments):
    arguments = {"weight_decay": 0.1, **arguments}
    theirs, _ = make_trainer(tmp_path / "theirs", series=False, **arguments)
    theirs.train()
    ours, callback = make_trainer(tmp_path / "ours", **arguments)
    ours.train()
    names = {x.name for x in (tmp_path / "theirs").glob("checkpoint-*")}
    assert set(callback.series.names()) == names and same(ours, theirs)
    assert len(list(callback.series.directory.glob("*.lmc"))) <= len(names) + 1
    best = theirs.state.best_model_checkpoint
    assert (best is None) == ("eval_steps" not in arguments)
    assert best is None or os.path.basename(best) == os.path.basename(ours.state.best_model_checkpoint)
    for name in names:
        callback.restore(name)
        for file in ("model.safetensors", "optimizer.pt", "rng_state.pth", "scheduler.pt"):
            x, y = ((tmp_path / directory / name / file).read_bytes() for directory in ("ours", "theirs"))
            assert x == y


@pytest.mark.parametrize("arguments", [{}, {"save_total_limit": 1, **EVALUATES, **WORSE}])
def test_saving_in_a_thread(tmp_path, arguments):
    """As with wait=True: the same snapshots, and no directory is left that has one."""
    for where, wait in (("a", True), ("b", False)):
        trainer, callback = make_trainer(tmp_path / where, options={"wait": wait}, **arguments)
        trainer.train()
    a, b = (Series(tmp_path / x / "series") for x in "ab")
    assert a.names() == b.names()
    for name in a.names():
        for x, series in (("a", a), ("b", b)):
            series.restore(name, tmp_path / "out" / x)
        for file in ("model.safetensors", "optimizer.pt", "rng_state.pth", "scheduler.pt"):
            assert (tmp_path / "out" / "a" / file).read_bytes() == (tmp_path / "out" / "b" / file).read_bytes()
    assert sorted(x.name for x in (tmp_path / "a").iterdir()) == sorted(x.name for x in (tmp_path / "b").iterdir())


@pytest.mark.filterwarnings("ignore:.*has a lower number")
def test_the_best_one_comes_back(tmp_path):
    """Resumes on a machine that has only the series, in the middle of the training."""
    arguments = {**EVALUATES, **WORSE}
    theirs, _ = make_trainer(tmp_path / "theirs", series=False, **arguments)
    theirs.train()
    best = os.path.basename(theirs.state.best_model_checkpoint)
    trainer, callback = make_trainer(tmp_path / "a", **arguments)
    trainer.train()
    os.rename(tmp_path / "a" / "series", tmp_path / "series")
    trainer, callback = make_trainer(tmp_path / "a", options={"directory": tmp_path / "series"}, **arguments)
    assert best < "checkpoint-8"
    for x in (tmp_path / "a").iterdir():
        shutil.rmtree(x)
    trainer.train(resume_from_checkpoint=callback.restore("checkpoint-8"))
    assert same(trainer, theirs) and os.path.basename(trainer.state.best_model_checkpoint) == best
    assert [x.name for x in (tmp_path / "a").iterdir()] == [best]


def test_directories_of_others_stay(tmp_path):
    trainer, callback = make_trainer(tmp_path, max_steps=2)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "log").touch()
    callback.series.add("runs", tmp_path / "runs")
    trainer.train()
    assert (tmp_path / "runs" / "log").exists() and not (tmp_path / "checkpoint-2").exists()


@pytest.mark.filterwarnings("ignore:.*has a lower number")  # the higher steps are still there
def test_a_directory_is_removed_for_its_content(tmp_path):
    """Three directories have names of the series: one equals its snapshot, one has other bytes, one has a file more."""
    trainer, callback = make_trainer(tmp_path, max_steps=8)
    trainer.train()
    for n in (4, 6, 8):
        callback.restore(f"checkpoint-{n}")
    with open(tmp_path / "checkpoint-6" / "optimizer.pt", "r+b") as file:
        file.seek(-100, os.SEEK_END)
        file.write(b"another")
    (tmp_path / "checkpoint-8" / "notes.txt").touch()
    trainer, callback = make_trainer(tmp_path, max_steps=2)
    with pytest.warns(UserWarning, match="is not what the series has under this name, and stays") as found:
        trainer.train()
    assert sum("and stays" in str(x.message) for x in found) == 2
    assert sorted(x.name for x in tmp_path.glob("checkpoint-*")) == ["checkpoint-6", "checkpoint-8"]
    assert b"another" in (tmp_path / "checkpoint-6" / "optimizer.pt").read_bytes()
    callback.restore("checkpoint-6")  # which replaces it, as asked
    trainer, callback = make_trainer(tmp_path, max_steps=2)
    with pytest.warns(UserWarning, match="checkpoint-8: is not what"):
        trainer.train()
    assert [x.name for x in tmp_path.glob("checkpoint-*")] == ["checkpoint-8"]


def test_moments_by_rule(tmp_path):
    trainer, callback = make_trainer(tmp_path, max_steps=4, width=256, options={"quantize": "*.exp_avg*=bits:8"})
    trainer.train()
    with lmc_codec.open(callback.series.path()) as reader:
        losses = {file.path: {x.loss is not None for x in file.tensors if x.size >= 4 << 14} for file in reader.files}
    assert losses["optimizer.pt"] == {True} and losses["model.safetensors"] == {False}
    trainer, callback = make_trainer(tmp_path, max_steps=6, width=256)
    trainer.train(resume_from_checkpoint=callback.restore())
    assert callback.series.names() == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]


def test_what_is_refused(tmp_path):
    args = transformers.TrainingArguments(str(tmp_path), report_to=[], use_cpu=True)
    for name, value in (("fsdp", True), ("deepspeed", "x.json"), ("save_on_each_node", True)):
        other = copy.copy(args)
        setattr(other, name, value)
        with pytest.raises(ValueError, match="FSDP, DeepSpeed, .* see lmc_integrations.dcp"):
            SeriesCallback(other)
    other = copy.copy(args)
    other.push_to_hub, other.hub_strategy = True, transformers.trainer_utils.HubStrategy("checkpoint")
    with pytest.raises(ValueError, match="hub_strategy"):
        SeriesCallback(other)
    callback = SeriesCallback(args)
    shard = tmp_path / "checkpoint-7" / "pytorch_model_fsdp_0" / "__0_0.distcp"
    shard.parent.mkdir(parents=True)
    shard.write_bytes(b"x")
    state = transformers.TrainerState(global_step=7, is_world_process_zero=True)
    with pytest.raises(ValueError, match="checkpoint-7: is made of shards"):
        callback.on_save(args, state, None)
    assert callback.series.names() == [] and shard.exists()


KILLS = 8


@pytest.mark.long
def test_kills(tmp_path, run_killed):
    """After kills at any moment all finished checkpoints exist, bit for bit, and the end is the same as without
    interruption."""
    rng = random.Random(1)
    arguments = {"max_steps": 9999, "lr_scheduler_type": "constant"}

    def work(report):
        callbacks = [Finished(tmp_path / "finished", report)]
        trainer, callback = make_trainer(tmp_path / "run", told=tmp_path / "x", callbacks=callbacks, save_steps=1, **arguments)
        trainer.train(resume_from_checkpoint=callback.restore())
        torch.save([trainer.model.state_dict(), losses(trainer)], tmp_path / "end.pt")

    for n in range(KILLS):
        assert not run_killed(work, rng)
        series, finished = Series(tmp_path / "run" / "series"), (tmp_path / "finished").read_text().split()
        names = series.names()
        assert set(finished) <= set(names) and len(names) <= len(set(finished)) + 1
        for name in names[-2:] if n < KILLS - 1 else names:
            series.restore(name, tmp_path / "restored")
            assert digest(tmp_path / "restored") == (tmp_path / f"{name}.told").read_text(), name
    arguments["max_steps"] = int(names[-1].split("-")[1]) + 2
    assert run_killed(work)
    trainer, _ = make_trainer(tmp_path / "straight", series=False, save_strategy="no", **arguments)
    trainer.train()
    weights, seen = torch.load(tmp_path / "end.pt")
    assert all(torch.equal(x, weights[name]) for name, x in trainer.model.state_dict().items()) and seen == losses(trainer)


def run_rank(directory):
    """Runs in each of two processes: trains to the end from the last checkpoint, or from the beginning."""
    trainer, callback = make_trainer(directory, save_steps=4, ddp_backend="gloo")
    trainer.train(resume_from_checkpoint=callback.restore(os.environ.get("RESUME")))
    torch.save([trainer.model.state_dict(), losses(trainer)], f"{directory}.{trainer.args.process_index}.pt")
    torch.distributed.barrier()  # if one process leaves first, threads of the other fail, and it aborts
    torch.distributed.destroy_process_group()
    # Freeing the trainer may wait forever: PyTorch's reducer keeps the GIL while it joins a thread of gloo that waits for
    # the GIL.
    os._exit(0)


@pytest.mark.long
def test_two_ranks(tmp_path):
    ends = []
    for resume in ({}, {"RESUME": "checkpoint-4"}):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = str(s.getsockname()[1])
        code = f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); import test_trainer; test_trainer.run_rank({str(tmp_path / 'run')!r})"
        environ = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1", **resume}
        ranks = [subprocess.Popen([sys.executable, "-c", code], env={**environ, "RANK": x, "LOCAL_RANK": x}) for x in "01"]
        assert [x.wait(600) for x in ranks] == [0, 0]
        ends.append([torch.load(f"{tmp_path}/run.{x}.pt") for x in "01"])
        series = Series(tmp_path / "run" / "series")
        assert set(series.names()) == {"checkpoint-4", "checkpoint-8", "checkpoint-12"}
        with lmc_codec.open(series.path("checkpoint-8"), base="auto") as reader:
            assert {"rng_state_0.pth", "rng_state_1.pth", "optimizer.pt"} <= {x.path for x in reader.files}
    for weights, seen in (*ends[0], *ends[1]):
        assert all(torch.equal(x, weights[name]) for name, x in ends[0][0][0].items())
        assert not seen or seen == ends[0][0][1]
