"""Gymnasium environments by id, or as module:factory."""

import difflib
import importlib
import inspect
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from occupax.envs.missing_envs import missing_env_hint
from occupax.errors import unknown
from occupax.watch import Watch

SECONDS_TO_CLOSE = 10.0


def find(name: str) -> Any:
    """Return the attribute that module:factory names. Return a Gymnasium id as a string.

    The module may be a file in the current directory.
    """
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

    if attribute in gym.registry:  # an id that the module registers, in Gymnasium's notation
        return name
    candidates: list[str] = []
    for key, value in vars(module).items():
        if not key.startswith("_") and getattr(value, "__module__", None) == module.__name__:
            candidates.append(key)
    if candidates:
        raise unknown(f"{module_name} attribute", attribute, candidates)
    raise ValueError(
        f"{module_name} has no {attribute!r}; write module:factory, where factory() makes the "
        "environment."
    )


def make_gymnasium(env: Any, options: dict[str, Any]) -> Any:
    """Make the Gymnasium environment of an id. Return an environment unchanged."""
    import gymnasium as gym

    if isinstance(env, gym.Env):
        if options:
            raise ValueError(
                f"options go with a Gymnasium id, but env is made already, got {options}."
            )
        return env
    if not isinstance(env, str):
        raise ValueError(f"env must be a Gymnasium id or environment, got {env!r:.80}.")
    if env not in gym.registry:  # before Gymnasium, which warns about some ids
        hint = missing_env_hint(env)
        if hint is not None:
            raise ValueError(hint)
    try:
        _check_flags(env, options)
        return gym.make(env, **options)
    except FlagError as error:
        raise ValueError(str(error)) from None
    except (Exception, SystemExit) as error:  # the constructor of an environment may raise anything
        raise make_error(env, error, options) from error


class FlagError(ValueError):
    """An option that must be True or False has another value."""


def _check_flags(name: str, options: dict[str, Any]) -> None:
    """Raise FlagError for a boolean option whose value Python would convert."""
    import gymnasium as gym
    from gymnasium.envs.registration import load_env_creator

    spec = gym.registry.get(name)
    if spec is None or spec.entry_point is None or not options:
        return
    create = spec.entry_point
    if not callable(create):
        create = load_env_creator(create)
    parameters = inspect.signature(create).parameters
    for option, value in options.items():
        if option not in parameters or not isinstance(parameters[option].default, bool):
            continue
        if type(value) is not bool:
            raise FlagError(f"the option {option} must be True or False, got {value!r}.")


@contextmanager
def ignoring_rounded_bounds() -> Generator[None]:
    """Ignore Gymnasium's warning about rounded bounds of a Box, while environments are made.

    The warning is repeated for every environment in every process. Warning filters are global to
    all threads, so a thread that may be left behind must not change them.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", r".*Box (low|high)'s precision lowered by casting", UserWarning
        )
        yield


@contextmanager
def closing(env: Any) -> Generator[Any]:
    """Close an environment at the end. Ignore errors, and a call of more than a few seconds."""
    try:
        yield env
    finally:
        with suppress(Exception, SystemExit):
            Watch(SECONDS_TO_CLOSE).run(env.close, whole=True)


def make_error(
    name: str, error: BaseException, options: dict[str, Any] | None = None
) -> ValueError:
    """Return the error for an id of which Gymnasium made no environment, with the reason."""
    import gymnasium as gym

    if isinstance(error, gym.error.DependencyNotInstalled):
        reason = " ".join(str(error).split())
        return ValueError(f"{name!r} needs a package that is not installed: {reason}.")
    is_unregistered = isinstance(error, gym.error.UnregisteredEnv)
    if is_unregistered or isinstance(error, gym.error.DeprecatedEnv | ImportError):
        hint = missing_env_hint(name)
        if hint is not None:
            return ValueError(hint)
    if not is_unregistered:
        arguments = f" with the options {options}" if options else ""
        reason = f"{type(error).__name__}: {error}".rstrip(".")
        return ValueError(f"Gymnasium could not make {name!r}{arguments}. {reason}.")
    candidates = [known for known in gym.registry if known[:2].lower() == name[:2].lower()]
    close = difflib.get_close_matches(name, candidates, n=3)
    if close:
        return unknown("Gymnasium id", name, close)
    return ValueError(
        f"Gymnasium id {name!r} is not known; gymnasium.pprint_registry() lists those that are."
    )


def _import(module_name: str, name: str) -> Any:
    """Import the module of an environment. Raise ValueError with a hint if that fails."""
    try:
        return importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        package = module_name.partition(".")[0]
        is_missing = isinstance(error, ModuleNotFoundError) and error.name in (module_name, package)
        if not is_missing:
            raise ValueError(
                f"importing {module_name} raised {type(error).__name__}: {error}"
            ) from error
        local_modules = [path.stem for path in Path.cwd().glob("*.py")]
        close = difflib.get_close_matches(module_name, local_modules, n=3)
        if close:
            raise unknown("module", module_name, close) from error
        hint = missing_env_hint(name)
        if hint is None:
            hint = f"module {module_name!r} is neither in the current directory nor installed."
        raise ValueError(hint) from error
