"""The built documentation: complete, offline, without dead links, and readable on every screen."""

import html
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urldefrag

import pytest
from playwright.sync_api import Browser, expect

ROOT = Path(__file__).parents[2]
MODULES = (
    "algorithms",
    "analysis",
    "batches",
    "bench",
    "envs",
    "estimators",
    "exact",
    "features",
    "plot",
    "policies",
    "samplers",
    "theory",
    "training",
    "utilities",
)

SECTIONS = ("Args:", "Returns:", "Raises:", "Yields:", "Attributes:")


class Parsed(HTMLParser):
    """Parser of a page: anchors, links and loaded files."""

    def __init__(self, text: str):
        super().__init__()
        self.anchors, self.links, self.loaded = {""}, set[str](), set[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors.update(filter(None, [given.get("id"), given.get("name")]))
        if tag in {"a", "area"}:
            self.links.update(filter(None, [given.get("href")]))
        elif given.get("rel") not in {"canonical", "prev", "next"}:
            self.loaded.update(filter(None, [given.get("src"), given.get("href")]))


class Site(NamedTuple):
    """A folder with the site, and its pages."""

    folder: Path
    pages: dict[Path, Parsed]

    @property
    def anchors(self) -> set[str]:
        """Return the anchors of all pages of the reference."""
        return {
            it
            for path, page in self.pages.items()
            if path.parent.name == "reference"
            for it in page.anchors
        }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("site")
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(folder),
    ]
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {
        path: Parsed(path.read_text("utf-8"))
        for path in sorted(folder.rglob("*.html"))
        if path.name != "404.html"
    }
    assert len(found) > 38
    return Site(folder, found)


class Entry(NamedTuple):
    """A class or function in the reference, and the part of the page about it."""

    path: str
    described: Any
    html: str


@pytest.fixture(scope="module")
def entries(site: Site) -> list[Entry]:
    found: list[Entry] = []
    for page in sorted((site.folder / "reference").glob("*.html")):
        _, *parts = re.split(r'<h\d id="(?=occupax[.\w]*")', page.read_text("utf-8"))
        for part in parts:
            path = part.partition('"')[0]
            if re.search(r'class="doc doc-object-name doc-(class|function)-name"', part) is None:
                continue  # a value, or a module
            found.append(Entry(path, pkgutil.resolve_name(path), part.partition(">")[2]))
    return found


def text_of(html_of_part: str) -> str:
    """The text that a browser shows."""
    return html.unescape(re.sub(r"<[^>]*>", "", html_of_part))


def squeezed(text: str) -> str:
    """Words, numbers and comparisons without what Markdown and HTML change."""
    return re.sub(r"[^\w<>=]|_", "", text)


def test_no_link_is_dead_and_nothing_is_loaded_from_elsewhere(site: Site):
    dead = [
        (str(path.relative_to(site.folder)), link)
        for path, page in site.pages.items()
        for link in page.links | page.loaded
        if not link.startswith(("https:", "http:", "data:", "mailto:"))
        and not found(site, path, link)
    ]
    assert dead == []
    outside = {
        it for page in site.pages.values() for it in page.loaded if re.match(r"(https?:)?//", it)
    }
    assert outside == set()
    styles = "".join(path.read_text("utf-8") for path in site.folder.rglob("*.css"))
    assert re.findall(r"url\(\s*[\"']?(?:https?:)?//[^)]*", styles) == []


def found(site: Site, path: Path, link: str) -> bool:
    """Whether a link of a page leads to a file and, if it names one, to an anchor of it."""
    address, anchor = urldefrag(unquote(link))
    target = (path.parent / address).resolve() if address else path
    target = target / "index.html" if target.is_dir() else target
    return target.exists() and (target not in site.pages or anchor in site.pages[target].anchors)


def test_the_reference_has_every_public_name(site: Site):
    package: Any = importlib.import_module("occupax")
    index = (ROOT / "docs" / "reference" / "index.md").read_text()
    assert [name for name in package.__all__ if f"`ox.{name}`" not in index] == []
    missing: list[str] = []
    for name in MODULES:
        module: Any = importlib.import_module(f"occupax.{name}")
        for public in public_names(module):
            value = getattr(module, public)
            places = {f"{module.__name__}.{public}", f"{getattr(value, '__module__', '')}.{public}"}
            if getattr(package.api, public, None) is value:
                places.add(f"occupax.api.{public}")
            if not isinstance(value, TypeVar) and not places & site.anchors:
                missing.append(f"{name}.{public}")
    assert missing == ["exact.evaluation"]  # a module, whose functions are names of `exact` itself


def public_names(module: Any) -> list[str]:
    """Return `__all__` of a module or, without one, the functions and classes that it defines."""
    defined = [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__
    ]
    return list(getattr(module, "__all__", [name for name in defined if not name.startswith("_")]))


def test_every_class_shows_the_parameters_of_its_constructor(entries: list[Entry]):
    missing: list[str] = []
    kinds = [entry for entry in entries if isinstance(entry.described, type)]
    classes = [entry for entry in kinds if not issubclass(entry.described, Exception)]
    for entry in classes:
        signature = re.search(r'<div class="doc-signature.*?</div>', entry.html, re.DOTALL)
        shown = "" if signature is None else text_of(signature[0])
        names = inspect.signature(entry.described).parameters
        missing += [
            f"{entry.path}: {name}" for name in names if re.search(rf"\b{name}\b", shown) is None
        ]
    assert missing == []
    assert len(classes) > 100


