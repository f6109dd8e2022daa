"""Batches inside a program that are drawn in parts: block by block, or on several devices."""

from functools import reduce
from typing import Any, TypeVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from occupax.batches.batch import Batch, half_of
from occupax.batches.parted import PartedBatch, Parts
from occupax.batches.queries import Query
from occupax.policies import Policy
from occupax.samplers.base import Number, ProgramSource

AXIS = "trajectories"
"""The axis of the mesh of devices over which trajectories are spread."""

Answer = TypeVar("Answer")


@final
class Numbered(eqx.Module):
    """Trajectories number `first` to `first + size` of those that a key stands for; from number `stop` on, empty."""

    source: ProgramSource
    policy: Policy
    key: Key[Array, ""]
    first: Number
    stop: Number
    size: int = eqx.field(static=True)

    def draw(self) -> Batch:
        """Return the trajectories, in memory or, if they are more than a block, block by block."""
        if self.size > self.source.block_size:
            return PartedBatch(self.source.problem, Blocks(self))
        return self.block(0, self.size)

    def block(self, offset: Number, size: int) -> Batch:
        """Draw `size` trajectories from number `first + offset` on."""
        return self.source.block(self.policy, self.key, self.first + offset, self.stop, size)

    def spread(self, devices: int) -> "Devices":
        """Return the trajectories in parts, one on each device of the axis `AXIS`."""
        part_size = -(-self.size // devices)
        first = self.first + jax.lax.axis_index(AXIS) * part_size
        stop = jnp.minimum(self.stop, first + part_size)
        part = Numbered(self.source, self.policy, self.key, first, stop, part_size).draw()
        return Devices(self, devices, part)

    def halves(self) -> "tuple[Numbered, Numbered]":
        """Return the first and the second half of the numbers."""
        half = half_of(self.size)
        middle = self.first + half
        first = Numbered(
            self.source, self.policy, self.key, self.first, jnp.minimum(self.stop, middle), half
        )
        return first, Numbered(self.source, self.policy, self.key, middle, self.stop, half)


@final
class Blocks(Parts):
    """Blocks that are larger than memory together: they are drawn again, one after the other, for every query."""

    numbers: Numbered

    @property
    def size(self) -> int:
        """Number of trajectories."""
        return self.numbers.size

    @property
    def part_size(self) -> int:
        """Number of trajectories that the source holds in memory at once."""
        return self.numbers.source.block_size

    @property
    def count(self) -> int:
        """Number of blocks."""
        return -(-self.size // self.part_size)

    def answer(self, query: Query[Answer]) -> Answer:
        """Return the answers of the blocks, merged in order by a scan."""

        def answer_of(number: Int[Array, ""]) -> Answer:
            return self.numbers.block(number * self.part_size, self.part_size).answer(query)

        def step(merged: Answer, number: Int[Array, ""]) -> tuple[Answer, None]:
            answer = answer_of(number)
            both = query.merge(merged, answer)
            return jax.tree.map(
                lambda one, two: jnp.where(number == 0, one, two), answer, both
            ), None

        shapes = jax.eval_shape(answer_of, jnp.zeros((), int))
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return jax.lax.scan(step, nothing, jnp.arange(self.count))[0]

    def halves(self) -> tuple[Parts, Parts]:
        """Return the blocks of the first and of the second half."""
        first, second = self.numbers.halves()
        return Blocks(first), Blocks(second)


@final
class Devices(Parts):
    """Parts on the devices of the axis `AXIS`, each of which sees its own and computes the same merged answer."""

    numbers: Numbered
    devices: int = eqx.field(static=True)
    part: Batch
    """The part of this device."""

    @property
    def count(self) -> int:
        """Number of devices."""
        return self.devices

    @property
    def size(self) -> int:
        """Number of trajectories."""
        return self.numbers.size

    @property
    def part_size(self) -> int:
        """Number of trajectories that each device makes space for."""
        return self.part.size

    def answer(self, query: Query[Answer]) -> Answer:
        """Return the answers of all devices, merged in order."""
        of_devices = jax.tree.map(
            lambda leaf: jax.lax.all_gather(leaf, AXIS), self.part.answer(query)
        )
        answers: list[Any] = [
            jax.tree.map(lambda leaf, i=i: leaf[i], of_devices) for i in range(self.devices)
        ]
        return reduce(query.merge, answers)

    def halves(self) -> tuple[Parts, Parts]:
        """Return the first and the second half, spread over the devices anew."""
        first, second = self.numbers.halves()
        return first.spread(self.devices), second.spread(self.devices)
