"""OccupancyBench: problems, optima, scores, statistics, tracks, resuming, pages and command."""

import json
import re
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

import occupax as ox
from commands import occupax
from occupax import exact
from occupax.analysis import plots
from occupax.analysis.statistics import (
    interquartile_mean,
    performance_profile,
    probability_of_improvement,
)
from occupax.bench import cells, families, generators, leaderboard, measure, references, search
from occupax.bench.families import FAMILIES, QUICK, BenchEnv, problems
from occupax.bench.leaderboard import Leaderboard
from occupax.jobs import JobStore
from own_algorithms import Turns

PAGE = Path(__file__).parents[2] / "docs" / "bench.md"
RANDOM = np.random.default_rng


def by_name(name, **options):
    return next(it for it in problems(**options) if it.name == name)


# Problems


def test_half_of_the_problems_are_for_the_test_by_family():
    every, names = problems(), [it.name for it in problems()]
    assert len(set(names)) == len(names) >= 40
    sizes = {half: len(problems(half=half)) for half in ("development", "test")}
    assert sum(sizes.values()) == len(every)
    assert abs(sizes["test"] - sizes["development"]) <= 2
    assert {it.half for it in every if it.family == "garnet"} == {"development"}
    assert sorted(it.name for it in problems("quick")) == sorted(QUICK)
    assert {it.half for it in problems("quick")} == {"development", "test"}
    utilities = {it.utility for it in every}
    assert utilities >= {
        "return",
        "log-coverage",
        "entropy",
        "target",
        "constraint",
        "sum",
        "roots",
        "ratio",
    }


@pytest.mark.parametrize(
    "name", ["lake-4/return", "chain-20/constraint", "deep-sea-6/return", "garnet-10-2/ratio"]
)
def test_fresh_problems_are_new_ones_of_the_same_size(name):
    known, again, new, other = (by_name(name, fresh=seed) for seed in (None, None, 0, 1))
    assert known.fingerprint == again.fingerprint
    assert len({it.fingerprint for it in (known, new, other)}) == 3
    assert {it.problem.size for it in (known, new, other)} == {known.problem.size}
    assert by_name(name, fresh=1).fingerprint == other.fingerprint


def test_problems_without_a_table_stay_as_they_are():
    known, fresh = (by_name("mountain-car/log-coverage", fresh=seed) for seed in (None, 3))
    assert known.fingerprint == fresh.fingerprint
    assert known.problem.size == 256


@pytest.mark.parametrize(
    ("argument", "value"), [("suite", "large"), ("half", "third"), ("fresh", -1)]
)
def test_what_is_not_known_is_refused(argument, value):
    with pytest.raises(ValueError, match=argument):
        problems(**{argument: value})


@pytest.mark.parametrize(
    ("name", "slip"), [("CliffWalking-v1", 0.0), ("CliffWalkingSlippery-v1", generators.ICE)]
)
def test_drawn_cliffs_are_like_gymnasiums(name, slip):
    ours, theirs = generators.cliff_walk(4, 12, slip), ox.make(name)
    reached = np.r_[:37]  # all but the cliff, where nobody stays, and the goal
    moved, expected = (
        env.transition.toarray().reshape(48, 4, 48)[reached] for env in (ours, theirs)
    )
    np.testing.assert_allclose(
        moved[:, ::-1], expected, atol=1e-12
    )  # Gymnasium begins with up and ends with left
    np.testing.assert_allclose(ours.reward[reached, ::-1], theirs.reward[reached], atol=1e-12)
    np.testing.assert_array_equal(ours.initial, theirs.initial)
    assert ours.terminal[47]


def test_a_deep_sea_pays_those_who_go_right_each_time():
    problem = by_name("deep-sea-6/return").problem
    uniform = np.full((37, 2), 0.5)
    treasure, costs = 0.99**5, 0.01 / 6 * sum(0.99**t for t in range(6))
    assert ox.solve(problem).value == pytest.approx(treasure - costs)
    assert exact.value(problem, uniform) == pytest.approx(treasure / 2**6 - costs / 2)


@pytest.mark.parametrize("seed", range(5))
def test_the_goal_of_a_drawn_map_can_be_reached(seed):
    for env in (
        generators.lake(RANDOM(seed), 6),
        generators.grid(RANDOM(seed), 6),
        generators.cliff(RANDOM(seed), 0.1),
    ):
        reached, states = env.initial > 0, np.arange(env.num_states)
        for _ in states:
            reached = reached | np.isin(states, env.successors[reached & ~env.terminal])
        assert reached[-1]
    lengths = generators.taxi(RANDOM(seed)).initial
    assert (lengths > 0).sum() == 30


# Optima


