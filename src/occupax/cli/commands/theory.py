"""`occupax theory`."""

from dataclasses import asdict
from typing import Annotated

import tyro

import occupax as ox
from occupax.cli.choices import make_problem
from occupax.cli.output import print_json, print_line


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
    problem = make_problem(env, utility, given, discount=discount)
    try:
        plan = ox.theory.plan(
            epsilon, ox.theory.problem_constants(problem, lipschitz_psi, smoothness_psi, reward_bound)
        )
    except ArithmeticError:
        raise ValueError(
            f"epsilon {epsilon:g} with {problem.utility}, discount {discount:g}, lipschitz_psi {lipschitz_psi} and "
            f"smoothness_psi {smoothness_psi} leads to numbers too large to write down."
        ) from None
    if json:
        print_json({"env": env, "utility": utility, **asdict(plan), "variance": plan.variance._asdict()})
    else:
        _print_text(f"{utility} on {env}", plan, doubtful=lipschitz_psi is None and problem.utility.linear)


def _print_text(title: str, plan: ox.theory.Plan, doubtful: bool) -> None:
    lines = [title, *(f"{name:<26}{value:>20.3g}" for name, value in asdict(plan.constants).items()), str(plan)]
    if doubtful:
        lines.append(
            "The global optimum is promised under assumption:over-para, which a linear utility with a softmax over a "
            "table does not satisfy."
        )
    print_line("\n".join(lines))
