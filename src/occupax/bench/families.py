"""Families of benchmark problems: one half for development, one half for the test."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any, Literal, NamedTuple, get_args
from zlib import crc32

import numpy as np

from occupax.bench.generators import GENERATORS
from occupax.bench.objectives import Time, network_arguments, tabular_utility
from occupax.envs import LQR, TabularMDP, make
from occupax.errors import check_integer, unknown
from occupax.io import codec
from occupax.io.files import checksum
from occupax.problem import Problem

Half = Literal["development", "test"]
Suite = Literal["quick", "full"]
DISCOUNT = 0.99
"""Discount of entries that state none."""


class BenchEnv(NamedTuple):
    """Environment of the benchmark, and the utilities that make a problem of it."""

    name: str
    utilities: tuple[str, ...]
    horizon: int
    episodes: int
    """Budget of a run."""
    generator: str = ""
    """Name of the function that draws the environment. Empty if only the published one exists."""
    arguments: Mapping[str, Any] = {}
    """Arguments of the generator."""
    published: str = ""
    """Gymnasium id, if there is one. Fresh problems use the generator instead."""
    discount: float = DISCOUNT


class Family(NamedTuple):
    """Environments of one kind, which all belong to one half of the benchmark."""

    half: Half
    description: str
    entries: tuple[BenchEnv, ...]


def read_families() -> dict[str, Family]:
    """Return the families of `families.toml` by name."""
    source = files("occupax.bench") / "families.toml"
    families: dict[str, Family] = {}
    for name, family in tomllib.loads(source.read_text(encoding="utf-8")).items():
        entries: list[BenchEnv] = []
        for fields in family["entries"]:
            utilities = tuple(fields.pop("utilities"))
            entries.append(BenchEnv(utilities=utilities, **fields))
        families[name] = Family(family["half"], family["description"], tuple(entries))
    return families


FAMILIES = read_families()
QUICK = (
    "lake-4/return",
    "chain-20/log-coverage",
    "garnet-30-4/target",
    "cartpole/return",
    "cliff/return",
    "grid-8/constraint",
    "deep-sea-6/return",
    "grid-10/entropy",
)
"""Problems of the quick suite, by name."""


@dataclass(frozen=True)
class BenchProblem:
    """Problem of the benchmark."""

    family: str
    """Name of the family of problems."""
    entry: BenchEnv
    """Environment with discount and horizon."""
    utility: str
    """Name of the utility."""
    fresh: int | None = None
    """Seed of a new draw. None stands for the problems that are the same for everybody."""

    @property
    def name(self) -> str:
        """Name of the environment and of the utility."""
        return f"{self.entry.name}/{self.utility}"

    @property
    def half(self) -> Half:
        """Half of the benchmark that the family belongs to."""
        return FAMILIES[self.family].half

    @property
    def tabular(self) -> bool:
        """Whether the environment and the policy are tables."""
        return isinstance(self.problem.env, TabularMDP)

    @cached_property
    def problem(self) -> Problem:
        """Problem that runs train on."""
        time: Time = {"discount": self.entry.discount, "horizon": self.entry.horizon}
        env = self._make_env()
        if isinstance(env, TabularMDP):
            utility = tabular_utility(self.utility, self._random(self.name), env, time)
            return Problem(env, utility, **time)
        return Problem(env, **network_arguments(self.entry.name, self.utility), **time)

    @cached_property
    def fingerprint(self) -> str:
        """Checksum of the whole problem."""
        text, arrays = codec.pack(self.problem)
        return checksum(json.dumps(text), arrays)

    def _make_env(self) -> Any:
        entry = self.entry
        is_published = bool(entry.published) and self.fresh is None
        if is_published or not entry.generator:
            return make(entry.published)
        generate = GENERATORS[entry.generator]
        env: TabularMDP | LQR = generate(self._random(entry.name), **entry.arguments)
        return env

    def _random(self, name: str) -> np.random.Generator:
        seed = 0
        if self.fresh is not None:
            seed = self.fresh + 1
        return np.random.default_rng([seed, crc32(name.encode())])


def problems(
    suite: Suite = "full", half: Half | Literal["both"] = "both", fresh: int | None = None
) -> list[BenchProblem]:
    """Return the problems of the benchmark.

    Args:
        suite: "quick" for eight problems, or "full" for all.
        half: Families of the "development" half, of the "test" half, or "both".
        fresh: Seed of new tables and targets of the same families, to which nobody has tuned an
            algorithm. Problems without a table stay the same.

    Returns:
        The problems. Each builds its environment on first use.

    Raises:
        ValueError: If an argument is not one of the allowed values.
    """
    if suite not in get_args(Suite):
        raise unknown("suite", suite, get_args(Suite))
    halves = (*get_args(Half), "both")
    if half not in halves:
        raise unknown("half", half, halves)
    if fresh is not None:
        fresh = check_integer("fresh", fresh, minimum=0)
    selected: list[BenchProblem] = []
    for name, family in FAMILIES.items():
        if half not in (family.half, "both"):
            continue
        for entry in family.entries:
            selected += [BenchProblem(name, entry, utility, fresh) for utility in entry.utilities]
    if suite == "quick":
        selected = [problem for problem in selected if problem.name in QUICK]
    return selected
