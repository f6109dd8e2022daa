"""Re-initialisation of the output layer, for policies whose batches have no gradient."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Key

from occupax.policies.base import Policy
from occupax.policies.categorical import Softmax, SoftmaxProduct

SCALE = 3.0
"""Factor of the new weights; the initial output layer of `mlp` has a factor of 0.01."""


def can_restart(policy: Policy) -> bool:
    """Return whether a policy is a softmax over the outputs of a network."""
    return isinstance(policy, Softmax | SoftmaxProduct) and len(linear_layers(policy)) > 0


def restart_policy(policy: Policy, key: Key[Array, ""]) -> Policy:
    """Return the policy with new output weights, large enough to be far from uniform."""
    weight = linear_layers(policy)[-1].weight
    bound = SCALE / weight.shape[1] ** 0.5
    weights = jax.random.uniform(key, weight.shape, weight.dtype, -bound, bound)
    return eqx.tree_at(lambda tree: linear_layers(tree)[-1].weight, policy, weights)


def linear_layers(policy: Policy) -> list[eqx.nn.Linear]:
    """Return the linear layers of a policy. The output layer is the last."""
    nodes: list[Any] = jax.tree.leaves(policy, is_leaf=lambda node: isinstance(node, eqx.nn.Linear))
    return [node for node in nodes if isinstance(node, eqx.nn.Linear)]
