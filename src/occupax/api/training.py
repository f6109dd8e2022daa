"""Training of policies."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote

from occupax.algorithms.base import Output
from occupax.analysis import report
from occupax.analysis.diagnosis import steep_utility
from occupax.api.result import Result, as_result
from occupax.errors import OccupaxWarning, check_path
from occupax.forking import begin_jax_use
from occupax.io.results import write_outcome
from occupax.io.run_folder import locked
from occupax.problem import Problem, ProblemSource, as_problem
from occupax.samplers import Sampler
from occupax.training.budgets import read_budget
from occupax.training.loop import Callback, run
from occupax.training.setup import (
    AlgorithmSource,
    PolicySource,
    as_algorithm,
    default_algorithm,
    first_policy,
    make_setup,
)


def train(
    problem: ProblemSource,
    algorithm: AlgorithmSource = None,
    episodes: int | None = None,
    seeds: int | Iterable[int] = 1,
    seed: int = 0,
    policy: PolicySource = None,
    callbacks: Sequence[Callback] = (),
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    record_every: int = 1,
    exact: bool = False,
    checkpoint_every: float = 30.0,
    sampler: Sampler | str = "auto",
    steps: int | None = None,
    output: Output | None = None,
) -> Result:
    """Train a policy for each seed.

    Args:
        problem: the problem. An environment or its name stands for its discounted return.
        algorithm: the algorithm, for example `occupax.TSIVRPG()` or "tsivr-pg". By default
            `occupax.PlugIn()` for tables of up to 128 states without constraints,
            `occupax.REINFORCE()` for all other tables, and `occupax.PPO()` for networks.
        episodes: number of trajectories that each seed may sample. An iteration that exceeds the
            budget is not started. Either `episodes` or `steps` is required.
        seeds: number of seeds, or the seeds themselves.
        seed: seed of the whole training. Run k depends on (seed, k) only.
        policy: an initialiser such as `occupax.policies.mlp()`, its name, "mlp", the initial policy
            of all seeds such as `result.policy()`, or an earlier result, whose policies are the
            initial policies of their seeds. The observation normalisation of a policy continues,
            but optimiser, multipliers and critic start anew. By default a Gaussian policy for
            continuous actions, a table for a tabular environment, and an MLP otherwise.
        callbacks: functions of a `Progress`, called at every record, which end the training by
            returning True, or loggers such as `occupax.training.TensorBoard(folder)`.
        out: directory for configuration, metrics, checkpoints, policies and `report.html`.
        resume: whether to continue from the last checkpoint in `out`, if there is one.
        progress: whether to show a progress bar.
        record_every: number of iterations in a record.
        exact: whether to log the exact utility and, for a concave utility, the certified gap of
            the current policies (tabular problems only). The computation takes time at every
            record: raise `record_every`.
        checkpoint_every: seconds between checkpoints.
        sampler: `occupax.samplers.Kernel()` or `Jax()` inside the compiled program, `Host(...)` in
            this process, `Ray(...)` on a cluster, a sampler of your own, or the name of one.
            "auto" is the host for an environment of Gymnasium, the kernel where it is available,
            and plain JAX otherwise.
        steps: number of environment steps of each seed, instead of `episodes`. A seed ends with
            the iteration that uses up its steps, whatever the other seeds do. Its metrics are NaN
            in records after its end.
        output: policy that training returns, in place of that of the algorithm: "last", "best",
            "average" or "uniform", see `occupax.algorithms.Algorithm`.

    Returns:
        Metrics, policies and status of every seed.

    Raises:
        ValueError: if an argument is invalid, or `out` holds another run.
        EpisodeError: if an environment fails.
    """
    begin_jax_use()
    check_path(out)
    budget = read_budget(episodes, steps)
    instance = None
    if algorithm is not None:
        instance = as_algorithm(algorithm)
    problem = as_problem(problem)
    if output is not None:
        if instance is None:
            instance = default_algorithm(problem, first_policy(problem, policy))
        instance = replace(instance, output=output)
    setup = make_setup(problem, [instance], policy, seeds, seed, record_every, exact, sampler)
    warn_of_steep_utility(setup.problem)
    folder = None
    if out is not None:
        folder = Path(out).absolute()  # callbacks may change the working directory
    hint = _resume_hint(setup.problem.env, out)
    with locked(folder):
        outcomes = run(setup, budget, callbacks, folder, resume, progress, checkpoint_every, hint)
        result = as_result(outcomes[0])
        if folder is not None:
            evaluated = result.evaluated()
            write_outcome(evaluated, folder)
            report.write_pages(evaluated, folder)
    return result


def warn_of_steep_utility(problem: Problem) -> None:
    """Warn of a utility with an infinite gradient where the occupancy is zero."""
    finding = steep_utility(problem)
    if finding is not None:
        warnings.warn(f"{finding.sentence} Try: {finding.advice}", OccupaxWarning, stacklevel=3)


def _resume_hint(env: object, out: str | Path | None) -> str:
    """Return the instruction that resumes the run in `out`."""
    source = getattr(env, "source", "")
    if not isinstance(source, str):  # the command line cannot import a function
        return "repeat the command with --resume (in Python: resume=True)"
    command = f"occupax train --out {quote(str(out))} --resume"
    if ":" in source:  # the command imports the module of the environment only with this option
        command += " --trust"
    return f"{command} (in Python: resume=True)"
