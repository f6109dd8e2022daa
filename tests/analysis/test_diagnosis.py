"""Every diagnostic has a run that triggers it, and healthy runs have none."""

import json
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import occupax as ox
from occupax.analysis.run_statistics import RunStatistics, costs_vanish
from occupax.errors import OccupaxWarning
from tables import arms

LENGTH, STEPS = 16, 18


def corridor(reward, length=LENGTH, ends=True):
    """Return a chain of states: one action advances, the other returns to the first state."""
    transition = np.zeros((length, 2, length))
    transition[:, 1, 0] = 1.0
    transition[np.arange(length), 0, np.minimum(np.arange(length) + 1, length - 1)] = 1.0
    transition[-1] = np.eye(length)[-1]
    terminal = np.arange(length) == length - 1
    return ox.TabularMDP(transition, reward, np.eye(length)[0], terminal=terminal if ends else None)


FREE = np.zeros((LENGTH, 2))
COVERAGE = ox.Problem(corridor(FREE), ox.utilities.LogCoverage(0.1), horizon=STEPS)
CALM = ox.REINFORCE(batch=10, step_size=0.1, rule="adam", baseline="mean")
REFINED = ox.TSIVRPG(
    10, 10, 2, step_size=0.1, radius=np.inf, rule="adam", baseline="mean", weight_guard=None
)
DRIFTING = ox.SRVRPG(10, 10, 10, radius=np.inf, rule="adam", baseline="none", weight_guard=None)


def train(problem, algorithm, iterations=60, seeds=3, **options):
    sizes = [phase.trajectories for phase in algorithm.phases]
    return ox.train(
        problem, algorithm, iterations * max(sizes), seeds=seeds, progress=False, **options
    )


def kinds(result):
    return [finding.kind for finding in result.diagnosis]


@pytest.fixture(scope="module")
def well():
    return train(COVERAGE, CALM)


def test_trainings_that_are_well_have_no_finding(well):
    for result in (
        well,
        train(COVERAGE, REFINED),
        train(COVERAGE, replace(REFINED, weight_guard=0.5)),
    ):
        assert result.diagnosis == ()
        assert result.references is not None
        assert (
            result.references.share(float(np.median(result.utilities))) > 0.5
        )  # they are well indeed


def test_no_progress_by_exact_values_and_by_noisy_ones(well):
    still = train(COVERAGE, replace(CALM, step_size=1e-7))
    (finding,) = still.diagnosis
    assert finding.kind == "no-progress"
    table = np.full(np.shape(still.policy().table), 0.5)
    assert f"the first policy {ox.exact.value(COVERAGE, table):#.3g}" in finding.sentence
    assert f"that of the steps {np.median(still.metrics['step_length']):#.3g}" in finding.sentence
    assert "0% of the steps were truncated by the radius" in finding.sentence
    # without the optimum the records alone decide: those of the one rise by more than noise, of the
    # other they do not
    unknown = {
        "saved_assessment": replace(
            still.assessment, references=ox.training.References(first=np.nan)
        )
    }
    noisy, rising = replace(still, **unknown), replace(well, **unknown)
    assert "the mean utility of the first records" in next(it.sentence for it in noisy.diagnosis)
    assert kinds(noisy) == ["no-progress"]
    assert kinds(rising) == []
    (planned,) = replace(still, algorithm=ox.PlugIn(10)).diagnosis
    assert "step_size" not in planned.advice + planned.sentence  # which plans have none of


def test_a_radius_that_cuts_every_step_is_what_to_enlarge():
    (finding,) = train(COVERAGE, replace(CALM, radius=1e-7)).diagnosis
    assert "100% of the steps were truncated by the radius" in finding.sentence
    assert finding.advice.startswith("a larger radius")


