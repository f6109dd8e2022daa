"""Failing environments: the message names the episode, and the progress is kept."""

import os
import re
import signal
from contextlib import closing
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import occupax as ox
from occupax.samplers.episodes import EpisodeRunner
from simulators import Diary, Faulty, FaultyBox, key_of, seeds_of
from simulators import play as by_hand

KEY = jax.random.key(3)
SEEDS = seeds_of(KEY, 20)
UNIFORM = ox.policies.Softmax(lambda _: jnp.zeros(3))
HORIZON = 6


def draw(env, n=12, **options):
    with closing(EpisodeRunner(env, **options)) as runner:
        return runner.draw(UNIFORM, KEY, 0, n, n, HORIZON)


def evaluate(env, n=12, **options):
    """Evaluate on the episodes of the sampler."""
    return ox.evaluate(UNIFORM, env, n, seed=3, max_steps=HORIZON, **options)


@pytest.fixture(scope="module")
def expected():
    """Return the batch without failures, and a later episode that has a third step."""
    drawn = draw(ox.GymnasiumEnv(Diary), 20)
    return drawn, 6 + int(np.argmax(np.asarray(drawn.lengths)[6:] >= 4))


def named(caught):
    """Number and seed of the episode that a message names."""
    found = re.search(r"episode (\d+) \(seed (\d+)\) .*env\.reset\(seed=(\d+)\)", str(caught.value))
    assert found is not None
    assert found[2] == found[3]
    return int(found[1]), int(found[2])


# fault: what the message says of step 3
STEPS = {
    "raise": "raised RuntimeError at step 3 with action {action}: the motor is hot",
    "reward": "returned nan as the reward at step 3",
    "text reward": "returned invalid data at step 3 .* TypeError: 'much' is not a number",
    "no reward": (
        r"returned invalid data at step 3 \(run occupax.check_env for details\): "
        "TypeError: .*NoneType"
    ),
    "array reward": r"invalid data at step 3 .* TypeError: array\(\[1\.\]\) is not a number",
    "two": r"returned invalid data at step 3 .* TypeError: array\(\[1\., 1\.\]\) is not a number",
    "four values": "returned invalid data at step 3 .*: the result is not a tuple of 5 values",
    "type": "returned invalid data at step 3 .* ValueError: .*'north'",
    "shape": "returned an observation at step 3 that is not of Box",
    "state": r"returned 3 at step 3, which is not in Discrete\(3\)",
    "nan": "returned an observation with nan at step 3",
    "no info": "returned no 'seed' in its info at step 3",
    "info": "returned inf as 'seed' in its info at step 3",
}


@pytest.mark.parametrize(
    "play", [partial(draw, envs=1), partial(draw, envs=4), evaluate], ids=["1", "4", "evaluate"]
)
@pytest.mark.parametrize("fault", STEPS)
def test_what_a_step_does_wrong_is_said_with_the_episode_and_its_seed(fault, play, expected):
    drawn, number = expected
    make = FaultyBox if fault == "nan" else Faulty
    options = {"fault": fault, "when": SEEDS[number], "step": 3}
    with pytest.raises(ox.samplers.EpisodeError) as caught:
        play(ox.GymnasiumEnv(make, info=["time", "seed"], **options))
    assert named(caught) == (number, SEEDS[number])
    assert re.search(STEPS[fault].format(action=int(drawn.actions[number, 2])), str(caught.value))
    # and it happens again by hand
    if fault == "raise":
        with pytest.raises(RuntimeError, match="the motor is hot"):
            by_hand(make(**options), SEEDS[number], drawn.actions[number])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raise", "raised RuntimeError at reset: the motor is hot"),
        ("state", r"returned 3 at step 0, which is not in Discrete\(3\)"),
        ("nan", "returned an observation with nan at step 0"),
    ],
)
@pytest.mark.parametrize("play", [draw, evaluate])
def test_what_a_reset_does_wrong_is_said_with_the_episode_and_its_seed(fault, message, play):
    make = FaultyBox if fault == "nan" else Faulty
    with pytest.raises(ox.samplers.EpisodeError, match=message) as caught:
        play(ox.GymnasiumEnv(make, fault=fault, when=SEEDS[9], step=0))
    assert named(caught) == (9, SEEDS[9])


def test_evaluation_plays_the_episodes_that_are_drawn(expected):
    found = evaluate(ox.GymnasiumEnv(Diary), 20)
    np.testing.assert_array_equal(found.lengths, expected[0].lengths)
    np.testing.assert_array_equal(found.returns, np.asarray(expected[0].rewards, np.float64).sum(1))
    np.testing.assert_array_equal(found.terminated, expected[0].terminated)


@pytest.mark.parametrize("fault", ["raise", "reward", "hang"])
def test_an_environment_that_is_passed_to_evaluate_is_guarded_too(fault, expected):
    number = expected[1]
    with pytest.raises(ox.samplers.EpisodeError) as caught:
        evaluate(Faulty(fault, SEEDS[number], 3), timeout=1.0)
    assert named(caught) == (number, SEEDS[number])


def test_nothing_is_said_about_episodes_that_are_not_asked_for(expected):
    env = ox.GymnasiumEnv(Faulty, fault="raise", when=SEEDS[12], step=0)
    assert eqx.tree_equal(draw(env, 12), jax.tree.map(lambda leaf: leaf[:12], expected[0]))


