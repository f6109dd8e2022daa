"""Sampling in pure JAX: usable inside jit and vmap."""

from contextlib import closing
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from occupax._errors import check_integer, check_key
from occupax.batch import Trajectories
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.policies import Policy, refuse_unless_fitting
from occupax.problem import Problem
from occupax.samplers.base import ProgramSource, Sampler
from occupax.samplers.batches.sampled import SampledBatch
from occupax.samplers.episodes import EpisodeRunner
from occupax.samplers.rollout import PlainActing, rollout

BLOCK_STEPS = 50_000


def sample(problem: Problem, policy: Policy, n: int, key: Key[Array, ""]) -> Trajectories:
    """Draw trajectories under a policy.

    Trajectory i depends on (key, i) alone, so the first ones of a larger batch are those of a smaller one.

    Args:
        problem: what to sample.
        policy: who acts.
        n: how many trajectories.
        key: of the random numbers.

    Returns:
        The trajectories, as long as the horizon of the problem.
    """
    if not isinstance(problem, Problem):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"problem must be an occupax.Problem, got {type(problem).__name__}.")
    n = check_integer("n", n)
    check_key(key)
    problem.sampling_horizon()
    refuse_unless_fitting(policy, problem.env)
    if isinstance(problem.env, GymnasiumEnv):
        with closing(EpisodeRunner(problem.env)) as runner:
            return runner.draw(policy, key, 0, n, n, problem.sampling_horizon())
    return trajectories(problem, policy, jnp.arange(n), key)


@eqx.filter_jit
def trajectories(problem: Problem, policy: Policy, numbers: Int[Array, " n"], key: Key[Array, ""]) -> Trajectories:
    """The trajectories of these numbers out of all those that `key` stands for."""
    return rollout(problem, PlainActing(policy), numbers, jnp.ones(numbers.shape, bool), key)


@dataclass(frozen=True)
class Jax(Sampler):
    """Samples in plain JAX, inside the compiled program: any environment in JAX, any policy, any device."""

    def open(self, problem: Problem, policy: Policy) -> "JaxSource":
        """Open a source; nothing is started."""
        return JaxSource(problem)

    def random_numbers(self, problem: Problem, policy: Policy) -> str:
        """Those of `jax.random`."""
        return "jax"


class JaxSource(ProgramSource):
    """Draws trajectories in plain JAX."""

    problem: Problem

    @property
    def block_size(self) -> int:
        """As many as take at most `BLOCK_STEPS` steps."""
        return max(1, BLOCK_STEPS // self.problem.sampling_horizon())

    def block(
        self, policy: Policy, key: Key[Array, ""], first: int | Int[Array, ""], stop: int | Int[Array, ""], n: int
    ) -> SampledBatch:
        """Draw trajectories number `first` to `first + n`; those from number `stop` on have no live step."""
        numbers = first + jnp.arange(n)
        drawn = rollout(self.problem, PlainActing(policy), numbers, numbers < stop, key)
        return SampledBatch(self.problem, drawn, policy)