def test_what_is_too_short_or_begins_at_the_optimum_is_not_blamed():
    still = replace(CALM, step_size=1e-7)
    assert train(COVERAGE, still, iterations=10).diagnosis == ()
    best = ox.policies.Tabular(
        jnp.log(jnp.asarray(ox.solve(ox.Problem(arms(), horizon=1)).policy[0] + 1e-9))
    )
    problem = ox.Problem(arms(), horizon=1)
    assert train(problem, still, policy=best).diagnosis == ()
    assert kinds(train(problem, still)) == ["no-progress"]


@pytest.mark.parametrize("seed", range(3))
def test_noise_is_not_taken_for_progress_nor_progress_for_noise(well, seed):
    """A rise of eight standard errors of the difference is progress, a trend alone is not."""
    random, records = np.random.default_rng(seed), len(well.episodes)
    noise = random.normal(size=(3, records))
    references = ox.training.References(first=np.nan)
    unknown = replace(well.assessment, references=references)
    error = np.sqrt(2 / 10 / 3)  # of the difference of two windows of ten records, in three seeds
    for rise, seen in ((0.0, False), (8.0, True)):
        trend = np.linspace(0.0, 1.0, records) ** 0.25 * rise * error
        course = replace(
            well, metrics=well.metrics | {"utility": noise + trend}, saved_assessment=unknown
        )
        assert (RunStatistics(course, course.full_assessment).no_progress is None) == seen


def test_collapse():
    """Steps of many logits from a policy that is good: after one of them there is no way back."""
    well = train(COVERAGE, CALM, iterations=25, seeds=1)
    long = replace(CALM, rule="gradient", baseline="none", step_size=30.0)
    fallen, kept = (
        train(COVERAGE, it, policy=well.policy()) for it in (long, replace(long, output="best"))
    )
    assert fallen.utilities.max() < -5
    finding = next(it for it in fallen.diagnosis if it.kind == "collapse")
    first, last = (f"{value:#.3g}" for value in (well.utilities[0], fallen.utilities.min()))
    assert (
        f"the utility fell in all 3 seeds, at worst from {first} of the first policy to {last}"
        in finding.sentence
    )
    assert "collapse" not in kinds(kept)  # what is returned is good


def test_a_rise_that_is_lost_again_is_a_collapse_unless_noise_explains_it(well):
    random, rise = np.random.default_rng(0), np.repeat([0.0, 4.0, 0.5], 20)
    unknown = replace(
        well.assessment, utilities=np.full(3, 0.5), references=ox.training.References(first=np.nan)
    )
    for noise, seen in ((0.5, True), (20.0, False)):
        course = rise + noise * random.normal(size=(3, 60))
        result = replace(well, metrics=well.metrics | {"utility": course}, saved_assessment=unknown)
        found = [it.sentence for it in result.diagnosis if it.kind == "collapse"]
        assert len(found) == seen
        assert all(
            "in all 3 seeds" in sentence and "in the best tenth of the training" in sentence
            for sentence in found
        )


def test_weights_out_of_bounds():
    wild = train(COVERAGE, replace(DRIFTING, step_size=1.0), 120)
    weighed = wild.metrics["largest_weight"][wild.metrics["largest_weight"] != 1]
    assert np.mean(weighed > 10) > 0.15
    finding = next(it for it in wild.diagnosis if it.kind == "weights")
    percent = 100 * np.mean(weighed > 10) // 1
    expected = f"in {percent:.0f}% of the recursive updates an importance weight is above 10"
    assert expected in finding.sentence
    assert f"the largest weight is {weighed.max():#.3g}" in finding.sentence
    assert "weights" not in kinds(train(COVERAGE, replace(DRIFTING, step_size=0.1), 120))


def test_a_guard_that_is_always_needed_is_a_finding_only_where_nothing_is_learned():
    strict = replace(REFINED, weight_guard=1.0)
    still, learning = train(COVERAGE, replace(strict, step_size=1e-4)), train(COVERAGE, strict)
    for result in (still, learning):
        assert result.metrics["restarted"][:, 1::2].mean() > 0.55
    assert kinds(learning) == []
    assert kinds(still) == ["no-progress", "weights"]
    (share,) = {np.floor(100 * still.metrics["restarted"][:, 1::2].mean())}
    assert f"{share:.0f}% of the recursive updates were replaced" in still.diagnosis[1].sentence


