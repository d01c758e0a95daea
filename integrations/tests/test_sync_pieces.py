"""DTensors: each process publishes its pieces, and receivers make whole tensors."""

import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from lmc_integrations import _sync_pieces
from lmc_integrations._sync_codecs import SyncCorrupt
from lmc_integrations._sync_pieces import Piece, gather, read_pieces
from lmc_integrations.weight_sync import SyncError, SyncWrongBase, publish, receive
from safetensors.torch import load_file, save_file

INDEX = "model.safetensors.index.json"
DTYPES = {"columns": torch.float32, "uneven": torch.float8_e4m3fn}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(*(t[x].contiguous().view(-1).view(torch.uint8) for t in (a, b))) for x in b)


def make_steps(directory):
    """Four versions. "few" has fewer rows than processes, "none" no elements. 0 is also a directory of two files, of which one never changes."""
    shapes = {"rows": (60, 40), "columns": (30, 70), "same": (20, 20), "uneven": (37, 53), "few": (2, 9), "cube": (6, 5, 9), "frozen": (31, 11),
              "scale": (), "none": (0, 5), "twice": (3, 50)}  # fmt: skip
    torch.manual_seed(3)
    steps = [{name: torch.randn(shape).to(DTYPES.get(name, torch.bfloat16)) for name, shape in shapes.items()}]
    for step in (1, 2, 3):
        changed = {name: (t.float() * (1 + (torch.rand(t.shape) < 0.05))).to(t.dtype) for name, t in steps[-1].items()}
        changed["rows"][40:] = steps[-1]["rows"][40:]  # of some processes nothing
        steps.append({**changed, "frozen": steps[-1]["frozen"], **({"columns": steps[-1]["columns"]} if step == 2 else {})})
    for i, step in enumerate(steps):
        torch.save(step, directory / f"{i}.pt")
    (directory / "0").mkdir()
    save_file({x: t for x, t in steps[0].items() if x != "frozen"}, directory / "0/a.safetensors")
    save_file({"frozen": steps[0]["frozen"]}, directory / "0/b.safetensors")
    return steps


@pytest.fixture
def steps(tmp_path):
    return make_steps(tmp_path)


def run_ranks(directory, shape, *more):
    n = 1
    for x in shape:
        n *= x
    program, text = Path(__file__).with_name("sync_ranks.py"), ",".join(map(str, shape))
    running = [subprocess.Popen([sys.executable, program, str(i), str(n), directory, text, *more], stderr=subprocess.PIPE, text=True) for i in range(n)]
    said = [process.communicate(timeout=300)[1] for process in running]
    assert all(process.returncode == 0 for process in running), "\n".join(said)
    return [torch.load(directory / f"said{version}.pt", weights_only=False) for version in (1, 2)]


def load_all(local):
    return {**load_file(local / "a.safetensors"), **load_file(local / "b.safetensors")}


@pytest.mark.parametrize("shape, more", [
    ((3,), ()), ((2, 2), ()), ((2, 2), ("tp",)), pytest.param((1, 3), (), marks=pytest.mark.long), pytest.param((2, 3), (), marks=pytest.mark.long),
    pytest.param((3, 2), ("tp",), marks=pytest.mark.long),
])  # fmt: skip
def test_meshes(tmp_path, steps, shape, more):
    for number, said in enumerate(run_ranks(tmp_path, shape, *more), 1):
        (last,) = [x for x in said if "part" not in x[0]]
        changed = {x for x, t in steps[number].items() if not same({x: t}, {x: steps[number - 1][x]})}
        assert set(last[1]) == changed and last[2]["tensors"] == len(steps[0]) and last[2]["tensors_changed"] == len(changed)
        assert last[2]["bytes"] == sum(t.nbytes for t in steps[0].values())
        n_changed = sum(int((steps[number][x].float() != t.float()).sum()) for x, t in steps[number - 1].items())
        assert last[2]["share_changed"] == n_changed / sum(t.numel() for t in steps[0].values())  # replicas count once
    sync, local = tmp_path / "sync", tmp_path / "local"
    assert sorted(os.listdir(sync)) == [".lock", "weight_v000001", "weight_v000002"]
    assert receive(sync, local, version=1, base=tmp_path / "0").metrics["version"] == 1
    assert same(load_all(local), steps[1])
    untouched = (local / "b.safetensors").stat().st_ino
    said = receive(sync, local)
    assert same(load_all(local), steps[2]) and said.changed == sorted(changed) and (local / "b.safetensors").stat().st_ino == untouched
    assert "at version 2 already" in receive(sync, local)
    receive(sync, tmp_path / "late", base=tmp_path / "0")  # both at once
    assert same(load_all(tmp_path / "late"), steps[2])
    # a version of whole tensors upon one of pieces; a full one; and a receiver that has only the first
    publish(steps[3], sync, version=3, base=steps[2])
    assert receive(sync, local).changed == sorted(x for x in steps[3] if not same({x: steps[3][x]}, {x: steps[2][x]}))
    assert same(load_all(local), steps[3])
    receive(sync, tmp_path / "mixed", base=tmp_path / "0")
    assert same(load_all(tmp_path / "mixed"), steps[3])


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    directory = tmp_path_factory.mktemp("once")
    make_steps(directory)
    run_ranks(directory, (2,))
    return directory


