"""One ingredient at a time: truncation, the age of the quasi-reward, the guard of the utility's domain."""

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from occupax import utilities
from occupax.algorithms import TSIVRPG, Algorithm
from occupax.algorithms.base import add, subtract
from occupax.algorithms.tsivrpg import TSIVRPGState
from occupax.analysis.charts import Chart
from occupax.batch import Batch
from occupax.experiments.cells import Cell, Done, Scale
from occupax.experiments.methods import Settings
from occupax.experiments.sections import Section, TextTable, centre, shown
from occupax.experiments.tasks import CARTPOLE, COVERAGE, COVERAGE_CARTPOLE, LAKE, SIGMA, Task, tasks
from occupax.experiments.views import both_curves, gains_table
from occupax.problem import Problem

OURS, PLAIN, CUT = "TSIVR-PG", "REINFORCE", "REINFORCE (truncated)"
UNCUT, NEWEST, UNGUARDED = "TSIVR-PG (no truncation)", "TSIVR-PG (r_j)", "TSIVR-PG (no guard)"
VARIANTS = {
    LAKE: (OURS, UNCUT, PLAIN, CUT),
    CARTPOLE: (OURS, UNCUT, PLAIN, CUT),
    COVERAGE: (OURS, UNCUT, NEWEST, UNGUARDED),
    COVERAGE_CARTPOLE: (OURS, UNCUT, NEWEST, UNGUARDED),
}
"""The age of the quasi-reward and the guard make no difference to a reward, whose quasi-reward is constant."""
PAIRS = ((UNCUT, OURS), (CUT, PLAIN), (CUT, OURS), (NEWEST, OURS), (UNGUARDED, OURS))
LOOK = {name: i for i, name in enumerate((OURS, PLAIN, UNCUT, CUT, NEWEST, UNGUARDED))}

Key = tuple[str, str]
"""The names of a task and of a variant."""


class NewestQuasiReward(TSIVRPG):
    """TSIVR-PG with r_j in the place of r_{j-1}: what the paper warns of, because r_j depends on the batch itself."""

    def _recursion(self, state: TSIVRPGState, batch: Batch, key: Any) -> TSIVRPGState:
        then, now = state.previous, state.policy
        u = state.occupancy + batch.occupancy(now) - batch.occupancy(then)
        r = batch.quasi_reward(u)
        new, old = batch.gradient(now, r, self.baseline), batch.gradient(then, state.quasi_reward, self.baseline)
        g = add(state.gradient, subtract(new, old))
        policy, memory = self.step()(now, g, state.memory, batch)
        return TSIVRPGState(policy, u, g, memory, now, r, state.quasi_reward)


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
            task = unguarded(tasks()[name]) if variant == UNGUARDED else tasks()[name]
            found[name, variant] = scale.cell("tuned", task, variant, _algorithm(tuned, name, variant))
    return found


def _algorithm(tuned: Settings, task: str, variant: str) -> Algorithm[Any]:
    if variant in (PLAIN, CUT):
        return tuned[task, variant]
    ours: Any = tuned[task, OURS]
    if variant == UNCUT:
        return replace(ours, radius=inf)
    return NewestQuasiReward(**vars(ours)) if variant == NEWEST else ours


def sections(done: Mapping[Key, Done]) -> list[Section]:
    """What the report says of the ablations."""
    figures: list[Chart] = []
    names = list(dict.fromkeys(task for task, _ in done))
    for task in names:
        slug = {LAKE: "lake", CARTPOLE: "cartpole", COVERAGE: "coverage", COVERAGE_CARTPOLE: "cartpole-coverage"}[task]
        parts = [(variant, done[task, variant].last) for variant in VARIANTS[task]]
        figures.append(both_curves(f"ablation-{slug}", task, tasks()[task], parts, LOOK)[0])
    rows = [
        [task, variant, shown(centre(it.last.heights)), shown(centre(it.last.final)), str(it.stopped)]
        for (task, variant), it in done.items()
    ]
    outcomes = TextTable(
        "ablations",
        "Mean over the whole training (area under the curve) and in the end, interquartile means with 95% intervals.",
        ["Task", "Variant", "Area under curve", "In the end", "Seeds stopped"],
        rows,
        2,
    )
    differences = gains_table(
        "ablation-differences",
        "Differences of the area under the curve, with 95% intervals.",
        ["Task", "Difference of", "By", "First better"],
        [
            ((task, f"{first} minus {second}"), done[task, first].last, done[task, second].last)
            for task in names
            for first, second in PAIRS
            if (task, first) in done and (task, second) in done
        ],
    )
    text = (
        "Truncation alone: REINFORCE with a radius, its settings found by a search of the same size. TSIVR-PG without "
        "truncation has the settings of TSIVR-PG and an infinite radius; for a reward it is SRVR-PG. A quasi-reward of "
        "the present iteration (r_j), and no projection on the domain of the utility (no guard), change nothing for a "
        "reward, whose quasi-reward is constant; they are tried on log coverage, over the states of the lake and over "
        "a grid of 8 x 8 cells of CartPole's position and angle. All with the tuned settings of TSIVR-PG."
    )
    return [Section("ablations", "Ablations", text, (), figures, (outcomes, differences))]
