import functools
import json
import os
import signal
import sys
import threading
import time
import warnings
from typing import Any

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import occupax as ox
from commands import occupax, run

BOX = spaces.Box(-10, 10, (2,), np.float32)


class Walk(gym.Env[Any, Any]):
    """A good environment of ten steps, whose parts are broken one at a time below."""

    observation_space: Any = BOX
    action_space: Any = spaces.Discrete(2)
    length = 10

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.state = 0, np.tanh(self.np_random.normal(size=2)).astype(np.float32)
        return self.observe(), {}

    def step(self, action):
        self.time += 1
        self.state = np.clip(self.state + np.float32(0.1), -10, 10)
        return self.observe(), self.reward(), self.time == self.length, False, {}

    def observe(self):
        return self.state.copy()

    def reward(self):
        return 1.0


def walk(**parts):
    """A walk with other parts: attributes, methods, or values in their place."""
    return type("Other", (Walk,), parts)


def declared(steps):
    return gym.envs.registration.EnvSpec("Walk-v0", max_episode_steps=steps)


def observing(space, value):
    """Return a walk that observes `value` from its third step on, and a valid sample before."""
    good = space.sample()
    return walk(observation_space=space, observe=lambda self: value if self.time >= 3 else good)


def returning(index, value, call="step"):
    """A walk with another value in what a step or a reset returns."""

    def changed(self, *arguments, **options):
        result = list(getattr(Walk, call)(self, *arguments, **options))
        result[index] = value
        return tuple(result)

    return walk(**{call: changed})


def shorter_step(self, action):
    observation, reward, terminated, _, info = Walk.step(self, action)
    return observation, reward, terminated, info


def divide(*_, **__):
    return 1 / 0


def fail_at_step_3(self):
    return 1 / (self.time - 3)


def old_reset(self):
    return Walk.reset(self)


def shared(self):
    """Walk in place, and return the array itself."""
    if self.time == 0:
        self.memory = self.state
    self.memory[:] = self.state
    return self.memory


def overwrite_at_reset(self, *, seed=None, options=None):
    if hasattr(self, "state"):
        self.state[:] = 0
    return Walk.reset(self, seed=seed)


def jump_in_place(self, action):
    result = Walk.step(self, action)
    self.parts["b"] += 1.0
    return ({"a": self.state.copy(), "b": self.parts["b"]}, *result[1:])


def reset_parts(self, *, seed=None, options=None):
    Walk.reset(self, seed=seed)
    self.parts = {"b": np.zeros(1, np.float32)}
    return {"a": self.state.copy(), "b": self.parts["b"]}, {}


def unseeded(self, *, seed=None, options=None):
    return Walk.reset(self)


def shaken(self):
    """Random numbers that no seed reaches, from the second step on."""
    return 0.0 if self.time < 2 else float(np.random.default_rng().normal())


PAIR = spaces.Dict({"a": BOX, "b": spaces.Discrete(3)})
WIDE = spaces.Box(-np.inf, np.inf, (2,), np.float32)
BYTES, NO_ACTIONS = (
    spaces.Box(0, 255, (2,), np.uint8),
    "action_space is of a kind that Occupax does not take",
)
PLACE = BOX.sample()
STEP_1, STEP_3 = "step 1 of episode 0, seed ", "step 3 of episode 0, seed "
RESET = "reset of episode 0, seed "

