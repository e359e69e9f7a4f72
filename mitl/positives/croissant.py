"""The release described in MLCommons' Croissant 1.1, so that loaders and search engines can read it.

How the data came to be is told in the words of its extension for responsible AI, and in those of PROV-O for machines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from mitl.positives.datasheet import KINDS, together
from mitl.positives.folders import REFERENCES
from mitl.positives.ids import PAIR_COLUMNS
from mitl.positives.markdown import listed, percent
from mitl.positives.release_input import MadeOf, ReleaseCard, ReleaseInput
from mitl.positives.sheet_audit import learnt, machine_counts, machine_told, rounds_told, unasked
from mitl.positives.sheet_people import agreement
from mitl.positives.summary import Summary
from mitl.records import Environment, PositiveSource, several
from mitl.records.forms import IMAGES

PARQUET = "application/x-parquet"
"""What mlcroissant reads; the registered name of the format, application/vnd.apache.parquet, it does not."""

_TERMS = (
    "arrayShape citeAs column containedIn data dataType equivalentProperty examples extract field fileObject "
    "fileProperty fileSet format includes isArray isLiveDataset jsonPath key md5 parentField path recordSet references "
    "regex repeated replace samplingRate separator source subField transform"
)
"""Croissant's own, each called there as here."""
_CONTEXT: dict[str, object] = {
    **{term: f"cr:{term}" for term in _TERMS.split()},
    "@language": "en",
    "@vocab": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    "prov": "http://www.w3.org/ns/prov#",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
}

JSON = "application/json"
FILE_NOTES = {
    "positives.parquet": (PARQUET, "One row per positive, with what speaks for it."),
    "negatives.parquet": (PARQUET, "One row per pair that people called no match."),
    "judgements.parquet": (PARQUET, "One row per answer, under a worker's pseudonym."),
    "posteriors.parquet": (PARQUET, "One row per answered pair: how probable each answer is by the model."),
    "collected.parquet": (
        PARQUET,
        "One row per text that people wrote for an image, or picked an image for, and that a second worker accepted: "
        "further originals.",
    ),
    "ids.parquet": (PARQUET, "The string ids that the JSONs' integers stand for."),
    "image_to_caption.json": (JSON, "Positive captions of each image query."),
    "caption_to_image.json": (JSON, "Positive images of each caption query."),
    REFERENCES: (JSON, "The image that each query changes, which it may not find."),
    "mturk_parsed.csv": (
        "text/csv",
        "Usable answers in the layout of ECCV Caption's official file, a row for each annotator and direction.",
    ),
    "conflicts.csv": (
        "text/csv",
        "Pairs on which people, earlier ratings and the original annotation disagree.",
    ),
    "datasheet.md": ("text/markdown", "How the data came to be, and what to keep in mind."),
    "certificate.json": (
        JSON,
        "How complete and how right the release is, with a known confidence.",
    ),
    "audit.parquet": (PARQUET, "One row per pair that the audit drew, with its probability and its answers."),
    "audit_answers.parquet": (PARQUET, "One row per answer to an audited pair, under a worker's pseudonym."),
    "audit_strata.parquet": (
        PARQUET,
        "One row per positive that the audit was held against, with its stratum.",
    ),
}


def file_notes(data: ReleaseInput) -> Mapping[str, tuple[str, str]]:
    """File → media type, and what it holds in this release."""
    notes = dict(FILE_NOTES)
    if data.form is not IMAGES:
        for name, asking, searched in zip(data.form.lists, data.sides, data.form.nouns[::-1], strict=True):
            notes[name] = JSON, f"Positive {searched} of each {asking} that searches."
    if data.has_machine_labels:
        notes["negatives.parquet"] = PARQUET, "One row per pair that people or a machine called no match."
    if data.has_machine_labels or data.audit is not None:
        notes["conflicts.csv"] = "text/csv", "Pairs on which the sources disagree, and what became of them."
    return notes


