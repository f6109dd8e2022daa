"""Policies over a network of tanh layers, with the network in the compiled kernel, and all else in plain JAX.

Of a softmax the kernel draws actions, and gives log-probabilities with their first and second derivatives. Of all
others it gives the outputs of the network and the gradients through them: what the policy makes of the outputs is left
to JAX, but for the gradient of a normal law that acted. In all cases the network computes nothing for steps that are
not live.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, Num, Shaped

from occupax import estimators, kernels
from occupax.batch import Batch, Target, Trajectories
from occupax.estimators import LogProbs, LogProbsAlong
from occupax.policies import Policy, Softmax, dense_layers
from occupax.policies.gaussian import Normal
from occupax.problem import Problem
from occupax.samplers.base import Number, ProgramSource
from occupax.samplers.batches.block import half_of
from occupax.samplers.batches.sampled import SampledBatch
from occupax.samplers.plain import Actions, Draws, Keeping, rollout

LIVE_ONLY = Keeping(kernels.room, kernels.keep)
"""Of observations only those of live steps are written; the rest of their memory is not even touched."""
FILL = 8
"""What the kernel wants the outputs of a layer to be a multiple of."""

Sizes = tuple[int, ...]


class NetworkKernelSource(ProgramSource):
    """Draws trajectories of any environment in JAX under policies that are networks."""

    problem: Problem
    block_steps = 200_000

    def block(self, policy: Policy, key: Key[Array, ""], first: Number, stop: Number, n: int) -> "NetworkBatch":
        """Trajectories number `first` to `first + n`; those from number `stop` on are empty."""
        numbers = jnp.asarray(first + jnp.arange(n), jnp.int32)
        acting = eqx.Partial(_act, *_network(policy))
        if not isinstance(policy, Softmax):
            acting = eqx.Partial(_act_on_outputs, _head(policy), *_network(policy))
        drawn = rollout(self.problem, policy.action_space, acting, numbers, numbers < stop, key, LIVE_ONLY)
        return NetworkBatch(self.problem, _with_ends(drawn), policy, drawn.observations)


def _act(parameters: Float[Array, " P"], sizes: Sizes, observations: Any, at: Draws) -> Actions:
    """Draw by inversion, with one number for (key, trajectory, t)."""
    outputs = [jax.ShapeDtypeStruct(at.live.shape, dtype) for dtype in (jnp.int32, parameters.dtype)]
    drawn_with = at.live, jax.random.key_data(at.key)[:2], at.numbers, at.t
    operands = parameters, _rows(observations, 1, parameters.dtype), *drawn_with
    actions, log_probs = kernels.call("network_act", parameters.dtype, outputs, *operands, sizes=np.array(sizes))
    return actions, actions, log_probs


def _act_on_outputs(
    head: Policy, parameters: Float[Array, " P"], sizes: Sizes, observations: Any, at: Draws
) -> Actions:
    """Draw as the policy does, from what the network makes of the observations."""
    rows = _rows(observations, 1, parameters.dtype)[:, None]
    outputs: Any = _outputs(sizes, parameters, rows, at.live.astype(jnp.int32))
    drawn, log_probs = jax.vmap(head.draw)(outputs[:, 0], at.keys)
    return drawn, jax.vmap(head.applied)(drawn), log_probs


def _with_ends(trajectories: Trajectories) -> Trajectories:
    """The trajectories with what is seen at the end in place of what was seen at steps that are not live."""

    def after(rows: Shaped[Array, "B H *shape"], end: Shaped[Array, "B *shape"]) -> Array:
        live = jnp.expand_dims(trajectories.live, range(2, rows.ndim))
        return jnp.where(live, rows, end[:, None])

    filled = jax.tree.map(after, trajectories.observations, trajectories.final_observations)
    return replace(trajectories, observations=filled)


class NetworkBatch(SampledBatch):
    """Trajectories whose estimates take log-probabilities, and their gradients, from the kernel."""

    seen: Any = None
    """Observations of live steps, and anything at all others: what the kernel reads; if None, those of trajectories.

    Where nothing but the kernel asks for observations, those of the trajectories are never computed: with images and
    episodes much shorter than the horizon, that would be most of the work.
    """

    def log_probs_of(self, target: Target) -> LogProbs:
        """The kernel; the log-probabilities of the policy that acted are recorded already."""
        ask = recorded_log_probs if target is None or target is self.policy else kernel_log_probs
        return ask if self.seen is None else eqx.Partial(_of_seen, ask, self.seen)

    @property
    def log_probs_along(self) -> LogProbsAlong:
        """The kernel, for a softmax; plain JAX for all others."""
        if not isinstance(self.policy, Softmax):
            return estimators.log_probs_along
        return kernel_log_probs_along if self.seen is None else eqx.Partial(_of_seen, kernel_log_probs_along, self.seen)

    def halves(self) -> tuple[Batch, Batch]:
        """The first and the second half of the trajectories."""
        half = half_of(self.size)
        parts = (jax.tree.map(lambda leaf, at=at: leaf[at], self.seen) for at in (slice(half), slice(half, None)))
        first, second = (replace(it, seen=seen) for it, seen in zip(super().halves(), parts, strict=True))
        return first, second


def _of_seen(ask: Any, seen: Any, *given: Any) -> Any:
    """What the kernel says about trajectories, the last argument, whose observations are kept in `seen`."""
    *policies, trajectories = given
    return ask(*policies, replace(trajectories, observations=seen))


def recorded_log_probs(policy: Policy, trajectories: Trajectories) -> Float[Array, "B H"]:
    """Those that were recorded when the policy acted; their derivative is computed by the kernel."""
    return kernel_log_probs(policy, trajectories, trajectories.log_probs)


def kernel_log_probs(
    policy: Policy, trajectories: Trajectories, recorded: Float[Array, "B H"] | None = None
) -> Float[Array, "B H"]:
    """The log-probabilities of live steps; zero after the end."""
    acted, lengths = recorded is not None and isinstance(policy, Normal), trajectories.lengths.astype(jnp.int32)
    parameters, sizes = _network(policy, with_deviations=acted)
    observations = _rows(trajectories.observations, 2, parameters.dtype)
    if isinstance(policy, Softmax):
        actions = trajectories.actions.astype(jnp.int32)
        return _log_probs("gradient", sizes, parameters, observations, actions, lengths, recorded)
    if isinstance(policy, Normal) and acted:
        z = jax.vmap(jax.vmap(policy.z))(trajectories.actions)
        return _log_probs("normal", sizes, parameters, observations, z, lengths, recorded)
    outputs = _outputs(sizes, parameters, observations, lengths)
    found = jax.vmap(jax.vmap(_head(policy).log_prob))(outputs, trajectories.actions)
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
    return kernels.call("network_log_probs", parameters.dtype, output, *operands, sizes=np.array(sizes))


def _log_probs_forward(kind: str, sizes: Sizes, *operands: Any) -> Any:
    return _log_probs(kind, sizes, *operands), operands[:-1]


def _log_probs_backward(kind: str, sizes: Sizes, operands: Any, coefficients: Float[Array, "B H"]) -> Any:
    parameters = operands[0]
    output = jax.ShapeDtypeStruct(parameters.shape, parameters.dtype)
    operands = *operands, coefficients
    found = kernels.call(f"network_{kind}", parameters.dtype, output, *operands, sizes=np.array(sizes))
    return found, None, None, None, None


_log_probs.defvjp(_log_probs_forward, _log_probs_backward)


def kernel_log_probs_along(
    policy: Policy, vector: Policy, trajectories: Trajectories
) -> tuple[Float[Array, "B H"], Float[Array, "B H"]]:
    """The log-probabilities that were recorded when a softmax acted, and their derivatives along a vector."""
    parameters, sizes = _network(policy)
    direction, _ = _network(eqx.combine(vector, policy))
    observations = _rows(trajectories.observations, 2, parameters.dtype)
    actions, lengths = trajectories.actions.astype(jnp.int32), trajectories.lengths.astype(jnp.int32)
    return _log_probs_along(sizes, parameters, observations, actions, lengths, direction, trajectories.log_probs)


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
    return recorded, kernels.call("network_slopes", parameters.dtype, output, *operands, sizes=np.array(sizes))


def _log_probs_along_backward(sizes: Sizes, operands: Any, coefficients: tuple[Array, Array]) -> Any:
    parameters = operands[0]
    output = jax.ShapeDtypeStruct(parameters.shape, parameters.dtype)
    operands = *operands, *coefficients
    gradient = kernels.call("network_slope_gradient", parameters.dtype, output, *operands, sizes=np.array(sizes))
    return gradient, None, None, None, None, None  # nothing asks for derivatives by the direction


_log_probs_along.defvjp(
    lambda sizes, *operands: (_log_probs_along(sizes, *operands), operands[:-1]), _log_probs_along_backward
)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _outputs(
    sizes: Sizes, parameters: Float[Array, " P"], observations: Float[Array, "B H D"], lengths: Int[Array, " B"]
) -> Float[Array, "B H k"]:
    """What the network makes of the observations of live steps, and zeros for the others."""
    output = jax.ShapeDtypeStruct((*observations.shape[:-1], sizes[-1]), parameters.dtype)
    operands = parameters, observations, lengths
    return kernels.call("network_outputs", parameters.dtype, output, *operands, sizes=np.array(sizes))


def _outputs_backward(sizes: Sizes, operands: Any, errors: Float[Array, "B H k"]) -> Any:
    parameters = operands[0]
    output = jax.ShapeDtypeStruct(parameters.shape, parameters.dtype)
    operands = *operands, errors
    return kernels.call("network_through", parameters.dtype, output, *operands, sizes=np.array(sizes)), None, None


_outputs.defvjp(lambda sizes, *operands: (_outputs(sizes, *operands), operands), _outputs_backward)


def _head(policy: Policy) -> Policy:
    """The policy as a function of the outputs of its network instead of the observation."""
    return eqx.tree_at(lambda it: it.psi, policy, _as_it_is)


def _as_it_is(outputs: Float[Array, " k"]) -> Float[Array, " k"]:
    return outputs


def _network(policy: Policy, with_deviations: bool = False) -> tuple[Float[Array, " P"], Sizes]:
    """All weights [inputs, outputs] and biases, with outputs filled up to a multiple of `FILL`, and all sizes.

    The logarithms of deviations that are parameters can be outputs of their own: biases without weights.
    """
    layers = dense_layers(policy)
    if layers is None:
        raise ValueError(f"the compiled kernel takes networks of tanh layers, got {type(policy).__name__}.")
    arrays = [(layer.weight, jnp.asarray(layer.bias)) for layer in layers]
    if with_deviations and isinstance(policy, Normal) and policy.log_deviation is not None:
        weight, bias = arrays[-1]
        arrays[-1] = jnp.pad(weight, ((0, len(bias)), (0, 0))), jnp.concatenate([bias, policy.log_deviation])
    parts: list[Array] = []
    for weight, bias in arrays:
        more = -len(bias) % FILL
        parts += [jnp.pad(_turned(weight), ((0, 0), (0, more))).ravel(), jnp.pad(bias, (0, more))]
    return jnp.concatenate(parts), (arrays[0][0].shape[1], *(len(bias) for _, bias in arrays))


@jax.custom_vjp
def _turned(weight: Float[Array, "a b"]) -> Float[Array, "b a"]:
    """The weights with their axes exchanged: by the kernel, once.

    XLA would do it again in everything that is computed of a gradient, which takes several times as long.
    """
    output = jax.ShapeDtypeStruct(weight.shape[::-1], weight.dtype)
    return kernels.call("network_turn", weight.dtype, output, weight)


_turned.defvjp(lambda weight: (_turned(weight), None), lambda _, errors: (_turned(errors),))


def _rows(observations: Array, axes: int, dtype: Any) -> Float[Array, "*axes D"]:
    return observations.reshape(*observations.shape[:axes], -1).astype(dtype)
