"""HTTP servers that are busy, silent or slow, break connections, redirect, or handle ranges in unusual ways."""

import functools
import http.server
import io
import os
import re
import signal
import socket
import threading
import time

import lmc_codec as lmc
import numpy as np
import pytest
from conftest import same
from lmc_codec import _http, _ranges


class Handler(http.server.BaseHTTPRequestHandler):
    """The default answer of the server: a file, by ranges."""

    def setup(self):
        super().setup()
        self.server.n_connections += 1

    def do_GET(self):
        server = self.server
        wanted = (self.headers.get("Range") or "").removeprefix("bytes=")
        server.requests.append((self.command, self.path, wanted, dict(self.headers)))
        if server.answer and server.answer(self, len(server.requests) - 1):
            return
        self.give()

    do_HEAD = do_GET

    def give(self, total=None, cut=None, more=()):
        data = self.server.data
        wanted = (self.headers.get("Range") or "").removeprefix("bytes=")
        first, _, last = wanted.partition("-")
        start, end = (int(first), int(last) + 1) if first else (max(len(data) - int(last or len(data)), 0), len(data))
        head = [("Content-Length", end - start), *more]
        if wanted:
            head.append(("Content-Range", f"bytes {start}-{end - 1}/{total or len(data)}"))
        self.say(206 if wanted else 200, head, data[start:end][:cut] if self.command == "GET" else b"")

    def say(self, status, head=(), body=b""):
        self.send_response(status)
        for name, value in head:
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)
        return True

    def log_message(self, *unused):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, data):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests, self.answer, self.data, self.n_connections = [], None, data, 0
        self.origin = f"http://127.0.0.1:{self.server_port}"
        self.url = self.origin + "/a.lmc"
        self.thread = threading.Thread(target=functools.partial(self.serve_forever, 0.01))
        self.thread.start()

    def handle_error(self, *unused):  # the client has gone: that is no error here
        pass

    def end(self):
        self.shutdown()
        self.server_close()
        self.thread.join()


@pytest.fixture(scope="module")
def array():
    return np.random.default_rng(3).integers(0, 255, 3_000_000, np.uint8)


@pytest.fixture
def servers(array, monkeypatch):
    monkeypatch.setattr(_http, "FIRST_WAIT", 0.001)
    data = lmc.numpy.save({"w": array, "v": array[:400_000].view(np.int8)})
    both = [Server(data), Server(data)]
    yield both
    for server in both:
        server.end()


@pytest.fixture
def keeping(servers, monkeypatch):
    """A server that keeps connections, as those of today do."""
    monkeypatch.setattr(Handler, "protocol_version", "HTTP/1.1")
    monkeypatch.setattr(Handler, "disable_nagle_algorithm", True)
    return servers[0]


@pytest.fixture
def server(servers):
    return servers[0]


def read(server, **options):
    with lmc.open(server.url, storage_options=options or None) as r:
        return r["w"]


def busy(status, *head):
    return lambda h, i: i in (0, 2, 3) and h.say(status, [("Content-Length", 0), *head])


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_busy(server, array, status):
    server.answer = busy(status, ("Retry-After", "0"))
    assert same(read(server), array)
    assert [x[2] for x in server.requests][:2] == ["-65536"] * 2 and len(server.requests) == 5


def test_retry_after_is_bounded(server, array, monkeypatch):
    waits = []
    monkeypatch.setattr(_http.time, "sleep", waits.append)
    for asked in ("7", "86400", "9" * 5000, "Wed, 21 Oct 2099 07:28:00 GMT"):
        server.requests.clear()
        server.answer = lambda h, i: i == 0 and h.say(503, [("Content-Length", 0), ("Retry-After", asked)])
        assert same(read(server), array)
    assert waits[:3] == [7, 30, 30] and waits[3] < 1


