"""Training of networks against the rate of the machine's matrix products.

Fifty seeds train a network of 4 x 64 x 64 x 2 with tanh on CartPole with a limit of 200 steps, for
about 2,000 episodes each: a softmax over two pushes, and a normal law of a continuous force, whose
network has one output. Useful operations are the multiplications and additions of the matrix
products that cannot be saved, for live steps only: one pass to act, two for the gradient of each
policy that is asked for, and one for the log-probabilities of a second policy; that is three passes
for a step of a snapshot and six for one of a refinement, and a pass is twice the number of weights.
Activations that are computed again, tanh, the environment and everything else count as nothing. The
peak is the best of forty products of two square matrices of 2,048 in JAX. Figures are the best of
three runs, compilation left out.

The second table has the kernels by themselves, on steps that are all live. The third counts slots,
which are steps of an episode be they live or not, for policies before any training: those of the
network are computed for live steps only, those of the environment until the last episode of a group
of seeds has ended, and N H is what a loop over the whole horizon computes.
"""

import time
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import occupax as ox
from occupax.batches.network import kernel_log_probs
from occupax.experiments.methods import epoch_episodes
from occupax.samplers.kernel import program_sampler
from occupax.training.schedule import Schedule
from tables import Table, Target, at_least, show

SEEDS, REPEATS, LIMIT = 50, 3, 200
HIDDEN = 4 * 64 + 64 * 64
HEADS = {
    "softmax": ("CartPole-v1", HIDDEN + 64 * 2),
    "normal": ("ContinuousCartPole-v1", HIDDEN + 64),
}
"""Environments, and how many weights their networks have, by the kind of the policy."""
BASE: dict[str, Any] = {
    "baseline": "mean",
    "step_size": 5e-3,
    "radius": 0.1,
    "rule": "gradient",
    "weight_guard": None,
}
CASES: list[tuple[str, ox.TSIVRPG | ox.REINFORCE, int]] = [
    ("TSIVR-PG, N = 25, B = m = 5", ox.TSIVRPG(25, 5, 5, **BASE), 40),
    ("TSIVR-PG, N = 100, B = m = 10", ox.TSIVRPG(100, 10, 10, **BASE), 10),
    (
        "REINFORCE, B = 50",
        ox.REINFORCE(50, baseline="mean", step_size=5e-3, radius=0.1, rule="gradient"),
        40,
    ),
]
"""Algorithm, and epochs of a run of about 2,000 episodes."""
GROUP = 5
"""Seeds that go through one loop."""


def peak() -> float:
    """Operations a second of a large product."""
    size = 2048
    matrix = jax.random.normal(jax.random.key(0), (size, size))
    multiply = jax.jit(jnp.matmul)
    multiply(matrix, matrix).block_until_ready()
    took: list[float] = []
    for _ in range(10):
        start = time.perf_counter()
        multiply(matrix, matrix).block_until_ready()
        took.append(time.perf_counter() - start)
    return 2 * size**3 / min(took)


def passes(algorithm: Any, result: ox.Result) -> float:
    """Passes through the network that a live step needs, on average over a run."""
    steps = np.diff(result.steps, axis=1, prepend=0).sum(0)
    needed = np.where(np.arange(len(steps)) % Schedule(algorithm).period == 0, 3, 6)
    return float((steps * needed).sum() / steps.sum())


def problem_of(head: str) -> tuple[ox.Problem, int]:
    """Return the problem of a policy head and the number of weights of the policy."""
    name, weights = HEADS[head]
    return ox.Problem(ox.make(name), discount=0.99, horizon=LIMIT), weights


def train(head: str, algorithm: Any, epochs: int) -> tuple[float, float, float]:
    """Live steps and useful operations a second, and the mean length of an episode."""
    problem, weights = problem_of(head)
    result = ox.train(
        problem, algorithm, epochs * epoch_episodes(algorithm), seeds=SEEDS, progress=False
    )
    rate = result.steps[:, -1].sum() / result.seconds
    return (
        rate,
        rate * passes(algorithm, result) * 2 * weights,
        float(result.metrics["episode_length"].mean()),
    )


