"""Publishing: plan, price, ask, post."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.orm import Session

from mitl.crowd.client import MTurkClient
from mitl.crowd.endpoint import Endpoint, open_endpoint
from mitl.db.locks import PUBLISH, only_one
from mitl.db.session import open_database, reading
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store.hits import BatchRow, HitRow, NewHit
from mitl.errors import CrowdError, FundsError, UsageError
from mitl.hits.pricing import Bill, bill, format_dollars, reward_for_floor
from mitl.hits.rendering import PagePair, check_size, question_xml, render_page
from mitl.hits.templates import HitTemplate, load_template
from mitl.progress import Progress, no_progress
from mitl.records import CaptionItem, Environment, HitItem, HitState, StageResult
from mitl.settings import (
    ASSIGNMENT_DURATION_S,
    AUTO_APPROVAL_S,
    PRICING_FLOOR_CENTS_PER_HOUR,
    WAGE_FLOOR_CENTS_PER_HOUR,
    Settings,
)
from mitl.stages.environment import require_same_server
from mitl.stages.exclusion import exclusion_qualification
from mitl.stages.pictures import picture_sources
from mitl.stages.planning import Campaign, Plan, make_plan, token
from mitl.stages.posting import post, reconcile

__all__ = ["Campaign", "publish"]

PAIRS_PER_HIT = 20


@dataclass(frozen=True, slots=True)
class _Terms:
    """What the HITs of one batch are posted under."""

    template: HitTemplate
    reward_cents: int
    assignments: int


def publish(
    settings: Settings,
    campaign: Campaign,
    *,
    confirm: Callable[[int], bool],
    announce: Callable[[str], None] | None = None,
    dry_run: bool = False,
    progress: Progress = no_progress,
) -> StageResult:
    """Post what is open in an environment and what an interrupted run left behind.

    Args:
        confirm: is shown the total in cents and says whether to go on.
        announce: is given the bill's lines before anything is posted.

    Raises:
        StoreError: another publish is at work on the same database, and would ask the same pairs.
        UsageError: the bill exceeds ``max_cost_cents``, or was not confirmed.
        FundsError: the balance does not cover the bill.
        CrowdError: a call failed; what was posted is kept and the next run goes on.
    """
    say = announce or (lambda line: None)
    environment = campaign.environment
    wording = load_template(campaign.template, settings.wordings)
    terms = _Terms(wording, _reward(campaign, wording), campaign.assignments)
    with (
        open_database(settings.db_url) as session,
        nullcontext() if dry_run else only_one(settings.db_url, PUBLISH),
        open_endpoint(settings, environment) as endpoint,
    ):
        client = endpoint.client()
        require_same_server(session, endpoint, environment)
        adopted = 0
        if not dry_run:
            adopted = reconcile(session, settings.project_id, environment, client.list_hits)
        with reading(session):
            plan = make_plan(session, settings, campaign)
            batches = {batch.id: batch for batch in hit_store.batches(session, environment)}
        if plan.n_hits == 0:
            return _nothing_to_do(adopted, environment)
        bills = _bills(plan, terms, batches, settings.wordings, charges_fee=endpoint.charges_fee)
        total = sum(part.total_cents for _, part in bills)
        balance = client.balance()
        for line in _bill_text(settings, campaign, plan, terms, bills, endpoint, balance):
            say(line)
        _check_money(settings, campaign, total, balance, bills)
        pages = _Pages(session, settings, environment, progress, write=not dry_run)
        # Before anything is stored or paid: a page that cannot be shown must not be planned.
        largest = pages.measure(plan, terms.template, _templates(batches, settings.wordings))
        if dry_run:
            return _dry(plan, total, largest)
        if not confirm(total):
            raise UsageError("the total was not confirmed; nothing was posted")
        fresh_batch = _store(session, settings, campaign, plan, terms, endpoint)
        to_post = hit_store.hits(session, environment, (HitState.PLANNED, HitState.SENDING))
        session.rollback()
        poster = _Poster(session, settings, client, pages, environment, in_order=endpoint.in_process)
        posted = poster.run(to_post, progress)
        balance = client.balance()
    return _result(plan, posted, adopted, total, balance, fresh_batch, campaign)


def _reward(campaign: Campaign, template: HitTemplate) -> int:
    if campaign.reward_cents is not None:
        return campaign.reward_cents
    return reward_for_floor(PRICING_FLOOR_CENTS_PER_HOUR, PAIRS_PER_HIT * template.seconds_per_pair)


def _templates(batches: Mapping[int, BatchRow], folder: Path) -> dict[int, HitTemplate]:
    """Batch → its wording, each loaded once."""
    names = {batch.template for batch in batches.values()}
    loaded = {name: load_template(name, folder) for name in names}
    return {id_: loaded[batch.template] for id_, batch in batches.items()}


def _bills(
    plan: Plan, terms: _Terms, batches: dict[int, BatchRow], folder: Path, *, charges_fee: bool
) -> list[tuple[str, Bill]]:
    groups: list[tuple[str, int, HitTemplate, int, int]] = []
    if plan.fresh:
        groups.append(("new", len(plan.fresh), terms.template, terms.reward_cents, terms.assignments))
    old = [(replacement.replaces.batch_id, replacement.assignments) for replacement in plan.again]
    old += [(hit.batch_id, hit.assignments) for hit in plan.leftover]
    templates = _templates(batches, folder)
    for key in sorted(set(old)):
        batch, assignments = batches[key[0]], key[1]
        groups.append((batch.name, old.count(key), templates[batch.id], batch.reward_cents, assignments))
    return [
        (
            name,
            bill(
                hits,
                assignments=assignments,
                reward_cents=reward,
                estimate_s=PAIRS_PER_HIT * template.seconds_per_pair,
                charges_fee=charges_fee,
            ),
        )
        for name, hits, template, reward, assignments in groups
    ]


def _bill_text(
    settings: Settings,
    campaign: Campaign,
    plan: Plan,
    terms: _Terms,
    bills: Sequence[tuple[str, Bill]],
    endpoint: Endpoint,
    balance: int,
) -> list[str]:
    """The bill, line by line, before anything is posted."""
    total = sum(part.total_cents for _, part in bills)
    rewards = sum(part.rewards_cents for _, part in bills)
    fees = sum(part.fees_cents for _, part in bills)
    filled = f"; last filled with {plan.n_repeats} repeats" if plan.n_repeats else ""
    if plan.n_overlap:
        filled += f"; {plan.n_overlap:,} pairs asked of a second worker too"
    where = "an endpoint that charges a fee" if endpoint.charges_fee else "this endpoint charges none"
    lines = [
        f"{campaign.environment} · template {terms.template.name} · seed {settings.seed} · {endpoint.url}",
        _columns("pairs", f"{plan.n_pairs:,}")
        + _columns("HITs", f"{plan.n_hits:,}")
        + f" ({_page_text(plan)}{filled})",
    ]
    if plan.again:
        lines.append(f"  {len(plan.again):,} of the HITs ask again what could not be used")
    if plan.leftover:
        lines.append(f"  {len(plan.leftover):,} of the HITs were planned by an earlier run and not posted")
    for name, part in bills:
        label = "" if len(bills) == 1 else f" {'new batch' if name == 'new' else name}"
        lines.append(
            _columns(f"reward{label}", format_dollars(part.reward_cents))
            + _columns("estimate", f"{part.estimate_s} s a HIT")
            + f", {format_dollars(part.hourly_cents)} an hour"
        )
    lines.append(
        _columns("rewards", format_dollars(rewards)) + _columns("fee", format_dollars(fees)) + f" ({where})"
    )
    after = f"{format_dollars(balance)} → {format_dollars(balance - total)}"
    if campaign.environment is Environment.SANDBOX:
        after = f"{format_dollars(balance)} of practice money, always"
    lines.append(_columns("total", format_dollars(total)) + f"  balance       {after}")
    return lines


def _page_text(plan: Plan) -> str:
    """What stands on the pages: 18 candidates and 2 controls, less on pages that ask again."""
    asked = {sum(not item.role.is_gold for item in page) for page in plan.pages}
    least, most = min(asked), max(asked)
    return f"{most if least == most else f'{least} to {most}'} candidates + 2 controls"


def _columns(label: str, value: str) -> str:
    return f"  {label:<13} {value:>14}"


def _check_money(
    settings: Settings, campaign: Campaign, total: int, balance: int, bills: Sequence[tuple[str, Bill]]
) -> None:
    if campaign.max_cost_cents is not None and total > campaign.max_cost_cents:
        raise UsageError(
            f"the bill is {format_dollars(total)}, above --max-cost {format_dollars(campaign.max_cost_cents)}; "
            "raise it, or ask fewer pairs with --limit"
        )
    floor = settings.wage_floor_cents
    if floor is None:
        floor = WAGE_FLOOR_CENTS_PER_HOUR[campaign.environment]
    for _, part in bills:
        if part.hourly_cents < floor:
            raise UsageError(
                f"a reward of {format_dollars(part.reward_cents)} at {part.estimate_s} s a HIT is "
                f"{format_dollars(part.hourly_cents)} an hour, below the wage floor of {format_dollars(floor)}; "
                "raise --reward, or set wage_floor_cents in [crowd] of mitl.toml"
            )
    if total > balance:
        raise FundsError(
            f"the bill is {format_dollars(total)}, but the balance is {format_dollars(balance)}; "
            "raise the budget with `mitl crowd budget`, or ask fewer pairs with --limit"
        )


class _Pages:
    """Renders questions; pictures and captions are loaded once."""

    def __init__(
        self,
        session: Session,
        settings: Settings,
        environment: Environment,
        progress: Progress,
        *,
        write: bool,
    ) -> None:
        dataset = item_store.dataset(session)
        self._settings = settings
        self._images = {i.id: i for i in item_store.images(session, dataset.id, settings.project)}
        self._captions: dict[int, CaptionItem] = {c.id: c for c in item_store.captions(session, dataset.id)}
        self._sources: dict[int, str] = {}
        self._progress = progress
        self._write = write
        session.rollback()

    def prepare(self, pages: Sequence[Sequence[HitItem]]) -> None:
        """Make the pictures of these pages available."""
        wanted = sorted({item.pair.image_id for page in pages for item in page} - self._sources.keys())
        images = [self._images[image] for image in wanted]
        self._sources.update(picture_sources(self._settings, images, self._progress, write=self._write))

    def question(self, items: Sequence[HitItem], template: HitTemplate) -> str:
        """The question of one page as XML, its size checked."""
        pairs = [
            PagePair(
                item.place,
                self._sources[item.pair.image_id],
                self._captions[item.pair.caption_id].text,
            )
            for item in items
        ]
        html = render_page(
            template, pairs, contact=self._settings.contact, estimate_s=len(pairs) * template.seconds_per_pair
        )
        xml = question_xml(html)
        check_size(xml)
        return xml

    def measure(self, plan: Plan, fresh: HitTemplate, templates: Mapping[int, HitTemplate]) -> int:
        """Render every page of a plan under its own wording; returns the largest question's size in bytes.

        Raises:
            TemplateError: a page is too large.
            DatasetError: a page's picture cannot be shown.
        """
        self.prepare(plan.pages)
        pages = [(page.items, fresh) for page in plan.fresh]
        pages += [(one.page.items, templates[one.replaces.batch_id]) for one in plan.again]
        pages += [(tuple(plan.leftover_pages[hit.id]), templates[hit.batch_id]) for hit in plan.leftover]
        with self._progress("render", len(pages)) as advance:
            largest = 0
            for items, template in pages:
                largest = max(largest, len(self.question(items, template).encode()))
                advance(1)
        return largest


class _Poster:
    """Posts the HITs of one environment, each under its batch's terms."""

    def __init__(
        self,
        session: Session,
        settings: Settings,
        client: MTurkClient,
        pages: _Pages,
        environment: Environment,
        *,
        in_order: bool,
    ) -> None:
        self._in_order = in_order
        self._session, self._settings, self._client, self._pages = session, settings, client, pages
        self._batches = {batch.id: batch for batch in hit_store.batches(session, environment)}
        self._types: dict[int, str] = {}
        self._templates = _templates(self._batches, settings.wordings)
        session.rollback()

    def run(self, hits: Sequence[HitRow], progress: Progress) -> int:
        """Create these HITs; returns how many."""
        items = hit_store.hit_items(self._session, [hit.id for hit in hits])
        self._session.rollback()
        self._pages.prepare(list(items.values()))
        guard = exclusion_qualification(self._client, self._settings.project_id)
        for batch_id in sorted({hit.batch_id for hit in hits}):
            self._types[batch_id] = self._hit_type(self._batches[batch_id], guard)
        return post(
            self._session,
            self._client,
            self._settings.project_id,
            hits,
            hit_type_of=lambda hit: self._types[hit.batch_id],
            question_of=lambda hit: self._pages.question(items[hit.id], self._templates[hit.batch_id]),
            assignments_of=lambda hit: hit.assignments,
            in_order=self._in_order,
            progress=progress,
        )

    def _hit_type(self, batch: BatchRow, guard: str) -> str:
        template = self._templates[batch.id]
        return self._client.create_hit_type(
            title=template.title,
            description=template.description,
            keywords=template.keywords,
            reward_cents=batch.reward_cents,
            assignment_duration_s=ASSIGNMENT_DURATION_S,
            auto_approval_s=AUTO_APPROVAL_S,
            exclude_qualification=guard,
        )


