"""STORM, PAGE, N-VR-PG, N-HARPG and PlugIn against NumPy pseudocode and enumeration."""

import inspect
import shutil
from dataclasses import fields, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import roots_legendre

import enumeration as enum
import occupax as ox
from occupax.algorithms import planning
from occupax.algorithms.planning import Model, posterior
from occupax.batches import SampledBatch
from occupax.training.schedule import Schedule
from pseudocode import (
    KEY,
    Transcript,
    draw,
    exact,
    first_policy,
    grad_coverage,
    over_all_batches_of_one,
    problem,
)

pytestmark = pytest.mark.usefixtures("x64")

PLAIN = {"snapshot_batch": 8, "batch": 4, "baseline": "none"}
FREE = PLAIN | {"weight_guard": None}
COIN = 1
"""With this seed the coin falls large, small, small, large."""
TASK, CARTPOLE = problem(termination="episodic"), ox.Problem(ox.make("CartPole-v1"))


def trained(algorithm, iterations=3):
    """Policy, policy that acted, batch and state of every iteration."""
    state, rows = algorithm.init(TASK, first_policy()), []
    for i in range(iterations):
        phase = algorithm.phases[int(algorithm.phase(i))]
        acting = phase.behaviour(state, jax.random.fold_in(KEY, i))
        batch = draw(TASK, acting, phase.trajectories, i)
        before, state = np.asarray(state.policy.table), phase.update(state, batch, KEY)
        rows.append((before, np.asarray(acting.table), Transcript(batch), state))
    return rows


def normalised(g, length):
    return length * g / np.linalg.norm(g)


def product(data, acting, vector, r):
    """Return directional derivatives of both estimates, from a softmax's scores and Hessians."""
    probs, u, g, n = enum.softmax(acting), np.zeros(3), np.zeros((3, 2)), len(data.batch.actions)
    for i in range(n):
        score, bend = np.zeros((3, 2)), np.zeros((3, 2))
        for t in np.flatnonzero(data.batch.live[i]):
            s, a = data.batch.observations[i, t], data.batch.actions[i, t]
            score[s] += np.eye(2)[a] - probs[s]
            bend[s] -= probs[s] * (vector[s] - probs[s] @ vector[s])
            drift = np.sum(score * vector)
            u[s] += enum.DISCOUNT**t * drift / n
            g += enum.DISCOUNT**t * r[s] * (drift * score + bend) / n
    return u, g


def storm(rows, shares, lengths):
    """Return the last estimate and policy of STORM with the given weights and step lengths."""
    (then, _, data, _), *others = rows
    u = data.u(then)
    r = old = grad_coverage(u)
    d = data.g(then, r)
    for (now, _, data, _), h in zip(others, shares, strict=True):
        u, before = data.u(now) + (1 - h) * (u - data.u(then)), r
        d = data.g(now, r) + (1 - h) * (d - data.g(then, old))
        r, old, then = grad_coverage(u), before, now
    return u, d, then + (0.3 * d if lengths is None else normalised(d, lengths[-1]))


def harpg(rows):
    """Return the last estimate and policy of N-HARPG.

    After the first batch, batches of an intermediate and of the newer policy alternate.
    """
    (then, _, data, _), *others = rows
    u = data.u(then)
    r = old = grad_coverage(u)
    d, t = data.g(then, r), 0
    for (now, acting, between, _), (_, _, data, _) in zip(others[::2], others[1::2], strict=True):
        t += 1
        h = (2 / (t + 1)) ** 0.5
        du, v = product(between, acting, now - then, old)
        d = (1 - h) * (d + v + data.g(now, r - old)) + h * data.g(now, r)
        u = (1 - h) * (u + du) + h * data.u(now)
        r, old, then = grad_coverage(u), r, now
    return u, d, then + normalised(d, 0.3 * (2 / (t + 1)) ** (1 / 3))


ALGORITHMS = {
    "storm": ox.STORM(**FREE, fresh=0.3, step_size=0.3, rule="gradient"),
    "page": ox.PAGE(**FREE, coin=COIN, step_size=0.3, rule="gradient"),
    "nvrpg": ox.NVRPG(**FREE, decay=0.5, step_decay=0.25, step_size=0.3),
    "nharpg": ox.NHARPG(**PLAIN),
}


