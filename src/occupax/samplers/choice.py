"""Samplers by name."""

from typing import Any

from occupax._errors import unknown
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.samplers.base import Sampler
from occupax.samplers.host import Host
from occupax.samplers.kernel import Kernel, program_sampler
from occupax.samplers.plain import Jax
from occupax.samplers.ray import Ray

SAMPLERS = {"jax": Jax, "kernel": Kernel, "host": Host, "ray": Ray}


def choose_sampler(sampler: Sampler | str, problem: Problem, policy: Policy) -> Sampler:
    """The sampler that a name stands for.

    Args:
        sampler: a sampler, or the name of one: "jax", "kernel", "host", "ray", or "auto", which is the host for
            environments of Gymnasium, the kernel where it can be used, and plain JAX otherwise.
        problem: what is to be sampled.
        policy: a policy like those that will act.

    Returns:
        The sampler.
    """
    given: Any = sampler
    if isinstance(given, Sampler):
        return given
    if given == "auto":
        return Host() if isinstance(problem.env, GymnasiumEnv) else program_sampler(problem, policy)
    if not isinstance(given, str):
        raise ValueError(f"sampler must be a sampler such as occupax.samplers.Host(...), or a name, got {given!r:.60}.")
    if given not in SAMPLERS:
        raise unknown("sampler", given, ["auto", *SAMPLERS])
    return SAMPLERS[given]()
