"""How far to go along a gradient estimate."""

from dataclasses import replace
from math import inf, sqrt
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from occupax.batches import Batch
from occupax.errors import check_number, first_line, is_traced, shown, unknown
from occupax.policies import Policy, Tabular

RULES = ("adam", "gradient", "natural", "normalised")
RADII = ("theory",)
Number = Float[Array, ""] | float
Radius = Float[Array, ""] | float | Literal["theory"]

CONJUGATE_STEPS = 10
DAMPING = 0.1
"""Of natural steps, as a share of the Fisher information along the gradient."""

TABULAR_LIPSCHITZ = sqrt(0.5)
"""Bound l_psi for a softmax over a table of logits, for which ||grad log pi|| is at most
sqrt(2)."""

KEPT = 0.9, 0.99
"""What Adam keeps of its first and second moment at a step."""


class Moments(eqx.Module):
    """What Adam carries from one step to the next: averages of the gradient and of its square."""

    first: Policy
    second: Policy


class Memory(eqx.Module):
    """What is carried from one step to the next."""

    steps: Int[Array, ""]
    """How many were taken."""
    rule: Any
    clipped: Bool[Array, ""]
    """Whether the radius cut the last step short."""
    length: Float[Array, ""]

    def without_step(self) -> "Memory":
        """Return the state after an iteration that takes no step."""
        return replace(self, length=jnp.zeros_like(self.length), clipped=jnp.zeros((), bool))


class Step(eqx.Module):
    """theta + min(1, radius / ||d||) d, where d is `size` times a direction.

    With the rule "gradient" and a finite radius this is the truncated step of the paper (eq.
    defn:GA-Trc), with an infinite one plain ascent. A gradient of zero is a null step.

    Args:
        size: the step size (eta); None is that of `default_size`.
        radius: bound of the displacement's length (delta), in the l2 norm over all parameters.
            "theory" is 1 / (2 H l_psi), which `occupax.train` works out.
        rule: the direction: "adam" (Kingma and Ba, 2015, with a second moment that keeps 0.99),
            whose steps do not depend on the size of the utility, and which leaves a parameter as it
            is, with its moments, while its gradient is exactly zero, as that of a state is which
            nobody visits, "natural" (the solution x of (Fisher + damping) x = gradient at length
            one in the Fisher information, so that a step of size eta changes the policy by a KL
            divergence of about eta^2 / 2 an episode), "gradient", "normalised" (the gradient at
            length one), or an optax transformation, which is given the negative gradient because it
            descends.
        decay_after: after k steps, the next one has `size / sqrt(1 + k / decay_after)`; infinity is
            a constant size.
    """

    size: Number | None = None
    radius: Radius = inf
    rule: Any = eqx.field(static=True, default="gradient")
    decay_after: Number = inf

    def __check_init__(self) -> None:
        if self.size is not None and not is_traced(self.size):
            check_number("step_size", self.size, low=0.0)
        if isinstance(self.radius, str) and self.radius not in RADII:
            raise unknown("radius", self.radius, RADII)
        if not isinstance(self.radius, str) and not is_traced(self.radius) and self.radius != inf:
            check_number("radius", self.radius, low=0.0)
        if not is_traced(self.decay_after) and self.decay_after != inf:
            check_number("decay_after", self.decay_after, low=0.0, open_low=True)
        if not isinstance(self.rule, optax.GradientTransformation) and self.rule not in RULES:
            raise unknown("step rule", self.rule, RULES)

    def sized(self, policy: Policy) -> Number:
        """The step size, or that of the rule for this kind of policy."""
        return default_size(self.rule, policy) if self.size is None else self.size

    def init(self, policy: Policy) -> Memory:
        """Before the first step."""
        parameters, rule = eqx.filter(policy, eqx.is_inexact_array), ()
        if self.rule == "adam":
            still = jax.tree.map(jnp.zeros_like, parameters)
            rule = Moments(still, still)
        elif not isinstance(self.rule, str):
            rule = _called("init", self.rule.init, parameters)
        return Memory(jnp.zeros((), jnp.int32), rule, jnp.zeros((), bool), jnp.zeros(()))

    def __call__(
        self, policy: Policy, gradient: Policy, memory: Memory, batch: Batch | None = None
    ) -> tuple[Policy, Memory]:
        """The next policy and what is remembered.

        Only natural steps need `batch`, which is drawn under `policy`.
        """
        direction = _natural(gradient, batch) if self.rule == "natural" else gradient
        return self._move(policy, direction, memory)

    @eqx.filter_jit  # outside of a compiled program, each operation by itself would take five times as long
    def _move(self, policy: Policy, gradient: Policy, memory: Memory) -> tuple[Policy, Memory]:
        radius = self.radius
        if isinstance(radius, str):
            raise ValueError(
                "radius 'theory' depends on the horizon and is worked out by occupax.train; by hand, give the number "
                "theory.radius(horizon, lipschitz_psi)."
            )
        size = self.sized(policy) / jnp.sqrt(1 + memory.steps / self.decay_after)
        direction, remembered = gradient, ()
        if self.rule == "adam":
            direction, remembered = _adam(gradient, memory.rule, memory.steps + 1)
        elif self.rule == "normalised":
            length = global_norm(gradient)
            direction = optax.tree.scale(1 / jnp.where(length > 0, length, 1.0), gradient)
        elif not isinstance(self.rule, str):
            direction, remembered = _transformed(self.rule, policy, gradient, memory.rule)
        displacement = optax.tree.scale(size, direction)
        length = global_norm(displacement)
        clipped = length > radius
        shrink = jnp.where(clipped, radius / jnp.where(length > 0, length, 1.0), 1.0)
        moved = eqx.apply_updates(policy, jax.tree.map(lambda leaf: shrink * leaf, displacement))
        return moved, Memory(memory.steps + 1, remembered, clipped, shrink * length)


