import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import enumeration as enum
import occupax as ox

CONVENTIONS = ("episodic", "absorbing")
TERMINALS = ((), (2,), (0, 2))


def two_tables(seed):
    random = np.random.default_rng(seed)
    return random.normal(size=(2, enum.S, enum.A))


def each(function, batch, *arguments):
    """The estimate from each trajectory alone."""
    alone = jax.tree.map(lambda leaf: leaf[:, None], batch)
    return jax.vmap(lambda one: function(one, *arguments))(alone)


def expected(function, batch, chances, *arguments):
    return jax.tree.map(
        lambda leaf: np.tensordot(chances, leaf, 1), each(function, batch, *arguments)
    )


def check_unbiased(process, termination, behaviour, target, recorded, evaluated):
    """Test the estimates over all trajectories of `behaviour` against exact values of `target`."""
    problem = process.problem(
        termination, features=ox.features.StateAction(), utility=ox.utilities.Linear([1.0] * 6)
    )
    batch, chances = enum.trajectories(process, behaviour)
    log_probs = jnp.log(jnp.asarray(enum.softmax(recorded)))[batch.observations, batch.actions]
    batch = eqx.tree_at(lambda it: it.log_probs, batch, log_probs)
    policy = ox.policies.Tabular(jnp.asarray(evaluated))
    r = np.random.default_rng(9).normal(size=6)

    assert chances.sum() == pytest.approx(1.0, abs=1e-12)
    u = expected(lambda one, it: ox.estimators.occupancy(problem, one, it), batch, chances, policy)
    np.testing.assert_allclose(u, enum.occupancy(process, target, termination).ravel(), atol=1e-9)
    g = expected(
        lambda one, it: ox.estimators.gradient(problem, one, it, jnp.asarray(r)),
        batch,
        chances,
        policy,
    )
    truth = np.tensordot(r.reshape(3, 2), enum.jacobian(process, target, termination), 2)
    np.testing.assert_allclose(g.table, truth, atol=1e-9)


@pytest.mark.parametrize("terminal", TERMINALS)
@pytest.mark.parametrize("termination", CONVENTIONS)
def test_estimates_are_unbiased_off_policy_over_all_trajectories(x64, termination, terminal):
    behaviour, target = two_tables(1)
    check_unbiased(
        enum.tiny(0, terminal), termination, behaviour, target, recorded=behaviour, evaluated=target
    )


@pytest.mark.parametrize("termination", CONVENTIONS)
def test_swapping_the_two_policies_in_the_weight_is_noticed(x64, termination):
    behaviour, target = two_tables(1)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check_unbiased(
            enum.tiny(0, (2,)), termination, behaviour, target, recorded=target, evaluated=behaviour
        )


@pytest.mark.parametrize("termination", CONVENTIONS)
def test_the_exact_methods_agree_with_enumeration(termination):
    process, logits = enum.tiny(0, (2,)), two_tables(1)[0]
    utility = ox.utilities.Entropy(1e-3) + 0.3 * ox.utilities.Reward()
    problem = process.problem(termination, utility=utility)
    lam = enum.occupancy(process, logits, termination)
    probs = enum.softmax(logits)
    np.testing.assert_allclose(ox.exact.occupancy(problem, probs), lam, atol=1e-12)

    # F and its gradient written out once more, in NumPy
    mean_reward = (process.transition * process.reward).sum(2)
    mean_reward[2] = process.reward[2, :, 2]  # a terminal state leads to itself
    mu = 0.1 * lam.sum(1) + 1e-3
    value = -(mu * np.log(mu)).sum() + 0.3 * (mean_reward * lam).sum()
    assert ox.exact.value(problem, probs) == pytest.approx(value, abs=1e-12)
    quasi_reward = (-0.1 * (1 + np.log(mu)))[:, None] + 0.3 * mean_reward
    truth = np.tensordot(quasi_reward, enum.jacobian(process, logits, termination), 2)
    with jax.enable_x64(True):
        policy = ox.policies.Tabular(jnp.asarray(logits))
    np.testing.assert_allclose(ox.exact.gradient(problem, policy).table, truth, atol=1e-12)


