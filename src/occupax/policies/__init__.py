"""Policies: distributions over actions for every observation.

* `base`: the base class of policies, and initialisers.
* `networks`: functions of the observation that policies are made of.
* `normalising`: observation normalisation by running statistics.
* `categorical`: softmax policies for discrete actions, and products of them for vectors of discrete
  actions.
* `images`: softmax policies with convolutions of an image.
* `gaussian`: Gaussian policies for continuous actions, plain or squashed into their bounds.
* `saturation`: recovery of Gaussian policies whose actions are beyond their bounds.
* `restarts`: re-initialised output layers, for policies without a gradient.
* `fitting`: compatibility of policies with environments and with the compiled kernel.
* `modes`: the most probable actions of a policy.
* `agents`: agents with `predict`, and functions of the observation.
* `predicting`: actions for Gymnasium's `step`, and the adapter for Stable-Baselines3.
* `on_host`: NumPy implementations, for environments that are stepped outside of JAX.
"""

from typing import Any

from occupax.policies.base import (
    ConfiguredInitialiser,
    Initialiser,
    Policy,
    PolicyType,
    check_policy,
    with_spaces,
)
from occupax.policies.categorical import (
    Categorical,
    Softmax,
    SoftmaxProduct,
    Tabular,
    action_probs,
    linear,
    mlp,
    tabular,
)
from occupax.policies.fitting import (
    check_policy_fits,
    check_policy_states,
    default_policy,
    dense_layers,
)
from occupax.policies.gaussian import Gaussian, Squashed, gaussian, squashed
from occupax.policies.images import Pixels, cnn
from occupax.policies.networks import ACTIVATIONS, NAMED_FUNCTIONS, Flat
from occupax.policies.normalising import (
    Normalised,
    ObservationMoments,
    normaliser_of,
    observation_moments,
    with_statistics,
)

__all__ = [
    "ACTIVATIONS",
    "INITIALISERS",
    "NAMED_FUNCTIONS",
    "Categorical",
    "ConfiguredInitialiser",
    "Flat",
    "Gaussian",
    "Initialiser",
    "Normalised",
    "ObservationMoments",
    "Pixels",
    "Policy",
    "PolicyType",
    "Softmax",
    "SoftmaxProduct",
    "Squashed",
    "Tabular",
    "action_probs",
    "check_policy",
    "check_policy_fits",
    "check_policy_states",
    "cnn",
    "default_policy",
    "dense_layers",
    "gaussian",
    "linear",
    "mlp",
    "normaliser_of",
    "observation_moments",
    "squashed",
    "tabular",
    "with_spaces",
    "with_statistics",
]

INITIALISERS = {
    "tabular": tabular,
    "linear": linear,
    "mlp": mlp,
    "cnn": cnn,
    "gaussian": gaussian,
    "squashed": squashed,
}
"""Functions that return an initialiser, by name."""


def __getattr__(name: str) -> Any:
    """Import `StableBaselinesPolicy` on first use, because importing Gymnasium is slow."""
    if name == "StableBaselinesPolicy":
        # slow: imports Gymnasium
        from occupax.policies.predicting import StableBaselinesPolicy

        return StableBaselinesPolicy
    raise AttributeError(f"module 'occupax.policies' has no attribute {name!r}")
