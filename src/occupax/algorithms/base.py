"""What every algorithm provides."""

from abc import abstractmethod
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from occupax._errors import check_integer
from occupax.batch import Batch
from occupax.policies import Policy
from occupax.steps import Step

State = TypeVar("State")


class Algorithm(eqx.Module, Generic[State]):
    """Turns batches of trajectories into better policies, in cycles: one snapshot, then refinements.

    An algorithm does not sample, count or save: it says how many trajectories each iteration of its cycle needs, and is
    given a batch of them, drawn under the policy of its state. `start` and `refine` are pure functions and may be
    traced. Everything that is needed to go on is in the state.
    """

    step_size: eqx.AbstractVar[Float[Array, ""] | float]
    radius: eqx.AbstractVar[Float[Array, ""] | float]
    rule: eqx.AbstractVar[Any]

    def __check_init__(self) -> None:
        for name in ("snapshot_batch", "batch", "epoch_length"):
            if hasattr(self, name):
                check_integer(name, getattr(self, name))
        self.step()

    def step(self) -> Step:
        """The step rule."""
        return Step(self.step_size, self.radius, self.rule)

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


def fresh(batch: Batch) -> tuple[Float[Array, " d"], Policy]:
    """Estimates from a batch alone: u = mean u_hat and g = mean g_hat(grad F(u)), for the policy that acted."""
    u = batch.occupancy()
    return u, batch.gradient(batch.quasi_reward(u))


def carried(
    batch: Batch, occupancy: Float[Array, " d"], gradient: Policy, then: Policy, now: Policy
) -> tuple[Float[Array, " d"], Policy]:
    """Estimates at `then` carried over to `now`, by the mean difference of the estimates of both on one batch."""
    u = occupancy + batch.occupancy(now) - batch.occupancy(then)
    r = batch.quasi_reward(u)
    return u, add(gradient, subtract(batch.gradient(r, now), batch.gradient(r, then)))


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
