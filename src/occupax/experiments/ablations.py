"""One ingredient at a time: truncation, the age of the quasi-reward, the guard of the utility's domain."""

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any, cast

import jax.numpy as jnp
from jaxtyping import Array, Float

from occupax import utilities
from occupax.algorithms import TSIVRPG
from occupax.algorithms.base import add, subtract
from occupax.algorithms.carrying import CarriedState
from occupax.batch import Batch
from occupax.experiments.cells import Cell, Done, Scale
from occupax.experiments.methods import Settings
from occupax.experiments.sections import Section, TextTable, centre, shown, text
from occupax.experiments.tasks import CARTPOLE, COVERAGE, COVERAGE_CARTPOLE, LAKE, SIGMA, Task, tasks
from occupax.experiments.views import both_curves, gains_table
from occupax.problem import Problem

OURS, PLAIN, CUT = "TSIVR-PG", "REINFORCE", "REINFORCE (truncated)"
UNCUT, NEWEST, UNGUARDED = "TSIVR-PG (no truncation)", "TSIVR-PG (r_j)", "TSIVR-PG (no guard)"
VARIANTS = {
    **dict.fromkeys((LAKE, CARTPOLE), (OURS, UNCUT, PLAIN, CUT)),
    **dict.fromkeys((COVERAGE, COVERAGE_CARTPOLE), (OURS, UNCUT, NEWEST, UNGUARDED)),
}
"""The age of the quasi-reward and the guard make no difference to a reward, whose quasi-reward is constant."""
PAIRS = ((UNCUT, OURS), (CUT, PLAIN), (CUT, OURS), (NEWEST, OURS), (UNGUARDED, OURS))
SLUGS = {LAKE: "lake", CARTPOLE: "cartpole", COVERAGE: "coverage", COVERAGE_CARTPOLE: "cartpole-coverage"}
LOOK = {name: i for i, name in enumerate((OURS, PLAIN, UNCUT, CUT, NEWEST, UNGUARDED))}

Key = tuple[str, str]
"""The names of a task and of a variant."""


class NewestQuasiReward(TSIVRPG):
    """TSIVR-PG with r_j in the place of r_{j-1}: what the paper warns of, because r_j depends on the batch itself."""

    def _recursion(self, state: CarriedState, batch: Batch, key: Any) -> CarriedState:
        then, now = state.previous, state.policy
        u = state.occupancy + batch.occupancy(now) - batch.occupancy(then)
        r = batch.quasi_reward(u)
        new, old = batch.gradient(now, r, self.baseline), batch.gradient(then, state.quasi_reward, self.baseline)
        g = add(state.gradient, subtract(new, old))
        policy, memory = self.step()(now, g, state.memory, batch)
        return CarriedState(policy, u, g, memory, state.restarted, now, r, state.quasi_reward)


def log_coverage(occupancy: Float[Array, " d"]) -> Float[Array, ""]:
    """The sum of log(u + sigma)."""
    return jnp.sum(jnp.log(occupancy + SIGMA))


def everywhere(occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
    """No guard: the estimate itself, be it negative."""
    return occupancy


def unguarded(task: Task) -> Task:
    """The task with the gradient of its utility taken wherever the estimate is."""
    given = task.problem
    utility = utilities.Custom(log_coverage, features=given.features, domain=everywhere, concave=True)
    bare = Problem(given.env, utility, given.discount, given.horizon, given.termination, given.features)
    return replace(task, problem=bare, given_threshold=task.threshold)


def cells(scale: Scale, tuned: Settings) -> dict[Key, Cell]:
    """Every cell of the ablations at a scale."""
    found: dict[Key, Cell] = {}
    for name, variants in VARIANTS.items():
        for variant in variants if name in scale.tasks else ():
            task, algorithm = tasks()[name], cast("Any", tuned[name, variant if variant in (PLAIN, CUT) else OURS])
            if variant == UNCUT:
                algorithm = replace(algorithm, radius=inf)
            if variant == NEWEST:
                algorithm = NewestQuasiReward(**vars(algorithm))
            if variant == UNGUARDED:
                task = unguarded(task)
            found[name, variant] = scale.cell("tuned", task, variant, algorithm)
    return found


def sections(done: Mapping[Key, Done]) -> list[Section]:
    """What the report says of the ablations."""
    names = list(dict.fromkeys(task for task, _ in done))
    figures = [
        both_curves(f"ablation-{SLUGS[task]}", task, done[task, OURS].cell.task, curves, LOOK)[0]
        for task in names
        for curves in [{variant: done[task, variant].last for variant in VARIANTS[task]}]
    ]
    rows = [
        [task, variant, shown(centre(it.last.heights)), shown(centre(it.last.final)), str(it.stopped)]
        for (task, variant), it in done.items()
    ]
    pairs = [
        ((task, f"{first} minus {second}"), done[task, first].last, done[task, second].last)
        for task in names
        for first, second in PAIRS
        if (task, first) in done and (task, second) in done
    ]
    tables = [TextTable(**text("tables", "ablations"), rows=rows), gains_table("ablation-differences", pairs)]
    return [Section(**text("sections", "ablations"), figures=figures, tables=tables)]
