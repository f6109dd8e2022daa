"""What `train` and `sweep` have in common: the options that say what is trained, and what they stand for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from tyro.constructors import PrimitiveConstructorSpec

import occupax as ox
from occupax.algorithms import Algorithm
from occupax.cli import names, settings

DEFAULTS: dict[str, Any] = {
    "utility": "reward",
    "algorithm": "tsivr-pg",
    "discount": 0.99,
    "termination": "episodic",
    "seeds": 1,
    "seed": 0,
    "record_every": 1,
}


def number(kind: type[int] | type[float]) -> PrimitiveConstructorSpec[Any]:
    """How an option reads a number: as a setting does, so that 5e4 is a whole number."""
    described, reader = settings.READERS[kind]

    def read(words: list[str]) -> Any:
        try:
            return reader(words[0])
        except ValueError:
            raise ValueError(f"it takes {described}, got {words[0]!r}.") from None

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="N" if kind is int else "X",
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, (int, float)),
        str_from_instance=lambda value: [str(value)],
    )


def shown(default: str, metavar: str | None = None) -> Any:
    """What the help says of an option: its default where None stands for it, and how its value is called."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {default})" if default else "")


def _default(name: str, metavar: str | None = None) -> Any:
    return shown(str(DEFAULTS[name]), metavar)


@dataclass(frozen=True)
class Choices:
    """What was chosen on the command line; None is what was not, so that it can be told from the default."""

    env: Annotated[str | None, tyro.conf.Positional, shown("", "ENV")] = None
    """an environment, see `occupax list`; any other Gymnasium id; or module:factory."""
    utility: Annotated[str | None, _default("utility", "NAME")] = None
    """what to maximise, see `occupax list`."""
    algorithm: Annotated[str | None, _default("algorithm", "NAME")] = None
    """how, see `occupax list`."""
    policy: Annotated[str | None, shown("a table for a tabular environment, else mlp", "NAME")] = None
    """tabular, linear or mlp."""
    discount: Annotated[float | None, number(float), _default("discount")] = None
    """the discount factor, in [0, 1)."""
    horizon: Annotated[int | None, number(int), shown("the time limit of the environment")] = None
    """how many steps count."""
    termination: Annotated[str | None, _default("termination", "{episodic,absorbing}")] = None
    """whether steps after the end of an episode count."""
    seeds: Annotated[int | None, number(int), _default("seeds")] = None
    """how many seeds to train with."""
    seed: Annotated[int | None, number(int), _default("seed")] = None
    """run k depends on this number and on k alone."""
    record_every: Annotated[int | None, number(int), _default("record_every")] = None
    """iterations in a record."""
    given: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="NAME=VALUE ...", help_behavior_hint="")] = ()
    """settings such as step_size=0.05 utility.sigma=0.5 env.is_slippery=false."""

    def options(self) -> list[str]:
        """The options that were given, as they are typed."""
        typed = {"given": "--set", "record_every": "--record-every"}
        return [typed.get(name, f"--{name}") for name, value in vars(self).items() if value not in (None, ())]


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
    targets = settings.apply(
        settings.parse(choices.given),
        {
            "": names.algorithm(chosen["algorithm"]),
            "utility": names.utility(chosen["utility"]),
            "problem": {name: chosen.get(name) for name in ("discount", "horizon", "termination")},
            "env": {},
        },
    )
    policy = None if choices.policy is None else names.policy(choices.policy)
    problem = ox.Problem(ox.make(choices.env, **targets["env"]), targets["utility"], **targets["problem"])
    reason = "the time limit of the environment" if targets["problem"]["horizon"] is None else ""
    if problem.horizon is None:
        horizon, reason = _finite_horizon(choices.env, problem)
        problem = ox.Problem(problem.env, targets["utility"], **targets["problem"] | {"horizon": horizon})
    options = {"policy": policy} | {name: chosen[name] for name in ("seeds", "seed", "record_every")}
    return TrainingArguments(problem, targets[""], options, describe(problem, targets[""], f"on {choices.env}", reason))


def make_problem(env: str, utility: str, given: Sequence[str], **options: Any) -> ox.Problem:
    """A problem from names and the words of `--set`; `options` are further arguments of `occupax.Problem`."""
    targets = settings.apply(settings.parse(given), {"utility": names.utility(utility), "env": {}})
    return ox.Problem(ox.make(env, **targets["env"]), targets["utility"], **options)


def describe(problem: ox.Problem, algorithm: Algorithm[Any], where: str, reason: str = "") -> str:
    """One line about what is trained; `reason` says where the horizon comes from."""
    why = f" ({reason})" if reason else ""
    return (
        f"{type(algorithm).__name__} maximises {type(problem.utility).__name__} {where}: discount "
        f"{problem.discount:g}, horizon {problem.horizon}{why}, {problem.termination}"
    )


def _finite_horizon(env: str, problem: ox.Problem) -> tuple[int, str]:
    """The horizon for a table, which has no clock of its own, and where it comes from."""
    import gymnasium as gym

    limit = gym.registry[env].max_episode_steps if env in gym.registry else None
    if limit is not None:
        return limit, "the time limit of the environment"
    return problem.effective_horizon, "less than 1% of the discounted mass is later"
