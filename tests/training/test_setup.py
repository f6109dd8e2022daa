import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import occupax as ox
from occupax import kernels
from occupax.training.setup import make_setup

TINY = ox.TSIVRPG(snapshot_batch=4, batch=2, epoch_length=3)
ANGLES = ox.features.Grid([-1.0, -1.0], [1.0, 1.0], [4, 4], coordinates=[0, 1])


def problem():
    return ox.Problem(ox.TabularMDP.chain(3), ox.utilities.LogCoverage(), discount=0.9, horizon=4)


def train(policy, sampler="auto"):
    return ox.train(problem(), TINY, episodes=10, policy=policy, sampler=sampler, progress=False)


@pytest.mark.parametrize("sampler", ["auto", "jax"])
def test_a_policy_of_another_precision_is_brought_to_the_present_one(sampler):
    single = ox.policies.Tabular(jnp.zeros((3, 2)))
    with jax.enable_x64(True):
        result = train(single, sampler)
    assert result.status == ("finished",)
    assert result.policy().table.dtype == np.float64


@pytest.mark.parametrize(
    ("name", "kind"),
    [("Host", ox.samplers.Host), ("RAY", ox.samplers.Ray), ("Jax", ox.samplers.Jax)],
)
def test_samplers_are_named_in_any_case(name, kind):
    policy = ox.policies.tabular()(problem().env, jax.random.key(0))
    assert isinstance(ox.samplers.choose_sampler(name, problem(), policy), kind)


def test_a_policy_of_numpy_arrays_will_do():
    table = np.array([[0.1, 0.2], [0.0, -0.3], [0.5, 0.0]])
    given, usual = train(ox.policies.Tabular(table)), train(ox.policies.Tabular(jnp.asarray(table)))
    np.testing.assert_array_equal(given.policy().table, usual.policy().table)


def test_an_initialiser_that_was_not_called_is_refused():
    with pytest.raises(
        ValueError,
        match=r"an initialiser such as occupax.policies.mlp\(\), got a function that makes one",
    ):
        train(ox.policies.mlp)


class Rows(eqx.Module):
    """A network with a state, which is called with two arguments as initialisers are."""

    weight: jax.Array

    def __call__(self, observation, state):
        return self.weight @ observation, state


class FlaxNetwork:
    """Stand-in for a Flax module."""

    __module__ = "flax.linen.module"

    def __call__(self, observation):
        raise AttributeError("call apply")


class TorchNetwork:
    __module__ = "torch.nn.modules.linear"

    def __call__(self, *args, **kwargs):
        raise TypeError("forward takes 2 arguments")


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (
            eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(0)),
            r"MLP; wrap the network as occupax\.policies\.Softmax\(net\)",
        ),
        (
            Rows(jnp.zeros((2, 3))),
            r"Rows; wrap the network as occupax\.policies\.Softmax\(net\) or, for a Box",
        ),
        (FlaxNetwork(), r"Softmax\(equinox\.Partial\(net\.apply, params\)\)\.$"),
        (
            TorchNetwork(),
            r"write the network in JAX, .* and wrap it as occupax\.policies\.Softmax\(net\)\.$",
        ),
        (
            lambda _: jnp.zeros(2),
            r"function; wrap a function .* as occupax\.policies\.Softmax\(function\)\.$",
        ),
    ],
    ids=["equinox", "equinox with a state", "flax", "torch", "function"],
)
def test_a_network_that_is_no_policy_is_told_how_to_become_one(policy, said):
    with pytest.raises(ValueError, match="^policy must be an occupax policy, got .*" + said):
        train(policy)
    if not isinstance(policy, type(lambda: 0)):
        with pytest.raises(ValueError, match="^policy must be an occupax policy, got .*" + said):
            ox.evaluate(policy, problem())


def test_what_an_initialiser_raises_is_left_as_it_is():
    def broken(env, key):
        raise KeyError("out of coffee")

    with pytest.raises(KeyError, match="out of coffee"):
        train(broken)


