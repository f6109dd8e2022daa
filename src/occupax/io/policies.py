"""Files of policies."""

from pathlib import Path

import jax
import numpy as np

from occupax.errors import check_path
from occupax.io import codec
from occupax.io.files import check_header, header, read_arrays, write_arrays
from occupax.policies import Policy, check_policy, with_spaces

POLICY = "occupax-policy"


def save_policy(policy: Policy, path: str | Path) -> None:
    """Save a policy as one safetensors file with its arrays and, as JSON, its structure.

    Args:
        policy: any policy. `load_policy` restores policies of `occupax.policies` and of layers of
            equinox.nn. For classes or functions of your own it needs a policy of the same
            structure.
        path: the file, by convention with the suffix .safetensors. Missing directories are created.

    Raises:
        ValueError: if the policy contains arrays that JSON and safetensors cannot represent.
    """
    check_policy(policy)
    check_path(path, "path")
    description, arrays = codec.pack(policy)
    leaves = [leaf for leaf in jax.tree.leaves(policy) if isinstance(leaf, (jax.Array, np.ndarray))]
    if len(leaves) > len(arrays):
        raise ValueError(
            "policy holds arrays that cannot be saved: store them as numbers in modules, tuples, "
            "lists or dictionaries with strings as keys."
        )
    content = {**header(POLICY), "policy": description}
    if policy.spaces:
        content["spaces"] = policy.spaces
    write_arrays(path, arrays, content)


def load_policy(path: str | Path, like: Policy | None = None) -> Policy:
    """Load a policy that `save_policy` saved. No code in the file is executed.

    Args:
        path: the file.
        like: a policy of the same structure, for a policy with classes or functions of your own.
            Its arrays are replaced by the arrays of the file.

    Returns:
        The policy, with the spaces of its environment if they were saved.

    Raises:
        ValueError: if the file is damaged, of another version, or cannot be restored.
    """
    if like is not None:
        check_policy(like)
    check_path(path, "path")
    arrays, content = read_arrays(path)
    check_header(path, content, POLICY)
    try:
        policy = codec.unpack(content.get("policy"), arrays, like)
    except ValueError as error:
        raise ValueError(f"the policy in {path} could not be restored: {error}") from error
    if not isinstance(policy, Policy):
        raise ValueError(f"{path} must hold a policy, but holds a {type(policy).__name__}.")
    spaces = content.get("spaces", "")
    if not isinstance(spaces, str):
        raise ValueError(f"{path} must describe spaces by a string, got {spaces!r:.60}.")
    if spaces:
        policy = with_spaces(policy, spaces)
    return policy
