"""Softmax policies: probabilities, initialisation, sampling and extreme logits."""

from collections.abc import Callable
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

import enumeration as enum
import occupax as ox
from occupax.policies import (
    ACTIVATIONS,
    Categorical,
    Policy,
    Softmax,
    Tabular,
    linear,
    mlp,
    tabular,
)

Floats = npt.NDArray[np.floating[Any]]

STATES, ACTIONS = 3, 2
CHAIN = ox.TabularMDP.chain(STATES)
CARTPOLE = ox.make("CartPole-v1")
PROBLEM = ox.Problem(CHAIN, ox.utilities.Linear(np.arange(6.0)), discount=0.9, horizon=5)
QUASI_REWARD = jnp.arange(6.0)
# As the observations of CartPole, but large enough to tell the entries apart.
OBSERVATION = jnp.array([0.5, -1.0, 2.0, 0.25])


@pytest.fixture(scope="module")
def explored() -> ox.Trajectories:
    """Trajectories of the uniform policy, so that both actions are seen."""
    trajectories = ox.sample(PROBLEM, Tabular(jnp.zeros((STATES, ACTIONS))), 8, jax.random.key(0))
    assert {0, 1} == set(np.asarray(trajectories.actions).flat)
    return trajectories


def parameters(policy: Policy) -> list[Floats]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(policy, eqx.is_array))]


def is_finite(tree: Any) -> bool:
    return all(
        bool(np.isfinite(leaf).all()) for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_array))
    )


# Initialisers.

SHAPES = {
    "tabular": (tabular(), CHAIN, [(3, 2)]),
    "linear on a table": (linear(), CHAIN, [(2, 3), (2,)]),
    "linear on CartPole": (linear(), CARTPOLE, [(2, 4), (2,)]),
    "linear in features": (linear(features=lambda o: o[:3] ** 2), CARTPOLE, [(2, 3), (2,)]),
    "mlp on a table": (mlp(hidden=(5,)), CHAIN, [(5, 3), (5,), (2, 5), (2,)]),
    "mlp on CartPole": (mlp(hidden=(5, 5)), CARTPOLE, [(5, 4), (5,), (5, 5), (5,), (2, 5), (2,)]),
    "mlp without hidden layers": (mlp(hidden=()), CARTPOLE, [(2, 4), (2,)]),
}


def observation_of(env: Any) -> jax.Array:
    return jnp.asarray(2) if env is CHAIN else OBSERVATION


@cache
def ready(name: str) -> Policy:
    init, env, _ = SHAPES[name]
    return init(env, jax.random.key(3))


def shapes_of(init: Any, env: Any) -> Any:
    """The policy with shapes for arrays, which spares compiling the random numbers."""
    return eqx.filter_eval_shape(init, env, jax.random.key(0))


@pytest.mark.parametrize("name", SHAPES)
def test_initialisers_make_the_right_shapes_and_one_logit_for_each_action(name: str) -> None:
    init, env, shapes = SHAPES[name]
    policy = shapes_of(init, env)
    assert [leaf.shape for leaf in jax.tree.leaves(policy) if hasattr(leaf, "dtype")] == shapes
    logits = eqx.filter_eval_shape(
        lambda it, observation: it.logits(observation), policy, observation_of(env)
    )
    assert logits.shape == (2,)


def test_the_default_network_has_two_layers_of_64_and_tanh() -> None:
    policy = shapes_of(mlp(), CARTPOLE)
    widths = [(64, 4), (64,), (64, 64), (64,), (2, 64), (2,)]
    assert [leaf.shape for leaf in jax.tree.leaves(policy) if hasattr(leaf, "dtype")] == widths
    program, *_ = eqx.filter_make_jaxpr(lambda it, observation: it.logits(observation))(
        policy, OBSERVATION
    )
    assert [equation.primitive.name for equation in program.eqns].count("tanh") == 2


@pytest.mark.parametrize(
    "name", ["tabular", "linear on a table", "linear on CartPole", "linear in features"]
)
def test_policies_start_uniform_unless_a_scale_is_given(name: str) -> None:
    np.testing.assert_array_equal(ready(name).probs(observation_of(SHAPES[name][1])), [0.5, 0.5])


