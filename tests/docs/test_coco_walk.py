"""The real COCO test split, where its files are at hand: what the walk must hold on it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from world_kit import SANDBOX, run_publish

from mitl.db.session import open_database
from mitl.db.store import items
from mitl.positives.loading import official_positives, read_release
from mitl.records import Direction, Pair
from mitl.settings import load as load_settings
from mitl.stages.evaluating.evaluate import evaluate
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate
from mitl.stages.proposing.propose import ProposeRequest, QueryChoice, propose
from mitl.stages.releasing.build_dataset import build_dataset
from mitl.stages.reviewing.review import settle
from mitl.stages.setup.init import ensure_config, init
from mitl.stages.setup.loading import DatasetSources, load

PIVOT = "pivot-SATIC-tfidf"

pytestmark = [pytest.mark.shared, pytest.mark.slow]


@pytest.fixture(scope="module")
def coco(shared_data, tmp_path_factory):
    """A project on the real captions and ratings, with a word pivot over real machine captions."""
    pytest.importorskip("sklearn")
    folder = tmp_path_factory.mktemp("coco")
    sources = DatasetSources(
        "coco",
        captions=(shared_data / "coco_karpathy_test_captions" / "captions.parquet",),
        cxc=shared_data / "cxc" / "sits_test.csv",
        exclusions=("paper",),
    )
    loaded = load(sources, folder)
    machine = str(shared_data / "karpathy_test_machine_captions" / "machine_captions.parquet")
    tables = {"annotators": {PIVOT: {"captions": machine}}}
    ensure_config(folder, "coco", 0, tables)
    settings = replace(load_settings(folder, environ={}), endpoint=None)
    init(settings, loaded)
    return settings


def test_the_split_loads_whole(coco):
    """5,000 images, 25,000 captions, the ratings between them, all 33 exclusions."""
    with open_database(coco.db_url, read_only=True) as session:
        dataset = items.dataset(session)
        ratings = items.ratings(session)
        exclusions = items.exclusions(session)

    assert (dataset.n_images, dataset.n_captions) == (5_000, 25_000)
    assert len(exclusions) == 33
    assert sum(score >= 3 for score in ratings.values()) == 35_585


def test_a_slice_of_the_walk_holds_its_numbers(coco):
    """HITs are pairs over 18 rounded up; the release holds CxC's positives and the verified ones; scores exist."""
    official = official_positives("eccv").by_query
    chosen = {
        Direction.I2T: _write(coco.project / "images.txt", sorted(official[Direction.I2T], key=int)[:8]),
        Direction.T2I: _write(coco.project / "captions.txt", sorted(official[Direction.T2I], key=int)[:8]),
    }

    proposed = propose(
        coco,
        ProposeRequest(
            annotators=(PIVOT,),
            top_k=5,
            depth=25,
            images=QueryChoice(file=chosen[Direction.I2T]),
            captions=QueryChoice(file=chosen[Direction.T2I]),
        ),
    )
    posted = run_publish(coco)
    simulate(coco, SANDBOX, truth="official")
    harvest(coco, SANDBOX)
    settle(coco, SANDBOX)
    built = build_dataset(coco, coco.project / "release", SANDBOX)
    scores = evaluate(coco, release=coco.project / "release", official=("eccv",)).counts["scores"]

    assert posted.counts["hits_posted"] == -(-proposed.counts["pairs"] // 18)
    assert built.counts["positives_by_source"]["cxc"] > 35_000
    assert set(scores) == {"original", "release", "official-eccv"}
    release = read_release(coco.project / "release")
    assert set(release.by_query[Direction.I2T]) <= set(official[Direction.I2T])
    assert release.by_query[Direction.I2T]


def _write(path, ids):
    path.write_text("\n".join(ids) + "\n")
    return path


def test_a_meaningless_caption_is_kept_out_though_cxc_rates_it(coco):
    """CxC rates caption 462530 a match of image 325211; the exclusion list takes it out of every release."""
    from record_kit import MergeInput, merge

    from mitl.stages.analysing.snapshot import read_project

    with open_database(coco.db_url, read_only=True) as session:
        known = read_project(session, coco, SANDBOX)
    image_of = {external: surrogate for surrogate, external in known.image_ids.items()}
    caption_of = {external: surrogate for surrogate, external in known.caption_ids.items()}
    pair = Pair(image_of["325211"], caption_of["462530"])

    merged = merge(MergeInput(ratings=tuple(known.ratings.items()), exclusions=known.exclusions))

    assert known.ratings[pair] >= 3
    assert pair in merged.excluded
    assert pair not in {positive.pair for positive in merged.positives}
