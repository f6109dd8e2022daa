"""Folder of a run: `config.json` and its arrays describe the run, checkpoints resume it."""

import json
import platform
import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from occupax.errors import check_integer, check_integers, check_number
from occupax.io import codec
from occupax.io.codec import Arrays
from occupax.io.files import (
    UNFINISHED,
    check_header,
    check_json,
    checksum,
    header,
    read_arrays,
    read_json,
    write_arrays,
    write_json,
)
from occupax.io.lock import hold_lock

RUN = "occupax-run"
CHECKPOINT = "occupax-checkpoint"
CONFIG = "config.json"
ARRAYS = "config.safetensors"
CHECKPOINTS = "checkpoint"
MAX_CHECKPOINTS = 2
"""Number of checkpoints in a folder."""


def versions() -> dict[str, Any]:
    """Return the versions of the software and whether JAX computes in double precision."""
    return {
        "occupax": version("occupax"),
        "jax": jax.__version__,
        "equinox": eqx.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "float64": bool(jax.config.read("jax_enable_x64")),
    }


def make_config(
    description: dict[str, Any], arrays: Arrays, budget: Mapping[str, int | None]
) -> tuple[dict[str, Any], Arrays]:
    """Return the configuration of a run: its setup as JSON and arrays, with a fingerprint.

    The budget has the entries "episodes" and "steps", one of which is None.
    """
    config = {
        **header(RUN),
        "versions": versions(),
        **budget,
        "fingerprint": fingerprint(description, arrays),
        "setup": description,
    }
    return config, arrays


def fingerprint(description: Any, arrays: Arrays) -> str:
    """Return the checksum of the setup of a run."""
    return checksum(json.dumps(description, sort_keys=True), arrays)


def write_config(folder: Path, config: dict[str, Any], arrays: Arrays) -> None:
    """Write the arrays and then `config.json`, so that `config.json` implies the arrays."""
    write_arrays(folder / ARRAYS, arrays, header(RUN))
    write_json(folder / CONFIG, config)


def read_config(folder: Path) -> tuple[dict[str, Any], Arrays]:
    """Read and check `config.json` and its arrays."""
    file = folder / CONFIG
    try:
        content = read_json(file)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{folder} is not the directory of a run: it has no {CONFIG}.") from None
    check_header(file, content, RUN)
    config = check_json(file, content)
    arrays, _ = read_arrays(folder / ARRAYS)
    if fingerprint(config.get("setup"), arrays) != config.get("fingerprint"):
        raise ValueError(
            f"{file} was changed after it was written: its set-up does not match its fingerprint."
        )
    try:
        _check_config(config)
    except KeyError as error:
        raise ValueError(f"{file} does not describe a run: it has no {error}.") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"{file} does not describe a run: {error}") from None
    return config, arrays


def _check_config(config: dict[str, Any]) -> None:
    """Raise an error if parts of a configuration are missing or invalid."""
    units = [name for name in ("episodes", "steps") if config.get(name) is not None]
    if len(units) != 1:
        raise ValueError("one of episodes and steps must be a number, the other one null.")
    check_integer(units[0], config[units[0]], maximum=2**63)
    setup = config["setup"]
    for name in ("problem", "algorithm", "policy"):
        if not isinstance(setup[name], dict | list):
            raise ValueError(
                f"{name} must be the description of an object, got {setup[name]!r:.60}."
            )
    seeds = setup["seeds"]
    if not isinstance(seeds, list) or not check_integers("seeds", seeds, 0, 2**32 - 1):
        raise ValueError(f"seeds must be a list of numbers, got {seeds!r:.60}.")
    check_integer("seed", setup["seed"], 0, 2**32 - 1)
    check_integer("record_every", setup["record_every"])
    _check_type("exact", setup["exact"], bool)
    _check_type("float64", config["versions"]["float64"], bool)
    _check_type("random_numbers", setup["random_numbers"], str)


def _check_type(name: str, value: Any, kind: type) -> None:
    if type(value) is not kind:
        raise ValueError(f"{name} must be a {kind.__name__}, got {value!r:.60}.")


def untrusted_module(description: Any) -> str:
    """Return the module that an environment in a description imports, because its id is module:id.

    The result is empty if there is none.
    """
    match description:
        case {"class": str(), "fields": {"source": str() as source}} if ":" in source:
            return source.partition(":")[0]
        case dict():
            parts: Iterable[Any] = description.values()
        case list():
            parts = description
        case _:
            parts = ()
    for part in parts:
        module = untrusted_module(part)
        if module:
            return module
    return ""


def check_foreign_files(folder: Path, own: Iterable[str]) -> None:
    """Raise ValueError for a non-empty folder without any of these files or folders."""
    if not folder.is_dir() or any((folder / name).exists() for name in own):
        return
    if any(not UNFINISHED.fullmatch(file.name) for file in folder.iterdir()):
        raise ValueError(
            f"{folder} is not empty and holds no run: choose another directory, or an empty one."
        )