def test_a_gradient_of_zero():
    flat = ox.Problem(corridor(FREE), ox.utilities.Linear(FREE), horizon=STEPS)
    (finding,) = train(flat, CALM).diagnosis
    assert finding.kind == "zero-gradient"
    assert "100% of the records in all 3 seeds" in finding.sentence


def test_a_reward_that_was_never_seen():
    """The reward needs fifteen advances in a row, which one of 10,000 episodes has, not 500."""
    reward = FREE.copy()
    reward[-2, 0] = 1.0
    unseen = train(ox.Problem(corridor(reward), horizon=STEPS), CALM, iterations=25, seeds=2)
    assert not unseen.metrics["return"].any()
    (finding,) = unseen.diagnosis
    assert finding.kind == "reward-unseen"
    assert "no episode received any reward in all 2 seeds, in 250 episodes" in finding.sentence
    assert "reward-unseen" not in kinds(
        replace(unseen, problem=COVERAGE)
    )  # what is not maximised is not missed


def test_episodes_that_are_all_cut_matter_only_where_they_may_end():
    toll = FREE - 1.0
    toll[:, 1] = -0.9  # which makes it pay to go back
    cut = train(ox.Problem(corridor(toll), horizon=STEPS), CALM, iterations=25, seeds=2)
    assert (cut.metrics["episode_length"] == STEPS).all()
    (finding,) = cut.diagnosis
    assert finding.kind == "horizon"
    assert (
        f"every episode was truncated at the horizon of {STEPS} steps in all 2 seeds"
        in finding.sentence
    )
    for harmless in (
        ox.Problem(corridor(toll, ends=False), horizon=STEPS),  # nothing ever ends
        ox.Problem(corridor(toll), horizon=LENGTH - 1),  # nothing can end before the horizon
        COVERAGE,  # an end is not what is wanted
    ):
        assert "horizon" not in kinds(replace(cut, problem=harmless))


def test_a_simulator_whose_episodes_are_all_cut_and_earn_the_same():
    problem = ox.Problem(ox.make("MountainCar-v0"), horizon=5)
    result = ox.train(
        problem, ox.REINFORCE(batch=2), 4, seeds=1, policy=ox.policies.linear(), progress=False
    )
    assert kinds(result) == ["horizon"]
    varied = result.metrics | {
        "return": np.array([[-5.0, -4.0]], np.float32),
        "grad_norm": np.ones((1, 2), np.float32),
    }
    result = replace(result, saved_assessment=result.full_assessment)
    endless = ox.Problem(ox.make("Pendulum-v1"), horizon=5)
    assert (
        kinds(replace(result, metrics=varied, problem=endless)) == []
    )  # an environment without an end
    assert kinds(replace(result, metrics=varied)) == ["horizon"]
    paid = varied | {"return": np.array([[5.0, 4.0]], np.float32)}
    assert kinds(replace(result, metrics=paid)) == []  # an end may be what is to be avoided


def test_an_occupancy_that_left_its_domain():
    """With batches of one and no snapshot, the errors of a hundred differences add up."""
    alone = replace(DRIFTING, batch=1, epoch_length=1000, rule="normalised", step_size=0.03)
    drifted = ox.train(COVERAGE, alone, 2000, seeds=3, progress=False)
    assert drifted.metrics["negative_occupancy"].mean(1).max() > 0.1
    assert "domain" in kinds(drifted)
    loss = ox.Problem(corridor(FREE), ox.utilities.Linear(FREE - 1.0), horizon=STEPS)
    assert "domain" not in kinds(replace(drifted, problem=loss))  # which may be negative
    regressors = np.random.default_rng(0).standard_normal((*FREE.shape, 3))
    design = ox.Problem(corridor(FREE), ox.utilities.LogDet(regressors), horizon=STEPS)
    assert "domain" not in kinds(
        replace(drifted, problem=design)
    )  # of a matrix, entries of which may be negative


