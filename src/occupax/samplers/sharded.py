"""A batch whose trajectories are spread over several devices."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from occupax.batch import Baseline, Batch, Statistics
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.samplers.base import Block, Sampler, half_of
from occupax.samplers.streamed import draw_part

AXIS = "trajectories"
"""The axis of the mesh of devices over which they are spread."""


class ShardedBatch(Batch):
    """Trajectories number `first` to `first + n` of those that `key` stands for; each device draws its part of them.

    Those from number `stop` on are empty. What is asked is added up over the devices. A baseline is the mean over the
    other trajectories of a device.
    """

    sampler: Sampler
    policy: Policy
    key: Key[Array, ""]
    first: int = eqx.field(static=True)
    n: int = eqx.field(static=True)
    stop: Int[Array, ""]
    devices: int = eqx.field(static=True)
    part: Block

    @property
    def problem(self) -> Problem:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What the trajectories were drawn from."""
        return self.sampler.problem

    def occupancy(self, target: Policy | None = None) -> Float[Array, " d"]:
        """The mean over all devices."""
        return self._mean(self.part.occupancy(target))

    def gradient(self, target: Policy | None, quasi_reward: Float[Array, " d"], baseline: Baseline = "none") -> Policy:
        """The mean over all devices."""
        return jax.tree.map(self._mean, self.part.gradient(target, quasi_reward, baseline))

    def statistics(self, target: Policy | None = None) -> Statistics:
        """Averages over the trajectories."""
        tally = self.part.tally(target)
        total = jax.tree.map(lambda leaf: jax.lax.psum(leaf, AXIS), tally)
        return replace(total, largest_weight=jax.lax.pmax(tally.largest_weight, AXIS)).statistics(self.n)

    def halves(self) -> tuple[Batch, Batch]:
        """The first and the second half of the numbers, spread over the devices anew."""
        half = half_of(self.n)
        middle = self.first + half
        return self._again(self.first, half, jnp.minimum(self.stop, middle)), self._again(middle, half, self.stop)

    def _again(self, first: int, n: int, stop: Int[Array, ""]) -> "ShardedBatch":
        return _spread(self.sampler, self.policy, self.key, first, n, stop, self.devices)

    def _mean(self, of_part: Array) -> Array:
        """The mean over `n`, from means over the room that each device has."""
        return jax.lax.psum(of_part, AXIS) * (_room(self.n, self.devices) / self.n)


def draw_sharded(
    sampler: Sampler, policy: Policy, n: int, key: Key[Array, ""], wanted: Bool[Array, ""], devices: int
) -> ShardedBatch:
    """A batch like that of `draw`, on every one of the devices of the axis `AXIS`."""
    return _spread(sampler, policy, key, 0, n, jnp.where(wanted, n, 0), devices)


def _room(n: int, devices: int) -> int:
    return -(-n // devices)


def _spread(
    sampler: Sampler, policy: Policy, key: Key[Array, ""], first: int, n: int, stop: Int[Array, ""], devices: int
) -> ShardedBatch:
    room = _room(n, devices)
    begin = first + jax.lax.axis_index(AXIS) * room
    part = draw_part(sampler, policy, room, key, begin, jnp.minimum(stop, begin + room))
    return ShardedBatch(sampler, policy, key, first, n, stop, devices, part)
