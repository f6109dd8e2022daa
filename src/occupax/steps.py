"""Step rules: policy updates along a gradient estimate."""

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
"""Iterations of conjugate gradients in a natural step."""
DAMPING = 0.1
"""Damping of natural steps, as a fraction of the Fisher information along the gradient."""
TABULAR_LIPSCHITZ = sqrt(0.5)
"""Bound l_psi for a softmax over a table of logits, where ||grad log pi|| is at most sqrt(2)."""
FIRST_DECAY = 0.9
"""Decay of the first moment of Adam at a step."""
SECOND_DECAY = 0.99
"""Decay of the second moment of Adam at a step."""


class Moments(eqx.Module):
    """Moving averages of Adam: of the gradient and of its square."""

    first: Policy
    second: Policy


class StepState(eqx.Module):
    """State of a step rule between two steps."""

    steps: Int[Array, ""]
    """Number of steps so far."""
    rule: Any
    """State of the rule, such as the moments of Adam."""
    clipped: Bool[Array, ""]
    """Whether the radius truncated the last step."""
    length: Float[Array, ""]
    """Norm of the last displacement."""

    def without_step(self) -> "StepState":
        """Return the state after an iteration that takes no step."""
        return replace(self, length=jnp.zeros_like(self.length), clipped=jnp.zeros((), bool))


class Step(eqx.Module):
    """Step theta + min(1, radius / ||d||) d, where d is the step size times a direction.

    The rule "gradient" with a finite radius is the truncated step of the paper (eq. defn:GA-Trc).
    The same rule with an infinite radius is gradient ascent. A zero gradient does not move theta.

    Args:
        size: step size (eta). Default: that of `default_size`.
        radius: bound of the norm of the displacement (delta), in the l2 norm over all parameters.
            "theory" is 1 / (2 H l_psi), which `occupax.train` computes. Default: inf.
        rule: direction of a step. Default: "gradient".
            "adam": Adam (Kingma and Ba, 2015) with beta_2 = 0.99. Parameters with a zero gradient,
            as in unvisited states, keep their values and moments.
            "natural": the solution x of (Fisher + damping) x = gradient, scaled to a Fisher norm of
            one. A step of size eta changes the policy by a KL divergence of about eta^2 / 2 an
            episode.
            "gradient": the gradient.
            "normalised": the gradient divided by its norm.
            An optax transformation receives the negative gradient, because it descends.
        decay_after: number of steps k_0 in the decay size / sqrt(1 + k / k_0). Default: inf, a
            constant step size.
    """

    size: Number | None = None
    radius: Radius = inf
    rule: Any = eqx.field(static=True, default="gradient")
    decay_after: Number = inf

    def __check_init__(self) -> None:
        if self.size is not None and not is_traced(self.size):
            check_number("step_size", self.size, low=0.0)
        if isinstance(self.radius, str):
            if self.radius not in RADII:
                raise unknown("radius", self.radius, RADII)
        elif not is_traced(self.radius) and self.radius != inf:
            check_number("radius", self.radius, low=0.0)
        if not is_traced(self.decay_after) and self.decay_after != inf:
            check_number("decay_after", self.decay_after, low=0.0, open_low=True)
        if not isinstance(self.rule, optax.GradientTransformation) and self.rule not in RULES:
            raise unknown("step rule", self.rule, RULES)

    def size_for(self, policy: Policy) -> Number:
        """Return the step size, by default that of the rule for this kind of policy."""
        if self.size is None:
            return default_size(self.rule, policy)
        return self.size

    def init(self, policy: Policy) -> StepState:
        """Return the state before the first step."""
        params = eqx.filter(policy, eqx.is_inexact_array)
        rule_state: Any = ()
        if self.rule == "adam":
            zeros = jax.tree.map(jnp.zeros_like, params)
            rule_state = Moments(zeros, zeros)
        elif not isinstance(self.rule, str):
            rule_state = _call("init", self.rule.init, params)
        return StepState(jnp.zeros((), jnp.int32), rule_state, jnp.zeros((), bool), jnp.zeros(()))

    def __call__(
        self, policy: Policy, gradient: Policy, state: StepState, batch: Batch | None = None
    ) -> tuple[Policy, StepState]:
        """Return the next policy and the next state.

        Args:
            policy: current policy.
            gradient: gradient estimate at the current policy.
            state: state of the rule before the step.
            batch: on-policy batch, which natural steps need.
        """
        direction = gradient
        if self.rule == "natural":
            direction = _natural_direction(gradient, batch)
        return self._move(policy, direction, state)

    @eqx.filter_jit  # outside a compiled program, separate operations would take five times as long
    def _move(self, policy: Policy, gradient: Policy, state: StepState) -> tuple[Policy, StepState]:
        radius = self.radius
        if isinstance(radius, str):
            raise ValueError(
                "radius must be a number outside occupax.train, got 'theory'. Use "
                "theory.radius(horizon, lipschitz_psi)."
            )
        size = self.size_for(policy) / jnp.sqrt(1 + state.steps / self.decay_after)
        direction = gradient
        rule_state: Any = ()
        if self.rule == "adam":
            direction, rule_state = _adam_direction(gradient, state.rule, state.steps + 1)
        elif self.rule == "normalised":
            norm = global_norm(gradient)
            direction = optax.tree.scale(1 / jnp.where(norm > 0, norm, 1.0), gradient)
        elif not isinstance(self.rule, str):
            direction, rule_state = _optax_direction(self.rule, policy, gradient, state.rule)
        displacement = optax.tree.scale(size, direction)
        length = global_norm(displacement)
        clipped = length > radius
        shrink = jnp.where(clipped, radius / jnp.where(length > 0, length, 1.0), 1.0)
        truncated = jax.tree.map(lambda leaf: shrink * leaf, displacement)
        next_policy = eqx.apply_updates(policy, truncated)
        return next_policy, StepState(state.steps + 1, rule_state, clipped, shrink * length)


