#!/usr/bin/env python3
"""Time and requests to read 1 MB of a checkpoint of 10 GB.

    bench/studies/slice.py [--gb N] [--dir DIRECTORY]        markdown to stdout

The checkpoint is sparse: tensors of 1 GB of bf16, zero except 32 MB of random weights in the middle of each, from which slices are taken. So its LMC
file is small, and has as many blocks and as large an index as a full one. Each figure is
the median of 21 slices at random places; "opened anew": safe_open, the slice, close."""
import argparse, functools, http.server, os, random, statistics, sys, tempfile, threading, time
import numpy as np
import ml_dtypes
import lmc_codec
from lmc_codec.numpy import safe_open

ROWS, COLUMNS = 1 << 18, 1 << 11  # 2^30 bytes
REAL = 1 << 13                    # rows with weights, in the middle
SLICE = 1 << 8                    # rows of a slice: 1 MiB


class Ranges(http.server.BaseHTTPRequestHandler):
    """A server of one file, by ranges, that counts requests."""
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        s = self.server
        s.requests += 1
        first, last = self.headers["Range"].removeprefix("bytes=").split("-")
        start, end = (int(first), min(int(last) + 1, s.size)) if first else (max(s.size - int(last), 0), s.size)
        s.bytes += end - start
        self.send_response(206)
        self.send_header("Content-Range", "bytes %d-%d/%d" % (start, end - 1, s.size))
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        with open(s.path, "rb") as f:
            f.seek(start)
            self.wfile.write(f.read(end - start))

    def log_message(self, *unused):
        pass


def make(path, n, weights):
    tensor = np.zeros((ROWS, COLUMNS), np.uint16).view(ml_dtypes.bfloat16)
    tensor[(ROWS - REAL) // 2:][:REAL] = weights
    with lmc_codec.Writer(path) as w:
        for i in range(n):
            w.add("layer.%d" % i, tensor)


def measure(label, slices, n):
    times = []
    for _ in range(n):
        start = time.perf_counter()
        slices()
        times.append(time.perf_counter() - start)
    print("| %s | %.2f ms |" % (label, 1e3 * statistics.median(times)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gb", type=int, default=10)
    parser.add_argument("--dir", default="/dev/shm" if os.path.isdir("/dev/shm") else None)
    args = parser.parse_args()
    rng = random.Random(1)
    weights = (np.random.default_rng(1).standard_normal((REAL, COLUMNS), np.float32) * 0.02).astype(ml_dtypes.bfloat16)
    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
        path = os.path.join(folder, "x.lmc")
        make(path, args.gb, weights)
        size = os.path.getsize(path)
        print("| 1 MiB of %d GiB (an LMC file of %.0f MB) | |\n|---|---|" % (args.gb, size / 1e6))

        def read(f):
            at = rng.randrange(REAL - SLICE)
            start = (ROWS - REAL) // 2 + at
            got = f.get_slice("layer.%d" % rng.randrange(args.gb))[start:start + SLICE]
            assert got.nbytes == 1 << 20 and got.tobytes() == weights[at:at + SLICE].tobytes()

        def anew(where):
            with safe_open(where, "np") as f:
                read(f)

        with safe_open(path, "np") as f:
            measure("get_slice, of an open file", lambda: read(f), 21)
        measure("get_slice, opened anew", lambda: anew(path), 21)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ranges)
        server.path, server.size, server.requests, server.bytes = path, size, 0, 0
        threading.Thread(target=functools.partial(server.serve_forever, 0.05), daemon=True).start()
        url = "http://127.0.0.1:%d/x.lmc" % server.server_port
        with lmc_codec.open(url) as r:
            first = server.requests, server.bytes
            measure("HTTP (local), of an open file", lambda: read(r), 21)
            n, moved = server.requests - first[0], server.bytes - first[1]
        print("| HTTP: requests to open, bytes | %d, %.2f MB |" % (first[0], first[1] / 1e6))
        print("| HTTP: requests for a slice, bytes | %.1f, %.2f MB |" % (n / 21, moved / 21e6))
        measure("HTTP (local), opened anew", lambda: anew_url(url, read), 5)
        server.shutdown()


def anew_url(url, read):
    with lmc_codec.open(url) as r:
        read(r)


if __name__ == "__main__":
    sys.exit(main())
