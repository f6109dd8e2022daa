"""Constraints: bounds of discounted expectations and of functions of the occupancy."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from occupax import features as feature_maps
from occupax.display import in_words
from occupax.envs.base import DecisionProcess
from occupax.errors import check_number
from occupax.features import Feature, Stack
from occupax.utilities.base import Sum, Utility
from occupax.utilities.library import Total, as_feedback
from occupax.utilities.names import as_utility


class Constraint(eqx.Module):
    """A bound on a discounted expectation, or on a function of the occupancy.

    Args:
        subject: what is limited: a feature of one number, such as `features.Info("cost")`, a
            function of (observation, action) or an array [S, A], whose discounted sum is expected
            to keep the limit; or a utility, concave for `at_least` and convex for `at_most`, so
            that mixtures of policies that keep the limit keep it, too. The names "info.cost",
            "reward" and those of utilities stand for what they say.
        at_most: the largest value that is allowed.
        at_least: the smallest value that is allowed; one of the two must be given.
        name: what it is called in records and reports; by default what the subject is called.
    """

    subject: Utility
    limit: float = eqx.field(static=True)
    upper: bool = eqx.field(static=True)
    """Whether the limit is an upper one."""
    name: str = eqx.field(static=True)

    def __init__(
        self,
        subject: Any,
        at_most: float | None = None,
        at_least: float | None = None,
        name: str | None = None,
    ):
        if (at_most is None) == (at_least is None):
            got = "neither" if at_most is None else f"at_most={at_most!r} and at_least={at_least!r}"
            raise ValueError(
                f"a constraint needs either at_most or at_least, got {got}; two bounds are two "
                "constraints."
            )
        self.upper = at_most is not None
        bound, limit = ("at_most", at_most) if self.upper else ("at_least", at_least)
        self.limit = check_number(bound, limit, low=-float("inf"), open_low=True)
        if isinstance(subject, str):
            name = subject if name is None else name
            subject = _named(subject)
        is_utility = isinstance(subject, Utility)
        self.subject = subject if is_utility else Total(as_feedback("subject", subject))
        self.name = _name(subject) if name is None else name

    def __check_init__(self) -> None:
        bound = "at_most" if self.upper else "at_least"
        check_number(bound, self.limit, low=-float("inf"), open_low=True)
        name: Any = self.name
        if not (isinstance(name, str) and name and name.isprintable() and "," not in name):
            raise ValueError(f"name must be a word without commas, got {name!r}.")
        curved = -self.subject if self.upper else self.subject
        if not curved.concave:
            kind, other = ("convex", "at_least") if self.upper else ("concave", "at_most")
            raise ValueError(
                f"{bound} needs a {kind} function of the occupancy, which {self.name!r} is not "
                f"declared to be: use {other}, or declare the function by "
                "utilities.Custom(function, concave=True), whose negative is convex."
            )

    @property
    def sign(self) -> float:
        """Sign of the violation: 1 for an upper bound and -1 for a lower bound."""
        return 1.0 if self.upper else -1.0

    def excess(self, value: Any) -> Any:
        """Return the violation of the bound by a value of the subject, negative for slack."""
        return self.sign * (value - self.limit)

    def __repr__(self) -> str:
        return f"Constraint({self}, subject={in_words(self.subject)})"

    def __str__(self) -> str:
        return f"{self.name} {'<=' if self.upper else '>='} {self.limit:g}"


def read_constraints(constraints: Any) -> tuple[Constraint, ...]:
    """Check a list of constraints, and number those of the same name."""
    if isinstance(constraints, Constraint | str) or not isinstance(constraints, Sequence):
        raise ValueError(
            f"constraints must be a list of occupax.Constraint, got {type(constraints).__name__}."
        )
    named: list[Constraint] = []
    for one in constraints:
        if not isinstance(one, Constraint):
            raise ValueError(
                f"constraints must be a list of occupax.Constraint, got {one!r:.60} in it."
            )
        name, number = one.name, 2
        while any(name == other.name for other in named):
            name, number = f"{one.name}-{number}", number + 1
        bound = {"at_most" if one.upper else "at_least": one.limit}
        named.append(Constraint(one.subject, **bound, name=name))
    return tuple(named)


def with_constraints(
    objective: Utility,
    constraints: Sequence[Constraint],
    env: DecisionProcess,
    discount: float,
    features: Feature | None,
) -> tuple[Sum, Feature]:
    """Return the utility of a problem with constraints, and the features of its occupancy.

    The utility is the Lagrangian with multipliers of 0: a sum of the objective and of the
    constrained functions, with weights of 0. Each term has a part of its own of the occupancy,
    unless all terms have the same features. The argument `features` holds for all terms except
    totals.
    """
    terms = [objective, *(constraint.subject for constraint in constraints)]
    shared = [None if isinstance(term, Total) else features for term in terms]
    counted = [
        term.features() if features is None else features
        for term, features in zip(terms, shared, strict=True)
    ]
    for constraint, features in zip(constraints, counted[1:], strict=True):
        if isinstance(constraint.subject, Total) and features.size(env) != 1:
            raise ValueError(
                f"a limit is for one number, but {constraint.name!r} counts {features.size(env)}: "
                "give a constraint for each of them, or a utility of them."
            )
    bound = tuple(
        term.bound(env, discount, features) for term, features in zip(terms, shared, strict=True)
    )
    weights = (1.0, *(0.0 for _ in constraints))
    if all(bool(eqx.tree_equal(counted[0], features)) for features in counted[1:]):
        return Sum(bound, weights), counted[0]
    return Sum(bound, weights, tuple(features.size(env) for features in counted)), Stack(*counted)


def excesses(
    utility: Sum, constraints: Sequence[Constraint], occupancy: Float[Array, " d"]
) -> Float[Array, " K"]:
    """Return the violation of each constraint by an occupancy, negative for slack."""
    pairs = zip(constraints, utility.parts(occupancy)[1:], strict=True)
    return jnp.stack([constraint.excess(term.value(part)) for constraint, (_, term, part) in pairs])


def lagrangian(
    utility: Sum, constraints: Sequence[Constraint], multipliers: Any, weight: Any = 1.0
) -> Sum:
    """Return weight * F minus the sum of multiplier times excess, up to a constant."""
    weights = [-constraint.sign * multipliers[k] for k, constraint in enumerate(constraints)]
    return eqx.tree_at(lambda total: total.weights, utility, (weight, *weights))


def _named(name: str) -> Feature | Utility:
    """Return the feature or utility of a name: info.NAME, reward, or the name of a utility."""
    kind, _, key = name.partition(".")
    if kind == "info" and key:
        return feature_maps.Info(key)
    if name == "reward":
        return feature_maps.Reward()
    return as_utility(name)


def _name(subject: Any) -> str:
    """Return the default name of a constraint on a subject."""
    if isinstance(subject, feature_maps.Info):
        return ".".join(["info", *subject.names])
    if isinstance(subject, Feature | Utility):
        return type(subject).__name__.lower()
    name = getattr(subject, "__name__", "cost")
    return name if name.isidentifier() else "cost"
