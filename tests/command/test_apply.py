#!/usr/bin/env python3
"""Tests of lmc apply: deltas in place, refusals, kills and crashes.

Usage: test_apply.py [--long] [--kills N] [-v] [NAME...]      as case.py says

--kills N: how many kills at random moments (default 40, with --long 1000); they are counted by the states that they leave.
SPDX-License-Identifier: MIT
"""
import fcntl
import functools
import os
import random
import re
import resource
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time

from case import LMC, LONG, MB, SANITIZED, Case, bf16, f32, safetensors, take_signals
import case

KILLS = 1000 if LONG else 40
if "--kills" in sys.argv:
    at = sys.argv.index("--kills")
    KILLS = int(sys.argv[at + 1])
    del sys.argv[at:at + 2]

# ---- data ----


def flipped(data, rng, halvings=6):
    """Elements of 2 bytes; one in 2 ** halvings has its lowest bit flipped."""
    mask = int.from_bytes(b"\x01\x00" * (len(data) // 2), "little")
    for _ in range(halvings):
        mask &= int.from_bytes(rng.randbytes(len(data) // 2 * 2), "little")
    n = len(data) // 2 * 2
    return (int.from_bytes(data[:n], "little") ^ mask).to_bytes(n, "little") + data[n:]


def model_file(weights, metadata=None):
    return safetensors([("t%d" % i, "BF16", [len(w) // 2], w) for i, w in enumerate(weights)], metadata)


def steps_of_file(n, size=60000, seed=1):
    """Versions of a safetensors file, each a step after the one before."""
    rng = random.Random(seed)
    weights = [bf16(size // 4, seed), bf16(size // 4, seed + 1)]
    files = []
    for k in range(n):
        files.append(model_file(weights, {"step": "%04d" % k}))
        weights = [flipped(w, rng, 4) for w in weights]
    return files


def steps_of_tree(n):
    """Versions of a sharded checkpoint: {path: bytes}."""
    one, two, three = steps_of_file(n), steps_of_file(n, 30000, 7), steps_of_file(n, 20000, 8)
    return [{"model-1.safetensors": one[k], "model-2.safetensors": two[k], "config.json": b'{"step": %04d}' % k, "empty": b"",
             "optimizer/state.safetensors": three[k], "frozen.bin": bytes(range(256)) * 300} for k in range(n)]


# ---- the side file, in the format that the comment in cli/verb/apply.h describes ----

CRC = []
for i in range(256):
    for _ in range(8):
        i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
    CRC.append(i)


@functools.lru_cache(64)
def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def make_patches(number, old, new):
    out = b""
    for offset in range(0, len(new), 65536):
        a, b = old[offset:offset + 65536], new[offset:offset + 65536]
        a, b = a + bytes(-len(a) % 8), b + bytes(-len(b) % 8)
        changed = [i for i in range(len(b) // 8) if a[8 * i:8 * i + 8] != b[8 * i:8 * i + 8]]
        if not changed:
            continue
        masks = bytearray(-(-len(b) // 512) * 8)
        for i in changed:
            masks[i // 8] |= 1 << i % 8
        size = min(65536, len(new) - offset)
        out += struct.pack("<IIQII", number, len(changed), offset, size, 0) + masks + b"".join(b[8 * i:8 * i + 8] for i in changed)
    return out


def make_slot(number, n_done, patches):
    head = struct.pack("<QQQI", number, n_done, len(patches), crc32c(patches))
    return head + struct.pack("<I", crc32c(head)) + patches


def make_side_file(listing, delta, total, slots=(), n_start=0, name=b"some.lmc", capacity=1 << 16, version=1):
    """slots: (number, n_done, patches); listing: of the delta."""
    head = struct.pack("<8sIIQQQQII", b"\x8CLMCapl\n", version, len(name), total, n_start, capacity, len(delta), crc32c(delta[-65536:]), 0)
    head += b"".join(bytes.fromhex(listing[key]).ljust(32, b"\0") for key in ("fingerprint", "base_fingerprint")) + name.ljust(256, b"\0")
    head = head.ljust(508, b"\0")
    out = bytearray((head + struct.pack("<I", crc32c(head))).ljust(4096, b"\0"))
    for number, n_done, patches in slots:
        slot, place = make_slot(number, n_done, patches), 4096 + number % 2 * capacity
        out = bytearray(bytes(out).ljust(place + len(slot), b"\0"))
        out[place:place + len(slot)] = slot
    return bytes(out)


def read_slots(side):
    """The valid slots: (number, n_done, [(file, offset, size, words)], place, size); the newest is the last."""
    capacity, found = struct.unpack_from("<Q", side, 32)[0], []
    for k in (0, 1):
        place = 4096 + k * capacity
        head = side[place:place + 32].ljust(32, b"\0")
        number, n_done, size, crc, head_crc = struct.unpack("<QQQII", head)
        patches = side[place + 32:place + 32 + size]
        if number == 0 or crc32c(bytes(head[:28])) != head_crc or len(patches) != size or crc32c(patches) != crc:
            continue
        at, list_ = 0, []
        while at < size:
            file, n_words, offset, length, _ = struct.unpack_from("<IIQII", patches, at)
            n_masks = -(-length // 512)
            masks = int.from_bytes(patches[at + 24:at + 24 + 8 * n_masks], "little")
            words = at + 24 + 8 * n_masks
            changes = [i for i in range(64 * n_masks) if masks >> i & 1]
            assert len(changes) == n_words
            list_.append((file, offset, length, [(8 * i, patches[words + 8 * k:words + 8 * k + 8]) for k, i in enumerate(changes)]))
            at = words + 8 * n_words
        found.append((number, n_done, list_, place, 32 + size))
    return sorted(found)


class ApplyCase(Case):
    def put(self, name, content):
        if isinstance(content, bytes):
            return self.write(name, content)
        for path, data in content.items():
            self.write(name + "/" + path, data)

    def holds(self, name, content):
        found = self.snapshot(name)
        if not isinstance(content, bytes):
            found = {f: data for f, data in found.items() if data is not False}
        self.assertTrue(found == content, "%s does not hold what it should" % name)

    def side(self, name="t"):
        return self.path(os.path.join(os.path.dirname(name), ".%s.lmc-apply" % os.path.basename(name)))

    def make_chain(self, steps, *args):
        """s0, s1, ... and deltas d1, d2, ... between them."""
        for k, content in enumerate(steps):
            self.put("s%d" % k, content)
            if k:
                self.lmc(*args, "--base", "s%d" % (k - 1), "s%d" % k, "-o", "d%d" % k, says="")

    def copy(self, name, to="t"):
        if os.path.isdir(self.path(to)):
            shutil.rmtree(self.path(to))
        if os.path.isdir(self.path(name)):
            shutil.copytree(self.path(name), self.path(to))
        else:
            shutil.copyfile(self.path(name), self.path(to))
        return self.path(to)

    def apply(self, *args, **more):
        return self.lmc("apply", *args, **more)

    def apply_refuses(self, *args, **more):
        return self.refuses("apply", *args, **more)


# ---- what apply does ----


class Applies(ApplyCase):
    def test_a_file(self):
        steps = steps_of_file(3)
        self.make_chain(steps)
        os.chmod(self.path("s1"), 0o640)
        os.utime(self.path("s1"), ns=(1, 1234567890123456789))
        self.lmc("-f", "--base", "s0", "s1", "-o", "d1")
        for args in ((), ("--trust-base",), ("-T1",), ("-T4",)):
            path = self.copy("s0")
            inode = os.stat(path).st_ino
            self.apply(*args, "d1", "t")
            st = os.stat(path)
            self.assertEqual((st.st_ino, st.st_mode & 0o777, st.st_mtime_ns), (inode, 0o640, 1234567890123456789))
            self.holds("t", steps[1])
            self.assertFalse(os.path.exists(self.side()))

    def test_what_is_there_already(self):
        steps = steps_of_file(3)
        self.make_chain(steps)
        path = self.copy("s1")
        before = os.stat(path)
        for args in ((), ("--trust-base",)):
            self.apply_refuses(*args, "d1", "t", code=0, says="t: holds what d1 restores already")
        self.apply("-q", "d1", "t")
        after = os.stat(path)
        self.assertEqual((before.st_mtime_ns, before.st_mode, before.st_ino), (after.st_mtime_ns, after.st_mode, after.st_ino))

    def test_a_directory(self):
        steps = steps_of_tree(3)
        self.make_chain(steps)
        os.chmod(self.path("s1/optimizer"), 0o750)
        os.chmod(self.path("s1/config.json"), 0o600)
        os.utime(self.path("s1/optimizer"), ns=(1, 1234567890123456789))
        self.lmc("-f", "--base", "s0", "s1", "-o", "d1")
        for args in ((), ("--trust-base",), ("-T3",)):
            root = self.copy("s0")
            os.chmod(root, 0o711)
            inodes = {f: os.stat(root + "/" + f).st_ino for f in steps[0]}
            self.apply(*args, "d1", "t")
            self.holds("t", steps[1])
            self.assertEqual({f: os.stat(root + "/" + f).st_ino for f in steps[1]}, inodes)
            self.assertEqual(os.stat(root + "/optimizer").st_mtime_ns, 1234567890123456789)
            self.assertEqual([stat.S_IMODE(os.stat(root + f).st_mode) for f in ("", "/optimizer", "/config.json")], [0o711, 0o750, 0o600])
            self.apply(*args, "d1", "t", says="t: holds what d1 restores already")
            self.apply("d2", "t")
            self.holds("t", steps[2])
        self.assertFalse(os.path.exists(self.side()))

    def test_what_does_not_change_is_not_written(self):
        a = random.Random(1).randbytes(5000) + bytes(100000)
        self.write("s0/a", a)
        self.write("s0/b", b"x")
        shutil.copytree(self.path("s0"), self.path("s1"))
        self.write("s1/b", b"y")
        self.lmc("--base", "s0", "s1", "-o", "d1", says="")
        os.truncate(self.path("s0/a"), 5000)
        os.truncate(self.path("s0/a"), len(a))
        self.apply("d1", "s0")
        if os.stat(self.path("s0/a")).st_blocks > 64:
            self.skipTest("this file system has no holes")
        self.assertEqual((self.read("s0/a"), self.read("s0/b")), (a, b"y"))

    def test_how_often_the_target_is_read(self):
        """Once to identify it, and once as the prediction; the second time not for patches, nor to write them."""
        if not os.path.exists("/proc/self/io"):
            self.skipTest("needs /proc/PID/io")
        old = 16 * bf16(1 << 19)
        self.write("s0", old)
        self.write("s1", flipped(old, random.Random(1), 3))  # patches that fill two slots
        self.lmc("--dtype=BF16", "--base", "s0", "s1", "-o", "d1")
        for args, most in (((), 2), (("--trust-base",), 1)):
            self.copy("s0")
            p = subprocess.Popen([LMC, "apply", "-q", "-T1", "--dtype=BF16", *args, "d1", "t"], cwd=self.dir)
            os.waitid(os.P_PID, p.pid, os.WEXITED | os.WNOWAIT)
            with open("/proc/%d/io" % p.pid) as f:
                n_read = int(f.readline().split()[1]) - 3 * os.path.getsize(self.path("d1"))
            self.assertEqual(p.wait(), 0)
            self.holds("t", self.read("s1"))
            self.assertLess(n_read / len(old), most + 0.5)

    def test_again_without_reading(self):
        """Blocks without a base would be written over a target that has the last snapshot already."""
        r = random.Random(1)
        names, b = [], bytearray(bf16(1_000_000))
        for i in range(3):
            b[2000 * i : 1_000_000 : 400] = r.randbytes(len(b[2000 * i : 1_000_000 : 400]))
            self.put("s%d" % i, {"a": r.randbytes(6_000_000), "b": bytes(b)})
            if i:
                names.append("d%d" % i)
                self.lmc("--base", "s%d" % (i - 1), "s%d" % i, "-o", names[-1])
        self.copy("s0")
        for _ in range(2):
            self.apply("-q", *names, "--trust-base", "t")
            self.holds("t", self.snapshot("s2"))

    def test_several_deltas(self):
        for steps in (steps_of_file(5), steps_of_tree(5)):
            self.make_chain(steps)
            deltas = ["d1", "d2", "d3", "d4"]
            for start in range(5):
                for args in ((), ("--trust-base",)):
                    self.copy("s%d" % start)
                    p = self.apply(*args, *deltas, "t", says="" if start else None)
                    self.assertEqual(p.stderr.count(b"already"), start)
                    self.holds("t", steps[4])
            self.copy("s1")
            self.apply("d2", "d3", "t")
            self.holds("t", steps[3])
            for name in os.listdir(self.dir):
                shutil.rmtree(self.path(name)) if os.path.isdir(self.path(name)) else os.unlink(self.path(name))

    def test_other_layouts(self):
        rng = random.Random(3)
        w = [bf16(30000, 1), bf16(20000, 2)]
        v = [flipped(x, rng, 4) for x in w]
        files = [model_file(w), model_file(v, {"note": "a longer header"}),
                 safetensors([("t1", "BF16", [20000], v[1]), ("t0", "BF16", [30000], v[0])], {"note": "a longer header"}),
                 safetensors([("t0", "BF16", [30000], flipped(v[0], rng, 4)), ("t1", "BF16", [20000], w[1])], {"note": "again other"})]
        self.make_chain(files)
        os.symlink("real", self.path("t"))
        for k in range(1, 4):
            for args in ((), ("--trust-base",)):
                self.copy("s%d" % (k - 1), "real")
                os.chmod(self.path("real"), 0o600)
                self.apply(*args, "d%d" % k, "t")
                self.holds("real", files[k])
                self.assertTrue(os.path.islink(self.path("t")))
        self.copy("s0", "real")
        self.apply("-v", "d1", "d2", "d3", "t", says="t: d3 applied")
        self.holds("real", files[3])
        self.apply("d1", "d2", "d3", "t", says="t: holds what d3 restores already")

    def test_other_layouts_of_directories(self):
        steps = steps_of_tree(6)
        steps[1]["config.json"] = b"{}"
        steps[2]["added/x"] = b"new"
        del steps[2]["frozen.bin"]
        steps[4] = {"one": steps[4]["config.json"], "model-1.safetensors": steps[4]["model-1.safetensors"]}
        self.make_chain(steps)
        self.copy("s0")
        os.chmod(self.path("t"), 0o710)
        for k in range(1, 6):
            self.apply("d%d" % k, "t")
            self.holds("t", steps[k])
            self.assertEqual(stat.S_IMODE(os.stat(self.path("t")).st_mode), 0o710)
        for args in ((), ("--trust-base",), ("-T1",)):
            self.copy("s0")
            self.apply(*args, "d1", "d2", "d3", "d4", "d5", "t")
            self.holds("t", steps[5])

    def test_an_empty_directory(self):
        os.mkdir(self.path("s0"))
        self.write("s1/a", b"a")
        os.mkdir(self.path("s2"))
        self.lmc("--base", "s0", "s1", "-o", "d1", says="nothing of it was found in the base")
        self.copy("s0")
        self.apply_refuses("d1", "t", code=1, says="is not a delta but a whole snapshot")
        self.lmc("-d", "-f", "-o", "t", "d1")
        self.holds("t", {"a": b"a"})
        self.lmc("--base", "s1", "s2", "-o", "d2", says="nothing of it was found in the base")
        self.apply_refuses("d2", "t", code=1, says="is not a delta but a whole snapshot")

    def test_twins(self):
        rng = random.Random(5)
        master = f32(40000)
        moved = flipped(master, rng, 2)
        files = []
        for m in (master, moved, flipped(moved, rng, 2)):
            bits = int.from_bytes(m, "little")
            half = b"".join(m[i + 2:i + 4] for i in range(0, len(m), 4))  # cut, not rounded: nearly a twin
            files.append({"a.safetensors": safetensors([("w", "F32", [40000], m), ("tied", "F32", [40000], m)]),
                          "b.safetensors": safetensors([("w", "F32", [40000], m), ("h", "BF16", [40000], half)]), "c": bits.to_bytes(len(m), "big")})
        self.make_chain(files)
        self.assertLess(os.path.getsize(self.path("d1")), 300000)
        for args in ((), ("--trust-base",), ("-T3",)):
            self.copy("s0")
            self.apply(*args, "d1", "d2", "t")
            self.holds("t", files[2])

    def test_pipes(self):
        steps = steps_of_file(3)
        self.make_chain(steps)
        for args in ((), ("--trust-base",)):
            self.copy("s0")
            self.apply(*args, "-", "t", stdin=self.read("d1"))
            self.holds("t", steps[1])
            self.apply(*args, "-", "t", stdin=self.read("d1"), says="t: holds what (standard input) restores already")
            self.copy("s0")
            self.apply(*args, "d1", "-", "t", stdin=self.read("d2"))
            self.holds("t", steps[2])
            self.copy("s0")
            with open(self.path("d1"), "rb") as f:
                self.apply(*args, "-", "t", stdin=f)
            self.holds("t", steps[1])
            self.apply_refuses(*args, "-", "t", stdin=b"", code=3)
            self.apply_refuses(*args, "-", "t", stdin=self.read("d1")[:-1], code=3)

    def test_dtype_and_opaque(self):
        a, b = bf16(100000), flipped(bf16(100000), random.Random(1))
        self.put("s0", a)
        self.put("s1", b)
        for args, other in ((("--dtype", "BF16"), ()), (("--opaque",), ("--dtype=U8",))):
            self.lmc("-f", *args, "--base", "s0", "s1", "-o", "d1")
            self.copy("s0")
            self.apply(*args, "d1", "t")
            self.holds("t", b)

    def test_names_of_targets(self):
        steps = steps_of_tree(2)
        self.make_chain(steps)
        self.copy("s0")
        self.apply("d1", "t/")
        self.holds("t", steps[1])
        self.copy("s0")
        p = subprocess.run([LMC, "apply", "../d1", "."], cwd=self.path("t"), capture_output=True)
        self.assertEqual((p.returncode, p.stderr), (0, b""))
        self.holds("t", steps[1])

    def test_memory(self):
        if SANITIZED:
            self.skipTest("sanitized build")
        size = 4096 * MB if LONG else 192 * MB
        part = bf16(1 << 19)
        rng = random.Random(1)
        for name, change in (("s0", False), ("s1", True)):
            with open(self.path(name), "wb") as f:
                for k in range(size // len(part)):
                    f.write(flipped(part, rng, 1 + k % 6) if change and k % 3 else part)
        self.lmc("--dtype=BF16", "--base", "s0", "s1", "-o", "d1")
        script = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
                  "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
        for threads in (1, 2, 4) if not LONG else (4,):
            for args in (("--trust-base",), ()) if not LONG else ((),):
                self.copy("s0")
                p = subprocess.run([sys.executable, "-c", script, LMC, "apply", "-T%d" % threads, "--dtype=BF16", *args, "d1", "t"], cwd=self.dir,
                                   stdout=subprocess.PIPE, check=True)
                if LONG:
                    print("  memory, %d MB target, %d threads %s: %.0f MB" % (size // MB, threads, args, int(p.stdout) / 1024), file=sys.stderr)
                self.assertLess(int(p.stdout) / 1024, (80 if LONG else 64) + threads)
        self.assertEqual(subprocess.run(["cmp", "t", "s1"], cwd=self.dir).returncode, 0)


# ---- what apply refuses: exit code, message, and nothing has changed ----


class Refusals(ApplyCase):
    def test_usage(self):
        self.make_chain(steps_of_file(2))
        for args in ((), ("d1",), ("-o", "x", "d1", "s0"), ("-c", "d1", "s0"), ("--base", "s0", "d1", "s0"), ("-r", "d1", "s0"), ("--rm", "d1", "s0"),
                     ("--max", "d1", "s0"), ("--npy", "d1", "s0"), ("-d", "d1", "s0"), ("--no-twins", "d1", "s0")):
            self.apply_refuses(*args, code=2, says="lmc: ")
        self.refuses("-d", "--trust-base", "d1", code=2)

    def test_wrong_targets(self):
        for steps, others in ((steps_of_file(3), steps_of_file(3, seed=99)), (steps_of_tree(3), None)):
            self.make_chain(steps)
            self.put("other", others[0] if others else {**steps[0], "frozen.bin": b"other" * 15360})
            for name in ("s2", "other"):
                for args in ((), ("--trust-base",)):
                    p = self.apply_refuses(*args, "d1", name, code=4, says=", but d1 needs the base ")
                    fingerprint = {k: self.listing("d%d" % k) for k in (1, 2)}
                    text = p.stderr.decode()
                    self.assertIn(fingerprint[1]["base_fingerprint"][:16], text)
                    self.assertIn("(named 's0' when this delta was made)", text)
                    self.assertIn("nothing was changed", text)
                    if name == "s2":
                        self.assertIn("lmc: s2: is " + fingerprint[2]["fingerprint"][:16], text)
            self.apply_refuses("d2", "s0", code=4, says="s0: is %s" % fingerprint[1]["base_fingerprint"][:16])
            self.apply_refuses("d2", "d1", "s0", code=4, says="d1: needs the base %s, but d2, named before it" % fingerprint[1]["base_fingerprint"][:16])
            self.apply_refuses("d1", "d1", "s0", code=4, says="named before it")
            if others is None:
                shutil.copytree(self.path("s0"), self.path("more"))
                self.write("more/extra", b"")
                shutil.copytree(self.path("s0"), self.path("less"))
                os.unlink(self.path("less/empty"))
                for name in ("more", "less"):
                    for args in ((), ("--trust-base",)):
                        self.apply_refuses(*args, "d1", name, code=4, says=", but d1 needs the base ")
            for name in os.listdir(self.dir):
                shutil.rmtree(self.path(name)) if os.path.isdir(self.path(name)) else os.unlink(self.path(name))

    def test_same_tensors_in_other_files(self):
        w = bf16(30000)
        self.write("s0", safetensors([("w", "BF16", [30000], w)]))
        self.write("s1", safetensors([("w", "BF16", [30000], flipped(w, random.Random(1)))]))
        self.write("other", safetensors([("w", "BF16", [30000], flipped(w, random.Random(1)))], {"other": "header"}))
        self.lmc("--base", "s0", "s1", "-o", "d1", says="")
        self.apply_refuses("d1", "other", code=4, says="it holds the tensors that d1 restores, in other files")

    def test_what_is_no_delta_or_no_target(self):
        steps = steps_of_file(3)
        self.make_chain(steps)
        self.lmc("s1", "-o", "whole.lmc")
        self.put("dir", steps_of_tree(1)[0])
        self.put("new", steps_of_tree(2)[1])
        self.lmc("--base", "dir", "new", "-o", "tree.lmc")
        os.mkfifo(self.path("pipe"))
        self.write("bad", b"nonsense")
        for args, code, says in (
                (("whole.lmc", "s0"), 1, "is not a delta but a whole snapshot; to replace the target by it, use lmc -d -f -o 's0'"),
                (("d1", "whole.lmc"), 1, "whole.lmc: is an LMC file itself"), (("s0", "d1"), 1, "d1: is an LMC file itself"),
                (("d1", "missing"), 1, "missing: cannot find the target"), (("d1", "pipe"), 1, "is neither a file nor a directory"),
                (("missing", "s0"), 1, "missing: cannot open it"), (("dir", "s0"), 1, "dir: is a directory"), (("bad", "s0"), 3, "bad: "),
                (("d1", "dir"), 1, "d1: restores a file, but the target is a directory"),
                (("tree.lmc", "s0"), 1, "tree.lmc: restores a directory, but the target is a file")):
            for trust in ((), ("--trust-base",)):
                self.apply_refuses(*trust, *args, code=code, says=says)

    def test_deltas_in_the_target(self):
        steps = steps_of_tree(2)
        self.make_chain(steps)
        shutil.copy(self.path("d1"), self.path("s0/d1"))
        self.apply_refuses("s0/d1", "s0", code=1, says="s0/d1: is or belongs to the target")

    def test_damaged_deltas(self):
        steps = steps_of_file(2)
        self.make_chain(steps)
        data = self.read("d1")
        rng = random.Random(1)
        for k in [len(data) // 2, len(data) - 3, 90] + [rng.randrange(len(data)) for _ in range(30)]:
            for args in ((), ("--trust-base",)):
                self.write("bad", data[:k] + bytes([data[k] ^ 1 << rng.randrange(8)]) + data[k + 1:])
                p = subprocess.run([LMC, "apply", *args, "bad", "s0"], cwd=self.dir, capture_output=True)
                self.assertIn(p.returncode, (1, 3, 4), (k, p.stderr))
                self.holds("s0", steps[0])
                self.assertFalse(os.path.exists(self.side("s0")))
            self.write("bad", data[:k])
            self.apply_refuses("bad", "s0", code=3)

    def test_damaged_payload_of_any_block(self):
        """Salvage can get the bytes of a damaged block from elsewhere. So apply, which used it, once began to write."""
        weights = bf16(3000)
        steps = [{"a": bytes(300), "x": weights, "z": bytes(300)}, {"a": bytes(300), "x": flipped(weights, random.Random(1), 2), "z": bytes(300)}]
        self.make_chain(steps, "--opaque")
        good = self.read("d1")
        places = [int(m, 16) for m in re.findall(r"([0-9A-F]+)  \(\d+ bytes\) +Payload\n", self.dump("d1"))]
        self.assertEqual(len(places), 3)
        for place in places:
            self.write("bad", good[:place] + bytes([good[place] ^ 4]) + good[place + 1:])
            p = self.apply_refuses("bad", "s0", code=3, says="bad: corrupt: ")
            self.assertNotIn(b"from byte", p.stderr)  # the damage was found before
            self.holds("s0", steps[0])
            self.assertFalse(os.path.exists(self.side("s0")))

    def headers_of_blocks(self, name):
        """Where the headers are, as dump prints."""
        return [int(m, 16) for m in re.findall(r"-- block --\n([0-9A-F]+) ", self.dump(name))]

    def test_damage_is_found_before_anything_is_written(self):
        """Neither a delta before the damaged one nor a block before the damaged block is applied, and the place is named."""
        rng = random.Random(3)
        weights = [[rng.randbytes(3 * MB) for _ in range(4)]]
        weights.append([flipped(w, rng, 4) for w in weights[0]])
        weights.append(weights[1][:1] + [rng.randbytes(3 * MB) for _ in range(3)])  # nothing of it is coded against the base
        steps = list(map(model_file, weights))
        self.make_chain(steps)
        self.assertGreater(os.path.getsize(self.path("d2")), 9 * MB)
        for name, behind in (("d1", (0,)), ("d2", (0, 100000))):  # the header of the last block; its bytes
            good = self.read(name)
            for place in [self.headers_of_blocks(name)[-1] + k for k in behind]:
                self.write("bad", good[:place + 4] + bytes([good[place + 4] ^ 4]) + good[place + 5:])
                for args in ((), ("--trust-base",)):
                    self.copy("s0")
                    deltas = ("d1", "bad") if name == "d2" else ("bad",)
                    p = self.apply_refuses(*args, *deltas, "t", code=3, says="bad: corrupt: ")
                    self.assertRegex(p.stderr.decode(), r"\(bytes \d+ to \d+ of the tensor 't[23]'\)")
                    self.holds("t", steps[0])
                    self.assertFalse(os.path.exists(self.side()))

    def test_links(self):
        steps = steps_of_tree(2)
        self.make_chain(steps)
        os.link(self.path("s0/config.json"), self.path("other name"))
        for args in ((), ("--trust-base",)):
            self.apply_refuses(*args, "d1", "s0", code=1, says="s0/config.json: has other names (hard links)")
        os.rename(self.path("other name"), self.path("s0/config.json.1"))
        os.unlink(self.path("s0/config.json"))
        os.rename(self.path("s0/config.json.1"), self.path("elsewhere"))
        os.symlink("../elsewhere", self.path("s0/config.json"))
        for args in ((), ("--trust-base",)):
            self.apply_refuses(*args, "d1", "s0", code=1, says="s0/config.json: is a link")
        self.apply("-f", "d1", "s0")
        self.assertEqual(self.read("elsewhere"), steps[1]["config.json"])
        self.holds("s0", steps[1])

    def test_links_of_the_user(self):
        """A link that the user has made is not removed. What an earlier delta of the same command has made may go."""
        steps = steps_of_tree(3)
        steps[2]["added"] = b"another layout"
        for k, content in enumerate(steps):
            self.put("s%d" % k, content)
        os.symlink("config.json", self.path("s1/passing"))
        for k in (1, 2):
            self.lmc("--base", "s%d" % (k - 1), "s%d" % k, "-o", "d%d" % k, says="")
        for start in (0, 1, 2):  # in place, beside, and what holds the files already
            delta = "d%d" % min(2, start + 1)
            for args in ((), ("--trust-base",)):
                shutil.copytree(self.path("s%d" % start), self.path("t"), symlinks=True)
                os.symlink("config.json", self.path("t/best"))
                before = self.snapshot("t")
                self.apply_refuses(*args, delta, "t", code=1, says="t/best: is a link that %s does not have" % delta)
                self.assertEqual((self.snapshot("t"), os.readlink(self.path("t/best"))), (before, "config.json"))
                self.apply("-f", *args, delta, "t", says="1 link was changed" if start == 2 else "")
                self.assertFalse(os.path.lexists(self.path("t/best")))
                self.apply(*args, delta, "t", says="already")
                shutil.rmtree(self.path("t"))
        self.copy("s0")
        self.apply("d1", "d2", "t")
        self.assertFalse(os.path.lexists(self.path("t/passing")))

    def test_permissions(self):
        steps = steps_of_tree(2)
        self.make_chain(steps)
        binary = self.path("copy-of-lmc")
        shutil.copy(LMC, binary)
        os.chmod(binary, 0o755)
        drop = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        os.mkdir(self.path("mine"))
        self.copy("s0", "mine/t")
        self.copy("s0", "t")
        if drop:
            for base, dirs, files in os.walk(self.path("mine")):
                for f in [base] + [os.path.join(base, f) for f in files]:
                    os.chown(f, 65534, 65534)
        os.chmod(self.path("mine/t/config.json"), 0o444)

        def run(*args):
            p = subprocess.run([binary, "apply", *args], cwd=self.dir, capture_output=True, **drop)
            return p.returncode, p.stderr.decode()
        before = self.snapshot("mine")
        for args in ((), ("--trust-base",)):
            code, text = run(*args, "d1", "mine/t")
            self.assertEqual((code, "mine/t/config.json: is read-only; use -f" in text), (1, True), text)
            self.assertEqual(self.snapshot("mine"), before)
            if drop:
                code, text = run(*args, "d1", "t")
                self.assertEqual((code, "Permission denied" in text), (1, True), text)
                self.holds("t", steps[0])
        os.chmod(self.path("mine"), 0o555)  # no room for the side file
        code, text = run("-f", "d1", "mine/t")
        self.assertEqual((code, ".t.lmc-apply: cannot create a file beside it: Permission denied" in text), (1, True), text)
        self.assertEqual(self.snapshot("mine"), before)
        os.chmod(self.path("mine"), 0o755)
        code, text = run("-f", "d1", "mine/t")
        self.assertEqual((code, text), (0, ""))
        self.holds("mine/t", steps[1])

    def test_two_at_once(self):
        for steps in (steps_of_file(2), steps_of_tree(2)):
            self.make_chain(steps)
            fd = os.open(self.path("s0"), os.O_RDONLY)
            fcntl.flock(fd, fcntl.LOCK_EX)
            self.apply_refuses("d1", "s0", code=1, says="s0: is in use by another lmc apply")
            os.close(fd)
            self.apply("d1", "s0")
            for name in os.listdir(self.dir):
                shutil.rmtree(self.path(name)) if os.path.isdir(self.path(name)) else os.unlink(self.path(name))

    def test_trust_that_is_misplaced(self):
        """Tensors of equal size that change places: without reading the base, each would be mistaken for the other."""
        w, v = bf16(30000, 1), bf16(30000, 2)
        base = safetensors([("a", "BF16", [30000], w), ("b", "BF16", [30000], v)])
        new = safetensors([("b", "BF16", [30000], v), ("a", "BF16", [30000], flipped(w, random.Random(1)))])
        self.assertEqual(len(base), len(new))
        self.write("s0", base)
        self.write("s1", new)
        self.lmc("--base", "s0", "s1", "-o", "d1", says="")
        self.copy("s0")
        self.apply("--trust-base", "d1", "t")
        self.holds("t", new)


# ---- interruptions ----


class Interruptions(ApplyCase):
    def prepare(self, content, result):
        """d1 turns s0 into s1, whose order of files is `files`."""
        self.make_chain([content, result])
        self.list = self.listing("d1")
        if isinstance(result, bytes):
            content, result = {"": content}, {"": result}
        self.files = [(f["path"], content[f["path"]], result[f["path"]]) for f in self.list["files"] if f["path"] in result]
        self.numbers = {f["path"]: i for i, f in enumerate(self.list["files"])}
        self.total = sum(len(new) for _, _, new in self.files)

    def side_file(self, slots, **more):
        return make_side_file(self.list, self.read("d1"), self.total, slots, **more)

    def test_states_made_by_hand(self):
        """The border between old and new may be at any byte of any file; every slot may be the newest."""
        rng = random.Random(1)
        base, result = steps_of_tree(2)
        self.prepare(base, result)
        ends, at = [], 0
        for path, old, new in self.files:
            at += len(new)
            ends.append(at)
        for k in range(len(self.files) + 1):  # k files are done; the last one is as in the slot, while the target has a mixture
            for mixture in ("old", "new", "sectors", "bytes"):
                slots, content = [], dict(base)
                for i, (path, old, new) in enumerate(self.files[:k]):
                    content[path] = new
                    if i == k - 1:
                        if mixture == "old":
                            content[path] = old
                        elif mixture == "sectors":
                            content[path] = b"".join((old if rng.random() < .5 else new)[s:s + 512] for s in range(0, len(new), 512))
                        elif mixture == "bytes":
                            content[path] = bytes(rng.choice(pair) for pair in zip(old, new))
                    patches = make_patches(self.numbers[path], old, new)
                    if patches:
                        slots.append((len(slots) + 1, ends[i], patches))
                if k and not make_patches(0, *self.files[k - 1][1:]):
                    continue  # unchanged files have no slot
                for n in (2, 1):
                    shutil.rmtree(self.path("t"), ignore_errors=True)
                    self.put("t", content)
                    side = self.side_file(slots[-n:])
                    self.write(".t.lmc-apply", side)
                    self.assertEqual([s[1] for s in read_slots(side)], [s[1] for s in slots[-n:]])
                    self.apply("-T%d" % rng.choice((1, 2)), "d1", "t", says="t: was left half applied; going on with d1")
                    self.holds("t", result)
                    self.assertFalse(os.path.exists(self.side()))
                if k >= 1 and mixture == "old":  # the slot is torn: nothing of it reached the target
                    torn = bytearray(side)
                    place, size = read_slots(side)[-1][3:]
                    torn[place + rng.randrange(size)] ^= 1 << rng.randrange(8)
                    shutil.rmtree(self.path("t"))
                    self.put("t", content)
                    start = ends[k - 1] - len(self.files[k - 1][2])
                    self.write(".t.lmc-apply", bytes(torn) if n == 2 else self.side_file([], n_start=start))
                    self.apply("d1", "t", says="t: was left half applied; going on with d1 behind %d" % start)
                    self.holds("t", result)

    def test_side_file_with_any_byte_damaged(self):
        base, result = steps_of_file(2, 3000)
        self.prepare(base, result)
        patches = make_patches(0, base, result)
        side = self.side_file([(1, self.total, patches)])
        places = list(range(512)) + list(range(4096 + 65536, len(side)))
        rng = random.Random(1)
        mixture = bytes(rng.choice(pair) for pair in zip(base, result))
        outcomes = {}
        for place in places if LONG else places[::11] + list(range(24)) + places[512:544]:
            for content in (base, mixture, result):
                damaged = bytearray(side)
                damaged[place] ^= 1 << rng.randrange(8)
                self.put("t", content)
                self.write(".t.lmc-apply", bytes(damaged))
                p = subprocess.run([LMC, "apply", "-q", "d1", "t"], cwd=self.dir, capture_output=True)
                if p.returncode == 0:
                    self.holds("t", result)
                    self.assertFalse(os.path.exists(self.side()))
                else:
                    self.assertIn(p.returncode, (3, 4), (place, p.stderr))
                    self.assertIn(b"; nothing was changed; it was left half applied", p.stderr)
                    self.holds("t", content)
                    self.assertTrue(content is mixture, (place, p.stderr))
                outcomes[p.returncode] = outcomes.get(p.returncode, 0) + 1
        self.assertEqual(sorted(outcomes), [0, 3, 4])

    def test_hostile_side_files(self):
        """Right checksums, wrong numbers."""
        base, result = steps_of_tree(2)
        self.prepare(base, result)
        rng = random.Random(1)
        path, old, new = self.files[-1]
        good = bytearray(make_patches(self.numbers[path], old, new))
        values = (0, 1, 5, 64, 65535, 65536, 65537, 1 << 20, 0x7FFFFFFF, 0xFFFFFFFF)
        for k in range(2000 if LONG else 150):
            patches = bytearray(good)
            what = k % 4
            if what == 0:
                struct.pack_into("<I", patches, 4 * rng.choice((0, 1, 2, 3, 4, 5)), rng.choice(values))
            elif what == 1:
                struct.pack_into("<Q", patches, 8, rng.choice(values) << rng.randrange(33))
            elif what == 2:
                patches[24 + rng.randrange(64)] ^= 1 << rng.randrange(8)
            else:
                del patches[rng.randrange(len(patches)):]
            n_done = rng.choice((0, 1, self.total, self.total + 1, self.total - 1, 2 ** 64 - 1, len(self.files[0][2])))
            more = rng.choice(({}, {}, {"capacity": rng.choice((0, 31, 32, 33, 4096, 1 << 40, 1 << 48, 2 ** 63))},
                               {"n_start": rng.choice((0, self.total, self.total + 1, 77))}))
            content = rng.choice((base, result))
            if k < 6:  # whole patches of bytes that are not done yet
                patches, n_done, more, content = good, (0, len(self.files[0][2]), self.total - 1)[k % 3], {}, (base, result)[k // 3]
            if more.get("capacity", 0) > 1 << 20:
                side = self.side_file([], **more)
            else:
                side = self.side_file([(rng.choice((1, 2, 3, 2 ** 64 - 1)), n_done, bytes(patches))], **more)
            shutil.rmtree(self.path("t"), ignore_errors=True)
            self.put("t", content)
            self.write(".t.lmc-apply", side)
            p = subprocess.run([LMC, "apply", "-q", "d1", "t"], cwd=self.dir, capture_output=True)
            self.assertIn(p.returncode, (0, 1, 3, 4), p.stderr)
            self.holds("t", result if p.returncode == 0 else content)

    def test_a_side_file_of_another_delta(self):
        base, result = steps_of_file(2, 3000)
        self.prepare(base, result)
        rng = random.Random(1)
        mixture = bytes(rng.choice(pair) for pair in zip(base, result))
        side = self.side_file([(1, self.total, make_patches(0, base, result))], name=b"first.lmc")
        other = steps_of_file(2, 3000, 50)
        self.put("o0", other[0])
        self.put("o1", other[1])
        self.lmc("--base", "o0", "o1", "-o", "other")
        self.put("t", mixture)
        self.write(".t.lmc-apply", side)
        for args in ((), ("--trust-base",)):
            self.apply_refuses(*args, "other", "t", code=4, says="it was left half applied: first finish first.lmc")
        self.lmc("-f", "--max", "--base", "s0", "s1", "-o", "same")  # the same snapshot in another file
        if self.read("same") != self.read("d1"):
            self.apply_refuses("same", "t", code=4, says="first finish first.lmc")
        self.put("t", other[0])  # replaced by the target of `other`
        self.apply("other", "t", says="t: is complete; ")
        self.holds("t", other[1])
        self.assertFalse(os.path.exists(self.side()))
        for content in (base, result):  # replaced by what the interrupted delta applies to, or by its result
            self.put("t", content)
            self.write(".t.lmc-apply", self.side_file([], n_start=len(base) if content is base else 0))
            self.apply("d1", "t", says="t: is complete; ")
            self.holds("t", result)
            self.assertFalse(os.path.exists(self.side()))
        self.put("t", b"quite another thing")
        self.write(".t.lmc-apply", side)
        self.apply_refuses("d1", "t", code=4, says="it was left half applied and changed since")
        self.put("t", other[1][:-8] + b"something"[:8])
        self.apply_refuses("d1", "t", code=4, says="it was left half applied and changed since")
        self.write(".t.lmc-apply", self.side_file([], version=2))
        self.apply_refuses("d1", "t", code=1, says="newer version")
        os.unlink(self.side())
        os.mkdir(self.side())
        self.apply("d1", "t", code=1, says=".t.lmc-apply: ")

    def test_a_half_applied_target_is_no_base(self):
        base, result = steps_of_file(2, 3000)
        self.prepare(base, result)
        half = base[:3000] + result[3000:]
        self.put("t", half)
        self.lmc("-d", "--no-search", "--base", "t", "d1", "-o", "x", code=4)
        self.write(".t.lmc-apply", self.side_file([]))
        self.write("tree/sub/t", half)
        self.write("tree/.sub.lmc-apply", self.side_file([]))
        os.symlink("t", self.path("link"))
        says = "is left half applied"
        for args in (("t",), ("link",), ("--rm", "t"), ("tree/sub",), ("tree/sub/t",), ("-r", "tree/sub")):
            self.refuses("-f", *args, "-o", "x", code=1, says=says) if "-r" not in args else self.refuses(*args, code=1, says=says)
        self.refuses("--rm", ".t.lmc-apply", code=1, says="is the side file of an lmc apply")
        self.refuses("tree", code=1, says="holds '.sub.lmc-apply'")
        for args in (("--base", "t", "s1", "-o", "x"), ("-d", "--base", "t", "d1", "-o", "x"), ("diff", "s0", "t"), ("diff", "t", "s0"),
                     ("fold", "--base", "t", "d1", "-o", "x"), ("rebase", "--base", "s0", "--onto", "t", "d1", "-o", "x")):
            self.refuses(*args, code=4, says=says)

    def large(self, n=5):
        """Data of which some changes little and some much, for both kinds of slots."""
        rng = random.Random(2)
        size = 8 * MB
        weights = [rng.randbytes(size) for _ in range(n)]
        new = [flipped(w, rng, k % 3 * 3 + 1) for k, w in enumerate(weights)]
        return model_file(weights), model_file(new)

    def interrupted(self, limit):
        """Half applied, because of a limit of the size of files."""
        self.copy("s0")
        p = subprocess.run([LMC, "apply", "-T1", "d1", "t"], cwd=self.dir, capture_output=True,
                           preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.assertEqual(p.returncode, 1, p.stderr)
        self.assertIn(b"File too large", p.stderr)
        self.assertEqual(b"t: is left half applied" in p.stderr, os.path.exists(self.side()), p.stderr)

    def test_no_room(self):
        base, result = self.large()
        self.prepare(base, result)
        for limit in (1000, 9 * MB, 14 * MB, 20 * MB, 30 * MB):
            self.interrupted(limit)
            if limit < 9 * MB:
                self.holds("t", base)
                self.assertFalse(os.path.exists(self.side()))
            half = self.read("t")
            if limit > 14 * MB:
                self.assertFalse(half in (base, result))
                self.lmc("-d", "--base", "t", "d1", "-o", "x", code=4)
            self.apply("d1", "t", says="" if os.path.exists(self.side()) else None)
            self.holds("t", result)

    def test_a_delta_whose_end_is_damaged(self):
        """Payloads have their own checksums, so the damage is found before anything is written."""
        base, result = self.large()
        self.prepare(base, result)
        good = self.read("d1")
        place = len(good) * 3 // 4
        self.write("bad", good[:place] + bytes([good[place] ^ 4]) + good[place + 1:])
        self.copy("s0")
        before = self.read("t")
        p = self.apply("bad", "t", code=3, says="bad: corrupt: ")
        self.assertRegex(p.stderr.decode(), r"of the tensor 't[23]'\)")
        self.assertEqual(self.read("t"), before)
        self.assertFalse(os.path.exists(self.side()))
        self.apply("d1", "t")
        self.holds("t", result)

    def test_a_wrong_target_that_shows_late(self):
        base, result = self.large()
        self.prepare(base, result)
        self.put("t", base[:-100] + bytes(100))
        self.apply_refuses("d1", "t", code=4, says="nothing was changed")
        self.apply("--trust-base", "d1", "t", code=4, says="is not the base that d1 needs, which was found only after ")
        self.apply_refuses("d1", "t", code=4, says="it was left half applied and changed since")
        self.put("t", base)
        self.apply("d1", "t", says="is complete")
        self.holds("t", result)

    def test_links_made_meanwhile(self):
        """After a kill somebody makes a hard link to the target: apply refuses to go on until it is removed."""
        base, result = steps_of_file(2, 3000)
        self.prepare(base, result)
        self.put("t", base)
        self.write(".t.lmc-apply", self.side_file([]))
        os.link(self.path("t"), self.path("copy"))
        self.apply_refuses("d1", "t", code=1, says="t: has other names (hard links)")
        os.unlink(self.path("copy"))
        self.apply("d1", "t", says="was left half applied")
        self.holds("t", result)

    def test_power_cuts(self):
        """Each sector that the last slot writes may be old or new; unsynced bytes of the side file may be lost."""
        rng = random.Random(4)
        base, result = self.large(3)
        self.prepare(base, result)
        for k in range(20 if LONG else 3):
            self.interrupted(rng.randrange(20 * MB, len(base)))
            with open(self.side(), "rb") as f:
                side = f.read()
            half = bytearray(self.read("t"))
            number, n_done, patches, place, size = read_slots(side)[-1]
            for file, offset, length, words in patches:
                for s in range(offset, offset + length, 512):
                    e = min(s + 512, offset + length)
                    half[s:e] = rng.choice((base, result))[s:e]
            self.write("t", bytes(half))
            self.apply("d1", "t", says="going on with d1 behind %d of %d bytes" % (n_done, len(base)))
            self.holds("t", result)

    def test_a_slot_that_is_not_on_the_disk(self):
        """Its writer may have been killed before the sync: the slot is written again, or the target is not touched."""
        base, result = steps_of_file(2, 3000)
        self.prepare(base, result)
        for slots in ([(1, self.total, make_patches(0, base, result))], [(6, 0, b""), (7, self.total, make_patches(0, base, result))]):
            side = self.side_file(slots, capacity=1 << 20)
            self.put("t", base)
            self.write(".t.lmc-apply", side)
            p = subprocess.run([LMC, "apply", "d1", "t"], cwd=self.dir, capture_output=True,
                               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (MB, MB)))
            self.assertEqual(p.returncode, 1, p.stderr)
            self.assertIn(b".t.lmc-apply: cannot write it", p.stderr)
            self.holds("t", base)
            self.assertEqual(self.read(".t.lmc-apply"), side)
            self.apply("d1", "t", says="was left half applied")
            self.holds("t", result)

    def test_signals(self):
        base, result = self.large()
        self.prepare(base, result)
        for number in (signal.SIGTERM, signal.SIGINT):
            for _ in range(5):  # unless it has ended before
                path = self.copy("s0")
                os.utime(path, (1, 1))
                p = subprocess.Popen([LMC, "apply", "d1", "t"], cwd=self.dir, stderr=subprocess.PIPE,
                                     preexec_fn=take_signals)
                while p.poll() is None and os.stat(path).st_mtime == 1:
                    pass
                p.send_signal(number)
                text = p.communicate(timeout=60)[1]
                self.assertIn(p.returncode, (-number, 0))
                if p.returncode:
                    self.assertEqual(text, b"lmc: t: is left half applied; give the same command again, and it goes on\n")
                    break
            self.apply("d1", "t", says="")
            self.holds("t", result)

    def phase(self, base, result):
        """The state that a kill has left."""
        if not os.path.exists(self.side()):
            data = self.read("t")
            return "not begun" if data == base else "finished" if data == result else "WRONG"
        with open(self.side(), "rb") as f:
            head = f.read(4096)
            slots = []
            capacity = struct.unpack_from("<Q", head, 32)[0]
            for k in (0, 1):
                f.seek(4096 + k * capacity)
                slot = f.read(32)
                if len(slot) == 32 and crc32c(slot[:28]) == struct.unpack_from("<I", slot, 28)[0]:
                    slots.append(struct.unpack("<Q", slot[:8])[0])
        data = self.read("t")
        if not slots:
            return "side file, no slot"
        if data == result:
            return "all written, side file still there"
        return "after slot %d" % max(slots)

    def test_kills(self):
        """kill -9 at random moments, sometimes again while apply continues; with and without reading the base first."""
        base, result = self.large()
        self.prepare(base, result)
        rng = random.Random(int.from_bytes(os.urandom(4), "little"))
        counts, again, durations = {}, {}, {}

        def left_over():
            for name in os.listdir(self.dir):  # left by a kill between creating a file and renaming it
                if name.startswith(".lmc-"):
                    os.unlink(self.path(name))

        def run(args, kill_after):
            start = time.monotonic()
            p = subprocess.Popen([LMC, "apply", "-q", *args, "d1", "t"], cwd=self.dir, stderr=subprocess.PIPE)
            try:
                p.wait(timeout=kill_after)
            except subprocess.TimeoutExpired:
                p.kill()
            text = p.stderr.read()
            p.stderr.close()
            code = p.wait()
            self.assertIn(code, (0, -9), text)
            return time.monotonic() - start
        for k in range(KILLS):
            args = ("-T%d" % (1 + k // 2 % 2),) + (("--trust-base",) if k % 2 else ())
            self.copy("s0")
            if args not in durations or k % 50 < 4:
                durations[args] = run(args, 60)
                self.holds("t", result)
                self.copy("s0")
            run(args, rng.random() * durations[args] * 1.05)
            phase = self.phase(base, result)
            self.assertNotEqual(phase, "WRONG")
            counts[phase] = counts.get(phase, 0) + 1
            while rng.random() < 0.4 and os.path.exists(self.side()):
                run(args, rng.random() * durations[args] / 2)
                phase = self.phase(base, result)
                self.assertNotEqual(phase, "WRONG")
                again[phase] = again.get(phase, 0) + 1
            left_over()
            p = subprocess.run([LMC, "apply", *args, "d1", "t"], cwd=self.dir, capture_output=True)
            self.assertEqual(p.returncode, 0, p.stderr)
            self.holds("t", result)
            self.assertFalse(os.path.exists(self.side()))
        print("  kills of lmc apply, by what they left:")
        for phase in sorted(set(counts) | set(again)):
            print("    %-36s %5d    while finishing %5d" % (phase, counts.get(phase, 0), again.get(phase, 0)))
        print("    %-36s %5d    while finishing %5d" % ("all", sum(counts.values()), sum(again.values())))

    def test_kills_of_other_layouts(self):
        old, new = steps_of_tree(2)
        big = random.Random(1).randbytes(4 * MB)
        old["big"], new["big"], new["added"] = big, flipped(big, random.Random(2)), b"new"
        self.make_chain([old, new])
        rng = random.Random(int.from_bytes(os.urandom(4), "little"))
        self.copy("s0")
        start = time.monotonic()
        self.apply("d1", "t")
        duration = time.monotonic() - start
        for _ in range(KILLS // 4):
            self.copy("s0")
            p = subprocess.Popen([LMC, "apply", "d1", "t"], cwd=self.dir, stderr=subprocess.DEVNULL)
            try:
                p.wait(timeout=rng.random() * duration * 1.1)
            except subprocess.TimeoutExpired:
                p.kill()
            p.wait()
            found = self.snapshot("t")
            found = {f: data for f, data in found.items() if data is not False}
            self.assertTrue(found in (old, new))
            self.apply("d1", "t", says="")
            self.holds("t", new)
            for name in os.listdir(self.dir):
                if name.startswith(".lmc-"):
                    shutil.rmtree(self.path(name))


if __name__ == "__main__":
    sys.exit(case.main())
