"""Runs the code of pages and writes what each block prints below it.

python examples/outputs.py docs/training.md docs/scale.md
"""

import io
import os
import re
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"(```python\n(.*?)```\n)(\n```{\.text \.output}\n.*?```\n)?", re.DOTALL)
DOCS = Path(__file__).parents[1] / "docs"
FILE = re.compile(r"# (\w+\.py)\n")


def with_outputs(text: str) -> str:
    """Return the text of a page with the outputs of its code.

    Blocks that begin with the name of a file are saved instead of run.
    """
    names: dict[str, Any] = {"__name__": "__main__"}

    def run(found: re.Match[str]) -> str:
        block, code, _ = found.groups()
        if named := FILE.match(code):
            Path(named[1]).write_text(code)
            return found[0]
        with redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, "<page>", "exec"), names)  # noqa: S102
        shown = "\n".join(line.rstrip() for line in printed.getvalue().strip("\n").splitlines())
        return f"{block}\n```{{.text .output}}\n{shown}\n```\n" if shown else block

    return BLOCK.sub(run, text)


def save_files(folder: Path) -> None:
    """Save the blocks of all pages that begin with the name of a file, as a reader would."""
    for page in DOCS.glob("*.md"):
        for _, code, _ in BLOCK.findall(page.read_text("utf-8")):
            if named := FILE.match(code):
                (folder / named[1]).write_text(code)


if __name__ == "__main__":
    sys.path.insert(0, "")
    for page in [Path(name).resolve() for name in sys.argv[1:]]:
        with tempfile.TemporaryDirectory() as folder:
            save_files(Path(folder))
            os.chdir(folder)
            page.write_text(with_outputs(page.read_text("utf-8")), "utf-8")
        print(page.name)