BROKEN = {
    "actions in words": (
        walk(action_space=spaces.Text(5)),
        NO_ACTIONS,
        "env.action_space",
        "Text(",
    ),
    "integers in a box": (
        walk(action_space=BYTES),
        NO_ACTIONS,
        "env.action_space",
        "Box(0, 255",
    ),
    "no action space": (
        walk(action_space=None),
        "action_space is no space",
        "env.action_space",
        "NoneType None",
    ),
    "a space that raises": (
        walk(observation_space=property(divide)),
        "observation_space raised ZeroDivisionError",
        "env.observation_space",
        "division by zero",
    ),
    "text": (
        walk(observation_space=spaces.Dict({"t": spaces.Text(3)}), observe=lambda _: {"t": "a"}),
        "observation_space['t'] is of a kind that Occupax does not take",
        "env.observation_space['t']",
        "Text(",
    ),
    "sequence": (
        walk(
            observation_space=spaces.Tuple([BOX, spaces.Sequence(BOX)]),
            observe=lambda _: (PLACE, (PLACE,)),
        ),
        "observation_space[1] is of a kind that Occupax does not take",
        "env.observation_space[1]",
        "Sequence(",
    ),
    "out of bounds": (
        observing(BOX, np.array([0, 11], np.float32)),
        "observation is out of bounds",
        STEP_3,
        "observation[1] is 11.0",
    ),
    "out of bounds at reset": (
        walk(observe=lambda _: np.array([-20, 11], np.float32)),
        "observation is out of bounds",
        RESET,
        "observation[0] is -20.0, and 1 other entries",
    ),
    "nan": (
        observing(BOX, np.array([np.nan, 0], np.float32)),
        "observation is not finite",
        STEP_3,
        "[0] is nan",
    ),
    "infinity": (
        observing(WIDE, np.array([0, np.inf], np.float32)),
        "observation is not finite",
        STEP_3,
        "is inf",
    ),
    "dtype": (observing(BOX, np.zeros(2)), "observation has the wrong dtype", STEP_3, "float64"),
    "shape": (
        observing(BOX, np.zeros((2, 1), np.float32)),
        "observation has the wrong shape",
        STEP_3,
        "(2, 1)",
    ),
    "list": (
        observing(BOX, [0.0, 0.0]),
        "observation has the wrong type",
        STEP_3,
        "list [0.0, 0.0]",
    ),
    "object": (observing(BOX, object()), "observation has the wrong type", STEP_3, "object"),
    "state": (
        observing(spaces.Discrete(3, start=5), 8),
        "observation is out of bounds",
        STEP_3,
        "8",
    ),
    "state below": (
        observing(spaces.Discrete(3, start=5), 4),
        "observation is out of bounds",
        STEP_3,
        "4",
    ),
    "state of floats": (
        observing(spaces.Discrete(3), 1.0),
        "observation has the wrong type",
        STEP_3,
        "float 1.0",
    ),
    "states": (
        observing(spaces.MultiDiscrete([2, 3]), np.array([1, 3])),
        "observation is out of bounds",
        STEP_3,
        "observation[1] is 3",
    ),
    "bits": (
        observing(spaces.MultiBinary(2), np.array([0, 2])),
        "observation is out of bounds",
        STEP_3,
        "[1] is 2",
    ),
    "bits of floats": (
        observing(spaces.MultiBinary(2), np.ones(2)),
        "observation has the wrong dtype",
        STEP_3,
        "64",
    ),
    "no dict": (observing(PAIR, PLACE), "observation has the wrong type", STEP_3, "ndarray"),
    "keys": (observing(PAIR, {"a": PLACE}), "observation has the wrong keys", STEP_3, "['a']"),
    "part": (
        observing(PAIR, {"a": PLACE, "b": 3}),
        "observation['b'] is out of bounds",
        STEP_3,
        "3",
    ),
    "tuple": (
        observing(spaces.Tuple([BOX, BOX]), (PLACE,)),
        "observation has the wrong type",
        STEP_3,
        "tuple (array",
    ),
    "part of a tuple": (
        observing(spaces.Tuple([BOX, spaces.Discrete(2)]), (PLACE, 2)),
        "observation[1] is out of bounds",
        STEP_3,
        "2",
    ),
    "nan reward": (walk(reward=lambda _: np.nan), "reward is not finite", STEP_1, "nan"),
    "infinite reward": (
        walk(reward=lambda _: np.float32(-np.inf)),
        "reward is not finite",
        STEP_1,
        "-inf",
    ),
    "huge reward": (walk(reward=lambda _: 10**400), "reward is not finite", STEP_1, "1000"),
    "no reward": (walk(reward=lambda _: None), "reward is not a number", STEP_1, "NoneType None"),
    "reward of arrays": (
        walk(reward=lambda _: np.ones(1)),
        "reward is not a number",
        STEP_1,
        "ndarray array([1.])",
    ),
    "terminated": (returning(2, 0), "terminated is not a bool", STEP_1, "int 0"),
    "truncated": (returning(3, None), "truncated is not a bool", STEP_1, "NoneType None"),
    "info": (returning(4, None), "the info of step is not a dict", STEP_1, "NoneType None"),
    "info of reset": (
        returning(1, [], "reset"),
        "the info of reset is not a dict",
        RESET,
        "list []",
    ),
    "reset without info": (
        walk(reset=lambda self, **_: Walk.reset(self)[0]),
        "reset returns the wrong structure",
        RESET,
        "ndarray array(",
    ),
    "four values": (
        walk(step=shorter_step),
        "step returns the wrong structure",
        STEP_1,
        "4 values (ndarray, float, bool, dict); that was the API before Gymnasium",
    ),
    "four values, wrapped": (
        lambda: gym.wrappers.TimeLimit(walk(step=shorter_step)(), 5),
        "step returns the wrong structure",
        STEP_1,
        "4 values (",
    ),
    "nothing returned": (
        walk(step=lambda *_: None),
        "step returns the wrong structure",
        STEP_1,
        "NoneType None",
    ),
    "reset raises": (
        walk(reset=divide),
        "reset raised ZeroDivisionError",
        RESET,
        "division by zero",
    ),
    "reset without seed": (walk(reset=old_reset), "reset raised TypeError", RESET, "'seed'"),
    "step raises": (
        walk(reward=fail_at_step_3),
        "step raised ZeroDivisionError",
        STEP_3,
        "division by zero",
    ),
    "step raises, wrapped": (
        lambda: gym.wrappers.TimeLimit(walk(reward=fail_at_step_3)(), 5),
        "step raised ZeroDivisionError",
        STEP_3,
        "division by zero",
    ),
    "close raises": (
        walk(close=divide),
        "close raised ZeroDivisionError",
        "env.close()",
        "division by zero",
    ),
    "unseeded": (walk(reset=unseeded), "reset is not deterministic", RESET, "array("),
    "unseeded steps": (
        walk(reward=shaken),
        "step is not deterministic",
        "step 2 of episode 0, seed ",
        "array(",
    ),
    "factory raises": (
        divide,
        "making the environment raised ZeroDivisionError",
        "divide()",
        "division by zero",
    ),
    "factory of nothing": (
        lambda: None,
        "env is no Gymnasium environment",
        "env",
        "an object of type NoneType",
    ),
    "vector": (
        lambda: gym.make_vec("CartPole-v1", 2),
        "env is no Gymnasium environment",
        "env",
        "an object of type CartPoleVectorEnv",
    ),
}
DOUBTFUL = {
    "no end": (
        walk(length=None),
        "an episode does not end",
        "episode 0, seed ",
        "no end after 50 steps",
    ),
    "a limit that is not applied": (
        walk(length=None, spec=declared(20)),
        "an episode does not end",
        "episode 0, seed ",
        "no end after 50 steps",
    ),
    "one array for all": (
        walk(observe=shared),
        "an observation changes after it was returned",
        "the observation of reset of episode 0, seed ",
        "array(",
    ),
    "one array for a part": (
        walk(
            observation_space=spaces.Dict({"a": BOX, "b": spaces.Box(0, 100, (1,), np.float32)}),
            reset=reset_parts,
            step=jump_in_place,
        ),
        "an observation changes after it was returned",
        "the observation of reset of episode 0, seed ",
        "array([1.]",
    ),
    "an array that the next reset clears": (
        walk(observe=lambda self: self.state, reset=overwrite_at_reset),
        "an observation changes after it was returned",
        "the observation of step 10 of episode 0, seed ",
        "array([0., 0.]",
    ),
}
GOOD = {
    **{
        name: name
        for name in (
            "CartPole-v1",
            "FrozenLake-v1",
            "Taxi-v4",
            "Acrobot-v1",
            "Blackjack-v1",
            "CartPole-v0",
        )
    },
    "class": Walk,
    "object": Walk(),
    "made by Gymnasium": gym.make("CartPole-v1"),
    "wrapped": lambda: gym.wrappers.FlattenObservation(
        gym.wrappers.TimeLimit(walk(length=None)(), 7)
    ),
    "limit beyond the steps": lambda: gym.wrappers.TimeLimit(walk(length=None)(), 80),
    "declared limit beyond the steps": walk(length=None, spec=declared(80)),
    "actions that do not start at 0": walk(action_space=spaces.Discrete(3, start=-4)),
    "continuous actions": walk(action_space=BOX),
    "several actions": walk(action_space=spaces.MultiDiscrete([2, 3])),
    "binary actions": walk(action_space=spaces.MultiBinary(3)),
    "dict": observing(PAIR, {"a": PLACE, "b": np.int64(2)}),
    "tuple": observing(
        spaces.Tuple([BOX, spaces.MultiDiscrete([2, 3])]), (PLACE, np.array([1, 2]))
    ),
    "states from 5": observing(spaces.Discrete(3, start=5), np.array(7)),
    "bits": observing(spaces.MultiBinary(3), np.array([True, False, True])),
    "narrow numbers in a wide space": observing(
        spaces.Box(-1, 1, (1,), np.float64), np.ones(1, np.float32)
    ),
    "a number in a space without axes": observing(
        spaces.Box(-1, 1, (), np.float32), np.float32(0.5)
    ),
    "rewards of NumPy": walk(reward=lambda _: np.float32(0.5)),
    "whole rewards": walk(reward=lambda _: np.int64(2)),
    "flags of NumPy": returning(3, np.bool_(False)),
}


