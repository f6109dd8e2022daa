"""The headline of a run: correct references, saved with the run and computed once."""

import json
from dataclasses import replace

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest

import occupax as ox
from folders import reseal
from occupax.analysis.verdict import share_text, short
from occupax.io.files import read_arrays, write_arrays
from occupax.outcome import Assessment
from occupax.training import References, assessment
from tables import arms

ARMS = ox.Problem(arms(), horizon=1)
PULLING = ox.REINFORCE(batch=10, step_size=0.1, rule="adam", baseline="mean")


def pull(**options):
    return ox.train(ARMS, PULLING, episodes=200, seeds=3, progress=False, **options)


def test_the_sentence_has_the_median_the_uniform_policy_the_optimum_and_the_share():
    """Hand-worked: the uniform policy has (1 + 0.3) / 2, the best arm 1."""
    result = pull()
    median = np.median(result.utilities)
    share = np.floor(100 * (median - 0.65) / 0.35)
    assert 20 < share < 99
    references = "uniform 0.650, optimum 1.00 (certified)"
    expected = f"{median:#.3g} (median of 3 seeds); {references}: {share:.0f}% of the way"
    assert result.headline == expected
    one = replace(result, seeds=(0,), saved_assessment=Assessment(np.array([0.825]), "exact"))
    assert one.headline == "0.825; uniform 0.650, optimum 1.00 (certified): 50% of the way"
    stopped = replace(
        result, saved_assessment=Assessment(np.array([0.825, np.nan, np.nan]), "exact")
    )
    assert stopped.headline.startswith("0.825 (median of 1 of 3 seeds); ")
    assert result.summary() == result.headline


def test_a_description_is_short_and_begins_with_the_headline():
    result = pull()
    lines = repr(result).splitlines()
    assert lines[0] == result.headline
    assert lines[1] == f"algorithm: {result.algorithm!r}"
    assert "step_size=0.1, " in lines[1]
    problem = "Reward() on TabularMDP(2 states, 2 actions), discount 0.99, horizon 1, episodic"
    assert lines[2] == f"problem: {problem}"
    assert [*lines[3:5], lines[6]] == ["seeds: 3", "episodes: 200 a seed", "status: 3 finished"]
    assert lines[5].startswith("time: ")
    assert len(lines) == 7


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.9375, "93%"),
        (0.994, "99.4%"),
        (0.99999, "99.9%"),
        (1.0, "100%"),
        (-0.004, "-1%"),
        (0.0, "0%"),
        (np.nan, ""),
    ],
)
def test_a_share_is_never_rounded_up(share, text):
    assert share_text(share) == text


def test_numbers_are_short():
    assert [short(it) for it in (-26.53, 0.65, 12345.6, 0.0, 1e-7)] == [
        "-26.5",
        "0.650",
        "12,346",
        "0",
        "1.00e-07",
    ]
    assert short(-4e-4, scale=22.0) == "0"  # the distance to a set that is reached but for rounding


def test_references_are_those_of_gymnasiums_own_table():
    """Backward induction over the table of FrozenLake as Gymnasium has it."""
    table = gym.make("FrozenLake-v1").unwrapped.P
    best, chance = np.zeros(16), np.zeros(16)
    for _ in range(20):
        earned = {
            values: np.array(
                [
                    [
                        sum(
                            p * (r + 0.99 * (not over) * array[s])
                            for p, s, r, over in table[state][a]
                        )
                        for a in range(4)
                    ]
                    for state in range(16)
                ]
            )
            for values, array in (("best", best), ("chance", chance))
        }
        best, chance = earned["best"].max(1), earned["chance"].mean(1)
    problem = ox.Problem(ox.make("FrozenLake-v1"), discount=0.99, horizon=20)
    found = assessment.find_references(problem, ox.policies.Tabular(jnp.zeros((16, 4))))
    assert found.optimum == pytest.approx(best[0], abs=1e-9)
    assert found.uniform == pytest.approx(chance[0], abs=1e-9)
    assert found.first == pytest.approx(found.uniform, abs=1e-6)


def test_the_optimum_of_a_taxi_takes_little_time_and_a_rough_one_is_left_out():
    taxi = ox.Problem(ox.make("Taxi-v4"), horizon=200)
    uniform = ox.policies.Tabular(jnp.zeros((500, 6)))
    found = assessment.find_references(taxi, uniform)
    assert found.optimum == pytest.approx(ox.exact.value_iteration(taxi).value)
    coverage = ox.Problem(taxi.env, ox.utilities.LogCoverage(), horizon=200)
    rough = assessment.find_references(coverage, uniform)
    if rough.optimum is not None:  # how far the search comes depends on the machine
        assert rough.gap is not None
        assert rough.uniform is not None
        assert rough.gap <= 0.5 * (rough.optimum - rough.uniform)


