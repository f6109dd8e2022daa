"""Who is how good, over all problems: tables, figures, a page of HTML, the same as Markdown, and all numbers as CSV."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from occupax import serial
from occupax.analysis import page, plots
from occupax.analysis.charts import Chart, Level, Series, csv_lines
from occupax.analysis.describe import number
from occupax.analysis.statistics import Interval, interquartile_mean, on_grid
from occupax.bench.cells import SEARCH_SEEDS, SETTINGS, Done
from occupax.bench.families import FAMILIES
from occupax.bench.measure import EPISODES, ESTIMATES, LOWEST, RECORDS
from occupax.bench.references import Reference
from occupax.bench.summary import Scores, improvement, middle, profile
from occupax.experiments.sections import TextTable
from occupax.training.setup import versions

MEASURES = {"mean": "mean over training", "tenth": "after a tenth", "third": "after a third", "end": "in the end"}
"""What is scored, and how it is called."""
LOST = -0.05
"""A run that ends below this share of the way has lost what its first policy could do."""
LEVELS = np.linspace(0.0, 1.0, 101)
POINTS = np.linspace(0.0, 1.0, 51)
"""The levels of the profiles, and the shares of the budget at which the curves are drawn."""
METHOD = {
    "Score": """The share of the way from the first policy to the optimum after a tenth, a third and all of the episodes
of a problem, and its mean over the training, by which the leaderboard is ordered.""",
    "Optimum": """On a table with a concave utility it is certified: no policy, be it dependent on time, is better by
more than a millionth of the way; those that are trained do not depend on time, and the best of them may stay some
percent below. A bound is what no policy can exceed. Elsewhere it is a reference, the best that exact
gradients from several starts found, or that long runs did, and may be exceeded.""",
    "First policy": """The one that every run starts from: the uniform policy on a table, and elsewhere the mean over
the first policies of all seeds.""",
    "Utility": f"""Exact on a table, at {RECORDS} places of the training. Elsewhere it is estimated from {EPISODES} new
episodes of each policy, at {ESTIMATES} places; the estimate of a coverage or an entropy is a little too low, for all
algorithms alike.""",
    "Tracks": f"""Default: the algorithm with its own settings, the same for every problem. Tuned: the best of
{SETTINGS} settings for each problem, by the mean utility over the training of {len(SEARCH_SEEDS)} other seeds.""",
    "The default": """`ox.train` is what `occupax.train` takes when it is given no algorithm: PlugIn for tables of up to
128 states without constraints, because on those of the development half it beats all others, and REINFORCE elsewhere.
The rule of the choice is in `benchmarks/default.py`.""",
    "Not taken": """A problem that an algorithm does not take, as PlugIn those without a table, counts as if its first
policy had been left as it is, with a score of 0.""",
    "Intervals": """Of 95%, by drawing the seeds of every problem anew: they tell how much the numbers change with other
seeds on these problems, not with other problems.""",
    "Lost runs": f"""Runs that end below their first policy by more than {-LOST:.0%} of the way. Those whose numbers are
not finite any more count as {LOWEST:g}.""",
    "Halves": """Settings are chosen on the families of the development half; those of the test half are for judging the
