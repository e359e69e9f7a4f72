"""The methods section of a paper, from what really happened: sentences, a table, and what they cite.

A sentence is there only where what it says was done. Text is plain, with citations beside it, until it
is rendered. What a paper cites are the entries of ``references.bib``. Only what is certain is stated there: page
numbers stand where a paper's own list of references shows them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from mitl.analysis.report.inputs import EvaluationScore
from mitl.audits.certificate import ASSUMPTIONS
from mitl.audits.machine_labels import Loss
from mitl.core.formats import lower_bound, percent_at_most
from mitl.core.pricing import format_dollars
from mitl.hits.packing import CANDIDATES_PER_HIT
from mitl.judgements.aggregators import Aggregator
from mitl.positives.datasheet import KINDS
from mitl.positives.markdown import listed, release_words
from mitl.positives.release import makers_words
from mitl.positives.release_input import BatchPay, CrowdSummary, Pay, ProposalRun, QueryDraw, ReleaseInput
from mitl.positives.sheet_audit import machine_counts, rounds_told, siding_told
from mitl.positives.summary import Summary
from mitl.records import AnnotatorKind, Direction, Environment, PositiveSource, several
from mitl.records.forms import of_form
from mitl.records.frames import NONE

_ENTRIES = Path(__file__).with_name("references.bib").read_text(encoding="utf-8").rstrip("\n").split("\n\n")
REFERENCES = {entry.partition("{")[2].partition(",")[0]: f"{entry}\n" for entry in _ENTRIES}
"""Key → entry."""

OF_DATASETS = {
    "coco": ("lin2014coco", "chen2015captions", "karpathy2015splits"),
    "flickr30k": ("young2014flickr30k", "karpathy2015splits"),
}
"""Kind of data set → what describes it and its split."""
OF_NETWORKS = {
    "pvse": "song2019pvse",
    "vsrn": "li2019vsrn",
    "pcme": "chun2021pcme",
    "vilt": "kim2021vilt",
    "clip": "radford2021clip",
}
"""Network → what describes it."""

NAMES_OF_NETWORKS = {"pvse": "PVSE", "vsrn": "VSRN", "pcme": "PCME", "vilt": "ViLT", "clip": "CLIP"}
"""As their papers write them."""


def bibtex(keys: Collection[str]) -> str:
    """The entries of these keys, in alphabetical order."""
    return "\n".join(REFERENCES[key] for key in sorted(set(keys)))


@dataclass(frozen=True, slots=True)
class Cite:
    """A citation within a sentence."""

    keys: tuple[str, ...]


Part = str | Cite
Sentence = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One paragraph under its run-in heading."""

    title: str
    sentences: tuple[Sentence, ...]


