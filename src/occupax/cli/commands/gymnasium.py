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
        episodes: number of random episodes. Each episode is run twice.
        seed: seed of the environment and the actions.
        max_steps: step at which episodes are truncated.
        timeout: largest duration of one call of the environment, in seconds.
        json: print JSON instead of text.
    """
    with contextlib.redirect_stdout(sys.stderr):  # output of the environment is not a result
        issues = ox.check_env(find(env), episodes, seed, max_steps, timeout)
    if json:
        findings = list(map(asdict, issues))
        print_json({"env": env, "episodes": episodes, "seed": seed, "findings": findings})
    elif issues:
        print_line("\n\n".join(map(_issue_text, issues)))
    else:
        print_line(f"{env}: no issues")
    errors = [issue for issue in issues if issue.severity == "error"]
    if errors:
        count = "an error" if len(errors) == 1 else f"{len(errors)} errors"
        raise RuntimeError(f"{env} has {count}.")


def _issue_text(issue: ox.envs.EnvIssue) -> str:
    lines = [f"{issue.severity}: {issue.what}"]
    for name, value in asdict(issue).items():
        if name not in ("severity", "what"):
            lines.append(f"  {name:8}  {value}")
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

    Utility and constraints are those of the problem in the directory of a run. The return is
    measured in ENV: a Gymnasium id, or module:factory.

    Example: occupax evaluate runs/a FrozenLake8x8-v1 --episodes 1000

    Args:
        policy: file such as runs/a/policies/seed-0.safetensors, or directory of a run.
        env: environment of the return.
        episodes: number of episodes of each policy.
        seed: seed of the environment and the actions.
        max_steps: step at which episodes in ENV are truncated.
        deterministic: use the most probable actions instead of sampled actions.
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
    for name, trained in policies.items():
        row: dict[str, Any] = {"policy": name}
        returns = None
        if problem is not None:
            returns = ox.evaluate(trained, problem, episodes, seed, **mode)
            row.update(returns.objective)
        if env is not None:
            returns = ox.evaluate(trained, env, episodes, seed, max_steps, **mode)
        assert returns is not None  # noqa: S101
        row["return"] = returns.interval
        row["length"] = returns.mean_length
        row["terminated"] = float(returns.terminated.mean())
        rows.append(row)
        errors.append(returns.standard_error)
    if json:
        plain = [_plain(row, error) for row, error in zip(rows, errors, strict=True)]
        print_json({"env": env, "episodes": episodes, "policies": plain})
        return
    title = f"{env or 'as trained'}, {episodes:,} episodes each, 95% intervals in brackets"
    print_table(title, [_texts(row) for row in rows])


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


def _texts(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with estimates as text: three digits and the interval, if it is known."""
    texts = dict(row)
    for name, value in row.items():
        if not isinstance(value, ox.training.Estimate):
            continue
        texts[name] = short(value.value)
        if value.lower < value.upper:
            texts[name] += f" [{short(value.lower)}, {short(value.upper)}]"
    return texts


def _read(path: Path, trust: bool) -> tuple[dict[str, Policy], ox.Problem | None]:
    """Return policies by name, and the problem that they were trained for, None if unknown."""
    if not path.is_dir():
        return {path.name: ox.load_policy(path)}, None
    result = ox.load_result(path, trust=trust)
    names = [f"seed {seed}" for seed in result.seeds]
    return dict(zip(names, result.policies, strict=True)), result.problem
