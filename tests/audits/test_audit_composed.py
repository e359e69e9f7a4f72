"""Audits of composed queries: a query and its own reference are no pair of the pool."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
from cli_kit import ok
from world_kit import work_until_done

from mitl.core.arrays import pack_pairs
from mitl.crowd.context import open_context
from mitl.db.store import items as item_store
from mitl.records import Environment, Pair
from mitl.settings import load
from mitl.stages.auditing.pools import pool_of


def test_no_reference_is_audited_and_the_certificate_verifies(tmp_path, monkeypatch):
    """Size and inclusion are of the pool without them; the released files give the same certificate."""
    monkeypatch.chdir(tmp_path)
    ok("init", "--dataset", "scenes", "--kind", "composed", "--n-images", "12")
    ok("propose", "--annotator", "signal", "--top-k", "2", "--depth", "3", "--quiet")
    settings = load(tmp_path, environ={})
    with open_context(settings, Environment.SANDBOX, read_only=True) as context:
        references = item_store.references(context.session, item_store.dataset(context.session).id)
        pool = pool_of(context)
    apart = pack_pairs(Pair(image, query) for query, image in references.items())
    assert len(apart) == 60 and pool.size == 12 * 60 - 60
    assert not pool.holds(apart).any()

    drawn = ok("audit", "draw", "--simple", "--size", "120", "--json").json["counts"]
    assert drawn["pool"] == 660 and drawn["pairs"] == 120
    assert drawn["strata"][0]["inclusion"] == 120 / 660
    work_until_done(settings, rounds=20)
    assert "certificate" in ok("build-dataset", "--out", "release", "--json").json["counts"]
    ok("verify", "release")

    table = pq.read_table("release/audit.parquet").to_pandas()
    of = {str(number): str(image) for number, image in references.items()}
    assert len(table) == 120 and np.all(
        table["caption_id"].astype(str).map(of) != table["image_id"].astype(str)
    )
