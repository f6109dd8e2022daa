"""Commands `solve` and `theory`: optimum of a tabular problem, and constants of the theory."""

from dataclasses import asdict
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

import occupax as ox
from occupax.cli import settings
from occupax.cli.choices import describe_future, make_problem
from occupax.cli.options import INFINITE, Flag, Horizon, number, shown
from occupax.cli.output import print_json, print_line, print_table
from occupax.exact.optimum import Method
from occupax.problem import Termination

MAX_SAMPLED_STEPS = 1000
"""Longest trajectory that `solve` samples."""

OVERPARAMETRISATION = (
    "Convergence to the global optimum needs assumption:over-para, which a linear utility "
    "with a softmax over a table does not satisfy."
)

Env = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
Utility = Annotated[str, tyro.conf.arg(metavar="NAME")]
Settings = Annotated[
    tuple[str, ...], tyro.conf.arg(name="set", metavar="NAME=VALUE ...", help_behavior_hint="")
]


def solve(
    env: Env,
    utility: Utility = "reward",
    discount: Annotated[float, number(float)] = 0.99,
    horizon: Horizon = None,
    termination: Termination = "episodic",
    method: Method = "auto",
    tolerance: Annotated[float, number(float)] = 1e-6,
    time_limit: Annotated[float | None, number(float), shown("none")] = None,
    trajectories: Annotated[int, number(int)] = 10_000,
    seed: Annotated[int, number(int)] = 0,
    constrain: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="LIMIT ...", help_behavior_hint="")
    ] = (),
    assignments: Settings = (),
    json: Flag = False,
) -> None:
    """Solve a tabular problem exactly, and check the exact values by sampling.

    The table has the uniform and the optimal policy: exact utility, certified optimality gap, and
    the utility of the occupancy estimated from sampled trajectories.

    Example: occupax solve FrozenLake8x8-v1 --utility log-coverage --discount 0.99

    Args:
        env: tabular environment, see `occupax list`.
        utility: utility to maximise, see `occupax list`.
        discount: discount factor, in [0, 1].
        horizon: number of steps, or infinite.
        termination: whether steps after the end of an episode count.
        method: auto chooses by the utility, the horizon and the transitions of the table.
        tolerance: certified gap at which the solver stops, relative to max(1, |value|).
        time_limit: seconds after which the best policy so far is returned with its certified gap.
        trajectories: number of trajectories to sample from each policy, 0 for none.
        seed: seed of the sampled trajectories.
        constrain: constraints such as 'info.cost<=25' or 'entropy>=1.0'.
        assignments: settings such as utility.sigma=0.5 or env.is_slippery=false.
        json: print JSON instead of a table.
    """
    chosen = settings.parse(assignments)
    problem, reason = make_problem(
        env, utility, chosen, constrain, horizon, discount=discount, termination=termination
    )
    best = ox.solve(problem, tolerance, time_limit, progress=not json, method=method)
    S, A = best.occupancy.shape
    uniform = np.full((S, A), 1 / A)
    certificate = ox.exact.certificate(problem, uniform, best.multipliers or None)
    rows: list[dict[str, Any]] = [
        {"policy": "uniform", "utility": certificate.value, "gap": certificate.gap},
        {"policy": "optimal", "utility": best.value, "gap": best.gap},
    ]
    for row, table in zip(rows, (uniform, best.policy), strict=True):
        row.update(_excesses(problem, table))
        row.update(_sampled(problem, table, trajectories, seed))
    if json:
        solution: dict[str, Any] = {
            "discount": problem.discount,
            "horizon": problem.horizon,
            "method": best.method,
            "status": best.status,
            "upper_bound": best.upper_bound,
            "seconds": best.seconds,
            "policies": rows,
        }
        if best.multipliers:
            solution["multipliers"] = dict(best.multipliers)
        print_json(solution)
        return
    title = f"{utility} on {env}: {describe_future(problem, reason)}"
    print_table(title, rows, missing="depends on time")
    print_line(
        f"status: {best.status} after {best.seconds:.1f} s ({best.method}); no policy exceeds "
        f"{best.upper_bound:.8g}"
    )
    print_line(_describe_optimum(problem))
    for name, multiplier in best.multipliers.items():
        print_line(f"multiplier of {name}: {multiplier:.6g}")


