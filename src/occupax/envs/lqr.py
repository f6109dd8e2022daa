"""Linear systems with quadratic costs, with optimal policies in closed form in `exact.lqr`."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Key

from occupax.envs.actions import BoxActions
from occupax.envs.base import Environment
from occupax.errors import check_finite, check_integer, read_array

Matrix = Float[np.ndarray, "_ _"]


class LQR(Environment):
    """Linear-quadratic regulator.

    The next state is A x + B a + w with Gaussian noise w, and the reward is -(x Q x + a R a).
    Observations are states. The initial state is Gaussian with mean zero, and episodes do not end.

    Args:
        drift: A, [n, n].
        control: B, [n, m].
        state_cost: Q, [n, n], symmetric and positive semidefinite.
        action_cost: R, [m, m], symmetric and positive definite.
        noise: covariance of w, [n, n], zero by default.
        first: covariance of the initial state, [n, n], the identity by default.
    """

    drift: Matrix
    control: Matrix
    state_cost: Matrix
    action_cost: Matrix
    noise: Matrix
    first: Matrix
    noise_root: Matrix
    first_root: Matrix
    time_limit: int | None = eqx.field(static=True, default=None)

    def __init__(
        self,
        drift: Any,
        control: Any,
        state_cost: Any,
        action_cost: Any,
        noise: Any = None,
        first: Any = None,
    ):
        self.drift, self.control = read_array("drift", drift), read_array("control", control)
        n, _ = self._sizes()
        self.state_cost = read_array("state_cost", state_cost)
        self.action_cost = read_array("action_cost", action_cost)
        self.noise = np.zeros((n, n)) if noise is None else _covariance("noise", noise, n)
        self.first = np.eye(n) if first is None else _covariance("first", first, n)
        self.noise_root, self.first_root = _root(self.noise), _root(self.first)
        self.time_limit = None

    def _sizes(self) -> tuple[int, int]:
        if self.drift.ndim != 2 or self.control.ndim != 2 or not self.control.size:
            got = f"shapes {self.drift.shape} and {self.control.shape}"
            raise ValueError(f"drift must be a matrix [n, n] and control one [n, m], got {got}.")
        n, m = self.control.shape
        if self.drift.shape != (n, n):
            raise ValueError(
                f"drift must have shape {(n, n)}, as control has {n} rows, got {self.drift.shape}."
            )
        return n, m

    def __check_init__(self) -> None:
        n, m = self._sizes()
        for name, matrix in (("drift", self.drift), ("control", self.control)):
            check_finite(name, matrix)
        _covariance("state_cost", self.state_cost, n)
        _covariance("action_cost", self.action_cost, m)
        if np.linalg.eigvalsh(self.action_cost)[0] <= 0:
            raise ValueError("action_cost must be positive definite, but some actions are free.")
        for name, root in (("noise", self.noise_root), ("first", self.first_root)):
            covariance = _covariance(name, getattr(self, name), n)
            if root.shape != (n, n) or not np.allclose(root @ root, covariance):
                raise ValueError(f"{name}_root must be the root of {name}.")
        if self.time_limit is not None:
            raise ValueError(f"a linear system has no time limit, got {self.time_limit!r}.")

    @classmethod
    def random(cls, states: int, actions: int, seed: int = 0) -> "LQR":
        """Return a random system, whose A has a spectral radius of 0.95.

        B is normal with deviation 1 / sqrt(states), Q the identity, R a tenth of it, and the noise
        has deviation 0.1.
        """
        n, m = check_integer("states", states), check_integer("actions", actions)
        random = np.random.default_rng(check_integer("seed", seed, minimum=0))
        drift = random.standard_normal((n, n))
        drift *= 0.95 / np.abs(np.linalg.eigvals(drift)).max()
        control = random.standard_normal((n, m)) / np.sqrt(n)
        return cls(drift, control, np.eye(n), 0.1 * np.eye(m), noise=0.01 * np.eye(n))

    @property
    def action_space(self) -> BoxActions:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Any vector of m numbers."""
        m = self.control.shape[1]
        return BoxActions([-np.inf] * m, [np.inf] * m)

    def reset(self, key: Key[Array, ""]) -> Float[Array, " n"]:
        """Draw a first state."""
        return jnp.asarray(self.first_root) @ jax.random.normal(key, self.drift.shape[:1])

    def step(
        self, state: Float[Array, " n"], action: Float[ArrayLike, " m"], key: Key[Array, ""]
    ) -> tuple[Float[Array, " n"], Float[Array, ""]]:
        """Move on. The costs are those of the state that is left."""
        action = jnp.asarray(action)
        earned = -(
            state @ jnp.asarray(self.state_cost) @ state
            + action @ jnp.asarray(self.action_cost) @ action
        )
        noise = jnp.asarray(self.noise_root) @ jax.random.normal(key, state.shape)
        return jnp.asarray(self.drift) @ state + jnp.asarray(self.control) @ action + noise, earned

    def observe(self, state: Float[Array, " n"]) -> Float[Array, " n"]:
        """The state itself."""
        return state

    def terminated(self, state: Float[Array, " n"]) -> Bool[Array, ""]:
        """Episodes do not end by themselves."""
        return jnp.zeros((), bool)

    def truncated(self, state: Float[Array, " n"]) -> Bool[Array, ""]:
        """Episodes do not end by themselves."""
        return jnp.zeros((), bool)


def _covariance(name: str, value: Any, size: int) -> Matrix:
    matrix = read_array(name, value)
    if matrix.shape != (size, size) or not np.allclose(matrix, matrix.T):
        raise ValueError(
            f"{name} must be a symmetric matrix of shape {(size, size)}, got shape {matrix.shape}."
        )
    if np.linalg.eigvalsh(matrix)[0] < -1e-9 * max(1.0, np.abs(matrix).max()):
        raise ValueError(f"{name} must be positive semidefinite, but it has a negative eigenvalue.")
    return matrix


def _root(covariance: Matrix) -> Matrix:
    """The symmetric root of a covariance."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