def test_what_is_not_a_table_is_compared_with_its_first_policy():
    problem = ox.Problem(ox.make("MountainCar-v0"), horizon=5)
    result = ox.train(
        problem, ox.REINFORCE(batch=2), 2, policy=ox.policies.linear(), progress=False
    )
    earned = -sum(0.99**t for t in range(5))  # whatever the policy
    told = f"{earned:#.3g} (estimated); first policy {earned:#.3g}"
    assert result.headline == f"{told}; undiscounted return -5.00 at the end"
    (level,) = [
        line for line in result.plot().axes[0].lines if line.get_label().startswith("first policy")
    ]
    assert level.get_ydata()[0] == pytest.approx(earned, rel=1e-4)  # a mean in single precision


def test_figures_of_the_utility_have_the_optimum_and_the_uniform_policy():
    result = pull()
    lines = {line.get_label(): line.get_ydata()[0] for line in result.plot().axes[0].lines}
    assert lines["optimum 1.00"] == pytest.approx(1.0)
    assert lines["uniform policy 0.650"] == pytest.approx(0.65)
    low, high = result.plot().axes[0].get_ylim()
    assert low < 0.65 < 1.0 < high  # inside, not on the edge
    assert not [
        line
        for line in result.plot("grad_norm").axes[0].lines
        if "optimum" in str(line.get_label())
    ]


def test_what_was_saved_is_shown_without_being_found_out_again(tmp_path, monkeypatch):
    result = pull(out=tmp_path)

    def again(*_):
        raise AssertionError

    monkeypatch.setattr("occupax.api.result.find_references", again)
    loaded = ox.load_result(tmp_path)
    assert repr(loaded) == repr(result)
    assert loaded.references == result.references


def test_a_folder_with_less_in_it_is_loaded_and_the_rest_found_out(tmp_path):
    result = pull(out=tmp_path)
    file, summary = tmp_path / "assessment.safetensors", tmp_path / "summary.json"
    arrays, content = read_arrays(file)
    write_arrays(
        file, {name: array for name, array in arrays.items() if "references" not in name}, content
    )
    written = json.loads(summary.read_text())
    del written["diagnosis"]
    summary.write_text(json.dumps(written))
    metrics = (tmp_path / "metrics.csv").read_text().splitlines()
    place = metrics[0].split(",").index("step_length")
    shorter = [
        ",".join(cell for i, cell in enumerate(line.split(",")) if i != place) for line in metrics
    ]
    (tmp_path / "metrics.csv").write_text("\n".join(shorter) + "\n")
    reseal(tmp_path)
    loaded = ox.load_result(tmp_path)
    assert loaded.saved_assessment is not None
    assert loaded.saved_assessment.references is None
    assert (loaded.headline, loaded.diagnosis) == (result.headline, result.diagnosis)


def test_points_of_a_sweep_share_what_they_are_compared_with(monkeypatch):
    calls = []
    optimum = assessment.quick_optimum
    monkeypatch.setattr(
        assessment, "quick_optimum", lambda problem: calls.append(problem) or optimum(problem)
    )
    unseen = ox.Problem(arms(), discount=0.5, horizon=1)
    done = ox.sweep(unseen, PULLING, {"step_size": [0.1, 0.2]}, 200, seeds=3, progress=False)
    assert done.learned.all()
    assert len(calls) == 1


def test_a_way_of_no_length_has_no_share():
    flat = References(first=1.0, uniform=1.0, optimum=1.0, gap=1e-9)
    assert np.isnan(flat.share(1.0))


def test_a_sum_with_the_reward_shows_the_return():
    problem = ox.Problem(arms(), ox.utilities.Reward() + 0.1 * ox.utilities.Entropy(), horizon=1)
    result = ox.train(problem, PULLING, episodes=200, seeds=3, progress=False)
    last = float(np.median(result.metrics["return"][:, -1]))
    assert f"; undiscounted return {short(last)} at the end" in result.headline
    assert "undiscounted return" not in pull().headline  # the exact utility says as much


def test_the_headline_counts_the_seeds_that_satisfy_a_constraint():
    limited = ox.Problem(arms(), horizon=1, constraints=[ox.Constraint("reward", at_most=0.5)])
    excesses = np.array([[-0.2], [0.1], [-0.1]])
    known = Assessment(np.full(3, 0.825), "exact", excesses=excesses)
    result = replace(pull(), problem=limited, saved_assessment=known)
    violated = "; reward <= 0.5: satisfied by 2 of 3 seeds (worst: violated by 0.100)"
    assert result.headline.endswith(violated)
    satisfied = replace(known, excesses=np.minimum(excesses, -0.1))
    text = replace(result, saved_assessment=satisfied).headline
    assert text.endswith("; reward <= 0.5: satisfied by 3 of 3 seeds (worst: slack 0.100)")
    single = replace(known, utilities=np.ones(1), excesses=excesses[:1])
    alone = replace(result, seeds=(0,), saved_assessment=single)
    assert alone.headline.endswith("; reward <= 0.5: slack 0.200")
