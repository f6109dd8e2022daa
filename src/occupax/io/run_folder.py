"""The folder of a run: `config.json` and its arrays say what is run, checkpoints where it can be taken up again."""

import json
import os
import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from occupax.errors import check_integer, check_integers, check_number
from occupax.io import codec
from occupax.io.checksummed_json import check_seal, read_json, write_sealed
from occupax.io.codec import Arrays
from occupax.training.setup import Setup, versions

try:
    import fcntl
except ImportError:  # where there are no locks of this kind, nobody is told
    fcntl = None

FORMAT, CHECKPOINT, VERSION = "occupax-run", "occupax-checkpoint", 3
CONFIG, ARRAYS = "config.json", "config.safetensors"


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
    codec.write(folder / ARRAYS, arrays, {"format": FORMAT})
    write_sealed(folder / CONFIG, config)


def read_config(folder: Path) -> tuple[dict[str, Any], Arrays]:
    """Read `config.json` and its arrays, and refuse what was changed by hand."""
    file = folder / CONFIG
    try:
        config = read_json(file)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{folder} is not the folder of a run: it has no config.json.") from None
    if config.get("format") != FORMAT:
        raise ValueError(f"{file} is not the configuration of a run.")
    if config.get("version") != VERSION:
        versions = config.get("versions")
        by = versions.get("occupax") if isinstance(versions, dict) else None
        raise ValueError(
            f"{file} has version {config.get('version')!r} of the format, and this occupax reads {VERSION}: use "
            f"occupax {by or 'of another version'}, which wrote it. Its policies can be loaded one by one."
        )
    config = check_seal(file, config)
    arrays, _ = codec.read(folder / ARRAYS)
    if _fingerprint(config.get("setup"), arrays) != config.get("fingerprint"):
        raise ValueError(
            f"{file} was changed after it was written: its set-up does not match its fingerprint."
        )
    try:
        _check_config(config)
    except (KeyError, TypeError, ValueError) as error:
        said = f"it has no {error}." if isinstance(error, KeyError) else error
        raise ValueError(f"{file} does not describe a run: {said}") from None
    return config, arrays


def _check_config(config: dict[str, Any]) -> None:
    """Refuse a configuration with parts that are missing, or that no run has."""
    check_integer("episodes", config["episodes"], maximum=2**63)
    setup = config["setup"]
    for name in ("problem", "algorithm", "policy"):
        if not isinstance(setup[name], dict | list):
            raise ValueError(
                f"{name} must be the description of an object, got {setup[name]!r:.60}."
            )
    if not isinstance(setup["seeds"], list) or not check_integers(
        "seeds", setup["seeds"], 0, 2**32 - 1
    ):
        raise ValueError(f"seeds must be a list of numbers, got {setup['seeds']!r:.60}.")
    check_integer("seed", setup["seed"], 0, 2**32 - 1)
    check_integer("record_every", setup["record_every"])
    flags = {"exact": setup["exact"], "float64": config["versions"]["float64"]}
    texts = {"random_numbers": setup["random_numbers"]}
    for kind, named in ((bool, flags), (str, texts)):
        for name, value in named.items():
            if type(value) is not kind:
                raise ValueError(f"{name} must be a {kind.__name__}, got {value!r:.60}.")


def untrusted_module(description: Any) -> str:
    """The module that is imported to make an environment in a description, because its id is module:id; or nothing."""
    match description:
        case {"class": str(), "fields": {"source": str() as source}} if ":" in source:
            return source.partition(":")[0]
        case dict():
            parts: Any = description.values()
        case list():
            parts = description
        case _:
            parts = ()
    return next((found for part in parts if (found := untrusted_module(part))), "")


def refuse_others_files(folder: Path, own: Iterable[str]) -> None:
    """Refuse a folder that is not empty, unless one of these files or folders shows that it is ours."""
    files = (
        [file for file in folder.iterdir() if not codec.UNFINISHED.fullmatch(file.name)]
        if folder.is_dir()
        else []
    )
    if files and not any((folder / name).exists() for name in own):
        raise ValueError(
            f"{folder} is not empty and holds no run: choose another folder, or an empty one."
        )


