"""Training with Occupax, with Stable-Baselines3 and with the textbook loop in PyTorch.

Environment steps a second while training, everything included but imports and compilation: 50 seeds
side by side, which is what Occupax is for, and one seed alone. On CartPole with a limit of 200
steps all of them train a network of 4 x 64 x 64 x 2 with tanh. The loop steps one Gymnasium
environment, takes batches of 10 episodes, and makes a step of Adam along the log-probabilities
times the returns to go; it is the fast version, which acts without gradients and evaluates the
batch at once. Occupax's REINFORCE has the same batch and the same Adam. A2C has its default
settings, which include a second network for the values, with 1 and with 16 environments. On
FrozenLake8x8 the policy is a table. PyTorch runs with one thread and with all of them, and the
faster one counts. On CartPole the loop takes 500 episodes, A2C 10,000 steps and Occupax 2,000
episodes a seed. The return is that of the last episodes, which come after very different numbers of
steps.
"""

import importlib
import importlib.util
import os
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import optax

import occupax as ox
from occupax.experiments.methods import epoch_episodes
from tables import Table, at_least, show

SKIPPED = "skipped: needs torch and stable-baselines3, which `pip install .[bench]` brings"
EPISODES, EPISODES_OURS, A2C_STEPS, TABLE_EPISODES, TABLE_EPISODES_OURS = (
    500,
    2_000,
    10_000,
    1_000,
    20_000,
)
SEEDS, BATCH, LIMIT, WANTED = 50, 10, 200, 200
Measured = tuple[float, float]
"""Steps a second, and the return at the end."""


def torch() -> Any:
    return importlib.import_module("torch")


def fastest(train: Callable[[], Measured]) -> Measured:
    """With one thread of PyTorch, or with all."""
    found: list[Measured] = []
    for threads in {1, os.cpu_count() or 1}:
        torch().set_num_threads(threads)
        found.append(train())
    return max(found)


def loop(
    env: Any, logits: Any, parameters: Any, read: Callable[[list[Any]], Any], episodes: int
) -> Measured:
    """REINFORCE, as in a textbook."""
    torch_ = torch()
    optimiser = torch_.optim.Adam(parameters, lr=1e-2)
    categorical = torch_.distributions.Categorical
    steps, returns, start = 0, [], time.perf_counter()
    for episode in range(0, episodes, BATCH):
        observations, actions, weights = [], [], []
        for number in range(BATCH):
            observation, rewards, ended = env.reset(seed=episode + number)[0], [], False
            while not ended:
                with torch_.no_grad():
                    action = categorical(logits=logits(read([observation]))[0]).sample().item()
                observations.append(observation)
                actions.append(action)
                observation, reward, terminated, truncated, _ = env.step(action)
                rewards.append(float(reward))
                ended = terminated or truncated
            to_go = np.cumsum((0.99 ** np.arange(len(rewards)) * rewards)[::-1])[::-1]
            weights.extend(to_go)
            steps += len(rewards)
            returns.append(sum(rewards))
        log_probs = categorical(logits=logits(read(observations))).log_prob(torch_.tensor(actions))
        loss = -(log_probs * torch_.tensor(np.array(weights, np.float32))).sum() / BATCH
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return steps / (time.perf_counter() - start), float(np.mean(returns[-5 * BATCH :]))


def network_loop() -> Measured:
    torch_ = torch()
    torch_.manual_seed(0)
    nn = torch_.nn
    network = nn.Sequential(
        nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)
    )
    env = gym.make("CartPole-v1", max_episode_steps=LIMIT)
    return loop(
        env, network, network.parameters(), lambda seen: torch_.from_numpy(np.stack(seen)), EPISODES
    )


def table_loop() -> Measured:
    torch_ = torch()
    torch_.manual_seed(0)
    table = torch_.zeros(64, 4, requires_grad=True)
    env = gym.make("FrozenLake8x8-v1", max_episode_steps=LIMIT)
    return loop(env, lambda states: table[states], [table], torch_.tensor, TABLE_EPISODES)


