"""Page of a sweep: ranking, range of the seeds, and a chart for each numeric setting."""

import json
import re

import numpy as np

from occupax.analysis.sweep_page import SweepRow, write_sweep_page
from results import Page

STATUS = "2 of 2 finished"


def make_rows():
    best = {"step_size": 0.1, "rule": "adam"}
    worst = {"step_size": 0.5, "rule": "gradient"}
    return [
        SweepRow(best, np.array([1.25, 2.25]), 1.75, True, STATUS, "point-1"),
        SweepRow(worst, np.array([np.nan, -3.5]), np.nan, False, STATUS, "point-0"),
    ]


def test_the_page_ranks_configurations_and_draws_numeric_settings(tmp_path):
    path = tmp_path / "sweep.html"
    write_sweep_page("REINFORCE on <lake>", make_rows(), path)
    text = path.read_text()
    page = Page(text)
    assert "REINFORCE on <lake>" in page.words
    assert {"0.1", "adam", "1.75", "1.25", "2.25", "point-1"} <= set(page.cells)
    assert {"0.5", "nothing", "-3.50"} <= set(page.cells)
    (figure,) = [data for data in map(json.loads, page.data) if "series" in data]
    assert figure["label"] == "step_size"
    assert not re.search(r"https?:|src=\"(?!data:)", text)
