"""Algorithms written outside of the package, held against the same recursions by hand, in NumPy."""

import math
import os
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path
from signal import SIGKILL

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import ray

import occupax as ox
from occupax.batches import caching
from occupax.samplers import Source
from occupax.training.execution import iteration as engine
from occupax.training.schedule import BLOCK, Schedule
from own_algorithms import Between, Coin, Storm, Turns, Twice
from recursions import ETA, PHASES, PROBLEM, SEEDS, START, by_hand, coins, records
from simulators import Diary

PLAIN = {"rule": "gradient", "baseline": "none", "output": "last"}
"""What is calculated by hand: ascent along the estimate itself."""
ALGORITHMS = {
    kind.__name__.lower(): kind(step_size=ETA, **PLAIN)
    for kind in (Storm, Coin, Between, Twice, Turns)
}
FOUR = ["storm", "coin", "between", "twice"]
BUDGETS = {"storm": 28, "coin": 28, "between": 28, "twice": 28, "turns": 68}


class Shared(ox.samplers.Sampler):
    """A sampler whose source is opened once, for many trainings: workers take seconds to start."""

    def __init__(self, sampler):
        self._sampler, self._source = sampler, None

    def open(self, problem, policy):
        self._source = self._source or self._sampler.open(problem, policy)
        return Lent(problem, self._source)

    def random_numbers(self, problem, policy):
        return self._sampler.random_numbers(problem, policy)

    def close(self):
        if self._source is not None:
            self._source.close()


class Lent(Source):
    """A source that stays open when training ends."""

    problem: ox.Problem
    source: Source

    @property
    def runs_at_once(self):
        return self.source.runs_at_once

    def draw(self, policy, n, key):
        return self.source.draw(policy, n, key)


SAMPLERS = {
    "kernel": "kernel",
    "jax": "jax",
    "host": ox.samplers.Host(),
    "shards": ox.samplers.Host(shards=3),
    "ray": Shared(ox.samplers.Ray(workers=1, shards=3)),
}


@pytest.fixture(scope="module")
def cluster(compiled_fast):
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        for name, value in compiled_fast.items():  # as in this process: it changes the last bits
            patch.setenv(name, value)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
        yield
        SAMPLERS["ray"].close()
        ray.shutdown()


def run(algorithm, episodes, sampler="kernel", **options):
    settings = {"policy": START, "sampler": sampler, "progress": False, **options}
    return ox.train(PROBLEM, algorithm, episodes, SEEDS, **settings)


@cache
def trained(name, sampler):
    return run(ALGORITHMS[name], BUDGETS[name], SAMPLERS[sampler])


