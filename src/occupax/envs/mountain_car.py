"""Mountain car of Moore (1990), with the constants of Gymnasium."""

from abc import abstractmethod
from typing import Any, ClassVar, Final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Key, Num

from occupax.envs.actions import ActionSpace, BoxActions, DiscreteActions
from occupax.envs.base import Bounds, Timed, TimeLimited

FORCE: Final = 0.001
CONTINUOUS_FORCE: Final = 0.0015
GRAVITY: Final = 0.0025
MAX_SPEED: Final = 0.07
MIN_POSITION: Final = -1.2
MAX_POSITION: Final = 0.6
GOAL: Final = 0.5
CONTINUOUS_GOAL: Final = 0.45
PRIZE: Final = 100.0
ACTION_COST: Final = 0.1


class CarInValley(TimeLimited):
    """Car in a valley, too weak to leave it at once.

    Subclasses define actions and rewards.

    The physics are its position and its velocity, both observed.
    """

    first = ((-0.6, -0.4), (0.0, 0.0))
    goal: ClassVar[float]
    """The position of the flag."""

    @abstractmethod
    def push(self, action: Any) -> Float[Array, ""]:
        """Return the change of velocity by an action."""

    @abstractmethod
    def reward(self, action: Any, arrived: Bool[Array, ""]) -> Float[Array, ""]:
        """Return the reward of a step."""

    def step(
        self, state: Timed, action: Num[ArrayLike, "*n"], key: Key[Array, ""]
    ) -> tuple[Timed, Float[Array, ""]]:
        """Push the car for one step. A wall on the left stops it."""
        del key  # the dynamics are deterministic
        position, velocity = state.physics
        velocity = (
            velocity + self.push(action).astype(velocity.dtype) - GRAVITY * jnp.cos(3 * position)
        )
        velocity = jnp.clip(velocity, -MAX_SPEED, MAX_SPEED)
        position = jnp.clip(position + velocity, MIN_POSITION, MAX_POSITION)
        velocity = jnp.where(position == MIN_POSITION, jnp.maximum(velocity, 0.0), velocity)
        following = Timed(jnp.stack([position, velocity]), state.time + 1)
        return following, self.reward(action, self.terminated(following)).astype(position.dtype)

    @property
    def observation_bounds(self) -> Bounds:
        """Bounds of the observation, as in Gymnasium."""
        return (MIN_POSITION, MAX_POSITION), (-MAX_SPEED, MAX_SPEED)

    def observe(self, state: Timed) -> Float[Array, "2"]:
        """Position and velocity."""
        return state.physics

    def terminated(self, state: Timed) -> Bool[Array, ""]:
        """Whether the car is at the flag on the right, and not on its way back."""
        position, velocity = state.physics
        return (position >= self.goal) & (velocity >= 0)


class MountainCar(CarInValley):
    """Mountain car with actions 0, 1 and 2: push left, not at all or right.

    The reward is -1 at every step.

    Gymnasium's `MountainCar-v0` has a time limit of 200.
    """

    action_space: ActionSpace = eqx.field(default=DiscreteActions(3), init=False, static=True)
    goal = GOAL

    def push(self, action: Int[ArrayLike, ""]) -> Float[Array, ""]:
        """Return a force of one magnitude: to the left, none, or to the right."""
        return FORCE * (jnp.asarray(action).astype(float) - 1)

    def reward(self, action: Int[ArrayLike, ""], arrived: Bool[Array, ""]) -> Float[Array, ""]:
        """Return -1, the reward of every step."""
        return -jnp.ones(())


class ContinuousMountainCar(CarInValley):
    """Mountain car with a force from -1 to 1.

    The reward is minus a tenth of the squared force, and 100 at the flag.

    Gymnasium's `MountainCarContinuous-v0` has a time limit of 999.
    """

    action_space: ActionSpace = eqx.field(
        default=BoxActions((-1.0,), (1.0,)), init=False, static=True
    )
    goal = CONTINUOUS_GOAL

    def push(self, action: Float[ArrayLike, "1"]) -> Float[Array, ""]:
        """The action, clipped to its bounds, times the power of the car."""
        return CONTINUOUS_FORCE * jnp.clip(jnp.asarray(action)[0], -1.0, 1.0)

    def reward(self, action: Float[ArrayLike, "1"], arrived: Bool[Array, ""]) -> Float[Array, ""]:
        """The prize at the flag, and the cost of the action."""
        return jnp.where(arrived, PRIZE, 0.0) - ACTION_COST * jnp.asarray(action)[0] ** 2
