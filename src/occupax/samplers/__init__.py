"""How trajectories are drawn."""

from occupax.samplers.device import sample
from occupax.samplers.sampled import SampledBatch

__all__ = ["SampledBatch", "sample"]
