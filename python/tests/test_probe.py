"""lmc_codec.probe(): what a file is, from its two ends."""

import io

import lmc_codec as lmc
import numpy as np
import pytest


@pytest.fixture
def pair(tmp_path):
    """Paths of a snapshot and of a delta against it."""
    w = np.arange(50000, dtype=np.float32)
    paths = tmp_path / "0.lmc", tmp_path / "1.lmc"
    for i, path in enumerate(paths):
        with lmc.Writer(path, base=paths[0] if i else None) as writer:
            writer.add("w", w)
        w[7] += 1
    return paths


def test_what_it_finds(pair):
    for path in pair:
        with lmc.open(path) as reader:
            for source in (path, str(path), path.read_bytes(), io.BytesIO(path.read_bytes())):
                found = lmc.probe(source)
                assert (found.fingerprint, found.base_fingerprint) == (reader.fingerprint, reader.base_fingerprint)
                assert (found.features, found.format, found.size) == (reader.features, (1, 0), path.stat().st_size)
                assert 0 < found.index_size < found.size and found.fingerprint.hex()[:16] in repr(found)
    assert lmc.probe(pair[1]).base_fingerprint == lmc.probe(pair[0]).fingerprint


def test_other_files(pair, tmp_path):
    data = pair[1].read_bytes()
    with pytest.raises(lmc.NotLMCError):
        lmc.probe(b"no LMC file")
    for part in (data[:50], data[:-1], data + b"x"):
        with pytest.raises(lmc.TruncatedError):
            lmc.probe(part)
    with pytest.raises(lmc.UnsupportedError):
        lmc.probe(data[:8] + b"\2" + data[9:-40])  # of a newer version, without an end
    with pytest.raises(lmc.ChecksumError):
        lmc.probe(data[:-30] + b"x" + data[-29:])
    with pytest.raises(FileNotFoundError):
        lmc.probe(tmp_path / "none")
