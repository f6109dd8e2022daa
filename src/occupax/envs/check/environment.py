"""Plays random episodes of a Gymnasium environment to find out whether it is fit for training."""

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

from occupax.envs.check.findings import BrokenError, Finding, Findings, found, kind, raised, text
from occupax.envs.check.observations import check_observation, check_space
from occupax.envs.episode import (
    Episode,
    EpisodeFailedError,
    StructureError,
    episode_seeds,
    read_number,
    time_limit,
)
from occupax.envs.gymnasium_actions import read_actions
from occupax.envs.lookup import make_error


def check(
    env: Any, episodes: int, seed: int, max_steps: int, findings: Findings
) -> tuple[Finding, ...]:
    """Play `episodes` random episodes of at most `max_steps` steps, each of them twice; see `check_env`."""

    def work() -> None:
        made = _make(env, findings)
        if not isinstance(made, gym.Env):
            findings.refuse("no_environment", f"an object of type {type(made).__name__}", "env")
        try:
            _check(made, episodes, seed, max_steps, findings)
        except (
            SystemExit,
            KeyboardInterrupt,
        ) as error:  # what is returned may do anything when it is looked at
            findings.add(
                raised(
                    error, "reading what was returned", "env", "return plain numbers and arrays."
                )
            )
        finally:
            if made is not env:
                with contextlib.suppress(BrokenError):
                    remedy = "let close do nothing if there is nothing to close."
                    findings.call(made.close, "close", "env.close()", remedy)

    with (
        warnings.catch_warnings()
    ):  # not in the thread that may be left behind: the filters are those of all threads
        # Gymnasium warns of some of what is found here, and of old versions; its import, above,
        # sets its own filters
        warnings.simplefilter("ignore")
        return findings.collect(work)


def _make(env: Any, findings: Findings) -> Any:
    remedy = "call it yourself to see all of the error"
    if isinstance(
        env, str
    ):  # without Gymnasium's own checks, which would raise some of what is found here as errors
        make, where = partial(gym.make, env, disable_env_checker=True), f"gymnasium.make({env!r})"
    elif isinstance(env, type) or (callable(env) and not hasattr(env, "step")):
        make, where = env, f"{getattr(env, '__name__', type(env).__name__)}()"
        remedy += "; it must work without arguments"
    elif hasattr(env, "step"):
        return env
    else:
        kinds = "a Gymnasium id, a Gymnasium environment or a function that makes one"
        raise ValueError(f"env must be {kinds}, got {text(env)}.")
    try:
        return findings.call(make, "making the environment", where, f"{remedy}.")
    except BrokenError as broken:
        error = broken.__cause__
        # a name that is not known, of the wrong form or no longer offered, or one in a module that
        # is not there
        refused = type(error) in (gym.error.Error, gym.error.DeprecatedEnv, ModuleNotFoundError)
        if (
            isinstance(env, str)
            and error
            and (refused or isinstance(error, gym.error.UnregisteredEnv))
        ):
            raise make_error(env, error) from error
        raise


def _check(env: Any, episodes: int, seed: int, max_steps: int, findings: Findings) -> None:
    actions, observations = (
        _space(env, name, findings) for name in ("action_space", "observation_space")
    )
    if read_actions(actions) is None:
        findings.add(found("kind_of_actions", text(actions), "env.action_space"))
    findings.add(*check_space(observations))
    checker = _EpisodeChecker(env, observations, findings)
    key = np.asarray(jax.random.key_data(jax.random.key(seed)))
    for number, of_env in enumerate(episode_seeds(key, 0, episodes)):
        with contextlib.suppress(BrokenError):
            draw = _drawing(actions, of_env + 1, findings)
            first, taken, ended = checker.play(number, of_env, (draw() for _ in range(max_steps)))
            spec = env.unwrapped.spec
            if (
                not ended
                and time_limit(env) is None
                and (getattr(spec, "max_episode_steps", 0) or 0) <= max_steps
            ):
                actual = f"no end after {max_steps:,} steps, and no time limit"
                findings.add(found("no_end", actual, f"episode {number}, seed {of_env}"))
            again, _, _ = checker.play(number, of_env, taken)
            for step, (one, other) in enumerate(zip(first, again, strict=False)):
                if not _same(one, other):
                    name = f"{'step' if step else 'reset'}_not_deterministic"
                    findings.add(
                        found(name, text(other), _place(number, of_env, step), before=text(one))
                    )
                    break


def _space(env: Any, name: str, findings: Findings) -> Any:
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


def _place(number: int, seed: int, step: int = 0) -> str:
    return f"{f'step {step}' if step else 'reset'} of episode {number}, seed {seed}"


