"""Training in Gymnasium against the speed of the simulator itself.

Environment steps a second of `ox.train` with `Host(envs=32)`, everything included but start-up and
compilation: the policy, records and all updates of the last iterations of each training, which the
first iterations are left out of. The network is 64 x 64 with tanh, and episodes are cut at 200
steps. Beside it stands what the simulator does by itself: 32 CartPoles in Gymnasium's
`SyncVectorEnv`, and one after the other of a simulator whose step computes for a tenth of a
millisecond or for one, all with random actions. A share is that of one round, in which the
simulator is measured right before and right after the training; the median of three rounds is
shown. Processes share the environments evenly, and there are as many as cores.
"""

import importlib.util
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import gymnasium as gym

import occupax as ox
from simulators import LENGTH, Slow
from tables import Table, at_least, show

ENVS, HORIZON, ROUNDS, SECONDS = 32, 200, 3, 1.0
FIRST, ITERATIONS = 5, 12
TENTH, ONE = 1e-4, 1e-3
WANTED_CARTPOLE, WANTED_SLOW = 0.6, 0.8
SKIPPED = (
    "A2C of Stable-Baselines3 was skipped: it needs torch and stable-baselines3, "
    "which `pip install .[bench]` installs."
)


def own_speed(step: Callable[[], Any], steps: int) -> float:
    """Steps a second of a simulator, of which a call takes so many."""
    calls, start = 0, time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        step()
        calls += 1
    return calls * steps / (time.perf_counter() - start)


def cartpoles() -> float:
    """Return the steps per second of Gymnasium's vector environment."""
    vector = gym.make_vec("CartPole-v1", num_envs=ENVS, vectorization_mode="sync")
    vector.reset(seed=0)
    return own_speed(lambda: vector.step(vector.action_space.sample()), ENVS)


def slow(seconds: float) -> float:
    """Return the speed of a simulator whose step takes the given time."""
    env = Slow(computes=True, seconds=seconds)
    env.reset(seed=0)
    return own_speed(lambda: env.step(env.action_space.sample()), 1)


def training(problem: ox.Problem, algorithm: Any, episodes: int, sampler: Any) -> float:
    """Steps a second after the first iterations."""
    times: list[float] = []
    mark = [lambda _: times.append(time.perf_counter())]
    result = ox.train(problem, algorithm, episodes, sampler=sampler, progress=False, callbacks=mark)
    steps = result.steps[0]
    return float(steps[-1] - steps[FIRST]) / (times[-1] - times[FIRST])


def a2c() -> float:
    """Return the speed of Stable-Baselines3 with as many environments and defaults."""
    from published import a2c

    return a2c(ENVS)[0]


def compare(
    title: str,
    itself: Callable[[], float],
    others: dict[str, Callable[[], float]],
    wanted: dict[str, float],
) -> Table:
    """The simulator by itself and everything that trains in it, with the shares of its speed."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in others}
    speeds: list[float] = []
    for _ in range(ROUNDS):
        for name, train in others.items():
            before, rate, after = itself(), train(), itself()
            speeds += [before, after]
            found[name].append((rate, 2 * rate / (before + after)))
    shares = {name: median(share for _, share in rounds) for name, rounds in found.items()}
    rows = [["the simulator", f"{median(speeds):,.0f}", "1.00"]]
    rows += [
        [name, f"{median(rate for rate, _ in found[name]):,.0f}", f"{share:.2f}"]
        for name, share in shares.items()
    ]
    targets = [
        at_least(least, shares[name], f"of the speed of the simulator with {name}", 2)
        for name, least in wanted.items()
    ]
    return Table(title, ["", "steps a second", "share"], rows, targets)


def in_cartpole() -> Table:
    """32 CartPoles."""
    problem = ox.Problem(ox.make("CartPole-v1", "gymnasium"), discount=0.99, horizon=HORIZON)
    here, processes = (
        ox.samplers.Host(envs=ENVS),
        ox.samplers.Host(envs=ENVS, processes=os.cpu_count() or 1),
    )
    reinforce, large = (
        ox.REINFORCE(batch=128),
        ox.TSIVRPG(snapshot_batch=256, batch=128, epoch_length=4),
    )
    others: dict[str, Callable[[], float]] = {
        "REINFORCE, B = 128": partial(training, problem, reinforce, 128 * ITERATIONS, here),
        "TSIVR-PG, N = 256, B = 128": partial(
            training, problem, large, 128 * (ITERATIONS + 3), here
        ),
        f"REINFORCE, B = 128, {processes.processes} processes": partial(
            training, problem, reinforce, 128 * ITERATIONS, processes
        ),
    }
    wanted = dict.fromkeys(list(others)[:2], WANTED_CARTPOLE)
    installed = all(importlib.util.find_spec(name) for name in ("torch", "stable_baselines3"))
    if installed:
        others[f"A2C of Stable-Baselines3, {ENVS} environments"] = a2c
    table = compare("32 CartPoles", cartpoles, others, wanted)
    return table if installed else replace(table, remarks=[SKIPPED])


def in_slow(seconds: float) -> Table:
    """A simulator that takes so long over a step."""
    problem = ox.Problem(ox.GymnasiumEnv(partial(Slow, True, seconds)), horizon=LENGTH)
    episodes = ENVS * max(1, round(TENTH / seconds * 4))
    processes = ox.samplers.Host(envs=ENVS, processes=os.cpu_count() or 1)
    samplers = {
        f"REINFORCE, B = {episodes}": ox.samplers.Host(envs=ENVS),
        f"REINFORCE, B = {episodes}, {processes.processes} processes": processes,
    }
    train = partial(training, problem, ox.REINFORCE(batch=episodes), episodes * ITERATIONS)
    others = {name: partial(train, sampler) for name, sampler in samplers.items()}
    wanted = dict.fromkeys(list(others)[:1], WANTED_SLOW)
    return compare(
        f"A step computes for {seconds * 1e3:g} ms", partial(slow, seconds), others, wanted
    )


def measure() -> list[Table]:
    """CartPole, and simulators that take longer."""
    return [in_cartpole(), in_slow(TENTH), in_slow(ONE)]


if __name__ == "__main__":
    show(measure())