def test_busy_for_good(server):
    server.answer = lambda h, i: h.say(503, [("Content-Length", 0)])
    with pytest.raises(lmc.ReadError, match="a.lmc: HTTP 503 Service Unavailable, 4 times") as caught:
        read(server)
    assert isinstance(caught.value, OSError) and caught.value.status_name == "LMC_ERR_READ"
    assert len(server.requests) == 4 and caught.value.__cause__.code == 503


def test_bodies_that_break_off(server, array):
    """Reading continues after broken answers, as long as each has at least a piece."""
    server.answer = lambda h, i: h.give(cut=(1 << 20) + 1000) or True
    assert same(read(server), array)
    starts = [int(x[2].split("-")[0]) for x in server.requests[1:]]
    assert len(starts) == 3 and starts == sorted(set(starts))
    server.requests.clear()
    server.answer = lambda h, i: i > 0 and (h.give(cut=1000), True)
    with pytest.raises(lmc.ReadError, match="a.lmc: the connection ended early, 4 times"):
        read(server)
    server.requests.clear()
    server.answer = lambda h, i: i < 2 and (h.give(cut=1000), True)  # the first answer is cut, too
    assert same(read(server), array)


def test_resets(server, array):
    def answer(h, i):
        if i in (0, 2):
            h.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            h.connection.close()
            h.wfile = open(os.devnull, "wb")  # nothing more is sent
            return True

    server.answer = answer
    assert same(read(server), array)


def test_silence(server, array):
    over = threading.Event()

    def answer(h, i):
        if i == 0:
            return over.wait(5)
        if i == 2:  # stops in the middle of the body
            h.give(cut=1000)
            h.wfile.flush()
            return over.wait(5) or True

    server.answer = answer
    start = time.monotonic()
    assert same(read(server, timeout=0.4), array)
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        dead.listen()
        with pytest.raises(lmc.ReadError, match=r"http://.*a.lmc: no answer for 0.05 s .*'timeout'.*, 4 times"):
            lmc.open(f"http://127.0.0.1:{dead.getsockname()[1]}/a.lmc", storage_options={"timeout": 0.05})
    assert time.monotonic() - start < 30
    over.set()
    assert _http.take_options({}) == ({}, 30) and _http.take_options({"timeout": None})[1] is None


@pytest.mark.parametrize("page", [b"<!DOCTYPE html>\n<title>Sign in</title>", b"\n <html lang=en>" + bytes(99), b"<!doctype HTML" + bytes(99999)])
def test_a_page_in_place_of_a_file(server, array, page):
    """As the file, and as the base of a delta."""
    delta = io.BytesIO()
    with lmc.Writer(delta, base={"w": array}) as w:
        w.add_arrays({"w": array + 1}, "")
    server.data = page
    for call in (lambda: lmc.open(server.url), lambda: lmc.open(delta.getvalue(), base=server.url), lambda: lmc.torch.load_file(server.url)):
        with pytest.raises(lmc.NotLMCError, match=r"http://.*a.lmc looks like an HTML page, not an LMC file"):
            call()


def test_errors_name_the_url(server):
    for status, kind in ((404, FileNotFoundError), (410, FileNotFoundError), (403, PermissionError), (401, PermissionError),
                         (418, lmc.ReadError)):  # fmt: skip
        server.requests.clear()
        server.answer = lambda h, i: h.say(status, [("Content-Length", 0)])
        with pytest.raises(kind, match=f"HTTP {status}|{status}") as caught:
            read(server)
        assert server.url in str(caught.value) and isinstance(caught.value, OSError) and len(server.requests) == 1
    for url in ("http://127.0.0.1:1/a.lmc", "http:///a.lmc", "http://127.0.0.1:1/a b.lmc"):
        with pytest.raises(OSError, match="a.?b?.lmc: "):
            lmc.open(url)
    server.answer = lambda h, i: h.say(302, [("Location", "ftp://127.0.0.1/a.lmc"), ("Content-Length", 0)])
    with pytest.raises(lmc.ReadError, match="a.lmc: HTTP 302 .*ftp:"):
        read(server)


