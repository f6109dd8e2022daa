"""Batches of trajectories, and queries about them.

* `queries`: the abstract `Query` and the queries of the algorithms of this package.
* `batch`: the abstract `Batch`, whose methods build these queries.
* `sampled`: trajectories in memory, as arrays.
* `tabular`: trajectories in memory, as the lists of events of the compiled kernel for tables.
* `network`: log-probabilities by the compiled kernel for networks.
* `parted`: batches in parts, such as shards, with merged answers.
* `caching`: a batch that caches answers.
"""

from occupax.batches.batch import Batch
from occupax.batches.parted import PartedBatch
from occupax.batches.queries import (
    AllSteps,
    FisherVector,
    Gradient,
    HessianVector,
    ObservationSums,
    Occupancy,
    Query,
    RegressionSums,
    ReturnsToGo,
    Statistics,
    Steps,
    Tally,
    TargetQuery,
    TransitionCounts,
    Transitions,
)
from occupax.batches.sampled import SampledBatch

__all__ = [
    "AllSteps",
    "Batch",
    "FisherVector",
    "Gradient",
    "HessianVector",
    "ObservationSums",
    "Occupancy",
    "PartedBatch",
    "Query",
    "RegressionSums",
    "ReturnsToGo",
    "SampledBatch",
    "Statistics",
    "Steps",
    "Tally",
    "TargetQuery",
    "TransitionCounts",
    "Transitions",
]
