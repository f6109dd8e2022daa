"""Policies, queries and answers as they are sent to a cluster and back.

The functions of a policy stay where they are: functions of JAX cannot be sent, and a function that
is received is another one every time, for which everything would be compiled anew. A receiver has a
policy of the same structure.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from occupax.compiled import is_array
from occupax.policies import NAMED_FUNCTIONS, Policy

OWN = "own"
"""Stands for a leaf that the receiver has."""


@dataclass(frozen=True)
class FunctionName:
    """The name of a function of `NAMED_FUNCTIONS`."""

    name: str


@dataclass(frozen=True)
class SentPolicy:
    """The leaves of a policy, or of a vector in its shape: arrays, None or `OWN`."""

    leaves: tuple[Any, ...]

    @property
    def nbytes(self) -> int:
        """Size of the arrays in bytes."""
        return sum(leaf.nbytes for leaf in self.leaves if is_array(leaf))

    def received(self, form: Policy) -> Policy:
        """Return the policy, with the functions of one of the same structure."""
        leaves = iter(self.leaves)

        def fill(own: Any) -> Any:
            leaf = next(leaves)
            return own if isinstance(leaf, str) else leaf

        return jax.tree.map(fill, form, is_leaf=_is_none)


@dataclass(frozen=True)
class Place:
    """The place of a policy among those that are sent beside a query."""

    index: int


def sent_policy(policy: Policy) -> SentPolicy:
    """Return a message with the arrays of a policy, without its functions."""
    return SentPolicy(tuple(_sent_leaf(leaf) for leaf in jax.tree.leaves(policy, is_leaf=_is_none)))


def sent(tree: Any, send: Callable[[Policy], Any] = sent_policy) -> Any:
    """Return a tree to send: arrays as NumPy arrays, and each policy converted by `send`."""

    def send_node(node: Any) -> Any:
        if isinstance(node, Policy):
            return send(node)
        return np.asarray(node) if is_array(node) else node

    return jax.tree.map(send_node, tree, is_leaf=lambda node: isinstance(node, Policy))


def received(tree: Any, form: Policy) -> Any:
    """Restore a tree that was sent. The functions of its policies are those of `form`."""

    def receive(leaf: Any) -> Any:
        return as_arrays(leaf.received(form) if isinstance(leaf, SentPolicy) else leaf)

    return jax.tree.map(receive, tree)


def as_arrays(tree: Any) -> Any:
    """Return a tree with arrays of JAX in the place of those of NumPy."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) if is_array(leaf) else leaf, tree)


def with_function_names(policy: Policy) -> Policy:
    """Return a policy that can be sent as a whole: known functions are replaced by their names."""
    return jax.tree.map(_named, policy)


def with_functions(policy: Policy) -> Policy:
    """Return a policy that was sent as a whole, with its functions."""
    return jax.tree.map(
        lambda leaf: NAMED_FUNCTIONS[leaf.name] if isinstance(leaf, FunctionName) else leaf, policy
    )


def _named(leaf: Any) -> Any:
    for name, function in NAMED_FUNCTIONS.items():
        if leaf is function:
            return FunctionName(name)
    return leaf


def _sent_leaf(leaf: Any) -> Any:
    if leaf is None:
        return None
    return np.asarray(leaf) if is_array(leaf) else OWN


def _is_none(leaf: Any) -> bool:
    return leaf is None
