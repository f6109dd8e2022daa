"""Maximum return of large tables: time of Occupax and of its peers to a relative gap of 1e-8.

    python benchmarks/returns.py [--largest 1000000] [--repeats 3] [--seed 100]

Every solver gets the same sparse table in its own format. The conversion is not timed. A time is
the shortest of several repeats, which alternate between the solvers. The gap of every solution is
certified afterwards from its values alone. Peers: quantecon (`DiscreteDP`, modified policy
iteration), mdpsolver (modified policy iteration in C++, all cores) and modified policy iteration in
SciPy. A peer that is not installed is left out.
"""

import argparse
from collections.abc import Callable
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from occupax.exact.dynamics import Dynamics
from occupax.exact.returns import bellman_bounds, best_response

DISCOUNT = 0.99
GAP = 1e-8
PARTIAL_SWEEPS = 50
LONGEST = 120.0
"""Seconds after which a solver gets no larger table of the same kind."""
MAX_LIST_STATES = 100_000
"""Largest table for mdpsolver, which takes nested lists of Python numbers."""

Solver = Callable[[float], np.ndarray]


def garnet(states: int, random: np.random.Generator) -> tuple[Dynamics, np.ndarray]:
    """Return a random table with 4 actions and 5 successors."""
    pairs = 4 * states
    next_states = random.integers(0, states, (pairs, 5))
    probabilities = random.dirichlet(np.ones(5), pairs)
    rows = np.repeat(np.arange(pairs), 5)
    transition = sparse.coo_array(
        (probabilities.ravel(), (rows, next_states.ravel())), shape=(pairs, states)
    ).tocsr()
    return table(transition, np.full(states, 1 / states)), random.random((states, 4))


