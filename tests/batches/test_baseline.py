import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import enumeration as enum
import occupax as ox
from occupax.baselines import Baseline
from pairs import R, pairs_problem, truth, two_tables

CONVENTIONS = ("episodic", "absorbing")


def mean_over_all_pairs(process, termination, behaviour, target, baseline="mean"):
    """The expectation of the gradient with a baseline, over every batch of two trajectories."""
    problem, gradient = pairs_problem(process, termination), ox.estimators.gradient
    batch, chances = enum.trajectories(process, behaviour)
    policy = ox.policies.Tabular(jnp.asarray(target))
    first, second = (index.ravel() for index in np.indices((len(chances), len(chances))))
    both = jax.tree.map(lambda leaf: jnp.stack([leaf[first], leaf[second]], 1), batch)
    ask = jax.jit(
        jax.vmap(lambda two: gradient(problem, two, policy, jnp.asarray(R), baseline).table)
    )
    return np.tensordot(chances[first] * chances[second], ask(both), 1)


@pytest.mark.parametrize("terminal", [(), (2,), (0, 2)])
@pytest.mark.parametrize("termination", CONVENTIONS)
def test_a_baseline_is_unbiased_off_policy_over_all_pairs(x64, monkeypatch, termination, terminal):
    monkeypatch.setattr(enum, "HORIZON", 3 if terminal == (0, 2) else 2)  # 11,664 pairs at most
    process, (behaviour, target) = enum.tiny(0, terminal), two_tables(1)
    mean = mean_over_all_pairs(process, termination, behaviour, target)
    np.testing.assert_allclose(mean, truth(process, termination, target), atol=1e-10)


class WithItsOwn(Baseline):
    """The baseline as one might write it: the trajectory is one of those it is compared with."""

    def mean_of_others(self, to_go, live):
        return jnp.broadcast_to(to_go.sum(0) / jnp.maximum(live.sum(0), 1), to_go.shape)


class OfTheFirstStep(Baseline):
    """A baseline that is centred on the return of the whole episode: unbiased, but another one."""

    def mean_of_others(self, to_go, live):
        return jnp.broadcast_to(((to_go.sum(0) - to_go) / max(len(live) - 1, 1))[:, :1], live.shape)


@pytest.mark.parametrize("termination", CONVENTIONS)
def test_a_mean_that_includes_the_trajectory_itself_is_biased(x64, monkeypatch, termination):
    monkeypatch.setattr(enum, "HORIZON", 2)
    process, (behaviour, target) = enum.tiny(0, (2,)), two_tables(1)
    exact = truth(process, termination, target)
    assert (
        np.abs(mean_over_all_pairs(process, termination, behaviour, target) - exact).max() < 1e-10
    )
    centred = mean_over_all_pairs(process, termination, behaviour, target, OfTheFirstStep("mean"))
    assert np.abs(centred - exact).max() < 1e-10
    own = mean_over_all_pairs(process, termination, behaviour, target, WithItsOwn("mean"))
    bias = np.abs(own - exact).max()
    assert bias > 0.1 * np.abs(exact).max()


def by_hand(batch, target, termination):
    """Return g_hat - mean of w_t b_t grad log pi(a_t|s_t), summed by explicit loops."""
    data, log_probs = jax.tree.map(np.asarray, batch), np.log(enum.softmax(target))
    n, horizon = data.actions.shape
    reward = R.reshape(3, 2)
    weight, earned, scores = (
        np.zeros((n, horizon)),
        np.zeros((n, horizon)),
        np.zeros((n, horizon, 3, 2)),
    )
    after, after_slope = np.zeros(n), np.zeros((n, 3, 2))
    for i in range(n):
        log_weight, length = 0.0, int(data.live[i].sum())
        for t in range(length):
            s, a = data.observations[i, t], data.actions[i, t]
            log_weight += log_probs[s, a] - data.log_probs[i, t]
            weight[i, t] = np.exp(log_weight)
            earned[i, t] = enum.DISCOUNT**t * weight[i, t] * reward[s, a]
            scores[i, t, s] -= np.exp(log_probs[s])
            scores[i, t, s, a] += 1
        if termination == "absorbing" and data.terminated[i]:
            end, probs = data.final_observations[i], np.exp(log_probs[data.final_observations[i]])
            mass = sum(enum.DISCOUNT**t for t in range(length, horizon)) * np.exp(log_weight)
            after[i] = mass * probs @ reward[end]
            after_slope[i, end] = mass * probs * (reward[end] - probs @ reward[end])
    to_go = np.cumsum(earned[:, ::-1], 1)[:, ::-1] + after[:, None]
    total = after_slope.sum(0)
    for i in range(n):
        for t in np.flatnonzero(data.live[i]):
            others = [to_go[j, t] for j in range(n) if j != i and data.live[j, t]]
            baseline = np.mean(others) if others else 0.0
            total += (to_go[i, t] - weight[i, t] * baseline) * scores[i, t]
    return total / n