def arrays(result):
    """Everything that was recorded, and all parameters."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(result.policies) if eqx.is_array(leaf)]
    numbers = {"episodes": result.episodes, "steps": result.steps, **result.metrics}
    return numbers | {f"parameters {i}": leaf for i, leaf in enumerate(leaves)}


def assert_close(one, other):
    assert one.status == other.status == ("finished",) * SEEDS
    for name, values in arrays(one).items():
        np.testing.assert_allclose(values, arrays(other)[name], rtol=1e-4, atol=2e-5, err_msg=name)


def assert_same_bits(one, other):
    assert one.status == other.status == ("finished",) * SEEDS
    for name, values in arrays(one).items():
        assert values.tobytes() == arrays(other)[name].tobytes(), name


def assert_as_by_hand(result, name, sampler):
    for number in range(SEEDS):
        history = by_hand(name, sampler, number)
        expected = records(history)
        np.testing.assert_array_equal(result.episodes, expected.pop("episodes"))
        np.testing.assert_array_equal(result.steps[number], expected.pop("steps"))
        for metric, values in expected.items():
            np.testing.assert_allclose(
                result.metrics[metric][number], values, rtol=1e-3, atol=1e-4, err_msg=metric
            )
        np.testing.assert_allclose(
            result.policies[number].table, history[-1].after, rtol=1e-4, atol=1e-5
        )
        assert np.abs(history[-1].after - history[0].before).max() > 0.05  # it did move


@pytest.mark.parametrize("sampler", ["kernel", "jax"])
@pytest.mark.parametrize("name", FOUR)
def test_training_and_records_are_those_by_hand(name, sampler):
    result = trained(name, sampler)
    assert_as_by_hand(result, name, sampler)
    first = 0 if name == "twice" else 1
    assert (
        result.metrics["largest_weight"][:, first:].max(1) > 1.01
    ).all()  # it does put weights on policies
    assert np.abs(result.metrics["utility"] - result.metrics["running_utility"]).max() > 1e-3


def test_three_phases_draw_what_is_recorded_of_them():
    result = trained("turns", "kernel")
    assert_as_by_hand(result, "turns", "kernel")
    np.testing.assert_array_equal(result.episodes, [10, 14, 34, 44, 48, 68])
    assert result.episodes[-1] == sum(
        len(done.drawn.episodes) for done in by_hand("turns", "kernel", 0)
    )
    np.testing.assert_array_equal(result.metrics["drawn"], [[10, 14, 34, 44, 48, 68]] * SEEDS)
    np.testing.assert_array_equal(result.metrics["drawn_last"], [[0, 0, 20, 20, 20, 40]] * SEEDS)


def test_the_coin_falls_on_both_sides():
    assert set(PHASES["coin"][1:]) == {0, 1}


# Everywhere


@pytest.mark.parametrize("name", ALGORITHMS)
def test_training_outside_of_the_program_is_that_inside(name):
    assert_close(trained(name, "host"), trained(name, "kernel"))


@pytest.mark.parametrize("name", FOUR)
def test_shards_add_up(name):
    assert_close(trained(name, "shards"), trained(name, "host"))


@pytest.mark.parametrize("name", FOUR)
def test_a_cluster_gives_the_same_bits(name, cluster):
    assert_same_bits(trained(name, "ray"), trained(name, "shards"))


def test_a_network_is_trained_in_a_simulator():
    problem = ox.Problem(
        ox.GymnasiumEnv(Diary),
        lambda u: -jnp.sum((u / 1e4 - 3.0) ** 2),
        horizon=4,
        features=ox.features.Reward(),
    )
    algorithm, policy = (
        Between(first_batch=4, batch=4, step_size=ETA, **PLAIN),
        ox.policies.mlp(hidden=(4,), normalise=False),
    )

    def by(sampler):
        return ox.train(
            problem, algorithm, 12, SEEDS, policy=policy, sampler=SAMPLERS[sampler], progress=False
        )

    whole = by("host")
    assert_close(by("shards"), whole)
    assert whole.metrics["grad_norm"].min() > 0
    assert (
        np.abs(whole.metrics["effective_sample_size"][:, 1:] - 4).max() > 1e-6
    )  # others than the one that acted


# Budgets


def test_a_method_that_never_begins_again_costs_the_same_in_every_iteration():
    algorithm = Storm(step_size=ETA, **PLAIN)
    schedule = Schedule(algorithm)
    for iterations in (1, 2, BLOCK, BLOCK + 1, 5 * BLOCK + 7):
        assert schedule.episodes(iterations) == 6 + 4 * (iterations - 1)
        assert schedule.iterations(6 + 4 * (iterations - 1)) == iterations
        assert schedule.iterations(6 + 4 * iterations - 1) == iterations
    policy = START(PROBLEM.env, jax.random.key(0))
    state = algorithm.init(PROBLEM, policy)
    batch = ox.SampledBatch(PROBLEM, ox.sample(PROBLEM, policy, 4, jax.random.key(0)), policy)
    later = algorithm.phases[1].update(algorithm.phases[1].update(state, batch, None), batch, None)
    shapes = [[leaf.shape for leaf in jax.tree.leaves(it)] for it in (state, later)]
    assert shapes[0] == shapes[1]


def test_the_budget_of_a_coin_is_known_beforehand_and_kept():
    schedule = Schedule(ALGORITHMS["coin"])
    sizes = np.array([6, 4])[coins(2, 40)]
    for iterations in range(1, 41):
        assert schedule.episodes(iterations) == sizes[:iterations].sum()
        assert schedule.iterations(int(sizes[:iterations].sum())) == iterations
    large = [schedule.phases(first, BLOCK) == 0 for first in (0, BLOCK)]
    assert abs(np.mean(large) - 0.4) < 4 * math.sqrt(0.4 * 0.6 / (2 * BLOCK))


@pytest.mark.parametrize("wrong", [2, -1])
def test_a_phase_that_is_none_is_refused(wrong):
    class Lost(Storm):
        def phase(self, iteration):
            return wrong

    with pytest.raises(
        ValueError, match=f"phase of Lost must return an integer from 0 to 1, .*got {wrong}"
    ):
        run(Lost(), 28)


def test_a_metric_under_a_name_that_is_taken_is_refused():
    class Loud(Turns):
        def metrics(self, state):
            return {"utility": state.drawn.sum()}

    with pytest.raises(
        ValueError, match="metrics of Loud must not use the name 'utility', which is reserved"
    ):
        run(Loud(), 28)


def test_a_metric_that_is_no_number_is_refused():
    class Long(Turns):
        def metrics(self, state):
            return {"drawn": state.drawn}

    with pytest.raises(
        ValueError, match=r"metric 'drawn' must be a scalar, got an array of shape \(3,\)"
    ):
        run(Long(), 28, ox.samplers.Host())


# What must not go unnoticed


class Swapped(Storm):
    """The two policies of the recursion change places."""

    def _estimates(self, state, batch, now, then):
        return super()._estimates(state, batch, then, now)


class OneReward(Storm):
    """The newer quasi-reward for both policies."""

    def _estimates(self, state, batch, now, then):
        both = eqx.tree_at(lambda it: it.previous_quasi_reward, state, state.quasi_reward)
        return super()._estimates(both, batch, now, then)


class NextToss(Coin):
    """The toss of the next iteration."""

    def phases_of(self, first, count):
        return super().phases_of(first + 1, count)


@pytest.mark.parametrize(
    ("kind", "name"), [(Swapped, "storm"), (OneReward, "storm"), (NextToss, "coin")]
)
def test_a_wrong_algorithm_is_noticed(kind, name):
    assert_as_by_hand(trained(name, "host"), name, "kernel")
    wrong = run(kind(step_size=ETA, **PLAIN), BUDGETS[name], SAMPLERS["host"])
    with pytest.raises(AssertionError):
        assert_as_by_hand(wrong, name, "kernel")


def forget(patch):
    """The policies that were asked about are not remembered."""
    patch.setattr(caching.CachingBatch, "targets", [])


def act_with_another_key(patch):
    patch.setattr(engine, "BEHAVIOUR_STREAM", engine.UPDATE_STREAM)


def shift_phases(patch):
    phases = Schedule.phases
    patch.setattr(Schedule, "phases", lambda self, first, count: phases(self, first + 1, count))


@pytest.mark.parametrize("mutate", [forget, act_with_another_key, shift_phases])
def test_a_wrong_engine_is_noticed(mutate, monkeypatch):
    assert_as_by_hand(trained("between", "host"), "between", "kernel")
    mutate(monkeypatch)
    wrong = run(ALGORITHMS["between"], BUDGETS["between"], SAMPLERS["host"])
    with pytest.raises(AssertionError):
        assert_as_by_hand(wrong, "between", "kernel")


# Sweeps


def sweep(name, over, sampler="kernel"):
    options = {"policy": START, "sampler": sampler, "progress": False}
    return ox.sweep(PROBLEM, ALGORITHMS[name], over, BUDGETS[name], SEEDS, **options)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_step_sizes_in_one_program_are_trainings(name):
    done = sweep(name, {"step_size": [0.1, ETA]})
    assert_same_bits(
        done.results[0], run(type(ALGORITHMS[name])(step_size=0.1, **PLAIN), BUDGETS[name])
    )
    assert_same_bits(done.results[1], trained(name, "kernel"))
    assert not np.array_equal(*(result.policies[0].table for result in done.results))


def test_sizes_are_swept_over_even_where_they_are_plain_numbers():
    done = sweep("twice", {"batch": [6, 5]})
    assert_same_bits(done.results[0], trained("twice", "kernel"))
    assert_same_bits(done.results[1], run(Twice(batch=5, step_size=ETA, **PLAIN), BUDGETS["twice"]))
    np.testing.assert_array_equal(done.results[1].episodes, [5, 10, 15, 20, 25])


def test_coins_that_fall_in_another_way_are_other_programs():
    done = sweep("coin", {"coin": [2, 3]}, SAMPLERS["host"])
    for coin, result in zip((2, 3), done.results, strict=True):
        drawn = np.cumsum(np.array([6, 4])[coins(coin, 10)])
        np.testing.assert_array_equal(result.episodes, drawn[drawn <= BUDGETS["coin"]])
    assert coins(2, 5) != coins(3, 5)
    assert_same_bits(done.results[0], trained("coin", "host"))


# Folders

CHILD = """
import os, signal, sys, threading
from pathlib import Path
import enumeration, occupax as ox
from own_algorithms import Coin, Storm

