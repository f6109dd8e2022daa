"""`occupax theory`."""

from dataclasses import asdict
from math import isfinite, sqrt
from typing import Annotated

import equinox as eqx
import numpy as np
import tyro
from rich.console import Console

import occupax as ox
from occupax._errors import check_number
from occupax.cli import names, settings
from occupax.cli.output import print_json
from occupax.exact.dynamics import dynamics
from occupax.utilities import Smoothness


def theory(
    env: Annotated[str, tyro.conf.Positional],
    utility: str = "reward",
    epsilon: float = 0.1,
    discount: float = 0.99,
    lipschitz_psi: float | None = None,
    smoothness_psi: float | None = None,
    reward_bound: float | None = None,
    given: Annotated[tuple[str, ...], tyro.conf.arg(name="set")] = (),
    json: bool = False,
) -> None:
    """Show what the theory of TSIVR-PG prescribes for a problem: batches, step sizes, and what they cost.

    Example: occupax theory FrozenLake8x8-v1 --utility log-coverage --epsilon 0.1 --discount 0.99

    Args:
        env: an environment, see `occupax list`.
        utility: what to maximise, see `occupax list`.
        epsilon: the accuracy aimed at, in (0, 0.5].
        discount: the discount factor, in [0, 1).
        lipschitz_psi: bound of the gradient of the policy's logits; known for a table.
        smoothness_psi: bound of the Hessian of the policy's logits; known for a table.
        reward_bound: the largest reward of a step, up to its sign; known for a table.
        given: settings such as utility.sigma=0.5 or env.is_slippery=false.
        json: print JSON instead of text.
    """
    targets = settings.apply(settings.parse(given), {"utility": names.utility(utility), "env": {}})
    problem = ox.Problem(ox.make(env, **targets["env"]), targets["utility"], discount)
    try:
        plan = ox.theory.plan(epsilon, problem_constants(problem, lipschitz_psi, smoothness_psi, reward_bound))
    except ArithmeticError:
        raise ValueError(
            f"epsilon {epsilon:g} with {problem.utility}, discount {discount:g}, lipschitz_psi {lipschitz_psi} and "
            f"smoothness_psi {smoothness_psi} leads to numbers too large to write down."
        ) from None
    if json:
        print_json({"env": env, "utility": utility, **asdict(plan), "variance": plan.variance._asdict()})
    else:
        _print_text(f"{utility} on {env}", plan, doubtful=lipschitz_psi is None and problem.utility.linear)


def problem_constants(
    problem: ox.Problem,
    lipschitz_psi: float | None = None,
    smoothness_psi: float | None = None,
    reward_bound: float | None = None,
) -> ox.theory.Constants:
    """What the theory asks of a problem; a table brings what is not given."""
    if lipschitz_psi is not None and smoothness_psi is not None:
        psi = {"lipschitz_psi": lipschitz_psi, "smoothness_psi": smoothness_psi}
    elif lipschitz_psi is None and smoothness_psi is None and isinstance(problem.env, ox.TabularMDP):
        psi = ox.theory.TABULAR_SOFTMAX
    else:
        raise ValueError(
            "lipschitz_psi and smoothness_psi must both be given, or left out for the softmax over the table of a "
            f"tabular environment, got {lipschitz_psi} and {smoothness_psi} for {type(problem.env).__name__}."
        )
    bound, l2, l1 = occupancy_smoothness(problem, reward_bound)
    return ox.theory.Constants(
        discount=problem.discount,
        lipschitz_utility=bound,
        smoothness_utility=l2,
        smoothness_utility_l1=l1,
        **psi,
    )


def occupancy_smoothness(problem: ox.Problem, reward_bound: float | None = None) -> Smoothness:
    """The constants of the utility as a function of the state-action occupancy, lambda.

    With the features Phi, [S * A, d], this function is F(Phi^T lambda), and its gradient Phi grad F. A row of Phi has
    at most the l1 norm R and a column C, so Phi takes the inf-norm to at most R times as much, Phi^T the 1-norm
    likewise, and Phi^T the 2-norm to at most sqrt(R C) times as much. State features have R = 1 and C = A.
    """
    own = problem.utility.smoothness
    if not all(map(isfinite, own)):
        shown = ", ".join(f"{name}={constant:g}" for name, constant in own._asdict().items())
        raise ValueError(
            f"the theory needs a utility with finite constants, but {type(problem.utility).__name__} has {shown}; "
            "log coverage has finite ones, and so has the entropy with a smoothing above 0."
        )
    row, column = _norms(problem, reward_bound)
    return Smoothness(row * own.gradient_bound, row * sqrt(row * column) * own.l2, row**2 * own.l1)


def _norms(problem: ox.Problem, reward_bound: float | None) -> tuple[float, float]:
    """The largest l1 norms of a row and of a column of the features."""
    env = problem.env
    if isinstance(env, ox.TabularMDP):
        if reward_bound is not None:
            raise ValueError(f"reward_bound must be left out where a table says it, got {reward_bound}.")
        # Estimates add up the rewards that are drawn, which may be larger than the expected reward of the table.
        largest = np.abs(env.outcome_rewards).max(-1, keepdims=True)
        drawn = np.broadcast_to(largest, env.outcome_rewards.shape)
        model = dynamics(eqx.tree_at(lambda it: it.env.outcome_rewards, problem, drawn))
        size = abs(model.features) * np.repeat(model.counting, env.num_actions)[:, None]
        return float(size.sum(1).max()), float(size.sum(0).max())
    if reward_bound is None or not isinstance(problem.features, ox.features.Reward):
        raise ValueError(
            f"reward_bound must be given, and the utility be the reward, where there is no table, got {reward_bound} "
            f"and {type(problem.utility).__name__} for {type(env).__name__}."
        )
    return check_number(
        "reward_bound", reward_bound, low=0.0, open_low=True
    ), 0.0  # a linear utility has no use for the column


def _print_text(title: str, plan: ox.theory.Plan, doubtful: bool) -> None:
    lines = [title, *(f"{name:<26}{value:>20.3g}" for name, value in asdict(plan.constants).items()), str(plan)]
    if doubtful:
        lines.append(
            "The global optimum is promised under assumption:over-para, which a linear utility with a softmax over a "
            "table does not satisfy."
        )
    Console().print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
