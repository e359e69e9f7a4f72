"""What a captioning system wrote about images, read from Parquet or JSON by the data set's own image ids."""

from __future__ import annotations

import json
from pathlib import Path

from mitl.errors import AnnotatorError

MachineCaptions = dict[str, str | None]
"""External image id -> caption; None where the system skipped the image."""


def read_machine_captions(path: Path, captioner: str) -> MachineCaptions:
    """The captions of one system: the column ``captioner`` of a Parquet file with a column ``image_id``, or a JSON
    list of ``{"image_id": …, "caption": …}``, which holds one system. An empty caption counts as none.

    Raises:
        AnnotatorError: unreadable, a missing column or key, an image named twice, no caption at all.
    """
    readers = {".parquet": _from_parquet, ".json": _from_json}
    reader = readers.get(path.suffix)
    if reader is None:
        raise AnnotatorError(
            f"{str(path)!r} is no file of machine captions; it should end in .parquet or .json"
        )
    captions: MachineCaptions = {}
    for image_id, text in reader(path, captioner):
        if text is not None and not isinstance(text, str):
            raise AnnotatorError(
                f"the caption of image {image_id!r} in {str(path)!r} is {text!r}, not a text"
            )
        if image_id in captions:
            raise AnnotatorError(f"{str(path)!r} has image {image_id!r} twice")
        captions[image_id] = text.strip() or None if text else None
    if not any(captions.values()):
        raise AnnotatorError(f"{str(path)!r} holds no caption of {captioner!r}")
    return captions


def _from_parquet(path: Path, captioner: str) -> list[tuple[str, object]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = pq.read_schema(path).names
        if "image_id" not in names:
            raise AnnotatorError(f"{str(path)!r} lacks the column 'image_id'; it holds {', '.join(names)}")
        if captioner not in names or captioner == "image_id":
            known = ", ".join(name for name in names if name != "image_id")
            raise AnnotatorError(f"{str(path)!r} has no captioner {captioner!r}; it holds {known}")
        table = pq.read_table(path, columns=["image_id", captioner])
    except (pa.ArrowInvalid, OSError) as error:
        raise AnnotatorError(f"{str(path)!r} is not readable as Parquet: {error}") from error
    ids, texts = table["image_id"].to_pylist(), table[captioner].to_pylist()
    return [(str(image_id), text) for image_id, text in zip(ids, texts, strict=True)]


def _from_json(path: Path, captioner: str) -> list[tuple[str, object]]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise AnnotatorError(f"{str(path)!r} is not readable as JSON: {error}") from error
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and "image_id" in row and "caption" in row for row in rows
    ):
        raise AnnotatorError(f'{str(path)!r} should be a list of {{"image_id": …, "caption": …}}')
    return [(str(row["image_id"]), row["caption"]) for row in rows]
