"""One ingredient of TSIVR-PG at a time on log coverage: the radius, the age of the quasi-reward, the guard."""

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
from occupax.experiments.cells import Cell, Outcome, slug
from occupax.experiments.figures import difference_rows, table
from occupax.experiments.inference import mean
from occupax.experiments.methods import OURS
from occupax.experiments.scale import Scale
from occupax.experiments.sections import Section, shown, text
from occupax.experiments.tasks import COVERAGE, SIGMA, Task, tasks
from occupax.problem import Problem

UNCUT, NEWEST, UNGUARDED = "no radius", "r_j in the place of r_(j-1)", "no guard of the domain"


class NewestQuasiReward(TSIVRPG):
    """TSIVR-PG with r_j in the place of r_{j-1}: what the paper warns of, because r_j depends on the batch itself."""

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
    """The sum of log(u + sigma)."""
    return jnp.sum(jnp.log(occupancy + SIGMA))


def everywhere(occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
    """No guard: the estimate itself, be it negative."""
    return occupancy


def unguarded(task: Task) -> Task:
    """The task with the gradient of its utility taken wherever the estimate is."""
    given = task.problem
    utility = utilities.Custom(
        log_coverage, features=given.features, domain=everywhere, concave=True
    )
    bare = Problem(
        given.env, utility, given.discount, given.horizon, given.termination, given.features
    )
    return replace(
        task, name=f"{task.name}, unguarded", problem=bare, given_threshold=task.threshold
    )


def cells(scale: Scale, tuned: Any) -> dict[str, Cell]:
    """Every variant of the tuned setting of TSIVR-PG."""
    task = tasks()[COVERAGE]
    made = {
        OURS: tuned,
        UNCUT: replace(tuned, radius=inf),
        NEWEST: NewestQuasiReward(**vars(tuned)),
        UNGUARDED: tuned,
    }
    return {
        name: Cell(
            slug("ablation", name),
            of,
            algorithm,
            scale.episodes(task.episodes),
            scale.seeds(task.seeds),
        )
        for name, algorithm in made.items()
        for of in [unguarded(task) if name == UNGUARDED else task]
    }


def sections(done: Mapping[str, Outcome]) -> list[Section]:
    """What the report says of the ablations."""
    rows = [[name, shown(mean(it.area())), shown(mean(it.final))] for name, it in done.items()]
    pairs = [
        ((f"{name} minus {OURS}",), it.area(), done[OURS].area())
        for name, it in done.items()
        if name != OURS
    ]
    tables = [table("ablations", rows), table("ablation-differences", difference_rows(pairs))]
    return [Section(**text("sections", "ablations"), tables=tables)]