def check_same_run(folder: Path, config: dict[str, Any], arrays: Arrays, resume: bool) -> None:
    """Raise ValueError if a directory holds other files, or a run that may not be resumed."""
    has_config = (folder / CONFIG).exists()
    if not resume and (has_config or (folder / CHECKPOINTS).exists()):
        raise ValueError(
            f"{folder} holds a run already: resume it (resume=True, --resume) or choose another."
        )
    for name in (CHECKPOINTS, "policies", "models"):
        if (folder / name).is_symlink():
            raise ValueError(f"{folder / name} must be a directory, but is a symbolic link.")
    if not has_config:
        check_foreign_files(folder, (ARRAYS, CHECKPOINTS))
        return
    saved_config, saved_arrays = read_config(folder)
    _check_precision(folder, saved_config, config)
    if saved_config["fingerprint"] != config["fingerprint"]:
        path = codec.difference(saved_config["setup"], config["setup"])
        if path is None:  # numbers are in the arrays
            path = _different_array(arrays, saved_arrays)
        where = ".".join(re.findall(r"\w+", path))
        if where:
            where = f" in {where}"
        raise ValueError(
            f"{folder} holds another run, which differs{where}: resume it with the "
            "arguments of its start, or choose another directory."
        )


def _check_precision(folder: Path, saved: dict[str, Any], config: dict[str, Any]) -> None:
    is_double = saved["versions"]["float64"]
    if is_double == config["versions"]["float64"]:
        return
    precision = 32 * (1 + is_double)
    raise ValueError(
        f"{folder} holds a run in float{precision}: resume it with "
        f"JAX_ENABLE_X64={int(is_double)} in the environment."
    )


def _different_array(arrays: Arrays, others: Mapping[str, np.ndarray]) -> str:
    """Return the name of the first array that differs, or an empty text."""
    for name, array in arrays.items():
        other = others.get(name)
        if other is None or array.dtype != other.dtype or not np.array_equal(array, other):
            return name
    return ""


@contextmanager
def locked(folder: Path | None) -> Generator[None]:
    """Hold the lock of the folder of a run, or raise ValueError if another process has it."""
    if folder is None:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(
            f"out must be a directory, but {folder} or a parent of {folder} is a file."
        ) from None
    with hold_lock(folder) as is_held:
        if not is_held:
            raise ValueError(
                f"{folder} is in use by another training run: wait for its end, or choose another."
            )
        yield


class Checkpoints:
    """The newest checkpoints of a run. Each has the fingerprint of the run."""

    def __init__(self, folder: Path, fingerprint: str):
        self._folder = folder
        self._fingerprint = fingerprint

    def save(
        self, iteration: int, seconds: float, metrics: dict[str, Any] | None, arrays: Arrays
    ) -> None:
        """Write a checkpoint and remove old ones. `metrics` is the mark of `metrics.csv`."""
        content = {
            **header(CHECKPOINT),
            "fingerprint": self._fingerprint,
            "iteration": iteration,
            "seconds": seconds,
            "metrics": metrics,
        }
        write_arrays(self._folder / f"iteration-{iteration:012d}.safetensors", arrays, content)
        for file in self._newest_first()[MAX_CHECKPOINTS:]:
            file.unlink()

    def load(self) -> tuple[Arrays, dict[str, Any]] | None:
        """Read the newest checkpoint. The error for a damaged one names an older intact one."""
        files = self._newest_first()
        if not files:
            return None
        try:
            return self._read(files[0])
        except ValueError as error:
            raise ValueError(f"{error} {self._advice(files)}") from None

    def _read(self, file: Path) -> tuple[Arrays, dict[str, Any]]:
        arrays, content = read_arrays(file)
        check_header(file, content, CHECKPOINT)
        if content.get("fingerprint") != self._fingerprint:
            raise ValueError(
                f"{file} is a checkpoint of another run: problem, algorithm, policy or seeds "
                "differ."
            )
        check_integer("iteration", content.get("iteration"), 0, 2**63)
        check_number(f"seconds in {file}", content.get("seconds"), low=0.0)
        match content.get("metrics", ""):
            case None | {"bytes": int(), "sha256": str()}:
                return arrays, content
            case mark:
                raise ValueError(f"{file} must have the length of metrics.csv, got {mark!r:.60}.")

    def _advice(self, files: list[Path]) -> str:
        for file in files[1:]:
            try:
                self._read(file)
            except ValueError:
                continue
            return (
                f"The older checkpoint {file.name} is intact: delete {files[0].name} to resume "
                "from it."
            )
        return "No older checkpoint is intact: delete the directory to begin again."

    def _newest_first(self) -> list[Path]:
        return sorted(self._folder.glob("iteration-*.safetensors"), reverse=True)
