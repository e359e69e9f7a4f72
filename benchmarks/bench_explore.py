"""Pages of the explorer over a million pairs, beside the same filters by plain pandas in the same run.

    python benchmarks/bench_explore.py

A made-up data set of the size of COCO's test split (5,000 images, 25,000 captions): each pair is proposed by some of
five annotators, four in five have one to three answers. Prints the first page and the median of 20 more, made without
a network, and that of the pandas filter and sort whose rows the page shows. Each order and the last words are kept from
the first page on, so the work that pandas does each time is the first page's.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable

import click
import httpx
import numpy as np
import pandas as pd

from mitl.core.arrays import pack_ids
from mitl.explorer.app import create_app
from mitl.explorer.pairs import Explored, ExploredItem, explored

IMAGES, CAPTIONS, TIMES = 5000, 25_000, 20
WORDS = (
    "dog",
    "cat",
    "man",
    "woman",
    "runs",
    "sits",
    "grass",
    "street",
    "red",
    "blue",
    "small",
    "two",
    "bikes",
    "near",
)
PAGES: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "/": lambda all_: all_[all_["pair"] >= 0],
    "/?kind=found": lambda all_: all_[all_["positive"] & ~all_["original"]],
    "/?q=red+dog&answer=match": lambda all_: all_[
        all_["text"].str.contains("red") & all_["text"].str.contains("dog") & all_["label"].isin([0, 1])
    ],
    "/?by=three&rank=2&order=answers": lambda all_: all_[all_["three"].between(1, 2)].sort_values(
        "answers", ascending=False, kind="stable"
    ),
    "/?agreement=split&order=doubt&page=50": lambda all_: all_[
        (all_["yes"] > 0) & (all_["no"] > 0)
    ].sort_values("doubt", ascending=False, kind="stable"),
}


def made(count: int, rng: np.random.Generator) -> Explored:
    """So many pairs."""
    pairs = np.sort(rng.choice(IMAGES * CAPTIONS, count, replace=False))
    packed = pack_ids(pairs // CAPTIONS, pairs % CAPTIONS)
    label = rng.integers(-1, 4, count)
    known = pd.DataFrame(
        {
            "pair": packed,
            "label": label,
            "original": rng.random(count) < 0.02,
            "positive": (label == 0) | (label == 1),
        }
    )
    by = rng.integers(0, count, 2 * count)
    proposals = pd.DataFrame(
        {"pair": packed[by], "annotator": rng.integers(0, 5, len(by)), "rank": rng.integers(1, 6, len(by))}
    )
    asked = np.repeat(np.flatnonzero(label >= 0), rng.integers(1, 4, int((label >= 0).sum())))
    answers = pd.DataFrame({"pair": packed[asked], "yes": rng.random(len(asked)) < 0.5})
    texts = [" ".join(rng.choice(WORDS, 10)) for _ in range(CAPTIONS)]
    items = (
        [ExploredItem(str(i)) for i in range(IMAGES)],
        [ExploredItem(str(i), text) for i, text in enumerate(texts)],
    )
    return explored(known, proposals, answers, items, ("one", "two", "three", "four", "five"))


def as_frame(of: Explored) -> pd.DataFrame:
    """The same in one pandas frame."""
    all_ = of.pairs.copy()
    all_["text"] = pd.Series([one.text for one in of.captions])[of.sides[1]].to_numpy()
    all_["three"] = 0
    own = of.proposed[of.proposed["annotator"] == 2]
    all_.loc[own["row"], "three"] = own["rank"].to_numpy()
    return all_.assign(answers=all_["yes"] + all_["no"], doubt=all_[["yes", "no"]].min(axis=1))


def first_and_median_ms(call: Callable[[], object]) -> tuple[float, float]:
    """The first call, which fills what is kept, and the median of ``TIMES`` more."""
    seconds = []
    for _ in range(TIMES + 1):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return 1000 * seconds[0], 1000 * statistics.median(seconds[1:])


@click.command()
@click.option("--pairs", default=1_000_000, help="How many.")
def main(pairs: int) -> None:
    """Measure."""
    began = time.perf_counter()
    of = made(pairs, np.random.default_rng(0))
    print(
        f"{len(of.pairs):,} pairs, {len(of.proposed):,} proposals, "
        f"made and joined in {time.perf_counter() - began:.1f} s"
    )
    all_ = as_frame(of)
    app = create_app("benchmark", of)

    async def get(path: str) -> None:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as browser:
            (await browser.get(path)).raise_for_status()

    print("| page | first, ms | again, ms | pandas, ms | ratio of the first, again |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for path, plain in PAGES.items():
        first, again = first_and_median_ms(lambda path=path: asyncio.run(get(path)))
        _, pandas = first_and_median_ms(lambda plain=plain: plain(all_))
        ratios = f"{first / pandas:.2f}, {again / pandas:.2f}"
        print(f"| `{path}` | {first:.0f} | {again:.0f} | {pandas:.0f} | {ratios} |")


if __name__ == "__main__":
    main()
