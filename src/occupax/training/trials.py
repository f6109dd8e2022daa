"""Trials of a sweep on a cluster, one a task: one that loses its machine is begun again on another."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from occupax._progress import ProgressBar
from occupax.samplers import EpisodeError, Host, Ray, choose_sampler
from occupax.samplers.cluster import LOSSES, Cluster, Package, with_function_names, with_functions
from occupax.samplers.kernel import program_sampler
from occupax.serial import Arrays, named_arrays, with_arrays_of
from occupax.training.folder import make_config, refuse_another_run
from occupax.training.loop import run
from occupax.training.result import SUMMARY, Result, load_result
from occupax.training.setup import Setup


def run_trials(
    setups: Sequence[Setup], sampler: Ray, episodes: int, out: Path | None, resume: bool, progress: bool
) -> list[Result]:
    """Run set-ups of one algorithm each. Those that end are saved in `out` at once and, to resume, not run again."""
    folders = [None if out is None else out / f"point-{i}" for i in range(len(setups))]
    results: dict[int, Result] = {}
    for i, (setup, folder) in enumerate(zip(setups, folders, strict=True)):
        if folder is not None:
            refuse_another_run(folder, *make_config(setup, episodes), resume)
            if (folder / SUMMARY).exists():
                saved = load_result(folder, setup.problem, setup.policies[0])
                if saved.config["episodes"] > episodes:
                    has = saved.config["episodes"]
                    raise ValueError(f"episodes is {episodes:,}, but the run in {folder} has {has:,} already.")
                if saved.config["episodes"] == episodes:
                    results[i] = replace(saved, algorithm=setup.algorithms[0])
    left = {i: setup for i, setup in enumerate(setups) if i not in results}
    with ProgressBar(len(setups), "trials", len(results), progress) as bar:
        for i, result in _run(left, sampler, episodes):
            results[i] = result
            folder = folders[i]
            if folder is not None:
                result.save(folder)
            bar.update(len(results), f"{len(results)} of {len(setups)} trials")
    return [results[i] for i in range(len(setups))]


def _run(setups: dict[int, Setup], sampler: Ray, episodes: int) -> Iterator[tuple[int, Result]]:
    """The results of set-ups with their numbers, in the order in which they end."""
    if not setups:
        return
    cluster = Cluster(sampler.address, sampler.workers)
    from ray.exceptions import RayTaskError

    under_way: dict[Any, int] = {}
    try:
        trial = cluster.ray.remote(num_cpus=1, max_retries=LOSSES, scheduling_strategy="SPREAD")(_trial)
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
    alone = choose_sampler("auto", setup.problem, setup.policies[0])
    alone = (
        sampler.host if isinstance(alone, Host) else program_sampler(setup.problem, setup.policies[0], sampler.engine)
    )
    return replace(setup, policies=tuple(map(with_function_names, setup.policies)), sampler=alone)


def _trial(package: Package) -> tuple[Result, list[Arrays]]:
    """Run a set-up that was sent; send back what the other side does not have."""
    setup, episodes, double = package.open()
    with jax.enable_x64(double):
        setup = replace(setup, policies=tuple(map(with_functions, setup.policies)))
        try:
            result = run(setup, episodes, progress=False)[0]
        except EpisodeError as error:
            raise error.__cause__ or error from None  # how far it came is known over there
        bare = replace(result, problem=None, algorithm=None, policies=(), config={}, arrays={})
        return bare, [named_arrays(policy) for policy in result.policies]


def _received(result: Result, policies: list[Arrays], setup: Setup, episodes: int) -> Result:
    config, arrays = make_config(setup, episodes)
    trained = tuple(with_arrays_of(first, sent) for first, sent in zip(setup.policies, policies, strict=True))
    problem, algorithm = setup.problem, setup.algorithms[0]
    return replace(result, problem=problem, algorithm=algorithm, policies=trained, config=config, arrays=arrays)
