import json
import sys

import pytest

import occupax as ox
from occupax import cli

ICE = "FrozenLake-v1"


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command in this process: its exit code, and what it printed."""

    def command(*arguments):
        monkeypatch.setattr(sys, "argv", ["occupax", *arguments])
        code = 0
        try:
            cli.main()
        except SystemExit as stopped:
            code = stopped.code or 0
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return command


def test_json_holds_every_number_of_the_plan(run):
    code, out, err = run(
        "theory",
        ICE,
        "--utility",
        "log-coverage",
        "--discount",
        "0.9",
        "--epsilon",
        "0.1",
        "--json",
    )
    assert (code, err) == (0, "")
    plan = json.loads(out)
    assert plan["constants"] == pytest.approx(
        {
            "discount": 0.9,
            "lipschitz_psi": 0.5**0.5,
            "smoothness_psi": 0.0,
            "lipschitz_utility": 8.0,
            "smoothness_utility": 128.0,
            "smoothness_utility_l1": 64.0,
        }
    )
    # H = 2 log 10 / 0.1 = 46.05 rounded up, B = m = 10, N = 100, delta = 1 / (2 * 47 * 0.7071)
    assert [plan[name] for name in ("horizon", "batch", "epoch_length", "snapshot_batch")] == [
        47,
        10,
        10,
        100,
    ]
    assert plan["radius"] == pytest.approx(0.0150448, rel=1e-5)
    # L_theta has the terms 4 * 64 * 0.5 / 1e-4, 8 * 0.5 * 8 / 1e-3 and 2 * 8 * 0.5 / 1e-2
    assert plan["smoothness_theta"] == pytest.approx(1_280_000 + 32_000 + 800)
    # C_1 has the terms 112 * 0.5 * 128^2 / 1e-6 and 48 * 0.5 * 8^2 / 1e-4
    assert plan["variance"]["snapshot"] == pytest.approx(917_504_000_000 + 15_360_000)
    assert plan["stationary"]["trajectories"] == 10 * (9 * 10 + 100)
    assert plan["global_optimum"]["epochs"] == 4
    assert set(plan["variance"]) == {"snapshot", "truncation", "drift", "last_step"}


def test_the_text_shows_the_plan_the_constants_and_a_warning(run):
    code, out, _ = run("theory", ICE, "--utility", "log-coverage", "--discount", "0.9")
    assert code == 0
    problem = ox.Problem(ox.make(ICE), ox.utilities.LogCoverage(), discount=0.9)
    plan = ox.theory.plan(0.1, ox.theory.problem_constants(problem))
    assert plan.table() in out
    assert out.startswith(ox.theory.WARNING)  # before any number can be taken for a promise
    assert str(plan) == f"{ox.theory.WARNING}\n{plan.table()}"
    assert "smoothness_utility_l1" in out
    assert "far too small for practice" in out
    assert "assumption:over-para" not in out


def test_a_linear_utility_is_told_that_one_theorem_does_not_apply(run):
    _, out, _ = run("theory", ICE)
    assert "assumption:over-para, which a linear utility" in out


def test_settings_reach_the_utility_and_the_environment(run):
    code, out, err = run(
        "theory",
        ICE,
        "--utility",
        "log-coverage",
        "--json",
        "--set",
        "utility.sigma=0.5",
        "env.is_slippery=false",
    )
    assert (code, err) == (0, "")
    assert json.loads(out)["constants"]["lipschitz_utility"] == pytest.approx(2.0)


def test_without_a_table_all_constants_are_given(run):
    code, out, err = run(
        *(
            "theory",
            "CartPole-v1",
            "--lipschitz-psi",
            "2",
            "--smoothness-psi",
            "3",
            "--reward-bound",
            "1",
            "--json",
        )
    )
    assert (code, err) == (0, "")
    constants = json.loads(out)["constants"]
    assert [
        constants[name] for name in ("lipschitz_psi", "smoothness_psi", "lipschitz_utility")
    ] == [2.0, 3.0, 1.0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("FrozenLake-v2",), "use 'FrozenLake-v1'"),
        ((ICE, "--utility", "log-coverag"), "Did you mean 'log-coverage'"),
        ((ICE, "--epsilon", "0"), "epsilon must lie in (0, 0.5], got 0.0"),
        ((ICE, "--epsilon", "0.7"), "epsilon must lie in (0, 0.5], got 0.7"),
        ((ICE, "--epsilon", "nan"), "epsilon must lie in (0, 0.5], got nan"),
        ((ICE, "--epsilon", "1e-200"), "overflows"),
        ((ICE, "--epsilon", "1e-310"), "overflows"),
        ((ICE, "--epsilon", "small"), "--epsilon"),
        ((ICE, "--discount", "1"), "discount must lie in [0, 1), got 1.0"),
        ((ICE, "--discount", "nan"), "discount must lie in [0, 1), got nan"),
        ((ICE, "--lipschitz-psi", "1"), "must both be given"),
        ((ICE, "--smoothness-psi", "1"), "must both be given"),
        (
            (ICE, "--lipschitz-psi", "-1", "--smoothness-psi", "1"),
            "lipschitz_psi must be a finite number above 0, got -1.0",
        ),
        (
            (ICE, "--lipschitz-psi", "1", "--smoothness-psi", "inf"),
            "smoothness_psi must be a finite number of at least 0, got inf",
        ),
        ((ICE, "--lipschitz-psi", "1e200", "--smoothness-psi", "1"), "overflows"),
        (
            (ICE, "--lipschitz-psi", "1e-200", "--smoothness-psi", "0"),
            "must be a finite number above 0",
        ),
        ((ICE, "--reward-bound", "1"), "reward_bound must be left out"),
        (("CartPole-v1",), "must both be given"),
        (
            ("CartPole-v1", "--lipschitz-psi", "1", "--smoothness-psi", "1"),
            "reward_bound must be given",
        ),
        (
            (
                "CartPole-v1",
                "--lipschitz-psi",
                "1",
                "--smoothness-psi",
                "1",
                "--reward-bound",
                "nan",
            ),
            "reward_bound must be a finite number above 0, got nan",
        ),
        (
            (ICE, "--utility", "log-coverage", "--set", "utility.sigma=1e-200"),
            "sigma must be at least 1e-30, got 1e-200",
        ),
        (
            (ICE, "--utility", "entropy", "--set", "utility.smoothing=1e-320"),
            "smoothing must be at least 1e-30, got 1e-320",
        ),
        (("CartPole-v1", "--utility", "entropy"), "tabular environment"),
        ((ICE, "--utility", "entropy", "--set", "utility.smoothing=0"), "a smoothing above 0"),
        (
            (ICE, "--utility", "entropy", "--set", "utility.smothing=1"),
            "Did you mean 'utility.smoothing'",
        ),
        ((ICE, "--utility", "entropy", "--set", "smoothing=1"), "Did you mean 'utility.smoothing'"),
        (
            (ICE, "--utility", "entropy", "--set", "utility.smoothing=much"),
            "must be a number, got 'much'",
        ),
        (
            (ICE, "--utility", "entropy", "--set", "utility.smoothing"),
            "must have the form name=value",
        ),
        ((ICE, "--set", "env.slippery=false"), "slippery"),
        ((ICE, "--set", "env.source=3"), "setting 'env.source' is not known"),
        (("CartPole-v1", "--set", "env.wheels=4"), "does not take the options"),
        ((ICE, "--epsilom", "0.1"), "--epsilon"),
        ((), "environment"),
    ],
)
def test_mistakes_end_in_a_sentence_and_exit_code_2(run, arguments, said):
    code, out, err = run("theory", *arguments)
    assert code == 2
    assert said in out + err
    assert "Traceback" not in out + err


@pytest.mark.parametrize("command", list(cli.COMMANDS))
def test_every_command_shows_an_example_of_itself(run, command):
    code, out, _ = run(command, "--help")
    assert code == 0
    assert f"Example: occupax {command}" in out


def test_list_shows_settings_and_their_defaults(run):
    code, out, _ = run("list", "hspga")
    assert code == 0
    settings = dict(line.split(maxsplit=1) for line in out.splitlines()[2:])
    assert settings["snapshot_batch"] == "20"
    assert settings["mixing"] == "depends on the problem"
    assert (settings["radius"], settings["rule"]) == ("inf", "adam")
    code, out, _ = run("list", "log-coverage")
    assert out.splitlines()[-1].split() == ["utility.sigma", "0.125"]


def test_list_prints_json_for_machines(run):
    code, out, err = run("list", "--json")
    assert (code, err) == (0, "")
    listed = json.loads(out)
    assert ICE in listed["environments"]
    assert listed["utilities"]["log-coverage"] == {"utility.sigma": 0.125}
    assert listed["algorithms"]["tsivr-pg"]["batch"] == 10
    assert listed["algorithms"]["reinforce"]["radius"] == "Infinity"
    assert set(listed["policies"]) == {"tabular", "linear", "mlp", "cnn", "gaussian", "squashed"}
