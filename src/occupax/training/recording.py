"""Videos of episodes, rendered by Gymnasium."""

import contextlib
import io
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
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

GYMNASIUM_IDS = {
    "CartPole": "CartPole-v1",
    "Acrobot": "Acrobot-v1",
    "MountainCar": "MountainCar-v0",
    "ContinuousMountainCar": "MountainCarContinuous-v0",
    "Pendulum": "Pendulum-v1",
}
"""Gymnasium ids of the JAX implementations in this package."""
MAX_STEPS = 500
"""Default of the longest recorded episode."""
PREVIEW_WIDTH = 240
"""Width of the video on a page, in pixels."""
MAX_PREVIEW_FRAMES = 50
"""Largest number of frames of the video on a page."""
PREVIEW_FPS = 12.0
"""Frames per second of the video on a page."""
PREVIEW_SECONDS = 3.0
"""Longest time to render the video on a page."""
PREVIEW_TIMEOUT = 20.0
"""Seconds after which a page has no video, because the environment does not return."""
DEFAULT_FPS = 30
"""Frames per second of an environment without `render_fps`."""
MIN_FPS = 0.01
MAX_FPS = 1_000
MIN_FRAME_MILLISECONDS = 20
"""Shortest frame of a GIF. Browsers slow down shorter ones."""
COLOURS = 64
"""Number of colours of a GIF."""
HEADLESS_SETTINGS = {"SDL_AUDIODRIVER": "dummy", "SDL_VIDEODRIVER": "dummy"}
"""Environment variables with which pygame needs neither screen nor loudspeakers."""
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
"""Environment variables that name a display on Linux."""

Frame = np.ndarray


def record(
    policy: Any,
    env: Any,
    path: str | Path,
    seed: int = 0,
    max_steps: int = MAX_STEPS,
    deterministic: bool = False,
    fps: float | None = None,
) -> Path:
    """Record an episode in Gymnasium as a GIF or, with the extra `video`, as an MP4.

    Args:
        policy: a policy for the environment, an agent with `predict`, or a function of the
            observation, as for `occupax.evaluate`.
        env: a Gymnasium id, a function of `render_mode` that returns an environment, an environment
            with render_mode="rgb_array", which stays open, or an environment of occupax that
            corresponds to one of Gymnasium.
        path: path of the file, which ends in .gif or .mp4.
        seed: seed of the environment and the actions. Default: 0.
        max_steps: number of steps after which the episode is truncated. Default: 500.
        deterministic: whether the policy takes its most probable actions. The `predict` of an agent
            receives the same argument. Default: False.
        fps: frames per second, from 0.01 to 1,000. Default: that of the environment.

    Returns:
        The path of the file.

    Raises:
        ValueError: if the environment cannot be rendered, or an argument is invalid.
    """
    check_actor(policy)
    check_path(path, "path")
    file = Path(path)
    check_integer("max_steps", max_steps)
    check_integer("seed", seed, 0)
    writers = {".gif": _gif, ".mp4": _mp4}
    if file.suffix not in writers:
        raise ValueError(f"path must end in .gif or .mp4, got {str(path)!r:.80}.")
    with _rendering(env) as renderer:
        rate: Any = fps
        if fps is None:
            rate = renderer.metadata.get("render_fps") or DEFAULT_FPS
        rate = check_number("fps", rate, low=MIN_FPS)
        if rate > MAX_FPS:
            raise ValueError(f"fps must be at most {MAX_FPS:,}, got {rate!r}.")
        frames = _frames(policy, renderer, seed, max_steps, deterministic)
        write_bytes(file, writers[file.suffix](frames, rate))
    return file


