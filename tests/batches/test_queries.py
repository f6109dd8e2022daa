"""Queries of the package, and some from outside of it, answered by all batches alike."""

import copy
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import ray

import occupax as ox
from occupax import kernels
from occupax.baselines import Baseline, Fit
from occupax.batches import Gradient, Occupancy, PartedBatch, Tally
from occupax.batches.caching import CachingBatch
from occupax.samplers import Host, Jax, Kernel, Ray
from occupax.samplers.kernel import NetworkKernelSource, TabularKernelSource
from own_queries import (
    Extremes,
    FirstRewards,
    LengthVariance,
    LongestReturn,
    ScaledPolicy,
    WeightedReturn,
)

pytestmark = pytest.mark.skipif(bool(kernels.missing()), reason=kernels.missing())

KEY = jax.random.key(3)
N = 10
MANY = 3
LAKE = ox.Problem(ox.make("FrozenLake-v1"), ox.utilities.LogCoverage(0.1), horizon=12)
POLE = ox.Problem(ox.make("CartPole-v1"), horizon=12)
PROBLEMS = {"table": LAKE, "network": POLE}
MAKE = {"table": ox.policies.tabular(0.7), "network": ox.policies.mlp((5,), scale=2.0)}


def policies(kind: str) -> list[ox.policies.Policy]:
    return [MAKE[kind](PROBLEMS[kind].env, jax.random.key(i)) for i in range(2)]


def queries(target: Any) -> list[Any]:
    return [
        WeightedReturn(target=target),
        Extremes(),
        LongestReturn(),
        LengthVariance(),
        ScaledPolicy(jnp.asarray(0.5), target=target),
    ]


def in_memory(kind: str, engine: str, policy: Any) -> ox.SampledBatch:
    """The trajectories that the samplers of an engine draw, as arrays that no kernel looks at."""
    sampler = Kernel() if engine == "kernel" else Jax()
    batch: Any = draw(sampler, kind, policy)
    batch = batch.as_sampled() if engine == "kernel" and kind == "table" else batch
    return ox.SampledBatch(batch.problem, batch.trajectories, policy)


def draw(sampler: Any, kind: str, policy: Any) -> Any:
    problem = PROBLEMS[kind]
    source = sampler.open(problem, policy)
    return eqx.filter_jit(lambda policy: source.draw(policy, N, KEY))(policy)


def answers(batch: Any, target: Any) -> list[np.ndarray]:
    found = [batch.answer(query) for query in queries(target)]
    return [np.asarray(leaf) for leaf in jax.tree.leaves(found)]


def assert_close(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)


@pytest.fixture(scope="module")
def clustered(compiled_fast: dict[str, str]) -> Iterator[dict[str, Any]]:
    """A source of each kind of problem on a cluster."""
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        for name, value in {**compiled_fast, "RAY_USAGE_STATS_ENABLED": "0"}.items():
            patch.setenv(name, value)
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
        sources = {
            kind: Ray(workers=1, shards=MANY).open(PROBLEMS[kind], policies(kind)[0])
            for kind in PROBLEMS
        }
        yield sources
        for source in sources.values():
            source.close()
        ray.shutdown()


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize(
    "sampler", ["jax", "kernel", "blocks", "host", "shards", "jax on the host"]
)
def test_a_query_from_outside_is_answered_alike_everywhere(kind, sampler, monkeypatch):
    behaviour, target = policies(kind)
    engine = "jax" if sampler.startswith("jax") else "kernel"
    plain = in_memory(kind, engine, behaviour)
    if sampler == "blocks":
        for source in (TabularKernelSource, NetworkKernelSource):
            monkeypatch.setattr(source, "block_steps", 4 * 12)
    samplers = {
        "jax": Jax(),
        "host": Host(),
        "shards": Host(shards=MANY),
        "jax on the host": Host(engine="jax"),
    }
    batch = samplers.get(sampler, Kernel()).open(PROBLEMS[kind], behaviour).draw(behaviour, N, KEY)
    assert isinstance(batch, PartedBatch) == (sampler not in ("jax", "kernel"))
    assert batch.parts == {"blocks": 3, "shards": 2}.get(sampler, 1)
    for asked in (None, target):
        assert_close(answers(batch, asked), answers(plain, asked))
    rows = np.asarray(batch.answer(FirstRewards()))
    assert_close([rows[rows > 0]], [np.asarray(plain.answer(FirstRewards()))])
    halves = zip(batch.halves(), plain.halves(), strict=True)
    for half, of_plain in halves:
        assert_close(answers(half, target), answers(of_plain, target))


@pytest.mark.parametrize("kind", PROBLEMS)
def test_a_query_from_outside_is_answered_on_a_cluster(kind, clustered):
    behaviour, target = policies(kind)
    plain = in_memory(kind, "kernel", behaviour)
    batch = clustered[kind].draw(behaviour, N, KEY)
    for asked in (None, target):
        assert_close(answers(batch, asked), answers(plain, asked))
    for half, of_plain in zip(batch.halves(), plain.halves(), strict=True):
        assert_close(answers(half, target), answers(of_plain, target))


# Copies of policies


def copied(policy: Any) -> Any:
    """Return a deep copy of a policy."""
    return jax.tree.map(
        lambda leaf: jnp.array(leaf) if eqx.is_array(leaf) else leaf, copy.deepcopy(policy)
    )


