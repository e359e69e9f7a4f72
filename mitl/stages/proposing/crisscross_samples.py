"""Which encoders choose the pairs that are to be rated; what phase 1 sampled by them, what is new, what people said."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from annotators.base import Annotator, Encoded, Modality
from annotators.item_encoders import KNOWN, OneSided, build_encoder, default_encoders, item_vectors
from mitl.core.whole_files import one_clear_line, whole_file
from mitl.errors import AnnotatorError, ProposalError
from mitl.judgements.similarity import aggregate, counting
from mitl.proposals.crisscross import RATED, CaptionGroups, group_means, nearest
from mitl.records import Table
from mitl.records.frames import frame
from mitl.records.similarity import METHODS, SAMPLES, Likeness, SamplingMethod
from mitl.settings import Settings
from mitl.stages.proposing.computing import ComputeContext, split_scope
from mitl.stages.proposing.crisscross_counts import RatingCounts
from mitl.stages.proposing.ranking import AnnotatorRun, SearchedItems, require_pictures
from mitl.stages.proposing.trained import with_trained

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
        made.name for place, made in enumerate(built) if made.name in [other.name for other in built[:place]]
    ]
    if twice:
        raise AnnotatorError(
            f"two encoders of {modality}s are called {twice[0]!r}; name each once, rename one file"
        )
    long = next((made.name for made in built if len(made.name) > LONGEST_NAME), None)
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
    count = DEFAULT_COUNTS[modality]
    if len(names) < count:
        extras = sorted(
            {extra for it in KNOWN.values() if it.modality == modality for extra in it.extra.split(",")}
        )
        what = ", ".join(f"{name} ({it.what})" for name, it in KNOWN.items() if it.modality == modality)
        raise AnnotatorError(
            f"{count} encoder{'s' * (count > 1)} of {modality}s should choose, but {len(names) or 'none'} can work "
            f"here; pip install 'mitl[{','.join(extras)}]' for {what}, or name others with --"
            f"{'text' if modality == 'caption' else 'image'}-encoder"
        )
    return list(names[:count])


def images_by_captions(run: AnnotatorRun, groups: CaptionGroups, neighbours: int) -> pd.DataFrame:
    """Each image's nearest others by the mean of its captions' vectors (``NEAREST``); images without captions are out.

    Raises:
        ProposalError: fewer than two images have captions.
    """
    encoded = run.encoded("caption")
    vectors = item_vectors(run.name, encoded)
    in_groups = vectors[np.searchsorted(encoded.ids, groups.captions)]
    told = groups.sizes > 0
    return _nearest(run, groups.images[told], group_means(in_groups, groups.sizes[told]), neighbours)


def images_by_pictures(run: AnnotatorRun, neighbours: int) -> pd.DataFrame:
    """Each image's nearest others by their pictures (``NEAREST``); ProposalError where there are fewer than two."""
    encoded = run.encoded("image")
    return _nearest(run, encoded.ids, item_vectors(run.name, encoded), neighbours)


def _nearest(run: AnnotatorRun, ids: np.ndarray, vectors: np.ndarray, neighbours: int) -> pd.DataFrame:
    if len(ids) < 2:
        raise ProposalError(f"{len(ids)} images can be compared by {run.name!r}; two at least are needed")
    assert isinstance(run.annotator, Annotator)
    encoded = Encoded("image", np.asarray(ids, np.int64), {"embedding": vectors})
    search = OneSided(run.name, "image", run.annotator.fingerprint)
    (ranking,) = run.compute.engine.rank(
        search, (encoded, encoded), (min(neighbours + 1, len(ids)),), progress=run.compute.progress
    )
    return nearest(ranking, neighbours)


