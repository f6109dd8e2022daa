"""Training on a cluster of two machines, simulated on this one."""

import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
import pytest
import ray
from ray.cluster_utils import Cluster

import occupax as ox
from occupax.samplers.workers import Workers

ALGORITHM = ox.TSIVRPG(snapshot_batch=8, batch=4, epoch_length=3, step_size=0.01)
SHARDS = 4


@pytest.fixture(scope="module")
def cluster(compiled_fast: dict[str, str]) -> Generator[Any]:
    """A head and one more machine, each with one core."""
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        for name, value in compiled_fast.items():  # as in this process: it changes the last bits
            patch.setenv(name, value)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        made = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
        )
        made.add_node(num_cpus=1)
        made.wait_for_nodes()
        yield made
        ray.shutdown()
        made.shutdown()


@pytest.fixture(scope="module")
def problem() -> ox.Problem:
    return ox.Problem(ox.GymnasiumEnv("CartPole-v1"), horizon=20)


def train(problem: ox.Problem, sampler: Any, **options: Any) -> ox.Result:
    policy = ox.policies.mlp(hidden=(8,))
    return ox.train(
        problem, ALGORITHM, 80, seeds=2, policy=policy, sampler=sampler, progress=False, **options
    )


@pytest.fixture(scope="module")
def in_one_process(problem: ox.Problem) -> ox.Result:
    return train(problem, ox.samplers.Host(shards=SHARDS))


def assert_equal(one: ox.Result, other: ox.Result) -> None:
    """Equal to the last bit."""
    assert one.metrics.keys() == other.metrics.keys()
    for name, values in one.metrics.items():
        np.testing.assert_array_equal(values, other.metrics[name], name)
    np.testing.assert_array_equal(one.steps, other.steps)
    assert eqx.tree_equal(one.policies, other.policies)


def test_sweep_is_spread_over_the_cluster_with_the_same_results(cluster: Any, tmp_path: Path):
    lake = ox.Problem(ox.make("FrozenLake-v1"), ox.utilities.LogCoverage(), horizon=10)
    over = {"step_size": [0.01, 0.1], "epoch_length": [2]}
    here = ox.sweep(lake, ALGORITHM, over, 40, seeds=2, progress=False)
    there = ox.samplers.Ray(address=cluster.address)
    spread = ox.sweep(
        lake, ALGORITHM, over, 40, seeds=2, progress=False, sampler=there, out=tmp_path
    )
    for one, other in zip(here.results, spread.results, strict=True):
        assert_equal(one, other)
    nowhere = ox.samplers.Ray(address="ray://nowhere:1")  # nothing is left to be done there
    again = ox.sweep(
        lake,
        ALGORITHM,
        over,
        40,
        seeds=2,
        progress=False,
        sampler=nowhere,
        out=tmp_path,
        resume=True,
    )
    for one, other in zip(here.results, again.results, strict=True):
        assert_equal(one, other)
    with pytest.raises(
        ValueError,
        match=r"episodes must be at least 40, the number already sampled in .*point-0, got 20",
    ):
        ox.sweep(
            lake,
            ALGORITHM,
            over,
            20,
            seeds=2,
            progress=False,
            sampler=nowhere,
            out=tmp_path,
            resume=True,
        )


def test_machine_lost_in_the_middle_changes_nothing(
    cluster: Any, problem: ox.Problem, in_one_process: ox.Result, monkeypatch: pytest.MonkeyPatch
):
    lost: list[int] = []
    replaced: list[Any] = []
    lose = Workers._lose

    def remember(pool: Workers, *given: Any) -> None:
        replaced.append(given)
        lose(pool, *given)

    monkeypatch.setattr(Workers, "_lose", remember)

    def pull_the_plug(progress: ox.training.Progress) -> None:
        if not lost and progress.episodes >= 30:
            cluster.remove_node(cluster.list_all_nodes()[-1])
            lost.append(progress.episodes)

    there = ox.samplers.Ray(address=cluster.address, workers=2, shards=SHARDS)
    result = train(problem, there, callbacks=[pull_the_plug])
    assert lost == [32]
    assert replaced
    assert_equal(result, in_one_process)


def test_simulated_bodies_are_trained_in_this_process_and_on_a_cluster_alike(cluster: Any):
    pytest.importorskip("mujoco", reason="it needs the extra mujoco")
    bodies = ox.Problem(ox.GymnasiumEnv("Swimmer-v5"), discount=0.99, horizon=15)

    def trained(sampler: ox.samplers.Sampler) -> ox.Result:
        policy = ox.policies.gaussian(hidden=(8,))
        algorithm = ox.TSIVRPG(snapshot_batch=4, batch=2, epoch_length=2, step_size=0.01)
        return ox.train(bodies, algorithm, 12, policy=policy, sampler=sampler, progress=False)

    here = trained(ox.samplers.Host(shards=SHARDS))
    assert here.status == ("finished",)
    assert (
        0 < here.metrics["actions_clipped"].mean() < 0.2
    )  # 0.5 deviations: two normal numbers, 1 in 11
    assert_equal(trained(ox.samplers.Ray(address=cluster.address, workers=1, shards=SHARDS)), here)
