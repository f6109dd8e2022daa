import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import numpy as np
import pytest

import occupax as ox
from commands import ICE, SIZES, interrupt_after, occupax
from occupax import cli
from occupax.algorithms import Budget
from occupax.analysis.verdict import share_text, short
from occupax.cli.choices import Choices, build, restore
from occupax.cli.commands.training import summarise
from occupax.io import run_folder
from occupax.training.execution.compiled import CompiledExecutor
from occupax.training.outcomes import setup_config
from occupax.training.setup import make_setup

RUN = (
    "train",
    ICE,
    "--utility",
    "log-coverage",
    "--horizon",
    "10",
    "--seeds",
    "2",
    "--no-progress",
    *SIZES,
)


@pytest.fixture(scope="module")
def done(tmp_path_factory, with_pages):
    """A run of 70 episodes: its folder, and what it printed."""
    folder = tmp_path_factory.mktemp("runs") / "done"
    with with_pages():
        code, out, err = occupax(*RUN, "--episodes", 70, "--out", folder)
    assert (code, err) == (0, "")
    return folder, out


@pytest.fixture
def copy(done, tmp_path):
    return Path(shutil.copytree(done[0], tmp_path / "copy"))


def test_a_run_leaves_all_there_is_to_know_in_its_folder(done):
    folder, _ = done
    for name in (
        "config.json",
        "metrics.csv",
        "plot.png",
        "report.html",
        "policies/seed-1.safetensors",
        "checkpoint",
    ):
        assert (folder / name).exists(), name
    result = ox.load_result(folder)
    assert result.status == ("finished", "finished")
    assert result.episodes[-1] == 70
    steps = {"step_size": 0.04, "decay_after": np.inf, "output": "last"}
    assert eqx.tree_equal(
        result.algorithm, ox.TSIVRPG(snapshot_batch=6, batch=4, epoch_length=3, **steps)
    )


def test_the_text_has_the_headline_a_row_for_each_seed_and_a_certificate(done):
    folder, out = done
    lines = out.splitlines()
    result = ox.load_result(folder)
    assert (
        lines[0]
        == "TSIVRPG maximises LogCoverage on FrozenLake-v1: discount 0.99, horizon 10, episodic"
    )
    assert lines[1] == result.headline
    assert result.references is not None
    for seed, utility in enumerate(result.utilities):
        (line,) = (line for line in lines if line.startswith(f"│ {seed} "))
        assert short(utility) in line
        assert share_text(result.references.share(utility)) in line
        assert "finished" in line
    (last,) = (line for line in lines if line.startswith("│ median"))
    assert short(float(np.median(result.utilities))) in last
    seed = int(np.argmax(result.utilities))
    gap = short(result.certificate(seed).gap)
    assert lines[-2] == f"seed {seed} is within {gap} of optimal (certified)"
    assert lines[-1] == f"report: {folder / 'report.html'}"


def test_json_has_the_same_numbers_and_tensorboard_gets_them(done, tmp_path):
    pytest.importorskip("tensorboardX")
    folder, _ = done
    code, out, err = occupax(*RUN, "--episodes", 70, "--json", "--tensorboard", tmp_path, "--exact")
    assert (code, err) == (0, "")
    printed, result = json.loads(out), ox.load_result(folder)
    assert [seed["utility"] for seed in printed["seeds"]] == pytest.approx(result.utilities)
    assert printed["seeds"][1]["gap"] == pytest.approx(result.certificate(1).gap)
    assert printed["seeds"][0]["status"] == "finished"
    assert printed["median"]["utility"] == pytest.approx(np.median(result.utilities))
    assert printed["certificate"]["value"] == pytest.approx(max(result.utilities))
    assert (printed["headline"], printed["diagnosis"]) == (result.headline, [])
    assert result.references is not None
    assert printed["references"]["optimum"] == pytest.approx(result.references.optimum)
    assert (printed["horizon"], printed["episodes"], printed["report"]) == (10, 70, None)
    assert {path.name for path in tmp_path.iterdir()} == {"seed-0", "seed-1"}


