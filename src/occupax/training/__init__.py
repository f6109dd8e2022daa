"""Training: the loop, sweeps, results, checkpoints, callbacks and loggers."""

from occupax.training.evaluation import Evaluation, evaluate
from occupax.training.loggers import Logger, TensorBoard
from occupax.training.loop import Progress, train
from occupax.training.policy_files import load_policy, save_policy
from occupax.training.result import Result, load_result
from occupax.training.sweeps import Sweep, sweep

__all__ = [
    "Evaluation",
    "Logger",
    "Progress",
    "Result",
    "Sweep",
    "TensorBoard",
    "evaluate",
    "load_policy",
    "load_result",
    "save_policy",
    "sweep",
    "train",
]