def send_on(place, is_over=lambda: False):
    def answer(h, i):
        if h.path.startswith("/a.lmc"):
            return h.say(302, [("Location", place), ("Content-Length", 0)])
        return h.path.startswith("/signed") and is_over() and h.say(403, [("Content-Length", 0)])

    return answer


def test_what_is_said_to_one_server_is_not_said_to_another(servers, array):
    one, two = servers
    said = {"Authorization": "Bearer x", "X-Token": "y", "User-Agent": "me"}
    one.answer = send_on(two.origin + "/signed/1")
    assert same(read(one, **said), array)
    assert all(x[3]["Authorization"] == "Bearer x" and x[3]["X-Token"] == "y" for x in one.requests)
    assert len(two.requests) == 2 and {x[3]["User-Agent"] for x in two.requests} == {"me"}
    assert not any("Authorization" in x[3] or "X-Token" in x[3] for x in two.requests)
    assert len(one.requests) == 1  # the place it named is used until it is refused
    one.requests.clear()
    one.answer = send_on("/signed/1")  # the same server
    assert same(read(one, headers=said), array)  # headers in the form of fsspec
    assert len(one.requests) == 3 and all(x[3]["Authorization"] == "Bearer x" for x in one.requests)


def test_signed_urls_that_expire(servers, array):
    one, two = servers
    one.answer = send_on(two.origin + "/signed/1")
    with lmc.open(one.url) as r:
        assert r.name == one.url
        two.answer = send_on("", lambda: two.requests[-1][1] == "/signed/1")
        one.answer = send_on(two.origin + "/signed/2")
        assert same(r["w"], array)
        assert same(r.get_slice("v")[:1000], array[:1000].view(np.int8))
    assert [x[1] for x in two.requests] == ["/signed/1", "/signed/1", "/signed/2", "/signed/2"]
    assert len(one.requests) == 2


@pytest.mark.parametrize("how", ["416", "200", "unknown", "head", "short"])
def test_ranges_of_all_kinds(server, array, how):
    def answer(h, i):
        wanted = h.headers.get("Range", "")
        if how in ("416", "head") and wanted.startswith("bytes=-"):
            return h.say(416, [("Content-Range", f"bytes */{len(server.data)}")])
        if how == "200" and wanted.startswith("bytes=-"):
            return h.say(200, [("Content-Length", len(server.data))], server.data)
        if how in ("unknown", "head"):
            return h.give(total="*") or True
        if how == "short" and wanted:  # less than was asked for
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            if first:
                last = min(int(last), int(first) + 99_999)
                body = server.data[int(first) : last + 1]
                return h.say(206, [("Content-Length", len(body)), ("Content-Range", f"bytes {first}-{last}/{len(server.data)}")], body)

    server.answer = answer
    assert same(read(server), array)
    methods = [x[0] for x in server.requests]
    assert ("HEAD" in methods) == (how == "head")


def test_ranges_of_no_kind(server):
    for said in ("bytes 5-3/10", "bytes x-y/z", "bytes 0-5", "10", "bytes 0-1/" + "9" * 5000):
        server.answer = lambda h, i: h.say(206, [("Content-Range", said), ("Content-Length", 2)], b"ab")
        with pytest.raises(lmc.ReadError, match="a.lmc: the server does not take requests for ranges"):
            read(server)
    server.answer = lambda h, i: i > 0 and h.say(206, [("Content-Range", f"bytes 7-8/{len(server.data)}"), ("Content-Length", 2)], b"ab")
    server.requests.clear()
    with pytest.raises(lmc.ReadError, match="a.lmc: the file has changed"):
        read(server)


