"""Errors for complex numbers, strings and wrong shapes where an array of reals is expected.

`sentences` makes the calls.
"""

from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import occupax as ox
from occupax.errors import real_array
from sentences import Case, Outcomes, assert_sentence, outcomes_of, print_outcomes

KEY = jax.random.key(0)
CHAIN = ox.TabularMDP.chain(4)
UNIFORM = ox.policies.Tabular(jnp.zeros((4, 2)))
COMPLEX = np.full((4, 2), 0.5 + 1j)


def problem() -> Any:
    return ox.Problem(CHAIN, horizon=5)


def cartpole() -> Any:
    return ox.make("CartPole-v1")


def counting(function: Any) -> Any:
    """Return a problem of CartPole with a feature function."""
    return ox.Problem(cartpole(), jnp.sum, features=function)


def predict(observation: Any, env: Any = "CartPole-v1") -> Any:
    """Choose an action for an observation by a network, or by a table for a tabular environment."""
    made = ox.make(env) if isinstance(env, str) else env
    initial = ox.policies.tabular() if isinstance(made, ox.TabularMDP) else ox.policies.mlp((4,))
    return initial(made, KEY).for_env(made).predict(observation)


def imitate(observation: Any, action: Any, env: Any = CHAIN, features: Any = None) -> Any:
    """Return the distribution of visits of a single recorded pair."""
    return ox.demonstrations(env, [[(observation, action)]], features=features)


class Complex(gym.Env[Any, Any]):
    """An environment that returns a complex number in one place."""

    def __init__(self, place: str):
        self.observation_space, self.action_space = (
            spaces.Box(-9.0, 9.0, (2,), np.float32),
            spaces.Discrete(2),
        )
        self._place = place

    def _seen(self) -> Any:
        return (
            np.full(2, 1j, np.complex64)
            if self._place == "observation"
            else np.zeros(2, np.float32)
        )

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        reward = {"reward": np.complex128(1j), "reward array": np.array(1j)}.get(self._place, 0.0)
        return (
            self._seen(),
            reward,
            False,
            False,
            {"cost": np.complex128(1j) if self._place == "info" else 0.0},
        )


CASES: dict[str, Case] = {
    "constraint on an array": (
        lambda: ox.Constraint(COMPLEX, at_most=1.0),
        ("subject", "real numbers", "complex"),
    ),
    "constraint on a JAX array": (
        lambda: ox.Constraint(jnp.asarray(COMPLEX), at_most=1.0),
        ("subject", "real numbers", "complex"),
    ),
    "constraint on a function": (
        lambda: ox.Problem(CHAIN, constraints=[ox.Constraint(lambda o, _: o * 1j, at_most=1.0)]),
        ("feature function", "real", "complex64"),
    ),
    "feature function": (
        lambda: counting(lambda o, _: o[:1] * 1j),
        ("feature function", "real", "complex64"),
    ),
    "feature table": (
        lambda: ox.features.Table(COMPLEX[..., None]),
        ("values", "real numbers", "complex128"),
    ),
    "utility": (
        lambda: ox.Problem(CHAIN, lambda u: u[0] * 1j),
        ("utility", "real number", "complex64"),
    ),
    "grid": (lambda: ox.features.Grid([0j], [1.0], [2]), ("low", "real numbers", "complex128")),
    "demonstrated observation": (
        lambda: imitate(np.full(4, 1j), 1, cartpole(), lambda o, _: o),
        ("episode 0", "observations", "real numbers", "complex128"),
    ),
    "demonstrated state": (
        lambda: imitate(1 + 1j, 1),
        ("episode 0", "observations", "real numbers", "complex128"),
    ),
    "demonstrated action": (
        lambda: imitate(0, 1 + 1j),
        ("episode 0", "actions", "real numbers", "complex128"),
    ),
    "observation of numbers": (
        lambda: predict(np.full(4, 1j)),
        ("observation", "real numbers", "complex128"),
    ),
    "observation of a state": (lambda: predict(1j, CHAIN), ("observation", "real numbers", "1j")),
    "probabilities": (
        lambda: ox.exact.value(problem(), COMPLEX),
        ("probs", "real numbers", "complex128"),
    ),
    "tables of an evaluator": (
        lambda: ox.exact.Evaluator(problem()).values(COMPLEX[None]),
        ("tables", "real numbers", "complex128"),
    ),
    "quasi-reward": (
        lambda: ox.estimators.gradient(
            problem(), ox.sample(problem(), UNIFORM, 2, KEY), UNIFORM, jnp.ones(1, jnp.complex64)
        ),
        ("quasi_reward", "real numbers", "complex64"),
    ),
    "logits": (
        lambda: ox.sample(
            problem(), ox.policies.Softmax(lambda _: jnp.ones(2, jnp.complex64)), 2, KEY
        ),
        ("logits", "real numbers", "complex64"),
    ),
    # what is no array of numbers
    "observation None": (lambda: predict(None), ("observation", "real numbers", "None")),
    "state None": (lambda: predict(None, CHAIN), ("observation", "real numbers", "None")),
    "observation text": (
        lambda: predict(["a", "b", "c", "d"]),
        ("observation", "real numbers", "'a'"),
    ),
    "observation ragged": (
        lambda: predict([[1.0], [1.0, 2.0]]),
        ("observation", "real numbers", "[[1.0], [1.0"),
    ),
    "demonstrated text": (
        lambda: ox.demonstrations(CHAIN, [["ab"]]),
        ("episode 0", "observations", "real numbers", "'a'"),
    ),
    "demonstrated object": (
        lambda: imitate(object(), 1),
        ("episode 0", "observations", "real numbers", "object"),
    ),
    "tables None": (
        lambda: ox.exact.Evaluator(problem()).values(None),
        ("tables", "real numbers", "None"),
    ),
    "table instead of tables": (
        lambda: ox.exact.Evaluator(problem()).values(np.full((4, 2), 0.5)),
        ("tables", "(n, 4, 2)", "(4, 2)"),
    ),
    "tables of other dimensions": (
        lambda: ox.exact.Evaluator(problem()).values(np.full((1, 1, 4, 2), 0.5)),
        ("tables", "(n, 4, 2)", "(1, 1, 4, 2)"),
    ),
    "tables of other states": (
        lambda: ox.exact.Evaluator(problem()).values(np.full((1, 5, 2), 0.5)),
        ("tables", "(n, 4, 2)", "(1, 5, 2)"),
    ),
}