@pytest.mark.parametrize("termination", CONVENTIONS)
def test_the_reward_feature_estimates_the_discounted_return(x64, termination):
    process, (behaviour, target) = enum.tiny(3, (2,)), two_tables(2)
    problem = process.problem(termination)
    batch, chances = enum.trajectories(process, behaviour)
    policy = ox.policies.Tabular(jnp.asarray(target))
    u = expected(lambda one, it: ox.estimators.occupancy(problem, one, it), batch, chances, policy)
    assert u.shape == (1,)
    assert u[0] == pytest.approx(ox.exact.value(problem, enum.softmax(target)), abs=1e-9)


def double_sum(batch, target, quasi_reward, scores):
    """Return the paper's estimator (defn:weight-Jacob-estimator) from `scores`, d log pi."""
    n, horizon = batch.actions.shape
    total = np.zeros(scores.shape[2:])
    for i in range(n):
        weight, score = 1.0, np.zeros(scores.shape[2:])
        for t in range(horizon):
            if not batch.live[i, t]:
                break
            s, a = batch.observations[i, t], batch.actions[i, t]
            weight = weight * np.exp(float(target.log_prob(s, a)) - float(batch.log_probs[i, t]))
            score = score + np.asarray(scores[i, t])
            total += enum.DISCOUNT**t * weight * float(quasi_reward[s, a]) * score / n
    return total


@pytest.mark.parametrize("kind", ["tabular", "mlp"])
def test_the_gradient_is_the_explicit_double_sum_of_the_paper(x64, kind):
    process = enum.tiny(4, (2,))
    problem = process.problem("episodic", utility=ox.utilities.Linear(np.ones((3, 2))))
    make = {"tabular": ox.policies.tabular(1.0), "mlp": ox.policies.mlp((4,))}[kind]
    behaviour, target = (make(problem.env, jax.random.key(k)) for k in (0, 1))
    batch = ox.sample(problem, behaviour, 6, jax.random.key(2))
    r = np.random.default_rng(0).normal(size=(3, 2))
    gradient = ox.estimators.gradient(problem, batch, target, jnp.asarray(r.ravel()))

    arrays, static = eqx.partition(target, eqx.is_inexact_array)
    flat, unravel = ravel_pytree(arrays)

    def log_prob(theta, s, a):
        return eqx.combine(unravel(theta), static).log_prob(s, a)

    scores = jax.vmap(jax.vmap(jax.grad(log_prob), (None, 0, 0)), (None, 0, 0))(
        flat, batch.observations, batch.actions
    )
    ours = ravel_pytree(gradient)[0]
    np.testing.assert_allclose(ours, double_sum(batch, target, r, scores), atol=1e-12)


@pytest.mark.parametrize("termination", CONVENTIONS)
def test_dense_one_hot_features_equal_indexed_ones(x64, termination):
    process, (behaviour, target) = enum.tiny(5, (2,)), two_tables(3)
    batch, _ = enum.trajectories(process, behaviour)
    policy = ox.policies.Tabular(jnp.asarray(target))
    r = jnp.asarray(np.random.default_rng(1).normal(size=6))
    results = []
    for features in (ox.features.StateAction(), lambda s, a: jax.nn.one_hot(s * 2 + a, 6)):
        problem = process.problem(
            termination, utility=ox.utilities.Linear(np.ones(6)), features=features
        )
        gradient = ox.estimators.gradient(problem, batch, policy, r)
        results.append((ox.estimators.occupancy(problem, batch, policy), gradient.table))
    np.testing.assert_allclose(results[0][0], results[1][0], atol=1e-13)
    np.testing.assert_allclose(results[0][1], results[1][1], atol=1e-13)


def test_the_absorbing_mass_on_policy_is_that_of_all_steps(x64):
    problem = enum.tiny(6, (2,)).problem("absorbing", utility=ox.utilities.LogCoverage())
    policy = ox.policies.tabular(1.0)(problem.env, jax.random.key(0))
    batch = ox.sample(problem, policy, 64, jax.random.key(1))
    assert 0 < int(batch.terminated.sum()) < 64  # some ended early and some did not
    total = ox.estimators.occupancy(problem, batch, policy).sum()
    assert float(total) == pytest.approx(
        (1 - enum.DISCOUNT**enum.HORIZON) / (1 - enum.DISCOUNT), abs=1e-12
    )


