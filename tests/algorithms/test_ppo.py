"""PPO for utilities: its parts by enumeration of a tiny process, wrong versions, and training."""

from dataclasses import replace
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import enumeration as enum
import occupax as ox
from occupax.algorithms import advantages as parts
from occupax.algorithms import minibatches
from occupax.batches.queries import AllSteps, without_padding
from simulators import Diary

H = enum.HORIZON
GAMMA = enum.DISCOUNT
LOGITS = np.random.default_rng(0).normal(size=(3, 2))
PROCESS = enum.tiny(11, (2,))


def reward_of_pairs():
    """The quasi-reward r [S, A] of a concave utility at the occupancy of the policy."""
    return 1 / (enum.occupancy(PROCESS, LOGITS, "episodic") + 0.1)


def truth(quasi_reward):
    """The gradient of <r, u> [S, A], of discounted occupancies."""
    slopes = enum.jacobian(PROCESS, LOGITS, "episodic")
    return np.tensordot(quasi_reward, slopes, 2)


def exact_values(quasi_reward):
    """V_t(s), [H + 1, S], for an episode that ends in a terminal state or after H steps."""
    probs = enum.softmax(LOGITS)
    values = np.zeros((H + 1, 3))
    for t in range(H - 1, -1, -1):
        following = PROCESS.transition @ values[t + 1]
        values[t] = (probs * (quasi_reward + GAMMA * following)).sum(1)
        values[t][PROCESS.terminal] = 0
    return values


@cache
def enumerated():
    batch, chances = enum.trajectories(PROCESS, LOGITS)
    return jax.tree.map(np.asarray, batch), chances


def cut_at(step):
    """All trajectories, cut by the sampler after some steps, with the states that follow."""
    batch, chances = enumerated()
    if step == H:
        return batch, chances, batch.terminated
    lengths = batch.live.sum(1)
    live = batch.live & (np.arange(H) < step)
    final = np.where(lengths > step, batch.observations[:, step], batch.final_observations)
    terminated = batch.terminated & (lengths <= step)
    return replace(batch, live=live, final_observations=final), chances, terminated


def scores(batch):
    """Gradients of the log-probabilities of all steps, [B, H, S, A]; 0 after the end."""
    probs = enum.softmax(LOGITS)
    chosen = np.eye(2)[batch.actions] - probs[batch.observations]
    rows = np.eye(3)[batch.observations][..., None] * chosen[..., None, :]
    return rows * batch.live[..., None, None]


def advantages_of(quasi_reward, values, trace, step=H, time_limit_ends=False):
    """Advantages of a critic [H + 1, S] along all trajectories, by the functions of the package."""
    batch, _, terminated = cut_at(step)
    states = np.concatenate([batch.observations, batch.final_observations[:, None]], 1)
    times = np.arange(H + 1)
    lengths = batch.live.sum(1)
    # a trajectory has its final state from its last step on
    states = np.where(times >= lengths[:, None], batch.final_observations[:, None], states)
    estimates = values[np.minimum(times, lengths[:, None]), states]
    rewards = quasi_reward[batch.observations, batch.actions] * batch.live
    if time_limit_ends:  # the mutant
        terminated = np.ones_like(terminated)
    ends, cuts = parts.ends_and_cuts(jnp.asarray(batch.live), jnp.asarray(terminated), True)
    advantages = jax.vmap(parts.generalised_advantages, (0, 0, 0, 0, None, None))(
        jnp.asarray(rewards)[..., None],
        jnp.asarray(estimates)[..., None],
        ends,
        cuts,
        GAMMA,
        trace,
    )
    return np.asarray(advantages[..., 0], float)


def direction(advantages, step=H, kappa=GAMMA):
    """E sum_t kappa^t score_t A_t."""
    batch, chances, _ = cut_at(step)
    weights = chances[:, None] * kappa ** np.arange(H)
    return np.einsum("bt,bt,btsa->sa", weights, advantages, scores(batch))


def assert_close(one, other):
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("trace", [0.0, 0.5, 1.0])
def test_an_exact_critic_gives_the_gradient_for_every_trace(trace):
    r = reward_of_pairs()
    assert_close(direction(advantages_of(r, exact_values(r), trace)), truth(r))


