"""Sampling batch by batch, in this process."""

from dataclasses import dataclass

from occupax._errors import check_integer, check_number
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.samplers.base import Sampler
from occupax.samplers.engine import Engine, choose_engine, make_sampler
from occupax.samplers.host import HostSampler
from occupax.samplers.shards import Answers, Inquiry, Pool, Shard, Worker


@dataclass(frozen=True)
class Host:
    """Samples in this process and, for environments of Gymnasium, in processes of their own.

    Args:
        envs: how many environments of Gymnasium run at once. It does not change the results.
        processes: whether each of them runs in a process of its own, which pays for environments that take about a
            millisecond a step or longer; otherwise they take turns in this one.
        timeout: how many seconds a step of all of them may take before the training ends with an error.
        shards: in how many parts a batch is summed up. Equal shards give results that are equal to the last bit,
            whoever samples.
    """

    envs: int = 8
    processes: bool = False
    timeout: float = 60.0
    shards: int = 1

    def __post_init__(self) -> None:
        check_integer("envs", self.envs)
        check_integer("shards", self.shards)
        check_number("timeout", self.timeout, low=0.0, open_low=True)

    def sampler(self, problem: Problem, policy: Policy, engine: Engine) -> Sampler:
        """What draws trajectories of a problem."""
        if isinstance(problem.env, GymnasiumEnv):
            chosen = choose_engine(problem, policy, engine)
            return HostSampler(problem, chosen, self.envs, self.processes, self.timeout)
        return make_sampler(problem, policy, engine)

    def open(self, problem: Problem, policy: Policy, engine: Engine) -> Pool:
        """Begin."""
        return _Local(self.sampler(problem, policy, engine), policy, self.shards)


def default_sampler(problem: Problem) -> Host | None:
    """Who samples a problem if nobody was chosen; nobody if the compiled program can."""
    return Host() if isinstance(problem.env, GymnasiumEnv) else None


class _Local(Pool):
    """One worker, in this process."""

    def __init__(self, sampler: Sampler, policy: Policy, shards: int):
        super().__init__(shards)
        self._sampler, self._worker = sampler, Worker(sampler, policy)

    def answers(self, tasks: list[tuple[Inquiry, Shard]]) -> list[Answers]:
        """One after the other."""
        return [self._worker.answer(*task) for task in tasks]

    def close(self) -> None:
        """End the environments."""
        if isinstance(self._sampler, HostSampler):
            self._sampler.player.close()
