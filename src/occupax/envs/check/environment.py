"""Whether a Gymnasium environment is fit for training: what is wrong with it, where, and how to mend it."""

import contextlib
import copy
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from occupax._errors import check_integer, check_number
from occupax.envs.base import Environment
from occupax.envs.check.episodes import EpisodeChecker, place, same
from occupax.envs.check.findings import BrokenError, Finding, Findings, found, kind, text
from occupax.envs.check.observations import check_space
from occupax.envs.episode import episode_seeds, time_limit
from occupax.envs.lookup import not_made


def check_env(
    env: Any, episodes: int = 5, seed: int = 0, max_steps: int = 1000, timeout: float = 10.0
) -> tuple[Finding, ...]:
    """Check an environment by looking at its spaces and playing random episodes, each of them twice.

    Nothing is printed, and what an environment does wrong ends in a finding, not in an error. Each kind of finding is
    reported once, where it was met first. Episode i depends on (seed, i) alone. The environment is called from a thread
    of its own, which is left behind if it hangs.

    Args:
        env: a Gymnasium id, an environment, or a function that makes one. What is made here is closed in the end.
        episodes: how many.
        seed: of the environment and the actions.
        max_steps: where episodes are cut; one that has not ended by then should have a time limit.
        timeout: how many seconds each call of the environment may take; one that takes longer ends the check.

    Returns:
        The findings; none if all is well.
    """
    import gymnasium as gym

    episodes, seed = check_integer("episodes", episodes), check_integer("seed", seed, minimum=0)
    max_steps = check_integer("max_steps", max_steps)
    findings = Findings(check_number("timeout", timeout, low=0.0, open_low=True))

    def check() -> None:
        made = _make(env, findings)
        if not isinstance(made, gym.Env):
            findings.refuse("no_environment", f"an object of type {type(made).__name__}", "env")
        try:
            _check(made, episodes, seed, max_steps, findings)
        finally:
            if made is not env:
                with contextlib.suppress(BrokenError):
                    remedy = "let close do nothing if there is nothing to close."
                    findings.call(made.close, "close", "env.close()", remedy)

    with warnings.catch_warnings():  # not in the thread that may be left behind: the filters are those of all threads
        # Gymnasium warns of some of what is found here, and of old versions; its import, above, sets its own filters
        warnings.simplefilter("ignore")
        return findings.collect(check)


def _make(env: Any, findings: Findings) -> Any:
    """Make the environment of an id or a function, and return an environment as it is."""
    import gymnasium as gym

    remedy = "call it yourself to see all of the error"
    if isinstance(env, str):  # without Gymnasium's own checks, which would raise some of what is found here as errors
        make, where = partial(gym.make, env, disable_env_checker=True), f"gymnasium.make({env!r})"
    elif isinstance(env, type) or (callable(env) and not hasattr(env, "step")):
        make, where = env, f"{getattr(env, '__name__', type(env).__name__)}()"
        remedy += "; it must work without arguments"
    elif hasattr(env, "step") and not isinstance(env, Environment):
        return env
    else:
        kinds = "a Gymnasium id, a Gymnasium environment or a function that makes one"
        raise ValueError(f"env must be {kinds}, got {text(env)}.")
    try:
        return findings.call(make, "making the environment", where, f"{remedy}.")
    except BrokenError as broken:
        error = broken.__cause__
        # a name that is not known, of the wrong form or no longer offered, or one in a module that is not there
        refused = type(error) in (gym.error.Error, gym.error.DeprecatedEnv, ModuleNotFoundError)
        if isinstance(env, str) and error and (refused or isinstance(error, gym.error.UnregisteredEnv)):
            raise not_made(env, error) from error
        raise


def _check(env: Any, episodes: int, seed: int, max_steps: int, findings: Findings) -> None:
    import gymnasium as gym

    actions, observations = (_space(env, name, findings) for name in ("action_space", "observation_space"))
    if not isinstance(actions, gym.spaces.Discrete):  # any start will do: it is added to what policies draw
        findings.add(found("actions_not_discrete", text(actions), "env.action_space"))
    findings.add(*check_space(observations))
    checker = EpisodeChecker(env, observations, findings)
    key = np.asarray(jax.random.key_data(jax.random.key(seed)))
    for number, of_env in enumerate(episode_seeds(key, 0, episodes)):
        with contextlib.suppress(BrokenError):
            draw = _drawing(actions, of_env + 1, findings)
            first, taken, ended = checker.play(number, of_env, (draw() for _ in range(max_steps)))
            spec = env.unwrapped.spec
            if not ended and time_limit(env) is None and (getattr(spec, "max_episode_steps", 0) or 0) <= max_steps:
                actual = f"no end after {max_steps:,} steps, and no time limit"
                findings.add(found("no_end", actual, f"episode {number}, seed {of_env}"))
            again, _, _ = checker.play(number, of_env, taken)
            for step, (one, other) in enumerate(zip(first, again, strict=False)):
                if not same(one, other):
                    name = f"{'step' if step else 'reset'}_not_deterministic"
                    findings.add(found(name, text(other), place(number, of_env, step), before=text(one)))
                    break


def _space(env: Any, name: str, findings: Findings) -> Any:
    import gymnasium as gym

    remedy = f"set self.{name} to a gymnasium.spaces.Space in __init__."
    space = findings.call(lambda: getattr(env, name), name, f"env.{name}", remedy)
    if not isinstance(space, gym.Space):
        findings.refuse("no_space", kind(space), f"env.{name}", name=name)
    return space


def _drawing(space: Any, seed: int, findings: Findings) -> Callable[[], Any]:
    """Draws actions without touching the random numbers of the environment's own space."""

    def call(function: Callable[[], Any], where: str) -> Any:
        remedy = "let copies of the space be seeded and sampled."
        return findings.call(function, "sampling the action space", where, remedy)

    drawn = call(lambda: copy.deepcopy(space), "copy.deepcopy(env.action_space)")
    call(lambda: drawn.seed(seed), f"env.action_space.seed({seed})")
    return lambda: call(drawn.sample, "env.action_space.sample()")