def test_networks_scale_bounded_observations_and_see_wide_ones_unscaled_too() -> None:
    env = ox.make("Acrobot-v1")  # cosines and sines between -1 and 1, speeds up to 4 pi and 9 pi
    plain, scaled = (
        ox.policies.mlp(normalise=it)(env, jax.random.key(0)).psi.network.layers[0]
        for it in (False, None)
    )
    seen = np.asarray(plain.weight / scaled.weight)
    np.testing.assert_allclose(seen[:, :4], 1.0)
    np.testing.assert_allclose(seen[::2, 4:], 1.0)
    np.testing.assert_allclose(
        seen[1::2, 4:], np.broadcast_to([4 * np.pi, 9 * np.pi], (32, 2)), rtol=1e-6
    )
    car = ox.make("MountainCar-v0")  # positions between -1.2 and 0.6, speeds up to 0.07
    plain, scaled = (
        ox.policies.mlp(normalise=it)(car, jax.random.key(0)).psi.network.layers[0]
        for it in (False, None)
    )
    np.testing.assert_allclose(
        plain.weight / scaled.weight, np.broadcast_to([0.9, 0.07], (64, 2)), rtol=1e-6
    )
    np.testing.assert_allclose(
        scaled.bias, plain.bias + 0.3 * scaled.weight[:, 0], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    ("init", "env"),
    [(tabular(scale=2.0), CHAIN), (linear(scale=2.0), CARTPOLE), (mlp((5,)), CHAIN)],
)
def test_the_key_alone_decides_the_start(init: Callable[[Any, Any], Policy], env: Any) -> None:
    first, again, other = (parameters(init(env, jax.random.key(seed))) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])


@pytest.mark.parametrize("init", [tabular(scale=2.0), linear(scale=2.0)])
def test_the_scale_is_the_deviation_of_the_weights(init: Callable[[Any, Any], Policy]) -> None:
    # 2,000 numbers: their deviation is off by more than 6% (four standard errors of 1 / sqrt(4000))
    # once in 16,000.
    wide = ox.TabularMDP.chain(1000)
    weights = parameters(init(wide, jax.random.key(0)))[0]
    assert weights.size == 2000
    assert weights.std() == pytest.approx(2.0, rel=0.064)
    assert abs(weights.mean()) < 4 * 2 / np.sqrt(2000)


def gelu(x: Floats) -> Floats:
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


FORMULAS: dict[str, Callable[[Floats], Floats]] = {
    "tanh": np.tanh,
    "gelu": gelu,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "relu": lambda x: np.maximum(x, 0),
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_network_computes_what_its_weights_say(activation: str) -> None:
    init = mlp(hidden=(5, 5), activation=activation)
    for env, observation, inputs in (
        (CARTPOLE, OBSERVATION, np.asarray(OBSERVATION)),
        (CHAIN, jnp.asarray(2), np.array([0.0, 0.0, 1.0])),
    ):
        policy = init(env, jax.random.key(0))
        W1, b1, W2, b2, W3, b3 = parameters(policy)
        act = FORMULAS[activation]
        logits = W3 @ act(W2 @ act(W1 @ inputs + b1) + b2) + b3
        np.testing.assert_allclose(policy.logits(observation), logits, rtol=1e-5, atol=1e-6)


def test_linear_policies_compute_what_their_weights_say() -> None:
    def cubes(observation: jax.Array) -> jax.Array:
        return observation[:3] ** 3

    policy = linear(features=cubes, scale=1.0)(CARTPOLE, jax.random.key(0))
    weight, _ = parameters(policy)
    o = np.asarray(OBSERVATION)
    np.testing.assert_allclose(policy.logits(OBSERVATION), weight @ o[:3] ** 3, rtol=1e-5)
    policy = linear(scale=1.0)(CARTPOLE, jax.random.key(0))
    weight, _ = parameters(policy)
    np.testing.assert_allclose(policy.logits(OBSERVATION), weight @ o, rtol=1e-5)
    policy = linear(scale=1.0)(CHAIN, jax.random.key(0))
    weight, _ = parameters(policy)
    np.testing.assert_allclose(policy.logits(jnp.asarray(1)), weight[:, 1], rtol=1e-6)


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: tabular()(CARTPOLE, jax.random.key(0)),
            r"need a tabular environment, got CartPole; use linear\(\)",
        ),
        (lambda: tabular(scale=-1.0), "scale"),
        (lambda: linear(scale=float("nan")), "scale"),
        (lambda: mlp(hidden=(0,)), "hidden"),
        (lambda: mlp(hidden=(2.5,)), "hidden"),
        (lambda: mlp(activation="tan"), "activation 'tan' is not known. Did you mean 'tanh'"),
        (
            lambda: ox.sample(PROBLEM, lambda o: jnp.zeros(2) + o, 2, jax.random.key(0)),
            "wrap a function",
        ),
    ],
)
def test_policies_that_cannot_be_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


