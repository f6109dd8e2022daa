"""Set-up of training runs: problem, algorithms, seeds and initial policies, checked."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from occupax.algorithms import ALGORITHMS, PPO, REINFORCE, Algorithm, Budget, PlugIn
from occupax.envs.base import DecisionProcess, observation_spec
from occupax.envs.tabular import TabularMDP
from occupax.errors import check_integer, check_integers, named
from occupax.io import codec
from occupax.outcome import Outcome
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

MAX_PLANNED_STATES = 128
"""Largest table that PlugIn trains by default. Planning takes longer than sampling beyond it."""
MAX_SEEDS = 2**20

AlgorithmSource = Algorithm[Any] | str | None
PolicySource = Policy | Callable[[Any, Any], Policy] | Outcome | str | None


class RunSetup(NamedTuple):
    """Algorithm, seed and initial policy of one run."""

    algorithm: Algorithm[Any]
    seed: int
    policy: Policy


@dataclass(frozen=True)
class Setup:
    """Set-up of runs: every seed with every algorithm. The algorithms differ in numbers only."""

    problem: Problem
    algorithms: tuple[Algorithm[Any], ...]
    seeds: tuple[int, ...]
    seed: int
    policies: tuple[Policy, ...]
    """Initial policy of each seed."""
    record_every: int
    exact: bool
    sampler: Sampler
    """Sampler, whose random numbers decide the results. Other samplers change rounding only."""

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
        """Schedule that all algorithms have in common."""
        return Schedule(self.algorithms[0])

    def for_budget(self, budget: Budget) -> "Setup":
        """Return the set-up whose algorithms know the budget.

        The algorithms of the description do not, so that a run can be resumed with a larger budget.
        """
        algorithms = [algorithm.for_budget(budget) for algorithm in self.algorithms]
        return replace(self, algorithms=tuple(algorithms))

    def iterations(self, budget: Budget) -> int | None:
        """Return the number of iterations of a budget, at least 1.

        It is None for a budget in steps, because the length of episodes is not known beforehand.
        """
        if budget.episodes is None:
            return None
        iterations = self.schedule.iterations(budget.episodes)
        if iterations == 0:
            first = self.schedule.episodes(1)
            raise ValueError(
                f"episodes must be at least {first}, the size of the first batch, "
                f"got {budget.episodes}."
            )
        return iterations

    def description(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return all that decides the results except the budget, as JSON and arrays."""
        algorithm: Any = list(self.algorithms)
        if len(self.algorithms) == 1:
            algorithm = self.algorithms[0]
        parts = {
            "problem": self.problem,
            "algorithm": algorithm,
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
        """Return the random key of the iterations of a run."""
        return jax.random.fold_in(_seed_key(self.seed, seed), 1)


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
    """Return a set-up with checked arguments, before anything is compiled.

    Args:
        problem: problem, environment or name of an environment.
        algorithms: algorithms that differ in numbers only. None is the default algorithm.
        policy: policy, initialiser, name of an initialiser, or None for the default.
        seeds: number of seeds, or the seeds.
        seed: number that all random keys depend on.
        record_every: number of iterations in a record.
        exact: whether records have exact values.
        sampler: sampler or its name.
    """
    problem = as_problem(problem)
    for algorithm in algorithms:
        if algorithm is not None:
            as_algorithm(algorithm)
    problem.sampling_horizon()
    if exact and not isinstance(problem.env, TabularMDP):
        raise ValueError(
            f"exact must be False for {type(problem.env).__name__}, because exact values need a "
            "tabular environment, got True."
        )
    seed = check_integer("seed", seed, minimum=0, maximum=2**63)
    run_seeds = _read_seeds(seeds)
    largest = max(seed, *run_seeds)
    if largest >= 2**32:
        raise ValueError(f"seed and seeds must be below 2**32, got {largest}.")
    policies = tuple(initial_policy(problem, policy, seed, run_seed) for run_seed in run_seeds)
    _check_policies(policies, problem.env)
    resolved: list[Algorithm[Any]] = []
    for algorithm in algorithms:
        chosen = algorithm
        if chosen is None:
            chosen = default_algorithm(problem, policies[0])
        resolved.append(chosen.resolve(problem, policies[0]))
    return Setup(
        problem=problem,
        algorithms=tuple(resolved),
        seeds=run_seeds,
        seed=seed,
        policies=policies,
        record_every=check_integer("record_every", record_every),
        exact=exact,
        sampler=choose_sampler(sampler, problem, policies[0]),
    )


def default_algorithm(problem: Problem, policy: Policy) -> Algorithm[Any]:
    """Return the algorithm that trains by default. docs/bench.md has the comparison behind it.

    Planning in a learned model takes the fewest episodes for a small table. Elsewhere the
    observation may not be the state, and plans cannot follow the multipliers of constraints. A
    critic saves environment steps for networks, which share parameters between states.
    """
    has_arrays = hasattr(observation_spec(problem.env), "shape")  # as the critic needs them
    if type(policy) is not Tabular and has_arrays:
        return PPO()
    is_small = isinstance(problem.env, TabularMDP) and problem.env.num_states <= MAX_PLANNED_STATES
    if is_small and type(policy) is Tabular and not problem.constraints:
        return PlugIn()
    return REINFORCE()


def as_algorithm(algorithm: Any) -> Algorithm[Any]:
    """Return an algorithm, or the algorithm of a name."""
    if isinstance(algorithm, str):
        return named("algorithm", algorithm, ALGORITHMS)
    if not isinstance(algorithm, Algorithm):
        raise ValueError(
            "algorithm must be an occupax algorithm such as TSIVRPG(), or a name, "
            f"got {algorithm!r:.60}."
        )
    return algorithm


def policy_source(env: DecisionProcess, source: PolicySource) -> Policy | Initialiser:
    """Return the policy or the initialiser of a source. None is the default of the environment."""
    if source is None:
        source = default_policy(env)
    if isinstance(source, str):
        source = named("policy", source, INITIALISERS)
    if any(source is initialiser for initialiser in INITIALISERS.values()):
        raise ValueError(
            "policy must be an initialiser such as occupax.policies.mlp(), got a function that "
            "makes one. Call the function."
        )
    if not isinstance(source, Policy) and not callable(source):
        raise ValueError(
            "policy must be a policy, an initialiser such as occupax.policies.mlp(), or a name, "
            f"got {source!r:.60}."
        )
    return source


def first_policy(problem: Problem, source: PolicySource) -> Policy:
    """Return the initial policy of some seed, whose structure is that of all seeds."""
    run_seed = 0
    if isinstance(source, Outcome):
        run_seed = source.seeds[0]
    return initial_policy(problem, source, 0, run_seed)


def _trained_policy(outcome: Outcome, run_seed: int) -> Policy:
    """Return the policy of a seed of an earlier training run."""
    if run_seed not in outcome.seeds:
        known = ", ".join(map(str, outcome.seeds))
        raise ValueError(
            f"seeds must be among those of the result that is the policy, {known}, got {run_seed}. "
            "Pass seeds=result.seeds, or policy=result.best_policy for all seeds."
        )
    return outcome.policies[outcome.seeds.index(run_seed)]


def initial_policy(problem: Problem, source: PolicySource, seed: int, run_seed: int) -> Policy:
    """Return the initial policy of a run, without spaces because the result has its own."""
    if isinstance(source, Outcome):
        source = _trained_policy(source, run_seed)
    initial = policy_source(problem.env, source)
    if isinstance(initial, Policy):
        policy: Any = initial
    else:
        key = jax.random.fold_in(_seed_key(seed, run_seed), 0)
        policy = _call_initialiser(initial, problem.env, key)
    check_policy(policy)
    return with_spaces(jax.tree.map(_in_default_precision, policy), "")


def _seed_key(seed: int, run_seed: int) -> Any:
    return jax.random.fold_in(jax.random.key(seed), run_seed)


def _read_seeds(seeds: Any) -> tuple[int, ...]:
    if not isinstance(seeds, Iterable):
        return tuple(range(check_integer("seeds", seeds, maximum=MAX_SEEDS)))
    run_seeds = check_integers("seeds", seeds, minimum=0, maximum=2**63)
    if not run_seeds or len(set(run_seeds)) != len(run_seeds):
        raise ValueError(f"seeds must be an integer or a list of distinct integers, got {seeds!r}.")
    return run_seeds


def _check_policies(policies: Sequence[Policy], env: DecisionProcess) -> None:
    """Raise ValueError for a policy that does not fit the environment, once for each structure."""
    checked: set[Any] = set()
    for policy in policies:
        leaves, structure = jax.tree.flatten(policy)
        shapes = tuple(getattr(leaf, "shape", None) for leaf in leaves)
        if (structure, shapes) not in checked:
            check_policy_fits(policy, env)
            checked.add((structure, shapes))


def _call_initialiser(
    initialiser: Callable[[Any, Any], Any], env: DecisionProcess, key: Any
) -> Any:
    """Return the policy of an initialiser, or raise ValueError for other functions."""
    try:
        return initialiser(env, key)
    except Exception:
        if network_library(initialiser) is not None or not _takes_two(initialiser):
            check_policy(initialiser)
        raise


def _takes_two(function: Callable[..., Any]) -> bool:
    """Return whether a function takes two arguments, True for a compiled one without signature."""
    try:
        inspect.signature(function).bind(None, None)
    except ValueError:
        return True
    except TypeError:
        return False
    return True


def _in_default_precision(leaf: Any) -> Any:
    """Return parameters as JAX arrays in the precision of all other computations."""
    is_array = isinstance(leaf, np.ndarray | jax.Array)
    if not is_array or not jnp.issubdtype(leaf.dtype, jnp.inexact):
        return leaf
    return jnp.asarray(leaf, jnp.result_type(float))
