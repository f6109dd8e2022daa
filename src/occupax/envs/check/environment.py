"""Whether a Gymnasium environment is fit for training: what is wrong with it, where, and how to mend it."""

import contextlib
import copy
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from occupax._errors import check_integer, check_number
from occupax.envs.base import Environment
from occupax.envs.check.episodes import EpisodeChecker, place, same
from occupax.envs.check.findings import BrokenError, Finding, Findings, kind, text
from occupax.envs.check.observations import check_space
from occupax.envs.episode import episode_seeds, time_limit
from occupax.envs.lookup import not_made

SEEDED = "call super().reset(seed=seed) in reset, and draw every random number from self.np_random."


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
            actual = f"an object of type {type(made).__name__}"
            remedy = "let its class inherit from gymnasium.Env; check the environments of a vector one by one."
            findings.refuse("env is no Gymnasium environment", "a gymnasium.Env", actual, "env", remedy)
        try:
            _check(made, episodes, seed, max_steps, findings)
        finally:
            if made is not env:
                _close(made, findings)

    with warnings.catch_warnings():  # not in the thread that may be left behind: the filters are those of all threads
        # Gymnasium warns of some of what is found here, and of old versions; its import, above, sets its own filters
        warnings.simplefilter("ignore")
        return findings.collect(check)


def _make(env: Any, findings: Findings) -> Any:
    """Make the environment of an id or a function, and return an environment as it is."""
    if isinstance(env, str):
        return _make_id(env, findings)
    if isinstance(env, type) or (callable(env) and not hasattr(env, "step")):
        name = getattr(env, "__name__", type(env).__name__)
        remedy = "call it yourself to see all of the error; it must work without arguments."
        return findings.call(env, "making the environment", f"{name}()", remedy)
    if not hasattr(env, "step") or isinstance(env, Environment):
        kinds = "a Gymnasium id, a Gymnasium environment or a function that makes one"
        raise ValueError(f"env must be {kinds}, got {text(env)}.")
    return env


def _make_id(name: str, findings: Findings) -> Any:
    """Make without Gymnasium's own checks, which would raise some of what is found here as errors."""
    import gymnasium as gym

    def make() -> Any:
        return gym.make(name, disable_env_checker=True)

    remedy = "call it yourself to see all of the error."
    try:
        return findings.call(make, "making the environment", f"gymnasium.make({name!r})", remedy)
    except BrokenError as broken:
        error = broken.__cause__
        # a name that is not known, of the wrong form or no longer offered, or one in a module that is not there
        refused = type(error) in (gym.error.Error, gym.error.DeprecatedEnv, ModuleNotFoundError)
        if error is not None and (refused or isinstance(error, gym.error.UnregisteredEnv)):
            raise not_made(name, error) from error
        raise


def _close(env: Any, findings: Findings) -> None:
    with contextlib.suppress(BrokenError):
        findings.call(env.close, "close", "env.close()", "let close do nothing if there is nothing to close.")


def _check(env: Any, episodes: int, seed: int, max_steps: int, findings: Findings) -> None:
    actions = _space(env, "action_space", findings)
    observations = _space(env, "observation_space", findings)
    _check_actions(actions, findings)
    findings.add(*check_space(observations))
    checker = EpisodeChecker(env, observations, findings)
    key = np.asarray(jax.random.key_data(jax.random.key(seed)))
    for number, of_env in enumerate(episode_seeds(key, 0, episodes)):
        with contextlib.suppress(BrokenError):
            draw = _drawing(actions, of_env + 1, findings)
            first = checker.play(number, of_env, (draw() for _ in range(max_steps)))
            if not first.ended:
                _check_limit(env, f"episode {number}, seed {of_env}", max_steps, findings)
            again = checker.play(number, of_env, first.actions)
            _compare(number, of_env, first.returned, again.returned, findings)


def _space(env: Any, name: str, findings: Findings) -> Any:
    import gymnasium as gym

    remedy = f"set self.{name} to a gymnasium.spaces.Space in __init__."
    space = findings.call(lambda: getattr(env, name), name, f"env.{name}", remedy)
    if not isinstance(space, gym.Space):
        findings.refuse(f"{name} is no space", "a Gymnasium space", kind(space), f"env.{name}", remedy)
    return space


def _drawing(space: Any, seed: int, findings: Findings) -> Callable[[], Any]:
    """Draws actions without touching the random numbers of the environment's own space."""

    def call(function: Callable[[], Any], where: str) -> Any:
        remedy = "let copies of the space be seeded and sampled."
        return findings.call(function, "sampling the action space", where, remedy)

    drawn = call(lambda: copy.deepcopy(space), "copy.deepcopy(env.action_space)")
    call(lambda: drawn.seed(seed), f"env.action_space.seed({seed})")
    return lambda: call(drawn.sample, "env.action_space.sample()")


def _check_actions(space: Any, findings: Findings) -> None:
    """Any Discrete will do: policies number the actions from 0, and `start` is added to what they draw."""
    import gymnasium as gym

    if not isinstance(space, gym.spaces.Discrete):
        remedy = (
            "choose from a list: gymnasium.wrappers.TransformAction(env, lambda i: actions[i], "
            "gymnasium.spaces.Discrete(len(actions)))."
        )
        what, expected = "action_space is not discrete", "Discrete(n), with any start"
        findings.add(Finding("error", what, expected, text(space), "env.action_space", remedy))


def _check_limit(env: Any, where: str, steps: int, findings: Findings) -> None:
    """Warn of an episode that has not ended, unless a limit was still to come."""
    declared = getattr(env.unwrapped.spec, "max_episode_steps", None)
    if time_limit(env) is None and (declared is None or declared <= steps):
        what, expected = "an episode does not end", "terminated or truncated, or a time limit"
        actual = f"no end after {steps:,} steps, and no time limit"
        remedy = "wrap it: gymnasium.wrappers.TimeLimit(env, max_episode_steps=...), or give the problem a horizon=."
        findings.add(Finding("warning", what, expected, actual, where, remedy))


def _compare(number: int, seed: int, first: list[Any], again: list[Any], findings: Findings) -> None:
    """Compare two plays of the same seed and actions, up to the first difference."""
    for step, (one, other) in enumerate(zip(first, again, strict=False)):
        if not same(one, other):
            what = f"{'step' if step else 'reset'} is not deterministic"
            expected = f"for the same seed{' and actions' if step else ''} the same as before, {text(one)}"
            findings.add(Finding("error", what, expected, text(other), place(number, seed, step), SEEDED))
            return
