"""Runtime checks of types and shapes, added to functions of the package at their first call.

The import hook of jaxtyping decorates every function where it is defined. That takes milliseconds
for each of two thousand functions, and for those inside of others again with every call of these.
Here a function is decorated when it is called first while checks are on, and one inside of another
not at all: the other one's arguments are checked. After many calls in one file of tests, most of
them with the same shapes, those that follow are not checked.
"""

import functools
import inspect
from collections import Counter
from dataclasses import is_dataclass
from typing import Any

import jaxtyping

at_once = jaxtyping.jaxtyped

MAX_CALLS = 50
"""Number of checked calls of a function in a file of tests. Loops call some functions thousands of
times."""
calls: Counter[Any] = Counter()
"""The checked calls of each function in this file; to be cleared for the next one."""


def check_when_called() -> None:
    """Install this module's decorator in the import hook. Call before importing the package."""
    jaxtyping.jaxtyped = jaxtyped


def jaxtyped(*context: Any, typechecker: Any = None) -> Any:
    """Replace `jaxtyping.jaxtyped`: return a decorator, or the context that the package enters."""
    return at_once(*context) if context else functools.partial(decorate, typechecker)


def decorate(typechecker: Any, it: Any) -> Any:
    """Return a checked function, property or method, or a class with a checked constructor."""
    if isinstance(it, property):
        return property(*(part and decorate(typechecker, part) for part in (it.fget, it.fset)))
    if isinstance(it, classmethod | staticmethod):
        return type(it)(decorate(typechecker, it.__func__))
    if not inspect.isclass(it):
        return it if "<locals>" in it.__qualname__ else when_called(typechecker, it)
    if is_dataclass(it) and not hasattr(it.__init__, "checked_when_called"):
        it.__init__ = when_called(typechecker, it.__init__)
    return it


def when_called(typechecker: Any, function: Any) -> Any:
    """A function that is decorated with its first call."""
    decorated: list[Any] = []

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if jaxtyping.config.jaxtyping_disable or calls[function] >= MAX_CALLS:
            return function(*args, **kwargs)
        calls[function] += 1
        if not decorated:
            decorated.append(at_once(function, typechecker=typechecker))
        return decorated[0](*args, **kwargs)

    called.checked_when_called = True  # pyright: ignore[reportFunctionMemberAccess]
    return called
