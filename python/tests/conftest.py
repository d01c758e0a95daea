import faulthandler
import os
import random

import ml_dtypes
import numpy as np
import pytest


def pytest_configure(config):
    global stderr
    stderr = os.dup(2)  # pytest redirects it later


def pytest_runtest_logstart(nodeid, location):
    """A test that waits for ever ends all, after 15 minutes, and says where. This is kept by a thread that needs no GIL, and after the
    last test for the end of the process."""
    faulthandler.dump_traceback_later(900, exit=True, file=stderr)


@pytest.fixture
def weights():
    """An array like weights: bf16, 700 x 300."""
    return (np.random.default_rng(1).standard_normal((700, 300)) * 0.02).astype(ml_dtypes.bfloat16)


@pytest.fixture
def rng():
    return random.Random(7)


def same(a, b):
    """Whether both are equal bit for bit, with equal dtype and shape."""
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