_COLUMN_NOTES = {
    "image_id": "The data set's own id of the image.",
    "caption_id": "The data set's own id of the caption.",
    "round": "Number of the round that chose the pair to be asked; empty where none did.",
    "strategy": "By which that round chose it.",
    "label": "The answer: yes, weak_yes, weak_no or no; empty where nobody was asked or nobody answered.",
    "sources": "What speaks for the positive: judgement, cxc (earlier ratings in the layout of CxC), original.",
    "annotators": "The machine annotators that proposed the pair.",
    "n_judgements": "How many usable judgements the pair has.",
    "probability": "That the pair matches: the share of positive answers, or a model's posterior; see the datasheet.",
    "worker": "Pseudonym; a worker has one throughout this release, and another in a release of another name.",
    "outcome": "answered, skipped or image_failed.",
    "active_ms": "Milliseconds that the worker spent on the pair, as measured by the page, to the nearest second.",
    "usable": "Whether the answer counts towards the positives.",
    "yes": "Probability that the pair's answer is yes.",
    "weak_yes": "Probability that it is weak_yes.",
    "weak_no": "Probability that it is weak_no.",
    "no": "Probability that it is no.",
    "match": "How well the pair matches, in standard deviations of the pairs; 0 is the mean.",
    "match_low": "Lower end of the 90 % credible interval of match.",
    "match_high": "Upper end of the 90 % credible interval of match.",
    "kind": "image or caption.",
    "number": "The integer that stands for the id in the JSONs and in mturk_parsed.csv.",
    "external_id": "The data set's own id.",
    "machine_label": "What a machine called the pair, which nobody was asked about; empty elsewhere.",
    "machine_probability": "The machine's calibrated probability that the pair matches.",
    "place": "In the order of drawing, from 1.",
    "stratum": "Place of its stratum in certificate.json, from 0.",
    "inclusion": "Probability that the draw holds the pair.",
    "recheck": "Whether a first answer of no match goes to two further people; a match always does.",
    "known": "Whether it was a positive when the sample was drawn.",
    "first": "The first usable answer.",
    "second": "The second, of another person; empty where none was wanted.",
    "third": "The third, of one more.",
    "held": "Whether the release holds it, whatever the audit says.",
    "found": "Whether the audit confirmed it, and the release did not hold it.",
}

_NOTES_OF = {
    "positives": {
        "label": "People's answer where it makes the positive: yes or weak_yes; empty where others do."
    },
    "collected": {
        "text_id": "Its own id: w and six digits where it was written; the caption's id where an image was picked.",
        "text": "As the worker wrote it, or the data set's caption.",
        "task": "write or pick.",
        "writer": "Pseudonym of the worker who wrote or picked.",
        "reviewer": "Pseudonym of the other worker who accepted it.",
        "label": "That worker's answer: yes or weak_yes.",
        "strategy": "Which chose the item that lacked a partner.",
    },
    "audit": {"label": "People's answer in the release, apart from the audit; empty where nobody was asked."},
    "audit_answers": {"number": "1 to 3, in the order of the answers to this pair.", "label": "The answer."},
}
"""Columns that mean something of their own in one table."""

_KEYS = {
    **dict.fromkeys(("positives", "negatives", "posteriors", "audit", "audit_strata"), PAIR_COLUMNS),
    "ids": ("kind", "number"),
    "collected": ("text_id",),
    "audit_answers": (*PAIR_COLUMNS, "number"),
}


_PEOPLE = ("worker", "writer")
"""Columns with the pseudonym of whom a row comes from."""


def croissant(
    data: ReleaseInput, summary: Summary, files: Mapping[str, bytes], schemas: Mapping[str, pa.Schema]
) -> dict[str, object]:
    """The JSON-LD description of ``files``; ``schemas`` are the Parquet files', by name without suffix."""
    notes = dict(_COLUMN_NOTES)
    if data.has_machine_labels or data.audit is not None:
        notes["sources"] = f"What speaks for this: {', '.join(PositiveSource)}."
    notes_of = _NOTES_OF | {"judgements": {question.column: question.meaning for question in data.questions}}
    held = file_notes(data)
    ratings = ["ratings in the layout of Crisscrossed Captions"] if data.has_ratings else []
    if ratings and data.origins.rated_in:
        ratings = [f"{ratings[0]}: {file.name}, SHA-256 {file.sha256}" for file in data.origins.rated_in]
    return {
        **head(data, _described(data, summary)),
        **provenance(data.card, [data.dataset, *ratings], _activities(data, summary)),
        **rai(data, summary),
        "distribution": distribution(files, held),
        "recordSet": [
            record_set(name, schema, held[f"{name}.parquet"][1], notes | notes_of.get(name, {}))
            for name, schema in sorted(schemas.items())
        ],
    }


