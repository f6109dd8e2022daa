"""All experiments from one end to the other, on lakes of 16 cells, and the command that runs them."""

import csv
import re
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import numpy as np
import pytest

import occupax as ox
from occupax.analysis.statistics import bootstrap, bootstrap_difference
from occupax.experiments import (
    ablations,
    cells,
    methods,
    rate,
    reproduce,
    reproduction,
    reward,
    sections,
    utility,
    views,
)
from occupax.experiments.cells import SCALES, Done
from occupax.experiments.reproduction import BADGES
from occupax.experiments.sections import text as words
from occupax.experiments.tasks import COVERAGE, COVERAGE_ABSORBING, LAKE, TASKS, Task
from test_cli_train import occupax
from test_page import opened

PARTS = ("reward", "rate", "utility")
TINY = SCALES["quick"]._replace(share=1.0, most_seeds=2, tasks=(LAKE, COVERAGE), roots=(2, 3, 4), epochs=2)


def small_tasks() -> dict[str, Task]:
    """Tasks of the same names on a small lake."""
    lake, objective = ox.make("FrozenLake-v1"), ox.utilities.LogCoverage(0.125)
    problems = {
        LAKE: (ox.Problem(lake, None, 0.9, 6), "discounted_return"),
        COVERAGE: (ox.Problem(lake, objective, 0.9, 6), "exact"),
        COVERAGE_ABSORBING: (ox.Problem(lake, objective, 0.9, 6, "absorbing"), "exact"),
    }
    made = {name: Task(name, *entry, 40, 2, (0.1, 1.0), 4) for name, entry in problems.items()}
    return made | {name: replace(made[LAKE], name=name) for name in TASKS if name not in made}


def small_settings(others: Any) -> dict[tuple[str, str], Any]:
    """A few episodes for each name; a few algorithms are enough here, and compile in less time than all."""
    ours, cut = ox.TSIVRPG(9, 3, 3, step_size=0.3), ox.REINFORCE(batch=9, step_size=0.3, radius=0.2)
    known = {"TSIVR-PG": ours, "TSIVR-PG (B = 4 m)": ours, "MaxEnt": ox.MaxEnt(batch=9, step_size=0.3)}
    known |= {"REINFORCE": replace(cut, radius=inf), "REINFORCE (truncated)": cut}
    return {(task, method): known.get(method, others) for task in TASKS for method in methods.METHODS}


def use_small_tasks(patch: pytest.MonkeyPatch) -> None:
    made = small_tasks()
    for module in (views, rate, ablations, reproduction):
        patch.setattr(module, "tasks", lambda: made)
    printed = small_settings(ox.SRVRPG(9, 3, 3, step_size=0.3))
    tuned = small_settings(ox.REINFORCE(batch=9, step_size=0.2))
    patch.setattr(methods, "printed", lambda: printed)
    patch.setattr(methods, "tuned", lambda *_: tuned)
    patch.setitem(SCALES, "tiny", TINY)
    patch.setattr(sections, "bootstrap", partial(bootstrap, resamples=40))  # whose number is no matter here
    for module in (views, reward, utility):
        patch.setattr(module, "bootstrap_difference", partial(bootstrap_difference, resamples=40))


@pytest.fixture
def _small(monkeypatch):
    use_small_tasks(monkeypatch)


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """The folders of all three parts, trained and written."""
    folders = {part: tmp_path_factory.mktemp(part) for part in PARTS}
    with pytest.MonkeyPatch.context() as patch:
        use_small_tasks(patch)
        for part, folder in folders.items():
            assert reproduce(part, "tiny", folder, progress=False) == folder / "report.html"
    return folders


def cells_of(part: str) -> list[cells.Cell]:
    """All cells of a part, each once."""
    every = [cell for needed, _ in reproduction.experiments(part, TINY) for cell in needed.values()]
    return list({cell.name: cell for cell in every}.values())


def stored(folder, cell) -> Done:
    """What was trained before, in the place of training it again."""
    done = cells.load(folder, replace(cell, episodes=40))
    assert done is not None
    return replace(done, cell=cell)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.usefixtures("_small")
