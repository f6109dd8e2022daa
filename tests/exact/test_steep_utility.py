"""A utility that is infinitely steep where nothing is visited."""

import numpy as np
import pytest

import occupax as ox


def fork(unreachable: bool) -> ox.TabularMDP:
    """Two actions lead from the first state to the second and one to the third. Neither is left.

    The last two states are out of reach: a terminal one and one that is not left.
    """
    states = 5 if unreachable else 3
    transition = np.zeros((states, 3, states))
    transition[0, :2, 1] = 1.0
    transition[0, 2, 2] = 1.0
    for state in range(1, states):
        transition[state, :, state] = 1.0
    terminal = np.zeros(states, bool)
    terminal[3:4] = True
    initial = np.eye(states)[0]
    return ox.TabularMDP(transition, np.zeros((states, 3)), initial, terminal)


@pytest.mark.parametrize("unreachable", [False, True])
@pytest.mark.parametrize("horizon", [4, None])
@pytest.mark.parametrize("method", ["auto", "frank-wolfe"])
def test_the_optimum_does_not_depend_on_states_out_of_reach(unreachable, horizon, method):
    """Half of the mass goes each way, by symmetry and concavity."""
    utility = ox.utilities.Entropy(smoothing=0.0)
    env = fork(unreachable)
    problem = ox.Problem(env, utility, discount=0.9, horizon=horizon)
    halves = np.tile([0.25, 0.25, 0.5], (env.num_states, 1))
    best = ox.solve(problem, method=method, progress=False)
    assert best.status == "optimal"
    expected = ox.exact.value(problem, halves)
    assert best.value == pytest.approx(expected, abs=1e-6)
    assert best.upper_bound >= expected - 1e-9
