"""The release's datasheet, for people."""

from __future__ import annotations

from collections.abc import Mapping

from mitl.core.pricing import format_dollars
from mitl.judgements.aggregators import Aggregator
from mitl.positives.markdown import listed, plain, table
from mitl.positives.merging import MergeRules
from mitl.positives.release_input import (
    Collecting,
    Origins,
    ProposalRun,
    QueryDraw,
    ReleaseCard,
    ReleaseInput,
)
from mitl.positives.sheet_audit import audit_told, learnt, machine_told, rounds_told, unasked
from mitl.positives.sheet_people import NOT_STATED, judging
from mitl.positives.summary import Summary
from mitl.records import AnnotatorKind, Direction, Environment, ExclusionKind, PositiveSource, several

KINDS: Mapping[AnnotatorKind, str] = {
    AnnotatorKind.INNER_PRODUCT: "one vector an item, compared by inner product or cosine",
    AnnotatorKind.MULTI_VECTOR: "several vectors an item",
    AnnotatorKind.PROBABILITY: "distributions, compared by match probability",
    AnnotatorKind.PAIRWISE: "scores each pair by itself",
    AnnotatorKind.RANKING: "brings its own rankings",
}
"""How each kind compares, in words."""
_SIDES = {
    Direction.I2T: ("image query", "image queries"),
    Direction.T2I: ("caption query", "caption queries"),
}


def proposals(origins: Origins, summary: Summary) -> str:
    """Who proposed pairs, for which queries."""
    if not summary.proposed_by:
        return "No machine annotator proposed any of these pairs."
    kinds = origins.kinds
    rows = [
        (plain(name), KINDS[kinds[name]] if name in kinds else "–", f"{count:,}")
        for name, count in summary.proposed_by.items()
    ]
    if origins.past_work and not origins.runs:
        told = "The files of past work say which machine annotator proposed which pair, and at which rank."
    else:
        told = (
            "Each machine annotator ranked the gallery for each sampled query; the first ranks were proposed. "
            "Original pairs among them were asked like any other."
        )
    parts = [told, table(("machine annotator", "how it compares", "pairs proposed"), rows)]
    if origins.runs:
        parts.append("\n".join(f"- {_run(run)}" for run in origins.runs))
    if origins.trained:
        parts.append("Some of them learnt from answers in this project before they proposed:")
        parts.append(
            "\n".join(f"- {plain(model.name)}: {plain(learnt(model))}." for model in origins.trained)
        )
    if origins.rounds:
        parts.append(
            "Rounds chose which of the ranked pairs were asked, those beyond the first ranks among them; `round` and "
            "`strategy` in `positives.parquet` and `negatives.parquet` name what chose a pair:"
        )
        parts.append("\n".join(f"- {told}" for told in rounds_told(origins)))
    return "\n\n".join(parts)


def _run(run: ProposalRun) -> str:
    asked = listed([_draw(draw) for draw in run.draws]) or "no queries"
    return (
        f"{listed([plain(name) for name in run.annotators])}: {asked}; the first {run.top_k} ranks of each were "
        f"proposed, rankings were kept to rank {run.depth}."
    )


def _draw(draw: QueryDraw) -> str:
    noun = several(draw.queries, *_SIDES[draw.direction])
    items = f"{draw.items:,} {'images' if draw.direction is Direction.I2T else 'captions'}"
    if draw.queries >= draw.items:
        return f"{noun} (all there are)"
    if draw.seed is None:
        return f"{noun} of {items}, chosen by the makers (a list of ids, or a draw with another seed)"
    return f"{noun} drawn at random from {items} without replacement, seed {draw.seed}"


def datasheet(data: ReleaseInput, summary: Summary) -> str:
    """How the data came to be, what it holds and what to keep in mind, in Markdown."""
    card = data.card
    parts = [
        f"# Datasheet of {plain(data.name)}",
        plain(card.description) or f"Which images and captions of {plain(data.dataset)} match.",
        "## What it is for",
        "Retrieval between images and captions is scored against the pairs that are known to match. "
        "Most data sets know only the pairs in which the caption was written for the image, so a right "
        f"answer often counts as wrong. {_remedy(data, summary)}",
        "## What it holds",
        _composition(data, summary),
        "## How pairs were proposed",
        proposals(data.origins, summary),
        "## How pairs were judged",
        judging(data, summary),
        *(["## What people wrote and picked", _collected(data, data.collecting)] if data.collecting else []),
        "## How judgements became positives",
        _merging(data),
        *(["## What a machine labelled", machine_told(data)] if data.has_machine_labels else []),
        *(["## How complete and how right it is", audit_told(data)] if data.audit is not None else []),
        "## What was taken out",
        _exclusions(data, summary),
        "## What to keep in mind",
        _cautions(data, summary),
        "## Rights, contact, upkeep",
        rights(card, "judgements and positives"),
        "`manifest.json` holds the configuration, seeds and versions that rebuild these files, and "
        "their hashes.",
    ]
    return "\n\n".join(parts) + "\n"


