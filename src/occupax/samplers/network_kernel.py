"""Trajectories of policies over a network of tanh layers, whose actions the compiled kernel draws.

Of a softmax the kernel draws the actions. Of all other policies it gives the outputs of the
network, from which JAX draws. In both cases the network computes nothing for steps that are not
live.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, Shaped

from occupax import kernels
from occupax.batches.network import NetworkScorer, Sizes, head_of, network_of, outputs_of, rows_of
from occupax.batches.sampled import SampledBatch
from occupax.policies import Policy, Softmax
from occupax.problem import Problem
from occupax.samplers.base import Number, ProgramSource
from occupax.samplers.plain import Actions, Draws, Keeping, rollout
from occupax.trajectories import Trajectories

LIVE_ONLY = Keeping(kernels.room, kernels.keep)
"""Of observations only those of live steps are written; the rest of their memory is not even
touched."""


class NetworkKernelSource(ProgramSource):
    """Draws trajectories of any environment in JAX under policies that are networks."""

    problem: Problem
    block_steps = 200_000

    def block(
        self, policy: Policy, key: Key[Array, ""], first: Number, stop: Number, n: int
    ) -> SampledBatch:
        """Trajectories number `first` to `first + n`; those from number `stop` on are empty."""
        numbers = jnp.asarray(first + jnp.arange(n), jnp.int32)
        acting = eqx.Partial(_act, *network_of(policy))
        if not isinstance(policy, Softmax):
            acting = eqx.Partial(_act_on_outputs, head_of(policy), *network_of(policy))
        drawn = rollout(
            self.problem, policy.action_space, acting, numbers, numbers < stop, key, LIVE_ONLY
        )
        return SampledBatch(
            self.problem, _with_ends(drawn), policy, NetworkScorer(drawn.observations)
        )


def _act(parameters: Float[Array, " P"], sizes: Sizes, observations: Any, at: Draws) -> Actions:
    """Draw by inversion, with one number for (key, trajectory, t)."""
    outputs = [
        jax.ShapeDtypeStruct(at.live.shape, dtype) for dtype in (jnp.int32, parameters.dtype)
    ]
    drawn_with = at.live, jax.random.key_data(at.key)[:2], at.numbers, at.t
    operands = parameters, rows_of(observations, 1, parameters.dtype), *drawn_with
    actions, log_probs = kernels.call(
        "network_act", parameters.dtype, outputs, *operands, sizes=np.array(sizes)
    )
    return actions, actions, log_probs


def _act_on_outputs(
    head: Policy, parameters: Float[Array, " P"], sizes: Sizes, observations: Any, at: Draws
) -> Actions:
    """Draw as the policy does, from what the network makes of the observations."""
    rows = rows_of(observations, 1, parameters.dtype)[:, None]
    outputs: Any = outputs_of(sizes, parameters, rows, at.live.astype(jnp.int32))
    return jax.vmap(head.draw_with_action)(outputs[:, 0], at.keys)


def _with_ends(trajectories: Trajectories) -> Trajectories:
    """The trajectories with what is seen at the end in place of what was seen at steps that are not live."""

    def after(rows: Shaped[Array, "B H *shape"], end: Shaped[Array, "B *shape"]) -> Array:
        live = jnp.expand_dims(trajectories.live, range(2, rows.ndim))
        return jnp.where(live, rows, end[:, None])

    filled = jax.tree.map(after, trajectories.observations, trajectories.final_observations)
    return replace(trajectories, observations=filled)
