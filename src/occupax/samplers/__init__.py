"""How trajectories are sampled.

* `base`: the abstract `Sampler`, and the `Source` of batches that it opens.
* `plain`, `kernel`: samplers inside the compiled program, in JAX (`Jax`) or C++ (`Kernel`), with the sources of the
  kernels in `tabular_kernel` and `network_kernel`, and the simulation of episodes in `rollout`.
* `host`, `ray`: samplers outside of it, in this process (`Host`) or on a cluster (`Ray`), with the episodes of
  Gymnasium in `episodes`, and `cluster` and `workers` for Ray.
* `choice`: samplers by name.
* `batches`: who answers what an algorithm asks of the trajectories.
"""

from occupax.samplers.base import ProgramSource, Sampler, Source
from occupax.samplers.batches.sampled import SampledBatch
from occupax.samplers.choice import choose_sampler
from occupax.samplers.episodes import EpisodeError
from occupax.samplers.host import Host
from occupax.samplers.kernel import Kernel
from occupax.samplers.plain import Jax, sample
from occupax.samplers.ray import Ray

__all__ = [
    "EpisodeError",
    "Host",
    "Jax",
    "Kernel",
    "ProgramSource",
    "Ray",
    "SampledBatch",
    "Sampler",
    "Source",
    "choose_sampler",
    "sample",
]