def rights(card: ReleaseCard, what: str) -> str:
    """What the makers state of rights and upkeep; ``what`` is licensed."""
    rows = [
        (f"licence of {what}", plain(card.license) or NOT_STATED),
        ("licence of images and captions", plain(card.items_license) or NOT_STATED),
        ("made by", ", ".join(map(plain, card.creators)) or NOT_STATED),
        ("contact", plain(card.contact) or NOT_STATED),
        ("found at", plain(card.url) or NOT_STATED),
        ("cite as", plain(card.citation) or NOT_STATED),
        ("published", plain(card.date_published) or NOT_STATED),
        ("version", plain(card.version)),
    ]
    return table(("", ""), rows)


def _remedy(data: ReleaseInput, summary: Summary) -> str:
    if summary.proposed_by and summary.judgements:
        return "Here machines proposed further pairs and people said whether they match."
    if summary.judgements:
        return "Here people said of further pairs whether they match."
    if data.audit is not None:
        return "Here people said of a random sample of pairs whether they match."
    if data.has_collected:
        return "Here people wrote or picked partners for chosen items."
    return "Here earlier ratings say which further pairs match; nobody was asked for this release."


def _composition(data: ReleaseInput, summary: Summary) -> str:
    money = "practice money" if data.environment is Environment.SANDBOX else "real money"
    if not data.origins.batches and not data.has_collected:
        money = "nothing was posted in it"
    rows = [
        ("positives", f"{summary.positives:,}"),
        *((f"… that {_SPEAKS[s]}", f"{summary.by_source[s]:,}") for s in summary.sources),
        *(
            (
                f"{noun} queries with positives, of all {noun} queries",
                f"{summary.queries_listed[d]:,} of {summary.queries_asked[d]:,}",
            )
            for d, noun in ((Direction.I2T, "image"), (Direction.T2I, "caption"))
        ),
        (
            f"pairs that people{' or a machine' if data.has_machine_labels else ''} called no match "
            "(`negatives.parquet`)",
            f"{summary.negatives:,}",
        ),
        ("answers of people, of which usable", f"{summary.judgements:,}, {summary.usable:,}"),
        ("pairs with a usable answer", f"{summary.pairs_judged:,}"),
        ("pairs on which sources disagree (`conflicts.csv`)", f"{summary.conflicts:,}"),
        ("positives taken out by exclusion lists", f"{summary.excluded:,}"),
        ("data set", plain(data.dataset)),
        ("environment", f"{data.environment.value} ({money})"),
    ]
    return table(("", ""), rows) + (
        "\n\nImages and captions are named by their ids and are not part of the release."
    )


def _collected(data: ReleaseInput, found: Collecting) -> str:
    rows = [
        ("items chosen to get a partner", f"{found.chosen:,}"),
        ("texts written for images", f"{found.written:,}"),
        ("answers where an image was to be picked for a caption", f"{found.picked:,}"),
        ("… that break a rule, or say that no image matches", f"{found.faulty:,}"),
        ("… that a second worker refused", f"{found.refused:,}"),
        ("… that a second worker accepted", f"{found.accepted:,}"),
        ("… and no exclusion list names (`collected.parquet`)", f"{len(data.collected):,}"),
        ("paid, reviews included", format_dollars(found.paid_cents)),
    ]
    return (
        "People wrote a text for images that were chosen, or picked the image that a caption describes; a second "
        "worker said how well both match, and what was accepted is an original of this release.\n\n"
    ) + table(("", ""), rows)


_SPEAKS = {
    PositiveSource.JUDGEMENT: "people confirmed",
    PositiveSource.CXC: "earlier ratings call a match",
    PositiveSource.ORIGINAL: "are original pairs",
    PositiveSource.MACHINE: "a machine labelled a match, and nobody judged",
    PositiveSource.AUDIT: "only the audit found",
}


_TOGETHER = {
    Aggregator.MAJORITY: "Several answers on one pair are taken together by majority; a tie goes to the answer nearer "
    "the median, then towards no.",
    Aggregator.DAWID_SKENE: "Several answers on one pair are taken together by the model of Dawid and Skene: each "
    "worker errs in ways of their own, learned from the pairs that several people answered and from the controls.",
    Aggregator.ORDINAL: "Several answers on one pair are taken together by an ordinal model: pairs match in degrees, "
    "each worker has a bias and a noise, learned from the pairs that several people answered and from the controls.",
}

