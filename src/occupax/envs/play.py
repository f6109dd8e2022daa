"""Plays the episodes of an environment that is checked, and looks at all that it returns."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, NamedTuple, NoReturn

import numpy as np

from occupax.envs.finding import BrokenError, Finding, Findings, kind, text
from occupax.envs.observations import check_observation


class Episode(NamedTuple):
    """Which episode is played."""

    number: int
    seed: int

    def place(self, step: int, action: Any = None) -> str:
        """A call of the episode, in words; step 0 is the reset."""
        call = f"step {step}" if step else "reset"
        taken = "" if action is None else f", action {action}"
        return f"{call} of episode {self.number}, seed {self.seed}{taken}"


@dataclass
class Play:
    """What happened in an episode."""

    returned: list[Any]
    """Copies of the first observation and of what each step returned, but for the info."""
    actions: list[Any] = field(default_factory=list[Any])
    ended: bool = False


class Player:
    """Plays episodes; what cannot be gone on with ends an episode by a `BrokenError`."""

    def __init__(self, env: Any, space: Any, findings: Findings) -> None:
        self._env, self._space, self._findings = env, space, findings
        self._last: tuple[Any, Any, str] | None = None

    def play(self, episode: Episode, actions: Iterable[Any]) -> Play:
        """Play until the episode ends or there are no more actions."""
        play = Play([self._reset(episode)])
        for step, action in enumerate(actions, 1):
            play.actions.append(action)
            place = episode.place(step, action)
            observation, reward, terminated, truncated, info = self._step(episode, play.actions, place)
            self._check_flag("terminated", terminated, place)
            self._check_flag("truncated", truncated, place)
            self._check_reward(reward, place)
            self._check_info(info, "step", place)
            seen = self._look_at(observation, place)
            play.returned.append((seen, snapshot(reward), bool(terminated), bool(truncated)))
            if terminated or truncated:
                play.ended = True
                break
        return play

    def _reset(self, episode: Episode) -> Any:
        """A copy of the first observation."""
        place = episode.place(0)
        repeat = f"env.reset(seed={episode.seed})"
        remedy = f"repeat it: {repeat}; reset must take the arguments seed and options."
        result = self._findings.call(lambda: self._env.reset(seed=episode.seed), "reset", place, remedy, repeat)
        if not isinstance(result, tuple) or len(result) != 2:
            remedy = "return both from reset: `return observation, {}`."
            self._refuse(
                "reset returns the wrong structure", "a tuple (observation, info)", _structure(result), place, remedy
            )
        observation, info = result
        self._check_info(info, "reset", place)
        return self._look_at(observation, place)

    def _step(self, episode: Episode, actions: list[Any], place: str) -> Any:
        """The five values that a step returns."""
        shown = f"{', '.join(map(str, actions[:30]))}{' and so on' if len(actions) > 30 else ''}"
        repeat = f"env.reset(seed={episode.seed}), then the actions {shown}"
        try:
            with self._findings.watch("step", place, repeat):
                result = self._env.step(actions[-1])
        except Exception as error:
            what, remedy = f"step raised {type(error).__name__}", f"repeat it: {repeat}."
            raised = Finding("error", what, "no exception", text(error), place, remedy)
            self._check_inside(episode, actions[-1], place, raised)
            self._findings.add(raised)
            raise BrokenError from error
        self._check_structure(result, place)
        return result

    def _check_inside(self, episode: Episode, action: Any, place: str, raised: Finding) -> None:
        """See what a step returns inside of all wrappers, whose own errors do not tell that it is not five values."""
        inner = self._env.unwrapped
        if inner is self._env:
            return
        repeat = f"env.unwrapped.reset(seed={episode.seed}), then env.unwrapped.step({action})"
        try:
            with self._findings.watch("the environment inside of all wrappers", place, repeat, raised):
                inner.reset(seed=episode.seed)
                result = inner.step(action)
        except Exception:  # noqa: BLE001 - it is reported as it came from the outside
            return
        self._check_structure(result, place)

    def _check_structure(self, result: Any, place: str) -> None:
        if not isinstance(result, tuple) or len(result) != 5:
            expected = "a tuple (observation, reward, terminated, truncated, info)"
            remedy = "return all five; `terminated` is an end of the task itself, `truncated` one of the time allowed."
            self._refuse("step returns the wrong structure", expected, _structure(result), place, remedy)

    def _check_flag(self, name: str, flag: Any, place: str) -> None:
        if not isinstance(flag, (bool, np.bool_)):
            remedy = f"return bool(...) of it, or False if an episode is never {name}."
            self._refuse(f"{name} is not a bool", "True or False", kind(flag), place, remedy)

    def _check_info(self, info: Any, name: str, place: str) -> None:
        if not isinstance(info, dict):
            what, remedy = f"the info of {name} is not a dict", "return {} if there is nothing to tell."
            self._findings.add(Finding("error", what, "a dict", kind(info), place, remedy))

    def _check_reward(self, reward: Any, place: str) -> None:
        if not isinstance(reward, (Real, np.bool_)):
            remedy = "return float(...) of it; arrays of one number are no numbers."
            self._findings.add(Finding("error", "reward is not a number", "a number", kind(reward), place, remedy))
        elif not _is_finite(reward):
            remedy = "look for a division by zero or an overflow in what computes it."
            self._findings.add(Finding("error", "reward is not finite", "a finite number", text(reward), place, remedy))

    def _look_at(self, observation: Any, place: str) -> Any:
        """Check an observation, and that the one before is still what it was; return a copy."""
        if self._last is not None:
            before, copied, origin = self._last
            now = snapshot(before)
            if not same(copied, now):
                what, where = "an observation changes after it was returned", f"the observation of {origin}, at {place}"
                remedy = "return a copy of the array: `return self.state.copy(), ...`."
                self._findings.add(Finding("warning", what, f"still {text(copied)}", text(now), where, remedy))
        self._findings.add(*check_observation(self._space, observation, place))
        copied = snapshot(observation)
        self._last = (observation, copied, place)
        return copied

    def _refuse(self, what: str, expected: str, actual: str, place: str, remedy: str) -> NoReturn:
        self._findings.add(Finding("error", what, expected, actual, place, remedy))
        raise BrokenError


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


def _is_finite(number: Any) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number beyond all floats
        return False


def _structure(result: Any) -> str:
    if not isinstance(result, tuple):
        return kind(result)
    parts = ", ".join(type(part).__name__ for part in result)
    old = "; that was the API before Gymnasium" if len(result) == 4 else ""
    return f"{len(result)} values ({parts}){old}"