def _store(
    session: Session,
    settings: Settings,
    campaign: Campaign,
    plan: Plan,
    terms: _Terms,
    endpoint: Endpoint,
) -> str | None:
    """Write the plan down, all of it or nothing; returns the name of the new batch."""
    name = None
    try:
        if plan.fresh:
            now = dt.datetime.now(dt.UTC)
            dataset = item_store.dataset(session)
            batch = hit_store.add_batch(
                session,
                round_id=hit_store.open_round(session, dataset.id, now),
                environment=campaign.environment,
                direction=campaign.direction,
                template=terms.template.name,
                reward_cents=terms.reward_cents,
                assignments=terms.assignments,
                seed=settings.seed,
                server_id=endpoint.server_id,
                now=now,
            )
            name = batch.name
            rows = [
                NewHit(page, 1, None, terms.assignments, token(settings.project_id, name, page.number, 1))
                for page in plan.fresh
            ]
            hit_store.add_hits(session, batch.id, rows)
        for replacement in plan.again:
            old = replacement.replaces
            key = token(settings.project_id, old.batch, old.number, replacement.attempt)
            new = NewHit(replacement.page, replacement.attempt, old.id, replacement.assignments, key)
            hit_store.add_hits(session, old.batch_id, [new])
        session.commit()
    except BaseException:
        session.rollback()
        raise
    return name


