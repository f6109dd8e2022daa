"""Check of Gymnasium environments by random episodes."""

import contextlib
import copy
import math
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NoReturn

import gymnasium as gym
import jax
import numpy as np

from occupax.envs.episode import (
    Episode,
    EpisodeFailedError,
    StructureError,
    episode_seeds,
    read_number,
    time_limit,
)
from occupax.envs.gymnasium_actions import read_actions
from occupax.envs.issues import (
    EnvIssue,
    Issues,
    StopCheckError,
    describe,
    describe_with_type,
    episode_step,
    make_issue,
    raised_issue,
)
from occupax.envs.lookup import make_error
from occupax.envs.observation_checks import check_observation, check_space

MAX_ACTIONS = 30
"""Largest number of actions in the words that repeat an episode."""


def check_gymnasium(
    source: Any, episodes: int, seed: int, max_steps: int, issues: Issues
) -> tuple[EnvIssue, ...]:
    """Play random episodes of at most `max_steps` steps, each of them twice. See `check_env`."""

    def work() -> None:
        env = _make(source, issues)
        if not isinstance(env, gym.Env):
            actual = f"an object of type {type(env).__name__}"
            issues.stop(make_issue("no_environment", actual, "env"))
        try:
            _check(env, episodes, seed, max_steps, issues)
        except (SystemExit, KeyboardInterrupt) as error:  # raised by values when they are read
            remedy = "return plain numbers and arrays."
            issues.add(raised_issue(error, "reading what was returned", "env", remedy))
        finally:
            if env is not source:
                remedy = "let close do nothing if there is nothing to close."
                with contextlib.suppress(StopCheckError):
                    issues.call(env.close, "close", "env.close()", remedy)

    # Gymnasium warns about some issues and about old versions. The filters are those of all
    # threads, so the thread that may be left behind must not set them.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return issues.collect(work)


def _make(source: Any, issues: Issues) -> Any:
    """Make an environment of an id or a function. Return an environment unchanged."""
    remedy = "call it yourself to see all of the error"
    if isinstance(source, str):  # Gymnasium's own checks would raise some of the issues
        make: Any = partial(gym.make, source, disable_env_checker=True)
        where = f"gymnasium.make({source!r})"
    elif isinstance(source, type) or (callable(source) and not hasattr(source, "step")):
        make = source
        where = f"{getattr(source, '__name__', type(source).__name__)}()"
        remedy += "; it must work without arguments"
    elif hasattr(source, "step"):
        return source
    else:
        raise ValueError(
            "env must be a Gymnasium id, a Gymnasium environment or a function that makes one, "
            f"got {describe(source)}."
        )
    try:
        return issues.call(make, "making the environment", where, f"{remedy}.")
    except StopCheckError as stop:
        error = stop.__cause__
        # an unknown id, or one of the wrong form, no longer offered, or in a missing module
        is_lookup_error = isinstance(error, gym.error.UnregisteredEnv) or type(error) in (
            gym.error.Error,
            gym.error.DeprecatedEnv,
            ModuleNotFoundError,
        )
        if isinstance(source, str) and error is not None and is_lookup_error:
            raise make_error(source, error) from error
        raise


def _check(env: Any, episodes: int, seed: int, max_steps: int, issues: Issues) -> None:
    """Check the spaces, then play all episodes."""
    actions = _read_space(env, "action_space", issues)
    observations = _read_space(env, "observation_space", issues)
    if read_actions(actions) is None:
        issues.add(make_issue("kind_of_actions", describe(actions), "env.action_space"))
    issues.add(*check_space(observations))
    checker = _EpisodeChecker(env, observations, issues)
    key = np.asarray(jax.random.key_data(jax.random.key(seed)))
    for episode, env_seed in enumerate(episode_seeds(key, 0, episodes)):
        with contextlib.suppress(StopCheckError):
            draw = _action_sampler(actions, env_seed + 1, issues)
            samples = (draw() for _ in range(max_steps))
            results, taken, has_ended = checker.play(episode, env_seed, samples)
            if not has_ended and not _has_time_limit(env, max_steps):
                actual = f"no end after {max_steps:,} steps, and no time limit"
                issues.add(make_issue("no_end", actual, f"episode {episode}, seed {env_seed}"))
            repeated, _, _ = checker.play(episode, env_seed, taken)
            _compare_results(results, repeated, episode, env_seed, issues)


