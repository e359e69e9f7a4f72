"""Notebooks become pages of the site, as they were executed: a page ``NAME.md`` beside each ``NAME.ipynb``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

_TABLE = re.compile(r'<style scoped>.*?</style>|(?<=<table) border="1" class="dataframe"', re.DOTALL)
_LINK = re.compile(r"\((notebooks/[\w-]+)\.ipynb\)")
_SHOWN = ("text/html", "text/markdown", "text/plain")


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """The files of the site with a page for each notebook."""
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            cells = json.loads(Path(str(file.abs_src_path)).read_text(encoding="utf-8"))["cells"]
            place = file.src_uri.removesuffix("ipynb") + "md"
            files.append(File.generated(config, place, content=page(cells, Path(file.src_uri).name)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page's text with links to notebooks' pages in place of the files."""
    return _LINK.sub(r"(\1.md)", markdown)


def page(cells: list[dict[str, Any]], name: str) -> str:
    """The cells as Markdown: texts, code in fences, results as pandas and mitl show them."""
    parts = [part for cell in cells for part in _parts(cell)]
    parts.insert(1, f"[Download this notebook]({name})")
    return "\n\n".join(parts) + "\n"


def _parts(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            yield _plain("".join(output["text"]))
            continue
        kind = next(kind for kind in _SHOWN if kind in output["data"])
        text = "".join(output["data"][kind])
        # A blank line would end the block of HTML.
        yield _plain(text) if kind == "text/plain" else re.sub(r"\n\s*\n", "\n", _TABLE.sub("", text).strip())


def _plain(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```"
