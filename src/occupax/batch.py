"""Sampled trajectories."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int


class Trajectories(eqx.Module):
    """A batch of B trajectories of H steps under a behaviour policy. Steps after the end are there but not `live`."""

    observations: Any
    """What was seen before each action, [B, H, ...]."""
    actions: Int[Array, "B H"]
    log_probs: Float[Array, "B H"]
    """Log-probability of each action under the behaviour policy, recorded and constant."""
    rewards: Float[Array, "B H"]
    live: Bool[Array, "B H"]
    """Whether the step was taken before the episode ended."""
    terminated: Bool[Array, " B"]
    """Whether the episode ended by itself, as opposed to being cut at the horizon or a time limit."""
    final_observations: Any
    """What is seen after the last live step, [B, ...]."""

    @property
    def lengths(self) -> Int[Array, " B"]:
        """Number of live steps of each trajectory."""
        return self.live.sum(1)
