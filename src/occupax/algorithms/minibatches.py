"""Epochs of minibatches that improve a policy and a critic, and the losses that they descend."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from occupax.algorithms.critics import Critic
from occupax.policies import Policy
from occupax.steps import Number, global_norm

ADAM_EPSILON = 1e-5
"""Number that Adam adds to the root of its second moment."""
LARGEST_KEY = 2**31
"""Key by which steps after the end are sorted. Keys of all other steps are smaller."""


class Learners(eqx.Module):
    """Policy and critic, with the states of their optimisers."""

    policy: Policy
    critic: Critic
    policy_moments: Any
    critic_moments: Any


class Samples(eqx.Module):
    """Steps of a batch with the targets of policy and critic. Arrays have one entry a step."""

    observations: Any
    remaining: Float[Array, " T"]
    """Fraction of the horizon that remains, if the critic depends on time."""
    actions: Array
    log_probs: Float[Array, " T"]
    advantages: Float[Array, " T"]
    """Normalised advantages."""
    weights: Float[Array, " T"]
    """Weights kappa^t, with mean 1 over the live steps."""
    targets: Float[Array, "T m"]
    """Targets of the critic, in units of its heads."""


class Descent(eqx.Module):
    """Hyperparameters of the epochs of one iteration."""

    rate: Float[Array, ""]
    """Step size of both networks."""
    clip: Number
    """Largest change of a ratio that the surrogate rewards (c)."""
    max_kl: Number
    """KL divergence from the behaviour policy after which the policy is not updated."""
    max_norm: Number
    """Largest norm of a gradient."""
    head_weights: Float[Array, " m"]
    """Weights of the errors of the heads in the error of the value."""
    epochs: int = eqx.field(static=True)
    minibatch: int = eqx.field(static=True)
    """Largest number of steps of a minibatch."""
    rule: Any = eqx.field(static=True)
    """An optax transformation, or "adam"."""

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """Optimiser of both networks."""
        return optimiser_of(self.rule)

    def step(self, network: Any, gradient: Any, moments: Any) -> tuple[Any, Any]:
        """Return a network after a step against a gradient of bounded norm.

        Args:
            network: policy or critic.
            gradient: gradient of its loss.
            moments: state of its optimiser.

        Returns:
            The network and the state of its optimiser.
        """
        norm = global_norm(gradient)
        factor = jnp.minimum(1.0, self.max_norm / jnp.where(norm > 0, norm, 1.0))
        bounded = jax.tree.map(lambda leaf: factor * leaf, gradient)
        direction, moments = self.optimiser.update(bounded, moments, trainable(network))
        displacement = jax.tree.map(lambda leaf: -self.rate * leaf, direction)
        return eqx.apply_updates(network, displacement), moments


def optimiser_of(rule: Any) -> optax.GradientTransformation:
    """Return the optimiser of a rule.

    Args:
        rule: "adam" or an optax transformation.
    """
    if isinstance(rule, str):
        return optax.scale_by_adam(eps=ADAM_EPSILON)
    return rule


def trainable(tree: Any) -> Any:
    """Return the parameters of a module, with None for everything else."""
    return eqx.filter(tree, eqx.is_inexact_array)


def random_bits(key: Key[Array, ""], epochs: int, steps: int) -> UInt32[Array, "E T"]:
    """Return the random numbers by which the steps are sorted in each epoch."""
    return jax.random.bits(key, (epochs, steps), "uint32")


def train_by_minibatches(
    learners: Learners,
    samples: Samples,
    live: Bool[Array, " T"],
    descent: Descent,
    key: Key[Array, ""],
) -> tuple[Learners, Float[Array, "3"]]:
    """Return policy and critic after all epochs.

    The policy is not updated after an epoch with a larger KL divergence than `max_kl`. The critic
    goes through all epochs.

    Args:
        learners: policy and critic.
        samples: steps of the batch.
        live: whether each step was taken.
        descent: hyperparameters.
        key: random key of the minibatches.

    Returns:
        Policy and critic, and means of KL divergence and clipped ratios over the last epoch of the
        policy, with the number of its epochs.
    """
    count = live.sum()
    size = min(descent.minibatch, len(live))
    number = -(-count // size)
    bits = random_bits(key, descent.epochs, len(live))
    arrays, static = eqx.partition(learners, eqx.is_array)

    def train_epoch(epoch: Int[Array, ""], carry: Any) -> Any:
        arrays, means, policy_epochs = carry
        keys = jnp.where(live, bits[epoch] >> 1, jnp.uint32(LARGEST_KEY))
        order = jnp.argsort(keys)  # steps after the end come last
        learns = (means[0] <= descent.max_kl) & (count > 0)

        def train_minibatch(i: Int[Array, ""], carry: Any) -> Any:
            arrays, sums = carry
            places = i + number * jnp.arange(size)  # sizes of minibatches differ by at most 1
            used = places < count
            rows = order[jnp.minimum(places, len(live) - 1)]
            minibatch = jax.tree.map(lambda leaf: leaf[rows], samples)
            learners = eqx.combine(arrays, static)
            learners, entries = _descend(learners, minibatch, used, descent, learns)
            return eqx.filter(learners, eqx.is_array), sums + entries

        zeros = jnp.zeros(2, samples.weights.dtype)
        arrays, sums = jax.lax.fori_loop(0, number, train_minibatch, (arrays, zeros))
        means = jnp.where(learns, sums / jnp.maximum(count, 1), means)
        return arrays, means, policy_epochs + learns

    start = (arrays, jnp.zeros(2, samples.weights.dtype), jnp.zeros((), jnp.int32))
    arrays, means, policy_epochs = jax.lax.fori_loop(0, descent.epochs, train_epoch, start)
    return eqx.combine(arrays, static), jnp.append(means, policy_epochs)


def _descend(
    learners: Learners,
    minibatch: Samples,
    used: Bool[Array, " B"],
    descent: Descent,
    learns: Bool[Array, ""],
) -> tuple[Learners, Float[Array, "2"]]:
    """Return the learners after a minibatch, with sums of KL and clipped ratios."""
    policy_gradient, entries = eqx.filter_grad(surrogate_loss, has_aux=True)(
        learners.policy, minibatch, used, descent.clip
    )
    critic_gradient = eqx.filter_grad(critic_loss)(
        learners.critic, minibatch, used, descent.head_weights
    )
    policy, policy_moments = descent.step(learners.policy, policy_gradient, learners.policy_moments)
    critic, critic_moments = descent.step(learners.critic, critic_gradient, learners.critic_moments)
    previous = (trainable(learners.policy), learners.policy_moments)
    updated = (trainable(policy), policy_moments)
    chosen, policy_moments = jax.tree.map(
        lambda new, old: jnp.where(learns, new, old), updated, previous
    )
    policy = eqx.combine(chosen, policy)
    return Learners(policy, critic, policy_moments, critic_moments), entries


def surrogate_loss(
    policy: Policy, samples: Samples, used: Bool[Array, " B"], clip: Number
) -> tuple[Float[Array, ""], Float[Array, "2"]]:
    """Return the negative clipped surrogate, and sums of the KL divergence and clipped ratios.

    Args:
        policy: policy theta.
        samples: minibatch.
        used: whether each entry of the minibatch counts.
        clip: largest change of a ratio that the surrogate rewards (c).
    """
    log_probs = jax.vmap(policy.log_prob)(samples.observations, samples.actions)
    log_ratios = jnp.where(used, log_probs - samples.log_probs, 0.0)
    ratios = jnp.exp(log_ratios)
    clipped_ratios = jnp.clip(ratios, 1 - clip, 1 + clip)
    gains = jnp.minimum(ratios * samples.advantages, clipped_ratios * samples.advantages)
    count = jnp.maximum(used.sum(), 1)
    loss = -jnp.sum(jnp.where(used, samples.weights * gains, 0.0)) / count
    divergence = jnp.sum(ratios - 1 - log_ratios)
    changed = jnp.sum(ratios != clipped_ratios, dtype=ratios.dtype)
    return loss, jnp.stack([divergence, changed])


def critic_loss(
    critic: Critic, samples: Samples, used: Bool[Array, " B"], head_weights: Float[Array, " m"]
) -> Float[Array, ""]:
    """Return the squared error of the value plus the mean squared error of the heads.

    Args:
        critic: critic.
        samples: minibatch.
        used: whether each entry of the minibatch counts.
        head_weights: weights of the errors of the heads in the error of the value.
    """
    errors = jax.vmap(critic)(samples.observations, samples.remaining) - samples.targets
    squares = (errors @ head_weights) ** 2 + jnp.mean(errors**2, -1)
    return jnp.sum(jnp.where(used, squares, 0.0)) / jnp.maximum(used.sum(), 1)
