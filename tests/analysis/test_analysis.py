"""Statistics against values by hand and NumPy, figures read back, and parsed pages."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pytest

import occupax as ox
from occupax.analysis import plots
from occupax.analysis.charts import MAX_POINTS, Chart, HeatMap, Maps, Series
from occupax.analysis.describe import DIAGNOSTICS, METRICS, metric_chart, plot_metric, settings
from occupax.analysis.page import environment
from occupax.analysis.report import write_report
from occupax.analysis.saved_text import words
from occupax.analysis.statistics import moving_average, quartiles
from occupax.io import codec
from occupax.outcome import Assessment
from results import Page, make_problem, make_result, written

NAN = np.nan


def read_line(figure: Any, label: str) -> tuple[Any, Any]:
    (line,) = [line for line in figure.axes[0].lines if line.get_label() == label]
    return line.get_xdata(), line.get_ydata()


# Statistics


def test_quartiles_by_hand():
    values = np.array([[1.0, 4.0, NAN, NAN], [2.0, NAN, NAN, 1.0], [3.0, 8.0, NAN, 3.0]])
    lower, median, upper = quartiles(values)
    np.testing.assert_array_equal(lower, [1.5, 5.0, NAN, 1.5])
    np.testing.assert_array_equal(median, [2.0, 6.0, NAN, 2.0])
    np.testing.assert_array_equal(upper, [2.5, 7.0, NAN, 2.5])


def test_quartiles_against_numpy_and_with_infinities():
    values = np.random.default_rng(0).normal(size=(7, 20)).astype(np.float32)
    np.testing.assert_array_equal(
        quartiles(values), np.quantile(values.astype(float), [0.25, 0.5, 0.75], axis=0)
    )
    _, median, upper = quartiles(np.array([[-np.inf], [1.0], [2.0]]))
    assert (median, upper) == (1.0, 1.5)


def test_moving_average_by_hand():
    values = np.array([[1.0, 2.0, 6.0, NAN, 3.0], [5.0, NAN, NAN, NAN, NAN]])
    expected = [[1.5, 3.0, 4.0, NAN, 3.0], [5.0, NAN, NAN, NAN, NAN]]
    np.testing.assert_array_equal(moving_average(values, 3), expected)
    np.testing.assert_array_equal(
        moving_average(values, 2), [[1.0, 1.5, 4.0, NAN, 3.0], expected[1]]
    )
    np.testing.assert_array_equal(moving_average(values, 1), values)


def test_moving_average_against_numpy_and_past_a_huge_value():
    values = np.random.default_rng(0).normal(size=(1, 50))
    np.testing.assert_allclose(
        moving_average(values, 7)[0, 3:-3], np.convolve(values[0], np.ones(7) / 7, "valid")
    )
    values[0, 10] = 1e19
    np.testing.assert_allclose(moving_average(values, 3)[0, 30], values[0, 29:32].mean())
    assert np.isfinite(moving_average(values, 99)).all()


def test_a_window_is_a_whole_number():
    with pytest.raises(ValueError, match=r"window must be an integer of at least 1, got 0\."):
        moving_average(np.zeros((1, 3)), 0)


# Figures


def test_the_figure_shows_medians_and_quartiles_of_the_seeds():
    result = make_result()
    figure = plot_metric(result, "return")
    x, y = read_line(figure, "median of 3 seeds")
    lower, median, upper = quartiles(result.metrics["return"])
    np.testing.assert_array_equal(x, result.episodes)
    np.testing.assert_array_equal(y, median)
    axes = figure.axes[0]
    band = {
        tuple(point) for point in np.asarray(axes.collections[0].get_paths()[0].vertices).tolist()
    }
    for bound in (lower, upper):
        assert set(zip(result.episodes.astype(float), bound, strict=True)) <= band
    singles = [line.get_ydata() for line in axes.lines if line.get_label() != "median of 3 seeds"]
    np.testing.assert_array_equal(singles, result.metrics["return"])
    assert (axes.get_xlabel(), axes.get_ylabel()) == (
        "sampled episodes",
        "return per episode (no discount)",
    )
    assert figure.get_suptitle() == "REINFORCE"


def test_the_exact_utility_is_a_dashed_line_beside_the_estimate():
    result = make_result(full=True)
    figure = result.plot()
    _, y = read_line(figure, "exact utility")
    np.testing.assert_array_equal(y, quartiles(result.metrics["exact_utility"])[1])
    styles = {line.get_label(): line.get_linestyle() for line in figure.axes[0].lines}
    assert (styles["exact utility"], styles["median of 3 seeds"]) == ("--", "-")
    assert "exact utility" in [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


def test_steps_are_the_median_of_the_seeds_that_are_still_running():
    result = make_result()
    result.metrics["return"][0, 2:] = NAN
    x, y = read_line(plot_metric(result, "return", against="steps"), "median of 3 seeds")
    np.testing.assert_array_equal(x[:2], np.median(result.steps[:, :2], 0))
    np.testing.assert_array_equal(x[2:], result.steps[1:, 2:].mean(0))
    np.testing.assert_allclose(y[2:], result.metrics["return"][1:, 2:].mean(0), rtol=1e-6)


def test_one_seed_has_no_band_and_many_seeds_no_lines_of_their_own():
    alone = plot_metric(make_result(seeds=1)).axes[0]
    assert not alone.collections
    assert [line.get_label() for line in alone.lines] == ["seed 0"]
    many = plot_metric(make_result(seeds=11)).axes[0]
    assert [line.get_label() for line in many.lines] == ["median of 11 seeds"]


def test_numbers_of_an_axis_are_set_in_thousands():
    axes = plot_metric(make_result(episodes=1_000_000 * np.arange(1, 6))).axes[0]
    assert [axes.xaxis.get_major_formatter()(x) for x in (0.0, 2_500_000.0)] == ["0", "2,500,000"]
    assert axes.yaxis.get_major_formatter()(0.1 + 0.2) == "0.3"


def test_long_records_are_averaged_and_thinned():
    result = make_result(seeds=10, records=3000, full=True)
    figure = plot_metric(result)
    x, y = read_line(figure, "median of 10 seeds")
    assert len(x) == MAX_POINTS
    assert (x[0], x[-1]) == (result.episodes[0], result.episodes[-1])
    medians = quartiles(moving_average(result.metrics["utility"], 60))[1]
    np.testing.assert_allclose(y, medians[np.searchsorted(result.episodes, x)])
    np.testing.assert_array_equal(
        read_line(figure, "exact utility")[1],
        quartiles(result.metrics["exact_utility"])[1][np.searchsorted(result.episodes, x)],
    )
    chart = metric_chart("utility", result, "utility")
    assert chart.caption.endswith("Moving average of 60 log entries.")
    stream = io.BytesIO()
    figure.savefig(stream, format="svg")
    assert len(stream.getvalue()) < 100_000


def test_averages_cover_whole_cycles_of_the_algorithm():
    result = make_result(
        records=300, algorithm=ox.TSIVRPG(epoch_length=20)
    )  # records of 5 iterations: a cycle is 4
    assert "Moving average of 8 log entries." in metric_chart("a", result, "utility").caption


def test_huge_weights_are_drawn_on_a_logarithmic_scale():
    result = make_result(full=True)
    assert plot_metric(result, "largest_weight").axes[0].get_yscale() == "linear"
    result.metrics["largest_weight"][1, 2] = 1e12
    assert plot_metric(result, "largest_weight").axes[0].get_yscale() == "log"


def test_unknown_words_are_answered_with_the_nearest_one():
    with pytest.raises(ValueError, match=r"metric 'utilty' is not known. Did you mean 'utility'\?"):
        plot_metric(make_result(), "utilty")
    with pytest.raises(ValueError, match=r"against 'step' is not known. Did you mean 'steps'\?"):
        plot_metric(make_result(), against="step")


@pytest.mark.parametrize("known", [0, 1])
def test_seeds_without_records_can_be_drawn(known: int):
    result = make_result(seeds=2, records=3, full=True)
    for values in result.metrics.values():
        values[:, known:] = NAN
    for metric in result.metrics:
        picture = io.BytesIO()
        plot_metric(result, metric, against="steps").savefig(picture, format="png")
        assert picture.getvalue().startswith(b"\x89PNG")


def test_maps_show_the_visits():
    grid = np.array([[4.0, 2.0], [1e-9, 0.0]])
    image = np.ma.asarray(
        plots.draw(Maps("here", "Here", "", (HeatMap("here", grid),))).axes[0].images[0].get_array()
    )
    np.testing.assert_array_equal(np.ma.getmaskarray(image), grid == 0)
    np.testing.assert_array_equal(image.compressed(), [4.0, 2.0, 1e-9])


# The report


def test_the_page_needs_nothing_else_and_its_figures_do_not_meet(tmp_path: Path):
    text, page = written(
        tmp_path / "report.html", ("one", make_result(full=True)), ("two", make_result())
    )
    assert not re.search(r"https?:|src=\"(?!data:)|@import|<link", text)
    assert all(
        link.startswith(("#", "data:image/png;base64,"))
        for link in re.findall(r'href="([^"]*)"', text)
    )
    assert len(set(page.ids)) == len(page.ids)
    assert set(re.findall(r'(?:url\(|href=")#([\w-]+)', text)) <= set(page.ids)
    of_each = 1 + 1  # the utility and the map
    compared = 2 + 1  # against episodes and steps, and the seeds
    assert len(page.labels) == compared + of_each + len(DIAGNOSTICS) + of_each
    assert all(page.labels)
    assert "color-scheme: light dark" in text
    assert "#000000" not in text


def test_the_page_has_the_numbers(tmp_path: Path):
    result = make_result()
    _, page = written(tmp_path / "report.html", ("lake", result))
    for seed in result.seeds:
        certificate = result.certificate(seed)
        assert f"{result.utilities[seed]:#.3g}" in page.cells
        assert f"{certificate.value:#.3g}" in page.cells
        assert f"{certificate.gap:#.3g}" in page.cells
        assert f"{result.steps[seed, -1]:,}" in page.cells
    assert f"{np.median(result.utilities):#.3g}" in page.cells
    for text in (
        "FrozenLake-v1 (16 states, 4 actions)",
        "LogCoverage(sigma=0.125)",
        "0.9",
        "20",
        "episodic",
        "Tabular",
    ):
        assert text in page.cells
    assert "occupax 1.2.3, jax 4.5.6; float32" in page.cells
    assert any(
        cell.startswith("REINFORCE(") and "step_size=0.25, radius=inf" in cell
        for cell in page.cells
    )
    assert f"best policy (seed {np.argmax(result.utilities)})" in page.words
    assert METRICS["utility"].meaning in page.words
    assert "Return" not in page.cells
    utility = quartiles(result.metrics["utility"])[1]
    assert any(f"from {utility[0]:#.3g} to {utility[-1]:#.3g}" in label for label in page.labels)


def test_names_and_status_are_text_and_not_html(tmp_path: Path):
    result = make_result(seeds=1, status=("stopped: <b>NaN</b>",))
    text, page = written(
        tmp_path / "report.html", ("<script>alert('a')</script>", result), ('"&', result)
    )
    assert text.count("<script>") == 1  # that of the page
    assert "<b>" not in text
    assert "<script>alert('a')</script>" in page.words
    assert "Stopped: <b>NaN</b>" in page.words


HOSTILE = """</script><script>alert("a")</script>' onload='b' " onload="b" {{ 7 * 7 }} <!-- &lt;"""


