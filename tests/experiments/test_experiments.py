"""The paper's experiments against brute force, the paper's tables and hand-worked values."""

from dataclasses import replace
from math import inf
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import occupax as ox
from occupax.analysis.statistics import Interval
from occupax.experiments import (
    ablations,
    cells,
    convergence,
    episodes_to_gap,
    inference,
    methods,
    rate,
    readings,
    reward,
    tuning,
)
from occupax.experiments.cells import ExperimentCell, ExperimentResult
from occupax.experiments.evaluators import EpisodeEvaluator
from occupax.experiments.inference import (
    difference,
    is_above,
    is_later,
    is_within,
    mean,
    median,
    power_law,
)
from occupax.experiments.maxent import MaxEntReading
from occupax.experiments.scale import SCALES
from occupax.experiments.sections import parts, shown, verdict
from occupax.experiments.small import GARNET, exact_ascent, small_problems
from occupax.experiments.tasks import COVERAGE, LAKE, Task, tasks
from occupax.jobs import JobResult
from occupax.training.setup import make_setup

SIGMA = 0.125
PROBLEM = ox.Problem(ox.make("FrozenLake-v1"), ox.utilities.LogCoverage(SIGMA), 0.9, 12)
SIZES = (4, 2, 2)  # the same in all tests, which then share a program


def small(**settings) -> Task:
    """Log coverage of a lake of 16 cells."""
    given = {"episodes": 60, "seeds": 2, "snapshots": (4, 5), "step_sizes": (1e-2, 1.0)} | settings
    return Task("small", PROBLEM, **given)


# Settings

