"""Tables sampled and estimated by the compiled kernel."""

import warnings
from dataclasses import replace
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from occupax import kernels
from occupax._errors import unknown
from occupax.batch import Baseline, Batch, Statistics
from occupax.envs.tabular import TabularMDP
from occupax.features import Count
from occupax.policies import Policy, Tabular
from occupax.problem import Problem
from occupax.samplers.base import LARGEST_SQUARED, Block, Sampler, Tally, half_of
from occupax.samplers.device import DeviceSampler

BLOCK_STEPS = 1_000_000
Engine = Literal["auto", "jax"]


class CompiledSampler(Sampler):
    """Draws trajectories of a tabular problem under tabular policies, step by step, and stops where they end.

    A step is one number, its event (s * A + a) * K + k; `counts` are the features of every event, and `end_counts`
    those of every action in a state that goes on after the end.
    """

    problem: Problem
    counts: Count
    end_counts: Count

    def __init__(self, problem: Problem):
        """Look up the features of everything that can happen."""
        env = _table(problem)
        S, A, K = env.successors.shape
        events = np.arange(S * A * K)
        states, actions = events // (A * K), events // K % A
        self.problem = problem
        self.counts = _counts(problem, states, actions, env.outcome_rewards.ravel())
        pairs = np.arange(S * A)
        self.end_counts = _counts(problem, pairs // A, pairs % A, np.asarray(env.reward).ravel())

    @property
    def block_size(self) -> int:
        """As many as take at most `BLOCK_STEPS` steps."""
        return max(1, BLOCK_STEPS // self.problem.sampling_horizon())

    def block(
        self, policy: Policy, key: Key[Array, ""], first: int | Int[Array, ""], stop: int | Int[Array, ""], n: int
    ) -> "CompiledBatch":
        """Trajectories number `first` to `first + n`; those from number `stop` on are empty."""
        env, table = _table(self.problem), _logits(policy)
        horizon = self.problem.sampling_horizon()
        log_probs = jax.nn.log_softmax(table)
        sizes = [jax.ShapeDtypeStruct((length,), jnp.int32) for length in (n * horizon, n, n)]
        events, lengths, finals = kernels.call(
            "sample",
            table.dtype,
            sizes,
            jnp.asarray(env.successors, jnp.int32),
            jnp.asarray(env.thresholds, table.dtype),
            jnp.asarray(env.initial_thresholds, table.dtype),
            jnp.asarray(env.terminal),
            log_probs,
            jax.random.key_data(key)[:2],
            jnp.stack([jnp.asarray(first, jnp.int32), jnp.asarray(stop, jnp.int32)]),
            horizon=horizon,
        )
        return CompiledBatch(self, policy, log_probs, events, lengths, finals, 0, n)


class CompiledBatch(Block):
    """Trajectories `start` to `stop` of those that lie here as lists of events, in the order of the kernel."""

    sampler: CompiledSampler
    policy: Policy
    log_probs: Float[Array, "S A"]
    events: Int[Array, " steps"]
    lengths: Int[Array, " n"]
    finals: Int[Array, " n"]
    start: int = eqx.field(static=True)
    stop: int = eqx.field(static=True)

    def occupancy(self, target: Policy | None = None) -> Float[Array, " d"]:
        """What `estimators.occupancy` estimates."""
        dtype, (S, A, K) = self.log_probs.dtype, self._shape
        outputs = [jax.ShapeDtypeStruct((length,), dtype) for length in (S * A * K, S)]
        mass, tail = self._ask("occupancy", target, outputs, absorbing=self._absorbing)
        size = self.sampler.problem.size
        total = self.sampler.counts.total(mass, size)
        if self._absorbing:
            probs = jnp.exp(self._target(target))
            total = total + self.sampler.end_counts.total((probs * tail[:, None]).ravel(), size)
        return total

    def gradient(
        self, quasi_reward: Float[Array, " d"], target: Policy | None = None, baseline: Baseline = "none"
    ) -> Policy:
        """What `estimators.gradient` estimates: d/d theta[s, a] of log pi(b|s) is 1[a = b] - pi(a|s)."""
        dtype, (S, A, _) = self.log_probs.dtype, self._shape
        probs = jnp.exp(self._target(target))
        payoff = self.sampler.counts.inner(quasi_reward).astype(dtype)
        end_payoff = self.sampler.end_counts.inner(quasi_reward).astype(dtype).reshape(S, A)
        end_value = jnp.sum(probs * end_payoff, 1)
        outputs = [jax.ShapeDtypeStruct((length,), dtype) for length in (S * A, S)]
        settings: dict[str, Any] = {"absorbing": self._absorbing, "baseline": baseline == "mean"}
        earned, tail = self._ask("gradient", target, outputs, payoff, end_value, **settings)
        earned = earned.reshape(S, A)
        slope = earned - probs * earned.sum(1, keepdims=True)
        if self._absorbing:
            slope = slope + tail[:, None] * probs * (end_payoff - end_value[:, None])
        return Tabular(slope)

    def quasi_reward(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """See `Problem.quasi_reward`."""
        return self.sampler.problem.quasi_reward(occupancy)

    def statistics(self, target: Policy | None = None) -> Statistics:
        """Averages over the trajectories."""
        return self.tally(target).statistics(self.stop - self.start)

    def tally(self, target: Policy | None = None) -> Tally:
        """Sums over the trajectories that took a step."""
        dtype = self.log_probs.dtype
        rewards = jnp.asarray(_table(self.sampler.problem).outcome_rewards, dtype).ravel()
        output = jax.ShapeDtypeStruct((5,), dtype)
        sums = self._ask("tally", target, output, rewards, largest_squared=LARGEST_SQUARED)
        return Tally(sums[0], sums[1], self.lengths[self.start : self.stop].sum(), sums[2], sums[3], sums[4])

    def halves(self) -> tuple[Batch, Batch]:
        """The first and the second half of the trajectories."""
        half = half_of(self.stop - self.start)
        middle = self.start + half
        return replace(self, stop=middle), replace(self, start=middle)

    @property
    def _shape(self) -> tuple[int, int, int]:
        S, A, K = _table(self.sampler.problem).successors.shape
        return S, A, K

    @property
    def _absorbing(self) -> bool:
        return self.sampler.problem.termination == "absorbing"

    def _target(self, target: Policy | None) -> Float[Array, "S A"]:
        """The log-probabilities of a target; those of the policy that acted need not be computed again."""
        return self.log_probs if self._acted(target) else jax.nn.log_softmax(_logits(target))

    def _acted(self, target: Policy | None) -> bool:
        return target is None or target is self.policy

    def _ask(self, name: str, target: Policy | None, outputs: Any, *tables: Array, **settings: Any) -> Any:
        problem = self.sampler.problem
        return kernels.call(
            name,
            self.log_probs.dtype,
            outputs,
            self.events,
            self.lengths,
            self.finals,
            jnp.asarray(_table(problem).terminal),
            self._target(target),
            self.log_probs,
            *tables,
            begin=self.start,
            end=self.stop,
            horizon=problem.sampling_horizon(),
            outcomes=self._shape[2],
            discount=problem.discount,
            on_policy=self._acted(target),
            **settings,
        )


def make_sampler(problem: Problem, policy: Policy, engine: Engine = "auto") -> Sampler:
    """The fastest sampler for a problem and policies like this one, or the plain one for engine "jax"."""
    if engine not in get_args(Engine):
        raise unknown("engine", engine, get_args(Engine))
    fitting = isinstance(problem.env, TabularMDP) and type(policy) is Tabular and jax.default_backend() == "cpu"
    if engine == "jax" or not fitting:
        return DeviceSampler(problem)
    reason = kernels.missing()
    if reason:
        warnings.warn(f"the compiled kernel is not used, and plain JAX is slower: {reason}.", stacklevel=2)
        return DeviceSampler(problem)
    return CompiledSampler(problem)


def _counts(
    problem: Problem, states: Int[np.ndarray, " n"], actions: Int[np.ndarray, " n"], rewards: Float[np.ndarray, " n"]
) -> Count:
    return jax.vmap(problem.count)(
        jnp.asarray(states, jnp.int32), jnp.asarray(actions, jnp.int32), jnp.asarray(rewards, jnp.result_type(float))
    )


def _table(problem: Problem) -> TabularMDP:
    """The environment, which is known to be a table."""
    if not isinstance(problem.env, TabularMDP):
        raise ValueError(f"the compiled kernel samples tables, got {type(problem.env).__name__}.")
    return problem.env


def _logits(policy: Policy | None) -> Float[Array, "S A"]:
    """The table of a policy, which is known to be one."""
    if not isinstance(policy, Tabular):
        raise ValueError(f"the compiled kernel takes tabular policies, got {type(policy).__name__}.")
    return policy.table
