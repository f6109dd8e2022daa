"""Hessian-vector products and counts of transitions, against enumeration and plain NumPy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import enumeration as enum
import occupax as ox
from occupax.baselines import Baseline, ReturnSums
from occupax.batches import ReturnsToGo
from occupax.batches.network import NetworkScorer
from occupax.samplers.messages import received, sent
from sources import source_of

pytestmark = pytest.mark.usefixtures("x64")

PROCESS = enum.tiny(11, (2,))
KEY = jax.random.key(4)


def problem(termination):
    return PROCESS.problem(
        termination, utility=ox.utilities.LogCoverage(0.1), features=ox.features.StateAction()
    )


def table(seed, scale=1.0):
    return ox.policies.Tabular(jnp.asarray(scale * np.random.default_rng(seed).normal(size=(3, 2))))


def second_derivative(logits, vector, r, termination):
    """Return directional derivatives of occupancy and of grad <occupancy, r>, by differences."""
    step = 1e-5

    def at(by):
        moved = logits + by * vector
        slopes = enum.jacobian(PROCESS, moved, termination).reshape(6, 3, 2)
        return enum.occupancy(PROCESS, moved, termination).ravel(), np.tensordot(r, slopes, 1)

    (u, g), (v, h) = at(step), at(-step)
    return (u - v) / (2 * step), (g - h) / (2 * step)


def mean_product(termination, policy, vector, r, others):
    """Return the expectation over all trajectories.

    Args:
        termination: termination of the process.
        policy: policy of the batch.
        vector: direction of the product.
        r: quasi-reward.
        others: returns-to-go of the other trajectories of the batch.
    """
    every, chances = enum.trajectories(PROCESS, np.asarray(policy.table))

    def alone(one):
        batch = ox.SampledBatch(
            problem(termination), jax.tree.map(lambda leaf: leaf[None], one), policy
        )
        if others is None:
            return batch.hessian_vector(vector, r)
        own = batch.answer(ReturnsToGo(r, Baseline("mean")))
        whole = ReturnSums(own.to_go + others, own.live + 1)
        return batch.hessian_vector(vector, r, Baseline("mean", whole=whole))

    return [np.tensordot(chances, leaf, 1) for leaf in jax.tree.leaves(jax.vmap(alone)(every))]


@pytest.mark.parametrize(
    ("termination", "baseline"), [("episodic", True), ("absorbing", False), ("absorbing", True)]
)
def test_the_expectation_of_the_products_is_the_second_derivative(termination, baseline):
    policy, vector, random = table(0), table(1), np.random.default_rng(2)
    r, others = (
        random.normal(size=6),
        jnp.asarray(random.normal(size=enum.HORIZON)) if baseline else None,
    )
    found = mean_product(termination, policy, vector, jnp.asarray(r), others)
    u, g = second_derivative(np.asarray(policy.table), np.asarray(vector.table), r, termination)
    np.testing.assert_allclose(found[0], u, atol=1e-8)
    np.testing.assert_allclose(found[1], g, atol=1e-8)
    assert np.abs(g).max() > 0.05


@eqx.filter_jit
def answers(batch, vector, r):
    """Return Hessian-vector product, transitions, occupancy and gradient of a batch."""
    product = batch.hessian_vector(vector, r, "mean")
    return product, batch.transitions(), batch.occupancy(vector), batch.gradient(vector, r, "mean")


def counted(taken):
    """The transitions of raw trajectories, in plain Python."""
    counts, rewards, initial, ends = np.zeros((3, 2, 3)), np.zeros((3, 2)), np.zeros(3), np.zeros(3)
    for i in range(len(taken.actions)):
        steps = int(taken.live[i].sum())
        path = [*taken.observations[i, :steps], taken.final_observations[i]]
        initial[path[0]] += 1
        ends[path[-1]] += taken.terminated[i]
        for t in range(steps):
            counts[path[t], taken.actions[i, t], path[t + 1]] += 1
            rewards[path[t], taken.actions[i, t]] += taken.rewards[i, t]
    return {"initial": initial, "counts": counts, "rewards": rewards, "ends": ends}


def unpacked(task, source, batch):
    """Return the kernel's trajectories as arrays [n, horizon], unpacked from 128 parts."""
    lengths, finals, events = (np.asarray(it) for it in (batch.lengths, batch.finals, batch.events))
    shape = len(lengths), enum.HORIZON
    states, actions = np.repeat(finals[:, None], enum.HORIZON, 1), np.zeros(shape, int)
    log_probs, rewards, place = np.zeros(shape), np.zeros(shape), 0
    known = np.log(np.asarray(batch.probs))
    for i, length in enumerate(lengths):
        place = i * enum.HORIZON if i % 128 == 0 else place
        own, steps = events[place : place + length], slice(0, length)
        states[i, steps], actions[i, steps] = np.divmod(own >> source.table.shift, 2)
        log_probs[i, steps], rewards[i, steps] = (
            known[states[i, steps], actions[i, steps]],
            source.table.rewards[own],
        )
        place += length
    live, terminated = np.arange(enum.HORIZON) < lengths[:, None], PROCESS.terminal[finals]
    columns = jax.tree.map(
        jnp.asarray, (states, actions, log_probs, rewards, live, terminated, finals)
    )
    return ox.SampledBatch(task, ox.Trajectories(*columns), batch.policy)


