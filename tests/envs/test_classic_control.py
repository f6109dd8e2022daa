"""CartPole, Acrobot and MountainCar, side by side with Gymnasium's."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from occupax.envs.acrobot import Acrobot
from occupax.envs.base import Timed, TimeLimited, observation_spec
from occupax.envs.cartpole import CartPole
from occupax.envs.mountain_car import MountainCar

Policy = Callable[[Any, np.random.Generator], int]
KEY = jax.random.key(0)


class Transitions(NamedTuple):
    """Transitions of Gymnasium, one row per step."""

    episode: Any
    time: Any  # steps taken before this one
    before: Any
    action: Any
    after: Any
    observation: Any
    reward: Any
    terminated: Any
    truncated: Any


def stacked(rows: list[tuple[Any, ...]]) -> Transitions:
    return Transitions(*(np.asarray(column) for column in zip(*rows, strict=True)))


def make(name: str, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore",
            message=".*The environment CartPole-v0 is out of date",
            category=DeprecationWarning,
        )
        return gymnasium.make(name, **options)


def play(name: str, policies: list[Policy], seed: int) -> Transitions:
    """Let each policy play one episode."""
    env, rng, rows = make(name), np.random.default_rng(seed), []
    for episode, policy in enumerate(policies):
        env.reset(seed=seed + episode)
        over, time = False, 0
        while not over:
            before = np.array(env.unwrapped.state, np.float64)
            action = policy(before, rng)
            observation, reward, terminated, truncated, _ = env.step(action)
            after = np.array(env.unwrapped.state, np.float64)
            rows.append(
                (episode, time, before, action, after, observation, reward, terminated, truncated)
            )
            over, time = terminated or truncated, time + 1
    return stacked(rows)


def play_from(name: str, states: Any) -> Transitions:
    """Take a single step from each state, terminal or not."""
    env, rng, rows = make(name).unwrapped, np.random.default_rng(7), []
    env.reset(seed=0)
    for before in states:
        action = int(rng.integers(env.action_space.n))
        env.state = before
        # otherwise CartPole warns, and withholds the reward, from its second terminal state on
        env.steps_beyond_terminated = None
        observation, reward, terminated, truncated, _ = env.step(action)
        rows.append(
            (0, 0, before, action, np.array(env.state), observation, reward, terminated, truncated)
        )
    return stacked(rows)


def random_push(_: Any, rng: np.random.Generator) -> int:
    return int(rng.integers(2))


def balance(physics: Any, _: np.random.Generator) -> int:
    return int(physics @ [0.05, 0.1, 1.0, 0.3] > 0)


def drift(physics: Any, _: np.random.Generator) -> int:
    """Keep the pole leaning, so that the cart has to run off the track."""
    return int(physics @ [0.0, 0.0, 1.0, 0.3] > 0.05)


def random_torque(_: Any, rng: np.random.Generator) -> int:
    return int(rng.integers(3))


def pump(physics: Any, _: np.random.Generator) -> int:
    return 1 + int(np.sign(physics[3]))


def swing(physics: Any, _: np.random.Generator) -> int:
    """Push along with the velocity, which gets the car out of the valley."""
    return 2 if physics[1] >= 0 else 0


CARTPOLE_POLICIES: list[Policy] = [random_push] * 40 + [balance] * 4 + [drift] * 4
ACROBOT_POLICIES: list[Policy] = [random_torque] * 3 + [pump] * 8
MOUNTAIN_CAR_POLICIES: list[Policy] = [random_torque] * 5 + [swing] * 8


def respond(env: TimeLimited, physics: Any, time: Any, action: Any) -> dict[str, Any]:
    """Return the transition of the JAX environment under Gymnasium's names."""
    state, reward = env.step(Timed(physics, time), action, KEY)
    return {
        "time": state.time,
        "after": state.physics,
        "observation": env.observe(state),
        "reward": reward,
        "terminated": env.terminated(state),
        "truncated": env.truncated(state),
    }


def respond_to_all(env: TimeLimited, data: Transitions) -> dict[str, Any]:
    answer = jax.jit(jax.vmap(lambda *row: respond(env, *row)))
    return jax.device_get(answer(data.before, data.time, data.action))


def check(answers: dict[str, Any], data: Transitions, *, tolerance: float) -> None:
    np.testing.assert_allclose(answers["after"], data.after, rtol=tolerance, atol=tolerance)
    # Gymnasium's observations are rounded to float32
    np.testing.assert_allclose(answers["observation"], data.observation, rtol=1e-6, atol=1e-7)
    for name in ("reward", "terminated", "truncated"):
        np.testing.assert_array_equal(answers[name], getattr(data, name), err_msg=name)
    np.testing.assert_array_equal(answers["time"], data.time + 1)


