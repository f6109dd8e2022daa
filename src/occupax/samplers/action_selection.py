"""Who draws the actions of episodes that are played outside of JAX.

The action of step t of an episode depends on the observation, t and the key of the episode alone:
neither the number of environments nor that of episodes changes a bit of it.
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

STEPS, EPISODES, BLOCKS = 32, 32, 64
"""How much noise is drawn by one call of JAX, and for how many calls it is kept, besides those that
are in use."""

Places = Int[np.ndarray, " P"]
Actions = tuple[Num[np.ndarray, "P *k"], Num[np.ndarray, "P *k"], Float[np.ndarray, " P"]]
"""What was drawn, the actions that environments are given, and the log-probabilities of what was
drawn."""
Act = Callable[[Any, Places, Places, Places], Actions]
"""Draws for P observations, of environments at P places that play P episodes, by their rows, at P
times."""


def acting(
    policy: Policy | Agent,
    space: ActionSpace,
    keys: UInt32[np.ndarray, "n 2"],
    envs: int,
    flat: bool,
) -> Act:
    """Who acts for a policy: NumPy where it can, with noise that JAX draws for many steps at once, or else JAX.

    Args:
        policy: the policy, or an agent, whose log-probabilities are unknown and 0.
        space: the actions that the environments take.
        keys: the data of the key of each episode.
        envs: how many environments there are.
        flat: whether observations are arrays.

    Returns:
        A function that is called for each step of each episode once, in order.
    """
    if isinstance(policy, Agent):
        return _acting_by_agent(policy)
    found = on_host(policy) if flat else None
    return (
        _acting_by_jax(policy, space, keys, envs)
        if found is None
        else _acting_here(found, space, keys, envs)
    )


def _acting_here(
    policy: HostPolicy, space: ActionSpace, keys: UInt32[np.ndarray, "n 2"], envs: int
) -> Act:
    padded = np.concatenate([keys, np.zeros((-len(keys) % EPISODES, 2), keys.dtype)])
    held = np.zeros((envs, STEPS, *policy.shape), policy.dtype)
    fixed = policy.law, policy.shape, policy.dtype
    bounds = (
        [np.asarray(it, policy.dtype) for it in (space.low, space.high)]
        if isinstance(space, BoxActions)
        else []
    )

    @lru_cache(maxsize=2 * envs + BLOCKS)
    def noise(block: int, time: int) -> np.ndarray:
        """That of a block of episodes, for some steps."""
        return np.asarray(_noise(padded[block * EPISODES :][:EPISODES], np.int32(time), fixed))

    def act(observations: Any, places: Places, rows: Places, times: Places) -> Actions:
        now = times % STEPS
        for i in np.flatnonzero(now == 0):
            block, row = divmod(int(rows[i]), EPISODES)
            held[places[i]] = noise(block, int(times[i]))[row]
        found, actions, log_probs = policy.draw(observations, held[places, now])
        return found, np.clip(actions, *bounds) if bounds else actions, log_probs

    return act


@jax.jit(static_argnums=2)
def _noise(keys: UInt32[Array, "n 2"], start: Int[Array, ""], fixed: Any) -> Num[Array, "n t *k"]:
    """What the actions of some steps of some episodes are drawn with."""
    law, shape, dtype = fixed

    def at(key: UInt32[Array, "2"], t: Int[Array, ""]) -> Num[Array, "*k"]:
        return getattr(jax.random, law)(_key_at(key, t), shape, dtype)

    times = start + jnp.arange(STEPS)
    return jax.vmap(jax.vmap(at, (None, 0)), (0, None))(keys, times)


def _key_at(key: UInt32[Array, "2"], t: Int[Array, ""]) -> Any:
    """The key of the action of step t, as in a simulation in JAX."""
    return jax.random.split(jax.random.fold_in(jax.random.wrap_key_data(key), t + 1))[0]


def _acting_by_agent(agent: Agent) -> Act:
    def act(observations: Any, places: Places, rows: Places, times: Places) -> Actions:
        del rows
        entries = zip(observations, times == 0, places.tolist(), strict=True)
        actions = np.stack(
            [agent.act_on_row(row, bool(begins), place) for row, begins, place in entries]
        )
        return actions, actions, np.zeros(len(actions))

    return act


def _acting_by_jax(
    policy: Policy, space: ActionSpace, keys: UInt32[np.ndarray, "n 2"], envs: int
) -> Act:
    draw = bind(_draw, (policy, space))
    room = max(envs, 2)  # arrays of one row the compiler would simplify

    def filled(leaf: np.ndarray) -> np.ndarray:
        return np.concatenate([leaf, np.zeros((room - len(leaf), *leaf.shape[1:]), leaf.dtype)])

    def act(observations: Any, places: Places, rows: Places, times: Places) -> Actions:
        del places
        given = jax.tree.map(filled, (observations, keys[rows], times))
        found: Any = (
            np.asarray(column)[: len(rows)] for column in draw(*given, np.int32(len(rows)))
        )
        return tuple(found)

    return act


def _draw(
    acting: tuple[Policy, ActionSpace],
    observations: Any,
    keys: UInt32[Array, "E 2"],
    times: Int[Array, " E"],
    count: Int[Array, ""],
) -> Any:
    """The actions for the first `count` observations.

    They are drawn one after the other, by a program that does the same for any number of them: how
    many there are must not change a bit of the numbers.
    """
    policy, space = acting

    def draw(i: Int[Array, ""] | int) -> tuple[Array, Array, Float[Array, ""]]:
        observation, key, t = jax.tree.map(lambda leaf: leaf[i], (observations, keys, times))
        drawn, action, log_prob = policy.draw_with_action(observation, _key_at(key, t))
        return drawn, space.clip(action), log_prob

    shapes = jax.eval_shape(draw, 0)
    nothing = jax.tree.map(lambda leaf: jnp.zeros((len(times), *leaf.shape), leaf.dtype), shapes)
    return jax.lax.fori_loop(
        0,
        count,
        lambda i, kept: jax.tree.map(lambda rows, row: rows.at[i].set(row), kept, draw(i)),
        nothing,
    )
