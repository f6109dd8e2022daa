"""Self-contained HTML pages.

* `templates/`: templates of Jinja. `page.css`, `page.js`: style and script of every page.
* `figures`: drawings with the numbers behind them.
"""

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from occupax.analysis.page.figures import interactive


class TableCell(NamedTuple):
    """Table cell with a link to a part of the page, or with the bounds of a number."""

    text: str
    anchor: str = ""
    bounds: str = ""


def render(template: str, **data: Any) -> str:
    """Return an HTML page from a file in `templates/`.

    The page runs no script except its own and loads no other file.
    """
    return environment().get_template(template).render(data)


@cache
def environment() -> Any:
    """Return the templates of pages. All text is escaped, and a missing value is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates: Any = Environment(
        loader=PackageLoader(__name__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    templates.filters["interactive"] = interactive
    style = files(__name__).joinpath("page.css").read_text("utf-8")
    script = files(__name__).joinpath("page.js").read_text("utf-8")
    digest = hashlib.sha256(script.encode()).digest()
    checksum = base64.b64encode(digest).decode()
    templates.globals.update(style=style, script=script, checksum=checksum)
    return templates
