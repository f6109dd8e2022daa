"""Evaluation of policies: occupancies and utilities, and returns of new episodes."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from occupax import estimators
from occupax.batches import SampledBatch
from occupax.display import Description
from occupax.envs.base import DecisionProcess, observation_spec
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.envs.gymnax import PREFIX
from occupax.envs.lookup import closing as closing_environment
from occupax.envs.lookup import find, ignoring_rounded_bounds
from occupax.envs.registry import make, wrap
from occupax.envs.tabular import TabularMDP
from occupax.errors import check_integer
from occupax.exact import Evaluator
from occupax.exact.probabilities import probabilities
from occupax.forking import begin_jax_use
from occupax.policies import Policy, check_policy_fits, check_policy_states
from occupax.policies.agents import Agent, check_actor
from occupax.policies.modes import greedy
from occupax.problem import Problem
from occupax.samplers import sample
from occupax.samplers.agent_rollout import draw_with_agent
from occupax.samplers.episodes import EpisodeRunner, VectorStep
from occupax.samplers.kernel import program_sampler
from occupax.samplers.program import ProgramSource
from occupax.trajectories import Trajectories

MAX_BLOCK_NUMBERS = 2**22
"""Largest number of array entries of a block of episodes."""
MAX_GYMNASIUM_ENVS = 8
"""Largest number of Gymnasium environments that are stepped together."""
Z_SCORE = 1.96
"""Quantile of the normal distribution of a confidence interval of 95%."""
MAX_STEP_SECONDS = 3600.0
"""Time limit of a step after training, so that a slow environment needs no second setting."""
Actor = Policy | Agent
Occupancies = Float[np.ndarray, "run d"]


class PolicyEvaluator:
    """Occupancies and utilities of policies: exact on a table, else estimated from new episodes."""

    def __init__(self, problem: Problem, policy: Policy, episodes: int):
        """Prepare the evaluation of policies of the form of `policy`."""
        self.problem = problem
        self.episodes = episodes
        self.exact: Evaluator | None = None
        """The exact evaluator of a table."""
        self._source: ProgramSource | None = None
        if isinstance(problem.env, TabularMDP):
            self.exact = Evaluator(problem)
        elif not isinstance(problem.env, GymnasiumEnv):
            self._source = program_sampler(problem, policy).open(problem, policy)

    def occupancies(self, policies: Sequence[Policy], key: Key[Array, ""]) -> Occupancies:
        """Return the occupancy of each policy. Estimates use the same random numbers."""
        if self.exact is not None:
            tables = [probabilities(self.problem, policy) for policy in policies]
            return self.exact.occupancies(np.array(tables))
        if self._source is None:
            return self._play(policies, key)
        estimate = partial(_estimate_occupancy, self._source, self.episodes, key)
        return np.array(list(map(estimate, policies)))

    def utilities(self, occupancies: Occupancies) -> Float[np.ndarray, " run"]:
        """Return the utility of each occupancy."""
        if self.exact is not None:
            return self.exact.utilities(occupancies)
        rows = jnp.asarray(occupancies)
        return np.array(list(map(self.problem.estimated_utility, rows)), float)

    def excesses(self, occupancies: Occupancies) -> Float[np.ndarray, "run K"] | None:
        """Return the violation of each constraint by each occupancy, None without constraints."""
        if not self.problem.constraints:
            return None
        if self.exact is not None:
            return self.exact.excesses(occupancies)
        rows = jnp.asarray(occupancies)
        return np.array(list(map(self.problem.excesses, rows)), float)

    def _play(self, policies: Sequence[Policy], key: Key[Array, ""]) -> Occupancies:
        """Estimate occupancies from episodes in Gymnasium."""
        env: Any = self.problem.env
        count = self.episodes
        horizon = self.problem.sampling_horizon()
        estimates: list[Array] = []
        with closing(EpisodeRunner(env, timeout=MAX_STEP_SECONDS)) as runner:
            for policy in policies:
                trajectories = runner.draw(policy, key, 0, count, count, horizon)
                estimates.append(estimators.occupancy(self.problem, trajectories, policy))
        return np.array(estimates)


@eqx.filter_jit
def _estimate_occupancy(
    source: ProgramSource, episodes: int, key: Key[Array, ""], policy: Policy
) -> Float[Array, " d"]:
    return source.draw(policy, episodes, key).occupancy()


@eqx.filter_jit
def mean_returns(
    problem: Problem, arrays: Any, static: Any, episodes: int, key: Key[Array, ""]
) -> Float[Array, " run"]:
    """Return the mean undiscounted return of each of some policies, stacked and partitioned."""

    def mean_return(policy_arrays: Any, number: Array) -> Array:
        policy = eqx.combine(policy_arrays, static)
        source: Any = program_sampler(problem, policy).open(problem, policy)
        batch = source.block(policy, jax.random.fold_in(key, number), 0, episodes, episodes)
        return batch.trajectories.rewards.sum(1).mean()

    count = len(jax.tree.leaves(arrays)[0])
    return jax.vmap(mean_return)(arrays, jnp.arange(count))


class Estimate(NamedTuple):
    """Estimate of a number with its confidence interval of 95%."""

    value: float
    """Point estimate."""
    lower: float
    """Lower bound of the interval."""
    upper: float
    """Upper bound of the interval."""

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.lower:.4g}, {self.upper:.4g}]"


class Evaluation(NamedTuple):
    """Undiscounted returns of independent episodes."""

    returns: Float[np.ndarray, " episodes"]
    """Undiscounted return of each episode."""
    lengths: Int[np.ndarray, " episodes"]
    """Number of steps of each episode."""
    terminated: Bool[np.ndarray, " episodes"]
    """Whether the episode terminated, as opposed to a truncation by a time limit or `max_steps`."""

    @property
    def objective(self) -> Mapping[str, Estimate]:
        """Estimates of a problem. Empty for an environment."""
        return {}

    @property
    def interval(self) -> Estimate:
        """Mean return with its confidence interval."""
        return confidence_interval(self.mean, self.standard_error)

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(self.returns.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of the mean return. NaN for a single episode."""
        return _standard_error(self.returns)

    @property
    def mean_length(self) -> float:
        """Mean number of steps."""
        return float(self.lengths.mean())

    def __str__(self) -> str:
        count = len(self.returns)
        plural = "s" * (count > 1)
        objective = "".join(f"{name} {estimate}; " for name, estimate in self.objective.items())
        return (
            f"{objective}return {self.mean:.4g} +- {self.standard_error:.2g} ({count} "
            f"episode{plural} of {self.mean_length:.1f} steps on average, "
            f"{self.terminated.mean():.0%} terminated)"
        )

    def __repr__(self) -> str:
        return self._description().text()

    def _repr_html_(self) -> str:
        return self._description().html()

    def _description(self) -> Description:
        rows = [(name, str(estimate)) for name, estimate in self.objective.items()]
        rows.append(("return", str(self.interval)))
        rows.append(("steps", f"{self.mean_length:.1f} on average"))
        rows.append(("terminated", f"{self.terminated.mean():.0%}"))
        return Description(f"Evaluation: {len(self.returns):,} episodes", rows)