@pytest.mark.parametrize("blind", [True, False])
def test_any_critic_gives_the_gradient_with_a_trace_of_one(blind):
    r = reward_of_pairs()
    values = any_critic()
    if blind:
        values = np.broadcast_to(values[:1], values.shape)
    assert_close(direction(advantages_of(r, values, 1.0)), truth(r))


def any_critic():
    return np.random.default_rng(1).normal(size=(H + 1, 3))


def test_the_bias_of_a_wrong_critic_is_that_of_the_formula():
    r = reward_of_pairs()
    trace = 0.5
    values = any_critic()
    errors = values - exact_values(r)
    errors[H] = 0
    errors[:, PROCESS.terminal] = 0
    batch, _ = enumerated()
    states = np.concatenate([batch.observations, batch.final_observations[:, None]], 1)
    lengths = batch.live.sum(1)
    times = np.arange(H + 1)
    along = np.where(times < lengths[:, None], errors[times, states], 0.0)
    sums = np.zeros(batch.live.shape)
    for t in range(H):
        for later in range(H - t):
            sums[:, t] += (GAMMA * trace) ** later * along[:, t + later + 1]
    bias = direction(GAMMA * (1 - trace) * sums)
    assert np.abs(bias).max() > 1e-2
    assert_close(direction(advantages_of(r, values, trace)), truth(r) + bias)


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("trace", [0.5, 1.0])
def test_a_cut_with_the_exact_value_changes_no_expectation_but_an_end_does(step, trace):
    r = reward_of_pairs()
    values = exact_values(r)
    whole = advantages_of(r, values, trace)
    expected = direction(np.where(np.arange(H) < step, whole, 0.0))
    assert_close(direction(advantages_of(r, values, trace, step), step), expected)
    mutant = direction(advantages_of(r, values, trace, step, time_limit_ends=True), step)
    with pytest.raises(AssertionError):
        assert_close(mutant, expected)


def test_steps_that_all_count_alike_ascend_in_the_currency_of_their_own_time():
    r = reward_of_pairs()
    alike = direction(advantages_of(r, exact_values(r), 0.5), kappa=1.0)
    batch, chances = enumerated()
    rewards = r[batch.observations, batch.actions] * batch.live
    sums = np.zeros(rewards.shape)  # of what a reward without discount adds
    for t in range(H):
        for h in range(t, H):
            sums[:, t] += rewards[:, h] - (1 - GAMMA ** (h - t)) * rewards[:, h]
    other = np.einsum("b,bt,btsa->sa", chances, sums, scores(batch))
    assert_close(alike, other)
    assert np.abs(alike - truth(r)).max() > 1e-2
    # with parameters for each time, a row is that of the gradient divided by gamma^t
    advantages = advantages_of(r, exact_values(r), 1.0)
    for t in range(H):
        only = np.where(np.arange(H) == t, advantages, 0.0)
        assert_close(direction(only, kappa=1.0) * GAMMA**t, direction(only))


def steps_of(problem, chosen=slice(None)):
    batch, chances = enumerated()
    sampled = jax.tree.map(lambda leaf: jnp.asarray(leaf)[chosen], batch)
    policy = ox.policies.Tabular(jnp.asarray(LOGITS))
    return ox.SampledBatch(problem, sampled, policy).steps(), chances


