"""What every policy does, and how one is made."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, final

import equinox as eqx
import jax
from jaxtyping import Array, Float, Key, Num

from occupax.envs.actions import Kind
from occupax.envs.base import DecisionProcess

Action = Num[Array, "*n"]


class Policy(eqx.Module):
    """A distribution over actions for every observation; its arrays are the parameters theta.

    Samplers draw with `draw`, estimators ask `log_prob`, and nothing else decides what a policy does. What is derived
    from these two is final: a subclass that overrides it is refused.
    """

    action_space: ClassVar[Kind]
    """In which space it acts: "discrete" (the numbers 0, 1, ... of the environment's actions), "multi-discrete"
    (vectors of such numbers), "box" (vectors of real numbers, which are clipped to the bounds of the environment) or
    "squashed" (vectors of which `applied` makes actions inside of the bounds)."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in vars(cls):
            home = next((base for base in cls.__mro__[1:] if name in vars(base)), None)
            if home is not None and getattr(vars(home)[name], "__final__", False):
                source = " and ".join(sorted(home.__abstractmethods__))
                raise TypeError(
                    f"{cls.__name__} must not override {name}, which {home.__name__} derives from {source}; override "
                    f"{source} instead, or inherit from occupax.policies.Policy and define draw and log_prob."
                )

    @abstractmethod
    def draw(self, observation: Any, key: Key[Array, ""]) -> tuple[Action, Float[Array, ""]]:
        """Draw an action.

        Args:
            observation: one observation.
            key: of the random numbers.

        Returns:
            The action and its log-probability; for real numbers, the logarithm of its density.
        """

    @abstractmethod
    def log_prob(self, observation: Any, action: Any) -> Float[Array, ""]:
        """The log-probability of an action as `draw` returns it, differentiable in the parameters."""

    def applied(self, drawn: Action) -> Action:
        """The action that stands for what `draw` returned: the same, unless a policy is "squashed"."""
        return drawn

    @final
    def action(self, observation: Any, key: Key[Array, ""]) -> Action:
        """Draw an action, without its log-probability."""
        return self.applied(self.draw(observation, key)[0])

    @final
    def log_probs(self, trajectories: Any) -> Float[Array, "B H"]:
        """The log-probability of every action of a batch of trajectories; any number after their end."""
        return jax.vmap(jax.vmap(self.log_prob))(trajectories.observations, trajectories.actions)


PolicyType = TypeVar("PolicyType", bound=Policy)
Initialiser = Callable[[DecisionProcess, Key[Array, ""]], Policy]
"""Makes the first policy for an environment."""


def refuse_unless_policy(policy: Any) -> None:
    """Refuse what is not a policy."""
    if not isinstance(policy, Policy):
        hint = "wrap a function of the observation that returns logits in policies.Softmax"
        if getattr(policy, "__module__", "").startswith("occupax.policies"):
            hint = "call the initialiser with (env, key)"
        got = "an array" if isinstance(policy, jax.Array) else type(policy).__name__
        raise ValueError(f"policy must be an occupax policy, got {got}; {hint}.")
