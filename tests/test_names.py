"""Names and classes in place of objects, and errors that suggest the missing package or name."""

import re
from typing import Any

import equinox as eqx
import gymnasium
import jax
import numpy as np
import pytest

import occupax as ox
from occupax.envs import missing_envs as elsewhere
from occupax.training.setup import as_algorithm, make_setup

EMPTY, ABSENT = "MiniGrid-Empty-5x5-v0", "which is not installed: `pip install"
CHAIN = ox.Problem(ox.TabularMDP.chain(3), horizon=4)


def refusal(function: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(ValueError, match=r"\w") as caught:
        function(*arguments, **options)
    return str(caught.value)


def test_a_problem_takes_the_names_of_its_environment_and_utility():
    named = ox.Problem("FrozenLake-v1", utility="log-coverage", horizon=9)
    made = ox.Problem(ox.make("FrozenLake-v1"), utility=ox.utilities.LogCoverage(), horizon=9)
    assert eqx.tree_equal(named, made)
    assert isinstance(ox.Problem("CartPole-v1").env, ox.envs.CartPole)


def test_classes_and_environments_are_accepted_as_names_are():
    assert eqx.tree_equal(ox.make(ox.envs.Pendulum, time_limit=7), ox.envs.Pendulum(time_limit=7))
    assert eqx.tree_equal(ox.Problem(ox.envs.Pendulum).env, ox.envs.Pendulum())
    env = ox.envs.CartPole()
    assert ox.make(env) is env
    cliff = ox.Problem(
        gymnasium.envs.registration.load_env_creator("gymnasium.envs.toy_text:CliffWalkingEnv"),
        horizon=5,
    )
    assert isinstance(cliff.env, ox.GymnasiumEnv)
    assert cliff.env.num_states == 48


def test_training_with_names_is_training_with_what_they_name():
    def trained(algorithm: Any, policy: Any) -> ox.Result:
        return ox.train(CHAIN, algorithm, episodes=40, policy=policy, progress=False)

    by_name = trained("reinforce", "tabular").policy()
    assert eqx.tree_equal(by_name, trained(ox.REINFORCE(), ox.policies.tabular()).policy())
    tried = ox.sweep(
        CHAIN, "reinforce", {"batch": [20]}, episodes=40, policy="tabular", progress=False
    )
    assert eqx.tree_equal(by_name, tried.results[0].policy())


def test_training_takes_environments_and_names_as_problems():
    def trained(problem: Any) -> ox.Result:
        return ox.train(problem, "reinforce", episodes=10, policy="linear", progress=False)

    stated = trained(ox.Problem("CartPole-v1"))
    for problem in ("CartPole-v1", ox.make("CartPole-v1"), ox.envs.CartPole):
        result = trained(problem)
        assert eqx.tree_equal(result.problem, ox.Problem("CartPole-v1"))
        assert eqx.tree_equal(result.policy(), stated.policy())


def test_problems_are_taken_as_environments_and_names_elsewhere():
    problem, key = ox.Problem("CartPole-v1"), jax.random.key(0)
    policy = ox.policies.linear()(problem.env, key)
    sampled = [
        ox.sample(source, policy, 2, key) for source in (problem, problem.env, "CartPole-v1")
    ]
    assert eqx.tree_equal(*sampled)
    sweep = ox.sweep(
        "CartPole-v1", "reinforce", {"batch": [5]}, episodes=5, policy="linear", progress=False
    )
    assert eqx.tree_equal(sweep.results[0].problem, problem)
    lake, uniform = ox.Problem("FrozenLake-v1", horizon=100), np.full((16, 4), 0.25)
    assert ox.solve("FrozenLake-v1").value == ox.solve(lake).value
    assert ox.exact.value(lake.env, uniform) == ox.exact.value(lake, uniform)
    assert ox.exact.certificate("FrozenLake-v1", uniform) == ox.exact.certificate(lake, uniform)
    values = [
        ox.exact.Evaluator(source).values(uniform[None]) for source in ("FrozenLake-v1", lake)
    ]
    np.testing.assert_array_equal(*values)
    assert ox.theory.occupancy_smoothness(lake.env) == ox.theory.occupancy_smoothness(lake)
    system = ox.envs.LQR.random(states=2, actions=1, seed=0)
    endless = ox.Problem(
        system
    )  # an environment without a time limit counts until 1% of the discounted mass is left
    within = ox.Problem(system, horizon=endless.effective_horizon)
    assert ox.exact.lqr.optimum(system).value == ox.exact.lqr.optimum(within).value


@pytest.mark.parametrize(
    "problem", [5, None, gymnasium.make("CartPole-v1")], ids=["number", "nothing", "gym.Env"]
)
def test_what_states_no_problem_is_refused(problem: Any):
    said = refusal(ox.train, problem, None, 10)
    assert said.startswith(
        "problem must be an occupax.Problem, an environment or the name of one, got "
    )
    assert said.endswith("; give a function that makes the environment.")


@pytest.mark.parametrize("name", ox.algorithms.ALGORITHMS)
def test_algorithms_are_made_with_their_defaults(name: str):
    assert as_algorithm(name) == ox.algorithms.ALGORITHMS[name]()
    assert name.replace("-", "") == type(as_algorithm(name)).__name__.lower()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: ox.Problem("CartPol-v1"),
            "environment 'CartPol-v1' is not known. Did you mean 'CartPole-v1'?",
        ),
        (
            lambda: ox.Problem(CHAIN.env, utility="entropi"),
            "utility 'entropi' is not known. Did you mean 'entropy'?",
        ),
        (
            lambda: ox.train(CHAIN, "tsivrpg", 10),
            "algorithm 'tsivrpg' is not known. Did you mean 'tsivr-pg'?",
        ),
        (
            lambda: ox.train(CHAIN, None, 10, policy="mpl"),
            "policy 'mpl' is not known. Did you mean 'mlp'?",
        ),
        (
            lambda: ox.make(ox.envs.CartPole, length=3),
            "CartPole does not take the options {'length': 3}",
        ),
        (lambda: ox.make(dict), "dict must make a gymnasium.Env, got dict"),
    ],
)
def test_wrong_names_are_answered_with_the_nearest(make: Any, said: str):
    assert refusal(make).startswith(said)


