"""Tables of action probabilities, of policies and of agents."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from occupax.envs.tabular import TabularMDP
from occupax.exact.dynamics import Dynamics, StateActionArray, read_probs
from occupax.policies import Categorical, Policy, action_probs, check_policy_fits
from occupax.policies.agents import Agent, check_actor, is_agent
from occupax.problem import Problem


def probabilities(problem: Problem, policy: Policy) -> StateActionArray:
    """The table of action probabilities of a policy on a tabular problem, in float64."""
    if not isinstance(problem.env, TabularMDP):
        raise ValueError("exact values and certificates are for tabular environments.")
    states, num_actions = jnp.arange(problem.env.num_states), problem.env.num_actions
    with jax.enable_x64(True):
        if isinstance(policy, Categorical):
            return np.asarray(
                jax.nn.softmax(np.asarray(jax.vmap(policy.logits)(states), np.float64))
            )
        probs = np.asarray(
            jax.vmap(lambda state: action_probs(policy, state, num_actions))(states), np.float64
        )
        return probs / probs.sum(1, keepdims=True)


def read_policy(problem: Problem, policy: Any, model: Dynamics) -> Float[np.ndarray, "*H S A"]:
    """Return the checked probabilities of a table, a policy, an agent or a function."""
    if isinstance(policy, Policy):
        check_policy_fits(policy, problem.env)
        return read_probs(probabilities(problem, policy), model)
    if is_agent(policy):
        return _deterministic_probs(Agent(policy, problem.env, deterministic=True), model)
    if callable(policy):
        check_actor(policy)
    return read_probs(policy, model)


def _deterministic_probs(agent: Agent, model: Dynamics) -> StateActionArray:
    """Return the table of an agent that takes one action in each state.

    Terminal states have the first action.
    """
    actions = [
        int(agent.act(state, begins=True)) if counts else 0
        for state, counts in enumerate(model.counting)
    ]
    if agent.remembers():
        raise ValueError(
            "predict of the policy must return None as its state: a table has no memory "
            "of earlier states."
        )
    return np.eye(model.shape[1])[actions]
