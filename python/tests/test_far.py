"""URLs and fsspec: the same tensors, with as few requests as the format allows."""

import functools
import http.client
import http.server
import random
import threading

import fsspec
import lmc_codec as lmc
import numpy as np
import pytest
from conftest import same
from lmc_codec import _ranges, _safetensors, _sources
from lmc_codec.numpy import load_file


class Ranges(http.server.BaseHTTPRequestHandler):
    """A file server that supports ranges, which Python's own does not, and records requests."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.requests.append(self.headers.get("Range"))
        self.server.connections.add(self.client_address)
        self.server.tokens.append(self.headers.get("Authorization"))
        if self.path == "/moved.lmc":
            self.send_response(302)
            self.send_header("Location", "/model.lmc")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data = self.server.files.get(self.path)
        if data is None:
            return self.send_error(404)
        n = len(data)
        wanted = self.headers.get("Range")
        start, end = 0, n
        if wanted and not self.server.is_plain:
            first, last = wanted.removeprefix("bytes=").split("-")
            start, end = (int(first), int(last) + 1) if first else (max(n - int(last), 0), n)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{n}")
            self.send_header("ETag", self.server.tag)
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        if self.command != "HEAD":  # else its connection, kept alive, would have a body where the next answer begins
            self.wfile.write(data[start:end])

    do_HEAD = do_GET

    def log_message(self, *unused):
        pass


@pytest.fixture
def arrays():
    rng = np.random.default_rng(3)
    return {f"w{i}": rng.standard_normal((1000, 500 + i), np.float32) for i in range(8)}


@pytest.fixture
def server(arrays):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ranges)
    server.connections = set()
    server.requests, server.tokens, server.is_plain, server.tag = [], [], False, '"1"'
    data = lmc.numpy.save(arrays)
    small = lmc.numpy.save({"a": np.arange(3)})
    server.files = {"/model.lmc": data, "/small.lmc": small}
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=functools.partial(server.serve_forever, 0.05))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_http(server, arrays):
    with lmc.open(server.url + "/model.lmc") as r:
        assert r.keys() and r.info("w3").shape == (1000, 503)
        assert server.requests == ["bytes=-65536"]  # one request tells everything about the file
        server.requests.clear()
        assert same(r["w3"], arrays["w3"])
        assert len(server.requests) == 1  # one more brings a tensor
        start, end = map(int, server.requests[0].removeprefix("bytes=").split("-"))
        assert end + 1 - start < arrays["w3"].nbytes
        server.requests.clear()
        assert same(r.get_slice("w5")[100:110], arrays["w5"][100:110])
        assert len(server.requests) == 1
        start, end = map(int, server.requests[0].removeprefix("bytes=").split("-"))
        assert end + 1 - start < 2 * 65536 * 4
        server.requests.clear()
        for name in r:
            assert same(r[name], arrays[name])
        assert len(server.requests) <= len(arrays) / 2  # requests get larger while tensors are read in order
        with pytest.raises(lmc.NotFoundError, match="model.lmc"):
            r["nothing"]


def test_names_not_blocks(server, arrays):
    """An index that is larger than the first request takes a second one, which has the table of blocks, too."""
    names = {f"layer.{i}.{i * 7919 % 1009}.norm": np.full(3, i, np.int16) for i in range(6000)}
    server.files["/many.lmc"] = lmc.numpy.save({**arrays, **names})
    with lmc.open(server.url + "/many.lmc") as r:
        assert len(server.requests) == 2
        for name in ("w3", "w0", "w5"):
            server.requests.clear()
            assert same(r[name], arrays[name])
            assert len(server.requests) == 1
        server.requests.clear()
        assert same(r.get_slice("w7")[100:110], arrays["w7"][100:110])
        assert len(server.requests) == 1
    server.requests.clear()
    assert all(same(a, {**arrays, **names}[name]) for name, a in load_file(server.url + "/many.lmc").items())
    assert len(server.requests) <= 2 + 5  # and all of the file in parts of 4 MB


@pytest.fixture
def many_blocks():
    """A file with a large tensor, a small one, and a table of blocks that begins far in front of what is read first."""
    rng = np.random.default_rng(4)
    made = {"large": rng.standard_normal((6000, 1000), np.float32), "small": rng.standard_normal((300, 1000), np.float32)}
    parts, zeros = [], bytes(1 << 20)
    w = lmc._lmc.Writer(parts.append, log2_block=14)
    for name, a in made.items():
        w.begin_file(name, a.nbytes, [(name, "F32", a.shape, 0, a.nbytes, None, None)])
        w.write(a)
        w.end_file()
    w.begin_file("zeros", 200 << 20, [], "U8")
    for _ in range(200):
        w.write(zeros)
    w.end_file()
    w.finish()
    return b"".join(parts), made


def test_rows_far_away(server, many_blocks, monkeypatch):
    """Reading a whole tensor does not request the rows of its blocks; for a large one they are requested once, and bytes in
    memory stay."""
    monkeypatch.setattr(_ranges, "PART", 64 << 20)
    server.files["/many.lmc"], made = many_blocks
    with lmc.open(server.url + "/many.lmc") as r:
        assert len(server.requests) == 1
        assert same(r["small"], made["small"]) and len(server.requests) == 2
        assert same(r.get_slice("small")[100:110], made["small"][100:110]) and len(server.requests) == 3
    with lmc.open(server.url + "/many.lmc") as r:
        server.requests.clear()
        assert same(r["large"], made["large"]) and len(server.requests) == 2
    server.requests.clear()
    assert all(same(a, made[name]) for name, a in load_file(server.url + "/many.lmc").items())
    assert len(server.requests) == 3


def test_a_look_aside():
    """A few bytes from another place do not discard bytes that were read ahead."""
    asked = []

    class Far(_ranges.Ranges):
        def fetch(self, offset, view):
            asked.append((offset, len(view)))

    far = Far(1 << 30)
    far.expect(0, 100 << 20)
    far(0, 1 << 20)
    far(900 << 20, 1000)
    far(1 << 20, 1 << 20)
    assert asked == [(0, 32 << 20), (900 << 20, 1000)]


def test_rows_after_an_error(many_blocks):
    """The places of a tensor's blocks are found while it is read. After an early end they are found again."""
    data, made = many_blocks
    for name in made:
        for n_right in range(4):
            left = 1 << 30

            def read(offset, size):
                nonlocal left
                left -= 1
                if left < 0:
                    raise OSError("gone")
                return data[offset : offset + size]

            r = lmc._lmc.Reader(read, len(data))
            number, row = r.find(name, None)
            out, part = bytearray(row[4]), bytearray(1000)
            left = n_right
            try:
                r.read(number, row[3], out, None)
            except OSError:
                left = 1 << 30
                r.read(number, row[3] + row[4] - 1000, part, None)
                assert part == made[name].tobytes()[-1000:]
                r.read(number, row[3], out, None)
            assert out == made[name].tobytes()