def head(data: MadeOf, described: str) -> dict[str, object]:
    """What a release is called and what its makers state of it; ``described`` where they do not describe it."""
    card = data.card
    optional = {
        "license": card.license,
        "url": card.url,
        "citeAs": card.citation,
        "datePublished": card.date_published,
        "creator": [{"@type": "sc:Organization", "name": maker} for maker in card.creators],
    }
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.1", SPECIFICATION],
        "name": data.name,
        "description": card.description or described,
        "version": card.version,
        "isLiveDataset": False,
        **{key: value for key, value in optional.items() if value},
    }


def provenance(
    card: ReleaseCard, derived: Sequence[str], activities: Mapping[str, Collection[str]]
) -> dict[str, object]:
    """Where a release comes from, in the words of PROV-O that Croissant 1.1 recommends.

    Args:
        derived: the data sets that it is made of.
        activities: what was done → the names of the programs that did it, none where people did.
    """
    makers = [{"@type": "prov:Agent", "prov:label": maker} for maker in card.creators]
    told: dict[str, object] = {
        "prov:wasDerivedFrom": [{"@type": "prov:Entity", "prov:label": source} for source in derived],
        "prov:wasGeneratedBy": [_activity(label, programs) for label, programs in activities.items()],
    }
    return told | ({"prov:wasAttributedTo": makers} if makers else {})


def _activity(label: str, programs: Collection[str]) -> dict[str, object]:
    told: dict[str, object] = {"@type": "prov:Activity", "prov:label": label}
    agents = [{"@type": "prov:SoftwareAgent", "prov:label": program} for program in programs]
    return told | ({"prov:wasAssociatedWith": agents} if agents else {})


def _activities(data: ReleaseInput, summary: Summary) -> dict[str, Collection[str]]:
    done: list[tuple[bool, str, Collection[str]]] = [
        (bool(summary.proposed_by), "Machine annotators proposed pairs", summary.proposed_by),
        (summary.judgements > 0, "People said of pairs whether they match", ()),
        (data.has_collected, "People wrote texts and picked images, and others reviewed them", ()),
        (data.has_machine_labels, "A machine labelled pairs that nobody was asked about", ()),
        (data.audit is not None, "People audited a random sample of pairs", ()),
        (True, "What speaks for a positive was merged", ["mitl"]),
    ]
    return {label: programs for holds, label, programs in done if holds}


def _described(data: ReleaseInput, summary: Summary) -> str:
    if summary.judgements:
        told = f"{'proposed by machines and ' if summary.proposed_by else ''}verified by people"
    elif data.audit is not None:
        told = "audited by people"
    else:
        told = "with texts and picks of people" if data.has_collected else "rated in earlier work"
    return f"Positive pairs of images and captions of {data.dataset}, {told}."


