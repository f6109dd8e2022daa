"""MkDocs hook: generate the pages of the command line, the changelog and contributing.

The page of the environments has a table that is read from the registry. All of them are made when
the site is built, so that they cannot differ from the package.
"""

import json
import os
import re
import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
COLUMNS = 80
CATALOGUE = "<!-- catalogue of environments -->"
FRAME = re.compile(r"^[│╭╰]\s?|\s*[│╮╯]$|─+", re.MULTILINE)
COMMANDS = """\
`occupax COMMAND --help` prints the text of this page. `python -m occupax` is the same command.
The exit code is 0 for success, 1 for a failure, 2 for invalid arguments, 130 after Ctrl-C, 143
after SIGTERM and 129 after SIGHUP.
[The command line in five minutes](../command-line.md) is the introduction."""
READ_PACKAGE = """
import contextlib, io, json, sys, warnings
warnings.simplefilter("ignore")
import jax
import occupax as ox
from occupax import cli

def describe(name):
    env = ox.make(name)
    kind = "exact table" if isinstance(env, ox.TabularMDP) else "JAX"
    spec = env.observation_spec()
    shape = ", ".join(map(str, spec.shape))
    seen = f"{env.num_states} states" if kind == "exact table" else f"[{shape}]"
    limit = ox.Problem(name).horizon
    if limit is None:
        import gymnasium
        limit = gymnasium.registry[name].max_episode_steps
    return [name, kind, seen, str(env.action_space), str(limit or "none")]

def help_of(*command):
    sys.argv = ["occupax", *command, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.suppress(SystemExit):
        cli.main()
    return text.getvalue()

pages = {name: help_of(name) for name in cli.COMMANDS}
print(json.dumps({"help": pages, "environments": [describe(name) for name in ox.envs.list()]}))
"""


@cache
def read_package() -> dict[str, Any]:
    """Return the help of each command and a row for each environment, read in a subprocess."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    variables = os.environ | {"COLUMNS": "80", "PYTHONPATH": path, "NO_COLOR": "1"}
    command = [sys.executable, "-c", READ_PACKAGE]
    run = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)  # noqa: S603
    if run.returncode:
        raise RuntimeError(f"the package cannot be read: {run.stderr}")
    return json.loads(run.stdout.splitlines()[-1])


def without_frame(text: str) -> str:
    """Return the help of a command without the boxes around its options."""
    lines: list[str] = []
    for line in text.strip().splitlines():
        plain = FRAME.sub("", line).rstrip()
        indent = plain[: len(plain) - len(plain.lstrip())]
        options: Any = {"break_long_words": False, "break_on_hyphens": False}
        lines += textwrap.wrap(plain, COLUMNS, subsequent_indent=indent, **options) or [""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def command_page() -> str:
    """Return the page of the command line."""
    parts = ["# Command line", COMMANDS]
    for name, text in read_package()["help"].items():
        parts.append(f"## occupax {name}")
        parts.append(f"```text\n{without_frame(text)}\n```")
    return "\n\n".join(parts) + "\n"


def catalogue() -> str:
    """Return the table of all registered environments."""
    lines = [
        "| name | implementation | observation | actions | time limit |",
        "| --- | --- | --- | --- | --: |",
    ]
    lines += ["| " + " | ".join(row) + " |" for row in read_package()["environments"]]
    return "\n".join(lines)


def project_page(name: str) -> str:
    """Return a page of the repository with links that work on the site."""
    text = (ROOT / name).read_text("utf-8")
    text = re.sub(r"\]\(docs/([^)]*)\)", r"](\1)", text)
    return text.replace("](CONTRIBUTING.md)", "](contributing.md)")


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages. Hook of MkDocs."""
    from mkdocs.structure.files import File

    pages = {
        "reference/cli.md": command_page(),
        "changelog.md": project_page("CHANGELOG.md"),
        "contributing.md": project_page("CONTRIBUTING.md"),
    }
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the catalogue of environments. Hook of MkDocs for each page."""
    return markdown.replace(CATALOGUE, catalogue()) if CATALOGUE in markdown else markdown
