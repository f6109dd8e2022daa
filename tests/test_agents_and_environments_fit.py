"""Errors for incompatible policies, environments and rules, and for arguments of other types.

`sentences` makes the calls.
"""

from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gymnasium import spaces

import occupax as ox
from occupax import features, utilities
from occupax.training.trackers import TensorBoard
from sentences import Case, Outcomes, assert_sentence, outcomes_of, print_outcomes

KEY = jax.random.key(0)
CHAIN = ox.TabularMDP.chain(4)
TINY = 1e-300


def small() -> Any:
    """Return a table for the four states of the chain."""
    return ox.policies.Tabular(jnp.zeros((4, 2)))


def network() -> Any:
    """Return a network for CartPole."""
    return ox.policies.mlp((4,))(ox.make("CartPole-v1"), KEY)


def problem(utility: Any = None, **options: Any) -> Any:
    return ox.Problem(CHAIN, utility, horizon=5, **options)


def limited() -> Any:
    return problem(constraints=[ox.Constraint(np.ones((4, 2)), at_most=9.0)])


def record(policy: Any, env: Any, **options: Any) -> Any:
    return ox.record(policy, env, "episode.gif", max_steps=2, **options)


def certify(multipliers: Any, limits: bool = True) -> Any:
    chosen = limited() if limits else problem()
    return ox.exact.certificate(chosen, np.full((4, 2), 0.5), multipliers)


def unstable() -> Any:
    """Return an LQR problem whose second coordinate doubles whatever the action."""
    system = ox.envs.LQR(2 * np.eye(2), [[1.0], [0.0]], np.eye(2), np.eye(1))
    return ox.Problem(system, discount=0.9)


def counting(function: Any) -> Any:
    """Return a problem of CartPole with a feature function."""
    return ox.Problem("CartPole-v1", jnp.sum, features=function)


def imitate(counted: Any, env: Any = CHAIN, observation: Any = 0) -> Any:
    return ox.demonstrations(env, [[(observation, 1)]], features=counted)


def with_info() -> Any:
    return ox.GymnasiumEnv("CartPole-v1", info=["cost"])


def train(rule: Any) -> Any:
    """Train by an optax transformation."""
    return ox.train(problem(), ox.REINFORCE(batch=2, rule=rule), 4, progress=False)


def rule(update: Any, init: Any = lambda _: ()) -> Any:
    """Return an optax transformation whose direction is a function of the gradient."""
    return optax.GradientTransformation(
        init, lambda gradient, state, _=None: (update(gradient), state)
    )


def fails(*_: Any) -> Any:
    raise RuntimeError("out of coffee")