@pytest.mark.parametrize("env", GOOD.values(), ids=GOOD)
def test_nothing_is_found_in_a_good_environment(env, capsys):
    assert ox.check_env(env, max_steps=50) == ()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("severity", "case"),
    [
        pytest.param(severity, case, id=name)
        for severity, cases in (("error", BROKEN), ("warning", DOUBTFUL))
        for name, case in cases.items()
    ],
)
def test_a_defect_is_found_alone_with_its_place_and_a_remedy(severity, case, capsys):
    env, what, where, actual = case
    (finding,) = ox.check_env(env, max_steps=50)
    assert (finding.severity, finding.what) == (severity, what)
    assert finding.where.startswith(where)
    assert actual in finding.actual
    assert finding.expected
    assert finding.remedy.endswith(".")
    assert capsys.readouterr() == ("", "")


def test_an_exception_is_told_with_all_it_takes_to_repeat_it():
    env = walk(reward=fail_at_step_3)()
    (finding,) = ox.check_env(env, seed=4)
    seed, action = (int(word.split()[-1]) for word in finding.where.split(", ")[1:])
    assert finding.remedy.startswith(f"repeat it: env.reset(seed={seed}), then the actions ")
    actions = [
        int(word) for word in finding.remedy.rstrip(".").split("the actions ")[1].split(", ")
    ]
    assert actions[-1] == action
    env.reset(seed=seed)
    for action in actions[:-1]:
        env.step(action)
    with pytest.raises(ZeroDivisionError):
        env.step(actions[-1])


