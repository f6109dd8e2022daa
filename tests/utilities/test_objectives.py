"""Imitation, fairness and design: gradients, constants, exact optima, and demonstrations."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import entropy

import occupax as ox
from occupax.utilities import KL, ForwardKL, LogDet, NashWelfare, SoftMin

ENV = ox.TabularMDP.garnet(4, 2, 2, jax.random.key(3))
RNG = np.random.default_rng(0)
REWARDS = RNG.random((4, 2, 3))
TARGET = RNG.dirichlet(np.ones(8)).reshape(4, 2)
UTILITIES = {
    "kl": KL(TARGET, smoothing=0.01),
    "forward-kl": ForwardKL(TARGET, smoothing=0.01),
    "soft-min": SoftMin(REWARDS, temperature=0.5),
    "nash-welfare": NashWelfare(REWARDS, sigma=0.05, weights=[1.0, 2.0, 0.5]),
    "log-det": LogDet(REWARDS, sigma=0.2),
}


@pytest.fixture(params=UTILITIES, scope="module")
def problem(request):
    return ox.Problem(ENV, UTILITIES[request.param], discount=0.8)


def test_gradient_concavity_and_constants_are_what_is_declared(problem):
    ox.utilities.check(problem.utility, problem.size, mass=5.0, samples=50)
    with pytest.raises(ValueError, match="does not keep what it declares"):
        ox.utilities.check(Steeper(problem.utility), problem.size, mass=5.0, samples=50)


class Steeper(ox.utilities.Utility):
    """Utility with a gradient that is one per cent too long. The check must detect it."""

    inner: ox.utilities.Utility

    @property
    def concave(self):
        return True

    @property
    def smoothness(self):
        return ox.utilities.Smoothness(np.inf, np.inf, np.inf)

    def value(self, occupancy):
        return self.inner.value(occupancy)

    def gradient(self, occupancy):
        return 1.01 * self.inner.gradient(occupancy)

    def domain(self, occupancy):
        return self.inner.domain(occupancy)

    def features(self):
        return self.inner.features()


def by_hand(problem):
    """The value of a table of probabilities, from the definition in NumPy."""
    utility = problem.utility
    P = ENV.transition.toarray().reshape(4, 2, 4)

    def value(probs):
        flow = np.linalg.solve(np.eye(4) - 0.8 * np.einsum("sa,sat->ts", probs, P), ENV.initial)
        lam = flow[:, None] * probs
        sums, rho = np.einsum("sa,sak->k", lam, REWARDS), 0.2 * lam.ravel() + 0.01
        target = TARGET.ravel()
        match utility:
            case KL():  # SciPy normalises both to a sum of 1, so multiply by their common sum
                return -entropy(rho, target + 0.01) * rho.sum()
            case ForwardKL():
                return target @ np.log(rho / (target + 0.01))
            case SoftMin():
                return -0.5 * np.log(np.exp(-sums / 0.5).sum())
            case NashWelfare():
                return np.array([1.0, 2.0, 0.5]) @ np.log(sums + 0.05)
            case _:
                assert isinstance(utility, LogDet)
                moments = np.einsum("sa,saj,sak->jk", lam, REWARDS, REWARDS)
                return np.log(np.linalg.det(moments + 0.2 * np.eye(3)))

    return value


def test_the_exact_optimum_is_certified_and_that_of_a_search_over_policies(problem):
    value = by_hand(problem)
    uniform = np.full((4, 2), 0.5)
    assert ox.exact.value(problem, uniform) == pytest.approx(value(uniform), rel=1e-6, abs=1e-9)
    best = ox.solve(problem, tolerance=1e-5)
    assert best.gap <= 1e-5 * max(1.0, abs(best.value))

    def table(logits):
        share = 1 / (1 + np.exp(-logits))
        return np.stack([share, 1 - share], 1)

    starts = itertools.product((-1.0, 1.0), repeat=2)
    searches: Any = [minimize(lambda x: -value(table(x)), [a, b, a, b]) for a, b in starts]
    found = max(-search.fun for search in searches)
    assert found <= best.value + 1e-5
    assert found == pytest.approx(best.value, abs=1e-3)


def test_demonstrations_of_a_policy_are_its_distribution_and_can_be_imitated():
    policy = ox.policies.Tabular(jnp.asarray(RNG.normal(size=(4, 2))))
    target = ox.demonstrations(ENV, policy, discount=0.8)
    assert target.shape == (4, 2)
    assert target.sum() == pytest.approx(1.0)
    problem = ox.Problem(ENV, KL(target), discount=0.8)
    probs = np.stack([policy.probs(state) for state in range(4)])
    assert ox.exact.value(problem, probs) == pytest.approx(0.0, abs=1e-9)
    assert ox.exact.value(problem, np.full((4, 2), 0.5)) < -1e-3


def test_demonstrations_of_episodes_are_counted_with_their_discount():
    pairs = [[(0, 1), (2, 0)], [(3, 1)]]
    wanted = np.zeros((4, 2))
    wanted[0, 1], wanted[2, 0], wanted[3, 1] = 0.5, 0.4, 0.5
    assert ox.demonstrations(ENV, pairs, discount=0.8) == pytest.approx(0.2 * wanted)
    arrays = [
        {"observations": np.array([0, 2, 1]), "actions": np.array([1, 0])},
        {"observations": np.array([3, 0]), "actions": np.array([1])},
    ]
    assert ox.demonstrations(ENV, arrays, discount=0.8) == pytest.approx(0.2 * wanted)
    steps = np.array([0, 2, 3]), np.array([1, 0, 1])
    for ends in ([False, True, True], [0.0, 1.0, 0.0]):  # the last episode may be cut
        assert ox.demonstrations(ENV, (*steps, np.array(ends)), discount=0.8) == pytest.approx(
            0.2 * wanted
        )
    states = ox.demonstrations(ENV, pairs, discount=0.8, features=ox.features.State())
    assert states == pytest.approx(0.2 * wanted.sum(1))


def test_demonstrations_as_arrays_are_those_of_their_episodes():
    random = np.random.default_rng(0)
    seen, actions = random.normal(size=(9, 4)), random.integers(0, 2, 9)
    ends = np.isin(np.arange(9), [1, 2, 8])
    lists = [
        list(zip(seen[span], actions[span], strict=True))
        for span in (slice(2), slice(2, 3), slice(3, 9))
    ]

    def features(observation, action):
        return observation * (1 + action)

    for env in ("CartPole-v1", ox.make("CartPole-v1")):
        found = ox.demonstrations(env, (jnp.asarray(seen), actions, ends), features=features)
        assert found == pytest.approx(ox.demonstrations(env, lists, features=features), rel=1e-5)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        (
            (np.zeros(3, int), np.zeros(3, int)),
            r"must be \(observations, actions, ends\), got 2 arrays; ends is",
        ),
        (
            (np.zeros(3, int), np.zeros(2, int), np.ones(3)),
            r"one entry for each step, got shapes \(3,\), \(2,\) and",
        ),
        (
            (np.zeros(()), np.zeros(()), np.ones(())),
            r"one entry for each step, got shapes \(\), \(\) and \(\)",
        ),
        (
            (np.zeros(3, int), np.zeros(3, int), np.array([0, 2, 1])),
            r"ends .* must be True or False, got 2\.$",
        ),
        ((np.zeros(0, int), np.zeros(0, int), np.zeros(0)), "at least one episode, got none"),
        (
            (np.array([0, 9]), np.zeros(2, int), np.ones(2)),
            "episode 1 does not fit the environment",
        ),
    ],
)
def test_arrays_that_are_no_demonstrations_are_refused(arrays, said):
    with pytest.raises(ValueError, match=said):
        ox.demonstrations(ENV, arrays)


def test_an_estimate_that_is_no_matrix_of_second_moments_is_projected_to_the_nearest_one():
    utility = LogDet(REWARDS, sigma=0.1)
    wrong = jnp.asarray([[1.0, 0.0], [0.0, -1.0]]).ravel()
    assert utility.domain(wrong) == pytest.approx([1.0, 0.0, 0.0, 0.0], abs=1e-6)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda u: np.sum(np.log(u + 1.0)), "jnp.log instead of np.log"),
        (lambda u: jnp.sum(u) if u[0] > 0 else 0.0, "jnp.where"),
        (lambda u: jnp.sum(jnp.log(u)), "log(u + sigma) instead of log(u)"),
        (lambda u: jnp.sum(jnp.sqrt(u)), "gradient that is not finite where nothing is visited"),
    ],
)
def test_the_check_says_what_to_change(function, said):
    with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
        ox.utilities.check(function, 3, samples=5)
    assert said in str(caught.value)


def test_utilities_of_something_on_the_command_line(tmp_path, monkeypatch):
    from occupax.cli.names import utility

    np.save(tmp_path / "target.npy", TARGET)
    (tmp_path / "own_goal.py").write_text(
        "import jax.numpy as jnp\ndef spread(u):\n    return -jnp.sum(u**2)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert isinstance(utility("kl:target.npy"), KL)
    rewards = utility("soft-min:info.speed,reward").features()
    assert rewards == ox.features.Stack(ox.features.Info("speed"), ox.features.Reward())
    assert utility("own_goal:spread").value(jnp.ones(2)) == -2
    with pytest.raises(ValueError, match="must name a NumPy file with the target"):
        utility("kl:missing.npy")


def test_a_utility_that_is_not_defined_where_policies_go_is_refused():
    with pytest.raises(
        ValueError, match="NashWelfare has no finite value at the occupancy of a policy"
    ):
        ox.solve(ox.Problem(ENV, NashWelfare(-REWARDS), discount=0.8))


@pytest.mark.parametrize(
    ("name", "needed"), [("kl", "KL(target)"), ("soft-min", "SoftMin(rewards)")]
)
def test_a_name_that_needs_something_says_what(name, needed):
    from occupax.cli.names import utility

    for make in (utility, ox.utilities.as_utility):
        with pytest.raises(ValueError, match=f"^utility '{name}' needs its [^\n]*$") as caught:
            make(name)
        assert f"give occupax.utilities.{needed}" in str(caught.value)
    with pytest.raises(ValueError, match="Did you mean 'soft-min'"):
        ox.Problem(ENV, "soft-mn")
