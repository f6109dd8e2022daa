import dataclasses
import errno
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
import pytest
import tyro

import occupax as ox
from commands import occupax, run
from occupax import cli
from occupax.algorithms import ALGORITHMS
from occupax.analysis.verdict import short
from occupax.cli.choices import Choices, build
from occupax.cli.commands.explain import read_sections
from occupax.cli.hyperparameters import Hyperparameters, describe_field
from occupax.cli.output import print_line, print_table
from occupax.problem import as_problem
from occupax.training.setup import make_setup
from own_algorithms import Storm


@pytest.mark.parametrize("command", [*cli.COMMANDS, "choices"])
def test_every_option_has_a_help_text(command):
    function = cli.COMMANDS.get(command, Choices)
    documented = re.findall(
        r"^ {4}(\w+): \w", (inspect.getdoc(function) or "").partition("Args:")[2], re.MULTILINE
    )
    assert documented == list(inspect.signature(function).parameters)


def test_options_of_the_algorithms_are_documented_by_their_docstrings():
    fields = {
        field.name for algorithm in ALGORITHMS.values() for field in dataclasses.fields(algorithm)
    }
    assert {field.name for field in dataclasses.fields(Hyperparameters)} == fields
    for algorithm in ALGORITHMS.values():
        for field in dataclasses.fields(algorithm):
            assert describe_field(algorithm, field.name), (algorithm, field.name)


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_calls_values_by_words(command):
    code, out, _ = occupax(command, "--help")
    assert code == 0
    assert not re.search(r"\b(STR|INT|FLOAT|PATH|None|False)\b|\(default: \)", out)


def test_the_version_is_told():
    assert occupax("--version") == (0, f"occupax {ox.__version__}\n", "")


def parsed(*words):
    """Return the choices that `occupax train` reads."""
    return tyro.cli(Choices, args=words, config=(tyro.conf.FlagCreatePairsOff,))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("E --step-size 0.1", {"step_size": "0.1"}),
        ("--step-size=-1 E", {"step_size": "-1"}),
        ("E --step-size -1", {"step_size": "-1"}),
        (
            "E --set radius=2 --algorithm tsivr-pg --epoch-length 5",
            {"radius": "2", "epoch_length": "5"},
        ),
        ("E --seeds 5 --batch 1e2", {"batch": "1e2"}),
        ("E --set utility.sigma=5", {"utility.sigma": "5"}),
        ("E", {}),
    ],
)
def test_hyperparameters_are_options_too(words, expected):
    assert parsed(*words.split()).settings() == expected


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        ("train E --stepsize 0.1", "--step-size VALUE"),
        ("sweep E --over batch=1 --episodes 5 --recordevery 2", "--record-every N"),
        ("report a --outt b.html", "--out FILE"),
        ("solve E --discuont 0.9", "--discount X"),
    ],
)
def test_an_option_that_does_not_exist_names_the_nearest_one(words, nearest):
    code, _, err = occupax(*words.split())
    assert code == 2
    assert "Perhaps you meant" in err
    assert nearest in err


def test_a_hyperparameter_of_other_algorithms_names_them():
    words = ("train", LAKE, "--episodes", "50", "--algorithm", "reinforce", "--epoch-length=5")
    expected = (
        "occupax: reinforce has no setting 'epoch_length': "
        "use --algorithm svrpg or srvr-pg or hspga or tsivr-pg.\n"
    )
    assert occupax(*words) == (2, "", expected)


def test_an_algorithm_of_a_module_is_trained():
    chosen = Choices(env=LAKE, algorithm="own_algorithms:Storm", assignments=("fresh=0.25",))
    training = build(chosen)
    assert eqx.tree_equal(training.algorithm, Storm(fresh=0.25))


def test_a_hyperparameter_is_set_once():
    words = ("train", LAKE, "--episodes", "50", "--step-size", "2", "--set", "step_size=3")
    expected = "occupax: --step-size must not be in --set too, got '3' and '2'.\n"
    assert occupax(*words) == (2, "", expected)


