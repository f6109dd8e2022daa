"""Restored objects pass the checks of their constructors, and kernels check their indices."""

import copy
from math import inf, nan

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import occupax as ox
from occupax.io import codec
from occupax.utilities import Ball, Box, Halfspace, Point, Polyhedron, SetDistance

KEY = jax.random.key(0)
CHAIN = ox.TabularMDP.chain(4)
CART = ox.make("CartPole-v1")
GRID = ox.features.Grid([-1.0, -2.0], [1.0, 2.0], [3, 4], coordinates=[0, 2])
FEEDBACK = np.arange(16.0).reshape(4, 2, 2)
SUM = ox.utilities.Reward() + 0.1 * ox.utilities.Entropy()
COSTS = np.arange(8.0).reshape(4, 2)
FAIR = ox.utilities.NashWelfare(COSTS, COSTS, weights=[1.0, 2.0])
TARGET = np.full(4, 0.25)
CURVED = ox.Constraint(ox.utilities.Entropy(), at_least=0.5)
NORMAL = ox.policies.gaussian((4,))(ox.envs.LQR.random(3, 2), KEY)
ARRAY = jnp.array(0.5)
NETWORK = ox.policies.mlp((4,))(CART, KEY)
LAYER = ("psi", "network", "layers", "tuple", 0)
GYMNAX = ox.make("gymnax/CartPole-v1")


def changed(value, place, new):
    """Return the file content of a value with a change at a path such as ("env", "successors")."""
    description, arrays = codec.pack(value)
    description, arrays = copy.deepcopy(description), dict(arrays)
    at = description
    for step in place[:-1]:
        at = (at["fields"] if isinstance(at, dict) and "class" in at else at)[step]
    fields = at["fields"] if isinstance(at, dict) and "class" in at else at
    held = fields[place[-1]]
    if isinstance(held, dict) and "array" in held and isinstance(new, np.ndarray):
        arrays[held["array"]] = new
    elif callable(new):
        arrays[held["array"]] = new(arrays[held["array"]].copy())
    else:
        fields[place[-1]] = new
    return description, arrays


def entry(index, number):
    """A change of one number of an array."""

    def change(array):
        array[index] = number
        return array

    return change


def problem(utility=None, **options):
    return ox.Problem(CHAIN, utility, horizon=5, **options)


