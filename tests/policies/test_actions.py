"""Vector actions: densities against SciPy, estimators against quadrature, every sampler."""

from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from scipy import integrate, stats

import occupax as ox
from occupax.envs import ActionSpace, BoxActions, DiscreteActions, Environment, MultiDiscreteActions
from occupax.policies import Gaussian, Policy, SoftmaxProduct, Squashed
from occupax.samplers.episodes import EpisodeRunner

KEY = jax.random.key(0)
BOX = BoxActions([-1.0, 0.0], [3.0, 0.5])
"""Its middle is (1, 0.25), and its bounds are (2, 0.25) from there."""


class Cart(Environment):
    """Linear system x' = 0.8 x + a from x = 0.5."""

    action_space: ActionSpace
    time_limit: int | None = None

    def reset(self, key):
        return jnp.array([0.5])

    def step(self, state, action, key):
        return 0.8 * state + action, -jnp.sum(state**2) - 0.1 * jnp.sum(action**2)

    def observe(self, state):
        return state

    def terminated(self, state):
        return jnp.zeros((), bool)

    def truncated(self, state):
        return jnp.zeros((), bool)


def cart(low=-np.inf, high=np.inf):
    return Cart(BoxActions([low], [high]))


def linear_psi(*rows):
    """A linear map of (x, 1) with these rows."""
    weight, bias = jnp.array(rows)[:, :-1], jnp.array(rows)[:, -1]
    layer = eqx.nn.Linear(weight.shape[1], len(weight), key=KEY)
    return eqx.tree_at(lambda it: (it.weight, it.bias), layer, (weight, bias))


# Densities


def test_log_probabilities_of_a_normal_law_are_those_of_scipy(x64):
    observation, action = (
        jnp.array([0.3, -2.0]),
        np.array([5.0, -1.0]),
    )  # outside of the box, as it may be
    psi = linear_psi([0.2, 0.1, 0.5], [-0.4, 0.3, 0.0], [0.1, 0.0, -1.0], [0.3, 0.2, 0.1])
    found = psi(observation)
    by_observation = Gaussian(psi, None, BOX)
    of_parameters = Gaussian(
        linear_psi([0.2, 0.1, 0.5], [-0.4, 0.3, 0.0]), jnp.array([-1.0, 0.4]), BOX
    )
    for policy, log_deviations in ((by_observation, found[2:]), (of_parameters, [-1.0, 0.4])):
        means = np.array([1.0, 0.25]) + np.array([2.0, 0.25]) * np.asarray(found[:2])
        deviations = np.array([2.0, 0.25]) * np.exp(np.asarray(log_deviations))
        expected = stats.norm.logpdf(action, means, deviations).sum()
        assert float(policy.log_prob(observation, jnp.asarray(action))) == pytest.approx(
            expected, rel=1e-12
        )
        drawn, log_probs = jax.vmap(lambda key, it=policy: it.draw(observation, key))(
            jax.random.split(KEY, 4000)
        )
        np.testing.assert_allclose(
            log_probs,
            stats.norm.logpdf(np.asarray(drawn), means, deviations).sum(1),
            rtol=1e-9,
            atol=1e-9,
        )
        for column, mean, deviation in zip(np.asarray(drawn).T, means, deviations, strict=True):
            assert stats.kstest(column, stats.norm(mean, deviation).cdf).pvalue > 1e-3
            assert (
                stats.kstest(column, stats.norm(mean + 0.1 * deviation, deviation).cdf).pvalue
                < 1e-3
            )


def test_log_probabilities_of_squashed_actions_are_those_of_the_law_of_the_action(x64):
    policy = Squashed(linear_psi([0.5, 0.2], [-1.0, 0.1]), jnp.array([0.3, -0.5]), BOX)
    observation, means, deviations = jnp.array([0.7]), np.array([0.55, -0.6]), np.exp([0.3, -0.5])

    def density(z):
        return np.exp(float(policy.log_prob(observation, jnp.array(z))))

    def distribution(action, i):  # P(A_i <= action)
        place = (action - BOX.middle[i]) / BOX.reach[i]
        return stats.norm.cdf(np.arctanh(place), means[i], deviations[i])

    for z in ([0.1, -0.3], [-1.5, 0.8]):
        action = np.asarray(policy.applied(jnp.array(z)))
        np.testing.assert_allclose(
            action, [1.0, 0.25] + np.array([2.0, 0.25]) * np.tanh(z), rtol=1e-12
        )
        h = 1e-5
        slopes = [
            (distribution(a + h, i) - distribution(a - h, i)) / (2 * h)
            for i, a in enumerate(action)
        ]
        assert density(z) == pytest.approx(slopes[0] * slopes[1], rel=1e-7)


