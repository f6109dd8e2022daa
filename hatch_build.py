"""Build hook that compiles the kernel if there is a compiler. The package also works without."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KERNELS = Path(__file__).parent / "src" / "occupax" / "kernels"
FLAGS = [
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-shared",
    "-Wall",
    "-Wno-unused-parameter",
    "-Wno-psabi",
    "-fno-math-errno",
]


class CustomBuildHook(BuildHookInterface[Any]):
    """Adds `libkernels.so` to the wheel, which is then for one platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files are collected.

        Args:
            version: "standard" or "editable".
            build_data: settings of the build, changed in place.
        """
        library = KERNELS / "libkernels.so"
        try:
            compile_kernel(library)
        except (ImportError, OSError, subprocess.CalledProcessError) as error:
            library.unlink(missing_ok=True)
            self.app.display_warning(
                f"the kernels were not compiled ({error}); occupax will use plain JAX"
            )
            return
        build_data["artifacts"].append("src/occupax/kernels/libkernels.so")
        build_data["pure_python"] = False
        build_data["tag"] = wheel_tag()


def wheel_tag() -> str:
    """Return the wheel tag: any Python 3 on this platform, because ctypes loads the kernel."""
    from packaging.tags import platform_tags

    # a library that was compiled here is not known to run on other distributions, as "manylinux"
    # would say
    own = (name for name in platform_tags() if "manylinux" not in name and "musllinux" not in name)
    return f"py3-none-{next(own)}"


def compile_kernel(library: Path) -> None:
    """Compile all files in parallel with the compiler in the variable CXX, or with c++."""
    jaxlib = find_spec("jaxlib")
    if jaxlib is None or not jaxlib.submodule_search_locations:
        raise ImportError("jaxlib, which has the headers, is not installed")
    headers = Path(jaxlib.submodule_search_locations[0]) / "include"
    compiler = [os.environ.get("CXX", "c++"), *FLAGS]
    with TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:
        objects = {
            source: str(Path(folder) / f"{source.stem}.o")
            for source in sorted(KERNELS.glob("*.cc"))
        }
        commands = [
            [*compiler, f"-isystem{headers}", "-c", str(it), "-o", to] for it, to in objects.items()
        ]
        list(pool.map(partial(subprocess.run, check=True), commands))
        subprocess.run([*compiler, "-o", str(library), *objects.values()], check=True)
