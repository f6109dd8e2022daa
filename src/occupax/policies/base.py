"""Base class of policies, and initialisers of policies."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from copy import copy, deepcopy
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import Any, ClassVar, ParamSpec, TypeVar, final

import equinox as eqx
import jax
from jaxtyping import Array, Float, Key, Num

from occupax.envs.actions import Kind
from occupax.envs.base import DecisionProcess

Action = Num[Array, "*n"]


class Policy(eqx.Module):
    """A distribution over actions for every observation. Its arrays are the parameters theta.

    Samplers call `draw`, estimators call `log_prob`, and all other methods are derived from these
    two. Derived methods are final: a subclass that overrides one raises TypeError.
    """

    action_space: ClassVar[Kind]
    """Action space: "discrete" (integers from 0 on), "multi-discrete" (vectors of integers), "box"
    (real vectors, which are clipped to the bounds of the environment) or "squashed" (vectors that
    `applied` maps into the bounds)."""

    spaces: str = eqx.field(
        static=True, default="", kw_only=True, repr=False, metadata={"saved": False}
    )
    """Spaces of the environment of `predict`, as JSON; empty if unknown. See `for_env`."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in vars(cls):
            bases = [base for base in cls.__mro__[1:] if name in vars(base)]
            if bases and getattr(vars(bases[0])[name], "__final__", False):
                source = " and ".join(sorted(bases[0].__abstractmethods__))
                raise TypeError(
                    f"{cls.__name__} must not override {name}, which {bases[0].__name__} derives "
                    f"from {source}; override {source} instead, or inherit from "
                    "occupax.policies.Policy and define draw and log_prob."
                )

    @abstractmethod
    def draw(self, observation: Any, key: Key[Array, ""]) -> tuple[Action, Float[Array, ""]]:
        """Draw an action.

        Args:
            observation: one observation.
            key: random key.

        Returns:
            The action and its log-probability; for continuous actions, its log-density.
        """

    @abstractmethod
    def log_prob(self, observation: Any, action: Any) -> Float[Array, ""]:
        """Return the log-probability of an action, differentiable in the parameters.

        Args:
            observation: one observation.
            action: an action as returned by `draw`.

        Returns:
            The log-probability; for continuous actions, the log-density.
        """

    def applied(self, sample: Action) -> Action:
        """Return the action of a sample of `draw`, by default the sample itself.

        Args:
            sample: a sample of `draw`.

        Returns:
            The action, inside the bounds of the environment if the policy is "squashed".
        """
        return sample

    @final
    def draw_with_action(
        self, observation: Any, key: Key[Array, ""]
    ) -> tuple[Action, Action, Float[Array, ""]]:
        """Draw an action for a sampler.

        Args:
            observation: one observation.
            key: random key.

        Returns:
            The sample of `draw`, the action of `applied`, and the log-probability.
        """
        sample, log_prob = self.draw(observation, key)
        return sample, self.applied(sample), log_prob

    @final
    def action(self, observation: Any, key: Key[Array, ""]) -> Action:
        """Draw an action, without its log-probability.

        Args:
            observation: one observation.
            key: random key.

        Returns:
            The action.
        """
        _, action, _ = self.draw_with_action(observation, key)
        return action

    @final
    def predict(
        self, observation: Any, deterministic: bool = False, seed: int | None = None
    ) -> Any:
        """Choose an action of a Gymnasium environment for one of its observations.

        Observations are encoded and normalised, and actions clipped, as in training.

        Args:
            observation: one observation, or a batch of a vector environment.
            deterministic: whether to take the most probable action (of a Gaussian distribution, the
                mean) instead of drawing one.
            seed: seed of the random action; by default from a generator of the policy.

        Returns:
            An action for `env.step`: an integer or a NumPy array; for a batch, an array of actions.

        Raises:
            ValueError: if the policy does not know the spaces of its environment, or the
                observation is not in its space.
        """
        from occupax.policies.predicting import actor_of  # imports Gymnasium, which is slow

        return actor_of(self).act(observation, deterministic, seed)

    @final
    def for_env(self: "PolicyType", env: Any) -> "PolicyType":
        """Return a copy of the policy whose `predict` uses the spaces of an environment.

        Policies of a result, and their files, have the spaces of their environment already.

        Args:
            env: an environment of Gymnasium or occupax, or the name of one.

        Returns:
            The policy with the spaces of `env`.

        Raises:
            ValueError: if the policy does not take the observations of `env`, or draws other
                actions.
        """
        # slow: imports Gymnasium; and `fitting` imports this module
        from occupax.envs.registry import make, wrap
        from occupax.envs.spaces import describe_spaces
        from occupax.policies.fitting import check_policy_fits

        process = make(env) if isinstance(env, str) else wrap(env)
        check_policy_fits(self, process)
        return with_spaces(self, describe_spaces(process))

    def __deepcopy__(self, memo: Any) -> "Policy":
        """Copy the arrays alone: JAX does not recognise a copy of one of its functions."""
        arrays, static = eqx.partition(self, eqx.is_array)
        copied = jax.tree.map(lambda leaf: deepcopy(leaf, memo), arrays)
        return eqx.combine(copied, static)

    @final
    def log_probs(self, trajectories: Any) -> Float[Array, "B H"]:
        """Return the log-probability of every action of a batch. Any number after the end.

        Args:
            trajectories: the trajectories of the batch.

        Returns:
            The log-probabilities [B, H].
        """
        return jax.vmap(jax.vmap(self.log_prob))(trajectories.observations, trajectories.actions)


