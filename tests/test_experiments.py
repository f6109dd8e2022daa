"""The parts of the paper's experiments, against brute force, the paper's tables and hand-worked values."""

import csv
from dataclasses import replace
from math import inf

import jax.numpy as jnp
import numpy as np
import pytest

import occupax as ox
from occupax.analysis.statistics import Interval, bootstrap_difference
from occupax.experiments import ablations, cells, methods, rate, reproduction, reward, tuning, utility
from occupax.experiments.cells import SCALES, Cell, Done, Measurement
from occupax.experiments.sections import above, answer, centre, median, shown, tally, upper_median, verdict
from occupax.experiments.tasks import CARTPOLE, COVERAGE, COVERAGE_CARTPOLE, LAKE, TASKS, Task, tasks
from occupax.training.setup import make_setup

SIGMA = 0.125


PROBLEM = ox.Problem(ox.make("FrozenLake-v1"), ox.utilities.LogCoverage(SIGMA), 0.9, 12)
SIZES = (4, 2, 2)  # the same in all tests, which then share a program


def small(measure="exact", **settings) -> Task:
    """Log coverage of a lake of 16 cells."""
    given = {"episodes": 60, "seeds": 2, "step_sizes": (1e-2, 1.0), "trials": 4} | settings
    return Task("small", PROBLEM, measure, **given)


# Settings

PRINTED = {  # B, N, m, eta, delta, read off the appendix once more
    "CartPole-v0": [(5, 25, 5, 5e-3, 1e-2), (25, 5e-3), (8, 25, 3, 5e-3), (5, 25, 5, 5e-3), (5, 25, 5, 8e-3)],
    "FrozenLake8x8": [
        (10, 100, 10, 0.1, 1e-2),
        (100, 5e-2),
        (20, 100, 5, 5e-2),
        (10, 100, 10, 5e-2),
        (10, 100, 10, 8e-2),
    ],
    "Acrobot-v1": [
        (10, 100, 10, 5e-3, 1e-2),
        (100, 2e-3),
        (20, 100, 5, 2e-3),
        (10, 100, 10, 2e-3),
        (10, 100, 10, 2e-3),
    ],
}
HORIZONS = {"CartPole-v0": (0.99, 200), "FrozenLake8x8": (0.99, 200), "Acrobot-v1": (0.999, 500)}
CLASSES = (ox.TSIVRPG, ox.REINFORCE, ox.SVRPG, ox.SRVRPG, ox.HSPGA)


def numbers(algorithm):
    """(B,) N(, m), eta(, delta) of an algorithm, as the appendix has its columns."""
    if isinstance(algorithm, ox.REINFORCE | ox.MaxEnt):
        assert algorithm.radius == inf
        return algorithm.batch, algorithm.step_size
    columns = (algorithm.batch, algorithm.snapshot_batch, algorithm.epoch_length, algorithm.step_size)
    return (*columns, algorithm.radius) if isinstance(algorithm, ox.TSIVRPG) else columns


def test_printed_settings_are_those_of_the_appendix():
    found = methods.printed()
    for task, rows in PRINTED.items():
        for method, kind, row in zip(methods.REWARD, CLASSES, rows, strict=True):
            assert type(found[task, method]) is kind
            assert numbers(found[task, method]) == row
        assert (tasks()[task].problem.discount, tasks()[task].problem.horizon) == HORIZONS[task]
    assert numbers(found[COVERAGE, "TSIVR-PG"]) == (20, 100, 5, 5e-2, 9e-2)
    assert numbers(found[COVERAGE, "MaxEnt"]) == (100, 9e-2)
    assert len(found) == 17
    baselines = {getattr(algorithm, "baseline", None) for algorithm in found.values()}
    assert len(baselines) == 1  # nobody has an advantage that the paper does not print


def test_the_sizes_of_epochs_follow_from_the_snapshot():
    for name, expected in (
        ("TSIVR-PG", [(3, 3), (5, 5), (7, 7), (10, 10), (14, 14)]),
        ("SRVR-PG", [(3, 3), (5, 5), (7, 7), (10, 10), (14, 14)]),
        ("HSPGA", [(3, 3), (5, 5), (7, 7), (10, 10), (14, 14)]),
        ("SVRPG", [(5, 2), (9, 3), (14, 4), (22, 5), (34, 6)]),
        ("TSIVR-PG (B = 4 m)", [(6, 2), (10, 2), (14, 4), (20, 5), (28, 7)]),
    ):
        for snapshot, sizes in zip((10, 25, 50, 100, 200), expected, strict=True):
            made = methods.make(name, snapshot, step_size=0.25)
            assert (made.snapshot_batch, made.batch, made.epoch_length) == (snapshot, *sizes)
            assert made.step_size == 0.25
    assert methods.make("REINFORCE", 50).batch == 50
    assert methods.make("MaxEnt", 50, mixing=0.3).mixing == 0.3
    with pytest.raises(ValueError, match=r"method 'TSIVR' is not known\. Did you mean 'TSIVR-PG'\?"):
        methods.make("TSIVR", 10)


