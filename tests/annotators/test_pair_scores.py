"""Scores of pairs as artifacts: a pair is scored once, a killed run goes on with the next, nothing stale is used."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from encoding_kit import captions, full_after
from hypothesis import given, settings
from hypothesis import strategies as st

from mitl.errors import AnnotatorError, RetrievalError
from mitl.records import ImageItem
from mitl.retrieval import pair_scores
from mitl.retrieval.encodings import caption_keys, image_keys
from mitl.retrieval.pair_scores import PairScores, ScoredItems, ScoredUnit, Unit

N_IMAGES, N_CAPTIONS = 7, 11


@pytest.fixture(autouse=True)
def small_units(monkeypatch):
    """Units, look-ups and memory of a few pairs, so that small data has several."""
    monkeypatch.setattr(pair_scores, "FIRST_UNIT", 5)
    monkeypatch.setattr(pair_scores, "_LARGEST_UNIT", 5)
    monkeypatch.setattr(pair_scores, "_SLAB", 8)
    monkeypatch.setattr(pair_scores, "_CACHE_PAIRS", 30)
    monkeypatch.setattr(pair_scores, "_BLOCK_PAIRS", 20)


def data(n_images: int = N_IMAGES, n_captions: int = N_CAPTIONS) -> ScoredItems:
    images = [ImageItem(3 * i + 1, str(900 + i)) for i in range(n_images)]
    texts = captions(n_captions)
    return ScoredItems(images, texts, image_keys(images, None), caption_keys(texts))


def truth(items: ScoredItems, image: int, caption: int) -> float:
    """A score that belongs to the pair's contents."""
    seed = abs(hash((items.images[image].external_id, items.captions[caption].text))) % 2**32
    return float(np.float32(np.random.default_rng(seed).random()))


class Scorer:
    """Says what it was asked."""

    def __init__(self, items: ScoredItems) -> None:
        self.items = items
        self.asked: list[tuple[int, int]] = []

    def __call__(self, units: Iterable[Unit]) -> Iterator[ScoredUnit]:
        for unit in units:
            pairs = list(zip(unit.images.tolist(), unit.captions.tolist(), strict=True))
            self.asked += pairs
            found = np.array([truth(self.items, *pair) for pair in pairs], np.float32)
            yield ScoredUnit(unit.number, found, 0.001)


def opened(folder: Path, items: ScoredItems | None = None) -> tuple[PairScores, Scorer]:
    items = items or data()
    scorer = Scorer(items)
    return PairScores(folder, "vilt", items, scorer), scorer


def every_pair(items: ScoredItems) -> tuple[np.ndarray, np.ndarray]:
    images, texts = len(items.images), len(items.captions)
    return np.repeat(np.arange(images), texts), np.tile(np.arange(texts), images)


def assert_right(found: np.ndarray, items: ScoredItems, images, texts) -> None:
    wanted = [truth(items, i, c) for i, c in zip(images.tolist(), texts.tolist(), strict=True)]
    np.testing.assert_array_equal(found, np.array(wanted, np.float32))


@settings(max_examples=40, deadline=None)
@given(data_=st.data())
def test_pairs_are_scored_once_whatever_is_asked(tmp_path_factory, data_):
    """In any order, with repeats, in several calls and runs; each call gets its own order back."""
    folder, items = tmp_path_factory.mktemp("scores"), data()
    pairs = st.lists(
        st.tuples(st.integers(0, N_IMAGES - 1), st.integers(0, N_CAPTIONS - 1)), min_size=1, max_size=30
    )
    asked: list[tuple[int, int]] = []
    for _ in range(3):
        scores, scorer = opened(folder, items)
        for _ in range(2):
            wanted = np.array(data_.draw(pairs))
            assert_right(scores.get(wanted[:, 0], wanted[:, 1]), items, wanted[:, 0], wanted[:, 1])
        asked += scorer.asked
        assert scores.computed == len(scorer.asked)

    assert len(asked) == len(set(asked))


def test_units_are_sorted_by_image_and_then_caption(tmp_path):
    """An image's pairs come together, for it enters a network once."""
    items = data()
    scores, scorer = opened(tmp_path, items)
    images, texts = every_pair(items)
    order = np.random.default_rng(0).permutation(len(images))

    scores.get(images[order], texts[order])

    assert scorer.asked == sorted(scorer.asked)


@pytest.mark.parametrize("kill_at", range(1, 16))
def test_a_killed_run_is_resumed_after_the_last_unit_that_was_kept(tmp_path, kill_at):
    """Killed in the n-th unit, the run before it kept n - 1 of them; the next scores the others."""
    items = data()
    images, texts = every_pair(items)
    scorer = Scorer(items)

    def dying(units):
        for number, scored in enumerate(scorer(units), start=1):
            if number == kill_at:
                raise KeyboardInterrupt
            yield scored

    with pytest.raises(KeyboardInterrupt):
        PairScores(tmp_path, "vilt", items, dying).get(images, texts)
    scores, second = opened(tmp_path, items)

    assert_right(scores.get(images, texts), items, images, texts)

    assert len(second.asked) == len(images) - 5 * (kill_at - 1)


