"""Outcomes of the runs of a setup."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from occupax.algorithms import Budget
from occupax.io.codec import Arrays
from occupax.io.records import RecordTable
from occupax.io.run_folder import make_config
from occupax.outcome import Outcome
from occupax.policies import Policy, with_spaces
from occupax.problem import Problem
from occupax.training.setup import Setup


def setup_config(setup: Setup, budget: Budget) -> tuple[dict[str, Any], Arrays]:
    """Return the configuration of a setup as JSON and arrays."""
    description, arrays = setup.description()
    return make_config(description, arrays, budget._asdict())


def budget_of(config: dict[str, Any]) -> Budget:
    """Return the budget of a configuration."""
    return Budget(config.get("episodes"), config.get("steps"))


def make_outcomes(
    setup: Setup,
    budget: Budget,
    table: RecordTable,
    policies: Sequence[Policy],
    models: Sequence[Any],
    status: Sequence[str],
    seconds: float,
) -> list[Outcome]:
    """Return one outcome for each algorithm of a setup. Sequences have one entry for each run."""
    trained = add_spaces(setup.problem, policies)
    outcomes: list[Outcome] = []
    for i, algorithm in enumerate(setup.algorithms):
        runs = slice(i * len(setup.seeds), (i + 1) * len(setup.seeds))
        config, arrays = setup_config(replace(setup, algorithms=(algorithm,)), budget)
        outcome = Outcome(
            problem=setup.problem,
            algorithm=algorithm,
            seeds=setup.seeds,
            episodes=table.episodes,
            steps=table.steps[runs],
            metrics={name: values[runs] for name, values in table.metrics.items()},
            policies=trained[runs],
            status=tuple(status[runs]),
            seconds=seconds,
            config=config,
            arrays=arrays,
            initial_policy=setup.policies[0],
            models=tuple(models[runs]),
        )
        outcomes.append(outcome)
    return outcomes


def add_spaces(problem: Problem, policies: Sequence[Policy]) -> tuple[Policy, ...]:
    """Return policies whose `predict` uses the spaces of the environment of a problem."""
    from occupax.envs.spaces import describe_spaces  # Gymnasium would slow down `import occupax`

    try:
        spaces = describe_spaces(problem.env)
    except Exception:  # noqa: BLE001 - several arrays as observation, or a simulator that fails
        return tuple(policies)
    return tuple(with_spaces(policy, spaces) for policy in policies)
