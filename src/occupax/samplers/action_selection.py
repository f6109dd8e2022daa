"""Action selection for episodes that are stepped outside of JAX.

The action of step t of an episode depends on the observation, t and the key of the episode alone.
The numbers of environments and episodes do not change any bit of the action.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num, UInt32

from occupax.compiled import bind
from occupax.envs.actions import ActionSpace, BoxActions
from occupax.policies import Policy
from occupax.policies.agents import Agent
from occupax.policies.on_host import HostPolicy, on_host

NOISE_STEPS = 32
"""Number of steps whose noise one call of JAX draws."""
NOISE_EPISODES = 32
"""Number of episodes whose noise one call of JAX draws."""
NOISE_BLOCKS = 64
"""Number of calls whose noise is cached, besides the blocks in use."""

Indices = Int[np.ndarray, " P"]
Actions = tuple[Num[np.ndarray, "P *k"], Num[np.ndarray, "P *k"], Float[np.ndarray, " P"]]
"""Samples of the policy, the actions for the environments, and the log-probabilities of the
samples."""
SelectActions = Callable[[Any, Indices, Indices, Indices], Actions]
"""Function of P observations, the slots of their environments, the rows of their episodes, and
their times."""


def select_actions(
    policy: Policy | Agent,
    space: ActionSpace,
    keys: UInt32[np.ndarray, "n 2"],
    envs: int,
    flat: bool,
) -> SelectActions:
    """Return the action selection of a policy: by NumPy where supported, otherwise by JAX.

    Args:
        policy: the policy, or an agent, whose log-probabilities are unknown and 0.
        space: the action space of the environments.
        keys: the data of the key of each episode.
        envs: the number of environments.
        flat: whether observations are arrays.

    Returns:
        A function that must be called for each step of each episode once, in order.
    """
    if isinstance(policy, Agent):
        return _select_by_agent(policy)
    host_policy = None
    if flat:
        host_policy = on_host(policy)
    if host_policy is None:
        return _select_by_jax(policy, space, keys, envs)
    return _select_on_host(host_policy, space, keys, envs)


def _select_on_host(
    policy: HostPolicy, space: ActionSpace, keys: UInt32[np.ndarray, "n 2"], envs: int
) -> SelectActions:
    padding = np.zeros((-len(keys) % NOISE_EPISODES, 2), keys.dtype)
    keys = np.concatenate([keys, padding])
    slot_noise = np.zeros((envs, NOISE_STEPS, *policy.shape), policy.dtype)
    distribution = (policy.noise, policy.shape, policy.dtype)

    @lru_cache(maxsize=2 * envs + NOISE_BLOCKS)
    def noise_of(block: int, time: int) -> np.ndarray:
        block_keys = keys[block * NOISE_EPISODES :][:NOISE_EPISODES]
        return np.asarray(_noise(block_keys, np.int32(time), distribution))

    def select(observations: Any, slots: Indices, rows: Indices, times: Indices) -> Actions:
        steps = times % NOISE_STEPS
        for i in np.flatnonzero(steps == 0):
            block, row = divmod(int(rows[i]), NOISE_EPISODES)
            slot_noise[slots[i]] = noise_of(block, int(times[i]))[row]
        samples, actions, log_probs = policy.draw(observations, slot_noise[slots, steps])
        if isinstance(space, BoxActions):
            low = np.asarray(space.low, policy.dtype)
            actions = np.clip(actions, low, np.asarray(space.high, policy.dtype))
        return samples, actions, log_probs

    return select


@jax.jit(static_argnums=2)
def _noise(
    keys: UInt32[Array, "n 2"], start: Int[Array, ""], distribution: Any
) -> Num[Array, "n t *k"]:
    """Return the noise of the actions of consecutive steps of some episodes."""
    name, shape, dtype = distribution

    def noise_at(key: UInt32[Array, "2"], t: Int[Array, ""]) -> Num[Array, "*k"]:
        return getattr(jax.random, name)(_key_at(key, t), shape, dtype)

    times = start + jnp.arange(NOISE_STEPS)
    return jax.vmap(jax.vmap(noise_at, (None, 0)), (0, None))(keys, times)


def _key_at(key: UInt32[Array, "2"], t: Int[Array, ""]) -> Any:
    """Return the key of the action of step t, as in a simulation in JAX."""
    return jax.random.split(jax.random.fold_in(jax.random.wrap_key_data(key), t + 1))[0]


def _select_by_agent(agent: Agent) -> SelectActions:
    def select(observations: Any, slots: Indices, rows: Indices, times: Indices) -> Actions:
        del rows
        entries = zip(observations, times == 0, slots.tolist(), strict=True)
        actions = [agent.act_on_row(row, bool(begins), slot) for row, begins, slot in entries]
        stacked = np.stack(actions)
        return stacked, stacked, np.zeros(len(actions))

    return select


def _select_by_jax(
    policy: Policy, space: ActionSpace, keys: UInt32[np.ndarray, "n 2"], envs: int
) -> SelectActions:
    draw = bind(_draw, (policy, space))
    capacity = max(envs, 2)  # XLA would compile arrays of one row differently

    def pad(leaf: np.ndarray) -> np.ndarray:
        return np.concatenate([leaf, np.zeros((capacity - len(leaf), *leaf.shape[1:]), leaf.dtype)])

    def select(observations: Any, slots: Indices, rows: Indices, times: Indices) -> Actions:
        del slots
        count = len(rows)
        padded = jax.tree.map(pad, (observations, keys[rows], times))
        samples, actions, log_probs = map(np.asarray, draw(*padded, np.int32(count)))
        return samples[:count], actions[:count], log_probs[:count]

    return select


def _draw(
    policy_and_space: tuple[Policy, ActionSpace],
    observations: Any,
    keys: UInt32[Array, "E 2"],
    times: Int[Array, " E"],
    count: Int[Array, ""],
) -> Any:
    """Return the actions for the first `count` observations.

    A loop draws one action at a time, so that the number of observations does not change any bit.
    """
    policy, space = policy_and_space

    def draw(i: Int[Array, ""] | int) -> tuple[Array, Array, Float[Array, ""]]:
        observation, key, t = jax.tree.map(lambda leaf: leaf[i], (observations, keys, times))
        sample, action, log_prob = policy.draw_with_action(observation, _key_at(key, t))
        return sample, space.clip(action), log_prob

    def write(i: Int[Array, ""], columns: Any) -> Any:
        return jax.tree.map(lambda rows, row: rows.at[i].set(row), columns, draw(i))

    shapes = jax.eval_shape(draw, 0)
    empty = jax.tree.map(lambda leaf: jnp.zeros((len(times), *leaf.shape), leaf.dtype), shapes)
    return jax.lax.fori_loop(0, count, write, empty)
