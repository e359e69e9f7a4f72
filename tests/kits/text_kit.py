"""A small data set of texts in BEIR's layout: every query has two positives, and half of the documents have none."""

from __future__ import annotations

import json
from pathlib import Path

TOPICS = (
    "tides", "bread", "violins", "volcanoes", "chess", "bees", "glaciers", "engines", "tulips", "kites", "owls",
    "maps",
)  # fmt: skip


def write_beir(folder: Path, n: int = 12) -> Path:
    """n queries, of which the last is of another split, and four documents a topic: the first two are its positives."""
    topics = [TOPICS[at] if at < len(TOPICS) else f"subject{at}" for at in range(n)]
    documents = [
        {
            "_id": f"d{4 * at + number}",
            "title": topic.title() if number else "",
            "text": f"{topic} {('are described', 'are explained', 'were sold', 'were painted')[number]} <here>. "
            + "word " * (300 if number == 1 else 3),
        }
        for at, topic in enumerate(topics)
        for number in range(4)
    ]
    queries = [{"_id": f"q{at}", "text": f"What are {topic}?"} for at, topic in enumerate(topics)]
    rows = [(f"q{at}", f"d{4 * at + n}", n < 2) for at in range(n - 1) for n in range(3)]
    (folder / "qrels").mkdir(parents=True)
    for name, lines in (("corpus", documents), ("queries", queries)):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    qrels = "".join(f"{query}\t{document}\t{int(match)}\n" for query, document, match in rows)
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + qrels, encoding="utf-8")
    return folder
