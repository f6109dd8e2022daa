"""Batches of trajectories and the queries that they answer.

* `query`: the abstract `Query`; subclass it to define a new one.
* `queries`: the queries of the algorithms of this package.
* `batch`: the abstract `Batch`, whose methods build these queries.
* `sampled`: trajectories in memory, as arrays.
* `tabular`: trajectories in memory, as the compact lists of events of the compiled kernel for
  tables.
* `network`: log-probabilities by the compiled kernel for networks.
* `parted`: batches in parts, whose answers are merged.
* `caching`: a batch that remembers its queries and their answers.
"""

from occupax.batches.batch import Batch
from occupax.batches.parted import PartedBatch
from occupax.batches.queries import (
    FisherVector,
    Gradient,
    HessianVector,
    ObservationSums,
    Occupancy,
    RegressionSums,
    ReturnsToGo,
    Statistics,
    Tally,
    TransitionCounts,
    Transitions,
)
from occupax.batches.query import Query, TargetQuery
from occupax.batches.sampled import SampledBatch

__all__ = [
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
    "Tally",
    "TargetQuery",
    "TransitionCounts",
    "Transitions",
]
