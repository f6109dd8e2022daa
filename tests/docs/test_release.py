"""The release: a wheel for any Python 3 on its platform, and one version everywhere."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import occupax as ox
from occupax.kernels import LIBRARY

ROOT = Path(__file__).parents[2]


def test_there_is_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == ox.__version__
    assert f"\nversion: {ox.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    newest = next(
        line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")
    )
    assert newest.split()[1] == ox.__version__


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel by hatchling from a copy of the sources, with a stand-in for the compiler."""
    if not sys.platform.startswith("linux"):
        pytest.skip("the stand-in for a compiler is a script of sh")
    folder = tmp_path_factory.mktemp("sources")
    (folder / "docs").mkdir()
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "docs/diagnosis.md"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(
        ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.so")
    )
    compiler = folder / "compiler"
    compiler.write_text(f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done; cp "{LIBRARY}" "$2"\n')
    compiler.chmod(0o755)
    run(
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "wheel",
        cwd=folder,
        CXX=str(compiler),
    )
    (built,) = (folder / "dist").glob("*.whl")
    return built


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Return the output of a process that cannot import the sources."""
    known = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    done = subprocess.run(command, cwd=cwd, env=known, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_wheel_is_for_any_python_3_on_its_platform(wheel: Path):
    name, version, python, interface, platform = wheel.stem.split("-")
    assert (name, version, python, interface) == ("occupax", ox.__version__, "py3", "none")
    assert platform.startswith("linux_")
    with zipfile.ZipFile(wheel) as opened:
        assert "occupax/kernels/libkernels.so" in opened.namelist()
        assert "occupax/diagnosis.md" in opened.namelist()
        (metadata,) = (
            opened.read(it).decode() for it in opened.namelist() if it.endswith(".dist-info/WHEEL")
        )
    assert "Root-Is-Purelib: false" in metadata


def test_a_wheel_trains_in_a_new_environment(
    wheel: Path, tmp_path: Path, compiled_fast: dict[str, str]
):
    """The dependencies are those of the present environment, without its own occupax."""
    home = tmp_path / "environment"
    venv.create(home, symlinks=True)
    pip = (
        "pip",
        "--python",
        str(home),
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-compile",
    )
    run(sys.executable, "-m", *pip, str(wheel), cwd=tmp_path, PIP_DISABLE_PIP_VERSION_CHECK="1")
    (packages,) = home.glob("lib/python*/site-packages")
    assert (packages / "occupax").is_dir()
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))

    command = home / "bin" / "occupax"
    assert run(command, "--version", cwd=tmp_path) == f"occupax {ox.__version__}\n"
    training = (
        "train",
        "FrozenLake-v1",
        "--episodes",
        "100",
        "--horizon",
        "20",
        "--out",
        "run",
        "--no-progress",
    )
    assert "report: run/report.html" in run(command, *training, cwd=tmp_path, **compiled_fast)
    result = ox.load_result(tmp_path / "run")
    assert result.policy().predict(0, seed=0) in range(4)
    assert (
        json.loads((tmp_path / "run" / "config.json").read_text())["setup"]["random_numbers"]
        == "kernel"
    )