def test_advantages_of_a_vector_are_those_of_its_quasi_reward():
    problem = PROCESS.problem("episodic", utility=ox.utilities.LogCoverage(0.1))
    steps, _ = steps_of(problem)
    occupancy = jnp.array([0.3, 0.5, 0.1])
    features, coefficients = parts.critic_features(problem, steps, occupancy, GAMMA, False)
    assert features.shape[-1] == problem.size == 3
    values = jax.random.normal(jax.random.key(0), (*features.shape[:2], 3))
    values = jnp.concatenate([values, values[:, :1]], 1)
    ends, cuts = parts.ends_and_cuts(steps.live, steps.terminated, True)
    function = jax.vmap(parts.generalised_advantages, (0, 0, 0, 0, None, None))
    vector = function(features, values, ends, cuts, GAMMA, 0.7) @ coefficients
    scalar = function(
        (features @ coefficients)[..., None],
        (values @ coefficients)[..., None],
        ends,
        cuts,
        GAMMA,
        0.7,
    )
    np.testing.assert_allclose(vector, scalar[..., 0], rtol=1e-9, atol=1e-9)
    # without a trace, they add up to the occupancy, whatever the critic says
    errors = function(features, values, ends, cuts, GAMMA, 0.0)
    discounts = GAMMA ** jnp.arange(H)
    total = values[:, 0] + jnp.sum(discounts[:, None] * errors, 1, where=steps.live[..., None])
    began = steps.live[:, 0]
    own = jnp.sum(discounts[:, None] * features, 1)
    np.testing.assert_allclose(total[began], own[began], rtol=1e-9, atol=1e-9)


def first(state, action):
    del action
    return 1.0 * state


def second(state, action):
    del state
    return 2.0 * action


@pytest.mark.parametrize("size", [1, 100])
def test_terms_of_the_lagrangian_add_up_to_its_gradient(size, monkeypatch):
    monkeypatch.setattr(parts, "MAX_VECTOR", size)
    problem = PROCESS.problem(
        "episodic",
        utility=ox.utilities.LogCoverage(0.1),
        constraints=[
            ox.Constraint(first, at_most=1.0),
            ox.Constraint(second, at_least=0.5),
        ],
    )
    multipliers = jnp.array([0.7, 0.2])
    occupancy = jnp.array([0.3, 0.5, 0.1, 0.2, 0.9])
    steps, _ = steps_of(problem)
    lagrangian = problem.lagrangian(multipliers)
    features, coefficients = parts.critic_features(lagrangian, steps, occupancy, GAMMA, False)
    assert features.shape[-1] == (3 if size == 1 else 5)
    batch, _ = enumerated()
    states, actions = batch.observations, batch.actions
    expected = (1 / (occupancy[:3] + 0.1))[states] - 0.7 * states + 0.2 * 2.0 * actions
    np.testing.assert_allclose(features @ coefficients, expected * batch.live, rtol=1e-5)


def test_an_absorbing_state_pays_after_the_end():
    problem = PROCESS.problem("absorbing", utility=ox.utilities.LogCoverage(0.1))
    steps, chances = steps_of(problem)
    occupancy = jnp.asarray(enum.occupancy(PROCESS, LOGITS, "absorbing").sum(1))
    features, _ = parts.critic_features(problem, steps, occupancy, GAMMA, False)
    began = np.asarray(steps.live[:, 0])
    discounts = GAMMA ** jnp.arange(H)
    total = jnp.asarray(chances) @ jnp.sum(discounts[:, None] * features, 1)
    unbegun = chances[~began].sum() * (1 - GAMMA**H) / (1 - GAMMA) * np.eye(3)[2]
    assert_close(total + unbegun, occupancy)


def samples_of(advantages, weights):
    batch, _ = enumerated()
    shape = batch.live.size
    return minibatches.Samples(
        observations=jnp.asarray(batch.observations).ravel(),
        remaining=jnp.zeros(shape),
        actions=jnp.asarray(batch.actions).ravel(),
        log_probs=jnp.asarray(batch.log_probs).ravel(),
        advantages=jnp.asarray(advantages).ravel(),
        weights=jnp.asarray(weights).ravel(),
        targets=jnp.zeros((shape, 1)),
    )


def test_the_first_gradient_of_the_surrogate_is_the_estimate_by_the_number_of_steps():
    r = reward_of_pairs()
    batch, chances = enumerated()
    advantages = advantages_of(r, exact_values(r), 0.5)
    weights = chances[:, None] * GAMMA ** np.arange(H) * batch.live
    policy = ox.policies.Tabular(jnp.asarray(LOGITS))
    samples = samples_of(advantages, weights)
    used = jnp.asarray(batch.live.ravel())
    loss = minibatches.surrogate_loss
    gradient, sums = eqx.filter_grad(loss, has_aux=True)(policy, samples, used, 0.2)
    assert_close(-gradient.table * batch.live.sum(), truth(r))
    np.testing.assert_allclose(sums, 0.0, atol=1e-9)


