"""General-utility problem: maximise F(u(pi)) for the discounted occupancy u of features."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from math import floor, log
from typing import Any, Literal, get_args

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from occupax.constraints import Constraint, excesses, lagrangian, read_constraints, with_constraints
from occupax.display import Description, in_words
from occupax.envs.actions import DiscreteActions
from occupax.envs.base import DecisionProcess, check_environment
from occupax.envs.registry import episode_limit, make
from occupax.envs.tabular import TabularMDP
from occupax.errors import check_integer, unknown
from occupax.features import Count, Feature, Visit, as_feature
from occupax.utilities.base import Sum, Utility
from occupax.utilities.checks import check_size
from occupax.utilities.library import Reward
from occupax.utilities.names import as_utility

Termination = Literal["episodic", "absorbing"]

MAX_STEPS = 10**8
"""The longest horizon: the steps of a trajectory are in memory together."""


class Problem(eqx.Module):
    """An environment, what is to be maximised in it, and how the future is weighed.

    Args:
        env: the environment, or what `occupax.make` makes one of: a name such as "CartPole-v1", or
            a class.
        utility: the utility F, its name, or a plain function of the occupancy; the discounted
            return by default.
        discount: gamma, in [0, 1]. 1 needs a finite horizon: the objective is then a function of
            undiscounted sums over an episode, such as its return.
        horizon: H, the number of steps that count. None is the environment's time limit and, for a
            table, infinity, which `solve` takes and `train` does not.
        termination: what happens after an episode ends. "episodic": nothing, only live steps count.
            "absorbing": the terminal state repeats for ever, with the policy acting in it. A time
            limit is never a termination.
        features: what the occupancy counts; by default what the utility needs.
        constraints: limits to keep, a list of `occupax.Constraint`. What they limit is counted,
            too, in further entries of the occupancy.
    """

    env: DecisionProcess
    utility: Utility
    """The Lagrangian at multipliers of 0, if there are constraints; `objective` is what was
    given."""
    features: Feature
    constraints: tuple[Constraint, ...]
    discount: float = eqx.field(static=True)
    horizon: int | None = eqx.field(static=True)
    termination: Termination = eqx.field(static=True)
    size: int = eqx.field(static=True)

    def __init__(
        self,
        env: DecisionProcess | str | Callable[..., Any],
        utility: Utility | Callable[[Any], Any] | str | None = None,
        discount: float = 0.99,
        horizon: int | None = None,
        termination: Termination = "episodic",
        features: Feature | Callable[[Any, Any], Any] | None = None,
        constraints: Sequence[Constraint] = (),
    ):
        env = make(env) if isinstance(env, str) or callable(env) else env
        check_environment(env)
        self.env, self.discount, self.horizon = (
            env,
            _read_discount(discount),
            _read_horizon(horizon, env),
        )
        _check_time(self.discount, self.horizon)
        self.termination = _read_termination(termination, env)
        objective = Reward() if utility is None else as_utility(utility)
        counted = None if features is None else as_feature(features)
        self.constraints = read_constraints(constraints)
        if self.constraints:
            self.utility, self.features = with_constraints(
                objective, self.constraints, env, 1.0 - self.scale, counted
            )
            self.size = self.features.size(env)
        else:
            self.features = objective.features() if counted is None else counted
            self.size = self.features.size(env)  # raises for unsuitable features, before `bound`
            self.utility = objective.bound(env, 1.0 - self.scale, counted)

    def __check_init__(self) -> None:
        check_environment(self.env)
        _read_discount(self.discount)
        _read_horizon(self.horizon, self.env)
        _check_time(self.discount, self.horizon)
        _read_termination(self.termination, self.env)
        if self.size != self.features.size(self.env):
            raise ValueError(
                f"size must be that of the features, {self.features.size(self.env)}, "
                f"got {self.size!r}."
            )
        if self.constraints and getattr(self.utility, "weights", ()) != (
            1.0,
            *(0.0 for _ in self.constraints),
        ):
            raise ValueError(
                "utility must be a sum of the objective and of what each constraint limits."
            )
        check_size(self.utility, self.size)

    def __repr__(self) -> str:
        return self._description().text()

    def _repr_html_(self) -> str:
        return self._description().html()

    def _description(self) -> Description:
        settings = {
            "environment": in_words(self.env),
            "features": in_words(self.features),
            "constraints": ", ".join(map(str, self.constraints)) or "none",
            "discount": f"{self.discount:g}",
            "horizon": "infinite" if self.horizon is None else str(self.horizon),
            "termination": self.termination,
        }
        return Description(f"Problem: maximise {in_words(self.objective)}", list(settings.items()))

    def count(self, *step: Any) -> Count:
        """Return the features phi of a step: observation, action, reward and optionally info."""
        return self.features.count(self.env, Visit(*step))

    def reward_after_end(self, observation: Any, action: Int[Array, ""]) -> Float[Array, ""]:
        """Return the reward of a step in a terminal state: that of a table, otherwise zero."""
        if isinstance(self.env, TabularMDP):
            return jnp.asarray(self.env.reward)[observation, action]
        return jnp.zeros(())

    def estimated_utility(self, occupancy: Float[Array, " d"]) -> Float[Array, ""]:
        """Return F at the point of its domain nearest to an estimate, which may be negative."""
        return self.utility.value(self.utility.domain(occupancy))

    def quasi_reward(self, occupancy: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the gradient of F at the point of its domain nearest to `occupancy`."""
        return self.utility.gradient(self.utility.domain(occupancy))

    @property
    def objective(self) -> Utility:
        """Utility to maximise, without the constraints."""
        if self.constraints and isinstance(self.utility, Sum):
            return self.utility.terms[0]
        return self.utility

    def excesses(self, occupancy: Float[Array, " d"]) -> Float[Array, " K"]:
        """Return the violation of each constraint by an occupancy, negative for slack."""
        return excesses(self._terms, self.constraints, self.utility.domain(occupancy))

    def lagrangian(self, multipliers: Any) -> "Problem":
        """Return the problem with the utility F - sum_k multiplier_k excess_k, up to a constant."""
        return self.with_utility(lagrangian(self._terms, self.constraints, multipliers))

    def with_utility(self, utility: Utility) -> "Problem":
        """Return the problem with another utility of the same occupancy."""
        return eqx.tree_at(lambda problem: problem.utility, self, utility)

    def with_time(self, **changes: Any) -> "Problem":
        """Return the problem with another `discount` or `horizon`.

        A utility of the distribution of visits is scaled for the new discount.
        """
        discount = _read_discount(changes.get("discount", self.discount))
        horizon = _read_horizon(changes.get("horizon", self.horizon), self.env)
        _check_time(discount, horizon)
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {"discount": discount, "horizon": horizon}
        values["utility"] = self.utility.rescaled(self.scale, _scale(discount, horizon))
        problem = object.__new__(type(self))
        for name, value in values.items():
            object.__setattr__(problem, name, value)
        return problem

    @property
    def scale(self) -> float:
        """Factor from the occupancy to a distribution of visits.

        It is 1 - gamma, and 1 / H for a discount of 1.
        """
        return _scale(self.discount, self.horizon)

    def same_time_as(self, other: "Problem") -> bool:
        """Return whether discount and horizon are those of another problem."""
        return self.discount == other.discount and self.horizon == other.horizon

    @property
    def _terms(self) -> Sum:
        if not isinstance(self.utility, Sum) or not self.constraints:
            raise ValueError("the problem has no constraints.")
        return self.utility

    @property
    def effective_horizon(self) -> int:
        """Horizon. If infinite, the number of steps with 99% of the discounted mass."""
        if self.horizon is not None:
            return self.horizon
        return 1 if self.discount == 0 else floor(log(0.01) / log(self.discount)) + 1

    def sampling_horizon(self) -> int:
        """The horizon, which sampling needs to be finite."""
        if self.horizon is None:
            raise ValueError(
                "sampling needs a finite horizon, got horizon=None: set Problem(horizon=...); "
                f"{self.effective_horizon} steps leave out less than 1% of the discounted mass."
            )
        return self.horizon


