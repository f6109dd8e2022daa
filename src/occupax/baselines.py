"""Baselines of the gradient estimate: mean of the other trajectories and linear fit.

The linear baseline (Duan et al., 2016) is ridge regression of the discounted return-to-go on
features of observation and time step. From step t on, a trajectory earns gamma^t <x_t, c> or so,
where x_t holds the observation, its squares, t, t^2, t^3 and a one; a state of a table counts as a
one-hot vector. The coefficients c are those of least squares over batches that were drawn *before*
the one that they are used on, with the quasi-rewards of their time: they then depend neither on its
trajectories nor on their actions, and nothing is biased. A fit for the quasi-reward of the day
would depend on the batch: with it, five of ten trainings for log coverage got stuck.
"""

from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Num, Shaped

from occupax.envs.base import number_of_states
from occupax.errors import unknown
from occupax.policies.networks import input_size
from occupax.problem import Problem
from occupax.trajectories import Trajectories

BaselineName = Literal["none", "mean", "linear"]

ROUNDING = 100.0
"""Multiple of the machine epsilon, relative to the return-to-go, below which a difference to the
baseline is zero."""
MAX_NUMBERS = 500
"""Largest observation, in numbers or states, for which a fit at every iteration is affordable."""
RIDGE = 1e-4
"""Ridge penalty, relative to the diagonal of the normal equations."""
DECAY = 0.5
"""Factor by which an iteration multiplies the sums of the batches before it."""
REACH = 3.0
"""Distance from the mean return-to-go, in standard deviations, at which the prediction is clipped.
Rare observations have large squares."""


class ReturnSums(eqx.Module):
    """Sums over a batch of importance-weighted discounted returns-to-go at each step.

    The sums of the parts of a batch add up to those of the whole.
    """

    to_go: Float[Array, " H"]
    live: Int[Array, " H"]
    """Number of trajectories that take the step."""


class Baseline(eqx.Module):
    """Baseline of a gradient estimate.

    "mean" is the mean return-to-go of the *other* trajectories that take the step. "linear"
    subtracts a fit to earlier batches first, and then the mean of what the fit leaves.

    Args:
        name: "none", "mean" or "linear".
        fit: the fit of "linear".
        whole: where the trajectories are a part of a batch, the sums over the whole batch.
    """

    name: BaselineName = eqx.field(static=True, default="none")
    fit: "Fit | None" = None
    whole: ReturnSums | None = None

    def __check_init__(self) -> None:
        if self.name not in get_args(BaselineName):
            raise unknown("baseline", self.name, get_args(BaselineName))

    def gains(
        self,
        problem: Problem,
        trajectories: Trajectories,
        weights: Float[Array, "B H"],
        to_go: Float[Array, "B H"],
    ) -> Float[Array, "B H"]:
        """Return the returns-to-go minus the baseline. Differences within rounding are zero."""
        if self.name == "none":
            return to_go
        rest = self.without_fit(problem, trajectories, weights, to_go)
        gains = rest - weights * self.mean_of_others(rest, trajectories.live)
        smallest = ROUNDING * jnp.finfo(gains.dtype).eps * jnp.abs(to_go)
        return jnp.where(jnp.abs(gains) > smallest, gains, 0.0)

    def without_fit(
        self,
        problem: Problem,
        trajectories: Trajectories,
        weights: Float[Array, "B H"],
        to_go: Float[Array, "B H"],
    ) -> Float[Array, "B H"]:
        """Return the returns-to-go minus the values of the fit, if there is one."""
        if self.name == "linear" and self.fit is None:
            by_hand = "by hand, give estimators.regression(...).fit() of an earlier batch"
            raise ValueError(
                f"baseline 'linear' is fitted to earlier batches by occupax.train; {by_hand}."
            )
        if self.fit is None:
            return to_go
        values = self.fit.values(problem, trajectories.observations)
        return jnp.where(trajectories.live, to_go - weights * values, 0.0)

    def mean_of_others(
        self, to_go: Float[Array, "B H"], live: Bool[Array, "B H"]
    ) -> Float[Array, "B H"]:
        """Return the mean return-to-go of the other trajectories at each live step."""
        whole = ReturnSums(to_go.sum(0), live.sum(0)) if self.whole is None else self.whole
        return (whole.to_go - to_go) / jnp.maximum(whole.live - live, 1)


