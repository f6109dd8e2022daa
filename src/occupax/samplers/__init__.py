"""How trajectories are sampled.

* `base`: the abstract `Sampler`, and the `Source` of batches that it opens.
* `plain`, `kernel`: samplers inside the compiled program, in JAX (`Jax`), which has the simulation
  of episodes, with random keys that compile well in `fused_keys`; or C++ (`Kernel`), with the
  sources of the kernels in `tabular_kernel` and `network_kernel`.
* `host`, `ray`: samplers outside of it, in this process (`Host`) or on a cluster (`Ray`), with the
  episodes of Gymnasium in `episodes`, who draws their actions in `acting`, `processes` for
  environments in processes of their own, and `cluster` and `workers` for Ray.
* `stepped`: episodes of agents in environments in JAX, for `occupax.evaluate`.
* `blocks`, `shards`: batches in parts, inside of the program and outside of it.
"""

from typing import Any

from occupax.envs.gymnasium import GymnasiumEnv
from occupax.errors import unknown
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.samplers.base import ProgramSource, Sampler, Source
from occupax.samplers.episodes import EpisodeError
from occupax.samplers.host import Host
from occupax.samplers.kernel import Kernel, program_sampler
from occupax.samplers.plain import Jax, sample
from occupax.samplers.ray import Ray

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
    """The sampler that a name in any case stands for; one that is a sampler already is returned as it is.

    "auto" is the host for environments of Gymnasium, the kernel where it can be used, and plain JAX
    otherwise.
    """
    given: Any = sampler
    if isinstance(given, Sampler):
        return given
    if not isinstance(given, str):
        raise ValueError(
            f"sampler must be a sampler such as occupax.samplers.Host(...), or a name, got {given!r:.60}."
        )
    name = given.lower()
    if name == "auto":
        return Host() if isinstance(problem.env, GymnasiumEnv) else program_sampler(problem, policy)
    if name not in SAMPLERS:
        raise unknown("sampler", given, ["auto", *SAMPLERS])
    return SAMPLERS[name]()
