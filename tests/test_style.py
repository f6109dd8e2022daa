"""Style of the sources: docstrings, local names and documented arguments.

The rules are those of CONTRIBUTING.md.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "occupax"
OPENING = re.compile(r"(What|How|Who|Whose|Which|Where|It|That|Those|As|By|The same)\b")
MAX_WORDS = 20
ODD_NAME = re.compile(
    "found|it|made|given|then|now|drawn|kept|seen|done|there|worth|way|what|about|moving|fixed"
)
MAX_OFFENCES = {"opening": 0, "summary": 10, "name": 10, "arguments": 0}
"""Largest number of offences against each rule."""


LAZY_PACKAGES = {
    "slow": ("gymnasium", "jinja2", "matplotlib", "scipy", "IPython"),
    "optional": ("cvxpy", "gymnax", "imageio_ffmpeg", "qdldl", "ray", "tensorboardX", "wandb"),
    "unused by processes of environments": ("jax",),
}
"""Packages that are imported inside functions, by reason."""


class Offence(NamedTuple):
    """Line of a file that breaks a rule."""

    rule: str
    file: str
    text: str


def check_docstring(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the rules that the docstring of a module, class or function breaks."""
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return
    docstring = ast.get_docstring(node)
    if not docstring:
        return
    summary = docstring.split("\n\n")[0]
    text = f"{getattr(node, 'lineno', 1)}: {summary}"
    if OPENING.match(docstring):
        yield "opening", text
    if len(summary.split()) > MAX_WORDS or ";" in summary:
        yield "summary", text


