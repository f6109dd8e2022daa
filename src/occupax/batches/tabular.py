"""A batch of trajectories of a table, as the compact lists of events of the compiled kernel."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, TypeVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from occupax import kernels
from occupax.baselines import Baseline, ReturnSums
from occupax.batches.batch import Batch, half_of
from occupax.batches.queries import (
    LARGEST_SQUARED,
    FisherVector,
    Gradient,
    HessianVector,
    Occupancy,
    ReturnsToGo,
    StatisticsSums,
    Tally,
    TransitionCounts,
    Transitions,
)
from occupax.batches.query import Query, Target
from occupax.batches.sampled import SampledBatch
from occupax.envs.tabular import TabularMDP
from occupax.features import Count
from occupax.policies import Policy, Tabular
from occupax.problem import Problem
from occupax.trajectories import Trajectories

PART = 128
"""Number of trajectories that the kernel packs together."""
BASELINES = {"none": 0, "mean": 1}
"""Numbers of the baselines in the kernel."""
MEAN_OF_WHOLE = 2
"""Number of a mean baseline over more trajectories than the kernel is shown."""

Answer = TypeVar("Answer")


class Events(eqx.Module):
    """Tables of everything that can happen in a step.

    A step is one number, its event: which outcome which action had in which state. Tables of events
    are filled up with outcomes that never happen, to 2^`shift` for each state and action. `counts`
    are the features of every event, and `end_counts` those of every action in a state that goes on
    after the end [S * A].
    """

    shift: int = eqx.field(static=True)
    successors: Int[np.ndarray, " events"]
    thresholds: Float[np.ndarray, " events"]
    rewards: Float[np.ndarray, " events"]
    counts: Count
    end_counts: Count

    def __init__(self, problem: Problem):
        env = table_of(problem)
        S, A, K = env.successors.shape
        self.shift = (K - 1).bit_length()
        filling = [(0, 0), (0, 0), (0, (1 << self.shift) - K)]
        self.successors = np.pad(env.successors.astype(np.int32), filling).ravel()
        self.thresholds = np.pad(env.thresholds, filling, constant_values=2.0).ravel()
        self.rewards = np.pad(env.outcome_rewards, filling).ravel()
        pairs = np.arange(S * A)
        self.counts = _counts(problem, np.repeat(pairs, 1 << self.shift), self.rewards)
        self.end_counts = _counts(problem, pairs, np.asarray(env.reward).ravel())


@final
class TabularBatch(Batch, eqx.Module):
    """Trajectories `start` to `stop` of those that lie here as lists of events, in the order of the kernel.

    The kernel answers the queries of the table `fast`; all others are computed from the
    trajectories as arrays.
    """

    fast: ClassVar[dict[type[Query[Any]], Callable[..., Any]]]

    problem: Problem
    table: Events
    policy: Policy
    probs: Float[Array, "S A"]
    events: Int[Array, " steps"]
    lengths: Int[Array, " n"]
    finals: Int[Array, " n"]
    start: int = eqx.field(static=True)
    stop: int = eqx.field(static=True)

    @property
    def size(self) -> int:
        """Number of trajectories."""
        return self.stop - self.start

    @property
    def parts(self) -> int:
        """One: all of them are in memory."""
        return 1

    def answer(self, query: Query[Answer]) -> Answer:
        """Return what the kernel computes or, for a query that it does not know, what the query computes."""
        answer = self.fast.get(type(query))
        if answer is None:
            return self.as_sampled().answer(query)
        return answer(self, query)

    def halves(self) -> tuple[Batch, Batch]:
        """Return the first and the second half of the trajectories."""
        middle = self.start + half_of(self.size)
        return replace(self, stop=middle), replace(self, start=middle)

    def as_sampled(self) -> SampledBatch:
        """Return the same trajectories as arrays [n, horizon]."""
        horizon = self.problem.sampling_horizon()
        own = slice(self.start, self.stop)
        lengths = self.lengths[own, None]
        finals = self.finals[own]
        is_there = finals >= 0
        finals = jnp.maximum(finals, 0)
        steps = jnp.arange(horizon)
        live = steps < lengths
        events = self.events[jnp.where(live, self.first_events()[own, None] + steps, 0)]
        states, actions = jnp.divmod(events >> self.table.shift, self.probs.shape[1])
        log_probs = jnp.log(self.probs)[states, actions]
        rewards = jnp.asarray(self.table.rewards, self.probs.dtype)[events]
        trajectories = Trajectories(
            observations=jnp.where(live, states, finals[:, None]),
            actions=jnp.where(live, actions, 0),
            log_probs=jnp.where(live, log_probs, 0.0),
            rewards=jnp.where(live, rewards, 0.0),
            live=live,
            terminated=is_there & self.terminal()[finals],
            final_observations=finals,
        )
        return SampledBatch(self.problem, trajectories, self.policy)

    def first_events(self) -> Int[Array, " n"]:
        """Return where the events of each trajectory begin."""
        before = jnp.cumsum(self.lengths) - self.lengths
        first = (
            jnp.arange(self.lengths.size) // PART * PART
        )  # each part is packed from its first place on
        return first * self.problem.sampling_horizon() + before - before[first]

    def terminal(self) -> Bool[Array, " S"]:
        """Return which states are terminal."""
        return jnp.asarray(table_of(self.problem).terminal)

    def visits(
        self, places: Int[Array, " events"], size: int, **settings: Any
    ) -> Float[Array, " size"]:
        """Return the mean visits of each of `size` places, of which each event has one; discounted by default."""
        dtype = self.probs.dtype
        ended = jnp.zeros((self.probs.size, 1), jnp.int32)
        ones = jnp.ones((places.size, 1), dtype)
        features = self.probs, places[:, None], ones, ended, ended.astype(dtype)
        output = jax.ShapeDtypeStruct((size,), dtype)
        return self.call("occupancy", None, output, *features, absorbing=False, **settings)

    def call_with_features(
        self, name: str, target: Target, outputs: Any, *operands: Array, **settings: Any
    ) -> Any:
        """Call the kernel with the target's probabilities, and the features of events and of what goes on after."""
        dtype = self.probs.dtype
        features = [self.probs if target is None else probs_of(target)]
        for counts in (self.table.counts, self.table.end_counts):
            features += [counts.index, counts.value.astype(dtype)]
        absorbing = self.problem.termination == "absorbing"
        return self.call(
            name, target, outputs, *features, *operands, absorbing=absorbing, **settings
        )

    def call(
        self, name: str, target: Target, outputs: Any, *operands: Array, **settings: Any
    ) -> Any:
        """Call the kernel with the trajectories and the ratios of the target's probabilities."""
        ratios = self.probs if target is None else probs_of(target) / self.probs
        trajectories = self.events, self.lengths, self.finals, self.terminal(), ratios
        own = {
            "begin": self.start,
            "end": self.stop,
            "horizon": self.problem.sampling_horizon(),
            "shift": self.table.shift,
            "discount": self.problem.discount,
            "on_policy": target is None,
        }
        return kernels.call(
            f"tabular_{name}", self.probs.dtype, outputs, *trajectories, *operands, **own | settings
        )


