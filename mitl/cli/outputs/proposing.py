"""The keys of ``counts`` of making a project and proposing pairs, and what they mean."""

from __future__ import annotations

COUNTS: dict[str, dict[str, str]] = {
    "init": {
        "images": "images loaded",
        "captions": "captions loaded",
        "images_placed": "images whose file or address this call made known",
        "ratings": "CxC ratings that this call added",
        "exclusions": "exclusion list entries that this call added",
    },
    "annotators": {
        "known": "names and forms of names",
        "ready": "those that could propose as things are: packages, settings and files are there",
        "annotators": "each of them: name, ready, what, needs, missing, download",
    },
    "annotators check": {
        "network": "the network that the file was held against",
        "fits": "whether it can be used as it is",
        "fits_as": "other networks that it does fit, where it does not fit this one",
        "layout": "how the file is built, outermost first",
        "what": "what it holds, in a line",
        "numbers": "weights, biases and running statistics",
        "settings": "what was read off the file: K, words, sizes",
        "matched": "keys of the right name and shape",
        "missing": "keys that the network needs and the file lacks",
        "unexpected": "keys that the network does not know",
        "misshapen": "keys of another shape, with both shapes",
        "ignored": "keys that are known and not needed → the reason",
        "absent": "keys of the network that the file need not have → the reason",
        "problems": "whatever else is wrong, a sentence each",
        "vocabulary": "how many words it has and which list it is; null without `--vocabulary`",
        "published": "row of the published figures; null where nothing was published of such a file",
        "published_recall": "protocol (5K, 1K) → direction → R@K → percent",
    },
    "annotators verify": {
        "annotator": "its name",
        "images": "images ranked",
        "captions": "captions ranked",
        "recall": "protocol (5K, 1K; all on other data) → direction → R@K → percent",
        "published": "row that it was held against; null where there is none",
        "published_recall": "the same of the published figures",
        "tolerance": "points by which each may be off",
        "within": "whether all are; null where there is nothing to compare with",
        "rankings_computed": "rankings not found in `runs/`",
    },
    "propose": {
        "run": "the run's name: a hash of its configuration",
        "image_queries": "images that search",
        "caption_queries": "captions that search",
        "proposals": "rows (pair, annotator, direction)",
        "pairs": "distinct candidate pairs of the run",
        "new_pairs": "those that no earlier run had proposed",
        "rankings_computed": "rankings not found in `runs/`",
        "images_encoded": "images that had to be encoded, once for each annotator",
        "captions_encoded": "the same of captions",
        "pairs_scored": "pairs that had to be scored one by one",
        "kept_bytes": "what encodings and scores of pairs take in `runs/`; both folders can be deleted at any time",
        "devices": "by annotator: where its network ran, as torch calls it",
        "products": "what multiplied vectors: numpy, torch, bf16, int8, cuda or faiss; none where rankings were there",
        "shortlists": "annotator and direction → how much of the true top k its shortlist holds: share, low, high, k, "
        "depth, candidates of a query, gallery, and on what that was measured",
        "annotators": "by annotator: proposed, unique, new (not by those before it), exclusive, overlap (share also "
        "proposed by another)",
        "images": "images that the estimate is for (`--estimate`)",
        "captions": "captions that it is for (`--estimate`)",
        "machines": "machines that share the work (`--estimate`)",
        "estimates": "hardware → its rates, and by annotator, in total and for alternatives: encode_flop, "
        "compare_flop, pairs, kept_bytes, read_bytes, seconds, cents (`--estimate`)",
    },
}