@pytest.mark.parametrize("termination", CONVENTIONS)
def test_the_baseline_is_what_the_others_still_earn(x64, termination):
    process, (behaviour, target) = enum.tiny(3, (2,)), two_tables(2)
    problem = pairs_problem(process, termination)
    batch = ox.sample(problem, ox.policies.Tabular(jnp.asarray(behaviour)), 7, jax.random.key(4))
    assert len(set(np.asarray(batch.lengths).tolist())) > 1  # some have ended where others go on
    policy = ox.policies.Tabular(jnp.asarray(target))
    ours = ox.estimators.gradient(problem, batch, policy, jnp.asarray(R), "mean").table
    np.testing.assert_allclose(ours, by_hand(batch, target, termination), atol=1e-12)
    plain = ox.estimators.gradient(problem, batch, policy, jnp.asarray(R)).table
    assert np.abs(ours - plain).max() > 1e-2


@pytest.mark.parametrize("termination", CONVENTIONS)
def test_with_no_others_there_is_no_baseline(x64, termination):
    process, (behaviour, target) = enum.tiny(3, (2,)), two_tables(2)
    problem, policy = pairs_problem(process, termination), ox.policies.Tabular(jnp.asarray(target))
    alone = ox.sample(problem, ox.policies.Tabular(jnp.asarray(behaviour)), 1, jax.random.key(2))
    assert int(alone.lengths[0]) > 0
    one, other = (
        ox.estimators.gradient(problem, alone, policy, jnp.asarray(R), kind).table
        for kind in ("mean", "none")
    )
    np.testing.assert_array_equal(one, other)
    # a trajectory that took no step is neither compared nor compared with
    empty = eqx.tree_at(
        lambda it: (it.live, it.terminated), alone, (jnp.zeros_like(alone.live), jnp.array([False]))
    )
    two = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), alone, empty)
    joined = ox.estimators.gradient(problem, two, policy, jnp.asarray(R), "mean").table
    np.testing.assert_allclose(2 * np.asarray(joined), one, atol=1e-14)


def test_a_baseline_lowers_the_variance_where_every_step_pays_alike(x64):
    # Each step pays 10: the sum of what is still to come is the same for all, and all the noise is
    # that of the scores. With batches of 10 the baseline is exactly what the trajectory itself
    # earns, and on-policy nothing is left; the target is a little off the behaviour, so a little is
    # left. A tenth is far more than what was seen (below 0.01).
    process, behaviour = enum.tiny(0, ()), two_tables(1)[0]
    problem = pairs_problem(process, "episodic")
    target = ox.policies.Tabular(jnp.asarray(behaviour + 0.05 * two_tables(2)[1]))
    constant = jnp.full(6, 10.0)

    def estimates(kind):
        def one(key):
            batch = ox.sample(problem, ox.policies.Tabular(jnp.asarray(behaviour)), 10, key)
            return ox.estimators.gradient(problem, batch, target, constant, kind).table

        return np.asarray(jax.vmap(one)(jax.random.split(jax.random.key(0), 400)))

    plain, centred = estimates("none"), estimates("mean")
    assert centred.var(0).sum() < 0.1 * plain.var(0).sum()
    # and both estimate the same: means of 400, within 5 standard errors
    error = np.sqrt((plain.var(0) + centred.var(0)) / 400)
    assert (np.abs(plain.mean(0) - centred.mean(0)) < 5 * error + 1e-12).all()


def test_an_unknown_baseline_is_refused(as_users_run):
    problem = pairs_problem(enum.tiny(0, ()), "episodic")
    policy = ox.policies.tabular()(problem.env, jax.random.key(0))
    batch = ox.sample(problem, policy, 2, jax.random.key(1))
    with pytest.raises(ValueError, match=r"baseline 'means' is not known\. Did you mean 'mean'"):
        ox.estimators.gradient(problem, batch, policy, jnp.zeros(6), "means")
    with pytest.raises(ValueError, match="Did you mean 'mean'"):
        ox.REINFORCE(baseline="maen")