def theory_radius(horizon: int, lipschitz_psi: float) -> float:
    """Return the radius that keeps importance weights at most e, delta = 1 / (2 H l_psi) (theorem:ncvx)."""
    return 1 / (2 * horizon * lipschitz_psi)


def default_size(rule: Any, policy: Policy) -> float:
    """The step size of a rule, which depends neither on the utility nor on the number of parameters.

    An optax transformation has its own, which is not changed.
    """
    if not isinstance(rule, str):
        return 1.0
    return {"adam": 0.04 if isinstance(policy, Tabular) else 0.01, "natural": 0.1}.get(rule, 0.05)


def default_decay(rule: Any, policy: Policy) -> float:
    """After how many steps the size of `default_size` shrinks: with long steps for ever, networks may be lost again."""
    return 100.0 if rule == "adam" and not isinstance(policy, Tabular) else inf


def _transformed(
    rule: optax.GradientTransformation, policy: Policy, gradient: Policy, state: Any
) -> tuple[Any, Any]:
    """Return the direction and the next state of an optax transformation, both in the shapes of those before."""
    downhill, parameters = optax.tree.scale(-1, gradient), eqx.filter(policy, eqx.is_inexact_array)
    returned = _called("update", rule.update, downhill, state, parameters)
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise ValueError(
            f"rule must return a pair of directions and a state, got {shown(returned)}."
        )
    for what, before, after in zip(
        ("directions", "a state"), (downhill, state), returned, strict=True
    ):
        wanted, got = (jax.tree.map(_shape, tree) for tree in (before, after))
        if not eqx.tree_equal(wanted, got):
            shapes = f"{shown(jax.tree.leaves(wanted), 100)}, got {shown(jax.tree.leaves(got) or after, 100)}"
            raise ValueError(f"rule must return {what} of the shapes and types {shapes}.")
    return returned


def _shape(leaf: Any) -> str:
    return (
        f"{jnp.result_type(leaf)}{jnp.shape(leaf)}"
        if eqx.is_array_like(leaf)
        else type(leaf).__name__
    )


def _called(name: str, function: Any, *given: Any) -> Any:
    """Return what a function of an optax transformation returns."""
    try:
        return function(*given)
    except Exception as error:
        wanted = "rule must be a working optax transformation"
        raise ValueError(f"{wanted}, but its {name} failed: {first_line(error)}.") from error


def _adam(gradient: Policy, moments: Moments, steps: Int[Array, ""]) -> tuple[Policy, Moments]:
    """The first moment over the root of the second one, both corrected for their beginning at zero."""

    def average(kept: float, old: Policy, new: Policy) -> Policy:
        return jax.tree.map(
            lambda slope, before, now: jnp.where(
                slope == 0, before, kept * before + (1 - kept) * now
            ),
            gradient,
            old,
            new,
        )

    first = average(KEPT[0], moments.first, gradient)
    second = average(KEPT[1], moments.second, jax.tree.map(jnp.square, gradient))
    corrections = [1 - kept ** steps.astype(jnp.result_type(float)) for kept in KEPT]

    def direct(slope: Array, mean: Array, square: Array) -> Array:
        spread = jnp.sqrt(square / corrections[1])
        return jnp.where(
            slope == 0, 0.0, mean / corrections[0] / jnp.where(spread == 0, 1.0, spread)
        )

    return jax.tree.map(direct, gradient, first, second), Moments(first, second)


def _natural(gradient: Policy, batch: Batch | None) -> Policy:
    """The solution of (Fisher + damping) x = gradient by conjugate gradients, with <x, Fisher x> = 1."""
    if batch is None:
        raise ValueError("the rule 'natural' needs the batch that the gradient was estimated from.")
    length = global_norm(gradient)
    left = along = jax.tree.map(lambda leaf: leaf / jnp.where(length > 0, length, 1.0), gradient)
    damping = DAMPING * optax.tree.vdot(along, batch.fisher_vector(along))
    solution, squared = jax.tree.map(jnp.zeros_like, left), optax.tree.vdot(left, left)
    for _ in range(CONJUGATE_STEPS):
        image = optax.tree.add_scale(batch.fisher_vector(along), damping, along)
        share = _ratio(squared, optax.tree.vdot(along, image))
        solution = optax.tree.add_scale(solution, share, along)
        left = optax.tree.add_scale(left, -share, image)
        before, squared = squared, optax.tree.vdot(left, left)
        along = optax.tree.add_scale(left, _ratio(squared, before), along)
    information = optax.tree.vdot(solution, batch.fisher_vector(solution))
    return optax.tree.scale(_ratio(1.0, jnp.sqrt(jnp.maximum(information, 0.0))), solution)


def _ratio(top: Any, bottom: Any) -> Float[Array, ""]:
    return jnp.where(bottom > 0, top / jnp.where(bottom > 0, bottom, 1.0), 0.0)


def global_norm(tree: Any) -> Float[Array, ""]:
    """The l2 norm over all parameters together, scaled by the largest so that no square overflows."""
    leaves = jax.tree.leaves(tree)
    largest = jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in leaves]))
    scale = jnp.where(largest > 0, largest, 1.0)
    return scale * jnp.sqrt(sum(jnp.sum((leaf / scale) ** 2) for leaf in leaves))
