"""A sentence encoder against CxC: pseudo-labels of image-caption pairs, correlations, text-to-text retrieval.

Encodes the captions of the COCO test split with all-MiniLM-L6-v2 (minutes on a CPU; ``--encodings`` keeps them) and
prints Pearson's correlation of its pseudo-labels with CxC's SITS scores (0.877 with another S-BERT in Table II of
Li et al., Image-Text Retrieval with Binary and Continuous Label Supervision), the sampled Spearman correlations for STS
and SITS, and text-to-text Recall@K. An image is told by its own captions or, with ``--machine-captions``, by what a
captioner wrote about it.

    python benchmarks/pseudo_labels.py --data DIR [--encodings FILE.npz] [--captioner PureT_SCST] [--text-to-text]

DIR holds ``captions.parquet``, ``sts_test.csv``, ``sits_test.csv`` and ``machine_captions.parquet``, directly or in one
folder each.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from shared_kit import parser_of

from annotators.pivot import read_machine_captions
from annotators.sentences import shared_encoder
from mitl.datasets.coco import read_compact
from mitl.datasets.cxc import RatedPairs, read_rated_pairs
from mitl.metrics.correlation import Pooling, pearson, pseudo_labels, sampled_spearman
from mitl.metrics.crisscrossed import pair_similarities, score_within, scored_pairs, text_positives
from mitl.metrics.intervals import interval
from mitl.metrics.positives import Positives
from mitl.records.similarity import Likeness


def main() -> None:
    """Print one line per figure."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encodings", type=Path, help="file to keep the captions' vectors in (.npz)")
    parser.add_argument("--captioner", default="PureT_SCST")
    parser.add_argument(
        "--text-to-text", action="store_true", help="score text-to-text retrieval too: half a minute"
    )
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    data = read_compact(find(arguments.data, "captions.parquet"))
    caption_ids = np.array([int(caption.external_id) for caption in data.captions])
    image_ids = np.array([int(caption.image_external_id) for caption in data.captions])
    texts = [caption.text for caption in data.captions]
    embeddings = encoded(texts, caption_ids, arguments.encodings, arguments.threads)
    sts = read_rated_pairs(find(arguments.data, "sts_test.csv"), Likeness.STS)
    sits = read_rated_pairs(find(arguments.data, "sits_test.csv"), Likeness.SITS)
    print_labels(sits, caption_ids, image_ids, embeddings)
    print_correlations(
        "STS, captions", sts, pair_similarities(sts, (caption_ids, embeddings), (caption_ids, embeddings))
    )
    machine = read_machine_captions(find(arguments.data, "machine_captions.parquet"), arguments.captioner)
    written = shared_encoder("cpu").vectors([text or "" for text in machine.values()], arguments.threads)
    machine_ids = np.array([int(image) for image in machine])
    pivot = pair_similarities(sits, (machine_ids, written), (caption_ids, embeddings))
    print_correlations(f"SITS, pivot on {arguments.captioner}", sits, pivot)
    print(f"Pearson of that pivot with SITS                      {pearson(pivot, sits.scores):8.4f}")
    if arguments.text_to_text:
        print_text_to_text(sts, caption_ids, image_ids, embeddings)


def print_labels(
    sits: RatedPairs,
    caption_ids: NDArray[np.int64],
    image_ids: NDArray[np.int64],
    embeddings: NDArray[np.float32],
) -> None:
    """Pearson over all rated pairs and over those that are not original pairs, and the sampled Spearman."""
    own = Positives.from_pairs(image_ids, caption_ids)
    image_of = dict(zip(caption_ids.tolist(), image_ids.tolist(), strict=True))
    new = np.array([image_of[c] != i for i, c in zip(sits.first.tolist(), sits.second.tolist(), strict=True)])
    for pooling in Pooling:
        for itself in (True, False):
            labels = pseudo_labels(
                sits.first, sits.second, (caption_ids, embeddings), own, pooling=pooling, itself=itself
            )
            name = f"{pooling} of own captions" + ("" if itself else ", not itself")
            print(
                f"Pearson with SITS, {name:33} {pearson(labels, sits.scores):8.4f}; "
                f"{pearson(labels[new], sits.scores[new]):.4f} over the {int(new.sum())} new pairs"
            )
            print_correlations(f"SITS, {name}", sits, labels)


def print_correlations(name: str, rated: RatedPairs, similarities: NDArray[np.float64]) -> None:
    """CxC's mean ± std."""
    started = time.perf_counter()
    found = sampled_spearman(scored_pairs(rated, similarities))
    seconds = time.perf_counter() - started
    print(f"Spearman {name:43} {100 * found.mean:6.2f} ± {100 * found.std:.2f}  ({seconds:.1f} s)")


def print_text_to_text(
    sts: RatedPairs,
    caption_ids: NDArray[np.int64],
    image_ids: NDArray[np.int64],
    embeddings: NDArray[np.float32],
) -> None:
    """Recall@K and median rank with intervals, with co-captions as positives and without."""
    for name, groups in (("STS and co-captions", (caption_ids, image_ids)), ("STS alone", None)):
        started = time.perf_counter()
        found = score_within(caption_ids, embeddings, text_positives(sts, of_images=groups))
        seconds = time.perf_counter() - started
        print(f"text to text, {name}, {len(found[0])} queries ({seconds:.1f} s)")
        for values in found:
            shown = interval(values)
            print(f"  {values.metric:12} {shown.estimate:8.4f}  [{shown.low:.4f}, {shown.high:.4f}]")


def encoded(
    texts: list[str], caption_ids: NDArray[np.int64], kept: Path | None, threads: int
) -> NDArray[np.float32]:
    """(N, 384) unit rows, from the kept file where it holds these captions."""
    if kept is not None and kept.exists():
        with np.load(kept) as file:
            if np.array_equal(file["caption_id"], caption_ids):
                return np.asarray(file["embeddings"])
    started = time.perf_counter()
    vectors = shared_encoder("cpu").vectors(texts, threads)
    print(f"encoded {len(texts)} captions in {time.perf_counter() - started:.1f} s")
    if kept is not None:
        np.savez(kept, caption_id=caption_ids, embeddings=vectors)
    return vectors


def find(folder: Path, name: str) -> Path:
    """The file of that name in the folder or in one below it."""
    found = sorted([folder / name] if (folder / name).is_file() else folder.glob(f"*/{name}"))
    if not found:
        raise SystemExit(f"there is no {name} in {str(folder)!r}")
    return found[0]


if __name__ == "__main__":
    main()
