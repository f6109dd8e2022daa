"""Softmax policies over images."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from occupax.envs.base import DecisionProcess, observation_spec
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.errors import check_integers, check_number, unknown
from occupax.policies.base import Initialiser, Policy, configured
from occupax.policies.categorical import number_of_logits, softmax
from occupax.policies.networks import ACTIVATIONS

WINDOW = 3
"""The height and width of the window of each convolution."""
LARGE = 20
"""Images of at least so many rows and columns are halved by each convolution."""


class Pixels(eqx.Module):
    """A network of an image: convolutions, and layers behind them."""

    convolutions: eqx.nn.Sequential
    layers: eqx.nn.Sequential
    shape: tuple[int, int, int] = eqx.field(static=True)
    """Of the image as it is observed; a grey one has one channel."""
    channels_last: bool = eqx.field(static=True)
    unit: float = eqx.field(static=True)
    """What pixels are divided by."""

    def __call__(self, observation: Any) -> Float[Array, " m"]:
        """What the network returns for an image, which may be flat."""
        image = jnp.reshape(observation, self.shape).astype(jnp.result_type(float)) / self.unit
        return self.layers(
            jnp.ravel(
                self.convolutions(jnp.moveaxis(image, -1, 0) if self.channels_last else image)
            )
        )


@configured
def cnn(
    channels: Sequence[int] = (16, 32),
    hidden: Sequence[int] = (128,),
    activation: str = "tanh",
    scale: float = 0.01,
) -> Initialiser:
    """Convolutions of an image, a multilayer perceptron behind them, and a softmax over its logits.

    An image has the shape [rows, columns], [rows, columns, channels] or [channels, rows, columns]:
    channels are the smallest of the three numbers. Pixels of the type uint8 are divided by 255, all
    others are taken as they are.

    Args:
        channels: how many channels each convolution, with a window of 3 x 3, returns.
        hidden: width of each hidden layer behind them.
        activation: name of the activation between all layers.
        scale: what the first weights of the last layer, drawn like those of the others, are
            multiplied by.
    """
    depths, widths = check_integers("channels", channels), check_integers("hidden", hidden)
    scale = check_number("scale", scale, low=0.0)
    if activation not in ACTIVATIONS:
        raise unknown("activation", activation, ACTIVATIONS)
    bend = eqx.nn.Lambda(ACTIVATIONS[activation])

    def init(env: DecisionProcess, key: Key[Array, ""]) -> Policy:
        outputs, spec = number_of_logits(env), observation_spec(env)
        shape = (
            env.parts[0].shape
            if isinstance(env, GymnasiumEnv) and len(env.parts) == 1
            else spec.shape
        )
        shape, channels_last = _read_shape(shape)
        rows, columns, depth = shape if channels_last else (*shape[1:], shape[0])
        stride = 2 if min(rows, columns) >= LARGE else 1
        keys = iter(jax.random.split(key, len(depths) + len(widths) + 1))
        convolutions: list[Any] = []
        for out in depths:
            convolutions += [eqx.nn.Conv2d(depth, out, WINDOW, stride, key=next(keys)), bend]
            rows, columns, depth = (
                (rows - WINDOW) // stride + 1,
                (columns - WINDOW) // stride + 1,
                out,
            )
        if min(rows, columns) < 1:
            left = f"{len(depths)} convolutions leave nothing of an image of shape {shape}"
            raise ValueError(f"channels must be fewer numbers: {left}.")
        layers, size = list[Any](), rows * columns * depth
        for out in (*widths, outputs):
            layers += [eqx.nn.Linear(size, out, key=next(keys)), bend]
            size = out
        layers[-2] = jax.tree.map(lambda leaf: scale * leaf, layers[-2])
        unit = 255.0 if spec.dtype == np.uint8 else 1.0
        psi = Pixels(
            eqx.nn.Sequential(convolutions),
            eqx.nn.Sequential(layers[:-1]),
            shape,
            channels_last,
            unit,
        )
        return softmax(env, psi)

    return init


def _read_shape(shape: tuple[int, ...]) -> tuple[tuple[int, int, int], bool]:
    """The shape with channels, and whether these come last."""
    if len(shape) == 2:
        return (*shape, 1), True
    wanted = "[rows, columns], [rows, columns, channels] or [channels, rows, columns]"
    if len(shape) != 3:
        raise ValueError(
            f"policies.cnn() is for images of shape {wanted}, got observations of shape {shape}."
        )
    first, middle, last = shape
    if last <= min(first, middle):
        return (first, middle, last), True
    if first <= min(middle, last):
        return (first, middle, last), False
    raise ValueError(
        "the channels of an image must be first or last and fewer than rows and columns, got "
        f"{shape}."
    )