def test_tuned_settings_are_the_best_of_the_search(tmp_path):
    file = tmp_path / "search.csv"
    file.write_text(
        "task,method,N,B,m,step_size,radius,mixing,seeds,score\n"
        "lake,TSIVR-PG,25,5,5,0.1,0.2,,3,-3.5\n"
        "lake,TSIVR-PG,25,5,5,0.3,0.8,,3,nan\n"
        "lake,TSIVR-PG,100,10,10,0.5,0.05,,3,-2.5\n"
        "lake,TSIVR-PG,200,14,14,0.7,0.2,,3,-3.25\n"
        "lake,MaxEnt,10,,,0.1,,0.3,3,nan\n"
        "lake,MaxEnt,10,,,0.2,,0.03,3,1\n"
        "pole,TSIVR-PG,10,3,3,0.9,0.01,,3,7\n"
        "pole,REINFORCE,10,,,0.9,,,3,nan\n"
        "pole,SVRPG,10,5,2,0.9,,,3,9\n"  # lucky on three seeds
        "pole,SVRPG,10,5,2,0.8,,,10,2\n"
        "pole,SVRPG,25,9,3,0.9,,,10,1\n"
    )
    found = methods.tuned(file)
    assert found.keys() == {("lake", "TSIVR-PG"), ("lake", "MaxEnt"), ("pole", "TSIVR-PG"), ("pole", "SVRPG")}
    assert found["pole", "SVRPG"].step_size == 0.8
    assert numbers(found["lake", "TSIVR-PG"]) == (10, 100, 10, 0.5, 0.05)
    assert (*numbers(found["lake", "MaxEnt"]), found["lake", "MaxEnt"].mixing) == (10, 0.2, 0.03)
    assert numbers(found["pole", "TSIVR-PG"]) == (3, 10, 3, 0.9, 0.01)


def test_every_method_has_as_many_trials():
    for task in tasks().values():
        for method in methods.METHODS:
            points = tuning.candidates(task, method)
            assert len(points) == task.trials
            assert len({tuple(point.items()) for point in points}) == task.trials
            sizes = {point["step_size"] for point in points}
            assert (min(sizes), max(sizes)) == pytest.approx(task.step_sizes, rel=1e-2)
    assert [point["step_size"] for point in tuning.candidates(small(trials=3), "SVRPG")] == [0.01, 0.1, 1.0]
    pairs = tuning.candidates(small(trials=8), "MaxEnt")
    assert [tuple(pair.values()) for pair in pairs] == [(s, a) for s in (0.01, 1.0) for a in (0.01, 0.03, 0.1, 0.3)]


def test_the_search_and_what_is_shown_share_no_seed():
    assert tuning.SEED != cells.SEED


def test_the_stored_search_is_complete():
    trials = methods.read_search()
    for task, method, snapshots in (entry for part in reproduction.SEARCHED.values() for entry in part):
        for snapshot in snapshots:
            these = [it for it in trials if (it.task, it.method, it.snapshot) == (task, method, snapshot)]
            tried = [it.settings for it in these if it.seeds == tuning.SEEDS]
            assert tried == tuning.candidates(tasks()[task], method), (task, method, snapshot)
        if snapshots == methods.SNAPSHOTS:
            first = [it for it in trials if it.seeds == tuning.SEEDS]
            best = tuning.finalists(first, task, method)
            again = [it for it in trials if (it.task, it.method) == (task, method) and it.seeds == 10]
            assert sorted((it.snapshot, *it.settings.values()) for it in again) == sorted(
                (it.snapshot, *it.settings.values()) for it in best
            )


# Runs whose policies are measured exactly


def log_coverage(occupancy) -> float:
    return float(np.log(occupancy.sum(1) + SIGMA).sum())