LAKE = "FrozenLake-v1"


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"assignments": ("step_size=0.1",)}, ox.PlugIn(step_size=0.1)),
        ({"assignments": ("output=best", "prior=0.5")}, ox.PlugIn(output="best", prior=0.5)),
        ({"assignments": ("batch=7",), "policy": "mlp"}, ox.PPO(batch=7)),
        ({"env": "CartPole-v1", "assignments": ("step_size=0.1",)}, ox.PPO(step_size=0.1)),
        ({"env": "Pendulum-v1", "assignments": ("batch=8",)}, ox.PPO(batch=8)),
        (
            {"assignments": ("step_size=0.1",), "algorithm": "reinforce"},
            ox.REINFORCE(step_size=0.1),
        ),
    ],
)
def test_an_option_changes_itself_and_not_the_algorithm(chosen, expected):
    training = build(Choices(**{"env": LAKE} | chosen))
    assert eqx.tree_equal(training.algorithm, expected)
    if "algorithm" not in chosen:  # and the algorithm is that of `ox.train`
        default = make_setup(
            training.problem, [None], chosen.get("policy"), 1, 0, 1, exact=False
        ).algorithms[0]
        assert type(default) is type(expected)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("train", "--mixing", "0.5"), "'mixing': add --algorithm reinforce to use it."),
        (("train", "--set", "restarts=true"), "'restarts': add --algorithm reinforce to use it."),
        (("sweep", "--epoch-length", "5", "--over", "batch=5"), "add --algorithm svrpg to use it."),
        (("sweep", "--over", "mixing=0.5,1"), "'mixing': add --algorithm reinforce to use it."),
    ],
)
def test_an_option_that_the_default_algorithm_does_not_have_names_one_that_has_it(words, hint):
    code, _, err = occupax(words[0], LAKE, "--episodes", "50", *words[1:])
    assert code == 2
    assert err.startswith("occupax: PlugIn, the default algorithm of this problem, has no setting ")
    assert hint in err
    assert err.count("\n") == 1


def test_the_first_command_of_the_readme_is_its_first_example():
    """So that both give the same numbers: the same problem, algorithm, budget and seeds."""
    text = (Path(__file__).parents[2] / "README.md").read_text()
    words = next(
        line for line in text.splitlines() if line.startswith("    occupax train ")
    ).split()[2:]
    assert words[:7] == [
        "FrozenLake8x8-v1",
        "--utility",
        "log-coverage",
        "--episodes",
        "10000",
        "--seeds",
        "5",
    ]
    chosen = build(Choices(env=words[0], utility=words[2], seeds=int(words[6])))
    code = text.partition("```python\n")[2].partition("```")[0]
    setup, _, call = code.partition("result = ")
    found: dict[str, Any] = {}
    exec(setup, found)  # noqa: S102
    assert call.startswith("ox.train(problem, ox.PlugIn(), episodes=10_000, seeds=5)")
    assert eqx.tree_equal(found["problem"], chosen.problem)
    setup = make_setup(found["problem"], [None], None, 1, 0, 1, exact=False)
    assert eqx.tree_equal(chosen.algorithm, ox.PlugIn())
    assert type(setup.algorithms[0]) is ox.PlugIn
    assert chosen.options == {"policy": None, "seeds": 5, "seed": 0, "record_every": 1}


def test_an_option_without_a_value_is_an_error():
    code, _, err = occupax("train", "FrozenLake-v1", "--episodes", 10, "--step-size")
    assert code == 2
    assert "Missing value for argument '--step-size'" in err


def test_solve_prints_a_table_of_exact_and_sampled_values():
    words = ("--utility", "log-coverage", "--discount", "0.9", "--trajectories", "500")
    code, out, err = occupax("solve", "FrozenLake-v1", *words)
    assert (code, err) == (0, "")
    problem = ox.Problem(
        ox.make("FrozenLake-v1"), ox.utilities.LogCoverage(), discount=0.9, horizon=100
    )
    assert short(ox.solve(problem).value) in out
    assert "uniform" in out
    assert "sampled" in out
    assert "horizon 100 (the time limit of the environment), episodic" in " ".join(out.split())
    assert out.splitlines()[-1].startswith(
        "optimal: the best policy for 100 steps. The policy may depend on time. "
    )


