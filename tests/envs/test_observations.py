"""Images, and observations of several named parts."""

from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.signal import correlate

import occupax as ox


class Camera(gym.Env[Any, Any]):
    """Environment with noise images of a given shape. Action 1 is rewarded by the first pixel."""

    def __init__(self, shape, kind="uint8"):
        self.observation_space = gym.spaces.Box(0, 255, shape, np.dtype(kind).type)
        self.action_space = gym.spaces.Discrete(2)

    def _look(self):
        self._seen = self.np_random.integers(0, 256, self.observation_space.shape).astype(
            self.observation_space.dtype
        )
        return self._seen

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._look(), {}

    def step(self, action):
        reward = float(action == (self._seen.ravel()[0] > 127))
        return self._look(), reward, False, False, {}


class Robot(gym.Env[Any, Any]):
    """Environment with Dict observations whose keys are not in Gymnasium's flattening order."""

    def __init__(self):
        box = gym.spaces.Box
        parts = {
            "speed": box(0.0, 2.0, ()),
            "pos": box(-1.0, 1.0, (2,)),
            "arm": box(-1.0, 1.0, (2, 2)),
        }
        self.observation_space = gym.spaces.Dict(parts)
        self.action_space = gym.spaces.Discrete(2)

    def _look(self):
        seen = {"pos": [-0.9, 0.6], "speed": 1.9, "arm": np.zeros((2, 2))}
        return {name: np.array(value, np.float32) for name, value in seen.items()}

    def reset(self, *, seed=None, options=None):
        return self._look(), {}

    def step(self, action):
        return self._look(), 0.0, False, False, {}


def by_hand(policy, image):
    """Return the logits of a CNN with one convolution of stride 1, for a channels-first image."""
    layer, last = policy.psi.convolutions.layers[0], policy.psi.layers.layers[0]
    windows, bias = np.asarray(layer.weight), np.asarray(layer.bias)[:, 0, 0]
    found = [
        sum(
            correlate(channel, window, "valid")
            for channel, window in zip(image, windows[k], strict=True)
        )
        + bias[k]
        for k in range(len(windows))
    ]
    return np.asarray(last.weight) @ np.tanh(np.array(found)).ravel() + np.asarray(last.bias)


@pytest.mark.parametrize(
    ("shape", "kind"), [((6, 5, 2), "uint8"), ((2, 6, 5), "float32"), ((6, 5), "uint8")]
)
def test_a_cnn_recognises_channels_and_scales_pixels(shape, kind):
    env = ox.GymnasiumEnv(Camera, shape=shape, kind=kind)
    policy = ox.policies.cnn(channels=(3,), hidden=(), scale=1.0)(env, jax.random.key(0))
    image = np.random.default_rng(0).integers(0, 256, shape).astype(kind)
    first = {
        (6, 5, 2): lambda it: np.moveaxis(it, 2, 0),
        (2, 6, 5): lambda it: it,
        (6, 5): lambda it: it[None],
    }[shape]
    scaled = first(image).astype(float) / (255 if kind == "uint8" else 1)
    for seen in (image, image.ravel()):  # as it is, and as policies see it
        np.testing.assert_allclose(
            policy.logits(jnp.asarray(seen)), by_hand(policy, scaled), rtol=1e-3, atol=1e-4
        )


def test_a_cnn_trains_and_is_loaded_back(tmp_path):
    problem = ox.Problem(ox.GymnasiumEnv(Camera, shape=(5, 4, 1)), horizon=6)
    policy = ox.policies.cnn(channels=(2,), hidden=(3,))
    result = ox.train(
        problem, ox.REINFORCE(4, baseline="linear"), 12, policy=policy, progress=False
    )
    ox.save_policy(result.policy(), tmp_path / "policy.safetensors")
    loaded, image = ox.load_policy(tmp_path / "policy.safetensors"), jnp.zeros((5, 4, 1), jnp.uint8)
    np.testing.assert_array_equal(loaded.probs(image), result.policy().probs(image))
    first = policy(problem.env, jax.random.fold_in(jax.random.fold_in(jax.random.key(0), 0), 0))
    assert not eqx.tree_equal(first, result.policy())


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ((7,), r"is for images of shape .*, got observations of shape \(7,\)"),
        ((5, 9, 6), r"channels of an image must be first or last .* got \(5, 9, 6\)"),
        ((4, 4, 1), r"2 convolutions leave nothing of an image of shape \(4, 4, 1\)"),
    ],
)
def test_shapes_that_make_no_sense_are_refused(shape, says):
    env = ox.GymnasiumEnv(Camera, shape=shape)
    if shape == (5, 9, 6):  # 5 is the smallest: channels come first
        assert not ox.policies.cnn(channels=(2,))(env, jax.random.key(0)).psi.channels_last
        env, says = ox.GymnasiumEnv(Camera, shape=(9, 5, 6)), says.replace(r"5, 9, 6", "9, 5, 6")
    with pytest.raises(ValueError, match=says):
        ox.policies.cnn()(env, jax.random.key(0))


def test_a_grid_over_named_parts_counts_the_right_cells():
    env = ox.GymnasiumEnv(Robot)
    assert [(part.name, part.shape, part.start) for part in env.parts] == [
        ("arm", (2, 2), 0), ("pos", (2,), 4), ("speed", (), 6)
    ]  # fmt: skip
    named = ox.features.Grid({"pos": ([-1, -1], [1, 1], [2, 4]), "speed": (0, 2, 3)})
    problem = ox.Problem(env, ox.utilities.Entropy(), horizon=3, features=named, discount=0.5)
    policy = ox.policies.mlp(hidden=(2,))(env, jax.random.key(0))
    occupancy = ox.estimators.occupancy(
        problem, ox.sample(problem, policy, 2, jax.random.key(0)), policy
    )
    cells = np.zeros((2, 4, 3))
    cells[0, 3, 2] = (
        1.75  # -0.9 is in the lower half, 0.6 in the last quarter, 1.9 in the last third
    )
    np.testing.assert_allclose(occupancy, cells.ravel())
    for wrong, says in (
        ({"post": (0, 1, 2)}, "entry of the observation 'post' is not known. Did you mean 'pos'"),
        ({"pos": (0, 1, 2)}, "for the 2 numbers of 'pos', got 1"),
        ({"pos": (0, 1)}, "three numbers, or three lists of one length for 'pos'"),
    ):
        with pytest.raises(ValueError, match=says.replace(".", r"\.").replace("(", r"\(")):
            ox.Problem(env, ox.utilities.Entropy(), horizon=3, features=ox.features.Grid(wrong))
    with pytest.raises(ValueError, match="observations of CartPole are no Dict"):
        ox.Problem(ox.make("CartPole-v1"), ox.utilities.Entropy(), features=named)
