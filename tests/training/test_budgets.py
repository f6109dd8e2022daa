"""Budgets in environment steps: where seeds end, and what does not depend on the others."""

import json

import equinox as eqx
import jax
import numpy as np
import pytest

import occupax as ox
from commands import occupax
from occupax.algorithms import Budget
from occupax.samplers import Host
from occupax.training import loop

CART = ox.Problem("CartPole-v1", discount=0.9, horizon=100)
METHOD = ox.REINFORCE(batch=3, step_size=0.3)
STEPS = 600


def train(problem=CART, algorithm=METHOD, **options):
    options = {"sampler": "jax", "seeds": 3, "policy": "linear", "progress": False} | options
    if "episodes" not in options:
        options.setdefault("steps", STEPS)
    return ox.train(problem, algorithm, **options)


def own_records(result, i):
    """The records of a seed up to its end."""
    taken = np.diff(result.steps[i], prepend=0) > 0
    assert not np.diff(taken.astype(int)).max(initial=0) > 0  # no step after the end
    return {name: values[i, taken] for name, values in result.metrics.items()}


def assert_same_seed(result, i, other, j):
    mine, others = own_records(result, i), own_records(other, j)
    for name, values in mine.items():
        np.testing.assert_array_equal(values, others[name], err_msg=name)
    assert bool(eqx.tree_equal(result.policies[i], other.policies[j]))


@pytest.fixture(scope="module")
def result():
    return train()


def test_each_seed_ends_with_the_iteration_that_uses_up_its_steps(result):
    assert result.status == ("finished",) * 3
    ends = []
    for i, steps in enumerate(result.steps):
        last = int(np.argmax(steps >= STEPS))
        ends.append(last)
        assert steps[last - 1] < STEPS <= steps[last]
        assert (steps[last:] == steps[last]).all()
        assert np.isnan(result.metrics["utility"][i, last + 1 :]).all()
        assert np.isfinite(result.metrics["utility"][i, : last + 1]).all()
    assert len(set(ends)) > 1
    assert len(result.episodes) == max(ends) + 1


@pytest.mark.parametrize(
    ("sampler", "algorithm"),
    [
        ("jax", METHOD),
        (Host(engine="jax"), METHOD),
        ("jax", ox.TSIVRPG(snapshot_batch=4, batch=2, epoch_length=3)),
    ],
)
def test_a_seed_depends_on_no_other_seed(sampler, algorithm):
    together = train(algorithm=algorithm, sampler=sampler)
    for i in range(2):
        alone = train(algorithm=algorithm, sampler=sampler, seeds=[i])
        assert_same_seed(together, i, alone, 0)
        episodes = int(alone.episodes[-1])
        by_episodes = train(algorithm=algorithm, sampler=sampler, seeds=[i], episodes=episodes)
        assert_same_seed(alone, 0, by_episodes, 0)


def test_results_depend_neither_on_calls_nor_on_interruptions(result, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "CALL_SECONDS", 0.0)
    interrupted = train(out=tmp_path, callbacks=[lambda progress: progress.episodes >= 9])
    assert len(interrupted.episodes) < len(result.episodes)
    resumed = train(out=tmp_path, resume=True)
    again = train(out=tmp_path, resume=True)
    for other in (resumed, again):
        np.testing.assert_array_equal(other.steps, result.steps)
        for i in range(3):
            assert_same_seed(other, i, result, i)


def test_a_run_goes_on_with_more_steps(tmp_path):
    train(seeds=[1], steps=150, out=tmp_path)
    longer = train(seeds=[1], out=tmp_path, resume=True)
    assert_same_seed(longer, 0, train(seeds=[1]), 0)
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["episodes"], config["steps"]) == (None, STEPS)
    with pytest.raises(ValueError, match=f"steps must be at least {STEPS}, the number already"):
        train(seeds=[1], steps=150, out=tmp_path, resume=True)
    loaded = ox.load_result(tmp_path)
    np.testing.assert_array_equal(loaded.steps, longer.steps)


def test_records_of_several_iterations_end_with_the_seed(result):
    grouped = train(record_every=4)
    for i in range(3):
        whole = own_records(result, i)["utility"]
        expected = [whole[first : first + 4].mean() for first in range(0, len(whole), 4)]
        np.testing.assert_allclose(own_records(grouped, i)["utility"], expected, rtol=1e-6)


def test_a_failed_seed_ends_the_training_too():
    huge = ox.Problem("CartPole-v1", 1e30 * ox.utilities.Reward(), horizon=100)
    algorithm = ox.REINFORCE(batch=3, step_size=1e30, rule="gradient")
    failed = train(huge, algorithm, steps=10**9)
    assert all(status.startswith("stopped") for status in failed.status)


def test_exactly_one_budget_is_given():
    with pytest.raises(ValueError, match="episodes or steps must be the budget of each seed"):
        ox.train(CART)
    with pytest.raises(ValueError, match="must not be given together"):
        ox.train(CART, episodes=10, steps=10)
    with pytest.raises(ValueError, match=r"steps must be .* of at least 1"):
        ox.train(CART, steps=0)


def test_loggers_and_callbacks_know_the_budget():
    seen = []
    train(callbacks=[seen.append], steps=50)
    assert {progress.budget for progress in seen} == {Budget(steps=50)}


def test_points_of_a_sweep_have_the_same_steps():
    over = {"step_size": [0.1, 0.3]}
    options = {"policy": "linear", "sampler": "jax", "progress": False}
    done = ox.sweep(CART, METHOD, over, steps=STEPS, seeds=2, **options)
    for point in done.results:
        assert (point.steps[:, -1] >= STEPS).all()
    assert_same_seed(done.results[1], 1, train(), 1)


def test_the_command_line_takes_steps(tmp_path):
    run = ("train", "CartPole-v1", "--horizon", 20, "--algorithm", "reinforce", "--seeds", 2)
    code, out, _ = occupax(*run, "--steps", 300, "--out", tmp_path, "--json")
    printed = json.loads(out)
    assert code == 0
    assert min(printed["steps"]) >= 300
    code, out, _ = occupax("train", "--out", tmp_path, "--resume", "--steps", 600, "--json")
    assert code == 0
    assert min(json.loads(out)["steps"]) >= 600
    code, _, err = occupax(*run)
    assert code == 2
    assert "--episodes or --steps must be given" in err
    code, _, err = occupax(*run, "--steps", 3, "--episodes", 3)
    assert code == 2
    assert "must not be given together" in err


def test_ppo_decays_over_the_steps():
    def lengths(**settings):
        algorithm = ox.PPO(batch=2, epochs=1, **settings)
        with jax.enable_x64(False):
            return train(algorithm=algorithm, seeds=[0], steps=100).metrics["step_length"]

    np.testing.assert_array_equal(lengths(), lengths(decay_steps=100))
    assert not np.array_equal(lengths(), lengths(decay_steps=np.inf))