choice. Fresh problems have new tables, targets and costs; those without a table stay as they are.""",
}
"""How it is measured, in words."""


@dataclass(frozen=True)
class Leaderboard:
    """The outcome of the benchmark."""

    done: tuple[Done, ...]
    references: dict[str, Reference]
    """The best value of each problem, by its name."""
    command: str
    """The command that makes it."""

    @property
    def entrants(self) -> list[tuple[str, str]]:
        """The label and the track of everything that was entered."""
        return list(dict.fromkeys((it.cell.label, it.cell.track) for it in self.done))

    def scores(self, label: str, track: str = "default", measure: str = "mean", half: str = "both") -> Scores:
        """The scores of an entrant, for each problem and seed.

        Args:
            label: what the algorithm is called.
            track: "default" or "tuned".
            measure: "tenth", "third" or "end" for the share of the way to the optimum after so much of the budget, or
                "mean" for that over the whole training.
            half: "development", "test" or "both".
        """
        found = [
            it.curve.scores(self.references[it.cell.problem.name].best, it.cell.problem.row.episodes)[measure]
            for it in self.cells(label, track, half)
        ]
        return np.array(found)

    def cells(self, label: str, track: str, half: str = "both") -> list[Done]:
        """What an entrant was trained on."""
        mine = [it for it in self.done if (it.cell.label, it.cell.track) == (label, track)]
        return [it for it in mine if half in (it.cell.problem.half, "both")]

    def save(self, folder: Path) -> Path:
        """Write the pages, the figures and the numbers; return the path of the page."""
        figures = [self._profile(), self._curves()]
        for figure in figures:
            plots.save(figure, folder / "figures")
        shown = [self.table(half) for half in self._halves()]
        comparison = [self._comparison()] if len(self.entrants) > 1 else []
        tables = [*shown, *comparison, self._problems()]
        data = {
            "facts": self._facts(),
            "figures": figures,
            "boards": shown,
            "comparison": comparison,
            "problems": tables[-1],
            "families": _families(),
            "count": len(self.references),
            "lowest": f"{LOWEST:g}",
            "method": [(name, " ".join(said.split())) for name, said in METHOD.items()],
        }
        for kind in ("md", "html"):
            serial.write_text(folder / f"bench.{kind}", page.render(f"bench.{kind}", **data))
        for table in tables:
            serial.write_text(folder / "numbers" / f"{table.name}.csv", csv_lines([table.header, *table.rows]))
        serial.write_text(folder / "numbers" / "runs.csv", csv_lines(self._runs()))
        return folder / "bench.html"

    def _halves(self) -> list[str]:
        present = list(dict.fromkeys(it.cell.problem.half for it in self.done))
        return ["both", *present] if len(present) > 1 else list(present)

    def _facts(self) -> list[tuple[str, str]]:
        names, seeds = {it.cell.problem.name for it in self.done}, {it.cell.seeds for it in self.done}
        minutes = sum(it.seconds for it in self.done) / 60
        used = ", ".join(f"{name} {version}" for name, version in versions().items() if name != "float64")
        return [
            ("Command", self.command),
            ("Problems", f"{len(names)}, with {max(seeds)} seeds each"),
            ("Training time", f"{minutes:,.1f} minutes, compilation included"),
            ("Versions", used),
        ]

    def table(self, half: str = "both") -> TextTable:
        """The scores of all entrants on a half or "both", the best first."""
        rows: list[tuple[float, list[str]]] = []
        for label, track in self.entrants:
            found = {name: middle(self.scores(label, track, name, half)) for name in MEASURES}
            ends = self.scores(label, track, "end", half)
            lost = f"{int((ends < LOST).sum())} of {ends.size}"
            texts = [_shown(interval) for interval in found.values()]
            rows.append((-float(found["mean"].estimate), [label, track, *texts, f"{ends.min():.2f}", lost]))
        count = len({it.cell.problem.name for it in self.done if half in (it.cell.problem.half, "both")})
        which = "All families" if half == "both" else f"Families of the {half} half"
        caption = f"{which}: {count} problems. Share of the way to the optimum, interquartile mean with 95% interval"
        header = ["algorithm", "track", *MEASURES.values(), "worst end", "lost runs"]
        return TextTable(f"leaderboard-{half}", caption, header, 2, [row for _, row in sorted(rows)])

    def _comparison(self) -> TextTable:
        names = [f"{label}, {track}" for label, track in self.entrants]
        scores = [self.scores(*entrant) for entrant in self.entrants]
        rows = [
            [names[i], *("" if i == j else _shown(improvement(one, other)) for j, other in enumerate(scores))]
            for i, one in enumerate(scores)
        ]
        caption = "Probability that a run of the row has a higher mean over training than one of the column"
        return TextTable("improvement", caption, ["", *names], 1, rows)

    def _problems(self) -> TextTable:
        rows: list[list[str]] = []
        for name in dict.fromkeys(it.cell.problem.name for it in self.done):
            mine = {(it.cell.label, it.cell.track): it for it in self.done if it.cell.problem.name == name}
            first, best = next(iter(mine.values())), self.references[name]
            ends = [mine[entrant].curve.shares(best.best)[:, -1].mean() for entrant in self.entrants]
            start = first.curve.values[:, 0].mean()
            way = [number(start), number(best.best) if abs(best.best) > 1e-6 * abs(start) else "0"]
            problem = first.cell.problem
            row = [name, problem.half, best.source, f"{problem.row.episodes:,}", *way, *(f"{end:.3f}" for end in ends)]
            rows.append(row)
        names = [f"{label}, {track}" for label, track in self.entrants]
        header = ["problem", "half", "optimum is", "episodes", "first policy", "optimum", *names]
        caption = "Each problem: the mean share of the way to the optimum in the end, over the seeds"
        return TextTable("problems", caption, header, 3, rows)

    def _profile(self) -> Chart:
        series: list[Series] = []
        for label, track in self.entrants:
            found = profile(self.scores(label, track, "end"), LEVELS)
            series.append(Series(f"{label}, {track}", LEVELS, found.estimate, found.lower, found.upper))
        caption = "The share of all runs that end at least so far on the way to the optimum, with 95% intervals."
        labels = "share of the way to the optimum", "share of the runs"
        return Chart("bench-profile", "Performance profiles", caption, *labels, tuple(series))

    def _curves(self) -> Chart:
        series: list[Series] = []
        for label, track in self.entrants:
            found = middle_of_curves([self._shares(it) for it in self.cells(label, track)])
            series.append(Series(f"{label}, {track}", POINTS, found))
        caption = "The interquartile mean over all problems and seeds of the share of the way to the optimum."
        levels = (Level("optimum", 1.0),)
        labels = "share of the budget", "share of the way to the optimum"
        return Chart("bench-curves", "During training", caption, *labels, tuple(series), levels)

    def _shares(self, it: Done) -> Float[np.ndarray, "seed point"]:
        shares = it.curve.shares(self.references[it.cell.problem.name].best)
        return on_grid(it.curve.episodes, shares, POINTS * it.cell.problem.row.episodes)

    def _runs(self) -> list[list[str]]:
        rows = [["problem", "half", "algorithm", "track", "settings", "seed", "first", "last", "optimum", *MEASURES]]
        for it in self.done:
            best, cell = self.references[it.cell.problem.name].best, it.cell
            scores = it.curve.scores(best, cell.problem.row.episodes)
            about = [cell.problem.name, cell.problem.half, cell.label, cell.track, it.settings]
            for seed, values in enumerate(it.curve.values):
                numbers = [values[0], values[-1], best, *(scores[name][seed] for name in MEASURES)]
                rows.append([*about, str(seed), *(f"{value:.10g}" for value in numbers)])
        return rows


def middle_of_curves(shares: Sequence[Float[np.ndarray, "seed point"]]) -> Float[np.ndarray, " point"]:
    """The interquartile mean over all runs at each point."""
    return interquartile_mean(np.concatenate(shares))


def _shown(interval: Interval) -> str:
    return f"{float(interval.estimate):.3f} [{float(interval.lower):.3f}, {float(interval.upper):.3f}]"


def _families() -> TextTable:
    rows = [
        [name, family.half, str(sum(len(row.utilities) for row in family.rows)), family.says]
        for name, family in FAMILIES.items()
    ]
    caption = "The families, and the half of the benchmark to which all problems of each belong"
    return TextTable("families", caption, ["family", "half", "problems", "what they are"], 4, rows)