def _without_spaces(text: str) -> str:
    return "".join(text.split())


def test_hostile_text_is_escaped_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    finding = ox.training.Finding(HOSTILE, HOSTILE, HOSTILE)
    result = make_result(
        status=(f"stopped: {HOSTILE}", "finished", "finished"), saved_diagnosis=(finding,)
    )
    result.config["setup"]["problem"]["fields"]["env"] = {"opaque": HOSTILE}
    hostile = Assessment(np.ones(3), HOSTILE, None, HOSTILE)
    monkeypatch.setattr("occupax.analysis.report._assessment", lambda _: hostile)
    far = replace(result, episodes=result.episodes + 1000)
    text, page = written(
        tmp_path / "report.html", (HOSTILE, result), ("other", result), (f"{HOSTILE} far", far)
    )
    assert text.count("<script>") == 1  # that of the page
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    labels = [
        value
        for name, value in page.attributes
        if name == "aria-label" and HOSTILE in (value or "")
    ]
    assert len(labels) == 3  # of the charts that compare
    names = [
        series["name"]
        for figure in map(json.loads, page.data)
        for series in figure.get("series", [])
    ]
    assert names.count(HOSTILE) == 3
    assert HOSTILE in page.cells  # the environment
    assert (
        page.words.count(HOSTILE) > 10
    )  # title, contents, headings, tables, buttons, status, source and reason
    chart = Chart(
        "c", HOSTILE, HOSTILE, HOSTILE, "y", (Series(HOSTILE, np.arange(3), np.arange(3)),)
    )
    maps = Maps("m", HOSTILE, HOSTILE, (HeatMap(HOSTILE, np.ones((2, 2))),))
    parts = '{% from "parts.html" import live %}{{ live(chart) }}{{ live(maps) }}'
    drawn = Page(environment().from_string(parts).render(chart=chart, maps=maps))
    # a button, two titles, two captions, a label of an axis, and the title of a map on two lines
    assert _without_spaces(drawn.words).count(_without_spaces(HOSTILE)) == 7
    assert [name for name, value in drawn.attributes if HOSTILE in (value or "")] == [
        "aria-label"
    ] * 4
    assert (
        json.loads(drawn.data[0])["label"]
        == json.loads(drawn.data[1])["grids"][0]["title"]
        == HOSTILE
    )


