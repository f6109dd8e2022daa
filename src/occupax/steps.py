"""How far to go along a gradient estimate."""

from math import inf
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from occupax._errors import check_number, unknown
from occupax.policies import Policy

RULES = ("gradient", "normalised")


class Step(eqx.Module):
    """theta + min(1, radius / ||d||) d, where d is `size` times a direction.

    With the rule "gradient" and a finite radius this is the truncated step of the paper (eq. defn:GA-Trc), with an
    infinite one plain ascent. A gradient of zero is a null step.

    Args:
        size: the step size (eta).
        radius: bound of the displacement's length (delta), in the l2 norm over all parameters.
        rule: the direction: "gradient", "normalised" (the gradient at length one), or an optax transformation, which is
            given the negative gradient because it descends.
    """

    size: Float[Array, ""] | float
    radius: Float[Array, ""] | float = inf
    rule: Any = eqx.field(static=True, default="gradient")

    def __check_init__(self) -> None:
        if isinstance(self.size, (int, float)):
            check_number("step_size", self.size, low=0.0)
        if isinstance(self.radius, (int, float)) and self.radius != inf:
            check_number("radius", self.radius, low=0.0)
        if not isinstance(self.rule, optax.GradientTransformation) and self.rule not in RULES:
            raise unknown("step rule", self.rule, RULES)

    def init(self, policy: Policy) -> Any:
        """What an optax transformation remembers; nothing otherwise."""
        if isinstance(self.rule, str):
            return ()
        return self.rule.init(eqx.filter(policy, eqx.is_inexact_array))

    def __call__(self, policy: Policy, gradient: Policy, memory: Any) -> tuple[Policy, Any]:
        """Return the next policy and what is to be remembered."""
        if isinstance(self.rule, str):
            length = global_norm(gradient) if self.rule == "normalised" else 1.0
            factor = self.size / jnp.where(length > 0, length, 1.0)
            displacement = jax.tree.map(lambda leaf: factor * leaf, gradient)
        else:
            downhill = jax.tree.map(jnp.negative, gradient)
            updates, memory = self.rule.update(downhill, memory, eqx.filter(policy, eqx.is_inexact_array))
            displacement = jax.tree.map(lambda leaf: self.size * leaf, updates)
        return eqx.apply_updates(policy, self._truncate(displacement)), memory

    def _truncate(self, displacement: Any) -> Any:
        length = global_norm(displacement)
        shrink = jnp.where(length > self.radius, self.radius / jnp.where(length > 0, length, 1.0), 1.0)
        return jax.tree.map(lambda leaf: shrink * leaf, displacement)


def global_norm(tree: Any) -> Float[Array, ""]:
    """The l2 norm over all parameters together."""
    return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)))