def test_an_interrupted_run_goes_on_to_where_it_would_have_been(done, tmp_path):
    folder = tmp_path / "it was interrupted"
    with pytest.MonkeyPatch.context() as patch:
        interrupt_after(2, patch)
        code, _, err = occupax(*RUN, "--episodes", 70, "--out", folder)
    assert code == 130
    assert err.startswith("occupax: stopped after ")
    assert err.count("\n") == 1
    printed = re.search(r"to resume: occupax (.*) \(in Python", err) or re.search(
        r"to resume: occupax (.*)\.$", err
    )
    assert printed is not None, err
    code, out, err = occupax(*shlex.split(printed[1]), "--no-progress")  # as a shell reads it
    assert (code, err) == (0, "")
    assert f"as in {folder}" in out
    assert (folder / "metrics.csv").read_bytes() == (done[0] / "metrics.csv").read_bytes()
    assert eqx.tree_equal(ox.load_result(folder).policies, ox.load_result(done[0]).policies)


def test_a_reader_that_leaves_loses_no_report(tmp_path, compiled_fast):
    folder = tmp_path / "run"
    command = [Path(sys.executable).with_name("occupax"), *RUN, "--episodes", "10", "--out", folder]
    with subprocess.Popen(
        command, env=compiled_fast, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.close()  # as `| head -0` does
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait() == 0
    assert (folder / "report.html").exists()


def test_a_short_run_made_longer_is_the_long_run(done, tmp_path):
    folder = tmp_path / "short"
    assert (
        occupax(*RUN, "--episodes", 30, "--out", folder, "--resume")[0] == 0
    )  # nothing is there yet: it begins
    assert occupax("train", "--out", folder, "--resume", "--episodes", 70, "--json")[0] == 0
    assert (folder / "metrics.csv").read_bytes() == (done[0] / "metrics.csv").read_bytes()


def test_a_run_without_a_checkpoint_begins_again_with_the_policies_of_all_its_seeds(tmp_path):
    problem = ox.Problem(ox.make(ICE), horizon=10)

    def write(policy, seeds):
        setup = make_setup(
            problem, [ox.TSIVRPG()], policy, seeds, seed=3, record_every=2, exact=True
        )
        run_folder.write_config(tmp_path, *setup_config(setup, Budget(1000)))
        return setup

    for policy, seeds in ((ox.policies.mlp(), [0, 4]), (None, 3), (ox.policies.mlp(hidden=[8]), 1)):
        setup = write(policy, seeds)
        task, budget = restore(tmp_path)
        again = make_setup(task.problem, [task.algorithm], **task.options)
        assert budget == Budget(1000)
        assert eqx.tree_equal(again.policies, setup.policies)
        assert (
            setup_config(again, Budget(1000))[0]["fingerprint"]
            == run_folder.read_config(tmp_path)[0]["fingerprint"]
        )
    write(ox.policies.mlp(hidden=[8]), 2)
    with pytest.raises(
        ValueError, match="has no checkpoint yet, and its initial policies were created in Python"
    ):
        restore(tmp_path)


def test_a_run_with_a_function_of_ones_own_is_resumed_in_python(tmp_path):
    problem = ox.Problem(ox.make(ICE), lambda occupancy: occupancy.sum(), horizon=10)
    setup = make_setup(problem, [ox.TSIVRPG()], None, 1, seed=0, record_every=1, exact=False)
    run_folder.write_config(tmp_path, *setup_config(setup, Budget(1000)))
    code, _, err = occupax("train", "--out", tmp_path, "--resume")
    assert code == 2
    assert (
        f"the run in {tmp_path} has parts that cannot be restored from a file: repeat the command"
        in err
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            (*RUN, "step_size=0.1", "--episodes", "90", "--resume"),
            "differs in algorithm.fields.step_size",
        ),
        ((*RUN, "--episodes", "90"), "holds a run already"),
        (
            ("train", "--resume", "--discount", "0.99"),
            "leave out --discount, or repeat the whole command with ENV",
        ),
        (
            ("train", "--resume", "--record-every", "1", "--set", "a=1"),
            "leave out --record-every, --set, or",
        ),
        (("train", "--resume", "--exact"), "differs in exact"),
        (
            ("train", "--resume", "--episodes", "30"),
            "episodes must be at least 70, the number already sampled",
        ),
        (
            ("train", "--resume", "--episodes", "0"),
            "episodes must be an integer of at least 1, got 0.",
        ),
    ],
)
def test_what_does_not_agree_with_the_folder_is_refused(copy, arguments, said):
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    code, _, err = occupax(*arguments, "--out", copy)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


def test_a_damaged_checkpoint_is_named(copy):
    (checkpoint,) = (copy / "checkpoint").iterdir()
    checkpoint.write_bytes(checkpoint.read_bytes()[:-10])
    code, _, err = occupax("train", "--out", copy, "--resume")
    assert code == 2
    assert f"{checkpoint} is damaged" in err


