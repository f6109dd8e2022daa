"""Whether a Gymnasium environment is fit for training: what is wrong with it, where, and how to mend it.

* `environment`: `check_env`, which plays random episodes and looks at all that is returned.
* `observations`: what observations and their space must be like.
* `findings`: what is found, with its texts in `findings.toml`, and the calls that may raise or hang.
"""

from occupax.envs.check.environment import check_env
from occupax.envs.check.findings import Finding

__all__ = ["Finding", "check_env"]