def test_a_network_in_a_softmax_is_trained():
    """A bandit with ten actions of which one pays: the logits of a network come to prefer it."""
    reward = np.zeros((1, 3))
    reward[0, 2] = 1.0
    bandit = ox.TabularMDP(np.ones((1, 3, 1)), reward, [1.0])
    network = eqx.nn.MLP("scalar", 3, 4, 1, key=jax.random.key(0))
    task = ox.Problem(bandit, discount=0.5, horizon=1)
    result = ox.train(task, "reinforce", 2000, policy=ox.policies.Softmax(network), progress=False)
    assert result.policy().probs(jnp.array(0))[2] > 0.9


def test_the_random_numbers_that_were_used_belong_to_the_run(tmp_path, monkeypatch):
    ox.train(problem(), TINY, episodes=10, out=tmp_path, progress=False)
    expected = "jax" if kernels.missing() else "kernel"
    assert ox.load_result(tmp_path).config["setup"]["random_numbers"] == expected
    monkeypatch.setattr(kernels, "missing", lambda: "it was not compiled")
    with (
        pytest.warns(UserWarning, match="plain JAX is slower"),
        pytest.raises(ValueError, match="differs in random_numbers"),
    ):
        ox.train(problem(), TINY, episodes=20, out=tmp_path, resume=True, progress=False)
    with pytest.raises(ValueError, match="the compiled kernel cannot be used: it was not compiled"):
        ox.train(problem(), TINY, episodes=10, sampler="kernel", progress=False)
    monkeypatch.setattr(kernels, "missing", str)
    cartpole, bent = (
        ox.Problem(ox.make("CartPole-v1"), horizon=5),
        ox.policies.mlp(activation="relu"),
    )
    with pytest.raises(ValueError, match="for tabular environments with tabular policies"):
        ox.train(cartpole, TINY, episodes=10, policy=bent, sampler="kernel", progress=False)


@pytest.mark.parametrize("answer", [True, np.True_, jnp.array(True)])
def test_any_true_of_a_callback_ends_the_training(answer):
    result = ox.train(problem(), TINY, episodes=100, callbacks=[lambda _: answer], progress=False)
    assert list(result.episodes) == [4]


@pytest.mark.parametrize("answer", [None, False, 1, "yes", np.zeros(3)])
def test_nothing_else_does(answer):
    result = ox.train(problem(), TINY, episodes=10, callbacks=[lambda _: answer], progress=False)
    assert result.episodes[-1] == 8  # a whole cycle; the next snapshot does not fit


def chain(states, **given):
    return ox.Problem(ox.TabularMDP.chain(states), discount=0.9, horizon=4, **given)


@pytest.mark.parametrize(
    ("task", "policy", "kind"),
    [
        (chain(128), None, ox.PlugIn),
        (chain(129), None, ox.REINFORCE),
        (chain(3), "mlp", ox.PPO),
        (
            chain(3, constraints=[ox.Constraint(ox.utilities.Entropy(), at_least=0.1)]),
            None,
            ox.REINFORCE,
        ),
        (
            chain(3, constraints=[ox.Constraint(ox.utilities.Entropy(), at_least=0.1)]),
            "mlp",
            ox.PPO,
        ),
        (ox.Problem("CartPole-v1"), None, ox.PPO),
        (ox.Problem("Pendulum-v1"), None, ox.PPO),
        (ox.Problem("Pendulum-v1"), "squashed", ox.PPO),
        (
            ox.Problem("Pendulum-v1", utility=ox.utilities.LogCoverage(), features=ANGLES),
            None,
            ox.PPO,
        ),
    ],
)
def test_the_default_plans_small_tables_and_has_a_critic_for_networks(task, policy, kind):
    assert type(make_setup(task, [None], policy, 1, 0, 1, exact=False).algorithms[0]) is kind


@pytest.mark.parametrize(("task", "length"), [(chain(3), 0.3), (ox.Problem("CartPole-v1"), 0.03)])
def test_the_steps_of_nharpg_are_shorter_where_the_policy_is_no_table(task, length):
    given = [ox.NHARPG(), ox.NHARPG(step_size=0.1), ox.NHARPG(rule="adam")]
    sizes = [
        make_setup(task, [it], None, 1, 0, 1, exact=False).algorithms[0].step_size for it in given
    ]
    assert sizes == [length, 0.1, 0.04 if length == 0.3 else 0.01]