def _has_time_limit(env: Any, max_steps: int) -> bool:
    """Return whether a wrapper truncates episodes, or the spec has a limit above `max_steps`."""
    spec_limit = getattr(env.unwrapped.spec, "max_episode_steps", None) or 0
    return time_limit(env) is not None or spec_limit > max_steps


def _compare_results(
    results: list[Any], repeated: list[Any], episode: int, seed: int, issues: Issues
) -> None:
    """Report the first step at which two episodes of the same seed and actions differ."""
    for step, (before, after) in enumerate(zip(results, repeated, strict=False)):
        if not _is_same(before, after):
            name = "step_not_deterministic" if step else "reset_not_deterministic"
            where = episode_step(episode, seed, step)
            issues.add(make_issue(name, describe(after), where, before=describe(before)))
            return


def _read_space(env: Any, name: str, issues: Issues) -> Any:
    remedy = f"set self.{name} to a gymnasium.spaces.Space in __init__."
    space = issues.call(lambda: getattr(env, name), name, f"env.{name}", remedy)
    if not isinstance(space, gym.Space):
        issues.stop(make_issue("no_space", describe_with_type(space), f"env.{name}", name=name))
    return space


def _action_sampler(space: Any, seed: int, issues: Issues) -> Callable[[], Any]:
    """Return a sampler of actions that leaves the generator of the environment's space alone."""

    def call(function: Callable[[], Any], where: str) -> Any:
        remedy = "let copies of the space be seeded and sampled."
        return issues.call(function, "sampling the action space", where, remedy)

    copied = call(lambda: copy.deepcopy(space), "copy.deepcopy(env.action_space)")
    call(lambda: copied.seed(seed), f"env.action_space.seed({seed})")
    return lambda: call(copied.sample, "env.action_space.sample()")


