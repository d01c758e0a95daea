import random

import ml_dtypes
import numpy as np
import pytest


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
