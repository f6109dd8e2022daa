"""Episodes of a Gymnasium environment, many at once, through Gymnasium's own vectors of environments.

A vector resets no environment by itself: every one plays the episodes it is given, each from its own seed, and waits
when there are none left. So no step of a reset is ever taken for a transition, every episode that is begun is finished
or cut at the horizon, and which environment plays which episode makes no difference.
"""

import multiprocessing.connection
import signal
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, Num, UInt32

from occupax._compiled import bind
from occupax._errors import check_integer, check_number
from occupax._watch import HungError, Watch
from occupax.batch import Trajectories
from occupax.envs.actions import ActionSpace, Kind
from occupax.envs.episode import episode_seeds, seeds_and_keys
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.envs.lookup import SECONDS_TO_CLOSE
from occupax.policies import Policy

__all__ = ["EpisodeError", "EpisodeRunner", "VectorStep", "episode_seeds"]

TRIES = 2
"""How often episodes are begun if a process dies; they are the same every time."""
SECONDS_TO_BEGIN = 120.0
"""What making the environments may take at least: their processes import everything anew."""


class EpisodeError(RuntimeError):
    """An environment failed; the message names the episode and its seed."""


class VectorStep(NamedTuple):
    """A step of all E environments."""

    live: Bool[np.ndarray, " E"]
    """Which environments play an episode; the entries of the others have no meaning."""
    row: Int[np.ndarray, " E"]
    """The place of the episode among those that are played."""
    time: Int[np.ndarray, " E"]
    """How many steps the episode had before."""
    observations: Any
    actions: Num[np.ndarray, "E *k"]
    """As the policy drew them."""
    log_probs: Float[np.ndarray, " E"]
    rewards: Float[np.ndarray, " E"]
    terminated: Bool[np.ndarray, " E"]
    """Whether the episode has ended by itself."""
    following: Any
    """What is observed after the step."""
    info: Float[np.ndarray, "E k"] | None
    """The values that are recorded of the `info`, if any."""


Result = TypeVar("Result")
Record = Callable[[Iterator[VectorStep]], Result]