def test_every_defect_is_told_once():
    parts = {"reward": lambda _: np.nan, "observe": lambda _: np.array([0, 99], np.float32)}
    found = ox.check_env(walk(action_space=BYTES, **parts))
    assert [finding.what for finding in found] == [
        NO_ACTIONS,
        "observation is out of bounds",
        "reward is not finite",
    ]
    assert found[1].expected == "from -10.0 to 10.0 there"


def test_a_late_defect_needs_its_episode():
    class Late(Walk):
        resets = 0

        def reset(self, *, seed=None, options=None):
            self.resets += 1
            return super().reset(seed=seed)

        def reward(self):
            return 1.0 if self.resets <= 2 else np.nan  # each episode is played twice

    assert ox.check_env(Late, episodes=1) == ()
    (finding,) = ox.check_env(Late, episodes=2)
    assert finding.where.startswith("step 1 of episode 1, ")


def test_the_seeds_are_those_of_evaluate_and_the_actions_are_drawn():
    class Noted(Walk):
        def __init__(self):
            self.seeds, self.actions = [], []

        def reset(self, *, seed=None, options=None):
            self.seeds.append(seed)
            return super().reset(seed=seed)

        def step(self, action):
            assert action in self.action_space
            self.actions.append(int(action))
            return super().step(action)

    checked, evaluated, other = Noted(), Noted(), Noted()
    assert ox.check_env(checked, episodes=3, seed=7) == ()
    ox.evaluate(ox.policies.Softmax(lambda _: jnp.zeros(2)), evaluated, episodes=3, seed=7)
    assert checked.seeds == [seed for seed in evaluated.seeds for _ in range(2)]
    assert set(checked.actions) == {0, 1}
    assert checked.actions[:10] == checked.actions[10:20] != checked.actions[20:30]
    ox.check_env(other, episodes=3, seed=8)
    assert set(other.seeds).isdisjoint(checked.seeds)


