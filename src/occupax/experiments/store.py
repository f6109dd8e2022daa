"""Work that takes a while and leaves arrays behind: each piece is kept in a file, and not done again."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from occupax.experiments.progress import Job, share_jobs
from occupax.io.files import read_arrays, write_arrays
from occupax.io.run_folder import versions
from occupax.training.loggers import Logger

Arrays = dict[str, np.ndarray]
SECONDS = "seconds"
"""The name of the array that says how many seconds of a core a piece of work took."""


@dataclass(frozen=True)
class Unit:
    """A piece of work."""

    name: str
    """What its file is called."""
    description: Mapping[str, Any]
    """All that the arrays depend on, besides the versions of the software."""
    seconds: float
    """How long it takes, roughly."""
    work: Callable[[Logger], Arrays]

    def stored(self, folder: Path) -> Arrays | None:
        """Its arrays, if the folder has them, from the same description and versions."""
        file = self._file(folder)
        arrays, content = read_arrays(file) if file.exists() else ({}, {})
        return dict(arrays) if content.get("of") == self._content() else None

    def do(self, folder: Path, logger: Logger) -> Arrays:
        """Do the work, and keep what comes of it."""
        began = time.process_time()
        arrays = self.work(logger) | {SECONDS: np.asarray(time.process_time() - began)}
        write_arrays(self._file(folder), arrays, {"of": self._content()})
        return arrays

    def _content(self) -> dict[str, Any]:
        return {**self.description, "versions": versions()}

    def _file(self, folder: Path) -> Path:
        return folder / "units" / f"{self.name}.safetensors"


def run_units(folder: Path, units: Sequence[Unit], progress: bool = True) -> dict[str, Arrays]:
    """The arrays of all units by name; those that the folder has are not worked out again.

    Several processes may do so at the same time.
    """
    every = {unit.name: unit for unit in units}
    done = {
        name: found for name, unit in every.items() if (found := unit.stored(folder)) is not None
    }

    def work(unit: Unit, logger: Logger) -> None:
        done[unit.name] = unit.stored(folder) or unit.do(folder, logger)

    left = [
        Job(unit.name, unit.seconds, partial(work, unit))
        for name, unit in every.items()
        if name not in done
    ]
    share_jobs(left, folder / "locks", progress)
    return {name: done[name] for name in every}
