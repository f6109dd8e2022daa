"""Sampled trajectories."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, Num

from occupax.envs.actions import Kind


class Trajectories(eqx.Module):
    """Batch of B trajectories of H steps under a behaviour policy.

    Steps after the end of an episode are padding, for which `live` is False.
    """

    observations: Any
    """Observations before each action, [B, H, ...]. After the end, the final observation."""
    actions: Num[Array, "B H *n"]
    """Samples of the policy, before actions are clipped to the bounds of the environment. 0 after
    the end."""
    log_probs: Float[Array, "B H"]
    """Log-probability of each action under the behaviour policy, as recorded. 0 after the end."""
    rewards: Float[Array, "B H"]
    """Reward of each step. 0 after the end."""
    live: Bool[Array, "B H"]
    """Whether the step was taken before the episode ended."""
    terminated: Bool[Array, " B"]
    """Whether the episode terminated, as opposed to being truncated at the horizon or a time
    limit."""
    final_observations: Any
    """Observations after the last live step, [B, ...]."""
    info: Float[Array, "B H k"] | None = None
    """Recorded values of the simulator's `info` at each step. 0 after the end."""
    action_space: Kind = eqx.field(static=True, default="discrete")
    """Action space of the behaviour policy and of every target policy."""

    @property
    def lengths(self) -> Int[Array, " B"]:
        """Number of live steps of each trajectory."""
        return self.live.sum(1)