def _after_posting(environment: Environment) -> str:
    people = "mitl serve for people"
    if environment is Environment.SANDBOX:
        people += ", or mitl simulate"
    return f"{people}; then mitl harvest"


def _nothing_to_do(adopted: int, environment: Environment) -> StageResult:
    return StageResult(
        status="done" if adopted else "nothing_to_do",
        counts={"hits_posted": 0, "hits_adopted": adopted},
        lines=(
            f"{adopted} HITs that had reached the server were recognised; nothing else is open"
            if adopted
            else "nothing to do: every proposed pair is on an open HIT or judged",
        ),
        next=_after_posting(environment),
    )


def _dry(plan: Plan, total: int, largest: int) -> StageResult:
    return StageResult(
        counts={
            "hits": plan.n_hits,
            "pairs": plan.n_pairs,
            "total_cents": total,
            "largest_question_bytes": largest,
        },
        lines=(
            f"dry run: {plan.n_hits:,} HITs rendered, the largest question has {largest:,} of 65,535 bytes; "
            "no HIT was planned or posted",
        ),
    )


def _result(
    plan: Plan,
    posted: int,
    adopted: int,
    total: int,
    balance: int,
    batch: str | None,
    campaign: Campaign,
) -> StageResult:
    if posted < plan.n_hits:
        raise CrowdError(f"{posted} of {plan.n_hits} HITs were posted; run the command again to go on")
    return StageResult(
        counts={
            "batch": batch,
            "environment": campaign.environment.value,
            "pairs": plan.n_pairs,
            "hits_posted": posted,
            "hits_adopted": adopted,
            "hits_again": len(plan.again),
            "repeats": plan.n_repeats,
            "overlap": plan.n_overlap,
            "total_cents": total,
            "balance_cents": balance,
        },
        lines=(f"posted {posted:,} / {plan.n_hits:,} HITs" + (f" as batch {batch}" if batch else ""),),
        next=_after_posting(campaign.environment),
    )