def test_options(server, array):
    for wrong in ({"block_size": 5}, {"timeout": "5"}, {"timeout": 0}, {"headers": {"A": 1}}, {"client_kwargs": {}}):
        with pytest.raises(TypeError, match=f"storage_options.*{next(iter(wrong)) if 'headers' not in wrong else 'A'}"):
            lmc.open(server.url, storage_options=wrong)
    assert not server.requests
    assert same(read(server, headers={"X": "1"}, Y="2"), array)
    assert {(x[3]["X"], x[3]["Y"]) for x in server.requests} == {("1", "2")}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_after_a_fork(server, array):
    """A forked child uses its own connection: answers on the parent's belong to the parent."""
    with lmc.open(server.url) as r:
        part = r.get_slice("w")
        assert same(r.get_slice("v")[:1000], array[:1000].view(np.int8))
        assert r._source.argument.idle
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if same(part[500_000:], array[500_000:]) else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert same(r["w"], array)


def test_what_is_asked_for(server, array):
    """Without broken connections each tensor takes one request, and nothing is read twice."""
    assert same(read(server), array)
    assert len(server.requests) == 2 and re.fullmatch(r"\d+-\d+", server.requests[1][2])


def test_busy_where_it_was_sent_to(servers, array, monkeypatch):
    """If the redirected server says Retry-After, nothing is requested from any server before that time."""
    one, two = servers
    one.answer = send_on(two.origin + "/signed/1")
    with lmc.open(one.url) as r:
        seen = []
        monkeypatch.setattr(_http.time, "sleep", lambda wait: seen.append((wait, len(one.requests), len(two.requests))))
        two.answer = lambda h, i: i == 1 and h.say(429, [("Content-Length", 0), ("Retry-After", "7")])
        assert same(r["w"], array)
        assert seen == [(7, 1, 2)]
        two.answer = lambda h, i: h.say(429, [("Content-Length", 0)])
        two.requests.clear()
        with pytest.raises(lmc.ReadError, match="HTTP 429 .*, 4 times"):
            r["w"]
        assert len(two.requests) == 4


def test_a_few_bytes_at_a_time(server, array):
    """Servers may send less than was requested, but not so little that thousands of requests would be needed."""

    def answer(h, i):
        first = h.headers["Range"].removeprefix("bytes=").split("-")[0]
        if first and is_short(i):
            said = f"bytes {first}-{first}/{len(server.data)}"
            return h.say(206, [("Content-Length", 1), ("Content-Range", said)], server.data[int(first) : int(first) + 1])

    server.answer, is_short = answer, lambda i: i < 100
    with pytest.raises(lmc.ReadError, match="a.lmc: the server gives only 1 bytes at a time.*, 4 times"):
        read(server)
    assert len(server.requests) == 5
    server.requests.clear()
    is_short = lambda i: i < 3  # noqa: E731
    assert same(read(server), array)


def test_compressed_on_the_way(server, array):
    server.answer = lambda h, i: h.give(more=[("Content-Encoding", "gzip")]) or True
    with pytest.raises(lmc.ReadError, match=r"a.lmc: .*\(Content-Encoding: gzip\)"):
        read(server)
    assert len(server.requests) == 1
    for said in "aws-chunked", "identity", "Identity":  # names of codings without compression, which some servers send
        server.answer = lambda h, i, said=said: h.give(more=[("Content-Encoding", said)]) or True
        assert same(read(server), array)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")
def test_interrupted(server, array):
    """An interruption (Ctrl-C) within an answer: the next request begins again."""

    class Enough(BaseException):
        pass

    def stop(*unused):
        raise Enough

    over = threading.Event()

    def answer(h, i):  # sends a part, and the rest after the reader was interrupted
        if i == 1:
            h.give(cut=500_000)
            h.wfile.flush()
            over.wait(5)
            start = int(h.headers["Range"].removeprefix("bytes=").split("-")[0])
            h.wfile.write(server.data[start + 500_000 :])
            return True

    server.answer = answer
    old = signal.signal(signal.SIGALRM, stop)
    try:
        with lmc.open(server.url) as r:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(Enough):
                r["w"]
            over.set()
            assert same(r["w"], array)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def test_close_of_a_base(server, array):
    """Readers that have it as their base still work, even at the end of the file; nothing in use is closed."""
    new = array.copy()
    new[::1000] ^= 1
    with lmc.open(server.url) as base, lmc.open(lmc.numpy.save({"w": new}, base=base), base=base) as r:
        source = base._source.argument
        source.lock.acquire()
        base.close()
        source.lock.release()
        assert source.tail
        source.close()
        assert not source.tail and same(r["w"], new)


