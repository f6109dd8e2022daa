import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import occupax as ox
from pseudocode import (
    COVERAGE,
    KEY,
    Transcript,
    draw,
    exact,
    first_policy,
    grad_coverage,
    over_all_batches_of_one,
    problem,
)

pytestmark = pytest.mark.usefixtures("x64")

PLAIN = {"rule": "gradient", "baseline": "none"}
SIZES = {"snapshot_batch": 8, "batch": 4, "epoch_length": 3, "weight_guard": None, **PLAIN}
REWARD = ox.utilities.Reward()


def run(algorithm, task, iterations):
    """All states, the batches of iteration i drawn with key i."""
    state = algorithm.init(task, first_policy())
    states = []
    for i in range(iterations):
        phase = algorithm.phases[algorithm.phase(i)]
        state = phase.update(state, draw(task, state.policy, phase.trajectories, i), KEY)
        states.append(state)
    return states


def assert_same_path(one, other):
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a.policy.table, b.policy.table, rtol=1e-10, atol=1e-12)
    assert np.abs(one[-1].policy.table - first_policy().table).max() > 1e-3  # they did move


# Identities


def test_tsivr_pg_with_epochs_of_one_is_truncated_reinforce():
    ours = run(ox.TSIVRPG(**SIZES | {"epoch_length": 1}, step_size=0.3, radius=0.05), problem(), 3)
    theirs = run(
        ox.REINFORCE(batch=8, step_size=0.3, radius=0.05, mixing=1.0, **PLAIN), problem(), 3
    )
    assert_same_path(ours, theirs)


def test_tsivr_pg_with_a_linear_utility_and_no_radius_is_srvr_pg():
    ours = run(ox.TSIVRPG(**SIZES, step_size=0.3, radius=np.inf), problem(REWARD), 6)
    theirs = run(ox.SRVRPG(**SIZES, step_size=0.3), problem(REWARD), 6)
    assert_same_path(ours, theirs)
    curved = run(ox.TSIVRPG(**SIZES, step_size=0.3, radius=np.inf), problem(), 6)
    different = run(ox.SRVRPG(**SIZES, step_size=0.3), problem(), 6)
    with pytest.raises(AssertionError):  # for a utility that is not linear they are two algorithms
        assert_same_path(curved, different)


@pytest.mark.parametrize("utility", [REWARD, COVERAGE])
def test_svrpg_is_srvr_pg_for_epochs_of_two(utility):
    sizes = {**SIZES, "epoch_length": 2}
    assert_same_path(
        run(ox.SVRPG(**sizes, step_size=0.3), problem(utility), 4),
        run(ox.SRVRPG(**sizes, step_size=0.3), problem(utility), 4),
    )
    with pytest.raises(AssertionError):
        assert_same_path(
            run(ox.SVRPG(**SIZES, step_size=0.3), problem(utility), 3),
            run(ox.SRVRPG(**SIZES, step_size=0.3), problem(utility), 3),
        )


def test_hspga_that_only_recurses_is_srvr_pg_on_its_first_batch():
    hybrid, recursive = (
        ox.HSPGA(**SIZES, step_size=0.3, mixing=1.0),
        ox.SRVRPG(**SIZES, step_size=0.3),
    )
    state, other = hybrid.init(problem(), first_policy()), recursive.init(problem(), first_policy())
    for i in range(3):
        phase, theirs = hybrid.phases[i > 0], recursive.phases[i > 0]
        batch = draw(problem(), state.policy, phase.trajectories, i)
        state = phase.update(state, batch, KEY)
        other = theirs.update(other, batch.halves()[0] if i else batch, KEY)
        np.testing.assert_allclose(state.policy.table, other.policy.table, atol=1e-12)


def test_hspga_that_never_recurses_is_reinforce_on_its_second_batch():
    hybrid, fresh = (
        ox.HSPGA(**SIZES, step_size=0.3, mixing=0.0),
        ox.REINFORCE(batch=4, step_size=0.3, mixing=1.0, **PLAIN),
    )
    snapshot, refinement = (phase.update for phase in hybrid.phases)
    state = snapshot(
        hybrid.init(problem(), first_policy()), draw(problem(), first_policy(), 8, 0), KEY
    )
    batch = draw(problem(), state.policy, 8, 1)
    expected = fresh.phases[0].update(fresh.init(problem(), state.policy), batch.halves()[1], KEY)
    np.testing.assert_allclose(
        refinement(state, batch, KEY).policy.table, expected.policy.table, atol=1e-12
    )


@pytest.mark.parametrize("kind", [ox.TSIVRPG, ox.SRVRPG, ox.SVRPG])
def test_a_radius_of_zero_leaves_policy_and_estimates_unchanged(kind):
    states = run(kind(**SIZES, step_size=0.3, radius=0.0), problem(), 3)
    for state in states:
        np.testing.assert_array_equal(state.policy.table, first_policy().table)
        np.testing.assert_allclose(state.gradient.table, states[0].gradient.table, atol=1e-13)
    assert np.abs(states[0].gradient.table).max() > 1e-3


def test_hspga_mixes_by_its_formula_unless_told():
    assert ox.HSPGA(snapshot_batch=100, batch=10, epoch_length=9)._mixing() == pytest.approx(
        1 - np.sqrt(10 / 1000)
    )
    assert [phase.trajectories for phase in ox.HSPGA(**SIZES).phases] == [
        8,
        8,
    ]  # 2 B for each refinement
    assert [phase.trajectories for phase in ox.TSIVRPG(**SIZES).phases] == [8, 4]
    assert [ox.TSIVRPG(**SIZES).phase(i) for i in range(7)] == [0, 1, 1, 0, 1, 1, 0]