def a2c(environments: int) -> Measured:
    """Stable-Baselines3, the network apart as it comes."""
    baselines = importlib.import_module("stable_baselines3")
    make: Any = importlib.import_module("stable_baselines3.common.env_util").make_vec_env
    env = make("CartPole-v1", n_envs=environments, seed=0, env_kwargs={"max_episode_steps": LIMIT})
    kwargs = {"net_arch": [64, 64], "activation_fn": torch().nn.Tanh}
    model = baselines.A2C("MlpPolicy", env, policy_kwargs=kwargs, seed=0, device="cpu")
    start = time.perf_counter()
    model.learn(A2C_STEPS)
    rate = model.num_timesteps / (time.perf_counter() - start)
    return rate, float(np.mean([info["r"] for info in model.ep_info_buffer]))


def ours(problem: ox.Problem, algorithm: Any, episodes: int, seeds: int) -> Measured:
    """All of `ox.train`, once its program is compiled."""
    ox.train(problem, algorithm, episodes=epoch_episodes(algorithm), seeds=seeds, progress=False)
    start = time.perf_counter()
    result = ox.train(problem, algorithm, episodes=episodes, seeds=seeds, progress=False)
    rate = result.steps[:, -1].sum() / (time.perf_counter() - start)
    return rate, float(np.median(result.metrics["return"][:, -1]))


def compare(
    title: str, theirs: dict[str, Measured], mine: dict[tuple[str, int], Measured]
) -> Table:
    """Everything, with the ratios of Occupax with many seeds to it."""
    algorithms = [name for name, seeds in mine if seeds == SEEDS]
    shown = theirs | {
        f"Occupax, {name}, seeds: {seeds}": found for (name, seeds), found in mine.items()
    }

    def faster(rate: float) -> list[str]:
        return [f"{mine[name, SEEDS][0] / rate:,.1f}" for name in algorithms]

    rows = [
        [name, f"{rate:,.0f}", f"{reached:.2f}", *faster(rate)]
        for name, (rate, reached) in shown.items()
    ]
    columns = [
        "",
        "steps a second",
        "return",
        *(f"{name} with {SEEDS} seeds is faster by" for name in algorithms),
    ]
    targets = [
        at_least(
            WANTED,
            mine[algorithm, SEEDS][0] / rate,
            f"times the steps of {name}, {algorithm}",
            digits=1,
        )
        for name, (rate, _) in theirs.items()
        for algorithm in algorithms
    ]
    return Table(title, columns, rows, targets)


def measure() -> list[Table]:
    """CartPole, and FrozenLake8x8."""
    if any(importlib.util.find_spec(name) is None for name in ("torch", "stable_baselines3")):
        return [Table("CartPole and FrozenLake8x8", [], [], remarks=[SKIPPED])]
    reinforce = ox.REINFORCE(
        batch=BATCH, step_size=1.0, rule=optax.adam(1e-2)
    )  # the step size multiplies Adam's
    plain: dict[str, Any] = {
        "rule": "gradient",
        "weight_guard": None,
        "step_size": 5e-3,
        "radius": 0.1,
    }
    small = ox.TSIVRPG(snapshot_batch=25, batch=5, epoch_length=5, baseline="mean", **plain)
    pole = ox.Problem(ox.make("CartPole-v0"), discount=0.99)
    lake = ox.Problem(ox.make("FrozenLake8x8-v1"), discount=0.99, horizon=LIMIT)
    networks = {
        "PyTorch loop": fastest(network_loop),
        "A2C, 1 environment": fastest(lambda: a2c(1)),
        "A2C, 16 environments": fastest(lambda: a2c(16)),
    }
    our_networks = {
        (name, seeds): ours(pole, algorithm, EPISODES_OURS, seeds)
        for name, algorithm in (("REINFORCE", reinforce), ("TSIVR-PG", small))
        for seeds in (1, SEEDS)
    }
    tables = {"PyTorch loop": fastest(table_loop)}
    our_tables = {
        ("REINFORCE", seeds): ours(lake, reinforce, TABLE_EPISODES_OURS, seeds)
        for seeds in (1, SEEDS)
    }
    return [
        compare("CartPole, a network", networks, our_networks),
        compare("FrozenLake8x8, a table", tables, our_tables),
    ]


if __name__ == "__main__":
    show(measure())
