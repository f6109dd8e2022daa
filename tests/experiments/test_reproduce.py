"""The report of all experiments, from outcomes that are made up, and the command that runs them."""

import csv
import re
from zlib import crc32

import numpy as np
import pytest

import occupax as ox
from commands import occupax
from occupax.analysis import plots
from occupax.analysis.charts import csv_text
from occupax.experiments import cells, rate, reproduce, reproduction, small, tuning
from occupax.experiments.cells import ExperimentResult
from occupax.experiments.reproduction import BADGES
from occupax.experiments.scale import SCALES
from occupax.experiments.sections import TEXTS
from occupax.experiments.sections import text as words
from occupax.experiments.tasks import LAKE, Task, tasks
from occupax.io.files import write_text
from pages import opened

PARTS = ("reward", "rate", "utility")
DRAWN = "utility"
"""The part whose figures are drawn."""
TINY = SCALES["quick"]._replace(name="tiny", networks=True, whole=True)
FIGURES = {"reward": 5, "rate": 3 + 3 + 4, "utility": 2}


def made_up(
    task, algorithms, episodes, seeds, seed, records, logger=None, mixtures=True
) -> list[ExperimentResult]:
    """Learning curves between the worst and the best of a task, in the place of training."""
    known = {
        "Log": (-80.0, -25.0),
        "Frozen": (0.0, 0.42),
        "Cart": (0.0, 220.0),
        "Acro": (-500.0, -80.0),
    }
    low, high = next(
        (ends for name, ends in known.items() if task.name.startswith(name)), (0.0, 4.9)
    )
    found = []
    for algorithm in algorithms:
        random = np.random.default_rng(crc32(f"{task.name} {algorithm} {episodes}".encode()))
        rise = np.sort(random.uniform(0.0, 0.98, (len(seeds), 11)), axis=1)
        rise[:, 0] = 0.0  # the first policy has learned nothing
        values = low + (high - low) * rise
        places = np.linspace(0, episodes, 11).astype(int)
        shape = (
            (task.problem.env.num_states, task.problem.env.num_actions) if task.tabular else (0, 0)
        )
        tables = random.dirichlet(np.ones(max(shape[1], 1)), (len(seeds), shape[0]))
        outcome = (
            places,
            np.tile(10 * places, (len(seeds), 1)),
            values,
            values - 0.1,
            tables,
            np.asarray(0),
        )
        found.append(ExperimentResult(*outcome))
    return found


def gap_measures(name: str) -> list[rate.GapMeasure]:
    """Measures with an optimum that takes no time to compute."""
    evaluator = ox.exact.Evaluator(tasks()[name].problem)
    return [rate.GapMeasure(label, 1.0, evaluator) for label in ("mixed", "infinite", "finite")]


def use_made_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Task, "optimum", property(lambda task: 0.412 if task.name.startswith(LAKE) else -23.0)
    )
    patch.setattr(rate, "gap_measures", gap_measures)
    patch.setattr(cells, "train_and_evaluate", made_up)
    patch.setattr(small, "exact_ascent", lambda *_, steps: -1.0 / np.arange(1.0, 1.0 + len(steps)))
    for name, value in (("optimum", 5.0), ("min_probability", 0.1)):
        patch.setattr(small.SmallProblem, name, value)
    patch.setenv("XLA_FLAGS", "")  # which would be that of later processes, too
    patch.setitem(SCALES, "tiny", TINY)
    patch.setitem(TEXTS.entries["scales"], "tiny", "tiny")


def save_numbers(figure, folder) -> None:
    """Of a figure the numbers alone, because drawing takes long."""
    write_text(folder / f"{figure.name}.csv", csv_text(figure))


@pytest.fixture
def _made_up(monkeypatch):
    use_made_up(monkeypatch)


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """The folders of all three parts, written."""
    folders = {part: tmp_path_factory.mktemp(part) for part in PARTS}
    with pytest.MonkeyPatch.context() as patch:
        use_made_up(patch)
        assert (
            reproduce("tiny", folders[DRAWN], DRAWN, progress=False)
            == folders[DRAWN] / "report.html"
        )
        patch.setattr(plots, "save", save_numbers)
        patch.setattr(plots, "svg_text", lambda *_, **__: "<svg></svg>")
        for part in (part for part in PARTS if part != DRAWN):
            reproduce("tiny", folders[part], part, progress=False)
    return folders