def assert_as_by_hand(name, algorithm):
    rows = trained(algorithm, 5 if name == "nharpg" else 4)
    shares = [(2 / (t + 1)) for t in (1, 2, 3)]
    lengths = [0.3 * share**0.25 for share in shares]
    if name == "nharpg":
        expected = harpg(rows)
    elif name == "nvrpg":
        expected = storm(rows, [share**0.5 for share in shares], lengths)
    elif name == "storm":
        expected = storm(rows, [0.3] * 3, None)
    else:
        assert [len(data.batch.actions) for _, _, data, _ in rows] == [
            8,
            4,
            4,
            8,
        ]  # as this coin falls
        (now, _, data, state) = rows.pop()
        d = data.g(now, grad_coverage(data.u(now)))
        np.testing.assert_allclose(state.policy.table, now + 0.3 * d, atol=1e-12)
        expected = storm(rows, [0.0] * 2, None)
    state = rows[-1][-1]
    for found, by_hand in zip(
        (state.occupancy, state.gradient.table, state.policy.table), expected, strict=True
    ):
        np.testing.assert_allclose(found, by_hand, atol=1e-11)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_is_its_pseudocode(name):
    assert_as_by_hand(name, ALGORITHMS[name])


class OneReward(ox.STORM):
    """The newer quasi-reward for both policies."""

    def _refine(self, state, batch, key):
        return super()._refine(replace(state, previous_quasi_reward=state.quasi_reward), batch, key)


class OtherShare(ox.STORM):
    """The weights of the fresh and of the recursive estimate are swapped."""

    def _refine(self, state, batch, key):
        return ox.STORM._refine(replace(self, fresh=1 - self.fresh), state, batch, key)


class NextToss(ox.PAGE):
    """The toss of the next iteration."""

    def phases_of(self, first, count):
        return super().phases_of(first + 1, count)


class Forgetful(ox.PAGE):
    """Half of the estimate is lost at each recursion."""

    def _refine(self, state, batch, key):
        half = replace(
            state,
            occupancy=0.5 * state.occupancy,
            gradient=ox.algorithms.scale(0.5, state.gradient),
        )
        return super()._refine(half, batch, key)


class Late(ox.NVRPG):
    """The number of steps is one too high."""

    def _refine(self, state, batch, key):
        late = replace(state.memory, steps=state.memory.steps + 1)
        return super()._refine(replace(state, memory=late), batch, key)


class Steady(ox.NVRPG):
    """All steps have the same length."""

    def _refine(self, state, batch, key):
        return ox.NVRPG._refine(replace(self, step_decay=1e-12), state, batch, key)


class Backwards(ox.NHARPG):
    """The product is along the step back."""

    def _transport(self, state, batch, key):
        turned = super()._transport(
            replace(state, policy=state.previous, previous=state.policy), batch, key
        )
        return replace(turned, policy=state.policy, previous=state.previous)


class NewReward(ox.NHARPG):
    """Wrong N-HARPG: the product uses the newer quasi-reward."""

    def _transport(self, state, batch, key):
        new = super()._transport(
            replace(state, previous_quasi_reward=state.quasi_reward), batch, key
        )
        return replace(new, previous_quasi_reward=state.previous_quasi_reward)


@pytest.mark.parametrize(
    "kind", [OneReward, OtherShare, NextToss, Forgetful, Late, Steady, Backwards, NewReward]
)
def test_a_wrong_algorithm_is_noticed(kind):
    name = kind.__mro__[1].__name__.lower()
    settings = {
        field.name: getattr(ALGORITHMS[name], field.name) for field in fields(ALGORITHMS[name])
    }
    with pytest.raises(AssertionError):
        assert_as_by_hand(name, kind(**settings))


# Expectations by enumeration


def between(one, other, seed=3):
    """Two policies, their exact occupancies and Jacobians, and two quasi-rewards."""
    r, old = np.random.default_rng(seed).normal(size=(2, 3))
    return (
        r,
        old,
        *exact(np.asarray(one.table), "episodic"),
        *exact(np.asarray(other.table), "episodic"),
    )


