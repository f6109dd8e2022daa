"""Training on environments of gymnax against stepping them with random actions.

REINFORCE with batches of 32 episodes, 10,000 of them for each of ten seeds, and a network of two
layers of 64: a whole training, from the call to the result, after a short one that pays for the
compilation. Random actions are taken in as many copies of the environment side by side, as gymnax
does it (`jit` of a `scan` of a `vmap` of `step`, which resets by itself). Figures are the best of
three runs of each in turn, in live steps of the environment. The network's share is the time that
its kernel takes for one log-probability and one gradient, measured by itself on steps that are all
live, over the time that training takes for a step. Episodes are simulated side by side until the
last of them ends, and have room for as many steps as the horizon: short ones leave some of both
unused. So the last column is training from the first policies only, 1,000 episodes a seed, before
they have learned to make episodes longer.
"""

import time
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

import occupax as ox
from occupax.batches.network import kernel_log_probs
from tables import Table, at_least, show

SEEDS, BATCH, REPEATS = 10, 32, 3
EPISODES, FIRST = 10_000, 1_000
CASES = {"CartPole-v1": 500, "Pendulum-v1": 200, "Breakout-MinAtar": 200}
"""Environments, and horizons."""
STEPS = 2_000


def random_rate(name: str) -> float:
    """Steps a second of gymnax with random actions."""
    import gymnax

    env, params = gymnax.make(name)
    copies = SEEDS * BATCH

    def step(carry: Any, key: Any) -> tuple[Any, Any]:
        state, total = carry
        acting, stepping = jax.random.split(key)
        actions = jax.vmap(env.action_space(params).sample)(jax.random.split(acting, copies))
        of_step = jax.vmap(env.step, (0, 0, 0, None))
        seen, state, reward, *_ = of_step(
            jax.random.split(stepping, copies), state, actions, params
        )
        return (
            state,
            total + reward.sum() + seen.sum(),
        ), None  # so that the compiler leaves nothing out

    @jax.jit
    def play(key: Any) -> Any:
        first, rest = jax.random.split(key)
        _, state = jax.vmap(env.reset, (0, None))(jax.random.split(first, copies), params)
        return jax.lax.scan(step, (state, 0.0), jax.random.split(rest, STEPS))[0][1]

    play(jax.random.key(0)).block_until_ready()
    start = time.perf_counter()
    play(jax.random.key(1)).block_until_ready()
    return copies * STEPS / (time.perf_counter() - start)


def network_seconds(problem: ox.Problem) -> float:
    """Return the seconds per step of the network, for acting and for the gradient."""
    policy = ox.policies.default_policy(problem.env)(problem.env, jax.random.key(0))
    drawn = ox.sample(problem, policy, SEEDS * BATCH // 8, jax.random.key(1))
    taken = eqx.tree_at(lambda it: it.live, drawn, jnp.ones_like(drawn.live))

    @eqx.filter_jit
    def ask(policy: Any) -> Any:
        gradient = eqx.filter_grad(
            lambda policy: kernel_log_probs(policy, taken, taken.log_probs).sum()
        )
        return kernel_log_probs(policy, taken), gradient(policy)

    took: list[float] = []
    for _ in range(5):
        start = time.perf_counter()
        jax.block_until_ready(ask(policy))
        took.append(time.perf_counter() - start)
    return min(took) / taken.live.size


def training_rate(problem: ox.Problem, episodes: int) -> tuple[float, float]:
    """Live steps a second of training, and the mean length of an episode."""
    train = partial(ox.train, problem, ox.REINFORCE(batch=BATCH), seeds=SEEDS, progress=False)
    train(BATCH)
    start = time.perf_counter()
    result = train(episodes)
    took, steps = time.perf_counter() - start, float(result.steps[:, -1].sum())
    return steps / took, steps / (SEEDS * result.episodes[-1])


def measure() -> list[Table]:
    """A row for each environment."""
    rows: list[list[str]] = []
    targets: list[Any] = []
    for name, horizon in CASES.items():
        problem = ox.Problem(ox.make(f"gymnax/{name}"), horizon=horizon)
        pairs = [
            (random_rate(name), *training_rate(problem, EPISODES), *training_rate(problem, FIRST))
            for _ in range(REPEATS)
        ]
        random, training, length, first, short = (max(found) for found in zip(*pairs, strict=True))
        figures = f"{random / 1e6:.2f}", f"{training / 1e6:.2f}", f"{training / random:.2f}"
        of_network = f"{network_seconds(problem) * training:.2f}"
        rows.append(
            [
                name,
                *figures,
                of_network,
                f"{length:.0f} of {horizon}",
                f"{first / random:.2f}, {short:.0f}",
            ]
        )
        targets.append(at_least(0.5, training / random, f"of random actions on {name}"))
    rates = ["random actions", "training", "ratio", "network's share"]
    columns = ["environment", *rates, "length of an episode", "ratio and length at first"]
    return [Table("Millions of steps a second", columns, rows, targets)]


if __name__ == "__main__":
    show(measure())