def test_if_every_seed_is_stopped_the_table_says_why_and_the_exit_code_is_1():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            CompiledExecutor,
            "status",
            lambda runs: ["stopped at iteration 3: [it] is not finite"] * runs.count,
        )
        code, out, err = occupax(*RUN, "--episodes", 70)
    assert code == 1
    assert "stopped at iteration 3" in out
    assert "[it]" in out
    assert out.splitlines()[-1] == "nothing is saved: add --out FOLDER to save the results"
    assert err == "occupax: all seeds diverged (non-finite values): lower step_size or radius.\n"


def test_a_policy_without_a_bound_says_so(done):
    problem = ox.Problem(ox.make(ICE), ox.utilities.Entropy(smoothing=0.0), horizon=1)
    summary, verdict = summarise(problem, ox.load_result(done[0], problem))
    assert summary["certificate"] is None
    assert verdict.startswith("not certified: Entropy has no finite gradient")


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"env": "FrozenLake8x8-v1"}, "horizon 200 (the time limit of the environment), episodic"),
        (
            {"env": "CliffWalking-v1"},
            "horizon 459 (less than 1% of the discounted mass is later), episodic",
        ),
        ({"env": "CartPole-v0"}, "horizon 200 (the time limit of the environment), episodic"),
        (
            {"env": "CartPole-v1", "horizon": 50, "discount": 0.5},
            "discount 0.5, horizon 50, episodic",
        ),
        (
            {"env": ICE, "assignments": ("problem.horizon=9",), "termination": "absorbing"},
            "horizon 9, absorbing",
        ),
    ],
)
def test_it_says_which_horizon_is_used(chosen, said):
    task = build(Choices(**chosen))
    assert task.title.endswith(said)
    assert f"horizon {task.problem.horizon}" in said


def test_whole_numbers_may_have_an_exponent(done):
    code, out, _ = occupax("evaluate", done[0], ICE, "--episodes", "2e1", "--json")
    assert code == 0
    assert json.loads(out)["episodes"] == 20


def test_trained_policies_are_evaluated_one_by_one_or_all_together(done):
    folder, _ = done
    code, out, err = occupax(
        "evaluate", folder, ICE, "--episodes", 50, "--seed", 7, "--max-steps", 8
    )
    assert (code, err) == (0, "")
    expected = ox.evaluate(ox.load_result(folder).policy(1), ICE, 50, 7, 8)
    (line,) = (line for line in out.splitlines() if line.startswith("│ seed 1"))
    assert short(expected.mean_length) in line
    assert short(float(expected.terminated.mean())) in line
    file = folder / "policies" / "seed-1.safetensors"
    code, out, _ = occupax(
        "evaluate", file, ICE, "--episodes", 50, "--seed", 7, "--max-steps", 8, "--json"
    )
    (row,) = json.loads(out)["policies"]
    assert row["policy"] == "seed-1.safetensors"
    assert row["return"] == expected.mean
    assert row["standard_error"] == expected.standard_error
    assert row["length"] == expected.mean_length
    (row,) = json.loads(
        occupax("evaluate", file, ICE, "--episodes", 50, "--deterministic", "--json")[1]
    )["policies"]
    greedy = ox.evaluate(ox.load_result(folder).policy(1), ICE, 50, deterministic=True)
    assert (row["return"], row["length"]) == (greedy.mean, greedy.mean_length)
    assert greedy.mean_length != ox.evaluate(ox.load_result(folder).policy(1), ICE, 50).mean_length
    (row,) = json.loads(occupax("evaluate", file, ICE, "--episodes", 1, "--json")[1])["policies"]
    assert row["standard_error"] is None
    assert "utility" not in row  # a file has no problem


