"""Linear-quadratic systems against NumPy simulations and SciPy, and estimators on them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize
from scipy.linalg import solve_discrete_are

import occupax as ox
from occupax.exact import lqr

KEY = jax.random.key(0)
SYSTEM = ox.envs.LQR.random(3, 2, seed=4)
SHORT, WITH_HORIZON, FOR_EVER = (
    ox.Problem(SYSTEM, discount=0.9, horizon=horizon) for horizon in (3, 6, None)
)


def policy_of(gain, bias, log_deviation):
    start = ox.policies.gaussian(hidden=())(SYSTEM, KEY)
    layer = start.psi.network.layers[0]
    return eqx.tree_at(
        lambda it: (
            it.psi.network.layers[0].weight,
            it.psi.network.layers[0].bias,
            it.log_deviation,
        ),
        start,
        tuple(jnp.asarray(part, layer.weight.dtype) for part in (gain, bias, log_deviation)),
    )


POLICY = policy_of([[-0.3, 0.1, 0.2], [0.1, -0.2, 0.0]], [0.2, -0.1], [-0.7, -1.2])


def leaves_of(policy):
    return jax.tree.leaves(eqx.filter(policy, eqx.is_array))


def simulated(gains, bias, deviation, horizon, discount, n=50_000):
    """Return discounted returns of episodes simulated in NumPy, with one gain per step."""
    random, env = np.random.default_rng(0), SYSTEM
    x = random.multivariate_normal(np.zeros(3), env.first, n)
    total = np.zeros(n)
    for t in range(horizon):
        a = x @ gains[t].T + bias + deviation * random.standard_normal((n, 2))
        cost = np.einsum("ni,ij,nj->n", x, env.state_cost, x) + np.einsum(
            "ni,ij,nj->n", a, env.action_cost, a
        )
        total -= discount**t * cost
        x = (
            x @ env.drift.T
            + a @ env.control.T
            + random.multivariate_normal(np.zeros(3), env.noise, n)
        )
    return total


def assert_mean(found, expected):
    """Five standard errors: right for all but one in two million seeds, and the seed is fixed."""
    assert expected == pytest.approx(found.mean(), abs=5 * found.std() / np.sqrt(len(found)))
    assert found.std() / np.sqrt(len(found)) < 0.01 * abs(expected)


def test_values_are_those_of_a_simulation():
    gain, bias, deviation = (
        np.array(POLICY.psi.network.layers[0].weight),
        [0.2, -0.1],
        np.exp([-0.7, -1.2]),
    )
    assert_mean(simulated([gain] * 6, bias, deviation, 6, 0.9), lqr.value(WITH_HORIZON, POLICY))
    later = simulated([gain] * 120, bias, deviation, 120, 0.9, 20_000)  # 0.9^120 is 3e-6
    assert_mean(later, lqr.value(FOR_EVER, POLICY))
    assert abs(lqr.value(FOR_EVER, POLICY) - lqr.value(WITH_HORIZON, POLICY)) > 0.5


def test_the_optimum_with_a_horizon_is_that_of_a_simulation_and_its_gains_depend_on_the_time():
    best = lqr.optimum(WITH_HORIZON)
    assert_mean(simulated(best.gains, 0.0, 0.0, 6, 0.9), best.value)
    np.testing.assert_allclose(
        best.gains[-1], 0.0, atol=1e-12
    )  # nothing comes after the last action
    assert np.abs(best.gains[0] - best.gains[-2]).max() > 0.01
    # a change of any gain costs something
    moved = best.gains + 0.1 * np.random.default_rng(0).standard_normal(best.gains.shape)
    assert simulated(moved, 0.0, 0.0, 6, 0.9).mean() < best.value - 0.01


def test_the_optimum_without_a_horizon_is_stationary_and_that_of_scipy():
    best = lqr.optimum(FOR_EVER)
    A, B, root = SYSTEM.drift, SYSTEM.control, np.sqrt(0.9)
    cost = solve_discrete_are(root * A, root * B, SYSTEM.state_cost, SYSTEM.action_cost)
    quiet = policy_of(best.gains, [0.0, 0.0], [-30.0, -30.0])
    assert lqr.value(FOR_EVER, quiet) == pytest.approx(best.value, rel=1e-6)
    noise = 0.9 / 0.1 * np.trace(cost @ SYSTEM.noise)
    assert best.value == pytest.approx(-np.trace(cost @ SYSTEM.first) - noise, rel=1e-9)
    assert max(np.abs(leaf).max() for leaf in leaves_of(lqr.gradient(FOR_EVER, quiet))) < 1e-5
    far = ox.Problem(SYSTEM, discount=0.9, horizon=300)
    np.testing.assert_allclose(lqr.optimum(far).gains[0], best.gains, atol=1e-9)
    assert lqr.optimum(far).value == pytest.approx(best.value, rel=1e-9)


@pytest.mark.parametrize("problem", [WITH_HORIZON, FOR_EVER], ids=["horizon", "for ever"])
def test_gradients_are_the_slopes_of_the_value(problem):
    leaves, structure = jax.tree.flatten(eqx.filter(POLICY, eqx.is_inexact_array))
    sizes, shapes = [leaf.size for leaf in leaves], [leaf.shape for leaf in leaves]
    at = np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in leaves])

    def value(flat):
        parts = [
            part.reshape(shape)
            for part, shape in zip(np.split(flat, np.cumsum(sizes)[:-1]), shapes, strict=True)
        ]
        with jax.enable_x64(True):
            moved = jax.tree.unflatten(structure, [jnp.asarray(part) for part in parts])
            return lqr.value(problem, eqx.combine(moved, POLICY))

    found = jax.tree.leaves(eqx.filter(lqr.gradient(problem, POLICY), eqx.is_array))
    expected = optimize.approx_fprime(at, value, 1e-6)
    np.testing.assert_allclose(
        np.concatenate([leaf.ravel() for leaf in found]), expected, rtol=1e-3, atol=1e-4
    )


def test_an_unstable_system_is_worth_nothing_for_ever():
    wild = policy_of(np.full((2, 3), 5.0), [0.0, 0.0], [0.0, 0.0])
    assert lqr.value(FOR_EVER, wild) == -np.inf
    assert np.isfinite(lqr.value(WITH_HORIZON, wild))


def test_estimators_have_the_value_and_the_gradient_as_their_mean():
    parts, size = 100, 400
    drawn = ox.sample(SHORT, POLICY, parts * size, KEY)
    batches = jax.tree.map(lambda leaf: leaf.reshape(parts, size, *leaf.shape[1:]), drawn)
    other = policy_of(
        np.asarray(POLICY.psi.network.layers[0].weight) + 0.1, [0.1, 0.05], [-0.8, -1.3]
    )

    @jax.jit
    def estimates(target):
        def of_one(batch):
            gradient = ox.estimators.gradient(SHORT, batch, target, jnp.ones(1), "mean")
            return ox.estimators.occupancy(SHORT, batch, target), leaves_of(gradient)

        return jax.vmap(of_one)(batches)

    def far(estimates, target):
        """Return the largest distance of the mean estimates from the truth, in standard errors."""
        found = [np.asarray(leaf, float) for leaf in jax.tree.leaves(estimates)]
        exact = [lqr.value(SHORT, target), *leaves_of(lqr.gradient(SHORT, target))]
        errors = [leaf.std(0, ddof=1) / np.sqrt(parts) for leaf in found]
        assert errors[0] < 0.02 * abs(exact[0])
        return max(
            np.max(np.abs(leaf.mean(0) - true) / error)
            for leaf, true, error in zip(found, exact, errors, strict=True)
        )

    # of 11 numbers, 100 batches each, the largest of Student's t is above 4.5 for one seed in a
    # thousand
    assert far(estimates(POLICY), POLICY) < 4.5
    assert far(estimates(other), other) < 4.5
    elsewhere = policy_of(
        np.asarray(POLICY.psi.network.layers[0].weight) + 0.3, [0.1, 0.05], [-0.8, -1.3]
    )
    assert far(estimates(POLICY), elsewhere) > 10  # the truth of another policy would be noticed


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: ox.envs.LQR(np.eye(2), np.ones((3, 1)), np.eye(3), np.eye(1)),
            r"^drift must have shape \(3, 3\)",
        ),
        (
            lambda: ox.envs.LQR(np.eye(2), [1.0, 2.0], np.eye(2), np.eye(1)),
            r"^drift must be a matrix \[n, n\] and control",
        ),
        (
            lambda: ox.envs.LQR(np.eye(2), np.ones((2, 1)), -np.eye(2), np.eye(1)),
            "^state_cost must be positive semidef",
        ),
        (
            lambda: ox.envs.LQR(np.eye(2), np.ones((2, 1)), np.eye(2), [[0.0]]),
            "^action_cost must be positive definite",
        ),
        (
            lambda: lqr.value(WITH_HORIZON, ox.policies.gaussian((4,))(SYSTEM, KEY)),
            "^policy must be linear in the state",
        ),
        (
            lambda: lqr.optimum(ox.Problem(ox.make("CartPole-v1"))),
            r"^exact.lqr is for occupax.envs.LQR, got CartPole",
        ),
        (
            lambda: lqr.optimum(ox.Problem(SYSTEM, lambda u: u[0], features=ox.features.Reward())),
            "^exact.lqr is for the disc",
        ),
    ],
)
@pytest.mark.usefixtures("as_users_run")
def test_what_does_not_fit_is_answered_with_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_a_random_system_is_that_of_its_seed_and_comes_back_from_a_file():
    assert eqx.tree_equal(ox.envs.LQR.random(3, 2, seed=4), SYSTEM)
    assert not eqx.tree_equal(ox.envs.LQR.random(3, 2, seed=5), SYSTEM)
    assert np.abs(np.linalg.eigvals(SYSTEM.drift)).max() == pytest.approx(0.95)
    from occupax.io import codec

    assert eqx.tree_equal(codec.unpack(*codec.pack(SYSTEM)), SYSTEM)
