"""The datasheet's account of the people: controls, workers, time, pay, agreement, texts, past work."""

from __future__ import annotations

from mitl.core.pricing import format_dollars
from mitl.judgements.agreement import PairAgreement
from mitl.positives.certifying import CertifiedAudit
from mitl.positives.markdown import listed, percent, plain, table
from mitl.positives.release_input import (
    BatchPay,
    Controls,
    CrowdSummary,
    Origins,
    PastWork,
    ReleaseCard,
    ReleaseInput,
)
from mitl.positives.scrubbing import MARK, TextScan
from mitl.positives.summary import Summary
from mitl.records import Environment, several

NOT_STATED = "not stated"
_UNDERSTATED = (
    " Past work that names no workers is among them: where two people gave the same answer it may be read as one, so "
    "that people agreed more than this says."
)

_FILES = {
    "batch_csv": "a batch CSV of the requester site",
    "command_line": "results of the command line tools",
    "assignment_list": "a list of assignments",
    "table": "a table with a column mapping",
    "mturk_parsed": "a CSV in ECCV Caption's layout",
}


def judging(data: ReleaseInput, summary: Summary) -> str:
    """What people were asked, what they answered, and who they were; or that nobody was."""
    if not len(data.judgements) and not data.origins.batches:
        nobody = "Nobody was asked about candidate pairs" if data.has_collected else "Nobody was asked"
        return f"{nobody}. Consent and ethics review: {plain(data.card.ethics) or NOT_STATED}."
    total = sum(summary.labels.values())
    answers = [(label.value, f"{n:,}", percent(n, total)) for label, n in summary.labels.items()]
    origins = data.origins
    smaller = min(len(data.image_ids), len(data.caption_ids))
    all_ranked = any(run.depth >= smaller for run in origins.runs)
    parts = [
        "People saw an image with a caption and chose one of four answers.",
        table(("usable answers", "count", "share"), answers),
        "### Controls",
        _controls(origins.controls, posted=bool(origins.batches), all_ranked=all_ranked),
        "### Workers",
        workers(origins.crowd, "judgements.parquet", data.audit),
        "### Time and pay",
        time_and_pay(origins, data.card, data.environment, summary.median_active_s),
        "### Agreement",
        agreement(summary.agreement, nameless=origins.nameless),
        "### Words of the workers",
        texts_told(summary.texts, "judgements.parquet"),
    ]
    if origins.past_work:
        parts += ["### Past work", *(_past_work(work) for work in origins.past_work)]
    return "\n\n".join(parts)


def agreement(found: PairAgreement, *, nameless: bool = False) -> str:
    """Alpha with its interval, or why there is none.

    Args:
        nameless: some answers come from a file that names no workers.
    """
    alpha = found.alpha
    if alpha.alpha is None:
        return f"Agreement between people cannot be estimated: {alpha.reason}."
    interval = (
        f"95 % bootstrap interval {alpha.low:.3f} to {alpha.high:.3f}"
        if found.has_interval
        else "too few pairs for an interval"
    )
    return (
        f"Krippendorff's alpha, ordinal: {alpha.alpha:.3f} ({interval}), from {alpha.answers:,} usable answers of two "
        f"people or more on {several(found.pairs, 'pair')}; controls are left out. All gave the same answer on "
        f"{percent(found.same_label, found.pairs)} of these pairs, and answers on one side, match or no match, on "
        f"{percent(found.same_side, found.pairs)}.{_UNDERSTATED if nameless else ''}"
    )


def _controls(controls: Controls | None, *, posted: bool, all_ranked: bool) -> str:
    if controls is None:
        if posted:
            return "None of the pages held a control, a pair whose answer is known beforehand."
        return "The files of past work say nothing of controls, pairs whose answer is known beforehand."
    rows = [
        (name, f"{kind.controls:,}", kind.text)
        for name, kind in (("gold positives", controls.positive), ("gold negatives", controls.negative))
    ]
    asked = table(("", "controls", "answered as expected"), rows)
    kept = "Answers to controls are in none of these files."
    if not posted:
        told = (
            "The files of past work say which pairs were controls, whose answer was known beforehand; how these were "
            f"drawn is not known here. Here {controls.rule}."
        )
        return "\n\n".join([told, asked, kept])
    otherwise = " (where they ranked every item, that none proposed or ranked high)" if all_ranked else ""
    return "\n\n".join(
        [
            "Each page held two pairs whose answer is known, a gold positive and a gold negative, at places that "
            "workers could not tell. Gold positives are original pairs, drawn at random: those of an earlier rating "
            "of 4.5 or more first, none of one below 3 or that an exclusion list names. Gold negatives were drawn at "
            f"random from the pairs of a query with an item that no machine annotator ranked for it{otherwise} and "
            f"that nobody calls a match. The rule, as set at release: {controls.rule}. A page that failed one went to "
            "a person, and nothing was rejected by rule. "
            f"Controls that workers of good record failed were withdrawn: {controls.withdrawn:,}.",
            asked,
            kept,
        ]
    )


