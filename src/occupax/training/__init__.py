"""Training policies, and what they are worth.

* `loop`: `train`, around the executors in `execution/`; `sweeps`: many settings side by side, of
  the `grid`.
* `setup`: what is trained, checked; `schedule`: the phases of its iterations; `records`: what is
  written down of them.
* `result`: what is returned, and its files, which `loading` and `policy_files` read; `folder`: the
  folder of a run, with its checkpoints.
* `assessment`: what trained policies are worth, and others to compare them with;
  `evaluation`: what a policy earns in episodes of its own.
* `recording`: episodes as moving pictures.
* `loggers`: the console and `metrics.csv`; `trackers`: TensorBoard and Weights & Biases.
"""

from occupax.io.policies import load_policy, save_policy
from occupax.training.assessment import References
from occupax.training.evaluation import Estimate, Evaluation, ProblemEvaluation, evaluate
from occupax.training.loading import load_result
from occupax.training.loggers import Logger
from occupax.training.loop import Progress, train
from occupax.training.recording import record
from occupax.training.result import Finding, Result
from occupax.training.sweeps import Sweep, sweep
from occupax.training.trackers import TensorBoard, WeightsAndBiases

__all__ = [
    "Estimate",
    "Evaluation",
    "Finding",
    "Logger",
    "ProblemEvaluation",
    "Progress",
    "References",
    "Result",
    "Sweep",
    "TensorBoard",
    "WeightsAndBiases",
    "evaluate",
    "load_policy",
    "load_result",
    "record",
    "save_policy",
    "sweep",
    "train",
]
