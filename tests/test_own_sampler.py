"""Samplers written outside of the package: one that plays in plain NumPy, and one that is part of the program."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import enumeration as enum
import occupax as ox
from occupax.samplers import ProgramSource, Sampler, Source

ALGORITHM = ox.TSIVRPG(snapshot_batch=4, batch=4, epoch_length=3, step_size=0.5, radius=1.0)
START = ox.policies.tabular(0.5)

# A row of states: action 1 goes up, action 0 stays, and the last state ends it.
REWARDS = np.arange(8.0).reshape(4, 2)
UP = np.zeros((4, 2, 4))
for s in range(4):
    UP[s, 0, s] = UP[s, 1, min(s + 1, 3)] = 1.0
ROW = ox.Problem(
    ox.TabularMDP(UP, REWARDS, [1, 0, 0, 0], [False, False, False, True]),
    ox.utilities.LogCoverage(0.1),
    discount=0.9,
    horizon=enum.HORIZON,
)
TINY = enum.tiny(11, (2,)).problem("episodic", utility=ox.utilities.LogCoverage(0.1))


def train(problem, sampler, **options):
    return ox.train(problem, ALGORITHM, 16, 2, policy=START, sampler=sampler, progress=False, **options)


def assert_close(one, other):
    assert one.status == other.status == ("finished",) * 2
    np.testing.assert_array_equal(one.episodes, other.episodes)
    np.testing.assert_array_equal(one.steps, other.steps)
    for name, values in one.metrics.items():
        np.testing.assert_allclose(values, other.metrics[name], rtol=1e-4, atol=2e-5, err_msg=name)
    for a, b in zip(one.policies, other.policies, strict=True):
        np.testing.assert_allclose(a.table, b.table, rtol=1e-4, atol=2e-5)


# Outside of the program


class Played(Sampler):
    """Plays the row of states step by step, with actions as the samplers of occupax draw them."""

    def __init__(self):
        self.opened, self.closed, self.drawn = 0, 0, []

    def open(self, problem, policy):
        self.opened += 1
        return PlayedSource(problem, self)


class PlayedSource(Source):
    problem: ox.Problem
    sampler: Played

    def draw(self, policy, n, key):
        self.sampler.drawn.append(n)
        keys = np.asarray(_keys(key, n, enum.HORIZON))
        shape = n, enum.HORIZON
        seen, actions, live = np.full(shape, 3), np.zeros(shape, int), np.zeros(shape, bool)
        rewards, log_probs, finals = np.zeros(shape, np.float32), np.zeros(shape, np.float32), np.zeros(n, int)
        for i in range(n):
            state = 0
            for t in range(enum.HORIZON):
                if state == 3:
                    break
                action, log_prob = _act(policy, state, keys[i, t])
                seen[i, t], actions[i, t], log_probs[i, t], live[i, t] = state, action, log_prob, True
                rewards[i, t] = REWARDS[state, action]
                state += int(action)
            finals[i] = state
        trajectories = ox.Trajectories(
            *map(jnp.asarray, (seen, actions, log_probs, rewards, live, finals == 3, finals))
        )
        return ox.SampledBatch(self.problem, trajectories, policy)

    def close(self):
        self.sampler.closed += 1


@eqx.filter_jit
def _keys(key, n, horizon):
    def of_step(i, t):
        return jax.random.split(jax.random.fold_in(jax.random.fold_in(key, i), t + 1))[0]

    keys = jax.vmap(lambda i: jax.vmap(lambda t: of_step(i, t))(jnp.arange(horizon)))(jnp.arange(n))
    return jax.random.key_data(keys)


@eqx.filter_jit
def _act(policy, state, key):
    return policy.draw(jnp.asarray(state), jax.random.wrap_key_data(jnp.asarray(key)))


def test_a_simulator_in_numpy_trains_like_the_table_of_it():
    sampler = Played()
    result = train(ROW, sampler)
    assert_close(result, train(ROW, ox.samplers.Host(engine="jax")))
    assert (sampler.opened, sampler.closed) == (1, 1)
    assert sampler.drawn == [4] * 8
    assert result.episodes[-1] == 16


# Inside the program


class Antithetic(Sampler):
    """Draws trajectories in pairs: one with uniform random numbers u, the other with 1 - u."""

    def open(self, problem, policy):
        return AntitheticSource(problem)


class AntitheticSource(ProgramSource):
    problem: ox.Problem

    @property
    def block_size(self):
        return 4000

    def block(self, policy, key, first, stop, n):
        process = enum.tiny(11, (2,))
        transition, rewards, initial, terminal = map(jnp.asarray, process)
        sums = jnp.cumsum(transition, -1)

        def trajectory(number):
            u = jax.random.uniform(jax.random.fold_in(key, number // 2), (enum.HORIZON + 1, 2))
            u = jnp.where(number % 2 == 1, 1 - u, u)

            def step(state, u_t):
                live = ~terminal[state] & (number < stop)
                action = (u_t[0] > policy.probs(state)[0]).astype(int)
                following = jnp.searchsorted(sums[state, action], u_t[1]).clip(0, enum.S - 1)
                zero = jnp.zeros(())
                taken = jnp.where(live, action, 0), jnp.where(live, policy.log_prob(state, action), zero)
                earned = jnp.where(live, rewards[state, action, following], zero)
                return jnp.where(live, following, state), (state, *taken, earned, live)

            start = jnp.searchsorted(jnp.cumsum(initial), u[0, 0]).clip(0, enum.S - 1)
            final, steps = jax.lax.scan(step, start, u[1:])
            return *steps, terminal[final] & (number < stop), final

        drawn = ox.Trajectories(*jax.vmap(trajectory)(first + jnp.arange(n)))
        return ox.SampledBatch(self.problem, drawn, policy)


class Outside(Sampler):
    """The same outside of the program."""

    def open(self, problem, policy):
        return OutsideSource(problem)


class OutsideSource(Source):
    problem: ox.Problem

    def draw(self, policy, n, key):
        return _block(self.problem, policy, n, key)


@eqx.filter_jit
def _block(problem, policy, n, key):
    return AntitheticSource(problem).block(policy, key, 0, n, n)


def test_a_source_inside_the_program_trains_like_the_same_one_outside():
    inside = train(TINY, Antithetic())
    assert_close(inside, train(TINY, Outside()))


def test_the_pairs_have_the_right_law_and_less_variance():
    policy = START(TINY.env, jax.random.key(0))
    drawn = _block(TINY, policy, 4000, jax.random.key(1)).trajectories
    returns = np.asarray((drawn.live * enum.DISCOUNT ** np.arange(enum.HORIZON)).sum(1))
    exact = enum.occupancy(enum.tiny(11, (2,)), np.asarray(policy.table, float), "episodic").sum()
    pairs = returns.reshape(-1, 2).mean(1)
    assert abs(returns.mean() - exact) < 4 * pairs.std() / np.sqrt(len(pairs))
    assert pairs.std() < 0.9 * returns.std() / np.sqrt(2)


def test_a_run_is_resumed_with_its_own_random_numbers_alone(tmp_path):
    whole = train(TINY, Outside(), out=tmp_path)
    with pytest.raises(ValueError, match="holds another run, which differs in random_numbers: resume it with"):
        train(TINY, "host", out=tmp_path, resume=True)
    assert_close(train(TINY, Outside(), out=tmp_path, resume=True), whole)


# What is no sampler


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(
    "wrong",
    [Played, object(), 3, None, PlayedSource(ROW, Played())],
    ids=["class", "object", "number", "nothing", "source"],
)
def test_what_is_no_sampler_is_refused(wrong):
    with pytest.raises(
        ValueError, match=r"sampler must be a sampler such as occupax\.samplers\.Host.*, or a name, got"
    ):
        train(ROW, wrong)


@pytest.mark.parametrize(("name", "meant"), [("kernal", "kernel"), ("hots", "host"), ("rays", "ray")])
def test_a_name_that_is_misspelt_is_put_right(name, meant):
    with pytest.raises(ValueError, match=f"sampler {name!r} is not known. Did you mean {meant!r}"):
        train(ROW, name)


def test_a_sampler_without_open_cannot_be_made():
    class Empty(Sampler):
        pass

    with pytest.raises(TypeError, match=r"abstract method.* open"):
        Empty()