def test_whole_files(server, arrays, monkeypatch):
    """A whole file takes one request, and one for its end, on one connection; above 8 MB several parallel requests."""
    assert all(same(a, arrays[name]) for name, a in load_file(server.url + "/model.lmc").items())
    assert len(server.requests) == 5
    server.requests.clear()
    server.connections.clear()
    monkeypatch.setattr(_ranges, "PART", 16 << 20)
    assert all(same(a, arrays[name]) for name, a in load_file(server.url + "/model.lmc").items())
    size = len(server.files["/model.lmc"])
    assert server.requests[0] == "bytes=-65536" and server.requests[1].endswith(f"-{size - 65537}")
    assert len(server.requests) == 2 and len(server.connections) == 1
    server.requests.clear()
    new = {name: a + 1 for name, a in arrays.items()}
    server.files["/delta.lmc"] = lmc.numpy.save(new, base=arrays)
    found = load_file(server.url + "/delta.lmc", base=server.url + "/model.lmc")
    assert all(same(a, new[name]) for name, a in found.items())
    assert len(server.requests) < 2 * len(arrays)  # requests for the base get larger, too


def test_fsspec_whole_files(arrays, monkeypatch):
    with fsspec.open("memory://dir/whole.lmc", "wb") as file:
        file.write(lmc.numpy.save(arrays))
    asked = []
    monkeypatch.setattr(_sources._Fsspec, "fetch", lambda self, offset, view, f=_sources._Fsspec.fetch: (asked.append(len(view)), f(self, offset, view)))
    assert all(same(a, arrays[name]) for name, a in load_file("memory://dir/whole.lmc").items())
    assert len(asked) < 5 and sum(asked) < 1.1 * sum(a.nbytes for a in arrays.values())
    asked.clear()
    monkeypatch.setattr(_ranges, "PIECE", 1 << 20)
    monkeypatch.setattr(_safetensors, "PIECE", 1 << 20)
    assert all(same(a, arrays[name]) for name, a in load_file("memory://dir/whole.lmc").items())
    assert max(asked) <= 2 << 20  # a request is for one piece, or for what one call reads


