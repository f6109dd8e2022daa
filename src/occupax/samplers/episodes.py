"""Episodes of a Gymnasium environment, many at once.

No environment resets itself: every one plays the episodes it is given, each from its own seed, and
waits when there are none left. So no step of a reset is ever taken for a transition, every episode
that is begun is finished or cut at the horizon, and which environment plays which episode makes no
difference.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, NoReturn, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, Num

from occupax.envs.actions import Kind
from occupax.envs.episode import episode_seeds, seeds_and_keys
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.envs.lookup import SECONDS_TO_CLOSE, ignoring_rounded_bounds
from occupax.errors import check_integer, check_number
from occupax.policies import Policy
from occupax.policies.agents import Agent
from occupax.samplers.action_selection import select_actions
from occupax.trajectories import Trajectories
from occupax.watch import HungError, Watch

__all__ = ["EpisodeError", "EpisodeRunner", "VectorStep", "episode_seeds"]

TRIES = 2
"""How often episodes are begun if a process dies; they are the same every time."""
STEPS_A_BLOCK = 50
"""After how many steps of all environments what happened is sorted by episodes."""
SECONDS_TO_BEGIN = 120.0
"""What making the environments may take at least: their processes import everything anew."""


class EpisodeError(RuntimeError):
    """An environment failed. The message names the episode and its seed."""


class VectorStep(NamedTuple):
    """A step of each of the P environments that play an episode."""

    row: Int[np.ndarray, " P"]
    """The place of the episode among those that are played."""
    time: Int[np.ndarray, " P"]
    """How many steps the episode had before."""
    observations: Any
    actions: Num[np.ndarray, "P *k"]
    """As the policy drew them."""
    log_probs: Float[np.ndarray, " P"]
    returned: np.ndarray
    """What the environments returned: an array with the fields of
    `occupax.envs.slots.slot_type`."""
    over: Bool[np.ndarray, " P"]
    """Whether it was the last step of the episode."""


Result = TypeVar("Result")
Record = Callable[[Iterator[VectorStep]], Result]


class EpisodeRunner:
    """Runner of Gymnasium episodes, which depend on their number, the key and the policy alone.

    Args:
        env: the environment.
        envs: how many of it run at once.
        processes: in how many processes of their own they run: True is a process for each, False is
            one after the other in this one.
        timeout: how many seconds a step, or a reset, of all of them may take.
        flat: whether policies see observations of several parts as one vector.
    """

    def __init__(
        self,
        env: GymnasiumEnv,
        envs: int = 8,
        processes: bool | int = False,
        timeout: float = 60.0,
        flat: bool = True,
    ):
        self._env, self._flat, self._envs = env, flat, check_integer("envs", envs)
        self._processes = number_of_processes(processes, self._envs)
        self._watch = Watch(check_number("timeout", timeout, low=0.0, open_low=True))
        self._slots: Any = None
        self._playing: list[tuple[int, int] | None] = []
        """Number and seed of the episode that each environment plays, if any."""

    def draw(
        self,
        policy: Policy | Agent,
        key: Key[Array, ""],
        first: int,
        stop: int,
        n: int,
        horizon: int,
    ) -> Trajectories:
        """Draw trajectories number `first` to `first + n`. Empty ones from number `stop` on."""
        numbers = range(first, min(first + n, stop))
        record = partial(_record, self._env, policy.action_space, n, horizon)
        return self.play(policy, key, numbers, record, horizon)

    def play(
        self,
        policy: Policy | Agent,
        key: Key[Array, ""],
        numbers: range,
        record: Record[Result],
        horizon: int | None = None,
    ) -> Result:
        """Play the episodes of these numbers, to their end or until they are cut at the horizon.

        Returns:
            What `record` makes of all steps of all episodes.
        """
        for attempt in range(TRIES):
            if self._slots is None:
                self._slots = self._begin()
            try:
                return self._watch.run(lambda: record(self._steps(policy, key, numbers, horizon)))
            except HungError:
                silent = self._slots.silent()
                self._abandon()
                self._fail(silent, f"did not answer within {self._watch.seconds:g} seconds")
            except (EOFError, ConnectionError):  # to or from a process that is no longer there
                dead = self._slots.dead()
                self._abandon()
                if attempt == TRIES - 1:
                    self._fail(dead, f"lost its process {TRIES} times")
            except KeyboardInterrupt:
                self._abandon()
                raise
        raise AssertionError

    def close(self) -> None:
        """End the environments. They are made again when they are needed."""
        if self._slots is None:
            return
        try:
            Watch(min(self._watch.seconds, SECONDS_TO_CLOSE)).run(self._slots.close, whole=True)
            self._slots = None
        except (HungError, EOFError, OSError):
            self._abandon()

    def _begin(self) -> Any:
        """The environments. To make them may take longer than a step."""
        watch = Watch(max(self._watch.seconds, SECONDS_TO_BEGIN))
        try:
            with ignoring_rounded_bounds():
                return watch.run(self._make, whole=True)
        except HungError:
            raise EpisodeError(
                f"the environments were not made within {watch.seconds:g} seconds."
            ) from None
        except (ValueError, SystemExit) as error:
            raise EpisodeError(f"the environments could not be made: {error!s:.200}") from error
        except (EOFError, ConnectionError) as error:
            needs = "each must be able to make an environment, and a script must do its work"
            why = f"{needs} under `if __name__ == '__main__':`, because they import it"
            raise EpisodeError(
                f"the processes of the environments could not be started: {why}."
            ) from error

    def _make(self) -> Any:
        # slow: imports Gymnasium
        from occupax.envs.slots import Slots, slot_type
        from occupax.samplers.processes import ProcessSlots

        if self._processes:
            return ProcessSlots(self._env, self._envs, self._processes)
        return Slots(self._env, np.zeros(self._envs, slot_type(self._env)), self._flat)

    def _steps(
        self, policy: Policy | Agent, key: Key[Array, ""], numbers: range, horizon: int | None
    ) -> Iterator[VectorStep]:
        seeds, keys = map(np.asarray, seeds_and_keys(key, jnp.arange(numbers.start, numbers.stop)))
        row = np.full(self._envs, -1)
        time = np.zeros(self._envs, np.int32)
        remaining = iter(range(len(numbers)))
        slots = self._slots
        act = select_actions(policy, self._env.action_space, keys, self._envs, self._flat)

        def begin(over: Int[np.ndarray, " k"]) -> Int[np.ndarray, " P"]:
            """Begin the next episodes in these environments. Return all active slots."""
            time[over] = 0
            next_seeds: dict[int, int | None] = {}
            for slot in over.tolist():
                i = next(remaining, -1)
                row[slot] = i
                self._playing[slot] = None if i < 0 else (numbers[i], int(seeds[i]))
                next_seeds[slot] = None if i < 0 else int(seeds[i])
            self._call(partial(slots.reset, next_seeds))
            return np.flatnonzero(row >= 0)

        self._playing = [None] * self._envs
        active = begin(np.arange(self._envs))
        rows = row[active]
        step_counts = time[active]
        while len(active):
            observations = slots.observations(active)
            actions, env_actions, log_probs = act(observations, active, rows, step_counts)
            slots.entries["action"][active] = env_actions
            self._call(slots.step)
            returned = slots.entries.take(active)
            next_counts = step_counts + 1
            over = returned["terminated"] | returned["truncated"] | (next_counts == horizon)
            yield VectorStep(rows, step_counts, observations, actions, log_probs, returned, over)
            step_counts = next_counts
            if over.any():
                time[active] = step_counts
                active = begin(active[over])
                rows = row[active]
                step_counts = time[active]

    def _call(self, function: Callable[[], dict[int, str]]) -> None:
        """Reset or step all environments, wait for them, and raise the first of their failures."""
        with self._watch.call():
            failures = function()
        if failures:
            slot = min(failures)
            self._fail([slot], failures[slot])

    def _fail(self, slots: list[int], reason: str) -> NoReturn:
        """Raise EpisodeError about the first episode of some slots or, if none, of all slots."""
        episodes = [self._playing[slot] for slot in slots] + self._playing
        number, seed = next(episode for episode in episodes if episode is not None)
        repeat = f"to repeat it, begin with env.reset(seed={seed})"
        raise EpisodeError(f"episode {number} (seed {seed}) {reason}; {repeat}.")

    def _abandon(self) -> None:
        """Kill the environments without closing them, because one does not respond."""
        slots, self._slots = self._slots, None
        slots.kill()


def number_of_processes(processes: bool | int, envs: int) -> int:
    """Return the number of processes of the environments. 0 stands for the calling process."""
    if isinstance(processes, bool):
        return envs if processes else 0
    return min(check_integer("processes", processes), envs)


def _record(
    env: GymnasiumEnv, action_space: Kind, n: int, horizon: int, steps: Iterator[VectorStep]
) -> Trajectories:
    """Return the trajectories of at most `n` episodes, filled with the final observation."""
    spec = env.observation_spec()
    action = env.action_space.spec()
    number = jnp.result_type(float)
    kinds = (
        (spec.shape, spec.dtype),
        (action.shape, action.dtype),
        ((), number),  # log-probabilities
        ((), number),  # rewards
        ((len(env.info),), number),
    )
    columns = [np.zeros((n * horizon, *shape), dtype) for shape, dtype in kinds]
    lengths = np.zeros(n, int)
    terminated = np.zeros(n, bool)
    last = np.zeros((n, *spec.shape), spec.dtype)
    while block := list(islice(steps, STEPS_A_BLOCK)):
        row, time, *sampled, returned, over = map(np.concatenate, zip(*block, strict=True))
        values_by_column = [*sampled, returned["reward"], returned["info"]]
        for column, values in zip(columns, values_by_column, strict=True):
            column[row * horizon + time] = values
        row = row[over]
        lengths[row] = time[over] + 1
        terminated[row] = returned["terminated"][over]
        last[row] = returned["following"][over]
    live = np.arange(horizon) < lengths[:, None]
    observations, actions, log_probs, rewards, info = (
        column.reshape(n, horizon, *column.shape[1:]) for column in columns
    )
    np.copyto(observations, last[:, None], where=~live.reshape(n, horizon, *[1] * len(spec.shape)))
    arrays = (
        observations,
        actions,
        log_probs,
        rewards,
        live,
        terminated,
        last,
        info if env.info else None,
    )
    return Trajectories(*jax.device_put(arrays), action_space=action_space)
