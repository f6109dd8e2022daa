"""Check of environments: faults, where they occur, and how to fix them.

* `environment`: plays random episodes of Gymnasium and checks all results.
* `jax_environment`: traces and plays an environment in JAX.
"""

from typing import Any

from occupax.envs.issues import EnvIssue, Issues
from occupax.errors import check_integer, check_number

__all__ = ["EnvIssue", "check_env"]


def check_env(
    env: Any, episodes: int = 5, seed: int = 0, max_steps: int = 1000, timeout: float = 10.0
) -> tuple[EnvIssue, ...]:
    """Check the spaces of an environment, and play random episodes, each of them twice.

    An environment in JAX must be made of pure functions that can be compiled, preserve the shapes
    and types of its state, and never reset itself at the end of an episode.

    Nothing is printed, and a fault of the environment is an issue, not an exception. Each kind of
    issue is reported once, at its first occurrence. Episode i depends on (seed, i) alone. The
    environment is called from a thread of its own, which is left behind if it hangs.

    Args:
        env: a Gymnasium id, an environment, or a function that makes one; or an environment in JAX,
            by its class, a name of gymnax such as "gymnax/CartPole-v1", or as an object; or an
            object with the functions of gymnax and its `default_params`. Environments made here are
            closed at the end.
        episodes: number of episodes, by default 5.
        seed: seed of the environment and the actions.
        max_steps: number of steps after which episodes are truncated; an environment with longer
            episodes should have a time limit.
        timeout: number of seconds that each call of the environment may take; a longer call ends
            the check.

    Returns:
        The issues; an empty tuple if there are none.

    Raises:
        ValueError: if an argument is invalid.
    """
    # these modules import Gymnasium, which is slow
    from occupax.envs.base import Environment
    from occupax.envs.check.environment import check_gymnasium
    from occupax.envs.check.jax_environment import check_in_jax
    from occupax.envs.gymnax import PREFIX, GymnaxEnv
    from occupax.envs.gymnax_functions import is_like_gymnax

    episodes = check_integer("episodes", episodes)
    seed = check_integer("seed", seed, minimum=0)
    max_steps = check_integer("max_steps", max_steps)
    issues = Issues(check_number("timeout", timeout, low=0.0, open_low=True))
    if isinstance(env, str) and env.startswith(PREFIX):
        env = GymnaxEnv(env.removeprefix(PREFIX))
    is_class = isinstance(env, type) and issubclass(env, Environment)
    if is_class or isinstance(env, Environment) or is_like_gymnax(env):
        return check_in_jax(env, episodes, seed, max_steps, issues)
    return check_gymnasium(env, episodes, seed, max_steps, issues)
