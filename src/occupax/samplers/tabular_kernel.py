"""Trajectories of tables, drawn by the compiled kernel."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from occupax import kernels
from occupax.batches.tabular import Events, TabularBatch, probs_of, table_of
from occupax.policies import Policy
from occupax.problem import Problem
from occupax.samplers.base import Number, ProgramSource


class TabularKernelSource(ProgramSource):
    """Draws trajectories of a tabular problem under tabular policies, step by step, and stops where they end."""

    problem: Problem
    block_steps = 4_000_000
    table: Events

    def __init__(self, problem: Problem):
        """Look up the features of everything that can happen."""
        self.problem = problem
        self.table = Events(problem)

    def block(
        self, policy: Policy, key: Key[Array, ""], first: Number, stop: Number, n: int
    ) -> TabularBatch:
        """Trajectories number `first` to `first + n`; those from number `stop` on are empty."""
        env = table_of(self.problem)
        probs = probs_of(policy)
        horizon = self.problem.sampling_horizon()
        successors = jnp.asarray(self.table.successors)
        thresholds = jnp.asarray(self.table.thresholds, probs.dtype)
        initial = jnp.asarray(env.initial_thresholds, probs.dtype)
        numbers = jnp.stack([jnp.asarray(first, jnp.int32), jnp.asarray(stop, jnp.int32)])
        operands = (
            successors,
            thresholds,
            initial,
            jnp.asarray(env.terminal),
            probs,
            jax.random.key_data(key)[:2],
        )
        sizes = [jax.ShapeDtypeStruct((length,), jnp.int32) for length in (n * horizon, n, n)]
        settings = {"horizon": horizon, "shift": self.table.shift}
        drawn = kernels.call("tabular_sample", probs.dtype, sizes, *operands, numbers, **settings)
        return TabularBatch(self.problem, self.table, policy, probs, *drawn, start=0, stop=n)
