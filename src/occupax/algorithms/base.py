"""What every algorithm provides."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import fields
from math import inf
from typing import Any, ClassVar, Generic, Literal, TypeVar, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from occupax._display import Description, in_words, module_text
from occupax._errors import check_integer, check_number, is_traced, unknown
from occupax.baselines import BaselineName
from occupax.batches import Batch
from occupax.policies import Policy, Tabular
from occupax.problem import Problem
from occupax.steps import Memory, Number, Radius, Step

Output = Literal["last", "uniform", "best", "average"]


class AlgorithmState(eqx.Module):
    """What an algorithm carries from one iteration to the next; subclasses add fields of their own.

    Everything that is needed to go on is in the state: it is what a checkpoint holds.
    """

    policy: Policy
    """The policy that acts next."""
    occupancy: Float[Array, " d"]
    """The estimate of the occupancy that the last step was taken with; a running one may be negative."""
    gradient: Policy
    """The estimate of the gradient that the last step was taken along."""
    memory: Memory
    """What the step rule remembers."""


State = TypeVar("State", bound=AlgorithmState)
Chosen = TypeVar("Chosen")


class Phase(eqx.Module, Generic[State]):
    """One kind of iteration.

    Args:
        trajectories: how many it samples.
        update: the next state, from the present one, the batch that was sampled, and a random key. It is a pure
            function that may be traced; it asks the batch outside of loops and branches of JAX.
        behaviour: the policy that samples, from the state and a random key; the policy of the state by default.
    """

    trajectories: int | Float[Array, ""]
    update: Callable[[State, Batch, Key[Array, ""]], State]
    behaviour: Callable[[State, Key[Array, ""]], Policy] = lambda state, _: state.policy

    def __check_init__(self) -> None:
        if not is_traced(self.trajectories):  # a program is given the settings of an algorithm as arrays
            check_integer("trajectories of a phase", self.trajectories)


class Algorithm(eqx.Module, Generic[State]):
    """Turns batches of trajectories into better policies, iteration by iteration.

    An algorithm does not sample, count or save: it says which kinds of iteration there are (`phases`), which of them
    comes next (`phase`), and what each makes of a batch. The number of the iteration alone decides the phase, so that
    all runs of a program sample alike and the budget is known beforehand.

    Args:
        step_size: eta; by default that of the rule, see `steps.default_size`.
        decay_after: after k steps, the step size is eta / sqrt(1 + k / decay_after). By default a step size that was
            given is constant, and for those of the rules see `steps.default_decay`.
        radius: bound of each displacement (delta): a number or "theory"; see `steps.Step`.
        rule: the direction of a step: "adam", "natural", "gradient", "normalised" or an optax transformation.
        baseline: of the gradient estimate: "none", "mean" or "linear"; see `estimators.gradient`.
        output: which policy training returns: the "last" iterate; one drawn "uniform"ly from all that were sampled (as
            the theorems do); the "best": that with the highest utility, estimated from its own new trajectories, in
            the iterations with the largest batches, among those that satisfy the constraints; or the "average" of the
            parameters, mostly of the last half of them. By default the last or, if there are constraints, the average,
            because iterates go to and fro across a limit.
    """

    tuned_setting: ClassVar[str] = "step_size"
    """The number that decides most about how well it learns: the benchmark tries multiples of it in its tuned track."""

    step_size: Number | None = eqx.field(kw_only=True, default=None)
    decay_after: Number | None = eqx.field(kw_only=True, default=None)
    radius: Radius = eqx.field(kw_only=True, default=inf)
    rule: Any = eqx.field(kw_only=True, static=True, default="adam")
    baseline: BaselineName = eqx.field(kw_only=True, static=True, default="mean")
    output: Output | None = eqx.field(kw_only=True, static=True, default=None)

    def __check_init__(self) -> None:
        for name in ("snapshot_batch", "batch", "epoch_length"):
            if getattr(self, name, None) is not None and not is_traced(getattr(self, name)):
                check_integer(name, getattr(self, name))
        for name, allowed in (("baseline", get_args(BaselineName)), ("output", get_args(Output))):
            if getattr(self, name) not in (*allowed, *((None,) if name == "output" else ())):
                raise unknown(name, getattr(self, name), allowed)
        self.step()

    def __repr__(self) -> str:
        return module_text(self)

    def _repr_html_(self) -> str:
        rows = [(field.name, in_words(getattr(self, field.name))) for field in fields(self)]
        return Description(type(self).__name__, rows).html()

    def step_size_for(self, policy: Policy) -> Number:
        """The step size eta or, if none was given, that of the rule for this kind of policy."""
        return self.step().sized(policy)

    def step(self) -> Step:
        """The rule by which a gradient estimate becomes a step."""
        return Step(self.step_size, self.radius, self.rule, inf if self.decay_after is None else self.decay_after)

    @property
    @abstractmethod
    def phases(self) -> tuple[Phase[State], ...]:
        """The kinds of iteration there are."""

    def phase(self, iteration: int | Int[Array, ""]) -> int | Int[Array, ""]:
        """Which of `phases` an iteration is, from its number alone."""
        return 0

    @abstractmethod
    def init(self, problem: Problem, policy: Policy) -> State:
        """The state before anything was sampled."""

    def metrics(self, state: State) -> dict[str, Float[Array, ""]]:
        """Numbers of its own to record after an iteration, by name."""
        return {}

    def model(self, problem: Problem, state: State) -> Any:
        """What it has learned of the environment, for `Result.model`; nothing by default."""
        return None


class WeightedState(AlgorithmState):
    """The running estimates of an algorithm that carries them along by importance weights."""

    restarted: Bool[Array, ""]
    """Whether the weights of the last refinement could not be trusted, and a fresh estimate took its place."""


WeightedStateType = TypeVar("WeightedStateType", bound=WeightedState)


class WeightedAlgorithm(Algorithm[WeightedStateType]):
    """An algorithm with large snapshots and small refinements, which carry estimates along by importance weights.

    Where the weights mean nothing any more, a fresh estimate from the same batch takes the place of the refined one.

    Args:
        snapshot_batch: trajectories of a snapshot (N).
        batch: trajectories of each refinement (B).
        weight_guard: the weights of a refinement are trusted if their effective sample size is at least this share of
            its trajectories that took a step, and the largest is neither above `weight_bound` nor below one over it
            (weights have a mean of 1, so all of them are then too small); None trusts all, as the papers do.
        weight_bound: the largest weight that is trusted.
        step_size, radius, rule, baseline, output: see `Algorithm`.
    """

    snapshot_batch: int = eqx.field(static=True, default=20)
    batch: int = eqx.field(static=True, default=10)
    weight_guard: Number | None = eqx.field(kw_only=True, default=0.5)
    weight_bound: Number = eqx.field(kw_only=True, default=4.0)

    def __check_init__(self) -> None:
        for name in ("snapshot_batch", "batch"):
            if getattr(self, name) is None:
                raise ValueError(f"{name} must be a whole number of at least 1, got None.")
        guard = self.weight_guard
        if guard is not None and not is_traced(guard) and check_number("weight_guard", guard, low=0.0) > 1:
            raise ValueError(f"weight_guard must be a share of a batch, at most 1, or None, got {guard!r}.")
        if not is_traced(self.weight_bound):
            check_number("weight_bound", self.weight_bound, low=1.0, open_low=True)

    def metrics(self, state: WeightedStateType) -> dict[str, Float[Array, ""]]:
        """Whether the guard on the weights, if there is one, made the estimate fresh."""
        return {} if self.weight_guard is None else {"restarted": state.restarted.astype(state.occupancy.dtype)}

    def trusts(self, batch: Batch, previous: Policy) -> Bool[Array, ""]:
        """Whether the weights of an earlier policy on the batch of a refinement can be trusted."""
        if self.weight_guard is None:
            return jnp.ones((), bool)
        found, all_alike = batch.statistics(previous), batch.statistics()
        enough = found.effective_sample_size >= self.weight_guard * all_alike.effective_sample_size
        largest = found.largest_weight
        return enough & (largest <= self.weight_bound) & (largest * self.weight_bound >= 1)


class EpochAlgorithm(WeightedAlgorithm[WeightedStateType]):
    """An algorithm that goes in epochs: a large snapshot, its first phase, then small refinements, its second one.

    Args:
        epoch_length: iterations in an epoch, the snapshot included (m).
        snapshot_batch, batch, weight_guard, weight_bound: see `WeightedAlgorithm`.
        step_size, radius, rule, baseline, output: see `Algorithm`.
    """

    epoch_length: int = eqx.field(static=True, default=2)

    def __check_init__(self) -> None:
        if self.epoch_length is None:  # pyright: ignore[reportUnnecessaryComparison] - it may come from a file
            raise ValueError("epoch_length must be a whole number of at least 1, got None.")

    def phase(self, iteration: int | Int[Array, ""]) -> int | Int[Array, ""]:
        """A snapshot at the beginning of each epoch."""
        return (iteration % self.epoch_length != 0) * 1


class RecursiveState(WeightedState):
    """The running estimates, and the policy before the last step."""

    previous: Policy
    """theta_{j-1}."""


class RecursiveAlgorithm(EpochAlgorithm[RecursiveState]):
    """An algorithm whose snapshot is a fresh estimate, which its refinements carry along from policy to policy."""

    def init(self, problem: Problem, policy: Policy) -> RecursiveState:
        """No estimates yet."""
        memory, fresh = self.step().init(policy), jnp.zeros((), bool)
        return RecursiveState(policy, jnp.zeros(problem.size), no_gradient(policy), memory, fresh, policy)

    def _snapshot(self, state: RecursiveState, batch: Batch, key: Key[Array, ""]) -> RecursiveState:
        u = batch.occupancy()
        g = batch.gradient(None, batch.quasi_reward(u), self.baseline)
        policy, memory = self.step()(state.policy, g, state.memory, batch)
        return RecursiveState(policy, u, g, memory, jnp.zeros((), bool), state.policy)


def default_batch(policy: Policy, constrained: bool) -> int:
    """How many trajectories a fresh estimate is made of, by the kind of policy.

    Networks for discrete actions learn most from small batches, but under constraints multipliers follow every batch.
    """
    if isinstance(policy, Tabular):
        return 20
    return 5 if policy.action_space in ("discrete", "multi-discrete") and not constrained else 10


def default_mixing(policy: Policy) -> float:
    """The share of the newest batch in an occupancy; what networks do changes too much from batch to batch to mix."""
    return 0.5 if isinstance(policy, Tabular) else 1.0


def chosen(name: str, setting: Chosen | None) -> Chosen:
    """A setting that is given, or that `occupax.train` has chosen."""
    if setting is None:
        raise ValueError(f"{name} depends on the policy and is chosen by occupax.train; by hand, give the number.")
    return setting


def no_gradient(policy: Policy) -> Policy:
    """A gradient of zero."""
    return jax.tree.map(jnp.zeros_like, eqx.filter(policy, eqx.is_inexact_array))


def add(left: Any, right: Any) -> Any:
    """The sum of two gradients."""
    return jax.tree.map(jnp.add, left, right)


def scale(factor: Any, tree: Any) -> Any:
    """A multiple of a gradient."""
    return jax.tree.map(lambda leaf: factor * leaf, tree)


def subtract(left: Any, right: Any) -> Any:
    """The difference of two gradients."""
    return jax.tree.map(jnp.subtract, left, right)


def choose(condition: Bool[Array, ""], yes: Any, no: Any) -> Any:
    """One of two trees that differ in their arrays alone."""
    return jax.tree.map(lambda left, right: jnp.where(condition, left, right) if eqx.is_array(left) else left, yes, no)
