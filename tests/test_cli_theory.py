import json
import math
import sys
from dataclasses import asdict

import jax.numpy as jnp
import numpy as np
import pytest

import occupax as ox
from occupax import cli
from occupax.cli.theory import occupancy_smoothness, problem_constants

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


def table(reward, terminal=None):
    """Two states and three actions, all equally likely to lead to both."""
    return ox.TabularMDP(np.full((2, 3, 2), 0.5), reward, [1.0, 0.0], terminal)


def test_log_coverage_gains_the_root_of_the_actions_in_the_two_norm():
    problem = ox.Problem(table(np.zeros((2, 3))), ox.utilities.LogCoverage(sigma=0.5))
    # 1 / sigma = 2 and 1 / sigma^2 = 4; a state is a sum over three actions
    assert occupancy_smoothness(problem) == pytest.approx((2.0, 4 * math.sqrt(3), 4.0))


def test_log_coverage_of_pairs_keeps_its_constants():
    problem = ox.Problem(
        table(np.zeros((2, 3))), ox.utilities.LogCoverage(sigma=0.5), features=ox.features.StateAction()
    )
    assert occupancy_smoothness(problem) == pytest.approx((2.0, 4.0, 4.0))


def test_entropy_is_of_the_normalised_occupancy():
    problem = ox.Problem(ox.make(ICE), ox.utilities.Entropy(), discount=0.9)
    # the scale is 0.1: 0.1 |1 + log 1e-6| = 1.2815511, and 0.1^2 / 1e-6 = 1e4, times sqrt(4) in the 2-norm
    assert occupancy_smoothness(problem) == pytest.approx((1.2815511, 2e4, 1e4), rel=1e-6)


def test_the_bound_of_a_reward_is_its_largest_value():
    problem = ox.Problem(table([[0.0, 1.0, -3.0], [2.0, 0.0, 0.0]]))
    assert occupancy_smoothness(problem) == pytest.approx((3.0, 0.0, 0.0))


def test_the_bound_of_a_random_reward_covers_every_draw():
    # FrozenLake pays 1 for reaching the goal, which the best action does with probability 1/3
    assert np.asarray(ox.make(ICE).reward).max() == pytest.approx(1 / 3)
    assert occupancy_smoothness(ox.Problem(ox.make(ICE))) == pytest.approx((1.0, 0.0, 0.0))
    # draws of +1 and -1 cancel in the expected reward, not in an estimate
    reward = np.zeros((2, 3, 2))
    reward[:, :, 0], reward[:, :, 1] = 1.0, -1.0
    assert occupancy_smoothness(ox.Problem(table(reward))) == pytest.approx((1.0, 0.0, 0.0))


def test_what_a_terminal_state_pays_counts_only_if_it_absorbs():
    env = table([[1.0, 0.0, 0.0], [5.0, 0.0, 0.0]], terminal=[False, True])
    assert occupancy_smoothness(ox.Problem(env)).gradient_bound == pytest.approx(1.0)
    assert occupancy_smoothness(ox.Problem(env, termination="absorbing")).gradient_bound == pytest.approx(5.0)


def test_weights_on_pairs_are_a_reward_of_their_own():
    problem = ox.Problem(table(np.zeros((2, 3))), ox.utilities.Linear([[0.0, 1.0, -4.0], [2.0, 0.0, 0.0]]))
    assert occupancy_smoothness(problem) == pytest.approx((4.0, 0.0, 0.0))


def test_the_constants_hold_for_a_sum_over_stacked_features():
    rng = np.random.default_rng(0)
    env = table(rng.normal(size=(2, 3)))
    problem = ox.Problem(env, ox.utilities.Reward() + 2.0 * ox.utilities.LogCoverage(sigma=0.5), discount=0.5)
    constants = occupancy_smoothness(problem)
    phi = np.concatenate([np.asarray(env.reward).reshape(6, 1), np.repeat(np.eye(2), 3, axis=0)], 1)
    slopes = [
        (point, phi @ np.asarray(problem.utility.gradient(jnp.asarray(phi.T @ point))))
        for point in rng.dirichlet(np.ones(6), size=20)
    ]
    for one, slope in slopes:
        assert np.abs(slope).max() <= constants.gradient_bound
        for two, other in slopes:
            change = np.abs(slope - other).max()
            assert change <= constants.l2 * np.linalg.norm(one - two) + 1e-5
            assert change <= constants.l1 * np.abs(one - two).sum() + 1e-5


@pytest.mark.parametrize(
    "utility",
    [
        ox.utilities.SetDistance(np.ones((2, 3)), ox.utilities.Box([0.0], [1.0])),
        ox.utilities.Entropy(smoothing=0.0),
        lambda u: u.sum(),
    ],
)
def test_utilities_without_finite_constants_are_refused(utility):
    problem = ox.Problem(table(np.zeros((2, 3))), utility)
    with pytest.raises(ValueError, match=r"needs a utility with finite constants, but .* has gradient_bound=inf"):
        occupancy_smoothness(problem)


def test_a_table_brings_the_constants_of_its_softmax():
    constants = asdict(problem_constants(ox.Problem(ox.make(ICE), discount=0.9)))
    utility = {"lipschitz_utility": 1.0, "smoothness_utility": 0.0, "smoothness_utility_l1": 0.0}
    assert constants == pytest.approx({"discount": 0.9, **utility, **ox.theory.TABULAR_SOFTMAX})


