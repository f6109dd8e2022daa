"""Keys of `jax.random` whose hash is compiled in one piece.

On the CPU, JAX compiles the hash behind its random numbers as a loop of many small operations.
Inside a loop over time each of them handles a few hundred numbers, and takes longer to be started
than to be done. The keys here give the same numbers, bit by bit, by the same hash without that
loop.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl
from jaxtyping import Array, Key, UInt32

ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
PARITY = np.uint32(0x1BD11BDA)
THREEFRY = "threefry2x32"

Words = tuple[UInt32[Array, "*shape"], UInt32[Array, "*shape"]]


@jax.jit  # its hundred operations are traced once for each shape
def _hash(
    key: UInt32[Array, "2"], high: UInt32[Array, "*shape"], low: UInt32[Array, "*shape"]
) -> Words:
    """Threefry-2x32 in 20 rounds (Salmon et al., 2011)."""
    words = key[0], key[1], key[0] ^ key[1] ^ PARITY
    x, y = high + words[0], low + words[1]
    for group in range(5):
        for by in ROTATIONS[group % 2]:
            x = x + y
            y = x ^ (y << np.uint32(by) | y >> np.uint32(32 - by))
        x, y = x + words[(group + 1) % 3], y + words[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def _counted(key: UInt32[Array, "2"], shape: tuple[int, ...]) -> Words:
    low = jnp.arange(int(np.prod(shape)), dtype=jnp.uint32).reshape(shape)
    return _hash(key, jnp.zeros_like(low), low)


def _fold_in(key: UInt32[Array, "2"], data: Any) -> UInt32[Array, "2"]:
    low = jnp.asarray(data, jnp.uint32)
    return jnp.stack(_hash(key, jnp.zeros_like(low), low))


def _split(key: UInt32[Array, "2"], shape: tuple[int, ...]) -> UInt32[Array, "*shape 2"]:
    return jnp.stack(_counted(key, shape), -1)


def _bits(key: UInt32[Array, "2"], width: int, shape: tuple[int, ...]) -> Array:
    x, y = _counted(key, shape)
    if width == 64:
        return x.astype(jnp.uint64) << np.uint64(32) | y.astype(jnp.uint64)
    return (x ^ y).astype(f"uint{width}")


def _seed(seed: Array) -> UInt32[Array, "2"]:
    return jax.random.key_data(jax.random.key(seed, impl=THREEFRY))


FUSED = define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_bits,
    fold_in=_fold_in,
    name="fused threefry2x32",
    tag="fused",
)


def fused(keys: Key[Array, "*n"]) -> Key[Array, "*n"]:
    """Return keys of the same random numbers. Keys of other kinds are returned unchanged."""
    counts_alike = jax.config.jax_threefry_partitionable  # pyright: ignore[reportAttributeAccessIssue]
    if str(jax.random.key_impl(keys)) != THREEFRY or not counts_alike:
        return keys
    return jax.random.wrap_key_data(jax.random.key_data(keys), impl=FUSED)


def unfused(keys: Key[Array, "*n"]) -> Key[Array, "*n"]:
    """Return JAX's own keys of the same random numbers, for code that may check their kind."""
    if jax.random.key_impl(keys) != FUSED:
        return keys
    return jax.random.wrap_key_data(jax.random.key_data(keys), impl=THREEFRY)