class Empty(gym.Env[Any, Any]):
    """An environment whose observations, or actions, have no numbers."""

    def __init__(self, seen: tuple[int, ...] = (0,), acting: tuple[int, ...] = (1,)):
        self.observation_space, self.action_space = (
            spaces.Box(-1, 1, seen),
            spaces.Box(-1, 1, acting),
        )
        self._seen = np.zeros(seen, np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self._seen, {}

    def step(self, action: Any) -> Any:
        return self._seen, 0.0, False, False, {}


CASES: dict[str, Case] = {
    # policies for other environments
    "table for another table": (
        lambda: small().for_env("FrozenLake-v1"),
        ("4 states", "16 states"),
    ),
    "network for other observations": (
        lambda: network().for_env("Acrobot-v1"),
        ("policy", "observations", "Acrobot"),
    ),
    "discrete policy for a box": (
        lambda: network().for_env("Pendulum-v1"),
        ("action_space", "'discrete'", "BoxActions"),
    ),
    "discrete policy for a box of Gymnasium": (
        lambda: ox.policies.Softmax(lambda _: jnp.zeros(2)).for_env(gym.make("Pendulum-v1")),
        ("action_space", "'discrete'"),
    ),
    "policy for nothing": (
        lambda: network().for_env(None),
        ("env must be", "Gymnasium", "got None"),
    ),
    "policy for a number": (lambda: network().for_env(5), ("env must be", "Gymnasium", "got 5")),
    "policy for a problem": (
        lambda: network().for_env(problem()),
        ("env must be", "Gymnasium", "Problem"),
    ),
    "recorded table": (lambda: record(small(), "FrozenLake-v1"), ("4 states", "16 states")),
    "recorded network": (lambda: record(network(), "Acrobot-v1"), ("policy", "observations")),
    "recorded on nothing": (
        lambda: record(network(), None),
        ("env must be", "Gymnasium", "got None"),
    ),
    "no frames a second": (
        lambda: record(network(), "CartPole-v1", fps=1e-9),
        ("fps", "0.01", "1e-09"),
    ),
    "all frames a second": (
        lambda: record(network(), "CartPole-v1", fps=1e9),
        ("fps", "1,000", "1000000000"),
    ),
    "wrapped nothing": (lambda: ox.policies.StableBaselinesPolicy(None), ("policy", "NoneType")),
    "no logits": (
        lambda: ox.sample(problem(), ox.policies.Softmax(lambda _: None), 2, KEY),
        ("logits", "2 actions", "None"),
    ),
    "trained without logits": (
        lambda: ox.train(
            problem(), episodes=10, policy=ox.policies.Softmax(lambda _: None), progress=False
        ),
        ("logits", "2 actions", "None"),
    ),
    "saved nowhere": (lambda: ox.save_policy(small(), None), ("path", "file", "None")),
    "saved to a number": (lambda: ox.save_policy(small(), 5), ("path", "file", "5")),
    "TensorBoard of a number": (lambda: TensorBoard(5), ("folder", "5")),
    # environments
    "gymnax in Gymnasium": (
        lambda: ox.make("gymnax/CartPole-v1", backend="gymnasium"),
        ("backend", "'auto'", "gymnax", "'gymnasium'"),
    ),
    "info of gymnax": (
        lambda: ox.make("gymnax/CartPole-v1", info=["cost"]),
        ("info", "gymnax", "['cost']"),
    ),
    "info of a number": (lambda: ox.make("CartPole-v1", info=5), ("info", "list of names", "5")),
    "observations without numbers": (
        lambda: ox.GymnasiumEnv(Empty),
        ("observation", "at least one number", "Box", "(0,)"),
    ),
    "actions without numbers": (
        lambda: ox.GymnasiumEnv(lambda: Empty((1,), (0,))),
        ("action", "at least one", "(0,)"),
    ),
    "box without entries": (
        lambda: ox.envs.BoxActions([], []),
        ("low", "at least one number", "[]"),
    ),
    # demonstrations
    "demonstrated reward": (
        lambda: imitate(features.Reward()),
        ("features", "no rewards", "Reward()"),
    ),
    "demonstrated stack": (
        lambda: imitate(features.Stack(features.State(), features.Reward())),
        ("features", "no rewards", "Stack"),
    ),
    "demonstrated square": (
        lambda: imitate(features.Outer(features.Reward())),
        ("no rewards", "Outer"),
    ),
    "demonstrated info": (
        lambda: imitate(features.Info("cost"), with_info(), np.zeros(4)),
        ("features", "no rewards", "Info"),
    ),
    "demonstrated infinity": (
        lambda: imitate(lambda o, _: jnp.log(o), CHAIN),
        ("features", "finite", "episode 0"),
    ),
    "demonstrated nowhere": (
        lambda: imitate(None, "FrozenLak-v1"),
        ("environment 'FrozenLak-v1'", "'FrozenLake-v1'"),
    ),
    # exact methods
    "unstabilisable system": (
        lambda: ox.exact.lqr.optimum(unstable()),
        ("stabilis", "horizon"),
    ),
    "system that diverges at no cost": (
        lambda: ox.exact.lqr.optimum(
            ox.Problem(ox.envs.LQR([[2.0]], [[1.0]], [[0.0]], [[1.0]]), discount=0.9)
        ),
        (
            "state_cost",
            "1.9",
            "horizon",
        ),  # to do nothing is best, with value 0; SciPy stabilises it for -2.89
    ),
    "multipliers of a number": (lambda: certify(5), ("multipliers", "dictionary", "5")),
    "multipliers without constraints": (
        lambda: certify(5, False),
        ("multipliers", "dictionary", "5"),
    ),
    "multipliers of other keys": (
        lambda: certify({1: 2.0, "a": 3.0}),
        ("multipliers", "['cost']", "[1, 'a']"),
    ),
    # utilities
    "tiny sigma": (lambda: utilities.LogCoverage(sigma=TINY), ("sigma", "1e-30", "1e-300")),
    "tiny smoothing": (lambda: utilities.Entropy(smoothing=TINY), ("smoothing", "1e-30", "1e-300")),
    "tiny smoothing of a target": (
        lambda: utilities.ForwardKL(np.full(4, 0.25), smoothing=TINY),
        ("smoothing", "1e-30", "1e-300"),
    ),
    "tiny sigma of welfare": (
        lambda: utilities.NashWelfare(np.ones((4, 2)), sigma=TINY),
        ("sigma", "1e-30", "1e-300"),
    ),
    "tiny sigma of a design": (
        lambda: utilities.LogDet(np.ones((4, 2, 1)), TINY),
        ("sigma", "1e-30", "1e-300"),
    ),
    "tiny temperature": (
        lambda: utilities.SoftMin(np.ones((4, 2)), temperature=TINY),
        ("temperature", "1e-30", "1e-300"),
    ),
    "feature function with if": (
        lambda: counting(lambda o, _: o[0] if o[0] > 0 else o[1]),
        ("feature function", "jnp.where"),
    ),
    "feature function with float": (
        lambda: counting(lambda o, _: float(o[0])),
        ("feature function", "jnp.where"),
    ),
    "feature function of NumPy": (
        lambda: counting(lambda o, _: np.log(o[0])),
        ("feature function", "jax.numpy"),
    ),
    "policy features with if": (
        lambda: ox.policies.linear(lambda o: o if o[0] > 0 else -o)(ox.make("CartPole-v1"), KEY),
        ("features", "jnp.where"),
    ),
    # step rules
    "direction of another shape": (
        lambda: train(
            rule(lambda slope: jax.tree.map(lambda leaf: jnp.ones(leaf.shape[-1:]), slope))
        ),
        ("rule", "shapes", "(4, 2)", "(2,)"),
    ),
    "direction of more axes": (
        lambda: train(rule(lambda slope: jax.tree.map(lambda leaf: leaf[None], slope))),
        ("rule", "(4, 2)", "(1, 4, 2)"),
    ),
    "complex direction": (
        lambda: train(rule(lambda slope: jax.tree.map(lambda leaf: leaf * 1j, slope))),
        ("rule", "float32", "complex64"),
    ),
    "no direction": (lambda: train(rule(lambda _: None)), ("rule", "shapes", "None")),
    "rule that fails": (lambda: train(rule(fails)), ("rule", "update", "out of coffee")),
    "rule that fails at first": (
        lambda: train(rule(lambda slope: slope, fails)),
        ("rule", "init", "out of coffee"),
    ),
    "rule of another state": (
        lambda: train(
            optax.GradientTransformation(
                lambda _: jnp.zeros(()), lambda slope, state, _=None: (slope, (state, state))
            )
        ),
        ("rule", "state"),
    ),
    # the benchmark
    "benchmark of a text": (
        lambda: ox.bench.run("bench", "reinforce"),
        ("algorithms", "dictionary", "'reinforce'"),
    ),
    "benchmark of a list": (
        lambda: ox.bench.run("bench", ["reinforce"]),
        ("algorithms", "dictionary", "list"),
    ),
    "benchmark of a number": (
        lambda: ox.bench.run("bench", {5: None}),
        ("algorithms", "names", "5"),
    ),
    "benchmark without a name": (
        lambda: ox.bench.run("bench", {"": None}),
        ("algorithms", "names", "''"),
    ),
}


@pytest.fixture(scope="module")
def outcomes(compiled_fast: dict[str, str]) -> Outcomes:
    return outcomes_of(__file__, compiled_fast)


@pytest.mark.parametrize("case", CASES)
def test_misfits_raise_value_error(case: str, outcomes: Outcomes):
    assert_sentence(outcomes[case], CASES[case][1])


def test_demonstrations_take_the_name_of_an_environment():
    pairs = [[(0, 1), (4, 2)]]
    by_name = ox.demonstrations("FrozenLake-v1", pairs)
    assert by_name.tolist() == ox.demonstrations(ox.make("FrozenLake-v1"), pairs).tolist()
    assert by_name[0, 1] == pytest.approx(1 - 0.99)
    assert ox.demonstrations("FrozenLake-v1", ox.policies.Tabular(jnp.zeros((16, 4)))).shape == (
        16,
        4,
    )


def test_policies_that_fit_are_recorded_and_predict(tmp_path: Path):
    lake = ox.policies.Tabular(jnp.zeros((16, 4))).for_env(gym.make("FrozenLake-v1"))
    assert lake.predict(0) in range(4)
    made = gym.make("CartPole-v1", render_mode="rgb_array")
    assert network().for_env(made).predict(made.reset(seed=0)[0]) in (0, 1)
    assert (
        ox.record(network(), made, tmp_path / "episode.gif", max_steps=2, fps=0.01).stat().st_size
        > 0
    )
    made.step(0)  # it stays open


def test_check_env_finds_empty_spaces():
    assert any("no numbers" in it.what for it in ox.check_env(Empty, 1, max_steps=3))
    assert any(
        "action" in it.what for it in ox.check_env(lambda: Empty((1,), (0,)), 1, max_steps=3)
    )


if __name__ == "__main__":
    print_outcomes(CASES)