def test_squashed_actions_at_the_bounds_have_finite_densities_and_scores():
    policy = Squashed(linear_psi([0.0, 0.0]), jnp.array([0.0]), BoxActions([-1.0], [1.0]))
    for z in (12.0, -12.0, 60.0):
        action = np.asarray(policy.applied(jnp.array([z])))[0]
        assert 1 - 1e-6 < action * np.sign(z) <= 1  # of which float32 cannot tell what z was
        slope = np.log(4) - 2 * abs(z)  # of tanh, up to exp(-4 |z|)
        expected = stats.norm.logpdf(z) - slope
        assert float(policy.log_prob(jnp.zeros(1), jnp.array([z]))) == pytest.approx(
            expected, rel=1e-5
        )
        score = eqx.filter_grad(lambda it, z=z: it.log_prob(jnp.zeros(1), jnp.array([z])))(policy)
        np.testing.assert_allclose(score.psi.bias, [z], rtol=1e-5)
        np.testing.assert_allclose(score.log_deviation, [z**2 - 1], rtol=1e-5)
    assert np.tanh(np.float32(12.0)) ** 2 == 1  # log(1 - tanh^2) itself is minus infinity


def test_products_of_softmaxes_draw_every_combination_as_often_as_they_say():
    logits = np.array([0.3, -0.2, 1.0, 0.5, -1.0])
    policy = SoftmaxProduct(lambda observation: jnp.asarray(logits) * observation, (3, 2))
    parts = [np.exp(part) / np.exp(part).sum() for part in np.split(logits, [3])]
    expected = np.multiply.outer(*parts)
    for first in range(3):
        for second in range(2):
            found = float(policy.log_prob(jnp.ones(()), jnp.array([first, second])))
            assert found == pytest.approx(np.log(expected[first, second]), rel=1e-5)
    drawn, log_probs = jax.vmap(lambda key: policy.draw(jnp.ones(()), key))(
        jax.random.split(KEY, 5000)
    )
    np.testing.assert_allclose(log_probs, np.log(expected[tuple(np.asarray(drawn).T)]), rtol=1e-5)
    counts = np.zeros((3, 2))
    np.add.at(counts, tuple(np.asarray(drawn).T), 1)
    assert stats.chisquare(counts.ravel(), 5000 * expected.ravel() / expected.sum()).pvalue > 1e-3
    score = jax.grad(lambda x: policy.log_prob(x, jnp.array([2, 0])))(jnp.ones(()))
    assert float(score) == pytest.approx(
        logits[2] - parts[0] @ logits[:3] + logits[3] - parts[1] @ logits[3:], rel=1e-4
    )


# Estimators, against integrals over all actions

DISCOUNT = 0.9
BEHAVIOUR, TARGET = ([0.3, -0.1], -0.4), ([-0.2, 0.25], -0.6)
"""Slope and intercept of the mean, and the logarithm of the deviation."""
NODES = np.polynomial.hermite_e.hermegauss(40)


def features(x, a):
    return jnp.stack([a[0], a[0] ** 2, x[0] * a[0], x[0] ** 2])


def policy_of(kind, parameters, box):
    (slope, intercept), log_deviation = parameters
    return kind(linear_psi([slope, intercept]), jnp.array([log_deviation]), box)


