"""Functions of the observation that policies are made of."""

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
    **{name: getattr(jax.nn, name) for name in ("gelu", "silu", "softplus", "relu")},
    "tanh": jnp.tanh,
}
"""The functions between the layers of a network, by name."""
NAMED_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **ACTIVATIONS,
    "identity": inspect.signature(eqx.nn.MLP).parameters["final_activation"].default,
}
"""The functions that files and messages represent by name."""

JITTED = type(jax.jit(jnp.tanh))


def activation_name(function: Any) -> str | None:
    """Return the name of an activation, also inside of `jax.jit`; None for any other function."""
    for name, activation in ACTIVATIONS.items():
        if _without_jit(function) is _without_jit(activation):
            return name
    return None


def _without_jit(function: Any) -> Any:
    if isinstance(function, JITTED):
        return _without_jit(getattr(function, "__wrapped__", None))
    return function


LARGEST_RANGE = 1e6
"""Bounds that are further apart than this are none."""
WIDE = 5.0
"""Half of the range of a number, from which on most of its values may be close together."""


class Flat(eqx.Module):
    """A network of the flattened observation; states of a table are one-hot vectors."""

    network: Callable[[Float[Array, " n"]], Float[Array, " m"]]
    num_states: int | None = eqx.field(static=True)

    def __check_init__(self) -> None:
        if self.num_states is not None:
            check_integer("num_states", self.num_states)

    def __call__(self, observation: Any) -> Float[Array, " m"]:
        """What the network returns for an observation."""
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
        if not isinstance(activation, str) or activation not in ACTIVATIONS:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise unknown("activation", activation, ACTIVATIONS)
        self._activation = ACTIVATIONS[activation]

    def __call__(
        self, env: DecisionProcess, outputs: int, key: Key[Array, ""], last: float
    ) -> Flat:
        """Return a network for an environment, whose output layer is scaled by `last`."""
        sizes = (input_size(env), *self._widths, outputs)
        keys = jax.random.split(key, len(sizes) - 1)
        layers: list[Any] = []
        for fan_in, fan_out, layer_key in zip(sizes[:-1], sizes[1:], keys, strict=True):
            layers += [
                eqx.nn.Linear(fan_in, fan_out, key=layer_key),
                eqx.nn.Lambda(self._activation),
            ]
        layers[-2] = jax.tree.map(lambda leaf: last * leaf, layers[-2])
        if self._normalise is None and not self.running(env):
            layers[0] = _for_bounds(layers[0], env)
        return Flat(eqx.nn.Sequential(layers[:-1]), number_of_states(env))

    def running(self, env: DecisionProcess) -> bool:
        """Return whether observations are normalised by running statistics.

        The default is to do so for unbounded boxes of Gymnasium.
        """
        vectors = number_of_states(env) is None
        if self._normalise and not vectors:
            got = f"{type(env).__name__}, whose observations are states"
            raise ValueError(
                f"normalise=True is for observations that are numbers, got {got}; "
                "use normalise=None."
            )
        if self._normalise is not None:
            return self._normalise
        return vectors and isinstance(env, GymnasiumEnv) and not all(_bounded(env))


def _for_bounds(layer: eqx.nn.Linear, env: DecisionProcess) -> eqx.nn.Linear:
    """Return the layer for observations scaled such that bounds, where declared, are -1 and 1.

    Otherwise a small number such as a velocity of at most 0.07 would hardly count in a first
    policy, nor for long. The same would come of a wide range of which little is visited: Acrobot's
    speeds may be 28, and are seldom above 3. So every second unit sees a number of a wide range as
    it is, but for the middle.
    """
    if number_of_states(env) is not None or len(env.observation_bounds) == 0:
        return layer
    low, high = np.asarray(env.observation_bounds, float).T
    known = _bounded(env)
    half = np.where(known, (high - low) / 2, 1.0)
    middle = np.where(known, low + half, 0.0)
    as_it_is = (half > WIDE) & (np.arange(layer.out_features) % 2 == 0)[:, None]
    weight, bias = layer.weight / np.where(as_it_is, 1.0, half), layer.bias
    assert bias is not None  # noqa: S101  layers are made with one
    return eqx.tree_at(lambda it: (it.weight, it.bias), layer, (weight, bias - weight @ middle))


def _bounded(env: DecisionProcess) -> Bool[np.ndarray, " n"]:
    """Which numbers of an observation have bounds; none of them where nothing is declared."""
    low, high = np.asarray(env.observation_bounds, float).reshape(-1, 2).T
    return (high > low) & (high - low < LARGEST_RANGE)


def input_size(env: DecisionProcess) -> int:
    """The length of an observation as a flat vector."""
    states = number_of_states(env)
    return int(np.prod(observation_spec(env).shape)) if states is None else states


def output_length(features: Callable[[Any], Float[Array, " n"]], observation: Any) -> int:
    """The length of the vector that a function makes of an observation."""
    try:
        shape = jax.eval_shape(features, observation).shape
    except Exception as error:
        raise tracing_error("the function features", "an observation", error) from error
    if len(shape) != 1:
        raise ValueError(f"features must return a vector, got an array of shape {shape}.")
    return shape[0]
