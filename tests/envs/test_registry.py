"""Environments by name."""

import re
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.toy_text.frozen_lake import MAPS

from occupax import envs
from occupax.envs import Acrobot, CartPole, GymnasiumEnv, TabularMDP, make, registry
from occupax.envs.base import Environment, number_of_states


@pytest.fixture
def own_names(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Remove environments registered during a test."""
    factories = dict(registry._FACTORIES)
    monkeypatch.setattr(registry, "_FACTORIES", factories)
    return factories


def refusal(name: Any, **options: Any) -> str:
    with pytest.raises(ValueError, match=r"\w") as caught:
        envs.make(name, **options)
    return str(caught.value)


# (states or None, actions, time limit), from Gymnasium's documentation
LISTED = {
    "Acrobot-v1": (None, 3, 500),
    "CartPole-v0": (None, 2, 200),
    "CartPole-v1": (None, 2, 500),
    "CliffWalking-v1": (48, 4, None),
    "CliffWalkingSlippery-v1": (48, 4, None),
    "ContinuousCartPole-v1": (None, "box", 500),
    "FrozenLake-v1": (16, 4, None),
    "FrozenLake8x8-v1": (64, 4, None),
    "MountainCar-v0": (None, 3, 200),
    "MountainCarContinuous-v0": (None, "box", 999),
    "Pendulum-v1": (None, "box", 200),
    "Taxi-v4": (500, 6, None),
}


def test_list_is_sorted_and_complete():
    assert envs.list() == sorted(LISTED)


@pytest.mark.parametrize("name", LISTED)
def test_every_listed_name_is_made(name: str):
    env = envs.make(name)
    states, actions, time_limit = LISTED[name]
    found = "box" if isinstance(env.action_space, envs.BoxActions) else env.num_actions
    assert (found, env.time_limit) == (actions, time_limit)
    assert (env.num_states if isinstance(env, TabularMDP) else None) == states


@pytest.mark.parametrize("name", ["CartPole-v0", "CartPole-v1", "Acrobot-v1", "MountainCar-v0"])
def test_twins_have_the_time_limits_of_gymnasium(name: str):
    assert envs.make(name).time_limit == gymnasium.spec(name).max_episode_steps


def test_a_twin_takes_another_time_limit():
    assert envs.make("CartPole-v1", time_limit=100).time_limit == 100


def test_twins_are_of_their_own_kind():
    assert isinstance(envs.make("CartPole-v1"), CartPole)
    assert isinstance(envs.make("Acrobot-v1"), Acrobot)


def test_tables_of_gymnasium_are_known_again():
    names = (
        "FrozenLake-v1",
        "FrozenLake8x8-v1",
        "CliffWalking-v1",
        "CliffWalkingSlippery-v1",
        "Taxi-v4",
    )
    assert [registry.table_name(make(name)) for name in names] == list(names)
    assert registry.table_name(make("FrozenLake-v1", is_slippery=False)) is None
    assert registry.table_name(make("FrozenLake-v1", desc=["SFFG", "FFFF", "FHFF", "FFFF"])) is None


def test_slippery_cliff_is_slippery():
    still, slippery = envs.make("CliffWalking-v1"), envs.make("CliffWalkingSlippery-v1")
    assert isinstance(still, TabularMDP)
    assert isinstance(slippery, TabularMDP)
    assert still.successors.shape == (48, 4, 1)
    assert slippery.successors.shape == (48, 4, 3)


def test_options_reach_gymnasium():
    env = envs.make("FrozenLake-v1", map_name="8x8", is_slippery=False)
    assert isinstance(env, TabularMDP)
    assert env.successors.shape == (64, 4, 1)
    own_map = envs.make("FrozenLake-v1", desc=["SF", "HG"])
    assert isinstance(own_map, TabularMDP)
    np.testing.assert_array_equal(own_map.terminal, [False, False, True, True])


def test_gymnasium_id_that_is_not_listed_but_publishes_a_table_works(
    monkeypatch: pytest.MonkeyPatch,
):
    kind = "gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv"
    spec = gymnasium.envs.registration.EnvSpec(
        "MyLake-v0", entry_point=kind, kwargs={"desc": MAPS["4x4"]}
    )
    monkeypatch.setitem(gymnasium.registry, "MyLake-v0", spec)
    assert "MyLake-v0" not in envs.list()
    env = envs.make("MyLake-v0")
    assert isinstance(env, TabularMDP)
    assert env.num_states == 16


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("FrozenLake", "FrozenLake-v1"),
        ("FrozenLake8x8", "FrozenLake8x8-v1"),
        ("cartpole-v1", "CartPole-v1"),
        ("Acrobat-v1", "Acrobot-v1"),
    ],
)
def test_unknown_name_is_answered_with_the_nearest_and_the_list(typed: str, meant: str):
    message = refusal(typed)
    assert message.startswith(f"environment '{typed}' is not known. Did you mean '{meant}'?")
    assert message.endswith(f"Known: {', '.join(envs.list())}.")


def test_name_like_no_other_is_answered_with_the_list_alone():
    assert refusal("zzz") == f"environment 'zzz' is not known. Known: {', '.join(envs.list())}."


def test_own_name_is_suggested_as_well(own_names: dict[str, Any]):
    envs.register("windy-corridor", lambda: TabularMDP.chain(3))
    assert "Did you mean 'windy-corridor'?" in refusal("windy-coridor")


def test_gymnasium_id_without_table_or_twin_is_the_environment_itself():
    env = make("Blackjack-v1")
    assert isinstance(env, GymnasiumEnv)
    assert (env.num_actions, env.observation_spec().shape, env.num_states) == (2, (45,), None)


@pytest.mark.parametrize("name", ["CartPole-v1", "FrozenLake-v1"])
def test_backend_gymnasium_is_the_environment_itself_even_if_there_is_a_twin(name: str):
    env = make(name, backend="gymnasium")
    assert isinstance(env, GymnasiumEnv)
    assert env.num_actions == make(name).num_actions


def test_discrete_gymnasium_id_that_publishes_no_table_has_states_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
):
    class Silent(gymnasium.Env[int, int]):
        action_space = observation_space = gymnasium.spaces.Discrete(2)  # pyright: ignore[reportAssignmentType]

    monkeypatch.setitem(
        gymnasium.registry,
        "Silent-v0",
        gymnasium.envs.registration.EnvSpec("Silent-v0", entry_point=Silent),
    )
    assert number_of_states(make("Silent-v0")) == 2
    with pytest.raises(ValueError, match="Silent-v0 does not publish its transition table `P`"):
        TabularMDP.from_gymnasium("Silent-v0")


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("FrozenLake-v1", {"slippery": True}, "TypeError: "),
        ("FrozenLake-v1", {"map_name": "9x9"}, "KeyError: '9x9'"),
        ("CartPole-v1", {"is_slippery": True}, "does not take the options"),
        ("Acrobot-v1", {"time_limt": 3}, "does not take the options"),
    ],
)
def test_wrong_option_is_shown_with_the_reason(name: str, options: dict[str, Any], reason: str):
    message = refusal(name, **options)
    assert name in message
    assert str(options) in message
    assert reason in message


def test_option_with_an_impossible_value_is_refused():
    # Gymnasium makes a table of it, with probabilities of 1.5 and -0.25
    assert "] must not be negative, got -0.25" in refusal("FrozenLake-v1", success_rate=1.5)


def test_options_do_not_go_with_an_environment_that_is_made():
    # they would have no effect
    with pytest.raises(
        ValueError, match=r"options go with a Gymnasium id.*got \{'is_slippery': False\}"
    ):
        TabularMDP.from_gymnasium(gymnasium.make("FrozenLake-v1"), is_slippery=False)


def test_from_gymnasium_refuses_unknown_ids_and_names_the_nearest_one():
    with pytest.raises(
        ValueError, match=r"id 'FrozenLak-v1' is not known\. Did you mean 'FrozenLake-v1'"
    ):
        TabularMDP.from_gymnasium("FrozenLak-v1")


def test_registered_factory_is_listed_and_gets_the_options(own_names: dict[str, Any]):
    def corridor(n: int = 4) -> Environment:
        return TabularMDP.chain(n)

    envs.register("Corridor", corridor)
    assert "Corridor" in envs.list()
    assert envs.list() == sorted(envs.list())
    for options, states in (({}, 4), ({"n": 7}, 7)):
        env = envs.make("Corridor", **options)
        assert isinstance(env, TabularMDP)
        assert env.num_states == states
    assert "Corridor does not take the options {'m': 7}" in refusal("Corridor", m=7)
    assert "n must be an integer" in refusal("Corridor", n=0)


def test_own_factory_takes_over_a_gymnasium_id_that_has_none(own_names: dict[str, Any]):
    envs.register("Blackjack-v1", lambda: TabularMDP.chain(2))
    assert isinstance(envs.make("Blackjack-v1"), TabularMDP)


@pytest.mark.parametrize("name", ["CartPole-v1", "Taxi-v4", "Corridor"])
def test_name_that_is_taken_is_refused_and_keeps_its_meaning(name: str, own_names: dict[str, Any]):
    envs.register("Corridor", lambda: TabularMDP.chain(4))
    before = dict(own_names)
    with pytest.raises(
        ValueError, match=re.escape(f"name must be new, but '{name}' is registered already.")
    ):
        envs.register(name, lambda: TabularMDP.chain(5))
    assert own_names == before


def test_what_one_test_registers_is_gone_in_the_next():
    assert "Corridor" not in envs.list()


def test_factory_must_be_callable(own_names: dict[str, Any]):
    not_a_factory: Any = TabularMDP.chain(2)
    with pytest.raises(Exception, match="factory"):  # the shape checks of the tests may speak first
        envs.register("Corridor", not_a_factory)
    assert "Corridor" not in envs.list()
