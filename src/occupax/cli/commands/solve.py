"""`occupax solve`."""

from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

import occupax as ox
from occupax.cli.choices import make_problem
from occupax.cli.output import print_json, print_table
from occupax.exact.optimum import Method
from occupax.problem import Termination

MOST_SAMPLED_STEPS = 1000


def solve(
    env: Annotated[str, tyro.conf.Positional],
    utility: str = "reward",
    discount: float = 0.99,
    horizon: int | None = None,
    termination: Termination = "episodic",
    method: Method = "auto",
    tolerance: float = 1e-6,
    trajectories: int = 10_000,
    seed: int = 0,
    given: Annotated[tuple[str, ...], tyro.conf.arg(name="set")] = (),
    json: bool = False,
) -> None:
    """Solve a tabular problem exactly, and check the exact values by sampling.

    Shows the uniform and the optimal policy: their exact utility, how far at most they are from the best policy (the
    certified gap), and the utility of the occupancy estimated from sampled trajectories.

    Example: occupax solve FrozenLake8x8-v1 --utility log-coverage --discount 0.99

    Args:
        env: a tabular environment, see `occupax list`.
        utility: what to maximise, see `occupax list`.
        discount: the discount factor, in [0, 1).
        horizon: how many steps count; infinitely many by default.
        termination: whether steps after the end of an episode count.
        method: how to solve.
        tolerance: the certified gap to reach.
        trajectories: how many trajectories to sample from each policy; 0 for none.
        seed: of the sampling.
        given: settings such as utility.sigma=0.5 or env.is_slippery=false.
        json: print JSON instead of a table.
    """
    problem = make_problem(env, utility, given, discount=discount, horizon=horizon, termination=termination)
    best = ox.solve(problem, method=method, tolerance=tolerance)
    S, A = best.occupancy.shape
    uniform = np.full((S, A), 1 / A)
    certificate = ox.exact.certificate(problem, uniform)
    rows = [
        {"policy": "uniform", "utility": certificate.value, "gap": certificate.gap},
        {"policy": "optimal", "utility": best.value, "gap": best.gap},
    ]
    if trajectories:
        _check_by_sampling(rows, problem, [uniform, best.policy], trajectories, seed)
    if json:
        print_json({"discount": problem.discount, "horizon": problem.horizon, "policies": rows})
    else:
        title = f"{utility} on {env}, discount {discount:g}, horizon {horizon or 'infinite'}, {termination}"
        print_table(title, rows, missing="depends on time")


def _check_by_sampling(
    rows: list[dict[str, Any]], problem: ox.Problem, tables: list[np.ndarray], trajectories: int, seed: int
) -> None:
    """Add what the first steps of stationary policies give exactly and by sampling."""
    steps = min(problem.effective_horizon, MOST_SAMPLED_STEPS)
    short = ox.Problem(problem.env, problem.utility, problem.discount, steps, problem.termination)
    for row, table in zip(rows, tables, strict=True):
        if table.ndim == 2:
            policy = ox.policies.Tabular(jnp.log(jnp.asarray(table)))
            batch = ox.sample(short, policy, trajectories, jax.random.key(seed))
            row["steps"] = steps
            row["exact at these steps"] = ox.exact.value(short, table)
            row["sampled"] = float(short.utility.value(ox.estimators.occupancy(short, batch, policy)))
