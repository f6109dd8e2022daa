"""Functions that are called very often, compiled with an argument that stays the same."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np


def bind(function: Callable[..., Any], tree: Any) -> Callable[..., Any]:
    """Compile `function(tree, *arrays, fixed)` for many calls with `(*arrays, fixed=...)`.

    `eqx.filter_jit` flattens the tree at each call, which can take longer than the function.

    Args:
        function: what to compile; a function of a module, because trees of one form share its
            program.
        tree: its first argument, of arrays and anything hashable.

    Returns:
        The function of the other arguments: trees of arrays, and `fixed`, which is hashable and not
        traced.
    """
    leaves, structure = jax.tree.flatten(tree)
    others = tuple(None if is_array(leaf) else leaf for leaf in leaves)
    return partial(_program(function, structure, others), arrays_of(tree))


def arrays_of(tree: Any) -> list[Any]:
    """The arrays of a tree, in order."""
    return [leaf for leaf in jax.tree.leaves(tree) if is_array(leaf)]


def is_array(leaf: Any) -> bool:
    """Return whether a leaf of a tree is an array of JAX or NumPy."""
    return isinstance(leaf, jax.Array | np.ndarray)


@lru_cache(maxsize=128)
def _program(
    function: Callable[..., Any], structure: Any, leaves: tuple[Any, ...]
) -> Callable[..., Any]:
    @partial(jax.jit, static_argnames="fixed")
    def call(arrays: list[Any], *given: Any, fixed: Any = None) -> Any:
        left = iter(arrays)
        tree = jax.tree.unflatten(
            structure, [next(left) if leaf is None else leaf for leaf in leaves]
        )
        return function(tree, *given) if fixed is None else function(tree, *given, fixed)

    return call
