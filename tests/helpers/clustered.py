"""A training run on a cluster."""

from typing import Any

import equinox as eqx
import jax
import numpy as np

import occupax as ox


def trained(sampler: ox.samplers.Sampler, episodes: int, **options: Any) -> ox.Result:
    problem = ox.Problem(ox.GymnasiumEnv("CartPole-v1"), horizon=40)
    options |= {"policy": ox.policies.linear(), "progress": False}
    return ox.train(problem, ox.REINFORCE(batch=4), episodes, sampler=sampler, **options)


def weights(result: ox.Result) -> str:
    """All bits of the weights of a policy."""
    return b"".join(
        np.asarray(leaf).tobytes()
        for leaf in jax.tree.leaves(eqx.filter(result.policy(), eqx.is_array))
    ).hex()
