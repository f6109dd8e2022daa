"""The folder of a run: `config.json` and the arrays that belong to it say what is run."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from occupax import serial
from occupax.training.setup import Setup, versions

FORMAT, VERSION = "occupax-run", 1
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
        raise ValueError(f"{file} has version {config.get('version')!r} of the format; this occupax reads {VERSION}.")
    arrays, _ = serial.read(folder / "config.safetensors")
    if _fingerprint(config.get("setup"), arrays) != config.get("fingerprint"):
        raise ValueError(f"{file} was changed after it was written: its set-up does not match its fingerprint.")
    return config, arrays


def begin(folder: Path, config: dict[str, Any], arrays: Arrays, resume: bool) -> None:
    """Write the configuration, unless another run lives in this folder."""
    if (folder / "config.json").exists():
        if not resume:
            raise ValueError(f"{folder} holds a run already: resume it (resume=True, --resume) or choose another.")
        found, _ = read_config(folder)
        if found["fingerprint"] != config["fingerprint"]:
            place = serial.difference(found["setup"], config["setup"])
            where = f" in {place.strip('/').replace('/', '.')}" if place else ""
            raise ValueError(
                f"{folder} holds another run, which differs{where}: resume it with what it was started with, or choose "
                "another folder."
            )
    write_config(folder, config, arrays)


def _fingerprint(description: Any, arrays: Arrays) -> str:
    """One word for a set-up: equal for equal ones, whatever process made it."""
    return serial.checksum(json.dumps(description, sort_keys=True), arrays)
