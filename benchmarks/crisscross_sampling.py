"""The sampling of pairs for ratings of likeness, beside what CxC sampled on the COCO test split.

    python benchmarks/crisscross_sampling.py --data DIR [--neighbours 5 8] [--seeds 5]

DIR holds ``captions.parquet``, ``manifest.csv`` with the folder ``images`` beside it, and CxC's ``sts_test.csv``,
``sis_test.csv`` and ``sits_test.csv``, directly or in folders. Encodes the 25,000 captions (a minute or two on a CPU)
and prints, as Markdown: the image pairs that each encoder of captions chooses and how many of them CxC had rated; the
likeness that CxC's raters gave to the shared ones; the laws that CxC's caption pairs follow; and how many of CxC's
images with captions of others the second phase reaches from CxC's own ratings.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from shared_kit import parser_of

from annotators.base import Encoded
from annotators.item_encoders import OneSided, build_encoder, item_vectors
from mitl.core.arrays import Ints, contains, distinct, pack_ids
from mitl.datasets.coco import read_compact
from mitl.proposals.crisscross import (
    RATED,
    CaptionGroups,
    co_caption_pairs,
    cross_candidates,
    group_means,
    nearest,
    original_pairs,
)
from mitl.records import CaptionItem
from mitl.records.frames import frame
from mitl.retrieval.topk import top_k

ENCODERS = ("sentences", "words")


def main() -> None:
    """Print the tables."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--neighbours", type=int, nargs="+", default=[5, 8])
    parser.add_argument("--seeds", type=int, default=5, help="draws of captions to average over")
    arguments = parser.parse_args()
    items = captions_of(arguments.data)
    groups = CaptionGroups.of(
        sorted({item.image_id for item in items}),
        [item.id for item in items],
        [item.image_id for item in items],
    )
    image_of = pd.Series(groups.image_of, index=groups.captions)
    sis = read(arguments.data, "sis_test.csv", "image1", "image2")
    sts = read(arguments.data, "sts_test.csv", "caption1", "caption2")
    sits = read(arguments.data, "sits_test.csv", "image", "caption")
    by_texts = sts[sts["method"] == "c2c_isim"]
    by_texts = by_texts.assign(
        first=image_of.loc[by_texts["first"]].to_numpy(), second=image_of.loc[by_texts["second"]].to_numpy()
    )
    print_image_pairs(items, groups, sis, arguments.neighbours)
    print_laws(sts, by_texts, groups)
    pictures = len(pd.read_csv(find(arguments.data, "manifest.csv")))
    print(
        f"\nPictures are at hand of {pictures:,} of {len(groups.images):,} images, so an image encoder cannot choose "
        "caption pairs here."
    )
    print_candidates(by_texts, sis, sits, groups, arguments.seeds)


def captions_of(data: Path) -> list[CaptionItem]:
    """The captions under COCO's own numbers, rising."""
    captions = read_compact(find(data, "captions.parquet")).captions
    rows = sorted((int(one.external_id), int(one.image_external_id), one.text) for one in captions)
    return [CaptionItem(number, str(number), image, text) for number, image, text in rows]


def read(data: Path, name: str, first: str, second: str) -> pd.DataFrame:
    """A file of CxC with COCO's numbers: ``first``, ``second``, ``score``, ``method``."""
    rows = pd.read_csv(find(data, name))
    number = r"(\d+)(?:\.jpg)?$"
    return pd.DataFrame(
        {
            "first": rows[first].str.extract(number)[0].astype("int64"),
            "second": rows[second].str.extract(number)[0].astype("int64"),
            "score": rows["agg_score"],
            "method": rows["sampling_method"],
        }
    )