# A transcription of the pseudocode in NumPy, on recorded trajectories


def truncated(theta, g, eta, delta):
    return theta + min(eta, delta / np.linalg.norm(g)) * g


def transcribe(name, thetas, batches, eta, delta, mixing):
    """g_2, after a snapshot and two refinements along the policies `thetas`."""
    first = [
        Transcript(batch.halves()[0] if name == "HSPGA" and j else batch)
        for j, batch in enumerate(batches)
    ]
    u = first[0].u(thetas[0])
    u0 = u
    r = old = grad_coverage(u)
    g = g0 = first[0].g(thetas[0], r)
    if name in ("REINFORCE", "MaxEnt"):
        for j in (1, 2):
            u = (1 - mixing) * u + mixing * first[j].u(thetas[j])
        return first[2].g(thetas[2], grad_coverage(u))
    for j in (1, 2):
        now, then, data = thetas[j], thetas[j - 1], first[j]
        if name == "SVRPG":
            r = grad_coverage(u0 + data.u(now) - data.u(thetas[0]))
            g = g0 + data.g(now, r) - data.g(thetas[0], r)
        elif name == "TSIVRPG":
            g = g + data.g(now, r) - data.g(then, old)
            u = u + data.u(now) - data.u(then)
            r, old = grad_coverage(u), r
        else:
            u = u + data.u(now) - data.u(then)
            r = grad_coverage(u)
            g = g + data.g(now, r) - data.g(then, r)
            if name == "HSPGA":
                second = Transcript(batches[j].halves()[1])
                fresh = second.u(now)
                g = mixing * g + (1 - mixing) * second.g(now, grad_coverage(fresh))
                u = mixing * u + (1 - mixing) * fresh
    return g


@pytest.mark.parametrize("name", ["REINFORCE", "SVRPG", "SRVRPG", "HSPGA", "TSIVRPG", "MaxEnt"])
def test_every_algorithm_is_its_pseudocode(name):
    task = problem(termination="episodic")
    sizes = {"batch": 4, **PLAIN} if name in ("REINFORCE", "MaxEnt") else SIZES
    options = {"mixing": 0.3} if name in ("REINFORCE", "HSPGA", "MaxEnt") else {}
    algorithm = getattr(ox, name)(**sizes, **options, step_size=0.3, radius=0.2)
    state = algorithm.init(task, first_policy())
    thetas, batches = [], []
    for j in range(3):
        phase = algorithm.phases[algorithm.phase(j)]
        batches.append(draw(task, state.policy, phase.trajectories, j))
        thetas.append(np.asarray(state.policy.table))
        state = phase.update(state, batches[-1], KEY)
    g = transcribe(name, thetas, batches, 0.3, 0.2, 0.3)
    np.testing.assert_allclose(state.gradient.table, g, atol=1e-12)
    np.testing.assert_allclose(state.policy.table, truncated(thetas[2], g, 0.3, 0.2), atol=1e-12)


# Expectations by enumeration


@pytest.mark.parametrize("termination", ["episodic", "absorbing"])
def test_on_a_fixed_path_the_estimates_of_tsivr_pg_are_exact_in_expectation(termination):
    # from exact estimates at theta_0 and random quasi-rewards, a refinement at theta_1 must be
    # exact there
    before, now = first_policy(1), first_policy(2)
    r, old = np.random.default_rng(3).normal(size=(2, 3))
    u, slopes = exact(np.asarray(before.table), termination)
    algorithm = ox.TSIVRPG(**SIZES)
    state = eqx.tree_at(
        lambda it: (
            it.policy,
            it.previous,
            it.occupancy,
            it.gradient.table,
            it.quasi_reward,
            it.previous_quasi_reward,
        ),
        algorithm.init(problem(), now),
        (
            now,
            before,
            jnp.asarray(u),
            jnp.asarray(np.tensordot(old, slopes, 1)),
            jnp.asarray(r),
            jnp.asarray(old),
        ),
    )
    refinement = algorithm.phases[1].update
    mean = over_all_batches_of_one(
        lambda state, batch: refinement(state, batch, KEY), state, termination
    )
    u_now, slopes_now = exact(np.asarray(now.table), termination)
    np.testing.assert_allclose(mean.occupancy, u_now, atol=1e-9)
    np.testing.assert_allclose(mean.gradient.table, np.tensordot(r, slopes_now, 1), atol=1e-9)


def test_the_quasi_reward_of_the_same_batch_biases_the_estimate():
    before, now = first_policy(1), first_policy(2)
    u, _ = exact(np.asarray(before.table), "episodic")

    def with_r_of_this_batch(policies, batch):
        r = batch.quasi_reward(jnp.asarray(u) + batch.occupancy(now) - batch.occupancy(before))
        return r, batch.gradient(now, r).table

    class Path(eqx.Module):
        policy: ox.policies.Policy

    mean_r, mean_g = over_all_batches_of_one(with_r_of_this_batch, Path(now), "episodic")
    unbiased = np.tensordot(mean_r, exact(np.asarray(now.table), "episodic")[1], 1)
    assert np.abs(mean_g - unbiased).max() > 1e-2
