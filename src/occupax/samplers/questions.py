"""A batch that is not there: what an algorithm asks of it is written down, and answered elsewhere.

An algorithm is run with the answers that are known. What it asks whose answer is not known yet is asked, all at once,
and the algorithm is run again, until there is nothing left to ask. So whoever holds the trajectories is asked as seldom
as can be: once for an iteration of TSIVR-PG that refines, because its quasi-rewards are known beforehand, and twice
where a quasi-reward depends on the occupancy of the same batch.
"""

from dataclasses import replace
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from occupax.batch import Baseline, Batch, Statistics
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.samplers.base import Tally, half_of


class Question(NamedTuple):
    """What is asked of a batch, but for the numbers."""

    kind: Literal["occupancy", "gradient", "tally"]
    half: int | None
    """Of which half of the batch, or of all of it."""
    target: int
    """Which of the policies asked about; the first is the one that acted."""
    baseline: Baseline


class Notes:
    """What was asked so far, and the answers known."""

    def __init__(self, problem: Problem, n: int, acting: Policy, answers: list[Any] | None):
        self.problem, self.n = problem, n
        self.questions: list[Question] = []
        self.policies: list[Policy] = [acting]
        self.quasi_rewards: list[Float[Array, " d"] | None] = []
        self.answers: list[Any] = []
        self._known = answers

    def ask(
        self,
        kind: Literal["occupancy", "gradient", "tally"],
        half: int | None,
        target: Policy | None,
        quasi_reward: Float[Array, " d"] | None = None,
        baseline: Baseline = "none",
    ) -> Any:
        """Write down a question; return its answer, or NaN if it is not known."""
        place = 0
        if target is not None:
            known = [i for i, policy in enumerate(self.policies) if policy is target]
            if not known:
                self.policies.append(target)
            place = known[0] if known else len(self.policies) - 1
        number = len(self.questions)
        self.questions.append(Question(kind, half, place, baseline))
        self.quasi_rewards.append(quasi_reward)
        self.answers.append(self._unknown(kind) if self._known is None else self._known[number])
        return self.answers[-1]

    def _unknown(self, kind: Literal["occupancy", "gradient", "tally"]) -> Any:
        if kind == "occupancy":
            return jnp.full(self.problem.size, jnp.nan)
        if kind == "gradient":
            arrays = eqx.filter(self.policies[0], eqx.is_inexact_array)
            return jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), arrays)
        nothing = jnp.full((), jnp.nan)
        return Tally(nothing, nothing, jnp.zeros((), jnp.int32), nothing, nothing, nothing)


class AskedBatch(Batch):
    """A batch, or half of one, that consists of questions."""

    notes: Notes
    half: int | None = None

    @property
    def problem(self) -> Problem:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What the trajectories were drawn from."""
        return self.notes.problem

    def occupancy(self, target: Policy | None = None) -> Float[Array, " d"]:
        """The mean occupancy estimate."""
        return self.notes.ask("occupancy", self.half, target)

    def gradient(self, target: Policy | None, quasi_reward: Float[Array, " d"], baseline: Baseline = "none") -> Policy:
        """The mean gradient estimate."""
        return self.notes.ask("gradient", self.half, target, quasi_reward, baseline)

    def statistics(self, target: Policy | None = None) -> Statistics:
        """Averages over the trajectories."""
        n = self.notes.n if self.half is None else half_of(self.notes.n)
        return self.notes.ask("tally", self.half, target).statistics(n)

    def halves(self) -> tuple[Batch, Batch]:
        """The first and the second half of the trajectories."""
        half_of(self.notes.n)
        if self.half is not None:
            raise ValueError("half of a batch that is sampled elsewhere cannot be halved again.")
        return replace(self, half=0), replace(self, half=1)