def test_the_curves_of_maxent_are_those_of_its_policies_and_mixtures():
    task, alphas = small(), (0.3, 0.05)
    variants = [ox.MaxEnt(batch=8, mixing=alpha, step_size=0.5) for alpha in alphas]
    found = cells.train(task, variants, 50, range(2), 3)
    first = make_setup(task.problem, variants, task.policy, 2, 3, 1, exact=False).policies
    for alpha, variant, it in zip(alphas, variants, found, strict=True):
        seen = [first]
        ox.train(
            task.problem, variant, 50, 2, 3, task.policy, [lambda at, s=seen: s.append(at.policies)], progress=False
        )
        assert len(seen) == 7  # six iterations of 8 episodes
        np.testing.assert_array_equal(it.episodes, [0, 8, 16, 24, 32, 40, 48])
        assert (it.steps[:, 0] == 0).all()
        np.testing.assert_array_equal(it.steps[:, 1:], it.result.steps)
        assert it.mixture is not None
        for seed in range(2):
            tables = [np.exp(np.asarray(policies[seed].table, float)) for policies in seen]
            visits = [ox.exact.occupancy(task.problem, t / t.sum(1, keepdims=True)) for t in tables]
            expected = [log_coverage(visit) for visit in visits]
            np.testing.assert_allclose(it.values[seed], expected, rtol=1e-10)
            assert len(set(expected)) == 7  # it moves: the first policy and the last are not the same
            mixtures = [expected[0]]
            for k in range(1, 7):  # the policies 0 to k - 1 have been sampled
                weights = [alpha * (1 - alpha) ** (k - 1 - j) for j in range(k)]
                weights[0] = (1 - alpha) ** (k - 1)
                assert sum(weights) == pytest.approx(1)
                mixed = sum(weight * visit for weight, visit in zip(weights, visits, strict=False))
                mixtures.append(log_coverage(mixed))
            np.testing.assert_allclose(it.mixture[seed], mixtures, rtol=1e-10)
        np.testing.assert_allclose(it.values[:, -1], it.result.utilities, rtol=1e-10)


def test_exact_curves_have_few_records_and_leave_out_an_incomplete_one(monkeypatch):
    monkeypatch.setattr(cells, "EXACT_RECORDS", 3)
    task, algorithm = small(), ox.TSIVRPG(*SIZES, step_size=0.5, radius=0.5)
    complete, longer = (cells.train(task, [algorithm], episodes, range(2), 0)[0] for episodes in (28, 30))
    for it in (complete, longer):  # nine and ten iterations, of 4 and 2 episodes in turn
        np.testing.assert_array_equal(it.episodes, [0, 10, 18, 28])
        assert it.mixture is None
    np.testing.assert_allclose(complete.values[:, -1], complete.result.utilities, rtol=1e-10)
    np.testing.assert_array_equal(longer.values, complete.values)
    assert (longer.result.utilities != complete.result.utilities).all()


def test_other_curves_are_what_was_sampled():
    found = cells.train(small("discounted_return"), [ox.REINFORCE(batch=5)], 20, range(2), 0)[0]
    np.testing.assert_array_equal(found.episodes, [5, 10, 15, 20])
    np.testing.assert_array_equal(found.values, found.result.metrics["discounted_return"])
    snapshots = cells.train(small("utility"), [ox.TSIVRPG(*SIZES, step_size=0.5, radius=0.5)], 28, range(2), 0)[0]
    np.testing.assert_array_equal(snapshots.episodes, [4, 10, 16, 22, 28])
    np.testing.assert_array_equal(snapshots.values, snapshots.result.metrics["utility"][:, ::2])
    np.testing.assert_array_equal(snapshots.steps, snapshots.result.steps[:, ::2])


# Verdicts


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        ([True], "reproduced"),
        ([True, True], "reproduced"),
        ([True, None], "partly"),
        ([True, False], "partly"),
        ([False, True, None], "partly"),
        ([False], "not reproduced"),
        ([False, None], "not reproduced"),
        ([None], "cannot tell"),
        ([None, None], "cannot tell"),
        ([], "cannot tell"),
    ],
)
def test_verdicts(tests, expected):
    assert verdict(tests) == expected
    assert verdict(iter(tests)) == expected


def test_a_tally_counts():
    assert tally([True, None, False, True]) == "2 of 4 hold, 1 are refuted, 1 cannot be told"
    assert [answer(test) for test in (True, False, None)] == ["yes", "no", "cannot tell"]


def interval(estimate, lower, upper):
    return Interval(*(np.asarray(bound, float) for bound in (estimate, lower, upper)))


def test_a_number_is_above_a_bound_if_its_whole_interval_is():
    for bounds, bound, expected in (
        ((0.5, 0.1, 0.9), 0.0, True),
        ((0.5, -0.1, 0.9), 0.0, None),
        ((0.5, 0.0, 0.9), 0.0, None),
        ((-0.5, -0.9, 0.0), 0.0, None),
        ((-0.5, -0.9, -0.1), 0.0, False),
        ((0.5, 0.1, 0.9), 0.5, None),
        ((0.5, 0.1, 0.9), 1.0, False),
        ((inf, 3.0, inf), 0.0, True),
        ((-inf, -inf, -3.0), 0.0, False),
        ((np.nan, np.nan, np.nan), 0.0, None),
    ):
        assert above(interval(*bounds), bound) is expected


def test_numbers_are_shown_with_their_intervals():
    assert shown(interval(0.5, 0.25, 0.75)) == "0.5000 [0.2500, 0.7500]"
    assert shown(interval(2.0, 2.0, 2.0)) == "2.000"
    assert shown(interval(1500.0, 1200.0, inf)) == "1,500 [1,200, never]"
    assert shown(interval(inf, inf, inf)) == "never"


