"""How trajectories are drawn."""

from occupax.samplers.base import Sampler
from occupax.samplers.compiled import CompiledSampler
from occupax.samplers.device import DeviceSampler, sample
from occupax.samplers.engine import Engine, choose_engine, make_sampler
from occupax.samplers.network import NetworkSampler
from occupax.samplers.sampled import SampledBatch
from occupax.samplers.streamed import StreamedBatch, draw

__all__ = [
    "CompiledSampler",
    "DeviceSampler",
    "Engine",
    "NetworkSampler",
    "SampledBatch",
    "Sampler",
    "StreamedBatch",
    "choose_engine",
    "draw",
    "make_sampler",
    "sample",
]
