"""BEIR's folders, one a direction: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/test.tsv``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from mitl.positives.exports.content import Content, Format, Way, refuse_ids
from mitl.records import several


def files(content: Content) -> dict[str, bytes]:
    """The three files of each direction; texts are empty where they stay out, and those of pictures always."""
    made = {}
    for way in content.ways:
        refuse_ids(
            (*way.queries, *way.gallery),
            r"[\t\r\n\"]",
            "a tab, a line's end or a quote, which parts BEIR's qrels",
        )
        asking, searched = content.asking_and_searched(way)
        corpus = (
            {"_id": one, **dict(zip(("title", "text"), searched.titled(one), strict=True))}
            for one in way.gallery
        )
        queries = ({"_id": one, "text": asking.words(one)} for one in way.queries)
        made[f"{way.name}/corpus.jsonl"] = _jsonl(corpus)
        made[f"{way.name}/queries.jsonl"] = _jsonl(queries)
        made[f"{way.name}/qrels/test.tsv"] = "".join(_qrels(way)).encode()
    return made


def notes(content: Content) -> Iterator[str]:
    """BEIR drops a document that is called as its query, unless it is told not to."""
    for way in content.ways:
        same = len(set(way.queries) & set(way.gallery))
        if same:
            yield (
                f"{several(same, 'id')} of {way.name} name both a query and another item, which BEIR takes for "
                "the query itself: call its evaluate with ignore_identical_ids=False"
            )


def _jsonl(rows: Iterable[dict[str, str]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _qrels(way: Way) -> Iterator[str]:
    yield "query-id\tcorpus-id\tscore\n"
    for query in way.queries:
        for item, match in way.judged.get(query, {}).items():
            yield f"{query}\t{item}\t{match}\n"


FORMAT = Format(files, holds_texts=True, no_composed="an item of BEIR is a single text", notes=notes)
