"""The release folder's first page."""

from __future__ import annotations

import json
from collections.abc import Iterable

from mitl.positives.croissant import FILE_NOTES
from mitl.positives.markdown import plain, table
from mitl.positives.release_input import ReleaseInput
from mitl.positives.summary import Summary
from mitl.records import Direction, IdKind, several

_TABLES = ("positives", "negatives", "judgements", "posteriors", "ids")
_REST = {
    "croissant.json": "The tables and their columns, described for machines (MLCommons Croissant).",
    "manifest.json": "Hashes of these files, and the configuration, seeds and versions that rebuild them.",
}


def readme(data: ReleaseInput, summary: Summary, files: Iterable[str]) -> str:
    """What is in the folder and how to load it; the front matter lets the ``datasets`` library load the tables by name.

    Args:
        files: names of the release's other files, those that are not written yet left out.
    """
    names = set(files)
    body = [
        f"# {plain(data.name)}",
        f"{several(summary.positives, 'pair')} of {plain(data.dataset)} in which the caption describes the image. How "
        "they came to be is told in `datasheet.md`.",
        _listing(names),
        "`image_to_caption.json` and `caption_to_image.json` load in the `eccv_caption` package:",
        "```python\nfrom eccv_caption import Metrics\n\nmetrics = Metrics()\n"
        'metrics.set_eccv_gts("image_to_caption.json", "caption_to_image.json")\n```',
        _lists(summary),
    ]
    if data.id_kind is IdKind.STRING:
        body.append(
            "The integers in them and in `mturk_parsed.csv` stand for ids that are text: `ids.parquet` tells which."
        )
    if summary.texts is not None:
        body.append(
            "`judgements.parquet` holds the workers' own words in its column `text`, after a scan that took addresses, "
            "long numbers and ids out."
        )
    return "---\n" + "\n".join(_front(data, names)) + "\n---\n\n" + "\n\n".join(body) + "\n"


def _front(data: ReleaseInput, files: Iterable[str]) -> list[str]:
    front = [f"pretty_name: {json.dumps(data.name, ensure_ascii=False)}"]
    if data.card.license:
        front.append(f"license: {json.dumps(data.card.license, ensure_ascii=False)}")
    front.append("configs:")
    for name in _TABLES:
        if f"{name}.parquet" in files:
            front += [f"- config_name: {name}", f"  data_files: {name}.parquet"]
            front += ["  default: true"] if name == "positives" else []
    return front


def _listing(files: set[str]) -> str:
    notes = {name: note for name, (_, note) in FILE_NOTES.items() if name in files} | _REST
    return table(("file", "holds"), [(f"`{name}`", note) for name, note in notes.items()])


def _lists(summary: Summary) -> str:
    """Whose positives the JSONs list."""
    if not any(summary.queries_asked.values()):
        return (
            "They are empty, as it is not known which images and captions searched: see `positives.parquet`."
        )
    found = " and ".join(
        f"{several(summary.query_positives[direction], 'positive')} of "
        f"{several(summary.queries_listed[direction], f'{noun} query', f'{noun} queries')}"
        for direction, noun in ((Direction.I2T, "image"), (Direction.T2I, "caption"))
    )
    return f"They list {found}: the positives of other images and captions were not looked for."
