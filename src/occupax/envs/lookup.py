"""Environments of Gymnasium by their id, or as module:factory."""

import difflib
import importlib
import inspect
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from occupax.envs.missing_envs import advice
from occupax.errors import unknown
from occupax.watch import Watch

SECONDS_TO_CLOSE = 10.0


def find(name: str) -> Any:
    """What module:factory stands for, where the module may be a file in the current directory; an id as it is."""
    module_name, colon, attribute = name.partition(":")
    if not colon:
        return name
    if not module_name or not attribute:
        raise ValueError(f"ENV must be a Gymnasium id, or module:factory, got {name!r}.")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    module = _import(module_name, name)
    if hasattr(module, attribute):
        return getattr(module, attribute)
    import gymnasium as gym

    if attribute in gym.registry:  # an id that the module registers, as Gymnasium writes it
        return name
    public = {key: value for key, value in vars(module).items() if not key.startswith("_")}
    here = [
        key
        for key, value in public.items()
        if getattr(value, "__module__", None) == module.__name__
    ]
    if here:
        raise unknown(f"{module_name} attribute", attribute, here)
    hint = "write module:factory, where factory() makes the environment"
    raise ValueError(f"{module_name} has no {attribute!r}; {hint}.")


def make_gymnasium(env: Any, options: dict[str, Any]) -> Any:
    """Make the Gymnasium environment of an id, and return an environment as it is."""
    import gymnasium as gym

    if isinstance(env, gym.Env):
        if options:
            raise ValueError(
                f"options go with a Gymnasium id, but env is made already, got {options}."
            )
        return env
    if not isinstance(env, str):
        raise ValueError(f"env must be a Gymnasium id or environment, got {env!r:.80}.")
    if env not in gym.registry and (
        what := advice(env)
    ):  # before Gymnasium, which warns of some of it
        raise ValueError(what)
    try:
        _refuse_other_flags(env, options)
        return gym.make(env, **options)
    except FlagError as error:
        raise ValueError(str(error)) from None
    except (Exception, SystemExit) as error:  # the constructor of an environment may raise anything
        raise not_made(env, error, options) from error


class FlagError(ValueError):
    """An option that is something else where True or False is wanted, of which Python would make one of them."""


def _refuse_other_flags(name: str, options: dict[str, Any]) -> None:
    import gymnasium as gym
    from gymnasium.envs.registration import load_env_creator

    spec = gym.registry.get(name)
    if spec is None or spec.entry_point is None or not options:
        return
    create = spec.entry_point if callable(spec.entry_point) else load_env_creator(spec.entry_point)
    known = inspect.signature(create).parameters
    for option, value in options.items():
        if type(value) is not bool and option in known and isinstance(known[option].default, bool):
            raise FlagError(f"the option {option} must be True or False, got {value!r}.")


@contextmanager
def ignoring_rounded_bounds() -> Generator[None]:
    """Ignore Gymnasium's warning that a Box rounds its bounds, while environments are made.

    It is repeated for every environment in every process. The filters of warnings are those of all
    threads, so that a thread which may be left behind must not change them.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", r".*Box (low|high)'s precision lowered by casting", UserWarning
        )
        yield


@contextmanager
def closing(env: Any) -> Generator[Any]:
    """Close an environment in the end; if that fails, or takes longer than a few seconds, nothing is lost."""
    try:
        yield env
    finally:
        with suppress(Exception, SystemExit):
            Watch(SECONDS_TO_CLOSE).run(env.close, whole=True)


def not_made(name: str, error: BaseException, options: dict[str, Any] | None = None) -> ValueError:
    """The error for an id of which Gymnasium made no environment, and why, in one sentence."""
    import gymnasium as gym

    if isinstance(error, gym.error.DependencyNotInstalled):
        return ValueError(
            f"{name!r} needs a package that is not installed: {' '.join(str(error).split())}."
        )
    if isinstance(error, (gym.error.UnregisteredEnv, gym.error.DeprecatedEnv, ImportError)) and (
        what := advice(name)
    ):
        return ValueError(what)
    if not isinstance(error, gym.error.UnregisteredEnv):
        given = f" with the options {options}" if options else ""
        reason = f"{type(error).__name__}: {error}".rstrip(".")
        return ValueError(f"Gymnasium could not make {name!r}{given}. {reason}.")
    alike = [known for known in gym.registry if known[:2].lower() == name[:2].lower()]
    if close := difflib.get_close_matches(name, alike, n=3):
        return unknown("Gymnasium id", name, close)
    return ValueError(
        f"Gymnasium id {name!r} is not known; gymnasium.pprint_registry() lists those that are."
    )


def _import(name: str, asked: str) -> Any:
    """The module of this name, for the environment that was asked for."""
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if not isinstance(error, ModuleNotFoundError) or error.name not in (
            name,
            name.partition(".")[0],
        ):
            raise ValueError(f"importing {name} raised {type(error).__name__}: {error}") from error
        if close := difflib.get_close_matches(
            name, [path.stem for path in Path.cwd().glob("*.py")], n=3
        ):
            raise unknown("module", name, close) from error
        nowhere = f"module {name!r} is neither in the current directory nor installed."
        raise ValueError(advice(asked) or nowhere) from error
