"""The guard on importance weights: out of bounds, the estimate is the on-policy one."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import enumeration as enum
import occupax as ox

pytestmark = pytest.mark.usefixtures("x64")

TASK = enum.tiny(11, (2,)).problem("absorbing", utility=ox.utilities.LogCoverage(0.1))
SIZES = {"snapshot_batch": 20, "batch": 20, "epoch_length": 3}
KINDS = [ox.TSIVRPG, ox.SVRPG, ox.SRVRPG, ox.HSPGA]
CALM = {"step_size": 0.01, "radius": 0.05, "rule": "gradient", "baseline": "none"}


def earlier(state):
    """The name of the policy whose weights a refinement uses."""
    return "previous" if hasattr(state, "previous") else "snapshot"


def states(algorithm, far=True):
    """Return the states after two iterations and the second batch.

    With `far`, the previous policy differs strongly from the current one.
    """
    random = np.random.default_rng(3)
    policy, other = (
        ox.policies.Tabular(jnp.asarray(scale * random.normal(size=(3, 2)))) for scale in (0.1, 5.0)
    )
    state, found = algorithm.init(TASK, policy), []
    for i in range(2):
        phase = algorithm.phases[algorithm.phase(i)]
        key = jax.random.fold_in(jax.random.key(5), i)
        batch = ox.SampledBatch(
            TASK, ox.sample(TASK, state.policy, phase.trajectories, key), state.policy
        )
        state = phase.update(state, batch, jax.random.key(0))
        if far and i == 0:
            state = replace(state, **{earlier(state): other})
        found.append((state, batch))
    return found


def fresh(kind, batch, before):
    """Return the on-policy estimates, from the trajectories of the behaviour policy alone."""
    if kind is ox.HSPGA:
        batch = batch.halves()[1]
    u = batch.occupancy()
    r = before.quasi_reward if kind is ox.TSIVRPG else batch.quasi_reward(u)
    return u, batch.gradient(None, r).table


@pytest.mark.parametrize("kind", KINDS)
def test_where_weights_mean_nothing_the_estimate_is_fresh(kind):
    (first, _), (second, batch) = states(kind(**SIZES, **CALM, weight_guard=0.5))
    weights = batch.statistics(getattr(first, earlier(first)))
    share = weights.effective_sample_size / batch.statistics().effective_sample_size
    assert share < 0.5 or weights.largest_weight > 4  # they deserve it
    assert not first.restarted
    assert second.restarted
    u, g = fresh(kind, batch, first)
    np.testing.assert_allclose(second.occupancy, u, rtol=1e-12)
    np.testing.assert_allclose(second.gradient.table, g, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_where_weights_are_good_the_guard_changes_nothing(kind):
    guarded, bare = (
        states(kind(**SIZES, **CALM, weight_guard=guard), far=False) for guard in (0.5, None)
    )
    for (ours, _), (theirs, _) in zip(guarded, bare, strict=True):
        assert not ours.restarted
        np.testing.assert_array_equal(ours.policy.table, theirs.policy.table)


@pytest.mark.parametrize("kind", KINDS)
def test_without_the_guard_the_same_weights_are_used(kind):
    guarded, bare = (
        states(kind(**SIZES, **CALM, weight_guard=guard))[1][0] for guard in (0.5, None)
    )
    assert np.abs(guarded.gradient.table - bare.gradient.table).max() > 1e-3
    assert not bare.restarted


@pytest.mark.parametrize(
    ("share", "bound", "restarts"), [(0.0, 1e9, False), (1.0, 1e9, True), (0.0, 1.0001, True)]
)
def test_share_and_bound_each_decide(share, bound, restarts):
    algorithm = ox.TSIVRPG(**SIZES, **CALM, weight_guard=share, weight_bound=bound)
    assert bool(states(algorithm)[1][0].restarted) == restarts


def test_restarts_are_recorded_on_every_sampler():
    """Steps of half a logit leave 0.98 of the effective sample size, tiny steps almost all."""
    algorithm = ox.TSIVRPG(
        **SIZES, rule="normalised", step_size=0.5, radius=np.inf, weight_guard=0.9999
    )
    for sampler in ("kernel", "jax", ox.samplers.Host(shards=2)):
        result = ox.train(TASK, algorithm, episodes=60, seeds=2, sampler=sampler, progress=False)
        assert result.metrics["restarted"].tolist() == [[0.0, 1.0, 1.0]] * 2
        calm = ox.train(
            TASK, replace(algorithm, step_size=1e-4), 60, seeds=2, sampler=sampler, progress=False
        )
        assert calm.metrics["restarted"].tolist() == [[0.0, 0.0, 0.0]] * 2


@pytest.mark.parametrize("guard", [-0.1, 1.1, "half", float("nan")])
def test_a_guard_that_is_no_share_is_refused(guard):
    with pytest.raises(ValueError, match="weight_guard must be"):
        ox.TSIVRPG(weight_guard=guard)
