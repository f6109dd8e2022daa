"""Sampling outside of JAX: environments of Gymnasium."""

from jaxtyping import Array, Int, Key

from occupax.envs.gymnasium import GymnasiumEnv
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.samplers.base import Sampler
from occupax.samplers.engine import Engine
from occupax.samplers.episodes import EpisodeRunner
from occupax.samplers.network import NetworkBatch
from occupax.samplers.sampled import SampledBatch


class HostSampler(Sampler):
    """Draws trajectories of a Gymnasium environment; it cannot be part of a compiled program."""

    problem: Problem
    engine: Engine
    player: EpisodeRunner

    def __init__(self, problem: Problem, engine: Engine, envs: int = 8, processes: bool = False, timeout: float = 60.0):
        """Nothing runs yet.

        Args:
            problem: of a Gymnasium environment.
            engine: how the trajectories are estimated from; see `choose_engine`.
            envs: how many environments run at once.
            processes: whether each runs in a process of its own.
            timeout: how many seconds a step of all of them may take.
        """
        if not isinstance(problem.env, GymnasiumEnv):
            raise ValueError(f"problem must have a GymnasiumEnv, got {type(problem.env).__name__}.")
        self.problem, self.engine = problem, engine
        self.player = EpisodeRunner(problem.env, envs, processes, timeout)

    @property
    def block_size(self) -> int:
        """Batches are held in memory as a whole, because to draw them again would take long."""
        return 2**31 - 1

    def block(
        self, policy: Policy, key: Key[Array, ""], first: int | Int[Array, ""], stop: int | Int[Array, ""], n: int
    ) -> SampledBatch:
        """Trajectories number `first` to `first + n`; those from number `stop` on are empty."""
        drawn = self.player.draw(policy, key, int(first), int(stop), n, self.problem.sampling_horizon())
        batch = NetworkBatch if self.engine == "compiled" else SampledBatch
        return batch(self.problem, drawn, policy)