class ProblemEvaluation(Evaluation):
    """Utility, constrained quantities and returns of a policy in a problem.

    Args:
        evaluation: returns of the episodes.
    """

    utility: Estimate
    """Estimate of the utility."""
    constraints: Mapping[str, Estimate]
    """The constrained quantities by the text of their constraint, such as "cost <= 25"."""

    def __new__(
        cls, evaluation: Evaluation, utility: Estimate, constraints: Mapping[str, Estimate]
    ) -> "ProblemEvaluation":
        """Add estimates of a problem to the returns of episodes.

        Args:
            evaluation: returns of the episodes.
            utility: estimate of the utility.
            constraints: estimates of the constrained quantities.

        Returns:
            Evaluation with the estimates.
        """
        instance = super().__new__(cls, *evaluation)
        instance.utility = utility
        instance.constraints = constraints
        return instance

    @property
    def objective(self) -> Mapping[str, Estimate]:
        """Utility and constrained quantities by name."""
        return {"utility": self.utility, **self.constraints}


def confidence_interval(value: float, standard_error: float) -> Estimate:
    """Return an estimate with its confidence interval of 95%."""
    margin = Z_SCORE * standard_error
    return Estimate(value, value - margin, value + margin)


def _standard_error(values: np.ndarray) -> float:
    """Return the standard error of the mean. NaN for a single value."""
    count = len(values)
    if count < 2:
        return math.nan
    return float(values.std(ddof=1)) / math.sqrt(count)


