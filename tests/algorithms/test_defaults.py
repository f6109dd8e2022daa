"""The defaults of every algorithm, as a table."""

from dataclasses import fields
from math import inf

import pytest

from occupax.algorithms import ALGORITHMS

EVERYWHERE = {"decay_after": None, "radius": inf, "baseline": "mean", "output": None}
GUARDED = {"weight_guard": 0.5, "weight_bound": 4.0}
DEFAULTS = {
    "reinforce": {
        "batch": None,
        "mixing": None,
        "restarts": True,
        "step_size": None,
        "rule": "adam",
    },
    "svrpg": {
        "snapshot_batch": 20,
        "batch": 10,
        "epoch_length": 2,
        "step_size": None,
        "rule": "adam",
    }
    | GUARDED,
    "srvr-pg": {
        "snapshot_batch": 20,
        "batch": 10,
        "epoch_length": 2,
        "step_size": None,
        "rule": "adam",
    }
    | GUARDED,
    "hspga": {
        "snapshot_batch": 20,
        "batch": 10,
        "epoch_length": 2,
        "mixing": None,
        "step_size": None,
        "rule": "adam",
    }
    | GUARDED,
    "tsivr-pg": {
        "snapshot_batch": 20,
        "batch": 10,
        "epoch_length": 2,
        "step_size": None,
        "rule": "adam",
    }
    | GUARDED,
    "maxent": {"batch": None, "mixing": 0.1, "step_size": None, "rule": "adam"},
    "storm": {"snapshot_batch": 20, "batch": 20, "fresh": 0.7, "step_size": None, "rule": "adam"}
    | GUARDED,
    "page": {"snapshot_batch": 20, "batch": 20, "coin": 0, "step_size": None, "rule": "adam"}
    | GUARDED,
    "n-vr-pg": {
        "snapshot_batch": 20,
        "batch": 20,
        "decay": 0.5,
        "step_decay": 1 / 3,
        "step_size": 0.3,
        "rule": "normalised",
    }
    | GUARDED,
    "n-harpg": {
        "snapshot_batch": 20,
        "batch": 10,
        "decay": 0.5,
        "step_decay": 1 / 3,
        "step_size": None,
        "rule": "normalised",
    },
    "plug-in": {
        "batch": None,
        "prior": 0.1,
        "explore": 0.3,
        "optimism": 0.3,
        "growth": 1.1,
        "plan_steps": 20,
        "step_size": 1.0,
        "rule": "gradient",
    },
    "ppo": {
        "batch": None,
        "mixing": 0.5,
        "epochs": 10,
        "minibatch": 32,
        "trace": 0.95,
        "critic_discount": None,
        "step_discount": 1.0,
        "clip": 0.2,
        "max_kl": 0.015,
        "max_norm": 0.5,
        "horizon_ends": False,
        "decay_episodes": None,
        "decay_steps": None,
        "step_size": None,
        "rule": "adam",
    },
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_defaults_are_those_of_the_table(name):
    algorithm = ALGORITHMS[name]()
    settings = {field.name: getattr(algorithm, field.name) for field in fields(algorithm)}
    assert settings == EVERYWHERE | DEFAULTS[name]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_class_states_all_of_its_defaults(name):
    kind = ALGORITHMS[name]
    assert {field.name for field in fields(kind)} <= vars(kind)["__annotations__"].keys()
