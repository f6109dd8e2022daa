"""The command line with environments of one's own, and with other samplers."""

import signal
from pathlib import Path

import equinox as eqx
import pytest

import occupax as ox
import simulators
from commands import occupax
from occupax.cli import names

SIZES = ("--algorithm", "tsivr-pg", "--set", "snapshot_batch=4", "batch=2", "epoch_length=2")
RUN = (
    "train",
    "simulators:Chain",
    "--utility",
    "log-coverage",
    "--horizon",
    "6",
    "--no-progress",
    *SIZES,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of 18 episodes, and what it said."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    code, out, err = occupax(*RUN, "--episodes", 18, "--out", folder)
    assert (code, err) == (0, "")
    return folder, out


def test_an_environment_of_ones_own_is_trained_by_name(whole: tuple[Path, str]):
    folder, out = whole
    assert "LogCoverage on simulators:Chain" in out
    assert (folder / "policies").is_dir()


def test_its_policies_are_evaluated_there(whole: tuple[Path, str]):
    code, out, err = occupax(
        "evaluate", whole[0], "simulators:Chain", "--episodes", 5, "--max-steps", 6
    )
    assert (code, err) == (0, "")
    assert "simulators:Chain, 5 episodes each" in out


def test_the_same_command_resumes_it_with_another_sampler(whole: tuple[Path, str], tmp_path: Path):
    assert occupax(*RUN, "--episodes", 12, "--out", tmp_path / "run")[0] == 0
    code, _, err = occupax("train", "--out", tmp_path / "run", "--resume")
    assert code == 2
    assert "repeat the command that began it, with --resume" in err
    code, _, err = occupax(
        *RUN, "--episodes", 18, "--out", tmp_path / "run", "--resume", "--workers", 2
    )
    assert (code, err) == (0, "")
    one, other = (ox.load_result(folder).policy() for folder in (whole[0], tmp_path / "run"))
    assert eqx.tree_equal(one, other)


def test_an_interruption_asks_for_the_command_that_names_the_environment(tmp_path: Path):
    """The folder has no environment that was made by a function."""
    problem = ox.Problem(ox.GymnasiumEnv(simulators.Chain), "entropy", horizon=6)
    message = r"to resume: repeat the command with --resume \(in Python: resume=True\)"
    with pytest.raises(KeyboardInterrupt, match=message):
        ox.train(
            problem,
            ox.REINFORCE(batch=2),
            20,
            callbacks=[lambda _: signal.raise_signal(signal.SIGINT)],
            out=tmp_path / "run",
            progress=False,
        )


@pytest.mark.parametrize(
    ("text", "sampler"),
    [
        ("jax", ox.samplers.Jax()),
        ("4", ox.samplers.Host(envs=4, processes=True)),
        ("ray", ox.samplers.Ray()),
        ("ray:3", ox.samplers.Ray(workers=3)),
        ("ray://head:10001", ox.samplers.Ray(address="ray://head:10001")),
    ],
)
def test_workers_are_named_in_one_word(text: str, sampler: ox.samplers.Sampler):
    assert names.sampler(text) == sampler


@pytest.mark.parametrize(
    "text", ["many", "-1", "0", "2.5", "ray:", "ray:x", "ray:0", "http://head"]
)
def test_workers_that_make_no_sense_are_refused(text: str):
    code, _, err = occupax(*RUN, "--episodes", 8, "--workers", text)
    assert code == 2
    assert "--workers must be" in err or "must be an integer of at least 1" in err
