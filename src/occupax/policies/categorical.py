"""Softmax policies over a preference function psi (eq. defn:policy-para), and their products."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from occupax.envs.actions import DiscreteActions, MultiDiscreteActions
from occupax.envs.base import (
    DecisionProcess,
    check_environment,
    number_of_states,
    observation_spec,
)
from occupax.errors import check_integers, check_number
from occupax.policies.base import Initialiser, Policy, configured
from occupax.policies.networks import Flat, Layers, input_size, output_length
from occupax.policies.normalising import normalised


class Categorical(Policy):
    """A softmax over one logit for each action. Subclasses define the logits psi(s, .; theta)."""

    action_space = "discrete"

    @abstractmethod
    def logits(self, observation: Any) -> Float[Array, " A"]:
        """The preferences psi(s, .; theta)."""

    @final
    def probs(self, observation: Any) -> Float[Array, " A"]:
        """The probability of each action."""
        return jax.nn.softmax(self.logits(observation))

    @final
    def log_prob(self, observation: Any, action: Int[Array, ""] | int) -> Float[Array, ""]:
        """The log-probability of one action."""
        return jax.nn.log_softmax(self.logits(observation))[action]

    @final
    def draw(
        self, observation: Any, key: Key[Array, ""]
    ) -> tuple[Int[Array, ""], Float[Array, ""]]:
        """Draw an action from the softmax; return it with its log-probability."""
        logits = self.logits(observation)
        action = jax.random.categorical(key, logits)
        return action, jax.nn.log_softmax(logits)[action]


class Tabular(Categorical):
    """psi(s, a; theta) = theta[s, a]."""

    table: Float[Array, "S A"]

    def __check_init__(self) -> None:
        dtype, shape = getattr(self.table, "dtype", None), getattr(self.table, "shape", ())
        if dtype is None or len(shape) != 2 or not jnp.issubdtype(dtype, jnp.floating):
            got = type(self.table).__name__ if dtype is None else f"{dtype} of shape {shape}"
            raise ValueError(
                f"table must be an array of real numbers [S, A], one logit each, got {got}."
            )

    def logits(self, observation: Any) -> Float[Array, " A"]:
        """A row of the table."""
        return self.table[observation]


class Softmax(Categorical):
    """A softmax over the logits that any module or function of the observation returns."""

    psi: Callable[[Any], Float[Array, " A"]]

    def __check_init__(self) -> None:
        if not callable(self.psi):
            raise ValueError(
                f"psi must be a function of the observation that returns logits, got {self.psi!r}."
            )

    def logits(self, observation: Any) -> Float[Array, " A"]:
        """What psi returns."""
        return self.psi(observation)


class SoftmaxProduct(Policy):
    """Product of independent softmax distributions, for actions that are vectors of integers.

    `psi` returns the concatenated logits of all entries; `sizes` has the number of each entry.
    """

    action_space = "multi-discrete"
    psi: Callable[[Any], Float[Array, " n"]]
    sizes: tuple[int, ...] = eqx.field(static=True)

    def __check_init__(self) -> None:
        if not check_integers("sizes", self.sizes):
            raise ValueError("sizes must have at least one entry, got none.")

    def logits(self, observation: Any) -> Float[Array, "k A"]:
        """The logits of each entry, filled up with minus infinity to the largest number of them."""
        starts = np.cumsum([0, *self.sizes[:-1]])
        places = starts[:, None] + np.arange(max(self.sizes))
        there = np.arange(max(self.sizes)) < np.array(self.sizes)[:, None]
        return jnp.where(there, self.psi(observation)[np.where(there, places, 0)], -jnp.inf)

    def log_prob(self, observation: Any, action: Int[Array, " k"]) -> Float[Array, ""]:
        """The sum of the log-probabilities of the entries."""
        return _chosen(self.logits(observation), action)

    def draw(
        self, observation: Any, key: Key[Array, ""]
    ) -> tuple[Int[Array, " k"], Float[Array, ""]]:
        """Draw all entries."""
        logits = self.logits(observation)
        action = jax.random.categorical(key, logits)
        return action, _chosen(logits, action)


def _chosen(logits: Float[Array, "k A"], action: Int[Array, " k"]) -> Float[Array, ""]:
    return jax.nn.log_softmax(logits)[jnp.arange(len(logits)), action].sum()


def action_probs(policy: Policy, observation: Any, num_actions: int) -> Float[Array, " A"]:
    """The probability of each discrete action under any policy."""
    if isinstance(policy, Categorical):
        return policy.probs(observation)
    return jnp.exp(jax.vmap(policy.log_prob, (None, 0))(observation, jnp.arange(num_actions)))


@configured
def tabular(scale: float = 0.0) -> Initialiser:
    """Return the initialiser of a tabular policy: one logit for each state and action.

    Args:
        scale: standard deviation of the initial logits; 0 is the uniform policy.
    """
    scale = check_number("scale", scale, low=0.0)

    def init(env: DecisionProcess, key: Key[Array, ""]) -> Policy:
        states = number_of_states(env)
        if states is None:
            hint = f"got {type(env).__name__}; use linear() or mlp()"
            raise ValueError(f"tabular policies need a tabular environment, {hint}.")
        shape = states, env.num_actions
        return Tabular(scale * jax.random.normal(key, shape) if scale > 0 else jnp.zeros(shape))

    return init


@configured
def linear(
    features: Callable[[Any], Float[Array, " n"]] | None = None, scale: float = 0.0
) -> Initialiser:
    """Return the initialiser of a softmax policy with logits linear in features.

    Args:
        features: function of the observation that returns a vector; by default the flattened
            observation.
        scale: standard deviation of the initial weights; 0 is the uniform policy.
    """
    scale = check_number("scale", scale, low=0.0)

    def init(env: DecisionProcess, key: Key[Array, ""]) -> Policy:
        size = (
            input_size(env) if features is None else output_length(features, observation_spec(env))
        )
        outputs = number_of_logits(env)
        layer = eqx.nn.Linear(size, outputs, key=key)
        weight = scale * jax.random.normal(key, (outputs, size))
        layer = eqx.tree_at(lambda it: (it.weight, it.bias), layer, (weight, jnp.zeros(outputs)))
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
    """A multilayer perceptron from the observation, flattened, to the logits.

    With a small `scale` the first policy is close to uniform.

    Args:
        hidden: width of each hidden layer.
        activation: name of the activation; the theory wants a twice differentiable one such as
            tanh.
        scale: what the first weights of the last layer, drawn like those of the others, are
            multiplied by.
        normalise: True lets the network see observations in units of the mean and the deviation of
            all that was seen before the iteration; False, as they are. None, the default, is
            between their bounds, where the environment declares them, and running statistics where
            a space of Gymnasium has none.
    """
    layers, scale = Layers(hidden, activation, normalise), check_number("scale", scale, low=0.0)

    def init(env: DecisionProcess, key: Key[Array, ""]) -> Policy:
        psi = layers(env, number_of_logits(env), key, scale)
        return softmax(env, normalised(psi, input_size(env)) if layers.running(env) else psi)

    return init


def number_of_logits(env: DecisionProcess) -> int:
    """How many logits a softmax policy for the actions of an environment has."""
    check_environment(env)
    space = env.action_space
    if isinstance(space, DiscreteActions):
        return space.n
    if isinstance(space, MultiDiscreteActions):
        return sum(space.sizes)
    hint = "use policies.gaussian() or squashed()"
    raise ValueError(f"softmax policies need discrete actions, got {space}; {hint}.")


def softmax(env: DecisionProcess, psi: Callable[[Any], Float[Array, " n"]]) -> Policy:
    """The softmax policy over logits, for the actions of an environment."""
    space = env.action_space
    return (
        SoftmaxProduct(psi, space.sizes)
        if isinstance(space, MultiDiscreteActions)
        else Softmax(psi)
    )
