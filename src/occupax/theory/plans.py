"""All that the two theorems prescribe for an accuracy."""

import math
from dataclasses import dataclass

from occupax.theory.bounds import (
    VarianceConstants,
    horizon,
    radius,
    round_up,
    smoothness_theta,
    step_size_global,
    step_size_stationary,
    variance_constants,
)
from occupax.theory.constants import Constants


@dataclass(frozen=True, kw_only=True)
class Prescription:
    """What one theorem asks for: a step size (eta), a number of epochs (T) and the samples these cost."""

    step_size: float
    epochs: int
    trajectories: int
    environment_steps: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything the theory prescribes for an accuracy of order `epsilon`; `print` it to see a table.

    Attributes:
        epsilon: The accuracy aimed at. Both theorems promise O(epsilon), with constants of their own.
        constants: The constants of the problem.
        horizon: Steps per trajectory, H.
        radius: Truncation radius of a step, delta.
        batch: Trajectories per iteration after the first of an epoch, B.
        epoch_length: Iterations per epoch, m.
        snapshot_batch: Trajectories of the first iteration of an epoch, N.
        smoothness_theta: Smoothness of the objective in the parameters, L_theta.
        variance: The constants C_1 to C_4.
        stationary: What theorem:ncvx asks for, to reach a stationary point.
        global_optimum: What theorem:convergence-rate asks for; it needs a concave utility and assumption:over-para,
            which a linear utility with a softmax over a table does not satisfy (its optimum is at infinity).
    """

    epsilon: float
    constants: Constants
    horizon: int
    radius: float
    batch: int
    epoch_length: int
    snapshot_batch: int
    smoothness_theta: float
    variance: VarianceConstants
    stationary: Prescription
    global_optimum: Prescription

    def __str__(self) -> str:
        one, two = self.stationary, self.global_optimum
        rows: list[tuple[str, *tuple[int | float | str, ...]]] = [
            ("horizon, H", self.horizon),
            ("radius, delta", self.radius),
            ("batch, B", self.batch),
            ("epoch length, m", self.epoch_length),
            ("snapshot batch, N", self.snapshot_batch),
            ("smoothness, L_theta", self.smoothness_theta),
            *((f"variance, C_{index}", value) for index, value in enumerate(self.variance, 1)),
            ("", "stationary point", "global optimum"),
            ("step size, eta", one.step_size, two.step_size),
            ("epochs, T", one.epochs, two.epochs),
            ("trajectories", one.trajectories, two.trajectories),
            ("environment steps", one.environment_steps, two.environment_steps),
        ]
        lines = [f"What the theory of TSIVR-PG prescribes for an accuracy of order epsilon = {self.epsilon:g}"]
        lines += [f"{name:<26}" + "".join(f"{_cell(value):>20}" for value in values) for name, *values in rows]
        lines += [
            "These step sizes guarantee convergence but are far too small for practice (for tabular FrozenLake eta is",
            "below 1e-7): tune eta and delta instead, and read the table for how the cost grows as epsilon shrinks.",
        ]
        return "\n".join(lines)


def plan(epsilon: float, constants: Constants) -> Plan:
    """Work out all that theorem:ncvx and theorem:convergence-rate prescribe.

    Counts are rounded up. An epoch draws N + (m - 1) B trajectories of H steps; for theorem:ncvx the paper prints
    T m (B H + N), which is of order epsilon^-4 and not what its algorithm draws. The accuracy `epsilon` is at most
    1/2, as in the proof of theorem:convergence-rate.
    """
    if not 0 < epsilon <= 0.5:
        raise ValueError(f"`epsilon` is {epsilon}; it must be positive and at most 0.5.")
    steps = horizon(epsilon, constants.discount)
    delta = radius(steps, constants.lipschitz_psi)
    batch = round_up(1 / epsilon)
    snapshot_batch = round_up((1 / epsilon) ** 2)
    smoothness = smoothness_theta(constants)
    variance = variance_constants(constants, steps, delta)

    def prescribe(step_size: float, epochs: int) -> Prescription:
        drawn = epochs * ((batch - 1) * batch + snapshot_batch)
        return Prescription(step_size=step_size, epochs=epochs, trajectories=drawn, environment_steps=drawn * steps)

    return Plan(
        epsilon=epsilon,
        constants=constants,
        horizon=steps,
        radius=delta,
        batch=batch,
        epoch_length=batch,
        snapshot_batch=snapshot_batch,
        smoothness_theta=smoothness,
        variance=variance,
        stationary=prescribe(step_size_stationary(smoothness, variance), batch),
        global_optimum=prescribe(step_size_global(smoothness, variance), round_up(math.log2(1 / epsilon))),
    )


def _cell(value: int | float | str) -> str:
    return f"{value:.3g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
