"""Griffe extension for the API reference: constructor signatures and literal angle brackets.

Griffe reads the sources without importing them. It does not see the constructors that Equinox and
NamedTuple generate, and Markdown takes `<w, u>` in a docstring for an HTML tag.
"""

import importlib
import inspect
import re
from typing import Any

import griffe

KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: griffe.ParameterKind.positional_only,
    inspect.Parameter.POSITIONAL_OR_KEYWORD: griffe.ParameterKind.positional_or_keyword,
    inspect.Parameter.VAR_POSITIONAL: griffe.ParameterKind.var_positional,
    inspect.Parameter.KEYWORD_ONLY: griffe.ParameterKind.keyword_only,
    inspect.Parameter.VAR_KEYWORD: griffe.ParameterKind.var_keyword,
}
CODE = re.compile(
    r"(^ *```.*?^ *```|`[^`]*`|(?<=\n\n)(?: {4}[^\n]*(?:\n|\Z))+)", re.DOTALL | re.MULTILINE
)
"""Fenced blocks, words in backticks, and indented blocks."""


class Signatures(griffe.Extension):
    """Add generated constructors to classes, and escape `<` in docstrings outside of code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Escape the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = escape(obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Add the constructors once all classes and their bases are loaded."""
        add_constructors(pkg)


def escape(text: str) -> str:
    """Return a text in which Markdown finds no HTML tag."""
    parts = CODE.split(text)
    for i in range(0, len(parts), 2):
        parts[i] = parts[i].replace("<", "&lt;")
    return "".join(parts)


def add_constructors(scope: griffe.Module | griffe.Class) -> None:
    """Add an `__init__` to every class of a module or class that has none in its source."""
    for member in list(scope.members.values()):
        if member.is_alias:
            continue
        if isinstance(member, griffe.Class):
            add_constructor(member)
        if isinstance(member, griffe.Module | griffe.Class):
            add_constructors(member)


def add_constructor(described: griffe.Class) -> None:
    """Add the `__init__` that Python sees, unless the source of the class has one."""
    if isinstance(described.members.get("__init__"), griffe.Function):
        return
    try:
        signature = inspect.signature(find_class(described.path))
    except ValueError:  # classes of the interpreter have none
        return
    init = griffe.Function("__init__", parent=described)
    init.parameters.add(griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword))
    for parameter in signature.parameters.values():
        init.parameters.add(read_parameter(described, parameter))
    described.set_member("__init__", init)


def find_class(path: str) -> Any:
    """Return the class with a dotted path, which may be inside of another class."""
    module_name = path
    names: list[str] = []
    while True:
        module_name, _, name = module_name.rpartition(".")
        names.insert(0, name)
        try:
            found: Any = importlib.import_module(module_name)
        except ModuleNotFoundError:
            continue
        for name in names:
            found = getattr(found, name)
        return found


def read_parameter(described: griffe.Class, parameter: inspect.Parameter) -> griffe.Parameter:
    """Return a parameter with its annotation as it is written in the source, where it is."""
    annotation = None
    for owner in (described, *described.mro()):
        init, field = owner.members.get("__init__"), owner.members.get(parameter.name)
        if isinstance(init, griffe.Function) and parameter.name in init.parameters:
            return init.parameters[parameter.name]
        if isinstance(field, griffe.Attribute):
            annotation = field.annotation
            break
    return griffe.Parameter(
        parameter.name, annotation=annotation, kind=KINDS[parameter.kind], default=shown(parameter)
    )


def shown(parameter: inspect.Parameter) -> str | None:
    """Return the text of a default: "..." for a default factory, None without a default."""
    if parameter.default is inspect.Parameter.empty:
        return None
    text = repr(parameter.default)
    return "..." if text.startswith("<") else text