def test_a_report_has_all_that_belongs_to_it(reports, part):
    folder = reports[part]
    page, text = ((folder / name).read_text() for name in ("report.html", "report.md"))
    with (folder / "numbers" / "claims.csv").open() as stream:
        claims = list(csv.DictReader(stream))
    assert {claim["Section"] for claim in claims} == {{"reward": "6.1", "rate": "6.2", "utility": "6.3"}[part]}
    shown = re.findall(r'<span class="badge (\w+)"><span aria-hidden="true">.</span> ([\w ]+)</span>', page)
    assert [verdict for _, verdict in shown] == [claim["Verdict"] for claim in claims]
    assert all(BADGES[verdict] == kind for kind, verdict in shown)
    for claim in claims:
        assert claim["The paper says"].replace("'", "&#39;") in page
        assert f"| {claim['Verdict']} | {claim['Measured here']} |" in text
    for name, settled in words("conventions").items():
        assert f"- **{name}.** {settled}" in text
    figures = re.findall(r"!\[.*\]\(figures/([\w-]+)\.svg\)", text)
    assert len(figures) == len(set(figures)) == {"reward": 5 + 2, "rate": 2, "utility": 5}[part]
    for name in figures:
        assert (folder / "figures" / f"{name}.svg").read_text().startswith("<?xml")
        assert (folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert len((folder / "figures" / f"{name}.csv").read_text().splitlines()) > 3
    assert not re.search(r"(?:src|href)=[\"'](?!#|data:)|url\((?!#)|@import", page)  # nothing is loaded


@pytest.mark.parametrize("width", [1100, 390])
def test_a_report_works_in_a_browser(reports, window, width):
    file = reports["utility"] / "report.html"
    for page in opened(window, file, viewport={"width": width, "height": 900}):
        assert page.evaluate("document.documentElement.scrollWidth") == width
        drawings = page.locator("figure.live svg[role=img]")
        assert drawings.count() == 5
        for i in range(5):
            boxes = drawings.nth(i).locator("path").evaluate_all("all => all.map(it => it.getBBox().width)")
            assert sum(size > 0 for size in boxes) > 5
        toggle = page.locator("figure.live button[aria-pressed]").first
        line = page.locator("figure.live .plot [data-part]").first
        before = line.evaluate("it => getComputedStyle(it).display")
        toggle.click()
        assert toggle.get_attribute("aria-pressed") == "false"
        assert before != "none"
        assert line.evaluate("it => getComputedStyle(it).display") == "none"


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.usefixtures("_small")
def test_the_numbers_of_all_seeds_are_written(reports, part):
    with (reports[part] / "numbers" / "seeds.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    every = cells_of(part)
    expected = [(cell.name, "policy", str(seed)) for cell in every for seed in range(2)]
    assert [(row["run"], row["of"], row["seed"]) for row in rows if row["of"] == "policy"] == expected
    mixtures = {row["run"] for row in rows if row["of"] == "mixture"}
    assert mixtures == {cell.name for cell in every if isinstance(cell.algorithm, ox.MaxEnt)}
    tables = {(row["run"], row["seed"]): float(row["final"]) for row in rows if row["of"] == "policy"}
    for cell in every:
        found = cells.load(reports[part], cell)
        assert found is not None
        assert found.tables is not None
        worth = [ox.exact.value(cell.task.problem, table) for table in found.tables]
        assert [tables[cell.name, str(seed)] for seed in range(2)] == pytest.approx(worth, rel=1e-8)


@pytest.fixture
def quiet(monkeypatch):
    """Reports are not written, but what they would be made of is remembered."""
    written = []
    for module in (reward, ablations, rate, utility):
        monkeypatch.setattr(module, "sections", lambda *_, **__: [])
    monkeypatch.setattr(reproduction, "write_page", lambda *arguments: written.append(arguments) or arguments[0])
    return written


@pytest.mark.usefixtures("_small", "quiet")
def test_a_second_call_trains_nothing(reports, monkeypatch):
    monkeypatch.setattr(cells, "measure", lambda *_: pytest.fail("everything is there already"))
    for part, folder in reports.items():
        assert reproduce(part, "tiny", folder, progress=False) == folder


@pytest.mark.usefixtures("_small")
def test_what_was_interrupted_goes_on(reports, tmp_path, monkeypatch, quiet):
    names: list[str] = []

    def measure(cell, logger):
        if len(names) == 3:
            raise KeyboardInterrupt
        names.append(cell.name)
        return stored(reports["utility"], cell)

    monkeypatch.setattr(cells, "measure", measure)
    with pytest.raises(KeyboardInterrupt):
        reproduce("utility", "tiny", tmp_path, progress=False)
    assert quiet == []
    first = list(names)
    names[:] = ["", *[""] * 3]  # never three again
    reproduce("utility", "tiny", tmp_path, progress=False)
    assert first + names[4:] == [cell.name for cell in cells_of("utility")]
    done = quiet[0][-2]
    for it in done:
        np.testing.assert_array_equal(it.last.heights, stored(reports["utility"], it.cell).last.heights)


@pytest.mark.usefixtures("_small", "quiet")
def test_another_number_of_episodes_runs_again(reports, tmp_path, monkeypatch):
    names: list[str] = []

    def measure(cell, logger):
        names.append(cell.name)
        return stored(reports["utility"], cell)

    monkeypatch.setattr(cells, "measure", measure)
    every = [cell.name for cell in cells_of("utility")]
    for share, trained in ((1.0, every), (2.0, every), (2.0, [])):
        monkeypatch.setitem(SCALES, "tiny", TINY._replace(share=share))
        names.clear()
        reproduce("utility", "tiny", tmp_path, progress=False)
        assert names == trained


@pytest.mark.usefixtures("_small")
def test_all_is_every_part_and_what_parts_share_is_trained_once():
    every = cells_of("all")
    assert {cell.name for cell in every} == {cell.name for part in PARTS for cell in cells_of(part)}
    # two of the lake's ablations are methods of 6.1 as they are, and one of the ablations of coverage a method of 6.3
    assert len(every) == 10 + 8 + 6 + 10 - 2 - 1
    described = {cell.name: cell.description for cell in every}
    for needed, _ in reproduction.experiments("all", TINY):
        assert all(cell.description == described[cell.name] for cell in needed.values())


@pytest.mark.usefixtures("_small")
def test_the_scale_says_which_tasks_are_run():
    for chosen, counts in (((LAKE, COVERAGE), (10 + 8, 6, 10)), (TASKS, (30 + 16, 6, 20))):
        scale = TINY._replace(tasks=chosen)
        found = [
            [it for needed, _ in reproduction.experiments(part, scale) for it in needed.values()] for part in PARTS
        ]
        assert tuple(map(len, found)) == counts
        assert {cell.task.name for part in found for cell in part} == set(chosen)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("rewards", "--out", "x"), "invalid choice"),
        (("reward", "--out", "x", "--scale", "tiny"), "invalid choice"),
        (("reward",), "--out"),
        ((), "--out"),
    ],
)
def test_mistakes_end_in_a_sentence_and_exit_code_2(arguments, said):
    code, out, err = occupax("reproduce", *arguments)
    assert code == 2
    assert said in out + err
    assert "Traceback" not in out + err


