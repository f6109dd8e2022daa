"""Pages with figures of known numbers, used in a real Chromium as a reader would use them."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, Page

from occupax.analysis.charts import Chart, HeatMap, Level, Maps, Series
from occupax.analysis.page import environment
from pages import opened

NAN = np.nan
X = np.array([0.0, 100.0, 200.0, 300.0, 400.0])
RISING = Series("rising", X, X / 100, X / 100 - 0.5, X / 100 + 0.5)
FALLING = Series("falling & <b>slow</b>", X[1:] - 50, np.array([4.0, NAN, 2.0, 1.0]))
LINES = Chart(
    "lines",
    "Lines",
    "Known ones.",
    "sampled episodes",
    "utility",
    (RISING, FALLING),
    (Level("optimum", 4.5),),
)
POWERS = Chart(
    "powers",
    "Powers",
    "Of ten.",
    "samples",
    "error",
    (
        Series("measured", np.array([1.0, 100.0, 1e4]), np.array([1.0, 0.1, 0.01]), style="points"),
        Series("fitted", np.array([1.0, 1e4]), np.array([1.0, 0.01]), style="dashed"),
    ),
    log=True,
)
LAKE = Maps(
    "lake",
    "Lake",
    "Two of them.",
    (
        HeatMap("trained", np.array([[0.25, 1.5], [0.0, 3.0]]), (("→", "↓"), ("", "←↑"))),
        HeatMap("uniform", np.array([[0.5, 0.75], [1.25, 2.0]])),
    ),
)
TEMPLATE = """
{% extends "page.html" %}
{% from "parts.html" import badge, contents, live, table %}
{% block title %}Figures{% endblock %}
{% block heading %}Figures{% endblock %}
{% block body %}
{{ contents([{"anchor": "lines", "title": "Lines"}, {"anchor": "lake", "title": "The lake"}]) }}
<p>{{ badge("it <holds>", "good") }}</p>
{% for chart in charts %}{{ live(chart) }}{% endfor %}
{{ table("Wide.", ["a column of many"] * 20, [["1"] * 20]) }}
{% endblock %}
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "page.html"
    path.write_text(
        environment().from_string(TEMPLATE).render(charts=(LINES, POWERS, LAKE)), "utf-8"
    )
    return path


@pytest.fixture
def page(window: Browser, file: Path) -> Iterator[Page]:
    """Return the page in a browser, which must log no error and load nothing."""
    yield from opened(window, file, viewport={"width": 1100, "height": 900}, color_scheme="light")


def plot(page: Page, name: str) -> Locator:
    return page.locator(f"#{name} .plot")


def drawn(page: Page, name: str, part: str) -> list[bool]:
    """Whether each piece of a part of a figure is to be seen."""
    pieces = page.locator(f'#{name} .plot [data-part="{part}"]')
    return pieces.evaluate_all("all => all.map(it => getComputedStyle(it).display !== 'none')")


def tip(page: Page, name: str) -> list[str]:
    """The lines of the box beside the pointer: the heading, then names and values."""
    box = plot(page, name).locator(".tip")
    if box.is_hidden():
        return []
    texts = [" ".join(line.locator("span").all_inner_texts()) for line in box.locator("div").all()]
    return [box.locator("b").inner_text(), *texts]


def move(page: Page, name: str, place: tuple[float, float]) -> None:
    """Move the pointer to a place given in the points of a drawing."""
    svg = plot(page, name).locator("svg[role=img]")
    svg.scroll_into_view_if_needed()
    box, (_, _, width, height) = (
        svg.bounding_box(),
        map(float, (svg.get_attribute("viewBox") or "").split()),
    )
    assert box is not None
    page.mouse.move(
        box["x"] + place[0] * box["width"] / width, box["y"] + place[1] * box["height"] / height
    )


def marker(page: Page, name: str, part: str, i: int) -> tuple[float, float]:
    """Return the position of a point drawn by Matplotlib."""
    drawn_marker = page.locator(f'#{name} .plot [data-part="{part}"]').last.locator("use").nth(i)
    return float(drawn_marker.get_attribute("x") or ""), float(
        drawn_marker.get_attribute("y") or ""
    )


def cell(page: Page, row: int, column: int) -> tuple[float, float]:
    """The middle of a cell of the first map, of 2 by 2."""
    frame = page.locator("#lake .plot svg[role=img] path").nth(1).get_attribute("d") or ""
    corners = np.array(re.findall(r"-?[\d.]+", frame), float).reshape(-1, 2)
    share = np.array([column, row]) / 2 + 0.25
    x, y = corners.min(0) + share * np.ptp(corners, axis=0)
    return x, y


# What there is to see


def test_everything_is_drawn(page: Page):
    for name in ("lines", "powers", "lake"):
        for box in [
            piece.bounding_box() for piece in page.locator(f"#{name} .plot [data-part]").all()
        ]:
            assert box is not None
            assert max(box["width"], box["height"]) > 10
    assert [len(drawn(page, "lines", part)) for part in ("s0", "s1", "l0")] == [
        2,
        1,
        1,
    ]  # one of them has a band
    assert page.locator("#lake .plot image").count() >= 2
    arrows = page.locator(
        "#lake .plot svg[role=img] path[style*='fafafa'], #lake .plot path[style*='101010']"
    )
    assert arrows.count() == 4
    for box in [arrow.bounding_box() for arrow in arrows.all()]:
        assert box is not None
        assert box["width"] > 4
        assert box["height"] > 4


