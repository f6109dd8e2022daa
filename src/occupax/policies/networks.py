"""Networks: functions of the observation that policies are made of."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from occupax.envs.base import DecisionProcess, number_of_states, observation_spec
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.errors import check_integer, check_integers, tracing_error, unknown

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
}
"""Activation functions by name."""
NAMED_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **ACTIVATIONS,
    "identity": inspect.signature(eqx.nn.MLP).parameters["final_activation"].default,
}
"""Functions that files and messages represent by name."""
JITTED = type(jax.jit(jnp.tanh))

MAX_RANGE = 1e6
"""Largest distance between two bounds; bounds further apart are ignored."""
WIDE = 5.0
"""Half of the range of a number above which most of its values may be close together."""


def activation_name(function: Any) -> str | None:
    """Return the name of an activation, also inside of `jax.jit`. None for any other function."""
    for name, activation in ACTIVATIONS.items():
        if _without_jit(function) is _without_jit(activation):
            return name
    return None


def _without_jit(function: Any) -> Any:
    if isinstance(function, JITTED):
        return _without_jit(getattr(function, "__wrapped__", None))
    return function


def check_activation(activation: Any) -> Callable[[Array], Array]:
    """Return the activation of a name."""
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise unknown("activation", activation, ACTIVATIONS)
    return ACTIVATIONS[activation]


class Flat(eqx.Module):
    """A network of the flattened observation. States of a table are one-hot vectors.

    Args:
        network: the network, a function of a vector of floats.
        num_states: number of states if observations are states; None otherwise.
    """

    network: Callable[[Float[Array, " n"]], Float[Array, " m"]]
    num_states: int | None = eqx.field(static=True)

    def __check_init__(self) -> None:
        if self.num_states is not None:
            check_integer("num_states", self.num_states)

    def __call__(self, observation: Any) -> Float[Array, " m"]:
        """Return the outputs of the network for an observation."""
        if self.num_states is not None:
            return self.network(jax.nn.one_hot(observation, self.num_states))
        return self.network(jnp.ravel(observation).astype(jnp.result_type(float)))


class Layers:
    """Specification of a multilayer perceptron: hidden widths, activation and normalisation."""

    def __init__(self, hidden: Sequence[int], activation: str, normalise: bool | None = None):
        self._widths = check_integers("hidden", hidden)
        if normalise not in (None, True, False):
            raise ValueError(f"normalise must be True, False or None, got {normalise!r}.")
        self._normalise = normalise
        self._activation = check_activation(activation)

    def __call__(
        self, env: DecisionProcess, outputs: int, key: Key[Array, ""], scale: float
    ) -> Flat:
        """Return a network for an environment, with output weights multiplied by `scale`."""
        sizes = (input_size(env), *self._widths, outputs)
        keys = jax.random.split(key, len(sizes) - 1)
        layers = dense_stack(sizes, keys, self._activation, scale)
        if self._normalise is None and not self.normalises(env):
            layers[0] = _for_bounds(layers[0], env)
        return Flat(eqx.nn.Sequential(layers), number_of_states(env))

    def normalises(self, env: DecisionProcess) -> bool:
        """Return whether observations are normalised by running statistics.

        The default is to do so for unbounded boxes of Gymnasium.
        """
        has_vectors = number_of_states(env) is None
        if self._normalise and not has_vectors:
            got = f"{type(env).__name__}, whose observations are states"
            raise ValueError(
                f"normalise=True is for observations that are numbers, got {got}; "
                "use normalise=None."
            )
        if self._normalise is not None:
            return self._normalise
        return has_vectors and isinstance(env, GymnasiumEnv) and not all(_bounded(env))


def dense_stack(
    sizes: Sequence[int], keys: Any, activation: Callable[[Array], Array], scale: float
) -> list[Any]:
    """Return linear layers with activations between them, and output weights times `scale`."""
    layers: list[Any] = []
    for inputs, outputs, key in zip(sizes[:-1], sizes[1:], keys, strict=True):
        layers.append(eqx.nn.Linear(inputs, outputs, key=key))
        layers.append(eqx.nn.Lambda(activation))
    layers.pop()
    layers[-1] = jax.tree.map(lambda leaf: scale * leaf, layers[-1])
    return layers


def _for_bounds(layer: eqx.nn.Linear, env: DecisionProcess) -> eqx.nn.Linear:
    """Return the layer for observations scaled such that bounds, where declared, are -1 and 1.

    Otherwise a small number, such as a velocity of at most 0.07, would hardly influence an initial
    policy. A wide range of which little is visited would have the same effect: speeds of Acrobot
    may be 28 and are seldom above 3. So every second unit receives a number of a wide range
    unscaled, but centred.
    """
    if number_of_states(env) is not None or len(env.observation_bounds) == 0:
        return layer
    low, high = np.asarray(env.observation_bounds, float).T
    is_bounded = _bounded(env)
    half = np.where(is_bounded, (high - low) / 2, 1.0)
    middle = np.where(is_bounded, low + half, 0.0)
    is_even_unit = np.arange(layer.out_features) % 2 == 0
    is_unscaled = (half > WIDE) & is_even_unit[:, None]
    weight = layer.weight / np.where(is_unscaled, 1.0, half)
    bias = layer.bias
    assert bias is not None  # noqa: S101  layers of `dense_stack` have one
    return with_parameters(layer, weight, bias - weight @ middle)


def with_parameters(layer: eqx.nn.Linear, weight: Array, bias: Array) -> eqx.nn.Linear:
    """Return a linear layer with other parameters."""
    return eqx.tree_at(lambda layer: (layer.weight, layer.bias), layer, (weight, bias))


def _bounded(env: DecisionProcess) -> Bool[np.ndarray, " n"]:
    """Return whether each number of an observation has bounds. Empty if no bounds are declared."""
    low, high = np.asarray(env.observation_bounds, float).reshape(-1, 2).T
    return (high > low) & (high - low < MAX_RANGE)


def input_size(env: DecisionProcess) -> int:
    """Return the length of an observation as a flat vector."""
    states = number_of_states(env)
    if states is not None:
        return states
    return int(np.prod(observation_spec(env).shape))


def output_length(features: Callable[[Any], Float[Array, " n"]], observation: Any) -> int:
    """Return the length of the vector that a function returns for an observation."""
    try:
        shape = jax.eval_shape(features, observation).shape
    except Exception as error:
        raise tracing_error("the function features", "an observation", error) from error
    if len(shape) != 1:
        raise ValueError(f"features must return a vector, got an array of shape {shape}.")
    return shape[0]
