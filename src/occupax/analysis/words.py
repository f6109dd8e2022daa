"""What the recorded numbers are called and what they mean."""

from typing import Any, NamedTuple

import numpy as np

UNKNOWN = "\N{EN DASH}"
"""The text in the place of a number that is not known."""


class Words(NamedTuple):
    """A metric in words."""

    label: str
    """A noun and its unit, for an axis."""
    meaning: str
    """One sentence for the report."""


METRICS = {
    "utility": Words(
        "utility (estimate)",
        "What is maximised, estimated from the iteration's own new trajectories.",
    ),
    "exact_utility": Words("exact utility", "What is maximised, computed from the table without sampling."),
    "return": Words(
        "return per episode (no discount)",
        "The sum of the rewards of an episode, averaged over those that were sampled; it is what was trained for only "
        "if the utility is the reward.",
    ),
    "discounted_return": Words("discounted return per episode", "The discounted sum of the rewards of an episode."),
    "episode_length": Words("steps per episode", "How many steps an episode takes until it ends or is cut."),
    "gap": Words("certified gap", "No policy can be better than the present one by more than this."),
    "running_utility": Words(
        "running estimate of the utility",
        "What is maximised, at the occupancy that the method carries along from iteration to iteration: a diagnostic, "
        "which may leave the range of what is possible.",
    ),
    "mixture_utility": Words(
        "utility of the mixture", "The utility of the mixture of all policies so far, which MaxEnt is about."
    ),
    "grad_norm": Words(
        "length of the gradient estimate",
        "How steep the utility looks to the algorithm; it approaches zero only where nothing is left to improve.",
    ),
    "clipped": Words(
        "share of steps cut short",
        "How often the radius cut a step: near 1 it is the radius that sets the pace, near 0 the step size.",
    ),
    "largest_weight": Words(
        "largest importance weight",
        "How strongly a single trajectory counts when an earlier policy is judged by new samples; far above 1 the "
        "estimates rest on a few of them.",
    ),
    "effective_sample_size": Words(
        "effective sample size (trajectories)",
        "How many unweighted trajectories would tell as much as the weighted batch; far below the size of a batch, "
        "samples are wasted.",
    ),
    "negative_occupancy": Words(
        "share of negative estimates",
        "In how many places the estimated occupancy is below zero, which no true one is; a high share says that the "
        "estimate has drifted.",
    ),
}

HEADLINES = ("utility", "return")
"""The metrics that a report shows large."""
DIAGNOSTICS = (
    "gap",
    "running_utility",
    "mixture_utility",
    "grad_norm",
    "clipped",
    "largest_weight",
    "effective_sample_size",
    "negative_occupancy",
)
"""The metrics that a report shows small, as far as they were recorded."""


def label(metric: str) -> str:
    """The text at the axis of a metric."""
    return METRICS[metric].label if metric in METRICS else metric.replace("_", " ")


def number(value: Any) -> str:
    """A number for a table: four digits, or all of a whole number."""
    if np.isnan(value):
        return UNKNOWN
    if value == 0 or isinstance(value, np.integer) or 1000 <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:#.4g}".removesuffix(".")
