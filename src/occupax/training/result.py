"""What training returns."""

import json
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from occupax import estimators, exact, serial
from occupax.algorithms import Algorithm
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.envs.tabular import TabularMDP
from occupax.policies import Categorical, Policy, action_probs
from occupax.problem import Problem
from occupax.samplers import Sampler, draw, make_sampler
from occupax.samplers.episodes import EpisodeRunner
from occupax.training.folder import read_config, write_config
from occupax.training.loggers import csv_text, read_csv
from occupax.training.policy_files import load_policy, save_policy
from occupax.training.records import EXACT, Table

TRIALS = 1000
SLOW_TRIALS = 100
SECONDS_A_STEP = 3600.0
"""Those who train with a longer time limit than the default do not have to say so again."""
SUMMARY = "summary.json"


@dataclass(frozen=True)
class Result:
    """Records and policies of a set of seeds."""

    problem: Problem | None
    """What was trained on; None if it could not be restored from a file."""
    algorithm: Algorithm[Any] | None
    seeds: tuple[int, ...]
    episodes: Int[np.ndarray, " record"]
    """Trajectories each seed had sampled at each record."""
    steps: Int[np.ndarray, "seed record"]
    """Environment steps each seed had taken."""
    metrics: dict[str, Float[np.ndarray, "seed record"]]
    """What was recorded; docs/records.md explains each number."""
    policies: tuple[Policy, ...]
    status: tuple[str, ...]
    """"finished", or why a seed was stopped."""
    seconds: float
    """How long it took."""
    config: dict[str, Any]
    """What `config.json` says."""
    arrays: dict[str, np.ndarray]
    """The arrays that belong to `config`."""

    def policy(self, seed: int | None = None) -> Policy:
        """The policy of a seed; by default the first."""
        return self.policies[self._index(seed)]

    def certificate(self, seed: int | None = None) -> exact.Certificate:
        """How far at most a seed's policy is from the best one; for tabular problems with a concave utility."""
        return exact.certificate(self._problem(), probabilities(self._problem(), self.policy(seed)))

    @cached_property
    def utilities(self) -> Float[np.ndarray, " seed"]:
        """What each policy is worth: exactly for a table, else estimated from trajectories that were not trained on.

        There are 1,000 of them and, because it takes longer, 100 of an environment of Gymnasium.
        """
        problem = self._problem()
        if isinstance(problem.env, TabularMDP):
            tables = [probabilities(problem, policy) for policy in self.policies]
            return np.array([exact.value(problem, table) if np.isfinite(table).all() else np.nan for table in tables])
        if isinstance(problem.env, GymnasiumEnv):
            with closing(EpisodeRunner(problem.env, timeout=SECONDS_A_STEP)) as player:
                return np.array([_play(player, problem, policy) for policy in self.policies])
        sampler = make_sampler(problem, self.policies[0])
        return np.array([_estimate(sampler, policy, jax.random.key(0)) for policy in self.policies], float)

    @property
    def best_policy(self) -> Policy:
        """The policy of the seed with the highest of `utilities`."""
        if np.isnan(self.utilities).all():
            raise ValueError("no seed has a policy whose utility is finite.")
        return self.policies[int(np.nanargmax(self.utilities))]

    def plot(self, metric: str = "utility") -> Any:
        """A Matplotlib figure: median and quartiles over the seeds against sampled episodes."""
        from occupax.analysis.metrics import plot_metric

        return plot_metric(self, metric)

    def save(self, folder: str | Path) -> None:
        """Write configuration, records and policies; `load_result` reads them."""
        path = Path(folder)
        write_config(path, self.config, self.arrays)
        table = Table(self.episodes, self.steps, self.metrics)
        serial.write_text(path / "metrics.csv", csv_text(self.seeds, table))
        for seed, policy in zip(self.seeds, self.policies, strict=True):
            save_policy(policy, path / "policies" / f"seed-{seed}.safetensors")
        summary = {"seeds": self.seeds, "status": self.status, "seconds": self.seconds}
        serial.write_text(path / SUMMARY, json.dumps(summary, indent=1))

    def _index(self, seed: int | None) -> int:
        if seed is None:
            return 0
        if seed not in self.seeds:
            raise ValueError(f"seed must be one of {', '.join(map(str, self.seeds))}, got {seed!r}.")
        return self.seeds.index(seed)

    def _problem(self) -> Problem:
        if self.problem is None:
            raise ValueError("the problem cannot be restored from a file: load_result(folder, problem=...) takes it.")
        return self.problem


@eqx.filter_jit
def _estimate(sampler: Sampler, policy: Policy, key: Key[Array, ""]) -> Float[Array, ""]:
    return sampler.problem.estimated_utility(draw(sampler, policy, TRIALS, key).occupancy())


def _play(player: EpisodeRunner, problem: Problem, policy: Policy) -> float:
    drawn = player.draw(policy, jax.random.key(0), 0, SLOW_TRIALS, SLOW_TRIALS, problem.sampling_horizon())
    return float(problem.estimated_utility(estimators.occupancy(problem, drawn, policy)))


def probabilities(problem: Problem, policy: Policy) -> Float[np.ndarray, "S A"]:
    """The table of action probabilities of a policy on a tabular problem, in float64."""
    if not isinstance(problem.env, TabularMDP):
        raise ValueError("exact values and certificates are for tabular environments.")
    with jax.enable_x64(True):
        states, num_actions = jnp.arange(problem.env.num_states), problem.env.num_actions
        if isinstance(policy, Categorical):
            logits = np.asarray(jax.vmap(policy.logits)(states), np.float64)
            return np.asarray(jax.nn.softmax(logits))
        probs = np.asarray(jax.vmap(lambda state: action_probs(policy, state, num_actions))(states), np.float64)
        return probs / probs.sum(1, keepdims=True)


def load_result(folder: str | Path, problem: Problem | None = None, policy: Policy | None = None) -> Result:
    """Read what `Result.save` or `train(out=folder)` wrote.

    Args:
        folder: the folder of a finished run.
        problem: the problem, where it holds functions of your own, which no file can restore.
        policy: likewise, a policy of the same structure as those that were trained.
    """
    path = Path(folder)
    config, arrays = read_config(path)
    try:
        summary = json.loads((path / SUMMARY).read_text())
    except FileNotFoundError:
        raise ValueError(f"{path} holds a run that is not finished: resume it first.") from None
    seeds, table = read_csv(path / "metrics.csv")
    files = [path / "policies" / f"seed-{seed}.safetensors" for seed in seeds]
    return Result(
        problem=problem if problem is not None else _restore(config["setup"], "problem", arrays),
        algorithm=_restore(config["setup"], "algorithm", arrays),
        seeds=seeds,
        episodes=table.episodes,
        steps=table.steps,
        metrics={name: values.astype(_precision(name, config)) for name, values in table.metrics.items()},
        policies=tuple(load_policy(file, like=policy) for file in files),
        status=tuple(summary["status"]),
        seconds=summary["seconds"],
        config=config,
        arrays=arrays,
    )


def _precision(metric: str, config: dict[str, Any]) -> str:
    """The type a number was recorded in: text holds as many digits as it needs, no more."""
    return "float64" if metric in EXACT or config["versions"]["float64"] else "float32"


def _restore(description: dict[str, Any], part: str, arrays: dict[str, np.ndarray]) -> Any:
    """A part of the set-up, or None if it holds what only its author has."""
    try:
        return serial.unpack(description[part], arrays)
    except ValueError:
        return None
