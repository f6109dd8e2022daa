import itertools
import signal
import threading

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

import enumeration as enum
import occupax as ox
from occupax.training.schedule import Schedule

PROBLEM = enum.tiny(11, (2,)).problem("episodic", utility=ox.utilities.LogCoverage(0.1))
SIZES = {"snapshot_batch": 4, "batch": 2, "epoch_length": 3}
TSIVRPG = ox.TSIVRPG(**SIZES)
START = ox.policies.tabular(0.5)

ALGORITHMS = {
    "tsivr-pg": TSIVRPG,
    "reinforce": ox.REINFORCE(batch=4, mixing=0.5),
    "svrpg": ox.SVRPG(**SIZES),
    "srvr-pg": ox.SRVRPG(**SIZES),
    "hspga": ox.HSPGA(**SIZES),
    "maxent": ox.MaxEnt(batch=4),
    "truncated": ox.TSIVRPG(**SIZES, rule="gradient", radius=0.1),
    "adam": ox.REINFORCE(
        batch=4, step_size=1.0, rule=optax.adam(0.05), baseline="mean", mixing=0.5
    ),
}


def train(algorithm=TSIVRPG, episodes=20, seeds=2, **options):
    return ox.train(
        PROBLEM, algorithm, episodes, seeds, **{"policy": START, "progress": False, **options}
    )


def tables(result):
    return np.stack([policy.table for policy in result.policies])


# By one program each and not by one for each operation.
sample = eqx.filter_jit(ox.sample)
draw = eqx.filter_jit(lambda source, policy, n, key: source.draw(policy, n, key))
update = eqx.filter_jit(lambda phase, state, batch, key: phase.update(state, batch, key))
answers = eqx.filter_jit(lambda batch: (batch.occupancy(), batch.statistics().steps))


def replay(algorithm, iterations, number, seed=0, sampler="auto", key_of=jax.random.fold_in):
    """Run the algorithm by hand. Return all states, the first included, and the batches."""
    run_key = jax.random.fold_in(jax.random.key(seed), number)
    state = algorithm.init(PROBLEM, START(PROBLEM.env, jax.random.fold_in(run_key, 0)))
    source = ox.samplers.choose_sampler(sampler, PROBLEM, state.policy).open(PROBLEM, state.policy)
    batch_key, states, batches = jax.random.fold_in(run_key, 1), [state], []
    for i in range(iterations):
        phase, key = algorithm.phases[algorithm.phase(i)], key_of(batch_key, i)
        n = phase.trajectories
        if sampler == "jax":  # what everybody can do by hand
            batch = ox.SampledBatch(PROBLEM, sample(PROBLEM, state.policy, n, key), state.policy)
        else:
            batch = draw(source, state.policy, n, key)
        state = update(phase, state, batch, key)
        states.append(state)
        batches.append(batch)
    return states, batches


def coverage(u):
    return np.log(np.maximum(u, 0) + 0.1).sum()


# One run by hand


@pytest.mark.parametrize(
    ("name", "sampler"),
    [*((name, "auto") for name in ALGORITHMS), ("tsivr-pg", "jax")],
)
def test_training_is_the_algorithm_with_these_keys(name, sampler):
    algorithm = ALGORITHMS[name]
    result = train(algorithm, seeds=[3], seed=6, sampler=sampler)
    assert len(result.episodes) >= 5  # more than a cycle
    states, batches = replay(algorithm, len(result.episodes), 3, 6, sampler)
    np.testing.assert_allclose(tables(result)[0], states[-1].policy.table, rtol=1e-4, atol=1e-5)
    assert np.abs(tables(result)[0] - states[0].policy.table).max() > 1e-2  # it did move
    occupancies, steps = zip(*map(answers, batches), strict=True)
    np.testing.assert_array_equal(result.steps[0], np.cumsum(steps))
    expected = {
        "utility": [coverage(occupancy) for occupancy in occupancies],
        "running_utility": [coverage(state.occupancy) for state in states[1:]],
        "grad_norm": [np.linalg.norm(state.gradient.table) for state in states[1:]],
        "step_length": [
            np.linalg.norm(b.policy.table - a.policy.table) for a, b in itertools.pairwise(states)
        ],
        "clipped": [state.memory.clipped for state in states[1:]],
        "negative_occupancy": [np.mean(np.asarray(state.occupancy) < 0) for state in states[1:]],
    }
    for metric, values in expected.items():
        np.testing.assert_allclose(
            result.metrics[metric][0], values, rtol=1e-3, atol=1e-4, err_msg=metric
        )


