"""The algorithms, one short file each."""

from occupax.algorithms.base import Algorithm, AlgorithmState, Phase
from occupax.algorithms.hspga import HSPGA
from occupax.algorithms.maxent import MaxEnt
from occupax.algorithms.reinforce import REINFORCE
from occupax.algorithms.srvrpg import SRVRPG
from occupax.algorithms.svrpg import SVRPG
from occupax.algorithms.tsivrpg import TSIVRPG

__all__ = [
    "ALGORITHMS",
    "HSPGA",
    "REINFORCE",
    "SRVRPG",
    "SVRPG",
    "TSIVRPG",
    "Algorithm",
    "AlgorithmState",
    "MaxEnt",
    "Phase",
]

ALGORITHMS = {
    "reinforce": REINFORCE,
    "svrpg": SVRPG,
    "srvr-pg": SRVRPG,
    "hspga": HSPGA,
    "tsivr-pg": TSIVRPG,
    "maxent": MaxEnt,
}
"""The algorithms by the names of the papers."""
