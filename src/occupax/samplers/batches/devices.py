"""A batch whose trajectories are spread over several devices."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from occupax.batch import Batch
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.samplers.base import ProgramSource
from occupax.samplers.batches.block import Block, PartedBatch, Request, Tally, half_of
from occupax.samplers.batches.streamed import draw_part

AXIS = "trajectories"
"""The axis of the mesh of devices over which trajectories are spread."""


class DeviceBatch(PartedBatch):
    """Trajectories number `first` to `first + n` of those that `key` stands for; each device draws its part of them.

    Those from number `stop` on are empty. Answers are added up over the devices.
    """

    problem: Problem
    source: ProgramSource
    policy: Policy
    key: Key[Array, ""]
    first: int = eqx.field(static=True)
    n: int = eqx.field(static=True)
    stop: Int[Array, ""]
    devices: int = eqx.field(static=True)
    part: Block

    @property
    def size(self) -> int:
        """All of them, the empty ones included."""
        return self.n

    @property
    def part_size(self) -> int:
        """How many trajectories each device makes space for."""
        return _part_size(self.size, self.devices)

    def total(self, request: Request) -> Any:
        """The sum over all devices."""
        answer = self.part.answer(request)
        total = jax.tree.map(lambda leaf: jax.lax.psum(leaf, AXIS), answer)
        if isinstance(total, Tally):
            return replace(total, largest_weight=jax.lax.pmax(answer.largest_weight, AXIS))
        return total

    def halves(self) -> tuple[Batch, Batch]:
        """The first and the second half of the numbers, spread over the devices anew."""
        half = half_of(self.size)
        middle = self.first + half
        return self._again(self.first, half, jnp.minimum(self.stop, middle)), self._again(middle, half, self.stop)

    def _again(self, first: int, n: int, stop: Int[Array, ""]) -> "DeviceBatch":
        return _spread(self.source, self.policy, self.key, first, n, stop, self.devices)


def draw_on_devices(
    source: ProgramSource, policy: Policy, n: int, key: Key[Array, ""], wanted: Bool[Array, ""], devices: int
) -> DeviceBatch:
    """A batch of `n` trajectories, spread over the devices of the axis `AXIS`; all are empty if it is not wanted."""
    return _spread(source, policy, key, 0, n, jnp.where(wanted, n, 0), devices)


def _part_size(n: int, devices: int) -> int:
    return -(-n // devices)


def _spread(
    source: ProgramSource, policy: Policy, key: Key[Array, ""], first: int, n: int, stop: Int[Array, ""], devices: int
) -> DeviceBatch:
    size = _part_size(n, devices)
    begin = first + jax.lax.axis_index(AXIS) * size
    part = draw_part(source, policy, size, key, begin, jnp.minimum(stop, begin + size))
    return DeviceBatch(source.problem, source, policy, key, first, n, stop, devices, part)
