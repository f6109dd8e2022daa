"""Batches in shards: each is drawn and asked on its own, anywhere, any number of times, with the same answer.

What comes back are sums over trajectories, as long as an occupancy and a policy, and they are added up in the order of
the shards. So neither who answered, nor when, nor how often changes a bit of the result.
"""

from abc import ABC, abstractmethod
from functools import reduce
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, UInt32

from occupax.policies import Policy
from occupax.samplers.base import Block, Sampler, Tally
from occupax.samplers.host import HostSampler
from occupax.samplers.questions import Question
from occupax.samplers.streamed import draw_part

Flat = list[np.ndarray]
"""The arrays of a tree, whose structure both sides know: sent along, it would be another one when it arrives."""


class Inquiry(NamedTuple):
    """Questions about the batch of one iteration of one run."""

    run: int
    iteration: int
    n: int
    halved: bool
    """Whether any question is about half of the batch."""
    least: int
    """Of how many trajectories a shard consists at least."""
    key: UInt32[np.ndarray, "2"]
    policies: tuple[Flat, ...]
    """The one that acted, and the others asked about."""
    questions: tuple[Question, ...]
    quasi_rewards: tuple[Float[np.ndarray, " d"] | None, ...]


class Shard(NamedTuple):
    """Trajectories `first` to `stop` of a batch; room is made for `size` of them, which is the same for all shards."""

    first: int
    stop: int
    size: int
    half: int | None
    """In which half of the batch they lie, if it was halved."""


Answers = list[Flat]
"""To each question the mean over a shard, or a tally of it; nothing where a question is about the other half."""


def split(n: int, shards: int, halved: bool = False, least: int = 1) -> list[Shard]:
    """At most `shards` parts of equal size, none of which reaches over the middle of a batch that is `halved`."""
    if halved:
        half = n // 2
        parts = split(half, max(1, shards // 2), least=least)
        return [Shard(first + half * i, stop + half * i, size, i) for i in (0, 1) for first, stop, size, _ in parts]
    size = min(n, max(least, -(-n // shards)))
    return [Shard(first, min(first + size, n), size, None) for first in range(0, n, size)]


class Worker:
    """Draws shards, and answers questions about them; keeps those of the present iteration for further questions."""

    def __init__(self, sampler: Sampler, policy: Policy):
        """Policies will be like this one."""
        self._sampler, self._policy = sampler, policy
        self._iteration = -1
        self._blocks: dict[tuple[int, Shard], Block] = {}

    def answer(self, inquiry: Inquiry, shard: Shard) -> Answers:
        """Draw the shard, unless it is there, and answer."""
        policies = tuple(unflatten(self._policy, arrays) for arrays in inquiry.policies)
        if self._iteration != inquiry.iteration:
            self._iteration, self._blocks = inquiry.iteration, {}
        place = inquiry.run, shard
        if place not in self._blocks:
            key = jax.random.wrap_key_data(jnp.asarray(inquiry.key))
            draw = _draw if isinstance(self._sampler, HostSampler) else _compiled_draw
            first, stop = jnp.asarray(shard.first), jnp.asarray(shard.stop)
            self._blocks[place] = draw(self._sampler, policies[0], key, first, stop, shard.size)
        about = [question.half in (None, shard.half) for question in inquiry.questions]
        answered = _ask(
            self._blocks[place],
            policies,
            tuple(question for question, asked in zip(inquiry.questions, about, strict=True) if asked),
            [reward for reward, asked in zip(inquiry.quasi_rewards, about, strict=True) if asked],
        )
        found = iter(answered)
        return [flatten(next(found)) if asked else [] for asked in about]


class Pool(ABC):
    """Those who answer."""

    def __init__(self, shards: int):
        self._shards = shards

    def ask(self, inquiries: list[Inquiry]) -> list[Answers]:
        """The answers to several inquiries, each over the whole of its batch or of half of it."""
        split_up = [split(it.n, self._shards, it.halved, it.least) for it in inquiries]
        tasks = [(it, shard) for it, shards in zip(inquiries, split_up, strict=True) for shard in shards]
        found = iter(self.answers(tasks))
        return [
            _total(it, shards, [next(found) for _ in shards]) for it, shards in zip(inquiries, split_up, strict=True)
        ]

    @abstractmethod
    def answers(self, tasks: list[tuple[Inquiry, Shard]]) -> list[Answers]:
        """What a worker answers to each task, in their order."""

    @abstractmethod
    def close(self) -> None:
        """Let everyone go."""


def _draw(
    sampler: Sampler, policy: Policy, key: Key[Array, ""], first: Int[Array, ""], stop: Int[Array, ""], n: int
) -> Block:
    return draw_part(sampler, policy, n, key, first, stop)


_compiled_draw = eqx.filter_jit(_draw)


@eqx.filter_jit
def _ask(block: Block, policies: tuple[Policy, ...], questions: tuple[Question, ...], rewards: list[Any]) -> list[Any]:
    def answer(question: Question, reward: Any) -> Any:
        target = None if question.target == 0 else policies[question.target]
        match question.kind:
            case "occupancy":
                return block.occupancy(target)
            case "gradient":
                return block.gradient(target, reward, question.baseline)
            case "tally":
                return block.tally(target)

    return [answer(question, reward) for question, reward in zip(questions, rewards, strict=True)]


def _total(inquiry: Inquiry, shards: list[Shard], answers: list[Answers]) -> Answers:
    """Add up what the shards answered, in their order."""

    def total(number: int, question: Question) -> Flat:
        parts = [answer[number] for answer in answers if answer[number]]
        if question.kind == "tally":
            return flatten(reduce(Tally.__add__, [Tally(*map(jnp.asarray, part)) for part in parts]))
        n = inquiry.n if question.half is None else inquiry.n // 2
        share = np.asarray(shards[0].size / n, jnp.result_type(float))
        return [reduce(np.add, arrays) * share for arrays in zip(*parts, strict=True)]

    return [total(number, question) for number, question in enumerate(inquiry.questions)]


def flatten(tree: Any) -> Flat:
    """The arrays of a tree."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def unflatten(like: Any, arrays: Flat) -> Any:
    """A tree like another, with these arrays."""
    old, rest = eqx.partition(like, eqx.is_array)
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(old), map(jnp.asarray, arrays)), rest)


def equal(one: Flat, other: Flat) -> bool:
    """Whether arrays are equal, NaN included."""
    pairs = zip(one, other, strict=True)
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)