@pytest.mark.parametrize(("processes", "step"), [(False, 0), (False, 3), (2, 0)])
def test_an_environment_that_hangs_is_given_up(processes, step, expected):
    number = expected[1]
    env = ox.GymnasiumEnv(Faulty, fault="hang", when=SEEDS[number], step=step)
    with pytest.raises(
        ox.samplers.EpisodeError, match=r"did not answer within [12] seconds"
    ) as caught:
        draw(env, envs=4, processes=processes, timeout=2.0 if processes else 1.0)
    assert named(caught) == (number, SEEDS[number])


def test_evaluation_gives_up_an_environment_that_hangs(expected):
    env = ox.GymnasiumEnv(Faulty, fault="hang", when=SEEDS[expected[1]], step=0)
    with pytest.raises(ox.samplers.EpisodeError, match="did not answer within 1 seconds") as caught:
        evaluate(env, timeout=1.0)
    assert named(caught) == (expected[1], SEEDS[expected[1]])


def test_a_process_that_is_killed_is_replaced_and_nothing_changes(expected, tmp_path):
    drawn, number = expected
    marker = tmp_path / "armed"
    marker.touch()
    env = ox.GymnasiumEnv(
        Faulty,
        fault="kill",
        when=SEEDS[number],
        step=3,
        marker=str(marker),
        once=True,
        info=["time"],
    )
    again = draw(env, 20, envs=2, processes=True)
    assert not marker.exists()  # it happened
    assert eqx.tree_equal(eqx.tree_at(lambda it: it.info, again, None), drawn)
    assert (np.asarray(again.info)[..., 0].max(1) == np.asarray(drawn.lengths)).all()


def test_ctrl_c_does_not_reach_the_processes_of_the_environments():
    with closing(EpisodeRunner(ox.GymnasiumEnv(Diary), 1, processes=True)) as runner:
        runner.draw(UNIFORM, KEY, 0, 1, 1, HORIZON)
        [process] = runner._slots._processes
        os.kill(process.pid, signal.SIGINT)
        runner.draw(UNIFORM, KEY, 0, 1, 1, HORIZON)
        assert runner._slots._processes == [process]


def test_an_environment_that_cannot_be_closed_spoils_nothing(expected):
    assert eqx.tree_equal(draw(ox.GymnasiumEnv(Faulty, fault="close"), 20), expected[0])


def test_a_process_that_is_killed_every_time_is_an_error(expected):
    number = expected[1]
    env = ox.GymnasiumEnv(Faulty, fault="kill", when=SEEDS[number], step=3)
    with pytest.raises(ox.samplers.EpisodeError, match="lost its process") as caught:
        draw(env, envs=5, processes=2)
    assert named(caught) == (number, SEEDS[number])


# In training

ALGORITHM = ox.TSIVRPG(snapshot_batch=4, batch=2, epoch_length=3, step_size=1e-6)


def train(env, **options):
    problem = ox.Problem(env, discount=0.9, horizon=HORIZON)
    settings = {"policy": ox.policies.linear(), "progress": False, "seeds": 2, **options}
    return ox.train(problem, ALGORITHM, 24, **settings)


def test_training_that_failed_goes_on_where_it_was_once_the_environment_is_mended(tmp_path):
    # an episode of the sixth iteration of the second run
    seed = seeds_of(key_of(run=1, iteration=5), 2)[1]
    armed, never = tmp_path / "armed", tmp_path / "never"
    armed.touch()
    options = {"fault": "raise", "when": seed, "step": 1}
    whole = train(ox.GymnasiumEnv(Faulty, **options, marker=str(never)))
    env = ox.GymnasiumEnv(Faulty, **options, marker=str(armed))
    for attempt in range(2):  # the second one fails from the checkpoint of the first
        with pytest.raises(
            ox.samplers.EpisodeError,
            match=r"iteration 5: .*stopped after 14 of 24 episodes.*--resume",
        ):
            # a function that is called at every record makes every iteration a call of its own
            train(env, out=tmp_path / "run", callbacks=[lambda _: None], resume=attempt > 0)
    with pytest.raises(ValueError, match="not finished"):
        ox.load_result(tmp_path / "run")
    armed.unlink()
    mended = train(env, out=tmp_path / "run", resume=True)
    assert mended.status == whole.status == ("finished",) * 2
    np.testing.assert_array_equal(mended.episodes, whole.episodes)
    np.testing.assert_array_equal(mended.steps, whole.steps)
    for name, values in whole.metrics.items():
        assert values.tobytes() == mended.metrics[name].tobytes(), name
    assert eqx.tree_equal(whole.policies, mended.policies)
    assert not eqx.tree_equal(whole.policies[0], whole.policies[1])


def test_without_a_folder_the_message_says_that_nothing_was_saved():
    env = ox.GymnasiumEnv(Faulty, fault="raise", step=0)
    with pytest.raises(
        ox.samplers.EpisodeError, match="stopped after 0 of 24 episodes; nothing was saved"
    ):
        train(env)


@pytest.mark.parametrize(
    "options",
    [
        {"envs": 0},
        {"shards": 0},
        {"timeout": 0.0},
        {"timeout": -1.0},
        {"processes": 0},
        {"processes": -1},
    ],
)
def test_settings_without_meaning_are_refused(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must"):
        ox.samplers.Host(**options)
