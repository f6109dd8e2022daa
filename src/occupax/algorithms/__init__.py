"""The algorithms, one short file each."""

from occupax.algorithms.base import Algorithm, AlgorithmState, Phase
from occupax.algorithms.hspga import HSPGA
from occupax.algorithms.maxent import MaxEnt
from occupax.algorithms.nharpg import NHARPG
from occupax.algorithms.nvrpg import NVRPG
from occupax.algorithms.page import PAGE
from occupax.algorithms.plugin import PlugIn
from occupax.algorithms.reinforce import REINFORCE
from occupax.algorithms.srvrpg import SRVRPG
from occupax.algorithms.storm import STORM
from occupax.algorithms.svrpg import SVRPG
from occupax.algorithms.tsivrpg import TSIVRPG

__all__ = [
    "ALGORITHMS",
    "HSPGA",
    "NHARPG",
    "NVRPG",
    "PAGE",
    "REINFORCE",
    "SRVRPG",
    "STORM",
    "SVRPG",
    "TSIVRPG",
    "Algorithm",
    "AlgorithmState",
    "MaxEnt",
    "Phase",
    "PlugIn",
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
}
"""The algorithms by the names of the papers."""
