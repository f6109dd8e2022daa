"""Sampling of trajectories.

* `base`: the abstract `Sampler`, and the `Source` of batches that it opens.
* `program`: sources inside the compiled program, and batches in blocks or on several devices.
* `rollout`: sampling in JAX (`Jax`). Its random keys are in `fused_keys`.
* `kernel`: sampling by the compiled kernels (`Kernel`).
* `host`: sampling outside of the compiled program (`Host`). `episodes` runs Gymnasium environments,
  in the processes of `processes` if needed, and `action_selection` draws their actions.
* `ray`: sampling on a cluster (`Ray`), with the tasks of `workers`, the connection of `cluster` and
  the serialisation of `messages`.
* `agent_rollout`: episodes of agents in JAX environments, for `occupax.evaluate`.
"""

from typing import Any

from occupax.envs.gymnasium import GymnasiumEnv
from occupax.errors import unknown
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.samplers.base import Sampler, Source
from occupax.samplers.episodes import EpisodeError
from occupax.samplers.host import Host
from occupax.samplers.kernel import Kernel, program_sampler
from occupax.samplers.program import ProgramSource
from occupax.samplers.ray import Ray
from occupax.samplers.rollout import Jax, sample

__all__ = [
    "EpisodeError",
    "Host",
    "Jax",
    "Kernel",
    "ProgramSource",
    "Ray",
    "Sampler",
    "Source",
    "choose_sampler",
    "sample",
]

SAMPLERS = {"jax": Jax, "kernel": Kernel, "host": Host, "ray": Ray}


def choose_sampler(sampler: Sampler | str, problem: Problem, policy: Policy) -> Sampler:
    """Return the sampler of a name. A sampler is returned unchanged.

    "auto" is `Host` for Gymnasium environments, `Kernel` where it can be used, and `Jax` otherwise.

    Args:
        sampler: a sampler, or its name in any case.
        problem: the problem to sample.
        policy: a policy with the structure of all behaviour policies.

    Returns:
        The sampler.

    Raises:
        ValueError: if there is no sampler of the name.
    """
    choice: Any = sampler
    if isinstance(choice, Sampler):
        return choice
    if not isinstance(choice, str):
        allowed = "a sampler such as occupax.samplers.Host(...), or a name"
        raise ValueError(f"sampler must be {allowed}, got {choice!r:.60}.")
    name = choice.lower()
    if name == "auto":
        if isinstance(problem.env, GymnasiumEnv):
            return Host()
        return program_sampler(problem, policy)
    if name not in SAMPLERS:
        raise unknown("sampler", choice, ["auto", *SAMPLERS])
    return SAMPLERS[name]()
