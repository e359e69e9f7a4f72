"""Rankings are no deeper than their files can be, which is known before anything is computed; own ones are checked."""

from __future__ import annotations

import numpy as np
import pytest

from annotators.base import Ranking, scores_of_all
from mitl.errors import AnnotatorError, RetrievalError
from mitl.records import CaptionItem, Direction, IdKind, ImageItem
from mitl.retrieval.encodings import EncodingStore
from mitl.retrieval.engines import LocalEngine
from mitl.retrieval.rankings import MAX_DEPTH
from mitl.stages.proposing.computing import ComputeContext
from mitl.stages.proposing.ranking import AnnotatorRun, RankingFolder, SearchedItems, rank_with


class Pairs:
    """An annotator of pairs that is never asked."""

    name, kind, fingerprint = "pairs", "pairwise", "0"
    scores = similarities = scores_of_all


@pytest.fixture
def run(tmp_path) -> AnnotatorRun:
    captions = [CaptionItem(number, str(number), 1, "") for number in range(1, 40_001)]
    scope = {"pairs": {"scope": "shortlist", "shortlist": 5_000, "shortlist_recall": 0.9}}
    compute = ComputeContext(LocalEngine(), EncodingStore(tmp_path), tmp_path, scope)
    return AnnotatorRun(Pairs(), SearchedItems(IdKind.INTEGER, [ImageItem(1, "1")], captions), compute)


def test_a_shortlist_grows_as_far_as_rankings_are_kept(run):
    assert run.source_depth(Direction.I2T) == MAX_DEPTH
    assert run.source_depth(Direction.T2I) == 1


def test_a_depth_that_no_file_holds_is_one_line_before_the_work(run, tmp_path):
    folder = RankingFolder(
        tmp_path, {Direction.I2T: [1], Direction.T2I: []}, dict.fromkeys(Direction, 40_000)
    )

    with pytest.raises(
        RetrievalError, match="the depth is 40,000, but rankings are kept to 32,767; ask for less"
    ):
        rank_with(folder, [run])


class Ranks:
    """An annotator of another package that ranks by itself."""

    name, kind, fingerprint = "ranks", "ranking", "0"

    def __init__(self, queries, items, similarities) -> None:
        self.given = queries, items, similarities

    def ranking(self, direction, images, captions, query_ids, depth):
        return Ranking(*map(np.array, self.given)) if self.given[0] else None


@pytest.mark.parametrize(
    ("queries", "items", "similarities", "message"),
    [
        ([1], [[3, 2, 5]], [[0.9, 0.5, 0.5]], None),
        ([], [], [], "gave a NoneType for a ranking"),
        (
            [1],
            [[3, 2]],
            [[0.9, 0.5]],
            r"ranked items \(1, 2\) .* it should rank 3 for each of the 1 that were asked",
        ),
        ([2], [[3, 2, 5]], [[0.9, 0.5, 0.5]], "in their order"),
        ([1], [[3, 2, 3]], [[0.9, 0.5, 0.5]], "ranked an item twice"),
        ([1], [[3, 2, 50_000]], [[0.9, 0.5, 0.5]], "or one that is not in the gallery"),
        ([1], [[3, 2, 5]], [[0.1, 0.5, 0.5]], "did not rank the best first"),
        ([1], [[3, 2, 5]], [[0.9, 0.5, np.nan]], "a similarity that is not finite"),
    ],
)
def test_what_an_annotator_ranks_by_itself_is_checked(run, queries, items, similarities, message):
    """So many items of the gallery for each query, each once, best first."""
    run.annotator = Ranks(queries, items, similarities)

    if message is None:
        assert run.ranking(Direction.I2T, [1], 3).item_ids.tolist() == items
        return
    with pytest.raises(AnnotatorError, match=f"annotator 'ranks' .*{message}"):
        run.ranking(Direction.I2T, [1], 3)
