"""The files that travel with the code: where templates and migrations lie, and pages made from templates.

A wheel carries them inside the package; a source checkout keeps them at its top level.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2

_PACKAGE = Path(__file__).resolve().parent


def folder(name: str) -> Path:
    """The folder ``hit_templates`` or ``migrations``, bundled or in the source checkout."""
    bundled = _PACKAGE / "_bundled" / name
    return bundled if bundled.is_dir() else _PACKAGE.parent / name


def page_templates(*folders: Path, **more: Any) -> jinja2.Environment:
    """The templates of folders, the first that has one; values are escaped, and one that was not given is an error."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,  # code that runs must not meet a page of a newer mitl, nor look at every file's time
        **more,
    )


def read_all(templates: jinja2.Environment) -> jinja2.Environment:
    """The same with every template read, where the files may be exchanged before one is used."""
    for name in templates.list_templates(extensions=["j2"]):
        templates.get_template(name)
    return templates