def test_every_batch_has_the_same_products_and_counts(monkeypatch):
    task, policy, vector = problem("absorbing"), table(0), table(1)
    r, source = jnp.asarray(np.random.default_rng(2).normal(size=6)), source_of(task, policy)
    batch = source.draw(policy, 300, KEY)  # the kernel packs 128 trajectories together
    plain = unpacked(task, source, batch)
    monkeypatch.setattr(type(source), "block_steps", 70 * enum.HORIZON)
    streamed = source.draw(policy, 300, KEY)
    assert type(streamed) is not type(batch)
    expected = answers(plain, vector, r)
    for other in (batch, streamed):
        for a, b in zip(
            jax.tree.leaves(answers(other, vector, r)), jax.tree.leaves(expected), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    by_hand = counted(jax.tree.map(np.asarray, plain.trajectories))
    for name, values in by_hand.items():
        np.testing.assert_allclose(
            getattr(expected[1], name), values, rtol=1e-12, atol=1e-12, err_msg=name
        )
    assert by_hand["initial"][2] > 0  # some begin where they end
    halves = [
        eqx.filter_jit(lambda half: half.transitions().counts)(half) for half in batch.halves()
    ]
    np.testing.assert_allclose(halves[0] + halves[1], by_hand["counts"])
    for answer in expected[:2]:  # as a worker sends them
        assert eqx.tree_equal(received(sent(answer), policy), jax.tree.map(jnp.asarray, answer))


def test_a_network_has_the_products_of_plain_jax():
    env = ox.make("CartPole-v1")
    task = ox.Problem(env, horizon=3)
    policy, vector, other = (
        ox.policies.mlp((9, 2), scale=1.0)(env, jax.random.key(i)) for i in range(3)
    )
    batch = eqx.filter_jit(lambda policy: source_of(task, policy).draw(policy, 4, KEY))(policy)
    assert isinstance(batch.scorer, NetworkScorer)

    def along(by):
        return jax.tree.map(
            lambda a, b: a + by * b if eqx.is_inexact_array(a) else a, policy, vector
        )

    found = eqx.filter_jit(lambda batch: batch.hessian_vector(vector, jnp.ones(1)))(batch)
    estimates = eqx.filter_jit(
        lambda target: (batch.occupancy(target), batch.gradient(target, jnp.ones(1)))
    )
    up, down = (jax.tree.leaves(estimates(along(by))) for by in (1e-4, -1e-4))
    for product, higher, lower in zip(jax.tree.leaves(found), up, down, strict=True):
        np.testing.assert_allclose(product, (higher - lower) / 2e-4, rtol=1e-4, atol=1e-5)

    both = jax.tree.map(
        lambda *leaves: jnp.stack(leaves), *(eqx.filter(it, eqx.is_array) for it in (vector, other))
    )
    product = eqx.filter_jit(
        lambda batch: jax.vmap(lambda it: batch.hessian_vector(it, jnp.ones(1), "mean"))(both)
    )
    plain = ox.SampledBatch(task, batch.trajectories, policy)
    for a, b in zip(jax.tree.leaves(product(batch)), jax.tree.leaves(product(plain)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