@dataclass(frozen=True, slots=True, eq=False)
class Ratings:
    """The pairs that phase 2 follows from, with their ratings that count."""

    pairs: pd.DataFrame
    """``pair``, ``first``, ``second``, ``method`` of ``SAMPLES``, each order once; ``n`` ratings, mean ``score``."""
    enough: int
    """Ratings that a pair should have."""

    @classmethod
    def of(cls, ratings: pd.DataFrame, samples: pd.DataFrame, enough: int) -> Ratings:
        """From ``RATINGS`` of one environment and the ``SAMPLES`` that phase 2 follows from.

        Which ratings count, `mitl.judgements.similarity` says; a score is their plain mean, as in CxC.
        """
        scores = aggregate(counting(ratings)).scores.set_index("pair")
        orders = samples[["pair", "first", "second", "method"]].drop_duplicates(ignore_index=True)
        n = orders["pair"].map(scores["n_ratings"]).fillna(0).astype("int64")
        return cls(orders.assign(n=n, score=orders["pair"].map(scores["score"])), enough)

    @property
    def missing(self) -> int:
        """Pairs with too few ratings."""
        return int((self._distinct["n"] < self.enough).sum())

    @property
    def tasks_missing(self) -> list[Likeness]:
        """What is still to be rated."""
        short = self._distinct[self._distinct["n"] < self.enough]
        return [method.task for place, method in enumerate(METHODS) if (short["method"] == place).any()]

    def rated(self, method: SamplingMethod) -> pd.DataFrame:
        """The rated pairs of a way of sampling, in each order in which they were sampled: ``RATED`` of their items."""
        rows = self.pairs[(self.pairs["method"] == METHODS.index(method)) & (self.pairs["n"] > 0)]
        return frame(RATED, {name: rows[name].to_numpy() for name in RATED})

    def counts(self) -> dict[str, RatingCounts]:
        """For machines: by sampling method."""
        counts: dict[str, RatingCounts] = {}
        for place, method in enumerate(METHODS):
            n = self._distinct.loc[self._distinct["method"] == place, "n"]
            if len(n):
                tally = n.clip(upper=self.enough).value_counts().sort_index()
                counts[method.value] = {
                    "pairs": len(n),
                    "complete": int((n >= self.enough).sum()),
                    "by_ratings": {str(ratings): int(pairs) for ratings, pairs in tally.items()},
                }
        return counts

    def table(self) -> Table:
        """For people: how many pairs have how many ratings."""
        ratings = range(self.enough + 1)
        heads = tuple(f"{n} or more" if n == self.enough else str(n) for n in ratings)
        return Table(
            "pairs of phase 1 by ratings that count",
            ("task", "sampled by", "pairs", *heads),
            tuple(
                (
                    SamplingMethod(name).task.upper(),
                    name,
                    of["pairs"],
                    *(of["by_ratings"].get(str(n), 0) for n in ratings),
                )
                for name, of in self.counts().items()
            ),
        )

    def words(self) -> str:
        """The same in one line."""
        return "; ".join(
            f"of {of['pairs']:,} {SamplingMethod(name).task.upper()} pairs "
            + ", ".join(
                f"{pairs:,} have {n}{' or more' if int(n) == self.enough else ''} of {self.enough}"
                for n, pairs in of["by_ratings"].items()
            )
            for name, of in self.counts().items()
        )

    @property
    def _distinct(self) -> pd.DataFrame:
        """Each pair once, in whichever orders it was sampled."""
        return self.pairs.drop_duplicates(["pair", "method"])


FOLDER = "crisscross"
"""Within ``runs``."""
_KEY = ["task", "first", "second", "method", "encoder"]


@dataclass(frozen=True, slots=True)
class KeptSamples:
    """What phase 1 sampled under one configuration, as a file."""

    path: Path

    @classmethod
    def of(cls, settings: Settings, config: object) -> KeptSamples:
        """Named by the hash of the configuration, a JSON value."""
        text = json.dumps(config, sort_keys=True)
        return cls(settings.runs / FOLDER / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.parquet")

    def read(self) -> pd.DataFrame | None:
        """``SAMPLES`` without ``pair``; None where there are none, or where the file cannot be read any more."""
        try:
            stored = pd.read_parquet(self.path, page_checksum_verification=True)
            return frame(SAMPLES, {name: stored[name] for name in SAMPLES if name != "pair"})
        except (OSError, ValueError, KeyError, TypeError, NotImplementedError):  # also of a type's name
            return None

    def write(self, samples: pd.DataFrame) -> None:
        """Keep them; RetrievalError where the disk is full."""
        with one_clear_line(self.path, "run the command again when there is room"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(self.path) as sink:
                samples.astype({"encoder": "str"}).to_parquet(sink, index=False, write_page_checksum=True)


def new_rows(sampled: pd.DataFrame, stored: pd.DataFrame, groups: CaptionGroups) -> pd.DataFrame:
    """The rows that are not stored; an image whose co-captions were drawn before, with another seed, keeps its pairs.

    Args:
        sampled, stored: ``SAMPLES``, the first without ``pair``.
    """
    stored_keys = set(_keys(stored))
    is_there = np.array([key in stored_keys for key in _keys(sampled)], np.bool_)
    co_captions = METHODS.index(SamplingMethod.C2C_COCAPTION)
    drawn = stored.loc[stored["method"] == co_captions, "first"]
    images = groups.image_of[np.isin(groups.captions, drawn)]
    is_done = np.isin(sampled["first"], groups.captions[np.isin(groups.image_of, images)])
    return sampled[~is_there & ~((sampled["method"] == co_captions).to_numpy() & is_done)]


def _keys(samples: pd.DataFrame) -> Sequence[tuple[object, ...]]:
    return list(zip(*(samples[name].tolist() for name in _KEY), strict=True))
