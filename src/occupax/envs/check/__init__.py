"""Whether an environment is fit for training: what is wrong with it, where, and how to mend it.

* `environment`: plays random episodes of Gymnasium and looks at all that is returned.
* `jax_environment`: traces and plays an environment in JAX.
* `observations`: what observations and their space must be like.
* `findings`: what is found, with its texts in `findings.toml`, and the calls that may raise or
  hang.
"""

from typing import Any

from occupax.envs.check.findings import Finding, Findings
from occupax.errors import check_integer, check_number

__all__ = ["Finding", "check_env"]


def check_env(
    env: Any, episodes: int = 5, seed: int = 0, max_steps: int = 1000, timeout: float = 10.0
) -> tuple[Finding, ...]:
    """Check an environment by looking at its spaces and playing random episodes, each of them twice.

    An environment in JAX must be made of pure functions that can be compiled, keep the shapes and
    types of its state, and leave the reset at the end of an episode to others.

    Nothing is printed, and what an environment does wrong ends in a finding, not in an error. Each
    kind of finding is reported once, where it was met first. Episode i depends on (seed, i) alone.
    The environment is called from a thread of its own, which is left behind if it hangs.

    Args:
        env: a Gymnasium id, an environment, or a function that makes one; or one in JAX, by its
            class, a name of gymnax such as "gymnax/CartPole-v1", or as it is; or one with the
            functions of gymnax and its `default_params`. What is made here is closed in the end.
        episodes: how many.
        seed: of the environment and the actions.
        max_steps: where episodes are cut; one that has not ended by then should have a time limit.
        timeout: how many seconds each call of the environment may take; one that takes longer ends
            the check.

    Returns:
        The findings; none if all is well.
    """
    from occupax.envs.base import Environment
    from occupax.envs.check.environment import check
    from occupax.envs.check.jax_environment import check_in_jax
    from occupax.envs.gymnax import PREFIX, GymnaxEnv
    from occupax.envs.gymnax_functions import is_like_gymnax

    episodes, seed = check_integer("episodes", episodes), check_integer("seed", seed, minimum=0)
    max_steps = check_integer("max_steps", max_steps)
    findings = Findings(check_number("timeout", timeout, low=0.0, open_low=True))
    if isinstance(env, str) and env.startswith(PREFIX):
        env = GymnaxEnv(env.removeprefix(PREFIX))
    in_jax = issubclass(env, Environment) if isinstance(env, type) else isinstance(env, Environment)
    in_jax = in_jax or is_like_gymnax(env)
    return (check_in_jax if in_jax else check)(env, episodes, seed, max_steps, findings)
