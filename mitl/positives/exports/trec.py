"""TREC's files: qrels ``qid 0 docid rel`` with explicit zeros, and run files ``qid Q0 docid rank score tag``."""

from __future__ import annotations

from collections.abc import Iterator

from mitl.positives.exports.content import ByQuery, Content, Format, refuse_ids

_WHITE = r"\s"
_TOLD = "white space, which parts the columns of TREC files"


def files(content: Content) -> dict[str, bytes]:
    """``DIRECTION.qrels`` and ``runs/MODEL.DIRECTION.run``.

    A run's score is the number of places from its end, so that nothing is tied: trec_eval would put tied documents in
    falling order of their ids, where `mitl evaluate` puts the smaller id first.
    """
    made = {}
    names = {way.direction: way.name for way in content.ways}
    for way in content.ways:
        refuse_ids((*way.queries, *way.gallery), _WHITE, _TOLD)
        lines = (
            f"{query} 0 {item} {match}\n"
            for query in way.queries
            for item, match in way.judged.get(query, {}).items()
        )
        made[f"{way.name}.qrels"] = "".join(lines).encode()
    refuse_ids(content.runs, r"[\s/\\]", "white space or a slash, which the tag of a run cannot hold")
    for model, by_direction in content.runs.items():
        for direction, rankings in by_direction.items():
            made[f"runs/{model}.{names[direction]}.run"] = "".join(_run(model, rankings)).encode()
    return made


def _run(model: str, rankings: ByQuery) -> Iterator[str]:
    for query, items in rankings.items():
        for rank, item in enumerate(items, start=1):
            yield f"{query} Q0 {item} {rank} {len(items) - rank + 1} {model}\n"


FORMAT = Format(files, holds_runs=True)
