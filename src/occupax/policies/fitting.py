"""Compatibility of policies with environments and with the compiled kernel."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from occupax.envs.actions import ActionSpace, BoxActions
from occupax.envs.base import DecisionProcess, number_of_states, observation_spec
from occupax.errors import first_line
from occupax.policies.base import Initialiser, Policy, check_policy
from occupax.policies.categorical import Categorical, Softmax, SoftmaxProduct, Tabular, mlp, tabular
from occupax.policies.gaussian import Gaussian, Squashed, gaussian
from occupax.policies.networks import Flat, activation_name
from occupax.policies.normalising import Normalised

Layer = tuple[eqx.nn.Linear, Any]
"""A linear layer and its activation; None as the activation of the output layer."""


def default_policy(env: DecisionProcess) -> Initialiser:
    """Return the default initialiser: Gaussian for a box, tabular for a table, otherwise an MLP.

    Args:
        env: the environment.

    Returns:
        The initialiser.
    """
    if isinstance(env.action_space, BoxActions):
        return gaussian()
    if number_of_states(env) is None or env.action_space.kinds != ("discrete",):
        return mlp()
    return tabular()


def has_flat_network(policy: Any) -> bool:
    """Return whether a policy is exactly of a class of this package with a function psi."""
    return type(policy) in (Softmax, SoftmaxProduct, Gaussian, Squashed)


def layers_of(psi: Any) -> tuple[Layer, ...] | None:
    """Return the layers of a `Flat` network of linear layers. None for any other function."""
    if isinstance(psi, Normalised):
        psi = psi.folded()
    if type(psi) is not Flat:
        return None
    layers: Any = (psi.network,)
    if isinstance(psi.network, eqx.nn.Sequential):
        layers = psi.network.layers
    linear = [layer for layer in layers[::2] if _is_linear(layer)]
    activations = [layer.fn for layer in layers[1::2] if isinstance(layer, eqx.nn.Lambda)]
    arrays = [leaf for leaf in jax.tree.leaves(psi) if eqx.is_array(leaf)]
    has_other_layers = len(linear) + len(activations) != len(layers)
    has_other_arrays = len(arrays) != 2 * len(linear)
    if has_other_layers or has_other_arrays:
        return None
    return tuple(zip(linear, [*activations, None], strict=True))


def _is_linear(layer: Any) -> bool:
    return isinstance(layer, eqx.nn.Linear) and layer.bias is not None


def dense_layers(policy: Policy) -> tuple[eqx.nn.Linear, ...] | None:
    """Return the layers of a policy of the kernel: a network of tanh layers on vectors.

    Args:
        policy: any policy.

    Returns:
        The linear layers; None for all other policies.
    """
    if not has_flat_network(policy):
        return None
    psi: Any = policy.psi  # pyright: ignore[reportAttributeAccessIssue]
    layers = layers_of(psi)
    if layers is None or getattr(psi, "num_states", None) is not None:
        return None
    if any(activation_name(activation) != "tanh" for _, activation in layers[:-1]):
        return None
    return tuple(layer for layer, _ in layers)


def check_policy_fits(policy: Any, env: DecisionProcess) -> None:
    """Raise ValueError unless a policy fits an environment: JAX does not check array bounds.

    Args:
        policy: the policy.
        env: the environment.
    """
    check_policy(policy)
    observation = observation_spec(env)
    space = env.action_space
    check_policy_states(policy, env)
    kind = getattr(policy, "action_space", None)
    if kind not in space.kinds:
        allowed = " or ".join(f'"{allowed}"' for allowed in space.kinds)
        got = f"got {kind!r}; the environment takes {space}"
        raise ValueError(f"action_space of {type(policy).__name__} must be {allowed}, {got}.")
    if isinstance(policy, Categorical):
        _check_logits(_trace(env, policy.logits, observation), env.num_actions)
    else:
        _check_draw(policy, env, observation, space)


def _check_logits(logits: Any, num_actions: int) -> None:
    wanted = f"logits for {num_actions} actions"
    if not isinstance(logits, jax.ShapeDtypeStruct):
        raise ValueError(f"policy must return an array of {wanted}, got {logits!r}.")
    if logits.shape != (num_actions,):
        raise ValueError(f"policy must return {wanted}, got shape {logits.shape}.")
    if jnp.issubdtype(logits.dtype, jnp.complexfloating):
        raise ValueError(f"policy must return logits that are real numbers, got {logits.dtype}.")


def _check_draw(policy: Policy, env: DecisionProcess, observation: Any, space: ActionSpace) -> None:
    """Raise ValueError unless the results of `draw` and `log_prob` fit the action space."""
    action, drawn_log_prob = _trace(env, policy.draw, observation, jax.random.key(0))
    spec = space.spec()
    kind = jnp.integer
    if jnp.issubdtype(spec.dtype, jnp.floating):
        kind = jnp.floating
    if action.shape != spec.shape or not jnp.issubdtype(action.dtype, kind):
        raise ValueError(f"draw of the policy must return an action such as {spec}, got {action}.")
    log_prob = _trace(env, policy.log_prob, observation, action)
    for name, result in (("draw", drawn_log_prob), ("log_prob", log_prob)):
        if result.shape != () or not jnp.issubdtype(result.dtype, jnp.floating):
            raise ValueError(f"{name} of the policy must return one log-probability, got {result}.")


def _trace(env: DecisionProcess, method: Callable[..., Any], *arguments: Any) -> Any:
    """Return shape and dtype of the result of a method of a policy."""
    try:
        return jax.eval_shape(method, *arguments)
    except Exception as error:
        reason = f"{type(error).__name__}: {first_line(error).rstrip('.')}"
        raise ValueError(
            f"policy does not take the observations of {type(env).__name__}. {reason}."
        ) from error


def check_policy_states(policy: Policy, env: DecisionProcess) -> None:
    """Raise ValueError for a policy of another number of states than the environment has.

    Args:
        policy: the policy.
        env: the environment.
    """
    states = number_of_states(env)
    policy_states = getattr(getattr(policy, "psi", None), "num_states", None)
    if isinstance(policy, Tabular):
        policy_states = len(policy.table)
    if policy_states is None or policy_states == states:
        return
    got = f"{states} states"
    if states is None:
        got = "observations that are not states"
    raise ValueError(f"policy was made for {policy_states} states, but env has {got}.")
