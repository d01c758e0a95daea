#!/usr/bin/env python3
"""Tests of lmc_integrations.weight_sync: a publisher and receivers, and what goes wrong between them.

Usage: test_weight_sync.py [--long] [-v] [NAME...]      NAME: run only tests whose name contains it

The packages are taken from PYTHONPATH, or from build/python ("make build/python") and integrations/. LMC_DATA names the directory of real data (default ../shared/data). --long kills a
thousand receivers, not forty. Needs numpy; without xxhash or zstandard some is left out. What is published is read here by other code.
SPDX-License-Identifier: MIT
"""
import contextlib
import errno
import fcntl
import gc
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import zlib

import numpy as np

try:
    import xxhash
except ImportError:
    xxhash = None
try:
    import zstandard
except ImportError:
    zstandard = None

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGES = [os.path.join(ROOT, "build", "python"), os.path.join(ROOT, "integrations")]
PROGRAM = [sys.executable, "-m", "lmc_integrations.weight_sync"]
DATA = os.path.abspath(os.environ.get("LMC_DATA") or os.path.join(ROOT, "..", "shared", "data"))
LONG = "--long" in sys.argv
CHECKSUM = "xxh3-128" if xxhash else "adler32"
os.environ.update(PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), *PACKAGES))))
STATE = os.path.join(".weight_sync", "state.json")
INDEX = "model.safetensors.index.json"

sys.dont_write_bytecode = True
sys.path += [*PACKAGES, os.path.join(ROOT, "tests", "command")]
import lmc_codec # noqa: E402
from lmc_integrations import _sync_codecs, _sync_files, _sync_publish, _sync_receive, _sync_versions, weight_sync # noqa: E402
import case # noqa: E402
import test_filesystems # noqa: E402

# ---- checkpoints: name -> (dtype, shape, bytes), dealt out to files ----


def digest(data, algorithm=CHECKSUM):
    return xxhash.xxh3_128(data).hexdigest() if algorithm == "xxh3-128" else "%08x" % zlib.adler32(data)


def identity(model):
    """The digest of a version, as docs/weight-sync.md says."""
    rows = [[name, dtype, shape, digest(data, "xxh3-128")] for name, (dtype, shape, data) in sorted(model.items())]
    return xxhash.xxh3_128("".join(json.dumps(row) + "\n" for row in rows).encode()).hexdigest()


def make_model(scale=1, seed=1):
    rng = np.random.default_rng(seed)

    def bf16(n):
        return (rng.normal(0, 0.02, n).astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()

    n = int(1000 * scale)
    return {"embed": ("BF16", [300, n], bf16(300 * n)), "norm": ("F32", [77], rng.normal(1, 0.1, 77).astype("<f4").tobytes()),
            "mlp.up": ("F8_E4M3", [200, n], (rng.integers(0x20, 0x40, 200 * n) | rng.integers(0, 2, 200 * n) << 7).astype("u1").tobytes()),
            "mlp.scale": ("F32", [], b"\0\0\x80\x3f"), "counts": ("I32", [3 * n], rng.integers(0, 9, 3 * n).astype("<i4").tobytes()),
            "nothing": ("BF16", [0, 4], b""), "frozen": ("BF16", [50, n], bf16(50 * n)), "master": ("F32", [40, n],
            rng.normal(0, 0.02, 40 * n).astype("<f4").tobytes())}


FILES = {"model-00001-of-00003.safetensors": ["embed", "norm"], "model-00002-of-00003.safetensors": ["mlp.scale", "mlp.up", "counts", "master"],
         "model-00003-of-00003.safetensors": ["frozen", "nothing"]}
ONE_FILE = {"model.safetensors": ["master", "frozen", "nothing", "counts", "mlp.up", "embed", "norm", "mlp.scale"]}
WIDTH = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "I32": 4}


def train(model, seed, frozen=("frozen",)):
    """A training step: some percent of the elements of each tensor change a little."""
    rng, after = np.random.default_rng(seed), {}
    for name, (dtype, shape, data) in model.items():
        a = np.frombuffer(data, "<u%d" % WIDTH[dtype]).copy()
        if name not in frozen and a.size:
            moved = rng.random(a.size) < (0.03 if a.size > 100 else 0.5)
            moved[rng.integers(a.size)] = True
            a[moved] += 1
        after[name] = (dtype, shape, a.tobytes())
    return after


def safetensors(tensors, metadata=None):
    """[(name, dtype, shape, bytes)] -> the bytes of a file."""
    header, at = {"__metadata__": metadata} if metadata else {}, 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(t[3] for t in tensors)


def parse(data):
    """The bytes of a safetensors file -> ({name: (dtype, shape, bytes)}, metadata); strict."""
    n = int.from_bytes(data[:8], "little")
    header, at, tensors = json.loads(data[8:8 + n]), 0, {}
    metadata = header.pop("__metadata__", {})
    for name, t in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = t["data_offsets"]
        assert set(t) == {"dtype", "shape", "data_offsets"} and begin == at and end >= begin and n % 8 == 0, (name, t)
        tensors[name], at = (t["dtype"], t["shape"], data[8 + n + begin:8 + n + end]), end
    assert len(data) == 8 + n + at
    assert all(isinstance(v, str) for v in metadata.values())
    return tensors, metadata


def write(path, data):
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else json.dumps(data).encode())


def read(path):
    with open(path, "rb") as f:
        return f.read()


def write_checkpoint(directory, model, files=FILES):
    os.makedirs(directory)
    for file, names in files.items():
        write(os.path.join(directory, file), safetensors([(n, *model[n]) for n in names], {"format": "pt"}))
    if len(files) > 1:
        write(os.path.join(directory, INDEX), {"metadata": {"total_size": 1}, "weight_map": {n: f for f, names in files.items() for n in names}})
    write(os.path.join(directory, "config.json"), {"seed": len(files)})


def read_checkpoint(directory):
    model = {}
    for file in sorted(os.listdir(directory)):
        if file.endswith(".safetensors"):
            for name, t in parse(read(os.path.join(directory, file)))[0].items():
                assert name not in model
                model[name] = t
    return model


def content(directory):
    """All files below a directory, except the lock."""
    found = {}
    for d, _, files in os.walk(directory):
        found.update({os.path.join(d, f): read(os.path.join(d, f)) for f in files if f not in ("lock", ".lock")})
    return found


