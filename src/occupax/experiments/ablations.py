"""Ablations of TSIVR-PG on log coverage: the radius, the age of the quasi-reward, the guard."""

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from occupax import utilities
from occupax.algorithms import TSIVRPG, add, subtract
from occupax.algorithms.tsivrpg import TSIVRPGState
from occupax.batches import Batch
from occupax.experiments.cells import ExperimentCell, ExperimentResult, make_cell
from occupax.experiments.figures import difference_rows
from occupax.experiments.inference import mean
from occupax.experiments.methods import OURS
from occupax.experiments.scale import Scale
from occupax.experiments.sections import Section, shown, table, text
from occupax.experiments.tasks import COVERAGE, SIGMA, Task, tasks
from occupax.jobs import file_name
from occupax.problem import Problem

UNCUT = "no radius"
NEWEST = "r_j in the place of r_(j-1)"
UNGUARDED = "no guard of the domain"


class NewestQuasiReward(TSIVRPG):
    """TSIVR-PG with r_j instead of r_{j-1}, which depends on the batch itself.

    The paper warns of this variant.
    """

    def _refine(self, state: TSIVRPGState, batch: Batch, key: Any) -> TSIVRPGState:
        occupancy = state.occupancy + batch.occupancy() - batch.occupancy(state.previous)
        quasi_reward = batch.quasi_reward(occupancy)
        new_gradient = batch.gradient(None, quasi_reward, self.baseline)
        old_gradient = batch.gradient(state.previous, state.quasi_reward, self.baseline)
        gradient = add(state.gradient, subtract(new_gradient, old_gradient))
        policy, memory = self.step()(state.policy, gradient, state.memory, batch)
        return TSIVRPGState(
            policy=policy,
            occupancy=occupancy,
            gradient=gradient,
            memory=memory,
            restarted=state.restarted,
            previous=state.policy,
            quasi_reward=quasi_reward,
            previous_quasi_reward=state.quasi_reward,
        )


def log_coverage(occupancy: Float[Array, " d"]) -> Float[Array, ""]:
    """Return the sum of log(u + sigma)."""
    return jnp.sum(jnp.log(occupancy + SIGMA))


def unguarded_domain(occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
    """Return the estimate itself, which may be negative."""
    return occupancy


def unguarded(task: Task) -> Task:
    """Return the task with the gradient of its utility at every estimate."""
    problem = task.problem
    utility = utilities.Custom(
        log_coverage, features=problem.features, domain=unguarded_domain, concave=True
    )
    bare = Problem(
        problem.env,
        utility,
        problem.discount,
        problem.horizon,
        problem.termination,
        problem.features,
    )
    name = f"{task.name}, unguarded"
    return replace(task, name=name, problem=bare, fixed_threshold=task.threshold)


def make_cells(scale: Scale, tuned: Any) -> dict[str, ExperimentCell]:
    """Return every variant of the tuned TSIVR-PG."""
    task = tasks()[COVERAGE]
    variants = {
        OURS: (task, tuned),
        UNCUT: (task, replace(tuned, radius=inf)),
        NEWEST: (task, NewestQuasiReward(**vars(tuned))),
        UNGUARDED: (unguarded(task), tuned),
    }
    cells: dict[str, ExperimentCell] = {}
    for name, (variant_task, algorithm) in variants.items():
        cells[name] = make_cell(file_name("ablation", name), variant_task, algorithm, scale)
    return cells


def sections(results: Mapping[str, ExperimentResult]) -> list[Section]:
    """Return the section of the report about the ablations."""
    rows: list[list[str]] = []
    pairs: list[Any] = []
    ours = results[OURS].area()
    for name, result in results.items():
        rows.append([name, shown(mean(result.area())), shown(mean(result.final))])
        if name != OURS:
            pairs.append(((f"{name} minus {OURS}",), result.area(), ours))
    tables = [table("ablations", rows), table("ablation-differences", difference_rows(pairs))]
    return [Section(**text("sections", "ablations"), tables=tables)]
