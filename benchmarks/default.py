"""Choose the algorithm that `occupax.train` takes by default, on the development half of the benchmark.

python benchmarks/default.py FOLDER        goes on with what the folder has already

The rule: among the candidates of which no run ends below its first policy by more than 5% of the way, the one with the
highest interquartile mean, over problems and seeds, of the mean score over the training. A candidate within 0.005 of it
is preferred if it is simpler: fresh gradients before those that are carried along. All have steps of Adam and the mean
as the baseline. Networks have a third of the step size that tables have.
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

import occupax as ox
from occupax.analysis.statistics import interquartile_mean
from occupax.bench import cells
from occupax.bench.families import problems
from occupax.bench.references import known_reference

SEEDS = 5
CANDIDATES = {
    "fresh, 10, step 0.03": ox.REINFORCE(10, step_size=0.03),
    "fresh, 20, step 0.03": ox.REINFORCE(20, step_size=0.03),
    "fresh, 20, step 0.06": ox.REINFORCE(20, step_size=0.06),
    "fresh, 30, step 0.04": ox.REINFORCE(30, step_size=0.04),
    "running occupancy, 20, step 0.03": ox.MaxEnt(20, mixing=0.5, step_size=0.03),
    "TSIVR-PG, 20 10 2, step 0.03": ox.TSIVRPG(20, 10, 2, step_size=0.03),
    "TSIVR-PG, 40 10 4, step 0.03": ox.TSIVRPG(40, 10, 4, step_size=0.03),
    "HSPGA, 20 5 2, step 0.03": ox.HSPGA(20, 5, 2, step_size=0.03),
}


def main(folder: Path) -> None:
    scores: dict[str, list[np.ndarray]] = {label: [] for label in CANDIDATES}
    for it in problems("full", "development"):
        known = known_reference(it, folder)
        assert known is not None, f"there is no reference for {it.name}"
        for label, algorithm in CANDIDATES.items():
            size = algorithm.step_size * (1 if it.tabular else 1 / 3)
            cell = cells.Cell(it, label, replace(algorithm, step_size=size), "default", SEEDS)
            done = cells.load(folder, cell)
            if done is None:
                done = cells.measure(cell)
                cells.save(folder, done)
            found = done.curve.scores(known.best, it.row.episodes)
            scores[label].append(np.array([found[name] for name in ("tenth", "third", "end", "mean")]))
            print(f"{it.name:28} {label:34}", *(f"{value.mean():6.3f}" for value in scores[label][-1]), flush=True)
    for label, found in scores.items():
        ends = np.array([score[2] for score in found])
        middles = [interquartile_mean(np.array([score[kind] for score in found]).ravel()) for kind in range(4)]
        print(f"{label:34}", *(f"{middle:6.3f}" for middle in middles), f"lost {np.sum(ends < -0.05)} of {ends.size}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
