import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse

import enumeration as enum
import occupax as ox
from compiled_batches import as_trajectories
from occupax import kernels
from occupax.samplers.kernel import TabularKernelSource
from occupax.samplers.rollout import JaxSource
from sources import source_of

pytestmark = [
    pytest.mark.usefixtures("x64"),
    pytest.mark.skipif(
        bool(kernels.missing()), reason="there was no C++ compiler when occupax was installed"
    ),
]

UTILITIES = {
    "state-action": ox.utilities.Linear(np.linspace(-1, 1, 6).reshape(3, 2)),
    "state": ox.utilities.LogCoverage(0.1),
    "reward": ox.utilities.Reward(),
    "both": ox.utilities.Reward() + 0.5 * ox.utilities.Entropy(),
}


def tiny(termination="absorbing", utility="state", seed=11):
    return enum.tiny(seed, (2,)).problem(termination, utility=UTILITIES[utility])


def policy(seed=0, scale=1.0):
    return ox.policies.Tabular(jnp.asarray(scale * np.random.default_rng(seed).normal(size=(3, 2))))


def assert_same_answers(ours, theirs, task, target, baseline="none"):
    r = jnp.asarray(np.random.default_rng(3).normal(size=task.size))
    np.testing.assert_allclose(
        ours.occupancy(target), theirs.occupancy(target), rtol=1e-12, atol=1e-14
    )
    np.testing.assert_allclose(
        ours.gradient(target, r, baseline).table,
        theirs.gradient(target, r, baseline).table,
        rtol=1e-11,
        atol=1e-13,
    )
    for one, other in zip(
        jax.tree.leaves(ours.statistics(target)),
        jax.tree.leaves(theirs.statistics(target)),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("termination", ["episodic", "absorbing"])
@pytest.mark.parametrize("utility", list(UTILITIES))
@pytest.mark.parametrize("baseline", ["none", "mean"])
def test_estimates_equal_the_plain_ones_on_the_same_trajectories(termination, utility, baseline):
    task, behaviour, target = tiny(termination, utility), policy(), policy(1)
    ours = TabularKernelSource(task).block(behaviour, jax.random.key(0), 0, 300, 300)
    theirs = ox.SampledBatch(task, as_trajectories(ours), behaviour)
    assert_same_answers(ours, theirs, task, target, baseline)
    assert_same_answers(ours, theirs, task, None, baseline)
    with pytest.raises(AssertionError):  # the weight upside down
        np.testing.assert_allclose(
            ours.occupancy(target),
            ox.SampledBatch(
                task,
                as_trajectories(
                    TabularKernelSource(task).block(target, jax.random.key(0), 0, 300, 300)
                ),
                target,
            ).occupancy(behaviour),
        )


def test_halves_are_the_halves_of_the_same_trajectories():
    task, behaviour, target = tiny(), policy(), policy(1)
    whole = TabularKernelSource(task).block(behaviour, jax.random.key(0), 0, 300, 300)
    plain = ox.SampledBatch(task, as_trajectories(whole), behaviour)
    for ours, theirs in zip(whole.halves(), plain.halves(), strict=True):
        assert_same_answers(ours, theirs, task, target, "mean")


def test_a_trajectory_depends_on_its_number_alone():
    source, behaviour, key = TabularKernelSource(tiny()), policy(), jax.random.key(4)
    whole = as_trajectories(source.block(behaviour, key, 0, 300, 300))
    later = as_trajectories(source.block(behaviour, key, 100, 300, 50))
    for all_of_them, some in zip(jax.tree.leaves(whole), jax.tree.leaves(later), strict=True):
        np.testing.assert_array_equal(all_of_them[100:150], some)
    cut = source.block(behaviour, key, 280, 290, 50)
    assert (np.asarray(cut.lengths[10:]) == 0).all()
    assert (np.asarray(cut.finals[10:]) == -1).all()
    np.testing.assert_array_equal(cut.lengths[:10], whole.lengths[280:290])


def test_streaming_in_blocks_gives_the_whole(monkeypatch):
    task, behaviour, target, key = tiny(), policy(), policy(1), jax.random.key(2)
    source = TabularKernelSource(task)
    whole = source.block(behaviour, key, 0, 1000, 1000)
    monkeypatch.setattr(TabularKernelSource, "block_steps", 150 * task.sampling_horizon())
    assert_same_answers(source.draw(behaviour, 1000, key), whole, task, target)


def test_runs_are_independent_under_vmap_scan_and_jit():
    task, target = tiny(), policy(9)
    source = TabularKernelSource(task)
    tables = jnp.stack([policy(i).table for i in range(4)])
    keys = jax.random.split(jax.random.key(0), 4)

    def ask(table, key):
        batch = source.draw(ox.policies.Tabular(table), 20, key)
        return (
            batch.occupancy(target),
            batch.gradient(target, jnp.ones(task.size)).table,
            batch.statistics(target),
        )

    together = jax.jit(jax.vmap(ask))(tables, keys)
    nested = jax.vmap(jax.vmap(ask, (None, 0)), (0, None))(tables, keys)
    _, scanned = jax.lax.scan(lambda _, it: (None, ask(*it)), None, (tables, keys))
    for i in range(4):
        alone = ask(tables[i], keys[i])
        for result in (together, scanned, jax.tree.map(lambda leaf, i=i: leaf[:, i], nested)):
            for one, many in zip(jax.tree.leaves(alone), jax.tree.leaves(result), strict=True):
                np.testing.assert_allclose(one, many[i], rtol=1e-12, atol=1e-15)


def test_the_expectation_of_the_estimates_is_exact():
    task, behaviour = tiny("absorbing"), policy()
    batch = TabularKernelSource(task).draw(behaviour, 400_000, jax.random.key(1))
    target = policy(1, 0.3)
    exact = ox.exact.feature_occupancy(task, jax.vmap(target.probs)(jnp.arange(3)))
    # the discounted mass is below 4 and the weights of this pair mostly below 10: five deviations
    # are below 0.05
    np.testing.assert_allclose(batch.occupancy(target), exact, atol=0.05)
    slope = batch.gradient(target, task.utility.gradient(jnp.asarray(exact))).table
    np.testing.assert_allclose(slope, ox.exact.gradient(task, target).table, atol=0.3)


def test_transitions_follow_the_table_by_chi_square():
    task, behaviour = tiny("episodic"), policy()
    env = task.env
    for seed in range(3):
        batch = TabularKernelSource(task).block(behaviour, jax.random.key(seed), 0, 50_000, 50_000)
        taken = as_trajectories(batch)
        live = np.asarray(taken.live)
        s, a = np.asarray(taken.observations)[live], np.asarray(taken.actions)[live]
        following = np.concatenate(
            [np.asarray(taken.observations)[:, 1:], np.asarray(taken.final_observations)[:, None]],
            1,
        )
        ends = np.arange(task.sampling_horizon()) == np.asarray(taken.lengths)[:, None] - 1
        following = np.where(ends, np.asarray(taken.final_observations)[:, None], following)[live]
        observed = np.zeros((3, 2, 3))
        np.add.at(observed, (s, a, following), 1)
        expected = observed.sum(2, keepdims=True) * env.transition.toarray().reshape(3, 2, 3)
        possible = expected > 0
        assert (observed[~possible] == 0).all()
        statistic = ((observed - expected)[possible] ** 2 / expected[possible]).sum()
        freedom = possible.sum() - (possible.sum(2) > 0).sum()
        assert statistic < freedom + 5 * np.sqrt(
            2 * freedom
        )  # five deviations of the chi-square law
        actions = np.zeros((3, 2))
        np.add.at(actions, (s, a), 1)
        probs = np.asarray(jax.vmap(behaviour.probs)(jnp.arange(3)))
        visited = actions.sum(1) > 0
        wanted = actions.sum(1, keepdims=True) * probs
        assert ((actions - wanted)[visited] ** 2 / wanted[visited]).sum() < 3 + 5 * np.sqrt(6)


def test_philox_gives_the_published_numbers(tmp_path):
    """Random123's test vector for key 0 and counter 0, read from the initial states of a table."""
    first_word = 0x6627E8D5  # philox4x32-10, counter 0 0 0 0, key 0 0
    K = 1 << 16
    env = ox.TabularMDP(
        transition=sparse.eye_array(K, format="csr"),
        reward=np.zeros((K, 1)),
        initial=np.full(K, 1 / K),
    )
    task = ox.Problem(env, discount=0.9, horizon=1)
    key = jax.random.wrap_key_data(jnp.zeros(2, jnp.uint32))
    batch = TabularKernelSource(task).block(ox.policies.Tabular(jnp.zeros((K, 1))), key, 0, 1, 1)
    assert int(batch.events[0]) == first_word >> 16


def test_the_engine_is_chosen_by_what_there_is(monkeypatch):
    task = tiny()
    assert isinstance(source_of(task, policy()), TabularKernelSource)
    assert isinstance(source_of(task, policy(), "jax"), JaxSource)
    linear = ox.policies.linear()(task.env, jax.random.key(0))
    assert isinstance(source_of(task, linear), JaxSource)
    with pytest.raises(ValueError, match="Did you mean 'jax'"):
        source_of(task, policy(), "jacks")
    monkeypatch.setattr(kernels, "missing", lambda: "it was not compiled")
    with pytest.warns(UserWarning, match="plain JAX is slower: it was not compiled"):
        assert isinstance(source_of(task, policy()), JaxSource)
