import itertools
import json
import os
import sys

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import enumeration as enum
import occupax as ox
from occupax.progress import ProgressBar
from occupax.training import loop
from occupax.training.execution.compiled import CompiledExecutor

PROBLEM = enum.tiny(11, (2,)).problem("episodic", utility=ox.utilities.LogCoverage(0.1))
SIZES = {"snapshot_batch": 4, "batch": 2, "epoch_length": 3}
TSIVRPG = ox.TSIVRPG(**SIZES)
OPTIONS = {"policy": ox.policies.tabular(0.5), "progress": False}
GRID = {"step_size": [0.1, 0.5], "radius": [0.01, 0.2, 1.0]}


def sweep(over=GRID, algorithm=TSIVRPG, episodes=20, seeds=2, **options):
    return ox.sweep(PROBLEM, algorithm, over, episodes, seeds, **{**OPTIONS, **options})


def train(algorithm, episodes=20, seeds=2, **options):
    return ox.train(PROBLEM, algorithm, episodes, seeds, **{**OPTIONS, **options})


def settings(result):
    assert result.algorithm is not None
    return result.algorithm


def assert_same_bits(one, other):
    assert one.seeds == other.seeds
    np.testing.assert_array_equal(one.steps, other.steps)
    assert list(one.metrics) == list(other.metrics)
    for name, values in one.metrics.items():
        assert values.tobytes() == other.metrics[name].tobytes(), name
    for a, b in zip(one.policies, other.policies, strict=True):
        assert np.asarray(a.table).tobytes() == np.asarray(b.table).tobytes()


def test_every_point_is_the_training_with_its_settings_to_the_last_bit():
    done = sweep(seeds=[4, 1])
    assert done.points == tuple(
        {"step_size": a, "radius": b} for a in (0.1, 0.5) for b in (0.01, 0.2, 1.0)
    )
    for point, result in zip(done.points, done.results, strict=True):
        assert (settings(result).step_size, settings(result).radius) == (
            point["step_size"],
            point["radius"],
        )
        assert_same_bits(result, train(ox.TSIVRPG(**SIZES, **point), seeds=[4, 1]))
    ends = {np.asarray(result.policies[0].table).tobytes() for result in done.results}
    assert len(ends) > 3  # the settings make a difference


def test_sizes_rules_and_words_are_swept_over_as_well():
    over = {"batch": [2, 4], "step_size": [0.1, 0.5]}
    done = sweep(over, ox.REINFORCE(4))
    assert len(done.results) == 4
    for point, result in zip(done.points, done.results, strict=True):
        assert_same_bits(result, train(ox.REINFORCE(**point)))
    radii = sweep({"radius": ["theory", 0.2]})
    assert [settings(result).radius for result in radii.results] == [
        pytest.approx(1 / (8 * np.sqrt(0.5))),
        0.2,
    ]
    adam = sweep({"rule": [optax.adam(0.1), optax.adam(0.2)]}, ox.REINFORCE(batch=4, step_size=1.0))
    assert adam.results[0].policies[0].table.tolist() != adam.results[1].policies[0].table.tolist()


def test_scores_are_what_the_policies_are_worth():
    done = sweep()
    for score, result in zip(done.scores, done.results, strict=True):
        tables = [enum.softmax(np.asarray(policy.table, float)) for policy in result.policies]
        assert score == pytest.approx(
            np.mean([ox.exact.value(PROBLEM, table) for table in tables]), abs=1e-12
        )
    assert done.best == int(np.argmax(done.scores))
    lines = str(done).splitlines()
    assert len(lines) == 7
    best = done.points[done.best]
    assert lines[1].endswith(f"step_size={best['step_size']}, radius={best['radius']}")


