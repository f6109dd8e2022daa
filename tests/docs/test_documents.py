"""Code and outputs of README, docs and notebooks, and the repository's promises about itself."""

import io
import multiprocessing
import os
import re
import runpy
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import pytest

import contexts

ROOT = Path(__file__).parents[2]

import notebooks  # noqa: E402

NAME_OF_A_FILE = re.compile(r"# (\w+\.py)\n")
OUTPUT = re.compile(r"```{\.text \.output}\n(.*?)```", re.DOTALL)
NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(e[+-]\d+)?")


def blocks_of(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


FOLDERS = ("docs", "docs/algorithms")
NAMES = [
    "README.md",
    *sorted(f"{folder}/{path.name}" for folder in FOLDERS for path in (ROOT / folder).glob("*.md")),
]
PAGES = [page for page in NAMES if blocks_of(page)]


@pytest.fixture
def reader(tmp_path):
    """The folder of a reader who has saved every block that begins with the name of a file."""
    for block in [block for page in PAGES for block in blocks_of(page)]:
        named = NAME_OF_A_FILE.match(block)
        if named:
            (tmp_path / named[1]).write_text(block)
    return tmp_path


EPISODES = {
    "docs/training.md": 10_000,
    "docs/diagnosis.md": 1000,
    "docs/environment-gymnasium.md": 400,
}
"""The most of a training on these pages, which print when a return is reached, that nothing was
learned, and that a run of 400 episodes can be resumed."""
FEW = 300
"""The most on all others: the lines that are printed are those after many."""


@contextmanager
def at_most(episodes):
    """Limit the episodes of every run and write no reports."""
    from occupax.analysis import report
    from occupax.training.setup import Setup

    iterations = Setup.iterations
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "write_pages", lambda *_: None)

        def limited(setup, budget):
            if budget.episodes is not None:
                budget = budget._replace(episodes=min(budget.episodes, episodes))
            return iterations(setup, budget)

        patch.setattr(Setup, "iterations", limited)
        yield patch


def run_notebook(cells):
    with at_most(FEW):
        return notebooks.run(cells)


def run(script, episodes):
    """Run a file as Python runs a script that is started in its folder, and return what it prints.

    Processes that it starts import it, as they do for a reader.
    """
    for saved in script.parent.glob("*.py"):  # those of an earlier page
        sys.modules.pop(saved.stem, None)
    with at_most(episodes) as patch, redirect_stdout(io.StringIO()) as printed:
        patch.chdir(script.parent)
        patch.syspath_prepend(script.parent)
        runpy.run_path(str(script), run_name="__main__")
    return printed.getvalue()


def shape(text):
    """Return the lines of a text without numbers, signs and spaces, which depend on the machine."""
    return [
        re.sub(r"\s+", "", NUMBER.sub("#", line.replace("violated by", "slack")))
        for line in text.splitlines()
    ]


@pytest.fixture(scope="module")
def scripts(compiled_fast):
    """A process that runs one page after the other, which share what is imported and compiled."""
    spawn, prepare = multiprocessing.get_context("spawn"), contexts.keep_one_for_each_thread
    with ProcessPoolExecutor(1, spawn, prepare) as process:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in compiled_fast.items():
                patch.setenv(name, value)
            process.submit(os.getpid).result()  # it starts here
        yield process
        process.submit(os._exit, 0)  # to free all that was compiled takes Python several seconds


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs_as_printed(page, reader, scripts):
    whole = [block for block in blocks_of(page) if not NAME_OF_A_FILE.match(block)]
    (reader / "page_of_the_docs.py").write_text("\n".join(whole))
    files = [found[1] for block in blocks_of(page) if (found := NAME_OF_A_FILE.match(block))]
    most = EPISODES.get(page, FEW)
    texts = [
        scripts.submit(run, reader / name, most).result()
        for name in ("page_of_the_docs.py", *files)
    ]
    printed = sum(block.count("print(") for block in blocks_of(page))
    lines = shape("".join(texts))
    assert len(lines) >= printed  # loops print more
    shown = [shape(output) for output in OUTPUT.findall((ROOT / page).read_text())]
    assert all(
        output == lines[(at := lines.index(output[0])) : at + len(output)] for output in shown
    )


@pytest.mark.parametrize(
    "path", sorted(notebooks.FOLDER.glob("*.ipynb")), ids=lambda path: path.stem
)
def test_a_notebook_runs_and_shows_what_it_has_stored(path, scripts):
    cells = notebooks.read(path)
    stored = [cell.get("outputs", []) for cell in cells]
    found = scripts.submit(run_notebook, cells).result()
    assert any("image/png" in output.get("data", {}) for outputs in stored for output in outputs)
    assert [[*map(shown, outputs)] for outputs in found] == [
        [*map(shown, outputs)] for outputs in stored
    ]


def shown(output):
    """The text of an output without its numbers, or that it is a picture."""
    data = output.get("data", {"text/plain": output.get("text", [])})
    return "picture" if "image/png" in data else shape("".join(data["text/plain"]))


ALGORITHM_PAGES = {
    "reinforce": ("reinforce", "maxent"),
    "epochs": ("svrpg", "srvr-pg", "hspga", "tsivr-pg"),
    "recursive": ("storm", "page", "n-vr-pg", "n-harpg"),
    "plug-in": ("plug-in",),
    "ppo": ("ppo",),
}


def test_the_page_of_each_algorithm_names_its_hyperparameters_and_its_metrics():
    from dataclasses import fields

    from occupax.algorithms import ALGORITHMS

    nav = (ROOT / "mkdocs.yml").read_text()
    assert {name for names in ALGORITHM_PAGES.values() for name in names} == set(ALGORITHMS)
    for title, names in ALGORITHM_PAGES.items():
        page = (ROOT / f"docs/algorithms/{title}.md").read_text()
        assert f"algorithms/{title}.md" in nav
        for name in names:
            algorithm = ALGORITHMS[name]()
            file = type(algorithm).__module__.replace(".", "/")
            missing = [field.name for field in fields(algorithm) if f"`{field.name}`" not in page]
            assert not missing, (name, missing)
            assert f"src/{file}.py" in page
            assert f"`--algorithm {name}`" in page
            assert not hasattr(algorithm, "weight_guard") or "`restarted`" in page


def test_importing_the_package_stays_light_and_figures_have_no_window():
    heavy = [
        "matplotlib",
        "cvxpy",
        "clarabel",
        "ray",
        "gymnasium",
        "tyro",
        "rich",
        "scipy.optimize",
    ]
    code = (
        "import occupax, occupax.training.evaluation, occupax.analysis.report, sys\n"
        f"print([name for name in {heavy} if name in sys.modules])\n"
        "from occupax.analysis.charts import Chart\n"
        "from occupax.analysis.page.figures import interactive\n"
        "interactive(Chart('a', '', '', 'x', 'y', ())); print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "False"]


def test_the_constraints_name_versions_and_no_addresses():
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.+!]*", line), line


@pytest.mark.parametrize("page", ["README.md", "docs/command-line.md"])
def test_a_report_reads_folders_that_the_commands_above_it_made(page):
    before, command, after = (ROOT / page).read_text().partition("occupax report ")
    folders = (command + after).splitlines()[0].removeprefix(command).partition(" --out")[0].split()
    assert len(folders) > 1
    assert all(f"--out {folder}\n" in before for folder in folders)
