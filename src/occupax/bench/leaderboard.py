"""Who is how good, over all problems: tables, figures, a page of HTML, the same as Markdown, and all numbers as CSV."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

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
from occupax.io import codec
from occupax.training.setup import versions

DEFAULT = "ox.train"
"""What the algorithm is called that `occupax.train` takes when it is given none."""
MEASURES = {
    "mean": "mean over training",
    "tenth": "after a tenth",
    "third": "after a third",
    "end": "in the end",
}
"""What is scored, and how it is called."""
LOST = -0.05
"""A run that ends below this share of the way has lost what its first policy could do."""
LEVELS = np.linspace(0.0, 1.0, 101)
POINTS = np.linspace(0.0, 1.0, 51)
"""The levels of the profiles, and the shares of the budget at which the curves are drawn."""
METHOD = {
    "Score": """The share of the way from the first policy to the optimum after a tenth, a third and
    all of the episodes
of a problem, and its mean over the training, by which the leaderboard is ordered.""",
    "Optimum": """On a table with a concave utility it is certified: no policy, be it dependent on
    time, is better by
more than a millionth of the way; those that are trained do not depend on time, and the best of them
may stay some percent below. A bound is what no policy can exceed. Elsewhere it is a reference, the
best that exact gradients from several starts found, or that long runs did, and may be exceeded.""",
    "First policy": """The one that every run starts from: the uniform policy on a table, and
    elsewhere the mean over
the first policies of all seeds.""",
    "Utility": f"""Exact on a table, at {RECORDS} places of the training. Elsewhere it is estimated from {EPISODES} new
episodes of each policy, at {ESTIMATES} places; the estimate of a coverage or an entropy is a little too low, for all
algorithms alike.""",
    "Tracks": f"""Default: the algorithm with its own settings, the same for every problem. Tuned: the best of
{SETTINGS} settings for each problem, by the mean utility over the training of {len(SEARCH_SEEDS)} other seeds.""",
    "The default": """`ox.train` is what `occupax.train` takes when it is given no algorithm: PlugIn
    for tables of up to
128 states without constraints, because on those of the development half it beats all others, and
REINFORCE elsewhere. The rules of the choice are in `benchmarks/default.py`. After the test half had
been run, two things of networks were chosen on CartPole's and Acrobot's return with other seeds:
how they see wide ranges, and batches of 5 with restarts. Acrobot belongs to the test half.""",
    "Not taken": """A problem that an algorithm does not take, as PlugIn those without a table,
    counts as if its first
policy had been left as it is, with a score of 0.""",
    "Intervals": """Of 95%, by drawing the seeds of every problem anew: they tell how much the
    numbers change with other
seeds on these problems, not with other problems.""",
    "Lost runs": f"""Runs that end below their first policy by more than {-LOST:.0%} of the way. Those whose numbers are
not finite any more count as {LOWEST:g}.""",
    "Halves": """Settings are chosen on the families of the development half; those of the test half
    are for judging the
