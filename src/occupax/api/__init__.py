"""Facade: training, sweeps, evaluation and results.

* `training`: `train`. `sweeps`: `sweep` and its result.
* `result`: the result of `train`, with headline, diagnosis, plots and files.
* `loading`: results from files.
"""

from occupax.api.loading import load_result
from occupax.api.result import Result
from occupax.api.sweeps import Sweep, sweep
from occupax.api.training import train
from occupax.io.policies import load_policy, save_policy
from occupax.outcome import Finding, References
from occupax.training.evaluation import Estimate, Evaluation, ProblemEvaluation, evaluate
from occupax.training.recording import record

__all__ = [
    "Estimate",
    "Evaluation",
    "Finding",
    "ProblemEvaluation",
    "References",
    "Result",
    "Sweep",
    "evaluate",
    "load_policy",
    "load_result",
    "record",
    "save_policy",
    "sweep",
    "train",
]
