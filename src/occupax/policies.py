"""Softmax policies over any preference function psi (eq. defn:policy-para of the paper)."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, TypeVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from occupax._errors import check_integers, check_number, unknown
from occupax.envs.base import DecisionProcess, number_of_states, observation_spec

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    **{name: getattr(jax.nn, name) for name in ("gelu", "silu", "softplus", "relu")},
    "tanh": jnp.tanh,
}


class Policy(eqx.Module):
    """A distribution over actions for every observation; its arrays are the parameters theta.

    Samplers draw with `draw`, estimators ask `log_prob`, and nothing else decides what a policy does. What is derived
    from these two is final: a subclass that overrides it is refused.
    """

    action_space: ClassVar[Literal["discrete"]]
    """The kind of actions: "discrete" ones are the numbers 0, 1, ... of the environment's actions."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in vars(cls):
            home = next((base for base in cls.__mro__[1:] if name in vars(base)), None)
            if home is not None and getattr(vars(home)[name], "__final__", False):
                source = "logits" if issubclass(home, Categorical) else "draw and log_prob"
                raise TypeError(
                    f"{cls.__name__} must not override {name}, which {home.__name__} derives from {source}; override "
                    f"{source} instead, or inherit from occupax.policies.Policy and define draw and log_prob."
                )

    @abstractmethod
    def draw(self, observation: Any, key: Key[Array, ""]) -> tuple[Int[Array, ""], Float[Array, ""]]:
        """Draw an action.

        Args:
            observation: one observation.
            key: of the random numbers.

        Returns:
            The action and its log-probability.
        """

    @abstractmethod
    def log_prob(self, observation: Any, action: Int[Array, ""] | int) -> Float[Array, ""]:
        """The log-probability of an action, differentiable in the parameters."""

    @final
    def action(self, observation: Any, key: Key[Array, ""]) -> Int[Array, ""]:
        """Draw an action, without its log-probability."""
        return self.draw(observation, key)[0]

    @final
    def log_probs(self, trajectories: Any) -> Float[Array, "B H"]:
        """The log-probability of every action of a batch of trajectories; any number after their end."""
        return jax.vmap(jax.vmap(self.log_prob))(trajectories.observations, trajectories.actions)


class Categorical(Policy):
    """A softmax over one logit for each action. Subclasses say what the logits psi(s, .; theta) are."""

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
    def draw(self, observation: Any, key: Key[Array, ""]) -> tuple[Int[Array, ""], Float[Array, ""]]:
        """Draw an action from the softmax; return it with its log-probability."""
        logits = self.logits(observation)
        action = jax.random.categorical(key, logits)
        return action, jax.nn.log_softmax(logits)[action]


PolicyType = TypeVar("PolicyType", bound=Policy)


class Tabular(Categorical):
    """psi(s, a; theta) = theta[s, a]."""

    table: Float[Array, "S A"]

    def logits(self, observation: Any) -> Float[Array, " A"]:
        """A row of the table."""
        return self.table[observation]


class Softmax(Categorical):
    """A softmax over the logits that any module or function of the observation returns."""

    psi: Callable[[Any], Float[Array, " A"]]

    def __check_init__(self) -> None:
        if not callable(self.psi):
            raise ValueError(f"psi must be a function of the observation that returns logits, got {self.psi!r}.")

    def logits(self, observation: Any) -> Float[Array, " A"]:
        """What psi returns."""
        return self.psi(observation)


class _Flat(eqx.Module):
    """A network fed with the observation as one flat vector of floats; states of a table are made one-hot."""

    network: Callable[[Float[Array, " n"]], Float[Array, " A"]]
    num_states: int | None = eqx.field(static=True)

    def __call__(self, observation: Any) -> Float[Array, " A"]:
        if self.num_states is not None:
            return self.network(jax.nn.one_hot(observation, self.num_states))
        return self.network(jnp.ravel(observation).astype(jnp.result_type(float)))


def action_probs(policy: Policy, observation: Any, num_actions: int) -> Float[Array, " A"]:
    """The probability of each discrete action under any policy."""
    if isinstance(policy, Categorical):
        return policy.probs(observation)
    return jnp.exp(jax.vmap(policy.log_prob, (None, 0))(observation, jnp.arange(num_actions)))


def dense_layers(policy: Policy) -> tuple[eqx.nn.Linear, ...] | None:
    """The layers of a network from a vector to logits with tanh between them; None for any other policy."""
    psi = policy.psi if type(policy) is Softmax else None
    if not isinstance(psi, _Flat) or psi.num_states is not None:
        return None
    layers = psi.network.layers if isinstance(psi.network, eqx.nn.Sequential) else (psi.network,)
    dense = [layer for layer in layers[::2] if isinstance(layer, eqx.nn.Linear) and layer.bias is not None]
    bent = [layer for layer in layers[1::2] if isinstance(layer, eqx.nn.Lambda) and layer.fn is jnp.tanh]
    return tuple(dense) if len(dense) + len(bent) == len(layers) else None


def refuse_unless_policy(policy: Any) -> None:
    """Refuse what is not a policy."""
    if not isinstance(policy, Policy):
        hint = "wrap a function of the observation that returns logits in policies.Softmax"
        if getattr(policy, "__module__", "") == __name__:
            hint = "call the initialiser with (env, key)"
        got = "an array" if isinstance(policy, jax.Array) else type(policy).__name__
        raise ValueError(f"policy must be an occupax policy, got {got}; {hint}.")


