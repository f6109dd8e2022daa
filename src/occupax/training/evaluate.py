"""What a policy earns in episodes of its own, without discount."""

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from occupax._errors import check_integer
from occupax.envs.base import DecisionProcess, number_of_states, observation_spec
from occupax.envs.finder import find
from occupax.envs.tables import make_gymnasium, unknown_id
from occupax.policies import Policy, Tabular, refuse_unless_fitting, refuse_unless_policy
from occupax.problem import Problem
from occupax.samplers import sample

BLOCK_NUMBERS = 2**22
"""How many numbers the trajectories of one block may hold."""
TABLE_STATES = 4096
"""Up to how many states the probabilities of all are worked out at once; one-hot inputs take the square of that."""

Probabilities = Float[np.ndarray, " A"]


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


def evaluate(policy: Policy, env: Any, episodes: int = 100, seed: int = 0, max_steps: int | None = None) -> Evaluation:
    """Run a policy for a number of episodes. Episode i depends on (seed, i) alone.

    Args:
        policy: the policy; its actions are drawn.
        env: a Gymnasium id or environment, which runs in Gymnasium itself, or an environment of occupax. The actions
            must be discrete.
        episodes: how many.
        seed: of the environment and the actions.
        max_steps: where episodes are cut. An environment of occupax without a time limit needs it, and so does one of
            Gymnasium whose episodes may never end.
    """
    refuse_unless_policy(policy)
    episodes, seed = check_integer("episodes", episodes), check_integer("seed", seed, minimum=0)
    limit = None if max_steps is None else check_integer("max_steps", max_steps)
    if isinstance(env, DecisionProcess):
        return _in_occupax(policy, env, episodes, seed, limit)
    made = _make(env)
    try:
        return _in_gymnasium(policy, made, episodes, seed, limit)
    finally:
        if made is not env:
            made.close()


