"""Runs the code of README and docs as printed, and checks what the repository promises about itself."""

import io
import multiprocessing
import os
import re
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


PAGES = ["README.md"] + [
    f"docs/{name}.md"
    for name in (
        "guide",
        "training",
        "actions",
        "observations",
        "tutorial-environment",
        "tutorial-jax-environment",
        "tutorial-utility",
        "tutorial-constraint",
        "recipes",
        "tutorial-rewards",
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


def run(code, folder):
    """Run code as a script of its own that is started in a folder, and return what it prints."""
    for saved in folder.glob("*.py"):  # those of an earlier page
        sys.modules.pop(saved.stem, None)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        patch.setitem(sys.modules, "__main__", ModuleType("__main__"))
        exec(code, vars(sys.modules["__main__"]))  # noqa: S102
    return printed.getvalue()


@pytest.fixture(scope="module")
def scripts(compiled_fast):
    """A process that runs one page after the other, which share what is imported and compiled."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in compiled_fast.items():
                patch.setenv(name, value)
            process.submit(os.getpid).result()  # it starts here
        yield process


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs_as_printed(page, reader, scripts):
    blocks = [block for block in blocks_of(page) if not NAME_OF_A_FILE.match(block)]
    assert blocks
    lines = scripts.submit(run, "\n".join(blocks), reader).result().splitlines()
    printed = sum(block.count("print(") for block in blocks)
    assert len(lines) >= printed  # loops print more


def test_the_page_of_each_algorithm_names_its_settings_and_its_records():
    from dataclasses import fields

    from occupax.algorithms import ALGORITHMS
    from occupax.algorithms.base import WeightedAlgorithm

    nav = (ROOT / "mkdocs.yml").read_text()
    for name, make in ALGORITHMS.items():
        page, algorithm = (ROOT / f"docs/algorithms/{name}.md").read_text(), make()
        file = type(algorithm).__module__.replace(".", "/")
        missing = [field.name for field in fields(algorithm) if f"`{field.name}`" not in page]
        assert not missing, (name, missing)
        assert f"algorithms/{name}.md" in nav
        assert f"src/{file}.py" in page
        assert ("`restarted`" in page) == isinstance(algorithm, WeightedAlgorithm)


def test_importing_the_package_stays_light():
    heavy = ["matplotlib", "cvxpy", "clarabel", "ray", "gymnasium", "tyro", "rich", "scipy.optimize"]
    code = f"import occupax, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_constraints_name_versions_and_no_addresses():
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.+!]*", line), line