@pytest.mark.parametrize(
    ("name", "env", "policies"),
    [
        ("CartPole-v0", CartPole(time_limit=200), CARTPOLE_POLICIES),
        ("CartPole-v1", CartPole(), CARTPOLE_POLICIES),
        ("Acrobot-v1", Acrobot(), ACROBOT_POLICIES),
        ("MountainCar-v0", MountainCar(time_limit=200), MOUNTAIN_CAR_POLICIES),
    ],
)
def test_episodes_are_gymnasiums(name: str, env: TimeLimited, policies: list[Policy]):
    data = play(name, policies, seed=11)
    # the comparison is worth something only if both kinds of end occur
    assert len(data.time) > 1500
    assert data.terminated.sum() >= 3
    assert data.truncated.sum() >= 3
    if isinstance(env, CartPole):  # and the cart leaves the track, too
        assert (np.abs(data.after[:, 0]) > 2.4).sum() >= 3
    with jax.enable_x64(new_val=True):
        check(respond_to_all(env, data), data, tolerance=1e-11)
        for ended in (data.terminated, data.truncated):
            rows = data.episode == data.episode[ended][-1]
            follow(env, Transitions(*(column[rows] for column in data)))


def follow(env: TimeLimited, data: Transitions) -> None:
    """Replay an episode from its first state alone, and on to the time limit if it ended before."""

    def advance(state: Timed, action: Any) -> tuple[Timed, Any]:
        state, reward = env.step(state, action, KEY)
        return state, (state.physics, reward, env.terminated(state), env.truncated(state))

    actions = np.zeros(env.time_limit, int)
    actions[: len(data.action)] = data.action
    start = Timed(jnp.asarray(data.before[0]), jnp.zeros((), jnp.int32))
    replay = jax.device_get(jax.jit(lambda: jax.lax.scan(advance, start, actions))()[1])
    np.testing.assert_array_equal(replay[-1], np.arange(env.time_limit) == env.time_limit - 1)
    # for longer, rounding grows too much to compare: both systems are unstable
    num = min(100, len(data.time))
    np.testing.assert_allclose(replay[0][:num], data.after[:num], rtol=0, atol=1e-9)
    np.testing.assert_array_equal(replay[1][:num], data.reward[:num])
    np.testing.assert_array_equal(replay[2][:num], data.terminated[:num])


@pytest.mark.parametrize(
    ("name", "env", "high"),
    [
        ("CartPole-v1", CartPole(), [3.0, 5.0, 0.3, 5.0]),
        ("Acrobot-v1", Acrobot(), [np.pi, np.pi, 4 * np.pi, 9 * np.pi]),
        ("MountainCar-v0", MountainCar(), [1.2, 0.08]),
    ],
)
def test_any_state_steps_as_in_gymnasium_without_autoreset(
    name: str, env: TimeLimited, high: list[float]
):
    states = np.random.default_rng(7).uniform(-1, 1, (2000, len(high))) * high
    data = play_from(name, states)
    with jax.enable_x64(new_val=True):
        check(respond_to_all(env, data), data, tolerance=1e-9)
        was_terminal = np.asarray(
            jax.vmap(lambda physics: env.terminated(Timed(physics, jnp.array(0))))(data.before)
        )
    assert (was_terminal & data.terminated).sum() > 50
    # a car at the flag that is not on its way back stays there
    assert (was_terminal & ~data.terminated).sum() > (0 if isinstance(env, MountainCar) else 50)
    if isinstance(env, Acrobot):  # bounding both speeds and wrapping both angles have been compared
        assert (data.after[:, 2:].max(0) == high[2:]).all()
        assert (data.after[:, 2:].min(0) == np.negative(high[2:])).all()
        assert (np.abs(data.after - data.before)[:, :2].max(0) > np.pi).all()
    if isinstance(env, MountainCar):  # the walls on both sides, and that the left one stops the car
        assert set(data.after[data.after[:, 0] == -1.2, 1]) == {0.0}
        assert (data.after[:, 0].max(), np.abs(data.after[:, 1]).max()) == (0.6, 0.07)


