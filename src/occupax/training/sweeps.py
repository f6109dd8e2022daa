"""Execution of sweeps: in one program, or as trials on a cluster."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from occupax.io.codec import Arrays, named_arrays, with_arrays_of
from occupax.io.results import SUMMARY, read_outcome, write_outcome, write_records
from occupax.io.run_folder import check_same_run
from occupax.outcome import Outcome
from occupax.progress import ProgressBar
from occupax.samplers import EpisodeError, Host, Ray, choose_sampler
from occupax.samplers.cluster import LOSSES, Cluster, Package
from occupax.samplers.kernel import program_sampler
from occupax.samplers.messages import with_function_names, with_functions
from occupax.training.grid import Group
from occupax.training.loop import run
from occupax.training.outcomes import add_spaces, setup_config
from occupax.training.setup import Setup

RESUME_HINT = "repeat the sweep with resume=True (on the command line: --resume)"


def run_groups(
    groups: list[Group], episodes: int, out: Path | None, resume: bool, progress: bool
) -> dict[int, Outcome]:
    """The result of each point, by its number; the points of a group are one program."""
    results: dict[int, Outcome] = {}
    for number, group in enumerate(groups):
        folder = None if out is None else out / "groups" / str(number)
        trained = run(group.setup, episodes, (), folder, resume, progress, resume_hint=RESUME_HINT)
        results |= dict(zip(group.numbers, trained, strict=True))
    return results


def run_trials(
    setups: Mapping[int, Setup],
    sampler: Ray,
    episodes: int,
    out: Path | None,
    resume: bool,
    progress: bool,
) -> dict[int, Outcome]:
    """Run set-ups of one algorithm each, except those with a saved outcome in `out`."""
    results: dict[int, Outcome] = {}
    for i, setup in sorted(setups.items()):
        if out is not None:
            folder = out / f"point-{i}"
            check_same_run(folder, *setup_config(setup, episodes), resume)
            if (folder / SUMMARY).exists():
                saved = read_outcome(folder, setup.problem, setup.policies[0])
                has = saved.config["episodes"]
                if has > episodes:
                    raise ValueError(
                        f"episodes is {episodes:,}, but the run in {folder} has {has:,} already."
                    )
                if has == episodes:
                    results[i] = replace(saved, algorithm=setup.algorithms[0])
    left = {i: setup for i, setup in setups.items() if i not in results}
    with ProgressBar(len(setups), "trials", len(results), progress) as bar:
        for i, result in _run_tasks(left, sampler, episodes):
            results[i] = result
            if out is not None:
                folder = out / f"point-{i}"
                write_records(result, folder)
                write_outcome(result, folder)
            bar.update(len(results), f"{len(results)} of {len(setups)} trials")
    return results


def _run_tasks(
    setups: dict[int, Setup], sampler: Ray, episodes: int
) -> Iterator[tuple[int, Outcome]]:
    """The results of set-ups with their numbers, in the order in which they end."""
    if not setups:
        return
    cluster = Cluster(sampler.address, sampler.workers)
    from ray.exceptions import RayTaskError

    under_way: dict[Any, int] = {}
    try:
        trial = cluster.ray.remote(num_cpus=1, max_retries=LOSSES, scheduling_strategy="SPREAD")(
            _trial
        )
        double = bool(jax.config.read("jax_enable_x64"))
        for i, setup in setups.items():
            under_way[trial.remote(cluster.send(_to_send(setup, sampler), episodes, double))] = i
        failed: list[str] = []
        while under_way:
            for done in cluster.ray.wait(list(under_way), num_returns=1)[0]:
                i = under_way.pop(done)
                try:
                    result, policies = cluster.ray.get(done)
                except RayTaskError as error:
                    failed.append(f"point {i}: {error.cause}")
                    continue
                yield i, _received(result, policies, setups[i], episodes)
        if failed:
            raise EpisodeError(" ".join(failed))
    finally:
        for task in under_way:
            cluster.ray.cancel(task, force=True)
        cluster.close()


def _to_send(setup: Setup, sampler: Ray) -> Setup:
    """A set-up that can be sent, and that a worker samples as it would without a cluster."""
    given = setup.problem, setup.policies[0]
    on_host = isinstance(choose_sampler("auto", *given), Host)
    alone = sampler.host if on_host else program_sampler(*given, sampler.engine)
    return replace(setup, policies=tuple(map(with_function_names, setup.policies)), sampler=alone)


def _trial(package: Package) -> tuple[Outcome, list[Arrays]]:
    """Run a set-up that was sent; send back what the other side does not have."""
    setup, episodes, double = package.open()
    with jax.enable_x64(double):
        setup = replace(setup, policies=tuple(map(with_functions, setup.policies)))
        try:
            result = run(setup, episodes, progress=False)[0]
        except EpisodeError as error:
            raise error.__cause__ or error from None  # how far it came is known over there
        bare = replace(
            result,
            problem=None,
            algorithm=None,
            policies=(),
            config={},
            arrays={},
            initial_policy=None,
        )
        return bare, [named_arrays(policy) for policy in result.policies]


def _received(result: Outcome, policies: list[Arrays], setup: Setup, episodes: int) -> Outcome:
    config, arrays = setup_config(setup, episodes)
    trained = [
        with_arrays_of(first, sent) for first, sent in zip(setup.policies, policies, strict=True)
    ]
    return replace(
        result,
        problem=setup.problem,
        algorithm=setup.algorithms[0],
        policies=add_spaces(setup.problem, trained),
        config=config,
        arrays=arrays,
        initial_policy=setup.policies[0],
    )
