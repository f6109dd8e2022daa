"""Faulty gymnax-like environments: each fault gives one error message and one issue."""

from typing import Any, NamedTuple

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import occupax as ox
from gymnax_like import Params, SixValues, Space, Walk
from occupax.envs.gymnax_functions import find_fault
from sentences import assert_sentence, outcome


class Branches(Walk):
    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        return super().step_env(key, state, 1 if action > 0 else 0, params)


class Branching(Walk):
    def reset_env(self, key: Any, params: Any) -> Any:
        place = 1 if jax.random.uniform(key) > 0.5 else 0
        return super().observe((place, 0), params), (place, 0)


class FourValues(Walk):
    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        return super().step_env(key, state, action, params)[:4]


class VectorReward(Walk):
    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        seen, state, reward, done, info = super().step_env(key, state, action, params)
        return seen, state, jnp.array([reward, reward]), done, info


class ComplexReward(Walk):
    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        seen, state, reward, done, info = super().step_env(key, state, action, params)
        return seen, state, reward * 1j, done, info


class VectorDone(Walk):
    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        seen, state, reward, done, info = super().step_env(key, state, action, params)
        return seen, state, reward, jnp.array([done, done]), info


class Longer(Walk):
    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        seen, *rest = super().step_env(key, state, action, params)
        return jnp.append(seen, 0.0), *rest


class Fractional(Walk):
    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        seen, (place, time), *rest = super().step_env(key, state, action, params)
        return seen, (place + 0.5, time), *rest


class Restructured(Walk):
    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        seen, (place, time), *rest = super().step_env(key, state, action, params)
        return seen, [place, time], *rest


class ObservationOnly(Walk):
    def reset_env(self, key: Any, params: Any) -> Any:
        return super().reset_env(key, params)[0]


class Dicts(Walk):
    def observe(self, state: Any, params: Any) -> Any:
        return {"place": jnp.asarray(state[0])}


class Complex(Walk):
    def observe(self, state: Any, params: Any) -> Any:
        return super().observe(state, params) * 1j


class Raises(Walk):
    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        raise RuntimeError("out of coffee")


class Box(NamedTuple):
    low: Any
    high: Any
    shape: Any


class OtherSpace(Walk):
    def observation_space(self, params: Any) -> Any:
        return Box(0.0, 9.0, (3,))


class OtherBounds(Walk):
    def action_space(self, params: Any) -> Any:
        return Box(np.zeros(3), np.ones(3), (2,))


class NoActions(Walk):
    def action_space(self, params: Any) -> Any:
        return Space(0)


class StrangeActions(Walk):
    def action_space(self, params: Any) -> Any:
        return "left or right"


FAULTS: dict[type[Walk], tuple[str, ...]] = {
    Branches: ("step_env needs the numbers", "jnp.where"),
    Branching: ("reset_env needs the numbers", "jnp.where"),
    FourValues: (
        "step_env returns the wrong structure",
        "4 values",
        "observation, state, reward, done, info",
    ),
    VectorReward: (
        "reward has the wrong shape or type",
        "int32 of shape (2,)",
        "float32 of shape ()",
    ),
    ComplexReward: ("reward has the wrong shape or type", "complex64 of shape ()"),
    VectorDone: ("done has the wrong shape or type", "bool of shape (2,)"),
    Longer: ("the observation of step_env has the wrong shape", "(3,)", "(2,)"),
    Fractional: (
        "a state of another shape or type than reset",
        "float32 of shape ()",
        "int32 of shape ()",
    ),
    Restructured: ("a state of another structure than reset", "PyTreeDef"),
    ObservationOnly: ("reset_env returns the wrong structure", "(observation, state)"),
    Dicts: ("an observation is not an array", "dict"),
    Complex: ("the observation of reset_env is not real", "complex64"),
    Raises: ("step_env raised RuntimeError", "out of coffee"),
    OtherSpace: ("the observation of reset_env has the wrong shape", "(2,)", "(3,)"),
    OtherBounds: (
        "action_space raised ValueError",
        "low of a space must have the shape (2,), got (3,)",
    ),
    NoActions: ("action_space raised ValueError", "at least 1, got 0"),
    StrangeActions: ("action_space raised ValueError", "Discrete or a Box"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_each_fault_is_a_sentence_and_a_finding(kind: type[Walk]):
    assert_sentence(outcome(lambda: ox.from_gymnax(kind())), (kind.__name__, *FAULTS[kind]))
    (finding,) = ox.check_env(kind(), 1, max_steps=3)
    assert (finding.severity, finding.what in str(outcome(lambda: ox.from_gymnax(kind())))) == (
        "error",
        True,
    )


class Pair(NamedTuple):
    max_steps_in_episode: Any = 6
    goal: int = 4


@pytest.mark.parametrize(
    ("make", "fragments"),
    [
        (lambda: ox.from_gymnax(Walk(), 5), ("reset_env raised AttributeError", "params")),
        (lambda: ox.from_gymnax(Walk(), "fast"), ("reset_env raised AttributeError", "params")),
        (lambda: ox.from_gymnax(Walk(), Pair()), ("params must be a dataclass", "Pair")),
        (
            lambda: ox.from_gymnax(Walk(), Params("x")),
            ("max_steps_in_episode", "integer", "'x'"),
        ),
        (
            lambda: ox.make("gymnax/CartPole-v1", max_steps_in_episode=0),
            ("max_steps_in_episode", "at least 1", "0"),
        ),
        (
            lambda: ox.make("gymnax/CartPole-v1", gravity="x"),
            ("step_env raised", "CartPole-v1", "params"),
        ),
    ],
)
def test_wrong_params_are_refused(make: Any, fragments: tuple[str, ...]):
    assert_sentence(outcome(make), fragments)


@pytest.mark.parametrize("kind", [Walk, SixValues])
def test_an_environment_without_faults_is_checked_like_one_in_jax(kind: type[Walk]):
    assert find_fault(kind(), Params()) is None
    assert {it.what for it in ox.check_env(kind(), 2, max_steps=6)} <= {
        "an episode ends where episodes begin"
    }


@pytest.mark.parametrize(
    "name", ["Acrobot-v1", "Pendulum-v1", "UmbrellaChain-bsuite", "FourRooms-misc"]
)
def test_environments_of_gymnax_have_no_faults(name: str):
    assert find_fault(*gymnax.make(name)) is None