# Probabilities and actions.

LOGITS = np.array([0.3, -1.0, 2.0, 0.0])


def test_probabilities_are_the_softmax_of_the_logits(x64: None) -> None:
    policy = Tabular(jnp.asarray([LOGITS, 0 * LOGITS]))
    expected = np.exp(LOGITS) / np.exp(LOGITS).sum()
    np.testing.assert_allclose(policy.probs(jnp.asarray(0)), expected, rtol=1e-12)
    assert float(policy.probs(jnp.asarray(0)).sum()) == pytest.approx(1.0, rel=1e-14)
    np.testing.assert_array_equal(policy.probs(jnp.asarray(1)), np.full(4, 0.25))
    for action in range(4):
        assert float(policy.log_prob(jnp.asarray(0), action)) == pytest.approx(
            np.log(expected[action]), rel=1e-12
        )
        assert float(policy.log_prob(jnp.asarray(0), jnp.asarray(action))) == float(
            policy.log_prob(0, action)
        )


@pytest.mark.parametrize("name", SHAPES)
def test_probabilities_of_every_policy_sum_to_one_and_log_prob_is_their_logarithm(
    name: str,
) -> None:
    policy, observation = ready(name), observation_of(SHAPES[name][1])
    probs = np.asarray(policy.probs(observation))
    assert probs.sum() == pytest.approx(1.0, rel=1e-6)
    logs = [float(policy.log_prob(observation, action)) for action in range(2)]
    np.testing.assert_allclose(logs, np.log(probs), rtol=1e-5)


def test_the_gradient_of_log_prob_is_the_score(x64: None) -> None:
    # d log pi(a) / d logits = e_a - pi.
    table = jnp.asarray([LOGITS, LOGITS])
    score = jax.grad(lambda t: Tabular(t).log_prob(jnp.asarray(0), 2))(table)
    expected = np.zeros((2, 4))
    expected[0] = -np.exp(LOGITS) / np.exp(LOGITS).sum()
    expected[0, 2] += 1
    np.testing.assert_allclose(score, expected, rtol=1e-12)


def test_actions_come_up_as_often_as_their_probabilities_say() -> None:
    policy, draws = Tabular(jnp.asarray([LOGITS])), 20_000
    keys = jax.random.split(jax.random.key(0), draws)
    actions = jax.vmap(lambda key: policy.action(jnp.asarray(0), key))(keys)
    observed = np.bincount(np.asarray(actions), minlength=4)
    expected = np.asarray(policy.probs(jnp.asarray(0)), float)
    # A right sampler fails this for one key in a thousand; the key is fixed, so it never does.
    assert stats.chisquare(observed, draws * expected / expected.sum()).pvalue > 1e-3
    # A slightly different law would be noticed: the test has the power to fail.
    other = np.exp(LOGITS + 0.1 * np.eye(4)[0])
    assert stats.chisquare(observed, draws * other / other.sum()).pvalue < 1e-3