def paths(policy, applied, steps):
    """Return trajectories with quadrature nodes of the behaviour as actions, and their weights."""
    slope, intercept = float(policy.psi.weight[0, 0]), float(policy.psi.bias[0])
    deviation, x, weight, seen, drawn = (
        np.exp(float(policy.log_deviation[0])),
        np.array([0.5]),
        np.ones(1),
        [],
        [],
    )
    for _ in range(steps):
        e, w = (np.tile(part, len(x)) for part in NODES)
        x, weight = (np.repeat(part, len(NODES[0])) for part in (x, weight))
        seen, drawn = (
            [np.repeat(part, len(NODES[0])) for part in parts] for parts in (seen, drawn)
        )
        z = slope * x + intercept + deviation * e
        seen, drawn, weight = [*seen, x], [*drawn, z], weight * w / np.sqrt(2 * np.pi)
        x = 0.8 * x + applied(z)
    seen, drawn = (jnp.asarray(np.stack(part, 1)[..., None]) for part in (seen, drawn))
    n = len(weight)
    log_probs = jax.vmap(jax.vmap(policy.log_prob))(seen, drawn)
    nothing, live = jnp.zeros((n, steps)), jnp.ones((n, steps), bool)
    of_nodes = ox.Trajectories(
        seen,
        drawn,
        log_probs,
        nothing,
        live,
        jnp.zeros(n, bool),
        jnp.asarray(x[:, None]),
        None,
        policy.action_space,
    )
    return of_nodes, weight


def expectation(problem, policy, target, applied, quasi_reward):
    """The expectations of the estimators of one trajectory that `policy` draws."""
    of_nodes, weight = paths(policy, applied, problem.horizon)

    def of_one(trajectory):
        alone = jax.tree.map(lambda leaf: leaf[None], trajectory)
        gradient = ox.estimators.gradient(problem, alone, target, quasi_reward)
        return ox.estimators.occupancy(problem, alone, target), eqx.filter(
            gradient, eqx.is_inexact_array
        )

    found = jax.vmap(of_one)(of_nodes)
    return jax.tree.map(lambda leaf: np.tensordot(weight, np.asarray(leaf), 1), found)


def integral(parameters, applied, steps):
    """Return the feature occupancy: SciPy's densities of the actions, trapezoidal rule."""
    (slope, intercept), log_deviation = parameters
    e = np.linspace(-9.0, 9.0, 181)  # of such a smooth and short density the rule has all digits

    def to_go(x, left):
        mean = (slope * x + intercept)[..., None]
        z = mean + np.exp(log_deviation) * e
        density = stats.norm.pdf(z, mean, np.exp(log_deviation))
        a, x = applied(z), np.broadcast_to(x[..., None], z.shape)
        found = np.stack([a, a**2, x * a, x**2])
        if left > 1:
            found = found + DISCOUNT * to_go(0.8 * x + a, left - 1)
        return integrate.trapezoid(density * found, dx=np.exp(log_deviation) * (e[1] - e[0]))

    return to_go(np.array(0.5), steps)


def slopes(parameters, applied, steps, quasi_reward):
    """Return the derivatives by slope, intercept and log standard deviation, by differences."""
    found = []
    for i in range(3):
        both = []
        for step in (1e-4, -1e-4):
            moved = np.array([*parameters[0], parameters[1]]) + step * np.eye(3)[i]
            both.append(integral((moved[:2], moved[2]), applied, steps) @ quasi_reward)
        found.append((both[0] - both[1]) / 2e-4)
    return np.array(found)


def stretched(z):
    return 0.5 + 1.5 * np.tanh(z)


CASES = {
    "gaussian": (Gaussian, cart(), lambda z: z),
    "squashed": (Squashed, cart(-1.0, 2.0), stretched),
}
QUASI_REWARD = np.array([0.7, -0.3, 1.1, -0.5])


@pytest.mark.parametrize(
    ("kind", "steps"), [("gaussian", 1), ("gaussian", 2), ("squashed", 1), ("squashed", 2)]
)
def test_estimators_are_unbiased_with_the_weights_of_another_policy(kind, steps, x64):
    policy, env, applied = CASES[kind]
    problem = ox.Problem(env, ox.utilities.Linear(QUASI_REWARD), DISCOUNT, steps, features=features)
    box = env.action_space
    behaviour, target = (policy_of(policy, parameters, box) for parameters in (BEHAVIOUR, TARGET))
    truth, slope = integral(TARGET, applied, steps), slopes(TARGET, applied, steps, QUASI_REWARD)
    for who, tolerance in (
        (behaviour, 1e-5),
        (target, 1e-6),
    ):  # the weights of another policy are less smooth
        occupancy, gradient = expectation(problem, who, target, applied, QUASI_REWARD)
        np.testing.assert_allclose(occupancy, truth, atol=tolerance)
        found = [gradient.psi.weight[0, 0], gradient.psi.bias[0], gradient.log_deviation[0]]
        np.testing.assert_allclose(found, slope, atol=10 * tolerance)


