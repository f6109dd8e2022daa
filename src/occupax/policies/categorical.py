"""Softmax policies over a preference function psi (eq. defn:policy-para), and their products."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from occupax.envs.actions import DiscreteActions, MultiDiscreteActions
from occupax.envs.base import (
    DecisionProcess,
    check_environment,
    number_of_states,
    observation_spec,
)
from occupax.errors import check_integers, check_number
from occupax.policies.base import Initialiser, Policy, configured
from occupax.policies.networks import Flat, Layers, input_size, output_length, with_parameters
from occupax.policies.normalising import normalised


class Categorical(Policy):
    """A softmax over one logit for each action. Subclasses define the logits psi."""

    action_space = "discrete"

    @abstractmethod
    def logits(self, observation: Any) -> Float[Array, " A"]:
        """Return the logits psi of the actions.

        Args:
            observation: one observation.

        Returns:
            One number for each action.
        """

    @final
    def probs(self, observation: Any) -> Float[Array, " A"]:
        """Return the probability of each action.

        Args:
            observation: one observation.

        Returns:
            The probabilities, which sum to 1.
        """
        return jax.nn.softmax(self.logits(observation))

    @final
    def log_prob(self, observation: Any, action: Int[Array, ""] | int) -> Float[Array, ""]:
        """Return the log-probability of an action."""
        return jax.nn.log_softmax(self.logits(observation))[action]

    @final
    def draw(
        self, observation: Any, key: Key[Array, ""]
    ) -> tuple[Int[Array, ""], Float[Array, ""]]:
        """Draw an action. Return the action and its log-probability."""
        logits = self.logits(observation)
        action = jax.random.categorical(key, logits)
        return action, jax.nn.log_softmax(logits)[action]


class Tabular(Categorical):
    """A softmax policy with one parameter, its logit, for each state and action.

    Args:
        table: the logits [S, A].
    """

    table: Float[Array, "S A"]

    def __check_init__(self) -> None:
        dtype = getattr(self.table, "dtype", None)
        shape = getattr(self.table, "shape", ())
        if dtype is not None and len(shape) == 2 and jnp.issubdtype(dtype, jnp.floating):
            return
        got = type(self.table).__name__
        if dtype is not None:
            got = f"{dtype} of shape {shape}"
        raise ValueError(
            f"table must be an array of real numbers [S, A], one logit each, got {got}."
        )

    def logits(self, observation: Any) -> Float[Array, " A"]:
        """Return the row of a state."""
        return self.table[observation]


class Softmax(Categorical):
    """A softmax over the logits of any module or function of the observation.

    Args:
        psi: the function of the observation that returns the logits.
    """

    psi: Callable[[Any], Float[Array, " A"]]

    def __check_init__(self) -> None:
        if not callable(self.psi):
            raise ValueError(
                f"psi must be a function of the observation that returns logits, got {self.psi!r}."
            )

    def logits(self, observation: Any) -> Float[Array, " A"]:
        """Return the outputs of psi."""
        return self.psi(observation)


class SoftmaxProduct(Policy):
    """Product of independent softmax distributions, for actions that are vectors of integers.

    Args:
        psi: the function of the observation that returns the concatenated logits of all entries.
        sizes: number of logits of each entry.
    """

    action_space = "multi-discrete"
    psi: Callable[[Any], Float[Array, " n"]]
    sizes: tuple[int, ...] = eqx.field(static=True)

    def __check_init__(self) -> None:
        if not check_integers("sizes", self.sizes):
            raise ValueError("sizes must have at least one entry, got none.")

    @property
    def has_logit(self) -> Bool[np.ndarray, "k A"]:
        """Whether an entry has a logit of a number. The largest entry has all of them."""
        return np.arange(max(self.sizes)) < np.array(self.sizes)[:, None]

    def logits(self, observation: Any) -> Float[Array, "k A"]:
        """Return the logits of each entry, padded with minus infinity.

        Args:
            observation: one observation.

        Returns:
            One row for each entry, with the largest number of logits of any entry.
        """
        has_logit = self.has_logit
        starts = np.cumsum([0, *self.sizes[:-1]])
        positions = starts[:, None] + np.arange(max(self.sizes))
        logits = self.psi(observation)[np.where(has_logit, positions, 0)]
        return jnp.where(has_logit, logits, -jnp.inf)

    def log_prob(self, observation: Any, action: Int[Array, " k"]) -> Float[Array, ""]:
        """Return the sum of the log-probabilities of the entries."""
        return _log_prob_of(self.logits(observation), action)

    def draw(
        self, observation: Any, key: Key[Array, ""]
    ) -> tuple[Int[Array, " k"], Float[Array, ""]]:
        """Draw all entries. Return the action and its log-probability."""
        logits = self.logits(observation)
        action = jax.random.categorical(key, logits)
        return action, _log_prob_of(logits, action)


def _log_prob_of(logits: Float[Array, "k A"], action: Int[Array, " k"]) -> Float[Array, ""]:
    return jax.nn.log_softmax(logits)[jnp.arange(len(logits)), action].sum()


def action_probs(policy: Policy, observation: Any, num_actions: int) -> Float[Array, " A"]:
    """Return the probability of each discrete action under any policy.

    Args:
        policy: a policy for discrete actions.
        observation: one observation.
        num_actions: number of actions.

    Returns:
        The probabilities.
    """
    if isinstance(policy, Categorical):
        return policy.probs(observation)
    return jnp.exp(jax.vmap(policy.log_prob, (None, 0))(observation, jnp.arange(num_actions)))


@configured
def tabular(scale: float = 0.0) -> Initialiser:
    """Return the initialiser of a tabular policy: one logit for each state and action.

    Args:
        scale: standard deviation of the initial logits; 0 (default) is the uniform policy.

    Returns:
        The function `(env, key) -> policy`.
    """
    scale = check_number("scale", scale, low=0.0)

    def init(env: DecisionProcess, key: Key[Array, ""]) -> Policy:
        states = number_of_states(env)
        if states is None:
            hint = f"got {type(env).__name__}; use linear() or mlp()"
            raise ValueError(f"tabular policies need a tabular environment, {hint}.")
        shape = states, env.num_actions
        if scale == 0:
            return Tabular(jnp.zeros(shape))
        return Tabular(scale * jax.random.normal(key, shape))

    return init


@configured
def linear(
    features: Callable[[Any], Float[Array, " n"]] | None = None, scale: float = 0.0
) -> Initialiser:
    """Return the initialiser of a softmax policy with logits linear in features.

    Args:
        features: function of the observation that returns a vector; by default the flattened
            observation.
        scale: standard deviation of the initial weights; 0 (default) is the uniform policy.

    Returns:
        The function `(env, key) -> policy`.
    """
    scale = check_number("scale", scale, low=0.0)

    def init(env: DecisionProcess, key: Key[Array, ""]) -> Policy:
        if features is None:
            size = input_size(env)
        else:
            size = output_length(features, observation_spec(env))
        outputs = number_of_logits(env)
        layer = eqx.nn.Linear(size, outputs, key=key)
        weight = scale * jax.random.normal(key, (outputs, size))
        layer = with_parameters(layer, weight, jnp.zeros(outputs))
        if features is None:
            return softmax(env, Flat(layer, number_of_states(env)))
        return softmax(env, eqx.nn.Sequential([eqx.nn.Lambda(features), layer]))

    return init


@configured
def mlp(
    hidden: Sequence[int] = (64, 64),
    activation: str = "tanh",
    scale: float = 0.01,
    normalise: bool | None = None,
) -> Initialiser:
    """Return the initialiser of a softmax policy with logits by a multilayer perceptron.

    With a small `scale` the initial policy is close to uniform.

    Args:
        hidden: width of each hidden layer, by default (64, 64).
        activation: name of the activation, by default "tanh"; the theory needs a twice
            differentiable one.
        scale: factor of the initial weights of the output layer, by default 0.01.
        normalise: whether to normalise observations by the mean and standard deviation of all
            earlier iterations. None (default) scales them to the bounds that the environment
            declares, and normalises observations of Gymnasium spaces without bounds.

    Returns:
        The function `(env, key) -> policy`.
    """
    layers = Layers(hidden, activation, normalise)
    scale = check_number("scale", scale, low=0.0)

    def init(env: DecisionProcess, key: Key[Array, ""]) -> Policy:
        network = layers(env, number_of_logits(env), key, scale)
        if layers.normalises(env):
            return softmax(env, normalised(network, input_size(env)))
        return softmax(env, network)

    return init


def number_of_logits(env: DecisionProcess) -> int:
    """Return the number of logits of a softmax policy for the actions of an environment."""
    check_environment(env)
    space = env.action_space
    if isinstance(space, DiscreteActions):
        return space.n
    if isinstance(space, MultiDiscreteActions):
        return sum(space.sizes)
    hint = "use policies.gaussian() or squashed()"
    raise ValueError(f"softmax policies need discrete actions, got {space}; {hint}.")


def softmax(env: DecisionProcess, psi: Callable[[Any], Float[Array, " n"]]) -> Policy:
    """Return the softmax policy over the logits of psi for the actions of an environment."""
    space = env.action_space
    if isinstance(space, MultiDiscreteActions):
        return SoftmaxProduct(psi, space.sizes)
    return Softmax(psi)