def test_every_problem_has_a_stored_reference():
    stored = json.loads(references.STORED.read_text())
    assert [it.name for it in problems() if it.name not in stored] == []
    for it in problems("quick", "development"):
        known = stored[it.name]
        assert known["fingerprint"] == it.fingerprint
        if known["source"] == "certified":
            uniform = np.full(
                (it.problem.env.num_states, it.problem.env.num_actions),
                1 / it.problem.env.num_actions,
            )
            way = known["best"] - exact.value(it.problem, uniform)
            assert known["gap"] <= references.TOLERANCE * way


def test_an_optimum_is_certified_and_kept(tmp_path):
    it = by_name("garnet-10-2/return", fresh=1)
    assert references.stored_reference(it) is None
    store, job = JobStore(tmp_path), references.reference_job(it)
    reference = references.read_reference(store.run([job], progress=False)[job.name])
    assert reference.source == "certified"
    assert reference.best == pytest.approx(exact.value_iteration(it.problem).value)
    stored = store.load(job)
    assert stored is not None
    assert references.read_reference(stored) == reference
    other = references.reference_job(by_name("garnet-10-2/return", fresh=2))
    assert other.name == job.name
    assert store.load(other) is None


def test_exact_ascent_maximises_a_utility_that_is_not_concave():
    problem = by_name("garnet-10-2/ratio").problem
    best, random = references.exact_ascent(problem, starts=1, max_steps=30), RANDOM(0)
    tried = [exact.value(problem, random.dirichlet(np.full(2, 0.3), 10)) for _ in range(20)]
    assert best > max(tried)


# Scores and statistics


def test_scores_are_shares_of_the_way_by_hand():
    curve = measure.Curve(
        np.array([0, 10, 50, 100]), np.array([[1.0, 2.0, 4.0, 5.0], [1.0, -9.0, np.nan, 3.0]])
    )
    scores = curve.scores(best=5.0, budget=100)
    np.testing.assert_allclose(scores["tenth"], [0.25, -1.0])
    np.testing.assert_allclose(scores["third"], [0.25, -1.0])
    np.testing.assert_allclose(scores["end"], [1.0, 0.5])
    np.testing.assert_allclose(scores["mean"], [0.0 * 0.1 + 0.25 * 0.4 + 0.75 * 0.5, -0.9])


def test_statistics_over_runs_match_values_by_hand():
    low, high = np.zeros((3, 4)), np.ones((3, 4))
    mixed = np.where(np.arange(12).reshape(3, 4) % 4 == 0, 1.0, 0.0)
    compare = partial(probability_of_improvement, resamples=500)
    assert [float(bound) for bound in compare(high, low)] == [1.0, 1.0, 1.0]
    assert [float(bound) for bound in compare(low, low)] == [0.5, 0.5, 0.5]
    interval = compare(mixed, low)
    assert interval.estimate == pytest.approx(0.25 + 0.75 / 2)
    assert interval.lower < interval.estimate < interval.upper
    profile = performance_profile(mixed, np.array([0.0, 0.5, 1.1]), resamples=500)
    np.testing.assert_allclose(profile.estimate, [1.0, 0.25, 0.0])
    scores = RANDOM(0).normal(size=(20, 10))
    middle = leaderboard._middle(scores)
    assert middle.estimate == pytest.approx(interquartile_mean(scores.ravel()))
    # the interquartile mean of 200 normal numbers has a standard deviation of about 1.1 / sqrt(200)
    assert middle.upper - middle.lower == pytest.approx(2 * 1.96 * 1.1 / np.sqrt(200), rel=0.25)


def test_the_tuned_track_tries_sixteen_settings_and_the_own_one_among_them():
    groups = search.candidates(ox.TSIVRPG(step_size=0.1, snapshot_batch=20, batch=5))
    assert [len(group) for group in groups] == [8, 8]
    assert {(it.snapshot_batch, it.batch) for group in groups for it in group} == {(20, 5), (10, 3)}
    assert len({str(it.step_size) for it in groups[0]}) == 8
    assert 0.1 in [it.step_size for it in groups[0]]
    (group,) = search.candidates(Turns(step_size=0.1))  # which has no batch
    assert len({str(it.step_size) for it in group}) == 16
    groups = search.candidates(
        ox.PlugIn(batch=20)
    )  # which goes all the way to its plan, however it is tuned
    assert all(it.step_size == 1.0 for group in groups for it in group)
    assert len({str(it.prior) for it in groups[0]}) == 8
    assert ox.PlugIn().prior in [it.prior for it in groups[0]]


# All of it


