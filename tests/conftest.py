"""Shared by all tests."""

import os
from collections.abc import Iterator

os.environ["JAX_COMPILATION_CACHE_DIR"] = ""  # the commands would keep programs for the user, and tests are no user

import jax
import jaxtyping
import pytest


@pytest.fixture
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture
def as_users_run() -> Iterator[None]:
    """Without the checks of annotations that pytest adds, which users do not see."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
