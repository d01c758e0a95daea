"""Messages that say the next step, where a user would not find it by himself; answers without end."""

import os

import fsspec
import lmc_codec as lmc
import numpy as np
import pytest
import torch
from lmc_codec.numpy import load_file, save_file
from lmc_codec.torch import save_file as save_torch

X = np.arange(9, dtype=np.float32)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_file({"layers.0.weight": X}, "m.lmc")
    return tmp_path


def test_bytes_of_a_path(place):
    with pytest.raises(lmc.NotLMCError, match="these bytes are the path of a file.*'m.lmc'"):
        load_file(b"m.lmc")


def test_files_that_are_not_open(place):
    with pytest.raises(TypeError, match=r"OpenFile, which is not open: give what its .open\('rb'\) returns"):
        load_file(fsspec.open("m.lmc", "rb"))
    with pytest.raises(TypeError, match=r"OpenFile, which is not open: give what its .open\('wb'\) returns"):
        lmc.Writer(fsspec.open("new.lmc", "wb"))


def test_near_names(place):
    with lmc.open("m.lmc") as r, lmc.safe_open("m.lmc", "np") as f:
        for get in (r.get, f.get_tensor, f.get_slice):
            with pytest.raises(KeyError, match="m.lmc: no tensor 'layers.0.weigth': did you mean 'layers.0.weight'?"):
                get("layers.0.weigth")
        with pytest.raises(KeyError, match="m.lmc: tensor 'other': not found"):
            r.get("other")
        assert "layers.0.weight" in repr(r.get_slice("layers.0.weight")) and repr(f) == "<lmc_codec.safe_open m.lmc>"
    assert repr(f) == "<lmc_codec.safe_open (closed)>"


def test_a_writer_that_a_callback_uses(place):
    class Source:
        def read(self, size):
            w.add("y", X)

    w = lmc.Writer("new.lmc")
    with pytest.raises(lmc.ArgumentError, match="^new.lmc: 'x' is not complete: a callback or a signal handler uses the Writer"):
        w.add_file(Source(), "x")
    with pytest.raises(lmc.ArgumentError, match="^new.lmc: 'x' is not complete"):
        w.finish()
    assert repr(w) == "<lmc_codec.Writer new.lmc: aborted>" and os.listdir() == ["m.lmc"]


def test_tensors_without_memory(place):
    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls):
            return torch.Tensor._make_wrapper_subclass(cls, (3,))

        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            raise NotImplementedError

    with pytest.raises(ValueError, match="tensor 'layers.7.w' is a Wrapper, which has no memory of its own"):
        save_torch({"layers.7.w": Wrapper()}, "new.lmc")
    Wrapper.full_tensor = lambda self: torch.zeros(3)
    with pytest.raises(ValueError, match=r"tensor 'layers.7.w' is a Wrapper, .*: call .full_tensor\(\)"):
        save_torch({"layers.7.w": Wrapper()}, "new.lmc")


@pytest.mark.parametrize("way", ["a byte at a time", "continue", "trailers"])
def test_an_answer_without_end(place, monkeypatch, way):
    """A server that sends something now and then: one limit for the whole answer ends it."""
    import socket
    import threading

    from lmc_codec import _http

    monkeypatch.setattr(_http, "FIRST_WAIT", 0.0)
    monkeypatch.setattr(_http, "TRIES", 2)
    monkeypatch.setattr(_http, "SLOWEST", 1 << 20)
    listener, ends = socket.create_server(("127.0.0.1", 0)), threading.Event()
    head = b"HTTP/1.1 206 OK\r\nContent-Range: bytes 0-999/1000\r\nContent-Length: 1000\r\n\r\n"
    first, then = {
        "a byte at a time": (head, b"x"),
        "continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        "trailers": (b"HTTP/1.1 206 OK\r\nContent-Range: bytes 0-9/10\r\nTransfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n0\r\n", b"a: b\r\n"),
    }[way]

    def send(connection):
        try:
            connection.sendall(first)
            while not ends.wait(0.02):
                connection.sendall(then)
        except OSError:
            pass
        connection.close()

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=send, args=[connection], daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/m.lmc"
    try:
        with pytest.raises(lmc.LMCError, match=url):
            lmc.open(url, storage_options={"timeout": 0.3})
    finally:
        ends.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