def test_a_sweep_is_saved_and_every_point_can_be_loaded(tmp_path):
    done = sweep(out=tmp_path)
    summary = json.loads((tmp_path / "sweep.json").read_text())
    assert [entry["settings"] for entry in summary] == list(done.points)
    np.testing.assert_array_equal([entry["score"] for entry in summary], done.scores)
    for entry, result in zip(summary, done.results, strict=True):
        assert_same_bits(ox.load_result(tmp_path / entry["folder"]), result)


def test_numbers_of_numpy_are_written_down_as_numbers(tmp_path):
    done = sweep(
        {"step_size": np.array([0.25, 0.5], np.float32), "batch": np.arange(2, 3)}, out=tmp_path
    )
    assert done.points == ({"step_size": 0.25, "batch": 2}, {"step_size": 0.5, "batch": 2})
    summary = json.loads((tmp_path / "sweep.json").read_text())
    assert [entry["settings"] for entry in summary] == list(done.points)
    assert_same_bits(done.results[1], train(ox.TSIVRPG(**SIZES, step_size=0.5)))


def test_many_settings_are_checked_under_a_progress_bar(monkeypatch, capsys):
    def end(*_, **__):
        raise KeyboardInterrupt

    over = {"batch": [2, 3], "step_size": [0.01 * i for i in range(51)]}
    monkeypatch.setattr(ProgressBar, "_time_left", lambda *_: "a while left")
    monkeypatch.setattr("occupax.progress.time.monotonic", itertools.count(0, 16).__next__)
    monkeypatch.setattr("occupax.training.sweeps.run", end)
    for shown in (True, False):
        with pytest.raises(KeyboardInterrupt):
            sweep(over, ox.REINFORCE(4), progress=shown)
        lines = capsys.readouterr().err.splitlines()
        assert lines == ["checking settings (a while left)"] * (102 if shown else 0)


def test_a_callback_may_change_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(TSIVRPG, out="run", callbacks=[lambda _: os.chdir("/")])
    assert ox.load_result(tmp_path / "run").status == ("finished",) * 2
    monkeypatch.chdir(tmp_path)
    advance = CompiledExecutor.advance

    def move(self, count):
        os.chdir("/")
        return advance(self, count)

    monkeypatch.setattr(CompiledExecutor, "advance", move)
    sweep({"batch": [2, 3]}, ox.REINFORCE(4), out="sweep")
    assert (tmp_path / "sweep" / "sweep.json").exists()


