"""Log-probabilities of trajectories by the compiled kernel for networks of tanh layers.

Of a softmax the kernel gives log-probabilities with their first and second derivatives. Of all
other policies it gives the outputs of the network and the gradients through them: what the policy
makes of the outputs is left to JAX, except for the gradient of a Gaussian behaviour policy. In all
cases the network computes nothing for steps that are not live.
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

FILL = 8
"""What the kernel wants the outputs of a layer to be a multiple of."""

Sizes = tuple[int, ...]


class NetworkScorer(Scorer):
    """Log-probabilities, and their gradients, from the kernel.

    Args:
        seen: observations of live steps, and any values at all others, which the kernel reads; None
            stands for those of the trajectories. Where nothing but the kernel reads observations,
            those of the trajectories are never
            computed: with images and episodes much shorter than the horizon, that would be most of
                the work.
    """

    seen: Any = None

    def log_probs(
        self, policy: Policy, trajectories: Trajectories, on_policy: bool
    ) -> Float[Array, "B H"]:
        """Return the recorded log-probabilities of the behaviour policy, and those of the kernel for all others."""
        recorded = trajectories.log_probs if on_policy else None
        return kernel_log_probs(policy, self._with_seen(trajectories), recorded)

    def log_probs_along(
        self, policy: Policy, vector: Policy, trajectories: Trajectories
    ) -> tuple[Float[Array, "B H"], Float[Array, "B H"]]:
        """Return the derivatives of the kernel for a softmax, and those of the policy itself for all others."""
        if not isinstance(policy, Softmax):
            return PolicyScorer().log_probs_along(policy, vector, trajectories)
        return kernel_log_probs_along(policy, vector, self._with_seen(trajectories))

    def _with_seen(self, trajectories: Trajectories) -> Trajectories:
        return trajectories if self.seen is None else replace(trajectories, observations=self.seen)


def kernel_log_probs(
    policy: Policy, trajectories: Trajectories, recorded: Float[Array, "B H"] | None = None
) -> Float[Array, "B H"]:
    """The log-probabilities of live steps; zero after the end."""
    is_recorded_normal = recorded is not None and isinstance(policy, Normal)
    lengths = trajectories.lengths.astype(jnp.int32)
    parameters, sizes = network_of(policy, with_deviations=is_recorded_normal)
    observations = rows_of(trajectories.observations, 2, parameters.dtype)
    if isinstance(policy, Softmax):
        actions = trajectories.actions.astype(jnp.int32)
        return _log_probs("gradient", sizes, parameters, observations, actions, lengths, recorded)
    if isinstance(policy, Normal) and is_recorded_normal:
        z = jax.vmap(jax.vmap(policy.z))(trajectories.actions)
        return _log_probs("normal", sizes, parameters, observations, z, lengths, recorded)
    outputs = outputs_of(sizes, parameters, observations, lengths)
    found = jax.vmap(jax.vmap(head_of(policy).log_prob))(outputs, trajectories.actions)
    return jnp.where(trajectories.live, found, 0.0)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _log_probs(
    kind: str,
    sizes: Sizes,
    parameters: Float[Array, " P"],
    observations: Float[Array, "B H D"],
    actions: Num[Array, "B H *k"],
    lengths: Int[Array, " B"],
    recorded: Float[Array, "B H"] | None,
) -> Float[Array, "B H"]:
    """Those that were recorded or else, of a softmax, of the kernel; `kind` is its function for their gradient."""
    if recorded is not None:
        return recorded
    assert kind == "gradient"  # noqa: S101  other laws have outputs
    output = jax.ShapeDtypeStruct(actions.shape, parameters.dtype)
    operands = parameters, observations, actions, lengths
    return kernels.call(
        "network_log_probs", parameters.dtype, output, *operands, sizes=np.array(sizes)
    )


def _log_probs_forward(kind: str, sizes: Sizes, *operands: Any) -> Any:
    return _log_probs(kind, sizes, *operands), operands[:-1]


def _log_probs_backward(
    kind: str, sizes: Sizes, operands: Any, coefficients: Float[Array, "B H"]
) -> Any:
    parameters = operands[0]
    output = jax.ShapeDtypeStruct(parameters.shape, parameters.dtype)
    operands = *operands, coefficients
    found = kernels.call(
        f"network_{kind}", parameters.dtype, output, *operands, sizes=np.array(sizes)
    )
    return found, None, None, None, None


_log_probs.defvjp(_log_probs_forward, _log_probs_backward)


def kernel_log_probs_along(
    policy: Policy, vector: Policy, trajectories: Trajectories
) -> tuple[Float[Array, "B H"], Float[Array, "B H"]]:
    """The log-probabilities that were recorded when a softmax acted, and their derivatives along a vector."""
    parameters, sizes = network_of(policy)
    direction, _ = network_of(eqx.combine(vector, policy))
    observations = rows_of(trajectories.observations, 2, parameters.dtype)
    actions, lengths = (
        trajectories.actions.astype(jnp.int32),
        trajectories.lengths.astype(jnp.int32),
    )
    return _log_probs_along(
        sizes, parameters, observations, actions, lengths, direction, trajectories.log_probs
    )


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
    operands = parameters, observations, actions, lengths, direction
    output = jax.ShapeDtypeStruct(actions.shape, parameters.dtype)
    return recorded, kernels.call(
        "network_slopes", parameters.dtype, output, *operands, sizes=np.array(sizes)
    )


def _log_probs_along_backward(
    sizes: Sizes, operands: Any, coefficients: tuple[Array, Array]
) -> Any:
    parameters = operands[0]
    output = jax.ShapeDtypeStruct(parameters.shape, parameters.dtype)
    operands = *operands, *coefficients
    gradient = kernels.call(
        "network_slope_gradient", parameters.dtype, output, *operands, sizes=np.array(sizes)
    )
    return gradient, None, None, None, None, None  # nothing asks for derivatives by the direction


_log_probs_along.defvjp(
    lambda sizes, *operands: (_log_probs_along(sizes, *operands), operands[:-1]),
    _log_probs_along_backward,
)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def outputs_of(
    sizes: Sizes,
    parameters: Float[Array, " P"],
    observations: Float[Array, "B H D"],
    lengths: Int[Array, " B"],
) -> Float[Array, "B H k"]:
    """What the network makes of the observations of live steps, and zeros for the others."""
    output = jax.ShapeDtypeStruct((*observations.shape[:-1], sizes[-1]), parameters.dtype)
    operands = parameters, observations, lengths
    return kernels.call(
        "network_outputs", parameters.dtype, output, *operands, sizes=np.array(sizes)
    )


def _outputs_backward(sizes: Sizes, operands: Any, errors: Float[Array, "B H k"]) -> Any:
    parameters = operands[0]
    output = jax.ShapeDtypeStruct(parameters.shape, parameters.dtype)
    operands = *operands, errors
    return (
        kernels.call("network_through", parameters.dtype, output, *operands, sizes=np.array(sizes)),
        None,
        None,
    )


outputs_of.defvjp(
    lambda sizes, *operands: (outputs_of(sizes, *operands), operands), _outputs_backward
)


def head_of(policy: Policy) -> Policy:
    """The policy as a function of the outputs of its network instead of the observation."""
    return eqx.tree_at(lambda it: it.psi, policy, _as_it_is)


def _as_it_is(outputs: Float[Array, " k"]) -> Float[Array, " k"]:
    return outputs


def network_of(policy: Policy, with_deviations: bool = False) -> tuple[Float[Array, " P"], Sizes]:
    """All weights [inputs, outputs] and biases, with outputs filled up to a multiple of `FILL`, and all sizes.

    The logarithms of deviations that are parameters can be outputs of their own: biases without
    weights.
    """
    layers = dense_layers(policy)
    if layers is None:
        raise ValueError(
            f"the compiled kernel takes networks of tanh layers, got {type(policy).__name__}."
        )
    arrays = [(layer.weight, jnp.asarray(layer.bias)) for layer in layers]
    if with_deviations and isinstance(policy, Normal) and policy.log_deviation is not None:
        weight, bias = arrays[-1]
        arrays[-1] = (
            jnp.pad(weight, ((0, len(bias)), (0, 0))),
            jnp.concatenate([bias, policy.log_deviation]),
        )
    parts: list[Array] = []
    for weight, bias in arrays:
        more = -len(bias) % FILL
        parts += [
            jnp.pad(transposed(weight), ((0, 0), (0, more))).ravel(),
            jnp.pad(bias, (0, more)),
        ]
    return jnp.concatenate(parts), (arrays[0][0].shape[1], *(len(bias) for _, bias in arrays))


@jax.custom_vjp
def transposed(weight: Float[Array, "a b"]) -> Float[Array, "b a"]:
    """The weights with their axes exchanged: by the kernel, once.

    XLA would do it again in everything that is computed of a gradient, which takes several times as
    long.
    """
    output = jax.ShapeDtypeStruct(weight.shape[::-1], weight.dtype)
    return kernels.call("network_turn", weight.dtype, output, weight)


transposed.defvjp(
    lambda weight: (transposed(weight), None), lambda _, errors: (transposed(errors),)
)


def rows_of(observations: Array, axes: int, dtype: Any) -> Float[Array, "*axes D"]:
    """Return observations as flat rows."""
    return observations.reshape(*observations.shape[:axes], -1).astype(dtype)