def test_tables_that_fit_do_not_speak_of_scrolling(page: Page):
    assert page.locator(".scrolls").first.is_visible()
    page.evaluate(
        "document.querySelector('.wide table').remove(); window.dispatchEvent(new Event('resize'))"
    )
    assert not page.locator(".scrolls").first.is_visible()


def test_names_are_text(page: Page):
    assert page.locator("#lines .toggles button").all_inner_texts() == [
        "rising",
        "falling & <b>slow</b>",
        "optimum",
    ]
    assert page.locator(".badge").inner_text() == "✓ it <holds>"
    page.locator(".contents a").nth(1).click()
    assert page.url.endswith("#lake")


def test_a_button_hides_its_series_and_its_band_and_nothing_else(page: Page):
    for part, others in (("s0", ("s1", "l0")), ("s1", ("s0", "l0")), ("l0", ("s0", "s1"))):
        button = page.locator(f'#lines [data-toggles="{part}"]')
        for pressed in ("false", "true"):
            button.click()
            assert button.get_attribute("aria-pressed") == pressed
            assert set(drawn(page, "lines", part)) == {pressed == "true"}
            assert all(all(drawn(page, "lines", other)) for other in others)
            assert all(drawn(page, "powers", "s0"))


# The numbers


def test_the_pointer_shows_medians_and_quartiles(page: Page):
    move(page, "lines", marker(page, "lines", "s0", 2))
    first, second, optimum = "rising 2 [1.5, 2.5]", "falling & <b>slow</b> 2 at 250", "optimum 4.5"
    assert tip(page, "lines") == ["sampled episodes: 200", first, second, optimum]
    move(page, "lines", marker(page, "lines", "s0", 4))
    assert tip(page, "lines")[:2] == ["sampled episodes: 400", "rising 4 [3.5, 4.5]"]
    page.mouse.move(0, 0)
    assert tip(page, "lines") == []


def test_rings_are_on_the_points(page: Page):
    x, y = marker(page, "lines", "s0", 3)
    move(page, "lines", (x, y))
    ring = page.locator("#lines .cross circle").nth(0)
    assert float(ring.get_attribute("cx") or "") == pytest.approx(x, abs=0.2)
    assert float(ring.get_attribute("cy") or "") == pytest.approx(y, abs=0.2)


def test_hidden_series_are_not_spoken_of(page: Page):
    page.locator('#lines [data-toggles="s0"]').click()
    page.locator('#lines [data-toggles="l0"]').click()
    move(page, "lines", marker(page, "lines", "s1", 0))
    assert tip(page, "lines") == ["sampled episodes: 50", "falling & <b>slow</b> 4"]


def test_logarithmic_axes(page: Page):
    for i, (x, y) in enumerate((("1", "1"), ("100", "0.1"), ("10,000", "0.01"))):
        place = marker(page, "powers", "s0", i)
        move(page, "powers", place)
        assert tip(page, "powers")[:2] == [f"samples: {x}", f"measured {y}"]
        ring = page.locator("#powers .cross circle").nth(0)
        assert float(ring.get_attribute("cy") or "") == pytest.approx(place[1], abs=0.2)


def test_the_keyboard_does_all_of_it(page: Page):
    page.locator('#lines [data-toggles="l0"]').focus()
    page.keyboard.press("Enter")
    assert drawn(page, "lines", "l0") == [False]
    page.keyboard.press("Tab")
    headings = {"ArrowRight": "0", "End": "400", "ArrowLeft": "350", "Home": "0", "PageUp": "400"}
    for key, x in headings.items():
        page.keyboard.press(key)
        assert tip(page, "lines")[0] == f"sampled episodes: {x}"
    page.keyboard.press("Escape")
    assert tip(page, "lines") == []


def test_maps_show_the_cell(page: Page):
    move(page, "lake", cell(page, 1, 1))
    assert tip(page, "lake") == ["row 1, column 1", "trained 3 ←↑", "uniform 2"]
    move(page, "lake", cell(page, 0, 1))
    assert tip(page, "lake") == ["row 0, column 1", "trained 1.5 ↓", "uniform 0.75"]
    plot(page, "lake").focus()
    for key in ("ArrowLeft", "ArrowDown"):
        page.keyboard.press(key)
    assert tip(page, "lake") == ["row 1, column 0", "trained 0", "uniform 1.25"]


# Screens and paper


def test_a_telephone_need_not_scroll_sideways(window: Browser, file: Path):
    for page in opened(
        window, file, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True
    ):
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert (
            page.evaluate("document.querySelector('.wide').scrollWidth") > 390
        )  # in a box of its own
        assert page.locator(".scrolls").first.is_visible()  # and it says so
        plot(page, "lines").tap()
        assert tip(page, "lines")[0].startswith("sampled episodes: ")
        box = plot(page, "lines").locator(".tip").bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390


def colours(page: Page) -> list[str]:
    """Of the paper, of the letters and of the first line."""
    body = page.evaluate("(it => [it.backgroundColor, it.color])(getComputedStyle(document.body))")
    line = page.locator('#lines .plot [data-part="s0"] path').last
    return [*body, line.evaluate("it => getComputedStyle(it).stroke")]


def test_the_dark_theme_is_the_readers_choice(window: Browser, file: Path, page: Page):
    light, dark = colours(page), [""]
    for night in opened(window, file, color_scheme="dark"):
        dark = colours(night)
        assert not set(light) & set(dark)
        night.locator(".theme").click()
        assert colours(night) == light
    page.locator(".theme").click()
    assert colours(page) == dark
    page.emulate_media(media="print")
    assert colours(page) == light
    assert page.locator(".theme").is_hidden()