@dataclass(frozen=True, slots=True)
class UsedMachine:
    """A machine annotator as a paper names it."""

    name: str
    kind: AnnotatorKind
    fingerprint: str
    """SHA-256 of what decides its similarities."""
    network: str | None = None
    """Which published network it is; None for others."""
    small: bool = False
    """Whether it is that network at a small size, trained here."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the section is made of."""

    data: ReleaseInput
    summary: Summary
    dataset_kind: str
    machines: tuple[UsedMachine, ...]
    release: str | None
    """The latest release that was built; None where none was, and the figures are of what one would hold."""
    other_work: tuple[tuple[str, int], ...] = ()
    """(what was asked, HITs) of other kinds of campaign: ``rankings``, ``similarity``."""
    audit_answers: int = 0
    """Answers that count for audits of recall, whose questions stand on HITs of pairs; certificate or not."""
    scores: tuple[EvaluationScore, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()

    @property
    def hits(self) -> int:
        """HITs of pairs that were posted."""
        return sum(batch.hits for batch in self.data.origins.batches)


def paragraphs(of: Facts) -> list[Paragraph]:
    """The section; a paragraph without anything to say is not there."""
    made = (
        ("Data", _data(of)),
        ("Candidates", _candidates(of)),
        ("Annotation", annotation(of)),
        ("Merging", _merging(of)),
        ("Machine labels", _machine_labels(of)),
        ("Audit", _audited(of)),
        ("Evaluation", _evaluated(of)),
        ("Software", _software(of)),
    )
    data = of.data
    named = {machine.name for machine in of.machines} | {
        name for score in of.scores for name in (score.annotator, score.positives)
    }
    makers = makers_words(data.card, data.name, data.dataset, *named)

    def words(part: Part) -> Part:
        return of_form(part, data.form, makers) if isinstance(part, str) else part

    found = [
        Paragraph(title, tuple(tuple(words(part) for part in sentence) for sentence in told))
        for title, told in made
    ]
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
    sources = OF_DATASETS.get(of.dataset_kind, ())
    named = f"The {release_words(of.release)} is built on" if of.release else "The data set is"
    size = f"{several(len(data.image_ids), 'image')} and {several(len(data.caption_ids), 'caption')}"
    yield (f"{named} {data.dataset}", *([Cite(sources)] if sources else []), f", with {size}.")
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
        parts += [", " if number else "", name, *_what(by_name.get(name))]
    yield (*parts, ".")
    for run in data.origins.runs:
        yield (_run(run),)
    they = "Together they" if len(summary.proposed_by) > 1 else "It"
    yield (f"{they} proposed {several(summary.proposed, 'distinct pair')}.",)
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
        return f"all {draw.items:,} {items}"
    how = "chosen" if draw.seed is None else f"drawn at random (seed {draw.seed})"
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
        pairs = data.merged.pairs
        refused = int((pairs["negative"] & (pairs["label"] != NONE)).sum())  # the others are a machine's
        yield (
            f"A pair is positive where its answer is {'yes' if rules.strict else 'yes or weak yes'}; "
            f"{several(refused, 'pair')} {'was' if refused == 1 else 'were'} refused.",
        )
    if data.has_ratings:
        yield (
            "Ratings that were given in the layout of Crisscrossed Captions",
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


def _machine_labels(of: Facts) -> Iterator[Sentence]:
    """What a machine labelled, under which bound."""
    data = of.data
    if not data.has_machine_labels:
        return
    total, yes, no = machine_counts(data)
    yield (
        f"A machine labelled {several(total, 'pair')} that nobody was asked about"
        f"{'' if data.audit is None else ' outside the audit'}, {yes:,} as matches and {no:,} as "
        "none; they are marked.",
    )
    bound = data.machine
    if bound is not None:
        parts = "; ".join(
            f"{percent_at_most(part.bound)} of {several(part.labelled, 'pair')} of {part.name}, by a random sample of "
            f"{part.sampled:,}"
            for part in bound.parts
            if part.labelled
        )
        yield (
            f"With {100 * bound.confidence:.12g} % confidence no more of them are wrong ({bound.loss} loss) than "
            f"{parts}; the labels stand below sequential thresholds on the score's uncertainty, a task of probably "
            "approximately correct labels",
            Cite(("candes2025labels",)),
            *(
                (" with bounds by bets", Cite(("waudbysmith2020",)))
                if bound.loss == Loss.ORDINAL
                else (" with exact bounds", Cite(("clopper1934",)))
            ),
            ".",
        )
        yield (siding_told(bound),)


def _audited(of: Facts) -> Iterator[Sentence]:
    """How the release was audited, and what its certificate says."""
    audit = of.data.audit
    if audit is None:
        return
    design, proof = audit.record.design, audit.certificate
    strata = "" if design.simple else f", stratified into {len(design.strata)} parts"
    yield (
        f"For an audit, {several(design.sample, 'pair')} of all {design.size:,} were drawn at random{strata}, each "
        f"with a known probability, and answered blind ({several(proof.answers, 'answer')}; every pair that the "
        "first called a match or that was a positive before, and a random part of the others, by three people); "
        "nothing that proposed, learned or merged read these answers.",
    )
    yield (f"There, {ASSUMPTIONS[0]}.",)
    yield (
        f"With {100 * proof.confidence:.12g} % confidence the recall of the release is at least "
        f"{lower_bound(100 * proof.measured.recall, 1)} % and, separately, its precision at least "
        f"{lower_bound(100 * proof.measured.precision, 1)} %, with workers' rates of "
        "error bounded from the same answers; whatever these rates are, at least "
        f"{lower_bound(100 * proof.worst.recall, 1)} % and {lower_bound(100 * proof.worst.precision, 1)} %.",
    )
    yield (
        "The bounds treat the samples as drawn without replacement ",
        *_METHODS[proof.method],
        " and the answers as independent of unequal chances",
        Cite(("hoeffding1956",)),
        ".",
    )
    if proof.at_most is not None:
        yield (
            "By Chao's estimate",
            Cite(("chao1987",)),
            f" from how many annotators proposed each positive, recall is at most "
            f"{percent_at_most(proof.at_most)}, both directions together.",
        )
    if found := of.summary.by_source[PositiveSource.AUDIT]:
        yield (
            f"{several(found, 'match', 'matches')} that only the audit found {'is' if found == 1 else 'are'} in the "
            "release and in neither of these bounds.",
        )
    if audit.outside:
        yield (f"Of {several(audit.outside, 'positive')} whose queries were not asked they say nothing.",)
    for line in proof.warnings:
        yield (f"{line[:1].upper()}{line[1:]}.",)


_BETS: Sentence = ("from finite strata by bets", Cite(("waudbysmith2020",)))
_EXACTLY: Sentence = ("from finite strata exactly", Cite(("clopper1934",)))
_METHODS: dict[str, Sentence] = {
    "betting": _BETS,
    "exact": _EXACTLY,
    "design": (*_BETS, " or exactly", *_EXACTLY[1:], ", whichever promised more before the first answer,"),
}


def _evaluated(of: Facts) -> Iterator[Sentence]:
    """What was scored, on what, by what."""
    if not of.scores:
        return
    sets: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for name in dict.fromkeys(score.positives for score in of.scores):
        here = [score for score in of.scores if score.positives == name]
        models, metrics = (
            tuple(dict.fromkeys(map(attrgetter(key), here))) for key in ("annotator", "metric")
        )
        sets.setdefault((models, metrics), []).append(name)
    for (models, metrics), names in sets.items():
        graded = any(metric in ("R-Precision", "mAP@R") for metric in metrics)
        yield (
            f"{listed(models)} {'was' if len(models) == 1 else 'were'} scored on {listed(names)} by {listed(metrics)}",
            *([Cite(("musgrave2020",))] if graded else []),
            ".",
        )
    if any(score.low is not None for score in of.scores):
        yield (
            "Intervals are 95 % bootstrap intervals over queries, with the captions of an image drawn together",
            Cite(("efron1993",)),
            ".",
        )


def _software(of: Facts) -> Iterator[Sentence]:
    if of.versions:
        named = listed([f"{name} {number}" for name, number in of.versions])
        yield (f"Everything was computed with {named}.",)


def annotation(of: Facts) -> Iterator[Sentence]:
    """How people judged the candidates and what an audit drew; nothing where nobody did."""
    data, summary, origins = of.data, of.summary, of.data.origins
    if not summary.judgements and not of.audit_answers:
        return
    if origins.batches:
        yield (
            f"In {several(of.hits, 'HIT')} of {several(len(origins.batches), 'batch', 'batches')}, each of up to "
            f"{CANDIDATES_PER_HIT} pairs and two controls, {_asked(origins.batches)} chose for each pair one of four "
            "answers, yes, weak yes, weak no or no.",
        )
    if data.environment is Environment.SANDBOX and origins.batches:
        yield (
            "All of it was practice on a sandbox, where nobody is owed money and scripted workers may answer: its "
            "figures describe no people.",
        )
    if origins.crowd is not None:
        yield (_workers(origins.crowd),)
    if origins.controls is not None:
        controls = origins.controls
        withdrawn = (
            f"; {several(controls.withdrawn, 'control')} that workers of good record failed "
            f"{'was' if controls.withdrawn == 1 else 'were'} withdrawn"
            if controls.withdrawn
            else ""
        )
        yield (
            f"Of the controls, {controls.positive.text} on known matches and {controls.negative.text} on known "
            f"non-matches were answered as expected{withdrawn}.",
        )
    if origins.pay is not None:
        yield (_paid(of, origins.pay),)
    counted = f"Beside {several(of.audit_answers, 'answer')} that count for an audit, this"
    gave = f"{counted if of.audit_answers else 'This'} gave {several(summary.judgements, 'answer')}"
    usable = f", {summary.usable:,} of them usable, on {several(summary.pairs_judged, 'pair')}"
    yield (f"{gave}{usable if summary.judgements else ' on candidates'}.",)
    if summary.unanswered:
        has = "has" if summary.unanswered == 1 else "have"
        yield (
            f"{summary.unanswered:,} of the proposed pairs {has} "
            f"{'neither a usable answer nor a machine label' if data.has_machine_labels else 'no usable answer'}: "
            "people have not said whether they match.",
        )
    agreed = summary.agreement
    if agreed.alpha.alpha is not None:
        interval = (
            f", 95 % bootstrap interval {agreed.alpha.low:.3f} to {agreed.alpha.high:.3f}"
            if agreed.has_interval
            else ""
        )
        yield (
            "Krippendorff's alpha (ordinal)",
            Cite(("krippendorff2011alpha",)),
            f" is {agreed.alpha.alpha:.3f}{interval}, over {several(agreed.pairs, 'pair')} that two people or more "
            "answered.",
        )
    for work in origins.past_work:
        yield (
            f"{several(work.submissions, 'submission')} of earlier work (batch {work.batch}) were read from files; how "
            "their workers were recruited and paid is not known here.",
        )
    for stated in (data.card.pay, data.card.ethics):
        if stated:
            yield (stated.rstrip(".") + ".",)
    for what, hits in of.other_work:
        yield (several(hits, "HIT"), *_OTHER.get(what, (f" asked for {what}.",)))


_OTHER: dict[str, Sentence] = {
    "rankings": (
        " asked which of two rankings of one query is better; preferences are scored by the model of Bradley and Terry",
        Cite(("bradley1952",)),
        ".",
    ),
    "similarity": (
        " asked how alike two items are, from 0 to 5, as Crisscrossed Captions does",
        Cite(("parekh2021cxc",)),
        ".",
    ),
}


def _asked(batches: Sequence[BatchPay]) -> str:
    each = sorted({batch.assignments for batch in batches})
    if each == [1]:
        return "one worker each"
    return f"{each[0]} workers each" if len(each) == 1 else f"{each[0]} to {each[-1]} workers each"


def _workers(crowd: CrowdSummary) -> str:
    fates = [
        (crowd.used, "accepted"),
        (crowd.paid_unused, "paid and not used"),
        (crowd.rejected, "rejected"),
        (crowd.undecided, "not decided"),
    ]
    told = listed([f"{count:,} {fate}" for count, fate in fates if count])
    limit = crowd.max_hits_per_worker
    capped = "" if limit is None else f", of at most {several(limit, 'HIT')} each as set at release"
    excluded = (
        f" {several(crowd.excluded, 'worker')} {'was' if crowd.excluded == 1 else 'were'} excluded from further work."
        if crowd.excluded
        else ""
    )
    made = f"{several(crowd.workers, 'worker')} made {several(crowd.submissions, 'submission')}{capped}"
    return f"{made}: {told}.{excluded}"


def _paid(of: Facts, pay: Pay) -> str:
    rewards = sorted({batch.reward_cents for batch in of.data.origins.batches})
    each = (
        " to ".join(format_dollars(cents) for cents in dict.fromkeys([rewards[0], rewards[-1]]))
        if rewards
        else ""
    )
    parts = [f"a HIT paid {each}"] if each else []
    if pay.median_hourly_cents is not None:
        parts.append(
            f"an hour of active time {format_dollars(pay.median_hourly_cents)} in the median over workers"
        )
    if pay.floor_cents:
        parts.append(
            f"{pay.workers_under:,} of {several(pay.timed_workers, 'worker')} of known time earned less than the floor "
            f"of {format_dollars(pay.floor_cents)} an hour"
        )
    total = format_dollars(pay.rewards_cents + pay.bonuses_cents + pay.fees_cents)
    total += " of practice money" if of.data.environment is Environment.SANDBOX else ""
    told = listed(parts)
    return (
        f"{told[:1].upper()}{told[1:]}; in all {total} were paid, fees included."
        if told
        else f"In all {total} were paid."
    )