def refuse_another_run(folder: Path, config: dict[str, Any], arrays: Arrays, resume: bool) -> None:
    """Refuse a folder in which another run lives or, unless it is to be resumed, this one, or files of someone else."""
    written = (folder / CONFIG).exists()
    if not resume and (written or (folder / "checkpoint").exists()):
        raise ValueError(
            f"{folder} holds a run already: resume it (resume=True, --resume) or choose another."
        )
    for name in ("checkpoint", "policies", "models"):
        if (folder / name).is_symlink():
            raise ValueError(
                f"{folder / name} must be a folder of its own, but it is a link to another place."
            )
    if not written:
        refuse_others_files(folder, (ARRAYS, "checkpoint"))
        return
    found, found_arrays = read_config(folder)
    if (double := found["versions"]["float64"]) != config["versions"]["float64"]:
        precision, hint = (
            ("float64", "JAX_ENABLE_X64=1") if double else ("float32", "JAX_ENABLE_X64=0")
        )
        raise ValueError(
            f"{folder} holds a run in {precision}: resume it with {hint} in the environment."
        )
    if found["fingerprint"] != config["fingerprint"]:
        place = codec.difference(found["setup"], config["setup"])
        if place is None:  # the numbers are not in the description
            place = next(
                (name for name in arrays if not _same(arrays[name], found_arrays.get(name))), ""
            )
        where = " in " + ".".join(re.findall(r"\w+", place)) if place else ""
        raise ValueError(
            f"{folder} holds another run, which differs{where}: resume it with what it was started with, or choose "
            "another folder."
        )


@contextmanager
def locked(folder: Path | None) -> Generator[None]:
    """Keep a folder for this process, until it ends; another one that wants it, too, is told so."""
    if folder is None or fcntl is None:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(
            f"out must be a folder, but {folder} is none, or lies in something that is none."
        ) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"{folder} is in use by another training: wait for its end, or choose another."
            ) from None
        yield
    finally:
        os.close(descriptor)


def remove_unfinished(folder: Path) -> None:
    """Remove the temporary files that a process left behind when it was killed while it wrote."""
    for file in (*folder.glob(".*"), *folder.glob("*/.*")):
        if codec.UNFINISHED.fullmatch(file.name) and not file.is_symlink():
            with suppress(OSError):
                file.unlink()


class Checkpoints:
    """The last two checkpoints of a run, in a folder of their own; those with another fingerprint are refused."""

    def __init__(self, folder: Path, fingerprint: str):
        self._folder, self._fingerprint = folder, fingerprint

    def save(
        self, iteration: int, seconds: float, metrics: dict[str, Any] | None, arrays: Arrays
    ) -> None:
        """Write a checkpoint, then remove those before the last two; `metrics` is the mark of `metrics.csv`."""
        content = {"format": CHECKPOINT, "version": VERSION, "fingerprint": self._fingerprint}
        content |= {"iteration": iteration, "seconds": seconds, "metrics": metrics}
        codec.write(self._folder / f"iteration-{iteration:012d}.safetensors", arrays, content)
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
        arrays, content = codec.read(file)
        if content.get("format") != CHECKPOINT:
            raise ValueError(f"{file} is not a checkpoint of occupax.")
        version = content.get("version")
        if version != VERSION:
            raise ValueError(
                f"{file} has version {version!r} of the format; this occupax reads {VERSION}."
            )
        if content.get("fingerprint") != self._fingerprint:
            raise ValueError(
                f"{file} is a checkpoint of another run: problem, algorithm, policy or seeds differ."
            )
        check_integer("iteration", content.get("iteration"), 0, 2**63)
        check_number(f"seconds in {file}", content.get("seconds"), low=0.0)
        match content.get("metrics", ""):
            case None | {"bytes": int(), "sha256": str()}:
                pass
            case mark:
                raise ValueError(f"{file} must say how long metrics.csv was, got {mark!r:.60}.")
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
    return (
        other is not None
        and (one.dtype, one.shape) == (other.dtype, other.shape)
        and bool((one == other).all())
    )


def _fingerprint(description: Any, arrays: Arrays) -> str:
    return codec.checksum(json.dumps(description, sort_keys=True), arrays)