PRINTED = {  # B, N, m, eta, delta, read off the appendix once more
    "CartPole-v0": [
        (5, 25, 5, 5e-3, 1e-2),
        (25, 5e-3),
        (8, 25, 3, 5e-3),
        (5, 25, 5, 5e-3),
        (5, 25, 5, 8e-3),
    ],
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
    columns = (
        algorithm.batch,
        algorithm.snapshot_batch,
        algorithm.epoch_length,
        algorithm.step_size,
    )
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
    assert {(it.baseline, it.rule) for it in found.values()} == {
        ("none", "gradient")
    }  # nobody has more than is printed


def test_the_sizes_of_epochs_follow_from_the_snapshot():
    for name, expected in (
        ("TSIVR-PG", [(3, 3), (5, 5), (7, 7), (10, 10), (14, 14)]),
        ("SVRPG", [(5, 2), (9, 3), (14, 4), (22, 5), (34, 6)]),
        ("TSIVR-PG (B = 4 m)", [(6, 2), (10, 2), (14, 4), (20, 5), (28, 7)]),
    ):
        for snapshot, sizes in zip((10, 25, 50, 100, 200), expected, strict=True):
            made = methods.make(name, snapshot, step_size=0.25)
            assert (made.snapshot_batch, made.batch, made.epoch_length) == (snapshot, *sizes)
    with pytest.raises(
        ValueError, match=r"method 'TSIVR' is not known\. Did you mean 'TSIVR-PG'\?"
    ):
        methods.make("TSIVR", 10)


def test_printed_settings_have_the_budgets_they_need():
    budgets = reward.BUDGETS[LAKE]
    assert budgets["TSIVR-PG"] == budgets["SRVR-PG"] == budgets["HSPGA"] == 2_000_000
    assert (budgets["SVRPG"], budgets["REINFORCE"]) == (3_000_000, 10_000_000)


# Evaluators


def log_coverage(occupancy) -> float:
    return float(np.log(occupancy.sum(1) + SIGMA).sum())


@pytest.mark.parametrize("own", [False, True])
def test_the_curves_of_maxent_are_those_of_its_policies_and_mixtures(own):
    task, algorithm = (
        small(),
        MaxEntReading(batch=8, mixing=0.3, own_density=own, fading=own, step_size=0.5),
    )
    it = cells.train_and_evaluate(task, [algorithm], 50, range(2), 3, records=1)[
        0
    ]  # mixtures have a record for every iteration
    seen = [make_setup(task.problem, [algorithm], task.policy, 2, 3, 1, exact=False).policies]
    keep = [lambda at: seen.append(at.policies)]
    ox.train(task.problem, algorithm, 50, 2, 3, task.policy, keep, progress=False)
    np.testing.assert_array_equal(it.episodes, [0, 8, 16, 24, 32, 40, 48])
    for seed in range(2):
        tables = [np.exp(np.asarray(policies[seed].table, float)) for policies in seen]
        visits = [ox.exact.occupancy(task.problem, t / t.sum(1, keepdims=True)) for t in tables]
        np.testing.assert_allclose(
            it.values[seed], [log_coverage(visit) for visit in visits], rtol=1e-10
        )
        mixtures = [visits[0]]
        for k in range(
            6
        ):  # the policies 0 to k have been sampled; with a density of its own, every second time
            if own:
                share = 1 / (k // 2 + 1) if k % 2 == 0 else 0.0
                assert (tables[k] == tables[k + 1]).all() == (
                    k % 2 == 0
                )  # the episodes of a density move nothing
            else:
                share = 0.3 if k else 1.0
            mixtures.append((1 - share) * mixtures[-1] + share * visits[k])
        np.testing.assert_allclose(
            it.mixture[seed], [log_coverage(mixed) for mixed in mixtures], rtol=1e-10
        )


def test_the_quasi_reward_of_a_distribution_is_taken_at_it():
    plain, normalised = (
        MaxEntReading(batch=8, mixing=1.0, step_size=0.5, normalised=flag) for flag in (False, True)
    )
    first = [ox.train(PROBLEM, it, 8, 1, progress=False).policy() for it in (plain, normalised)]
    assert np.abs(first[0].table - first[1].table).max() > 1e-4
    usual = ox.train(
        PROBLEM, ox.MaxEnt(batch=8, mixing=1.0, step_size=0.5), 8, 1, progress=False
    ).policy()
    np.testing.assert_array_equal(first[0].table, usual.table)


def test_networks_are_evaluated_by_episodes_of_their_own():
    problem = tasks()["CartPole-v0"].problem
    first = make_setup(
        problem, [ox.REINFORCE()], tasks()["CartPole-v0"].policy, 1, 0, 1, exact=False
    ).policies[0]
    lost = jax.tree.map(lambda leaf: leaf * np.nan if eqx.is_inexact_array(leaf) else leaf, first)
    evaluator = EpisodeEvaluator(problem, 0)
    evaluator.record([first] * 6 + [lost])  # more than are evaluated at once
    evaluator.record([first] * 7)
    values = evaluator.values()
    assert values.shape == (7, 2)
    assert np.isnan(values).tolist() == [[False, False]] * 6 + [[True, False]]
    known = values[~np.isnan(values)]
    assert ((known > 15) & (known < 35)).all()  # a random policy lasts some twenty steps
    assert len(set(known)) > 6  # every run and record has episodes of its own
    assert evaluator.tables().shape == (7, 0, 0)


def outcome(values, episodes=None) -> ExperimentResult:
    values = np.asarray(values, float)
    at = np.arange(values.shape[1]) * 10 if episodes is None else np.asarray(episodes)
    return ExperimentResult(
        at,
        np.tile(at, (len(values), 1)),
        values,
        values,
        np.zeros((len(values), 0, 0)),
        np.asarray(0),
    )


def test_a_threshold_must_be_kept():
    it = outcome(
        [[0, 5, 0, 4, 6, 5], [0, 0, 9, 0, 0, 5], [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 5, np.nan]]
    )
    np.testing.assert_array_equal(it.episodes_to(4.0, exact=True), [30, inf, inf, inf])
    np.testing.assert_array_equal(
        it.episodes_to(4.0, exact=False), [30, 10, inf, inf]
    )  # of sampled ones the mean counts


def test_areas_are_means_over_episodes():
    it = outcome([[0.0, 2.0, 4.0, np.nan]], [0, 10, 30, 40])
    assert it.area()[0] == pytest.approx((0 * 10 + 2 * 20 + 4 * 10) / 40)
    assert it.area(20)[0] == pytest.approx((0 * 10 + 2 * 10) / 20)
    assert it.final[0] == 4.0  # where a seed was stopped it stays
    assert outcome([np.arange(8.0)]).late_rise()[0] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("end", "rise", "solved"),
    [(1.5, 0.0, True), (0.5, 0.0, False), (0.5, -0.1, False), (0.5, 0.1, None), (1.0, 0.0, None)],
)
def test_below_the_threshold_a_rising_curve_cannot_tell(end, rise, solved):
    noise = np.array([-0.02, 0.01, 0.02, -0.01, 0.0])
    curve = (
        end
        + np.linspace(-rise, 0, 100)
        + noise[:, None]
        + 0.001 * np.sin(np.arange(5)[:, None] * np.arange(100))
    )
    assert reward.is_solved(outcome(curve), 1.0, 1) is solved


# Intervals and tests


def test_intervals_are_those_of_student_and_welch():
    random = np.random.default_rng(0)
    one, other = random.normal(1.0, 1.0, 8), random.normal(0.0, 3.0, 12)
    found, expected = mean(one), stats.ttest_1samp(one, 0.0).confidence_interval(0.95)
    np.testing.assert_allclose(
        np.array(found), np.array([one.mean(), *np.array(expected)]), rtol=1e-10
    )
    found, expected = (
        difference(one, other),
        stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95),
    )
    np.testing.assert_allclose(np.array(found[1:]), np.array(expected), rtol=1e-10)
    found, expected = difference(one, other, 10), stats.ttest_ind(one, other, equal_var=False)
    np.testing.assert_allclose(
        found[1:], expected.confidence_interval(0.995), rtol=1e-10
    )  # all ten hold with 95%
    np.testing.assert_allclose(np.array(mean(np.append(one, np.nan))), np.array(mean(one)))


