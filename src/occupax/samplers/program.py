"""Sources inside the compiled program, with batches in blocks or on several devices."""

from abc import abstractmethod
from functools import reduce
from typing import ClassVar, TypeVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from occupax.batches.batch import Batch, half_of
from occupax.batches.parted import PartedBatch, Parts
from occupax.batches.queries import Query
from occupax.policies import Policy
from occupax.samplers.base import Source

AXIS = "trajectories"
"""The axis of the mesh of devices that trajectories are distributed over."""

Answer = TypeVar("Answer")
Number = int | Int[Array, ""]


class ProgramSource(Source):
    """A source inside the compiled program of training, whose functions JAX can trace.

    Trajectory i of a key depends on (key, i) and the policy alone.
    """

    block_steps: ClassVar[int] = 50_000
    """Maximum number of steps in memory, if all trajectories are as long as the horizon."""

    @property
    def block_size(self) -> int:
        """Maximum number of trajectories in memory."""
        return max(1, self.block_steps // self.problem.sampling_horizon())

    @abstractmethod
    def block(
        self, policy: Policy, key: Key[Array, ""], first: Number, stop: Number, n: int
    ) -> Batch:
        """Draw trajectories number `first` to `first + n`.

        Args:
            policy: the behaviour policy.
            key: the random key of the batch.
            first: the number of the first trajectory.
            stop: trajectories from this number on are empty.
            n: the number of trajectories, including empty ones.
        """

    @final
    def draw(
        self, policy: Policy, n: int, key: Key[Array, ""], wanted: bool | Bool[Array, ""] = True
    ) -> Batch:
        """Draw a batch. One that is larger than `block_size` is drawn in blocks.

        Args:
            policy: the behaviour policy.
            n: the number of trajectories.
            key: the random key.
            wanted: whether any trajectory is drawn; otherwise all are empty.
        """
        return NumberedTrajectories(self, policy, key, 0, jnp.where(wanted, n, 0), n).draw()


@final
class NumberedTrajectories(eqx.Module):
    """Trajectories number `first` to `first + size` of a key. Empty from number `stop` on."""

    source: ProgramSource
    policy: Policy
    key: Key[Array, ""]
    first: Number
    stop: Number
    size: int = eqx.field(static=True)

    def draw(self) -> Batch:
        """Return the trajectories in memory or, if they exceed a block, in blocks."""
        if self.size > self.source.block_size:
            return PartedBatch(self.source.problem, Blocks(self))
        return self.block(0, self.size)

    def block(self, offset: Number, size: int) -> Batch:
        """Draw `size` trajectories from number `first + offset` on."""
        return self.source.block(self.policy, self.key, self.first + offset, self.stop, size)

    def on_devices(self, devices: int) -> "Devices":
        """Return the trajectories in parts, one on each device of the axis `AXIS`."""
        part_size = -(-self.size // devices)
        first = self.first + jax.lax.axis_index(AXIS) * part_size
        part = self._range(first, jnp.minimum(self.stop, first + part_size), part_size)
        return Devices(self, devices, part.draw())

    def halves(self) -> "tuple[NumberedTrajectories, NumberedTrajectories]":
        """Return the first and the second half of the numbers."""
        half = half_of(self.size)
        middle = self.first + half
        first = self._range(self.first, jnp.minimum(self.stop, middle), half)
        return first, self._range(middle, self.stop, half)

    def _range(self, first: Number, stop: Number, size: int) -> "NumberedTrajectories":
        return NumberedTrajectories(self.source, self.policy, self.key, first, stop, size)


@final
class Blocks(Parts):
    """Blocks that exceed the memory together. Every query draws all blocks again, one at a time."""

    trajectories: NumberedTrajectories

    @property
    def size(self) -> int:
        """Number of trajectories."""
        return self.trajectories.size

    @property
    def part_size(self) -> int:
        """Number of trajectories of a block."""
        return self.trajectories.source.block_size

    @property
    def count(self) -> int:
        """Number of blocks."""
        return -(-self.size // self.part_size)

    def answer(self, query: Query[Answer]) -> Answer:
        """Return the answers of the blocks, merged in order by a scan."""

        def answer_of(number: Int[Array, ""]) -> Answer:
            block = self.trajectories.block(number * self.part_size, self.part_size)
            return block.answer(query)

        if query.is_concatenation:
            blocks = jax.lax.map(answer_of, jnp.arange(self.count))
            return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), blocks)

        def step(merged: Answer, number: Int[Array, ""]) -> tuple[Answer, None]:
            answer = answer_of(number)

            def choose(first: Array, both: Array) -> Array:
                return jnp.where(number == 0, first, both)

            return jax.tree.map(choose, answer, query.merge(merged, answer)), None

        shapes = jax.eval_shape(answer_of, jnp.zeros((), int))
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        merged, _ = jax.lax.scan(step, zeros, jnp.arange(self.count))
        return merged

    def halves(self) -> tuple[Parts, Parts]:
        """Return the blocks of the first and of the second half."""
        first, second = self.trajectories.halves()
        return Blocks(first), Blocks(second)


@final
class Devices(Parts):
    """Parts on the devices of the axis `AXIS`, all of which compute the same merged answer."""

    trajectories: NumberedTrajectories
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
        return self.trajectories.size

    @property
    def part_size(self) -> int:
        """Number of trajectories that each device has a buffer for."""
        return self.part.size

    def answer(self, query: Query[Answer]) -> Answer:
        """Return the answers of all devices, merged in order."""
        answer = self.part.answer(query)
        gathered = jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, AXIS), answer)

        def answer_of(device: int) -> Answer:
            return jax.tree.map(lambda leaf: leaf[device], gathered)

        return reduce(query.merge, map(answer_of, range(self.devices)))

    def halves(self) -> tuple[Parts, Parts]:
        """Return both halves, each distributed over all devices."""
        first, second = self.trajectories.halves()
        return first.on_devices(self.devices), second.on_devices(self.devices)