_PROBABILITY = {
    Aggregator.MAJORITY: "`probability` is the plain share of positive answers; after a single answer it is 0 or 1.",
    Aggregator.DAWID_SKENE: "`probability` is the model's posterior that the answer is yes or weak_yes.",
    Aggregator.ORDINAL: "`probability` is the model's posterior that the answer is yes or weak_yes.",
}


def together(rules: MergeRules) -> str:
    """How several answers on a pair became one, and what they are worth against other sources."""
    if rules.official:
        one = "one yes" if rules.strict else "one positive answer"
        return (
            f"The treatment of ECCV Caption's released files was reproduced: {one} makes a "
            "positive, one of earlier ratings stays though people refused it, single wrong pairs are not taken "
            "out, and a query is listed only if people confirmed a positive for it and ratings have one."
        )
    return (
        f"{_TOGETHER[rules.aggregator]} An answer of people beats an earlier rating, and a rating "
        "beats the original annotation."
    )


def _merging(data: ReleaseInput) -> str:
    rules = data.rules
    lines = [together(rules)]
    if not rules.official:
        if data.fit:
            lines.append(f"The fit of the model {data.fit}.")
        if data.posterior is not None:
            lines.append("`posteriors.parquet` holds how probable it calls each answer of a pair.")
        lines += [f"{warning[:1].upper()}{warning[1:]}." for warning in data.warnings]
    accepted = "yes" if rules.strict else "yes or weak_yes"
    lines.append(
        f"A pair is positive if its answer is {accepted}; unasked pairs are, if earlier ratings are "
        f"{rules.cxc_threshold:g} or more."
    )
    if rules.with_originals:
        lines.append("An original pair that nobody judged or rated was kept.")
    if data.has_ratings:
        files = listed(
            [
                f"{plain(file.name)} ({several(file.ratings, 'rating')}, SHA-256 `{file.sha256}`)"
                for file in data.origins.rated_in
            ]
        )
        lines.append(
            f"Earlier ratings, `cxc` in the tables, were {f'read from {files}' if files else 'given to the project'} "
            "in the layout of Crisscrossed Captions (Parekh et al., EACL 2021), whose own are free to use with "
            f"acknowledgement; {'the sums tell' if files else 'nothing here tells'} them from another lab's."
        )
    return " ".join(lines)


def _exclusions(data: ReleaseInput, summary: Summary) -> str:
    lists = data.origins.exclusions
    if not lists:
        return "There are no exclusion lists."
    rows = [(plain(entry.source), _TAKES[entry.kind], f"{entry.entries:,}") for entry in lists]
    official = (
        " The released files that were reproduced do not apply lists of single pairs."
        if data.rules.official
        else ""
    )
    return (
        table(("list", "takes out", "entries"), rows)
        + f"\n\nThey took {several(summary.excluded, 'positive')} out of this release.{official}"
    )


_TAKES = {
    ExclusionKind.CAPTION: "meaningless captions, with every pair of theirs",
    ExclusionKind.PAIR: "captions from an image that they do not describe",
    ExclusionKind.WRONG: "pairs that people called a match although a part is wrong",
    ExclusionKind.IMAGE: "images, with every pair of theirs",
}


def _cautions(data: ReleaseInput, summary: Summary) -> str:
    share = data.origins.busiest_share(summary.largest_share)
    busy = share is not None and share > 0.2
    favours = ", and it favours models that resemble the annotators: say so when scoring one of them"
    favours = favours if summary.proposed_by else ""
    said = [
        (True, f"{unasked(data, summary)}. The set is not complete{favours}."),
        (
            summary.unanswered > 0,
            f"{several(summary.unanswered, 'pair')} of the {summary.proposed:,} that machine annotators proposed "
            f"{'has' if summary.unanswered == 1 else 'have'} no usable answer; matches among them that nothing else "
            "tells are missing here.",
        ),
        (summary.judgements > 0, _PROBABILITY[data.rules.aggregator]),
        (
            summary.judgements > 0,
            "Disagreement between people may be real. `judgements.parquet` keeps every answer as given.",
        ),
        (
            (data.origins.crowd is not None or data.has_collected)
            and data.environment is Environment.SANDBOX,
            "The answers were given for practice money. Scripted workers (`mitl simulate`) answer there as people do, "
            "and nothing in these files tells them apart.",
        ),
        (busy, "More than a fifth of the answers come from one worker."),
    ]
    return "\n".join(f"- {words}" for holds, words in said if holds)