def test_a_sweep_goes_on_after_an_interruption_to_the_same_bits(tmp_path, monkeypatch):
    over = {"batch": [2, 3], "step_size": [0.1, 0.5]}
    undisturbed = sweep(over, ox.REINFORCE(4))
    advance, calls = CompiledExecutor.advance, []

    def fail(self, count):
        calls.append(count)
        if len(calls) == 8:  # in the second group
            raise KeyboardInterrupt
        return advance(self, count)

    monkeypatch.setattr(loop, "CALL_SECONDS", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(CompiledExecutor, "advance", fail)
        with pytest.raises(KeyboardInterrupt):
            sweep(over, ox.REINFORCE(), out=tmp_path)
    assert not (tmp_path / "sweep.json").exists()
    with pytest.raises(ValueError, match="holds a run already"):
        sweep(over, ox.REINFORCE(), out=tmp_path)
    resumed = sweep(over, ox.REINFORCE(), out=tmp_path, resume=True)
    for one, other in zip(undisturbed.results, resumed.results, strict=True):
        assert_same_bits(one, other)
    with pytest.raises(ValueError, match="holds another run, which differs in algorithm"):
        sweep({**over, "step_size": [0.1, 0.6]}, ox.REINFORCE(), out=tmp_path, resume=True)


def test_every_point_is_checked_before_the_first_is_trained(tmp_path):
    for over, said in (
        (
            {"snapshot_batch": [4, 50]},
            "episodes must be at least 50, the size of the first batch, got 20",
        ),
        ({"step_size": [0.1, -1.0]}, "step_size must be a finite number"),
        ({"output": ["last", "bets"]}, "Did you mean 'best'"),
    ):
        with pytest.raises(ValueError, match=said):
            sweep(over, out=tmp_path / "sweep")
        assert not (tmp_path / "sweep").exists()


# Bad input


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            {"problem": 5},
            "problem must be an occupax.Problem, an environment or the name of one, got int",
        ),
        ({"problem": ox.Problem(PROBLEM.env, discount=0.9)}, "sampling needs a finite horizon"),
        (
            {"algorithm": ox.TSIVRPG},
            r"algorithm must be an occupax algorithm such as TSIVRPG\(\), or a name, got",
        ),
        ({"algorithm": "tsivrpg"}, r"algorithm 'tsivrpg' is not known\. Did you mean 'tsivr-pg'\?"),
        ({"episodes": 0}, "episodes must be an integer of at least 1, got 0"),
        ({"episodes": "20"}, "episodes must be an integer of at least 1, got '20'"),
        ({"episodes": 20.5}, "episodes must be an integer"),
        ({"episodes": 3}, "episodes must be at least 4, the size of the first batch"),
        ({"seeds": 0}, "seeds must be an integer of at least 1"),
        ({"seeds": 1.5}, "seeds must be an integer of at least 1"),
        ({"seeds": None}, "seeds must be an integer of at least 1"),
        ({"seeds": True}, "seeds must be an integer"),
        ({"seeds": "3"}, "seeds must be a sequence of integers, got '3'"),
        ({"seeds": []}, "seeds must be an integer or a list of distinct integers"),
        ({"seeds": [1, 1]}, r"a list of distinct integers, got \[1, 1\]"),
        ({"seeds": [0, -1]}, "seeds must be an integer of at least 0, got -1"),
        ({"seeds": [2**32]}, "must be below 2"),
        ({"seed": -1}, "seed must be an integer of at least 0, got -1"),
        ({"seed": 2**40}, "must be below 2"),
        ({"seed": None}, "seed must be an integer"),
        ({"policy": 3}, "policy must be a policy, an initialiser"),
        ({"policy": lambda *_: 3}, "policy must be an occupax policy, got int"),
        (
            {"policy": ox.policies.Tabular(jnp.zeros((2, 2)))},
            "policy was made for 2 states, but env has ",
        ),
        ({"record_every": 0}, "record_every must be an integer of at least 1"),
        ({"out": 3}, "out must be the path of a folder, got 3"),
        ({"resume": True}, "resume must be False without out"),
    ],
)
def test_bad_input_is_answered_with_a_sentence(wrong, said):
    good = {"problem": PROBLEM, "algorithm": TSIVRPG, "episodes": 20, "seeds": 2, **OPTIONS}
    for act, more in ((ox.train, {}), (ox.sweep, {"over": {"step_size": [0.1]}})):
        with pytest.raises(ValueError, match=said) as caught:
            act(**{**good, **more, **wrong})
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            {"callbacks": None},
            "callbacks must be a list of functions of a Progress or loggers, got None",
        ),
        ({"callbacks": print}, "callbacks must be a list"),
        ({"callbacks": [3]}, "callbacks must be functions of a Progress or loggers, got 3"),
        ({"checkpoint_every": -1.0}, "checkpoint_every must be a finite number of at least 0"),
        (
            {"checkpoint_every": "often"},
            "checkpoint_every must be a finite number of at least 0, got 'often'",
        ),
        ({"sampler": "jaxx"}, "sampler 'jaxx' is not known. Did you mean 'jax'"),
        (
            {"exact": True, "problem": ox.Problem(ox.make("CartPole-v1"), horizon=3)},
            "exact must be False for .*need a tabular",
        ),
    ],
)
def test_bad_input_of_training_alone_is_answered_with_a_sentence(wrong, said):
    good = {"problem": PROBLEM, "algorithm": TSIVRPG, "episodes": 20, "progress": False}
    with pytest.raises(ValueError, match=said):
        ox.train(**{**good, **wrong})


