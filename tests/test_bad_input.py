"""Errors of invalid arguments: one sentence with the argument, its value and the allowed values.

`sentences` makes the calls.
"""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse

import occupax as ox
from bad_calls import (
    INF,
    NAN,
    cartpole,
    fails,
    key,
    lake,
    limit,
    not_concave,
    policy,
    problem,
    table,
    trajectories,
    uniform,
)
from occupax import envs, exact, features, policies, theory, utilities
from sentences import Case, Outcomes, assert_sentence, outcomes_of, print_outcomes

CASES: dict[str, Case] = {
    # tables
    "transition [S, S]": (
        lambda: table(np.ones((3, 3))),
        ("transition", "(3, 2, 3)", "got (3, 3)"),
    ),
    "transition text": (lambda: table("x"), ("transition", "array of real numbers", "'x'")),
    "transition nan": (
        lambda: table(np.full((3, 2, 3), NAN)),
        ("transition", "finite", "nan", "(0, 0, 0)"),
    ),
    "transition negative": (
        lambda: table(np.full((3, 2, 3), -1.0)),
        ("transition", "not be negative", "-1"),
    ),
    "transition rows": (
        lambda: table(np.ones((3, 2, 3))),
        ("transition[0, 0]", "sum to 1", "got 3"),
    ),
    "transition sparse shape": (
        lambda: table(sparse.csr_array(np.ones((3, 3)))),
        ("transition", "(6, 3)", "(3, 3)"),
    ),
    "transition sparse nan": (
        lambda: table(sparse.csr_array(np.full((6, 3), NAN))),
        ("transition", "nan", "(0, 0)"),
    ),
    "transition ragged": (
        lambda: table([[1.0], [1.0, 2.0]]),
        ("transition", "array of real numbers", "[[1.0], [1.0, 2.0]]"),
    ),
    "reward vector": (lambda: table(reward=np.zeros(3)), ("reward", "[S, A]", "got (3,)")),
    "reward of other states": (
        lambda: table(reward=np.zeros((4, 2))),
        ("reward", "S = 3", "got (4, 2)"),
    ),
    "reward without actions": (
        lambda: table(reward=np.zeros((3, 0))),
        ("reward", "at least one action", "(3, 0)"),
    ),
    "reward nan": (
        lambda: table(reward=np.full((3, 2), NAN)),
        ("reward", "finite", "nan", "(0, 0)"),
    ),
    "reward text": (lambda: table(reward="x"), ("reward", "array of real numbers", "'x'")),
    "reward sparse shape": (
        lambda: table(reward=sparse.csr_array(np.ones((7, 3)))),
        ("reward", "S = 3", "(7, 3)"),
    ),
    "initial empty": (lambda: table(initial=[]), ("initial", "vector", "(0,)")),
    "initial nan": (lambda: table(initial=[NAN, 0.0, 0.0]), ("initial", "finite", "nan", "(0,)")),
    "initial sum": (lambda: table(initial=[0.5, 0.0, 0.0]), ("initial", "sum to 1", "got 0.5")),
    "initial negative": (
        lambda: table(initial=[-1.0, 1.0, 1.0]),
        ("initial[0]", "not be negative", "got -1"),
    ),
    "terminal numbers": (lambda: table(terminal=[0, 1, 0]), ("terminal", "3 booleans", "int64")),
    "terminal ragged": (
        lambda: table(terminal=[[True], [True, False]]),
        ("terminal", "3 booleans", "[[True], "),
    ),
    "map that is no text": (lambda: ox.TabularMDP.gridworld(5), ("text", "map", "got 5")),
    "map with ragged rows": (
        lambda: ox.TabularMDP.gridworld("SG\nS"),
        ("text", "one length", "[2, 1]"),
    ),
    "map with strange cells": (
        lambda: ox.TabularMDP.gridworld("SXG"),
        ("text", "S, G, H, #", "got 'X'"),
    ),
    "map without start": (
        lambda: ox.TabularMDP.gridworld("..G"),
        ("text", "at least one start", "none"),
    ),
    "map without cells": (lambda: ox.TabularMDP.gridworld(""), ("text", "map", "[]")),
    "slip above one": (lambda: ox.TabularMDP.gridworld("SG", 1.5), ("slip", "[0, 1]", "got 1.5")),
    "slip nan": (lambda: ox.TabularMDP.gridworld("SG", NAN), ("slip", "[0, 1]", "got nan")),
    "slip text": (lambda: ox.TabularMDP.gridworld("SG", "x"), ("slip", "[0, 1]", "got 'x'")),
    "chain of none": (lambda: ox.TabularMDP.chain(0), ("n must", "at least 1", "got 0")),
    "garnet branching": (
        lambda: ox.TabularMDP.garnet(4, 2, 5, key()),
        ("branching", "at most num_states = 4", "got 5"),
    ),
    "garnet states": (
        lambda: ox.TabularMDP.garnet(2.5, 2, 1, key()),
        ("num_states", "at least 1", "got 2.5"),
    ),
    "garnet key": (lambda: ox.TabularMDP.garnet(4, 2, 2, 0), ("key", "jax.random.key", "got 0")),
    "not from Gymnasium": (
        lambda: ox.TabularMDP.from_gymnasium(5),
        ("env", "Gymnasium id or environment", "got 5"),
    ),
    "unknown to Gymnasium": (
        lambda: ox.TabularMDP.from_gymnasium("Nowhere-v0"),
        ("Nowhere-v0", "not known"),
    ),
    # constraints
    "no bound": (limit, ("constraint", "either at_most or at_least", "got neither")),
    "two bounds": (
        lambda: limit(at_most=1.0, at_least=0.0),
        ("at_most=1.0 and at_least=0.0", "two constraints"),
    ),
    "limit nan": (lambda: limit(at_most=NAN), ("at_most", "finite number", "got nan")),
    "concave, at most": (
        lambda: ox.Constraint(ox.utilities.Entropy(), at_most=1.0),
        ("at_most", "convex", "entropy"),
    ),
    "convex, at least": (
        lambda: ox.Constraint(-ox.utilities.Entropy(), at_least=1.0),
        ("at_least", "concave", "sum"),
    ),
    "constraints that are no list": (
        lambda: problem(constraints=limit(at_most=1.0)),
        ("constraints", "list of", "got Constraint"),
    ),
    "constraints of texts": (
        lambda: problem(constraints=["mud"]),
        ("constraints", "occupax.Constraint", "'mud'"),
    ),
    "limit of several numbers": (
        lambda: problem(constraints=[ox.Constraint(ox.features.State(), at_most=1.0)]),
        ("one number", "'state'", "counts 16"),
    ),
    "limit of an info": (
        lambda: problem(constraints=[ox.Constraint(ox.features.Info("cost"), at_most=1.0)]),
        ("'cost'", "not recorded"),
    ),
    "limits nobody can keep": (
        lambda: ox.solve(problem(constraints=[ox.Constraint(ox.features.Reward(), at_least=2.0)])),
        ("no policy satisfies the constraints", "reward >= 2 violated by"),
    ),
    "multipliers of other names": (
        lambda: ox.exact.certificate(
            problem(constraints=[limit(at_most=9.0)]), uniform(), {"sand": 1.0}
        ),
        ("multipliers", "['cost']", "['sand']"),
    ),
    # targets
    "target of another size": (
        lambda: problem(ox.utilities.KL(np.full(5, 0.2))),
        ("target", "16", "got 5"),
    ),
    "target above one": (
        lambda: ox.utilities.KL(np.ones((16, 4))),
        ("target", "distribution", "sum of 64"),
    ),
    "target negative": (
        lambda: ox.utilities.ForwardKL([1.5, -0.5]),
        ("target", "negative", "-0.5"),
    ),
    "target nan": (lambda: ox.utilities.KL([NAN, 1.0]), ("target", "finite", "nan")),
    "one demonstration": (
        lambda: ox.demonstrations(lake(), {"observations": [0], "actions": [1]}),
        ("demonstrations", "list of episodes", "dict"),
    ),
    "demonstrations that are not finite": (
        lambda: ox.demonstrations(
            cartpole(), [[(np.full(4, np.nan), 1)]], features=lambda o, _: o[0]
        ),
        ("episode 0", "observations", "finite"),
    ),
    "demonstrations by another policy": (
        lambda: ox.demonstrations(
            lake(), ox.policies.tabular()(ox.TabularMDP.chain(3), jax.random.key(0))
        ),
        ("3", "16"),
    ),
    "no demonstrations": (
        lambda: ox.demonstrations(lake(), []),
        ("demonstrations", "at least one", "none"),
    ),
    "demonstration of numbers": (
        lambda: ox.demonstrations(lake(), [5]),
        ("episode 0", "(observation, action)", "5"),
    ),
    "demonstrations elsewhere": (
        lambda: ox.demonstrations(lake(), [[(0, 1), (16, 1)]]),
        ("episode 0", "fit", "observations", "0 to 15", "got 16"),
    ),
    "demonstrations of other actions": (
        lambda: ox.demonstrations(lake(), [[(0, 1)], [(0, 4)]]),
        ("episode 1", "actions", "0 to 3", "got 4"),
    ),
    "demonstrations of another shape": (
        lambda: ox.demonstrations(cartpole(), [[(0, 1)]], features=lambda o, _: o[0]),
        ("episode 0", "observations", "(4,)", "got ()"),
    ),
    "no rewards": (ox.utilities.SoftMin, ("rewards", "at least one", "none")),
    "negative weights": (
        lambda: ox.utilities.NashWelfare(np.ones((2, 2)), weights=[-1.0]),
        ("weights", "[-1.0]"),
    ),
    # registry
    "unknown environment": (
        lambda: ox.make("FrozenLake"),
        ("environment 'FrozenLake'", "'FrozenLake-v1'", "Known:"),
    ),
    "environment that is no name": (
        lambda: ox.make(["Taxi-v4"]),
        ("environment ['Taxi-v4']", "Known:", "Taxi-v4"),
    ),
    "unknown map": (
        lambda: ox.make("FrozenLake-v1", map_name="9x9"),
        ("FrozenLake-v1", "map_name", "9x9"),
    ),
    "unknown backend": (
        lambda: ox.make("CartPole-v1", backend="gym"),
        ("backend 'gym'", "mean 'gymnasium'"),
    ),
    "environment instead of its maker": (
        lambda: ox.GymnasiumEnv(5),
        ("source", "id or a function", "got 5"),
    ),
    "info that is no list": (
        lambda: ox.GymnasiumEnv("CartPole-v1", info="cost"),
        ("info", "list of names", "'cost'"),
    ),
    "info that is not recorded": (
        lambda: ox.Problem(
            ox.make("CartPole-v1"), lambda u: u[0], features=ox.features.Info("cost")
        ),
        ("'cost'", "not recorded", "GymnasiumEnv(..., info=['cost'])"),
    ),
    "info without names": (ox.features.Info, ("Info", "names")),
    "no environments": (lambda: ox.samplers.Host(envs=0), ("envs", "at least 1", "got 0")),
    "no time": (lambda: ox.samplers.Host(timeout=0), ("timeout", "above 0", "got 0")),
    "half a shard": (lambda: ox.samplers.Ray(shards=0.5), ("shards", "at least 1", "got 0.5")),
    "no workers": (lambda: ox.samplers.Ray(workers=0), ("workers", "at least 1", "got 0")),
    "address that is no text": (lambda: ox.samplers.Ray(address=5), ("address", "ray://", "got 5")),
    "sampler that is none": (
        lambda: ox.train(ox.Problem(lake(), horizon=5), ox.TSIVRPG(), 100, sampler=3),
        ("sampler", "Host", "name", "got 3"),
    ),
    "registered name": (lambda: envs.register("Taxi-v4", lake), ("name", "new", "'Taxi-v4'")),
    "name that is no text": (lambda: envs.register(5, lake), ("name", "string", "got 5")),
    "name that is empty": (lambda: envs.register("", lake), ("name", "not empty", "got ''")),
    "factory that is none": (lambda: envs.register("new", 5), ("factory", "function", "got 5")),
    "time limit 0": (lambda: envs.CartPole(time_limit=0), ("time_limit", "positive", "got 0")),
    "time limit 2.5": (
        lambda: envs.CartPole(time_limit=2.5),
        ("time_limit", "positive number of steps", "got 2.5"),
    ),
    "time limit nan": (lambda: envs.Acrobot(time_limit=NAN), ("time_limit", "positive", "got nan")),
    "time limit text": (
        lambda: envs.CartPole(time_limit="x"),
        ("time_limit", "positive", "got 'x'"),
    ),
    # problems
    "env of Gymnasium": (
        lambda: problem(env=gymnasium.make("Taxi-v4")),
        ("env", "occupax.make", "TaxiEnv"),
    ),
    "env by a wrong name": (
        lambda: problem(env="Taxy-v4"),
        ("environment 'Taxy-v4'", "Did you mean 'Taxi-v4'"),
    ),
    "discount above 1": (lambda: problem(discount=1.1), ("discount", "[0, 1]", "got 1.1")),
    "discount negative": (lambda: problem(discount=-0.1), ("discount", "[0, 1]", "got -0.1")),
    "discount nan": (lambda: problem(discount=NAN), ("discount", "[0, 1]", "got nan")),
    "discount text": (lambda: problem(discount="x"), ("discount", "[0, 1]", "got 'x'")),
    "discount None": (lambda: problem(discount=None), ("discount", "[0, 1]", "got None")),
    "horizon 0": (lambda: problem(horizon=0), ("horizon", "at least 1", "got 0")),
    "horizon negative": (lambda: problem(horizon=-1), ("horizon", "at least 1", "got -1")),
    "horizon 2.5": (lambda: problem(horizon=2.5), ("horizon", "integer", "got 2.5")),
    "horizon True": (lambda: problem(horizon=True), ("horizon", "integer", "got True")),
    "horizon nan": (lambda: problem(horizon=NAN), ("horizon", "integer", "got nan")),
    "horizon infinite": (lambda: problem(horizon=INF), ("horizon", "integer", "got inf")),
    "horizon text": (lambda: problem(horizon="x"), ("horizon", "integer", "got 'x'")),
    "horizon above the limit": (
        lambda: problem(env=cartpole(), horizon=501),
        ("horizon", "time limit of 500", "501"),
    ),
    "termination misspelt": (
        lambda: problem(termination="episodc"),
        ("termination", "'episodc'", "mean 'episodic'"),
    ),
    "termination None": (
        lambda: problem(termination=None),
        ("termination", "None", "absorbing, episodic"),
    ),
    # policies
    "tabular on CartPole": (
        lambda: policies.tabular()(cartpole(), key()),
        ("tabular policies", "got CartPole", "mlp()"),
    ),
    "scale negative": (lambda: policies.tabular(-1.0), ("scale", "at least 0", "got -1.0")),
    "scale nan": (lambda: policies.linear(scale=NAN), ("scale", "at least 0", "got nan")),
    "activation misspelt": (
        lambda: policies.mlp(activation="tahn"),
        ("activation 'tahn'", "'tanh'", "Known:"),
    ),
    "activation list": (
        lambda: policies.mlp(activation=["tanh"]),
        ("activation ['tanh']", "Known:"),
    ),
    "hidden 0": (lambda: policies.mlp((4, 0)), ("hidden", "at least 1", "got 0")),
    "hidden number": (lambda: policies.mlp(64), ("hidden", "got 64")),
    "policy for a problem": (
        lambda: policies.mlp()(problem(), key()),
        ("env", "environment", "Problem"),
    ),
    "linear features that fail": (
        lambda: policies.linear(fails)(lake(), key()),
        ("features", "out of coffee"),
    ),
    "linear features of matrices": (
        lambda: policies.linear(lambda o: jnp.zeros((2, 2)))(lake(), key()),  # noqa: ARG005
        ("features", "vector", "(2, 2)"),
    ),
    # sampling
    "sample none": (
        lambda: ox.sample(problem(horizon=2), policy(), 0, key()),
        ("n must", "at least 1", "got 0"),
    ),
    "sample 2.5": (
        lambda: ox.sample(problem(horizon=2), policy(), 2.5, key()),
        ("n must", "integer", "got 2.5"),
    ),
    "sample for ever": (
        lambda: ox.sample(problem(), policy(), 1, key()),
        ("finite horizon", "horizon=None", "459"),
    ),
    "sample a function": (
        lambda: ox.sample(problem(horizon=2), fails, 1, key()),
        ("policy", "got function", "Softmax"),
    ),
    "sample an initialiser": (
        lambda: ox.sample(problem(horizon=2), policies.mlp(), 1, key()),
        ("policy", "an initialiser"),
    ),
    "sample with a number as key": (
        lambda: ox.sample(problem(horizon=2), policy(), 1, 0),
        ("key", "jax.random.key", "0"),
    ),
    "sample with a small policy": (
        lambda: ox.sample(problem(horizon=2), policies.Tabular(jnp.zeros((2, 4))), 1, key()),
        ("policy", "made for 2 states", "16 states"),
    ),
    "sample with too many logits": (
        lambda: ox.sample(
            problem(env=cartpole(), horizon=2),
            policies.Softmax(lambda o: jnp.zeros(3)),  # noqa: ARG005
            1,
            key(),
        ),
        ("logits", "2", "(3,)"),
    ),
    "quasi-reward of another length": (
        lambda: ox.estimators.gradient(problem(horizon=2), trajectories(), policy(), jnp.ones(7)),
        ("quasi_reward", "1", "7"),
    ),
    "estimate for a small policy": (
        lambda: ox.estimators.occupancy(
            problem(horizon=2), trajectories(), policies.Tabular(jnp.zeros((2, 4)))
        ),
        ("policy", "made for 2 states", "16 states"),
    ),
    "estimate for too few logits": (
        lambda: ox.estimators.occupancy(
            problem(horizon=2), trajectories(), policies.Tabular(jnp.zeros((16, 1)))
        ),
        ("logits", "4 actions", "(1,)"),
    ),
    "estimate for probabilities": (
        lambda: ox.estimators.occupancy(problem(horizon=2), trajectories(), jnp.ones((16, 4))),
        ("policy must be", "policies.Softmax"),
    ),
    "weights of an initialiser": (
        lambda: ox.estimators.weights(trajectories(), policies.tabular()),
        ("policy must be", "call the initialiser with (env, key)"),
    ),
    "estimate over another horizon": (
        lambda: ox.estimators.occupancy(problem(horizon=5), trajectories(), policy()),
        ("trajectories", "horizon of 5", "got 2"),
    ),
    "exact gradient of a small policy": (
        lambda: exact.gradient(problem(), policies.Tabular(jnp.zeros((2, 4)))),
        ("policy", "made for 2 states", "16 states"),
    ),
    "sample with floats as key": (
        lambda: ox.sample(problem(horizon=2), policy(), 1, jnp.ones(2)),
        ("key", "jax.random.key(0)"),
    ),
    "reward of other features": (
        lambda: problem(utilities.Reward(), features=features.State()),
        ("Reward", "features State", "give a utility"),
    ),
    "utility class": (lambda: problem(utilities.LogCoverage), ("utility", "LogCoverage")),
    "feature class": (
        lambda: problem(utilities.Entropy(), features=features.State),
        ("features", "State"),
    ),
    # exact methods
    "probs of another shape": (
        lambda: exact.value(problem(), uniform((16, 3))),
        ("probs", "(16, 4)", "got (16, 3)"),
    ),
    "probs nan": (
        lambda: exact.occupancy(problem(), uniform(row=NAN)),
        ("probs", "distribution", "nan", "state 3"),
    ),
    "probs negative": (
        lambda: exact.feature_occupancy(problem(), uniform(row=[-0.5, 0.5, 0.5, 0.5])),
        ("probs", "distribution", "-0.5", "state 3"),
    ),
    "probs sum": (
        lambda: exact.certificate(problem(), uniform(row=0.5)),
        ("probs", "distribution", "0.5", "state 3"),
    ),
    "probs text": (lambda: exact.value(problem(), "x"), ("probs", "[S, A]", "'x'")),
    "probs of a name": (
        lambda: exact.value(problem(), "uniform"),
        ("probs", "[S, A]", "'uniform'"),
    ),
    "probs of an initialiser": (
        lambda: exact.value(problem(), policies.mlp()),
        ("policy", "an initialiser"),
    ),
    "exact on CartPole": (
        lambda: exact.value_iteration(problem(env=cartpole())),
        ("tabular", "got CartPole"),
    ),
    "exact gradient of a table": (
        lambda: exact.gradient(problem(), uniform()),
        ("policy", "ndarray"),
    ),
    "method misspelt": (
        lambda: ox.solve(problem(), method="frank-wolf"),
        ("method 'frank-wolf'", "'frank-wolfe'", "interior-point"),
    ),
    "tolerance 0": (lambda: ox.solve(problem(), tolerance=0), ("tolerance", "above 0", "got 0")),
    "tolerance nan": (
        lambda: ox.solve(problem(), tolerance=NAN),
        ("tolerance", "above 0", "got nan"),
    ),
    "no seconds": (
        lambda: ox.solve(problem(), time_limit=0),
        ("time_limit", "above 0", "got 0"),
    ),
    "solve not concave": (
        lambda: ox.solve(problem(not_concave())),
        ("utility Custom", "not declared concave"),
    ),
    "solve minus entropy": (
        lambda: ox.solve(problem(-1 * utilities.Entropy())),
        ("utility Sum", "not declared concave"),
    ),
    "solve CartPole": (lambda: ox.solve(problem(env=cartpole())), ("tabular", "got CartPole")),
    "certificate not concave": (
        lambda: exact.certificate(problem(not_concave()), uniform()),
        ("Custom", "concave=True"),
    ),
    "certificate at the border": (
        lambda: exact.certificate(
            problem(utilities.Entropy(smoothing=0.0)), uniform(row=[1.0, 0.0, 0.0, 0.0])
        ),
        ("Entropy", "no finite gradient", "smoothing"),
    ),
    "policy iteration of an entropy": (
        lambda: ox.solve(problem(utilities.Entropy()), method="policy-iteration"),
        ("method 'policy-iteration' needs a linear utility", "'auto'"),
    ),
    # theory
    "epsilon 0": (lambda: theory.horizon(0.0, 0.9), ("epsilon", "(0, 1)", "0.0")),
    "theory of discount 1": (lambda: theory.horizon(0.1, 1.0), ("discount", "[0, 1)", "1.0")),
}


@pytest.fixture(scope="module")
def outcomes(compiled_fast: dict[str, str]) -> Outcomes:
    return outcomes_of(__file__, compiled_fast)


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_answered_with_a_sentence(case: str, outcomes: Outcomes):
    assert_sentence(outcomes[case], CASES[case][1])


def test_what_the_bad_calls_are_made_of_is_right():
    # otherwise a case could be refused for the wrong reason
    assert table().num_states == 3
    assert problem(horizon=2).size == 1
    assert uniform().shape == (16, 4)
    assert exact.certificate(problem(), uniform()).gap >= 0


if __name__ == "__main__":
    print_outcomes(CASES)
