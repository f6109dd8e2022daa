"""The words of the package: openings and lengths of docstrings, and local names.

The rules are those of CONTRIBUTING.md. The bounds are the numbers of offences that are left; lower
them when offences are removed, and never raise them.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "src" / "occupax"
OPENING = re.compile(r"(What|How|Who|Whose|Which|Where|It|That|Those|As|By|The same)\b")
ODD_NAMES = frozenset(
    [
        "found",
        "it",
        "made",
        "given",
        "then",
        "now",
        "drawn",
        "kept",
        "seen",
        "done",
        "there",
        "worth",
        "way",
        "what",
        "about",
        "moving",
        "fixed",
    ]
)
MAX_WORDS = 20
BOUNDS = {"opening": 153, "summary": 337, "name": 486}


def check_docstring(path: Path, node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the rules that the docstring of a module, class or function breaks."""
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
        return
    docstring = ast.get_docstring(node)
    if not docstring:
        return
    place = f"{path.relative_to(SOURCES)}:{getattr(node, 'lineno', 1)}"
    summary = docstring.split("\n\n")[0]
    if OPENING.match(docstring):
        yield "opening", f"{place}: {summary}"
    if len(summary.split()) > MAX_WORDS or ";" in summary.splitlines()[0]:
        yield "summary", f"{place}: {summary}"


def check_name(path: Path, node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the odd name that a node binds."""
    name = ""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        name = node.id
    elif isinstance(node, ast.arg):
        name = node.arg
    if name in ODD_NAMES:
        yield "name", f"{path.relative_to(SOURCES)}:{node.lineno}: {name}"


@cache
def offences() -> dict[str, list[str]]:
    """Return the offences of the package by rule."""
    collected: dict[str, list[str]] = {rule: [] for rule in BOUNDS}
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for rule, text in [*check_docstring(path, node), *check_name(path, node)]:
                collected[rule].append(text)
    return collected


@pytest.mark.parametrize("rule", list(BOUNDS))
def test_docstrings_and_local_names_follow_the_rules(rule: str):
    broken = offences()[rule]
    assert len(broken) <= BOUNDS[rule], "\n".join(broken)


def test_the_rules_find_an_offence():
    tree = ast.parse('def f(found):\n    """What it does; and how."""\n')
    path = SOURCES / "module.py"
    broken = [
        rule
        for node in ast.walk(tree)
        for rule, _ in [*check_docstring(path, node), *check_name(path, node)]
    ]
    assert sorted(broken) == ["name", "opening", "summary"]