def refuse_unless_fitting(policy: Any, env: DecisionProcess) -> None:
    """Refuse a policy made for something else: JAX reads past the end of an array without a word."""
    refuse_unless_policy(policy)
    observation = observation_spec(env)
    refuse_other_states(policy, env)
    if isinstance(policy, Categorical):
        logits = jax.eval_shape(policy.logits, observation)
        if logits.shape != (env.num_actions,):
            raise ValueError(f"policy must return logits for {env.num_actions} actions, got shape {logits.shape}.")
    elif getattr(policy, "action_space", None) != "discrete":
        raise ValueError(f'action_space of {type(policy).__name__} must be "discrete", as that of the environment is.')
    else:
        action, drawn = jax.eval_shape(policy.draw, observation, jax.random.key(0))
        if action.shape != () or not jnp.issubdtype(action.dtype, jnp.integer):
            raise ValueError(f"draw of the policy must return the number of an action, got {action}.")
        for name, found in (("draw", drawn), ("log_prob", jax.eval_shape(policy.log_prob, observation, action))):
            if found.shape != () or not jnp.issubdtype(found.dtype, jnp.floating):
                raise ValueError(f"{name} of the policy must return one log-probability, got {found}.")


def refuse_other_states(policy: Policy, env: DecisionProcess) -> None:
    """Refuse a policy made for another number of states than that of the environment."""
    states, table = number_of_states(env), len(policy.table) if isinstance(policy, Tabular) else None
    made_for = getattr(getattr(policy, "psi", None), "num_states", table)
    if made_for not in (None, states):
        got = "observations that are not states" if states is None else f"{states} states"
        raise ValueError(f"policy was made for {made_for} states, but env has {got}.")


Initialiser = Callable[[DecisionProcess, Key[Array, ""]], Policy]


def tabular(scale: float = 0.0) -> Initialiser:
    """One logit for each state and action, drawn from a normal law of deviation `scale` (0: the uniform policy)."""
    scale = check_number("scale", scale, low=0.0)

    def init(env: DecisionProcess, key: Key[Array, ""]) -> Policy:
        states = number_of_states(env)
        if states is None:
            hint = f"got {type(env).__name__}; use linear() or mlp()"
            raise ValueError(f"tabular policies need a tabular environment, {hint}.")
        shape = states, env.num_actions
        return Tabular(scale * jax.random.normal(key, shape) if scale > 0 else jnp.zeros(shape))

    return init


def linear(features: Callable[[Any], Float[Array, " n"]] | None = None, scale: float = 0.0) -> Initialiser:
    """Logits linear in the vector `features(observation)`; by default in the observation itself, flattened.

    The weights are drawn from a normal law of deviation `scale` (0: the uniform policy).
    """
    scale = check_number("scale", scale, low=0.0)

    def init(env: DecisionProcess, key: Key[Array, ""]) -> Policy:
        size = _input_size(env) if features is None else _length(features, observation_spec(env))
        layer = eqx.nn.Linear(size, env.num_actions, key=key)
        weight = scale * jax.random.normal(key, (env.num_actions, size))
        layer = eqx.tree_at(lambda it: (it.weight, it.bias), layer, (weight, jnp.zeros(env.num_actions)))
        if features is None:
            return Softmax(_Flat(layer, number_of_states(env)))
        return Softmax(eqx.nn.Sequential([eqx.nn.Lambda(features), layer]))

    return init


def mlp(hidden: Sequence[int] = (64, 64), activation: str = "tanh", scale: float = 0.01) -> Initialiser:
    """A multilayer perceptron from the observation, flattened, to the logits.

    With a small `scale` the first policy is close to uniform.

    Args:
        hidden: width of each hidden layer.
        activation: name of the activation; the theory wants a twice differentiable one such as tanh.
        scale: what the first weights of the last layer, drawn like those of the others, are multiplied by.
    """
    widths = check_integers("hidden", hidden)
    if not isinstance(activation, str) or activation not in ACTIVATIONS:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise unknown("activation", activation, ACTIVATIONS)
    scale = check_number("scale", scale, low=0.0)

    def init(env: DecisionProcess, key: Key[Array, ""]) -> Policy:
        sizes = (_input_size(env), *widths, env.num_actions)
        keys = jax.random.split(key, len(sizes) - 1)
        layers: list[Any] = []
        for fan_in, fan_out, layer_key in zip(sizes[:-1], sizes[1:], keys, strict=True):
            layers += [eqx.nn.Linear(fan_in, fan_out, key=layer_key), eqx.nn.Lambda(ACTIVATIONS[activation])]
        layers[-2] = jax.tree.map(lambda leaf: scale * leaf, layers[-2])
        return Softmax(_Flat(eqx.nn.Sequential(layers[:-1]), number_of_states(env)))

    return init


def _length(features: Callable[[Any], Float[Array, " n"]], observation: Any) -> int:
    try:
        shape = jax.eval_shape(features, observation).shape
    except Exception as error:
        raise ValueError(f"the function features failed on an observation: {error}") from error
    if len(shape) != 1:
        raise ValueError(f"features must return a vector, got an array of shape {shape}.")
    return shape[0]


def _input_size(env: DecisionProcess) -> int:
    states = number_of_states(env)
    return int(np.prod(observation_spec(env).shape)) if states is None else states
