"""Tables sampled and estimated by the compiled kernel."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from occupax import kernels
from occupax.baselines import Fit, Regression
from occupax.batch import AnyBaseline, Batch, Earnings, Target, Trajectories, Transitions
from occupax.envs.tabular import TabularMDP
from occupax.features import Count
from occupax.policies import Observed, Policy, Tabular
from occupax.problem import Problem
from occupax.samplers.base import Number, ProgramSource
from occupax.samplers.batches.block import LARGEST_SQUARED, Block, Tally, half_of
from occupax.samplers.batches.sampled import SampledBatch

PART = 128
"""How many trajectories the kernel packs together."""
BASELINES = {"none": 0, "mean": 1}
"""How the kernel counts the baselines; 2 is a mean over more trajectories than it is shown."""


class TabularKernelSource(ProgramSource):
    """Draws trajectories of a tabular problem under tabular policies, step by step, and stops where they end.

    A step is one number, its event: which outcome which action had in which state. Tables of events are filled up with
    outcomes that never happen, to 2^`shift` for each state and action. `counts` are the features of every event, and
    `end_counts` those of every action in a state that goes on after the end [S * A].
    """

    problem: Problem
    block_steps = 4_000_000
    shift: int = eqx.field(static=True)
    successors: Int[np.ndarray, " events"]
    thresholds: Float[np.ndarray, " events"]
    rewards: Float[np.ndarray, " events"]
    counts: Count
    end_counts: Count

    def __init__(self, problem: Problem):
        """Look up the features of everything that can happen."""
        env = _table(problem)
        S, A, K = env.successors.shape
        self.problem = problem
        self.shift = (K - 1).bit_length()
        filling = [(0, 0), (0, 0), (0, (1 << self.shift) - K)]
        self.successors = np.pad(env.successors.astype(np.int32), filling).ravel()
        self.thresholds = np.pad(env.thresholds, filling, constant_values=2.0).ravel()
        self.rewards = np.pad(env.outcome_rewards, filling).ravel()
        pairs = np.arange(S * A)
        self.counts = _counts(problem, np.repeat(pairs, 1 << self.shift), self.rewards)
        self.end_counts = _counts(problem, pairs, np.asarray(env.reward).ravel())

    def block(self, policy: Policy, key: Key[Array, ""], first: Number, stop: Number, n: int) -> "TabularKernelBatch":
        """Trajectories number `first` to `first + n`; those from number `stop` on are empty."""
        env, probs, horizon = _table(self.problem), _probs(policy), self.problem.sampling_horizon()
        thresholds = [jnp.asarray(table, probs.dtype) for table in (self.thresholds, env.initial_thresholds)]
        tables = jnp.asarray(self.successors), *thresholds, jnp.asarray(env.terminal), probs
        numbers = jnp.stack([jnp.asarray(first, jnp.int32), jnp.asarray(stop, jnp.int32)])
        operands = *tables, jax.random.key_data(key)[:2], numbers
        sizes = [jax.ShapeDtypeStruct((length,), jnp.int32) for length in (n * horizon, n, n)]
        drawn = kernels.call("tabular_sample", probs.dtype, sizes, *operands, horizon=horizon, shift=self.shift)
        return TabularKernelBatch(self.problem, self, policy, probs, *drawn, start=0, stop=n)


class TabularKernelBatch(Block):
    """Trajectories `start` to `stop` of those that lie here as lists of events, in the order of the kernel."""

    problem: Problem
    source: TabularKernelSource
    policy: Policy
    probs: Float[Array, "S A"]
    events: Int[Array, " steps"]
    lengths: Int[Array, " n"]
    finals: Int[Array, " n"]
    start: int = eqx.field(static=True)
    stop: int = eqx.field(static=True)

    @property
    def size(self) -> int:
        """How many trajectories there are."""
        return self.stop - self.start

    def occupancy(self, target: Target = None) -> Float[Array, " d"]:
        """What `estimators.occupancy` estimates."""
        return self._ask_features("occupancy", target, (self.problem.size,))

    def gradient(self, target: Target, quasi_reward: Float[Array, " d"], baseline: AnyBaseline = "none") -> Policy:
        """What `estimators.gradient` estimates; with a linear baseline, by it."""
        if isinstance(baseline, Fit) or (isinstance(baseline, Earnings) and baseline.fit is not None):
            return self._sampled().gradient(target, quasi_reward, baseline)
        if isinstance(baseline, str) and baseline not in BASELINES:
            return self._sampled().gradient(target, quasi_reward, baseline)  # which says what is wrong
        given, kind = self._baseline(baseline)
        operands = jnp.asarray(quasi_reward, self.probs.dtype), given
        return Tabular(self._ask_features("gradient", target, self.probs.shape, *operands, baseline=kind))

    def _baseline(self, baseline: Any) -> tuple[Float[Array, "2 _"], int]:
        """The earnings that are given to the kernel, and how it counts the baseline."""
        if isinstance(baseline, Earnings):
            return jnp.stack([baseline.to_go, baseline.live.astype(self.probs.dtype)]), 2
        return jnp.zeros((2, 0), self.probs.dtype), BASELINES[baseline]

    def earnings(self, target: Target, quasi_reward: Float[Array, " d"], baseline: AnyBaseline = "none") -> Earnings:
        """What `estimators.earnings` sums up."""
        if isinstance(baseline, Fit):
            return self._sampled().earnings(target, quasi_reward, baseline)
        shape, quasi_reward = (2, self.problem.sampling_horizon()), jnp.asarray(quasi_reward, self.probs.dtype)
        to_go, live = self._ask_features("earnings", target, shape, quasi_reward)
        return Earnings(to_go, live.astype(jnp.int32))

    def regression(self, quasi_reward: Float[Array, " d"]) -> Regression:
        """What `estimators.regression` sums up."""
        return self._sampled().regression(quasi_reward)

    def observed(self, target: Policy | None) -> Observed:
        """Refused: tables have no running statistics."""
        return self._sampled().observed(target)

    def tally(self, target: Target = None) -> Tally:
        """Sums over the trajectories that took a step."""
        rewards = jnp.asarray(self.source.rewards, self.probs.dtype)
        sums = self._ask("tally", target, (5,), rewards, largest_squared=LARGEST_SQUARED)
        steps = self.lengths[self.start : self.stop].sum()
        return Tally(
            sums[0], sums[1], steps, sums[2], sums[3], sums[4], jnp.zeros_like(steps), jnp.zeros_like(steps, shape=0)
        )

    def fisher_vector(self, vector: Policy) -> Policy:
        """What `estimators.fisher_vector` estimates, from the discounted visits of every state and action."""
        table = _vector(vector)
        pairs = jnp.repeat(jnp.arange(self.probs.size, dtype=jnp.int32), 1 << self.source.shift)
        visits = self._visits(pairs, self.probs.size).reshape(self.probs.shape)
        along = visits * (table - jnp.sum(self.probs * table, 1, keepdims=True))
        return Tabular(along - self.probs * jnp.sum(along, 1, keepdims=True))

    def hessian_vector(
        self, vector: Policy, quasi_reward: Float[Array, " d"], baseline: AnyBaseline = "none"
    ) -> tuple[Float[Array, " d"], Policy]:
        """What `estimators.hessian_vector` estimates."""
        if not isinstance(baseline, Earnings) and baseline not in BASELINES:
            return self._sampled().hessian_vector(vector, quasi_reward, baseline)  # which says what is wrong
        table, dtype = _vector(vector), self.probs.dtype
        along = table - jnp.sum(self.probs * table, 1, keepdims=True)
        given, kind = self._baseline(baseline)
        operands = jnp.asarray(quasi_reward, dtype), given, along.astype(dtype)
        shapes = [(self.problem.size,), self.probs.shape]
        occupancy, product = self._ask_features("product", None, shapes, *operands, baseline=kind)
        return occupancy, Tabular(product)

    def transitions(self) -> Transitions:
        """What led where, counted."""
        S, A = self.probs.shape
        source, dtype, many = self.source, self.probs.dtype, self.source.successors.size
        visits = self._visits(jnp.arange(many, dtype=jnp.int32), many, discount=1.0)
        events = jnp.round(visits * self.size)  # a mean over the trajectories
        pairs = jnp.arange(many) >> source.shift
        counts = jnp.zeros((S * A, S), dtype).at[pairs, jnp.asarray(source.successors)].add(events)
        rewards = jnp.zeros(S * A, dtype).at[pairs].add(events * jnp.asarray(source.rewards, dtype))
        own, lengths = slice(self.start, self.stop), self.lengths
        before, first = jnp.cumsum(lengths) - lengths, jnp.arange(lengths.size) // PART * PART
        begins = first * self.problem.sampling_horizon() + before - before[first]  # parts are packed from there on
        finals, steps = self.finals[own], lengths[own]
        initial = jnp.where(steps > 0, (self.events[begins[own]] >> source.shift) // A, finals)
        there, none = finals >= 0, jnp.zeros(S, dtype)
        return Transitions(
            initial=none.at[initial].add(there),
            counts=counts.reshape(S, A, S),
            rewards=rewards.reshape(S, A),
            ends=none.at[finals].add(there & jnp.asarray(_table(self.problem).terminal)[finals]),
        )

    def _visits(self, places: Int[Array, " events"], size: int, **settings: Any) -> Float[Array, " size"]:
        """The mean visits of each of `size` places, of which each event has one, discounted unless told otherwise."""
        ended, dtype = jnp.zeros((self.probs.size, 1), jnp.int32), self.probs.dtype
        features = self.probs, places[:, None], jnp.ones((places.size, 1), dtype), ended, ended.astype(dtype)
        return self._ask("occupancy", None, (size,), *features, absorbing=False, **settings)

    def _sampled(self) -> SampledBatch:
        """The same trajectories as arrays [n, horizon], for what the kernel does not compute."""
        horizon, shift, A = self.problem.sampling_horizon(), self.source.shift, self.probs.shape[1]
        lengths, finals, number = self.lengths, self.finals, jnp.arange(self.lengths.size)
        before = jnp.cumsum(lengths) - lengths
        first = number // PART * PART
        start = first * horizon + before - before[first]  # a part is packed from where its first trajectory may begin
        own = slice(self.start, self.stop)
        steps, lengths, finals = jnp.arange(horizon), lengths[own, None], finals[own]
        live = steps < lengths
        events = self.events[jnp.where(live, start[own, None] + steps, 0)]
        states, actions = jnp.divmod(events >> shift, A)
        log_probs = jnp.log(self.probs)[states, actions]
        rewards = jnp.asarray(self.source.rewards, self.probs.dtype)[events]
        there, finals = finals >= 0, jnp.maximum(finals, 0)
        drawn = Trajectories(
            observations=jnp.where(live, states, finals[:, None]),
            actions=jnp.where(live, actions, 0),
            log_probs=jnp.where(live, log_probs, 0.0),
            rewards=jnp.where(live, rewards, 0.0),
            live=live,
            terminated=there & jnp.asarray(_table(self.problem).terminal)[finals],
            final_observations=finals,
        )
        return SampledBatch(self.problem, drawn, self.policy)

    def halves(self) -> tuple[Batch, Batch]:
        """The first and the second half of the trajectories."""
        middle = self.start + half_of(self.size)
        return replace(self, stop=middle), replace(self, start=middle)

    def _acted(self, target: Target) -> bool:
        return target is None or target is self.policy

    def _ask_features(self, name: str, target: Target, shape: Any, *operands: Array, **settings: Any) -> Any:
        """Pass on the target's probabilities, and the features of events and of what goes on after the end, too."""
        features: list[Array] = [self.probs if self._acted(target) else _probs(target)]
        for counts in (self.source.counts, self.source.end_counts):
            features += [counts.index, counts.value.astype(self.probs.dtype)]
        absorbing = self.problem.termination == "absorbing"
        return self._ask(name, target, shape, *features, *operands, absorbing=absorbing, **settings)

    def _ask(self, name: str, target: Target, shape: Any, *operands: Array, **settings: Any) -> Any:
        problem, dtype, acted = self.problem, self.probs.dtype, self._acted(target)
        weights = self.probs if acted else _probs(target) / self.probs
        drawn = self.events, self.lengths, self.finals, jnp.asarray(_table(problem).terminal), weights
        fixed = {"begin": self.start, "end": self.stop, "horizon": problem.sampling_horizon()}
        fixed |= {"shift": self.source.shift, "discount": problem.discount, "on_policy": acted}
        settings = fixed | settings
        shapes = shape if isinstance(shape, list) else [shape]
        outputs = [jax.ShapeDtypeStruct(it, dtype) for it in shapes]
        output = outputs if isinstance(shape, list) else outputs[0]
        return kernels.call(f"tabular_{name}", dtype, output, *drawn, *operands, **settings)


def _counts(problem: Problem, pairs: Int[np.ndarray, " n"], rewards: Float[np.ndarray, " n"]) -> Count:
    states, actions = np.divmod(pairs.astype(np.int32), problem.env.num_actions)
    return jax.vmap(problem.count)(states, actions, rewards.astype(jnp.result_type(float)))


def _vector(vector: Policy) -> Float[Array, "S A"]:
    if not isinstance(vector, Tabular):
        raise ValueError(f"vector must have the shape of a tabular policy, got {type(vector).__name__}.")
    return vector.table


def _table(problem: Problem) -> TabularMDP:
    if not isinstance(problem.env, TabularMDP):
        raise ValueError(f"the compiled kernel samples tables, got {type(problem.env).__name__}.")
    return problem.env


def _probs(policy: Policy | None) -> Float[Array, "S A"]:
    if not isinstance(policy, Tabular):
        raise ValueError(f"the compiled kernel takes tabular policies, got {type(policy).__name__}.")
    return jax.nn.softmax(policy.table)