def training() -> Table:
    peaks: list[float] = []
    found: list[tuple[float, float, float]] = []
    names: list[str] = []
    for head in HEADS:
        for name, algorithm, epochs in CASES:
            train(head, algorithm, 1)
            peaks.append(peak())
            found.append(max(train(head, algorithm, epochs) for _ in range(REPEATS)))
            names.append(f"{head}, {name}")
    most = max(*peaks, peak())
    rows = [
        [
            name,
            f"{rate / 1e6:.2f}",
            f"{length:.0f}",
            f"{useful / 1e9:.1f}",
            f"{most / 1e9:.1f}",
            f"{useful / most:.3f}",
        ]
        for name, (rate, useful, length) in zip(names, found, strict=True)
    ]
    columns = [
        "policy and algorithm",
        "millions of live steps a second",
        "mean length",
        "useful GFLOP/s",
        "peak GFLOP/s",
        "share",
    ]
    targets = [
        at_least(0.3, useful / most, f"of the peak with {name}", digits=3)
        for name, (_, useful, _) in zip(names, found, strict=True)
    ]
    return Table(f"CartPole, {SEEDS} seeds", columns, rows, targets)


def kernels() -> Table:
    """Measure the kernels alone with every step live: an upper bound of the rates above."""
    most, rows = peak(), list[list[str]]()
    for head in HEADS:
        problem, weights = problem_of(head)
        policy = ox.policies.default_policy(problem.env)(problem.env, jax.random.key(0))
        program_sampler(problem, policy, "kernel")
        drawn = ox.sample(problem, policy, 1_000, jax.random.key(0))
        taken = eqx.tree_at(lambda it: it.live, drawn, jnp.ones_like(drawn.live))
        requests: dict[str, tuple[Any, int]] = {
            "log-probabilities": (partial(log_probs, taken), 1),
            "their gradient": (partial(gradient, taken), 2),
        }
        for name, (request, needed) in requests.items():
            ask = eqx.filter_jit(request)
            jax.block_until_ready(ask(policy))
            took: list[float] = []
            for _ in range(50):
                start = time.perf_counter()
                jax.block_until_ready(ask(policy))
                took.append(time.perf_counter() - start)
            count = taken.live.size
            useful = needed * 2 * weights * count / min(took)
            figures = (
                f"{1e9 * min(took) / count:.0f}",
                f"{useful / 1e9:.1f}",
                f"{useful / most:.2f}",
            )
            rows.append([f"{head}, {name}", *figures])
    remark = (
        "A gradient computes the activations again, which is a third of its products. "
        "Of the time of the log-probabilities, six tenths are those of the products "
        "and a quarter that of tanh (by `perf`)."
    )
    return Table(
        "The kernels alone",
        ["", "nanoseconds a step", "useful GFLOP/s", "share"],
        rows,
        remarks=[remark],
    )


def log_probs(taken: ox.Trajectories, policy: Any) -> jax.Array:
    """Compute the log-probabilities by the kernel."""
    return kernel_log_probs(policy, taken)


def gradient(taken: ox.Trajectories, policy: Any) -> Any:
    """Compute the gradient of the summed log-probabilities by the kernel."""
    return eqx.filter_grad(lambda policy: kernel_log_probs(policy, taken, taken.log_probs).sum())(
        policy
    )


def slots() -> Table:
    """Of one batch of 100 trajectories for each of a group of seeds."""
    rows: list[list[str]] = []
    targets: list[Target] = []
    for name, make in (
        ("CartPole-v0", ox.policies.mlp()),
        ("FrozenLake8x8-v1", ox.policies.tabular()),
    ):
        problem = ox.Problem(ox.make(name), discount=0.99, horizon=LIMIT)
        lengths = np.concatenate(
            [_lengths(problem, make(problem.env, jax.random.key(i)), i) for i in range(GROUP)]
        )
        live, full = int(lengths.sum()), lengths.size * LIMIT
        stepped = (
            live if isinstance(problem.env, ox.TabularMDP) else int(lengths.max()) * lengths.size
        )
        rows.append(
            [
                name,
                *(f"{count:,}" for count in (live, live, stepped, full)),
                f"{full / stepped:.1f}",
            ]
        )
        targets.append(
            at_least(2, full / stepped, f"times fewer slots than N H on {name}", digits=1)
        )
    columns = ["environment", "live", "of the policy", "of the environment", "N H", "N H / largest"]
    return Table("Slots", columns, rows, targets)


def _lengths(problem: ox.Problem, policy: ox.policies.Policy, seed: int) -> np.ndarray:
    source = program_sampler(problem, policy).open(problem, policy)
    statistics = eqx.filter_jit(
        lambda i: source.block(policy, jax.random.key(seed), i, 100, 1).statistics().steps
    )
    return np.array([int(statistics(jnp.asarray(i))) for i in range(100)])


def measure() -> list[Table]:
    """Training, what bounds it, and slots."""
    return [training(), kernels(), slots()]


if __name__ == "__main__":
    show(measure())