def workers(crowd: CrowdSummary | None, file: str, audit: CertifiedAudit | None = None) -> str:
    """Who worked, and what became of their work.

    Args:
        file: the table with their answers.
        audit: whose answers stand in a table of their own.
    """
    named = "Workers appear under pseudonyms keyed by a secret that is not released."
    if crowd is None:
        return f"Nobody worked on pages that were posted for this release. {named}"
    limit = crowd.max_hits_per_worker
    rows = [
        ("workers who submitted a HIT", f"{crowd.workers:,}"),
        (f"… with answers in `{file}`", f"{crowd.answering:,}"),
        *(
            [("… with answers in `audit_answers.parquet`", f"{audit.record.answers['worker'].nunique():,}")]
            if audit is not None
            else []
        ),
        (
            "share of their answers that the busiest gave",
            "–" if crowd.busiest_share is None else percent(crowd.busiest_share),
        ),
        ("excluded from further work by a person", f"{crowd.excluded:,}"),
        (
            "reached the limit of HITs for one worker",
            "no limit was set at release"
            if limit is None
            else f"{crowd.capped:,} (at most {limit:,} HITs, as set at release)",
        ),
        ("submitted HITs", f"{crowd.submissions:,}"),
        ("… paid, answers used", f"{crowd.used:,}"),
        ("… paid, answers not used", f"{crowd.paid_unused:,}"),
        ("… rejected by a person", f"{crowd.rejected:,}"),
        ("… not decided yet", f"{crowd.undecided:,}"),
    ]
    return table(("", "count"), rows) + f"\n\n{named}"


def time_and_pay(origins: Origins, card: ReleaseCard, environment: Environment, seconds: float | None) -> str:
    """What work took and paid.

    Args:
        seconds: median active time of a question; None where it was not measured.
    """
    pay = origins.pay
    measured = "not measured" if seconds is None else f"{seconds:.1f} s"
    rows = [("median active time a pair, as its page measured it", measured)]
    if pay is not None:
        median, hourly = pay.median_page_s, pay.median_hourly_cents
        bonuses = f"{format_dollars(pay.bonuses_cents)} to {several(pay.bonus_workers, 'worker')}"
        rows += [
            ("median active time a HIT", "not measured" if median is None else f"{median:.0f} s"),
            ("paid HITs, of which timed", f"{pay.pages:,}, {pay.timed_pages:,}"),
            ("rewards paid", format_dollars(pay.rewards_cents)),
            ("bonuses paid", bonuses if pay.bonus_workers else "none"),
            ("fees", format_dollars(pay.fees_cents)),
            (
                "median pay for an hour of active time, over workers, bonuses included",
                "not known" if hourly is None else format_dollars(hourly),
            ),
        ]
        if pay.floor_cents:
            rows += [
                (
                    f"workers paid less than the floor of {format_dollars(pay.floor_cents)} an hour, as set at release",
                    f"{percent(pay.workers_under, pay.timed_workers)} of {pay.timed_workers:,}",
                ),
                (
                    "timed HITs whose reward alone pays less",
                    f"{percent(pay.pages_under, pay.timed_pages)} of {pay.timed_pages:,}",
                ),
            ]
        else:
            rows.append(("wage floor", "none was set at release"))
    if card.pay:
        rows.append(("what the makers say of pay", plain(card.pay)))
    rows.append(("consent and ethics review", plain(card.ethics) or NOT_STATED))
    parts = [table(("", ""), rows)]
    if origins.batches:
        columns = ("wording", "direction", "HITs", "workers asked for each", "reward")
        parts.append(table(columns, [_batch(batch) for batch in origins.batches]))
    if pay is not None:
        parts.append(_how_timed(environment))
    return "\n\n".join(parts)


def _how_timed(environment: Environment) -> str:
    measured = "Pages measured the time in which they were looked at and used."
    if environment is Environment.SANDBOX:
        return f"{measured} This was practice money: nobody was owed any of it, and the pages' times are taken as told."
    return (
        f"{measured} A page's time counts for no more than passed between acceptance and submission, and for no more "
        "than was allowed; where a page measured nothing, the median of its wording stands in for a worker's hours."
    )


def _batch(batch: BatchPay) -> tuple[str, ...]:
    wording = plain(batch.wording) + (" (pilot)" if batch.pilot else "")
    reward = format_dollars(batch.reward_cents)
    return wording, plain(batch.direction), f"{batch.hits:,}", f"{batch.assignments:,}", reward


def texts_told(scan: TextScan | None, file: str) -> str:
    """What became of the workers' own words, which stand in the column `text` of a file."""
    if scan is None:
        return "What workers wrote of pairs is left out of this release, because free text may hold anything."
    if not scan.texts:
        return f"The column `text` of `{file}` is for the workers' own words; nobody wrote any."
    return (
        f"The column `text` of `{file}` holds what workers wrote, {several(scan.texts, 'text')}. "
        f"A scan put `{MARK}` in place of addresses, phone numbers, ids and long numbers and codes: "
        + (f"{scan.taken} in {several(scan.changed, 'text')}." if scan.removed else "it found none.")
        + " It does not know names of people or places."
    )


def _past_work(work: PastWork) -> str:
    kinds = listed([f"{_FILES.get(kind, plain(kind))} ({several(rows, 'row')})" for kind, rows in work.files])
    line = (
        f"Batch {plain(work.batch)} was not posted for this release but read from {kinds or 'a file'}: "
        f"{several(work.submissions, 'submission')} of {several(work.workers, 'worker')}. How its workers were "
        "recruited, checked and paid is not known here."
    )
    if any(kind == "mturk_parsed" for kind, _ in work.files):
        line += (
            " Such a CSV names no workers: the answers on one pair are told apart by their number, so figures about "
            "workers say nothing of these answers."
        )
    return line
