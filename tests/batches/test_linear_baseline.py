"""The linear baseline against all trajectories of a tiny process and NumPy least squares."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import enumeration as enum
import occupax as ox
from compiled_batches import as_trajectories
from occupax import baselines, estimators, kernels
from occupax.samplers.kernel import TabularKernelSource
from pairs import pairs_problem, truth, two_tables

R = np.array([10.0, 11.0, 0.0, 1.0, -9.0, -8.0])  # what is earned depends on the state


def tabular(logits):
    return ox.policies.Tabular(jnp.asarray(logits))


def over_all_pairs(process, termination, behaviour):
    """Return the probabilities of all pairs of trajectories and a function of their estimates.

    The function takes a target and a fit. Without a fit, the baseline is fitted to the pair.
    """
    problem, gradient = pairs_problem(process, termination), estimators.gradient
    batch, chances = enum.trajectories(process, behaviour)
    first, second = (index.ravel() for index in np.indices((len(chances), len(chances))))
    both = jax.tree.map(lambda leaf: jnp.stack([leaf[first], leaf[second]], 1), batch)

    def estimate(two, target, fit):
        own = (
            estimators.regression(problem, two, tabular(behaviour), jnp.asarray(R)).fit()
            if fit is None
            else fit
        )
        return gradient(problem, two, tabular(target), jnp.asarray(R), own).table

    ask = jax.jit(jax.vmap(estimate, (0, None, None)))
    return chances[first] * chances[second], lambda target, fit: np.asarray(
        ask(both, jnp.asarray(target), fit)
    )


def earlier(process, termination, behaviour):
    """The fit to a batch that is none of the pairs."""
    problem = pairs_problem(process, termination)
    batch = ox.sample(problem, tabular(behaviour), 30, jax.random.key(5))
    return estimators.regression(problem, batch, tabular(behaviour), jnp.asarray(R)).fit()


@pytest.mark.parametrize("termination", ["episodic", "absorbing"])
def test_it_is_unbiased_and_varies_less_and_fitted_to_its_own_batch_it_is_biased(
    x64, monkeypatch, termination
):
    monkeypatch.setattr(enum, "HORIZON", 2)
    process, (behaviour, target) = enum.tiny(0, (2,)), two_tables(1)
    fit = earlier(process, termination, behaviour)
    chances, estimates = over_all_pairs(process, termination, behaviour)
    exact, found = truth(process, termination, target, R), estimates(target, fit)
    np.testing.assert_allclose(np.tensordot(chances, found, 1), exact, atol=1e-10)
    biased = np.tensordot(chances, estimates(target, None), 1)
    assert np.abs(biased - exact).max() > 0.1 * np.abs(exact).max()
    # on-policy, its variance is below that of the mean baseline, which is what a fit of zero leaves
    exact, nothing = truth(process, termination, behaviour, R), jax.tree.map(jnp.zeros_like, fit)
    spreads = [
        np.tensordot(chances, (estimates(behaviour, it) - exact) ** 2, 1).sum()
        for it in (fit, nothing)
    ]
    assert spreads[0] < 0.7 * spreads[1], spreads


def least_squares(problem, batch, r):
    """The coefficients, and the mean and deviation of what is earned, row by row in NumPy."""
    data, rows, earned = jax.tree.map(np.asarray, batch), [], []
    for i, length in enumerate(np.asarray(batch.lengths)):
        pays = [problem.discount**t * r[0] * data.rewards[i, t] for t in range(length)]
        for t in range(length):
            o, time = data.observations[i, t], t / data.actions.shape[1]
            rows.append(problem.discount**t * np.array([*o, *o**2, time, time**2, time**3, 1.0]))
            earned.append(sum(pays[t:]))
    rows, earned = np.array(rows), np.array(earned)
    sizes = np.sqrt((rows**2).sum(0))
    ridge = np.sqrt(baselines.RIDGE) * np.eye(len(sizes))
    found = (
        np.linalg.lstsq(
            np.concatenate([rows / sizes, ridge]), np.append(earned, np.zeros(len(sizes)))
        )[0]
        / sizes
    )
    return rows, found, earned


def test_the_fit_is_that_of_least_squares_on_observation_and_time(x64):
    problem = ox.Problem(ox.make("CartPole-v1"), horizon=30, discount=0.9)
    policy = ox.policies.mlp(hidden=(4,))(problem.env, jax.random.key(0))
    batch = ox.sample(problem, policy, 6, jax.random.key(1))
    assert len(set(np.asarray(batch.lengths).tolist())) > 1
    fit = estimators.regression(problem, batch, policy, jnp.array([2.0])).fit()
    rows, coefficients, earned = least_squares(problem, batch, np.array([2.0]))
    np.testing.assert_allclose(fit.coefficients, coefficients, rtol=1e-6)
    discounts = rows[:, -1]
    mean = np.average(earned / discounts, weights=discounts**2)
    reach = 3 * np.sqrt(np.average((earned / discounts - mean) ** 2, weights=discounts**2))
    expected = discounts * np.clip(rows @ coefficients / discounts, mean - reach, mean + reach)
    values = np.asarray(fit.values(problem, batch.observations))[np.asarray(batch.live)]
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    assert np.mean((values - earned) ** 2) < 0.1 * np.var(earned)
    far = fit.values(problem, 1e3 * batch.observations)[
        :, 0
    ]  # whose squares are a million times as large
    np.testing.assert_allclose(np.abs(far - mean), reach, rtol=1e-6)


def test_training_fits_to_the_batches_before_and_to_no_other(x64):
    problem = ox.Problem(ox.make("CartPole-v1"), horizon=12)
    first = ox.policies.mlp(hidden=(3,))(problem.env, jax.random.key(0))
    algorithm = ox.REINFORCE(
        batch=4, rule="gradient", step_size=0.1, baseline="linear", restarts=False
    )
    by_train = ox.train(
        problem, algorithm, 12, policy=first, sampler="jax", progress=False
    ).policy()
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), 0), 1)
    policy, sums, r = first, baselines.empty_sums(problem), jnp.ones(1)
    for iteration in range(3):
        batch = ox.sample(problem, policy, 4, jax.random.fold_in(key, iteration))
        gradient = estimators.gradient(
            problem, batch, policy, r, sums.fit() if iteration else "mean"
        )
        sums = jax.tree.map(
            lambda old, new: 0.5 * old + new, sums, estimators.regression(problem, batch, policy, r)
        )
        policy = eqx.apply_updates(policy, jax.tree.map(lambda leaf: 0.1 * leaf, gradient))
    for ours, theirs in zip(jax.tree.leaves(by_train), jax.tree.leaves(policy), strict=True):
        if eqx.is_array(ours):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.skipif(bool(kernels.missing()), reason="the compiled kernel is not there")
def test_the_kernel_for_tables_has_it_and_parts_add_up(x64):
    process, (behaviour, target) = enum.tiny(3, (2,)), two_tables(2)
    problem, fit = pairs_problem(process, "absorbing"), earlier(process, "absorbing", behaviour)
    ours = TabularKernelSource(problem).block(
        tabular(behaviour), jax.random.key(0), 0, 300, 300
    )  # in parts of 128
    theirs = ox.SampledBatch(problem, as_trajectories(ours), tabular(behaviour))
    host = (
        ox.samplers.Host(shards=4)
        .open(problem, tabular(behaviour))
        .draw(tabular(behaviour), 300, jax.random.key(0))
    )
    found = [it.gradient(tabular(target), jnp.asarray(R), fit).table for it in (theirs, ours, host)]
    for other in found[1:]:
        np.testing.assert_allclose(found[0], other, atol=1e-11)
    sums = [
        jax.tree.leaves(it.regression(jnp.asarray(R)))
        for it in (theirs.halves()[1], ours.halves()[1])
    ]
    for one, other in zip(*sums, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)


def test_what_cannot_be_fitted_is_refused():
    wide = ox.TabularMDP(np.full((501, 1, 501), 1 / 501), np.zeros((501, 1)), np.full(501, 1 / 501))
    with pytest.raises(
        ValueError, match=r"baseline 'linear' needs observations of at most 500 .* got 501"
    ):
        ox.train(ox.Problem(wide, horizon=2), ox.REINFORCE(2, baseline="linear"), 4, progress=False)
    problem = pairs_problem(enum.tiny(0, ()), "episodic")
    policy = ox.policies.tabular()(problem.env, jax.random.key(0))
    batch = ox.sample(problem, policy, 2, jax.random.key(1))
    with pytest.raises(ValueError, match=r"by hand, give estimators\.regression"):
        estimators.gradient(problem, batch, policy, jnp.zeros(6), "linear")
