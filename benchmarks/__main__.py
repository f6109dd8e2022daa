"""Run all benchmarks in separate processes and write benchmarks/RESULTS.md.

python benchmarks                      all of them, about half an hour
python benchmarks tabular scaling      some of them, printed only
"""

import multiprocessing
import os
import platform
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tables import Table, measured, show

HERE = Path(__file__).parent
PAGE = HERE.parent / "benchmarks" / "RESULTS.md"
BENCHMARKS = (
    *("tabular", "network", "second_order", "published", "solving", "scaling"),
    *("memory", "startup", "host", "simulators", "others", "before"),
)
PACKAGES = ("jax", "jaxlib", "numpy", "gymnasium", "gymnax", "torch", "stable-baselines3")
INTRODUCTION = """\
# Speed and memory

`make bench` measures everything on this page and writes it. Programs that are compared run on the
same machine, one after the other; only the ratios mean anything elsewhere. They are those of one
run, and may differ by a fifth in the next. Targets that were not reached are shown like the others.
"""


def machine() -> str:
    """Return a table of the hardware and the versions, without the name of the host."""
    versions: list[str] = []
    for name in PACKAGES:
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            versions.append(f"no {name}")
    compiler = subprocess.run(
        [os.environ.get("CXX", "c++"), "--version"], capture_output=True, text=True, check=True
    )
    facts = {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.machine()}",
        "compiler": compiler.stdout.splitlines()[0],
        "versions": ", ".join([f"Python {platform.python_version()}", *versions]),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }
    return "\n".join(
        ["| | |", "| --- | --- |", *(f"| {name} | {fact} |" for name, fact in facts.items())]
    )


def _processor() -> str:
    """Return the model name of the processor, or the architecture where it is unknown."""
    return _field("/proc/cpuinfo", "model name") or platform.machine()


def _field(file: str, name: str) -> str:
    """Return the first value of a name in a file of lines `name : value`, or an empty string."""
    if not Path(file).exists():
        return ""
    pairs = (line.partition(":") for line in Path(file).read_text().splitlines())
    return next((value.strip() for key, _, value in pairs if key.strip() == name), "")


def section(doc: str, tables: list[Table]) -> str:
    """The first line of the docstring is the heading, the rest says what is measured and how."""
    heading, _, says = doc.partition("\n")
    return "\n\n".join(
        [f"## {heading.rstrip('.')}", says.strip(), *(table.markdown() for table in tables)]
    )


def main() -> None:
    chosen = [name for name in sys.argv[1:] or BENCHMARKS if (HERE / f"{name}.py").exists()]
    sections: list[str] = []
    for name in chosen:
        start = time.perf_counter()
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
            doc, tables = process.submit(measured, name).result()
        print(f"== {doc.partition(chr(10))[0]} ({name}, {time.perf_counter() - start:.0f} s)\n")
        show(tables)
        print()
        sections.append(section(doc, tables))
    if not sys.argv[1:]:
        PAGE.write_text("\n\n".join([INTRODUCTION.strip(), machine(), *sections]) + "\n")


if __name__ == "__main__":
    main()