@pytest.mark.parametrize("discount", [0.9, 0.9999, 0.999999])
def test_the_absorbing_mass_does_not_cancel_in_single_precision(discount):
    env = ox.TabularMDP(np.full((2, 1, 2), 0.5), np.ones((2, 1)), [1.0, 0.0], [False, True])
    problem = ox.Problem(
        env, ox.utilities.LogCoverage(), discount=discount, horizon=3, termination="absorbing"
    )
    policy = ox.policies.tabular()(env, jax.random.key(0))
    total = ox.estimators.occupancy(
        problem, ox.sample(problem, policy, 16, jax.random.key(1)), policy
    ).sum()
    assert float(total) == pytest.approx(1 + discount + discount**2, rel=1e-6)


def test_adding_a_constant_to_a_row_of_logits_changes_nothing(x64):
    process, (behaviour, target) = enum.tiny(7, (2,)), two_tables(4)
    problem = process.problem("absorbing", utility=ox.utilities.Linear(np.arange(6.0)))
    batch, _ = enum.trajectories(process, behaviour)
    shifted = target + np.array([[3.0], [-7.0], [0.5]])
    r = jnp.arange(6.0)
    for function in (
        lambda it: ox.estimators.weights(batch, it),
        lambda it: ox.estimators.occupancy(problem, batch, it),
        lambda it: ox.estimators.gradient(problem, batch, it, r).table,
    ):
        one, other = (
            function(ox.policies.Tabular(jnp.asarray(table))) for table in (target, shifted)
        )
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_weights_obey_the_bound_of_the_paper_and_reach_it(x64):
    process = enum.tiny(8, ())
    behaviour, direction = two_tables(5)
    batch, _ = enum.trajectories(process, behaviour)
    for distance in (0.01, 0.3, 2.0):
        moved = behaviour + distance * direction / np.linalg.norm(direction)
        weight = ox.estimators.weights(batch, ox.policies.Tabular(jnp.asarray(moved)))
        bound = [
            ox.theory.weight_bound(t, distance, 1.0) for t in range(enum.HORIZON)
        ]  # lemma:Weight-Var0, l_psi = 1
        assert (np.asarray(weight) <= np.array(bound) + 1e-12).all()
        assert (
            float(weight.max()) > 1 + distance / 10
        )  # the weights did move: the bound was not met by idleness


def test_the_variance_of_the_weights_grows_with_the_squared_distance(x64):
    process = enum.tiny(8, (2,))
    behaviour, direction = two_tables(6)
    batch, chances = enum.trajectories(process, behaviour)
    distances = np.logspace(-4, -1.5, 6)
    variances = []
    for distance in distances:
        moved = behaviour + distance * direction / np.linalg.norm(direction)
        last = np.asarray(ox.estimators.weights(batch, ox.policies.Tabular(jnp.asarray(moved))))[
            :, -1
        ]
        assert chances @ last == pytest.approx(1.0, abs=1e-12)
        variances.append(chances @ (last - 1) ** 2)
    slope = np.polyfit(np.log(distances), np.log(variances), 1)[0]
    assert slope == pytest.approx(
        2.0, abs=0.02
    )  # exact by enumeration; what is left is the next order


def test_far_apart_policies_over_a_long_horizon_give_finite_numbers():
    env = ox.TabularMDP.garnet(5, 2, 3, jax.random.key(0))
    problem = ox.Problem(env, ox.utilities.LogCoverage(), discount=0.999, horizon=2000)
    behaviour = ox.policies.Tabular(jnp.zeros((5, 2)))
    batch = ox.sample(problem, behaviour, 8, jax.random.key(1))
    for scale in (1.0, 50.0, 1e4):
        target = ox.policies.tabular(scale)(env, jax.random.key(2))
        u = ox.estimators.occupancy(problem, batch, target)
        g = ox.estimators.gradient(
            problem, batch, target, problem.utility.gradient(problem.utility.domain(u))
        )
        assert np.isfinite(u).all()
        assert np.isfinite(g.table).all()
    huge = eqx.tree_at(lambda it: it.log_probs, batch, jnp.full_like(batch.log_probs, -30.0))
    assert np.isfinite(
        ox.estimators.occupancy(problem, huge, behaviour)
    ).all()  # weights of e^(29 * 2000), were it exact
    assert np.isfinite(ox.estimators.gradient(problem, huge, behaviour, jnp.ones(5)).table).all()
