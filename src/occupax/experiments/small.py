"""Small problems with an optimum inside, where the theorem applies, and ascent along their exact gradients."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from occupax import exact, features, utilities
from occupax.envs import TabularMDP, make
from occupax.exact.dynamics import dynamics
from occupax.problem import Problem

GARNET, SMALL_LAKE, ENTROPY = "garnet coverage", "4 x 4 lake coverage", "garnet entropy"


@dataclass(frozen=True)
class SmallProblem:
    """A problem, and what its best stationary policy is worth."""

    name: str
    problem: Problem

    @cached_property
    def optimum(self) -> float:
        """The utility of the best table, by a quasi-Newton method with exact gradients from the uniform policy."""
        from scipy import optimize

        with jax.enable_x64(True):
            model, shape = _model(self.problem), dynamics(self.problem).shape
            slope = eqx.filter_jit(
                eqx.filter_value_and_grad(lambda logits: -_utility(self.problem, model, logits))
            )

            def loss(logits: np.ndarray) -> tuple[float, np.ndarray]:
                value, gradient = slope(jnp.asarray(logits.reshape(shape)))
                return float(value), np.asarray(gradient, float).ravel()

            settings: Any = {"maxiter": 5000, "gtol": 1e-11, "ftol": 0.0}
            found = optimize.minimize(
                loss, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options=settings
            )
        return -float(found.fun)

    @cached_property
    def least_probability(self) -> float:
        """The smallest probability of an action in the optimum over occupancies: above zero it lies inside."""
        found = exact.solve(Problem(**self._arguments(horizon=None)))
        occupancy = np.asarray(found.occupancy)
        visited = occupancy.sum(1) > 1e-9
        return float((occupancy[visited] / occupancy[visited].sum(1, keepdims=True)).min())

    def _arguments(self, horizon: int | None) -> dict[str, Any]:
        it = self.problem
        return {
            "env": it.env,
            "utility": it.utility,
            "discount": it.discount,
            "horizon": horizon,
            "features": it.features,
        }


@cache
def small_problems() -> dict[str, SmallProblem]:
    """All of them, by name."""
    pairs, discount, horizon = features.StateAction(), 0.9, 30
    five, eight = (
        TabularMDP.garnet(*sizes, jax.random.key(seed))
        for sizes, seed in (((5, 3, 2), 0), ((8, 2, 3), 1))
    )
    listed = [
        SmallProblem(GARNET, Problem(five, utilities.LogCoverage(0.125), discount, horizon)),
        SmallProblem(
            SMALL_LAKE,
            Problem(
                make("FrozenLake-v1"),
                utilities.LogCoverage(0.02),
                discount,
                horizon,
                features=pairs,
            ),
        ),
        SmallProblem(
            ENTROPY, Problem(eight, utilities.Entropy(), discount, horizon, features=pairs)
        ),
    ]
    return {it.name: it for it in listed}


def exact_ascent(
    problem: Problem,
    table: Float[np.ndarray, "S A"],
    step_size: float,
    radius: float,
    steps: Sequence[int],
) -> Float[np.ndarray, " step"]:
    """The utility after numbers of steps along the exact gradient, no longer than a radius: nothing is sampled."""
    with jax.enable_x64(True):
        arrays = _model(problem)
        logits, values, done = jnp.asarray(table, float), list[float](), 0
        for count in steps:
            logits = _ascend(problem, arrays, logits, step_size, radius, count - done)
            done = count
            values.append(float(_utility(problem, arrays, logits)))
    return np.array(values)


Model = tuple[Float[Array, "S A S"], Float[Array, " S"], Float[Array, "n d"]]
"""Discounted transitions, the first states, and what each state and action counts."""


def _model(problem: Problem) -> Model:
    found = dynamics(problem)
    onward = found.discount * found.transition.toarray().reshape(*found.shape, -1)
    return jnp.asarray(onward), jnp.asarray(found.initial), jnp.asarray(found.features.toarray())


def _utility(problem: Problem, model: Model, logits: Float[Array, "S A"]) -> Float[Array, ""]:
    onward, initial, counts = model
    probs = jax.nn.softmax(logits)
    flow = jnp.einsum("sa,sat->ts", probs, onward)
    arriving = initial - jnp.linalg.matrix_power(flow, problem.sampling_horizon()) @ initial
    visits = jnp.linalg.solve(jnp.eye(len(initial)) - flow, arriving)[:, None] * probs
    return problem.utility.value(visits.ravel() @ counts)


@eqx.filter_jit
def _ascend(
    problem: Problem,
    model: Model,
    logits: Float[Array, "S A"],
    step_size: float,
    radius: float,
    steps: Any,
) -> Float[Array, "S A"]:
    def step(_: Any, at: Float[Array, "S A"]) -> Float[Array, "S A"]:
        slope = jax.grad(_utility, argnums=2)(problem, model, at)
        return (
            at
            + jnp.minimum(step_size, radius / jnp.maximum(jnp.linalg.norm(slope), 1e-300)) * slope
        )

    return jax.lax.fori_loop(0, steps, step, logits)