def test_the_median_of_times_may_be_never():
    for times, expected in (
        ([100.0, 300.0, 200.0], 200.0),
        ([100.0, 200.0, 300.0, 400.0], 300.0),  # one of the values, the later one
        ([100.0, inf, 300.0], 300.0),
        ([100.0, 200.0, inf, inf], inf),
        ([inf, inf, inf], inf),
    ):
        found = median(np.array(times))
        assert found.estimate == expected
        assert found.lower <= found.estimate <= found.upper
        assert {float(found.lower), float(found.upper)} <= set(times)
    assert shown(median(np.full(5, inf))) == "never"
    fast, slow = np.full(5, 100.0), np.full(5, 900.0)
    assert above(bootstrap_difference(slow, fast, upper_median)) is True
    never = np.full(5, inf)
    assert above(bootstrap_difference(never, slow, upper_median)) is True
    assert above(bootstrap_difference(fast, never, upper_median)) is False
    assert above(bootstrap_difference(never, never, upper_median)) is None  # none is slower


def test_a_single_seed_is_its_own_interval():
    assert shown(centre(np.array([0.5]))) == "0.5000"
    many = centre(np.array([1.0, 2.0, 3.0, 4.0]))
    assert (many.estimate, many.lower < 2.5 < many.upper) == (2.5, True)


# The rate

ROOTS = (4, 8, 16, 24, 32, 48, 64, 96)
EPISODES = np.array([100, 400, 900, 2500, 6400, 10_000, 40_000, 90_000])


class StandIn(ox.exact.Evaluator):
    """Evaluates policies whose gap is their first number."""

    def __init__(self, optimum):
        self.optimum = optimum

    def occupancies(self, tables):
        return tables[:, 0, :1]

    def utilities(self, occupancies):
        return self.optimum - occupancies[:, 0]


def policy_with_gap(gap: float) -> np.ndarray:
    """A table in which a way below finds this gap."""
    return np.array([[gap, 1 - gap]])


def gaps_made(means, seeds=4) -> dict[rate.Key, Done]:
    """Runs on both tasks whose policies have these gaps on average."""
    done: dict[rate.Key, Done] = {}
    spread = np.linspace(0.9, 1.1, seeds)
    nothing = np.zeros(0)
    outcome = Measurement(nothing, np.zeros((seeds, 0)), nothing, np.zeros((seeds, 0)), *[np.zeros(seeds)] * 3)
    for task in rate.TASKS:
        for root, episodes, mean in zip(ROOTS, EPISODES, means, strict=True):
            cell = Cell("", tasks()[task], ox.TSIVRPG(16, 4, 4, step_size=0.1, radius=0.2), int(episodes), seeds)
            tables = np.array([policy_with_gap(mean * factor) for factor in spread])
            done[task, root] = Done(cell, outcome, None, tables, 0, 1.0)
    return done


def verdicts(monkeypatch, means) -> list[str]:
    best = 0.41464
    made = [rate.Gaps(name, best, StandIn(best)) for name in ("infinite", "steps", "mixed")]
    monkeypatch.setattr(rate, "ways", lambda _: made)
    return [claim.verdict for claim in rate.sections(gaps_made(means))[0].claims]


WOBBLE = np.exp(0.01 * np.array([1, -1, 1, -1, -1, 1, -1, 1]))


def test_a_rate_is_fitted():
    way = rate.Gaps("", 1.0, StandIn(1.0))
    found = rate.fit(gaps_made(3.0 * EPISODES**-0.5), LAKE, way)
    assert found.line.slope == pytest.approx(-0.5, abs=1e-12)
    assert np.exp(found.line.intercept) == pytest.approx(3.0)
    np.testing.assert_array_equal(found.episodes, EPISODES)
    np.testing.assert_allclose(found.means, 3.0 * EPISODES**-0.5, rtol=1e-12)
    np.testing.assert_allclose(found.gaps[0], 0.3 * np.linspace(0.9, 1.1, 4), rtol=1e-12)
    late = rate.fit(gaps_made([0.01, *3.0 * EPISODES[1:] ** -0.5]), LAKE, way)  # eight of which the seven largest count
    assert late.large.slope == pytest.approx(-0.5, abs=1e-12)
    assert late.line.slope > -0.4


def test_the_claims_on_the_rate_follow_the_slope(monkeypatch):
    # the optimum; the slope, measured in two ways; that the gap decreases; and the count of episodes, which is off by B
    assert verdicts(monkeypatch, WOBBLE * EPISODES**-0.5) == [*["reproduced"] * 4, "not reproduced"]
    assert verdicts(monkeypatch, WOBBLE * EPISODES**-0.45)[1:4] == ["partly", "partly", "reproduced"]  # near, not equal
    assert verdicts(monkeypatch, WOBBLE * EPISODES**-0.2)[1:4] == ["not reproduced"] * 2 + ["reproduced"]
    assert verdicts(monkeypatch, 0.3 * WOBBLE)[1:4] == ["not reproduced"] * 3
    assert verdicts(monkeypatch, 1e-3 * EPISODES**0.5)[1:4] == ["not reproduced"] * 3


