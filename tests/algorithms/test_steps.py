import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import occupax as ox
from occupax.steps import Step, global_norm
from occupax.training.setup import make_setup

START = ox.policies.Tabular(jnp.array([[1.0, 2.0], [0.0, -1.0]]))
SLOPE = ox.policies.Tabular(jnp.array([[3.0, 0.0], [0.0, 4.0]]))  # of length 5


def moved(step, slope=SLOPE):
    after, _ = step(START, slope, step.init(START))
    return np.asarray(after.table - START.table)


@pytest.mark.parametrize(
    ("step", "factor"),
    [
        (Step(0.1), 0.1),
        (Step(0.1, radius=1.0), 0.1),  # 0.5 long: within the radius
        (Step(0.1, radius=0.25), 0.05),  # truncated to 0.25
        (Step(1e6, radius=2.0), 0.4),
        (Step(0.1, radius=0.0), 0.0),
        (Step(0.5, rule="normalised"), 0.1),
        (Step(0.5, radius=0.2, rule="normalised"), 0.04),
        (Step(0.1, rule=optax.identity()), -0.1),  # hands on the negative gradient it was given
        (Step(1.0, radius=0.5, rule=optax.sgd(0.3)), 0.1),
    ],
)
def test_the_displacement_is_a_known_multiple_of_the_gradient(step, factor):
    np.testing.assert_allclose(moved(step), factor * np.asarray(SLOPE.table), rtol=1e-6)


def test_a_step_too_long_for_the_squares_of_its_length_is_truncated_like_any_other():
    step = Step(1e20, radius=0.5)
    _, memory = step(START, SLOPE, step.init(START))
    np.testing.assert_allclose(moved(step), 0.1 * np.asarray(SLOPE.table), rtol=1e-6)
    assert float(memory.length) == pytest.approx(0.5, rel=1e-6)
    assert bool(memory.clipped)


def test_a_gradient_of_zero_is_a_null_step():
    nothing = ox.policies.Tabular(jnp.zeros((2, 2)))
    for rule in ("gradient", "normalised", optax.adam(0.1)):
        np.testing.assert_array_equal(moved(Step(1.0, radius=0.1, rule=rule), nothing), 0.0)


def test_the_radius_bounds_what_an_optimiser_really_moves():
    step = Step(1.0, radius=0.05, rule=optax.adam(0.3))
    policy, memory = START, step.init(START)
    for _ in range(5):
        following, memory = step(policy, SLOPE, memory)
        length = float(global_norm(jax.tree.map(jnp.subtract, following, policy)))
        assert length == pytest.approx(0.05, rel=1e-4)
        policy = following
    assert float(jnp.vdot(policy.table - START.table, SLOPE.table)) > 0  # uphill


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Step(-1.0), "step_size"),
        (lambda: Step(0.1, radius=-1.0), "radius"),
        (lambda: Step(0.1, rule="normalized"), "Did you mean 'normalised'"),
        (lambda: ox.TSIVRPG(step_size=float("nan")), "step_size"),
        (lambda: ox.TSIVRPG(snapshot_batch=0), "snapshot_batch"),
        (lambda: ox.SVRPG(epoch_length=1.5), "epoch_length"),
        (lambda: ox.HSPGA(mixing=1.5), "mixing"),
        (lambda: ox.HSPGA(snapshot_batch=0), "snapshot_batch"),
        (lambda: ox.MaxEnt(mixing=0.0), "mixing"),
        (lambda: ox.REINFORCE(batch=-3), "batch"),
    ],
)
@pytest.mark.usefixtures("as_users_run")
def test_wrong_settings_are_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()


def test_adam_by_name_is_adam_and_does_not_depend_on_the_size_of_the_gradient():
    slopes = [
        np.array([[3.0, 0.0], [0.5, -4.0]]),
        np.array([[0.0, 0.0], [-0.5, 2.0]]),  # the first one rests, and so do its moments
        np.array([[2.0, 0.0], [0.1, 1.0]]),
    ]
    for factor in (1.0, 1e-9, 1e9):
        step = Step(0.1, rule="adam")
        policy, memory, first, second = START, step.init(START), 0.0, 0.0
        expected = np.asarray(START.table, float)
        for t, slope in enumerate(slopes, 1):
            policy, memory = step(
                policy, ox.policies.Tabular(jnp.asarray(factor * slope, jnp.float32)), memory
            )
            seen = slope != 0
            first = np.where(seen, 0.9 * first + 0.1 * slope, first)
            second = np.where(seen, 0.99 * second + 0.01 * slope**2, second)
            spread = np.sqrt(second / (1 - 0.99**t))
            expected = expected + seen * 0.1 * first / (1 - 0.9**t) / np.where(
                spread > 0, spread, 1.0
            )
        np.testing.assert_allclose(policy.table, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("rule", "size"), [("adam", 0.04), ("gradient", 0.05), (optax.sgd(0.05), 1.0)]
)
def test_the_default_step_size_is_that_of_the_rule(rule, size):
    np.testing.assert_allclose(moved(Step(rule=rule)), moved(Step(size, rule=rule)), rtol=1e-6)
    result = ox.train(
        ox.Problem(ox.make("FrozenLake-v1"), horizon=5),
        ox.REINFORCE(4, rule=rule),
        4,
        progress=False,
    )
    assert result.algorithm is not None
    assert result.algorithm.step_size == size


def test_steps_shrink_with_the_root_of_their_number():
    step, slope = (
        Step(0.1, decay_after=3.0),
        ox.policies.Tabular(jnp.asarray([[1.0, 0.0], [0.0, 0.0]])),
    )
    policy, memory = START, step.init(START)
    lengths = []
    for _ in range(10):
        policy, memory = step(policy, slope, memory)
        lengths.append(float(memory.length))
    np.testing.assert_allclose(
        [lengths[0], lengths[3], lengths[9]], [0.1, 0.1 / np.sqrt(2), 0.05], rtol=1e-6
    )
    with pytest.raises(ValueError, match="decay_after"):
        Step(0.1, decay_after=0.0)


def test_the_default_of_a_network_shrinks_its_steps_and_takes_fresh_occupancies():
    problem = ox.Problem("FrozenLake-v1", "entropy", horizon=5)

    def settings(policy, **given):
        [made] = make_setup(
            problem, [ox.REINFORCE(**given)], policy, 1, 0, 1, False
        ).algorithms  # as `ox.train` does
        assert isinstance(made, ox.REINFORCE)
        return made.batch, made.step_size, made.decay_after, made.mixing

    assert settings("tabular") == (20, 0.04, np.inf, 0.5)
    assert settings("mlp") == (5, 0.01, 100.0, 1.0)
    assert settings("mlp", step_size=0.02, mixing=0.1) == (5, 0.02, None, 0.1)
    problem = ox.Problem(
        "FrozenLake-v1", horizon=5, constraints=[ox.Constraint("entropy", at_least=0.1)]
    )
    assert settings("mlp") == (10, 0.01, 100.0, 1.0)  # multipliers follow every batch
    problem = ox.Problem("Pendulum-v1")
    assert settings(None) == (10, 0.01, 100.0, 1.0)