@pytest.fixture
def tiny(monkeypatch):
    """A benchmark of one problem in each half, with small budgets."""
    small = {"garnet": 200, "deep-sea": 40}
    found = {
        name: FAMILIES[name]._replace(
            entries=(FAMILIES[name].entries[0]._replace(utilities=("return",), episodes=episodes),)
        )
        for name, episodes in small.items()
    }
    monkeypatch.setattr(families, "FAMILIES", found)
    monkeypatch.setattr(families, "QUICK", ("garnet-10-2/return", "deep-sea-6/return"))
    monkeypatch.setattr(measure, "RECORDS", 4)
    monkeypatch.setattr(search, "SETTINGS", 4)
    monkeypatch.setattr(leaderboard, "RESAMPLES", 50)


def test_a_benchmark_is_resumable_and_the_same_bit_for_bit(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "save", lambda *_: None)  # five times the same figures
    monkeypatch.setattr(leaderboard, "RESAMPLES", 50)
    trained, measured = [], cells.measure_cell
    monkeypatch.setattr(
        cells,
        "measure_cell",
        lambda cell, logger: trained.append(cell.name) or measured(cell, logger),
    )
    options = {
        "algorithms": {"ours": ox.REINFORCE(batch=10)},
        "half": "development",
        "tuned": True,
        "seeds": 2,
    }
    board = ox.bench.run(tmp_path / "a", **options, progress=False)
    assert board.submissions == [("ours", "default"), ("ours", "tuned")]
    assert board.scores("ours", "tuned", "end").shape == (1, 2)
    numbers = (tmp_path / "a" / "numbers" / "runs.csv").read_bytes()
    both = ["garnet-10-2-return-ours-default", "garnet-10-2-return-ours-tuned"]
    assert trained == both
    (tmp_path / "a" / "jobs" / f"{both[1]}.safetensors").unlink()
    for folder in ("a", "b"):
        ox.bench.run(tmp_path / folder, **options, progress=False)
        assert (tmp_path / folder / "numbers" / "runs.csv").read_bytes() == numbers
    assert trained == [*both, both[1], *both]
    # a later command on both halves shows what is tuned on one of them, where all is there
    later = ox.bench.run(
        tmp_path / "a", **(options | {"tuned": False, "half": "both"}), progress=False
    )
    assert later.submissions == board.submissions
    assert sorted(row[1] for row in later.table("development").rows) == ["default", "tuned"]
    assert [row[1] for row in later.table("both").rows] == ["default"]
    assert "Tuned track, development half" in (tmp_path / "a" / "bench.md").read_text()
    two = {
        "ours": ox.REINFORCE(batch=10),
        "another": ox.REINFORCE(batch=5),
    }  # of which nobody tuned the second
    wider = ox.bench.run(
        tmp_path / "a", **(options | {"tuned": False, "algorithms": two}), progress=False
    )
    assert wider.submissions == [("ours", "default"), ("another", "default")]


def test_the_page_says_whom_the_default_beats_with_tuned_settings_on_the_test_half(monkeypatch):
    monkeypatch.setattr(leaderboard, "RESAMPLES", 50)

    def done(label, track, half, *ends):
        problem = by_name({"development": "lake-4/return", "test": "deep-sea-6/return"}[half])
        values = np.array([[0.0, end, end] for end in ends])
        curve = measure.Curve(np.array([0, 1, problem.entry.episodes]), values)
        return cells.CellResult(
            cells.BenchCell(problem, label, None, track, len(ends)), "", curve, 60.0
        )

    ends = {"worse": (0.2, 0.3), "better": (0.8, 0.9), "alike": (0.4, 0.7), "ox.train": (0.9, 0.9)}
    every = [
        done("ox.train", "default", "test", 0.5, 0.6),
        done("ox.train", "default", "development", 0.5, 0.6),
    ]
    every += [
        done(label, "tuned", half, *of)
        for label, of in ends.items()
        for half in ("development", "test")
    ]
    names = {it.cell.problem.name for it in every}
    board = Leaderboard(
        tuple(every), {name: references.Reference(1.0, "bound") for name in names}, ""
    )
    facts = dict(board._facts())
    assert facts["Training"] == "10 minutes of one core, compilation included"
    said = re.sub(r",? \d\.\d+ \[.*?\]", "", facts["Test half"])
    assert said == (
        "ox.train without a setting, against tuned settings: "
        "ahead of worse; behind better; not told apart from alike"
    )


def test_the_page_has_all_entrants_and_escapes_their_names(tiny, tmp_path):
    board = ox.bench.run(tmp_path, {"<i>ours": ox.REINFORCE(batch=10)}, seeds=2, progress=False)
    assert board.scores("<i>ours", half="test").shape == (1, 2)
    page, text = ((tmp_path / f"bench.{kind}").read_text() for kind in ("html", "md"))
    assert "&lt;i&gt;ours" in page
    assert "<i>ours" not in page
    assert "| garnet-10-2/return | development | certified | 200 |" in text
    assert {f.name for f in (tmp_path / "figures").glob("*.svg")} == {
        "bench-profile-default.svg",
        "bench-curves-default.svg",
    }


