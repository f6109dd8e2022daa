"""Episodes of agents in JAX environments, stepped outside of the compiled program."""

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

View = tuple[Any, Any, Bool[Array, " n"]]
"""States, observations and whether the episodes have ended."""


def draw_with_agent(problem: Problem, agent: Agent, n: int, key: Key[Array, ""]) -> Trajectories:
    """Draw n trajectories of an agent in a JAX environment.

    Trajectory i uses the random numbers of (key, i) as in `occupax.sample`. The agent selects the
    actions.
    """
    env = problem.env
    horizon = problem.sampling_horizon()
    assert isinstance(env, Environment)  # noqa: S101  all others are those of Gymnasium
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(n))
    state, observation, ended = _begin(env, keys)
    observation = np.asarray(observation)
    spec = env.action_space.spec()
    observations = np.zeros((n, horizon, *observation.shape[1:]), observation.dtype)
    actions = np.zeros((n, horizon, *spec.shape), spec.dtype)
    rewards = np.zeros((n, horizon), jnp.result_type(float))
    live = np.zeros((n, horizon), bool)
    for t in range(horizon):
        observations[:, t:] = observation[:, None]
        is_live = ~np.asarray(ended)
        live[:, t] = is_live
        if not is_live.any():
            break
        for i in np.flatnonzero(is_live):
            actions[i, t] = agent.act_on_row(observation[i], t == 0, int(i))
        step = jnp.asarray(t)
        state, observation, ended, reward = _advance(
            env, state, actions[:, t], keys, step, jnp.asarray(is_live)
        )
        observation = np.asarray(observation)
        rewards[:, t] = np.asarray(reward)
    return Trajectories(
        observations=jnp.asarray(observations),
        actions=jnp.asarray(actions),
        log_probs=jnp.zeros_like(rewards),
        rewards=jnp.asarray(rewards),
        live=jnp.asarray(live),
        terminated=jax.vmap(env.terminated)(state),
        final_observations=jnp.asarray(observation),
        action_space=agent.action_space,
    )


@eqx.filter_jit
def _begin(env: Environment, keys: Key[Array, " n"]) -> View:
    return _view(env, jax.vmap(lambda key: env.reset(jax.random.fold_in(key, 0)))(keys))


@eqx.filter_jit
def _advance(
    env: Environment,
    states: Any,
    actions: Any,
    keys: Key[Array, " n"],
    t: Int[Array, ""],
    live: Bool[Array, " n"],
) -> tuple[Any, Any, Bool[Array, " n"], Float[Array, " n"]]:
    """Step the live environments, and leave the states of all others unchanged."""

    def advance(state: Any, action: Any, key: Any, is_live: Any) -> tuple[Any, Any]:
        step_key = jax.random.split(jax.random.fold_in(key, t + 1))[1]
        next_state, reward = env.step(state, env.action_space.clip(action), step_key)
        state = jax.tree.map(lambda old, new: jnp.where(is_live, new, old), state, next_state)
        return state, jnp.where(is_live, reward, 0.0)

    states, rewards = jax.vmap(advance)(states, actions, keys, live)
    return *_view(env, states), rewards


def _view(env: Environment, states: Any) -> View:
    ended = jax.vmap(env.terminated)(states) | jax.vmap(env.truncated)(states)
    return states, jax.vmap(env.observe)(states), ended