@pytest.mark.parametrize(
    "name", ["FrozenLake-v1", "CliffWalking-v1"]
)  # with a limit in Gymnasium, and without
def test_train_and_solve_have_the_same_default_horizon(name):
    """On the command line and in Python, so that the optimum of one is that of the other."""
    trained = build(Choices(env=name)).problem
    code, out, err = occupax("solve", name, "--trajectories", "0", "--json")
    assert (code, err) == (0, "")
    printed = json.loads(out)
    assert (
        printed["horizon"]
        == trained.horizon
        == as_problem(name).horizon
        == as_problem(ox.make(name)).horizon
    )
    assert eqx.tree_equal(as_problem(name), trained)
    # value iteration on dense arrays, over the default horizon
    rewards, terminal = trained.env.reward, trained.env.terminal
    table = trained.env.transition.toarray().reshape(*rewards.shape, -1)
    values = np.zeros(len(rewards))
    for _ in range(trained.horizon):
        values = np.where(terminal, 0.0, (rewards + 0.99 * table @ values).max(1))
    best = trained.env.initial @ values
    assert printed["policies"][1]["utility"] == pytest.approx(best, abs=1e-9)
    assert ox.solve(name).value == pytest.approx(best, abs=1e-9)
    result = ox.train(name, episodes=100, progress=False)
    assert result.references is not None
    assert result.references.optimum == pytest.approx(best, abs=1e-9)


def test_solve_takes_a_word_for_the_infinite_horizon():
    code, out, err = occupax(
        "solve", "FrozenLake-v1", "--horizon", "infinite", "--trajectories", "0"
    )
    assert (code, err) == (0, "")
    best = ox.exact.value_iteration(ox.Problem("FrozenLake-v1")).value
    assert short(best) in out
    assert "horizon infinite, episodic" in " ".join(out.split())
    assert (
        out.splitlines()[-1]
        == "optimal: the best policy for infinitely many steps. The policy is stationary."
    )


def test_training_for_infinitely_many_steps_is_refused():
    code, _, err = occupax("train", "FrozenLake-v1", "--horizon", "infinite", "--episodes", "50")
    assert code == 2
    assert "horizon must be finite for training, got infinite: use `occupax solve`" in err
    code, out, err = occupax("solve", "FrozenLake-v1", "--horizon", "long")
    assert code == 2
    assert "must be an integer or infinite" in out + err


def test_solve_takes_settings_of_the_utility_and_the_environment():
    words = ("--set", "utility.sigma=0.5", "env.is_slippery=false", "--trajectories", "0", "--json")
    code, out, err = occupax(
        "solve", "FrozenLake-v1", "--utility", "log-coverage", "--discount", "0.9", *words
    )
    assert (code, err) == (0, "")
    env = ox.make("FrozenLake-v1", is_slippery=False)
    best = ox.solve(ox.Problem(env, ox.utilities.LogCoverage(0.5), discount=0.9, horizon=100))
    assert json.loads(out)["policies"][1]["utility"] == pytest.approx(best.value, abs=1e-6)


def test_solve_prints_json_for_machines():
    words = ("--discount", "0.9", "--horizon", "20", "--json", "--trajectories", "2000")
    code, out, err = occupax("solve", "FrozenLake-v1", *words)
    assert (code, err) == (0, "")
    uniform, optimal = json.loads(out)["policies"]
    best = ox.exact.value_iteration(
        ox.Problem(ox.make("FrozenLake-v1"), discount=0.9, horizon=20)
    ).value
    assert optimal["utility"] == pytest.approx(best, abs=1e-9)
    assert (
        "sampled" not in optimal
    )  # the optimum depends on time: there is no stationary policy to sample
    # the return of an episode is 0.9^t or 0, so its deviation is below 0.5 and that of 2,000 below
    # 0.012
    assert uniform["sampled"] == pytest.approx(uniform["exact at these steps"], abs=0.05)


def test_list_names_what_there_is():
    done = run("list")
    assert done.returncode == 0
    for name in [
        *ox.envs.list(),
        "log-coverage",
        "visit every state",
        "tsivr-pg",
        "squashed",
    ]:
        assert name in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("solve", "FrozenLake8x9-v1"), "Did you mean 'FrozenLake8x8-v1'"),
        (("solve", "FrozenLake-v1", "--utility", "entrop"), "Did you mean 'entropy'"),
        (("solve", "FrozenLake-v1", "--discount", "1.5"), "discount must lie in [0, 1], got 1.5"),
        (("solve", "CartPole-v1"), "tabular environment"),
        (("solve", "[/bold]"), "'[/bold]' is not known"),
        (("solve", "FrozenLake-v1", "--dicsount", "0.9"), "--discount"),
        (("solve",), "environment"),
        (("sovle",), "solve"),
    ],
)
def test_mistakes_end_in_a_sentence_and_exit_code_2(arguments, said):
    code, out, err = occupax(*arguments)
    assert code == 2
    assert said in out + err
    assert "Traceback" not in out + err


