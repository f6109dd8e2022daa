"""How the settings of `examples/learning.py` were found: the same sweep for every problem, on other seeds.

python examples/tuning.py lake               one of them
python examples/tuning.py                    all of them, about ten minutes on two cores
"""

import sys
from typing import Any

import learning

import occupax as ox

TUNING_SEED = 1
OVER: dict[str, dict[str, list[Any]]] = {
    "lake": {"step_size": [1.0, 3.0, 10.0], "radius": [0.05, 0.1, 0.2], "baseline": ["none", "mean"]},
    "coverage": {"step_size": [0.01, 0.02, 0.05], "radius": [0.1, 0.2, 0.4], "baseline": ["none", "mean"]},
    "constraint": {"step_size": [0.03, 0.1, 0.3], "radius": [0.1, 0.2, 0.4], "baseline": ["none", "mean"]},
    "cartpole": {"step_size": [5e-3, 2e-2], "radius": [0.03, 0.1], "baseline": ["none", "mean"]},
    "acrobot": {"step_size": [5e-3, 2e-2], "radius": [0.03, 0.1], "baseline": ["none", "mean"]},
}


def main() -> None:
    for name in sys.argv[1:] or OVER:
        lesson = learning.LESSONS[name]
        found = ox.sweep(lesson.problem, lesson.algorithm, OVER[name], lesson.episodes, seeds=3, seed=TUNING_SEED)
        print(f"{name}: utility after {lesson.episodes:,} episodes, mean of 3 seeds")
        print(found)


if __name__ == "__main__":
    main()
