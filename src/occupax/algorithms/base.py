"""The contract of an algorithm: `Algorithm`, its state and its phases."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, fields, replace
from math import inf
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar, get_args

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Int, Key

from occupax.baselines import BaselineName
from occupax.batches import Batch
from occupax.display import Description, in_words, module_text
from occupax.errors import check_integer, is_traced, unknown
from occupax.policies import Policy, Tabular
from occupax.problem import Problem
from occupax.steps import (
    TABULAR_LIPSCHITZ,
    Number,
    Radius,
    Step,
    StepState,
    default_decay,
    theory_radius,
)

Output = Literal["last", "uniform", "best", "average"]
SIZES = ("snapshot_batch", "batch", "epoch_length")


class AlgorithmState(eqx.Module):
    """State of an algorithm between two iterations. Subclasses add fields.

    A checkpoint holds this state and no other, so that everything needed to resume is a field.
    """

    policy: Policy
    """Policy of the next iteration."""
    occupancy: Float[Array, " d"]
    """Occupancy estimate of the last step. A recursive estimate may be negative."""
    gradient: Policy
    """Gradient estimate of the last step."""
    memory: StepState
    """State of the step rule."""


State = TypeVar("State", bound=AlgorithmState)


class Budget(NamedTuple):
    """Budget of a run, in episodes or in environment steps. None is no limit."""

    episodes: int | None = None
    """Number of episodes of a seed."""
    steps: int | None = None
    """Number of environment steps of a seed."""


class Phase(eqx.Module, Generic[State]):
    """One kind of iteration.

    Args:
        trajectories: number of trajectories of the batch, at least 1.
        update: pure function of state, batch and random key that returns the next state. JAX may
            trace the function, which queries the batch outside loops and branches of JAX.
        behaviour: function of state and random key that returns the behaviour policy. Default:
            `state.policy`.
    """

    trajectories: int | Float[Array, ""]
    update: Callable[[State, Batch, Key[Array, ""]], State]
    behaviour: Callable[[State, Key[Array, ""]], Policy] = lambda state, _: state.policy

    def __check_init__(self) -> None:
        if not is_traced(self.trajectories):  # compiled programs have hyperparameters as arrays
            check_integer("trajectories of a phase", self.trajectories)


class Algorithm(eqx.Module, Generic[State]):
    """Base class of algorithms, which update a policy from batches of trajectories.

    A subclass declares its kinds of iteration (`phases`), the update of each, and their order
    (`phase`). Samplers, records and checkpoints are separate. The phase depends on the number of
    the iteration only. All runs of a program therefore sample batches of the same size, and the
    number of episodes is known before training.

    Args:
        step_size: step size (eta). Default: by rule and policy, see `steps.default_size`.
        decay_after: number of steps k_0 in the decay eta / sqrt(1 + k / k_0). Default: constant if
            `step_size` is set, otherwise by rule and policy, see `steps.default_decay`.
        radius: bound of the norm of a displacement (delta): a number, or "theory" for
            1 / (2 H l_psi), see `steps.Step`. Default: inf.
        rule: step rule: "adam", "natural", "gradient", "normalised" or an optax transformation.
            Default: "adam".
        baseline: baseline of the gradient estimate: "none", "mean" or "linear", see
            `estimators.gradient`. Default: "mean".
        output: policy that training returns. "last": the last iterate. "uniform": an iterate
            sampled uniformly, as in the theorems. "best": the feasible iterate with the highest
            utility, estimated from its own new trajectories, in the iterations with the largest
            batches. "average": the average of the parameters, mostly over the last half of the
            iterates. Default: "average" under constraints, because iterates oscillate around a
            threshold, otherwise "last".
    """

    estimates_gradient: ClassVar[bool] = True
    """Whether `AlgorithmState.gradient` is an estimate of the gradient."""

    _: KW_ONLY
    step_size: Number | None = None
    decay_after: Number | None = None
    radius: Radius = inf
    rule: Any = eqx.field(static=True, default="adam")
    baseline: BaselineName = eqx.field(static=True, default="mean")
    output: Output | None = eqx.field(static=True, default=None)

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
        """Phases of the algorithm: batch size and update of each kind of iteration."""

    @abstractmethod
    def init(self, problem: Problem, policy: Policy) -> State:
        """Return the state before the first iteration.

        Args:
            problem: problem of the training run.
            policy: initial policy of the training run.

        Returns:
            The initial state.
        """

    def phase(self, iteration: int) -> int:
        """Return the index in `phases` of an iteration, which depends on its number only.

        Args:
            iteration: number of the iteration, from 0.

        Returns:
            The index, 0 unless a subclass overrides the method.
        """
        return 0

    def phases_of(self, first: int, count: int) -> Int[np.ndarray, " count"]:
        """Return the phases of consecutive iterations.

        Args:
            first: number of the first iteration.
            count: number of iterations.

        Returns:
            The index in `phases` of each iteration.
        """
        phases = map(self.phase, range(first, first + count))
        return np.array(list(phases), np.int32)

    def metrics(self, state: State) -> dict[str, Float[Array, ""]]:
        """Return additional metrics of an iteration. Default: none.

        Args:
            state: state after the iteration.

        Returns:
            Scalars by the name of the metric.
        """
        return {}

    def model(self, problem: Problem, state: State) -> Any:
        """Return the learned model of the environment for `Result.model`.

        Args:
            problem: problem of the training run.
            state: last state.

        Returns:
            The model. Default: None.
        """
        return None

    def step(self) -> Step:
        """Return the step rule."""
        decay_after = self.decay_after
        if decay_after is None:
            decay_after = inf
        return Step(self.step_size, self.radius, self.rule, decay_after)

    def step_size_for(self, policy: Policy) -> Number:
        """Return the step size for a policy.

        Args:
            policy: initial policy of the training run.

        Returns:
            The step size (eta). Default: that of the step rule.
        """
        return self.step().size_for(policy)

    def for_budget(self, budget: Budget) -> "Algorithm[State]":
        """Return the algorithm for a budget, by default unchanged."""
        return self

    def resolve(self, problem: Problem, policy: Policy) -> "Algorithm[State]":
        """Return the algorithm with values for the hyperparameters that are None or "theory".

        Args:
            problem: problem of the training run.
            policy: initial policy of the training run.

        Returns:
            A copy without open hyperparameters.
        """
        resolved = self
        if self.step_size is None:
            decay_after = self.decay_after
            if decay_after is None:
                decay_after = default_decay(self.rule, policy)
            step_size = self.step_size_for(policy)
            resolved = replace(resolved, step_size=step_size, decay_after=decay_after)
        if self.output is None:
            resolved = replace(resolved, output=_default_output(problem))
        if self.radius == "theory":
            resolved = replace(resolved, radius=_theory_radius(problem, policy))
        return resolved


def default_batch(problem: Problem, policy: Policy) -> int:
    """Return the default number of trajectories of a fresh estimate.

    Networks for discrete actions learn most from small batches. Under constraints the multipliers
    follow every batch, whose noise must be lower.
    """
    if isinstance(policy, Tabular):
        return 20
    is_discrete = policy.action_space in ("discrete", "multi-discrete")
    if is_discrete and not problem.constraints:
        return 5
    return 10


def _default_output(problem: Problem) -> Output:
    if problem.constraints:
        return "average"
    return "last"


def _theory_radius(problem: Problem, policy: Policy) -> float:
    """Return delta = 1 / (2 H l_psi)."""
    if not isinstance(policy, Tabular):
        raise ValueError(
            f"radius must be a number for the policy {type(policy).__name__}, got 'theory', which "
            "needs a table: the gradient of other logits has no known bound. Use "
            "theory.radius(horizon, lipschitz_psi)."
        )
    return theory_radius(problem.sampling_horizon(), TABULAR_LIPSCHITZ)
