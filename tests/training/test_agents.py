"""Evaluation of agents of other libraries and of functions of the observation."""

from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import occupax as ox
from occupax.envs.episode import episode_seeds
from spaces_of_all_kinds import PARTS, Anything

KEY = jax.random.key(0)
LAKE = ox.make("FrozenLake-v1")
CART = ox.make("CartPole-v1")
ACTIONS = np.random.default_rng(0).integers(0, 4, 16)
"""A deterministic policy in the lake."""
CERTAIN = ox.policies.Tabular(jnp.asarray(1e3 * np.eye(4)[ACTIONS]))
"""The same as a policy; its other actions have the probability 0."""


class Agent:
    """Agent with the interface of Stable-Baselines3: `predict` returns an array and a state."""

    def __init__(self, choose: Any):
        self.choose, self.calls = choose, []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        self.calls.append((state, episode_start, deterministic))
        return np.asarray(self.choose(observation)), state


class Plain:
    """A `predict` of the observation alone, which returns the action alone."""

    def predict(self, observation):
        return ACTIONS[observation]


def look_up(state):
    return ACTIONS[state]


@pytest.mark.parametrize(
    "source", [Agent(look_up), Plain(), look_up], ids=["agent", "plain", "function"]
)
@pytest.mark.parametrize(
    "env", ["FrozenLake-v1", gym.make("FrozenLake-v1"), LAKE], ids=["id", "gym.Env", "occupax"]
)
def test_an_agent_is_evaluated_as_the_policy_that_takes_its_actions(source, env):
    agent, policy = (
        ox.evaluate(actor, env, episodes=40, seed=3, max_steps=30) for actor in (source, CERTAIN)
    )
    for found, wanted in zip(agent, policy, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert len(set(agent.lengths.tolist())) > 3


@pytest.mark.parametrize(
    "env", [LAKE, ox.GymnasiumEnv("FrozenLake-v1")], ids=["occupax", "Gymnasium"]
)
def test_a_problem_has_the_same_utility_and_limits_for_an_agent_as_for_its_policy(env):
    limit = ox.Constraint(lambda _, action: 1.0 * (action == 1), at_most=2.0)
    problem = ox.Problem(env, "entropy", discount=0.9, horizon=12, constraints=[limit])
    agent, policy = (ox.evaluate(actor, problem, episodes=50) for actor in (look_up, CERTAIN))
    assert agent.objective.keys() == policy.objective.keys()
    for name, estimate in policy.objective.items():
        np.testing.assert_allclose(agent.objective[name], estimate, rtol=1e-5)
    np.testing.assert_array_equal(agent.returns, policy.returns)


def test_actions_of_real_numbers_are_clipped_as_those_of_a_policy():
    """Actions at and beyond the bounds have equal returns."""
    for env in ("Pendulum-v1", ox.make("Pendulum-v1")):
        bound, beyond = (
            ox.evaluate(lambda seen, most=most: -most * np.sign(seen[2:]), env, episodes=3).returns
            for most in (2, 9)
        )
        np.testing.assert_array_equal(bound, beyond)
        assert not np.array_equal(
            bound, ox.evaluate(lambda seen: -np.sign(seen[2]), env, episodes=3).returns
        )


def test_one_cart_is_balanced_in_gymnasium_and_in_occupax():
    """A controller that is known to balance it for all 500 steps."""

    def push(seen: Any) -> Any:
        return seen[2] + seen[3] > 0

    for env in ("CartPole-v1", CART, ox.Problem("CartPole-v1")):
        assert ox.evaluate(push, env, episodes=5).returns.tolist() == [500.0] * 5


def test_an_agent_earns_in_gymnasium_what_a_plain_loop_earns():
    """A plain Gymnasium loop with the seeds of occupax has the same returns."""

    def swing(seen: Any) -> Any:
        return [-2 * np.tanh(seen[1] + seen[2])]

    env, returns = gym.make("Pendulum-v1"), []
    for seed in episode_seeds(np.asarray(jax.random.key_data(jax.random.key(5))), 0, 4):
        seen, over, total = env.reset(seed=seed)[0], False, 0.0
        while not over:
            seen, reward, _, over, _ = env.step(np.array(swing(seen), np.float32))
            total += float(reward)
        returns.append(total)
    np.testing.assert_allclose(
        ox.evaluate(swing, "Pendulum-v1", episodes=4, seed=5).returns, returns, rtol=1e-12
    )


ACTION_SPACES = {
    "discrete from 2 on": spaces.Discrete(3, start=2),
    "several": spaces.MultiDiscrete([[2, 3], [4, 2]]),
    "binary": spaces.MultiBinary(3),
    "box": spaces.Box(-0.1, 0.1, (2, 1), np.float32),
}


@pytest.mark.parametrize("kind", ACTION_SPACES)
def test_agents_see_and_choose_what_gymnasium_returns_and_takes(kind):
    """`Anything` refuses actions that are not in its space, and so does the agent observations."""
    shown, space = spaces.Dict(PARTS), ACTION_SPACES[kind]
    chosen: list[Any] = []

    def choose(observation: Any) -> Any:
        assert shown.contains(observation), observation
        chosen.append(space.sample())
        return chosen[-1]

    found = ox.evaluate(choose, Anything(shown, space), episodes=2)
    assert found.lengths.tolist() == [3, 3]
    made = ox.make(lambda: Anything(shown, space))
    counted = {"features": lambda _, action: 1.0 * action.reshape(-1)}
    problem = ox.Problem(made, lambda counts: counts.sum(), horizon=3, discount=0.0, **counted)
    chosen.clear()
    found = ox.evaluate(choose, problem, episodes=1)
    assert len(chosen) == found.returns[0] == 3
    from_zero = chosen[0] - (0 if kind in ("binary", "box") else space.start)
    assert found.utility.value == pytest.approx(np.sum(from_zero), abs=1e-6)


def test_predict_is_told_when_episodes_begin_and_what_it_remembers():
    class Counting:
        """Agent that counts the steps of an episode. Its first action is 0."""

        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            assert deterministic
            assert episode_start is not None
            assert episode_start.tolist() == [state is None]
            count = 0 if state is None else state + 1
            steps.append(count)
            return count % 2, count

    steps: list[int] = []
    for env in ("CartPole-v1", CART):
        steps.clear()
        found = ox.evaluate(Counting(), env, episodes=12, max_steps=20, deterministic=True)
        assert sorted(steps) == sorted(step for length in found.lengths for step in range(length))


def test_an_agent_is_certified_as_its_deterministic_policy():
    problem = ox.Problem(LAKE, discount=0.9)
    certain, agent = np.eye(4)[ACTIONS], Agent(look_up)
    for source in (agent, Plain(), look_up):
        assert ox.exact.certificate(problem, source) == ox.exact.certificate(problem, certain)
        assert ox.exact.value(problem, source) == ox.exact.value(problem, certain)
        np.testing.assert_array_equal(
            ox.exact.occupancy(problem, source), ox.exact.occupancy(problem, certain)
        )
        features = ox.exact.feature_occupancy(problem, certain)
        np.testing.assert_array_equal(ox.exact.feature_occupancy(problem, source), features)
    assert {deterministic for _, _, deterministic in agent.calls} == {True}
    assert len(agent.calls) == 4 * np.sum(
        ~LAKE.terminal
    )  # where an episode is over, nothing is asked


def test_the_best_agent_is_certified_as_the_best():
    problem = ox.Problem(LAKE, discount=0.9)
    best = ox.exact.value_iteration(problem)
    actions = best.policy.argmax(1)
    certificate = ox.exact.certificate(problem, lambda state: actions[state])
    assert certificate.value == pytest.approx(best.value)
    assert certificate.gap < 1e-9


def test_a_policy_is_certified_by_its_probabilities():
    policy = ox.policies.tabular(1.0)(LAKE, KEY)
    problem = ox.Problem(LAKE, "entropy", discount=0.9)
    logits = np.asarray(policy.table, float)
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(
        ox.exact.certificate(problem, policy), ox.exact.certificate(problem, probs), rtol=1e-9
    )


def test_an_agent_is_recorded(tmp_path):
    image = pytest.importorskip("PIL.Image")

    class Screen(Anything):
        metadata = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012
        render_mode = "rgb_array"

        def render(self):
            return np.full((4, 4, 3), 80 * self._left, np.uint8)

    env = Screen(spaces.Dict(PARTS), spaces.Discrete(3, start=2))
    calls: list[bool] = []
    for source in (
        Agent(lambda seen: calls.append(PARTS["a"].contains(seen["a"])) or 4),
        lambda _: 3,
    ):
        with image.open(ox.record(source, env, tmp_path / "agent.gif")) as opened:
            assert opened.n_frames == 4
    assert calls == [True] * 3


class Forgetful:
    def predict(self, observation, state=None):
        return 0, (state or 0) + 1


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (lambda _: 2, r"^policy must choose an action of Discrete\(2\), got 2\.$"),
        (lambda _: 0.5, r"^policy must choose an action of Discrete\(2\), got 0\.5\.$"),
        (
            lambda _: np.zeros(3, int),
            r"^policy must choose an action of Discrete\(2\), got array\(\[0, 0, 0\]\)\.$",
        ),
        (lambda _: None, r"^policy must choose an action of Discrete\(2\), got None\.$"),
        (
            lambda seen: seen.push,
            r"^policy fails on the observation .* of Box\(.*\. AttributeError: .*push'\.$",
        ),
        (Agent(lambda seen: seen[7]), r"^policy fails on the observation .*\. IndexError: "),
        (
            Agent,
            "a function of the observation that returns an action, got Agent; call the class first",
        ),
        (
            5,
            (
                "^policy must be an occupax policy, an object with predict, "
                "or a function of the observation that returns"
            ),
        ),
        (
            ox.policies.linear(),
            "^policy must be an occupax policy, got an initialiser; call the initialiser with",
        ),
        (
            eqx.nn.MLP(4, 2, 8, 1, key=KEY),
            r"^policy must be an occupax policy, got MLP; wrap .*policies\.Softmax\(net",
        ),
    ],
)
@pytest.mark.parametrize(
    "env", ["CartPole-v1", CART, ox.Problem(CART)], ids=["Gymnasium", "occupax", "problem"]
)
def test_what_does_not_act_is_refused(source, said, env):
    with pytest.raises(ValueError, match=said):
        ox.evaluate(source, env, episodes=2)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (lambda _: 7, r"policy must choose an action of Discrete\(4\), got 7\."),
        (
            Forgetful(),
            "of the policy must return None as its state: a table has no memory of earlier",
        ),
        (Agent, r"got Agent; call the class first\."),
        (eqx.nn.MLP(4, 2, 8, 1, key=KEY), r"policies\.Softmax\(net\)"),
        (
            ox.policies.Tabular(jnp.zeros((3, 4))),
            "policy was made for 3 states, but env has 16 states",
        ),
    ],
)
def test_what_cannot_be_certified_is_refused(source, said):
    with pytest.raises(ValueError, match=said):
        ox.exact.certificate(ox.Problem(LAKE), source)


def test_what_comes_after_the_end_needs_probabilities():
    problem = ox.Problem(LAKE, "entropy", termination="absorbing", horizon=9)
    with pytest.raises(
        ValueError,
        match=r'termination of the problem must be "episodic" for an agent, .*"absorbing"',
    ):
        ox.evaluate(look_up, problem)


def test_real_actions_must_be_finite_and_of_their_shape():
    for action in (np.nan, [1.0, 2.0], "left"):
        with pytest.raises(
            ValueError, match=r"policy must choose an action of Box\(.*\(1,\), float32\), got "
        ):
            ox.evaluate(lambda _, action=action: action, "Pendulum-v1", episodes=1)
