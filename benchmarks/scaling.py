"""Training time against the number of seeds, batches, horizon and states, one at a time.

TSIVR-PG maximises log coverage of a grid of 8 x 8 cells without an end, so that every step is live:
10 seeds, N = 100, B = N / 10, epochs of 10 iterations and a horizon of 100, but for what grows. The
last table trains networks on CartPole. Seconds are those of one epoch of twenty, compilation left
out, the best of three runs. The slope is that of the logarithm of the seconds over the logarithm of
what grows: 1 is linear, less is better. It is fitted to all sizes, and given for the last two
alone, where fixed costs matter least.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import occupax as ox
from occupax.experiments.methods import epoch_episodes
from tables import Table, at_most, show

REPEATS, EPOCHS = 3, 20
NOISE = 1.1
Case = tuple[ox.Problem, ox.TSIVRPG, int]
"""Problem, algorithm and seeds."""


def grid(side: int = 8, horizon: int = 100) -> ox.Problem:
    rows = ["S" + "." * (side - 1), *["." * side] * (side - 1)]
    env = ox.TabularMDP.gridworld("\n".join(rows), slip=0.2)
    return ox.Problem(env, ox.utilities.LogCoverage(0.125), discount=0.99, horizon=horizon)


def pole() -> ox.Problem:
    return ox.Problem(ox.make("CartPole-v0"), discount=0.99)


def tsivrpg(N: int = 100, **settings: Any) -> ox.TSIVRPG:
    usual: dict[str, Any] = {
        "snapshot_batch": N,
        "batch": N // 10,
        "epoch_length": 10,
        "step_size": 0.02,
    }
    return ox.TSIVRPG(**usual | settings)


def cost(case: Case) -> tuple[float, float]:
    """Seconds and live steps of an epoch."""
    problem, algorithm, seeds = case
    epoch = epoch_episodes(algorithm)

    def run(epochs: int) -> tuple[float, float]:
        result = ox.train(problem, algorithm, episodes=epochs * epoch, seeds=seeds, progress=False)
        return result.seconds / epochs, result.steps[:, -1].sum() / epochs

    run(1)
    return min(run(EPOCHS) for _ in range(REPEATS))


def scale(title: str, unit: str, sizes: Sequence[int], make: Callable[[int], Case]) -> Table:
    """The cost for each size, and how fast it grows."""
    costs = [cost(make(size)) for size in sizes]
    seconds = np.log([it[0] for it in costs])
    slope = float(np.polyfit(np.log(sizes), seconds, 1)[0])
    last = float((seconds[-1] - seconds[-2]) / np.log(sizes[-1] / sizes[-2]))
    rows = [
        [f"{size:,}", f"{took:.2e}", f"{took / size:.2e}", f"{1e9 * took / steps:,.1f}"]
        for size, (took, steps) in zip(sizes, costs, strict=True)
    ]
    columns = [unit, "seconds an epoch", f"the same, divided by {unit}", "nanoseconds a live step"]
    slopes = [(slope, "for the slope over all sizes"), (last, "for the slope between the last two")]
    return Table(title, columns, rows, [at_most(NOISE, found, says) for found, says in slopes])


def measure() -> list[Table]:
    """Everything that grows."""
    small = tsivrpg(N=25, batch=5, epoch_length=5, step_size=5e-3, baseline="mean")
    seeds = (1, 4, 16, 64, 256)
    return [
        scale("Seeds", "seeds", seeds, lambda seeds: (grid(), tsivrpg(), seeds)),
        scale(
            "Batches, N and B together",
            "N",
            (10, 100, 1_000, 10_000),
            lambda N: (grid(), tsivrpg(N), 10),
        ),
        scale(
            "Horizon",
            "steps",
            (10, 100, 1_000, 10_000),
            lambda horizon: (grid(horizon=horizon), tsivrpg(), 10),
        ),
        scale(
            "States",
            "states",
            (100, 400, 2_500, 10_000),
            lambda states: (grid(int(states**0.5)), tsivrpg(), 10),
        ),
        scale("Seeds of a network", "seeds", seeds[:4], lambda seeds: (pole(), small, seeds)),
    ]


if __name__ == "__main__":
    show(measure())
