"""`occupax report`, comparisons of runs and maps of policies."""

import os
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import occupax as ox
from commands import occupax
from occupax.analysis import report
from occupax.analysis.charts import Maps
from occupax.analysis.comparison import interval, overlapping
from occupax.analysis.page import TableCell
from occupax.analysis.visits import visits
from occupax.cli.commands.pages import run_names
from occupax.io.files import header
from occupax.io.run_folder import fingerprint
from occupax.training.execution.iteration import COMMON_METRICS
from results import LAKE, make_problem, make_result, written


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two folders of one name."""
    home = tmp_path_factory.mktemp("runs")
    for name, seeds in (("first", 3), ("second", 1)):
        made = make_result(seeds=seeds)
        others = {name: np.zeros_like(made.metrics["utility"]) for name in COMMON_METRICS}
        made = replace(made, metrics=others | made.metrics)
        config: Any = {**header("occupax-run"), "episodes": 100, "steps": None, **made.config}
        rest = {"seed": 0, "record_every": 1, "exact": False, "random_numbers": "kernel"}
        config["setup"] = {**rest, **config["setup"], "seeds": list(made.seeds)}
        config["fingerprint"] = fingerprint(config["setup"], made.arrays)
        replace(made, config=config).save(home / name / "run")
    return home


def test_a_page_of_several_runs(runs: Path, tmp_path: Path):
    page = tmp_path / "page.html"
    code, out, err = occupax(
        "report", runs / "first" / "run", runs / "second" / "run", "--out", page
    )
    assert (code, err, out) == (0, "", f"report: {page}\n")
    text = page.read_text()
    for part in (
        "Comparison",
        "first/run",
        "second/run",
        'id="compare-utility-episodes"',
        'id="compare-utility-steps"',
    ):
        assert part in text


def test_an_algorithm_that_cannot_be_restored_is_told_in_a_sentence(runs: Path, tmp_path: Path):
    made = ox.load_result(runs / "first" / "run")
    config = {**made.config, "setup": made.config["setup"] | {"algorithm": {"opaque": "mine.Own"}}}
    config["fingerprint"] = fingerprint(config["setup"], made.arrays)
    replace(made, config=config).save(tmp_path / "own")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        code, _, err = occupax("report", tmp_path / "own", "--out", tmp_path / "page.html")
    assert code == 0
    assert err.startswith("occupax: the algorithm Own is not restored, because")
    assert err.count("\n") == 1


def test_mistakes_end_in_a_sentence(runs: Path, tmp_path: Path):
    run = runs / "first" / "run"
    unfinished = tmp_path / "unfinished"
    shutil.copytree(run, unfinished)
    (unfinished / "summary.json").unlink()
    for arguments, said in (
        ((), "RUN must be given"),
        ((tmp_path / "nothing",), "nothing is not the directory of a run: it has no config.json."),
        ((unfinished,), "holds a run that is not finished: resume it first."),
        ((run, run), "RUN must name different folders, got "),
    ):
        code, _, err = occupax("report", *arguments, "--out", tmp_path / "page.html")
        assert code == 2
        assert said in err
    assert not (tmp_path / "page.html").exists()


def test_names_have_as_many_parents_as_it_takes():
    assert run_names([Path("x/a"), Path("x/b")]) == ["a", "b"]
    assert run_names([Path("x/y/a"), Path("z/y/a"), Path("b")])[:2] == ["x/y/a", "z/y/a"]


def test_only_runs_with_a_common_range_are_compared():
    assert overlapping([("a", 1.0, 10.0), ("b", 2.0, 8.0), ("c", 20.0, 30.0)]) == (
        ["a", "b"],
        2.0,
        8.0,
    )
    assert overlapping([("a", 5.0, 5.0)]) == ([], 0.0, 0.0)


def test_intervals_need_two_seeds():
    assert interval(np.array([2.5])) == TableCell("2.50", bounds="–")  # noqa: RUF001
    assert interval(np.array([3.0, 3.0, np.nan])) == TableCell("3.00", bounds="3.00, 3.00")


def test_the_comparison_has_the_mean_height_of_the_curves(tmp_path: Path):
    one, other = make_result(seeds=1), make_result(seeds=1, records=4)
    _, page = written(tmp_path / "page.html", ("one", one), ("other", other))
    mean = one.metrics["utility"][0, :3].mean()  # of the records that count before the fourth
    assert any(cell.startswith(f"{mean:#.3g}") for cell in page.cells)
    assert "different problems" not in page.words
    far = replace(
        other, episodes=other.episodes + 10_000, problem=make_problem(ox.utilities.Reward())
    )
    _, page = written(tmp_path / "page.html", ("one", one), ("far", far))
    assert "No two of the runs have a range of sampled episodes in common." in page.words


def test_two_runs_of_one_name_are_refused(tmp_path: Path):
    with pytest.raises(ValueError, match=r"runs must have different names, got a, a\."):
        ox.analysis.write_report(
            [("a", make_result()), ("a", make_result())], tmp_path / "page.html"
        )


def test_arrows_are_those_of_the_lake():
    problem = ox.Problem(LAKE, discount=0.99)
    plan = ox.exact.value_iteration(problem).policy
    maps = visits("a", problem, plan, "planned")
    assert isinstance(maps, Maps)
    assert [grid.title for grid in maps.grids] == ["planned", "optimal policy", "uniform policy"]
    planned = maps.grids[0]
    assert planned.arrows is not None
    best = [
        ["←", "↑", "↑", "↑"],
        ["←", "", "←", ""],
        ["↑", "↓", "←", ""],
        ["", "→", "↓", ""],
    ]  # well known
    for row in range(4):
        for column in range(4):
            assert planned.arrows[row][column] in ("", best[row][column])
    assert planned.arrows[0][0] == "←"
    assert maps.grids[2].arrows is None
    np.testing.assert_allclose(planned.values.ravel(), ox.exact.occupancy(problem, plan).sum(1))


def test_maps_need_a_layout():
    """Neither 9 states nor 25 make a map, and 4 x 5 cells do."""
    for env in (ox.TabularMDP.garnet(25, 4, 2, jax.random.key(0)), ox.TabularMDP.chain(9)):
        even = np.full((env.num_states, env.num_actions), 0.25)
        assert visits("a", ox.Problem(env), even, "no map") is None
    room = ox.TabularMDP.gridworld("S...H\n.#...\n.....\n....G", slip=0.2)
    maps = visits("a", ox.Problem(room), np.full((19, 4), 0.25), "even")
    assert maps is not None
    for grid in maps.grids:
        assert grid.values.shape == (4, 5)
        assert grid.values[1, 1] == 0
        assert grid.marks is not None
        assert [grid.marks[0][0], grid.marks[0][4], grid.marks[3][4]] == ["S", "H", "G"]


@pytest.mark.parametrize("horizon", [None, 3, 20])
def test_the_optimal_policy_of_a_map_is_that_of_the_problem(horizon: int | None):
    """The utility of the map is that of `ox.solve`, which no stationary policy exceeds."""
    problem = ox.Problem(LAKE, ox.utilities.LogCoverage(sigma=0.1), discount=0.99, horizon=horizon)
    maps = visits("a", problem, np.full((16, 4), 0.25), "even")
    assert maps is not None
    assert [grid.title for grid in maps.grids] == ["even", "optimal policy", "uniform policy"]
    even, optimum = (float(np.log(grid.values + 0.1).sum()) for grid in maps.grids[:2])
    best = ox.solve(problem, tolerance=1e-6)
    assert optimum == pytest.approx(best.value, abs=0.002 * (best.value - even) + 1e-6)
    endless = ox.solve(ox.Problem(LAKE, ox.utilities.LogCoverage(sigma=0.1), discount=0.99)).policy
    assert optimum >= ox.exact.value(problem, endless) - 0.002 * (best.value - even)
    assert ("depends on time" in maps.caption) == (horizon is not None)


METERED = (
    "train",
    "simulators:Metered",
    "--constrain",
    "info.cost<=0.5",
    "--horizon",
    2,
    "--no-progress",
)


def test_a_run_with_a_constraint_ends_with_its_report(tmp_path: Path, with_pages):
    with with_pages():
        code, out, err = occupax(*METERED, "--episodes", 100, "--out", tmp_path / "run")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == f"report: {tmp_path / 'run' / 'report.html'}"
    assert "info.cost &lt;= " in (tmp_path / "run" / "report.html").read_text()
    page = tmp_path / "page.html"
    assert occupax("report", tmp_path / "run", "--out", page) == (0, f"report: {page}\n", "")


def test_a_report_that_is_not_written_is_an_error_of_a_run_that_is_saved(
    tmp_path: Path, with_pages, monkeypatch
):
    folder = tmp_path / "run"
    command = (*METERED, "--out", folder)
    with with_pages():
        assert occupax(*command, "--episodes", 20)[0] == 0

        def broken(*_):
            raise RuntimeError("no ink")

        monkeypatch.setattr(report, "write_report", broken)
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            code, out, err = occupax(*command, "--episodes", 40, "--resume")
    assert code == 1
    assert err == "occupax: the report could not be written: no ink\n"
    assert out.splitlines()[-1] == f"saved: {folder}"
    assert ox.load_result(folder).episodes[-1] == 40


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_path_of_any_bytes_can_be_printed(encoding: str, tmp_path: Path, compiled_fast):
    folder = os.fsencode(tmp_path) + b"/r\xe9sum\xe9"
    start = (sys.executable, "-c", "from occupax.cli import main; main()")
    command = [
        *start,
        "train",
        "FrozenLake-v1",
        "--episodes",
        "20",
        "--horizon",
        "3",
        "--out",
        folder,
    ]
    env = compiled_fast | {"PYTHONIOENCODING": f"{encoding}:strict"}
    done = subprocess.run(command, env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    (last,) = done.stdout.splitlines()[-1:]
    assert last == f"report: {tmp_path}/r\\udce9sum\\udce9/report.html".encode()
