"""The epochs of PPO by the compiled kernel, for networks of tanh layers and Adam.

The kernel trains policy and critic on one thread each, without the overhead of single operations.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Key

from occupax import kernels
from occupax.algorithms.minibatches import Descent, Learners, Samples, random_bits
from occupax.batches.network import OUTPUT_MULTIPLE, head_of, transposed
from occupax.policies import Policy, Softmax, dense_layers, normaliser_of
from occupax.policies.gaussian import Normal
from occupax.policies.networks import Flat

Leaves = tuple[Array, ...]


def is_fusable(policy: Policy, rule: Any) -> bool:
    """Return whether the kernel trains a policy: a network of tanh layers with Adam on the CPU.

    Args:
        policy: the policy.
        rule: step rule of the algorithm.
    """
    if not isinstance(rule, str) or jax.default_backend() != "cpu" or kernels.missing():
        return False
    if not isinstance(policy, Softmax | Normal) or not isinstance(_flat_of(policy), Flat):
        return False
    return dense_layers(_on_vectors(policy)) is not None


def train_by_kernel(
    learners: Learners,
    samples: Samples,
    live: Bool[Array, " T"],
    descent: Descent,
    key: Key[Array, ""],
) -> tuple[Learners, Float[Array, "3"]]:
    """Return policy and critic after all epochs, as `train_by_minibatches` does.

    Args:
        learners: policy and critic.
        samples: steps of the batch.
        live: whether each step was taken.
        descent: hyperparameters.
        key: random key of the minibatches.

    Returns:
        Policy and critic, and the metrics of the policy.
    """
    policy, critic = learners.policy, learners.critic
    dtype = samples.weights.dtype
    policy_rows = _rows(_policy_leaves, policy, learners.policy_moments)
    critic_rows = _rows(_critic_leaves, critic, learners.critic_moments)
    counts = jnp.stack([learners.policy_moments.count, learners.critic_moments.count])
    actions, log_probs = _actions_and_log_probs(policy, samples)
    settings = (descent.rate, descent.clip, descent.max_kl, descent.max_norm)
    operands = (
        policy_rows,
        critic_rows,
        counts,
        _policy_inputs(policy, samples.observations).astype(dtype),
        jax.vmap(critic.inputs)(samples.observations, samples.remaining).astype(dtype),
        actions.astype(dtype),
        log_probs,
        samples.advantages,
        samples.weights,
        samples.targets,
        descent.head_weights,
        live,
        random_bits(key, descent.epochs, len(live)),
        jnp.stack([jnp.asarray(setting, dtype) for setting in settings]),
    )
    outputs = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in operands[:3]]
    outputs.append(jax.ShapeDtypeStruct((3,), dtype))
    policy_rows, critic_rows, counts, entries = kernels.call(
        "network_train",
        dtype,
        outputs,
        *operands,
        sizes=np.array(_sizes(_policy_leaves(policy))),
        critic_sizes=np.array(_sizes(_critic_leaves(critic))),
        entries=np.int64(_entries(policy)),
        minibatch=np.int64(descent.minibatch),
    )
    policy, policy_moments = _from_rows(
        _policy_leaves, policy, learners.policy_moments, policy_rows, counts[0]
    )
    critic, critic_moments = _from_rows(
        _critic_leaves, critic, learners.critic_moments, critic_rows, counts[1]
    )
    return Learners(policy, critic, policy_moments, critic_moments), entries


def _flat_of(policy: Any) -> Any:
    """Return the network of a policy without the normalisation of observations."""
    normaliser = normaliser_of(policy)
    if normaliser is not None:
        return normaliser.network
    return policy.psi


def _on_vectors(policy: Policy) -> Policy:
    """Return the policy with a network of vectors, as the kernel receives them."""
    flat = replace(_flat_of(policy), num_states=None)
    return eqx.tree_at(lambda tree: tree.psi, policy, flat)


def _identity(inputs: Array) -> Array:
    return inputs


def _policy_inputs(policy: Any, observations: Any) -> Float[Array, "T n"]:
    """Return the inputs of the first layer of a policy."""

    def network(psi: Any) -> Any:
        if isinstance(psi, Flat):
            return psi.network
        return psi.network.network

    return jax.vmap(eqx.tree_at(network, policy.psi, _identity))(observations)


def _entries(policy: Policy) -> int:
    """Return the number of entries of a Gaussian action, and 0 for a softmax."""
    if isinstance(policy, Normal):
        return len(policy.box.low)
    return 0


def _actions_and_log_probs(policy: Policy, samples: Samples) -> tuple[Array, Array]:
    """Return actions and log-probabilities in the form of the kernel.

    Actions of a Gaussian policy are vectors z. Their log-probabilities lack the terms that do not
    depend on the parameters.
    """
    if not isinstance(policy, Normal):
        return samples.actions[:, None], samples.log_probs
    z = jax.vmap(policy.z)(samples.actions)
    standard = head_of(policy)
    means = jnp.zeros(z.shape)
    if policy.log_deviation is None:
        means = jnp.zeros((len(z), 2 * z.shape[1]))
    else:
        zeros = jnp.zeros_like(policy.log_deviation)
        standard = eqx.tree_at(lambda tree: tree.log_deviation, standard, zeros)
    log_densities = jax.vmap(standard.log_prob)(means, samples.actions)
    constants = log_densities + 0.5 * jnp.sum(z**2, -1)
    return z, samples.log_probs - constants


def _linear_leaves(layers: Any) -> Leaves:
    """Return weights and biases of the linear layers among some layers."""
    leaves: list[Array] = []
    for layer in layers:
        if isinstance(layer, eqx.nn.Linear):
            bias = layer.bias
            assert bias is not None  # noqa: S101 - the kernel is for layers with biases
            leaves.extend((layer.weight, bias))
    return tuple(leaves)


def _policy_leaves(policy: Any) -> Leaves:
    """Return all parameters of a policy."""
    network = policy.psi.network
    if isinstance(network, Flat):
        network = network.network
    layers: Any = (network,)
    if isinstance(network, eqx.nn.Sequential):
        layers = network.layers
    leaves = _linear_leaves(layers)
    if getattr(policy, "log_deviation", None) is None:
        return leaves
    return (*leaves, policy.log_deviation)


def _critic_leaves(critic: Any) -> Leaves:
    """Return all parameters of a critic."""
    return _linear_leaves(critic.network.layers)


def _sizes(leaves: Leaves) -> tuple[int, ...]:
    """Return the number of inputs, and of outputs of each layer."""
    weights = [leaf for leaf in leaves if leaf.ndim == 2]
    return (weights[0].shape[1], *(len(weight) for weight in weights))


def _vector(leaves: Leaves) -> Float[Array, " P"]:
    """Return the parameters as a vector in the order of the kernel, a linear function."""
    number_of_linear = 2 * sum(leaf.ndim == 2 for leaf in leaves)
    parts: list[Array] = []
    for leaf in leaves[:number_of_linear]:
        padding = (0, -len(leaf) % OUTPUT_MULTIPLE)
        if leaf.ndim == 2:
            parts.append(jnp.pad(transposed(leaf), ((0, 0), padding)).ravel())
        else:
            parts.append(jnp.pad(leaf, padding))
    parts.extend(leaves[number_of_linear:])
    return jnp.concatenate(parts)


def _rows(
    leaves_of: Callable[[Any], Leaves], network: Any, moments: optax.ScaleByAdamState
) -> Float[Array, "3 P"]:
    """Return the parameters of a network and both moments of Adam."""
    trees = (network, moments.mu, moments.nu)
    return jnp.stack([_vector(leaves_of(tree)) for tree in trees])


def _from_rows(
    leaves_of: Callable[[Any], Leaves],
    network: Any,
    moments: optax.ScaleByAdamState,
    rows: Float[Array, "3 P"],
    count: Array,
) -> tuple[Any, optax.ScaleByAdamState]:
    """Return a network and the state of Adam with the parameters of the kernel."""
    _, adjoint = jax.vjp(_vector, leaves_of(network))  # its adjoint is the inverse

    def with_row(tree: Any, row: Float[Array, " P"]) -> Any:
        (leaves,) = adjoint(row)
        return eqx.tree_at(leaves_of, tree, leaves)

    first = with_row(moments.mu, rows[1])
    second = with_row(moments.nu, rows[2])
    return with_row(network, rows[0]), moments._replace(count=count, mu=first, nu=second)
