"""`occupax solve` and `occupax theory`: what is known of a problem without training."""

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

MOST_SAMPLED_STEPS = 1000

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
    given: Settings = (),
    json: Flag = False,
) -> None:
    """Solve a tabular problem exactly, and check the exact values by sampling.

    The table has the uniform and the optimal policy: exact utility, certified optimality gap, and
    the utility of the occupancy estimated from sampled trajectories.

    Example: occupax solve FrozenLake8x8-v1 --utility log-coverage --discount 0.99

    Args:
        env: a tabular environment, see `occupax list`.
        utility: utility to maximise, see `occupax list`.
        discount: discount factor, in [0, 1).
        horizon: number of steps, or infinite.
        termination: whether steps after the end of an episode count.
        method: auto chooses by the utility, the horizon and the transitions of the table.
        tolerance: certified gap to reach, relative to max(1, |value|).
        time_limit: seconds after which the best policy so far is returned with its certified gap.
        trajectories: number of trajectories to sample from each policy; 0 for none.
        seed: seed of the sampling.
        constrain: constraints such as 'info.cost<=25' or 'entropy>=1.0'.
        given: settings such as utility.sigma=0.5 or env.is_slippery=false.
        json: print JSON instead of a table.
    """
    chosen = settings.parse(given)
    problem, reason = make_problem(
        env, utility, chosen, constrain, horizon, discount=discount, termination=termination
    )
    best = ox.solve(problem, tolerance, time_limit, progress=not json, method=method)
    S, A = best.occupancy.shape
    uniform = np.full((S, A), 1 / A)
    certificate = ox.exact.certificate(problem, uniform, best.multipliers or None)
    rows: list[dict[str, Any]] = [
        {"policy": name, "utility": found.value, "gap": found.gap}
        | _excesses(problem, table)
        | _sampled(problem, table, trajectories, seed)
        for name, found, table in (
            ("uniform", certificate, uniform),
            ("optimal", best, best.policy),
        )
    ]
    if json:
        solved = {
            "discount": problem.discount,
            "horizon": problem.horizon,
            "method": best.method,
            "status": best.status,
            "upper_bound": best.upper_bound,
            "seconds": best.seconds,
            "policies": rows,
        }
        print_json(solved | ({"multipliers": dict(best.multipliers)} if best.multipliers else {}))
    else:
        print_table(
            f"{utility} on {env}: {describe_future(problem, reason)}",
            rows,
            missing="depends on time",
        )
        print_line(
            f"status: {best.status} after {best.seconds:.1f} s ({best.method}); no policy exceeds "
            f"{best.upper_bound:.8g}"
        )
        print_line(_describe_optimum(problem))
        for name, multiplier in best.multipliers.items():
            print_line(f"multiplier of {name}: {multiplier:.6g}")


def _describe_optimum(problem: ox.Problem) -> str:
    """One line on the policies among which the optimal one is the best."""
    if problem.horizon is None:
        return (
            "optimal: the best of all policies for infinitely many steps; "
            "it does not depend on time"
        )
    steps = f"{problem.horizon:,} step{'s' if problem.horizon > 1 else ''}"
    other = f"--horizon {INFINITE} has the best for infinitely many"
    return f"optimal: the best of all policies for {steps}, which may depend on time; {other}"


def _excesses(problem: ox.Problem, table: np.ndarray) -> dict[str, float]:
    """By how much a policy violates each constraint."""
    if not problem.constraints:
        return {}
    found = ox.exact.evaluation.excesses_of(problem, ox.exact.feature_occupancy(problem, table))
    return {
        f"excess of {one}": float(it) for one, it in zip(problem.constraints, found, strict=True)
    }


def _sampled(
    problem: ox.Problem, table: np.ndarray, trajectories: int, seed: int
) -> dict[str, Any]:
    if table.ndim != 2 or not trajectories:
        return {}
    steps = min(problem.effective_horizon, MOST_SAMPLED_STEPS)
    given = problem.objective, problem.discount, steps, problem.termination
    short = ox.Problem(problem.env, *given, constraints=problem.constraints)
    policy = ox.policies.Tabular(jnp.log(jnp.asarray(table)))
    batch = ox.sample(short, policy, trajectories, jax.random.key(seed))
    sampled = float(short.utility.value(ox.estimators.occupancy(short, batch, policy)))
    return {
        "steps": steps,
        "exact at these steps": ox.exact.value(short, table),
        "sampled": sampled,
    }


def theory(
    env: Env,
    utility: Utility = "reward",
    epsilon: Annotated[float, number(float)] = 0.1,
    discount: Annotated[float, number(float)] = 0.99,
    lipschitz_psi: Annotated[float | None, number(float), shown("that of a table")] = None,
    smoothness_psi: Annotated[float | None, number(float), shown("that of a table")] = None,
    reward_bound: Annotated[float | None, number(float), shown("that of the table")] = None,
    given: Settings = (),
    json: Flag = False,
) -> None:
    """Compute batch sizes, step sizes and sample complexity from the theory of TSIVR-PG.

    Example: occupax theory FrozenLake8x8-v1 --utility log-coverage --epsilon 0.1 --discount 0.99

    Args:
        env: an environment, see `occupax list`.
        utility: utility to maximise, see `occupax list`.
        epsilon: target accuracy, in (0, 0.5].
        discount: discount factor, in [0, 1).
        lipschitz_psi: bound of the gradient of the policy's logits; known for a table.
        smoothness_psi: bound of the Hessian of the policy's logits; known for a table.
        reward_bound: largest absolute reward of a step; known for a table.
        given: settings such as utility.sigma=0.5 or env.is_slippery=false.
        json: print JSON instead of text.
    """
    problem, _ = make_problem(
        env, utility, settings.parse(given), horizon=INFINITE, discount=discount
    )
    try:
        constants = ox.theory.problem_constants(
            problem, lipschitz_psi, smoothness_psi, reward_bound
        )
        plan = ox.theory.plan(epsilon, constants)
    except ArithmeticError:
        raise ValueError(
            f"epsilon {epsilon:g} with {problem.utility}, discount {discount:g}, "
            f"lipschitz_psi {lipschitz_psi} and smoothness_psi {smoothness_psi} "
            "leads to numbers too large to write down."
        ) from None
    if json:
        print_json(
            {"env": env, "utility": utility, **asdict(plan), "variance": plan.variance._asdict()}
        )
        return
    print_line(ox.theory.WARNING)
    if lipschitz_psi is None and problem.utility.linear:
        print_line(
            "The global optimum is promised under assumption:over-para, which a linear utility "
            "with a softmax over a table does not satisfy."
        )
    lines = [f"{name:<26}{value:>20.3g}" for name, value in asdict(plan.constants).items()]
    print_line("\n".join([f"{utility} on {env}", *lines, plan.table()]))
