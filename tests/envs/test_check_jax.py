"""The check of JAX environments: correct ones have no issue, each mistake is located."""

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import occupax as ox
from commands import occupax
from occupax.envs import ActionSpace, DiscreteActions, Environment

LEAKED: list[Any] = []


class Drift(Environment):
    """A point that is pushed left or right, until it has gone far or ten steps are over."""

    action_space: ActionSpace = DiscreteActions(2)
    time_limit: int | None = eqx.field(default=10, static=True)

    def reset(self, key: Any) -> Any:
        return {"place": jax.random.uniform(key), "time": jnp.zeros((), jnp.int32)}

    def step(self, state: Any, action: Any, key: Any) -> Any:
        place = state["place"] + 0.3 * (2 * action - 1) + 0.1 * jax.random.normal(key)
        return {"place": place, "time": state["time"] + 1}, -jnp.abs(place)

    def observe(self, state: Any) -> Any:
        return state["place"][None]

    def terminated(self, state: Any) -> Any:
        return jnp.abs(state["place"]) > 1.2

    def truncated(self, state: Any) -> Any:
        return state["time"] >= 10


class Branches(Drift):
    def step(self, state: Any, action: Any, key: Any) -> Any:
        return (state, jnp.ones(())) if action > 0 else (state, jnp.zeros(()))


class FiveValues(Drift):
    def step(self, state: Any, action: Any, key: Any) -> Any:
        return *super().step(state, action, key), False, False, {}


class Retyped(Drift):
    def step(self, state: Any, action: Any, key: Any) -> Any:
        state, reward = super().step(state, action, key)
        return state | {"time": state["time"] + 1.0}, reward


class Restructured(Drift):
    def step(self, state: Any, action: Any, key: Any) -> Any:
        state, reward = super().step(state, action, key)
        return (state["place"], state["time"]), reward


class Named(Drift):
    def reset(self, key: Any) -> Any:
        return super().reset(key) | {"name": "drift"}


class VectorReward(Drift):
    def step(self, state: Any, action: Any, key: Any) -> Any:
        state, reward = super().step(state, action, key)
        return state, reward[None]


class NumberedTrajectories(Drift):
    def terminated(self, state: Any) -> Any:
        return jnp.asarray(super().terminated(state), jnp.int32)


class Dicts(Drift):
    def observe(self, state: Any) -> Any:
        return state


class Leaky(Drift):
    def reset(self, key: Any) -> Any:
        LEAKED[:] = [key]
        return super().reset(key)


class Chance(Drift):
    def reset(self, key: Any) -> Any:
        return super().reset(key) | {"place": jnp.asarray(np.random.uniform(), jnp.float32)}  # noqa: NPY002


class Writing(Drift):
    seen: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(1))

    def observe(self, state: Any) -> Any:
        self.seen[0] += 1
        return super().observe(state)


class Autoreset(Drift):
    def step(self, state: Any, action: Any, key: Any) -> Any:
        stepping, resetting = jax.random.split(key)
        following, reward = super().step(state, action, stepping)
        over = self.terminated(following) | self.truncated(following)
        return jax.tree.map(
            lambda new, old: jnp.where(over, new, old), self.reset(resetting), following
        ), reward


class Home(Drift):
    """Begins at 0, and is put there again at the end."""

    def reset(self, key: Any) -> Any:
        return super().reset(key) | {"place": jnp.zeros(())}

    def step(self, state: Any, action: Any, key: Any) -> Any:
        following, reward = super().step(state, action, key)
        return following | {
            "place": jnp.where(self.truncated(following), 0.0, following["place"])
        }, reward

    def terminated(self, state: Any) -> Any:
        return jnp.zeros((), bool)


class Late(Home):
    def truncated(self, state: Any) -> Any:
        return state["time"] > 10


class Endless(Home):
    time_limit: int | None = eqx.field(default=None, static=True)

    def truncated(self, state: Any) -> Any:
        return jnp.zeros((), bool)


class Divides(Drift):
    def step(self, state: Any, action: Any, key: Any) -> Any:
        following, _ = super().step(state, action, key)
        return following, 1.0 / (3.0 - following["time"])


def test_a_good_environment_is_well():
    assert ox.check_env(Drift(), episodes=3) == ()


@pytest.mark.parametrize(
    ("env", "what", "actual", "where"),
    [
        (
            Branches,
            "step, compiled, raised TracerBoolConversionError",
            "traced array",
            "env.step(state, action, key)",
        ),
        (
            FiveValues,
            "step returns the wrong structure",
            "5 values",
            "env.step(state, action, key)",
        ),
        (
            Retyped,
            "another shape or type than reset",
            "float32 of shape ()",
            "state['time'] after env.step(",
        ),
        (
            Restructured,
            "a state of another structure than reset",
            "PyTreeDef",
            "env.step(state, action, key)",
        ),
        (Named, "reset, compiled, raised TypeError", "class 'str'", "env.reset(key)"),
        (
            VectorReward,
            "reward has the wrong shape or type",
            "float32 of shape (1,)",
            "env.step(state, action, key)",
        ),
        (
            NumberedTrajectories,
            "terminated has the wrong shape or type",
            "int32 of shape ()",
            "env.terminated(state)",
        ),
        (Dicts, "an observation is not an array", "dict", "env.observe(state)"),
        (Leaky, "reset, compiled, raised Exception", "Leaked", "env.reset(key)"),
        (
            Chance,
            "the environment is not a pure function",
            "another observation",
            "reset of episode 0, seed 1",
        ),
        (Writing, "the environment changes itself", "array", "env"),
        (Autoreset, "a step resets", "array", "of episode"),
        (Home, "an episode ends where episodes begin", "array([0.]", "step 10 of episode 0"),
        (
            Late,
            "an episode continues after its time limit",
            "neither terminated nor truncated after 10 steps",
            "step 10",
        ),
        (
            Endless,
            "an episode does not end",
            "no end after 12 steps, and no time limit",
            "episode 0, seed 1",
        ),
        (Divides, "reward is not finite", "inf", "step 3 of episode"),
    ],
)
def test_each_mistake_is_found_and_placed(env: type[Drift], what: str, actual: str, where: str):
    findings = ox.check_env(env, episodes=3, seed=1, max_steps=12)
    found = next(finding for finding in findings if what in finding.what)
    assert actual in found.actual
    assert where in found.where
    assert found.severity == ("warning" if env in (Home, Endless) else "error")
    assert found.expected
    assert found.remedy.endswith(".")


def test_the_command_takes_classes_in_jax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert occupax("check-env", f"{__name__}:Drift", "--episodes", 2)[:2] == (
        0,
        f"{__name__}:Drift: no issues\n",
    )
    code, out, err = occupax("check-env", f"{__name__}:NumberedTrajectories")
    assert code == 1
    assert out.startswith(
        "error: terminated has the wrong shape or type\n  expected  bool of shape ()\n"
    )
    assert f"{__name__}:NumberedTrajectories has an error." in err


def test_its_name_makes_it():
    assert isinstance(ox.make(f"{__name__}:Drift"), Drift)
    assert ox.make(f"{__name__}:Drift", time_limit=4).time_limit == 4