def test_only_what_is_made_here_is_closed():
    closed = []
    kind = walk(close=lambda _: closed.append(1))
    given = kind()
    assert ox.check_env(given) == ()
    assert closed == []
    assert ox.check_env(kind) == ()
    assert len(closed) == 1
    assert ox.check_env(functools.partial(kind)) == ()
    assert len(closed) == 2


def test_registered_environments_are_made_without_the_checks_of_gymnasium(monkeypatch):
    spec = gym.envs.registration.EnvSpec("Broken-v0", returning(4, None), max_episode_steps=5)
    monkeypatch.setitem(gym.registry, "Broken-v0", spec)
    (finding,) = ox.check_env("Broken-v0")
    assert finding.what == "the info of step is not a dict"
    monkeypatch.setitem(
        gym.registry, "Broken-v0", gym.envs.registration.EnvSpec("Broken-v0", divide)
    )
    (finding,) = ox.check_env("Broken-v0")
    assert finding.what == "making the environment raised ZeroDivisionError"
    assert finding.where == "gymnasium.make('Broken-v0')"


def test_objects_that_cannot_be_shown_or_converted_do_no_harm():
    Stubborn = type("Stubborn", (), {"__repr__": divide, "__array__": divide})
    Mute = type("Mute", (Exception,), {"__repr__": divide, "__str__": divide})
    for env in (
        observing(BOX, Stubborn()),
        walk(reward=lambda _: Stubborn()),
        returning(4, Stubborn()),
    ):
        (finding,) = ox.check_env(env)
        assert finding.actual == "Stubborn an object of type Stubborn"

    def fail(self):
        raise Mute

    (finding,) = ox.check_env(walk(reward=fail))
    assert (finding.what, finding.actual) == ("step raised Mute", "an object of type Mute")
    (finding,) = ox.check_env(
        walk(action_space=type("Still", (spaces.Discrete,), {"sample": divide})(2))
    )
    assert finding.what == "sampling the action space raised ZeroDivisionError"


@pytest.fixture
def hang():
    """A function, or a method, that hangs until the test ends."""
    released = threading.Event()

    def wait(*_, **__):
        released.wait()

    yield wait
    released.set()


def at_step_3_of_episode_1(hang):
    """A reward that hangs there, and is not finite before."""
    episodes = set()

    def reward(self):
        episodes.add(self.np_random_seed)
        if len(episodes) == 2 and self.time == 3:
            hang()
        return np.nan

    return reward


