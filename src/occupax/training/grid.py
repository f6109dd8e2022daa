"""Grid of a sweep over hyperparameters of the algorithm, the policy and the problem."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any

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
    initial_policy,
    make_setup,
    policy_source,
)

MOST_POINTS = 10_000
"""The largest number of points of a grid."""
CHECKING = "checking settings"
"""The text of the progress bar."""
PROBLEM_SETTINGS = ("discount", "horizon")
POLICY = "policy."
"""The prefix of settings of the policy's initialiser."""

Point = dict[str, Any]


@dataclass(frozen=True)
class Group:
    """Points of a grid that one compiled program trains together."""

    numbers: list[int]
    setup: Setup


@dataclass(frozen=True)
class Base:
    """The training run that the points of a grid change."""

    problem: Problem
    algorithm: AlgorithmSource
    policy: PolicySource
    seeds: Any
    seed: int
    record_every: int
    sampler: Sampler | str

    def groups(self, points: Sequence[Point], together: bool, bar: ProgressBar) -> list[Group]:
        """Return the checked set-ups of all points, one for each point unless `together`."""
        groups: list[Group] = []
        checked = 0
        for numbers in _numbers_of_programs(points):
            whole = self._setup([points[i] for i in numbers])
            blocks = [[i] for i in range(len(numbers))]
            if together:
                blocks = _alike(whole.algorithms, checked, bar)
            checked += len(numbers)
            bar.update(checked)
            for block in blocks:
                algorithms = tuple(whole.algorithms[i] for i in block)
                groups.append(
                    Group([numbers[i] for i in block], replace(whole, algorithms=algorithms))
                )
        return groups

    def _setup(self, points: Sequence[Point]) -> Setup:
        """Return the set-up of points that differ in settings of the algorithm only."""
        shared = _shared(points[0])
        of_problem = {name: value for name, value in shared.items() if name in PROBLEM_SETTINGS}
        of_policy = {name: value for name, value in shared.items() if name not in PROBLEM_SETTINGS}
        problem = self.problem.with_time(**of_problem) if of_problem else self.problem
        policy = self._initialiser(of_policy) if of_policy else self.policy
        algorithm = self._algorithm(problem, policy)
        known = [field.name for field in dataclasses.fields(algorithm)]
        variants: list[Algorithm[Any]] = []
        for point in points:
            own = {name: value for name, value in point.items() if name not in shared}
            for name in own:
                if name not in known:
                    raise unknown(
                        "setting", name, [*known, *PROBLEM_SETTINGS, *self._policy_settings()]
                    )
            variants.append(replace(algorithm, **own))
        return make_setup(
            problem, variants, policy, self.seeds, self.seed, self.record_every, False, self.sampler
        )

    def _algorithm(self, problem: Problem, policy: PolicySource) -> Algorithm[Any]:
        if self.algorithm is not None:
            return as_algorithm(self.algorithm)
        return default_algorithm(problem, initial_policy(problem, policy, 0, 0))

    def _policy_settings(self) -> list[str]:
        source = policy_source(self.problem.env, self.policy)
        return (
            [POLICY + name for name in source.settings]
            if isinstance(source, ConfiguredInitialiser)
            else []
        )

    def _initialiser(self, changes: Mapping[str, Any]) -> ConfiguredInitialiser:
        source = policy_source(self.problem.env, self.policy)
        if not isinstance(source, ConfiguredInitialiser):
            names = " and ".join(changes)
            kinds = "a name or an initialiser of occupax.policies such as mlp()"
            raise ValueError(
                f"policy must be {kinds} for a sweep over {names}, got {source!r:.60}."
            )
        for name in changes:
            if name.removeprefix(POLICY) not in source.settings:
                raise unknown("setting", name, self._policy_settings())
        return source.with_settings(
            {name.removeprefix(POLICY): value for name, value in changes.items()}
        )


def read_grid(over: Any) -> list[Point]:
    """Return every combination of the values to try."""
    if not isinstance(over, Mapping) or not over:
        example = "{'step_size': [0.1]}"
        raise ValueError(
            f"over must be values to try for each setting, such as {example}, got {over!r:.60}."
        )
    tried: dict[str, list[Any]] = {}
    for name, values in over.items():
        several = isinstance(values, Iterable) and not isinstance(values, str)
        # a number of NumPy is checked and written down as one of Python
        first = islice(values, MOST_POINTS + 1) if several else ()
        tried[name] = [it.item() if isinstance(it, np.generic) else it for it in first]
        if not tried[name]:
            raise ValueError(f"over[{name!r}] must be a list of values to try, got {values!r}.")
    count = math.prod(len(values) for values in tried.values())
    if count > MOST_POINTS:
        limit = f"at most {MOST_POINTS:,} combinations"
        raise ValueError(f"over must have {limit}, got at least {count:,}: try fewer values.")
    return [dict(zip(tried, values, strict=True)) for values in product(*tried.values())]


def _shared(point: Point) -> Point:
    """Return the settings of the problem and of the policy, which points of one program share."""
    return {
        name: value
        for name, value in point.items()
        if name in PROBLEM_SETTINGS or str(name).startswith(POLICY)
    }


def _numbers_of_programs(points: Sequence[Point]) -> list[list[int]]:
    """Return the numbers of the points that share problem and policy."""
    blocks: list[list[int]] = []
    for i, point in enumerate(points):
        shared = _shared(point)
        alike = next((block for block in blocks if _shared(points[block[0]]) == shared), None)
        if alike is None:
            blocks.append([i])
        else:
            alike.append(i)
    return blocks


def _alike(algorithms: Sequence[Algorithm[Any]], checked: int, bar: ProgressBar) -> list[list[int]]:
    """Return the numbers of the algorithms that one program can run together."""
    blocks: list[tuple[Form, list[int]]] = []
    for i, algorithm in enumerate(algorithms):
        form = Form(algorithm)
        alike = next((numbers for known, numbers in blocks if form.same_as(known)), None)
        if alike is None:
            blocks.append((form, [i]))
        else:
            alike.append(i)
        bar.update(checked + i + 1, CHECKING)
    return [numbers for _, numbers in blocks]
