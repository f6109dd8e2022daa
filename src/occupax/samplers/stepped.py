"""Episodes of agents in environments in JAX, which are stepped outside of the compiled program."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from occupax.envs.base import Environment
from occupax.policies.agents import Agent
from occupax.problem import Problem
from occupax.trajectories import Trajectories

Look = tuple[Any, Any, Bool[Array, " n"]]
"""States, observations and whether the episodes are over."""


def draw_with_agent(problem: Problem, agent: Agent, n: int, key: Key[Array, ""]) -> Trajectories:
    """Draw n trajectories of an agent in an environment in JAX.

    Trajectory i takes from (key, i) what it takes in `occupax.sample`, except for the actions,
    which are the agent's.
    """
    env, horizon = problem.env, problem.sampling_horizon()
    assert isinstance(env, Environment)  # noqa: S101  all others are those of Gymnasium
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(n))
    state, observation, over = _begin(env, keys)
    seen, spec = np.asarray(observation), env.action_space.spec()
    observations = np.zeros((n, horizon, *seen.shape[1:]), seen.dtype)
    actions = np.zeros((n, horizon, *spec.shape), spec.dtype)
    rewards = np.zeros((n, horizon), jnp.result_type(float))
    live = np.zeros((n, horizon), bool)
    for t in range(horizon):
        observations[:, t:] = seen[:, None]
        live[:, t] = ~np.asarray(over)
        playing = np.flatnonzero(live[:, t])
        if not len(playing):
            break
        for i in playing:
            actions[i, t] = agent.act_on_row(seen[i], t == 0, int(i))
        stepped = map(jnp.asarray, (t, live[:, t]))
        state, observation, over, reward = _advance(env, state, actions[:, t], keys, *stepped)
        seen, rewards[:, t] = np.asarray(observation), np.asarray(reward)
    terminated = jax.vmap(env.terminated)(state)
    arrays = observations, actions, np.zeros_like(rewards), rewards, live, terminated, seen
    return Trajectories(*map(jnp.asarray, arrays), action_space=agent.action_space)


@eqx.filter_jit
def _begin(env: Environment, keys: Key[Array, " n"]) -> Look:
    return _look(env, jax.vmap(lambda key: env.reset(jax.random.fold_in(key, 0)))(keys))


@eqx.filter_jit
def _advance(
    env: Environment,
    states: Any,
    actions: Any,
    keys: Key[Array, " n"],
    t: Int[Array, ""],
    live: Bool[Array, " n"],
) -> tuple[Any, Any, Bool[Array, " n"], Float[Array, " n"]]:
    """Step the environments that are live; the others stay where they are."""

    def advance(state: Any, action: Any, key: Any, is_live: Any) -> tuple[Any, Any]:
        step_key = jax.random.split(jax.random.fold_in(key, t + 1))[1]
        following, reward = env.step(state, env.action_space.clip(action), step_key)
        state = jax.tree.map(lambda old, new: jnp.where(is_live, new, old), state, following)
        return state, jnp.where(is_live, reward, 0.0)

    states, rewards = jax.vmap(advance)(states, actions, keys, live)
    return *_look(env, states), rewards


def _look(env: Environment, states: Any) -> Look:
    over = jax.vmap(env.terminated)(states) | jax.vmap(env.truncated)(states)
    return states, jax.vmap(env.observe)(states), over
