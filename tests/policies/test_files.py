import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

import occupax as ox
from occupax.io.files import read_arrays, write_arrays
from occupax.io.policies import load_policy, save_policy

KEY = jax.random.key(0)
LAKE = ox.make("FrozenLake-v1")
CART = ox.make("CartPole-v1")
IN_CART = np.array([0.1, -0.2, 0.03, 0.4], np.float32)


def squares(observation):
    return observation**2


class Scaled(ox.policies.Categorical):
    weight: jax.Array
    scale: float = eqx.field(static=True)

    def logits(self, observation):
        return self.scale * self.weight @ observation


@pytest.mark.parametrize(
    ("policy", "observation"),
    [
        (ox.policies.tabular(1.0)(LAKE, KEY), 3),
        (ox.policies.linear(scale=1.0)(CART, KEY), IN_CART),
        (ox.policies.mlp((8,), "softplus")(LAKE, KEY), 3),
        (ox.policies.mlp((8,), "relu")(CART, KEY), IN_CART),
        (ox.policies.Softmax(eqx.nn.MLP(4, 2, 8, 1, jnp.tanh, use_bias=False, key=KEY)), IN_CART),
        (
            ox.policies.Softmax(
                eqx.nn.Sequential([eqx.nn.LayerNorm(4), eqx.nn.Linear(4, 2, key=KEY)])
            ),
            IN_CART,
        ),
    ],
)
def test_a_policy_needs_nothing_but_its_file(policy, observation, tmp_path):
    save_policy(policy, tmp_path / "made" / "on the way" / "policy.safetensors")
    restored = load_policy(str(tmp_path / "made" / "on the way" / "policy.safetensors"))
    assert type(restored) is type(policy)
    assert bool(eqx.tree_equal(restored, policy, typematch=True))
    np.testing.assert_array_equal(restored.probs(observation), policy.probs(observation))
    np.testing.assert_array_equal(
        restored.action(observation, KEY), policy.action(observation, KEY)
    )


def test_other_programs_can_read_the_arrays(tmp_path):
    policy = ox.policies.mlp((8,))(CART, KEY)
    save_policy(policy, tmp_path / "no suffix")
    arrays = safetensors.numpy.load_file(tmp_path / "no suffix")
    layer = policy.psi.network.layers[0]
    assert sorted(arrays) == [
        f"psi.network.layers[{i}].{name}" for i in (0, 2) for name in ("bias", "weight")
    ]
    np.testing.assert_array_equal(arrays["psi.network.layers[0].weight"], layer.weight)


@pytest.mark.parametrize(
    "make",
    [
        ox.policies.linear(squares, scale=1.0),
        lambda _, key: Scaled(jax.random.normal(key, (2, 4)), 2.0),
        lambda _, key: ox.policies.Softmax(Scaled(jax.random.normal(key, (2, 4)), 2.0).logits),
    ],
    ids=["function", "class", "method"],
)
def test_a_policy_with_code_of_its_own_needs_one_like_it(make, tmp_path):
    policy, like = make(CART, KEY), make(CART, jax.random.key(1))
    save_policy(policy, tmp_path / "own")
    sentence = (
        "^the policy in .*own could not be restored: "
        ".* cannot be restored from a file; pass like=, a value of the"
    )
    with pytest.raises(ValueError, match=sentence):
        load_policy(tmp_path / "own")
    restored = load_policy(tmp_path / "own", like)
    np.testing.assert_array_equal(restored.probs(IN_CART), policy.probs(IN_CART))
    assert not np.array_equal(like.probs(IN_CART), policy.probs(IN_CART))


def test_a_policy_of_another_shape_or_kind_is_not_like_it(tmp_path):
    save_policy(Scaled(jnp.ones((2, 4)), 2.0), tmp_path / "own")
    for like, sentence in (
        (
            Scaled(jnp.ones((3, 4)), 2.0),
            r"like must hold float32 of shape \(2, 4\) at weight, .* of shape \(3, 4\)\.$",
        ),
        (Scaled(jnp.ones((2, 4), jnp.int32), 2.0), r"but holds int32 of shape \(2, 4\)\.$"),
        (Scaled(jnp.ones((2, 4)), 3.0), r"differs at /parts/\.scale\.$"),
        (ox.policies.tabular()(LAKE, KEY), r"differs at the top\.$"),
    ):
        with pytest.raises(ValueError, match=sentence):
            load_policy(tmp_path / "own", like)


def test_another_activation_is_not_like_it(tmp_path):
    save_policy(ox.policies.mlp((8,), "tanh")(CART, KEY), tmp_path / "policy")
    with pytest.raises(ValueError, match=r"differs at /fields/psi/.*/function\.$"):
        load_policy(tmp_path / "policy", ox.policies.mlp((8,), "relu")(CART, KEY))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"version": 1},
            r"version 1 of the format occupax-policy, which occupax 0\.2\.0 reads; this occupax",
        ),
        ({"version": None}, "has version None of the format"),
        (
            {"format": "occupax-result"},
            r"must have the format occupax-policy, but has 'occupax-result'\.$",
        ),
        (
            {"policy": {"class": "os.system", "fields": {}}},
            r"'os\.system' is not a class that occupax restores\.$",
        ),
        ({"policy": {"tuple": []}}, r"must hold a policy, but holds a tuple\.$"),
        ({"policy": None}, r"must hold a policy, but holds a NoneType\.$"),
    ],
)
def test_what_is_no_policy_of_this_version_is_refused(change, sentence, tmp_path):
    save_policy(ox.policies.tabular()(LAKE, KEY), tmp_path / "policy")
    arrays, content = read_arrays(tmp_path / "policy")
    assert json.dumps(content["policy"])
    write_arrays(tmp_path / "policy", arrays, content | change)
    with pytest.raises(ValueError, match=f"policy.*{sentence}"):
        load_policy(tmp_path / "policy")


def test_bad_arguments_are_refused(tmp_path):
    with pytest.raises(
        ValueError,
        match="policy must be an occupax policy, got an initialiser; call the initialiser",
    ):
        save_policy(ox.policies.tabular(), tmp_path / "policy")
    with pytest.raises(ValueError, match=r"nothing does not exist\.$"):
        load_policy(tmp_path / "nothing")
    with pytest.raises(ValueError, match="policy must be an occupax policy, got ndarray"):
        load_policy(tmp_path / "nothing", like=np.ones((2, 4)))
    strange = ox.policies.Softmax(eqx.Partial(squares, weights={1.5: jnp.ones(3)}))
    with pytest.raises(
        ValueError,
        match="policy holds arrays that cannot be saved: store them as numbers in modules",
    ):
        save_policy(strange, tmp_path / "policy")
    assert list(tmp_path.iterdir()) == []
