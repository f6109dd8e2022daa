"""Shared fixtures and hooks.

The fast suite switches off what takes long and rarely matters: most optimisations of XLA, `fsync`,
the reports of runs, and checks of annotations outside of the mathematics. `make test-slow` sets
`OCCUPAX_TEST_AS_USERS=1`, which leaves everything on, and checks every annotation on every call.
"""

import atexit
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

# Compiled programs are kept in two folders of this run, one of the workers and one of the processes
# that tests start: the former have many in common, and so have the latter. These may leave half a
# program behind, for example as they are killed.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="occupax-tests-")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)

import jax
import jaxtyping
import pytest

import annotations
import compilation_cache
import contexts

AS_USERS = os.environ.get("OCCUPAX_TEST_AS_USERS") == "1"
"""Whether the suite runs as a user has the package."""
if AS_USERS:
    annotations.MAX_CALLS = sys.maxsize
annotations.check_when_called()
contexts.keep_one_for_each_thread()
jax.config.update("jax_compilation_cache_dir", f"{os.environ['JAX_COMPILATION_CACHE_DIR']}/workers")
jax.config.update(
    "jax_persistent_cache_min_compile_time_secs", 0.02
)  # to write others takes longer than it saves

# A cluster of Ray is found by all who look into the folder that it writes into: each worker of the
# tests has its own.
os.environ["RAY_TMPDIR"] = tempfile.mkdtemp(prefix="ray-")
atexit.register(shutil.rmtree, os.environ["RAY_TMPDIR"], ignore_errors=True)

# A suite that is started in the background of a shell inherits that interrupts are ignored, and so
# would the processes that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What is compiled is kept until the end, and to look through all of it for garbage takes longer and
# longer.
gc.set_threshold(100_000, 20, 20)

# The compiler takes most of the time of the tests, and most of that goes into optimising programs
# that run for some milliseconds. Processes that tests start have optimised programs, unless a test
# asks for fast compilation.
OPTIMISATIONS, FLAGS = "JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS"
fast: dict[str, str] = {}
if OPTIMISATIONS not in os.environ and not AS_USERS:
    # compiles in less than half of the time
    faster = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    fast = {OPTIMISATIONS: "1", FLAGS: f"{faster} {os.environ.get(FLAGS, '')}"}
    jax.config.update(OPTIMISATIONS.lower(), True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FLAGS, fast[FLAGS])
        jax.devices()  # XLA reads its flags here, and never again


HERE = Path(__file__).parent
CLUSTERS = (
    "docs/test_documents.py",
    "samplers/test_cluster.py",
    "algorithms/test_contract.py",
    "batches/test_queries.py",
    "samplers/test_real_cluster.py",
)
"""The files that start clusters of Ray. One worker has all of them: who joins a cluster by the
address "auto" may get any that runs on this machine."""
SLOW = (
    *CLUSTERS,
    "docs/test_site.py",
    "batches/test_batches.py",
    "samplers/test_eager.py",
    "samplers/test_network_kernel.py",
    "training/test_checkpoint.py",
    "training/test_interruption.py",
    "samplers/test_failures.py",
    "training/test_training.py",
    "exact/test_exact.py",
)
"""The files that take longest. They come first, so that no worker is left with one of them at the
end."""


def name_of(path: Path) -> str:
    """The path of a test file within the tests."""
    return path.relative_to(HERE).as_posix()


def pytest_collection() -> None:
    compilation_cache.write_whole_programs()  # two workers compile the same at the same time


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        name = name_of(item.path)
        return SLOW.index(name) if name in SLOW else len(SLOW)

    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Schedule by file: the tests of a file share fixtures and compiled programs."""
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "clusters" if file.removeprefix("tests/") in CLUSTERS else file

    config.option.loadscopereorder = False
    return Files(config, log)


PAGES = "occupax.analysis.report.write_pages"


@pytest.fixture(scope="session", autouse=True)
def with_pages() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Return a context in which runs with a folder write their report, which takes long."""

    @contextmanager
    def as_users_have_it() -> Generator[None]:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(PAGES, real)
            yield

    with pytest.MonkeyPatch.context() as patch:
        from occupax.analysis import report

        real = report.write_pages
        if not AS_USERS:
            patch.setattr(PAGES, lambda _, folder: (folder / "report.html").touch())
        yield as_users_have_it


@pytest.fixture(scope="session", autouse=True)
def without_waiting_for_the_disk() -> Iterator[None]:
    """Skip `fsync`, because files survive a kill without it, and no test cuts the power."""
    with pytest.MonkeyPatch.context() as patch:
        if not AS_USERS:
            patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


SHAPES = (
    "algorithms/test_algorithms.py",
    "algorithms/test_later_algorithms.py",
    "algorithms/test_steps.py",
    "batches/",
    "envs/test_lqr.py",
    "envs/test_tabular.py",
    "exact/test_exact.py",
    "policies/test_actions.py",
    "policies/test_policies.py",
    "samplers/test_sampling.py",
    "test_features.py",
    "utilities/",
)
"""Files in which calls are checked against their annotations. They cover all of the mathematics. In
other files, which train on top of it, the checks would take a quarter of the time."""


@pytest.fixture(scope="module", autouse=True)
def shapes(request: pytest.FixtureRequest) -> None:
    """Switch the checks of annotations on or off for a file."""
    is_checked = AS_USERS or name_of(request.path).startswith(SHAPES)
    jaxtyping.config.update("jaxtyping_disable", not is_checked)
    annotations.calls.clear()


@pytest.fixture
def as_users_run() -> Iterator[None]:
    """Run a test of invalid arguments without checks of annotations, which would raise first."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture(scope="session")
def compiled_fast() -> dict[str, str]:
    """Environment variables of a process that compiles as fast as the tests do."""
    return os.environ | fast


@pytest.fixture(scope="module")
def window() -> Iterator[Any]:
    """A Chromium without a screen."""
    from playwright.sync_api import sync_playwright

    import browser

    found = browser.find()
    if found is None:
        pytest.fail(
            "no Chromium: install one, set OCCUPAX_CHROMIUM, "
            "or run `python tests/helpers/browser.py`."
        )
    with sync_playwright() as driver:
        opened = driver.chromium.launch(
            executable_path=found.program, args=browser.FLAGS, env=found.environment, timeout=20_000
        )
        yield opened
        opened.close()
