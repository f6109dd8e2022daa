"""What is trained, for `train` and `sweep`: as the options that both have say, or as the folder of a run says."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import equinox as eqx
import tyro

import occupax as ox
from occupax import serial
from occupax.algorithms import Algorithm
from occupax.cli import names, settings
from occupax.cli.options import number, shown
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.policies import INITIALISERS
from occupax.samplers import SAMPLERS
from occupax.training.folder import read_config, untrusted_module
from occupax.training.setup import PolicySource, as_algorithm, default_algorithm, first_policy, make_setup

DEFAULTS: dict[str, Any] = {
    "utility": "reward",
    "algorithm": "reinforce",  # whose settings are meant where settings are given and no algorithm is
    "discount": 0.99,
    "termination": "episodic",
    "seeds": 1,
    "seed": 0,
    "record_every": 1,
}


@dataclass(frozen=True)
class Choices:
    """What was chosen on the command line; None is what was not, so that it can be told from the default."""

    env: Annotated[str | None, tyro.conf.Positional, shown("", "ENV")] = None
    utility: Annotated[str | None, shown(DEFAULTS["utility"], "NAME")] = None
    algorithm: Annotated[str | None, shown("plug-in for small tables, otherwise reinforce", "NAME")] = None
    policy: Annotated[str | None, shown("gaussian, tabular or mlp, by the environment", "NAME")] = None
    discount: Annotated[float | None, number(float), shown(DEFAULTS["discount"])] = None
    horizon: Annotated[int | None, number(int), shown("the time limit of the environment")] = None
    termination: Annotated[str | None, shown(DEFAULTS["termination"], "{episodic,absorbing}")] = None
    seeds: Annotated[int | None, number(int), shown(DEFAULTS["seeds"])] = None
    seed: Annotated[int | None, number(int), shown(DEFAULTS["seed"])] = None
    record_every: Annotated[int | None, number(int), shown(DEFAULTS["record_every"])] = None
    constrain: Annotated[tuple[str, ...], tyro.conf.arg(metavar="LIMIT ...", help_behavior_hint="")] = ()
    given: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="NAME=VALUE ...", help_behavior_hint="")] = ()


@dataclass(frozen=True)
class TrainingArguments:
    """What is to be trained, as `occupax.train` and `occupax.sweep` take it."""

    problem: ox.Problem
    algorithm: Algorithm[Any]
    options: dict[str, Any]
    """Further arguments of `occupax.train`: policy, seeds and so on."""
    title: str


def build(choices: Choices) -> TrainingArguments:
    """Make the problem, the algorithm and the options that were chosen."""
    if choices.env is None:
        raise ValueError("an environment must be given, for example FrozenLake8x8-v1; `occupax list` shows all.")
    chosen = DEFAULTS | {name: value for name, value in vars(choices).items() if value is not None}
    made = {"": as_algorithm(chosen["algorithm"]), "utility": names.utility(chosen["utility"])}
    given = {name: chosen.get(name) for name in ("discount", "horizon", "termination")}
    targets = settings.apply(settings.parse(choices.given), made | {"problem": given, "env": {}})
    limits = [names.constraint(text) for text in choices.constrain]
    env, utility = ox.make(choices.env, **_recording(targets["utility"], limits, targets["env"])), targets["utility"]
    problem = ox.Problem(env, utility, **targets["problem"], constraints=limits)
    reason = "the time limit of the environment" if targets["problem"]["horizon"] is None else ""
    if problem.horizon is None:  # a table has no clock of its own
        import gymnasium

        spec = gymnasium.registry.get(choices.env.rpartition(":")[2])
        horizon = None if spec is None else spec.max_episode_steps
        if horizon is None:
            horizon, reason = problem.effective_horizon, "less than 1% of the discounted mass is later"
        problem = ox.Problem(env, utility, **targets["problem"] | {"horizon": horizon}, constraints=limits)
    options = {"policy": choices.policy} | {name: chosen[name] for name in ("seeds", "seed", "record_every")}
    algorithm = targets[""]
    if choices.algorithm is None and algorithm is made[""]:  # neither a name nor a setting was given
        algorithm = default_algorithm(problem, first_policy(problem, choices.policy, 0, 0))
    return TrainingArguments(problem, algorithm, options, describe(problem, algorithm, f"on {choices.env}", reason))


def make_problem(
    env: str, utility: str, given: Sequence[str], constrain: Sequence[str] = (), **options: Any
) -> ox.Problem:
    """A problem from names, `--set` and `--constrain`; `options` are further arguments of `occupax.Problem`."""
    targets = settings.apply(settings.parse(given), {"utility": names.utility(utility), "env": {}})
    limits = [names.constraint(text) for text in constrain]
    made = ox.make(env, **_recording(targets["utility"], limits, targets["env"]))
    return ox.Problem(made, targets["utility"], **options, constraints=limits)


def _recording(utility: Any, limits: Sequence[ox.Constraint], options: dict[str, Any]) -> dict[str, Any]:
    """The options of an environment that records the values of its info that are counted."""
    counted = [utility.features(), *(limit.subject.features() for limit in limits)]
    parts = [part for it in counted for part in (it.parts if isinstance(it, ox.features.Stack) else (it,))]
    wanted = [name for part in parts if isinstance(part, ox.features.Info) for name in part.names]
    return options | {"info": [*options.get("info", ()), *wanted]} if wanted else options


def describe(problem: ox.Problem, algorithm: Algorithm[Any], where: str, reason: str = "") -> str:
    """One line about what is trained; `reason` says where the horizon comes from."""
    why = f" ({reason})" if reason else ""
    limits = "".join(f", {constraint}" for constraint in problem.constraints)
    return (
        f"{type(algorithm).__name__} maximises {type(problem.objective).__name__} {where}{limits}: discount "
        f"{problem.discount:g}, horizon {problem.horizon}{why}, {problem.termination}"
    )


def restore(folder: Path, trust: bool = False) -> tuple[TrainingArguments, int]:
    """What is trained in a folder, and for how many episodes; with `trust` in an environment of any module."""
    config, arrays = read_config(folder)
    if (module := untrusted_module(config["setup"])) and not trust:
        hint = "repeat the command that began it, with --resume, or add --trust if you trust the folder"
        raise ValueError(f"to make the environment of {folder} the module {module!r} is imported: {hint}.")
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
    random_numbers = options.pop("random_numbers")
    options["sampler"] = "auto" if isinstance(problem.env, GymnasiumEnv) else random_numbers
    if options["sampler"] not in ("auto", *SAMPLERS):
        raise ValueError(f"the run was sampled by {random_numbers}, which no file can restore: resume it in Python.")
    training = TrainingArguments(problem, algorithm, options, describe(problem, algorithm, f"as in {folder}"))
    if len(options["seeds"]) > 1 and not any((folder / "checkpoint").glob("iteration-*.safetensors")):
        options["policy"] = _initialiser(training, folder)
    return training, config["episodes"]


def _initialiser(training: TrainingArguments, folder: Path) -> PolicySource:
    """What made the first policies of a run without a checkpoint, whose folder has that of the first seed only."""
    for name in INITIALISERS:
        options: dict[str, Any] = {**training.options, "policy": name, "seeds": training.options["seeds"][:1]}
        try:
            made = make_setup(training.problem, [training.algorithm], **options).policies[0]
        except ValueError:  # it is not for this environment
            continue
        if eqx.tree_equal(made, training.options["policy"]):
            return name
    raise ValueError(
        f"{folder} has no checkpoint yet, and its first policies were made in Python: start the run there again."
    )
