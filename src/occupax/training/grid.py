"""Grid of a sweep over hyperparameters of the algorithm, the policy and the problem."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from operator import eq
from typing import Any, NamedTuple, TypeVar

import numpy as np

from occupax.algorithms import Algorithm
from occupax.errors import unknown
from occupax.policies import ConfiguredInitialiser
from occupax.problem import Problem
from occupax.progress import ProgressBar
from occupax.samplers import Sampler
from occupax.training.execution import Form
from occupax.training.setup import (
    AlgorithmSource,
    PolicySource,
    Setup,
    as_algorithm,
    default_algorithm,
    first_policy,
    make_setup,
    policy_source,
)

MAX_POINTS = 10_000
"""Largest number of points of a grid."""
CHECKING = "checking settings"
"""Text of the progress bar."""
PROBLEM_SETTINGS = ("discount", "horizon")
POLICY = "policy."
"""Prefix of the arguments of the policy's initialiser."""

Configuration = dict[str, Any]
Item = TypeVar("Item")


class Shared(NamedTuple):
    """Values of a point that all points of one compiled program share."""

    problem: dict[str, Any]
    policy: dict[str, Any]
    """Arguments of the initialiser, without the prefix."""


@dataclass(frozen=True)
class Group:
    """Points of a grid that one compiled program trains together."""

    numbers: list[int]
    setup: Setup


@dataclass(frozen=True)
class Base:
    """Training run that the points of a grid change."""

    problem: Problem
    algorithm: AlgorithmSource
    policy: PolicySource
    seeds: Any
    seed: int
    record_every: int
    sampler: Sampler | str

    def groups(
        self, points: Sequence[Configuration], together: bool, bar: ProgressBar
    ) -> list[Group]:
        """Return the checked set-ups of all points, one for each point unless `together`."""
        groups: list[Group] = []
        checked = 0
        for numbers in _equal_numbers(map(_shared, points), eq):
            setup = self._setup([points[i] for i in numbers])
            if together:
                forms = _forms(setup.algorithms, checked, bar)
                blocks = _equal_numbers(forms, Form.same_as)
            else:
                blocks = [[i] for i in range(len(numbers))]
            checked += len(numbers)
            bar.update(checked)
            for block in blocks:
                algorithms = tuple(setup.algorithms[i] for i in block)
                group = Group([numbers[i] for i in block], replace(setup, algorithms=algorithms))
                groups.append(group)
        return groups

    def _setup(self, points: Sequence[Configuration]) -> Setup:
        """Return the set-up of points that differ in fields of the algorithm only."""
        shared = _shared(points[0])
        problem = self.problem
        if shared.problem:
            problem = problem.with_time(**shared.problem)
        policy = self.policy
        if shared.policy:
            policy = self._initialiser(shared.policy)
        algorithm = self._algorithm(problem, policy)
        algorithms = [replace(algorithm, **self._fields(algorithm, point)) for point in points]
        return make_setup(
            problem,
            algorithms,
            policy,
            self.seeds,
            self.seed,
            self.record_every,
            False,
            self.sampler,
        )

    def _algorithm(self, problem: Problem, policy: PolicySource) -> Algorithm[Any]:
        if self.algorithm is not None:
            return as_algorithm(self.algorithm)
        return default_algorithm(problem, first_policy(problem, policy))

    def _fields(self, algorithm: Algorithm[Any], point: Configuration) -> dict[str, Any]:
        """Return the values of a point for fields of the algorithm."""
        names = [field.name for field in dataclasses.fields(algorithm)]
        fields: dict[str, Any] = {}
        for name, value in point.items():
            if _is_shared(name):
                continue
            if name not in names:
                raise unknown(
                    "setting", name, [*names, *PROBLEM_SETTINGS, *self._policy_settings()]
                )
            fields[name] = value
        return fields

    def _policy_settings(self) -> list[str]:
        source = policy_source(self.problem.env, self.policy)
        if isinstance(source, ConfiguredInitialiser):
            return [POLICY + name for name in source.settings]
        return []

    def _initialiser(self, settings: Mapping[str, Any]) -> ConfiguredInitialiser:
        """Return the initialiser with other values of its arguments."""
        source = policy_source(self.problem.env, self.policy)
        if not isinstance(source, ConfiguredInitialiser):
            names = " and ".join(POLICY + name for name in settings)
            raise ValueError(
                "policy must be a name or an initialiser of occupax.policies such as mlp() for a "
                f"sweep over {names}, got {source!r:.60}."
            )
        for name in settings:
            if name not in source.settings:
                raise unknown("setting", POLICY + name, self._policy_settings())
        return source.with_settings(settings)


def read_grid(over: Any) -> list[Configuration]:
    """Return every combination of the values to try."""
    if not isinstance(over, Mapping) or not over:
        example = "{'step_size': [0.1]}"
        raise ValueError(
            f"over must be values to try for each setting, such as {example}, got {over!r:.60}."
        )
    tried: dict[str, list[Any]] = {}
    for name, values in over.items():
        tried[name] = _read_values(name, values)
    count = math.prod(map(len, tried.values()))
    if count > MAX_POINTS:
        raise ValueError(
            f"over must have at most {MAX_POINTS:,} combinations, got at least {count:,}: try "
            "fewer values."
        )
    return [dict(zip(tried, values, strict=True)) for values in product(*tried.values())]


def _read_values(name: str, values: Any) -> list[Any]:
    """Return the values to try for one setting, numbers of NumPy as numbers of Python."""
    tried: list[Any] = []
    if isinstance(values, Iterable) and not isinstance(values, str):
        for value in islice(values, MAX_POINTS + 1):
            if isinstance(value, np.generic):
                tried.append(value.item())
            else:
                tried.append(value)
    if not tried:
        raise ValueError(f"over[{name!r}] must be a list of values to try, got {values!r}.")
    return tried


def _is_shared(name: Any) -> bool:
    return name in PROBLEM_SETTINGS or str(name).startswith(POLICY)


def _shared(point: Configuration) -> Shared:
    shared = Shared({}, {})
    for name, value in point.items():
        if name in PROBLEM_SETTINGS:
            shared.problem[name] = value
        elif _is_shared(name):
            shared.policy[name.removeprefix(POLICY)] = value
    return shared


def _forms(algorithms: Iterable[Algorithm[Any]], checked: int, bar: ProgressBar) -> Iterator[Form]:
    """Yield the form of each algorithm, and show the progress."""
    for algorithm in algorithms:
        yield Form(algorithm)
        checked += 1
        bar.update(checked, CHECKING)


def _equal_numbers(
    items: Iterable[Item], is_equal: Callable[[Item, Item], bool]
) -> list[list[int]]:
    """Return the numbers of the items in groups of equal items."""
    groups: list[tuple[Item, list[int]]] = []
    for i, item in enumerate(items):
        for first, numbers in groups:
            if is_equal(item, first):
                numbers.append(i)
                break
        else:
            groups.append((item, [i]))
    return [numbers for _, numbers in groups]