def test_whole_numbers_of_any_kind_are_taken(tmp_path):
    result = train(
        TSIVRPG, np.int64(20), np.int64(2), seed=np.int32(0), record_every=2.0, out=str(tmp_path)
    )
    assert ox.load_result(tmp_path).config["episodes"] == 20
    assert_same_bits(result, train(TSIVRPG, 20.0, np.arange(2), record_every=2))


def test_an_output_that_is_no_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="file is a file"):
        train(TSIVRPG, out=tmp_path / "file")


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ({"stepsize": [0.1]}, "setting 'stepsize' is not known. Did you mean 'step_size'"),
        ({"step_size": 0.1}, r"over\['step_size'\] must be a list of values to try, got 0.1"),
        ({"step_size": []}, "must be a list of values to try"),
        ({"output": "last"}, "must be a list of values to try, got 'last'"),
        ({"step_size": [-0.1]}, "step_size must be a finite number of at least 0"),
        (
            {"step_size": np.array([-0.1], np.float32)},
            "step_size must be a finite number of at least 0",
        ),
        ({"step_size": ["a"]}, "step_size must be a finite number"),
        ({"batch": [2, 0]}, "batch must be an integer of at least 1, got 0"),
        (["step_size"], "over must be values to try for each setting"),
        (None, "over must be values to try for each setting"),
        ({}, "over must be values to try for each setting"),
        (
            {"step_size": range(10**9)},
            "over must have at most 10,000 combinations, got at least 10,001: try fewer",
        ),
        (
            {"step_size": range(1000), "radius": range(1000)},
            "combinations, got at least 1,000,000: try fewer values",
        ),
    ],
)
def test_a_grid_that_is_none_is_answered_with_a_sentence(over, said):
    with pytest.raises(ValueError, match=said):
        sweep(over)


# Without an algorithm, and over settings of the policy and of the problem


def test_without_an_algorithm_the_default_of_train_is_swept():
    done = ox.sweep(PROBLEM, over={"radius": [0.1, 0.5]}, episodes=40, progress=False)
    for radius, result in zip((0.1, 0.5), done.results, strict=True):
        alone = ox.train(PROBLEM, ox.PlugIn(radius=radius), 40, progress=False)
        assert type(settings(result)) is ox.PlugIn
        assert_same_bits(result, alone)


def test_settings_of_the_policy_are_swept():
    over = {"policy.hidden": [(3,), (5, 4)], "step_size": [0.1, 0.5]}
    done = ox.sweep(
        PROBLEM, ox.REINFORCE(4), over, 20, policy=ox.policies.mlp(scale=0.5), progress=False
    )
    assert [tuple(point.values()) for point in done.points] == [
        ((3,), 0.1),
        ((3,), 0.5),
        ((5, 4), 0.1),
        ((5, 4), 0.5),
    ]
    for point, result in zip(done.points, done.results, strict=True):
        algorithm = ox.REINFORCE(4, step_size=point["step_size"])
        policy = ox.policies.mlp(point["policy.hidden"], scale=0.5)
        alone = ox.train(PROBLEM, algorithm, 20, policy=policy, progress=False)
        assert eqx.tree_equal(result.policies[0], alone.policies[0])


def test_the_default_policy_and_a_named_policy_have_settings_too():
    default = ox.sweep(PROBLEM, ox.REINFORCE(4), {"policy.scale": [0.0, 2.0]}, 8, progress=False)
    alone = ox.train(PROBLEM, ox.REINFORCE(4), 8, policy=ox.policies.tabular(2.0), progress=False)
    assert_same_bits(default.results[1], alone)
    over = {"policy.activation": ["tanh", "relu"]}
    named = ox.sweep(PROBLEM, ox.REINFORCE(4), over, 8, policy="mlp", progress=False)
    relu = ox.train(
        PROBLEM, ox.REINFORCE(4), 8, policy=ox.policies.mlp(activation="relu"), progress=False
    )
    assert eqx.tree_equal(named.results[1].policies[0], relu.policies[0])


