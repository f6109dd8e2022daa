"""Text and HTML representations of objects: all settings, and tables with escaped content."""

import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import jax
import numpy as np
import pytest

import occupax as ox
from occupax.algorithms import ALGORITHMS
from occupax.display import Description, in_words, small_curve
from results import make_result

LAKE = ox.Problem("FrozenLake-v1", "log-coverage", horizon=5)


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append(tag)

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def result():
    return make_result(problem=LAKE, seeds=2)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_shows_all_its_settings(name):
    from dataclasses import fields

    algorithm = ALGORITHMS[name]()
    shown, html = repr(algorithm), Tags(algorithm._repr_html_())
    assert "\n" not in shown
    for field in fields(algorithm):
        assert f"{field.name}={in_words(getattr(algorithm, field.name))}" in shown
        assert field.name in html.text


def test_a_problem_is_a_few_lines_with_all_that_was_chosen():
    limited = ox.Problem(
        LAKE.env,
        "entropy",
        horizon=5,
        constraints=[ox.Constraint(ox.utilities.Reward(), at_least=0.1)],
    )
    assert repr(limited).splitlines() == [
        "Problem: maximise Entropy(smoothing=1e-06, scale=0.01)",
        "environment: TabularMDP(16 states, 4 actions)",
        "features: " + in_words(limited.features),
        "constraints: reward >= 0.1",
        "discount: 0.99",
        "horizon: 5",
        "termination: episodic",
    ]
    assert repr(limited.constraints[0]) == "Constraint(reward >= 0.1, subject=Reward())"
    assert (
        repr(ox.make("CartPole-v1", backend="gymnasium", render_mode=None))
        == "GymnasiumEnv('CartPole-v1', render_mode=None)"
    )
    assert "reward >= 0.1" in Tags(limited._repr_html_()).text


def test_a_description_is_made_inside_of_a_traced_function_too():
    seen: list[str] = []

    @jax.jit
    def traced(size):
        seen.append(repr(ox.REINFORCE(step_size=size)))
        return size

    traced(0.5)
    assert "step_size=array of one number" in seen[0]


def test_an_optimum_and_a_certificate_are_numbers_and_shapes():
    best = ox.solve(LAKE, tolerance=1e-3)
    assert repr(best).splitlines() == [
        f"Optimum: {best.value:.6g}; no policy is better by more than {best.gap:.6g}",
        f"status: '{best.status}'",
        "policy: array 5 x 16 x 4",
        "occupancy: array 16 x 4",
    ]
    found = ox.exact.certificate(LAKE, np.full((16, 4), 0.25))
    assert (
        repr(found).splitlines()[0]
        == f"Certificate: {found.value:.6g}; no policy is better than {found.upper_bound:.6g}"
    )
    assert repr(found).splitlines()[1] == f"certified gap: {found.gap:.6g}"
    assert "table" in Tags(best._repr_html_()).found
    assert "table" in Tags(found._repr_html_()).found


def test_a_result_shows_a_table_and_a_curve_with_its_references(result):
    references = ox.training.References(2.0, 1.0, 9.0, 0.1)
    known = replace(result, saved_assessment=replace(result.assessment, references=references))
    html = Tags(known._repr_html_())
    assert html.found.count("polyline") == 1
    assert html.found.count("line") == 3  # the first policy, the uniform one and the optimum
    assert known.headline in html.text
    assert "REINFORCE(" in html.text


def test_a_sweep_ranks_its_points_and_draws_them(result):
    better = replace(result, metrics={**result.metrics, "utility": result.metrics["utility"] + 1})
    done = ox.Sweep(({"step_size": 0.1}, {"step_size": 0.2}), (result, better))
    assert str(done) == repr(done)
    assert len(repr(done).splitlines()) == 3
    html = Tags(done._repr_html_())
    assert html.found.count("polyline") == 2
    assert "step_size=0.2" in html.text


def test_nothing_that_is_shown_is_markup():
    shown = Description(
        "<b>title</b>", [("<i>", "<script>alert(1)</script>")], [np.array([0.0, 1.0])]
    )
    html = Tags(shown.html())
    assert not {"b", "i", "script"} & set(html.found)
    assert "<script>alert(1)</script>" in html.text


def test_a_curve_is_to_scale_and_leaves_gaps_out():
    drawn = small_curve([np.array([0.0, np.nan, 10.0])], [5.0])
    assert re.findall(r'points="([^"]*)"', drawn) == ["0.0,86.0 320.0,4.0"]
    assert re.findall(r'y1="([^"]*)"', drawn) == ["45.0"]
    assert small_curve([np.array([1.0]), np.array([np.nan, np.nan])]) == ""


def test_records_as_a_data_frame(result, monkeypatch):
    pandas = pytest.importorskip("pandas")
    frame = result.to_dataframe()
    assert len(frame) == result.steps.size
    assert list(frame.columns[:3]) == ["seed", "episodes", "steps"]
    row = frame[(frame.seed == 1) & (frame.episodes == result.episodes[2])]
    assert row["utility"].item() == pytest.approx(result.metrics["utility"][1, 2])
    assert isinstance(frame, pandas.DataFrame)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ValueError, match="to_dataframe\\(\\) needs pandas"):
        result.to_dataframe()
