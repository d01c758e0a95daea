#!/usr/bin/env python3
"""What users of the Python package and of the command wait for, beside safetensors and PyTorch: a table of ratios.

    bench/python.py [--small] [--turns N] [--threads N] [--only TEXT] [--lmc COMMAND]

Needs torch, safetensors and lmc_codec. Two models: 239 MB in 41 bf16 tensors (embedding, attention, MLP), and 148 MB in 3,000 (128 KB, 1 KB and
16 KB in turn); deltas change 16 % of the elements by one step. --small: models of some MB, for a test that nothing crashes. --only: rows with TEXT.

Each row compares two calls, which take turns in this process; times are the CPU time (user and system) of the fastest of N turns (9), so that other
jobs of the machine change them little; compare the ratio with others of the same run. The process starts itself anew with
MALLOC_MMAP_THRESHOLD_=131072, so that arrays get new memory, as in a process that has just started. Then come page faults (minor), and the peak memory
beyond what the process had before the call. Files are in /dev/shm if there is room. Columns "goal" are the project's."""
import argparse, contextlib, gc, http.server, inspect, io, os, resource, shutil, signal, subprocess, sys, tempfile, time, urllib.request

MALLOC = "MALLOC_MMAP_THRESHOLD_"
if __name__ == "__main__" and os.environ.get(MALLOC) != "131072":
    os.environ[MALLOC] = "131072"
    os.execv(sys.executable, [sys.executable, *sys.argv])

import safetensors.numpy, safetensors.torch
import numpy as np
import torch
import lmc_codec, lmc_codec.numpy
import lmc_codec.torch as lmc

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def large(small):
    """An embedding, and layers of attention and MLP."""
    width, rows = (64, 256) if small else (1280, 16000)
    shapes = {"embed": (rows, width)}
    for i in range(5):
        shapes.update({f"layer.{i}.{x}_proj": (width, width) for x in "qkvo"})
        shapes.update({f"layer.{i}.mlp.{x}": (width, int(2.7 * width)) for x in ("gate", "up", "down")})
        shapes[f"layer.{i}.norm"] = (width,)
    return shapes


def many(small):
    return {f"block.{i:04}.w": ((64 << 10, 512, 8 << 10)[i % 3],) for i in range(30 if small else 3000)}


def make(shapes, seed):
    g = torch.Generator().manual_seed(seed)
    return {name: (torch.randn(shape, generator=g) * 0.02).to(torch.bfloat16) for name, shape in shapes.items()}


def change(tensors, seed):
    g = torch.Generator().manual_seed(seed)
    return {name: (t.view(torch.int16) + (torch.rand(t.shape, generator=g) < 0.16).to(torch.int16)).view(torch.bfloat16) for name, t in tensors.items()}


# -- measuring --

