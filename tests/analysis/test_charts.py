"""Figures as data: what is refused, what is drawn, and the files that are written."""

import csv
import io
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from occupax.analysis import plots
from occupax.analysis.charts import (
    MAX_POINTS,
    Chart,
    HeatMap,
    Level,
    Maps,
    Series,
    csv_text,
    seeds_series,
    thin,
)

NAN = np.nan
X = np.array([1.0, 2.0, 3.0])
BANDED = Series(
    "banded", X, np.array([4.0, NAN, 6.0]), np.array([3.0, NAN, 5.0]), np.array([5.0, NAN, 7.0])
)
PLAIN = Series("plain", X, X**2)


def make_chart(*series: Series, **options) -> Chart:
    return Chart(
        "a-chart", "Title", "Caption.", "x (m)", "y (s)", series or (BANDED, PLAIN), **options
    )


def make_maps() -> Maps:
    return Maps(
        "maps",
        "Where",
        "",
        (HeatMap("one", np.array([[1.0, 0.5]]), [["→", "←↑"]]), HeatMap("two", np.eye(2))),
    )


def test_seeds_become_a_median_between_quartiles():
    series = seeds_series("a", X, np.array([[1.0, 2.0, NAN], [3.0, 2.0, 4.0], [5.0, 8.0, 6.0]]))
    np.testing.assert_array_equal(series.y, [3.0, 2.0, 5.0])
    np.testing.assert_array_equal(series.lower, [2.0, 2.0, 4.5])
    np.testing.assert_array_equal(series.upper, [4.0, 5.0, 5.5])
    assert seeds_series("a", X, X[None]).lower is None


def test_the_table_has_every_number():
    rows = list(csv.reader(io.StringIO(csv_text(make_chart(levels=(Level("best, by far", 9.5),))))))
    assert rows == [
        ["series", "x", "y", "lower", "upper"],
        ["banded", "1", "4", "3", "5"],
        ["banded", "2", "", "", ""],
        ["banded", "3", "6", "5", "7"],
        *[["plain", str(x), str(x * x), "", ""] for x in (1, 2, 3)],
        ["best, by far", "", "9.5", "", ""],
    ]
    rows = list(csv.reader(io.StringIO(csv_text(make_maps()))))
    assert rows[:3] == [
        ["map", "row", "column", "value", "arrow"],
        ["one", "0", "0", "1", "→"],
        ["one", "0", "1", "0.5", "←↑"],
    ]
    assert rows[-1] == ["two", "1", "1", "1", ""]


def test_the_figure_has_labels_a_legend_and_the_numbers():
    figure = plots.draw(make_chart(levels=(Level("best", 9.5),)))
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel(), figure.get_suptitle()) == (
        "x (m)",
        "y (s)",
        "Title",
    )
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "quartiles",
        "banded",
        "plain",
        "best",
    ]
    lines = {line.get_label(): line for line in axes.lines}
    np.testing.assert_array_equal(lines["plain"].get_ydata(), X**2)
    np.testing.assert_array_equal(lines["best"].get_ydata(), [9.5, 9.5])


def test_series_differ_without_colour_and_look_the_same_in_all_charts():
    many = [Series(str(i), X, X + i) for i in range(14)]
    chart = make_chart(*many)
    looks = [plots.look(chart, series) for series in many]
    assert len(set(looks)) == 14
    assert len({look[1:] for look in looks[:7]}) == 7
    fixed = make_chart(many[3], many[0], look={"3": 3, "0": 0})
    assert [plots.look(fixed, series) for series in (many[3], many[0])] == [looks[3], looks[0]]


def test_logarithmic_axes_and_points():
    points = Series("points", X, X**2, X**2 / 2, X**2 * 2, style="points")
    axes = plots.draw(make_chart(points, Series("fit", X, X**2, style="dashed"), log=True)).axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    drawn, fitted = axes.lines
    assert (drawn.get_linestyle(), fitted.get_linestyle()) == ("None", "--")
    np.testing.assert_array_equal(
        [bar[:, 1] for bar in axes.collections[0].get_segments()], np.stack([X**2 / 2, X**2 * 2], 1)
    )


