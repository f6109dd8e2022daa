"""Log-probabilities of trajectories by the compiled kernel for networks of tanh layers.

For a softmax, the kernel computes log-probabilities with their first and second derivatives. For
all other policies it computes the outputs of the network and their gradients, and JAX the
distribution of the outputs. The gradient of a Gaussian behaviour policy is an exception. In all
cases the network is evaluated for live steps only.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num

from occupax import kernels
from occupax.policies import Policy, Softmax, dense_layers
from occupax.policies.gaussian import Normal
from occupax.scoring import PolicyScorer, Scorer
from occupax.trajectories import Trajectories

OUTPUT_MULTIPLE = 8
"""The kernel needs numbers of outputs of a layer that are multiples of this."""

Sizes = tuple[int, ...]


class NetworkScorer(Scorer):
    """Log-probabilities, and their gradients, by the kernel.

    Args:
        live_observations: observations of live steps, with arbitrary values at all other steps.
            None stands for the observations of the trajectories. XLA does not compute the latter
            if the kernel alone reads observations: for images and episodes much shorter than the
            horizon, that would be most of the work.
    """

    live_observations: Any = None

    def log_probs(
        self, policy: Policy, trajectories: Trajectories, on_policy: bool
    ) -> Float[Array, "B H"]:
        """Return the recorded log-probabilities on-policy, and those of the kernel otherwise."""
        recorded = None
        if on_policy:
            recorded = trajectories.log_probs
        return kernel_log_probs(policy, self._with_live_observations(trajectories), recorded)

    def log_probs_along(
        self, policy: Policy, vector: Policy, trajectories: Trajectories
    ) -> tuple[Float[Array, "B H"], Float[Array, "B H"]]:
        """Return derivatives by the kernel for a softmax, and by JAX for all other policies."""
        if not isinstance(policy, Softmax):
            return PolicyScorer().log_probs_along(policy, vector, trajectories)
        trajectories = self._with_live_observations(trajectories)
        return kernel_log_probs_along(policy, vector, trajectories)

    def _with_live_observations(self, trajectories: Trajectories) -> Trajectories:
        if self.live_observations is None:
            return trajectories
        return replace(trajectories, observations=self.live_observations)


def kernel_log_probs(
    policy: Policy, trajectories: Trajectories, recorded: Float[Array, "B H"] | None = None
) -> Float[Array, "B H"]:
    """Return the log-probabilities of live steps. Zero after the end."""
    is_recorded_gaussian = recorded is not None and isinstance(policy, Normal)
    parameters, sizes = network_of(policy, with_log_std=is_recorded_gaussian)
    lengths = trajectories.lengths.astype(jnp.int32)
    observations = rows_of(trajectories.observations, 2, parameters.dtype)
    if isinstance(policy, Softmax):
        actions = trajectories.actions.astype(jnp.int32)
        return _log_probs("gradient", sizes, parameters, observations, actions, lengths, recorded)
    if isinstance(policy, Normal) and is_recorded_gaussian:
        z = jax.vmap(jax.vmap(policy.z))(trajectories.actions)
        return _log_probs("normal", sizes, parameters, observations, z, lengths, recorded)
    outputs = outputs_of(sizes, parameters, observations, lengths)
    log_probs = jax.vmap(jax.vmap(head_of(policy).log_prob))(outputs, trajectories.actions)
    return jnp.where(trajectories.live, log_probs, 0.0)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _log_probs(
    gradient: str,
    sizes: Sizes,
    parameters: Float[Array, " P"],
    observations: Float[Array, "B H D"],
    actions: Num[Array, "B H *k"],
    lengths: Int[Array, " B"],
    recorded: Float[Array, "B H"] | None,
) -> Float[Array, "B H"]:
    """Return the recorded log-probabilities or else, for a softmax, those of the kernel.

    Args:
        gradient: the function of the kernel for the gradient.
        sizes: number of inputs, and of outputs of each layer.
        parameters: weights and biases; see `network_of`.
        observations: observations of live steps.
        actions: actions of live steps.
        lengths: number of live steps of each trajectory.
        recorded: recorded log-probabilities.
    """
    del gradient
    if recorded is not None:
        return recorded
    operands = (parameters, observations, actions, lengths)
    return _call("log_probs", sizes, actions.shape, operands)


def _log_probs_forward(gradient: str, sizes: Sizes, *operands: Any) -> Any:
    return _log_probs(gradient, sizes, *operands), operands[:-1]


def _log_probs_backward(
    gradient: str, sizes: Sizes, operands: Any, coefficients: Float[Array, "B H"]
) -> Any:
    parameters = operands[0]
    result = _call(gradient, sizes, parameters.shape, (*operands, coefficients))
    return result, None, None, None, None


_log_probs.defvjp(_log_probs_forward, _log_probs_backward)


def kernel_log_probs_along(
    policy: Policy, vector: Policy, trajectories: Trajectories
) -> tuple[Float[Array, "B H"], Float[Array, "B H"]]:
    """Return the recorded log-probabilities of a softmax, and their derivatives along a vector."""
    parameters, sizes = network_of(policy)
    direction, _ = network_of(eqx.combine(vector, policy))
    observations = rows_of(trajectories.observations, 2, parameters.dtype)
    actions = trajectories.actions.astype(jnp.int32)
    lengths = trajectories.lengths.astype(jnp.int32)
    recorded = trajectories.log_probs
    return _log_probs_along(sizes, parameters, observations, actions, lengths, direction, recorded)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _log_probs_along(
    sizes: Sizes,
    parameters: Float[Array, " P"],
    observations: Float[Array, "B H D"],
    actions: Int[Array, "B H"],
    lengths: Int[Array, " B"],
    direction: Float[Array, " P"],
    recorded: Float[Array, "B H"],
) -> tuple[Float[Array, "B H"], Float[Array, "B H"]]:
    operands = (parameters, observations, actions, lengths, direction)
    return recorded, _call("slopes", sizes, actions.shape, operands)


def _log_probs_along_forward(sizes: Sizes, *operands: Any) -> Any:
    return _log_probs_along(sizes, *operands), operands[:-1]


def _log_probs_along_backward(
    sizes: Sizes, operands: Any, coefficients: tuple[Array, Array]
) -> Any:
    """Return the gradient in the parameters. No caller differentiates in the direction."""
    parameters = operands[0]
    gradient = _call("slope_gradient", sizes, parameters.shape, (*operands, *coefficients))
    return gradient, None, None, None, None, None


_log_probs_along.defvjp(_log_probs_along_forward, _log_probs_along_backward)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def outputs_of(
    sizes: Sizes,
    parameters: Float[Array, " P"],
    observations: Float[Array, "B H D"],
    lengths: Int[Array, " B"],
) -> Float[Array, "B H k"]:
    """Return the outputs of the network for the observations of live steps, and zeros otherwise."""
    shape = (*observations.shape[:-1], sizes[-1])
    return _call("outputs", sizes, shape, (parameters, observations, lengths))


def _outputs_forward(sizes: Sizes, *operands: Any) -> Any:
    return outputs_of(sizes, *operands), operands


def _outputs_backward(sizes: Sizes, operands: Any, errors: Float[Array, "B H k"]) -> Any:
    parameters = operands[0]
    return _call("through", sizes, parameters.shape, (*operands, errors)), None, None


outputs_of.defvjp(_outputs_forward, _outputs_backward)


def _call(name: str, sizes: Sizes, shape: tuple[int, ...], operands: tuple[Any, ...]) -> Any:
    """Call the kernel. The parameters are the first operand, and one array is the result."""
    dtype = operands[0].dtype
    output = jax.ShapeDtypeStruct(shape, dtype)
    return kernels.call(f"network_{name}", dtype, output, *operands, sizes=np.array(sizes))


def head_of(policy: Policy) -> Policy:
    """Return the policy as a function of the outputs of its network instead of the observation."""
    return eqx.tree_at(lambda policy: policy.psi, policy, _identity)


def _identity(outputs: Float[Array, " k"]) -> Float[Array, " k"]:
    return outputs


def network_of(policy: Policy, with_log_std: bool = False) -> tuple[Float[Array, " P"], Sizes]:
    """Return the weights [inputs, outputs] and biases of all layers as a vector, and the sizes.

    Outputs are padded to a multiple of `OUTPUT_MULTIPLE`.

    Args:
        policy: a policy whose network has tanh layers.
        with_log_std: whether the logarithms of standard deviations that are parameters become
            outputs: biases without weights.
    """
    layers = dense_layers(policy)
    if layers is None:
        got = type(policy).__name__
        raise ValueError(f"the compiled kernel takes networks of tanh layers, got {got}.")
    weights = [layer.weight for layer in layers]
    biases = [jnp.asarray(layer.bias) for layer in layers]
    if with_log_std and isinstance(policy, Normal) and policy.log_deviation is not None:
        weights[-1] = jnp.pad(weights[-1], ((0, len(biases[-1])), (0, 0)))
        biases[-1] = jnp.concatenate([biases[-1], policy.log_deviation])
    parts: list[Array] = []
    for weight, bias in zip(weights, biases, strict=True):
        padding = (0, -len(bias) % OUTPUT_MULTIPLE)
        parts.append(jnp.pad(transposed(weight), ((0, 0), padding)).ravel())
        parts.append(jnp.pad(bias, padding))
    sizes = (weights[0].shape[1], *map(len, biases))
    return jnp.concatenate(parts), sizes


@jax.custom_vjp
def transposed(weight: Float[Array, "a b"]) -> Float[Array, "b a"]:
    """Return the transposed weights, computed once by the kernel.

    XLA would transpose again in every operation on a gradient, which takes several times as long.
    """
    output = jax.ShapeDtypeStruct(weight.shape[::-1], weight.dtype)
    return kernels.call("network_turn", weight.dtype, output, weight)


def _transposed_forward(weight: Float[Array, "a b"]) -> Any:
    return transposed(weight), None


def _transposed_backward(_: None, errors: Float[Array, "b a"]) -> Any:
    return (transposed(errors),)


transposed.defvjp(_transposed_forward, _transposed_backward)


def rows_of(observations: Array, axes: int, dtype: Any) -> Float[Array, "*axes D"]:
    """Return observations as flat rows."""
    return observations.reshape(*observations.shape[:axes], -1).astype(dtype)
