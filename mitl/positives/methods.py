"""The methods section of a paper, from what really happened: sentences, a table, and what they cite.

A sentence is there only where what it says was done. Text is plain, with citations beside it, until it
is rendered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mitl.judgements.aggregators import Aggregator
from mitl.positives.datasheet import KINDS
from mitl.positives.markdown import listed
from mitl.positives.methods_facts import Cite, Facts, Paragraph, Part, Sentence, UsedMachine
from mitl.positives.methods_people import annotation
from mitl.positives.methods_proof import audited, evaluated, machine_labels
from mitl.positives.references import NAMES_OF_NETWORKS, OF_DATASETS, OF_NETWORKS
from mitl.positives.release_input import ProposalRun, QueryDraw
from mitl.positives.sheet_rounds import rounds_told
from mitl.records import Direction, PositiveSource, several


def paragraphs(of: Facts) -> list[Paragraph]:
    """The section; a paragraph without anything to say is not there."""
    made = (
        ("Data", _data(of)),
        ("Candidates", _candidates(of)),
        ("Annotation", annotation(of)),
        ("Merging", _merging(of)),
        ("Machine labels", machine_labels(of)),
        ("Audit", audited(of)),
        ("Evaluation", evaluated(of)),
        ("Software", _software(of)),
    )
    found = [Paragraph(title, tuple(sentences)) for title, sentences in made]
    return [paragraph for paragraph in found if paragraph.sentences]


def cited(of: Sequence[Paragraph]) -> list[str]:
    """The keys in the order in which they are first cited."""
    keys = (
        key
        for paragraph in of
        for sentence in paragraph.sentences
        for part in sentence
        if isinstance(part, Cite)
        for key in part.keys
    )
    return list(dict.fromkeys(keys))


def _data(of: Facts) -> Iterator[Sentence]:
    data = of.data
    name = of.release or ""
    sources = OF_DATASETS.get(of.dataset_kind, ())
    built = f"The release {name} is built on {data.dataset}" if name else f"The data set is {data.dataset}"
    size = f"{several(len(data.image_ids), 'image')} and {several(len(data.caption_ids), 'caption')}"
    yield (built, *([Cite(sources)] if sources else []), f", with {size}.")
    if of.dataset_kind == "scenes":
        yield ("Its images and captions are generated, so that every match is known.",)


def _candidates(of: Facts) -> Iterator[Sentence]:
    data, summary = of.data, of.summary
    if not summary.proposed_by:
        return
    if summary.judgements:
        yield (
            "As for ECCV Caption",
            Cite(("chun2022eccv",)),
            ", machine annotators proposed candidate pairs and people verified them.",
        )
    by_name = {machine.name: machine for machine in of.machines}
    parts: list[Part] = [f"{several(len(summary.proposed_by), 'machine annotator')} proposed candidates: "]
    for number, name in enumerate(summary.proposed_by):
        machine = by_name.get(name)
        parts += [", " if number else "", name, *_what(machine)]
    yield (*parts, ".")
    for run in data.origins.runs:
        yield (_run(run),)
    yield (f"Together they proposed {several(summary.proposed, 'distinct pair')}.",)
    for told in rounds_told(data.origins):
        yield (told,)


def _what(machine: UsedMachine | None) -> list[Part]:
    if machine is None:
        return []
    if machine.network in OF_NETWORKS:
        small = "a small network of the kind of " if machine.small else ""
        return [f" ({small}{NAMES_OF_NETWORKS[machine.network]}", Cite((OF_NETWORKS[machine.network],)), ")"]
    return [f" ({KINDS[machine.kind]})"]


def _run(run: ProposalRun) -> str:
    draws = listed([_draw(draw) for draw in run.draws]) or "no queries"
    return (
        f"For {draws}, the first {run.top_k} ranks of {listed(list(run.annotators))} were proposed and the first "
        f"{run.depth} kept."
    )


def _draw(draw: QueryDraw) -> str:
    side, items = ("image", "images") if draw.direction is Direction.I2T else ("caption", "captions")
    if draw.queries >= draw.items:
        return f"all {draw.items:,} {items} as queries"
    how = "listed" if draw.seed is None else f"drawn at random (seed {draw.seed})"
    return f"{several(draw.queries, f'{side} query', f'{side} queries')} {how} of {draw.items:,} {items}"


_TOGETHER: dict[Aggregator, Sentence] = {
    Aggregator.MAJORITY: ("Several answers on one pair were taken together by majority.",),
    Aggregator.DAWID_SKENE: (
        "Several answers on one pair were taken together by the model of Dawid and Skene",
        Cite(("dawid1979em",)),
        ", each worker with a confusion matrix of their own.",
    ),
    Aggregator.ORDINAL: (
        "Several answers on one pair were taken together by an ordinal model, in which pairs match in degrees and each "
        "worker has a bias and a noise.",
    ),
}


def _merging(of: Facts) -> Iterator[Sentence]:
    data, summary, rules = of.data, of.summary, of.data.rules
    if summary.judgements:
        yield _TOGETHER[rules.aggregator]
        yield (
            f"A pair is positive where its answer is {'yes' if rules.strict else 'yes or weak yes'}; "
            f"{several(summary.negatives, 'pair')} {'was' if summary.negatives == 1 else 'were'} refused.",
        )
    if data.merged.pairs["score"].notna().any():
        yield (
            "Ratings of Crisscrossed Captions",
            Cite(("parekh2021cxc",)),
            f" of {rules.cxc_threshold:g} or more make positives where people were not asked.",
        )
    if rules.official:
        yield ("The filters are those of ECCV Caption's released files", Cite(("chun2022eccv",)), ".")
    elif rules.with_originals:
        yield ("Original pairs that nothing contradicts stay.",)
    if summary.excluded:
        yield (f"Exclusion lists took {several(summary.excluded, 'positive')} out.",)
    by_source = [
        f"{summary.by_source[source]:,} {_SPEAKS[source]}"
        for source in summary.sources
        if summary.by_source[source]
    ]
    sides = [
        f"{summary.query_positives[way]:,} for {summary.queries_listed[way]:,} of {summary.queries_asked[way]:,} "
        f"{noun} queries"
        for way, noun in ((Direction.I2T, "image"), (Direction.T2I, "caption"))
        if summary.queries_asked[way]
    ]
    told = f" ({'; '.join(by_source)}; a pair may have several)" if by_source else ""
    listing = f", {listed(sides)}" if sides else ""
    has = "The release has" if of.release else "A release of what is known today would have"
    yield (f"{has} {several(summary.positives, 'positive')}{told}{listing}.",)


_SPEAKS = {
    PositiveSource.JUDGEMENT: "confirmed by people",
    PositiveSource.CXC: "by ratings",
    PositiveSource.ORIGINAL: "original",
    PositiveSource.MACHINE: "labelled by a machine",
    PositiveSource.AUDIT: "found by the audit alone",
}


def _software(of: Facts) -> Iterator[Sentence]:
    if of.versions:
        yield (
            "Everything was computed with "
            + listed([f"{name} {number}" for name, number in of.versions])
            + ".",
        )