def theory_radius(horizon: int, lipschitz_psi: float) -> float:
    """Return delta = 1 / (2 H l_psi), with importance weights of at most e (theorem:ncvx)."""
    return 1 / (2 * horizon * lipschitz_psi)


def default_size(rule: Any, policy: Policy) -> float:
    """Return the default step size of a rule for a kind of policy."""
    if not isinstance(rule, str):
        return 1.0
    if rule == "natural":
        return 0.1
    if rule != "adam":
        return 0.05
    if isinstance(policy, Tabular):
        return 0.04
    return 0.01


def default_decay(rule: Any, policy: Policy) -> float:
    """Return the default of `decay_after`, finite for networks and Adam.

    Networks may lose a good policy if all steps are equally long.
    """
    if rule == "adam" and not isinstance(policy, Tabular):
        return 100.0
    return inf


def _optax_direction(
    rule: optax.GradientTransformation, policy: Policy, gradient: Policy, state: Any
) -> tuple[Any, Any]:
    """Return the direction and the next state of an optax transformation."""
    descent = optax.tree.scale(-1, gradient)
    params = eqx.filter(policy, eqx.is_inexact_array)
    returned = _call("update", rule.update, descent, state, params)
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise ValueError(
            f"rule must return a pair of directions and a state, got {shown(returned)}."
        )
    direction, next_state = returned
    _check_shapes("directions", descent, direction)
    _check_shapes("a state", state, next_state)
    return direction, next_state


def _check_shapes(name: str, expected: Any, returned: Any) -> None:
    """Raise ValueError if a rule returns a tree of other shapes and types than expected."""
    expected_shapes = jax.tree.map(_shape, expected)
    shapes = jax.tree.map(_shape, returned)
    if eqx.tree_equal(expected_shapes, shapes):
        return
    allowed = shown(jax.tree.leaves(expected_shapes), 100)
    got = shown(jax.tree.leaves(shapes) or returned, 100)
    raise ValueError(f"rule must return {name} of the shapes and types {allowed}, got {got}.")


