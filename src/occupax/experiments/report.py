"""The report of the experiments: a page, the same as Markdown, figures as files, numbers as CSV."""

from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from occupax import serial
from occupax.analysis import page, plots
from occupax.analysis.charts import csv_lines
from occupax.experiments import tuning
from occupax.experiments.cells import SEED, Done
from occupax.experiments.methods import PRINTED_STEP_SIZES, SNAPSHOTS, best_trials, described, read_search
from occupax.experiments.sections import Claim, Section, TextTable
from occupax.training.setup import versions

TITLE = "Variance-reduced policy gradients: the experiments again"
BADGES = {"reproduced": "good", "partly": "partly", "not reproduced": "bad", "cannot tell": "unknown"}
OPEN = "What the paper leaves open, and how it is settled here"
PAPER = (
    "Zhang, Ni, Yu, Szepesvári and Wang: On the Convergence and Sample Efficiency of Variance-Reduced Policy Gradient "
    "Method (2021), section 6"
)


def write(
    folder: Path, command: str, notice: str, sections: Sequence[Section], done: Sequence[Done], search: Any
) -> Path:
    """Write everything into a folder; return the path of the page."""
    settings = [_settings(done), _search(search, {it.cell.task.name for it in done})]
    facts = _facts(command, notice, done)
    everything = [*sections, Section("settings", "Settings", "What was run with what.", (), (), settings)]
    for section in everything:
        for figure in section.figures:
            plots.save(figure, folder / "figures")
        for table in section.tables:
            serial.write_text(folder / "numbers" / f"table-{table.name}.csv", csv_lines([table.header, *table.rows]))
    serial.write_text(folder / "numbers" / "seeds.csv", csv_lines(_seeds(done)))
    claims = _claims([claim for section in sections for claim in section.claims])
    serial.write_text(folder / "numbers" / "claims.csv", csv_lines([claims.header, *claims.rows]))
    serial.write_text(folder / "report.md", _markdown(claims, everything, facts))
    path = folder / "report.html"
    serial.write_text(path, _html(claims, everything, facts))
    return path


def _claims(claims: Sequence[Claim]) -> TextTable:
    return TextTable(
        "claims",
        "The paper's claims, what was measured here, and the verdict.",
        ["Section", "The paper says", "Settings", "Verdict", "Measured here"],
        [[claim.where, claim.says, claim.setting, claim.verdict, claim.measured] for claim in claims],
        5,
    )


def _settings(done: Sequence[Done]) -> TextTable:
    rows = [
        [cell.name, described(cell.algorithm), f"{cell.episodes:,}", str(cell.seeds), f"{it.seconds:,.0f}"]
        for it in done
        for cell in [it.cell]
    ]
    caption = f"Every run: seeds 0 to one less than their number, of the random key {SEED}."
    return TextTable("runs", caption, ["Run", "Algorithm", "Episodes a seed", "Seeds", "Seconds"], rows, 2)


def _search(search: Any, names: Iterable[str]) -> TextTable:
    """What the search found, and what it would have found in the paper's range of step sizes."""
    trials = [it for it in read_search(search) if it.task in set(names) and it.snapshot in SNAPSHOTS]
    low, high = PRINTED_STEP_SIZES
    first = [trial for trial in trials if trial.seeds == tuning.SEEDS]
    within = best_trials(trial for trial in first if low <= trial.settings["step_size"] <= high)
    rows: list[list[str]] = []
    for (task, method), trial in best_trials(trials).items():
        tried = sum((other.task, other.method) == (task, method) for other in first)
        settings = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in trial.settings.items())
        inside = f"{within[task, method].score:.4g}" if (task, method) in within else "none"
        rows.append([task, method, f"N {trial.snapshot}, {settings}", str(tried), f"{trial.score:.4g}", inside])
    caption = (
        f"The search: {tuning.SHARE:.0%} of the episodes, {tuning.SEEDS} seeds of the random key {tuning.SEED} for "
        f"each trial, and {len(tuning.CONFIRMING)} others for the {tuning.FINALISTS} best, of which the best is taken. "
        "Score: the mean measure over the training, on these others. Last column: the best score of all trials with a "
        f"step size in the paper's range, {low:g} to {high:g}."
    )
    header = ["Task", "Algorithm", "Best setting", "Trials", "Score", "Score in the paper's range"]
    return TextTable("search", caption, header, rows, 3)


def _seeds(done: Sequence[Done]) -> list[list[str]]:
    """Every number of every seed."""
    rows = [["run", "of", "seed", "area_under_curve", "episodes_to_threshold", "final"]]
    for it in done:
        for of, outcome in (("policy", it.last), ("mixture", it.mixture)):
            if outcome is not None:
                columns = zip(outcome.heights, outcome.reached, outcome.final, strict=True)
                rows += [
                    [it.cell.name, of, str(seed), *(f"{number:.10g}" for number in numbers)]
                    for seed, numbers in enumerate(columns)
                ]
    return rows


def _facts(command: str, notice: str, done: Sequence[Done]) -> list[tuple[str, str]]:
    used = ", ".join(f"{name} {version}" for name, version in versions().items() if name != "float64")
    seconds = sum(it.seconds for it in done)
    return [
        ("Command", command),
        ("Scale", notice),
        ("Paper", PAPER),
        ("Runs", f"{len(done)}, of {sum(it.cell.seeds for it in done):,} seeds in all"),
        ("Training time", f"{seconds / 60:,.1f} minutes, compilation included"),
        ("Versions", used),
    ]


def _html(claims: TextTable, sections: Sequence[Section], facts: Sequence[tuple[str, str]]) -> str:
    texts = {"title": TITLE, "facts": facts, "rule": RULE, "open": OPEN, "conventions": conventions()}
    return page.render("experiments.html", **texts, claims=claims, badges=BADGES, sections=sections)


RULE = (
    "A claim is tested once for every pair of an algorithm and a task it speaks of. Reproduced: all tests hold. "
    "Partly: some do. Not reproduced: none does, and one or more are refuted. Cannot tell: the intervals leave it "
    "open. Tests compare interquartile means over seeds by 95% bootstrap intervals."
)


def _markdown(claims: TextTable, sections: Sequence[Section], facts: Sequence[tuple[str, str]]) -> str:
    parts = [f"# {TITLE}", "\n".join(f"- {name}: {text}" for name, text in facts), "## The claims"]
    parts += [_markdown_table(claims), RULE]
    for section in sections:
        parts += [f"## {section.title}", section.text]
        parts += [
            f"![{figure.title}](figures/{figure.name}.svg)\n\n*{figure.title}. {figure.caption}*"
            for figure in section.figures
        ]
        parts += [f"{table.caption}\n\n{_markdown_table(table)}" for table in section.tables]
    parts += [f"## {OPEN}", "\n".join(f"- **{name}.** {text}" for name, text in conventions())]
    return "\n\n".join(parts) + "\n"


def _markdown_table(table: TextTable) -> str:
    lines = [table.header, [":--" if i < table.words else "--:" for i in range(len(table.header))], *table.rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def conventions() -> list[tuple[str, str]]:
    """What the paper leaves open, and how it is settled here."""
    text = (files("occupax.experiments") / "conventions.txt").read_text()
    entries = (" ".join(block.split()).partition(": ") for block in text.split("\n\n"))
    return [(name, settled) for name, _, settled in entries]
