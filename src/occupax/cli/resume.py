"""The run in a folder, taken up again."""

from pathlib import Path
from typing import Any

import equinox as eqx

from occupax import serial
from occupax.cli import names
from occupax.cli.choices import TrainingArguments, describe
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.problem import Problem
from occupax.samplers.choice import SAMPLERS
from occupax.training.folder import read_config
from occupax.training.setup import PolicySource, make_setup


def restore(folder: Path) -> tuple[TrainingArguments, int]:
    """What is trained in a folder, and for how many episodes."""
    config, arrays = read_config(folder)
    try:
        options: dict[str, Any] = serial.unpack({"dict": config["setup"]}, arrays)
    except ValueError as error:
        raise ValueError(
            f"the run in {folder} has parts that no file can restore: repeat the command that began it, with --resume, "
            f"or resume it in Python. {error}"
        ) from error
    problem, algorithm = options.pop("problem"), options.pop("algorithm")
    if isinstance(algorithm, list):
        raise ValueError(f"{folder} is a part of a sweep: repeat the command that began it, with --resume.")
    options["sampler"] = _sampler(options.pop("random_numbers"), problem)
    training = TrainingArguments(problem, algorithm, options, describe(problem, algorithm, f"as in {folder}"))
    if len(options["seeds"]) > 1 and not any((folder / "checkpoint").glob("iteration-*.safetensors")):
        options["policy"] = _initialiser(training, folder)
    return training, config["episodes"]


def _sampler(random_numbers: str, problem: Problem) -> str:
    """The name of a sampler that draws with the same random numbers."""
    if isinstance(problem.env, GymnasiumEnv):
        return "auto"
    if random_numbers not in SAMPLERS:
        raise ValueError(f"the run was sampled by {random_numbers}, which no file can restore: resume it in Python.")
    return random_numbers


def _initialiser(training: TrainingArguments, folder: Path) -> PolicySource:
    """What made the first policies of a run without a checkpoint, whose folder has that of the first seed only."""
    for name in names.POLICIES:
        initialiser = names.policy(name)
        options: dict[str, Any] = {**training.options, "policy": initialiser, "seeds": training.options["seeds"][:1]}
        try:
            made = make_setup(training.problem, [training.algorithm], **options).policies[0]
        except ValueError:  # it is not for this environment
            continue
        if eqx.tree_equal(made, training.options["policy"]):
            return initialiser
    raise ValueError(
        f"{folder} has no checkpoint yet, and its first policies were made in Python: start the run there again."
    )
