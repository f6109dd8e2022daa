"""Reports of training runs: headings, maps, omitted charts and comparisons of runs."""

import base64
import errno
import re
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import jax
import numpy as np
import pytest

import occupax as ox
from occupax.analysis import comparison, report
from occupax.analysis.comparison import differing, short_names
from occupax.analysis.visits import grid_map, visits
from occupax.io import codec, results
from occupax.outcome import Assessment
from occupax.training.assessment import assess
from results import LAKE, Page, make_problem, make_result, written

CELLS = ox.features.Grid([-1.2, -0.07], [0.6, 0.07], [3, 2])


def with_settings(result: ox.Result, **changes) -> ox.Result:
    """The result as if it had been trained with other settings of the algorithm."""
    setup = result.config["setup"]
    algorithm = setup["algorithm"] | {"fields": setup["algorithm"]["fields"] | changes}
    return replace(result, config=result.config | {"setup": setup | {"algorithm": algorithm}})


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> tuple[str, Page]:
    known = Assessment(np.array([1.0, 2.0, 3.0, 4.0]), "exact")
    worse = replace(make_result(seeds=4), problem=None, saved_assessment=known)
    better = replace(worse, saved_assessment=Assessment(np.array([3.0, 5.0, 6.0, 7.0]), "exact"))
    file = tmp_path_factory.mktemp("report") / "page.html"
    return written(file, ("slow", worse), ("fast", with_settings(better, step_size=0.5)))


def test_settings_that_differ_are_in_a_table_and_marked(compared):
    text, page = compared
    assert "slow: " not in page.words
    assert '<td class="words">0.25</td>' in text.replace("\n", "")
    assert re.findall(r"<mark>(\w+)\(", text) == [
        "REINFORCE",
        "REINFORCE",
    ]  # in the settings of both runs
    assert text.count("<mark>") == 2


def test_the_comparison_begins_with_what_the_policies_are_worth(compared):
    """By hand: of 16 pairs the slow run wins one (4 > 3) and ties one (3 = 3).

    The means of the middle halves are 2.5 and 5.5.
    """
    text, page = compared
    assert (
        text.index("<h3>Trained policies")
        < text.index("Against sampled")
        < text.index("Settings that differ")
    )
    assert text.index('id="compare-profile"') < text.index("Against sampled")
    assert any(cell.startswith("-3.00") for cell in page.cells)
    assert any(cell.startswith(f"{1.5 / 16:#.3g}") for cell in page.cells)
    assert page.cells.count("best") == 2
    assert text.count("<details>") == 2


def test_tables_of_one_size_are_told_apart():
    other = make_result(problem=make_problem(env=ox.make("FrozenLake-v1", is_slippery=False)))
    assert comparison._one_table([("a", make_result()), ("b", make_result())])
    assert not comparison._one_table([("a", make_result()), ("b", other)])


def test_names_are_short():
    one = make_result()
    assert differing([("a", one), ("b", one)]) == {}
    assert short_names([("a", one), ("b", with_settings(one, step_size=0.5))]) == ["a", "b"]
    setup = one.config["setup"] | {"algorithm": codec.pack({"a": ox.TSIVRPG()})[0]["dict"]["a"]}
    other = replace(one, config=one.config | {"setup": setup})
    assert short_names([("a", one), ("b", other)]) == ["a: REINFORCE", "b: TSIVRPG"]


def test_different_problems_share_no_axis(tmp_path: Path):
    other = make_result(problem=make_problem(ox.utilities.Entropy()))
    text, page = written(tmp_path / "page.html", ("a", make_result()), ("b", other))
    assert "Different problems" in page.words
    assert 'id="compare-' not in text
    assert text.count("<details open>") == 2


def test_a_constraint_is_drawn_beside_the_utility_with_its_threshold(tmp_path: Path):
    cost = np.zeros((16, 4))
    cost[3:] = 1.0
    for bound in ({"at_most": 2.0}, {"at_least": 0.5}):
        constraint = ox.Constraint(cost, name="cost", **bound)
        options = {"discount": 0.9, "horizon": 20, "constraints": [constraint]}
        problem = ox.Problem(LAKE, ox.utilities.LogCoverage(), **options)
        made = make_result(problem=problem)
        violation = np.arange(15.0).reshape(3, 5)
        result = replace(made, metrics=made.metrics | {"violation/cost": violation})
        utility, chart = report._headlines("run", result, report._assessment(result))
        assert utility.series[1].name == "trained policies (exact)"
        assert utility.series[1].y == pytest.approx([np.median(result.utilities)])
        expected = constraint.limit + constraint.sign * np.arange(5.0, 10.0)
        np.testing.assert_allclose(chart.series[0].y, expected)
        assert chart.levels[0].y == constraint.limit
        costs = [(ox.exact.occupancy(problem, it) * cost).sum() for it in result.policies]
        assert chart.series[1].y == pytest.approx([np.median(costs)], rel=1e-5)
        infeasible = constraint.limit + constraint.sign
        assert chart.forbidden is not None
        assert chart.forbidden[0] < infeasible < chart.forbidden[1]


