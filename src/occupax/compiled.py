"""Functions that are called very often, compiled with an argument that stays the same."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np


def bind(function: Callable[..., Any], tree: Any) -> Callable[..., Any]:
    """Compile `function(tree, *arrays, static)` for many calls with `(*arrays, static=...)`.

    `eqx.filter_jit` flattens the tree at each call, which can take longer than the function.

    Args:
        function: function of a module to compile. Trees of one structure share its program.
        tree: first argument of the function, with arrays and hashable leaves.

    Returns:
        Function of the other arguments: trees of arrays, and `static`, which is hashable and not
        traced.
    """
    leaves, structure = jax.tree.flatten(tree)
    others = tuple(None if is_array(leaf) else leaf for leaf in leaves)
    return partial(_program(function, structure, others), arrays_of(tree))


def arrays_of(tree: Any) -> list[Any]:
    """Return the arrays of a tree, in order."""
    return [leaf for leaf in jax.tree.leaves(tree) if is_array(leaf)]


def is_array(leaf: Any) -> bool:
    """Return whether a leaf of a tree is an array of JAX or NumPy."""
    return isinstance(leaf, jax.Array | np.ndarray)


@lru_cache(maxsize=128)
def _program(
    function: Callable[..., Any], structure: Any, leaves: tuple[Any, ...]
) -> Callable[..., Any]:
    @partial(jax.jit, static_argnames="static")
    def call(arrays: list[Any], *arguments: Any, static: Any = None) -> Any:
        remaining = iter(arrays)
        merged = [next(remaining) if leaf is None else leaf for leaf in leaves]
        tree = jax.tree.unflatten(structure, merged)
        if static is None:
            return function(tree, *arguments)
        return function(tree, *arguments, static)

    return call
