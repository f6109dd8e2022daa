"""Sampling batch by batch in this process, outside of the compiled program."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Key

from occupax.batches.batch import Batch
from occupax.batches.network import NetworkScorer
from occupax.batches.parted import PartedBatch, Path, Shard, Shards, compiled_answers, split
from occupax.batches.queries import Query
from occupax.batches.sampled import SampledBatch
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.errors import check_integer, check_number
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.samplers.base import Sampler, Source
from occupax.samplers.episodes import EpisodeRunner, number_of_processes
from occupax.samplers.kernel import Engine, Kernel, program_sampler
from occupax.samplers.program import NumberedTrajectories, ProgramSource
from occupax.scoring import PolicyScorer, Scorer


@dataclass(frozen=True)
class Host(Sampler):
    """Samples in this process and, for environments of Gymnasium, in processes of their own.

    Args:
        envs: how many environments of Gymnasium run at once. It does not change the results.
        processes: in how many processes of their own they run, several in each; True is a process
            for each. It pays for environments that take a tenth of a millisecond a step or longer;
            by default they take turns in this process. It does not change the results.
        timeout: how many seconds a step of all of them may take before the training ends with an
            error.
        shards: in how many parts a batch is summed up. Equal shards give results that are equal to
            the last bit, whoever samples; others differ by rounding.
        engine: what computes the estimates (and draws, where the environment is one in JAX):
            "kernel", "jax", or "auto" for the kernel where it can be used.
    """

    envs: int = 8
    processes: bool | int = False
    timeout: float = 60.0
    shards: int = 1
    engine: Engine = "auto"

    def __post_init__(self) -> None:
        check_integer("envs", self.envs)
        check_integer("shards", self.shards)
        number_of_processes(self.processes, self.envs)
        check_number("timeout", self.timeout, low=0.0, open_low=True)

    def open(self, problem: Problem, policy: Policy) -> "HostSource":
        """Open a source. Environments of Gymnasium are made when they are needed."""
        inside = program_sampler(problem, policy, self.engine)
        if not isinstance(problem.env, GymnasiumEnv):
            return HostSource(problem, self.shards, inside.open(problem, policy))
        runner = EpisodeRunner(problem.env, self.envs, self.processes, self.timeout)
        scorer = NetworkScorer() if isinstance(inside, Kernel) else PolicyScorer()
        return HostSource(problem, self.shards, runner, scorer)

    def random_numbers(self, problem: Problem, policy: Policy) -> str:
        """Return the name of the sampler in the program. For Gymnasium environments, "jax"."""
        if isinstance(problem.env, GymnasiumEnv):
            return "jax"
        return program_sampler(problem, policy, self.engine).random_numbers(problem, policy)


class HostSource(Source):
    """Source of batches in this process, by compiled programs or by Gymnasium episodes."""

    problem: Problem
    shards: int
    inside: ProgramSource | EpisodeRunner
    scorer: Scorer = eqx.field(default_factory=PolicyScorer)

    def draw(self, policy: Policy, n: int, key: Key[Array, ""]) -> Batch:
        """Draw all shards of a batch."""
        shards, size = split(n, self.shards)
        answers = {
            shard: compiled_answers(self.block(policy, key, shard, size)) for shard in shards
        }

        def compute(shards: tuple[Shard, ...], query: Query[Any], path: Path) -> list[Any]:
            return [answers[shard](query, path) for shard in shards]

        return PartedBatch(self.problem, Shards(shards, n, size, compute))

    def block(self, policy: Policy, key: Key[Array, ""], shard: Shard, size: int) -> Batch:
        """Draw the trajectories of a shard, with space for `size`."""
        if isinstance(self.inside, EpisodeRunner):
            horizon = self.problem.sampling_horizon()
            trajectories = self.inside.draw(policy, key, *shard, size, horizon)
            return SampledBatch(self.problem, trajectories, policy, self.scorer)
        first = jnp.asarray(shard.first)
        stop = jnp.asarray(shard.stop)
        return _draw(NumberedTrajectories(self.inside, policy, key, first, stop, size))

    def close(self) -> None:
        """End the environments."""
        if isinstance(self.inside, EpisodeRunner):
            self.inside.close()


@eqx.filter_jit
def _draw(numbers: NumberedTrajectories) -> Batch:
    return numbers.draw()
