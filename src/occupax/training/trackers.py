"""Loggers for experiment trackers: TensorBoard, and Weights & Biases."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from occupax.algorithms import Budget
from occupax.errors import check_path
from occupax.io.records import RecordTable
from occupax.training.loggers import Logger

EVENTS = "events.out.tfevents.*"


class TensorBoard(Logger):
    """Event files for TensorBoard in a directory, with one subdirectory for each seed.

    A resumed run writes all its records into a new file, which hides those of earlier files.

    Args:
        folder: directory of the event files.

    Raises:
        ValueError: if tensorboardX is not installed (extra `tensorboard`).
    """

    def __init__(self, folder: str | Path):
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise ValueError(
                "TensorBoard(folder) needs tensorboardX: install occupax[tensorboard]."
            ) from None
        check_path(folder, "folder")
        self._writer_class: Any = SummaryWriter
        self._folder = Path(folder)
        self._writers: list[Any] = []

    def open(self, seeds: Sequence[int], budget: Budget, table: RecordTable) -> None:
        """Create an event file for each seed, and log the records of the resumed run."""
        purge_step = None
        if len(table.episodes):
            purge_step = int(table.episodes[0])
        self._writers = []
        for seed in seeds:
            folder = self._folder / f"seed-{seed}"
            number = len(list(folder.glob(EVENTS)))  # file names differ in the second only
            writer = self._writer_class(
                str(folder), purge_step=purge_step, filename_suffix=f".{number}"
            )
            self._writers.append(writer)
        self.log(table)

    def log(self, table: RecordTable) -> None:
        """Log every metric, with the number of episodes as the step."""
        for i, writer in enumerate(self._writers):
            for name, values in table.metrics.items():
                for episodes, value in zip(table.episodes, values[i], strict=True):
                    writer.add_scalar(name, float(value), int(episodes))

    def close(self) -> None:
        """Close the event files."""
        for writer in self._writers:
            writer.close()


class WeightsAndBiases(Logger):
    """Runs of Weights & Biases, one for each seed, in one group.

    Args:
        project: name of the project.
        **options: arguments of `wandb.init`, such as mode="offline", dir=..., group=... or
            config=....

    Raises:
        ValueError: if wandb is not installed (extra `wandb`).
    """

    def __init__(self, project: str, **options: Any):
        try:
            import wandb
        except ImportError:
            raise ValueError(
                "WeightsAndBiases(project) needs wandb: install occupax[wandb]."
            ) from None
        self._wandb: Any = wandb
        self._project = project
        self._options = {"group": "occupax"} | options
        self._runs: list[Any] = []

    def open(self, seeds: Sequence[int], budget: Budget, table: RecordTable) -> None:
        """Start a run for each seed, and log the records of the resumed run."""
        self._runs = []
        for seed in seeds:
            options = {"name": f"seed-{seed}"} | self._options
            options |= {"project": self._project, "reinit": "create_new"}
            self._runs.append(self._wandb.init(**options))
        self.log(table)

    def log(self, table: RecordTable) -> None:
        """Log every metric that is not NaN, with the number of episodes as the step."""
        for i, run in enumerate(self._runs):
            for j, episodes in enumerate(table.episodes):
                metrics: dict[str, float] = {"steps": int(table.steps[i, j])}
                for name, values in table.metrics.items():
                    if not np.isnan(values[i, j]):
                        metrics[name] = float(values[i, j])
                run.log(metrics, step=int(episodes))

    def close(self) -> None:
        """Finish the runs."""
        for run in self._runs:
            run.finish()
