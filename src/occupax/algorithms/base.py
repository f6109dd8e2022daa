"""The contract of an algorithm: `Algorithm`, its state and its phases."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import fields, replace
from math import inf
from typing import Any, ClassVar, Generic, Literal, TypeVar, get_args

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Int, Key

from occupax._display import Description, in_words, module_text
from occupax.baselines import BaselineName
from occupax.batches import Batch
from occupax.errors import check_integer, is_traced, unknown
from occupax.policies import Policy, Tabular
from occupax.problem import Problem
from occupax.steps import (
    TABULAR_LIPSCHITZ,
    Memory,
    Number,
    Radius,
    Step,
    default_decay,
    theory_radius,
)

Output = Literal["last", "uniform", "best", "average"]
SIZES = ("snapshot_batch", "batch", "epoch_length")


class AlgorithmState(eqx.Module):
    """State of an algorithm between two iterations; subclasses add fields.

    A checkpoint holds the state, so that it has all that is needed to resume.
    """

    policy: Policy
    """Policy of the next iteration."""
    occupancy: Float[Array, " d"]
    """Occupancy estimate of the last step; a recursive estimate may be negative."""
    gradient: Policy
    """Gradient estimate of the last step."""
    memory: Memory
    """State of the step rule."""


State = TypeVar("State", bound=AlgorithmState)


class Phase(eqx.Module, Generic[State]):
    """One kind of iteration.

    Args:
        trajectories: number of trajectories that it samples.
        update: function of state, batch and random key that returns the next state. It is pure and
            may be traced; it queries the batch outside of loops and branches of JAX.
        behaviour: function of state and random key that returns the policy that samples; by default
            `state.policy`.
    """

    trajectories: int | Float[Array, ""]
    update: Callable[[State, Batch, Key[Array, ""]], State]
    behaviour: Callable[[State, Key[Array, ""]], Policy] = lambda state, _: state.policy

    def __check_init__(self) -> None:
        if not is_traced(self.trajectories):  # a program gets the hyperparameters as arrays
            check_integer("trajectories of a phase", self.trajectories)


class Algorithm(eqx.Module, Generic[State]):
    """Base class of algorithms, which update a policy from batches of trajectories.

    An algorithm does not sample, count or save. It declares its kinds of iteration (`phases`), the
    order of them (`phase`), and the update of each. The number of the iteration alone decides the
    phase, so that all runs of a program sample alike and the budget is known beforehand.

    Args:
        step_size: eta; by default the step size of the rule, see `steps.default_size`.
        decay_after: after k steps, the step size is eta / sqrt(1 + k / decay_after). By default a
            given step size is constant, and for the step sizes of the rules see
            `steps.default_decay`.
        radius: bound of each displacement (delta): a number or "theory"; see `steps.Step`.
        rule: the direction of a step: "adam", "natural", "gradient", "normalised" or an optax
            transformation.
        baseline: baseline of the gradient estimate: "none", "mean" or "linear"; see
            `estimators.gradient`.
        output: the policy that training returns. "last": the last iterate. "uniform": an iterate
            drawn uniformly, as in the theorems. "best": the iterate with the highest utility,
            estimated from its own new trajectories, in the iterations with the largest batches,
            among those that satisfy the constraints. "average": the average of the parameters,
            mostly of the last half of the iterates. By default "last" or, with constraints,
            "average", because iterates oscillate around a constraint.
    """

    estimates_gradient: ClassVar[bool] = True
    """Whether `AlgorithmState.gradient` is an estimate of the gradient."""

    step_size: Number | None = eqx.field(kw_only=True, default=None)
    decay_after: Number | None = eqx.field(kw_only=True, default=None)
    radius: Radius = eqx.field(kw_only=True, default=inf)
    rule: Any = eqx.field(kw_only=True, static=True, default="adam")
    baseline: BaselineName = eqx.field(kw_only=True, static=True, default="mean")
    output: Output | None = eqx.field(kw_only=True, static=True, default=None)

    def __check_init__(self) -> None:
        for name in SIZES:
            size = getattr(self, name, None)
            if size is not None and not is_traced(size):
                check_integer(name, size)
        if self.baseline not in get_args(BaselineName):
            raise unknown("baseline", self.baseline, get_args(BaselineName))
        if self.output is not None and self.output not in get_args(Output):
            raise unknown("output", self.output, get_args(Output))
        self.step()

    def __repr__(self) -> str:
        return module_text(self)

    def _repr_html_(self) -> str:
        rows = [(field.name, in_words(getattr(self, field.name))) for field in fields(self)]
        return Description(type(self).__name__, rows).html()

    @property
    @abstractmethod
    def phases(self) -> tuple[Phase[State], ...]:
        """The kinds of iteration."""

    @abstractmethod
    def init(self, problem: Problem, policy: Policy) -> State:
        """Return the state before the first iteration."""

    def phase(self, iteration: int) -> int:
        """Return the index in `phases` of an iteration, from its number alone."""
        return 0

    def phases_of(self, first: int, count: int) -> Int[np.ndarray, " count"]:
        """Return the phases of `count` iterations from number `first` on."""
        return np.array([self.phase(first + offset) for offset in range(count)], np.int32)

    def metrics(self, state: State) -> dict[str, Float[Array, ""]]:
        """Return further metrics of an iteration, by name."""
        return {}

    def model(self, problem: Problem, state: State) -> Any:
        """Return the learned model of the environment, for `Result.model`; None by default."""
        return None

    def step(self) -> Step:
        """Return the step rule."""
        decay_after = inf if self.decay_after is None else self.decay_after
        return Step(self.step_size, self.radius, self.rule, decay_after)

    def step_size_for(self, policy: Policy) -> Number:
        """Return the step size or, if it was left open, the step size of the rule for this kind of policy."""
        return self.step().sized(policy)

    def resolve(self, problem: Problem, policy: Policy) -> "Algorithm[State]":
        """Return the algorithm with numbers for the hyperparameters that were left open."""
        resolved = self
        if self.step_size is None:
            decay_after = (
                default_decay(self.rule, policy) if self.decay_after is None else self.decay_after
            )
            resolved = replace(
                resolved, step_size=self.step_size_for(policy), decay_after=decay_after
            )
        if self.output is None:
            resolved = replace(resolved, output="average" if problem.constraints else "last")
        if self.radius == "theory":
            resolved = replace(resolved, radius=_radius_of_theory(problem, policy))
        return resolved


def default_batch(problem: Problem, policy: Policy) -> int:
    """Return the number of trajectories of a fresh estimate, by the kind of policy.

    Networks for discrete actions learn most from small batches, but under constraints multipliers
    follow every batch.
    """
    if isinstance(policy, Tabular):
        return 20
    is_discrete = policy.action_space in ("discrete", "multi-discrete")
    if is_discrete and not problem.constraints:
        return 5
    return 10


def _radius_of_theory(problem: Problem, policy: Policy) -> float:
    """Return delta = 1 / (2 H l_psi)."""
    if not isinstance(policy, Tabular):
        raise ValueError(
            "radius 'theory' is known for tabular policies only, because it needs a bound on the gradient of the "
            f"logits, which {type(policy).__name__} does not have; give the number theory.radius(horizon, "
            "lipschitz_psi)."
        )
    return theory_radius(problem.sampling_horizon(), TABULAR_LIPSCHITZ)