def test_the_three_gaps_of_the_optimal_policy_of_the_lake():
    endless, steps = (ox.Problem(ox.make("FrozenLake8x8-v1"), None, 0.99, horizon) for horizon in (None, 200))
    best, bounded = ox.exact.value_iteration(endless), ox.exact.value_iteration(steps)
    infinite, horizon, mixed = (float(way.of(best.policy[None])[0]) for way in rate.ways(tasks()[LAKE]))
    assert infinite == pytest.approx(0, abs=1e-9)
    assert 1e-4 < horizon < 3e-4  # the best one for 200 steps hurries in the end
    assert mixed - horizon == pytest.approx(best.value - bounded.value, abs=1e-9)
    assert best.value - bounded.value == pytest.approx(0.0027, abs=5e-5)
    assert best.value == pytest.approx(0.4146, abs=5e-5)
    for found in rate.ways(tasks()[LAKE]):
        assert (found.of(np.full((1, 64, 4), 0.25)) > 0.3).all()


def test_the_rate_has_squares_for_snapshots():
    tuned = {(task, "TSIVR-PG"): ox.TSIVRPG(9, 3, 3, step_size=0.3) for task in rate.TASKS}
    found = rate.cells(SCALES["full"]._replace(roots=(4, 6, 8), epochs=20), tuned)
    assert [root for task, root in found if task == LAKE] == [4, 6, 8]
    for (_, root), cell in found.items():
        assert (cell.algorithm.snapshot_batch, cell.algorithm.batch, cell.algorithm.epoch_length) == (
            root**2,
            root,
            root,
        )
        assert cell.episodes == 20 * (root**2 + (root - 1) * root)
        assert cell.algorithm.step_size == 0.3


# Ablations


def tables(algorithm, problem):
    """What the policies of two seeds are after each iteration."""
    seen, start = [], ox.policies.tabular(scale=0.1)
    keep = [lambda at: seen.append([policy.table for policy in at.policies])]
    ox.train(problem, algorithm, 24, 2, policy=start, callbacks=keep, progress=False)
    return np.array(seen)


def test_the_newest_quasi_reward_matters_only_where_it_changes():
    settings = {"step_size": 0.5, "radius": 0.5}
    pair = ox.TSIVRPG(*SIZES, **settings), ablations.NewestQuasiReward(*SIZES, **settings)
    gain = ox.utilities.Linear(np.random.default_rng(0).uniform(size=(16, 4)))
    ours, newest = (tables(it, ox.Problem(PROBLEM.env, gain, 0.9, 12)) for it in pair)
    assert (ours[0] != ours[-1]).any()
    np.testing.assert_array_equal(ours, newest)
    ours, newest = (tables(it, PROBLEM) for it in pair)
    np.testing.assert_array_equal(ours[0], newest[0])  # a snapshot has no earlier quasi-reward
    assert (np.abs(ours[1] - newest[1]) > 1e-6).any()


def test_without_a_guard_the_gradient_is_that_at_the_estimate_itself():
    task = small()
    bare = ablations.unguarded(task)
    estimate = jnp.asarray([-0.05, 0.0, 0.3] + [1.0] * 13)
    guarded = [8.0, 8.0, 1 / 0.425] + [1 / 1.125] * 13
    np.testing.assert_allclose(task.problem.quasi_reward(estimate), guarded, rtol=1e-6)
    np.testing.assert_allclose(bare.problem.quasi_reward(estimate), [1 / 0.075, *guarded[1:]], rtol=1e-6)
    uniform = np.full((16, 4), 0.25)
    assert ox.exact.value(bare.problem, uniform) == pytest.approx(task.uniform, rel=1e-12)
    assert (bare.problem.discount, bare.problem.horizon, bare.name) == (0.9, 12, task.name)


