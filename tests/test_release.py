"""What is released: a wheel for any Python 3 on its platform, and one version everywhere."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import occupax as ox

ROOT = Path(__file__).parents[1]


def test_there_is_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == ox.__version__
    assert f"\nversion: {ox.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    newest = next(line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## "))
    assert newest.split()[1] == ox.__version__


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the stand-in for a compiler is a script of sh")
def test_a_wheel_is_for_any_python_3_on_its_platform(tmp_path):
    """Built by hatchling from a part of the sources, with a compiler that writes an empty file."""
    pytest.importorskip("hatchling")
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("occupax", "occupax_command"):
        (tmp_path / "src" / name).mkdir(parents=True)
        shutil.copy(ROOT / "src" / name / "__init__.py", tmp_path / "src" / name)
    (tmp_path / "src/occupax/kernels").mkdir()
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done; : > "$2"\n')
    compiler.chmod(0o755)
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"CXX": str(compiler)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    name, version, python, interface, platform = wheel.stem.split("-")
    assert (name, version, python, interface) == ("occupax", ox.__version__, "py3", "none")
    assert platform.startswith("linux_")
    with zipfile.ZipFile(wheel) as opened:
        assert "occupax/kernels/libkernels.so" in opened.namelist()
        (metadata,) = (opened.read(it).decode() for it in opened.namelist() if it.endswith(".dist-info/WHEEL"))
    assert "Root-Is-Purelib: false" in metadata
