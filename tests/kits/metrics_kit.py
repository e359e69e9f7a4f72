"""Small worlds of images and captions for the tests of the metrics, with the reference library beside ours."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import strategies as st

Table = dict[int, list[int]]
SETS = ("coco_gts", "cxc_gts", "eccv_gts")


def reference():
    """The module ``eccv_caption``; the test is skipped without it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns about optional packages at import
        return pytest.importorskip("eccv_caption")


@dataclass
class World:
    """Full rankings of both directions, three tables of positives, and the order of the captions."""

    coco_ids: np.ndarray
    tables: dict[str, dict[str, Table]]
    rankings: dict[str, Table] = field(default_factory=dict)

    def arrays(self):
        """The rankings as pairs of arrays."""
        return {
            side: (np.array(list(table)), np.array(list(table.values())))
            for side, table in self.rankings.items()
        }

    def set_on(self, metrics):
        """Make a ``Metrics`` of either library score this world."""
        metrics.coco_ids = self.coco_ids
        for name in SETS:
            setattr(metrics, name, self.tables[name])
        return metrics


@st.composite
def worlds(draw):
    """Five or ten images with one to three captions each, random positives beyond, likely and unlikely rankings."""
    images = draw(
        st.lists(st.integers(1, 10**6), min_size=5, max_size=8, unique=True).map(lambda ids: ids[:5])
        | st.lists(st.integers(-50, 50), min_size=10, max_size=10, unique=True)
    )
    each = draw(st.sampled_from([1, 2, 3]))
    captions = draw(
        st.lists(
            st.integers(-(2**31), 2**40),
            min_size=each * len(images),
            max_size=each * len(images),
            unique=True,
        )
    )
    owner = {caption: images[place // each] for place, caption in enumerate(captions)}
    coco = both_ways({(image, caption) for caption, image in owner.items()})
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    tables = {"coco_gts": coco}
    for name in ("cxc_gts", "eccv_gts"):
        share = draw(st.sampled_from([0.05, 0.3, 1.0]))
        pairs = {(i, c) for i in images for c in captions if rng.random() < share or owner[c] == i}
        tables[name] = both_ways(pairs)
    order = draw(
        st.sampled_from(["as they are", "mixed"])
    )  # mixed: the captions of an image fall into several folds
    ids = np.array(captions if order == "as they are" else rng.permutation(captions))
    world = World(ids, tables)
    kind = draw(st.sampled_from(["random", "positives first", "positives last", "all alike", "by id"]))
    for side, queries, gallery in (("i2t", images, captions), ("t2i", captions, images)):
        world.rankings[side] = {
            int(query): ranked(rng, kind, tables, side, query, gallery)
            for query in (rng.permutation(queries) if kind == "random" else queries)
        }
    return world


def both_ways(pairs) -> dict[str, Table]:
    """Tables of both directions from (image, caption) pairs."""
    tables: dict[str, Table] = {"i2t": {}, "t2i": {}}
    for image, caption in sorted(pairs):
        tables["i2t"].setdefault(image, []).append(caption)
        tables["t2i"].setdefault(caption, []).append(image)
    return tables


def ranked(rng, kind, tables, side, query, gallery) -> list[int]:
    """One full ranking of a kind."""
    if kind in ("all alike", "by id"):
        return sorted(gallery, reverse=kind == "by id")
    items = [int(item) for item in rng.permutation(gallery)]
    if kind == "random":
        return items
    right = set(tables[str(rng.choice(SETS))][side].get(query, ()))
    return sorted(items, key=lambda item: (item in right) == (kind == "positives last"))