class _EpisodeChecker:
    """Plays episodes and adds to the findings; what cannot be gone on with ends an episode by a `BrokenError`."""

    def __init__(self, env: Any, space: Any, findings: Findings) -> None:
        self._env, self._space, self._findings = env, space, findings
        self._last: tuple[Any, Any, str] | None = None

    def play(
        self, number: int, seed: int, actions: Iterable[Any]
    ) -> tuple[list[Any], list[Any], bool]:
        """Play as long as there are actions; return copies of what was returned, the actions, and whether it ended."""
        episode, where, taken = Episode(self._env, seed), _place(number, seed), list[Any]()
        observation, info = self._call(episode, where, taken)
        self._check_info("reset", info, where)
        returned: list[Any] = [self._look_at(observation, where)]
        for step, action in enumerate(actions, 1):
            taken.append(action)
            where = f"{_place(number, seed, step)}, action {action}"
            observation, reward, terminated, truncated, info = self._call(episode, where, taken)
            for name, flag in (("terminated", terminated), ("truncated", truncated)):
                if not isinstance(flag, (bool, np.bool_)):
                    self._findings.refuse("flag", kind(flag), where, name=name)
            self._check_reward(reward, where)
            self._check_info("step", info, where)
            seen = self._look_at(observation, where)
            returned.append((seen, _snapshot(reward), bool(terminated), bool(truncated)))
            if terminated or truncated:
                return returned, taken, True
        return returned, taken, False

    def _call(self, episode: Episode, where: str, actions: list[Any]) -> tuple[Any, ...]:
        """Reset, or take the last of the actions; what is raised or is not of the right structure is a finding."""
        name, repeat = "reset", f"env.reset(seed={episode.seed})"
        remedy = f"repeat it: {repeat}; reset must take the arguments seed and options."
        if actions:
            shown = (
                f"{', '.join(map(str, actions[:30]))}{' and so on' if len(actions) > 30 else ''}"
            )
            name, repeat = "step", f"{repeat}, then the actions {shown}"
            remedy = f"repeat it: {repeat}."
        try:
            with self._findings.watch(name, where, repeat):
                return episode.step(actions[-1]) if actions else episode.begin()
        except StructureError as error:
            self._refuse_structure(name, error.returned, where)
        except EpisodeFailedError as error:
            finding = raised(error.__cause__, name, where, remedy)
            if actions and self._env.unwrapped is not self._env:
                self._check_inside(
                    Episode(self._env.unwrapped, episode.seed), actions[-1], where, finding
                )
            self._findings.add(finding)
            raise BrokenError from error

    def _check_inside(self, inner: Episode, action: Any, where: str, finding: Finding) -> None:
        """See what a step returns inside of all wrappers, whose own errors do not tell that it is not five values."""
        repeat = f"env.unwrapped.reset(seed={inner.seed}), then env.unwrapped.step({action})"
        try:
            with self._findings.watch(
                "the environment inside of all wrappers", where, repeat, finding
            ):
                inner.begin()
                inner.step(action)
        except (
            EpisodeFailedError
        ) as error:  # what is raised is reported as it came from the outside
            if inner.steps and isinstance(error, StructureError):
                self._refuse_structure("step", error.returned, where)

    def _refuse_structure(self, name: str, returned: Any, where: str) -> NoReturn:
        actual = kind(returned)
        if isinstance(returned, tuple):
            old = "; that was the API before Gymnasium" if len(returned) == 4 else ""
            actual = f"{len(returned)} values ({', '.join(type(part).__name__ for part in returned)}){old}"
        self._findings.refuse(f"{name}_structure", actual, where)

    def _check_info(self, name: str, info: Any, where: str) -> None:
        if not isinstance(info, dict):
            self._findings.add(found("info", kind(info), where, name=name))

    def _check_reward(self, reward: Any, where: str) -> None:
        declared = getattr(self._env.unwrapped, "reward_space", None)
        if declared is not None and np.ndim(reward):
            self._findings.add(
                *check_observation(declared, np.asarray(reward, declared.dtype), where, "reward")
            )
            return
        try:
            number = read_number(reward)
        except OverflowError:  # a whole number beyond all floats
            number = math.inf
        except Exception:  # noqa: BLE001 - the conversion is that of the environment, and may raise anything
            number = 0.0
            self._findings.add(found("reward_no_number", kind(reward), where))
        if not math.isfinite(number):
            self._findings.add(found("reward_not_finite", text(reward), where))

    def _look_at(self, observation: Any, where: str) -> Any:
        """Check an observation, and that the one before is still what it was; return a copy."""
        if self._last is not None:
            before, copied, origin = self._last
            now = _snapshot(before)
            if not _same(copied, now):
                both = f"the observation of {origin}, at {where}"
                self._findings.add(found("changed_later", text(now), both, before=text(copied)))
        self._findings.add(*check_observation(self._space, observation, where))
        copied = _snapshot(observation)
        self._last = (observation, copied, where)
        return copied


def _snapshot(value: Any) -> Any:
    """Copy what an environment returned; of what is made of no numbers only the name of its type remains."""
    if isinstance(value, dict):
        return {key: _snapshot(entry) for key, entry in value.items()}
    if isinstance(value, (tuple, list)):
        return tuple(_snapshot(entry) for entry in value)
    try:
        array = np.array(value)
    except Exception:  # noqa: BLE001 - the conversion is that of the environment, and may raise anything
        return type(value).__name__
    return type(value).__name__ if array.dtype == object else array


def _same(one: Any, other: Any) -> bool:
    """Whether two copies are equal to the last bit, NaN included."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    return type(one) is type(other) and one == other
