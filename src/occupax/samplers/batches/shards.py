"""Batches in shards: each is drawn and asked on its own, anywhere, any number of times, with the same answer.

Answers are sums over trajectories, as long as an occupancy and a policy, and are added up in the order of the shards.
So neither who answered, nor when, nor how often changes a bit of the result.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple

import equinox as eqx
from jaxtyping import Array

from occupax._compiled import arrays_of, bind, with_arrays
from occupax.batch import Batch
from occupax.problem import Problem
from occupax.samplers.batches.block import ABOUT_VECTORS, Block, PartedBatch, Request, add, half_of


class Shard(NamedTuple):
    """Trajectories `first` to `stop` of a batch."""

    first: int
    stop: int


class ShardedBatch(PartedBatch):
    """A batch of which `ask` answers requests about shards, one answer for each."""

    problem: Problem
    shards: tuple[Shard, ...]
    n: int
    shard_size: int
    """How many trajectories each shard makes space for."""
    ask: Callable[[tuple[Shard, ...], Request], Sequence[Any]]
    half: int | None = None
    """Which half of its only shard this batch is, if it is one."""

    @property
    def size(self) -> int:
        """All of them, the empty ones included."""
        return self.n

    @property
    def part_size(self) -> int:
        """The size of a shard."""
        return self.shard_size

    def total(self, request: Request) -> Any:
        """The answers of the shards, added up in order."""
        return reduce(add, self.ask(self.shards, request._replace(half=self.half)))

    def halves(self) -> tuple[Batch, Batch]:
        """The first and the second half of the trajectories."""
        size, count = half_of(self.size), len(self.shards)
        if self.half is not None:
            raise ValueError("half of a batch that is sampled in shards cannot be halved again.")
        if count == 1:
            return replace(self, n=size, shard_size=size, half=0), replace(self, n=size, shard_size=size, half=1)
        first, second = self.shards[: count // 2], self.shards[count // 2 :]
        return replace(self, n=size, shards=first), replace(self, n=size, shards=second)


def split(n: int, shards: int) -> tuple[tuple[Shard, ...], int]:
    """Split `n` trajectories into at most about `shards` parts, and say for how many each makes space.

    No part reaches over the middle of an even number of trajectories, because a batch may be halved.
    """
    if shards == 1:
        return (Shard(0, n),), n
    if n % 2 == 0:
        parts, size = split(n // 2, max(1, shards // 2))
        return (*parts, *(Shard(n // 2 + first, n // 2 + stop) for first, stop in parts)), size
    size = -(-n // shards)
    return tuple(Shard(first, min(first + size, n)) for first in range(0, n, size)), size


def answering(block: Block) -> Callable[[Request], Any]:
    """The answers of a block as a compiled function: equal blocks give equal bits on every machine of a kind.

    The targets of requests have the form of the policy that acted.
    """
    answer = bind(_answer, block)

    def ask(request: Request) -> Any:
        target = None if request.target is None else arrays_of(request.target)
        baseline = None if isinstance(request.baseline, str) else request.baseline
        fixed = request.kind, request.baseline if baseline is None else "none", request.half
        return answer(target, request.quasi_reward, baseline, fixed=fixed)

    return ask


def _answer(block: Any, target: list[Array] | None, quasi_reward: Any, baseline: Any, fixed: Any) -> Any:
    kind, named_baseline, half = fixed
    form = eqx.filter(block.policy, eqx.is_inexact_array) if kind in ABOUT_VECTORS else block.policy
    about = None if target is None else with_arrays(form, target)
    return block.answer(Request(kind, about, quasi_reward, baseline or named_baseline, half))
