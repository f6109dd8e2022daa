"""Batches of trajectories of a table, as compact lists of events of the compiled kernel."""

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
    MAX_SQUARED_WEIGHT,
    FisherVector,
    Gradient,
    HessianVector,
    Occupancy,
    Query,
    ReturnsToGo,
    StatisticsSums,
    Tally,
    Target,
    TransitionCounts,
    Transitions,
)
from occupax.batches.sampled import SampledBatch
from occupax.envs.tabular import TabularMDP
from occupax.features import Count
from occupax.policies import Policy, Tabular
from occupax.problem import Problem
from occupax.trajectories import Trajectories

PART_SIZE = 128
"""Number of trajectories that the kernel packs together."""
BASELINES = {"none": 0, "mean": 1}
"""Numbers of the baselines in the kernel."""
MEAN_OF_WHOLE = 2
"""Number of the mean baseline whose sums are operands, because a batch has several parts."""

Answer = TypeVar("Answer")


class Events(eqx.Module):
    """Tables of all events: outcomes of an action in a state.

    A step is one event. Each state and action has 2^`shift` events, including padding with
    outcomes of probability zero.
    """

    shift: int = eqx.field(static=True)
    successors: Int[np.ndarray, " events"]
    thresholds: Float[np.ndarray, " events"]
    rewards: Float[np.ndarray, " events"]
    counts: Count
    """Features of every event."""
    end_counts: Count
    """Features of every action in a terminal state, [S * A]."""

    def __init__(self, problem: Problem):
        env = table_of(problem)
        S, A, K = env.successors.shape
        self.shift = (K - 1).bit_length()
        padding = [(0, 0), (0, 0), (0, (1 << self.shift) - K)]
        self.successors = np.pad(env.successors.astype(np.int32), padding).ravel()
        self.thresholds = np.pad(env.thresholds, padding, constant_values=2.0).ravel()
        self.rewards = np.pad(env.outcome_rewards, padding).ravel()
        pairs = np.arange(S * A)
        self.counts = _counts(problem, np.repeat(pairs, 1 << self.shift), self.rewards)
        self.end_counts = _counts(problem, pairs, np.asarray(env.reward).ravel())