class Fit(eqx.Module):
    """Linear prediction of the return-to-go from observation and time, clipped to a range."""

    coefficients: Float[Array, " p"]
    low: Float[Array, ""]
    high: Float[Array, ""]

    def values(
        self, problem: Problem, observations: Shaped[Array, "B H *shape"]
    ) -> Float[Array, "B H"]:
        """Return the expected return-to-go of each step, discounted to the start of the episode."""
        rows = _rows(problem, observations, self.coefficients.dtype)
        return _discounts(problem, rows) * jnp.clip(rows @ self.coefficients, self.low, self.high)


class Regression(eqx.Module):
    """Sums over live steps from which the linear baseline is fitted.

    The sums of the parts of a batch add up to those of the whole. A step counts with the square of
    its discount, as its error does in the gradient.
    """

    gram: Float[Array, "p p"]
    """Sum of the products x x' of the features x of a step."""
    moment: Float[Array, " p"]
    """Sum of the features times the return-to-go."""
    square: Float[Array, ""]
    """Sum of the squared returns-to-go."""

    @eqx.filter_jit
    def fit(self) -> Fit:
        """Return the ridge regression. Without steps, all coefficients are zero."""
        scale = jnp.sqrt(jnp.where(jnp.diag(self.gram) > 0, jnp.diag(self.gram), 1.0))
        matrix = self.gram / scale / scale[:, None] + RIDGE * jnp.eye(len(scale), dtype=scale.dtype)
        solution = jax.scipy.linalg.solve(matrix, self.moment / scale, assume_a="pos")
        coefficients = solution / scale
        steps = scale[-1] ** 2  # the last feature is a one
        mean = self.moment[-1] / steps
        reach = REACH * jnp.sqrt(jnp.maximum(self.square / steps - mean**2, 0.0))
        return Fit(coefficients, mean - reach, mean + reach)

    @eqx.filter_jit
    def updated(self, batch: "Regression") -> "Regression":
        """Return the sums with those of a new batch. The old sums are multiplied by `DECAY`."""
        return jax.tree.map(lambda old, new: DECAY * old + new, self, batch)


AnyBaseline = BaselineName | Fit | Baseline


def read_baseline(baseline: AnyBaseline) -> Baseline:
    """Return the baseline of a name or of a fit. A `Baseline` is returned unchanged."""
    if isinstance(baseline, Baseline):
        return baseline
    if isinstance(baseline, Fit):
        return Baseline("linear", baseline)
    return Baseline(baseline)


def empty_sums(problem: Problem) -> Regression:
    """Return the sums before the first batch. Raise ValueError for too large observations."""
    numbers = input_size(problem.env)
    if numbers > MAX_NUMBERS:
        allowed = f"observations of at most {MAX_NUMBERS} numbers or states"
        raise ValueError(f"baseline 'linear' needs {allowed}, got {numbers}: use baseline='mean'.")
    powers = 2 if number_of_states(problem.env) is None else 1
    p = numbers * powers + 4
    return Regression(jnp.zeros((p, p)), jnp.zeros(p), jnp.zeros(()))


def regress(
    problem: Problem,
    observations: Shaped[Array, "B H *shape"],
    to_go: Float[Array, "B H"],
    live: Bool[Array, "B H"],
) -> Regression:
    """Return the sums over the live steps for returns-to-go that are discounted to the start."""
    rows = _rows(problem, observations, to_go.dtype)
    discounts = jnp.where(live, _discounts(problem, rows), 0.0)
    features = (discounts[..., None] * rows).reshape(-1, rows.shape[-1])
    returns = jnp.where(live, to_go, 0.0).ravel()
    return Regression(features.T @ features, returns @ features, returns @ returns)


def _rows(
    problem: Problem, observations: Num[Array, "B H *shape"], dtype: jnp.dtype
) -> Float[Array, "B H p"]:
    """Return the regression features of each step: observation, its square, and powers of time."""
    states = number_of_states(problem.env)
    n, horizon = observations.shape[:2]
    if states is not None:
        features = [jax.nn.one_hot(observations, states, dtype=dtype)]
    else:
        flat = observations.reshape(n, horizon, -1).astype(dtype)
        features = [flat, flat**2]
    t = jnp.arange(horizon, dtype=dtype) / horizon
    powers = jnp.stack([t, t**2, t**3, jnp.ones_like(t)], 1)
    time = jnp.broadcast_to(powers, (n, horizon, 4))
    return jnp.concatenate([*features, time], -1)


def _discounts(problem: Problem, rows: Float[Array, "B H p"]) -> Float[Array, " H"]:
    return problem.discount ** jnp.arange(rows.shape[1], dtype=rows.dtype)