def with_spaces(policy: "PolicyType", spaces: str) -> "PolicyType":
    """Return the policy with the spaces of an environment.

    Args:
        policy: the policy.
        spaces: the spaces as JSON; empty if unknown.

    Returns:
        A copy of the policy with the same arrays.
    """
    changed = copy(policy)
    vars(changed)["spaces"] = spaces  # the constructor of a policy may take anything
    return changed


PolicyType = TypeVar("PolicyType", bound=Policy)
Initialiser = Callable[[DecisionProcess, Key[Array, ""]], Policy]
"""Function `(env, key) -> policy` that returns the initial policy for an environment."""
Arguments = ParamSpec("Arguments")


@dataclass(frozen=True, eq=False)
class ConfiguredInitialiser:
    """An initialiser together with its settings.

    Args:
        factory: the function that returned the initialiser.
        settings: arguments of the factory, including defaults.
        initialise: the initialiser.
    """

    factory: Callable[..., Initialiser]
    settings: dict[str, Any]
    initialise: Initialiser

    def __call__(self, env: DecisionProcess, key: Key[Array, ""]) -> Policy:
        """Return the initial policy for an environment.

        Args:
            env: the environment.
            key: random key.

        Returns:
            The policy.
        """
        return self.initialise(env, key)

    def with_settings(self, changes: Mapping[str, Any]) -> "ConfiguredInitialiser":
        """Return the initialiser with other values of some settings.

        Args:
            changes: values by name.

        Returns:
            The initialiser.
        """
        settings = self.settings | dict(changes)
        return configured(self.factory)(**settings)


def configured(
    factory: Callable[Arguments, Initialiser],
) -> Callable[Arguments, ConfiguredInitialiser]:
    """Decorate a function that returns an initialiser, to store the settings of the latter."""

    @wraps(factory)
    def make(*args: Arguments.args, **kwargs: Arguments.kwargs) -> ConfiguredInitialiser:
        arguments = signature(factory).bind(*args, **kwargs)
        arguments.apply_defaults()
        return ConfiguredInitialiser(factory, dict(arguments.arguments), factory(*args, **kwargs))

    return make


NETWORKS = {
    "equinox": "wrap the network as occupax.policies.Softmax(net) or, for a Box, "
    "Gaussian(net, log_deviation, box)",
    "flax": "wrap the network with its parameters as "
    "occupax.policies.Softmax(equinox.Partial(net.apply, params))",
    "torch": "write the network in JAX, for example with equinox.nn, and wrap it as "
    "occupax.policies.Softmax(net)",
}
"""Hint on networks of each library."""


def network_library(source: Any) -> str | None:
    """Return the library of a network that is no policy. None for all other objects."""
    if isinstance(source, Policy | type) or not callable(source) or hasattr(source, "__wrapped__"):
        return None  # a function compiled by equinox is a module with __wrapped__
    kind: Any = type(source)
    for base in kind.__mro__:
        library = base.__module__.partition(".")[0]
        if library in NETWORKS:
            return library
    return None


def is_initialiser(source: Any) -> bool:
    """Return whether an object is an initialiser of this package, or a function that makes one."""
    if isinstance(source, Policy):
        return False
    return getattr(source, "__module__", "").startswith("occupax.policies")


def check_policy(policy: Any) -> None:
    """Raise ValueError unless an object is a policy.

    Args:
        policy: any object.

    Raises:
        ValueError: with a hint on how to make a policy of the object.
    """
    if isinstance(policy, Policy):
        return
    library = network_library(policy)
    kind = type(policy).__name__
    hint = (
        "wrap a function of the observation that returns logits as "
        "occupax.policies.Softmax(function)"
    )
    if isinstance(policy, jax.Array):
        kind = "an array"
    if library is not None:
        hint = NETWORKS[library]
    elif is_initialiser(policy):
        kind = "an initialiser"
        hint = "call the initialiser with (env, key)"
    raise ValueError(f"policy must be an occupax policy, got {kind}; {hint}.")
