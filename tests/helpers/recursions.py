"""The recursions of algorithms of one's own, and what is recorded of them, by hand, in NumPy."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import enumeration as enum
import occupax as ox
from occupax.training.execution import iteration as engine

SIGMA, ETA, SEEDS = 0.1, 0.3, 2
PROBLEM = enum.tiny(11, (2,)).problem("episodic", utility=ox.utilities.LogCoverage(SIGMA))
START = ox.policies.tabular(0.5)
NO_TRAJECTORY = {"behaviour": np.uint32(2**32 - 3)}
"""The numbers of random streams that no trajectory has."""


class Drawn(NamedTuple):
    """Trajectories, as lists of (state, action, reward), with the estimates of tables of logits."""

    episodes: list[Any]
    acting: np.ndarray

    def weights(self, table):
        """The weight of every step of every trajectory."""
        ratios = np.log(enum.softmax(table)) - np.log(enum.softmax(self.acting))
        return [
            np.exp(np.cumsum([ratios[s, a] for s, a, _ in episode])) for episode in self.episodes
        ]

    def occupancy(self, table):
        u = np.zeros(enum.S)
        for episode, weights in zip(self.episodes, self.weights(table), strict=True):
            for t, (s, _, _) in enumerate(episode):
                u[s] += enum.DISCOUNT**t * weights[t]
        return u / len(self.episodes)

    def gradient(self, table, r):
        probs, g = enum.softmax(table), np.zeros((enum.S, enum.A))
        for episode, weights in zip(self.episodes, self.weights(table), strict=True):
            score = np.zeros((enum.S, enum.A))
            for t, (s, a, _) in enumerate(episode):
                score[s] += np.eye(enum.A)[a] - probs[s]
                g += enum.DISCOUNT**t * weights[t] * r[s] * score
        return g / len(self.episodes)


class Done(NamedTuple):
    """An iteration."""

    drawn: Drawn
    before: np.ndarray
    after: np.ndarray
    u: np.ndarray
    g: np.ndarray
    weighed: list[Any]
    """The tables that the update put weights on."""


def draw(sampler, table, n, key):
    """Trajectories of one of the two ways to draw random numbers, in the plain form."""
    policy = ox.policies.Tabular(jnp.asarray(table, jnp.float32))
    if sampler == "jax":
        taken = jax.tree.map(np.asarray, ox.sample(PROBLEM, policy, n, key))
        steps = np.stack([taken.observations, taken.actions, taken.rewards], -1)
        episodes = [
            [(int(s), int(a), r) for s, a, r in rows[live]]
            for rows, live in zip(steps, taken.live, strict=True)
        ]
        return Drawn(episodes, table)
    source = ox.samplers.Kernel().open(PROBLEM, policy)
    batch = source.draw(policy, n, key)
    events, ends = np.asarray(batch.events), np.cumsum(batch.lengths)
    episodes = [
        [
            (
                (event >> source.table.shift) // enum.A,
                (event >> source.table.shift) % enum.A,
                source.table.rewards[event],
            )
            for event in own
        ]
        for own in np.split(events[: ends[-1]], ends[:-1])
    ]
    return Drawn(episodes, table)


def reward(u):
    return 1 / (np.maximum(u, 0) + SIGMA)


def coverage(u):
    return np.log(np.maximum(u, 0) + SIGMA).sum()


def coins(coin, iterations):
    """The phases of PAGE: large batches (0) with probability 4 / (6 + 4)."""
    tosses = [
        jax.random.uniform(jax.random.fold_in(jax.random.key(coin), i)) for i in range(iterations)
    ]
    return [0 if i == 0 or toss < 0.4 else 1 for i, toss in enumerate(tosses)]


PHASES = {
    "storm": [0, 1, 1, 1, 1, 1],
    "between": [0, 1, 1, 1, 1, 1],
    "coin": coins(2, 5),
    "twice": [0] * 4,
    "turns": [0, 1, 2] * 2,
}
SIZES = {"storm": (6, 4), "between": (6, 4), "coin": (6, 4), "twice": (6,), "turns": (10, 4, 20)}


@cache
def by_hand(name, sampler, number):
    """The iterations of one run."""
    key = jax.random.fold_in(jax.random.key(0), number)
    table = np.asarray(START(PROBLEM.env, jax.random.fold_in(key, 0)).table, float)
    update = {"twice": twice, "turns": ascent}.get(name, storm)
    history = []
    for i, phase in enumerate(PHASES[name]):
        iteration_key = jax.random.fold_in(jax.random.fold_in(key, 1), i)
        acting = table
        if name == "between" and phase == 1:
            q = float(
                jax.random.uniform(jax.random.fold_in(iteration_key, NO_TRAJECTORY["behaviour"]))
            )
            acting = q * table + (1 - q) * history[-1].before
        drawn = draw(sampler, acting, SIZES[name][phase], iteration_key)
        u, g, weighed = update(drawn, table, phase, history, 0.0 if name == "coin" else 0.3)
        history.append(Done(drawn, table, table + ETA * g, u, g, weighed))
        table = history[-1].after
    return history


def ascent(drawn, now, phase, history, fresh):
    u = drawn.occupancy(now)
    return u, drawn.gradient(now, reward(u)), []


def storm(drawn, now, phase, history, fresh):
    if phase == 0:
        return ascent(drawn, now, phase, history, fresh)
    then = history[-1].before
    newer = reward(history[-1].u)
    # what a large batch begins with has one quasi-reward, its own, for both
    older = newer if large(history[-1]) else reward(history[-2].u)
    u = drawn.occupancy(now) + (1 - fresh) * (history[-1].u - drawn.occupancy(then))
    d = drawn.gradient(now, newer) + (1 - fresh) * (history[-1].g - drawn.gradient(then, older))
    return u, d, [then] if np.array_equal(drawn.acting, now) else [now, then]


def large(done):
    return len(done.drawn.episodes) == 6


def twice(drawn, now, phase, history, fresh):
    _, g, _ = ascent(drawn, now, phase, history, fresh)
    ahead = now + ETA * g
    u = drawn.occupancy(ahead)
    return u, drawn.gradient(ahead, reward(u)), [ahead]


def records(history):
    """Return the expected records of a run."""
    numbers = {
        name: [] for name in engine.COMMON_METRICS if name not in ("clipped", "step_length")
    } | {
        "steps": [],
        "episodes": [],
    }
    for drawn, before, _, u, g, weighed in history:
        rewards = [np.array([r for _, _, r in episode]) for episode in drawn.episodes]
        weights = [drawn.weights(table) for table in weighed or [drawn.acting]]
        last = [np.array([path[-1] for path in of_policy if len(path)]) for of_policy in weights]
        found = {
            "utility": coverage(drawn.occupancy(before)),
            "running_utility": coverage(u),
            "return": np.mean([r.sum() for r in rewards]),
            "discounted_return": np.mean([r @ enum.DISCOUNT ** np.arange(len(r)) for r in rewards]),
            "episode_length": np.mean([len(r) for r in rewards]),
            "grad_norm": np.linalg.norm(g),
            "largest_weight": max(
                path.max() for of_policy in weights for path in of_policy if len(path)
            ),
            "effective_sample_size": min(w.sum() ** 2 / (w**2).sum() for w in last),
            "negative_occupancy": np.mean(u < 0),
            "steps": sum(len(r) for r in rewards),
            "episodes": len(rewards),
        }
        for name, number in found.items():
            numbers[name].append(number)
    return numbers | {name: np.cumsum(numbers[name]) for name in ("steps", "episodes")}