def test_medians_of_times_enclose_the_median_of_any_law():
    assert median(np.array([100.0, inf, 300.0])).estimate == 300.0
    assert shown(median(np.full(5, inf))) == "never"
    draws = np.random.default_rng(1).exponential(size=(2000, 10))
    inside = np.mean([found.lower <= np.log(2) <= found.upper for found in map(median, draws)])
    assert 0.95 <= inside <= 0.99


def test_later_needs_no_finite_times():
    fast, slow, never = np.arange(10.0), 100 + np.arange(10.0), np.full(10, inf)
    assert is_later(slow, fast, 12) is True
    assert is_later(fast, never, 12) is False
    assert is_later(never, never) is None
    assert is_later(fast, fast + 0.5, 12) is None


def test_power_laws_are_fitted_with_the_spread_of_the_seeds():
    episodes, random = [100, 400, 1600, 6400, 25600], np.random.default_rng(0)
    gaps = [3.0 * count**-0.5 * random.lognormal(0, 0.1, 200) for count in episodes]
    law = power_law(episodes, gaps)
    assert law.slope.lower < -0.5 < law.slope.upper
    assert law.curvature.lower < 0 < law.curvature.upper
    assert is_within(law.slope, -0.5, 0.1) is True
    slopes = [
        power_law(episodes, [np.array(random.choice(gap, 200)) for gap in gaps]).slope.estimate
        for _ in range(200)
    ]
    width = float(law.slope.upper - law.slope.lower)
    assert width == pytest.approx(2 * 1.96 * np.std(slopes), rel=0.2)  # as the bootstrap has it
    bent = power_law(
        episodes,
        [
            gap * np.exp(0.1 * np.log(count / 1600) ** 2)
            for gap, count in zip(gaps, episodes, strict=True)
        ],
    )
    assert bent.curvature.lower > 0.08


def interval(estimate, lower, upper):
    return Interval(*(np.asarray(bound, float) for bound in (estimate, lower, upper)))


def test_a_slope_is_the_same_different_or_open():
    for bounds, expected in (
        ((-0.5, -0.55, -0.45), True),
        ((-0.5, -0.65, -0.4), None),
        ((-0.8, -0.9, -0.7), False),
    ):
        assert is_within(interval(*bounds), -0.5, 0.1) is expected


def test_a_number_is_above_a_bound_if_its_whole_interval_is():
    for bounds, bound, expected in (
        ((0.5, 0.1, 0.9), 0.0, True),
        ((0.5, -0.1, 0.9), 0.0, None),
        ((-0.5, -0.9, -0.1), 0.0, False),
        ((0.5, 0.1, 0.9), 1.0, False),
        ((np.nan, np.nan, np.nan), 0.0, None),
    ):
        assert is_above(interval(*bounds), bound) is expected


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        ([True], "reproduced"),
        ([True, None], "partly"),
        ([False, True, None], "partly"),
        ([False, None], "not reproduced"),
        ([None, None], "cannot tell"),
        ([], "cannot tell"),
    ],
)
def test_verdicts(tests, expected):
    assert verdict(iter(tests)) == expected


def test_the_parts_that_hold_are_named():
    assert (
        parts({"a": True, "b": False, "c": None, "d": True})
        == " Holds: a, d. Refuted: b. Cannot tell: c."
    )
    assert parts({"a": True, "b": True}) == ""
    assert shown(interval(1500.0, 1200.0, inf)) == "1,500 [1,200, never]"


# The search


