"""Algorithms as users write them, outside of the package: proof that the contract is wide enough.

They are classes of a module, so that other processes find them.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from occupax.algorithms import Algorithm, AlgorithmState, Phase


class StormState(AlgorithmState):
    """State of STORM: previous policy and the last two quasi-rewards."""

    previous: Any
    quasi_reward: Any
    previous_quasi_reward: Any


class Storm(Algorithm[StormState]):
    """One large batch, then small ones. The state has constant size.

    d_t = g(theta_t, r_{t-1}) + (1 - h)(d_{t-1} - g_w(theta_{t-1}, r_{t-2})), and u_t likewise.

    Args:
        first_batch: trajectories of the first iteration (N).
        batch: trajectories of each later one (B).
        fresh: the share of the new estimate (h).
        step_size, radius, rule, baseline, output: see `Algorithm`.
    """

    first_batch: int = eqx.field(static=True, default=6)
    batch: int = eqx.field(static=True, default=4)
    fresh: float = 0.3

    @property
    def phases(self):
        return Phase(self.first_batch, self._begin), Phase(self.batch, self._go_on)

    def phase(self, iteration):
        return int(iteration > 0)

    def init(self, problem, policy):
        zero = jnp.zeros(problem.size)
        gradient = jax.tree.map(jnp.zeros_like, eqx.filter(policy, eqx.is_inexact_array))
        return StormState(policy, zero, gradient, self.step().init(policy), policy, zero, zero)

    def _begin(self, state, batch, key):
        u = batch.occupancy()
        r = batch.quasi_reward(u)
        d = batch.gradient(None, r, self.baseline)
        policy, memory = self.step()(state.policy, d, state.memory, batch)
        return StormState(policy, u, d, memory, state.policy, r, r)

    def _go_on(self, state, batch, key):
        u, d = self._estimates(state, batch, self._current(state), state.previous)
        policy, memory = self.step()(state.policy, d, state.memory, batch)
        return StormState(
            policy, u, d, memory, state.policy, batch.quasi_reward(u), state.quasi_reward
        )

    def _current(self, state):
        """None, because the policy of the state is the behaviour policy."""

    def _estimates(self, state, batch, now, then):
        kept = 1 - self.fresh
        u = batch.occupancy(now) + kept * (state.occupancy - batch.occupancy(then))
        new = batch.gradient(now, state.quasi_reward, self.baseline)
        old = batch.gradient(then, state.previous_quasi_reward, self.baseline)
        return u, jax.tree.map(
            lambda new, last, old: new + kept * (last - old), new, state.gradient, old
        )


class Coin(Storm):
    """PAGE: a large batch with probability B / (N + B), otherwise the recursive estimate.

    Args:
        coin: the seed of the coin.
        first_batch: trajectories of a large batch (N); the first iteration has one.
        batch: trajectories of a small one (B).
        step_size, radius, rule, baseline, output: see `Algorithm`.
    """

    fresh: float = 0.0
    coin: int = 2

    def phase(self, iteration):
        return int(self.phases_of(iteration, 1)[0])

    def phases_of(self, first, count):
        iterations = jnp.arange(first, first + count)
        keys = jax.vmap(lambda iteration: jax.random.fold_in(jax.random.key(self.coin), iteration))(
            iterations
        )
        is_large = jax.vmap(
            lambda key: jax.random.bernoulli(key, self.batch / (self.first_batch + self.batch))
        )(keys)
        return np.asarray(jnp.where(is_large | (iterations == 0), 0, 1))


class Between(Storm):
    """STORM whose small batches come from an interpolation of the last two policies."""

    @property
    def phases(self):
        return Phase(self.first_batch, self._begin), Phase(
            self.batch, self._go_on, self._point_between
        )

    def _current(self, state):
        return state.policy

    def _point_between(self, state, key):
        q = jax.random.uniform(key)
        return jax.tree.map(
            lambda now, then: q * now + (1 - q) * then if eqx.is_inexact_array(now) else now,
            state.policy,
            state.previous,
        )


class Twice(Algorithm[AlgorithmState]):
    """Extragradient: gradient at a look-ahead point, on the same trajectories.

    Args:
        batch: trajectories of an iteration.
        step_size, radius, rule, baseline, output: see `Algorithm`.
    """

    batch: int = 6

    @property
    def phases(self):
        return (Phase(self.batch, self._update),)

    def init(self, problem, policy):
        gradient = jax.tree.map(jnp.zeros_like, eqx.filter(policy, eqx.is_inexact_array))
        return AlgorithmState(policy, jnp.zeros(problem.size), gradient, self.step().init(policy))

    def _update(self, state, batch, key):
        g = batch.gradient(None, batch.quasi_reward(batch.occupancy()), self.baseline)
        ahead, _ = self.step()(state.policy, g, state.memory, batch)
        u = batch.occupancy(ahead)
        g = batch.gradient(ahead, batch.quasi_reward(u), self.baseline)
        policy, memory = self.step()(state.policy, g, state.memory, batch)
        return AlgorithmState(policy, u, g, memory)


class TurnsState(AlgorithmState):
    """State of `Turns`: trajectories sampled by each phase."""

    drawn: Any


class Turns(Algorithm[TurnsState]):
    """Ascent along fresh estimates from batches of alternating sizes, with metrics of its own.

    Args:
        sizes: trajectories of each phase.
        step_size, radius, rule, baseline, output: see `Algorithm`.
    """

    sizes: tuple[int, ...] = eqx.field(static=True, default=(10, 4, 20))

    @property
    def phases(self):
        return tuple(Phase(size, self._update(place)) for place, size in enumerate(self.sizes))

    def phase(self, iteration):
        return iteration % len(self.sizes)

    def init(self, problem, policy):
        gradient = jax.tree.map(jnp.zeros_like, eqx.filter(policy, eqx.is_inexact_array))
        drawn = jnp.zeros(len(self.sizes))
        return TurnsState(
            policy, jnp.zeros(problem.size), gradient, self.step().init(policy), drawn
        )

    def metrics(self, state):
        return {"drawn": state.drawn.sum(), "drawn_last": state.drawn[-1]}

    def _update(self, place):
        def update(state, batch, key):
            u = batch.occupancy()
            g = batch.gradient(None, batch.quasi_reward(u), self.baseline)
            policy, memory = self.step()(state.policy, g, state.memory, batch)
            return TurnsState(policy, u, g, memory, state.drawn.at[place].add(self.sizes[place]))

        return update