def test_the_surrogate_pays_for_no_more_than_the_clipped_ratio():
    policy = ox.policies.Tabular(jnp.asarray(LOGITS))
    batch, _ = enumerated()
    first = np.flatnonzero(batch.live.ravel())[:2]
    samples = samples_of(np.ones(batch.live.shape), np.ones(batch.live.shape))
    samples = jax.tree.map(lambda leaf: leaf[first], samples)
    shifted = replace(samples, log_probs=samples.log_probs - jnp.log(jnp.array([2.0, 0.5])))
    loss, sums = minibatches.surrogate_loss(policy, shifted, jnp.ones(2, bool), 0.2)
    np.testing.assert_allclose(loss, -(1.2 + 0.5) / 2, rtol=1e-6)
    divergence = (2 - 1 - np.log(2)) + (0.5 - 1 - np.log(0.5))
    np.testing.assert_allclose(sums, [divergence, 2], rtol=1e-6)
    flipped = replace(shifted, advantages=-shifted.advantages)
    loss, _ = minibatches.surrogate_loss(policy, flipped, jnp.ones(2, bool), 0.2)
    np.testing.assert_allclose(loss, (2.0 + 0.8) / 2, rtol=1e-6)


def assert_keeps_weights(combine):
    """Assert that terms are weighted by their coefficients, whatever their units."""
    random = np.random.default_rng(2)
    advantages = jnp.asarray(random.normal(size=(6, 4, 2)) * [1.0, 50.0])
    weights = jnp.asarray(random.uniform(size=(6, 4)) * (random.uniform(size=(6, 4)) < 0.8))
    coefficients = jnp.array([1.0, -0.3])
    combined = combine(advantages, coefficients, weights)
    plain = np.asarray(advantages[..., 0] - 0.3 * advantages[..., 1])
    total = weights.sum()
    mean = (weights * plain).sum() / total
    deviation = np.sqrt((weights * (plain - mean) ** 2).sum() / total)
    np.testing.assert_allclose(combined, (plain - mean) / deviation, rtol=1e-6)


def test_advantages_are_added_before_they_are_normalised():
    def one_by_one(advantages, coefficients, weights):
        columns = [
            parts.combined_advantages(advantages[..., i : i + 1], jnp.ones(1), weights)
            for i in range(2)
        ]
        return jnp.stack(columns, -1) @ coefficients

    assert_keeps_weights(parts.combined_advantages)
    with pytest.raises(AssertionError):
        assert_keeps_weights(one_by_one)


COVERAGE = PROCESS.problem("episodic", utility=ox.utilities.LogCoverage(0.1))
START = ox.policies.tabular(0.5)


def state_after(algorithm, problem=COVERAGE, iterations=2, change=lambda batch: batch):
    """The state of an algorithm after some iterations, and the occupancies of its batches."""
    policy = START(problem.env, jax.random.key(1))
    algorithm = algorithm.resolve(problem, policy)
    state = algorithm.init(problem, policy)
    occupancies = []
    for i in range(iterations):
        key = jax.random.key(i)
        n = algorithm.phases[0].trajectories
        trajectories = ox.sample(problem, state.policy, n, key)
        batch = change(ox.SampledBatch(problem, trajectories, state.policy))
        occupancies.append(np.asarray(batch.occupancy()))
        state = algorithm.phases[0].update(state, batch, key)
    return state, occupancies


class Undiscounted(ox.PPO):
    """The mutant without gamma^t in the occupancy."""

    def _with_occupancy(self, state, fresh_occupancy, episodes):
        wrong = fresh_occupancy / (1 - GAMMA)
        return super()._with_occupancy(state, wrong, episodes)


