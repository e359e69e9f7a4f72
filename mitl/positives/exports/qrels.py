"""The files of TREC and of BEIR, which judge a search by qrels.

TREC has qrels ``qid 0 docid rel`` with explicit zeros, and run files ``qid Q0 docid rank score tag``; BEIR a folder for
each direction, with ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/test.tsv``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from mitl.positives.exports.content import ByQuery, Content, Format, refuse_ids
from mitl.records import PartKind, several

_WHITE = r"\s"
_TOLD = "white space, which parts the columns of TREC files"


def _trec(content: Content) -> dict[str, bytes]:
    """TREC: ``DIRECTION.qrels`` and ``runs/MODEL.DIRECTION.run``.

    A run's score is the number of places from its end, so that nothing is tied: trec_eval would put tied documents in
    falling order of their ids, where `mitl evaluate` puts the smaller id first.
    """
    made = {}
    names = {way.direction: way.name for way in content.ways}
    for way in content.ways:
        refuse_ids((*way.queries, *way.gallery), _WHITE, _TOLD)
        lines = (f"{query} 0 {item} {match}\n" for query, item, match in way.rows)
        made[f"{way.name}.qrels"] = "".join(lines).encode()
    refuse_ids(content.runs, r"[\s/\\]", "white space or a slash, which the tag of a run cannot hold")
    for model, by_direction in content.runs.items():
        for direction, name in names.items():
            made[f"runs/{model}.{name}.run"] = "".join(_run(model, by_direction[direction])).encode()
    return made


def _run(model: str, rankings: ByQuery) -> Iterator[str]:
    for query, items in rankings.items():
        for rank, item in enumerate(items, start=1):
            yield f"{query} Q0 {item} {rank} {len(items) - rank + 1} {model}\n"


def _beir(content: Content) -> dict[str, bytes]:
    """BEIR: the three files of each direction; texts are empty where they stay out, and those of pictures always."""
    made = {}
    for way in content.ways:
        refuse_ids(
            (*way.queries, *way.gallery),
            r"[\t\r\n\"]",
            "a tab, a line's end or a quote, which parts BEIR's qrels",
        )
        asking, searched = way.direction.ordered(*content.sides)
        corpus = (
            {"_id": id_, **dict(zip(("title", "text"), searched.titled(id_), strict=True))}
            for id_ in way.gallery
        )
        queries = ({"_id": id_, "text": asking.words(id_)} for id_ in way.queries)
        made[f"{way.name}/corpus.jsonl"] = _jsonl(corpus)
        made[f"{way.name}/queries.jsonl"] = _jsonl(queries)
        qrels = ("query-id\tcorpus-id\tscore\n", *("\t".join(map(str, row)) + "\n" for row in way.rows))
        made[f"{way.name}/qrels/test.tsv"] = "".join(qrels).encode()
    return made


def _beir_notes(content: Content) -> Iterator[str]:
    """Models read the texts; BEIR drops a document that is called as its query, unless it is told not to."""
    if any(PartKind.TEXT in side.kinds and side.texts is None for side in content.sides):
        yield "every text is empty: give --with-texts in the project, or add the texts before a model reads them"
    for way in content.ways:
        same = len(set(way.queries) & set(way.gallery))
        if same:
            yield (
                f"{several(same, 'id')} of {way.name} name both a query and another item, which BEIR takes for "
                "the query itself: call its evaluate with ignore_identical_ids=False"
            )


def _jsonl(rows: Iterable[dict[str, str]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


TREC = Format(_trec, holds_runs=True)
BEIR = Format(_beir, holds_texts=True, no_composed="an item of BEIR is a single text", notes=_beir_notes)
