"""Write what algorithms reach on OccupancyBench into their pages, from the folder of a benchmark.

    python examples/bench_pages.py runs/bench

It takes the numbers of `make leaderboard`: the default track on all problems, and the tuned one on
the test half.
"""

import csv
import re
import sys
import textwrap
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
DEFAULT = "ox.train"
WIDTH = 120
NOT_TAKEN = "problems without a table, which it does not take, count as 0"

Scores = dict[tuple[str, str], dict[str, str]]


def read(file: Path) -> Scores:
    """The rows of a leaderboard by algorithm and track, numbers without their intervals."""
    with file.open() as lines:
        rows = list(csv.DictReader(lines))
    return {
        (row["algorithm"], row["track"]): {
            name: re.sub(r" \[.*", "", text) for name, text in row.items()
        }
        for row in rows
    }


def paragraph(label: str, everywhere: Scores, test: Scores) -> str:
    """What an algorithm reaches, in a few sentences."""
    mine, default = everywhere[label, "default"], everywhere[DEFAULT, "default"]
    over, end = (mine[name] for name in ("mean over training", "in the end"))
    theirs = " and ".join(default[name] for name in ("mean over training", "in the end"))
    own, tuned = (test[label, track]["mean over training"] for track in ("default", "tuned"))
    lost = re.sub(r"^0 of", "none of", mine["lost runs"])
    said = f"""On the 52 problems of [OccupancyBench](../bench.md), with its own settings, it goes {over} of the way to
    the optimum over the training and {end} in the end (interquartile means; the default of `ox.train`: {theirs}), and
    loses {lost} runs. On the test half it goes {own} over the training, and {tuned} with settings tuned for each
    problem{f"; {NOT_TAKEN}" if label == "plug-in" else ""}."""
    return textwrap.fill(" ".join(said.split()), WIDTH, break_on_hyphens=False)


def table(everywhere: Scores, test: Scores, names: dict[str, str]) -> str:
    """A row for each algorithm, the best first."""
    rows = [
        [
            names[label],
            scores["mean over training"],
            scores["in the end"],
            test[label, "default"]["mean over training"],
            test[label, "tuned"]["mean over training"],
            scores["lost runs"],
        ]
        for (label, track), scores in everywhere.items()
        if track == "default"
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def replaced(pattern: str, text: str, page: Path) -> None:
    """Put a text in the only place of a page that a pattern describes."""
    changed, count = re.subn(
        pattern, lambda _: text, page.read_text(), flags=re.DOTALL | re.MULTILINE
    )
    if count != 1:
        raise ValueError(f"{page.name} must have one place for {text[:40]!r}, got {count}.")
    page.write_text(changed)


def main(folder: Path) -> None:
    """Write all pages."""
    everywhere, test = (
        read(folder / "numbers" / f"leaderboard-{half}.csv") for half in ("both", "test")
    )
    pages = {page.stem: page for page in sorted((DOCS / "algorithms").glob("*.md"))}
    for label, page in pages.items():
        replaced(r"^On the 52 problems of .*?(?=\n\n)", paragraph(label, everywhere, test), page)
    names = {label: page.read_text().splitlines()[0].lstrip("# ") for label, page in pages.items()}
    names |= {
        DEFAULT: "the default of `ox.train`",
        "plug-in": f"{names['plug-in']}; problems without a table count as 0",
    }
    which = DOCS / "which-algorithm.md"
    replaced(
        r"(?<=--: \|\n)\| the default of `ox\.train` .*?(?=\n\n)",
        table(everywhere, test, names),
        which,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
