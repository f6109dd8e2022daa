"""Run folders with one change each: plain damage, or a change with correct checksums."""

import copy
import json
import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import occupax as ox
from folders import reseal
from occupax.analysis import write_report
from occupax.cli.choices import restore
from occupax.io import codec
from occupax.io.files import read_arrays, write_arrays

EPISODES, MORE = 40, 60
HOSTILE: list[Any] = [
    *(
        None,
        True,
        -1,
        0,
        2,
        10**18,
        -(10**18),
        1.5,
        -0.5,
        1e300,
        "",
        "x" * 50,
        "os:system",
        "../../etc/passwd",
        [],
        {},
    ),
    *(
        [1],
        [[]],
        {"float": "nan"},
        {"float": "inf"},
        {"tuple": []},
        {"dict": {}},
        {"array": "problem", "kind": "numpy"},
    ),
    *(
        {"opaque": "os.system"},
        {"class": "os.system", "fields": {}},
        {"function": "tanh"},
        {"function": "eval"},
    ),
    *(
        {"class": "occupax.features.State", "fields": {}},
        {"class": "occupax.utilities.library.Reward", "fields": {}},
    ),
    {"class": "occupax.envs.gymnasium.GymnasiumEnv", "fields": {"source": "this:Id-v0"}},
]
"""What is put in the place of something else in JSON."""