class Unnormalised(Policy):
    """A normal law that forgets that its density depends on its deviation."""

    of: Gaussian
    action_space = "box"

    def draw(self, observation, key):
        return self.of.draw(observation, key)

    def log_prob(self, observation, action):
        return self.of.log_prob(observation, action) + jnp.sum(self.of.log_deviation)


def test_a_wrong_density_or_a_clipped_action_in_it_would_be_noticed(x64):
    env = cart()
    problem = ox.Problem(env, ox.utilities.Linear(QUASI_REWARD), DISCOUNT, 1, features=features)
    behaviour, target = (policy_of(Gaussian, it, env.action_space) for it in (BEHAVIOUR, TARGET))
    truth = integral(TARGET, lambda z: z, 1)
    of_nodes, weight = paths(behaviour, lambda z: z, 1)

    def mean(trajectories, target):
        each = jax.vmap(
            lambda it: ox.estimators.occupancy(
                problem, jax.tree.map(lambda leaf: leaf[None], it), target
            )
        )
        return weight @ np.asarray(each(trajectories))

    np.testing.assert_allclose(mean(of_nodes, target), truth, atol=1e-5)
    assert np.abs(mean(of_nodes, Unnormalised(target)) - truth).max() > 0.03
    clipped = eqx.tree_at(lambda it: it.actions, of_nodes, jnp.clip(of_nodes.actions, -0.5, 0.5))
    assert np.abs(mean(clipped, target) - truth).max() > 0.03


def test_clipping_is_outside_of_the_policy_and_counted():
    env = cart(-0.4, 0.6)
    problem = ox.Problem(env, lambda u: u[0], DISCOUNT, 2, features=lambda x, a: a + 0 * x)
    policy = Gaussian(linear_psi([0.0, 0.2]), jnp.array([0.3]), env.action_space)
    drawn = ox.sample(problem, policy, 500, KEY)
    given = np.clip(np.asarray(drawn.actions), -0.4, 0.6)
    assert 0.2 < (given != drawn.actions).mean() < 0.8
    seen = np.asarray(drawn.observations)
    np.testing.assert_allclose(seen[:, 1], 0.8 * seen[:, 0] + given[:, 0], rtol=1e-6)
    np.testing.assert_allclose(
        drawn.rewards, -(seen[..., 0] ** 2) - 0.1 * given[..., 0] ** 2, rtol=1e-5
    )
    means, deviation = 0.1 + 0.5 * 0.2, 0.5 * np.exp(0.3)
    expected = stats.norm.logpdf(np.asarray(drawn.actions)[..., 0], means, deviation)
    np.testing.assert_allclose(drawn.log_probs, expected, rtol=1e-4, atol=1e-5)
    counted = given[:, 0, 0] + DISCOUNT * given[:, 1, 0]
    np.testing.assert_allclose(
        ox.estimators.occupancy(problem, drawn, policy), [counted.mean()], rtol=1e-4
    )
    share = ox.SampledBatch(problem, drawn, policy).statistics().actions_clipped
    assert float(share) == pytest.approx(np.mean(given != np.asarray(drawn.actions)), rel=1e-6)
    # no action that is squashed is ever clipped
    squashed = Squashed(linear_psi([0.0, 4.0]), jnp.array([0.3]), env.action_space)
    batch = ox.SampledBatch(problem, ox.sample(problem, squashed, 500, KEY), squashed)
    assert float(batch.statistics().actions_clipped) == 0
    assert float(jnp.abs(batch.trajectories.actions).max()) > 4.5


# Spaces, features and policies that fit


def test_a_grid_counts_actions_as_the_environment_is_given_them():
    env = cart(-1.0, 1.0)
    grid = ox.features.Grid([0.0, -1.0], [1.0, 1.0], [2, 4], actions=[0])
    problem = ox.Problem(env, lambda u: u[0], DISCOUNT, 2, features=grid)
    assert problem.size == 8
    for x, a, cell in ((0.2, -0.6, 0), (0.2, -0.4, 1), (0.7, 0.3, 6), (5.0, 1.0, 7)):
        count = problem.count(jnp.array([x]), jnp.array([a]), jnp.zeros(()))
        assert int(count.index[0]) == cell
    with pytest.raises(
        ValueError, match=r"^actions must lie in 0\.\.0 for this action, got \(1,\)\.$"
    ):
        ox.Problem(
            env,
            lambda u: u[0],
            features=ox.features.Grid([0.0], [1.0], [2], coordinates=[], actions=[1]),
        )