def test_what_is_known_of_the_end_is_shown_without_the_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    known = Assessment(
        np.array([1.25, 3.75, 2.0]), "exact", np.array([0.5, 0.125, 0.25]), "", np.eye(3, 16)
    )
    monkeypatch.setattr("occupax.analysis.report._assessment", lambda _: known)
    lost = replace(make_result(), problem=None, algorithm=None)
    _, page = written(tmp_path / "report.html", ("lost", lost))
    assert {"3.75", "0.125", "Certified gap"} <= set(page.cells)
    assert "Utility: exact." in page.words
    (maps,) = [figure for figure in map(json.loads, page.data) if "grids" in figure]
    (grid,) = maps["grids"]
    assert grid["title"] == "best policy (seed 1)"
    np.testing.assert_array_equal(np.ravel(grid["values"]), np.eye(3, 16)[1])


def test_what_cannot_be_restored_is_described_all_the_same(tmp_path: Path):
    problem = make_problem(ox.utilities.Custom(lambda u: u.sum(), features=ox.features.State()))
    result = make_result(problem=problem)
    lost = replace(result, problem=None, algorithm=None)
    _, page = written(tmp_path / "report.html", ("lost", lost))
    assert "not known, because the problem cannot be restored from a file" in page.words
    assert "uniform policy" not in page.words
    assert "Certified gap" not in page.cells
    assert any(cell.startswith("REINFORCE(") for cell in page.cells)
    assert plot_metric(lost).get_suptitle() == "REINFORCE"
    _, page = written(tmp_path / "report.html", ("not concave", result))
    assert "Utility: exact." in page.words
    assert "Certified gap" not in page.cells


