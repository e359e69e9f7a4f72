"""The walk on the real COCO test split with caption pivots and scripted workers: times, HITs and reach.

    python benchmarks/coco_walk.py --data DIR --out DIR [--text-models minilm tfidf lsa minilm tfidf]

DIR of --data holds ``captions.parquet`` (compact captions), ``sits_test.csv`` (CxC) and
``machine_captions.parquet`` (a column per captioner), directly or in one folder each. Prints one line per step and
the share of the released ECCV Caption positives that each annotator's proposals reach.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from shared_kit import coco_files, parser_of

CAPTIONERS = ("PureT_SCST", "SATIC", "SparseCaption_test156000", "ShowEditTell_RL", "BERT_VR_rerank_0.4")


def main() -> None:
    """Run the steps as a user would, each in its own process."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="project folder to make")
    parser.add_argument("--text-models", nargs=5, default=["minilm", "tfidf", "lsa", "minilm", "tfidf"])
    arguments = parser.parse_args()
    project = arguments.out.absolute()
    captions, cxc, machine = coco_files(arguments.data)
    names = [f"pivot-{c}-{t}" for c, t in zip(CAPTIONERS, arguments.text_models, strict=True)]
    seconds: dict[str, float] = {}

    def step(*words: str) -> None:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "mitl", *words], check=True, cwd=project)
        seconds[" ".join(words[:2])] = seconds.get(" ".join(words[:2]), 0.0) + time.perf_counter() - started
        print(f"# {time.perf_counter() - started:7.1f} s  mitl {' '.join(words)}", flush=True)

    project.mkdir(parents=True, exist_ok=True)
    step("init", "--dataset", "coco", "--captions", str(captions), "--cxc", str(cxc), "--exclude", "paper")
    _add_annotators(project / "mitl.toml", names, machine)
    step("propose", "--image-query-ids", "eccv", "--caption-query-ids", "eccv")
    loop = time.perf_counter()
    for _ in range(6):
        step("publish", "--sandbox")
        step("simulate", "--truth", "official")
        step("harvest")
        step("review", "settle")
        if _nothing_open(project):
            break
    step("build-dataset", "--out", "release", "--recipe", "paper")
    print(f"# posted, answered, harvested and built in {time.perf_counter() - loop:.1f} s")
    step("status")
    _reach(project)


def _add_annotators(config: Path, names: list[str], machine: Path) -> None:
    text = config.read_text(encoding="utf-8")
    if "\n[propose]" in text:  # what `mitl init` suggests is a comment
        return
    listed = ", ".join(f'"{name}"' for name in names)
    text += f"\n[propose]\nannotators = [{listed}]\n"
    text += "".join(f'\n[annotators."{name}"]\ncaptions = "{machine}"\n' for name in names)
    config.write_text(text, encoding="utf-8")


def _nothing_open(project: Path) -> bool:
    from mitl.settings import load
    from mitl.stages.reporting.status import status

    counts = status(load(project)).counts
    return not (counts["pairs_open"] or counts["hits_to_ask_again"] or counts["queued"])


def _reach(project: Path) -> None:
    """Share of the released positives of the queries that the proposals hold, by annotator and together."""
    from collections import defaultdict

    from mitl.core.arrays import unpack_pairs
    from mitl.db.session import open_database
    from mitl.db.store import columns, items
    from mitl.positives.loading import official_positives
    from mitl.records import Direction
    from mitl.settings import load

    settings = load(project)
    with open_database(settings.db_url, read_only=True) as session:
        dataset = items.dataset(session)
        images = {i.id: i.external_id for i in items.images(session, dataset.id, project)}
        captions = {c.id: c.external_id for c in items.captions(session, dataset.id)}
        rows = columns.proposal_columns(session)
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for pair_of, annotator in zip(unpack_pairs(rows["pair"].to_numpy()), rows["annotator"], strict=True):
        pair = images[pair_of.image_id], captions[pair_of.caption_id]
        found[annotator].add(pair)
        found["together"].add(pair)
    released = official_positives("eccv")
    sides = {direction: released.pairs(direction) for direction in Direction}
    union = sides[Direction.I2T] | sides[Direction.T2I]
    print(
        f"# released pairs: i2t {len(sides[Direction.I2T]):,}, t2i {len(sides[Direction.T2I]):,}, union {len(union):,}"
    )
    for name, pairs in found.items():
        shares = [len(pairs & wanted) / len(wanted) for wanted in (*sides.values(), union)]
        print(f"# {name:40} i2t {shares[0]:6.1%}  t2i {shares[1]:6.1%}  union {shares[2]:6.1%}")


if __name__ == "__main__":
    main()
