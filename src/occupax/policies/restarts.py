"""Other policies of the same kind, to try where the present one shows nothing."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Key

from occupax.policies.base import Policy
from occupax.policies.categorical import Softmax, SoftmaxProduct

BOLDNESS = 3.0
"""What the new weights, drawn like those of any layer, are multiplied by; the first ones of `mlp`
are by 0.01."""


def can_restart(policy: Policy) -> bool:
    """Whether a policy is a softmax over the outputs of a network, which acts alike where observations are alike."""
    return isinstance(policy, Softmax | SoftmaxProduct) and len(linear_layers(policy)) > 0


def restart_policy(policy: Policy, key: Key[Array, ""]) -> Policy:
    """The policy with new weights in the last layer of its network, so large that it is far from uniform."""
    weight = linear_layers(policy)[-1].weight
    bound = BOLDNESS / weight.shape[1] ** 0.5
    new = jax.random.uniform(key, weight.shape, weight.dtype, -bound, bound)
    return eqx.tree_at(lambda it: linear_layers(it)[-1].weight, policy, new)


def linear_layers(policy: Policy) -> list[eqx.nn.Linear]:
    """Return the linear layers of a policy, in the order of its tree; the last one is the output layer."""
    nodes: list[Any] = jax.tree.leaves(policy, is_leaf=lambda node: isinstance(node, eqx.nn.Linear))
    return [node for node in nodes if isinstance(node, eqx.nn.Linear)]
