"""User-defined samplers: one in plain NumPy and one inside the compiled program.

Both draw trajectories in pairs, one with uniform random numbers u and the other with 1 - u, so that
each is the reference of the other.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import enumeration as enum
import occupax as ox
from occupax.samplers import ProgramSource, Sampler, Source

PROCESS = enum.tiny(11, (2,))
PROBLEM = PROCESS.problem("episodic", utility=ox.utilities.LogCoverage(0.1))
ALGORITHM = ox.TSIVRPG(snapshot_batch=4, batch=4, epoch_length=3, step_size=0.5, radius=1.0)
START = ox.policies.tabular(0.5)


def train(sampler, **options):
    return ox.train(
        PROBLEM, ALGORITHM, 16, 2, policy=START, sampler=sampler, progress=False, **options
    )


def assert_close(one, other):
    assert one.status == other.status == ("finished",) * 2
    np.testing.assert_array_equal(one.episodes, other.episodes)
    np.testing.assert_array_equal(one.steps, other.steps)
    for name, values in one.metrics.items():
        np.testing.assert_allclose(values, other.metrics[name], rtol=1e-4, atol=2e-5, err_msg=name)
    for a, b in zip(one.policies, other.policies, strict=True):
        np.testing.assert_allclose(a.table, b.table, rtol=1e-4, atol=2e-5)


def uniforms(key, number):
    """Return the uniforms of a trajectory: for the first state, then for actions and successors."""
    u = jax.random.uniform(jax.random.fold_in(key, number // 2), (enum.HORIZON + 1, 2))
    return jnp.where(number % 2 == 1, 1 - u, u)


class Played(Sampler):
    """Plays step by step, outside of the program."""

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
        probs, shape = enum.softmax(np.asarray(policy.table, float)), (n, enum.HORIZON)
        seen, actions, live = np.zeros(shape, int), np.zeros(shape, int), np.zeros(shape, bool)
        rewards, log_probs, finals = (
            np.zeros(shape, np.float32),
            np.zeros(shape, np.float32),
            np.zeros(n, int),
        )
        for i, u in enumerate(np.asarray(_all_uniforms(key, jnp.arange(n)))):
            state = np.searchsorted(np.cumsum(PROCESS.initial), u[0, 0])
            for t in range(enum.HORIZON):
                seen[i, t] = state
                if PROCESS.terminal[state]:
                    continue
                action = int(u[t + 1, 0] > probs[state, 0])
                following = np.searchsorted(
                    np.cumsum(PROCESS.transition[state, action]), u[t + 1, 1]
                )
                actions[i, t], live[i, t], log_probs[i, t] = (
                    action,
                    True,
                    np.log(probs[state, action]),
                )
                rewards[i, t] = PROCESS.reward[state, action, following]
                state = following
            finals[i] = state
        parts = seen, actions, log_probs, rewards, live, PROCESS.terminal[finals], finals
        return ox.SampledBatch(self.problem, ox.Trajectories(*map(jnp.asarray, parts)), policy)

    def close(self):
        self.sampler.closed += 1


_all_uniforms = jax.jit(jax.vmap(uniforms, (None, 0)))


class Antithetic(Sampler):
    """Draws inside the compiled program."""

    def open(self, problem, policy):
        return AntitheticSource(problem)


class AntitheticSource(ProgramSource):
    problem: ox.Problem

    @property
    def block_size(self):
        return 1000

    def block(self, policy, key, first, stop, n):
        transition, reward, initial, terminal = map(jnp.asarray, PROCESS)

        def trajectory(number):
            u = uniforms(key, number)

            def step(state, u_t):
                live = ~terminal[state] & (number < stop)
                action = (u_t[0] > policy.probs(state)[0]).astype(int)
                following = jnp.searchsorted(jnp.cumsum(transition[state, action]), u_t[1])
                numbers = action, policy.log_prob(state, action), reward[state, action, following]
                kept = [jnp.where(live, one, jnp.zeros_like(one)) for one in numbers]
                return jnp.where(live, following, state), (state, *kept, live)

            final, steps = jax.lax.scan(step, jnp.searchsorted(jnp.cumsum(initial), u[0, 0]), u[1:])
            return *steps, terminal[final] & (number < stop), final

        parts: Any = jax.vmap(trajectory)(first + jnp.arange(n))
        drawn = ox.Trajectories(*parts)
        return ox.SampledBatch(self.problem, drawn, policy)


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A sampler, what was trained with it, and the folder of it."""
    sampler, folder = Played(), tmp_path_factory.mktemp("played")
    return sampler, train(sampler, out=folder), folder


def test_a_source_outside_of_the_program_is_opened_drawn_from_and_closed(played):
    sampler, result, _ = played
    assert (sampler.opened, sampler.closed) == (1, 1)
    assert sampler.drawn == [4] * 8  # four iterations of two runs
    np.testing.assert_array_equal(result.episodes, [4, 8, 12, 16])
    assert result.metrics["largest_weight"].max() > 1.01


def test_sources_inside_and_outside_of_the_program_train_alike(played):
    assert_close(train(Antithetic()), played[1])


def test_the_pairs_have_the_right_law_and_less_variance():
    policy = START(PROBLEM.env, jax.random.key(0))
    drawn = Played().open(PROBLEM, policy).draw(policy, 2000, jax.random.key(1)).trajectories
    mass = np.asarray((drawn.live * enum.DISCOUNT ** np.arange(enum.HORIZON)).sum(1))
    exact = enum.occupancy(PROCESS, np.asarray(policy.table, float), "episodic").sum()
    pairs = mass.reshape(-1, 2).mean(1)
    assert abs(mass.mean() - exact) < 4 * pairs.std() / np.sqrt(len(pairs))
    assert pairs.std() < 0.9 * mass.std() / np.sqrt(2)


def test_a_run_is_resumed_with_its_own_random_numbers_alone(played):
    _, whole, folder = played
    with pytest.raises(
        ValueError, match="holds another run, which differs in random_numbers: resume it with"
    ):
        train("host", out=folder, resume=True)
    assert_close(train(Played(), out=folder, resume=True), whole)


# What is no sampler


@pytest.mark.parametrize(
    "wrong",
    [Played, object(), 3, None, PlayedSource(PROBLEM, Played())],
    ids=["class", "object", "number", "nothing", "source"],
)
def test_what_is_no_sampler_is_refused(wrong):
    with pytest.raises(
        ValueError, match=r"sampler must be a sampler such as occupax\.samplers.*, or a name, got"
    ):
        train(wrong)


@pytest.mark.parametrize(
    ("name", "meant"), [("kernal", "kernel"), ("hots", "host"), ("rays", "ray")]
)
def test_a_name_that_is_misspelt_is_put_right(name, meant):
    with pytest.raises(ValueError, match=f"sampler {name!r} is not known. Did you mean {meant!r}"):
        train(name)


def test_a_sampler_without_open_cannot_be_made():
    empty: Any = type("Empty", (Sampler,), {})
    assert empty.__abstractmethods__ == {"open"}
    with pytest.raises(TypeError):
        empty()


class Forgetful(Sampler):
    """A sampler whose author forgot to return the source."""

    def open(self, problem, policy) -> Any:
        pass


def test_what_is_opened_must_be_a_source():
    with pytest.raises(
        ValueError, match="open of Forgetful must return a Source of batches, got None"
    ):
        train(Forgetful())
