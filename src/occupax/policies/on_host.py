"""NumPy implementations of policies, for many observations at once.

They draw with given noise what `Policy.draw` draws with it, up to rounding. What is drawn for an
observation does not depend on the others to the last bit: products are those of one row each, by
one call of the same function.
"""

from collections.abc import Callable
from math import log
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Num
from scipy.special import expit

from occupax.policies.base import Policy
from occupax.policies.categorical import Categorical, Softmax, SoftmaxProduct, Tabular
from occupax.policies.fitting import layers_of
from occupax.policies.gaussian import Gaussian, Squashed
from occupax.policies.networks import activation_name

Array = np.ndarray
Drawn = tuple[Num[Array, "P *k"], Num[Array, "P *k"], Float[Array, " P"]]
"""What was drawn for each observation, the actions that it stands for, and its
log-probabilities."""

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x * expit(x),
    "softplus": lambda x: np.logaddexp(x, 0),
    "gelu": lambda x: (
        x * expit(x.dtype.type(np.sqrt(8 / np.pi)) * (x + x.dtype.type(0.044715) * x**3))
    ),
}
"""The activations of `networks.ACTIVATIONS` by NumPy."""


class HostPolicy(NamedTuple):
    """A policy that NumPy evaluates."""

    law: Literal["gumbel", "normal"]
    """That of the noise which actions are drawn with, by the function of `jax.random` of this
    name."""
    shape: tuple[int, ...]
    """Of the noise of one action."""
    dtype: np.dtype[Any]
    draw: Callable[[Any, Array], Drawn]
    """Draws an action for each observation, with the noise of each."""


def on_host(policy: Policy) -> HostPolicy | None:
    """The policy as NumPy evaluates it; None if it has parts that are not known here."""
    numbers = [leaf.dtype for leaf in jax.tree.leaves(policy) if eqx.is_array(leaf)]
    if not all(dtype in (np.float32, np.float64) for dtype in numbers):
        return None
    if type(policy) is Tabular:
        return _table(np.asarray(policy.table), np.asarray(_log_softmax(policy.table)))
    if type(policy) not in (Softmax, SoftmaxProduct, Gaussian, Squashed):
        return None
    network = _network(policy)
    if network is None:
        return None
    outputs, size, dtype = network
    return _of_outputs(policy, outputs, size, dtype)


def with_outputs_of_jax(policy: Policy, num_actions: int) -> HostPolicy | None:
    """Return a policy with the network in JAX and the distribution in NumPy; None if unknown."""
    if isinstance(policy, Categorical):
        outputs = policy.logits
    elif isinstance(policy, SoftmaxProduct | Gaussian | Squashed):
        outputs = policy.psi
    else:
        return None
    evaluate = jax.jit(jax.vmap(outputs))

    def evaluated(observations: Any) -> Array:
        return np.asarray(evaluate(observations))

    return _of_outputs(policy, evaluated, num_actions, np.dtype(jnp.result_type(float)))


def _of_outputs(
    policy: Any, outputs: Callable[[Any], Array], size: int, dtype: np.dtype[Any]
) -> HostPolicy:
    """Return the policy whose network has these outputs, `size` of them for a single softmax."""
    if isinstance(policy, Gaussian | Squashed):
        return _normal(policy, outputs, dtype)
    if not isinstance(policy, SoftmaxProduct):
        return _categorical(outputs, (size,), dtype)
    is_valid = np.arange(max(policy.sizes)) < np.array(policy.sizes)[:, None]

    def logits(observations: Any) -> Array:
        filled = np.full((len(observations), *is_valid.shape), -np.inf, dtype)
        filled[:, is_valid] = outputs(observations)
        return filled

    return _categorical(logits, is_valid.shape, dtype)


_log_softmax = jax.jit(jax.nn.log_softmax)


def _table(logits: Float[Array, "S A"], log_probs: Float[Array, "S A"]) -> HostPolicy:
    def draw(states: Any, noise: Array) -> Drawn:
        actions = np.argmax(logits[states] + noise, -1).astype(np.int32)
        return actions, actions, log_probs[states, actions]

    return HostPolicy("gumbel", logits.shape[1:], logits.dtype, draw)


