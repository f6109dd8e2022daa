"""The cart-pole in JAX and that of Gymnasium: other random numbers, the same learning."""

import jax.numpy as jnp
import numpy as np
from scipy import stats

import occupax as ox
from occupax.envs.base import Timed
from occupax.envs.cartpole import PUSH, TIME_STEP, CartPole, _derivative

ALGORITHM = ox.REINFORCE(batch=10, step_size=0.3, rule="normalised", baseline="mean")


class Fast(CartPole):
    """A cart-pole whose steps take half as long again."""

    def step(self, state, action, key):
        force = jnp.where(jnp.asarray(action) == 1, PUSH, -PUSH)
        physics = state.physics + 1.5 * TIME_STEP * _derivative(state.physics, force)
        return Timed(physics, state.time + 1), jnp.ones((), physics.dtype)


def learned(env, seeds):
    """The area under the learning curve of each seed."""
    problem = ox.Problem(env, discount=0.95, horizon=60)
    policy = ox.policies.mlp(
        hidden=(8,), normalise=False
    )  # bounds differ: running statistics, or none
    result = ox.train(problem, ALGORITHM, 120, seeds, policy=policy, progress=False)
    curves = result.metrics["return"]
    assert curves[:, -5:].mean() > 1.3 * curves[:, :5].mean()  # there is something to learn
    return curves.mean(1)


def p_value(one, other):
    """Return the p-value of a permutation test on the difference of two groups of runs."""

    def difference(a, b, axis):
        return np.abs(a.mean(axis) - b.mean(axis))

    test = stats.permutation_test(
        (one, other),
        difference,
        vectorized=True,
        n_resamples=9999,
        alternative="greater",
        rng=np.random.default_rng(0),
    )
    return test.pvalue


def test_the_twins_learn_alike_and_another_cart_pole_does_not():
    simulated = learned(ox.make("CartPole-v1", "gymnasium"), range(100, 108))
    assert p_value(simulated, learned(ox.make("CartPole-v1"), 32)) > 0.01
    assert p_value(simulated, learned(Fast(time_limit=500), 32)) < 0.01
