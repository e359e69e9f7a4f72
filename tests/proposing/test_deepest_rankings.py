"""Rankings are no deeper than their files can be, which is known before anything is computed."""

from __future__ import annotations

import pytest

from annotators.base import scores_of_all
from mitl.errors import RetrievalError
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
