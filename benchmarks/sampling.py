"""Sampling in JAX against stepping Gymnasium, in one run on one machine: live environment steps a second."""

import time
from typing import Any

import gymnasium as gym
import jax
import numpy as np

import occupax as ox

EPISODES, BATCH, REPEATS = 200, 5_000, 5


def gymnasium_rate(name: str, horizon: int) -> float:
    """Random actions in a plain Gymnasium loop."""
    env: Any = gym.make(name)
    random = np.random.default_rng(0)
    steps, start = 0, time.perf_counter()
    for episode in range(EPISODES):
        env.reset(seed=episode)
        for _ in range(horizon):
            _, _, terminated, truncated, _ = env.step(int(random.integers(env.action_space.n)))
            steps += 1
            if terminated or truncated:
                break
    return steps / (time.perf_counter() - start)


def occupax_rate(name: str, horizon: int) -> float:
    """The same random policy, sampled in batches, after compilation."""
    env = ox.make(name)
    problem = ox.Problem(env, discount=0.99, horizon=horizon)
    make = ox.policies.tabular() if isinstance(env, ox.TabularMDP) else ox.policies.linear()
    policy = make(env, jax.random.key(0))
    jax.block_until_ready(ox.sample(problem, policy, BATCH, jax.random.key(0)))
    steps, start = 0, time.perf_counter()
    for repeat in range(REPEATS):
        steps += int(ox.sample(problem, policy, BATCH, jax.random.key(repeat)).lengths.sum())
    return steps / (time.perf_counter() - start)


def main() -> None:
    print(f"{'environment':20} {'Gymnasium':>12} {'Occupax':>12} {'ratio':>7}   (live steps a second)")
    for name, horizon in (("FrozenLake8x8-v1", 200), ("CartPole-v1", 200), ("Acrobot-v1", 200)):
        theirs, ours = gymnasium_rate(name, horizon), occupax_rate(name, horizon)
        print(f"{name:20} {theirs:12,.0f} {ours:12,.0f} {ours / theirs:6.1f}x")


if __name__ == "__main__":
    main()
