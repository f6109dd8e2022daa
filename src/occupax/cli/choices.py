"""Arguments of `train` and `sweep`, read from the command line or from the folder of a run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import equinox as eqx
import tyro

import occupax as ox
from occupax.algorithms import Algorithm, Budget
from occupax.cli import names, settings
from occupax.cli.hyperparameters import Hyperparameters, algorithms_with, chosen_texts
from occupax.cli.options import INFINITE, Horizon, number, option_name, shown
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.io import codec
from occupax.io.run_folder import read_config, untrusted_module
from occupax.policies import INITIALISERS
from occupax.problem import default_horizon
from occupax.samplers import SAMPLERS
from occupax.training.grid import POLICY
from occupax.training.outcomes import budget_of
from occupax.training.setup import (
    PolicySource,
    default_algorithm,
    first_policy,
    make_setup,
    policy_source,
)

DEFAULTS: dict[str, Any] = {
    "utility": "reward",
    "discount": 0.99,
    "termination": "episodic",
    "seeds": 1,
    "seed": 0,
    "record_every": 1,
}
REPEAT = "repeat the command that began it, with --resume"
"""Remedy for a run that only its original command can resume."""


@dataclass(frozen=True)
class Choices:
    """Options that `train` and `sweep` share. None stands for an option that was not set.

    Args:
        env: an environment, see `occupax list`; any other Gymnasium id; or module:factory.
        utility: utility to maximise, see `occupax list`.
        algorithm: algorithm, see `occupax list`; or module:Class.
        policy: tabular, linear, mlp, cnn, gaussian or squashed; or a file of a trained policy, or
            the directory of a run, to go on from.
        discount: discount factor, in [0, 1]; 1 needs a finite horizon.
        horizon: number of steps; infinite is for `occupax solve`.
        termination: whether steps after the end of an episode count.
        seeds: number of seeds.
        seed: number that all random keys depend on. Run k depends on this number and on k alone.
        record_every: number of iterations in a record.
        constrain: constraints such as 'info.cost<=25' or 'entropy>=1.0'.
        assignments: settings such as policy.hidden=64x64 utility.sigma=0.5 env.is_slippery=false
            and hyperparameters such as step_size=0.05.
        hyperparameters: hyperparameters of the algorithm.
    """

    env: Annotated[str | None, tyro.conf.Positional, shown("", "ENV")] = None
    utility: Annotated[str | None, shown(DEFAULTS["utility"], "NAME")] = None
    algorithm: Annotated[
        str | None, shown("plug-in for small tables, ppo for networks, otherwise reinforce", "NAME")
    ] = None
    policy: Annotated[str | None, shown("gaussian, tabular or mlp, by the environment", "NAME")] = (
        None
    )
    discount: Annotated[float | None, number(float), shown(DEFAULTS["discount"])] = None
    horizon: Horizon = None
    termination: Annotated[str | None, shown(DEFAULTS["termination"], "{episodic,absorbing}")] = (
        None
    )
    seeds: Annotated[int | None, number(int), shown(DEFAULTS["seeds"])] = None
    seed: Annotated[int | None, number(int), shown(DEFAULTS["seed"])] = None
    record_every: Annotated[int | None, number(int), shown(DEFAULTS["record_every"])] = None
    constrain: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="LIMIT ...", help_behavior_hint="")
    ] = ()
    assignments: Annotated[
        tuple[str, ...], tyro.conf.arg(name="set", metavar="NAME=VALUE ...", help_behavior_hint="")
    ] = ()
    hyperparameters: tyro.conf.OmitArgPrefixes[Hyperparameters] = field(  # pyright: ignore[reportInvalidTypeForm]
        default_factory=Hyperparameters
    )

    def settings(self) -> dict[str, str]:
        """Return the texts of `--set` and of the options of the algorithm, by name."""
        texts = settings.parse(self.assignments)
        for name, text in chosen_texts(self.hyperparameters).items():
            if name in texts:
                values = f"{texts[name]!r} and {text!r}"
                raise ValueError(f"{option_name(name)} must not be in --set too, got {values}.")
            texts[name] = text
        return texts

    def used_options(self) -> list[str]:
        """Return the options that were set, as they are written on the command line."""
        names = [name for name, value in vars(self).items() if value not in (None, ())]
        names.remove("hyperparameters")
        names.extend(chosen_texts(self.hyperparameters))
        return [option_name(name) for name in names]


@dataclass(frozen=True)
class TrainingArguments:
    """Arguments of `occupax.train` and `occupax.sweep`."""

    problem: ox.Problem
    algorithm: Algorithm[Any]
    options: dict[str, Any]
    """Further arguments of `occupax.train`: policy, seeds and so on."""
    title: str
    """Line that describes the training run."""


def build(choices: Choices) -> TrainingArguments:
    """Return the training arguments for the options of the command line."""
    if choices.env is None:
        raise ValueError(
            "ENV must be given, for example FrozenLake8x8-v1: "
            "`occupax list` shows all environments."
        )
    chosen = DEFAULTS | {name: value for name, value in vars(choices).items() if value is not None}
    if choices.algorithm is not None:
        names.algorithm(choices.algorithm)  # a misspelt name is an error before anything is made
    assignments = _Assignments.split(choices.settings())
    problem, reason = make_problem(
        choices.env,
        chosen["utility"],
        assignments.problem,
        choices.constrain,
        choices.horizon,
        discount=chosen["discount"],
        termination=chosen["termination"],
    )
    if problem.horizon is None:
        raise ValueError(
            f"horizon must be finite for training, got {INFINITE}: "
            "use `occupax solve`, or give a number of steps."
        )
    policy = _read_policy(choices.policy)
    if assignments.policy:
        if not isinstance(policy, str | None):
            raise ValueError(
                "settings of the policy must not be given for a trained policy, "
                f"got {', '.join(assignments.policy)}."
            )
        target = policy_source(problem.env, policy)
        policy = settings.apply(assignments.policy, {"policy": target})["policy"]
    algorithm = _algorithm(choices, problem, policy, assignments.algorithm)
    options: dict[str, Any] = {"policy": policy}
    for name in ("seeds", "seed", "record_every"):
        options[name] = chosen[name]
    title = describe(problem, algorithm, f"on {choices.env}", reason)
    return TrainingArguments(problem, algorithm, options, title)


class _Assignments(NamedTuple):
    """Settings of `--set` by their target."""

    algorithm: dict[str, str]
    policy: dict[str, str]
    problem: dict[str, str]
    """Settings of problem, utility and environment."""

    @classmethod
    def split(cls, values: Mapping[str, str]) -> "_Assignments":
        """Return the settings of a command line, split by their names."""
        assignments = cls({}, {}, {})
        for name, text in values.items():
            if "." not in name:
                assignments.algorithm[name] = text
            elif name.startswith(POLICY):
                assignments.policy[name] = text
            else:
                assignments.problem[name] = text
        return assignments


def _read_policy(text: str | None) -> PolicySource:
    """Return the name of an initialiser, or the trained policies of a file or of a run."""
    if text is None or text in INITIALISERS:
        return text
    path = Path(text)
    if path.is_dir():
        return ox.load_result(path)
    if path.suffix == ".safetensors" or path.is_file():
        return ox.load_policy(path)
    return text


def _algorithm(
    choices: Choices, problem: ox.Problem, policy: PolicySource, assignments: dict[str, str]
) -> Algorithm[Any]:
    """Return the named or default algorithm with the hyperparameters of the command line."""
    if choices.algorithm is None:
        algorithm = default_algorithm(problem, first_policy(problem, policy))
    else:
        algorithm = names.algorithm(choices.algorithm)
    check_settings(algorithm, choices.algorithm, assignments)
    targets = {"": algorithm, "utility": problem.objective, "env": {}}
    targets["problem"] = problem_settings(problem)
    return settings.apply(assignments, targets)[""]


def check_settings(algorithm: Algorithm[Any], name: str | None, fields: Iterable[str]) -> None:
    """Raise ValueError for hyperparameters of other algorithms.

    Args:
        algorithm: algorithm of the run.
        name: its name on the command line, None for the default algorithm.
        fields: hyperparameters that were set.
    """
    own = settings.known({"": algorithm})
    for field_name in fields:
        others = algorithms_with(field_name)
        if field_name in own or not others:
            continue
        if name is None:
            default = f"{type(algorithm).__name__}, the default algorithm of this problem"
            raise ValueError(
                f"{default}, has no setting {field_name!r}: add --algorithm {others[0]} to use it."
            )
        raise ValueError(
            f"{name} has no setting {field_name!r}: use --algorithm {' or '.join(others)}."
        )


def make_problem(
    env: str,
    utility: str,
    assignments: Mapping[str, str],
    constrain: Sequence[str] = (),
    horizon: int | str | None = None,
    **options: Any,
) -> tuple[ox.Problem, str]:
    """Return the problem with the names and settings of a command line.

    Args:
        env: name of the environment.
        utility: name of the utility.
        assignments: settings of `--set`.
        constrain: constraints of `--constrain`.
        horizon: number of steps, "infinite", or None for the default of `default_horizon`.
        **options: further arguments of `occupax.Problem`.

    Returns:
        The problem, and the reason for its default horizon, empty for a horizon that was set.
    """
    steps = None if horizon == INFINITE else horizon
    options["horizon"] = steps
    targets = {"utility": names.utility(utility), "env": {}, "problem": options}
    targets = settings.apply(dict(assignments), targets)
    constraints = [names.constraint(text) for text in constrain]
    env_options = _with_info(targets["env"], _info_names(targets["utility"], constraints))
    instance = ox.make(env, **env_options)
    options = targets["problem"]
    first = dict(options)
    if horizon is None and options.get("discount") == 1:
        first["discount"] = DEFAULTS["discount"]  # a discount of 1 needs a horizon
    problem = ox.Problem(instance, targets["utility"], **first, constraints=constraints)
    if horizon == INFINITE or options["horizon"] is not None:
        return problem, ""
    options["horizon"], reason = default_horizon(problem, env)
    if first["discount"] != options["discount"] and "time limit" not in reason:
        options["horizon"] = None  # an error names the remedy
    problem = ox.Problem(instance, targets["utility"], **options, constraints=constraints)
    return problem, reason


def problem_settings(problem: ox.Problem) -> dict[str, Any]:
    """Return discount, horizon and termination of a problem by name."""
    return {name: getattr(problem, name) for name in ("discount", "horizon", "termination")}


def _info_names(utility: Any, constraints: Sequence[ox.Constraint]) -> list[str]:
    """Return the keys of `info` that the utility and the constraints use as features."""
    parts: list[Any] = []
    for subject in [utility, *(constraint.subject for constraint in constraints)]:
        features = subject.features()
        is_stack = isinstance(features, ox.features.Stack)
        parts.extend(features.parts if is_stack else [features])
    keys: list[str] = []
    for part in parts:
        if isinstance(part, ox.features.Info):
            keys.extend(part.names)
    return keys


def _with_info(options: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """Return the options of an environment that records values of its `info`."""
    if not keys:
        return options
    return {**options, "info": [*options.get("info", ()), *keys]}


def describe(problem: ox.Problem, algorithm: Algorithm[Any], where: str, reason: str = "") -> str:
    """Return one line about a training run. `reason` explains the horizon."""
    constraints = "".join(f", {constraint}" for constraint in problem.constraints)
    algorithm_name = type(algorithm).__name__
    utility_name = type(problem.objective).__name__
    goal = f"{algorithm_name} maximises {utility_name} {where}{constraints}"
    return f"{goal}: {describe_future(problem, reason)}"


def describe_future(problem: ox.Problem, reason: str = "") -> str:
    """Return discount, horizon with its reason, and termination of a problem as text."""
    note = f" ({reason})" if reason else ""
    horizon = INFINITE if problem.horizon is None else problem.horizon
    return f"discount {problem.discount:g}, horizon {horizon}{note}, {problem.termination}"


def restore(folder: Path, trust: bool = False) -> tuple[TrainingArguments, Budget]:
    """Return the training arguments and the budget of the run in a folder."""
    config, arrays = read_config(folder)
    module = untrusted_module(config["setup"])
    if module and not trust:
        raise ValueError(
            f"the environment of {folder} needs an import of the module {module!r}: {REPEAT}, "
            "or add --trust if you trust the folder."
        )
    try:
        options: dict[str, Any] = codec.unpack({"dict": config["setup"]}, arrays)
    except ValueError as error:
        raise ValueError(
            f"the run in {folder} has parts that cannot be restored from a file: {REPEAT}, "
            f"or resume it in Python. {error}"
        ) from error
    problem = options.pop("problem")
    algorithm = options.pop("algorithm")
    if isinstance(algorithm, list):
        raise ValueError(f"{folder} is a part of a sweep: {REPEAT}.")
    random_numbers = options.pop("random_numbers")
    is_gymnasium = isinstance(problem.env, GymnasiumEnv)
    options["sampler"] = "auto" if is_gymnasium else random_numbers
    if options["sampler"] not in ("auto", *SAMPLERS):
        raise ValueError(
            f"the sampler {random_numbers} of the run cannot be restored from a file: "
            "resume the run in Python."
        )
    title = describe(problem, algorithm, f"as in {folder}")
    training = TrainingArguments(problem, algorithm, options, title)
    checkpoints = (folder / "checkpoint").glob("iteration-*.safetensors")
    if len(options["seeds"]) > 1 and not any(checkpoints):
        options["policy"] = _initialiser(training, folder)
    return training, budget_of(config)


def _initialiser(training: TrainingArguments, folder: Path) -> PolicySource:
    """Return the initialiser of the policies of a run without a checkpoint.

    The folder of such a run has the initial policy of the first seed only.
    """
    options = dict(training.options)
    options["seeds"] = training.options["seeds"][:1]
    for name in INITIALISERS:
        options["policy"] = name
        try:
            setup = make_setup(training.problem, [training.algorithm], **options)
        except ValueError:  # the initialiser is not for this environment
            continue
        if eqx.tree_equal(setup.policies[0], training.options["policy"]):
            return name
    raise ValueError(
        f"{folder} has no checkpoint yet, and its initial policies were created in Python: "
        "start the run again in Python."
    )
