"""The release described in MLCommons' Croissant 1.0, so that loaders and search engines can read it.

How the data came to be is told in the words of its extension for responsible AI.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import pyarrow as pa

from mitl.positives.croissant_rai import SPECIFICATION, rai
from mitl.positives.release_input import ReleaseInput
from mitl.positives.summary import Summary

_PARQUET = "application/x-parquet"
"""What mlcroissant reads; the registered name of the format, application/vnd.apache.parquet, it does not."""

_CONTEXT: dict[str, object] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}

FILE_NOTES = {
    "positives.parquet": (_PARQUET, "One row per positive, with what speaks for it."),
    "negatives.parquet": (_PARQUET, "One row per pair that people called no match."),
    "judgements.parquet": (
        _PARQUET,
        "One row per answer, under a worker's pseudonym.",
    ),
    "posteriors.parquet": (_PARQUET, "One row per answered pair: how probable each answer is by the model."),
    "ids.parquet": (_PARQUET, "The string ids that the JSONs' integers stand for."),
    "image_to_caption.json": ("application/json", "Positive captions of each image query."),
    "caption_to_image.json": ("application/json", "Positive images of each caption query."),
    "mturk_parsed.csv": (
        "text/csv",
        "Usable answers in the layout of ECCV Caption's official file, a row for each annotator that found the pair.",
    ),
    "conflicts.csv": ("text/csv", "Pairs on which people, CxC and the original annotation disagree."),
    "datasheet.md": ("text/markdown", "How the data came to be, and what to keep in mind."),
}

_COLUMN_NOTES = {
    "image_id": "The data set's own id of the image.",
    "caption_id": "The data set's own id of the caption.",
    "label": "The answer: yes, weak_yes, weak_no or no; empty where nobody was asked or nobody answered.",
    "sources": "What speaks for the positive: judgement, cxc, original.",
    "annotators": "The machine annotators that proposed the pair.",
    "n_judgements": "How many usable judgements the pair has.",
    "probability": "That the pair matches: the share of positive answers, or a model's posterior; see the datasheet.",
    "worker": "Pseudonym; the same worker has the same one throughout this release and no other.",
    "outcome": "answered, skipped or image_failed.",
    "shortcomings": "What the worker found wanting in the description.",
    "concepts": "What kind of thing is described wrongly.",
    "active_ms": "Milliseconds that the worker spent on the pair, as measured by the page, to the nearest second.",
    "usable": "Whether the answer counts towards the positives.",
    "text": "The worker's own words, with [removed] for addresses, long numbers and ids; empty where there are none.",
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
}

_KEYS = {
    "positives": ("image_id", "caption_id"),
    "negatives": ("image_id", "caption_id"),
    "posteriors": ("image_id", "caption_id"),
    "ids": ("kind", "number"),
}


def croissant(
    data: ReleaseInput, summary: Summary, files: Mapping[str, bytes], tables: Mapping[str, pa.Table]
) -> dict[str, object]:
    """The JSON-LD description of ``files``; ``tables`` are the Parquet files' own, by name without suffix."""
    card = data.card
    optional = {
        "license": card.license,
        "url": card.url,
        "citeAs": card.citation,
        "datePublished": card.date_published,
        "creator": [{"@type": "sc:Organization", "name": name} for name in card.creators],
    }
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.0", SPECIFICATION],
        "name": data.name,
        "description": card.description or _described(data, summary),
        "version": card.version,
        "isLiveDataset": False,
        **{name: value for name, value in optional.items() if value},
        **rai(data, summary),
        "distribution": [
            _file(name, content) for name, content in sorted(files.items()) if name in FILE_NOTES
        ],
        "recordSet": [_record_set(name, table) for name, table in sorted(tables.items())],
    }


def _described(data: ReleaseInput, summary: Summary) -> str:
    proposed = "proposed by machines and " if summary.proposed_by else ""
    verified = "verified by people" if summary.judgements else "rated in earlier work"
    return f"Positive image-caption pairs of {data.dataset}, {proposed}{verified}."


def _file(name: str, content: bytes) -> dict[str, object]:
    encoding, note = FILE_NOTES[name]
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "description": note,
        "contentUrl": name,
        "contentSize": f"{len(content)} B",
        "encodingFormat": encoding,
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def _record_set(name: str, table: pa.Table) -> dict[str, object]:
    described: dict[str, object] = {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": FILE_NOTES[f"{name}.parquet"][1],
        "field": [_field(name, column) for column in table.schema],
    }
    if name in _KEYS:
        described["key"] = [{"@id": f"{name}/{column}"} for column in _KEYS[name]]
    return described


def _field(record_set: str, column: pa.Field) -> dict[str, object]:
    described: dict[str, object] = {
        "@type": "cr:Field",
        "@id": f"{record_set}/{column.name}",
        "name": f"{record_set}/{column.name}",
        "description": _COLUMN_NOTES[column.name],
        "dataType": _data_type(column.type),
        "source": {"fileObject": {"@id": f"{record_set}.parquet"}, "extract": {"column": column.name}},
    }
    if pa.types.is_list(column.type):
        described["repeated"] = True
    return described


def _data_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return _data_type(kind.value_type)
    if pa.types.is_boolean(kind):
        return "sc:Boolean"
    if pa.types.is_integer(kind):
        return "sc:Integer"
    return "sc:Float" if pa.types.is_floating(kind) else "sc:Text"
