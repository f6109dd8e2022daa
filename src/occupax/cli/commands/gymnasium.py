"""`occupax check-env` and `occupax evaluate`: environments of Gymnasium, and trained policies in them."""

import contextlib
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import tyro

import occupax as ox
from occupax.cli.choices import number, shown
from occupax.cli.output import print_json, print_line, print_table
from occupax.envs.lookup import find
from occupax.policies import Policy

HEADINGS = {"standard_error": "standard error", "terminated": "share not cut"}


def check_env(
    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")],
    episodes: Annotated[int, number(int)] = 5,
    seed: Annotated[int, number(int)] = 0,
    max_steps: Annotated[int, number(int)] = 1000,
    timeout: Annotated[float, number(float)] = 10.0,
    json: bool = False,
) -> None:
    """Check whether an environment, of Gymnasium or in JAX, is fit for training, and say how to mend what is wrong."""
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


def evaluate(
    policy: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="POLICY")],
    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")],
    episodes: Annotated[int, number(int)] = 100,
    seed: Annotated[int, number(int)] = 0,
    max_steps: Annotated[int | None, number(int), shown("the time limit of the environment")] = None,
    json: bool = False,
) -> None:
    """Run trained policies in Gymnasium, and show their mean return, without discount."""
    rows: list[dict[str, Any]] = []
    for name, one in _policies(policy).items():
        found = ox.evaluate(one, env, episodes, seed, max_steps)
        row = {"policy": name, "return": found.mean, "standard_error": found.standard_error if episodes > 1 else None}
        rows.append(row | {"length": found.mean_length, "terminated": float(found.terminated.mean())})
    if json:
        print_json({"env": env, "episodes": episodes, "policies": rows})
    else:
        titled = [{HEADINGS.get(name, name): value for name, value in row.items()} for row in rows]
        print_table(f"{env}, {episodes:,} episodes each", titled)


def _policies(path: Path) -> dict[str, Policy]:
    if not path.is_dir():
        return {path.name: ox.load_policy(path)}
    result = ox.load_result(path)
    return {f"seed {seed}": policy for seed, policy in zip(result.seeds, result.policies, strict=True)}