FLOAT = {"float": "nan"}
CASES = {
    "a successor beyond the states": (problem(), ("env", "successors"), entry((0, 0, 0), 5000)),
    "a successor below zero": (problem(), ("env", "successors"), entry((0, 0, 0), -1)),
    "successors that are floats": (
        problem(),
        ("env", "successors"),
        lambda array: array.astype(float),
    ),
    "successors of another shape": (problem(), ("env", "successors"), lambda array: array[:, :1]),
    "no states": (problem(), ("env", "successors"), lambda array: array[:0]),
    "a negative probability": (problem(), ("env", "probabilities"), entry((0, 0, 0), -1.0)),
    "a probability that is not a number": (
        problem(),
        ("env", "probabilities"),
        entry((0, 0, 0), nan),
    ),
    "other thresholds": (problem(), ("env", "thresholds"), entry((0, 0, 0), 0.25)),
    "an infinite reward": (problem(), ("env", "outcome_rewards"), entry((0, 0, 0), inf)),
    "a first state of no probability": (problem(), ("env", "initial"), entry(0, 0.0)),
    "a terminal state that goes on": (problem(), ("env", "terminal"), entry(1, True)),
    "a time limit": (problem(), ("env", "time_limit"), 3),
    "a discount of 2": (problem(), ("discount",), 2.0),
    "a discount that is no number": (problem(), ("discount",), FLOAT),
    "a discount that is a text": (problem(), ("discount",), "0.9"),
    "a horizon of -3": (problem(), ("horizon",), -3),
    "a horizon of 1e18": (problem(), ("horizon",), 10**18),
    "a horizon that is true": (problem(), ("horizon",), True),
    "a horizon of one and a half": (problem(), ("horizon",), 1.5),
    "another termination": (problem(), ("termination",), "never"),
    "a utility that is 5": (problem(), ("utility",), 5),
    "no utility": (problem(), ("utility",), None),
    "an environment that is a utility": (
        problem(),
        ("env",),
        codec.pack(ox.utilities.Reward())[0],
    ),
    "another size": (problem(), ("size",), 7),
    "features that are a list": (problem(), ("features",), []),
    "a smoothing below zero": (problem(ox.utilities.Entropy()), ("utility", "smoothing"), -1.0),
    "a scale of zero": (problem(ox.utilities.Entropy()), ("utility", "scale"), 0.0),
    "a sigma of zero": (problem(ox.utilities.LogCoverage()), ("utility", "sigma"), 0.0),
    "a sigma that is true": (problem(ox.utilities.LogCoverage()), ("utility", "sigma"), True),
    "infinite weights": (
        problem(ox.utilities.Linear(np.ones(8))),
        ("utility", "weights"),
        entry(0, inf),
    ),
    "fewer weights": (problem(ox.utilities.Linear(np.ones(8))), ("utility", "weights"), np.ones(3)),
    "a weight too few": (problem(SUM), ("utility", "weights"), {"tuple": [1.0]}),
    "a weight that is no number": (problem(SUM), ("utility", "weights"), {"tuple": [1.0, FLOAT]}),
    "sizes of a sum that do not add up": (problem(SUM), ("utility", "sizes"), {"tuple": [1, 2]}),
    "bins of zero": (GRID, ("bins",), {"tuple": [0, 4]}),
    "a grid of 1e20 cells": (GRID, ("bins",), {"tuple": [10**10, 10**10]}),
    "a low that is high": (GRID, ("low",), entry(0, 5.0)),
    "a coordinate below zero": (GRID, ("coordinates",), {"tuple": [-1, 0]}),
    "a table of features in one axis": (ox.features.Table(FEEDBACK), ("values",), np.ones(3)),
    "an empty stack": (ox.features.Stack(ox.features.State()), ("parts",), {"tuple": []}),
    "info without names": (ox.features.Info("cost"), ("names",), {"tuple": []}),
    "a box without inside": (Box([0, 0], [1, 1]), ("low",), entry(0, 2.0)),
    "a ball of negative radius": (Ball([0, 1], 0.5), ("radius",), np.array(-1.0)),
    "a normal of length 3": (Halfspace([1, 1], 2), ("normal",), np.array([3.0, 0.0])),
    "an empty polyhedron": (Polyhedron([[1], [-1]], [1, 0]), ("bounds",), np.array([-2.0, 1.0])),
    "a point that is no number": (Point([1, 2]), ("point",), entry(0, nan)),
    "a set that is a feature": (
        SetDistance(FEEDBACK, Point([1, 2])),
        ("set",),
        codec.pack(ox.features.State())[0],
    ),
    "a target below zero": (
        problem(ox.utilities.KL(TARGET)),
        ("utility", "target"),
        entry(0, -0.25),
    ),
    "a target that is no distribution": (
        problem(ox.utilities.ForwardKL(TARGET)),
        ("utility", "target"),
        entry(0, 5.0),
    ),
    "a smoothing of zero": (ox.utilities.KL(TARGET), ("smoothing",), 0.0),
    "a scale below zero": (ox.utilities.ForwardKL(TARGET), ("scale",), -1.0),
    "a temperature of zero": (ox.utilities.SoftMin(COSTS), ("temperature",), 0.0),
    "a negative share": (FAIR, ("weights",), np.array([-1.0, 1.0])),
    "shares in a table": (FAIR, ("weights",), np.ones((1, 2))),
    "a welfare without sigma": (FAIR, ("sigma",), 0.0),
    "a design without sigma": (ox.utilities.LogDet(FEEDBACK), ("sigma",), -0.1),
    "regressors without products": (
        ox.utilities.LogDet(FEEDBACK),
        ("regressors",),
        codec.pack(ox.features.State())[0],
    ),
    "a limit of infinity": (ox.Constraint(COSTS, at_most=1.0), ("limit",), {"float": "inf"}),
    "a limit without a name": (ox.Constraint(COSTS, at_most=1.0), ("name",), ""),
    "a limit with a comma": (ox.Constraint(COSTS, at_most=1.0), ("name",), "a,b"),
    "an upper limit of something concave": (CURVED, ("upper",), True),
    "limits that the utility does not have": (
        problem(constraints=[CURVED]),
        ("utility",),
        codec.pack(ox.utilities.Reward())[0],
    ),
    "a limit that was paid for before": (
        problem(constraints=[CURVED]),
        ("utility", "weights"),
        {"tuple": [1.0, 3.0]},
    ),
    "a batch of -1": (ox.REINFORCE(batch=4), ("batch",), -1),
    "a batch of 1e18": (ox.REINFORCE(batch=4), ("batch",), 10**18),
    "a batch of a half": (ox.REINFORCE(batch=4), ("batch",), 0.5),
    "a negative step": (ox.REINFORCE(step_size=0.1), ("step_size",), -0.1),
    "a negative step in an array": (
        ox.REINFORCE(step_size=jnp.array(0.1)),
        ("step_size",),
        np.array(-1, np.float32),
    ),
    "an unknown rule": (ox.REINFORCE(), ("rule",), "sgd"),
    "an unknown baseline": (ox.REINFORCE(), ("baseline",), "median"),
    "a radius that is true": (ox.REINFORCE(), ("radius",), True),
    "a snapshot of none": (ox.TSIVRPG(), ("snapshot_batch",), 0),
    "an epoch of none": (ox.TSIVRPG(), ("epoch_length",), 0),
    "a guard of 2": (ox.TSIVRPG(), ("weight_guard",), 2.0),
    "mixing of 3": (ox.MaxEnt(), ("mixing",), 3.0),
    "mixing that is true": (ox.REINFORCE(mixing=0.5), ("mixing",), True),
    "a share of 2": (ox.STORM(fresh=ARRAY), ("fresh",), np.array(2, np.float32)),
    "a decay of none": (ox.NVRPG(), ("decay",), 0.0),
    "a decay of steps below zero": (
        ox.NHARPG(step_decay=ARRAY),
        ("step_decay",),
        np.array(-1, np.float32),
    ),
    "a coin below zero": (ox.PAGE(), ("coin",), -1),
    "a prior below zero": (ox.PlugIn(prior=ARRAY), ("prior",), np.array(-1, np.float32)),
    "more exploration than actions": (
        ox.PlugIn(explore=ARRAY),
        ("explore",),
        np.array(2, np.float32),
    ),
    "steps of planning of none": (ox.PlugIn(), ("plan_steps",), 0),
    "a decay after no step": (ox.REINFORCE(), ("decay_after",), 0.0),
    "several steps at once": (
        ox.REINFORCE(step_size=ARRAY),
        ("step_size",),
        np.ones(3, np.float32),
    ),
    "deviations of other actions": (NORMAL, ("log_deviation",), np.zeros(1, np.float32)),
    "a table of one axis": (
        ox.policies.Tabular(jnp.zeros((4, 2))),
        ("table",),
        np.zeros(3, np.float32),
    ),
    "a table of integers": (
        ox.policies.Tabular(jnp.zeros((4, 2))),
        ("table",),
        np.zeros((4, 2), np.int32),
    ),
    "a network that is a text": (ox.policies.mlp((4,))(CART, KEY), ("psi",), "tanh"),
    "a layer with fewer rows": (NETWORK, (*LAYER, "weight"), lambda array: array[:-1]),
    "a layer with a number more": (
        NETWORK,
        (*LAYER, "bias"),
        lambda array: np.append(array, array),
    ),
    "a layer of integers": (NETWORK, (*LAYER, "weight"), lambda array: array.astype(np.int32)),
    "a layer without a bias": (NETWORK, (*LAYER, "bias"), None),
    "a layer from nowhere": (NETWORK, (*LAYER, "in_features"), -1),
    "a time limit of -1": (CART, ("time_limit",), -1),
    "a cost that is not positive": (ox.envs.LQR.random(2, 1), ("action_cost",), np.array([[-1.0]])),
    "a root of something else": (ox.envs.LQR.random(2, 1), ("noise_root",), np.eye(2)),
    "another limit than gymnax has": (GYMNAX, ("time_limit",), 7),
    "an environment that gymnax has not": (GYMNAX, ("source",), "os:system"),
    "a constant that is a text": (ox.utilities.Smoothness(1.0, 1.0, 1.0), ("l2",), "much"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_no_constructor_makes_is_not_restored(case):
    value, place, new = CASES[case]
    description, arrays = changed(value, place, new)
    with pytest.raises(
        ValueError, match=r"(was saved with a value that it cannot have: .+\.|jax.enable_x64)"
    ):
        codec.unpack(description, arrays)


def test_layers_that_do_not_follow_each_other_are_refused():
    layers = eqx.tree_at(lambda it: it.psi.network.layers[2], NETWORK, eqx.nn.Linear(5, 2, key=KEY))
    with pytest.raises(
        ValueError,
        match=r"policy does not take the observations of CartPole\. TypeError: dot_general",
    ):
        ox.train(ox.Problem(CART, horizon=5), ox.REINFORCE(), 8, policy=layers, progress=False)


def test_what_a_constructor_makes_is_restored():
    for value, _, _ in CASES.values():
        assert eqx.tree_equal(codec.unpack(*codec.pack(value)), value), value


# The kernels


def broken(env, **arrays):
    """A table that no constructor makes."""
    return eqx.tree_at(
        lambda it: [getattr(it, name) for name in arrays], env, list(arrays.values())
    )


@pytest.mark.parametrize("number", [4, 5000, -1, 2**30])
def test_the_kernel_refuses_a_successor_that_is_no_state(number):
    successors = np.array(CHAIN.successors)
    successors[0, 0, 0] = number
    bad = eqx.tree_at(lambda it: it.env, problem(), broken(CHAIN, successors=successors))
    with pytest.raises(RuntimeError, match="successors must lie in"):
        jax.block_until_ready(draw(bad))


def draw(of):
    policy = ox.policies.Tabular(jnp.zeros((4, 2)))
    source = ox.samplers.Kernel().open(of, policy)
    return source.draw(policy, 3, KEY).occupancy()


def test_the_kernel_takes_a_table_as_it_should_be():
    np.testing.assert_array_equal(draw(problem()), draw(problem()))