@final
class TabularBatch(Batch, eqx.Module):
    """Trajectories `start` to `stop` of lists of events in the order of the kernel.

    The kernel computes the queries of the table `fast`. All others, and those with a linear
    baseline, are computed from the trajectories as arrays.
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
        """Number of parts, 1: all trajectories are in memory."""
        return 1

    def answer(self, query: Query[Answer]) -> Answer:
        """Return the answer, by the kernel for the queries of `fast`."""
        compute = self.fast.get(type(query))
        if compute is None or _has_linear_baseline(query):
            return self.as_sampled().answer(query)
        return compute(self, query)

    def halves(self) -> tuple[Batch, Batch]:
        """Return the first and the second half of the trajectories."""
        middle = self.start + half_of(self.size)
        return replace(self, stop=middle), replace(self, start=middle)

    @property
    def rows(self) -> slice:
        """Slice of the trajectories of this batch."""
        return slice(self.start, self.stop)

    def as_sampled(self) -> SampledBatch:
        """Return the same trajectories as arrays [n, horizon]."""
        steps = jnp.arange(self.problem.sampling_horizon())
        live = steps < self.lengths[self.rows, None]
        positions = self.first_events()[self.rows, None] + steps
        events = self.events[jnp.where(live, positions, 0)]
        states, actions = jnp.divmod(events >> self.table.shift, self.probs.shape[1])
        log_probs = jnp.log(self.probs)[states, actions]
        rewards = jnp.asarray(self.table.rewards, self.probs.dtype)[events]
        exists = self.finals[self.rows] >= 0
        finals = jnp.maximum(self.finals[self.rows], 0)
        trajectories = Trajectories(
            observations=jnp.where(live, states, finals[:, None]),
            actions=jnp.where(live, actions, 0),
            log_probs=jnp.where(live, log_probs, 0.0),
            rewards=jnp.where(live, rewards, 0.0),
            live=live,
            terminated=exists & self.terminal()[finals],
            final_observations=finals,
        )
        return SampledBatch(self.problem, trajectories, self.policy)

    def first_events(self) -> Int[Array, " n"]:
        """Return the position of the first event of each trajectory.

        The trajectories of a part are packed from the beginning of its buffer on.
        """
        starts = jnp.cumsum(self.lengths) - self.lengths
        first_of_part = jnp.arange(self.lengths.size) // PART_SIZE * PART_SIZE
        buffer = first_of_part * self.problem.sampling_horizon()
        return buffer + starts - starts[first_of_part]

    def terminal(self) -> Bool[Array, " S"]:
        """Return which states are terminal."""
        return jnp.asarray(table_of(self.problem).terminal)

    def visits(
        self, entries: Int[Array, " events"], size: int, **settings: Any
    ) -> Float[Array, " size"]:
        """Return the mean visits of `size` entries, one of each event. Discounted by default."""
        dtype = self.probs.dtype
        ends = jnp.zeros((self.probs.size, 1), jnp.int32)
        ones = jnp.ones((entries.size, 1), dtype)
        features = (self.probs, entries[:, None], ones, ends, ends.astype(dtype))
        output = jax.ShapeDtypeStruct((size,), dtype)
        return self.call("occupancy", None, output, *features, absorbing=False, **settings)

    def call_with_features(
        self, name: str, target: Target, outputs: Any, *operands: Array, **settings: Any
    ) -> Any:
        """Call the kernel with the target's probabilities and the features of events and ends."""
        probs = self.probs
        if target is not None:
            probs = probs_of(target)
        events = self.table.counts
        ends = self.table.end_counts
        dtype = self.probs.dtype
        features = (
            probs,
            events.index,
            events.value.astype(dtype),
            ends.index,
            ends.value.astype(dtype),
        )
        settings["absorbing"] = self.problem.termination == "absorbing"
        return self.call(name, target, outputs, *features, *operands, **settings)

    def call(
        self, name: str, target: Target, outputs: Any, *operands: Array, **settings: Any
    ) -> Any:
        """Call the kernel with the trajectories and the ratios of the target's probabilities."""
        ratios = self.probs
        if target is not None:
            ratios = probs_of(target) / self.probs
        trajectories = (self.events, self.lengths, self.finals, self.terminal(), ratios)
        defaults = {
            "begin": self.start,
            "end": self.stop,
            "horizon": self.problem.sampling_horizon(),
            "shift": self.table.shift,
            "discount": self.problem.discount,
            "on_policy": target is None,
        }
        settings = defaults | settings
        dtype = self.probs.dtype
        return kernels.call(f"tabular_{name}", dtype, outputs, *trajectories, *operands, **settings)


def _occupancy(batch: TabularBatch, query: Occupancy) -> Float[Array, " d"]:
    output = jax.ShapeDtypeStruct((batch.problem.size,), batch.probs.dtype)
    return batch.call_with_features("occupancy", query.target, output)


def _gradient(batch: TabularBatch, query: Gradient) -> Policy:
    dtype = batch.probs.dtype
    output = jax.ShapeDtypeStruct(batch.probs.shape, dtype)
    quasi_reward = jnp.asarray(query.quasi_reward, dtype)
    sums, kind = _baseline(query.baseline, dtype)
    gradient = batch.call_with_features(
        "gradient", query.target, output, quasi_reward, sums, baseline=kind
    )
    return Tabular(gradient)


def _returns_to_go(batch: TabularBatch, query: ReturnsToGo) -> ReturnSums:
    dtype = batch.probs.dtype
    output = jax.ShapeDtypeStruct((2, batch.problem.sampling_horizon()), dtype)
    quasi_reward = jnp.asarray(query.quasi_reward, dtype)
    to_go, live = batch.call_with_features("earnings", query.target, output, quasi_reward)
    return ReturnSums(to_go, live.astype(jnp.int32))


