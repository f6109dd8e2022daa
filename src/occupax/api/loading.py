"""Results from the folders of finished runs."""

from pathlib import Path

from occupax.api.result import Result, as_result
from occupax.errors import check_path
from occupax.io.results import AlgorithmHint, read_outcome
from occupax.policies import Policy
from occupax.problem import ProblemSource


def load_result(
    folder: str | Path,
    problem: ProblemSource | None = None,
    policy: Policy | None = None,
    algorithm: AlgorithmHint = None,
    trust: bool = False,
) -> Result:
    """Read the folder of a run. docs/trust.md explains what a folder from a stranger can do.

    Args:
        folder: the folder that `Result.save` or `train(out=folder)` wrote.
        problem: the problem as for `train`, for problems with functions of your own, which no file
            can restore.
        policy: a policy of the same structure as the trained policies, if they contain functions
            of your own.
        algorithm: an algorithm of your own, or its class, which receives the saved
            hyperparameters.
        trust: whether to restore an environment of Gymnasium whose id names a module. The module
            is imported.

    Returns:
        The result. Its problem or algorithm is None if the file cannot restore it. There is a
        warning for an algorithm and for an environment that is not trusted.

    Raises:
        ValueError: if the folder has no finished run, is damaged, or was written by another
            version of occupax.
    """
    check_path(folder, "folder")
    return as_result(read_outcome(Path(folder), problem, policy, algorithm, trust))