def test_seeds_that_disagree():
    """Without a baseline and with long steps, whichever arm is pulled first is pulled for ever."""
    hasty = ox.REINFORCE(batch=1, step_size=100.0, rule="gradient", baseline="none")
    result = ox.train(ox.Problem(arms(), horizon=1), hasty, 30, seeds=range(5), progress=False)
    assert set(result.utilities.round(3)) == {0.3, 1.0}
    assert np.median(result.utilities) == pytest.approx(1.0)
    assert kinds(result) == [
        "collapse",
        "seeds-disagree",
    ]  # the lesser arm is worse than a choice by chance
    assert "from 0.300 to 1.00" in result.diagnosis[1].sentence


def test_a_gradient_that_is_not_finite_where_nothing_is_visited_is_a_warning_at_the_start():
    env = corridor(FREE)
    for utility in (
        ox.utilities.Custom(lambda u: jnp.log(u).sum(), features=ox.features.State()),
        ox.utilities.Reward() + ox.utilities.Entropy(smoothing=0.0),
    ):
        with pytest.warns(
            OccupaxWarning,
            match=r"is not finite at unvisited entries.*log\(u \+ sigma\)",
        ):
            result = ox.train(
                ox.Problem(env, utility, 0.9, 4), ox.REINFORCE(batch=2), 2, progress=False
            )
        assert "infinite-gradient" in kinds(result)
    share = ox.utilities.Custom(
        lambda u: jnp.sqrt(u + 0.1).sum() / u.sum(), features=ox.features.State()
    )
    assert (
        kinds(ox.train(ox.Problem(env, share, 0.9, 4), ox.REINFORCE(batch=2), 2, progress=False))
        == []
    )


def test_findings_are_saved_with_the_run_and_shown(tmp_path, monkeypatch):
    still = train(COVERAGE, replace(CALM, step_size=1e-7), out=tmp_path)
    assert json.loads((tmp_path / "summary.json").read_text())["diagnosis"] == [
        still.diagnosis[0]._asdict()
    ]
    monkeypatch.setattr("occupax.analysis.diagnosis.RULES", ())  # nothing is worked out again
    monkeypatch.setattr("occupax.analysis.diagnosis.REASONS", ())
    loaded = ox.load_result(tmp_path)
    assert loaded.diagnosis == still.diagnosis
    assert loaded.summary() == still.summary()
    assert f"no-progress: {still.diagnosis[0].sentence}" in loaded.summary().splitlines()[1]
    assert loaded.summary().splitlines()[3] == "  more: occupax explain no-progress"
    assert "findings: no-progress" in repr(loaded)


def test_a_sweep_says_what_learned_nothing():
    over = {"step_size": [1e-8, 0.1, 1e-7]}
    done = ox.sweep(COVERAGE, CALM, over, episodes=600, seeds=3, progress=False)
    assert done.learned.tolist() == [False, True, False]
    assert done.best == 1
    assert [line.endswith("(learned nothing)") for line in str(done).splitlines()[1:]] == [
        False,
        True,
        True,
    ]
    nothing = ox.sweep(
        COVERAGE, CALM, {"step_size": [1e-8, 1e-7]}, episodes=600, seeds=3, progress=False
    )
    assert str(nothing).endswith(
        "no setting learned anything: "
        "none is clearly better than the policy that training began with"
    )
    with pytest.raises(ValueError, match="no setting learned anything"):
        _ = nothing.best


LIMITED = ox.Problem(
    corridor(FREE), COVERAGE.utility, horizon=STEPS, constraints=[ox.Constraint(FREE, at_most=2.0)]
)


def limited(well, utility, violation, last, excess):
    """Return a result of three seeds with given utilities and violations of a threshold of 2."""
    records = np.ones((3, len(well.episodes)))
    metrics = well.metrics | {"utility": records * utility, "violation/cost": records * violation}
    metrics |= {"multiplier/cost": records}
    assessed = replace(
        well.assessment,
        utilities=np.full(3, last),
        excesses=np.full((3, 1), excess),
        references=ox.training.References(first=utility[0]),
    )
    return replace(well, problem=LIMITED, metrics=metrics, saved_assessment=assessed)