def cpu():
    """Seconds of this process and of its finished children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def memory(what):
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith(what)) << 10


def measure(call, clock=cpu):
    """Seconds by the clock, wall seconds, page faults, peak of new memory, and the result."""
    gc.collect()
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as f:
        f.write("5")  # the peak begins anew
    before, faults, start, at = memory("VmRSS"), resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter(), clock()
    result = call()
    seconds, wall = clock() - at, time.perf_counter() - start
    return seconds, wall, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults, max(0, memory("VmHWM") - before), result


class Table:
    def __init__(self, turns, only):
        self.turns, self.only = turns, only
        print("| work | beside | CPU ms | CPU ms | ratio | goal | wall ms | faults | faults beside | peak MB | peak MB beside |")
        print("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|", flush=True)

    def row(self, what, call, beside, their_call, goal="", before=lambda: None, clock=cpu):
        """clock: CPU time of the process or of this thread. before: called ahead of each call, not measured; they get its result, unless it is None."""
        if self.only not in what:
            return
        found = [[], []]
        for _ in range(self.turns + (self.turns > 1)):
            for i, f in enumerate((call, their_call)):
                given = before()
                found[i].append(measure(f if given is None else lambda: f(given), clock)[:4])
                del given
        best = [min(x[1:] or x) for x in found]  # the first of several turns warms up
        (a, wall, faults, peak), (b, _, their_faults, their_peak) = best
        print(f"| {what} | {beside} | {a * 1e3:.1f} | {b * 1e3:.1f} | {a / b:.2f} | {goal} | {wall * 1e3:.0f} | {faults:,} | {their_faults:,} |"
              f" {peak / 1e6:.0f} | {their_peak / 1e6:.0f} |", flush=True)


def has(function, name):
    return name in inspect.signature(function).parameters


# -- the rows --

def touch(tensors):
    for t in tensors.values():
        t.view(-1).view(torch.uint8)[::4096].sum()
    return tensors


def copy_into(model, tensors):
    for name, t in tensors.items():
        model[name].copy_(t)


class Model(torch.nn.Module):
    def __init__(self, tensors):
        super().__init__()
        for name, t in tensors.items():
            self.register_buffer(name.replace(".", "_"), t)


def rows_of(table, title, goals, shapes, d, threads, command):
    a = make(shapes, 1)
    b = change(a, 2)
    path = {name: os.path.join(d, name) for name in ("a.st", "a.lmc", "b.lmc", "d.lmc", "x.lmc", "x.st", "x.pt", "m.st", "m.lmc", "b.st")}
    options = {"threads": threads}
    safetensors.torch.save_file(a, path["a.st"])
    safetensors.torch.save_file(b, path["b.st"])
    lmc.save_file(a, path["a.lmc"], **options)
    lmc.save_file(b, path["b.lmc"], **options)
    lmc.save_file(b, path["d.lmc"], base=a, **options)
    for name, t in lmc.load_file(path["d.lmc"], base=a, **options).items():
        assert torch.equal(t.view(torch.int16), b[name].view(torch.int16))

    def theirs():
        return {name: t.clone() for name, t in safetensors.torch.load_file(path["a.st"]).items()}

    def ours(file="a.lmc", **more):
        return lmc.load_file(path[file], **options, **more)

    table.row(f"load_file, {title}", ours, "safetensors, clone", theirs, goals[0])
    table.row(f"load_file, {title}", ours, "safetensors, touched", lambda: touch(safetensors.torch.load_file(path["a.st"])))
    table.row(f"load_file of numpy, {title}", lambda: lmc_codec.numpy.load_file(path["a.lmc"], **options), "safetensors, clone", theirs)
    table.row(f"load_file, {title}", ours, "verify", lambda: lmc_codec.verify(path["a.lmc"], **options))
    model = make(shapes, 3)
    into = (lambda: ours(out=model)) if has(lmc.load_file, "out") else lambda: copy_into(model, ours())
    table.row(f"load_file(out=), {title}", into, "safetensors, copy_", lambda: copy_into(model, safetensors.torch.load_file(path["a.st"])), "0.85")
    module = Model(model)
    safetensors.torch.save_model(module, path["m.st"])
    lmc.save_model(module, path["m.lmc"], **options)
    table.row(f"load_model, {title}", lambda: lmc.load_model(module, path["m.lmc"], **options), "safetensors, copy_",
              lambda: copy_into(model, safetensors.torch.load_file(path["a.st"])), "0.85")
    table.row(f"load_model, {title}", lambda: lmc.load_model(module, path["m.lmc"], **options), "safetensors.load_model",
              lambda: safetensors.torch.load_model(module, path["m.st"]))
    del model, module
    table.row(f"load_file(delta, base=arrays), {title}", lambda: ours("d.lmc", base=a), "load_file", ours, goals[1])
    table.row(f"load_file(delta, base=path), {title}", lambda: ours("d.lmc", base=path["a.lmc"]), "load_file", ours, goals[2])
    held = {name: t.clone() for name, t in a.items()}

    def fresh():
        copy_into(held, a)
        return held  # which apply_file() changes

    table.row(f"apply_file, {title}", lambda held: lmc.apply_file(path["d.lmc"], held, **options), "load_file(delta, base=arrays)",
              lambda held: ours("d.lmc", base=held), goals[3], fresh)
    for name, t in held.items() if table.only in f"apply_file, {title}" else ():
        assert torch.equal(t.view(torch.int16), a[name].view(torch.int16))
        lmc.apply_file(path["d.lmc"], held, **options)
        assert torch.equal(t.view(torch.int16), b[name].view(torch.int16))
        break
    del held, fresh
    table.row(f"save_file, {title}", lambda: lmc.save_file(a, path["x.lmc"], **options), "safetensors",
              lambda: safetensors.torch.save_file(a, path["x.st"]))
    table.row(f"save_checkpoint, {title}", lambda: lmc.save_checkpoint(a, path["x.lmc"], **options), "torch.save",
              lambda: torch.save(a, path["x.pt"]), goals[4])
    if has(lmc.save_checkpoint, "wait"):
        handles = []

        def settle():
            while handles:
                handles.pop().wait()

        table.row(f"save_checkpoint(wait=False) until it returns, {title}", lambda: handles.append(lmc.save_checkpoint(a, path["x.lmc"], wait=False, **options)),
                  "clone of the state", lambda: {name: t.clone() for name, t in a.items()}, "1.3", settle, time.thread_time)
        settle()
    if command:
        plain = ["-q", "-f", f"-T{threads}"]
        table.row(f"lmc --hash, {title}", lambda: run(command, *plain, "--hash", "-o", path["x.lmc"], path["a.st"]), "without",
                  lambda: run(command, *plain, "-o", path["x.lmc"], path["a.st"]), "2")
        table.row(f"lmc diff, {title}", lambda: run(command, "diff", f"-T{threads}", path["a.lmc"], path["b.lmc"]), "lmc --base",
                  lambda: run(command, *plain, "--base", path["a.lmc"], "-o", path["x.lmc"], path["b.st"]), "0.8")


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def tiny(table, d, threads, n):
    arrays = {f"expert.{i}.w": np.full((32, 32), i % 100, np.float16) for i in range(n)}
    ours, theirs = os.path.join(d, "tiny.lmc"), os.path.join(d, "tiny.st")
    tensors = {name: torch.from_numpy(x) for name, x in arrays.items()}
    title = f"{n:,} tensors of 2 KB"
    table.row(f"save_file of numpy, {title}", lambda: lmc_codec.numpy.save_file(arrays, ours, threads=threads), "safetensors",
              lambda: safetensors.numpy.save_file(arrays, theirs), "1.5")
    table.row(f"save_file of torch, {title}", lambda: lmc.save_file(tensors, ours, threads=threads), "safetensors",
              lambda: safetensors.torch.save_file(tensors, theirs))
    lmc_codec.numpy.save_file(arrays, ours, threads=threads)
    safetensors.numpy.save_file(arrays, theirs)
    table.row(f"load_file of numpy, {title}", lambda: lmc_codec.numpy.load_file(ours, threads=threads), "safetensors",
              lambda: safetensors.numpy.load_file(theirs))
    table.row(f"load_file of torch, {title}", lambda: lmc.load_file(ours, threads=threads), "safetensors, clone",
              lambda: {name: t.clone() for name, t in safetensors.torch.load_file(theirs).items()})


class Far(http.server.BaseHTTPRequestHandler):
    """Serves parts of one file, some time late. A path without a dot: how many requests for parts there were."""

    protocol_version, disable_nagle_algorithm, requests, data, delay = "HTTP/1.1", True, 0, b"", 0.03

    def do_GET(self):
        if "." not in self.path:
            text = str(Far.requests).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
            return
        Far.requests += 1
        time.sleep(self.delay)
        first, last = 0, len(self.data) - 1
        if "Range" in self.headers:
            a, b = self.headers["Range"].removeprefix("bytes=").split("-")
            first, last = (int(a), min(last, int(b or last))) if a else (len(self.data) - int(b), last)
        self.send_response(206)
        self.send_header("Content-Length", str(last + 1 - first))
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(self.data)}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", '"1"')
        self.end_headers()
        self.wfile.write(self.data[first : last + 1])

    def log_message(self, *unused):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128  # with 5 the system drops connections, and tries again after a second


def far(only, delay):
    title = f"20 scattered tensors of 300 over HTTP, {delay * 1e3:.0f} ms late"
    if only not in title:
        return
    Far.delay = delay
    rng = np.random.default_rng(1)
    arrays = {f"t{i:03}": rng.standard_normal(20000, np.float32) for i in range(300)}
    Far.data = lmc_codec.numpy.save(arrays)
    server = Server(("127.0.0.1", 0), Far)
    process = os.fork()  # a server in this process would take turns with the reader
    if process == 0:
        server.serve_forever()
    server.server_close()
    url = f"http://127.0.0.1:{server.server_address[1]}"

    def count():
        with urllib.request.urlopen(f"{url}/count") as answer:
            return int(answer.read())

    names = [f"t{i:03}" for i in range(0, 300, 15)]
    try:
        least = float("inf")
        gc.disable()  # of all objects of torch it takes longer than the 30 ms
        for _ in range(5):
            with lmc_codec.open(f"{url}/x.lmc") as r:
                opened, start = count(), time.perf_counter()
                if hasattr(r, "prefetch"):
                    r.prefetch(names)
                for name in names:
                    assert (r.get(name) == arrays[name]).all()
                least = min(least, (time.perf_counter() - start) / Far.delay)
        print(f"\n{title}: {count() - opened} requests and {least:.1f} latencies (goal: 2; least of 5)")
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        gc.enable()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--turns", type=int)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--lmc", default=os.path.join(ROOT, "build", "lmc"))
    args = parser.parse_args()
    turns = args.turns or (1 if args.small else 9)
    torch.set_num_threads(1)
    print(f"lmc_codec {lmc_codec.__version__} ({lmc_codec.versions() if hasattr(lmc_codec, 'versions') else ''}), torch {torch.__version__},"
          f" safetensors {safetensors.__version__}, numpy {np.__version__}; least of {turns}; threads={args.threads}; load {os.getloadavg()[0]:.1f}\n")
    place = "/dev/shm" if os.path.isdir("/dev/shm") and shutil.disk_usage("/dev/shm").free > 4 << 30 else None
    command = args.lmc if os.access(args.lmc, os.X_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as d:
        table = Table(turns, args.only)
        rows_of(table, "41 tensors", ("0.5", "", "", "1.4", "1.0"), large(args.small), d, args.threads, command)
        rows_of(table, "3,000 tensors", ("0.6", "1.5", "2.0", "", "1.2"), many(args.small), d, args.threads, command)
        tiny(table, d, args.threads, 1000 if args.small else 100_000)
    for delay in (0.03, 0.3):
        far(args.only, delay)
    print(f"\nload {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
