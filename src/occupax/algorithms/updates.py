"""Pure functions shared by the updates of the algorithms."""

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
    """Return a gradient of zero in the shape of a policy.

    Args:
        policy: policy whose parameters give the shapes.

    Returns:
        A policy with zeros as parameters and None as other leaves.
    """
    return jax.tree.map(jnp.zeros_like, eqx.filter(policy, eqx.is_inexact_array))


def add(left: Any, right: Any) -> Any:
    """Return the sum of two gradients.

    Args:
        left: first gradient.
        right: second gradient, of the same structure.

    Returns:
        The leafwise sum.
    """
    return jax.tree.map(jnp.add, left, right)


def subtract(left: Any, right: Any) -> Any:
    """Return the difference of two gradients.

    Args:
        left: first gradient.
        right: gradient to subtract, of the same structure.

    Returns:
        The leafwise difference.
    """
    return jax.tree.map(jnp.subtract, left, right)


def scale(factor: Any, gradient: Any) -> Any:
    """Return a multiple of a gradient.

    Args:
        factor: number to multiply each leaf by.
        gradient: gradient to multiply.

    Returns:
        The leafwise product.
    """
    return jax.tree.map(lambda leaf: factor * leaf, gradient)


def choose(condition: Bool[Array, ""], first: Any, second: Any) -> Any:
    """Return the first of two trees if a condition holds, else the second.

    Args:
        condition: boolean array of shape ().
        first: tree to return if the condition holds.
        second: tree of the same structure.

    Returns:
        A tree with the selected arrays. Other leaves are those of `first`.
    """

    def select(left: Any, right: Any) -> Any:
        if not eqx.is_array(left):
            return left
        return jnp.where(condition, left, right)

    return jax.tree.map(select, first, second)


def weights_are_trusted(
    batch: Batch, target: Policy, guard: Number | None, bound: Number
) -> Bool[Array, ""]:
    """Return whether the importance weights of a policy on a batch can be trusted.

    Args:
        batch: the batch of a refinement.
        target: the earlier policy whose weights are checked.
        guard: smallest effective sample size, as a fraction of the on-policy one. None trusts all
            weights.
        bound: largest trusted weight. The mean of the weights is 1, so that the largest weight of
            a batch must be at least 1 / bound.

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
    if not is_traced(bound):
        check_number("weight_bound", bound, low=1.0, open_low=True)
    if guard is None or is_traced(guard):
        return
    if check_number("weight_guard", guard, low=0.0) > 1:
        raise ValueError(f"weight_guard must be in [0, 1] or None, got {guard!r}.")


def check_sizes(algorithm: Any, *names: str) -> None:
    """Raise ValueError if a size is None, as it may be in a configuration file."""
    for name in names:
        if getattr(algorithm, name) is None:
            raise ValueError(f"{name} must be an integer of at least 1, got None.")


def require_resolved(name: str, value: Value | None) -> Value:
    """Return a hyperparameter, or raise ValueError if it is None until `Algorithm.resolve`."""
    if value is None:
        raise ValueError(
            f"{name} must be a number outside occupax.train, got None. Use Algorithm.resolve."
        )
    return value
