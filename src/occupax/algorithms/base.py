"""What every algorithm provides."""

from abc import abstractmethod
from math import inf
from typing import Any, Generic, Literal, TypeVar, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from occupax._errors import check_integer, unknown
from occupax.batch import Baseline, Batch
from occupax.policies import Policy
from occupax.steps import Number, Radius, Step

Output = Literal["last", "uniform", "best"]

State = TypeVar("State")


class Algorithm(eqx.Module, Generic[State]):
    """Turns batches of trajectories into better policies, in cycles: one snapshot, then refinements.

    An algorithm does not sample, count or save: it says how many trajectories each iteration of its cycle needs, and is
    given a batch of them, drawn under the policy of its state. `start` and `refine` are pure functions and may be
    traced. Everything that is needed to go on is in the state, which has at least the fields `policy`, `occupancy` (the
    estimate for the policy that acted), `gradient` and `memory`.

    Args:
        step_size: eta.
        radius: bound of each displacement (delta): a number, "adaptive" or "theory"; see `steps.Step`.
        rule: the direction of a step: "gradient", "normalised" or an optax transformation.
        weight_bound: what an adaptive radius tries to keep the largest importance weight under.
        baseline: of the gradient estimate: "none" or "mean"; see `estimators.gradient`.
        output: which iterate training returns: the "last" one, one drawn "uniform"ly from all that were sampled (as
            the theorems do), or the "best": that with the highest estimated utility at the start of a cycle.
    """

    step_size: Number = eqx.field(kw_only=True, default=0.05)
    radius: Radius = eqx.field(kw_only=True, default=inf)
    rule: Any = eqx.field(kw_only=True, static=True, default="gradient")
    weight_bound: Number = eqx.field(kw_only=True, default=4.0)
    baseline: Baseline = eqx.field(kw_only=True, static=True, default="none")
    output: Output = eqx.field(kw_only=True, static=True, default="last")

    def __check_init__(self) -> None:
        for name in ("snapshot_batch", "batch", "epoch_length"):
            if hasattr(self, name):
                check_integer(name, getattr(self, name))
        for name, allowed in (("baseline", get_args(Baseline)), ("output", get_args(Output))):
            if getattr(self, name) not in allowed:
                raise unknown(name, getattr(self, name), allowed)
        self.step()

    def step(self) -> Step:
        """The step rule."""
        return Step(self.step_size, self.radius, self.rule, self.weight_bound)

    @property
    @abstractmethod
    def cycle(self) -> tuple[int, ...]:
        """How many trajectories each iteration of a cycle needs; the first is the snapshot."""

    @abstractmethod
    def init(self, policy: Policy, size: int) -> State:
        """The state before anything was sampled, for an occupancy of length `size`."""

    @abstractmethod
    def start(self, state: State, batch: Batch) -> State:
        """The first iteration of a cycle, on a batch of `cycle[0]` trajectories."""

    @abstractmethod
    def refine(self, state: State, batch: Batch) -> State:
        """Any later iteration of a cycle."""

    @abstractmethod
    def reference(self, state: State) -> Policy:
        """The earlier policy that the next refinement puts importance weights on; the present one if there is none."""


class EpochAlgorithm(Algorithm[State]):
    """An algorithm whose cycle is an epoch: a large snapshot, then small refinements of it.

    Args:
        snapshot_batch: trajectories of the snapshot (N).
        batch: trajectories of each refinement (B).
        epoch_length: iterations in a cycle, the snapshot included (m).
        step_size, radius, rule, weight_bound, baseline, output: see `Algorithm`.
    """

    snapshot_batch: int = eqx.field(static=True, default=100)
    batch: int = eqx.field(static=True, default=10)
    epoch_length: int = eqx.field(static=True, default=10)


def fresh(batch: Batch, baseline: Baseline) -> tuple[Float[Array, " d"], Policy]:
    """Estimates from a batch alone: u = mean u_hat and g = mean g_hat(grad F(u)), for the policy that acted."""
    u = batch.occupancy()
    return u, batch.gradient(None, batch.quasi_reward(u), baseline)


def carried(
    batch: Batch, occupancy: Float[Array, " d"], gradient: Policy, then: Policy, now: Policy, baseline: Baseline
) -> tuple[Float[Array, " d"], Policy]:
    """Estimates at `then` carried over to `now`, by the mean difference of the estimates of both on one batch."""
    u = occupancy + batch.occupancy(now) - batch.occupancy(then)
    r = batch.quasi_reward(u)
    return u, add(gradient, subtract(batch.gradient(now, r, baseline), batch.gradient(then, r, baseline)))


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