def test_ablations_change_one_thing_each(monkeypatch):
    monkeypatch.setattr(Task, "threshold", 0.0)  # which takes a while to work out
    ours = ox.TSIVRPG(25, 5, 5, step_size=0.3, radius=0.05)
    plain, cut = ox.REINFORCE(batch=10, step_size=0.2), ox.REINFORCE(batch=50, step_size=0.4, radius=0.2)
    tuned = {(task, "TSIVR-PG"): ours for task in ablations.VARIANTS}
    for task in (LAKE, CARTPOLE):
        tuned |= {(task, ablations.PLAIN): plain, (task, ablations.CUT): cut}
    found = ablations.cells(SCALES["full"], tuned)
    assert len(found) == len({cell.name for cell in found.values()}) == 16
    for (task, variant), cell in found.items():
        kind = {
            ablations.NEWEST: ablations.NewestQuasiReward,
            ablations.PLAIN: ox.REINFORCE,
            ablations.CUT: ox.REINFORCE,
        }
        assert type(cell.algorithm) is kind.get(variant, ox.TSIVRPG)
        radius = {ablations.UNCUT: inf, ablations.PLAIN: inf, ablations.CUT: 0.2}.get(variant, 0.05)
        assert cell.algorithm.radius == radius
        if variant not in (ablations.PLAIN, ablations.CUT):
            assert numbers(cell.algorithm)[:4] == (5, 25, 5, 0.3)
        bare = float(cell.task.problem.quasi_reward(jnp.full(cell.task.problem.size, -0.05))[0])
        coverage = task in (COVERAGE, COVERAGE_CARTPOLE)
        assert bare == pytest.approx(1 / 0.075 if variant == ablations.UNGUARDED else 8.0 if coverage else 1.0)


def test_the_printed_sizes_of_coverage_are_run_beside_those_of_the_rule():
    found = utility.printed_settings(methods.printed())
    assert numbers(found[COVERAGE, "TSIVR-PG"]) == (10, 100, 10, 5e-2, 9e-2)
    assert numbers(found[COVERAGE, "TSIVR-PG (B = 4 m)"]) == (20, 100, 5, 5e-2, 9e-2)
    assert numbers(found[COVERAGE, "MaxEnt"]) == (100, 9e-2)


# Cells


def last_fifty(ends, values, count=50) -> list[float]:
    """The mean of the last single episodes at each record."""
    singles, means = [], []
    for episodes, value in zip(np.diff([0, *ends]), values, strict=True):
        singles += [value] * int(episodes)
        means.append(np.mean(singles[-count:]))
    return means


def latest(places, values, at) -> float:
    """The last record that is known at a place."""
    known = [value for place, value in zip(places, values, strict=True) if place <= at and not np.isnan(value)]
    return known[-1]


@pytest.fixture(scope="module")
def sampled():
    """A cell whose curves are made by hand: three seeds, of which the second one stops."""
    task = small("return", given_threshold=3.0)
    cell = Cell("by-hand", task, ox.REINFORCE(batch=30), 600, 3)
    run = cells.train(task, [cell.algorithm], 60, range(3), 0)[0]
    random, ends = np.random.default_rng(0), np.arange(30, 601, 30)
    values = np.sort(random.uniform(0.0, 4.0, (3, 20)), axis=1) + random.normal(0, 0.3, (3, 20))
    values[1, 7:] = np.nan
    values[2] -= 2.0
    values[2, 4] = 4.0  # a single good record, not fifty good episodes
    steps = np.cumsum(random.integers(100, 200, (3, 20)), axis=1)
    status = ("finished", "stopped at iteration 7: ...", "finished")
    made = replace(run, episodes=ends, steps=steps, values=values, result=replace(run.result, status=status))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "train", lambda *_: [made])
        return made, cells.measure(cell)


def test_outcomes_are_those_of_brute_force(sampled):
    run, done = sampled
    for seed, values in enumerate(run.values):
        known = values[~np.isnan(values)]
        smooth = last_fifty(run.episodes[: len(known)], known)
        ends = run.episodes[: len(known)]
        single = [latest(ends, known, at) for at in range(200, 600)]  # from the largest snapshot on
        assert done.last.heights[seed] == pytest.approx(np.mean(single), rel=1e-12)
        reached = [end for end, mean in zip(ends, smooth, strict=True) if mean >= 3.0]
        assert done.last.reached[seed] == (reached[0] if reached else inf)
        assert done.last.final[seed] == pytest.approx(smooth[-1], rel=1e-12)
        curve = [latest(ends, smooth, at) for at in done.last.grid]
        np.testing.assert_allclose(done.last.curve[seed], curve, rtol=1e-12)
        at_steps = [latest(run.steps[seed, : len(known)], smooth, at) for at in done.last.step_grid if at > 400]
        np.testing.assert_allclose(done.last.step_curve[seed, -len(at_steps) :], at_steps, rtol=1e-12)
    assert np.isinf(done.last.reached[2])
    assert done.last.reached[0] < 600
    assert (done.last.grid[0], done.last.grid[-1], len(done.last.grid)) == (200, 600, cells.POINTS)
    assert done.stopped == 1
    assert done.mixture is None
    assert done.tables.shape == (3, 16, 4)
    np.testing.assert_allclose(done.tables.sum(2), 1.0, rtol=1e-6)


def same(one: Measurement, other: Measurement) -> None:
    for name, array in vars(one).items():
        np.testing.assert_array_equal(getattr(other, name), array, strict=True)