ProblemSource = Problem | DecisionProcess | str | Callable[..., Any]
"""A problem, or the environment whose discounted return is the problem; see `as_problem`."""


def as_problem(problem: ProblemSource) -> Problem:
    """Return a problem as it is, and state the problem of an environment: its discounted return.

    The discount is that of `Problem`, and the horizon that of `default_horizon`, so that training,
    solving and exact values of an environment or its name have the same problem, as on the command
    line.

    Args:
        problem: a problem, or what `occupax.make` takes: an environment, its name, or a class or
            function that makes it.
    """
    if isinstance(problem, Problem):
        return problem
    if not isinstance(problem, str | DecisionProcess) and not callable(problem):
        expected = "problem must be an occupax.Problem, an environment or the name of one"
        raise ValueError(
            f"{expected}, got {type(problem).__name__}; give a function that makes the environment."
        )
    stated = Problem(problem)
    steps, _ = default_horizon(stated, problem if isinstance(problem, str) else None)
    return stated if stated.horizon == steps else Problem(stated.env, horizon=steps)


def default_horizon(problem: Problem, name: str | None = None) -> tuple[int, str]:
    """Return the default horizon of a problem and the reason for this number.

    Args:
        problem: the problem without a horizon of its own.
        name: the name that its environment was made of, if it was.

    Returns:
        The time limit of the environment, or for a table that of its id in Gymnasium. Without a
        limit, the steps after which less than 1% of the discounted mass is left.
    """
    limit = problem.env.time_limit
    if limit is None and isinstance(problem.env, TabularMDP):
        limit = episode_limit(problem.env, name)
    if limit is None:
        return problem.effective_horizon, "less than 1% of the discounted mass is later"
    return limit, "the time limit of the environment"


