"""Videos of episodes: files are read back, and missing renderers raise ValueError."""

import io
import os
import subprocess
import sys
import threading
from ctypes.util import find_library
from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest
from gymnasium import spaces

import occupax as ox
from occupax.training import recording
from occupax.training.recording import MAX_PREVIEW_FRAMES, record_preview

Image = pytest.importorskip("PIL.Image")
COLOURS = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0], [0, 255, 255]], np.uint8)


class Coloured(gym.Env[Any, Any]):
    """Environment that renders one colour per step and terminates after the last."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012
    observation_space, action_space = spaces.Discrete(5), spaces.Discrete(2)

    def __init__(self, render_mode=None, broken=False, again=1):
        self.render_mode, self._broken, self._again, self.time, self.closed = (
            render_mode,
            broken,
            again,
            0,
            False,
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return 0, {}

    def step(self, action):
        assert action in (0, 1)
        self.time += 1
        return self.time % 5, 0.0, self.time == 5 * self._again - 1, False, {}

    def render(self):
        if self._broken:
            raise RuntimeError("there is no screen")
        return np.tile(COLOURS[self.time % 5], (20, 30, 1))

    def close(self):
        self.closed = True


@pytest.fixture(scope="module")
def policy():
    return ox.policies.tabular()(ox.make(Coloured), jax.random.key(0))


def frames_of(content: bytes) -> list[np.ndarray]:
    opened, frames = Image.open(io.BytesIO(content)), []
    for i in range(opened.n_frames):
        opened.seek(i)
        frames.append(np.asarray(opened.convert("RGB")))
    return frames


def test_a_gif_has_a_frame_for_each_step(policy, tmp_path):
    file = ox.record(policy, Coloured, tmp_path / "folder" / "episode.gif")
    frames = frames_of(file.read_bytes())
    assert [frame[0, 0].tolist() for frame in frames] == COLOURS.tolist()
    assert frames[0].shape == (20, 30, 3)
    assert Image.open(io.BytesIO(file.read_bytes())).info["duration"] == 200
    assert (
        len(frames_of(ox.record(policy, Coloured, tmp_path / "a.gif", max_steps=2).read_bytes()))
        == 3
    )


def test_an_environment_that_was_made_stays_open(policy, tmp_path):
    env = Coloured(render_mode="rgb_array")
    ox.record(policy, env, tmp_path / "a.gif")
    assert not env.closed
    with pytest.raises(
        ValueError, match=r'env must be made with render_mode="rgb_array" to be recorded, got None'
    ):
        ox.record(policy, Coloured(), tmp_path / "a.gif")


def test_an_mp4_is_a_film(policy, tmp_path, monkeypatch):
    pytest.importorskip("imageio_ffmpeg", reason="needs the extra video")
    content = ox.record(policy, Coloured, tmp_path / "episode.mp4").read_bytes()
    assert content[4:8] == b"ftyp"
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(
        ValueError, match=r"needs imageio-ffmpeg: install occupax\[video\], or use .gif"
    ):
        ox.record(policy, Coloured, tmp_path / "other.mp4")


@pytest.mark.parametrize(
    ("env", "path", "said"),
    [
        (Coloured, "a.avi", "path must end in .gif or .mp4"),
        (
            lambda render_mode: Coloured(render_mode, broken=True),
            "a.gif",
            "could not be drawn: there is no screen",
        ),
        (lambda: Coloured(), "a.gif", "cannot be made with render_mode='rgb_array'"),  # noqa: PLW0108
        (
            ox.TabularMDP.chain(5),
            "a.gif",
            "env must be one that Gymnasium can draw, got TabularMDP",
        ),
    ],
)
def test_what_cannot_be_recorded_is_told_in_a_sentence(policy, env, path, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        ox.record(policy, env, tmp_path / path)


def test_a_small_picture_has_few_frames_and_never_fails(policy):
    content = record_preview(policy, ox.make(Coloured, again=100))
    assert content is not None
    assert 3 < len(frames_of(content)) <= MAX_PREVIEW_FRAMES
    assert record_preview(policy, ox.make(Coloured, broken=True)) is None
    assert record_preview(policy, ox.TabularMDP.chain(5)) is None


def test_a_simulator_that_hangs_is_left_behind(policy, monkeypatch):
    answer, before = threading.Event(), set(threading.enumerate())
    monkeypatch.setattr(recording, "PREVIEW_TIMEOUT", 0.1)
    monkeypatch.setattr(Coloured, "render", lambda _: answer.wait())
    assert record_preview(policy, ox.make(Coloured)) is None
    answer.set()
    for thread in (
        set(threading.enumerate()) - before
    ):  # which has variables of the process set for others too
        thread.join(10)


def test_twins_are_drawn_as_those_of_gymnasium_and_the_variables_of_the_process_stay():
    pytest.importorskip("pygame", reason="Gymnasium draws with pygame")
    before, env = dict(os.environ), ox.make("CartPole-v1")
    content = record_preview(ox.policies.linear()(env, jax.random.key(0)), env)
    assert content is not None
    assert frames_of(content)[0].shape == (160, 240, 3)
    assert {name: value for name, value in os.environ.items() if name.startswith("SDL")} == {
        name: value for name, value in before.items() if name.startswith("SDL")
    }


def test_a_table_of_gymnasium_is_drawn_as_its_own():
    pytest.importorskip("pygame", reason="Gymnasium draws with pygame")
    env = ox.make("FrozenLake-v1")
    content = record_preview(ox.policies.tabular()(env, jax.random.key(0)), env)
    assert content is not None
    assert frames_of(content)[0].shape == (240, 240, 3)


# MuJoCo, which draws by OpenGL


class Watching(Coloured):
    """Notes the setting of MuJoCo when it draws."""

    def render(self):
        self.chosen = os.environ.get("MUJOCO_GL")
        return super().render()


class Simulated(Coloured):
    """An environment of a module of MuJoCo's name."""

    __module__ = "mujoco_simulated"