def test_the_exit_code_and_the_sentence_leave_the_process():
    done = run("solve", "FrozenLake8x9-v1")
    assert done.returncode == 2
    assert "Did you mean 'FrozenLake8x8-v1'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_tolerance_out_of_reach_is_no_failure():
    code, out, err = occupax(
        *("solve", "FrozenLake-v1", "--utility", "log-coverage", "--horizon", "infinite"),
        *("--tolerance", "1e-300", "--time-limit", "1"),
    )
    assert code == 0
    assert re.search("status: (stalled|time limit) after", out)
    assert "Traceback" not in out + err


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is a device of Linux")
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_full_disk_behind_the_output_is_a_sentence(options, compiled_fast):
    command = [
        sys.executable,
        "-m",
        "occupax",
        "solve",
        "FrozenLake-v1",
        "--horizon",
        "5",
        *options,
    ]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, env=compiled_fast, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (1, f"occupax: {os.strerror(errno.ENOSPC)}.\n")


def test_an_interruption_ends_in_a_word_and_exit_code_130(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setitem(cli.COMMANDS, "list", interrupted)
    monkeypatch.setattr(sys, "argv", ["occupax", "list"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 130
    assert capsys.readouterr().err == "occupax: interrupted.\n"


def test_names_with_colons_are_printed_as_they_are(capsys):
    title = "Reward on battery:Battery: discount 0.99"
    print_line(title)
    print_table(title, [{"name": "a:battery:"}])
    shown = capsys.readouterr().out
    assert shown.count("battery:Battery: discount") == 2
    assert "a:battery:" in shown


def test_tables_do_not_break_words_and_numbers(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    row = {f"column-{i}": f"value-{i}-of-the-table" for i in range(5)}
    print_table("a title with a_name_that_is_longer_than_the_table", [row | {"number": 1234.5678}])
    shown = capsys.readouterr().out
    words = [*row, *row.values(), "1,235", "a_name_that_is_longer_than_the_table"]
    assert all(word in shown for word in words)


SENTENCE = "no number such as 0.123456789 and no word is broken by a narrow terminal " * 3


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_terminal_breaks_lines_between_words(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    print_line(f"  {SENTENCE}")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert all(line.startswith("  ") for line in lines)
    assert " ".join(lines).split() == SENTENCE.split()


def test_a_pipe_has_lines_as_they_are(capsys):
    print_line(SENTENCE)
    assert capsys.readouterr().out == f"{SENTENCE}\n"


def test_a_table_fits_a_terminal_if_its_words_do(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    row = {"policy": "optimal", "utility": "-25.15 [-28.1, -22.21]"}
    print_table("", [row | {"exact at these steps": "depends on time", "sampled": 0.25}])
    lines = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 60
    shown = "\n".join(lines)
    assert all(word in shown for word in ("optimal", "-25.15", "-22.21]", "depends", "0.250"))


def test_explain_has_every_finding_of_the_diagnosis():
    sections = read_sections()
    code, out, err = occupax("explain", "no-progress")
    assert (code, err) == (0, "")
    assert out == f"no-progress\n{sections['no-progress']}\n"
    assert "raise `step_size`" in out
    code, out, _ = occupax("explain")
    assert [line.partition(":")[0] for line in out.splitlines()] == list(sections)
    code, _, err = occupax("explain", "no-progres")
    assert code == 2
    assert "Did you mean 'no-progress'?" in err


def test_list_fits_a_screen_and_names_one_kind_or_the_settings_of_one_name():
    _, out, _ = occupax("list")
    lines = out.splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 80
    code, out, _ = occupax("list", "storm", "--json")
    assert code == 0
    assert set(json.loads(out)) == {"algorithms"}
    assert "fresh" in json.loads(out)["algorithms"]["storm"]
    code, _, err = occupax("list", "strom")
    assert code == 2
    assert "Did you mean 'storm'?" in err
