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
    """The templates, in which all text is escaped and a missing value is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found: Any = Environment(
        loader=PackageLoader(__name__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    found.filters["interactive"] = interactive
    style, script = (
        files(__name__).joinpath(name).read_text("utf-8") for name in ("page.css", "page.js")
    )
    checksum = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    found.globals.update(style=style, script=script, checksum=checksum)
    return found