@pytest.fixture(scope="module")
def outcomes(compiled_fast: dict[str, str]) -> Outcomes:
    return outcomes_of(__file__, compiled_fast)


@pytest.mark.parametrize("case", CASES)
def test_values_that_are_not_real_raise_value_error(case: str, outcomes: Outcomes):
    assert_sentence(outcomes[case], CASES[case][1])


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("observation", r"step 0.*an observation must be an array of real numbers, got complex64"),
        ("reward", r"step 1.*1\.?j\) is not a number"),
        ("reward array", r"step 1.*1\.?j\) is not a number"),
        ("info", r"step 1.*1\.?j\) is not a number"),
    ],
)
def test_complex_numbers_of_a_simulator_end_the_episode(place: str, said: str):
    env = ox.GymnasiumEnv(lambda: Complex(place), info=["cost"])
    with pytest.raises(ox.samplers.EpisodeError, match=said):
        ox.evaluate(ox.policies.Softmax(lambda _: jnp.zeros(2)), env, 1, max_steps=3)


@pytest.mark.parametrize(
    "value",
    [
        3,
        2.5,
        True,
        [1, 2.5],
        np.float32(1.5),
        np.arange(3),
        jnp.ones(2, jnp.bfloat16),
        np.array([1, 2.5], object),
    ],
)
def test_real_numbers_keep_their_values(value: Any):
    array = real_array("value", value)
    assert array.dtype.kind in "biuf"
    assert array.tolist() == np.asarray(value).astype(float).tolist()


@pytest.mark.parametrize(
    "value",
    [
        1j,
        "x",
        "1.5",
        None,
        [None],
        [1.0, "2"],
        np.array([1j, 2.0], object),
        [np.complex64(0)],
        b"1",
        {},
        {1},
    ],
)
def test_other_values_are_no_real_array(value: Any):
    with pytest.raises(ValueError, match=r"^value must be an array of real numbers, got"):
        real_array("value", value)


@pytest.mark.parametrize(
    ("env", "empty"), [("CartPole-v1", np.zeros((0, 4))), ("FrozenLake-v1", [])]
)
def test_an_empty_batch_of_observations_has_no_actions(env: str, empty: Any):
    actions = predict(empty, env)
    assert (actions.shape, actions.dtype.kind) == ((0,), "i")


def test_tables_may_be_lists_and_none():
    evaluator = ox.exact.Evaluator(problem())
    table = np.full((4, 2), 0.5)
    expected = ox.exact.value(problem(), table)
    assert evaluator.values([table.tolist()])[0].tolist() == pytest.approx([expected])
    assert evaluator.values(np.zeros((0, 4, 2)))[0].shape == (0,)


if __name__ == "__main__":
    print_outcomes(CASES)
