"""Constraint violations of training with defaults, from fixed seeds.

python examples/limits.py               all of it, some minutes on two cores
python examples/limits.py grid both     some of it

The gains of the multipliers (`training/execution/multipliers.py`) for tables were chosen on "grid",
"both" and ten drawn grids with seeds from 0 on. "drawn-0" to "drawn-7" are others, with seeds from
100 on: nothing was chosen on them.

Those of networks were chosen on CartPole with limits of 10 and 3 for the distance from the centre
and of 1.5 for the angle of the pole, on ContinuousCartPole with limits of 5 for the distance and of
1 for the angle, on "twin" with 1,000 episodes, which were too few, and on the thermostat of the
tutorials, with seeds from 100 on. They stay if all ten seeds are reached of "cart" and "twin", with
seeds from 0 on, and of "cart-tight", a limit of 5, with seeds from 300 on. They were, but for
"twin", where the median kept the limit with the whole return, the worst seed was above it by 10%,
and the one with the lowest return had 0.75 of it, after 3,000 episodes. They stay because with the
gains before, which were those of tables, five of thirty seeds of "cart" lost their return. With the
limit of 1 for the angle four of ten seeds fell at once, which costs little, and stayed so. "twin"
was then given the 5,000 episodes of "cart" and seeds from 500 on, to tell a short training from one
that fails: all ten seeds have the whole return, and the worst is 8% below the limit.
"""

import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

import occupax as ox
from occupax.training.assessment import assess

SEEDS = 10
PLAN = """
S..mmG
....m.
.m....
.m.m..
......
"""


class Lesson(NamedTuple):
    """A problem with limits, and what has to come of it."""

    problem: Callable[[], ox.Problem]
    episodes: int
    violation: float
    """What each seed may exceed a limit by, as a share of it."""
    share: float
    """What each seed must reach, of the best that keeps the limits."""
    best: Callable[[ox.Problem], tuple[float, float]]
    """What counts as nothing, and as all of it."""
    first_seed: int = 0


def grid(*limits: ox.Constraint, plan: str = PLAN) -> ox.Problem:
    """Return a grid problem whose short path to the goal leads through mud."""
    env = ox.TabularMDP.gridworld(plan.replace("m", "."), slip=0.2)
    return ox.Problem(env, discount=0.95, horizon=150, constraints=limits)


def mud(plan: str = PLAN) -> np.ndarray:
    """A cost of 1 for each step in the mud, [S, A]."""
    return np.repeat([[cell == "m"] for row in plan.split() for cell in row], 4, 1).astype(float)


def half_the_mud(plan: str = PLAN) -> ox.Problem:
    """Half of the mud that the best policy without limits steps into."""
    free = ox.solve(grid(plan=plan))
    limit = float((free.occupancy * mud(plan)).sum()) / 2
    return grid(ox.Constraint(mud(plan), at_most=limit, name="mud"), plan=plan)


def drawn(number: int) -> ox.Problem:
    """Return a 6 x 6 grid problem in which each cell is mud with probability 0.3.

    Grids are drawn until the best policy without limits takes at least half a step in the mud, and
    half of that can be kept to.
    """
    rng = np.random.default_rng([2026, number])
    while True:
        cells = np.where(rng.random((6, 6)) < 0.3, "m", ".")
        cells[0, 0], cells[rng.integers(3, 6), rng.integers(3, 6)] = "S", "G"
        problem = half_the_mud("\n".join("".join(row) for row in cells))
        try:
            ox.solve(problem)
        except ValueError:
            continue
        if problem.constraints[0].limit >= 0.25:
            return problem


def both() -> ox.Problem:
    """Return the mud problem with a lower bound on the lower half. Both constraints bind."""
    low = np.repeat([[row >= 3] for row in range(5) for _ in range(6)], 4, 1).astype(float)
    mud_limit = half_the_mud().constraints[0]
    return grid(mud_limit, ox.Constraint(low, at_least=3.0, name="low"))


def impossible() -> ox.Problem:
    """Next to no mud and a return that cannot be had without."""
    return grid(
        ox.Constraint(mud(), at_most=0.1, name="mud"),
        ox.Constraint(ox.features.Reward(), at_least=0.6),
    )


def exact_way(problem: ox.Problem) -> tuple[float, float]:
    """Return the value of the uniform policy and the exact constrained optimum."""
    assert isinstance(problem.env, ox.TabularMDP)  # noqa: S101
    shape = problem.env.num_states, problem.env.num_actions
    best = ox.solve(problem)
    multipliers = {name: round(value, 4) for name, value in best.multipliers.items()}
    print(f"    optimum {best.value:.4f}, multipliers {multipliers}")
    return ox.exact.value(problem, np.full(shape, 1 / shape[1])), best.value


def distance(observation: jax.Array, _: jax.Array) -> jax.Array:
    """Return the distance of the cart from the centre."""
    return jnp.abs(observation[0])


