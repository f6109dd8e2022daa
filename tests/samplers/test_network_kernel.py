"""The kernel for networks against plain JAX on the same trajectories and finite differences."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import occupax as ox
from occupax import kernels
from occupax.batches.network import _log_probs, kernel_log_probs, transposed
from occupax.envs import ActionSpace, DiscreteActions
from occupax.envs.base import Environment
from occupax.samplers.kernel import NetworkKernelSource
from occupax.samplers.rollout import JaxSource
from sources import source_of

pytestmark = pytest.mark.skipif(bool(kernels.missing()), reason=kernels.missing())

KEY = jax.random.key(5)
NETWORKS = {
    "filled up": ox.policies.mlp((5, 11)),
    "none hidden": ox.policies.linear(scale=0.5),
    "wide": ox.policies.mlp((40,)),
}


def cart(horizon=40) -> ox.Problem:
    return ox.Problem(ox.make("CartPole-v1"), discount=0.95, horizon=horizon)


def changed(change, policy):
    """A policy with other parameters."""
    return jax.tree.map(lambda leaf: change(leaf) if eqx.is_array(leaf) else leaf, policy)


def two_policies(make, task):
    behaviour = make(task.env, jax.random.key(0))
    return behaviour, changed(
        lambda leaf: leaf + 0.05 * jnp.cos(jnp.arange(leaf.size)).reshape(leaf.shape), behaviour
    )


@eqx.filter_jit
def drawn(source, policy, key, n):
    """A block of trajectories, by one program and not by one for each operation."""
    return source.block(policy, key, 0, n, n)


@eqx.filter_jit
def answers(batch, target, baseline):
    r = jnp.linspace(-1.0, 2.0, batch.problem.size)
    return batch.occupancy(target), batch.gradient(target, r, baseline), batch.statistics(target)


def assert_close(mine, plain, **tolerances):
    for one, other in zip(jax.tree.leaves(mine), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(one, other, **tolerances)


@pytest.mark.parametrize("network", NETWORKS)
def test_estimates_equal_the_plain_ones_on_the_same_trajectories(x64, network):
    task = cart()
    behaviour, target = two_policies(NETWORKS[network], task)
    ours = drawn(source_of(task, behaviour), behaviour, KEY, 23)
    assert len(set(np.asarray(ours.trajectories.lengths))) > 5  # ragged
    theirs = ox.SampledBatch(task, ours.trajectories, behaviour)
    for asked, baseline in (
        (None, "none"),
        (target, "none"),
        (target, "mean"),
        (behaviour, "mean"),
    ):
        assert_close(
            answers(ours, asked, baseline), answers(theirs, asked, baseline), rtol=1e-9, atol=1e-11
        )
    with pytest.raises(AssertionError):  # and the two policies are not one
        np.testing.assert_allclose(
            answers(ours, target, "none")[0], answers(ours, None, "none")[0], rtol=1e-3
        )


@pytest.mark.parametrize(
    "make", [ox.policies.squashed((5, 11), by_observation=True), ox.policies.gaussian((9,))]
)
def test_policies_that_are_no_softmax_act_and_estimate_as_in_plain_jax(x64, make):
    task = ox.Problem(ox.make("ContinuousCartPole-v1"), discount=0.95, horizon=40)
    behaviour, target = two_policies(make, task)
    source = source_of(task, behaviour)
    assert isinstance(source, NetworkKernelSource)
    ours, theirs = (drawn(it, behaviour, KEY, 23) for it in (source, JaxSource(task)))
    assert len(set(np.asarray(ours.trajectories.lengths))) > 5  # ragged
    assert_close(ours.trajectories, theirs.trajectories, rtol=1e-9, atol=1e-11)
    for asked, baseline in ((None, "none"), (target, "mean")):
        assert_close(
            answers(ours, asked, baseline), answers(theirs, asked, baseline), rtol=1e-8, atol=1e-10
        )
    gradient = answers(ours, None, "mean")[1]
    assert all(
        float(jnp.abs(leaf).max()) > 1e-3
        for leaf in jax.tree.leaves(eqx.filter(gradient, eqx.is_array))
    )
    # the runs of a program, and trajectories that are not wanted, change no bit
    stacked = eqx.filter_vmap(lambda factor: changed(lambda leaf: leaf * factor, behaviour))(
        jnp.array([1.0, 1.1])
    )
    together = eqx.filter_jit(
        eqx.filter_vmap(lambda it: source.block(it, KEY, 0, 7, 23).gradient(None, jnp.ones(1)))
    )
    alone = eqx.filter_jit(lambda it: source.block(it, KEY, 0, 7, 23).gradient(None, jnp.ones(1)))
    assert_close(changed(lambda leaf: leaf[0], together(stacked)), alone(behaviour), rtol=1e-12)


def test_single_precision_is_that_of_plain_jax():
    task = cart()
    behaviour, target = two_policies(ox.policies.mlp(), task)
    ours = drawn(source_of(task, behaviour), behaviour, KEY, 50)
    theirs = ox.SampledBatch(task, ours.trajectories, behaviour)
    # sums of 1,000 terms of size one, 7 digits
    assert_close(
        answers(ours, target, "none"), answers(theirs, target, "none"), rtol=1e-4, atol=1e-4
    )


def test_the_gradient_is_that_of_finite_differences(x64):
    task = cart(horizon=6)
    policy, _ = two_policies(ox.policies.mlp((3, 5)), task)
    taken = drawn(source_of(task, policy), policy, KEY, 4).trajectories
    coefficients = jax.random.normal(jax.random.key(9), taken.actions.shape)
    arrays, rest = eqx.partition(policy, eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)

    @jax.jit
    def total(leaves):
        moved = eqx.combine(jax.tree.unflatten(structure, leaves), rest)
        return jnp.sum(coefficients * kernel_log_probs(moved, taken))

    gradient = jax.grad(total)(leaves)
    for k, leaf in enumerate(leaves):
        for place in np.ndindex(leaf.shape):

            def moved(by, k=k, place=place):
                copies = [np.array(it) for it in leaves]
                copies[k][place] += by
                return total(copies)

            difference = (moved(1e-5) - moved(-1e-5)) / 2e-5
            np.testing.assert_allclose(
                np.asarray(gradient[k])[place], difference, rtol=1e-6, atol=1e-8
            )


def test_actions_follow_the_policy_by_chi_square():
    task = ox.Problem(ox.make("Acrobot-v1"), discount=0.9, horizon=1)
    policy = ox.policies.linear(scale=0.3)(task.env, jax.random.key(1))
    for seed in range(3):
        taken = drawn(source_of(task, policy), policy, jax.random.key(seed), 20_000).trajectories
        probs = np.asarray(jax.vmap(policy.probs)(taken.observations[:, 0]), float)
        actions = np.asarray(taken.actions[:, 0])
        recorded = np.log(probs[np.arange(len(actions)), actions])
        np.testing.assert_allclose(taken.log_probs[:, 0], recorded, atol=1e-5)
        counts, expected = np.bincount(actions, minlength=3), probs.sum(0)
        assert stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-3


def test_episodes_are_as_long_as_those_of_plain_jax():
    """The mean lengths of 2,000 episodes differ by less than 4 standard errors."""
    task = cart(horizon=60)
    policy = ox.policies.mlp((8,))(task.env, jax.random.key(3))
    sources = source_of(task, policy), JaxSource(task)
    lengths = [np.asarray(drawn(it, policy, KEY, 2_000).trajectories.lengths) for it in sources]
    error = np.sqrt(sum(it.var() / len(it) for it in lengths))
    assert abs(lengths[0].mean() - lengths[1].mean()) < 4 * error


def test_runs_and_more_trajectories_change_no_bit():
    task = cart()
    policies = [ox.policies.mlp((6,))(task.env, jax.random.key(i)) for i in range(3)]
    keys = jax.random.split(KEY, 3)
    source = NetworkKernelSource(task)

    @eqx.filter_jit
    def estimates(policy, key, n=9):
        batch = source.draw(policy, n, key)
        return batch.trajectories, batch.gradient(None, jnp.ones(1))

    stacked = jax.tree.map(
        lambda *leaves: jnp.stack(leaves) if eqx.is_array(leaves[0]) else leaves[0], *policies
    )
    together = eqx.filter_jit(eqx.filter_vmap(estimates))(stacked, keys)
    for i, (policy, key) in enumerate(zip(policies, keys, strict=True)):
        its = changed(lambda leaf, i=i: leaf[i], together)
        assert eqx.tree_equal(estimates(policy, key), its)
    more, _ = estimates(policies[0], keys[0], 20)
    assert eqx.tree_equal(changed(lambda leaf: leaf[:9], more), estimates(policies[0], keys[0])[0])


def test_unwanted_batches_are_empty():
    task = cart()
    policy = ox.policies.mlp((6,))(task.env, KEY)
    for source in (NetworkKernelSource(task), JaxSource(task)):
        batch = eqx.filter_jit(source.draw)(policy, 5, KEY, jnp.asarray(False))
        assert int(batch.trajectories.lengths.sum()) == 0
        assert not batch.trajectories.terminated.any()
        np.testing.assert_array_equal(batch.occupancy(), 0.0)


def test_networks_that_are_not_finite_choose_some_action():
    task = cart()
    policy = changed(lambda leaf: leaf * jnp.nan, ox.policies.mlp((6,))(task.env, KEY))
    actions = drawn(source_of(task, policy), policy, KEY, 4).trajectories.actions
    assert set(np.asarray(actions).ravel()) <= {0, 1}


class Short(Environment):
    """Ends after three steps, and counts how many it is asked for."""

    action_space: ActionSpace = DiscreteActions(2)
    time_limit: int | None = None
    asked: list[int] = eqx.field(static=True, default_factory=list)

    def reset(self, key):
        return jnp.zeros((), jnp.int32)

    def step(self, state, action, key):
        jax.debug.callback(lambda _: self.asked.append(1), state)
        return state + 1, jnp.ones(())

    def observe(self, state):
        return jnp.stack([state, -state]).astype(float)

    def terminated(self, state):
        return state >= 3

    def truncated(self, state):
        return jnp.zeros((), bool)


@pytest.mark.parametrize("engine", ["kernel", "jax"])
def test_no_step_is_taken_after_the_last_episode_has_ended(engine):
    env = Short()
    task = ox.Problem(env, discount=0.9, horizon=500)
    policy = ox.policies.mlp((4,))(env, KEY)
    batch = drawn(source_of(task, policy, engine), policy, KEY, 7)
    jax.block_until_ready(batch.trajectories)
    jax.effects_barrier()
    np.testing.assert_array_equal(batch.trajectories.lengths, 3)
    assert len(env.asked) == 3 * 7


def test_the_kernel_is_for_networks_of_tanh_fed_with_vectors():
    task, lake = cart(), ox.Problem(ox.make("FrozenLake-v1"), discount=0.9, horizon=5)
    assert isinstance(source_of(task, ox.policies.mlp()(task.env, KEY)), NetworkKernelSource)
    assert isinstance(source_of(task, ox.policies.mlp()(task.env, KEY), "jax"), JaxSource)
    for env, make in (
        (task.env, ox.policies.mlp((4,), activation="relu")),
        (task.env, ox.policies.linear(features=lambda observation: observation**2)),
        (lake.env, ox.policies.mlp((4,))),
    ):
        other = task if env is task.env else lake
        assert isinstance(source_of(other, make(env, KEY)), JaxSource)
        with pytest.raises(ValueError, match="networks of tanh layers fed with vectors"):
            source_of(other, make(env, KEY), "kernel")


# Inputs that are mostly zeros, and room that is not written


INPUTS, HIDDEN = 43, 72  # neither is a multiple of what is looked at, or multiplied, at once
PARAMETERS = INPUTS * HIDDEN + HIDDEN + HIDDEN * 8 + 8


def mostly_zeros(rows):
    """Observations with a few numbers each, a zero that has a sign, and rows that are all zeros."""
    there = jax.random.uniform(jax.random.key(1), (1, rows, INPUTS)) < 0.08
    seen = jnp.where(there, jax.random.normal(jax.random.key(2), there.shape), 0.0)
    return seen.at[0, 0].set(0.0).at[0, 1, 3].set(-0.0).at[0, 2, INPUTS - 1].set(1.5)


def of_kernel(parameters, seen, actions):
    lengths = jnp.full(1, seen.shape[1], jnp.int32)
    found: Any = _log_probs(
        "gradient", (INPUTS, HIDDEN, 3), parameters, seen, actions, lengths, None
    )
    return found


def in_plain_jax(parameters, seen, actions):
    parts = jnp.split(parameters, np.cumsum([INPUTS * HIDDEN, HIDDEN, HIDDEN * 8]))
    hidden = jnp.tanh(seen @ parts[0].reshape(INPUTS, HIDDEN) + parts[1])
    logits = (hidden @ parts[2].reshape(HIDDEN, 8) + parts[3])[..., :3]
    return jnp.take_along_axis(jax.nn.log_softmax(logits), actions[..., None], -1)[..., 0]


@pytest.mark.parametrize("rows", [7, 200])
def test_inputs_that_are_zero_are_left_out_and_change_nothing(x64, rows):
    seen, actions = mostly_zeros(rows), jnp.arange(rows, dtype=jnp.int32)[None] % 3
    parameters = jax.random.normal(jax.random.key(3), (PARAMETERS,))
    weights = jnp.cos(jnp.arange(rows))

    def both(log_probs):
        def total(parameters):
            found = log_probs(parameters, seen, actions)
            return jnp.sum(found * weights), found

        return jax.jit(jax.grad(total, has_aux=True))(parameters)

    assert_close(both(of_kernel), both(in_plain_jax), rtol=1e-9, atol=1e-12)


def test_a_row_has_the_same_bits_whether_its_zeros_are_left_out_or_not():
    parameters = jax.random.normal(jax.random.key(3), (PARAMETERS,))
    seen, actions = mostly_zeros(30), jnp.zeros((1, 31), jnp.int32)
    dense = jnp.concatenate(
        [seen, jnp.ones((1, 1, INPUTS))], 1
    )  # one full row, and nothing is left out
    alone, among = (
        of_kernel(parameters, seen, actions[:, :30]),
        of_kernel(parameters, dense, actions),
    )
    np.testing.assert_array_equal(alone, among[:, :30])
    slopes = [
        jax.grad(lambda it, x=x, a=a, n=n: jnp.sum(of_kernel(it, x, a)[:, :n]))(parameters)
        for x, a, n in ((seen, actions[:, :30], 30), (dense, actions, 30))
    ]
    np.testing.assert_array_equal(*slopes)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_not_hidden_by_zeros(value):
    parameters = jax.random.normal(jax.random.key(3), (PARAMETERS,))
    seen, actions = mostly_zeros(6).at[0, 4, 7].set(value), jnp.zeros((1, 6), jnp.int32)
    found = of_kernel(parameters, seen, actions)
    expected = in_plain_jax(parameters, seen, actions)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    # of an error that is not finite the gradient of a bias tells, though each input of its row is
    # zero
    coefficients = jnp.zeros(6).at[0].set(value)  # the row of zeros
    gradient = jax.grad(lambda it: jnp.sum(of_kernel(it, mostly_zeros(6), actions) * coefficients))(
        parameters
    )
    assert not np.isfinite(gradient[INPUTS * HIDDEN :][:HIDDEN]).any()
    # but a weight that nothing is multiplied with is not looked at: training refuses such
    # parameters by themselves
    broken = parameters.reshape(-1).at[:HIDDEN].set(value)
    unseen = mostly_zeros(6).at[:, :, 0].set(0.0)
    assert np.isfinite(of_kernel(broken, unseen, actions)).all()


def test_weights_are_turned_as_transposing_turns_them():
    weights = jax.random.normal(KEY, (2, 37, 20))
    errors = jnp.cos(jnp.arange(weights.size)).reshape(2, 20, 37)
    turned, back = jax.jit(lambda it: jax.vjp(jax.vmap(transposed), it))(weights)
    np.testing.assert_array_equal(turned, weights.transpose(0, 2, 1))
    np.testing.assert_array_equal(back(errors)[0], errors.transpose(0, 2, 1))


def test_only_live_rows_are_put_into_room_and_the_rest_stays():
    rows = jnp.full((2, 3, 4, 5), 7, jnp.uint8)
    seen, live = (
        jnp.arange(30, dtype=jnp.uint8).reshape(2, 3, 5),
        jnp.arange(6).reshape(2, 3) % 2 == 0,
    )
    found = jax.jit(kernels.write_step)(rows, seen, live, jnp.asarray(2, jnp.int32))
    expected = np.array(rows)
    expected[:, :, 2] = np.where(np.asarray(live)[..., None], seen, 7)
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(jax.errors.JaxRuntimeError, match="the time must lie in"):
        jax.block_until_ready(kernels.write_step(rows, seen, live, jnp.asarray(4, jnp.int32)))


def test_what_is_seen_after_the_end_is_what_is_seen_there():
    task = cart()
    policy = ox.policies.mlp((5,))(task.env, jax.random.key(0))
    taken = drawn(source_of(task, policy), policy, KEY, 23).trajectories
    ends = np.broadcast_to(np.asarray(taken.final_observations)[:, None], taken.observations.shape)
    after = ~np.asarray(taken.live)
    np.testing.assert_array_equal(np.asarray(taken.observations)[after], ends[after])
    assert 100 < after.sum() < after.size
