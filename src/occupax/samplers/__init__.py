"""How trajectories are drawn."""

from occupax.samplers.base import Sampler
from occupax.samplers.compiled import CompiledSampler
from occupax.samplers.device import DeviceSampler, sample
from occupax.samplers.engine import Engine, choose_engine, make_sampler
from occupax.samplers.episodes import EpisodeError
from occupax.samplers.network import NetworkSampler
from occupax.samplers.pools import Host, default_sampler
from occupax.samplers.ray import Ray
from occupax.samplers.sampled import SampledBatch
from occupax.samplers.sharded import draw_sharded
from occupax.samplers.streamed import StreamedBatch, draw

__all__ = [
    "CompiledSampler",
    "DeviceSampler",
    "Engine",
    "EpisodeError",
    "Host",
    "NetworkSampler",
    "Ray",
    "SampledBatch",
    "Sampler",
    "StreamedBatch",
    "choose_engine",
    "default_sampler",
    "draw",
    "draw_sharded",
    "make_sampler",
    "sample",
]