@pytest.mark.parametrize("part", PARTS)
def test_a_report_has_all_that_belongs_to_it(reports, part):
    folder = reports[part]
    page, text = ((folder / name).read_text() for name in ("report.html", "report.md"))
    with (folder / "numbers" / "claims.csv").open() as stream:
        claims = list(csv.DictReader(stream))
    assert {claim["Section"] for claim in claims} == {
        {"reward": "6.1", "rate": "6.2", "utility": "6.3"}[part]
    }
    shown = re.findall(
        r'<span class="badge (\w+)"><span aria-hidden="true">.</span> ([\w ]+)</span>', page
    )
    assert [verdict for _, verdict in shown] == [claim["Verdict"] for claim in claims]
    assert all(BADGES[verdict] == kind for kind, verdict in shown)
    for claim in claims:
        assert re.search(r"\d", claim["Measured here"])  # every row has a number
        assert f"| {claim['Verdict']} | {claim['Section']} | {claim['The paper says']} |" in text
    for place in ("rules", "conventions"):
        for name, settled in words(place).items():
            assert f"- **{name}.** {settled}" in text
    figures = re.findall(r"!\[[^]]*\]\(figures/([\w-]+)\.svg\)", text)
    assert len(figures) == len(set(figures)) == FIGURES[part]
    for name in figures:
        assert len((folder / "figures" / f"{name}.csv").read_text().splitlines()) > 3
        if part == DRAWN:
            assert (folder / "figures" / f"{name}.svg").read_text().startswith("<?xml")
            assert (folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert not re.search(
        r"(?:src|href)=[\"'](?!#|data:)|url\((?!#)|@import", page
    )  # nothing is loaded


def test_a_report_opens_with_sentences_that_have_numbers(reports):
    told = [
        re.findall(r"^\d+\. (.*)$", (reports[part] / "report.md").read_text(), re.MULTILINE)
        for part in PARTS
    ]
    assert [len(sentences) for sentences in told] == [5, 3, 2]
    assert all(re.search(r"\d", sentence) for sentences in told for sentence in sentences)


@pytest.mark.parametrize("width", [1100, 390])
def test_a_report_works_in_a_browser(reports, window, width):
    file = reports["utility"] / "report.html"
    for page in opened(window, file, viewport={"width": width, "height": 900}):
        assert page.evaluate("document.documentElement.scrollWidth") == width
        drawings = page.locator("figure.live svg[role=img]")
        assert drawings.count() == FIGURES["utility"]
        toggle = page.locator("figure.live button[aria-pressed]").first
        line = page.locator("figure.live .plot [data-part]").first
        before = line.evaluate("it => getComputedStyle(it).display")
        toggle.click()
        assert toggle.get_attribute("aria-pressed") == "false"
        assert before != "none"
        assert line.evaluate("it => getComputedStyle(it).display") == "none"


def test_all_trials_and_seeds_are_written(reports):
    with (reports["utility"] / "numbers" / "search.csv").open() as stream:
        trials = list(csv.DictReader(stream))
    counts = {
        name: sum(trial["search"] == name for trial in trials)
        for name in {it["search"] for it in trials}
    }
    least = 5 * (2 + len(tuning.SCORES))
    assert all(least <= count <= least + 5 * tuning.MAX_EXTENSIONS for count in counts.values())
    with (reports["utility"] / "numbers" / "seeds.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert {row["seed"] for row in rows} == {str(seed) for seed in range(TINY.max_seeds)}


@pytest.mark.usefixtures("_made_up")
def test_a_second_call_trains_nothing_and_an_interrupted_one_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduction, "write_report", lambda runner, *_: runner.folder)
    names = []

    def stop(*arguments, **options):
        if "mixtures" not in options:  # a cell, not a search
            names.append(arguments[0].name)
        if len(names) > 12:
            raise KeyboardInterrupt
        return made_up(*arguments, **options)

    monkeypatch.setattr(cells, "train_and_evaluate", stop)
    with pytest.raises(KeyboardInterrupt):
        reproduce("tiny", tmp_path, "utility", progress=False)
    kept = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "jobs").iterdir()}
    assert len([name for name in kept if not name.startswith("search")]) == 12
    monkeypatch.setattr(cells, "train_and_evaluate", made_up)
    reproduce("tiny", tmp_path, "utility", progress=False)
    assert (
        kept.items()
        <= {file.name: file.stat().st_mtime_ns for file in (tmp_path / "jobs").iterdir()}.items()
    )
    monkeypatch.setattr(cells, "train_and_evaluate", lambda *_, **__: pytest.fail("not stored"))
    assert reproduce("tiny", tmp_path, "utility", progress=False) == tmp_path


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--only", "rewards", "--out", "x"), "invalid choice"),
        (("--out", "x", "--scale", "tiny"), "invalid choice"),
        ((), "--out"),
    ],
)
def test_mistakes_end_in_a_sentence_and_exit_code_2(arguments, said):
    code, out, err = occupax("reproduce", *arguments)
    assert code == 2
    assert said in out + err
    assert "Traceback" not in out + err


def test_mistakes_in_python_are_answered_with_a_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"only 'rewards' is not known\. Did you mean 'reward'\?"):
        reproduce("quick", tmp_path, "rewards")
    with pytest.raises(ValueError, match=r"scale 'fulll' is not known\. Did you mean 'full'\?"):
        reproduce("fulll", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_what_it_does():
    code, out, _ = occupax("reproduce", "--help")
    assert code == 0
    for word in (*PARTS, "quick", "full", "--only", "--out"):
        assert word in out


def test_the_command_prints_where_the_report_is(tmp_path, monkeypatch):
    asked = []
    report = tmp_path / "it.html"
    monkeypatch.setattr(
        "occupax.experiments.reproduce", lambda *arguments: asked.append(arguments) or report
    )
    code, out, err = occupax("reproduce", "--only", "rate", "--scale", "full", "--out", tmp_path)
    assert (code, err) == (0, "")
    assert out == f"report: {report}\n"
    assert asked == [("full", tmp_path, "rate", True)]


def test_an_interrupted_command_says_how_to_go_on(tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("occupax.experiments.reproduce", stop)
    code, _, err = occupax("reproduce", "--out", tmp_path)
    assert code == 130
    assert err == "occupax: stopped; repeat the command to resume it.\n"