def test_a_search_tries_as_many_settings_for_every_method(monkeypatch):
    peak = {"TSIVR-PG": (5, 10.0, 0.1), "REINFORCE": (4, 10**1.5, 0.0)}

    def scored(
        task, algorithms: list[Any], episodes, seeds, seed, records, logger, mixtures
    ) -> list[ExperimentResult]:
        assert seed == tuning.SEED
        found = []
        for it in algorithms:
            best = peak["TSIVR-PG" if hasattr(it, "snapshot_batch") else "REINFORCE"]
            size = getattr(it, "snapshot_batch", it.batch)
            off = abs(np.log10(it.step_size / best[1])) + (
                abs(np.log10(it.radius / best[2])) if best[2] else 0.0
            )
            found.append(outcome([[0.0, -off - abs(size - best[0])]] * len(seeds)))
        return found

    monkeypatch.setattr(cells, "train_and_evaluate", scored)
    for method in peak:
        search = tuning.HyperparameterSearch(small(), method, 60)
        trials = tuning.read_trials(tuning.pack_trials(search.trials()))
        best = tuning.winner(trials, "end")
        assert search.is_enclosed(best, trials)
        assert best.point.snapshot == peak[method][0]
        assert best.point.step_size == pytest.approx(
            peak[method][1], rel=1e-4
        )  # beyond the range it began with
        assert search.algorithm(best.point).step_size == best.point.step_size
        more = len(trials) - 5 * (
            2 + len(tuning.SCORES)
        )  # as many for all, and rounds that leave an edge
        assert more % 5 == 0
        assert 0 <= more <= 5 * tuning.MAX_EXTENSIONS


def test_a_search_without_end_stops_and_what_is_confirmed_has_neighbours(monkeypatch):
    def scored(task, algorithms: list[Any], episodes, seeds, *_, **__) -> list[ExperimentResult]:
        return [
            outcome([[0.0, it.step_size]] * len(seeds)) for it in algorithms
        ]  # ever larger is ever better

    monkeypatch.setattr(cells, "train_and_evaluate", scored)
    given = methods.make("REINFORCE", 4, step_size=0.123)
    search = tuning.HyperparameterSearch(small(), "REINFORCE", 60, given)
    trials = search.trials()
    assert len(trials) == 5 * (2 + 2 + tuning.MAX_EXTENSIONS)
    assert search.is_enclosed(tuning.winner(trials, "end"), trials)
    assert not search.is_enclosed(tuning.best(trials, "end")[0], trials)
    confirmed = [it.point.step_size for it in trials if np.isfinite(it.confirmed_end)]
    assert 0.123 in confirmed  # the printed setting is tried again, whatever its score


def test_the_printed_setting_is_among_the_candidates_and_step_sizes_are_shared():
    given = methods.make("TSIVR-PG", 4, (2, 2), step_size=0.123, radius=0.045)
    ours = tuning.HyperparameterSearch(small(), "TSIVR-PG", 60, given)
    assert (0.123, 0.045) in {(point.step_size, point.second) for point in ours.first_points(4)}
    plain = tuning.HyperparameterSearch(small(), "REINFORCE", 60)
    assert [it.step_size for it in ours.first_points(5)] == [
        it.step_size for it in plain.first_points(5)
    ]
    assert (
        ours.algorithm(ours.first_points(4)[0]).batch,
        ours.algorithm(ours.first_points(5)[0]).batch,
    ) == (
        2,
        2,
    )
    assert tuning.SEED != cells.SEED  # the search and what is shown share no random number


# Rates


def test_ascent_along_the_exact_gradient_is_that():
    problem, table = small_problems()[GARNET].problem, np.random.default_rng(0).normal(size=(5, 3))
    found = exact_ascent(problem, table, 0.5, 0.1, (1, 3))
    for count, value in zip((1, 2), found, strict=True):
        for _ in range(count):
            slope = np.asarray(
                ox.exact.gradient(problem, ox.policies.Tabular(jnp.asarray(table))).table
            )
            table = table + min(0.5, 0.1 / np.linalg.norm(slope)) * slope
        probs = np.exp(table) / np.exp(table).sum(1, keepdims=True)
        assert value == pytest.approx(ox.exact.value(problem, probs), abs=1e-6)


def test_small_problems_have_their_optimum_inside():
    it = small_problems()[GARNET]
    bound = ox.solve(it.problem).value
    assert it.optimum <= bound + 1e-9
    assert it.optimum == pytest.approx(bound, abs=1e-3)
    assert it.min_probability > 0.01