@pytest.fixture
def published(tmp_path, steps, once):
    shutil.copytree(once / "sync", tmp_path / "sync")
    receive(tmp_path / "sync", tmp_path / "local", version=1, base=tmp_path / "0")
    return tmp_path / "sync", tmp_path / "local"


def test_what_is_checked(tmp_path, steps, published):
    sync, local = published
    index = sync / "weight_v000002" / INDEX
    good = json.loads(index.read_text())
    assert good["pieces"].keys() == {"rows", "columns", "uneven", "few", "cube", "frozen", "twice"} and "uneven[0:19,0:53]" in good["weight_map"]

    def refused(error, text):
        with pytest.raises(error, match=text):
            receive(sync, local)
        assert same(load_all(local), steps[1])

    def edit(change):
        said = json.loads(json.dumps(good))
        change(said)
        index.write_text(json.dumps(said))

    for change in (lambda x: x["pieces"]["rows"]["boxes"].pop(), lambda x: x["pieces"]["rows"]["boxes"].append([[0, 30], [0, 40]]),
                   lambda x: x["pieces"]["rows"].pop("shape"), lambda x: x["pieces"].update(rows=5), lambda x: x.update(pieces=[1]),
                   lambda x: x["pieces"]["rows"]["boxes"][0][0].append(3), lambda x: x["pieces"]["rows"].update(shape=["x", 40])):  # fmt: skip
        edit(change)
        refused(SyncCorrupt, "pieces: ")
    edit(lambda x: x["pieces"].pop("rows"))
    refused(SyncWrongBase, r"version 2 has tensor 'rows\[")
    edit(lambda x: x["pieces"].pop("frozen"))  # of which nothing is published: the digest says so
    refused((SyncCorrupt, SyncWrongBase), "another version 1|its digest is not")
    edit(lambda x: x["pieces"].update(other=x["pieces"]["rows"]))
    refused(SyncWrongBase, "is of one that is not there")
    edit(lambda x: x["pieces"]["rows"].update(shape=[60, 41], boxes=[[[0, 60], [0, 41]]]))
    refused(SyncWrongBase, "shape")
    edit(lambda x: None)
    (file,) = [sync / "weight_v000002" / x for x in {good["weight_map"]["columns[0:30,0:35]"] if "columns[0:30,0:35]" in good["weight_map"] else good["weight_map"]["cube[0:6,0:5,0:5]"]}]
    data = file.read_bytes()
    file.write_bytes(data[:-9] + bytes([data[-9] ^ 4]) + data[-8:])
    refused(SyncCorrupt, r"version 2, tensor '\w+\[")
    file.write_bytes(data)
    receive(sync, local)
    assert same(load_all(local), steps[2])


def test_state(tmp_path, steps, published):
    """Checksums of pieces are kept, so files that no version changes are not read again; if the state has none, they are."""
    sync, local = published
    state = local / ".weight_sync/state.json"
    said = json.loads(state.read_text())
    assert any(x.startswith("frozen[") for x in said["pieces"]) and said["published"] == json.loads((sync / "weight_v000001" / INDEX).read_text())["metadata"]["digest"]
    state.write_text(json.dumps({x: y for x, y in said.items() if x not in ("pieces", "published")}))
    with pytest.raises(SyncWrongBase, match="numbers began anew"):
        receive(sync, local)
    state.write_text(json.dumps({**said, "pieces": {}}))
    receive(sync, local)
    assert same(load_all(local), steps[2])
    other = tmp_path / "other"
    receive(sync, other, version=1, base=tmp_path / "0")
    (other / "b.safetensors").write_bytes((tmp_path / "0/b.safetensors").read_bytes()[:-1] + b"\x01")
    with pytest.raises(SyncWrongBase, match="was changed after version 1"):
        receive(sync, other)


def test_a_part_alone(tmp_path, steps, one_rank):
    """A process without a part= has not all pieces; and what several processes may do wrong."""
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, init_device_mesh

    mesh = init_device_mesh("cpu", (1,))
    alone = [{x: DTensor.from_local(t, mesh, [Shard(0) if t.dim() else Replicate()]) for x, t in step.items()} for step in steps[:2]]
    publish(alone[1], tmp_path / "sync", version=1, base=alone[0])
    assert "pieces" not in json.loads((tmp_path / "sync/weight_v000001" / INDEX).read_text())
    receive(tmp_path / "sync", tmp_path / "local", base=tmp_path / "0")
    assert same(load_all(tmp_path / "local"), steps[1])
    sums = {"x": DTensor.from_local(torch.ones(4), mesh, [Partial()])}
    with pytest.raises(TypeError, match="tensor 'x': .*[Pp]artial"):
        publish(sums, tmp_path / "sync", version=2, base=sums)


