"""A model as Python holds it: arrays with their ids, pandas frames, or files as for `mitl evaluate`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.errors import MetricError, UsageError
from mitl.stages.evaluating.model_files import (
    EmbeddingModel,
    RawModel,
    checked_ids,
    checked_similarities,
    read_model,
)
from mitl.stages.evaluating.request import ModelFiles, Similarity

Embeddings = Mapping[Any, Any] | tuple[Iterable[Any], Any] | pd.DataFrame | str | Path
"""``{id: vector}``; the ids and an array (N, D) or (N, K, D); a frame (N, D) indexed by ids; or a file with both."""
Similarities = tuple[Any, Iterable[Any], Iterable[Any]] | pd.DataFrame | str | Path
"""An array (I, C), higher is closer, with the I image ids and the C caption ids; a frame of them; or a file."""

_WANTED = "give images and captions, or similarities=(array, image ids, caption ids)"


def model_of(
    images: Embeddings | None,
    captions: Embeddings | None,
    similarities: Similarities | None,
    similarity: Similarity,
) -> RawModel:
    """The model, under its own ids as texts.

    Raises:
        UsageError: neither embeddings of both sides nor similarities are given, or all of them.
        MetricError, AnnotatorError: arrays and ids do not fit, a number is not finite, an embedding is all zeros, a
            file is missing or malformed.
    """
    if similarities is not None:
        if images is not None or captions is not None:
            raise UsageError("embeddings and similarities are given; give one of the two")
        return _of_similarities(similarities, similarity)
    if images is None or captions is None:
        raise UsageError(_WANTED)
    from annotators.inputs.embedding_files import EmbeddingTable, read_embeddings, refuse_unusable

    tables = []
    for what, given in (("image", images), ("caption", captions)):
        if isinstance(given, (str, Path)):
            tables.append(read_embeddings(_there(given), what=f"{what}s"))
            continue
        listed, vectors = _listed(what, given)
        refuse_unusable(f"{what}s", listed, vectors)
        tables.append(EmbeddingTable(Path(f"{what}s"), checked_ids(Path(f"{what}s"), listed, what), vectors))
    widths = [table.embedding.shape[1:] for table in tables]
    if widths[0] != widths[1]:
        raise MetricError(
            f"embeddings differ in width: images {widths[0]}, captions {widths[1]}; take both from one model"
        )
    return EmbeddingModel("model", tables[0], tables[1], similarity)


def _of_similarities(given: Similarities, similarity: Similarity) -> RawModel:
    if isinstance(given, (str, Path)):
        return read_model(ModelFiles("model", similarities=_there(given)), similarity)
    if isinstance(given, pd.DataFrame):
        given = given.to_numpy(), given.index, given.columns
    if not isinstance(given, tuple) or len(given) != 3:
        raise UsageError(f"similarities are {type(given).__name__}; {_WANTED}")
    values, image_ids, caption_ids = given
    ids = list(map(str, image_ids)), list(map(str, caption_ids))
    return checked_similarities("model", Path("similarities"), _array("similarities", values), *ids)


def _there(given: str | Path) -> Path:
    path = Path(given)
    if not path.is_file():
        raise MetricError(f"there is no file {str(path)!r}; it should hold embeddings or similarities")
    return path


def _listed(what: str, given: Any) -> tuple[list[str], NDArray[np.float32]]:
    if isinstance(given, pd.DataFrame):
        given = given.index, given.to_numpy()
    elif isinstance(given, Mapping):
        given = list(given), list(given.values())
    if not isinstance(given, tuple) or len(given) != 2:
        raise UsageError(
            f"embeddings of {what}s are {type(given).__name__}; give {{id: vector}}, (ids, array) or a file"
        )
    listed = [str(one) for one in given[0]]
    array = _array(f"embeddings of {what}s", given[1], np.float32)
    if array.ndim not in (2, 3) or len(array) != len(listed):
        raise MetricError(
            f"embeddings of {what}s have the shape {array.shape} for {len(listed):,} ids; they should be numbers of "
            "shape (ids, width)"
        )
    return listed, array


def _array(what: str, given: Any, dtype: type[np.float32] | None = None) -> NDArray[Any]:
    """Also of a tensor; one that learns or lies on a card is none."""
    try:
        return np.asarray(given, dtype)
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise MetricError(f"{what} are no array of numbers: {reason}") from error
