"""Write the results of OccupancyBench and of the paper's experiments into the site.

python examples/result_pages.py

Sources are the pages that the commands write: `benchmarks/BENCH.md` by `make leaderboard` and
`docs/reproduction-numbers.md` by `make reproduce`. Generated are the figures `bench-scores` and
`bench-problems`, the tables of `docs/numbers` as CSV, and the parts of `docs/bench.md` and
`docs/reproduction.md` between the comments `begin` and `end`.
"""

import csv
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pictures
from matplotlib.figure import Figure

from occupax.analysis.plots import svg_text

DOCS = pictures.ROOT / "docs"
BENCH = pictures.ROOT / "benchmarks" / "BENCH.md"
PAPER = DOCS / "reproduction-numbers.md"
NUMBERS = DOCS / "numbers"
TABLES = {
    "leaderboard": "All families",
    "leaderboard-development": "Families of the development half",
    "leaderboard-test": "Families of the test half",
    "probabilities-default": "Default track: probability",
    "probabilities-tuned": "Tuned track, test half: probability",
    "problems-default": "Default track: the mean",
    "problems-tuned": "Tuned track, test half: the mean",
}
NAMES = pictures.TITLES | {"ox.train": "default of ox.train"}
MARKS = {
    "reproduced": "✔ reproduced",
    "partly": "◐ partly",
    "cannot tell": "? inconclusive",
    "not reproduced": "✘ not reproduced",
}
INTERVAL = re.compile(r"(-?[\d.]+) \[(-?[\d.]+), (-?[\d.]+)\]")

Rows = list[list[str]]


def read_table(page: Path, opening: str) -> Rows:
    """Return the rows of the first table after a line that begins with `opening`, header first."""
    lines = page.read_text("utf-8").splitlines()
    starts = [index for index, line in enumerate(lines) if line.startswith(opening)]
    if not starts:
        raise ValueError(f"{page.name} must have a table after {opening!r}.")
    rows: Rows = []
    for line in lines[starts[0] + 1 :]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip()[1:-1].split("|")])
        elif rows:
            break
    return [rows[0], *rows[2:]]


def fill(page: Path, name: str, text: str) -> None:
    """Replace the part of a page between the comments `begin: NAME` and `end: NAME`."""
    begin = f"<!-- begin: {name} -->"
    end = f"<!-- end: {name} -->"
    pattern = re.escape(begin) + ".*?" + re.escape(end)
    content = page.read_text("utf-8")
    changed, count = re.subn(
        pattern, lambda _: f"{begin}\n\n{text}\n\n{end}", content, flags=re.DOTALL
    )
    if count != 1:
        raise ValueError(f"{page.name} must have one part {name!r}, got {count}.")
    page.write_text(changed, "utf-8")


def markdown(rows: Rows, words: int) -> str:
    """Return a Markdown table whose first `words` columns are text."""
    columns = ["---" if index < words else "--:" for index in range(len(rows[0]))]
    lines = ["| " + " | ".join(row) + " |" for row in (rows[0], columns, *rows[1:])]
    return "\n".join(lines)


def percent(text: str) -> str:
    """Return a score with its interval in percent."""
    match = INTERVAL.fullmatch(text)
    if match is None:
        return text
    score, low, high = (100 * float(number) for number in match.groups())
    return f"{score:.0f} [{low:.0f}, {high:.0f}]"


def leaderboard() -> str:
    """Return the table of all algorithms, the best first."""
    test = {(row[0], row[1]): row for row in read_table(BENCH, TABLES["leaderboard-test"])[1:]}
    rows = [["algorithm", "score", "final score", "test half", "test half, tuned", "lost runs"]]
    for row in read_table(BENCH, TABLES["leaderboard"])[1:]:
        name = row[0]
        tested = [percent(test[name, track][2]) for track in ("default", "tuned")]
        scores = [percent(row[2]), percent(row[5]), *tested]
        rows.append([NAMES[name], *scores, row[7].replace("of", "/")])
    return markdown(rows, 1)


