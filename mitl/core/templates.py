"""Pages made from templates that escape whatever is put into them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2


def page_templates(folder: Path, **more: Any) -> jinja2.Environment:
    """The templates of a folder: all values are escaped, and one that was not given is an error."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        **more,
    )
