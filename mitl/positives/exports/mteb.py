"""A retrieval task of MTEB: the folder for ``datasets``, and ``task.py`` with a task for each direction."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from mitl.positives.exports import hub
from mitl.positives.exports.content import Content, Format, Way
from mitl.positives.folders import REFERENCES
from mitl.records import PartKind


def files(content: Content) -> dict[str, bytes]:
    """See ``hub.files``; ``task.py`` needs ``mteb`` alone, and reads ``objects.json`` where it is there."""
    made = hub.files(content)
    if content.objects is not None:
        made["objects.json"] = json.dumps(content.objects, ensure_ascii=False).encode()
    if content.references:
        made[REFERENCES] = json.dumps(content.references, ensure_ascii=False).encode()
    # mteb keeps results by the data's revision.
    version = hub.digest(made)
    tasks = "\n\n\n".join(_task(content, way, version) for way in content.ways)
    source = _HEAD.format(integers=content.integers) + "\n\n" + tasks + "\n"
    return {**made, "task.py": source.encode()}


def notes(content: Content) -> Iterator[str]:
    """Encoders read the items themselves."""
    if not all(side.whole for side in content.sides):
        options = (
            "--with-texts" if content.form.left_part is PartKind.TEXT else "--with-texts and --with-media"
        )
        yield (
            f"an encoder of mteb needs the items themselves: give {options}; without them task.py scores results that "
            "are there already"
        )


def _task(content: Content, way: Way, version: str) -> str:
    stem = "".join(part.title() for part in re.split(r"[^A-Za-z0-9]+", content.name) if part) or "Release"
    sides = way.direction.ordered(*content.sides)
    kinds = list(dict.fromkeys(kind for side in sides for kind in side.kinds))
    return _TASK.format(
        languages=json.dumps(content.languages),
        name=f"Mitl{stem}{way.name.upper()}",
        description=repr(f"{content.name}, {way.name}"),
        way=way.name,
        type="Retrieval" if kinds == [PartKind.TEXT] else "Any2AnyRetrieval",
        category="2".join("".join(kind.value[0] for kind in side.kinds) for side in sides),
        modalities=json.dumps([kind.value for kind in kinds]),
        version=version,
    )


_HEAD = '''"""Tasks of MTEB over the tables beside this file; their own scores are those of `mitl evaluate`."""

import json
from collections import Counter
from functools import cache
from pathlib import Path

from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata

FOLDER = str(Path(__file__).resolve().parent)
INTEGERS = {integers}
OBJECTS = Path(FOLDER) / "objects.json"
REFERENCES = Path(FOLDER) / "references.json"


def without_references(results, way):
    """Results with what a query may not find behind all else: the image that its text changes, and the reverse."""
    if not REFERENCES.is_file():
        return results
    known = json.loads(REFERENCES.read_text(encoding="utf-8")).items()
    hidden = set(known) if way == "q2i" else {{(image, query) for query, image in known}}
    return {{
        query: {{item: float("-inf") if (query, item) in hidden else score for item, score in scored.items()}}
        for query, scored in results.items()
    }}


def ranking(scored):
    """Items by falling score; of tied ones the smaller id first, where mteb puts the larger one first."""
    return sorted(scored, key=lambda item: (-scored[item], int(item) if INTEGERS else item))


def own_scores(qrels, results):
    """R-Precision, mAP@R and Recall@K of the queries that have a positive; a missing result is a miss."""
    sums, queries = dict.fromkeys(("R-Precision", "mAP@R", "R@1", "R@5", "R@10"), 0.0), 0
    for query, judged in qrels.items():
        positives = {{item for item, score in judged.items() if score > 0}}
        if not positives:
            continue
        queries += 1
        hits = [item in positives for item in ranking(results.get(query, {{}}))]
        head = hits[: len(positives)]
        sums["R-Precision"] += sum(head) / len(positives)
        precise = (sum(head[:rank]) / rank for rank, hit in enumerate(head, 1) if hit)
        sums["mAP@R"] += sum(precise) / len(positives)
        for k in (1, 5, 10):
            sums[f"R@{{k}}"] += any(hits[:k])
    return {{name: total / max(1, queries) for name, total in sums.items()}}


@cache
def objects(side):
    """The objects of each image or caption that has some, as the bits of a number."""
    known = json.loads(OBJECTS.read_text(encoding="utf-8"))[side]
    return {{item: sum(1 << number for number in numbers) for item, numbers in known.items() if numbers}}


def plausible_scores(asking, found, results):
    """PMRP: R-Precision where items match whose objects differ in at most zeta places; for cut results zeta=0 alone."""
    kinds = Counter(found.values())

    @cache
    def matches(own):
        """How many items differ from these objects in 0, at most 1 and at most 2 places."""
        gaps = Counter()
        for kind, items in kinds.items():
            gaps[(kind ^ own).bit_count()] += items
        return gaps[0], gaps[0] + gaps[1], gaps[0] + gaps[1] + gaps[2]

    asked = [query for query in results if query in asking and matches(asking[query])[0]]
    whole = all(len(results[query].keys() & found.keys()) == len(found) for query in asked)
    sums = Counter()
    for query in asked:
        own = asking[query]
        gaps = [(found[item] ^ own).bit_count() for item in ranking(results[query]) if item in found]
        counts = matches(own)
        bounds = [("PMRP zeta=0 R<=50", 0, min(counts[0], 50))]
        if whole:
            bounds += [(f"PMRP zeta={{zeta}}", zeta, counts[zeta]) for zeta in (0, 1, 2)]
        for name, zeta, r in bounds:
            sums[name] += sum(gap <= zeta for gap in gaps[:r]) / r
    means = {{name: total / len(asked) for name, total in sums.items()}}
    if whole and asked:
        means["PMRP"] = sum(means[f"PMRP zeta={{zeta}}"] for zeta in (0, 1, 2)) / 3
    return means


class Retrieval(AbsTaskRetrieval):
    """What the tasks below share."""

    abstask_prompt = "Find what matches."

    def task_specific_scores(self, scores, qrels, results, hf_split, hf_subset):
        results = without_references(results, hf_subset)
        found = own_scores(qrels, results)
        if OBJECTS.is_file():
            sides = ("image", "caption") if hf_subset == "i2t" else ("caption", "image")
            found |= plausible_scores(*map(objects, sides), results)
        return found
'''
_TASK = """class {name}(Retrieval):
    metadata = TaskMetadata(
        name="{name}",
        description={description},
        reference=None,
        dataset={{"path": FOLDER, "revision": "{version}"}},
        type="{type}",
        category="{category}",
        eval_splits=["test"],
        eval_langs={{"{way}": {languages}}},
        main_score="ndcg_at_10",
        date=None,
        domains=None,
        task_subtypes=None,
        license=None,
        annotations_creators=None,
        dialect=None,
        modalities={modalities},
        sample_creation=None,
        bibtex_citation=None,
    )"""

FORMAT = Format(
    files, holds_texts=True, holds_media=True, holds_objects=True, holds_languages=True, notes=notes
)
