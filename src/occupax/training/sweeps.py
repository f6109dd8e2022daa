"""Execution of sweeps: in one program, or as trials on a cluster."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from occupax.algorithms import Budget
from occupax.io.codec import Arrays, named_arrays, with_arrays_of
from occupax.io.results import SUMMARY, read_outcome, write_outcome, write_records
from occupax.io.run_folder import check_same_run
from occupax.outcome import Outcome
from occupax.progress import ProgressBar
from occupax.samplers import EpisodeError, Host, Ray, choose_sampler
from occupax.samplers.cluster import LOSSES, Cluster, Package
from occupax.samplers.kernel import program_sampler
from occupax.samplers.messages import with_function_names, with_functions
from occupax.training.budgets import check_budget
from occupax.training.grid import Group
from occupax.training.loop import run
from occupax.training.outcomes import add_spaces, budget_of, setup_config
from occupax.training.setup import Setup

RESUME_HINT = "repeat the sweep with resume=True (on the command line: --resume)"


def run_groups(
    groups: Sequence[Group], budget: Budget, out: Path | None, resume: bool, progress: bool
) -> dict[int, Outcome]:
    """Return the outcome of each point by its number. The points of a group are one program."""
    outcomes: dict[int, Outcome] = {}
    for number, group in enumerate(groups):
        folder = None
        if out is not None:
            folder = out / "groups" / str(number)
        trained = run(group.setup, budget, (), folder, resume, progress, resume_hint=RESUME_HINT)
        outcomes |= zip(group.numbers, trained, strict=True)
    return outcomes


def run_trials(
    setups: Mapping[int, Setup],
    sampler: Ray,
    budget: Budget,
    out: Path | None,
    resume: bool,
    progress: bool,
) -> dict[int, Outcome]:
    """Run set-ups of one algorithm each, except those with a saved outcome in `out`."""
    outcomes: dict[int, Outcome] = {}
    missing: dict[int, Setup] = {}
    for number, setup in sorted(setups.items()):
        saved = None
        if out is not None:
            saved = _saved_outcome(_trial_folder(out, number), setup, budget, resume)
        if saved is None:
            missing[number] = setup
        else:
            outcomes[number] = saved
    with ProgressBar(len(setups), "trials", len(outcomes), progress) as bar:
        for number, outcome in _run_tasks(missing, sampler, budget):
            outcomes[number] = outcome
            if out is not None:
                folder = _trial_folder(out, number)
                write_records(outcome, folder)
                write_outcome(outcome, folder)
            bar.update(len(outcomes), f"{len(outcomes)} of {len(setups)} trials")
    return outcomes


def _trial_folder(out: Path, number: int) -> Path:
    return out / f"point-{number}"


def _saved_outcome(folder: Path, setup: Setup, budget: Budget, resume: bool) -> Outcome | None:
    """Return the saved outcome of a trial, or None if it is missing or shorter."""
    config, arrays = setup_config(setup, budget)
    check_same_run(folder, config, arrays, resume)
    if not (folder / SUMMARY).exists():
        return None
    saved = read_outcome(folder, setup.problem, setup.policies[0])
    before = budget_of(saved.config)
    sampled = before.episodes or int(saved.episodes[-1])
    check_budget(budget, sampled, saved.steps[:, -1], before, folder)
    if before != budget:
        return None
    return replace(saved, algorithm=setup.algorithms[0])


def _run_tasks(
    setups: Mapping[int, Setup], sampler: Ray, budget: Budget
) -> Iterator[tuple[int, Outcome]]:
    """Yield the outcomes of set-ups with their numbers, in the order in which they finish."""
    if not setups:
        return
    cluster = Cluster(sampler.address, sampler.workers)
    from ray.exceptions import RayTaskError

    numbers: dict[Any, int] = {}
    errors: list[str] = []
    try:
        trial = cluster.ray.remote(num_cpus=1, max_retries=LOSSES, scheduling_strategy="SPREAD")(
            _run_trial
        )
        double = bool(jax.config.read("jax_enable_x64"))
        for number, setup in setups.items():
            package = cluster.send(_portable(setup, sampler), budget, double)
            numbers[trial.remote(package)] = number
        while numbers:
            finished, _ = cluster.ray.wait(list(numbers), num_returns=1)
            for task in finished:
                number = numbers.pop(task)
                try:
                    outcome, policies = cluster.ray.get(task)
                except RayTaskError as error:
                    errors.append(f"point {number}: {error.cause}")
                else:
                    yield number, _complete(outcome, policies, setups[number], budget)
        if errors:
            raise EpisodeError(" ".join(errors))
    finally:
        for task in numbers:
            cluster.ray.cancel(task, force=True)
        cluster.close()


def _portable(setup: Setup, sampler: Ray) -> Setup:
    """Return a set-up that can be sent, with the sampler that it would have without a cluster."""
    policy = setup.policies[0]
    if isinstance(choose_sampler("auto", setup.problem, policy), Host):
        local: Any = sampler.host
    else:
        local = program_sampler(setup.problem, policy, sampler.engine)
    policies = tuple(map(with_function_names, setup.policies))
    return replace(setup, policies=policies, sampler=local)


def _run_trial(package: Package) -> tuple[Outcome, list[Arrays]]:
    """Return the part of an outcome that the driver lacks, and the arrays of the policies."""
    setup, budget, double = package.open()
    with jax.enable_x64(double):
        setup = replace(setup, policies=tuple(map(with_functions, setup.policies)))
        try:
            outcome = run(setup, budget, progress=False)[0]
        except EpisodeError as error:
            raise error.__cause__ or error from None  # without the budget, which the driver knows
        policies = [named_arrays(policy) for policy in outcome.policies]
        sent = replace(
            outcome,
            problem=None,
            algorithm=None,
            policies=(),
            config={},
            arrays={},
            initial_policy=None,
        )
        return sent, policies


def _complete(outcome: Outcome, policies: list[Arrays], setup: Setup, budget: Budget) -> Outcome:
    """Return an outcome with the parts that were not sent."""
    config, arrays = setup_config(setup, budget)
    trained = map(with_arrays_of, setup.policies, policies)
    return replace(
        outcome,
        problem=setup.problem,
        algorithm=setup.algorithms[0],
        policies=add_spaces(setup.problem, list(trained)),
        config=config,
        arrays=arrays,
        initial_policy=setup.policies[0],
    )
