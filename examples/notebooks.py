"""Run the notebooks in docs/notebooks, store their outputs, and render them as pages.

python examples/notebooks.py                  runs all of them and writes their outputs
python examples/notebooks.py first-steps      one of them

`mkdocs` takes this file as a hook: each notebook becomes a page with its outputs, in the look of
the other pages.
"""

import ast
import base64
import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
Cell = dict[str, Any]


def read(path: Path) -> list[Cell]:
    """The cells of a notebook."""
    return json.loads(path.read_text("utf-8"))["cells"]


def run(cells: list[Cell]) -> list[list[Cell]]:
    """Run the code of a notebook from top to bottom.

    Args:
        cells: of the notebook.

    Returns:
        The outputs of each cell, in the form of the file: what was printed, then figures, then the
        value of the last expression.
    """
    import matplotlib as mpl

    mpl.use("agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    return [
        _outputs("".join(cell["source"]), names) if cell["cell_type"] == "code" else []
        for cell in cells
    ]


def _outputs(code: str, names: dict[str, Any]) -> list[Cell]:
    tree = ast.parse(code)
    last = tree.body[-1] if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(ast.Module(tree.body[: -1 if last else None], []), "<cell>", "exec"), names)  # noqa: S102
        shown = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names) if last else None  # noqa: S307
    outputs: list[Cell] = []
    if printed.getvalue():
        outputs.append(
            {"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())}
        )
    values = [*_open_figures(), *([] if shown is None or code.rstrip().endswith(";") else [shown])]
    return outputs + [
        {"output_type": "display_data", "metadata": {}, "data": _shown(value)} for value in values
    ]


def _open_figures() -> list[Any]:
    """The figures of pyplot that a cell has drawn, which Jupyter shows at its end."""
    import matplotlib.pyplot as plt

    figures = [plt.figure(number) for number in plt.get_fignums()]
    plt.close("all")
    return figures


def _shown(value: Any) -> dict[str, Any]:
    """A value as Jupyter shows it: a figure as a picture, everything else as text."""
    if not hasattr(value, "savefig"):
        return {"text/plain": _lines(repr(value))}
    picture = io.BytesIO()
    value.savefig(picture, format="png", dpi=110, bbox_inches="tight", metadata={"Software": None})
    return {"image/png": base64.b64encode(picture.getvalue()).decode(), "text/plain": ["<Figure>"]}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def store(path: Path) -> None:
    """Run a notebook and write what it shows into its file."""
    notebook = json.loads(path.read_text("utf-8"))
    for cell, outputs in zip(notebook["cells"], run(notebook["cells"]), strict=True):
        if cell["cell_type"] == "code":
            cell["outputs"] = outputs
    path.write_text(
        json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n", "utf-8"
    )


def as_markdown(cells: list[Cell], name: str) -> str:
    """A notebook as the Markdown of a page."""
    parts: list[str] = []
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {"text/plain": output.get("text", [])})
            if "image/png" in data:
                parts.append(
                    f"![What the code above draws](data:image/png;base64,{data['image/png']})"
                )
            else:
                parts.append(
                    "```{.text .output}\n" + "".join(data["text/plain"]).rstrip() + "\n```"
                )
    parts.append(f"This page is a notebook with its outputs: [{name}]({name}).")
    return "\n\n".join(parts) + "\n"


def on_files(files: Any, config: Any) -> Any:
    """Add a page for each notebook. Hook of MkDocs."""
    from mkdocs.structure.files import File

    for path in sorted(FOLDER.glob("*.ipynb")):
        text = as_markdown(read(path), path.name)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
    return files


if __name__ == "__main__":
    for chosen in sys.argv[1:] or sorted(it.stem for it in FOLDER.glob("*.ipynb")):
        store(FOLDER / f"{chosen}.ipynb")
        print(chosen)