def _shape(leaf: Any) -> str:
    if eqx.is_array_like(leaf):
        return f"{jnp.result_type(leaf)}{jnp.shape(leaf)}"
    return type(leaf).__name__


def _call(name: str, function: Any, *arguments: Any) -> Any:
    """Call a function of an optax transformation and raise ValueError if the function fails."""
    try:
        return function(*arguments)
    except Exception as error:
        expected = "rule must be a working optax transformation"
        raise ValueError(f"{expected}, but its {name} failed: {first_line(error)}.") from error


def _adam_direction(
    gradient: Policy, moments: Moments, steps: Int[Array, ""]
) -> tuple[Policy, Moments]:
    """Return the ratio of the corrected first moment to the root of the second, and the moments."""

    def average(decay: float, moment: Policy, new: Policy) -> Policy:
        def average_leaf(slope: Array, moment: Array, new: Array) -> Array:
            return jnp.where(slope == 0, moment, decay * moment + (1 - decay) * new)

        return jax.tree.map(average_leaf, gradient, moment, new)

    exponent = steps.astype(jnp.result_type(float))
    first_correction = 1 - FIRST_DECAY**exponent
    second_correction = 1 - SECOND_DECAY**exponent

    def direct(slope: Array, mean: Array, square: Array) -> Array:
        spread = jnp.sqrt(square / second_correction)
        ratio = mean / first_correction / jnp.where(spread == 0, 1.0, spread)
        return jnp.where(slope == 0, 0.0, ratio)

    first = average(FIRST_DECAY, moments.first, gradient)
    second = average(SECOND_DECAY, moments.second, jax.tree.map(jnp.square, gradient))
    direction = jax.tree.map(direct, gradient, first, second)
    return direction, Moments(first, second)


def _natural_direction(gradient: Policy, batch: Batch | None) -> Policy:
    """Return (Fisher + damping)^-1 gradient by conjugate gradients, scaled to Fisher norm 1."""
    if batch is None:
        raise ValueError(
            "batch must be the batch of the gradient estimate for the rule 'natural', got None."
        )
    norm = global_norm(gradient)
    residual = jax.tree.map(lambda leaf: leaf / jnp.where(norm > 0, norm, 1.0), gradient)
    direction = residual
    damping = DAMPING * optax.tree.vdot(direction, batch.fisher_vector(direction))
    solution = jax.tree.map(jnp.zeros_like, residual)
    residual_norm_sq = optax.tree.vdot(residual, residual)
    for _ in range(CONJUGATE_STEPS):
        fisher_product = batch.fisher_vector(direction)
        damped_product = optax.tree.add_scale(fisher_product, damping, direction)
        size = _ratio(residual_norm_sq, optax.tree.vdot(direction, damped_product))
        solution = optax.tree.add_scale(solution, size, direction)
        residual = optax.tree.add_scale(residual, -size, damped_product)
        previous_norm_sq = residual_norm_sq
        residual_norm_sq = optax.tree.vdot(residual, residual)
        correction = _ratio(residual_norm_sq, previous_norm_sq)
        direction = optax.tree.add_scale(residual, correction, direction)
    information = optax.tree.vdot(solution, batch.fisher_vector(solution))
    fisher_norm = jnp.sqrt(jnp.maximum(information, 0.0))
    return optax.tree.scale(_ratio(1.0, fisher_norm), solution)


def _ratio(numerator: Any, denominator: Any) -> Float[Array, ""]:
    """Return a quotient, 0 unless the denominator is positive."""
    is_positive = denominator > 0
    return jnp.where(is_positive, numerator / jnp.where(is_positive, denominator, 1.0), 0.0)


def global_norm(tree: Any) -> Float[Array, ""]:
    """Return the l2 norm of all leaves together, scaled by the largest entry against overflow."""
    leaves = jax.tree.leaves(tree)
    largest = jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in leaves]))
    scale = jnp.where(largest > 0, largest, 1.0)
    sum_of_squares = sum(jnp.sum((leaf / scale) ** 2) for leaf in leaves)
    return scale * jnp.sqrt(sum_of_squares)