def _occupancy(batch: TabularBatch, query: Occupancy) -> Float[Array, " d"]:
    output = jax.ShapeDtypeStruct((batch.problem.size,), batch.probs.dtype)
    return batch.call_with_features("occupancy", query.target, output)


def _gradient(batch: TabularBatch, query: Gradient) -> Policy:
    if query.baseline.name == "linear":
        return batch.as_sampled().answer(query)
    dtype = batch.probs.dtype
    output = jax.ShapeDtypeStruct(batch.probs.shape, dtype)
    whole, kind = _baseline(query.baseline, dtype)
    operands = jnp.asarray(query.quasi_reward, dtype), whole
    return Tabular(
        batch.call_with_features("gradient", query.target, output, *operands, baseline=kind)
    )


def _returns_to_go(batch: TabularBatch, query: ReturnsToGo) -> ReturnSums:
    if query.baseline.name == "linear":
        return batch.as_sampled().answer(query)
    dtype = batch.probs.dtype
    output = jax.ShapeDtypeStruct((2, batch.problem.sampling_horizon()), dtype)
    quasi_reward = jnp.asarray(query.quasi_reward, dtype)
    to_go, live = batch.call_with_features("earnings", query.target, output, quasi_reward)
    return ReturnSums(to_go, live.astype(jnp.int32))


def _tally(batch: TabularBatch, query: Tally) -> StatisticsSums:
    dtype = batch.probs.dtype
    output = jax.ShapeDtypeStruct((5,), dtype)
    rewards = jnp.asarray(batch.table.rewards, dtype)
    sums = batch.call("tally", query.target, output, rewards, largest_squared=LARGEST_SQUARED)
    steps = batch.lengths[batch.start : batch.stop].sum()
    clipped = jnp.zeros_like(steps)
    saturated = jnp.zeros_like(steps, shape=0)
    return StatisticsSums(sums[0], sums[1], steps, sums[2], sums[3], sums[4], clipped, saturated)


