"""Where the files live that travel with the code: templates and migrations.

A wheel carries them inside the package; a source checkout keeps them at its top level.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def folder(name: str) -> Path:
    """The folder ``hit_templates`` or ``migrations``, bundled or in the source checkout."""
    bundled = _PACKAGE / "_bundled" / name
    return bundled if bundled.is_dir() else _PACKAGE.parent / name
