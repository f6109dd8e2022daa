"""Sampling by the compiled kernels for tables and networks, in C++."""

import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, Shaped

from occupax import kernels
from occupax.batches.network import NetworkScorer, Sizes, head_of, network_of, outputs_of, rows_of
from occupax.batches.sampled import SampledBatch
from occupax.batches.tabular import Events, TabularBatch, probs_of, table_of
from occupax.envs.tabular import TabularMDP
from occupax.errors import OccupaxWarning, unknown
from occupax.policies import Policy, Softmax, Tabular, dense_layers
from occupax.problem import Problem
from occupax.samplers.base import Sampler
from occupax.samplers.program import Number, ProgramSource
from occupax.samplers.rollout import Actions, Jax, ObservationBuffer, StepKeys, rollout
from occupax.trajectories import Trajectories

Engine = Literal["auto", "kernel", "jax"]
"""Engine inside a program: the kernels, JAX, or the kernels where they can be used."""


@dataclass(frozen=True)
class Kernel(Sampler):
    """Sampling with the compiled kernels inside the compiled program, on the CPU.

    There is a kernel for tabular environments with tabular policies, and one for networks of tanh
    layers on vectors.
    """

    def open(self, problem: Problem, policy: Policy) -> ProgramSource:
        """Open a source.

        Raises:
            ValueError: if the kernels cannot be used.
        """
        reason = _unfit(problem, policy) or kernels.missing()
        if reason:
            raise ValueError(f"the compiled kernel cannot be used: {reason}.")
        if _is_table(problem, policy):
            return TabularKernelSource(problem)
        return NetworkKernelSource(problem)

    def random_numbers(self, problem: Problem, policy: Policy) -> str:
        """Return the name of the random numbers of the kernels, counted by trajectory and step."""
        return "kernel"


def program_sampler(problem: Problem, policy: Policy, engine: Engine = "auto") -> Jax | Kernel:
    """Return the sampler of an engine. "auto" is the kernel where it can be used."""
    if engine not in get_args(Engine):
        raise unknown("engine", engine, get_args(Engine))
    if engine == "kernel":
        Kernel().open(problem, policy)
        return Kernel()
    if engine == "jax" or _unfit(problem, policy):
        return Jax()
    reason = kernels.missing()
    if reason:
        message = f"the compiled kernel is not used, and plain JAX is slower: {reason}."
        warnings.warn(message, OccupaxWarning, stacklevel=2)
        return Jax()
    return Kernel()


def _unfit(problem: Problem, policy: Policy) -> str:
    """Return the reason why the kernels do not support a problem. Empty if they do."""
    if jax.default_backend() != "cpu":
        return "it runs on the CPU only"
    if _is_table(problem, policy) or dense_layers(policy) is not None:
        return ""
    return (
        "it is for tabular environments with tabular policies and for networks of tanh layers fed "
        f"with vectors, got {type(problem.env).__name__} and {type(policy).__name__}"
    )


def _is_table(problem: Problem, policy: Policy) -> bool:
    return isinstance(problem.env, TabularMDP) and type(policy) is Tabular


class TabularKernelSource(ProgramSource):
    """A source of trajectories of a tabular problem under tabular policies."""

    problem: Problem
    block_steps = 4_000_000
    table: Events

    def __init__(self, problem: Problem):
        """Compute the features of all events."""
        self.problem = problem
        self.table = Events(problem)

    def block(
        self, policy: Policy, key: Key[Array, ""], first: Number, stop: Number, n: int
    ) -> TabularBatch:
        """Draw trajectories number `first` to `first + n`. Empty ones from number `stop` on."""
        env = table_of(self.problem)
        probs = probs_of(policy)
        dtype = probs.dtype
        horizon = self.problem.sampling_horizon()
        operands = (
            jnp.asarray(self.table.successors),
            jnp.asarray(self.table.thresholds, dtype),
            jnp.asarray(env.initial_thresholds, dtype),
            jnp.asarray(env.terminal),
            probs,
            jax.random.key_data(key)[:2],
            jnp.stack([jnp.asarray(first, jnp.int32), jnp.asarray(stop, jnp.int32)]),
        )
        outputs = [jax.ShapeDtypeStruct((size,), jnp.int32) for size in (n * horizon, n, n)]
        settings = {"horizon": horizon, "shift": self.table.shift}
        sampled = kernels.call("tabular_sample", dtype, outputs, *operands, **settings)
        return TabularBatch(self.problem, self.table, policy, probs, *sampled, start=0, stop=n)


LIVE_ONLY = ObservationBuffer(kernels.empty_buffer, kernels.write_step)
"""Buffer that stores the observations of live steps only and touches no other memory."""


class NetworkKernelSource(ProgramSource):
    """A source of trajectories of any JAX environment under policies that are networks.

    For a softmax, the kernel draws the actions. For all other policies, the kernel computes the
    outputs of the network, and JAX draws the actions. The network is evaluated for live steps only.
    """

    problem: Problem
    block_steps = 200_000

    def block(
        self, policy: Policy, key: Key[Array, ""], first: Number, stop: Number, n: int
    ) -> SampledBatch:
        """Draw trajectories number `first` to `first + n`. Empty ones from number `stop` on."""
        numbers = jnp.asarray(first + jnp.arange(n), jnp.int32)
        exists = numbers < stop
        parameters, sizes = network_of(policy)
        if isinstance(policy, Softmax):
            select = eqx.Partial(_select_softmax_actions, parameters, sizes)
        else:
            select = eqx.Partial(_select_actions, head_of(policy), parameters, sizes)
        space = policy.action_space
        sampled = rollout(self.problem, space, select, numbers, exists, key, LIVE_ONLY)
        scorer = NetworkScorer(sampled.observations)
        return SampledBatch(self.problem, _with_final_observations(sampled), policy, scorer)


def _select_softmax_actions(
    parameters: Float[Array, " P"], sizes: Sizes, observations: Any, step_keys: StepKeys
) -> Actions:
    """Draw by inversion, with one random number for each (key, trajectory, t)."""
    live = step_keys.live
    operands = (
        parameters,
        rows_of(observations, 1, parameters.dtype),
        live,
        jax.random.key_data(step_keys.key)[:2],
        step_keys.numbers,
        step_keys.t,
    )
    outputs = [jax.ShapeDtypeStruct(live.shape, dtype) for dtype in (jnp.int32, parameters.dtype)]
    actions, log_probs = kernels.call(
        "network_act", parameters.dtype, outputs, *operands, sizes=np.array(sizes)
    )
    return actions, actions, log_probs


def _select_actions(
    head: Policy,
    parameters: Float[Array, " P"],
    sizes: Sizes,
    observations: Any,
    step_keys: StepKeys,
) -> Actions:
    """Draw as the policy does, from the outputs of the network."""
    rows = rows_of(observations, 1, parameters.dtype)[:, None]
    outputs: Any = outputs_of(sizes, parameters, rows, step_keys.live.astype(jnp.int32))
    return jax.vmap(head.draw_with_action)(outputs[:, 0], step_keys.keys)


def _with_final_observations(trajectories: Trajectories) -> Trajectories:
    """Return the trajectories with the final observation at all steps that are not live."""

    def fill(rows: Shaped[Array, "B H *shape"], end: Shaped[Array, "B *shape"]) -> Array:
        live = jnp.expand_dims(trajectories.live, range(2, rows.ndim))
        return jnp.where(live, rows, end[:, None])

    observations = trajectories.observations
    observations = jax.tree.map(fill, observations, trajectories.final_observations)
    return replace(trajectories, observations=observations)
