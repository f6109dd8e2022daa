"""Environments: pure JAX functions, those of Gymnasium, their registry and a check.

* `base`: what every environment provides. `actions`: which actions it takes.
* `tabular`: `TabularMDP`, which reads and checks its arrays; `tables` has the processes with a
  name, `layout` the maps that states are drawn on.
* `cartpole`, `acrobot`, `mountain_car` and `pendulum`: the physics of Gymnasium in JAX. `lqr`:
  linear systems, whose optimum is known.
* `gymnasium`: `GymnasiumEnv`, any environment of Gymnasium; `gymnasium_actions` translates its
  actions, `episode` plays one episode of it call by call, and `slots` steps several that play side
  by side. `vector_reward`: rewards that are vectors.
* `gymnax`: `from_gymnax`, any environment of gymnax.
* `lookup`: what an id or module:factory stands for. `missing_envs`: which package has an id
  that is not known.
* `registry`: `make`, `register` and `list`.
* `check/`: whether an environment is fit for training; `observation_checks` has the part for
  observations and their space, and `issues` the faults, with their texts in `issues.toml`.
"""

from occupax.envs.acrobot import Acrobot
from occupax.envs.actions import ActionSpace, BoxActions, DiscreteActions, MultiDiscreteActions
from occupax.envs.base import DecisionProcess, Environment
from occupax.envs.cartpole import CartPole, ContinuousCartPole
from occupax.envs.check import EnvIssue, check_env
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.envs.gymnax import GymnaxEnv, from_gymnax
from occupax.envs.layout import Layout
from occupax.envs.lqr import LQR
from occupax.envs.mountain_car import ContinuousMountainCar, MountainCar
from occupax.envs.pendulum import Pendulum
from occupax.envs.registry import list, make, register  # noqa: A004
from occupax.envs.tabular import TabularMDP

__all__ = [
    "LQR",
    "Acrobot",
    "ActionSpace",
    "BoxActions",
    "CartPole",
    "ContinuousCartPole",
    "ContinuousMountainCar",
    "DecisionProcess",
    "DiscreteActions",
    "EnvIssue",
    "Environment",
    "GymnasiumEnv",
    "GymnaxEnv",
    "Layout",
    "MountainCar",
    "MultiDiscreteActions",
    "Pendulum",
    "TabularMDP",
    "check_env",
    "from_gymnax",
    "list",
    "make",
    "register",
]