class EpisodeRunner:
    """Plays episodes of a Gymnasium environment, each of which depends on its number, the key and the policy alone.

    Args:
        env: the environment.
        envs: how many of it run at once.
        processes: whether each runs in a process of its own, instead of one after the other in this one.
        timeout: how many seconds a step, or a reset, of all of them may take.
        flat: whether policies see observations of several parts as one vector.
    """

    def __init__(
        self, env: GymnasiumEnv, envs: int = 8, processes: bool = False, timeout: float = 60.0, flat: bool = True
    ):
        self._env, self._processes, self._flat = env, processes, flat
        self._envs = check_integer("envs", envs)
        self._watch = Watch(check_number("timeout", timeout, low=0.0, open_low=True))
        self._vector: Any = None
        self._playing: list[tuple[int, int] | None] = []
        """Number and seed of the episode that each environment plays, if any."""

    def draw(self, policy: Policy, key: Key[Array, ""], first: int, stop: int, n: int, horizon: int) -> Trajectories:
        """Draw trajectories number `first` to `first + n`; those from number `stop` on are empty."""
        numbers = range(first, min(first + n, stop))
        record = partial(_record, self._env, policy.action_space, n, horizon)
        return self.play(policy, key, numbers, record, horizon)

    def play(
        self, policy: Policy, key: Key[Array, ""], numbers: range, record: Record[Result], horizon: int | None = None
    ) -> Result:
        """Play the episodes of these numbers, to their end or until they are cut at the horizon.

        Returns:
            What `record` makes of all steps of all episodes.
        """
        for attempt in range(TRIES):
            if self._vector is None:
                self._vector = self._begin()
            try:
                return self._watch.run(lambda: record(self._steps(policy, key, numbers, horizon)))
            except HungError:
                silent = self._silent()
                self._abandon()
                self._fail(silent, f"did not answer within {self._watch.seconds:g} seconds")
            except (EOFError, ConnectionError):  # to or from a process that is no longer there
                dead = self._dead()
                self._abandon()
                if attempt == TRIES - 1:
                    self._fail(dead, f"lost its process {TRIES} times")
            except KeyboardInterrupt:
                self._abandon()
                raise
        raise AssertionError

    def close(self) -> None:
        """End the environments; they are made again when they are needed."""
        if self._vector is None:
            return
        try:
            Watch(min(self._watch.seconds, SECONDS_TO_CLOSE)).run(self._vector.close, whole=True)
            self._vector = None
        except (HungError, EOFError, OSError):
            self._abandon()

    def _begin(self) -> Any:
        """The environments; to make them may take longer than a step."""
        from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

        from occupax.envs.vector_slot import VectorSlot

        makers = [partial(VectorSlot, self._env.make, self._env.info, self._flat)] * self._envs
        # processes are not forked, because JAX has threads
        vector: Any = partial(AsyncVectorEnv, context="forkserver") if self._processes else SyncVectorEnv

        def make() -> Any:
            if self._processes:  # which inherit that Ctrl-C is not for them, from the moment they begin
                signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            return vector(makers, autoreset_mode=AutoresetMode.DISABLED)

        watch = Watch(max(self._watch.seconds, SECONDS_TO_BEGIN))
        try:
            return watch.run(make, whole=True)
        except HungError:
            raise EpisodeError(f"the environments were not made within {watch.seconds:g} seconds.") from None
        except (ValueError, SystemExit) as error:
            raise EpisodeError(f"the environments could not be made: {error!s:.200}") from error
        except (EOFError, ConnectionError) as error:
            needs = "it must be possible to make an environment in one, and a script must do its work under"
            why = f"{needs} `if __name__ == '__main__':`, because they import it"
            raise EpisodeError(f"the processes of the environments could not be started: {why}.") from error

    def _steps(self, policy: Policy, key: Key[Array, ""], numbers: range, horizon: int | None) -> Iterator[VectorStep]:
        seeds, keys = map(np.asarray, seeds_and_keys(key, jnp.arange(numbers.start, numbers.stop)))
        row, time = np.full(self._envs, -1), np.zeros(self._envs, np.int32)
        left, recorded = iter(range(len(numbers))), bool(self._env.info)
        act = bind(_act, (policy, self._env.action_space))

        def begin(over: Bool[np.ndarray, " E"]) -> Any:
            """Give the next episodes to the environments whose last one is over, as long as there are any."""
            row[over], time[over] = [next(left, -1) for _ in range(over.sum())], 0
            self._playing = [(numbers[i], int(seeds[i])) if i >= 0 else None for i in row]
            given = [playing and playing[1] for playing in self._playing]
            return self._ask("reset", seed=given, options={"reset_mask": over})[0]

        observations = begin(np.ones(self._envs, bool))
        while (row >= 0).any():
            drawn, actions, log_probs = map(np.asarray, act(observations, keys[row], time, np.int32(self._envs)))
            following, rewards, terminated, truncated, infos = self._ask("step", actions)
            live, info = row >= 0, infos["values"] if recorded else None
            at = live, row.copy(), time.copy()
            yield VectorStep(*at, observations, drawn, log_probs, rewards, terminated, following, info)
            time[live] += 1
            over = live & (terminated | truncated | (time == horizon))
            observations = begin(over) if over.any() else following

    def _ask(self, what: str, *given: Any, **named: Any) -> Any:
        """Reset or step all environments, wait for them, and raise the first of their failures."""
        with self._watch.call():
            if self._processes:
                getattr(self._vector, f"{what}_async")(*given, **named)
                left = set(self._vector.parent_pipes)
                while left:  # before any answer is read, so that it can be told whose is missing
                    left -= set(multiprocessing.connection.wait(left))
                answer = getattr(self._vector, f"{what}_wait")()
            else:
                answer = getattr(self._vector, what)(*given, **named)
        if "_failure" in answer[-1]:
            i = int(np.argmax(answer[-1]["_failure"]))
            self._fail([i], answer[-1]["failure"][i])
        return answer

    def _fail(self, places: list[int], reason: str) -> NoReturn:
        """Name the first episode that these environments play; if they play none, it is one of all."""
        played = [self._playing[i] for i in places] + self._playing
        number, seed = next(episode for episode in played if episode is not None)
        raise EpisodeError(f"episode {number} (seed {seed}) {reason}; to repeat it, begin with env.reset(seed={seed}).")

    def _silent(self) -> list[int]:
        if self._processes:
            return [i for i, pipe in enumerate(self._vector.parent_pipes) if not pipe.poll(0)]
        return [i for i, slot in enumerate(self._vector.envs) if slot.busy]

    def _dead(self) -> list[int]:
        ends = {process.sentinel: i for i, process in enumerate(self._vector.processes)}
        return [ends[end] for end in multiprocessing.connection.wait(list(ends), timeout=5)]

    def _abandon(self) -> None:
        """Give up the environments without closing them, because one of them does not answer any more."""
        vector, self._vector = self._vector, None
        vector.closed = True
        if self._processes:
            for process in vector.processes:
                process.kill()
                process.join()