def test_pieces(monkeypatch):
    """For any order of requests the bytes are right, and sequential requests read nothing twice."""
    data = random.Random(1).randbytes(3_000_000)
    monkeypatch.setattr(_ranges, "PIECE", 300_000)
    monkeypatch.setattr(_ranges, "PART", 50_000)
    asked = []

    class Far(_ranges.Ranges):
        can_fetch_at_once = True

        def fetch(self, offset, view):
            asked.append((offset, len(view)))
            view[:] = data[offset : offset + len(view)]

    for seed in range(12):
        rng, far = random.Random(seed), Far(len(data))
        if seed % 2:
            far.tail, far.tail_at = memoryview(data)[-65536:], len(data) - 65536
        if seed % 3 == 0:
            far.expect(rng.randrange(len(data)), len(data))
        asked.clear()
        at = 0
        for _ in range(100):
            size = min(rng.choice((1, 100, 20_000, 200_000, 600_000)), len(data) - at)
            assert far(at, size) == data[at : at + size]
            at = (at + size) % len(data) if seed % 5 else rng.randrange(len(data))
        assert not any(offset + n > far.tail_at for offset, n in asked)
    far, at = Far(len(data)), 0
    asked.clear()
    while at < len(data):
        assert far(at, 10_000) == data[at : at + 10_000]
        at += 10_000
    assert sum(n for _, n in asked) == len(data)


def test_small_files_take_one_request(server):
    with lmc.open(server.url + "/small.lmc") as r:
        assert r["a"].tolist() == [0, 1, 2]
    assert len(server.requests) == 1


def test_http_that_goes_wrong(server, arrays):
    with pytest.raises(FileNotFoundError, match="404.*nothing.lmc"):
        lmc.open(server.url + "/nothing.lmc")
    server.tokens.clear()
    with lmc.open(server.url + "/moved.lmc", storage_options={"Authorization": "Bearer x"}) as r:
        assert same(r["w1"], arrays["w1"])
    assert server.tokens[0] == "Bearer x"
    r = lmc.open(server.url + "/model.lmc")
    server.tag = '"2"'
    with pytest.raises(OSError, match="has changed"):
        r["w0"]
    r.close()
    server.is_plain = True
    with pytest.raises(OSError, match="ranges"):
        lmc.open(server.url + "/model.lmc")
    assert lmc.open(server.url + "/small.lmc")["a"].tolist() == [0, 1, 2]


def test_fsspec_memory(arrays):
    with fsspec.open("memory://dir/model.lmc", "wb") as file:
        with lmc.Writer(file) as w:
            w.add_arrays(arrays)
    with lmc.open("memory://dir/model.lmc") as r:
        for name in arrays:
            assert same(r[name], arrays[name])
    with fsspec.open("memory://dir/model.lmc", "rb") as file, lmc.open(file) as r:
        assert same(r.get_slice("w2")[5], arrays["w2"][5])
    with pytest.raises(FileNotFoundError):
        lmc.open("memory://dir/nothing.lmc")