def evaluate(
    policy: Any,
    env: Any,
    episodes: int = 100,
    seed: int = 0,
    max_steps: int | None = None,
    timeout: float = 60.0,
    deterministic: bool = False,
) -> Evaluation:
    """Run a policy for a number of episodes.

    Episode i depends on (seed, i) only, except for random numbers of agents. An environment of
    Gymnasium runs in a thread of its own, which is abandoned if the environment hangs.

    Args:
        policy: a policy, an agent with `predict`, such as an agent of Stable-Baselines3, or a
            function of the observation that returns an action. Agents and functions receive
            observations as Gymnasium's environments return them, one at a time, and return an
            action for `step`.
        env: a problem, whose utility and constraints are estimated too, or an environment. A
            Gymnasium id or environment, or module:factory, runs in Gymnasium itself. An
            environment of occupax, its class as module:class, or a name of gymnax such as
            "gymnax/CartPole-v1" runs in JAX. An environment instance is not closed.
        episodes: number of episodes.
        seed: seed of the environment and the actions.
        max_steps: number of steps after which episodes are truncated. Required for an environment
            in JAX without a time limit, and for a Gymnasium environment whose episodes may never
            end.
        timeout: time limit in seconds of a step or a reset in Gymnasium.
        deterministic: whether to take the most probable action (the mean of a Gaussian
            distribution) instead of a sample. The `predict` of an agent receives the value.

    Returns:
        The return, the length and the termination of each episode. For a problem, a
        `ProblemEvaluation` with estimates of its utility and its constrained quantities.

    Raises:
        ValueError: if an argument is invalid, or the policy does not fit the environment.
        EpisodeError: if an environment raises, hangs or returns invalid data. The message names
            the episode and its seed.
    """
    begin_jax_use()
    check_actor(policy)
    episodes = check_integer("episodes", episodes)
    seed = check_integer("seed", seed, minimum=0)
    if max_steps is not None:
        max_steps = check_integer("max_steps", max_steps)
    if isinstance(env, Problem):
        if max_steps is not None:
            raise ValueError(
                f"max_steps must be None for a problem, which has a horizon, got {max_steps!r}."
            )
        actor, _ = _read_actor(policy, env.env, deterministic)
        return _evaluate_problem(actor, env, episodes, seed, timeout)
    with warnings.catch_warnings():
        # the user has chosen the version
        warnings.filterwarnings(
            "ignore", message=r".*The environment .* is out of date", category=DeprecationWarning
        )
        process = _read_env(env)
        actor, is_flat = _read_actor(policy, process, deterministic)
        if not isinstance(process, GymnasiumEnv):
            return _evaluate_in_jax(actor, process, episodes, seed, max_steps)
        count = 1
        if isinstance(env, str | GymnasiumEnv):
            count = min(episodes, MAX_GYMNASIUM_ENVS)
        with closing(EpisodeRunner(process, count, timeout=timeout, flat=is_flat)) as runner:
            key = jax.random.key(seed)
            return runner.play(
                actor, key, range(episodes), partial(_add_up_steps, episodes), max_steps
            )


def _add_up_steps(episodes: int, steps: Iterator[VectorStep]) -> Evaluation:
    evaluation = Evaluation(
        np.zeros(episodes), np.zeros(episodes, int), np.zeros(episodes, dtype=bool)
    )
    for step in steps:
        _check_log_probs(step.log_probs)
        evaluation.returns[step.row] += step.returned["reward"]
        evaluation.lengths[step.row] += 1
        evaluation.terminated[step.row] = step.returned["terminated"]
    return evaluation


def _evaluate_in_jax(
    actor: Actor, env: DecisionProcess, episodes: int, seed: int, max_steps: int | None
) -> Evaluation:
    limits = list(filter(None, (max_steps, env.time_limit)))
    if not limits:
        raise ValueError(
            "max_steps must be given for an environment without a time limit, got None."
        )
    problem = Problem(env, horizon=min(limits))
    blocks = _draw_blocks(actor, problem, episodes, jax.random.key(seed), math.inf)
    return _add_up_blocks(blocks)


def _evaluate_problem(
    actor: Actor, problem: Problem, episodes: int, seed: int, timeout: float
) -> Evaluation:
    """Estimate utility and constrained quantities from the mean occupancy of episodes.

    Their standard errors are those of the linear approximations there (the delta method).
    """
    policy: Any = actor
    if isinstance(actor, Agent):
        if problem.termination == "absorbing":
            raise ValueError(
                'termination of the problem must be "episodic" for an agent, because the '
                "probabilities of an agent after the end are unknown, got "
                '"absorbing".'
            )
        policy = actor.behaviour()
    blocks = _draw_blocks(actor, problem, episodes, jax.random.key(seed), timeout)
    occupancy: Any = 0
    for block in blocks:
        mean = SampledBatch(problem, block, policy).occupancy()
        occupancy = occupancy + len(block.actions) * mean
    occupancy = occupancy / episodes

    def estimate(value: Any, gradient: Any) -> Estimate:
        totals: list[np.ndarray] = []
        for block in blocks:
            of_block = estimators.totals(problem, block, policy, gradient)
            totals.append(np.asarray(of_block, float))
        return confidence_interval(float(value), _standard_error(np.concatenate(totals)))

    quantities: dict[str, Estimate] = {}
    if problem.constraints:
        gradients = jax.jacobian(problem.excesses)(occupancy)
        excesses = problem.excesses(occupancy)
        for constraint, excess, gradient in zip(
            problem.constraints, excesses, gradients, strict=True
        ):
            value = constraint.limit + constraint.sign * excess
            quantities[str(constraint)] = estimate(value, gradient)
    utility = estimate(problem.estimated_utility(occupancy), problem.quasi_reward(occupancy))
    return ProblemEvaluation(_add_up_blocks(blocks), utility, quantities)


