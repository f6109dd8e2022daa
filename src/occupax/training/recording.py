"""Episodes as moving pictures, drawn by Gymnasium's renderers."""

import contextlib
import io
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np

from occupax.envs.base import DecisionProcess
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.envs.lookup import find, ignoring_rounded_bounds
from occupax.envs.registry import table_name
from occupax.envs.tabular import TabularMDP
from occupax.errors import check_integer, check_number, check_path, shown
from occupax.io.files import write_bytes
from occupax.policies import Policy
from occupax.policies.agents import Agent, check_actor
from occupax.watch import Watch

TWINS = {
    "CartPole": "CartPole-v1",
    "Acrobot": "Acrobot-v1",
    "MountainCar": "MountainCar-v0",
    "ContinuousMountainCar": "MountainCarContinuous-v0",
    "Pendulum": "Pendulum-v1",
}
"""The ids of Gymnasium's environments that those of this package in JAX behave like."""
MOST_STEPS = 500
"""An episode is drawn so far, unless told otherwise."""
SMALL, FEW, FRAMES_A_SECOND, SECONDS = 240, 50, 12.0, 3.0
"""The width in pixels of a picture for a page, how many frames it has at most, how fast they are
shown, and how long it may take to draw them."""
LEAST_FPS, MOST_FPS = 0.01, 1_000
"""The fewest and the most frames a second."""
PATIENCE = 20.0
"""After so many seconds an environment that does not answer is left behind, and the page has no
picture."""
SILENT = {"SDL_AUDIODRIVER": "dummy", "SDL_VIDEODRIVER": "dummy"}
"""Settings with which pygame looks neither for a screen nor for loudspeakers."""
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
"""Environment variables that name a display on Linux."""

Frame = np.ndarray


def record(
    policy: Any,
    env: Any,
    path: str | Path,
    seed: int = 0,
    max_steps: int = MOST_STEPS,
    deterministic: bool = False,
    fps: float | None = None,
) -> Path:
    """Play an episode in Gymnasium, and save it as a GIF or, with the extra `video`, as an MP4.

    Args:
        policy: a policy for the environment, an agent with `predict`, or a function of the
            observation; as for `occupax.evaluate`.
        env: a Gymnasium id, a function that makes an environment with a given `render_mode`, an
            environment that was made with render_mode="rgb_array", which stays open, or one of
            occupax that is like one of Gymnasium.
        path: the file; its suffix, .gif or .mp4, says which kind.
        seed: of the environment and the actions.
        max_steps: where the episode is cut.
        deterministic: whether the policy takes its most probable actions; it is passed on to the
            `predict` of an agent.
        fps: frames a second, from 0.01 to 1,000; by default as the environment suggests.

    Returns:
        The path of the file.
    """
    check_actor(policy)
    check_path(path, "path")
    file, limit = Path(path), check_integer("max_steps", max_steps)
    writers = {".gif": _gif, ".mp4": _mp4}
    if file.suffix not in writers:
        raise ValueError(f"path must end in .gif or .mp4, got {str(path)!r:.80}.")
    with _drawn(env) as made:
        pace = _read_pace((made.metadata.get("render_fps") or 30) if fps is None else fps)
        frames = (
            _frame(made)
            for _ in _play(policy, made, check_integer("seed", seed, 0), limit, deterministic)
        )
        write_bytes(file, writers[file.suffix](frames, pace))
    return file


