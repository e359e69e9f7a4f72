"""The release's datasheet and README, for people."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence

from mitl.positives.release_input import ReleaseInput
from mitl.positives.summary import Summary
from mitl.records import Direction, IdKind, PositiveSource

_NOT_STATED = "not stated"


def datasheet(data: ReleaseInput, summary: Summary) -> str:
    """How the data came to be, what it holds and what to keep in mind, in Markdown."""
    card = data.card
    parts = [
        f"# Datasheet of {_text(data.name)}",
        _text(card.description) or f"Which images and captions of {_text(data.dataset)} match.",
        "## What it is for",
        "Retrieval between images and captions is scored against the pairs that are known to match. "
        "Most data sets know only the pairs in which the caption was written for the image, so a right "
        "answer often counts as wrong. Here machines proposed further pairs and people said whether "
        "they match.",
        "## What it holds",
        _composition(data, summary),
        "## How pairs were proposed",
        _proposals(summary),
        "## How pairs were judged",
        _judging(data, summary),
        "## How judgements became positives",
        _merging(data, summary),
        "## What to keep in mind",
        _cautions(summary),
        "## Rights, contact, upkeep",
        _table(
            ("", ""),
            [
                ("licence of judgements and positives", _text(card.license) or _NOT_STATED),
                ("licence of images and captions", _text(card.items_license) or _NOT_STATED),
                ("made by", ", ".join(map(_text, card.creators)) or _NOT_STATED),
                ("contact", _text(card.contact) or _NOT_STATED),
                ("cite as", _text(card.citation) or _NOT_STATED),
                ("version", _text(card.version)),
            ],
        ),
        "`manifest.json` holds the configuration, seeds and versions that rebuild these files, and "
        "their hashes.",
    ]
    return "\n\n".join(parts) + "\n"


def readme(data: ReleaseInput, summary: Summary, files: Iterable[str]) -> str:
    """The folder's first page; its front matter lets the ``datasets`` library load the tables by name."""
    names = sorted(files)
    front = [f"pretty_name: {json.dumps(data.name, ensure_ascii=False)}"]
    if data.card.license:
        front.append(f"license: {json.dumps(data.card.license, ensure_ascii=False)}")
    front.append("configs:")
    for table in ("positives", "judgements", "ids"):
        if f"{table}.parquet" in names:
            front += [f"- config_name: {table}", f"  data_files: {table}.parquet"]
            front += ["  default: true"] if table == "positives" else []
    listed = " and ".join(
        f"{summary.query_positives[direction]:,} for {summary.queries_listed[direction]:,} {noun} queries"
        for direction, noun in ((Direction.I2T, "image"), (Direction.T2I, "caption"))
    )
    body = [
        f"# {_text(data.name)}",
        f"{summary.positives:,} pairs of {_text(data.dataset)} in which the caption describes the image: "
        f"{listed}. How they came to be is told in `datasheet.md`.",
        "`image_to_caption.json` and `caption_to_image.json` load in the `eccv_caption` package:",
        "```python\nfrom eccv_caption import Metrics\n\nmetrics = Metrics()\n"
        'metrics.set_eccv_gts("image_to_caption.json", "caption_to_image.json")\n```',
        "They list the queries that were sampled and have a positive; the positives of other items were "
        "not looked for.",
    ]
    if data.id_kind is IdKind.STRING:
        body.append("Their integers stand for string ids: `ids.parquet` tells which.")
    return "---\n" + "\n".join(front) + "\n---\n\n" + "\n\n".join(body) + "\n"


def _composition(data: ReleaseInput, summary: Summary) -> str:
    rows = [
        ("positives", f"{summary.positives:,}"),
        *((f"… that {_SPEAKS[s]}", f"{summary.by_source[s]:,}") for s in PositiveSource),
        *(
            (
                f"{noun} queries with positives, of those sampled",
                f"{summary.queries_listed[d]:,} of {summary.queries_asked[d]:,}",
            )
            for d, noun in ((Direction.I2T, "image"), (Direction.T2I, "caption"))
        ),
        ("answers of people, of which usable", f"{summary.judgements:,}, {summary.usable:,}"),
        ("pairs with a usable answer", f"{summary.pairs_judged:,}"),
        ("pairs on which sources disagree (`conflicts.csv`)", f"{summary.conflicts:,}"),
        ("positives taken out by exclusion lists", f"{summary.excluded:,}"),
        ("data set", _text(data.dataset)),
        ("environment", "practice money" if data.environment.value == "sandbox" else "real money"),
    ]
    return _table(("", "count"), rows) + (
        "\n\nImages and captions are named by their ids and are not part of the release."
    )


