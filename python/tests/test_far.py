"""URLs and fsspec: the same tensors, by as few requests as the format allows."""

import functools
import http.client
import http.server
import threading

import fsspec
import lmc_codec as lmc
import numpy as np
import pytest
from conftest import same


class Ranges(http.server.BaseHTTPRequestHandler):
    """A file server that takes ranges, as Python's own does not, and remembers what was asked for."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.requests.append(self.headers.get("Range"))
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
        assert len(server.requests) == 1  # and one brings a tensor
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
        assert len(server.requests) <= len(arrays)
        with pytest.raises(lmc.NotFoundError, match="model.lmc"):
            r["nothing"]


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
    """An fsspec file: its own caches are passed by; of a tensor there is one request."""
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
