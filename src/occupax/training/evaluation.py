"""What a policy earns in episodes of its own, without discount."""

import math
import warnings
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from occupax._errors import check_integer
from occupax.envs.base import DecisionProcess, observation_spec
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.envs.gymnax import PREFIX
from occupax.envs.lookup import closing as closing_environment
from occupax.envs.lookup import find
from occupax.envs.registry import make
from occupax.policies import Policy, refuse_other_states, refuse_unless_fitting, refuse_unless_policy
from occupax.problem import Problem
from occupax.samplers import sample
from occupax.samplers.episodes import EpisodeRunner, VectorStep

MOST_NUMBERS_A_BLOCK = 2**22
MOST_GYMNASIUM_ENVS = 8


class Evaluation(NamedTuple):
    """Undiscounted returns of independent episodes."""

    returns: Float[np.ndarray, " episodes"]
    lengths: Int[np.ndarray, " episodes"]
    terminated: Bool[np.ndarray, " episodes"]
    """Whether the episode ended by itself, as opposed to being cut by a time limit or `max_steps`."""

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(self.returns.mean())

    @property
    def standard_error(self) -> float:
        """The standard error of the mean return; not a number for a single episode."""
        n = len(self.returns)
        return float(self.returns.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan

    @property
    def mean_length(self) -> float:
        """The mean number of steps."""
        return float(self.lengths.mean())

    def __str__(self) -> str:
        episodes = "1 episode" if len(self.returns) == 1 else f"{len(self.returns)} episodes"
        return (
            f"return {self.mean:.4g} +- {self.standard_error:.2g} ({episodes} of {self.mean_length:.1f} steps on "
            f"average, {self.terminated.mean():.0%} ended by themselves)"
        )


def evaluate(
    policy: Policy, env: Any, episodes: int = 100, seed: int = 0, max_steps: int | None = None, timeout: float = 60.0
) -> Evaluation:
    """Run a policy for a number of episodes. Episode i depends on (seed, i) alone.

    An environment of Gymnasium is called from a thread of its own, which is left behind if it hangs. If it raises,
    hangs or returns what is of no use, an `occupax.samplers.EpisodeError` names the episode and its seed.

    Args:
        policy: the policy; its actions are drawn.
        env: a Gymnasium id or environment, or module:factory, which runs in Gymnasium itself; or an environment of
            occupax, its class as module:class, or a name of gymnax such as "gymnax/CartPole-v1". An environment that is
            passed in is not closed.
        episodes: how many.
        seed: of the environment and the actions.
        max_steps: where episodes are cut. An environment in JAX without a time limit needs it, and so does one of
            Gymnasium whose episodes may never end.
        timeout: how many seconds a step, or a reset, may take in Gymnasium.

    Returns:
        The return and the length of each episode, and whether it ended by itself.
    """
    refuse_unless_policy(policy)
    episodes, seed = check_integer("episodes", episodes), check_integer("seed", seed, minimum=0)
    limit = None if max_steps is None else check_integer("max_steps", max_steps)
    with warnings.catch_warnings():
        # an old version is what the caller asked for
        warnings.filterwarnings("ignore", message=r".*The environment .* is out of date", category=DeprecationWarning)
        process = env if isinstance(env, DecisionProcess) else _make(env)
        flat = _refuse_unfit(policy, process)
        if not isinstance(process, GymnasiumEnv):
            return _in_jax(policy, process, episodes, seed, limit)
        envs = min(episodes, MOST_GYMNASIUM_ENVS) if isinstance(env, str | GymnasiumEnv) else 1
        with closing(EpisodeRunner(process, envs, timeout=timeout, flat=flat)) as runner:
            return runner.play(policy, jax.random.key(seed), range(episodes), partial(_add_up, episodes), limit)


def _add_up(episodes: int, steps: Iterator[VectorStep]) -> Evaluation:
    found = Evaluation(np.zeros(episodes), np.zeros(episodes, int), np.zeros(episodes, bool))
    for step in steps:
        _refuse_infinite(step.log_probs)
        found.returns[step.row] += step.returned["reward"]
        found.lengths[step.row] += 1
        found.terminated[step.row] = step.returned["terminated"]
    return found


def _in_jax(policy: Policy, env: DecisionProcess, episodes: int, seed: int, limit: int | None) -> Evaluation:
    """Sample blocks of equal size, so that there is one program and a bound on memory."""
    horizon = min((steps for steps in (limit, env.time_limit) if steps is not None), default=None)
    if horizon is None:
        raise ValueError("max_steps must be given for an environment without a time limit, got None.")
    problem = Problem(env, horizon=horizon)
    numbers_a_step = 5 + sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(observation_spec(env)))
    size = min(episodes, max(1, MOST_NUMBERS_A_BLOCK // (horizon * numbers_a_step)))
    blocks: list[tuple[np.ndarray, ...]] = []
    for block in range(math.ceil(episodes / size)):
        batch = sample(problem, policy, size, jax.random.fold_in(jax.random.key(seed), block))
        _refuse_infinite(np.asarray(batch.log_probs))
        returns = np.asarray(batch.rewards, np.float64).sum(1)
        blocks.append((returns, np.asarray(batch.lengths), np.asarray(batch.terminated)))
    return Evaluation(*(np.concatenate(column)[:episodes] for column in zip(*blocks, strict=True)))


def _make(given: Any) -> DecisionProcess:
    """The environment of an id or of module:factory, or one that is made already, which then stays open."""
    import gymnasium as gym

    if isinstance(given, str):
        source = find(given)
        in_gymnasium = isinstance(source, str) and not source.startswith(PREFIX)  # the environment itself, not a twin
        return GymnasiumEnv(source) if in_gymnasium else make(source)
    if not isinstance(given, gym.Env):
        raise ValueError(f"env must be a Gymnasium id, or an environment of Gymnasium or occupax, got {given!r:.80}.")

    class Open(gym.Wrapper[Any, Any, Any, Any]):
        def close(self) -> None:
            """Leave the environment to the one who made it."""

    def env() -> Any:
        return Open(given)

    return GymnasiumEnv(env)


def _refuse_unfit(policy: Policy, env: DecisionProcess) -> bool:
    """Refuse a policy made for something else; return whether it takes observations of several parts as one vector."""
    refuse_other_states(policy, env)
    act, seen = partial(jax.eval_shape, policy.draw), observation_spec(env)
    try:
        act(seen, jax.random.key(0))
    except Exception as misfit:  # a policy may be any function, and raise anything
        if isinstance(env, GymnasiumEnv):
            with closing_environment(env.make()) as made:
                seen = made.observation_space
            with suppress(Exception):
                act(seen.sample(), jax.random.key(0))
                return False
        reason = str(misfit).partition("\n")[0]
        raise ValueError(f"policy does not take the observations of env, {seen}: {reason}") from misfit
    refuse_unless_fitting(policy, env)
    return True


def _refuse_infinite(log_probs: Float[np.ndarray, "..."]) -> None:
    if not np.isfinite(log_probs).all():
        wrong = log_probs[~np.isfinite(log_probs)][0]
        raise ValueError(f"policy must return finite probabilities, got the log-probability {wrong}.")
