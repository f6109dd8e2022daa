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
from occupax.errors import check_integers, check_number
from occupax.policies.base import Initialiser, Policy, configured
from occupax.policies.categorical import number_of_logits, softmax
from occupax.policies.networks import check_activation, dense_stack

WINDOW = 3
"""Height and width of the window of each convolution."""
LARGE = 20
"""Number of rows and columns of an image from which on each convolution has stride 2."""

Shape = tuple[int, int, int]


class Pixels(eqx.Module):
    """A network of an image: convolutions, followed by dense layers.

    Args:
        convolutions: the convolutions, for channels first.
        layers: the dense layers.
        shape: shape of the observed image; a grey image has one channel.
        channels_last: whether channels are the last axis of the observed image.
        unit: number that pixels are divided by.
    """

    convolutions: eqx.nn.Sequential
    layers: eqx.nn.Sequential
    shape: Shape = eqx.field(static=True)
    channels_last: bool = eqx.field(static=True)
    unit: float = eqx.field(static=True)

    def __call__(self, observation: Any) -> Float[Array, " m"]:
        """Return the outputs of the network for an image, which may be flat."""
        image = jnp.reshape(observation, self.shape).astype(jnp.result_type(float)) / self.unit
        if self.channels_last:
            image = jnp.moveaxis(image, -1, 0)
        return self.layers(jnp.ravel(self.convolutions(image)))


@configured
def cnn(
    channels: Sequence[int] = (16, 32),
    hidden: Sequence[int] = (128,),
    activation: str = "tanh",
    scale: float = 0.01,
) -> Initialiser:
    """Return the initialiser of a softmax policy with logits by a convolutional network.

    An image has the shape [rows, columns], [rows, columns, channels] or [channels, rows, columns],
    and fewer channels than rows and columns. Pixels of the type uint8 are divided by 255.

    Args:
        channels: number of output channels of each convolution, whose window is 3 x 3, by default
            (16, 32).
        hidden: width of each hidden layer after the convolutions, by default (128,).
        activation: name of the activation, by default "tanh".
        scale: factor of the initial weights of the output layer, by default 0.01.

    Returns:
        The function `(env, key) -> policy`.
    """
    depths = check_integers("channels", channels)
    widths = check_integers("hidden", hidden)
    scale = check_number("scale", scale, low=0.0)
    function = check_activation(activation)

    def init(env: DecisionProcess, key: Key[Array, ""]) -> Policy:
        outputs = number_of_logits(env)
        spec = observation_spec(env)
        shape, channels_last = _read_shape(_image_shape(env))
        rows, columns, depth = shape
        if not channels_last:
            depth, rows, columns = shape
        stride = 1
        if min(rows, columns) >= LARGE:
            stride = 2
        keys = jax.random.split(key, len(depths) + len(widths) + 1)
        convolutions: list[Any] = []
        for out, convolution_key in zip(depths, keys, strict=False):
            convolution = eqx.nn.Conv2d(depth, out, WINDOW, stride, key=convolution_key)
            convolutions += [convolution, eqx.nn.Lambda(function)]
            rows = (rows - WINDOW) // stride + 1
            columns = (columns - WINDOW) // stride + 1
            depth = out
        if min(rows, columns) < 1:
            reason = f"{len(depths)} convolutions leave nothing of an image of shape {shape}"
            raise ValueError(f"channels must be fewer numbers: {reason}.")
        sizes = (rows * columns * depth, *widths, outputs)
        layers = dense_stack(sizes, keys[len(depths) :], function, scale)
        unit = 1.0
        if spec.dtype == np.uint8:
            unit = 255.0
        psi = Pixels(
            convolutions=eqx.nn.Sequential(convolutions),
            layers=eqx.nn.Sequential(layers),
            shape=shape,
            channels_last=channels_last,
            unit=unit,
        )
        return softmax(env, psi)

    return init


def _image_shape(env: DecisionProcess) -> tuple[int, ...]:
    """Return the shape of an observation before Gymnasium's images are flattened."""
    if isinstance(env, GymnasiumEnv) and len(env.parts) == 1:
        return env.parts[0].shape
    return observation_spec(env).shape


def _read_shape(shape: tuple[int, ...]) -> tuple[Shape, bool]:
    """Return the shape with channels, and whether channels are last."""
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