def test_outcomes_are_kept_in_a_file(sampled, tmp_path):
    done = sampled[1]
    assert cells.load(tmp_path, done.cell) is None
    cells.save(tmp_path, done)
    found = cells.load(tmp_path, done.cell)
    assert found is not None
    same(done.last, found.last)
    np.testing.assert_array_equal(found.tables, done.tables)
    assert (found.mixture, found.stopped, found.seconds) == (None, 1, done.seconds)
    mixed = replace(done, mixture=replace(done.last, heights=done.last.heights + 1), tables=None)
    cells.save(tmp_path, mixed)
    again = cells.load(tmp_path, done.cell)
    assert again is not None
    same(mixed.mixture, again.mixture)
    same(done.last, again.last)
    assert again.tables is None


def test_outcomes_of_other_settings_are_not_taken(sampled, tmp_path, monkeypatch):
    done = sampled[1]
    cells.save(tmp_path, done)
    cell = done.cell
    for other in (
        replace(cell, episodes=601),
        replace(cell, seeds=4),
        replace(cell, algorithm=ox.REINFORCE(batch=30, step_size=0.051)),
        replace(cell, algorithm=ox.SVRPG(30, 5, 5)),
        replace(cell, task=replace(cell.task, name="another")),
        replace(cell, name="another"),
    ):
        assert cells.load(tmp_path, other) is None
    assert cells.load(tmp_path, cell) is not None
    monkeypatch.setattr(cells, "SEED", 1)
    assert cells.load(tmp_path, cell) is None


def test_the_end_of_an_exact_cell_is_what_its_policies_are_worth():
    cell = Cell("", small(), ox.MaxEnt(batch=8, mixing=0.3, step_size=0.5), 50, 2)
    done = cells.measure(cell)
    assert done.tables is not None
    assert done.mixture is not None
    worth = [ox.exact.value(cell.task.problem, table) for table in done.tables]
    np.testing.assert_allclose(done.last.final, worth, rtol=1e-10)
    np.testing.assert_allclose(done.last.curve[:, -1], worth, rtol=1e-10)
    run = cells.train(cell.task, [cell.algorithm], 50, range(2), cells.SEED)[0]
    assert run.mixture is not None
    np.testing.assert_allclose(done.mixture.final, run.mixture[:, -1], rtol=1e-12)
    for outcome, values in ((done.last, run.values), (done.mixture, run.mixture)):
        brute = [[latest(run.episodes, line, at) for at in range(25, 50)] for line in values]
        np.testing.assert_allclose(outcome.heights, np.mean(brute, axis=1), rtol=1e-12)
    assert (done.last.final != done.mixture.final).all()


def test_a_network_is_measured_by_its_returns():
    cell = Cell("", tasks()[CARTPOLE], ox.REINFORCE(batch=20, step_size=1e-3), 100, 2)
    done = cells.measure(cell)
    run = cells.train(cell.task, [cell.algorithm], 100, range(2), cells.SEED)[0]
    returns = run.result.metrics["return"]
    np.testing.assert_allclose(done.last.final, (0.4 * returns[:, -2:].sum(1)) + 0.2 * returns[:, -3], rtol=1e-6)
    assert ((done.last.heights > 5) & (done.last.heights < 100)).all()  # a random policy lasts some twenty steps
    assert np.isinf(done.last.reached).all()
    assert (done.tables, done.mixture, done.stopped) == (None, None, 0)


# The search


TINY = SCALES["quick"]._replace(share=1.0, epochs=3)


def test_a_search_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(methods, "SNAPSHOTS", (4, 5))
    task, path = small("utility"), tmp_path / "a" / "search.csv"
    wanted = [(task, "REINFORCE", 4), (task, "REINFORCE", 5), (task, "TSIVR-PG", 4)]
    train, calls = cells.train, []

    def stop(*arguments):
        if calls:
            raise KeyboardInterrupt
        calls.append(arguments)
        return train(*arguments)

    monkeypatch.setattr(cells, "train", stop)
    monkeypatch.setattr(tuning, "FINALISTS", 2)
    monkeypatch.setattr(tuning, "CONFIRMING", range(3, 5))
    with pytest.raises(KeyboardInterrupt):
        tuning.search(wanted, path, TINY, progress=False)
    first = path.read_text()
    assert len(first.splitlines()) == 1 + 4
    monkeypatch.setattr(cells, "train", train)
    tuning.search(wanted, path, TINY, progress=False)
    assert path.read_text().startswith(first)
    trials = methods.read_search(path)
    assert [it.seeds for it in trials] == [3] * 12 + [2] * 4
    for method, again in (("REINFORCE", trials[12:14]), ("TSIVR-PG", trials[14:])):
        ranked = sorted((it for it in trials[:12] if it.method == method), key=lambda it: -it.score)
        expected = {(it.snapshot, *it.settings.values()) for it in ranked[:2]}
        assert {(it.snapshot, *it.settings.values()) for it in again} == expected
    for i, (_, method, snapshot) in enumerate(wanted):
        tried = trials[4 * i : 4 * i + 4]
        assert [it.settings for it in tried] == tuning.candidates(task, method)
        assert {(it.task, it.method, it.snapshot) for it in tried} == {("small", method, snapshot)}
    with path.open() as stream:
        sizes = [(row["N"], row["B"], row["m"]) for row in csv.DictReader(stream)]
    assert sizes[:12:4] == [("4", "", ""), ("5", "", ""), ("4", "2", "2")]

    def refuse(*_):
        raise AssertionError("everything is there already")

    monkeypatch.setattr(cells, "train", refuse)
    tuning.search(wanted, path, TINY, progress=False)
    assert methods.tuned(path, (4, 5)).keys() == {("small", "REINFORCE"), ("small", "TSIVR-PG")}