def test_the_gaps_of_the_optimal_policy_of_the_lake():
    endless, steps = (
        ox.Problem(ox.make("FrozenLake8x8-v1"), None, 0.99, horizon) for horizon in (None, 200)
    )
    best, bounded = ox.exact.value_iteration(endless), ox.exact.value_iteration(steps)
    mixed, infinite, horizon = (
        measure.optimum
        - measure.evaluator.utilities(measure.evaluator.occupancies(best.policy[None]))[0]
        for measure in rate.gap_measures(LAKE)
    )
    assert infinite == pytest.approx(0, abs=1e-9)
    assert 1e-4 < horizon < 3e-4  # the best one for 200 steps hurries in the end
    assert mixed - horizon == pytest.approx(best.value - bounded.value, abs=1e-9)
    assert best.value == pytest.approx(0.4146, abs=5e-5)


def test_reinforce_has_as_many_episodes_and_steps():
    scale = SCALES["full"]._replace(roots=(4, 16, 64))
    found = convergence.make_cells(
        scale, dict.fromkeys(small_problems(), JobResult({"gaps": np.arange(5.0)}))
    )
    for run, cell in found.items():
        if run.method == "REINFORCE":
            ours = found[run._replace(method="TSIVR-PG")]
            assert (
                ours.episodes == cell.episodes == convergence.EPOCHS * (2 * run.root**2 - run.root)
            )
            assert cell.episodes // cell.algorithm.batch == convergence.EPOCHS * run.root
            assert cell.algorithm.step_size == ours.algorithm.step_size
            assert ours.algorithm.radius == inf


def test_the_envelope_has_the_best_setting_for_each_gap():
    times = np.full((2, 12, len(episodes_to_gap.FRACTIONS), 5), inf)
    times[0, 2] = 500.0
    times[1, 10, 3:] = 200.0
    found = episodes_to_gap.envelope(LAKE, "TSIVR-PG", times)
    np.testing.assert_array_equal(found.medians, [500] * 3 + [200] * 5)
    sizes = episodes_to_gap.map_problems()[LAKE].step_sizes
    assert found.settings[0] == f"N 32, eta {sizes[2]:g}"
    assert found.settings[-1] == f"N 512, eta {sizes[4]:g}, delta 0.1"
    np.testing.assert_array_equal(found.times[-1], np.full(5, 200.0))


# Readings and ablations


def test_readings_change_one_thing_each():
    found = readings.make_cells(SCALES["full"])
    given = methods.printed()
    for (task, reading, method), cell in found.items():
        if reading == "control":
            continue
        base, it = given[task, method], cell.algorithm
        changed = {name for name in vars(base) if getattr(base, name) != getattr(it, name)}
        same_step = base.step_size == given[task, "TSIVR-PG"].step_size
        expected = {"mean baseline": {"baseline"}, "Adam": {"rule"}, readings.SUMS: {"step_size"}}
        expected[readings.EQUAL] = set() if same_step else {"step_size"}
        assert changed == expected.get(reading, set())
    dry = readings.task_of(LAKE, readings.STATIC).problem.env
    assert set(np.asarray(dry.probabilities).ravel()) <= {0.0, 1.0}
    np.testing.assert_array_equal(dry.terminal, tasks()[LAKE].problem.env.terminal)


def tables(algorithm, problem):
    """Return the policies of two seeds after each iteration."""
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
    bare = ablations.unguarded(replace(task, fixed_threshold=0.0))
    estimate = jnp.asarray([-0.05, 0.0, 0.3] + [1.0] * 13)
    guarded = [8.0, 8.0, 1 / 0.425] + [1 / 1.125] * 13
    np.testing.assert_allclose(task.problem.quasi_reward(estimate), guarded, rtol=1e-6)
    np.testing.assert_allclose(
        bare.problem.quasi_reward(estimate), [1 / 0.075, *guarded[1:]], rtol=1e-6
    )
    assert (bare.problem.discount, bare.problem.horizon) == (0.9, 12)


def test_a_run_is_described_by_all_that_it_depends_on():
    cell = ExperimentCell("a", small(), ox.REINFORCE(batch=30), 600, 3)
    others = (
        replace(cell, episodes=601),
        replace(cell, seeds=4),
        replace(cell, algorithm=ox.REINFORCE(batch=30, step_size=0.051)),
        replace(
            cell,
            task=replace(cell.task, problem=ox.Problem(PROBLEM.env, PROBLEM.utility, 0.91, 12)),
        ),
        replace(cell, records=7),
    )
    assert all(it.job.description != cell.job.description for it in others)
    assert inference.LEVEL == 0.95
