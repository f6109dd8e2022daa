"""The compiled part, in C++. It is built with the package where there is a compiler.

- `operands.h`: operands with leading axes, and threads; `random.h`: random numbers that are
  counted.
- `tabular.h`: trajectories of tables. `tabular_sample.cc` draws them; `tabular_means.cc` has
  occupancies and statistics, `tabular_gradients.cc` gradients and their derivatives.
- `network.h`: networks, and blocks of live steps. `network_steps.cc` gives a number for each step,
  `network_gradients.cc` sums of gradients; `network_train.cc` has
  the epochs of PPO; `network_passes.cc` compiles `network_math.h` for
  several kinds of processors; `network_memory.cc` keeps observations.
- `planning.cc`: Bellman backups of sparse tables, called by `planning`.
"""

import ctypes
import functools
import os
from pathlib import Path
from typing import Any

import jax

LIBRARY = Path(os.environ.get("OCCUPAX_KERNEL") or Path(__file__).parent / "libkernels.so")
"""The environment variable is for builds of one's own, such as `make sanitize`."""
TARGETS = {
    "tabular": ("sample", "occupancy", "gradient", "earnings", "product", "tally"),
    "network": (
        "act",
        "log_probs",
        "gradient",
        "slopes",
        "slope_gradient",
        "normal",
        "outputs",
        "through",
        "turn",
        "train",
    ),
}
FOR_ANY_NUMBERS = ("network_room", "network_keep")


@functools.cache
def missing() -> str:
    """Return the reason why the kernel cannot be used. Empty if the kernel can be used."""
    if not LIBRARY.exists():
        return "it was not compiled, for lack of a C++ compiler when occupax was installed"
    try:
        library = ctypes.CDLL(str(LIBRARY))
        targets = [
            f"{kernel}_{target}" for kernel, targets in TARGETS.items() for target in targets
        ]
        typed = [f"{target}_{dtype}" for target in targets for dtype in ("float32", "float64")]
        for name in (*typed, *FOR_ANY_NUMBERS):
            capsule = jax.ffi.pycapsule(getattr(library, name))
            jax.ffi.register_ffi_target(f"occupax_{name}", capsule, platform="cpu")
    except (OSError, AttributeError, RuntimeError) as error:
        return f"it could not be loaded ({error})"
    return ""


def call(name: str, dtype: Any, outputs: Any, *operands: Any, **settings: Any) -> Any:
    """Call a function of the kernel.

    vmap adds leading axes, which have length 1 for operands that all runs share.
    """
    target = jax.ffi.ffi_call(f"occupax_{name}_{dtype}", outputs, vmap_method="expand_dims")
    return target(*operands, **settings)


def empty_buffer(like: jax.ShapeDtypeStruct, beside: Any) -> Any:
    """Return an uninitialised array, which costs no time. Each `beside` has an array of its own."""
    return jax.ffi.ffi_call("occupax_network_room", like, vmap_method="expand_dims")(beside)


def write_step(rows: Any, observations: Any, live: Any, time: Any) -> Any:
    """Write observations [..., *shape] at a time of `rows` [..., H, *shape], in place.

    Only rows where `live` [...] holds are written.
    """
    like = jax.ShapeDtypeStruct(rows.shape, rows.dtype)
    put = jax.ffi.ffi_call(
        "occupax_network_keep", like, vmap_method="expand_dims", input_output_aliases={0: 0}
    )
    return put(rows, observations, live, time)
