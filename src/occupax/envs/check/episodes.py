"""Plays the episodes of an environment that is checked, and looks at all that it returns."""

import math
from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np

from occupax.envs.check.findings import BrokenError, Finding, Findings, found, kind, raised, text
from occupax.envs.check.observations import check_observation
from occupax.envs.episode import Episode, EpisodeFailedError, WrongStructureError, read_number


def place(number: int, seed: int, step: int, action: Any = None) -> str:
    """A call of an episode, in words; step 0 is the reset."""
    call = f"step {step}" if step else "reset"
    return f"{call} of episode {number}, seed {seed}{'' if action is None else f', action {action}'}"


class EpisodeChecker:
    """Plays episodes and adds to the findings; what cannot be gone on with ends an episode by a `BrokenError`."""

    def __init__(self, env: Any, space: Any, findings: Findings) -> None:
        self._env, self._space, self._findings = env, space, findings
        self._last: tuple[Any, Any, str] | None = None

    def play(self, number: int, seed: int, actions: Iterable[Any]) -> tuple[list[Any], list[Any], bool]:
        """Play until the episode ends or there are no more actions.

        Returns:
            Copies of the first observation and of what each step returned, but for the info; the actions that were
            taken; whether the episode has ended.
        """
        episode, where, taken = Episode(self._env, seed), place(number, seed, 0), list[Any]()
        observation, info = self._call(episode, where, taken)
        self._check_info("reset", info, where)
        returned: list[Any] = [self._look_at(observation, where)]
        for step, action in enumerate(actions, 1):
            taken.append(action)
            where = place(number, seed, step, action)
            observation, reward, terminated, truncated, info = self._call(episode, where, taken)
            for name, flag in (("terminated", terminated), ("truncated", truncated)):
                if not isinstance(flag, (bool, np.bool_)):
                    self._findings.refuse("flag", kind(flag), where, name=name)
            self._check_reward(reward, where)
            self._check_info("step", info, where)
            seen = self._look_at(observation, where)
            returned.append((seen, snapshot(reward), bool(terminated), bool(truncated)))
            if terminated or truncated:
                return returned, taken, True
        return returned, taken, False

    def _call(self, episode: Episode, where: str, actions: list[Any]) -> tuple[Any, ...]:
        """Reset, or take the last of the actions; what is raised or is not of the right structure is a finding."""
        name, repeat = "reset", f"env.reset(seed={episode.seed})"
        remedy = f"repeat it: {repeat}; reset must take the arguments seed and options."
        if actions:
            shown = f"{', '.join(map(str, actions[:30]))}{' and so on' if len(actions) > 30 else ''}"
            name, repeat = "step", f"{repeat}, then the actions {shown}"
            remedy = f"repeat it: {repeat}."
        try:
            with self._findings.watch(name, where, repeat):
                return episode.step(actions[-1]) if actions else episode.reset()
        except WrongStructureError as error:
            self._refuse_structure(name, error.returned, where)
        except EpisodeFailedError as error:
            finding = raised(error.__cause__, name, where, remedy)
            if actions and self._env.unwrapped is not self._env:
                self._check_inside(Episode(self._env.unwrapped, episode.seed), actions[-1], where, finding)
            self._findings.add(finding)
            raise BrokenError from error

    def _check_inside(self, inner: Episode, action: Any, where: str, finding: Finding) -> None:
        """See what a step returns inside of all wrappers, whose own errors do not tell that it is not five values."""
        repeat = f"env.unwrapped.reset(seed={inner.seed}), then env.unwrapped.step({action})"
        try:
            with self._findings.watch("the environment inside of all wrappers", where, repeat, finding):
                inner.reset()
                inner.step(action)
        except EpisodeFailedError as error:  # what is raised is reported as it came from the outside
            if inner.steps and isinstance(error, WrongStructureError):
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
            now = snapshot(before)
            if not same(copied, now):
                both = f"the observation of {origin}, at {where}"
                self._findings.add(found("changed_later", text(now), both, before=text(copied)))
        self._findings.add(*check_observation(self._space, observation, where))
        copied = snapshot(observation)
        self._last = (observation, copied, where)
        return copied


def snapshot(value: Any) -> Any:
    """Copy what an environment returned; of what is made of no numbers only the name of its type remains."""
    if isinstance(value, dict):
        return {key: snapshot(entry) for key, entry in value.items()}
    if isinstance(value, (tuple, list)):
        return tuple(snapshot(entry) for entry in value)
    try:
        array = np.array(value)
    except Exception:  # noqa: BLE001 - the conversion is that of the environment, and may raise anything
        return type(value).__name__
    return type(value).__name__ if array.dtype == object else array


def same(one: Any, other: Any) -> bool:
    """Whether two copies are equal to the last bit, NaN included."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    return type(one) is type(other) and one == other