@pytest.mark.parametrize("cut", [1, 10, 30])
def test_what_a_kill_left_of_a_unit_is_passed_over(tmp_path, caplog, cut):
    """A file that ends within a frame loses that frame only."""
    items = data()
    images, texts = every_pair(items)
    opened(tmp_path, items)[0].get(images[:20], texts[:20])
    (log,) = tmp_path.glob("*.scores")
    log.write_bytes(log.read_bytes()[:-cut])
    scores, scorer = opened(tmp_path, items)

    with caplog.at_level(logging.WARNING):
        assert_right(scores.get(images, texts), items, images, texts)

    assert len(scorer.asked) == len(images) - 15
    assert "cut off by a kill; their pairs are scored again" in caplog.text


def test_a_damaged_score_is_never_used(tmp_path, caplog):
    """A flipped bit costs the frames from there on, with a warning."""
    items = data()
    images, texts = every_pair(items)
    opened(tmp_path, items)[0].get(images[:20], texts[:20])
    (log,) = tmp_path.glob("*.scores")
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 4
    log.write_bytes(content)
    scores, scorer = opened(tmp_path, items)

    assert_right(scores.get(images, texts), items, images, texts)

    assert len(images) - 20 < len(scorer.asked) <= len(images) - 5
    assert "damaged" in caplog.text


def test_a_changed_item_costs_its_own_pairs(tmp_path):
    """Items that were added, removed or moved keep theirs."""
    before = data()
    images, texts = every_pair(before)
    opened(tmp_path, before)[0].get(images, texts)
    new = [ImageItem(1, "1"), *(replace(i, id=i.id + 1) for i in before.images[1:])]
    changed = [*before.captions[2:], replace(before.captions[1], text="other", id=99)]
    after = ScoredItems(new, changed, image_keys(new, None), caption_keys(changed))
    scores, scorer = opened(tmp_path, after)
    images, texts = every_pair(after)

    assert_right(scores.get(images, texts), after, images, texts)

    last = len(changed) - 1
    assert all(image == 0 or caption == last for image, caption in scorer.asked)
    assert len(scorer.asked) == len(changed) + len(new) - 1


def test_runs_side_by_side_write_files_of_their_own(tmp_path):
    """Neither harms the other's, and a third has all of it."""
    items = data()
    images, texts = every_pair(items)
    (one, _), (other, _) = opened(tmp_path, items), opened(tmp_path, items)
    one.get(images[:40], texts[:40])
    other.get(images[30:], texts[30:])
    third, scorer = opened(tmp_path, items)

    assert_right(third.get(images, texts), items, images, texts)

    assert scorer.asked == []
    assert len(list(tmp_path.glob("*.scores"))) == 2


def test_a_full_disk_is_one_clear_line_and_what_was_finished_is_kept(tmp_path, monkeypatch):
    """The half frame is taken back; the next run goes on after the last whole one."""
    items = data()
    images, texts = every_pair(items)
    scores, _ = opened(tmp_path, items)
    with monkeypatch.context() as patch:
        full_after(4, patch)
        with pytest.raises(RetrievalError) as caught:
            scores.get(images, texts)
    again, scorer = opened(tmp_path, items)

    assert "the disk is full; the 15 pairs that this run has scored are kept; make room" in str(caught.value)
    assert_right(again.get(images, texts), items, images, texts)
    assert len(scorer.asked) == len(images) - 15


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_score_that_is_not_finite_names_the_pair(tmp_path, bad):
    """It is not kept."""
    items = data()

    def broken(units):
        for unit in units:
            scores = np.zeros(len(unit.images), np.float32)
            scores[(unit.images == 2) & (unit.captions == 3)] = bad
            yield ScoredUnit(unit.number, scores, 1.0)

    with pytest.raises(AnnotatorError, match=r"'vilt' scores image '902' and caption '103' with (nan|inf)"):
        PairScores(tmp_path, "vilt", items, broken).get(*every_pair(items))


def test_as_many_scores_as_pairs_are_wanted(tmp_path):
    """Fewer are the annotator's fault."""

    def short(units):
        for unit in units:
            yield ScoredUnit(unit.number, np.zeros(len(unit.images) - 1, np.float32), 1.0)

    items = data()
    with pytest.raises(AnnotatorError, match=r"gives scores \(4,\) for 5 pairs"):
        PairScores(tmp_path, "vilt", items, short).get(*every_pair(items))


def test_units_grow_with_the_rate(tmp_path, monkeypatch):
    """They come to take about as long as a kill may cost, within limits."""
    monkeypatch.setattr(pair_scores, "_LARGEST_UNIT", 40)
    monkeypatch.setattr(pair_scores, "_UNIT_S", 1.0)
    sizes = []

    def steady(units):
        for unit in units:
            sizes.append(len(unit.images))
            yield ScoredUnit(unit.number, np.zeros(len(unit.images), np.float32), len(unit.images) / 20)

    items = data()
    PairScores(tmp_path, "vilt", items, steady).get(*every_pair(items))

    assert sizes == [5, 20, 20, 20, 12]