def test_a_page_begins_with_how_good_it_is_and_what_the_policy_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(report, "record_preview", lambda *_: b"GIF89a")
    result = make_result(full=True)
    result.metrics["clipped"][:] = 0.0
    result.metrics["largest_weight"][:] = np.nan
    text, page = written(tmp_path / "page.html", ("lake", result))
    order = [
        'class="headline"',
        "<h3>Utility",
        "<h3>Visits",
        "<h3>Seeds",
        "<h3>Settings",
        "Diagnostics",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert "<details>" not in text
    assert f"data:image/gif;base64,{base64.b64encode(b'GIF89a').decode()}" in text
    assert "Constant: " in page.words
    labels = " ".join(label for label in page.labels if label)
    assert "largest" not in labels


def test_a_lake_has_its_letters():
    maps = visits("a", make_problem(), np.full((16, 4), 0.25), "even")
    assert maps is not None
    drawn = gym.make("FrozenLake-v1").unwrapped.desc.astype(str)  # pyright: ignore[reportAttributeAccessIssue]
    for grid in maps.grids:
        assert grid.marks == [[letter.replace("F", "") for letter in row] for row in drawn.tolist()]


def test_cells_of_a_grid_are_where_they_belong(tmp_path: Path):
    """All visits of a car that rests in its valley for three steps are in the middle column."""
    problem = ox.Problem("MountainCar-v0", "entropy", features=CELLS, horizon=3, discount=0.5)
    policy = ox.policies.linear()(problem.env, jax.random.key(0))
    found = assess(problem, [policy])
    assert found.visits is not None
    maps = grid_map("a", "best", CELLS, found.visits[0])
    values = maps.grids[0].values
    assert values.shape == (2, 3)  # velocities upwards, places from left to right
    assert values.sum() == pytest.approx(1.75)
    assert values[:, 1].sum() == pytest.approx(1.75)
    assert (maps.x_label, maps.y_label[:14]) == ("observation[0], -1.2 to 0.6", "observation[1]")
    file = tmp_path / results.ASSESSMENT
    results._write_assessment(found, file)
    saved = results._read_assessment(file, 1)
    assert saved is not None
    np.testing.assert_array_equal(saved.visits, found.visits)
    three = ox.features.Grid([0.0] * 3, [1.0] * 3, [2] * 3)
    assert grid_map("a", "b", three, np.arange(8.0)).grids[0].values.tolist() == [
        [5.0, 13.0],
        [1.0, 9.0],
    ]
    assert grid_map("a", "b", ox.features.Grid([0.0], [1.0], [3]), np.arange(3.0)).grids[
        0
    ].values.tolist() == [[0, 1, 2]]


def test_without_a_problem_there_is_no_episode():
    assert (
        report._picture(replace(make_result(), problem=None), Assessment(np.ones(3), "exact"))
        is None
    )


def test_a_training_in_python_writes_the_report_and_never_fails_for_it(
    tmp_path: Path, monkeypatch, with_pages
):
    problem = ox.Problem(LAKE, horizon=3)
    given = {"episodes": 20, "progress": False}
    with with_pages():
        ox.train(problem, out=tmp_path / "good", **given)
        text = (tmp_path / "good/report.html").read_text()
        assert ">good</h2>" in text
        assert (tmp_path / "good/plot.png").exists()

        def broken(*_):
            raise RuntimeError("no ink")

        monkeypatch.setattr(report, "write_report", broken)
        with pytest.warns(UserWarning, match="the report could not be written: no ink"):
            ox.train(problem, out=tmp_path / "bad", **given)
    assert ox.load_result(tmp_path / "bad").status == ("finished",)


@pytest.mark.parametrize("name", ["info.cost", "cost/day 50%", "Kosten für <Eis>", "multiplier"])
def test_a_constraint_of_any_name_has_its_charts(tmp_path: Path, name: str):
    records = {
        f"{kind}/{name}": np.arange(15.0).reshape(3, 5) for kind in ("multiplier", "violation")
    }
    made = make_result()
    result = replace(made, metrics=made.metrics | records)
    text, page = written(tmp_path / "page.html", ("lake", result))
    anchors = re.findall(r' id="([^"]*)"', text)
    assert len(set(anchors)) == len(anchors)
    assert any(f"multiplier of {name}".lower() in str(label).lower() for label in page.labels)
    figure = result.plot(f"violation/{name}")
    np.testing.assert_array_equal(figure.axes[0].lines[-1].get_ydata(), np.arange(5.0) + 5)


def test_a_folder_whose_name_is_not_utf8_has_a_report(tmp_path: Path, with_pages):
    folder = tmp_path / "r\udce9sum\udce9"  # as Python reads names in Latin-1
    with with_pages():
        ox.train(ox.Problem(LAKE, horizon=3), episodes=20, progress=False, out=folder)
    assert r"r\xe9sum\xe9" in (folder / "report.html").read_text()


def test_a_report_that_cannot_be_written_leaves_no_earlier_one(
    tmp_path: Path, monkeypatch, with_pages
):
    problem = ox.Problem(LAKE, horizon=3)
    with with_pages():
        ox.train(problem, out=tmp_path, episodes=20, progress=False)

        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device", "report.html")

        monkeypatch.setattr(report, "write_report", full)
        with pytest.warns(
            UserWarning, match="the report could not be written: .*No space left on device"
        ):
            ox.train(problem, out=tmp_path, episodes=40, progress=False, resume=True)
    assert not (tmp_path / "report.html").exists()
    assert ox.load_result(tmp_path).episodes[-1] == 40