def test_the_occupancy_of_the_quasi_reward_is_a_discounted_ratio_of_sums():
    def assert_ratio(algorithm):
        state, (first, second) = state_after(algorithm)
        sums = 0.7 * 0.3 * 8 * first + 0.3 * 8 * second
        number = 0.7 * 0.3 * 8 + 0.3 * 8
        np.testing.assert_allclose(state.occupancy, sums / number, rtol=1e-6)

    assert_ratio(ox.PPO(8, mixing=0.3))
    with pytest.raises(AssertionError):
        assert_ratio(Undiscounted(8, mixing=0.3))


def leaves_of(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree) if eqx.is_array(leaf)]


def assert_same(one, other):
    for leaf, expected in zip(leaves_of(one), leaves_of(other), strict=True):
        assert leaf.tobytes() == expected.tobytes()


def with_garbage(batch):
    """The batch with other numbers in the steps after the end, which stand for nothing."""
    live = batch.trajectories.live
    trajectories = replace(
        batch.trajectories,
        actions=jnp.where(live, batch.trajectories.actions, 1),
        log_probs=jnp.where(live, batch.trajectories.log_probs, 3.0),
        rewards=jnp.where(live, batch.trajectories.rewards, 1e6),
        observations=jnp.where(
            live, batch.trajectories.observations, batch.trajectories.final_observations[:, None]
        ),
    )
    return replace(batch, trajectories=trajectories)


@pytest.mark.parametrize("ends", [True, False])
def test_steps_after_the_end_have_no_weight(ends):
    problem = PROCESS.problem("episodic")
    algorithm = ox.PPO(8, minibatch=5, epochs=3, horizon_ends=ends)
    plain, _ = state_after(algorithm, problem)
    changed, _ = state_after(algorithm, problem, change=with_garbage)
    for leaf, expected in zip(leaves_of(changed.policy), leaves_of(plain.policy), strict=True):
        np.testing.assert_allclose(leaf, expected, rtol=1e-6)
    assert_same(changed.critic, plain.critic)


def test_a_batch_without_steps_changes_no_network():
    def empty(batch):
        live = jnp.zeros_like(batch.trajectories.live)
        return replace(batch, trajectories=replace(batch.trajectories, live=live))

    state, _ = state_after(ox.PPO(8), change=empty)
    np.testing.assert_array_equal(state.policy.table, START(COVERAGE.env, jax.random.key(1)).table)
    assert state.diagnostics[3] == 0
    assert all(np.isfinite(leaf).all() for leaf in leaves_of(state))


def test_the_epochs_end_with_the_divergence_and_the_step_size_with_the_budget():
    state, _ = state_after(ox.PPO(8, minibatch=4, step_size=0.5, max_kl=1e-3), iterations=1)
    assert state.diagnostics[3] == 1  # the epoch that exceeds it is the last
    assert state.diagnostics[0] > 1e-3
    state, _ = state_after(ox.PPO(8, epochs=3, max_kl=100.0), iterations=1)
    assert state.diagnostics[3] == 3
    half, _ = state_after(ox.PPO(8, decay_episodes=8), iterations=1)
    rest, _ = state_after(ox.PPO(8, decay_episodes=8), iterations=2)
    np.testing.assert_array_equal(rest.policy.table, half.policy.table)
    assert np.abs(np.asarray(half.gradient.table)).max() > 0
    assert rest.memory.length == 0
    bounded, _ = state_after(ox.PPO(8, radius=1e-3), iterations=1)
    np.testing.assert_allclose(bounded.memory.length, 1e-3, rtol=1e-5)
    assert bounded.memory.clipped


def test_a_critic_keeps_its_estimates_when_its_scale_changes():
    state, _ = state_after(ox.PPO(8), iterations=3)
    factors = jnp.array([2.0, 0.5, 3.0])
    scaled = state.critic.scaled(1 / factors)
    args = jnp.asarray(1), jnp.asarray(0.5)
    np.testing.assert_allclose(scaled(*args) * factors, state.critic(*args), rtol=1e-6)