def test_cartpole_ends_beyond_its_limits_not_on_them():
    gym_env = make("CartPole-v1").unwrapped
    limits = [
        sign * limit
        for limit in (gym_env.x_threshold, gym_env.theta_threshold_radians)
        for sign in (-1, 1)
    ]
    states = np.zeros((8, 4))
    for row, limit in enumerate(limits):
        states[[row, row + 4], 2 * (row // 2)] = limit, np.nextafter(limit, 2 * limit)
    data = play_from("CartPole-v1", states)
    assert data.terminated.tolist() == [False] * 4 + [True] * 4
    with jax.enable_x64(new_val=True):
        check(respond_to_all(CartPole(), data), data, tolerance=1e-9)


def test_an_episode_may_end_and_be_cut_in_the_same_step():
    num_steps, terminated, truncated = 0, False, False
    env = make("CartPole-v1")
    env.reset(seed=3)
    while not terminated:
        terminated, truncated = env.step(1)[2:4]
        num_steps += 1
    assert not truncated
    env = make("CartPole-v1", max_episode_steps=num_steps)
    env.reset(seed=3)
    assert [env.step(1)[2:4] for _ in range(num_steps)][-1] == (True, True)
    last = Timed(jnp.asarray(env.unwrapped.state, float), jnp.asarray(num_steps))
    for time_limit, truncated in ((num_steps, True), (num_steps + 1, False)):
        ours = CartPole(time_limit)
        assert (bool(ours.terminated(last)), bool(ours.truncated(last))) == (True, truncated)


@pytest.mark.parametrize(("env", "spread"), [(CartPole(), 0.05), (Acrobot(), 0.1)])
def test_reset_is_uniform_in_a_small_box(env: TimeLimited, spread: float):
    keys = jax.random.split(KEY, 4096)
    states = jax.device_get(jax.jit(jax.vmap(env.reset))(keys))
    assert not states.time.any()
    unit = states.physics / spread
    assert np.abs(unit).max() <= 1
    np.testing.assert_allclose(unit.min(0), -1, atol=0.01)
    np.testing.assert_allclose(unit.max(0), 1, atol=0.01)
    # the standard error of each entry is below 0.01; those of a uniform distribution are 0 and 1/3
    # on the diagonal
    np.testing.assert_allclose(unit.mean(0), 0, atol=0.05)
    np.testing.assert_allclose(np.cov(unit.T), np.eye(4) / 3, atol=0.05)
    assert len(np.unique(states.physics[:, 0])) > 4000
    np.testing.assert_array_equal(env.reset(keys[5]).physics, states.physics[5])


def test_a_mountain_car_starts_at_rest_anywhere_in_the_valley():
    states = jax.device_get(jax.jit(jax.vmap(MountainCar().reset))(jax.random.split(KEY, 4096)))
    position, velocity = states.physics.T
    assert not velocity.any()
    assert -0.6 <= position.min() < -0.599
    assert -0.401 < position.max() <= -0.4
    np.testing.assert_allclose(
        [position.mean(), position.std()], [-0.5, 0.2 / np.sqrt(12)], atol=0.003
    )


@pytest.mark.parametrize(
    ("env", "num_actions", "size"), [(CartPole(), 2, 4), (Acrobot(), 3, 6), (MountainCar(), 3, 2)]
)
@pytest.mark.parametrize("x64", [False, True])
def test_types_follow_the_default_float(env: TimeLimited, num_actions: int, size: int, x64: bool):
    assert env.num_actions == num_actions
    with jax.enable_x64(new_val=x64):
        default = jnp.zeros(()).dtype
        state = jax.eval_shape(env.reset, KEY)
        after, reward = jax.eval_shape(env.step, state, 1, KEY)
        # equal to the last detail, else `scan` refuses the state as its carry
        assert after == state
        assert (after.physics.weak_type, reward.weak_type) == (False, False)
        assert (state.physics.dtype, reward.dtype) == (default, default)
        assert observation_spec(env) == jax.ShapeDtypeStruct((size,), default)


def test_an_environment_is_traced_once_for_the_form_of_its_observations_unless_it_has_arrays():
    traced: list[Any] = []

    class Zoomed(CartPole):
        """A CartPole that is seen so many times as large."""

        zoom: Any = 2.0

        def observe(self, state: Timed) -> Any:
            traced.append(self.zoom)
            return jnp.tile(super().observe(state) * self.zoom, jnp.ndim(self.zoom) + 1)

    assert [observation_spec(Zoomed(zoom=zoom)).shape for zoom in (2.0, 2.0, 3.0)] == [(4,)] * 3
    assert traced == [2.0, 3.0]
    assert [observation_spec(Zoomed(zoom=np.ones(4))).shape for _ in range(2)] == [(8,)] * 2
    assert len(traced) == 4


def test_an_environment_that_raises_is_not_tried_again():
    class Wrong(CartPole):
        """A CartPole that cannot be seen."""

        def observe(self, state: Timed) -> Any:
            raise TypeError("no picture")

    with pytest.raises(TypeError, match="no picture") as raised:
        Wrong().observation_spec()
    assert raised.value.__context__ is None


@pytest.mark.parametrize(("name", "env"), [("CartPole-v1", CartPole()), ("Acrobot-v1", Acrobot())])
def test_single_precision_is_close_to_gymnasium(name: str, env: TimeLimited):
    # rounded before Gymnasium sees them, so that both start from the same state
    states = np.random.default_rng(1).uniform(-0.2, 0.2, (64, 4)).astype(np.float32)
    data = play_from(name, states.astype(np.float64))
    answers = respond_to_all(env, data._replace(before=states))
    assert answers["after"].dtype == np.float32
    np.testing.assert_allclose(answers["after"], data.after, atol=1e-6)
    np.testing.assert_array_equal(answers["terminated"], data.terminated)


@pytest.mark.parametrize("kind", [CartPole, Acrobot])
@pytest.mark.parametrize("time_limit", [0, -1])
def test_time_limit_must_be_positive(kind: Callable[..., TimeLimited], time_limit: int):
    with pytest.raises(
        ValueError, match=f"time_limit must be a positive number of steps, got {time_limit}"
    ):
        kind(time_limit=time_limit)
    assert kind(time_limit=1).time_limit == 1
