"""A discount of 1 with a finite horizon, against all trajectories of a tiny process."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import enumeration as enum
import occupax as ox
from commands import occupax
from compiled_batches import as_trajectories
from occupax import kernels
from occupax.algorithms.advantages import critic_features
from occupax.samplers.kernel import TabularKernelSource

pytestmark = pytest.mark.usefixtures("x64")

PROCESS = enum.tiny(11, (2,))
LOGITS = np.random.default_rng(0).normal(size=(2, 3, 2))
PROBS = enum.softmax(LOGITS[0])
CONVENTIONS = ("episodic", "absorbing")


@pytest.fixture(autouse=True)
def undiscounted(monkeypatch):
    monkeypatch.setattr(enum, "DISCOUNT", 1.0)


def coverage(termination):
    return PROCESS.problem(termination, utility=ox.utilities.LogCoverage(0.1))


@pytest.mark.parametrize("termination", CONVENTIONS)
def test_exact_occupancies_and_gradients_are_those_of_the_enumeration(termination):
    problem = coverage(termination)
    truth = enum.occupancy(PROCESS, LOGITS[0], termination)
    np.testing.assert_allclose(ox.exact.occupancy(problem, PROBS), truth, atol=1e-12)
    policy = ox.policies.Tabular(jnp.asarray(LOGITS[0]))
    quasi_reward = np.repeat(1 / (truth.sum(1) + 0.1), 2).reshape(3, 2)
    slopes = enum.jacobian(PROCESS, LOGITS[0], termination)
    gradient = ox.exact.gradient(problem, policy).table
    np.testing.assert_allclose(gradient, np.tensordot(quasi_reward, slopes, 2), atol=1e-10)


@pytest.mark.parametrize("termination", CONVENTIONS)
def test_estimates_are_unbiased(termination):
    problem = coverage(termination)
    target = ox.policies.Tabular(jnp.asarray(LOGITS[1]))
    batch, chances = enum.trajectories(PROCESS, LOGITS[0])
    alone = jax.tree.map(lambda leaf: leaf[:, None], batch)
    estimates = jax.vmap(lambda one: ox.estimators.occupancy(problem, one, target))(alone)
    truth = enum.occupancy(PROCESS, LOGITS[1], termination).sum(1)
    np.testing.assert_allclose(chances @ estimates, truth, atol=1e-10)


@pytest.mark.skipif(bool(kernels.missing()), reason="there was no C++ compiler")
@pytest.mark.parametrize("termination", CONVENTIONS)
def test_the_kernel_estimates_as_the_estimators_do(termination):
    problem = coverage(termination)
    behaviour = ox.policies.Tabular(jnp.asarray(LOGITS[0]))
    target = ox.policies.Tabular(jnp.asarray(LOGITS[1]))
    ours = TabularKernelSource(problem).block(behaviour, jax.random.key(0), 0, 200, 200)
    theirs = ox.SampledBatch(problem, as_trajectories(ours), behaviour)
    r = jnp.asarray([0.3, -1.0, 2.0])
    np.testing.assert_allclose(ours.occupancy(target), theirs.occupancy(target), rtol=1e-11)
    np.testing.assert_allclose(
        ours.gradient(target, r).table, theirs.gradient(target, r).table, rtol=1e-10, atol=1e-13
    )
    rewards = ours.statistics()
    np.testing.assert_allclose(rewards.discounted_return, rewards.undiscounted_return, rtol=1e-12)


def test_the_optimal_return_is_that_of_the_best_of_all_rules():
    problem = PROCESS.problem("episodic")
    rewards = np.einsum("sap,sap->sa", PROCESS.transition, PROCESS.reward)
    best = np.zeros(3)
    for _ in range(enum.HORIZON):
        worths = []
        for rule in product(range(2), repeat=3):
            chosen = np.arange(3), list(rule)
            worth = rewards[chosen] + PROCESS.transition[chosen] @ best
            worth[2] = 0.0  # the terminal state
            worths.append(worth)
        best = np.max(worths, axis=0)
    assert ox.solve(problem).value == pytest.approx(float(PROCESS.initial @ best), abs=1e-9)


@pytest.mark.parametrize("termination", CONVENTIONS)
def test_certificates_bound_the_optimum(termination):
    problem = coverage(termination)
    certificate = ox.exact.certificate(problem, PROBS)
    optimum = ox.solve(problem, tolerance=1e-6)
    assert certificate.value < optimum.value
    assert certificate.upper_bound >= optimum.value - 1e-9
    for logits in np.random.default_rng(1).normal(size=(50, 3, 2)):
        assert ox.exact.value(problem, enum.softmax(logits)) <= optimum.value + optimum.gap


def test_distributions_of_visits_have_mass_one():
    problem = PROCESS.problem("absorbing", utility="entropy")
    assert problem.utility.scale == pytest.approx(1 / enum.HORIZON, rel=1e-12)
    mu = problem.scale * ox.exact.occupancy(problem, PROBS).sum(1)
    assert mu.sum() == pytest.approx(1.0, abs=1e-12)
    entropy = float(-np.sum(mu * np.log(mu)))
    assert ox.exact.value(problem, PROBS) == pytest.approx(entropy, abs=1e-4)
    shorter = problem.with_time(discount=0.5)
    assert shorter.utility.scale == 0.5
    assert shorter.with_time(discount=1.0).utility.scale == problem.utility.scale
    demonstrated = ox.demonstrations(
        problem.env, ox.policies.Tabular(jnp.asarray(LOGITS[0])), 1.0, enum.HORIZON
    )
    expected = enum.occupancy(PROCESS, LOGITS[0], "episodic") / enum.HORIZON
    np.testing.assert_allclose(demonstrated, expected, atol=1e-10)


def test_the_critic_adds_what_an_absorbing_state_pays():
    problem = coverage("absorbing")
    policy = ox.policies.Tabular(jnp.asarray(LOGITS[0]))
    batch, chances = enum.trajectories(PROCESS, LOGITS[0])
    steps = ox.SampledBatch(problem, batch, policy).steps()
    features, _ = critic_features(problem, steps, jnp.ones(3), 1.0, endless=False)
    truth = enum.occupancy(PROCESS, LOGITS[0], "absorbing").sum(1)
    started_over = np.asarray(batch.live[:, 0])
    total = chances @ np.asarray(features.sum(1))
    at_once = chances[~started_over].sum() * enum.HORIZON * np.eye(3)[2]
    np.testing.assert_allclose(total + at_once, truth, atol=1e-10)


def test_an_infinite_horizon_is_refused():
    env = ox.make("FrozenLake-v1")
    with pytest.raises(ValueError, match="horizon must be finite for a discount of 1, got None"):
        ox.Problem(env, discount=1.0)
    with pytest.raises(ValueError, match="horizon must be finite"):
        ox.Problem(env, discount=0.9).with_time(discount=1)
    with pytest.raises(ValueError, match=r"discount must lie in \[0, 1\]"):
        ox.Problem(env, discount=1.01, horizon=10)


def test_training_maximises_the_return_of_an_episode():
    problem = ox.Problem("CartPole-v1", discount=1.0, horizon=50)
    for algorithm in (ox.REINFORCE(batch=2), ox.PPO(batch=2, epochs=1)):
        result = ox.train(problem, algorithm, episodes=4, progress=False)
        returns = result.metrics["return"]
        np.testing.assert_allclose(result.metrics["discounted_return"], returns, rtol=1e-6)
        np.testing.assert_allclose(result.metrics["utility"], returns, rtol=1e-6)
    assert isinstance(result.algorithm, ox.PPO)
    assert result.algorithm.horizon_ends


def test_the_command_line_takes_a_discount_of_one():
    code, out, _ = occupax("solve", "FrozenLake-v1", "--discount", 1, "--json")
    assert code == 0
    assert '"horizon": 100' in out
    code, _, err = occupax("solve", "FrozenLake-v1", "--discount", 1, "--horizon", "infinite")
    assert code == 2
    assert "horizon must be finite for a discount of 1" in err