@pytest.mark.parametrize(
    ("make", "what", "where", "remedy"),
    [
        (lambda hang: hang, "making the environment hangs", "wait()", "repeat it: wait();"),
        (lambda hang: walk(reset=hang), "reset hangs", RESET, "repeat it: env.reset(seed="),
        (lambda hang: walk(close=hang), "close hangs", "env.close()", "repeat it: env.close();"),
        (
            lambda hang: walk(action_space=property(hang)),
            "action_space hangs",
            "env.action_space",
            "repeat it: env.action_space;",
        ),
        (
            lambda hang: walk(action_space=type("Slow", (spaces.Discrete,), {"sample": hang})(2)),
            "sampling the action space hangs",
            "env.action_space.sample()",
            "repeat it: env.action_space.sample();",
        ),
    ],
    ids=["factory", "reset", "close", "space", "sample"],
)
def test_a_call_that_hangs_is_found(make, what, where, remedy, hang, capsys):
    began = time.monotonic()
    (finding,) = ox.check_env(make(hang), timeout=0.2)
    assert 0.2 <= time.monotonic() - began < 5
    assert (finding.severity, finding.what, finding.actual) == ("error", what, "no answer")
    assert finding.expected == "an answer within 0.2 seconds"
    assert finding.where.startswith(where)
    assert finding.remedy.startswith(remedy)
    assert finding.remedy.endswith("; if it is only slow, raise the timeout.")
    assert capsys.readouterr() == ("", "")


def test_what_was_found_before_a_hang_is_kept_and_the_environment_closed_only_when_it_comes_back():
    released, closed = threading.Event(), threading.Event()
    env = walk(reward=at_step_3_of_episode_1(released.wait), close=lambda _: closed.set())
    filters = list(warnings.filters)
    before, last = ox.check_env(env, timeout=0.2)
    assert not closed.is_set()
    assert warnings.filters == filters
    assert (before.what, last.what) == ("reward is not finite", "step hangs")
    assert last.where.startswith("step 3 of episode 1, seed ")
    seed, action = (int(word.split()[-1]) for word in last.where.split(", ")[1:])
    assert last.remedy.startswith(f"repeat it: env.reset(seed={seed}), then the actions ")
    actions = last.remedy.partition(";")[0].split("the actions ")[1].split(", ")
    assert (len(actions), int(actions[-1])) == (3, action)
    released.set()
    assert closed.wait(5)


def test_an_error_is_told_even_if_looking_for_its_cause_hangs(hang):
    wrapper = type("Failing", (gym.Wrapper,), {"step": divide})
    raised, hung = ox.check_env(lambda: wrapper(walk(step=hang)()), timeout=0.2)
    assert raised.what == "step raised ZeroDivisionError"
    assert hung.what == "the environment inside of all wrappers hangs"


def test_a_slow_environment_does_not_hang():
    def slow(self):
        time.sleep(0.1)
        return 1.0

    assert ox.check_env(walk(reward=slow, length=3), episodes=1, timeout=0.4) == ()


