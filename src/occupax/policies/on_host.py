"""NumPy implementations of policies, for many observations at once.

With the same noise, samples equal those of `Policy.draw` up to rounding. The sample of an
observation does not depend on the other observations in any bit: each row is multiplied on its own.
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
from occupax.policies.categorical import Categorical, SoftmaxProduct, Tabular
from occupax.policies.fitting import has_flat_network, layers_of
from occupax.policies.gaussian import Gaussian, Squashed
from occupax.policies.networks import activation_name

Array = np.ndarray
Outputs = Callable[[Any], Float[Array, "P m"]]
"""Network as a function of P observations."""
Draws = tuple[Num[Array, "P *k"], Num[Array, "P *k"], Float[Array, " P"]]
"""Sample of the policy, action and log-probability for each observation."""


def _gelu(x: Array) -> Array:
    number = x.dtype.type
    return x * expit(number(np.sqrt(8 / np.pi)) * (x + number(0.044715) * x**3))


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x * expit(x),
    "softplus": lambda x: np.logaddexp(x, 0),
    "gelu": _gelu,
}
"""The activations of `networks.ACTIVATIONS` in NumPy."""


class HostPolicy(NamedTuple):
    """A policy in NumPy."""

    noise: Literal["gumbel", "normal"]
    """Name of the function of `jax.random` that draws the noise."""
    shape: tuple[int, ...]
    """Shape of the noise of one action."""
    dtype: np.dtype[Any]
    draw: Callable[[Any, Array], Draws]
    """Function of observations and their noise."""


class HostNetwork(NamedTuple):
    """A network in NumPy."""

    outputs: Outputs
    size: int
    """Number of outputs."""
    dtype: np.dtype[Any]


def on_host(policy: Policy) -> HostPolicy | None:
    """Return a policy in NumPy. None if a part of the policy is not supported."""
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(policy) if eqx.is_array(leaf)]
    if not all(dtype in (np.float32, np.float64) for dtype in dtypes):
        return None
    if type(policy) is Tabular:
        return _table(policy)
    if not has_flat_network(policy):
        return None
    network = _network(policy)
    if network is None:
        return None
    return _policy_of(policy, network)


def with_outputs_of_jax(policy: Policy, num_actions: int) -> HostPolicy | None:
    """Return a policy with the network in JAX and the distribution in NumPy. None if unknown."""
    if isinstance(policy, Categorical):
        outputs: Any = policy.logits
    elif isinstance(policy, SoftmaxProduct | Gaussian | Squashed):
        outputs = policy.psi
    else:
        return None
    evaluate = jax.jit(jax.vmap(outputs))

    def evaluated(observations: Any) -> Array:
        return np.asarray(evaluate(observations))

    return _policy_of(policy, HostNetwork(evaluated, num_actions, np.dtype(jnp.result_type(float))))


def _policy_of(policy: Any, network: HostNetwork) -> HostPolicy:
    """Return the policy with a network. The size of the network is that of a single softmax."""
    outputs = network.outputs
    dtype = network.dtype
    if isinstance(policy, Gaussian | Squashed):
        return _normal(policy, outputs, dtype)
    if not isinstance(policy, SoftmaxProduct):
        return _categorical(outputs, (network.size,), dtype)
    has_logit = policy.has_logit

    def logits(observations: Any) -> Array:
        padded = np.full((len(observations), *has_logit.shape), -np.inf, dtype)
        padded[:, has_logit] = outputs(observations)
        return padded

    return _categorical(logits, has_logit.shape, dtype)


_log_softmax = jax.jit(jax.nn.log_softmax)


def _table(policy: Tabular) -> HostPolicy:
    logits = np.asarray(policy.table)
    log_probs = np.asarray(_log_softmax(policy.table))

    def draw(states: Any, noise: Array) -> Draws:
        actions = np.argmax(logits[states] + noise, -1).astype(np.int32)
        return actions, actions, log_probs[states, actions]

    return HostPolicy("gumbel", logits.shape[1:], logits.dtype, draw)


def _network(policy: Any) -> HostNetwork | None:
    """Return the network of a policy. None if a part of the network is not supported."""
    layers = layers_of(policy.psi)
    if layers is None:
        return None
    names = [activation_name(activation) for _, activation in layers[:-1]]
    activations = [ACTIVATIONS[name] for name in names if name is not None]
    if len(activations) < len(names):
        return None
    weights = [np.asarray(layer.weight).T.copy() for layer, _ in layers]
    biases = [np.asarray(layer.bias) for layer, _ in layers]
    number = np.dtype(jnp.result_type(float))
    has_states = getattr(policy.psi, "num_states", None) is not None

    def first_layer(observations: Any) -> Array:
        if has_states:  # the product with a row that is 1 at the state
            return weights[0][observations] + biases[0]
        flat = observations.reshape(len(observations), -1).astype(number, copy=False)
        return _rows(flat, weights[0]) + biases[0]

    def outputs(observations: Any) -> Array:
        values = first_layer(observations)
        for activation, weight, bias in zip(activations, weights[1:], biases[1:], strict=True):
            values = _rows(activation(values), weight) + bias
        return values

    return HostNetwork(outputs, len(biases[-1]), np.result_type(number, *weights, *biases))


def _rows(rows: Float[Array, "P n"], weight: Float[Array, "n m"]) -> Float[Array, "P m"]:
    """Multiply each row with a matrix on its own.

    A product of matrices could depend on the number of rows.
    """
    return np.matmul(rows[:, None], weight)[:, 0]


def _categorical(logits_of: Outputs, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostPolicy:
    """Return a softmax or, if the noise has two axes, a softmax for each entry of an action."""

    def draw(observations: Any, noise: Array) -> Draws:
        with np.errstate(all="ignore"):  # callers check that log-probabilities are finite
            logits = logits_of(observations).reshape(-1, shape[-1])
            samples = (logits + noise.reshape(logits.shape)).argmax(-1)
            logits = logits - np.maximum.reduce(logits, -1, keepdims=True)
            log_totals = np.log(np.add.reduce(np.exp(logits), -1))
            log_probs = logits[np.arange(len(samples)), samples] - log_totals
        actions = samples.astype(np.int32).reshape(len(noise), *shape[:-1])
        if len(shape) > 1:
            log_probs = log_probs.reshape(actions.shape).sum(-1)
        return actions, actions, log_probs

    return HostPolicy("gumbel", shape, dtype, draw)


def _normal(policy: Gaussian | Squashed, outputs: Outputs, dtype: np.dtype[Any]) -> HostPolicy:
    box = policy.box
    shared = None
    if policy.log_deviation is not None:
        shared = np.asarray(policy.log_deviation)
        dtype = np.result_type(dtype, shared)
    middle = np.asarray(box.middle, dtype)
    reach = np.asarray(box.reach, dtype)
    low = np.asarray(box.low, dtype)
    high = np.asarray(box.high, dtype)
    constant = np.asarray(0.5 * log(2 * np.pi) + np.log(box.reach), dtype)

    def distribution(observations: Any) -> Any:
        values = outputs(observations)
        if shared is None:
            return np.split(values, 2, -1)
        return values, shared

    def terms(z: Array, means: Array, log_deviations: Array) -> Array:
        standardised = (z - means) * np.exp(-log_deviations)
        return 0.5 * standardised**2 + log_deviations + constant

    def draw(observations: Any, noise: Array) -> Draws:
        with np.errstate(all="ignore"):
            means, log_deviations = distribution(observations)
            z = means + np.exp(log_deviations) * noise
            actions = middle + reach * z
            log_density = -terms((actions - middle) / reach, means, log_deviations).sum(-1)
            return actions, actions, log_density

    def draw_squashed(observations: Any, noise: Array) -> Draws:
        with np.errstate(all="ignore"):
            means, log_deviations = distribution(observations)
            z = means + np.exp(log_deviations) * noise
            actions = np.clip(middle + reach * np.tanh(z), low, high)
            slope = 2 * (dtype.type(log(2)) - z - np.logaddexp(-2 * z, 0))
            log_density = -(terms(z, means, log_deviations) + slope).sum(-1)
            return z, actions, log_density

    if isinstance(policy, Squashed):
        return HostPolicy("normal", middle.shape, dtype, draw_squashed)
    return HostPolicy("normal", middle.shape, dtype, draw)
