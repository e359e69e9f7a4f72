"""Which encoders choose the pairs that are to be rated, and each item's nearest others by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from annotators.base import Annotator, Encoded, Modality
from annotators.item_encoders import KNOWN, OneSided, build_encoder, default_encoders, item_vectors
from mitl.errors import AnnotatorError, ProposalError
from mitl.proposals.crisscross import CaptionGroups, group_means, nearest
from mitl.settings import Settings
from mitl.stages.proposing.computing import ComputeContext, split_scope, with_trained
from mitl.stages.proposing.ranking import AnnotatorRun, SearchedItems, require_pictures

NO_ENCODER = "none"
"""Named as an encoder: leave these pairs out."""
LONGEST_NAME = 200
DEFAULT_COUNTS: dict[Modality, int] = {"caption": 2, "image": 1}
"""Encoders of a side where none is named: as many as CxC had."""


@dataclass(frozen=True, slots=True)
class SideEncoders:
    """The encoders of one side, ready to work."""

    modality: Modality
    runs: tuple[AnnotatorRun, ...]

    def described(self) -> list[tuple[Modality, str, str]]:
        """Each encoder's side, its name and what it is."""
        other = f"the {self.modality}s' side of this annotator or file"
        return [
            (self.modality, name, KNOWN[name].what if name in KNOWN else other)
            for name in (run.name for run in self.runs)
        ]


def side_encoders(
    settings: Settings,
    items: SearchedItems,
    compute: ComputeContext,
    modality: Modality,
    names: Sequence[str],
    *,
    are_scenes: bool = False,
) -> SideEncoders:
    """The encoders of these names, or those that there should be where none is named.

    Args:
        are_scenes: the items are of the generated world, which decides the default.

    Raises:
        AnnotatorError: one is unknown, lacks something or reads the other side, two are called alike, or too little is
            installed for the default.
    """
    if list(names) == [NO_ENCODER]:
        return SideEncoders(modality, ())
    if NO_ENCODER in names:
        raise AnnotatorError(
            f"{NO_ENCODER!r} stands for no encoder of {modality}s; name it alone or leave it out"
        )
    chosen = list(names) or _default(modality, are_scenes=are_scenes)
    configs = {
        name: split_scope(name, config)[0]
        for name, config in with_trained(settings, chosen).annotator_config.items()
    }
    built = [build_encoder(name, modality, configs, settings.project) for name in chosen]
    twice = [
        one.name for place, one in enumerate(built) if one.name in [other.name for other in built[:place]]
    ]
    if twice:
        raise AnnotatorError(
            f"two encoders of {modality}s are called {twice[0]!r}; name each once, rename one file"
        )
    long = next((one.name for one in built if len(one.name) > LONGEST_NAME), None)
    if long is not None:
        raise AnnotatorError(
            f"encoder {long!r} has a name of {len(long)} characters, and {LONGEST_NAME} are the most; "
            "rename it"
        )
    if modality == "image":
        _require_pictures(built, items)
    return SideEncoders(modality, tuple(AnnotatorRun(encoder, items, compute) for encoder in built))


def _require_pictures(encoders: Sequence[Annotator], items: SearchedItems) -> None:
    try:
        for encoder in encoders:
            require_pictures(encoder, items.images)
    except AnnotatorError as error:
        raise AnnotatorError(
            f"{error}; or leave out caption pairs by images with --image-encoder {NO_ENCODER}"
        ) from error


def _default(modality: Modality, *, are_scenes: bool) -> list[str]:
    names = default_encoders(modality, are_scenes=are_scenes)
    wanted = DEFAULT_COUNTS[modality]
    if len(names) < wanted:
        extras = sorted(
            {extra for it in KNOWN.values() if it.modality == modality for extra in it.extra.split(",")}
        )
        what = ", ".join(f"{name} ({it.what})" for name, it in KNOWN.items() if it.modality == modality)
        raise AnnotatorError(
            f"{wanted} encoder{'s' * (wanted > 1)} of {modality}s should choose, but {len(names) or 'none'} can work "
            f"here; pip install 'mitl[{','.join(extras)}]' for {what}, or name others with --"
            f"{'text' if modality == 'caption' else 'image'}-encoder"
        )
    return list(names[:wanted])


def images_by_captions(run: AnnotatorRun, groups: CaptionGroups, neighbours: int) -> pd.DataFrame:
    """Each image's nearest others by the mean of its captions' vectors (``NEAREST``); images without captions are out.

    Raises:
        ProposalError: fewer than two images have captions.
    """
    encoded = _encoded(run, "caption")
    vectors = item_vectors(run.name, encoded)
    in_groups = vectors[np.searchsorted(encoded.ids, groups.captions)]
    told = groups.sizes > 0
    return _nearest(run, groups.images[told], group_means(in_groups, groups.sizes[told]), neighbours)


def images_by_pictures(run: AnnotatorRun, neighbours: int) -> pd.DataFrame:
    """Each image's nearest others by their pictures (``NEAREST``); ProposalError where there are fewer than two."""
    encoded = _encoded(run, "image")
    return _nearest(run, encoded.ids, item_vectors(run.name, encoded), neighbours)


def _encoded(run: AnnotatorRun, modality: Modality) -> Encoded:
    assert isinstance(run.annotator, Annotator)
    items = run.items.images if modality == "image" else run.items.captions
    return run.compute.encoded(run.annotator, modality, items)


def _nearest(run: AnnotatorRun, ids: np.ndarray, vectors: np.ndarray, neighbours: int) -> pd.DataFrame:
    if len(ids) < 2:
        raise ProposalError(f"{len(ids)} images can be compared by {run.name!r}; two at least are needed")
    assert isinstance(run.annotator, Annotator)
    encoded = Encoded("image", np.asarray(ids, np.int64), {"embedding": vectors})
    search = OneSided(run.name, "image", run.annotator.fingerprint)
    ranking = run.compute.engine.top_k(
        search, encoded, encoded, min(neighbours + 1, len(ids)), progress=run.compute.progress
    )
    return nearest(ranking, neighbours)