def draw_scores(palette: pictures.Palette) -> Figure:
    """Draw the score of each algorithm with its interval."""
    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    axes = figure.subplots()
    rows = read_table(BENCH, TABLES["leaderboard"])[1:]
    for index, row in enumerate(rows):
        match = INTERVAL.fullmatch(row[2])
        assert match is not None  # noqa: S101
        score, low, high = (100 * float(number) for number in match.groups())
        colour = palette.optimum if row[0] == "ox.train" else palette.accent
        axes.plot([low, high], [-index, -index], color=colour, linewidth=3, alpha=0.5)
        axes.plot(score, -index, "o", color=colour, markersize=7)
        axes.text(high + 1, -index, f"{score:.0f}", va="center")
    axes.set_yticks([-index for index in range(len(rows))], [NAMES[row[0]] for row in rows])
    axes.set_xlim(55, 100)
    axes.grid(axis="x", color=palette.faint, alpha=0.25)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("normalised score over training (0: initial policy, 100: optimum)")
    return figure


def draw_problems(palette: pictures.Palette) -> Figure:
    """Draw the final score of each algorithm on each problem as a heat map."""
    header, *rows = read_table(BENCH, TABLES["problems-default"])
    names = header[6:]
    scores = np.array([[read_score(cell) for cell in row[6:]] for row in rows])
    figure = Figure(figsize=(8.0, 11.0), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(scores, vmin=0, vmax=1, cmap=pictures.COLOURS, aspect="auto")
    axes.set_xticks(range(len(names)), [NAMES[name] for name in names], rotation=40, ha="right")
    axes.set_yticks(range(len(rows)), [row[0] for row in rows], fontsize=9)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_facecolor(palette.wall)
    bar: Any = figure.colorbar(image, ax=axes, shrink=0.3, aspect=20)
    bar.set_label("final score", color=palette.ink)
    return figure


def read_score(cell: str) -> float:
    """Return a score, NaN where the algorithm does not apply."""
    match = re.match(r"-?[\d.]+", cell)
    return float(match[0]) if match else float("nan")


def write_tables() -> None:
    """Write all tables of the benchmark as CSV."""
    NUMBERS.mkdir(exist_ok=True)
    for name, opening in TABLES.items():
        with (NUMBERS / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(read_table(BENCH, opening))


def claims() -> Rows:
    """Return the claims of the paper: verdict, section, claim, setting, measurement."""
    return read_table(PAPER, "## The claims")[1:]


def summary() -> str:
    """Return the number of tests by result."""
    counts = Counter(row[0] for row in claims())
    parts = [f"{counts[verdict]} {mark}" for verdict, mark in MARKS.items()]
    return f"Tests of claims: {', '.join(parts)}."


def matrix() -> str:
    """Return one table for each section of the paper: claims, and their result in each setting."""
    parts: list[str] = []
    for section in sorted({row[1] for row in claims()}):
        rows = [["claim", "setting", "result"]]
        for verdict, place, claim, setting, _ in claims():
            if place == section:
                rows.append([claim, setting, MARKS[verdict]])
        parts.append(f"### Section {section}")
        parts += [markdown(table, len(table[0])) for table in crossed(rows)]
    return "\n\n".join(parts)


def crossed(rows: Rows) -> list[Rows]:
    """Return a table of the claims that share settings, and a table of the other claims."""
    counts = Counter(row[1] for row in rows[1:])
    shared = [setting for setting, count in counts.items() if count > 1]
    results = {(row[0], row[1]): row[2] for row in rows[1:]}
    table: Rows = [["claim", *shared]]
    for claim in dict.fromkeys(row[0] for row in rows[1:] if row[1] in shared):
        table.append([claim, *(results.get((claim, setting), "") for setting in shared)])
    rest: Rows = [rows[0], *(row for row in rows[1:] if row[1] not in shared)]
    return [part for part in (table, rest) if len(part) > 1]


if __name__ == "__main__":
    write_tables()
    fill(DOCS / "bench.md", "leaderboard", leaderboard())
    fill(DOCS / "reproduction.md", "summary", summary())
    fill(DOCS / "reproduction.md", "claims", matrix())
    for name, draw in {"bench-scores": draw_scores, "bench-problems": draw_problems}.items():
        for palette in (pictures.LIGHT, pictures.DARK):
            pictures.use_palette(palette)
            text = svg_text(draw(palette), name)
            (pictures.FIGURES / f"{name}{palette.suffix}.svg").write_text(text, "utf-8")