problem = enumeration.tiny(11, (2,)).problem("episodic", utility=ox.utilities.LogCoverage(0.1))
both = threading.Barrier(2)

def die(progress):
    if progress.episodes >= 14:  # after some checkpoints, before the end
        both.wait()
        os.kill(os.getpid(), signal.SIGKILL)

def train(kind):
    out, start = Path(sys.argv[1]) / kind.__name__, ox.policies.tabular(0.5)
    options = {"progress": False, "checkpoint_every": 0.0, "callbacks": [die]}
    algorithm = kind(step_size=0.3, rule="gradient", baseline="none", output="last")
    ox.train(problem, algorithm, 28, 2, policy=start, out=out, sampler="kernel", **options)

threads = [threading.Thread(target=train, args=(kind,)) for kind in (Storm, Coin)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory, compiled_fast):
    """The folders of two runs whose process was killed in the middle of both."""
    folder = tmp_path_factory.mktemp("killed")
    path = os.pathsep.join([str(Path(__file__).parents[1] / "helpers"), *sys.path])
    env = compiled_fast | {
        "PYTHONPATH": path
    }  # compiled as in this process: it changes the last bits
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder)],
        env=env,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert child.returncode == -SIGKILL, child.stderr.decode()
    return folder


@pytest.mark.parametrize("kind", [Storm, Coin])
def test_a_run_that_was_killed_goes_on_to_the_same_bits(killed, kind):
    name = kind.__name__.lower()
    folder, algorithm = killed / kind.__name__, ALGORITHMS[name]
    reached = max(file.stem for file in (folder / "checkpoint").iterdir())
    assert "iteration-000000000000" < reached < f"iteration-{len(PHASES[name]):012d}"
    with pytest.raises(ValueError, match="holds a run that is not finished: resume it first"):
        ox.load_result(folder)
    with pytest.raises(ValueError, match="differs in algorithm"):
        run(kind(step_size=0.2), BUDGETS[name], out=folder, resume=True)
    resumed = run(algorithm, BUDGETS[name], out=folder, resume=True)
    assert_same_bits(resumed, trained(name, "kernel"))
    loaded = ox.load_result(folder, algorithm=kind)
    assert_same_bits(loaded, resumed)
    assert type(loaded.algorithm) is kind
    assert eqx.tree_equal(loaded.algorithm, algorithm)
    assert ox.load_result(folder, algorithm=algorithm).algorithm is algorithm
    with pytest.warns(UserWarning, match=f"the algorithm {kind.__name__} is not restored, because"):
        assert ox.load_result(folder).algorithm is None
    for wrong in (Twice, Twice(), ox.TSIVRPG):
        with pytest.raises(
            ValueError,
            match=f"algorithm must be the {kind.__name__} of the training run or its class",
        ):
            ox.load_result(folder, algorithm=wrong)
