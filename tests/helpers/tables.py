"""Small tables."""

import numpy as np

import occupax as ox


def arms():
    """A choice between a reward of 1 and one of 0.3, which ends the episode."""
    transition = np.zeros((2, 2, 2))
    transition[:, :, 1] = 1.0
    return ox.TabularMDP(transition, [[1.0, 0.3], [0.0, 0.0]], [1.0, 0.0], terminal=[False, True])