class Switches(gym.Env[Any, Any]):
    """Chain of states with actions of any space. The reward is the sum of the action."""

    def __init__(self, space, tabular=False):
        self.action_space = space
        self.observation_space = (
            spaces.Discrete(3) if tabular else spaces.Box(-9.0, 9.0, (2,), np.float32)
        )

    def look(self):
        time = self.time % 3
        return (
            time
            if isinstance(self.observation_space, spaces.Discrete)
            else np.full(2, time, np.float32)
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.look(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.time += 1
        return self.look(), float(np.sum(action, dtype=np.float64)), self.time == 4, False, {}


SPACES = {
    "box": spaces.Box(-0.3, np.array([[0.1, 0.2], [0.3, 0.7]]), (2, 2), np.float64),
    "half bounded": spaces.Box(0.0, np.inf, (3,), np.float32),
    "several": spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[5, -1], [0, 0]]),
    "binary": spaces.MultiBinary((2, 2)),
}


def switches(space="box", tabular=False):
    return Switches(SPACES[space], tabular)


@pytest.mark.parametrize("space", SPACES)
def test_environments_of_gymnasium_are_given_actions_of_their_space(space):
    env = ox.GymnasiumEnv(switches, space=space)
    problem = ox.Problem(env, discount=0.9, horizon=4)
    policy = (
        ox.policies.mlp((4,)) if space in ("several", "binary") else ox.policies.gaussian((4,))
    )(env, KEY)
    drawn = ox.sample(problem, policy, 6, KEY)
    given = np.asarray(env.action_space.clip(policy.applied(drawn.actions)), np.float64)
    assert given.shape == (6, 4, env.action_space.spec().shape[0])
    first = {"several": 4}.get(space, 0)  # the sum of the first numbers
    np.testing.assert_allclose(drawn.rewards, given.sum(2) + first, rtol=1e-5)
    assert len(np.unique(given.reshape(24, -1), axis=0)) > 8
    assert not ox.check_env(lambda: switches(space))


def test_policies_are_chosen_by_the_actions_and_trained():
    box, several = (ox.GymnasiumEnv(switches, space=space) for space in ("box", "several"))
    table = ox.GymnasiumEnv(switches, space="several", tabular=True)
    chosen = [type(ox.policies.default_policy(env)(env, KEY)) for env in (box, several, table)]
    assert chosen == [Gaussian, SoftmaxProduct, SoftmaxProduct]
    result = ox.train(
        ox.Problem(several, discount=0.9, horizon=4),
        ox.REINFORCE(batch=8, step_size=0.3, rule="adam", baseline="mean"),
        160,
        policy=ox.policies.linear(),
        progress=False,
    )
    returns = result.metrics["return"][0]
    # 4 steps of up to (1 + 2 + 3 + 1) + 4, from half of what the actions earn: 14 + 16 of 28 + 16
    assert returns[0] == pytest.approx(30, abs=5)
    assert returns[-1] > 40
    assert "actions_clipped" not in result.metrics


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: BoxActions([0.0], [0.0]),
            r"^low must be below high, got low=\(0\.0,\) and high=\(0\.0,\)\.$",
        ),
        (lambda: BoxActions([0.0], [1.0, 2.0]), "^low and high must have one length, got 1 and 2"),
        (lambda: BoxActions([np.nan], [1.0]), "^low must not be NaN"),
        (
            lambda: MultiDiscreteActions([2, 0]),
            "^sizes must be an integer of at least 1, got 0",
        ),
        (lambda: DiscreteActions(1.5), "^n must be an integer"),
        (
            lambda: ox.policies.mlp()(cart(), KEY),
            r"^softmax policies need discrete actions, got BoxActions\(.*gaussian",
        ),
        (
            lambda: ox.policies.squashed()(cart(0.0), KEY),
            "^squashed policies need a box with bounds on all sides",
        ),
        (
            lambda: ox.policies.gaussian()(ox.make("CartPole-v1"), KEY),
            r"^Gaussian policies need actions in a box, got Disc",
        ),
        (
            lambda: ox.policies.gaussian(deviation=0.0),
            "^deviation must be a finite number above 0, got 0.0",
        ),
        (
            lambda: ox.policies.gaussian(by_observation=1),
            "^by_observation must be True or False, got 1",
        ),
        (lambda: cart().num_actions, "^Cart has no number of actions, because it takes BoxActions"),
        (
            lambda: ox.Problem(cart(), lambda u: u[0], features=ox.features.StateAction()),
            "^StateAction features need discrete actions, ",
        ),
        (
            lambda: ox.Problem(cart(), horizon=2, termination="absorbing"),
            '^termination "absorbing" needs discrete actio',
        ),
        (
            lambda: ox.sample(
                ox.Problem(cart(), horizon=2), ox.policies.Softmax(linear_psi([1.0, 0.0])), 2, KEY
            ),
            (
                '^action_space of Softmax must be "box" or "squashed", got \'discrete\'; '
                "the environment takes BoxActions"
            ),
        ),
        (
            lambda: ox.sample(
                ox.Problem(cart(), horizon=2),
                Gaussian(linear_psi([1.0, 0.0]), jnp.zeros(2), BOX),
                2,
                KEY,
            ),
            r"^draw of the policy must return an action such as .*\(1,\).*got .*\(2,\)",
        ),
    ],
)
@pytest.mark.usefixtures("as_users_run")
def test_what_does_not_fit_is_answered_with_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_a_target_of_another_kind_is_refused():
    env = cart(-1.0, 1.0)
    problem = ox.Problem(env, horizon=2)
    gaussian, squashed = (
        kind(linear_psi([0.0, 0.0]), jnp.zeros(1), env.action_space)
        for kind in (Gaussian, Squashed)
    )
    drawn = ox.sample(problem, squashed, 2, KEY)
    with pytest.raises(
        ValueError, match=r'^target must be of the kind that acted, "squashed", got Gaussian'
    ):
        ox.estimators.weights(drawn, gaussian)


