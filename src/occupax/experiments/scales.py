"""How much of everything is run."""

import re
from typing import Any, NamedTuple

from occupax.algorithms import Algorithm
from occupax.experiments.cells import Cell
from occupax.experiments.methods import budget
from occupax.experiments.tasks import COVERAGE, LAKE, TASKS, Task


class Scale(NamedTuple):
    """The size of the experiments."""

    name: str
    share: float
    """The share of the episodes of each task that are run."""
    most_seeds: int
    tasks: tuple[str, ...]
    """The names of the tasks that are run."""
    roots: tuple[int, ...]
    """The square roots of the snapshots N of the rate."""
    epochs: int
    """How many epochs the rate is measured over (E)."""
    notice: str
    """What a reader of the report should know."""

    def cell(self, setting: str, task: Task, label: str, algorithm: Algorithm[Any]) -> Cell:
        """A method on a task at this scale; experiments that need the same one share it."""
        name = "-".join(re.findall(r"[a-z0-9]+", f"{task.name} {setting} {label}".lower()))
        episodes = max(int(self.share * task.episodes), 4 * budget(algorithm).episodes(1))
        return Cell(name, task, algorithm, episodes, min(self.most_seeds, task.seeds))


QUICK = (
    "quick: a tenth of the episodes, 5 seeds, the lake only. It shows that everything runs; its verdicts are those of "
    "runs that are too short, and not to be quoted."
)
SCALES = {
    "quick": Scale("quick", 0.1, 5, (LAKE, COVERAGE), (4, 8, 16, 32), 50, QUICK),
    "full": Scale(
        "full", 1.0, 50, TASKS, (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128), 100, "full: all tasks, seeds and episodes."
    ),
}