class CostlyCartPole(gym.Wrapper[Any, Any, Any, Any]):
    """CartPole with a cost in `info`: the distance of the cart from the centre before each step."""

    def __init__(self) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self._seen = 0.0

    def reset(self, **options: Any) -> Any:
        """Begin an episode."""
        observation, info = self.env.reset(**options)
        self._seen = abs(float(observation[0]))
        return observation, info

    def step(self, action: Any) -> Any:
        """Take a step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        info, self._seen = info | {"cost": self._seen}, abs(float(observation[0]))
        return observation, reward, terminated, truncated, info


CART_LIMIT = 10.0
"""Without a limit, ten policies that were trained for 2,000 episodes had costs from 8 to 56, half
of them above 23."""


def cart(limit: float = CART_LIMIT) -> ox.Problem:
    """CartPole near the centre of its track, in JAX."""
    return ox.Problem(
        ox.make("CartPole-v1"), constraints=[ox.Constraint(distance, at_most=limit, name="cost")]
    )


def whole_way(_: ox.Problem) -> tuple[float, float]:
    """No step at all, and all 500 steps, which no policy exceeds."""
    return 0.0, (1 - 0.99**500) / (1 - 0.99)


def twin() -> ox.Problem:
    """Return the problem of `cart` on the Gymnasium environment."""
    env = ox.GymnasiumEnv(CostlyCartPole, info=["cost"])
    return ox.Problem(
        env, constraints=[ox.Constraint(ox.features.Info("cost"), at_most=CART_LIMIT, name="cost")]
    )


@cache
def swept() -> tuple[float, float]:
    """Return the best return of a sweep over penalty weights that satisfies the constraint."""
    weights, found = (0.0, 0.3, 1.0, 3.0), 0.0
    for weight in weights:
        penalised = ox.utilities.Reward() - weight * ox.utilities.Total(distance)
        result = ox.train(
            ox.Problem(ox.make("CartPole-v1"), penalised), episodes=3_000, seeds=3, progress=False
        )
        kept = [assess(cart(), [policy]) for policy in result.policies]
        found = max(
            [
                found,
                *(
                    float(it.utilities[0])
                    for it in kept
                    if it.excesses is not None and it.excesses[0, 0] <= 0
                ),
            ]
        )
    print(f"    best return of a sweep over penalties that keeps the limit: {found:.2f}")
    return 0.0, found


LESSONS = {
    "grid": Lesson(half_the_mud, 100_000, 0.02, 0.95, exact_way),
    "both": Lesson(both, 100_000, 0.02, 0.95, exact_way),
    "cart": Lesson(cart, 5_000, 0.05, 0.90, lambda _: swept()),
    "cart-tight": Lesson(partial(cart, 5.0), 5_000, 0.05, 0.90, whole_way, 300),
    "twin": Lesson(twin, 5_000, 0.05, 0.90, lambda _: swept(), 500),
    **{
        f"drawn-{k}": Lesson(partial(drawn, k), 100_000, 0.02, 0.95, exact_way, 100)
        for k in range(8)
    },
}


def learn(name: str) -> bool:
    """Train with the default, and say what was kept and reached."""
    lesson = LESSONS[name]
    problem = lesson.problem()
    print(f"{name}: maximise the return, {', '.join(map(str, problem.constraints))}")
    nothing, best = lesson.best(problem)
    seeds = range(lesson.first_seed, lesson.first_seed + SEEDS)
    result = ox.train(problem, episodes=lesson.episodes, seeds=seeds, progress=False)
    shares = (result.utilities - nothing) / (best - nothing)
    good = bool(shares.min() >= lesson.share)
    spread = f"median {np.median(shares):.4f}, worst {shares.min():.4f}"
    print(f"    fraction of the best: {spread}; wanted {lesson.share:g}")
    for constraint, excess in zip(problem.constraints, result.excesses.values(), strict=True):
        relative = excess / abs(constraint.limit)
        good = good and bool(relative.max() <= lesson.violation)
        spread = f"median {np.median(relative):+.2%}, worst {relative.max():+.2%}"
        print(f"    violation of {constraint}: {spread}; allowed {lesson.violation:.0%}")
    said = ", ".join(finding.kind for finding in result.diagnosis) or "nothing"
    cost = f"{lesson.episodes:,} episodes, {SEEDS} seeds, {result.seconds:.0f} s"
    print(f"    {cost}; diagnostics: {said}: ", end="")
    print("reached" if good else "NOT reached", flush=True)
    return good


def say_so() -> bool:
    """Train with a limit that nobody can keep, and show what the diagnosis says."""
    result = ox.train(impossible(), episodes=10_000, seeds=SEEDS, progress=False)
    said = [finding for finding in result.diagnosis if finding.kind == "limit-not-kept"]
    print(f"impossible: {said[0].sentence if said else 'NOT said'}", flush=True)
    return bool(said)


def main() -> None:
    names = sys.argv[1:] or [*LESSONS, "impossible"]
    reached = [say_so() if name == "impossible" else learn(name) for name in names]
    sys.exit(0 if all(reached) else 1)


if __name__ == "__main__":
    main()