def test_the_score_of_a_trial_is_the_mean_of_its_curves(tmp_path, monkeypatch):
    monkeypatch.setattr(methods, "SNAPSHOTS", (4,))
    monkeypatch.setattr(methods, "RATE_SNAPSHOT", 5)
    task, path = small("utility", episodes=40), tmp_path / "search.csv"
    tuning.search([(task, "REINFORCE", 4), (task, "REINFORCE", 5)], path, TINY, progress=False)
    for trial in methods.read_search(path):
        algorithm = ox.REINFORCE(batch=trial.snapshot, **methods.PAPER, **trial.settings)
        episodes = {4: 20, 5: 15}[trial.snapshot]  # half of those of the task; for the rate three epochs
        seeds = range(3) if trial.seeds == tuning.SEEDS else tuning.CONFIRMING
        result = ox.train(task.problem, algorithm, episodes, seeds, 1, task.policy, progress=False)
        # what is known at 4, 8, 12 and 16 lasts until the end at 20; for the rate it is the end that counts
        curves = result.metrics["utility"][:, :4] if trial.snapshot == 4 else result.utilities
        assert trial.score == pytest.approx(curves.mean(), rel=1e-5)


def test_the_search_for_the_rate_is_a_matter_of_its_own(tmp_path):
    file = tmp_path / "search.csv"
    file.write_text(
        "task,method,N,B,m,step_size,radius,mixing,seeds,score\n"
        "lake,TSIVR-PG,25,5,5,0.1,0.2,,3,1\n"
        f"lake,TSIVR-PG,{methods.RATE_SNAPSHOT},64,64,0.3,0.8,,3,2\n"  # of another kind: the end, not the mean
    )
    assert numbers(methods.tuned(file)["lake", "TSIVR-PG"]) == (5, 25, 5, 0.1, 0.2)


# Costs and scales


def test_costs_grow_with_the_work():
    algorithm = ox.REINFORCE(batch=10)
    table, longer, network = (
        Cell("", task, algorithm, episodes, 10).cost
        for task, episodes in ((small(), 10_000), (small(), 100_000), (tasks()[CARTPOLE], 10_000))
    )
    assert table < longer < network


def test_scales_have_enough_episodes_and_names_for_files():
    found = SCALES["quick"].cell("tuned", tasks()[COVERAGE], "TSIVR-PG (B = 4 m)", ox.TSIVRPG(100, 20, 5))
    assert found.name == "frozenlake8x8-log-coverage-tuned-tsivr-pg-b-4-m"
    assert (found.episodes, found.seeds) == (5000, 5)
    few = replace(tasks()[CARTPOLE], episodes=1000)
    assert SCALES["quick"].cell("", few, "", ox.REINFORCE(batch=200)).episodes == 800
    assert SCALES["full"].cell("", few, "", ox.REINFORCE(batch=200)).seeds == 50


def test_the_report_shows_the_settings_that_were_run():
    shown_settings = {(row[0], row[1]): row[2] for row in reproduction._search(methods.SEARCH, TASKS).rows}
    for (task, method), algorithm in methods.tuned().items():
        snapshot = getattr(algorithm, "snapshot_batch", algorithm.batch)
        assert shown_settings[task, method].startswith(f"N {snapshot}, step size {algorithm.step_size:g}")


@pytest.mark.parametrize(
    ("end", "rise", "solved"),
    [(1.5, 0.0, True), (0.5, 0.0, False), (0.5, -0.1, False), (0.5, 0.1, None), (1.0, 0.0, None)],
)
def test_below_the_threshold_a_rising_curve_cannot_tell(end, rise, solved):
    noise = np.array([-0.02, 0.01, 0.02, -0.01, 0.0])
    curve = np.linspace(-rise, rise, 100) + noise[:, None] + np.zeros((5, 100))
    nothing = np.zeros(100)
    outcome = Measurement(nothing, curve, nothing, curve, noise, noise, end + noise)
    assert reward._solved(outcome, 1.0) is solved
