"""The kind of campaign that asks how well a caption matches an image."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated

from sqlalchemy.orm import Session

from mitl.campaign.kinds.pairs.planning import PAIRS_PER_HIT, Campaign, PairsPlan, make_plan, who_met
from mitl.campaign.kinds.protocol import (
    FindingsOf,
    HeldTo,
    PostingCounts,
    Shown,
    Wording,
    WorkingTime,
    again_lines,
    columns,
    dry_keys,
    posted_keys,
    spread,
)
from mitl.campaign.pilots import estimate_of
from mitl.crowd.answers import parse_answers
from mitl.db.store import hits as hit_store
from mitl.db.store import judgements as judgement_store
from mitl.db.store import open_work
from mitl.db.store import parses as parse_store
from mitl.db.store.answers import StoredAssignment
from mitl.hits.rendering import PagePair, render_page
from mitl.hits.templates import HitTemplate
from mitl.hits.validation import check_page
from mitl.judgements.gold_records import check_assignment, gold_findings
from mitl.records import PAIRS_COMMAND, BatchKind, HitItem, Judgement, Label, Table, several
from mitl.records.results import printed_by


@printed_by("publish")
class PublishCounts(PostingCounts, total=False):
    """What publishing pairs counts, and comparing with the server alone."""

    pairs: Annotated[int, "candidate pairs on the pages"]
    hits_again: Annotated[int, "HITs that ask again what could not be used"]
    repeats: Annotated[int, "pairs that fill the last page; they measure agreement"]
    overlap: Annotated[int, "pairs that a second worker is asked (`--overlap`)"]
    audit_questions: Annotated[int, "questions of an audit's random sample on the pages"]
    met_questions: Annotated[
        int, "questions that somebody has answered, so that they count from others alone"
    ]
    met_hits: Annotated[int, "HITs that hold them"]
    hits_kept_off: Annotated[int, "of these, HITs kept from people of whom no answer there would count"]
    people_left: Annotated[
        int | None, "the fewest people so far of whom an answer to one of them would count; null without one"
    ]
    pilot: Annotated[bool, "whether the new batch is a pilot (`--pilot`)"]
    hits_gone: Annotated[int, "posted HITs that the server has deleted; they are closed here (`--reconcile`)"]
    hits_orphaned: Annotated[
        int, "HITs of this project on the server that are not known here (`--reconcile`)"
    ]
    hits_unposted: Annotated[int, "HITs that are planned and not posted (`--reconcile`)"]


_MET = ("met_questions", "met_hits", "hits_kept_off", "people_left")


class PairsKind:
    """Pages of 18 candidates and 2 gold controls."""

    name = BatchKind.PAIRS.value
    command = PAIRS_COMMAND
    ask_again = PAIRS_COMMAND
    scores = ""
    asked = "pairs"
    shown = "pairs"
    given = "judgements"
    page_size = PAIRS_PER_HIT
    answer_field = "label"
    choices = tuple(Label)
    dry_keys = dry_keys("hits", "pairs", "audit_questions", *_MET)
    posted_keys = posted_keys("pairs", after=("repeats", "overlap", "audit_questions", *_MET), pilots=True)
    plan = staticmethod(make_plan)
    who_met = staticmethod(who_met)
    to_replace = staticmethod(open_work.hits_to_replace)
    add_items = staticmethod(hit_store.add_items)
    items = staticmethod(hit_store.hit_items)
    check_page = staticmethod(check_page)
    submissions = parse_store.PAIRS
    parse = staticmethod(parse_answers)
    set_parses = staticmethod(parse_store.set_parses)

    def estimate(self, template: HitTemplate, plan: PairsPlan) -> WorkingTime:
        """By the times of the wording's latest pilot, else by the wording's own."""
        return estimate_of(plan.pilots, template, PAIRS_PER_HIT)

    def add_batch(self, session: Session, batch_id: int, plan: PairsPlan, like: int | None = None) -> None:
        """A batch of pairs is its pages alone."""

    def images(self, item: HitItem) -> tuple[int]:
        """See `CampaignKind`."""
        return (item.pair.image_id,)

    def render(self, items: Sequence[HitItem], wording: Wording, shown: Shown) -> tuple[str, list[str]]:
        """See `CampaignKind`."""
        pairs = [
            PagePair(
                item.place,
                shown.sources.get(item.pair.image_id, ""),
                shown.captions[item.pair.caption_id],
                shown.texts.get(item.pair.image_id, ()),
                shown.sources.get(shown.references.get(item.pair.caption_id, -1), ""),
            )
            for item in items
        ]
        seconds = -(-len(pairs) * wording.estimate_s // PAIRS_PER_HIT)
        html = render_page(wording.template, pairs, contact=shown.contact, estimate_s=seconds)
        return html, [text for pair in pairs for text in pair.shown]

    def headline(self, request: Campaign, plan: PairsPlan) -> str:
        """See `CampaignKind`."""
        return f"template {request.template}{' · pilot' if request.pilot is not None and plan.fresh else ''}"

    def bill_lines(self, plan: PairsPlan) -> list[str]:
        """See `CampaignKind`."""
        filled = f"; last filled with {several(plan.n_repeats, 'repeat')}" if plan.n_repeats else ""
        if plan.n_overlap:
            filled += f"; {several(plan.n_overlap, 'pair')} asked of a second worker too"
        what = "questions" if plan.n_audit else "candidates"
        asked = {sum(not item.role.is_gold for item in page) for page in plan.pages}
        on_page = f"{spread(asked)} {what} + 2 controls"
        lines = [
            f"{columns('pairs', f'{plan.n_pairs:,}')}{columns('HITs', f'{plan.n_hits:,}')} ({on_page}{filled})",
            *again_lines(plan),
        ]
        if plan.n_audit:
            lines.insert(
                1,
                f"{columns('audit', f'{plan.n_audit:,}')} questions of a random sample, which workers cannot tell from "
                "candidates",
            )
        if plan.left_out:
            lines.append(f"  {plan.left_out}")
        if plan.out:
            lines.append(
                f"  the limit counts {sum(stored.asked for stored in plan.out):,} pairs that are out "
                f"({', '.join(stored.name for stored in plan.out)})"
            )
        return lines

    def facts(self, plan: PairsPlan) -> Mapping[str, object]:
        """See `CampaignKind`."""
        return {
            "pairs": plan.n_pairs,
            "repeats": plan.n_repeats,
            "overlap": plan.n_overlap,
            "audit_questions": plan.n_audit,
            "met_questions": plan.met.questions,
            "met_hits": plan.met.hits,
            "hits_kept_off": plan.met.kept_off,
            "people_left": plan.met.left,
        }

    def nothing_open(self, *, adopted: int) -> str:
        """See `CampaignKind`."""
        return "nothing else is open" if adopted else "every proposed pair is on an open HIT or judged"

    def findings(self, session: Session, rows: Sequence[StoredAssignment], held_to: HeldTo) -> FindingsOf:
        """By the page's gold controls."""
        on_page: dict[int, list[Judgement]] = defaultdict(list)
        for stored in judgement_store.gold_judgements(session, [row.id for row in rows]):
            on_page[stored.assignment_id].append(stored.record)
        return {
            row.id: gold_findings(check_assignment(on_page[row.id], held_to.rule, held_to.withdrawn))
            for row in rows
        }

    def evidence(self, session: Session, row: StoredAssignment) -> tuple[Table, str] | None:
        """The desk and `mitl review show` know pages of pairs, their golds and other workers' answers."""
        return None


KIND = PairsKind()
