"""Keys whose hash is compiled in one piece stand for the numbers of `jax.random`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from occupax.samplers.fused_keys import fused, unfused

KEYS = jax.random.split(jax.random.key(7), 3)


@pytest.mark.parametrize(
    "draw",
    [
        lambda key: jax.random.key_data(
            jax.random.split(jax.random.fold_in(key, 2**31 + 5), (2, 3))
        ),
        lambda key: jax.random.normal(key, (4, 2)),
        lambda key: jax.random.bits(key, (5,), "uint8"),
        lambda key: jax.random.categorical(key, jnp.arange(4.0)),
        lambda key: jax.random.permutation(key, 6),
    ],
)
def test_the_same_numbers(draw: object) -> None:
    np.testing.assert_array_equal(jax.vmap(draw)(KEYS), jax.vmap(draw)(fused(KEYS)))  # type: ignore[arg-type]


def test_numbers_of_64_bits() -> None:
    with jax.enable_x64(True):
        draw = jax.vmap(lambda key: jax.random.uniform(key, (3,), jnp.float64))
        np.testing.assert_array_equal(draw(KEYS), draw(fused(KEYS)))


def test_back_again() -> None:
    np.testing.assert_array_equal(
        jax.random.key_data(unfused(fused(KEYS))), jax.random.key_data(KEYS)
    )
    assert unfused(fused(KEYS)).dtype == KEYS.dtype == unfused(KEYS).dtype


def test_keys_of_another_kind_stay_as_they_are() -> None:
    other = jax.random.key(0, impl="rbg")
    assert fused(other) is other