choice. Fresh problems have new tables, targets and costs; those without a table stay as they
are.""",
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

    def scores(
        self, label: str, track: str = "default", measure: str = "mean", half: str = "both"
    ) -> Scores:
        """The scores of an entrant, for each problem and seed.

        Args:
            label: what the algorithm is called.
            track: "default" or "tuned".
            measure: "tenth", "third" or "end" for the share of the way to the optimum after so much
                of the budget, or "mean" for that over the whole training.
            half: "development", "test" or "both".
        """
        found = [
            it.curve.scores(
                self.references[it.cell.problem.name].best, it.cell.problem.row.episodes
            )[measure]
            for it in self.cells(label, track, half)
        ]
        return np.array(found)

    def cells(self, label: str, track: str, half: str = "both") -> list[Done]:
        """What an entrant was trained on."""
        mine = [it for it in self.done if (it.cell.label, it.cell.track) == (label, track)]
        return [it for it in mine if half in (it.cell.problem.half, "both")]

    def save(self, folder: Path) -> Path:
        """Write the pages, the figures and the numbers; return the path of the page."""
        tracks = list(dict.fromkeys(track for _, track in self.entrants))
        figures = [draw(track) for track in tracks for draw in (self._profile, self._curves)]
        for figure in figures:
            plots.save(figure, folder / "figures")
        shown = [self.table(half) for half in self._halves()]
        comparison = [self._comparison(track) for track in tracks if len(self._labels(track)) > 1]
        problems = [self._problems(track) for track in tracks]
        data = {
            "facts": self._facts(),
            "figures": figures,
            "boards": shown,
            "comparison": comparison,
            "problems": problems,
            "families": _families(),
            "count": len(self.references),
            "lowest": f"{LOWEST:g}",
            "method": [(name, " ".join(said.split())) for name, said in METHOD.items()],
        }
        for kind in ("md", "html"):
            codec.write_text(folder / f"bench.{kind}", page.render(f"bench.{kind}", **data))
        for table in (*shown, *comparison, *problems):
            codec.write_text(
                folder / "numbers" / f"{table.name}.csv", csv_lines([table.header, *table.rows])
            )
        codec.write_text(folder / "numbers" / "runs.csv", csv_lines(self._runs()))
        return folder / "bench.html"

    def _labels(self, track: str) -> list[str]:
        return [label for label, of_track in self.entrants if of_track == track]

    def _track(self, track: str) -> str:
        """What a track is called, with the half of the problems that it was run on if that is not all."""
        halves = {it.cell.problem.half for it in self.done if it.cell.track == track}
        which = (
            f", {next(iter(halves))} half" if len(halves) == 1 and len(self._halves()) > 1 else ""
        )
        return f"{track.capitalize()} track{which}"

    def _halves(self) -> list[str]:
        present = list(dict.fromkeys(it.cell.problem.half for it in self.done))
        return ["both", *present] if len(present) > 1 else list(present)

    def _facts(self) -> list[tuple[str, str]]:
        names, seeds = (
            {it.cell.problem.name for it in self.done},
            {it.cell.seeds for it in self.done},
        )
        minutes = sum(it.seconds for it in self.done) / 60
        used = ", ".join(
            f"{name} {version}" for name, version in versions().items() if name != "float64"
        )
        return [
            ("Command", self.command),
            ("Problems", f"{len(names)}, with {max(seeds)} seeds each"),
            ("Training", f"{minutes:,.0f} minutes of one core, compilation included"),
            ("Versions", used),
            *self._verdict(),
        ]

    def _verdict(self) -> list[tuple[str, str]]:
        """How what `occupax.train` takes, without a setting, compares with all others with tuned ones, by intervals."""
        rivals = [label for label in self._labels("tuned") if label != DEFAULT]
        if DEFAULT not in self._labels("default") or not rivals or "test" not in self._halves():
            return []
        mine, groups = middle(self.scores(DEFAULT, half="test")), dict[str, list[str]]()
        for label in rivals:
            other = middle(self.scores(label, "tuned", half="test"))
            apart = "behind" if other.lower > mine.upper else "not told apart from"
            told = "ahead of" if mine.lower > other.upper else apart
            groups.setdefault(told, []).append(f"{label} {_shown(other)}")
        said = "; ".join(f"{told} {', '.join(found)}" for told, found in groups.items())
        return [
            (
                "Test half",
                f"{DEFAULT} without a setting, {_shown(mine)}, against tuned settings: {said}",
            )
        ]

    def table(self, half: str = "both") -> TextTable:
        """The scores on a half or "both" of all who were trained on all of its problems, the best first."""
        rows: list[tuple[float, list[str]]] = []
        count = len(
            {it.cell.problem.name for it in self.done if half in (it.cell.problem.half, "both")}
        )
        for label, track in self.entrants:
            if len(self.cells(label, track, half)) < count:
                continue
            found = {name: middle(self.scores(label, track, name, half)) for name in MEASURES}
            ends = self.scores(label, track, "end", half)
            lost = f"{int((ends < LOST).sum())} of {ends.size}"
            texts = [_shown(interval) for interval in found.values()]
            rows.append(
                (-float(found["mean"].estimate), [label, track, *texts, f"{ends.min():.2f}", lost])
            )
        which = "All families" if half == "both" else f"Families of the {half} half"
        caption = f"{which}: {count} problems. Share of the way to the optimum, interquartile mean with 95% interval"
        header = ["algorithm", "track", *MEASURES.values(), "worst end", "lost runs"]
        return TextTable(
            f"leaderboard-{half}", caption, header, 2, [row for _, row in sorted(rows)]
        )

    def _comparison(self, track: str) -> TextTable:
        names = self._labels(track)
        scores = [self.scores(label, track) for label in names]
        rows = [
            [
                names[i],
                *(
                    "" if i == j else _shown(improvement(one, other))
                    for j, other in enumerate(scores)
                ),
            ]
            for i, one in enumerate(scores)
        ]
        said = "probability that a run of the row has a higher mean over training than one of the column"
        return TextTable(
            f"improvement-{track}", f"{self._track(track)}: {said}", ["", *names], 1, rows
        )

    def _problems(self, track: str) -> TextTable:
        rows: list[list[str]] = []
        every = [it for it in self.done if it.cell.track == track]
        for name in dict.fromkeys(it.cell.problem.name for it in every):
            mine = {it.cell.label: it for it in every if it.cell.problem.name == name}
            first, best = next(iter(mine.values())), self.references[name]
            ends = [
                mine[label].curve.shares(best.best)[:, -1].mean() for label in self._labels(track)
            ]
            start = first.curve.values[:, 0].mean()
            way = [number(start), number(best.best) if abs(best.best) > 1e-6 * abs(start) else "0"]
            problem = first.cell.problem
            row = [
                name,
                problem.half,
                best.source,
                f"{problem.row.episodes:,}",
                *way,
                *(f"{end:.3f}" for end in ends),
            ]
            rows.append(row)
        header = [
            "problem",
            "half",
            "optimum is",
            "episodes",
            "first policy",
            "optimum",
            *self._labels(track),
        ]
        caption = f"{self._track(track)}: the mean share of the way to the optimum in the end, over the seeds"
        return TextTable(f"problems-{track}", caption, header, 3, rows)

    def _profile(self, track: str) -> Chart:
        series: list[Series] = []
        for label in self._labels(track):
            found = profile(self.scores(label, track, "end"), LEVELS)
            series.append(Series(label, LEVELS, found.estimate, found.lower, found.upper))
        caption = "The share of all runs that end at least so far on the way to the optimum, with 95% intervals."
        labels = "share of the way to the optimum", "share of the runs"
        title = f"Performance profiles. {self._track(track)}"
        return Chart(f"bench-profile-{track}", title, caption, *labels, tuple(series))

    def _curves(self, track: str) -> Chart:
        series: list[Series] = []
        for label in self._labels(track):
            found = middle_of_curves([self._shares(it) for it in self.cells(label, track)])
            series.append(Series(label, POINTS, found))
        caption = "The interquartile mean over all problems and seeds of the share of the way to the optimum."
        levels = (Level("optimum", 1.0),)
        labels = "share of the budget", "share of the way to the optimum"
        title = f"During training. {self._track(track)}"
        return Chart(f"bench-curves-{track}", title, caption, *labels, tuple(series), levels)

    def _shares(self, it: Done) -> Float[np.ndarray, "seed point"]:
        shares = it.curve.shares(self.references[it.cell.problem.name].best)
        return on_grid(it.curve.episodes, shares, POINTS * it.cell.problem.row.episodes)

    def _runs(self) -> list[list[str]]:
        rows = [
            [
                "problem",
                "half",
                "algorithm",
                "track",
                "settings",
                "seed",
                "first",
                "last",
                "optimum",
                *MEASURES,
            ]
        ]
        for it in self.done:
            best, cell = self.references[it.cell.problem.name].best, it.cell
            scores = it.curve.scores(best, cell.problem.row.episodes)
            about = [cell.problem.name, cell.problem.half, cell.label, cell.track, it.settings]
            for seed, values in enumerate(it.curve.values):
                numbers = [values[0], values[-1], best, *(scores[name][seed] for name in MEASURES)]
                rows.append([*about, str(seed), *(f"{value:.10g}" for value in numbers)])
        return rows


def middle_of_curves(
    shares: Sequence[Float[np.ndarray, "seed point"]],
) -> Float[np.ndarray, " point"]:
    """The interquartile mean over all runs at each point."""
    return interquartile_mean(np.concatenate(shares))


def _shown(interval: Interval) -> str:
    return (
        f"{float(interval.estimate):.3f} [{float(interval.lower):.3f}, {float(interval.upper):.3f}]"
    )


def _families() -> TextTable:
    rows = [
        [name, family.half, str(sum(len(row.utilities) for row in family.rows)), family.says]
        for name, family in FAMILIES.items()
    ]
    caption = "The families, and the half of the benchmark to which all problems of each belong"
    return TextTable("families", caption, ["family", "half", "problems", "what they are"], 4, rows)