# Training, files and every sampler


def test_training_is_resumed_saved_and_evaluated_as_ever(tmp_path):
    problem = ox.Problem(cart(-1.0, 1.0), discount=0.9, horizon=4)
    algorithm, init = ox.REINFORCE(batch=4, step_size=0.01), ox.policies.gaussian((4,))
    whole = ox.train(problem, algorithm, 48, policy=init, progress=False)
    ox.train(problem, algorithm, 24, policy=init, progress=False, out=tmp_path)
    resumed = ox.train(
        problem, algorithm, 48, policy=init, progress=False, out=tmp_path, resume=True
    )
    assert whole.status == resumed.status == ("finished",)
    assert eqx.tree_equal(whole.policies, resumed.policies)
    assert 0 < whole.metrics["actions_clipped"].mean() < 1
    np.testing.assert_array_equal(
        whole.metrics["actions_clipped"], resumed.metrics["actions_clipped"]
    )
    assert eqx.tree_equal(ox.load_result(tmp_path).policies, whole.policies)
    assert ox.evaluate(whole.policy(), problem.env, 5, max_steps=4).lengths.tolist() == [4] * 5


def test_policies_need_nothing_but_their_file(tmp_path):
    switched = ox.GymnasiumEnv(switches, space="several")
    for init, env in (
        (ox.policies.squashed((4,), by_observation=True), cart(-1.0, 1.0)),
        (ox.policies.gaussian(()), cart()),
        (ox.policies.linear(), switched),
    ):
        policy = init(env, KEY)
        ox.save_policy(policy, tmp_path / "policy.safetensors")
        loaded = ox.load_policy(tmp_path / "policy.safetensors")
        assert eqx.tree_equal(loaded, policy)
        seen = jnp.ones(env.observation_spec().shape)
        np.testing.assert_array_equal(loaded.action(seen, KEY), policy.action(seen, KEY))


def test_the_number_of_environments_changes_no_bit():
    env = ox.GymnasiumEnv(switches)
    policy = ox.policies.squashed((4,))(env, KEY)
    one, two, five = (EpisodeRunner(env, envs).draw(policy, KEY, 0, 7, 7, 4) for envs in (1, 2, 5))
    assert eqx.tree_equal(one, two)
    assert eqx.tree_equal(one, five)
    assert float(one.rewards.std()) > 0