@pytest.mark.parametrize(
    "utility", [ox.utilities.LogCoverage(0.1), ox.utilities.Entropy(), ox.utilities.Reward()]
)
def test_points_with_another_discount_are_trained_in_it_and_scored_in_the_problem_given(
    utility, tmp_path
):
    problem = ox.Problem(PROBLEM.env, utility, 0.8, 4)
    over = {"discount": [0.8, 0.3], "horizon": [4, 2]}
    done = ox.sweep(
        problem, ox.REINFORCE(4), over, 20, 2, policy="tabular", progress=False, out=tmp_path
    )
    assert done.points[2] == {"discount": 0.3, "horizon": 4}
    for point, score, result in zip(done.points, done.scores, done.results, strict=True):
        posed = ox.Problem(PROBLEM.env, utility, point["discount"], point["horizon"])
        assert eqx.tree_equal(result.problem, posed)
        assert_same_bits(
            result, ox.train(posed, ox.REINFORCE(4), 20, 2, policy="tabular", progress=False)
        )
        tables = [enum.softmax(np.asarray(policy.table, float)) for policy in result.policies]
        assert score == pytest.approx(
            np.mean([ox.exact.value(problem, table) for table in tables]), abs=1e-12
        )
    summary = json.loads((tmp_path / "sweep.json").read_text())
    assert [entry["score"] for entry in summary] == done.scores.tolist()
    assert [entry["settings"] for entry in summary] == list(done.points)


def test_constraints_of_another_discount_are_those_of_a_problem_made_with_it():
    limits = [ox.Constraint("entropy", at_least=0.1), ox.Constraint("reward", at_most=2.0)]
    env = PROBLEM.env
    changed = ox.Problem(env, ox.utilities.LogCoverage(0.1), 0.8, 4, constraints=limits).with_time(
        discount=0.5
    )
    made = ox.Problem(env, ox.utilities.LogCoverage(0.1), 0.5, 4, constraints=limits)
    assert eqx.tree_equal(changed, made)


def test_a_sweep_as_a_data_frame(monkeypatch):
    pandas = pytest.importorskip("pandas")
    done = sweep()
    frame = done.to_dataframe()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["step_size", "radius", "score", "violation", "learned"]
    assert frame["radius"].tolist() == [point["radius"] for point in done.points]
    assert frame["score"].tolist() == done.scores.tolist()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ValueError, match="to_dataframe\\(\\) needs pandas"):
        done.to_dataframe()


@pytest.mark.parametrize(
    ("over", "policy", "said"),
    [
        (
            {"policy.hiden": [(3,)]},
            "mlp",
            "setting 'policy.hiden' is not known. Did you mean 'policy.hidden'",
        ),
        ({"policy.hidden": [(3,), (0,)]}, "mlp", "hidden must"),
        (
            {"policy.scale": [1.0]},
            ox.policies.Tabular(jnp.zeros((3, 2))),
            "policy must be a name or an initialiser",
        ),
        ({"discount": [0.5, 1.5]}, None, "discount must lie in"),
        ({"horizon": [2, 0]}, None, "horizon must be an integer of at least 1, got 0"),
        ({"termination": ["absorbing"]}, None, "setting 'termination' is not known"),
    ],
)
def test_settings_of_policy_and_problem_are_checked(over, policy, said):
    with pytest.raises(ValueError, match=said):
        ox.sweep(PROBLEM, over=over, episodes=20, policy=policy, progress=False)
    with pytest.raises(
        ValueError, match="episodes or steps must be the budget of each seed, got neither"
    ):
        ox.sweep(PROBLEM, over={"radius": [0.1]})
