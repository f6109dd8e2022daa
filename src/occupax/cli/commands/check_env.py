"""`occupax check-env`."""

import contextlib
import sys
from dataclasses import asdict
from typing import Annotated

import tyro

import occupax as ox
from occupax.cli.choices import number
from occupax.cli.output import print_json, print_line
from occupax.envs.lookup import find


def check_env(
    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")],
    episodes: Annotated[int, number(int)] = 5,
    seed: Annotated[int, number(int)] = 0,
    max_steps: Annotated[int, number(int)] = 1000,
    timeout: Annotated[float, number(float)] = 10.0,
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
        timeout: how many seconds each call of the environment may take.
        json: print JSON instead of text.
    """
    with contextlib.redirect_stdout(sys.stderr):  # what the environment itself prints
        findings = ox.check_env(find(env), episodes, seed, max_steps, timeout)
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