@pytest.mark.skipif(sys.platform != "linux", reason="displays have names on Linux only")
@pytest.mark.parametrize(
    ("variables", "chosen"),
    [
        ({}, "egl"),
        ({"DISPLAY": ""}, "egl"),
        ({"MUJOCO_GL": "osmesa"}, "osmesa"),
        ({"DISPLAY": ":0"}, None),
        ({"WAYLAND_DISPLAY": "wayland-0"}, None),
    ],
)
def test_mujoco_draws_off_screen_where_there_is_no_display(
    policy, tmp_path, monkeypatch, variables, chosen
):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    env = Watching(render_mode="rgb_array")
    ox.record(policy, env, tmp_path / "a.gif")
    assert env.chosen == chosen
    assert os.environ.get("MUJOCO_GL") == variables.get("MUJOCO_GL")


def test_what_opengl_misses_is_named(policy, tmp_path, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "egl")
    said = (
        "MuJoCo could not draw with MUJOCO_GL=egl: "
        "install libegl1 and libgl1-mesa-dri.* there is no screen"
    )
    with pytest.raises(ValueError, match=said):
        ox.record(policy, Simulated(render_mode="rgb_array", broken=True), tmp_path / "a.gif")


@pytest.mark.skipif(find_library("EGL") is None, reason="needs libEGL")
def test_mujoco_is_recorded_after_it_was_imported_without_a_display(tmp_path):
    pytest.importorskip("mujoco")
    lines = [
        "import jax, occupax as ox",
        "env = ox.make('Reacher-v5')",
        "policy = ox.policies.gaussian()(env, jax.random.key(0))",
        f"ox.record(policy, env, {str(tmp_path / 'a.gif')!r}, max_steps=2)",
    ]
    hidden = {"DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"}
    variables = {name: value for name, value in os.environ.items() if name not in hidden}
    ended = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    frames = frames_of((tmp_path / "a.gif").read_bytes())
    assert len(frames) == 3
    assert len({int(value) for value in np.unique(frames[0])}) > 3  # a picture, not one colour
