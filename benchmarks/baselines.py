"""Comparison of the mean and the linear baseline, for networks and for continuous actions.

python benchmarks/baselines.py choose FIRST              five seeds from FIRST on
python benchmarks/baselines.py reach BASELINE [NAME...]  ten seeds, on all problems or some

FIRST = 0 decides which baseline is the default of networks, FIRST = 5 confirms the decision.

The rule for all networks, which was written before any of its seeds was run: `REINFORCE()` with its
default settings, once with baseline="mean" and once with baseline="linear", on CartPole-v1, on the
problems of the development half of the benchmark that have a cart, on three linear systems, and on
ContinuousCartPole-v1, with five seeds each. A score is the share of the way from the first policy
to the best one (500 steps; the reference of the benchmark; the Riccati optimum), on average over
the training. "linear" becomes the default of networks if its score, on average over the problems,
is higher, and on no problem lower by more than 0.02, with the seeds 0 to 4; and it stays so only if
that holds with the seeds 5 to 9, too. It did not.

The rule for normal policies that maximise a return. "linear" was chosen on the seeds 100 to 104 of
Pendulum-v1, ContinuousCartPole-v1 and two of the three linear systems, with steps that shrink. It
becomes the default if with the seeds 0 to 9 the medians are at least -500 on Pendulum-v1, 475 on
ContinuousCartPole-v1 and 0.98 of the way on each of the three systems, and if on three problems
that were not looked at, two more linear systems and MountainCarContinuous-v0, the median is not
below that of "mean" by more than 0.01 of the way or by a return of 1. At first it did not: all of
this held but for Pendulum-v1, whose median was -1066. Then half of the first units of a network
came to see numbers of wide ranges as they are, which of these problems changes Pendulum-v1 alone:
its median is -396, so the rule is met. On seeds that were not looked at before, from 20 and from 30
on, the medians are -205 and -984, those of "mean" -840 and -1034.
"""

import json
import sys
from typing import Any

import jax
import numpy as np

import occupax as ox
from occupax.bench.families import problems
from occupax.bench.measure import train
from occupax.bench.references import STORED
from occupax.exact import lqr
from occupax.policies import Policy

BASELINES = "mean", "linear"
SYSTEMS = ((3, 2, 4), 20, 0.9), ((2, 1, 0), 50, 0.95), ((4, 2, 1), 20, 0.99)
"""States, actions and seed of random linear systems, with horizon and discount."""
MORE_SYSTEMS = ((2, 2, 5), 30, 0.95), ((5, 1, 7), 20, 0.9)
TASKS = {"ContinuousCartPole-v1": 2_000, "Pendulum-v1": 6_000, "MountainCarContinuous-v0": 300}
"""Environments, and budgets of episodes."""
SEED, BATCH = 0, 10


def poles(name: str) -> tuple[ox.Problem, float, int]:
    """Return a pole-balancing problem, its best value (500 steps) and a budget of episodes."""
    problem = ox.Problem(ox.make(name))
    return problem, sum(problem.discount**t for t in range(500)), 1_500


def all_problems() -> dict[str, tuple[ox.Problem, float, int]]:
    """The problems of the rule, each with its best value and a budget of episodes."""
    found = {
        "CartPole-v1": poles("CartPole-v1"),
        "ContinuousCartPole-v1": poles("ContinuousCartPole-v1"),
    }
    references = json.loads(STORED.read_text())
    for it in problems("full", "development"):
        if it.family == "cartpole" and it.utility != "return":  # which is CartPole-v1
            found[it.name] = it.problem, references[it.name]["best"], it.entry.episodes
    for sizes, horizon, discount in SYSTEMS:
        problem = ox.Problem(ox.envs.LQR.random(*sizes), discount=discount, horizon=horizon)
        found[f"LQR{sizes}"] = problem, lqr.optimum(problem).value, 5_000
    return found


def choose(first: int) -> None:
    """Print the scores of both baselines on each problem, and what the rule says."""
    differences = []
    for name, (problem, best, episodes) in all_problems().items():
        scores = []
        for baseline in BASELINES:
            curve = train(
                problem,
                [ox.REINFORCE(BATCH, baseline=baseline)],
                episodes,
                range(first, first + 5),
                SEED,
            )[0]
            scores.append(float(curve.scores(best, episodes)["mean"].mean()))
        differences.append(scores[1] - scores[0])
        print(
            f"{name:24}",
            *(f"{b} {s:.3f}" for b, s in zip(BASELINES, scores, strict=True)),
            flush=True,
        )
    wins = np.mean(differences) > 0 and min(differences) >= -0.02
    said = "linear" if wins else "mean"
    print(f"mean difference {np.mean(differences):+.4f}, worst {min(differences):+.4f}", end="")
    print(f": the rule selects {said!r}")


def worth(problem: ox.Problem, policy: Policy) -> float:
    """The exact value of a linear-normal policy."""
    assert isinstance(policy, ox.policies.Gaussian)
    return lqr.value(problem, policy)


def reach(baseline: Any, names: list[str]) -> None:
    """Print the final returns of each seed of the default algorithm with a baseline."""
    algorithm = ox.REINFORCE(baseline=baseline)
    for name, episodes in TASKS.items():
        if not names or name in names:
            result = ox.train(
                ox.Problem(ox.make(name)), algorithm, episodes, seeds=10, progress=False
            )
            last = result.metrics["return"][:, -10:].mean(1)
            show(f"{name} {baseline}: returns of the last 100 episodes", last)
    for sizes, horizon, discount in (*SYSTEMS, *MORE_SYSTEMS):
        if not names or f"LQR{sizes}" in names:
            problem = ox.Problem(ox.envs.LQR.random(*sizes), discount=discount, horizon=horizon)
            best, policy = lqr.optimum(problem).value, ox.policies.gaussian(hidden=())
            result = ox.train(problem, algorithm, 20_000, seeds=10, policy=policy, progress=False)
            first = worth(problem, ox.policies.gaussian(hidden=())(problem.env, jax.random.key(0)))
            ways = np.array(
                [(worth(problem, it) - first) / (best - first) for it in result.policies]
            )
            show(f"LQR{sizes} {baseline}: shares of the way", ways)


def show(what: str, found: np.ndarray) -> None:
    """Print the median, and all of them."""
    print(f"{what}: median {np.median(found):.4g}, all {np.sort(found).round(3)}", flush=True)


if __name__ == "__main__":
    reach(sys.argv[2], sys.argv[3:]) if sys.argv[1] == "reach" else choose(int(sys.argv[2]))
