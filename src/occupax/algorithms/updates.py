"""Pure functions that the updates of the algorithms share."""

from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from occupax.batches import Batch
from occupax.errors import check_number, is_traced
from occupax.policies import Policy
from occupax.steps import Number

Value = TypeVar("Value")


def zero_gradient(policy: Policy) -> Policy:
    """Return a gradient of zero in the shape of a policy."""
    return jax.tree.map(jnp.zeros_like, eqx.filter(policy, eqx.is_inexact_array))


def add(left: Any, right: Any) -> Any:
    """Return the sum of two gradients."""
    return jax.tree.map(jnp.add, left, right)


def subtract(left: Any, right: Any) -> Any:
    """Return the difference of two gradients."""
    return jax.tree.map(jnp.subtract, left, right)


def scale(factor: Any, gradient: Any) -> Any:
    """Return a multiple of a gradient."""
    return jax.tree.map(lambda leaf: factor * leaf, gradient)


def choose(condition: Bool[Array, ""], first: Any, second: Any) -> Any:
    """Return the first of two trees where a condition holds, else the second; static parts are those of the first."""

    def select(left: Any, right: Any) -> Any:
        return jnp.where(condition, left, right) if eqx.is_array(left) else left

    return jax.tree.map(select, first, second)


def weights_are_trusted(
    batch: Batch, target: Policy, guard: Number | None, bound: Number
) -> Bool[Array, ""]:
    """Return whether the importance weights of a policy on a batch can be trusted.

    Args:
        batch: the batch of a refinement.
        target: the earlier policy whose weights are checked.
        guard: smallest effective sample size, as a fraction of the trajectories that took a step;
            None trusts all.
        bound: largest weight that is trusted. Weights have a mean of 1, so that the largest one of
            a batch must not be below 1 / bound either.

    Returns:
        A boolean array of shape ().
    """
    if guard is None:
        return jnp.ones((), bool)
    weighted = batch.statistics(target)
    unweighted = batch.statistics()
    enough = weighted.effective_sample_size >= guard * unweighted.effective_sample_size
    largest = weighted.largest_weight
    return enough & (largest <= bound) & (largest * bound >= 1)


def check_weight_guard(guard: Number | None, bound: Number) -> None:
    """Raise ValueError unless the hyperparameters of `weights_are_trusted` are in range."""
    if (
        guard is not None
        and not is_traced(guard)
        and check_number("weight_guard", guard, low=0.0) > 1
    ):
        raise ValueError(
            f"weight_guard must be a fraction of a batch, at most 1, or None, got {guard!r}."
        )
    if not is_traced(bound):
        check_number("weight_bound", bound, low=1.0, open_low=True)


def check_sizes(algorithm: Any, *names: str) -> None:
    """Raise ValueError if a size that has no default to be chosen is None, as it may be in a file."""
    for name in names:
        if getattr(algorithm, name) is None:
            raise ValueError(f"{name} must be a whole number of at least 1, got None.")


def resolved(name: str, value: Value | None) -> Value:
    """Return a hyperparameter that was given, or raise ValueError if it was left open."""
    if value is None:
        raise ValueError(
            f"{name} depends on the policy and is chosen by occupax.train; by hand, give the number."
        )
    return value