def test_a_utility_without_a_bound_says_so(tmp_path: Path):
    steep = make_problem(ox.utilities.Entropy(smoothing=0.0))
    _, page = written(tmp_path / "report.html", ("steep", make_result(problem=steep)))
    assert "There is no certificate: " in page.words


def test_stopped_seeds_have_no_last_record(tmp_path: Path):
    result = make_result(
        status=("finished", "stopped at iteration 7: the parameters are not finite", "finished")
    )
    for values in result.metrics.values():
        values[1, 2:] = NAN
    _, page = written(tmp_path / "report.html", ("half", result))
    assert "Stopped at iteration 7: the parameters are not finite" in page.cells
    assert "2 finished" in page.cells
    assert "nan" not in " ".join(page.cells).lower()


def test_the_page_of_a_long_run_stays_small(tmp_path: Path):
    path = tmp_path / "report.html"
    write_report([("long", make_result(seeds=10, records=2000, full=True))], path)
    assert path.stat().st_size < 400_000


def test_a_report_is_about_something(tmp_path: Path):
    with pytest.raises(
        ValueError, match=r"runs must hold at least one pair of a name and a result, got none\."
    ):
        write_report([], tmp_path / "report.html")


def test_a_trained_run_has_a_page(tmp_path: Path):
    problem = make_problem(ox.utilities.Reward(), env=ox.TabularMDP.chain(5))
    result = ox.train(
        problem, ox.TSIVRPG(8, 2, 3), episodes=30, seeds=2, progress=False, record_every=4
    )
    before = mpl.rcParams.find_all("svg|font|axes")
    _, page = written(tmp_path / "report.html", ("chain", result))
    assert mpl.rcParams.find_all("svg|font|axes") == before
    assert "TabularMDP(5 states, 2 actions)" in page.cells
    assert "Visits" not in page.words
    assert f"{result.metrics['return'][0, -1]:#.3g}".removesuffix(".") in page.cells
    assert (
        len(result.episodes) == 2
    )  # of 4 iterations and of 2, and diagnostics of the latter do not compare
    steepness = f"{quartiles(result.metrics['grad_norm'])[1][0]:#.3g}"
    assert any(f"from {steepness} to {steepness}" in label for label in page.labels)


def test_descriptions_read_like_python():
    value = (
        ox.utilities.Reward() + 0.5 * ox.utilities.Entropy(),
        np.array([1.0, 2.5]),
        np.zeros((3, 4)),
        np.inf,
        None,
    )
    text = words(*codec.pack(value))
    assert text.startswith("(Sum(terms=(Reward(")
    assert text.endswith("weights=(1, 0.5)), [1, 2.5], array 3 x 4, inf, none)")
    assert (
        words(*codec.pack([jnp.float32(0.25), np.array([True]), jnp.tanh])) == "(0.25, [1], tanh)"
    )


def test_settings_have_the_number_of_seeds_and_the_episodes_that_were_sampled():
    result = make_result(seeds=1)
    assert dict(settings(result))["Seeds"] == "1 (seed 0)"
    assert dict(settings(result))["Episodes"] == "100 for each seed"
    result.config["episodes"] = 100_000
    assert dict(settings(result))["Episodes"] == "100 for each seed, of a budget of 100,000"