def _numbers(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """The array with one number that makes no sense."""
    changed = np.array(array)
    if changed.size:
        limit = np.iinfo(changed.dtype).max if changed.dtype.kind in "iu" else 1e30
        number = (
            random.choice([-1, 5000, limit])
            if changed.dtype.kind in "iu"
            else random.choice([-1.0, np.nan, np.inf])
        )
        changed.reshape(-1)[random.integers(changed.size)] = (
            number if changed.dtype != bool else ~changed.flat[0]
        )
    return changed


ARRAYS = {
    "a number": _numbers,
    "another type": lambda array, _: array.astype(
        np.int16 if array.dtype.kind == "f" else np.float64
    ),
    "another precision": lambda array, _: (
        array.astype(np.float16) if array.dtype.kind == "f" else array.astype(np.int8)
    ),
    "an axis more": lambda array, _: array[None],
    "fewer rows": lambda array, _: array[:-1] if array.ndim else array[None],
    "more rows": lambda array, _: np.concatenate([array, array]) if array.ndim else array.repeat(3),
    "nothing": lambda array, _: np.zeros((0, *array.shape[1:]), array.dtype),
    "turned": lambda array, _: (
        np.array(array.T) if array.ndim > 1 else array[::-1].copy() if array.ndim else array
    ),
}
"""What is made of an array."""


CHAIN = ox.TabularMDP.chain(4)
COSTS = np.arange(8.0).reshape(4, 2)


def _table() -> tuple[Any, ...]:
    utility = ox.utilities.LogCoverage(0.1)
    return (
        ox.Problem(CHAIN, utility, discount=0.9, horizon=5),
        ox.REINFORCE(batch=4),
        ox.policies.tabular(0.5),
    )


def _limits() -> tuple[Any, ...]:
    limits = [
        ox.Constraint(COSTS, at_most=9.0),
        ox.Constraint(ox.utilities.Entropy(), at_least=0.2),
    ]
    utility = ox.utilities.KL(np.full(4, 0.25)) + ox.utilities.SoftMin(COSTS, 1 - COSTS)
    problem = ox.Problem(CHAIN, utility, discount=0.9, horizon=5, constraints=limits)
    return problem, ox.PlugIn(batch=4), ox.policies.tabular(0.5)


def _network() -> tuple[Any, ...]:
    grid = ox.features.Grid([-1.0, -1.0], [1.0, 1.0], [2, 3], coordinates=[0, 2])
    problem = ox.Problem(ox.make("CartPole-v1"), ox.utilities.Entropy(), horizon=5, features=grid)
    return problem, ox.TSIVRPG(snapshot_batch=8, batch=4, epoch_length=2), ox.policies.mlp((8,))


def _system() -> tuple[Any, ...]:
    return (
        ox.Problem(ox.envs.LQR.random(2, 1), horizon=5),
        ox.STORM(snapshot_batch=8, batch=4),
        ox.policies.gaussian(()),
    )


def _simulator() -> tuple[Any, ...]:
    env = ox.GymnasiumEnv("CartPole-v1", max_episode_steps=5)
    return (
        ox.Problem(env),
        ox.NVRPG(snapshot_batch=8, batch=4),
        ox.policies.mlp((4,), normalise=True),
    )


KINDS = {
    "table": _table,
    "limits": _limits,
    "network": _network,
    "system": _system,
    "simulator": _simulator,
}
"""Runs of several kinds, which have all kinds of parts."""


def make_run(folder: Path, kind: str = "table") -> None:
    """A small finished run, with two checkpoints."""
    problem, algorithm, policy = KINDS[kind]()
    options: dict[str, Any] = {"policy": policy, "progress": False, "seeds": 2, "record_every": 3}
    ox.train(problem, algorithm, EPISODES // 2, out=folder, **options)
    ox.train(problem, algorithm, EPISODES, out=folder, resume=True, **options)


def content_of(result: ox.Result) -> dict[str, Any]:
    """All that a result says of what was trained."""
    arrays = {f"metrics/{name}": values for name, values in result.metrics.items()}
    for i, policy in enumerate(result.policies):
        arrays |= {f"policy-{i}{name}": array for name, array in codec.named_arrays(policy).items()}
    arrays |= {"episodes": result.episodes, "steps": result.steps, "utilities": result.utilities}
    return {name: (str(it.dtype), it.shape, it.tobytes()) for name, it in arrays.items()} | {
        "status": result.status
    }


def places(tree: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All places in JSON."""
    parts = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    for key, part in parts:
        yield (*at, key)
        yield from places(part, (*at, key))


def change_json(tree: Any, random: np.random.Generator) -> str:
    """Insert a hostile value into JSON or delete one. Return the place and the change."""
    at = list(places(tree))[random.integers(len(list(places(tree))))]
    holder = tree
    for key in at[:-1]:
        holder = holder[key]
    way = random.integers(10)
    if way == 0:
        del holder[at[-1]]
        return f"{at} is taken out"
    if way == 1 and isinstance(holder, dict):
        holder[f"{at[-1]}x"] = holder.pop(at[-1])
        return f"{at} has another name"
    holder[at[-1]] = copy.deepcopy(HOSTILE[random.integers(len(HOSTILE))])
    return f"{at} is {holder[at[-1]]!r:.50}"


def change_file(file: Path, random: np.random.Generator) -> str:
    """Change what one file says, so that its own checksum is right."""
    if file.suffix == ".json":
        content = json.loads(file.read_text())
        said = change_json(content, random)
        file.write_text(json.dumps(content))
        return said
    if file.suffix == ".csv":
        rows = [line.split(",") for line in file.read_text().splitlines()]
        row = random.integers(len(rows))
        column = random.integers(len(rows[row]))
        word = ["", "x", "-1", "nan", "1e300", "9" * 30, "inf", "1.5", '"', "\0"][
            random.integers(10)
        ]
        rows[row][column] = word
        if random.integers(6) == 0:
            del rows[row]
        file.write_text("\n".join(",".join(row) for row in rows) + "\n")
        return f"line {row}, column {column} is {word!r:.20}"
    arrays, content = read_arrays(file)
    if random.integers(2) and content:
        said = change_json(content, random)
    else:
        name = sorted(arrays)[random.integers(len(arrays))] if arrays else ""
        way = sorted(ARRAYS)[random.integers(len(ARRAYS))]
        if random.integers(8) == 0 or not name:
            arrays.pop(name, None)
            said = f"{name} is taken out"
        else:
            arrays[name] = ARRAYS[way](arrays[name], random)
            said = f"{name} is {way}"
    write_arrays(file, arrays, content)
    return said


def damage_file(folder: Path, file: Path, random: np.random.Generator) -> str:
    """Damage one file as disks, editors and people do."""
    raw, way = bytearray(file.read_bytes()), random.integers(7)
    if way == 0:
        raw[random.integers(len(raw))] ^= 1 << random.integers(8)
        file.write_bytes(raw)
    elif way == 1:
        file.write_bytes(raw[: random.integers(len(raw))])
    elif way == 2:
        file.write_bytes(raw + raw[-20:])
    elif way == 3:
        file.unlink()
    elif way == 4:
        file.unlink()
        file.mkdir()
    elif way == 5:
        file.unlink()
        file.symlink_to(folder / "nowhere")
    else:
        others = [
            it
            for it in folder.rglob("*")
            if it.is_file() and it.suffix == file.suffix and it != file
        ]
        file.write_bytes(others[random.integers(len(others))].read_bytes() if others else b"")
    return ("a bit", "cut", "longer", "gone", "a folder", "a link", "another file")[way]


def files_of(folder: Path) -> list[Path]:
    """The files that are read of a run, in the order of their names: pages and pictures are not."""
    return sorted(
        it for it in folder.rglob("*") if it.is_file() and it.suffix not in (".html", ".png")
    )


def mutate(original: Path, folder: Path, number: int) -> str:
    """Make mutant number `number` of a run and return its description."""
    random = np.random.default_rng(number)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(original, folder)
    file = files_of(folder)[random.integers(len(files_of(folder)))]
    name = file.relative_to(folder)
    if random.integers(4) == 0:
        return f"{name}: {damage_file(folder, file, random)}, damaged"
    said = change_file(file, random)
    try:
        reseal(folder)
    except Exception as error:  # noqa: BLE001 - then it is damage that nobody can seal
        return f"{name}: {said} ({type(error).__name__})"
    return f"{name}: {said}, sealed"


def loaded(folder: Path, page: Path | None = None) -> dict[str, Any] | str:
    """Return the content of a run folder, after writing its report, or the error message."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = ox.load_result(folder)
            found = content_of(result)
            if page is not None:
                write_report([("run", result)], page)
    except ValueError as error:
        return str(error)
    return found


def resumed(folder: Path) -> dict[str, Any] | str:
    """Return the content of a resumed run, or the error message."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            training, _ = restore(folder)
            options = training.options | {"out": folder, "resume": True, "progress": False}
            return content_of(ox.train(training.problem, training.algorithm, MORE, **options))
    except ValueError as error:
        return str(error)


FREE = ("metrics.csv", "assessment.safetensors", "policies/", "summary.json", "checkpoint/")
"""Files with numbers that may be others: a checksum that is right does not tell what a run was
worth."""


def judge(said: str, before: Any, after: Any) -> str:
    """Return "refused", "same", "other numbers" (a file whose numbers may change) or "wrong"."""
    if isinstance(after, str):
        return (
            "refused"
            if after.strip().endswith((".", ")")) and "\n" not in after.strip()
            else "wrong"
        )
    if after == before:
        return "same"
    sealed = said.endswith("sealed")
    return "other numbers" if sealed and (said.startswith(FREE) or "config" in said) else "wrong"


def attack(say: Any, count: int = 500) -> dict[str, int]:
    """Load every mutant, report every fifth, and resume every second one that can be resumed."""
    import tempfile

    counts = {"folders": 0, "resumed": 0, "refused": 0, "same": 0, "other numbers": 0, "wrong": 0}
    with tempfile.TemporaryDirectory() as place:
        home, whole = Path(place), dict[tuple[str, str], Any]()
        for kind in KINDS:
            make_run(home / kind, kind)
            whole["load", kind] = loaded(home / kind, home / "page.html")
            shutil.copytree(home / kind, home / "more")
            whole["resume", kind] = resumed(home / "more")
            shutil.rmtree(home / "more")
        for number in range(count):
            kind = [*KINDS][number // 20 % len(KINDS)]
            page = home / "page.html" if number % 5 == 0 else None
            for way, play in (("load", partial(loaded, page=page)), ("resume", resumed)):
                said = mutate(home / kind, home / "mutant", number)
                starts = said.startswith(("config", "checkpoint", "metrics"))
                if way == "resume" and (number % 2 or not starts):
                    continue
                try:
                    outcome = judge(said, whole[way, kind], play(home / "mutant"))
                except BaseException as error:  # noqa: BLE001 - it must not happen
                    outcome = "wrong"
                    say(f"{kind} {number}, {way}, {said}: {type(error).__name__}: {error!s:.200}")
                else:
                    if outcome == "wrong":
                        say(f"{kind} {number}, {way}, {said}: {play(home / 'mutant')!s:.200}")
                counts["folders" if way == "load" else "resumed"] += 1
                counts[outcome] += 1
    return counts


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    print(attack(print, int(sys.argv[1])))  # noqa: T201
