"""Any function as a utility, what a problem fills in, and tests of what a utility declares about itself."""

from collections.abc import Callable
from math import inf, isfinite
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from occupax import features as feature_maps
from occupax.envs.base import DecisionProcess
from occupax.envs.tabular import TabularMDP
from occupax.errors import check_integer, check_number, tracing_error, unknown
from occupax.features import Feature, as_feature
from occupax.utilities.base import Smoothness, Sum, Utility, nonnegative
from occupax.utilities.library import UTILITIES, Entropy, Linear, Reward, Total
from occupax.utilities.several import LogDet, NashWelfare, SoftMin
from occupax.utilities.targets import KL, ForwardKL, Imitation

OF_SOMETHING: dict[str, Callable[..., Utility]] = {
    "kl": KL,
    "forward-kl": ForwardKL,
    "soft-min": SoftMin,
    "nash-welfare": NashWelfare,
    "log-det": LogDet,
}
"""Utilities that need a target, rewards or regressors; on the command line these follow the name
and a colon."""

SLACK = 1e-6
"""By how much what is measured may exceed what is declared."""


class Custom(Utility):
    """Any JAX function of the occupancy.

    Args:
        function: takes the occupancy, a vector, and returns a number.
        features: what the occupancy counts; pairs of state and action by default, entry s * A + a.
        concave: whether the function is concave; `occupax.utilities.check` tests the claim.
        smoothness: the constants of the theory, where known.
        domain: projection on where the function is defined; by default non-negative vectors for
            features of visits.
    """

    function: Callable[[Float[Array, " d"]], Any]
    counted: Feature | None
    declared_concave: bool = eqx.field(static=True)
    declared_smoothness: Smoothness = eqx.field(static=True)
    projection: Callable[[Float[Array, " d"]], Float[Array, " d"]] | None = eqx.field(static=True)

    def __init__(
        self,
        function: Callable[[Any], Any],
        features: Feature | Callable[[Any, Any], Any] | None = None,
        concave: bool = False,
        smoothness: Smoothness | tuple[float, float, float] = (inf, inf, inf),
        domain: Callable[[Any], Any] | None = None,
    ):
        if not callable(function) or isinstance(function, type):
            raise ValueError(
                f"a utility must be one of occupax.utilities or a function, got {function!r}."
            )
        self.function, self.declared_concave, self.projection = function, concave, domain
        self.counted = None if features is None else as_feature(features)
        if np.shape(smoothness) != (len(Smoothness._fields),):
            raise ValueError(
                f"smoothness must be the constants {', '.join(Smoothness._fields)}, got {smoothness!r}."
            )
        self.declared_smoothness = Smoothness(*smoothness)

    def value(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """What the function returns."""
        value = jnp.asarray(self.function(occupancy))
        if value.shape != ():
            raise ValueError(
                f"a utility must return a single number, got an array of shape {value.shape}."
            )
        if jnp.iscomplexobj(value):
            raise ValueError(f"a utility must return a real number, got {value.dtype}.")
        return value

    def gradient(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """The gradient of the function, by automatic differentiation."""
        return jax.grad(self.value)(occupancy)

    def domain(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """The given projection, or one that suits the features."""
        if self.projection is not None:
            return self.projection(occupancy)
        return (
            nonnegative(occupancy)
            if isinstance(self.features(), feature_maps.VISITS)
            else occupancy
        )

    @property
    def concave(self) -> bool:
        """Whether the function was declared concave."""
        return self.declared_concave

    @property
    def smoothness(self) -> Smoothness:
        """The constants that were declared."""
        return self.declared_smoothness

    def features(self) -> Feature:
        """The given features, or pairs of state and action."""
        return feature_maps.StateAction() if self.counted is None else self.counted


def as_utility(value: Any) -> Utility:
    """Return a utility as it is, make the one of a name, and wrap a plain function."""
    if isinstance(value, str):
        if value in OF_SOMETHING:
            kind = OF_SOMETHING[value].__name__
            needed = {"kl": "target", "forward-kl": "target", "log-det": "regressors"}.get(
                value, "rewards"
            )
            given = f"give occupax.utilities.{kind}({needed}), or {value}:{needed.upper()} on the command line"
            raise ValueError(f"utility {value!r} needs its {needed}, which no name has: {given}.")
        if value not in UTILITIES:
            raise unknown("utility", value, [*UTILITIES, *OF_SOMETHING])
        return UTILITIES[value]()
    return value if isinstance(value, Utility) else Custom(value)


def bind(
    utility: Utility, env: DecisionProcess, discount: float, features: Feature | None
) -> Utility:
    """Fill in what only the problem knows; `features` are those given by hand, which all terms then share."""
    if isinstance(utility, Sum):
        terms = tuple(bind(term, env, discount, features) for term in utility.terms)
        return Sum(terms, utility.weights, utility.part_sizes(env) if features is None else None)
    if isinstance(utility, Entropy) and utility.scale is None:
        return Entropy(utility.smoothing, 1.0 - discount)
    if isinstance(utility, Imitation):
        scale = 1.0 - discount if utility.scale is None else utility.scale
        given = utility.counted if features is None else features
        target = (
            utility.target.reshape(-1, env.num_actions)
            if isinstance(given, feature_maps.StateAction)
            else utility.target
        )
        return type(utility)(target, utility.smoothing, scale, given)
    if isinstance(utility, Reward) and features is not None:
        return _return_of(env, features)
    if isinstance(utility, Total) and features is not None:
        raise ValueError(
            "the utility Total has a feature of its own; leave features out, or give Linear(weights)."
        )
    if isinstance(utility, Custom) and features is not None:
        return eqx.tree_at(
            lambda it: it.counted, utility, features, is_leaf=lambda leaf: leaf is None
        )
    return utility


def rescaled(utility: Utility, before: float, after: float) -> Utility:
    """Return a utility of the distribution of visits for another scale, if it has the scale `before`."""
    if isinstance(utility, Sum):
        terms = tuple(rescaled(term, before, after) for term in utility.terms)
        return Sum(terms, utility.weights, utility.sizes)
    if isinstance(utility, Entropy) and utility.scale == before:
        return Entropy(utility.smoothing, after)
    if isinstance(utility, Imitation) and utility.scale == before:
        return type(utility)(utility.target, utility.smoothing, after, utility.counted)
    return utility


def _return_of(env: DecisionProcess, features: Feature) -> Utility:
    if isinstance(features, feature_maps.Reward):
        return Reward()
    if isinstance(features, feature_maps.StateAction) and isinstance(env, TabularMDP):
        return Linear(env.reward)
    raise ValueError(
        f"the utility Reward is not a function of the features {type(features).__name__}; leave features out, or give "
        "a utility of these features."
    )


def check(
    utility: object, size: int, mass: float = 1.0, samples: int = 200, seed: int = 0
) -> Smoothness:
    """Test a utility's gradient, concavity and constants on random occupancies of a size, with totals up to a mass.

    Returns:
        The largest constants that were seen, to compare with the declared ones.

    Raises:
        ValueError: with a sentence for each declaration that does not hold.
    """
    subject = as_utility(utility)
    size, samples = check_integer("size", size), check_integer("samples", samples)
    seed = check_integer("seed", seed, minimum=0)
    refuse_unless_fitting(subject, size)
    points = _occupancies(
        size, check_number("mass", mass, low=0.0, open_low=True), 2 * samples, seed
    )
    with jax.enable_x64(True):
        points = np.asarray(jax.vmap(subject.domain)(jnp.asarray(points)))
        _refuse_infinite_at_zero(subject, size)
    steps = 1e-5 * mass * np.random.default_rng(seed + 1).dirichlet(np.ones(size), 2 * samples)
    tried = np.concatenate(
        [points, points + steps, points - steps, (points[::2] + points[1::2]) / 2]
    )
    with jax.enable_x64(True):
        values = np.asarray(jax.jit(jax.vmap(subject.value))(tried))
        gradients = np.asarray(jax.jit(jax.vmap(subject.gradient))(points))

    # NaN would pass every comparison below.
    if not (np.isfinite(values).all() and np.isfinite(gradients).all()):
        raise ValueError(
            f"{type(subject).__name__} has values or gradients that are not finite on occupancies."
        )

    values, forward, backward, middle = np.split(values, np.arange(1, 4) * len(points))
    slope, predicted = (forward - backward) / 2, (gradients * steps).sum(1)
    size_of_step = np.abs(gradients * steps).sum(1) + 1e-9 * (1 + np.abs(values))
    worst = int((np.abs(slope - predicted) / size_of_step).argmax())
    faults: list[str] = []
    if abs(slope[worst] - predicted[worst]) > 1e-3 * size_of_step[worst]:
        faults.append(
            f"gradient: along a step of {np.abs(steps[worst]).sum():.1e} the value changes by {slope[worst]:.6g}, "
            f"but the declared gradient predicts {predicted[worst]:.6g}."
        )
    sag = (values[::2] + values[1::2]) / 2 - middle
    if subject.concave and (sag > SLACK * (1 + np.abs(middle))).any():
        faults.append(f"concave: declared, but a midpoint lies {sag.max():.3g} below the chord.")

    moved, change = points[::2] - points[1::2], np.abs(gradients[::2] - gradients[1::2]).max(1)
    rates = [float((change / np.linalg.norm(moved, order, axis=1)).max()) for order in (2, 1)]
    seen = Smoothness(float(np.abs(gradients).max()), *rates)
    for name, measured, declared in zip(Smoothness._fields, seen, subject.smoothness, strict=True):
        if isfinite(declared) and measured > declared * (1 + SLACK) + SLACK:
            faults.append(
                f"smoothness.{name}: declared {declared:.6g}, but {measured:.6g} was seen."
            )
    if faults:
        raise ValueError(
            f"{type(subject).__name__} does not keep what it declares: " + " ".join(faults)
        )
    return seen


def _refuse_infinite_at_zero(subject: Utility, size: int) -> None:
    """Refuse a utility that is not finite where nothing is visited, unless its kind is known for it."""
    if not isinstance(subject, Custom) and not isfinite(subject.smoothness.gradient_bound):
        return
    zero = subject.domain(jnp.zeros(size))
    found = {"value": subject.value(zero), "gradient": subject.gradient(zero)}
    for what, numbers in found.items():
        if not bool(jnp.isfinite(numbers).all()):
            raise ValueError(
                f"{type(subject).__name__} has a {what} that is not finite where nothing is visited: add a small "
                "number, such as log(u + sigma) instead of log(u), or sqrt(u + sigma) instead of sqrt(u)."
            )


def refuse_unless_fitting(utility: Utility, size: int) -> None:
    """Find out by tracing, before anything is computed, whether the utility takes an occupancy of this length."""
    occupancy = jax.ShapeDtypeStruct((size,), jnp.result_type(float))
    try:
        value = jax.eval_shape(utility.value, occupancy)
        gradient = jax.eval_shape(utility.gradient, occupancy)
    except Exception as error:
        raise tracing_error("the utility", f"an occupancy of length {size}", error) from error
    if value.shape != () or gradient.shape != (size,):
        raise ValueError(
            f"a utility of {size} features must return a single number and a gradient of that length, got shapes "
            f"{value.shape} and {gradient.shape}."
        )


def _occupancies(size: int, mass: float, count: int, seed: int) -> Float[np.ndarray, "n d"]:
    random = np.random.default_rng(seed)
    concentration = np.exp(random.uniform(-3, 3, count))
    shares = np.stack([random.dirichlet(np.full(size, c)) for c in concentration])
    return mass * (random.uniform(0, 1, (count, 1)) * shares * 0.999 + 1e-3 / size)