@pytest.mark.usefixtures("as_users_run")
def test_mistakes_in_python_are_answered_with_a_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"part 'rewards' is not known\. Did you mean 'reward'\?"):
        reproduce("rewards", "quick", tmp_path)
    with pytest.raises(ValueError, match=r"scale 'fulll' is not known\. Did you mean 'full'\?"):
        reproduce("reward", "fulll", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_what_it_does():
    code, out, _ = occupax("reproduce", "--help")
    assert code == 0
    for word in (*PARTS, "all", "quick", "full", "--tune", "--out"):
        assert word in out


def test_the_command_prints_where_the_report_is(tmp_path, monkeypatch):
    asked = []
    report = tmp_path / "it.html"
    monkeypatch.setattr("occupax.experiments.reproduce", lambda *arguments: asked.append(arguments) or report)
    code, out, err = occupax("reproduce", "rate", "--scale", "full", "--out", tmp_path)
    assert (code, err) == (0, "")
    assert out == f"report: {report}\n"
    assert asked == [("rate", "full", tmp_path, False, True)]


def test_an_interrupted_command_says_how_to_go_on(tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("occupax.experiments.reproduce", stop)
    code, _, err = occupax("reproduce", "rate", "--out", tmp_path)
    assert code == 130
    assert "the same command goes on" in err