def test_a_run_is_evaluated_by_the_utility_that_was_trained(done):
    folder, _ = done
    code, out, err = occupax("evaluate", folder, "--episodes", 200)
    assert (code, err) == (0, "")
    assert {"utility", "return", "terminated"} <= set(re.findall(r"\w+", out.splitlines()[2]))
    (first, _) = json.loads(occupax("evaluate", folder, "--episodes", 200, "--json")[1])["policies"]
    result = ox.load_result(folder)
    expected = ox.evaluate(result.policy(0), result.problem, 200)
    assert first["utility"] == pytest.approx(expected.utility._asdict())
    code, _, err = occupax("evaluate", folder / "policies" / "seed-1.safetensors")
    assert code == 2
    assert "ENV must be given" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("train",), "ENV must be given, or --out FOLDER --resume"),
        (("train", "--resume"), "ENV must be given, or --out FOLDER --resume"),
        (("train", "--out", "nowhere", "--resume"), "nowhere is not the directory of a run"),
        (("train", ICE), "--episodes or --steps must be given"),
        (
            ("train", ICE, "--episodes", "0"),
            "episodes must be an integer of at least 1, got 0.",
        ),
        (
            ("train", ICE, "--algorithm", "tsivr-pg", "--episodes", "10"),
            "must be at least 20, the size of the first batch, got 10.",
        ),
        (("train", ICE, "--episodes", "abc"), "must be an integer, got 'abc'."),
        (
            ("train", ICE, "--episodes", "200", "--discount", "high"),
            "must be a number, got 'high'.",
        ),
        (
            ("train", ICE, "--episodes", "200", "--discount", "2"),
            "discount must lie in [0, 1], got 2.0.",
        ),
        (
            ("train", ICE, "--episodes", "200", "--termination", "episodc"),
            "Did you mean 'episodic'?",
        ),
        (
            ("train", ICE, "--episodes", "200", "--seeds", "0"),
            "seeds must be an integer of at least 1, got 0.",
        ),
        (
            ("train", ICE, "--episodes", "200", "--set", "garbage"),
            "must have the form name=value, got 'garbage'.",
        ),
        (("train", ICE, "--episodes", "200", "--set", "stepsize=1"), "Did you mean 'step_size'?"),
        (
            ("train", ICE, "--episodes", "200", "--set", "batch=0"),
            "batch must be an integer of at least 1",
        ),
        (("train", ICE, "--episodes", "200", "--policy", "table"), "Did you mean 'tabular'?"),
        (("train", ICE, "--episodes", "200", "--algorithm", "tsivrpg"), "Did you mean 'tsivr-pg'?"),
        (("train", ICE, "--episodes", "200", "--resume"), "resume must be False without out"),
        (("train", "FrozenLake-v2", "--episodes", "200"), "use 'FrozenLake-v1'."),
        (
            ("train", "CartPole-v1", "--episodes", "200", "--policy", "tabular"),
            "need a tabular environment",
        ),
        (
            ("train", "CartPole-v1", "--episodes", "200", "--exact"),
            "exact values need a tabular environment",
        ),
        (("train", ICE, "--episodes", "200", "--out", __file__), "must be a directory"),
        (("evaluate", "nowhere", ICE), "nowhere does not exist."),
        (("evaluate", __file__, ICE), "is damaged or not a safetensors file"),
        (("evaluate", Path(__file__).parent, ICE), "is not the directory of a run"),
        (("evaluate", "nowhere"), "nowhere does not exist."),
    ],
)
def test_mistakes_end_in_a_sentence_and_exit_code_2(arguments, said):
    code, out, err = occupax(*arguments)
    assert code == 2
    assert said in out + err
    assert "Traceback" not in out + err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("FrozenLake8x8-v1",), "policy was made for 16 states, but env has 64 states."),
        (("CartPole-v1",), "but env has observations that are not states."),
        (
            ("FrozenLake-v7",),
            "'FrozenLake-v7' is not offered by what is installed: use 'FrozenLake-v1'.",
        ),
        ((ICE, "--episodes", "0"), "episodes must be an integer of at least 1, got 0."),
        ((ICE, "--max-steps", "0"), "max_steps must be an integer of at least 1, got 0."),
    ],
)
def test_policies_are_evaluated_only_where_they_belong(done, arguments, said):
    code, _, err = occupax("evaluate", done[0], *arguments)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (
            OSError(28, "No space left on device", "runs/a"),
            "occupax: runs/a: No space left on device.\n",
        ),
        (OSError(28, "No space left on device"), "occupax: No space left on device.\n"),
        (OSError("the disk is gone"), "occupax: the disk is gone.\n"),
        (MemoryError(), "occupax: out of memory: "),
    ],
)
def test_what_the_machine_refuses_ends_in_a_sentence_and_exit_code_1(failure, said):
    def fail():
        raise failure

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(cli.COMMANDS, "list", fail)
        code, _, err = occupax("list")
    assert code == 1
    assert err.startswith(said)
