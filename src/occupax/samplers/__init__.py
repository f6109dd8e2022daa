"""How trajectories are drawn."""

from occupax.samplers.device import sample
from occupax.samplers.sampled import SampledBatch
from occupax.samplers.streamed import StreamedBatch, draw

__all__ = ["SampledBatch", "StreamedBatch", "draw", "sample"]