@pytest.mark.parametrize("name", ALGORITHMS)
def test_from_exact_estimates_the_next_ones_are_exact_in_expectation(name):
    before, now = first_policy(1), first_policy(2)
    r, old, u, slopes, u_now, slopes_now = between(before, now)
    algorithm = ALGORITHMS[name]
    state = eqx.tree_at(
        lambda it: (
            it.policy,
            it.previous,
            it.occupancy,
            it.gradient.table,
            it.quasi_reward,
            it.previous_quasi_reward,
        ),
        algorithm.init(TASK, now),
        (
            now,
            before,
            jnp.asarray(u),
            jnp.asarray(np.tensordot(old, slopes, 1)),
            jnp.asarray(r),
            jnp.asarray(old),
        ),
    )
    state = eqx.tree_at(lambda it: it.memory.steps, state, jnp.asarray(3))
    if (
        name == "nharpg"
    ):  # first along the way, over points between the policies as a rule of quadrature has them
        carry, places = algorithm.phases[1].update, zip(*roots_legendre(6), strict=True)
        change = 0.0
        for place, weight in places:
            q = (place + 1) / 2
            acting = ox.policies.Tabular(q * now.table + (1 - q) * before.table)
            mean = mean_carried(carry, state, acting)
            change = change + weight / 2 * np.asarray(mean)
        carried = np.tensordot(old, slopes_now, 1)
        np.testing.assert_allclose(change, carried, atol=1e-6)
        state = eqx.tree_at(
            lambda it: (it.occupancy, it.gradient.table),
            state,
            (jnp.asarray(u_now), jnp.asarray(carried)),
        )
    refine = algorithm.phases[-1].update
    mean = over_all_batches_of_one(
        lambda state, batch: refine(state, batch, KEY), state, "episodic"
    )
    np.testing.assert_allclose(mean.occupancy, u_now, atol=1e-9)
    np.testing.assert_allclose(mean.gradient.table, np.tensordot(r, slopes_now, 1), atol=1e-9)


@eqx.filter_jit
def _carried(carry, state, acting, every):
    def alone(one):
        batch = SampledBatch(TASK, jax.tree.map(lambda leaf: leaf[None], one), acting)
        return carry(state, batch, KEY).gradient.table

    return jax.vmap(alone)(every)


def mean_carried(carry, state, acting):
    every, chances = enum.trajectories(enum.tiny(11, (2,)), np.asarray(acting.table))
    return np.tensordot(chances, _carried(carry, state, acting, every), 1)


# A model from counts


def modelled(counts, rewards, ends, initial, prior):
    """The posterior mean, entry by entry."""
    transition, reward = np.zeros((3, 2, 3)), np.zeros((3, 2))
    means = [
        rewards[s, a] / counts[s, a].sum() for s in range(3) for a in range(2) if counts[s, a].sum()
    ]
    hoped = max(means) + ((max(means) - min(means)) or 1.0)
    for s in range(3):
        for a in range(2):
            n = counts[s, a].sum()
            reward[s, a] = (rewards[s, a] + prior * hoped) / (n + prior)
            transition[s, a] = [(counts[s, a, x] + prior / 3) / (n + prior) for x in range(3)]
    return enum.Tiny(transition, reward, initial / initial.sum(), ends > 0)


def worth(model, logits):
    return np.log(enum.occupancy(model, logits.reshape(3, 2), "episodic").sum(1) + 0.1).sum()


def assert_plans(algorithm):
    state, counts, rewards, ends, initial = algorithm.init(TASK, first_policy()), 0.0, 0.0, 0.0, 0.0
    for i in range(2):
        batch = draw(TASK, state.policy, 8, i)
        fresh = jax.tree.map(np.asarray, batch.transitions())
        counts, rewards = counts + fresh.counts, rewards + fresh.rewards
        ends, initial = ends + fresh.ends, initial + fresh.initial
        state = algorithm.phases[0].update(state, batch, KEY)
    model = modelled(counts, rewards, ends, initial, 0.5)
    found: Model = algorithm.model(TASK, state)
    for name in ("transition", "reward", "initial", "terminal"):
        np.testing.assert_allclose(
            getattr(found, name), getattr(model, name), atol=1e-12, err_msg=name
        )
    np.testing.assert_array_equal(found.counts, counts)
    logits = np.asarray(state.policy.table)
    np.testing.assert_allclose(
        state.occupancy, enum.occupancy(model, logits, "episodic").sum(1), atol=1e-9
    )
    starts = np.random.default_rng(0).normal(size=(4, 6))
    best = max(-minimize(lambda x: -worth(model, x), start, method="BFGS").fun for start in starts)
    assert best - 1e-3 < worth(model, logits) < best + 1e-3
    assert best - worth(model, np.zeros((3, 2))) > 0.01