def test_long_series_are_thinned_and_their_files_small(tmp_path: Path):
    random, x = np.random.default_rng(0), np.arange(5000.0)
    series = [seeds_series(f"run {i}", x, random.normal(size=(5, 5000))) for i in range(5)]
    kept = thin(series[0])
    assert (len(kept.x), kept.x[0], kept.x[-1]) == (MAX_POINTS, 0.0, 4999.0)
    np.testing.assert_array_equal(kept.upper, np.asarray(series[0].upper)[kept.x.astype(int)])
    plots.save(make_chart(*series), tmp_path / "new")
    assert (tmp_path / "new" / "a-chart.svg").stat().st_size < 60_000
    assert (tmp_path / "new" / "a-chart.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "new" / "a-chart.csv").read_text().count("\n") == 25_001


def test_the_same_figure_is_the_same_file(tmp_path: Path):
    for folder in ("one", "two"):
        plots.save(make_maps(), tmp_path / folder)
    one, two = ((tmp_path / folder / "maps.svg").read_bytes() for folder in ("one", "two"))
    assert one == two


def test_arrows_point_where_the_text_says():
    arrows = plots.draw(make_maps()).axes[0].collections[0]
    np.testing.assert_array_equal(arrows.XY, [[0, 0], [1, 0], [1, 0]])
    np.testing.assert_array_equal(np.sign(arrows.U), [1, -1, 0])
    np.testing.assert_array_equal(np.sign(arrows.V), [0, 0, -1])  # rows grow downwards


def test_mistakes_are_named():
    with pytest.raises(
        ValueError, match=r"the arrays of the series 'a' must have one length, got \[3, 2\]\."
    ):
        Series("a", X, X[:2])
    with pytest.raises(
        ValueError, match=r"lower and upper of the series 'a' must be given together\."
    ):
        Series("a", X, X, lower=X)
    with pytest.raises(ValueError, match=r"style 'dotted' is not known"):
        Series("a", X, X, style="dotted")
    with pytest.raises(ValueError, match=r"must have different names, got \['plain', 'plain'\]\."):
        make_chart(PLAIN, PLAIN)
    with pytest.raises(
        ValueError,
        match=r"name must consist of letters, digits, hyphens and underscores, got 'a b'\.",
    ):
        Maps("a b", "", "", ())
    with pytest.raises(
        ValueError, match=r"the arrows of the map 'a' must be 2 rows of 2 strings\."
    ):
        HeatMap("a", np.eye(2), [["", ""]])


def test_a_long_title_stays_inside_of_its_figure():
    title = "FrozenLake8x8: REINFORCE needs the fewest episodes for 10% of the gap"
    figure = plots.draw(
        Chart("long", title, "", "x", "y", (Series("one", np.arange(3.0), np.arange(3.0)),))
    )
    figure.draw_without_rendering()
    (shown,) = [text for text in figure.texts if text.get_text()]
    box = shown.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width
    assert shown.get_text().split() == title.split()


@pytest.mark.parametrize("bare", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (2, 3), (16, 4), (1, 10)])
def test_titles_of_maps_stay_inside_of_their_figure(shape: tuple[int, int], count: int, bare: bool):
    one = HeatMap("best policy (seed 1234567890)", np.ones(shape))
    figure = plots.draw(Maps("maps", "Where", "", (one,) * count), bare=bare)
    figure.draw_without_rendering()
    boxes = [axes.title.get_window_extent() for axes in figure.axes[:count]]
    assert all(0 <= box.x0 < box.x1 <= figure.bbox.width for box in boxes)
    assert all(0 <= box.y0 < box.y1 <= figure.bbox.height for box in boxes)
    columns = min(count, plots.MAPS_ABREAST)
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes[:columns]))
