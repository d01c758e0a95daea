"""Several threads on one Reader, one Writer, one Base, and on what Python calls back; a program of its own, without any other
package, so that it runs in an interpreter without the GIL, too: python3.13t threads.py. Says "fine" at its end."""

import io
import random
import sys
import tempfile
import threading
from pathlib import Path

import lmc_codec

N_THREADS = 6


def run(work):
    """work(number of the thread) in all threads at once; raises what the first of them raised."""
    errors, start = [], threading.Barrier(N_THREADS)

    def one(i):
        start.wait()
        try:
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(N_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def make(seed, size=300_000):
    return bytes(random.Random(seed).choices((0x3C, 0x3D, 0xBC, 1, 2, 3), k=size))


def write(where, arrays, **options):
    with lmc_codec.Writer(where, **options) as w:
        for name, data in arrays.items():
            w.add(name, data, dtype="U8")


def one_writer(path, arrays):
    """Each thread adds its own; files of one writer follow each other."""
    with lmc_codec.Writer(path, threads=2) as w:

        def add(i):
            for name in list(arrays)[i::N_THREADS]:
                w.add(name, arrays[name], dtype="U8")

        run(add)


def one_reader(reader, arrays):
    def read(i):
        rng = random.Random(i)
        for _ in range(25):
            name = rng.choice(list(arrays))
            assert reader.get(name, framework="bytes") == arrays[name]
            first = rng.randrange(len(arrays[name]) - 1000)
            part = reader.get_slice(name, framework="bytes")[first : first + 1000]
            assert part == arrays[name][first : first + 1000]
            assert reader.info(name).shape == (len(arrays[name]),) and len(reader.keys()) == len(arrays)

    run(read)


def closed_amid(path, arrays):
    """A reader that another thread closes: what is read is right, or there is an error that says so."""
    for _ in range(10):
        reader = lmc_codec.open(path, threads=2)

        def read(i, reader=reader):
            try:
                for name in arrays:
                    if i == 0 and name == "t3":
                        reader.close()
                    assert reader.get(name, framework="bytes") == arrays[name]
            except ValueError as error:
                assert "closed" in str(error)

        run(read)


class Failing(io.BytesIO):
    def seek(self, offset, whence=0):
        if getattr(self, "is_broken", False):
            raise ZeroDivisionError("the disk")
        return super().seek(offset, whence)


def failing_file(data, arrays):
    """Threads of the codec that meet an exception of Python at the same time: one comes through."""
    file = Failing(data)
    reader = lmc_codec.open(file, threads=4)
    file.is_broken = True

    def read(i):
        try:
            reader.get("t1", framework="bytes")
        except ZeroDivisionError:
            return
        raise AssertionError("no exception")

    run(read)


def shared_base(directory, old):
    base = lmc_codec.Base(old)
    new = {name: data[:1000] + make(99, 1000) + data[2000:] for name, data in old.items()}

    def one(i):
        path = directory / f"delta{i}.lmc"
        write(path, new, base=base, threads=1 + i % 2)
        with lmc_codec.open(path, base=base) as reader:
            for name in new:
                assert reader.get(name, framework="bytes") == new[name]

    run(one)


def one_codec(arrays):
    """Single tensors have no object that is locked: all threads take the same input, base and file."""
    old, new = arrays["t0"], arrays["t0"][:1000] + make(99, 1000) + arrays["t0"][2000:]
    packed = lmc_codec.compress(old, dtype="U8")
    delta = lmc_codec.compress(new, old, dtype="U8")

    def code(i):
        out = bytearray(len(old))
        for _ in range(5):
            assert lmc_codec.compress(old, dtype="U8", threads=1 + i % 2) == packed
            lmc_codec.decompress(packed, out=out)
            assert out == old
            lmc_codec.decompress(delta, old, out=out)
            assert out == new

    run(code)


def aborted_amid(arrays):
    """A writer that another thread aborts: what is under way ends with an error."""
    for _ in range(5):
        w = lmc_codec._lmc.Writer(None, 10_000_000, threads=2)

        def add(i, w=w):
            if i == 0:
                w.abort()
            try:
                w.begin_file(str(i), 300_000, [])
                w.write(arrays["t0"])
                w.end_file()
            except lmc_codec.LMCError:  # because of the abort, or because another thread has begun a file
                return

        run(add)
        try:
            w.finish()
        except lmc_codec.LMCError:
            continue
        raise AssertionError("no error")


def main():
    arrays = {f"t{i}": make(i) for i in range(12)}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "all.lmc")
        one_writer(path, arrays)
        with lmc_codec.open(path, threads=2) as reader:
            assert sorted(reader.keys()) == sorted(arrays)
            one_reader(reader, arrays)
        with open(path, "rb") as file, lmc_codec.open(io.BytesIO(file.read()), threads=2) as reader:
            one_reader(reader, arrays)
        closed_amid(path, arrays)
        failing_file(path.read_bytes(), arrays)
        one_codec(arrays)
        aborted_amid(arrays)
        shared_base(Path(directory), {name: arrays[name] for name in ("t0", "t1", "t2")})
    is_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    print("fine", "with the GIL" if is_gil else "without the GIL")


if __name__ == "__main__":
    main()
