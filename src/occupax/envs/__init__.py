"""What is sampled: environments as pure JAX functions, and their registry."""

from occupax.envs.acrobot import Acrobot
from occupax.envs.base import Environment
from occupax.envs.cartpole import CartPole
from occupax.envs.registry import list, make, register  # noqa: A004
from occupax.envs.tabular import TabularMDP

__all__ = ["Acrobot", "CartPole", "Environment", "TabularMDP", "list", "make", "register"]
