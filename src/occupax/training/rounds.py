"""Runs whose trajectories are sampled outside of the compiled program, and perhaps far away.

An iteration goes in rounds of questions and answers (see `samplers.questions`), all runs side by side.
"""

from collections.abc import Generator
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from occupax.algorithms import Algorithm
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.samplers import EpisodeError, Host, Ray
from occupax.samplers.questions import AskedBatch, Notes, Question
from occupax.samplers.shards import Answers, Flat, Inquiry, Pool, equal, flatten, unflatten
from occupax.training import program
from occupax.training.lanes import named, refuse_other_arrays, status, with_arrays, with_named
from occupax.training.setup import Setup

Iteration = Generator[Inquiry, Answers, tuple[program.Lane, program.Row]]


class Rounds:
    """The runs of a set-up, and where they are."""

    def __init__(self, setup: Setup, sampler: Host | Ray):
        """Put every run before its first iteration; nobody is asked yet."""
        self._problem = setup.problem
        self._open = partial(sampler.open, setup.problem, setup.policies[0], setup.engine)
        self._pool: Pool | None = None
        self._algorithms = [with_arrays(algorithm) for algorithm, _, _ in setup.runs]
        self._keys = [setup.key(seed) for _, seed, _ in setup.runs]
        self._lanes = [
            program.first_lane(setup.problem, algorithm, policy)
            for algorithm, (_, _, policy) in zip(self._algorithms, setup.runs, strict=True)
        ]
        self._plans: dict[bool, Replayed] = {}
        """What is asked at the start of a cycle, and later in it: shapes instead of arrays."""
        self.count = len(self._lanes)
        self.iteration = 0

    def advance(self, count: int) -> dict[str, np.ndarray]:
        """Run `count` iterations of all of them; return what was recorded, [iteration, run]. All of it or nothing."""
        lanes, rows = self._lanes, []
        for iteration in range(self.iteration, self.iteration + count):
            done = self._iterate(lanes, iteration)
            lanes = [lane for lane, _ in done]
            rows.append([jax.tree.map(np.asarray, row) for _, row in done])
        self._lanes = lanes
        self.iteration += count
        numbers = np.array([[row.numbers for row in many] for many in rows])
        table = {name: numbers[..., i] for i, name in enumerate(program.recorded(self._algorithms[0]))}
        return table | {"steps": np.array([[row.steps for row in many] for many in rows])}

    def _iterate(self, lanes: list[program.Lane], iteration: int) -> list[tuple[program.Lane, program.Row]]:
        """One iteration of all runs: every round asks for all of them at once."""
        running = {i: self._rounds(i, lanes[i], iteration) for i in range(self.count) if not int(lanes[i].failure)}
        done = {i: (lanes[i], self._no_row()) for i in range(self.count) if i not in running}
        answers: dict[int, Answers | None] = dict.fromkeys(running)
        while running:
            inquiries: dict[int, Inquiry] = {}
            for i, rounds in list(running.items()):
                try:
                    inquiries[i] = rounds.send(answers[i])  # pyright: ignore[reportArgumentType]
                except StopIteration as end:
                    done[i] = end.value
                    del running[i]
            if inquiries:
                found = self._ask(list(inquiries.values()))
                answers = dict(zip(inquiries, found, strict=True))
        return [done[i] for i in range(self.count)]

    def _ask(self, inquiries: list[Inquiry]) -> list[Answers]:
        if self._pool is None:
            self._pool = self._open()
        try:
            return self._pool.ask(inquiries)
        except EpisodeError as error:
            raise EpisodeError(f"iteration {inquiries[0].iteration}: {error}") from error

    def _rounds(self, run: int, lane: program.Lane, iteration: int) -> Iteration:
        """Ask until the algorithm, run with the answers, asks nothing else; a question whose numbers change is new."""
        algorithm, key = self._algorithms[run], jax.random.fold_in(self._keys[run], iteration)
        start = iteration % len(algorithm.cycle) == 0
        given = self._problem, algorithm, start, lane, key, jnp.asarray(iteration, jnp.int32)
        if start not in self._plans:
            self._plans[start] = eqx.filter_eval_shape(_replay, *given, None)
        questions = self._plans[start].questions
        known = [jax.tree.map(_unknown, answer) for answer in self._plans[start].answers]
        asked: list[Flat | None] = [None] * len(questions)
        while True:
            replayed = _compiled_replay(*given, known)
            policies = [flatten(policy) for policy in replayed.policies]
            rewards = [None if reward is None else np.asarray(reward) for reward in replayed.quasi_rewards]
            numbers = [
                policies[question.target] + ([] if reward is None else [reward])
                for question, reward in zip(questions, rewards, strict=True)
            ]
            new = [i for i, now in enumerate(numbers) if (before := asked[i]) is None or not equal(now, before)]
            if not new:
                return replayed.lane, replayed.row
            new = [i for i in new if _finite(numbers[i])] or new[:1]  # others wait for answers that are not known yet
            found = yield Inquiry(
                run=run,
                iteration=iteration,
                n=algorithm.cycle[0 if start else 1],
                halved=any(question.half is not None for question in questions),
                least=2 if any(question.baseline == "mean" for question in questions) else 1,
                key=np.asarray(jax.random.key_data(key)),
                policies=tuple(policies),
                questions=tuple(questions[i] for i in new),
                quasi_rewards=tuple(rewards[i] for i in new),
            )
            for i, answer in zip(new, found, strict=True):
                known[i], asked[i] = unflatten(known[i], answer), numbers[i]

    def _no_row(self) -> program.Row:
        """What is recorded of a run that has failed."""
        return program.Row(jnp.full(len(program.recorded(self._algorithms[0])), jnp.nan), jnp.zeros((), jnp.int32))

    def outputs(self) -> list[Policy]:
        """The policy each run would return now."""
        return [program.output(lane) for lane in self._lanes]

    def status(self) -> list[str]:
        """How each run ended."""
        return status(self.arrays())

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything that is needed to go on, by name, [run, ...]."""
        leaves = [named(lane) for lane in self._lanes]
        return {name: np.stack([np.asarray(lane[name]) for lane in leaves]) for name in leaves[0]}

    def restore(self, arrays: dict[str, np.ndarray], iteration: int) -> None:
        """Go back to where `arrays` was taken."""
        refuse_other_arrays(arrays, self.arrays())
        for i, lane in enumerate(self._lanes):
            self._lanes[i] = with_named(lane, {name: np.asarray(array[i]) for name, array in arrays.items()})
        self.iteration = iteration

    def close(self) -> None:
        """Let those who sample go."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


class Replayed(NamedTuple):
    """What an algorithm asked and did, given some answers."""

    questions: list[Question]
    answers: list[Any]
    policies: list[Policy]
    quasi_rewards: list[Float[Array, " d"] | None]
    lane: program.Lane
    row: program.Row


def _replay(
    problem: Problem,
    algorithm: Algorithm[Any],
    start: bool,
    lane: program.Lane,
    key: Key[Array, ""],
    iteration: Int[Array, ""],
    answers: list[Any] | None,
) -> Replayed:
    notes = Notes(problem, algorithm.cycle[0 if start else 1], lane.state.policy, answers)
    lane, row = program.update(problem, algorithm, start, lane, AskedBatch(notes), key, iteration)
    return Replayed(notes.questions, notes.answers, notes.policies, notes.quasi_rewards, lane, row)


_compiled_replay = eqx.filter_jit(_replay)


def _unknown(leaf: jax.ShapeDtypeStruct) -> np.ndarray:
    is_float = jnp.issubdtype(leaf.dtype, jnp.inexact)
    return np.full(leaf.shape, np.nan if is_float else 0, leaf.dtype)


def _finite(numbers: Flat) -> bool:
    return all(np.isfinite(array).all() for array in numbers if array.dtype.kind == "f")