def test_parts_of_a_batch_are_put_together_in_their_order():
    steps, _ = steps_of(COVERAGE)
    n = len(steps.live)
    padding = jax.tree.map(jnp.zeros_like, steps)
    query = AllSteps()
    front = jax.tree.map(lambda leaf: leaf[: n // 2], steps)
    back = jax.tree.map(lambda leaf: leaf[n // 2 :], steps)
    padded = query.merge(query.merge(front, padding), query.merge(back, padding))
    count = int(steps.live[:, 0].sum())
    joined = without_padding(padded, n)
    assert len(joined.live) == n
    assert not joined.live[count:].any()
    first_rows = jax.tree.map(lambda leaf: leaf[:count], (joined, steps))
    assert_same(*first_rows)


TASK = ox.Problem("CartPole-v1", horizon=30)
SMALL = ox.PPO(6, epochs=2, minibatch=32)


def train(problem=TASK, algorithm=SMALL, episodes=18, **options):
    with jax.enable_x64(False):
        return ox.train(problem, algorithm, episodes, 2, progress=False, **options)


def assert_same_runs(one, other):
    assert one.status == other.status == ("finished", "finished")
    for name, values in one.metrics.items():
        assert values.tobytes() == other.metrics[name].tobytes(), name
    assert_same(one.policies, other.policies)


def test_results_depend_neither_on_the_number_of_parts_nor_on_an_interruption(tmp_path):
    whole = train(sampler=ox.samplers.Host(engine="jax"))
    parted = train(sampler=ox.samplers.Host(engine="jax", shards=4))
    np.testing.assert_array_equal(whole.steps, parted.steps)
    for leaf, expected in zip(leaves_of(parted.policies), leaves_of(whole.policies), strict=True):
        np.testing.assert_allclose(leaf, expected, rtol=1e-4, atol=1e-5)
    inside = train(sampler="jax")
    for leaf, expected in zip(leaves_of(inside.policies), leaves_of(whole.policies), strict=True):
        np.testing.assert_allclose(leaf, expected, rtol=1e-3, atol=1e-4)
    stopping = replace(SMALL, decay_episodes=18.0)
    train(algorithm=stopping, episodes=12, sampler="jax", out=tmp_path)
    resumed = train(algorithm=stopping, sampler="jax", out=tmp_path, resume=True)
    assert_same_runs(resumed, train(algorithm=stopping, sampler="jax"))


def test_blocks_are_put_together_as_well(monkeypatch):
    from occupax.samplers.rollout import JaxSource

    inside = train(sampler="jax", episodes=6)
    monkeypatch.setattr(JaxSource, "block_steps", 4 * 30)
    in_blocks = train(sampler="jax", episodes=6)
    for leaf, expected in zip(
        leaves_of(in_blocks.policies), leaves_of(inside.policies), strict=True
    ):
        np.testing.assert_allclose(leaf, expected, rtol=1e-3, atol=1e-4)


def test_simulators_are_trained_with_normalised_observations():
    problem = ox.Problem(ox.envs.GymnasiumEnv(Diary), horizon=5)
    result = train(problem, ox.PPO(4, epochs=2), 12, policy=ox.policies.mlp(normalise=True))
    assert result.status == ("finished", "finished")
    assert result.policies[0].psi.count == result.steps[0, -1]
    assert np.isfinite(result.metrics["kl"]).all()
    assert set(np.unique(result.metrics["epochs"])) <= {1, 2}  # each metric has its own name


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trace": 1.5}, "trace must be in .0, 1., got 1.5"),
        ({"clip": 0.0}, "clip must be a finite number above 0, got 0.0"),
        ({"epochs": 0}, "epochs must be .* at least 1, got 0"),
        ({"rule": "natural"}, "rule must be .adam. or an optax transformation"),
        ({"horizon_ends": 1}, "horizon_ends must be True or False, got 1"),
        ({"mixing": 0.0}, "mixing must"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ox.PPO(**settings)


def test_the_step_size_decays_over_the_budget_of_the_training():
    def step_lengths(**settings):
        return train(algorithm=replace(SMALL, **settings), sampler="jax").metrics["step_length"]

    by_budget = step_lengths()
    np.testing.assert_array_equal(by_budget, step_lengths(decay_episodes=18.0))
    assert not np.array_equal(by_budget, step_lengths(decay_episodes=np.inf))
