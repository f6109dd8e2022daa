"""Defaults on one problem of `examples/learning.py`. `make learn` runs the other problems."""

import learning
import numpy as np


def test_what_is_promised_is_learned():
    scores, result = learning.learn("pond", progress=False)
    assert np.median(scores) >= learning.LESSONS["pond"].median
    assert result.episodes[-1] <= learning.LESSONS["pond"].episodes
    assert result.status == ("finished",) * learning.SEEDS
