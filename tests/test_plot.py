"""Figures of visits: cells of tables, grids and observations, against enumeration and counting."""

import jax
import numpy as np
import pytest

import occupax as ox
from occupax.analysis.densities import density_maps

PLAN = "S.#\n..G"


@pytest.fixture(scope="module")
def problem():
    env = ox.TabularMDP.gridworld(PLAN, slip=0.2)
    return ox.Problem(env, ox.utilities.Entropy(), discount=0.9, horizon=4)


def cells(axes):
    """Return the drawn numbers of a map, 0 for hatched cells."""
    return np.ma.filled(axes.images[0].get_array(), 0.0)


def maps(figure):
    return [axes for axes in figure.axes if axes.images]


def visits_by_stepping(problem, probs):
    """Return the discounted visits of each state by matrix products over the steps."""
    env = problem.env
    S, A = probs.shape
    table = env.transition.toarray().reshape(S, A, S)
    states, visits = env.initial * 1.0, np.zeros(S)
    for t in range(problem.horizon):
        states = np.where(env.terminal, 0.0, states)
        visits += problem.discount**t * states
        states = np.einsum("s,sa,sap->p", states, probs, table)
    return visits


def test_the_cells_of_a_table_have_its_exact_visits(problem):
    probs = np.full((5, 4), 0.25)
    (axes,) = maps(ox.plot.occupancy(problem, "uniform"))
    visits = visits_by_stepping(problem, probs)
    expected = [[visits[0], visits[1], 0.0], [visits[2], visits[3], visits[4]]]
    np.testing.assert_allclose(cells(axes), expected, atol=1e-12)
    assert len(axes.patches) == 1  # the wall
    value = ox.exact.value(problem, probs)
    assert axes.get_title() == f"uniform policy: {value:.3g}"


def test_policies_optima_and_occupancies_are_drawn_side_by_side(problem):
    best = ox.solve(problem, tolerance=1e-4)
    policy = ox.policies.tabular()(problem.env, jax.random.key(0))
    shown = (policy, best, best.occupancy, best.occupancy.sum(1))
    figure = ox.plot.occupancy(problem, *shown, titles=["a", None, "c", "d"])
    titles = [axes.get_title() for axes in maps(figure)]
    assert titles == ["a", f"optimum: {best.value:.3g}", "c", "d"]
    for axes in maps(figure)[1:]:
        assert cells(axes).sum() == pytest.approx(best.occupancy.sum())
    scales = {axes.images[0].norm.vmax for axes in maps(figure)}
    assert len(scales) == 1


def test_a_result_draws_the_best_policy_between_uniform_and_optimum(problem):
    result = ox.train(problem, episodes=40, seeds=2, progress=False)
    titles = [axes.get_title() for axes in maps(result.plot_visits())]
    kinds = [title.partition(":")[0] for title in titles]
    assert kinds == ["uniform policy", "best policy", "optimum"]
    assert titles[1] == f"best policy: {max(result.utilities):.3g}"


def test_a_grid_of_features_is_drawn_in_its_cells():
    grid = ox.features.Grid([-1.2, -0.07], [0.6, 0.07], [4, 3])
    coverage = ox.utilities.LogCoverage()
    problem = ox.Problem("MountainCar-v0", coverage, discount=0.9, horizon=5, features=grid)
    policy = ox.policies.mlp(hidden=(4,))(problem.env, jax.random.key(0))
    (axes,) = maps(ox.plot.occupancy(problem, policy, episodes=10))
    assert cells(axes).shape == (3, 4)
    assert cells(axes).sum() == pytest.approx(sum(0.9**t for t in range(5)), rel=1e-5)
    assert axes.get_xlabel() == "observation[0], -1.2 to 0.6"


def test_other_observations_are_counted_over_two_entries():
    problem = ox.Problem("CartPole-v1", discount=0.9, horizon=6)
    policy = ox.policies.mlp(hidden=(4,))(problem.env, jax.random.key(0))
    episodes = ox.sample(problem, policy, 7, jax.random.key(3))
    first = np.asarray(episodes.observations)[..., 0]
    (grid,) = density_maps("a", problem, [("policy", policy)], episodes=7, seed=3).grids
    assert grid.values.sum() == pytest.approx(sum(0.9**t for t in range(6)))
    low, high = np.quantile(first, [0.002, 0.998])
    left = first < (low + high) / 2
    discounts = 0.9 ** np.arange(6)
    assert grid.values[:, :12].sum() == pytest.approx((left * discounts).sum() / 7)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {}, "policies must hold at least one policy"),
        (("best",), {}, "a policy by name must be \"uniform\", got 'best'"),
        ((np.ones(3),), {}, r"an occupancy must have shape \[5, 4\] or \[5\], got \[3\]"),
        (("uniform",), {"titles": ["a", "b"]}, "titles must hold 1 strings, got 2"),
    ],
)
def test_invalid_arguments_raise_value_error(problem, arguments, options, message):
    with pytest.raises(ValueError, match=message):
        ox.plot.occupancy(problem, *arguments, **options)


def test_a_table_without_a_layout_is_not_drawn():
    table = np.full((4, 2, 4), 0.25)
    env = ox.TabularMDP(table, np.zeros((4, 2)), np.eye(4)[0])
    with pytest.raises(ValueError, match=r"layout=ox\.envs\.Layout"):
        ox.plot.occupancy(ox.Problem(env, discount=0.9, horizon=3), "uniform")
