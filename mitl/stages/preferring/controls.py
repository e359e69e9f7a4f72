"""Drawing the controls of a study: a query's own positives first, against items drawn from the gallery."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy.orm import Session

from mitl.db.store import items as item_store
from mitl.errors import ProposalError
from mitl.hits.comparisons import Control
from mitl.proposals.sampling import shuffled
from mitl.records import Direction
from mitl.settings import Settings
from mitl.stages.preferring.study import Study
from mitl.stages.preferring.systems import Contest


def draw_controls(
    session: Session, settings: Settings, study: Study, contest: Contest, count: int
) -> list[Control]:
    """So many controls, or one for each query of the contest where there are fewer.

    The better side begins with the query's original positives and goes on with a system's own items, or is all
    positives where the contest's rankings were made of them; the other is
    drawn from items that no system lists for the query, and from those that they list where there are not enough.

    Raises:
        ProposalError: the gallery is too small for a list beside the better one.
    """
    if not count:
        return []
    dataset = item_store.dataset(session)
    captions = item_store.captions(session, dataset.id)
    originals: dict[int, list[int]] = defaultdict(list)
    for caption in captions:
        if study.direction is Direction.T2I:
            originals[caption.id].append(caption.image_id)
        else:
            originals[caption.image_id].append(caption.id)
    if study.direction is Direction.T2I:
        gallery = [image.id for image in item_store.images(session, dataset.id, settings.project)]
    else:
        gallery = [caption.id for caption in captions]
    queries = shuffled(contest.queries, settings.seed, "preference controls")[:count]
    return [_control(settings.seed, study, contest, query, originals[query], gallery) for query in queries]


def _control(
    seed: int, study: Study, contest: Contest, query: int, originals: Sequence[int], gallery: Sequence[int]
) -> Control:
    known = contest.positives.get(query, ())
    first = contest.rankings[contest.systems[0].name][query]
    better = known or tuple(dict.fromkeys([*originals, *first]))[: study.top_k]
    listed = {item for lists in contest.rankings.values() for item in lists[query]}
    taken = {*better, *originals}
    rest = shuffled(
        [item for item in gallery if item not in taken], seed, f"random {study.direction} {query}"
    )
    drawn = sorted(rest, key=lambda item: item in listed)[: len(better)]
    if len(drawn) < len(better):
        raise ProposalError(
            f"the gallery has {len(rest)} items beside those of a control, but its other list needs {len(better)}; "
            "give a smaller --top-k, or --controls 0"
        )
    return Control(query, better, tuple(drawn))
