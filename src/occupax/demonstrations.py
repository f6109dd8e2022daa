"""Targets for imitation: the occupancy of a policy or of recorded episodes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from occupax import estimators, exact
from occupax.envs.base import DecisionProcess, number_of_states, observation_spec
from occupax.envs.tabular import TabularMDP
from occupax.errors import real_array, shown
from occupax.exact.probabilities import probabilities
from occupax.features import Feature, StateAction, Visit, as_feature
from occupax.policies import Policy, check_policy_fits
from occupax.problem import Problem
from occupax.samplers import sample
from occupax.utilities.base import Custom

EPISODES = 1000


def demonstrations(
    env: DecisionProcess | str | Callable[..., Any],
    source: Any,
    discount: float = 0.99,
    horizon: int | None = None,
    features: Any = None,
) -> Float[np.ndarray, "..."]:
    """Return the discounted visit distribution of demonstrations.

    `utilities.KL` and `utilities.ForwardKL` take the result as their target.

    Args:
        env: the environment of the demonstrations, or what `occupax.make` makes one of.
        source: a policy, which is evaluated exactly on a table and from 1,000 episodes elsewhere;
            or recorded episodes: lists of (observation, action) pairs, or episodes with the fields
            `observations` and `actions`, as Minari has them, of which a last observation without an
            action is left out; or three arrays (observations, actions, ends) of all steps one after
            the other, where `ends` is True at the last step of each episode.
        discount: gamma, that of the problem in which they are imitated.
        horizon: how many steps of each episode count; by default as many as the environment allows.
        features: what is counted; pairs of state and action by default. Recorded episodes need
            features of observation and action alone, because rewards and info are not recorded.

    Returns:
        (1 - gamma) times the mean occupancy, or 1 / H times for gamma = 1: [S, A] for pairs, [S]
        for states, [d] otherwise. Its sum is less than 1 by what comes after the end of an episode.
    """
    counted = StateAction() if features is None else as_feature(features)
    problem = Problem(env, Custom(jnp.sum, counted), discount=discount, horizon=horizon)
    if isinstance(source, Policy):
        occupancy = _of_policy(problem, source)
    else:
        per_episode = [_of_episode(problem, *episode) for episode in _episodes(source)]
        occupancy = np.mean(per_episode, axis=0)
    return _shaped(problem.scale * np.asarray(occupancy, float), counted, problem.env)


def _of_policy(problem: Problem, policy: Policy) -> Float[np.ndarray, " d"]:
    """Return the occupancy of a policy, exact for a table and sampled otherwise."""
    check_policy_fits(policy, problem.env)
    if isinstance(problem.env, TabularMDP):
        return exact.feature_occupancy(problem, probabilities(problem, policy))
    batch = sample(problem, policy, EPISODES, jax.random.key(0))
    return np.asarray(estimators.occupancy(problem, batch, policy))


def _episodes(source: Any) -> Iterator[tuple[int, list[Any], list[Any]]]:
    """Yield the number, the observations and the actions of each episode."""
    if (
        isinstance(source, Mapping)
        or not isinstance(source, Iterable)
        or isinstance(source, str | bytes)
    ):
        raise ValueError(
            f"demonstrations must be a policy or a list of episodes, got {type(source).__name__}; "
            "one episode is a list of one."
        )
    number = -1
    episodes: Iterable[Any] = _split(tuple(source)) if _is_arrays(source) else source
    for number, episode in enumerate(episodes):
        if isinstance(episode, Mapping) or hasattr(episode, "observations"):
            fields = episode if isinstance(episode, Mapping) else vars(episode)
            try:
                observations, actions = list(fields["observations"]), list(fields["actions"])
            except (KeyError, TypeError):
                raise ValueError(
                    f"episode {number} must have observations and actions, got {sorted(fields)}."
                ) from None
        else:
            try:
                observations, actions = (list(part) for part in zip(*episode, strict=True))
            except (TypeError, ValueError):
                raise ValueError(
                    f"episode {number} must be a list of (observation, action), "
                    f"got {episode!r:.60}."
                ) from None
        if not actions or len(observations) not in (len(actions), len(actions) + 1):
            lengths = f"{len(observations)} and {len(actions)}"
            raise ValueError(
                f"episode {number} must have as many observations as actions, got {lengths}."
            )
        yield number, observations[: len(actions)], actions
    if number < 0:
        raise ValueError("demonstrations must have at least one episode, got none.")


def _is_arrays(source: Any) -> bool:
    """Return whether demonstrations are a tuple of arrays, and not a list of episodes."""
    return isinstance(source, tuple) and all(
        hasattr(part, "shape") and hasattr(part, "dtype") for part in source
    )


def _split(arrays: tuple[Any, ...]) -> list[dict[str, np.ndarray]]:
    """Return the episodes of recorded arrays, cut behind the last step of each."""
    if len(arrays) != 3:
        meaning = "ends is True at the last step of each episode"
        raise ValueError(
            "demonstrations as arrays must be (observations, actions, ends), "
            f"got {len(arrays)} arrays; {meaning}."
        )
    observations, actions, ends = map(np.asarray, arrays)
    shapes = observations.shape[:1], actions.shape[:1], ends.shape
    if () in shapes or len(set(shapes)) != 1:
        got = f"shapes {observations.shape}, {actions.shape} and {ends.shape}"
        raise ValueError(f"demonstrations as arrays must have one entry for each step, got {got}.")
    if not np.isin(ends, (0, 1)).all():
        raise ValueError(
            "ends of the demonstrations must be True or False, "
            f"got {ends[~np.isin(ends, (0, 1))][0]}."
        )
    stops = [*np.flatnonzero(ends) + 1, len(ends)]
    starts = [0, *stops[:-1]]
    spans = [slice(start, stop) for start, stop in zip(starts, stops, strict=True) if start < stop]
    return [{"observations": observations[span], "actions": actions[span]} for span in spans]


def _of_episode(
    problem: Problem, number: int, observations: Sequence[Any], actions: Sequence[Any]
) -> Any:
    """Return the discounted features of a recorded episode."""
    count = len(actions) if problem.horizon is None else min(len(actions), problem.horizon)
    try:
        observed = np.stack(observations[:count])
        taken = np.stack(actions[:count])
    except ValueError:
        raise ValueError(
            f"episode {number} has observations or actions of different shapes."
        ) from None
    observed = real_array(f"observations of episode {number}", observed)
    taken = real_array(f"actions of episode {number}", taken)
    env = problem.env
    spec = observation_spec(env)
    action = env.action_space.spec()
    has_integers = np.issubdtype(action.dtype, np.integer)
    _check_recorded(number, "observations", observed, spec.shape, number_of_states(env))
    _check_recorded(
        number, "actions", taken, action.shape, env.num_actions if has_integers else None
    )
    pairs = jnp.asarray(observed, spec.dtype), jnp.asarray(taken, action.dtype)
    total = _total(problem, pairs, jnp.nan)
    if jnp.isfinite(total).all():
        return total
    if jnp.isfinite(_total(problem, pairs, 0.0)).all():
        raise ValueError(
            "features must depend on observations and actions alone, because recorded pairs have "
            f"no rewards and no info, got {shown(problem.features)}."
        )
    raise ValueError(f"features must be finite on episode {number}, got {shown(problem.features)}.")


def _check_recorded(
    number: int, kind: str, values: np.ndarray, shape: tuple[int, ...], size: int | None
) -> None:
    """Raise ValueError for recorded values that do not fit the environment.

    Args:
        number: number of the episode.
        kind: "observations" or "actions".
        values: values of all steps.
        shape: shape of the value of a step.
        size: number of states or actions, None for other spaces.
    """
    misfit = f"episode {number} does not fit the environment: its {kind} must"
    if values.shape[1:] != shape:
        raise ValueError(f"{misfit} have shape {shape}, got {values.shape[1:]}.")
    if not np.isfinite(values).all():
        raise ValueError(f"{misfit} be finite numbers.")
    if size is None:
        return
    is_valid = (values >= 0) & (values < size) & (values == np.round(values))
    if not is_valid.all():
        worst = values[~is_valid][0]
        raise ValueError(f"{misfit} be integers from 0 to {size - 1}, got {worst}.")


def _total(problem: Problem, pairs: tuple[Array, Array], unknown: float) -> Float[Array, " d"]:
    """Return the discounted features of recorded pairs, with `unknown` as reward and info."""
    count, entries = len(pairs[0]), len(getattr(problem.env, "info", ()))
    visits = Visit(*pairs, jnp.full(count, unknown), jnp.full((count, entries), unknown))
    counts = jax.vmap(lambda visit: problem.features.count(problem.env, visit))(visits)
    return counts.total(problem.discount ** jnp.arange(count), problem.size)


def _shaped(
    occupancy: Float[np.ndarray, " d"], counted: Feature, env: DecisionProcess
) -> Float[np.ndarray, "..."]:
    """Return an occupancy of state-action pairs as [S, A], and any other as [d]."""
    if isinstance(counted, StateAction):
        return occupancy.reshape(-1, env.num_actions)
    return occupancy
