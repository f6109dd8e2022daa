"""Loggers for programs that show trainings: TensorBoard and Weights & Biases."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from occupax.errors import check_path
from occupax.io.records import RecordTable
from occupax.training.loggers import Logger

EVENTS = "events.out.tfevents.*"


class TensorBoard(Logger):
    """Event files for TensorBoard in a folder, one folder a seed; needs the extra `tensorboard`.

    A training that is resumed writes what its earlier files do not have yet.
    """

    def __init__(self, folder: str | Path):
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise ValueError(
                "TensorBoard(folder) needs tensorboardX: install occupax[tensorboard]."
            ) from None
        check_path(folder, "folder")
        self._make, self._folder = SummaryWriter, Path(folder)
        self._writers: list[Any] = []
        self._done: list[dict[str, int]] = []

    def open(self, seeds: Sequence[int], budget: int, table: RecordTable) -> None:
        """Begin new files; with records of an earlier part of the training, behind what its files have."""
        folders = [self._folder / f"seed-{seed}" for seed in seeds]
        self._done = [_last_steps(folder) if len(table.episodes) else {} for folder in folders]
        suffixes = [
            f".{len(list(folder.glob(EVENTS)))}" for folder in folders
        ]  # names have the second, no more
        pairs = zip(folders, suffixes, strict=True)
        self._writers = [
            self._make(str(folder), filename_suffix=suffix) for folder, suffix in pairs
        ]
        self.log(table)

    def log(self, table: RecordTable) -> None:
        """Write every number that is not there yet, with the episodes as the step."""
        for i, (writer, done) in enumerate(zip(self._writers, self._done, strict=True)):
            for name, column in table.metrics.items():
                for episodes, number in zip(table.episodes, column[i], strict=True):
                    if episodes > done.get(name, -1):
                        writer.add_scalar(name, float(number), int(episodes))

    def close(self) -> None:
        """Write what is left, and close the files."""
        for writer in self._writers:
            writer.close()


def _last_steps(folder: Path) -> dict[str, int]:
    """The last step of each number in the event files of a folder; one that was cut short ends where it is whole."""
    from tensorboardX.proto import event_pb2

    found: dict[str, int] = {}
    for file in folder.glob(EVENTS):
        content, place = file.read_bytes(), 0
        while place + 12 <= len(
            content
        ):  # a length in 8 bytes, its checksum in 4, the event, and its checksum
            (length,) = struct.unpack_from("<Q", content, place)
            if place + 16 + length > len(content):
                break
            event: Any = cast("Any", event_pb2).Event.FromString(
                content[place + 12 : place + 12 + length]
            )
            place += 16 + length
            found |= {it.tag: max(event.step, found.get(it.tag, -1)) for it in event.summary.value}
    return found


class WeightsAndBiases(Logger):
    """Runs of Weights & Biases, one a seed, in one group; needs the extra `wandb`.

    Args:
        project: the name of the project.
        **options: passed to `wandb.init`, such as mode="offline", dir=..., group=... or config=...
    """

    def __init__(self, project: str, **options: Any):
        try:
            import wandb
        except ImportError:
            raise ValueError(
                "WeightsAndBiases(project) needs wandb: install occupax[wandb]."
            ) from None
        self._wandb, self._project, self._options = wandb, project, {"group": "occupax"} | options
        self._runs: list[Any] = []

    def open(self, seeds: Sequence[int], budget: int, table: RecordTable) -> None:
        """Begin a run for each seed, and log what there is already."""
        fixed = {"project": self._project, "reinit": "create_new"}
        self._runs = [
            self._wandb.init(**{"name": f"seed-{seed}"} | self._options | fixed) for seed in seeds
        ]
        self.log(table)

    def log(self, table: RecordTable) -> None:
        """Log every record, with the episodes as the step; what is not a number is left out."""
        for i, run in enumerate(self._runs):
            for j, episodes in enumerate(table.episodes):
                numbers = {name: float(column[i, j]) for name, column in table.metrics.items()}
                known = {name: number for name, number in numbers.items() if not np.isnan(number)}
                run.log({**known, "steps": int(table.steps[i, j])}, step=int(episodes))

    def close(self) -> None:
        """End the runs."""
        for run in self._runs:
            run.finish()
