"""Runs and trajectories spread over two devices."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json
import jax
import numpy as np
import occupax as ox

everywhere = jax.local_devices()
assert len(everywhere) == 2
lake = ox.Problem(ox.make("FrozenLake-v1"), ox.utilities.LogCoverage(), horizon=10)
pole = ox.Problem(ox.make("CartPole-v1"), horizon=25)
sizes = dict(snapshot_batch=9, batch=4, epoch_length=3, step_size=0.02)
cases = {
    "trajectories": (lake, ox.HSPGA(**sizes), 2),
    "network": (pole, ox.REINFORCE(batch=5, step_size=0.001, baseline="linear"), 1),
    "runs": (lake, ox.REINFORCE(batch=9, step_size=0.02), 7),
}
found = {}
for name, (problem, algorithm, seeds) in cases.items():
    results = []
    for devices in (everywhere, everywhere[:1]):
        jax.local_devices = lambda devices=devices: devices
        results.append(ox.train(problem, algorithm, 40, seeds=seeds, policy=None if problem is lake
        else
                                ox.policies.mlp(hidden=(8,)), progress=False))
    two, one = results
    found[name] = {
        "steps": np.array_equal(two.steps, one.steps),
        "worst": max(float(np.max(np.abs(two.metrics[k] - v) / (np.abs(v) + 1e-3))) for k, v in
        one.metrics.items()), "moved": float(np.ptp(one.metrics["utility"])),
    }
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def differences(compiled_fast: dict[str, str]) -> dict[str, dict[str, float]]:
    flags = f"{compiled_fast.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    env = compiled_fast | {"XLA_FLAGS": flags}
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def test_runs_on_two_devices_are_those_on_one_to_the_last_bit(
    differences: dict[str, dict[str, float]],
):
    assert differences["runs"]["worst"] == 0
    assert differences["runs"]["steps"]
    assert differences["runs"]["moved"] > 0


@pytest.mark.parametrize("case", ["trajectories", "network"])
def test_trajectories_on_two_devices_are_those_on_one_and_sums_differ_by_rounding(
    case: str, differences: dict[str, dict[str, float]]
):
    assert differences[case]["steps"]
    # float32 has 7 digits, of which a few iterations cost one or two
    assert differences[case]["worst"] < 1e-4
    assert differences[case]["moved"] > 0
