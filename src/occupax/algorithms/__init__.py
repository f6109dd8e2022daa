"""Algorithms, one page each, and the parts of new ones.

* `base`: the contract of an algorithm: `Algorithm`, `AlgorithmState` and `Phase`.
* `updates`: pure functions that the updates share.
* `planning`: the model of `PlugIn` and planning in the model.
* `advantages` and `critics`: generalised advantages and the critic of `PPO`.
* `minibatches` and `fused`: the epochs of `PPO`, in JAX and by the compiled kernel.
* Each other file is one algorithm, from its pseudocode to the last line of its update.
"""

from occupax.algorithms.base import Algorithm, AlgorithmState, Budget, Phase
from occupax.algorithms.hspga import HSPGA
from occupax.algorithms.maxent import MaxEnt
from occupax.algorithms.nharpg import NHARPG
from occupax.algorithms.nvrpg import NVRPG
from occupax.algorithms.page import PAGE
from occupax.algorithms.plugin import PlugIn
from occupax.algorithms.ppo import PPO
from occupax.algorithms.reinforce import REINFORCE
from occupax.algorithms.srvrpg import SRVRPG
from occupax.algorithms.storm import STORM
from occupax.algorithms.svrpg import SVRPG
from occupax.algorithms.tsivrpg import TSIVRPG
from occupax.algorithms.updates import (
    add,
    choose,
    scale,
    subtract,
    weights_are_trusted,
    zero_gradient,
)

__all__ = [
    "ALGORITHMS",
    "HSPGA",
    "NHARPG",
    "NVRPG",
    "PAGE",
    "PPO",
    "REINFORCE",
    "SRVRPG",
    "STORM",
    "SVRPG",
    "TSIVRPG",
    "Algorithm",
    "AlgorithmState",
    "Budget",
    "MaxEnt",
    "Phase",
    "PlugIn",
    "add",
    "choose",
    "scale",
    "subtract",
    "weights_are_trusted",
    "zero_gradient",
]

ALGORITHMS = {
    "reinforce": REINFORCE,
    "svrpg": SVRPG,
    "srvr-pg": SRVRPG,
    "hspga": HSPGA,
    "tsivr-pg": TSIVRPG,
    "maxent": MaxEnt,
    "storm": STORM,
    "page": PAGE,
    "n-vr-pg": NVRPG,
    "n-harpg": NHARPG,
    "plug-in": PlugIn,
    "ppo": PPO,
}
"""Algorithms by the names in the papers."""