def test_control_c_ends_a_check_at_once(hang):
    def press(self):
        os.kill(os.getpid(), signal.SIGINT)
        hang()

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        ox.check_env(walk(reward=press))
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("env", "options", "sentence"),
    [
        (
            "CartPol-v1",
            {},
            r"^Gymnasium id 'CartPol-v1' is not known\. Did you mean 'CartPole-v1'\?",
        ),
        (
            "Zzz-v0",
            {},
            r"^Gymnasium id 'Zzz-v0' is not known; gymnasium\.pprint_registry\(\) lists",
        ),
        ("Taxi-v3", {}, r"^'Taxi-v3' is not offered by what is installed: use 'Taxi-v4'\.$"),
        ("", {}, "Malformed environment ID"),
        (
            3,
            {},
            (
                r"^env must be a Gymnasium id, a Gymnasium environment or a function "
                r"that makes one, got 3\.$"
            ),
        ),
        (ox.GymnasiumEnv("CartPole-v1"), {}, "^env must be a Gymnasium id, .* got GymnasiumEnv"),
        (Walk, {"episodes": 0}, r"^episodes must be an integer of at least 1, got 0\.$"),
        (Walk, {"seed": -1}, r"^seed must be an integer of at least 0, got -1\.$"),
        (Walk, {"max_steps": 0}, r"^max_steps must be an integer of at least 1, got 0\.$"),
        (Walk, {"timeout": 0}, r"^timeout must be a finite number above 0, got 0\.$"),
        (Walk, {"timeout": -1.0}, r"^timeout must be a finite number above 0, got -1\.0\.$"),
        (Walk, {"timeout": np.nan}, r"^timeout must be a finite number above 0, got nan\.$"),
        (Walk, {"timeout": "10"}, r"^timeout must be a finite number above 0, got '10'\.$"),
    ],
)
def test_wrong_use_is_answered_with_a_sentence(env, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        ox.check_env(env, **options)


MODULE = """
import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import time
print("imported")

class Noisy(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        print("a step")
        return np.zeros(1, np.float32), float("nan"), True, False, {}

class Stuck(Noisy):
    def step(self, action):
        while True:
            time.sleep(0.01)

def cart():
    return gym.make("CartPole-v1")

gym.register("Mine-v0", cart)
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A current directory with a module of environments and one that cannot be imported."""
    (tmp_path / "noisy_envs.py").write_text(MODULE)
    (tmp_path / "faulty_envs.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("noisy_envs", None)
    gym.registry.pop("Mine-v0", None)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("env", ["CartPole-v1", "noisy_envs:cart", "noisy_envs:Mine-v0"])
def test_the_command_says_that_all_is_well(env):
    code, out, _ = occupax("check-env", env, "--episodes", 2)
    assert (code, out) == (0, f"{env}: no issues\n")


@pytest.mark.usefixtures("here")
def test_the_command_tells_errors_and_leaves_what_the_environment_prints_aside():
    code, out, err = occupax("check-env", "noisy_envs:Noisy", "--seed", 3)
    assert code == 1
    assert out.splitlines()[0] == "error: reward is not finite"
    assert [line.split()[0] for line in out.splitlines()[1:]] == [
        "expected",
        "actual",
        "where",
        "remedy",
    ]
    assert "a step" in err
    assert err.splitlines()[-1] == "occupax: noisy_envs:Noisy has an error."


@pytest.mark.usefixtures("here")
def test_the_command_prints_json_for_machines():
    code, out, _ = occupax("check-env", "noisy_envs:Noisy", "--episodes", 1, "--json")
    assert code == 1
    printed = json.loads(out)
    (finding,) = printed.pop("findings")
    assert printed == {"env": "noisy_envs:Noisy", "episodes": 1, "seed": 0}
    assert list(finding) == ["severity", "what", "expected", "actual", "where", "remedy"]
    assert (finding["severity"], finding["actual"]) == ("error", "nan")
    code, out, err = occupax("check-env", "CartPole-v1", "--json")
    assert (code, json.loads(out)["findings"], err) == (0, [], "")


def test_warnings_alone_are_no_failure():
    code, out, err = occupax("check-env", "CliffWalking-v1", "--episodes", 1, "--max-steps", 5)
    assert (code, err) == (0, "")
    assert out.startswith("warning: an episode does not end\n")


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("CartPol-v1", "Did you mean 'CartPole-v1'?"),
        ("noisy_env:cart", "module 'noisy_env' is not known. Did you mean 'noisy_envs'?"),
        (
            "no_such_thing:cart",
            "module 'no_such_thing' is neither in the current directory nor installed.",
        ),
        ("faulty_envs:cart", "importing faulty_envs raised ZeroDivisionError: division by zero"),
        (
            "noisy_envs:card",
            "noisy_envs attribute 'card' is not known. Did you mean 'cart'? Known: Noisy, ",
        ),
        ("this:cart", "this has no 'cart'; write module:factory"),
        (
            "noisy_envs:np",
            (
                "env must be a Gymnasium id, a Gymnasium environment or a function "
                "that makes one, got <mod"
            ),
        ),
        (":cart", "ENV must be a Gymnasium id, or module:factory, got ':cart'."),
    ],
)
@pytest.mark.usefixtures("here")
def test_mistakes_end_in_a_sentence_and_exit_code_2(env, said):
    code, out, err = occupax("check-env", env)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


def test_the_exit_code_leaves_the_process_even_if_the_environment_hangs(here):
    done = run(
        "check-env", "noisy_envs:Stuck", "--timeout", "0.3", cwd=here
    )  # modules there are found
    assert done.returncode == 1
    said = [
        "error: step hangs",
        "  expected  an answer within 0.3 seconds",
        "  actual    no answer",
    ]
    assert done.stdout.splitlines()[:3] == said
    assert done.stderr.splitlines() == ["imported", "occupax: noisy_envs:Stuck has an error."]