def _tally(batch: TabularBatch, query: Tally) -> StatisticsSums:
    dtype = batch.probs.dtype
    output = jax.ShapeDtypeStruct((5,), dtype)
    rewards = jnp.asarray(batch.table.rewards, dtype)
    sums = batch.call("tally", query.target, output, rewards, largest_squared=MAX_SQUARED_WEIGHT)
    steps = batch.lengths[batch.rows].sum()
    return StatisticsSums(
        returns=sums[0],
        discounted_returns=sums[1],
        steps=steps,
        weights=sums[2],
        squared_weights=sums[3],
        largest_weight=sums[4],
        clipped=jnp.zeros_like(steps),
        saturated=jnp.zeros_like(steps, shape=0),
    )


def _fisher_vector(batch: TabularBatch, query: FisherVector) -> Policy:
    """Return the product, computed from the discounted visits of every state and action."""
    probs = batch.probs
    pairs = jnp.repeat(jnp.arange(probs.size, dtype=jnp.int32), 1 << batch.table.shift)
    visits = batch.visits(pairs, probs.size).reshape(probs.shape)
    derivatives = visits * _centred(probs, query.vector)
    return Tabular(derivatives - probs * jnp.sum(derivatives, 1, keepdims=True))


def _hessian_vector(batch: TabularBatch, query: HessianVector) -> tuple[Float[Array, " d"], Policy]:
    dtype = batch.probs.dtype
    occupancy_output = jax.ShapeDtypeStruct((batch.problem.size,), dtype)
    product_output = jax.ShapeDtypeStruct(batch.probs.shape, dtype)
    quasi_reward = jnp.asarray(query.quasi_reward, dtype)
    sums, kind = _baseline(query.baseline, dtype)
    direction = _centred(batch.probs, query.vector).astype(dtype)
    outputs = [occupancy_output, product_output]
    occupancy, product = batch.call_with_features(
        "product", None, outputs, quasi_reward, sums, direction, baseline=kind
    )
    return occupancy, Tabular(product)


def _transitions(batch: TabularBatch, query: TransitionCounts) -> Transitions:
    del query
    S, A = batch.probs.shape
    dtype = batch.probs.dtype
    table = batch.table
    events = jnp.arange(table.successors.size, dtype=jnp.int32)
    visits = batch.visits(events, events.size, discount=1.0)
    event_counts = jnp.round(visits * batch.size)  # visits are means over the trajectories
    pairs = jnp.arange(events.size) >> table.shift
    successors = jnp.asarray(table.successors)
    counts = jnp.zeros((S * A, S), dtype).at[pairs, successors].add(event_counts)
    reward_sums = event_counts * jnp.asarray(table.rewards, dtype)
    rewards = jnp.zeros(S * A, dtype).at[pairs].add(reward_sums)
    finals = batch.finals[batch.rows]
    first_events = batch.events[batch.first_events()[batch.rows]]
    first_states = (first_events >> table.shift) // A
    initial = jnp.where(batch.lengths[batch.rows] > 0, first_states, finals)
    exists = finals >= 0
    by_state = jnp.zeros(S, dtype)
    return Transitions(
        initial=by_state.at[initial].add(exists),
        counts=counts.reshape(S, A, S),
        rewards=rewards.reshape(S, A),
        ends=by_state.at[finals].add(exists & batch.terminal()[finals]),
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


def _has_linear_baseline(query: Query[Any]) -> bool:
    """Return whether a query has the baseline "linear", which the kernel does not support."""
    with_baseline = isinstance(query, Gradient | ReturnsToGo | HessianVector)
    return with_baseline and query.baseline.name == "linear"


def _baseline(baseline: Baseline, dtype: Any) -> tuple[Float[Array, "2 _"], int]:
    """Return the sums over the whole batch for the kernel, and the number of the baseline."""
    whole = baseline.whole
    if whole is not None:
        return jnp.stack([whole.to_go, whole.live.astype(dtype)]), MEAN_OF_WHOLE
    return jnp.zeros((2, 0), dtype), BASELINES[baseline.name]


def _centred(probs: Float[Array, "S A"], vector: Policy) -> Float[Array, "S A"]:
    """Return the derivatives of the log-probabilities along a vector."""
    if not isinstance(vector, Tabular):
        got = type(vector).__name__
        raise ValueError(f"vector must have the shape of a tabular policy, got {got}.")
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
        got = type(policy).__name__
        raise ValueError(f"the compiled kernel takes tabular policies, got {got}.")
    return jax.nn.softmax(policy.table)
