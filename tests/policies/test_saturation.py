"""Constraints with saturated actions, where the gradient of the mean vanishes."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import occupax as ox
from occupax.policies.saturation import SHRINKAGE, draw_back
from occupax.training.execution.multipliers import (
    NETWORK_GAINS,
    initial_multipliers,
    update_multipliers,
)

KEY = jax.random.key(0)


class Discharge(ox.envs.Environment):
    """A battery that earns the price of what it discharges, and wears by the square of it."""

    action_space: ox.envs.ActionSpace = eqx.field(
        default=ox.envs.BoxActions([0.0], [1.0]), static=True
    )
    time_limit: int | None = eqx.field(default=12, static=True)

    def reset(self, key):
        return jax.random.uniform(key, minval=0.5, maxval=1.5), jnp.asarray(0)

    def step(self, state, action, key):
        price, hour = state
        reward = jnp.asarray(action)[0] * price
        return (1 + 0.8 * (price - 1) + 0.2 * jax.random.normal(key), hour + 1), reward

    def observe(self, state):
        return 2 * (state[0] - 1)[None]

    def terminated(self, state):
        return jnp.asarray(False)

    def truncated(self, state):
        return state[1] >= self.time_limit


def wear(_, action):
    return action[0] ** 2


DISCHARGE = ox.Problem(Discharge(), constraints=[ox.Constraint(wear, at_most=3.0)])
CONSTANT = (3.0 / ((1 - 0.99**12) / (1 - 0.99))) ** 0.5
"""The constant action whose wear is the limit."""


def constant_utility():
    """The discounted return of that action: the price has a mean of 1 at all times."""
    return CONSTANT * (1 - 0.99**12) / (1 - 0.99)


@pytest.mark.parametrize("output", [None, "best"])
def test_a_limit_on_box_actions_is_kept_though_they_saturate_at_first(output):
    result = ox.train(
        DISCHARGE, ox.REINFORCE(output=output), episodes=3_000, seeds=3, progress=False
    )
    assert (result.metrics["actions_clipped"].max(1) > 0.7).all()  # means do leave the bounds
    assert (result.excesses["wear"] <= 0.05 * 3).all()
    assert (result.utilities >= 0.7 * constant_utility()).all()
    assert result.metrics["actions_clipped"][:, -30:].max() < 0.9
    assert ("feasible" in result.metrics) == (output == "best")


def test_the_best_output_says_whether_a_feasible_policy_was_found():
    best = ox.REINFORCE(output="best")
    kept = ox.train(DISCHARGE, best, episodes=3_000, seeds=2, progress=False)
    assert (kept.metrics["feasible"][:, -1] == 1).all()
    assert not any("feasible" in finding.sentence for finding in kept.diagnosis)
    impossible = ox.Problem(Discharge(), constraints=[ox.Constraint(wear, at_most=-1.0)])
    broken = ox.train(impossible, best, episodes=1_000, seeds=2, progress=False)
    assert (broken.metrics["feasible"] == 0).all()
    finding = next(finding for finding in broken.diagnosis if finding.kind == "limit-not-kept")
    assert "no iterate was feasible in all 2 seeds" in finding.sentence
    assert "the least violating one is returned" in finding.sentence
    # the limit is missed by 1 if nothing is discharged, and by 10 on the way there
    assert (broken.excesses["wear"] < 2).all()
    assert (broken.metrics["violation/wear"].max(1) > 5).all()


def test_an_integral_does_not_grow_while_actions_saturate_but_falls():
    state: Any = initial_multipliers(DISCHARGE)
    rng = np.random.default_rng(0)
    integrals = []
    for wear_now, saturated in ((6.0, False), (6.0, True), (0.5, True)):
        for _ in range(200):
            fresh = jnp.asarray([8.0, wear_now]) + 0.1 * rng.normal(size=2)
            state = update_multipliers(
                state, DISCHARGE, fresh, 10, NETWORK_GAINS, jnp.asarray(saturated)
            )
        integrals.append(float(state.integral[0]))
    grown, held, fallen = integrals
    assert grown > 1
    assert held == grown
    assert fallen < held / 2


def test_a_policy_is_feasible_if_its_estimates_are_so_with_their_error():
    """Estimates that alternate by a known difference have a known standard deviation."""
    state: Any = initial_multipliers(DISCHARGE)
    n, difference = 10, 0.4
    deviation = difference * (n / 2) ** 0.5
    error = (
        2 * deviation / (19 * n) ** 0.5
    )  # 19 times a batch have the variance of the mean of weights 0.9^k
    for slack, feasible in ((error + 0.3, True), (error - 0.3, False), (-1.0, False)):
        for k in range(400):
            cost = 3.0 - slack + difference * (k % 2 - 0.5)
            state = update_multipliers(state, DISCHARGE, jnp.asarray([8.0, cost]), n, NETWORK_GAINS)
            assert k > 0 or state.trajectories > n or np.isinf(state.violation(n))
        assert (float(state.violation(n)) == 0) == feasible
    # the last batch alone is 1 above the limit, and the mean of the last ones by error more
    assert float(state.violation(n)) >= 1 / deviation


def two_entries(psi=None, by_observation=False):
    env = replace(Discharge(), action_space=ox.envs.BoxActions([0.0, -1.0], [1.0, 1.0]))
    policy: Any = ox.policies.gaussian(hidden=(4,), by_observation=by_observation)(env, KEY)
    return env, policy if psi is None else eqx.tree_at(lambda tree: tree.psi, policy, psi)


@pytest.mark.parametrize("by_observation", [False, True])
def test_drawing_back_scales_the_means_of_saturated_entries_alone(by_observation):
    _, policy = two_entries(by_observation=by_observation)
    moved = draw_back(policy, jnp.array([True, False]))
    for observation in (jnp.array([-0.7]), jnp.array([2.0])):
        (means, deviations), (new_means, new_deviations) = (
            policy.distribution(observation),
            moved.distribution(observation),
        )
        np.testing.assert_allclose(new_means, [SHRINKAGE * means[0], means[1]], rtol=1e-6)
        np.testing.assert_array_equal(new_deviations, deviations)
    _, own = two_entries(psi=jnp.sin)
    assert draw_back(own, jnp.array([True, True])) is own
    table = ox.policies.Tabular(jnp.zeros((2, 2)))
    assert draw_back(table, jnp.zeros(0, bool)) is table


@pytest.mark.parametrize("kind", ["gaussian", "squashed"])
def test_saturated_steps_are_counted_for_each_entry(kind):
    env, _ = two_entries()
    policy: Any = getattr(ox.policies, kind)(hidden=(), deviation=2.0)(env, KEY)
    policy = eqx.tree_at(
        lambda tree: tree.psi.network.layers[-1].bias, policy, jnp.array([2.0, 0.0])
    )
    problem = ox.Problem(env, features=ox.features.Reward())
    drawn = ox.sample(problem, policy, 200, KEY)
    actions = np.asarray(drawn.actions)
    outside = (
        np.abs(actions) > 2 if kind == "squashed" else (actions < [0.0, -1.0]) | (actions > 1.0)
    )
    found = ox.SampledBatch(problem, drawn, policy).statistics().saturated
    np.testing.assert_allclose(found, outside.mean((0, 1)), rtol=1e-6)
    assert found[0] > found[1] > 0.2