_SPEAKS = {
    PositiveSource.JUDGEMENT: "people confirmed",
    PositiveSource.CXC: "CxC rates as a match",
    PositiveSource.ORIGINAL: "are original pairs",
}


def _proposals(summary: Summary) -> str:
    if not summary.proposed_by:
        return "No machine annotator proposed any of these pairs."
    rows = [(_text(name), f"{count:,}") for name, count in summary.proposed_by.items()]
    return (
        "Each machine annotator ranked the gallery for each sampled query; the first ranks were proposed. "
        "Original pairs among them were asked like any other.\n\n"
        + _table(("machine annotator", "pairs proposed"), rows)
    )


def _judging(data: ReleaseInput, summary: Summary) -> str:
    total = sum(summary.labels.values())
    rows = [
        (label.value, f"{count:,}", f"{100 * count / total:.1f} %" if total else "–")
        for label, count in summary.labels.items()
    ]
    lines = [
        "People saw an image with a caption and chose one of four answers. Each page also held two "
        "controls whose answer is known; a page that failed one went to a person, and nothing was "
        "rejected by rule. Answers to controls are in none of these files.",
        _table(("usable answers", "count", "share"), rows),
        _table(("crowd", ""), _crowd(data, summary)),
        "Workers appear under pseudonyms keyed by a secret that is not released. Their free-text "
        "remarks are left out of this release, because free text may hold anything.",
    ]
    return "\n\n".join(lines)


def _crowd(data: ReleaseInput, summary: Summary) -> list[tuple[str, str]]:
    share, seconds = summary.largest_share, summary.median_active_s
    return [
        ("workers", f"{summary.workers:,}"),
        ("share of the busiest worker", "–" if share is None else f"{100 * share:.1f} %"),
        ("median active time a pair", "not measured" if seconds is None else f"{seconds:.1f} s"),
        *((_text(name), _text(value)) for name, value in sorted(data.crowd_facts.items())),
        ("pay", _text(data.card.pay) or _NOT_STATED),
        ("consent and ethics review", _text(data.card.ethics) or _NOT_STATED),
    ]


def _merging(data: ReleaseInput, summary: Summary) -> str:
    rules = data.rules
    lines = []
    if rules.official:
        lines.append(
            "The treatment of ECCV Caption's released files was reproduced: one positive answer makes a "
            "positive, a CxC positive stays though people refused it, single wrong pairs are not taken "
            "out, and a query is listed only if people confirmed a positive for it and CxC has one."
        )
    else:
        lines.append(
            "Several answers on one pair are taken together by majority; a tie goes to the answer "
            "nearer the median, then towards no. An answer of people beats a CxC rating, and a rating "
            "beats the original annotation."
        )
    accepted = "yes" if rules.strict else "yes or weak_yes"
    lines.append(
        f"A pair is positive if its answer is {accepted}; unasked pairs are, if CxC rates them "
        f"{rules.cxc_threshold:g} or more."
    )
    if rules.with_originals:
        lines.append("An original pair that nobody judged and CxC did not rate was added.")
    return " ".join(lines)


def _cautions(summary: Summary) -> str:
    return "\n".join(
        [
            "- Pairs that no machine annotator proposed were never asked. The set is not complete, and "
            "it favours models that resemble the annotators: say so when scoring one of them.",
            "- `probability` is the plain share of positive answers; after a single answer it is 0 or 1.",
            "- Disagreement between people may be real. `judgements.parquet` keeps every answer as given.",
            *(
                ["- More than a fifth of the answers come from one worker."]
                if summary.largest_share is not None and summary.largest_share > 0.2
                else []
            ),
        ]
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _text(value: str) -> str:
    """Someone's words as one line of Markdown that is neither markup nor a table's edge."""
    line = html.escape(" ".join(value.split()), quote=False)
    return "".join("\\" + c if c in "\\`*_[]|#" else c for c in line)
