"""The exact optimum of a concave utility over all policies.

Two methods: a conic program, for the utilities that a conic solver knows, and fully corrective
Frank-Wolfe with a planner, for all.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

import jax
import numpy as np
from jaxtyping import Array, Float

from occupax.compiled import bind
from occupax.display import Description, in_words, shown_number
from occupax.errors import check_integer, check_number, unknown
from occupax.exact import conic, constrained, evaluation
from occupax.exact.dynamics import Dynamics, StateActionArray
from occupax.exact.evaluation import timed_occupancy, utility_gradient, utility_value
from occupax.exact.returns import best_response
from occupax.forking import begin_jax_use
from occupax.problem import Problem, ProblemSource, as_problem
from occupax.utilities.base import NoConicFormError, Utility

Method = Literal["auto", "conic", "frank-wolfe"]

NEWTON_STEPS = 100
PADDING = 64
ROUNDING = 1e-12
SHORTEST = 1e-6
"""The share of a Newton step below which nothing is gained by it."""
POLISHING = 10
"""Iterations of Frank-Wolfe after a conic solution whose gap exceeds the tolerance. More of them
gain little: the conic solution mixes all policies at once, and Frank-Wolfe adds one an
iteration."""
MAX_PLANNED_STATES = 32
"""States up to which "auto" takes Frank-Wolfe, which needs about a second there and has smaller
gaps.

