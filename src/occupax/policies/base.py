"""What every policy does, and how one is made."""

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
    """A distribution over actions for every observation; its arrays are the parameters theta.

    Samplers draw with `draw`, estimators ask `log_prob`, and nothing else decides what a policy
    does. What is derived from these two is final: a subclass that overrides it is refused.
    """

    action_space: ClassVar[Kind]
    """In which space it acts: "discrete" (the numbers 0, 1, ... of the environment's actions),
    "multi-discrete" (vectors of such numbers), "box" (vectors of real numbers, which are clipped to
    the bounds of the environment) or "squashed" (vectors of which `applied` makes actions inside of
    the bounds)."""

    spaces: str = eqx.field(
        static=True, default="", kw_only=True, repr=False, metadata={"saved": False}
    )
    """The spaces of the environment that `predict` is for, as JSON, if they are known; see
    `for_env`."""

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
    def draw_with_action(
        self, observation: Any, key: Key[Array, ""]
    ) -> tuple[Action, Action, Float[Array, ""]]:
        """Return what `draw` returns, and between the two the action that `applied` makes of the first."""
        drawn, log_prob = self.draw(observation, key)
        return drawn, self.applied(drawn), log_prob

    @final
    def action(self, observation: Any, key: Key[Array, ""]) -> Action:
        """Draw an action, without its log-probability."""
        return self.draw_with_action(observation, key)[1]

    @final
    def predict(
        self, observation: Any, deterministic: bool = False, seed: int | None = None
    ) -> Any:
        """Choose an action as Gymnasium's environments take it, from an observation as they return it.

        Observations are encoded and normalised, and actions clipped, as in training.

        Args:
            observation: one observation, or a batch of them: what a vector of environments returns.
            deterministic: whether to take the most probable action (of a normal law, the mean)
                instead of drawing one.
            seed: of the random action; by default from random numbers of the policy's own.

        Returns:
            What `env.step` takes: a whole number or an array of NumPy; for a batch, an array of
            them.
        """
        from occupax.policies.predicting import actor_of  # which needs Gymnasium

        return actor_of(self).act(observation, deterministic, seed)

    @final
    def for_env(self: "PolicyType", env: Any) -> "PolicyType":
        """Return a copy of the policy whose `predict` uses the observation and action spaces of `env`.

        Policies of a result, and their files, know the spaces of their environment already.

        Args:
            env: an environment of Gymnasium or occupax, or the name of one.

        Raises:
            ValueError: if the policy does not take the observations of `env`, or draws other
                actions.
        """
        from occupax.envs.registry import make, wrap
        from occupax.envs.spaces import describe_spaces
        from occupax.policies.fitting import check_policy_fits

        process = make(env) if isinstance(env, str) else wrap(env)
        check_policy_fits(self, process)
        return with_spaces(self, describe_spaces(process))

    def __deepcopy__(self, memo: Any) -> "Policy":
        """Copy the arrays alone: JAX does not recognise a copy of one of its functions."""
        return jax.tree.map(lambda leaf: deepcopy(leaf, memo) if eqx.is_array(leaf) else leaf, self)

    @final
    def log_probs(self, trajectories: Any) -> Float[Array, "B H"]:
        """The log-probability of every action of a batch of trajectories; any number after their end."""
        return jax.vmap(jax.vmap(self.log_prob))(trajectories.observations, trajectories.actions)


def with_spaces(policy: "PolicyType", spaces: str) -> "PolicyType":
    """Return the policy with the spaces of an environment, as JSON; an empty string forgets them."""
    changed = copy(policy)
    vars(changed)["spaces"] = spaces  # the constructor of a policy may take anything
    return changed


PolicyType = TypeVar("PolicyType", bound=Policy)
Initialiser = Callable[[DecisionProcess, Key[Array, ""]], Policy]
"""Makes the first policy for an environment."""
Arguments = ParamSpec("Arguments")


@dataclass(frozen=True, eq=False)
class ConfiguredInitialiser:
    """An initialiser with the settings that it was made with."""

    factory: Callable[..., Initialiser]
    settings: dict[str, Any]
    """The arguments of the factory, with their defaults."""
    initialise: Initialiser

    def __call__(self, env: DecisionProcess, key: Key[Array, ""]) -> Policy:
        """Return the first policy for an environment."""
        return self.initialise(env, key)

    def with_settings(self, changes: Mapping[str, Any]) -> "ConfiguredInitialiser":
        """Return the initialiser with other values of some settings."""
        return configured(self.factory)(**{**self.settings, **changes})


def configured(
    factory: Callable[Arguments, Initialiser],
) -> Callable[Arguments, ConfiguredInitialiser]:
    """Decorate a function that makes an initialiser, so that the initialiser knows its settings."""

    @wraps(factory)
    def make(*args: Arguments.args, **kwargs: Arguments.kwargs) -> ConfiguredInitialiser:
        arguments = signature(factory).bind(*args, **kwargs)
        arguments.apply_defaults()
        return ConfiguredInitialiser(factory, dict(arguments.arguments), factory(*args, **kwargs))

    return make


NETWORKS = {
    "equinox": "wrap the network as occupax.policies.Softmax(net) or, for a Box, Gaussian(net, log_deviation, box)",
    "flax": "wrap the network with its parameters as occupax.policies.Softmax(equinox.Partial(net.apply, params))",
    "torch": "write the network in JAX, for example with equinox.nn, and wrap it as occupax.policies.Softmax(net)",
}
"""How the networks of each library become policies."""


def network_library(source: Any) -> str | None:
    """Return the library of a network that is no policy; None for everything else."""
    if isinstance(source, Policy | type) or not callable(source) or hasattr(source, "__wrapped__"):
        return None  # a function that equinox compiles is a module with __wrapped__
    kind: Any = type(source)
    libraries = (base.__module__.partition(".")[0] for base in kind.__mro__)
    return next((library for library in libraries if library in NETWORKS), None)


def is_initialiser(source: Any) -> bool:
    """Return whether an object is an initialiser of this package, or a function that makes one."""
    return getattr(source, "__module__", "").startswith("occupax.policies") and not isinstance(
        source, Policy
    )


def check_policy(policy: Any) -> None:
    """Refuse what is not a policy."""
    if isinstance(policy, Policy):
        return
    library = network_library(policy)
    got = "an array" if isinstance(policy, jax.Array) else type(policy).__name__
    if library is not None:
        hint = NETWORKS[library]
    elif is_initialiser(policy):
        got, hint = "an initialiser", "call the initialiser with (env, key)"
    else:
        hint = "wrap a function of the observation that returns logits as occupax.policies.Softmax(function)"
    raise ValueError(f"policy must be an occupax policy, got {got}; {hint}.")
