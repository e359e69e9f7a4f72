"""A dry run on disk: every request as JSON, every page as HTML to look at, and the bill."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from mitl.errors import UsageError
from mitl.hits.rendering import HTML_QUESTION_NAMESPACE
from mitl.stages.publishing.pages import Pages
from mitl.stages.publishing.rehearsal import DueHit

BILL, REQUESTS, PAGES = "bill.txt", "requests", "pages"
_OURS = re.compile(r"[0-9]{5}-[A-Za-z]+\.json|[^/]+\.html")
_SRC = re.compile(r'(?<=src=")([^"]*)(?=")')


class DryRunFolder:
    """Where a dry run is written; an earlier one there is replaced, anything else is left alone."""

    def __init__(self, path: Path) -> None:
        """Make the folder ready.

        Raises:
            UsageError: it holds something else than an earlier dry run.
        """
        self.path = path
        self.n_requests = 0
        if path.exists() and not path.is_dir():
            raise UsageError(f"{path} is no folder; name another one with --to")
        if path.is_dir() and any(path.iterdir()) and not (path / BILL).is_file():
            raise UsageError(f"{path} holds something else than a dry run; name an empty folder with --to")
        for name in (REQUESTS, PAGES):
            (path / name).mkdir(parents=True, exist_ok=True)
            for file in (path / name).iterdir():
                if _OURS.fullmatch(file.name):
                    file.unlink()

    def write_bill(self, lines: Sequence[str]) -> None:
        """Write the bill as it was printed."""
        (self.path / BILL).write_text("\n".join(lines) + "\n", encoding="utf-8")

    def keep(self, operation: str, parameters: Mapping[str, Any]) -> None:
        """Write one request: its parameters as boto3 takes them, numbered in the order of sending."""
        self.n_requests += 1
        file = self.path / REQUESTS / f"{self.n_requests:05d}-{operation}.json"
        text = json.dumps(parameters, ensure_ascii=False, indent=1)
        file.write_text(text + "\n", encoding="utf-8")

    def write_pages(self, due: Sequence[DueHit], pages: Pages) -> None:
        """Write each HIT's page, its pictures taken from where they lie."""
        folder = self.path / PAGES
        files = pages.files_by_source()
        near = {escape(source): quote(os.path.relpath(file, folder)) for source, file in files.items()}
        for one in due:
            root = ElementTree.fromstring(pages.question(one.items, one.wording))  # noqa: S314 - we made it
            html = root.findtext(f"{{{HTML_QUESTION_NAMESPACE}}}HTMLContent") or ""
            shown = _SRC.sub(lambda found: near.get(found[1], found[1]), html)
            name = one.hit.key.replace(":", "-")
            (folder / f"{name}.html").write_text(shown, encoding="utf-8")