PLUG_IN = {"batch": 8, "prior": 0.5, "plan_steps": 40, "explore": 0.0}


def test_runs_with_many_states_plan_one_after_the_other_and_as_each_does_alone(monkeypatch):
    state, plan = trained(ox.PlugIn(batch=4), 1)[-1][-1], inspect.unwrap(planning.plan)
    tables = jnp.asarray(np.random.default_rng(0).normal(size=(5, *state.policy.table.shape)))
    model, matrices_of_all = posterior(TASK, state.transitions, 0.1), "f64[5,3,3]"

    def planned(tables):
        """Return the updated policy of each table, and the program."""
        traced = jax.jit(jax.vmap(lambda table: plan(TASK, model, table, 5))).trace(tables)
        return traced.lower().compile()(tables), str(traced.jaxpr)

    together, program = planned(tables)
    assert matrices_of_all in program
    monkeypatch.setattr(planning, "MIN_SEQUENTIAL_STATES", 1)
    one_by_one, program = planned(tables)
    assert matrices_of_all not in program
    for i, table in enumerate(tables):
        alone, _ = planned(table[None])
        for several, vmapped, single in zip(one_by_one, together, alone, strict=True):
            np.testing.assert_array_equal(several[i], single[0])
            np.testing.assert_allclose(several[i], vmapped[i], rtol=1e-9, atol=1e-9)


def test_plug_in_plans_in_the_posterior_mean_of_all_that_was_seen():
    assert_plans(ox.PlugIn(**PLUG_IN))


class Amnesiac(ox.PlugIn):
    """Only the last batch counts."""

    def _count(self, state, batch, key):
        return super()._count(
            replace(state, transitions=jax.tree.map(jnp.zeros_like, state.transitions)), batch, key
        )


class Endless(ox.PlugIn):
    """No state is known to end an episode."""

    def model(self, problem, state):
        return posterior(
            problem,
            replace(state.transitions, ends=jnp.zeros_like(state.transitions.ends)),
            self.prior,
        )


@pytest.mark.parametrize("kind", [Amnesiac, Endless])
def test_a_wrong_plug_in_is_noticed(kind):
    with pytest.raises(AssertionError):
        assert_plans(kind(**PLUG_IN))


def test_plug_in_goes_on_exploring_less_and_less():
    planned, explored = (
        ox.PlugIn(**PLUG_IN | {"explore": share, "prior": 0.1}) for share in (0.0, 0.5)
    )
    states = [it.init(TASK, first_policy()) for it in (planned, explored)]
    batch = draw(TASK, first_policy(), 8, 0)
    for times in (1, 2):
        states = [
            it.phases[0].update(state, batch, KEY)
            for it, state in zip((planned, explored), states, strict=True)
        ]
        probs = [enum.softmax(np.asarray(state.policy.table)) for state in states]
        share = 0.5 / times
        expected = (1 - share) * probs[0] + share / 2
        np.testing.assert_allclose(
            probs[1][:2], expected[:2], atol=1e-3
        )  # nobody acts in the last state


@pytest.mark.parametrize("termination", ["episodic", "absorbing"])
def test_a_model_is_worth_what_the_exact_solver_says(termination):
    task, policy = problem(termination=termination), first_policy()
    algorithm = ox.PlugIn(**PLUG_IN)
    state = algorithm.phases[0].update(algorithm.init(task, policy), draw(task, policy, 8, 0), KEY)
    model = algorithm.model(task, state)
    transition, reward, initial = (
        np.asarray(it, float) for it in (model.transition, model.reward, model.initial)
    )
    env = ox.TabularMDP(transition, reward, initial, model.terminal)
    same = ox.Problem(env, task.utility, task.discount, task.horizon, termination)
    probs = enum.softmax(np.asarray(state.policy.table))
    np.testing.assert_allclose(
        ox.exact.value(same, probs), task.estimated_utility(state.occupancy), rtol=1e-6
    )