class Base(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="weight_sync.")
        self.addCleanup(shutil.rmtree, self.dir)
        self.sync, self.local = self.path("sync"), self.path("local")

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def vdir(self, n):
        return self.path("sync", "weight_v%06d" % n)

    def run_program(self, *args):
        """(exit code, output)"""
        p = subprocess.run([*PROGRAM, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertNotIn("Traceback", p.stdout)
        return p.returncode, p.stdout

    def call_any(self, *args):
        """The same without a new process, which is ten times faster."""
        if args[0] == "publish" and "--checksum" not in args and "skyrl" not in args:
            args += ("--checksum", CHECKSUM)
        said, before = io.StringIO(), sys.argv
        sys.argv = ["weight_sync", *map(str, args)]
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                returned = weight_sync.main()
        except SystemExit as end:
            returned = end.code
        finally:
            sys.argv = before
        return returned, said.getvalue()

    def call(self, *args, code=0):
        returned, said = self.call_any(*args)
        self.assertEqual(returned, code, (args, said))
        return said

    def publish(self, n, *args, code=0, base=None):
        """Version n from path("n"), which was made by series(), against that of version n - 1, or base; base False: full."""
        if base is not False:
            args += ("--base", self.path(str(n - 1 if base is None else base)))
        return self.call("publish", "--version", n, self.path(str(n)), self.sync, *args, code=code)

    def series(self, n, scale=1, files=FILES):
        """Checkpoints 0 .. n in directories of those names."""
        self.models = [make_model(scale)]
        for i in range(n):
            self.models.append(train(self.models[-1], i))
        for i, model in enumerate(self.models):
            write_checkpoint(self.path(str(i)), model, files)

    def receive(self, *args, code=0):
        return self.call("receive", self.sync, self.local, *args, code=code)

    def refused(self, code, message, *args):
        """receive ends with this exit code and text, and does not change the local copy."""
        before = content(self.local)
        said = self.receive(*args, code=code)
        self.assertRegex(said, message)
        self.assertEqual(content(self.local), before)

    def is_at(self, n):
        self.assertEqual(read_checkpoint(self.local), self.models[n])
        state = json.loads(read(os.path.join(self.local, STATE))) # SGLang reads the version, and leaves out all else
        self.assertEqual((state["version"], state["digest"]), ("%06d" % n, identity(self.models[n])))
        self.assertEqual(state["checksums"], {n: digest(t[2], "xxh3-128") for n, t in self.models[n].items()})
        files = {f: os.stat(os.path.join(self.local, f)) for f in os.listdir(self.local) if f.endswith(".safetensors")}
        self.assertEqual(state["files"], {f: [s.st_size, s.st_mtime_ns, s.st_ino] for f, s in files.items()})
        self.assertEqual(len(state), 4)
        self.assertEqual(sorted(os.listdir(os.path.join(self.local, ".weight_sync"))), ["lock", "state.json"])

    def edit(self, path, *keys, **values):
        """Sets values in a JSON file, below the keys; None removes."""
        whole = at = json.loads(read(path))
        for key in keys:
            at = at[key]
        for key, value in values.items():
            at.pop(key, None) if value is None else at.update({key: value})
        write(path, whole)


class Layout(Base):
    def test_delta(self):
        self.series(2)
        self.publish(2, "--base-version", 1)
        self.assertEqual(sorted(os.listdir(self.sync)), [".lock", "weight_v000002"])
        files = ["model-00000-of-00002.safetensors", "model-00001-of-00002.safetensors"]
        self.assertEqual(sorted(os.listdir(self.vdir(2))), files + [INDEX])
        index = json.loads(read(os.path.join(self.vdir(2), INDEX)))
        self.assertEqual(index["metadata"], {"version": "000002", "base_version": "000001", "delta_encoding": "prediction",
                                             "compression_format": "lmc", "checksum_format": CHECKSUM,
                                             "digest": identity(self.models[2]), "base_digest": identity(self.models[1])})
        changed, where = {"embed", "norm", "mlp.up", "mlp.scale", "counts", "master"}, {}
        for file in files:
            tensors, checksums = parse(read(os.path.join(self.vdir(2), file)))
            self.assertEqual(checksums, {n: digest(self.models[2][n][2]) for n in tensors})
            for name, (dtype, shape, payload) in tensors.items():
                self.assertEqual((dtype, shape), ("U8", [len(payload)]))
                self.assertLess(len(payload), len(self.models[2][name][2]) / 3 + 100)
                where[name] = file
        self.assertEqual(set(where), changed)
        self.assertEqual(index["weight_map"], where)

    def test_full(self):
        self.series(1)
        self.publish(1, base=False)
        for file in os.listdir(self.path("1")):
            self.assertEqual(read(self.path("1", file)), read(os.path.join(self.vdir(1), file)))
        more = json.loads(read(os.path.join(self.vdir(1), "weight_sync.json")))
        heads = {f: read(self.path("1", f)) for f in FILES}
        headers = {f: digest(d[:8 + int.from_bytes(d[:8], "little")]) for f, d in heads.items()}
        others = {f: digest(read(self.path("1", f))) for f in ("config.json", INDEX)}
        self.assertEqual(more, {"version": "000001", "digest": identity(self.models[1]), "checksum_format": CHECKSUM,
                                "checksums": {n: digest(t[2]) for n, t in self.models[1].items()}, "headers": {**headers, **others}})

    def test_unusual_names(self):
        """A checkpoint of one file of any name gets an index, by which receivers recognise a full version."""
        self.series(1, files={"weights.safetensors": ONE_FILE["model.safetensors"]})
        self.publish(1, base=False)
        self.assertEqual(set(json.loads(read(os.path.join(self.vdir(1), INDEX)))["weight_map"].values()), {"weights.safetensors"})
        self.receive()
        self.is_at(1)

    def test_package(self):
        try:
            import safetensors as package
        except ImportError:
            self.skipTest("the package safetensors is not there")
        self.series(1)
        self.publish(1)
        for file in os.listdir(self.vdir(1)):
            if file.endswith(".safetensors"):
                with package.safe_open(os.path.join(self.vdir(1), file), "np") as f:
                    self.assertEqual(set(f.keys()), set(f.metadata()))

    def test_same_bytes(self):
        """The output is the same for any number of threads."""
        self.series(1)
        self.publish(1, "--threads", 1)
        first = {os.path.basename(p): d for p, d in content(self.vdir(1)).items()}
        shutil.rmtree(self.vdir(1))
        self.publish(1, "--threads", 5)
        self.assertEqual({os.path.basename(p): d for p, d in content(self.vdir(1)).items()}, first)

    def test_nothing_changed(self):
        self.series(1)
        self.models[1] = self.models[0]
        shutil.rmtree(self.path("1"))
        write_checkpoint(self.path("1"), self.models[0])
        self.assertIn("0 of 8 tensors changed", self.publish(1))
        self.assertEqual(os.listdir(self.vdir(1)), [INDEX])
        self.receive("--base", self.path("0"))
        self.is_at(1)

    def test_adler32(self):
        self.series(1)
        self.publish(1, "--checksum", "adler32")
        _, checksums = parse(read(os.path.join(self.vdir(1), "model-00000-of-00002.safetensors")))
        self.assertEqual(checksums["norm"], digest(self.models[1]["norm"][2], "adler32"))
        self.receive("--base", self.path("0"))
        self.is_at(1)


class Receiving(Base):
    def test_chain(self):
        self.series(5)
        self.publish(1, base=False)
        for n in range(2, 6):
            self.publish(n)
        self.receive("--version", 1)
        self.is_at(1)
        frozen = os.stat(self.path("local", "model-00003-of-00003.safetensors"))
        self.receive("--version", 2)
        self.is_at(2)
        self.assertIn("from version 2 by 3 deltas", self.receive())
        self.is_at(5)
        self.assertEqual(os.stat(self.path("local", "model-00003-of-00003.safetensors")), frozen) # its tensors are the same
        self.assertIn("at version 5 already", self.receive())
        self.is_at(5)
        self.assertEqual(read(self.path("local", "config.json")), read(self.path("1", "config.json")))

    def test_other_files(self):
        """Tensors are matched by name: the receiver's checkpoint may have other files than the publisher's."""
        self.series(2)
        self.publish(1)
        self.publish(2)
        write_checkpoint(self.path("model"), self.models[0], ONE_FILE)
        self.refused(4, "begin at version 0.*--base")
        self.receive("--base", self.path("model"))
        self.is_at(2)
        self.assertTrue(os.path.exists(self.path("local", "model.safetensors")))

    def test_new_anchor(self):
        self.series(5)
        self.publish(1, base=False)
        self.publish(2)
        self.publish(3)
        shutil.rmtree(self.path("4"))
        write_checkpoint(self.path("4"), self.models[4], ONE_FILE)
        self.publish(4, base=False)
        self.publish(5)
        self.receive("--version", 2)
        write(self.path("local", "notes.txt"), b"mine")
        for n in (2, 3): # these versions are not needed any more
            shutil.rmtree(self.vdir(n))
        self.assertIn("weight_v000004 by 1 delta", self.receive())
        self.is_at(5)
        self.assertEqual([f for f in sorted(os.listdir(self.local)) if f[0] != "."], ["config.json", "model.safetensors", "notes.txt"])
        self.local = self.path("late")
        self.refused(4, "version 3 is missing", "--version", 3)
        self.receive()
        self.assertEqual(read_checkpoint(self.local), self.models[5])

    def test_skipping_base(self):
        """A base may be any earlier version."""
        self.series(7)
        self.publish(3, base=False)
        self.publish(7, "--base-version", 3, base=3)
        self.receive()
        self.is_at(7)

    def test_two_at_once(self):
        self.series(3)
        self.publish(1, base=False)
        self.publish(2)
        self.publish(3)
        both = [subprocess.Popen([*PROGRAM, "receive", self.sync, self.local], stdout=subprocess.PIPE) for _ in range(2)]
        said = b"".join(p.communicate()[0] for p in both)
        self.assertEqual([p.returncode for p in both], [0, 0])
        self.assertIn(b"at version 3 already", said)
        self.is_at(3)


class Changing(Base):
    def test_changed_after_its_checksum(self):
        """The stored bytes are checked: a source file that changes after its checksum was taken does no harm."""
        self.series(1)
        self.publish(1, base=False)
        find, vdir = _sync_versions.find_checksum, self.vdir(1)
        flipped = set()

        class Flipping(_sync_codecs.Checksum):
            def __call__(self, data):
                result = super().__call__(data)
                for path in (os.path.join(vdir, name) for name in FILES):
                    whole = read(path)
                    if path in flipped or not len(data) or not whole.endswith(bytes(data)): continue
                    flipped.add(path)  # the file's last tensor was just checked
                    with open(path, "r+b") as f:
                        f.seek(len(whole) - 1)
                        f.write(bytes([whole[-1] ^ 1]))
                return result

        def find_and_flip(algorithm):
            return Flipping(find(algorithm).new)
        _sync_versions.find_checksum = find_and_flip
        try:
            returned, _ = self.call_any("receive", self.sync, self.local)
        finally:
            _sync_versions.find_checksum = find
        self.assertEqual(len(flipped), len(FILES))
        self.assertEqual(returned, 0)
        self.is_at(1)

    def test_leases(self):
        """A server of files holds leases for its clients, and gives them up when it is asked to."""
        self.series(1)
        self.publish(1, base=False)
        index = os.path.join(self.vdir(1), INDEX)
        holder = test_filesystems.Holder("F_WRLCK", 0.2, [index])
        self.receive()
        self.assertEqual(holder.end(), index + "\n")
        self.is_at(1)

    def test_links_and_pipes(self):
        self.series(1)
        self.publish(1, base=False)
        path = os.path.join(self.vdir(1), "config.json")
        os.rename(path, self.path("elsewhere"))
        os.symlink(self.path("elsewhere"), path)
        self.refused(3, "is a link")
        os.unlink(path)
        os.rename(self.path("elsewhere"), path)
        index = os.path.join(self.vdir(1), INDEX)
        if os.path.exists(index): os.unlink(index)
        os.mkfifo(index)
        p = subprocess.run([*PROGRAM, "receive", self.sync, self.local], capture_output=True, text=True, timeout=60)
        self.assertEqual(p.returncode, 3, p.stderr)
        self.assertIn("is not a file", p.stdout + p.stderr)


class Refusals(Base):
    def setUp(self):
        super().setUp()
        self.series(4)
        self.publish(1, base=False)
        for n in range(2, 5):
            self.publish(n)
        self.receive("--version", 2)

    def test_out_of_order(self):
        self.publish(4, base=2, code=1) # version 4 exists already
        shutil.rmtree(self.vdir(4))
        self.call("publish", "--version", 4, "--base", self.path("1"), "--base-version", 1, self.path("4"), self.sync)
        self.refused(4, "out of order: version 4 builds on version 1, and .* is at 2")
        self.refused(1, "is at version 2, which is newer than 1", "--version", 1)
        self.refused(4, "version 9 is missing", "--version", 9)

    def test_missing_link(self):
        shutil.rmtree(self.vdir(3))
        self.refused(4, "version 3 is missing.*version 4 builds on it")

    def test_unfinished(self):
        """If a publisher writes in place, with the index last, the version does not exist before the index."""
        os.unlink(os.path.join(self.vdir(4), INDEX))
        self.receive()
        self.is_at(3)
        self.refused(4, "version 4 is missing", "--version", 4)

    def test_wrong_base(self):
        file = self.path("local", "model-00001-of-00003.safetensors")
        data = bytearray(read(file))
        data[-1000] ^= 1
        write(file, bytes(data))
        self.refused(4, "local was changed after version 2 was received, e.g. tensor 'embed'")
        write(self.path("local", STATE), {"version": "000002"}) # as SGLang leaves it
        self.refused(4, "local is at another version 2 than .*weight_v000002")
        for n in (2, 3, 4): # of publishers that compute no digest
            if os.path.exists(self.vdir(n)):
                self.edit(os.path.join(self.vdir(n), INDEX), "metadata", digest=None, base_digest=None)
        self.refused(4, "version 3, tensor 'embed': .*local is not version 2, which it was made against")
        before = content(self.local)
        self.assertEqual(self.run_program("receive", self.sync, self.local)[0], 4)
        self.assertEqual(content(self.local), before)

    def test_wrong_tensors(self):
        write_checkpoint(self.path("model"), {n: t for n, t in self.models[0].items() if n != "norm"}, {"model.safetensors": ["embed"]})
        self.publish(1, code=1)
        shutil.rmtree(self.vdir(1))
        self.publish(1)
        self.local = self.path("other")
        self.refused(4, "version 1 has tensor 'counts', and .*model has not", "--base", self.path("model"))

    def test_wrong_size(self):
        model = dict(self.models[0], norm=("F32", [76], self.models[0]["norm"][2][4:]))
        write_checkpoint(self.path("model"), model)
        shutil.rmtree(self.vdir(1))
        self.publish(1)
        self.local = self.path("other")
        self.refused(3, "version 1, tensor 'norm'", "--base", self.path("model"))

    def test_foreign(self):
        index = os.path.join(self.vdir(4), INDEX)
        before = read(index)
        for values, message in (({"compression_format": "lz4"}, "compression_format 'lz4' is not one of lmc, zstd"),
                                ({"compression_format": None}, "compression_format None is not one of"),
                                ({"compression_format": ["lmc"]}, "compression_format .'lmc'. is not one of"),
                                ({"delta_encoding": "sparse"}, "delta_encoding 'sparse' is not known with lmc"),
                                ({"delta_encoding": "xor"}, "delta_encoding 'xor' is not known with lmc"),
                                ({"delta_encoding": ["xor"]}, "delta_encoding .'xor'. is not known"),
                                ({"checksum_format": "md5"}, "checksum_format 'md5' is not one of"),
                                ({"checksum_format": None}, "checksum_format None is not one of")):
            self.edit(index, "metadata", **values)
            self.refused(1, message)
            write(index, before)

    def test_contradictions(self):
        index = os.path.join(self.vdir(4), INDEX)
        before = read(index)
        for keys, values, message in ((("metadata",), {"version": "000005"}, "says that it is version 5"),
                                      (("metadata",), {"version": None}, "no number version"),
                                      (("metadata",), {"version": 1e999}, "no number version"),
                                      (("metadata",), {"base_version": "x"}, "no number base_version"),
                                      (("metadata",), {"base_version": "000004"}, "version 4 cannot build on 4"),
                                      (("metadata",), {"base_version": -1}, "version 4 cannot build on -1"),
                                      ((), {"metadata": 7}, "metadata is not an object"),
                                      ((), {"weight_map": None}, "index.json"),
                                      (("weight_map",), {"norm": None}, "not what weight_map says"),
                                      (("weight_map",), {"norm": "../x"}, "is not a file's name"),
                                      (("weight_map",), {"norm": ["x"]}, "index.json"),
                                      (("weight_map",), {"more": "model-00000-of-00002.safetensors"}, "tensors that are not there")):
            self.edit(index, *keys, **values)
            self.refused(3, message)
            write(index, before)
        for text in (b"", b"{", b"[]", b"[" * 99999, b"\xff"):
            write(index, text)
            self.refused(3, "JSON")
        write(index, before)
        self.receive()
        self.is_at(4)

    def test_wrong_checksum(self):
        file = os.path.join(self.vdir(4), "model-00000-of-00002.safetensors")
        tensors, checksums = parse(read(file))
        checksums["norm"] = checksums["norm"][::-1]
        write(file, safetensors([(n, *t) for n, t in tensors.items()], checksums))
        self.refused(3, "version 4, tensor 'norm': wrong checksum")
        del checksums["norm"]
        write(file, safetensors([(n, *t) for n, t in tensors.items()], checksums))
        self.refused(3, "no checksum for tensor 'norm'")

    def test_anchor(self):
        """Full versions are checked, too."""
        self.local = self.path("late")
        file = os.path.join(self.vdir(1), "model-00003-of-00003.safetensors")
        data = read(file)
        write(file, data[:-5] + bytes([data[-5] ^ 4]) + data[-4:])
        self.refused(3, "version 1, tensor 'frozen': wrong checksum")
        write(file, data[:-1])
        self.refused(3, "1 bytes are missing at its end")
        write(file, data.replace(b"BF16", b"F16 ", 1))
        self.refused(3, "its header has another checksum")
        os.unlink(file)
        self.refused(1, "its index and its files do not have the same tensors")
        index = os.path.join(self.vdir(1), INDEX)
        before = read(index)
        self.edit(index, "weight_map", frozen=None, nothing=None)
        self.refused(3, "tensors and checksums are not the same")
        write(index, before)
        write(file, data)
        self.receive()
        self.is_at(4)

    def test_cut_short(self):
        file = os.path.join(self.vdir(4), "model-00000-of-00002.safetensors")
        data = read(file)
        for size in (0, 7, 8, 20, len(data) // 2, len(data) - 1):
            write(file, data[:size])
            self.refused(3, "is damaged")
        os.unlink(file)
        self.refused(1, "is missing: not all of it has arrived")
        write(file, data)
        self.receive()
        self.is_at(4)

    def test_bit_flips(self):
        """No flipped bit in a shard does harm; in a payload it is corrupt data."""
        rng = random.Random(7)
        codes = {}
        for file in ("model-00000-of-00002.safetensors", "model-00001-of-00002.safetensors"):
            file = os.path.join(self.vdir(3), file)
            data = read(file)
            begin = 8 + int.from_bytes(data[:8], "little")
            places = [rng.randrange(begin) for _ in range(12)] + [rng.randrange(begin, len(data)) for _ in range(30)]
            places += [begin + i for i in range(0, 24, 3)] # the first block's header
            for place in places:
                write(file, data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1:])
                before = content(self.local)
                code, said = self.call_any("receive", self.sync, self.local)
                codes[code] = codes.get(code, 0) + 1
                if place >= begin:
                    self.assertEqual(code, 3, (place - begin, said))
                if code:
                    self.assertIn(code, (1, 3, 4), said)
                    self.assertEqual(content(self.local), before)
                else: # e.g. another letter in a key that nobody reads
                    self.is_at(4)
                    shutil.rmtree(self.local)
                    write(file, data)
                    self.receive("--version", 2)
            write(file, data)
        print("bit flips, exit codes: %s" % codes)
        self.receive()
        self.is_at(4)

    def test_mutations(self):
        """Indices and headers with exchanged parts: a published version is received, or nothing."""
        rng, codes = random.Random(11), {}

        def mutate(value):
            if isinstance(value, dict) and value and rng.random() < 0.9:
                key = rng.choice(sorted(value))
                way = rng.random()
                if way < 0.15:
                    return {k: v for k, v in value.items() if k != key}
                return dict(value, **{rng.choice(["norm", "x"]): value[key]} if way < 0.25 else {key: mutate(value[key])})
            if isinstance(value, list) and value and rng.random() < 0.8:
                at = rng.randrange(len(value))
                return value[:at] + [mutate(value[at])] + value[at + 1:]
            return rng.choice([None, 0, -1, 7, 1e999, 10**30, "", "x", "../x", [], {}, ["a"], {"a": 1}, True, "000004", "\ud800", 3.5])

        if xxhash:
            self.publish(4, "--layout", "skyrl") # does not take the other's place, which is found first
            shutil.rmtree(self.vdir(4))
        files = sorted(f for f in content(self.sync) if f.endswith((".json", ".safetensors")) and not f.endswith("config.json"))
        second = self.path("second")
        shutil.copytree(self.local, second)
        for i in range(3000 if LONG else 150):
            file, self.local = rng.choice(files), self.path("third")
            shutil.rmtree(self.local, ignore_errors=True)
            if rng.random() < 0.7:
                shutil.copytree(second, self.local)
            data = read(file)
            n = int.from_bytes(data[:8], "little")
            before = content(self.local)
            if file.endswith(".json"):
                write(file, mutate(json.loads(data)))
            else:
                text = json.dumps(mutate(json.loads(data[8:8 + n]))).encode()
                text += b" " * (-len(text) % 8)
                write(file, len(text).to_bytes(8, "little") + text + data[8 + n:])
            code, said = self.call_any("receive", self.sync, self.local)
            codes[code] = codes.get(code, 0) + 1
            self.assertIn(code, (0, 1, 3, 4), said)
            if code:
                self.assertEqual(content(self.local), before)
            else:
                self.assertIn(read_checkpoint(self.local), self.models)
            write(file, data)
        print("mutations, exit codes: %s" % codes)

    def test_local(self):
        os.unlink(self.path("local", STATE))
        self.refused(1, "holds files, and no .* says which version")
        write(self.path("local", STATE), b"{")
        self.refused(3, "is not JSON")
        write(self.path("local", STATE), {"version": "x"})
        self.refused(3, "no number version")

    def test_local_files_gone(self):
        for version in (None, 4):
            for files in (list(FILES)[:1], list(FILES)):
                shutil.rmtree(self.local)
                self.receive("--version", 3)
                for file in files:
                    os.unlink(self.path("local", file))
                self.refused(4, r"/local: .* of version 3, which was received there, gone: remove this directory, with \.weight_sync in it, and receive again",
                             "--version", version or 3)
                shutil.rmtree(self.local)
                self.receive()

    def test_delta_that_does_not_say_so(self):
        """Payloads of a delta are never taken for a model."""
        index = os.path.join(self.vdir(4), INDEX)
        for anew in (False, True):
            if anew:
                shutil.rmtree(self.local)
                os.mkdir(self.local)
            before = read(index)
            self.edit(index, "metadata", delta_encoding=None)
            self.refused(3, "a delta, and delta_encoding is missing")
            self.edit(index, metadata=None)
            self.refused(3, "holds the payloads of a delta")
            write(index, before)

    def test_stage_gone(self):
        """It is unknown whether the files were moved or lost, so receive refuses."""
        write(self.path("local", STATE), {"version": "000001", "commit": {"version": "000002", "remove": []}})
        self.refused(1, "stage is gone.*receive into an empty directory")


class Identity(Base):
    """The number of a version does not say what it is: a digest of all tensors does."""

    def setUp(self):
        super().setUp()
        self.models = [make_model()]

    def step(self, name, before, seed, **changes):
        """A checkpoint in path(name): all tensors but norm and frozen are trained; changes: tensor -> of which seed it is."""
        model = train(before, seed, frozen=("frozen", "norm"))
        for tensor, other in changes.items():
            model[tensor] = make_model(seed=other)[tensor]
        write_checkpoint(self.path(name), model)
        return model

    def put(self, version, base, new, code=0, *args):
        bases = ("--base", self.path(base)) if base else ()
        return self.call("publish", "--version", version, *bases, *args, self.path(new), self.sync, code=code)

    def has(self, model):
        self.assertEqual(read_checkpoint(self.local), model)

    def begin(self):
        """The engine is at version 1 of a run that is over; a new run has its own version 1, 2 and 3."""
        base = self.models[0]
        write_checkpoint(self.path("base"), base)
        self.step("old1", base, 1, norm=7)
        self.put(1, "base", "old1")
        self.receive("--base", self.path("base"))
        shutil.rmtree(self.sync)
        self.new = [base]
        for n in (1, 2, 3):
            self.new.append(self.step("new%d" % n, self.new[-1], 10 + n))
            self.put(n, "new%d" % (n - 1) if n > 1 else "base", "new%d" % n)

    def test_same_number(self):
        self.begin()
        self.refused(4, "is at another version 1 than .*weight_v000001: numbers began anew", "--version", 1)
        self.refused(4, "is at another version 1 than", "--version", 2)
        self.refused(4, "is at another version 1 than", "--version", 3)
        shutil.rmtree(self.vdir(1)) # then version 2 alone tells
        self.refused(4, "version 2 was made against another version 1 than .*local", "--version", 2)
        self.local = self.path("empty")
        self.refused(4, "version 1 is missing", "--base", self.path("base"))
        self.put(1, "base", "new1")
        self.receive("--base", self.path("base"))
        self.has(self.new[3])

    def test_full_versions(self):
        """A full version replaces whatever was there; the same number with other content is no news that may be left out."""
        self.begin()
        shutil.rmtree(self.vdir(1))
        self.put(1, None, "new1")
        self.refused(4, "is at another version 1", "--version", 1)
        self.put(4, None, "new3")
        self.receive()
        self.has(self.new[3])

    def test_other_base(self):
        """The engine's model differs from the publisher's in a tensor that no delta has."""
        self.begin()
        self.local = self.path("other local")
        self.step("revision", self.models[0], 1)
        write_checkpoint(self.path("other"), dict(self.models[0], frozen=make_model(seed=5)["frozen"]))
        for version in (1, 2, 3):
            self.refused(4, "version 1 was made against another version 0 than .*other", "--version", version, "--base", self.path("other"))
        renamed = {"embed.0" if n == "frozen" else n: t for n, t in self.models[0].items()}
        files = {f: ["embed.0" if n == "frozen" else n for n in names] for f, names in FILES.items()}
        write_checkpoint(self.path("renamed"), renamed, files)
        retyped = dict(self.models[0], frozen=("F16", *self.models[0]["frozen"][1:]))
        write_checkpoint(self.path("retyped"), retyped)
        dtype, shape, data = self.models[0]["frozen"]
        write_checkpoint(self.path("reshaped"), dict(self.models[0], frozen=(dtype, shape[::-1], data)))
        write_checkpoint(self.path("more"), dict(self.models[0], extra=("U8", [1], b"x")), dict(FILES, **{"x.safetensors": ["extra"]}))
        for base in ("renamed", "retyped", "reshaped", "more"):
            self.refused(4, "another version 0", "--version", 1, "--base", self.path(base))
        write_checkpoint(self.path("one file"), self.models[0], ONE_FILE) # the same tensors in another order
        self.receive("--base", self.path("one file"))
        self.has(self.new[3])

    def test_wrong_old_dir(self):
        """OLD_DIR differs from the published base, in a tensor that NEW_DIR has equally."""
        self.begin()
        before = content(self.sync)
        wrong = dict(self.new[3], frozen=make_model(seed=5)["frozen"])
        write_checkpoint(self.path("wrong"), wrong)
        new = self.step("new4", wrong, 14)
        self.assertRegex(self.put(4, "wrong", "new4", 4), "wrong is not version 3 as it was published")
        self.assertEqual(content(self.sync), before)
        self.put(4, None, "new4")
        wrong = dict(new, norm=make_model(seed=6)["norm"])
        write_checkpoint(self.path("wrong too"), wrong)
        self.step("new5", wrong, 15)
        self.assertRegex(self.put(5, "wrong too", "new5", 4), "is not version 4 as it was published: tensor 'norm' differs")

    def test_two_runs_in_one_directory(self):
        """Versions of two runs stand side by side: each says which base it was made against."""
        self.begin()
        shutil.rmtree(self.vdir(2))
        self.step("old2", read_checkpoint(self.path("old1")), 22)
        shutil.move(self.vdir(1), self.path("kept"))
        self.put(2, "old1", "old2") # its version 1 is not here: a warning
        shutil.move(self.path("kept"), self.vdir(1))
        self.local = self.path("anew")
        self.refused(4, "version 2.*", "--base", self.path("base"))
        self.refused(4, "version 2.*", "--base", self.path("base"), "--version", 2)

    def test_changed_local_files(self):
        """Of a file that has another size, time or inode than receive left it with, all is read again."""
        self.begin()
        self.local = self.path("anew")
        self.receive("--base", self.path("base"), "--version", 1)
        file = self.path("anew", "model-00003-of-00003.safetensors")
        good, state = read(file), read(self.path("anew", STATE))
        for change in (lambda: write(file, good[:-1] + bytes([good[-1] ^ 1])),
                       lambda: write(file, good.replace(b"BF16", b"F16 ")),
                       lambda: write(file, good + b"\0" * 0 + good[:0]) or os.truncate(file, len(good) - 2)):
            change()
            code, said = self.call_any("receive", self.sync, self.local, "--version", 1)
            self.assertNotEqual(code, 0, said)
            self.assertNotEqual(self.call_any("receive", self.sync, self.local)[0], 0)
            self.assertEqual(read(self.path("anew", STATE)), state)
        write(file, good) # the same content with another time
        self.assertIn("at version 1 already", self.receive("--version", 1))
        self.assertNotEqual(read(self.path("anew", STATE)), state)
        self.receive()
        self.has(self.new[3])
        shutil.copytree(self.local, self.path("moved")) # other inodes
        self.local = self.path("moved")
        self.assertIn("already", self.receive())

    def test_state_of_others(self):
        """SGLang writes only the version, and older receivers did: then all of the local copy is read, and compared with what is published."""
        self.begin()
        self.local = self.path("anew")
        self.receive("--base", self.path("base"), "--version", 1)
        for state in ({"version": "000001"}, {"version": 1, "digest": None}, {"version": "1", "digest": identity(self.new[1]), "checksums": 7},
                      {"version": "1", "digest": identity(self.new[1]), "checksums": {"norm": 1}, "files": []}):
            write(self.path("anew", STATE), state)
            self.assertIn("already", self.receive("--version", 1))
            self.assertEqual(json.loads(read(self.path("anew", STATE)))["digest"], identity(self.new[1]))
        write(self.path("anew", STATE), {"version": "000001", "digest": 7})
        self.refused(3, "digest is not a string")
        shutil.rmtree(self.path("anew"))
        write_checkpoint(self.path("anew"), read_checkpoint(self.path("old1")))
        os.mkdir(self.path("anew", ".weight_sync"))
        write(self.path("anew", STATE), {"version": "000001"})
        self.refused(4, "is at another version 1", "--version", 1)
        self.refused(4, "is at another version 1")

    def test_published_digests(self):
        """A digest that does not fit what is published is damage; without one only the changed tensors are compared."""
        self.begin()
        self.local = self.path("anew")
        index, text = os.path.join(self.vdir(2), INDEX), read(os.path.join(self.vdir(2), INDEX))
        self.edit(index, "metadata", digest="0" * 32)
        self.refused(4, "version 3 was made against another version 2", "--base", self.path("base"))
        self.refused(3, "its digest is not that of its tensors", "--base", self.path("base"), "--version", 2)
        self.edit(index, "metadata", digest=["x"])
        self.refused(3, "digest is not a string", "--base", self.path("base"))
        write(index, text)
        self.edit(index, "metadata", digest=None, base_digest=None)
        self.receive("--base", self.path("base"))
        self.has(self.new[3])
        self.put(4, None, "new3")
        self.edit(os.path.join(self.vdir(4), "weight_sync.json"), digest="0" * 32)
        self.refused(3, "its digest is not that of its tensors")
        self.edit(os.path.join(self.vdir(4), "weight_sync.json"), digest=None, version="000005")
        self.refused(3, "says that it is version 5")
        self.edit(os.path.join(self.vdir(4), "weight_sync.json"), version="000004")
        write(os.path.join(self.vdir(4), "config.json"), b"{}")
        self.refused(3, "config.json has another checksum")

    def test_base_that_receive_made(self):
        """A local checkpoint as OLD_DIR: its state says what it must be, even if its version is not published here."""
        self.begin()
        self.local = self.path("anew")
        self.receive("--base", self.path("base"))
        shutil.rmtree(self.sync)
        self.step("new4", self.new[3], 14)
        file = self.path("anew", "model-00003-of-00003.safetensors")
        data = read(file)
        write(file, data[:-1] + bytes([data[-1] ^ 1]))
        self.step("new4 of it", read_checkpoint(self.local), 14)
        self.assertIn("was changed after version 3 was received", self.put(4, "anew", "new4 of it", 4))
        write(file, data)
        self.put(4, "anew", "new4")

    def test_damage_beside_a_changed_tensor(self):
        """All that receive reads to write it again is checked, whatever the time of the file says."""
        self.begin()
        self.local = self.path("anew")
        self.receive("--base", self.path("base"), "--version", 2)
        for name in filter(lambda x: x.endswith(".safetensors"), os.listdir(self.local)):
            file = self.path("anew", name)
            status, frozen = os.stat(file), [t.offset for t in _sync_files.read_shard(file)[0] if t.name in ("frozen", "norm")]
            for at in frozen:
                with open(file, "r+b") as f:
                    byte = os.pread(f.fileno(), 1, at)
                    os.pwrite(f.fileno(), bytes([byte[0] ^ 1]), at)
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        self.refused(4, "anew was changed after it was received, e.g. tensor '(frozen|norm)'")

    @unittest.skipUnless(xxhash and zstandard, "xxhash or zstandard is not there")
    def test_all_layouts(self):
        self.begin()
        shutil.rmtree(self.sync)
        write_checkpoint(self.path("other"), dict(self.models[0], frozen=make_model(seed=5)["frozen"]))
        for args in (("--layout", "skyrl"), ("--compression", "zstd"), ("--layout", "skyrl", "--compression", "zstd"), ("--checksum", "adler32")):
            shutil.rmtree(self.sync, ignore_errors=True)
            self.local = self.path("-".join(args))
            self.put(1, "base", "new1", 0, *args)
            self.put(2, "new1", "new2", 0, *args)
            self.refused(4, "another version 0", "--base", self.path("other"))
            self.receive("--base", self.path("base"))
            self.has(self.new[2])


class Publishing(Base):
    def test_refusals(self):
        self.series(3)
        self.publish(1, base=False)
        before = content(self.sync)

        def refused(code, message, *args):
            self.assertRegex(self.call("publish", *args, code=code), message)
            self.assertEqual(content(self.sync), before)

        three, sync = self.path("3"), self.sync
        refused(1, "is there already", "--version", 1, three, sync)
        refused(4, "is not version 1 as it was published: tensor 'embed' differs", "--version", 2, "--base", self.path("2"), three, sync)
        write_checkpoint(self.path("more"), dict(self.models[1], norm=("F32", [11, 7], self.models[1]["norm"][2])))
        refused(1, "differ in more than values, e.g. in tensor 'norm'", "--version", 2, "--base", self.path("more"), three, sync)
        os.makedirs(self.path("1", ".weight_sync"))
        write(self.path("1", STATE), {"version": "000009"})
        refused(4, "is at version 9, not at 1", "--version", 2, "--base", self.path("1"), three, sync)
        refused(1, "no tensors", "--version", 2, self.path("1", ".weight_sync"), sync)
        refused(1, "is not a directory", "--version", 2, self.path("none"), sync)
        refused(1, "SkyRL has no full versions", "--version", 2, "--layout", "skyrl", three, sync)
        for args in ((), ("--version", 0, three, sync), ("--version", "x", three, sync), ("--version", 2, "--base-version", 1, three, sync),
                     ("--version", 2, "--threads", 5000, three, sync), ("--version", 2, "--threads", "x", three, sync),
                     ("--version", 2, "--base", three, "--base-version", 2, three, sync)):
            refused(2, "usage", *args)
        write(self.path("1", STATE), {"version": "000001", "commit": {}})
        refused(1, "files old and new: a receive is at work there, or was killed", "--version", 2, "--base", self.path("1"), three, sync)
        os.unlink(self.path("1", STATE))
        write_checkpoint(self.path("again"), self.models[3], ONE_FILE) # where shards were before, and their index is left
        shutil.copy(self.path("3", INDEX), self.path("again", INDEX))
        refused(1, "the index is of another checkpoint", "--version", 2, self.path("again"), sync)
        self.publish(2)
        refused_delta = os.path.join(self.sync, "weight_v000002")
        before = content(self.sync)
        refused(1, "holds a published delta", "--version", 3, refused_delta, sync)

    def test_locked(self):
        self.series(1)
        os.makedirs(self.sync)
        with open(self.path("sync", ".lock"), "a") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            self.assertIn("another process is at work", self.publish(1, code=1))


class Incumbents(Base):
    """The formats of slime, SGLang and SkyRL, written and read here without the package."""

    def write_version(self, number, base, encoding):
        old, new = self.models[number - 1], self.models[number]
        tensors, checksums = [], {}
        for name in new:
            a, b = (np.frombuffer(m[name][2], "u1") for m in (old, new))
            if (a != b).any():
                at = np.flatnonzero(a != b).astype("<u4")
                plain = (a ^ b).tobytes() if encoding == "xor" else np.uint32(at.size).astype("<u4").tobytes() + at.tobytes() + b[at].tobytes()
                packed = zstandard.ZstdCompressor(level=1).compress(plain)
                tensors.append((name, "U8", [len(packed)], packed))
                checksums[name] = digest(b.tobytes(), "adler32")
        os.makedirs(self.vdir(number))
        write(os.path.join(self.vdir(number), "model-00000-of-00001.safetensors"), safetensors(tensors, checksums))
        write(os.path.join(self.vdir(number), INDEX), {"metadata": {
            "version": "%06d" % number, "base_version": "%06d" % base, "delta_encoding": encoding, "compression_format": "zstd",
            "checksum_format": "adler32"}, "weight_map": {t[0]: "model-00000-of-00001.safetensors" for t in tensors}})

    @unittest.skipUnless(zstandard, "zstandard is not there")
    def test_read(self):
        """slime's xor and overwrite, and LMC's deltas, in one chain."""
        self.series(4)
        self.write_version(1, 0, "xor")
        self.write_version(2, 1, "overwrite")
        self.publish(3)
        self.publish(4, "--compression", "zstd")
        self.receive("--base", self.path("0"), "--version", 1)
        self.is_at(1)
        self.receive()
        self.is_at(4)

    @unittest.skipUnless(zstandard, "zstandard is not there")
    def test_damage(self):
        self.series(3)
        self.write_version(1, 0, "xor")
        self.receive("--base", self.path("0"))
        self.write_version(2, 1, "xor")
        self.write_version(3, 2, "overwrite")
        for n in (2, 3):
            file = os.path.join(self.vdir(n), "model-00000-of-00001.safetensors")
            data = read(file)
            tensors, checksums = parse(data)
            short = zstandard.ZstdCompressor().compress(bytes(3))
            far = zstandard.ZstdCompressor().compress(np.array([1, 1 << 30], "<u4").tobytes() + b"x")
            for payload in (b"", b"x" * 50, tensors["embed"][2][:-9], short, far, zstandard.ZstdCompressor().compress(bytes(3 << 20))):
                changed = dict(tensors, embed=("U8", [len(payload)], payload))
                write(file, safetensors([(k, *t) for k, t in changed.items()], checksums))
                self.refused(3, "version %d, tensor 'embed'" % n)
            write(file, data)
        self.receive()
        self.is_at(3)

    @unittest.skipUnless(zstandard, "zstandard is not there")
    def test_written_for_them(self):
        self.series(1)
        self.publish(1, "--compression", "zstd")
        meta = json.loads(read(os.path.join(self.vdir(1), INDEX)))["metadata"]
        self.assertEqual((meta["delta_encoding"], meta["compression_format"]), ("xor", "zstd"))
        for file in (f for f in os.listdir(self.vdir(1)) if f.endswith(".safetensors")):
            for name, (_, _, payload) in parse(read(os.path.join(self.vdir(1), file)))[0].items():
                plain = zstandard.ZstdDecompressor().decompress(payload)
                a, b = (np.frombuffer(m[name][2], "u1") for m in self.models)
                self.assertEqual(plain, (a ^ b).tobytes())

    @unittest.skipUnless(xxhash, "xxhash is not there")
    def test_skyrl(self):
        self.series(2)
        self.publish(1, "--layout", "skyrl")
        directory = self.path("sync", "v00000001")
        manifest = json.loads(read(os.path.join(directory, "manifest.json")))
        self.assertEqual(set(manifest) - {"delta_encoding", "compression_format", "digest", "base_digest"},
                         {"version", "base_version", "tensors", "payload_files", "total_uncompressed_num_bytes", "total_compressed_num_bytes"})
        self.assertEqual((manifest["version"], manifest["base_version"]), (1, 0))
        by_name = {r["name"]: r for r in manifest["tensors"]}
        self.assertEqual({n: r["dtype"] for n, r in by_name.items()}, {"embed": "bfloat16", "norm": "float32", "mlp.up": "float8_e4m3fn",
                         "mlp.scale": "float32", "counts": "int32", "master": "float32"})
        for name, r in by_name.items():
            tensors, _ = parse(read(os.path.join(directory, r["payload_file"])))
            self.assertEqual(len(tensors[r["payload_key"]][2]), r["compressed_num_bytes"])
            self.assertEqual((r["shape"], r["uncompressed_num_bytes"]), (self.models[1][name][1], len(self.models[1][name][2])))
            self.assertEqual((r["checksum_algorithm"], r["checksum"]), ("xxh3-128", digest(self.models[1][name][2])))
            self.assertIn(r["payload_file"], manifest["payload_files"])
        self.receive("--base", self.path("0"))
        self.is_at(1)
        self.publish(2, "--layout", "skyrl")
        file = self.path("sync", "v00000002", "manifest.json")
        before = read(file)
        for keys, values, code, message in (((), {"compression_format": None}, 1, "delta_encoding 'prediction' is not known with zstd"),
                                            ((), {"base_version": 2}, 3, "cannot build on"), ((), {"tensors": 5}, 3, "manifest"),
                                            (("tensors", 0), {"payload_key": "none"}, 3, "none"),
                                            (("tensors", 0), {"payload_file": "../x"}, 3, "file's name"),
                                            (("tensors", 0), {"name": 7}, 3, "not a tensor's"),
                                            (("tensors", 0), {"checksum": "00"}, 3, "wrong checksum"),
                                            (("tensors", 0), {"checksum_algorithm": "sha256"}, 1, "several checksum")):
            self.edit(file, *keys, **values)
            self.refused(code, message)
            write(file, before)
        self.receive()
        self.is_at(2)

    @unittest.skipUnless(xxhash and zstandard, "xxhash or zstandard is not there")
    def test_skyrl_read(self):
        self.series(1)
        self.publish(1, "--layout", "skyrl", "--compression", "zstd")
        self.edit(self.path("sync", "v00000001", "manifest.json"), compression_format=None, delta_encoding=None) # as SkyRL writes it
        self.receive("--base", self.path("0"))
        self.is_at(1)

    def test_documented_code(self):
        """Runs the code that weight_sync's docstring gives for other receivers and publishers."""
        import mmap
        import textwrap
        import threading
        blocks = re.findall(r"(?m)(?:^    .*\n|^\n)+", weight_sync.__doc__.split("A receiver of your own")[1].split("NVIDIA")[0])
        receiver, publisher = (textwrap.dedent(b) for b in blocks if b.strip())
        old, new = (np.frombuffer(make_model(1, seed)["embed"][2], "u1") for seed in (1, 2))
        new = np.where(np.arange(old.size) % 50 == 0, new, old)
        space = {"np": np, "lmc_codec": lmc_codec, "lock": threading.Lock(), "mismatches": [], "algorithm": CHECKSUM,
                 "_checksum": lambda algorithm, data: digest(data, algorithm), "new": new, "old": old, "dtype": "BF16", "name": "embed"}
        exec(receiver, space)
        exec(publisher, space)
        payload = space["compressed"].tobytes()
        self.assertLess(len(payload), new.size / 5)
        self.assertGreater(space["changed"], 0)
        for base, mismatches in ((old, []), (new, ["embed"])):
            write(self.path("shard"), b"header!!" + base.tobytes() + b"tail")
            with open(self.path("shard"), "r+b") as f, mmap.mmap(f.fileno(), 0) as mapped:
                space.update(open_mmaps={"p": (f, mapped)}, mismatches=[])
                space["apply_lmc"](("embed", memoryview(payload), "p", 8, old.size, digest(new.tobytes())))
                self.assertEqual(space["mismatches"], mismatches)
            self.assertEqual(read(self.path("shard")), b"header!!" + new.tobytes() + b"tail")


class InPython(Base):
    """publish() and receive() as functions."""

    def test_steps(self):
        self.series(2)
        with self.assertLogs("lmc_integrations.weight_sync", "WARNING"):  # nobody has published version 1
            weight_sync.publish(self.path("2"), self.sync, version=2, base=self.path("1"), checksum=CHECKSUM)
        weight_sync.publish(self.path("1"), self.sync, version=1, base=self.path("0"), checksum=CHECKSUM)
        self.assertIn("by 2 deltas", weight_sync.receive(self.sync, self.local, base=self.path("0")))
        self.is_at(2)
        self.assertIn("already", weight_sync.receive(self.sync, self.local))
        for error, options in ((weight_sync.SyncError, {"version": 1}), (weight_sync.SyncWrongBase, {"version": 4})):
            with self.assertRaises(error):
                weight_sync.receive(self.sync, self.local, **options)
        for options in ({"version": 0}, {"version": 3, "base_version": 3}, {"version": 3, "layout": "tar"}, {"version": 3, "compression": "gzip"}):
            with self.assertRaises(ValueError):
                weight_sync.publish(self.path("2"), self.sync, **options)
        self.is_at(2)


#: The calls that make a difference on disk.
STEPS = ((os, "replace"), (os, "rename"), (os, "unlink"), (os, "rmdir"), (os, "mkdir"), (os, "fsync"), (shutil, "rmtree"), (_sync_files, "write_at"))


def run_killed(args, kill_at=0, before=False, when=None):
    """Runs weight_sync in a process, and kills it at call number kill_at of STEPS: before the call, or after it; or when the
    function `when` returns, which is called as the process begins. Returns its exit code, or minus the signal."""
    calls = 0

    def counted(f):
        def call(*args, **kwargs):
            nonlocal calls
            calls += 1
            mine = calls
            if mine == kill_at and before:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return f(*args, **kwargs)
            finally:
                if mine == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
        return call

    child = os.fork() # a new interpreter would take ten times as long
    if child == 0:
        try:
            for module, name in STEPS if kill_at else ():
                setattr(module, name, counted(getattr(module, name)))
            sys.argv = ["weight_sync", *map(str, args)]
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(1, 2)
            os._exit(weight_sync.main())
        finally:
            os._exit(99)
    if when:
        when()
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Kills(Base):
    def is_old_or_new(self, old, new):
        """After a kill: tells old or new. Each file is one of the two; if not all are old, the state must say so."""
        state = json.loads(read(self.path("local", STATE)))
        for file, before in old.items():
            self.assertIn(read(self.path("local", file)), (before, new[file]), file)
        now = {f: read(self.path("local", f)) for f in old}
        self.assertEqual(sorted(f for f in os.listdir(self.local) if f[0] != "."), sorted(old))
        if "commit" in state:
            return "amidst the renames"
        self.assertEqual(state["digest"], identity(self.models[int(state["version"])]))
        if state["version"] == "000004":
            self.assertEqual(now, new)
            return "done"
        self.assertEqual(state["version"], "000001")
        self.assertEqual(now, old)
        return "nothing changed"

    def files(self, directory):
        return {f: read(os.path.join(directory, f)) for f in sorted(os.listdir(directory)) if f[0] != "."}

    def prepare(self, scale):
        """Version 1 received in path("first"), and versions 2 to 4 published; returns its files and those of version 4."""
        self.series(4, scale)
        self.publish(1, base=False)
        for n in range(2, 5):
            self.publish(n)
        self.receive("--version", 1)
        shutil.copytree(self.local, self.path("first"))
        self.receive()
        self.is_at(4)
        return self.files(self.path("first")), self.files(self.local)

    def start_anew(self):
        shutil.rmtree(self.local)
        shutil.copytree(self.path("first"), self.local)

    def resume(self, phase):
        said = self.receive()
        self.assertEqual("finished what a killed receive had begun" in said, phase == "amidst the renames", said)
        self.is_at(4)

    def test_receiver_at_random(self):
        old, new = self.prepare(8)
        rng, phases = random.Random(), {}
        self.start_anew()
        start = time.time()
        self.assertEqual(run_killed(("receive", self.sync, self.local)), 0)
        duration = time.time() - start
        n = 1000 if LONG else 40
        for i in range(n):
            self.start_anew()
            run_killed(("receive", self.sync, self.local), when=lambda: time.sleep(rng.uniform(0, duration * 1.1)))
            phase = self.is_old_or_new(old, new)
            phases[phase] = phases.get(phase, 0) + 1
            self.resume(phase)
        print("%d receivers killed at random: %s" % (n, phases))

    def test_receiver_at_each_step(self):
        old, new = self.prepare(0.1)
        phases = {}
        for before in (False, True):
            for at in range(1, 1000):
                self.start_anew()
                code = run_killed(("receive", self.sync, self.local), at, before)
                if code == 0:
                    self.is_at(4)
                    break
                self.assertEqual(code, -signal.SIGKILL)
                phase = self.is_old_or_new(old, new)
                phases[phase] = phases.get(phase, 0) + 1
                self.resume(phase)
            self.assertGreater(at, 15)
        self.assertEqual(set(phases), {"nothing changed", "amidst the renames", "done"})
        print("receivers killed at every step: %s" % phases)

    def test_first_receive(self):
        """A receiver without a state, and a full version with other files that replaces the old ones."""
        self.series(2, 0.1)
        self.publish(1, base=False)
        shutil.rmtree(self.path("2"))
        write_checkpoint(self.path("2"), self.models[2], ONE_FILE)
        self.publish(2, base=False)
        for first in (False, True):
            for at in range(1, 1000):
                shutil.rmtree(self.local, ignore_errors=True)
                if first:
                    self.receive("--version", 1)
                code = run_killed(("receive", self.sync, self.local), at)
                self.assertIn(code, (0, -signal.SIGKILL))
                if code:
                    self.receive()
                self.is_at(2)
                self.assertEqual([f for f in sorted(os.listdir(self.local)) if f[0] != "."], ["config.json", "model.safetensors"])
                if code == 0:
                    break
            self.assertGreater(at, 10)

    def test_killed_twice(self):
        """The receive that finishes a killed one may be killed, too."""
        old, new = self.prepare(0.1)
        for first in range(1, 1000): # until the first rename is reached
            self.start_anew()
            run_killed(("receive", self.sync, self.local), first)
            if self.is_old_or_new(old, new) == "amidst the renames":
                break
        shutil.copytree(self.local, self.path("torn"))
        for at in range(1, 1000):
            shutil.rmtree(self.local)
            shutil.copytree(self.path("torn"), self.local)
            if run_killed(("receive", self.sync, self.local), at) == 0:
                break
            self.resume(self.is_old_or_new(old, new))
        self.assertGreater(at, 3)

    def test_publisher(self):
        self.series(2, 0.1)
        self.publish(1, base=False)
        seen = set()
        for at in range(1, 1000):
            shutil.rmtree(self.vdir(2), ignore_errors=True)
            if run_killed(("publish", "--version", 2, "--base", self.path("1"), "--checksum", CHECKSUM, self.path("2"), self.sync), at) == 0:
                break
            there = os.path.isdir(self.vdir(2))
            seen.add(there)
            self.local = self.path("local%d" % at)
            self.receive()
            self.assertEqual(read_checkpoint(self.local), self.models[2 if there else 1])
            if not there:
                self.publish(2)
                self.assertEqual(sorted(os.listdir(self.sync)), [".lock", "weight_v000001", "weight_v000002"])
        self.assertEqual(seen, {True, False})


class Failing:
    """Within `with`, a function fails with an errno, from its call number `at` on (at most `most` times), for what is_meant(args) says."""

    def __init__(self, module, name, number, is_meant=lambda *args: True, at=1, most=1 << 30):
        self.module, self.name, self.number, self.is_meant, self.at, self.most = module, name, number, is_meant, at, most
        self.calls = self.failed = 0
        self.lock = threading.Lock()

    def __enter__(self):
        self.real = getattr(self.module, self.name)

        def call(*args, **kwargs):
            with self.lock:
                is_meant = self.is_meant(*args)
                self.calls += is_meant
                fails = is_meant and self.calls >= self.at and self.failed < self.most
                self.failed += fails
            if fails:
                raise OSError(self.number, os.strerror(self.number), *(a for a in args[:1] if isinstance(a, str))) # as the system call would
            return self.real(*args, **kwargs)

        setattr(self.module, self.name, call)
        return self

    def __exit__(self, *unused):
        setattr(self.module, self.name, self.real)


def is_directory(fd, *unused):
    return os.path.isdir("/proc/self/fd/%d" % (fd if isinstance(fd, int) else fd.fileno()))


def is_file(fd, *unused):
    return not is_directory(fd)


class FileSystems(Base):
    """What a file system cannot do is left out: locks, modes, syncs. All else is one error that names the file, and nothing has changed."""

    #: what fails: (module, function, which calls), and the errors by which file systems refuse it
    REFUSED = {
        "lock": ((fcntl, "flock"), (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EINVAL)),
        "sync": ((os, "fsync", is_file), (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM)),
        "sync_directory": ((os, "fsync", is_directory), (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM, errno.EBADF, errno.EISDIR, errno.EACCES)),
        "mode": ((os, "fchmod"), (errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EACCES, errno.EINVAL)),
    }
    FAILURES = {
        "sync": ((os, "fsync", is_file), (errno.EIO, errno.ENOSPC, errno.EDQUOT)),
        "write": ((os, "pwrite"), (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS)),
        "mode": ((os, "fchmod"), (errno.EIO,)),
        "rename": ((os, "rename"), (errno.EIO, errno.EXDEV, errno.EROFS, errno.EPERM)),
        "replace": ((os, "replace"), (errno.EIO, errno.EROFS, errno.EACCES)),
        "mkdir": ((os, "mkdir", lambda path, *unused: not os.path.isdir(path)), (errno.ENOSPC, errno.EROFS)),
        "read": ((os, "preadv"), (errno.EIO, errno.ESTALE)),
        "lock": ((fcntl, "flock"), (errno.EINTR, errno.ENOMEM)),
    }

    def setUp(self):
        super().setUp()
        self.series(2, 0.2)

    def both(self, n):
        self.publish(1, base=False)
        self.publish(2)
        self.receive("--version", 1)
        self.receive()
        self.is_at(2)

    def test_refused_calls(self):
        n = 0
        for call, (what, numbers) in self.REFUSED.items():
            for number in numbers:
                with self.subTest(call, errno=errno.errorcode[number]), contextlib.ExitStack() as stack:
                    shutil.rmtree(self.sync, ignore_errors=True)
                    shutil.rmtree(self.local, ignore_errors=True)
                    _sync_files._unlocked.clear()
                    fault = stack.enter_context(Failing(*what[:2], number, *what[2:]))
                    if call == "lock": # one warning for each of the two directories
                        logs = stack.enter_context(self.assertLogs("lmc_integrations.weight_sync", "WARNING"))
                    self.both(n)
                    self.assertGreater(fault.failed, 3)
                    if call == "lock":
                        self.assertEqual([("no locks" in r.getMessage(), r.levelname) for r in logs.records], [(True, "WARNING")] * 2)
                    n += 1
        self.assertEqual(n, 20)

    def test_all_refused_at_once(self):
        with contextlib.ExitStack() as stack:
            for what, _ in self.REFUSED.values():
                stack.enter_context(Failing(*what[:2], errno.ENOSYS, *what[2:]))
            with self.assertLogs("lmc_integrations.weight_sync", "WARNING"):
                _sync_files._unlocked.clear()
                self.both(0)

    def test_failures(self):
        """Each call fails once, the first and a later time, of publish and of receive."""
        self.publish(1, base=False)
        self.receive()
        before, published = content(self.local), content(self.sync)
        seen = 0
        for call, (what, numbers) in self.FAILURES.items():
            for number in numbers:
                for at in (1, 3):
                    with Failing(*what[:2], number, *what[2:], at=at, most=1) as fault:
                        code, said = self.call_any("publish", "--version", 2, "--base", self.path("1"), self.path("2"), self.sync)
                    seen += self.check_failure(fault, code, said, number)
                    if code:
                        self.assertTrue(content(self.sync) == published)
                        self.publish(2)
                    with Failing(*what[:2], number, *what[2:], at=at, most=1) as fault:
                        code, said = self.call_any("receive", self.sync, self.local)
                    seen += self.check_failure(fault, code, said, number)
                    if code:
                        state = json.loads(read(self.path("local", STATE)))
                        self.assertTrue("commit" in state or content(self.local) == before)
                        self.receive()
                    self.is_at(2)
                    shutil.rmtree(self.vdir(2))
                    shutil.rmtree(self.local)
                    self.receive()
                    before = content(self.local)
        self.assertGreater(seen, 30)

    def check_failure(self, fault, code, said, number):
        if not fault.failed:
            self.assertEqual(code, 0, (said, fault.name))
            return 0
        self.assertEqual((code, said.count("\n")), (1, 1), (said, fault.name, number))
        self.assertIn(os.strerror(number), said)
        self.assertIn(self.dir, said) # a path
        return 1

    def test_without_locks(self):
        """Several publishers and receivers at once, and no locks: the first to rename wins, and what it has is whole."""
        self.publish(1, base=False)
        self.receive()
        write(self.path("nolock.py"), b"import fcntl, errno, sys\ndef refuse(*unused): raise OSError(errno.ENOLCK, 'no locks')\n"
              b"fcntl.flock = refuse\nfrom lmc_integrations import weight_sync\nsys.exit(weight_sync.main())\n")

        def together(n, *args):
            p = [subprocess.Popen([sys.executable, self.path("nolock.py"), *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                 for _ in range(n)]
            return [(x.communicate()[0], x.returncode) for x in p]
        done = together(2, "publish", "--version", 2, "--base", self.path("1"), self.path("2"), self.sync, "--checksum", CHECKSUM)
        self.assertEqual(sorted(code for _, code in done), [0, 1], done)
        self.assertIn("is there already", "".join(said for said, _ in done))
        self.assertEqual(sorted(os.listdir(self.sync)), [".lock", "weight_v000001", "weight_v000002"])
        done = together(2, "receive", self.sync, self.local)
        self.assertIn(0, [code for _, code in done], done)
        self.receive() # with locks: removes what is left
        self.is_at(2)


class Interrupts(Base):
    """An exception at any moment (Ctrl-C, SIGTERM as SystemExit, a timeout), and then the same call again."""

    class Stop(BaseException):
        pass

    def run_interrupted(self, seconds, *args):
        """True: it was interrupted."""
        def stop(*unused):
            raise self.Stop
        before = signal.signal(signal.SIGALRM, stop)
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, seconds)
                self.call_any(*args)
                return False
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except self.Stop:
            return True
        finally:
            signal.signal(signal.SIGALRM, before)

    def test_at_random(self):
        self.series(2, 2)
        self.publish(1, base=False)
        rng, stopped = random.Random(5), 0
        start = time.time()
        self.publish(2)
        publishing = time.time() - start
        self.receive("--version", 1)
        shutil.copytree(self.local, self.path("first"))
        start = time.time()
        self.receive()
        receiving = time.time() - start
        descriptors = len(os.listdir("/proc/self/fd"))
        for _ in range(400 if LONG else 25):
            shutil.rmtree(self.vdir(2))
            stopped += self.run_interrupted(rng.uniform(0.0001, publishing), "publish", "--version", 2, "--base", self.path("1"), self.path("2"), self.sync)
            if not os.path.exists(self.vdir(2)):
                self.publish(2)
            left = {name for name in os.listdir(self.sync) if name.endswith(".tmp")}
            self.assertEqual(sorted(set(os.listdir(self.sync)) - left), [".lock", "weight_v000001", "weight_v000002"])
            self.assertFalse(any(os.listdir(self.path("sync", name)) for name in left)) # it was stopped after the rename; the next publish removes it
            shutil.rmtree(self.local)
            shutil.copytree(self.path("first"), self.local)
            stopped += self.run_interrupted(rng.uniform(0.0001, receiving), "receive", self.sync, self.local)
            state = json.loads(read(self.path("local", STATE)))
            if "commit" not in state:
                self.assertEqual(read_checkpoint(self.local), self.models[int(state["version"])])
            self.receive()
            self.is_at(2)
        gc.collect()
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), descriptors)
        self.assertGreater(stopped, 10)
        print("interrupted: %d" % stopped)


class CutFiles(Base):
    """A file that another process cuts or rewrites while it is read: an error that names it and both sizes, no signal."""

    def test_cut(self):
        self.series(2)
        self.publish(1, base=False)
        self.receive()
        file = "model-00001-of-00003.safetensors"
        for args, path in ((("publish", "--version", 2, "--base", self.path("1"), self.path("2"), self.sync), self.path("2", file)),
                           (("publish", "--version", 2, "--base", self.path("1"), self.path("2"), self.sync), self.path("1", file)),
                           (("publish", "--version", 2, self.path("2"), self.sync), self.path("2", file)),
                           (("receive", self.sync, self.path("new")), os.path.join(self.vdir(1), file))):
            for how in ("cut", "rewritten"):
                data, real = read(path), _sync_files.Checkpoint._open

                def open_and_change(checkpoint, path=path, data=data, real=real, how=how):
                    real(checkpoint)
                    if os.path.dirname(path) == checkpoint.directory:
                        os.truncate(path, 1000) if how == "cut" else write(path, data[:-1] + bytes([data[-1] ^ 1]))
                _sync_files.Checkpoint._open = open_and_change
                try:
                    code, said = self.call_any(*args)
                finally:
                    _sync_files.Checkpoint._open = real
                write(path, data)
                self.assertIn(code, (1, 3, 4), said)
                if how == "cut":
                    self.assertIn("%s: it had %d bytes when it was opened, and now has 1000" % (path, len(data)), said)
                else:
                    self.assertRegex(said, "changed while it was read|wrong checksum|is not version 1 as it was published")
                self.assertFalse(os.path.exists(self.vdir(2)))
                self.assertFalse(os.path.exists(self.path("new", "config.json")))
        with self.assertRaises(lmc_codec.ReadError):
            _sync_files.File(self.path("1", file)).read(os.path.getsize(self.path("1", file)) - 1, 2)
        payload = os.path.join(self.vdir(2), "model-00000-of-00002.safetensors")
        self.publish(2)
        opened = _sync_files.File.__init__

        def open_and_cut(f, path):
            opened(f, path)
            if path == payload and type(f) is _sync_files.File:
                os.truncate(path, 1000)
        _sync_files.File.__init__ = open_and_cut
        try:
            self.refused(1, "it had .* bytes when it was opened, and now has 1000")
        finally:
            _sync_files.File.__init__ = opened

    def test_received_meanwhile(self):
        """Another receiver replaces the files of a base while a publisher opens them."""
        self.series(3)
        for n in (1, 2, 3):
            self.publish(n, base=False if n == 1 else None)
        self.receive("--version", 2)
        args, parse, opened = ("publish", "--version", 3, "--base", self.local, self.path("3"), self.path("sync2")), _sync_files.Shard._parse, []

        def receive_then_parse(shard):
            if os.path.dirname(shard.path) == self.local and not opened:
                opened.append(shard.path)
                self.assertEqual(self.run_program("receive", self.sync, self.local)[0], 0)
            return parse(shard)
        _sync_files.Shard._parse = receive_then_parse
        try:
            code, said = self.call_any(*args)
        finally:
            _sync_files.Shard._parse = parse
        self.assertEqual(code, 1, said)
        self.assertRegex(said, "local: another process received a version there while its files were opened: repeat this")
        self.is_at(3)

    def test_nothing_is_mapped(self):
        for module in (_sync_files, _sync_receive, _sync_publish, _sync_codecs, _sync_versions):
            self.assertNotRegex(read(module.__file__).decode(), r"memmap|import mmap|mmap\.mmap")


class Series(Base):
    def test_real(self):
        """Real training steps; compares sizes with xor + zstd -1 in the same layout."""
        series = os.path.join(DATA, "series")
        pairs = [("step-000050", "step-000051"), ("step-001000", "step-001001"), ("step-001700", "step-001701"), ("step-001950", "step-001951")]
        if not os.path.isdir(series):
            self.skipTest("LMC_DATA has no series")
        for old, new in pairs:
            for step in (old, new):
                os.makedirs(self.path(step), exist_ok=True)
                shutil.copy(os.path.join(series, step, "model.bf16.safetensors"), self.path(step, "model.safetensors"))
            sizes = {}
            for compression in ("zstd", "lmc") if zstandard else ("lmc",):
                shutil.rmtree(self.sync, ignore_errors=True)
                shutil.rmtree(self.local, ignore_errors=True)
                self.call("publish", "--version", 1, "--base", self.path(old), "--compression", compression, self.path(new), self.sync)
                self.receive("--base", self.path(old))
                self.assertEqual(read_checkpoint(self.local), read_checkpoint(self.path(new)))
                sizes[compression] = sum(os.path.getsize(os.path.join(self.vdir(1), f)) for f in os.listdir(self.vdir(1)))
            self.assertLess(sizes["lmc"], sizes.get("zstd", sizes["lmc"] + 1))
            print("%s to %s: %d bytes as %s" % (old, new, os.path.getsize(self.path(new, "model.safetensors")), sizes))


if __name__ == "__main__":
    sys.exit(case.main(sys.executable, ["Layout.test_package"]))  # no Debian package provides what it wants
