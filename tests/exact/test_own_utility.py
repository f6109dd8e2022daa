"""A utility with a conic form is one class, also outside of the package."""

from typing import Any

import cvxpy as cp
import jax
import jax.numpy as jnp
import pytest

import occupax as ox
from occupax.utilities import ConicForm, NoConicFormError, Smoothness, Utility


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


class UnknownForm(RootCoverage):
    """Utility without a conic form."""

    conic = Utility.conic


@pytest.fixture(scope="module")
def env():
    return ox.TabularMDP.garnet(40, 3, 3, jax.random.key(1))


@pytest.mark.parametrize("weight", [1.0, 2.5])
def test_a_new_utility_is_solved_by_its_conic_form(env, weight):
    utility = weight * RootCoverage() + 0.1 * ox.utilities.Entropy()
    problem = ox.Problem(env, utility, discount=0.9)
    ox.utilities.check(RootCoverage(), 5)
    conic = ox.solve(problem, method="conic")
    planned = ox.solve(problem, method="frank-wolfe")
    assert (conic.method, planned.method) == ("conic", "frank-wolfe")
    assert abs(conic.value - planned.value) <= conic.gap + planned.gap + 1e-9


def test_a_utility_without_a_conic_form_is_named(env):
    problem = ox.Problem(env, UnknownForm(), discount=0.9)
    with pytest.raises(NoConicFormError, match=r"'conic' does not know UnknownForm: .*`conic`"):
        ox.solve(problem, method="conic")
    assert ox.solve(problem).gap <= 1e-6


def test_a_constraint_may_be_a_new_utility(env):
    at_least = 0.98 * ox.solve(ox.Problem(env, RootCoverage(), discount=0.9)).value
    constraint = ox.Constraint(RootCoverage(), at_least=at_least)
    problem = ox.Problem(env, discount=0.9, constraints=[constraint])
    best = ox.solve(problem)
    assert best.gap <= 1e-6
    assert max(best.excesses.values()) <= 1e-6