def check_name(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the odd name that a node binds."""
    name = ""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        name = node.id
    elif isinstance(node, ast.arg):
        name = node.arg
    if ODD_NAME.fullmatch(name):
        yield "name", f"{getattr(node, 'lineno', 1)}: {name}"


def lazy_imports(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports inside functions."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield node


def has_reason(node: ast.Import | ast.ImportFrom, lines: list[str]) -> bool:
    """Return whether an import has a listed package, or a comment in its block of imports."""
    module = node.names[0].name
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
    if any(module.split(".")[0] in packages for packages in LAZY_PACKAGES.values()):
        return True
    first = node.lineno - 1
    while lines[first - 1].strip().startswith(("import ", "from ", "#")):
        first -= 1
    block = lines[first : node.end_lineno]
    return any("#" in line for line in block)


def check_lazy_imports(tree: ast.AST, lines: list[str]) -> Iterator[str]:
    """Yield the imports inside functions without a reason."""
    for node in lazy_imports(tree):
        if not has_reason(node, lines):
            yield f"{node.lineno}: {ast.unparse(node)}"


@cache
def source_offences() -> list[Offence]:
    """Return the offences of the package against the rules for docstrings and names."""
    offences: list[Offence] = []
    for path in sorted(SOURCES.rglob("*.py")):
        file = path.relative_to(SOURCES).as_posix()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for rule, text in [*check_docstring(node), *check_name(node)]:
                offences.append(Offence(rule, file, text))
    return offences


def resolve(path: str) -> Any:
    """Return the module, class, function or constant with a dotted path."""
    module_name, names = path, list[str]()
    while True:
        try:
            value: Any = importlib.import_module(module_name)
        except ModuleNotFoundError:
            module_name, _, name = module_name.rpartition(".")
            names.insert(0, name)
            continue
        for name in names:
            value = getattr(value, name)
        return value


def public_names(module: Any) -> list[str]:
    """Return `__all__` of a module or, without one, the functions and classes that it defines."""
    own = [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__
    ]
    return list(getattr(module, "__all__", [name for name in own if not name.startswith("_")]))


def reference_entries() -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of each entry of the pages in docs/reference."""
    for page in sorted((ROOT / "docs" / "reference").glob("*.md")):
        for path in re.findall(r"^::: (\S+)$", page.read_text("utf-8"), re.MULTILINE):
            value = resolve(path)
            if not inspect.ismodule(value):
                yield path, value
                continue
            for name in public_names(value):
                yield f"{path}.{name}", getattr(value, name)


def section(docstring: str, title: str) -> str:
    """Return the indented lines below a title such as `Args:`."""
    match = re.search(rf"^{title}:\n((?: {{4}}.*\n?|\n)*)", docstring, re.MULTILINE)
    return match[1] if match else ""


def fields_with_docstring(cls: type) -> set[str]:
    """Return the fields of a class and of its bases that a string below them documents."""
    names: set[str] = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("occupax"):
            continue
        (definition,) = ast.parse(inspect.cleandoc("\n" + inspect.getsource(base))).body
        assert isinstance(definition, ast.ClassDef)
        for field, following in zip(definition.body, definition.body[1:], strict=False):
            is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
                names.add(field.target.id)
    return names


def undocumented_arguments(value: Callable[..., Any], docstring: str) -> list[str]:
    """Return the parameters of a function or constructor that its docstring does not explain."""
    names = list(inspect.signature(value).parameters)
    documented = section(docstring, "Args") + section(docstring, "Attributes")
    by_field = fields_with_docstring(value) if inspect.isclass(value) else set[str]()
    return [
        name
        for name in names
        if name not in {"self", "cls"} | by_field
        and not name.startswith("_")
        and not re.search(rf"^ {{4}}(?:[\w*, ]*\W)?{name}\b[\w*, ]*:", documented, re.MULTILINE)
    ]


def lacks_result(value: Callable[..., Any], docstring: str) -> bool:
    """Return whether a function returns a value that its docstring does not explain."""
    annotation = inspect.signature(value).return_annotation
    has_result = annotation not in (None, "None", "NoReturn", inspect.Signature.empty)
    has_section = section(docstring, "Returns") or section(docstring, "Yields")
    return has_result and not has_section


def check_entry(path: str, value: Any) -> Iterator[str]:
    """Yield the gaps in the documentation of a function or class of the reference."""
    if not callable(value) or (inspect.isclass(value) and issubclass(value, Exception)):
        return
    docstring = inspect.getdoc(value) or ""
    if inspect.isclass(value):
        docstring = f"{docstring}\n\n{inspect.cleandoc(value.__init__.__doc__ or '')}"
    try:
        missing = undocumented_arguments(value, docstring)
    except (ValueError, TypeError):  # type aliases and classes of the interpreter
        return
    if missing:
        yield f"{path}: no Args: for {', '.join(missing)}"
    if not inspect.isclass(value) and lacks_result(value, docstring):
        yield f"{path}: no Returns:"


@cache
def reference_offences() -> list[Offence]:
    """Return the entries of the reference without `Args:` or `Returns:`."""
    offences: list[Offence] = []
    for path, value in reference_entries():
        for text in check_entry(path, value):
            module = resolve(getattr(value, "__module__", path))
            file = Path(module.__file__).relative_to(SOURCES).as_posix()
            offences.append(Offence("arguments", file, text))
    return offences


@pytest.mark.parametrize("rule", list(MAX_OFFENCES))
def test_the_sources_follow_the_rules(rule: str):
    offences = [*source_offences(), *reference_offences()]
    broken = [f"{file}:{text}" for name, file, text in offences if name == rule]
    assert len(broken) <= MAX_OFFENCES[rule], "\n".join(broken)


def test_imports_inside_functions_have_a_reason():
    missing: list[str] = []
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text("utf-8")
        offences = check_lazy_imports(ast.parse(text), text.splitlines())
        missing.extend(f"{path.relative_to(SOURCES)}:{offence}" for offence in offences)
    assert missing == []


def test_an_import_without_a_reason_is_found():
    text = "def f():\n    import gymnasium\n\n    from occupax import jobs\n"
    assert list(check_lazy_imports(ast.parse(text), text.splitlines())) == [
        "4: from occupax import jobs"
    ]


def test_the_rules_find_an_offence():
    tree = ast.parse('def f(found):\n    """What it does; and how."""\n')
    broken = [
        rule for node in ast.walk(tree) for rule, _ in [*check_docstring(node), *check_name(node)]
    ]
    assert sorted(broken) == ["name", "opening", "summary"]


def test_an_undocumented_argument_is_found():
    def area(width: float, height: float) -> float:
        """Return the area.

        Args:
            width: extent from left to right.
        """
        return width * height

    gaps = list(check_entry("area", area))
    assert gaps == ["area: no Args: for height", "area: no Returns:"]


def test_the_reference_has_many_entries():
    assert len(list(reference_entries())) > 200