class _EpisodeChecker:
    """Player of episodes that adds to the issues. `StopCheckError` ends an episode."""

    def __init__(self, env: Any, space: Any, issues: Issues) -> None:
        self._env = env
        self._space = space
        self._issues = issues
        self._last: tuple[Any, Any, str] | None = None

    def play(
        self, number: int, seed: int, actions: Iterable[Any]
    ) -> tuple[list[Any], list[Any], bool]:
        """Play as long as there are actions.

        Returns:
            Copies of the results, the actions, and whether the episode has ended.
        """
        episode = Episode(self._env, seed)
        where = episode_step(number, seed)
        taken: list[Any] = []
        observation, info = self._call(episode, where, taken)
        self._check_info("reset", info, where)
        results: list[Any] = [self._check_observation(observation, where)]
        for step, action in enumerate(actions, 1):
            taken.append(action)
            where = f"{episode_step(number, seed, step)}, action {action}"
            observation, reward, terminated, truncated, info = self._call(episode, where, taken)
            self._check_flag("terminated", terminated, where)
            self._check_flag("truncated", truncated, where)
            self._check_reward(reward, where)
            self._check_info("step", info, where)
            copied = self._check_observation(observation, where)
            results.append((copied, _snapshot(reward), bool(terminated), bool(truncated)))
            if terminated or truncated:
                return results, taken, True
        return results, taken, False

    def _call(self, episode: Episode, where: str, actions: list[Any]) -> tuple[Any, ...]:
        """Reset, or take the last action. Report exceptions and results of a wrong structure."""
        name = "reset"
        repeat = f"env.reset(seed={episode.seed})"
        remedy = f"repeat it: {repeat}; reset must take the arguments seed and options."
        if actions:
            listed = ", ".join(map(str, actions[:MAX_ACTIONS]))
            more = " and so on" if len(actions) > MAX_ACTIONS else ""
            name = "step"
            repeat = f"{repeat}, then the actions {listed}{more}"
            remedy = f"repeat it: {repeat}."
        try:
            with self._issues.watch(name, where, repeat):
                return episode.step(actions[-1]) if actions else episode.begin()
        except StructureError as error:
            self._stop_for_structure(name, error.returned, where)
        except EpisodeFailedError as error:
            issue = raised_issue(error.__cause__, name, where, remedy)
            if actions and self._env.unwrapped is not self._env:
                inner = Episode(self._env.unwrapped, episode.seed)
                self._check_unwrapped(inner, actions[-1], where, issue)
            self._issues.add(issue)
            raise StopCheckError from error

    def _check_unwrapped(self, inner: Episode, action: Any, where: str, issue: EnvIssue) -> None:
        """Check the structure of a step without wrappers, whose errors would hide a wrong one."""
        name = "the environment inside of all wrappers"
        repeat = f"env.unwrapped.reset(seed={inner.seed}), then env.unwrapped.step({action})"
        try:
            with self._issues.watch(name, where, repeat, issue):
                inner.begin()
                inner.step(action)
        except EpisodeFailedError as error:  # exceptions are reported as seen from outside
            if inner.steps and isinstance(error, StructureError):
                self._stop_for_structure("step", error.returned, where)

    def _stop_for_structure(self, name: str, returned: Any, where: str) -> NoReturn:
        actual = describe_with_type(returned)
        if isinstance(returned, tuple):
            kinds = ", ".join(type(part).__name__ for part in returned)
            actual = f"{len(returned)} values ({kinds})"
            if len(returned) == 4:
                actual += "; that was the API before Gymnasium"
        self._issues.stop(make_issue(f"{name}_structure", actual, where))

    def _check_flag(self, name: str, flag: Any, where: str) -> None:
        if not isinstance(flag, bool | np.bool_):
            self._issues.stop(make_issue("flag", describe_with_type(flag), where, name=name))

    def _check_info(self, name: str, info: Any, where: str) -> None:
        if not isinstance(info, dict):
            self._issues.add(make_issue("info", describe_with_type(info), where, name=name))

    def _check_reward(self, reward: Any, where: str) -> None:
        space = getattr(self._env.unwrapped, "reward_space", None)
        if space is not None and np.ndim(reward):
            rewards = np.asarray(reward, space.dtype)
            self._issues.add(*check_observation(space, rewards, where, "reward"))
            return
        try:
            number = read_number(reward)
        except OverflowError:  # an integer beyond all floats
            number = math.inf
        except Exception:  # noqa: BLE001 - the conversion is that of the environment, and may raise anything
            number = 0.0
            self._issues.add(make_issue("reward_no_number", describe_with_type(reward), where))
        if not math.isfinite(number):
            self._issues.add(make_issue("reward_not_finite", describe(reward), where))

    def _check_observation(self, observation: Any, where: str) -> Any:
        """Check an observation, and that the previous one is unchanged. Return a copy."""
        if self._last is not None:
            previous, copied, origin = self._last
            current = _snapshot(previous)
            if not _is_same(copied, current):
                both = f"the observation of {origin}, at {where}"
                before = describe(copied)
                issue = make_issue("changed_later", describe(current), both, before=before)
                self._issues.add(issue)
        self._issues.add(*check_observation(self._space, observation, where))
        copied = _snapshot(observation)
        self._last = (observation, copied, where)
        return copied


def _snapshot(value: Any) -> Any:
    """Return a copy of a result. Of objects that are no numbers, the name of their type."""
    if isinstance(value, dict):
        return {key: _snapshot(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return tuple(_snapshot(entry) for entry in value)
    try:
        array = np.array(value)
    except Exception:  # noqa: BLE001 - the conversion is that of the environment, and may raise anything
        return type(value).__name__
    return type(value).__name__ if array.dtype == object else array


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two snapshots are bitwise identical, including NaN."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(one[key], other[key]) for key in one)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        is_same_type = one.dtype == other.dtype and one.shape == other.shape
        return is_same_type and one.tobytes() == other.tobytes()
    return type(one) is type(other) and one == other
