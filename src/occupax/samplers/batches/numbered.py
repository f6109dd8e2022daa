"""Batches inside a program that are drawn in parts: block by block, or on several devices."""

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from occupax.batch import Batch
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.samplers.base import Number, ProgramSource
from occupax.samplers.batches.block import Block, PartedBatch, Request, Tally, add, half_of

AXIS = "trajectories"
"""The axis of the mesh of devices over which trajectories are spread."""


class NumberedBatch(PartedBatch):
    """Trajectories number `first` to `first + n` of those that `key` stands for; from number `stop` on, empty ones."""

    problem: Problem
    source: ProgramSource
    policy: Policy
    key: Key[Array, ""]
    first: Number
    n: int = eqx.field(static=True)
    stop: Number

    @property
    def size(self) -> int:
        """All of them, the empty ones included."""
        return self.n

    def halves(self) -> tuple[Batch, Batch]:
        """The first and the second half of the numbers."""
        half = half_of(self.n)
        middle = self.first + half
        return self.again(self.first, half, jnp.minimum(self.stop, middle)), self.again(middle, half, self.stop)

    @abstractmethod
    def again(self, first: Number, n: int, stop: Number) -> Batch:
        """Other trajectories of the same key."""


class StreamedBatch(NumberedBatch):
    """A batch that is larger than memory: its trajectories are drawn again, block by block, at every request."""

    @property
    def part_size(self) -> int:
        """As many trajectories as the source holds in memory at once."""
        return self.source.block_size

    def again(self, first: Number, n: int, stop: Number) -> "StreamedBatch":
        """Other trajectories of the same key."""
        return replace(self, first=first, n=n, stop=stop)

    def total(self, request: Request) -> Any:
        """The answers of the blocks, added up in order."""

        def ask(number: Int[Array, ""]) -> Any:
            first = self.first + number * self.part_size
            return self.source.block(self.policy, self.key, first, self.stop, self.part_size).answer(request)

        def step(total: Any, number: Int[Array, ""]) -> tuple[Any, None]:
            return add(total, ask(number)), None

        shapes = jax.eval_shape(lambda: ask(jnp.zeros((), int)))
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return jax.lax.scan(step, nothing, jnp.arange(-(-self.n // self.part_size)))[0]


class DeviceBatch(NumberedBatch):
    """A batch of which each device of the axis `AXIS` has a part; answers are added up over the devices."""

    devices: int = eqx.field(static=True)
    part: Block

    @property
    def part_size(self) -> int:
        """How many trajectories each device makes space for."""
        return self.part.size

    def again(self, first: Number, n: int, stop: Number) -> "DeviceBatch":
        """Other trajectories of the same key, spread over the devices anew."""
        return draw_on_devices(self.source, self.policy, n, self.key, stop, self.devices, first)

    def total(self, request: Request) -> Any:
        """The sum over all devices."""
        answer = self.part.answer(request)
        total = jax.tree.map(lambda leaf: jax.lax.psum(leaf, AXIS), answer)
        if isinstance(total, Tally):
            return replace(total, largest_weight=jax.lax.pmax(answer.largest_weight, AXIS))
        return total


def draw_part(source: ProgramSource, policy: Policy, n: int, key: Key[Array, ""], first: Number, stop: Number) -> Block:
    """Trajectories number `first` to `first + n`, of which those from number `stop` on are empty; streamed if many."""
    if n > source.block_size:
        return StreamedBatch(source.problem, source, policy, key, first, n, stop)
    return source.block(policy, key, first, stop, n)


def draw_on_devices(
    source: ProgramSource, policy: Policy, n: int, key: Key[Array, ""], stop: Number, devices: int, first: Number = 0
) -> DeviceBatch:
    """Trajectories number `first` to `first + n`, spread over the devices of the axis `AXIS`; from `stop` on, empty."""
    size = -(-n // devices)
    begin = first + jax.lax.axis_index(AXIS) * size
    part = draw_part(source, policy, size, key, begin, jnp.minimum(stop, begin + size))
    return DeviceBatch(source.problem, source, policy, key, first, n, stop, devices, part)