LIMIT = 64 << 20  # most bytes that an endless answer may send; buffers of server and reader take some MB


def send_without_end(h, head, wrap=lambda data: data):
    h.wfile.write(head.encode() + b"\r\n\r\n")
    data, sent = wrap(bytes(1 << 20)), 0
    while sent < LIMIT:
        try:
            h.wfile.write(data)
        except OSError:  # the reader has gone
            break
        sent += len(data)
    h.server.sent = sent
    h.close_connection = True
    return True


def bytes_range(h):
    size = len(h.server.data)
    first, _, last = h.headers["Range"].removeprefix("bytes=").partition("-")
    start, end = (int(first), int(last)) if first else (size - int(last), size - 1)
    return f"Content-Range: bytes {start}-{end}/{size}", start, end + 1


def to_chunk(data):
    return b"%X\r\n%s\r\n" % (len(data), data)


ENDLESS = {
    "endless206": lambda h: send_without_end(h, f"HTTP/1.0 206 P\r\n{bytes_range(h)[0]}"),
    "len206big": lambda h: send_without_end(h, f"HTTP/1.1 206 P\r\nContent-Length: 3000000000\r\n{bytes_range(h)[0]}"),
    "endless206chunk": lambda h: send_without_end(
        h, f"HTTP/1.1 206 P\r\nTransfer-Encoding: chunked\r\n{bytes_range(h)[0]}", to_chunk
    ),
    "endless200": lambda h: send_without_end(h, "HTTP/1.0 200 OK"),
    "endless302": lambda h: send_without_end(h, "HTTP/1.1 302 F\r\nLocation: /b.lmc"),
    "endless503": lambda h: send_without_end(h, "HTTP/1.1 503 F\r\nContent-Length: 3000000000"),
}


@pytest.mark.parametrize("when", ["opened", "read"])
@pytest.mark.parametrize("kind", ENDLESS)
def test_bodies_without_end(server, array, kind, when):
    """For any status and length, no more is read than was requested; further bytes are an error."""
    server.sent = None
    server.answer = lambda h, i: i >= (when == "read") and ENDLESS[kind](h)
    said = {"endless200": "ranges", "endless302": "HTTP 302", "endless503": "HTTP 503"}.get(kind, "sends more than it was asked for")
    with pytest.raises(lmc.ReadError, match=f"a.lmc: .*{said}"):
        read(server)
    for _ in range(500):
        if server.sent is not None:
            break
        time.sleep(0.01)
    assert server.sent < LIMIT


@pytest.mark.parametrize("how", ["206", "chunked", "200", "range"])
@pytest.mark.parametrize("is_more", [False, True])
def test_bodies_of_other_lengths(server, array, how, is_more):
    """Answers that are shorter than they say are requested again; longer ones are refused; chunked ones are accepted."""
    small = lmc.numpy.save({"w": array[:1000]})
    if how == "200":
        server.data = small

    def answer(h, i):
        where, start, end = bytes_range(h) if how != "200" else ("X: y", 0, len(small))
        body = server.data[start:end] + b"abcdefgh" * is_more if is_more or i else server.data[start : end - 1]
        if how == "range" and is_more:
            where = f"Content-Range: bytes {start}-{min(end + 7, len(server.data) - 1)}/{len(server.data)}"
            body = server.data[start : end + 8]
        head = f"HTTP/1.1 {200 if how == '200' else 206} P\r\n{where}\r\n"
        head += "Transfer-Encoding: chunked" if how == "chunked" else f"Content-Length: {len(body) if i or is_more else end - start}"
        h.wfile.write(head.encode() + b"\r\n\r\n" + (to_chunk(body) + to_chunk(b"") if how == "chunked" else body))
        h.close_connection = True
        return True

    server.answer = answer
    if is_more and how != "200":  # a file of a few bytes more is another file
        with pytest.raises(lmc.ReadError, match="a.lmc: the server sends more than it was asked for"):
            read(server)
    elif is_more:
        with pytest.raises(lmc.LMCError):
            read(server)
    else:
        assert same(read(server), array[:1000] if how == "200" else array)


