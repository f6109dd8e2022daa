"""Training loop, loggers and evaluation of policies.

* `loop`: the loop around the executors in `execution/`. `sweeps`: many settings, of the `grid`.
* `setup`: checked arguments of a training. `schedule`: the phases of its iterations. `records`: its
  metrics. `outcomes`: its data at the end.
* `assessment`: evaluation of trained policies beside other policies. `evaluation`: returns of new
  episodes.
* `recording`: videos of episodes.
* `loggers`: the console. `trackers`: TensorBoard and Weights & Biases.
"""

from occupax.outcome import Finding, References
from occupax.training.evaluation import Estimate, Evaluation, ProblemEvaluation
from occupax.training.loggers import Logger
from occupax.training.loop import Progress
from occupax.training.recording import record
from occupax.training.trackers import TensorBoard, WeightsAndBiases

__all__ = [
    "Estimate",
    "Evaluation",
    "Finding",
    "Logger",
    "ProblemEvaluation",
    "Progress",
    "References",
    "TensorBoard",
    "WeightsAndBiases",
    "record",
]
