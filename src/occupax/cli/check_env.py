"""`occupax check-env`."""

import contextlib
import difflib
import importlib
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import tyro

import occupax as ox
from occupax._errors import unknown
from occupax.cli.choices import number
from occupax.cli.output import print_json, print_line


def check_env(
    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")],
    episodes: Annotated[int, number(int)] = 5,
    seed: Annotated[int, number(int)] = 0,
    max_steps: Annotated[int, number(int)] = 1000,
    json: bool = False,
) -> None:
    """Check whether a Gymnasium environment is fit for training, and say how to mend what is wrong with it.

    The exit code is 1 if there are errors; warnings alone leave it at 0.

    Example: occupax check-env my_module:MyEnv

    Args:
        env: a Gymnasium id, or module:factory, where the module may be a file in the current directory.
        episodes: how many random episodes are played, each of them twice.
        seed: of the environment and the actions.
        max_steps: where episodes are cut.
        json: print JSON instead of text.
    """
    with contextlib.redirect_stdout(sys.stderr):  # what the environment itself prints
        findings = ox.check_env(_find(env), episodes, seed, max_steps)
    errors = sum(finding.severity == "error" for finding in findings)
    if json:
        print_json({"env": env, "episodes": episodes, "seed": seed, "findings": [asdict(it) for it in findings]})
    elif findings:
        print_line("\n\n".join(map(_text, findings)))
    else:
        print_line(f"{env}: all is well")
    if errors:
        raise RuntimeError(f"{env} has {'an error' if errors == 1 else f'{errors} errors'}.")


def _text(finding: ox.envs.Finding) -> str:
    details = {name: value for name, value in asdict(finding).items() if name not in ("severity", "what")}
    lines = [f"{finding.severity}: {finding.what}", *(f"  {name:8}  {value}" for name, value in details.items())]
    return "\n".join(lines)


def _find(name: str) -> Any:
    """What module:factory stands for; an id as it is."""
    module_name, colon, attribute = name.partition(":")
    if not colon:
        return name
    if not module_name or not attribute:
        raise ValueError(f"ENV must be a Gymnasium id, or module:factory, got {name!r}.")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    module = _import(module_name)
    if hasattr(module, attribute):
        return getattr(module, attribute)
    import gymnasium as gym

    if attribute in gym.registry:  # Gymnasium writes ids that a module registers in this way too
        return attribute
    here = [key for key, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    here = [key for key in here if not key.startswith("_")]
    if here:
        raise unknown(f"{module_name} attribute", attribute, here)
    raise ValueError(
        f"{module_name} has no {attribute!r}; write module:factory, where factory() makes the environment."
    )


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception as error:
        if not isinstance(error, ModuleNotFoundError) or error.name not in (name, name.partition(".")[0]):
            raise ValueError(f"importing {name} raised {type(error).__name__}: {error}") from error
        close = difflib.get_close_matches(name, [path.stem for path in Path.cwd().glob("*.py")], n=3)
        if close:
            raise unknown("module", name, close) from error
        raise ValueError(f"module {name!r} is neither in the current directory nor installed.") from error
