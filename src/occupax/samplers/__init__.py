"""How trajectories are drawn."""

from occupax.samplers.device import sample

__all__ = ["sample"]
