"""The folder of a run: `config.json` and the arrays that belong to it say what is run."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from occupax import serial
from occupax.training.setup import Setup, versions

FORMAT, VERSION = "occupax-run", 2
Arrays = dict[str, np.ndarray]


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
        where = f" in {_words(place)}" if place else ""
        raise ValueError(
            f"{folder} holds another run, which differs{where}: resume it with what it was started with, or choose "
            "another folder."
        )


def _same(one: np.ndarray, other: np.ndarray | None) -> bool:
    return other is not None and (one.dtype, one.shape) == (other.dtype, other.shape) and bool((one == other).all())


def _words(place: str) -> str:
    """A place in a description or the name of an array, as words with dots between them."""
    return ".".join(re.findall(r"\w+", place))


def _fingerprint(description: Any, arrays: Arrays) -> str:
    """One word for a set-up: equal for equal ones, whatever process made it."""
    return serial.checksum(json.dumps(description, sort_keys=True), arrays)