def test_a_utility_that_a_limit_costs_is_no_collapse(well):
    """A lost utility is a collapse only if the initial policy was feasible already."""
    progress = np.linspace(0.0, 1.0, len(well.episodes))
    falling = 5.0 - 3.0 * progress
    traded = limited(well, falling, 1.0 - 1.2 * progress, last=2.0, excess=-0.2)
    assert kinds(traded) == []
    lost = limited(well, falling, -0.1, last=2.0, excess=-0.2)
    assert "collapse" in kinds(lost)
    broken = limited(well, falling, 1.0, last=2.0, excess=1.0)
    assert "collapse" in kinds(broken)  # the end is no more feasible than the beginning
    later = np.interp(progress, [0.0, 0.3, 0.6, 1.0], [2.0, 6.0, 3.0, 3.0])
    rose = limited(well, later, np.where(later > 3.01, 1.0, -0.1), last=3.0, excess=-0.1)
    assert kinds(rose) == []  # the best tenth broke the limit


def test_rounding_is_no_collapse_and_numbers_in_a_sentence_differ(well):
    records = len(well.episodes)
    for last, seen in ((99.0 - 1e-5, False), (99.0 - 0.02, True)):
        references = ox.training.References(first=99.0)
        assessed = replace(well.assessment, utilities=np.full(3, last), references=references)
        course = replace(
            well,
            metrics=well.metrics | {"utility": np.full((3, records), 99.0)},
            saved_assessment=assessed,
        )
        sentences = [finding.sentence for finding in course.diagnosis if finding.kind == "collapse"]
        assert len(sentences) == seen
        assert all(
            "from 99 of the first policy to 98.98 at the end" in sentence for sentence in sentences
        )


@pytest.mark.parametrize(("first", "last", "noise"), [(2.08, 10.0, 0.0), (12.4, 15.1, 4.0)])
def test_a_rise_before_the_first_records_is_progress(well, first, last, noise):
    """The evaluation detects progress: its standard error is a tenth of that of a batch of ten."""
    random, shape = np.random.default_rng(0), (3, len(well.episodes))
    at_once = {"utility": last + noise * random.normal(size=shape)}
    for utility, seen in ((last, False), (first, True)):
        references = ox.training.References(first=first)
        assessed = replace(well.assessment, utilities=np.full(3, utility), references=references)
        course = replace(well, metrics=well.metrics | at_once, saved_assessment=assessed)
        assert (RunStatistics(course, course.full_assessment).no_progress is not None) == seen


def test_a_goal_that_is_never_reached_is_a_finding_though_returns_rise():
    """On MountainCarContinuous, chance never reaches the goal and training learns to save fuel."""
    problem = ox.Problem("MountainCarContinuous-v0")
    algorithm = ox.REINFORCE(baseline="linear")
    result = ox.train(problem, algorithm, episodes=100, seeds=2, progress=False)
    assert (result.metrics["return"] <= 0).all()
    finding = result.diagnosis[0]
    assert finding.kind == "horizon"
    assert "was truncated at the horizon of 999 steps in all 2 seeds" in finding.sentence
    assert "a goal that ends an episode was never reached" in finding.sentence


@pytest.mark.parametrize("scale", [1e30, 1e38])
@pytest.mark.parametrize("tabular", [True, False])
def test_rewards_that_overflow_are_named_with_their_scale(scale, tabular):
    reward = FREE.copy()
    reward[:, 1] = scale
    problem = ox.Problem(corridor(reward), horizon=STEPS)
    policy = None if tabular else ox.policies.mlp()
    result = ox.train(problem, CALM, 300, seeds=2, policy=policy, progress=False)
    assert all(status.startswith("stopped") for status in result.status)
    (finding,) = result.diagnosis
    assert finding.kind == "overflow"
    assert "the rewards are too large" in finding.sentence
    assert f"about {ox.exact.value(problem, np.full(FREE.shape, 0.5)):.0e}" in finding.sentence
    assert "a utility divided by its size" in finding.advice