def print_image_pairs(
    items: list[CaptionItem], groups: CaptionGroups, sis: pd.DataFrame, depths: list[int]
) -> None:
    """How many of an encoder's image pairs are among CxC's, and how alike people found them."""
    cxc, n_images = unordered(sis), len(groups.images)
    chance = len(cxc) / (n_images * (n_images - 1) / 2)
    print(
        f"CxC: {len(sis):,} rows, {len(cxc):,} image pairs, {100 * chance:.2f} % of all; "
        f"mean score {sis['score'].mean():.2f}\n"
    )
    print("| encoder | neighbours | pairs | of them in CxC | share | of CxC's | mean score of the shared |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    near = {name: by_captions(name, items, groups, max(depths)) for name in ENCODERS}
    for depth in depths:
        chosen = {name: unordered(pairs[pairs["rank"] <= depth]) for name, pairs in near.items()}
        chosen["both"] = distinct(np.concatenate(list(chosen.values())))
        for name, pairs in chosen.items():
            shared = pairs[contains(cxc, pairs)]
            scores = sis["score"].to_numpy()[contains(shared, packed(sis))]
            print(
                f"| {name} | {depth} | {len(pairs):,} | {len(shared):,} | {100 * len(shared) / len(pairs):.1f} % | "
                f"{100 * len(shared) / len(cxc):.1f} % | {scores.mean():.2f} |"
            )


def by_captions(name: str, items: list[CaptionItem], groups: CaptionGroups, depth: int) -> pd.DataFrame:
    """Each image's nearest others by its captions."""
    started = time.perf_counter()
    encoder = build_encoder(name, "caption", {}, Path())
    encoded = encoder.encode_captions(items)
    vectors = item_vectors(name, encoded)[np.searchsorted(encoded.ids, groups.captions)]
    encoding_s = time.perf_counter() - started
    means = Encoded("image", groups.images, {"embedding": group_means(vectors, groups.sizes)})
    ranking = top_k(OneSided(name, "image", ""), means, means, depth + 1)
    searching_s = time.perf_counter() - started - encoding_s
    print(f"<!-- {name}: encoded in {encoding_s:.0f} s, searched in {searching_s:.1f} s -->")
    return nearest(ranking, depth)


def print_laws(sts: pd.DataFrame, by_texts: pd.DataFrame, groups: CaptionGroups) -> None:
    """What CxC's caption pairs have in common with ours by construction."""
    isim, co = sts[sts["method"] == "c2c_isim"], sts[sts["method"] == "c2c_cocaption"]
    degrees = pd.concat([by_texts["first"], by_texts["second"]]).value_counts()
    chosen = by_texts.groupby("first").size()
    again = int((chosen - groups.sizes[0]).clip(lower=0).sum())
    repeated = int((isim["first"].value_counts() > 1).sum())
    print(
        f"\nCxC's {len(isim):,} caption pairs by images stand for {len(unordered(by_texts)):,} distinct image pairs, "
        f"{degrees.min()} at least an image; {repeated:,} captions come first a second time, {again:,} would if an "
        "image's captions take turns."
    )
    for name, pairs in (("CxC", co), ("ours", co_caption_pairs(groups, seed=0))):
        once = "yes" if pairs["first"].is_unique and pairs["second"].is_unique else "no"
        distinct_pairs = len(unordered(pairs))
        print(
            f"Co-captions, {name}: {len(pairs):,} rows, {distinct_pairs:,} pairs; each caption once first and once "
            f"second: {once}."
        )


def print_candidates(
    by_texts: pd.DataFrame, sis: pd.DataFrame, sits: pd.DataFrame, groups: CaptionGroups, seeds: int
) -> None:
    """The second phase from CxC's own ratings, as many as CxC took."""
    theirs = sits[sits["method"] == "c2i_intrasim"]
    image_of = pd.Series(groups.image_of, index=groups.captions)
    figures: list[Mapping[str, float]] = []
    for seed in range(seeds):
        ours = cross_candidates(
            rated(by_texts), rated(sis), groups, original_pairs(groups).iloc[:0], n=len(theirs), seed=seed
        )
        figures.append(
            {
                "pairs": len(ours),
                "by ratings of captions": int((ours["encoder"] == "ratings of captions").sum()),
                "the same image and caption": int(contains(distinct(packed(theirs)), packed(ours)).sum()),
                "the same image and image of the caption": len(
                    np.intersect1d(images(ours, image_of), images(theirs, image_of))
                ),
                "their images and images of captions": len(images(theirs, image_of)),
                "ours": len(images(ours, image_of)),
            }
        )
    offered = distinct(np.concatenate([packed(by_texts), packed(sis)]))
    reached = int(contains(offered, images(theirs, image_of)).sum())
    print(f"\nPhase 2 from CxC's ratings, {len(theirs):,} candidates as there, mean of {seeds} seeds:\n")
    for name, value in pd.DataFrame(figures).mean().items():
        print(f"- {name}: {value:,.0f}")
    print(f"- theirs that any rated pair in its order offers: {reached:,}")
    scores = theirs["score"]
    print(
        f"- mean score that people gave theirs: {scores.mean():.2f}; 3 or more: {100 * (scores >= 3).mean():.1f} %"
    )
    same = scores[contains(distinct(packed(ours)), packed(theirs))]
    print(f"- of the same pairs (last seed): {same.mean():.2f}; 3 or more: {100 * (same >= 3).mean():.1f} %")


def rated(pairs: pd.DataFrame) -> pd.DataFrame:
    """``RATED``, each order once."""
    once = pairs.drop_duplicates(["first", "second"])
    return frame(RATED, {name: once[name].to_numpy() for name in RATED})


def images(pairs: pd.DataFrame, image_of: pd.Series) -> Ints:
    """The image of each pair and the one that its caption was written for, distinct."""
    return distinct(pack_ids(pairs["first"].to_numpy(), image_of.loc[pairs["second"]].to_numpy()))


def packed(pairs: pd.DataFrame) -> Ints:
    """Pairs in their order."""
    return pack_ids(pairs["first"].to_numpy(), pairs["second"].to_numpy())


def unordered(pairs: pd.DataFrame) -> Ints:
    """Distinct pairs whatever their order."""
    first, second = pairs["first"].to_numpy(), pairs["second"].to_numpy()
    return distinct(pack_ids(np.minimum(first, second), np.maximum(first, second)))


def find(data: Path, name: str) -> Path:
    """The file of that name, in the folder or one below it."""
    path = next((path for path in (data / name, *sorted(data.glob(f"*/{name}"))) if path.exists()), None)
    if path is None:
        raise SystemExit(f"there is no {name} in {data}, nor in a folder there")
    return path


if __name__ == "__main__":
    main()
