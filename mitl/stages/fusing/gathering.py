"""What fusion reads of a project: rankings on disk, vectors of items, captions, and the answers that may speak."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from annotators.base import Annotator, Encoded, Modality, is_reusable, reads_pictures
from annotators.item_encoders import KNOWN, build_encoder, item_vectors
from mitl.core.arrays import Ints, contains
from mitl.crowd.context import Context
from mitl.db.store import columns, proposals
from mitl.db.store.proposals import RunRow
from mitl.errors import AnnotatorError, RetrievalError
from mitl.fusion.evidence import ANSWERED, FusionEvidence, Joint, UnitVectors, joined
from mitl.proposals.candidates import NamedRanking, ranking_path
from mitl.proposals.candidates import propose as take_top
from mitl.records import Direction
from mitl.records.frames import LABELS, PROPOSALS, counts, frame
from mitl.retrieval.encodings import Chunk
from mitl.retrieval.rankings import read_ranking
from mitl.stages.proposing.computing import ComputeContext
from mitl.stages.proposing.ranking import SearchedItems, read_items
from mitl.stages.proposing.trained import with_trained

_WORD = re.compile(r"\w+")
_IMPORTED = "imported"
"""In place of a fingerprint, where a file of past work says what an annotator proposed."""
_POSITIVE = np.array([label.is_positive for label in LABELS])


def answered(context: Context, excluded: Ints) -> pd.DataFrame:
    """``ANSWERED``: the usable answers in asked roles, without those on the excluded pairs (ascending)."""
    judgements = columns.judgement_columns(context.session, context.environment)
    kept = judgements[counts(judgements) & ~contains(excluded, judgements["pair"].to_numpy())]
    is_yes = pd.Series(_POSITIVE[kept["label"].to_numpy()], index=kept.index)
    by_pair = is_yes.groupby(kept["pair"]).agg(["sum", "size"])
    yes = by_pair["sum"].to_numpy(np.float64)
    return frame(
        ANSWERED,
        {"pair": by_pair.index.to_numpy(), "yes": yes, "no": by_pair["size"].to_numpy(np.float64) - yes},
    )


def evidence(
    context: Context, answers: pd.DataFrame, check: Callable[[FusionEvidence], None] = lambda bare: None
) -> FusionEvidence:
    """All that is known of the ranked pairs.

    Args:
        check: raises where rankings and answers do not suffice; called before items are encoded, which takes longest.

    Raises:
        StoreError: nothing has been proposed yet.
        RetrievalError: a ranking file is damaged.
    """
    _, items = read_items(context.session, context.settings)
    proposals.latest_run(context.session)
    runs = proposals.runs(context.session)
    bare = FusionEvidence(
        ranked=ranked(context, items, runs),
        captions=np.array([caption.id for caption in items.captions], np.int64),
        image_of=np.array([caption.image_id for caption in items.captions], np.int64),
        answers=answers,
        words=tuple(tuple(_WORD.findall(caption.text.lower())) for caption in items.captions),
    )
    check(bare)
    compute = ComputeContext.of(with_trained(context.settings), progress=context.progress)
    joint = tuple(_joint(compute, items, annotator_names(context, runs)))
    captions = [vectors.captions for vectors in joint]
    return replace(
        bare,
        texts=(*_texts(compute, items), *joined("annotators", captions)),
        pictures=joined("annotators", [vectors.images for vectors in joint]),
        joint=joint,
    )


def annotator_names(context: Context, runs: Sequence[RunRow]) -> list[str]:
    """The annotators of these runs, each once, without those that were withdrawn."""
    names = dict.fromkeys(annotator["name"] for run in runs for annotator in run.config["annotators"])
    gone = proposals.withdrawn_names(context.session)
    return [name for name in names if name not in gone]


def ranked(context: Context, items: SearchedItems, runs: Sequence[RunRow]) -> pd.DataFrame:
    """``PROPOSALS``: the ranking files of all runs to their full depth, and what was proposed where a file is gone.

    A pair that several runs ranked keeps its best rank. What other weights under an annotator's name ranked is on a
    scale of its own, so it stands as an annotator of its own. What withdrawn annotators ranked is not read.
    """
    sides = {
        direction: tuple(
            {item.external_id: item.id for item in items.side(direction, gallery=gallery)}
            for gallery in (False, True)
        )
        for direction in Direction
    }
    newest = proposals.fingerprints(runs)
    parts = []
    for run in runs:
        found = [columns.proposal_columns(context.session, run_id=run.id)]
        for name in annotator_names(context, [run]):
            for direction in Direction:
                path = ranking_path(context.settings.runs / run.hash, name, direction)
                if path.is_file():
                    ranking = read_ranking(path, *sides[direction])
                    found.append(
                        take_top([NamedRanking(name, direction, ranking)], ranking.item_ids.shape[1])
                    )
        rows = pd.concat([part.astype({"annotator": "str"}) for part in found])
        weights = proposals.fingerprints([run])
        called = {
            name: name if mark == newest.get(name, _IMPORTED) else f"{name} ({mark[:8]})"
            for name in rows["annotator"].unique()
            for mark in [weights.get(name, _IMPORTED)]
        }
        parts.append(rows.assign(annotator=rows["annotator"].map(called)))
    every = pd.concat(parts, ignore_index=True).sort_values(["pair", "annotator", "direction", "rank"])
    once = every.drop_duplicates(["pair", "annotator", "direction"])
    return frame(PROPOSALS, {name: once[name].to_numpy() for name in PROPOSALS})


def _texts(compute: ComputeContext, items: SearchedItems) -> Iterator[UnitVectors]:
    """By each encoder of captions that is installed."""
    for name, encoder in KNOWN.items():
        if encoder.modality != "caption" or not encoder.is_installed:
            continue
        built = build_encoder(name, "caption", {}, compute.project)
        try:
            yield _vectors(name, compute.encoded(built, "caption", items.captions))
        except AnnotatorError:  # words weighs nothing where the captions share no word
            continue


def _joint(compute: ComputeContext, items: SearchedItems, names: Iterable[str]) -> Iterator[Joint]:
    """The annotators whose vectors of both sides are at hand: kept, or read from a file."""
    for name in names:
        try:
            built = compute.build(name)
            if not isinstance(built, Annotator):
                continue
            sides = [_kept(compute, built, modality, items) for modality in ("image", "caption")]
            images, captions = (_vectors(name, side) for side in sides)
        except (AnnotatorError, RetrievalError, _NotKeptError):
            continue  # another annotator's features are no worse for it
        if images.rows.shape[1] == captions.rows.shape[1]:
            yield Joint(images, captions)


class _NotKeptError(Exception):
    """What would have to be encoded is not: fusion takes what proposing has left."""


def _refuse(chunks: Iterable[Chunk]) -> Iterator[tuple[int, Encoded]]:
    raise _NotKeptError


def _kept(compute: ComputeContext, annotator: Annotator, modality: Modality, items: SearchedItems) -> Encoded:
    of = items.images if modality == "image" else items.captions
    if is_reusable(annotator):
        return compute.encodings.encoded(annotator, modality, of, _refuse)
    if reads_pictures(annotator, unsaid=True):
        raise _NotKeptError
    return compute.encoded(annotator, modality, of)


def _vectors(name: str, encoded: Encoded) -> UnitVectors:
    return UnitVectors(
        name, np.asarray(encoded.ids, np.int64), np.asarray(item_vectors(name, encoded), np.float32)
    )