def test_the_algorithm_of_the_page_is_entered_by_one_command(tiny, tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(# momentum\.py\n.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(code.splitlines()) <= 30
    (tmp_path / "momentum.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    words = (
        "--algorithm",
        "momentum:Momentum",
        "--half",
        "development",
        "--seeds",
        "2",
        "--out",
        "made",
    )
    status, out, err = occupax("bench", *words, "--no-progress")
    assert (status, err) == (0, "")
    assert "momentum:Momentum" in out
    assert "leaderboard: made/bench.html" in out
    assert (tmp_path / "made" / "bench.md").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tsivrpg", "Did you mean 'tsivr-pg'"),
        ("json:loads", "algorithm must be"),
        ("nowhere:Thing", "nowhere"),
    ],
)
def test_what_is_no_algorithm_is_refused_in_a_sentence(name, said, tmp_path):
    status, _, err = occupax("bench", "--algorithm", name, "--out", str(tmp_path))
    assert status == 2
    assert said in " ".join(err.split())


def test_networks_are_evaluated_on_new_episodes():
    problem = families.BenchProblem(
        "cartpole", BenchEnv("cartpole", (), 20, 40, published="CartPole-v1"), "return"
    ).problem
    policies = [
        ox.policies.mlp(hidden=(2,), scale=1.0)(problem.env, jax.random.key(seed))
        for seed in (0, 0, 1)
    ]
    evaluate = measure.make_evaluator(problem, policies[0])
    first, again = evaluate(policies, 0), evaluate(policies, 1)
    assert first[0] == first[1] != first[2]
    assert first[0] != again[0]
    assert (first > 8).all()
    assert (first < 20).all()


def test_linear_systems_are_scored_exactly_from_their_first_policy_to_the_riccati_optimum():
    it = next(it for it in problems("full", "development") if it.name == "linear-2-1/return")
    curve = measure.train(it.problem, [ox.REINFORCE(batch=10)], 20, [0, 3], 0)[0]
    keys = [
        jax.random.fold_in(jax.random.fold_in(jax.random.key(0), number), 0) for number in (0, 3)
    ]
    first = [ox.policies.gaussian(hidden=())(it.problem.env, key) for key in keys]
    np.testing.assert_allclose(
        curve.values[:, 0], [ox.exact.lqr.value(it.problem, policy) for policy in first]
    )
    assert len(set(curve.values[:, -1])) == 2
    known = references.stored_reference(it)
    assert known is not None
    A, B, noise = it.problem.env.drift, it.problem.env.control, it.problem.env.noise
    cost, constant = np.zeros((2, 2)), 0.0
    for _ in range(20):  # backwards, by completing the square
        constant = 0.95 * (constant + np.trace(cost @ noise))
        crossed = 0.95 * A.T @ cost @ B
        inner = 0.1 * np.eye(1) + 0.95 * B.T @ cost @ B
        cost = np.eye(2) + 0.95 * A.T @ cost @ A - crossed @ np.linalg.solve(inner, crossed.T)
    assert known.best == pytest.approx(-np.trace(cost) - constant, rel=1e-9)


def test_a_cell_names_the_settings_that_its_algorithm_has_by_default():
    it = next(it for it in problems() if it.name == "linear-2-1/return")
    described = cells.BenchCell(it, "ox.train", ox.REINFORCE(), "default", 2).job.description[
        "algorithm"
    ]
    assert described == describe_by_hand(batch=10, mixing=1.0, step_size=0.01, decay_after=100.0)


def describe_by_hand(batch, mixing, step_size, decay_after):
    steps = f"step_size={step_size}, decay_after={decay_after}, radius=inf, rule=adam"
    sizes = f"batch={batch}, mixing={mixing}, restarts=True"
    return f"REINFORCE({steps}, baseline=mean, output=last, {sizes})"


@pytest.mark.parametrize("track", ["default", "tuned"])
def test_a_problem_that_an_algorithm_does_not_take_has_a_score_of_zero(track):
    problem = by_name("linear-2-1/return")
    done = cells.measure_cell(cells.BenchCell(problem, "plug-in", ox.PlugIn(), track, 3))
    assert done.settings == "does not take this problem"
    best = exact.lqr.optimum(problem.problem).value
    for name, scores in done.curve.scores(best, problem.entry.episodes).items():
        np.testing.assert_array_equal(scores, np.zeros(3), err_msg=name)