def _network(policy: Any) -> tuple[Callable[[Any], Array], int, np.dtype[Any]] | None:
    """Return the network of a policy as a function with outputs [P, m], m, and the dtype."""
    layers, number = layers_of(policy.psi), np.dtype(jnp.result_type(float))
    if layers is None:
        return None
    names = [activation_name(activation) for _, activation in layers[:-1]]
    bends = [ACTIVATIONS[name] for name in names if name is not None]
    if len(bends) < len(names):
        return None
    parts = [(np.asarray(layer.weight).T.copy(), np.asarray(layer.bias)) for layer, _ in layers]
    weight, bias = parts[0]

    def outputs(observations: Any) -> Array:
        if getattr(policy.psi, "num_states", None) is not None:
            found = weight[observations] + bias  # the product with a row that is 1 at the state
        else:
            found = (
                _rows(
                    observations.reshape(len(observations), -1).astype(number, copy=False), weight
                )
                + bias
            )
        for bend, (more, shift) in zip(bends, parts[1:], strict=True):
            found = _rows(bend(found), more) + shift
        return found

    return (
        outputs,
        len(parts[-1][1]),
        np.result_type(number, *(array for pair in parts for array in pair)),
    )


def _rows(rows: Float[Array, "P n"], weight: Float[Array, "n m"]) -> Float[Array, "P m"]:
    """Multiply each row with a matrix on its own.

    A product of matrices could depend on the number of rows.
    """
    return np.matmul(rows[:, None], weight)[:, 0]


def _categorical(
    logits_of: Callable[[Any], Array], shape: tuple[int, ...], dtype: np.dtype[Any]
) -> HostPolicy:
    """One softmax or, where noise has two axes, one for each entry of an action."""

    def draw(observations: Any, noise: Array) -> Drawn:
        with np.errstate(all="ignore"):  # what is not finite is seen in the log-probabilities
            logits = logits_of(observations).reshape(-1, shape[-1])
            drawn = (logits + noise.reshape(logits.shape)).argmax(-1)
            logits = logits - np.maximum.reduce(logits, -1, keepdims=True)
            log_probs = logits[np.arange(len(drawn)), drawn] - np.log(
                np.add.reduce(np.exp(logits), -1)
            )
        actions = drawn.astype(np.int32).reshape(len(noise), *shape[:-1])
        return (
            actions,
            actions,
            log_probs if len(shape) == 1 else log_probs.reshape(actions.shape).sum(-1),
        )

    return HostPolicy("gumbel", shape, dtype, draw)


def _normal(
    policy: Gaussian | Squashed, outputs: Callable[[Any], Array], dtype: np.dtype[Any]
) -> HostPolicy:
    box, shared = (
        policy.box,
        None if policy.log_deviation is None else np.asarray(policy.log_deviation),
    )
    dtype = dtype if shared is None else np.result_type(dtype, shared)
    middle, reach, low, high = (
        np.asarray(part, dtype) for part in (box.middle, box.reach, box.low, box.high)
    )
    constant = np.asarray(0.5 * log(2 * np.pi) + np.log(box.reach), dtype)

    def draw(observations: Any, noise: Array) -> Drawn:
        with np.errstate(all="ignore"):
            found = outputs(observations)
            means, logs = np.split(found, 2, -1) if shared is None else (found, shared)
            z = means + np.exp(logs) * noise
            drawn = actions = middle + reach * z
            if isinstance(policy, Gaussian):
                z = (drawn - middle) / reach
            terms = 0.5 * ((z - means) * np.exp(-logs)) ** 2 + logs + constant
            if isinstance(policy, Squashed):
                drawn, actions = z, np.clip(middle + reach * np.tanh(z), low, high)
                terms = terms + 2 * (dtype.type(log(2)) - z - np.logaddexp(-2 * z, 0))
            return drawn, actions, -terms.sum(-1)

    return HostPolicy("normal", middle.shape, dtype, draw)
