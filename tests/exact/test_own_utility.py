"""A utility with a conic form is one class, also outside of the package."""

from typing import Any

import cvxpy as cp
import jax
import jax.numpy as jnp
import pytest

import occupax as ox
from occupax.exact.conic import maximise as maximise_conic
from occupax.exact.dynamics import dynamics
from occupax.exact.occupancies import policy_of
from occupax.utilities import ConicForm, Smoothness, Utility


class RootCoverage(Utility):
    """sum_i sqrt(u_i + 1), a utility of the visits of states."""

    def value(self, occupancy):
        return jnp.sum(jnp.sqrt(occupancy + 1.0))

    def gradient(self, occupancy):
        return 0.5 / jnp.sqrt(occupancy + 1.0)

    def domain(self, occupancy):
        return jnp.maximum(occupancy, 0.0)

    @property
    def concave(self):
        return True

    @property
    def smoothness(self):
        return Smoothness(0.5, 0.25, 0.25)

    def features(self):
        return ox.features.State()

    def conic(self, occupancy: Any) -> ConicForm:
        return ConicForm(cp.sum(cp.sqrt(occupancy + 1.0)))


@pytest.fixture(scope="module")
def env():
    return ox.TabularMDP.garnet(40, 3, 3, jax.random.key(1))


@pytest.mark.parametrize("weight", [1.0, 2.5])
def test_a_new_utility_is_solved_by_its_conic_form(env, weight):
    utility = weight * RootCoverage() + 0.1 * ox.utilities.Entropy()
    problem = ox.Problem(env, utility, discount=0.9)
    ox.utilities.check(RootCoverage(), 5)
    best = ox.solve(problem)
    planned = ox.solve(problem, method="frank-wolfe")
    conic = maximise_conic(problem, dynamics(problem))
    assert conic is not None
    value = ox.exact.value(problem, policy_of(conic.mass))
    assert abs(best.value - planned.value) <= best.gap + planned.gap
    assert value <= best.upper_bound + 1e-12
    assert value == pytest.approx(best.value, abs=1e-4)


@pytest.mark.parametrize(("horizon", "at_most"), [(None, None), (3, None), (None, 4.0), (3, 1.0)])
def test_the_conic_method_reaches_the_same_certified_optimum(env, horizon, at_most):
    constraints = []
    if at_most is not None:
        constraints.append(ox.Constraint(ox.features.Reward(), at_most=at_most))
    utility = ox.utilities.LogCoverage(0.1)
    problem = ox.Problem(env, utility, discount=0.9, horizon=horizon, constraints=constraints)
    best = ox.solve(problem, progress=False)
    conic = ox.solve(problem, method="conic", progress=False)
    assert conic.status == best.status == "optimal"
    assert abs(conic.value - best.value) <= conic.gap + best.gap
    assert max(conic.excesses.values(), default=0.0) <= 1e-6


def test_a_constraint_may_be_a_new_utility(env):
    at_least = 0.98 * ox.solve(ox.Problem(env, RootCoverage(), discount=0.9)).value
    constraint = ox.Constraint(RootCoverage(), at_least=at_least)
    problem = ox.Problem(env, discount=0.9, constraints=[constraint])
    best = ox.solve(problem)
    assert best.gap <= 1e-6 * abs(best.value)
    assert max(best.excesses.values()) <= 1e-6
