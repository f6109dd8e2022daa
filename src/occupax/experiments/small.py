"""Small problems with an interior optimum, where the theorem applies, and their exact ascent."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from occupax import exact, features, utilities
from occupax.envs import TabularMDP, make
from occupax.exact.dynamics import dynamics
from occupax.problem import Problem

GARNET = "garnet coverage"
SMALL_LAKE = "4 x 4 lake coverage"
ENTROPY = "garnet entropy"

Logits = Float[Array, "S A"]


class DiscountedModel(NamedTuple):
    """Arrays of a problem with discounted transitions."""

    transition: Float[Array, "S A S"]
    initial: Float[Array, " S"]
    features: Float[Array, "n d"]
    """Features of each state and action."""


@dataclass(frozen=True)
class SmallProblem:
    """Problem with the value of its best stationary policy."""

    name: str
    problem: Problem

    @cached_property
    def optimum(self) -> float:
        """Utility of the best table, by a quasi-Newton method with exact gradients."""
        from scipy import optimize

        problem = self.problem
        with jax.enable_x64(True):
            model = _discounted_model(problem)
            shape = dynamics(problem).shape
            evaluate = eqx.filter_jit(
                eqx.filter_value_and_grad(lambda logits: -_utility(problem, model, logits))
            )

            def loss(logits: np.ndarray) -> tuple[float, np.ndarray]:
                value, gradient = evaluate(jnp.asarray(logits.reshape(shape)))
                return float(value), np.asarray(gradient, float).ravel()

            options: Any = {"maxiter": 5000, "gtol": 1e-11, "ftol": 0.0}
            start = np.zeros(shape).ravel()
            result = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
        return -float(result.fun)

    @cached_property
    def min_probability(self) -> float:
        """Smallest action probability of the optimal occupancy, above zero if it is interior."""
        problem = with_horizon(self.problem, None)
        occupancy = np.asarray(exact.solve(problem, progress=False).occupancy)
        visited = occupancy[occupancy.sum(1) > 1e-9]
        probs = visited / visited.sum(1, keepdims=True)
        return float(probs.min())


def with_horizon(problem: Problem, horizon: int | None) -> Problem:
    """Return a problem with another horizon."""
    return Problem(
        problem.env, problem.utility, problem.discount, horizon, features=problem.features
    )


@cache
def small_problems() -> dict[str, SmallProblem]:
    """Return all small problems by name."""
    time: Any = {"discount": 0.9, "horizon": 30}
    pairs = features.StateAction()
    garnet = TabularMDP.garnet(5, 3, 2, jax.random.key(0))
    larger_garnet = TabularMDP.garnet(8, 2, 3, jax.random.key(1))
    lake_utility = utilities.LogCoverage(0.02)
    problems = {
        GARNET: Problem(garnet, utilities.LogCoverage(0.125), **time),
        SMALL_LAKE: Problem(make("FrozenLake-v1"), lake_utility, features=pairs, **time),
        ENTROPY: Problem(larger_garnet, utilities.Entropy(), features=pairs, **time),
    }
    return {name: SmallProblem(name, problem) for name, problem in problems.items()}


def exact_ascent(
    problem: Problem,
    table: Float[np.ndarray, "S A"],
    step_size: float,
    radius: float,
    steps: Sequence[int],
) -> Float[np.ndarray, " step"]:
    """Return the utility after numbers of truncated steps along the exact gradient."""
    with jax.enable_x64(True):
        model = _discounted_model(problem)
        logits = jnp.asarray(table, float)
        values: list[float] = []
        previous = 0
        for count in steps:
            logits = _ascend(problem, model, logits, step_size, radius, count - previous)
            previous = count
            values.append(float(_utility(problem, model, logits)))
    return np.array(values)


def _discounted_model(problem: Problem) -> DiscountedModel:
    model = dynamics(problem)
    transition = model.discount * model.transition.toarray().reshape(*model.shape, -1)
    return DiscountedModel(
        jnp.asarray(transition), jnp.asarray(model.initial), jnp.asarray(model.features.toarray())
    )


def _utility(problem: Problem, model: DiscountedModel, logits: Logits) -> Float[Array, ""]:
    probs = jax.nn.softmax(logits)
    flow = jnp.einsum("sa,sat->ts", probs, model.transition)
    power = jnp.linalg.matrix_power(flow, problem.sampling_horizon())
    arriving = model.initial - power @ model.initial
    visits = jnp.linalg.solve(jnp.eye(len(model.initial)) - flow, arriving)
    occupancy = visits[:, None] * probs
    return problem.utility.value(occupancy.ravel() @ model.features)


@eqx.filter_jit
def _ascend(
    problem: Problem,
    model: DiscountedModel,
    logits: Logits,
    step_size: float,
    radius: float,
    steps: Any,
) -> Logits:
    def step(_: Any, logits: Logits) -> Logits:
        gradient = jax.grad(_utility, argnums=2)(problem, model, logits)
        norm = jnp.maximum(jnp.linalg.norm(gradient), 1e-300)
        return logits + jnp.minimum(step_size, radius / norm) * gradient

    return jax.lax.fori_loop(0, steps, step, logits)
