"""Arguments of `train` and `sweep`, read from the command line or from the folder of a run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

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
    as_algorithm,
    default_algorithm,
    initial_policy,
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


@dataclass(frozen=True)
class Choices:
    """Options that `train` and `sweep` share. None stands for an option that was not set.

    Args:
        env: an environment, see `occupax list`; any other Gymnasium id; or module:factory.
        utility: utility to maximise, see `occupax list`.
        algorithm: algorithm, see `occupax list`.
        policy: tabular, linear, mlp, cnn, gaussian or squashed.
        discount: discount factor, in [0, 1).
        horizon: number of steps; infinite is for `occupax solve`.
        termination: whether steps after the end of an episode count.
        seeds: number of seeds.
        seed: number that all random keys depend on. Run k depends on this number and on k alone.
        record_every: number of iterations in a record.
        constrain: constraints such as 'info.cost<=25' or 'entropy>=1.0'.
        given: settings such as policy.hidden=64x64 utility.sigma=0.5 env.is_slippery=false, and
            hyperparameters such as step_size=0.05.
        hyperparameters: hyperparameters of the algorithm.
    """

    env: Annotated[str | None, tyro.conf.Positional, shown("", "ENV")] = None
    utility: Annotated[str | None, shown(DEFAULTS["utility"], "NAME")] = None
    algorithm: Annotated[
        str | None, shown("plug-in for small tables, otherwise reinforce", "NAME")
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
    given: Annotated[
        tuple[str, ...], tyro.conf.arg(name="set", metavar="NAME=VALUE ...", help_behavior_hint="")
    ] = ()
    hyperparameters: tyro.conf.OmitArgPrefixes[Hyperparameters] = field(  # pyright: ignore[reportInvalidTypeForm]
        default_factory=Hyperparameters
    )

    def settings(self) -> dict[str, str]:
        """Return the texts of `--set` and of the options of the algorithm, by name."""
        texts = settings.parse(self.given)
        for name, text in chosen_texts(self.hyperparameters).items():
            if name in texts:
                raise ValueError(
                    f"{option_name(name)} must not be in --set too, got {texts[name]!r} and "
                    f"{text!r}."
                )
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
    """What is to be trained, as `occupax.train` and `occupax.sweep` take it."""

    problem: ox.Problem
    algorithm: Algorithm[Any]
    options: dict[str, Any]
    """Further arguments of `occupax.train`: policy, seeds and so on."""
    title: str


def build(choices: Choices) -> TrainingArguments:
    """Make the problem, the algorithm and the options that were chosen."""
    if choices.env is None:
        raise ValueError(
            "an environment must be given, for example FrozenLake8x8-v1; `occupax list` shows all."
        )
    chosen = DEFAULTS | {name: value for name, value in vars(choices).items() if value is not None}
    if choices.algorithm is not None:
        as_algorithm(choices.algorithm)  # a misspelt name is refused before the environment is made
    given = choices.settings()
    of_algorithm = {name: text for name, text in given.items() if "." not in name}
    of_policy = {name: text for name, text in given.items() if name.startswith(POLICY)}
    of_problem = {
        name: text for name, text in given.items() if "." in name and name not in of_policy
    }
    problem, reason = make_problem(
        choices.env,
        chosen["utility"],
        of_problem,
        choices.constrain,
        choices.horizon,
        discount=chosen["discount"],
        termination=chosen["termination"],
    )
    if problem.horizon is None:
        raise ValueError(
            f"horizon must be finite for training, got {INFINITE}: "
            "use `occupax solve`, or give steps."
        )
    policy: PolicySource = choices.policy
    if of_policy:
        policy = settings.apply(of_policy, {"policy": policy_source(problem.env, policy)})["policy"]
    algorithm = _algorithm(choices, problem, policy, of_algorithm)
    options: dict[str, Any] = {"policy": policy} | {
        name: chosen[name] for name in ("seeds", "seed", "record_every")
    }
    return TrainingArguments(
        problem, algorithm, options, describe(problem, algorithm, f"on {choices.env}", reason)
    )


def _algorithm(
    choices: Choices, problem: ox.Problem, policy: PolicySource, given: dict[str, str]
) -> Algorithm[Any]:
    """Return the named or default algorithm with the hyperparameters of the command line."""
    if choices.algorithm is None:
        algorithm = default_algorithm(problem, initial_policy(problem, policy, 0, 0))
    else:
        algorithm = as_algorithm(choices.algorithm)
    check_settings(algorithm, choices.algorithm, given)
    others = {"utility": problem.objective, "problem": _problem_settings(problem), "env": {}}
    return settings.apply(given, {"": algorithm, **others})[""]


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
    given: Mapping[str, str],
    constrain: Sequence[str] = (),
    horizon: int | str | None = None,
    **options: Any,
) -> tuple[ox.Problem, str]:
    """Make a problem of names, as all commands do.

    Args:
        env: the name of the environment.
        utility: the name of the utility.
        given: the settings of `--set`.
        constrain: the limits of `--constrain`.
        horizon: a number of steps, "infinite", or None for that of `default_horizon`.
        **options: further arguments of `occupax.Problem`.

    Returns:
        The problem, and the reason for its horizon where it is the default.
    """
    stated = options | {"horizon": None if horizon == INFINITE else horizon}
    targets = settings.apply(
        dict(given), {"utility": names.utility(utility), "env": {}, "problem": stated}
    )
    limits = [names.constraint(text) for text in constrain]
    made = ox.make(env, **_recording(targets["utility"], limits, targets["env"]))
    stated = targets["problem"]
    problem = ox.Problem(made, targets["utility"], **stated, constraints=limits)
    if horizon == INFINITE or stated["horizon"] is not None:
        return problem, ""
    steps, reason = default_horizon(problem, env)
    return ox.Problem(
        made, targets["utility"], **stated | {"horizon": steps}, constraints=limits
    ), reason


def _problem_settings(problem: ox.Problem) -> dict[str, Any]:
    return {name: getattr(problem, name) for name in ("discount", "horizon", "termination")}


def _recording(
    utility: Any, limits: Sequence[ox.Constraint], options: dict[str, Any]
) -> dict[str, Any]:
    """The options of an environment that records the values of its info that are counted."""
    counted = [utility.features(), *(limit.subject.features() for limit in limits)]
    parts = [
        part
        for it in counted
        for part in (it.parts if isinstance(it, ox.features.Stack) else (it,))
    ]
    wanted = [name for part in parts if isinstance(part, ox.features.Info) for name in part.names]
    return options | {"info": [*options.get("info", ()), *wanted]} if wanted else options


def describe(problem: ox.Problem, algorithm: Algorithm[Any], where: str, reason: str = "") -> str:
    """One line about what is trained; `reason` says where the horizon comes from."""
    limits = "".join(f", {constraint}" for constraint in problem.constraints)
    goal = (
        f"{type(algorithm).__name__} maximises {type(problem.objective).__name__} {where}{limits}"
    )
    return f"{goal}: {describe_future(problem, reason)}"


def describe_future(problem: ox.Problem, reason: str = "") -> str:
    """Discount, horizon with the reason for it, and termination of a problem."""
    why = f" ({reason})" if reason else ""
    horizon = INFINITE if problem.horizon is None else problem.horizon
    return f"discount {problem.discount:g}, horizon {horizon}{why}, {problem.termination}"


def restore(folder: Path, trust: bool = False) -> tuple[TrainingArguments, Budget]:
    """Return the training arguments and the budget of the run in a folder."""
    config, arrays = read_config(folder)
    if (module := untrusted_module(config["setup"])) and not trust:
        hint = (
            "repeat the command that began it, with --resume, "
            "or add --trust if you trust the folder"
        )
        raise ValueError(
            f"to make the environment of {folder} the module {module!r} is imported: {hint}."
        )
    try:
        options: dict[str, Any] = codec.unpack({"dict": config["setup"]}, arrays)
    except ValueError as error:
        raise ValueError(
            f"the run in {folder} has parts that no file can restore: "
            "repeat the command that began it, with --resume, "
            f"or resume it in Python. {error}"
        ) from error
    problem, algorithm = options.pop("problem"), options.pop("algorithm")
    if isinstance(algorithm, list):
        raise ValueError(
            f"{folder} is a part of a sweep: repeat the command that began it, with --resume."
        )
    random_numbers = options.pop("random_numbers")
    options["sampler"] = "auto" if isinstance(problem.env, GymnasiumEnv) else random_numbers
    if options["sampler"] not in ("auto", *SAMPLERS):
        raise ValueError(
            f"the run was sampled by {random_numbers}, which no file can restore: "
            "resume it in Python."
        )
    training = TrainingArguments(
        problem, algorithm, options, describe(problem, algorithm, f"as in {folder}")
    )
    if len(options["seeds"]) > 1 and not any(
        (folder / "checkpoint").glob("iteration-*.safetensors")
    ):
        options["policy"] = _initialiser(training, folder)
    return training, budget_of(config)


def _initialiser(training: TrainingArguments, folder: Path) -> PolicySource:
    """Return the initialiser of the policies of a run without a checkpoint.

    Its folder has the initial policy of the first seed only.
    """
    for name in INITIALISERS:
        options: dict[str, Any] = {
            **training.options,
            "policy": name,
            "seeds": training.options["seeds"][:1],
        }
        try:
            made = make_setup(training.problem, [training.algorithm], **options).policies[0]
        except ValueError:  # it is not for this environment
            continue
        if eqx.tree_equal(made, training.options["policy"]):
            return name
    raise ValueError(
        f"{folder} has no checkpoint yet, and its first policies were made in Python: "
        "start the run there again."
    )
