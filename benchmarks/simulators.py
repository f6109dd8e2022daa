"""Throughput against the number of workers, for a Gymnasium environment of 1 ms per step.

REINFORCE with batches of 64 episodes of 25 steps and a network of 64 x 64, everything included but
start-up and compilation, which the first six of ten iterations pay for. A step either waits for a
millisecond, as for a simulator that runs elsewhere, or computes for one, which cannot be faster
than the cores of the machine. `Host()` steps the environments in this process one after the other,
`Host(processes=True)` in a process each, and `Ray` on a cluster of workers with one environment
each, all of them on this machine.
"""

import time
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

import occupax as ox
from tables import Table, at_least, show

BATCH, LENGTH, FIRST, ITERATIONS = 64, 25, 6, 10
WORKERS = (1, 2, 4, 8)
MILLISECOND = 1e-3


class Slow(gym.Env[Any, Any]):
    """Nothing happens, and that takes a millisecond or as long as is said."""

    def __init__(self, computes: bool, seconds: float = MILLISECOND):
        self.observation_space = gym.spaces.Box(-1, 1, (4,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self._computes, self._seconds, self._time = computes, seconds, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin."""
        super().reset(seed=seed, options=options)
        self._time = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Wait or compute."""
        if self._computes:
            end = time.perf_counter() + self._seconds
            while time.perf_counter() < end:
                pass
        else:
            time.sleep(self._seconds)
        self._time += 1
        return np.zeros(4, np.float32), float(action), False, self._time == LENGTH, {}


def rate(computes: bool, sampler: Any) -> float:
    """Steps a second after the first iterations."""
    problem = ox.Problem(ox.GymnasiumEnv(partial(Slow, computes)), horizon=LENGTH)
    times: list[float] = []
    episodes = BATCH * ITERATIONS
    ox.train(
        problem,
        ox.REINFORCE(batch=BATCH),
        episodes,
        sampler=sampler,
        progress=False,
        callbacks=[lambda _: times.append(time.perf_counter())],
    )
    return BATCH * LENGTH * (ITERATIONS - FIRST) / (times[-1] - times[FIRST - 1])


def table(computes: bool) -> Table:
    """One row for each number of workers."""
    alone = rate(computes, ox.samplers.Host(envs=1))
    rows = [["Host()", "1", f"{alone:,.0f}", "1.0"]]
    of_ray: dict[int, float] = {}
    for workers in WORKERS:
        kinds = {
            "Host(processes=True)": ox.samplers.Host(envs=workers, processes=True),
            "Ray()": ox.samplers.Ray(workers=workers),
        }
        for name, sampler in kinds.items():
            found = rate(computes, sampler)
            rows.append([name, str(workers), f"{found:,.0f}", f"{found / alone:.1f}"])
            if name == "Ray()":
                of_ray[workers] = found / alone
    most = 2 if computes else WORKERS[-1]
    target = at_least(0.75 * most, of_ray[most], f"times one process with {most} workers of Ray", 1)
    overhead = 1000 / alone - 1
    return Table(
        "A step computes" if computes else "A step waits",
        ["sampler", "workers", "steps/s", "times one process"],
        rows,
        [target],
        [f"Besides its millisecond, a step of one environment takes {overhead:.1f} ms of a core."],
    )


def measure() -> list[Table]:
    """Both kinds of steps."""
    return [table(computes=False), table(computes=True)]


if __name__ == "__main__":
    show(measure())
