"""axe-core's verdict on a page or on a frame of it."""

from __future__ import annotations

from importlib import resources
from typing import Any

import pytest


def violations(page: Any, frame: Any = None) -> list[str]:
    """What axe finds wrong in this document, best practices included; frames in it are scanned on their own.

    In dark colors only the contrast is looked at again, since nothing else depends on them.
    """
    pytest.importorskip("axe_playwright_python", reason="pip package axe-playwright-python is missing")
    document = frame or page
    if not document.evaluate("'axe' in window"):
        axe = resources.files("axe_playwright_python").joinpath("axe.min.js")
        document.evaluate(axe.read_text(encoding="utf-8"))
    page.emulate_media(color_scheme="dark")
    found = _scan(document, ", runOnly: ['color-contrast']")
    page.emulate_media(color_scheme="light")
    return found + _scan(document, "")


def _scan(document: Any, more: str) -> list[str]:
    run = f"axe.run(document, {{iframes: false, resultTypes: ['violations']{more}}})"
    return [
        f"{rule['id']}: {rule['help']}: {', '.join(str(node['target']) for node in rule['nodes'][:3])}"
        for rule in document.evaluate(run)["violations"]
    ]
