"""Tests of the declarations of a utility, and of the length of its occupancy."""

from math import isfinite

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from occupax.errors import check_integer, check_number, tracing_error
from occupax.utilities.base import Custom, Smoothness, Utility
from occupax.utilities.names import as_utility

SLACK = 1e-6
"""The relative and absolute excess of a measurement over a declaration that is allowed."""


def check(
    utility: object, size: int, mass: float = 1.0, samples: int = 200, seed: int = 0
) -> Smoothness:
    """Test the gradient, the concavity and the constants of a utility on random occupancies.

    Args:
        utility: a utility, its name, or a function of the occupancy.
        size: the length of the occupancies.
        mass: the largest sum of an occupancy.
        samples: the number of pairs of occupancies.
        seed: the seed of the random occupancies.

    Returns:
        The largest measured constants, to compare with the declared ones.

    Raises:
        ValueError: with a sentence for each declaration that is wrong.
    """
    subject = as_utility(utility)
    size = check_integer("size", size)
    samples = check_integer("samples", samples)
    seed = check_integer("seed", seed, minimum=0)
    check_size(subject, size)
    mass = check_number("mass", mass, low=0.0, open_low=True)
    points = _draw_occupancies(size, mass, 2 * samples, seed)
    with jax.enable_x64(True):
        points = np.asarray(jax.vmap(subject.domain)(jnp.asarray(points)))
        _check_finite_at_zero(subject, size)
    random = np.random.default_rng(seed + 1)
    steps = 1e-5 * mass * random.dirichlet(np.ones(size), 2 * samples)
    midpoints = (points[::2] + points[1::2]) / 2
    evaluated = np.concatenate([points, points + steps, points - steps, midpoints])
    with jax.enable_x64(True):
        all_values = np.asarray(jax.jit(jax.vmap(subject.value))(evaluated))
        gradients = np.asarray(jax.jit(jax.vmap(subject.gradient))(points))

    # NaN would pass every comparison below.
    name = type(subject).__name__
    if not (np.isfinite(all_values).all() and np.isfinite(gradients).all()):
        raise ValueError(f"{name} has values or gradients that are not finite on occupancies.")

    values, forward, backward, middle = np.split(all_values, np.arange(1, 4) * len(points))
    difference = (forward - backward) / 2
    constants = _measure(points, gradients)
    faults = [
        *_gradient_faults(values, difference, gradients, steps),
        *_concavity_faults(subject, values, middle),
        *_constant_faults(constants, subject.smoothness),
    ]
    if faults:
        raise ValueError(f"{name} does not keep what it declares: " + " ".join(faults))
    return constants


def check_size(utility: Utility, size: int) -> None:
    """Raise ValueError unless the utility takes an occupancy of this length, by tracing alone."""
    occupancy = jax.ShapeDtypeStruct((size,), jnp.result_type(float))
    try:
        value = jax.eval_shape(utility.value, occupancy)
        gradient = jax.eval_shape(utility.gradient, occupancy)
    except Exception as error:
        raise tracing_error("the utility", f"an occupancy of length {size}", error) from error
    if value.shape != () or gradient.shape != (size,):
        raise ValueError(
            f"a utility of {size} features must return a single number and a gradient of that "
            f"length, got shapes {value.shape} and {gradient.shape}."
        )


def _gradient_faults(
    values: Float[np.ndarray, " n"],
    difference: Float[np.ndarray, " n"],
    gradients: Float[np.ndarray, "n d"],
    steps: Float[np.ndarray, "n d"],
) -> list[str]:
    """Return the largest error of a gradient against central differences, if too large."""
    predicted = (gradients * steps).sum(1)
    scale = np.abs(gradients * steps).sum(1) + 1e-9 * (1 + np.abs(values))
    errors = np.abs(difference - predicted) / scale
    worst = int(errors.argmax())
    if errors[worst] <= 1e-3:
        return []
    length = np.abs(steps[worst]).sum()
    fault = (
        f"gradient: along a step of {length:.1e} the value changes by {difference[worst]:.6g}, "
        f"but the declared gradient predicts {predicted[worst]:.6g}."
    )
    return [fault]


def _concavity_faults(
    subject: Utility, values: Float[np.ndarray, " n"], middle: Float[np.ndarray, " k"]
) -> list[str]:
    """Return the largest distance of a midpoint below its chord, if the utility is concave."""
    sag = (values[::2] + values[1::2]) / 2 - middle
    if not subject.concave or (sag <= SLACK * (1 + np.abs(middle))).all():
        return []
    return [f"concave: declared, but a midpoint lies {sag.max():.3g} below the chord."]


def _constant_faults(measured: Smoothness, declared: Smoothness) -> list[str]:
    """Return the measured constants that exceed the declared ones."""
    faults: list[str] = []
    for name, constant, limit in zip(Smoothness._fields, measured, declared, strict=True):
        if isfinite(limit) and constant > limit * (1 + SLACK) + SLACK:
            faults.append(f"smoothness.{name}: declared {limit:.6g}, but {constant:.6g} was seen.")
    return faults


def _measure(points: Float[np.ndarray, "n d"], gradients: Float[np.ndarray, "n d"]) -> Smoothness:
    """Return the largest gradient and the largest change of a gradient between two points."""
    distances = points[::2] - points[1::2]
    changes = np.abs(gradients[::2] - gradients[1::2]).max(1)
    l2 = (changes / np.linalg.norm(distances, 2, axis=1)).max()
    l1 = (changes / np.linalg.norm(distances, 1, axis=1)).max()
    return Smoothness(float(np.abs(gradients).max()), float(l2), float(l1))


def _check_finite_at_zero(subject: Utility, size: int) -> None:
    """Raise ValueError for a utility that is not finite where nothing is visited.

    A class that declares infinite constants, such as Entropy(smoothing=0), is exempt.
    """
    if not isinstance(subject, Custom) and not isfinite(subject.smoothness.gradient_bound):
        return
    zero = subject.domain(jnp.zeros(size))
    for kind, method in (("value", subject.value), ("gradient", subject.gradient)):
        if not bool(jnp.isfinite(method(zero)).all()):
            raise ValueError(
                f"{type(subject).__name__} has a {kind} that is not finite where nothing is "
                "visited: add a small number, such as log(u + sigma) instead of log(u), or "
                "sqrt(u + sigma) instead of sqrt(u)."
            )


def _draw_occupancies(size: int, mass: float, count: int, seed: int) -> Float[np.ndarray, "n d"]:
    random = np.random.default_rng(seed)
    concentrations = np.exp(random.uniform(-3, 3, count))
    fractions = [random.dirichlet(np.full(size, level)) for level in concentrations]
    totals = random.uniform(0, 1, (count, 1))
    return mass * (totals * np.stack(fractions) * 0.999 + 1e-3 / size)
