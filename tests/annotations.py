"""Checks of calls against their annotations, types and shapes, for functions of the package as they are called first.

The import hook of jaxtyping decorates every function where it is defined. That takes milliseconds for each of two
thousand functions, and for those inside of others again with every call of these. Here a function is decorated when it
is called first while checks are on, and one inside of another not at all: the other one's arguments are checked.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any

import jaxtyping

decorated = jaxtyping.jaxtyped


def jaxtyped(*, typechecker: Any) -> Callable[[Any], Any]:
    """Takes the place of `jaxtyping.jaxtyped` in what the import hook writes above each definition."""

    def decorate(it: Any) -> Any:
        if isinstance(it, property):
            return property(it.fget and decorate(it.fget), it.fset and decorate(it.fset))
        if isinstance(it, classmethod | staticmethod):
            return type(it)(decorate(it.__func__))
        if inspect.isclass(it):
            if is_dataclass(it) and not hasattr(it.__init__, "checked_when_called"):
                it.__init__ = when_called(it.__init__)
            return it
        return it if "<locals>" in it.__qualname__ else when_called(it)

    def when_called(function: Any) -> Any:
        with_checks: list[Any] = []

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if jaxtyping.config.jaxtyping_disable:
                return function(*args, **kwargs)
            if not with_checks:
                with_checks.append(decorated(function, typechecker=typechecker))
            return with_checks[0](*args, **kwargs)

        called.checked_when_called = True  # pyright: ignore[reportFunctionMemberAccess]
        return called

    return decorate


def check_when_called() -> None:
    """To be called before the package is imported."""
    jaxtyping.jaxtyped = jaxtyped
