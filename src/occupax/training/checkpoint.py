"""Places where a run can be taken up again."""

from pathlib import Path
from typing import Any

import numpy as np

from occupax import serial

FORMAT, VERSION = "occupax-checkpoint", 2
KEPT = 2

Arrays = dict[str, np.ndarray]


class Checkpoints:
    """The last two checkpoints of a run, in a folder of their own."""

    def __init__(self, folder: Path, fingerprint: str):
        """Checkpoints of a run with another fingerprint are refused."""
        self._folder, self._fingerprint = folder, fingerprint

    def save(self, iteration: int, seconds: float, arrays: Arrays) -> None:
        """Write a checkpoint, then remove those before the last two."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            "fingerprint": self._fingerprint,
            "iteration": iteration,
            "seconds": seconds,
        }
        serial.write(self._folder / f"iteration-{iteration:012d}.safetensors", arrays, content)
        for old in self._found()[KEPT:]:
            old.unlink()

    def load(self) -> tuple[Arrays, dict[str, Any]] | None:
        """Read the newest checkpoint, if there is one; one that is not whole is refused, and an older one offered."""
        found = self._found()
        if not found:
            return None
        try:
            return self._read(found[0])
        except ValueError as error:
            raise ValueError(f"{error} {self._offer(found)}") from None

    def _read(self, file: Path) -> tuple[Arrays, dict[str, Any]]:
        arrays, content = serial.read(file)
        if content.get("format") != FORMAT:
            raise ValueError(f"{file} is not a checkpoint of occupax.")
        if content.get("version") != VERSION:
            raise ValueError(
                f"{file} has version {content.get('version')!r} of the format; this occupax reads {VERSION}."
            )
        if content.get("fingerprint") != self._fingerprint:
            raise ValueError(f"{file} is a checkpoint of another run: problem, algorithm, policy or seeds differ.")
        return arrays, content

    def _offer(self, found: list[Path]) -> str:
        for older in found[1:]:
            try:
                self._read(older)
            except ValueError:
                continue
            return f"The older checkpoint {older.name} is intact: delete {found[0].name} to go on from there."
        return "No older checkpoint is intact: delete the folder to begin again."

    def _found(self) -> list[Path]:
        """The newest first."""
        return sorted(self._folder.glob("iteration-*.safetensors"), reverse=True)