def record_preview(policy: Policy, env: DecisionProcess) -> bytes | None:
    """Return a small GIF of an episode, or None if the environment cannot be rendered."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return Watch(PREVIEW_TIMEOUT).run(lambda: _record_preview(policy, env), whole=True)
    except (Exception, SystemExit):  # noqa: BLE001 - foreign code runs, and a page needs no video
        return None


def _record_preview(policy: Policy, env: DecisionProcess) -> bytes | None:
    preview: list[Frame] = []
    with _rendering(env) as renderer:
        if _needs_opengl(renderer):
            return None
        start = time.monotonic()
        every = 1
        for i, _ in enumerate(_play(policy, renderer, 0, MAX_STEPS, False)):
            if i % every == 0:
                preview.append(_render(renderer))
            if len(preview) > MAX_PREVIEW_FRAMES:
                preview = preview[::2]
                every *= 2
            if time.monotonic() - start > PREVIEW_SECONDS:
                break
    return _gif(preview, PREVIEW_FPS, PREVIEW_WIDTH)


def _needs_opengl(env: Any) -> bool:
    """Return whether rendering uses OpenGL, which may end a process without a display."""
    return any("mujoco" in base.__module__ for base in type(env.unwrapped).__mro__)


@contextlib.contextmanager
def _rendering(env: Any) -> Generator[Any]:
    """Yield an environment of Gymnasium that renders. An environment of the caller stays open."""
    import gymnasium as gym  # takes long to import

    with _without_display():
        if not isinstance(env, gym.Env):
            with contextlib.closing(_make(env)) as renderer:
                yield renderer
        elif env.render_mode == "rgb_array":
            yield env
        else:
            raise ValueError(
                'env must be made with render_mode="rgb_array" to be recorded, '
                f"got {env.render_mode!r}."
            )


@contextlib.contextmanager
def _without_display() -> Generator[None]:
    """Set the environment variables for rendering off screen, except those that are set already."""
    settings = dict(HEADLESS_SETTINGS)
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
    """Return an environment of Gymnasium that renders images."""
    import gymnasium as gym  # takes long to import

    source, options = _gymnasium_source(env)
    constructor = source
    if isinstance(source, str):
        constructor = partial(gym.make, source)
    try:
        with ignoring_rounded_bounds():
            renderer = constructor(**options)
    except Exception as error:
        raise ValueError(
            f"{env!r:.60} cannot be made with render_mode='rgb_array': {error}"
        ) from error
    if not isinstance(renderer, gym.Env):
        raise ValueError(
            "env must be a Gymnasium id or make an environment of Gymnasium, "
            f"got {type(renderer).__name__}."
        )
    return renderer


def _gymnasium_source(env: Any) -> tuple[Any, dict[str, Any]]:
    """Return the Gymnasium id or the constructor of an environment, and the keyword arguments."""
    options: dict[str, Any] = {"render_mode": "rgb_array"}
    source = env
    if isinstance(env, str):
        source = find(env)
    if isinstance(source, GymnasiumEnv):
        options = dict(source.options) | options
        source = source.source
    elif isinstance(source, DecisionProcess):
        options["max_episode_steps"] = source.time_limit
        source = _gymnasium_id(source)
    if not isinstance(source, str) and not callable(source):
        raise ValueError(
            "env must be a Gymnasium id, an environment of Gymnasium or occupax, or a function "
            f"that makes one, got {shown(env)}."
        )
    return source, options


def _gymnasium_id(env: DecisionProcess) -> str:
    """Return the Gymnasium id that corresponds to an environment of this package."""
    name = GYMNASIUM_IDS.get(type(env).__name__)
    if isinstance(env, TabularMDP):
        name = table_name(env)
    if name is None:
        raise ValueError(
            f"env must be one that Gymnasium can draw, got {env!r:.60}. Pass a Gymnasium id."
        )
    return name


def _frames(
    policy: Any, env: Any, seed: int, max_steps: int, deterministic: bool
) -> Iterator[Frame]:
    """Yield an image at the start of an episode and after each step."""
    for _ in _play(policy, env, seed, max_steps, deterministic):
        yield _render(env)


def _play(policy: Any, env: Any, seed: int, max_steps: int, deterministic: bool) -> Iterator[None]:
    """Step through an episode, and pause where the environment can be rendered."""
    choose = _action_function(policy, env, seed, deterministic)
    observation, _ = env.reset(seed=seed)
    yield
    for t in range(max_steps):
        action = choose(observation, t == 0)
        observation, _, terminated, truncated, _ = env.step(action)
        yield
        if terminated or truncated:
            return


def _action_function(
    policy: Any, env: Any, seed: int, deterministic: bool
) -> Callable[[Any, bool], Any]:
    """Return a function of the observation, and whether it is the first, that returns an action."""
    if isinstance(policy, Policy):
        actor = policy.for_env(env)
        seeds = np.random.default_rng(seed)

        def predict(observation: Any, _: bool) -> Any:
            return actor.predict(observation, deterministic, int(seeds.integers(2**31)))

        return predict
    from occupax.envs.gymnasium_actions import action_writer  # imports Gymnasium, which is slow

    agent = Agent(policy, env, deterministic)
    write = action_writer(env.action_space)

    def act(observation: Any, is_first: bool) -> Any:
        return write(agent.act(observation, is_first)[None])[0]

    return act


def _render(env: Any) -> Frame:
    """Return an image of the environment, [rows, columns, 3]."""
    try:
        frame = np.asarray(env.render())
    except Exception as error:
        if _needs_opengl(env):
            backend = os.environ.get("MUJOCO_GL", "glfw")
            remedy = "install libegl1 and libgl1-mesa-dri, or libosmesa6 with MUJOCO_GL=osmesa"
            raise ValueError(
                f"MuJoCo could not draw with MUJOCO_GL={backend}: {remedy}. {error}"
            ) from error
        raise ValueError(f"the environment could not be drawn: {error}") from error
    if frame.ndim != 3 or frame.shape[2] != 3:
        raise ValueError(
            "render() must return an image [rows, columns, 3], "
            f"got an array of shape {frame.shape}."
        )
    return frame.astype(np.uint8)


def _gif(frames: Iterable[Frame], fps: float, width: int | None = None) -> bytes:
    """Return the bytes of a GIF, scaled down to a width if one is given."""
    from PIL import Image  # takes long to import

    images: list[Any] = []
    for frame in frames:
        image = Image.fromarray(frame)
        if width is not None and image.width > width:
            height = max(1, round(image.height * width / image.width))
            image = image.resize((width, height))
        images.append(image.quantize(COLOURS, Image.Quantize.FASTOCTREE))
    content = io.BytesIO()
    duration = max(MIN_FRAME_MILLISECONDS, round(1000 / fps))
    images[0].save(
        content, "GIF", save_all=True, append_images=images[1:], duration=duration, loop=0
    )
    return content.getvalue()


def _mp4(frames: Iterable[Frame], fps: float) -> bytes:
    """Return the bytes of an MP4."""
    try:
        import imageio_ffmpeg
    except ImportError:
        raise ValueError(
            "an .mp4 file needs imageio-ffmpeg: install occupax[video], or use .gif."
        ) from None
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # ffmpeg is a process that shares nothing with JAX
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
        file = Path(folder) / "episode.mp4"
        writer: Any = None
        for frame in frames:
            if writer is None:
                height, width, _ = frame.shape
                writer = imageio_ffmpeg.write_frames(
                    str(file), (width, height), fps=cast("int", fps), macro_block_size=2
                )
                writer.send(None)
            writer.send(np.ascontiguousarray(frame))
        if writer is not None:
            writer.close()
        return file.read_bytes()
