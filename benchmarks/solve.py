"""Certified optima beside a direct conic model, by the size of the table.

Log coverage with discount 0.99. Garnets have 4 actions and 5 successors. Mazes have a fifth of
their cells as walls, moves that slip to each side with probability 0.1, and a start in the corner.
The peer is the direct sparse model in cvxpy with Clarabel at its default tolerances: u = E lambda,
u - gamma P' lambda = xi, lambda >= 0. Its occupancy violates the flow equations a little, so that
"its policy" is the exact utility of the policy of that occupancy. Gaps are relative to |F|.

Rule of `method="auto"`, fixed before the confirming run: a linear utility without constraints is
planned for. Otherwise the interior-point method is taken for an infinite horizon if the second
derivatives are known, at most 512 features are shared by states, and either the table has at most
4,000 states or a band matrix of P'P, ordered by reverse Cuthill-McKee, has at most 15% of the
entries of a dense one. Where it does not apply, mirror descent is taken without constraints and
with an infinite horizon. Frank-Wolfe follows both where they stall, and is taken elsewhere, up to
2,000,000 entries of a policy.

Seconds are processor time, of a second call with the same shapes: the first compiles. The seeds of
the confirming run were not used in development.

    python benchmarks/solve.py                  64 to 10,000 states
    python benchmarks/solve.py --large          40,000 and 100,000 states, too
"""

import sys
import time
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import sparse

import occupax as ox
from tables import Table, show

SEED = 77
TOLERANCE = 1e-6
LIMIT = 300.0
MAZES = (12, 18, 32, 64, 100)
GARNETS = (64, 400, 1000, 2000, 10_000)
LARGE_MAZES = (200, 316)
LARGE_GARNETS = (100_000,)
MAX_PEER_GARNET = 2000
"""Largest garnet of the peer, whose factors are dense."""
DISCOUNT = 0.99
SIGMA = 0.125


class Row(NamedTuple):
    """One measured problem."""

    name: str
    states: int
    seconds: float
    gap: float
    status: str
    method: str
    peer_seconds: float
    peer_error: float


def maze(side: int, seed: int) -> ox.TabularMDP:
    """Return a random maze with walls in a fifth of its cells."""
    random = np.random.default_rng(seed)
    cells = np.where(random.random((side, side)) < 0.2, "#", ".")
    cells[0, 0] = "S"
    return ox.TabularMDP.gridworld("\n".join(map("".join, cells)), slip=0.2)


def garnet(num_states: int, seed: int) -> ox.TabularMDP:
    """Return a random process with 4 actions and 5 successors."""
    return ox.TabularMDP.garnet(num_states, 4, 5, jax.random.key(seed))


def measure_problem(name: str, env: ox.TabularMDP, with_peer: bool) -> Row:
    """Solve a problem by Occupax and by the direct conic model."""
    problem = ox.Problem(env, ox.utilities.LogCoverage(SIGMA), discount=DISCOUNT)
    ox.solve(problem, 0.5, time_limit=LIMIT, progress=False)
    start = time.process_time()
    best = ox.solve(problem, TOLERANCE, time_limit=LIMIT, progress=False)
    seconds = time.process_time() - start
    gap = best.gap / max(1.0, abs(best.value))
    peer_seconds = np.nan
    peer_error = np.nan
    if with_peer:
        peer_seconds, policy = direct_model(env)
        value = ox.exact.value(problem, policy)
        peer_error = (best.upper_bound - value) / abs(best.value)
    return Row(
        name, env.num_states, seconds, gap, best.status, best.method, peer_seconds, peer_error
    )


def direct_model(env: ox.TabularMDP) -> tuple[float, np.ndarray]:
    """Return seconds and policy of the direct model in cvxpy."""
    import cvxpy as cp

    S = env.num_states
    A = env.num_actions
    transition = env.transition
    start = time.process_time()
    visits = cp.Variable(S * A, nonneg=True)
    leaving = sparse.csr_matrix(sparse.kron(sparse.eye_array(S), np.ones((1, A))))
    arriving = sparse.csr_matrix(transition.T)
    flow = leaving @ visits - DISCOUNT * (arriving @ visits) == env.initial
    program: Any = cp.Problem(cp.Maximize(cp.sum(cp.log(leaving @ visits + SIGMA))), [flow])
    program.solve(solver=cp.CLARABEL)
    seconds = time.process_time() - start
    mass = np.maximum(np.asarray(visits.value), 1e-300).reshape(S, A)
    return seconds, mass / mass.sum(1, keepdims=True)


def measure() -> list[Table]:
    """Measure all sizes."""
    mazes = MAZES
    garnets = GARNETS
    if "--large" in sys.argv:
        mazes = (*MAZES, *LARGE_MAZES)
        garnets = (*GARNETS, *LARGE_GARNETS)
    rows: list[Row] = []
    for side in mazes:
        rows.append(measure_problem(f"maze {side} x {side}", maze(side, SEED), side <= 200))
        print(rows[-1], flush=True)
    for size in garnets:
        rows.append(
            measure_problem(f"garnet {size:,}", garnet(size, SEED), size <= MAX_PEER_GARNET)
        )
        print(rows[-1], flush=True)
    cells = [
        [
            row.name,
            f"{row.states:,}",
            f"{row.seconds:.2f}",
            f"{row.gap:.1e}",
            f"{row.status}, {row.method}",
            f"{row.peer_seconds:.2f}",
            f"{row.peer_error:.1e}",
        ]
        for row in rows
    ]
    columns = [
        "table",
        "states",
        "Occupax, s",
        "certified gap",
        "status",
        "cvxpy + Clarabel, s",
        "shortfall of its policy, at most",
    ]
    return [Table("Log coverage to a gap of 1e-6", columns, cells)]


if __name__ == "__main__":
    show(measure())