With 50 states the conic program is ten times as fast. With a horizon it has its variables once a
step and is slower."""
NARROW_MISS = 100.0
"""The multiple of the tolerance up to which "auto" returns a conic solution."""

Timed = Float[np.ndarray, "*H S A"]
Vector = Float[np.ndarray, " k"]
Features = Float[np.ndarray, " d"]
Images = Float[np.ndarray, "k d"]


class Optimum(NamedTuple):
    """A policy with its exact utility and occupancy, and a certificate of its optimality."""

    value: float
    gap: float
    """No policy is better than `value` by more than this."""
    occupancy: StateActionArray
    policy: Timed
    """Action probabilities [S, A]; with a horizon they depend on time, [H, S, A]."""
    multipliers: Mapping[str, float] = MappingProxyType({})
    """Of each constraint, by its name: what the utility gains for each unit by which its limit is
    loosened."""
    excesses: Mapping[str, float] = MappingProxyType({})
    """By how much each limit is violated: nothing but rounding, or negative where there is
    slack."""
    method: str = "frank-wolfe"
    """The method that computed the optimum: "conic" or "frank-wolfe"."""

    def __repr__(self) -> str:
        return self._description().text()

    def _repr_html_(self) -> str:
        return self._description().html()

    def _description(self) -> Description:
        gap = shown_number(self.gap)
        title = f"Optimum: {shown_number(self.value)}; no policy is better by more than {gap}"
        names = ("policy", "occupancy", *(("multipliers", "excesses") if self.multipliers else ()))
        return Description(title, [(name, in_words(getattr(self, name))) for name in names])


def solve(
    problem: ProblemSource,
    method: Method = "auto",
    tolerance: float = 1e-6,
    max_iterations: int = 1000,
) -> Optimum:
    """Maximise a concave utility over all policies of a tabular problem.

    With a horizon the optimum is over policies that depend on time: an upper bound for stationary
    ones. Constraints are kept, by the method of multipliers around "frank-wolfe" or as those of the
    conic program.

    Args:
        problem: a tabular problem with a concave utility; an environment or its name stands for its
            discounted return.
        method: "conic" hands the problem to Clarabel through cvxpy (the extra `exact`), and
            improves a solution that misses the tolerance by a few iterations of Frank-Wolfe.
            "frank-wolfe" takes any concave utility and needs nothing installed. "auto" is "conic"
            where that is faster: with an infinite horizon, more than 32 states and a utility that
            is not linear or constraints, if they have a conic form and cvxpy and Clarabel are
            installed. Otherwise, and where Clarabel fails, "auto" is "frank-wolfe".
        tolerance: the gap to reach. A conic solution may miss it: see the result's `gap`. With
            "auto" Frank-Wolfe takes over if the gap exceeds a hundred times the tolerance.
        max_iterations: of Frank-Wolfe, each a planning problem.

    Returns:
        The optimum with its certified gap, and the method that computed it.

    Raises:
        ValueError: if no policy satisfies the constraints; the message has the smallest violation
            that is possible.
        RuntimeError: if Frank-Wolfe did not reach the tolerance; the message has the gap that was.
    """
    begin_jax_use()
    problem = as_problem(problem)
    if method not in get_args(Method):
        raise unknown("method", method, get_args(Method))
    tolerance = check_number("tolerance", tolerance, low=0.0, open_low=True)
    max_iterations = check_integer("max_iterations", max_iterations)
    model = evaluation.concave_dynamics(problem)
    start = _uniform(model)
    multipliers = None
    solution = _conic_solution(problem, model, method)
    if solution is not None:
        best = _polished(problem, model, solution, tolerance, max_iterations)
        if method == "conic" or best.gap <= NARROW_MISS * tolerance:
            return best
        start = policy_of(solution.mass)
        multipliers = solution.multipliers
    found = _find(problem, model, start, multipliers, tolerance, 0.0, max_iterations)
    if found.gap > tolerance:
        raise RuntimeError(
            f"{method} reached a certified gap of {found.gap:.3g}, not the tolerance of "
            f"{tolerance:g}; allow a larger "
            "tolerance or more iterations."
        )
    return found


def _conic_solution(problem: Problem, model: Dynamics, method: Method) -> conic.Solution | None:
    """Return the conic solution; None if the method does not take it or none is feasible."""
    if method == "conic":
        return conic.maximise(problem, model)
    is_planning = problem.utility.linear and not problem.constraints
    is_small = model.shape[0] <= MAX_PLANNED_STATES
    if (
        method == "frank-wolfe"
        or is_planning
        or is_small
        or model.horizon is not None
        or conic.missing()
    ):
        return None
    try:
        return conic.maximise(problem, model)
    except (NoConicFormError, conic.ClarabelError):
        return None


def _polished(
    problem: Problem,
    model: Dynamics,
    solution: conic.Solution,
    tolerance: float,
    max_iterations: int,
) -> Optimum:
    """Return the optimum of a conic solution, or a polished one if that is better."""
    policy = policy_of(solution.mass)
    multipliers = solution.multipliers if problem.constraints else None
    best = _certified(problem, model, timed_occupancy(model, policy), multipliers)
    if best.gap > tolerance or _violation(best) > constrained.FEASIBLE:
        iterations = min(POLISHING, max_iterations)
        polished = _find(problem, model, policy, multipliers, tolerance, 0.0, iterations)
        if polished.gap < best.gap and _violation(polished) <= max(
            _violation(best), constrained.FEASIBLE
        ):
            best = polished
    return best._replace(method="conic")


def _violation(optimum: Optimum) -> float:
    """Return the largest excess of an optimum over a limit, or 0."""
    return max([0.0, *optimum.excesses.values()])


def _find(
    problem: Problem,
    model: Dynamics,
    start: Timed,
    multipliers: Vector | None,
    tolerance: float,
    share: float,
    max_iterations: int,
) -> Optimum:
    """The optimum from a start and, if there are constraints, from multipliers."""
    if not problem.constraints:
        found = frank_wolfe(problem, model, only(model, start), tolerance, share, max_iterations)
        return _certified(problem, model, found.mass)
    mass, found = constrained.maximise(
        problem, model, start, multipliers, tolerance, share, max_iterations
    )
    return _certified(problem, model, mass, found)


def solve_roughly(problem: Problem, share: float, max_iterations: int) -> Optimum | None:
    """Return the optimum to within a share of the way from the uniform policy, or None."""
    model = evaluation.concave_dynamics(problem)
    start = _uniform(model)
    found = _find(problem, model, start, None, 0.0, share, max_iterations)
    way = found.value - utility_value(problem.utility, image(model, timed_occupancy(model, start)))
    return found if found.gap <= max(share * way, 1e3 * ROUNDING * (1 + abs(found.value))) else None


def _uniform(model: Dynamics) -> Timed:
    times = () if model.horizon is None else (model.horizon,)
    return np.full((*times, *model.shape), 1 / model.shape[1])


def _certified(
    problem: Problem, model: Dynamics, mass: Timed, multipliers: Vector | None = None
) -> Optimum:
    policy = policy_of(mass)
    occupancy = evaluation.total_occupancy(model, policy)
    features = model.features.T @ occupancy.ravel()
    proof = evaluation.certify(problem, model, features, multipliers)
    if multipliers is None:
        return Optimum(proof.value, proof.gap, occupancy, policy)
    names = [constraint.name for constraint in problem.constraints]
    multiplier_of = dict(zip(names, multipliers.tolist(), strict=True))
    excess_of = dict(zip(names, evaluation.excesses_of(problem, features).tolist(), strict=True))
    return Optimum(proof.value, proof.gap, occupancy, policy, multiplier_of, excess_of)


def policy_of(mass: Timed) -> Timed:
    """The policy with this occupancy; states that are never visited act uniformly."""
    mass = np.maximum(mass, 0.0)
    total = mass.sum(-1, keepdims=True)
    return np.divide(mass, total, out=np.full_like(mass, 1 / mass.shape[-1]), where=total > 0)


class Mixture(NamedTuple):
    """Mixture of occupancies with their weights and features."""

    corners: list[Timed]
    images: Images
    shares: Vector

    @property
    def mass(self) -> Timed:
        """The occupancy of the mixture."""
        return np.tensordot(self.shares, np.stack(self.corners), 1)

    @property
    def image(self) -> Features:
        """What it counts."""
        return self.shares @ self.images


def only(model: Dynamics, policy: Timed) -> Mixture:
    """The mixture of a single policy."""
    mass = timed_occupancy(model, policy)
    return Mixture([mass], image(model, mass)[None], np.ones(1))


def frank_wolfe(
    problem: Problem,
    model: Dynamics,
    start: Mixture,
    tolerance: float,
    share: float,
    max_iterations: int,
) -> Mixture:
    """Maximise the utility of a problem without its constraints, from a start."""
    # each iteration adds the occupancy of the best policy for the quasi-reward, and mixes all that
    # are kept anew; the gap to reach is the tolerance, or a share of the way from the start
    corners, images, shares = list(start.corners), start.images, start.shares
    first, way = utility_value(problem.utility, start.image) if share else 0.0, 0.0
    for _ in range(max_iterations):
        mixture = shares @ images
        quasi_reward = utility_gradient(problem.utility, mixture)
        if not np.isfinite(quasi_reward).all():
            raise ValueError(
                "the utility has no finite gradient where nothing is visited: smooth it."
            )
        if not np.isfinite(utility_value(problem.utility, mixture)):
            name = type(problem.objective).__name__
            undefined = f"{name} has no finite value at the occupancy of a policy"
            raise ValueError(f"{undefined}: it must be defined wherever policies go.")
        best = best_response(model, (model.features @ quasi_reward).reshape(model.shape))
        linear_value = float(quasi_reward @ mixture)
        gap, rounding = best.upper_bound - linear_value, ROUNDING * (1 + abs(linear_value))
        if gap <= max(0.5 * tolerance, 0.5 * share * way, rounding):
            break
        corner = timed_occupancy(model, best.policy)
        if problem.utility.linear:
            return Mixture([corner], image(model, corner)[None], np.ones(1))
        corners.append(corner)
        images = np.concatenate([images, image(model, corner)[None]])
        accuracy = max(rounding, 1e-4 * share * way)
        shares, slack = _best_mixture(problem.utility, images, np.append(shares, 0.0), accuracy)
        # a corner that falls short by more than the gap is not part of the optimum; dropping it
        # must not cost anything
        kept = np.flatnonzero(slack <= gap)
        fewer = shares[kept] / shares[kept].sum()
        with_all, without = (
            utility_value(problem.utility, it) for it in (shares @ images, fewer @ images[kept])
        )
        if without >= with_all - rounding:
            corners, images, shares = [corners[i] for i in kept], images[kept], fewer
        way = with_all - first
    return Mixture(corners, images, shares)


def image(model: Dynamics, mass: Timed) -> Features:
    """The occupancy of the features."""
    return model.features.T @ mass.reshape(-1, model.transition.shape[0]).sum(0)


def _best_mixture(
    utility: Utility, images: Images, start: Vector, accuracy: float
) -> tuple[Vector, Vector]:
    """Maximise F over the weights of a mixture; return them and the slack of each slope.

    A primal-dual interior-point method. Optimality reads slope + slack = level, shares * slack = 0
    and sum of shares = 1, where `slope` is the derivative of F with respect to each share, and
    `level` belongs to the sum.
    """
    k = len(start)
    shares = 0.95 * start + 0.05 / k
    slope = images @ utility_gradient(utility, shares @ images)
    level = slope.max() + 1e-3 * (1 + np.abs(slope).max())
    slack = level - slope
    for _ in range(NEWTON_STEPS):
        mixture = shares @ images
        slope = images @ utility_gradient(utility, mixture)
        unbalanced = level - slack - slope
        if shares @ slack <= accuracy and np.abs(unbalanced).max() <= accuracy:
            break
        target = 0.1 * (shares @ slack) / k
        system = np.ones((k + 1, k + 1))
        curvature = _curvature(utility, mixture, images)
        damping = ROUNDING * (
            1 + np.abs(curvature).max()
        )  # for a flat utility, or corners with the same image
        system[:k, :k] = np.diag(slack / shares + damping) - curvature
        system[k, k] = 0.0
        move = np.linalg.solve(system, np.append(target / shares - slack - unbalanced, 0.0))
        shares_move, level_move = move[:k], move[k]
        slack_move = (target - slack * shares_move) / shares - slack
        descent = _line_search(utility, images, shares, shares_move, target)
        if not descent:
            break  # rounding hides what is left
        length = min(1.0, 0.99 * _room(slack, slack_move))
        shares, slack = shares + descent * shares_move, slack + length * slack_move
        level += length * level_move
    return shares / shares.sum(), slack


def _line_search(
    utility: Utility, images: Images, shares: Vector, move: Vector, target: float
) -> float:
    def barrier(at: Vector) -> float:
        return -utility_value(utility, at @ images) - target * float(np.log(at).sum())

    length, start = min(1.0, 0.99 * _room(shares, move)), barrier(shares)
    while not barrier(shares + length * move) <= start:
        length *= 0.5
        if length < SHORTEST:
            return 0.0
    return length


def _curvature(utility: Utility, mixture: Features, images: Images) -> Float[np.ndarray, "k k"]:
    k, d = images.shape
    padded = np.zeros((-(-k // PADDING) * PADDING, d))  # few shapes, few compilations
    padded[:k] = images
    with jax.enable_x64(True):
        return images @ np.asarray(bind(_hessian_products, utility)(mixture, padded))[:k].T


def _hessian_products(
    utility: Utility, mixture: Float[Array, " d"], rows: Float[Array, "k d"]
) -> Float[Array, "k d"]:
    return jax.lax.map(lambda row: jax.jvp(utility.gradient, (mixture,), (row,))[1], rows)


def _room(position: Vector, move: Vector) -> float:
    shrinking = move < 0
    return float(np.min(-position[shrinking] / move[shrinking], initial=np.inf))