def _add_up_blocks(blocks: Sequence[Trajectories]) -> Evaluation:
    rewards = _concatenate(blocks, "rewards").astype(np.float64)
    return Evaluation(
        returns=rewards.sum(1),
        lengths=_concatenate(blocks, "lengths"),
        terminated=_concatenate(blocks, "terminated"),
    )


def _concatenate(blocks: Sequence[Trajectories], name: str) -> np.ndarray:
    return np.concatenate([np.asarray(getattr(block, name)) for block in blocks])


def _draw_blocks(
    actor: Actor, problem: Problem, episodes: int, key: Any, timeout: float
) -> list[Trajectories]:
    """Draw trajectories in blocks of one size, for one program and a bound on memory."""
    if isinstance(problem.env, GymnasiumEnv):
        count = min(episodes, MAX_GYMNASIUM_ENVS)
        horizon = problem.sampling_horizon()
        with closing(EpisodeRunner(problem.env, count, timeout=timeout)) as runner:
            blocks = [runner.draw(actor, key, 0, episodes, episodes, horizon)]
    else:
        size = min(episodes, _max_block_size(problem))
        draw: Callable[..., Trajectories] = sample
        if isinstance(actor, Agent):
            draw = draw_with_agent
        blocks: list[Trajectories] = []
        for i in range(math.ceil(episodes / size)):
            blocks.append(draw(problem, actor, size, jax.random.fold_in(key, i)))
        rest = episodes - size * (len(blocks) - 1)
        blocks[-1] = jax.tree.map(lambda leaf: leaf[:rest], blocks[-1])
    for block in blocks:
        _check_log_probs(np.asarray(block.log_probs))
    return blocks


def _max_block_size(problem: Problem) -> int:
    """Return the largest number of episodes in memory."""
    leaves = jax.tree.leaves(observation_spec(problem.env))
    step_numbers = 5 + sum(math.prod(leaf.shape) for leaf in leaves)
    return max(1, MAX_BLOCK_NUMBERS // (problem.sampling_horizon() * step_numbers))


def _read_env(env: Any) -> DecisionProcess:
    """Return the environment of an id or of module:factory, or an instance, which stays open."""
    if not isinstance(env, str):
        return wrap(env)
    source = find(env)
    if isinstance(source, str) and not source.startswith(PREFIX):
        return GymnasiumEnv(source)  # not its JAX implementation
    return make(source)


def _read_actor(policy: Any, env: DecisionProcess, deterministic: bool) -> tuple[Actor, bool]:
    """Return the policy or agent, and whether its observations are flattened to one vector."""
    if not isinstance(policy, Policy):
        return Agent(policy, env, deterministic), True
    is_flat = _takes_flat_observations(policy, env)
    if deterministic:
        policy = greedy(policy, env)
    return policy, is_flat


def _takes_flat_observations(policy: Policy, env: DecisionProcess) -> bool:
    """Check that a policy fits, and return whether it takes several parts as one vector."""
    check_policy_states(policy, env)
    draw = partial(jax.eval_shape, policy.draw)
    spec = observation_spec(env)
    try:
        draw(spec, jax.random.key(0))
    except Exception as error:  # a policy is any function, and raises anything
        if isinstance(env, GymnasiumEnv):
            with ignoring_rounded_bounds(), closing_environment(env.make()) as instance:
                spec = instance.observation_space
            with suppress(Exception):
                draw(spec.sample(), jax.random.key(0))
                return False
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"policy does not take the observations of env, {spec}: {reason}"
        ) from error
    check_policy_fits(policy, env)
    return True


def _check_log_probs(log_probs: Float[np.ndarray, "..."]) -> None:
    is_finite = np.isfinite(log_probs)
    if not is_finite.all():
        raise ValueError(
            "policy must return finite probabilities, got the log-probability "
            f"{log_probs[~is_finite][0]}."
        )
