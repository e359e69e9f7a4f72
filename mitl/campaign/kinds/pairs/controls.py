"""The gold controls of pages of pairs: drawn from originals, and from pairs that no ranking lists, or none high up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlalchemy.orm import Session

from mitl.core.arrays import Ints, pack_pairs
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store import judgements as judgement_store
from mitl.db.store import proposals as proposal_store
from mitl.db.store.control_sheets import gold_state
from mitl.errors import ProposalError, StoreError
from mitl.positives.merging import CXC_POSITIVE
from mitl.proposals.candidates import NamedRanking, ranked_pairs, ranking_path
from mitl.proposals.sampling import gold_negatives, gold_positives, low_depth
from mitl.records import Direction, Environment, Pair
from mitl.retrieval.rankings import read_ranking
from mitl.settings import Settings

PAGES_PER_GOLD = 3
"""On how many pages of a batch a control stands. One met once could never be put on trial: withdrawing it takes
two workers of good record who failed it. The pages of one control lie a third of the batch apart."""

FEW_PAGES = 18
"""A batch of up to so many pages has a control of its own for each."""


def draw_controls(
    session: Session, settings: Settings, environment: Environment, n_pages: int, *, spare: int = 2
) -> tuple[list[Pair], list[Pair]]:
    """Gold positives and negatives for this many pages; those that stand on fewest pages so far come first.

    Args:
        spare: so many more let a page that asks about one of them take another.
    """
    dataset = item_store.dataset(session)
    captions = item_store.captions(session, dataset.id)
    excluded = item_store.excluded(session)
    ratings = item_store.ratings(session)
    withdrawn = {gold.pair for gold in gold_state(session, environment, settings.gold_rule).withdrawn}
    use = hit_store.gold_use(session, environment)
    originals = item_store.originals(session, dataset.id)
    refused = {pair for pair in originals if pair in excluded} | withdrawn
    known_pairs = {
        *originals,
        *(pair for pair, score in ratings.items() if score >= CXC_POSITIVE),
        *judgement_store.judged_matches(session, environment),
        # A composed query may not find its own reference, which no page shows as a candidate either.
        *(Pair(query.reference_id, query.id) for query in captions if query.reference_id is not None),
    }
    queries = proposal_store.queries(session)
    image_ids = [image.id for image in item_store.images(session, dataset.id, settings.project)]
    rankings = list(all_rankings(session, settings, dataset.id))
    ranked = ranked_pairs(rankings)
    seed = settings.seed + len(use)
    wanted = max(-(-n_pages // PAGES_PER_GOLD), min(n_pages, FEW_PAGES)) + spare
    positives = gold_positives(originals, excluded=refused, ratings=ratings, seed=seed)
    positives = sorted(positives, key=use.__getitem__)[:wanted]

    def negatives(ranked: Ints, without: Iterable[Pair]) -> list[Pair]:
        return gold_negatives(
            (queries[Direction.I2T], queries[Direction.T2I]),
            (image_ids, [caption.id for caption in captions]),
            ranked=ranked,
            known_positives=pack_pairs([*known_pairs, *withdrawn, *without]),
            n=wanted,
            seed=seed,
        )

    try:
        fresh = negatives(ranked, use)
    except ProposalError:
        fresh = []
    again: list[Pair] = []
    if len(fresh) < wanted:
        # A small data set runs out of pairs that nobody was shown yet; as with positives, some then come again.
        try:
            again = negatives(ranked, ())
        except ProposalError:
            # Every pair of a smaller one is in some ranking: those that were not proposed and are high in none.
            high = ranked_pairs(rankings, low_depth(min(len(image_ids), len(captions))))
            again = negatives(high, proposal_store.candidate_pairs(session, list(Direction)))
    return positives, [*fresh, *(pair for pair in again if pair not in fresh)][:wanted]


def all_rankings(session: Session, settings: Settings, dataset_id: int) -> Iterator[NamedRanking]:
    """Every ranking file of every stored run but those of withdrawn annotators: a gold negative should be in none."""
    images, captions = item_store.id_maps(session, dataset_id)
    gone = proposal_store.withdrawn_names(session)
    for run in proposal_store.runs(session):
        folder = settings.runs / run.hash
        for entry in run.config["annotators"]:
            if entry["name"] in gone:
                continue
            for direction in Direction:
                if not run.config["queries"][direction.value]["count"]:
                    continue
                path = ranking_path(folder, entry["name"], direction)
                if not path.exists():
                    asked = " and ".join(
                        f"{run.config['queries'][d.value]['count']:,} of {d.value}" for d in Direction
                    )
                    who = ", ".join(sorted(each["name"] for each in run.config["annotators"]))
                    raise StoreError(
                        f"the ranking {path} is gone; run `mitl propose` again as for run {run.hash}, which makes it "
                        f"again: its queries ({asked}), depth {run.config['depth']}, top {run.config['top_k']}, {who}"
                    )
                ranking = read_ranking(path, *direction.ordered(images, captions))
                yield NamedRanking(entry["name"], direction, ranking)
