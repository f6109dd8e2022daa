"""Runs the code of README and docs as printed, and checks what the repository promises about itself."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


PAGES = ["README.md"] + [
    f"docs/{name}.md"
    for name in (
        "guide",
        "training",
        "tutorial-environment",
        "tutorial-utility",
        "tutorial-constraint",
        "tutorial-cluster",
        "devices",
    )
]
NAME_OF_A_FILE = re.compile(r"# (\w+\.py)\n")


def blocks_of(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


@pytest.fixture
def reader(tmp_path):
    """The folder of a reader who has saved every block that begins with the name of a file."""
    for block in [block for page in PAGES for block in blocks_of(page)]:
        named = NAME_OF_A_FILE.match(block)
        if named:
            (tmp_path / named[1]).write_text(block)
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs_as_printed(page, reader, compiled_fast):
    blocks = [block for block in blocks_of(page) if not NAME_OF_A_FILE.match(block)]
    assert blocks
    command = [sys.executable, "-c", "\n".join(blocks)]
    done = subprocess.run(command, env=compiled_fast, cwd=reader, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    printed = sum(block.count("print(") for block in blocks)
    assert len(done.stdout.splitlines()) >= printed  # loops print more


def test_importing_the_package_stays_light():
    heavy = ["matplotlib", "cvxpy", "clarabel", "ray", "gymnasium", "tyro", "rich", "scipy.optimize"]
    code = f"import occupax, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_constraints_name_versions_and_no_addresses():
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.+!]*", line), line
