"""weight_sync's arguments and messages, which follow the rules of lmc_codec. test_weight_sync.py has all other tests."""

import os
import sys

import lmc_codec
import pytest
from lmc_integrations import weight_sync
from lmc_integrations._core import count_threads

BAD = "\x1b[31m\x9b2J\u202e\u2066\u200b\u2028\ufeff\u3164\n\udcff"


def test_as_many_threads_as_all_else(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["weight_sync", "receive", "a", "b"])
    assert weight_sync._parse_arguments().threads == count_threads(None)


@pytest.mark.parametrize("threads", ["2", 1.0, True, 0, -1, 1025, 2**31])
def test_threads(threads, tmp_path):
    for call in (
        lambda: weight_sync.publish(tmp_path, tmp_path, version=1, threads=threads),
        lambda: weight_sync.receive(tmp_path, tmp_path, threads=threads),
    ):
        with pytest.raises(ValueError if type(threads) is int else TypeError, match="^threads is .* 1 to 1024"):
            call()


def test_names_that_a_terminal_would_obey(tmp_path):
    os.mkdir(tmp_path / BAD)
    for call in (
        lambda: weight_sync.receive(tmp_path / "in", tmp_path / BAD),
        lambda: weight_sync.publish(tmp_path / BAD, tmp_path / "out", version=1),
    ):
        with pytest.raises(lmc_codec.LMCError) as error:
            call()
        assert str(error.value).isprintable(), ascii(str(error.value))