def test_a_policy_that_is_worth_more_than_a_float_holds_overflowed(well):
    """CartPole with rewards of 1e38 has such a policy."""
    infinite = np.full(3, np.inf)
    assessed = replace(
        well.assessment, utilities=infinite, references=ox.training.References(first=np.inf)
    )
    stopped = ("stopped at iteration 0: the gradient estimate is not finite",) * 3
    huge = replace(well, status=stopped, saved_assessment=assessed)
    (finding,) = huge.diagnosis
    assert finding.kind == "overflow"
    assert "the utility of a policy is more than 3.4e+38" in finding.sentence


def test_actions_that_saturate_are_named_where_a_limit_is_lost(well):
    clipped = {"actions_clipped": np.full((3, len(well.episodes)), 0.97)}
    broken = limited(well, np.linspace(2.0, 5.0, len(well.episodes)), 1.0, last=5.0, excess=1.0)
    found = replace(broken, metrics=broken.metrics | clipped).diagnosis
    finding = next(finding for finding in found if finding.kind == "saturation")
    assert finding.sentence.startswith(
        "97% of the actions in the last tenth of the records in all 3 seeds"
    )
    kept = limited(well, np.linspace(2.0, 5.0, len(well.episodes)), -0.1, last=5.0, excess=-0.1)
    assert (
        kinds(replace(kept, metrics=kept.metrics | clipped)) == []
    )  # the best policy may be at a bound


def test_policies_that_learn_to_do_nothing_are_named():
    env = ox.Problem(ox.make("MountainCarContinuous-v0"), horizon=5)
    result = ox.train(env, ox.REINFORCE(batch=2), 40, seeds=1, progress=False)
    returns = np.geomspace(-30.0, -0.1, result.metrics["return"].size)[None]
    metrics = result.metrics | {
        "return": returns.astype(np.float32),
        "episode_length": np.full(returns.shape, 5.0, np.float32),
    }
    spared = replace(result, metrics=metrics, saved_assessment=result.full_assessment)
    finding = next(it for it in spared.diagnosis if it.kind == "horizon")
    assert "up from -30.0: the policies learned to spend less" in finding.sentence
    assert costs_vanish(returns[0])
    assert not costs_vanish(np.linspace(-30.0, -3.0, 40))
    assert not costs_vanish(-returns[0])


def test_no_finding_advises_what_is_in_force():
    explored = ox.Problem(
        corridor(np.zeros_like(FREE)),
        ox.utilities.Reward() + 0.1 * ox.utilities.Entropy(),
        horizon=STEPS,
    )
    unseen = train(explored, CALM, iterations=25, seeds=1)
    finding = next(it for it in unseen.diagnosis if it.kind == "reward-unseen")
    assert "a larger weight of the term that rewards exploration" in finding.advice
    still = train(COVERAGE, replace(CALM, step_size=1e-7, baseline="mean"), seeds=1)
    assert "baseline" not in still.diagnosis[0].advice
    plain = train(COVERAGE, replace(CALM, step_size=1e-7, baseline="none"), seeds=1)
    assert "baseline='mean'" in plain.diagnosis[0].advice


def test_the_output_of_a_training_replaces_that_of_its_algorithm(well):
    best = train(COVERAGE, CALM, iterations=25, output="best")
    same = train(COVERAGE, replace(CALM, output="best"), iterations=25)
    np.testing.assert_array_equal(best.utilities, same.utilities)
    assert best.algorithm is not None
    assert best.algorithm.output == "best"
    assert "best iterates by their batches" in best.headline
    assert "iterate" not in well.headline
    default = ox.train(
        ox.Problem("FrozenLake-v1", horizon=5), episodes=20, output="uniform", progress=False
    )
    assert default.algorithm is not None
    assert default.algorithm.output == "uniform"