def test_no_line_of_a_docstring_is_lost(entries: list[Entry]):
    lost: list[str] = []
    compared = 0
    for entry in entries:
        shown = squeezed(text_of(entry.html))
        written = inspect.cleandoc(entry.described.__doc__ or "")
        for line in written.splitlines():
            content = re.sub(
                r"^ {4}\**\w[\w, *]*: ", "", line
            )  # the name of an argument has a place of its own
            if line not in SECTIONS and squeezed(content) not in shown:
                lost.append(f"{entry.path}: {line}")
            compared += 1
    assert lost == []
    assert compared > 1_000


def test_every_finding_of_the_diagnosis_has_a_section_that_it_names(site: Site):
    code = (ROOT / "src" / "occupax" / "analysis" / "diagnosis.py").read_text()
    kinds = set(re.findall(r"Finding\(\s*\"([a-z-]+)\"", code))
    sections = set(
        re.findall(r"^## ([a-z-]+)$", (ROOT / "docs" / "diagnosis.md").read_text(), re.MULTILINE)
    )
    assert len(kinds) > 8
    assert kinds == sections
    assert kinds <= site.pages[site.folder / "diagnosis.html"].anchors


# In a browser

CLIPPED = """() => {
  const wrong = [], width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) wrong.push("the page scrolls sideways");
  for (const part of document.querySelectorAll(
      ".md-content :is(table, pre > code, img, svg, p, li, h1, h2, h3, dt, dd, .doc-signature)")) {
    const box = part.getBoundingClientRect();
    const own = getComputedStyle(part).overflowX;
    if (!box.width) continue;
    const wider = part.scrollWidth > part.clientWidth + 1;
    if (wider && own === "hidden") wrong.push(name(part));
    if (wider && part.tagName === "CODE" && width > 1200) wrong.push("wide " + name(part));
    for (let around = part.parentElement; around; around = around.parentElement) {
      const how = getComputedStyle(around).overflowX, edge = around.getBoundingClientRect();
      if (/auto|scroll/.test(how)) break;
      const limit = around === document.documentElement ? width : edge.right;
      if ((/hidden|clip/.test(how) || around === document.documentElement) && box.right > limit + 1)
      {
        wrong.push(name(part));
        break;
      }
    }
  }
  function name(part) { return part.tagName + " " + part.textContent.trim().slice(0, 40); }
  return wrong;
}"""
CONTRAST = """() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const paper = numbers(getComputedStyle(document.body).backgroundColor);
  const linear = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b, a = 1]) => {
    const [x, y, z] = [r, g, b].map((v, i) => linear(v * a + paper[i] * (1 - a)));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const faint = [], around = light(paper);
  for (const part of document.querySelectorAll(
      ".md-content :is(p, td, li, a:not(.headerlink), code, .flow text)")) {
    const text = part.textContent.trim(), style = getComputedStyle(part);
    const ink = light(numbers(part.closest("svg") ? style.fill : style.color));
    const ratio = (Math.max(ink, around) + 0.05) / (Math.min(ink, around) + 0.05);
    if (text && ratio < 4) faint.push(`${part.tagName} ${text.slice(0, 40)} ${ratio.toFixed(1)}`);
  }
  return [around, faint];
}"""
EMPTY_INDEX = (
    'var __index = {"config": {"lang": ["en"], "separator": " ", "pipeline": []}, "docs": []}'
)


def test_every_page_fits_a_screen_and_a_telephone_in_light_and_dark(site: Site, window: Browser):
    wrong: list[object] = []
    page = window.new_page()
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.route(
        "**/search/*", lambda route: route.fulfill(body=EMPTY_INDEX)
    )  # a full one takes longer than the rest
    for path in site.pages:
        page.goto(path.as_uri(), wait_until="load")
        page.add_style_tag(content="* { transition: none !important; }")
        for scheme in ("default", "slate"):
            page.evaluate(
                "scheme => document.body.setAttribute('data-md-color-scheme', scheme)", scheme
            )
            paper, faint = page.evaluate(CONTRAST)
            assert (paper < 0.1) == (scheme == "slate")
            wrong += [(path.name, scheme, it) for it in faint]
            for width in (1280, 390):  # the pictures of the schemes differ
                page.set_viewport_size({"width": width, "height": 900})
                wrong += [(path.name, scheme, width, it) for it in page.evaluate(CLIPPED)]
    page.close()
    assert not wrong, "\n".join(map(str, wrong))


def test_the_search_answers_without_a_server_and_a_dark_screen_stays_dark(
    site: Site, window: Browser
):
    page = window.new_page(viewport={"width": 1280, "height": 900}, color_scheme="dark")
    page.goto((site.folder / "index.html").as_uri())
    assert page.locator("body").get_attribute("data-md-color-scheme") == "slate"
    page.locator(".md-search__input").click()
    page.keyboard.type("horizon")
    result = page.locator(".md-search-result__item").first
    expect(result).to_contain_text(re.compile("horizon", re.IGNORECASE), timeout=20_000)
    page.close()
