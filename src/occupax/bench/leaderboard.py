"""Leaderboard: scores over all problems as tables, charts, a page of HTML, Markdown and CSV."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from occupax.analysis import page, plots, statistics
from occupax.analysis.charts import Chart, Level, Series, csv_lines
from occupax.analysis.describe import number
from occupax.analysis.statistics import Interval, interquartile_mean, on_grid
from occupax.analysis.text_table import TextTable
from occupax.analysis.texts import Texts
from occupax.bench import search
from occupax.bench.cells import CellResult
from occupax.bench.families import FAMILIES
from occupax.bench.measure import EPISODES, ESTIMATES, MIN_SCORE, RECORDS
from occupax.bench.references import Reference
from occupax.io.files import write_text
from occupax.jobs import versions_text

DEFAULT = "ox.train"
"""Label of the algorithm that `occupax.train` takes when none is given."""
MEASURES = {
    "mean": "mean over training",
    "tenth": "after a tenth",
    "third": "after a third",
    "end": "in the end",
}
"""Measures of a run, and their column titles."""
LOST = -0.05
"""Score below which a run has lost the performance of its initial policy."""
LEVELS = np.linspace(0.0, 1.0, 101)
"""Scores of the performance profiles."""
FRACTIONS = np.linspace(0.0, 1.0, 51)
"""Fractions of the budget at which curves are drawn."""
RESAMPLES = 2000
TEXTS = Texts("occupax.bench", "leaderboard.toml")

Scores = Float[np.ndarray, "problem seed"]


@dataclass(frozen=True)
class Leaderboard:
    """Result of the benchmark."""

    results: tuple[CellResult, ...]
    """Result of each algorithm on each problem."""
    references: dict[str, Reference]
    """Best value of each problem, by its name."""
    command: str
    """Command that computes the same."""

    @property
    def submissions(self) -> list[tuple[str, str]]:
        """Label and track of every algorithm."""
        pairs = [(result.cell.label, result.cell.track) for result in self.results]
        return list(dict.fromkeys(pairs))

    def scores(
        self, label: str, track: str = "default", measure: str = "mean", half: str = "both"
    ) -> Scores:
        """Return the scores of an algorithm for each problem and seed.

        Args:
            label: Name of the algorithm.
            track: "default" or "tuned".
            measure: "tenth", "third" or "end" for the score after so much of the budget, or "mean"
                for its mean over the training.
            half: "development", "test" or "both".

        Returns:
            Scores, which are 0 for the initial policy and 1 for the optimum.
        """
        results = self.cells(label, track, half)
        return np.array([self._scores_of(result)[measure] for result in results])

    def cells(self, label: str, track: str, half: str = "both") -> list[CellResult]:
        """Return the results of an algorithm on all problems of a half.

        Args:
            label: Name of the algorithm.
            track: "default" or "tuned".
            half: "development", "test" or "both".

        Returns:
            One result for each problem.
        """
        return [
            result
            for result in self._of_half(half)
            if (result.cell.label, result.cell.track) == (label, track)
        ]

    def table(self, half: str = "both") -> TextTable:
        """Return the scores of all algorithms that ran on all problems of a half, best first.

        Args:
            half: "development", "test" or "both".

        Returns:
            A row for each algorithm and track.
        """
        count = len({result.cell.problem.name for result in self._of_half(half)})
        rows: list[tuple[float, list[str]]] = []
        for label, track in self.submissions:
            if len(self.cells(label, track, half)) < count:
                continue
            scores = {name: self.scores(label, track, name, half) for name in MEASURES}
            middles = [_format(_middle(values)) for values in scores.values()]
            ends = scores["end"]
            lost = f"{(ends < LOST).sum()} of {ends.size}"
            mean = interquartile_mean(scores["mean"].ravel())
            rows.append((-float(mean), [label, track, *middles, f"{ends.min():.2f}", lost]))
        families = f"Families of the {half} half"
        if half == "both":
            families = "All families"
        header = ["algorithm", "track", *MEASURES.values(), "worst end", "lost runs"]
        caption = TEXTS.get("captions", "table", families=families, count=count)
        ranked = [row for _, row in sorted(rows)]
        return TextTable(f"leaderboard-{half}", caption, header, 2, ranked)

    def save(self, folder: Path) -> Path:
        """Write the pages, the figures and the numbers.

        Args:
            folder: Directory of the benchmark.

        Returns:
            The path of the page.
        """
        figures: list[Chart] = []
        comparisons: list[TextTable] = []
        problems: list[TextTable] = []
        for track in dict.fromkeys(track for _, track in self.submissions):
            figures += [self._profile_chart(track), self._curves_chart(track)]
            problems.append(self._problems_table(track))
            if len(self._labels(track)) > 1:
                comparisons.append(self._comparison_table(track))
        for figure in figures:
            plots.save(figure, folder / "figures")
        boards = [self.table(half) for half in self._halves()]
        content = {
            "facts": self._facts(),
            "figures": figures,
            "boards": boards,
            "comparison": comparisons,
            "problems": problems,
            "families": _families_table(),
            "count": len(self.references),
            "lowest": f"{MIN_SCORE:g}",
            "method": _method_texts(),
        }
        for kind in ("md", "html"):
            text = page.render(f"bench.{kind}", **content)
            write_text(folder / f"bench.{kind}", text)
        for table in (*boards, *comparisons, *problems):
            write_text(folder / "numbers" / f"{table.name}.csv", table.csv())
        write_text(folder / "numbers" / "runs.csv", csv_lines(self._run_rows()))
        return folder / "bench.html"

    def _of_half(self, half: str) -> list[CellResult]:
        return [result for result in self.results if half in (result.cell.problem.half, "both")]

    def _scores_of(self, result: CellResult) -> dict[str, np.ndarray]:
        problem = result.cell.problem
        return result.curve.scores(self.references[problem.name].best, problem.entry.episodes)

    def _labels(self, track: str) -> list[str]:
        return [label for label, label_track in self.submissions if label_track == track]

    def _track_title(self, track: str) -> str:
        """Return the name of a track, with its half of the problems if it ran on one only."""
        title = f"{track.capitalize()} track"
        halves = {result.cell.problem.half for result in self.results if result.cell.track == track}
        if len(halves) == 1 and len(self._halves()) > 1:
            title += f", {next(iter(halves))} half"
        return title

    def _halves(self) -> list[str]:
        halves: list[str] = list(dict.fromkeys(result.cell.problem.half for result in self.results))
        if len(halves) > 1:
            return ["both", *halves]
        return halves

    def _facts(self) -> list[tuple[str, str]]:
        names = {result.cell.problem.name for result in self.results}
        seeds = max(result.cell.seeds for result in self.results)
        minutes = sum(result.seconds for result in self.results) / 60
        facts = [
            ("Command", self.command),
            ("Problems", f"{len(names)}, with {seeds} seeds each"),
            ("Training", f"{minutes:,.0f} minutes of one core, compilation included"),
            ("Versions", versions_text()),
        ]
        rivals = [label for label in self._labels("tuned") if label != DEFAULT]
        if rivals and DEFAULT in self._labels("default") and "test" in self._halves():
            facts.append(("Test half", self._default_against(rivals)))
        return facts

    def _default_against(self, rivals: Sequence[str]) -> str:
        """Return how the default compares with tuned algorithms on the test half, by intervals."""
        default = _middle(self.scores(DEFAULT, half="test"))
        groups: dict[str, list[str]] = {}
        for label in rivals:
            rival = _middle(self.scores(label, "tuned", half="test"))
            order = "not told apart from"
            if default.lower > rival.upper:
                order = "ahead of"
            elif rival.lower > default.upper:
                order = "behind"
            groups.setdefault(order, []).append(f"{label} {_format(rival)}")
        listed = "; ".join(f"{order} {', '.join(labels)}" for order, labels in groups.items())
        return f"{DEFAULT} without a setting, {_format(default)}, against tuned settings: {listed}"

    def _comparison_table(self, track: str) -> TextTable:
        labels = self._labels(track)
        scores = {label: self.scores(label, track) for label in labels}
        rows: list[list[str]] = []
        for label in labels:
            row = dict.fromkeys(labels, "")
            for other in labels:
                if other != label:
                    row[other] = _improvement(scores[label], scores[other])
            rows.append([label, *row.values()])
        caption = TEXTS.get("captions", "improvement", track=self._track_title(track))
        return TextTable(f"improvement-{track}", caption, ["", *labels], 1, rows)

    def _problems_table(self, track: str) -> TextTable:
        labels = self._labels(track)
        groups: dict[str, dict[str, CellResult]] = {}
        for result in self.results:
            if result.cell.track == track:
                groups.setdefault(result.cell.problem.name, {})[result.cell.label] = result
        rows: list[list[str]] = []
        for name, results in groups.items():
            reference = self.references[name]
            first = next(iter(results.values()))
            initial = first.curve.values[:, 0].mean()
            optimum = "0"
            if abs(reference.best) > 1e-6 * abs(initial):
                optimum = number(reference.best)
            problem = first.cell.problem
            row = [name, problem.half, reference.source, f"{problem.entry.episodes:,}"]
            row += [number(initial), optimum]
            for label in labels:
                ends = results[label].curve.normalised(reference.best)[:, -1]
                row.append(f"{ends.mean():.3f}")
            rows.append(row)
        header = ["problem", "half", "optimum is", "episodes", "first policy", "optimum", *labels]
        caption = TEXTS.get("captions", "problems", track=self._track_title(track))
        return TextTable(f"problems-{track}", caption, header, 3, rows)

    def _profile_chart(self, track: str) -> Chart:
        series: list[Series] = []
        for label in self._labels(track):
            scores = self.scores(label, track, "end")
            profile = statistics.performance_profile(scores, LEVELS, RESAMPLES)
            series.append(Series(label, LEVELS, *profile))
        return Chart(
            f"bench-profile-{track}",
            f"Performance profiles. {self._track_title(track)}",
            TEXTS.get("captions", "profile"),
            "share of the way to the optimum",
            "share of the runs",
            tuple(series),
        )

    def _curves_chart(self, track: str) -> Chart:
        series: list[Series] = []
        for label in self._labels(track):
            curves = [self._curves(result) for result in self.cells(label, track)]
            series.append(Series(label, FRACTIONS, interquartile_mean(np.concatenate(curves))))
        return Chart(
            f"bench-curves-{track}",
            f"During training. {self._track_title(track)}",
            TEXTS.get("captions", "curves"),
            "share of the budget",
            "share of the way to the optimum",
            tuple(series),
            (Level("optimum", 1.0),),
        )

    def _curves(self, result: CellResult) -> Float[np.ndarray, "seed point"]:
        problem = result.cell.problem
        scores = result.curve.normalised(self.references[problem.name].best)
        return on_grid(result.curve.episodes, scores, FRACTIONS * problem.entry.episodes)

    def _run_rows(self) -> list[list[str]]:
        rows = [["problem", "half", "algorithm", "track", "settings", "seed"]]
        rows[0] += ["first", "last", "optimum", *MEASURES]
        for result in self.results:
            cell = result.cell
            best = self.references[cell.problem.name].best
            scores = self._scores_of(result)
            words = [cell.problem.name, cell.problem.half, cell.label, cell.track, result.settings]
            for seed, values in enumerate(result.curve.values):
                numbers = [values[0], values[-1], best]
                numbers += [scores[measure][seed] for measure in MEASURES]
                rows.append([*words, str(seed), *(f"{value:.10g}" for value in numbers)])
        return rows


def _middle(scores: Scores) -> Interval:
    """Return the interquartile mean over all problems and seeds."""

    def middle(values: np.ndarray) -> np.ndarray:
        return interquartile_mean(values.ravel())

    return statistics.stratified_bootstrap(middle, scores, resamples=RESAMPLES)


def _improvement(scores: Scores, others: Scores) -> str:
    return _format(statistics.probability_of_improvement(scores, others, RESAMPLES))


def _format(interval: Interval) -> str:
    estimate, lower, upper = (f"{float(bound):.3f}" for bound in interval)
    return f"{estimate} [{lower}, {upper}]"


def _families_table() -> TextTable:
    rows: list[list[str]] = []
    for name, family in FAMILIES.items():
        count = sum(len(entry.utilities) for entry in family.entries)
        rows.append([name, family.half, str(count), family.description])
    header = ["family", "half", "problems", "what they are"]
    return TextTable("families", TEXTS.get("captions", "families"), header, 4, rows)


def _method_texts() -> list[tuple[str, str]]:
    texts = TEXTS.get(
        "method",
        records=RECORDS,
        estimates=ESTIMATES,
        episodes=EPISODES,
        settings=search.SETTINGS,
        search_seeds=len(search.SEEDS),
        lost=-LOST,
        lowest=MIN_SCORE,
    )
    return list(texts.items())
