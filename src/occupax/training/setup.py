"""What is to be trained: problem, hyper-parameters, seeds and first policies, checked."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from occupax.algorithms import ALGORITHMS, REINFORCE, Algorithm, PlugIn
from occupax.baselines import can_be_fitted
from occupax.envs.base import DecisionProcess
from occupax.envs.tabular import TabularMDP
from occupax.errors import check_integer, check_integers, named
from occupax.io import codec
from occupax.policies import (
    INITIALISERS,
    Initialiser,
    Policy,
    Tabular,
    check_policy,
    check_policy_fits,
    default_policy,
    with_spaces,
)
from occupax.policies.base import network_library
from occupax.problem import Problem, ProblemSource, as_problem
from occupax.samplers import Sampler, choose_sampler
from occupax.training.schedule import Schedule

PLANNED_STATES = 128
"""Up to how many states a table is planned by default; beyond, planning takes longer than
sampling."""
AlgorithmSource = Algorithm[Any] | str | None
MOST_SEEDS = 2**20
PolicySource = Policy | Callable[[Any, Any], Policy] | str | None


class RunSetup(NamedTuple):
    """Algorithm, seed and initial policy of one run."""

    algorithm: Algorithm[Any]
    seed: int
    policy: Policy


@dataclass(frozen=True)
class Setup:
    """A set of runs: every algorithm of `algorithms`, which differ in numbers only, with every seed."""

    problem: Problem
    algorithms: tuple[Algorithm[Any], ...]
    seeds: tuple[int, ...]
    seed: int
    policies: tuple[Policy, ...]
    """The first policy of each seed."""
    record_every: int
    exact: bool
    sampler: Sampler
    """How trajectories are sampled; its random numbers decide the results, all else but for
    rounding does not."""

    @property
    def runs(self) -> list[RunSetup]:
        """Runs of all seeds with the first algorithm, then with the second, and so on."""
        runs: list[RunSetup] = []
        for algorithm in self.algorithms:
            for seed, policy in zip(self.seeds, self.policies, strict=True):
                runs.append(RunSetup(algorithm, seed, policy))
        return runs

    @cached_property
    def schedule(self) -> Schedule:
        """The phases of the algorithms, which are the same for all of them."""
        return Schedule(self.algorithms[0])

    def description(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """All that decides the results, but for the number of episodes, as JSON and arrays."""
        parts = {
            "problem": self.problem,
            "algorithm": self.algorithms[0] if len(self.algorithms) == 1 else list(self.algorithms),
            "policy": self.policies[0],
            "seeds": list(self.seeds),
            "seed": self.seed,
            "record_every": self.record_every,
            "exact": self.exact,
            "random_numbers": self.sampler.random_numbers(self.problem, self.policies[0]),
        }
        description, arrays = codec.pack(parts)
        return description["dict"], arrays

    def key(self, seed: int) -> Any:
        """The key of all that one run draws."""
        return jax.random.fold_in(jax.random.fold_in(jax.random.key(self.seed), seed), 1)


def make_setup(
    problem: ProblemSource,
    algorithms: Sequence[Algorithm[Any] | None],
    policy: PolicySource,
    seeds: int | Iterable[int],
    seed: int,
    record_every: int,
    exact: bool,
    sampler: Sampler | str = "auto",
) -> Setup:
    """Check everything before anything is compiled."""
    problem = as_problem(problem)
    for algorithm in algorithms:
        if algorithm is not None:
            as_algorithm(algorithm)
    problem.sampling_horizon()
    if exact and not isinstance(problem.env, TabularMDP):
        raise ValueError(
            "exact=True needs a tabular environment: only there is the utility known exactly."
        )
    seed = check_integer("seed", seed, minimum=0, maximum=2**63)
    chosen = _read_seeds(seeds)
    if max(seed, *chosen) >= 2**32:
        raise ValueError(
            f"seed and seeds must be below 2**32, the numbers of a random key, got {max(seed, *chosen)}."
        )
    policies = tuple(first_policy(problem, policy, seed, number) for number in chosen)
    for distinct in {_form(first): first for first in reversed(policies)}.values():
        check_policy_fits(distinct, problem.env)
    return Setup(
        problem=problem,
        algorithms=tuple(_resolve(algorithm, problem, policies[0]) for algorithm in algorithms),
        seeds=chosen,
        seed=seed,
        policies=policies,
        record_every=check_integer("record_every", record_every),
        exact=exact,
        sampler=choose_sampler(sampler, problem, policies[0]),
    )


def default_algorithm(problem: Problem, policy: Policy) -> Algorithm[Any]:
    """What trains when no algorithm is given; docs/bench.md says how it was chosen.

    A small table is planned in a model that is learned, which takes the fewest episodes by far.
    Elsewhere what is observed may not be all of the state, and under constraints multipliers change
    with every batch, which plans do not. Where actions are real numbers and the goal is a return,
    the linear baseline is the better one (docs/actions.md).
    """
    small = isinstance(problem.env, TabularMDP) and problem.env.num_states <= PLANNED_STATES
    if small and type(policy) is Tabular and not problem.constraints:
        return PlugIn()
    is_return = problem.utility.linear and not problem.constraints
    real_actions = policy.action_space in ("box", "squashed")
    return REINFORCE(
        baseline="linear" if is_return and real_actions and can_be_fitted(problem) else "mean"
    )


def as_algorithm(algorithm: Any) -> Algorithm[Any]:
    """Return an algorithm as it is, make the one of a name, and refuse anything else."""
    if isinstance(algorithm, str):
        return named("algorithm", algorithm, ALGORITHMS)
    if not isinstance(algorithm, Algorithm):
        raise ValueError(
            f"algorithm must be an occupax algorithm such as TSIVRPG(), or a name, got {algorithm!r:.60}."
        )
    return algorithm


def given_episodes(episodes: int | None) -> int:
    """Return the number of episodes, which has no default."""
    if episodes is None:
        raise ValueError(
            "episodes must say how many trajectories each seed may sample, for example episodes=10_000."
        )
    return episodes


def _read_seeds(seeds: Any) -> tuple[int, ...]:
    if not isinstance(seeds, Iterable):
        return tuple(range(check_integer("seeds", seeds, maximum=MOST_SEEDS)))
    chosen = check_integers("seeds", seeds, minimum=0, maximum=2**63)
    if not chosen or len(set(chosen)) != len(chosen):
        raise ValueError(
            f"seeds must be a number of seeds or a list of different ones, got {seeds!r}."
        )
    return chosen


def source_of_policies(env: DecisionProcess, source: PolicySource) -> Policy | Initialiser:
    """Return the policy or the initialiser that a source stands for: a name, or None for the default."""
    if source is None:
        source = default_policy(env)
    if isinstance(source, str):
        source = named("policy", source, INITIALISERS)
    if any(source is initialiser for initialiser in INITIALISERS.values()):
        raise ValueError(
            "policy must be an initialiser that was called, such as occupax.policies.mlp()."
        )
    if not isinstance(source, Policy) and not callable(source):
        kinds = "a policy, an initialiser such as occupax.policies.mlp(), or a name"
        raise ValueError(f"policy must be {kinds}, got {source!r:.60}.")
    return source


def first_policy(problem: Problem, source: PolicySource, seed: int, number: int) -> Policy:
    """Return the initial policy of a run."""
    initial = source_of_policies(problem.env, source)
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), number), 0)
    policy = initial if isinstance(initial, Policy) else _initialised(initial, problem.env, key)
    check_policy(policy)
    return with_spaces(
        jax.tree.map(_in_default_precision, policy), ""
    )  # those of the result are the problem's


def _initialised(source: Callable[[Any, Any], Any], env: DecisionProcess, key: Any) -> Any:
    """Return what an initialiser returns; networks and functions of the observation are refused."""
    try:
        return source(env, key)
    except Exception:
        if network_library(source) is not None or not _takes_two(source):
            check_policy(source)
        raise


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(None, None)
    except ValueError:  # a compiled function has no signature
        return True
    except TypeError:
        return False
    return True


def _form(policy: Policy) -> tuple[Any, ...]:
    leaves, structure = jax.tree.flatten(policy)
    return structure, *(getattr(leaf, "shape", None) for leaf in leaves)


def _in_default_precision(leaf: Any) -> Any:
    """Parameters in the precision that everything else is computed in; NumPy's become JAX's."""
    is_array = isinstance(leaf, np.ndarray | jax.Array)
    return (
        jnp.asarray(leaf, jnp.result_type(float))
        if is_array and jnp.issubdtype(leaf.dtype, jnp.inexact)
        else leaf
    )


def _resolve(algorithm: Algorithm[Any] | None, problem: Problem, policy: Policy) -> Algorithm[Any]:
    """Return the algorithm, or the default one, with numbers for all hyperparameters."""
    if algorithm is None:
        algorithm = default_algorithm(problem, policy)
    return algorithm.resolve(problem, policy)
