"""Constraints: what they accept, their exact optimum, and training that keeps them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

import occupax as ox
from occupax.exact.evaluation import excesses_of
from occupax.training.execution.multipliers import (
    TABLE_GAINS,
    default_gains,
    initial_multipliers,
    update_multipliers,
)

COSTS = np.random.default_rng(0).random((3, 5, 3))


def garnet(seed=0):
    return ox.TabularMDP.garnet(5, 3, 2, jax.random.key(seed))


def limited(env, limits, horizon=None, **options):
    constraints = [
        ox.Constraint(COSTS[k], at_most=limit, name=f"cost{k}") for k, limit in enumerate(limits)
    ]
    return ox.Problem(env, discount=0.9, horizon=horizon, constraints=constraints, **options)


def linear_program(env, limits, discount=0.9):
    """The optimum over occupancies by SciPy, written down from the flow equations alone."""
    S, A = env.num_states, env.num_actions
    flow = np.kron(np.eye(S), np.ones((1, A))) - discount * env.transition.toarray().T
    bounds = np.array([cost.ravel() for cost in COSTS[: len(limits)]])
    return linprog(-env.reward.ravel(), A_ub=bounds, b_ub=limits, A_eq=flow, b_eq=env.initial)


def sums(env, probs):
    lam = ox.exact.occupancy(ox.Problem(env, discount=0.9), probs)
    return (COSTS * lam).sum((1, 2))


@pytest.mark.parametrize("seed", range(4))
def test_the_exact_optimum_and_its_multipliers_are_those_of_a_linear_program(seed):
    env = garnet(seed)
    free = sums(env, ox.solve(ox.Problem(env, discount=0.9)).policy)
    limits = 0.97 * free[:2]
    right: Any = linear_program(env, limits)
    for method in ("frank-wolfe", "interior-point"):
        if right.status == 2:  # the program has no solution, and neither has the problem
            with pytest.raises(
                ValueError, match="no policy satisfies the constraints; smallest possible violation"
            ):
                ox.solve(limited(env, limits))
            continue
        best = ox.solve(limited(env, limits), tolerance=1e-7, method=method)
        assert best.value == pytest.approx(-right.fun, abs=2e-6)
        assert list(best.multipliers.values()) == pytest.approx(-right.ineqlin.marginals, abs=1e-4)
        assert max(best.excesses.values()) <= 1e-5
    if right.status == 0:
        assert -right.fun < ox.solve(ox.Problem(env, discount=0.9)).value - 1e-4  # the limits bind


def test_a_concave_limit_is_kept_and_any_multipliers_bound_the_optimum():
    env = garnet()
    problem = ox.Problem(
        env,
        discount=0.9,
        constraints=[
            ox.Constraint(ox.utilities.Entropy(), at_least=1.5),
            ox.Constraint(COSTS[0], at_most=4.0),
        ],
    )
    best = ox.solve(
        problem
    )  # whose gap is certified by planning for the Lagrangian, whoever found it
    assert max(best.excesses.values()) <= 1e-6
    assert min(best.multipliers.values()) > 0.01
    assert best.value < ox.solve(ox.Problem(env, discount=0.9)).value - 0.01
    uniform = np.full((5, 3), 1 / 3)
    rng = np.random.default_rng(1)
    for _ in range(3):
        certificate = ox.exact.certificate(
            problem, uniform, dict(zip(best.multipliers, rng.random(2), strict=True))
        )
        assert certificate.upper_bound >= best.value
    tight = ox.exact.certificate(problem, best.policy)
    assert tight.gap <= 1e-3
    assert ox.exact.certificate(problem, uniform, best.multipliers).violation == pytest.approx(
        max(0.0, excesses_of(problem, ox.exact.feature_occupancy(problem, uniform)).max())
    )


def test_the_smallest_violation_is_that_of_a_linear_program():
    env = garnet()
    S, A = 5, 3
    flow = np.kron(np.eye(S), np.ones((1, A))) - 0.9 * env.transition.toarray().T
    solved: Any = linprog(COSTS[0].ravel(), A_eq=flow, b_eq=env.initial)
    least = solved.fun
    with pytest.raises(ValueError, match=f"violated by {least / 2:.3f}"[:-1]):
        ox.solve(limited(env, [least / 2]))


GRID = ox.TabularMDP.gridworld("S.G\n...", slip=0.1)
MUD = np.repeat([[0.0], [1.0], [0.0], [0.0], [0.0], [0.0]], 4, 1)


def muddy(scale=1.0, limit=0.2):
    utility = scale * ox.utilities.Reward()
    constraint = ox.Constraint(MUD / scale, at_most=limit / scale, name="mud")
    return ox.Problem(GRID, utility, discount=0.9, horizon=20, constraints=[constraint])


@pytest.fixture(scope="module")
def trained():
    return ox.train(muddy(), episodes=12_000, seeds=3, progress=False)


def test_training_keeps_a_limit_that_the_best_policy_breaks(trained):
    free = ox.Problem(GRID, discount=0.9, horizon=20)
    broken = (ox.exact.occupancy(free, ox.solve(free).policy) * MUD).sum()
    assert broken > 2 * 0.2
    best = ox.solve(trained.problem)
    # two standard errors of what the last 6,000 episodes cost, whose deviation is 0.38: no more is
    # known
    assert (trained.excesses["mud"] <= 2 * 0.38 / 6_000**0.5).all()
    assert (trained.utilities >= 0.9 * best.value).all()
    assert "; mud <= 0.2: " in trained.headline
    late = trained.metrics["multiplier/mud"][:, -200:].mean()
    assert late == pytest.approx(best.multipliers["mud"], rel=0.5)


def test_units_change_nothing(trained):
    scale = (
        2.0**17
    )  # a power of two, which rounds nothing: other units would be other runs after some iterations
    same = ox.train(muddy(scale), episodes=12_000, seeds=3, progress=False)
    assert same.excesses["mud"] * scale == pytest.approx(
        trained.excesses["mud"], rel=1e-4, abs=1e-6
    )
    assert same.utilities / scale == pytest.approx(trained.utilities, rel=1e-4)


@pytest.mark.parametrize(
    "algorithm", [ox.REINFORCE(output="best"), ox.TSIVRPG(snapshot_batch=20, batch=10)]
)
def test_a_run_with_limits_resumes_bit_by_bit(algorithm, tmp_path):
    problem = muddy()
    whole = ox.train(problem, algorithm, episodes=400, seeds=2, progress=False)
    ox.train(problem, algorithm, episodes=200, seeds=2, progress=False, out=tmp_path / "run")
    resumed = ox.train(
        problem, algorithm, episodes=400, seeds=2, progress=False, out=tmp_path / "run", resume=True
    )
    for name in ("multiplier/mud", "violation/mud", "utility"):
        assert (whole.metrics[name] == resumed.metrics[name]).all()
    assert (whole.policy(1).table == resumed.policy(1).table).all()
    assert (whole.metrics["multiplier/mud"] > 0).any()
    loaded: Any = ox.load_result(tmp_path / "run")
    assert str(loaded.problem.constraints[0]) == "mud <= 0.2"
    assert loaded.excesses["mud"] == pytest.approx(resumed.excesses["mud"])


def test_limits_that_nobody_can_keep_are_said_to_be_so():
    limits = [ox.Constraint(MUD, at_most=0.05), ox.Constraint(ox.features.Reward(), at_least=0.9)]
    result = ox.train(
        ox.Problem(GRID, discount=0.9, horizon=20, constraints=limits),
        episodes=400,
        seeds=2,
        progress=False,
    )
    found = {finding.kind: finding for finding in result.diagnosis}["limit-not-kept"]
    assert "no policy satisfies the constraints" in found.sentence
    assert "cannot be satisfied" in found.advice


def test_multipliers_rise_with_a_violation_and_fall_with_slack_to_zero():
    problem = muddy()
    state: Any = initial_multipliers(problem)
    rng = np.random.default_rng(0)
    step = jax.jit(lambda state, fresh: update_multipliers(state, problem, fresh, 20, TABLE_GAINS))
    for excess, wanted in ((0.3, lambda mu: mu > 1), (-0.19, lambda mu: mu == 0)):
        for _ in range(400):
            noise = 0.02 * rng.normal(size=2)
            state = step(state, jnp.asarray([0.7 + noise[0], 0.2 + excess + noise[1]]))
        assert wanted(float(state.value[0]))
        assert float(state.excess[0]) == pytest.approx(excess, abs=0.03)


def test_multipliers_follow_a_network_more_slowly():
    """With multipliers that jump, networks lose the utility permanently."""
    problem, network = muddy(), ox.policies.mlp()(ox.make("CartPole-v1"), jax.random.key(0))
    found = []
    for policy in (ox.policies.Tabular(jnp.zeros((2, 2))), network):
        state: Any = initial_multipliers(problem)
        for k in range(10):
            state = update_multipliers(
                state,
                problem,
                jnp.asarray([0.7 + 0.1 * (k % 2), 0.3 + 0.1 * (k % 3)]),
                20,
                default_gains(policy),
            )
        found.append(float(state.value[0]))
    assert found[0] > 3 * found[1] > 0


def test_the_quasi_reward_of_a_batch_is_the_gradient_of_the_lagrangian():
    problem = muddy()
    u, mu = jnp.asarray([0.5, 0.3]), jnp.asarray([2.0])

    def by_hand(u):
        return u[0] - 2.0 * (u[1] - 0.2)

    assert problem.lagrangian(mu).quasi_reward(u) == pytest.approx(jax.grad(by_hand)(u))
    assert problem.quasi_reward(u) == pytest.approx([1.0, 0.0])
    assert problem.excesses(u) == pytest.approx([0.1])


def test_limits_on_the_command_line():
    from occupax.cli.choices import Choices, build
    from occupax.cli.names import constraint

    assert [str(constraint(it)) for it in ("info.cost<=25", "entropy >= 1.0", "reward>=-3")] == [
        "info.cost <= 25",
        "entropy >= 1",
        "reward >= -3",
    ]
    training = build(Choices(env="FrozenLake-v1", constrain=("entropy>=1.0",)))
    assert [str(it) for it in training.problem.constraints] == ["entropy >= 1"]
    assert "entropy >= 1" in training.title
    for wrong in ("info.cost<25", "cost", "entropy>=much"):
        with pytest.raises(ValueError, match=r"--constrain must be NAME<=NUMBER"):
            constraint(wrong)
    with pytest.raises(ValueError, match="Did you mean 'entropy'"):
        constraint("entropi>=1")


def test_names_stand_for_what_is_limited():
    limits = [
        ox.Constraint(*it)
        for it in (("info.cost", 25.0), ("reward", None, -3.0), ("entropy", None, 1.0))
    ]
    assert [str(it) for it in limits] == ["info.cost <= 25", "reward >= -3", "entropy >= 1"]
    assert [type(it.subject).__name__ for it in limits] == ["Total", "Total", "Entropy"]
    assert limits[0].subject.features() == ox.features.Info("cost")
    with pytest.raises(ValueError, match="Did you mean 'entropy'"):
        ox.Constraint("entropi", at_least=1.0)


def test_the_best_point_of_a_sweep_keeps_the_limits():
    done = ox.sweep(
        muddy(), "reinforce", {"step_size": [0.3, 0.001]}, episodes=2_000, seeds=2, progress=False
    )
    excesses = [result.excesses["mud"].mean() for result in done.results]
    assert excesses[0] < 0 < excesses[1] == pytest.approx(done.violations[1])
    done.__dict__["scores"] = np.array([0.0, 1.0])  # whatever it earns
    assert done.best == 0


def test_constraints_of_one_name_are_numbered_and_share_features_with_the_utility():
    state = ox.utilities.Entropy()
    problem = ox.Problem(
        GRID,
        ox.utilities.LogCoverage(),
        constraints=[ox.Constraint(state, at_least=0.5 * k) for k in (1, 2)],
    )
    assert [it.name for it in problem.constraints] == ["entropy", "entropy-2"]
    assert problem.size == 6
    assert isinstance(problem.objective, ox.utilities.LogCoverage)