def test_batches_that_do_not_depend_on_the_iteration_are_noticed():
    states, _ = replay(TSIVRPG, 6, 0, key_of=lambda key, _: key)
    assert np.abs(tables(train(seeds=1))[0] - states[-1].policy.table).max() > 1e-2


@pytest.mark.parametrize("name", ["tsivr-pg", "svrpg"])
def test_the_recorded_statistics_are_those_of_the_trajectories_and_of_the_policy_referred_to(name):
    algorithm = ALGORITHMS[name]
    result = train(algorithm, seeds=1, sampler="jax")
    states, batches = replay(algorithm, len(result.episodes), 0, sampler="jax")
    moved = []
    for i, batch in enumerate(batches):
        position, drawn = i % 3, jax.tree.map(np.asarray, batch.trajectories)
        # TSIVR-PG weighs the policy before the last step, SVRPG that of the snapshot, a snapshot
        # and REINFORCE none
        back = 0 if position == 0 else {"tsivr-pg": 1, "svrpg": position}[name]
        weight = weights(drawn, states[i - back].policy)
        last = weight[np.arange(len(weight)), np.maximum(drawn.live.sum(1) - 1, 0)]
        expected = {
            "return": drawn.rewards.sum(1).mean(),
            "discounted_return": (drawn.rewards * enum.DISCOUNT ** np.arange(4)).sum(1).mean(),
            "episode_length": drawn.live.sum(1).mean(),
            "largest_weight": weight.max(),
            "effective_sample_size": last.sum() ** 2 / (last**2).sum(),
        }
        for metric, value in expected.items():
            assert result.metrics[metric][0, i] == pytest.approx(value, rel=1e-4), metric
        moved.append(abs(weight.max() - 1) > 1e-3)
    assert any(moved) == (name != "reinforce")


def weights(drawn, target):
    """The weight of every live step, by hand, and zero elsewhere."""
    log_probs = np.log(enum.softmax(np.asarray(target.table, float)))
    ratios = log_probs[drawn.observations, drawn.actions] - drawn.log_probs
    return np.exp(np.cumsum(np.where(drawn.live, ratios, 0.0), 1)) * drawn.live


# Which policy is returned


def test_the_best_output_is_that_of_the_best_snapshot():
    algorithm = ox.TSIVRPG(**SIZES, output="best", step_size=1.0, radius=1.0)
    result, numbers = train(algorithm, 40, seeds=4), []
    for seed in range(4):
        states, _ = replay(algorithm, 15, seed)
        utilities = [coverage(states[i + 1].occupancy) for i in range(0, 15, 3)]
        numbers.append(3 * int(np.argmax(utilities)))
        np.testing.assert_allclose(
            tables(result)[seed], states[numbers[-1]].policy.table, rtol=1e-4, atol=1e-5
        )
    assert len(set(numbers)) > 1  # not always the first or the last


def test_a_uniform_output_is_each_iterate_with_the_same_chance():
    seeds, iterations = 100, 4
    path = []
    last = ox.REINFORCE(batch=4, step_size=0.5)
    train(
        last,
        16,
        seeds,
        callbacks=[lambda progress: path.append([policy.table for policy in progress.policies])],
    )
    uniform = train(ox.REINFORCE(batch=4, step_size=0.5, output="uniform"), 16, seeds)
    first = [START(PROBLEM.env, first_key(number)).table for number in range(seeds)]
    candidates = np.stack(
        [first, *path[:-1]], 1
    )  # those that sampled: the policy after the last step did not
    apart = np.abs(candidates - tables(uniform)[:, None]).max((2, 3))
    assert candidates.shape[1] == iterations
    assert (apart.min(1) < 1e-6).all()
    # Null steps make iterates equal; where that is so, nothing can be said of which one was chosen.
    chosen = apart.argmin(1)[(np.sort(apart, 1)[:, 1] > 1e-5)]
    assert len(chosen) > 0.8 * seeds
    counts = np.bincount(chosen, minlength=iterations)
    # At this seed; a chance of 1 in 1,000 would be bad luck, and "always the last" or "1/2 each
    # time" is far below it.
    assert stats.chisquare(counts).pvalue > 1e-3
    assert stats.chisquare(np.round(counts.sum() * np.array([1, 1, 2, 4]) / 8)).pvalue < 1e-6


