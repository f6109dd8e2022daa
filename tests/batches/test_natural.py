"""The Fisher information of a batch, and natural steps, against matrices in plain NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import enumeration as enum
import occupax as ox
from occupax.batches import FisherVector
from occupax.batches.parted import compiled_answers
from occupax.steps import CONJUGATE_STEPS, DAMPING, Step
from sources import source_of

pytestmark = pytest.mark.usefixtures("x64")

TASK = enum.tiny(11, (2,)).problem(
    "absorbing", utility=ox.utilities.LogCoverage(0.1), features=ox.features.StateAction()
)
KEY = jax.random.key(4)
N = 12


@pytest.fixture
def policy(x64):
    return ox.policies.Tabular(jnp.asarray(np.random.default_rng(0).normal(size=(3, 2))))


def fisher_matrix(taken, table):
    """Return the mean over trajectories of sum_t gamma^t score_t score_t' for a softmax."""
    probs = enum.softmax(np.asarray(table))
    total = np.zeros((probs.size, probs.size))
    states, actions, live = (
        np.asarray(part) for part in (taken.observations, taken.actions, taken.live)
    )
    for states_t, actions_t, live_t in zip(states, actions, live, strict=True):
        for t in np.flatnonzero(live_t):
            score = np.zeros(probs.shape)
            score[states_t[t]] -= probs[states_t[t]]
            score[states_t[t], actions_t[t]] += 1
            total += enum.DISCOUNT**t * np.outer(score, score)
    return total / len(live)


def vectors(count=3):
    random = np.random.default_rng(1)
    return [ox.policies.Tabular(jnp.asarray(random.normal(size=(3, 2)))) for _ in range(count)]


def test_the_product_is_that_of_the_matrix(policy):
    taken = ox.sample(TASK, policy, N, KEY)
    matrix = fisher_matrix(taken, policy.table)
    for vector in vectors():
        product = ox.estimators.fisher_vector(TASK, taken, policy, vector)
        np.testing.assert_allclose(
            np.ravel(product.table), matrix @ np.ravel(vector.table), rtol=1e-9, atol=1e-12
        )


def test_on_average_it_is_the_information_of_all_trajectories(policy):
    """The products of all trajectories of the tiny process, weighted by their probabilities."""
    process = enum.tiny(11, (2,))
    taken, chances = enum.trajectories(process, np.asarray(policy.table))
    vector = vectors(1)[0]
    each = jax.vmap(
        lambda one: (
            ox.estimators.fisher_vector(
                TASK, jax.tree.map(lambda leaf: leaf[None], one), policy, vector
            ).table
        )
    )(taken)
    probs, along = enum.softmax(np.asarray(policy.table)), np.asarray(vector.table)
    centred = along - (probs * along).sum(1, keepdims=True)
    visits = enum.occupancy(process, np.asarray(policy.table), "episodic").sum(1, keepdims=True)
    np.testing.assert_allclose(
        np.tensordot(chances, each, 1), visits * probs * centred, rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("engine", ["kernel", "jax"])
def test_every_sampler_gives_the_same_product_for_its_own_trajectories(policy, engine):
    source = source_of(TASK, policy, engine)
    batch = jax.jit(lambda: source.draw(policy, N, KEY))()
    first, second = batch.halves()
    for vector in vectors(2):
        product = batch.fisher_vector(vector).table
        halves = 0.5 * (first.fisher_vector(vector).table + second.fisher_vector(vector).table)
        np.testing.assert_allclose(halves, product, rtol=1e-9, atol=1e-12)
        asked = compiled_answers(batch)(FisherVector(vector), ()).table
        np.testing.assert_allclose(asked, product, rtol=1e-9, atol=1e-12)
    columns = [np.ravel(batch.fisher_vector(_unit(i)).table) for i in range(6)]
    np.testing.assert_allclose(columns, np.transpose(columns), atol=1e-12)  # symmetric
    rows = np.sum(np.reshape(columns, (6, 3, 2)), 2)
    np.testing.assert_allclose(
        rows, 0.0, atol=1e-12
    )  # the same number for all logits of a state changes no policy
    visits = np.asarray(batch.occupancy()).reshape(3, 2)[
        :2
    ]  # state 2 is the end, which goes on for the occupancy only
    probs = enum.softmax(np.asarray(policy.table))[:2]
    known = visits[:, 0] * (1 - probs[:, 0]) ** 2 + visits[:, 1] * probs[:, 0] ** 2
    np.testing.assert_allclose(np.diag(columns)[[0, 2]], known, rtol=1e-9)


def _unit(i):
    return ox.policies.Tabular(jnp.zeros(6).at[i].set(1.0).reshape(3, 2))


def test_a_natural_step_solves_the_damped_equation_and_has_the_length_asked_for(policy):
    taken = ox.sample(TASK, policy, N, KEY)
    batch, matrix = ox.SampledBatch(TASK, taken, policy), fisher_matrix(taken, policy.table)
    gradient = batch.gradient(None, batch.quasi_reward(batch.occupancy()))
    step = Step(0.3, rule="natural")
    moved, _ = step(policy, gradient, step.init(policy), batch)
    found, g = np.ravel(moved.table - policy.table), np.ravel(gradient.table)
    damping = DAMPING * (g @ matrix @ g) / (g @ g)
    assert (
        len(g) <= CONJUGATE_STEPS
    )  # conjugate gradients are exact after as many steps as there are parameters
    solved = np.linalg.solve(matrix + damping * np.eye(len(g)), g)
    np.testing.assert_allclose(found @ matrix @ found, 0.3**2, rtol=1e-6)
    np.testing.assert_allclose(
        found / np.linalg.norm(found), solved / np.linalg.norm(solved), rtol=1e-5, atol=1e-7
    )


def test_natural_steps_do_not_depend_on_the_size_of_the_utility():
    policies = [
        ox.train(
            enum.tiny(11, (2,)).problem(
                "absorbing", utility=factor * ox.utilities.LogCoverage(0.1)
            ),
            ox.REINFORCE(batch=4, rule="natural", step_size=0.1),
            episodes=12,
            progress=False,
        ).policy()
        for factor in (1.0, 1e6)
    ]
    np.testing.assert_allclose(policies[0].table, policies[1].table, rtol=1e-6)
    assert np.abs(policies[0].table).max() > 0.05


def test_without_a_batch_there_is_no_natural_step(policy):
    step = Step(0.1, rule="natural")
    with pytest.raises(ValueError, match="batch must be the batch of the gradient estimate"):
        step(policy, policy, step.init(policy))
