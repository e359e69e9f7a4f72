"""What the analyses read of a project: each part once, when it is first asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.crowd.environment import choose_environment
from mitl.crowd.truth import has_known_truth
from mitl.datasets.scenes.files import read_world
from mitl.db.session import open_database
from mitl.errors import MetricError, UsageError
from mitl.judgements.gold_records import gold_state
from mitl.positives.merging import Merged
from mitl.positives.pair_answers import PairAnswer, judgement_frame, majority_answers
from mitl.progress import Progress, no_progress
from mitl.records import Direction, Environment, Pair
from mitl.retrieval.rankings import read_ranking
from mitl.settings import WORLD_FOLDER, Settings
from mitl.stages.analysing.funnel import merged_pairs
from mitl.stages.analysing.snapshot import Snapshot, snapshot
from mitl.stages.proposing.ranking import Items, ranking_path

NO_RANKINGS = "no rankings are kept in this project; run `mitl propose`"
NO_JUDGEMENTS = "nobody has judged a pair yet; run `mitl publish`, then `mitl harvest`"
NO_TRUTH = "the truth is known of generated worlds only, and this is none"


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """The kept rankings of one direction: the same queries for every annotator."""

    annotators: tuple[str, ...]
    query_ids: NDArray[np.int64]
    """(Q,) surrogate ids, rising."""
    items: NDArray[np.int64]
    """(A, Q, K) surrogate ids, best first."""

    @property
    def depth(self) -> int:
        """Ranked items of each query."""
        return int(self.items.shape[2])


@dataclass
class Material:
    """One environment of a project, and of its annotators those that are asked for."""

    settings: Settings
    environment: Environment | None = None
    annotators: Sequence[str] = ()
    """Only these; all where empty."""
    snapshot: Snapshot | None = None
    """What is read already."""
    progress: Progress = no_progress
    _lists: dict[Direction, Lists] = field(default_factory=dict)

    @cached_property
    def known(self) -> Snapshot:
        """Everything in the database."""
        if self.snapshot is not None:
            return self.snapshot
        with open_database(self.settings.db_url, read_only=True) as session:
            return snapshot(session, self.settings, choose_environment(session, self.environment))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The annotators, in the order of the runs; UsageError where one is named that the project lacks."""
        present = tuple(row.name for row in self.known.annotators)
        for name in self.annotators:
            if name not in present:
                known = ", ".join(present) or "none has proposed anything yet"
                raise UsageError(f"no annotator {name!r} in this project; known: {known}")
        return tuple(name for name in present if not self.annotators or name in self.annotators)

    @cached_property
    def _ids(self) -> tuple[dict[int, str], dict[int, str]]:
        return self.known.image_ids, self.known.caption_ids

    @cached_property
    def judgements(self) -> pd.DataFrame:
        """Everything that was answered (``JUDGEMENTS``)."""
        return judgement_frame(row.record for row in self.known.judgements)

    @cached_property
    def answers(self) -> dict[Pair, PairAnswer]:
        """What people answered on each pair, majority of the usable answers."""
        return majority_answers(self.judgements)

    @cached_property
    def merged(self) -> Merged:
        """What a release would hold, by the rules of the latest."""
        withdrawn = gold_state(self.judgements, self.settings.gold_rule).withdrawn
        return merged_pairs(self.known, self.judgements, self.known.merge_rules, withdrawn)

    @property
    def has_truth(self) -> bool:
        """Whether the world was generated."""
        return has_known_truth(self.settings)

    @property
    def items(self) -> Items:
        """Both sides of the data set, as annotators take them."""
        return Items(self.known.dataset.id_kind, self.known.images, self.known.captions)

    @cached_property
    def ranked_directions(self) -> tuple[Direction, ...]:
        """Those of which rankings are kept; MetricError where there are none at all."""
        found = tuple(d for d in Direction if any(self._files(name, d) for name in self.names))
        if not found:
            raise MetricError(NO_RANKINGS)
        return found

    def require_judgements(self) -> None:
        """MetricError where nobody has judged a pair."""
        if not self.answers:
            raise MetricError(NO_JUDGEMENTS)

    def lists(self, direction: Direction) -> Lists:
        """The kept rankings of a direction over all runs; a query of several runs counts once, by the last.

        Annotators of different depths are cut to the shallowest; queries that an annotator lacks are left out.

        Raises:
            MetricError: no ranking is kept, or the annotators have no query in common.
            RetrievalError: a file is damaged.
        """
        if direction not in self._lists:
            self._lists[direction] = self._read_lists(direction)
        return self._lists[direction]

    def truth_codes(self, direction: Direction, query_ids: Sequence[int]) -> NDArray[np.int8]:
        """(Q, G) label codes of a generated world, 1 to 4; the gallery in order of its surrogate ids."""
        from mitl.datasets.scenes.world import truth_matrix

        world = read_world(self.settings.project / WORLD_FOLDER)
        images, captions = self._ids
        if direction is Direction.I2T:
            return truth_matrix(
                world, [images[i] for i in query_ids], [captions[c] for c in sorted(captions)]
            )
        return truth_matrix(world, [images[i] for i in sorted(images)], [captions[c] for c in query_ids]).T

    def gallery(self, direction: Direction) -> NDArray[np.int64]:
        """(G,) surrogate ids of what is searched in, rising."""
        ids = self.known.caption_ids if direction is Direction.I2T else self.known.image_ids
        return np.array(sorted(ids), np.int64)

    def _read_lists(self, direction: Direction) -> Lists:
        found = {name: rows for name in self.names if (rows := self._rows(name, direction))}
        if not found:
            raise MetricError(NO_RANKINGS)
        common = sorted(set.intersection(*(set(rows) for rows in found.values())))
        if not common:
            raise MetricError(
                f"the annotators have ranked no {direction} query in common; rank the same queries"
            )
        depth = min(len(rows[query]) for rows in found.values() for query in common)
        items = np.array([[rows[query][:depth] for query in common] for rows in found.values()], np.int64)
        return Lists(tuple(found), np.array(common, np.int64), items)

    def _rows(self, name: str, direction: Direction) -> dict[int, NDArray[np.int64]]:
        """Query → ranked items of one annotator, over all runs."""
        images, captions = ({text: id_ for id_, text in ids.items()} for ids in self._ids)
        sides = (images, captions) if direction is Direction.I2T else (captions, images)
        rows: dict[int, NDArray[np.int64]] = {}
        for path in self._files(name, direction):
            ranking = read_ranking(path, *sides)
            rows |= dict(zip(ranking.query_ids.tolist(), ranking.item_ids, strict=True))
        return rows

    def _files(self, name: str, direction: Direction) -> list[Path]:
        """The ranking files of one annotator, oldest run first."""
        folders = [self.settings.runs / run.hash for run in self.known.runs]
        paths = (ranking_path(folder, name, direction) for folder in folders)
        return [path for path in paths if path.is_file()]


def query_of(pair: Pair, direction: Direction) -> int:
    """The query's side of a pair."""
    return pair.image_id if direction is Direction.I2T else pair.caption_id


def item_of(pair: Pair, direction: Direction) -> int:
    """The gallery's side of a pair."""
    return pair.caption_id if direction is Direction.I2T else pair.image_id