def _describe_optimum(problem: ox.Problem) -> str:
    """Return one line about the class of policies that the optimal policy is the best of."""
    if problem.horizon is None:
        return "optimal: the best policy for infinitely many steps. The policy is stationary."
    unit = "step" if problem.horizon == 1 else "steps"
    return (
        f"optimal: the best policy for {problem.horizon:,} {unit}. The policy may depend on time. "
        f"--horizon {INFINITE} computes the best stationary policy for infinitely many steps."
    )


def _excesses(problem: ox.Problem, table: np.ndarray) -> dict[str, float]:
    """Return the excess of a policy over each constraint, negative for a satisfied constraint."""
    if not problem.constraints:
        return {}
    occupancy = ox.exact.feature_occupancy(problem, table)
    values = ox.exact.evaluation.excesses_of(problem, occupancy)
    excesses: dict[str, float] = {}
    for constraint, value in zip(problem.constraints, values, strict=True):
        excesses[f"excess of {constraint}"] = float(value)
    return excesses


def _sampled(
    problem: ox.Problem, table: np.ndarray, trajectories: int, seed: int
) -> dict[str, Any]:
    """Return exact and sampled utility of a stationary policy at a horizon that can be sampled."""
    if table.ndim != 2 or not trajectories:
        return {}
    steps = min(problem.effective_horizon, MAX_SAMPLED_STEPS)
    truncated = ox.Problem(
        problem.env,
        problem.objective,
        problem.discount,
        steps,
        problem.termination,
        constraints=problem.constraints,
    )
    policy = ox.policies.Tabular(jnp.log(jnp.asarray(table)))
    batch = ox.sample(truncated, policy, trajectories, jax.random.key(seed))
    occupancy = ox.estimators.occupancy(truncated, batch, policy)
    return {
        "steps": steps,
        "exact at these steps": ox.exact.value(truncated, table),
        "sampled": float(truncated.utility.value(occupancy)),
    }


def theory(
    env: Env,
    utility: Utility = "reward",
    epsilon: Annotated[float, number(float)] = 0.1,
    discount: Annotated[float, number(float)] = 0.99,
    lipschitz_psi: Annotated[float | None, number(float), shown("that of a table")] = None,
    smoothness_psi: Annotated[float | None, number(float), shown("that of a table")] = None,
    reward_bound: Annotated[float | None, number(float), shown("that of the table")] = None,
    assignments: Settings = (),
    json: Flag = False,
) -> None:
    """Compute batch sizes, step sizes and sample complexity from the theory of TSIVR-PG.

    Example: occupax theory FrozenLake8x8-v1 --utility log-coverage --epsilon 0.1 --discount 0.99

    Args:
        env: environment, see `occupax list`.
        utility: utility to maximise, see `occupax list`.
        epsilon: target accuracy, in (0, 0.5].
        discount: discount factor, in [0, 1).
        lipschitz_psi: bound of the gradient of the policy's logits. Default: computed for a table.
        smoothness_psi: bound of the Hessian of the policy's logits. Default: computed for a table.
        reward_bound: largest absolute reward of a step. Default: computed for a table.
        assignments: settings such as utility.sigma=0.5 or env.is_slippery=false.
        json: print JSON instead of text.
    """
    ox.theory.check_discount(discount)
    chosen = settings.parse(assignments)
    problem, _ = make_problem(env, utility, chosen, horizon=INFINITE, discount=discount)
    try:
        constants = ox.theory.problem_constants(
            problem, lipschitz_psi, smoothness_psi, reward_bound
        )
        plan = ox.theory.plan(epsilon, constants)
    except ArithmeticError:
        raise ValueError(
            f"epsilon {epsilon:g} with {problem.utility}, discount {discount:g}, "
            f"lipschitz_psi {lipschitz_psi} and smoothness_psi {smoothness_psi} "
            "overflows: use a larger epsilon or a smaller discount."
        ) from None
    if json:
        names = {"env": env, "utility": utility}
        print_json(names | asdict(plan) | {"variance": plan.variance._asdict()})
        return
    print_line(ox.theory.WARNING)
    if lipschitz_psi is None and problem.utility.linear:
        print_line(OVERPARAMETRISATION)
    print_line(f"{utility} on {env}")
    for name, value in asdict(plan.constants).items():
        print_line(f"{name:<26}{value:>20.3g}")
    print_line(plan.table())
