"""The folder of a run: `config.json` and its arrays say what is run, checkpoints where it can be taken up again."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from occupax import serial
from occupax.serial import Arrays
from occupax.training.setup import Setup, versions

FORMAT, CHECKPOINT, VERSION = "occupax-run", "occupax-checkpoint", 2


def make_config(setup: Setup, episodes: int) -> tuple[dict[str, Any], Arrays]:
    """All that is needed to run a set-up again."""
    description, arrays = setup.description()
    config = {
        "format": FORMAT,
        "version": VERSION,
        "versions": versions(),
        "episodes": episodes,
        "fingerprint": _fingerprint(description, arrays),
        "setup": description,
    }
    return config, arrays


def write_config(folder: Path, config: dict[str, Any], arrays: Arrays) -> None:
    """Write the arrays first: where there is a `config.json`, there is everything."""
    serial.write(folder / "config.safetensors", arrays, {"format": FORMAT})
    serial.write_text(folder / "config.json", json.dumps(config, indent=1))


def read_config(folder: Path) -> tuple[dict[str, Any], Arrays]:
    """Read `config.json` and its arrays, and refuse what was changed by hand."""
    file = folder / "config.json"
    try:
        config = json.loads(file.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{folder} is not the folder of a run: it has no config.json.") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{file} cannot be read: {error}.") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ValueError(f"{file} is not the configuration of a run.")
    if config.get("version") != VERSION:
        versions = config.get("versions")
        by = versions.get("occupax") if isinstance(versions, dict) else None
        raise ValueError(
            f"{file} has version {config.get('version')!r} of the format, and this occupax reads {VERSION}: use "
            f"occupax {by or 'of another version'}, which wrote it. Its policies can be loaded one by one."
        )
    arrays, _ = serial.read(folder / "config.safetensors")
    if _fingerprint(config.get("setup"), arrays) != config.get("fingerprint"):
        raise ValueError(f"{file} was changed after it was written: its set-up does not match its fingerprint.")
    return config, arrays


def refuse_another_run(folder: Path, config: dict[str, Any], arrays: Arrays, resume: bool) -> None:
    """Refuse a folder in which another run lives or, unless it is to be resumed, this one."""
    written = (folder / "config.json").exists()
    if not resume and (written or (folder / "checkpoint").exists()):
        raise ValueError(f"{folder} holds a run already: resume it (resume=True, --resume) or choose another.")
    if not written:
        return
    found, found_arrays = read_config(folder)
    if found["fingerprint"] != config["fingerprint"]:
        place = serial.difference(found["setup"], config["setup"])
        if place is None:  # the numbers are not in the description
            place = next((name for name in arrays if not _same(arrays[name], found_arrays.get(name))), "")
        where = " in " + ".".join(re.findall(r"\w+", place)) if place else ""
        raise ValueError(
            f"{folder} holds another run, which differs{where}: resume it with what it was started with, or choose "
            "another folder."
        )


class Checkpoints:
    """The last two checkpoints of a run, in a folder of their own; those with another fingerprint are refused."""

    def __init__(self, folder: Path, fingerprint: str):
        self._folder, self._fingerprint = folder, fingerprint

    def save(self, iteration: int, seconds: float, arrays: Arrays) -> None:
        """Write a checkpoint, then remove those before the last two."""
        content = {"format": CHECKPOINT, "version": VERSION, "fingerprint": self._fingerprint}
        content |= {"iteration": iteration, "seconds": seconds}
        serial.write(self._folder / f"iteration-{iteration:012d}.safetensors", arrays, content)
        for old in self._newest_first()[2:]:
            old.unlink()

    def load(self) -> tuple[Arrays, dict[str, Any]] | None:
        """Read the newest checkpoint, if there is one; one that is not whole is refused, and an older one offered."""
        found = self._newest_first()
        if not found:
            return None
        try:
            return self._read(found[0])
        except ValueError as error:
            raise ValueError(f"{error} {self._offer(found)}") from None

    def _read(self, file: Path) -> tuple[Arrays, dict[str, Any]]:
        arrays, content = serial.read(file)
        if content.get("format") != CHECKPOINT:
            raise ValueError(f"{file} is not a checkpoint of occupax.")
        version = content.get("version")
        if version != VERSION:
            raise ValueError(f"{file} has version {version!r} of the format; this occupax reads {VERSION}.")
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

    def _newest_first(self) -> list[Path]:
        return sorted(self._folder.glob("iteration-*.safetensors"), reverse=True)


def _same(one: np.ndarray, other: np.ndarray | None) -> bool:
    return other is not None and (one.dtype, one.shape) == (other.dtype, other.shape) and bool((one == other).all())


def _fingerprint(description: Any, arrays: Arrays) -> str:
    return serial.checksum(json.dumps(description, sort_keys=True), arrays)
