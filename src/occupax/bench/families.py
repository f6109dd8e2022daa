"""The families of problems, generated from a seed: half of them to develop with, and half to test on."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, get_args
from zlib import crc32

import numpy as np

from occupax.bench import tables
from occupax.bench.objectives import TABULAR, network_arguments
from occupax.envs import LQR, TabularMDP, make
from occupax.errors import check_integer, unknown
from occupax.io import codec
from occupax.problem import Problem

Half = Literal["development", "test"]
Suite = Literal["quick", "full"]


class Row(NamedTuple):
    """An environment, and the problems that are posed in it."""

    name: str
    utilities: tuple[str, ...]
    horizon: int
    episodes: int
    """How many episodes a run may sample."""
    draw: Callable[[np.random.Generator], TabularMDP | LQR] | None = None
    """Draws the environment; None where there is but the published one."""
    published: str = ""
    """Its Gymnasium id, if it has one; fresh problems have a drawn table instead."""
    discount: float = 0.99


class Family(NamedTuple):
    """Environments of one kind, all of them in one half of the benchmark."""

    half: Half
    says: str
    """What it is, in words."""
    rows: tuple[Row, ...]


def _garnet(states: int, actions: int, *utilities: str) -> Row:
    draw = partial(tables.garnet, num_states=states, num_actions=actions)
    return Row(f"garnet-{states}-{actions}", utilities, 60, 5_000, draw, discount=0.95)


def _linear(states: int, actions: int) -> Row:
    draw = partial(tables.linear, states=states, actions=actions)
    return Row(f"linear-{states}-{actions}", ("return",), 20, 10_000, draw, discount=0.95)


FAMILIES = {
    "lake": Family(
        "development",
        "FrozenLake and maps like it: every step on the ice may go astray, and holes end the episode",
        (
            Row(
                "lake-4",
                ("return", "entropy"),
                100,
                10_000,
                partial(tables.lake, size=4),
                "FrozenLake-v1",
            ),
            Row(
                "lake-8",
                ("return", "log-coverage"),
                200,
                20_000,
                partial(tables.lake, size=8),
                "FrozenLake8x8-v1",
            ),
            Row("lake-6", ("return", "target"), 100, 10_000, partial(tables.lake, size=6)),
        ),
    ),
    "chain": Family(
        "development",
        "corridors that pay at their far end",
        (
            Row("chain-10", ("return", "sum"), 60, 5_000, partial(tables.chain, n=10)),
            Row(
                "chain-20", ("log-coverage", "constraint"), 100, 5_000, partial(tables.chain, n=20)
            ),
        ),
    ),
    "garnet": Family(
        "development",
        "random transitions and rewards, of several sizes",
        (
            _garnet(10, 2, "return", "ratio"),
            _garnet(30, 4, "log-coverage", "target", "entropy"),
            _garnet(60, 3, "sum", "roots"),
            _garnet(100, 4, "return", "constraint"),
        ),
    ),
    "cartpole": Family(
        "development",
        "a pole on a cart, with a network as the policy",
        (
            Row(
                "cartpole",
                ("return", "log-coverage", "constraint"),
                500,
                1_500,
                published="CartPole-v1",
            ),
        ),
    ),
    "linear": Family(
        "development",
        "linear systems with quadratic costs, with a linear-normal policy, whose values are known exactly",
        (_linear(2, 1), _linear(4, 2)),
    ),
    "rewards": Family(
        "development",
        "several rewards at once on random transitions: fair shares, and the design of an experiment",
        (_garnet(20, 3, "soft-min", "nash-welfare", "log-det"),),
    ),
    "cliff": Family(
        "test",
        "walks along a cliff, from which a fall is expensive",
        (
            Row(
                "cliff",
                ("return", "log-coverage"),
                100,
                5_000,
                partial(tables.cliff, slip=0.0),
                "CliffWalking-v1",
            ),
            Row(
                "cliff-ice",
                ("return",),
                100,
                5_000,
                partial(tables.cliff, slip=tables.ICE),
                "CliffWalkingSlippery-v1",
            ),
            Row("cliff-drawn", ("entropy",), 100, 5_000, partial(tables.cliff, slip=0.1)),
        ),
    ),
    "taxi": Family(
        "test",
        "a taxi that is to pick up a passenger, with 500 states",
        (
            Row("taxi", ("return", "sum"), 100, 10_000, tables.taxi, "Taxi-v4"),
            Row("taxi-drawn", ("return",), 100, 10_000, tables.taxi),
        ),
    ),
    "grid": Family(
        "test",
        "grids with holes, in which some steps go astray",
        (
            Row("grid-5", ("return", "ratio"), 60, 10_000, partial(tables.grid, size=5)),
            Row(
                "grid-8",
                ("log-coverage", "target", "constraint"),
                100,
                10_000,
                partial(tables.grid, size=8),
            ),
            Row("grid-10", ("entropy", "roots"), 100, 10_000, partial(tables.grid, size=10)),
        ),
    ),
    "deep-sea": Family(
        "test",
        "dives of which a single one in very many finds the treasure",
        (
            Row("deep-sea-6", ("return",), 6, 5_000, partial(tables.deep_sea, size=6)),
            Row(
                "deep-sea-8", ("return", "log-coverage"), 8, 5_000, partial(tables.deep_sea, size=8)
            ),
            Row("deep-sea-10", ("sum",), 10, 5_000, partial(tables.deep_sea, size=10)),
        ),
    ),
    "demonstrations": Family(
        "test",
        "a drawn policy to be imitated on a grid with holes",
        (Row("grid-6", ("kl", "forward-kl"), 60, 10_000, partial(tables.grid, size=6)),),
    ),
    "acrobot": Family(
        "test",
        "a pendulum of two links, with a network as the policy",
        (Row("acrobot", ("return", "log-coverage"), 500, 1_000, published="Acrobot-v1"),),
    ),
    "mountain-car": Family(
        "test",
        "a weak car in a valley, with a network as the policy",
        (
            Row(
                "mountain-car",
                ("sum", "log-coverage", "entropy"),
                200,
                2_000,
                published="MountainCar-v0",
            ),
        ),
    ),
}
"""All problems of the benchmark; the half of a family is that of all its problems."""

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
"""The names of the problems of the quick suite."""


@dataclass(frozen=True)
class BenchProblem:
    """A problem of the benchmark."""

    family: str
    row: Row
    utility: str
    fresh: int | None = None
    """The seed of a new draw; None for the problems that are the same for everybody."""

    @property
    def name(self) -> str:
        """The names of its environment and its utility."""
        return f"{self.row.name}/{self.utility}"

    @property
    def half(self) -> Half:
        """That of its family."""
        return FAMILIES[self.family].half

    @property
    def tabular(self) -> bool:
        """Whether the policy is a table."""
        return isinstance(self.problem.env, TabularMDP)

    @cached_property
    def problem(self) -> Problem:
        """What is trained on."""
        given: dict[str, Any] = {"discount": self.row.discount, "horizon": self.row.horizon}
        if self.row.draw is None or (self.row.published and self.fresh is None):
            env = make(self.row.published)
        else:
            env = self.row.draw(self._random(self.row.name))
        if not isinstance(env, TabularMDP):
            return Problem(env, **network_arguments(self.row.name, self.utility), **given)
        return Problem(env, TABULAR[self.utility](self._random(self.name), env, given), **given)

    @cached_property
    def fingerprint(self) -> str:
        """A checksum of all that the problem is, so that nothing is taken for the outcome of another one."""
        text, arrays = codec.pack(self.problem)
        return codec.checksum(json.dumps(text), arrays)

    def _random(self, name: str) -> np.random.Generator:
        return np.random.default_rng(
            [0 if self.fresh is None else self.fresh + 1, crc32(name.encode())]
        )


def problems(
    suite: Suite = "full", half: Half | Literal["both"] = "both", fresh: int | None = None
) -> list[BenchProblem]:
    """The problems of the benchmark.

    Args:
        suite: "quick", eight of them, or "full".
        half: those of the families to develop with, of those to test on, or "both".
        fresh: a seed for new tables and targets of the same families, so that nobody can tune to
            those that are known. Problems without a table stay as they are.

    Returns:
        The problems; what each is trained on is made when it is asked for.
    """
    if suite not in get_args(Suite):
        raise unknown("suite", suite, get_args(Suite))
    if half not in (*get_args(Half), "both"):
        raise unknown("half", half, (*get_args(Half), "both"))
    seed = None if fresh is None else check_integer("fresh", fresh, minimum=0)
    found = [
        BenchProblem(name, row, utility, seed)
        for name, family in FAMILIES.items()
        for row in family.rows
        for utility in row.utilities
        if half in (family.half, "both")
    ]
    return [it for it in found if suite == "full" or it.name in QUICK]