def test_adding_a_constant_to_the_logits_changes_nothing(explored: ox.Trajectories) -> None:
    policy = tabular(scale=1.0)(CHAIN, jax.random.key(0))
    assert isinstance(policy, Tabular)
    # 1,024 is a power of two, but the sum still loses ten bits: an error of 1e-4 in a logit.
    for constant in (-1024.0, 3.0, 1024.0):
        moved = Tabular(policy.table + constant)
        np.testing.assert_allclose(
            moved.probs(jnp.asarray(1)), policy.probs(jnp.asarray(1)), atol=1e-4
        )
        np.testing.assert_allclose(moved.log_prob(1, 0), policy.log_prob(1, 0), atol=2e-4)
        assert ox.sample(PROBLEM, moved, 8, jax.random.key(1)).actions.tolist() == (
            ox.sample(PROBLEM, policy, 8, jax.random.key(1)).actions.tolist()
        )
        original, shifted = (
            ox.estimators.gradient(PROBLEM, explored, p, QUASI_REWARD).table
            for p in (policy, moved)
        )
        np.testing.assert_allclose(shifted, original, rtol=1e-2, atol=1e-2)


# The edge of the floats.


@pytest.mark.parametrize("size", [1e4, 1e30])
def test_huge_logits_give_finite_numbers_everywhere(size: float, explored: ox.Trajectories) -> None:
    table = jnp.tile(jnp.array([size, -size]), (STATES, 1))
    policy = Tabular(table)
    np.testing.assert_array_equal(policy.probs(0), [1.0, 0.0])
    assert float(policy.log_prob(0, 0)) == 0
    assert float(policy.log_prob(0, 1)) == pytest.approx(-2 * size, rel=1e-6)
    # The score of the impossible action is e_1 - e_0.
    score = jax.grad(lambda t: Tabular(t).log_prob(0, 1))(table)
    np.testing.assert_array_equal(score, [[-1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])

    # As a target of trajectories it would never draw, and as the behaviour of ones that the reverse
    # would never draw.
    assert is_finite(ox.estimators.weights(explored, policy))
    assert is_finite(ox.estimators.gradient(PROBLEM, explored, policy, QUASI_REWARD))
    drawn = ox.sample(PROBLEM, policy, 8, jax.random.key(1))
    assert not np.asarray(drawn.actions).any()
    np.testing.assert_array_equal(drawn.log_probs, np.zeros((8, 5)))
    for target in (policy, Tabular(-table)):
        assert is_finite(ox.estimators.occupancy(PROBLEM, drawn, target))
        assert is_finite(ox.estimators.gradient(PROBLEM, drawn, target, QUASI_REWARD))
    np.testing.assert_array_equal(ox.estimators.weights(drawn, Tabular(-table)), np.zeros((8, 5)))


def test_probabilities_that_underflow_keep_their_logarithm_and_their_gradient(
    explored: ox.Trajectories,
) -> None:
    # exp(-200) is 0 in float32, but its logarithm is -200 and its score is as good as any.
    policy = Tabular(jnp.tile(jnp.array([0.0, -200.0]), (STATES, 1)))
    assert float(policy.probs(0)[1]) == 0
    assert float(policy.log_prob(0, 1)) == -200
    np.testing.assert_array_equal(
        jax.grad(lambda p: p.log_prob(0, 1))(policy).table[0], [-1.0, 1.0]
    )
    assert is_finite(ox.estimators.gradient(PROBLEM, explored, policy, QUASI_REWARD))


def test_actions_that_were_next_to_impossible_do_not_blow_up_the_estimates(
    explored: ox.Trajectories,
) -> None:
    # Every action had the log-probability -200 when it was drawn: weights of exp(1000) are far
    # beyond float32.
    unlikely = eqx.tree_at(
        lambda t: t.log_probs, explored, jnp.full_like(explored.log_probs, -200.0)
    )
    uniform = Tabular(jnp.zeros((STATES, ACTIONS)))
    assert is_finite(ox.estimators.weights(unlikely, uniform))
    assert is_finite(ox.estimators.occupancy(PROBLEM, unlikely, uniform))
    assert is_finite(ox.estimators.gradient(PROBLEM, unlikely, uniform, QUASI_REWARD))


# Policies of one's own.


class Stateless(Categorical):
    """Policy with equal logits in all states."""

    preferences: jax.Array

    def logits(self, observation: Any) -> jax.Array:
        return self.preferences + jnp.zeros_like(observation)


def codes(observation: jax.Array) -> jax.Array:
    """Two numbers for each state."""
    return jnp.array([[1.0, 0.5], [-1.0, 2.0], [0.0, 3.0]])[observation]


def test_a_user_s_own_policy_has_the_gradient_of_the_table_it_stands_for(
    explored: ox.Trajectories,
) -> None:
    # Each policy is a table in disguise, theta = theta(parameters): by the chain rule its gradient
    # is that of the table, added up over the states that share a parameter.
    preferences = jnp.array([0.2, -0.4])
    own = Stateless(preferences)
    table = Tabular(jnp.tile(preferences, (STATES, 1)))
    np.testing.assert_allclose(
        ox.estimators.occupancy(PROBLEM, explored, own),
        ox.estimators.occupancy(PROBLEM, explored, table),
        rtol=1e-5,
    )
    by_table = ox.estimators.gradient(PROBLEM, explored, table, QUASI_REWARD).table
    gradient = ox.estimators.gradient(PROBLEM, explored, own, QUASI_REWARD)
    assert np.abs(by_table).max() > 0.1  # there is something to compare
    np.testing.assert_allclose(gradient.preferences, by_table.sum(0), rtol=1e-4, atol=1e-5)


def test_linear_policies_have_the_gradient_of_the_table_they_stand_for(
    explored: ox.Trajectories,
) -> None:
    table = tabular(scale=1.0)(CHAIN, jax.random.key(0))
    features = np.asarray(codes(jnp.arange(STATES)))
    for policy, inputs in (
        (linear(scale=1.0)(CHAIN, jax.random.key(1)), np.eye(STATES)),
        (linear(features=codes, scale=1.0)(CHAIN, jax.random.key(1)), features),
    ):
        logits = jnp.stack([policy.logits(jnp.asarray(state)) for state in range(STATES)])
        table = Tabular(logits)
        by_table = np.asarray(ox.estimators.gradient(PROBLEM, explored, table, QUASI_REWARD).table)
        weight, bias = parameters(ox.estimators.gradient(PROBLEM, explored, policy, QUASI_REWARD))
        np.testing.assert_allclose(weight, by_table.T @ inputs, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(bias, by_table.sum(0), rtol=1e-4, atol=1e-5)


def test_any_equinox_module_is_a_policy_through_softmax() -> None:
    embed, head = (
        eqx.nn.Embedding(STATES, 4, key=jax.random.key(0)),
        eqx.nn.Linear(4, 2, key=jax.random.key(1)),
    )
    network = eqx.nn.Sequential([embed, eqx.nn.Lambda(jnp.tanh), head])
    policy = Softmax(network)
    table = Tabular(jax.vmap(network)(jnp.arange(STATES)))
    np.testing.assert_allclose(
        policy.probs(jnp.asarray(1)), jax.nn.softmax(table.table[1]), rtol=1e-6
    )

    # The same program as the table it stands for, and so the same trajectories, occupancy and, by
    # the chain rule, gradient.
    drawn, expected = (ox.sample(PROBLEM, it, 8, jax.random.key(2)) for it in (policy, table))
    np.testing.assert_array_equal(drawn.actions, expected.actions)
    np.testing.assert_allclose(drawn.log_probs, expected.log_probs, rtol=1e-5)
    np.testing.assert_allclose(
        ox.estimators.occupancy(PROBLEM, drawn, policy),
        ox.estimators.occupancy(PROBLEM, drawn, table),
        rtol=1e-5,
    )
    gradient = ox.estimators.gradient(PROBLEM, drawn, policy, QUASI_REWARD)
    by_table = ox.estimators.gradient(PROBLEM, drawn, table, QUASI_REWARD).table
    by_head = by_table.T @ jnp.tanh(embed.weight)
    shapes = [(STATES, 4), (2, 4), (2,)]
    assert [array.shape for array in parameters(gradient)] == shapes
    np.testing.assert_allclose(parameters(gradient)[1], by_head, rtol=1e-4, atol=1e-5)
    by_embedding = by_table @ head.weight * (1 - jnp.tanh(embed.weight) ** 2)
    np.testing.assert_allclose(parameters(gradient)[0], by_embedding, rtol=1e-4, atol=1e-5)


def test_a_plain_function_is_a_policy_without_parameters() -> None:
    forward = Softmax(lambda observation: jnp.array([-50.0, 50.0]) + jnp.zeros_like(observation))
    trajectories = ox.sample(PROBLEM, forward, 2, jax.random.key(0))
    np.testing.assert_array_equal(trajectories.observations, [[0, 1, 2, 2, 2]] * 2)
    # Action 1 in states 0 and 1 once, then in state 2: 0.81 + 0.729 + 0.6561.
    expected = [0, 1, 0, 0.9, 0, 0.81 + 0.729 + 0.6561]
    np.testing.assert_allclose(
        ox.estimators.occupancy(PROBLEM, trajectories, forward), expected, rtol=1e-6
    )


# A policy of one's own


class Mixed(Policy):
    """A table whose actions are drawn uniformly in a third of all cases."""

    table: jax.Array
    action_space = "discrete"

    def chances(self, observation):
        return 2 / 3 * jax.nn.softmax(self.table[observation]) + 1 / 3 / self.table.shape[1]

    def draw(self, observation, key):
        chances = self.chances(observation)
        action = jax.random.categorical(key, jnp.log(chances))
        return action, jnp.log(chances[action])

    def log_prob(self, observation, action):
        return jnp.log(self.chances(observation)[action])


def test_what_a_policy_of_ones_own_draws_is_what_is_estimated_and_valued():
    problem = enum.tiny(11, (2,)).problem(
        "absorbing", utility=ox.utilities.Linear(np.arange(6.0).reshape(3, 2))
    )
    policy = Mixed(jnp.asarray(np.random.default_rng(0).normal(size=(3, 2)) * 3))
    n = 20_000
    drawn = ox.sample(problem, policy, n, jax.random.key(0))
    np.testing.assert_allclose(
        jnp.where(drawn.live, policy.log_probs(drawn), 0.0), drawn.log_probs, atol=1e-6
    )
    probs = np.asarray(jax.vmap(policy.chances)(jnp.arange(3)), float)
    exact = ox.exact.occupancy(problem, probs).ravel()
    # visits of a pair are at most 4, so the mean of 20,000 has a standard error below 0.03; 5 of
    # them
    np.testing.assert_allclose(ox.estimators.occupancy(problem, drawn, policy), exact, atol=0.14)
    softmax = np.asarray(jax.nn.softmax(policy.table), float)
    assert (
        np.abs(ox.exact.occupancy(problem, softmax).ravel() - exact).max() > 0.2
    )  # the table alone is another policy
    result = ox.train(
        problem,
        ox.TSIVRPG(snapshot_batch=40, batch=8, epoch_length=3),
        112,
        policy=policy,
        progress=False,
    )
    assert result.metrics["largest_weight"][0, 0] == pytest.approx(1, abs=1e-4)
    trained = np.asarray(jax.vmap(result.policy().chances)(jnp.arange(3)), float)
    assert result.utilities[0] == pytest.approx(ox.exact.value(problem, trained), rel=1e-5)


@pytest.mark.parametrize("name", ["action", "log_prob", "log_probs", "draw", "probs"])
def test_what_is_derived_cannot_be_overridden(name):
    with pytest.raises(TypeError, match=rf"Other must not override {name}, which .* derives from"):
        type("Other", (Tabular,), {name: None, "__module__": __name__})


@pytest.mark.parametrize("init", [tabular(), mlp(), linear()], ids=["tabular", "mlp", "linear"])
def test_a_policy_made_for_other_states_is_refused_before_anything_is_sampled(init: Any) -> None:
    policy = init(ox.TabularMDP.chain(3), jax.random.key(0))
    with pytest.raises(ValueError, match=r"^policy was made for 3 states, but env has 4 states\.$"):
        ox.sample(ox.Problem(ox.TabularMDP.chain(4), horizon=2), policy, 2, jax.random.key(0))