def small_picture(policy: Policy, env: DecisionProcess) -> bytes | None:
    """A small GIF of an episode for a page; None if the environment cannot be drawn, whatever the reason."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return Watch(PATIENCE).run(lambda: _small_picture(policy, env), whole=True)
    except (Exception, SystemExit):  # noqa: BLE001 - a page without a picture is better than none, and any code may run
        return None


def _small_picture(policy: Policy, env: DecisionProcess) -> bytes | None:
    frames: list[Frame] = []
    with _drawn(env) as made:
        if _needs_opengl(made):
            return None
        began, every = time.monotonic(), 1
        for i, _ in enumerate(_play(policy, made, 0, MOST_STEPS, False)):
            if i % every == 0:
                frames.append(_frame(made))
            if len(frames) > FEW:  # it is a long episode
                frames, every = frames[::2], 2 * every
            if time.monotonic() - began > SECONDS:
                break
    return _gif(frames, FRAMES_A_SECOND, SMALL)


def _needs_opengl(env: Any) -> bool:
    """Whether drawing goes by OpenGL, which on a machine without a display may end the process."""
    return any("mujoco" in base.__module__ for base in type(env.unwrapped).__mro__)


@contextlib.contextmanager
def _drawn(env: Any) -> Generator[Any]:
    """An environment of Gymnasium that draws; one that was passed in is not closed."""
    import gymnasium as gym

    if isinstance(env, gym.Env) and env.render_mode != "rgb_array":
        raise ValueError(
            f'env must be made with render_mode="rgb_array" to be recorded, got {env.render_mode!r}.'
        )
    with _without_display():
        if isinstance(env, gym.Env):
            yield env
        else:
            with contextlib.closing(_make(env)) as made:
                yield made


@contextlib.contextmanager
def _without_display() -> Generator[None]:
    """Set the environment variables for drawing off screen, except those that are set already."""
    settings = dict(SILENT)
    if sys.platform == "linux" and not any(os.environ.get(name) for name in DISPLAYS):
        settings["MUJOCO_GL"] = "egl"
    added = {name: value for name, value in settings.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _make(env: Any) -> Any:
    import gymnasium as gym

    options: dict[str, Any] = {"render_mode": "rgb_array"}
    source: Any = find(env) if isinstance(env, str) else env
    if isinstance(source, GymnasiumEnv):
        source, options = source.source, dict(source.options) | options
    elif isinstance(source, DecisionProcess):
        name = (
            table_name(source)
            if isinstance(source, TabularMDP)
            else TWINS.get(type(source).__name__)
        )
        if name is None:
            raise ValueError(
                f"env must be one that Gymnasium can draw, got {source!r:.60}; give an id instead."
            )
        source, options["max_episode_steps"] = name, source.time_limit
    if not isinstance(source, str) and not callable(source):
        kinds = (
            "a Gymnasium id, an environment of Gymnasium or occupax, or a function that makes one"
        )
        raise ValueError(f"env must be {kinds}, got {shown(env)}.")
    try:
        with ignoring_rounded_bounds():
            made = gym.make(source, **options) if isinstance(source, str) else source(**options)
    except Exception as error:
        raise ValueError(
            f"{env!r:.60} cannot be made with render_mode='rgb_array': {error}"
        ) from error
    if not isinstance(made, gym.Env):
        raise ValueError(
            f"env must be a Gymnasium id or make an environment of Gymnasium, got {type(made).__name__}."
        )
    return made


def _play(policy: Any, env: Any, seed: int, max_steps: int, deterministic: bool) -> Iterator[None]:
    """Play an episode, step by step; nothing is returned, for the environment itself is looked at."""
    act = _acting(policy, env, seed, deterministic)
    seen, _ = env.reset(seed=seed)
    yield
    for t in range(max_steps):
        seen, _, terminated, truncated, _ = env.step(act(seen, t == 0))
        yield
        if terminated or truncated:
            return


def _acting(policy: Any, env: Any, seed: int, deterministic: bool) -> Callable[[Any, bool], Any]:
    """Return a function of the observation, and of whether an episode begins, that returns what `step` takes."""
    from occupax.envs.gymnasium_actions import action_writer

    if isinstance(policy, Policy):
        actor, seeds = policy.for_env(env), np.random.default_rng(seed)
        return lambda seen, _: actor.predict(seen, deterministic, int(seeds.integers(2**31)))
    agent, write = Agent(policy, env, deterministic), action_writer(env.action_space)
    return lambda seen, begins: write(agent.act(seen, begins)[None])[0]


def _frame(env: Any) -> Frame:
    try:
        drawn = np.asarray(env.render())
    except Exception as error:
        if _needs_opengl(env):
            chosen = os.environ.get("MUJOCO_GL", "glfw")
            remedy = "install libegl1 and libgl1-mesa-dri, or libosmesa6 with MUJOCO_GL=osmesa"
            raise ValueError(
                f"MuJoCo could not draw with MUJOCO_GL={chosen}: {remedy}. {error}"
            ) from error
        raise ValueError(f"the environment could not be drawn: {error}") from error
    if drawn.ndim != 3 or drawn.shape[2] != 3:
        raise ValueError(
            f"render() must return an image [rows, columns, 3], got an array of shape {drawn.shape}."
        )
    return drawn.astype(np.uint8)


def _read_pace(fps: Any) -> float:
    """Return a number of frames a second that both kinds of files can hold."""
    pace = check_number("fps", fps, low=LEAST_FPS)
    if pace > MOST_FPS:
        raise ValueError(f"fps must be at most {MOST_FPS:,}, got {fps!r}.")
    return pace


def _gif(frames: Iterable[Frame], fps: float, width: int | None = None) -> bytes:
    from PIL import Image

    images: list[Any] = []
    for frame in frames:
        image = Image.fromarray(frame)
        if width is not None and image.width > width:
            image = image.resize((width, max(1, round(image.height * width / image.width))))
        images.append(image.quantize(64, Image.Quantize.FASTOCTREE))
    written = io.BytesIO()
    times = {
        "duration": max(20, round(1000 / fps)),
        "loop": 0,
    }  # browsers slow down what is faster than 20 ms
    images[0].save(written, "GIF", save_all=True, append_images=images[1:], **times)
    return written.getvalue()


def _mp4(frames: Iterable[Frame], fps: float) -> bytes:
    try:
        import imageio_ffmpeg
    except ImportError:
        raise ValueError(
            "an .mp4 file needs imageio-ffmpeg: install occupax[video], or use .gif."
        ) from None
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "os.fork", RuntimeWarning
        )  # ffmpeg is a process, and shares nothing with JAX
        file, pace, writer = Path(folder) / "episode.mp4", cast("int", fps), None
        for frame in frames:
            if writer is None:
                size = frame.shape[1], frame.shape[0]
                writer = imageio_ffmpeg.write_frames(str(file), size, fps=pace, macro_block_size=2)
                writer.send(None)
            writer.send(np.ascontiguousarray(frame))
        if writer is not None:
            writer.close()
        return file.read_bytes()
