"""MaxEnt in the readings that the paper leaves open."""

from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Key

from occupax.algorithms import MaxEnt
from occupax.algorithms.base import Phase
from occupax.algorithms.maxent import MaxEntState
from occupax.algorithms.updates import require_resolved
from occupax.batches import Batch


class MaxEntReading(MaxEnt):
    """MaxEnt with a choice where its description is open.

    Args:
        own_density: Whether the density of a policy is estimated from N more episodes, which count,
            as in Hazan et al. (2019), instead of the batch of the planning step.
        fading: Whether the k-th policy enters the mixture with weight 1 / k, instead of the
            constant weight.
        normalised: Whether the quasi-reward is taken at (1 - gamma) lambda, the distribution of
            Hazan et al., instead of lambda.
    """

    own_density: bool = eqx.field(static=True, default=False)
    fading: bool = eqx.field(static=True, default=False)
    normalised: bool = eqx.field(static=True, default=False)

    @property
    def phases(self) -> tuple[Phase[MaxEntState], ...]:
        """One batch for density and plan, or one for each."""
        size = require_resolved("batch", self.batch)
        if self.own_density:
            return Phase(size, self._density), Phase(size, self._plan)
        return (Phase(size, self._both),)

    def phase(self, iteration: int) -> int:
        """Return 0 and 1 in turn if density and plan have batches of their own, else 0."""
        if self.own_density:
            return iteration % 2
        return 0

    def mixture_weight(self, iteration: int) -> float:
        """Return the weight in the mixture of the policy that is sampled in an iteration."""
        count = iteration
        if self.own_density:
            if iteration % 2:
                return 0.0
            count = iteration // 2
        if self.fading or count == 0:
            return 1 / (count + 1)
        return float(self.mixing)

    def _density(self, state: MaxEntState, batch: Batch, key: Key[Array, ""]) -> MaxEntState:
        weight = jnp.where(state.iterations == 0, 1.0, self.mixing)
        if self.fading:
            weight = 1 / (state.iterations + 1)
        occupancy = batch.occupancy()
        mixture = (1 - weight) * state.mixture + weight * occupancy
        return replace(
            state,
            occupancy=occupancy,
            mixture=mixture,
            mixture_utility=batch.utility(mixture),
            iterations=state.iterations + 1,
        )

    def _plan(self, state: MaxEntState, batch: Batch, key: Key[Array, ""]) -> MaxEntState:
        factor = 1.0
        if self.normalised:
            factor = 1 - batch.problem.discount
        reward = batch.quasi_reward(factor * state.mixture)
        gradient = batch.gradient(None, reward, self.baseline)
        policy, memory = self.step()(state.policy, gradient, state.memory, batch)
        return replace(state, policy=policy, gradient=gradient, memory=memory)

    def _both(self, state: MaxEntState, batch: Batch, key: Key[Array, ""]) -> MaxEntState:
        return self._plan(self._density(state, batch, key), batch, key)