def estimates(batch: Any, target: Any) -> list[np.ndarray]:
    r = jnp.linspace(-1.0, 1.0, batch.problem.size)
    found = batch.occupancy(target), batch.gradient(target, r, "mean"), batch.statistics(target)
    return [np.asarray(leaf) for leaf in jax.tree.leaves(found)]


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize(
    "sampler", [Jax(), Kernel(), Host(), Host(shards=MANY)], ids=["jax", "kernel", "one", "many"]
)
def test_a_copy_of_a_policy_is_the_policy(kind, sampler):
    behaviour, target = policies(kind)
    batch = sampler.open(PROBLEMS[kind], behaviour).draw(behaviour, N, KEY)
    for a, b in zip(estimates(batch, target), estimates(batch, copied(target)), strict=True):
        np.testing.assert_array_equal(a, b)
    of_behaviour = estimates(batch, None)
    for asked in (
        behaviour,
        copied(behaviour),
    ):  # whose weights are computed, and are 1 up to rounding
        for a, b in zip(of_behaviour, estimates(batch, asked), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    pairs = zip(of_behaviour, estimates(batch, target), strict=True)
    assert max(np.abs(a - b).max(initial=0.0) for a, b in pairs) > 1e-2


@pytest.mark.parametrize("kind", PROBLEMS)
def test_a_copy_of_a_policy_is_the_policy_on_a_cluster(kind, clustered):
    behaviour, target = policies(kind)
    batch = clustered[kind].draw(behaviour, N, KEY)
    for a, b in zip(estimates(batch, target), estimates(batch, copied(target)), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(estimates(batch, None), estimates(batch, copied(behaviour)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


class Passing(ox.Batch):
    """A batch that passes everything on to another."""

    def __init__(self, batch):
        self.problem, self.batch = batch.problem, batch

    @property
    def size(self):
        return self.batch.size

    @property
    def parts(self):
        return self.batch.parts

    def answer(self, query):
        return self.batch.answer(query)

    def halves(self):
        return self.batch.halves()


class Copying(ox.TSIVRPG):
    """TSIVR-PG, which hands copies of policies to its batches, of the behaviour policy too."""

    def _refine(self, state, batch, key):
        return super()._refine(state, CopyingBatch(batch, state.policy), key)


class CopyingBatch(Passing):
    """A batch that is given a copy of every policy, and never None."""

    def __init__(self, batch, behaviour):
        super().__init__(batch)
        self._behaviour = behaviour

    def answer(self, query):
        target = copied(self._behaviour if query.target is None else query.target)
        return self.batch.answer(replace(query, target=target))


def test_an_algorithm_that_copies_policies_trains_alike():
    sizes = {
        "snapshot_batch": 6,
        "batch": 4,
        "epoch_length": 3,
        "step_size": 0.3,
        "rule": "gradient",
    }
    options = {"policy": MAKE["table"], "sampler": Host(shards=MANY), "progress": False}
    plain, copying = (
        ox.train(LAKE, kind(**sizes), 28, **options) for kind in (ox.TSIVRPG, Copying)
    )
    for name, values in plain.metrics.items():
        np.testing.assert_allclose(
            copying.metrics[name], values, rtol=1e-3, atol=1e-4, err_msg=name
        )
    np.testing.assert_allclose(
        copying.policies[0].table, plain.policies[0].table, rtol=1e-3, atol=1e-4
    )
    assert (
        plain.metrics["largest_weight"].max() > 1.05
    )  # there are other policies than the one that acted


# What the engine remembers


class Counted(Passing):
    """A batch that counts what it is asked."""

    def __init__(self, batch):
        super().__init__(batch)
        self.asked = []

    def answer(self, query):
        self.asked.append(query)
        return self.batch.answer(query)

    def halves(self):
        return tuple(map(Counted, self.batch.halves()))


def test_a_caching_batch_asks_once_and_knows_what_was_weighted():
    behaviour, target = policies("table")
    counted = Counted(ox.SampledBatch(LAKE, ox.sample(LAKE, behaviour, 8, KEY), behaviour))
    batch = CachingBatch(counted, LAKE)
    r = jnp.ones(LAKE.size)
    same_arrays = jax.tree.map(lambda leaf: leaf, target)
    for asked in (None, target, same_arrays):
        batch.occupancy(asked)
        batch.gradient(asked, r, "mean")
        batch.statistics(asked)
    assert [type(query) for query in counted.asked] == 2 * [Occupancy, Gradient, Tally]
    first, second = batch.halves()
    second.occupancy(copied(target))
    first.gradient(None, 2 * r)
    assert len(batch.targets) == 2  # a copy counts again, which changes no extreme of the weights
    np.testing.assert_array_equal(batch.last_quasi_reward, 2 * r)


def test_a_caching_batch_puts_in_the_fit_of_earlier_batches():
    behaviour, _ = policies("table")
    sampled = ox.SampledBatch(LAKE, ox.sample(LAKE, behaviour, 8, KEY), behaviour)
    r = jnp.linspace(0.0, 1.0, LAKE.size)
    fit: Fit = sampled.regression(r).fit()
    found = CachingBatch(sampled, LAKE, fit).gradient(None, r, "linear")
    np.testing.assert_array_equal(
        found.table, sampled.gradient(None, r, Baseline("linear", fit)).table
    )
    with pytest.raises(ValueError, match=r"by hand, give estimators\.regression"):
        CachingBatch(sampled, LAKE).gradient(None, r, "linear")


def test_a_query_is_completed_once():
    behaviour, _ = policies("table")
    batch = Host(shards=MANY).open(LAKE, behaviour).draw(behaviour, N, KEY)
    query = LengthVariance().completed(batch)
    assert query.completed(None) is query
    np.testing.assert_allclose(batch.answer(query), batch.answer(LengthVariance()))