def test_connections_are_kept(keeping, array):
    with lmc.open(keeping.url) as r:
        for i in range(20):
            first = i * 1_300_000 % 2_900_000  # none begins where another ends
            assert same(r.get_slice("w")[first : first + 1000], array[first : first + 1000])
        assert len(keeping.requests) == 21 and keeping.n_connections == 1
        (kept,) = r._source.argument.idle
        kept.connection.sock.shutdown(socket.SHUT_RDWR)  # as a server does, after some seconds without a request
        waited = time.monotonic()
        assert same(r.get_slice("w")[:1000], array[:1000])
        assert time.monotonic() - waited < 5 and keeping.n_connections == 2
        keeping.answer = lambda h, i: h.say(503, [("Content-Length", 5)], b"later") if i == 22 else None
        assert same(r.get_slice("w")[2_900_000:], array[2_900_000:])  # the body of the refusal is not taken for data
    assert not r._source.argument.idle


def test_not_read_to_its_end(keeping, array):
    """The rest of an answer is not taken for the next answer."""
    keeping.answer = lambda h, i: i == 0 and h.say(200, [("Content-Length", len(keeping.data))], keeping.data)
    with lmc.open(keeping.url) as r:
        assert same(r["w"], array) and same(r["v"], array[:400_000].view(np.int8))


@pytest.mark.parametrize("place", ["http://[", "http://", "http://x:y/", "//[/"])
def test_sent_on_to_no_url(server, place):
    server.answer = lambda h, i: h.say(302, [("Location", place), ("Content-Length", 0)])
    with pytest.raises(lmc.ReadError, match="a.lmc: "):
        read(server)


def test_sent_on_for_ever(keeping):
    keeping.answer = lambda h, i: h.say(302, [("Location", f"/{i}"), ("Content-Length", 0)])
    with pytest.raises(lmc.ReadError, match="a.lmc: HTTP 302 .* infinite loop. The last 30x error message was: ") as caught:
        read(keeping)
    assert "\\x0A" not in str(caught.value)
    assert len(keeping.requests) < 20 and keeping.n_connections == 1


def test_by_way_of_a_proxy(servers, array, monkeypatch):
    """A proxy, as urllib finds it. With https it only sees the name of the server."""
    proxy = servers[1]
    monkeypatch.setenv("http_proxy", f"http://me:word@127.0.0.1:{proxy.server_port}")
    monkeypatch.setenv("https_proxy", f"http://me:word@127.0.0.1:{proxy.server_port}")
    monkeypatch.setenv("no_proxy", "")
    with lmc.open("http://elsewhere.invalid/a.lmc", storage_options={"X-Token": "y"}) as r:
        assert same(r["w"], array)
    assert {x[1] for x in proxy.requests} == {"http://elsewhere.invalid/a.lmc"}
    assert all(x[3]["Proxy-Authorization"].startswith("Basic ") and x[3]["X-Token"] == "y" for x in proxy.requests)
    seen = []

    def refuse(h):
        seen.append((h.path, dict(h.headers)))
        h.say(407, [("Content-Length", 0)])

    monkeypatch.setattr(Handler, "do_CONNECT", refuse, raising=False)
    with pytest.raises(lmc.ReadError, match="elsewhere.invalid/a.lmc: .*407"):
        lmc.open("https://elsewhere.invalid/a.lmc", storage_options={"X-Token": "y"})
    assert seen[0][0] == "elsewhere.invalid:443" and "Proxy-Authorization" in seen[0][1] and "X-Token" not in seen[0][1]