def _fisher_vector(batch: TabularBatch, query: FisherVector) -> Policy:
    """Return the product from the discounted visits of every state and action."""
    probs = batch.probs
    pairs = jnp.repeat(jnp.arange(probs.size, dtype=jnp.int32), 1 << batch.table.shift)
    visits = batch.visits(pairs, probs.size).reshape(probs.shape)
    along = visits * _centred(probs, query.vector)
    return Tabular(along - probs * jnp.sum(along, 1, keepdims=True))


def _hessian_vector(batch: TabularBatch, query: HessianVector) -> tuple[Float[Array, " d"], Policy]:
    if query.baseline.name == "linear":
        return batch.as_sampled().answer(query)  # which says what is wrong
    dtype = batch.probs.dtype
    along = _centred(batch.probs, query.vector)
    outputs = [
        jax.ShapeDtypeStruct((batch.problem.size,), dtype),
        jax.ShapeDtypeStruct(batch.probs.shape, dtype),
    ]
    whole, kind = _baseline(query.baseline, dtype)
    operands = jnp.asarray(query.quasi_reward, dtype), whole, along.astype(dtype)
    occupancy, product = batch.call_with_features(
        "product", None, outputs, *operands, baseline=kind
    )
    return occupancy, Tabular(product)


def _transitions(batch: TabularBatch, query: TransitionCounts) -> Transitions:
    del query
    S, A = batch.probs.shape
    dtype = batch.probs.dtype
    number_of_events = batch.table.successors.size
    visits = batch.visits(
        jnp.arange(number_of_events, dtype=jnp.int32), number_of_events, discount=1.0
    )
    events = jnp.round(visits * batch.size)  # a mean over the trajectories
    pairs = jnp.arange(number_of_events) >> batch.table.shift
    counts = jnp.zeros((S * A, S), dtype).at[pairs, jnp.asarray(batch.table.successors)].add(events)
    rewards = (
        jnp.zeros(S * A, dtype).at[pairs].add(events * jnp.asarray(batch.table.rewards, dtype))
    )
    own = slice(batch.start, batch.stop)
    finals = batch.finals[own]
    first_states = (batch.events[batch.first_events()[own]] >> batch.table.shift) // A
    initial = jnp.where(batch.lengths[own] > 0, first_states, finals)
    is_there = finals >= 0
    by_state = jnp.zeros(S, dtype)
    return Transitions(
        initial=by_state.at[initial].add(is_there),
        counts=counts.reshape(S, A, S),
        rewards=rewards.reshape(S, A),
        ends=by_state.at[finals].add(is_there & batch.terminal()[finals]),
    )


TabularBatch.fast = {
    Occupancy: _occupancy,
    Gradient: _gradient,
    ReturnsToGo: _returns_to_go,
    Tally: _tally,
    FisherVector: _fisher_vector,
    HessianVector: _hessian_vector,
    TransitionCounts: _transitions,
}


def _baseline(baseline: Baseline, dtype: Any) -> tuple[Float[Array, "2 _"], int]:
    """Return the sums over the whole batch that the kernel needs, and the number of the baseline."""
    whole = baseline.whole
    if whole is not None:
        return jnp.stack([whole.to_go, whole.live.astype(dtype)]), MEAN_OF_WHOLE
    return jnp.zeros((2, 0), dtype), BASELINES[baseline.name]


def _centred(probs: Float[Array, "S A"], vector: Policy) -> Float[Array, "S A"]:
    """Return the derivatives of the log-probabilities along a vector."""
    if not isinstance(vector, Tabular):
        raise ValueError(
            f"vector must have the shape of a tabular policy, got {type(vector).__name__}."
        )
    return vector.table - jnp.sum(probs * vector.table, 1, keepdims=True)


def _counts(
    problem: Problem, pairs: Int[np.ndarray, " n"], rewards: Float[np.ndarray, " n"]
) -> Count:
    states, actions = np.divmod(pairs.astype(np.int32), problem.env.num_actions)
    return jax.vmap(problem.count)(states, actions, rewards.astype(jnp.result_type(float)))


def table_of(problem: Problem) -> TabularMDP:
    """Return the table of a problem."""
    if not isinstance(problem.env, TabularMDP):
        raise ValueError(f"the compiled kernel samples tables, got {type(problem.env).__name__}.")
    return problem.env


def probs_of(policy: Policy) -> Float[Array, "S A"]:
    """Return the probabilities of a tabular policy."""
    if not isinstance(policy, Tabular):
        raise ValueError(
            f"the compiled kernel takes tabular policies, got {type(policy).__name__}."
        )
    return jax.nn.softmax(policy.table)