def test_parts_that_do_not_fit(monkeypatch, tmp_path, steps):
    """Pieces that are missing, overlap, differ, or are beside the whole tensor: no version. Equal ones are replicas."""
    from lmc_integrations import _sync_memory

    class Part:
        __create_chunk_list__ = None

        def __init__(self, t, box):
            self.t, self.box = t, box

    monkeypatch.setattr(_sync_memory, "_find_piece", lambda name, x: (Piece(name, list(x.t.shape), x.box), x.t[tuple(slice(a, b) for a, b in x.box)]))
    number = itertools.count()

    def put(*boxes, part=True, shape=None, other=0):
        """shape, other: rows of all parts but the first, and what is added to the values of the last one's new tensor."""
        run = str(next(number))
        for i, box in enumerate(boxes):
            make = [step["rows"] if shape is None or not i else step["rows"][:shape] for step in steps[:2]]
            make[1] = make[1] + other * (i + 1 == len(boxes))
            make = [{"rows": Part(t, box) if box else t} for t in make]
            said = publish(make[1], tmp_path / "sync", version=1, base=make[0], **({"part": (i, len(boxes), run)} if part else {}))
        return said

    first, second = [[0, 30], [0, 40]], [[30, 60], [0, 40]]
    for boxes, text in (
        ((first,), "not all of it"), ((first, first), "not all of it"), ((first, [[20, 60], [0, 40]]), "not all of it"), ((first, None), "as a whole"),
        ((first, [[30, 60], [0, 20]]), "not all of it"), ((first, second, [[20, 60], [0, 40]]), "not all of it"),
    ):  # fmt: skip
        with pytest.raises(SyncError, match=text):
            put(*boxes)
    with pytest.raises(SyncError, match="with part="):
        put(first, part=False)
    with pytest.raises(SyncError, match="two shapes"):
        put(first, [[30, 59], [0, 40]], shape=59)
    for boxes, more, name in (((first, second, first), {"other": 1}, "rows[0:30,0:40]"), ((first, first, [[30, 59], [0, 40]]), {"shape": 59}, "rows[0:30,0:40]"),
                              ((None, None), {"other": 1}, "rows")):  # fmt: skip
        with pytest.raises(SyncError, match=re.escape(f"'{name}' is in two parts, 0 and {1 if len(boxes) == 2 or 'shape' in more else 2}, ")):
            put(*boxes, **more)
    assert not (tmp_path / "sync/weight_v000001").exists()
    assert "1 of 1 tensors changed" in put(first, first, second, first, second)
    publish(steps[1], tmp_path / "whole", version=1, base=steps[0])
    receive(tmp_path / "whole", tmp_path / "local", base=tmp_path / "0")
    assert same(load_all(tmp_path / "local"), steps[1])


def test_gather():
    """Boxes of a grid, each once; all else is refused, whatever it is."""
    rng = random.Random(4)
    for _ in range(300):
        shape = [rng.randint(1, 6) for _ in range(rng.randint(1, 3))]
        sides = []
        for n in shape:
            cuts = sorted({0, n, *(rng.randint(0, n) for _ in range(rng.randint(0, 3)))})
            sides.append([list(x) for x in itertools.pairwise(cuts)])
        boxes = [list(x) for x in itertools.product(*sides)]
        rng.shuffle(boxes)
        assert gather(Piece("w", shape, x) for x in boxes)["w"].boxes == sorted(boxes)
        worse = [list(map(list, x)) for x in boxes]
        way = rng.randrange(3)
        if way == 0:
            worse.pop()
        elif way == 1:
            worse.append(rng.choice(worse))
        else:
            worse[0][0][1] += 1
        if worse:
            with pytest.raises(ValueError, match="not all of it"):
                gather(Piece("w", shape, x) for x in worse)
    many = {"w": {"shape": [10**6] * 8, "boxes": [[[i, i + 1]] * 8 for i in range(1000)]}}
    with pytest.raises(SyncCorrupt, match="not all of it"):
        read_pieces("x", {"pieces": many})  # at once
    assert read_pieces("x", {}) == {} and _sync_pieces.as_json({}) == {}


def test_replicas_without_part(tmp_path):
    """A process that has a replica, which another one publishes, would publish a version without that tensor."""

    class Replica(torch.Tensor):
        def __create_chunk_list__(self):
            raise AssertionError

    x = torch.ones(4).as_subclass(Replica)
    x.device_mesh, x.placements = type("Mesh", (), {"get_coordinate": lambda self: [1]})(), [type("Placement", (), {"is_replicate": lambda self: True})()]
    for tensors in ({"x": x}, {"x": x, "y": torch.ones(3)}):
        with pytest.raises(SyncError, match="tensor 'x'.*part="):
            publish(tensors, str(tmp_path / "sync"), version=1)
    assert not os.path.exists(tmp_path / "sync") or not any("1" in name for name in os.listdir(tmp_path / "sync"))
