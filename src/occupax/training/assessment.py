"""What trained policies are worth, found out at the end of training and kept with the run."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from occupax import estimators, exact, serial
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.envs.tabular import TabularMDP
from occupax.policies import Categorical, Policy, action_probs
from occupax.problem import Problem
from occupax.samplers.base import ProgramSource
from occupax.samplers.episodes import EpisodeRunner
from occupax.samplers.kernel import program_sampler

FILE, FORMAT = "assessment.safetensors", "occupax-assessment"
EPISODES = 1000
GYMNASIUM_EPISODES = 100
"""Fewer, because they take longer."""
SECONDS_A_STEP = 3600.0
"""Those who train with a longer time limit than the default do not have to say so again."""


@dataclass(frozen=True)
class Assessment:
    """What the policies of all seeds are worth."""

    utilities: Float[np.ndarray, " seed"]
    """The utility of each policy; NaN if its parameters are not finite."""
    source: str
    """Where the utilities come from: "exact", or "estimate from ... new episodes"."""
    gaps: Float[np.ndarray, " seed"] | None = None
    """The certified gap of each policy, for a concave utility on a table."""
    reason: str = ""
    """Why there are no gaps, where they were tried."""
    visits: Float[np.ndarray, "seed S"] | None = None
    """How often each policy visits each state in an episode, discounted and exact, on a table."""

    def save(self, folder: Path) -> None:
        """Write the assessment into the folder of its run."""
        known = {"utilities": self.utilities, "gaps": self.gaps, "visits": self.visits}
        arrays = {name: array for name, array in known.items() if array is not None}
        serial.write(folder / FILE, arrays, {"format": FORMAT, "source": self.source, "reason": self.reason})


def load_assessment(folder: Path) -> Assessment | None:
    """Read the assessment from the folder of a run, if it has one."""
    file = folder / FILE
    if not file.exists():
        return None
    arrays, content = serial.read(file)
    if content.get("format") != FORMAT or "utilities" not in arrays:
        raise ValueError(f"{file} is not the assessment of a run.")
    parts = {name: arrays.get(name) for name in ("gaps", "visits")}
    return Assessment(arrays["utilities"], str(content.get("source")), reason=str(content.get("reason", "")), **parts)


def assess(problem: Problem, policies: Sequence[Policy]) -> Assessment:
    """Find out what policies are worth: exactly for a table, else from episodes that were not trained on."""
    if isinstance(problem.env, TabularMDP):
        return _assess_tables(problem, np.array([probabilities(problem, policy) for policy in policies]))
    if isinstance(problem.env, GymnasiumEnv):
        with closing(EpisodeRunner(problem.env, timeout=SECONDS_A_STEP)) as runner:
            utilities = [_play(runner, problem, policy) for policy in policies]
        return Assessment(np.array(utilities), f"estimate from {GYMNASIUM_EPISODES:,} new episodes")
    source = program_sampler(problem, policies[0]).open(problem, policies[0])
    utilities = [_estimate(source, policy, jax.random.key(0)) for policy in policies]
    return Assessment(np.array(utilities, float), f"estimate from {EPISODES:,} new episodes")


def _assess_tables(problem: Problem, tables: Float[np.ndarray, "seed S A"]) -> Assessment:
    evaluator = exact.Evaluator(problem)
    occupancies, gaps, reason = evaluator.occupancies(tables), None, ""
    if problem.utility.concave:
        try:
            gaps = evaluator.gaps(occupancies)
        except ValueError as error:  # a utility that is infinitely steep where a policy never goes
            reason = f"There is no certificate: {error}"
    nothing = np.full(tables.shape[:2], np.nan)
    visits = [
        exact.occupancy(problem, it).sum(1) if np.isfinite(it).all() else no
        for it, no in zip(tables, nothing, strict=True)
    ]
    return Assessment(evaluator.utilities(occupancies), "exact", gaps, reason, np.array(visits))


@eqx.filter_jit
def _estimate(source: ProgramSource, policy: Policy, key: Key[Array, ""]) -> Float[Array, ""]:
    return source.problem.estimated_utility(source.draw(policy, EPISODES, key).occupancy())


def _play(runner: EpisodeRunner, problem: Problem, policy: Policy) -> float:
    n = GYMNASIUM_EPISODES
    drawn = runner.draw(policy, jax.random.key(0), 0, n, n, problem.sampling_horizon())
    return float(problem.estimated_utility(estimators.occupancy(problem, drawn, policy)))


def probabilities(problem: Problem, policy: Policy) -> Float[np.ndarray, "S A"]:
    """The table of action probabilities of a policy on a tabular problem, in float64."""
    if not isinstance(problem.env, TabularMDP):
        raise ValueError("exact values and certificates are for tabular environments.")
    states, num_actions = jnp.arange(problem.env.num_states), problem.env.num_actions
    with jax.enable_x64(True):
        if isinstance(policy, Categorical):
            return np.asarray(jax.nn.softmax(np.asarray(jax.vmap(policy.logits)(states), np.float64)))
        probs = np.asarray(jax.vmap(lambda state: action_probs(policy, state, num_actions))(states), np.float64)
        return probs / probs.sum(1, keepdims=True)