def test_json_holds_every_number_of_the_plan(run):
    code, out, err = run("theory", ICE, "--utility", "log-coverage", "--discount", "0.9", "--epsilon", "0.1", "--json")
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
    assert [plan[name] for name in ("horizon", "batch", "epoch_length", "snapshot_batch")] == [47, 10, 10, 100]
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
    assert str(ox.theory.plan(0.1, problem_constants(problem))) in out
    assert "smoothness_utility_l1" in out
    assert "far too small for practice" in out
    assert "assumption:over-para" not in out


def test_a_linear_utility_is_told_that_one_theorem_does_not_apply(run):
    _, out, _ = run("theory", ICE)
    assert "assumption:over-para, which a linear utility" in out


def test_settings_reach_the_utility_and_the_environment(run):
    code, out, err = run(
        "theory", ICE, "--utility", "log-coverage", "--json", "--set", "utility.sigma=0.5", "env.is_slippery=false"
    )
    assert (code, err) == (0, "")
    assert json.loads(out)["constants"]["lipschitz_utility"] == pytest.approx(2.0)


def test_without_a_table_all_constants_are_given(run):
    code, out, err = run(
        *("theory", "CartPole-v1", "--lipschitz-psi", "2", "--smoothness-psi", "3", "--reward-bound", "1", "--json")
    )
    assert (code, err) == (0, "")
    constants = json.loads(out)["constants"]
    assert [constants[name] for name in ("lipschitz_psi", "smoothness_psi", "lipschitz_utility")] == [2.0, 3.0, 1.0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("FrozenLake-v2",), "Did you mean 'FrozenLake-v1'"),
        ((ICE, "--utility", "log-coverag"), "Did you mean 'log-coverage'"),
        ((ICE, "--epsilon", "0"), "`epsilon` is 0.0; it must be positive"),
        ((ICE, "--epsilon", "0.7"), "at most 0.5"),
        ((ICE, "--epsilon", "nan"), "`epsilon` is nan"),
        ((ICE, "--epsilon", "1e-200"), "too large to write down"),
        ((ICE, "--epsilon", "1e-310"), "too large to write down"),
        ((ICE, "--epsilon", "small"), "--epsilon"),
        ((ICE, "--discount", "1"), "discount must lie in [0, 1), got 1.0"),
        ((ICE, "--discount", "nan"), "discount must lie in [0, 1), got nan"),
        ((ICE, "--lipschitz-psi", "1"), "must both be given"),
        ((ICE, "--smoothness-psi", "1"), "must both be given"),
        ((ICE, "--lipschitz-psi", "-1", "--smoothness-psi", "1"), "`lipschitz_psi` is -1.0"),
        ((ICE, "--lipschitz-psi", "1", "--smoothness-psi", "inf"), "`smoothness_psi` is inf"),
        ((ICE, "--lipschitz-psi", "1e200", "--smoothness-psi", "1"), "too large to write down"),
        ((ICE, "--lipschitz-psi", "1e-200", "--smoothness-psi", "0"), "must be a positive finite number"),
        ((ICE, "--reward-bound", "1"), "reward_bound must be left out"),
        (("CartPole-v1",), "must both be given"),
        (("CartPole-v1", "--lipschitz-psi", "1", "--smoothness-psi", "1"), "reward_bound must be given"),
        (
            ("CartPole-v1", "--lipschitz-psi", "1", "--smoothness-psi", "1", "--reward-bound", "nan"),
            "reward_bound must be a finite number above 0, got nan",
        ),
        ((ICE, "--utility", "log-coverage", "--set", "utility.sigma=1e-200"), "too large to write down"),
        ((ICE, "--utility", "entropy", "--set", "utility.smoothing=1e-320"), "has gradient_bound="),
        (("CartPole-v1", "--utility", "entropy"), "tabular environment"),
        ((ICE, "--utility", "entropy", "--set", "utility.smoothing=0"), "a smoothing above 0"),
        ((ICE, "--utility", "entropy", "--set", "utility.smothing=1"), "Did you mean 'utility.smoothing'"),
        ((ICE, "--utility", "entropy", "--set", "smoothing=1"), "Did you mean 'utility.smoothing'"),
        ((ICE, "--utility", "entropy", "--set", "utility.smoothing=much"), "takes a number, got 'much'"),
        ((ICE, "--utility", "entropy", "--set", "utility.smoothing"), "must have the form name=value"),
        ((ICE, "--set", "env.slippery=false"), "slippery"),
        ((ICE, "--set", "env.name=3"), "setting 'env.name' is not known"),
        (("CartPole-v1", "--set", "env.wheels=4"), "does not take the options"),
        ((ICE, "--epsilom", "0.1"), "--epsilon"),
        ((), "environment"),
    ],
)
@pytest.mark.usefixtures("as_users_run")
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
    code, out, _ = run("list")
    assert code == 0
    (line,) = (line for line in out.splitlines() if line.startswith("  hspga"))
    for shown in ("snapshot_batch=100", "mixing=none", "radius=inf", "rule=gradient"):
        assert shown in line.split()
    assert "utility.sigma=0.125" in out
    assert "mlp" in out


def test_list_prints_json_for_machines(run):
    code, out, err = run("list", "--json")
    assert (code, err) == (0, "")
    listed = json.loads(out)
    assert ICE in listed["environments"]
    assert listed["utilities"]["log-coverage"] == {"utility.sigma": 0.125}
    assert listed["algorithms"]["tsivr-pg"]["batch"] == 10
    assert listed["algorithms"]["reinforce"]["radius"] == "Infinity"
    assert set(listed["policies"]) == {"tabular", "linear", "mlp"}
