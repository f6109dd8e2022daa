"""Sampling in pure JAX: usable inside jit and vmap."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from occupax._errors import check_integer, check_key
from occupax.batch import Trajectories
from occupax.policies import Policy, refuse_unless_fitting
from occupax.problem import Problem
from occupax.samplers.base import Sampler
from occupax.samplers.sampled import SampledBatch

BLOCK_STEPS = 50_000


def sample(problem: Problem, policy: Policy, n: int, key: Key[Array, ""]) -> Trajectories:
    """Draw `n` trajectories, as long as the problem's horizon, under `policy`.

    Trajectory i depends on (key, i) alone, so the first ones of a larger batch are those of a smaller one.
    """
    if not isinstance(problem, Problem):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"problem must be an occupax.Problem, got {type(problem).__name__}.")
    n = check_integer("n", n)
    check_key(key)
    problem.sampling_horizon()
    refuse_unless_fitting(policy, problem.env)
    return trajectories(problem, policy, jnp.arange(n), key)


@eqx.filter_jit
def trajectories(problem: Problem, policy: Policy, numbers: Int[Array, " n"], key: Key[Array, ""]) -> Trajectories:
    """The trajectories of these numbers out of all those that `key` stands for."""
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)
    return Trajectories(*jax.vmap(lambda k: _trajectory(problem, policy, k))(keys))


class DeviceSampler(Sampler):
    """Draws trajectories by `trajectories`: any environment, any policy, any device."""

    problem: Problem

    @property
    def block_size(self) -> int:
        """As many as take `BLOCK_STEPS` steps."""
        return max(1, BLOCK_STEPS // self.problem.sampling_horizon())

    def block(
        self, policy: Policy, key: Key[Array, ""], first: int | Int[Array, ""], stop: int | Int[Array, ""], n: int
    ) -> SampledBatch:
        """Trajectories number `first` to `first + n`; those from number `stop` on have no live step."""
        numbers = first + jnp.arange(n)
        drawn = trajectories(self.problem, policy, numbers, key)
        there = numbers < stop
        kept = (drawn.live & there[:, None], drawn.terminated & there, jnp.where(there[:, None], drawn.rewards, 0.0))
        drawn = eqx.tree_at(lambda it: (it.live, it.terminated, it.rewards), drawn, kept)
        return SampledBatch(self.problem, drawn, policy)


def _trajectory(problem: Problem, policy: Policy, key: Key[Array, ""]) -> tuple[Any, ...]:
    """Draw one trajectory; the entries are in the order of the fields of `Trajectories`."""
    env = problem.env
    keys = jax.random.split(key, 1 + problem.sampling_horizon())

    def step(carry: tuple[Any, Any], step_key: Key[Array, ""]) -> tuple[tuple[Any, Any], tuple[Any, ...]]:
        state, ended = carry
        action_key, env_key = jax.random.split(step_key)
        observation = env.observe(state)
        logits = policy.logits(observation)
        action = jax.random.categorical(action_key, logits)
        following, reward = env.step(state, action, env_key)
        live = ~ended
        state = jax.tree.map(lambda old, new: jnp.where(live, new, old), state, following)
        ended = ended | env.terminated(state) | env.truncated(state)
        log_prob = jax.nn.log_softmax(logits)[action]
        return (state, ended), (observation, action, log_prob, jnp.where(live, reward, 0.0), live)

    first = env.reset(keys[0])
    (last, _), steps = jax.lax.scan(step, (first, env.terminated(first)), keys[1:])
    return *steps, env.terminated(last), env.observe(last)
