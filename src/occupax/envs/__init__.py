"""What is sampled: environments as pure JAX functions, their registry, and a check of those of Gymnasium."""

from occupax.envs.acrobot import Acrobot
from occupax.envs.base import DecisionProcess, Environment
from occupax.envs.cartpole import CartPole
from occupax.envs.check import check_env
from occupax.envs.finding import Finding
from occupax.envs.gymnasium import GymnasiumEnv
from occupax.envs.registry import list, make, register  # noqa: A004
from occupax.envs.tabular import TabularMDP

__all__ = [
    "Acrobot",
    "CartPole",
    "DecisionProcess",
    "Environment",
    "Finding",
    "GymnasiumEnv",
    "TabularMDP",
    "check_env",
    "list",
    "make",
    "register",
]