@pytest.fixture
def parts(monkeypatch):
    monkeypatch.setattr(_ranges, "PART", 200_000)
    monkeypatch.setattr(_ranges, "PIECE", 1_600_000)


def test_parts_at_the_same_time(keeping, array, parts):
    together = threading.Barrier(4, timeout=10)
    keeping.answer = lambda h, i: 1 <= i <= 4 and together.wait() and None
    assert same(lmc.numpy.load_file(keeping.url)["w"], array)
    assert 4 <= keeping.n_connections <= _ranges.AT_ONCE and not together.broken
    ranges = sorted(tuple(map(int, x[2].split("-"))) for x in keeping.requests[1:])
    assert all(a[1] + 1 == b[0] for a, b in zip(ranges, ranges[1:]))  # nothing is asked for twice
    assert ranges[-1][1] == len(keeping.data) - 65536 - 1


def test_parts_that_fail(keeping, array, parts):
    """Each parallel request is tried again by itself. An error of one is the error of the call; the next call begins
    again."""
    keeping.answer = lambda h, i: i in (2, 5) and h.say(503, [("Content-Length", 0)])
    assert same(lmc.numpy.load_file(keeping.url)["w"], array)
    with lmc.open(keeping.url) as r:
        n = len(keeping.requests)
        keeping.answer = lambda h, i: i == n + 3 and h.say(403, [("Content-Length", 0)])
        with pytest.raises(PermissionError, match="403"):
            r["w"]
        keeping.answer = None
        assert same(r["w"], array)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")
def test_parts_interrupted(keeping, array, parts):
    class Enough(BaseException):
        pass

    def stop(*unused):
        raise Enough

    over = threading.Event()
    keeping.answer = lambda h, i: i > 1 and over.wait(10) and None
    old = signal.signal(signal.SIGALRM, stop)
    try:
        with lmc.open(keeping.url) as r:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            start = time.monotonic()
            with pytest.raises(Enough):
                r["w"]
            assert time.monotonic() - start < 5  # the other parts are not waited for
            over.set()
            assert same(r["w"], array)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        over.set()


def test_prefetch(keeping, monkeypatch):
    """Scattered tensors are asked for at the same time, and then read without another request."""
    from lmc_codec.torch import iterate, safe_open

    rng = np.random.default_rng(9)
    arrays = {f"t{i:02}": rng.standard_normal(40_000, np.float32) for i in range(60)}
    keeping.data = lmc.numpy.save(arrays)
    names, n_waiting, most = [f"t{i:02}" for i in (*range(0, 50, 4), 59)], [0], [0]

    def slowly(handler, number):
        n_waiting[0] += 1
        most[0] = max(most[0], n_waiting[0])
        time.sleep(0.05)
        n_waiting[0] -= 1

    with lmc.open(keeping.url) as r:
        n_opened = len(keeping.requests)
        keeping.answer = slowly
        r.prefetch(names)
        n_asked = len(keeping.requests)
        assert most[0] >= 8 and n_asked - n_opened <= len(names)
        assert all(same(r[name], arrays[name]) for name in names) and len(keeping.requests) == n_asked
        assert sum(int(x[2].split("-")[1]) - int(x[2].split("-")[0]) + 1 for x in keeping.requests[n_opened:]) < len(keeping.data) // 2
        assert same(r["t01"], arrays["t01"]) and len(keeping.requests) > n_asked  # another tensor
        r.prefetch([])
        assert same(r[names[0]], arrays[names[0]])
    keeping.answer = None
    n = len(keeping.requests)
    assert all(same(x.numpy(), arrays[name]) for name, x in iterate(keeping.url, names=names))
    assert len(keeping.requests) - n <= len(names) + 2
    with safe_open(keeping.url, "pt") as f:
        f.prefetch(names[:3])
        n = len(keeping.requests)
        assert same(f.get_tensor(names[2]).numpy(), arrays[names[2]]) and len(keeping.requests) == n