def _record(env: GymnasiumEnv, action_space: Kind, n: int, horizon: int, steps: Iterator[VectorStep]) -> Trajectories:
    """All that happens in at most `n` episodes; after the end of an episode stands what was observed last."""
    spec, action, number = env.observation_spec(), env.action_space.spec(), jnp.result_type(float)
    observations = np.zeros((n, horizon, *spec.shape), spec.dtype)
    actions, live = np.zeros((n, horizon, *action.shape), action.dtype), np.zeros((n, horizon), bool)
    log_probs, rewards = np.zeros((n, horizon), number), np.zeros((n, horizon), number)
    terminated, last = np.zeros(n, bool), np.zeros((n, *spec.shape), spec.dtype)
    info = np.zeros((n, horizon, len(env.info)), number) if env.info else None
    stacked: Any = [None if parts[0] is None else np.stack(list(parts)) for parts in zip(*steps, strict=True)]
    played: Any = (column if column is None else column[stacked[0]] for column in stacked)
    on, row, time, *columns = played
    observations[row, time], actions[row, time], log_probs[row, time], rewards[row, time] = columns[:4]
    live[row, time], terminated[row], last[row] = on, columns[4], columns[5]  # of each episode the last step counts
    if info is not None:
        info[row, time] = columns[6]
    ended = ~live.reshape(*live.shape, *[1] * len(spec.shape))
    np.copyto(observations, last[:, None], where=ended)
    columns = observations, actions, log_probs, rewards, live, terminated, last, info
    return Trajectories(*jax.tree.map(jnp.asarray, columns), action_space=action_space)


def _act(
    acting: tuple[Policy, ActionSpace],
    observations: Any,
    keys: UInt32[Array, "E 2"],
    time: Int[Array, " E"],
    count: Int[Array, ""],
) -> Any:
    """What is drawn for all environments, the actions that they are given, and the log-probabilities."""
    policy, space = acting

    def draw(i: Int[Array, ""] | int) -> tuple[Array, Array, Float[Array, ""]]:
        observation, key, t = jax.tree.map(lambda leaf: leaf[i], given)
        of_action, _ = jax.random.split(jax.random.fold_in(jax.random.wrap_key_data(key), t + 1))
        drawn, log_prob = policy.draw(observation, of_action)
        return drawn, space.clip(policy.applied(drawn)), log_prob

    # One after the other, by a program that does the same for any number of them: how many there are must not change a
    # bit of the numbers. A loop of one turn, or arrays of one row, the compiler would simplify.
    given = observations, keys, time
    if len(time) == 1:
        given = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), given)
    shapes = jax.eval_shape(draw, 0)
    nothing = jax.tree.map(lambda leaf: jnp.zeros((max(len(time), 2), *leaf.shape), leaf.dtype), shapes)
    drawn = jax.lax.fori_loop(
        0, count, lambda i, kept: jax.tree.map(lambda rows, row: rows.at[i].set(row), kept, draw(i)), nothing
    )
    return jax.tree.map(lambda leaf: leaf[: len(time)], drawn)
