"""Which policy fits which environment, and the compiled kernel."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from occupax.envs.actions import BoxActions
from occupax.envs.base import DecisionProcess, number_of_states, observation_spec
from occupax.policies.base import Initialiser, Policy, check_policy
from occupax.policies.categorical import Categorical, Softmax, SoftmaxProduct, Tabular, mlp, tabular
from occupax.policies.gaussian import Gaussian, Squashed, gaussian
from occupax.policies.networks import Flat, activation_name
from occupax.policies.normalising import Normalised


def default_policy(env: DecisionProcess) -> Initialiser:
    """Return the default initialiser: Gaussian for a box, tabular for a table, otherwise an MLP."""
    if isinstance(env.action_space, BoxActions):
        return gaussian()
    return (
        mlp()
        if number_of_states(env) is None or env.action_space.kinds != ("discrete",)
        else tabular()
    )


Layer = tuple[eqx.nn.Linear, Any]
"""A layer of a network, and the function behind it; None behind the last one."""


def layers_of(psi: Any) -> tuple[Layer, ...] | None:
    """Return the layers of a `Flat` network; None for any other function."""
    psi = psi.folded() if isinstance(psi, Normalised) else psi
    if type(psi) is not Flat:
        return None
    layers = psi.network.layers if isinstance(psi.network, eqx.nn.Sequential) else (psi.network,)
    dense = [
        layer
        for layer in layers[::2]
        if isinstance(layer, eqx.nn.Linear) and layer.bias is not None
    ]
    between = [layer.fn for layer in layers[1::2] if isinstance(layer, eqx.nn.Lambda)]
    arrays = [leaf for leaf in jax.tree.leaves(psi) if eqx.is_array(leaf)]
    if len(dense) + len(between) != len(layers) or len(arrays) != 2 * len(
        dense
    ):  # it has parts that are not known
        return None
    return tuple(zip(dense, [*between, None], strict=True))


def dense_layers(policy: Policy) -> tuple[eqx.nn.Linear, ...] | None:
    """Return the tanh layers of the network of a policy on vectors; None for other policies."""
    psi = (
        getattr(policy, "psi", None)
        if type(policy) in (Softmax, SoftmaxProduct, Gaussian, Squashed)
        else None
    )
    layers = layers_of(psi)
    if layers is None or getattr(psi, "num_states", None) is not None:
        return None
    if any(activation_name(activation) != "tanh" for _, activation in layers[:-1]):
        return None
    return tuple(layer for layer, _ in layers)


def check_policy_fits(policy: Any, env: DecisionProcess) -> None:
    """Raise ValueError unless a policy fits an environment: JAX does not check array bounds."""
    check_policy(policy)
    observation, space = observation_spec(env), env.action_space
    check_policy_states(policy, env)
    acts_in = getattr(policy, "action_space", None)
    if acts_in not in space.kinds:
        allowed = " or ".join(f'"{kind}"' for kind in space.kinds)
        got = f"got {acts_in!r}; the environment takes {space}"
        raise ValueError(f"action_space of {type(policy).__name__} must be {allowed}, {got}.")
    if isinstance(policy, Categorical):
        logits = _tried(env, policy.logits, observation)
        if not isinstance(logits, jax.ShapeDtypeStruct):
            wanted = f"an array of logits for {env.num_actions} actions"
            raise ValueError(f"policy must return {wanted}, got {logits!r}.")
        if logits.shape != (env.num_actions,):
            wanted = f"logits for {env.num_actions} actions"
            raise ValueError(f"policy must return {wanted}, got shape {logits.shape}.")
        if jnp.issubdtype(logits.dtype, jnp.complexfloating):
            raise ValueError(
                f"policy must return logits that are real numbers, got {logits.dtype}."
            )
        return
    action, drawn = _tried(env, policy.draw, observation, jax.random.key(0))
    wanted = space.spec()
    number = jnp.floating if jnp.issubdtype(wanted.dtype, jnp.floating) else jnp.integer
    if action.shape != wanted.shape or not jnp.issubdtype(action.dtype, number):
        raise ValueError(
            f"draw of the policy must return an action such as {wanted}, got {action}."
        )
    for name, found in (
        ("draw", drawn),
        ("log_prob", _tried(env, policy.log_prob, observation, action)),
    ):
        if found.shape != () or not jnp.issubdtype(found.dtype, jnp.floating):
            raise ValueError(f"{name} of the policy must return one log-probability, got {found}.")


def _tried(env: DecisionProcess, method: Callable[..., Any], *given: Any) -> Any:
    """What a method of a policy returns, in shape and type."""
    try:
        return jax.eval_shape(method, *given)
    except Exception as error:
        said = f"{type(error).__name__}: {str(error).partition(chr(10))[0].rstrip('.')}"
        raise ValueError(
            f"policy does not take the observations of {type(env).__name__}. {said}."
        ) from error


def check_policy_states(policy: Policy, env: DecisionProcess) -> None:
    """Refuse a policy made for another number of states than that of the environment."""
    states, table = (
        number_of_states(env),
        len(policy.table) if isinstance(policy, Tabular) else None,
    )
    made_for = getattr(getattr(policy, "psi", None), "num_states", table)
    if made_for not in (None, states):
        got = "observations that are not states" if states is None else f"{states} states"
        raise ValueError(f"policy was made for {made_for} states, but env has {got}.")