def maze(cells: int, random: np.random.Generator) -> tuple[Dynamics, np.ndarray]:
    """Return a square maze with a fifth of walls, slips to each side with 0.1 and a far goal."""
    side = round(cells**0.5)
    free = np.pad(random.random((side, side)) >= 0.2, 1)
    numbers = np.full(free.shape, -1)
    numbers[free] = np.arange(free.sum())
    rows, columns = np.nonzero(free)
    here = numbers[rows, columns]
    moves = ((0, -1), (1, 0), (0, 1), (-1, 0))
    targets = [numbers[rows + down, columns + right] for down, right in moves]
    targets = [np.where(target >= 0, target, here) for target in targets]
    entries = []
    for action in range(4):
        for turn, probability in ((0, 0.8), (-1, 0.1), (1, 0.1)):
            target = targets[(action + turn) % 4]
            entries.append((np.full(here.size, probability), 4 * here + action, target))
    data, pairs, next_states = (np.concatenate(column) for column in zip(*entries, strict=True))
    states = here.size
    transition = sparse.coo_array((data, (pairs, next_states)), shape=(4 * states, states)).tocsr()
    edges = sparse.coo_array((np.ones(pairs.size), (pairs // 4, next_states)), (states, states))
    _, labels = connected_components(edges.tocsr())
    inside = np.flatnonzero(labels == np.bincount(labels).argmax())
    reward = np.zeros((states, 4))
    reward[inside[-1]] = 1.0
    initial = np.zeros(states)
    initial[inside[0]] = 1.0
    return table(transition, initial), reward


def table(transition: sparse.csr_array, initial: np.ndarray) -> Dynamics:
    """Return the dynamics of a table without terminal states."""
    states = initial.size
    no_features = sparse.csr_array((transition.shape[0], 1))
    return Dynamics(transition, initial, no_features, np.ones(states), DISCOUNT, None)


def occupax(model: Dynamics, reward: np.ndarray) -> Solver:
    """Return the planner of Occupax."""
    return lambda gap: best_response(model, reward, tolerance=gap).values


def scipy_iteration(model: Dynamics, reward: np.ndarray) -> Solver:
    """Return modified policy iteration in SciPy with the span rule."""
    states, actions = model.shape

    def solve(gap: float) -> np.ndarray:
        values = np.zeros(states)
        first_rows = np.arange(states) * actions
        while True:
            action_values = reward + DISCOUNT * (model.transition @ values).reshape(reward.shape)
            best = action_values.max(1)
            difference = best - values
            values = best + DISCOUNT / (1 - DISCOUNT) * (difference.max() + difference.min()) / 2
            if DISCOUNT / (1 - DISCOUNT) * np.ptp(difference) <= gap:
                return values
            choice = action_values.argmax(1)
            matrix = model.transition[first_rows + choice]
            policy_reward = reward[np.arange(states), choice]
            for _ in range(PARTIAL_SWEEPS):
                values = policy_reward + DISCOUNT * (matrix @ values)

    return solve


def quantecon(model: Dynamics, reward: np.ndarray) -> Solver:
    """Return modified policy iteration of quantecon on pairs of state and action."""
    # Installed for comparisons only.
    from quantecon.markov import DiscreteDP  # pyright: ignore[reportMissingImports]

    states, actions = model.shape
    state, action = np.divmod(np.arange(states * actions), actions)
    matrix = sparse.csr_matrix(model.transition)
    process = DiscreteDP(reward.ravel(), matrix, DISCOUNT, state, action)

    def solve(gap: float) -> np.ndarray:
        result: Any = process.solve(
            method="modified_policy_iteration",
            v_init=np.zeros(states),
            epsilon=gap,
            max_iter=10**6,
            k=PARTIAL_SWEEPS,
        )
        return result.v

    solve(1.0)  # compile
    return solve


def mdpsolver(model: Dynamics, reward: np.ndarray) -> Solver:
    """Return modified policy iteration of mdpsolver with standard updates on all cores."""
    # Installed for comparisons only.
    import mdpsolver as peer  # pyright: ignore[reportMissingImports]

    states, actions = model.shape
    matrix = model.transition
    rows = np.split(np.arange(matrix.nnz), matrix.indptr[1:-1])
    probabilities = [matrix.data[row].tolist() for row in rows]
    columns = [matrix.indices[row].tolist() for row in rows]
    first = range(0, states * actions, actions)
    process = peer.model()
    process.mdp(
        discount=DISCOUNT,
        rewards=reward.tolist(),
        tranMatProbs=[probabilities[i : i + actions] for i in first],
        tranMatColumns=[columns[i : i + actions] for i in first],
    )

    def solve(gap: float) -> np.ndarray:
        process.solve(algorithm="mpi", tolerance=gap, initValueVector=[0.0] * states)
        return np.array(process.getValueVector())

    return solve


PEERS = {"quantecon": quantecon, "mdpsolver": mdpsolver}


def main() -> None:
    """Time all solvers on garnets and mazes of growing size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--largest", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=100)
    options = parser.parse_args()
    solvers = {"occupax": occupax, "scipy": scipy_iteration}
    solvers |= {name: peer for name, peer in PEERS.items() if find_spec(name)}
    for kind in (garnet, maze):
        active = dict(solvers)
        size = 1_000
        while size <= options.largest:
            random = np.random.default_rng([options.seed, size])
            model, reward = kind(size, random)
            compare(kind.__name__, model, reward, active, options.repeats)
            size *= 10


def compare(
    kind: str,
    model: Dynamics,
    reward: np.ndarray,
    active: dict[str, Callable[[Dynamics, np.ndarray], Solver]],
    repeats: int,
) -> None:
    """Print the shortest time and the certified gap of each solver. Drop slow solvers."""
    states = model.shape[0]
    optimum = best_response(model, reward).value
    tolerance = GAP * abs(optimum)
    prepared: dict[str, Solver] = {}
    for name, solver in active.items():
        if name == "mdpsolver" and states > MAX_LIST_STATES:
            continue
        prepared[name] = solver(model, reward)
    times: dict[str, list[float]] = {name: [] for name in prepared}
    gaps: dict[str, float] = {}
    for _ in range(repeats):
        for name, solve in prepared.items():
            if times[name] and min(times[name]) > LONGEST / repeats:
                continue
            start = perf_counter()
            values = solve(tolerance)
            times[name].append(perf_counter() - start)
            lower, upper = bellman_bounds(model, reward, values)
            gaps[name] = (upper - lower) / abs(optimum)
    for name, seconds in times.items():
        shortest = min(seconds)
        print(
            f"{kind:8}{states:>10,}  {name:10}{shortest:12.4f} s   gap {gaps[name]:.1e}", flush=True
        )
        if shortest > LONGEST:
            del active[name]


if __name__ == "__main__":
    main()
