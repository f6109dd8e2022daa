"""`occupax evaluate`."""

from pathlib import Path
from typing import Annotated, Any

import tyro

import occupax as ox
from occupax.cli.choices import number, shown
from occupax.cli.output import print_json, print_table
from occupax.policies import Policy

HEADINGS = {"standard_error": "standard error", "terminated": "share not cut"}


def evaluate(
    policy: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="POLICY")],
    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")],
    episodes: Annotated[int, number(int)] = 100,
    seed: Annotated[int, number(int)] = 0,
    max_steps: Annotated[int | None, number(int), shown("the time limit of the environment")] = None,
    json: bool = False,
) -> None:
    """Run trained policies in Gymnasium, and show their mean return, without discount.

    Example: occupax evaluate runs/a FrozenLake8x8-v1 --episodes 1000

    Args:
        policy: a file such as runs/a/policies/seed-0.safetensors, or the folder of a run for all its seeds.
        env: a Gymnasium id, or module:factory, where the module may be a file in the current directory.
        episodes: how many episodes each policy runs.
        seed: of the environment and the actions.
        max_steps: where episodes are cut.
        json: print JSON instead of a table.
    """
    rows: list[dict[str, Any]] = []
    for name, one in _policies(policy).items():
        found = ox.evaluate(one, env, episodes, seed, max_steps)
        row = {"policy": name, "return": found.mean, "standard_error": found.standard_error if episodes > 1 else None}
        rows.append(row | {"length": found.mean_length, "terminated": float(found.terminated.mean())})
    if json:
        print_json({"env": env, "episodes": episodes, "policies": rows})
    else:
        print_table(
            f"{env}, {episodes:,} episodes each", [{HEADINGS.get(k, k): v for k, v in row.items()} for row in rows]
        )


def _policies(path: Path) -> dict[str, Policy]:
    if not path.is_dir():
        return {path.name: ox.load_policy(path)}
    result = ox.load_result(path)
    return {f"seed {seed}": policy for seed, policy in zip(result.seeds, result.policies, strict=True)}