def test_plans_are_made_whenever_there_is_a_tenth_more():
    phases = Schedule(ox.PlugIn(batch=4)).phases(0, 1000)
    planned = np.flatnonzero(phases == 0)
    assert (phases[:10] == 0).all()
    assert np.diff(planned)[planned[:-1] > 100].max() <= 100
    assert len(planned) < 70


# Training


def run(algorithm, episodes=40, sampler="kernel", **options):
    return ox.train(TASK, algorithm, episodes, 2, sampler=sampler, progress=False, **options)


@pytest.mark.parametrize("algorithm", [ox.NHARPG(8, 8), ox.PlugIn(batch=8)])
def test_training_outside_of_the_program_is_that_inside(algorithm):
    inside, outside = (run(algorithm, sampler=it) for it in ("kernel", ox.samplers.Host(shards=3)))
    assert inside.status == outside.status == ("finished",) * 2
    for metric, values in inside.metrics.items():
        np.testing.assert_allclose(
            values, outside.metrics[metric], rtol=1e-5, atol=1e-8, err_msg=metric
        )
    if isinstance(algorithm, ox.NHARPG):
        # half of the iterations are of a point between two policies, and take no step
        assert (inside.metrics["step_length"][:, 1::2] == 0).all()
        assert (inside.metrics["step_length"][:, ::2] > 0).all()
        with pytest.raises(
            ValueError, match="NHARPG learns no model of the environment; PlugIn does"
        ):
            inside.model()


def test_plug_in_is_resumed_with_its_counts_and_loaded_with_its_model(tmp_path):
    run(ox.PlugIn(batch=8), out=tmp_path)
    longer, at_once = (
        run(ox.PlugIn(batch=8), 64, out=tmp_path, resume=True),
        run(ox.PlugIn(batch=8), 64),
    )
    model, expected = ox.load_result(tmp_path).model(1), at_once.model(1)
    assert model.counts.sum() == longer.steps[1, -1] == at_once.steps[1, -1]
    np.testing.assert_array_equal(model.transition, expected.transition)
    np.testing.assert_array_equal(longer.policies[1].table, at_once.policies[1].table)
    first, second = (tmp_path / f"models/seed-{seed}.safetensors" for seed in (0, 1))
    shutil.copy(second, first)
    with pytest.raises(
        ValueError,
        match=r"models/seed-0\.safetensors was changed after it was written, or is that of",
    ):
        ox.load_result(tmp_path)
    shutil.move(tmp_path / "models", tmp_path / "elsewhere")
    (tmp_path / "models").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="models must be a directory, but is a symbolic link"):
        run(ox.PlugIn(batch=8), 72, out=tmp_path, resume=True)


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ox.STORM(fresh=0.0), "fresh must be a finite number above 0, got 0.0"),
        (lambda: ox.STORM(fresh=1.5), r"fresh must lie in \(0, 1\], got 1.5"),
        (lambda: ox.PAGE(coin=-1), "coin must be an integer of at least 0, got -1"),
        (lambda: ox.NVRPG(decay=2.0), r"decay must lie in \(0, 1\], got 2.0"),
        (lambda: ox.NHARPG(step_decay=-1), "step_decay must be a finite number above 0, got -1"),
        (lambda: ox.PlugIn(prior=0.0), "prior must be a finite number above 0, got 0.0"),
        (
            lambda: ox.PlugIn(explore=1.5),
            r"explore must be in \[0, 1\], got 1.5",
        ),
        (lambda: ox.PlugIn(growth=1.0), "growth must be a finite number above 1, got 1.0"),
        (lambda: ox.PlugIn(plan_steps=0), "plan_steps must be an integer of at least 1, got 0"),
        (
            lambda: ox.PlugIn().init(CARTPOLE, ox.policies.linear()(CARTPOLE.env, KEY)),
            "policy must be a table for PlugIn, .*got Softmax in CartPole",
        ),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make()
