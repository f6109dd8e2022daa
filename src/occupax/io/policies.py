"""Policies as files of their own."""

from pathlib import Path

import jax
import numpy as np

from occupax.io import codec
from occupax.policies import Policy, check_policy, with_spaces
from occupax.training.setup import refuse_unless_path

POLICY, POLICY_VERSION = "occupax-policy", 1


def save_policy(policy: Policy, path: str | Path) -> None:
    """Save a policy as one safetensors file that holds its arrays and, as JSON, all else there is to know of it.

    Args:
        policy: any policy; `load_policy` restores those of `occupax.policies` and of layers of
            equinox.nn by itself, and needs one of the same structure for those with classes or
            functions of your own.
        path: the file, by habit with the suffix .safetensors; folders on the way are made.
    """
    check_policy(policy)
    refuse_unless_path(path, "path")
    description, arrays = codec.pack(policy)
    leaves = [leaf for leaf in jax.tree.leaves(policy) if isinstance(leaf, (jax.Array, np.ndarray))]
    if len(leaves) > len(arrays):
        raise ValueError(
            "policy holds arrays that cannot be saved: keep them as numbers, in modules, tuples, lists or dictionaries "
            "whose keys are texts."
        )
    content = {"format": POLICY, "version": POLICY_VERSION, "policy": description}
    codec.write(path, arrays, content | ({"spaces": policy.spaces} if policy.spaces else {}))


def load_policy(path: str | Path, like: Policy | None = None) -> Policy:
    """Load a policy that `save_policy` saved; nothing in the file is executed.

    Args:
        path: the file.
        like: a policy of the same structure, needed for one with classes or functions of your own;
            its arrays are replaced by those of the file.
    """
    if like is not None:
        check_policy(like)
    refuse_unless_path(path, "path")
    arrays, content = codec.read(path)
    if content.get("format") != POLICY:
        raise ValueError(
            f"{path} must have the format {POLICY}, but has {content.get('format')!r:.60}."
        )
    if content.get("version") != POLICY_VERSION:
        raise ValueError(
            f"{path} has version {content.get('version')!r:.20} of the format {POLICY}, but this occupax reads version "
            f"{POLICY_VERSION}; a newer occupax may read it."
        )
    try:
        policy = codec.unpack(content.get("policy"), arrays, like)
    except ValueError as error:
        raise ValueError(f"the policy in {path} could not be restored: {error}") from error
    if not isinstance(policy, Policy):
        raise ValueError(f"{path} must hold a policy, but holds a {type(policy).__name__}.")
    spaces = content.get("spaces", "")
    if not isinstance(spaces, str):
        raise ValueError(f"{path} must describe spaces by a text, got {spaces!r:.60}.")
    return with_spaces(policy, spaces) if spaces else policy
