"""What a policy earns in episodes of its own, without discount."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from occupax import estimators
from occupax.batches import SampledBatch
from occupax.display import Description
from occupax.envs.base import DecisionProcess, observation_spec
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.envs.gymnax import PREFIX
from occupax.envs.lookup import closing as closing_environment
from occupax.envs.lookup import find, ignoring_rounded_bounds
from occupax.envs.registry import make, wrap
from occupax.errors import check_integer
from occupax.forking import begin_jax_use
from occupax.policies import Policy, check_policy_fits, check_policy_states
from occupax.policies.agents import Agent, check_actor
from occupax.policies.modes import greedy
from occupax.problem import Problem
from occupax.samplers import sample
from occupax.samplers.agent_rollout import draw_with_agent
from occupax.samplers.episodes import EpisodeRunner, VectorStep
from occupax.trajectories import Trajectories

MOST_NUMBERS_A_BLOCK = 2**22
MOST_GYMNASIUM_ENVS = 8
Actor = Policy | Agent


class Estimate(NamedTuple):
    """A number that was estimated from episodes, and its confidence interval of 95%."""

    value: float
    lower: float
    upper: float

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.lower:.4g}, {self.upper:.4g}]"


class Evaluation(NamedTuple):
    """Undiscounted returns of independent episodes."""

    returns: Float[np.ndarray, " episodes"]
    lengths: Int[np.ndarray, " episodes"]
    terminated: Bool[np.ndarray, " episodes"]
    """Whether the episode ended by itself, as opposed to being cut by a time limit or
    `max_steps`."""

    @property
    def objective(self) -> Mapping[str, Estimate]:
        """What is known of a problem; nothing of an environment alone."""
        return {}

    @property
    def interval(self) -> Estimate:
        """The mean return with its interval."""
        return around(self.mean, self.standard_error)

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
        objective = "".join(f"{name} {found}; " for name, found in self.objective.items())
        return (
            f"{objective}return {self.mean:.4g} +- {self.standard_error:.2g} ({episodes} of "
            f"{self.mean_length:.1f} steps on average, {self.terminated.mean():.0%} ended by themselves)"
        )

    def __repr__(self) -> str:
        return self._description().text()

    def _repr_html_(self) -> str:
        return self._description().html()

    def _description(self) -> Description:
        rows = {
            **{name: str(found) for name, found in self.objective.items()},
            "return": str(self.interval),
            "steps": f"{self.mean_length:.1f} on average",
            "terminated": f"{self.terminated.mean():.0%}",
        }
        return Description(f"Evaluation: {len(self.returns):,} episodes", list(rows.items()))


class ProblemEvaluation(Evaluation):
    """What a policy comes to in a problem: utility, what the constraints limit, and returns."""

    utility: Estimate
    constraints: Mapping[str, Estimate]
    """What each constraint limits, by its text, such as "cost <= 25"."""

    def __new__(
        cls, played: Evaluation, utility: Estimate, constraints: Mapping[str, Estimate]
    ) -> "ProblemEvaluation":
        """Add to what was played what the problem makes of it."""
        made = super().__new__(cls, *played)
        made.utility, made.constraints = utility, constraints
        return made

    @property
    def objective(self) -> Mapping[str, Estimate]:
        """The utility and what the constraints limit, by name."""
        return {"utility": self.utility, **self.constraints}


def around(value: float, standard_error: float) -> Estimate:
    """A number and what lies within two standard errors of it, 1.96 to be precise."""
    return Estimate(value, value - 1.96 * standard_error, value + 1.96 * standard_error)


def evaluate(
    policy: Any,
    env: Any,
    episodes: int = 100,
    seed: int = 0,
    max_steps: int | None = None,
    timeout: float = 60.0,
    deterministic: bool = False,
) -> Evaluation:
    """Run a policy for a number of episodes. Episode i depends on (seed, i) alone, except for random numbers of agents.

    An environment of Gymnasium is called from a thread of its own, which is left behind if it
    hangs. If it raises, hangs or returns what is of no use, an `occupax.samplers.EpisodeError`
    names the episode and its seed.

    Args:
        policy: a policy; an agent with `predict`, such as one of Stable-Baselines3; or a function
            of the observation that returns an action. Agents and functions are given observations
            as Gymnasium's environments return them, one at a time, and return what its `step`
            takes.
        env: a problem, of which utility and constraints are estimated, too; or an environment: a
            Gymnasium id or environment, or module:factory, which runs in Gymnasium itself; or an
            environment of occupax, its class as module:class, or a name of gymnax such as
            "gymnax/CartPole-v1". An environment that is passed in is not closed.
        episodes: how many.
        seed: of the environment and the actions.
        max_steps: where episodes are cut. An environment in JAX without a time limit needs it, and
            so does one of Gymnasium whose episodes may never end.
        timeout: how many seconds a step, or a reset, may take in Gymnasium.
        deterministic: whether to take the most probable action (of a Gaussian distribution, the
            mean) instead of drawing one; it is passed on to the `predict` of an agent.

    Returns:
        The return and the length of each episode, and whether it ended by itself; of a problem, a
        `ProblemEvaluation` with its utility and what its constraints limit, too, with intervals.
    """
    begin_jax_use()
    check_actor(policy)
    episodes, seed = check_integer("episodes", episodes), check_integer("seed", seed, minimum=0)
    limit = None if max_steps is None else check_integer("max_steps", max_steps)
    if isinstance(env, Problem):
        if limit is not None:
            raise ValueError(
                f"max_steps must be None for a problem, which has a horizon, got {max_steps!r}."
            )
        actor, _ = _read_actor(policy, env.env, deterministic)
        return _of_problem(actor, env, episodes, seed, timeout)
    with warnings.catch_warnings():
        # an old version is what the caller asked for
        warnings.filterwarnings(
            "ignore", message=r".*The environment .* is out of date", category=DeprecationWarning
        )
        process = _make(env)
        actor, flat = _read_actor(policy, process, deterministic)
        if not isinstance(process, GymnasiumEnv):
            return _in_jax(actor, process, episodes, seed, limit)
        envs = min(episodes, MOST_GYMNASIUM_ENVS) if isinstance(env, str | GymnasiumEnv) else 1
        with closing(EpisodeRunner(process, envs, timeout=timeout, flat=flat)) as runner:
            return runner.play(
                actor, jax.random.key(seed), range(episodes), partial(_add_up, episodes), limit
            )


def _add_up(episodes: int, steps: Iterator[VectorStep]) -> Evaluation:
    found = Evaluation(np.zeros(episodes), np.zeros(episodes, int), np.zeros(episodes, bool))
    for step in steps:
        _refuse_infinite(step.log_probs)
        found.returns[step.row] += step.returned["reward"]
        found.lengths[step.row] += 1
        found.terminated[step.row] = step.returned["terminated"]
    return found


def _in_jax(
    policy: Actor, env: DecisionProcess, episodes: int, seed: int, limit: int | None
) -> Evaluation:
    """Sample blocks of equal size, so that there is one program and a bound on memory."""
    horizon = min((steps for steps in (limit, env.time_limit) if steps is not None), default=None)
    if horizon is None:
        raise ValueError(
            "max_steps must be given for an environment without a time limit, got None."
        )
    drawn = _draw(policy, Problem(env, horizon=horizon), episodes, jax.random.key(seed), math.inf)
    _refuse_infinite(np.concatenate([np.asarray(part.log_probs) for part in drawn]))
    return _added_up(drawn)


def _of_problem(
    actor: Actor, problem: Problem, episodes: int, seed: int, timeout: float
) -> Evaluation:
    """Play episodes of a problem; utility and constraints are functions of their mean occupancy.

    Their standard errors are those of their linear approximations there (the delta method).
    """
    if isinstance(actor, Agent) and problem.termination == "absorbing":
        why = "because the probabilities of an agent after the end are unknown"
        raise ValueError(
            f'termination of the problem must be "episodic" for an agent, {why}, got "absorbing".'
        )
    policy = actor.behaviour() if isinstance(actor, Agent) else actor
    drawn = _draw(actor, problem, episodes, jax.random.key(seed), timeout)
    _refuse_infinite(np.concatenate([np.asarray(part.log_probs) for part in drawn]))
    sizes = np.array([len(part.actions) for part in drawn])
    means = [SampledBatch(problem, part, policy).occupancy() for part in drawn]
    occupancy = sum(size * mean for size, mean in zip(sizes, means, strict=True)) / sizes.sum()

    def estimate(value: Any, gradient: Any) -> Estimate:
        totals = np.concatenate(
            [np.asarray(estimators.totals(problem, it, policy, gradient), float) for it in drawn]
        )
        deviation = float(totals.std(ddof=1)) if episodes > 1 else math.nan
        return around(float(value), deviation / math.sqrt(episodes))

    limits: dict[str, Estimate] = {}
    if problem.constraints:
        slopes = jax.jacobian(problem.excesses)(occupancy)
        for one, excess, slope in zip(
            problem.constraints, problem.excesses(occupancy), slopes, strict=True
        ):
            limits[str(one)] = estimate(one.limit + one.sign * excess, slope)
    utility = estimate(problem.estimated_utility(occupancy), problem.quasi_reward(occupancy))
    return ProblemEvaluation(_added_up(drawn), utility, limits)


def _added_up(drawn: Sequence[Trajectories]) -> Evaluation:
    returns = [np.asarray(part.rewards, np.float64).sum(1) for part in drawn]
    lengths, ended = (
        [np.asarray(getattr(part, name)) for part in drawn] for name in ("lengths", "terminated")
    )
    return Evaluation(*map(np.concatenate, (returns, lengths, ended)))


def _draw(
    actor: Actor, problem: Problem, episodes: int, key: Any, timeout: float
) -> list[Trajectories]:
    """Trajectories of a problem, in blocks of a bounded size."""
    horizon = problem.sampling_horizon()
    if isinstance(problem.env, GymnasiumEnv):
        envs = min(episodes, MOST_GYMNASIUM_ENVS)
        with closing(EpisodeRunner(problem.env, envs, timeout=timeout)) as runner:
            return [runner.draw(actor, key, 0, episodes, episodes, horizon)]
    numbers_a_step = 5 + sum(
        math.prod(leaf.shape) for leaf in jax.tree.leaves(observation_spec(problem.env))
    )
    size = min(episodes, max(1, MOST_NUMBERS_A_BLOCK // (horizon * numbers_a_step)))
    keys = [jax.random.fold_in(key, i) for i in range(math.ceil(episodes / size))]
    if isinstance(actor, Agent):
        blocks = [draw_with_agent(problem, actor, size, block_key) for block_key in keys]
    else:
        blocks = [sample(problem, actor, size, block_key) for block_key in keys]
    return [
        *blocks[:-1],
        jax.tree.map(lambda leaf: leaf[: episodes - size * (len(blocks) - 1)], blocks[-1]),
    ]


def _make(given: Any) -> DecisionProcess:
    """Return the environment of an id or of module:factory, or a made environment, which then stays open."""
    if isinstance(given, str):
        source = find(given)
        in_gymnasium = isinstance(source, str) and not source.startswith(
            PREFIX
        )  # the environment itself, not a twin
        return GymnasiumEnv(source) if in_gymnasium else make(source)
    return wrap(given)


def _read_actor(policy: Any, env: DecisionProcess, deterministic: bool) -> tuple[Actor, bool]:
    """Return the policy or agent that acts, and whether it takes observations of several parts as one vector."""
    if not isinstance(policy, Policy):
        return Agent(policy, env, deterministic), True
    flat = _refuse_unfit(policy, env)
    return greedy(policy, env) if deterministic else policy, flat


def _refuse_unfit(policy: Policy, env: DecisionProcess) -> bool:
    """Refuse a policy made for something else; return whether it takes observations of several parts as one vector."""
    check_policy_states(policy, env)
    act, seen = partial(jax.eval_shape, policy.draw), observation_spec(env)
    try:
        act(seen, jax.random.key(0))
    except Exception as misfit:  # a policy may be any function, and raise anything
        if isinstance(env, GymnasiumEnv):
            with ignoring_rounded_bounds(), closing_environment(env.make()) as made:
                seen = made.observation_space
            with suppress(Exception):
                act(seen.sample(), jax.random.key(0))
                return False
        reason = str(misfit).partition("\n")[0]
        raise ValueError(
            f"policy does not take the observations of env, {seen}: {reason}"
        ) from misfit
    check_policy_fits(policy, env)
    return True


def _refuse_infinite(log_probs: Float[np.ndarray, "..."]) -> None:
    if not np.isfinite(log_probs).all():
        wrong = log_probs[~np.isfinite(log_probs)][0]
        raise ValueError(
            f"policy must return finite probabilities, got the log-probability {wrong}."
        )
