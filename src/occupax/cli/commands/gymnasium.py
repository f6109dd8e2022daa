"""Commands `check-env` and `evaluate`: Gymnasium environments and trained policies."""

import contextlib
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

import occupax as ox
from occupax.analysis.verdict import short
from occupax.cli.options import Flag, number, shown
from occupax.cli.output import print_json, print_line, print_table
from occupax.envs.lookup import find
from occupax.policies import Policy


def check_env(
    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")],
    episodes: Annotated[int, number(int)] = 5,
    seed: Annotated[int, number(int)] = 0,
    max_steps: Annotated[int, number(int)] = 1000,
    timeout: Annotated[float, number(float)] = 10.0,
    json: Flag = False,
) -> None:
    """Check an environment of Gymnasium or JAX and print how to fix each issue.

    The exit code is 1 if there are errors. Warnings alone leave it at 0.

    Example: occupax check-env my_module:MyEnv

    The module is installed, or a file in the current directory.

    Args:
        env: a Gymnasium id, or module:factory.
        episodes: number of random episodes, each of which is played twice.
        seed: seed of the environment and the actions.
        max_steps: step at which episodes are truncated.
        timeout: largest duration of one call of the environment, in seconds.
        json: print JSON instead of text.
    """
    with contextlib.redirect_stdout(sys.stderr):  # what the environment itself prints
        findings = ox.check_env(find(env), episodes, seed, max_steps, timeout)
    errors = sum(finding.severity == "error" for finding in findings)
    if json:
        print_json(
            {
                "env": env,
                "episodes": episodes,
                "seed": seed,
                "findings": [asdict(it) for it in findings],
            }
        )
    elif findings:
        print_line("\n\n".join(map(_text, findings)))
    else:
        print_line(f"{env}: all is well")
    if errors:
        raise RuntimeError(f"{env} has {'an error' if errors == 1 else f'{errors} errors'}.")


def _text(finding: ox.envs.EnvIssue) -> str:
    details = {
        name: value for name, value in asdict(finding).items() if name not in ("severity", "what")
    }
    lines = [
        f"{finding.severity}: {finding.what}",
        *(f"  {name:8}  {value}" for name, value in details.items()),
    ]
    return "\n".join(lines)


def evaluate(
    policy: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="POLICY")],
    env: Annotated[str | None, tyro.conf.Positional, shown("that of the run", "ENV")] = None,
    episodes: Annotated[int, number(int)] = 100,
    seed: Annotated[int, number(int)] = 0,
    max_steps: Annotated[
        int | None, number(int), shown("the time limit of the environment")
    ] = None,
    deterministic: Flag = False,
    trust: Flag = False,
    json: Flag = False,
) -> None:
    """Evaluate trained policies: utility, constraints and undiscounted return.

    Utility and constraints are those of the problem in the directory of a run. The return is that
    of an environment: a Gymnasium id, or module:factory.

    Example: occupax evaluate runs/a FrozenLake8x8-v1 --episodes 1000

    Args:
        policy: file such as runs/a/policies/seed-0.safetensors, or directory of a run.
        env: environment of the return.
        episodes: number of episodes of each policy.
        seed: seed of the environment and the actions.
        max_steps: step at which episodes in ENV are truncated.
        deterministic: take the most probable actions instead of drawing them.
        trust: import the module of the environment that the directory names.
        json: print JSON instead of a table.
    """
    policies, problem = _read(policy, trust)
    if env is None and problem is None:
        raise ValueError(
            "ENV must be given, because a policy file, or a run that cannot be restored, "
            "has no problem."
        )
    rows: list[dict[str, Any]] = []
    errors: list[float] = []
    mode: dict[str, Any] = {"deterministic": deterministic}
    for name, one in policies.items():
        objective = None if problem is None else ox.evaluate(one, problem, episodes, seed, **mode)
        found = (
            objective if env is None else ox.evaluate(one, env, episodes, seed, max_steps, **mode)
        )
        assert found is not None  # noqa: S101
        known = {} if objective is None else objective.objective
        row: dict[str, Any] = {"policy": name, **known, "return": found.interval}
        row["length"] = found.mean_length
        row["terminated"] = float(found.terminated.mean())
        rows.append(row)
        errors.append(found.standard_error)
    where = env or "as trained"
    if json:
        plain = [_plain(row, error) for row, error in zip(rows, errors, strict=True)]
        print_json({"env": env, "episodes": episodes, "policies": plain})
    else:
        texts = [{name: _text_of(value) for name, value in row.items()} for row in rows]
        print_table(f"{where}, {episodes:,} episodes each, 95% intervals in brackets", texts)


def _plain(row: dict[str, Any], standard_error: float) -> dict[str, Any]:
    """Return a row for JSON, with the mean and the standard error of the return."""
    plain: dict[str, Any] = {}
    for name, value in row.items():
        if name == "return":
            plain["return"] = value.value
            plain["standard_error"] = None if np.isnan(standard_error) else standard_error
        elif isinstance(value, ox.training.Estimate):
            plain[name] = value._asdict()
        else:
            plain[name] = value
    return plain


def _text_of(value: Any) -> Any:
    """Return an estimate with three digits and, if known, its interval."""
    if not isinstance(value, ox.training.Estimate):
        return value
    if np.isnan(value.lower) or value.lower == value.upper:
        return short(value.value)
    return f"{short(value.value)} [{short(value.lower)}, {short(value.upper)}]"


def _read(path: Path, trust: bool) -> tuple[dict[str, Policy], ox.Problem | None]:
    """Policies by name, and the problem that they were trained for, if it is known."""
    if not path.is_dir():
        return {path.name: ox.load_policy(path)}, None
    result = ox.load_result(path, trust=trust)
    policies = zip(result.seeds, result.policies, strict=True)
    return {f"seed {seed}": policy for seed, policy in policies}, result.problem