def first_key(number):
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(0), number), 0)


# Budget


@pytest.mark.parametrize(
    ("snapshot", "batch", "length"), [(1, 1, 1), (4, 9, 1), (4, 2, 3), (1, 5, 4), (100, 10, 10)]
)
def test_the_budget_is_never_exceeded_and_never_left_unused(snapshot, batch, length):
    schedule = Schedule(ox.TSIVRPG(snapshot_batch=snapshot, batch=batch, epoch_length=length))
    epoch = [snapshot, *[batch] * (length - 1)]
    for episodes in range(1, 4 * sum(epoch)):
        iterations = schedule.iterations(episodes)
        drawn = [epoch[i % length] for i in range(iterations + 1)]
        assert sum(drawn[:-1]) <= episodes < sum(drawn)
        assert schedule.episodes(iterations) == sum(drawn[:-1])
    many = 5_000 * sum(epoch)  # beyond what is looked up at once
    assert schedule.iterations(many + snapshot - 1) == 5_000 * length
    assert schedule.episodes(5_000 * length) == many
    assert schedule.period == length


@pytest.mark.parametrize("episodes", [4, 5, 6, 7, 8, 11, 12, 13, 14, 21])
def test_training_ends_inside_a_cycle_where_the_budget_does(episodes):
    drawn = np.cumsum([4, 2, 2] * 4)
    np.testing.assert_array_equal(train(episodes=episodes).episodes, drawn[drawn <= episodes])


def test_a_budget_below_the_first_batch_is_refused():
    with pytest.raises(
        ValueError, match="episodes must be at least 4, the size of the first batch, got 3"
    ):
        train(episodes=3)


# Bits


def assert_same_bits(one, other, first=slice(None), second=slice(None)):
    assert tables(one)[first].tobytes() == tables(other)[second].tobytes()
    np.testing.assert_array_equal(one.steps[first], other.steps[second])
    for name, values in one.metrics.items():
        assert values[first].tobytes() == other.metrics[name][second].tobytes(), name


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    assert_same_bits(train(), train())
    assert np.abs(tables(train()) - tables(train(seed=1))).max() > 1e-2
    assert np.abs(np.diff(tables(train()), axis=0)).max() > 1e-2  # nor are two runs the same


def test_more_seeds_change_no_bit_of_the_first_ones():
    few = train(seeds=2)
    for many in (7, 5, 11):
        assert_same_bits(few, train(seeds=many), second=slice(2))


def test_chosen_seeds_are_trained_alone_as_among_others():
    chosen, all_of_them = train(seeds=[5, 3]), train(seeds=7)
    assert chosen.seeds == (5, 3)
    assert_same_bits(chosen, all_of_them, second=[5, 3])
    assert (
        np.asarray(chosen.policy(seed=3).table).tobytes()
        == np.asarray(all_of_them.policy(seed=3).table).tobytes()
    )
    assert_same_bits(chosen, train(seeds=(number for number in (5, 3))))
    with pytest.raises(ValueError, match="seed must be one of 5, 3, got 0"):
        chosen.policy(seed=0)


def test_a_ready_policy_is_the_start_of_every_seed():
    ready = ox.policies.Tabular(
        jnp.asarray(np.random.default_rng(0).normal(size=(3, 2)), jnp.float32)
    )
    result = train(ox.TSIVRPG(**SIZES, radius=0.0), policy=ready)
    np.testing.assert_array_equal(tables(result), np.stack([ready.table] * 2))


def test_training_works_beside_the_main_thread():
    results = []
    thread = threading.Thread(target=lambda: results.append(train()))
    thread.start()
    thread.join()
    assert_same_bits(train(), results[0])


# Ctrl-C


def test_the_first_interrupt_waits_for_the_record_and_says_what_is_lost():
    seen = []

    def interrupt(progress):
        seen.append(progress.episodes)
        signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(
        KeyboardInterrupt,
        match="stopped after 4 of 20 episodes; nothing was saved without",
    ):
        train(callbacks=[interrupt])
    assert seen == [4]
    assert signal.getsignal(signal.SIGINT) is before


def test_the_second_interrupt_ends_at_once():
    def interrupt_twice(_):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it went on")

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        train(callbacks=[interrupt_twice])
    assert signal.getsignal(signal.SIGINT) is before