def test_the_server(server):
    """HEAD has no body: the answer to the next request on that connection follows at once."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
    for method in ("HEAD", "GET", "HEAD", "GET"):
        connection.request(method, "/small.lmc")
        answer = connection.getresponse()
        assert answer.status == 200 and answer.length == (0 if method == "HEAD" else len(server.files["/small.lmc"]))
        answer.read()
    connection.close()


def test_fsspec_http(server, arrays):
    """An fsspec file: its own caches are not used, and a tensor takes one request."""
    with fsspec.open(server.url + "/model.lmc", "rb") as file, lmc.open(file) as r:
        server.requests.clear()
        assert same(r["w3"], arrays["w3"])
        assert len(server.requests) == 1


def test_fsspec_local(tmp_path, arrays):
    lmc.numpy.save_file(arrays, tmp_path / "m.lmc")
    with fsspec.open(str(tmp_path / "m.lmc"), "rb") as file, lmc.open(file) as r:
        assert same(r["w3"], arrays["w3"])


def test_deltas_over_http(server, arrays):
    new = {name: a.copy() for name, a in arrays.items()}
    new["w0"][3] += 1
    server.files["/delta.lmc"] = lmc.numpy.save(new, base=arrays)
    with lmc.open(server.url + "/delta.lmc", base=server.url + "/model.lmc") as r:
        assert same(r["w0"], new["w0"])
        assert same(r["w1"], new["w1"])


def test_a_training_state(server, tmp_path):
    """Small tensors are read together, even transposed ones, and requests to the base grow."""
    torch = pytest.importorskip("torch")
    from lmc_codec.torch import load_checkpoint, load_file, save_checkpoint

    state = {f"layers.{i}": {"w": torch.randn(100, 100), "t": torch.randn(50, 40).t(), "step": torch.tensor(3.0)} for i in range(250)}
    save_checkpoint(state, tmp_path / "a.lmc")
    for x in state.values():
        x["w"][::7] += 0.01
    save_checkpoint(state, tmp_path / "b.lmc", base=tmp_path / "a.lmc")
    server.files = {f"/{name}": (tmp_path / name).read_bytes() for name in ("a.lmc", "b.lmc")}
    found = load_file(server.url + "/b.lmc", base="auto")
    assert len(server.requests) <= 25
    for name, x in state.items():
        for part, t in x.items():
            assert torch.equal(found[f"{name}.{part}"], t) and found[f"{name}.{part}"].shape == t.shape
    server.requests.clear()
    again = load_checkpoint(server.url + "/b.lmc")
    assert len(server.requests) <= 50 and all(torch.equal(again[name]["t"], x["t"]) for name, x in state.items())


def test_small_ranges_after_a_jump():
    """Small reads that follow one another elsewhere are read ahead, too. Single ones between reads of a piece leave it alone."""
    from lmc_codec._ranges import Ranges

    class Counted(Ranges):
        n_fetched = 0

        def fetch(self, offset, view):
            self.n_fetched += 1
            view[:] = data[offset : offset + len(view)]

    data = np.random.default_rng(1).bytes(8 << 20)
    ranges = Counted(len(data))
    ranges.expect(0, 1 << 20)
    for at in range(0, 100000, 1000):  # its piece has 1 MiB
        assert ranges(at, 1000) == data[at : at + 1000]
        if at % 10000 == 0:  # a row of a table
            assert ranges((6 << 20) + at // 1000, 8) == data[(6 << 20) + at // 1000 :][:8]
    assert ranges.n_fetched == 1 + 10
    ranges.n_fetched = 0
    for at in range(4 << 20, 6 << 20, 10000):  # with gaps of 100 bytes
        assert ranges(at, 9900) == data[at : at + 9900]
    assert ranges.n_fetched <= 12
