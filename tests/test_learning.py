"""The default learns what `examples/learning.py` says; the others take longer and run under `make learn`."""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parent.parent / "examples"))

import learning


def test_what_is_promised_is_learned():
    scores, result = learning.learn("pond", progress=False)
    assert np.median(scores) >= learning.LESSONS["pond"].median
    assert result.episodes[-1] <= learning.LESSONS["pond"].episodes
    assert result.status == ("finished",) * learning.SEEDS