def _read_discount(discount: Any) -> float:
    try:
        number = float(discount)
    except (TypeError, ValueError):
        number = -1.0
    if isinstance(discount, str | np.complexfloating) or not 0 <= number <= 1:
        raise ValueError(f"discount must lie in [0, 1], got {discount!r}.")
    return number


def _check_time(discount: float, horizon: int | None) -> None:
    """Raise ValueError for a discount of 1 without a horizon, whose sums are infinite."""
    if discount == 1 and horizon is None:
        raise ValueError(
            "horizon must be finite for a discount of 1, got None. Set Problem(horizon=...), or a "
            "discount below 1."
        )


def _scale(discount: float, horizon: int | None) -> float:
    """Return the factor from an occupancy to a distribution, as 1.0 minus a discount."""
    if discount == 1 and horizon is not None:
        discount = 1.0 - 1.0 / horizon
    return 1.0 - discount


def _read_termination(termination: Any, env: DecisionProcess) -> Termination:
    if termination not in get_args(Termination):
        raise unknown("termination", termination, get_args(Termination))
    if termination == "absorbing" and not isinstance(env.action_space, DiscreteActions):
        why = "because the policy goes on acting after the end, and all of its actions are added up"
        raise ValueError(
            f'termination "absorbing" needs discrete actions, {why}; got {env.action_space}.'
        )
    return termination


def _read_horizon(horizon: Any, env: DecisionProcess) -> int | None:
    if horizon is None:
        return env.time_limit
    steps = check_integer("horizon", horizon, maximum=MAX_STEPS)
    if env.time_limit is not None and steps > env.time_limit:
        raise ValueError(
            f"horizon must not exceed the environment's time limit of {env.time_limit}, "
            f"got {steps}."
        )
    return steps
