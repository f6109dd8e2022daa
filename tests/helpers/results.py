"""Results and reports made of random records."""

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import occupax as ox
from occupax.analysis.describe import DIAGNOSTICS
from occupax.analysis.report import write_report
from occupax.io import codec

LAKE = ox.make("FrozenLake-v1")


def make_problem(utility: Any = None, env: Any = LAKE) -> ox.Problem:
    return ox.Problem(env, utility or ox.utilities.LogCoverage(), discount=0.9, horizon=20)


def make_result(
    seeds: int = 3,
    records: int = 5,
    problem: ox.Problem | None = None,
    full: bool = False,
    **changes: Any,
) -> ox.Result:
    """Return a result of random records and policies, `full` with exact values and diagnostics."""
    random, problem = np.random.default_rng(0), problem or make_problem()
    names = ["utility", "return", "discounted_return", "episode_length"]
    names += ["exact_utility", *DIAGNOSTICS] if full else []
    algorithm = ox.REINFORCE(batch=4, step_size=0.25)
    states, actions = LAKE.num_states, LAKE.num_actions
    policies = tuple(
        ox.policies.Tabular(jnp.array(random.normal(size=(states, actions)), jnp.float32))
        for _ in range(seeds)
    )
    parts = {"problem": problem, "algorithm": algorithm, "policy": policies[0], "record_every": 5}
    description, arrays = codec.pack(parts)
    versions = {"occupax": "1.2.3", "jax": "4.5.6", "float64": False}
    made = ox.Result(
        problem=problem,
        algorithm=algorithm,
        seeds=tuple(range(seeds)),
        episodes=20 * np.arange(1, records + 1),
        steps=random.integers(50, 150, (seeds, records)).cumsum(1),
        metrics={
            name: random.normal(10.0, 1.0, (seeds, records)).astype(np.float32) for name in names
        },
        policies=policies,
        status=("finished",) * seeds,
        seconds=12.0,
        config={"versions": versions, "episodes": 20 * records, "setup": description["dict"]},
        arrays=arrays,
    )
    return replace(made, **changes)


class Page(HTMLParser):
    """Takes a page apart, and fails where tags are not balanced."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.labels: list[str] = []
        self.cells: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.data: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.attributes += attrs
        self.ids += [found["id"] or ""] if "id" in found else []
        self.labels += (
            [found["aria-label"] or ""] if tag == "svg" and found.get("role") == "img" else []
        )

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data
        if self.open[-1:] == ["script"] and data.startswith("{"):
            self.data.append(data)
        if self.open and self.open[-1] in ("td", "th", "dd"):
            self.cells.append(data)


def written(path: Path, *runs: tuple[str, ox.Result]) -> tuple[str, Page]:
    write_report(runs, path)
    text = path.read_text()
    return text, Page(text)