def test_names_reach_the_setup_of_every_seed():
    setup = make_setup(CHAIN, [ox.REINFORCE()], "linear", 2, 0, 1, False)
    assert [type(policy) for policy in setup.policies] == [ox.policies.Softmax] * 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Taxi-v3", "'Taxi-v3' is not offered by what is installed: use 'Taxi-v4'."),
        (
            "LunarLander-v2",
            "'LunarLander-v2' is not offered by what is installed: use 'LunarLander-v3'.",
        ),
        (
            EMPTY,
            (
                f"{EMPTY!r} belongs to the package minigrid, {ABSENT} 'minigrid'`, "
                f"then write 'minigrid:{EMPTY}'."
            ),
        ),
        (
            f"minigrid:{EMPTY}",
            f"{EMPTY!r} belongs to the package minigrid, {ABSENT} 'minigrid'`, then write",
        ),
        (
            "ALE/Pong-v5",
            (
                f"'ALE/Pong-v5' belongs to the package ale_py, {ABSENT} 'ale-py'`, "
                "then write 'ale_py:ALE/Pong"
            ),
        ),
    ],
)
@pytest.mark.parametrize("make", [ox.make, ox.GymnasiumEnv])
def test_an_id_of_another_package_or_version_says_what_to_do(
    make: Any, name: str, said: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(elsewhere, "find_spec", lambda _: None)
    assert refusal(make, name).startswith(said)


def test_a_package_that_is_there_is_to_be_imported(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(elsewhere, "find_spec", lambda module: module)
    said = "which is installed but was not imported: write 'minigrid:MiniGrid-Empty-5x5-v0'."
    assert refusal(ox.make, "MiniGrid-Empty-5x5-v0").endswith(said)


def test_an_environment_whose_simulator_is_missing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
):
    def absent(**_: Any) -> Any:
        raise gymnasium.error.DependencyNotInstalled(
            'Box2D is not installed, run `pip install "gymnasium[box2d]"`'
        )

    spec = gymnasium.envs.registration.EnvSpec("Lander-v0", entry_point=absent)
    monkeypatch.setitem(gymnasium.registry, "Lander-v0", spec)
    message = refusal(ox.make, "Lander-v0")
    assert message.startswith(
        "'Lander-v0' needs a package that is not installed: Box2D is not installed"
    )
    assert re.search(r'pip install "gymnasium\[box2d\]"`\.$', message)


def test_an_id_after_its_module_is_made_as_gymnasium_does():
    env = ox.make("gymnasium:Blackjack-v1")
    assert isinstance(env, ox.GymnasiumEnv)
    assert env.make().spec == gymnasium.make("gymnasium:Blackjack-v1").spec
    assert eqx.tree_equal(ox.make("gymnasium:FrozenLake-v1"), ox.make("FrozenLake-v1"))