def distribution(files: Mapping[str, bytes], told: Mapping[str, tuple[str, str]]) -> list[dict[str, object]]:
    """The files of a release whose media type and content are ``told``."""
    return [
        {
            "@type": "cr:FileObject",
            "@id": name,
            "name": name,
            "description": told[name][1],
            "contentUrl": name,
            "contentSize": f"{len(content)} B",
            "encodingFormat": told[name][0],
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        for name, content in sorted(files.items())
        if name in told
    ]


def record_set(name: str, schema: pa.Schema, note: str, notes: Mapping[str, str]) -> dict[str, object]:
    """The rows of the Parquet file ``<name>.parquet``; ``notes`` say what its columns hold."""
    described: dict[str, object] = {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": note,
        "field": [_field(name, column, notes[column.name]) for column in schema],
    }
    if name in _KEYS:
        described["key"] = [{"@id": f"{name}/{column}"} for column in _KEYS[name]]
    return described


def _field(record_set: str, column: pa.Field, note: str) -> dict[str, object]:
    described: dict[str, object] = {
        "@type": "cr:Field",
        "@id": f"{record_set}/{column.name}",
        "name": f"{record_set}/{column.name}",
        "description": note,
        "dataType": _data_type(column.type),
        "source": {"fileObject": {"@id": f"{record_set}.parquet"}, "extract": {"column": column.name}},
    }
    if pa.types.is_list(column.type):
        described |= {"isArray": True, "arrayShape": "-1"}
    if column.name in _PEOPLE:
        described["equivalentProperty"] = "prov:wasAttributedTo"
    return described


def _data_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return _data_type(kind.value_type)
    if pa.types.is_boolean(kind):
        return "sc:Boolean"
    if pa.types.is_integer(kind):
        return "sc:Integer"
    return "sc:Float" if pa.types.is_floating(kind) else "sc:Text"


SPECIFICATION = "http://mlcommons.org/croissant/RAI/1.0"


def rai(data: ReleaseInput, summary: Summary) -> dict[str, object]:
    """The ``rai:`` properties of a release."""
    machines = _machines(data, summary)
    upkeep = f"Questions and corrections go to {data.card.contact}." if data.card.contact else ""
    optional: dict[str, object] = {
        "machineAnnotationTools": machines,
        "dataReleaseMaintenancePlan": upkeep,
        "dataImputationProtocol": machine_told(data) if data.has_machine_labels else "",
    }
    properties: dict[str, object] = {
        "dataCollection": " ".join([_collection(data, summary), *rounds_told(data.origins)]),
        "dataCollectionType": _kinds_of_collection(data, summary),
        "dataCollectionMissingData": _missing(data, summary),
        "dataCollectionRawData": f"Images and captions of {data.dataset}, which the release names by their ids and "
        "does not hold.",
        "dataPreprocessingProtocol": _processing(data, summary),
        "dataAnnotationProtocol": _protocol(data),
        "dataAnnotationPlatform": _platforms(data),
        "dataAnnotationAnalysis": [
            together(data.rules),
            agreement(summary.agreement, nameless=data.origins.nameless),
            *(() if data.audit is None else data.audit.certificate.lines()),
        ],
        "annotationsPerItem": _per_item(data, summary),
        "annotatorDemographics": [_who(data, summary)],
        "dataBiases": _biases(data, summary),
        "dataLimitations": [
            f"{unasked(data, summary)}, so the positives of a query are not complete.",
            "People disagree about what matches; judgements.parquet keeps every answer.",
        ],
        "dataUseCases": [
            "Scoring retrieval between images and captions against pairs that are known to match."
        ],
        "personalSensitiveInformation": _personal(data),
        **{name: value for name, value in optional.items() if value},
    }
    return {f"rai:{name}": value for name, value in sorted(properties.items())}


def _machines(data: ReleaseInput, summary: Summary) -> list[str]:
    told = {name: KINDS[kind] for name, kind in data.origins.kinds.items()}
    told |= {
        model.name: "; ".join([*([told[model.name]] if model.name in told else []), learnt(model)])
        for model in data.origins.trained
    }
    return [
        f"{name} ({told[name]}): {several(count, 'pair')}"
        if name in told
        else f"{name}: {several(count, 'pair')}"
        for name, count in summary.proposed_by.items()
    ]


def _collection(data: ReleaseInput, summary: Summary) -> str:
    pairs = f"pairs of an image and a caption of {data.dataset}"
    earlier = ["earlier ratings"] if summary.by_source[PositiveSource.CXC] else []
    earlier += ["the original annotation"] if data.rules.with_originals else []
    earlier += ["an audit's answers"] if summary.by_source[PositiveSource.AUDIT] else []
    if not summary.judgements:
        return f"Of {pairs}, {listed(earlier) or 'no source'} gave {several(summary.positives, 'positive')}."
    shares = listed(
        [
            f"{summary.by_source[source]:,} {words}"
            for source, words in (
                (PositiveSource.JUDGEMENT, "are confirmed by people"),
                (PositiveSource.CXC, f"are rated {data.rules.cxc_threshold:g} or more"),
                (PositiveSource.ORIGINAL, "are original pairs"),
                (PositiveSource.MACHINE, "are labelled by a machine"),
                (PositiveSource.AUDIT, "were found by the audit alone"),
            )
            if summary.by_source[source]
        ]
    )
    positives = several(summary.positives, "positive") + (f", of which {shares}" if shares else "")
    asked = (
        f"Machine annotators proposed {pairs}, and people" if summary.proposed_by else f"Of {pairs} people"
    )
    return (
        f"{asked} said whether they match: {several(summary.judgements, 'answer')}, {summary.usable:,} of them "
        f"usable, on {several(summary.pairs_judged, 'pair')}. {listed(['Their answers', *earlier])} gave {positives}."
    )


def _kinds_of_collection(data: ReleaseInput, summary: Summary) -> list[str]:
    """In the words that the specification recommends."""
    kinds = [
        ("Manual Human Curator", summary.judgements > 0 or data.has_collected or data.audit is not None),
        ("Software Collection", bool(summary.proposed_by)),
        ("Secondary Data Analysis", bool(summary.by_source[PositiveSource.CXC] or data.origins.past_work)),
    ]
    return [kind for kind, holds in kinds if holds] or ["Others"]


def _missing(data: ReleaseInput, summary: Summary) -> str:
    total, _, _ = machine_counts(data)
    imputed = (
        f"A machine labelled {several(total, 'pair')} in their place." if total else "Nothing was imputed."
    )
    if not summary.judgements:
        return imputed
    return (
        f"{several(summary.judgements - summary.usable, 'answer')} of {summary.judgements:,} cannot be used: skipped, "
        f"without a picture, from pages that were not approved, or from excluded workers. {imputed}"
    )


def _processing(data: ReleaseInput, summary: Summary) -> list[str]:
    taken = several(summary.excluded, "positive")
    return [
        f"Exclusion lists took out {taken}." if data.origins.exclusions else "There are no exclusion lists.",
        "Workers appear under keyed pseudonyms; ids of assignments and HITs and times of day are left out; working "
        "times are given to the nearest second.",
    ]


def _protocol(data: ReleaseInput) -> list[str]:
    lines = []
    if data.has_collected:
        lines.append(
            "People wrote a text for an image, or picked the image that a caption describes; a second worker said how "
            "well both match."
        )
    if not len(data.judgements):
        return lines or ["Nobody was asked for this release."]
    lines.append(
        "People saw an image with a caption and chose yes, weak_yes, weak_no or no; the first two are positive."
    )
    controls = data.origins.controls
    if controls is not None:
        held = "Each page held two" if data.origins.batches else "Pages of past work held"
        lines.append(
            f"{held} pairs whose answer is known; the rule, as set at release: {controls.rule}. Expected answers: "
            f"{percent(controls.positive.passed, controls.positive.seen)} on gold positives, "
            f"{percent(controls.negative.passed, controls.negative.seen)} on gold negatives."
        )
    if data.origins.past_work:
        lines.append("For answers that were read from files it is not known here what their pages asked.")
    return lines


def _platforms(data: ReleaseInput) -> list[str]:
    money = "practice money" if data.environment is Environment.SANDBOX else "real money"
    platforms = (
        [f"pages posted over the requester API of Mechanical Turk, for {money}"]
        if data.origins.crowd is not None or data.has_collected
        else []
    )
    if data.origins.past_work:
        platforms.append("files of work that was done before, on platforms not known here")
    return platforms or ["none: nobody was asked"]


def _per_item(data: ReleaseInput, summary: Summary) -> str:
    if not summary.pairs_judged:
        return "0" if data.audit is None else "0; 1 or 3 on pairs of the audit's sample"
    mean = summary.usable / summary.pairs_judged
    return f"{mean:.2f} usable answers on a pair on average ({summary.usable:,} on {summary.pairs_judged:,} pairs)"


def _who(data: ReleaseInput, summary: Summary) -> str:
    workers = f"{several(summary.workers, 'worker')} with answers in judgements.parquet"
    if data.origins.past_work:
        workers += ", as far as files tell them apart"
    if data.collected:
        gave = {name for text in data.collected for name in (text.writer, text.reviewer)}
        workers += f"; {len(gave):,} wrote, picked or reviewed what was collected"
    if data.audit is not None:
        workers += (
            f"; {data.audit.record.answers['worker'].nunique():,} with answers in audit_answers.parquet"
        )
    return f"Unknown: {workers}; nothing of them is released but their answers and working times."


def _biases(data: ReleaseInput, summary: Summary) -> list[str]:
    biases = (
        ["The positives favour models that resemble the machine annotators: say so when scoring one of them."]
        if summary.proposed_by
        else []
    )
    share = data.origins.busiest_share(summary.largest_share)
    if share is not None:
        biases.append(f"The busiest worker gave {percent(share)} of the answers.")
    return biases


def _personal(data: ReleaseInput) -> list[str]:
    if data.texts is None:
        words = "What workers wrote of pairs is left out."
    else:
        words = (
            "What workers wrote is in judgements.parquet, after a scan that took addresses, long numbers and ids out; "
            "it knows no names."
        )
    if any(text.caption is None for text in data.collected):
        words += " The texts that workers wrote for images are in collected.parquet, after such a scan."
    return [
        "No ids of workers, and no hash of one that could be tried: pseudonyms are keyed by a secret that stays with "
        "the makers.",
        words,
        "Images may show people; they are not part of the release.",
    ]
