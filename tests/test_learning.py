"""TSIVR-PG learns what `examples/learning.py` says; the others take longer and run under `make learn`."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "examples"))

import learning


@pytest.mark.parametrize("name", ["coverage"])
def test_what_is_promised_is_learned(name):
    found, result = learning.learn(name, progress=False)
    assert found >= learning.LESSONS[name].target
    assert result.episodes[-1] <= learning.LESSONS[name].episodes
    assert result.status == ("finished",) * 10