def _in_occupax(policy: Policy, env: DecisionProcess, episodes: int, seed: int, limit: int | None) -> Evaluation:
    """Sample blocks of equal size, so that there is one program and a bound on memory."""
    _refuse_other_states(policy, number_of_states(env))
    try:
        refuse_unless_fitting(policy, env)
    except TypeError as error:  # what JAX raises for shapes that do not match
        raise _unfit(observation_spec(env), error) from error
    limits = [steps for steps in (limit, env.time_limit) if steps is not None]
    if not limits:
        raise ValueError("max_steps must be given for an environment without a time limit, got None.")
    problem = Problem(env, horizon=min(limits))
    numbers_a_step = 5 + sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(observation_spec(env)))
    size = min(episodes, max(1, BLOCK_NUMBERS // (min(limits) * numbers_a_step)))
    key = jax.random.key(seed)
    blocks: list[tuple[np.ndarray, ...]] = []
    for block in range(math.ceil(episodes / size)):
        batch = sample(problem, policy, size, jax.random.fold_in(key, block))
        returns = np.asarray(batch.rewards, np.float64).sum(1)
        blocks.append((returns, np.asarray(batch.lengths), np.asarray(batch.terminated)))
    return Evaluation(*(np.concatenate(column)[:episodes] for column in zip(*blocks, strict=True)))


def _in_gymnasium(policy: Policy, env: Any, episodes: int, seed: int, limit: int | None) -> Evaluation:
    import gymnasium as gym

    if not isinstance(env.action_space, gym.spaces.Discrete):
        raise ValueError(f"env must have a Discrete action space, got {env.action_space}.")
    env = _as_trained_on(policy, env)
    results: list[tuple[float, int, bool]] = []
    probabilities = None
    for episode in range(episodes):
        of_env, of_actions = np.random.SeedSequence([seed, episode]).spawn(2)
        observation, _ = env.reset(seed=int(of_env.generate_state(1)[0]))
        if probabilities is None:
            probabilities = _probabilities(policy, env, observation)
        random = np.random.default_rng(of_actions)
        total, length, terminated, truncated = 0.0, 0, False, False
        while not (terminated or truncated) and length != limit:
            action = env.action_space.start + _draw(probabilities(observation), random)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, length = total + float(reward), length + 1
        results.append((total, length, bool(terminated)))
    return Evaluation(*map(np.array, zip(*results, strict=True)))


def _as_trained_on(policy: Policy, env: Any) -> Any:
    """Observations of several parts as one vector, if the policy takes that: `GymnasiumEnv` trains on it."""
    import gymnasium as gym

    if isinstance(env.observation_space, gym.spaces.Discrete | gym.spaces.Box):
        return env
    flat = gym.wrappers.FlattenObservation(env)
    try:
        jax.eval_shape(policy.logits, flat.observation_space.sample())
    except Exception:  # noqa: BLE001 - a policy may be any function
        return env
    return flat


def _probabilities(policy: Policy, env: Any, example: Any) -> Callable[[Any], Probabilities]:
    """The policy as a function of the observations of a Gymnasium environment, after a check that it fits them."""
    import gymnasium as gym

    space, num_actions = env.observation_space, int(env.action_space.n)
    discrete = isinstance(space, gym.spaces.Discrete)
    _refuse_other_states(policy, int(space.n) if discrete else None)
    start = int(space.start) if discrete else 0
    example = jnp.asarray(0) if discrete else example
    try:
        shape = jax.eval_shape(policy.logits, example).shape
    except Exception as error:
        raise _unfit(space, error) from error
    if shape != (num_actions,):
        raise ValueError(f"policy must return logits for {num_actions} actions, got shape {shape}.")
    if discrete and space.n <= TABLE_STATES:
        table = np.asarray(jax.jit(jax.vmap(policy.probs))(jnp.arange(int(space.n))), np.float64)
        return lambda observation: table[int(observation) - start]
    # jit needs a plain function: the methods of modules that hold arrays cannot be hashed
    compiled = jax.jit(lambda seen: policy.probs(seen - start if discrete else seen))
    return lambda observation: np.asarray(compiled(observation), np.float64)


def _draw(probabilities: Probabilities, random: np.random.Generator) -> int:
    """Draw an action by inversion; float32 probabilities sum to 1 only nearly."""
    thresholds = probabilities.cumsum()
    if not math.isfinite(thresholds[-1]):
        raise ValueError(f"policy must return finite probabilities, got {probabilities}.")
    return int(np.searchsorted(thresholds, thresholds[-1] * random.random(), side="right"))


def _make(env: Any) -> Any:
    """Make the environment of a Gymnasium id, and return an environment as it is."""
    import gymnasium as gym

    if isinstance(env, gym.Env):
        return env
    if not isinstance(env, str):
        raise ValueError(f"env must be a Gymnasium id, or an environment of Gymnasium or occupax, got {env!r:.80}.")
    with warnings.catch_warnings():
        # an old version is what the caller asked for
        warnings.filterwarnings("ignore", message=r".*The environment .* is out of date", category=DeprecationWarning)
        try:
            found = find(env)
            return found() if callable(found) else make_gymnasium(found, {})
        except ValueError as error:
            if isinstance(error.__cause__, gym.error.UnregisteredEnv):
                raise unknown_id(env) from error
            raise


def _refuse_other_states(policy: Policy, states: int | None) -> None:
    """Refuse a policy made for another number of states: JAX reads past the end of an array without a word."""
    table = len(policy.table) if isinstance(policy, Tabular) else None
    made_for = getattr(getattr(policy, "psi", None), "num_states", table)
    if made_for is not None and made_for != states:
        got = "observations that are not states" if states is None else f"{states} states"
        raise ValueError(f"policy was made for {made_for} states, but env has {got}.")


def _unfit(observations: Any, error: Exception) -> ValueError:
    reason = str(error).partition("\n")[0]
    return ValueError(f"policy does not take the observations of env, {observations}: {reason}")
